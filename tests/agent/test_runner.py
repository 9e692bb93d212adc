"""The runner: input, storage, jobs, options (ASM-RUN, SUM-RNR)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.agent.helpers import KEY, agent_of, calls, recorder, run, runner_of
from tests.service.helpers import say, service_of, session_with, summary_model
from workbench.agent import runner as runner_module
from workbench.agent.flow import InvocationState, SentRequest
from workbench.agent.sub_agents import AgentTool
from workbench.agent.tools import FunctionTool, ToolRound
from workbench.context.preload import MemoryEntry
from workbench.errors import ConfigError, ModelError
from workbench.model.scripted import ScriptedAnswer, ScriptedModel
from workbench.model.types import Message, Request, ResponseError, ToolCall, response_of
from workbench.profiles import SEED, TRPC_AGENT_GO_2026_07
from workbench.session.types import Event
from workbench.summary.context import request_start_from_context, run_model_from_context
from workbench.summary.summarizer import Summarizer


def lookup(q: str = "") -> str:
    """Look something up."""
    return f"found {q}"


def test_a_run_stores_the_message_and_the_answer_with_the_runs_ids() -> None:
    """ASM-RUN-01, ASM-EVT-07, ASM-EVT-11, SUM-RNR-01, SUM-KEY-02."""

    async def main() -> None:
        service = service_of()
        runner = runner_of(agent_of(ScriptedModel(["hello"])), service)
        await run(runner, Message(role="", content="hi"))
        events = await service.list_events(KEY)
        assert [(e.author, e.message.role, e.filter_key, e.branch) for e in events] == [
            ("user", "user", "app", "agent"),
            ("agent", "assistant", "app", "agent"),
        ]
        assert len({e.request_id for e in events}) == len({e.invocation_id for e in events}) == 1
        assert all(e.id and e.request_id for e in events)

    asyncio.run(main())


def test_jobs_follow_tool_results_and_answers_only() -> None:
    """ASM-RUN-04, ASM-RUN-05, SUM-RNR-03, SUM-RNR-04, E42."""

    async def main() -> None:
        service = recorder(summary_model())
        agent = agent_of(ScriptedModel([calls("lookup", text="let me look"), "final"]), tools=[FunctionTool(lookup)])
        await run(runner_of(agent, service), "question")
        assert service.calls == [("enqueue", "app", '"found "'), ("enqueue", "app", "final")]

    asyncio.run(main())


def test_no_job_follows_a_result_that_asks_for_none_and_none_an_error_event() -> None:
    """SUM-RNR-04, D6, ASM-RUN-08, ASM-EVT-09."""

    async def main(profile: Any) -> list[Any]:
        service = recorder(summary_model(), profile=profile)
        tool = FunctionTool(lookup, skip_summarization=True)
        answers = [calls("lookup"), ScriptedAnswer(error=ResponseError(type="api", message="down"))]
        runner = runner_of(agent_of(ScriptedModel(answers), tools=[tool]), service, profile=profile)
        events = await run(runner, "question")
        assert events[-1].message.content == "type: api, message: down"
        return service.calls

    assert asyncio.run(main(SEED)) == []
    assert len(asyncio.run(main(TRPC_AGENT_GO_2026_07))) == 1


def test_with_intra_run_summaries_only_the_final_answer_enqueues() -> None:
    """SUM-RNR-05, ASM-INTRA-01, ASM-INTRA-02, ASM-INTRA-03."""

    async def main() -> None:
        service = recorder(summary_model())
        agent = agent_of(
            ScriptedModel([calls("lookup"), calls("lookup", first_id=2), "final"]),
            tools=[FunctionTool(lookup)],
            settings={"sync_summary_intra_run": True},
        )
        await run(runner_of(agent, service), "question")
        assert [method for method, _, _ in service.calls] == ["create", "create", "enqueue"]

    asyncio.run(main())


def test_a_failing_summary_never_stops_the_run() -> None:
    """SUM-RNR-03, ASM-INTRA-04, E43."""

    async def main() -> None:
        service = service_of(summary_model(ScriptedAnswer(call_error="no")))
        await service.close()  # so that jobs run in the caller
        agent = agent_of(
            ScriptedModel([calls("lookup"), "final"]),
            tools=[FunctionTool(lookup)],
            settings={"sync_summary_intra_run": True},
        )
        events = await run(runner_of(agent, service), "question")
        assert events[-1].message.content == "final"

    asyncio.run(main())


def test_a_failed_append_enqueues_nothing_and_the_event_still_arrives() -> None:
    """ASM-RUN-03."""

    async def main() -> None:
        service = recorder(summary_model())
        runner = runner_of(agent_of(ScriptedModel(["answer"])), service)
        append = service.append_event

        async def fail(session: Any, event: Any, **kwargs: Any) -> Any:
            if event.author == "agent":
                raise OSError("disk full")
            return await append(session, event, **kwargs)

        service.append_event = fail  # type: ignore[method-assign]
        events = await run(runner, "question")
        assert events[-1].message.content == "answer"
        assert service.calls == []

    asyncio.run(main())


def test_the_changed_key_of_an_append_hook_is_used_for_the_job() -> None:
    """ASM-RUN-10."""

    async def hook(context: Any, following: Any) -> None:
        context.event = context.event.replace(filter_key="app/custom")
        await following()

    async def main() -> None:
        service = recorder(summary_model(), append_event_hooks=[hook])
        await run(runner_of(agent_of(ScriptedModel(["answer"])), service), "question")
        assert [key for _, key, _ in service.calls] == ["app/custom"]

    asyncio.run(main())


def test_summary_calls_know_when_the_request_came_in_and_which_model_runs() -> None:
    """ASM-RUN-02, SUM-RNR-01, SUM-RNR-06."""
    seen: list[Any] = []

    def check(ctx: Any, session: Any) -> bool:
        seen.append((request_start_from_context(ctx), run_model_from_context(ctx)))
        return False

    async def main() -> None:
        summarizer = Summarizer(summary_model(), checks_all_context=[check])
        service = service_of(summarizer=summarizer)
        model = ScriptedModel(["answer"], context_window=5000)
        await run(runner_of(agent_of(model), service), "q", request_id="r7", model_context_window=99)
        await service.wait_for_summaries()
        start, run_model = seen[0]
        assert start.request_id == "r7"
        assert start.started_ns > 0
        assert (run_model.model.context_window, run_model.model_context_window) == (5000, 99)

    asyncio.run(main())


def test_the_model_of_a_run_is_the_given_one_else_the_named_one_else_the_agents() -> None:
    """ASM-RUN-12, ASM-RUN-13."""

    async def main() -> None:
        own, named, given = ScriptedModel(["own"]), ScriptedModel(["named"]), ScriptedModel(["given"])
        runner = runner_of(agent_of(own), models={"n": named})
        assert (await run(runner, "q"))[-1].message.content == "own"
        assert (await run(runner, "q", model_name="n"))[-1].message.content == "named"
        assert (await run(runner, "q", model_name="unknown"))[-1].message.content == "own"
        assert (await run(runner, "q", model_name="n", model=given))[-1].message.content == "given"
        with pytest.raises(ConfigError, match="model_context_window"):
            await run(runner, "q", model_context_window=-1)

    asyncio.run(main())


def test_given_messages_fill_an_empty_session_only_and_the_current_one_is_not_stored_twice() -> None:
    """ASM-RUN-11."""
    history = [
        Message(role="user", content="old"),
        Message(role="assistant", content="answer"),
        Message(role="user", content="now"),
    ]

    async def main() -> None:
        service = service_of()
        model = ScriptedModel(["a"])
        runner = runner_of(agent_of(model), service)
        await run(runner, history[-1], messages=history)
        assert [m.content for m in model.requests[0].messages] == ["old", "answer", "now"]
        await run(runner, "next", messages=history)
        assert [e.message.content for e in await service.list_events(KEY)] == ["old", "answer", "now", "a", "next", "a"]

    asyncio.run(main())


def test_a_rewriter_may_turn_the_message_into_a_list_whose_last_is_the_message() -> None:
    """ASM-RUN-14."""

    async def rewrite(ctx: Any, message: Message) -> list[Message]:
        return [Message(role="user", content="context"), Message(role="user", content=message.content.upper())]

    async def main() -> None:
        service = service_of()
        model = ScriptedModel(["a"])
        await run(runner_of(agent_of(model), service), "hello", user_message_rewriter=rewrite)
        assert [m.content for m in model.requests[0].messages] == ["context", "HELLO"]
        assert [e.message.content for e in await service.list_events(KEY)] == ["context", "HELLO", "a"]

    asyncio.run(main())


def test_injected_and_late_messages_reach_the_model_and_are_not_stored() -> None:
    """ASM-INJ-20, ASM-INJ-21, ASM-INJ-22."""

    async def main() -> None:
        service = service_of()
        model = ScriptedModel(["a"])
        await run(
            runner_of(agent_of(model, instruction="be kind"), service),
            "q",
            injected_context_messages=[Message(role="user", content="injected")],
            late_context_messages=[Message(role="user", content="late")],
        )
        assert [m.content for m in model.requests[0].messages] == ["be kind", "injected", "late", "q"]
        assert len(await service.list_events(KEY)) == 2

    asyncio.run(main())


def test_streamed_pieces_are_forwarded_and_only_the_whole_is_stored() -> None:
    """ASM-RUN-03, SUM-DM-06."""

    async def main() -> None:
        service = service_of()
        model = ScriptedModel([ScriptedAnswer(content="hello", chunks=("he", "llo"))])
        events = await run(runner_of(agent_of(model), service), "q")
        assert [event.is_partial for event in events] == [False, True, True, False]
        assert len(await service.list_events(KEY)) == 2

    asyncio.run(main())


def test_an_agent_tool_works_in_a_session_of_its_own() -> None:
    """ASM-EVT-11."""

    async def main() -> None:
        service = service_of()
        helper_model = ScriptedModel(["helped"])
        helper = agent_of(helper_model, instruction="You help.")
        object.__setattr__(helper, "name", "helper")
        answer = ScriptedAnswer(tool_calls=(calls("helper").tool_calls[0],))
        agent = agent_of(ScriptedModel([answer, "final"]), tools=[AgentTool(helper)])
        await run(runner_of(agent, service), "q")
        contents = [e.message.content for e in await service.list_events(KEY)]
        assert contents == ["q", "", '"helped"', "final"]
        assert helper_model.requests[0].messages[0].content == "You help."

    asyncio.run(main())


def test_an_agent_tool_outside_a_run_is_one_clear_error() -> None:
    from workbench.call import EMPTY_CONTEXT

    with pytest.raises(ConfigError, match="outside a run"):
        asyncio.run(AgentTool(agent_of(ScriptedModel(["x"]))).call(EMPTY_CONTEXT, "{}"))


def test_on_demand_tools_find_and_load_what_a_summary_hid() -> None:
    """ASM-OND-01: search and load bring back a fact that isn't in the prompt any more."""
    load = json.dumps({"event_id": "e1"})

    async def main() -> None:
        service = service_of()
        await session_with(service, say(1, "订单号 ZX-4471 已付款"), say(2, role="assistant"))
        answers = [
            ScriptedAnswer(
                tool_calls=(
                    calls("session_search")
                    .tool_calls[0]
                    .__class__(
                        id="a", name="session_search", arguments='{"query": "ZX-4471", "scope": "current_session"}'
                    ),
                )
            ),
            ScriptedAnswer(
                tool_calls=(calls("x").tool_calls[0].__class__(id="b", name="session_load", arguments=load),)
            ),
            "done",
        ]
        model = ScriptedModel(answers)
        agent = agent_of(model, settings={"enable_on_demand_session": True, "timeline_filter_mode": "request"})
        await run(runner_of(agent, service), "which order?")
        assert [tool.name for tool in model.requests[0].tools] == ["session_search", "session_load"]
        results = [m.content for m in model.requests[-1].messages if m.role == "tool"]
        assert "ZX-4471" in results[0]
        assert "ZX-4471" in results[1]
        assert not any("ZX-4471" in m.content for m in model.requests[0].messages)

    asyncio.run(main())


def test_an_empty_request_is_never_sent() -> None:
    """ASM-CHAIN-02, row 10; BUG-13."""

    async def main() -> None:
        model = ScriptedModel(["a"])
        events = await run(runner_of(agent_of(model)), Message(role="user"))
        assert model.requests == []
        assert events[-1].response is not None
        assert events[-1].response.error is not None

    asyncio.run(main())


def test_a_model_that_fails_ends_the_run_with_one_error_event() -> None:
    """ASM-RUN-08."""

    async def main() -> None:
        service = service_of()
        events = await run(runner_of(agent_of(ScriptedModel([ScriptedAnswer(call_error="refused")])), service), "q")
        assert events[-1].response is not None
        assert events[-1].response.error is not None
        assert "refused" in events[-1].message.content
        assert isinstance(ModelError("x"), Exception)

    asyncio.run(main())


def test_no_job_follows_a_result_while_other_calls_of_its_round_wait() -> None:
    """SUM-RNR-04, ASM-RUN-04: one event per call, of which the last completes the round."""

    async def main() -> list[Any]:
        service = recorder(summary_model())
        given: list[Event] = []

        async def store_results(state: InvocationState) -> None:
            if state.n_steps != 1:
                return
            for ident in ("t1", "t2"):
                result = Message(role="tool", content=f"result {ident}", tool_id=ident)
                event = state.new_event(response_of(result, object="tool.response", done=False))
                assert state.store_event is not None
                given.append(await state.store_event(state, event))

        class NoTools:
            async def execute(self, ctx: Any, calls: Any) -> ToolRound:
                return ToolRound(())

        agent = agent_of(ScriptedModel([calls("a", "b"), "final"]), tool_executor=NoTools())
        await run(runner_of(agent, service, before_step=store_results), "question")
        assert [event.message.tool_id for event in given] == ["t1", "t2"]
        return service.calls

    assert asyncio.run(main()) == [("enqueue", "app", "result t2"), ("enqueue", "app", "final")]


def test_any_exception_of_a_model_ends_the_run_with_one_error_event() -> None:
    """ASM-RUN-08: models, tools and hooks of others raise what they like."""

    class Broken:
        name, context_window = "broken", 0

        async def generate(self, ctx: Any, request: Any) -> Any:
            raise ValueError("boom")
            yield

    async def main() -> None:
        service = service_of()
        events = await run(runner_of(agent_of(Broken()), service), "question")
        assert events[-1].message.content == "type: flow_error, message: ValueError: boom"
        assert (await service.list_events(KEY))[-1].id == events[-1].id

    asyncio.run(main())


def test_a_hook_that_changes_messages_leaves_tailoring_on() -> None:
    """ASM-CHAIN-02, ASM-TLR-01: tailoring comes after the hooks, as the last resort."""

    async def same(ctx: Any, request: Request) -> Request:
        return request.replace(messages=(*request.messages,))

    async def one_more(ctx: Any, request: Request) -> Request:
        return request.replace(messages=(Message(role="system", content="extra"), *request.messages))

    async def sizes(*hooks: Any) -> list[int]:
        model = ScriptedModel([f"answer {i}" for i in range(6)])
        sent: list[SentRequest] = []
        tailoring = {"enabled": True, "max_input_tokens": 40}
        runner = runner_of(agent_of(model, tailoring=tailoring, before_model=hooks), on_request=sent.append)
        for i in range(6):
            await run(runner, f"question {i} " + "word " * 20)
        for request in sent:
            for place, message in zip(request.kept or (), request.request.messages, strict=False):
                assert place == -1 or request.assembly.messages[place] is message
        return [len(request.request.messages) for request in sent]

    plain = asyncio.run(sizes())
    assert plain[-1] < 5, "the budget holds few messages"
    assert asyncio.run(sizes(same)) == plain
    assert max(asyncio.run(sizes(one_more))) <= max(plain) + 1


def test_a_runner_keeps_the_assembly_state_of_few_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_module, "_MAX_ASSEMBLERS", 2)

    async def main() -> None:
        model = ScriptedModel([f"answer {i}" for i in range(8)])
        runner = runner_of(agent_of(model))
        sent: list[SentRequest] = []
        runner.on_request = sent.append
        for session_id in ("a", "b", "c", "d", "a"):
            async for _ in runner.run("user", session_id, "hello"):
                pass
        assert len(runner._assemblers) == 2
        assert [m.content for m in sent[-1].request.messages] == ["hello", "answer 0", "hello"]

    asyncio.run(main())


class Memories:
    """Keeps one memory and counts how often it is read."""

    def __init__(self, *, fails: bool = False) -> None:
        self.n_reads, self.fails = 0, fails

    async def read_memories(self, user: Any, limit: int) -> list[MemoryEntry]:
        self.n_reads += 1
        if self.fails:
            raise OSError("down")
        return [MemoryEntry("m1", "likes tea")]

    async def search_memories(self, user: Any, query: str, max_results: int) -> list[MemoryEntry]:
        return []


def test_preloads_are_read_once_a_run_and_stand_in_all_its_requests() -> None:
    """ASM-PRE-01, ASM-PRE-02, ASM-PRE-05."""

    async def main() -> None:
        service, memories = service_of(), Memories()
        await session_with(service, say(1, "green tea was sold out"), session_id="earlier")
        model = ScriptedModel([calls("lookup"), "done", "again"])
        settings = {"preload_memory": 3, "preload_session_recall": 2}
        agent = agent_of(model, tools=[FunctionTool(lookup)], settings=settings, instruction="be kind")
        runner = runner_of(agent, service, memory_service=memories)
        await run(runner, "is green tea there?")
        assert memories.n_reads == 1
        first, second = (request.messages[0] for request in model.requests)
        assert first == second
        assert "[m1] likes tea" in first.content
        assert "green tea was sold out" in first.content
        await run(runner, "and now?")
        assert memories.n_reads == 2

    asyncio.run(main())


def test_preloads_are_off_by_default_and_a_failing_memory_stops_nothing() -> None:
    """ASM-PRE-02, ASM-PRE-05."""

    async def main() -> None:
        for memories, settings in ((Memories(), {}), (Memories(fails=True), {"preload_memory": -1})):
            model = ScriptedModel(["done"])
            agent = agent_of(model, settings=settings, instruction="be kind")
            events = await run(runner_of(agent, memory_service=memories), "q")
            assert events[-1].message.content == "done"
            assert [m.content for m in model.requests[0].messages] == ["be kind", "q"]
            assert memories.n_reads == len(settings)

    asyncio.run(main())


def test_an_agent_that_takes_over_preloads_what_it_is_set_to_itself() -> None:
    """ASM-EVT-11, ASM-PRE-02."""

    async def main() -> None:
        helper_model = ScriptedModel(["helped"])
        helper = agent_of(helper_model, instruction="You help.")
        object.__setattr__(helper, "name", "helper")
        call = ToolCall(id="t1", name="transfer_to_agent", arguments='{"agent_name": "helper", "message": "go on"}')
        agent = agent_of(
            ScriptedModel([ScriptedAnswer(tool_calls=(call,))]), sub_agents=[helper], settings={"preload_memory": 1}
        )
        await run(runner_of(agent, memory_service=Memories()), "q")
        assert agent.model.requests[0].messages[0].content.count("likes tea") == 1  # type: ignore[attr-defined]
        assert helper_model.requests[0].messages[0].content == "You help."

    asyncio.run(main())
