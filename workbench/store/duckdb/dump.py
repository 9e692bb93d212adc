"""The sessions of a store as JSON lines, for whoever reads them as recordings.

In: a store file, open somewhere or closed, and which sessions are wanted. Out: a file of JSON lines: one for a
session, then one per event in stored order, its text as it is stored. The store is copied first and never held
up; the copy is read in a process of its own (SEC-03), which is gone before the first line is looked at.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TextIO

import duckdb

from workbench.clock import SystemClock
from workbench.errors import StoreError
from workbench.store.duckdb.child import DEFAULT_TIMEOUT_S, call_apart
from workbench.store.duckdb.codec import column_text, json_value, summary_of, text_of_column
from workbench.store.duckdb.database import Database
from workbench.store.duckdb.maintenance import snapshot
from workbench.store.duckdb.store import DuckDBStore
from workbench.store.tables import check_is_duckdb

EVENT_START = '{"type":"event",'
"""What stands in place of the brace that a stored event begins with."""
_EVENTS_AT_ONCE = 50_000

# A session is chosen by what its events say, not by when its row was touched.
_SESSIONS = """
    SELECT s.session_no, s.app_name, s.user_id, s.session_id, s.n_events, s.created_ns,
        coalesce(e.n_rows, 0), coalesce(e.n_positions, 0), coalesce(e.first, 0), coalesce(e.last, -1)
    FROM session_states s LEFT JOIN (
        SELECT session_no, count(*) AS n_rows, count(DISTINCT position) AS n_positions, min(position) AS first,
            max(position) AS last, min(time_ns) AS begins_ns, max(time_ns) AS ends_ns
        FROM session_events GROUP BY session_no) e USING (session_no)
    WHERE s.deleted_ns = 0 AND (s.expires_ns <= 0 OR s.expires_ns > ?)
        AND (len(?::VARCHAR[]) = 0 OR s.app_name IN (SELECT unnest(?::VARCHAR[])))
        AND (len(?::VARCHAR[]) = 0 OR s.user_id IN (SELECT unnest(?::VARCHAR[])))
        AND (?::BIGINT IS NULL OR e.ends_ns >= ?::BIGINT)
        AND (?::BIGINT IS NULL OR e.begins_ns < ?::BIGINT)
    ORDER BY s.session_no"""
_EVENTS = """
    SELECT session_no, event, exact FROM session_events WHERE session_no IN (SELECT unnest(?::BIGINT[]))
    ORDER BY session_no, position"""
_SUMMARIES = """
    SELECT session_no, filter_key, summary, exact FROM session_summaries
    WHERE session_no IN (SELECT unnest(?::BIGINT[])) ORDER BY session_no, filter_key"""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which sessions; an empty list and None leave nothing out."""

    apps: Sequence[str] = ()
    users: Sequence[str] = ()
    since_ns: int | None = None
    """Sessions whose last event is at this moment or later."""
    until_ns: int | None = None
    """Sessions whose first event is before this moment."""


@dataclass(frozen=True, slots=True)
class Dump:
    """What was written."""

    n_sessions: int
    n_empty: int
    """Sessions without events, which are left out."""
    problems: tuple[tuple[str, str], ...]
    """Session and what is wrong with it; such a session is left out too."""


def dump_sessions(
    path: Path,
    target: Path,
    wanted: Wanted,
    *,
    head: Mapping[str, Any],
    max_bytes: int,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> Dump:
    """Write the sessions of a store to `target`.

    Args:
        head: Fields that every session line begins with.
        max_bytes: Most that is written.
    Raises:
        StoreError: no store, a damaged one, one that can't be read safely, or one with more than `max_bytes`.
    """
    check_is_duckdb(path)
    with TemporaryDirectory(prefix="workbench-read-") as folder:
        twin = Path(folder) / "copy.duckdb"
        snapshot(path, twin)
        arguments = {
            "twin": str(twin),
            "target": str(target),
            "wanted": {one.name: getattr(wanted, one.name) for one in fields(wanted)},
            "head": dict(head),
            "max_bytes": max_bytes,
        }
        try:
            facts = call_apart(write_sessions, arguments, timeout_s=timeout_s)
        except StoreError as error:
            text = str(error).replace(str(twin), str(path))
            raise StoreError(text if str(path) in text else f"{path}: {text}", hint=error.hint) from error
    problems = tuple((name, text) for name, text in facts["problems"])
    return Dump(facts["n_sessions"], facts["n_empty"], problems)


# --- in the process of its own -----------------------------------------------------------------------


def write_sessions(
    *, twin: str, target: str, wanted: Mapping[str, Any], head: Mapping[str, Any], max_bytes: int
) -> dict[str, Any]:
    """Write the sessions of a file that may be changed; what `Dump` says."""
    now_ns = SystemClock().now_ns()
    DuckDBStore(twin).close_now()  # everything that stood in the journal only is in the file now
    database = Database(Path(twin), now_ns=now_ns)
    try:
        with database.reading() as connection, Path(target).open("w", encoding="utf-8", newline="\n") as file:
            return _written(connection, _Sink(file, max_bytes), Wanted(**wanted), head, now_ns)
    finally:
        database.close()


class _Sink:
    """A file that may only grow so long."""

    def __init__(self, file: TextIO, max_bytes: int) -> None:
        self._file = file
        self._left = self._max_bytes = max_bytes

    def line(self, text: str) -> None:
        self._left -= len(text) + 1  # characters: near enough for a limit
        if self._left < 0:
            raise StoreError(
                f"holds more than {self._max_bytes // 1_000_000} MB of conversations",
                hint="choose some by application, user or time, or raise --max-unpacked-mb",
            )
        self._file.write(text + "\n")


def _written(
    connection: duckdb.DuckDBPyConnection, sink: _Sink, wanted: Wanted, head: Mapping[str, Any], now_ns: int
) -> dict[str, Any]:
    apps, users = [column_text(app) for app in wanted.apps], [column_text(user) for user in wanted.users]
    since, until = wanted.since_ns, wanted.until_ns
    rows = connection.execute(_SESSIONS, [now_ns, apps, apps, users, users, since, since, until, until]).fetchall()
    problems: list[tuple[str, str]] = []
    heads: dict[int, dict[str, Any]] = {}
    sizes: dict[int, int] = {}
    n_empty = 0
    for number, *names, n_events, created_ns, n_rows, n_positions, first, last in rows:
        app_name, user_id, session_id = map(text_of_column, names)
        if n_rows != n_positions or last != n_events - 1 or n_positions != n_events - first:
            problems.append((session_id, f"has {n_events} events, but {n_positions} of them are stored"))
        elif not n_events:
            n_empty += 1
        else:
            heads[number] = {**head, "id": session_id, "app_name": app_name, "user_id": user_id}
            heads[number]["metadata"] = {"created_ns": created_ns}
            sizes[number] = n_rows
    for numbers in _groups(sizes):
        _add_summaries(connection, numbers, heads, problems)
        written = 0
        cursor = connection.execute(_EVENTS, [numbers])
        while batch := cursor.fetchmany(5_000):
            for number, text, exact in batch:
                if number != written:
                    written = number
                    sink.line(json.dumps(heads[number], separators=(",", ":")))
                sink.line(_event_line(text if exact is None else exact.decode("ascii", "replace")))
    return {"n_sessions": len(sizes), "n_empty": n_empty, "problems": problems}


def _groups(sizes: Mapping[int, int]) -> Iterator[list[int]]:
    """Sessions whose events are sorted at once; few enough for the engine's memory."""
    numbers: list[int] = []
    n_events = 0
    for number, size in sizes.items():
        numbers.append(number)
        n_events += size
        if n_events >= _EVENTS_AT_ONCE:
            yield numbers
            numbers, n_events = [], 0
    if numbers:
        yield numbers


def _add_summaries(
    connection: duckdb.DuckDBPyConnection,
    numbers: list[int],
    heads: Mapping[int, dict[str, Any]],
    problems: list[tuple[str, str]],
) -> None:
    """What the service had summarised, beside what the recording says."""
    for number, filter_key, text, exact in connection.execute(_SUMMARIES, [numbers]).fetchall():
        metadata = heads[number]["metadata"]
        key = text_of_column(filter_key)
        try:
            value = json_value(text, exact)
            summary_of(value)
        except (ValueError, KeyError, TypeError, AttributeError):
            problems.append((heads[number]["id"], f"its summary {key!r} can't be read; the rest is"))
        else:
            metadata.setdefault("summaries", {})[key] = value


def _event_line(text: str) -> str:
    """A stored event as a line; a text that is no object makes a line that is none either."""
    one_line = text.replace("\n", " ").replace("\r", " ")
    return EVENT_START + one_line.removeprefix("{")
