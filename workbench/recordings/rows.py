"""Rows of a file: each line of JSON lines, each element of a JSON document, one at a time.

In: a binary stream. Out: `Row`s with their line, each either a value or the fault that stands in its place, so
that one broken record never hides the next (REL-11). Lines are split at line feeds only (M18). A document may
be one record, an array of records or an object of records by id; only the record at hand is in memory
(REL-12).
"""

from __future__ import annotations

import codecs
import io
import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from workbench.recordings.problems import FaultyRecordError, quoted
from workbench.recordings.sources import MB
from workbench.recordings.strict_json import LoneSurrogate, broken_escape, decode_at, ends_early, loads, syntax_fault

BOM = b"\xef\xbb\xbf"
_COMMENTS = (b"#", b"//")
_LOOK_AHEAD_LINES = 20
_CHUNK_BYTES = 1 << 20
_SPACE = re.compile(r"[ \t\r\n\ufeff]*")
_ESCAPED_BYTE = re.compile("[\udc80-\udcff]")
_STRUCTURE = re.compile(r'[\[\]{}"]')
_TEXT = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)  # possessive: no memory per character
# An object with one of these keys wraps one record; it isn't a collection of records by id.
_WRAPPER_KEYS = frozenset(("request", "response", "body", "input", "output", "data", "conversation", "info"))

_SHOWN_BYTES = 64
_CUT = "JSON ends early"
_SYNTAX = (_CUT, "not JSON")

IsRecord = Callable[[Any], bool]
_Line = tuple[bytes, int]


@dataclass(slots=True)
class Row:
    """One record-sized piece of a file; not frozen only because there's one per line, and that costs time."""

    line: int
    value: Any = None
    fault: FaultyRecordError | None = None
    """What stands in place of the value."""
    odd: LoneSurrogate | None = None
    """Half of a surrogate pair in the value."""
    key: str = ""
    """Its key, in a document that is an object of records."""
    cut: bool = False
    """The last line, and it stops in the middle."""
    n_bytes: int = 0
    bom: bool = False
    document: int = 0
    """Which of several documents in one file, from 1; 0 in a file of lines."""
    start: str = ""
    """How a broken line starts: enough to see what it was meant to be."""

    @property
    def refusal(self) -> FaultyRecordError | None:
        """Why the row can't be taken; the native format, which keeps all of Unicode, looks at `fault` instead."""
        if self.fault is None and self.odd is not None and not self.odd.is_half_emoji:
            return FaultyRecordError(self.odd.reason, line=self.line)
        return self.fault


class RowReader:
    """Rows of one stream; `n_lines` is known after the last one."""

    def __init__(self, stream: io.BufferedReader, is_record: IsRecord, *, max_record_bytes: int) -> None:
        self._stream = stream
        self._is_record = is_record
        self._max_bytes = max_record_bytes
        self.n_lines = 0

    def __iter__(self) -> Iterator[Row]:
        lines, is_document = self._look_ahead()
        if not is_document:
            return self._line_rows(lines)
        head = b"".join(raw for raw, _ in lines)
        return self._document_rows(_Document(self._stream, head, self._is_record, max_chars=self._max_bytes))

    def _document_rows(self, document: _Document) -> Iterator[Row]:
        yield from document.rows()
        self.n_lines = document.n_lines

    # --- lines or document ---------------------------------------------------------------------------

    def _look_ahead(self) -> tuple[list[_Line], bool]:
        """The first lines, and whether they're the start of one document rather than a record each."""
        lines: list[_Line] = []
        texts: list[str] = []
        n_bytes = 0
        while len(texts) < _LOOK_AHEAD_LINES and n_bytes < 4 * _CHUNK_BYTES:
            line = self._next_line(may_be_document=not texts)
            if line is None:
                break
            lines.append(line)
            raw, size = line
            if size > len(raw):  # over the limit: surely a line
                return lines, False
            if size > self._max_bytes and not raw.endswith(b"\n"):
                return lines, True  # a long array, whose line goes on
            content = raw.removeprefix(BOM)
            if not _is_blank(content):
                n_bytes += size
                texts.append(content.decode("utf-8", "replace"))
                if len(texts) == 2 and not self._may_be_document(texts):
                    return lines, False
                if texts[0].strip() == "[":
                    return lines, True
        return lines, self._may_be_document(texts)

    def _may_be_document(self, texts: list[str]) -> bool:
        """Decide by what the first significant lines are, alone and joined."""
        if not texts or texts[0].lstrip()[:1] not in ("[", "{"):
            return False
        try:
            first = loads(texts[0])
        except FaultyRecordError as fault:
            if not fault.reason.startswith(_SYNTAX):
                return len(texts) == 1  # then the elements are looked at one by one
        else:
            return len(texts) == 1 and not self._is_record(first) and self._holds_records(first)
        if texts[0].strip() == "[":
            return True
        others = any(_is_container(text) for text in texts[1:])
        joined = "".join(texts)
        try:
            decode_at(joined, len(joined) - len(joined.lstrip()))
        except json.JSONDecodeError as error:
            if not ends_early(error):
                return not others
            # A first line cut behind a comma would swallow the one record after it.
            return not (others and len(texts) < _LOOK_AHEAD_LINES and _is_container(texts[-1]))
        except FaultyRecordError:
            return not others
        return True

    def _holds_records(self, value: Any) -> bool:
        if isinstance(value, list):
            return any(isinstance(item, dict | list) for item in value)
        return holds_records(dict(islice(value.items(), 2)), self._is_record)

    # --- lines -----------------------------------------------------------------------------------------

    def _next_line(self, *, may_be_document: bool = False) -> _Line | None:
        """The next line and its size; of a line over the limit only the start, so that it's shorter than its size."""
        raw = self._stream.readline(self._max_bytes + 1)
        if not raw:
            return None
        size = len(raw)
        if size > self._max_bytes and not raw.endswith(b"\n"):
            if may_be_document and raw.lstrip().startswith(b"["):  # a long array is read element by element
                return raw, size
            while rest := self._stream.readline(_CHUNK_BYTES):
                size += len(rest)
                if rest.endswith(b"\n"):
                    break
            raw = raw[:_SHOWN_BYTES]
        return raw, size

    def _line_rows(self, pending: list[_Line]) -> Iterator[Row]:
        for raw, size in pending:
            row = self._line_row(raw, size)
            if row is not None:
                yield row
        pending.clear()
        while (line := self._next_line()) is not None:
            row = self._line_row(*line)
            if row is not None:
                yield row

    def _line_row(self, raw: bytes, size: int) -> Row | None:
        """The row of a line; None for a blank one."""
        self.n_lines = number = self.n_lines + 1
        bom = raw.startswith(BOM)
        if bom:
            raw, size = raw[len(BOM) :], size - len(BOM)
        if size > len(raw):
            fault = _too_long("line", size, self._max_bytes)
        elif raw[:1] != b"{" and _is_blank(raw):
            return Row(number, bom=True) if bom else None
        else:
            try:
                text = raw.decode("utf-8")
                value = loads(text)
                return Row(number, value, odd=broken_escape(value, text), n_bytes=size, bom=bom)
            except UnicodeDecodeError as error:
                column = error.start + 1
                fault = FaultyRecordError(
                    f"byte 0x{raw[error.start]:02x} at column {column} is not UTF-8", column=column
                )
            except FaultyRecordError as refused:
                fault = refused
                fault.line = number
        cut = fault.reason.startswith(_CUT) and not raw.endswith(b"\n")
        return Row(number, fault=fault, cut=cut, n_bytes=size, bom=bom, start=_start_of(raw))


def holds_records(members: dict[str, Any], is_record: IsRecord) -> bool:
    """An object that starts with these members is one of records by id, not one record; one may be broken."""
    return not members.keys() & _WRAPPER_KEYS and any(
        isinstance(value, dict) and is_record(value) for value in members.values()
    )


def _start_of(raw: bytes) -> str:
    return raw[:_SHOWN_BYTES].decode("utf-8", "replace")


def _is_blank(raw: bytes) -> bool:
    content = raw.strip()
    return not content or content.startswith(_COMMENTS)


def _is_container(text: str) -> bool:
    """The line alone is a whole object or array."""
    if text.lstrip()[:1] not in ("[", "{"):
        return False
    try:
        return isinstance(loads(text), dict | list)
    except FaultyRecordError as fault:
        return not fault.reason.startswith(_SYNTAX)


def _too_long(what: str, size: int, limit: int) -> FaultyRecordError:
    return FaultyRecordError(f"{what} has {math.ceil(size / MB)} MB, limit is {limit // MB} MB", "raise --max-line-mb")


class _Document:
    """A JSON document read through a window: `_text[_at:]` is what hasn't been taken yet."""

    def __init__(self, stream: io.BufferedReader, head: bytes, is_record: IsRecord, *, max_chars: int) -> None:
        self._stream = stream
        self._is_record = is_record
        self._max_chars = max_chars
        # Bytes that aren't UTF-8 become marks, so that only the element that holds them is refused.
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._bom = head.startswith(BOM)
        self._has_bad_bytes = False
        self._text = ""
        self._at = 0
        self._ended = False
        self._lost = False
        """After a fault no next record was found."""
        self._keep_from: int | None = None
        self._line = 1
        self._column = 1  # of the first character of `_text`
        self._counted = (0, 0)
        """A position in `_text`, and the line ends before it: lines are counted once."""
        self._take(head.removeprefix(BOM))

    @property
    def n_lines(self) -> int:
        return self._line + self._text.count("\n")

    def rows(self) -> Iterator[Row]:
        """The records, whatever holds them; several documents in one file follow each other."""
        if self._bom:
            yield Row(1, bom=True)
        number = 0
        while not self._lost and (opener := self._peek()):
            number += 1
            if opener == "[":
                self._at += 1
                rows = self._elements()
            elif opener == "{":
                rows = self._object()
            else:
                yield self._fault_row("Extra data")
                return
            for row in rows:
                row.document = number
                yield row

    # --- the window ------------------------------------------------------------------------------------

    def _take(self, data: bytes) -> None:
        text = self._decoder.decode(data, final=not data)
        if not self._has_bad_bytes and _ESCAPED_BYTE.search(text):
            self._has_bad_bytes = True
        self._text += text

    def _fill(self) -> bool:
        """Read on, twice as much as is pending, so that reading a long record over again stays linear."""
        if self._ended:
            return False
        self._drop()
        data = self._stream.read(max(_CHUNK_BYTES, len(self._text) - self._at))
        self._take(data)
        self._ended = not data
        return bool(data)

    def _drop(self) -> None:
        """Forget what was taken, unless the start is still needed; the indent of a record stays, too."""
        start = self._at if self._keep_from is None else self._keep_from
        line_start = self._text.rfind("\n", 0, start)
        if line_start >= 0 and not self._text[line_start:start].strip():
            start = line_start
        newlines = self._line_at(start) - self._line
        self._column = self._column + start if not newlines else start - self._text.rfind("\n", 0, start)
        self._line += newlines
        self._text = self._text[start:]
        self._at -= start
        self._counted = (0, 0)
        if self._keep_from is not None:
            self._keep_from -= start

    def _peek(self) -> str:
        """The next character that isn't white space, or the empty text at the end."""
        while True:
            match = _SPACE.match(self._text, self._at)
            self._at = match.end() if match else self._at
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._fill():
                return ""

    def _line_at(self, position: int) -> int:
        known, newlines = self._counted if self._counted[0] <= position else (0, 0)
        newlines += self._text.count("\n", known, position)
        self._counted = (position, newlines)
        return self._line + newlines

    # --- containers ------------------------------------------------------------------------------------

    def _elements(self) -> Iterator[Row]:
        """The rows of an array whose bracket was taken."""
        while (following := self._peek()) != "]":
            if not following:
                yield self._fault_row("Expecting value")
                return
            row = self._element(self._sibling_pattern())
            yield row
            if self._lost:
                return
            following = self._peek()
            if following == ",":
                self._at += 1
            elif following not in ("", "]") and row.fault is None:
                yield self._fault_row("Expecting ',' delimiter")
        self._at += 1

    def _object(self) -> Iterator[Row]:
        """One record, or records by id: decided by the first members."""
        self._keep_from = self._at
        members = self._members()
        first = list(islice(members, 2)) if self._starts_with_object() else []
        if holds_records({row.key: row.value for row in first}, self._is_record):
            self._keep_from = None
            yield from first
            yield from members
            return
        self._at = self._keep_from
        self._keep_from = None
        self._lost = False
        yield self._element(self._sibling_pattern())

    def _starts_with_object(self) -> bool:
        """The first member's value is an object; the position is then behind the opening brace."""
        self._at += 1
        is_object = False
        if self._peek() == '"':
            try:
                self._key()
            except FaultyRecordError:
                return False
            is_object = self._peek() == "{"
        self._at = (self._keep_from or 0) + 1
        return is_object

    def _key(self) -> str:
        """A member's key; its colon is taken too."""
        while True:
            try:
                key, self._at = decode_at(self._text, self._at)
                break
            except json.JSONDecodeError as error:
                fault = self._located(error)
                if not self._fill():
                    raise fault from None
        if self._peek() != ":":
            raise self._located(json.JSONDecodeError("Expecting ':' delimiter", self._text, self._at))
        self._at += 1
        self._peek()
        return str(key)

    def _members(self) -> Iterator[Row]:
        """The rows of an object of records whose brace was taken."""
        seen: set[str] = set()
        while (following := self._peek()) != "}":
            if following != '"':
                yield self._fault_row("Expecting property name enclosed in double quotes")
                self._lost = True
                return
            sibling = self._sibling_pattern()
            try:
                key = self._key()
            except FaultyRecordError as fault:
                self._lost = sibling is None  # without lines to go by, what follows a broken key is anything
                yield Row(fault.line or self._line, fault=fault) if self._lost else self._skipped(fault, sibling)
                if self._lost:
                    return
                continue
            row = replace(self._element(sibling), key=key)
            if key in seen:
                row = replace(row, fault=FaultyRecordError(f"key {quoted(key)} occurs twice", line=row.line))
            seen.add(key)
            yield row
            if self._lost:
                return
            following = self._peek()
            if following == ",":
                self._at += 1
            elif following not in ("", "}") and row.fault is None:
                yield self._fault_row("Expecting ',' delimiter")
        self._at += 1

    # --- one element -----------------------------------------------------------------------------------

    def _element(self, sibling: re.Pattern[str] | None) -> Row:
        """The value at the position, which is then behind it, or behind what seems to be a broken one."""
        while True:
            try:
                value, end = decode_at(self._text, self._at)
                if end < len(self._text) or not self._fill():
                    break
            except json.JSONDecodeError as error:
                fault = self._located(error)
                if len(self._text) - self._at > self._max_chars:
                    return self._skipped(None, sibling)
                if not (ends_early(error) and self._fill()):
                    return self._skipped(fault, sibling)
            except FaultyRecordError as refused:
                return self._skipped(refused, sibling)
        end = min(end, len(self._text))
        row = self._row(value, end)
        self._at = end
        return row

    def _row(self, value: Any, end: int) -> Row:
        line = self._line_at(self._at)
        size = end - self._at
        if size > self._max_chars:
            return Row(line, fault=_too_long("record", size, self._max_chars), n_bytes=size)
        if self._has_bad_bytes and (match := _ESCAPED_BYTE.search(self._text, self._at, end)):
            return Row(line, fault=self._bad_byte(match.start()), n_bytes=size)
        return Row(line, value, odd=broken_escape(value, self._text, self._at, end), n_bytes=size)

    def _bad_byte(self, position: int) -> FaultyRecordError:
        start = self._text.rfind("\n", 0, position) + 1
        before = self._text[start:position].encode("utf-8", "surrogateescape")
        column = len(before) + (1 if start else self._column)
        byte = ord(self._text[position]) - 0xDC00
        return FaultyRecordError(
            f"byte 0x{byte:02x} at column {column} is not UTF-8", line=self._line_at(position), column=column
        )

    def _located(self, error: json.JSONDecodeError) -> FaultyRecordError:
        """The fault with line and column of the file instead of the window's."""
        fault = syntax_fault(error)
        line, column = fault.line or 1, fault.column or 0
        shifted = column + self._column - 1 if line == 1 else column
        reason = fault.reason.replace(f"column {column}", f"column {shifted}", 1)
        return FaultyRecordError(reason, fault.hint, line=self._line + line - 1, column=shifted)

    def _fault_row(self, message: str) -> Row:
        fault = self._located(json.JSONDecodeError(message, self._text, self._at))
        return Row(fault.line or self._line, fault=fault)

    # --- going on after a fault ------------------------------------------------------------------------

    def _sibling_pattern(self) -> re.Pattern[str] | None:
        """How the next record's line starts, when this one starts a line of its own."""
        line_start = self._text.rfind("\n", 0, self._at) + 1
        indent = self._text[line_start : self._at]
        if indent.strip() or (not line_start and self._column != 1):
            return None
        return re.compile(r"\n" + re.escape(indent + self._text[self._at]))

    def _skipped(self, fault: FaultyRecordError | None, sibling: re.Pattern[str] | None) -> Row:
        """The row of a broken element; the position moves to where the next one is likely to start."""
        line = self._line_at(self._at)
        size = self._skip_brackets() if sibling is None else self._skip_to(sibling)
        if fault is None:
            fault = _too_long("record", size, self._max_chars)
        return Row(fault.line or line, fault=fault, n_bytes=size)

    def _skip_to(self, sibling: re.Pattern[str]) -> int:
        """To the next line that starts like this record did: the brackets between needn't be in order."""
        skipped = 0
        while True:
            match = sibling.search(self._text, self._at)
            # Without a match the last characters may be the start of one.
            target = match.start() if match else max(self._at, len(self._text) - len(sibling.pattern))
            skipped += target - self._at
            self._at = target
            if match:
                return skipped
            if not self._fill():
                self._lost = True
                return skipped

    def _skip_brackets(self) -> int:
        """Behind the bracket that closes the element; texts are stepped over."""
        depth = 0
        skipped = 0
        while True:
            match = _STRUCTURE.search(self._text, self._at)
            if match and match[0] == '"':
                match = _TEXT.match(self._text, match.start())
            elif match:
                depth += 1 if match[0] in "[{" else -1
            target = match.end() if match else self._at if self._text.find('"', self._at) >= 0 else len(self._text)
            skipped += target - self._at
            self._at = target
            if match:
                if depth <= 0:
                    return skipped
            elif not self._fill():
                self._lost = True
                return skipped
