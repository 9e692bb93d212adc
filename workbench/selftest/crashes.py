"""Processes that are killed, that want the same file, that fork, that run out of room (REL-02, -04, -06, -14).

In: a folder, a number of trials, a seed. Out: a tally. The work itself is `child`; here it is judged by what
the children said and what is in the files afterwards.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from workbench.errors import StoreError, StoreVersionError, WorkbenchError
from workbench.report.whole_file import write_whole
from workbench.selftest.operations import seen
from workbench.selftest.store_files import (
    IMPORT_EVENTS,
    KEY,
    START_NS,
    append,
    create,
    empty_store,
    event_of,
    fill,
    ids_in,
    import_key,
    new_store,
    newer_schema,
)
from workbench.selftest.tally import Tally
from workbench.session.types import UserKey
from workbench.store.duckdb import schema
from workbench.store.duckdb.maintenance import check
from workbench.store.duckdb.store import DuckDBStore

TIMEOUT_S = 600.0
LIVES_PER_STORE = 25


def start(work: str, path: Path, number: int = 0, seed: int = 0) -> subprocess.Popen[str]:
    """A process that does one kind of `child`'s work."""
    return subprocess.Popen(
        [sys.executable, "-m", "workbench.selftest.child", work, str(path), str(number), str(seed)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).resolve().parents[2],
    )


def output(work: str, path: Path, number: int = 0, seed: int = 0) -> list[str]:
    """What such a process said, once it has ended.

    Raises:
        WorkbenchError: it failed.
    """
    child = start(work, path, number, seed)
    out, err = child.communicate("", timeout=TIMEOUT_S)
    if child.returncode or err:
        raise WorkbenchError(f"the selftest's process failed: {err.strip() or child.returncode}")
    return out.splitlines()


# --- killed while writing (REL-02) --------------------------------------------------------------------


class _Acknowledged:
    """What the children of one store had been told was stored."""

    def __init__(self) -> None:
        self.n_events = 0
        self.last_summary = -1
        self.imports: list[int] = []


def kills(folder: Path, *, n: int, seed: int) -> Tally:
    """REL-02: processes that append, summarise, import and checkpoint, killed at random moments."""
    tally = Tally("kills", "lost", "torn", "failed opens")
    for first in range(0, n, LIVES_PER_STORE):
        path = empty_store(folder, f"kills{first}.duckdb")
        told = _Acknowledged()
        _follow(output("die", path, min(LIVES_PER_STORE, n - first), seed + first), told, tally, f"store {first}")
        try:
            report = check(path, in_child=False)
            for problem in report.problems:
                tally.fault("torn", f"store {first}: {problem}")
            asyncio.run(_judge(path, told, tally, f"store {first}"))
        except StoreError as error:
            tally.fault("failed opens", f"store {first}: {error}")
    return tally


def _follow(lines: Iterable[str], told: _Acknowledged, tally: Tally, where: str) -> None:
    for line in lines:
        kind, _, number = line.partition(" ")
        if kind == "life":
            tally.trial()
        elif kind == "has":
            # One event may have been written whose acknowledgement was cut off.
            tally.expect(int(number) >= told.n_events, "lost", f"{where}: {line} of {told.n_events} acknowledged")
            tally.expect(int(number) <= told.n_events + 1, "torn", f"{where}: {line}, {told.n_events} acknowledged")
        elif kind == "event":
            told.n_events = int(number) + 1
            tally.seen["events acknowledged"] += 1
        elif kind == "summary":
            told.last_summary = int(number)
        elif kind == "import":
            told.imports.append(int(number))
        elif kind == "failed":
            tally.fault("failed opens", f"{where}: {line}")


async def _judge(path: Path, told: _Acknowledged, tally: Tally, where: str) -> None:
    store = DuckDBStore(path)
    try:
        session = await store.load(KEY, now_ns=START_NS)
        if session is None:
            tally.expect(told.n_events == 0, "lost", f"{where}: the session")
            return
        ids = [event.id for event in session.events]
        tally.expect(ids == [f"e{i}" for i in range(len(ids))], "torn", f"{where}: gaps or another order")
        tally.expect(len(ids) >= told.n_events, "lost", f"{where}: {len(ids)} of {told.n_events} events")
        summary = session.summaries.get("")
        if summary is None:
            tally.expect(told.last_summary < 0, "lost", f"{where}: the summary")
        else:
            boundary = summary.boundary
            is_whole = boundary is not None and session.position_of(boundary.last_event_id) is not None
            tally.expect(is_whole, "torn", f"{where}: the summary's boundary is no stored event")
            is_there = int(summary.summary.removeprefix("up to ")) >= told.last_summary
            tally.expect(is_there, "lost", f"{where}: the summary up to {told.last_summary}")
        await _judge_imports(store, told, tally, where)
    finally:
        await store.close()


async def _judge_imports(store: DuckDBStore, told: _Acknowledged, tally: Tally, where: str) -> None:
    there = {one.id for one in await store.list_sessions(UserKey(KEY.app_name, KEY.user_id), now_ns=START_NS)}
    for n in told.imports:
        tally.expect(import_key(n).session_id in there, "lost", f"{where}: import {n}")
    for name in there - {KEY.session_id}:
        key = import_key(int(name.split()[1]))
        is_whole = len(await store.list_events(key, now_ns=START_NS)) == IMPORT_EVENTS
        tally.expect(is_whole, "torn", f"{where}: {name} is there in part")


# --- two processes, forks (REL-04) --------------------------------------------------------------------


def second_openers(folder: Path, *, n: int, seed: int) -> Tally:
    """REL-04: others that want the file in either mode are told who holds it; the first goes on unharmed."""
    del seed
    tally = Tally("second openers", "not refused", "wrong process id", "slower than 1 s", "first process harmed")

    async def main() -> None:
        store = new_store(folder, "held.duckdb")
        try:
            await create(store)
            await append(store, event_of(0))
            holder = start("open", store.path, n)
            out, err = await asyncio.to_thread(holder.communicate, "", TIMEOUT_S)
            tally.expect(not err, "not refused", err)
            for line in out.splitlines():
                word, pid, seconds = line.split(" ", 2)
                tally.trial()
                if word != "locked":
                    tally.fault("not refused", line)
                    continue
                tally.expect(pid == str(os.getpid()), "wrong process id", line)
                tally.expect(float(seconds) < 1, "slower than 1 s", line)
            await append(store, event_of(1))
        finally:
            await store.close()
        ids = await ids_in(store.path)
        tally.expect(ids == ["e0", "e1"], "first process harmed", f"its events are {ids}")

    asyncio.run(main())
    return tally


def forks(folder: Path, *, n: int, seed: int) -> Tally:
    """REL-04, M12: a forked child is refused with every call, the parent is unharmed."""
    del seed
    tally = Tally("forked children", "not refused", "parent harmed")
    path = empty_store(folder, "forked.duckdb")
    lines = output("fork", path, n)
    for line in lines[:-1]:
        tally.trial()
        tally.expect(line == "refused 4", "not refused", line)
    tally.expect(lines[-1] == "parent done", "parent harmed", lines[-1])
    ids = asyncio.run(ids_in(path))
    tally.expect(ids == [f"e{i}" for i in range(n)], "parent harmed", f"{len(ids)} of {n} events")
    return tally


# --- no room (REL-06 a) -------------------------------------------------------------------------------


def full_disks(folder: Path, *, n: int, seed: int) -> Tally:
    """REL-06, M7, M8: no file may grow beyond a size; the same store goes on once it may."""
    del seed
    tally = Tally("file sizes", "lost", "not told", "not whole afterwards")
    said = "\n".join(output("full", folder, n)).split("size ")[1:]
    for text in said:
        size, *lines = text.split("\n")
        lines = [line for line in lines if line]
        path = folder / f"full{size}.duckdb"
        tally.trial()
        tally.expect(lines[-2:] == ["full StoreFullError", "closed"], "not told", f"{size} bytes: {lines[-2:]}")
        acknowledged = [f"e{line.split()[1]}" for line in lines if line.startswith("event")]
        ids = asyncio.run(ids_in(path))
        tally.expect(ids == acknowledged, "lost", f"{size} bytes: {len(ids)} of {len(acknowledged)} events")
        problems = check(path, in_child=False).problems
        tally.expect(not problems, "not whole afterwards", f"{size} bytes: {problems[:1]}")
    return tally


# --- killed while migrating (REL-14) ------------------------------------------------------------------


def migration_kills(folder: Path, *, n: int, seed: int) -> Tally:
    """REL-14: killed while a newer release brings a file to its schema: old, new or a step between, with all rows."""
    tally = Tally("kills", "lost", "between", "failed opens")
    folder = folder / "migrated"
    folder.mkdir()
    store = new_store(folder, "old.duckdb")
    asyncio.run(fill(store, 200))
    store.close_now()
    expected = asyncio.run(_content(store.path))
    for line in output("migrate", store.path, n, seed):
        path = Path(line.removeprefix("killed "))
        try:
            with newer_schema():
                store = DuckDBStore(path)
                found, newest = store.schema_versions
                store.close_now()
                tally.trial(f"killed at version {found}")
                tally.expect(asyncio.run(_content(path)) == expected, "lost", line)
        except StoreError as error:
            tally.fault("failed opens", f"{line}: {error}")
            continue
        tally.expect(newest == schema.NEWEST_VERSION + 2, "between", f"{line}: version {newest}")
        try:
            DuckDBStore(path).close_now()
        except StoreVersionError as error:
            is_told = (error.found, error.supported) == (newest, schema.NEWEST_VERSION)
            tally.expect(is_told, "between", f"{line}: {error}")
        else:
            tally.fault("between", f"{line}: an older release opens it")
    return tally


async def _content(path: Path) -> object:
    store = DuckDBStore(path)
    try:
        return seen(await store.load(KEY, now_ns=START_NS))
    finally:
        await store.close()


# --- exports (REL-07) ---------------------------------------------------------------------------------


def exports(folder: Path, *, n: int, seed: int) -> Tally:
    """REL-07: reports and recordings, killed and starved while they replace an old file."""
    tally = Tally("interrupted exports", "torn", "left over", "full device not told")
    folder = folder / "exports"
    folder.mkdir()
    for line in output("export", folder, n // 2, seed):
        word, _, rest = line.partition(" ")
        if word == "left":
            tally.expect(rest == "['recording', 'report']", "left over", rest)
        elif word != "told":
            tally.trial(rest)
            tally.expect(rest != "torn", "torn", line)
    if Path("/dev/full").exists():
        try:
            write_whole("/dev/full", "text")
        except OSError:
            pass
        else:
            tally.fault("full device not told", "/dev/full")
    return tally
