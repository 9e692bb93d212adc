"""A summary source that needs no network: it picks facts and sentences out of the request (WB-RPL-07a).

In: a summary request, of which only the text is read. Out: a ledger of facts by class, then sentences in
their order with who said them, within the word limit. The same request gives the same text; it knows nothing
of later calls and keeps nothing between calls. Time is linear in the text, but for sorting.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from workbench.call import CallContext
from workbench.errors import ConfigError
from workbench.facts import (
    CJK,
    KINDS,
    QUOTED,
    Candidate,
    EarlierText,
    argument_values,
    candidates,
    cut_to_words,
    key_of,
    keys_mentioned,
    words,
)
from workbench.model.request_text import CALL, SUMMARY, Block, conversation_of, word_limit
from workbench.model.types import ASSISTANT, TOOL, USER, Choice, Message, Request, Response

DEFAULT_MAX_WORDS = 200
DEFAULT_LEDGER_SHARE = 0.25

# How much a fact of a class is worth: what can't be guessed again counts most.
_CLASS_WEIGHT = {
    "identifier": 3.0, "email": 3.0, "phone": 3.0, "path": 2.5, "file": 2.0, "url": 2.0, "date": 2.0, "amount": 2.0,
    "name": 2.0, "time": 1.5, "number": 1.5, "quoted": 1.0, "cjk": 1.0, "code": 1.0, "hangul": 0.5,
}  # fmt: skip
_PER_FURTHER_ROUND = 0.7
_OLDEST, _NEWEST = 0.6, 1.4
_ROLE_VALUE = {USER: 0.5, ASSISTANT: 0.2, SUMMARY: 0.4}
_CUE_VALUE = 2.0
_UNIT_RECENCY = 0.4
_LENGTH_POWER = 0.8
_MAX_UNIT_WORDS = 40
# Greetings and thanks aren't worth a line: so long must be a sentence that has neither fact nor cue.
_MIN_PLAIN_WORDS = 4
# Code and JSON run on without spaces: so many characters count as a word at least when units are chosen.
_CHARS_PER_WORD = 16
_MAX_LEDGER_CHARS = 80

# A point ends a sentence, but not after the number of a list's item, an initial or in e.g.
_UNIT_END = re.compile(
    r"[。！？!?\n.](?:(?<=\.)(?<!\b\d\.)(?<!\b\d\d\.)(?<!\.\w\.)(?<!\b[A-Z]\.)(?=\s)|(?<=\n)\n*|(?<=[。！？!?])[。！？!?]*[”」』)）]?)"
)
_ENDS_WITHOUT_SPACE = "。！？，、；"
_COMMA = re.compile(r"[,，、;；](?!\d)")
_CUE = re.compile(
    r"决定|決定|确认|確認|同意|选择|选定|改成|改为|取消|必须|不要|待办|下一步|需要|希望|预订|预定|就这|最终|结论"
    r"|決め|にします|にしましょう|お願いし|予定|必要|しないで|変更|予約|結論|次は"
    r"|결정|확인|하기로|해\s?주세요|필요|예정|변경|취소|예약|하지\s?마|다음\s?단계"
    r"|\b(?:decid\w*|agreed?|confirm\w*|prefer\w*|must|need(?:s|ed)? to|want(?:s|ed)? to|would like|let's|instead|cancel\w*"
    r"|don't|do not|never|only if|todo|next step|root cause|because|the (?:fix|issue|problem|error) is|fixed|failed)\b",
    re.IGNORECASE,
)
_LEDGER_LINE = re.compile(rf"^({'|'.join(KINDS)}): (.+)$", re.MULTILINE)


@dataclass(slots=True)
class _Fact:
    """One fact of the source and what speaks for it."""

    value: str
    kind: str
    key: str
    place: int
    """Where it was said first."""
    keys: tuple[str, ...]
    """All that it makes known."""
    last_round: int = -1
    n_rounds: int = 0
    by_user: bool = False
    by_assistant: bool = False
    score: float = 0.0

    def said(self, role: str, round_number: int) -> None:
        if round_number != self.last_round:
            self.n_rounds += 1
            self.last_round = round_number
        # A summary no longer tells how often and by whom; what it kept was mostly said by both, and more than once.
        self.n_rounds += role == SUMMARY
        self.by_user = self.by_user or role in {USER, SUMMARY}
        self.by_assistant = self.by_assistant or role in {ASSISTANT, CALL, SUMMARY}


@dataclass(slots=True)
class _Unit:
    """A sentence, or a part of a long one."""

    text: str
    block: int
    n_words: int
    value: float = 0.0
    """Worth apart from facts."""
    facts: dict[str, _Fact] = field(default_factory=dict)

    def rank(self, told: set[str]) -> float:
        """Worth per word, facts in `told` not counted."""
        new = sum(fact.score for key, fact in self.facts.items() if key not in told)
        return float((new + self.value) / (self.n_words + 1) ** _LENGTH_POWER)  # 1 for who said it


class ExtractiveModel:
    """Answers a summary request with facts and sentences of its own text; see the module's text.

    Args:
        max_words: Limit for requests that name none.
        ledger_share: Share of the limit that the ledger may take, 0 to 1.
        context_window: Tokens; 0 = unknown.
    """

    def __init__(
        self,
        max_words: int = DEFAULT_MAX_WORDS,
        ledger_share: float = DEFAULT_LEDGER_SHARE,
        name: str = "extractive",
        *,
        context_window: int = 0,
    ) -> None:
        if isinstance(max_words, bool) or max_words < 1:
            raise ConfigError.for_field("max_words", max_words, "a whole number above 0")
        if not 0 <= ledger_share <= 1:
            raise ConfigError.for_field("ledger_share", ledger_share, "0 to 1")
        self.max_words = max_words
        self.ledger_share = ledger_share
        self.name = name
        self.context_window = context_window

    async def generate(self, ctx: CallContext, request: Request) -> AsyncIterator[Response]:
        limit = word_limit(request) or self.max_words
        text = summary_text(conversation_of(request), limit, ledger_share=self.ledger_share)
        yield answer_of(self.name, text)


def answer_of(model: str, text: str) -> Response:
    """A summary as the answer of a model."""
    message = Message(role=ASSISTANT, content=text)
    return Response(id=model, model=model, choices=(Choice(message, finish_reason="stop"),))


def summary_text(blocks: Sequence[Block], max_words: int, *, ledger_share: float = DEFAULT_LEDGER_SHARE) -> str:
    """A summary of at most `max_words` words; empty only when nothing was said."""
    source = _Source.of(blocks)
    facts, places = _facts_of(source)
    units = _units_of(source, places)
    ledger = _ledger(facts, int(max_words * ledger_share))
    lines = _ledger_lines(ledger)
    told = {key for fact in ledger for key in fact.keys}
    chosen = _chosen_units(source, units, told, max_words - words("\n".join(lines)))
    lines += _unit_lines(source, chosen)
    return "\n".join(lines) or _newest_words(source, max_words)


@dataclass(frozen=True, slots=True)
class _Source:
    """The conversation as one text, so that facts are looked for once; block i is `text[starts[i]:ends[i]]`."""

    text: str
    blocks: tuple[Block, ...]
    starts: tuple[int, ...]
    ends: tuple[int, ...]
    ledger: tuple[Candidate, ...]
    """Facts in the ledger of the previous summary, whose lines aren't part of `text`."""

    @classmethod
    def of(cls, blocks: Sequence[Block]) -> _Source:
        texts: list[str] = []
        starts: list[int] = []
        ledger: list[Candidate] = []
        length = 0
        for block in blocks:
            text = block.text
            if block.role == SUMMARY:
                ledger += _old_facts(text)
                text = _LEDGER_LINE.sub("", text)
            elif block.role == CALL:
                text = argument_values(text)
            starts.append(length)
            texts.append(text)
            length += len(text) + 1
        ends = (start + len(text) for start, text in zip(starts, texts, strict=True))
        return cls("\n".join(texts), tuple(blocks), tuple(starts), tuple(ends), tuple(ledger))

    def text_of(self, number: int) -> str:
        return self.text[self.starts[number] : self.ends[number]]


def _old_facts(summary: str) -> Iterator[Candidate]:
    """The facts in the ledger lines of a previous summary."""
    for line in _LEDGER_LINE.finditer(summary):
        for value in map(str.strip, line[2].split(", ")):
            if key := key_of(line[1], value):
                yield Candidate(value, line[1], 0, 0, key)


# --- facts ----------------------------------------------------------------------------------------------------

_Place = tuple[int, int, _Fact]
"""Start and end of where a fact is said, and the fact; lists of them are in order of place."""


def _round_numbers(blocks: Iterable[Block]) -> list[int]:
    """The round of each block: a user turn or an assistant call; results belong to their call (WB-RET-01a)."""
    numbers: list[int] = []
    number, last = -1, ""
    for block in blocks:
        speaker = ASSISTANT if block.role == CALL else block.role
        if not numbers or speaker == USER or (speaker == ASSISTANT and last != ASSISTANT):
            number += 1
        numbers.append(number)
        last = speaker
    return numbers


def _candidates_by_block(source: _Source) -> Iterator[list[Candidate]]:
    """The candidates of each block. Quotes in code and JSON are syntax; a CJK run also gives what it shares
    with earlier blocks."""
    found = candidates(source.text)
    earlier = EarlierText()
    seen: set[str] = set()
    at = 0
    for number, block in enumerate(source.blocks):
        inside: list[Candidate] = []
        while at < len(found) and found[at].start < source.ends[number]:
            one = found[at]
            at += 1
            if one.kind == QUOTED and block.role in (CALL, TOOL):
                continue
            inside.append(one)
            if one.kind == CJK and one.key not in seen:
                shared = earlier.longest_common_run(one.key)
                if shared and shared != one.key:
                    start = one.start + one.key.find(shared)
                    inside.append(Candidate(shared, CJK, start, start + len(shared), shared))
        seen.update(one.key for one in inside)
        earlier.add(source.text_of(number))
        yield inside


def _facts_of(source: _Source) -> tuple[list[_Fact], list[_Place]]:
    """All facts with their scores, and the places where they are said."""
    facts: dict[str, _Fact] = {}
    places: list[_Place] = []
    rounds = _round_numbers(source.blocks)

    def fact_of(one: Candidate) -> _Fact:
        if (fact := facts.get(one.key)) is None:
            fact = facts[one.key] = _Fact(one.value, one.kind, one.key, one.start, keys_mentioned(one))
        return fact

    for one in source.ledger:
        fact_of(one).said(SUMMARY, 0)
    for block, found, round_number in zip(source.blocks, _candidates_by_block(source), rounds, strict=True):
        for one in found:
            fact = fact_of(one)
            fact.said(block.role, round_number)
            places.append((one.start, one.end, fact))
    last_round = max(rounds, default=0)
    for fact in facts.values():
        fact.score = (
            _CLASS_WEIGHT[fact.kind]
            * (1 + _PER_FURTHER_ROUND * (fact.n_rounds - 1))
            * (1 + fact.by_user + fact.by_assistant)
            * (_OLDEST + (_NEWEST - _OLDEST) * (fact.last_round / last_round if last_round else 1.0))
        )
    return list(facts.values()), places


# --- ledger ---------------------------------------------------------------------------------------------------


def _ledger(facts: list[_Fact], max_words: int) -> list[_Fact]:
    """The best facts by score per word that the ledger has room for, in order of place."""
    ranked = sorted(facts, key=lambda fact: (-fact.score / words(fact.value) ** _LENGTH_POWER, fact.place, fact.key))
    kinds: set[str] = set()
    told: set[str] = set()
    chosen: list[_Fact] = []
    for fact in ranked:
        if fact.key in told or not _fits_in_a_list(fact):
            continue
        cost = words(f"{_listed(fact)},") + (fact.kind not in kinds)
        if cost <= max_words:
            max_words -= cost
            kinds.add(fact.kind)
            told.update(fact.keys)
            chosen.append(fact)
    return sorted(chosen, key=lambda fact: (fact.place, fact.key))


def _fits_in_a_list(fact: _Fact) -> bool:
    """Can be read back from a ledger line."""
    value = _listed(fact)
    return len(value) <= _MAX_LEDGER_CHARS and ", " not in value and key_of(fact.kind, value) == fact.key


def _listed(fact: _Fact) -> str:
    return " ".join(fact.value.replace(", ", " ").split())


def _ledger_lines(ledger: list[_Fact]) -> list[str]:
    lines = ((kind, ", ".join(_listed(fact) for fact in ledger if fact.kind == kind)) for kind in KINDS)
    return [f"{kind}: {values}" for kind, values in lines if values]


# --- sentences ------------------------------------------------------------------------------------------------


def _units_of(source: _Source, places: list[_Place]) -> list[_Unit]:
    """The sentences worth telling, in order, each with the facts that it says."""
    n_blocks = len(source.blocks)
    units: list[_Unit] = []
    at = 0
    for number, block in enumerate(source.blocks):
        for start, end in _sentences(source.text, source.starts[number], source.ends[number]):
            text = source.text[start:end]
            unit = _Unit(text, number, _weight(text))
            while at < len(places) and places[at][0] < end:
                fact_start, fact_end, fact = places[at]
                if fact_start >= start and fact_end <= end:
                    unit.facts[fact.key] = fact
                at += 1
            has_cue = bool(_CUE.search(text))
            if unit.facts or has_cue or (block.role in _ROLE_VALUE and unit.n_words >= _MIN_PLAIN_WORDS):
                unit.value = (
                    _ROLE_VALUE.get(block.role, 0.0) + _CUE_VALUE * has_cue + _UNIT_RECENCY * (number + 1) / n_blocks
                )
                units.append(unit)
    return units


def _weight(text: str) -> int:
    """Words, but long strings without spaces count as several."""
    return max(words(text), len(text) // _CHARS_PER_WORD)


def _sentences(text: str, start: int, block_end: int) -> Iterator[tuple[int, int]]:
    """Places of a block's sentences; a sentence over 40 words is cut at commas."""
    ends = [match.end() for match in _UNIT_END.finditer(text, start, block_end)]
    for end in [*ends, block_end]:
        if any(char.isalnum() for char in text[start:end]):
            yield from _parts(text, *_trimmed(text, start, end))
        start = end


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    piece = text[start:end]
    return start + len(piece) - len(piece.lstrip()), start + len(piece.rstrip())


def _parts(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    if _weight(text[start:end]) <= _MAX_UNIT_WORDS:
        yield start, end
        return
    part_start, part_words, last = start, 0, start
    for cut in [*(match.end() for match in _COMMA.finditer(text, start, end)), end]:
        n_words = _weight(text[last:cut])
        if part_words and part_words + n_words > _MAX_UNIT_WORDS:
            yield _trimmed(text, part_start, last)
            part_start, part_words = last, 0
        part_words += n_words
        last = cut
    yield _trimmed(text, part_start, end)


def _chosen_units(source: _Source, units: list[_Unit], told: set[str], room: int) -> list[_Unit]:
    """The best sentences that fit into `room` words, in order; facts in `told` are no longer new.

    A sentence's rank only falls while others are chosen, so one is looked at again only when it leads.
    """
    heap = [(-unit.rank(told), i) for i, unit in enumerate(units) if unit.n_words <= room]
    heapq.heapify(heap)
    chosen: list[int] = []
    labelled: set[int] = set()
    texts: set[str] = set()
    while heap and room > 0:
        negative_rank, i = heapq.heappop(heap)
        unit = units[i]
        rank = unit.rank(told)
        if rank < -negative_rank:
            heapq.heappush(heap, (-rank, i))
            continue
        has_label = bool(source.blocks[unit.block].label) and unit.block not in labelled
        if unit.n_words + has_label <= room and unit.text not in texts:
            room -= unit.n_words + has_label
            labelled.add(unit.block)
            texts.add(unit.text)
            chosen.append(i)
            told.update(key for fact in unit.facts.values() for key in fact.keys)
    return [units[i] for i in sorted(chosen)]


def _unit_lines(source: _Source, units: list[_Unit]) -> list[str]:
    """One line for what is told of a block, with who said it."""
    lines: dict[int, str] = {}
    for unit in units:
        text = " ".join(unit.text.split())
        if told := lines.get(unit.block):
            lines[unit.block] = told + ("" if told[-1] in _ENDS_WITHOUT_SPACE else " ") + text
        else:
            label = source.blocks[unit.block].label
            lines[unit.block] = f"{label}: {text}" if label else text
    return list(lines.values())


def _newest_words(source: _Source, max_words: int) -> str:
    """What is left to say when no sentence fits: the beginning of the newest block."""
    texts = (cut_to_words(source.text_of(number).strip(), max_words) for number in reversed(range(len(source.blocks))))
    return next((text for text in texts if text), "")
