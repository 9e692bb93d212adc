"""Names that data give to files stay inside their folder, or are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench.errors import UnsafePathError
from workbench.paths import files_inside, path_inside

UNSAFE = [
    "", " ", "..", "../x", "a/../../x", "a/..", "...", "a/.../b", ". ./x", ".. /x",
    "/etc/passwd", "//server/share/x", "~/x", "~root/x",
    "C:\\x", "C:/x", "c:x", "x:stream", "\\\\server\\share\\x", "a\\..\\..\\x", "..\\x",
    "a\x00b", "a\nb", "a\x1b[2Jb", "a\u202eb", "\ufeffx",
    "\uff0e\uff0e/x", "\u2024\u2024/x", "\u2025/x", "a\u2215b", "a\uff0fb", "a\u2044b",
    "CON", "nul.jsonl", "a/PRN", "COM1", "lpt9.txt", "aux.tar.gz",
    "x.", "x ", "a./b",
    "a" * 300, "日" * 100,
]  # fmt: skip


@pytest.mark.parametrize("name", UNSAFE, ids=ascii)
def test_a_name_that_leads_outside_or_nowhere_is_refused(name: str, tmp_path: Path) -> None:
    """SEC-05."""
    with pytest.raises(UnsafePathError) as caught:
        path_inside(tmp_path, name)
    assert caught.value.path == name
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    assert str(caught.value).isprintable()
    with pytest.raises(UnsafePathError):
        files_inside(tmp_path, name)


@pytest.mark.parametrize(
    "pattern", ["../*.jsonl", "/etc/*", "*/../../*", "a\\*", "c:*", "*\x00", "\uff0e\uff0e/*", "a**.jsonl"], ids=ascii
)
def test_a_pattern_that_leads_outside_is_refused(pattern: str, tmp_path: Path) -> None:
    """SEC-05."""
    with pytest.raises(UnsafePathError):
        files_inside(tmp_path, pattern)


def test_plain_names_are_fine(tmp_path: Path) -> None:
    for name in ("a.jsonl", "a/b.jsonl", "./a", "数据/聊天.jsonl", ".hidden", "console.txt", "a..b", "com10"):
        assert path_inside(tmp_path, name) == tmp_path / name


def test_a_link_that_leads_out_is_refused(tmp_path: Path) -> None:
    """SEC-05: links in and out."""
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    for folder in (inside, outside):
        folder.mkdir()
        (folder / "a.jsonl").write_text("{}\n", encoding="utf-8")
    (inside / "out.jsonl").symlink_to(outside / "a.jsonl")
    (inside / "folder").symlink_to(outside)
    (inside / "fine.jsonl").symlink_to(inside / "a.jsonl")
    (inside / "circle").symlink_to(inside / "circle")
    for name in ("out.jsonl", "folder/a.jsonl", "folder", "folder/new.jsonl", "circle/x"):
        with pytest.raises(UnsafePathError):
            path_inside(inside, name)
    assert path_inside(inside, "fine.jsonl") == inside / "fine.jsonl"
    with pytest.raises(UnsafePathError):
        files_inside(inside, "*.jsonl")
    before = sorted(path.name for path in outside.iterdir())
    assert before == ["a.jsonl"]


def test_a_folder_and_a_pattern_stand_for_their_files(tmp_path: Path) -> None:
    (tmp_path / "chats").mkdir()
    for name in ("b", "a", "c"):
        (tmp_path / "chats" / f"{name}.jsonl").write_text("{}\n", encoding="utf-8")
    (tmp_path / "chats" / "note.md").write_text("x", encoding="utf-8")
    assert [path.name for path in files_inside(tmp_path, "chats/*.jsonl")] == ["a.jsonl", "b.jsonl", "c.jsonl"]
    assert [path.name for path in files_inside(tmp_path, "chats")] == ["a.jsonl", "b.jsonl", "c.jsonl", "note.md"]
    assert files_inside(tmp_path, "other/*.jsonl") == []
    assert files_inside(tmp_path, "missing.jsonl") == []


def test_a_folder_seen_through_a_link_is_itself(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir()
    (real / "a.jsonl").write_text("{}\n", encoding="utf-8")
    (tmp_path / "link").symlink_to(real)
    assert files_inside(tmp_path / "link", "a.jsonl") == [tmp_path / "link" / "a.jsonl"]
