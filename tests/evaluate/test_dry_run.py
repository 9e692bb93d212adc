"""The next summary, without a model (WB-RPL-16)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.replay.conftest import chat, config, summarising
from workbench.errors import ConfigError
from workbench.evaluate.dry_run import dry_run
from workbench.evaluate.net import CACHED_PRICE
from workbench.recordings import Recordings
from workbench.replay.replay import replay


def test_it_says_what_a_summary_now_would_cover_save_and_cost(
    recorded: Callable[..., Recordings], tmp_path: Path
) -> None:
    """WB-RPL-16: a trigger that never fired; all of it would be covered."""
    recordings = recorded(chat(10))
    quiet = summarising("quiet", token=100_000)
    found = dry_run(recordings[0], quiet)
    run = replay(recordings, quiet, runs=tmp_path, progress=False)["quiet"]
    last = run.rows("calls")[-1]
    assert run.facts["summaries"] == 0
    assert found.prompt_tokens_before == last["prompt_tokens"] + last["answer_tokens"]
    assert found.events_covered == len(recordings[0].events)
    assert found.saved_tokens == found.covered_tokens - found.completion_tokens > 0
    assert found.prompt_tokens_after < found.prompt_tokens_before
    assert found.request_tokens > found.covered_tokens / 2
    assert found.net_cost == found.request_tokens + found.completion_tokens
    assert found.calls_to_pay_back == pytest.approx(found.net_cost / (CACHED_PRICE * found.saved_tokens))
    assert "token" in found.last_check
    assert found.as_dict()["prompt_tokens_after"] == found.prompt_tokens_after


def test_after_a_summary_only_what_is_new_would_be_covered(recorded: Callable[..., Recordings], tmp_path: Path) -> None:
    """WB-RPL-16: the summary before counts as saved."""
    recordings = recorded(chat(11))
    today = summarising("today", token=300)
    run = replay(recordings, today, runs=tmp_path, progress=False)["today"]
    written = [row for row in run.rows("summaries") if row["status"] == "written"]
    found = dry_run(recordings[0], today)
    assert found.events_covered == len(recordings[0].events) - sum(row["events_covered"] for row in written) > 0
    assert found.saved_tokens == found.covered_tokens + written[-1]["completion_tokens"] - found.completion_tokens


def test_where_nothing_is_new_a_summary_would_only_cost(recorded: Callable[..., Recordings]) -> None:
    """WB-RPL-16: the engine, when forced, writes the old one anew."""
    found = dry_run(recorded(chat(4))[0], summarising(trigger={"event": 0}))
    assert (found.events_covered, found.covered_tokens, found.saved_tokens, found.calls_to_pay_back) == (0, 0, 0, None)
    assert found.net_cost > 0


def test_a_sized_summary_stands_in_for_a_live_model(recorded: Callable[..., Recordings], tmp_path: Path) -> None:
    """WB-RPL-16: every test forbids a model call."""
    live = {"source": "live", "model": "some-model", "cassette": str(tmp_path / "a.jsonl"), "sized_tokens": 37}
    found = dry_run(recorded(chat(6))[0], summarising(token=100_000, summaries=live))
    assert (found.stand_in, found.completion_tokens) == ("sized", 37)


def test_without_a_summarizer_there_is_no_next_summary(recorded: Callable[..., Recordings]) -> None:
    with pytest.raises(ConfigError, match="makes no summaries"):
        dry_run(recorded(chat(2))[0], config(name="none"))
