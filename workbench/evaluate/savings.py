"""What a configuration saves: its cost against a baseline's, how sure that is, and from which turn on it pays.

In: the costs of two runs, or what each of them spent in each turn. Out: a difference with its interval, and the turn
at which a configuration that starts dearer has paid for itself. Implements WB-COST-02 and the verdict of WB-TUNE-06.
"""

from __future__ import annotations

import itertools
import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from workbench.evaluate.cost import CallCost, RunCost

DRAWS = 2000
SEED = 0
MIN_CONVERSATIONS = 10
"""Fewer say nothing about how sure a difference is."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Money against a baseline, over the conversations of both."""

    per_1000_conversations: float
    """Negative = cheaper."""
    relative: float | None
    """Share of the baseline's cost; None where that is nothing."""
    interval: tuple[float, float] | None
    """95 % of `per_1000_conversations`, by drawing conversations anew; None with fewer than 10 of them."""
    n_conversations: int
    seed: int = SEED


def difference_of(cost: RunCost, baseline: RunCost) -> Difference | None:
    """What a configuration costs more or less than a baseline; None where a price is unknown.

    Source: WB-COST-02.
    """
    if cost.cost is None or baseline.cost is None or cost.currency != baseline.currency:
        return None
    own, other = cost.cost_by_conversation, baseline.cost_by_conversation
    pairs = [(own[name] or 0.0, other[name] or 0.0) for name in own if name in other]
    if not pairs:
        return None
    differences = [1000 * (left - right) for left, right in pairs]
    before = math.fsum(right for _, right in pairs)
    return Difference(
        per_1000_conversations=math.fsum(differences) / len(pairs),
        relative=(math.fsum(left for left, _ in pairs) / before - 1) if before else None,
        interval=mean_interval(differences),
        n_conversations=len(pairs),
    )


def mean_interval(values: Sequence[float], *, seed: int = SEED) -> tuple[float, float] | None:
    """The middle 95 % of the means of samples drawn from the values; None with fewer than 10 values, or infinite ones."""
    if len(values) < MIN_CONVERSATIONS or not all(map(math.isfinite, values)):
        return None
    import numpy as np

    generator = np.random.default_rng(seed)
    array = np.asarray(values, dtype=np.float64)
    means = [float(array[generator.integers(0, len(array), len(array))].mean()) for _ in range(DRAWS)]
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


@dataclass(frozen=True, slots=True)
class BreakEven:
    """From which turn on each conversation has cost no more than under the baseline."""

    turns: Mapping[str, int | None]
    """By conversation, counted from 1; None = not within the recording."""
    longest: int
    """Turns of the longest conversation."""

    @property
    def reached(self) -> list[int]:
        """The turns of those that get there, smallest first."""
        return sorted(turn for turn in self.turns.values() if turn is not None)

    @property
    def median(self) -> int | None:
        """The middle one of these."""
        return self.reached[len(self.reached) // 2] if self.reached else None


def break_even(cost: RunCost, baseline: RunCost) -> BreakEven:
    """When a configuration that starts dearer has paid for itself, conversation by conversation.

    By money where both know it, else in net tokens. Source: WB-TUNE-06.
    """
    by_money = cost.cost is not None and baseline.cost is not None and cost.currency == baseline.currency
    others = baseline.by_conversation
    return break_even_of(
        {
            name: (spent_by_turn(calls, by_money=by_money), spent_by_turn(others[name], by_money=by_money))
            for name, calls in cost.by_conversation.items()
            if name in others
        }
    )


def break_even_of(pairs: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> BreakEven:
    """The same from what was spent in each turn, by the configuration and by the baseline."""
    turns = {name: _last_dearer(own, other) for name, (own, other) in pairs.items()}
    return BreakEven(turns, max((max(map(len, pair)) for pair in pairs.values()), default=0))


def spent_by_turn(calls: Iterable[CallCost], *, by_money: bool) -> array[float]:
    """Money or net tokens of each turn of one conversation."""
    spent = array("d")
    for call in calls:
        while len(spent) <= call.turn:
            spent.append(0.0)
        spent[call.turn] += (call.cost if by_money else call.net_tokens) or 0.0
    return spent


def _last_dearer(own: Sequence[float], other: Sequence[float]) -> int | None:
    """The turn behind the last at whose end more had been spent, from 1; None if that is the last of all."""
    ahead, behind, last = 0.0, 0.0, 0
    for turn, (mine, theirs) in enumerate(itertools.zip_longest(own, other, fillvalue=0.0), 1):
        ahead += mine
        behind += theirs
        if ahead > behind * (1 + 1e-9):
            last = turn
    return None if last == max(len(own), len(other)) else last + 1
