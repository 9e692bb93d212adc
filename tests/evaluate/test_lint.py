"""What a trigger can and can't do on a corpus (WB-TUNE-07)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.replay.conftest import chat, summarising
from workbench.evaluate.lint import Finding, Lint, lint, quantiles
from workbench.recordings import Recordings
from workbench.replay.replay import replay
from workbench.report.comparison import lint_text

pytestmark = pytest.mark.slow  # each of them writes and opens store files; `make test-more` runs these


@pytest.fixture
def linted(recorded: Callable[..., Recordings], tmp_path: Path) -> Callable[..., Lint]:
    recordings = recorded(chat(10), chat(6, ident="c2"))

    def run(**values: Any) -> Lint:
        return lint(replay(recordings, summarising("c", **values), runs=tmp_path, progress=False)["c"])

    return run


def rules(found: Lint) -> dict[str, Finding]:
    return {finding.rule: finding for finding in found.findings}


def test_a_trigger_that_never_fires_is_named_with_what_the_corpus_has(linted: Callable[..., Lint]) -> None:
    """WB-TUNE-07: with the corpus' observed quantiles."""
    found = rules(linted(trigger={"event": 500}))
    assert "event_threshold > 500 events" in found["never-fires"].text
    leaf = found["never-passes"]
    assert (leaf.severity, leaf.evidence["max"], leaf.evidence["passed"]) == ("warning", 40, 0)
    assert leaf.text.endswith("the largest 40")
    assert "fires-every" not in found


def test_how_often_it_fires_is_said(linted: Callable[..., Lint]) -> None:
    """WB-TUNE-07: one that fires every n turns."""
    rare, often = rules(linted(trigger={"event": 11})), rules(linted(trigger={"token": 5}))
    assert (rare["fires-every"].severity, rare["fires-every"].evidence["calls"]) == ("note", 6)
    assert (often["fires-every"].severity, often["fires-every"].evidence["calls"]) == ("warning", 1)
    assert often["stuck"].text.startswith("2 conversations stuck in firings that don't pay, first c1, call ")
    assert "stuck" not in rare


def test_gates_that_contradict_each_other_are_named(linted: Callable[..., Lint]) -> None:
    """WB-TUNE-07: each could pass, both at once never do."""
    found = rules(linted(trigger={"all": [{"event": 5}, {"time": "10m"}]}))
    assert found["gates-contradict"].text.startswith(
        "time_threshold > 600,000 ms (all[1]) never holds while event_threshold > 5 events (all[0]) does"
    )
    fine = rules(linted(trigger={"all": [{"event": 5}, {"token": 100}]}))
    assert "gates-contradict" not in fine
    assert "never-fires" not in fine


def test_a_branch_that_never_decides_is_named(linted: Callable[..., Lint]) -> None:
    """WB-TUNE-07."""
    found = rules(linted(trigger={"any": [{"event": 0}, {"event": 50}]}))
    assert found["always-passes"].text.startswith("event_threshold > 0 events (any[0])")
    assert "(any[1]) is never looked at" in found["never-looked-at"].text


def test_a_share_of_the_window_is_given_in_tokens_for_each_model(linted: Callable[..., Lint]) -> None:
    """WB-TUNE-07: a share-of-window threshold and its absolute effect per model."""
    trigger = {"context": {"ratio": 0.5, "min_tokens": 1000}}
    found = rules(linted(trigger=trigger, model={"context_window": 1500}))["share-of-window"]
    assert found.evidence["limits"]["1500"] == 1000
    assert found.evidence["limits"]["128000"] == 64_000
    assert "up to 1,500 min_tokens = 1,000 decides" in found.text
    assert found.evidence["largest"] is not None
    assert "so it can't fire on models of 8,192 and more" in found.text


def test_summaries_that_no_prompt_holds_are_named(linted: Callable[..., Lint]) -> None:
    """WB-TUNE-07."""
    assert "summary-not-sent" in rules(linted(trigger={"event": 8}, agent={"add_session_summary": False}))
    assert "summary-not-sent" not in rules(linted(trigger={"event": 8}))


def test_a_trigger_that_fires_for_nothing_is_named(linted: Callable[..., Lint]) -> None:
    """WB-TUNE-07: the newest events are skipped, and there are no others."""
    found = rules(linted(trigger={"event": 2}, summarizer={"skip_recent": 1000}))
    assert {"fires-for-nothing", "never-fires"} & set(found)


def test_findings_about_time_on_an_assumed_clock_say_so(recorded: Callable[..., Recordings], tmp_path: Path) -> None:
    """WB-TUNE-07, WB-REC-03."""
    timeless = chat(8)
    for message in timeless["messages"]:
        del message["timestamp"]
    run = replay(recorded(timeless), summarising("c", trigger={"time": "20s"}), runs=tmp_path, progress=False)["c"]
    assert "assumed" in rules(lint(run))["assumed-time"].text


def test_quantiles_are_observed_values() -> None:
    assert quantiles([5, 1, 3, 2, 4]) == {"p50": 3, "p90": 5, "max": 5}
    assert quantiles([]) == {}


def test_a_lint_prints_the_corpus_and_each_finding(linted: Callable[..., Lint]) -> None:
    """WB-TUNE-07."""
    found = linted(trigger={"event": 500})
    text = lint_text(found)
    assert text.startswith("“c” on 2 conversations, 32 calls; prompt tokens: half at most ")
    assert "\nwarning: the trigger never fires on this corpus" in text
    assert found.as_dict()["corpus"]["calls_per_conversation"] == {"p50": 12, "p90": 20, "max": 20}
