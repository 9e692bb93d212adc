"""What is wrong with a recording, and where: collected, not raised.

In: faults found by readers. Out: `Problem`s in the form `path:line:column: what is wrong; what to do`, safe
to print on a terminal (SEC-13). Wording of reliability.md section 8.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

Severity = Literal["problem", "note"]
ROW_LEFT_OUT = "the line is left out, the conversations around it are kept"
LEFT_OUT = "its conversation is left out, the others are kept"
MAX_SHOWN_CHARS = 80

# C0 and C1 controls, direction-changing and invisible format characters, line separators, halves of surrogate pairs.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\ud800-\udfff]"
)


def shown(text: str) -> str:
    """The text with characters escaped that would steer a terminal or hide."""
    return _UNSAFE.sub(lambda m: f"\\x{ord(m[0]):02x}" if ord(m[0]) < 0x100 else f"\\u{ord(m[0]):04x}", text)


def quoted(value: Any) -> str:
    """A value from a file, in double quotes, short and safe to show."""
    text = value if isinstance(value, str) else str(value)
    if len(text) > MAX_SHOWN_CHARS:
        text = text[: MAX_SHOWN_CHARS - 1] + "…"
    return f'"{shown(text)}"'


def kind_of(value: Any) -> str:
    """What a JSON value is, in words: `an array of 3`."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "a text"
    if isinstance(value, list):
        return f"an array of {len(value)}"
    return "an object"


@dataclass(frozen=True, slots=True)
class Problem:
    """One finding of an import; a note says that the data was taken nevertheless."""

    path: str
    line: int | None
    column: int | None
    reason: str
    hint: str = ""
    severity: Severity = "problem"
    outcome: str = ""
    """What became of the conversation around it."""

    @property
    def text(self) -> str:
        """`what is wrong; what to do`."""
        return f"{self.reason}; {self.hint}" if self.hint else self.reason

    @property
    def place(self) -> str:
        """`path:line:column`, as far as known."""
        return ":".join([shown(self.path), *(str(part) for part in (self.line, self.column) if part is not None)])

    def as_dict(self) -> dict[str, Any]:
        """The entry that `workbench import --json` prints (WB-CLI-03)."""
        return {
            "path": self.path,
            "line": self.line,
            "column": self.column,
            "reason": self.reason,
            "hint": self.hint,
            "severity": self.severity,
        }

    def __str__(self) -> str:
        return f"{self.place}: {self.text}"


class FaultyRecordError(Exception):
    """One record can't be taken; never leaves this package: the reader turns it into a `Problem`."""

    def __init__(self, reason: str, hint: str = "", *, line: int | None = None, column: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint
        self.line = line
        self.column = column
