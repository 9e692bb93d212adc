"""Scripts and words: which characters are Han, Kana, Hangul or letters, and the one count of words.

In: texts. Out: character classes for patterns, equal spellings made equal, `words` (WB-RPL-07b).
"""

from __future__ import annotations

import re
import unicodedata
from itertools import islice
from typing import Final

MIN_CJK_CHARS: Final = 4
"""A CJK term is at least so long (WB-RET-01a)."""

# Insides of character sets.
HAN = "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
KANA = "\u3041-\u309f\u30a0-\u30fa\u30fc-\u30ff\u31f0-\u31ff\uff66-\uff9f"
SYLLABLE = "\uac00-\ud7a3"
# A letter or digit of a script that puts spaces between words (Hangul has its own rule).
LETTER = rf"[^\W{HAN}{KANA}{SYLLABLE}]"
HAN_KANA_RUN = re.compile(f"[{HAN}{KANA}]+")
HANGUL_RUN = re.compile(f"[{SYLLABLE}]+")
IS_LETTER = re.compile(LETTER)

FUNCTION_CHARACTERS: Final = frozenset(
    "的了是在和与與及或而且但也都就还還又再很太更最较這这那哪些个個么麼什谁誰我你您他她它们們"
    "吗嗎呢吧啊呀嘛哦嗯噢哎把被让讓给給对對从從向往为為以因若虽雖其之于於则則即着著过過不没沒无無要可想请請说說看去来來得有由啥怎几"
)
"""Characters that hold sentences together; a CJK term has none of them."""
TERM_RUN: Final = re.compile(
    "[^\\W_"
    + "".join(sorted(FUNCTION_CHARACTERS))
    + "a-zA-Z0-9\u00aa-\u2fff\u3041-\u309f\u30fb\u3100-\u31ef\ua000-\uf8ff\ufb00-\uff65\uffa0-\U0001ffff]"
    + f"{{{MIN_CJK_CHARS},}}"
)


class _OneToOne(dict[int, int]):
    """NFKC of single characters, kept only where one character stays one, so that places stay true."""

    def __missing__(self, code: int) -> int:
        folded = unicodedata.normalize("NFKC", chr(code))
        self[code] = value = ord(folded) if len(folded) == 1 else code
        return value


ONE_TO_ONE = _OneToOne()
# A character and the marks, vowels and finals that compose with it.
_CLUSTER = re.compile("(?s).[\u0300-\u036f\u1160-\u11ff\u3099\u309a\uff9e\uff9f]*")


def normalised(text: str) -> tuple[str, list[int] | None]:
    """NFKC as far as places allow, and the place of each character in `text` where they differ."""
    if text.isascii():
        return text, None
    if unicodedata.is_normalized("NFC", text) and "\uff9e" not in text and "\uff9f" not in text:
        return text.translate(ONE_TO_ONE), None
    pieces: list[str] = []
    places: list[int] = []
    for cluster in _CLUSTER.finditer(text):
        raw = cluster[0]
        piece = raw if len(raw) == 1 else unicodedata.normalize("NFKC", raw)
        pieces.append(piece)
        places.extend([cluster.start()] * len(piece))
    places.append(len(text))
    return "".join(pieces).translate(ONE_TO_ONE), places


def folded(text: str) -> str:
    """NFKC, case-folded, white space collapsed: the form in which plain strings are compared."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def words(text: str) -> int:
    """Words of a text: each Han or Kana character is one, so is any other run without spaces (WB-RPL-07b)."""
    if text.isascii():
        return len(text.split())
    spaced, n_runs = HAN_KANA_RUN.subn(" ", text)
    return len(text) - len(spaced) + n_runs + len(spaced.split())


_WORD = re.compile(f"[{HAN}{KANA}]|[^\\s{HAN}{KANA}]+")


def cut_to_words(text: str, max_words: int) -> str:
    """The beginning of a text, at most `max_words` words of it."""
    if max_words < 1:
        return ""
    last = next(islice(_WORD.finditer(text), max_words - 1, None), None)
    return text[: last.end()] if last else text
