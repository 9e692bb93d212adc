"""What a run did in each conversation: the sums that comparisons, choices and sweeps are made of.

In: a run's rows, and its cost call by call where it knows one. Out: `ConversationFigures` by conversation. Pure.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from workbench.evaluate.cost import CallCost, CostsByConversation, RunCost
from workbench.evaluate.net import RunLike, net_of_call, net_of_summary, rows_by_conversation
from workbench.evaluate.retention import Retention, chance_of
from workbench.evaluate.savings import spent_by_turn
from workbench.replay.needed_states import VISIBLE

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ConversationFigures:
    """What one run did in one conversation; sums over its calls and summaries.

    What stands there per call is in arrays: a sweep holds those of all its runs.
    """

    conversation: str
    content_hash: str
    calls: int
    net_tokens: float
    prompt_tokens: int
    peak_prompt_tokens: int
    summary_tokens: int
    firings: int
    summaries: int
    overflow_calls: int | None
    """None where the window is unknown."""
    prefix_tokens: int
    reusable_tokens: int
    prompt_per_call: Sequence[int]
    net_upto_call: Sequence[float]
    """Net tokens of everything up to each call, the summaries that it can see included."""
    cost: float | None = None
    """Money; None where a price is unknown."""
    cost_upto_call: Sequence[float] = ()
    """The same for money; empty where a price is unknown."""
    net_by_turn: Sequence[float] = ()
    """Net tokens of each turn; empty for a run without cost call by call."""
    cost_by_turn: Sequence[float] = ()
    """The same for money; empty where a price is unknown."""
    needed_facts: int = 0
    """Of the headline (WB-RET-01b), as is the next."""
    visible_facts: int = 0
    unknown_windows: int = 0
    """Calls whose window is unknown."""

    def by_turn(self, *, by_money: bool) -> Sequence[float]:
        """What each turn cost, in money or net tokens."""
        return self.cost_by_turn if by_money else self.net_by_turn

    def sums(self) -> ConversationFigures:
        """The same without what stands there per call and per turn."""
        return replace(self, prompt_per_call=(), net_upto_call=(), cost_upto_call=(), net_by_turn=(), cost_by_turn=())


def figures_of(run: RunLike) -> dict[str, ConversationFigures]:
    """The figures of each conversation of a run, in its order."""
    left_out = frozenset(Retention((), chance_of(run)).left_out)
    # Of a large run the costs are worked out on the way: those of all calls would fill the memory.
    reckoned = CostsByConversation(run) if getattr(run, "is_large", False) else None
    found = None if reckoned else getattr(run, "cost", None)
    cost = found if isinstance(found, RunCost) else None
    is_priced = run.facts.get("cost") is not None if reckoned else cost is not None and cost.cost is not None
    figures = {}
    for row, rows in rows_by_conversation(run, ("calls", "summaries", "checks", "needed_facts")):
        name = row["conversation"]
        costs = None if cost is None else cost.by_conversation.get(name, [])
        if reckoned is not None:
            costs = reckoned.of(row, rows["calls"], rows["summaries"])
        figures[name] = _figures(row, rows, left_out, costs, is_priced=is_priced)
    return figures


def _figures(
    row: Row,
    rows: Mapping[str, Sequence[Row]],
    left_out: Collection[str],
    costs: Sequence[CallCost] | None,
    *,
    is_priced: bool,
) -> ConversationFigures:
    calls, summaries = rows["calls"], rows["summaries"]
    facts = [fact for fact in rows["needed_facts"] if fact["kind"] not in left_out]
    per_call = [net_of_call(call) for call in calls]
    summary_net = 0.0
    for summary in summaries:
        net = net_of_summary(summary)
        summary_net += net
        if summary["call"] < len(per_call):  # a summary behind the last call is in the total only
            per_call[summary["call"]] += net
    knows_window = any(call["window"] is not None for call in calls)
    money = None if costs is None or not is_priced else [(one.call, one.cost or 0.0) for one in costs]
    return ConversationFigures(
        conversation=row["conversation"],
        content_hash=row["content_hash"],
        calls=len(calls),
        net_tokens=sum(map(net_of_call, calls)) + summary_net,
        prompt_tokens=sum(call["prompt_tokens"] for call in calls),
        peak_prompt_tokens=max((call["prompt_tokens"] for call in calls), default=0),
        summary_tokens=sum((s["request_tokens"] or 0) + (s["completion_tokens"] or 0) for s in summaries),
        firings=sum(bool(check["fired"]) for check in rows["checks"]),
        summaries=sum(summary["status"] == "written" for summary in summaries),
        overflow_calls=sum(bool(call["overflow"]) for call in calls) if knows_window or not calls else None,
        prefix_tokens=sum(call["prefix_tokens"] or 0 for call in calls),
        reusable_tokens=sum(call["reusable_tokens"] or 0 for call in calls if call["prefix_tokens"] is not None),
        prompt_per_call=array("q", (call["prompt_tokens"] for call in calls)),
        net_upto_call=array("d", accumulate(per_call)),
        cost=None if money is None else sum(amount for _, amount in money),
        cost_upto_call=() if money is None else _upto_call(money, len(calls)),
        net_by_turn=() if costs is None else spent_by_turn(costs, by_money=False),
        cost_by_turn=() if costs is None or money is None else spent_by_turn(costs, by_money=True),
        needed_facts=len(facts),
        visible_facts=sum(fact["state"] in VISIBLE for fact in facts),
        unknown_windows=sum(call["window"] is None for call in calls),
    )


def _upto_call(spent: Sequence[tuple[int, float]], n_calls: int) -> array[float]:
    per_call = [0.0] * n_calls
    for call, amount in spent:
        if call < n_calls:
            per_call[call] += amount
    return array("d", accumulate(per_call))
