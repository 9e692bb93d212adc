"""Go's spelling, as gofmt leaves it: comments, calls, literals, durations.

In: values and pieces of source. Out: pieces of source that the formatter has nothing to change in. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from workbench.production.python_source import checked_seconds
from workbench.production.stamp import one_line

_UNITS = (
    ("time.Hour", 3_600_000_000),
    ("time.Minute", 60_000_000),
    ("time.Second", 1_000_000),
    ("time.Millisecond", 1000),
    ("time.Microsecond", 1),
)
"""In microseconds."""

_ESCAPES = {"\n": "\\n", "\t": "\\t"}


def comment_of(lines: Iterable[str]) -> str:
    """Comment lines with a blank line behind them: a comment of nothing, so gofmt leaves its words alone."""
    return "\n".join(f"// {one_line(line)}".rstrip() for line in lines)


def function_of(doc: str, signature: str, statements: list[str]) -> str:
    body = "".join(f"\t{_indented(statement)}\n" for statement in statements)
    return f"// {doc}\nfunc {signature} {{\n{body}}}"


def call_of(function: str, arguments: list[str]) -> str:
    """A call on one line where it fits, else an argument a line."""
    line = f"{function}({', '.join(arguments)})"
    if len(line) <= 90 and "\n" not in line:
        return line
    return f"{function}(\n" + "".join(f"\t{_indented(argument)},\n" for argument in arguments) + ")"


def list_of(kind: str, items: list[str]) -> str:
    line = f"{kind}{{{', '.join(items)}}}"
    if len(line) <= 90 and "\n" not in line:
        return line
    return f"{kind}{{\n" + "".join(f"\t{_indented(item)},\n" for item in items) + "}"


def struct_of(kind: str, fields: Mapping[str, str]) -> str:
    """A field a line, the values below each other."""
    width = max(map(len, fields)) + 1
    return f"{kind}{{\n" + "".join(f"\t{f'{name}:':<{width}} {value},\n" for name, value in fields.items()) + "}"


def _indented(source: str) -> str:
    """The lines behind the first one step further in. No argument holds a raw text of several lines."""
    return source.replace("\n", "\n\t")


def strings_of(texts: Iterable[str]) -> str:
    return f"[]string{{{', '.join(map(string_of, texts))}}}"


def string_of(text: str) -> str:
    """A literal of Go on one line."""
    escaped = []
    for char in text:
        if char in '"\\':
            escaped.append(f"\\{char}")
        elif char in _ESCAPES:
            escaped.append(_ESCAPES[char])
        elif char.isprintable():
            escaped.append(char)
        else:
            escaped.append(f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}")
    return f'"{"".join(escaped)}"'


def long_string_of(text: str) -> str:
    """A literal for a constant: a text of several lines as it is, if Go can hold it so."""
    is_plain = all(char in _ESCAPES or char.isprintable() for char in text)
    return f"`{text}`" if "\n" in text and is_plain and "`" not in text else string_of(text)


def said(value: Any) -> str:
    """A value inside a comment, on one line."""
    if isinstance(value, str):
        return string_of(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name} = {said(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(said, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def float_of(value: float) -> str:
    return repr(float(value))


def skip_of(count: int) -> str:
    return f"func(_ []event.Event) int {{ return {count} }}"


def duration_of(field: str, seconds: float) -> str:
    """`5 * time.Minute`; microseconds are the finest, as in Python."""
    microseconds = timedelta(seconds=checked_seconds(field, seconds)) // timedelta(microseconds=1)
    unit, length = next((unit, length) for unit, length in _UNITS if not microseconds % length)
    return f"{microseconds // length} * {unit}"
