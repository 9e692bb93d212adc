"""Names and numbers as a reader sees them, in the terminal, on a page and in a figure.

In: names from recordings and configurations, counts, shares. Out: short plain text. Names come from outside:
nothing here lets one break a line, move the cursor or turn the reading direction. No markup: see `markup.py`.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import median

UNKNOWN = "—"
MINUS = "\N{MINUS SIGN}"

# Characters that move the text of their neighbours or can't be seen, beside the control characters.
_UNRULY = {*"\u200e\u200f\u061c\ufeff", *map(chr, range(0x202A, 0x202F)), *map(chr, range(0x2066, 0x206A))}
# A figure stays with its unit: `−16 %`, `1.42 M`.
_WIDE_OR_WORD = re.compile(
    r"\(?[^\s\w(]?\d[\d.,]* (?:%|[MG]\b)[;:,.)]*|\s+|[^\s\u2e80-\u9fff\uac00-\ud7a3\uf900-\ufaff\uff00-\uffef]+|.",
    re.DOTALL,
)


def printable(text: str) -> str:
    """`text` on one line, with a visible mark in place of every control or direction character."""
    # Most texts are plain, and a page has pictures as texts of megabytes.
    return text if text.isprintable() else "".join(_printable(character) for character in text)


def _printable(character: str) -> str:
    if character in "\t\n\r":
        return " "
    if character in _UNRULY or unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp"):
        return "\ufffd"
    return character


def escaped(text: str) -> str:
    """`text` on one line, every control or direction character as its escape, for reading a text closely."""
    return "".join(
        character if _printable(character) == character else character.encode("unicode_escape").decode()
        for character in text
    )


def display_width(text: str) -> int:
    """Columns of a terminal that `text` takes: wide characters two, combining ones none."""
    return sum(map(_columns, text))


def _columns(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def shorten(text: str, max_width: int) -> str:
    """At most `max_width` columns, cut in the middle: numbered names differ at their end."""
    text = printable(text)
    if display_width(text) <= max_width:
        return text
    tail_width = (max_width - 1) // 2
    head = within(text, max_width - 1 - tail_width)
    tail = within(text[::-1], tail_width)[::-1]
    return f"{head}…{tail}"


def within(text: str, max_width: int) -> str:
    """The beginning of `text` that takes at most `max_width` columns."""
    width = 0
    for index, character in enumerate(text):
        width += _columns(character)
        if width > max_width:
            return text[:index]
    return text


def quoted(name: str, max_width: int = 40) -> str:
    """A name inside a sentence."""
    return f"“{shorten(name, max_width)}”"


def units_to_wrap(text: str) -> list[str]:
    """The pieces between which a line may break: words, spaces, figures with their unit, each CJK character alone."""
    return _WIDE_OR_WORD.findall(text)


def unbroken(text: str) -> str:
    """A sentence that a browser wraps as `units_to_wrap` would: no figure on another line than its unit."""
    pieces = units_to_wrap(text)
    return "".join(piece if piece.isspace() else piece.replace(" ", "\N{NO-BREAK SPACE}") for piece in pieces)


def number(value: float) -> str:
    """`1,420`, `20.6k` from ten thousand on, `1.42 M` from a million on: three significant digits, fewer where exact."""
    size = abs(value)
    sign = MINUS if value < 0 else ""
    if size < 10_000:
        return f"{sign}{round(size):,}"
    for limit, divisor, suffix in ((999_500, 1e3, "k"), (999_500_000, 1e6, " M"), (math.inf, 1e9, " G")):
        if size < limit:
            scaled = size / divisor
            return f"{sign}{f'{scaled:.0f}' if scaled == round(scaled) else _three_digits(scaled)}{suffix}"
    raise ValueError(f"{value!r} is no number that can be shown")


def _three_digits(value: float) -> str:
    decimals = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{value:,.{decimals}f}"


_SYMBOLS = {"USD": "$", "EUR": "€", "GBP": "£", "CNY": "CN¥", "JPY": "JP¥"}


def money(value: float, currency: str) -> str:
    """`$1,420`, `$20.6k`, `$3.07`, `$0.0042`: an amount with its currency, about three digits."""
    size = abs(value)
    if size >= 1000:
        text = number(size)
    elif size >= 100:
        text = f"{size:.0f}"
    elif size >= 0.1 or size == 0:
        text = f"{size:.2f}"
    else:
        text = f"{size:.{min(1 - math.floor(math.log10(size)), 12)}f}"
    return f"{MINUS if value < 0 else ''}{_SYMBOLS.get(currency, currency + ' ')}{text}"


def share(value: float) -> str:
    """Two decimals; more where rounding would claim exactly 0 or 1."""
    for decimals in (2, 3, 4):
        text = f"{value:.{decimals}f}"
        if value in (0, 1) or float(text) not in (0, 1):
            return text
    return "under 0.0001" if value < 0.5 else "over 0.9999"


def percent(value: float) -> str:
    """`43 %`, `6.2 %` under ten; never a sign."""
    size = abs(value) * 100
    return f"{size:.0f} %" if size >= 9.95 or size == 0 else f"{size:.1f} %"


def difference(value: float, reference: float) -> str:
    """Relative difference with its sign, empty against a reference of zero; from tenfold on as a factor."""
    if reference <= 0:
        return ""
    relative = value / reference - 1
    if relative >= 9:
        return f"×{value / reference:.0f}"
    if round(relative, 3) == 0:
        return "±0 %"
    return f"{MINUS if relative < 0 else '+'}{percent(relative)}"


def counted(count: int, noun: str, plural: str = "") -> str:
    """`1 call`, `1,420 calls`."""
    return f"{number(count)} {noun if count == 1 else plural or noun + 's'}"


def listed(names: Iterable[str], last: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`."""
    items = list(names)
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} {last} {items[-1]}"


def rhythm(calls: Sequence[int], n_calls: int) -> str:
    """`fires every 8 calls`, `fires once, after call 3`, `never fires`.

    Args:
        calls: For each firing the first call that sees its summary.
    """
    if not calls:
        return "never fires"
    if len(calls) == 1:
        return f"fires once, after call {max(0, calls[0] - 1)}"
    gaps = [later - earlier for earlier, later in pairwise(calls)]
    middle = round(median(gaps))
    if middle <= 1:
        return "fires at every call" if len(calls) >= n_calls else f"fires after {len(calls)} of {n_calls} calls"
    return f"fires every {middle} calls" if min(gaps) == max(gaps) else f"fires about every {middle} calls"
