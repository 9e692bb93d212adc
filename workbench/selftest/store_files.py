"""Store files: fresh ones, such as a killed process leaves behind, and what stands in them.

In: folders and paths. Out: paths of closed stores, small events that carry their number, ids read back.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from workbench.model.types import Message, response_of
from workbench.session.types import Event, Session, SessionKey
from workbench.store.duckdb import live, schema
from workbench.store.duckdb.database import wal_path
from workbench.store.duckdb.journal import journal_path
from workbench.store.duckdb.store import DuckDBStore

START_NS = 1_772_000_000 * 10**9
KEY = SessionKey("app", "user", "s")
IMPORT_EVENTS = 12


@cache
def _template() -> tuple[bytes, bytes]:
    """An empty store; making one takes longer than copying it."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "empty.duckdb"
        DuckDBStore(path).close_now()
        return path.read_bytes(), journal_path(path).read_bytes()


def empty_store(folder: Path, name: str = "x.duckdb") -> Path:
    """The path of a new, closed, empty store."""
    path = folder / name
    if not path.exists():
        file, journal = _template()
        path.write_bytes(file)
        journal_path(path).write_bytes(journal)
    return path


def new_store(folder: Path, name: str = "x.duckdb", **options: Any) -> DuckDBStore:
    return DuckDBStore(empty_store(folder, name), **options)


def import_key(n: int) -> SessionKey:
    """Of a session that is stored with all its events at once."""
    return SessionKey("app", "user", f"import {n}")


@contextmanager
def newer_schema() -> Iterator[None]:
    """A release with two more steps: one that adds a column and fills it, one that makes a table from another."""
    newest = schema.NEWEST_VERSION
    steps = (
        schema.Migration(
            newest + 1,
            "one more column",
            (
                "ALTER TABLE session_events ADD COLUMN n_chars BIGINT",
                "UPDATE session_events SET n_chars = length(event_id)",
            ),
        ),
        schema.Migration(
            newest + 2,
            "one more table",
            ("CREATE TABLE lengths AS SELECT session_no, sum(n_chars) AS n_chars FROM session_events GROUP BY ALL",),
        ),
    )
    before = schema.MIGRATIONS
    schema.MIGRATIONS, schema.NEWEST_VERSION = (*before, *steps), newest + 2
    try:
        yield
    finally:
        schema.MIGRATIONS, schema.NEWEST_VERSION = before, newest


@contextmanager
def small_limits(**limits: int) -> Iterator[None]:
    """Other values for the limits of `store.duckdb.live`, so that little work takes every path."""
    before = {name: getattr(live, name) for name in limits}
    try:
        for name, value in limits.items():
            setattr(live, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(live, name, value)


def event_of(n: int, **fields: Any) -> Event:
    """The n-th event, unless `fields` say otherwise."""
    fields.setdefault("response", response_of(Message("user" if n % 2 else "assistant", f"text {n} 汉字")))
    return Event(**{"id": f"e{n}", "author": "user", "time_ns": START_NS + n, "filter_key": "app", **fields})


async def create(store: Any, key: SessionKey = KEY) -> None:
    """An empty session."""
    session = Session(
        app_name=key.app_name, user_id=key.user_id, id=key.session_id, created_ns=START_NS, updated_ns=START_NS
    )
    await store.create(session, expires_ns=0, now_ns=START_NS)


async def append(store: Any, event: Event, key: SessionKey = KEY) -> None:
    """One event at the end of a session."""
    await store.append(key, event, state_delta={}, updated_ns=START_NS + 1, expires_ns=0, now_ns=START_NS)


async def fill(store: Any, n_events: int, key: SessionKey = KEY) -> None:
    """A session with events."""
    await create(store, key)
    for n in range(n_events):
        await append(store, event_of(n), key)


def as_after_a_crash(path: Path, folder: Path, *, with_wal: bool = True) -> Path:
    """The files of an open store as its process would leave them if it died now."""
    folder.mkdir()
    twin = folder / path.name
    shutil.copy(path, twin)
    shutil.copy(journal_path(path), journal_path(twin))
    if with_wal and wal_path(path).exists():
        shutil.copy(wal_path(path), wal_path(twin))
    return twin


async def ids_in(path: Path, key: SessionKey = KEY, **options: Any) -> list[str]:
    """Open a store, read the ids of a session's events, close it."""
    store = DuckDBStore(path, **options)
    try:
        session = await store.load(key, now_ns=START_NS)
        return [] if session is None else [event.id for event in session.events]
    finally:
        await store.close()
