"""Comparisons and lints as a person reads them: verdicts, differences with intervals, findings, sweeps (WB-TUNE-01, -02, -07).

In: a `Comparison`, a `Lint` or a `Sweep`. Out: terminal text, a section of the page, a notebook display. An interval that isn't there is a
dash, and a sentence says why.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
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
    from workbench.evaluate.dry_run import DryRun
    from workbench.evaluate.lint import Lint
    from workbench.evaluate.sweep import Sweep, SweepPlan

_HEAD = ("per conversation", "reference", "run", "difference", "95 % interval", "sure")
_PLACE_HEAD = ("conversation", "net tokens", "at call", "prompt there", "reference")
_SWEEP_HEAD = ("configuration", "net tokens", "peak", "overflow", "prompt", "net", "verdict")
_NEXT_HEAD = ("conversation", "events", "tokens it takes", "prompt now", "prompt then", "calls to pay it back")
_MAX_SWEEP_ROWS = 15
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


def plan_text(plan: SweepPlan) -> str:
    """What a sweep would do, and why its grid is as it is."""
    lines = []
    for choice in plan.choices:
        values = ", ".join(map(_value_text, choice.values)) or UNKNOWN
        lines += broken(f"{choice.option}: {values}", LINE_WIDTH)
        lines += [f"    {line}" for line in broken(choice.why, LINE_WIDTH - 4)]
    live = f", up to {number(plan.live_tokens)} tokens of the live model" if plan.live_tokens else ""
    lines.append(
        f"{counted(plan.runs, 'run')} over {counted(plan.conversations, 'conversation')}, "
        f"{counted(plan.calls, 'call')}, about {_duration(plan.expected_s)}{live}"
    )
    return "\n".join(lines)


def _value_text(value: object) -> str:
    return printable(value if isinstance(value, str) else json.dumps(value))


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(round(seconds), 1)} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def sweep_text(found: Sweep) -> str:
    """What `workbench sweep` prints at its end."""
    heading = f"Take {quoted(found.recommended)}" if found.recommended else "No recommendation"
    lines = broken(f"{heading}: {found.reason}.", LINE_WIDTH)
    table = figures_table(_SWEEP_HEAD, _sweep_rows(found))
    left_out = len(found.candidates) - _MAX_SWEEP_ROWS
    more = [f"… and {left_out} more runs, all behind these"] if left_out > 0 else []
    note = broken(_sweep_note(found), LINE_WIDTH)
    return "\n".join([*lines, "", table, *more, "", *note])


def sweep_html(found: Sweep) -> str:
    """A sweep in a notebook."""
    heading = f"Take {quoted(found.recommended)}" if found.recommended else "No recommendation"
    rows = _sweep_rows(found)
    parts = [element("div", element("b", f"{heading}: {found.reason}.")), _html_table(_SWEEP_HEAD, rows)]
    return element("div", *parts, element("div", element("small", _sweep_note(found))))


def _sweep_rows(found: Sweep) -> list[list[str]]:
    shown = list(found.candidates[:_MAX_SWEEP_ROWS])
    shown += [one for one in found.candidates[_MAX_SWEEP_ROWS:] if one.name == found.baseline]
    rows = []
    for one in shown:
        tags = [
            tag for tag, name in (("recommended", found.recommended), ("baseline", found.baseline)) if name == one.name
        ]
        name = shorten(one.name, 44) + (f" [{', '.join(tags)}]" if tags else "")
        size, cost = (
            UNKNOWN if change is None else _signed_percent(change)
            for change in (one.rest_prompt_change, one.rest_net_change)
        )
        figures = [number(one.net_tokens), number(one.peak_prompt_tokens), f"{one.overflow_calls:,}"]
        rows.append([name + ("" if not one.is_pareto else " *"), *figures, size, cost, one.verdict or "the baseline"])
    return rows


def _sweep_note(found: Sweep) -> str:
    rest = f"the last three columns on {counted(len(found.reported_on), 'other')}"
    if found.chosen_on == found.reported_on:
        rest = "so are the last three columns, since there is no other"
    return (
        f"Chosen on {counted(len(found.chosen_on), 'conversation')} (seed {found.seed}); {rest}, against "
        f"{quoted(found.baseline)}. * = no run is better in overflow, net tokens and peak at once. Fewer tokens say "
        "nothing about what a summary has lost."
    )


def lint_text(found: Lint, following: Sequence[DryRun] = ()) -> str:
    """What `workbench lint` prints for one configuration; `following` is what the next summaries would do."""
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
    if following:
        lines += ["", f"A summary made now ({following[0].stand_in} text, no model called):"]
        lines += figures_table(_NEXT_HEAD, map(_next_cells, following)).split("\n")
    return "\n".join(lines)


def _next_cells(one: DryRun) -> list[str]:
    pays = one.calls_to_pay_back
    figures = [one.events_covered, one.request_tokens + one.completion_tokens, one.prompt_tokens_before]
    after = number(one.prompt_tokens_after)
    return [shorten(one.conversation, 40), *map(number, figures), after, UNKNOWN if pays is None else number(pays)]


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
