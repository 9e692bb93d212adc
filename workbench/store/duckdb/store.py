"""`DuckDBStore`: the session store whose acknowledged changes survive the process.

In and out as in `store.base`. A change is written to the journal and made in memory; the database gets it
later, in batches, in a thread of its own (`live`), so no write waits for DuckDB. Implements SUM-STO-04 to
-09, -11 and -13; the promises and their tests are reliability.md sections 3 and 5.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from workbench.clock import Clock, SystemClock
from workbench.errors import (
    ConfigError,
    SessionExistsError,
)
from workbench.session.types import Event, Session, SessionKey, State, Summary, UserKey
from workbench.store.base import is_older
from workbench.store.duckdb.codec import (
    check_moment,
    event_text,
    json_ascii,
    json_text,
    state_json,
    summary_json,
)
from workbench.store.duckdb.entries import Append, Entry, create_payload
from workbench.store.duckdb.live import LiveStore

Durability = Literal["process", "disk"]


class DuckDBStore(LiveStore):
    """Sessions in a DuckDB file, exclusively held while this is open.

    Args:
        path: The file, created when it isn't there; `:memory:` = a temporary one.
        event_limit: Newest events that `load` returns, 0 = all; all stay stored (SUM-STO-06).
        durability: `process`: what is acknowledged survives a killed process; `disk`: a power cut too.
        soft_delete: Deleted sessions stay as rows that nobody sees until `maintenance.vacuum` (SUM-STO-09).
        accept_loss: Open a damaged store with what is left of it; `losses` says what is missing.
    Raises:
        StoreLockedError: another process, or another store of this one, has the file.
        StoreCorruptError: not a store, or something acknowledged is missing; says what.
        StoreVersionError: made by a newer release.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        event_limit: int = 0,
        durability: Durability = "process",
        soft_delete: bool = True,
        accept_loss: bool = False,
        clock: Clock | None = None,
    ) -> None:
        if durability not in ("process", "disk"):
            raise ConfigError.for_field("durability", durability, "process, disk")
        if "\0" in str(path):
            raise ConfigError.for_field("path", str(path), "a path, which holds no NUL character")
        folder = None
        if str(path) == ":memory:":
            folder = TemporaryDirectory(prefix="workbench-")
            path = Path(folder.name) / "store.duckdb"
        self._event_limit = event_limit
        super().__init__(
            Path(path).absolute(),
            folder=folder,
            is_synced=durability == "disk",
            soft_delete=soft_delete,
            accept_loss=accept_loss,
            clock=clock if clock is not None else SystemClock(),
        )

    # --- the protocol: sessions ----------------------------------------------------------------------

    async def create(self, session: Session, *, expires_ns: int, now_ns: int) -> None:
        await self._room()
        old = await self._find(session.key)
        if old is not None and old.is_live(now_ns):
            raise SessionExistsError(f"session {session.id!r} exists already", hint="get it, or delete it first")
        copy = session.clone()
        copy.derived = {}
        for moment_ns in (copy.created_ns, copy.updated_ns, expires_ns):
            check_moment(moment_ns)
        number = self._next_number
        texts = [event_text(event) for event in copy.events]
        payload = create_payload(number, copy, texts, expires_ns, 0 if old is None else old.number)
        sequence = self._journal.append("create", payload)
        if old is not None:
            self._do_delete(old, sequence, copy.created_ns or 1)
        entry = self._do_create(sequence, number, copy, expires_ns)
        self._queue_events(entry, texts)
        self._changed()
        await self._confirmed()

    async def load(self, key: SessionKey, *, now_ns: int, newest_events: int = 0) -> Session | None:
        self._check_open()
        entry = await self._find(key)
        if entry is None or not entry.is_live(now_ns):
            return None
        limit = min(filter(None, (newest_events, self._event_limit)), default=0)
        await self._fill(entry, max(entry.session.end_position - limit, 0) if limit else 0)
        if entry.is_deleted:
            return None
        copy = entry.session.clone()
        if limit:
            copy.drop_oldest(len(copy.events) - limit)
        return copy

    async def list_sessions(self, user: UserKey, *, now_ns: int) -> list[Session]:
        self._check_open()
        is_known = self._known is not None and user not in self._known_users
        if user not in self._complete and not is_known:
            self._adopt(await self._read(self._read_sessions, self._database.sessions_of, user))
            self._complete.add(user)
        found = []
        for entry in self._by_user.get(user, {}).values():
            if entry.is_live(now_ns):
                stored = entry.session
                found.append(
                    Session(
                        app_name=stored.app_name,
                        user_id=stored.user_id,
                        id=stored.id,
                        state=dict(stored.state),
                        summaries=dict(stored.summaries),
                        created_ns=stored.created_ns,
                        updated_ns=stored.updated_ns,
                    )
                )
        self._evict()
        return found

    async def delete(self, key: SessionKey) -> None:
        await self._room()
        entry = await self._find(key)
        if entry is None:
            return
        deleted_ns = self._clock.now_ns() or 1
        sequence = self._journal.append("delete", json_ascii({"n": entry.number, "t": deleted_ns}))
        self._do_delete(entry, sequence, deleted_ns)
        self._changed()
        await self._confirmed()

    async def append(
        self, key: SessionKey, event: Event | None, *, state_delta: State, updated_ns: int, expires_ns: int, now_ns: int
    ) -> None:
        await self._room()
        entry = await self._live(key, now_ns)
        self._append(entry, Append.of(event, state_delta, updated_ns=updated_ns, expires_ns=expires_ns))
        await self._confirmed()

    def _append(self, entry: Entry, change: Append) -> None:
        sequence = self._journal.append("event", f'{{"n":{entry.number},{change.payload}')
        self._do_append(entry, sequence, change.event, change.text, change.delta, change.updated_ns)
        entry.expires_ns = change.expires_ns
        self._changed()

    async def list_events(self, key: SessionKey, *, now_ns: int) -> list[Event]:
        entry = await self._live(key, now_ns)
        await self._fill(entry, 0)
        if entry.is_deleted:
            entry = await self._live(key, now_ns)
        return list(entry.session.events)

    async def update_session_state(
        self, key: SessionKey, delta: State, *, updated_ns: int, expires_ns: int, now_ns: int
    ) -> None:
        await self._room()
        entry = await self._live(key, now_ns)
        self._append(entry, Append.of(None, delta, updated_ns=updated_ns, expires_ns=expires_ns))
        await self._confirmed()

    # --- the protocol: summaries ---------------------------------------------------------------------

    async def save_summary(self, key: SessionKey, filter_key: str, summary: Summary, *, now_ns: int) -> bool:
        await self._room()
        while True:
            entry = await self._live(key, now_ns)
            stored = entry.session.summaries.get(filter_key)
            if stored is None:
                break
            positions = await self._positions(entry, summary, stored)
            if entry.is_deleted or entry.session.summaries.get(filter_key) is not stored:
                continue  # things moved while the database was asked
            if is_older(summary, stored, position_of=positions):
                return False
            break
        value = summary_json(summary)
        payload = f'{{"n":{entry.number},"k":{json_ascii(filter_key)},"v":{json_text(value).journal}}}'
        check_moment(summary.updated_ns)
        sequence = self._journal.append("summary", payload)
        self._do_summary(entry, sequence, filter_key, summary)
        self._changed()
        await self._confirmed()
        return True

    async def _positions(self, entry: Entry, *summaries: Summary) -> dict[str, int]:
        """Where the boundaries' events are; only asked for when their times don't decide."""
        boundaries = [boundary for summary in summaries if (boundary := summary.cutoff_boundary()) is not None]
        found: dict[str, int] = {}
        if len({boundary.cutoff_ns for boundary in boundaries}) != 1:
            return found
        session = entry.session
        for event_id in {boundary.last_event_id for boundary in boundaries} - {""}:
            position = session.position_of(event_id)
            if position is None and session.first_position:
                first = session.first_position
                position = await self._read(self._database.position, entry.number, event_id, first)
            if position is not None:
                found[event_id] = position
        return found

    async def load_summaries(self, key: SessionKey, *, now_ns: int) -> dict[str, Summary]:
        self._check_open()
        entry = await self._find(key)
        return dict(entry.session.summaries) if entry is not None and entry.is_live(now_ns) else {}

    # --- the protocol: state of applications and users -----------------------------------------------

    async def app_state(self, app_name: str, *, now_ns: int) -> State:
        return (await self._app_row(app_name)).visible(now_ns)

    async def update_app_state(self, app_name: str, delta: State, *, expires_ns: int, now_ns: int) -> None:
        await self._room()
        check_moment(expires_ns)
        row = await self._app_row(app_name)
        payload = json_ascii({"a": app_name, "d": state_json(delta), "x": expires_ns, "t": now_ns})
        self._do_state(row, self._journal.append("app", payload), delta, expires_ns, now_ns)
        self._waiting.apps.add(app_name)
        self._changed()
        await self._confirmed()

    async def delete_app_state(self, app_name: str, state_key: str) -> None:
        await self._room()
        row = await self._app_row(app_name)
        if state_key in row.values:
            row.sequence = self._journal.append("app-key", json_ascii({"a": app_name, "k": state_key}))
            del row.values[state_key]
            self._waiting.apps.add(app_name)
            self._changed()
            await self._confirmed()

    async def user_state(self, user: UserKey, *, now_ns: int) -> State:
        return (await self._user_row(user)).visible(now_ns)

    async def update_user_state(self, user: UserKey, delta: State, *, expires_ns: int, now_ns: int) -> None:
        await self._room()
        check_moment(expires_ns)
        row = await self._user_row(user)
        payload = json_ascii(
            {"a": user.app_name, "u": user.user_id, "d": state_json(delta), "x": expires_ns, "t": now_ns}
        )
        self._do_state(row, self._journal.append("user", payload), delta, expires_ns, now_ns)
        self._waiting.users.add(user)
        self._changed()
        await self._confirmed()

    async def delete_user_state(self, user: UserKey, state_key: str) -> None:
        await self._room()
        row = await self._user_row(user)
        if state_key in row.values:
            payload = json_ascii({"a": user.app_name, "u": user.user_id, "k": state_key})
            row.sequence = self._journal.append("user-key", payload)
            del row.values[state_key]
            self._waiting.users.add(user)
            self._changed()
            await self._confirmed()

    # --- the protocol: expiry ------------------------------------------------------------------------

    async def sweep(self, *, now_ns: int) -> int:
        await self._room()
        apps, users = await self._read(self._database.expired_states, now_ns)
        for app_name in apps:
            await self._app_row(app_name)
        for user in users:
            await self._user_row(user)
        # Last, so that nothing of it is let go before it is dealt with.
        self._adopt(await self._read(self._read_sessions, self._database.expired, now_ns))
        over = [entry for entry in self._entries.values() if not entry.is_deleted and not entry.is_live(now_ns)]
        over_apps = [app for app, row in self._apps.items() if row.values and not row.visible(now_ns)]
        over_users = [user for user, row in self._users.items() if row.values and not row.visible(now_ns)]
        if over or over_apps or over_users:
            deleted_ns = now_ns or 1
            payload = {
                "n": [entry.number for entry in over],
                "a": over_apps,
                "u": [[user.app_name, user.user_id] for user in over_users],
                "t": deleted_ns,
            }
            sequence = self._journal.append("sweep", json_ascii(payload))
            for entry in over:
                self._do_delete(entry, sequence, deleted_ns)
            for app_name in over_apps:
                self._clear_state(self._apps[app_name], sequence)
            for user in over_users:
                self._clear_state(self._users[user], sequence)
            self._waiting.apps.update(over_apps)
            self._waiting.users.update(over_users)
            self._changed()
            await self._confirmed()
        return len(over)
