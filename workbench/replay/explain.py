"""Why a trigger fired or didn't, in words and as a truth table (WB-RPL-12).

In: a row of the `checks` table. Out: text. A tree of all/any checks shows every branch: what it measured, its
limit, whether it passed, and which weren't looked at because the outcome was settled.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

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
    width = max((len(name) for name, *_ in table), default=0)
    for name, passed, value, threshold, unit in table:
        measured = f"{value:,.0f} {unit} of more than {threshold:,.0f}" if unit and passed is not None else ""
        lines.append(f"  {name:{width}}  {_MARKS[passed]:13}  {measured}".rstrip())
    return "\n".join(lines)


def _table(checks: list[dict[str, Any]], depth: int) -> Iterator[tuple[str, bool | None, float, float, str]]:
    for check in checks:
        name = "  " * depth + str(check["check"])
        yield name, check["passed"], check["value"], check["threshold"], str(check["unit"])
        yield from _table(check.get("children", []), depth + 1)
