"""The table of promises, and the goals that no other test runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from workbench.selftest import engine, model_faults, suite
from workbench.selftest.suite import GOALS, Goal
from workbench.selftest.tally import Tally


def test_all_goals_of_the_selftest_are_there() -> None:
    """REL-01 to -10, REL-14, SEC-01 to -04."""
    goals = {part for goal in GOALS for part in goal.id.split(", ")}
    assert goals == {f"REL-{n:02d}" for n in (*range(1, 11), 14)} | {f"SEC-{n:02d}" for n in range(1, 5)}
    assert all(0 < goal.quick <= goal.nightly for goal in GOALS)


def trial_with(*, n_done: int, faults: int) -> suite.Trial:
    def trial(folder: Path, *, n: int, seed: int) -> Tally:
        tally = Tally("steps", "lost")
        for i in range(n_done):
            tally.trial("refused" if i % 2 else "")
        for i in range(faults):
            tally.fault("lost", f"step {i} | seed {seed}")
        return tally

    return trial


@pytest.mark.parametrize(
    ("n_done", "faults", "holds"), [(4, 0, True), (4, 1, False), (3, 0, False)], ids=["kept", "fault", "too few"]
)
def test_a_row_is_kept_when_all_was_tried_and_nothing_went_wrong(
    n_done: int, faults: int, holds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(suite, "GOALS", (Goal("REL-77", trial_with(n_done=n_done, faults=faults), 4, 2000),))
    (found,) = suite.run(seed=3, tell=told.append)
    assert found.holds is holds
    assert found.asked == "4 steps: lost 0"
    assert found.found == f"{n_done} steps: lost {faults} (refused {n_done // 2})"
    assert len(told) == 1
    page = suite.markdown([found], "workbench selftest")
    assert ("BROKEN" in page) is not holds
    assert ("step 0 | seed 3" in page) is bool(faults)
    assert suite.facts([found])["holds"] is holds


def test_a_share_of_the_nightly_numbers_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "GOALS", (Goal("REL-77", trial_with(n_done=100, faults=0), 4, 2000),))
    (found,) = suite.run(nightly=True, share=0.05)
    assert found.asked == "100 of 2,000 steps: lost 0"
    (found,) = suite.run(nightly=True)
    assert (found.asked, found.holds) == ("2,000 steps: lost 0", False)


def test_a_driver_that_fails_breaks_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def trial(folder: Path, *, n: int, seed: int) -> Tally:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(suite, "GOALS", (Goal("REL-77", trial, 4, 4),))
    (found,) = suite.run()
    assert not found.holds
    assert re.search("ended by OSError.*No space left", found.found)


def test_a_full_queue_and_a_closing_service_lose_no_job(tmp_path: Path) -> None:
    """REL-08, SUM-ASY-07."""
    for trial in (model_faults.full_queue, model_faults.queue_rounds):
        tally = trial(tmp_path, n=100, seed=1)
        assert (tally.n, tally.examples) == (100, [])


def test_malicious_files_are_refused(tmp_path: Path) -> None:
    """SEC-04."""
    tally = engine.malicious_files(tmp_path, n=10, seed=1)
    assert (tally.n, tally.examples) == (10, [])
