"""A suite to begin with: one command, and the check that follows it passes (WB-REG-01)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from workbench import cli
from workbench.errors import ConfigError, RecordingError
from workbench.regression.suite import load_suite
from workbench.regression.template import new_suite

DATASETS = Path(__file__).resolve().parents[2] / "datasets"
CONFIG = "[summarizer]\nmax_summary_words = 100\n[trigger]\ntoken = 600\n[agent]\nadd_session_summary = true\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(DATASETS / "ja-support", tmp_path / "ja")
    (tmp_path / "tuned.toml").write_text(CONFIG, encoding="utf-8")
    return tmp_path


def test_a_new_suite_names_what_lies_beside_it_and_expects_the_usual(folder: Path) -> None:
    suite = new_suite(folder / "own.suite.toml", [folder / "ja"], folder / "tuned.toml")
    assert suite == load_suite(folder / "own.suite.toml")
    assert suite.rules.recordings == ("ja",)
    assert suite.rules.config == "tuned.toml"
    assert suite.rules.summaries.max_words == 110
    assert suite.rules.summaries.is_summary
    assert suite.rules.drift.prompt_tokens == 0.02


def test_two_commands_after_the_configuration_and_a_check_stands(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What isn't a recording in a folder of recordings, its README, is passed over."""
    monkeypatch.chdir(folder)
    assert cli.main(["check", "own.suite.toml", "--init", "ja", "--config", "tuned.toml"]) == 0
    assert "workbench check own.suite.toml --accept" in capsys.readouterr().out
    assert cli.main(["check", "own.suite.toml", "--accept"]) == 0
    capsys.readouterr()
    assert cli.main(["check", "own.suite.toml", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["failed"] == 0


def test_a_suite_that_is_there_is_never_written_over(folder: Path) -> None:
    path = folder / "own.suite.toml"
    path.write_text("mine", encoding="utf-8")
    with pytest.raises(ConfigError, match="is there already"):
        new_suite(path, [folder / "ja"], folder / "tuned.toml")
    assert path.read_text(encoding="utf-8") == "mine"


def test_what_lies_elsewhere_or_nowhere_is_one_sentence_and_leaves_no_file(folder: Path) -> None:
    """SEC-05: a suite names nothing outside its folder."""
    inner = folder / "inner"
    inner.mkdir()
    with pytest.raises(ConfigError, match=r"lies outside .*inner, the folder of the suite"):
        new_suite(inner / "own.suite.toml", [folder / "ja"], folder / "tuned.toml")
    with pytest.raises(RecordingError, match=r"nowhere\.jsonl: doesn't exist"):
        new_suite(folder / "own.suite.toml", ["nowhere.jsonl"], folder / "tuned.toml")
    (folder / "ja" / "sly.jsonl").symlink_to("/etc/hostname")
    with pytest.raises(ConfigError):
        new_suite(folder / "own.suite.toml", [folder / "ja"], folder / "tuned.toml")
    assert not list(folder.rglob("*.suite.toml"))


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        (["--init", "ja"], "--init without --config"),
        (["--config", "tuned.toml"], "--config without --init"),
        (["--init", "ja", "--config", "tuned.toml", "--accept"], "--init only writes the suite"),
    ],
)
def test_half_a_request_for_a_suite_is_refused(
    options: list[str], fault: str, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    assert cli.main(["check", "own.suite.toml", *options]) == 2
    assert fault in capsys.readouterr().err
