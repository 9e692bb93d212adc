"""Which configuration to take: one rule for sweeps, comparisons and reports (WB-TUNE-02, -03, -06, WB-CLI-03).

In: runs over the same conversations, or their figures on a part of these. Out: a `Decision`: where each run stands,
which of them none beats in cost, recall and peak at once, the one to take, and the reason in words. The rule: the
cheapest that fits the window and keeps the needed facts. Cost is money where every run has a price, else net tokens.
What isn't known isn't weighed, and the reason says so. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from workbench.errors import ConfigError
from workbench.evaluate.figures import ConversationFigures
from workbench.evaluate.net import RunLike, Runs, is_baseline, net_tokens
from workbench.replay.needed import MIN_CONVERSATIONS, MIN_FACTS

MIN_RECALL = 0.98
"""Share of what the baseline keeps that a recommendation has to keep."""


@dataclass(frozen=True, slots=True)
class Scale:
    """What configurations are compared by: money where the cost of all of them is known, else net tokens."""

    currency: str | None
    """None = net tokens."""

    def value(self, run: RunLike) -> float | None:
        """What a whole run needs of it; of money per 1,000 conversations."""
        return net_tokens(run) if self.currency is None else cost_per_1000(run)

    @property
    def least(self) -> str:
        """What is said of the best."""
        return "fewest net tokens" if self.currency is None else "lowest cost"


def scale_of(runs: Iterable[RunLike]) -> Scale:
    """Money if every run has a cost in the same currency."""
    currencies = {run.facts.get("currency") if run.facts.get("cost") is not None else None for run in runs}
    return Scale(currencies.pop() if len(currencies) == 1 else None)


def cost_per_1000(run: RunLike) -> float | None:
    """What a thousand conversations like these cost; None where a price is unknown."""
    cost, conversations = run.facts.get("cost"), run.facts.get("conversations")
    return None if cost is None or not conversations else float(1000 * cost / conversations)


@dataclass(frozen=True, slots=True)
class Standing:
    """One run by what the choice is made of."""

    name: str
    cost: float | None
    """In the unit of the decision; None where a part of it is unknown."""
    recall: float | None
    """Needed-fact recall; None where there are too few facts for a share."""
    peak_prompt_tokens: int | None
    overflow_calls: int | None
    """None where the window is unknown."""
    is_baseline: bool
    unknown_windows: int = 0
    """Calls whose window is unknown: whether they overflow can't be told."""
    keeps_enough: bool = True
    """Its recall reaches the limit; also where recall isn't weighed."""
    is_pareto: bool = False
    """No run that fits the window beats it in cost, recall and peak at once."""

    @property
    def fits(self) -> bool:
        """No call is known to overflow."""
        return not self.overflow_calls

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {name: getattr(self, name) for name in Standing.__slots__}


@dataclass(frozen=True, slots=True)
class Decision:
    """The choice among runs; `standings` has the best first."""

    standings: tuple[Standing, ...]
    recommended: str | None
    """None when nothing fits the window, or there is nothing to choose from."""
    reason: str
    currency: str | None
    """Of the costs; None = net tokens."""
    min_recall: float
    unweighed: str
    """Why recall isn't weighed; empty when it is."""
    chosen_on: tuple[str, ...] = ()
    """The conversations that the figures are of; empty when they are all of each run."""

    @property
    def pareto(self) -> tuple[str, ...]:
        """Names of the runs that none beats."""
        return tuple(one.name for one in self.standings if one.is_pareto)

    def standing(self, name: str) -> Standing:
        """Where one run stands."""
        return next(one for one in self.standings if one.name == name)

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "pareto": list(self.pareto),
            "recommended": self.recommended,
            "reason": self.reason,
            "unit": self.currency or "net tokens",
            "min_recall": self.min_recall,
            "recall_unweighed": self.unweighed or None,
            "standings": [one.as_dict() for one in self.standings],
        }


def decide(
    runs: Runs,
    *,
    figures: Mapping[str, Mapping[str, ConversationFigures]] | None = None,
    conversations: Sequence[str] | None = None,
    min_recall: float = MIN_RECALL,
) -> Decision:
    """The run to take.

    Args:
        runs: One or more.
        figures: By run, what `figures_of` says; needed for a part of the conversations.
        conversations: The part to choose on; without it, all of each run.
        min_recall: Share of the baseline's recall that a recommendation must keep; of all facts without a baseline.
    Raises:
        ConfigError: `min_recall` is no share.
    Source: WB-TUNE-02, WB-TUNE-06.
    """
    if not 0 <= min_recall <= 1:
        raise ConfigError.for_field("min_recall", min_recall, "a share from 0 to 1")
    scale = scale_of(runs.values())
    if figures is None or conversations is None:
        found = [_whole(run, scale) for run in runs.values()]
        unweighed = _shortage_of_runs(runs)
    else:
        parts = {name: [figures[name][one] for one in conversations] for name in runs}
        found = [_part(runs[name], part, scale, runs) for name, part in parts.items()]
        unweighed = next(filter(None, map(_shortage_of_part, parts.values())), "")
    return replace(_decided(found, scale, min_recall, unweighed), chosen_on=tuple(conversations or ()))


def _whole(run: RunLike, scale: Scale) -> Standing:
    facts = run.facts
    return Standing(
        name=run.name,
        cost=scale.value(run),
        recall=facts.get("needed_fact_recall"),
        peak_prompt_tokens=facts.get("peak_prompt_tokens"),
        overflow_calls=facts.get("overflow_calls"),
        is_baseline=is_baseline(run),
        unknown_windows=facts.get("unknown_windows") or 0,
    )


def _part(run: RunLike, part: Sequence[ConversationFigures], scale: Scale, runs: Runs) -> Standing:
    needed = sum(one.needed_facts for one in part)
    overflows = [one.overflow_calls for one in part if one.calls and one.overflow_calls is not None]
    if scale.currency is None:
        # A run whose prefix is unknown has no net tokens, in a part as in the whole.
        cost = None if net_tokens(run) is None else sum(one.net_tokens for one in part)
    else:
        cost = 1000 * sum(one.cost or 0.0 for one in part) / len(part)
    return Standing(
        name=run.name,
        cost=cost,
        recall=None if _shortage_of_part(part) else sum(one.visible_facts for one in part) / needed,
        peak_prompt_tokens=max((one.peak_prompt_tokens for one in part), default=None),
        # As for whole runs: known overflows count, also where other windows are unknown.
        overflow_calls=sum(overflows) if overflows else None,
        is_baseline=is_baseline(run),
        unknown_windows=sum(one.unknown_windows for one in part),
    )


def _shortage_of_runs(runs: Runs) -> str:
    """Why recall isn't weighed among whole runs; empty when all have one."""
    unknown = [run for run in runs.values() if run.facts.get("needed_fact_recall") is None]
    if not unknown:
        return ""
    needed = unknown[0].facts.get("needed_facts")
    if needed is None:
        return "these runs didn't look for needed facts"
    return _too_few(needed, None)


def _shortage_of_part(part: Sequence[ConversationFigures]) -> str:
    needed = sum(one.needed_facts for one in part)
    conversations = sum(one.needed_facts > 0 for one in part)
    return _too_few(needed, conversations) if needed < MIN_FACTS or conversations < MIN_CONVERSATIONS else ""


def _too_few(needed: int, conversations: int | None) -> str:
    where = "" if conversations is None else f" from {conversations} conversation{'' if conversations == 1 else 's'}"
    if conversations is None and needed >= MIN_FACTS:
        where = f" from fewer than {MIN_CONVERSATIONS} conversations"
    have = f"{needed} needed fact{'' if needed == 1 else 's'}{where}" if needed else "without any needed fact"
    takes = f"a share takes {MIN_FACTS} from {MIN_CONVERSATIONS} conversations"
    return f"{have}, and {takes}"


# --- the rule -----------------------------------------------------------------------------------------------


def _decided(found: Sequence[Standing], scale: Scale, min_recall: float, unweighed: str) -> Decision:
    limit = None if unweighed else min_recall * next((one.recall or 0.0 for one in found if one.is_baseline), 1.0)
    front = _front(found, weighs_recall=not unweighed)
    found = [
        # A share worked out from two sums may be off by its last digit.
        replace(one, keeps_enough=limit is None or (one.recall or 0.0) >= limit - 1e-9, is_pareto=one.name in front)
        for one in found
    ]
    order = sorted(found, key=_rank)
    best = order[0]
    is_choice = len(order) > 1 and best.fits and best.cost is not None
    if is_choice and not best.keeps_enough:
        # Nothing that fits keeps enough: then the one that keeps most.
        order.sort(key=lambda one: (one.overflow_calls or 0, -(one.recall or 0.0), *_rank(one)[2:]))
        best = order[0]
    decision = Decision(
        standings=tuple(order),
        recommended=best.name if is_choice else None,
        reason="",
        currency=scale.currency,
        min_recall=min_recall,
        unweighed=unweighed,
    )
    return replace(decision, reason=_reason(decision, scale))


def _rank(one: Standing) -> tuple[int, bool, bool, float, float, float, bool]:
    """The best first: what fits, keeps enough, is cheap; equal ones by recall, peak and simplicity."""
    return (
        one.overflow_calls or 0,
        not one.keeps_enough,
        one.cost is None,
        one.cost or 0.0,
        -(one.recall or 0.0),
        one.peak_prompt_tokens or 0,
        not one.is_baseline,
    )


def _front(found: Sequence[Standing], *, weighs_recall: bool) -> frozenset[str]:
    """Names that no other beats: nowhere worse, somewhere better.

    A provider refuses a prompt over the window: while something fits, only what fits is compared.
    """
    compared = [one for one in found if one.fits and one.cost is not None] or [
        one for one in found if one.cost is not None
    ]
    points = {
        one.name: (one.cost or 0.0, -(one.recall or 0.0) if weighs_recall else 0.0, one.peak_prompt_tokens or 0)
        for one in compared
    }

    def beats(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
        return a != b and all(x <= y for x, y in zip(a, b, strict=True))

    return frozenset(name for name, own in points.items() if not any(beats(other, own) for other in points.values()))


# --- the words ----------------------------------------------------------------------------------------------


def _reason(decision: Decision, scale: Scale) -> str:
    standings = decision.standings
    best, n_runs = standings[0], len(standings)
    if n_runs == 1:
        return "one run alone: nothing to choose from"
    if not best.fits:
        return f"each of {n_runs} runs overflows the window; {best.name!r} comes closest"
    if best.cost is None:
        return "the reused prefix of these runs is unknown, and with it what they cost"
    if not best.keeps_enough:
        return f"{_too_little_words(decision)}, {best.recall or 0.0:.2f}{_window_words(best)}"
    least = "cheapest" if scale.currency else scale.least
    conditions = [*([] if decision.unweighed else [limit_words(decision)])]
    conditions += [no_overflow_words(best.unknown_windows)] if best.overflow_calls is not None else []
    said = f"{least} of {n_runs} runs" + (f" with {' and '.join(conditions)}" if conditions else "")
    if best.is_baseline:
        said = f"nothing costs less than doing without summaries: {said}"
    if decision.unweighed:
        said += f"; by cost alone: {decision.unweighed}"
    return said + _window_words(best) + _cheaper_words(decision, best)


def _too_little_words(decision: Decision) -> str:
    n_runs, n_fitting = len(decision.standings), sum(one.fits for one in decision.standings)
    if n_fitting == 1:
        return f"the only one of {n_runs} runs that fits the window doesn't have {limit_words(decision)}; it keeps less"
    runs = f"{n_runs} runs" if n_fitting == n_runs else f"the {n_fitting} of {n_runs} runs that fit the window"
    return f"none of {runs} has {limit_words(decision)}; it keeps the most"


def limit_words(decision: Decision) -> str:
    """`recall ≥ 0.98 of what no summary keeps`."""
    has_baseline = any(one.is_baseline for one in decision.standings)
    return f"recall ≥ {decision.min_recall:g}{' of what no summary keeps' if has_baseline else ''}"


def no_overflow_words(unknown_windows: int | None) -> str:
    """`no overflow`, of no more calls than it can be said of."""
    return "no overflow where the window is known" if unknown_windows else "no overflow"


def _window_words(best: Standing) -> str:
    return "; the context window is unknown, so overflow isn't checked" if best.overflow_calls is None else ""


def _cheaper_words(decision: Decision, best: Standing) -> str:
    """The cheapest that was turned down for what it loses, so that a reader can weigh it."""
    cheaper = [
        one
        for one in decision.standings
        if one.fits and not one.keeps_enough and one.cost is not None and one.cost < (best.cost or 0.0)
    ]
    if not cheaper:
        return ""
    one = min(cheaper, key=lambda one: one.cost or 0.0)
    less = 1 - (one.cost or 0.0) / (best.cost or 1.0)
    return f"; {one.name!r} costs {less:.0%} less, but its recall is {one.recall or 0.0:.2f}"
