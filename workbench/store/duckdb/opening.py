"""Opening a store: file and journal are brought together, or it is said what is missing.

In: a path. Out: an open database, an open journal, and the changes that the database doesn't hold yet. Nothing
acknowledged is ever skipped in silence: where journal and file don't meet, `StoreCorruptError` names the
changes and their sessions; with `accept_loss` what is left is opened, and what is damaged is set aside.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from workbench.errors import StoreCorruptError, StoreError
from workbench.store.duckdb.codec import text_of_column
from workbench.store.duckdb.database import Database, Row, wal_path
from workbench.store.duckdb.journal import (
    Contents,
    Damage,
    Head,
    Journal,
    Line,
    Mark,
    RawLine,
    damaged_before,
    journal_path,
    lines_above,
    parsed,
    read_journal,
)

logger = logging.getLogger(__name__)

_MAX_NAMED = 5


class Opened(NamedTuple):
    """An open store, and what its database has still to take in."""

    database: Database
    journal: Journal
    lines: Sequence[Line]
    losses: tuple[str, ...]
    """What is missing or damaged, where that was accepted."""


class _Plan(NamedTuple):
    """What is to be replayed, and whether the journal can go on being used."""

    lines: Sequence[Line]
    contents: Contents | None
    losses: tuple[str, ...] = ()


def open_store(path: Path, *, now_ns: int, accept_loss: bool) -> Opened:
    """Open or create a store file with its journal; the caller holds the lock.

    Raises:
        StoreCorruptError: something acknowledged is missing or damaged.
        StoreVersionError: made by a newer release.
        StoreLockedError: another program has the file open.
    """
    log = journal_path(path)
    if not path.exists():
        _create(path, log, now_ns=now_ns, accept_loss=accept_loss)
    database = Database(path, now_ns=now_ns)
    try:
        if database.set_aside is not None:
            logger.warning("%s: the log was unreadable and is kept as %s", path, database.set_aside.name)
        mark = database.progress()
        try:
            plan = _plan(database, log, mark, accept_loss=accept_loss)
        except StoreCorruptError as error:
            if not accept_loss:
                raise
            logger.warning("%s; going on without it", error)
            plan = _Plan((), None, (str(error),))
        journal = _journal(database, log, mark, plan, now_ns=now_ns)
        return Opened(database, journal, plan.lines, plan.losses)
    except BaseException:
        database.close()
        raise


def _create(path: Path, log: Path, *, now_ns: int, accept_loss: bool) -> None:
    """A new store: first its journal, then its file, so that a file without a journal is always a loss."""
    if not path.parent.is_dir():
        raise StoreError(f"{path}: there is no folder {path.parent}", hint="create it first")
    if log.exists():
        # Either creating it was cut short, or the file is gone; a journal from the beginning holds everything.
        head = read_journal(log).head
        if head.mark.sequence > 0 and not accept_loss:
            raise StoreCorruptError(
                f"{path}: is missing, and its journal begins after change {head.mark.sequence}",
                path=path,
                part=f"changes 1 to {head.mark.sequence}",
                hint="bring the file back; accept_loss=True begins anew",
            )
    else:
        head = Journal.create(log, str(uuid4()), Mark(0, ""))
    wal = wal_path(path)
    if wal.exists():
        wal.replace(wal.with_name(f"{wal.name}.broken-{now_ns}"))
    Database.create(path, head.store_id, now_ns=now_ns)


def _plan(database: Database, log: Path, mark: Mark, *, accept_loss: bool) -> _Plan:
    contents = read_journal(log)
    head = contents.head
    if head.store_id != database.store_id():
        raise StoreCorruptError(f"{log}: is the journal of another store", path=log, part="journal")
    if head.mark.sequence > mark.sequence:
        raise _loss(
            database,
            mark.sequence + 1,
            head.mark.sequence,
            "the file is older than its journal: changes {} are in neither",
            [],
        )
    if contents.last_sequence < mark.sequence:
        raise _loss(
            database,
            contents.last_sequence + 1,
            mark.sequence,
            "the journal ends too early: changes {} aren't in it, and later ones may be lost",
            [row_key(row) for row in database.sessions_since(contents.last_sequence)],
        )
    if n_bad := damaged_before(contents, mark):
        logger.warning("%s: %d lines are damaged; the database holds what they said", log, n_bad)
    lines, damage = lines_above(contents, mark)
    if damage is None:
        return _Plan(lines, contents)
    error = _loss(
        database,
        damage.first,
        damage.last,
        "changes {} of the journal are damaged",
        _sessions_in(database, lines, damage),
    )
    if not accept_loss:
        raise error
    logger.warning("%s; going on without them", error)
    return _Plan(lines, None, (str(error),))


def _journal(database: Database, log: Path, mark: Mark, plan: _Plan, *, now_ns: int) -> Journal:
    end = Mark(plan.lines[-1].sequence, plan.lines[-1].hash) if plan.lines else mark
    if plan.contents is not None:
        return Journal(log, plan.contents.head, end, plan.contents.n_bytes)
    if log.exists():
        log.replace(log.with_name(f"{log.name}.broken-{now_ns}"))
    # What is to be replayed stands in the old journal only; until it is applied, losing the process would lose it
    # a second time, but it is set aside, not gone.
    head = Journal.create(log, database.store_id(), end)
    return Journal(log, Head(head.store_id, end), end, log.stat().st_size)


def row_key(row: Row) -> str:
    """`app/user/session` of a row of `session_states`."""
    return "/".join(text_of_column(part) for part in row[1:4])


def _sessions_in(database: Database, lines: Sequence[Line], damage: Damage) -> list[str]:
    """Sessions that damaged lines speak of, as far as they can still be read."""
    names: dict[int, str] = {}
    numbers: list[int] = []
    for line in [*lines, *filter(None, map(_guess, damage.raw))]:
        payload = line.payload
        number = payload.get("n")
        if not isinstance(number, int):
            continue
        if line.kind == "create":
            names[number] = "/".join(str(payload.get(part, "?")) for part in "aus")
        if line.sequence >= damage.first:
            numbers.append(number)
    wanted = list(dict.fromkeys(numbers))
    names |= {row[0]: row_key(row) for row in database.sessions_by_number(wanted)}
    return [names[number] for number in wanted if number in names]


def _guess(raw: RawLine) -> Line | None:
    try:
        line = parsed(raw)
    except (ValueError, RecursionError):
        return None
    payload: object = line.payload
    return line if isinstance(payload, dict) else None


def _loss(database: Database, first: int, last: int, what: str, sessions: Sequence[str]) -> StoreCorruptError:
    span = f"{first} to {last}" if last > first else str(first)
    named = ", ".join(repr(name) for name in sessions[:_MAX_NAMED])
    more = ", ..." if len(sessions) > _MAX_NAMED else ""
    text = f"{database.path}: " + what.format(span) + (f" (sessions {named}{more})" if named else "")
    return StoreCorruptError(
        text,
        path=database.path,
        part=f"changes {span}",
        hint="accept_loss=True opens what is left, `workbench store copy FILE TARGET --accept-loss` saves it",
    )
