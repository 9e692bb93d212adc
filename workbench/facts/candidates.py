"""Specific strings in a text that somebody may need again: ids, dates, amounts, names, CJK terms (WB-RET-01a).

In: one text, in any language. Out: `Candidate`s with their place and a key under which two spellings are equal.
Each class has a finder; they run in the order of precedence, and what one has found is hidden from the next.
Pure, no I/O; every pattern takes time linear in the text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from workbench.facts.quantities import (
    AMOUNT_FORMS,
    DATE_FORMS,
    NUMBER_FORM,
    TIME_FORMS,
    Form,
    Parts,
    amount_key,
    date_key,
    plain_number,
    time_key,
)
from workbench.facts.scripts import (
    FUNCTION_CHARACTERS,
    HAN,
    HANGUL_RUN,
    KANA,
    LETTER,
    SYLLABLE,
    TERM_RUN,
    folded,
    normalised,
)

URL, EMAIL, PHONE, PATH, FILE = "url", "email", "phone", "path", "file"
DATE, TIME, AMOUNT, IDENTIFIER, NUMBER = "date", "time", "amount", "identifier", "number"
QUOTED, NAME, CJK, HANGUL, CODE = "quoted", "name", "cjk", "hangul", "code"
KINDS: Final = (
    URL, EMAIL, PHONE, PATH, FILE, DATE, TIME, AMOUNT, IDENTIFIER, NUMBER, QUOTED, NAME, CJK, HANGUL, CODE
)  # fmt: skip
"""All classes; where two fit, the earlier one owns the span (`code` shares the place of `identifier`)."""

MAX_CHARS: Final = 200
"""Longer strings aren't facts that anybody repeats."""
MIN_HANGUL_CHARS: Final = 3
CODE_CHARS: Final = 12
"""From here on a code identifier without a digit is `identifier`, below it is `code`."""


class Candidate(NamedTuple):
    """A string that may be a needed fact."""

    value: str
    """As written, NFKC."""
    kind: str
    """One of `KINDS`."""
    start: int
    """Place in the text as it was given."""
    end: int
    key: str
    """Canonical form; candidates of one kind with the same key are the same fact."""


# --- keys -------------------------------------------------------------------------------------------------

KeyOfParts = Callable[[Parts], str]
_FORMS: dict[str, tuple[tuple[Form, ...], KeyOfParts]] = {
    DATE: (DATE_FORMS, date_key),
    TIME: (TIME_FORMS, time_key),
    AMOUNT: (AMOUNT_FORMS, amount_key),
}
PARSED_KINDS = frozenset([PHONE, NUMBER, *_FORMS])


def key_of(kind: str, value: str) -> str:
    """The canonical form of a value of one kind; empty when it is no value of that kind."""
    value = unicodedata.normalize("NFKC", value)
    if kind in _FORMS:
        forms, key_of_parts = _FORMS[kind]
        matches = (form.pattern.fullmatch(value) for form in forms)
        return next((key_of_parts(match.groupdict()) for match in matches if match), "")
    if kind == PHONE:
        return "".join(char for char in value if char.isdigit())
    return value.replace(",", "") if kind == NUMBER else folded(value)


def keys_mentioned(candidate: Candidate) -> tuple[str, ...]:
    """All keys that this mention makes known: a full date also says its day, an amount also its number."""
    key = candidate.key
    if candidate.kind == DATE and len(key) == 10 and key[4] == key[7] == "-":
        return key, "-" + key[4:], key[:7]
    if candidate.kind == AMOUNT:
        number = re.match(r"[\d.]+", key)
        return (key, number[0]) if number and number[0] != key and len(number[0]) >= 3 else (key,)
    if candidate.kind == NUMBER and "." in key:
        return key, plain_number(key)
    return (key,)


# --- finders: masked text in, candidates of one class out ---------------------------------------------------

_Span = tuple[int, int]
_MASK = "\x00"
_Finder = Callable[[str], Iterable[Candidate]]


def _by_pattern(kind: str, pattern: re.Pattern[str], *, only_with: str = "") -> _Finder:
    """A class that one pattern finds."""

    def find(text: str) -> Iterator[Candidate]:
        if only_with in text:
            for match in pattern.finditer(text):
                if len(value := match[0]) <= MAX_CHARS:
                    yield Candidate(value, kind, match.start(), match.end(), key_of(kind, value))

    return find


def _by_form(kind: str, form: Form, key_of_parts: KeyOfParts) -> _Finder:
    """A class whose values are parsed; what doesn't parse is none."""

    def find(text: str) -> Iterator[Candidate]:
        for match in form.pattern.finditer(text) if any(char in text for char in form.needs) else ():
            if len(value := match[0]) <= MAX_CHARS and (key := key_of_parts(match.groupdict())):
                yield Candidate(value, kind, match.start(), match.end(), key)

    return find


_NOT_IN_URL = rf"\s\x00<>\"'`{{}}|\\^\u2018-\u201f\u3000-\u303f{HAN}{KANA}{SYLLABLE}"
_URL = re.compile(rf"(?:https?|ftp)://[^{_NOT_IN_URL}]+|www\.[^{_NOT_IN_URL}]+")


def _find_urls(text: str) -> Iterator[Candidate]:
    if "://" not in text and "www." not in text:
        return
    for match in _URL.finditer(text):
        value = match[0][: MAX_CHARS * 2].rstrip(".,;:!?*_")
        while value.endswith((")", "]")) and value.count("(") + value.count("[") < value.count(")") + value.count("]"):
            value = value[:-1].rstrip(".,;:!?*_")
        yield Candidate(value, URL, match.start(), match.start() + len(value), value.casefold())


_EMAIL = re.compile(
    r"[A-Za-z0-9](?<![A-Za-z0-9_.+-].)[A-Za-z0-9_.+-]*@[A-Za-z0-9](?:[A-Za-z0-9-]*\.)+[A-Za-z]{2,24}(?![A-Za-z0-9_-])"
)
_PHONE = re.compile(
    rf"(?:\+\d{{1,3}}[ -]?(?:\(\d{{1,4}}\)[ -]?)?\d{{1,4}}(?:[ -]?\d{{2,4}}){{2,4}}"
    r"|\(\d{2,5}\)[ -]?\d{3,4}[ -]?\d{3,4}"
    rf"|0(?<!{LETTER}0)(?<![-.,]0)\d{{1,3}}-(?:\d{{7,8}}|\d{{1,4}}-\d{{4}})"
    rf"|1(?<!{LETTER}1)(?<![-.,]1)[3-9]\d[ -]?\d{{4}}[ -]?\d{{4}}"
    rf"|\d(?<!{LETTER}\d)(?<![-.,]\d)\d\d-\d{{3,4}}-\d{{4}})(?!{LETTER})(?!-\d)"
)

_IN_PATH = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.~+@%=-")
_SLASHES = re.compile(r"(?:/[A-Za-z0-9_.~+@%=-]+)+/?")
_WINDOWS_PATH = re.compile(rf"[A-Za-z](?<!{LETTER}[A-Za-z]):\\[\w.~+@%=-]{{2,}}(?:\\[\w.~+@%=-]+)*")
_EXTENSION = (
    r"(?:\.(?:py[ix]?|ipynb|[jt]sx?|mjs|go|rs|java|kt|c|h|cc|cpp|hpp|cs|rb|php|swift|scala|lua|dart|vue|sh|bat|ps1|sql"
    r"|html?|s?css|xml|ya?ml|jsonl?|toml|ini|cfg|conf|env|lock|md|rst|txt|log|csv|tsv|xlsx?|docx?|pptx?|pdf|png|jpe?g"
    r"|gif|svg|webp|mp[34]|wav|mov|zip|tar|gz|tgz|zst|7z|rar|whl|jar|apk|exe|dll|so|bin|dat|db|sqlite|duckdb|parquet"
    r"|proto|diff|patch|pkl|np[yz]|onnx|tex|bib|traj))+(?![A-Za-z0-9_(])"
)
_FILE_END = re.compile(_EXTENSION)
_ENDS_AS_FILE = re.compile(rf"[A-Za-z0-9_]{_EXTENSION}$")
_TWO_LETTERS = re.compile("[A-Za-z]{2}")


def _find_paths(text: str) -> Iterator[Candidate]:
    floor = 0
    for match in _SLASHES.finditer(text) if "/" in text else ():
        start = match.start()
        while start > floor and text[start - 1] in _IN_PATH:
            start -= 1
        floor = match.end()
        value = text[start:floor].rstrip("/.-=~+%@")
        before = text[start - 1] if start else " "
        if len(value) <= MAX_CHARS and before != "<" and _is_path(value):
            yield Candidate(value, PATH, start, start + len(value), value.casefold())


def _is_path(value: str) -> bool:
    """Not `and/or`, `24/7` or a date: it has words in it, and a root, an extension or a third part."""
    parts = [part for part in value.split("/") if part]
    if not parts or not any(_TWO_LETTERS.search(part) for part in parts):
        return False
    if value.startswith("/"):
        return len(parts) > 1 or len(parts[0]) > 2
    return len(parts) > 2 or parts[0] in (".", "..", "~") or bool(_ENDS_AS_FILE.search(value))


def _find_files(text: str) -> Iterator[Candidate]:
    floor = 0
    for match in _FILE_END.finditer(text):
        start = match.start()
        while start > floor and _may_be_in_file_name(text[start - 1]):
            start -= 1
        floor = match.end()
        if any(char.isalnum() for char in text[start : match.start()]) and floor - start <= MAX_CHARS:
            value = text[start:floor]
            yield Candidate(value, FILE, start, floor, folded(value))


def _may_be_in_file_name(char: str) -> bool:
    if char < "\x80":
        return char.isalnum() or char in "_.+-"
    return char.isalnum() and char not in FUNCTION_CHARACTERS and not "\u3041" <= char <= "\u309f"


# Skips ordinary words on the way.
_TOKEN = re.compile(
    r"[A-Za-z0-9_](?<![A-Za-z0-9_].)(?!(?<=[A-Za-z])[a-z]*(?![A-Za-z0-9_.-]))[A-Za-z0-9_]*(?:[.-][A-Za-z0-9_]+)*"
)
# What follows the backslash in JSON text: no part of a name.
_ESCAPE = re.compile("[nrtbf]|u[0-9a-fA-F]{4}")
_CAMEL = re.compile("[a-z][A-Z]|[A-Z]{2}[a-z]{2}")
_ORDINAL_OR_SPAN = re.compile(r"\d+(?:st|nd|rd|th|s|x|px|em|am|pm)|\d{1,3}-[a-z]+(?:-[a-z]+)?|[a-z]+-\d", re.IGNORECASE)
_CHARACTER_RANGES = re.compile(r"(?:[a-z]-[a-z]|[A-Z]-[A-Z]|\d-\d|_)+")
"""Insides of a character class of a pattern, `A-Za-z0-9`: syntax, no name of anything."""
_DIGITS_IN_GROUPS = re.compile(r"\d+(?:-\d+){2,}|\d+(?:\.\d+){2,}")


def _find_identifiers(text: str) -> Iterator[Candidate]:
    for match in _TOKEN.finditer(text):
        token, start = match[0], match.start()
        if token.isdigit() or (token.isalpha() and (token.islower() or token.isupper())):
            continue
        if start and text[start - 1] == "\\" and (escape := _ESCAPE.match(token)):
            token, start = token[escape.end() :], start + escape.end()
        if kind := _identifier_kind(token):
            yield Candidate(token, kind, start, match.end(), token.casefold())


def _identifier_kind(token: str) -> str:
    """`identifier`, `code`, or empty for an ordinary word or number."""
    if not 4 <= len(token) <= MAX_CHARS:
        return ""
    has_digit = any(char.isdigit() for char in token)
    has_letter = any(char.isalpha() for char in token)
    if not has_letter:
        return IDENTIFIER if _DIGITS_IN_GROUPS.fullmatch(token) else ""
    if has_digit:
        return "" if _ORDINAL_OR_SPAN.fullmatch(token) or _CHARACTER_RANGES.fullmatch(token) else IDENTIFIER
    is_snake = "_" in token.strip("_") or token.startswith("__")
    is_dotted = "." in token and sum(len(part) > 1 for part in token.split(".")) > 1
    if not (is_snake or is_dotted or ("-" not in token and _CAMEL.search(token))):
        return ""
    return IDENTIFIER if len(token) >= CODE_CHARS else CODE


_PLAIN_NUMBER = re.compile(rf"{NUMBER_FORM}(?!{LETTER})(?!\.\d)")


def _find_numbers(text: str) -> Iterator[Candidate]:
    for match in _PLAIN_NUMBER.finditer(text):
        value = match[0]
        if len(value) >= 3 and len(value) <= MAX_CHARS:
            yield Candidate(value, NUMBER, match.start(), match.end(), value.replace(",", ""))


# No quote begins with what only stands between two quotes of code.
_FIRST_IN_QUOTES = r"[^\s\x00\\\"'`,;:)\]}=+.]"
_QUOTED_FORMS = tuple(
    re.compile(form)
    for form in (
        rf'"(?<!{LETTER}")({_FIRST_IN_QUOTES}(?:[^"\n\x00\\]{{0,78}}[^\s"\x00\\])?)"(?!{LETTER})',
        rf"'(?<!{LETTER}')({_FIRST_IN_QUOTES}(?:[^'\n\x00\\]{{0,58}}[^\s'\x00\\])?)'(?!{LETTER})",
        rf"`({_FIRST_IN_QUOTES}(?:[^`\n\x00]{{0,78}}[^\s`\x00])?)`",
        r"[“「『《〈«]([^“”「」『』《》〈〉«»\n\x00]{2,60})[”」』》〉»]",
    )
)


def _by_quotes(pattern: re.Pattern[str]) -> _Finder:
    def find(text: str) -> Iterator[Candidate]:
        for match in pattern.finditer(text):
            value = match[1]
            if sum(char.isalnum() for char in value) >= (2 if not value.isascii() else 3):
                yield Candidate(value, QUOTED, match.start(1), match.end(1), folded(value))

    return find


_REST_OF_NAME = r"(?:[A-Za-z\u00c0-\u024f'’-]{1,30}|\.)"
_NAME = re.compile(rf"[A-Z](?<!{LETTER}[A-Z]){_REST_OF_NAME}(?: [A-Z]{_REST_OF_NAME}){{1,7}}(?!{LETTER})")
# Words that begin sentences with a capital letter.
_NOT_IN_NAMES = frozenset([
    "a", "additionally", "after", "all", "also", "am", "an", "and", "another", "any", "april", "are", "as", "at",
    "august", "based", "be", "because", "before", "both", "but", "by", "can", "cannot", "could", "currently",
    "dear", "december", "did", "do", "does", "don't", "during", "each", "either", "else", "every", "february",
    "few", "finally", "first", "for", "friday", "from", "good", "great", "had", "has", "have", "he", "he's",
    "hello", "here", "hey", "hi", "how", "however", "i", "i'd", "i'll", "i'm", "i've", "if", "in", "is", "it",
    "it's", "its", "january", "july", "june", "just", "last", "later", "let", "let's", "like", "many", "march",
    "maybe", "me", "meanwhile", "monday", "more", "most", "mr", "mrs", "ms", "much", "my", "next", "no", "none",
    "nor", "not", "note", "november", "now", "october", "of", "ok", "okay", "on", "once", "one", "only", "or",
    "other", "otherwise", "our", "out", "over", "per", "perhaps", "please", "regarding", "same", "saturday",
    "september", "she", "should", "since", "so", "some", "sorry", "step", "such", "sunday", "sure", "than",
    "thank", "thanks", "that", "that's", "the", "their", "them", "then", "there", "therefore", "these", "they",
    "this", "those", "though", "thursday", "to", "today", "tomorrow", "tonight", "total", "tuesday", "two",
    "under", "unfortunately", "until", "up", "upon", "us", "using", "very", "was", "we", "we'll", "we're",
    "wednesday", "welcome", "well", "were", "what", "what's", "when", "where", "which", "while", "who", "why",
    "will", "with", "within", "without", "would", "yes", "yesterday", "yet", "you", "you're", "your",
])  # fmt: skip
_LIST_MARK = re.compile(r"[\s>*_#+•–-]*(?:\d+[.)]\s*)?[\s*_]*")


def _find_names(text: str) -> Iterator[Candidate]:
    for match in _NAME.finditer(text):
        for start, end in _name_spans(match[0], match.start()):
            if not _is_heading(text, start, end):
                yield Candidate(text[start:end], NAME, start, end, folded(text[start:end]))


def _name_spans(run: str, offset: int) -> Iterator[_Span]:
    """Parts of a run of capitalised words that are left when ordinary words cut it: two words or more."""
    start, n_words, at = 0, 0, 0
    for word in [*run.split(" "), "a"]:
        plain = word.replace("’", "'").lower().removesuffix("'s") if word.endswith(("'s", "’s")) else word.lower()
        is_ordinary = plain in _NOT_IN_NAMES or (len(word) > 3 and word.isupper())
        if is_ordinary:
            if n_words > 1:
                end = at - 1
                end -= 2 if run[:end].endswith(("'s", "’s")) else 0
                yield offset + start, offset + end
            n_words = 0
        else:
            start = at if n_words == 0 else start
            n_words += 1
        at += len(word) + 1


def _is_heading(text: str, start: int, end: int) -> bool:
    """A Markdown heading, a label before a colon, or alone on its line of a longer text."""
    line_start = text.rfind("\n", max(0, start - 120), start) + 1
    before = text[max(line_start, start - 120) : start]
    if before.startswith("#"):
        return True
    if not _LIST_MARK.fullmatch(before):
        return False
    after = text[end : end + 4].lstrip("*_ ")
    return after.startswith(":") or ((not after or after[0] == "\n") and "\n" in text)


def is_repetition(term: str) -> bool:
    """Laughter and doubled words: a term of few characters said again and again."""
    return 2 * len(set(term)) <= len(term)


def _find_terms(text: str) -> Iterator[Candidate]:
    if text.isascii():
        return
    for match in TERM_RUN.finditer(text):
        if match.end() - match.start() <= MAX_CHARS and not is_repetition(match[0]):
            yield Candidate(match[0], CJK, match.start(), match.end(), match[0])


_PARTICLES = re.compile(
    "(?:에서는|에서도|에서의|으로는|으로도|이라고|이라는|까지는|부터는|에게서|라고|라는|에서|에게|한테|으로|까지|부터|보다"
    "|처럼|마다|조차|밖에|이나|이랑|하고|께서|에는|에도|은|는|이|가|을|를|에|의|도|로|와|과|만|나|랑|야)$"
)
# Endings of verbs and polite sentences: such a word is no noun.
_VERB_ENDING = re.compile(
    "(?:다|요|죠|까|니까|는데|은데|지만|려고|면서|아서|어서|해서|하면|으면|하는|하기|했던|하게|해야|거나|도록|네|지|고)$"
)


def hangul_stem(word: str) -> str:
    """A Korean word without its particle; empty for a verb form."""
    return "" if _VERB_ENDING.search(word) else _PARTICLES.sub("", word)


def _find_stems(text: str) -> Iterator[Candidate]:
    if text.isascii():
        return
    for match in HANGUL_RUN.finditer(text):
        stem = hangul_stem(match[0]) if len(match[0]) >= MIN_HANGUL_CHARS else ""
        if MIN_HANGUL_CHARS <= len(stem) <= MAX_CHARS and not is_repetition(stem):
            yield Candidate(stem, HANGUL, match.start(), match.start() + len(stem), stem)


_FINDERS: tuple[_Finder, ...] = (
    _find_urls,
    _by_pattern(EMAIL, _EMAIL, only_with="@"),
    _by_pattern(PHONE, _PHONE),
    _by_pattern(PATH, _WINDOWS_PATH, only_with=":\\"),
    _find_paths,
    _find_files,
    *(_by_form(kind, form, key_of_parts) for kind, (forms, key_of_parts) in _FORMS.items() for form in forms),
    _find_identifiers,
    _find_numbers,
    *(_by_quotes(form) for form in _QUOTED_FORMS),
    _find_names,
    _find_terms,
    _find_stems,
)
# Keys of JSON objects are schema, not facts.
_JSON_KEY = re.compile(r"""(["'])(?<![^\s{,\[].)[A-Za-z_$][\w$.-]{0,60}\1\s?:""")


def _masked(text: str, spans: Iterable[_Span]) -> str:
    parts: list[str] = []
    at = 0
    for start, end in spans:
        parts += (text[at:start], _MASK * (end - start))
        at = end
    return "".join([*parts, text[at:]])


def candidates(text: str) -> list[Candidate]:
    """The candidates of a text in order of place; no two overlap, the earlier class owns a span (WB-RET-01a)."""
    normal, places = normalised(text)
    if '":' in normal or "':" in normal or '" :' in normal:
        normal = _masked(normal, [match.span() for match in _JSON_KEY.finditer(normal)])
    found: list[Candidate] = []
    for finder in _FINDERS:
        if new := list(finder(normal)):
            normal = _masked(normal, [(one.start, one.end) for one in new])
            found += new
    found.sort(key=lambda one: one.start)
    if places is not None:
        found = [one._replace(start=places[one.start], end=places[one.end]) for one in found]
    return found
