"""Replays of whole corpora: no request breaks the protocol, every event has one state at every call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from workbench.build import billing_counter
from workbench.config import RunConfig
from workbench.model.types import Message
from workbench.recordings import load_recordings
from workbench.replay.cache import common_prefix_tokens, part_text, tools_text
from workbench.replay.conversation import replay_conversation
from workbench.replay.coverage import states_at
from workbench.replay.runs import with_unique_ids
from workbench.replay.trace import TABLES

DATASETS = Path(__file__).resolve().parents[2] / "datasets"
SUMMARIES: dict[str, Any] = {"summarizer": {"max_summary_words": 100}, "trigger": {"token": 800}}
INJECTED = {"add_session_summary": True}
CONFIGS: dict[str, dict[str, Any]] = {
    "system": {**SUMMARIES, "agent": INJECTED},
    "user": {**SUMMARIES, "agent": {**INJECTED, "summary_injection_mode": "user"}},
    "compaction": {
        "compaction": {"enabled": True, "tool_result_max_tokens": 60, "oversized_tool_result_max_tokens": 300}
    },
    "tailoring": {"tailoring": {"enabled": True, "max_input_tokens": 3000}, "model": {"context_window": 32_000}},
    "intra-run": {
        **SUMMARIES,
        "agent": {**INJECTED, "sync_summary_intra_run": True, "user_anchors": True},
        "compaction": {"enabled": True, "tool_result_max_tokens": 60},
    },
    "fork": {**SUMMARIES, "summarizer": {"max_summary_words": 100, "cache_safe_forking": True}, "agent": INJECTED},
    "late": {**SUMMARIES, "agent": INJECTED, "summaries": {"latency_s": 20.0}},
}
# Without --map the rows of a table of questions and answers belong to no conversation.
CORPORA = ("claude-code-log", "crosswoz", "kdconv", "real-persona-chat", "swe-agent", "swe-smith", "tau-bench")


def faults(path: Path, values: dict[str, Any]) -> list[tuple[object, ...]]:
    """All violations of a replay; that each event has a state at the last call is checked on the way."""
    counted = {"billing": {"encoding": "runes:1"}, "counter": {"runes_per_token": 1.5}}
    found: list[tuple[object, ...]] = []
    columns = TABLES["coverage"].column_names
    for conversation in with_unique_ids(load_recordings(path)):
        trace = replay_conversation(conversation, RunConfig.from_values({**counted, **values}))
        found += trace.rows["violations"]
        rows = [dict(zip(columns, row, strict=True)) for row in trace.rows["coverage"]]
        states = states_at(rows, len(conversation.calls))
        assert [state for state, _ in states if state == "lost"] == []
        assert len(rows) <= 8 * max(len(conversation.calls), 1), "ranges per change, not events times calls"
    return found


def wrong_prefixes(path: Path, values: dict[str, Any]) -> list[tuple[str, int]]:
    """Calls whose prefix isn't what comparing the texts of whole requests gives."""
    config = RunConfig.from_values({"billing": {"encoding": "runes:1"}, "counter": {"runes_per_token": 1.5}, **values})
    billing = billing_counter(config)
    columns = TABLES["calls"].column_names
    wrong = []
    for conversation in with_unique_ids(load_recordings(path)):
        requests: list[list[str]] = []
        texts: dict[int, tuple[Message, str]] = {}  # holds the message, so that its identity stays its own

        def text_of(message: Message, texts: dict[int, tuple[Message, str]] = texts) -> str:
            return texts.setdefault(id(message), (message, part_text(message)))[1]

        def note(facts: Any, sent: Any, requests: list[list[str]] = requests, text_of: Any = text_of) -> None:
            request = sent.request
            requests.append([tools_text(request.tools)] * bool(request.tools) + [*map(text_of, request.messages)])

        trace = replay_conversation(conversation, config, on_sent=note)
        for n, row in enumerate(trace.rows["calls"]):
            slow = common_prefix_tokens(requests[n], requests[:n], billing) if n else None
            if dict(zip(columns, row, strict=True))["prefix_tokens"] != slow:
                wrong.append((conversation.id, n))
    return wrong


@pytest.mark.parametrize("values", CONFIGS.values(), ids=CONFIGS.keys())
def test_the_prefix_by_parts_is_the_prefix_of_whole_texts(values: dict[str, Any]) -> None:
    """WB-CACHE-01a, ASM-CACHE-06: at every call."""
    assert wrong_prefixes(DATASETS / "multi-agent", values) == []


@pytest.mark.slow
@pytest.mark.parametrize("values", CONFIGS.values(), ids=CONFIGS.keys())
@pytest.mark.parametrize("name", CORPORA)
def test_the_prefix_by_parts_is_the_prefix_of_whole_texts_on_real_recordings(
    name: str, values: dict[str, Any], shared_path: Path
) -> None:
    """WB-CACHE-01a."""
    assert wrong_prefixes(shared_path / "data" / name, values) == []


@pytest.mark.parametrize("values", CONFIGS.values(), ids=CONFIGS.keys())
@pytest.mark.parametrize("name", ["zh-en-coding", "multi-agent"])
def test_the_bundled_recordings_have_no_violation(name: str, values: dict[str, Any]) -> None:
    """WB-RPL-13, WB-RPL-18, BUG-10: tool loops, several agents, calls that wait for a sub-agent."""
    assert faults(DATASETS / name, values) == []


@pytest.mark.slow
@pytest.mark.parametrize("values", CONFIGS.values(), ids=CONFIGS.keys())
@pytest.mark.parametrize("name", CORPORA)
def test_real_recordings_have_no_violation(name: str, values: dict[str, Any], shared_path: Path) -> None:
    """WB-RPL-13, WB-RPL-18."""
    assert faults(shared_path / "data" / name, values) == []
