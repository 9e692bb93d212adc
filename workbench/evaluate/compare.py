"""Runs side by side, paired per conversation: by how much they differ, how sure that is, and where most.

In: two or more runs over the same conversations; the first, or the one named, is the reference. Out: a
`Comparison`: one `Difference` per run and figure, with a bootstrap interval over conversations, a verdict per run,
and the conversations in which most is gained or lost. Pure, but for `Comparison.diff`, which asks the runs for the
two prompts. Implements WB-TUNE-01 and the verdicts of WB-TUNE-06.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from workbench.errors import ConfigError, NotEnoughDataError, ReplayError, nearest_name
from workbench.evaluate.choice import MIN_RECALL, Decision, decide, scale_of
from workbench.evaluate.figures import ConversationFigures, figures_of
from workbench.evaluate.net import RunLike
from workbench.replay.needed import MIN_CONVERSATIONS as MIN_FACT_CONVERSATIONS
from workbench.replay.needed import MIN_FACTS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from workbench.replay.prompt import PromptDiff

N_DRAWS = 2_000
MIN_CONVERSATIONS = 10
"""Under so many an interval would only look like one."""
LEVEL = 0.95
N_WIDEST = 10

SMALLER_BUT_DEARER = "smaller, but dearer"


@dataclass(frozen=True, slots=True)
class Measure:
    """A figure that is compared: the ratio of two sums over conversations, `per` being 1 for a mean."""

    name: str
    doc: str
    top: Callable[[ConversationFigures], float | None]
    per: Callable[[ConversationFigures], float] = lambda figures: 1.0
    is_share: bool = False
    """A share from 0 to 1 has differences in points only."""
    has_enough: Callable[[Sequence[ConversationFigures]], bool] = lambda figures: True
    """Whether these conversations say enough for the figure (WB-RET-01b)."""


def _has_facts_enough(figures: Sequence[ConversationFigures]) -> bool:
    n_conversations = sum(one.needed_facts > 0 for one in figures)
    return sum(one.needed_facts for one in figures) >= MIN_FACTS and n_conversations >= MIN_FACT_CONVERSATIONS


MEASURES = (
    Measure("cost", "money per conversation: main calls, summary calls and retries", lambda f: f.cost),
    Measure("net_tokens", "net tokens per conversation", lambda f: f.net_tokens),
    Measure("prompt_tokens", "prompt tokens per conversation", lambda f: f.prompt_tokens),
    Measure("peak_prompt_tokens", "largest prompt of a conversation", lambda f: f.peak_prompt_tokens),
    Measure("summary_tokens", "tokens of the summary model per conversation", lambda f: f.summary_tokens),
    Measure("firings", "firings per conversation", lambda f: f.firings),
    Measure("overflow_calls", "calls over the window per conversation", lambda f: f.overflow_calls),
    Measure(
        "prefix_reuse",
        "reused tokens / tokens that could have been reused",
        lambda f: f.prefix_tokens,
        lambda f: f.reusable_tokens,
        is_share=True,
    ),
    Measure(
        "needed_fact_recall",
        "needed facts that the request still says / needed facts",
        lambda f: f.visible_facts,
        lambda f: f.needed_facts,
        is_share=True,
        has_enough=_has_facts_enough,
    ),
)


@dataclass(frozen=True, slots=True)
class Difference:
    """One figure of two runs over the same conversations."""

    measure: str
    doc: str
    run: str
    reference: str
    value: float
    """Mean per conversation (or share) of the run, over the paired conversations."""
    reference_value: float
    difference: float
    """value - reference_value."""
    relative: float | None
    """difference / reference_value; None for a share and against 0."""
    interval: tuple[float, float] | None
    """95 % bootstrap interval of `difference`; None under ten conversations."""
    relative_interval: tuple[float, float] | None
    conversations: int
    draws: int
    seed: int

    @property
    def is_certain(self) -> bool | None:
        """The interval leaves out 0; None without an interval."""
        return None if self.interval is None else not self.interval[0] <= 0 <= self.interval[1]

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "measure": self.measure,
            "run": self.run,
            "reference": self.reference,
            "value": self.value,
            "reference_value": self.reference_value,
            "difference": self.difference,
            "relative": self.relative,
            "interval": None if self.interval is None else list(self.interval),
            "relative_interval": None if self.relative_interval is None else list(self.relative_interval),
            "is_certain": self.is_certain,
            "conversations": self.conversations,
            "draws": self.draws,
            "seed": self.seed,
        }


@dataclass(frozen=True, slots=True)
class Place:
    """A conversation in which two runs differ, and the call at which their prompts do so most."""

    run: str
    reference: str
    conversation: str
    net_difference: float
    call: int | None
    """None when the prompts of all calls are equally long."""
    prompt_tokens: int | None
    reference_prompt_tokens: int | None


@dataclass(frozen=True, slots=True)
class BreakEven:
    """From which call on a run has cost less than the reference, to the end of the conversation."""

    call: float | None
    """Median over the conversations that get there; None when none does."""
    reached: int
    conversations: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of size and cost, in one word each, and whether that is sure."""

    run: str
    reference: str
    verdict: str
    is_certain: bool | None
    """The interval of the cost leaves out 0; None without an interval."""
    break_even: BreakEven
    by: str
    """The measure of cost: money where both know it, else net tokens."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Runs side by side; `str` of it is one line, a notebook shows the table."""

    runs: Mapping[str, RunLike]
    reference: str
    differences: tuple[Difference, ...]
    verdicts: tuple[Verdict, ...]
    widest: tuple[Place, ...]
    """Per run the conversations with the largest difference of net tokens, largest first."""
    unpaired: tuple[str, ...]
    """Conversations that some run lacks or has with other content; they are left out."""
    seed: int
    decision: Decision
    """Which of the runs to take; in a sweep, by the part that the choice is made on."""
    conversations: tuple[str, ...]
    """Those that the differences are of."""

    @property
    def is_held_back(self) -> bool:
        """The choice was made without the conversations that are compared."""
        return bool(self.decision.chosen_on) and not set(self.decision.chosen_on) & set(self.conversations)

    @property
    def currency(self) -> str | None:
        """Of the money; None where some run has no price."""
        return scale_of(self.runs.values()).currency

    def difference(self, run: str, measure: str = "net_tokens") -> Difference:
        """One figure of one run against the reference.

        Raises:
            ReplayError: there is no such run or figure.
        """
        for found in self.differences:
            if (found.run, found.measure) == (run, measure):
                return found
        known = [*self.runs, *(measure.name for measure in MEASURES)]
        wrong = run if run not in self.runs else measure
        raise ReplayError(f"no difference of {wrong!r}", hint=nearest_name(wrong, known) or ", ".join(known))

    def diff(self, run: str, conversation: str | None = None, call: int | None = None) -> PromptDiff:
        """The two prompts side by side at one call; without a place where they differ most.

        Raises:
            ReplayError: the place doesn't exist, or the recordings of the runs aren't at hand.
        """
        if run not in self.runs or run == self.reference:
            others = [name for name in self.runs if name != self.reference]
            raise ReplayError(f"no run {run!r} beside the reference", hint=nearest_name(run, others))
        if conversation is None or call is None:
            places = [p for p in self.widest if p.run == run and p.call is not None]
            place = next((p for p in places if conversation in {None, p.conversation}), None)
            if place is None or place.call is None:
                raise ReplayError(f"the prompts of {run!r} and {self.reference!r} are equally long", hint="name a call")
            conversation, call = place.conversation, place.call
        before, after = self.runs[self.reference], self.runs[run]
        if not (hasattr(before, "call") and hasattr(after, "call")):
            raise ReplayError("these runs have no prompts", hint="compare runs that `replay` gave")
        diff: PromptDiff = before.call(conversation, call).diff(after.call(conversation, call))
        return diff

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain values, as `workbench compare --json` prints it."""
        return {
            "reference": self.reference,
            "seed": self.seed,
            "differences": [found.as_dict() for found in self.differences],
            "verdicts": [
                {
                    "run": v.run,
                    "reference": v.reference,
                    "verdict": v.verdict,
                    "is_certain": v.is_certain,
                    "break_even_call": v.break_even.call,
                    "break_even_reached": v.break_even.reached,
                    "conversations": v.break_even.conversations,
                    "by": v.by,
                }
                for v in self.verdicts
            ],
            "widest": [{name: getattr(place, name) for name in Place.__slots__} for place in self.widest],
            "unpaired": list(self.unpaired),
            "currency": self.currency,
            "decision": self.decision.as_dict(),
        }

    def __repr__(self) -> str:
        said = (f"{v.run}: {v.verdict}" for v in self.verdicts)
        return f"Comparison(against {self.reference}: {'; '.join(said)})"

    def _repr_html_(self) -> str:
        from workbench.report.comparison import comparison_html

        return comparison_html(self)


def compare(
    *runs: RunLike | Mapping[str, RunLike],
    reference: str | None = None,
    conversations: Iterable[str] | None = None,
    seed: int = 0,
    min_recall: float = MIN_RECALL,
    figures: Mapping[str, Mapping[str, ConversationFigures]] | None = None,
) -> Comparison:
    """Compare runs, conversation by conversation.

    Args:
        runs: Two or more, one by one or as a run set.
        reference: Name of the run that the others are compared with; without it the first.
        conversations: Look only at these.
        seed: Of the bootstrap; it stands in every row.
        min_recall: What the run to take must keep of the needed facts, as a share of what the baseline keeps.
        figures: By run, what `figures_of` says, from whoever has it already.
    Returns:
        Differences in the order of runs and `MEASURES`. A conversation counts when all runs have it, unchanged.
    Raises:
        ConfigError: fewer than two runs, or two of one name.
        NotEnoughDataError: no conversation is in all of the runs.
    Source: WB-TUNE-01.
    """
    named = _by_name(runs)
    reference = next(iter(named)) if reference is None else reference
    if reference not in named:
        raise ConfigError.for_field("reference", reference, ", ".join(named), hint=nearest_name(reference, named))
    known = figures or {}
    figures = {name: known[name] if name in known else figures_of(run) for name, run in named.items()}
    wanted = None if conversations is None else frozenset(conversations)
    paired, unpaired = _paired(figures, wanted)
    if not paired:
        raise NotEnoughDataError("conversations that all runs have", have=0, need=1)
    others = [name for name in named if name != reference]
    has_money = scale_of(named.values()).currency is not None
    before = [figures[reference][conversation] for conversation in paired]
    differences: list[Difference] = []
    verdicts: list[Verdict] = []
    widest: list[Place] = []
    drawn = _drawn({name: [figures[name][c] for c in paired] for name in named}, seed=seed)
    for name in others:
        after = [figures[name][conversation] for conversation in paired]
        found = [
            d
            for measure in MEASURES
            if (measure.name != "cost" or has_money)
            and (d := _difference(measure, name, reference, after, before, drawn, seed=seed))
        ]
        differences += found
        verdicts.append(_verdict(name, reference, found, after, before))
        widest += _widest(name, reference, after, before)
    decision = decide(named, figures=figures, conversations=paired, min_recall=min_recall)
    return Comparison(
        named,
        reference,
        tuple(differences),
        tuple(verdicts),
        tuple(widest),
        unpaired,
        seed,
        decision,
        tuple(paired),
    )


def _by_name(runs: Sequence[RunLike | Mapping[str, RunLike]]) -> dict[str, RunLike]:
    flat: list[RunLike] = []
    for run in runs:
        flat += run.values() if isinstance(run, Mapping) else [run]
    named = {run.name: run for run in flat}
    if len(named) < len(flat):
        raise ConfigError("two of the runs have the same name", field="runs", hint="give each its own name")
    if len(named) < 2:
        raise ConfigError(f"{len(named)} run can't be compared", field="runs", hint="give at least two")
    return named


def _paired(
    figures: Mapping[str, Mapping[str, ConversationFigures]], wanted: frozenset[str] | None
) -> tuple[list[str], tuple[str, ...]]:
    """Conversations that all runs have with the same content, and the others; in the order of the first run."""
    names = dict.fromkeys(name for per_run in figures.values() for name in per_run)
    paired: list[str] = []
    unpaired: list[str] = []
    for name in names:
        if wanted is not None and name not in wanted:
            continue
        hashes = {per_run[name].content_hash if name in per_run else "" for per_run in figures.values()}
        (paired if len(hashes) == 1 and "" not in hashes else unpaired).append(name)
    return paired, tuple(unpaired)


# --- intervals ----------------------------------------------------------------------------------------------


def _drawn(figures: Mapping[str, Sequence[ConversationFigures]], *, seed: int) -> dict[str, NDArray[np.float64]] | None:
    """Per run, sums of tops and pers of all measures in every draw; None under ten conversations.

    All runs share the draws: a conversation that is drawn twice counts twice in each (paired bootstrap).
    """
    n = len(next(iter(figures.values())))
    if n < MIN_CONVERSATIONS:
        return None
    import numpy as np

    columns = {
        name: np.array(
            [[value for m in MEASURES for value in (m.top(one) or 0.0, m.per(one))] for one in run], dtype=np.float64
        )
        for name, run in figures.items()
    }
    values = np.concatenate(list(columns.values()), axis=1)
    generator = np.random.default_rng(seed)
    sums = np.empty((N_DRAWS, values.shape[1]))
    for draw in range(N_DRAWS):  # one at a time: 2,000 times 10,000 conversations would fill the memory
        sums[draw] = np.bincount(generator.integers(0, n, n), minlength=n) @ values
    width = 2 * len(MEASURES)
    return {name: sums[:, i * width : (i + 1) * width] for i, name in enumerate(columns)}


def _difference(
    measure: Measure,
    name: str,
    reference: str,
    after: Sequence[ConversationFigures],
    before: Sequence[ConversationFigures],
    drawn: Mapping[str, NDArray[np.float64]] | None,
    *,
    seed: int,
) -> Difference | None:
    """None where the figure is unknown in one of the runs."""
    value, reference_value = _value(measure, after), _value(measure, before)
    if value is None or reference_value is None or not measure.has_enough(after):
        return None
    interval = relative_interval = None
    has_relative = not measure.is_share and reference_value > 0
    if drawn is not None:
        new, old = _ratios(measure, drawn[name]), _ratios(measure, drawn[reference])
        interval = _interval(new - old)
        if has_relative and bool((old > 0).all()):
            relative_interval = _interval(new / old - 1)
    return Difference(
        measure=measure.name,
        doc=measure.doc,
        run=name,
        reference=reference,
        value=value,
        reference_value=reference_value,
        difference=value - reference_value,
        relative=value / reference_value - 1 if has_relative else None,
        interval=interval,
        relative_interval=relative_interval,
        conversations=len(after),
        draws=0 if drawn is None else N_DRAWS,
        seed=seed,
    )


def _value(measure: Measure, figures: Sequence[ConversationFigures]) -> float | None:
    tops = [measure.top(one) for one in figures]
    known = [top for top in tops if top is not None]
    per = sum(map(measure.per, figures))
    return sum(known) / per if len(known) == len(tops) and per else None


def _ratios(measure: Measure, sums: NDArray[np.float64]) -> NDArray[np.float64]:
    place = 2 * MEASURES.index(measure)
    tops, pers = sums[:, place], sums[:, place + 1]
    ratios: NDArray[np.float64] = tops / pers.clip(min=1.0)  # a draw without anything reusable reused nothing
    return ratios


def _interval(values: NDArray[np.float64]) -> tuple[float, float]:
    import numpy as np

    low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


# --- verdicts and places ------------------------------------------------------------------------------------


def _verdict(
    name: str,
    reference: str,
    differences: Sequence[Difference],
    after: Sequence[ConversationFigures],
    before: Sequence[ConversationFigures],
) -> Verdict:
    by_measure = {found.measure: found for found in differences}
    by = "cost" if "cost" in by_measure else "net_tokens"
    cost, size = by_measure[by], by_measure["prompt_tokens"]
    return Verdict(
        run=name,
        reference=reference,
        verdict=verdict_of(size.difference, cost.difference),
        is_certain=cost.is_certain,
        break_even=_break_even(after, before, by),
        by=by,
    )


def verdict_of(size: float, cost: float) -> str:
    """The words for a change of prompt tokens and one of cost: money, or net tokens."""
    if size == cost == 0:
        return "no difference"
    size_word = "smaller" if size < 0 else "larger" if size > 0 else "as large"
    cost_word = "cheaper" if cost < 0 else "dearer" if cost > 0 else "as dear"
    return f"{size_word}{', but' if size * cost < 0 else ' and'} {cost_word}"


def _break_even(
    after: Sequence[ConversationFigures], before: Sequence[ConversationFigures], by: str = "net_tokens"
) -> BreakEven:
    pairs = [(_spent(new, by), _spent(old, by)) for new, old in zip(after, before, strict=True)]
    calls = [call for new, old in pairs if (call := _break_even_call(*new, *old)) is not None]
    return BreakEven(float(median(calls)) if calls else None, len(calls), len(after))


def _spent(figures: ConversationFigures, by: str) -> tuple[Sequence[float], float]:
    """What was spent up to each call, and in all."""
    if by == "cost":
        return figures.cost_upto_call, figures.cost or 0.0
    return figures.net_upto_call, figures.net_tokens


def _break_even_call(own: Sequence[float], own_total: float, other: Sequence[float], other_total: float) -> int | None:
    """The first call from which on the run is never dearer and ends cheaper, from 0; None when there is none."""
    if own_total >= other_total:
        return None
    first = None
    for call, (mine, theirs) in enumerate(zip(own, other, strict=False)):
        if mine > theirs:
            first = None
        elif first is None and mine < theirs:
            first = call
    return first


def _widest(
    name: str, reference: str, after: Sequence[ConversationFigures], before: Sequence[ConversationFigures]
) -> list[Place]:
    pairs = [(new, old, new.net_tokens - old.net_tokens) for new, old in zip(after, before, strict=True)]
    pairs = [pair for pair in pairs if pair[2] or pair[0].prompt_per_call != pair[1].prompt_per_call]
    pairs.sort(key=lambda pair: -abs(pair[2]))  # stable: equal ones stay in the order of the recordings
    return [_place(name, reference, new, old, net) for new, old, net in pairs[:N_WIDEST]]


def _place(name: str, reference: str, new: ConversationFigures, old: ConversationFigures, net: float) -> Place:
    gaps = [abs(a - b) for a, b in zip(new.prompt_per_call, old.prompt_per_call, strict=False)]
    call = max(range(len(gaps)), key=lambda i: gaps[i], default=None)
    if call is None or not gaps[call]:
        return Place(name, reference, new.conversation, net, None, None, None)
    return Place(name, reference, new.conversation, net, call, new.prompt_per_call[call], old.prompt_per_call[call])
