"""Writes `reports/needed_facts.md`: how many needed facts recordings have, how right they are, what a summary keeps.

In: the public recordings beside the checkout and the verdicts of `tests/facts/judged.jsonl`. Out: the report, figures
only, each beside the one of the trial that the specification reports (WB-RET-01b, WB-RPL-07a) and why it differs.
Run: `python tools/needed_facts_table.py`.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from workbench.facts import CODE, CandidateFinder, Mentions
from workbench.model.extractive import summary_text
from workbench.model.request_text import conversation_of
from workbench.model.types import Message, Request
from workbench.recordings import load_recordings
from workbench.recordings.types import Conversation
from workbench.replay.needed import MAX_CHANCE, RECENT_ROUNDS, NeededFacts, RecordedTexts, needed_facts, term_counts
from workbench.summary.prompt import Prompts
from workbench.summary.text import conversation_text

ROOT = Path(__file__).resolve().parent.parent
REPORT = ROOT / "reports" / "needed_facts.md"
JUDGED = ROOT / "tests" / "facts" / "judged.jsonl"
LIMITS = (100, 200, 400)


@dataclass(frozen=True, slots=True)
class Counted:
    """A corpus of the trial: what it found there, and why this differs."""

    name: str
    per_conversation: float
    right: tuple[int, int]
    why: str


COUNTED = (
    Counted(
        "tau-bench", 19.8, (40, 40),
        "0.4 fewer: phrases of the user that the assistant turned into headings (two or more capitalised words) are no "
        "names any more.",
    ),
    Counted(
        "swe-smith", 50.0, (27, 40),
        "The trial's 50 were counted before class `code` was taken out of the headline, and only 27 of 40 were right; "
        "with `code` it is {with_code:.1f} here, without it {found:.1f}. Two conversations: one fact that is needed at "
        "every call moves the mean by several.",
    ),
    Counted(
        "crosswoz", 0.35, (35, 39),
        "0.02 fewer: four characters that go on differently in both places (a district in two addresses) are no fact. "
        "The trial judged amounts and numbers too, which the chance control leaves out of the headline.",
    ),
    Counted(
        "real-persona-chat", 0.65, (31, 39),
        "5 facts fewer in 60 conversations. The rule is the specification's; the set of function characters is our own, "
        "and decides where a run of Kana and Han ends.",
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Kept:
    """A corpus of the trial for the extractive source: recall at 100, 200 and 400 words, and why this differs."""

    name: str
    title: str
    join: int
    trial: tuple[float, float, float]
    why: str
    has_no_headline: bool = False
    """Chance finds too much of every class."""


KEPT = (
    Kept("tau-bench", "tau-bench", 1, (0.80, 0.89, 0.96), "As the trial, up to 0.02 more."),
    Kept(
        "swe-smith", "SWE-smith", 1, (0.69, 0.82, 0.91),
        "0.03 to 0.09 more, 2 to 5 of these facts. With the classes that the headline leaves out (`code`, and `file`, "
        "`path` and `number`, which chance finds too often) it is {every} of {n_every}: within 0.04 of the trial.",
    ),
    Kept(
        "kdconv", "ten joined KdConv", 10, (0.56, 0.71, 0.85),
        "0.03 to 0.06 more. All classes but `code` are counted: chance finds each of them too often, as all dialogues "
        "are about one city, so a report of the product gives no share here.",
        has_no_headline=True,
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Corpus:
    """Conversations with their needed facts."""

    conversations: Sequence[Conversation]
    texts: Sequence[RecordedTexts]
    needed: Sequence[NeededFacts]

    @property
    def counts(self) -> Counter[str]:
        return Counter(one.facts[fact.fact].kind for one in self.needed for fact in one.needed)

    @property
    def left_out(self) -> set[str]:
        """Classes that aren't in the headline."""
        needed: Counter[str] = Counter()
        by_chance: Counter[str] = Counter()
        for one in self.needed:
            for row in one.chance:
                needed[row.kind] += row.needed
                by_chance[row.kind] += row.by_chance
        return {kind for kind in needed if by_chance[kind] > MAX_CHANCE * needed[kind]} | {CODE}


def corpus_of(folder: Path, join: int = 1) -> Corpus:
    """Load a corpus and find its facts; the chance control is the conversation before."""
    conversations = list(load_recordings(folder, join=join))
    counts = term_counts(conversations)
    texts = [RecordedTexts(conversation) for conversation in conversations]
    needed = [needed_facts(text, counts, other=texts[i - 1]) for i, text in enumerate(texts)]
    return Corpus(conversations, texts, needed)


def summary_of(events: Sequence[object], n_words: int) -> str:
    """What the extractive source writes of these events in one go."""
    text = conversation_text(events)  # type: ignore[arg-type]
    prompt = Prompts(max_summary_words=n_words).completed().render_user(conversation_text=text, previous_summary="")
    return summary_text(conversation_of(Request(messages=(Message(role="user", content=prompt),))), n_words)


def recalls(corpus: Corpus, left_out: set[str]) -> tuple[list[float], int]:
    """Share of the facts that a summary of everything but the last two rounds holds, by word limit."""
    kept, n_needed = [0] * len(LIMITS), 0
    for conversation, texts, needed in zip(corpus.conversations, corpus.texts, corpus.needed, strict=True):
        wanted: dict[int, list[int]] = {}
        for one in needed.needed:
            if needed.facts[one.fact].kind not in left_out:
                wanted.setdefault(one.call, []).append(one.fact)
        rounds = {call: number for call, number, _ in texts.answers}
        finder = CandidateFinder(needed.facts)
        for call, facts in wanted.items():
            oldest_recent = rounds[call] - RECENT_ROUNDS + 1
            end = max((text.event for text in texts.texts if text.round < oldest_recent), default=-1) + 1
            n_needed += len(facts)
            for i, limit in enumerate(LIMITS):
                found = finder.found_in(Mentions(summary_of(conversation.events[:end], limit)))
                kept[i] += sum(fact in found for fact in facts)
    return [n / n_needed for n in kept], n_needed


def judged() -> dict[str, tuple[int, int]]:
    """Recording -> verdicts `(right, all)`."""
    rows = [json.loads(line) for line in JUDGED.read_text(encoding="utf-8").splitlines()]
    names = dict.fromkeys(row["recording"] for row in rows)
    return {
        name: (
            sum(row["right"] for row in rows if row["recording"] == name),
            sum(row["recording"] == name for row in rows),
        )
        for name in names
    }


def report(data: Path) -> str:
    """The whole page."""
    verdicts = judged()
    lines = [
        "# Needed facts: how many, how right, how many a summary keeps",
        "",
        "Made by `python tools/needed_facts_table.py` from the public recordings beside the checkout; figures only. The",
        "trial is the one that the specification reports (WB-RET-01b, WB-RPL-07a).",
        "",
        "## Facts per conversation, and how many are right",
        "",
        "A fact counts at each call that needs it; class `code` doesn't count. Right: read and judged one by one, the",
        "verdicts are in `tests/facts/judged.jsonl`.",
        "",
        "| recording | conversations | facts each | trial | right | trial |",
        "|---|---|---|---|---|---|",
    ]
    reasons = []
    for row in COUNTED:
        corpus = corpus_of(data / row.name)
        counts, n = corpus.counts, len(corpus.conversations)
        found, with_code = (counts.total() - counts[CODE]) / n, counts.total() / n
        right, of = verdicts[row.name]
        lines.append(
            f"| {row.name} | {n} | {found:.2f} | {row.per_conversation:g} | {right} of {of} | "
            f"{row.right[0]} of {row.right[1]} |"
        )
        reasons.append(f"- **{row.name}**: {row.why.format(found=found, with_code=with_code)}")
    lines += [
        "",
        *reasons,
        "",
        "KdConv isn't among the four: its speakers recite an encyclopaedia to each other, and about half of its Chinese",
        "terms are districts of two addresses or set phrases. Read its recall as an upper bound.",
        "",
        "## What the extractive source keeps",
        "",
        "At each call one summary of everything but the last two rounds; the share of the facts that the call needs and",
        "that this summary holds. It is a ceiling: source and metric find facts by the same rules.",
        "",
        "| recording | facts | 100 words | 200 words | 400 words | trial |",
        "|---|---|---|---|---|---|",
    ]
    reasons = []
    for kept in KEPT:
        corpus = corpus_of(data / kept.name, kept.join)
        shares, n_facts = recalls(corpus, {CODE} if kept.has_no_headline else corpus.left_out)
        cells = " | ".join(f"{share:.2f}" for share in shares)
        lines.append(f"| {kept.title} | {n_facts} | {cells} | {' / '.join(f'{share:.2f}' for share in kept.trial)} |")
        every, n_every = recalls(corpus, set()) if "{every}" in kept.why else ([], 0)
        why = kept.why.format(every=" / ".join(f"{share:.2f}" for share in every), n_every=n_every)
        reasons.append(f"- **{kept.title}**: {why}")
    return "\n".join([*lines, "", *reasons]) + "\n"


def main() -> int:
    data = Path(os.environ.get("WORKBENCH_SHARED") or ROOT.parent / "shared") / "data"
    if not data.is_dir():
        print(
            "the public recordings are not here: put them beside the checkout as shared/data, or set WORKBENCH_SHARED"
        )
        return 0
    REPORT.write_text(report(data), encoding="utf-8")
    print(f"{REPORT.relative_to(ROOT)} written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
