"""Can this trigger fire at all? What a configuration does on a corpus, before it is deployed (WB-TUNE-07).

In: a run of the configuration on the exact path. Out: a `Lint`: findings in words, each with its evidence, and the
quantiles of the corpus that they are measured against. Pure. A trigger is judged by what each of its checks measured
at every evaluation, nested ones included.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Any

from workbench.evaluate.net import RunLike, settings_of
from workbench.evaluate.thrash import thrash
from workbench.summary.report import CONTEXT_THRESHOLD, METRIC_EVENTS, METRIC_TOKENS, TIME_THRESHOLD

WARNING, NOTE = "warning", "note"
OFTEN_CALLS = 2.0
"""Firing once in so many calls or fewer is worth a warning: each new summary costs the cached prefix."""
_WINDOWS = (8_192, 32_768, 128_000, 200_000, 1_000_000)
_UNIT_WORDS = {"milliseconds": "ms"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One remark about a configuration."""

    rule: str
    severity: str
    """`warning`: probably not what was meant; `note`: worth knowing."""
    text: str
    evidence: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Lint:
    """What a configuration does on a corpus, and what is wrong with it."""

    config: str
    findings: tuple[Finding, ...]
    corpus: Mapping[str, Any]
    """Quantiles of the corpus: prompt tokens, calls of a conversation, seconds between requests."""

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """The findings that are no notes."""
        return tuple(found for found in self.findings if found.severity == WARNING)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as `workbench lint --json` prints them."""
        findings = [{name: getattr(found, name) for name in Finding.__slots__} for found in self.findings]
        return {"config": self.config, "findings": findings, "corpus": dict(self.corpus)}


@dataclass(slots=True)
class _Gate:
    """One check of the trigger, or a tree of them, over all evaluations."""

    name: str
    place: str
    """Where it stands, as the configuration writes it: `all[0]`; empty at the top."""
    thresholds: set[float] = field(default_factory=set)
    unit: str = ""
    values: list[float] = field(default_factory=list)
    n_passed: int = 0
    n_skipped: int = 0
    children: list[_Gate] = field(default_factory=list)

    @property
    def n_evaluated(self) -> int:
        return len(self.values)

    def add(self, tree: Mapping[str, Any]) -> None:
        if tree["passed"] is None:
            self.n_skipped += 1
            return
        self.name = tree["check"]
        self.unit = tree["unit"]
        self.thresholds.add(tree["threshold"])
        self.values.append(tree["value"])
        self.n_passed += bool(tree["passed"])
        for i, child in enumerate(tree.get("children", ())):
            if i == len(self.children):
                self.children.append(_Gate(child["check"], f"{self.place}{'.' if self.place else ''}{self.name}[{i}]"))
            self.children[i].add(child)

    def walk(self) -> Iterator[_Gate]:
        yield self
        for child in self.children:
            yield from child.walk()

    @property
    def words(self) -> str:
        limits = " or ".join(f"{limit:,.0f}" for limit in sorted(self.thresholds))
        at = f" ({self.place})" if self.place else ""
        if self.children or not self.unit:
            return f"{self.name}{at}"
        return f"{self.name} > {limits} {_UNIT_WORDS.get(self.unit, self.unit)}{at}"

    @property
    def seen(self) -> str:
        found = quantiles(self.values)
        return (
            f"half were at most {found['p50']:,.0f}, 90 % at most {found['p90']:,.0f}, the largest {found['max']:,.0f}"
        )


def lint(run: RunLike) -> Lint:
    """Findings about the configuration of a run.

    Args:
        run: A replay of the configuration over the corpus that it is meant for.
    Source: WB-TUNE-07.
    """
    calls, checks, summaries = run.rows("calls"), run.rows("checks"), run.rows("summaries")
    findings: list[Finding] = []
    if settings_of(run).get("summarizer"):
        gates = _gates(checks)
        findings += _about_firing(checks, calls, summaries, gates)
        for i, gate in enumerate(gates):
            findings += _about_gate(gate, [other for other in gates[:i] if other.n_evaluated])
        findings += _about_windows(checks, calls, _contexts(settings_of(run).get("trigger")))
        findings += _about_overflow(checks, calls)
        findings += _about_time(run, gates)
        findings += _about_sending(settings_of(run), summaries)
    return Lint(run.name, tuple(findings), _corpus(calls))


def quantiles(values: Sequence[float]) -> dict[str, float]:
    """Observed values at half, nine tenths and the end: no interpolation."""
    ordered = sorted(values)
    if not ordered:
        return {}
    last = len(ordered) - 1
    return {"p50": ordered[last // 2], "p90": ordered[round(0.9 * last)], "max": ordered[last]}


def _corpus(calls: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    per_conversation: dict[str, list[Mapping[str, Any]]] = {}
    for row in calls:
        per_conversation.setdefault(row["conversation"], []).append(row)
    gaps = [
        (after["time_ns"] - before["time_ns"]) / 1e9
        for rows in per_conversation.values()
        for before, after in pairwise(rows)
        if before["request"] != after["request"]
    ]
    return {
        "conversations": len(per_conversation),
        "calls": len(calls),
        "prompt_tokens": quantiles([row["prompt_tokens"] for row in calls]),
        "calls_per_conversation": quantiles([len(rows) for rows in per_conversation.values()]),
        "seconds_between_requests": quantiles(gaps),
    }


def _gates(checks: Sequence[Mapping[str, Any]]) -> list[_Gate]:
    """The top-level checks; copies and forced runs evaluate none."""
    gates: list[_Gate] = []
    for row in checks:
        for i, tree in enumerate(json.loads(row["detail"] or "[]")):
            if i == len(gates):
                gates.append(_Gate(tree["check"], ""))
            gates[i].add(tree)
    return gates


def _about_firing(
    checks: Sequence[Mapping[str, Any]],
    calls: Sequence[Mapping[str, Any]],
    summaries: Sequence[Mapping[str, Any]],
    gates: Sequence[_Gate],
) -> Iterator[Finding]:
    """Never, or every so many calls; of no calls at all nothing can be said."""
    if not calls:
        return
    fired = [row for row in checks if row["fired"] and row["path"] != "copy"]
    if not fired:
        yield _never_fires(checks, calls, gates)
        return
    written = sum(row["status"] == "written" for row in summaries)
    if not written:
        errors = sorted({str(row["error"]).split(":")[0] for row in summaries if row["error"]})
        why = f": {', '.join(errors)}" if errors else ": there was nothing to summarise"
        text = f"the trigger fires {len(fired):,} times and no summary is written{why}"
        yield Finding("fires-for-nothing", WARNING, text, {"firings": len(fired)})
        return
    every = _calls_between(fired)
    if every is not None:
        often = every <= OFTEN_CALLS
        yield Finding(
            "fires-every",
            WARNING if often else NOTE,
            f"it fires every {every:,.0f} calls (median)"
            + (": each new summary makes the provider read the prompt anew" if often else ""),
            {"calls": every, "firings": len(fired)},
        )
    behaviour = thrash(calls, summaries)
    if behaviour.stuck:
        first = behaviour.stuck[0]
        n = len(behaviour.stuck)
        text = f"{n:,} conversation{'' if n == 1 else 's'} stuck in firings that don't pay, first {first.conversation}, call {first.call}"
        yield Finding("stuck", WARNING, text, behaviour.as_dict())


def _never_fires(
    checks: Sequence[Mapping[str, Any]], calls: Sequence[Mapping[str, Any]], gates: Sequence[_Gate]
) -> Finding:
    """With the thresholds that would be reached here, where the trigger is one check and not a tree of them."""
    n = len({row["conversation"] for row in calls})
    why = f": {'; '.join(gate.words for gate in gates)}" if gates else ""
    text = f"the trigger never fires on this corpus: 0 of {n:,} conversations, in {len(checks):,} checks{why}"
    evidence: dict[str, Any] = {"checks": len(checks), "conversations": n}
    alone = gates[0] if len(gates) == 1 and gates[0].unit in (METRIC_EVENTS, METRIC_TOKENS) else None
    if alone is not None and alone.values:
        largest = max(alone.values)
        evidence |= {"largest": largest, "largest_reachable_threshold": largest - 1}
        text += f"; largest delta {largest:,.0f}"
        text += f", so the largest threshold that fires is {largest - 1:,.0f}" if largest >= 1 else ""
    return Finding("never-fires", WARNING, text, evidence)


def _calls_between(fired: Sequence[Mapping[str, Any]]) -> float | None:
    calls_of: dict[tuple[str, str], list[int]] = {}
    for row in fired:
        calls_of.setdefault((row["conversation"], row["filter_key"]), []).append(row["call"])
    gaps = [b - a for calls in calls_of.values() for a, b in pairwise(calls)]
    return float(median(gaps)) if gaps else None


def _about_gate(gate: _Gate, before: Sequence[_Gate]) -> Iterator[Finding]:
    """Checks that never pass, always pass, or are never looked at; and those that never pass together."""
    if not gate.n_evaluated:
        yield Finding("never-looked-at", WARNING, f"{gate.words} is never looked at: an earlier check always decides")
        return
    if gate.children:
        if gate.name == "all":
            yield from _about_all(gate)
        for i, child in enumerate(gate.children):
            yield from _about_gate(child, gate.children[:i] if gate.name == "all" else [])
        return
    evidence = {"evaluations": gate.n_evaluated, "passed": gate.n_passed, **quantiles(gate.values)}
    if not gate.n_passed and not before:
        yield Finding("never-passes", WARNING, f"{gate.words} never passes: {gate.seen}", evidence)
    elif gate.n_passed == gate.n_evaluated and gate.unit:
        yield Finding("always-passes", NOTE, f"{gate.words} passes whenever it is looked at: {gate.seen}", evidence)


def _about_all(gate: _Gate) -> Iterator[Finding]:
    """Gates of an `all` that pass one by one, but never together."""
    if gate.n_passed:
        return
    passing = [child for child in gate.children if child.n_passed]
    stopping = next((child for child in gate.children if child.n_evaluated and not child.n_passed), None)
    if passing and stopping is not None:
        others = " and ".join(child.words for child in passing)
        seen = f": {stopping.seen} then" if stopping.unit else ""
        text = f"{stopping.words} never holds while {others} does{seen}; the gates contradict each other here"
        yield Finding("gates-contradict", WARNING, text, {"evaluations": stopping.n_evaluated})


def _contexts(node: Any) -> Iterator[Mapping[str, Any]]:
    """The shares of a window in a trigger tree."""
    if not isinstance(node, Mapping):
        return
    if isinstance(node.get("context"), Mapping):
        yield node["context"]
    for branch in ("any", "all"):
        for child in node.get(branch) or ():
            yield from _contexts(child)


def _about_windows(
    checks: Sequence[Mapping[str, Any]], calls: Sequence[Mapping[str, Any]], contexts: Iterator[Mapping[str, Any]]
) -> Iterator[Finding]:
    """What a share of the window is in tokens, here and for other models."""
    here = sorted({row["context_window"] for row in checks if row["context_window"]})
    here = here or sorted({row["window"] for row in calls if row["window"]})
    largest = max((row["value"] for row in checks if row["metric"] == "tokens"), default=None)
    is_known = any(row["window"] for row in calls)
    for context in contexts:
        ratio, floor = context["ratio"], context["min_tokens"]
        limits = {window: max(int(window * ratio), floor) for window in sorted({*here, *_WINDOWS})}
        table = ", ".join(f"{limit:,} of {window:,}" for window, limit in limits.items())
        out_of_reach = [window for window, limit in limits.items() if largest is not None and limit >= largest]
        text = f"{CONTEXT_THRESHOLD} at {ratio:g} of the window is {table} tokens"
        if largest is not None:
            text += f"; the most that any check measured here is {largest:,.0f}"
            if out_of_reach:
                text += f", so it can't fire on models of {out_of_reach[0]:,} and more"
        floored = [window for window in limits if int(window * ratio) < floor]
        if floored:
            text += f"; up to {floored[-1]:,} min_tokens = {floor:,} decides"
        if not is_known and here:
            text += f"; the model's window isn't known, so the fallback of {here[0]:,} was taken here"
        evidence = {
            "limits": {str(window): limit for window, limit in limits.items()},
            "largest": largest,
            "window_is_known": is_known,
        }
        yield Finding("share-of-window", NOTE, text, evidence)


def _about_overflow(checks: Sequence[Mapping[str, Any]], calls: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    """Prompts over the window in conversations where nothing had fired by then: triggers count what is new only."""
    first_fired: dict[str, int] = {}
    for row in checks:
        if row["fired"]:
            first_fired.setdefault(row["conversation"], row["call"])
    early: dict[str, Mapping[str, Any]] = {}
    for row in calls:
        if row["overflow"] and row["call"] < first_fired.get(row["conversation"], row["call"] + 1):
            early.setdefault(row["conversation"], row)
    if not early:
        return
    name, call = next(iter(early.items()))
    fixed = call["system_tokens"] + call["schema_tokens"]
    n = len(early)
    text = (
        f"the window overflows before the trigger fires in {n:,} conversation{'' if n == 1 else 's'}, first {name}, "
        f"call {call['call']}: a prompt of {call['prompt_tokens']:,} tokens for a window of {call['window']:,}"
    )
    if fixed:
        text += f"; {fixed:,} of them are system and tools, which no trigger counts"
    evidence = {"conversations": n, "prompt_tokens": call["prompt_tokens"], "window": call["window"]}
    yield Finding("overflow-first", WARNING, text, evidence | {"fixed_tokens": fixed})


def _about_time(run: RunLike, gates: Sequence[_Gate]) -> Iterator[Finding]:
    timed = any(gate.name == TIME_THRESHOLD for top in gates for gate in top.walk())
    assumed = sum(bool(row["assumed_time"]) for row in run.rows("conversations"))
    if timed and assumed:
        text = f"{assumed:,} conversations have no times of their own: what {TIME_THRESHOLD} does in them is assumed"
        yield Finding("assumed-time", NOTE, text, {"conversations": assumed})


def _about_sending(settings: Mapping[str, Any], summaries: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    if summaries and not (settings.get("agent") or {}).get("add_session_summary"):
        text = "summaries are written, but agent.add_session_summary is off: no prompt holds one, and none gets shorter"
        yield Finding("summary-not-sent", WARNING, text, {"summaries": len(summaries)})
