"""Many writers, writes that fail, calls that are cancelled (REL-03, REL-06, REL-10).

In: a folder, a number of trials, a seed. Out: a tally. What each call answered is kept in a history; one checker
judges it against what is stored: acknowledged and missing is lost, refused and there is a ghost, and of a
cancelled call nobody knows.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from workbench.call import CallContext
from workbench.clock import FixedClock
from workbench.errors import StoreFullError
from workbench.model.scripted import ScriptedModel
from workbench.model.types import Request, Response
from workbench.selftest.operations import result_of, whole
from workbench.selftest.store_files import KEY, START_NS, append, create, empty_store, event_of, new_store, small_limits
from workbench.selftest.tally import Tally, quiet
from workbench.service.duckdb import DuckDBSessionService
from workbench.session.types import Session, SessionKey, Summary, SummaryBoundary
from workbench.store.duckdb.database import Batch, Database
from workbench.store.duckdb.journal import journal_path
from workbench.store.duckdb.store import DuckDBStore
from workbench.store.memory import InMemoryStore
from workbench.summary.summarizer import Summarizer

N_WRITERS = 8
INCREMENTS = 200
_CANCELLED_SHARE = 0.03


class History:
    """What writers were told about each element they added."""

    def __init__(self) -> None:
        self.acknowledged: dict[int, list[str]] = {}
        self.refused: set[str] = set()
        self.unknown: set[str] = set()

    async def add(self, writer: int, element: str, call: Coroutine[Any, Any, None]) -> None:
        """Make a call and keep how it ended."""
        try:
            await call
        except asyncio.CancelledError:
            self.unknown.add(element)
        except StoreFullError:
            self.refused.add(element)
        else:
            self.acknowledged.setdefault(writer, []).append(element)

    def judge(self, stored: Sequence[str], tally: Tally, where: str) -> None:
        """Compare with all elements in stored order."""
        counts = Counter(stored)
        for element, n in counts.items():
            tally.expect(n == 1, "duplicated", f"{where}: {element} is there {n} times")
            tally.expect(element not in self.refused, "ghosts", f"{where}: {element} was refused")
        place = {element: i for i, element in enumerate(stored)}
        for writer, elements in self.acknowledged.items():
            for element in elements:
                tally.expect(element in counts, "lost", f"{where}: {element}")
            places = [place[element] for element in elements if element in place]
            tally.expect(places == sorted(places), "reordered", f"{where}: writer {writer}")


def concurrent_writers(folder: Path, *, n: int, seed: int, n_appends: int = 1000) -> Tally:
    """REL-03: eight tasks append to one session and to one each, count in its state, and are cancelled at times."""
    tally = Tally("runs", "lost", "duplicated", "reordered", "ghosts", "lost increments", "errors")
    for i in range(n):
        with small_limits(BATCH_CHANGES=200, MAX_WAITING_CHANGES=600):
            asyncio.run(_one_run(folder / f"writers{i}.duckdb", tally, seed + i, n_appends))
        tally.trial()
    return tally


async def _one_run(path: Path, tally: Tally, seed: int, n_appends: int) -> None:
    random_ = random.Random(seed)
    store = new_store(path.parent, path.name)
    await create(store)
    shared, own = History(), History()
    where = f"seed {seed}"
    n_increments = min(INCREMENTS, n_appends)

    async def count(key: str) -> None:
        session = await store.load(KEY, now_ns=START_NS, newest_events=1)
        assert session is not None
        value = str(int(session.state.get(key) or b"0") + 1).encode()
        await store.update_session_state(KEY, {key: value}, updated_ns=START_NS, expires_ns=0, now_ns=START_NS)

    async def writer(number: int) -> None:
        mine = SessionKey("app", f"user{number}", "s")
        await create(store, mine)
        for i in range(n_appends):
            for history, key in ((own, mine), (shared, KEY)):
                element = f"{number}-{i}"
                call = append(store, event_of(i, id=element), key)
                if random_.random() < _CANCELLED_SHARE:
                    task = asyncio.create_task(history.add(number, element, call))
                    await asyncio.sleep(0)
                    task.cancel()
                    with suppress(asyncio.CancelledError):
                        await task
                    if element not in history.acknowledged.get(number, ())[-1:]:
                        history.unknown.add(element)
                else:
                    await history.add(number, element, call)
            if i < n_increments:
                await count(f"n{number}")
            if i % 10 == 0:
                await asyncio.sleep(0)

    results = await asyncio.gather(*(writer(number) for number in range(N_WRITERS)), return_exceptions=True)
    for result in results:
        tally.expect(result is None, "errors", f"{where}: {result!r}")
    for moment in ("before", "after"):
        at = f"{where}, {moment} closing"
        shared.judge([event.id for event in await store.list_events(KEY, now_ns=START_NS)], tally, at)
        everything: list[str] = []
        for number in range(N_WRITERS):
            events = await store.list_events(SessionKey("app", f"user{number}", "s"), now_ns=START_NS)
            everything += [event.id for event in events]
        own.judge(everything, tally, at)
        session = await store.load(KEY, now_ns=START_NS, newest_events=1)
        assert session is not None
        counts = {f"n{number}": str(n_increments).encode() for number in range(N_WRITERS)}
        tally.expect(session.state == counts, "lost increments", f"{at}: {session.state}")
        await store.close()
        if moment == "before":
            store = DuckDBStore(path)
    tally.seen["appends"] += 2 * N_WRITERS * n_appends
    tally.seen["cancelled"] += len(shared.unknown) + len(own.unknown)


# --- the n-th write fails (REL-06 c) ------------------------------------------------------------------


def failing_writes(folder: Path, *, n: int, seed: int) -> Tally:
    """REL-06: the n-th write to the journal, or the n-th batch, finds no room, for n = 1, 2, ... until none does."""
    del seed
    tally = Tally("failing writes", "lost", "not told")
    for kind in ("write", "half a write", "batch"):
        for number in range(1, n + 1):
            with small_limits(BATCH_CHANGES=4, FIRST_BATCH_CHANGES=4), quiet():
                has_failed = asyncio.run(_fail_at(folder, tally, kind, number))
            if not has_failed:
                break
            tally.trial(kind)
    return tally


async def _fail_at(folder: Path, tally: Tally, kind: str, number: int) -> bool:
    where = f"{kind} {number}"
    store, memory = new_store(folder, f"{kind}{number}.duckdb"), InMemoryStore()
    calls = 0

    def write(fd: int, data: bytes, offset: int) -> int:
        nonlocal calls
        calls += 1
        if calls == number and kind == "half a write":
            os.pwrite(fd, data[: len(data) // 2], offset)
        if calls == number and kind != "batch":
            raise OSError(28, "No space left on device")
        return os.pwrite(fd, data, offset)

    def apply(batch: Batch) -> None:
        nonlocal calls
        calls += 1
        if calls == number:
            raise StoreFullError("no room on the disk")
        Database.apply(store._database, batch)

    if kind == "batch":
        store._database.apply = apply  # type: ignore[method-assign]
    else:
        store._journal._write = write  # type: ignore[assignment]
    n_refused = 0
    for i, operation in enumerate(_OPERATIONS):
        if kind == "batch" and i % 3 == 2:
            with suppress(StoreFullError):
                await store.flush()
        found = await result_of(operation, store)
        if found is not None and found[0] == StoreFullError.__name__:
            n_refused += 1
            continue
        expected = await result_of(operation, memory)  # without the session also the next ones are refused
        tally.expect(found == expected, "not told", f"{where}: {found} instead of {expected}")
    if kind != "batch":
        tally.expect(n_refused == (calls >= number), "not told", f"{where}: {n_refused} calls refused")
    with suppress(StoreFullError):
        await store.flush()
    tally.expect(await whole(store, START_NS) == await whole(memory, START_NS), "lost", where)
    await store.close()
    store = DuckDBStore(store.path)
    tally.expect(await whole(store, START_NS) == await whole(memory, START_NS), "lost", f"{where}, after opening")
    await store.close()
    return calls >= number


def _appending(n: int) -> Callable[[Any], Awaitable[None]]:
    return lambda store: append(store, event_of(n))


async def _summarising(store: Any) -> None:
    await store.save_summary(KEY, "", Summary("s", 5, SummaryBoundary("", 5, "e1")), now_ns=START_NS)


async def _setting(store: Any) -> None:
    await store.update_app_state("app", {"a": b"1"}, expires_ns=0, now_ns=START_NS)


_OPERATIONS: tuple[Callable[[Any], Awaitable[None]], ...] = (
    create,
    *map(_appending, range(4)),
    _summarising,
    _setting,
    *map(_appending, range(4, 10)),
)


# --- cancelled at every await (REL-10) ----------------------------------------------------------------


class CancelledAt:
    """Awaits a coroutine and cancels its own task at the n-th suspension; `n_suspensions` counts them all."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], step: int) -> None:
        self._coroutine = coroutine
        self._step = step
        self.n_suspensions = 0

    def __await__(self) -> Generator[Any, Any, Any]:
        inner = self._coroutine.__await__()
        go_on: Callable[[], Any] = partial(inner.send, None)
        while True:
            try:
                future = go_on()
            except StopIteration as done:
                return done.value
            self.n_suspensions += 1
            if self.n_suspensions == self._step:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
            try:
                yield future
            except BaseException as error:
                go_on = partial(inner.throw, error)
            else:
                go_on = partial(inner.send, None)


CANCELLED_CALLS = ("append", "summary", "flush", "close", "append that waits")


def cancellations(folder: Path, *, n: int, seed: int) -> Tally:
    """REL-10: each kind of call, cancelled at each of its awaits: nothing stored or everything, no task left, lock free.

    Args:
        n: At most so many awaits of each kind; they are counted by running on until a call ends.
    """
    del seed
    tally = Tally("awaits", "stored in part", "tasks left", "lock held", "other outcomes")
    base = asyncio.run(_before(folder / "base.duckdb"))
    for kind in CANCELLED_CALLS:
        for step in range(1, n + 1):
            path = folder / f"{kind} {step}.duckdb"
            shutil.copy(base.path, path)
            shutil.copy(journal_path(base.path), journal_path(path))
            limits = {"MAX_KNOWN_KEYS": -1}
            if kind == "append that waits":
                limits |= {"MAX_WAITING_CHANGES": 1, "BATCH_CHANGES": 1, "FIRST_BATCH_CHANGES": 1}
            with small_limits(**limits):
                if not asyncio.run(_cancel_at(path, base, tally, kind, step)):
                    break
            tally.trial(kind)
    return tally


class _Base(NamedTuple):
    """A closed store with three events and a summary of two, and the session that its writer held."""

    path: Path
    session: Session
    summaries: dict[str, Summary]


async def _before(path: Path) -> _Base:
    async with _service(empty_store(path.parent, path.name)) as service:
        session = await service.create_session(KEY.app_name, KEY.user_id, KEY.session_id)
        for i in range(2):
            await service.append_event(session, event_of(i))
        await service.create_session_summary(session)
        await service.append_event(session, event_of(2))
        return _Base(path, session, dict(session.summaries))


class _Slow(ScriptedModel):
    """A model that is waited for before, between and after its answers."""

    async def generate(self, ctx: CallContext, request: Request) -> AsyncIterator[Response]:
        await asyncio.sleep(0)
        async for response in super().generate(ctx, request):
            await asyncio.sleep(0)
            yield response
        await asyncio.sleep(0)


def _service(path: Path) -> DuckDBSessionService:
    summarizer = Summarizer(_Slow(["one", "two", "three"]), prompt="{conversation_text}")
    return DuckDBSessionService(path, summarizer=summarizer, clock=FixedClock(START_NS), session_event_limit=0)


def _slow_down(database: Database) -> None:
    apply = database.apply

    def slowly(batch: Batch) -> None:
        time.sleep(0.05)
        apply(batch)

    database.apply = slowly  # type: ignore[method-assign]


async def _cancel_at(path: Path, base: _Base, tally: Tally, kind: str, step: int) -> bool:
    """True when the call had so many awaits."""
    where = f"{kind}, await {step}"
    session, old = base.session.clone(), base.summaries
    service = _service(path)  # cold: the calls have to read the file
    store: Any = service.store
    expected = ["e0", "e1", "e2"]
    if kind == "append that waits":
        _slow_down(store._database)
    n_waiting = {"append that waits": 2, "flush": 1, "close": 1}.get(kind, 0)
    for i in range(3, 3 + n_waiting):
        await service.append_event(session, event_of(i))
        expected.append(f"e{i}")
    work: dict[str, Callable[[], Coroutine[Any, Any, Any]]] = {
        "summary": lambda: service.create_session_summary(session),
        "flush": store.flush,
        "close": service.close,
    }
    make = work.get(kind, lambda: service.append_event(session, event_of(9)))
    call = CancelledAt(make(), step)

    async def main() -> None:
        await call

    tasks = asyncio.all_tasks()
    (result,) = await asyncio.gather(asyncio.create_task(main()), return_exceptions=True)
    has_reached = call.n_suspensions >= step
    await service.close()
    left = asyncio.all_tasks() - tasks
    tally.expect(not left, "tasks left", f"{where}: {left}")
    is_expected = isinstance(result, asyncio.CancelledError) if has_reached else result is None or kind != "summary"
    # What happens after the last moment at which it could be undone may also end well.
    tally.expect(is_expected or not isinstance(result, BaseException), "other outcomes", f"{where}: {result!r}")
    try:
        service = _service(path)
    except Exception as error:
        tally.fault("lock held", f"{where}: {error}")
        return False
    async with service:
        after = await service.get_session(KEY)
        assert after is not None
        ids = [event.id for event in await service.list_events(KEY)]
        is_whole = ids == expected or ("append" in kind and ids == [*expected, "e9"])
        tally.expect(is_whole, "stored in part", f"{where}: {ids}")
        if after.summaries != old:
            boundary = after.summaries[""].boundary
            is_whole = kind == "summary" and boundary is not None and boundary.last_event_id == "e2"
            tally.expect(is_whole, "stored in part", f"{where}: {after.summaries}")
    return has_reached
