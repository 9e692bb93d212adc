"""What can be done with a store file as a whole: check it, copy it, compact it, bring it up to date.

In: paths. Out: a report, a file. `check` and `copy` work beside an open store and never hold it up: they read
the file as of its last checkpoint together with the journal, which has everything since; `vacuum` and `migrate`
need the file to themselves.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb

from workbench.clock import SystemClock
from workbench.errors import StoreCorruptError, StoreError, WorkbenchError
from workbench.store.duckdb.child import DEFAULT_TIMEOUT_S, ChildError, call_apart
from workbench.store.duckdb.codec import event_of, json_value, summary_of, text_of_column
from workbench.store.duckdb.database import Database, closed_connection
from workbench.store.duckdb.journal import damaged_before, journal_path, read_journal
from workbench.store.duckdb.schema import migrate_tables
from workbench.store.duckdb.store import DuckDBStore
from workbench.store.tables import check_is_duckdb, translated

# DuckDB keeps two headers that take turns; every checkpoint writes one of them.
_HEADER_BYTES = 3 * 4096
_ATTEMPTS = 20
_BLOCK_BYTES = 1 << 20
_MAX_PROBLEMS = 100

_COUNTS = """
    SELECT count(*) FILTER (deleted_ns = 0), count(*) FILTER (deleted_ns <> 0), coalesce(sum(n_events), 0)
    FROM session_states"""
_COUNT_SUMMARIES = "SELECT count(*) FROM session_summaries"
_COUNT_EVENTS = "SELECT count(*) FROM session_events"
_TWICE = """
    SELECT app_name, user_id, session_id, count(*) FROM session_states WHERE deleted_ns = 0
    GROUP BY ALL HAVING count(*) > 1 ORDER BY ALL"""
_GAPS = """
    SELECT s.app_name, s.user_id, s.session_id, s.n_events, count(DISTINCT e.position), count(e.position),
        coalesce(min(e.position), 0), coalesce(max(e.position), -1)
    FROM session_states s LEFT JOIN session_events e USING (session_no)
    GROUP BY s.session_no, s.app_name, s.user_id, s.session_id, s.n_events
    HAVING count(DISTINCT e.position) <> count(e.position)
        OR coalesce(max(e.position), s.n_events - 1) <> s.n_events - 1
        OR (count(e.position) > 0 AND count(e.position) <> s.n_events - min(e.position))
        OR (count(e.position) = 0 AND s.n_events > 0)
    ORDER BY s.session_no"""
_ORPHANS = """
    SELECT DISTINCT e.session_no, e.session_id FROM session_events e ANTI JOIN session_states s USING (session_no)
    ORDER BY ALL"""
_EVENT_ROWS = "SELECT session_id, position, event, exact FROM session_events ORDER BY session_no, position"
_SUMMARY_ROWS = "SELECT session_no, session_id, filter_key, summary, exact FROM session_summaries ORDER BY ALL"

_ATTACH = "ATTACH ? AS source (READ_ONLY)"
_LIVE = "session_no IN (SELECT session_no FROM source.session_states WHERE deleted_ns = 0)"
_REWRITE = (
    "INSERT INTO store_info SELECT * FROM source.store_info",
    "DELETE FROM progress",
    "INSERT INTO progress SELECT * FROM source.progress",
    "INSERT INTO session_states SELECT * FROM source.session_states WHERE deleted_ns = 0 ORDER BY session_no",
    f"INSERT INTO session_events SELECT * FROM source.session_events WHERE {_LIVE} ORDER BY session_no, position",  # noqa: S608 - constants
    f"INSERT INTO session_summaries SELECT * FROM source.session_summaries WHERE {_LIVE} ORDER BY session_no",  # noqa: S608
    "INSERT INTO app_states SELECT * FROM source.app_states",
    "INSERT INTO user_states SELECT * FROM source.user_states",
)


@dataclass(frozen=True, slots=True)
class StoreReport:
    """What `check` found; `problems` empty = sound."""

    path: Path
    version: int = 0
    n_sessions: int = 0
    n_deleted_sessions: int = 0
    n_events: int = 0
    n_summaries: int = 0
    sequence: int = 0
    """The last acknowledged change."""
    n_waiting_changes: int = 0
    """Changes that were in the journal only."""
    settings: tuple[tuple[str, str], ...] = ()
    """The settings under which the engine ran (SEC-02)."""
    problems: tuple[str, ...] = ()
    losses: tuple[str, ...] = ()
    """What is missing from the figures above, where that was accepted; problems too."""

    @property
    def is_sound(self) -> bool:
        """Nothing is missing and nothing is damaged."""
        return not self.problems


# --- check -------------------------------------------------------------------------------------------


def check(
    path: str | Path, *, in_child: bool = True, accept_loss: bool = False, timeout_s: float = DEFAULT_TIMEOUT_S
) -> StoreReport:
    """Everything that can be wrong with a store, open or closed; changes nothing.

    Args:
        accept_loss: Of a damaged store, report on what is left of it.
        in_child: Read the file in a process of its own with bounded memory: a database file from somewhere else is
            more like a program than like a document (SEC-03).
        timeout_s: Seconds that this process may take.
    Raises:
        StoreError: there is no such file, it is no DuckDB file, or it can't be copied.
    """
    path = Path(path).absolute()
    check_is_duckdb(path)
    with TemporaryDirectory(prefix="workbench-check-") as folder:
        twin = Path(folder) / "copy.duckdb"
        try:
            snapshot(path, twin, accept_loss=accept_loss)
        except StoreCorruptError as error:
            return StoreReport(path, problems=(str(error),))
        arguments: dict[str, Any] = {"path": str(twin), "accept_loss": accept_loss}
        try:
            facts = (
                call_apart(facts_of_copy, arguments, timeout_s=timeout_s) if in_child else facts_of_copy(**arguments)
            )
        except ChildError as error:
            return StoreReport(path, problems=(str(error),))
        for name in ("problems", "losses"):
            facts[name] = tuple(text.replace(str(twin), str(path)) for text in facts[name])
        facts["settings"] = tuple((name, value) for name, value in facts["settings"])
        return StoreReport(**{**facts, "path": path})


def facts_of_copy(path: str, *, accept_loss: bool) -> dict[str, Any]:
    """The fields of the report on a file that may be changed."""
    twin = Path(path)
    try:
        report = _check_copy(twin, accept_loss=accept_loss)
    except WorkbenchError as error:
        report = StoreReport(twin, problems=(str(error),))
    return {**asdict(report), "path": ""}


def _check_copy(twin: Path, *, accept_loss: bool) -> StoreReport:
    clock = SystemClock()
    database = Database(twin, now_ns=clock.now_ns())
    n_bad = n_waiting = 0
    try:
        version = database.version_found
        mark = database.progress()
        with _accepted(accept_loss):
            contents = read_journal(journal_path(twin))
            n_bad = damaged_before(contents, mark)
            n_waiting = contents.last_sequence - mark.sequence
    finally:
        database.close()
    problems = [f"{n_bad} lines of the journal are damaged; the file holds what they said"] if n_bad else []
    store = DuckDBStore(twin, accept_loss=accept_loss)
    problems.extend(store.losses)
    store.close_now()
    database = Database(twin, now_ns=clock.now_ns())
    try:
        with database.reading() as connection:
            problems.extend(_faults(connection))
            n_sessions, n_deleted, _ = connection.execute(_COUNTS).fetchall()[0]
            n_events = connection.execute(_COUNT_EVENTS).fetchall()[0][0]
            n_summaries = connection.execute(_COUNT_SUMMARIES).fetchall()[0][0]
        return StoreReport(
            twin,
            version=version,
            n_sessions=n_sessions,
            n_deleted_sessions=n_deleted,
            n_events=n_events,
            n_summaries=n_summaries,
            sequence=database.progress().sequence,
            n_waiting_changes=max(n_waiting, 0),
            settings=tuple(sorted(database.settings().items())),
            problems=tuple(problems),
            losses=store.losses,
        )
    finally:
        database.close()


@contextmanager
def _accepted(accept_loss: bool) -> Iterator[None]:
    """Go on without what is damaged; the store that is opened next says so."""
    try:
        yield
    except StoreCorruptError:
        if not accept_loss:
            raise


def _faults(connection: duckdb.DuckDBPyConnection) -> Iterator[str]:
    """Rows that contradict each other or can't be read; at most a hundred."""
    for n, text in enumerate(_all_faults(connection)):
        if n == _MAX_PROBLEMS:
            yield "and more"
            return
        yield text


def _all_faults(connection: duckdb.DuckDBPyConnection) -> Iterator[str]:
    for *key, n in connection.execute(_TWICE).fetchall():
        yield f"session {_name(key)} is there {n} times"
    for app, user, session, n_events, n_different, n_there, first, last in connection.execute(_GAPS).fetchall():
        found = f"{n_there} rows, {n_different} different, from {first} to {last}"
        yield f"session {_name((app, user, session))} has {n_events} events, but its rows are not: {found}"
    for number, session in connection.execute(_ORPHANS).fetchall():
        yield f"events of session {text_of_column(session)!r} (number {number}) have no session"
    cursor = connection.execute(_EVENT_ROWS)
    while rows := cursor.fetchmany(10_000):
        for session, position, text, exact in rows:
            try:
                event_of(json_value(text, exact))
            except (ValueError, KeyError, TypeError, AttributeError):
                yield f"event {position} of session {text_of_column(session)!r} can't be read"
    for number, session, filter_key, text, exact in connection.execute(_SUMMARY_ROWS).fetchall():
        name = f"summary {text_of_column(filter_key)!r} of session {text_of_column(session)!r}"
        try:
            summary_of(json_value(text, exact))
        except (ValueError, KeyError, TypeError, AttributeError):
            yield f"{name} of number {number} can't be read"


def _name(key: object) -> str:
    return repr("/".join(map(text_of_column, key)))  # type: ignore[call-overload]


# --- copy --------------------------------------------------------------------------------------------


def copy(path: str | Path, target: str | Path, *, accept_loss: bool = False) -> tuple[str, ...]:
    """A whole, closed store at `target` that holds everything acknowledged when the copy began.

    Args:
        accept_loss: Copy what is left of a damaged store, which itself stays as it is.
    Returns:
        What is missing from the copy; nothing unless `accept_loss`.
    Raises:
        StoreError: `target` exists, or the file changes faster than it can be copied.
        StoreCorruptError: the store is damaged.
    """
    path, target = Path(path).absolute(), Path(target).absolute()
    check_is_duckdb(path)
    for file in (target, journal_path(target)):
        if file.exists():
            raise StoreError(f"{file}: exists already", hint="give a new name")
    with TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as folder:
        twin = Path(folder) / target.name
        snapshot(path, twin, accept_loss=accept_loss)
        try:
            store = DuckDBStore(twin, accept_loss=accept_loss)
        except StoreCorruptError as error:
            text = str(error).replace(str(twin), str(path))
            raise StoreCorruptError(text, path=path, part=error.part, hint=error.hint) from error
        store.close_now()
        journal_path(twin).replace(journal_path(target))
        twin.replace(target)
    return tuple(text.replace(str(twin), str(path)) for text in store.losses)


def snapshot(path: Path, twin: Path, *, accept_loss: bool = False) -> None:
    """The file as of its last checkpoint, and a journal that reaches back at least to there.

    Raises:
        StoreCorruptError: there is no journal, and that isn't accepted.
        StoreError: the file changes faster than it can be copied.
    """
    log = journal_path(path)
    for _ in range(_ATTEMPTS):
        before = _headers(path)
        _copy_file(path, twin)
        if log.exists():
            _copy_file(log, journal_path(twin))
        elif not accept_loss:
            raise StoreCorruptError(
                f"{log}: the journal is missing",
                path=path,
                part="journal",
                hint="bring it back; --accept-loss goes on with what the file holds",
            )
        # The journal is only cut after a checkpoint, and a checkpoint never writes over what the last one needs
        # before its own header stands: the same headers before and after mean that both copies fit.
        if _headers(path) == before:
            return
    raise StoreError(f"{path}: changes faster than it can be copied", hint="try again")


def _headers(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_HEADER_BYTES)


def _copy_file(source: Path, target: Path) -> None:
    with source.open("rb") as file, target.open("wb") as copied:
        shutil.copyfileobj(file, copied, _BLOCK_BYTES)


# --- vacuum and migrate ------------------------------------------------------------------------------


def vacuum(path: str | Path, *, accept_loss: bool = False) -> tuple[int, int, tuple[str, ...]]:
    """Write the file anew without deleted sessions and gaps; its bytes before and after, and what is missing.

    Args:
        accept_loss: Go on with what is left of a damaged store.
    Raises:
        StoreLockedError: somebody has it open.
    """
    path = Path(path).absolute()
    check_is_duckdb(path)
    before = path.stat().st_size
    store = DuckDBStore(path, accept_loss=accept_loss)
    store.close_now(then=lambda: _rewrite(path))
    return before, path.stat().st_size, store.losses


def _rewrite(path: Path) -> None:
    temporary = path.with_name(path.name + ".new")
    temporary.unlink(missing_ok=True)
    with translated(path):
        connection = closed_connection(temporary, attach=(_ATTACH, path))
        try:
            migrate_tables(connection, now_ns=SystemClock().now_ns(), version=0)
            connection.execute("BEGIN")
            for statement in _REWRITE:
                connection.execute(statement)
            connection.execute("COMMIT")
            connection.execute("CHECKPOINT")
        finally:
            connection.close()
    temporary.replace(path)


def migrate(path: str | Path, *, accept_loss: bool = False) -> tuple[int, int, tuple[str, ...]]:
    """Bring a file to the newest schema; the version before and after, and what is missing.

    Opening a store does the same.

    Args:
        accept_loss: Go on with what is left of a damaged store.
    Raises:
        StoreVersionError: made by a newer release.
    """
    path = Path(path).absolute()
    check_is_duckdb(path)
    store = DuckDBStore(path, accept_loss=accept_loss)
    store.close_now()
    return *store.schema_versions, store.losses
