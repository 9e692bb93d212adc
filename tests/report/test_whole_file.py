"""A file is there whole or not at all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from workbench.report.whole_file import write_whole


def test_a_new_file_and_its_folder_are_made(tmp_path):
    path = write_whole(tmp_path / "reports" / "first.html", "客服")
    assert path.read_text(encoding="utf-8") == "客服"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("step", ["write", "fsync", "replace"])
def test_a_failure_keeps_the_old_file_and_leaves_nothing_behind(tmp_path, monkeypatch, step):
    """REL-07."""
    path = write_whole(tmp_path / "report.html", "old")

    def fail(*_args: object) -> None:
        raise OSError(28, "No space left on device")

    if step == "write":
        monkeypatch.setattr(os, "fdopen", fail)
    elif step == "fsync":
        monkeypatch.setattr(os, "fsync", fail)
    else:
        monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="No space left"):
        write_whole(path, "new")
    assert path.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(os.name != "posix", reason="asks for a process by signal 0")
def test_what_a_killed_writer_left_is_cleared_by_the_next_one(tmp_path):
    """REL-07."""
    done = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True, check=True
    )
    abandoned = tmp_path / f".report.html.{int(done.stdout)}-abcd.part"
    in_use = tmp_path / f".report.html.{os.getpid()}-abcd.part"
    foreign = tmp_path / ".report.html.notes.part"
    for path in (abandoned, in_use, foreign):
        path.write_text("half", encoding="utf-8")
    write_whole(tmp_path / "report.html", "new")
    assert not abandoned.exists()
    assert in_use.exists()
    assert foreign.exists()


def test_a_link_stays_a_link(tmp_path):
    real = tmp_path / "real.html"
    real.write_text("old", encoding="utf-8")
    link = tmp_path / "link.html"
    link.symlink_to(real)
    write_whole(link, "new")
    assert link.is_symlink()
    assert real.read_text(encoding="utf-8") == "new"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_device_is_an_error_and_stays_a_device():
    """REL-07."""
    with pytest.raises(OSError, match="No space left"):
        write_whole("/dev/full", "text")
    assert not Path("/dev/full").is_file()


def test_a_report_is_as_readable_as_any_other_new_file(tmp_path):
    plain = tmp_path / "plain.txt"
    plain.write_text("x", encoding="utf-8")
    assert write_whole(tmp_path / "report.html", "x").stat().st_mode == plain.stat().st_mode
