"""A grid of configurations over recordings: replayed, chosen on one part, reported on the other (WB-TUNE-02, -06).

In: recordings, a base configuration, a grid. Out: a `Sweep`: runs, the ones that nothing beats, a recommendation with
its reason (`choice.py` has the rule). The baseline without summaries and the base itself are always candidates. The
choice is made on a seeded 70 % of the conversations; what it brings is said of the rest, against the baseline that
was replayed too. Work is shared: a text is counted once, whatever the number of runs, and equal summary requests are
answered once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

from workbench.config import RunConfig
from workbench.evaluate.choice import MIN_RECALL, Decision, Standing, decide
from workbench.evaluate.compare import SMALLER_BUT_DEARER, Comparison, compare, verdict_of
from workbench.evaluate.figures import ConversationFigures, figures_of
from workbench.evaluate.grid import DEFAULT_MAX_RUNS, configurations
from workbench.evaluate.net import is_baseline, without_shortening
from workbench.evaluate.proposal import Choice, propose
from workbench.evaluate.savings import break_even_of
from workbench.recordings import Recordings, load_recordings
from workbench.recordings.types import Conversation
from workbench.replay.conversation import replay_conversation
from workbench.replay.replay import Progress, replay
from workbench.replay.runs import RUNS_FOLDER, Run, RunSet
from workbench.replay.trace import SUMMARIES

CHOOSE_SHARE = 0.7
_PILOT_CALLS = 100
_PILOT_S = 2.0
_BATCH = 16
"""Configurations that are replayed together: what they share is worked out once for all of them."""
_MAX_COMPARED = 20


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """What a sweep would do, before it does it."""

    configs: tuple[RunConfig, ...]
    choices: tuple[Choice, ...]
    """Why the grid is as it is; empty for a grid that was given."""
    conversations: int
    calls: int
    """Over all runs."""
    expected_s: float
    """By a trial of the base on the first conversations; finished runs and shared work make it shorter."""
    live_tokens: int
    """What a live summary model would read and write at most; 0 without one."""

    @property
    def runs(self) -> int:
        """How many configurations."""
        return len(self.configs)

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "runs": self.runs,
            "conversations": self.conversations,
            "calls": self.calls,
            "expected_s": round(self.expected_s, 1),
            "live_tokens": self.live_tokens,
            "choices": [choice.as_dict() for choice in self.choices],
        }


@dataclass(frozen=True, slots=True)
class Candidate:
    """One configuration: what it was chosen by, and what it does on the other conversations."""

    name: str
    run_id: str
    standing: Standing
    """On the part that the choice is made on, as is the next."""
    net_tokens: float
    rest_prompt_change: float | None
    """Prompt tokens on the rest against the baseline, as a share; None without a rest or a baseline's prompt."""
    rest_cost_change: float | None
    """The same of what the choice weighs: money, or net tokens."""
    verdict: str
    """On the rest, against the baseline; empty for the baseline itself."""
    break_even_turn: int | None
    """Turn of the rest from which on it has cost no more than the baseline, in the middle; None = not within it."""

    @property
    def is_pareto(self) -> bool:
        """No candidate that fits beats it in cost, recall and peak at once."""
        return self.standing.is_pareto

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        own = {name: getattr(self, name) for name in Candidate.__slots__ if name != "standing"}
        return {**self.standing.as_dict(), **own}


@dataclass(frozen=True, slots=True)
class Sweep:
    """A finished sweep; `candidates` are sorted, the best first."""

    runs: RunSet
    plan: SweepPlan
    candidates: tuple[Candidate, ...]
    decision: Decision
    """The choice on `chosen_on`."""
    reason: str
    """Why, and what it brings on `reported_on`."""
    baseline: str
    chosen_on: tuple[str, ...]
    reported_on: tuple[str, ...]
    """The same conversations as `chosen_on` when there is only one."""
    comparison: Comparison
    """The best candidates against the baseline, on `reported_on`."""
    seed: int

    @property
    def recommended(self) -> str | None:
        """Name of the configuration; None when all of them overflow the window."""
        return self.decision.recommended

    @property
    def config(self) -> RunConfig | None:
        """The recommended configuration."""
        return None if self.recommended is None else self.runs[self.recommended].config

    @property
    def pareto(self) -> tuple[str, ...]:
        """Names of the candidates that none beats in cost, recall and peak at once."""
        return self.decision.pareto

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as `workbench sweep --json` prints them."""
        ids = {one.name: one.run_id for one in self.candidates}
        return {
            "runs": self.runs.facts(),
            "pareto": [ids[name] for name in self.pareto],
            "recommended": None if self.recommended is None else ids[self.recommended],
            "reason": self.reason,
            "unit": self.decision.currency or "net tokens",
            "min_recall": self.decision.min_recall,
            "recall_unweighed": self.decision.unweighed or None,
            "baseline": ids[self.baseline],
            "plan": self.plan.as_dict(),
            "candidates": [one.as_dict() for one in self.candidates],
            "chosen_on": list(self.chosen_on),
            "reported_on": list(self.reported_on),
            "comparison": self.comparison.as_dict(),
            "seed": self.seed,
        }

    def __repr__(self) -> str:
        return f"Sweep({len(self.candidates)} runs: {self.reason})"

    def _repr_html_(self) -> str:
        from workbench.report.comparison import sweep_html

        return sweep_html(self)


def plan_sweep(
    conversations: Recordings | Iterable[Conversation] | str | Path,
    base: RunConfig,
    grid: Mapping[str, Any] | None = None,
    *,
    max_runs: int = DEFAULT_MAX_RUNS,
) -> SweepPlan:
    """What `sweep` would do, without doing it; a short trial measures how long a call takes.

    Raises:
        ConfigError: an unknown option, an empty axis, an impossible combination, or more than `max_runs`.
    """
    recordings = _recordings(conversations)
    choices: tuple[Choice, ...] = ()
    start = base
    if grid is None:
        proposal = propose(recordings, base)
        start, grid, choices = proposal.base, proposal.grid, proposal.choices
    elif base.summarizer is None and any(option.split(".")[0] == "trigger" for option in grid):
        start = base.replace(summarizer={}, agent={"add_session_summary": True})
        choices = (
            Choice("summarizer", ("on",), "the grid sets a trigger, which is of no use without it"),
            Choice("agent.add_session_summary", (True,), "a summary that isn't sent saves nothing"),
        )
    baseline = without_shortening(base)
    found = {config.config_hash: config for config in configurations(start, grid, max_runs=max_runs)}
    named = {baseline.config_hash: baseline}
    named.setdefault(base.config_hash, base if base.name else base.replace(name="base"))
    for key, config in found.items():
        named.setdefault(key, config)
    configs = tuple(_with_distinct_names(named.values()))
    calls = sum(len(conversation.calls) for conversation in recordings)
    seconds, tokens = _trial(recordings, base)
    is_live = base.summaries.source == "live"
    n_live = sum(config.summarizer is not None for config in configs)
    return SweepPlan(
        configs=configs,
        choices=choices,
        conversations=len(recordings),
        calls=calls * len(configs),
        expected_s=seconds * calls * len(configs),
        live_tokens=round(tokens * calls * n_live) if is_live else 0,
    )


def sweep(
    conversations: Recordings | Iterable[Conversation] | str | Path,
    base: RunConfig,
    grid: Mapping[str, Any] | None = None,
    *,
    plan: SweepPlan | None = None,
    max_runs: int = DEFAULT_MAX_RUNS,
    seed: int = 0,
    min_recall: float = MIN_RECALL,
    runs: str | Path = RUNS_FOLDER,
    jobs: int = 1,
    fresh: bool = False,
    progress: Progress | bool | None = None,
) -> Sweep:
    """Replay every configuration of a grid and recommend one.

    Args:
        base: What every run starts from; it is a candidate itself, as is its baseline without summaries.
        grid: `{"trigger.token": [1000, 2000], ...}`, see `workbench.evaluate.grid`; None = one made from the recordings.
        plan: What `plan_sweep` said, so that nothing is looked at twice; `grid` and `max_runs` don't matter then.
        seed: Of the part that the choice is made on, and of the intervals.
        min_recall: Needed-fact recall that the recommendation must keep, as a share of what the baseline keeps.
    Raises:
        ConfigError: an unknown option, an empty axis, an impossible combination, or more than `max_runs`.
    Source: WB-TUNE-02.
    """
    recordings = _recordings(conversations)
    plan = plan or plan_sweep(recordings, base, grid, max_runs=max_runs)
    done: list[Run] = []
    for start in range(0, len(plan.configs), _BATCH):
        batch = plan.configs[start : start + _BATCH]
        done += replay(recordings, batch, runs=runs, jobs=jobs, fresh=fresh, progress=progress).values()
    return choose(RunSet(done, problems=recordings.problems), plan, seed=seed, min_recall=min_recall)


def choose(runs: RunSet, plan: SweepPlan, *, seed: int = 0, min_recall: float = MIN_RECALL) -> Sweep:
    """The recommendation among finished runs, chosen on one part of the conversations (WB-TUNE-02, -06)."""
    baseline = next(name for name, run in runs.items() if is_baseline(run))
    figures = {baseline: figures_of(runs[baseline])}
    chosen_on, reported_on = split(figures[baseline].values(), seed=seed)
    in_detail = frozenset(reported_on)
    for name, run in runs.items():  # call by call only what the report is about: of all runs it is much
        found = figures.get(name) or figures_of(run)
        figures[name] = {one: of if one in in_detail else of.sums() for one, of in found.items()}
    decision = decide(runs, figures=figures, conversations=chosen_on, min_recall=min_recall)
    order = [one.name for one in decision.standings]
    by_money = decision.currency is not None
    rest = {name: _sums(figures[name], reported_on, by_money=by_money) for name in runs}
    candidates = []
    for standing in decision.standings:
        name = standing.name
        size, cost = (_change(now, before) for now, before in zip(rest[name], rest[baseline], strict=True))
        verdict = verdict_of(rest[name][0] - rest[baseline][0], rest[name][1] - rest[baseline][1])
        own, other = figures[name], figures[baseline]
        pays = break_even_of(
            {one: (own[one].by_turn(by_money=by_money), other[one].by_turn(by_money=by_money)) for one in reported_on}
        )
        candidates.append(
            Candidate(
                name=name,
                run_id=runs[name].run_id,
                standing=standing,
                net_tokens=sum(figures[name][one].net_tokens for one in chosen_on),
                rest_prompt_change=size,
                rest_cost_change=cost,
                verdict="" if name == baseline else verdict,
                break_even_turn=None if name == baseline else pays.median,
            )
        )
    compared = [runs[name] for name in (baseline, *(n for n in order[: _MAX_COMPARED + 1] if n != baseline))]
    comparison = compare(*compared, reference=baseline, conversations=reported_on, seed=seed, figures=figures)
    best = candidates[0] if decision.recommended else None
    reason = _reason(decision, best, baseline, chosen_on, reported_on, comparison)
    return Sweep(
        runs=runs,
        plan=plan,
        candidates=tuple(candidates),
        decision=decision,
        reason=reason,
        baseline=baseline,
        chosen_on=chosen_on,
        reported_on=reported_on,
        # One recommendation: what was chosen, not what the rest alone would say.
        comparison=replace(comparison, decision=replace(decision, reason=reason)),
        seed=seed,
    )


def split(conversations: Iterable[ConversationFigures], *, seed: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The part to choose on and the part to report on; by content, so that order and other files don't matter."""
    found = list(conversations)
    drawn = sorted(
        found, key=lambda one: hashlib.sha256(f"{seed}:{one.content_hash}:{one.conversation}".encode()).digest()
    )
    n_chosen = min(max(round(CHOOSE_SHARE * len(found)), 1), max(len(found) - 1, 1))
    first = {one.conversation for one in drawn[:n_chosen]}
    chosen = tuple(one.conversation for one in found if one.conversation in first)
    rest = tuple(one.conversation for one in found if one.conversation not in first)
    return chosen, rest or chosen


def _recordings(conversations: Recordings | Iterable[Conversation] | str | Path) -> Recordings:
    if isinstance(conversations, Recordings):
        return conversations
    if isinstance(conversations, str | Path):
        return load_recordings(conversations)
    return Recordings.of(list(conversations))


def _with_distinct_names(configs: Iterable[RunConfig]) -> Iterable[RunConfig]:
    taken: set[str] = set()
    for config in configs:
        name = config.label()
        if name in taken:
            config = config.replace(name=f"{name} ({config.config_hash[:6]})")
        taken.add(config.label())
        yield config


def _trial(recordings: Recordings, base: RunConfig) -> tuple[float, float]:
    """Seconds and summary tokens per call, from the first conversations; no model is called for it."""
    config = base.replace(summaries={"source": "extractive", "latency_s": 0})
    columns = SUMMARIES.column_names
    read, written = columns.index("request_tokens"), columns.index("completion_tokens")
    n_calls = tokens = 0
    started = perf_counter()
    for conversation in recordings:
        trace = replay_conversation(conversation, config)
        n_calls += len(trace.rows["calls"])
        tokens += sum((row[read] or 0) + (row[written] or 0) for row in trace.rows["summaries"])  # type: ignore[operator]
        if n_calls >= _PILOT_CALLS or perf_counter() - started > _PILOT_S:
            break
    return (perf_counter() - started) / max(n_calls, 1), tokens / max(n_calls, 1)


def _sums(figures: Mapping[str, ConversationFigures], names: Sequence[str], *, by_money: bool) -> tuple[float, float]:
    """Prompt tokens of some conversations, and what they cost."""
    wanted = [figures[name] for name in names]
    costs = ((one.cost or 0.0) if by_money else one.net_tokens for one in wanted)
    return float(sum(one.prompt_tokens for one in wanted)), sum(costs)


def _change(now: float, before: float) -> float | None:
    return now / before - 1 if before else None


def _reason(
    decision: Decision,
    best: Candidate | None,
    baseline: str,
    chosen_on: Sequence[str],
    reported_on: Sequence[str],
    comparison: Comparison,
) -> str:
    """Why this one, on how many conversations, and what it brings on the others."""
    said = f"{decision.reason}; chosen on {len(chosen_on)} conversation{'' if len(chosen_on) == 1 else 's'}"
    if best is None or best.name == baseline:
        return said
    held_out = tuple(chosen_on) != tuple(reported_on)
    verdict = next(one for one in comparison.verdicts if one.run == best.name)
    found = comparison.difference(best.name, verdict.by)
    change = "" if found.relative is None else f", {verdict.by.replace('_', ' ')} {found.relative:+.1%}"
    sure = {True: "sure", False: "not sure: the interval holds 0", None: "too few conversations for an interval"}
    on = f"the {len(reported_on)} held back" if held_out else "the same, since there is only one"
    pays = ""
    if best.verdict == SMALLER_BUT_DEARER:
        turn = best.break_even_turn
        pays = ", it pays in none of them" if turn is None else f", it pays from turn {turn} on where it does (median)"
    return f"{said}; on {on}: {best.verdict}{change} against {baseline!r} ({sure[found.is_certain]}){pays}"
