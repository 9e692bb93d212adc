"""Explanations of checks, and what time does to summaries in a replay."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.replay.conftest import chat, summarising
from workbench.recordings import Recordings
from workbench.replay.explain import explain_check
from workbench.replay.replay import replay


def test_a_tree_that_does_not_fire_prints_as_a_truth_table(recorded: Callable[..., Recordings], tmp_path: Path) -> None:
    """WB-RPL-12, BUG-04: all-of says that the event check blocked while the token check passed."""
    both = summarising("all", trigger={"all": [{"token": 100}, {"event": 20}]})
    either = summarising("any", trigger={"any": [{"event": 20}, {"token": 100}]})
    runs = replay(recorded(chat(8)), [both, either], runs=tmp_path, progress=False)
    blocked = [row for row in runs["all"].rows("checks") if not row["fired"] and row["value"] > 1][-1]
    text = explain_check(blocked)
    assert "did not fire" in text
    lines = text.splitlines()[1:]
    assert [line.split()[0] for line in lines] == ["all", "token_threshold", "event_threshold"]
    assert "passed" in lines[1]
    assert "failed" in lines[2]
    assert "of more than 20" in lines[2]
    assert (blocked["metric"], blocked["threshold"]) == ("events", 20.0)
    fired = next(row for row in runs["any"].rows("checks") if row["fired"])
    assert "fired; " in explain_check(fired)
    assert "tokens of more than 100" in explain_check(fired)


def test_a_summary_that_takes_longer_than_the_job_may_is_thrown_away_at_the_timeout(
    recorded: Callable[..., Recordings], tmp_path: Path
) -> None:
    """WB-RPL-08: it fails at s + timeout; the next check covers everything since."""
    slow = summarising("slow", summaries={"latency_s": 30.0}, service={"summary_job_timeout_s": 10.0})
    run = replay(recorded(chat(8)), slow, runs=tmp_path, progress=False)["slow"]
    rows = run.rows("summaries")
    assert rows
    assert {row["status"] for row in rows} == {"discarded"}
    assert all(row["written_ns"] - row["started_ns"] == 10 * 10**9 for row in rows)
    assert all(row["summary_key"] is None for row in run.rows("calls"))


def test_a_synchronous_summary_delays_the_rest_of_its_request_and_not_the_next(
    recorded: Callable[..., Recordings], tmp_path: Path
) -> None:
    """WB-RPL-08: requests are a minute apart; a summary between two calls of one takes ten seconds."""
    quick = summarising("quick", token=60, agent={"sync_summary_intra_run": True})
    slow = summarising("late", token=60, agent={"sync_summary_intra_run": True}, summaries={"latency_s": 10.0})
    runs = replay(recorded(chat(4)), [quick, slow], runs=tmp_path, progress=False)
    times = {name: [row["time_ns"] // 10**9 for row in run.rows("calls")] for name, run in runs.items()}
    intra = [row for row in runs["late"].rows("checks") if row["path"] == "intra_run" and row["fired"]]
    assert intra
    delayed = {row["call"] for row in intra}
    for call, (early, late) in enumerate(zip(times["quick"], times["late"], strict=True)):
        assert late - early == (10 if call in delayed else 0)


def test_a_fork_repeats_its_parents_prompt_and_a_standalone_summary_nothing(
    recorded: Callable[..., Recordings], tmp_path: Path
) -> None:
    """ASM-CACHE-05, WB-CACHE-05."""
    forked = summarising("forked", summarizer={"max_summary_words": 40, "cache_safe_forking": True})
    runs = replay(recorded(chat(10)), [forked, summarising("alone")], runs=tmp_path, progress=False)
    rows = {name: [row for row in run.rows("summaries") if row["status"] == "written"] for name, run in runs.items()}
    assert {row["mode"] for row in rows["forked"]} == {"cache_safe_fork"}
    calls = runs["forked"].rows("calls")
    assert all(row["prefix_tokens"] == calls[row["call"] - 1]["prompt_tokens"] for row in rows["forked"])
    assert {row["prefix_tokens"] for row in rows["alone"]} == {0}
