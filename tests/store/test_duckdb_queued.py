"""SUM-STO-10: appends that return before they are stored; what is kept of them, in which order, and what a crash takes."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from workbench.clock import FixedClock
from workbench.errors import ConfigError, SessionNotFoundError, StoreClosedError, StoreError
from workbench.selftest.store_files import KEY, START_NS, append, create, empty_store, event_of, fill, ids_in
from workbench.service.duckdb import DuckDBSessionService
from workbench.session.types import Session, SessionKey, Summary, UserKey
from workbench.store.duckdb import queued
from workbench.store.duckdb.queued import QueuedDuckDBStore
from workbench.store.duckdb.store import DuckDBStore

OTHER = SessionKey("app", "user", "other")


def run(work: Any) -> Any:
    return asyncio.run(work)


def queued_store(folder: Path, **options: Any) -> QueuedDuckDBStore:
    return QueuedDuckDBStore(empty_store(folder), **options)


def held_back(store: Any) -> asyncio.Event:
    """Writers wait until the event is set."""
    gate = asyncio.Event()

    async def wait() -> None:
        await gate.wait()

    store._room = wait
    return gate


def service_over(folder: Path, **options: Any) -> DuckDBSessionService:
    clock = FixedClock(START_NS)
    return DuckDBSessionService(empty_store(folder), enable_async_persist=True, clock=clock, **options)


async def idle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_each_sessions_events_are_stored_in_the_order_of_their_appends(tmp_path: Path) -> None:
    """Three writers that stop at every event, ten sessions, appends in turn."""

    async def main() -> None:
        store = queued_store(tmp_path, n_persisters=3)
        keys = [SessionKey("app", "user", f"s{i}") for i in range(10)]
        for key in keys:
            await create(store, key)

        async def slowly() -> None:
            await asyncio.sleep(0)

        store._room = slowly  # type: ignore[method-assign]
        for n in range(40):
            for key in keys:
                await append(store, event_of(n), key)
        await store.close()
        reopened = DuckDBStore(store.path)
        for key in keys:
            events = await reopened.list_events(key, now_ns=START_NS)
            assert [event.id for event in events] == [f"e{n}" for n in range(40)]
        await reopened.close()

    run(main())


def test_an_append_returns_before_its_event_is_stored_and_a_read_waits_for_it(tmp_path: Path) -> None:
    async def main() -> None:
        service = service_over(tmp_path)
        live = await service.create_session("app", "user", "s")
        gate = held_back(service.store)
        stored = service.store._journal.end.sequence  # type: ignore[attr-defined]
        await service.append_event(live, event_of(1))
        assert [event.id for event in live.events] == ["e1"]
        await idle()
        assert service.store._journal.end.sequence == stored  # type: ignore[attr-defined]
        reading = asyncio.create_task(service.list_events(KEY))
        await idle()
        assert not reading.done()
        gate.set()
        assert [event.id for event in await reading] == ["e1"]
        await service.close()

    run(main())


def test_a_full_queue_makes_the_caller_wait_until_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One event is with the writer and three wait: the fifth append returns when the writer has taken the next."""
    monkeypatch.setattr(queued, "BUFFER", 3)

    async def main() -> None:
        service = service_over(tmp_path, async_persister_num=1)
        live = await service.create_session("app", "user", "s")
        gate = held_back(service.store)
        for n in range(4):
            await service.append_event(live, event_of(n))
            await idle()
        fifth = asyncio.create_task(service.append_event(live, event_of(4)))
        await idle()
        assert not fifth.done()
        assert len(live.events) == 4
        gate.set()
        await fifth
        assert len(live.events) == 5
        await service.close()
        assert await ids_in(tmp_path / "x.duckdb") == [f"e{n}" for n in range(5)]

    run(main())


def test_a_caller_cancelled_while_it_waits_for_room_has_appended_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """REL-10: neither to the live session nor to the store; the place it waited for isn't lost."""
    monkeypatch.setattr(queued, "BUFFER", 1)

    async def main() -> None:
        service = service_over(tmp_path, async_persister_num=1)
        live = await service.create_session("app", "user", "s")
        gate = held_back(service.store)
        for n in range(2):
            await service.append_event(live, event_of(n))
            await idle()
        waiting = [asyncio.create_task(service.append_event(live, event_of(n))) for n in (2, 3)]
        await idle()
        waiting[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting[0]
        assert [event.id for event in live.events] == ["e0", "e1"]
        gate.set()
        await waiting[1]
        assert [event.id for event in live.events] == ["e0", "e1", "e3"]
        await service.close()
        assert await ids_in(tmp_path / "x.duckdb") == ["e0", "e1", "e3"]

    run(main())


def test_closing_stores_what_is_queued_and_turns_away_who_waits_for_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queued, "BUFFER", 2)

    async def main() -> None:
        store = queued_store(tmp_path, n_persisters=1)
        await create(store)
        gate = held_back(store)
        for n in range(3):
            await append(store, event_of(n))
            await idle()
        late = [asyncio.create_task(append(store, event_of(n))) for n in (3, 4)]
        await idle()
        closing = asyncio.create_task(store.close())
        await idle()
        assert not closing.done()
        with pytest.raises(StoreClosedError, match="being closed"):
            await append(store, event_of(5))
        gate.set()
        await closing
        for one in late:
            with pytest.raises(StoreClosedError):
                await one
        await store.close()
        assert await ids_in(store.path) == ["e0", "e1", "e2"]

    run(main())


def test_who_stops_waiting_for_the_end_loses_what_is_queued_and_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """REL-10: the file is free, nobody waits for ever, and what is stored is a beginning of what was appended."""
    monkeypatch.setattr(queued, "BUFFER", 2)

    async def main() -> None:
        store = queued_store(tmp_path, n_persisters=1)
        await fill(store, 2)
        await store.flush()
        held_back(store)
        for n in (2, 3, 4):
            await append(store, event_of(n))
            await idle()
        late = [asyncio.create_task(append(store, event_of(n))) for n in (5, 6)]
        reading = asyncio.create_task(store.load(KEY, now_ns=START_NS))
        closing = asyncio.create_task(store.close())
        await idle()
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        results = await asyncio.gather(*late, reading, return_exceptions=True)
        assert [type(result) for result in results] == [StoreClosedError] * 3
        assert len(asyncio.all_tasks()) == 1
        assert await ids_in(store.path) == ["e0", "e1"]

    with caplog.at_level(logging.ERROR):
        run(main())
    assert "closed before 2 queued events were stored" in caplog.text
    assert "an event of session 'app/user/s' couldn't be stored: CancelledError" in caplog.text


def test_a_write_that_fails_is_logged_and_the_next_one_is_stored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a word of the conversation."""

    async def main() -> None:
        store = queued_store(tmp_path, n_persisters=1)
        await create(store)
        write = store._journal._write
        calls = iter(range(100))

        def fail_once(*args: Any) -> int:
            if next(calls) == 1:
                raise OSError(28, "No space left on device")
            return write(*args)

        store._journal._write = fail_once  # type: ignore[assignment]
        for n in range(4):
            await append(store, event_of(n))
        await store.close()
        assert await ids_in(store.path) == ["e0", "e2", "e3"]

    with caplog.at_level(logging.ERROR):
        run(main())
    (record,) = [record for record in caplog.records if record.name == queued.__name__]
    assert "an event of session 'app/user/s' couldn't be stored" in record.getMessage()
    assert "No space left" in record.getMessage()
    assert "汉字" not in caplog.text


def test_what_can_be_refused_is_refused_at_once(tmp_path: Path) -> None:
    """SUM-ERR-16: an unknown session, an event that can't be stored exactly."""

    async def main() -> None:
        store = queued_store(tmp_path)
        await create(store)
        with pytest.raises(SessionNotFoundError):
            await append(store, event_of(1), OTHER)
        with pytest.raises(StoreError, match="isn't JSON"):
            await append(store, event_of(1, extensions={"a": object()}))
        await append(store, event_of(2))
        await store.close()
        assert await ids_in(store.path) == ["e2"]

    run(main())


CALLS: dict[str, Callable[[QueuedDuckDBStore], Awaitable[Any]]] = {
    "load": lambda store: store.load(KEY, now_ns=START_NS),
    "list_events": lambda store: store.list_events(KEY, now_ns=START_NS),
    "list_sessions": lambda store: store.list_sessions(UserKey("app", "user"), now_ns=START_NS),
    "delete": lambda store: store.delete(KEY),
    "save_summary": lambda store: store.save_summary(KEY, "", Summary("s", 1), now_ns=START_NS),
    "load_summaries": lambda store: store.load_summaries(KEY, now_ns=START_NS),
    "update_session_state": lambda store: store.update_session_state(
        KEY, {"a": b"1"}, updated_ns=1, expires_ns=0, now_ns=START_NS
    ),
    "sweep": lambda store: store.sweep(now_ns=START_NS),
    "flush": lambda store: store.flush(),
    "close": lambda store: store.close(),
}


def test_every_other_call_comes_after_what_is_queued(tmp_path: Path) -> None:
    async def main() -> None:
        store = queued_store(tmp_path)
        kinds: list[str] = []
        write = store._journal.append

        def note(kind: str, payload: str) -> int:
            kinds.append(kind)
            return write(kind, payload)

        store._journal.append = note  # type: ignore[method-assign]
        for name, call in CALLS.items():
            await store.delete(KEY)
            await create(store)
            kinds.clear()
            for n in range(3):
                await append(store, event_of(n))
            assert kinds == []
            await call(store)
            assert kinds[:3] == ["event"] * 3, name

    run(main())


def test_another_session_can_be_read_while_a_writer_is_held_up(tmp_path: Path) -> None:
    async def main() -> None:
        store = queued_store(tmp_path)
        await create(store)
        await fill(store, 1, OTHER)
        await store.flush()
        gate = held_back(store)
        await append(store, event_of(1))
        await idle()
        found = await asyncio.wait_for(store.load(OTHER, now_ns=START_NS), 5)
        assert found is not None
        assert [event.id for event in found.events] == ["e0"]
        gate.set()
        await store.close()

    assert KEY.session_id != OTHER.session_id
    run(main())


def test_what_a_loop_leaves_that_ended_without_close_is_stored_from_the_next_one(tmp_path: Path) -> None:
    """Also the event that its writer had in hand."""
    store = queued_store(tmp_path)
    run(create(store))
    room = store._room

    async def leave() -> None:
        held_back(store)
        for n in range(3):
            await append(store, event_of(n))
            await idle()

    run(leave())
    store._room = room  # type: ignore[method-assign]
    with pytest.raises(StoreError, match="3 events are queued"):
        store.close_now()

    async def go_on() -> list[str]:
        await append(store, event_of(3))
        return [event.id for event in await store.list_events(KEY, now_ns=START_NS)]

    assert run(go_on()) == ["e0", "e1", "e2", "e3"]
    run(store.close())
    assert run(ids_in(store.path)) == ["e0", "e1", "e2", "e3"]


def test_closing_from_another_loop_while_the_first_one_runs_drops_nothing(tmp_path: Path) -> None:
    """Its queue belongs to the loop whose tasks store it; that one has to close."""

    async def main() -> None:
        store = queued_store(tmp_path)
        await create(store)
        gate = held_back(store)
        await append(store, event_of(0))
        await append(store, event_of(1))
        with pytest.raises(StoreError, match="another event loop uses the store"):
            await asyncio.to_thread(asyncio.run, store.close())
        gate.set()
        await append(store, event_of(2))
        await store.close()
        assert await ids_in(store.path) == ["e0", "e1", "e2"]

    run(main())


@pytest.mark.parametrize("number", [0, -1, True, 2.5, "3"])
def test_a_wrong_number_of_writers_is_refused_in_one_sentence(number: Any) -> None:
    for is_enabled in (True, False):
        with pytest.raises(ConfigError) as caught:
            DuckDBSessionService(":memory:", enable_async_persist=is_enabled, async_persister_num=number)
        assert str(caught.value) == f"async_persister_num = {number!r}; allowed: a whole number, 1 or more"


CHILD = """
import asyncio, os, random, signal, sys
from workbench.clock import FixedClock
from workbench.selftest.store_files import START_NS, event_of
from workbench.service.duckdb import DuckDBSessionService
from workbench.session.types import UserKey

async def main(path, seed):
    random_ = random.Random(seed)
    service = DuckDBSessionService(path, enable_async_persist=True, async_persister_num=3, clock=FixedClock(START_NS))
    lives = [await service.create_session("app", "user", f"s{i}") for i in range(4)]
    await service.store.flush()
    n_until = random_.randint(30, 60)
    for n in range(10_000):
        for live in lives:
            await service.append_event(live, event_of(n))
            os.write(1, f"{live.id} e{n}\\n".encode())
        if n < n_until and random_.random() < 0.2:
            await asyncio.sleep(random_.random() / 500)
        elif n == n_until:
            await service.list_sessions(UserKey("app", "user"))  # comes after what is queued
        elif n == n_until + 20:  # the loop hasn't come to the writers since
            os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
def test_a_killed_process_loses_the_queued_end_and_nothing_else(seed: int, tmp_path: Path) -> None:
    """REL-02 with the weaker promise: each session is a beginning of what was appended to it, whole to the last event."""
    path = empty_store(tmp_path)
    child = subprocess.run(
        [sys.executable, "-c", CHILD, str(path), str(seed)], capture_output=True, text=True, check=False, timeout=60
    )
    assert child.returncode == -9, child.stderr
    appended: dict[str, list[str]] = {}
    for line in child.stdout.splitlines():
        session_id, event_id = line.split()
        appended.setdefault(session_id, []).append(event_id)
    assert len(appended) == 4

    async def stored() -> dict[str, Session]:
        async with DuckDBSessionService(path, session_event_limit=0, clock=FixedClock(START_NS)) as service:
            found = {}
            for session_id in appended:
                session = await service.get_session(SessionKey("app", "user", session_id))
                assert session is not None
                session.replace_events(await service.list_events(session.key))
                found[session_id] = session
            return found

    for session_id, session in run(stored()).items():
        ids = [event.id for event in session.events]
        assert ids == appended[session_id][:-20]
        assert session.events == [event_of(n) for n in range(len(ids))]
