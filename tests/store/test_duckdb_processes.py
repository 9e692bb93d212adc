"""Processes that die, that want the same file, that fork, that run out of room (REL-02, REL-04, REL-06, REL-07, REL-14).

The trials are those of `workbench selftest`, with small numbers.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench.errors import StoreLockedError
from workbench.selftest import crashes
from workbench.selftest.crashes import output, start
from workbench.selftest.store_files import empty_store
from workbench.selftest.tally import Tally
from workbench.store.duckdb.store import DuckDBStore


def check(tally: Tally, n: int) -> None:
    assert (tally.n, tally.examples) == (n, [])


@pytest.mark.parametrize("n", [3, pytest.param(9, marks=pytest.mark.slow)])
def test_killed_processes_lose_nothing_that_they_acknowledged(n: int, tmp_path: Path) -> None:
    """REL-02, M1: no event, no summary without its event, no gap, no half import, and every file opens again."""
    tally = crashes.kills(tmp_path, n=n, seed=1)
    check(tally, n)
    assert tally.seen["events acknowledged"] > 20


def test_a_loss_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """REL-02: the judge of the killed processes is worth something."""
    path = empty_store(tmp_path, "kills0.duckdb")
    said = ["life 0", "has 0", "event 0", "event 1", "summary 1", "import 0", "life 1", "has 1"]
    monkeypatch.setattr(crashes, "output", lambda *_: said)
    tally = crashes.kills(tmp_path, n=2, seed=1)
    assert tally.faults == {"lost": 2, "torn": 0, "failed opens": 0}
    assert "has 1 of 2 acknowledged" in tally.examples[0]
    assert path.exists()


@pytest.mark.slow
def test_a_second_process_is_told_who_holds_the_file(tmp_path: Path) -> None:
    """REL-04, SUM-STO-11: one writer per file, in this process too, until it is closed or dies."""
    check(crashes.second_openers(tmp_path, n=4, seed=1), 4)
    path = empty_store(tmp_path)
    holder = start("hold", path)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "open\n"
    with pytest.raises(StoreLockedError, match=f"process {holder.pid} holds the file"):
        DuckDBStore(path)
    holder.kill()
    holder.communicate()
    store = DuckDBStore(path)
    with pytest.raises(StoreLockedError):
        DuckDBStore(path)
    store.close_now()
    assert output("open", path, 1) == ["open 0 0"]
    assert {file.name for file in tmp_path.iterdir() if file.name.startswith("x.")} == {"x.duckdb", "x.duckdb.journal"}


@pytest.mark.slow
def test_a_forked_child_may_not_use_its_parents_store(tmp_path: Path) -> None:
    """REL-04, M12."""
    check(crashes.forks(tmp_path, n=3, seed=1), 3)


@pytest.mark.parametrize("n", [1, pytest.param(4, marks=pytest.mark.slow)])
def test_a_full_disk_is_told_and_nothing_acknowledged_is_lost(n: int, tmp_path: Path) -> None:
    """REL-06, M7, M8: no file may grow beyond a size: head line, journal, log, checkpoint."""
    check(crashes.full_disks(tmp_path, n=n, seed=1), n)


@pytest.mark.slow
def test_an_interrupted_export_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    """REL-07."""
    check(crashes.exports(tmp_path, n=6, seed=1), 6)


@pytest.mark.slow
def test_a_killed_migration_goes_on_where_it_stopped(tmp_path: Path) -> None:
    """REL-14: old, new, or a whole step between; an older release refuses what is newer."""
    check(crashes.migration_kills(tmp_path, n=2, seed=1), 2)
