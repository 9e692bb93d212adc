"""Writes `reports/seed_examples.md`: every example and option table of the seed document, and the tests that run it.

In: the seed document beside the checkout, the `example_NN` functions and option rows under `tests/seed`.
Out: the report. Without the seed document the counts of its side are taken from the report as it is.
`--check` changes nothing and fails when the report is out of date.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
REPORT = ROOT / "reports" / "seed_examples.md"
TESTS = ROOT / "tests" / "seed"

# --- the seed document ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block of the seed document."""

    number: int
    line: int
    """Where it begins in the document's text, counted from 1."""
    lines: tuple[str, ...]


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


def tables_of(text: str) -> list[Table]:
    """The tables in document order; a table ends at a blank line or at the line numbers of a block."""
    lines = text.split("\n")
    found: list[Table] = []
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


def go_parts(lines: Iterable[str]) -> list[int]:
    """Counted lines of each part of a Go block; blank lines outside brackets part it.

    Blank lines, comment lines, the package clause and imports don't count.
    """
    parts = [0]
    depth = 0
    in_import = False
    for line in lines:
        text = line.strip()
        if in_import:
            in_import = text != ")"
        elif text.startswith("import ("):
            in_import = True
        elif not text:
            if not depth and parts[-1]:
                parts.append(0)
        elif not text.startswith(("//", "package ", "import ")):
            parts[-1] += 1
            code = text.split(" //")[0]
            depth += sum(code.count(mark) for mark in "({[") - sum(code.count(mark) for mark in ")}]")
    return [n for n in parts if n]


# --- the tests ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Counterpart:
    """The Python side of one example."""

    n_lines: int
    test: str
    """Node id of its test, relative to the checkout; empty when there is none."""


def counterparts() -> dict[int, Counterpart]:
    """By number, every `example_NN` below `tests/seed` with the one test that calls it."""
    found: dict[int, Counterpart] = {}
    for path in sorted(TESTS.glob("test_*.py")):
        source = path.read_text(encoding="utf-8")
        functions = {node.name: node for node in ast.parse(source).body if isinstance(node, _FUNCTION)}
        for name, node in functions.items():
            match = re.fullmatch(r"example_(\d\d)", name)
            if match is None:
                continue
            tests = [test for test in functions if test.startswith(f"test_{name}_") and calls(functions[test], name)]
            test = f"{path.relative_to(ROOT).as_posix()}::{tests[0]}" if len(tests) == 1 else ""
            if int(match[1]) in found:
                raise SystemExit(f"{name} is there twice; the second is in {path.name}")
            found[int(match[1])] = Counterpart(python_lines(node, source), test)
    return found


_FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef


def calls(node: ast.AST, name: str) -> bool:
    """Whether a function calls another by its plain name."""
    return any(
        isinstance(one, ast.Call) and isinstance(one.func, ast.Name) and one.func.id == name for one in ast.walk(node)
    )


def python_lines(node: ast.FunctionDef | ast.AsyncFunctionDef, source: str) -> int:
    """Counted lines of an example's body.

    Docstring, blank lines, comment lines and imports don't count, nor a last `return` of plain names: it hands to the
    test what the Go example leaves in its variables.
    """
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body[:]
    if _hands_over(body[-1]):
        body.pop()
    lines = source.splitlines()
    skipped = {
        n
        for statement in ast.walk(node)
        if isinstance(statement, ast.Import | ast.ImportFrom)
        for n in range(statement.lineno, (statement.end_lineno or 0) + 1)
    }
    numbers = range(body[0].lineno, (body[-1].end_lineno or 0) + 1)
    counted = [lines[n - 1].strip() for n in numbers if n not in skipped]
    return sum(bool(text) and not text.startswith("#") for text in counted)


def _hands_over(statement: ast.stmt) -> bool:
    if not isinstance(statement, ast.Return):
        return False
    values = statement.value.elts if isinstance(statement.value, ast.Tuple) else [statement.value]
    return all(isinstance(value, ast.Name) for value in values)


# --- what a person has to say ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class About:
    """What an example shows, and what has to be said about it."""

    shows: str
    why_more: str = ""
    """Why Python takes more lines; for those only."""
    note: str = ""
    is_text: bool = False
    """A drawing or a text: there is no Go to compare with."""
    store: str = ""
    """The database in the seed's example, where the test takes the in-memory service."""


EXAMPLES: dict[int, About] = {
    1: About("a summarizer with three triggers, one of which is enough"),
    2: About("the service that keeps sessions and makes summaries in the background"),
    3: About("agent and runner, the summary in the prompt"),
    4: About("a summary between two calls of one run"),
    5: About("summary requests that extend the agent's own request"),
    6: About("the summary as a user message, so that the system prefix stays"),
    7: About("tools to fetch what a summary hid", store="pgvector"),
    8: About(
        "the interface of a summarizer",
        "Go only declares the methods; this is a summarizer that works, and a method takes two lines",
    ),
    9: About("a check that reads the call's context"),
    10: About("a summarizer chosen per call", store="MySQL"),
    11: About("the choice put into a call's context"),
    12: About("a hook that reports trigger and cost"),
    13: About("the context window on the model, or on one run"),
    14: About("a context window registered by model name"),
    15: About("checks joined by and, or by or"),
    16: About("tool calls and results put into words"),
    17: About("callbacks around the summary model"),
    18: About("the type of a checker", "Go only names the type; this is a checker that works"),
    19: About("a prompt of one's own"),
    20: About("a prompt with a place for the last summary"),
    21: About("instructions in a system message of their own"),
    22: About("the token counter of the process"),
    23: About("newest events left out: by number, by time, by kind"),
    24: About("what a hook before the summary gets"),
    25: About("what a hook after the summary gets"),
    26: About("both hooks, and what their failure does"),
    27: About("a summary within a long tool loop"),
    28: About("summaries by hand: now or in the background, checked or forced"),
    29: About("the summary in the system message"),
    30: About("the summary in a user message, which may be trimmed"),
    31: About(
        "memories and other sessions in a user message",
        "what a file can configure is one value, so the options stand one level deeper: two lines of brackets",
    ),
    32: About("the summary joined to the first user message", is_text=True),
    33: About(
        "the summary as a user message of its own",
        note="the drawing ends in a user message, which by the rules below it would take the summary; so the test "
        "ends in a tool result, and shows both",
        is_text=True,
    ),
    34: About("tool-result compaction with all its settings, and tailoring"),
    35: About("a request after a summary within a run", is_text=True),
    36: About("no summary, the last ten rounds"),
    37: About("a request without a summary", is_text=True),
    38: About("the default form of the summary in the prompt", is_text=True),
    39: About("a form of one's own"),
    40: About("reading summaries"),
    41: About("a hook that sorts events under filter keys"),
    42: About("a filter key with and without the application's name"),
    43: About("a summary per kind of event"),
    44: About("only listed branches, no summary of the whole"),
    45: About("no branch, only the summary of the whole", store="MySQL"),
    46: About("a whole program"),
}
# Parts of an example that are about a database on a server; a table of their own.
SERVER_PARTS: dict[int, tuple[str, ...]] = {2: ("Redis", "PostgreSQL", "MySQL", "ClickHouse")}

TABLES: dict[int, str] = {
    1: "thresholds",
    2: "share of the context window",
    3: "combinations of checks",
    4: "how a summary is made",
    5: "hooks",
    6: "formatters of tool calls and results",
    7: "model callbacks",
    8: "built-in checkers",
    9: "which call for which occasion",
    10: "summary, compaction and tailoring beside each other",
    11: "places of the summary in the prompt",
    12: "advice by kind of session",
}

# --- the report -----------------------------------------------------------------------------------------

_HEAD = """# The seed document, example by example

Made by `python tools/seed_table.py`; a test fails when it is out of date.

The seed document describes the session summary of tRPC-Agent-Go. Each of its numbered code blocks has one running test
under `tests/seed`, in which a function `example_NN` says the same with this package; the test asserts what the document
says happens. Go lines are those of the document, Python lines those of that function. On both sides blank lines,
comments and imports don't count, in Python neither does a last `return` that hands the result to the test. Drawings
and texts have no Go to compare with. Python lines may be 120 columns wide; the document gives most options a line.
"""


@dataclass(frozen=True, slots=True)
class SeedCounts:
    """What the report takes from the seed document."""

    go: dict[int, int]
    servers: dict[tuple[int, str], int]
    tables: dict[int, int]


def counts_of(text: str) -> SeedCounts:
    """Counted from the document.

    Raises:
        SystemExit: it has another number of examples or tables than this module describes.
    """
    blocks, tables = blocks_of(text), tables_of(text)
    for what, numbers, known in (("example", blocks, EXAMPLES), ("table", tables, TABLES)):
        if {one.number for one in numbers} != set(known):
            raise SystemExit(f"the seed document has {len(numbers)} {what}s, {Path(__file__).name} has {len(known)}")
    go: dict[int, int] = {}
    servers: dict[tuple[int, str], int] = {}
    for block in blocks:
        parts = go_parts(block.lines)
        names = SERVER_PARTS.get(block.number, ())
        own = parts[: len(parts) - len(names)]
        go[block.number] = sum(own)
        servers.update({(block.number, name): n for name, n in zip(names, parts[len(own) :], strict=True)})
    return SeedCounts(go, servers, {table.number: table.n_lines for table in tables})


def counts_in(report: str) -> SeedCounts:
    """As the report has them."""
    examples, servers, tables = rows_in(report, "Examples"), rows_in(report, "Server stores"), rows_in(report, "Tables")
    return SeedCounts(
        {int(row[0]): int(row[2].strip("()")) for row in examples},
        {(int(row[0]), row[1]): int(row[2]) for row in servers},
        {int(row[0]): int(row[2]) for row in tables},
    )


def rows_in(report: str, section: str) -> list[list[str]]:
    """The cells of the table below a heading of the report."""
    _, _, rest = report.partition(f"\n## {section}\n")
    lines = [line for line in rest.split("\n## ")[0].splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[2:]]


def report_of(counts: SeedCounts) -> str:
    """The whole report."""
    from tests.seed.options import ROWS

    found = counterparts()
    examples = []
    for number, about in EXAMPLES.items():
        one = found.get(number, Counterpart(0, ""))
        go = counts.go[number]
        remarks = [about.why_more, about.note]
        if about.store:
            remarks.append(f"on the in-memory service; {about.store} is a server store, its own issue")
        shown = f"({go})" if about.is_text else str(go)
        examples.append((number, about.shows, shown, one.n_lines, f"`{one.test}`", "; ".join(filter(None, remarks))))
    servers = [(number, name, n, "server store, own issue") for (number, name), n in counts.servers.items()]
    tables = [(number, what, counts.tables[number], f"`{table_test(number)}`") for number, what in TABLES.items()]
    options = [(row.table, seed_cell(row), python_cell(row), config_cell(row), default_cell(row)) for row in ROWS]
    compared = [n for n, about in EXAMPLES.items() if not about.is_text]
    n_go, n_python = (sum(counts.go[n] for n in compared), sum(found[n].n_lines for n in compared))
    return "\n".join(
        [
            _HEAD,
            "## Examples\n",
            f"{len(compared)} of them are Go: {n_go} lines there, {n_python} here. A number in brackets is not Go.\n",
            *markdown_table(("#", "what it shows", "Go lines", "Python lines", "test", "remark"), examples),
            "\n## Server stores\n",
            "Parts of examples about databases that run elsewhere.\n",
            *markdown_table(("#", "store", "Go lines", "test"), servers),
            "\n## Tables\n",
            *markdown_table(("#", "what it lists", "lines", "test"), tables),
            "\n## Options\n",
            "Each row is one case of its table's test: the name exists, has this default, and has its effect.\n",
            *markdown_table(("table", "seed", "Python", "configuration file", "default"), options),
            "",
        ]
    )


def table_test(number: int) -> str:
    """Node id of a table's test; empty when there is none."""
    path = TESTS / "test_option_tables.py"
    names = re.findall(rf"^def (test_table_{number:02d}_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    return f"{path.relative_to(ROOT).as_posix()}::{names[0]}" if len(names) == 1 else ""


def seed_cell(row: Any) -> str:
    """The seed's name as code; the subject of a row that has none."""
    return f"`{row.seed_name}`" if row.seed_name[0].isupper() else str(row.seed_name)


def python_cell(row: Any) -> str:
    """How a program says it."""
    return str(row.python) if "`" in row.python else f"`{row.python}`"


def config_cell(row: Any) -> str:
    """The path in a configuration file."""
    return f"`{row.config}`" if row.config else ""


def default_cell(row: Any) -> str:
    """The default as a program writes it; nothing for rows without one."""
    return "" if row.default == "-" else f"`{row.default!r}`"


def markdown_table(heads: Iterable[str], rows: Iterable[Iterable[Any]]) -> list[str]:
    """Lines of a table."""
    heads = list(heads)
    cells = [[str(cell).replace("|", "\\|") for cell in row] for row in rows]
    return [f"| {' | '.join(row)} |" for row in (heads, ["---"] * len(heads), *cells)]


def faults_of(report: str) -> list[str]:
    """What is wrong with the report by itself, whether or not the seed document is here."""
    faults = []
    found = counterparts()
    rows = rows_in(report, "Examples")
    if [int(row[0]) for row in rows] != sorted(EXAMPLES):
        faults.append("the examples of the report aren't those of the tool")
    for row in rows:
        number, go, python, test = int(row[0]), int(row[2].strip("()")), int(row[3]), row[4].strip("`")
        about = EXAMPLES[number]
        if number not in found:
            faults.append(f"example {number} has no function example_{number:02d}")
        elif not test or found[number] != Counterpart(python, test):
            faults.append(f"example {number}: {found[number]} in tests/seed, {python} lines and {test} in the report")
        needs_a_reason = not about.is_text and python > go
        if needs_a_reason != bool(about.why_more):
            faults.append(f"example {number}: {python} lines against {go}, reason {about.why_more!r}")
    faults += [f"table {number} has no test" for number in TABLES if not table_test(number)]
    return faults


def main() -> int:
    """Rewrite the report, or check it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--check", action="store_true", help="change nothing; fail when the report is out of date")
    check = parser.parse_args().check
    before = REPORT.read_text(encoding="utf-8") if REPORT.exists() else ""
    text = seed_text()
    if text is None and not before:
        print("the seed document is not here: put it beside the checkout as shared/spec/seed", file=sys.stderr)
        return 1
    after = report_of(counts_in(before) if text is None else counts_of(text))
    faults = faults_of(after)
    if after != before:
        if check:
            faults.append(f"{REPORT.name} is out of date: run `python tools/seed_table.py`")
        else:
            REPORT.write_text(after, encoding="utf-8")
            print(f"{REPORT.name}: written anew")
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))  # the rows of options are in tests/
    sys.exit(main())
