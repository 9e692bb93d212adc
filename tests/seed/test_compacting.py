"""Tool results that are made smaller inside a request."""

from __future__ import annotations

from dataclasses import replace

import workbench as wb
from tests.seed.scenes import SESSION, USER, ask, asks_for, run, runner_of, with_tools
from workbench.context.settings import AgentSettings, CompactionSettings, TailoringSettings
from workbench.wording import POLICY_PLACEHOLDER, RECOVERY_SENTENCE


def example_34():
    counter = wb.SimpleTokenCounter(1.6)  # characters per token: a divisor

    model = wb.OpenAIModel("deepseek-v4-flash")

    agent = wb.LLMAgent(
        name="my-agent",
        model=model,
        settings=AgentSettings(add_session_summary=True),
        compaction=CompactionSettings(
            enabled=True,
            threshold_ratio=0.7,
            tool_result_max_tokens=1024,  # pass 1: results of earlier requests
            oversized_tool_result_max_tokens=8192,  # pass 2: any result
            keep_recent_requests=1,
            force_clean_tool_names=("shell", "grep"),  # pass 0
            keep_tool_names=("session_load", "session_search"),
        ),
        skip_recent_func=lambda events: 3,
        compaction_counter=counter,
        tailoring=TailoringSettings(enabled=True),
        tailoring_counter=counter,
    )
    return agent


def shell():
    """Run a command."""
    return "a.txt b.txt"


def fetch(n: int):
    """Fetch so many characters."""
    return "x" * n


def session_load():
    """Load an old message."""
    return "y" * 4000


def test_example_34_old_results_become_placeholders_and_a_huge_one_is_cut():
    """ASM-CMP-01, ASM-CMP-10, ASM-CMP-12, ASM-CMP-30, ASM-CMP-33, ASM-TLR-01."""
    turns = [
        [asks_for("shell", call_id="c1"), "two files"],
        [asks_for("fetch", '{"n": 2000}', call_id="c2"), "a page"],
        [asks_for("fetch", '{"n": 1000}', call_id="c3"), "a small page"],
        [asks_for("session_load", call_id="c4"), "an old message"],
        [asks_for("fetch", '{"n": 2100}', call_id="c5"), "the last page"],
        [asks_for("fetch", '{"n": 20000}', call_id="c6"), "a huge page"],
    ]
    agent = with_tools(example_34(), shell, fetch, session_load)

    def replayed(**changes):
        script = [answer for turn in turns for answer in turn]
        changed = replace(agent, model=wb.ScriptedModel(script, context_window=1_000_000), **changes)

        async def main():
            runner = runner_of(changed, wb.InMemorySessionService())
            for i in range(len(turns)):
                await ask(runner, f"request {i}")
            return await runner.session_service.list_events(wb.SessionKey("my-app", USER, SESSION))

        events = run(main())
        last = changed.model.requests[-1].messages
        return {message.tool_id: message.content for message in last if message.role == "tool"}, events

    results, events = replayed()
    assert results["c1"] == POLICY_PLACEHOLDER
    assert results["c2"].startswith(RECOVERY_SENTENCE)
    assert results["c3"] == '"' + "x" * 1000 + '"', "625 tokens are few enough"
    assert results["c4"] == '"' + "y" * 4000 + '"', "tools to keep are kept"
    assert results["c5"] == '"' + "x" * 2100 + '"', "the request before the current one is recent"
    assert "characters truncated from tool result" in results["c6"]
    assert 8000 < len(results["c6"]) / 1.6 < 8300, "head and tail are kept"
    assert {len(event.message.content) for event in events} >= {2002, 20002}, "what is stored stays as it is"
    longer, _ = replayed(skip_recent_func=lambda events: 100)
    assert longer["c1"] == '"a.txt b.txt"', "the function's events are recent too"
    assert "characters truncated" in longer["c6"], "pass 2 spares nothing"
    off, _ = replayed(compaction=agent.compaction.replace(enabled=False))
    assert len(off["c6"]) == 20_002
    tailored, _ = replayed(tailoring=TailoringSettings(enabled=True, max_input_tokens=6000))
    assert "c1" not in tailored, "the last resort drops whole rounds"
