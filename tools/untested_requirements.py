"""Lists the requirements that the package cites and no test names.

In: the Python files of `workbench/` and `tests/`. Out: one line per requirement with the places that cite it;
exit code 1 when there is one. `SUM-TOK-01 to -09` and `ASM-CMP-30, -31` count as all of their members.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CITATION = re.compile(
    r"\b((?:SUM|ASM|WB)-[A-Z]+-|(?:PERF|REL|SEC)-)(\d+[a-z]?)((?:(?:,? and |, | to )-\d+[a-z]?)*)(?![\w-])"
)
FURTHER = re.compile(r"(,? and |, | to )-(\d+[a-z]?)")


def requirements_in(text: str) -> Iterator[str]:
    """Every requirement that the text cites, ranges and lists written out."""
    for area, first, further in CITATION.findall(" ".join(text.split())):
        yield area + first
        last = first
        for joint, number in FURTHER.findall(further):
            if joint == " to " and last.isdigit() and number.isdigit():
                yield from (f"{area}{n:0{len(last)}}" for n in range(int(last) + 1, int(number)))
            yield area + number
            last = number


def citations(folder: Path) -> dict[str, list[str]]:
    """Requirement -> the files that cite it."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(folder.rglob("*.py")):
        for requirement in sorted(set(requirements_in(path.read_text(encoding="utf-8")))):
            found[requirement].append(path.relative_to(ROOT).as_posix())
    return found


def main() -> int:
    """Print what is missing."""
    cited, tested = citations(ROOT / "workbench"), citations(ROOT / "tests")
    missing = sorted(set(cited) - set(tested))
    for requirement in missing:
        print(f"{requirement}: no test names it; cited in {', '.join(cited[requirement])}")
    print(f"{len(cited) - len(missing)} of {len(cited)} cited requirements are named by a test")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
