"""Writes `reports/seed_examples.md`: every example and option table of the seed document, and the tests that run it.

In: the seed document beside the checkout, the `example_NN` functions and option rows under `tests/seed`.
Out: the report. Without the seed document the counts of its side are taken from the report as it is.
`--check` changes nothing and fails when the report is out of date.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block of the seed document."""

    number: int
    line: int
    """Where it begins in the document's text, counted from 1."""
    lines: tuple[str, ...]


def seed_text() -> str | None:
    """The seed document, None when it isn't beside the checkout."""
    folder = Path(os.environ.get("WORKBENCH_SHARED") or ROOT.parent / "shared") / "spec" / "seed"
    files = sorted(folder.glob("*.txt"))
    return files[0].read_text(encoding="utf-8") if files else None


def blocks_of(text: str) -> list[Block]:
    """The fenced blocks in document order: the page prints the numbers of their lines in front of each."""
    lines = text.split("\n")
    found: list[Block] = []
    i = 0
    while i < len(lines):
        n = 0
        while i + n < len(lines) and lines[i + n].strip() == str(n + 1):
            n += 1
        if n:
            found.append(Block(len(found) + 1, i + 1, tuple(lines[i + n : i + 2 * n])))
        i += max(2 * n, 1)
    return found


@dataclass(frozen=True, slots=True)
class Table:
    """One table of the seed document."""

    number: int
    line: int
    n_lines: int
    """Lines of its rows in the document's text."""
    names: tuple[str, ...]
    """The options it lists; empty for tables that list something else."""


_TABLE_HEAD = re.compile(r"^(选项|Checker 说明|场景 |机制 |模式 注)")
_OPTION = re.compile(r"^((?:With|Check)\w+|SessionSummaryInjection\w+)")


def tables_of(text: str) -> list[Table]:
    """The tables in document order; a table ends at a blank line or at the line numbers of a block."""
    lines = text.split("\n")
    found = []
    for i, line in enumerate(lines):
        if _TABLE_HEAD.match(line):
            rows = []
            for row in lines[i + 1 :]:
                if not row.strip() or row.strip() == "1":
                    break
                rows.append(row)
            names = tuple(match[1] for row in rows if (match := _OPTION.match(row)))
            found.append(Table(len(found) + 1, i + 1, len(rows), names))
    return found
