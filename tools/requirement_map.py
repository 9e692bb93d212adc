"""Which test names which requirement of the specification; fails on a gap.

In: the specification beside the checkout and the tests. Out: one line per requirement, and exit code 1 when a
requirement that is in scope has no test. Run: `python tools/requirement_map.py [--gaps]`.
"""

from __future__ import annotations

import os
import re
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_ID = re.compile(r"\b(SUM-[A-Z]+-\d+|ASM-[A-Z]+-\d+)\b")
_DEFINED = re.compile(r"\*\*((?:SUM|ASM)-[A-Z]+-\d+[a-z]?)\b|^\| ((?:SUM|ASM)-[A-Z]+-\d+) \|", re.MULTILINE)
# "SUM-FIT-02 to -08" and "ASM-RETRY-01, -04" name several.
_SEQUENCE = re.compile(r"\b((?:SUM|ASM)-[A-Z]+)-(\d+)((?:(?:,| to| and) -\d+)+)")
_STEP = re.compile(r"(,| to| and) -(\d+)")


def defined_ids(folder: Path) -> list[str]:
    """Requirement ids in the order in which the two specifications define them."""
    found: dict[str, None] = {}
    for name in ("summary.md", "assembly.md"):
        text = (folder / "spec" / name).read_text(encoding="utf-8")
        for match in _DEFINED.finditer(text):
            found[match[1] or match[2]] = None
    return list(found)


def named_ids(text: str) -> set[str]:
    """Ids that a text names, sequences spelt out."""
    names = set(_ID.findall(text))
    for family, first, rest in _SEQUENCE.findall(text):
        previous = int(first)
        for joint, number in _STEP.findall(rest):
            numbers = range(previous, int(number) + 1) if joint == " to" else [int(number)]
            names.update(f"{family}-{n:02d}" for n in numbers)
            previous = int(number)
    return names


def main() -> int:
    folder = Path(os.environ.get("WORKBENCH_SHARED") or ROOT.parent / "shared")
    if not (folder / "spec" / "summary.md").is_file():
        print("the specification is not here: put it beside the checkout as shared/, or set WORKBENCH_SHARED")
        return 0
    tests: dict[str, list[str]] = defaultdict(list)
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for name in named_ids(path.read_text(encoding="utf-8")):
            tests[name].append(path.relative_to(ROOT / "tests").as_posix())
    gaps = []
    for name in defined_ids(folder):
        if name in tests:
            line = ", ".join(tests[name])
        else:
            line = "NO TEST"
            gaps.append(name)
        if "--gaps" not in sys.argv or line == "NO TEST":
            print(f"{name:16}{line}")
    print(f"{len(defined_ids(folder))} requirements, {len(gaps)} without a test")
    return 1 if gaps else 0


if __name__ == "__main__":
    sys.exit(main())
