"""Finding personal data in a text: e-mail addresses, phone numbers, keys, card and id numbers (WB-REC-06).

In: a text. Out: places, each with a kind and the value in one spelling, so that the same number is known again with
other separators, a country code, or in full-width or Chinese digits. A number without a form of its own counts only
with its check digit, or behind a word that says what it is: an order number has to stay what it is. Every pattern
is bounded, so that no text takes more than linear time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import date
from typing import NamedTuple

EMAIL, PHONE, KEY, CARD, ID = "EMAIL", "PHONE", "KEY", "CARD", "ID"
KINDS = {
    EMAIL: "e-mail addresses",
    PHONE: "phone numbers",
    KEY: "keys and passwords",
    CARD: "card numbers",
    ID: "id numbers",
}
_CONTEXT_CHARS = 24
_HAN_DIGITS = "〇零一二三四五六七八九"

# Each character to one character: a place in the plain text is the same place in the text.
_WIDE = {code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)}
_DASHES = dict.fromkeys(map(ord, "‐‑‒–—―−ーｰ"), "-")
_PLAIN = {**_WIDE, **_DASHES, 0x3000: " ", 0xA0: " "}
_DIGIT_OF_HAN: dict[int, str] = {
    ord("-"): "",
    ord("・"): "",
    **{ord(c): str(max(0, place - 1)) for place, c in enumerate(_HAN_DIGITS)},
    ord("○"): "0",
    ord("幺"): "1",
}
_NO_SIGNS = {ord(sign): None for sign in "+-.() "}
WORTH_LOOKING = re.compile(rf"[0-9\uff10-\uff19@\uff20]|[{_HAN_DIGITS}幺○]{{2}}")

_BEFORE = r"(?<![0-9A-Za-z_])(?<![0-9][-.])"
_AFTER = r"(?![0-9A-Za-z_])(?![-.][0-9])"


def _one_of(*patterns: str) -> str:
    return f"(?:{'|'.join(patterns)})"


class Find(NamedTuple):
    """One piece of personal data."""

    start: int
    end: int
    kind: str
    value: str
    """In one spelling."""


Judge = Callable[[re.Match[str], str], tuple[str, int] | None]


def personal_in(text: str) -> list[Find]:
    """All of it, in order, without overlaps."""
    plain = text if text.isascii() else text.translate(_PLAIN)
    found: list[Find] = []
    for kind in (ID, CARD, PHONE) if plain.isdecimal() else _RULES:
        if _MAY_HOLD[kind](plain):
            of_kind = list(_finds_in(plain, kind))
            if of_kind:
                found += of_kind
                plain = _without(plain, of_kind)
    if not text.isascii():
        found += _spelled_out_in(plain)
    found.sort()
    return found


def _without(plain: str, finds: list[Find]) -> str:
    """The text with nothing in these places, so that no other kind finds a part of them again."""
    pieces: list[str] = []
    at = 0
    for find in finds:
        pieces += (plain[at : find.start], "\0" * (find.end - find.start))
        at = find.end
    return "".join((*pieces, plain[at:]))


def _finds_in(plain: str, kind: str) -> Iterator[Find]:
    pattern, judge = _RULES[kind]
    has_value = "value" in pattern.groupindex
    at = 0
    while (match := pattern.search(plain, at)) is not None:
        judged = judge(match, plain)
        start = match.start("value") if has_value and match["value"] is not None else match.start()
        if judged is not None:
            yield Find(start, judged[1], _SHOWN_KIND.get(kind, kind), judged[0])
            at = judged[1]
        else:
            at = max(match.end(), start + 1)


def _spelled_out_in(text: str) -> Iterator[Find]:
    """Numbers written in Chinese digits, judged as if they weren't."""
    for match in _HAN_NUMBER.finditer(text):
        digits = match[0].translate(_DIGIT_OF_HAN)
        kind = _KIND_OF_LENGTH.get(len(digits))
        if kind is not None:
            pattern, judge = _RULES[kind]
            number = pattern.fullmatch(digits)
            judged = None if number is None else judge(number, digits)
            if judged is not None:
                yield Find(match.start(), match.end(), kind, judged[0])


def _digits(text: str) -> str:
    return text.translate(_NO_SIGNS)


def _said_before(match: re.Match[str], plain: str, words: tuple[str, ...]) -> bool:
    before = plain[max(0, match.start() - _CONTEXT_CHARS) : match.start()].lower()
    return any(word in before for word in words)


# --- e-mail ------------------------------------------------------------------------------------------

_EMAIL = re.compile(
    r"(?<![A-Za-z0-9._%+-])[A-Za-z0-9_%+-][A-Za-z0-9._%+-]{0,63}@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}(?![A-Za-z0-9])"
)


def _email(match: re.Match[str], plain: str) -> tuple[str, int] | None:
    return match[0].lower(), match.end()


# --- phone -------------------------------------------------------------------------------------------

_PHONE = re.compile(
    _BEFORE
    + _one_of(
        r"\+[0-9](?:[ .()-]{0,2}[0-9]){8,14}",
        r"00(?:86|81|82|1)(?:[ .()-]{0,2}[0-9]){9,12}",
        r"(?:86[ -]?)?1[3-9][0-9](?:[ -]?[0-9]{4}){2}",  # China, mobile
        r"1[3-9][0-9]{2}[ -][0-9]{3}[ -][0-9]{4}",
        r"\(?0(?:10|2[0-9]|[3-9][0-9]{2})(?:\)[ ]?|[ -])[0-9]{4}[ -]?[0-9]{3,4}(?:-[0-9]{1,5})?",  # landline
        r"400[ -][0-9]{3}[ -][0-9]{4}|400[ -][0-9]{4}[ -][0-9]{3}",
        r"0[5789]0[ -]?[0-9]{4}[ -]?[0-9]{4}",  # Japan, mobile
        r"\(?0[1-9][0-9]{0,3}[-()]{1,2}[0-9]{1,4}[-)][0-9]{4}",
        r"0(?:120|800)-[0-9]{3}-[0-9]{3,4}",
        r"01[016789][ .-]?[0-9]{3,4}[ .-]?[0-9]{4}",  # Korea, mobile
        r"0(?:2|[3-6][1-5]|70|50[0-9])[ .)-]{1,2}[0-9]{3,4}[ .-][0-9]{4}",
        r"09[0-9]{2}[ -]?[0-9]{3}[ -]?[0-9]{3}",  # Taiwan, mobile
        r"(?:1[ .-])?(?:\([2-9][0-9]{2}\) ?|[2-9][0-9]{2}[.-])[0-9]{3}[.-][0-9]{4}",  # North America
    )
    + _AFTER
)
_NORTH_AMERICA = re.compile(r"\+1|1[ .-]?[(]|1[ .-][2-9][0-9]{2}[ .-][0-9]{3}[ .-]")


def _phone(match: re.Match[str], plain: str) -> tuple[str, int] | None:
    digits = _digits(match[0])
    if not 9 <= len(digits) <= 17:
        return None
    if len(digits) == 11 and _NORTH_AMERICA.match(match[0]):
        return digits[1:], match.end()
    digits = digits.removeprefix("00")
    if len(digits) == 13 and digits.startswith("861"):
        return digits[2:], match.end()
    if len(digits) > 10 and digits[:2] in ("81", "82", "86") and (match[0][0] == "+" or match[0].startswith("00")):
        return "0" + digits[2:].removeprefix("0"), match.end()
    return digits, match.end()


# --- keys --------------------------------------------------------------------------------------------

_KEY = re.compile(
    r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----[A-Za-z0-9+/=\s\\]{0,20000}(?:-----END [A-Z ]{0,30}PRIVATE KEY-----)?"
    r"|(?<![A-Za-z0-9_-])"
    + _one_of(
        r"(?:sk|pk|rk|ak)[-_](?=[A-Za-z_-]{0,64}[0-9])[A-Za-z0-9_-]{16,256}",
        r"gh[pousr]_[A-Za-z0-9]{20,255}|github_pat_[A-Za-z0-9_]{20,255}|glpat-[A-Za-z0-9_-]{16,64}",
        r"xox[abeoprs]-[A-Za-z0-9-]{10,250}|(?:hf|npm|dop_v1|r8)_[A-Za-z0-9]{20,255}|pypi-[A-Za-z0-9_-]{40,255}",
        r"(?:AKIA|ASIA)[0-9A-Z]{16}|AIza[0-9A-Za-z_-]{35}|ya29\.[0-9A-Za-z_-]{20,255}|GOCSPX-[0-9A-Za-z_-]{20,64}",
        r"LTAI[0-9A-Za-z]{12,30}|AKID[0-9A-Za-z]{13,40}|SG\.[0-9A-Za-z_-]{16,32}\.[0-9A-Za-z_-]{32,64}",
        r"eyJ[A-Za-z0-9_-]{8,2000}\.[A-Za-z0-9_-]{8,4000}\.[A-Za-z0-9_-]{8,1000}",
    )
    + r"(?![A-Za-z0-9_])"
    r"|(?<![A-Za-z])(?:[Bb]earer|[Bb]asic)[ ]{1,3}(?P<value>[A-Za-z0-9._~+/=-]{16,1000})"
)
_KEY_STEMS = (
    "-----BEGIN", "sk-", "sk_", "pk-", "pk_", "rk-", "rk_", "ak-", "ak_", "gh", "glpat-", "xox", "hf_", "npm_", "dop_v1_",
    "r8_", "pypi-", "AKIA", "ASIA", "AIza", "ya29.", "GOCSPX-", "LTAI", "AKID", "SG.", "eyJ", "earer ", "asic ",
)  # fmt: skip
_KEY_WORDS = (
    "key", "secret", "passw", "passphrase", "pwd", "token", "密码", "口令", "密钥", "密鑰", "パスワ", "暗証番号", "비밀번호", "암호",
)  # fmt: skip
_PASSWORD = re.compile(
    r"(?:api[_ -]?key|secret|access[_ -]?key|private[_ -]?key|passw(?:or)?d|passphrase|pwd|(?:auth|access|api|bearer)[_ -]?token"
    r"|密码|口令|密钥|密鑰|パスワ.ド|暗証番号|비밀번호|암호)"
    r"(?:[_ -]?(?:key|id|access[_ -]key))?[\"']?[ ]{0,3}(?:[:=]|is|was|为|是|は|가|는|은)[ ]{0,3}[\"']?"
    r"(?P<value>[^\s\"'\\,;，。、！？{}\[\]()<>]{6,200})",
    re.IGNORECASE,
)


def _key(match: re.Match[str], plain: str) -> tuple[str, int] | None:
    value = match["value"]
    if value is None:
        return match[0], match.end()
    return (value, match.end("value")) if re.search(r"[0-9]", value) else None


# --- cards -------------------------------------------------------------------------------------------

_CARD = re.compile(
    _BEFORE + r"(?:[2-69][0-9]{3}([ -])[0-9]{4}\1[0-9]{4}\1[0-9]{4}(?:\1[0-9]{1,3})?"
    r"|3[47][0-9]{2}([ -])[0-9]{6}\2[0-9]{5}"
    r"|4[0-9]{12}(?:[0-9]{3})?|3[47][0-9]{13}|3[0689][0-9]{12}|(?:2[2-7]|[569][0-9])[0-9]{14}|62[0-9]{14,17})" + _AFTER
)


_DOUBLED = str.maketrans("0123456789", "0246813579")  # twice the digit, its digits added


def _card(match: re.Match[str], plain: str) -> tuple[str, int] | None:
    """The number, or its first four groups where only those have the check digit right."""
    digits = _digits(match[0])
    if _luhn(digits):
        return digits, match.end()
    if match[1] is not None and len(digits) > 16 and _luhn(digits[:16]):
        return digits[:16], match.start() + 19
    return None


def _luhn(digits: str) -> bool:
    checked = sum(map(int, digits[-1::-2] + digits[-2::-2].translate(_DOUBLED)))
    return checked % 10 == 0 and len(set(digits)) > 1


# --- id numbers --------------------------------------------------------------------------------------

_ID = re.compile(
    _BEFORE
    + _one_of(
        r"(?P<china>[1-8][0-9]{5}[ -]?(?:18|19|20)[0-9]{6}[ -]?[0-9]{3}[0-9Xx])",
        r"(?P<china15>[1-8][0-9]{14})",
        r"(?P<korea>[0-9]{6}-[1-8][0-9]{6})",
        r"(?P<korea13>[0-9]{6}[1-8][0-9]{6})",
        r"(?P<japan>(?<![0-9] )[0-9]{4}([ -])[0-9]{4}\6[0-9]{4}(?![ -][0-9]))",
        r"(?P<japan12>[0-9]{12})",
        r"(?P<america>(?!000|666|9)[0-9]{3}-(?!00)[0-9]{2}-(?!0000)[0-9]{4})",
        r"(?P<taiwan>[A-Z][1289][0-9]{8})",
        r"(?P<hongkong>[A-Z]{1,2}[0-9]{6}\([0-9A]\))",
        r"(?P<passport>[A-Z]{1,2}[0-9]{7,8})",
    )
    + r"(?![0-9A-Za-z_])"
)
_ID_WORDS = ("身份证", "身份證", "证件", "公民", "id ", "id:", "id=", "identity")
_MY_NUMBER_WORDS = ("マイナンバ", "個人番号", "免許")
_RESIDENT_WORDS = ("주민", "등록번호")
_PASSPORT_WORDS = ("passport", "护照", "護照", "パスポ", "旅券", "여권")
_REGIONS = frozenset((*range(11, 16), *range(21, 24), *range(31, 38), *range(41, 47), *range(50, 55), *range(61, 66),
                      71, 81, 82, 83))  # fmt: skip
_TAIWAN_LETTERS = "ABCDEFGHJKLMNPQRSTUVXYWZIO"


def _id(match: re.Match[str], plain: str) -> tuple[str, int] | None:
    form = match.lastgroup or ""
    value = re.sub(r"[ ()-]", "", match[0]).upper()
    words, is_sure, is_possible = _ID_FORMS[form]
    taken = is_sure(value) or (is_possible(value) and words is not None and _said_before(match, plain, words))
    return (value, match.end()) if taken else None


def _is_date(year: int, month: int, day: int) -> bool:
    try:
        return 1850 <= date(year, month, day).year <= 2100
    except ValueError:
        return False


def _is_chinese(value: str) -> bool:
    return int(value[:2]) in _REGIONS and _is_date(int(value[6:10]), int(value[10:12]), int(value[12:14]))


def _has_chinese_check(value: str) -> bool:
    weighted = sum(int(digit) * (2 ** (17 - place) % 11) for place, digit in enumerate(value[:17]))
    return _is_chinese(value) and "10X98765432"[weighted % 11] == value[17]


def _is_old_chinese(value: str) -> bool:
    return int(value[:2]) in _REGIONS and _is_date(1900 + int(value[6:8]), int(value[8:10]), int(value[10:12]))


def _is_korean(value: str) -> bool:
    century = 1900 if value[6] in "1256" else 2000
    return _is_date(century + int(value[:2]), int(value[2:4]), int(value[4:6]))


def _has_taiwanese_check(value: str) -> bool:
    letter = _TAIWAN_LETTERS.index(value[0]) + 10
    weighted = letter // 10 + letter % 10 * 9 + sum(int(d) * (8 - n) for n, d in enumerate(value[1:9])) + int(value[9])
    return weighted % 10 == 0


def _always(value: str) -> bool:
    return True


def _never(value: str) -> bool:
    return False


# Form -> the words that make it one; it's surely one; it may be one.
_ID_FORMS: dict[str, tuple[tuple[str, ...] | None, Callable[[str], bool], Callable[[str], bool]]] = {
    "china": (_ID_WORDS, _has_chinese_check, _is_chinese),
    "china15": (_ID_WORDS, _never, _is_old_chinese),
    "korea": (None, _is_korean, _never),
    "korea13": (_RESIDENT_WORDS, _never, _is_korean),
    "japan": (_MY_NUMBER_WORDS, _never, _always),
    "japan12": (_MY_NUMBER_WORDS, _never, _always),
    "america": (None, _always, _always),
    "taiwan": (_ID_WORDS, _has_taiwanese_check, _always),
    "hongkong": (None, _always, _always),
    "passport": (_PASSPORT_WORDS, _never, _always),
}

_SAID_KEY = "SAID"
# In this order: what looks like a phone number may be the end of a card's.
_RULES: dict[str, tuple[re.Pattern[str], Judge]] = {
    KEY: (_KEY, _key),
    _SAID_KEY: (_PASSWORD, _key),
    EMAIL: (_EMAIL, _email),
    ID: (_ID, _id),
    CARD: (_CARD, _card),
    PHONE: (_PHONE, _phone),
}
_SHOWN_KIND = {_SAID_KEY: KEY}
# What a text must have at least: most texts have none of it, and a search for nothing should cost nothing.
_MAY_HOLD: dict[str, Callable[[str], object]] = {
    KEY: lambda plain: any(stem in plain for stem in _KEY_STEMS),
    _SAID_KEY: lambda plain: any(word in lower for word in _KEY_WORDS) if (lower := plain.lower()) else False,
    EMAIL: lambda plain: "@" in plain,
    ID: re.compile(r"[0-9]{3}(?:[0-9]{3}|[0-9][ -][0-9]{4}|-[0-9]{2}-)").search,
    CARD: re.compile(r"[0-9]{4}[ -]?[0-9]{4}").search,
    PHONE: re.compile(r"[0-9](?:[ .()-]{0,2}[0-9]){8}").search,
}
_KIND_OF_LENGTH = {**dict.fromkeys((10, 11, 12), PHONE), 15: ID, 18: ID, 16: CARD, 19: CARD}
_HAN = f"[{_HAN_DIGITS}幺○]"
_HAN_NUMBER = re.compile(rf"(?<!{_HAN})(?<!{_HAN}[-・]){_HAN}(?:[-・]?{_HAN}){{9,18}}(?![-・]?{_HAN})")
