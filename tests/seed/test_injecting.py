"""What the model sees: the summary in the prompt, its place and form, preloads, history without a summary."""

from __future__ import annotations

from dataclasses import replace

import workbench as wb
from tests.seed.scenes import USER, ask, asks_for, run, runner_of, said, spoken, stored, talk, with_tools
from workbench.context.preload import MemoryEntry
from workbench.context.settings import (
    AgentSettings,
    PreloadMemoryInjectionMode,
    PreloadSessionRecallInjectionMode,
    SessionSummaryInjectionMode,
    TailoringSettings,
)
from workbench.profiles import SEED
from workbench.session.types import Summary, SummaryBoundary

EXAMPLES = [[wb.Message(role="user", content="What is 7?"), wb.Message(role="assistant", content="A number.")]]


async def after_a_summary(agent, *, covered, then=(), message="now", profile=SEED):
    """What the agent's model gets after `then`, when a summary stands for `covered`."""
    service = wb.InMemorySessionService(profile=profile)
    session = await stored(service, *covered)
    last = session.events[-1]
    summary = Summary("they met", last.time_ns, SummaryBoundary("my-app", last.time_ns, last.id))
    await service.store.save_summary(session.key, "my-app", summary, now_ns=last.time_ns)
    for event in then:
        await service.append_event(session, event)
    await ask(runner_of(agent, service, profile=profile), message)
    return agent.model.requests[-1]


def example_29():
    settings = AgentSettings(add_session_summary=True)
    return settings


def test_example_29_the_summary_joins_the_system_message_and_stands_for_what_it_covers():
    """ASM-INJ-01, ASM-INJ-05, ASM-INJ-06, ASM-HIST-16."""
    settings = example_29().replace(max_history_runs=1)
    agent = wb.LLMAgent(name="my-agent", model=wb.ScriptedModel(["hi"]), instruction="Be brief.", settings=settings)
    request = run(after_a_summary(agent, covered=talk(4), then=talk(6, text="later")))
    roles = [role for role, _ in spoken(request)]
    assert roles == ["system", *["user", "assistant"] * 3, "user"], "max_history_runs counts only without a summary"
    assert request.messages[0].content.startswith("Be brief.\n\n")
    assert "they met" in request.messages[0].content
    assert [content for _, content in spoken(request)[1:]] == [f"later {i}" for i in range(1, 7)] + ["now"]
    bare = replace(agent, instruction="", model=wb.ScriptedModel(["hi"]))
    request = run(after_a_summary(bare, covered=talk(2)))
    assert [role for role, _ in spoken(request)] == ["system", "user"]
    assert "they met" in request.messages[0].content


def example_30(model):
    agent = wb.LLMAgent(
        name="my-agent",
        model=model,
        settings=AgentSettings(add_session_summary=True, summary_injection_mode=SessionSummaryInjectionMode.USER),
    )
    return agent


def test_example_30_a_summary_in_a_user_message_may_leave_the_window():
    """ASM-INJ-08, ASM-INJ-09, ASM-TLR-07."""
    tailoring = TailoringSettings(enabled=True, max_input_tokens=400, strategy="head_out")
    in_user = with_tools(example_30(wb.ScriptedModel(["hi"])), instruction="Be brief.", tailoring=tailoring)
    in_system = replace(
        in_user, model=wb.ScriptedModel(["hi"]), settings=in_user.settings.replace(summary_injection_mode="system")
    )
    later = talk(8, text="x" * 400)
    for agent, is_kept in ((in_user, False), (in_system, True)):
        request = run(after_a_summary(agent, covered=talk(2), then=later))
        assert len(request.messages) < 10, "rounds were dropped"
        assert ("they met" in str(spoken(request))) is is_kept
        assert request.messages[-1].content == "now"
    assert run(after_a_summary(in_user, covered=talk(2))).messages[0].content == "Be brief."


def example_31(model):
    agent = wb.LLMAgent(
        name="my-agent",
        model=model,
        settings=AgentSettings(
            preload_memory=10,
            preload_memory_injection_mode=PreloadMemoryInjectionMode.USER,
            preload_session_recall=5,
            preload_session_recall_injection_mode=PreloadSessionRecallInjectionMode.USER,
        ),
    )
    return agent


class Memories:
    """A user's memories."""

    async def read_memories(self, user, limit):
        return [MemoryEntry("m1", f"{user.user_id} likes tea")]

    async def search_memories(self, user, query, max_results):
        return []


def test_example_31_memories_and_other_sessions_are_put_in_front_of_the_message():
    """ASM-PRE-01, ASM-PRE-02, ASM-PRE-05."""

    async def main(agent):
        service = wb.InMemorySessionService()
        plain = wb.LLMAgent(name="my-agent", model=wb.ScriptedModel(["Green tea it is."]))
        await ask(runner_of(plain, service), "Order green tea.", session_id="earlier")
        await ask(runner_of(agent, service, memory_service=Memories()), "More green tea, please.")
        return agent.model.requests[0]

    agent = with_tools(example_31(wb.ScriptedModel(["hi"])), instruction="Be brief.")
    request = run(main(agent))
    (_, system), (role, content) = spoken(request)
    assert (system, role) == ("Be brief.", "user")
    assert f"[m1] {USER} likes tea" in content
    assert "[session=earlier" in content
    assert "<recalled_session_event>Order green tea.</recalled_session_event>" in content
    assert content.endswith("More green tea, please.")
    by_default = AgentSettings(preload_memory=10, preload_session_recall=5)
    request = run(main(replace(agent, model=wb.ScriptedModel(["hi"]), settings=by_default)))
    (_, system), (_, content) = spoken(request)
    assert f"[m1] {USER} likes tea" in system
    assert "Order green tea." in system
    assert content == "More green tea, please."


def example_32(model):
    agent = wb.LLMAgent(
        name="my-agent",
        model=model,
        instruction="Be brief.",
        few_shot=EXAMPLES,
        settings=AgentSettings(add_session_summary=True, summary_injection_mode="user"),
    )
    return agent


def test_example_32_the_summary_joins_the_first_user_message_of_the_history():
    """ASM-INJ-08, ASM-INJ-20."""
    agent = example_32(wb.ScriptedModel(["hi"]))
    request = run(after_a_summary(agent, covered=talk(2), then=talk(4, text="later")))
    assert [role for role, _ in spoken(request)] == [
        "system",
        *("user", "assistant"),  # the examples
        *("user", "assistant") * 2,
        "user",
    ]
    contents = [content for _, content in spoken(request)]
    assert contents[:3] == ["Be brief.", "What is 7?", "A number."]
    assert "they met" in contents[3]
    assert contents[3].endswith("later 1")
    assert contents[4:] == ["later 2", "later 3", "later 4", "now"]


def example_33(model):
    agent = wb.LLMAgent(
        name="my-agent",
        model=model,
        instruction="Be brief.",
        few_shot=EXAMPLES,
        settings=AgentSettings(add_session_summary=True, summary_injection_mode="user"),
    )
    return agent


def test_example_33_without_a_user_message_the_summary_is_one_of_its_own():
    """ASM-INJ-08, ASM-INJ-09."""
    agent = example_33(wb.ScriptedModel(["hi"]))
    call = said("", role="assistant", tool_calls=asks_for("look_up").tool_calls)
    result = wb.Message(role="tool", content="shipped", tool_id="c1", tool_name="look_up")
    request = run(after_a_summary(agent, covered=[said("a question")], then=[call], message=result))
    contents = [content for _, content in spoken(request)]
    assert contents[:3] == ["Be brief.", "What is 7?", "A number."]
    assert contents[3].startswith("Context from previous interactions:")
    assert "they met" in contents[3]
    assert [role for role, _ in spoken(request)[3:]] == ["user", "assistant", "tool"]
    # With a user message anywhere behind the summary, that one takes it.
    answer = said("an answer", role="assistant")
    request = run(after_a_summary(agent, covered=[said("a question")], then=[answer]))
    assert [role for role, _ in spoken(request)[3:]] == ["assistant", "user"]
    assert "they met" in request.messages[-1].content
    assert request.messages[-1].content.endswith("now")


def example_35(model):
    agent = wb.LLMAgent(
        name="my-agent",
        model=model,
        instruction="Be brief.",
        tools=[wb.FunctionTool(step)],
        settings=AgentSettings(add_session_summary=True, sync_summary_intra_run=True),
    )
    return agent


def step(n: int):
    """Do one step."""
    return f"step {n} done"


def test_example_35_a_summary_within_a_run_keeps_message_last_round_and_what_follows():
    """ASM-INTRA-10, ASM-INTRA-11, ASM-INTRA-12."""

    def does(*steps):
        calls = tuple(wb.ToolCall(id=f"c{n}", name="step", arguments=f'{{"n": {n}}}') for n in steps)
        return wb.ScriptedAnswer(tool_calls=calls)

    verdicts = iter([False, True])  # the summary is made behind the second round
    summarizer = wb.Summarizer(wb.ScriptedModel(["they met"]), checks=[lambda session: next(verdicts, False)])
    agent = example_35(wb.ScriptedModel([does(1), does(2, 3), does(4), "all done"]))

    async def main():
        service = wb.InMemorySessionService(summarizer=summarizer)
        await ask(runner_of(agent, service), "go")

    run(main())
    _, before, resumed, after = agent.model.requests
    assert [role for role, _ in spoken(before)] == ["system", "user", "assistant", "tool"]
    for request, steps in ((resumed, [2, 3]), (after, [2, 3, 4])):
        (_, system), (_, message), *rounds = spoken(request)
        assert system.startswith("Be brief.\n\n")
        assert "they met" in system
        assert message == "go"
        assert [content for role, content in rounds if role == "tool"] == [f'"step {n} done"' for n in steps]
        assert [role for role, _ in rounds] == ["assistant", "tool", "tool", "assistant", "tool"][: len(rounds)]


def example_36():
    settings = AgentSettings(add_session_summary=False, max_history_runs=10)
    return settings


def test_example_36_without_a_summary_the_last_ten_rounds_are_sent():
    """ASM-HIST-16, ASM-INJ-01."""
    agent = wb.LLMAgent(name="my-agent", model=wb.ScriptedModel(["hi"]), settings=example_36())
    request = run(after_a_summary(agent, covered=talk(2), then=talk(28, text="later")))
    assert "they met" not in str(spoken(request))
    assert sum(role == "user" for role, _ in spoken(request)) == 10
    assert spoken(request)[-1] == ("user", "now")
    unlimited = replace(agent, model=wb.ScriptedModel(["hi"]), settings=AgentSettings(max_history_runs=0))
    assert len(run(after_a_summary(unlimited, covered=talk(2), then=talk(28))).messages) == 31


def example_37(model):
    agent = wb.LLMAgent(
        name="my-agent", model=model, instruction="Be brief.", settings=AgentSettings(max_history_runs=2)
    )
    return agent


def test_example_37_without_a_summary_a_request_is_instruction_and_last_rounds():
    """ASM-HIST-16."""
    request = run(after_a_summary(example_37(wb.ScriptedModel(["hi"])), covered=talk(6)))
    assert spoken(request) == [
        ("system", "Be brief."),
        ("user", "message 5"),
        ("assistant", "message 6"),
        ("user", "now"),
    ]


def example_38(model):
    agent = wb.LLMAgent(name="my-agent", model=model, settings=AgentSettings(add_session_summary=True))
    return agent


def test_example_38_the_default_block_is_tagged_and_says_what_counts_more():
    """ASM-INJ-10."""
    request = run(after_a_summary(example_38(wb.ScriptedModel(["hi"])), covered=talk(2)))
    block = request.messages[0].content
    assert "\n\n<summary_of_previous_interactions>\nthey met\n</summary_of_previous_interactions>\n\n" in block
    head, _, tail = block.partition("they met")
    assert head.startswith("Here is a brief summary")
    assert "ALWAYS prefer information from this conversation" in tail


def test_the_default_block_is_the_documents_to_the_letter(seed_blocks):
    """ASM-INJ-10."""
    request = run(after_a_summary(example_38(wb.ScriptedModel(["hi"])), covered=talk(2)))
    printed = "\n".join(seed_blocks[38 - 1].lines)
    assert request.messages[0].content.strip() == printed.replace("[Summary content]", "they met").strip()


def example_39(model):
    agent = wb.LLMAgent(
        name="my-agent",
        model=model,
        settings=AgentSettings(add_session_summary=True),
        summary_formatter=lambda summary: f"## Earlier\n\n{summary}",
    )
    return agent


def test_example_39_a_formatter_replaces_the_block_in_both_places():
    """ASM-INJ-11."""
    agent = example_39(wb.ScriptedModel(["hi"]))
    assert spoken(run(after_a_summary(agent, covered=talk(2))))[0] == ("system", "## Earlier\n\nthey met")
    in_user = replace(agent, settings=agent.settings.replace(summary_injection_mode="user"))
    assert spoken(run(after_a_summary(in_user, covered=talk(2)))) == [("user", "## Earlier\n\nthey met\n\nnow")]
