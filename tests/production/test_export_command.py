"""`workbench export`: from a recording to files with evidence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import workbench as wb
from tests.replay.conftest import TUNED, write_own_recording
from workbench.cli import main


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with finished runs of two configurations."""
    monkeypatch.chdir(tmp_path)
    write_own_recording(tmp_path)
    (tmp_path / "never.toml").write_text(TUNED.replace("300", "300000"), encoding="utf-8")
    assert main(["replay", "own.jsonl", "--config", "tuned.toml", "--config", "never.toml"]) == 0
    return tmp_path


@pytest.mark.slow
def test_a_recording_becomes_an_exported_service(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """WB-API-04, WB-EXP-01: the command is the same function; the file it writes runs."""
    capsys.readouterr()
    arguments = ["--to", "toml, go,markdown", "--run", "tuned", "--run", "never", "--date", "2026-03-01"]
    assert main(["export", "tuned.toml", *arguments, "--out", "by command"]) == 0
    out = capsys.readouterr().out
    assert "Configuration tuned, profile SEED, hash " in out
    assert "- firings per 100 model requests: " in out
    assert out.rstrip().endswith("tuned.md")
    config = wb.RunConfig.load("tuned.toml")
    made = wb.export(
        config,
        "by call",
        to=["toml", "go", "markdown"],
        evidence=wb.load_runs(names=["tuned", "never"]),
        date="2026-03-01",
    )
    for path in made.paths.values():
        assert (here / "by command" / path.name).read_bytes() == path.read_bytes()
    assert wb.load_service("by command/tuned.toml", model=wb.ScriptedModel(["hello"])).stamp == made.stamp


def test_json_has_the_files_and_what_they_state(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """WB-CLI-03."""
    capsys.readouterr()
    assert main(["export", "tuned.toml", "--run", "tuned", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {"files", "export"}
    assert {form: Path(path).name for form, path in found["files"].items()} == {
        "toml": "tuned.toml",
        "markdown": "tuned.md",
    }
    assert found["export"]["evidence"]["run_id"] == wb.load_runs(names=["tuned"])["tuned"].run_id


@pytest.mark.slow
def test_a_trigger_that_never_fires_needs_the_option(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """BUG-05: one line and exit code 2."""
    assert main(["export", "never.toml", "--run", "never"]) == 2
    assert "--allow-unreachable" in capsys.readouterr().err
    assert not Path("production").exists()
    assert main(["export", "never.toml", "--run", "never", "--allow-unreachable"]) == 0
    assert Path("production/never.toml").exists()


@pytest.mark.slow
def test_the_ending_of_a_file_says_its_form(here: Path) -> None:
    """WB-EXP-01."""
    assert main(["export", "tuned.toml", "--out", "made.toml"]) == 0
    assert wb.RunConfig.load("made.toml") == wb.RunConfig.load("tuned.toml").replace(name="tuned")


@pytest.mark.slow
def test_without_a_run_the_command_says_what_is_missing(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """WB-EXP-02."""
    assert main(["export", "tuned.toml"]) == 0
    assert "name the run that it was tuned in with --run" in capsys.readouterr().out


@pytest.mark.slow
def test_a_run_of_another_configuration_is_no_evidence(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """WB-EXP-02."""
    assert main(["export", "tuned.toml", "--run", "never"]) == 2
    assert "is of configuration 'tuned'" in capsys.readouterr().err
