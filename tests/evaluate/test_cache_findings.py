"""Losses per option, idle gaps, predicted against reported (WB-CACHE-03, -04, -06)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.evaluate.costs import OPENAI, OWN_PRICES, Rows, calls, summary
from workbench.config import RunConfig
from workbench.evaluate.cache_findings import (
    OPTION_OF_CAUSE,
    Loss,
    against_reported,
    idle_gaps,
    losses_by_cause,
    losses_by_option,
    mean_error,
)
from workbench.evaluate.cost import cost_of
from workbench.evaluate.providers import CAUSES
from workbench.recordings import load_recordings
from workbench.replay.replay import replay

PRICED = {"cache": OPENAI, "prices": OWN_PRICES}


def test_each_option_says_how_many_cached_tokens_it_cost():
    """WB-CACHE-03: "this option cost 41,200 cached tokens"."""
    rows = calls([4096, 5000, 3000, 3500, 3600])
    rows[2] |= {"prefix_tokens": 1500, "recent_prefix_tokens": 1500, "break_cause": "summary_updated_system"}
    rows[3] |= {"prefix_tokens": 1100, "recent_prefix_tokens": 1100, "break_cause": "summary_moved"}
    rows[4] |= {"prefix_tokens": 2000, "recent_prefix_tokens": 2000, "break_cause": "tailoring"}
    cost = cost_of(Rows(rows, config=PRICED))
    assert losses_by_cause(cost) == {
        "summary_updated_system": Loss(1, 2944 - 1408, pytest.approx(1536 * 11 / 1e6)),
        "summary_moved": Loss(1, 2944 - 1024, pytest.approx(1920 * 11 / 1e6)),
        "tailoring": Loss(1, 3456 - 1920, pytest.approx(1536 * 11 / 1e6)),
    }
    assert next(iter(losses_by_cause(cost))) == "summary_moved"
    assert {name: (loss.calls, loss.tokens) for name, loss in losses_by_option(cost).items()} == {
        "summaries": (2, 3456),
        "tailoring": (1, 1536),
    }


def test_what_the_recording_does_is_no_options_fault():
    """WB-CACHE-03."""
    rows = calls([4096, 5000])
    rows[1] |= {"prefix_tokens": 0, "recent_prefix_tokens": 0, "break_cause": "tools_changed"}
    cost = cost_of(Rows(rows, config={"cache": OPENAI}, model="no such model"))
    assert losses_by_cause(cost) == {"tools_changed": Loss(1, 4096, None)}
    assert losses_by_option(cost) == {}


def test_every_named_option_and_cause_exists():
    """WB-CACHE-03."""
    assert set(OPTION_OF_CAUSE) <= set(CAUSES)
    config = RunConfig.from_values({"summarizer": {}}).model_dump()
    for option in OPTION_OF_CAUSE.values():
        table, _, name = option.partition(".")
        assert table in config or option == "preloads"
        assert not name or name in config[table]


def test_the_idle_gap_map_counts_calls_after_the_cache_has_gone():
    """WB-CACHE-06."""
    rows = calls([4096, 4224, 4352, 4480])
    for row, minutes in zip(rows, (0, 1, 11, 100), strict=True):
        row["time_ns"] = minutes * 60 * 10**9
    gaps = idle_gaps(run := Rows(rows, config=PRICED), cost_of(run))
    assert [(gap.title, gap.calls, gap.expired, gap.lost_tokens) for gap in gaps.gaps if gap.calls] == [
        ("up to 1 min", 1, 0, 0),
        ("5 to 30 min", 1, 1, 4224),
        ("1 h to 1 day", 1, 1, 4352),
    ]
    assert (gaps.expired, gaps.lost_tokens) == (2, 8576)
    assert gaps.longer.name == "openai-24h"
    assert (gaps.longer_costs * 1e6, gaps.unit) == (pytest.approx(-8576 * 11), "USD")


@pytest.mark.parametrize(("minutes", "pays"), [(20, True), (1, False), (90, False)])
def test_an_hours_write_pays_only_for_gaps_between_five_minutes_and_an_hour(minutes, pays):
    """WB-CACHE-06: would a 1 h write pay? By the factors of the rules where prices are unknown."""
    rows = calls([4096 + 128 * i for i in range(6)], every_s=60 * minutes)
    run = Rows(rows, config={"cache": {"provider": "anthropic"}}, model="no such model")
    gaps = idle_gaps(run, cost_of(run))
    assert (gaps.longer.name, gaps.unit) == ("anthropic-1h", "uncached tokens")
    assert (gaps.longer_costs < 0) is pays


def test_without_rules_there_is_no_map():
    """WB-CACHE-06."""
    run = Rows(calls([4096]), model="")
    assert idle_gaps(run, cost_of(run)) is None


def test_predicted_and_reported_cached_tokens_stand_side_by_side():
    """WB-CACHE-04."""
    rows = calls([4096, 5120, 6144])
    for row, cached in zip(rows, (0, 4000, 5000), strict=True):
        row |= {"recorded_prompt_tokens": row["prompt_tokens"] + 1000, "recorded_cached_tokens": cached}
    rows.append(calls([100], conversation="silent")[0])
    found = against_reported(run := Rows(rows, [summary(1, 10, 1)], PRICED), cost_of(run))
    assert [(one.conversation, one.calls, one.cached_tokens, one.reported_cached_tokens) for one in found] == [
        ("c", 3, 4096 + 5120, 9000)
    ]
    assert found[0].error == pytest.approx(9216 / 15360 - 9000 / 18360)
    assert mean_error(found) == pytest.approx(abs(found[0].error))
    assert mean_error([]) is None


def log_line(n: int, kind: str, text: str, **usage: int) -> str:
    message = {"role": kind, "content": text if kind == "user" else [{"type": "text", "text": text}]}
    if usage:
        message |= {"id": f"m{n}", "model": "claude-sonnet-4-5", "usage": usage}
    return json.dumps(
        {
            "type": kind,
            "uuid": f"u{n}",
            "parentUuid": f"u{n - 1}" if n else None,
            "sessionId": "s",
            "timestamp": f"2026-03-01T10:{n:02d}:00Z",
            "message": message,
        }
    )


def test_a_session_log_with_cache_counts_is_predicted_from_its_own_requests(tmp_path: Path):
    """WB-CACHE-04: replayed unchanged, predicted beside reported."""
    long = "一二三四五六七八九十" * 60
    lines, before = [], 0
    for turn in range(4):
        lines.append(log_line(2 * turn, "user", f"{turn}{long}"))
        prompt = 1300 * (turn + 1)
        lines.append(
            log_line(
                2 * turn + 1,
                "assistant",
                long,
                input_tokens=3,
                cache_read_input_tokens=before,
                cache_creation_input_tokens=prompt - before,
                output_tokens=600,
            )
        )
        before = prompt
    path = tmp_path / "session.jsonl"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    config = RunConfig.from_values({"billing": {"encoding": "runes:1"}})
    run = next(iter(replay(load_recordings(path), config, runs=tmp_path / "runs", progress=False).values()))
    (found,) = against_reported(run, cost_of(run))
    assert (found.calls, found.reported_cached_tokens) == (4, 1300 + 2600 + 3900)
    # Below 1,024 tokens nothing is written, so the second call still finds nothing.
    assert 0 < found.cached_tokens < found.prompt_tokens
    assert abs(found.error) < 0.25
