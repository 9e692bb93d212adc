"""One step of the flow: what is sent, when a summary comes before it, what forks from it (ASM-CHAIN, -RETRY, -VIEW)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from tests.agent.helpers import KEY, agent_of, calls, recorder, run, runner_of
from tests.service.helpers import say, service_of, session_with, summary_model
from workbench.agent.flow import SentRequest, has_advanced, view_of
from workbench.agent.tools import TOOL_ERROR_PREFIX, FunctionTool
from workbench.call import EMPTY_CONTEXT, CallContext
from workbench.context.tailor import tokens_of_assembly
from workbench.errors import SummaryError
from workbench.model.scripted import ScriptedModel
from workbench.model.types import Message, Request, response_of
from workbench.profiles import SEED, TRPC_AGENT_GO_2026_07, TRPC_AGENT_GO_2026_08
from workbench.session.types import Summary, SummaryBoundary
from workbench.summary.context import cache_safe_fork_request_from_context
from workbench.summary.summarizer import Summarizer
from workbench.tokens import SimpleTokenCounter

LONG = "x" * 4000


def look() -> str:
    return "result"


def test_the_system_message_is_global_instruction_blank_line_instruction() -> None:
    """ASM-CHAIN-01, ASM-CHAIN-02."""

    async def main() -> None:
        model = ScriptedModel(["a"])
        agent = agent_of(model, global_instruction="global", instruction="own")
        await run(runner_of(agent), "q")
        assert [(m.role, m.content) for m in model.requests[0].messages] == [
            ("system", "global\n\nown"),
            ("user", "q"),
        ]

    asyncio.run(main())


def test_a_debug_hook_sees_the_exact_request_as_sent() -> None:
    """ASM-CHAIN-06, ASM-CHAIN-04."""
    seen: list[SentRequest] = []

    async def main() -> None:
        model = ScriptedModel(["a"])
        await run(runner_of(agent_of(model), on_request=seen.append), "q")
        assert seen[0].request is model.requests[0]
        assert all(message is seen[0].assembly.messages[i] for i, message in enumerate(model.requests[0].messages))

    asyncio.run(main())


def test_a_before_model_call_may_change_the_request_or_answer_itself() -> None:
    """ASM-CHAIN-02, row 8."""

    async def add(ctx: CallContext, request: Request) -> Request:
        return request.replace(messages=(*request.messages, Message(role="user", content="added")))

    async def answer(ctx: CallContext, request: Request) -> Any:
        return response_of(Message(role="assistant", content="from the cache"))

    async def main() -> None:
        model = ScriptedModel(["a"])
        await run(runner_of(agent_of(model, before_model=[add])), "q")
        assert model.requests[0].messages[-1].content == "added"
        events = await run(runner_of(agent_of(model, before_model=[answer])), "q")
        assert events[-1].message.content == "from the cache"
        assert len(model.requests) == 1

    asyncio.run(main())


def test_a_failing_or_unknown_tool_is_an_answer_for_the_model() -> None:
    """ASM-RUN-09."""

    def broken() -> str:
        raise RuntimeError("tool failed")

    async def main() -> None:
        model = ScriptedModel([calls("broken", "unheard_of", "look"), "done"])
        await run(runner_of(agent_of(model, tools=[FunctionTool(broken), FunctionTool(look)])), "q")
        results = [m for m in model.requests[1].messages if m.role == "tool"]
        assert [m.tool_id for m in results] == ["t1", "t2", "t3"]
        assert results[0].content == f"{TOOL_ERROR_PREFIX}tool failed"
        assert "unheard_of" in results[1].content
        assert results[2].content == '"result"'

    asyncio.run(main())


def retry_agent(model: ScriptedModel, **compaction: Any) -> Any:
    return agent_of(
        model,
        settings={"add_session_summary": True},
        compaction={"enabled": True, "threshold_ratio": 0.5, **compaction},
    )


def test_near_the_window_one_summary_is_tried_before_the_call_and_the_request_rebuilt() -> None:
    """ASM-RETRY-01, -04, -06, -07, -09, -11."""
    seen: list[SentRequest] = []

    async def main() -> None:
        service = recorder(summary_model("short"))
        await session_with(service, say(1, LONG), say(2, LONG, role="assistant"), say(3, LONG))
        model = ScriptedModel(["a"], context_window=4000)
        await run(runner_of(retry_agent(model), service, on_request=seen.append), "now")
        assert [method for method, _, _ in service.calls] == ["create", "enqueue"]
        assert seen[0].rebuilt
        contents = [m.content for m in model.requests[0].messages]
        assert "short" in contents[0]
        assert contents[1:] == ["now"]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("window", "ratio", "override", "fires"),
    [
        (4000, 0.5, 0, True),
        (4300, 0.5, 0, False),
        (100_000, 0.5, 4000, True),
        (10_000, 0.1, 0, True),
        (1024, 0.1, 0, True),
    ],
)
def test_the_threshold_is_a_share_of_the_window_and_at_least_two_thousand(
    window: int, ratio: float, override: int, fires: bool
) -> None:
    """ASM-RETRY-02, ASM-RETRY-03, ASM-WIN-01, ASM-WIN-02: inclusive, over 2,001 tokens."""

    async def main() -> bool:
        service = recorder(summary_model())
        await session_with(service, say(1, "x" * 8000))
        model = ScriptedModel(["a"], context_window=window)
        await run(runner_of(retry_agent(model, threshold_ratio=ratio), service), "now!", model_context_window=override)
        return service.calls[0][0] == "create"

    assert asyncio.run(main()) is fires


class _Counted(SimpleTokenCounter):
    """Says how many messages it was asked for."""

    n_counted = 0

    def count_tokens(self, ctx: CallContext, message: Message) -> int:
        self.n_counted += 1
        return super().count_tokens(ctx, message)


@pytest.mark.parametrize("is_additive", [True, False])
def test_looking_at_the_window_counts_only_what_is_new(is_additive: bool) -> None:
    """ASM-RETRY-02: a long tool loop counts each message about once, but for a counter that isn't a sum."""

    async def main(n_rounds: int) -> int:
        counter = _Counted()
        counter.message_additive = is_additive
        model = ScriptedModel([*(calls("look") for _ in range(n_rounds)), "done"], context_window=1_000_000)
        agent = replace(retry_agent(model), tools=[FunctionTool(look)], compaction_counter=counter)
        sent: list[SentRequest] = []
        await run(runner_of(agent, recorder(summary_model()), on_request=sent.append), "now")
        counted = counter.n_counted
        for one in sent:
            messages = one.assembly.messages
            tokens = counter.count_tokens_range(EMPTY_CONTEXT, messages, 0, len(messages))
            assert tokens_of_assembly(one.assembly, counter, EMPTY_CONTEXT) == tokens
        return counted

    few, many = asyncio.run(main(10)), asyncio.run(main(40))
    assert (many < 5 * few) is is_additive


def test_without_summary_injection_or_compaction_there_is_never_an_attempt() -> None:
    """ASM-RETRY-01, ASM-CHAIN-05, ASM-CMP-01."""

    async def main(settings: Any, compaction: Any) -> list[str]:
        service = recorder(summary_model())
        await session_with(service, say(1, LONG), say(2, LONG, role="assistant"), say(3, LONG))
        model = ScriptedModel(["a"], context_window=3000)
        await run(runner_of(agent_of(model, settings=settings, compaction=compaction), service), "now")
        return [method for method, _, _ in service.calls]

    assert asyncio.run(main({}, {"enabled": True})) == ["enqueue"]
    assert asyncio.run(main({"add_session_summary": True}, {})) == ["enqueue"]
    isolated = {"add_session_summary": True, "timeline_filter_mode": "request"}
    assert asyncio.run(main(isolated, {"enabled": True})) == ["enqueue"]


def test_a_summary_that_failed_or_did_not_advance_leaves_the_request_as_it_was() -> None:
    """ASM-RETRY-07, ASM-RETRY-08."""

    class Failing(Summarizer):
        async def summarize(self, session: Any, **kwargs: Any) -> str:
            raise SummaryError("no")

    async def main() -> None:
        service = service_of(summarizer=Failing(summary_model()))
        await session_with(service, say(1, LONG), say(2, LONG, role="assistant"), say(3, LONG))
        model = ScriptedModel(["a"], context_window=3000)
        await run(runner_of(retry_agent(model), service), "now")
        assert len(model.requests[0].messages) == 4

    asyncio.run(main())
    one = Summary("t", 5, SummaryBoundary("", 5, "a"))
    assert has_advanced(None, one)
    assert not has_advanced(one, one)
    assert not has_advanced(None, None)
    assert has_advanced(one, Summary("t", 5, SummaryBoundary("", 5, "b")))
    assert has_advanced(one, Summary("other", 5, SummaryBoundary("", 5, "a")))


def test_a_persisting_failure_after_the_summary_still_rebuilds() -> None:
    """ASM-RETRY-08, edge 30."""

    async def main() -> None:
        service = service_of(summary_model("short"))
        await session_with(service, say(1, LONG), say(2, LONG, role="assistant"), say(3, LONG))

        async def fail(*args: Any, **kwargs: Any) -> bool:
            raise SummaryError("the store is down")

        service.store.save_summary = fail  # type: ignore[method-assign]
        model = ScriptedModel(["a"], context_window=3000)
        await run(runner_of(retry_agent(model), service), "now")
        assert len(model.requests[0].messages) == 2

    asyncio.run(main())


def fork_parents(profile: Any, answers: list[Any]) -> list[Request | None]:
    """The parent request of each summary check of one run."""
    parents: list[Request | None] = []

    def check(ctx: CallContext, session: Any) -> bool:
        parents.append(cache_safe_fork_request_from_context(ctx))
        return False

    async def main() -> None:
        service = service_of(
            summarizer=Summarizer(summary_model(), checks_all_context=[check]),
            profile=profile,
            settings={"cascade_full_session_summary": False},
        )
        agent = agent_of(ScriptedModel(answers), tools=[FunctionTool(look)])
        await run(runner_of(agent, service, profile=profile), "q")
        await service.wait_for_summaries()

    asyncio.run(main())
    return parents


def test_the_fork_parent_is_the_last_request_with_every_persisted_response() -> None:
    """ASM-VIEW-03, SUM-RNR-06."""
    first, last = fork_parents(SEED, [calls("look"), "final"])
    assert first is not None
    assert last is not None
    assert [m.role for m in first.messages] == ["user", "assistant", "tool"]
    assert [m.content for m in last.messages] == ["q", "", '"result"', "final"]


def test_all_results_of_a_parallel_batch_reach_the_fork_parent_unless_the_defect_is_asked_for() -> None:
    """ASM-VIEW-04, B-24, DA9."""
    seed = fork_parents(SEED, [calls("look", "look"), "final"])[0]
    quirk = fork_parents(TRPC_AGENT_GO_2026_07, [calls("look", "look"), "final"])[0]
    assert seed is not None
    assert quirk is not None
    assert [m.tool_id for m in seed.messages if m.role == "tool"] == ["t1", "t2"]
    assert [m.tool_id for m in quirk.messages if m.role == "tool"] == ["t1"]


def test_a_summary_of_what_the_model_saw_covers_no_more_than_that() -> None:
    """ASM-VIEW-01, ASM-VIEW-02, SUM-VIEW-01, SUM-VIEW-02: the answer wasn't in the request."""

    async def main() -> None:
        profile = TRPC_AGENT_GO_2026_08
        model = summary_model()
        service = service_of(model, profile=profile, summary={"profile": profile})
        await run(runner_of(agent_of(ScriptedModel(["answer"])), service, profile=profile), "question")
        await service.wait_for_summaries()
        assert model.requests[0].messages[-1].content.startswith("user: question")
        assert "answer" not in model.requests[0].messages[-1].content

    asyncio.run(main())


def test_a_view_shows_what_the_request_showed_also_when_the_session_went_on() -> None:
    """ASM-VIEW-01: its items are made when they are first needed."""
    seen: list[SentRequest] = []

    async def main() -> None:
        service = service_of()
        await session_with(service, say(1), say(2, role="assistant"))
        await run(runner_of(agent_of(ScriptedModel(["answer"])), service, on_request=seen.append), "question")

    asyncio.run(main())
    session = seen[0].session
    view = view_of(seen[0], "app", bound=True)
    ids = [event.id for event in session.events][:3]
    session.drop_oldest(1)
    assert [item.event.id for item in view.make_items()] == ids


def test_a_tailored_request_makes_no_summary_under_the_view() -> None:
    """ASM-VIEW-02, SUM-VIEW-03, ASM-TLR-16: an unbound view fails closed for its key."""

    async def main() -> None:
        profile = TRPC_AGENT_GO_2026_08
        model = summary_model()
        service = service_of(
            model, profile=profile, summary={"profile": profile}, settings={"cascade_full_session_summary": False}
        )
        await session_with(service, *(say(n, LONG, role="user" if n % 2 else "assistant") for n in range(1, 8)))
        agent = agent_of(
            ScriptedModel(["answer"], context_window=8000), tailoring={"enabled": True, "max_input_tokens": 1500}
        )
        await run(runner_of(agent, service, profile=profile), "question")
        await service.wait_for_summaries()
        assert model.requests == []

    asyncio.run(main())


def test_tailoring_happens_last_and_the_trace_knows_what_went() -> None:
    """ASM-CHAIN-01, ASM-CHAIN-03, ASM-TLR-01."""
    seen: list[SentRequest] = []

    async def main() -> None:
        service = service_of()
        await session_with(service, *(say(n, LONG, role="user" if n % 2 else "assistant") for n in range(1, 8)))
        agent = agent_of(
            ScriptedModel(["answer"], context_window=8000), tailoring={"enabled": True, "max_input_tokens": 1500}
        )
        await run(runner_of(agent, service, on_request=seen.append), "question")
        sent = seen[0]
        assert sent.tailored is not None
        assert sent.kept is not None
        assert len(sent.request.messages) < len(sent.assembly)
        assert sent.request.messages[-1].content == "question"
        assert (await service.list_events(KEY))[0].message.content == LONG

    asyncio.run(main())


def test_a_rebuilt_request_keeps_its_tools_and_says_everything_once() -> None:
    """ASM-RETRY-05, ASM-RETRY-06: the rebuild starts from the untouched base; later stages don't add up."""

    async def main() -> None:
        service = service_of(summary_model("SUMMARY-TEXT"))
        await session_with(service, say(1, LONG), say(2, LONG, role="assistant"), say(3, LONG))
        model = ScriptedModel(["a"], context_window=4000)
        agent = agent_of(
            model,
            instruction="be kind",
            tools=[FunctionTool(look)],
            settings={"add_session_summary": True, "enable_on_demand_session": True},
            compaction={"enabled": True, "threshold_ratio": 0.5},
        )
        seen: list[SentRequest] = []
        await run(runner_of(agent, service, on_request=seen.append), "now")
        assert seen[0].rebuilt
        system = model.requests[0].messages[0].content
        assert system.count("be kind") == system.count("SUMMARY-TEXT") == 1
        assert system.count("session_load") == seen[0].assembly.messages[0].content.count("session_load") > 0
        assert [tool.name for tool in model.requests[0].tools] == ["look", "session_search", "session_load"]

    asyncio.run(main())


def test_earlier_events_are_stored_before_the_next_step_begins() -> None:
    """ASM-RUN-07."""
    stored: list[list[str]] = []

    async def main() -> None:
        service = service_of()

        async def before_step(state: Any) -> None:
            stored.append([event.message.role for event in await service.list_events(KEY)])

        agent = agent_of(ScriptedModel([calls("look"), "final"]), tools=[FunctionTool(look)])
        await run(runner_of(agent, service, before_step=before_step), "q")

    asyncio.run(main())
    assert stored == [["user"], ["user", "assistant", "tool"]]


def test_a_summary_block_inside_a_message_is_part_of_what_was_seen_and_stands_for_the_previous_summary() -> None:
    """ASM-VIEW-05: in user mode no synthetic event goes in front; in system mode one does."""

    async def second_request(mode: str) -> str:
        profile = TRPC_AGENT_GO_2026_08
        model = summary_model()
        service = service_of(model, profile=profile, summary={"profile": profile})
        agent = agent_of(
            ScriptedModel(["a1", "a2", "a3"]), settings={"add_session_summary": True, "summary_injection_mode": mode}
        )
        runner = runner_of(agent, service, profile=profile)
        for question in ("q1", "q2"):
            await run(runner, question)
            await service.wait_for_summaries()
        return model.requests[-1].messages[-1].content

    in_user = asyncio.run(second_request("user"))
    in_system = asyncio.run(second_request("system"))
    assert "system: SUMMARY-1" not in in_user
    assert "SUMMARY-1" in in_user
    assert "system: SUMMARY-1" in in_system
