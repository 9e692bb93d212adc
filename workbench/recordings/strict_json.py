"""JSON from people one doesn't know: strict, bounded, and with the column of a fault.

In: text. Out: plain values, or a `FaultyRecordError` in the words of reliability.md B06 to B13. Unlike the standard
reader it refuses duplicate keys, numbers that aren't finite or have more than 40 digits, and deep nesting;
half surrogate pairs are found by `broken_escape`, since some of them are kept.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Never

from workbench.recordings.problems import FaultyRecordError, quoted, shown

MAX_DEPTH = 64
MAX_DIGITS = 40
ENDS_EARLY = "the file may be cut"

_OPENERS = ("{", "[")
_SPACE = re.compile(r"[ \t\r\n]*")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_HALF_EMOJI = re.compile("[\ud83c-\ud83e]")  # the first halves of almost all emojis
_NEAR_END_CHARS = 12  # a cut literal, number or \uXXXX escape is reported this close to the end
_EXPECTATIONS = {
    "Expecting property name enclosed in double quotes": "expected double quotes",
    "Illegal trailing comma before end of object": "expected double quotes",
    "Illegal trailing comma before end of array": "expected a value",
    "Expecting value": "expected a value",
    "Expecting ',' delimiter": "expected a comma",
    "Expecting ':' delimiter": "expected a colon",
    "Extra data": "expected the end",
    "Invalid control character at": "expected an escape instead of a control character",
    "Invalid \\escape": "expected a known escape",
    "Invalid \\uXXXX escape": "expected four hex digits",
    "Unterminated string starting at": "expected closing quotes",
}


class _NotFiniteError(Exception):
    """Seen while decoding; which key it was is found out by decoding again with marks."""


class _NotFiniteMark:
    """Stands for a number that isn't finite."""


_MARK = _NotFiniteMark()


class DuplicateKeyError(FaultyRecordError):
    """An object has a key twice; readers differ in which value they take."""

    def __init__(self, key: str) -> None:
        super().__init__(f"key {quoted(key)} occurs twice")
        self.key = key


def object_without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An `object_pairs_hook` for JSON readers.

    Raises:
        DuplicateKeyError: a key occurs twice.
    """
    value = dict(pairs)
    if len(value) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise DuplicateKeyError(key)
            seen.add(key)
    return value


def _bounded_int(digits: str) -> int:
    if len(digits) > MAX_DIGITS and (n_digits := len(digits.lstrip("-"))) > MAX_DIGITS:
        raise FaultyRecordError(f"number with {n_digits} digits", f"at most {MAX_DIGITS}")
    return int(digits)


def _finite_float(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise _NotFiniteError
    return value


def _refuse_constant(name: str) -> Never:
    raise _NotFiniteError


_DECODER = json.JSONDecoder(
    object_pairs_hook=object_without_duplicates,
    parse_int=_bounded_int,
    parse_float=_finite_float,
    parse_constant=_refuse_constant,
)
_SCAN: Callable[[str, int], tuple[Any, int]] = vars(_DECODER)["scan_once"]  # what `raw_decode` calls
_MARKING_DECODER = json.JSONDecoder(
    parse_int=lambda digits: 0,
    parse_float=lambda digits: _MARK if math.isinf(float(digits)) else 0.0,
    parse_constant=lambda name: _MARK,
)


def decode_at(text: str, start: int) -> tuple[Any, int]:
    """The value that begins at `start`, and the position behind it.

    Raises:
        json.JSONDecodeError: no JSON (the caller knows whether more text is to come).
        FaultyRecordError: JSON, but not of a kind that is taken.
    """
    try:
        value, end = _SCAN(text, start)
    except StopIteration as stop:
        raise json.JSONDecodeError("Expecting value", text, stop.value) from None
    except _NotFiniteError:
        raise _not_finite(text, start) from None
    except RecursionError:
        raise _too_deep() from None
    if _may_be_deep(text, start, end) and depth_of(value) > MAX_DEPTH:
        raise _too_deep()
    return value, end


def loads(text: str) -> Any:
    """The one value of a text.

    Raises:
        FaultyRecordError: not JSON, cut, or not of a kind that is taken; with the column (and the line, if not the first).
    """
    start = 0 if text[:1] in _OPENERS else _behind_space(text, 0)
    try:
        value, end = decode_at(text, start)
        if len(text) > end + 1 or text[end:].strip():
            rest = _behind_space(text, end)
            if rest < len(text):
                raise json.JSONDecodeError("Extra data", text, rest)
    except json.JSONDecodeError as error:
        raise syntax_fault(error) from None
    return value


def _behind_space(text: str, start: int) -> int:
    match = _SPACE.match(text, start)
    return match.end() if match else start


def ends_early(error: json.JSONDecodeError) -> bool:
    """The text stops before its value does."""
    if error.msg.startswith("Unterminated string"):
        return True
    content_end = len(error.doc.rstrip(" \t\r\n"))
    if error.pos >= content_end:
        return True
    tail = error.doc[error.pos : content_end]
    if len(tail) > _NEAR_END_CHARS:
        return False
    # `tru`, `-`, `\u12` at the very end
    literals = ("true", "false", "null", "NaN", "Infinity", "-Infinity")
    cut_literal = any(literal.startswith(tail) for literal in literals)
    cut_escape = error.msg.startswith("Invalid \\") and '"' not in tail
    return cut_literal or cut_escape


def syntax_fault(error: json.JSONDecodeError) -> FaultyRecordError:
    """A syntax error as a fault; its line is counted from 1 inside the decoded text (B06, B07)."""
    if ends_early(error):
        content = error.doc.rstrip("\r\n")
        line = content.count("\n") + 1
        column = len(content) - (content.rfind("\n") + 1)
        return FaultyRecordError(f"JSON ends early at column {column}", ENDS_EARLY, line=line, column=column)
    position = error.pos
    expectation = _EXPECTATIONS.get(error.msg, shown(error.msg))
    if error.msg.startswith("Illegal trailing comma"):  # newer Pythons point at the comma, older ones behind it
        position = len(error.doc) - len(error.doc[position + 1 :].lstrip())
    if error.msg == "Expecting value" and error.doc[position : position + 1] == "'":
        expectation = "expected double quotes"
    line = error.doc.count("\n", 0, position) + 1
    column = position - error.doc.rfind("\n", 0, position)
    return FaultyRecordError(f"not JSON at column {column}: {expectation}", line=line, column=column)


def _may_be_deep(text: str, start: int, end: int) -> bool:
    return text.count("[", start, end) + text.count("{", start, end) > MAX_DEPTH


def depth_of(value: Any) -> int:
    """How deep arrays and objects are nested; a plain value has depth 0. No recursion."""
    depth = 0
    level = [value] if isinstance(value, dict | list) else []
    while level:
        depth += 1
        level = [
            child
            for container in level
            for child in (container.values() if type(container) is dict else container)
            if type(child) is dict or type(child) is list
        ]
    return depth


def _too_deep() -> FaultyRecordError:
    return FaultyRecordError(f"nested deeper than {MAX_DEPTH} levels")


def _walk(value: Any) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Every value with its path, in document order, without recursion; object keys come as values too."""
    stack: list[tuple[tuple[str | int, ...], Any]] = [((), value)]
    while stack:
        path, item = stack.pop()
        yield path, item
        if isinstance(item, dict):
            stack.extend(((*path, key), child) for key, child in reversed(item.items()))
        elif isinstance(item, list):
            stack.extend(((*path, i), item[i]) for i in range(len(item) - 1, -1, -1))


def path_text(path: tuple[str | int, ...]) -> str:
    """`usage.total_tokens`, `messages[3].content`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{shown(part)}" for part in path)
    return text.removeprefix(".") or "value"


def _not_finite(text: str, start: int) -> FaultyRecordError:
    try:
        value, _ = _MARKING_DECODER.raw_decode(text, start)
    except RecursionError:
        return _too_deep()
    path = next(path for path, item in _walk(value) if isinstance(item, _NotFiniteMark))
    return FaultyRecordError(f"{path_text(path)} is not a finite number")


@dataclass(frozen=True, slots=True)
class LoneSurrogate:
    """Half of a surrogate pair that stands alone (B13)."""

    reason: str
    is_half_emoji: bool
    """What is left when a text is cut by UTF-16 length, as browsers do; other halves are damage (BUG-28)."""


def broken_escape(value: Any, text: str, start: int = 0, end: int | None = None) -> LoneSurrogate | None:
    """The first half of a surrogate pair in a value, damage before half emojis; `text[start:end]` is its source."""
    stop = len(text) if end is None else end
    if text.find("\\ud", start, stop) < 0 and text.find("\\uD", start, stop) < 0:
        return None
    kept: LoneSurrogate | None = None
    for path, item in _walk(value):
        names = [part for part in path if isinstance(part, str)]
        name = names[-1] if names else "text"
        if match := _LONE_SURROGATE.search(name):
            return LoneSurrogate(
                f"key {quoted(name)} has a broken Unicode escape at character {match.start() + 1}", False
            )
        for match in _LONE_SURROGATE.finditer(item) if isinstance(item, str) else ():
            reason = f"{shown(name)} has a broken Unicode escape at character {match.start() + 1}"
            if not _HALF_EMOJI.match(match[0]):
                return LoneSurrogate(reason, False)
            kept = kept or LoneSurrogate(reason, True)
    return kept
