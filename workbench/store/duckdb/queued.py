"""`QueuedDuckDBStore`: appends that return before they are stored (SUM-STO-10).

In and out as in `DuckDBStore`, but `append` only queues. A session's appends go to one of several writers, by its
hash, so they are stored in order. Every other call waits until what its session has queued is stored, so nobody
reads, deletes or summarises behind an append. A process that dies loses what is queued and nothing else: each
writer stores whole changes through the one journal.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from pathlib import Path
from typing import Any, NamedTuple

from workbench.errors import ConfigError, StoreClosedError, StoreError
from workbench.session.types import Event, Session, SessionKey, State, UserKey, fnv1a_32
from workbench.store.duckdb.entries import Append, Entry
from workbench.store.duckdb.live import checked
from workbench.store.duckdb.store import DuckDBStore

logger = logging.getLogger(__name__)

PERSISTERS = 10
BUFFER = 100
"""Appends that may wait per writer; both numbers are the reference's (summary.md section 16.2)."""


def check_persisters(number: Any) -> None:
    """Raise `ConfigError` unless there can be so many writers."""
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise ConfigError.for_field("async_persister_num", number, "a whole number, 1 or more")


class _Queued(NamedTuple):
    key: SessionKey
    change: Append
    now_ns: int


class _Line:
    """What waits for one writer: appends, and the marks of those who wait until an append before them is stored."""

    def __init__(self) -> None:
        self.waiting: deque[_Queued | asyncio.Future[None]] = deque()
        self.room = asyncio.Semaphore(BUFFER)
        self.writer: asyncio.Task[None] | None = None

    @property
    def is_busy(self) -> bool:
        return bool(self.waiting) or (self.writer is not None and not self.writer.done())

    @property
    def n_waiting(self) -> int:
        return sum(isinstance(one, _Queued) for one in self.waiting)


class QueuedDuckDBStore(DuckDBStore):
    """Sessions in a DuckDB file, events stored in the background.

    Args:
        path: As all others, of `DuckDBStore`.
        n_persisters: Writers; each has a queue of 100 appends, and whoever finds it full waits.
    """

    def __init__(self, path: str | Path, *, n_persisters: int = PERSISTERS, **options: Any) -> None:
        check_persisters(n_persisters)
        super().__init__(path, **options)
        self._lines = [_Line() for _ in range(n_persisters)]
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_ending = False

    # --- queueing ------------------------------------------------------------------------------------

    async def append(
        self, key: SessionKey, event: Event | None, *, state_delta: State, updated_ns: int, expires_ns: int, now_ns: int
    ) -> None:
        """Queue an event; waits while the writer's queue is full, and a caller cancelled meanwhile has queued nothing.

        Raises:
            SessionNotFoundError: no live session has this key.
            StoreError: the event can't be stored exactly. What goes wrong later is only logged.
        """
        self._check_takes()
        entry = await super()._find(key)
        if entry is None or not entry.is_live(now_ns):
            entry = checked(await self._find(key), key, now_ns)  # what is queued may have prolonged its life
        change = Append.of(event, dict(state_delta), updated_ns=updated_ns, expires_ns=expires_ns)
        self._come_here()
        line = self._lines[entry.session.hash % len(self._lines)]
        await line.room.acquire()
        try:
            self._check_takes()
        except StoreClosedError:
            line.room.release()
            raise
        line.waiting.append(_Queued(key, change, now_ns))
        self._start(line)

    def _check_takes(self) -> None:
        self._check_open()
        if self._is_ending:
            raise StoreClosedError(f"{self.path}: the store is being closed", hint="open it again")

    def _come_here(self) -> None:
        """Take over what another loop has left that ended without `close`."""
        loop = asyncio.get_running_loop()
        if self._loop is loop:
            return
        if self._loop is not None and self._loop.is_running():
            raise StoreError(f"{self.path}: another event loop uses the store", hint="use a store in one loop only")
        self._loop = loop
        old, self._lines = self._lines, [_Line() for _ in self._lines]
        for line, left in zip(self._lines, old, strict=True):
            line.waiting.extend(one for one in left.waiting if isinstance(one, _Queued))
            line.room = asyncio.Semaphore(max(BUFFER - len(line.waiting), 0))
            if line.waiting:
                self._start(line)

    def _start(self, line: _Line) -> None:
        if line.writer is None or line.writer.done():
            line.writer = asyncio.get_running_loop().create_task(self._write(line), name="store-persister")

    # --- writing -------------------------------------------------------------------------------------

    async def _write(self, line: _Line) -> None:
        """Store what waits, until nothing does."""
        while line.waiting:
            one = line.waiting[0]
            if isinstance(one, asyncio.Future):
                await self._confirmed_or_logged()
                line.waiting.popleft()
                if not one.done():
                    one.set_result(None)
                continue
            line.waiting.popleft()
            line.room.release()
            try:
                await self._room()
                self._append(checked(await super()._find(one.key), one.key, one.now_ns), one.change)
            except Exception as error:
                self._log_lost(one.key, error)
            except BaseException as error:  # cancelled, before anything of it was written
                if self._is_ending:
                    self._log_lost(one.key, error)
                else:
                    line.waiting.appendleft(one)
                raise
            if not line.waiting:
                await self._confirmed_or_logged()  # one wait of the disk for all that were written

    async def _confirmed_or_logged(self) -> None:
        try:
            await self._confirmed()
        except StoreError as error:
            logger.warning("%s: events may be lost if the power fails: %s", self.path, error)

    def _log_lost(self, key: SessionKey, error: BaseException) -> None:
        name = f"{key.app_name}/{key.user_id}/{key.session_id}"
        reason = str(error) or type(error).__name__
        logger.error("%s: an event of session %r couldn't be stored: %s", self.path, name, reason)

    async def _all_stored(self, key: SessionKey | None = None) -> None:
        """Wait until everything that is queued by now, for a session or at all, is stored, or logged as lost."""
        if not any(line.is_busy for line in self._lines):
            return
        self._come_here()
        lines = self._lines
        if key is not None:
            session_hash = fnv1a_32(f"{key.app_name}:{key.user_id}:{key.session_id}")
            lines = [lines[session_hash % len(lines)]]
        marks = []
        for line in lines:
            if line.is_busy:
                mark = asyncio.get_running_loop().create_future()
                line.waiting.append(mark)
                self._start(line)
                marks.append(mark)
        if marks:
            await asyncio.wait(marks)

    # --- everything else comes after what is queued ----------------------------------------------------

    async def _find(self, key: SessionKey) -> Entry | None:
        await self._all_stored(key)
        self._check_open()
        return await super()._find(key)

    async def list_sessions(self, user: UserKey, *, now_ns: int) -> list[Session]:
        self._check_open()
        await self._all_stored()
        return await super().list_sessions(user, now_ns=now_ns)

    async def sweep(self, *, now_ns: int) -> int:
        self._check_open()
        await self._all_stored()
        return await super().sweep(now_ns=now_ns)

    async def flush(self) -> None:
        """Wait until the database holds everything that was queued so far, but for what was logged as lost.

        Raises:
            StoreFullError: there is no room for it; it stays safe in the journal.
        """
        self._check_open()
        await self._all_stored()
        await super().flush()

    async def close(self) -> None:
        """Store what is queued, then close; who is cancelled here loses, logged, what isn't stored yet.

        Raises:
            StoreError: another event loop, which runs, has events queued; nothing is closed.
        """
        if self._is_closed or os.getpid() != self._pid:
            return
        self._is_ending = True
        try:
            await self._all_stored()
        except StoreError:
            self._is_ending = False
            raise
        except BaseException:
            self._give_up()
            await super().close()
            raise
        await super().close()

    def _give_up(self) -> None:
        """Nothing more is stored; whoever waits goes on, and is told that the store is closed."""
        if n_lost := sum(line.n_waiting for line in self._lines):
            logger.error("%s: closed before %d queued events were stored", self.path, n_lost)
        for line in self._lines:
            if line.writer is not None:
                line.writer.cancel()
            for one in line.waiting:
                if isinstance(one, asyncio.Future) and not one.done():
                    one.set_result(None)
            line.waiting.clear()
            line.room.release()  # each that it wakes finds the store closed and wakes the next

    def close_now(self, **options: Any) -> None:
        """As in `DuckDBStore`; without an event loop nothing that is queued can be stored.

        Raises:
            StoreError: something is queued; nothing is closed.
        """
        if n_waiting := sum(line.n_waiting for line in self._lines):
            raise StoreError(f"{self.path}: {n_waiting} events are queued", hint="`await store.close()` stores them")
        super().close_now(**options)
