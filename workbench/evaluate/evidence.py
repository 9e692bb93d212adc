"""What speaks for a configuration: the run it was tried in, key figures with intervals, and what it was compared with.

In: the configuration, and runs, a comparison or a sweep. Out: an `Evidence` of plain values that travels with an
export. Pure. Implements the figures of WB-EXP-02 and the three to watch of WB-EXP-03.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from workbench.errors import ConfigError, NotEnoughDataError, nearest_name
from workbench.evaluate.compare import LEVEL, MEASURES, MIN_CONVERSATIONS, N_DRAWS, Comparison, Verdict, compare
from workbench.evaluate.figures import ConversationFigures, figures_of
from workbench.evaluate.lint import WARNING, lint
from workbench.evaluate.net import RunLike, is_baseline, net_tokens
from workbench.evaluate.retention import retention
from workbench.evaluate.sweep import Sweep

if TYPE_CHECKING:
    from workbench.config import RunConfig

EvidenceSource = RunLike | Mapping[str, RunLike] | Comparison | Sweep
"""What an export can be given as evidence."""

REPLAY_ONLY = ("summaries", "billing", "cache", "prices")
"""Tables of a configuration that say how a replay measures; production has none of them."""

WATCHED = ("firings_per_100_requests", "cached_share", "overflow_per_100_requests")
"""What to watch in production (WB-EXP-03)."""
_NEVER = ("never-fires", "never-passes", "gates-contradict", "never-looked-at")
_COSTS = {"cost": "money", "net_tokens": "net tokens"}
"""What a verdict's cost is called."""
_MAX_COMPARED = 12


@dataclass(frozen=True, slots=True)
class KeyFigure:
    """A figure of the run with its interval, or None where it isn't known."""

    name: str
    doc: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    """95 %, by drawing conversations anew; None under ten conversations."""
    is_share: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """By how much a figure differs from the reference's."""

    name: str
    doc: str
    difference: float
    relative: float | None = None
    low: float | None = None
    high: float | None = None
    """95 % interval of `relative`, or of `difference` where there is no `relative`."""
    is_share: bool = False


@dataclass(frozen=True, slots=True)
class ComparedRun:
    """One of the runs that stood for choice."""

    name: str
    run_id: str
    prompt_tokens: int
    firings: int
    summaries: int
    overflow_calls: int | None = None
    net_tokens: float | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """Where the figures of a configuration are from. Plain values only, so that a file can hold it."""

    run: str
    run_id: str
    config_hash: str
    """Of the configuration that ran: the exported one, but for where a replay has its summaries and prices from."""
    data_hash: str
    conversations: int
    events: int
    calls: int
    figures: tuple[KeyFigure, ...]
    reference: str = ""
    """The run that it was compared with; empty without one."""
    verdict: str = ""
    changes: tuple[Change, ...] = ()
    compared: tuple[ComparedRun, ...] = ()
    reason: str = ""
    """Why a sweep recommends it; empty for any other evidence."""
    unreachable: str = ""
    """That the trigger never fires on these recordings, and what was seen; empty when it does."""
    warnings: tuple[str, ...] = ()
    """Other warnings of `lint`."""

    def figure(self, name: str) -> KeyFigure:
        """One of the key figures.

        Raises:
            ConfigError: there is none of this name.
        """
        for one in self.figures:
            if one.name == name:
                return one
        known = [one.name for one in self.figures]
        raise ConfigError.for_field("figure", name, ", ".join(known), hint=nearest_name(name, known))

    @property
    def watched(self) -> tuple[KeyFigure, ...]:
        """The three figures to watch in production, with the replay's values."""
        return tuple(self.figure(name) for name in WATCHED)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, None left out: TOML has none."""
        return {name: value for name, value in _plain(self).items() if value not in ([], None)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Evidence:
        """What `as_dict` gave.

        Raises:
            KeyError, TypeError: it isn't from there.
        """
        found: dict[str, Any] = dict(values)
        parts: tuple[tuple[str, Any], ...] = (("figures", KeyFigure), ("changes", Change), ("compared", ComparedRun))
        for name, part in parts:
            found[name] = tuple(_checked(part(**one)) for one in found.get(name, ()))
        found["warnings"] = tuple(found.get("warnings", ()))
        evidence = cls(**found)
        _checked(evidence)
        return evidence


def _checked(value: Any) -> Any:
    """The value, if texts are texts and numbers are numbers in it."""
    for field in fields(value):
        inner, kind = getattr(value, field.name), str(field.type)
        if inner is None and kind.endswith("| None"):
            continue
        allowed: tuple[type, ...] = {"str": (str,), "int": (int,), "float": (int, float)}.get(
            kind.split(" ", maxsplit=1)[0], ()
        )
        if allowed and not isinstance(inner, allowed):
            raise TypeError(f"{field.name} = {inner!r}")
    return value


def _plain(value: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in fields(value):
        inner = getattr(value, field.name)
        if isinstance(inner, tuple):
            inner = [one if isinstance(one, str) else _plain(one) for one in inner]
        if inner is not None:
            found[field.name] = inner
    return found


def evidence_of(config: RunConfig, source: EvidenceSource, *, seed: int = 0) -> Evidence:
    """The evidence for a configuration.

    Args:
        source: A run, runs by name, a comparison or a sweep; one of the runs has to be of this configuration.
        seed: Of the intervals.
    Raises:
        ConfigError: no run is of this configuration.
    Source: WB-EXP-02.
    """
    runs = _runs_in(source)
    run = _run_of(config, runs)
    figures = list(figures_of(run).values())
    found = lint(run)
    never = [one.text for one in found.findings if one.rule in _NEVER]
    is_unreachable = any(one.rule == "never-fires" for one in found.findings)
    facts = run.facts
    reference = _reference(run, runs, source)
    change = _changes(run, reference, source, seed=seed)
    return Evidence(
        run=run.name,
        run_id=str(facts.get("run_id") or ""),
        config_hash=str(facts.get("config_hash") or ""),
        data_hash=str(facts.get("data_hash") or ""),
        conversations=len(figures),
        events=int(facts.get("events") or 0),
        calls=sum(one.calls for one in figures),
        figures=tuple(_key_figures(run, figures, seed=seed)),
        reference="" if change is None else change[0],
        verdict="" if change is None else change[1],
        changes=() if change is None else change[2],
        compared=_compared(run, reference, runs),
        reason=source.reason if isinstance(source, Sweep) and source.recommended == run.name else "",
        unreachable="; ".join(never) if is_unreachable else "",
        warnings=tuple(
            one.text
            for one in found.findings
            if one.severity == WARNING and not (is_unreachable and one.rule in _NEVER)
        ),
    )


def _runs_in(source: EvidenceSource) -> Mapping[str, RunLike]:
    if isinstance(source, Comparison | Sweep):
        return source.runs
    return source if isinstance(source, Mapping) else {source.name: source}


def in_production(values: Mapping[str, Any]) -> dict[str, Any]:
    """The part of `RunConfig.resolved()` that production has."""
    return {name: value for name, value in values.items() if name not in REPLAY_ONLY}


def _run_of(config: RunConfig, runs: Mapping[str, RunLike]) -> RunLike:
    """The run of a configuration; of several the one with its hash, then the one with its name."""
    wanted = in_production(config.resolved())
    found = [run for run in runs.values() if in_production(run.config.resolved()) == wanted]
    if not found:
        raise ConfigError(
            f"none of the runs ({', '.join(map(json.dumps, runs))}) is of configuration {config.label()!r}",
            field="evidence",
            hint="replay exactly what is exported, or export the configuration of the run: `runs[NAME].config`",
        )
    return min(found, key=lambda run: (run.config.config_hash != config.config_hash, run.name != config.label()))


# --- figures ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Ratio:
    """A figure as `times` the ratio of two sums over conversations."""

    name: str
    doc: str
    tops: Sequence[float | None]
    pers: Sequence[float]
    times: float = 1
    is_share: bool = False


def _key_figures(run: RunLike, figures: Sequence[ConversationFigures], *, seed: int) -> list[KeyFigure]:
    calls = [float(one.calls) for one in figures]
    prompts = [float(one.prompt_tokens) for one in figures]
    firings = [float(one.firings) for one in figures]
    over = [None if one.overflow_calls is None else float(one.overflow_calls) for one in figures]
    ratios = (
        _Ratio(WATCHED[0], "firings per 100 model requests", firings, calls, 100),
        _Ratio(
            WATCHED[1], "prompt tokens that the provider's cache has", _cached(run, figures), prompts, is_share=True
        ),
        _Ratio(WATCHED[2], "requests over the context window, per 100", over, calls, 100),
        _Ratio("prompt_tokens_per_request", "prompt tokens per model request", prompts, calls),
        _Ratio("net_tokens", "net tokens per conversation", [one.net_tokens for one in figures], [1.0] * len(figures)),
    )
    return [*_with_intervals(ratios, seed=seed), _recall(run)]


def _cached(run: RunLike, figures: Sequence[ConversationFigures]) -> list[float | None]:
    """Cached prompt tokens by conversation, None where no cache rules are known."""
    cost = getattr(run, "cost", None)
    if cost is None:
        return [None] * len(figures)
    found: dict[str, float | None] = {one.conversation: 0.0 for one in figures}
    for call in cost.main_calls:
        before = found[call.conversation]
        found[call.conversation] = None if before is None or call.use is None else before + call.use.cached
    return list(found.values())


def _with_intervals(ratios: Sequence[_Ratio], *, seed: int) -> list[KeyFigure]:
    """Values with intervals from drawing conversations anew; all figures share the draws."""
    known: dict[str, tuple[Sequence[float], Sequence[float]]] = {}
    for one in ratios:
        tops = [top for top in one.tops if top is not None]
        if len(tops) == len(one.tops) and math.fsum(one.pers) > 0:
            known[one.name] = (tops, one.pers)
    drawn = _drawn(known, seed=seed)
    found = []
    for one in ratios:
        value = low = high = None
        if one.name in known:
            value = _rounded(one.times * math.fsum(known[one.name][0]) / math.fsum(known[one.name][1]))
            if one.name in drawn:
                low, high = (_rounded(one.times * end) for end in drawn[one.name])
        found.append(KeyFigure(one.name, one.doc, value, low, high, one.is_share))
    return found


def _drawn(
    known: Mapping[str, tuple[Sequence[float], Sequence[float]]], *, seed: int
) -> dict[str, tuple[float, float]]:
    """Ends of the interval of each ratio; none under ten conversations."""
    n = min((len(tops) for tops, _ in known.values()), default=0)
    if n < MIN_CONVERSATIONS:
        return {}
    import numpy as np

    values = np.array([column for pair in known.values() for column in pair], dtype=np.float64)
    generator = np.random.default_rng(seed)
    sums = np.empty((N_DRAWS, len(values)))
    for draw in range(N_DRAWS):  # one at a time: 2,000 times 10,000 conversations would fill the memory
        sums[draw] = values @ np.bincount(generator.integers(0, n, n), minlength=n)
    ends = {}
    for i, name in enumerate(known):
        ratios = sums[:, 2 * i] / sums[:, 2 * i + 1].clip(min=1.0)
        low, high = np.quantile(ratios, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        ends[name] = (float(low), float(high))
    return ends


def _rounded(value: float) -> float:
    """Without digits that nobody reads."""
    return round(value, 6)


def _recall(run: RunLike) -> KeyFigure:
    name, doc = "needed_fact_recall", "needed facts that the requests still say"
    try:
        recall = retention(run).recall()
    except NotEnoughDataError:
        return KeyFigure(name, doc, None, None, None, is_share=True)
    return KeyFigure(name, doc, _rounded(recall.share), _rounded(recall.low), _rounded(recall.high), is_share=True)


# --- comparison ---------------------------------------------------------------------------------------------


def _reference(run: RunLike, runs: Mapping[str, RunLike], source: EvidenceSource) -> RunLike | None:
    """What it is compared with: the comparison's reference, else the baseline, else another run."""
    if isinstance(source, Comparison) and source.reference != run.name:
        return source.runs[source.reference]
    others = [one for one in runs.values() if one.name != run.name]
    return next((one for one in others if is_baseline(one)), others[0] if others else None)


def _changes(
    run: RunLike, reference: RunLike | None, source: EvidenceSource, *, seed: int
) -> tuple[str, str, tuple[Change, ...]] | None:
    """Name of the reference, verdict, and differences; None where nothing can be compared."""
    if reference is None:
        return None
    # What a sweep says of its recommendation, it says of conversations that it wasn't chosen on.
    held_back = source.reported_on if isinstance(source, Sweep) else None
    try:
        found = compare(reference, run, conversations=held_back, seed=seed)
    except NotEnoughDataError:
        return None
    changes = []
    for one in found.differences:
        interval = one.interval if one.relative is None else one.relative_interval
        low, high = (None, None) if interval is None else map(_rounded, interval)
        relative = None if one.relative is None else _rounded(one.relative)
        is_share = one.measure in {measure.name for measure in MEASURES if measure.is_share}
        changes.append(Change(one.measure, one.doc, _rounded(one.difference), relative, low, high, is_share))
    return reference.name, _verdict_words(found.verdicts[0]), tuple(changes)


def _verdict_words(verdict: Verdict) -> str:
    """The verdict and how sure it is, by the interval that decides it."""
    by = _COSTS[verdict.by]
    if verdict.is_certain is None:
        return f"{verdict.verdict} (too few conversations for an interval)"
    return f"{verdict.verdict} ({'sure' if verdict.is_certain else f'not sure: the interval of the {by} holds 0'})"


def _compared(run: RunLike, reference: RunLike | None, runs: Mapping[str, RunLike]) -> tuple[ComparedRun, ...]:
    """The reference, this run and some of the others, the fewest net tokens first."""
    first = [one for one in (reference, run) if one is not None]
    others = [one for one in runs.values() if one.name not in {kept.name for kept in first}]
    rows = [_compared_run(one) for one in (*first, *others)]
    kept = rows[: len(first)] + sorted(rows[len(first) :], key=_weight)[: _MAX_COMPARED - len(first)]
    return tuple(sorted(kept, key=_weight))


def _weight(row: ComparedRun) -> tuple[bool, float, str]:
    return row.net_tokens is None, row.net_tokens or 0.0, row.name


def _compared_run(run: RunLike) -> ComparedRun:
    facts, net = run.facts, net_tokens(run)
    return ComparedRun(
        name=run.name,
        run_id=str(facts.get("run_id") or ""),
        prompt_tokens=int(facts.get("prompt_tokens") or 0),
        firings=int(facts.get("firings") or 0),
        summaries=int(facts.get("summaries") or 0),
        overflow_calls=facts.get("overflow_calls"),
        net_tokens=None if net is None else _rounded(net),
    )
