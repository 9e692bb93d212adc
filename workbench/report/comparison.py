"""Comparisons and lints as a person reads them: verdicts, differences with intervals, findings (WB-TUNE-01, -07).

In: a `Comparison` or a `Lint`. Out: terminal text, a section of the page, a notebook display. An interval that isn't there is a
dash, and a sentence says why.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from workbench.evaluate.compare import MIN_CONVERSATIONS, N_DRAWS, SMALLER_BUT_DEARER
from workbench.report.labels import (
    MINUS,
    UNKNOWN,
    counted,
    listed,
    number,
    percent,
    printable,
    quoted,
    share,
    shorten,
)
from workbench.report.markup import Markup, element, joined
from workbench.report.terminal import LINE_WIDTH, broken, figures_table

if TYPE_CHECKING:
    from workbench.evaluate.compare import Comparison, Difference, Place, Verdict
    from workbench.evaluate.lint import Lint

_HEAD = ("per conversation", "reference", "run", "difference", "95 % interval", "sure")
_PLACE_HEAD = ("conversation", "net tokens", "at call", "prompt there", "reference")
_QUANTILES = (("p50", "half at most"), ("p90", "90 % at most"), ("max", "largest"))
_MEASURE_NAMES = {
    "net_tokens": "net tokens",
    "prompt_tokens": "prompt tokens",
    "peak_prompt_tokens": "largest prompt",
    "summary_tokens": "summary model",
    "firings": "firings",
    "overflow_calls": "calls over the window",
    "prefix_reuse": "prefix reuse",
}


def comparison_text(comparison: Comparison) -> str:
    """What `workbench compare` prints."""
    blocks = []
    for verdict in comparison.verdicts:
        lines = broken(verdict_sentence(comparison, verdict), LINE_WIDTH)
        table = figures_table(_HEAD, _rows(comparison, verdict.run)).split("\n")
        blocks.append("\n".join([*lines, "", *table]))
        places = _places(comparison, verdict.run)
        if places:
            rows = [_place_cells(place) for place in places]
            blocks.append("\n".join(["Where they differ most:", figures_table(_PLACE_HEAD, rows)]))
    return "\n\n".join([*blocks, "\n".join(piece for note in _notes(comparison) for piece in broken(note, LINE_WIDTH))])


def lint_text(found: Lint) -> str:
    """What `workbench lint` prints for one configuration."""
    corpus = found.corpus
    prompts = corpus["prompt_tokens"]
    about = f"{quoted(found.config)} on {counted(corpus['conversations'], 'conversation')}, {counted(corpus['calls'], 'call')}"
    if prompts:
        sizes = ", ".join(f"{name} {number(prompts[key])}" for key, name in _QUANTILES)
        about += f"; prompt tokens: {sizes}"
    lines = broken(about, LINE_WIDTH)
    for finding in found.findings:
        lines += broken(f"{finding.severity}: {printable(finding.text)}", LINE_WIDTH)
    if not found.findings:
        lines.append("nothing to remark")
    return "\n".join(lines)


def comparison_section(comparison: Comparison) -> Markup:
    """The part of a page about paired differences."""
    parts = [element("h2", "Compared conversation by conversation", id="compared")]
    for verdict in comparison.verdicts:
        parts.append(element("p", verdict_sentence(comparison, verdict)))
        parts.append(_html_table(_HEAD, _rows(comparison, verdict.run)))
        if places := _places(comparison, verdict.run):
            rows = [_place_cells(place) for place in places]
            parts.append(
                element("details", element("summary", "Where they differ most"), _html_table(_PLACE_HEAD, rows))
            )
    parts += [element("p", note, class_="muted") for note in _notes(comparison)]
    return joined(parts)


def comparison_html(comparison: Comparison) -> str:
    """A comparison in a notebook."""
    return element("div", comparison_section(comparison))


def verdict_sentence(comparison: Comparison, verdict: Verdict) -> str:
    """Smaller or larger, cheaper or dearer, by how much, how sure, and from which call on it pays."""
    net = comparison.difference(verdict.run, "net_tokens")
    size = comparison.difference(verdict.run, "prompt_tokens")
    sure = {True: "", False: "; the interval holds 0: not sure", None: ""}[verdict.is_certain]
    amounts = f"prompt tokens {_change(size)}, net tokens {_change(net)}{sure}"
    pays = ""
    even = verdict.break_even
    if even.call is not None:
        pays = (
            f" It pays from call {even.call:.0f} on (median; {even.reached} of "
            f"{counted(even.conversations, 'conversation')} get that far)."
        )
    elif verdict.verdict == SMALLER_BUT_DEARER:
        pays = " It pays in no conversation of these recordings: none is long enough."
    return f"{quoted(verdict.run)} against {quoted(verdict.reference)}: {verdict.verdict}; {amounts}.{pays}"


def _change(found: Difference) -> str:
    if found.relative is None:
        return f"{_signed(found.difference)}"
    return _signed_percent(found.relative)


def _signed_percent(value: float) -> str:
    if round(value, 3) == 0:
        return "±0 %"
    return f"{MINUS if value < 0 else '+'}{percent(value)}"


def _signed(value: float, *, is_share: bool = False) -> str:
    if value == 0:
        return "±0"
    size = share(abs(value)) if is_share else _amount(abs(value))
    return f"{MINUS if value < 0 else '+'}{size}"


def _amount(value: float) -> str:
    return f"{value:.1f}" if 0 < value < 100 and value != round(value) else number(value)


def _rows(comparison: Comparison, run: str) -> list[list[str]]:
    return [_cells(found) for found in comparison.differences if found.run == run]


def _cells(found: Difference) -> list[str]:
    is_share = found.measure == "prefix_reuse"
    form = share if is_share else _amount
    relative = "" if found.relative is None else f" ({_signed_percent(found.relative)})"
    interval = UNKNOWN
    if found.interval is not None:
        low, high = (_signed(end, is_share=is_share) for end in found.interval)
        interval = f"{low} to {high}"
    sure = {True: "yes", False: "no", None: UNKNOWN}[found.is_certain]
    change = _signed(found.difference, is_share=is_share)
    name = _MEASURE_NAMES.get(found.measure, found.measure)
    return [name, form(found.reference_value), form(found.value), f"{change}{relative}", interval, sure]


def _places(comparison: Comparison, run: str) -> list[Place]:
    return [place for place in comparison.widest if place.run == run]


def _place_cells(place: Place) -> list[str]:
    name, net = shorten(place.conversation, 40), _signed(place.net_difference)
    if place.call is None or place.prompt_tokens is None or place.reference_prompt_tokens is None:
        return [name, net, UNKNOWN, UNKNOWN, UNKNOWN]
    return [name, net, str(place.call), number(place.prompt_tokens), number(place.reference_prompt_tokens)]


def _notes(comparison: Comparison) -> Iterator[str]:
    n = comparison.differences[0].conversations
    if n < MIN_CONVERSATIONS:
        yield (
            f"{counted(n, 'conversation')}: too few for intervals, which need {MIN_CONVERSATIONS}; the differences are "
            "those of these recordings and say nothing about others."
        )
    else:
        yield (
            f"Intervals: {number(N_DRAWS)} draws from {counted(n, 'conversation')}, the same in every run; seed "
            f"{comparison.seed}. They hold for conversations like these."
        )
    if comparison.unpaired:
        shown = listed(quoted(name) for name in comparison.unpaired[:3])
        more = len(comparison.unpaired) - 3
        rest = f" and {more} more" if more > 0 else ""
        yield f"Left out, since not every run has them unchanged: {shown}{rest}."


def _html_table(head: tuple[str, ...], rows: list[list[str]]) -> Markup:
    titles = [element("th", title, scope="col", class_=None if i == 0 else "number") for i, title in enumerate(head)]
    body = [
        element(
            "tr", element("th", cells[0], scope="row"), *(element("td", text, class_="number") for text in cells[1:])
        )
        for cells in rows
    ]
    table = element("table", element("thead", element("tr", *titles)), element("tbody", *body))
    return element("div", table, class_="wide")
