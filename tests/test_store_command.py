"""`workbench store` and stores as recordings on the command line: objects, exit codes, damaged files."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import duckdb
import pytest

from workbench.cli import main
from workbench.selftest.store_files import KEY, append, as_after_a_crash, create, event_of, fill, new_store
from workbench.session.types import SessionKey
from workbench.store.duckdb.journal import journal_path
from workbench.store.duckdb.maintenance import check
from workbench.store.duckdb.schema import NEWEST_VERSION

pytestmark = pytest.mark.slow  # each of them writes and opens store files; `make test-more` runs these

DAMAGE = "changes 4 to 6 of the journal are damaged (sessions 'app/user/s')"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a store whose process was killed: five events of which all are in the journal only."""

    async def main() -> Path:
        store = new_store(tmp_path_factory.mktemp("made"))
        await fill(store, 5)
        twin = as_after_a_crash(store.path, tmp_path_factory.mktemp("killed") / "twin")
        await store.close()
        return twin

    return asyncio.run(main())


@pytest.fixture
def here(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the store as `x.duckdb`, to run commands in."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(made, tmp_path / "x.duckdb")
    shutil.copy(journal_path(made), tmp_path / "x.duckdb.journal")
    return tmp_path


def damage(folder: Path) -> None:
    log = folder / "x.duckdb.journal"
    log.write_bytes(log.read_bytes().replace(b"text 2", b"text 7"))


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(list(arguments))
    seen = capsys.readouterr()
    return code, seen.out, seen.err


def run_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any]:
    code, out, err = run(capsys, *arguments, "--json")
    assert err == ""
    return code, json.loads(out)


def test_check_prints_what_it_found_and_the_settings_of_the_engine(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """SEC-02, WB-CLI-03."""
    code, found = run_json(capsys, "store", "check", "x.duckdb")
    assert code == 0
    settings = found.pop("settings")
    assert settings["enable_external_access"] == settings["autoload_known_extensions"] == "false"
    assert found == {
        "path": str(here / "x.duckdb"),
        "is_sound": True,
        "version": NEWEST_VERSION,
        "sessions": 1,
        "deleted_sessions": 0,
        "events": 5,
        "summaries": 0,
        "changes": 6,
        "waiting_changes": 6,
        "problems": [],
        "losses": [],
    }
    code, out, err = run(capsys, "store", "check", "x.duckdb")
    assert (code, err) == (0, "")
    assert out.splitlines()[-1] == "sound"
    assert "setting enable_external_access = false" in out
    assert "events                       5" in out


def test_check_tells_of_damage_and_what_is_left(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """REL-05: exit code 4, and nothing is changed."""
    damage(here)
    before = {file.name: file.read_bytes() for file in here.iterdir()}
    code, found = run_json(capsys, "store", "check", "x.duckdb")
    assert (code, found["is_sound"], found["events"], found["losses"]) == (4, False, None, [])
    assert len(found["problems"]) == 1
    assert DAMAGE in found["problems"][0]
    code, found = run_json(capsys, "store", "check", "x.duckdb", "--accept-loss")
    assert (code, found["is_sound"], found["events"], len(found["losses"])) == (4, False, 2, 1)
    assert found["problems"] == found["losses"]
    code, out, err = run(capsys, "store", "check", "x.duckdb", "--accept-loss")
    assert (code, out.splitlines()[-1]) == (4, "1 problem")
    assert err == f"missing: {here / 'x.duckdb'}: {DAMAGE}\n"
    assert {file.name: file.read_bytes() for file in here.iterdir()} == before


def test_a_damaged_store_is_copied_with_what_is_left_of_it(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """REL-05: only when that is accepted, and it is said what is missing."""
    damage(here)
    code, out, err = run(capsys, "store", "copy", "x.duckdb", "left.duckdb")
    assert (code, out) == (4, "")
    assert DAMAGE in err
    assert "--accept-loss" in err
    assert len(err.splitlines()) == 1
    assert not (here / "left.duckdb").exists()
    code, out, err = run(capsys, "store", "copy", "x.duckdb", "left.duckdb", "--accept-loss")
    assert (code, out) == (0, "x.duckdb -> left.duckdb\n")
    assert err == f"missing: {here / 'x.duckdb'}: {DAMAGE}\n"
    report = check("left.duckdb")
    assert (report.is_sound, report.n_events) == (True, 2)
    assert sorted(file.name for file in here.iterdir()) == [
        "left.duckdb",
        "left.duckdb.journal",
        "x.duckdb",
        "x.duckdb.journal",
    ]


def test_a_store_without_its_journal_keeps_what_the_file_holds(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """M3: bare DuckDB would open it without a word."""
    assert run(capsys, "store", "vacuum", "x.duckdb")[0] == 0
    (here / "x.duckdb.journal").unlink()
    code, _, err = run(capsys, "store", "copy", "x.duckdb", "left.duckdb")
    assert (code, "the journal is missing" in err) == (4, True)
    code, found = run_json(capsys, "store", "copy", "x.duckdb", "left.duckdb", "--accept-loss")
    assert (code, found["target"]) == (0, "left.duckdb")
    assert found["losses"] == [f"{here / 'x.duckdb'}.journal: the journal is missing"]
    assert check("left.duckdb").n_events == 5


@pytest.mark.parametrize("action", ["vacuum", "migrate"])
def test_the_file_itself_goes_on_without_what_is_damaged(
    action: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(here)
    code, _, err = run(capsys, "store", action, "x.duckdb")
    assert (code, DAMAGE in err) == (4, True)
    code, found = run_json(capsys, "store", action, "x.duckdb", "--accept-loss")
    assert code == 0
    assert [DAMAGE in loss for loss in found["losses"]] == [True]
    assert check("x.duckdb").is_sound
    assert any("journal.broken-" in file.name for file in here.iterdir())


def test_a_file_that_duckdb_can_not_read_is_one_sentence(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """REL-05: accepted or not, and about the file itself, not about a copy of it."""
    data = (here / "x.duckdb").read_bytes()
    (here / "x.duckdb").write_bytes(data[:9000] + b"x" * 300 + data[9300:])
    code, out, err = run(capsys, "store", "check", "x.duckdb")
    assert (code, out) == (4, "1 problem\n")
    assert err.startswith(f"problem: {here / 'x.duckdb'}: ")
    commands = (
        ("store", "copy", "x.duckdb", "left.duckdb", "--accept-loss"),
        ("store", "vacuum", "x.duckdb", "--accept-loss"),
        ("import", "x.duckdb"),
    )
    for command in commands:
        code, out, err = run(capsys, *command)
        assert (code, out) == (3 if command[0] == "import" else 4, "")
        assert len(err.splitlines()) == 1
        assert "x.duckdb: " in err
        assert ".left.duckdb-" not in err
    assert sorted(file.name for file in here.iterdir()) == ["x.duckdb", "x.duckdb.journal"]


def test_vacuum_and_migrate_say_what_they_did(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = run_json(capsys, "store", "migrate", "x.duckdb")
    assert (code, found) == (
        0,
        {"path": "x.duckdb", "version_before": NEWEST_VERSION, "version": NEWEST_VERSION, "losses": []},
    )
    code, found = run_json(capsys, "store", "vacuum", "x.duckdb")
    assert (code, set(found)) == (0, {"path", "bytes_before", "bytes", "losses"})
    code, out, _ = run(capsys, "store", "vacuum", "x.duckdb")
    assert out.startswith("x.duckdb: ")
    assert out.endswith(" bytes\n")


def test_a_store_in_use_can_be_checked_and_copied_but_not_rewritten(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """REL-04, BUG-29."""

    async def work() -> None:
        store = new_store(here, "open.duckdb")
        await fill(store, 3)
        for arguments in (("check", "open.duckdb"), ("copy", "open.duckdb", "copy.duckdb")):
            assert await asyncio.to_thread(main, ["store", *arguments]) == 0
        capsys.readouterr()
        for action in ("vacuum", "migrate"):
            assert await asyncio.to_thread(main, ["store", action, "open.duckdb"]) == 4
            err = capsys.readouterr().err
            assert "holds the file" in err
            assert len(err.splitlines()) == 1
        await append(store, event_of(3))
        await store.close()

    asyncio.run(work())
    assert check("copy.duckdb").n_events == 3


def test_hostile_names_reach_the_terminal_escaped(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """SEC-13."""

    async def work() -> None:
        store = new_store(here, "odd.duckdb")
        await create(store, SessionKey("app", "user", "\x1b[31m\u202e\nred"))
        await store.close()

    asyncio.run(work())
    with duckdb.connect("odd.duckdb") as connection:
        connection.execute("INSERT INTO session_states SELECT * FROM session_states")
    code, out, err = run(capsys, "store", "check", "odd.duckdb")
    assert code == 4
    assert "is there 2 times" in err
    assert not {"\x1b", "\u202e"} & {*out, *err}
    assert len(err.splitlines()) == 1


def test_a_store_is_imported_and_replayed_like_any_recording(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """WB-REC-02 `duckdb`, WB-CLI-03."""
    (here / "instruction.txt").write_text("Answer briefly.\n", encoding="utf-8")
    tools = [{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}]
    (here / "tools.json").write_text(json.dumps(tools), encoding="utf-8")
    given = ("--instruction", "instruction.txt", "--tools", "tools.json")
    chosen = ("--app", "app", "--user", KEY.user_id, "--since", "2026-02-25", "--until", "2026-02-26")
    code, found = run_json(capsys, "import", "x.duckdb", *chosen, *given, "--to", "native.jsonl")
    assert (code, found["conversations"], found["events"], found["formats"]) == (0, 1, 5, {"duckdb": 1})
    assert found["problems"] == []
    head = json.loads((here / "native.jsonl").read_text(encoding="utf-8").splitlines()[0])
    assert (head["instruction"], head["tools"][0]["name"]) == ("Answer briefly.", "look_up")
    code, found = run_json(capsys, "replay", "x.duckdb", *given, "--set", 'billing.encoding="runes:4"')
    code, again = run_json(capsys, "replay", "native.jsonl", "--set", 'billing.encoding="runes:4"', "--fresh")
    assert found["runs"][0]["calls"] > 0
    for fact in ("data_hash", "prompt_tokens", "peak_prompt_tokens", "prefix_tokens"):
        assert found["runs"][0][fact] == again["runs"][0][fact]
    code, _, err = run(capsys, "import", "x.duckdb", "--user", "nobody")
    assert (code, err) == (3, "workbench: x.duckdb: the store has no session with events that was asked for\n")
