"""A question turned into search queries, and a plain word score for when the index knows nothing.

In: the text a model searches for. Out: the queries to try in order (ASM-OND-13), keywords (ASM-OND-14) and the
lexical score of a text (ASM-OND-12). The word lists are this project's own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from workbench.store.search import query_terms

MIN_KEYWORD_CHARS = 3
MIN_LEXICAL_SCORE = 0.45
PHRASE_BONUS = 0.75
SEVERAL_BONUS = 0.15

_MANY_KEYWORDS = 8
_KEPT_PER_END = 4
_MAX_WINDOWS = 3

_TOKEN = re.compile(r"[^\W_]+")
_CLAUSE_END = re.compile(r"[,;]| and | or ", re.IGNORECASE)
_CLAUSE_EDGE = " .?!:。？！："

# Words of questions and of talk about talk: they say that something is wanted, not what. Shorter ones fall anyway.
_STOP_WORDS = """
the this that these those there here
and but for nor yet with without from into onto over under about after before during than then
are was were been being has had have having does did doing done can could may might must shall should will would not
you your yours she her hers him his they them their theirs our ours its mine who whom whose
what when where which why how whether
please tell show give find recall remember remind mention mentioned say says said talk talked discuss discussed
discussion conversation session summary summarize earlier previously again
any some all also just only very
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())

# What a question starts with before it comes to its subject; longest first.
_LEAD_INS = """
can you find|can you tell me|could you find|do we know|do you know|do you remember|find out|give me|how did|how do we
how does|how much is|how much was|please find|remind me of|search for|show me|tell me about|tell me|what about|what are
what did|what do we know about|what does|what is|what was|what were|when did|when is|when was|where did|where is
where was|which of|who is|who said|who was|why did|why was
"""
LEAD_INS = tuple(sorted(_LEAD_INS.strip().replace("\n", "|").split("|"), key=len, reverse=True))


def keywords(text: str) -> list[str]:
    """The words of a text that say what it is about: lower case, each once, in order (ASM-OND-14)."""
    tokens = (token.lower() for token in _TOKEN.findall(text))
    return list(dict.fromkeys(token for token in tokens if _says_something(token)))


def _says_something(token: str) -> bool:
    long_enough = len(token) >= MIN_KEYWORD_CHARS or any(map(str.isdigit, token))
    return long_enough and token not in STOP_WORDS


def search_queries(text: str) -> list[str]:
    """What to search for, best first: the question, its clauses with their keywords, keywords alone (ASM-OND-13)."""
    question = " ".join(text.split())
    if not question:
        return []
    return list(dict.fromkeys([question, *_clause_queries(question), *_keyword_queries(question)]))


def is_compound(query: str) -> bool:
    """The query asks for several things at once: it holds a comma, a semicolon, an "and" or an "or"."""
    return _CLAUSE_END.search(query) is not None


def needs_broadening(query: str, n_found: int, n_wanted: int) -> bool:
    """The first query alone doesn't do: nothing found, or too little of it (ASM-OND-13)."""
    if not n_found:
        return True
    if n_found >= n_wanted:
        return False
    return is_compound(query) or n_found < min(2, n_wanted)


def _clause_queries(question: str) -> list[str]:
    clauses = [clause for clause in _CLAUSE_END.split(question) if clause]
    if len(clauses) < 2:
        return []
    queries: list[str] = []
    for clause in clauses:
        subject = " ".join(without_lead_in(clause).strip(_CLAUSE_EDGE).split())
        queries += [subject, " ".join(keywords(subject))]
    return [query for query in queries if query]


def without_lead_in(clause: str) -> str:
    """A clause without the words that only introduce it: "what did Ada decide" gives "Ada decide"."""
    clause = clause.strip()
    lower = clause.lower()
    for lead_in in LEAD_INS:
        if lower.startswith(lead_in + " "):
            return clause[len(lead_in) :].strip()
    return clause


def _keyword_queries(question: str) -> list[str]:
    words = keywords(question)
    if len(words) > _MANY_KEYWORDS:
        words = words[:_KEPT_PER_END] + words[-_KEPT_PER_END:]
    whole = " ".join(words)
    if not whole or whole == question:
        return []
    size = 4 if len(words) >= 5 else 3
    n_windows = min(max(len(words) - size + 1, 0), _MAX_WINDOWS)
    return [whole, *(" ".join(words[start : start + size]) for start in range(n_windows))]


# --- the lexical score --------------------------------------------------------------------------------


def plain(text: str) -> str:
    """A text as the lexical score compares it: lower case, blanks made one."""
    return " ".join(text.split()).lower()


def scan_terms(query: str) -> list[str]:
    """The words that a scan counts: the keywords, or every token of a query that has none."""
    return keywords(query) or list(dict.fromkeys(_TOKEN.findall(plain(query))))


def scan_pairs(query: str) -> list[str]:
    """Words and character pairs of a query with Chinese, Japanese or Korean in it; none for other queries.

    A whole sentence is one token in these scripts, so its keywords would hardly ever be found again.
    """
    if all(len(query_terms(token)) < 2 for token in _TOKEN.findall(query)):
        return []
    return list(dict.fromkeys(term for term in query_terms(query) if term not in STOP_WORDS))


def lexical_score(phrase: str, terms: Sequence[str], text: str) -> float:
    """Share of the terms that the text holds, more if it holds the whole phrase or several terms (ASM-OND-12).

    Args:
        phrase: The query, made `plain`.
        text: The text to score, made `plain`.
    Returns:
        0 for a text that doesn't count as a hit.
    """
    n_matched = sum(term in text for term in terms)
    if not n_matched:
        return 0.0
    score = n_matched / len(terms)
    if phrase and phrase in text:
        score += PHRASE_BONUS
    if n_matched >= min(2, len(terms)):
        score += SEVERAL_BONUS
    return score if score >= MIN_LEXICAL_SCORE else 0.0
