"""Configurations side by side: the table, the recommendation and the sentences of every report.

In: a run set. Out: plain values; `terminal.py`, `page.py` and `display.py` give them their form. Needs neither
pandas nor matplotlib. Implements the decisions of WB-UI-04, WB-COST-02 and WB-TUNE-06.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from workbench.evaluate.choice import Decision, Scale, cost_per_1000, decide, limit_words, no_overflow_words, scale_of
from workbench.evaluate.cost import RunCost
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
from workbench.evaluate.savings import break_even, difference_of
from workbench.report.labels import (
    UNKNOWN,
    counted,
    difference,
    listed,
    money,
    number,
    percent,
    quoted,
    share,
)

if TYPE_CHECKING:
    from workbench.report.frames import RunLike, Runs

COST_RULE = "cost = main calls, summary calls and retries, each with what the prompt cache reads and writes"
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
    is_told_above: bool = False
    """It is left out when the fact is the same in every run: the line above the table says it."""

    def stands(self, runs: Iterable[RunLike]) -> bool:
        """The column has something to say about these runs."""
        if not self.fact:
            return True
        values = [run.facts.get(self.fact) for run in runs]
        if self.is_told_above and len(set(values)) == 1:
            return False
        return any(values) if self.is_fault else any(value is not None for value in values)


@dataclass(frozen=True, slots=True)
class Row:
    """One configuration."""

    name: str
    tags: tuple[str, ...]
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Overview:
    """What a report says first; `rows` are sorted as the decision is: the best first."""

    heading: str
    reason: str
    """Why, where only some of the conversations decided: their figures aren't those of the table. Else empty."""
    rule: str
    provenance: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    remarks: tuple[str, ...]
    recommended: str | None
    baseline: str | None
    today: str | None
    decision: Decision


def overview(runs: Runs, *, today: str | None = None, decision: Decision | None = None) -> Overview:
    """Table, recommendation and remarks of a run set.

    Args:
        runs: At least one run.
        today: Name of the configuration in production; without it the one that is called `today`.
        decision: What was chosen among these and perhaps other runs, on some of the conversations; without it all of
            them decide.
    """
    if decision is None or not {one.name for one in decision.standings} >= set(runs):
        decision = decide(runs)
    scale = Scale(decision.currency)
    ordered = [runs[one.name] for one in decision.standings if one.name in runs]
    baseline = next((run for run in runs.values() if is_baseline(run)), None)
    current = next((run for run in runs.values() if run.name == (today or "today")), None)
    best = None if decision.recommended is None else runs[decision.recommended]
    tagged = (("recommended", best), ("baseline", baseline), ("today", current))
    # Beside money the stand-in for it would only be a second opinion.
    left_out = None if scale.currency is None else _net
    columns = tuple(one for one in _COLUMNS if one.stands(ordered) and one.measure is not left_out)
    return Overview(
        heading=_heading(ordered, best, baseline, current, decision, part_of(decision, runs)),
        reason=_reason_of_part(runs, decision),
        rule=_rule(ordered, baseline, scale, decision, conversations_of(runs)),
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
        remarks=tuple(_remarks(ordered, best, baseline, decision, is_part=bool(part_of(decision, runs)))),
        recommended=best.name if best else None,
        baseline=baseline.name if baseline else None,
        today=current.name if current else None,
        decision=decision,
    )


def conversations_of(runs: Runs) -> int | None:
    """How many conversations each of the runs is of; None where they differ."""
    counts = {run.facts.get("conversations") for run in runs.values()}
    return counts.pop() if len(counts) == 1 else None


def part_of(decision: Decision, runs: Runs) -> str:
    """`10 of 15 conversations` where some of those of the runs decided; empty where all did."""
    chosen, total = len(decision.chosen_on), conversations_of(runs)
    return f"{number(chosen)} of {counted(total, 'conversation')}" if total and 0 < chosen < total else ""


def _reason_of_part(runs: Runs, decision: Decision) -> str:
    if not part_of(decision, runs):
        return ""
    return (
        f"{decision.reason[:1].upper()}{decision.reason[1:]}. The table is of all "
        f"{counted(conversations_of(runs) or 0, 'conversation')}, in the order of the choice."
    )


def is_unsure(run: RunLike, reference: RunLike) -> bool:
    """Whether the interval of what all conversations cost more or less holds 0; not without an interval."""
    own, other = cost_in_detail(run), cost_in_detail(reference)
    found = difference_of(own, other) if own and other else None
    return found is not None and _holds_nothing(found.interval)


def _holds_nothing(interval: tuple[float, float] | None) -> bool:
    return interval is not None and interval[0] <= 0 <= interval[1]


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


def amount(scale: Scale, value: float) -> str:
    """A cost in words."""
    if scale.currency is None:
        return f"{number(value)} net tokens"
    return f"{money(value, scale.currency)} per 1,000 conversations"


def cost_in_detail(run: RunLike) -> RunCost | None:
    """The cost of a run call by call; None for what isn't a stored run."""
    found = getattr(run, "cost", None)
    return found if isinstance(found, RunCost) else None


# --- the table --------------------------------------------------------------------------------------------


def _net(run: RunLike, reference: RunLike | None) -> Cell:
    net = net_tokens(run)
    if net is None:
        return Cell(UNKNOWN, "the reused prefix is unknown")
    return Cell(number(net), f"{net:,.0f}", _against(net, net_tokens(reference) if reference else None, run, reference))


def _against(value: float, other: float | None, run: RunLike, reference: RunLike | None) -> str:
    return "" if other is None or reference is run else difference(value, other)


def _cost(run: RunLike, reference: RunLike | None) -> Cell:
    cost, currency = cost_per_1000(run), run.facts.get("currency")
    if cost is None or currency is None:
        detail = cost_in_detail(run)
        return Cell(UNKNOWN, "; ".join(detail.unknown) if detail and detail.unknown else "no price")
    notes = [f"{money(run.facts['cost'], currency)} for {counted(run.facts['conversations'], 'conversation')}"]
    own = cost_in_detail(run)
    if own and own.summary_cost:
        notes.append(f"{money(own.summary_cost, currency)} of it for summaries")
    before = cost_per_1000(reference) if reference and reference.facts.get("currency") == currency else None
    return Cell(money(cost, currency), ", ".join(notes), _against(cost, before, run, reference))


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
    Column(
        "cost per 1,000",
        "money per 1,000 conversations: main calls, summary calls and retries, with the prompt cache",
        _cost,
        "cost",
    ),
    Column("net tokens", NET_RULE, _net),
    Column("prompt", "prompt tokens of all main-model calls", _plain("prompt_tokens", "no call")),
    Column("peak", "largest prompt, in tokens", _peak),
    Column(
        "summary model",
        "tokens that the summary model read and wrote; part of the net tokens",
        _plain("summary_tokens", _NOT_MEASURED),
    ),
    Column("calls", "calls of the main model", _plain("calls", _NOT_MEASURED), "calls", is_told_above=True),
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
    return words + _verdict(run, baseline)


def _verdict(run: RunLike, baseline: RunLike) -> str:
    """Cheaper or dearer; prompts that shrink and still cost more are called that (WB-TUNE-06)."""
    scale = scale_of((run, baseline))
    own, other = scale.value(run), scale.value(baseline)
    if own is None or not other:
        return ""
    is_smaller = run.facts["prompt_tokens"] < baseline.facts["prompt_tokens"]
    if scale.currency is None:
        if own <= other or not is_smaller:
            return ""
        return f"; smaller prompts, but {percent(own / other - 1)} more net tokens{_break_even_words(run, baseline)}"
    amounts = (
        f"({money(other, scale.currency)} → {money(own, scale.currency)} per 1,000 conversations"
        f"{_interval_words(run, baseline)})"
    )
    if own > other:
        but = "smaller, but dearer:" if is_smaller else "dearer:"
        return f"; {but} {percent(own / other - 1)} more {amounts}{_break_even_words(run, baseline)}"
    return f"; {percent(1 - own / other)} cheaper {amounts}" if own < other else ""


def _interval_words(run: RunLike, baseline: RunLike) -> str:
    """How sure the difference of costs is; empty where too few conversations say so."""
    own, other = cost_in_detail(run), cost_in_detail(baseline)
    found = difference_of(own, other) if own and other else None
    if found is None or found.interval is None:
        return ""
    low, high = (money(value, own.currency if own else "") for value in found.interval)
    unsure = ": not sure" if _holds_nothing(found.interval) else ""
    return f"; difference {low} to {high}, 95 %{unsure}"


def _break_even_words(run: RunLike, baseline: RunLike) -> str:
    own, other = cost_in_detail(run), cost_in_detail(baseline)
    if own is None or other is None:
        return ""
    found = break_even(own, other)
    turns = counted(found.longest, "turn")
    if found.median is None:
        return f", and breaks even in no conversation within {turns}"
    return (
        f", and breaks even in {len(found.reached)} of {counted(len(found.turns), 'conversation')}, "
        f"there at turn {found.median} (median)"
    )


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


def _heading(
    ordered: list[RunLike],
    best: RunLike | None,
    baseline: RunLike | None,
    current: RunLike | None,
    decision: Decision,
    part: str,
) -> str:
    scale = Scale(decision.currency)
    if not any(run.facts.get("calls") for run in ordered):
        return "No model call in these recordings: nothing to measure"
    if len(ordered) == 1:
        return _heading_of_one(ordered[0])
    if part:
        # What it saves there is no promise: the choice has seen these. The reason says what it does on the others.
        taken = "No recommendation" if best is None else _taken(best, baseline, current, decision)
        return f"{taken}, chosen on {part}"
    if best is None:
        return _heading_without_choice(ordered[0])
    runner_up = next((run for run in ordered if run is not best and scale.value(run) is not None), None)
    if all((scale.value(run), _recall(run)) == (scale.value(best), _recall(best)) for run in ordered):
        group = "both" if len(ordered) == 2 else f"all {len(ordered)}"
        verb = "need" if scale.currency is None else "cost"
        return f"It makes no difference: {group} configurations {verb} {amount(scale, scale.value(best) or 0)}"
    behind = _behind(best, runner_up, scale, decision)
    if best is baseline or best is current:
        return f"{_taken(best, baseline, current, decision)}{behind}"
    gains = [
        f"{gain} than {words}{_unsure(best, other)}"
        for other, words in ((current, "today"), (baseline, "without summaries"))
        if other is not None and (gain := _gain(best, other, scale))
    ]
    kept = "" if decision.unweighed else f", recall {share(decision.standing(best.name).recall or 0.0)}"
    if scale.currency is not None:
        words = listed(gains) if gains else f"the cheapest{behind}"
        return f"Take {quoted(best.name)}: {words}, {amount(scale, scale.value(best) or 0)}{kept}{_fit(best)}"
    words = f"{gains[0].replace(' than', ' net tokens than', 1)}" if gains else f"fewest net tokens{behind}"
    return f"Take {quoted(best.name)}: {listed([words, *gains[1:]])}{kept}{_fit(best)}"


def _taken(best: RunLike, baseline: RunLike | None, current: RunLike | None, decision: Decision) -> str:
    """What to do, and what it is best at."""
    if best is baseline:
        return f"Do without summaries: {quoted(best.name)} {_fewest(best, decision)}"
    return f"{'Keep' if best is current else 'Take'} {quoted(best.name)}: it {_fewest(best, decision)}"


def _recall(run: RunLike) -> float | None:
    return run.facts.get("needed_fact_recall")


def _fewest(best: RunLike, decision: Decision) -> str:
    """What is said of the best; where recall is weighed, it is the best of what keeps enough."""
    own = decision.standing(best.name)
    if not own.keeps_enough:
        return f"keeps the most of the needed facts, {share(own.recall or 0.0)}"
    least = "needs the fewest net tokens" if decision.currency is None else "is the cheapest"
    turned_down = any(one.fits and not one.keeps_enough for one in decision.standings)
    return f"{least} of what has {limit_words(decision)}" if turned_down else least


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


def _behind(best: RunLike, runner_up: RunLike | None, scale: Scale, decision: Decision) -> str:
    """How far the next is behind; nothing where another would be cheaper and was turned down for what it loses."""
    own, other = scale.value(best) or 0.0, scale.value(runner_up) if runner_up else None
    if runner_up is None or other is None or not decision.standing(runner_up.name).keeps_enough:
        return ""
    if _overflows(runner_up):
        return ", the others exceed the window"
    if other == own:
        return f", as {'many' if scale.currency is None else 'cheap'} as {quoted(runner_up.name)}"
    return f", {quoted(runner_up.name)} is next with {difference(other, own)}" if other > own else ""


def _gain(best: RunLike, other: RunLike, scale: Scale) -> str:
    own, reference = scale.value(best), scale.value(other)
    if own is None or not reference or own >= reference:
        return ""
    return f"{percent(1 - own / reference)} {'fewer' if scale.currency is None else 'cheaper'}"


def _unsure(best: RunLike, other: RunLike) -> str:
    return " (not sure)" if is_unsure(best, other) else ""


def _fit(best: RunLike) -> str:
    overflow = best.facts.get("overflow_calls")
    return f", {_no_overflow([best])}" if overflow == 0 else ", window unknown" if overflow is None else ""


def _no_overflow(runs: list[RunLike]) -> str:
    return no_overflow_words(sum(run.facts.get("unknown_windows") or 0 for run in runs))


def _rule(
    ordered: list[RunLike], baseline: RunLike | None, scale: Scale, decision: Decision, conversations: int | None
) -> str:
    """How the recommendation was chosen, on what, and what the differences refer to."""
    known = any(run.facts.get("overflow_calls") is not None for run in ordered)
    conditions = [*([] if decision.unweighed else [limit_words(decision)]), *([_no_overflow(ordered)] if known else [])]
    among = f" among configurations with {listed(conditions)}" if conditions else ""
    unknown = "" if known else "; the context window is unknown, so overflow isn't checked"
    if decision.recommended is not None and not decision.standing(decision.recommended).keeps_enough:
        among += ", and as none keeps so much, the one that keeps most"
    over = ""
    if conversations:
        n_chosen = len(decision.chosen_on) or conversations
        which = f"{number(n_chosen)} of " if n_chosen < conversations else "all " if conversations > 1 else ""
        over = f", over {which}{counted(conversations, 'conversation')}"
    n_more = len(decision.standings) - len(ordered)
    more = f" Not shown: {counted(n_more, 'run')} that the rule puts behind these." if n_more else ""
    against = f" Differences are against {quoted(baseline.name)}." if baseline and len(ordered) > 1 else ""
    meaning = NET_RULE if scale.currency is None else COST_RULE
    return f"Rule: {scale.least}{among}{unknown}{over}; {meaning}.{more}{against}"


def _remarks(
    ordered: list[RunLike], best: RunLike | None, baseline: RunLike | None, decision: Decision, *, is_part: bool
) -> Iterable[str]:
    if baseline is None:
        yield "The baseline “no summary” is missing: savings can't be stated."
    for field, words in (("data_hash", "data"), ("profile", "profiles")):
        if len({run.facts.get(field) for run in ordered}) > 1:
            yield f"The runs were made with different {words}: compare them with care."
    yield from _window_remark(ordered)
    reasons = dict.fromkeys(reason for run in ordered if (found := cost_in_detail(run)) for reason in found.unknown)
    if reasons:
        yield f"No cost: {'; '.join(reasons)}."
    if best is None:
        return
    if decision.unweighed:
        yield f"Chosen by cost alone: {decision.unweighed}."
    else:
        yield from _recall_remarks(ordered, best, decision, is_part=is_part)
    if decision.currency is not None or is_part:
        return
    prompts = {
        run.name: net
        for run in ordered
        if decision.standing(run.name).keeps_enough
        and not _overflows(run)
        and (net := net_prompt_tokens(run)) is not None
    }
    cheapest = min(prompts, key=lambda name: (prompts[name], name != best.name), default=best.name)
    if cheapest != best.name:
        yield (
            f"The summary model's tokens decide: without them {quoted(cheapest)} would come first. They count at the "
            "price of an uncached prompt token; a cheaper summary model moves the choice that way."
        )


def _window_remark(ordered: list[RunLike]) -> Iterable[str]:
    """Overflow in one window says nothing about another, and a larger one is what recommends a run that needs it."""
    sizes = {run.name: (settings_of(run).get("model") or {}).get("context_window") for run in ordered}
    if len(set(sizes.values())) < 2:
        return
    without = [quoted(name) for name, size in sizes.items() if size is None]
    given = sorted({number(size) for size in sizes.values() if size is not None})
    own = f", {listed(without)} {'has' if len(without) == 1 else 'have'} the recorded model's own" if without else ""
    yield (
        f"The windows differ: {listed(given)} tokens by model.context_window{own}. Overflow isn't compared on equal "
        "terms; give all configurations the same window."
    )


def _recall_remarks(ordered: list[RunLike], best: RunLike, decision: Decision, *, is_part: bool) -> Iterable[str]:
    """What was turned down for the facts it loses, and what recall is worth under this source."""
    own = decision.standing(best.name).cost or 0.0
    cheaper = [
        one
        for one in decision.standings
        if not one.keeps_enough and one.fits and one.cost is not None and one.cost < own
    ]
    if cheaper and not is_part:  # of a part the reason says it, in the figures of that part
        one = min(cheaper, key=lambda one: one.cost or 0.0)
        less, recall = percent(1 - (one.cost or 0.0) / own), share(one.recall or 0.0)
        yield f"{quoted(one.name)} costs {less} less, but its recall is {recall}: the choice turns on what may be lost."
    if any(summary_source(run) == "extractive" for run in ordered):
        yield (
            "Recall is a ceiling here: the extractive source picks facts by the rules that count them. A model's "
            "summaries keep less; a cassette or a live model gives the value."
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
    details = [found for run in (first, *others) if (found := cost_in_detail(run)) is not None]
    if rules := dict.fromkeys(f"{rule.title} ({rule.date})" for found in details for rule in found.rules):
        parts.append(f"cache: {_distinct(rules)}")
    prices: dict[str, list[str]] = {}
    for model, source in dict.fromkeys(pair for found in details for pair in found.priced_by):
        prices.setdefault(source, []).append(model)
    if prices:
        parts.append("prices: " + "; ".join(f"{_distinct(models)} by {source}" for source, models in prices.items()))
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
