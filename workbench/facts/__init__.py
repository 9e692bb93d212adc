"""Facts: specific strings that may be needed again, in Chinese, Japanese, Korean and English.

In: texts. Out: candidates for needed facts (WB-RET-01a), whether another text mentions them, and the one count
of words (WB-RPL-07b). The extractive source and the metric share it, so neither sees facts that the other
doesn't.

    scripts -> quantities -> candidates -> mentions -> finder
"""

from __future__ import annotations

from workbench.facts.candidates import (
    AMOUNT,
    CJK,
    CODE,
    DATE,
    EMAIL,
    FILE,
    HANGUL,
    IDENTIFIER,
    KINDS,
    NAME,
    NUMBER,
    PATH,
    PHONE,
    QUOTED,
    TIME,
    URL,
    Candidate,
    candidates,
    hangul_stem,
    is_repetition,
    key_of,
    keys_mentioned,
)
from workbench.facts.finder import CandidateFinder
from workbench.facts.mentions import EarlierText, Mentions, TermCounts, argument_values, contains, term_runs
from workbench.facts.scripts import FUNCTION_CHARACTERS, cut_to_words, folded, words

__all__ = [
    "AMOUNT",
    "CJK",
    "CODE",
    "DATE",
    "EMAIL",
    "FILE",
    "FUNCTION_CHARACTERS",
    "HANGUL",
    "IDENTIFIER",
    "KINDS",
    "NAME",
    "NUMBER",
    "PATH",
    "PHONE",
    "QUOTED",
    "TIME",
    "URL",
    "Candidate",
    "CandidateFinder",
    "EarlierText",
    "Mentions",
    "TermCounts",
    "argument_values",
    "candidates",
    "contains",
    "cut_to_words",
    "folded",
    "hangul_stem",
    "is_repetition",
    "key_of",
    "keys_mentioned",
    "term_runs",
    "words",
]
