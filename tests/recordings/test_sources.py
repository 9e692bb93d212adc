"""Which files are read, and which are left alone: folders, links, archives, names."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import stat
import tracemalloc
import zipfile
from pathlib import Path

import pytest

from tests.recordings.files import jsonl, say, texts
from workbench.errors import RecordingError
from workbench.recordings import load_recordings, sources
from workbench.recordings.load import _Pass
from workbench.recordings.sources import leads_outside, refused_suffix

RECORD = {"messages": [say("user", "a"), say("assistant", "b")]}


def names(recordings) -> list[str]:
    return [conversation.source.rsplit("/", 1)[-1] for conversation in recordings]


def skipped(recordings) -> dict[str, str]:
    return {Path(item.path).name: item.reason for item in recordings.skipped}


def packed(text: bytes) -> bytes:
    return gzip.compress(text)


def line(n_chars: int = 1) -> bytes:
    """One record whose question has this many characters."""
    return json.dumps({"messages": [say("user", "a" * n_chars), say("assistant", "b")]}).encode() + b"\n"


# --- folders and globs -----------------------------------------------------------------------------------


def test_a_folder_is_walked_in_sorted_order_whatever_the_names_say(tmp_path):
    """WB-REC-01."""
    (tmp_path / "sub").mkdir()
    for name in ("b.txt", "a.log", "sub/c.jsonl"):
        jsonl(tmp_path / name, RECORD)
    assert names(load_recordings(tmp_path)) == ["a.log", "b.txt", "c.jsonl"]


def test_a_file_that_is_given_twice_is_read_once_with_a_note(tmp_path, monkeypatch):
    """WB-REC-01: whatever its spelling; a copy is another file."""
    monkeypatch.chdir(tmp_path)
    for name in ("a.jsonl", "b.jsonl"):
        jsonl(tmp_path / name, RECORD)
    (tmp_path / "link.jsonl").symlink_to("a.jsonl")
    recordings = load_recordings(["a.jsonl", "./a.jsonl", tmp_path / "a.jsonl", "link.jsonl", "b.jsonl"])
    assert [conversation.id for conversation in recordings] == ["a-00001", "b-00001"]
    assert len(recordings) == len(recordings.load()) == 2
    assert texts(recordings) == ["leads to a.jsonl again; each file is read once"] * 3
    assert [problem.path for problem in recordings.problems] == ["./a.jsonl", str(tmp_path / "a.jsonl"), "link.jsonl"]
    assert {problem.severity for problem in recordings.problems} == {"note"}


def test_files_of_a_folder_that_come_again_make_one_note(tmp_path):
    """WB-REC-01: folder, pattern and name may overlap."""
    for name in ("a.jsonl", "b.jsonl", "c.jsonl"):
        jsonl(tmp_path / name, RECORD)
    recordings = load_recordings([tmp_path / "c.jsonl", tmp_path, str(tmp_path / "[ab]*.jsonl")])
    assert names(recordings) == ["c.jsonl", "a.jsonl", "b.jsonl"]
    assert texts(recordings) == [
        f"leads to {tmp_path / 'c.jsonl'} again; each file is read once",
        "2 of its files come again; each file is read once",
    ]


def test_files_that_no_format_recognises_are_listed_as_skipped(tmp_path):
    """WB-REC-01: in a folder no problem, by name an error."""
    jsonl(tmp_path / "a.jsonl", RECORD)
    (tmp_path / "LICENSE").write_text("Permission is granted\n")
    (tmp_path / "list.json").write_text("[1, 2, 3]")
    (tmp_path / "settings.json").write_text('{"a": 1}')
    (tmp_path / ".hidden").write_text("x")
    (tmp_path / "picture").write_bytes(b"\x89PNG\r\n\x1a\n\x00\x00\xff")
    recordings = load_recordings(tmp_path)
    assert skipped(recordings) == {
        "LICENSE": "not a recording",
        "list.json": "not a recording",
        "settings.json": "not a recording",
        ".hidden": "hidden",
        "picture": "not a recording",
    }
    assert recordings.problems == ()
    for name in ("LICENSE", "list.json", "picture"):
        with pytest.raises(RecordingError, match="no recording format recognises this file"):
            load_recordings(tmp_path / name)


def test_globs_and_lists_of_paths_are_read(tmp_path):
    """WB-REC-01."""
    for name in ("a.jsonl", "b.jsonl", "c.json"):
        jsonl(tmp_path / name, RECORD)
    assert names(load_recordings(str(tmp_path / "*.jsonl"))) == ["a.jsonl", "b.jsonl"]
    assert names(load_recordings([tmp_path / "c.json", str(tmp_path / "a.jsonl")])) == ["c.json", "a.jsonl"]
    assert len(load_recordings(str(tmp_path / "**"))) == 3
    assert len(load_recordings(str(tmp_path.parent / (tmp_path.name[:-1] + "?")))) == 3


def test_a_name_with_glob_characters_is_a_name_if_it_exists(tmp_path):
    jsonl(tmp_path / "a[1].jsonl", RECORD)
    assert len(load_recordings(tmp_path / "a[1].jsonl")) == 1


def test_a_missing_path_names_the_nearest(tmp_path):
    jsonl(tmp_path / "recording.jsonl", RECORD)
    with pytest.raises(RecordingError, match="does not exist") as missing:
        load_recordings(tmp_path / "recordings.jsonl")
    assert missing.value.hint == "did you mean recording.jsonl?"
    for wrong in (tmp_path / "no" / "where.jsonl", tmp_path / "*.csv"):
        with pytest.raises(RecordingError):
            load_recordings(wrong)


@pytest.mark.parametrize("wrong", ["a\0b", "/dev/null"])
def test_what_is_no_file_is_refused(wrong):
    with pytest.raises(RecordingError):
        load_recordings(wrong)


def test_an_empty_folder_is_an_error(tmp_path):
    """WB-REC-07: zero messages."""
    with pytest.raises(RecordingError, match="no conversation found"):
        load_recordings(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file_is_an_error_by_name_and_a_problem_in_a_folder(tmp_path):
    jsonl(tmp_path / "a.jsonl", RECORD)
    locked = jsonl(tmp_path / "locked.jsonl", RECORD)
    locked.chmod(0)
    with pytest.raises(RecordingError, match="can't be read"):
        load_recordings(locked)
    assert texts(load_recordings(tmp_path)) == ["can't be read: Permission denied"]


def test_links_that_lead_outside_are_problems_and_others_are_read_once(tmp_path):
    """SEC-05."""
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    outside.mkdir()
    inside.mkdir()
    jsonl(outside / "secret.jsonl", RECORD)
    jsonl(inside / "a.jsonl", RECORD)
    (inside / "out.jsonl").symlink_to(outside / "secret.jsonl")
    (inside / "folder").symlink_to(outside)
    (inside / "again.jsonl").symlink_to(inside / "a.jsonl")
    (inside / "broken.jsonl").symlink_to(inside / "nothing.jsonl")
    (inside / "loop").symlink_to(inside)
    recordings = load_recordings(inside)
    assert names(recordings) == ["a.jsonl"]
    assert texts(recordings) == [f"link leads outside {inside}; name its target directly"] * 2
    assert skipped(recordings)["again.jsonl"] == "link into the same folder"


def test_a_pipe_in_a_folder_does_not_block(tmp_path):
    jsonl(tmp_path / "a.jsonl", RECORD)
    os.mkfifo(tmp_path / "pipe")
    assert skipped(load_recordings(tmp_path)) == {"pipe": "not a regular file"}


# --- files that can hold code ----------------------------------------------------------------------------


class Trap:
    """Unpickled, it would leave a mark."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return (os.mkdir, (str(self.mark),))


@pytest.mark.parametrize(
    "name",
    ["a.pkl", "a.pickle", "a.joblib", "a.npy", "a.npz", "a.pt", "a.yaml", "a.YML", "a.shelve", "a.pkl.gz"],
)
def test_files_that_can_hold_code_are_refused_by_name(name, tmp_path):
    """SEC-04."""
    mark = tmp_path / "mark"
    folder = tmp_path / "data"
    folder.mkdir()
    jsonl(folder / "good.jsonl", RECORD)
    (folder / name).write_bytes(pickle.dumps(Trap(mark)))
    with pytest.raises(RecordingError, match="files are not read"):
        load_recordings(folder / name)
    assert "files are not read" in skipped(load_recordings(folder))[name]
    assert not mark.exists()


def test_a_suffix_in_the_middle_of_a_name_says_nothing():
    assert refused_suffix("notes.yaml.jsonl") == ""
    assert refused_suffix("x/y.yaml.gz") == ".yaml"


# --- packed files ----------------------------------------------------------------------------------------


def test_gzip_and_zip_members_are_read(tmp_path):
    """WB-REC-01."""
    (tmp_path / "a.jsonl.gz").write_bytes(packed(line()))
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as archive:
        archive.writestr("z/late.jsonl", line())
        archive.writestr("early.jsonl.gz", packed(line()))
        archive.writestr("README", "text")
        archive.writestr("traps.pkl", b"x")
        archive.mkdir("empty")
    recordings = load_recordings(tmp_path)
    assert [Path(c.source).name for c in recordings] == ["a.jsonl.gz", "early.jsonl.gz", "late.jsonl"]
    assert [c.id for c in recordings] == ["a-00001", "early-00001", "late-00001"]
    assert skipped(recordings) == {"README": "not a recording", "traps.pkl": ".pkl files are not read"}


def test_what_packed_files_hold_decides_not_their_name(tmp_path):
    (tmp_path / "plain").write_bytes(packed(line()))
    assert len(load_recordings(tmp_path / "plain")) == 1


UNSAFE = [
    "../../x.jsonl", "..", "a/../../x", "/etc/x", "//server/share/x", "\\\\server\\share\\x", "..\\x", "a\\..\\..\\x",
    "C:\\x", "c:x", "C:/x", "a/..", "a/.. /x", "\uff0e\uff0e/x", "\u2025/x", "\u2024\u2024/x", "a\0.jsonl", "x" * 300,
]  # fmt: skip


@pytest.mark.parametrize("name", UNSAFE, ids=[ascii(name)[:20] for name in UNSAFE])
def test_names_that_lead_outside_are_told(name):
    """SEC-05."""
    assert leads_outside(name)


@pytest.mark.parametrize("name", ["a.jsonl", "a/b.jsonl", "a..b/c", "...", "汉/あ.jsonl", ".hidden"])
def test_ordinary_names_are_not(name):
    assert not leads_outside(name)


def test_unsafe_members_are_problems_and_nothing_is_written(tmp_path):
    """SEC-05: 0 files outside the given folder."""
    folder = tmp_path / "data"
    folder.mkdir()
    with zipfile.ZipFile(folder / "a.zip", "w") as archive:
        archive.writestr("good.jsonl", line())
        archive.writestr("../escaped.jsonl", line())
        link = zipfile.ZipInfo("link.jsonl")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
    recordings = load_recordings(folder)
    assert names(recordings) == ["good.jsonl"]
    assert sorted(texts(recordings)) == [
        'member "../escaped.jsonl" leads outside; not read',
        'member "link.jsonl" leads outside; not read',
    ]
    assert [entry.name for entry in tmp_path.rglob("*")] == ["data", "a.zip"]


def test_unpacking_stops_at_the_limit(tmp_path):
    """SEC-12: by bytes, never by ratio: logged requests compress a hundredfold."""
    bomb = line(20_000) * 150
    (tmp_path / "bomb.jsonl.gz").write_bytes(packed(bomb))
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for n in range(3):
            archive.writestr(f"{n}.jsonl", bomb[: len(bomb) // 2])
    recordings = load_recordings(tmp_path, max_unpacked_mb=2)
    assert set(texts(recordings)) == {"unpacks to more than the limit; raise --max-unpacked-mb"}
    assert 0 < len(recordings) < 375
    assert load_recordings(tmp_path).problems == ()


def test_a_nested_bomb_is_counted_too(tmp_path):
    """SEC-12."""
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w") as archive:
        archive.writestr("inner.jsonl.gz", packed(b" " * 5_000_000 + line()))
    with pytest.raises(RecordingError, match="unpacks to more than the limit"):
        load_recordings(tmp_path, max_unpacked_mb=2)


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (lambda data: data[:-300], "compressed data ends early; the file may be cut"),
        (lambda data: data[:200] + b"\xff" * 40 + data[240:], "compressed data is damaged; pack it again"),
    ],
)
def test_damaged_gzip_gives_what_was_whole(damage, expected, tmp_path):
    rows = b"".join(line().replace(b'"a"', f'"{os.urandom(40).hex()}"'.encode()) for _ in range(50))
    jsonl(tmp_path / "good.jsonl", RECORD)
    (tmp_path / "bad.jsonl.gz").write_bytes(damage(packed(rows)))
    recordings = load_recordings(tmp_path)
    assert expected in texts(recordings)
    assert names(recordings)[-1] == "good.jsonl"


@pytest.mark.parametrize("data", [b"PK\x03\x04 not really", b"PK\x05\x06"], ids=["head", "end"])
def test_a_damaged_zip_is_said(data, tmp_path):
    jsonl(tmp_path / "good.jsonl", RECORD)
    (tmp_path / "bad.zip").write_bytes(data)
    assert texts(load_recordings(tmp_path)) == ["is a damaged zip archive; pack it again"]
    with pytest.raises(RecordingError, match="is a damaged zip archive"):
        load_recordings(tmp_path / "bad.zip")


def test_zstd_without_a_reader_says_what_to_do(tmp_path, monkeypatch):
    def absent(name):
        raise ImportError(name)

    monkeypatch.setattr(sources, "import_module", absent)
    jsonl(tmp_path / "good.jsonl", RECORD)
    (tmp_path / "a.jsonl.zst").write_bytes(b"\x28\xb5\x2f\xfd rest")
    assert texts(load_recordings(tmp_path)) == ["packed with zstd, which needs Python 3.14; unpack it first"]


def test_an_encrypted_member_is_said(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("good.jsonl", line())
        archive.writestr("locked.jsonl", line())
    data = bytearray((tmp_path / "a.zip").read_bytes())
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.rfind(signature) + offset] |= 1  # the flag "encrypted" of the last member
    (tmp_path / "a.zip").write_bytes(data)
    recordings = load_recordings(tmp_path)
    assert len(recordings) == 1
    assert texts(recordings) == ["encrypted, or packed in an unknown way; unpack it first"]


def test_memory_stays_flat_over_many_conversations(tmp_path):
    """REL-12."""
    path = tmp_path / "many.jsonl"
    record = line(20_000)
    peaks = []
    for n in (50, 400):
        path.write_bytes(record * n)
        recordings = load_recordings(path)
        tracemalloc.start()
        assert sum(1 for _ in recordings._walk(_Pass())) == n
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 2 * peaks[0] + 1_000_000


def test_memory_stays_flat_over_a_long_array(tmp_path):
    """REL-12: a document isn't read whole."""
    path = tmp_path / "many.json"
    path.write_bytes(b"[" + b",\n".join([line(20_000).strip()] * 600) + b"]")
    recordings = load_recordings(path)
    tracemalloc.start()
    assert sum(1 for _ in recordings._walk(_Pass())) == 600
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert path.stat().st_size > 11_900_000
    assert peak < 11_000_000
