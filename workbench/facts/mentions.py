"""Questions about candidates: does a text mention one, what does it share with earlier text, how rare is it.

In: texts, candidates, and for rarity a corpus, always as an argument. Out: yes or no, or a run of characters.
Implements the equality, the common runs and the rarity of WB-RET-01a.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable, Iterator
from typing import Any, Final

from workbench.facts.candidates import (
    CODE,
    HANGUL,
    IDENTIFIER,
    PARSED_KINDS,
    Candidate,
    candidates,
    hangul_stem,
    keys_mentioned,
)
from workbench.facts.scripts import HANGUL_RUN, IS_LETTER, MIN_CJK_CHARS, ONE_TO_ONE, TERM_RUN, folded


class Mentions:
    """What one text mentions, for many questions about the same text.

    A candidate is there when its spelling is, between boundaries (100 isn't in 1000), or when the text says
    the same date, time, amount, number or phone number in another spelling.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._folded = folded(text)
        self._candidates: tuple[Candidate, ...] | None = None
        self._keys: frozenset[str] | None = None

    @property
    def folded(self) -> str:
        """The text as plain strings are compared with it."""
        return self._folded

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """The text's own candidates, in order of place."""
        if self._candidates is None:
            self._candidates = tuple(candidates(self._text))
        return self._candidates

    @property
    def keys(self) -> frozenset[str]:
        """Keys of everything that the text's own candidates make known."""
        if self._keys is None:
            self._keys = frozenset(key for one in self.candidates for key in keys_mentioned(one))
        return self._keys

    def __contains__(self, candidate: Candidate) -> bool:
        needle = folded(candidate.value)
        if _holds(self._folded, needle, candidate.kind):
            return True
        # Another spelling, or one that runs into the next word.
        return (candidate.kind in PARSED_KINDS or needle in self._folded) and candidate.key in self.keys


# A line end in JSON text ends with a letter.
_ESCAPES = frozenset(["\\n", "\\r", "\\t"])


def contains(text: str, candidate: Candidate) -> bool:
    """True when `text` mentions the candidate, in this or an equal spelling (WB-RET-01a)."""
    return candidate in Mentions(text)


def _holds(text: str, needle: str, kind: str) -> bool:
    at = text.find(needle) if needle else -1
    while at >= 0:
        if _is_bounded(text, at, at + len(needle), kind):
            return True
        at = text.find(needle, at + 1)
    return False


def _is_bounded(text: str, start: int, end: int, kind: str) -> bool:
    before, after = text[start - 1 : start], text[end : end + 1]
    first, last = text[start], text[end - 1]
    if kind == HANGUL:  # particles follow without a space, so only the left side is a boundary
        return not HANGUL_RUN.match(before)
    if text[start - 2 : start] in _ESCAPES:
        before = ""
    if kind in {IDENTIFIER, CODE} and "_" in {before, after}:
        return False
    if (_is_letter(first) and _is_letter(before)) or (_is_letter(last) and _is_letter(after)):
        return False
    # 100 is neither in 1,100 nor in 100.5.
    if first.isdigit() and before in {".", ","} and text[start - 2 : start - 1].isdigit():
        return False
    return not (last.isdigit() and after in {".", ","} and text[end + 1 : end + 2].isdigit())


def _is_letter(char: str) -> bool:
    """A letter or digit of a script that needs spaces; the empty text is none."""
    return char.isalnum() and bool(IS_LETTER.match(char))


def argument_values(arguments: str) -> str:
    """The values in a tool call's arguments, one a line; text that isn't JSON stays as it is.

    A bare number stays too: it is what somebody quoted, and 0.00 isn't to become 0.0.
    """
    try:
        tree = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    if isinstance(tree, int | float):
        return arguments
    return "\n".join(_leaves(tree))


def _leaves(tree: Any) -> Iterator[str]:
    stack = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            stack.extend(reversed(node.values()))
        elif isinstance(node, list):
            stack.extend(reversed(node))
        elif node is not None and not isinstance(node, bool):
            yield str(node)


# --- questions that need a corpus ---------------------------------------------------------------------------


def term_runs(text: str) -> list[str]:
    """Runs of Han and Katakana without function characters, 4 or longer: what `EarlierText` compares."""
    return TERM_RUN.findall(text.translate(ONE_TO_ONE)) if not text.isascii() else []


class EarlierText:
    """The CJK runs of everything said so far, to find what a later run shares with them (WB-RET-01a)."""

    # A 4-gram said more often than this is no rare term, and following all its places would cost too much.
    _MAX_PLACES = 64

    def __init__(self) -> None:
        self._places: dict[str, list[int]] = {}
        self._ends: set[int] = {0}
        """Places at which a run begins or is over."""
        self._n_chars = 0

    def add(self, text: str) -> None:
        """Remember the runs of a text."""
        for run in term_runs(text):
            for i in range(len(run) - MIN_CJK_CHARS + 1):
                places = self._places.setdefault(run[i : i + MIN_CJK_CHARS], [])
                if len(places) < self._MAX_PLACES:
                    places.append(self._n_chars + i)
            self._ends |= {self._n_chars + len(run), self._n_chars + len(run) + 1}
            self._n_chars += len(run) + 1

    def longest_common_run(self, run: str) -> str:
        """The longest part of `run`, 4 or longer, that was said before; the first of several, else empty.

        Four characters that go on in both places are a piece of two different names: they count only where one of
        the two ends with them.
        """
        best_start = best_length = 0
        lengths: dict[int, int] = {}
        for i in range(len(run) - MIN_CJK_CHARS + 1):
            end = i + MIN_CJK_CHARS
            places = self._places.get(run[i:end], ())
            lengths = {place: lengths.get(place - 1, MIN_CJK_CHARS - 1) + 1 for place in places}
            for place, length in lengths.items():
                if length > best_length and (length > MIN_CJK_CHARS or self._is_whole(run, i, place)):
                    best_start, best_length = end - length, length
        return run[best_start : best_start + best_length]

    def _is_whole(self, run: str, i: int, place: int) -> bool:
        """On either side one of the two is at its end: the run, from `i`, or what was said, from `place`."""
        end = i + MIN_CJK_CHARS
        return (i == 0 or place in self._ends) and (end == len(run) or place + MIN_CJK_CHARS in self._ends)


class TermCounts:
    """In how many conversations each 4-gram of CJK text and each Hangul stem occurs (WB-RET-01a)."""

    MAX_SHARE: Final = 0.02
    MIN_LIMIT: Final = 2

    def __init__(self, conversations: Iterable[str]) -> None:
        self.n_conversations = 0
        self._counts: dict[str, int] = {}
        for text in conversations:
            self.n_conversations += 1
            for gram in dict.fromkeys(_grams_and_stems(text)):
                self._counts[gram] = self._counts.get(gram, 0) + 1

    def n_with(self, term: str) -> int:
        """Conversations that hold the term's rarest part."""
        parts = _grams(term) if len(term) >= MIN_CJK_CHARS and not HANGUL_RUN.fullmatch(term) else (term,)
        return min((self._counts.get(part, 0) for part in parts), default=0)

    def is_rare(self, term: str) -> bool:
        """At most 2 conversations or 2 % of them, whichever is more."""
        return self.n_with(term) <= max(self.MIN_LIMIT, self.MAX_SHARE * self.n_conversations)


def _grams(run: str) -> tuple[str, ...]:
    return tuple(run[i : i + MIN_CJK_CHARS] for i in range(len(run) - MIN_CJK_CHARS + 1))


def _grams_and_stems(text: str) -> Iterator[str]:
    for run in term_runs(text):
        yield from _grams(run)
    if not text.isascii():
        yield from (hangul_stem(word) for word in HANGUL_RUN.findall(unicodedata.normalize("NFC", text)))
