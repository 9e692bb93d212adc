"""How summary requests are made: forks of the agent's own request, prompts, and history on demand."""

from __future__ import annotations

import json

import pytest

import workbench as wb
from tests.seed.scenes import (
    ask,
    asks_for,
    prompt_of,
    run,
    runner_of,
    said,
    session_of,
    spoken,
    stored,
    summary_of,
    talk,
    with_tools,
)
from workbench.context.settings import AgentSettings, CompactionSettings, SessionSummaryInjectionMode
from workbench.errors import ConfigError
from workbench.store.indexing import HashEmbedder
from workbench.summary.context import context_with_previous_summary


def example_05(summary_model):
    summarizer = wb.Summarizer(
        summary_model,
        context_threshold=True,
        max_summary_words=200,
        cache_safe_forking=True,
    )
    return summarizer


def test_example_05_a_summary_request_extends_the_agents_own_request():
    """SUM-REQ-02, SUM-REQ-03, SUM-CHK-12."""

    async def main():
        main_model = wb.ScriptedModel([asks_for("read_log"), "All is well."], context_window=6000)
        summary_model = wb.ScriptedModel(["the log was read"], context_window=100_000)
        settings = AgentSettings(add_session_summary=True, sync_summary_intra_run=True)
        agent = wb.LLMAgent(name="my-agent", model=main_model, instruction="Be brief.", settings=settings)
        agent = with_tools(agent, read_log)
        service = wb.InMemorySessionService(summarizer=example_05(summary_model))
        await ask(runner_of(agent, service), "What does the log say?")
        parent, fork = main_model.requests[0], summary_model.requests[0]
        assert fork.messages[: len(parent.messages)] == parent.messages
        assert fork.tools == parent.tools
        assert fork.messages[-1].role == "user"
        assert "200 words" in fork.messages[-1].content
        assert not fork.generation_config.stream
        assert "the log was read" in main_model.requests[1].messages[0].content

    run(main())


def test_a_fork_without_a_parent_is_a_request_of_its_own():
    """SUM-REQ-02."""
    model = wb.ScriptedModel()
    summary_of(example_05(model), said("hello"))
    assert [role for role, _ in spoken(model.requests[0])] == ["user"]
    assert "user: hello" in prompt_of(model)


def read_log():
    """Read the log."""
    return "nothing to see " * 1000


def example_06(summary_model):
    llm_agent = wb.LLMAgent(
        name="my-agent",
        model=summary_model,
        settings=AgentSettings(add_session_summary=True, summary_injection_mode=SessionSummaryInjectionMode.USER),
    )
    return llm_agent


def test_example_06_the_system_prefix_stays_as_it_is():
    """ASM-INJ-08, ASM-CACHE-01."""
    model = wb.ScriptedModel(["Shipped."])
    agent = with_tools(example_06(model), instruction="Be brief.")

    async def main():
        service = wb.InMemorySessionService(summarizer=wb.Summarizer(wb.ScriptedModel(["order 7731 was shipped"])))
        runner = runner_of(agent, service)
        await ask(runner, "Where is order 7731?")
        await ask(runner, "Thanks.")

    run(main())
    first, second = model.requests
    assert second.messages[0] == first.messages[0]
    assert second.messages[1].role == "user"
    assert "order 7731 was shipped" in second.messages[1].content
    assert second.messages[1].content.endswith("Thanks.")


def example_07(summary_model, embedder, summarizer):
    session_service = wb.InMemorySessionService(embedder=embedder, summarizer=summarizer)

    llm_agent = wb.LLMAgent(
        name="my-agent",
        model=summary_model,
        settings=AgentSettings(add_session_summary=True, enable_on_demand_session=True),
        compaction=CompactionSettings(enabled=True),
    )
    return session_service, llm_agent


def test_example_07_the_model_fetches_what_a_summary_hid():
    """ASM-OND-01, ASM-OND-10, ASM-OND-20, SUM-SCH-01, SUM-WIN-01."""
    searches = {"query": "voucher ZX-4471", "scope": "current_hidden"}

    def answer(request):
        results = [json.loads(message.content) for message in request.messages if message.role == "tool"]
        if request.messages[-1].role == "tool" and "results" in results[-1]:
            return asks_for("session_load", json.dumps({"event_id": results[-1]["results"][0]["event_id"]}))
        if request.messages[-1].content == "Which voucher was it?":
            return asks_for("session_search", json.dumps(searches))
        return "Noted."

    async def main():
        model = wb.ScriptedModel(answer)
        summarizer = wb.Summarizer(wb.ScriptedModel(["the user gave a voucher"]))
        service, agent = example_07(model, HashEmbedder(), summarizer)
        runner = runner_of(agent, service)
        await ask(runner, "My voucher is ZX-4471.")
        await ask(runner, "Which voucher was it?")
        question, found, loaded = model.requests[1:]
        assert [tool.name for tool in question.tools] == ["session_search", "session_load"]
        assert "ZX-4471" not in str(spoken(question))
        hits = json.loads(found.messages[-1].content)
        assert "ZX-4471" in hits["results"][0]["snippet"]
        assert hits["scope"] == "current_hidden"
        window = json.loads(loaded.messages[-1].content)
        assert "My voucher is ZX-4471." in [message["content"] for message in window["messages"]]

    run(main())


# --- prompts --------------------------------------------------------------------------------------------


def example_19(summary_model):
    prompt = """Sum up what follows for a colleague who takes over.
Name decisions, open tasks and facts that must not be lost, in at most {max_summary_words} words.

<talk>
{conversation_text}
</talk>

In short:"""

    summarizer = wb.Summarizer(summary_model, prompt=prompt, max_summary_words=100, event_threshold=15)
    return summarizer


def test_example_19_a_prompt_of_ones_own_gets_conversation_and_limit():
    """SUM-PRM-01, SUM-OPT-01, SUM-OPT-02."""
    model = wb.ScriptedModel(["short"])
    summarizer = example_19(model)
    assert not run(summarizer.should_summarize(session_of(*talk(15))))
    assert run(summarizer.should_summarize(session_of(*talk(16))))
    assert summary_of(summarizer, said("hello")) == "short"
    assert "in at most 100 words" in prompt_of(model)
    assert "<talk>\nuser: hello\n</talk>" in prompt_of(model)
    with pytest.raises(ConfigError, match="conversation_text"):
        wb.Summarizer(model, prompt="Sum it up.")
    with pytest.raises(ConfigError, match="max_summary_words"):
        wb.Summarizer(model, prompt="{conversation_text}", max_summary_words=100)


def example_20():
    user_prompt = """把新的对话并入旧的摘要。

<old>
{previous_summary}
</old>

<new>
{conversation_text}
</new>

新的摘要："""
    return user_prompt


def test_example_20_the_last_summary_has_a_place_of_its_own():
    """SUM-RUN-03, SUM-PRM-01."""
    model = wb.ScriptedModel()
    summarizer = wb.Summarizer(model, prompt=example_20())

    async def main():
        service = wb.InMemorySessionService(summarizer=summarizer)
        session = await stored(service, said("订单 7731 到哪了？"))
        await service.create_session_summary(session)
        await service.append_event(session, said("谢谢", role="assistant"))
        await service.create_session_summary(session)

    run(main())
    assert "<old>\n\n</old>\n\n<new>\nuser: 订单 7731 到哪了？\n</new>" in prompt_of(model, 0)
    assert "<old>\nSUMMARY-1\n</old>\n\n<new>\nmy-agent: 谢谢\n</new>" in prompt_of(model, 1)


def test_without_that_place_the_last_summary_stands_in_the_conversation():
    """SUM-RUN-03."""
    model = wb.ScriptedModel()
    summarizer = wb.Summarizer(model, prompt="<{conversation_text}>")

    async def main():
        service = wb.InMemorySessionService(summarizer=summarizer)
        session = await stored(service, said("one"))
        await service.create_session_summary(session)
        await service.append_event(session, said("two"))
        await service.create_session_summary(session)

    run(main())
    assert prompt_of(model, 0) == "<user: one>"
    assert prompt_of(model, 1).startswith("<")
    assert "SUMMARY-1" in prompt_of(model, 1)
    assert "user: two" in prompt_of(model, 1)


def example_21(summary_model):
    system_prompt = """你为接手的同事写摘要，只写对话里有的内容。
决定和未办的事最重要。
不超过 {max_summary_words} 字。"""

    user_prompt = """<talk>
{conversation_text}
</talk>

摘要："""

    summarizer = wb.Summarizer(
        summary_model, system_prompt=system_prompt, prompt=user_prompt, max_summary_words=100, event_threshold=15
    )
    return summarizer


def test_example_21_instructions_go_into_a_system_message():
    """SUM-REQ-01, SUM-PRM-04, SUM-OPT-02."""
    model = wb.ScriptedModel()
    summary_of(example_21(model), said("你好"))
    (system, instructions), (user, talked) = spoken(model.requests[0])
    assert (system, user) == ("system", "user")
    assert "不超过 100 字" in instructions
    assert talked == "<talk>\nuser: 你好\n</talk>\n\n摘要："
    for name in ("conversation_text", "previous_summary"):
        with pytest.raises(ConfigError, match=name):
            wb.Summarizer(model, system_prompt=f"Mind {{{name}}}.")


def test_a_separate_previous_summary_also_comes_from_the_context():
    """SUM-CORE-04: a direct call hands it over in the context."""
    model = wb.ScriptedModel()
    summarizer = wb.Summarizer(model, prompt=example_20())
    run(summarizer.summarize(session_of(said("new")), ctx=context_with_previous_summary(wb.CallContext(), "old text")))
    assert "<old>\nold text\n</old>" in prompt_of(model)
