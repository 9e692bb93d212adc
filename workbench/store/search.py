"""Windows and ranking over lists of events: what a store needs to be searchable, without any I/O of its own.

In: raw stored events of sessions, a request, for dense search also vectors. Out: the window around an anchor,
or results in order of fit. Keyword ranking needs no word lists: words of most scripts as they stand, runs of
Chinese, Japanese and Korean as overlapping pairs of characters. Implements SUM-WIN-01 to -03 and SUM-SCH-01
to -04; keeping an index up to date (SUM-SCH-05) is `store/indexing.py`.
"""

from __future__ import annotations

import logging
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from operator import mul
from typing import Protocol

from workbench.errors import ConfigError, EventWindowAnchorNotFoundError
from workbench.session.recall_types import (
    DEFAULT_CANDIDATE_RATIO,
    DEFAULT_MAX_RESULTS,
    DEFAULT_RRF_K,
    HISTORY_ROLES,
    SEARCH_MODES,
    EventSearchRequest,
    EventSearchResult,
    EventWindow,
    EventWindowEntry,
    EventWindowRequest,
    HistoryText,
    history_texts,
)
from workbench.session.scope import event_matches
from workbench.session.types import Event, SessionKey

logger = logging.getLogger(__name__)

Vector = Sequence[float]
IndexTextBuilder = Callable[[Event, str], str]
"""May rewrite the text to be indexed, or answer a blank one to leave it out (SUM-SCH-05)."""


class Embedder(Protocol):
    """Whoever turns texts into vectors: a provider's model, a local one, `HashEmbedder`."""

    dimension: int
    """Numbers per vector."""

    async def embed(self, texts: Sequence[str]) -> Sequence[Vector]:
        """One vector per text, in order."""
        ...


# --- windows ------------------------------------------------------------------------------------------


def is_history(event: Event, roles: Iterable[str] = (), *, first_choice_only: bool = False) -> bool:
    """The event has a text that counts as history, in one of `roles` (none given: any) (SUM-WIN-02)."""
    wanted = frozenset(roles) or HISTORY_ROLES
    return any(text.role in wanted for text in history_texts(event, first_choice_only=first_choice_only))


def event_window(
    events: Sequence[Event],
    request: EventWindowRequest,
    *,
    created_ns: Callable[[Event], int] | None = None,
    first_choice_only: bool = False,
) -> EventWindow:
    """The history events around an anchor, in stored order (SUM-WIN-01 to -03).

    Args:
        events: Raw stored events of the session that `request.key` names, oldest first.
        created_ns: When an event was stored, where that isn't its own time.
    Raises:
        EventWindowAnchorNotFoundError: the anchor isn't there, or isn't history of the roles asked for.
    """
    request.check()
    roles = frozenset(request.roles) or frozenset(HISTORY_ROLES)

    def counts(event: Event) -> bool:
        return is_history(event, roles, first_choice_only=first_choice_only)

    anchor_id = request.anchor_event_id.strip()
    anchor = next((i for i in range(len(events) - 1, -1, -1) if events[i].id == anchor_id), None)
    if anchor is None or not counts(events[anchor]):
        raise anchor_not_found()
    earlier = _take(events, range(anchor - 1, -1, -1), request.before, counts)
    later = _take(events, range(anchor + 1, len(events)), request.after, counts)
    time_of = created_ns or (lambda event: event.time_ns)
    window = [*reversed(earlier), events[anchor], *later]
    return EventWindow(request.key, anchor_id, tuple(EventWindowEntry(event, time_of(event)) for event in window))


def _take(events: Sequence[Event], indexes: range, n_wanted: int, counts: Callable[[Event], bool]) -> list[Event]:
    """The first `n_wanted` events on the way along `indexes` that count."""
    taken: list[Event] = []
    for i in indexes:
        if len(taken) >= n_wanted:
            break
        if counts(events[i]):
            taken.append(events[i])
    return taken


def anchor_not_found() -> EventWindowAnchorNotFoundError:
    """The one error for a missing anchor and a missing session, so that it doesn't tell which ids exist (SEC-11)."""
    return EventWindowAnchorNotFoundError(
        "no message of this session's history has that event id",
        hint="take event_id and session_id from a search hit or a placeholder",
    )


# --- terms --------------------------------------------------------------------------------------------

# Scripts written without blanks between words, and Hangul, whose words carry endings: ideographs with their
# iteration marks, kana with the length mark, Hangul syllables and letters. NFKC has unified widths before.
_CJK = (
    "\u3005-\u3007\u3041-\u3096\u3099\u309a\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\U00020000-\U0003ffff\u1100-\u11ff\u3131-\u318e\uac00-\ud7a3"
)
_RUN = re.compile(rf"([{_CJK}]+)|[^\W_{_CJK}]+")


def query_terms(text: str) -> list[str]:
    """The terms that a query asks for, in order: words without case, pairs of neighbours in a CJK run.

    A CJK character that stands alone is a term of its own.
    """
    return _terms(text)[0]


def document_terms(text: str) -> Counter[str]:
    """How often each term occurs in a text that can be found: `query_terms`, and every CJK character alone."""
    terms, characters = _terms(text)
    return Counter(terms + characters)


def _terms(text: str) -> tuple[list[str], list[str]]:
    """Words and pairs; and the single characters of the runs that were cut into pairs."""
    terms: list[str] = []
    characters: list[str] = []
    for match in _RUN.finditer(unicodedata.normalize("NFKC", text).casefold()):
        run = match[0]
        if match[1] is None or len(run) == 1:
            terms.append(run)
        else:
            terms.extend(map("".join, pairwise(run)))
            characters.extend(run)
    return terms, characters


# --- documents ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class IndexedText:
    """One text that can be found, with what ranking needs of it."""

    session_key: SessionKey
    event: Event
    history: HistoryText
    text: str
    """The text as indexed: labelled with the tool's name, or what a builder made of it."""
    session_created_ns: int = 0
    vector: Vector | None = None
    norm: float = 0.0
    """Length of the vector; 0 = not measured yet."""
    terms: Mapping[str, int] = field(default_factory=dict)
    n_terms: int = 0
    """Length of the text in words and CJK pairs."""

    def with_vector(self, vector: Vector | None) -> IndexedText:
        """A copy that dense search can find."""
        return replace(self, vector=vector, norm=0.0 if vector is None else vector_norm(vector))


def indexed_texts(
    key: SessionKey,
    event: Event,
    *,
    session_created_ns: int = 0,
    text_builder: IndexTextBuilder | None = None,
    first_choice_only: bool = False,
) -> tuple[IndexedText, ...]:
    """What of an event is indexed: user and assistant texts and tool results; often one, sometimes none (SUM-SCH-02)."""
    indexed: list[IndexedText] = []
    for history in history_texts(event, first_choice_only=first_choice_only):
        text = history.labelled if text_builder is None else text_builder(event, history.labelled)
        if text.strip():
            terms, characters = _terms(text)
            counts = Counter(terms + characters)
            indexed.append(IndexedText(key, event, history, text, session_created_ns, terms=counts, n_terms=len(terms)))
    return tuple(indexed)


def matching(request: EventSearchRequest, texts: Iterable[IndexedText]) -> list[IndexedText]:
    """The texts that a request may find, whatever its query says (SUM-SCH-01)."""
    return [text for text in texts if _may_be_found(text, request)]


def _may_be_found(text: IndexedText, request: EventSearchRequest) -> bool:
    key, created_ns = text.session_key, text.event.time_ns
    return (
        key.user_id == request.user_key.user_id
        and key.app_name == request.user_key.app_name
        and (not request.session_ids or key.session_id in request.session_ids)
        and key.session_id not in request.exclude_session_ids
        and (not request.roles or text.history.role in request.roles)
        and (not request.created_after_ns or created_ns >= request.created_after_ns)
        and (not request.created_before_ns or created_ns <= request.created_before_ns)
        and event_matches(text.event, request.filter_key)
    )


# --- ranking ------------------------------------------------------------------------------------------

Ranking = list[tuple[IndexedText, float]]
"""Texts with their scores, best first, newest first among equals."""

# The usual constants of BM25: how soon repetition stops to count, and how much length does.
_SATURATION = 1.2
_LENGTH_WEIGHT = 0.75


def vector_norm(vector: Vector) -> float:
    """Length of a vector."""
    return math.sqrt(sum(map(mul, vector, vector)))


def cosine_similarity(left: Vector, right: Vector, *, norms: float = 0.0) -> float:
    """1 - cosine distance; 0 when either vector has no length or they have different dimensions.

    Args:
        norms: Product of the two lengths, where it's known already.
    """
    norms = norms or vector_norm(left) * vector_norm(right)
    if not norms or len(left) != len(right):
        return 0.0
    return float(sum(map(mul, left, right))) / norms


def dense_ranking(query_vector: Vector, texts: Iterable[IndexedText], *, min_score: float, limit: int) -> Ranking:
    """Texts by similarity to the query, those under `min_score` left out (SUM-SCH-04)."""
    query_norm = vector_norm(query_vector)
    scored = [
        (text, cosine_similarity(query_vector, text.vector, norms=query_norm * text.norm))
        for text in texts
        if text.vector is not None
    ]
    return _best([(text, score) for text, score in scored if score >= min_score], limit)


def keyword_ranking(query: str, texts: Sequence[IndexedText], *, limit: int) -> Ranking:
    """Texts by BM25 over the terms they share with the query; texts that share none are left out."""
    wanted = dict.fromkeys(query_terms(query))
    if not wanted or not texts:
        return []
    mean_terms = sum(text.n_terms for text in texts) / len(texts) or 1.0
    scores: dict[int, float] = {}
    for term in wanted:
        found = [(i, n) for i, text in enumerate(texts) if (n := text.terms.get(term, 0))]
        # Never negative, so that a term which most texts have still counts a little.
        rarity = math.log1p((len(texts) - len(found) + 0.5) / (len(found) + 0.5))
        for i, n in found:
            length = 1 - _LENGTH_WEIGHT + _LENGTH_WEIGHT * texts[i].n_terms / mean_terms
            scores[i] = scores.get(i, 0.0) + rarity * n * (_SATURATION + 1) / (n + _SATURATION * length)
    return _best([(texts[i], score) for i, score in scores.items()], limit)


def _best(scored: Ranking, limit: int) -> Ranking:
    scored.sort(key=lambda item: (-item[1], -item[0].event.time_ns))
    return scored[:limit]


def fused(dense: Ranking, keyword: Ranking, *, rrf_k: int, limit: int) -> Ranking:
    """Both rankings as one: each gives `1 / (k + rank)`, ranks from 1; ties newest first (SUM-SCH-04)."""
    scores: dict[IndexedText, float] = {}
    for ranking in (dense, keyword):
        for place, (text, _) in enumerate(ranking, 1):
            scores[text] = scores.get(text, 0.0) + 1 / (rrf_k + place)
    return _best(list(scores.items()), limit)


# --- the whole search ---------------------------------------------------------------------------------


async def ranked_search(
    request: EventSearchRequest, texts: Iterable[IndexedText], embedder: Embedder | None
) -> list[EventSearchResult]:
    """What fits the request, best first (SUM-SCH-01 to -04).

    Args:
        texts: Everything that is indexed and alive; the request's own filters are applied here.
    Raises:
        InvalidSessionKeyError: the request names no application or no user.
        ConfigError: an unknown search mode, or no embedder.
    """
    request.check()
    if not request.query.strip():
        return []
    embedder = checked_embedder(request, embedder)
    candidates = matching(request, texts)
    if not candidates:
        return []
    query_vector = (await embedder.embed([request.query]))[0]
    return rank(request, candidates, query_vector)


def checked_embedder(request: EventSearchRequest, embedder: Embedder | None) -> Embedder:
    """Whoever embeds the query; `ConfigError` when there is nobody, and for an unknown mode (SUM-SCH-03)."""
    if request.search_mode not in SEARCH_MODES:
        raise ConfigError.for_field("search_mode", request.search_mode, ", ".join(SEARCH_MODES))
    if embedder is None:
        raise ConfigError(
            "search needs an embedder and none is configured",
            field="embedder",
            hint="give the service an embedder; HashEmbedder works without a model",
        )
    return embedder


def rank(
    request: EventSearchRequest,
    candidates: Sequence[IndexedText],
    query_vector: Vector,
    *,
    by_keywords: Callable[..., Ranking] = keyword_ranking,
) -> list[EventSearchResult]:
    """Results of a dense or hybrid search over texts that passed the request's filters.

    Args:
        by_keywords: The keyword part; a store with a ranking of its own gives it here. When it fails, a
            warning is logged and the dense part answers alone.
    """
    n_results = request.max_results if request.max_results > 0 else DEFAULT_MAX_RESULTS
    if request.search_mode == "dense":
        dense = dense_ranking(query_vector, candidates, min_score=request.min_score, limit=n_results)
        return [_result(text, score, dense_score=score) for text, score in dense]
    ratio = request.hybrid_candidate_ratio if request.hybrid_candidate_ratio > 0 else DEFAULT_CANDIDATE_RATIO
    dense = dense_ranking(query_vector, candidates, min_score=request.min_score, limit=n_results * ratio)
    try:
        keyword = by_keywords(request.query, candidates, limit=n_results * ratio)
    except Exception:
        logger.warning("the keyword part of a hybrid search failed; dense results only", exc_info=True)
        return [_result(text, score, dense_score=score) for text, score in dense[:n_results]]
    rrf_k = request.hybrid_rrf_k if request.hybrid_rrf_k > 0 else DEFAULT_RRF_K
    dense_scores, sparse_scores = dict(dense), dict(keyword)
    return [
        _result(text, score, dense_score=dense_scores.get(text, 0.0), sparse_score=sparse_scores.get(text, 0.0))
        for text, score in fused(dense, keyword, rrf_k=rrf_k, limit=n_results)
    ]


def _result(
    text: IndexedText, score: float, *, dense_score: float = 0.0, sparse_score: float = 0.0
) -> EventSearchResult:
    return EventSearchResult(
        text.session_key,
        text.event,
        text.event.time_ns,
        text.history.role,
        text.history.labelled,
        score,
        dense_score=dense_score,
        sparse_score=sparse_score,
        session_created_ns=text.session_created_ns,
        choice=text.history.choice,
    )
