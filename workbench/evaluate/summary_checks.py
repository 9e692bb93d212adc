"""Checks of summaries that need no model (WB-RET-04).

In: a recorded conversation and the `summaries` rows of its replay. Out: for each written summary whether it keeps
the word limit and the language, says nothing that it can't know, and is a summary at all: no tool call, no answer
to the last request, no plea for a conversation, none of the forbidden strings. Pure.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from workbench.facts import (
    AMOUNT,
    DATE,
    IDENTIFIER,
    NUMBER,
    PHONE,
    TIME,
    Candidate,
    CandidateFinder,
    Mentions,
    candidates,
    folded,
    words,
)
from workbench.facts.scripts import HAN, KANA, SYLLABLE
from workbench.recordings.types import Conversation, is_answer
from workbench.replay.cache import tools_text
from workbench.replay.needed import said, said_by
from workbench.session.types import Event

_WITH_NUMBERS: Final = frozenset({PHONE, DATE, TIME, AMOUNT, NUMBER, IDENTIFIER})
_TOOL_CALL: Final = re.compile(
    r"""<tool_call>|<function[=_]|<invoke\b|```tool_code|["'](?:tool_calls|function_call)["']\s*:"""
    r"""|["']name["']\s*:\s*["'][^"'\n]{1,80}["']\s*,\s*["'](?:arguments|parameters|input)["']\s*:"""
)
# How answers begin, and summaries don't.
_ANSWER_OPENING: Final = re.compile(
    r"\s*(?:(?:sure|certainly|of course|absolutely|i'd be happy|i'll|let me|thank you for|sorry)\b"
    r"|好的|当然可以|當然可以|没问题|沒問題|您好|你好|抱歉|请问|請問"
    r"|かしこまりました|承知(?:いたし|し)ました|はい[、。]|申し訳|お問い合わせありがとう"
    r"|네[,. ]|알겠습니다|물론|안녕하세요|죄송합니다)",
    re.IGNORECASE,
)
# A model without a conversation in front of it, or without the will, asks for one or declines.
_REFUSAL: Final = re.compile(
    r"(?:please|could you|can you|kindly|need you to)\b.{0,40}\b(?:provide|share|paste|send|supply)\b.{0,40}"
    r"\b(?:conversation|dialogue|transcript|chat (?:history|log)|(?:text|content) to summari[sz]e)\b"
    r"|\b(?:no|don't see (?:a|any)|there is no|without (?:a|any))\s+(?:conversation|dialogue|transcript|messages)\b"
    r".{0,40}\b(?:provided|given|to summari[sz]e)\b"
    r"|\bi(?:'m| am)? (?:can't|cannot|can not|unable to|not able to)\b.{0,20}\b(?:summari[sz]e|comply)\b"
    r"|(?:请|請)(?:您|你|先)?(?:提供|给出|給出|发送|發送|粘贴|貼上|输入|輸入).{0,20}(?:对话|對話|内容|內容|文本|聊天记录)"
    r"|(?:没有|沒有|未)(?:看到|收到|提供)?.{0,10}(?:需要|可以|可供)?(?:总结|總結|摘要)的(?:对话|對話|内容|內容|文本)"
    r"|(?:无法|無法|不能)(?:为您|為您)?(?:总结|總結|提供摘要|生成摘要)"
    r"|(?:会話|対話|内容|テキスト).{0,12}(?:提供|送信|入力|共有|貼り付け).{0,6}(?:ください|お願い)"
    r"|要約(?:すること)?(?:は|が)?(?:できません|いたしかねます)"
    r"|(?:대화|내용|텍스트).{0,12}(?:제공|공유|입력|보내).{0,6}(?:주세요|주십시오|주시면|주시기)"
    r"|요약(?:할|해 드릴) 수 없",
    re.IGNORECASE,
)
_MAX_REFUSAL_WORDS: Final = 80
"""A longer text that has such words in it tells of somebody who asked for something."""
_REFUSAL_CHARS: Final = 200
"""Who asks or declines does so at once."""
_SENTENCE_END: Final = re.compile(r"[.!?](?=\s|$)|[。！？\n]")
_MIN_ANSWER_CHARS: Final = 20
"""Shorter texts are alike by chance."""
_MIN_ANSWER_SHARE: Final = 0.8
"""A text with so much of it in an answer is that answer; one with less only mentions it."""
_PIECE: Final = 5
"""Characters; texts are compared by their pieces of this length, so that a changed word costs little."""
_SHOWN_CHARS: Final = 80
_LETTERS: Final = {
    "ja": re.compile("[\u3041-\u309f\u30a1-\u30fa]"),
    "ko": re.compile(f"[{SYLLABLE}]"),
    "zh": re.compile(f"[{HAN}]"),
    "latin": re.compile(rf"[^\W\d_{HAN}{KANA}{SYLLABLE}]+"),
}
_MIN_KANA_SHARE: Final = 0.1
_MIN_SHARE: Final = 0.25
"""A language with this share of a conversation is one of its languages."""


@dataclass(frozen=True, slots=True)
class SummaryCheckResult:
    """What the checks say of one written summary."""

    summary: int
    """Index of its row."""
    words: int
    max_words: int | None
    """The word limit; None where none is set."""
    has_tool_call: bool
    answer: str
    """What shows that it is an answer to the last request, with its words; empty for a summary."""
    is_refusal: bool
    """It asks for a conversation to summarise, or declines to."""
    numbers: int
    """Numbers, dates, times, amounts and identifiers with digits in it."""
    invented: tuple[str, ...]
    """Those that nothing before its boundary says."""
    language: str
    """Of the summary: zh, ja, ko, latin; empty for a text without letters."""
    languages: tuple[str, ...]
    """Of the conversation up to its boundary, the commonest first."""
    forbidden: tuple[str, ...]
    """Forbidden strings that it holds."""

    @property
    def answers_the_request(self) -> bool:
        """It begins as an answer does, or is the recorded answer to the last request, or nearly so."""
        return bool(self.answer)

    @property
    def keeps_limit(self) -> bool:
        return self.max_words is None or self.words <= self.max_words

    @property
    def keeps_language(self) -> bool:
        return not self.language or not self.languages or self.language in self.languages

    @property
    def faults(self) -> tuple[str, ...]:
        """Names of the checks that it doesn't pass."""
        found = {
            "too_long": not self.keeps_limit,
            "tool_call": self.has_tool_call,
            "answer": self.answers_the_request,
            "refusal": self.is_refusal,
            "invented_numbers": bool(self.invented),
            "language": not self.keeps_language,
            "forbidden": bool(self.forbidden),
        }
        return tuple(name for name, is_fault in found.items() if is_fault)


def check_summaries(
    conversation: Conversation,
    rows: Iterable[Mapping[str, Any]],
    *,
    max_words: int | None = None,
    forbidden: Sequence[str] = (),
) -> list[SummaryCheckResult]:
    """Check the written summaries of one conversation.

    Args:
        rows: `summaries` rows of this conversation; failed attempts and copies are passed over.
        max_words: The limit that the summary model was given; none or 0 = no limit.
        forbidden: Strings that no summary may hold, compared without regard to case.
    """
    written = [row for row in rows if row["status"] == "written"]
    numbered = [[one for one in candidates(row["text"]) if _has_number(one)] for row in written]
    finder = CandidateFinder({(one.kind, one.key): one for found in numbered for one in found}.values())
    index_of = {(one.kind, one.key): index for index, one in enumerate(finder.candidates)}
    source = _Source(conversation, finder)
    results = []
    for row, found in zip(written, numbered, strict=True):
        known, languages = source.up_to(row["boundary_event_id"])
        invented = dict.fromkeys(one.value for one in found if index_of[one.kind, one.key] not in known)
        text = row["text"]
        results.append(
            SummaryCheckResult(
                summary=row["summary"],
                words=words(text),
                max_words=max_words or None,
                has_tool_call=_TOOL_CALL.search(text) is not None,
                answer=_answer_in(text, source, row["boundary_event_id"]),
                is_refusal=_is_refusal(text),
                numbers=len({(one.kind, one.key) for one in found}),
                invented=tuple(invented),
                language=next(iter(languages_of(text)), ""),
                languages=languages,
                forbidden=tuple(one for one in forbidden if folded(one) in folded(text)),
            )
        )
    return results


def invented_number_rate(results: Iterable[SummaryCheckResult]) -> float | None:
    """Invented numbers of all numbers in summaries; None without any."""
    results = list(results)
    numbers = sum(one.numbers for one in results)
    return sum(len(one.invented) for one in results) / numbers if numbers else None


def _has_number(one: Candidate) -> bool:
    return one.kind in _WITH_NUMBERS and any(map(str.isdigit, one.value))


def _answer_in(text: str, source: _Source, boundary: str | None) -> str:
    """Why a text is an answer instead of a summary, in words; empty when nothing shows it.

    A summary may mention what is answered next, and may quote: words that were said before its boundary are no proof.
    """
    if _ANSWER_OPENING.match(text):
        opening = _opening(text)
        quoted = folded(opening)
        if not any(quoted in folded(earlier) for earlier in source.said_before(boundary)):
            return f"it begins as an answer does: {_shown(opening)}"
    recorded = source.next_answer(boundary)
    if _is_nearly(text, recorded) and not any(_is_nearly(text, one) for one in source.said_before(boundary)):
        return f"it is nearly the recorded answer: {_shown(recorded)}"
    return ""


def _opening(text: str) -> str:
    """The first sentence; with those after it where it's short."""
    text = text.strip()
    ends = (found.end() for found in _SENTENCE_END.finditer(text))
    return text[: next((end for end in ends if end >= _MIN_ANSWER_CHARS), len(text))]


def _is_nearly(text: str, other: str) -> bool:
    """Nearly all of a text is in another one."""
    if len(other) < _MIN_ANSWER_CHARS:
        return False
    pieces = _pieces(text)
    n_pieces = pieces.total()
    return n_pieces > 0 and (pieces & _pieces(other)).total() >= _MIN_ANSWER_SHARE * n_pieces


def _pieces(text: str) -> Counter[str]:
    text = folded(text)
    if len(text) < _MIN_ANSWER_CHARS:
        return Counter()
    return Counter(text[place : place + _PIECE] for place in range(len(text) - _PIECE + 1))


def _shown(text: str) -> str:
    """The beginning of a text, on one line."""
    line = " ".join(text.split())
    return f"“{line if len(line) <= _SHOWN_CHARS else f'{line[:_SHOWN_CHARS]}…'}”"


def _is_refusal(text: str) -> bool:
    return words(text) <= _MAX_REFUSAL_WORDS and _REFUSAL.search(text[:_REFUSAL_CHARS]) is not None


class _Source:
    """What a conversation says up to each of its events; boundaries only move on, so each event is read once."""

    def __init__(self, conversation: Conversation, finder: CandidateFinder) -> None:
        self._events = conversation.events
        self._places = {event.id: place for place, event in enumerate(conversation.events)}
        self._finder = finder
        declared = Mentions(f"{conversation.instruction}\n{tools_text(conversation.tools)}")
        self._known = set(finder.found_in(declared))
        self._letters: Counter[str] = Counter()
        self._end = 0

    def up_to(self, boundary: str | None) -> tuple[set[int], tuple[str, ...]]:
        """Found candidates and languages of everything up to a boundary, or of all without one."""
        end = self._places.get(boundary or "", len(self._events) - 1) + 1
        for event in self._events[self._end : end]:
            text = said_by(event)
            self._known |= self._finder.found_in(Mentions(text))
            self._letters.update(_letters(text))
        self._end = max(self._end, end)
        return self._known, _common(self._letters)

    def said_before(self, boundary: str | None) -> Iterator[str]:
        """What each event up to a boundary says, or each of all without one."""
        end = self._places.get(boundary or "", len(self._events) - 1) + 1
        return map(said_by, self._events[:end])

    def next_answer(self, boundary: str | None) -> str:
        """The next recorded answer in words that comes after a boundary; tool calls are none. Empty without one."""
        place = self._places.get(boundary or "", len(self._events))
        answers = (_in_words(event) for event in self._events[place + 1 :] if is_answer(event))
        return next(filter(None, answers), "")


def _in_words(event: Event) -> str:
    """What an event says beside its tool calls."""
    return "\n".join(said(replace(message, tool_calls=())) for message in event.messages).strip()


# --- languages ------------------------------------------------------------------------------------------


def languages_of(text: str) -> tuple[str, ...]:
    """The languages that a quarter or more of a text is in: zh, ja, ko, or latin for all with Latin letters."""
    return _common(_letters(text))


def _letters(text: str) -> Counter[str]:
    """Letters of each script; a Latin word counts as one, as a Han character does."""
    return Counter({name: sum(1 for _ in pattern.finditer(text)) for name, pattern in _LETTERS.items()})


def _common(letters: Mapping[str, int]) -> tuple[str, ...]:
    counts = Counter(letters)
    if counts["ja"] > _MIN_KANA_SHARE * (counts["ja"] + counts["zh"]):  # Japanese is written with Han characters too
        counts["ja"] += counts.pop("zh", 0)
    else:
        counts["zh"] += counts.pop("ja", 0)
    total = sum(counts.values())
    return tuple(name for name, n in counts.most_common() if n and n >= _MIN_SHARE * total)
