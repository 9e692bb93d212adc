"""The journal and the file together: what is acknowledged is there, or its absence is told (REL-05, REL-06)."""

from __future__ import annotations

import asyncio
import logging
import random
import shutil
from pathlib import Path
from typing import Any

import duckdb
import pytest

from workbench.errors import StoreCorruptError, StoreFullError, StoreVersionError
from workbench.selftest import damage, writers
from workbench.selftest.store_files import (
    KEY,
    START_NS,
    append,
    as_after_a_crash,
    create,
    empty_store,
    event_of,
    fill,
    ids_in,
    new_store,
)
from workbench.session.types import Summary, UserKey
from workbench.store.duckdb import live
from workbench.store.duckdb.database import Database, wal_path
from workbench.store.duckdb.journal import (
    Head,
    Journal,
    Mark,
    damaged_before,
    journal_path,
    lines_above,
    read_journal,
)
from workbench.store.duckdb.store import DuckDBStore

ALL = damage.IDS


def run(work: Any) -> Any:
    return asyncio.run(work)


# --- the journal alone -------------------------------------------------------------------------------


def opened(path: Path) -> Journal:
    if not path.exists():
        Journal.create(path, "id", Mark(0, ""))
    contents = read_journal(path)
    lines, damage = lines_above(contents, contents.head.mark)
    assert damage is None
    end = Mark(lines[-1].sequence, lines[-1].hash) if lines else contents.head.mark
    return Journal(path, contents.head, end, contents.n_bytes)


def payloads(path: Path) -> list[int]:
    contents = read_journal(path)
    lines, damage = lines_above(contents, contents.head.mark)
    assert damage is None
    return [line.payload["x"] for line in lines]


@pytest.mark.parametrize("is_synced", [False, True])
def test_lines_come_back_as_written_also_after_cuts(is_synced: bool, tmp_path: Path) -> None:
    path = tmp_path / "j"
    journal = opened(path)
    marks = []
    for n in range(1, 31):
        assert journal.append("event", f'{{"x":{n}}}') == n
        marks.append(journal.end)
        if is_synced:
            journal.sync()
    assert payloads(path) == list(range(1, 31))
    journal.cut(marks[9])
    assert payloads(path) == list(range(11, 31))
    journal.append("event", '{"x":31}')
    if is_synced:
        journal.sync()
    journal.cut(marks[19])
    assert payloads(path) == list(range(21, 32))
    assert journal.n_bytes == path.stat().st_size
    journal.cut(journal.end)
    assert payloads(path) == []
    journal.append("event", '{"x":32}')
    journal.close()
    journal = opened(path)
    assert (journal.append("event", '{"x":33}'), payloads(path)) == (33, [32, 33])
    journal.close()
    assert [file.name for file in tmp_path.iterdir()] == ["j"]


def test_every_flipped_byte_is_noticed_where_it_is_needed_and_only_there(tmp_path: Path) -> None:
    path = tmp_path / "j"
    journal = opened(path)
    marks = [journal.end]
    for n in range(1, 6):
        journal.append("event", f'{{"x":{n}}}')
        marks.append(journal.end)
    journal.close()
    data = path.read_bytes()
    head_end = marks[0].offset
    for place in range(len(data)):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        if place < head_end:
            with pytest.raises((StoreCorruptError, StoreVersionError)):
                read_journal(path)
            continue
        contents = read_journal(path)
        assert lines_above(contents, marks[0])[1] is not None, place
        if place < marks[2].offset - 1:  # before what is needed
            assert contents.last_sequence == 5 or contents.last_sequence in (4, 6)
            lines, damage = lines_above(contents, marks[3])
            assert [line.payload["x"] for line in lines] == [4, 5]
            assert damage is None
            assert damaged_before(contents, marks[3]) > 0


def test_a_torn_last_line_was_never_acknowledged_and_is_written_over(tmp_path: Path) -> None:
    path = tmp_path / "j"
    journal = opened(path)
    journal.append("event", '{"x":1}')
    journal.append("event", '{"x":2}')
    journal.close()
    data = path.read_bytes()
    for n_cut in range(1, len('{"x":2}') + 30):
        path.write_bytes(data[:-n_cut])
        assert payloads(path) == [1]
        journal = opened(path)
        journal.append("event", '{"x":3}')
        journal.close()
        assert payloads(path) == [1, 3]


def test_a_newer_journal_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "j"
    Journal.create(path, "id", Mark(0, ""))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("workbench.store.duckdb.journal.FORMAT_VERSION", 2)
        Journal.create(path, "id", Mark(0, ""))
    with pytest.raises(StoreVersionError, match="journal version 2"):
        read_journal(path)


@pytest.mark.parametrize("n_bytes_written", [0, 1, 20])
def test_a_failed_write_leaves_nothing_behind(n_bytes_written: int, tmp_path: Path) -> None:
    """REL-06."""
    import os

    path = tmp_path / "j"
    head = Journal.create(path, "id", Mark(0, ""))
    journal = Journal(path, Head("id", head.mark), head.mark, path.stat().st_size)

    def fail(fd: int, data: bytes, offset: int) -> int:
        if n_bytes_written and len(data) > n_bytes_written and offset == before:
            return os.pwrite(fd, data[:n_bytes_written], offset)
        raise OSError(28, "No space left on device")

    journal.append("event", '{"x":1}')
    before = path.stat().st_size
    journal._write = fail  # type: ignore[assignment]
    with pytest.raises(StoreFullError, match="No space left"):
        journal.append("event", '{"x":2, "long": "so that it is cut in the middle"}')
    assert path.stat().st_size == before
    journal._write = os.pwrite
    journal.append("event", '{"x":3}')
    assert payloads(path) == [1, 3]
    journal.close()


# --- file and journal --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what a process leaves that died: 32 changes in DuckDB's log, 9 more in the journal only."""
    path = damage.crashed_store(tmp_path_factory.mktemp("crashed"))
    assert wal_path(path).stat().st_size > 100
    assert len(read_journal(journal_path(path)).lines) == 41
    return path.parent


@pytest.fixture
def files(crashed: Path, tmp_path: Path) -> Path:
    """A fresh copy; the path of the store."""
    shutil.copytree(crashed, tmp_path / "store")
    return tmp_path / "store" / "x.duckdb"


def test_what_only_the_journal_holds_is_there_after_opening(files: Path) -> None:
    """REL-02, SUM-STO-05."""
    assert run(ids_in(files)) == ALL
    assert len(read_journal(journal_path(files)).lines) == 0
    assert not wal_path(files).exists()
    assert run(ids_in(files)) == ALL


@pytest.mark.parametrize(
    ("trials", "n"),
    [(damage.flips, 10), (damage.log_cuts, 3), (damage.file_cuts, 2), (damage.exchanges, 5), (damage.journal_cuts, 4)],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_damaged_files_open_with_the_same_content_or_are_refused(trials: Any, n: int, tmp_path: Path) -> None:
    """REL-05, M2 to M5: bare DuckDB opens most of these with fewer rows."""
    tally = trials(tmp_path, n=n, seed=1)
    assert (tally.n, tally.examples) == (n, [])


def test_no_damage_to_duckdbs_log_loses_anything(files: Path) -> None:
    """REL-05, M3: what the log held stands in the journal too."""
    wal_path(files).write_bytes(random.Random(1).randbytes(5000))
    assert run(ids_in(files)) == ALL


def test_a_silent_loss_is_noticed(tmp_path: Path) -> None:
    """REL-05: the comparison is worth something."""

    def lose(path: Path, random_: random.Random) -> str:
        shutil.copy(empty, path)
        shutil.copy(journal_path(empty), journal_path(path))
        wal_path(path).unlink()
        return "an empty store"

    empty = empty_store(tmp_path, "empty.duckdb")
    assert damage.damages(tmp_path, lose, "swaps", n=1, seed=1).faults == {"silent losses": 1, "other errors": 0}


@pytest.mark.parametrize("bit", [0, 7])
def test_an_acknowledged_line_whose_end_is_damaged_is_no_torn_write(bit: int, files: Path) -> None:
    """REL-05: without its line end the last line would look as if it had never been acknowledged."""
    log = journal_path(files)
    damage.flip_bit(log, log.stat().st_size - 1, bit)
    with pytest.raises(StoreCorruptError, match=r"changes? 41 of the journal are damaged"):
        run(ids_in(files))


def test_a_log_that_duckdb_refuses_is_set_aside_and_never_deleted(
    files: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """REL-05, consequence 5 of reliability.md section 3."""
    wal = wal_path(files)
    data = bytearray(wal.read_bytes())
    data[len(data) // 2] ^= 1
    wal.write_bytes(data)
    with pytest.raises(duckdb.Error):
        duckdb.connect(str(files))
    assert run(ids_in(files)) == ALL
    (aside,) = [file for file in files.parent.iterdir() if "wal.broken-" in file.name]
    assert aside.read_bytes() == data
    assert aside.name in caplog.text


def test_a_damaged_file_is_told_and_its_log_stays_where_it_was(files: Path) -> None:
    """REL-05, M4."""
    data = bytearray(files.read_bytes())
    for place in (4096 + 20, 8192 + 20):
        data[place] ^= 1
    files.write_bytes(data)
    log = wal_path(files).read_bytes()
    with pytest.raises(StoreCorruptError):
        run(ids_in(files))
    assert wal_path(files).read_bytes() == log


@pytest.mark.parametrize("seed", range(4))
def test_damage_to_the_journal_is_told_and_names_what_is_lost(
    seed: int, files: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """REL-05: never in silence; where the database has it already, with a warning."""
    random_ = random.Random(seed)
    log = journal_path(files)
    data = log.read_bytes()
    lines = data.splitlines(keepends=True)
    needed_from = len(b"".join(lines[:33]))
    is_needed = bool(seed % 2)
    place = (
        random_.randrange(needed_from, len(data) - 1) if is_needed else random_.randrange(len(lines[0]), needed_from)
    )
    log.write_bytes(data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :])
    if not is_needed:
        with caplog.at_level(logging.WARNING):
            assert run(ids_in(files)) == ALL
        assert "damaged" in caplog.text
        return
    with pytest.raises(StoreCorruptError, match=r"changes? \d+( to 41)? of the journal are damaged") as told:
        run(ids_in(files))
    assert log.read_bytes()[place] == data[place] ^ 4  # refusing changes nothing
    n_whole = len(data[:place].splitlines()) - 1
    assert f"{n_whole} to 41" in str(told.value) or n_whole == 41
    with caplog.at_level(logging.WARNING):
        left = run(ids_in(files, accept_loss=True))
    assert left == ALL[: len(left)]
    assert len(left) >= 31
    assert "going on" in caplog.text
    assert run(ids_in(files)) == left
    assert any("journal.broken-" in file.name for file in files.parent.iterdir())


def test_the_sessions_of_damaged_changes_are_named(files: Path) -> None:
    log = journal_path(files)
    data = log.read_bytes()
    log.write_bytes(data.replace(b"text 38", b"text 83"))
    with pytest.raises(
        StoreCorruptError, match=r"changes 40 to 41 of the journal are damaged \(sessions 'app/user/s'\)"
    ):
        run(ids_in(files))


def test_a_journal_that_ends_too_early_is_noticed(files: Path) -> None:
    """REL-05: the database says how far it must reach."""
    log = journal_path(files)
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:20]))
    with pytest.raises(StoreCorruptError, match=r"changes 20 to 32 aren't in it.*'app/user/s'") as told:
        run(ids_in(files))
    assert told.value.part == "changes 20 to 32"
    assert run(ids_in(files, accept_loss=True)) == ALL[:31]
    assert run(ids_in(files)) == ALL[:31]


@pytest.mark.parametrize("what", ["missing", "empty", "head", "other"])
def test_a_missing_or_foreign_journal_is_noticed(what: str, files: Path, tmp_path: Path) -> None:
    """REL-05, M3: copying the database file alone is no silent loss."""
    log = journal_path(files)
    if what == "missing":
        log.unlink()
    elif what == "empty":
        log.write_bytes(b"")
    elif what == "head":
        log.write_bytes(b"x" + log.read_bytes())
    else:
        other = tmp_path / "other.duckdb"
        DuckDBStore(other).close_now()
        shutil.copy(journal_path(other), log)
    with pytest.raises(StoreCorruptError, match="journal"):
        run(ids_in(files))
    assert run(ids_in(files, accept_loss=True)) == ALL[:31]


def test_an_older_file_is_brought_up_to_date_as_far_as_the_journal_reaches(tmp_path: Path) -> None:
    """REL-05: a backup of the file beside the present journal."""

    async def main() -> None:
        store = new_store(tmp_path)
        await fill(store, 3)
        await store.close()
        shutil.copy(store.path, tmp_path / "old")
        store = DuckDBStore(store.path)
        await append(store, event_of(3))
        twin = as_after_a_crash(store.path, tmp_path / "twin")
        await store.close()
        shutil.copy(tmp_path / "old", twin)
        assert await ids_in(twin) == ["e0", "e1", "e2", "e3"]
        shutil.copy(tmp_path / "old", store.path)
        with pytest.raises(StoreCorruptError, match="older than its journal: changes 5 are in neither"):
            await ids_in(store.path)
        assert await ids_in(store.path, accept_loss=True) == ["e0", "e1", "e2"]

    run(main())


def test_a_file_that_is_gone_is_made_anew_from_a_whole_journal_only(files: Path) -> None:
    files.unlink()
    wal_path(files).unlink()
    assert run(ids_in(files)) == ALL
    files.unlink()
    with pytest.raises(StoreCorruptError, match="is missing, and its journal begins after change 41"):
        run(ids_in(files))
    assert not files.exists()
    assert run(ids_in(files, accept_loss=True)) == []


def test_all_kinds_of_changes_survive_in_the_journal_alone(tmp_path: Path) -> None:
    """REL-02, SUM-STO-04: states of all scopes, summaries, deletions, sweeps."""

    async def main() -> None:
        store, user = new_store(tmp_path), UserKey("app", "user")
        times = {"expires_ns": 0, "now_ns": START_NS}
        await fill(store, 2)
        await store.update_session_state(KEY, {"a": b"1", "\ud800": None}, updated_ns=START_NS + 9, **times)
        await store.save_summary(KEY, "k", Summary("s\ud800", 5, topics=("t",)), now_ns=START_NS)
        await store.update_app_state("app", {"x": b"1", "y": b"2"}, **times)
        await store.delete_app_state("app", "x")
        await store.update_user_state(user, {"x": b"\xff", "y": b"2"}, **times)
        await store.delete_user_state(user, "y")
        await store.update_app_state("brief", {"x": b"1"}, expires_ns=START_NS + 5, now_ns=START_NS)
        await store.update_user_state(UserKey("brief", "u"), {"x": b"1"}, expires_ns=START_NS + 5, now_ns=START_NS)
        gone, over = KEY.__class__("app", "user", "gone"), KEY.__class__("app", "user", "over")
        await fill(store, 1, gone)
        await store.delete(gone)
        await fill(store, 1, over)
        await store.append(
            over, event_of(1), state_delta={}, updated_ns=START_NS, expires_ns=START_NS + 5, now_ns=START_NS
        )
        assert await store.sweep(now_ns=START_NS + 5) == 1
        expected = await store.load(KEY, now_ns=START_NS)
        twin = as_after_a_crash(store.path, tmp_path / "twin")
        assert store._applied == 0
        await store.close()
        for path in (twin, twin, store.path):
            store = DuckDBStore(path)
            found = await store.load(KEY, now_ns=START_NS)
            assert found is not None
            assert expected is not None
            assert (found.events, found.state, found.summaries) == (expected.events, expected.state, expected.summaries)
            assert (found.created_ns, found.updated_ns) == (START_NS, START_NS + 9)
            assert await store.app_state("app", now_ns=START_NS) == {"y": b"2"}
            assert await store.user_state(user, now_ns=START_NS) == {"x": b"\xff"}
            assert await store.app_state("brief", now_ns=START_NS) == {}
            assert await store.user_state(UserKey("brief", "u"), now_ns=START_NS) == {}
            assert [session.id for session in await store.list_sessions(user, now_ns=START_NS)] == ["s"]
            await store.close()

    run(main())


def test_the_journal_begins_anew_once_a_checkpoint_holds_its_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "CUT_BYTES", 5000)
    monkeypatch.setattr(live, "BATCH_CHANGES", 10)

    async def main() -> None:
        store = new_store(tmp_path)
        await create(store)
        for n in range(200):
            await append(store, event_of(n))
            if n % 20 == 0:
                await store.flush()
        assert journal_path(store.path).stat().st_size < 15_000
        twin = as_after_a_crash(store.path, tmp_path / "twin", with_wal=False)
        await store.close()
        assert len(await ids_in(twin)) == len(await ids_in(store.path)) == 200

    run(main())


# --- full disks --------------------------------------------------------------------------------------


def test_a_write_that_finds_no_room_did_not_happen(tmp_path: Path) -> None:
    """REL-06: the n-th write or batch fails, for n = 1, 2, ... until none does; the same object goes on."""
    tally = writers.failing_writes(tmp_path, n=2, seed=1)
    assert tally.examples == []
    assert tally.seen == {"write": 2, "half a write": 2, "batch": 2}


def test_a_batch_that_fails_is_kept_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """REL-06, M7, M8: what DuckDB can't take is safe in the journal, visible, and stored when there is room."""
    monkeypatch.setattr(live, "BATCH_CHANGES", 10)
    monkeypatch.setattr(live, "MAX_WAITING_CHANGES", 60)

    async def main() -> None:
        store = new_store(tmp_path)
        await create(store)
        await store.save_summary(KEY, "", Summary("s", 5), now_ns=START_NS)

        def fail(*_: Any) -> None:
            raise duckdb.IOException("Could not write all bytes to file: No space left on device")

        monkeypatch.setattr(Database, "_apply", staticmethod(fail))
        acknowledged: list[int] = []

        async def write() -> None:
            for n in range(200):
                await append(store, event_of(n))
                acknowledged.append(n)
                await asyncio.sleep(0.001)

        with pytest.raises(StoreFullError):
            await write()
        n = len(acknowledged)
        assert 40 < n < 200
        assert len(await store.list_events(KEY, now_ns=START_NS)) == n
        assert "safe in the journal" in caplog.text
        twin = as_after_a_crash(store.path, tmp_path / "twin")
        with pytest.raises(StoreFullError):
            await store.flush()
        monkeypatch.undo()
        await append(store, event_of(n))
        await store.close()
        assert len(await ids_in(store.path)) == n + 1
        assert len(await ids_in(twin)) == n
        store = DuckDBStore(store.path)
        assert await store.load_summaries(KEY, now_ns=START_NS) == {"": Summary("s", 5)}
        await store.close()

    run(main())


def test_a_commit_that_fails_after_it_was_one_stores_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """REL-06, M7: a full disk during the checkpoint that follows a commit ends the engine."""
    original = Database.apply
    n_calls = 0

    def apply(self: Database, batch: Any) -> None:
        nonlocal n_calls
        n_calls += 1
        original(self, batch)
        if n_calls % 2:
            if n_calls == 3:  # nor can the engine be started at once
                monkeypatch.setattr(Database, "reconnect", refuse)
            raise StoreFullError("no room for a checkpoint")

    def refuse(self: Database) -> None:
        monkeypatch.setattr(Database, "reconnect", reconnect)
        raise StoreFullError("no room")

    reconnect = Database.reconnect
    monkeypatch.setattr(live, "BATCH_CHANGES", 10)
    monkeypatch.setattr(Database, "apply", apply)

    async def main() -> None:
        store = new_store(tmp_path)
        await create(store)
        for n in range(100):
            await append(store, event_of(n))
            await asyncio.sleep(0.002)
        await store.close()
        assert n_calls > 4
        assert await ids_in(store.path) == [f"e{n}" for n in range(100)]

    run(main())


def test_reads_do_not_keep_the_journal_from_beginning_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """DuckDB makes no checkpoint while a query runs."""
    monkeypatch.setattr(live, "CUT_BYTES", 2000)
    monkeypatch.setattr(live, "BATCH_CHANGES", 5)

    async def main() -> None:
        store = new_store(tmp_path)
        await create(store)

        async def read() -> None:
            while not done.is_set():
                await store._read(store._database.events, 1, 0, 1000)

        done = asyncio.Event()
        reader = asyncio.create_task(read())
        for n in range(100):
            await append(store, event_of(n))
            await asyncio.sleep(0.002)
        await store.flush()
        done.set()
        await reader
        assert journal_path(store.path).stat().st_size < 6000
        await store.close()

    run(main())
    assert "no checkpoint" not in caplog.text
