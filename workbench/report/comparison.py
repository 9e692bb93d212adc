"""Comparisons and lints as a person reads them: verdicts, differences with intervals, findings, sweeps (WB-TUNE-01, -02, -07).

In: a `Comparison`, a `Lint` or a `Sweep`. Out: terminal text, a section of the page, a notebook display. An interval that isn't there is a
dash, and a sentence says why.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from workbench.evaluate.compare import MIN_CONVERSATIONS, N_DRAWS, SMALLER_BUT_DEARER
from workbench.evaluate.grid import SHORT_NAMES
from workbench.report.labels import (
    MINUS,
    UNKNOWN,
    counted,
    listed,
    money,
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
    from workbench.evaluate.choice import Decision, Standing
    from workbench.evaluate.compare import Comparison, Difference, Place, Verdict
    from workbench.evaluate.dry_run import DryRun
    from workbench.evaluate.lint import Lint
    from workbench.evaluate.sweep import Candidate, Sweep, SweepPlan

_HEAD = ("per conversation", "reference", "run", "difference", "95 % interval", "sure")
_PLACE_HEAD = ("conversation", "net tokens", "at call", "prompt there", "reference")
_SHARES = frozenset({"prefix_reuse", "needed_fact_recall"})
_NEXT_HEAD = ("conversation", "events", "tokens it takes", "prompt now", "prompt then", "calls to pay it back")
_MAX_SWEEP_ROWS = 15
_MAX_OPEN_TABLES = 3
"""More tables of differences on a page are folded but for that of the recommendation: the sentences say the verdicts."""
_QUANTILES = (("p50", "half at most"), ("p90", "90 % at most"), ("max", "largest"))
_MEASURE_NAMES = {
    "cost": "money",
    "net_tokens": "net tokens",
    "prompt_tokens": "prompt tokens",
    "peak_prompt_tokens": "largest prompt",
    "summary_tokens": "summary model",
    "firings": "firings",
    "overflow_calls": "calls over the window",
    "prefix_reuse": "prefix reuse",
    "needed_fact_recall": "needed-fact recall",
}


def comparison_text(comparison: Comparison) -> str:
    """What `workbench compare` prints."""
    blocks = ["\n".join(broken(decision_sentence(comparison.decision), LINE_WIDTH))]
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
    lines = broken(_sweep_heading(found), LINE_WIDTH)
    table = figures_table(_sweep_head(found), _sweep_rows(found))
    left_out = len(found.candidates) - _MAX_SWEEP_ROWS
    more = [f"… and {left_out} more runs, all behind these"] if left_out > 0 else []
    note = broken(_sweep_note(found), LINE_WIDTH)
    return "\n".join([*lines, "", table, *more, "", *note])


def sweep_html(found: Sweep) -> str:
    """A sweep in a notebook."""
    rows = _sweep_rows(found)
    parts = [element("div", element("b", _sweep_heading(found))), _html_table(_sweep_head(found), rows)]
    return element("div", *parts, element("div", element("small", _sweep_note(found))))


def _sweep_heading(found: Sweep) -> str:
    return decision_sentence(replace(found.decision, reason=found.reason))


def _sweep_head(found: Sweep) -> tuple[str, ...]:
    cost = "net tokens" if found.decision.currency is None else "per 1,000"
    overflow = ("overflow",) if _some_overflow(found) else ()
    return ("configuration", cost, "recall", "peak", *overflow, "prompt", "cost", "on the rest")


def _some_overflow(found: Sweep) -> bool:
    return any(one.standing.overflow_calls for one in found.candidates)


def _sweep_rows(found: Sweep) -> list[list[str]]:
    shown = list(found.candidates[:_MAX_SWEEP_ROWS])
    shown += [one for one in found.candidates[_MAX_SWEEP_ROWS:] if one.name == found.baseline]
    rows = []
    for one in shown:
        marks = f"{'→' if one.name == found.recommended else ' '}{'*' if one.is_pareto else ' '} "
        size, cost = (
            UNKNOWN if change is None else _signed_percent(change)
            for change in (one.rest_prompt_change, one.rest_cost_change)
        )
        figures = standing_cells(one.standing, found.decision.currency)
        if not _some_overflow(found):
            figures.pop()
        rows.append([marks + _values_of_name(one.name), *figures, size, cost, _sweep_verdict(one)])
    return rows


def _values_of_name(name: str) -> str:
    """`token:1600 mode=user` as `token:1600 · user`; the note says once what the values are of."""
    parts = name.split(" ")
    return " · ".join(part.partition("=")[2] or part for part in parts) if _is_of_grid(name) else name


def _is_of_grid(name: str) -> bool:
    return all("=" in part or ":" in part for part in name.split(" "))


def _options_of_names(found: Sweep) -> str:
    """What the values of the longest name are of; empty where no name is made of values."""
    parts = [one.name.split(" ") for one in found.candidates if _is_of_grid(one.name)]
    longest = max(parts, key=len, default=[])
    options = {short: option for option, short in SHORT_NAMES.items()}
    names = [part.partition("=")[0] if "=" in part else "trigger" for part in longest]
    return " · ".join(options.get(name, name) for name in names)


def _sweep_verdict(one: Candidate) -> str:
    if not one.verdict:
        return "the baseline"
    if one.break_even_turn is None or not one.verdict.endswith("and cheaper"):
        return one.verdict
    return f"cheaper from turn {one.break_even_turn}"


def standing_cells(standing: Standing, currency: str | None) -> list[str]:
    """Cost, recall, peak and overflow of a run, as the choice weighs them."""
    cost, peak, overflow = standing.cost, standing.peak_prompt_tokens, standing.overflow_calls
    return [
        UNKNOWN if cost is None else number(cost) if currency is None else money(cost, currency),
        UNKNOWN if standing.recall is None else share(standing.recall),
        UNKNOWN if peak is None else number(peak),
        UNKNOWN if overflow is None else f"{overflow:,}",
    ]


def _sweep_note(found: Sweep) -> str:
    rest = f"the last three columns on {counted(len(found.reported_on), 'other')}"
    if found.chosen_on == found.reported_on:
        rest = "so are the last three columns, since there is no other"
    options = _options_of_names(found)
    names = f"Values of {options}. " if options else ""
    no_overflow = "" if _some_overflow(found) else "No prompt is over a known window. "
    said = (
        names
        + no_overflow
        + (
            f"Chosen on {counted(len(found.chosen_on), 'conversation')} (seed {found.seed}); {rest}, against "
            f"{quoted(found.baseline)}. → = recommended; * = no run that fits is better in cost, recall and peak at once."
        )
    )
    if found.decision.unweighed:
        return f"{said} Fewer tokens say nothing about what a summary has lost."
    if any(run.config.summarizer and run.config.summaries.source == "extractive" for run in found.runs.values()):
        return f"{said} Recall of the extractive source is a ceiling; a cassette or a live model gives the value."
    return said


def decision_sentence(decision: Decision) -> str:
    """What to take and why."""
    heading = f"Take {quoted(decision.recommended)}" if decision.recommended else "No recommendation"
    return f"{heading}: {decision.reason}."


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


def comparison_section(comparison: Comparison, names: Sequence[str] | None = None) -> Markup:
    """The part of a page about paired differences.

    Args:
        names: The runs that the page tells of one by one; without it all. Others are folded.
    """
    parts = [
        element("h2", "Compared conversation by conversation", id="compared"),
        element("p", decision_sentence(comparison.decision)),
        element("p", _on_what(comparison)) if comparison.is_held_back else None,
    ]
    is_folded = len(comparison.verdicts) > _MAX_OPEN_TABLES
    others = []
    for verdict in comparison.verdicts:
        is_open = not is_folded or verdict.run == comparison.decision.recommended
        told = [element("p", verdict_sentence(comparison, verdict)), *_tables(comparison, verdict.run, is_open=is_open)]
        if names is None or verdict.run in names:
            parts += told
        else:
            others.append(told)
    if others:
        title = element(
            "summary", f"{counted(len(others), 'more configuration')} against {quoted(comparison.reference)}"
        )
        parts.append(element("details", title, *(part for told in others for part in told)))
    parts += [element("p", note, class_="muted") for note in _notes(comparison)]
    return joined(parts)


def _tables(comparison: Comparison, run: str, *, is_open: bool) -> Iterator[Markup]:
    table = _html_table(_HEAD, _rows(comparison, run))
    rows = [_place_cells(place) for place in _places(comparison, run)]
    places = [_html_table(_PLACE_HEAD, rows)] if rows else []
    if is_open:
        yield table
        if places:
            yield element("details", element("summary", "Where they differ most"), *places)
    else:
        words = "All figures, and where they differ most" if places else "All figures"
        yield element("details", element("summary", words), table, *places)


def _on_what(comparison: Comparison) -> str:
    """What a sweep compares: the choice hasn't seen it."""
    n_seen = len(comparison.decision.chosen_on)
    return (
        f"What follows is of {counted(len(comparison.conversations), 'conversation')} held back, which are none of the "
        f"{number(n_seen)} of the choice."
    )


def comparison_html(comparison: Comparison) -> str:
    """A comparison in a notebook."""
    return element("div", comparison_section(comparison))


def verdict_sentence(comparison: Comparison, verdict: Verdict) -> str:
    """Smaller or larger, cheaper or dearer, by how much, how sure, and from which call on it pays."""
    cost = comparison.difference(verdict.run, verdict.by)
    size = comparison.difference(verdict.run, "prompt_tokens")
    sure = {True: "", False: "; the interval holds 0: not sure", None: ""}[verdict.is_certain]
    amounts = f"prompt tokens {_change(size)}, {_MEASURE_NAMES[verdict.by]} {_change(cost)}{sure}"
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


def _signed(value: float) -> str:
    return _with_sign(value, _amount)


def _with_sign(value: float, form: Callable[[float], str]) -> str:
    return "±0" if value == 0 else f"{MINUS if value < 0 else '+'}{form(abs(value))}"


def _amount(value: float) -> str:
    return f"{value:.1f}" if 0 < value < 100 and value != round(value) else number(value)


def _rows(comparison: Comparison, run: str) -> list[list[str]]:
    currency = comparison.currency
    return [_cells(found, currency) for found in comparison.differences if found.run == run]


def _cells(found: Difference, currency: str | None) -> list[str]:
    is_share = found.measure in _SHARES
    of_money = currency if found.measure == "cost" else None
    form = share if is_share else _amount if of_money is None else partial(money, currency=of_money)
    relative = "" if found.relative is None else f" ({_signed_percent(found.relative)})"
    interval = UNKNOWN
    if found.interval is not None:
        low, high = (_with_sign(end, form) for end in found.interval)
        interval = f"{low} to {high}"
    sure = {True: "yes", False: "no", None: UNKNOWN}[found.is_certain]
    change = _with_sign(found.difference, form)
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
