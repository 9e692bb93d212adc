"""What a run kept, in one place: facts, survival, checks of summaries, probes (WB-RET-01 to -05)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.replay.conftest import chat, config, recorded, summarising
from workbench.evaluate.kept import CHECKS, Kept, kept_by
from workbench.evaluate.probes import Probe
from workbench.evaluate.retention import retention, survival
from workbench.recordings import Recordings
from workbench.replay.replay import replay
from workbench.report.facts import facts_section
from workbench.report.kept import kept_text
from workbench.report.overview import overview

__all__ = ["recorded"]  # the fixture of the replays


def needing(n_turns: int = 9, *, ident: str = "c1") -> dict[str, Any]:
    """A conversation whose last answer needs an order number of its first message."""
    value = chat(n_turns, ident=ident)
    value["messages"][1]["content"] = "我的订单号是 DD-20260301-77，请记住。"
    value["messages"][-1]["content"] = "您的订单 DD-20260301-77 已处理。"
    return value


PROBE = Probe("p1", "c1", "订单号是什么？", "DD-20260301-77", source_index=1, needed_index=36)


@pytest.fixture
def runs(recorded: Callable[..., Recordings], tmp_path: Path) -> tuple[Any, Recordings]:
    chats = recorded(needing())
    short = summarising("short", token=60, summarizer={"max_summary_words": 3})
    return replay(chats, [config(name="whole"), short], runs=tmp_path / "runs", progress=False), chats


def kept(runs: tuple[Any, Recordings], name: str, **options: Any) -> Kept:
    return kept_by(runs[0][name], runs[1], **options)


def test_everything_about_one_run_is_in_one_value(runs: tuple[Any, Recordings]) -> None:
    """WB-RET-01, -04, -05."""
    found = kept(runs, "short", probes=[PROBE])
    run = runs[0]["short"]
    assert found.retention == retention(run)
    assert [one for one in found.survival if not one.kind] == survival([retention(run)])
    assert found.summaries is not None
    assert found.summaries.summaries == run.facts["summaries"] > 0
    assert set(found.summaries.faults) == set(CHECKS)
    assert json.loads(json.dumps(found.as_dict()))["states"] == found.retention.states


def test_a_probe_tells_what_became_of_its_answer(runs: tuple[Any, Recordings]) -> None:
    """WB-RET-02: the same four states; probes of other conversations are passed over."""
    other = Probe("p2", "another", "?", "!", 0, 1)
    (whole,) = kept(runs, "whole", probes=[PROBE, other]).probes
    assert (whole.state, whole.step) == ("visible_raw", "")
    (short,) = kept(runs, "short", probes=[PROBE, other]).probes
    assert (short.state, short.step) == ("lost", "summary")
    text = kept_text([kept(runs, "short", probes=[PROBE])])
    assert "“short”: the requests answer 0 of 1 probe." in text
    assert "订单号是什么？" in text
    assert "“whole”: the requests answer 1 of 1 probe." in kept_text([kept(runs, "whole", probes=[PROBE])])


@pytest.mark.slow
def test_a_forbidden_string_is_a_fault_of_each_summary_that_holds_it(runs: tuple[Any, Recordings]) -> None:
    """WB-RET-04."""
    written = [row for row in runs[0]["short"].rows("summaries") if row["status"] == "written"]
    word = written[0]["text"].split()[0]
    holding = sum(word.casefold() in row["text"].casefold() for row in written)
    found = kept(runs, "short", forbidden=[word]).summaries
    assert found is not None
    assert found.faults["forbidden"] == holding > 0
    assert f"{holding} with a forbidden string" in " ".join(kept_text([kept(runs, "short", forbidden=[word])]).split())


@pytest.mark.slow
def test_without_recordings_summaries_are_not_checked_and_nothing_is_made_up(runs: tuple[Any, Recordings]) -> None:
    found = kept_by(runs[0]["short"], probes=[PROBE])
    assert (found.summaries, found.probes) == (None, ())
    assert "checked" not in kept_text([found])
    assert found.as_dict()["summaries"] is None


@pytest.mark.slow
def test_too_few_facts_are_counts_with_the_reason(runs: tuple[Any, Recordings]) -> None:
    """WB-RET-01b: never a percentage."""
    found = kept(runs, "short")
    said = found.as_dict()
    assert (said["recall"], said["floor"]) == (None, None)
    assert "at least 30 needed" in said["shortage"]
    text = " ".join(kept_text([found]).split())
    assert "no share of them: needed facts: 1 found, at least 30 needed" in text
    assert "1 lost, taken out of sight: 1 by the summary" in text
    assert "DD-20260301-77" in text


@pytest.mark.slow
def test_a_run_without_summaries_has_none_to_check(runs: tuple[Any, Recordings]) -> None:
    found = kept(runs, "whole")
    assert found.summaries is not None
    assert (found.summaries.summaries, found.summaries.invented_rate, found.survival) == (0, None, ())


@pytest.mark.slow
def test_the_report_shows_how_facts_survive_summaries(runs: tuple[Any, Recordings]) -> None:
    """WB-RET-05: counts, and a dash for a share of too few."""
    section = facts_section(dict(runs[0]), overview(runs[0])) or ""
    assert "“short”: facts that only a summary can say" in section
    assert "“whole”: facts that only a summary can say" not in section
    assert "summaries gone through" in section
