"""The DuckDB file itself: a closed connection, batches in, rows out.

In: batches of changes with the number of the last one. Out: rows as tuples, texts as the codec knows them.
A batch is one transaction that also moves `progress`, so the file always says exactly which changes it holds.
One thread writes, another reads through a cursor of its own (M9, M10). All statements are constants with bound
parameters (SEC-01); every connection is shut off from files, network and Python (SEC-02).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

import duckdb

from workbench.errors import StoreCorruptError, StoreError
from workbench.session.types import SessionKey, UserKey
from workbench.store.duckdb.codec import column_text, text_of_column
from workbench.store.duckdb.journal import Mark
from workbench.store.duckdb.schema import migrate_tables, stored_version
from workbench.store.tables import check_is_duckdb, translated

Row = tuple[Any, ...]

MEMORY_LIMIT = "256MB"
TEMPORARY_LIMIT = "1GB"
_CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "threads": "1",
    "memory_limit": MEMORY_LIMIT,
    "max_temp_directory_size": TEMPORARY_LIMIT,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
    "allow_unsigned_extensions": False,
    "python_enable_replacements": False,
}
_NO_FILES = "SET enable_external_access = false"
_LOCK = "SET lock_configuration = true"
SHOWN_SETTINGS = (
    "enable_external_access",
    "autoinstall_known_extensions",
    "autoload_known_extensions",
    "allow_community_extensions",
    "allow_unsigned_extensions",
    "python_enable_replacements",
    "memory_limit",
    "threads",
    "temp_directory",
    "max_temp_directory_size",
    "lock_configuration",
)

_PROGRESS = "SELECT sequence, hash FROM progress"
_SET_PROGRESS = "UPDATE progress SET sequence = ?, hash = ?"
_INFO = "SELECT value FROM store_info WHERE name = ?"
_SET_INFO = "INSERT INTO store_info VALUES (?, ?)"
_SETTINGS = "SELECT name, value FROM duckdb_settings() WHERE name IN (SELECT unnest(?::VARCHAR[])) ORDER BY name"

_COUNT_LIVE = "SELECT count(*) FROM session_states WHERE deleted_ns = 0"
_LIVE_KEYS = "SELECT app_name, user_id, session_id FROM session_states WHERE deleted_ns = 0"
_LAST_NUMBER = "SELECT coalesce(max(session_no), 0) FROM session_states"
_SESSION_COLUMNS = (
    "SELECT session_no, app_name, user_id, session_id, state, n_events, created_ns, updated_ns, expires_ns, sequence "
    "FROM session_states WHERE deleted_ns = 0"
)
_SESSION = _SESSION_COLUMNS + " AND session_id = ? AND user_id = ? AND app_name = ?"
_SESSIONS_OF_USER = _SESSION_COLUMNS + " AND user_id = ? AND app_name = ?"
_SESSIONS_BY_NUMBER = _SESSION_COLUMNS + " AND session_no IN (SELECT unnest(?::BIGINT[]))"
_SESSIONS_SINCE = _SESSION_COLUMNS + " AND sequence > ? ORDER BY session_no LIMIT 20"
_EXPIRED = _SESSION_COLUMNS + " AND expires_ns > 0 AND expires_ns <= ?"
_SUMMARIES = (
    "SELECT session_no, filter_key, summary, exact FROM session_summaries "
    "WHERE session_no IN (SELECT unnest(?::BIGINT[]))"
)
_EVENTS = (
    "SELECT position, event, exact FROM session_events "
    "WHERE session_no = ? AND position >= ? AND position < ? ORDER BY position"
)
_POSITION = "SELECT max(position) FROM session_events WHERE session_no = ? AND event_id = ? AND position < ?"
_APP_STATE = "SELECT state_key, value, expires_ns FROM app_states WHERE app_name = ?"
_USER_STATE = "SELECT state_key, value, expires_ns FROM user_states WHERE app_name = ? AND user_id = ?"
_EXPIRED_APPS = "SELECT DISTINCT app_name FROM app_states WHERE expires_ns > 0 AND expires_ns <= ?"
_EXPIRED_USERS = "SELECT DISTINCT app_name, user_id FROM user_states WHERE expires_ns > 0 AND expires_ns <= ?"

_DROP_SESSION_ROWS = "DELETE FROM session_states WHERE session_no IN (SELECT unnest(?::BIGINT[]))"
_DROP_EVENTS = "DELETE FROM session_events WHERE session_no IN (SELECT unnest(?::BIGINT[]))"
_DROP_SUMMARIES = "DELETE FROM session_summaries WHERE session_no IN (SELECT unnest(?::BIGINT[]))"
_DROP_SUMMARY_ROWS = """
    DELETE FROM session_summaries AS old USING (SELECT unnest(?::BIGINT[]) AS number, unnest(?::VARCHAR[]) AS key) AS gone
    WHERE old.session_no = gone.number AND old.filter_key = gone.key"""
_DROP_APPS = "DELETE FROM app_states WHERE app_name IN (SELECT unnest(?::VARCHAR[]))"
_DROP_USERS = """
    DELETE FROM user_states AS old USING (SELECT unnest(?::VARCHAR[]) AS app, unnest(?::VARCHAR[]) AS id) AS gone
    WHERE old.app_name = gone.app AND old.user_id = gone.id"""


@dataclass(slots=True)
class Batch:
    """What one transaction changes: final rows, not steps; `mark` is the last change in it."""

    mark: Mark
    sessions: list[Row] = field(default_factory=list)
    """Whole rows of `session_states`, replacing those with the same number."""
    events: list[Row] = field(default_factory=list)
    summaries: list[Row] = field(default_factory=list)
    removed: list[int] = field(default_factory=list)
    """Numbers of sessions whose rows go."""
    apps: list[str] = field(default_factory=list)
    """Applications, in column form, whose rows of `app_states` are replaced by `app_rows`."""
    app_rows: list[Row] = field(default_factory=list)
    users: list[tuple[str, str]] = field(default_factory=list)
    user_rows: list[Row] = field(default_factory=list)


def wal_path(path: Path) -> Path:
    """DuckDB's write-ahead log of a file."""
    return path.with_name(path.name + ".wal")


class Database:
    """An open store file. Writing calls belong to one thread, reading calls to one (other) thread.

    Raises:
        StoreCorruptError: not a store, or damaged.
        StoreLockedError: another process holds it.
        StoreVersionError: made by a newer release.
    """

    def __init__(self, path: Path, *, now_ns: int) -> None:
        check_is_duckdb(path)
        self.path = path
        self.set_aside: Path | None = None
        """Where an unreadable log was moved to, if there was one."""
        self._reading = Lock()
        self._is_down = False
        self._connect(now_ns)
        try:
            with translated(path):
                self.version_found = stored_version(self._writes, path)
                self.version = migrate_tables(self._writes, now_ns=now_ns, version=self.version_found)
        except BaseException:
            self.close()
            raise

    @staticmethod
    def create(path: Path, store_id: str, *, now_ns: int) -> None:
        """A new file with empty tables; it appears whole or not at all."""
        temporary = path.with_name(path.name + ".new")
        temporary.unlink(missing_ok=True)
        wal_path(temporary).unlink(missing_ok=True)
        with translated(path):
            connection = closed_connection(temporary)
            try:
                migrate_tables(connection, now_ns=now_ns, version=0)
                connection.execute(_SET_INFO, ["id", store_id])
                connection.execute("CHECKPOINT")
            finally:
                connection.close()
        temporary.replace(path)

    def _connect(self, now_ns: int) -> None:
        """Open the file; a log that can't be read is moved away, never deleted (consequence 5)."""
        wal = wal_path(self.path)
        had_wal = wal.exists()
        try:
            with translated(self.path):
                self._writes = closed_connection(self.path)
        except StoreCorruptError:
            if not had_wal:
                raise
            aside = wal.with_name(f"{wal.name}.broken-{now_ns}")
            wal.replace(aside)
            try:
                with translated(self.path):
                    self._writes = closed_connection(self.path)
            except StoreError:
                aside.replace(wal)  # the log wasn't the culprit
                raise
            self.set_aside = aside
        self._reads = self._writes.cursor()

    def reconnect(self) -> None:
        """Start the engine anew after an error that it may not survive (M7)."""
        with self._reading:
            self._is_down = True
            self.close()
            with translated(self.path):
                self._writes = closed_connection(self.path)
                self._reads = self._writes.cursor()
            self._is_down = False

    def close(self) -> None:
        """Close both connections; DuckDB checkpoints when it can."""
        for connection in (getattr(self, "_reads", None), self._writes):
            if connection is not None:
                with suppress(duckdb.Error):  # an engine that has failed; the journal has what matters
                    connection.close()

    # --- writing -------------------------------------------------------------------------------------

    def apply(self, batch: Batch) -> None:
        """All changes of a batch and its mark, or nothing."""
        with translated(self.path):
            connection = self._writes
            connection.execute("BEGIN")
            try:
                self._apply(connection, batch)
                connection.execute(_SET_PROGRESS, [batch.mark.sequence, batch.mark.hash])
                connection.execute("COMMIT")
            except BaseException:
                with suppress(duckdb.Error):  # a failed commit has ended the transaction already
                    connection.execute("ROLLBACK")
                raise

    @staticmethod
    def _apply(connection: duckdb.DuckDBPyConnection, batch: Batch) -> None:
        if batch.sessions:
            connection.execute(_DROP_SESSION_ROWS, [[row[0] for row in batch.sessions]])
            _insert(connection, "session_states", batch.sessions)
        if batch.events:
            _insert(connection, "session_events", batch.events)
        if batch.summaries:
            keys = [[row[0] for row in batch.summaries], [row[4] for row in batch.summaries]]
            connection.execute(_DROP_SUMMARY_ROWS, keys)
            _insert(connection, "session_summaries", batch.summaries)
        if batch.removed:
            for statement in (_DROP_SESSION_ROWS, _DROP_EVENTS, _DROP_SUMMARIES):
                connection.execute(statement, [batch.removed])
        if batch.apps:
            connection.execute(_DROP_APPS, [batch.apps])
            _insert(connection, "app_states", batch.app_rows)
        if batch.users:
            connection.execute(_DROP_USERS, [[app for app, _ in batch.users], [user for _, user in batch.users]])
            _insert(connection, "user_states", batch.user_rows)

    def checkpoint(self) -> None:
        """Move everything from the log into the file; DuckDB refuses while anybody reads, so reads wait."""
        with self._reading, translated(self.path):
            self._writes.execute("CHECKPOINT")

    # --- reading -------------------------------------------------------------------------------------

    def _rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        with self._reading, translated(self.path):
            if self._is_down:
                raise StoreError(f"{self.path}: the engine can't be started", hint="free some space and try again")
            return self._reads.execute(sql, list(parameters)).fetchall()

    def progress(self) -> Mark:
        """The last change that the file holds."""
        rows = self._rows(_PROGRESS)
        if len(rows) != 1:
            raise StoreCorruptError(f"{self.path}: doesn't say which changes it holds", path=self.path, part="progress")
        return Mark(*rows[0])

    def store_id(self) -> str:
        """The name that file and journal share."""
        rows = self._rows(_INFO, ["id"])
        return str(rows[0][0]) if rows else ""

    def settings(self) -> dict[str, str]:
        """The settings that keep the engine closed."""
        return {name: str(value) for name, value in self._rows(_SETTINGS, [list(SHOWN_SETTINGS)])}

    def last_number(self) -> int:
        """The highest session number given so far."""
        return int(self._rows(_LAST_NUMBER)[0][0])

    def live_keys(self, limit: int) -> list[SessionKey] | None:
        """The keys of all sessions; None when there are more than `limit`."""
        if self._rows(_COUNT_LIVE)[0][0] > limit:
            return None
        return [SessionKey(*map(text_of_column, row)) for row in self._rows(_LIVE_KEYS)]

    def session(self, key: SessionKey) -> list[Row]:
        """The row of one session, or none."""
        return self._rows(_SESSION, [column_text(part) for part in (key.session_id, key.user_id, key.app_name)])

    def sessions_of(self, user: UserKey) -> list[Row]:
        """The rows of a user's sessions."""
        return self._rows(_SESSIONS_OF_USER, [column_text(user.user_id), column_text(user.app_name)])

    def sessions_by_number(self, numbers: Sequence[int]) -> list[Row]:
        """The rows with these numbers."""
        return self._rows(_SESSIONS_BY_NUMBER, [list(numbers)])

    def sessions_since(self, sequence: int) -> list[Row]:
        """Some rows that were changed after a change."""
        return self._rows(_SESSIONS_SINCE, [sequence])

    def expired(self, now_ns: int) -> list[Row]:
        """The rows of sessions that are over."""
        return self._rows(_EXPIRED, [now_ns])

    def summaries(self, numbers: Sequence[int]) -> list[Row]:
        """`(number, filter key, text, exact)` of these sessions."""
        return self._rows(_SUMMARIES, [list(numbers)])

    def events(self, number: int, start: int, end: int) -> list[Row]:
        """`(position, text, exact)` of the positions from `start` up to but without `end`."""
        return self._rows(_EVENTS, [number, start, end])

    def position(self, number: int, event_id: str, end: int) -> int | None:
        """The last position before `end` with this event id."""
        found: int | None = self._rows(_POSITION, [number, column_text(event_id), end])[0][0]
        return found

    def app_state(self, app_name: str) -> list[Row]:
        """`(key, value, expiry)` of an application."""
        return self._rows(_APP_STATE, [column_text(app_name)])

    def user_state(self, user: UserKey) -> list[Row]:
        """`(key, value, expiry)` of a user."""
        return self._rows(_USER_STATE, [column_text(user.app_name), column_text(user.user_id)])

    def expired_states(self, now_ns: int) -> tuple[list[str], list[UserKey]]:
        """Applications and users whose state is over."""
        apps = [text_of_column(row[0]) for row in self._rows(_EXPIRED_APPS, [now_ns])]
        users = [UserKey(*map(text_of_column, row)) for row in self._rows(_EXPIRED_USERS, [now_ns])]
        return apps, users

    @contextmanager
    def reading(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """The reading connection, for `maintenance`."""
        with translated(self.path):
            yield self._reads


def closed_connection(path: Path, *, attach: tuple[str, Path] | None = None) -> duckdb.DuckDBPyConnection:
    """A connection that can do nothing but keep this one file, and read the one that `attach` brings in."""
    connection = duckdb.connect(str(path), config={**_CONFIG, "temp_directory": f"{path}.tmp"})
    try:
        if attach is not None:
            connection.execute(attach[0], [str(attach[1])])
        connection.execute(_NO_FILES)
        connection.execute(_LOCK)
    except BaseException:
        connection.close()
        raise
    return connection


def _insert(connection: duckdb.DuckDBPyConnection, table: str, rows: Sequence[Row]) -> None:
    """Many rows at once: ten to thirty times as fast as a statement each."""
    if rows:
        appender = connection.appender(table)
        appender.append_rows(rows)
        appender.flush()
