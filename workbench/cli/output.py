"""What commands print: tables, problems, one JSON object, and where a report went."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from workbench.evaluate.kept import Kept
    from workbench.recordings import Recordings
    from workbench.regression.check import CheckResult
    from workbench.replay.runs import RunSet


_UNRULY = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")


def print_runs(runs: Any) -> None:
    from workbench.report.terminal import summary

    print(summary(runs))


def print_kept(kept: Sequence[Kept]) -> None:
    """What runs kept; nothing for none."""
    if kept:
        from workbench.report.kept import kept_text

        print(f"\n{kept_text(kept)}")


def print_problems(source: Recordings | RunSet | CheckResult) -> None:
    for problem in source.problems:
        outcome = f" ({problem.outcome})" if problem.outcome else ""
        print(f"{problem.severity}: {problem}{outcome}", file=sys.stderr)


def print_json(value: Any) -> int:
    text = json.dumps(value, ensure_ascii=False, indent=2, default=str)
    # What a terminal would obey, or couldn't print, stands inside strings only: as its escape it means the same.
    print(_UNRULY.sub(lambda found: f"\\u{ord(found[0]):04x}", text))
    return 0


def write_report(runs: Any, path: str) -> Path:
    from workbench.report.page import page

    return Path(page(runs, path))


def plain(text: str) -> str:
    """A text on one line, without what a terminal would obey."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
