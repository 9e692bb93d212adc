"""A token counter that knows scripts: one number of characters per token for each class of characters.

In: texts. Out: characters per class, and token counts that are exact sums over characters, in billionths of a token
until the end, so that a trigger's running sums stay exact (SUM-TOK-09). `workbench calibrate` fits the ratios.
Implements the counter of WB-CAL-02.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Final

from pydantic import Field

from workbench.call import CallContext
from workbench.errors import ConfigError, nearest_name
from workbench.model.types import Message
from workbench.settings import Settings
from workbench.tokens import DEFAULT_RUNES_PER_TOKEN, MIN_TOKENS_NON_EMPTY, check_range, counted_texts, has_floor

CLASSES: Final = ("han", "kana", "hangul", "latin", "digits", "code", "emoji", "other")
"""In the order of every list of counts. Latin includes spaces and the marks of prose; code is code and JSON; other
includes Chinese and Japanese punctuation."""

_UNITS_PER_TOKEN = 1_000_000_000
_LETTERS = "hkgldmeo"
"""One letter per class; `m` is a mark of code."""
_LATIN, _CODE = CLASSES.index("latin"), CLASSES.index("code")
_MARKS = frozenset('{}[]()<>="_\\/|$#*&@^~`+%')
_LATIN_CHARACTERS = "\u0000-\u024f\u1e00-\u1eff\u2010-\u2027\u2c60-\u2c7f\ua720-\ua7ff\uab30-\uab6f"
_JAMO = "\u1100-\u11ff\u3131-\u318e\ua960-\ua97f\ud7b0-\ud7ff"
_EMOJI = "\u200d\u20e3\u2600-\u27bf\u2b05-\u2b55\ufe0f\U0001f000-\U0001faff\U000e0020-\U000e007f"
_MARKS_PER_LINE = 2
_CHARACTERS_PER_MARK = 12
"""A line with two marks of code or more, one in twelve of its letters and marks at least, is code or JSON."""


class _LetterOfCharacter(dict[int, str]):
    """Code point -> letter of its class, found once each; a newline stays what it is."""

    def __missing__(self, code: int) -> str:
        # The sets of characters have one home, whose package is too heavy for every start.
        from workbench.facts.scripts import HAN, KANA, SYLLABLE

        character = chr(code)
        classes = (
            ("\n", "\n"),
            ("d", r"\d"),
            ("e", _EMOJI),
            ("h", HAN),
            ("k", KANA),
            ("g", SYLLABLE + _JAMO),
            ("m", "".join(map(re.escape, sorted(_MARKS)))),
            ("l", _LATIN_CHARACTERS),
            ("o", "\\s\\S"),
        )
        self[code] = letter = next(letter for letter, inside in classes if re.match(f"[{inside}]", character))
        return letter


_letter_of = _LetterOfCharacter()


def class_counts(text: str) -> tuple[int, ...]:
    """Characters of each class, in the order of `CLASSES`; they sum to `len(text)`.

    Letters in a line of code or JSON count as code, and so does a mark of code anywhere. Each line stands for
    itself, so the counts of a text are the sums over its lines.
    """
    letters = text.translate(_letter_of)
    counts = [letters.count(letter) for letter in _LETTERS]
    counts[_LATIN] += letters.count("\n")
    if counts[_CODE] >= _MARKS_PER_LINE:
        for line in letters.split("\n") if "\n" in letters else (letters,):
            marks = line.count("m")
            if marks >= _MARKS_PER_LINE:
                latin = line.count("l")
                if marks * _CHARACTERS_PER_MARK >= latin + marks:
                    counts[_LATIN] -= latin
                    counts[_CODE] += latin
    return tuple(counts)


class ScriptRatios(Settings):
    """Characters per token for each class of characters; the command `calibrate` fits them. WB-CAL-02."""

    han: float | None = Field(default=None, gt=0)
    """Chinese characters, Kanji and Hanja per token; none = `counter.runes_per_token`. WB-CAL-02."""
    kana: float | None = Field(default=None, gt=0)
    """Hiragana and Katakana per token; none = `counter.runes_per_token`. WB-CAL-02."""
    hangul: float | None = Field(default=None, gt=0)
    """Korean syllables per token; none = `counter.runes_per_token`. WB-CAL-02."""
    latin: float | None = Field(default=None, gt=0)
    """Latin letters, spaces and marks of prose per token; none = `counter.runes_per_token`. WB-CAL-02."""
    digits: float | None = Field(default=None, gt=0)
    """Digits per token; none = `counter.runes_per_token`. WB-CAL-02."""
    code: float | None = Field(default=None, gt=0)
    """Characters of code and JSON per token; none = `counter.runes_per_token`. WB-CAL-02."""
    emoji: float | None = Field(default=None, gt=0)
    """Emoji characters per token; none = `counter.runes_per_token`. WB-CAL-02."""
    other: float | None = Field(default=None, gt=0)
    """All other characters per token, Chinese punctuation too; none = `counter.runes_per_token`. WB-CAL-02."""


class ScriptTokenCounter:
    """Sums characters divided by the ratio of their class; below one token everything non-empty counts 1.

    Args:
        ratios: Characters per token by class name; a class without one takes `default`.
        default: Characters per token of the other classes.
    """

    line_additive = False  # whole tokens aren't; `unit_counter` is
    message_additive = True

    def __init__(self, ratios: Mapping[str, float | None], *, default: float = DEFAULT_RUNES_PER_TOKEN) -> None:
        for name, ratio in (*ratios.items(), ("default", default)):
            if name not in (*CLASSES, "default"):
                raise ConfigError.for_field("scripts", name, ", ".join(CLASSES), hint=nearest_name(name, CLASSES))
            if ratio is not None and (isinstance(ratio, bool) or not 0 < ratio < float("inf")):
                raise ConfigError.for_field(f"scripts.{name}", ratio, "a number above 0")
        self.ratios = {name: float(ratios.get(name) or default) for name in CLASSES}
        self._weights = [math.ceil(_UNITS_PER_TOKEN / ratio) for ratio in self.ratios.values()]
        self.counter_id = "scripts:" + ",".join(f"{ratio:g}" for ratio in self.ratios.values())
        self.unit_counter = _UnitCounter(self)

    def units(self, text: str) -> int:
        """Billionths of a token; additive over lines."""
        return sum(n * weight for n, weight in zip(class_counts(text), self._weights, strict=True) if n)

    def tokens_from_units(self, units: int, *, non_empty: bool) -> int:
        """Whole tokens of a message of so many units."""
        return max(units // _UNITS_PER_TOKEN, MIN_TOKENS_NON_EMPTY if non_empty else 0)

    def count_text(self, text: str) -> int:
        return self.units(text) // _UNITS_PER_TOKEN

    def count_tokens(self, ctx: CallContext, message: Message) -> int:
        units = sum(self.units(text) for text in counted_texts(message) if text)
        return self.tokens_from_units(units, non_empty=has_floor(message))

    def count_tokens_range(self, ctx: CallContext, messages: Sequence[Message], start: int, end: int) -> int:
        check_range(messages, start, end)
        return sum(self.count_tokens(ctx, messages[i]) for i in range(start, end))

    def __repr__(self) -> str:
        return f"ScriptTokenCounter({', '.join(f'{name}={ratio:g}' for name, ratio in self.ratios.items())})"


class _UnitCounter:
    """The same counter in units, of which a text has exactly the sum over its lines."""

    line_additive = True

    def __init__(self, counter: ScriptTokenCounter) -> None:
        self.counter_id = f"units of {counter.counter_id}"
        self.count_text = counter.units
