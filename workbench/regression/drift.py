"""How far a suite has moved from its accepted baseline (WB-REG-01).

In: a suite's limits of drift, its figures now and its accepted baseline. Out: findings, one per figure and conversation,
each with the first call that differs. Drift counts in both directions: what got better is to be accepted too. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import Final, NamedTuple

from workbench.regression.baseline import AcceptedConversation, Baseline, named_fact
from workbench.regression.figures import Figures, measured
from workbench.regression.finding import FAIL, PASS, UNDECIDED, Finding, Verdict
from workbench.regression.suite import Suite

SHARES: Final = ("needed_fact_recall", "probe_recall")
"""Their drift is a difference of two shares."""
RELATIVE: Final = ("prompt_tokens", "peak_prompt_tokens", "summary_tokens")
"""Their drift is a share of the accepted figure; that of all others is a number of things that differ."""


class Moved(NamedTuple):
    """How far one figure of one conversation has moved."""

    by: float
    call: int | None
    """First call that differs."""
    detail: str


def drift_of(suite: Suite, figures: Sequence[Figures], accepted: Baseline | None) -> list[Finding]:
    """A finding per figure with a limit of drift, and per conversation."""
    findings: list[Finding] = []
    known = {} if accepted is None else {one.id: one for one in accepted.conversations}
    for name, limit in suite.rules.drift.given():
        expectation = f"drift.{name}"
        if accepted is None:
            reason = f"nothing is accepted yet: `workbench check {suite.path.name} --accept` does it"
            if suite.rules.baseline:  # named, as recordings are: a file that went missing is no good news
                reason = f"{suite.rules.baseline} isn't there: `workbench check {suite.path.name} --accept` writes it"
            verdict: Verdict = FAIL if suite.rules.baseline else UNDECIDED
            findings.append(Finding(expectation, verdict, limit=limit, detail=reason))
        elif name in SHARES:
            findings.append(_share_drift(expectation, name, limit, figures, accepted))
        else:
            for one in figures:
                moved = _MOVES[name](known[one.conversation], one)
                findings.append(_judged(expectation, limit, one.conversation, moved))
    return findings


def _judged(expectation: str, limit: float, conversation: str, moved: Moved) -> Finding:
    if moved.by <= limit + 1e-12:
        return Finding(expectation, PASS, conversation, value=moved.by, limit=limit)
    return Finding(expectation, FAIL, conversation, conversation, moved.call, moved.by, limit, moved.detail)


def _share_drift(expectation: str, name: str, limit: float, figures: Sequence[Figures], accepted: Baseline) -> Finding:
    now, before = measured(name, figures), getattr(accepted, name)
    if now.value is None or before is None:
        reason = now.reason or "the accepted baseline had too little to tell"
        return Finding(expectation, UNDECIDED, limit=limit, detail=reason)
    by = abs(round(now.value, 6) - before)
    if by <= limit + 1e-12:
        return Finding(expectation, PASS, value=by, limit=limit)
    newly = _newly_lost(name, figures, accepted)
    conversation, call, what = newly or ("", None, "")
    detail = f"{before:.3f} → {now.value:.3f}" + (f"; lost now: {what}" if what else "")
    return Finding(expectation, FAIL, "", conversation, call, by, limit, detail)


def _newly_lost(name: str, figures: Sequence[Figures], accepted: Baseline) -> tuple[str, int | None, str] | None:
    known = {one.id: one for one in accepted.conversations}
    for one in figures:
        before = known[one.conversation]
        if name == "probe_recall":
            new = [place for place in one.lost_probes if place.what not in before.lost_probes]
        else:
            new = [place for place in one.lost_facts if named_fact(place) not in before.lost_facts]
        if new:
            return new[0]
    return None


# --- figures --------------------------------------------------------------------------------------------


def _relative(before: float, now: float) -> float:
    if before == now:
        return 0.0
    return abs(now / before - 1) if before else 1.0


def _first_call(before: AcceptedConversation, now: Figures) -> int | None:
    """The first call whose prompt has another size."""
    pairs = zip_longest(before.prompt_tokens, now.prompt_tokens)
    return next((call for call, (one, other) in enumerate(pairs) if one != other), None)


def _prompts(before: AcceptedConversation, now: Figures) -> Moved:
    old, new = sum(before.prompt_tokens), sum(now.prompt_tokens)
    return Moved(_relative(old, new), _first_call(before, now), f"{old:,} → {new:,} tokens, from this call on")


def _peak(before: AcceptedConversation, now: Figures) -> Moved:
    old, new = max(before.prompt_tokens, default=0), max(now.prompt_tokens, default=0)
    call = now.prompt_tokens.index(new) if now.prompt_tokens else None
    return Moved(_relative(old, new), call, f"{old:,} → {new:,} tokens")


def _summary_tokens(before: AcceptedConversation, now: Figures) -> Moved:
    old, new = before.summary_tokens, now.summary_tokens
    call = next(iter(now.summaries), (None, 0))[0]
    return Moved(_relative(old, new), call, f"{old:,} → {new:,} tokens of the summary model")


def _firings(before: AcceptedConversation, now: Figures) -> Moved:
    old, new = len(before.firings), len(now.firings)
    return Moved(abs(new - old), _first_unequal(before.firings, now.firings), f"{old} → {new} firings")


def _moved_summaries(before: AcceptedConversation, now: Figures) -> Moved:
    old, new = before.summaries, now.summaries
    moved = sum(one != other for one, other in zip(old, new, strict=False)) + abs(len(old) - len(new))
    if not moved:
        return Moved(0, None, "")
    number = next(
        (i for i, (one, other) in enumerate(zip(old, new, strict=False)) if one != other), min(len(old), len(new))
    )
    there, here = (_place_in_words(part[number] if number < len(part) else None) for part in (old, new))
    call = (new[number] if number < len(new) else old[number])[0]
    return Moved(moved, call, f"summary {number} {there} before, {here} now")


def _place_in_words(summary: tuple[int, int] | None) -> str:
    return "wasn't there" if summary is None else f"ended at event {summary[1]}, seen by call {summary[0]}"


def _first_unequal(before: Sequence[int], now: Sequence[int]) -> int | None:
    """The call of the first firing that only one of the two has."""
    for one, other in zip(before, now, strict=False):
        if one != other:
            return min(one, other)
    rest = before[len(now) :] or now[len(before) :]
    return rest[0] if rest else None


def _lost_facts(before: AcceptedConversation, now: Figures) -> Moved:
    here = {named_fact(place): place.call for place in now.lost_facts}
    return _set_move(set(before.lost_facts), here)


def _lost_probes(before: AcceptedConversation, now: Figures) -> Moved:
    return _set_move(set(before.lost_probes), {place.what: place.call for place in now.lost_probes})


def _set_move(before: set[str], now: Mapping[str, int | None]) -> Moved:
    new = [name for name in now if name not in before]
    found = sorted(before - now.keys())
    parts = [
        f"lost now: {', '.join(new[:3])}" if new else "",
        f"no longer lost: {', '.join(found[:3])}" if found else "",
    ]
    return Moved(len(new) + len(found), now[new[0]] if new else None, "; ".join(filter(None, parts)))


_MOVES: Final[Mapping[str, Callable[[AcceptedConversation, Figures], Moved]]] = {
    "prompt_tokens": _prompts,
    "peak_prompt_tokens": _peak,
    "summary_tokens": _summary_tokens,
    "firings": _firings,
    "moved_summaries": _moved_summaries,
    "lost_facts": _lost_facts,
    "lost_probes": _lost_probes,
}
