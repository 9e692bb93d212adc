"""Needed facts: what a recorded answer used that was said well before, from the recording alone (WB-RET-01).

In: a recorded conversation, how rare terms are in the corpus, another conversation for the chance control. Out:
`NeededFacts`: each fact with the call that needs it and the event that said it first, and where each of them is
mentioned. Pure; made once per conversation, used by every configuration. Implements WB-RET-01a and the control of
WB-RET-01b.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, NamedTuple

from workbench.facts import (
    AMOUNT,
    CJK,
    HANGUL,
    NAME,
    QUOTED,
    TIME,
    Candidate,
    CandidateFinder,
    EarlierText,
    Mentions,
    TermCounts,
    argument_values,
    is_repetition,
)
from workbench.facts.scripts import MIN_CJK_CHARS, normalised
from workbench.model.types import ASSISTANT, SYSTEM, TOOL, USER, Message
from workbench.recordings.types import Conversation, is_answer, is_human, is_system, is_tool_round
from workbench.replay.cache import tools_text
from workbench.session.types import Event

RECENT_ROUNDS: Final = 2
"""What was said in the last rounds, the call's own and the one before it, isn't *well before* the call."""
MIN_FACTS: Final = 30
MIN_CONVERSATIONS: Final = 10
"""With fewer facts, or from fewer conversations, there is no share, only a count (WB-RET-01b)."""
MAX_CHANCE: Final = 0.2
"""A class of which chance alone would find more than this share is left out (WB-RET-01b)."""
_MIN_DIGITS = 3


def said(message: Message) -> str:
    """What a message says: its text and the values of its tool calls; names and keys are schema (WB-RET-01a)."""
    if not message.tool_calls and not message.content_parts:
        return message.content
    parts = [message.content, *(part.text for part in message.content_parts if part.type == "text")]
    return "\n".join([*parts, *(argument_values(call.arguments) for call in message.tool_calls)])


def said_by(event: Event) -> str:
    """What all messages of an event say."""
    messages = event.messages
    return said(messages[0]) if len(messages) == 1 else "\n".join(map(said, messages))


def term_counts(conversations: Iterable[Conversation]) -> TermCounts:
    """In how many conversations of a corpus each CJK term and Hangul stem occurs."""
    return TermCounts("\n".join(map(said_by, conversation.events)) for conversation in conversations)


class NeededFact(NamedTuple):
    """One fact at one call."""

    call: int
    fact: int
    """Index into `NeededFacts.facts`."""
    source: int
    """Place of the recorded event that said it first; -1 for none."""
    source_role: str


class ChanceCount(NamedTuple):
    """How often a class is found needed, and how often it would be with another conversation's history."""

    kind: str
    needed: int
    by_chance: int


@dataclass(frozen=True, slots=True)
class NeededFacts:
    """The needed facts of one conversation, in order of their calls."""

    facts: tuple[Candidate, ...] = ()
    """Each fact once."""
    needed: tuple[NeededFact, ...] = ()
    source_ids: tuple[str, ...] = ()
    """Event id of each of `needed`'s source."""
    mentioned: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """Text of a recorded message -> the facts that it mentions."""
    compared_with: str = ""
    """The conversation whose history was the chance control; empty without one."""
    chance: tuple[ChanceCount, ...] = ()


# --- one conversation as texts --------------------------------------------------------------------------


@dataclass(slots=True)
class _Text:
    """A recorded message: who said it, in which round."""

    role: str
    round: int
    event: int
    mentions: Mentions
    text: str
    n_prose: int
    """Characters of it that aren't arguments of tool calls."""


class RecordedTexts:
    """A recorded conversation as texts in rounds; a round is a user turn, or an assistant call with its results."""

    def __init__(self, conversation: Conversation) -> None:
        self.conversation = conversation
        self.texts: list[_Text] = []
        self._answer_texts: dict[str, list[_Text]] = {}
        number = -1
        for place, event in enumerate(conversation.events):
            if is_human(event) or is_answer(event) or number < 0:
                number += 1
            role = _role(event)
            for message in event.messages:
                text = said(message)
                self.texts.append(_Text(role, number, place, Mentions(text), text, len(message.content)))
            if is_answer(event):
                self._answer_texts[event.id] = self.texts[len(self.texts) - len(event.messages) :]

    @cached_property
    def answers(self) -> list[tuple[int, int, list[Candidate]]]:
        """`(call, round, candidates)` of each recorded answer."""
        texts = [self._answer_texts[call.event.id] for call in self.conversation.calls]
        return [(call, own[0].round, list(_answer_candidates(own))) for call, own in enumerate(texts)]

    @cached_property
    def declared(self) -> Mentions:
        """What every request says anyway: instruction and tools."""
        return Mentions(f"{self.conversation.instruction}\n{tools_text(self.conversation.tools)}")


def _role(event: Event) -> str:
    if is_human(event):
        return USER
    if is_tool_round(event):
        return TOOL
    return SYSTEM if is_system(event) else ASSISTANT


def _answer_candidates(texts: Iterable[_Text]) -> Iterator[Candidate]:
    """Candidates of an answer; a quote in arguments is syntax, and no fact."""
    for text in texts:
        for one in text.mentions.candidates:
            if one.kind != QUOTED or one.end <= text.n_prose:
                yield one


# --- what is needed -------------------------------------------------------------------------------------


class _Use(NamedTuple):
    """A candidate of an answer, with what it may stand for in a history."""

    call: int
    round: int
    candidate: Candidate


@dataclass(slots=True)
class _Places:
    """Where a history mentions one fact."""

    first: _Text
    rounds: list[int] = field(default_factory=list)


def needed_facts(recorded: RecordedTexts, counts: TermCounts, *, other: RecordedTexts | None = None) -> NeededFacts:
    """The needed facts of a conversation.

    Args:
        counts: Of the corpus that the conversation belongs to.
        other: Another conversation; without one there is no chance control.
    """
    uses, finder, found = _search(recorded, recorded, counts)
    known: dict[tuple[str, str], int] = {}
    facts: list[Candidate] = []
    needed: list[NeededFact] = []
    ids: list[str] = []
    old_index: list[int] = []
    for use, index, place in _needed(uses, finder, found, recorded):
        one = finder.candidates[index]
        if (one.kind, one.key) not in known:
            known[one.kind, one.key] = len(facts)
            facts.append(one)
            old_index.append(index)
        needed.append(NeededFact(use.call, known[one.kind, one.key], place.event, place.role))
        ids.append(recorded.conversation.events[place.event].id)
    new_index = {old: new for new, old in enumerate(old_index)}
    mentioned = {
        text.text: frozenset(new_index[old] for old in held if old in new_index)
        for text, held in zip(recorded.texts, found, strict=True)
    }
    chance = _chance(recorded, other, counts, [facts[one.fact].kind for one in needed]) if other else ()
    return NeededFacts(
        facts=tuple(facts),
        needed=tuple(needed),
        source_ids=tuple(ids),
        mentioned=mentioned,
        compared_with=other.conversation.id if other else "",
        chance=chance,
    )


def _chance(
    recorded: RecordedTexts, other: RecordedTexts, counts: TermCounts, kinds: Sequence[str]
) -> tuple[ChanceCount, ...]:
    """WB-RET-01b: the same answers against another conversation's history."""
    uses, finder, found = _search(recorded, other, counts)
    by_chance = [finder.candidates[index].kind for _, index, _ in _needed(uses, finder, found, recorded, history=other)]
    return tuple(ChanceCount(kind, kinds.count(kind), by_chance.count(kind)) for kind in sorted({*kinds, *by_chance}))


def _search(
    recorded: RecordedTexts, history: RecordedTexts, counts: TermCounts
) -> tuple[list[_Use], CandidateFinder, list[frozenset[int]]]:
    """What the answers may need of a history, and which of it each of its texts mentions."""
    uses = list(_uses(recorded, history, counts))
    unique = {(use.candidate.kind, use.candidate.key): use.candidate for use in reversed(uses)}
    finder = CandidateFinder(unique.values())
    return uses, finder, [finder.found_in(text.mentions) for text in history.texts]


def _uses(recorded: RecordedTexts, history: RecordedTexts, counts: TermCounts) -> Iterator[_Use]:
    """The candidates of the answers, CJK runs cut to what they share with what was said well before."""
    earlier = EarlierText()
    at = 0
    for call, number, found in recorded.answers:
        while at < len(history.texts) and history.texts[at].round < _oldest_recent(number):
            earlier.add(history.texts[at].text)
            at += 1
        for one in found:
            if one.kind == CJK:
                term = earlier.longest_common_run(one.key)
                if len(term) >= MIN_CJK_CHARS and not is_repetition(term) and counts.is_rare(term):
                    yield _Use(call, number, one._replace(value=term, key=term))
            elif one.kind != HANGUL or counts.is_rare(one.key):
                yield _Use(call, number, one)


def _needed(
    uses: Iterable[_Use],
    finder: CandidateFinder,
    found: Sequence[frozenset[int]],
    recorded: RecordedTexts,
    *,
    history: RecordedTexts | None = None,
) -> Iterator[tuple[_Use, int, _Text]]:
    """Uses of what was said before the previous round and in none of the last two, each once per call."""
    places: dict[int, _Places] = {}
    for text, held in zip((history or recorded).texts, found, strict=True):
        for index in held:
            known = places.setdefault(index, _Places(text))
            if not known.rounds or known.rounds[-1] != text.round:
                known.rounds.append(text.round)
    declared = finder.found_in(recorded.declared)
    index_of = {(one.kind, one.key): index for index, one in enumerate(finder.candidates)}
    told: set[tuple[int, str]] = set()
    for use in uses:
        one = use.candidate
        index = index_of[one.kind, one.key]
        place = places.get(index)
        if place is None or index in declared or (use.call, one.key) in told:
            continue
        oldest_recent = _oldest_recent(use.round)
        if place.rounds[0] >= oldest_recent:
            continue
        at = bisect_left(place.rounds, oldest_recent)
        if at < len(place.rounds) and place.rounds[at] < use.round:
            continue
        if _may_be_needed(one, place.first):
            told.add((use.call, one.key))
            yield use, index, place.first


def _oldest_recent(number: int) -> int:
    return number - RECENT_ROUNDS + 1


def _may_be_needed(one: Candidate, introduced_in: _Text) -> bool:
    """A name is one where it comes from, too: "Return Flight" in a heading isn't, behind "my return flight"."""
    if one.kind == NAME:
        return introduced_in.role != ASSISTANT and one.value in normalised(introduced_in.text)[0]
    if one.kind in (AMOUNT, TIME) and sum(map(str.isdigit, one.value)) < _MIN_DIGITS:
        return introduced_in.role == USER
    return True
