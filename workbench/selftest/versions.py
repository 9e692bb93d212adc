"""Stores of older and newer releases (REL-14).

In: a folder, a number of trials. Out: a tally. One store is kept per schema version, made by that version and
never closed, so that part of it is in the journal only; they lie in the checkout, under `tests/stores`.
"""

from __future__ import annotations

import asyncio
import gzip
import shutil
from pathlib import Path

from workbench.errors import StoreVersionError, WorkbenchError
from workbench.selftest.store_files import KEY, START_NS, event_of, fill, new_store, newer_schema
from workbench.selftest.tally import Tally
from workbench.session.types import Summary, SummaryBoundary, UserKey
from workbench.store.duckdb import journal, schema
from workbench.store.duckdb.journal import Journal, Mark, journal_path
from workbench.store.duckdb.maintenance import check, migrate
from workbench.store.duckdb.store import DuckDBStore

STORES = Path(__file__).resolve().parents[2] / "tests" / "stores"
N_VERSIONS = schema.NEWEST_VERSION


def unpacked(folder: Path, version: int) -> Path:
    """A copy of the kept store of a schema version."""
    path = folder / f"v{version}.duckdb"
    path.write_bytes(gzip.decompress((STORES / f"v{version}.duckdb.gz").read_bytes()))
    shutil.copy(STORES / f"v{version}.duckdb.journal", journal_path(path))
    return path


def kept_stores(folder: Path, *, n: int, seed: int) -> Tally:
    """REL-14: each opens, migrates, is sound, and holds what was put in."""
    del seed
    tally = Tally("kept stores", "not opened", "other content", "unsound")
    for version in range(1, n + 1):
        path = unpacked(folder, version)
        tally.trial(f"version {version}")
        try:
            reached = migrate(path)[:2]
            for problem in asyncio.run(_differences(path)):
                tally.fault("other content", f"version {version}: {problem}")
        except WorkbenchError as error:
            tally.fault("not opened", f"version {version}: {error}")
            continue
        tally.expect(reached == (version, schema.NEWEST_VERSION), "not opened", f"version {version}: {reached}")
        for problem in check(path, in_child=False).problems:
            tally.fault("unsound", f"version {version}: {problem}")
    return tally


async def _differences(path: Path) -> list[str]:
    """What isn't as it was put into the kept stores."""
    store, user = DuckDBStore(path), UserKey("app", "user")
    try:
        session = await store.load(KEY, now_ns=START_NS)
        if session is None:
            return ["the session is missing"]
        last = event_of(5, extensions={"half": "\ud800"}, state_delta={"k": b"\x00\xff"})
        pairs = {
            "events": ([event.id for event in session.events], [f"e{n}" for n in range(6)]),
            "last event": (session.events[-1], last),
            "state": (session.state, {"k": b"\x00\xff"}),
            "summaries": (
                session.summaries,
                {"app/x": Summary("kept", 5, SummaryBoundary("app/x", 5, "e3"), ("topic",))},
            ),
            "sessions": ([one.id for one in await store.list_sessions(user, now_ns=START_NS)], ["s"]),
            "application": (await store.app_state("app", now_ns=START_NS), {"a": b"1"}),
            "user": (await store.user_state(user, now_ns=START_NS), {"u": None}),
        }
        return [f"{name}: {found}" for name, (found, expected) in pairs.items() if found != expected]
    finally:
        await store.close()


def newer_stores(folder: Path, *, n: int, seed: int) -> Tally:
    """REL-14: a file or a journal of a newer release is refused with both versions, and stays as it is."""
    del seed
    tally = Tally("newer stores", "not refused", "changed")
    for part in ("file", "journal")[:n]:
        store = new_store(folder, f"{part}.duckdb")
        asyncio.run(fill(store, 2))
        store.close_now()
        if part == "file":
            with newer_schema():
                migrate(store.path)
        else:
            _make_newer(journal_path(store.path))
        files = (store.path, journal_path(store.path))
        before = [file.read_bytes() for file in files]
        tally.trial(part)
        try:
            DuckDBStore(store.path).close_now()
        except StoreVersionError as error:
            tally.expect(error.found > error.supported, "not refused", f"{part}: {error}")
        else:
            tally.fault("not refused", part)
        tally.expect([file.read_bytes() for file in files] == before, "changed", part)
    return tally


def _make_newer(path: Path) -> None:
    head = journal.read_journal(path).head
    version = journal.FORMAT_VERSION
    journal.FORMAT_VERSION = version + 1
    try:
        Journal.create(path, head.store_id, Mark(head.mark.sequence, head.mark.hash))
    finally:
        journal.FORMAT_VERSION = version
