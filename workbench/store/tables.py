"""Rows in, rows out of DuckDB files; knows nothing of what the rows mean.

In: table descriptions and tuples. Out: files that other processes can read once they are whole, and answers
to SQL. A file that isn't DuckDB's is refused before DuckDB sees it, and no connection may touch other files
or the network (SEC-02, -03).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import duckdb

from workbench.errors import StoreCorruptError, StoreError, StoreFullError, StoreLockedError

Row = tuple[Any, ...]
Columns = Sequence[tuple[str, str]]
"""Name and DuckDB type of each column."""

_MAGIC = b"DUCK"
_MAGIC_OFFSET = 8
_SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "threads": "1",
    "memory_limit": "512MB",
    # A run has many columns of few bytes: in the smallest blocks its file is less than half as large.
    "default_block_size": "16384",
}
_FETCHED = 1_000
_LOCKED_AFTER = (
    "SET enable_external_access = false",
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
    "SET allow_community_extensions = false",
    "SET python_enable_replacements = false",
    "SET lock_configuration = true",
)


def quote_identifier(name: str) -> str:
    """A name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def check_is_duckdb(path: Path) -> None:
    """Raise unless `path` is a DuckDB file.

    Raises:
        StoreError: there is no such file.
        StoreCorruptError: another kind of file; opening it could make DuckDB look for an extension.
    """
    if path.is_dir():
        raise StoreCorruptError(f"{path}: is a folder, not a DuckDB file", path=path, hint="give the file")
    try:
        with path.open("rb") as file:
            head = file.read(_MAGIC_OFFSET + len(_MAGIC))
    except FileNotFoundError as error:
        raise StoreError(f"{path}: doesn't exist", hint="check the path") from error
    except OSError as error:
        raise StoreError(f"{path}: can't be read: {error.strerror}") from error
    if head[_MAGIC_OFFSET:] != _MAGIC:
        kind = "a SQLite file" if head.startswith(b"SQLite") else "empty" if not head else "another kind of file"
        raise StoreCorruptError(f"{path}: is {kind}, not DuckDB", path=path, hint="give a DuckDB file")


@contextmanager
def open_tables(path: Path, *, read_only: bool) -> Iterator[duckdb.DuckDBPyConnection]:
    """A locked-down connection to one file, closed at the end of the `with` block.

    Raises:
        StoreLockedError: another process holds the file.
        StoreCorruptError: not a DuckDB file, or a damaged one.
        StoreFullError: no room on the disk.
    """
    if read_only or path.exists():
        check_is_duckdb(path)
    with translated(path):
        connection = duckdb.connect(str(path), read_only=read_only, config=_SETTINGS)
        try:
            for statement in _LOCKED_AFTER:
                connection.execute(statement)
            yield connection
        finally:
            connection.close()


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """DuckDB's and the disk's errors as this package's."""
    try:
        yield
    except duckdb.Error as error:
        raise _error_from(error, path) from error
    except OSError as error:
        raise StoreFullError(f"{path}: can't be written: {error.strerror}", hint="free some space") from error


def _error_from(error: duckdb.Error, path: Path) -> StoreError:
    text = str(error)
    lowered = text.lower()
    if "conflicting lock" in lowered or "could not set lock" in lowered:
        match = re.search(r"PID (\d+)", text)
        pid = int(match[1]) if match else None
        holder = f"process {pid}" if pid else "another process"
        return StoreLockedError(f"{path}: {holder} holds the file", path=path, pid=pid, hint="wait, or end it")
    if any(word in lowered for word in ("no space left", "disk full", "file too large", "could not write")):
        return StoreFullError(f"{path}: no room on the disk", hint="free some space and run the command again")
    if isinstance(error, duckdb.ParserException | duckdb.CatalogException | duckdb.BinderException):
        return StoreError(text.splitlines()[0], hint="see `workbench sql --tables` for tables and columns")
    if isinstance(error, duckdb.ConversionException | duckdb.OutOfRangeException | duckdb.InvalidInputException):
        return StoreError(text.splitlines()[0], hint="the query can't be computed for these values")
    if isinstance(error, duckdb.ConstraintException):
        return StoreError(f"{path}: somebody else wrote the same rows", hint="run the command again")
    return StoreCorruptError(f"{path}: {text.splitlines()[0]}", path=path)


class TableFile:
    """A file of tables, held open for writing: opening one takes longer than most of what is done with it.

    Raises:
        StoreLockedError: another process holds the file.
        StoreCorruptError: not a DuckDB file, or a damaged one.
        StoreFullError: no room on the disk.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stack = ExitStack()
        self._connection = self._stack.enter_context(open_tables(path, read_only=False))

    def close(self) -> None:
        """Write everything into the file itself and let it go; calling it again is harmless."""
        self._stack.close()

    def create(self, tables: Mapping[str, Columns]) -> None:
        """Empty tables."""
        with translated(self._path):
            for name, columns in tables.items():
                parts = ", ".join(f"{quote_identifier(column)} {kind}" for column, kind in columns)
                self._connection.execute(f"CREATE TABLE {quote_identifier(name)} ({parts})")

    def append(self, rows: Mapping[str, Sequence[Row]]) -> None:
        """Add rows to several tables in one transaction: all of them or none."""
        with translated(self._path):
            self._connection.execute("BEGIN")
            try:
                for name, batch in rows.items():
                    if batch:
                        appender = self._connection.appender(name)
                        appender.append_rows([_storable(row) for row in batch])
                        appender.flush()
                self._connection.execute("COMMIT")
            except BaseException:
                with suppress(duckdb.Error):  # a failed commit has rolled back already
                    self._connection.execute("ROLLBACK")
                raise

    def read(self, sql: str, parameters: Sequence[Any] = ()) -> tuple[list[str], list[Row]]:
        """Column names and rows of a query."""
        with translated(self._path):
            cursor = self._connection.execute(sql, list(parameters))
            return [description[0] for description in cursor.description or ()], cursor.fetchall()


def _storable(row: Row) -> Row:
    """Half a surrogate pair, which JSON can bring, isn't text to DuckDB: it is written as its escape."""
    try:
        for value in row:
            if isinstance(value, str):
                value.encode()
    except UnicodeEncodeError:
        return tuple(
            value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value for value in row
        )
    return row


def read_table(path: Path, name: str, *, where: Mapping[str, Any] | None = None) -> tuple[list[str], list[Row]]:
    """All rows of a table, in stored order, optionally those with certain values."""
    return read_tables(path, [name], where=where)[name]


def read_tables(
    path: Path, names: Sequence[str], *, where: Mapping[str, Any] | None = None
) -> dict[str, tuple[list[str], list[Row]]]:
    """`read_table` of several tables that have the same columns to select by; the file is opened once."""
    conditions = where or {}
    clause = " AND ".join(f"{quote_identifier(column)} = ?" for column in conditions)
    found = {}
    with open_tables(path, read_only=True) as connection:
        for name in names:
            sql = f"SELECT * FROM {quote_identifier(name)}" + (f" WHERE {clause}" if clause else "")  # noqa: S608 - quoted
            cursor = connection.execute(sql, list(conditions.values()))
            found[name] = [description[0] for description in cursor.description or ()], cursor.fetchall()
    return found


def read_together(
    path: Path, first: str, others: Sequence[str], *, key: str
) -> Iterator[tuple[dict[str, Any], dict[str, list[dict[str, Any]]]]]:
    """Rows of one table, each with the rows of the other tables that have the same key; all were written in one order.

    Raises:
        StoreCorruptError: a table has rows in another order, or of a key that the first doesn't have.
    """
    with open_tables(path, read_only=True) as connection:
        streams = {name: _streamed(connection.cursor(), name) for name in (first, *others)}
        waiting = {name: next(streams[name], None) for name in others}
        for row in streams[first]:
            found: dict[str, list[dict[str, Any]]] = {name: [] for name in others}
            for name, rows in found.items():
                while (one := waiting[name]) is not None and one[key] == row[key]:
                    rows.append(one)
                    waiting[name] = next(streams[name], None)
            yield row, found
        for name, left in waiting.items():
            if left is not None:
                raise StoreCorruptError(
                    f"{path}: {name} of {key} {left[key]!r} are out of order",
                    path=path,
                    hint="replay again with --fresh",
                )


def _streamed(connection: duckdb.DuckDBPyConnection, table: str) -> Iterator[dict[str, Any]]:
    cursor = connection.execute(f"SELECT * FROM {quote_identifier(table)}")  # noqa: S608 - quoted
    columns = [description[0] for description in cursor.description or ()]
    while rows := cursor.fetchmany(_FETCHED):
        for row in rows:
            yield dict(zip(columns, row, strict=True))


def query_files(files: Mapping[str, Path], views: Sequence[str], sql: str, *, key: str) -> tuple[list[str], list[Row]]:
    """SQL over several files of the same shape: each view is the union of one table, `key` names the file.

    Args:
        files: What the `key` column says -> the file.
        views: Tables that all files have.

    Raises:
        StoreError: the SQL is wrong; the text is DuckDB's first line.
    """
    if not files:
        raise StoreError("there is no finished run to query", hint="run `workbench replay` first")
    for path in files.values():
        check_is_duckdb(path)
    with translated(next(iter(files.values()))):
        connection = duckdb.connect(":memory:", config=_SETTINGS)
        try:
            for i, path in enumerate(files.values()):
                location = str(path).replace("'", "''")
                connection.execute(f"ATTACH '{location}' AS file{i} (READ_ONLY)")
            for view in views:
                selects = " UNION ALL ".join(
                    f"SELECT {_literal(label)} AS {quote_identifier(key)}, * FROM file{i}.{quote_identifier(view)}"  # noqa: S608
                    for i, label in enumerate(files)
                )
                connection.execute(f"CREATE VIEW {quote_identifier(view)} AS {selects}")
            for statement in _LOCKED_AFTER:
                connection.execute(statement)
            cursor = connection.execute(sql)
            columns = [description[0] for description in cursor.description or ()]
            return columns, cursor.fetchall()
        finally:
            connection.close()


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
