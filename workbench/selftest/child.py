"""What the selftest does in other processes: `python -m workbench.selftest.child WORK PATH NUMBER SEED`.

In: a path and two numbers. Out: lines on stdout, each written at once, so that what a killed process said is
what it had been told. Trials are forked children: forking saves a start of Python each.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from workbench.errors import RecordingError, StoreClosedError, StoreError, StoreLockedError
from workbench.recordings.native import write_recording
from workbench.recordings.types import Conversation
from workbench.report.whole_file import write_whole
from workbench.selftest.store_files import (
    IMPORT_EVENTS,
    KEY,
    START_NS,
    append,
    create,
    empty_store,
    event_of,
    import_key,
    newer_schema,
    small_limits,
)
from workbench.session.types import Session, Summary, SummaryBoundary
from workbench.store.duckdb import live
from workbench.store.duckdb.store import DuckDBStore
from workbench.store.tables import open_tables

if sys.platform != "win32":
    import resource

IMPORT_EVERY = 40


def say(text: object) -> None:
    """One line, past all buffers."""
    os.write(1, f"{text}\n".encode())


def _in_fork(work: Callable[[], None]) -> int:
    """Run something in a forked child, whose end is the end of `work`; its process id."""
    pid = os.fork()
    if not pid:
        try:
            work()
        except BaseException as error:
            say(f"failed {type(error).__name__}: {error}")
        os._exit(0)
    return pid


# --- processes that are killed ------------------------------------------------------------------------


async def _write_on(path: str) -> None:
    """Append, import and summarise until killed; batches and journals are small, so that all steps are hit."""
    store = DuckDBStore(path)
    live.BATCH_CHANGES, live.CUT_BYTES = 8, 6000
    session = await store.load(KEY, now_ns=START_NS)
    if session is None:
        await create(store)
    n = 0 if session is None else len(session.events)
    say(f"has {n}")
    while True:
        await append(store, event_of(n))
        say(f"event {n}")
        if n % 5 == 4:
            boundary = SummaryBoundary("", START_NS + n, f"e{n}")
            await store.save_summary(KEY, "", Summary(f"up to {n}", START_NS + n, boundary), now_ns=START_NS)
            say(f"summary {n}")
        if n % IMPORT_EVERY == 0:
            key = import_key(n)
            imported = Session(
                app_name=key.app_name,
                user_id=key.user_id,
                id=key.session_id,
                events=[event_of(i) for i in range(IMPORT_EVENTS)],
            )
            await store.create(imported, expires_ns=0, now_ns=START_NS)
            say(f"import {n}")
        n += 1


def die_often(path: str, n_rounds: int, seed: int) -> None:
    """Let one child after the other write, and kill it: while it writes, or every third time while it may be opening."""
    random_ = random.Random(seed)
    for i in range(n_rounds):
        reading, writing = os.pipe()

        def work(reading: int = reading, writing: int = writing) -> None:
            os.close(reading)
            os.dup2(writing, 1)
            asyncio.run(_write_on(path))

        pid = _in_fork(work)
        os.close(writing)
        with os.fdopen(reading, encoding="utf-8", errors="replace") as lines:
            first = "" if i % 3 == 2 else lines.readline()
            time.sleep(random_.uniform(0.001, 0.3) if i % 3 == 2 else random_.uniform(0.001, 0.1))
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            text = first + lines.read()
        say(f"life {i}\n{text.rpartition(chr(10))[0]}".rstrip())


def die_migrating(path: str, n_rounds: int, seed: int) -> None:
    """Kill children that bring a store to a newer schema, each time with a fresh copy."""
    random_ = random.Random(seed)
    old = Path(path)
    for i in range(n_rounds):
        twin = old.with_name(f"m{i}.duckdb")
        for suffix in ("", ".journal"):
            Path(f"{twin}{suffix}").write_bytes(Path(f"{old}{suffix}").read_bytes())

        def work(twin: Path = twin) -> None:
            with newer_schema():
                DuckDBStore(twin).close_now()

        pid = _in_fork(work)
        time.sleep(random_.uniform(0.001, 0.25))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        say(f"killed {twin}")


# --- processes that want the same file ----------------------------------------------------------------


def hold(path: str, _: int, __: int) -> None:
    """Keep a store open until stdin ends."""
    store = DuckDBStore(path)
    say("open")
    sys.stdin.read()
    store.close_now()


def open_often(path: str, n_rounds: int, _: int) -> None:
    """Open a file that somebody else has, as a store and for reading only, in turn."""
    for i in range(n_rounds):

        def work(i: int = i) -> None:
            begin = time.perf_counter()
            try:
                if i % 2:
                    with open_tables(Path(path), read_only=True):
                        say("open 0 0")
                else:
                    DuckDBStore(path).close_now()
                    say("open 0 0")
            except StoreLockedError as error:
                say(f"locked {error.pid} {time.perf_counter() - begin:.3f}")

        os.waitpid(_in_fork(work), 0)


def fork_often(path: str, n_rounds: int, _: int) -> None:
    """Use an open store in forked children; the parent goes on with it."""

    async def refused(store: DuckDBStore) -> int:
        n_refused = 0
        calls: list[Awaitable[Any]] = [
            append(store, event_of(1)),
            store.load(KEY, now_ns=START_NS),
            store.flush(),
            store.sweep(now_ns=0),
        ]
        for call in calls:
            try:
                await call
            except StoreClosedError:
                n_refused += 1
        await store.close()
        return n_refused

    async def main() -> None:
        store = DuckDBStore(path)
        await create(store)
        for i in range(n_rounds):
            pid = os.fork()
            if not pid:
                # The child has its parent's loop; the calls are refused before they wait for anything.
                asyncio.events._set_running_loop(None)
                say(f"refused {asyncio.new_event_loop().run_until_complete(refused(store))}")
                os._exit(0)
            await asyncio.to_thread(os.waitpid, pid, 0)
            await append(store, event_of(i))
        await store.close()
        say("parent done")

    asyncio.run(main())


# --- processes that run out of room -------------------------------------------------------------------


def sizes_of(n: int) -> list[int]:
    """File sizes at which there is no more room: in the head line, the journal, the file, the log, a checkpoint."""
    known = (60_000, 3_100_000, 400_000, 100, 2_700_000)
    step = 4_200_000 // max(n - len(known), 1)
    return [*known, *(50_000 + i * step for i in range(n - len(known)))][:n]


def fill_up(folder: str, n_sizes: int, _: int) -> None:
    """Write until no file may grow any more; then with more room; the acknowledged numbers are printed."""

    async def main(path: Path, limit: int) -> None:
        store: Any = None
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        try:
            store = DuckDBStore(path)
            await create(store)
            for n in range(100_000):
                await append(store, event_of(n, extensions={"pad": "x" * 2000}))
                say(f"event {n}")
        except StoreError as error:
            say(f"full {type(error).__name__}")
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        if store is not None:
            await store.close()
        say("closed")

    with small_limits(BATCH_CHANGES=16):
        for size in sizes_of(n_sizes):
            path = empty_store(Path(folder), f"full{size}.duckdb")
            say(f"size {size}")
            os.waitpid(_in_fork(lambda path=path, size=size: asyncio.run(main(path, size))), 0)  # type: ignore[misc]


# --- processes that export (REL-07) -------------------------------------------------------------------

EXPORTERS: dict[str, Callable[[Path, int], object]] = {
    "report": lambda path, n: write_whole(path, "x" * 1000 * n),
    "recording": lambda path, n: write_recording(path, _conversations(n)),
}


def _conversations(n: int) -> Iterator[Conversation]:
    for i in range(n):
        yield Conversation(app_name="app", user_id="user", id=f"s{i}", events=(event_of(i),), source="")


def export_often(folder: str, n_rounds: int, seed: int) -> None:
    """Replace old files by new ones, killed at a random moment, or with room for a part only."""
    random_ = random.Random(seed)
    for name, write in EXPORTERS.items():
        path = Path(folder) / name
        write(path, 10)
        old = path.read_bytes()
        write(path, 2000)
        new = path.read_bytes()
        for i in range(n_rounds):
            path.write_bytes(old)
            limit = random_.randrange(len(new)) if i % 2 else None

            def work(path: Path = path, limit: int | None = limit, write: Any = write) -> None:
                if limit is not None:
                    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
                try:
                    write(path, 2000)
                except (OSError, RecordingError):
                    say("told")

            pid = _in_fork(work)
            if limit is None:
                time.sleep(random_.uniform(0.0005, 0.12))
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            found = path.read_bytes()
            say(f"{name} {'old' if found == old else 'new' if found == new else 'torn'}")
        write(path, 10)
    say(f"left {sorted(file.name for file in Path(folder).iterdir())}")


WORK: dict[str, Callable[[str, int, int], None]] = {
    "die": die_often,
    "migrate": die_migrating,
    "hold": hold,
    "open": open_often,
    "fork": fork_often,
    "full": fill_up,
    "export": export_often,
}

if __name__ == "__main__":
    WORK[sys.argv[1]](sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
