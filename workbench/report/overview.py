"""Configurations side by side: the table, the recommendation and the sentences of every report.

In: a run set. Out: plain values; `terminal.py`, `page.py` and `display.py` give them their form. Needs neither
pandas nor matplotlib. Implements the decisions of WB-UI-04 and WB-TUNE-06; money comes with the cost model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from workbench.evaluate.net import (
    NET_RULE,
    Configured,
    is_baseline,
    net_prompt_tokens,
    net_tokens,
    settings_of,
    shortened_by,
    switched_on,
)
from workbench.report.labels import (
    UNKNOWN,
    counted,
    difference,
    listed,
    number,
    percent,
    quoted,
    share,
)

if TYPE_CHECKING:
    from workbench.report.frames import RunLike, Runs

_NO_WINDOW = "the context window of the model is unknown"
_NO_EARLIER = "no call has an earlier request in its conversation"
_NOT_MEASURED = "not measured in this run"


@dataclass(frozen=True, slots=True)
class Cell:
    """One figure of the table: its text, why it is unknown or its exact value, and its difference."""

    text: str
    note: str = ""
    difference: str = ""
    needs_action: bool = False


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the table: `measure` takes the run and the run that differences refer to."""

    title: str
    doc: str
    measure: Callable[[RunLike, RunLike | None], Cell]
    fact: str = ""
    """A column of one fact is left out when no run knows it; without a fact it always stands."""
    is_fault: bool = False
    """It is left out also when the fact is 0 in every run."""

    def stands(self, runs: Iterable[RunLike]) -> bool:
        """The column has something to say about these runs."""
        if not self.fact:
            return True
        values = [run.facts.get(self.fact) for run in runs]
        return any(values) if self.is_fault else any(value is not None for value in values)


@dataclass(frozen=True, slots=True)
class Row:
    """One configuration."""

    name: str
    tags: tuple[str, ...]
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Overview:
    """What a report says first; `rows` are sorted: what fits the window first, then by net tokens."""

    heading: str
    rule: str
    provenance: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    remarks: tuple[str, ...]
    recommended: str | None
    baseline: str | None
    today: str | None


def overview(runs: Runs, *, today: str | None = None) -> Overview:
    """Table, recommendation and remarks of a run set.

    Args:
        runs: At least one run.
        today: Name of the configuration in production; without it the one that is called `today`.
    """
    ordered = sorted(runs.values(), key=_rank)
    baseline = next((run for run in runs.values() if is_baseline(run)), None)
    current = next((run for run in runs.values() if run.name == (today or "today")), None)
    best = _best(ordered)
    tagged = (("recommended", best), ("baseline", baseline), ("today", current))
    columns = tuple(column for column in _COLUMNS if column.stands(ordered))
    return Overview(
        heading=_heading(ordered, best, baseline, current),
        rule=_rule(ordered, baseline),
        provenance=provenance(ordered),
        columns=columns,
        rows=tuple(
            Row(
                name=run.name,
                tags=tuple(tag for tag, tagged_run in tagged if tagged_run is run),
                cells=tuple(column.measure(run, baseline) for column in columns),
            )
            for run in ordered
        ),
        remarks=tuple(_remarks(ordered, best, baseline)),
        recommended=best.name if best else None,
        baseline=baseline.name if baseline else None,
        today=current.name if current else None,
    )


def shortens_requests(run: Configured) -> bool:
    """Whether compaction or tailoring is on."""
    settings = settings_of(run)
    return switched_on(settings.get("compaction")) or switched_on(settings.get("tailoring"))


def window_of(run: RunLike) -> int | None:
    """The context window that the run was measured against."""
    model = settings_of(run).get("model")
    window = model.get("context_window") if isinstance(model, Mapping) else None
    return window if isinstance(window, int) and window > 0 else None


def _overflows(run: RunLike) -> bool:
    return bool(run.facts.get("overflow_calls"))


def _rank(run: RunLike) -> tuple[int, bool, float, bool]:
    net = net_tokens(run)
    # Equal figures: the baseline stands first, because it is the simpler thing to run.
    return run.facts.get("overflow_calls") or 0, net is None, net or 0.0, not is_baseline(run)


def _best(ordered: list[RunLike]) -> RunLike | None:
    """The recommendation: first in rank, if it fits the window and there was something to choose from."""
    if len(ordered) < 2 or _overflows(ordered[0]) or net_tokens(ordered[0]) is None:
        return None
    return ordered[0]


# --- the table --------------------------------------------------------------------------------------------


def _net(run: RunLike, reference: RunLike | None) -> Cell:
    net = net_tokens(run)
    if net is None:
        return Cell(UNKNOWN, "the reused prefix is unknown")
    return Cell(number(net), f"{net:,.0f}", _against(net, net_tokens(reference) if reference else None, run, reference))


def _against(value: float, other: float | None, run: RunLike, reference: RunLike | None) -> str:
    return "" if other is None or reference is run else difference(value, other)


def _plain(fact: str, unknown: str, form: Callable[[float], str] = number) -> Callable[[RunLike, RunLike | None], Cell]:
    def measure(run: RunLike, reference: RunLike | None) -> Cell:
        value = run.facts.get(fact)
        if value is None:
            return Cell(UNKNOWN, unknown)
        return Cell(form(value), f"{value:,}" if isinstance(value, int) else "")

    return measure


def _peak(run: RunLike, reference: RunLike | None) -> Cell:
    peak, window = run.facts.get("peak_prompt_tokens"), window_of(run)
    if peak is None:
        return Cell(UNKNOWN, "no call")
    share_of_window = f", {percent(peak / window)} of the window" if window else ""
    return Cell(number(peak), f"{peak:,}{share_of_window}", needs_action=_overflows(run))


def _faults(fact: str) -> Callable[[RunLike, RunLike | None], Cell]:
    def measure(run: RunLike, reference: RunLike | None) -> Cell:
        faults = run.facts.get(fact)
        if faults is None:
            return Cell(UNKNOWN, _NOT_MEASURED)
        return Cell(number(faults), f"{faults:,}", needs_action=faults > 0)

    return measure


def _overflow(run: RunLike, reference: RunLike | None) -> Cell:
    calls = run.facts.get("overflow_calls")
    if calls is None:
        return Cell(UNKNOWN, _NO_WINDOW)
    return Cell(number(calls), "calls over the context window", needs_action=calls > 0)


_COLUMNS = (
    Column("cost / 1,000 conv.", "US dollars, main and summary calls", _plain("cost_usd", "no price"), "cost_usd"),
    Column("net tokens", NET_RULE, _net),
    Column("prompt", "prompt tokens of all main-model calls", _plain("prompt_tokens", "no call")),
    Column("peak", "largest prompt, in tokens", _peak),
    Column(
        "summary model",
        "tokens that the summary model read and wrote; part of the net tokens",
        _plain("summary_tokens", _NOT_MEASURED),
    ),
    Column("calls", "calls of the main model", _plain("calls", _NOT_MEASURED)),
    Column("firings", "trigger checks that fired", _plain("firings", _NOT_MEASURED)),
    Column(
        "prefix reuse",
        "reused tokens / tokens of the longest earlier request that was still alive",
        _plain("prefix_reuse", _NO_EARLIER, share),
    ),
    Column(
        "prefix share",
        "leading tokens equal to an earlier request, of all prompt tokens of calls that had one",
        _plain("prefix_share", _NO_EARLIER, share),
    ),
    Column("overflow", "calls whose prompt exceeds the context window", _overflow),
    Column(
        "protocol faults",
        "faults for which a provider may refuse a request, each counted at its first call",
        _faults("protocol_violations"),
        "protocol_violations",
        is_fault=True,
    ),
    Column(
        "coverage faults",
        "events that are neither in a request nor in its summary, or in both without a rule",
        _faults("coverage_violations"),
        "coverage_violations",
        is_fault=True,
    ),
    Column(
        "facts kept",
        "needed-fact recall",
        _plain("needed_fact_recall", "too few needed facts", share),
        "needed_fact_recall",
    ),
)


# --- the words --------------------------------------------------------------------------------------------


def sentence(run: RunLike, baseline: RunLike | None) -> str:
    """What one configuration did, against the baseline where there is one."""
    facts = run.facts
    calls, prompt, peak = facts.get("calls") or 0, facts.get("prompt_tokens"), facts.get("peak_prompt_tokens")
    name = quoted(run.name)
    if not calls or prompt is None or peak is None:
        return f"{name} made no model call."
    size = f"{counted(prompt, 'prompt token')}, peak {number(peak)}"
    if is_baseline(run):
        return f"{name} sends the whole history: {size}{_overflow_words(run)}{_fault_words(run)}."
    change = _change(run, baseline) or f": {size}"
    return f"{name} {_activity(run)}{change}{_overflow_words(run)}{_fault_words(run)}."


def _activity(run: RunLike) -> str:
    """How often the trigger fired and what came of it."""
    facts = run.facts
    calls, checks = facts.get("calls") or 0, facts.get("checks") or 0
    firings, summaries = facts.get("firings") or 0, facts.get("summaries") or 0
    if not settings_of(run).get("summarizer") and not firings:
        return listed([*shortened_by(settings_of(run)), "makes no summaries"])
    if not firings:
        return f"never fired in {counted(checks, 'check')}" if checks else "never checked its trigger"
    if not summaries:
        return f"fired {counted(firings, 'time')} but wrote no summary"
    every = f", one in {number(calls / summaries)} calls" if calls >= 1.5 * summaries else ""
    wrote = f"wrote {counted(summaries, 'summary', 'summaries')}{every}"
    return wrote if firings == summaries else f"{wrote} ({counted(firings, 'firing')})"


def _change(run: RunLike, baseline: RunLike | None) -> str:
    """What became of prompt, peak and bill; empty without a baseline to stand against."""
    if baseline is None or not baseline.facts.get("prompt_tokens"):
        return ""
    now, before = run.facts, baseline.facts
    words = ": same prompt tokens as the baseline"
    if now["prompt_tokens"] != before["prompt_tokens"]:
        words = (
            f": prompt tokens {number(before['prompt_tokens'])} → {number(now['prompt_tokens'])} "
            f"({difference(now['prompt_tokens'], before['prompt_tokens'])}), "
            f"peak {number(before['peak_prompt_tokens'])} → {number(now['peak_prompt_tokens'])}"
        )
    if now.get("prefix_reuse") is not None:
        words += f", prefix reuse {share(now['prefix_reuse'])}"
    net, other = net_tokens(run), net_tokens(baseline)
    if net is not None and other and net > other and now["prompt_tokens"] < before["prompt_tokens"]:
        words += f"; smaller prompts, but {percent(net / other - 1)} more net tokens"
    return words


def _overflow_words(run: RunLike) -> str:
    overflow = run.facts.get("overflow_calls")
    return f"; {number(overflow)} of {counted(run.facts.get('calls') or 0, 'call')} overflow" if overflow else ""


def _fault_words(run: RunLike) -> str:
    """How many faults its requests have, and where to look first; empty without any."""
    facts = run.facts
    counts = [
        counted(n, f"{kind} fault") for kind in ("protocol", "coverage") if (n := facts.get(f"{kind}_violations") or 0)
    ]
    if not counts:
        return ""
    row = next(iter(run.rows("violations")), None)
    first = (
        f", first {row['rule']} by {row['step']} in {quoted(str(row['conversation']))}, call {row['call']}"
        if row
        else ""
    )
    return f"; {listed(counts)}{first}"


def _heading(ordered: list[RunLike], best: RunLike | None, baseline: RunLike | None, current: RunLike | None) -> str:
    if not any(run.facts.get("calls") for run in ordered):
        return "No model call in these recordings: nothing to measure"
    if len(ordered) == 1:
        return _heading_of_one(ordered[0])
    if best is None:
        return _heading_without_choice(ordered[0])
    runner_up = next((run for run in ordered if run is not best and net_tokens(run) is not None), None)
    if all(net_tokens(run) == net_tokens(best) for run in ordered):
        group = "both" if len(ordered) == 2 else f"all {len(ordered)}"
        return f"It makes no difference: {group} configurations need {number(net_tokens(best) or 0)} net tokens"
    behind = _behind(best, runner_up)
    if best is baseline:
        return f"Do without summaries: {quoted(best.name)} needs the fewest net tokens{behind}"
    if best is current:
        return f"Keep {quoted(best.name)}: it needs the fewest net tokens{behind}"
    gains = [
        f"{gain} than {words}"
        for other, words in ((current, "today"), (baseline, "without summaries"))
        if other is not None and (gain := _gain(best, other))
    ]
    words = f"{gains[0].replace(' than', ' net tokens than', 1)}" if gains else f"fewest net tokens{behind}"
    return f"Take {quoted(best.name)}: {listed([words, *gains[1:]])}{_fit(best)}"


def _heading_of_one(run: RunLike) -> str:
    facts = run.facts
    return (
        f"{quoted(run.name)} sends {counted(facts.get('prompt_tokens') or 0, 'prompt token')} in "
        f"{counted(facts['calls'], 'call')}, peak {number(facts.get('peak_prompt_tokens') or 0)}"
        f"{_overflow_words(run)}: nothing to compare it with"
    )


def _heading_without_choice(closest: RunLike) -> str:
    if not _overflows(closest):
        return "No recommendation: the reused prefix of these runs is unknown"
    window = window_of(closest)
    size = f" of {number(window)}" if window else ""
    return (
        f"No configuration fits the window{size}: {quoted(closest.name)} comes closest, "
        f"{number(closest.facts['overflow_calls'])} of {counted(closest.facts['calls'], 'call')} exceed it"
    )


def _behind(best: RunLike, runner_up: RunLike | None) -> str:
    other = net_tokens(runner_up) if runner_up else None
    if runner_up is None or other is None:
        return ""
    if _overflows(runner_up):
        return ", the others exceed the window"
    if other == net_tokens(best):
        return f", as many as {quoted(runner_up.name)}"
    return f", {quoted(runner_up.name)} is next with {difference(other, net_tokens(best) or 0)}"


def _gain(best: RunLike, other: RunLike) -> str:
    net, reference = net_tokens(best), net_tokens(other)
    if net is None or not reference or net >= reference:
        return ""
    return f"{percent(1 - net / reference)} fewer"


def _fit(best: RunLike) -> str:
    return ", no overflow" if best.facts.get("overflow_calls") == 0 else ""


def _rule(ordered: list[RunLike], baseline: RunLike | None) -> str:
    """How the recommendation was chosen, and what the differences refer to."""
    known = any(run.facts.get("overflow_calls") is not None for run in ordered)
    among = "among configurations without overflow" if known else "the context window is unknown, so overflow isn't"
    chosen = f"Rule: fewest net tokens {among}" if known else f"Rule: fewest net tokens; {among} checked"
    against = f" Differences are against {quoted(baseline.name)}." if baseline and len(ordered) > 1 else ""
    return f"{chosen}; {NET_RULE}.{against}"


def _remarks(ordered: list[RunLike], best: RunLike | None, baseline: RunLike | None) -> Iterable[str]:
    if baseline is None:
        yield "The baseline “no summary” is missing: savings can't be stated."
    for field, words in (("data_hash", "data"), ("profile", "profiles")):
        if len({run.facts.get(field) for run in ordered}) > 1:
            yield f"The runs were made with different {words}: compare them with care."
    if best is None:
        return
    prompts = {run.name: net for run in ordered if not _overflows(run) and (net := net_prompt_tokens(run)) is not None}
    cheapest = min(prompts, key=lambda name: (prompts[name], name != best.name), default=best.name)
    if cheapest != best.name:
        yield (
            f"The summary model's tokens decide: without them {quoted(cheapest)} would come first. They count at the "
            "price of an uncached prompt token; a cheaper summary model moves the choice that way."
        )


def provenance(runs: Iterable[RunLike]) -> str:
    """One line: what was measured, under which profile, with which summaries and counters."""
    first, *others = runs
    facts = first.facts
    parts = [
        f"data {str(facts['data_hash'])[:8]}…" if facts.get("data_hash") else "data without a hash",
        counted(facts.get("conversations") or 0, "conversation"),
        counted(facts.get("calls") or 0, "call"),
        f"profile {_distinct(run.facts.get('profile') for run in (first, *others))}",
        f"summaries: {_distinct(map(summary_source, (first, *others)))}",
        f"engine counter: {_distinct(map(engine_counter, (first, *others)))}",
        f"billing counter: {_distinct(map(billing_counter, (first, *others)))}",
    ]
    return " · ".join(parts)


def _distinct(values: Iterable[Any]) -> str:
    known = dict.fromkeys(str(value) for value in values if value)
    if len(known) > 3:
        return f"{len(known)} different ones"
    return listed(known) if known else "unknown"


def summary_source(run: RunLike) -> str | None:
    """Where the summaries came from; None when the configuration makes none."""
    settings = settings_of(run)
    source = _inside(settings, "summaries", "source") or "extractive"
    return str(source) if settings.get("summarizer") else None


SCRIPT_RATIOS = "characters per token by script"


def engine_counter(run: Configured) -> str | None:
    """The counter that drives the triggers, with its parameter."""
    counter = settings_of(run).get("counter")
    if not isinstance(counter, Mapping):
        return str(counter) if counter else None
    parameter = counter.get("encoding") if counter.get("kind") == "tiktoken" else counter.get("runes_per_token")
    kind = str(counter.get("kind") or "runes")
    if kind == "scripts":
        return SCRIPT_RATIOS
    if kind == "runes" and parameter is not None:
        return f"{parameter} characters per token"
    return f"{kind} {parameter}" if kind == "tiktoken" and parameter else kind


def billing_counter(run: Configured) -> str | None:
    """The counter that measures prompts."""
    encoding = _inside(settings_of(run), "billing", "encoding")
    return str(encoding) if encoding else None


def _inside(settings: Mapping[str, Any], table: str, key: str) -> Any:
    part = settings.get(table)
    return part.get(key) if isinstance(part, Mapping) else None
