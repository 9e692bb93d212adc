"""`durability="disk"`: what is acknowledged is on the disk, and nobody else waits for the disk meanwhile."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from workbench.clock import FixedClock
from workbench.errors import StoreClosedError, StoreFullError
from workbench.selftest.store_files import KEY, START_NS, append, create, empty_store, event_of, fill, ids_in, new_store
from workbench.selftest.writers import CancelledAt
from workbench.service.conformance.suite import until
from workbench.service.duckdb import DuckDBSessionService
from workbench.session.types import Session, SessionKey, Summary, UserKey
from workbench.store.duckdb import live
from workbench.store.duckdb.queued import QueuedDuckDBStore
from workbench.store.duckdb.store import DuckDBStore


def run(work: Any) -> Any:
    return asyncio.run(work)


def disk_store(folder: Path) -> DuckDBStore:
    return new_store(folder, durability="disk")


class Disk:
    """A disk that confirms when it is let, and notes which changes it had been given."""

    def __init__(self, store: DuckDBStore) -> None:
        self._journal = store._journal
        self._journal._fsync = self._confirm
        self.may_confirm = threading.Event()
        self.begun: list[int] = []
        self.confirmed = 0

    def _confirm(self, fd: int) -> None:
        given = self._journal.end.sequence
        self.begun.append(given)
        assert self.may_confirm.wait(10)
        os.fsync(fd)
        self.confirmed = given


CHANGES: dict[str, Callable[[DuckDBStore], Awaitable[Any]]] = {
    "create": lambda store: create(store, SessionKey("app", "user", "new")),
    "append": lambda store: append(store, event_of(1)),
    "session state": lambda store: store.update_session_state(
        KEY, {"a": b"1"}, updated_ns=1, expires_ns=0, now_ns=START_NS
    ),
    "summary": lambda store: store.save_summary(KEY, "", Summary("s", 1), now_ns=START_NS),
    "app state": lambda store: store.update_app_state("app", {"b": b"1"}, expires_ns=0, now_ns=START_NS),
    "app key": lambda store: store.delete_app_state("app", "a"),
    "user state": lambda store: store.update_user_state(
        UserKey("app", "user"), {"b": b"1"}, expires_ns=0, now_ns=START_NS
    ),
    "user key": lambda store: store.delete_user_state(UserKey("app", "user"), "a"),
    "delete": lambda store: store.delete(KEY),
    "sweep": lambda store: store.sweep(now_ns=START_NS + 100),
}


def test_a_change_is_acknowledged_once_the_disk_has_it_and_others_go_on_meanwhile(tmp_path: Path) -> None:
    """SUM-STO-11: of each kind; the disk is waited for in a thread, and a read is answered while it works."""

    async def main() -> None:
        store = disk_store(tmp_path)
        await create(store)
        await store.create(
            Session(app_name="app", user_id="user", id="over"), expires_ns=START_NS + 50, now_ns=START_NS
        )
        await store.update_app_state("app", {"a": b"1"}, expires_ns=0, now_ns=START_NS)
        await store.update_user_state(UserKey("app", "user"), {"a": b"1"}, expires_ns=0, now_ns=START_NS)
        await store.flush()
        for kind, make in CHANGES.items():
            disk = Disk(store)
            before = store._journal.end.sequence
            change = asyncio.ensure_future(make(store))
            await until(lambda disk=disk: disk.begun, f"{kind}: waiting for the disk")  # type: ignore[misc]
            await store.load(KEY, now_ns=START_NS)
            assert not change.done(), kind
            assert disk.begun == [store._journal.end.sequence] == [before + 1], kind
            disk.may_confirm.set()
            await change
            assert disk.confirmed == before + 1, kind
        await store.close()

    run(main())


def test_many_changes_share_a_wait_and_none_is_acknowledged_early(tmp_path: Path) -> None:
    """REL-03: forty tasks, three waits at most: the one under way, and one for all who came during it."""

    async def main() -> None:
        store = disk_store(tmp_path)
        keys = [SessionKey("app", "user", f"s{n}") for n in range(40)]
        for key in keys:
            await create(store, key)
        await store.flush()
        disk = Disk(store)
        early: list[int] = []

        async def write(n: int) -> None:
            await asyncio.sleep(n / 20_000)
            work = append(store, event_of(n), keys[n])
            sequence = store._journal.end.sequence + 1  # nothing else runs before it is written
            await work
            if disk.confirmed < sequence:
                early.append(n)

        tasks = [asyncio.create_task(write(n)) for n in range(40)]
        await until(lambda: store._journal.end.sequence >= 80, "eighty changes are written")
        assert not any(task.done() for task in tasks)
        disk.may_confirm.set()
        await asyncio.gather(*tasks)
        assert early == []
        assert len(disk.begun) <= 3
        await store.close()
        assert await ids_in(store.path, keys[7]) == ["e7"]

    run(main())


def test_a_disk_that_refuses_is_told_and_nothing_more_is_acknowledged(tmp_path: Path) -> None:
    """REL-06: what it confirmed before is there after opening again."""

    async def main() -> None:
        store = disk_store(tmp_path)
        await fill(store, 3)
        n_asked = 0

        def refuse(_: int) -> None:
            nonlocal n_asked
            n_asked += 1
            raise OSError(5, "Input/output error")

        store._journal._fsync = refuse
        for n in (3, 4):
            with pytest.raises(StoreFullError, match="didn't confirm") as caught:
                await append(store, event_of(n))
            assert "open it again" in str(caught.value.hint)
        assert n_asked == 1
        with pytest.raises(StoreFullError):
            await store.close()
        found = await ids_in(store.path, durability="disk")
        assert found[:3] == ["e0", "e1", "e2"]
        assert "e4" not in found

    run(main())


def test_who_waits_for_the_disk_of_a_store_that_is_given_up_is_told(tmp_path: Path) -> None:
    """REL-10: the first wait doesn't cover the second change, and there is no other any more."""

    async def main() -> None:
        store = disk_store(tmp_path)
        await create(store)
        await store.flush()
        disk = Disk(store)
        first = asyncio.create_task(append(store, event_of(0)))
        await until(lambda: disk.begun, "waiting for the disk")
        second = asyncio.create_task(append(store, event_of(1)))
        closing = asyncio.create_task(store.close())
        await asyncio.sleep(0.01)
        closing.cancel()
        disk.may_confirm.set()
        results = await asyncio.gather(first, second, closing, return_exceptions=True)
        assert results[0] is None
        assert isinstance(results[1], StoreClosedError) or disk.confirmed >= 3
        assert isinstance(results[2], asyncio.CancelledError)
        assert await ids_in(store.path) == ["e0", "e1"]

    run(main())


def test_the_file_is_never_ahead_of_what_the_disk_has_of_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """REL-02: after a power cut a file with changes that its journal lacks would be refused."""
    monkeypatch.setattr(live, "BATCH_CHANGES", 8)
    monkeypatch.setattr(live, "CUT_BYTES", 2000)

    async def main() -> None:
        store = disk_store(tmp_path)
        disk = Disk(store)
        disk.may_confirm.set()
        apply = store._database.apply
        ahead: list[Any] = []

        def note(batch: Any) -> None:
            if batch.mark.sequence > disk.confirmed:
                ahead.append(batch.mark)
            apply(batch)

        store._database.apply = note  # type: ignore[method-assign]
        await create(store)
        for n in range(0, 60, 3):
            await asyncio.gather(*(append(store, event_of(n + i)) for i in range(3)))
        await store.close()
        assert ahead == []
        assert await ids_in(store.path, durability="disk") == [f"e{n}" for n in range(60)]

    run(main())


def test_a_caller_cancelled_while_the_disk_works_parts_nothing(tmp_path: Path) -> None:
    """REL-10: the live session has the event exactly when the store has it."""

    async def main() -> None:
        path = empty_store(tmp_path)
        service = DuckDBSessionService(path, durability="disk", clock=FixedClock(START_NS))
        live_session = await service.create_session("app", "user", "s")
        await service.append_event(live_session, event_of(0))
        call = CancelledAt(service.append_event(live_session, event_of(1)), 1)

        async def cancelled() -> None:
            await call

        (result,) = await asyncio.gather(asyncio.create_task(cancelled()), return_exceptions=True)
        assert isinstance(result, asyncio.CancelledError)
        await service.append_event(live_session, event_of(2))
        await service.close()
        assert len(asyncio.all_tasks()) == 1
        stored = await ids_in(path)
        assert [event.id for event in live_session.events] == stored
        assert stored == ["e0", "e1", "e2"]

    run(main())


def test_queued_events_are_on_the_disk_before_a_read_that_comes_after_them(tmp_path: Path) -> None:
    """SUM-STO-10: with one wait for all that was queued."""

    async def main() -> None:
        store = QueuedDuckDBStore(empty_store(tmp_path), durability="disk", n_persisters=1)
        await create(store)
        await store.flush()
        disk = Disk(store)
        for n in range(50):
            await append(store, event_of(n))
        assert disk.begun == []
        reading = asyncio.create_task(store.list_events(KEY, now_ns=START_NS))
        await until(lambda: disk.begun, "waiting for the disk")
        assert not reading.done()
        disk.may_confirm.set()
        assert len(await reading) == 50
        assert disk.confirmed == store._journal.end.sequence
        assert len([one for one in disk.begun if one]) <= 3
        await store.close()

    run(main())
