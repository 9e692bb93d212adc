"""A check in a terminal and in a notebook: failures first, then what is undecided, then what passed, in few lines.

In: a `CheckResult`. Out: plain text, or HTML that stands alone; text from outside is escaped (SEC-07, SEC-13).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from workbench.regression.drift import RELATIVE, SHARES
from workbench.regression.figures import plain_value
from workbench.regression.finding import FAIL, PASS, UNDECIDED, Finding
from workbench.report.labels import UNKNOWN, counted, printable
from workbench.report.markup import element, joined
from workbench.report.terminal import LINE_WIDTH, broken, text_table

if TYPE_CHECKING:
    from workbench.regression.check import CheckResult

_COLUMNS = ("verdict", "conversation", "call", "expectation", "value", "limit")
_CHANGES = ("conversation", "figure", "accepted", "now")
_ALL = "all"
_PERCENT = frozenset(f"drift.{name}" for name in RELATIVE)
_POINTS = frozenset(f"drift.{name}" for name in SHARES)
_MAX_DETAILS = 12


def check_text(result: CheckResult) -> str:
    """Heading, what else a reader should know first, table, and what is wrong where."""
    lines = [heading(result)]
    for note in result.notes:
        lines += ["", *broken(printable(note), LINE_WIDTH)]
    lines += ["", text_table(_COLUMNS, table_rows(result.findings))]
    details = _details(result)
    if details:
        lines.append("")
        for text in details:
            lines += broken(text, LINE_WIDTH)
    return "\n".join(lines)


def changes_text(result: CheckResult) -> str:
    """What accepting changes."""
    if not result.changes:
        return f"{result.suite.baseline.name}: nothing differs from what is accepted"
    rows = [[row[name] if row[name] != "" else _ALL for name in _CHANGES] for row in result.changes]
    head = f"{result.suite.baseline.name}: {counted(len(rows), 'figure')} to accept"
    return f"{head}\n\n{text_table(_CHANGES, [[_shown(value) for value in row] for row in rows])}"


def heading(result: CheckResult) -> str:
    """One sentence: the verdict and the counts."""
    counts = result.counts
    verdict = "passed" if result.passed else "failed" if counts[FAIL] else "undecided"
    return (
        f"{printable(result.suite.name)}: {verdict} - {counted(counts[PASS], 'expectation')} passed, "
        f"{counts[FAIL]} failed, {counts[UNDECIDED]} undecided"
    )


def table_rows(findings: Sequence[Finding]) -> list[list[str]]:
    """Every failure and every undecided expectation; what passed once per expectation."""
    rows = [_row(one) for verdict in (FAIL, UNDECIDED) for one in findings if one.verdict == verdict]
    passed: dict[str, list[Finding]] = {}
    for one in findings:
        if one.verdict == PASS:
            passed.setdefault(one.expectation, []).append(one)
    for group in passed.values():
        rows.append(_row(group[0]) if len(group) == 1 else _row_of_many(group))
    return rows


def _row(one: Finding) -> list[str]:
    """What is said of all conversations isn't pinned on the one where it shows: that is named below the table."""
    call = UNKNOWN if one.call is None or not one.scope else str(one.call)
    value = _figure(one.expectation, one.value)
    return [
        one.verdict,
        one.scope or _ALL,
        call,
        one.expectation,
        f"{_by(one)}{value}",
        _figure(one.expectation, one.limit),
    ]


def _row_of_many(group: Sequence[Finding]) -> list[str]:
    """Passed findings of several conversations: the values from the least to the greatest."""
    numbers = [one.value for one in group if isinstance(one.value, int | float) and not isinstance(one.value, bool)]
    expectation = group[0].expectation
    value = _figure(expectation, group[0].value) if len({str(one.value) for one in group}) == 1 else UNKNOWN
    if numbers and value == UNKNOWN:
        value = f"{_figure(expectation, min(numbers))} to {_figure(expectation, max(numbers))}"
    scope = counted(len(group), "conversation")
    limit = _figure(expectation, group[0].limit)
    return [PASS, scope, UNKNOWN, expectation, f"{_by(group[0])}{value}", limit]


def _by(one: Finding) -> str:
    """In front of how far a figure has moved, so that nobody takes it for the figure."""
    is_move = one.expectation.startswith("drift.") and one.expectation != "drift.moved_summaries"
    return "by " if is_move and one.value is not None else ""


def _figure(expectation: str, value: Any) -> str:
    """A value, or a limit, of an expectation."""
    if expectation not in _PERCENT | _POINTS or not isinstance(value, int | float):
        return _shown(value)
    hundredths = f"{100 * value:,.0f}" if value >= 1 else f"{100 * value:.3g}"
    return f"{hundredths} {'%' if expectation in _PERCENT else 'points'}"


def _shown(value: Any) -> str:
    if value is None:
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    plain = plain_value(value)
    return f"{plain:,}" if isinstance(plain, int | float) else printable(str(plain))


def _details(result: CheckResult) -> list[str]:
    """What is wrong where, or why there is no verdict; the same reason once, and not endlessly many."""
    groups: dict[tuple[str, str], list[str]] = {}
    for one in sorted((one for one in result.findings if one.verdict != PASS and one.detail), key=_failures_first):
        what = _told_of(one) if one.verdict == FAIL else one.expectation
        groups.setdefault((one.verdict, one.detail), []).append(what)
    told = [
        f"{verdict}: {', '.join(dict.fromkeys(what))}: {printable(detail)}"
        for (verdict, detail), what in groups.items()
    ]
    left_out = len(told) - _MAX_DETAILS
    return [*told[:_MAX_DETAILS], f"… and {left_out} more with --json"] if left_out > 0 else told


def _failures_first(one: Finding) -> bool:
    return one.verdict != FAIL


def _told_of(one: Finding) -> str:
    """The place and the expectation of a failure; of one over all conversations also where to look first."""
    where = one.conversation or one.scope
    place = f"{printable(where)}{'' if one.call is None else f', call {one.call}'}"
    if one.scope:
        return f"{place}: {one.expectation}"
    return f"{one.expectation} over all conversations{f', see {place}' if where else ''}"


def check_html(result: CheckResult) -> str:
    """Heading, table and reasons for a notebook."""
    rows = [element("tr", *(element("td", printable(text)) for text in row)) for row in table_rows(result.findings)]
    head = element("thead", element("tr", *(element("th", name, scope="col") for name in _COLUMNS)))
    details = [element("div", element("small", text)) for text in _details(result)]
    notes = [element("div", element("small", note)) for note in result.notes]
    table = element("table", head, element("tbody", joined(rows)))
    accepted = [element("pre", changes_text(result))] if result.accepted else []
    return element("div", element("div", element("b", heading(result))), *notes, table, *details, *accepted)
