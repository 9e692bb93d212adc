"""`LiveStore`: what is in memory, what waits for the database, and the way back; the machinery below `DuckDBStore`.

In: changes that are in the journal, reads. Out: batches for the writer's thread, and sessions brought into
memory. What the database hasn't taken in yet stays in memory, with the sessions used last; everything else is
read when it is asked for. So a session that isn't in memory is complete in the database, and a read never has
to merge two truths.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from workbench.clock import Clock
from workbench.errors import (
    SessionNotFoundError,
    StoreClosedError,
    StoreCorruptError,
    StoreError,
)
from workbench.session.types import Event, Session, SessionKey, State, Summary, UserKey
from workbench.store.duckdb.codec import (
    JsonText,
    column_text,
    event_of,
    json_text,
    json_value,
    state_from_column,
    state_of,
    summary_of,
    text_of_column,
)
from workbench.store.duckdb.database import Batch, Row
from workbench.store.duckdb.entries import (
    Entry,
    EventRow,
    StateRow,
    Waiting,
    session_from,
    session_row,
    state_row,
    state_rows,
    summary_row,
    user_of,
)
from workbench.store.duckdb.journal import Line, Mark
from workbench.store.duckdb.lock import FileLock
from workbench.store.duckdb.opening import open_store

logger = logging.getLogger(__name__)

T = TypeVar("T")

BATCH_CHANGES = 512
"""Changes that wait before a batch goes to the database: each batch costs as much as some hundred rows."""
FIRST_BATCH_CHANGES = 32
"""The first batch after opening; each is twice as large as the one before, so short work is soon in the file."""
MAX_WAITING_CHANGES = 16_384
"""With more than these, writes wait for the database: memory is bounded, and so is the time to open."""
MAX_CACHED_EVENTS = 50_000
MAX_CACHED_SESSIONS = 10_000
MAX_KNOWN_KEYS = 50_000
"""Up to so many session keys are kept in memory, so that a new session needs no look at the database."""
CUT_BYTES = 8 << 20
"""Length of the journal after which a checkpoint lets it begin anew."""


@dataclass(slots=True)
class _Flight:
    """A batch on its way, with what it was made of, in case it fails."""

    future: Future[None]
    mark: Mark
    waiting: Waiting
    summaries: list[tuple[Entry, set[str]]]


class LiveStore:
    """An open file with its journal, and the part of its content that is in memory."""

    def __init__(
        self,
        path: Path,
        *,
        folder: TemporaryDirectory[str] | None,
        is_synced: bool,
        soft_delete: bool,
        accept_loss: bool,
        clock: Clock,
    ) -> None:
        self.path = path
        self._folder = folder
        """Goes with the store."""
        self._is_synced = is_synced
        self._soft_delete = soft_delete
        self._clock = clock
        self._pid = os.getpid()
        self._is_closed = False
        self._entries: OrderedDict[SessionKey, Entry] = OrderedDict()
        self._by_user: dict[UserKey, dict[str, Entry]] = {}
        self._complete: set[UserKey] = set()
        """Users whose sessions are all in memory."""
        self._gone: dict[int, int] = {}
        """Number of a deleted session -> change that deleted it; a read that is under way may still bring it."""
        self._apps: dict[str, StateRow] = {}
        self._users: OrderedDict[UserKey, StateRow] = OrderedDict()
        self._n_events = 0
        self._n_reading = 0
        self._waiting = Waiting()
        self._flight: _Flight | None = None
        self._send_at = min(FIRST_BATCH_CHANGES, BATCH_CHANGES)
        self._failure: StoreError | None = None
        self.losses: tuple[str, ...] = ()
        """What was missing or damaged when the store was opened with `accept_loss`."""
        self._needs_reconnect = False
        self._stored_sequence = 0
        """Up to here events are in the database for certain; what a repeated batch brings again is left out."""
        self._writer = ThreadPoolExecutor(1, "store-writer")
        self._reader = ThreadPoolExecutor(1, "store-reader")
        self._syncer = ThreadPoolExecutor(1, "store-syncer")
        self._sync: Future[None] | None = None
        self._lock = FileLock(self.path)
        try:
            self._open(accept_loss=accept_loss)
        except BaseException:
            self._lock.release()
            raise

    # --- opening and closing -------------------------------------------------------------------------

    def _open(self, *, accept_loss: bool) -> None:
        opened = open_store(self.path, now_ns=self._clock.now_ns(), accept_loss=accept_loss)
        self._database, self._journal, self.losses = opened.database, opened.journal, opened.losses
        try:
            mark = self._database.progress()
            self._applied = mark.sequence
            self._next_number = self._database.last_number() + 1
            keys = self._database.live_keys(MAX_KNOWN_KEYS)
            self._known: set[SessionKey] | None = None if keys is None else set(keys)
            self._known_users = {UserKey(key.app_name, key.user_id) for key in keys or ()}
            for line in opened.lines:
                self._replay(line)
                if self._waiting.n_changes >= BATCH_CHANGES:
                    self._apply_now(Mark(line.sequence, line.hash))
            if opened.lines:
                self._apply_now(self._journal.end)
            if self._journal.end.sequence > mark.sequence or self._database.set_aside is not None:
                self._checkpoint(self._journal.end)
        except BaseException:
            self._journal.close()
            self._database.close()
            raise

    def _apply_now(self, mark: Mark) -> None:
        """A batch in this thread; only while nobody else knows the store."""
        flight = self._flight_of(self._waiting, mark)
        self._waiting = Waiting()
        flight()
        self._applied = mark.sequence
        self._evict()

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreClosedError(f"{self.path}: the store is closed", hint="open it again")
        if os.getpid() != self._pid:
            raise StoreClosedError(
                f"{self.path}: the store belongs to process {self._pid}, which this one was forked from",
                hint="open it in one process only, or start workers with spawn",
            )

    async def flush(self) -> None:
        """Wait until the database holds everything acknowledged so far.

        Raises:
            StoreFullError: there is no room for it; it stays safe in the journal.
        """
        self._check_open()
        await self._drain()

    async def _drain(self) -> None:
        while self._flight is not None or self._waiting.n_changes:
            await self._one_batch()

    async def _one_batch(self) -> None:
        """Wait until the batch that is under way, or else the next one, has come to its end."""
        if self._flight is None:
            self._send()
        flight = self._flight
        assert flight is not None
        await _end_of(flight.future)
        if self._flight is flight:  # else another task has waited for the same one
            self._collect()
        if self._failure is not None:
            raise self._failure

    async def close(self) -> None:
        """Bring everything into the database, make a checkpoint, let go of the file; may be called again."""
        if self._is_closed or os.getpid() != self._pid:
            return
        self._is_closed = True
        try:
            await self._drain()
            await _end_of(self._writer.submit(self._checkpoint, self._journal.end))
        finally:
            self._release()

    def close_now(self, *, then: Callable[[], None] | None = None) -> None:
        """The same without an event loop; `then` runs while the file is closed, but nobody else may open it."""
        if self._is_closed or os.getpid() != self._pid:
            return
        self._is_closed = True
        try:
            while self._flight is not None or self._waiting.n_changes:
                if self._flight is None:
                    self._send()
                assert self._flight is not None
                self._flight.future.exception()
                self._collect()
                if self._failure is not None:
                    raise self._failure
            self._checkpoint(self._journal.end)
        except BaseException:
            then = None
            raise
        finally:
            self._release(then)

    def _release(self, then: Callable[[], None] | None = None) -> None:
        self._writer.shutdown()
        self._reader.shutdown()
        self._syncer.shutdown()
        self._database.close()
        self._journal.close()
        try:
            if then is not None:
                then()
        finally:
            self._lock.release()
            if self._folder is not None:
                self._folder.cleanup()

    @property
    def schema_versions(self) -> tuple[int, int]:
        """The version that the file had when it was opened, and the one it has now."""
        return self._database.version_found, self._database.version

    # --- reading from the database -------------------------------------------------------------------

    async def _read(self, work: Callable[..., T], *args: Any) -> T:
        """Run a read in the reader's thread; what it may find is kept in memory meanwhile."""
        self._check_open()
        self._n_reading += 1
        try:
            return await asyncio.wrap_future(self._reader.submit(work, *args))
        finally:
            self._n_reading -= 1

    async def _find(self, key: SessionKey) -> Entry | None:
        """The session, expired or not, or None."""
        entry = self._entries.get(key)
        if entry is None:
            self._check_open()
            if self._is_unknown(key):
                return None
            self._adopt(await self._read(self._read_sessions, self._database.session, key))
            self._check_open()
            entry = self._entries.get(key)
            self._evict(keep=entry)
        else:
            self._entries.move_to_end(key)
        return None if entry is None or entry.is_deleted else entry

    def _is_unknown(self, key: SessionKey) -> bool:
        if self._known is not None:
            return key not in self._known
        return UserKey(key.app_name, key.user_id) in self._complete

    async def _live(self, key: SessionKey, now_ns: int) -> Entry:
        self._check_open()
        return checked(await self._find(key), key, now_ns)

    def _read_sessions(self, query: Callable[..., list[Row]], *args: Any) -> list[Entry]:
        """Sessions with their summaries, without events."""
        rows = query(*args)
        entries = {}
        for (
            number,
            app_name,
            user_id,
            session_id,
            state,
            n_events,
            created_ns,
            updated_ns,
            expires_ns,
            sequence,
        ) in rows:
            session = Session(
                app_name=text_of_column(app_name),
                user_id=text_of_column(user_id),
                id=text_of_column(session_id),
                state=self._decoded(state_from_column, state, f"the state of session {session_id!r}"),
                created_ns=created_ns,
                updated_ns=updated_ns,
            )
            session.first_position = n_events
            entries[number] = Entry(number, session, expires_ns, sequence)
        for number, filter_key, text, exact in self._database.summaries(list(entries)) if entries else ():
            summaries = entries[number].session.summaries
            what = f"a summary of session {entries[number].session.id!r}"
            summaries[text_of_column(filter_key)] = self._decoded(
                lambda pair: summary_of(json_value(*pair)), (text, exact), what
            )
        return list(entries.values())

    def _decoded(self, decode: Callable[[Any], T], value: Any, what: str) -> T:
        try:
            return decode(value)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._unreadable(what) from error

    def _unreadable(self, what: str) -> StoreCorruptError:
        text = f"{self.path}: {what} can't be read"
        return StoreCorruptError(text, path=self.path, part=what, hint="`workbench store check` tells more")

    def _adopt(self, entries: Iterable[Entry]) -> None:
        """Take sessions from the database into memory, unless memory knows better."""
        for entry in entries:
            if entry.session.key not in self._entries and entry.number not in self._gone:
                self._put(entry)

    def _put(self, entry: Entry) -> None:
        session = entry.session
        self._entries[session.key] = entry
        self._by_user.setdefault(UserKey(session.app_name, session.user_id), {})[session.id] = entry

    async def _fill(self, entry: Entry, start: int) -> None:
        """Bring the events from position `start` on into memory."""
        session = entry.session
        while session.first_position > start and not entry.is_deleted:
            end = session.first_position
            events = await self._read(self._read_events, entry.number, session.id, start, end)
            if session.first_position == end:  # else somebody else was quicker
                session.add_oldest(events)
                self._n_events += len(events)
                self._evict(keep=entry)

    def _read_events(self, number: int, session_id: str, start: int, end: int) -> list[Event]:
        rows = self._database.events(number, start, end)
        if [row[0] for row in rows] != list(range(start, end)):
            there = {row[0] for row in rows}
            missing = next((i for i in range(start, end) if i not in there), start)
            what = f"event {missing} of session {session_id!r}"
            raise StoreCorruptError(
                f"{self.path}: {what} is missing or there twice",
                path=self.path,
                part=what,
                hint="`workbench store check` tells more",
            )
        events = []
        for position, text, exact in rows:
            try:
                events.append(event_of(json_value(text, exact)))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise self._unreadable(f"event {position} of session {session_id!r}") from error
        return events

    async def _app_row(self, app_name: str) -> StateRow:
        self._check_open()
        row = self._apps.get(app_name)
        if row is None:
            found = state_row(await self._read(self._database.app_state, app_name))
            row = self._apps.setdefault(app_name, found)
        return row

    async def _user_row(self, user: UserKey) -> StateRow:
        self._check_open()
        row = self._users.get(user)
        if row is None:
            found = state_row(await self._read(self._database.user_state, user))
            row = self._users.setdefault(user, found)
            self._evict()
        else:
            self._users.move_to_end(user)
        return row

    # --- writing: what every change goes through -----------------------------------------------------

    async def _room(self) -> None:
        """Before a change: wait when the database is far behind."""
        self._check_open()
        if self._flight is not None and self._flight.future.done():
            self._collect()
        while self._waiting.n_changes >= MAX_WAITING_CHANGES:
            await self._one_batch()
            self._check_open()

    async def _confirmed(self) -> None:
        """After a change: wait for the disk, if that is promised; all who wrote before it begins share one wait.

        Raises:
            StoreFullError: it refused; the store has to be opened again.
        """
        if not self._is_synced:
            return
        sequence = self._journal.end.sequence
        while self._journal.synced < sequence:
            if self._sync is None or self._sync.done():
                try:
                    self._sync = self._syncer.submit(self._journal.sync)
                except RuntimeError as error:  # whoever closed the store was cancelled
                    raise StoreClosedError(
                        f"{self.path}: the store was closed before the disk had confirmed the change"
                    ) from error
            sync = self._sync  # it may have begun before the change was written: then another one follows
            await _end_of(sync)
            sync.result()

    def _changed(self) -> None:
        """After a change: send a batch when there is enough for one."""
        waiting = self._waiting
        waiting.n_changes += 1
        if waiting.n_changes >= self._send_at:
            if self._flight is not None:
                if not self._flight.future.done():
                    return
                self._collect()
            if self._waiting.n_changes >= self._send_at:
                self._send()

    def _send(self) -> None:
        waiting, mark = self._waiting, self._journal.end
        summaries = [(entry, entry.changed_summaries) for entry in waiting.entries.values() if entry.changed_summaries]
        work = self._flight_of(waiting, mark)
        self._waiting = Waiting()
        self._send_at = min(2 * self._send_at, BATCH_CHANGES)
        self._flight = _Flight(self._writer.submit(work), mark, waiting, summaries)

    def _flight_of(self, waiting: Waiting, mark: Mark) -> Callable[[], None]:
        """What the writer does: rows that may change are made now, the others in its thread."""
        batch = Batch(mark)
        for entry in waiting.entries.values():
            if entry.is_deleted and not self._soft_delete:
                batch.removed.append(entry.number)
                continue
            batch.sessions.append(session_row(entry))
            batch.summaries.extend(summary_row(entry, key) for key in entry.changed_summaries)
            entry.changed_summaries = set()
        for app_name in waiting.apps:
            name = column_text(app_name)
            batch.apps.append(name)
            batch.app_rows.extend(state_rows((name,), self._apps[app_name]))
        for user in waiting.users:
            names = (column_text(user.app_name), column_text(user.user_id))
            batch.users.append(names)
            batch.user_rows.extend(state_rows(names, self._users[user]))

        def work() -> None:
            if self._needs_reconnect:
                self._revive()
            removed = set(batch.removed)
            batch.events = [
                row.columns()
                for row in waiting.events
                if row.entry.number not in removed and row.sequence > self._stored_sequence
            ]
            if self._is_synced:
                self._journal.sync()  # the file must not be ahead of its journal after a power cut
            try:
                self._database.apply(batch)
            except BaseException:
                self._needs_reconnect = True
                with suppress(StoreError):
                    self._revive()
                if self._stored_sequence < mark.sequence:
                    raise
            if self._journal.n_bytes > CUT_BYTES:
                self._checkpoint(mark)

        return work

    def _revive(self) -> None:
        """Start the engine anew after a failed batch, and see how far it came: a commit may have been one after all."""
        self._database.reconnect()
        self._stored_sequence = self._database.progress().sequence
        self._needs_reconnect = False

    def _checkpoint(self, mark: Mark) -> None:
        """Let the database absorb its log, then the journal begin anew; failing only leaves both longer."""
        try:
            self._database.checkpoint()
            self._journal.cut(mark)
        except (StoreError, OSError) as error:
            logger.warning("%s: no checkpoint now: %s", self.path, error)

    def _collect(self) -> None:
        """Take note of how a batch ended."""
        flight = self._flight
        assert flight is not None
        self._flight = None
        error = flight.future.exception()
        if error is None:
            self._applied = flight.mark.sequence
            self._failure = None
            self._evict()
            return
        self._waiting = flight.waiting.before(self._waiting)
        for entry, keys in flight.summaries:
            entry.changed_summaries |= keys
        self._send_at = self._waiting.n_changes + BATCH_CHANGES  # not at every change from now on
        self._failure = error if isinstance(error, StoreError) else StoreError(f"{self.path}: a batch failed: {error}")
        logger.warning("a batch couldn't be stored (%s); it is safe in the journal and will be tried again", error)

    def _evict(self, keep: Entry | None = None) -> None:
        """Let go of what the database holds and wasn't used for longest."""
        if self._n_reading:
            return
        if self._gone:
            for number in [number for number, sequence in self._gone.items() if sequence <= self._applied]:
                del self._gone[number]
        if self._n_events > MAX_CACHED_EVENTS or len(self._entries) > MAX_CACHED_SESSIONS:
            for key in list(self._entries):
                if self._n_events <= MAX_CACHED_EVENTS and len(self._entries) <= MAX_CACHED_SESSIONS:
                    break
                entry = self._entries[key]
                if entry is not keep and entry.sequence <= self._applied:
                    self._forget(key, entry)
            if self._n_events > MAX_CACHED_EVENTS:
                self._shorten(keep)
        while len(self._users) > MAX_CACHED_SESSIONS:
            user, row = next(iter(self._users.items()))
            if row.sequence > self._applied:
                break
            del self._users[user]

    def _shorten(self, keep: Entry | None) -> None:
        """Let go of the old events of long sessions that are being written."""
        waiting = [self._waiting] if self._flight is None else [self._waiting, self._flight.waiting]
        n_kept = max(MAX_CACHED_EVENTS // 2, sum(len(one.events) for one in waiting))
        for entry in self._entries.values():
            session = entry.session
            if entry is not keep and len(session.events) > n_kept:
                self._n_events -= len(session.events) - n_kept
                session.drop_oldest(len(session.events) - n_kept)
                session.derived = {}  # its folds would hold the events

    def _forget(self, key: SessionKey, entry: Entry) -> None:
        user = UserKey(key.app_name, key.user_id)
        del self._entries[key]
        self._n_events -= len(entry.session.events)
        sessions = self._by_user[user]
        sessions.pop(key.session_id, None)
        if not sessions:
            del self._by_user[user]
        if not entry.is_deleted:
            self._complete.discard(user)

    # --- writing: the changes themselves, the same when they are made and when they are replayed -----

    def _touch(self, entry: Entry, sequence: int) -> None:
        entry.sequence = sequence
        self._waiting.entries[entry.number] = entry

    def _do_create(self, sequence: int, number: int, session: Session, expires_ns: int) -> Entry:
        entry = Entry(number, session, expires_ns, sequence)
        self._next_number = max(self._next_number, number + 1)
        user = UserKey(session.app_name, session.user_id)
        if self._known is not None:
            self._known.add(session.key)
            if user not in self._known_users:
                self._known_users.add(user)
                self._complete.add(user)
        entry.changed_summaries.update(session.summaries)
        self._put(entry)
        self._touch(entry, sequence)
        return entry

    def _do_append(
        self, entry: Entry, sequence: int, event: Event | None, text: JsonText | None, delta: State, updated_ns: int
    ) -> None:
        session = entry.session
        if event is not None and text is not None:
            self._waiting.events.append(EventRow(entry, session.end_position, event, updated_ns, text, sequence))
            session.append(event)
            self._n_events += 1
        if delta:
            session.state.update(delta)
        session.updated_ns = updated_ns
        self._touch(entry, sequence)

    def _queue_events(self, entry: Entry, texts: Sequence[JsonText]) -> None:
        """Events that a session was created with."""
        session = entry.session
        for position, (event, text) in enumerate(zip(session.events, texts, strict=True), session.first_position):
            self._waiting.events.append(EventRow(entry, position, event, session.updated_ns, text, entry.sequence))
        self._n_events += len(texts)

    def _do_summary(self, entry: Entry, sequence: int, filter_key: str, summary: Summary) -> None:
        entry.session.summaries[filter_key] = summary
        entry.changed_summaries.add(filter_key)
        self._touch(entry, sequence)

    def _do_delete(self, entry: Entry, sequence: int, deleted_ns: int) -> None:
        entry.is_deleted, entry.deleted_ns = True, deleted_ns
        session = entry.session
        self._n_events -= len(session.events)
        session.drop_oldest(len(session.events))
        self._gone[entry.number] = sequence
        if self._known is not None:
            self._known.discard(session.key)
        self._touch(entry, sequence)

    def _do_state(self, row: StateRow, sequence: int, delta: State, expires_ns: int, now_ns: int) -> None:
        row.values = {**row.visible(now_ns), **delta}
        row.expires_ns = expires_ns
        row.sequence = sequence

    def _replay(self, line: Line) -> None:
        """Make a change that the journal holds and the database doesn't."""
        try:
            self._redo(line.sequence, line.kind, line.payload)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StoreCorruptError(
                f"{self.path}: change {line.sequence} of the journal can't be understood",
                path=self.path,
                part=f"change {line.sequence}",
            ) from error
        self._waiting.n_changes += 1

    def _redo(self, sequence: int, kind: str, payload: dict[str, Any]) -> None:
        if kind in ("app", "user"):
            row = self._app_row_now(payload["a"]) if kind == "app" else self._user_row_now(user_of(payload))
            self._do_state(row, sequence, state_of(payload["d"]), payload["x"], payload["t"])
            self._mark_state(kind, payload)
        elif kind in ("app-key", "user-key"):
            row = self._app_row_now(payload["a"]) if kind == "app-key" else self._user_row_now(user_of(payload))
            row.values.pop(payload["k"], None)
            row.sequence = sequence
            self._mark_state(kind.removesuffix("-key"), payload)
        elif kind == "create":
            if payload.get("o"):
                self._do_delete(self._entry_now(payload["o"]), sequence, payload["c"] or 1)
            session, texts = session_from(payload)
            entry = self._do_create(sequence, payload["n"], session, payload["x"])
            self._queue_events(entry, texts)
        elif kind == "event":
            raw = payload.get("e")
            event, text = (None, None) if raw is None else (event_of(raw), json_text(raw))
            entry = self._entry_now(payload["n"])
            self._do_append(entry, sequence, event, text, state_of(payload.get("d") or {}), payload["u"])
            entry.expires_ns = payload["x"]
        elif kind == "summary":
            self._do_summary(self._entry_now(payload["n"]), sequence, payload["k"], summary_of(payload["v"]))
        elif kind == "delete":
            self._do_delete(self._entry_now(payload["n"]), sequence, payload["t"])
        elif kind == "sweep":
            for number in payload["n"]:
                self._do_delete(self._entry_now(number), sequence, payload["t"])
            for app_name in payload["a"]:
                self._clear_state(self._app_row_now(app_name), sequence)
                self._waiting.apps.add(app_name)
            for app_name, user_id in payload["u"]:
                self._clear_state(self._user_row_now(UserKey(app_name, user_id)), sequence)
                self._waiting.users.add(UserKey(app_name, user_id))
        else:
            raise ValueError(kind)

    def _entry_now(self, number: int) -> Entry:
        """The session with this number, in this thread; only while opening."""
        entry = self._waiting.entries.get(number)
        if entry is None:
            (entry,) = self._read_sessions(self._database.sessions_by_number, [number])
            known = self._entries.get(entry.session.key)
            if known is not None and known.number == number:
                return known
            self._put(entry)
        return entry

    def _app_row_now(self, app_name: str) -> StateRow:
        if app_name not in self._apps:
            self._apps[app_name] = state_row(self._database.app_state(app_name))
        return self._apps[app_name]

    def _user_row_now(self, user: UserKey) -> StateRow:
        if user not in self._users:
            self._users[user] = state_row(self._database.user_state(user))
        return self._users[user]

    def _mark_state(self, kind: str, payload: dict[str, Any]) -> None:
        if kind == "app":
            self._waiting.apps.add(payload["a"])
        else:
            self._waiting.users.add(user_of(payload))

    def _clear_state(self, row: StateRow, sequence: int) -> None:
        row.values, row.expires_ns, row.sequence = {}, 0, sequence


def checked(entry: Entry | None, key: SessionKey, now_ns: int) -> Entry:
    """The session that was found.

    Raises:
        SessionNotFoundError: it wasn't, or it has expired.
    """
    if entry is None or not entry.is_live(now_ns):
        raise SessionNotFoundError(
            f"session {key.session_id!r} doesn't exist", hint="create it first, or it has expired"
        )
    return entry


async def _end_of(future: Future[None]) -> None:
    """Wait for a thread's work, however it ends; being cancelled doesn't cancel it."""
    waiter = asyncio.wrap_future(future)
    waiter.add_done_callback(lambda done: done.cancelled() or done.exception())
    await asyncio.wait([waiter])
