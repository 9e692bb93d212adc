"""The figures that limits and baselines speak of, each with the places that it comes from.

In: a `Replayed`. Out: one `Figures` per conversation, and `measured`, which adds any of them up to a figure by its
name. A share of too few facts or probes is no number but a reason (WB-RET-01b). Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from workbench.errors import NotEnoughDataError
from workbench.evaluate.cost import cost_of
from workbench.evaluate.retention import retention
from workbench.recordings.types import Conversation
from workbench.regression.replaying import ProbeResult, Replayed, Row
from workbench.replay.needed import MIN_CONVERSATIONS, MIN_FACTS
from workbench.replay.needed_states import LOST, VISIBLE


class Place(NamedTuple):
    """Where something happened."""

    conversation: str
    call: int | None
    what: str = ""
    """In words, for a reader."""


@dataclass(frozen=True, slots=True)
class Figures:
    """One conversation under the suite's configuration."""

    conversation: str
    content_hash: str
    prompt_tokens: tuple[int, ...]
    """Per call."""
    summary_tokens: int
    firings: tuple[int, ...]
    """Call before which each firing stood."""
    summaries: tuple[tuple[int, int], ...]
    """Of each written summary the first call that can see it, and the place of its last event in the recording."""
    failed_summaries: tuple[Place, ...]
    overflows: tuple[int, ...]
    """Calls over the window, as far as it is known."""
    knows_windows: bool
    """Of every call."""
    cost: float | None
    needed: int
    visible: int
    lost_facts: tuple[Place, ...]
    probes: int
    visible_probes: int
    lost_probes: tuple[Place, ...]
    protocol_violations: tuple[Place, ...]
    coverage_violations: tuple[Place, ...]


def figures_of(replayed: Replayed) -> list[Figures]:
    """Figures of every conversation whose replay came to its end, in their order."""
    costs: Mapping[str, float | None] = cost_of(replayed).cost_by_conversation
    headline: dict[str, list[Row]] = {}
    for row in retention(replayed).headline:
        headline.setdefault(row["conversation"], []).append(row)
    probes: dict[str, list[ProbeResult]] = {}
    for result in replayed.probes:
        probes.setdefault(result.conversation, []).append(result)
    ended = {row["conversation"] for row in replayed.rows("conversations")}
    return [
        _figures(one, replayed, costs.get(one.id), headline.get(one.id, []), probes.get(one.id, []))
        for one in replayed.conversations
        if one.id in ended
    ]


def _figures(
    conversation: Conversation,
    replayed: Replayed,
    cost: float | None,
    facts: Sequence[Row],
    probes: Sequence[ProbeResult],
) -> Figures:
    name = conversation.id
    calls, summaries = replayed.rows("calls", name), replayed.rows("summaries", name)
    positions = {event.id: position for position, event in enumerate(conversation.events)}
    knows_windows = all(row["window"] is not None for row in calls)
    return Figures(
        conversation=name,
        content_hash=conversation.content_hash,
        prompt_tokens=tuple(row["prompt_tokens"] for row in calls),
        summary_tokens=sum((row["request_tokens"] or 0) + (row["completion_tokens"] or 0) for row in summaries),
        firings=tuple(row["call"] for row in replayed.rows("checks", name) if row["fired"]),
        summaries=tuple(
            (row["call"], positions.get(row["boundary_event_id"], -1))
            for row in summaries
            if row["status"] == "written"
        ),
        failed_summaries=tuple(
            Place(name, row["call"], row["error"] or row["status"])
            for row in summaries
            if row["status"] in {"failed", "discarded"}
        ),
        overflows=tuple(row["call"] for row in calls if row["overflow"]),
        knows_windows=knows_windows,
        cost=cost,
        needed=len(facts),
        visible=sum(row["state"] in VISIBLE for row in facts),
        lost_facts=tuple(
            Place(name, row["call"], f"{row['kind']} {row['value']}") for row in facts if row["state"] == LOST
        ),
        probes=len(probes),
        visible_probes=sum(one.state in VISIBLE for one in probes),
        lost_probes=tuple(Place(name, one.call, one.id) for one in probes if one.state not in VISIBLE),
        protocol_violations=_violations(replayed, name, "protocol"),
        coverage_violations=_violations(replayed, name, "coverage"),
    )


def _violations(replayed: Replayed, conversation: str, kind: str) -> tuple[Place, ...]:
    return tuple(
        Place(conversation, row["call"], " ".join(filter(None, (row["rule"], row["detail"], f"by {row['step']}"))))
        for row in replayed.rows("violations", conversation)
        if row["kind"] == kind
    )


# --- figures by name ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Measured:
    """A figure of one or more conversations."""

    value: float | None
    """None where it isn't known, or there is too little to tell."""
    places: tuple[Place, ...] = ()
    """Of a count: everything that was counted. Else: where most of it is."""
    is_count: bool = False
    reason: str = ""
    """Why there is no value."""
    sort: str = ""
    """What each of the places is, where their own words don't say it."""
    at_least: float | None = None
    """What is certain of a count that isn't known: more than a limit is a failure already."""


def measured(name: str, figures: Sequence[Figures]) -> Measured:
    """The figure of that name over some conversations."""
    return _FIGURES[name](figures)


def _tokens(part: Callable[[Figures], int]) -> Callable[[Sequence[Figures]], Measured]:
    def measure(figures: Sequence[Figures]) -> Measured:
        most = max(figures, key=part, default=None)
        place = () if most is None else (Place(most.conversation, _longest(most), f"{part(most):,} of them here"),)
        return Measured(sum(map(part, figures)), place)

    return measure


def _longest(one: Figures) -> int | None:
    """The call with the longest prompt; None without a call."""
    return max(range(len(one.prompt_tokens)), key=lambda call: one.prompt_tokens[call], default=None)


def _peak(figures: Sequence[Figures]) -> Measured:
    with_calls = [one for one in figures if one.prompt_tokens]
    if not with_calls:
        return Measured(0)
    most = max(with_calls, key=lambda one: max(one.prompt_tokens))
    return Measured(max(most.prompt_tokens), (Place(most.conversation, _longest(most)),))


def _count(part: Callable[[Figures], Sequence[Place]], sort: str = "") -> Callable[[Sequence[Figures]], Measured]:
    def measure(figures: Sequence[Figures]) -> Measured:
        places = tuple(place for one in figures for place in part(one))
        return Measured(len(places), places, is_count=True, sort=sort)

    return measure


def _overflows(figures: Sequence[Figures]) -> Measured:
    places = tuple(
        Place(one.conversation, call, f"{one.prompt_tokens[call]:,} tokens")
        for one in figures
        for call in one.overflows
    )
    unknown = [one.conversation for one in figures if not one.knows_windows]
    if not unknown:
        return Measured(len(places), places, is_count=True)
    what = (
        "no window is known" if len(unknown) == len(figures) and not places else f"no window is known in {unknown[0]!r}"
    )
    return Measured(None, places, is_count=True, reason=f"{what}: set model.context_window", at_least=len(places))


def _cost(figures: Sequence[Figures]) -> Measured:
    costs = [one.cost for one in figures]
    if any(cost is None for cost in costs):
        return Measured(None, reason="a price isn't known: set [prices]")
    most = max(figures, key=lambda one: one.cost or 0.0, default=None)
    place = () if most is None else (Place(most.conversation, _longest(most), f"{most.cost:.4g} of it here"),)
    return Measured(round(sum(cost or 0.0 for cost in costs), 10), place)


def _recall(
    needed: Callable[[Figures], int],
    visible: Callable[[Figures], int],
    lost: Callable[[Figures], Sequence[Place]],
    what: str,
    sort: str,
) -> Callable[[Sequence[Figures]], Measured]:
    def measure(figures: Sequence[Figures]) -> Measured:
        n, from_ = sum(map(needed, figures)), sum(needed(one) > 0 for one in figures)
        if n < MIN_FACTS or from_ < MIN_CONVERSATIONS:
            have, need, of = (
                (n, MIN_FACTS, what) if n < MIN_FACTS else (from_, MIN_CONVERSATIONS, f"conversations with {what}")
            )
            return Measured(None, reason=str(NotEnoughDataError(of, have=have, need=need)))
        places = tuple(place for one in figures for place in lost(one))
        return Measured(sum(map(visible, figures)) / n, places, sort=sort)

    return measure


_FIGURES: Final[Mapping[str, Callable[[Sequence[Figures]], Measured]]] = {
    "prompt_tokens": _tokens(lambda one: sum(one.prompt_tokens)),
    "peak_prompt_tokens": _peak,
    "summary_tokens": _tokens(lambda one: one.summary_tokens),
    "firings": _count(lambda one: [Place(one.conversation, call) for call in one.firings]),
    "summaries": _count(lambda one: [Place(one.conversation, call) for call, _ in one.summaries]),
    "failed_summaries": _count(lambda one: one.failed_summaries),
    "overflow_calls": _overflows,
    "cost": _cost,
    "needed_fact_recall": _recall(
        lambda one: one.needed, lambda one: one.visible, lambda one: one.lost_facts, "needed facts", "lost"
    ),
    "lost_facts": _count(lambda one: one.lost_facts, "lost"),
    "probe_recall": _recall(
        lambda one: one.probes, lambda one: one.visible_probes, lambda one: one.lost_probes, "probes", "lost probe"
    ),
    "lost_probes": _count(lambda one: one.lost_probes, "lost probe"),
    "protocol_violations": _count(lambda one: one.protocol_violations),
    "coverage_violations": _count(lambda one: one.coverage_violations),
}


def plain_value(value: Any) -> Any:
    """A figure as tables and files show it: whole where it is, else six digits."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else float(f"{value:.6g}")
    return value
