"""`workbench lab`: which folder it opens, with which address, and what it says where there are no notebooks."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from workbench.cli import lab, main

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def started(monkeypatch) -> list[list[str]]:
    """The commands that would have been started."""
    commands: list[list[str]] = []

    def note(command: list[str], *, check: bool) -> SimpleNamespace:
        commands.append(command)
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(subprocess, "run", note)
    return commands


def test_it_opens_the_notebooks_of_the_checkout(started):
    """WB-UI-01."""
    assert main(["lab", "--no-browser", "--port", "8899"]) == 0
    (command,) = started
    assert f"--ServerApp.root_dir={ROOT / 'notebooks'}" in command
    assert "--port=8899" in command
    assert "--no-browser" in command


def test_copies_leave_what_was_worked_on(started, tmp_path):
    (tmp_path / "07_explorer.ipynb").write_text("mine", encoding="utf-8")
    assert main(["lab", "--copy", str(tmp_path)]) == 0
    assert (tmp_path / "07_explorer.ipynb").read_text(encoding="utf-8") == "mine"
    copied = (tmp_path / "01_first_replay.ipynb").read_bytes()
    assert copied == (ROOT / "notebooks" / "01_first_replay.ipynb").read_bytes()
    assert f"--ServerApp.root_dir={tmp_path.resolve()}" in started[0]


def test_an_installation_without_notebooks_says_what_to_do(started, monkeypatch, capsys):
    """WB-UI-01: an installed package has none."""
    monkeypatch.setattr(lab, "notebooks_folder", lambda: None)
    assert main(["lab"]) == 2
    assert "run it in a checkout, or name a folder" in capsys.readouterr().err
    assert started == []


def test_a_folder_that_does_not_exist_is_refused(started, tmp_path, capsys):
    assert main(["lab", str(tmp_path / "none")]) == 2
    assert "no such folder" in capsys.readouterr().err
    assert started == []
