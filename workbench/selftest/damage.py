"""Files that are flipped, cut, lost, swapped, or never were stores (REL-05, SEC-03).

In: a folder, a number of trials, a seed. Out: a tally. Every trial damages a fresh copy of what a killed process
left: some changes in the file, some in DuckDB's log, some in the journal only. Allowed is the identical content or
`StoreCorruptError`; everything else is a silent loss.
"""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Callable
from pathlib import Path

from workbench.errors import StoreCorruptError, StoreError, WorkbenchError
from workbench.selftest.operations import seen
from workbench.selftest.store_files import (
    KEY,
    START_NS,
    append,
    as_after_a_crash,
    create,
    event_of,
    fill,
    new_store,
    small_limits,
)
from workbench.selftest.tally import Tally, quiet
from workbench.session.types import SessionKey
from workbench.store.duckdb.database import wal_path
from workbench.store.duckdb.journal import journal_path
from workbench.store.duckdb.store import DuckDBStore
from workbench.store.tables import open_tables

N_EVENTS = 40
IDS = [f"e{n}" for n in range(N_EVENTS)]
_HEADER_BYTES = 3 * 4096

Hurt = Callable[[Path, random.Random], str]
"""Damages the files of a store; says what it did."""


def crashed_store(folder: Path) -> Path:
    """What a process leaves that died: 32 changes in DuckDB's log, 9 more in the journal only."""

    async def main() -> None:
        with small_limits(BATCH_CHANGES=16):
            store = new_store(folder)
            await create(store)
            for n in range(31):
                await append(store, event_of(n))
            await store.flush()
        with small_limits(BATCH_CHANGES=1000):
            store._send_at = 1000
            for n in range(31, N_EVENTS):
                await append(store, event_of(n))
            as_after_a_crash(store.path, folder / "twin")
            await store.close()

    asyncio.run(main())
    return folder / "twin" / "x.duckdb"


async def content_of(path: Path) -> object:
    """Everything in the session that `crashed_store` holds."""
    store = DuckDBStore(path)
    try:
        return seen(await store.load(KEY, now_ns=START_NS))
    finally:
        await store.close()


# --- what is done to the files ------------------------------------------------------------------------


def flip_bit(path: Path, place: int, bit: int) -> None:
    """Turn one bit of a file over."""
    data = bytearray(path.read_bytes())
    data[place] ^= 1 << bit
    path.write_bytes(data)


def flip(path: Path, random_: random.Random) -> str:
    """One bit, in turn in the file's headers, its data, DuckDB's log, the journal."""
    part = random_.randrange(4)
    file = (path, path, wal_path(path), journal_path(path))[part]
    size = file.stat().st_size
    place = (
        random_.randrange(_HEADER_BYTES) if part == 0 else random_.randrange(_HEADER_BYTES if part == 1 else 0, size)
    )
    bit = random_.randrange(8)
    flip_bit(file, place, bit)
    return f"bit {bit} of byte {place} of {file.name}"


def cut_log(path: Path, random_: random.Random) -> str:
    """DuckDB's log ends at a random byte."""
    return _cut(wal_path(path), random_)


def cut_file(path: Path, random_: random.Random) -> str:
    """The file ends at a random byte."""
    return _cut(path, random_)


def _cut(file: Path, random_: random.Random) -> str:
    place = random_.randrange(file.stat().st_size)
    with file.open("r+b") as opened:
        opened.truncate(place)
    return f"{file.name} cut at byte {place}"


def exchange(path: Path, random_: random.Random) -> str:
    """Log or journal missing, random, empty, or another store's."""
    file = random_.choice((wal_path(path), journal_path(path)))
    how = random_.choice(("missing", "random", "empty", "another store's"))
    if how == "missing":
        file.unlink()
    elif how == "random":
        file.write_bytes(random_.randbytes(file.stat().st_size))
    elif how == "empty":
        file.write_bytes(b"")
    else:
        other = path.parent / "other"
        other.mkdir()
        shutil.copy(_part_of(crashed_store(other), file.suffix), file)
        shutil.rmtree(other)
    return f"{file.name} {how}"


def _part_of(path: Path, suffix: str) -> Path:
    return wal_path(path) if suffix == ".wal" else journal_path(path)


# --- and what must come of it -------------------------------------------------------------------------


def damages(folder: Path, hurt: Hurt, unit: str, *, n: int, seed: int) -> Tally:
    """Damage and open `n` times."""
    tally = Tally(unit, "silent losses", "other errors")
    random_ = random.Random(seed)
    base = folder / f"base-{hurt.__name__}"
    base.mkdir()
    path = crashed_store(base)
    expected = _expected(path)
    with quiet():
        for i in range(n):
            copy = base / f"trial{i}"
            shutil.copytree(path.parent, copy)
            what = hurt(copy / path.name, random_)
            try:
                found = asyncio.run(content_of(copy / path.name))
            except StoreCorruptError:
                tally.trial("refused")
            except WorkbenchError as error:
                tally.trial()
                tally.fault("other errors", f"{what}: {type(error).__name__}: {error}")
            else:
                tally.trial("identical")
                tally.expect(found == expected, "silent losses", what)
            shutil.rmtree(copy)
    return tally


def _expected(path: Path) -> object:
    copy = path.parent.parent / "expected"
    shutil.copytree(path.parent, copy)
    return asyncio.run(content_of(copy / path.name))


def flips(folder: Path, *, n: int, seed: int) -> Tally:
    """REL-05, M4."""
    return damages(folder, flip, "bit flips", n=n, seed=seed)


def log_cuts(folder: Path, *, n: int, seed: int) -> Tally:
    """REL-05, M2."""
    return damages(folder, cut_log, "cuts of the log", n=n, seed=seed)


def file_cuts(folder: Path, *, n: int, seed: int) -> Tally:
    """REL-05."""
    return damages(folder, cut_file, "cuts of the file", n=n, seed=seed)


def exchanges(folder: Path, *, n: int, seed: int) -> Tally:
    """REL-05, M3, M5."""
    return damages(folder, exchange, "lost or foreign logs and journals", n=n, seed=seed)


def journal_cuts(folder: Path, *, n: int, seed: int) -> Tally:
    """REL-05: the journal's own end can be lost with nobody to tell; what is left is a beginning, never a mixture."""
    tally = Tally("cuts of the journal", "gaps", "file's own changes lost")
    random_ = random.Random(seed)
    base = folder / "base-journal"
    base.mkdir()
    path = crashed_store(base)
    with quiet():
        for i in range(n):
            copy = base / f"trial{i}"
            shutil.copytree(path.parent, copy)
            what = _cut(journal_path(copy / path.name), random_)
            try:
                store = DuckDBStore(copy / path.name)
            except StoreCorruptError:
                tally.trial("refused")
            else:
                ids = [event.id for event in asyncio.run(store.list_events(KEY, now_ns=START_NS))]
                store.close_now()
                tally.trial("shorter" if len(ids) < N_EVENTS else "identical")
                tally.expect(ids == IDS[: len(ids)], "gaps", what)
                tally.expect(len(ids) >= 31, "file's own changes lost", what)
            shutil.rmtree(copy)
    return tally


# --- other files, bad rows ----------------------------------------------------------------------------

FOREIGN_FILES: dict[str, bytes] = {
    "empty": b"",
    "text": b"plain text, long enough to have a byte at place eight",
    "a SQLite file": b"SQLite format 3\x00" + bytes(100),
    "zero bytes": bytes(20_000),
    "pretends": b"12345678DUCK" + bytes(20_000),
    "a short header": b"12345678DUCK",
}


def foreign_files(folder: Path, *, n: int, seed: int) -> Tally:
    """SEC-03, M6, B38: refused before DuckDB sees them, and left as they are."""
    del seed
    tally = Tally("foreign files", "not refused", "changed")
    folder = folder / "foreign"
    folder.mkdir()
    for name, content in [*FOREIGN_FILES.items(), ("a folder", None), ("another database", None)][:n]:
        path = folder / f"{name}.duckdb"
        if content is not None:
            path.write_bytes(content)
        elif name == "a folder":
            path.mkdir()
        else:
            with open_tables(path, read_only=False) as connection:
                connection.execute("CREATE TABLE t (n INTEGER)")
        before = None if path.is_dir() else path.read_bytes()
        tally.trial()
        try:
            DuckDBStore(path).close_now()
        except StoreCorruptError:
            pass
        except StoreError as error:
            tally.fault("not refused", f"{name}: {error}")
        else:
            tally.fault("not refused", name)
        tally.expect(path.is_dir() or path.read_bytes() == before, "changed", name)
        tally.expect(not list(folder.glob("*.lock")), "changed", f"{name}: a lock stays")
    return tally


BAD_ROWS = (
    "UPDATE session_events SET event = '[1]' WHERE position = 1 AND session_id = 's'",
    "UPDATE session_events SET event = 'null' WHERE position = 1 AND session_id = 's'",
    "UPDATE session_events SET event = '{\"time\": 5}' WHERE position = 1 AND session_id = 's'",
    "DELETE FROM session_events WHERE position = 1 AND session_id = 's'",
)


def bad_rows(folder: Path, *, n: int, seed: int) -> Tally:
    """REL-05: an event that can't be read spoils its own session only, and is named."""
    del seed
    tally = Tally("unreadable rows", "not named", "others spoilt")

    async def main(path: Path, statement: str) -> None:
        other = SessionKey("app", "user", "other")
        store = new_store(path.parent, path.name)
        await fill(store, 3)
        await fill(store, 3, other)
        await store.close()
        with open_tables(path, read_only=False) as connection:
            connection.execute(statement)
        store = DuckDBStore(path)
        try:
            await store.load(KEY, now_ns=START_NS)
            tally.fault("not named", statement)
        except StoreCorruptError as error:
            tally.expect("event 1 of session 's'" in str(error), "not named", f"{statement}: {error}")
        events = await store.list_events(other, now_ns=START_NS)
        tally.expect([event.id for event in events] == ["e0", "e1", "e2"], "others spoilt", statement)
        await append(store, event_of(3))
        await store.close()

    for i, statement in enumerate(BAD_ROWS[:n]):
        asyncio.run(main(folder / f"rows{i}.duckdb", statement))
        tally.trial()
    return tally
