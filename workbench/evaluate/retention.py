"""What a configuration kept of the facts that later answers needed (WB-RET-01b, -03, -05).

In: a finished run's rows. Out: recall with its interval, floor and ceiling; the chance control; the same per call,
per class and per further summary; examples of lost facts with place of origin, need and the step that removed
them. Pure; never a share of too few facts: `NotEnoughDataError`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from workbench.errors import NotEnoughDataError
from workbench.evaluate.net import RunRows
from workbench.facts import CODE, KINDS
from workbench.replay.needed import MAX_CHANCE, MIN_CONVERSATIONS, MIN_FACTS
from workbench.replay.needed_states import FACT_STATES, LOST, RECOVERABLE, VISIBLE, VISIBLE_RAW

_Z: Final = 1.959964
"""Of a 95 % interval."""
Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class ClassChance:
    """The chance control of one class (WB-RET-01b)."""

    kind: str
    needed: int
    """Needed facts of the class, in conversations that were compared with another."""
    by_chance: int
    """What the same answers would need of the other conversations' histories."""

    @property
    def share(self) -> float | None:
        """None where the class was never needed."""
        return self.by_chance / self.needed if self.needed else None

    @property
    def is_left_out(self) -> bool:
        """Chance alone would find too much of it."""
        return self.by_chance > MAX_CHANCE * self.needed


@dataclass(frozen=True, slots=True)
class Recall:
    """Needed facts and how many of them were visible."""

    needed: int
    visible: int
    low: float
    high: float
    """95 % interval of the share; facts of one conversation count as related."""

    @property
    def share(self) -> float:
        return self.visible / self.needed


@dataclass(frozen=True, slots=True)
class Retention:
    """The needed facts of one run; the headline is without class `code` and without classes left out by chance."""

    rows: tuple[dict[str, Any], ...]
    """Rows of `needed_facts`, all classes."""
    chance: tuple[ClassChance, ...]

    @property
    def left_out(self) -> tuple[str, ...]:
        """Classes that aren't in the headline."""
        return (*(one.kind for one in self.chance if one.is_left_out and one.kind != CODE), CODE)

    @property
    def headline(self) -> tuple[dict[str, Any], ...]:
        """The rows that count."""
        left_out = set(self.left_out)
        return tuple(row for row in self.rows if row["kind"] not in left_out)

    @property
    def states(self) -> dict[str, int]:
        """Headline facts by state."""
        counts = Counter(row["state"] for row in self.headline)
        return {state: counts[state] for state in FACT_STATES}

    @property
    def has_enough(self) -> bool:
        """There are facts enough for a share."""
        return self._shortage() is None

    def _shortage(self) -> NotEnoughDataError | None:
        rows = self.headline
        conversations = len({row["conversation"] for row in rows})
        if len(rows) < MIN_FACTS:
            return NotEnoughDataError("needed facts", have=len(rows), need=MIN_FACTS)
        if conversations < MIN_CONVERSATIONS:
            return NotEnoughDataError("conversations with needed facts", have=conversations, need=MIN_CONVERSATIONS)
        return None

    def recall(self) -> Recall:
        """Needed-fact recall: visible / needed.

        Raises:
            NotEnoughDataError: under 30 facts, or facts of under 10 conversations.
        """
        return self._recall(self.headline, VISIBLE)

    def floor(self) -> Recall:
        """Recall with an empty summary in every request: what stands outside of summaries.

        Raises:
            NotEnoughDataError: as for `recall`.
        """
        return self._recall(self.headline, (VISIBLE_RAW,))

    def reachable(self) -> Recall:
        """Visible or recoverable by a search.

        Raises:
            NotEnoughDataError: as for `recall`.
        """
        return self._recall(self.headline, (*VISIBLE, RECOVERABLE))

    def _recall(self, rows: Rows, states: Sequence[str]) -> Recall:
        if (shortage := self._shortage()) is not None:
            raise shortage
        return recall_of(rows, states)

    def by_class(self) -> dict[str, tuple[int, int]]:
        """Class -> `(needed, visible)`, all classes in order of precedence; counts, no shares."""
        needed = Counter(row["kind"] for row in self.rows)
        visible = Counter(row["kind"] for row in self.rows if row["state"] in VISIBLE)
        return {kind: (needed[kind], visible[kind]) for kind in KINDS if needed[kind]}

    def by_call(self, conversation: str) -> dict[int, dict[str, int]]:
        """Call -> headline facts by state, of the calls that need any."""
        calls: dict[int, Counter[str]] = {}
        for row in self.headline:
            if row["conversation"] == conversation:
                calls.setdefault(row["call"], Counter())[row["state"]] += 1
        return {call: {state: calls[call][state] for state in FACT_STATES} for call in sorted(calls)}

    def examples(self, n: int = 10) -> list[LostFact]:
        """Lost facts with their places, one conversation after the other in turn, so that none fills the list."""
        waiting: dict[str, list[dict[str, Any]]] = {}
        for row in self.headline:
            if row["state"] == LOST:
                waiting.setdefault(row["conversation"], []).append(row)
        found: list[LostFact] = []
        queues = [_told_once(rows) for rows in waiting.values()]
        while len(found) < n and any(queues):
            found += [LostFact.of(queue.pop(0)) for queue in queues if queue][: n - len(found)]
        return found

    def lost_by_step(self) -> dict[str, int]:
        """Step -> headline facts that it took and that nothing shows any more, most first."""
        return dict(Counter(row["step"] for row in self.headline if row["state"] not in VISIBLE).most_common())


@dataclass(frozen=True, slots=True)
class LostFact:
    """One row of the examples (WB-RET-03)."""

    kind: str
    value: str
    conversation: str
    source_position: int
    """Recorded event that said it first."""
    source_event_id: str
    source_role: str
    call: int
    """The call that needed it."""
    step: str
    """What took it out of the request."""

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> LostFact:
        names = (
            "kind", "value", "conversation", "source_position", "source_event_id", "source_role", "call", "step"
        )  # fmt: skip
        return cls(**{name: row[name] for name in names})


def _told_once(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each fact at the first call that missed it."""
    first: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        first.setdefault((row["kind"], row["value"]), row)
    return list(first.values())


def chance_of(run: RunRows) -> tuple[ClassChance, ...]:
    """How often each class of facts is found where nobody said it."""
    needed: Counter[str] = Counter()
    by_chance: Counter[str] = Counter()
    for row in run.rows("fact_chance"):
        needed[row["kind"]] += row["needed"]
        by_chance[row["kind"]] += row["by_chance"]
    return tuple(ClassChance(kind, needed[kind], by_chance[kind]) for kind in KINDS if kind in needed)


def retention(run: RunRows) -> Retention:
    """What a run kept; a notebook, a report and the command line read the same values."""
    return Retention(tuple(run.rows("needed_facts")), chance_of(run))


def recall_of(rows: Rows, states: Sequence[str] = VISIBLE) -> Recall:
    """Recall of at least one row, whatever there is too little of.

    The interval is Wilson's for the number of independent facts that would vary as much as these do between
    conversations: facts of one conversation are kept or lost together.
    """
    per: dict[str, list[int]] = {}
    for row in rows:
        counts = per.setdefault(row["conversation"], [0, 0])
        counts[0] += 1
        counts[1] += row["state"] in states
    needed = sum(n for n, _ in per.values())
    visible = sum(v for _, v in per.values())
    share = visible / needed
    effective = float(needed)
    binomial = share * (1 - share) / needed
    if len(per) > 1 and binomial:
        spread = sum((v - share * n) ** 2 for n, v in per.values()) * len(per) / (len(per) - 1) / needed**2
        effective = needed / max(spread / binomial, 1.0)
    elif binomial:
        effective = 1.0
    low, high = wilson(share, effective)
    return Recall(needed, visible, low, high)


def wilson(share: float, n: float, *, z: float = _Z) -> tuple[float, float]:
    """Wilson's interval of a share of `n` independent trials; `z` normal deviations wide, by default 95 %."""
    square = z * z
    middle = (share + square / (2 * n)) / (1 + square / n)
    half = z * math.sqrt(share * (1 - share) / n + square / (4 * n * n)) / (1 + square / n)
    # All or none is the end of the scale itself; worked out it may miss it by the last digit.
    return 0.0 if share <= 0 else max(middle - half, 0.0), 1.0 if share >= 1 else min(middle + half, 1.0)


# --- survival -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SurvivalPoint:
    """Facts of events that went through so many summaries."""

    summaries: int
    kind: str
    """A class; empty for all of the headline."""
    needed: tuple[int, ...]
    """Per replicate."""
    visible: tuple[int, ...]

    @property
    def share(self) -> float | None:
        """Recall over all replicates; None under 30 facts in each of them."""
        if max(self.needed, default=0) < MIN_FACTS:
            return None
        return sum(self.visible) / sum(self.needed)

    @property
    def spread(self) -> tuple[float, float] | None:
        """Least and greatest recall of a replicate; None without a second one, or with too few facts."""
        if len(self.needed) < 2 or min(self.needed) < MIN_FACTS:
            return None
        shares = [seen / n for n, seen in zip(self.needed, self.visible, strict=True)]
        return min(shares), max(shares)


def survival(replicates: Sequence[Retention], *, kinds: Iterable[str] = ("",)) -> list[SurvivalPoint]:
    """How recall decays with each further summary that an event goes through (WB-RET-05).

    A fact that also stands raw in the request says nothing about summaries, and isn't counted.

    Args:
        replicates: The same configuration and recordings, replayed more than once where the summary model isn't
            deterministic.
        kinds: Classes to tell apart; the empty name is the headline.
    """
    points = []
    for kind in kinds:
        counts = [_survivors(one, kind) for one in replicates]
        for n in sorted({n for count in counts for n in count}):
            pairs = [count.get(n, (0, 0)) for count in counts]
            points.append(SurvivalPoint(n, kind, tuple(p[0] for p in pairs), tuple(p[1] for p in pairs)))
    return points


def _survivors(one: Retention, kind: str) -> dict[int, tuple[int, int]]:
    counts: dict[int, tuple[int, int]] = {}
    for row in one.rows if kind else one.headline:
        if row["summaries"] and row["state"] != VISIBLE_RAW and (not kind or row["kind"] == kind):
            needed, visible = counts.get(row["summaries"], (0, 0))
            counts[row["summaries"]] = (needed + 1, visible + (row["state"] in VISIBLE))
    return counts
