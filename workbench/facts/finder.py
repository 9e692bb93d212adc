"""Which of many candidates a text mentions: one look at the text instead of one per candidate.

In: candidates, and a text as `Mentions`. Out: the indices of those that it mentions, exactly as asking
`Mentions` for each of them would say. A candidate is looked at only when the text has one of its keys or the
token that it begins with, so the work is that of reading the text and of what is found in it (WB-RET-01a).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from workbench.facts.candidates import Candidate
from workbench.facts.mentions import Mentions
from workbench.facts.scripts import HAN, KANA, SYLLABLE, folded

# What a boundary must stand around: letters and digits of scripts with spaces, without the underscore.
_TOKEN: Final = re.compile(rf"[^\W_{HAN}{KANA}{SYLLABLE}]+")
# In JSON text a line end ends with a letter, which would be the first one of the next token.
_ESCAPE: Final = re.compile(r"\\[nrt]")


class CandidateFinder:
    """Finds many candidates at once in one text after the other."""

    def __init__(self, candidates: Iterable[Candidate]) -> None:
        self.candidates: Sequence[Candidate] = tuple(candidates)
        self._by_key: dict[str, list[int]] = {}
        self._by_token: dict[str, list[int]] = {}
        self._by_pair: dict[str, list[int]] = {}
        self._always: list[int] = []
        for index, one in enumerate(self.candidates):
            self._by_key.setdefault(one.key, []).append(index)
            needle = folded(one.value)
            if token := _TOKEN.search(needle):
                self._by_token.setdefault(token[0], []).append(index)
            elif pair := next(iter(_pairs(needle)), ""):
                self._by_pair.setdefault(pair, []).append(index)
            else:
                self._always.append(index)

    def found_in(self, text: Mentions) -> frozenset[int]:
        """Indices of the candidates that a text mentions."""
        if not self.candidates:
            return frozenset()
        likely = set(self._always)
        for known, present in (
            (self._by_token, _tokens(text.folded) if self._by_token else ()),
            (self._by_pair, _pairs(text.folded) if self._by_pair else ()),
            (self._by_key, text.keys),
        ):
            for one in known.keys() & set(present):
                likely.update(known[one])
        return frozenset(index for index in likely if self.candidates[index] in text)


def _tokens(text: str) -> set[str]:
    found = set(_TOKEN.findall(text))
    return found | set(_TOKEN.findall(_ESCAPE.sub(" ", text))) if "\\" in text else found


def _pairs(text: str) -> dict[str, None]:
    """Pairs of neighbouring letters of scripts without spaces, in order."""
    if text.isascii():
        return {}
    pairs = (text[i : i + 2] for i in range(len(text) - 1))
    return dict.fromkeys(pair for pair in pairs if pair[0] > "\x7f" and pair[1] > "\x7f")
