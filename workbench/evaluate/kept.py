"""What a run kept, all of it together: needed facts, survival, checks of its summaries, probes (WB-RET-01 to -05).

In: a run, its recordings where they are at hand, probes. Out: `Kept`, which the terminal, `--json` and the report show
alike. Shares stand only where there are facts enough for one. Pure, but for probes, whose conversations are
replayed again for the requests at their calls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from workbench.config import RunConfig
from workbench.errors import NotEnoughDataError
from workbench.evaluate.net import RunLike, settings_of
from workbench.evaluate.probes import Probe, ProbeState, probe_states
from workbench.evaluate.retention import Recall, Retention, SurvivalPoint, retention, survival
from workbench.evaluate.summary_checks import check_summaries, invented_number_rate
from workbench.facts import KINDS
from workbench.recordings.types import Conversation
from workbench.replay.needed import MIN_FACTS
from workbench.replay.runs import with_unique_ids

CHECKS = {
    "too_long": "over the word limit",
    "tool_call": "with a tool call in it",
    "answer": "an answer instead of a summary",
    "invented_numbers": "with a number that nothing before it says",
    "language": "in another language than the conversation",
    "forbidden": "with a forbidden string",
}
"""Faults of a summary, in words (WB-RET-04)."""
MAX_EXAMPLES = 20


@dataclass(frozen=True, slots=True)
class FaultySummary:
    """One summary that doesn't pass every check."""

    conversation: str
    summary: int
    """Index of its row."""
    faults: tuple[str, ...]
    """Keys of `CHECKS`."""
    invented: tuple[str, ...]
    words: int


@dataclass(frozen=True, slots=True)
class SummaryFindings:
    """The checks of all written summaries of a run."""

    summaries: int
    faulty: tuple[FaultySummary, ...]
    invented_rate: float | None
    """Numbers that nothing says, of all numbers in summaries; None without any number."""

    @property
    def faults(self) -> dict[str, int]:
        """Fault -> summaries that have it, every fault."""
        counts = Counter(fault for one in self.faulty for fault in one.faults)
        return {fault: counts[fault] for fault in CHECKS}


@dataclass(frozen=True, slots=True)
class Kept:
    """What one run kept of what later answers needed."""

    run: str
    retention: Retention
    survival: tuple[SurvivalPoint, ...]
    """Of the headline, then of each class with facts enough."""
    summaries: SummaryFindings | None
    """None where the recordings aren't at hand."""
    probes: tuple[ProbeState, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as `--facts --json` prints them."""
        found = self.retention
        return {
            "states": found.states,
            "recall": _share(found, "recall"),
            "floor": _share(found, "floor"),
            "shortage": shortage_of(found) or None,
            "left_out": list(found.left_out),
            "by_class": {kind: {"needed": n, "visible": v} for kind, (n, v) in found.by_class().items()},
            "lost_by_step": found.lost_by_step(),
            "examples": [
                {name: getattr(one, name) for name in type(one).__slots__} for one in found.examples(MAX_EXAMPLES)
            ],
            "survival": [
                {
                    "summaries": one.summaries,
                    "class": one.kind or None,
                    "needed": one.needed[0],
                    "visible": one.visible[0],
                    "share": one.share,
                }
                for one in self.survival
            ],
            "summaries": None if self.summaries is None else _findings_as_dict(self.summaries),
            "probes": [
                {
                    "id": one.probe.id,
                    "conversation": one.probe.conversation,
                    "call": one.call,
                    "question": one.probe.question,
                    "answer": one.probe.answer,
                    "state": one.state,
                    "step": one.step,
                }
                for one in self.probes
            ],
        }


def _findings_as_dict(found: SummaryFindings) -> dict[str, Any]:
    return {
        "checked": found.summaries,
        "faults": found.faults,
        "invented_number_rate": found.invented_rate,
        "faulty": [{name: getattr(one, name) for name in FaultySummary.__slots__} for one in found.faulty],
    }


def _share(found: Retention, which: str) -> dict[str, float] | None:
    try:
        share: Recall = found.floor() if which == "floor" else found.recall()
    except NotEnoughDataError:
        return None
    return {"share": share.share, "low": share.low, "high": share.high}


def shortage_of(found: Retention) -> str:
    """Why there is no share; empty where there is one."""
    try:
        found.recall()
    except NotEnoughDataError as error:
        return str(error)
    return ""


def kept_by(
    run: RunLike,
    conversations: Iterable[Conversation] | None = None,
    *,
    probes: Sequence[Probe] = (),
    forbidden: Sequence[str] = (),
) -> Kept:
    """What a run kept.

    Args:
        conversations: The recordings of the run; without them summaries aren't checked and probes aren't asked.
        probes: Questions with answers; those of other conversations are passed over.
        forbidden: Strings that no summary may hold.
    Raises:
        RecordingError: a probe points at a message that its conversation hasn't.
    """
    found = retention(run)
    # The same names as in the rows: two conversations of one name have been told apart there.
    recorded = None if conversations is None else list(with_unique_ids(conversations))
    asked: list[ProbeState] = []
    if recorded is not None and probes and isinstance(run.config, RunConfig):
        wanted = {probe.conversation for probe in probes}
        for conversation in recorded:
            if conversation.id in wanted:
                asked += probe_states(conversation, probes, run.config)
    checked = None if recorded is None else checked_summaries(run, recorded, forbidden=forbidden)
    return Kept(run.name, found, tuple(survival_of(found)), checked, tuple(asked))


def survival_of(found: Retention) -> list[SurvivalPoint]:
    """Decay of recall with each further summary: of the headline, and of each class with facts enough."""
    through = Counter(row["kind"] for row in found.rows if row["summaries"])
    return survival([found], kinds=["", *(kind for kind in KINDS if through[kind] >= MIN_FACTS)])


def checked_summaries(
    run: RunLike, conversations: Iterable[Conversation], *, forbidden: Sequence[str] = ()
) -> SummaryFindings:
    """The model-free checks of every written summary (WB-RET-04)."""
    summarizer = settings_of(run).get("summarizer") or {}
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in run.rows("summaries"):
        rows.setdefault(row["conversation"], []).append(row)
    results, faulty = [], []
    for conversation in conversations:
        own = check_summaries(
            conversation,
            rows.get(conversation.id, []),
            max_words=summarizer.get("max_summary_words"),
            forbidden=forbidden,
        )
        results += own
        faulty += [
            FaultySummary(conversation.id, one.summary, one.faults, one.invented, one.words)
            for one in own
            if one.faults
        ]
    return SummaryFindings(len(results), tuple(faulty), invented_number_rate(results))
