"""What tests do in other processes: `python child.py WORK PATH [number]`; each acknowledgement is a line on stdout."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from tests.store.files import KEY, START_NS, append, create, event_of
from workbench.errors import StoreClosedError, StoreError, StoreLockedError
from workbench.session.types import Summary, SummaryBoundary
from workbench.store.duckdb import live
from workbench.store.duckdb.store import DuckDBStore


def say(text: object) -> None:
    os.write(1, f"{text}\n".encode())


async def write_on(path: str, _: int) -> None:
    """Append events and summaries until killed; small batches and journals, so that all kinds of steps are hit."""
    live.BATCH_CHANGES, live.CUT_BYTES = 8, 6000
    store = DuckDBStore(path)
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
        n += 1


def die_often(path: str, n_rounds: int) -> None:
    """Let one forked child after the other write, and kill it; forking saves ten starts of Python."""
    random_ = random.Random(1)
    for _ in range(n_rounds):
        reading, writing = os.pipe()
        pid = os.fork()
        if not pid:
            os.dup2(writing, 1)
            os.close(reading)
            asyncio.run(write_on(path, 0))
        os.close(writing)
        with os.fdopen(reading, encoding="utf-8") as lines:
            first = lines.readline()
            time.sleep(random_.uniform(0.001, 0.2))
            os.kill(pid, signal.SIGKILL)
            say(first + lines.read().rpartition("\n")[0])
        os.waitpid(pid, 0)


async def try_to_open(path: str, _: int) -> None:
    try:
        store = DuckDBStore(path)
    except StoreLockedError as error:
        say(f"locked {error.pid}")
    else:
        say("open")
        await store.close()


async def hold(path: str, _: int) -> None:
    store = DuckDBStore(path)
    say("open")
    sys.stdin.read()
    await store.close()


async def fill_up(path: str, limit: int) -> None:
    """Write until no file may grow any more; then with more room; the acknowledged numbers are printed."""
    import resource

    live.BATCH_CHANGES = 16
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


async def fork(path: str, _: int) -> None:
    """Use a store in a forked child."""
    store = DuckDBStore(path)
    await create(store)
    pid = os.fork()
    if not pid:
        n_refused = 0
        for call in (
            append(store, event_of(1)),
            store.load(KEY, now_ns=START_NS),
            store.flush(),
            store.sweep(now_ns=0),
        ):
            try:
                await call
            except StoreClosedError:
                n_refused += 1
        await store.close()
        say(f"refused {n_refused}")
        os._exit(0)
    await asyncio.to_thread(os.waitpid, pid, 0)
    await append(store, event_of(2))
    await store.close()
    say("parent done")


WORK = {"open": try_to_open, "hold": hold, "full": fill_up, "fork": fork}

if __name__ == "__main__":
    if sys.argv[1] == "die":
        die_often(sys.argv[2], int(sys.argv[3]))
        sys.exit()
    asyncio.run(WORK[sys.argv[1]](sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 0))
