"""Processes that die, that want the same file, that fork, that run out of room (REL-02, REL-04, REL-06)."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from tests.store.files import KEY, START_NS, empty_store
from workbench.errors import StoreLockedError
from workbench.store.duckdb.maintenance import check
from workbench.store.duckdb.store import DuckDBStore

CHILD = Path(__file__).with_name("child.py")


def start(work: str, path: Path, *more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(CHILD), work, str(path), *more],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def output(work: str, path: Path, *more: str) -> list[str]:
    child = start(work, path, *more)
    out, err = child.communicate("", timeout=60)
    assert not err, err
    return out.splitlines()


def stored(path: Path) -> tuple[list[str], str]:
    """Ids of the events, and the text of the summary."""

    async def main() -> tuple[list[str], str]:
        store = DuckDBStore(path)
        session = await store.load(KEY, now_ns=START_NS)
        await store.close()
        assert session is not None
        summary = session.summaries.get("")
        assert summary is None or session.position_of(summary.boundary.last_event_id) is not None  # type: ignore[union-attr]
        return [event.id for event in session.events], "" if summary is None else summary.summary

    return asyncio.run(main())


def test_ten_killed_processes_lose_nothing_that_they_acknowledged(tmp_path: Path) -> None:
    """REL-02, M1: no event, no summary without its event, no gap, and every file opens again."""
    path = empty_store(tmp_path)
    n_events, last_summary, n_lives = 0, -1, 0
    for line in output("die", path, "10"):
        kind, _, number = line.partition(" ")
        if kind == "has":
            # One event may have been written whose acknowledgement was cut off.
            assert n_events <= int(number) <= n_events + 1
            n_lives += 1
        elif kind == "event":
            n_events = int(number) + 1
        elif kind == "summary":
            last_summary = int(number)
    assert n_lives == 10
    assert n_events > 20
    report = check(path)
    assert report.is_sound, report.problems
    ids, summary = stored(path)
    assert ids == [f"e{n}" for n in range(len(ids))]
    assert n_events <= len(ids) <= n_events + 1
    assert int(summary.removeprefix("up to ")) >= last_summary >= 0


def test_a_second_process_is_told_who_holds_the_file(tmp_path: Path) -> None:
    """REL-04, SUM-STO-11: one writer per file, in this process too, until it is closed or dies."""
    path = empty_store(tmp_path)
    holder = start("hold", path)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "open\n"
    assert output("open", path) == [f"locked {holder.pid}"]
    with pytest.raises(StoreLockedError, match=f"process {holder.pid} holds the file"):
        DuckDBStore(path)
    holder.kill()
    holder.communicate()
    store = DuckDBStore(path)
    with pytest.raises(StoreLockedError):
        DuckDBStore(path)
    store.close_now()
    assert output("open", path) == ["open"]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["x.duckdb", "x.duckdb.journal"]


def test_a_forked_child_may_not_use_its_parents_store(tmp_path: Path) -> None:
    """REL-04, M12."""
    path = empty_store(tmp_path)
    assert output("fork", path) == ["refused 4", "parent done"]
    assert stored(path)[0] == ["e2"]


@pytest.mark.parametrize("limit", [100, 60_000, 400_000, 2_700_000, 3_100_000])
def test_a_full_disk_is_told_and_nothing_acknowledged_is_lost(limit: int, tmp_path: Path) -> None:
    """REL-06, M7, M8: no file may grow beyond a size: head line, journal, log, checkpoint."""
    path = empty_store(tmp_path)
    lines = output("full", path, str(limit))
    assert lines[-1] == "closed"
    assert lines[-2] == "full StoreFullError"
    acknowledged = [f"e{line.split()[1]}" for line in lines if line.startswith("event")]
    if acknowledged:
        ids, _ = stored(path)
        assert ids == acknowledged
    assert check(path, in_child=False).is_sound
