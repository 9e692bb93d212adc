"""Store files as a whole: check, copy, vacuum, migrate; old versions, newer ones, and files that are no stores."""

from __future__ import annotations

import asyncio
import gzip
import shutil
from pathlib import Path
from typing import Any

import duckdb
import pytest

from workbench.clock import FixedClock
from workbench.errors import StoreCorruptError, StoreError, StoreLockedError, StoreVersionError
from workbench.selftest import damage, versions
from workbench.selftest.store_files import (
    KEY,
    START_NS,
    append,
    as_after_a_crash,
    create,
    event_of,
    fill,
    ids_in,
    new_store,
)
from workbench.selftest.versions import STORES
from workbench.session.types import SessionKey, Summary, SummaryBoundary, UserKey
from workbench.store.duckdb import live, schema
from workbench.store.duckdb.journal import journal_path
from workbench.store.duckdb.maintenance import check, copy, vacuum
from workbench.store.duckdb.store import DuckDBStore

OTHER = SessionKey("app", "user", "other")


def run(work: Any) -> Any:
    return asyncio.run(work)


# --- check and copy ----------------------------------------------------------------------------------


def test_an_open_store_is_checked_and_copied_without_holding_it_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """BUG-29: notebooks work on a copy while the writer goes on; checkpoints may come in between."""
    monkeypatch.setattr(live, "BATCH_CHANGES", 10)
    monkeypatch.setattr(live, "CUT_BYTES", 4000)

    async def main() -> None:
        store = new_store(tmp_path)
        await create(store)
        done = asyncio.Event()

        async def copies() -> None:
            for n in range(3):
                n_before = store._entries[KEY].session.end_position
                await asyncio.to_thread(copy, store.path, tmp_path / f"copy{n}.duckdb")
                ids = await ids_in(tmp_path / f"copy{n}.duckdb")
                assert ids == [f"e{i}" for i in range(len(ids))]
                assert n_before <= len(ids) <= store._entries[KEY].session.end_position
            report = await asyncio.to_thread(check, store.path, in_child=False)
            assert report.is_sound, report.problems
            done.set()

        async def writes() -> None:
            n = 0
            while not done.is_set():
                await append(store, event_of(n))
                n += 1
                await asyncio.sleep(0.001)

        await asyncio.gather(copies(), writes())
        await store.close()

    run(main())
    assert not [file for file in tmp_path.iterdir() if file.name.startswith(".")]


def test_a_report_counts_and_shows_the_settings(tmp_path: Path) -> None:
    """SEC-02: `store check` prints the settings."""

    async def main() -> DuckDBStore:
        store = new_store(tmp_path)
        await fill(store, 3)
        await fill(store, 2, OTHER)
        await store.save_summary(KEY, "", Summary("s", 5, SummaryBoundary("", 5, "e1")), now_ns=START_NS)
        await store.delete(OTHER)
        return store

    store = run(main())
    report = check(store.path)
    assert report.is_sound, report.problems
    assert (report.version, report.sequence, report.n_waiting_changes) == (schema.NEWEST_VERSION, 9, 9)
    assert (report.n_sessions, report.n_deleted_sessions, report.n_events, report.n_summaries) == (1, 1, 5, 1)
    settings = dict(report.settings)
    assert settings["enable_external_access"] == settings["python_enable_replacements"] == "false"
    assert settings["lock_configuration"] == "true"
    store.close_now()
    report = check(store.path, in_child=False)
    assert (report.sequence, report.n_waiting_changes, report.is_sound) == (9, 0, True)


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("DELETE FROM session_events WHERE position = 1", "session 'app/user/s' has 3 events, but its rows are not"),
        ("DELETE FROM session_events", "session 'app/user/s' has 3 events"),
        ("INSERT INTO session_events SELECT * FROM session_events WHERE position = 0", "4 rows, 3 different"),
        (
            "UPDATE session_events SET event = '{\"time\": 5}' WHERE position = 2",
            "event 2 of session 's' can't be read",
        ),
        ("UPDATE session_summaries SET summary = '{}'", "summary '' of session 's' of number 1 can't be read"),
        ("INSERT INTO session_states SELECT * FROM session_states", "session 'app/user/s' is there 2 times"),
        ("DELETE FROM session_states", "events of session 's' (number 1) have no session"),
        ("DELETE FROM progress", "doesn't say which changes it holds"),
    ],
)
def test_a_check_finds_rows_that_contradict_each_other(statement: str, problem: str, tmp_path: Path) -> None:
    """REL-05."""

    async def main() -> Path:
        store = new_store(tmp_path)
        await fill(store, 3)
        await store.save_summary(KEY, "", Summary("s", 5), now_ns=START_NS)
        await store.close()
        return store.path

    path = run(main())
    with duckdb.connect(str(path)) as connection:
        connection.execute(statement)
    problems = check(path, in_child=False).problems
    assert any(problem in text for text in problems), problems


def test_a_check_tells_of_a_damaged_journal_and_changes_nothing(tmp_path: Path) -> None:
    async def main() -> Path:
        store = new_store(tmp_path)
        await fill(store, 3)
        twin = as_after_a_crash(store.path, tmp_path / "twin")
        await store.close()
        return twin

    twin = run(main())
    log = journal_path(twin)
    log.write_bytes(log.read_bytes().replace(b"text 1", b"text 7"))
    before = {file.name: file.read_bytes() for file in twin.parent.iterdir()}
    (problem,) = check(twin, in_child=False).problems
    assert "changes 3 to 4 of the journal are damaged" in problem
    with pytest.raises(StoreCorruptError):
        copy(twin, tmp_path / "target.duckdb")
    assert {file.name: file.read_bytes() for file in twin.parent.iterdir()} == before
    assert not (tmp_path / "target.duckdb").exists()


def test_a_copy_replaces_nothing(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    (tmp_path / "there.duckdb").write_text("mine")
    with pytest.raises(StoreError, match="exists already"):
        copy(store.path, tmp_path / "there.duckdb")
    store.close_now()
    with pytest.raises(StoreError, match="doesn't exist"):
        copy(tmp_path / "nowhere.duckdb", tmp_path / "b.duckdb")


def test_a_check_survives_a_file_that_kills_its_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SEC-03: the file is read in a process of its own."""
    import sys

    store = new_store(tmp_path)
    store.close_now()
    killer = tmp_path / "killer"
    killer.write_text("#!/bin/sh\nkill -9 $$\n")
    killer.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", str(killer))
        assert check(store.path).problems == ("reading the file ended its process (exit code -9)",)
        killer.write_text("#!/bin/sh\nexec sleep 60\n")
        assert check(store.path, timeout_s=0.2).problems == ("reading the file took longer than 0 s",)
    assert check(store.path, in_child=False).is_sound


# --- vacuum and versions -----------------------------------------------------------------------------


def test_a_vacuum_removes_deleted_sessions_for_good_and_keeps_the_rest(tmp_path: Path) -> None:
    """SUM-STO-09."""

    async def main() -> None:
        store = new_store(tmp_path)
        await fill(store, 3)
        await create(store, OTHER)
        for n in range(300):
            await append(store, event_of(n, extensions={"pad": f"{n} " * 2000}), OTHER)
        await store.update_app_state("app", {"a": b"1"}, expires_ns=0, now_ns=START_NS)
        with pytest.raises(StoreLockedError):
            await asyncio.to_thread(vacuum, store.path)
        await store.delete(OTHER)
        await store.close()
        before, after, losses = vacuum(store.path)
        assert after < before
        assert losses == ()
        report = check(store.path, in_child=False)
        assert (report.is_sound, report.n_events, report.n_deleted_sessions) == (True, 3, 0)
        store = DuckDBStore(store.path)
        assert await store.app_state("app", now_ns=START_NS) == {"a": b"1"}
        await fill(store, 1, OTHER)
        await store.close()
        assert await ids_in(store.path) == ["e0", "e1", "e2"]
        assert await ids_in(store.path, OTHER) == ["e0"]

    run(main())
    assert sorted(file.name for file in tmp_path.iterdir()) == ["x.duckdb", "x.duckdb.journal"]


def test_the_kept_store_of_every_version_opens(tmp_path: Path) -> None:
    """REL-14: made by that version, with changes that stand in the journal only."""
    tally = versions.kept_stores(tmp_path, n=schema.NEWEST_VERSION, seed=1)
    assert (tally.n, tally.examples) == (schema.NEWEST_VERSION, [])
    assert {path.name.split(".")[0] for path in STORES.iterdir()} == {f"v{n + 1}" for n in range(schema.NEWEST_VERSION)}


def test_files_and_journals_of_newer_releases_are_refused(tmp_path: Path) -> None:
    """REL-14."""
    tally = versions.newer_stores(tmp_path, n=2, seed=1)
    assert (tally.n, tally.examples) == (2, [])


async def make_kept_store(folder: Path) -> None:
    """How the files in tests/stores were made: once per version, before the next one begins."""
    store, user = DuckDBStore(folder / "kept.duckdb", clock=FixedClock(START_NS)), UserKey("app", "user")
    await fill(store, 4)
    await fill(store, 2, OTHER)
    await store.delete(OTHER)
    await store.update_app_state("app", {"a": b"1"}, expires_ns=0, now_ns=START_NS)
    await store.flush()
    store._database.checkpoint()
    await append(store, event_of(4))
    delta = {"k": b"\x00\xff"}
    event = event_of(5, extensions={"half": "\ud800"}, state_delta=delta)
    await store.append(KEY, event, state_delta=delta, updated_ns=START_NS, expires_ns=0, now_ns=START_NS)
    summary = Summary("kept", 5, SummaryBoundary("app/x", 5, "e3"), ("topic",))
    await store.save_summary(KEY, "app/x", summary, now_ns=START_NS)
    await store.update_user_state(user, {"u": None}, expires_ns=0, now_ns=START_NS)
    STORES.mkdir(exist_ok=True)
    target = STORES / f"v{schema.NEWEST_VERSION}.duckdb"
    twin = as_after_a_crash(store.path, folder / "twin", with_wal=False)
    target.with_name(target.name + ".gz").write_bytes(gzip.compress(twin.read_bytes(), mtime=0))
    shutil.copy(journal_path(twin), journal_path(target))
    await store.close()


def test_a_migration_is_whole_or_absent_and_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """REL-14: each step in one transaction with its record."""
    store = new_store(tmp_path)
    run(fill(store, 2))
    store.close_now()
    step = schema.Migration(2, "notes", ("CREATE TABLE notes (text VARCHAR)", "INSERT INTO nowhere VALUES (1)"))
    with duckdb.connect(str(store.path)) as connection:
        with pytest.raises(duckdb.Error):
            schema.migrate_tables(connection, now_ns=1, version=1, migrations=(*schema.MIGRATIONS, step))
        assert connection.execute("SELECT max(version) FROM schema_versions").fetchall() == [(1,)]
        good = step._replace(statements=step.statements[:1])
        assert schema.migrate_tables(connection, now_ns=1, version=1, migrations=(*schema.MIGRATIONS, good)) == 2
    with pytest.raises(StoreVersionError, match=r"schema version 2; this release reads up to 1") as told:
        DuckDBStore(store.path)
    assert (told.value.found, told.value.supported) == (2, 1)
    assert any("schema version 2" in problem for problem in check(store.path, in_child=False).problems)
    monkeypatch.setattr(schema, "NEWEST_VERSION", 2)
    assert run(ids_in(store.path)) == ["e0", "e1"]


# --- other files -------------------------------------------------------------------------------------


def test_other_files_are_refused_and_left_alone(tmp_path: Path) -> None:
    """SEC-03, M6, B38: before DuckDB sees them, so that it looks for no extension."""
    tally = damage.foreign_files(tmp_path, n=8, seed=1)
    assert (tally.n, tally.examples) == (8, [])
    with pytest.raises(StoreCorruptError, match="is a SQLite file"):
        DuckDBStore(tmp_path / "foreign" / "a SQLite file.duckdb")


def test_folders_foreign_databases_and_missing_places_are_told(tmp_path: Path) -> None:
    """B38, SUM-STO-14: at construction, never silently."""
    with pytest.raises(StoreCorruptError, match="folder"):
        DuckDBStore(tmp_path)
    with pytest.raises(StoreError, match=r"check the folder|no folder|can't be opened"):
        DuckDBStore(tmp_path / "nowhere" / "x.duckdb")
    path = tmp_path / "foreign.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE t (n INTEGER)")
    with pytest.raises(StoreCorruptError, match="not a session store"):
        DuckDBStore(path)


def test_a_program_that_has_the_file_open_is_named(tmp_path: Path) -> None:
    """REL-04: also one that knows nothing of our lock."""
    import subprocess
    import sys

    store = new_store(tmp_path)
    store.close_now()
    script = "import duckdb, sys; c = duckdb.connect(sys.argv[1]); print('open', flush=True); sys.stdin.read()"
    holder = subprocess.Popen(
        [sys.executable, "-c", script, str(store.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        with pytest.raises(StoreLockedError, match=f"process {holder.pid} holds the file"):
            DuckDBStore(store.path)
    finally:
        holder.communicate("")
    DuckDBStore(store.path).close_now()
