"""A small run set with plausible rows: what a report reads, without a replay.

Rows follow the trace schema. Every number comes from a seeded walk per conversation, so all configurations see
the same conversation and two calls of `fake_runs` are equal.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from workbench.replay.trace import TABLES

Row = dict[str, Any]

WINDOW = 16_000
THRESHOLD = 2_500
SYSTEM, SCHEMAS, OVERHEAD = 320, 140, 4
START_NS = 1_767_225_600_000_000_000
STEP_NS = 30_000_000_000
REAL_CHARS_PER_TOKEN = 1.3


@dataclass(frozen=True)
class FakeConfig:
    """A configuration that knows only how to dump itself."""

    values: Mapping[str, Any]

    def model_dump(self) -> dict[str, Any]:
        return dict(self.values)


@dataclass(frozen=True, eq=False)
class FakeRun:
    """One configuration over a set of conversations."""

    name: str
    facts: dict[str, Any]
    config: FakeConfig
    tables: dict[str, list[Row]]

    def rows(self, table: str, conversation: str | None = None) -> list[Row]:
        rows = self.tables[table]
        return [row for row in rows if conversation is None or row["conversation"] == conversation]


@dataclass
class _State:
    """What one conversation looks like at a call, under one configuration."""

    history: int = 0
    results: int = 0
    summary: int = 0
    delta: float = 0.0
    events: int = 0
    earlier: list[int] = field(default_factory=list)
    pending_cause: str | None = None


def fake_runs(
    calls_per_conversation: tuple[int, ...] = (60, 52, 47, 33, 21, 12, 4), window: int | None = WINDOW
) -> dict[str, FakeRun]:
    """Baseline, today's configuration and two candidates over Chinese customer-service conversations."""
    conversations = {f"客服-{n:02d}": calls for n, calls in enumerate(calls_per_conversation, 1)}
    return {
        run.name: run
        for run in (
            fake_run("no summary", conversations, window=window),
            fake_run("today", conversations, window=window, chars_per_token=4.0, mode="system"),
            fake_run("1.3 chars/token · system", conversations, window=window, chars_per_token=1.3, mode="system"),
            fake_run("1.3 chars/token · user", conversations, window=window, chars_per_token=1.3, mode="user"),
        )
    }


def fake_run(
    name: str,
    conversations: Mapping[str, int],
    *,
    window: int | None = WINDOW,
    chars_per_token: float | None = None,
    mode: str = "system",
) -> FakeRun:
    """One run; `chars_per_token=None` makes no summaries."""
    tables: dict[str, list[Row]] = {table: [] for table in TABLES}
    for position, (conversation, calls) in enumerate(conversations.items()):
        # Seeded by the place, so that a name doesn't change what is said.
        _replay(tables, random.Random(position + 1), conversation, calls, window, chars_per_token, mode)
        tables["conversations"].append(_conversation_row(conversation, position, calls))
    summaries = chars_per_token is not None
    config = {
        "name": name,
        "profile": "SEED",
        "counter": {"kind": "runes", "runes_per_token": chars_per_token or 4.0},
        "summarizer": {"max_summary_words": 200} if summaries else None,
        "compaction": {"enabled": False},
        "model": {"name": "a-model", "context_window": window},
        "billing": {"encoding": "o200k_base"},
        "summaries": {"source": "extractive"},
        "agent": {"add_session_summary": summaries, "summary_injection_mode": mode},
    }
    return FakeRun(name, _facts(name, tables, window), FakeConfig(config), tables)


def _conversation_row(conversation: str, position: int, calls: int) -> Row:
    return {
        "conversation": conversation,
        "position": position,
        "source": f"recordings/service.jsonl:{position + 1}",
        "format": "openai-chat",
        "events": 3 * calls,
        "requests": (calls + 1) // 2,
        "calls": calls,
        "greetings": 0,
        "assumed_time": False,
        "duration_s": (calls - 1) * STEP_NS / 1e9,
        "content_hash": f"{position:064x}",
    }


def _replay(
    tables: dict[str, list[Row]],
    walk: random.Random,
    conversation: str,
    calls: int,
    window: int | None,
    chars_per_token: float | None,
    mode: str,
) -> None:
    state = _State()
    for call in range(calls):
        _cover(tables, conversation, call)
        current = walk.randint(20, 90)
        answer = walk.randint(30, 150)
        result = walk.randint(150, 900) if walk.random() < 0.45 else 0
        row = _call_row(conversation, call, current, state, window)
        tables["calls"].append(row)
        state.earlier.append(row["prompt_tokens"])
        state.history += current + answer
        state.results += result
        state.events += 3
        if chars_per_token is not None:
            added = (current + answer + result) * REAL_CHARS_PER_TOKEN / chars_per_token
            _check(tables, conversation, call, state, added, mode, walk)


def _cover(tables: dict[str, list[Row]], conversation: str, call: int) -> None:
    """Three new events per call, and what the summaries since the call before stand for."""
    written = [row for row in tables["summaries"] if (row["conversation"], row["call"]) == (conversation, call)]
    first = 3 * (call - 1) + 1 if call else 0
    changes = [(0, 3 * call - 1, "covered")] if written else []
    if not written and call:
        changes.append((first, 3 * call - 1, "raw"))
    for low, high, state in [*changes, (3 * call, 3 * call, "raw")]:
        tables["coverage"].append(
            {
                "conversation": conversation,
                "call": call,
                "first_position": low,
                "last_position": high,
                "event_id": f"{conversation}:{low:04d}",
                "state": state,
                "detail": "",
            }
        )


def _call_row(conversation: str, call: int, current: int, state: _State, window: int | None) -> Row:
    prompt = SYSTEM + SCHEMAS + OVERHEAD + state.summary + state.history + state.results + current
    reusable = max(state.earlier) - OVERHEAD if state.earlier else None
    prefix = lost = None
    if state.earlier:
        before = state.earlier[-1] - OVERHEAD
        # A new summary in the system message leaves the declarations, one in the user block the system message too.
        kept = {None: before, "summary_updated_user": SCHEMAS + SYSTEM}.get(state.pending_cause, SCHEMAS)
        prefix = min(before, kept)
        lost = max(0, min(before, prompt) - prefix)
    cause = state.pending_cause if state.earlier else "first_call"
    row = dict.fromkeys(TABLES["calls"].column_names)
    row |= {
        "conversation": conversation,
        "call": call,
        "request": call // 2,
        "event_id": f"{conversation}:{3 * call:04d}",
        "time_ns": START_NS + call * STEP_NS,
        "messages": 3 + 2 * call,
        "prompt_tokens": prompt,
        "system_tokens": SYSTEM,
        "summary_tokens": state.summary,
        "history_tokens": state.history,
        "tool_result_tokens": state.results,
        "schema_tokens": SCHEMAS,
        "current_tokens": current,
        "overhead_tokens": OVERHEAD,
        "estimated_tokens": prompt // 3,
        "window": window,
        "window_share": prompt / window if window else None,
        "overflow": prompt > window if window else None,
        "prefix_tokens": prefix,
        "reusable_tokens": reusable,
        "break_cause": cause,
        "break_part": 1 if cause and cause != "first_call" else None,
        "lost_tokens": lost or 0,
    }
    state.pending_cause = None
    return row


def _check(
    tables: dict[str, list[Row]],
    conversation: str,
    call: int,
    state: _State,
    added: float,
    mode: str,
    walk: random.Random,
) -> None:
    state.delta += added
    fired = state.delta > THRESHOLD
    checks = tables["checks"]
    row = dict.fromkeys(TABLES["checks"].column_names)
    row |= {
        "conversation": conversation,
        "check": sum(1 for check in checks if check["conversation"] == conversation),
        "call": call + 1,
        "event_id": f"{conversation}:{3 * call + 2:04d}",
        "time_ns": START_NS + call * STEP_NS + 1_000_000_000,
        "filter_key": "replay",
        "path": "async",
        "fired": fired,
        "name": "token_threshold",
        "metric": "tokens",
        "value": float(round(state.delta)),
        "threshold": float(THRESHOLD),
        "unit": "tokens",
        "context_window": 0,
        "threshold_ratio": 0.0,
        "reason": "over the threshold" if fired else "not over the threshold",
        "detail": "{}",
    }
    checks.append(row)
    if fired:
        _summarise(tables["summaries"], conversation, call, state, mode, walk)


def _summarise(
    summaries: list[Row], conversation: str, call: int, state: _State, mode: str, walk: random.Random
) -> None:
    text_tokens = walk.randint(220, 420)
    row = dict.fromkeys(TABLES["summaries"].column_names)
    row |= {
        "conversation": conversation,
        "summary": sum(1 for summary in summaries if summary["conversation"] == conversation),
        "call": call + 1,
        "filter_key": "replay",
        "status": "written",
        "mode": "standalone",
        "trigger": "token_threshold",
        "events_covered": state.events,
        "covered_tokens": state.history + state.results,
        "boundary_event_id": f"{conversation}:{3 * call + 2:04d}",
        "estimated_tokens": round(state.delta),
        "request_tokens": state.history + state.results + state.summary + 200,
        "completion_tokens": text_tokens,
        "words": text_tokens,
        "model_calls": 1,
        "dropped_chars": 0,
        "dropped_rounds": 0,
        "text": "顾客询问退款进度。",
    }
    summaries.append(row)
    state.pending_cause = f"summary_updated_{mode}" if state.summary else "summary_appeared"
    state.summary, state.history, state.results, state.delta, state.events = text_tokens, 0, 0, 0.0, 0


def _facts(name: str, tables: dict[str, list[Row]], window: int | None) -> dict[str, Any]:
    calls, checks, summaries = tables["calls"], tables["checks"], tables["summaries"]
    later = [row for row in calls if row["prefix_tokens"] is not None]
    prefix = sum(row["prefix_tokens"] for row in later)
    prompt = sum(row["prompt_tokens"] for row in calls)
    return {
        "run_id": f"run-{name.replace(' ', '-')}",
        "config": name,
        "config_hash": f"{sum(map(ord, name)):064x}",
        "data_hash": "9f3c" + "0" * 60,
        "profile": "SEED",
        "conversations": len(tables["conversations"]),
        "events": sum(row["events"] for row in tables["conversations"]),
        "calls": len(calls),
        "checks": len(checks),
        "firings": sum(row["fired"] for row in checks),
        "summaries": len(summaries),
        "prompt_tokens": prompt,
        "peak_prompt_tokens": max((row["prompt_tokens"] for row in calls), default=None),
        "overflow_calls": sum(row["overflow"] for row in calls) if window else None,
        "unknown_windows": 0 if window else len(calls),
        "summary_tokens": sum(row["request_tokens"] + row["completion_tokens"] for row in summaries),
        "prefix_tokens": prefix if later else None,
        "prefix_reuse": prefix / sum(row["reusable_tokens"] for row in later) if later else None,
        "prefix_share": prefix / sum(row["prompt_tokens"] for row in later) if later else None,
        "cached_tokens": None,
        "needed_facts": None,
        "needed_fact_recall": None,
        "cost_usd": None,
        "protocol_violations": 0,
        "coverage_violations": 0,
        "stuck_conversations": 0,
        "trace_hash": "0" * 64,
    }


def with_facts_table(run: FakeRun, states: Mapping[int, Mapping[str, int]], conversation: str = "客服-01") -> FakeRun:
    """A copy of a run whose calls need so many facts in each state."""
    rows: list[Row] = []
    for call, counts in states.items():
        for state, n in counts.items():
            rows += [_fact_row(conversation, call, f"订单-{call:02d}-{i}", state) for i in range(n)]
    tables = {**run.tables, "needed_facts": rows, "fact_chance": [
        {"conversation": conversation, "compared_with": "客服-02", "kind": kind, "needed": 50, "by_chance": by_chance}
        for kind, by_chance in (("identifier", 1), ("time", 20))
    ]}  # fmt: skip
    return FakeRun(run.name, run.facts, run.config, tables)


def _fact_row(conversation: str, call: int, value: str, state: str) -> Row:
    return {
        "conversation": conversation,
        "call": call,
        "kind": "identifier",
        "value": value,
        "source_position": 4,
        "source_event_id": f"{conversation}:0004",
        "source_role": "tool",
        "state": state,
        "step": "" if state == "visible_raw" else "summary",
        "summaries": 0 if state == "visible_raw" else 1,
    }
