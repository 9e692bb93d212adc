"""session_search: finds old messages of the same application and user.

In: a run and what the model sent. Out: hits with snippets, the first ones with the messages around them.
The service ranks; this module chooses the scope, asks again in other words when too little comes back, and
reads the current session itself when the index knows nothing. Implements ASM-OND-10, -12, -13, -15 and -16.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace

from workbench.clock import text_from_ns
from workbench.context.recall.load import n_bytes, whole_messages
from workbench.context.recall.queries import (
    lexical_score,
    needs_broadening,
    plain,
    scan_pairs,
    scan_terms,
    search_queries,
)
from workbench.context.recall.run import (
    RecallRun,
    hidden_boundary,
    hidden_events,
    in_session,
    is_hidden,
    stored_events,
)
from workbench.context.recall.types import (
    ALL_SESSIONS,
    CURRENT_HIDDEN,
    CURRENT_SESSION,
    OTHER_SESSIONS,
    Arguments,
    Scope,
    SearchSessionHit,
    SearchSessionRequest,
    SearchSessionResponse,
)
from workbench.errors import RecallError
from workbench.model.types import TOOL
from workbench.session.recall_types import (
    HISTORY_ROLES,
    EventSearchRequest,
    EventSearchResult,
    EventWindow,
    EventWindowRequest,
    HistoryText,
    history_texts,
    supports_search,
    supports_windows,
)
from workbench.session.scope import event_matches
from workbench.session.types import Event, Session, UserKey

logger = logging.getLogger(__name__)

MAX_SCANNED_EVENTS = 10_000
HITS_WITH_CONTEXT = 2
CONTEXT_BEFORE = 2
CONTEXT_AFTER = 2
MAX_SNIPPET_CHARS = 280
MAX_SNIPPET_LINE_CHARS = 96
MATCH_MARK = "[match] "
EMPTY_SNIPPET = "<empty>"
ELLIPSIS = "..."

Results = list[EventSearchResult]


async def session_search(run: RecallRun | None, arguments: Arguments) -> SearchSessionResponse:
    """Hits for what the model asks, best first; none for a blank query.

    Raises:
        RecallError: outside a run, no session, a service that can't search, or arguments that aren't an object.
    """
    run, session = in_session(run)
    if not supports_search(run.service):
        raise RecallError("this session service can't search", hint="offer session_search only where it can")
    request = SearchSessionRequest.parse(arguments)
    if not request.query:
        return SearchSessionResponse(query="", scope=CURRENT_HIDDEN, results=(), count=0)
    results = await _Search(run, session, request).results()
    hits: list[SearchSessionHit] = []
    for result in results:
        if result.event.id.strip():
            window = await _window_around(run, result) if len(hits) < HITS_WITH_CONTEXT else None
            hits.append(_hit(run, session, request.scope, result, window))
    return SearchSessionResponse(query=request.query, scope=request.scope, results=tuple(hits), count=len(hits))


# --- scopes -------------------------------------------------------------------------------------------


class _Search:
    """One search: the scopes of ASM-OND-10 over one service."""

    def __init__(self, run: RecallRun, session: Session, request: SearchSessionRequest) -> None:
        self._run = run
        self._session = session
        self._request = request
        self._first_choice_only = run.profile.search_first_choice_only
        # Application and user are the run's own, whatever the model sent (SEC-11).
        self._base = EventSearchRequest(
            query=request.query,
            user_key=UserKey(session.app_name, session.user_id),
            max_results=request.top_k,
            min_score=request.min_score,
            filter_key=run.filter_key,
            roles=HISTORY_ROLES,
            search_mode=request.search_mode,
        )

    async def results(self) -> Results:
        scopes: dict[Scope, Callable[[], Awaitable[Results]]] = {
            CURRENT_HIDDEN: self._current_hidden,
            CURRENT_SESSION: self._current_session,
            OTHER_SESSIONS: self._other_sessions,
            ALL_SESSIONS: self._all_sessions,
        }
        return await scopes[self._request.scope]()

    async def _current_session(self) -> Results:
        found = await self._broadened(replace(self._base, session_ids=(self._session.id,)))
        if found:
            return found
        return self._scan(await stored_events(self._run, self._session, self._session.key))

    async def _current_hidden(self) -> Results:
        boundary = hidden_boundary(self._session, self._run.filter_key)
        if boundary is None:
            return []
        request = replace(self._base, session_ids=(self._session.id,), created_before_ns=boundary.cutoff_ns)
        found = [
            result
            for result in await self._broadened(request)
            if is_hidden(self._session, boundary, result.event, _created_ns(result))
        ]
        if found:
            return found
        stored = await stored_events(self._run, self._session, self._session.key)
        return self._scan(hidden_events(stored, boundary))

    async def _other_sessions(self) -> Results:
        return await self._broadened(replace(self._base, exclude_session_ids=(self._session.id,)))

    async def _all_sessions(self) -> Results:
        hidden = await self._current_hidden()
        return merged(hidden, await self._other_sessions())[: self._request.top_k]

    # --- asking the service ---------------------------------------------------------------------------

    async def _broadened(self, request: EventSearchRequest) -> Results:
        """Ask with the whole question, then with parts of it while too little has come back (ASM-OND-13)."""
        question, *other_queries = search_queries(request.query)
        found = merged([], await self._ask(request, question))
        if not needs_broadening(question, len(found), request.max_results):
            return found[: request.max_results]
        question_failed = not found
        for query in other_queries:
            found = merged(found, await self._ask(request, query))
            if len(found) >= request.max_results or (question_failed and found):
                break
        return found[: request.max_results]

    async def _ask(self, request: EventSearchRequest, query: str) -> Results:
        asked = replace(request, query=query)
        results = await self._run.service.search_events(asked, ctx=self._run.ctx)
        return [result for result in results if _is_allowed(result, asked)]

    # --- reading the session --------------------------------------------------------------------------

    def _scan(self, events: Sequence[Event]) -> Results:
        """Hits by shared words, for sessions that aren't indexed yet (ASM-OND-12)."""
        candidates = [
            (event, text, plain(text.labelled))
            for event in events[-MAX_SCANNED_EVENTS:]
            if event_matches(event, self._run.filter_key)
            for text in history_texts(event, first_choice_only=self._first_choice_only)
        ]
        top_k = self._request.top_k
        found: Results = []
        for query in search_queries(self._request.query):
            found = merged(found, self._scored(candidates, plain(query), scan_terms(query)))[:top_k]
            if len(found) >= top_k:
                return found
        # The references stop here, and so find no sentence that is written without blanks.
        if not found and not self._run.profile.reference_quirks:
            query = self._request.query
            found = merged([], self._scored(candidates, plain(query), scan_pairs(query)))
        return found[:top_k]

    def _scored(
        self, candidates: Iterable[tuple[Event, HistoryText, str]], phrase: str, terms: Sequence[str]
    ) -> Results:
        return [
            EventSearchResult(
                self._session.key,
                event,
                event.time_ns,
                text.role,
                text.labelled,
                score,
                sparse_score=score,
                session_created_ns=self._session.created_ns,
                choice=text.choice,
            )
            for event, text, folded in candidates
            if (score := lexical_score(phrase, terms, folded))
        ]


def _is_allowed(result: EventSearchResult, request: EventSearchRequest) -> bool:
    """The result belongs where the request looks; a service that answers with more doesn't get it through (SEC-11)."""
    key = result.session_key
    return (
        UserKey(key.app_name, key.user_id) == request.user_key
        and (not request.session_ids or key.session_id in request.session_ids)
        and key.session_id not in request.exclude_session_ids
    )


def merged(found: Iterable[EventSearchResult], more: Iterable[EventSearchResult]) -> Results:
    """Both lists as one: each hit once with its higher score, best first, newest first among equals."""
    best: dict[tuple[str, str, int], EventSearchResult] = {}
    for result in (*found, *more):
        known = best.get(result.identity)
        if known is None or result.score > known.score:
            best[result.identity] = result
    return sorted(best.values(), key=lambda result: (-result.score, -_created_ns(result)))


def _created_ns(result: EventSearchResult) -> int:
    return result.created_ns or result.event.time_ns


# --- hits ---------------------------------------------------------------------------------------------


async def _window_around(run: RecallRun, result: EventSearchResult) -> EventWindow | None:
    """The messages around a hit; None where the service can't tell, for whatever reason (ASM-OND-16)."""
    if not supports_windows(run.service):
        return None
    request = EventWindowRequest(
        result.session_key, result.event.id, before=CONTEXT_BEFORE, after=CONTEXT_AFTER, roles=HISTORY_ROLES
    )
    try:
        window: EventWindow = await run.service.get_event_window(request, ctx=run.ctx)
    except Exception:
        logger.debug("no window around a search hit", exc_info=True)
        return None
    return window


def _hit(
    run: RecallRun, session: Session, scope: Scope, result: EventSearchResult, window: EventWindow | None
) -> SearchSessionHit:
    text = _text_found(result, first_choice_only=run.profile.search_first_choice_only)
    labelled = result.text.strip() or (text.labelled if text else "")
    is_tool = text is not None and text.role == TOOL
    created_ns = _created_ns(result)
    return SearchSessionHit(
        scope=_hit_scope(result, session, scope),
        session_id=result.session_key.session_id,
        event_id=result.event.id.strip(),
        created=text_from_ns(created_ns) if created_ns else "",
        role=result.role or (text.role if text else ""),
        score=result.score,
        snippet=_window_snippet(run, result, window) or cut(labelled, MAX_SNIPPET_CHARS) or EMPTY_SNIPPET,
        context=whole_messages(window.entries) if window is not None else (),
        tool_call_id=text.tool_call_id if text else "",
        tool_name=text.tool_name if text else "",
        content_bytes=n_bytes(text.text) if text and is_tool else 0,
        content_truncated=bool(text and is_tool and len(text.labelled) > MAX_SNIPPET_CHARS),
    )


def _hit_scope(result: EventSearchResult, session: Session, requested: Scope) -> Scope:
    if result.session_key.session_id != session.id:
        return OTHER_SESSIONS
    return CURRENT_SESSION if requested == CURRENT_SESSION else CURRENT_HIDDEN


def _text_found(result: EventSearchResult, *, first_choice_only: bool) -> HistoryText | None:
    """The text of the event that was found; the first one where the service doesn't say which."""
    texts = history_texts(result.event, first_choice_only=first_choice_only)
    return next((text for text in texts if text.choice == result.choice), texts[0] if texts else None)


def _window_snippet(run: RecallRun, result: EventSearchResult, window: EventWindow | None) -> str:
    """The window as lines `role: text`, the one that was found marked."""
    lines: list[str] = []
    for entry in window.entries if window is not None else ():
        for text in history_texts(entry.event, first_choice_only=run.profile.search_first_choice_only):
            found = entry.event.id == result.event.id and text.choice == result.choice
            mark = MATCH_MARK if found else ""
            lines.append(f"{mark}{text.role}: {cut(text.labelled, MAX_SNIPPET_LINE_CHARS)}")
    return _cut_end("\n".join(lines), MAX_SNIPPET_CHARS)


def cut(text: str, max_chars: int) -> str:
    """A text in one line and at most so many characters; a cut one ends in `...`, which counts."""
    return _cut_end(" ".join(text.split()), max_chars)


def _cut_end(text: str, max_chars: int) -> str:
    return text if len(text) <= max_chars else text[: max_chars - len(ELLIPSIS)] + ELLIPSIS
