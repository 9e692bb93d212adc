"""What compaction and tailoring saved, and what that cost in cached prefix (WB-RPL-03, WB-CACHE-03).

In: runs. Out: one `Shortening` per configuration, step and conversation, with the words and cells that the terminal
and the page share. Saved tokens count in every call that goes without them; lost ones were in the cache and had to
be sent anew, because a step changed something in the middle of the prompt.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from workbench.report.labels import counted, listed, number, quoted
from workbench.report.overview import billing_counter, engine_counter, shortens_requests

if TYPE_CHECKING:
    from workbench.report.frames import RunLike, Runs

PASSES = ("pass 0", "pass 1", "pass 2")
TAILORING = "tailoring"
STEPS = {
    "pass 0": "pass 0: results of certain tools",
    "pass 1": "pass 1: old tool results",
    "pass 2": "pass 2: oversized tool results",
    TAILORING: "tailoring: whole rounds",
}
"""What each step takes out."""
COLUMNS = ("configuration", "what it took out", "conversation", "calls", "saved", "breaks", "lost")
N_NAME_COLUMNS = 3
_STEP_OF_CAUSE = {"compaction_truncation": "pass 2", "tailoring": TAILORING}
_BY_PLACEHOLDER = (0, 1)


@dataclass(frozen=True, slots=True)
class Shortening:
    """One step in one conversation under one configuration."""

    run: str
    step: str
    conversation: str
    calls: int
    """Calls whose request it made shorter."""
    saved_tokens: int
    """Over all these calls, by the engine's counter."""
    breaks: int
    """Calls in which it broke the prefix."""
    lost_tokens: int
    """Cached tokens that these had to send anew, by the billing counter."""

    @property
    def cells(self) -> list[str]:
        """A line of the table."""
        figures = (self.calls, self.saved_tokens, self.breaks, self.lost_tokens)
        return [self.run, STEPS[self.step], self.conversation, *map(number, figures)]


def shortenings(runs: Runs, names: Iterable[str]) -> list[Shortening]:
    """By configuration in the order of `names`, then by step, largest saving first."""
    return [found for name in names if shortens_requests(runs[name]) for found in _of_run(runs[name])]


def _of_run(run: RunLike) -> list[Shortening]:
    totals: dict[tuple[str, str], list[int]] = {}
    placeholder_step = _placeholder_steps(run.rows("compactions"))
    for row in run.rows("calls"):
        for step, saved in _savings(row):
            total = totals.setdefault((step, row["conversation"]), [0, 0, 0, 0])
            total[0] += 1
            total[1] += saved
        broken_by = _STEP_OF_CAUSE.get(row["break_cause"])
        if row["break_cause"] == "compaction_placeholder":
            broken_by = placeholder_step.get((row["conversation"], row["call"]))
        if broken_by:
            total = totals.setdefault((broken_by, row["conversation"]), [0, 0, 0, 0])
            total[2] += 1
            total[3] += row["lost_tokens"] or 0
    steps = list(STEPS)
    order = sorted(totals.items(), key=lambda item: (steps.index(item[0][0]), -item[1][1]))
    return [Shortening(run.name, step, conversation, *total) for (step, conversation), total in order]


def _savings(row: Mapping[str, Any]) -> Iterable[tuple[str, int]]:
    for n, step in enumerate(PASSES):
        if row.get(f"pass{n}_results"):
            yield step, row[f"pass{n}_saved_tokens"]
    if row.get("tailored_messages"):
        yield TAILORING, row["tailored_tokens"]


def _placeholder_steps(rewrites: Iterable[Mapping[str, Any]]) -> dict[tuple[str, int], str]:
    """Which pass wrote the earliest new placeholder of a call: there the prefix ends."""
    earliest: dict[tuple[str, int], tuple[str, int]] = {}
    for row in rewrites:
        place = (row["conversation"], row["call"])
        candidate = (row["event_id"], row["pass"])
        if row["pass"] in _BY_PLACEHOLDER and (place not in earliest or candidate < earliest[place]):
            earliest[place] = candidate
    return {place: PASSES[by_pass] for place, (_, by_pass) in earliest.items()}


def shortening_sentences(found: Sequence[Shortening]) -> list[str]:
    """Per configuration: saved against lost."""
    sentences = []
    for name in dict.fromkeys(one.run for one in found):
        own = [one for one in found if one.run == name]
        saved, lost = sum(one.saved_tokens for one in own), sum(one.lost_tokens for one in own)
        breaks = sum(one.breaks for one in own)
        words = f"{quoted(name)} kept {number(saved)} tokens out of its prompts"
        cost = f" and had to send {number(lost)} cached ones anew, in {counted(breaks, 'call')}" if breaks else ""
        sentences.append(f"{words}{cost}.")
    return sentences


def units(runs: Runs, found: Sequence[Shortening]) -> str:
    """Which counter measured what."""
    names = list(dict.fromkeys(one.run for one in found))
    engines = list(dict.fromkeys(str(engine_counter(runs[name])) for name in names))
    billing = list(dict.fromkeys(str(billing_counter(runs[name])) for name in names))
    return (
        f"saved: tokens that calls went without, summed over all calls (engine's counter: {listed(engines)}); "
        f"lost: cached tokens sent anew ({listed(billing)})"
    )
