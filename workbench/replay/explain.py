"""Why a trigger fired or didn't, in words and as a truth table (WB-RPL-12).

In: a row of the `checks` table. Out: text. A tree of all/any checks shows every branch: what it measured, its
limit, whether it passed, and which weren't looked at because the outcome was settled.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

_MARKS = {True: "passed", False: "failed", None: "not evaluated"}


def explain_check(row: Mapping[str, Any]) -> str:
    """One sentence, then one line per check of the tree.

    Args:
        row: A row of `checks`, as `Run.rows("checks")` gives them.
    """
    outcome = "fired" if row["fired"] else "did not fire"
    key = row["filter_key"] or "full session"
    lines = [
        f"check {row['check']} of {row['conversation']} before call {row['call']} ({key}): {outcome}; {row['reason']}"
    ]
    table = list(_table(json.loads(row["detail"]), 0))
    width = max((len(line.name) for line in table), default=0)
    for line in table:
        lines.append(f"  {line.name:{width}}  {_MARKS[line.passed]:13}  {line.measured}".rstrip())
    return "\n".join(lines)


class _Line(NamedTuple):
    name: str
    passed: bool | None
    measured: str


def _table(checks: list[dict[str, Any]], depth: int) -> Iterator[_Line]:
    for check in checks:
        measured = ""
        if check["unit"] and check["passed"] is not None:
            measured = f"{check['value']:,.0f} {check['unit']} of more than {check['threshold']:,.0f}"
            measured += f", counted by {check['counter']}" if check.get("counter") else ""
        yield _Line("  " * depth + str(check["check"]), check["passed"], measured)
        yield from _table(check.get("children", []), depth + 1)
