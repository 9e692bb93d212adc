"""DuckDB files: rows in, rows out, nothing else (SEC-02, SEC-03)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from workbench.errors import StoreCorruptError, StoreError, StoreLockedError
from workbench.store.tables import Columns, Row, TableFile, check_is_duckdb, query_files, read_table, read_together

COLUMNS = {"t": [("text", "VARCHAR"), ("n", "BIGINT")]}


def written(path: Path, rows: Sequence[Row], columns: Mapping[str, Columns] = COLUMNS) -> Path:
    file = TableFile(path)
    file.create(columns)
    file.append({"t": rows})
    file.close()
    return path


def test_rows_come_back_as_they_went_in(tmp_path: Path) -> None:
    rows = [("汉\x00字 '\"", 2**40), (None, None)]
    path = written(tmp_path / "a.duckdb", rows)
    assert read_table(path, "t") == (["text", "n"], rows)
    assert read_table(path, "t", where={"n": 2**40})[1] == rows[:1]


def test_half_a_surrogate_pair_is_written_as_its_escape(tmp_path: Path) -> None:
    """BUG-28, M16."""
    path = written(tmp_path / "a.duckdb", [("a\ud83d", 1)])
    assert read_table(path, "t")[1] == [("a\\ud83d", 1)]


def test_a_block_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    """WB-RPL-11."""
    file = TableFile(tmp_path / "a.duckdb")
    file.create({**COLUMNS, "u": [("n", "BIGINT")]})
    with pytest.raises(StoreError):
        file.append({"t": [("fine", 1)], "u": [("not a number",)]})
    file.append({"t": [("next", 2)]})
    assert file.read("SELECT * FROM t") == (["text", "n"], [("next", 2)])
    file.close()
    file.close()
    assert read_table(tmp_path / "a.duckdb", "t")[1] == [("next", 2)]


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "is empty"), (b"SQLite format 3\x00....", "is a SQLite file"), (b"plain text, long enough", "another kind")],
)
def test_other_files_are_refused_before_duckdb_sees_them(content: bytes, message: str, tmp_path: Path) -> None:
    """SEC-03, M6, B38."""
    path = tmp_path / "x.duckdb"
    path.write_bytes(content)
    with pytest.raises(StoreCorruptError, match=message):
        check_is_duckdb(path)
    with pytest.raises(StoreCorruptError, match="folder"):
        check_is_duckdb(tmp_path)
    with pytest.raises(StoreError, match="doesn't exist"):
        check_is_duckdb(tmp_path / "gone.duckdb")


def test_a_file_held_by_another_process_names_the_holder(tmp_path: Path) -> None:
    """BUG-29, REL-04."""
    path = written(tmp_path / "a.duckdb", [])
    script = "import duckdb, sys; c = duckdb.connect(sys.argv[1]); print('open', flush=True); sys.stdin.read()"
    holder = subprocess.Popen(
        [sys.executable, "-c", script, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        with pytest.raises(StoreLockedError, match=f"process {holder.pid} holds the file"):
            read_table(path, "t")
    finally:
        holder.communicate("")


def test_several_files_answer_as_one_and_names_are_only_names(tmp_path: Path) -> None:
    """SEC-01."""
    files = {}
    for name in ("one", "two'; DROP TABLE t; --"):
        files[name] = written(tmp_path / f"{len(files)} it's.duckdb", [(name, 1)])
    columns, rows = query_files(files, ["t"], 'SELECT "file", text FROM t ORDER BY ALL', key="file")
    assert columns == ["file", "text"]
    assert rows == [(name, name) for name in sorted(files)]


PAIR = {"first": [("key", "VARCHAR")], "second": [("key", "VARCHAR"), ("n", "BIGINT")]}


def paired(path: Path, second: Sequence[Row]) -> Path:
    file = TableFile(path)
    file.create(PAIR)
    file.append({"first": [("a",), ("b",), ("c",)], "second": second})
    file.close()
    return path


def test_tables_that_were_written_together_are_read_together(tmp_path: Path) -> None:
    path = paired(tmp_path / "a.duckdb", [("a", 1), ("a", 2), ("c", 3)])
    found = [
        (row["key"], [one["n"] for one in rows["second"]])
        for row, rows in read_together(path, "first", ["second"], key="key")
    ]
    assert found == [("a", [1, 2]), ("b", []), ("c", [3])]


@pytest.mark.parametrize("rows", [[("c", 1), ("a", 2)], [("d", 1)]])
def test_rows_out_of_order_are_never_left_out_silently(tmp_path: Path, rows: Sequence[Row]) -> None:
    path = paired(tmp_path / "a.duckdb", rows)
    with pytest.raises(StoreCorruptError, match=r"second of key '[ad]' are out of order"):
        list(read_together(path, "first", ["second"], key="key"))
