"""Tables as text: rows of comma-, tab- or semicolon-separated files, each by the names in the first line.

In: a binary stream. Out: `Row`s whose values are objects of texts, or the fault that stands in the place of one,
so that one broken row never hides the next (REL-11). A cell in quotes may hold delimiters, line ends and doubled
quotes. Spreadsheets run texts that start like a formula, so writers put an apostrophe before them; it's taken off
here (SEC-06).
"""

from __future__ import annotations

import io
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence

from workbench.recordings.problems import FaultyRecordError, quoted
from workbench.recordings.rows import BOM, Row
from workbench.recordings.sources import MB

DELIMITERS = (",", "\t", ";", "|")
_FORMULA = re.compile("'(?=[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20])")
_ESCAPED_BYTE = re.compile("[\udc80-\udcff]")
_ROLE_KEYS = ("user", "assistant")

TEXT_COLUMNS = ("content", "text", "message", "utterance", "body", "value")
SPEAKER_COLUMNS = ("role", "speaker", "from", "sender", "author")
ID_COLUMNS = ("conversation_id", "session_id", "dialogue_id", "dialog_id", "thread_id", "chat_id", "conversation")
TIME_COLUMNS = ("timestamp", "time", "created_at", "datetime", "date")


def delimiter_of(first_line: str) -> str:
    """What separates the names in the first line; a comma where nothing does."""
    outside = re.sub(r'"[^"]*"', "", first_line)
    return max(DELIMITERS, key=outside.count)


def known_columns(names: Sequence[str]) -> dict[str, str]:
    """Text, speaker, id and time among the names of a table, as a mapping; empty without text and speaker."""
    by_name = {name.strip().lower(): name for name in reversed(names)}
    wanted = {"text": TEXT_COLUMNS, "speaker": SPEAKER_COLUMNS, "id": ID_COLUMNS, "time": TIME_COLUMNS}
    found = {
        key: by_name[next(name for name in candidates if name in by_name)]
        for key, candidates in wanted.items()
        if any(name in by_name for name in candidates)
    }
    return found if {"text", "speaker"} <= found.keys() else {}


def columns_of(mapping: Mapping[str, str]) -> dict[str, str]:
    """The part of a mapping that names columns: with `text`, user and assistant are names of speakers."""
    return {key: name for key, name in mapping.items() if "text" not in mapping or key not in _ROLE_KEYS}


def is_table(head: bytes, mapping: Mapping[str, str] | None) -> bool:
    """The first line names columns that are mapped, or that say by themselves what they are."""
    line = head.removeprefix(BOM).split(b"\n", 1)[0].decode("utf-8", "replace")
    if line.lstrip()[:1] in ("{", "["):
        return False
    parser = _Parser(delimiter_of(line))
    try:
        parser.take(line)
    except FaultyRecordError:
        return False
    if mapping is None:
        return bool(known_columns(parser.cells))
    return bool(set(columns_of(mapping).values()) & set(parser.cells))


class _Parser:
    """The cells of one row, line by line."""

    def __init__(self, delimiter: str) -> None:
        self._delimiter = delimiter
        self._quoted: list[str] | None = None
        self.cells: list[str] = []

    def take(self, line: str) -> bool:
        """Take one line; False when a cell in quotes goes on in the next.

        Raises:
            FaultyRecordError: something stands behind a closing quote.
        """
        at = 0
        while True:
            if self._quoted is None and line[at : at + 1] == '"':
                self._quoted = []
                at += 1
            if self._quoted is None:
                end = line.find(self._delimiter, at)
                self.cells.append(line[at:end] if end >= 0 else line[at:].rstrip("\r\n"))
            else:
                closing = line.find('"', at)
                if closing < 0:
                    self._quoted.append(line[at:])
                    return False
                self._quoted.append(line[at:closing])
                at = closing + 1
                if line[at : at + 1] == '"':
                    self._quoted.append('"')
                    at += 1
                    continue
                end = line.find(self._delimiter, at)
                if (line[at:end] if end >= 0 else line[at:]).strip():
                    raise FaultyRecordError(f"text behind the closing quote at column {at}", "double quotes in cells")
                self.cells.append("".join(self._quoted))
                self._quoted = None
            if end < 0:
                return True
            at = end + 1


class TableReader:
    """Rows of one stream; `n_lines` is known after the last one."""

    def __init__(self, stream: io.BufferedReader, *, max_record_bytes: int) -> None:
        self._stream = stream
        self._max_bytes = max_record_bytes
        self._again: deque[tuple[int, bytes]] = deque()
        """Lines behind a row that wasn't one: they're read once more."""
        self._delimiter = ","
        self.n_lines = 0

    def __iter__(self) -> Iterator[Row]:
        names: list[str] | None = None
        while (line := self._next_line()) is not None:
            number, raw = line
            bom = number == 1 and raw.startswith(BOM)
            raw = raw.removeprefix(BOM) if bom else raw
            if bom:
                yield Row(1, bom=True)
            if not raw.strip():
                continue
            if names is None:
                self._delimiter = delimiter_of(raw.decode("utf-8", "replace"))
            try:
                cells, size = self._cells(number, raw)
                if names is None:
                    names = [cell.strip() for cell in cells]
                    continue
                yield Row(number, _value(names, cells), n_bytes=size)
            except FaultyRecordError as fault:
                fault.line = number
                yield Row(number, fault=fault, n_bytes=len(raw))
                if names is None:
                    return

    def _next_line(self) -> tuple[int, bytes] | None:
        if self._again:
            return self._again.popleft()
        raw = self._stream.readline(self._max_bytes + 1)
        if not raw:
            return None
        self.n_lines += 1
        return self.n_lines, raw

    def _cells(self, number: int, raw: bytes) -> tuple[list[str], int]:
        """The cells of the row that starts with this line, and its size.

        Raises:
            FaultyRecordError: the row can't be read; the lines behind its first are then read as rows.
        """
        parser = _Parser(self._delimiter)
        more: list[tuple[int, bytes]] = []
        size = len(raw)
        text = raw.decode("utf-8", "surrogateescape")
        try:
            complete = parser.take(text)
            while not complete:
                line = self._next_line() if size <= self._max_bytes else None
                if line is None:
                    raise FaultyRecordError(*self._unclosed(size))
                more.append(line)
                size += len(line[1])
                complete = parser.take(line[1].decode("utf-8", "surrogateescape"))
            if size > self._max_bytes:
                raise FaultyRecordError(*self._unclosed(size))
        except FaultyRecordError:
            self._again.extendleft(reversed(more))
            raise
        for cell in parser.cells:
            if (match := _ESCAPED_BYTE.search(cell)) is not None:
                column = raw.find(bytes([ord(match[0]) - 0xDC00])) + 1
                at = f" at column {column}" if column else ""
                raise FaultyRecordError(f"byte 0x{ord(match[0]) - 0xDC00:02x}{at} is not UTF-8", column=column or None)
        return parser.cells, size

    def _unclosed(self, size: int) -> tuple[str, str]:
        if size > self._max_bytes:
            return f"row has more than {self._max_bytes // MB} MB", "is a quote not closed? else raise --max-line-mb"
        return "a quote is opened and never closed", "the file may be cut"


def _value(names: Sequence[str], cells: Sequence[str]) -> dict[str, str]:
    if len(cells) != len(names):
        raise FaultyRecordError(f"row has {len(cells)} cells, the first line names {len(names)}")
    value: dict[str, str] = {}
    for name, cell in zip(names, cells, strict=True):
        if name and name in value:
            raise FaultyRecordError(f"column {quoted(name)} occurs twice")
        value[name] = cell[1:] if _FORMULA.match(cell) else cell
    return value
