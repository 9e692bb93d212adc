"""Numbers, amounts, dates and clock times in Chinese, Japanese, Korean and English: their spellings and values.

In: a text that a form matches. Out: a canonical form, so that 下午3点半 and 3:30 pm are the same time
(WB-RET-01a: thousands separators dropped, dates and times parsed). Every form takes time linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Decimal
from typing import NamedTuple

from workbench.facts.scripts import LETTER

Parts = dict[str, str | None]
"""Named groups of a match."""
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
# The first letter stands before the assertions because a pattern that begins with a set of characters is searched
# much faster; the same holds for the first digits below.
_MONTH = (
    rf"(?P<name>[JFMASONDjfmasond](?<!{LETTER}.)(?:an(?:uary)?|eb(?:ruary)?|ar(?:ch)?|pr(?:il)?|(?<=M)ay|une?|uly?"
    r"|ug(?:ust)?|ept?(?:ember)?|ct(?:ober)?|ov(?:ember)?|ec(?:ember)?))"
)
# A digit that begins a number: no letter before it, no digit with a point or comma before it.
_FIRST_DIGIT = rf"\d(?<!{LETTER}\d)(?<!\d[.,]\d)"
NUMBER_FORM = rf"{_FIRST_DIGIT}(?:\d{{0,2}}(?:,\d{{3}})+(?!\d)|\d*)(?:\.\d+)?"
NO_MORE = rf"(?!{LETTER})"
_DAY = rf"(?:st|nd|rd|th)?{NO_MORE}"


class Form(NamedTuple):
    """One spelling of a quantity."""

    pattern: re.Pattern[str]
    needs: str
    """Characters, one of which is in every match: most texts have none of them, which is quicker to see."""


def _forms(*spellings: tuple[str, str]) -> tuple[Form, ...]:
    return tuple(Form(re.compile(pattern), needs) for needs, pattern in spellings)


DATE_FORMS = _forms(
    (
        "-/.",
        rf"(?P<y>\d(?<!{LETTER}\d)\d{{3}})(?P<sep>[-/.])(?P<m>\d{{1,2}})(?P=sep)(?P<d>\d{{1,2}})(?:(?=T\d)|{NO_MORE})",
    ),
    (
        "年년",
        rf"(?P<y>\d(?<!{LETTER}\d)\d{{3}}) ?[年년] ?(?P<m>\d{{1,2}}) ?[月월](?: ?(?P<d>\d{{1,2}}) ?[日号號일])?",
    ),
    ("月월", rf"(?P<m>\d(?<!{LETTER}\d)\d?) ?[月월] ?(?P<d>\d{{1,2}}) ?[日号號일]"),
    ("bcglnprtvy", rf"{_MONTH}\.? (?P<d>\d{{1,2}}){_DAY}(?:,? (?P<y>\d{{4}}){NO_MORE})?"),
    (
        "bcglnprtvy",
        rf"(?P<d>\d(?<!{LETTER}\d)\d?){_DAY} (?:of )?{_MONTH}(?![a-z])\.?(?:,? (?P<y>\d{{4}}){NO_MORE})?",
    ),
    ("bcglnprtvy", rf"{_MONTH}\.?,? (?P<y>(?:19|20)\d\d){NO_MORE}"),
    ("/", rf"(?P<a>\d(?<!{LETTER}\d)\d?)/(?P<b>\d{{1,2}})/(?P<y>\d{{4}}){NO_MORE}"),
)


def date_key(parts: Parts) -> str:
    """ISO date; `2024-05` without a day, `--05-20` without a year; empty when it is no date."""
    year, month, day = parts.get("y"), parts.get("m"), parts.get("d")
    if name := parts.get("name"):
        month = str(_MONTHS.index(name[:3].lower()) + 1) if name[:3].lower() in _MONTHS else "0"
    if (first := parts.get("a")) and (second := parts.get("b")):
        if int(first) <= 12 and int(second) <= 12 and first != second:
            return f"{int(first)}/{int(second)}/{year}"  # day first or month first: can't be known
        month, day = (first, second) if int(first) <= 12 else (second, first)
    if not 1 <= int(month or 0) <= 12 or not 1 <= int(day or 1) <= 31:
        return ""
    text = f"{year or '-'}-{int(month or 0):02d}"
    return text if day is None else f"{text}-{int(day):02d}"


_NIGHT = ("晚上", "夜里", "夜裡", "今晚", "夜", "밤")  # twelve of these is midnight
_AFTERNOON = "下午|晚上|傍晚|夜里|夜裡|今晚|午後|夕方|夜|오후|저녁|밤"
_MORNING = "上午|早上|凌晨|清晨|早晨|午前|朝|오전|아침|새벽"
_NOON = "中午|正午|점심|낮"
_MINUTES = (
    r"(?:(?::(?P<m>\d\d)(?!\d))"
    r"| ?[点點时時시](?![间間간長长]) ?(?:(?P<mm>\d{1,2}) ?[分분]?(?!\d)|(?P<half>[半반])|[整钟鐘])?)"
)
_AM_OR_PM = r"(?: ?(?P<ap>[AaPp])\.?[Mm]\b\.?)?"
# A T may stand before the hour, as in 2024-05-20T15:30.
_NO_LETTER_BUT_T = f"(?<!{LETTER.replace('W', 'WT', 1)}\\d)"
TIME_FORMS = _forms(
    ("点點时時시:", rf"(?P<pre>{_AFTERNOON}|{_MORNING}|{_NOON})の? ?(?P<h>\d{{1,2}})(?!\d){_MINUTES}"),
    (
        ":",
        rf"(?P<h>\d{_NO_LETTER_BUT_T}\d?):(?P<m>\d\d)(?::(?P<s>\d\d)(?:\.\d+)?)?(?!\d)(?!:\d){_AM_OR_PM}",
    ),
    ("Mm", rf"(?P<h>\d(?<!{LETTER}\d)\d?) ?(?P<ap>[AaPp])(?:\.[Mm]\.|[Mm]\b)"),
    (
        "点點时時시",
        rf"(?P<h>\d(?<!{LETTER}\d)\d?) ?[点點时時시] ?(?:(?P<mm>\d{{1,2}}) ?[分분]|(?P<half>[半반])|[整钟鐘])",
    ),
    ("時시", rf"(?P<h>\d(?<!{LETTER}\d)\d?) ?[時시](?![间間간])"),
)


def time_key(parts: Parts) -> str:
    """`15:30`, with seconds only when they aren't zero; empty when it is no clock time."""
    hour, minute = int(parts["h"] or 0), int(parts.get("m") or parts.get("mm") or 0)
    second = int(parts.get("s") or 0)
    before, half_day = parts.get("pre") or "", (parts.get("ap") or "").lower()
    if parts.get("half"):
        minute = 30
    if hour == 12 and before in _NIGHT:
        hour = 0
    elif half_day == "p" or before in _AFTERNOON.split("|") or (before in _NOON.split("|") and hour < 6):
        hour += 12 if hour < 12 else 0
    elif hour == 12 and (half_day == "a" or before in _MORNING.split("|")):
        hour = 0
    if hour > 24 or minute > 59 or second > 59:
        return ""
    return f"{hour:02d}:{minute:02d}" + (f":{second:02d}" if second else "")


_MULTIPLIERS = {
    "千": 10**3, "천": 10**3, "万": 10**4, "萬": 10**4, "만": 10**4, "亿": 10**8, "億": 10**8, "억": 10**8,
    "thousand": 10**3, "million": 10**6, "billion": 10**9,
}  # fmt: skip
# Spelling -> unit. 元 and 円 share the sign ¥, and one conversation rarely has both.
_UNITS = {
    "$": "$", "usd": "$", "dollars": "$", "dollar": "$", "bucks": "$", "美元": "$", "美金": "$", "ドル": "$", "달러": "$",
    "€": "€", "eur": "€", "euros": "€", "euro": "€", "欧元": "€", "ユーロ": "€", "유로": "€",
    "£": "£", "gbp": "£", "pounds": "£", "英镑": "£",
    "¥": "¥", "cny": "¥", "rmb": "¥", "yuan": "¥", "jpy": "¥", "yen": "¥",
    "元": "¥", "块钱": "¥", "块": "¥", "塊": "¥", "人民币": "¥", "円": "¥",
    "₩": "₩", "krw": "₩", "won": "₩", "원": "₩", "₹": "₹", "inr": "₹", "rupees": "₹",
    "%": "%", "percent": "%", "퍼센트": "%", "パーセント": "%",
    "kg": "kg", "公斤": "kg", "千克": "kg", "キロ": "kg", "斤": "斤", "grams": "g", "克": "g", "mg": "mg",
    "km": "km", "公里": "km", "千米": "km", "miles": "mi", "mile": "mi", "cm": "cm", "厘米": "cm", "mm": "mm",
    "meters": "m", "metres": "m", "米": "m", "メートル": "m", "미터": "m",
    "平方米": "m2", "平米": "m2", "m2": "m2", "亩": "亩", "坪": "坪",
    "kb": "kb", "mb": "mb", "gb": "gb", "tb": "tb", "ms": "ms", "°c": "°c", "℃": "°c", "度": "°c",
    "hours": "h", "hour": "h", "hrs": "h", "小时": "h", "小時": "h", "個小時": "h", "个小时": "h", "時間": "h", "시간": "h",
    "minutes": "min", "minute": "min", "mins": "min", "分钟": "min", "分鐘": "min", "分間": "min", "분": "min", "分": "分",
    "days": "d", "day": "d", "天": "d", "日間": "d", "nights": "night", "night": "night", "晚": "night", "泊": "night",
}  # fmt: skip


def _any_of(spellings: Iterable[str]) -> str:
    return "|".join(re.escape(text) for text in sorted(spellings, key=lambda text: (-len(text), text)))


_UNIT = rf"(?P<unit>(?i:{_any_of(u for u in _UNITS if u not in '$€£¥₩₹')}))(?:(?<![A-Za-z])|{NO_MORE})"
_TIMES = rf"(?P<times>{_any_of(m for m in _MULTIPLIERS if m != '千')}|千(?!米|克|瓦))"
# Saves a look at each of the spellings behind most numbers.
_FIRST_OF_UNIT = "".join(sorted({text[0] for text in (*_UNITS, *_MULTIPLIERS)} | {u[0].upper() for u in _UNITS}))
AMOUNT_FORMS = _forms(
    ("$€£¥₩₹", rf"(?P<sign>[$€£¥₩₹]) ?(?P<n>{NUMBER_FORM})(?: ?{_TIMES})?(?!\.?\d)"),
    (
        _FIRST_OF_UNIT,
        rf"(?P<n>{NUMBER_FORM})(?= ?[{_FIRST_OF_UNIT}])(?: ?{_TIMES})?(?: ?{_UNIT})?",
    ),
)


def plain_number(text: str) -> str:
    """Digits without thousands separators and without zeros that say nothing: `1,200.50` -> `1200.5`."""
    number = text.replace(",", "")
    return number.rstrip("0").rstrip(".") if "." in number else number


def amount_key(parts: Parts) -> str:
    """The plain number; under three digits the unit belongs to it, for 50 alone says nothing."""
    times, unit = parts.get("times"), parts.get("sign") or parts.get("unit")
    if not (times or unit):
        return ""
    number = plain_number(parts["n"] or "")
    if times:
        number = f"{(Decimal(number) * _MULTIPLIERS[times]).normalize():f}"
    n_digits = len(number) - number.count(".")
    return number if n_digits >= 3 or not unit else number + _UNITS[unit.lower()]
