"""The session service: sessions, events, state and summaries over any store.

In: calls of an application or of the runner. Out: stored events, and summaries that are made when their
checks say so. The rules are here, once for all stores; a store only keeps things. Works in any asyncio
program and, under a virtual loop, in a replay. Implements summary.md section 14.1 and SUM-STO-02,
-06, -07; `workbench.service.summaries` has the rest of section 14.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self
from uuid import uuid4

from workbench.call import EMPTY_CONTEXT, CallContext
from workbench.clock import NS_PER_S, Clock, SystemClock
from workbench.errors import (
    EventWindowAnchorNotFoundError,
    PagingError,
    StateKeyError,
)
from workbench.profiles import SEED, Profile
from workbench.service.settings import ServiceSettings
from workbench.service.summaries import SummaryObserver, SummaryRuns, check_session_key
from workbench.session.recall_types import (
    SEARCH_MODES,
    EventSearchRequest,
    EventSearchResult,
    EventWindow,
    EventWindowRequest,
)
from workbench.session.types import (
    STATE_PREFIX_APP,
    STATE_PREFIX_TEMP,
    STATE_PREFIX_USER,
    Event,
    Session,
    SessionKey,
    State,
    UserKey,
)
from workbench.store.base import SessionStore
from workbench.store.indexing import HashEmbedder
from workbench.store.search import Embedder, IndexedText, event_window, indexed_texts, ranked_search
from workbench.summary.summarizer import SessionSummarizer

logger = logging.getLogger(__name__)


# --- hooks and observers -----------------------------------------------------------------------------


@dataclass(slots=True)
class AppendEventContext:
    """What an append hook sees; it may put another event here before it calls `next` (SUM-SVC-05)."""

    session: Session
    event: Event
    ctx: CallContext


@dataclass(slots=True)
class GetSessionContext:
    """What a get hook sees; after `next` the session is there and may be replaced."""

    key: SessionKey
    ctx: CallContext
    session: Session | None = None


NextStep = Callable[[], Awaitable[None]]
AppendEventHook = Callable[[AppendEventContext, NextStep], Awaitable[None]]
GetSessionHook = Callable[[GetSessionContext, NextStep], Awaitable[None]]


# --- the service -------------------------------------------------------------------------------------


class SessionService(SummaryRuns):
    """Sessions over one store, with background summaries.

    Args:
        store: Where everything is kept.
        settings: Workers, queue, limits, TTLs, allowlist, cascade.
        summarizer: Makes the summaries; None switches them off (SUM-SVC-02).
        append_event_hooks: Chain around `append_event`; the first is outermost.
        get_session_hooks: The same around `get_session`.
        observer: Is told of checks and attempts (used by replays and metrics).
        supports_windows: Offer event windows to on-demand history.
        supports_search: Offer event search to on-demand history.
        embedder: Gives texts vectors for `dense` and `hybrid` search; None searches by keywords.
    """

    def __init__(
        self,
        store: SessionStore,
        *,
        settings: ServiceSettings | None = None,
        summarizer: SessionSummarizer | None = None,
        append_event_hooks: Sequence[AppendEventHook] = (),
        get_session_hooks: Sequence[GetSessionHook] = (),
        clock: Clock | None = None,
        profile: Profile = SEED,
        observer: SummaryObserver | None = None,
        supports_windows: bool = True,
        supports_search: bool = True,
        embedder: Embedder | None = None,
    ) -> None:
        super().__init__(
            store,
            settings=settings if settings is not None else ServiceSettings(),
            summarizer=summarizer,
            clock=clock if clock is not None else SystemClock(),
            profile=profile,
            observer=observer,
        )
        self.supports_windows = supports_windows
        self.supports_search = supports_search
        self._embedder = embedder
        self._vectors: dict[str, Sequence[float]] = {}
        self._append_hooks = tuple(append_event_hooks)
        self._get_hooks = tuple(get_session_hooks)
        self._sweeper: asyncio.Task[None] | None = None

    # --- sessions ------------------------------------------------------------------------------------

    async def create_session(
        self, app_name: str, user_id: str, session_id: str = "", *, state: State | None = None
    ) -> Session:
        """A new session; without an id it gets a random one (SUM-SVC-11).

        Raises:
            SessionExistsError: a live session has this id.
            InvalidSessionKeyError: no application or user.
        """
        key = SessionKey(app_name, user_id, session_id if session_id.strip() else str(uuid4()))
        key.check()
        now_ns = self._clock.now_ns()
        session = Session(
            app_name=app_name,
            user_id=user_id,
            id=key.session_id,
            state=dict(state or {}),
            created_ns=now_ns,
            updated_ns=now_ns,
        )
        await self.store.create(session, expires_ns=self._expiry(self.settings.session_ttl_s), now_ns=now_ns)
        self._start_sweeper()
        await self._merge_outer_state(session, now_ns)
        return session

    async def get_session(
        self,
        key: SessionKey,
        *,
        event_num: int = 0,
        event_time_ns: int = 0,
        offset: int | None = None,
        limit: int | None = None,
        ctx: CallContext = EMPTY_CONTEXT,
    ) -> Session | None:
        """The session with the view of its events that a run reads, or None (SUM-SVC-07 to -09).

        Args:
            event_num: Only the newest so many; 0 = the service's limit.
            event_time_ns: Only events at or after this moment.
            offset: Page start, counted from the newest event; pages skip the user-first rule.
            limit: Page size.
        """
        key.check()
        pages = offset is not None or limit is not None
        if pages and (event_num or event_time_ns):
            raise PagingError("event paging can't be combined with a count or time filter")
        if (offset or 0) < 0 or (limit is not None and limit < 0) or event_num < 0:
            raise PagingError("offset, limit and event_num must be 0 or more")
        context = GetSessionContext(key, ctx)

        async def read() -> None:
            session = await self.store.load(key, now_ns=self._clock.now_ns())
            if session is not None:
                if pages:
                    _keep_page(session, offset or 0, limit)
                else:
                    _keep_view(session, event_num or self.settings.event_limit, event_time_ns)
                await self._merge_outer_state(session, self._clock.now_ns())
            context.session = session

        await _run_chain(self._get_hooks, context, read)
        return context.session

    async def list_events(self, key: SessionKey) -> list[Event]:
        """All stored events, oldest first, without any view."""
        key.check()
        return await self.store.list_events(key, now_ns=self._clock.now_ns())

    async def list_sessions(self, user: UserKey, *, offset: int = 0, limit: int | None = None) -> list[Session]:
        """The user's sessions without events, newest first, then by id from the back (SUM-SVC-09)."""
        SessionKey(user.app_name, user.user_id, "-").check()
        if offset < 0 or (limit is not None and limit < 0):
            raise PagingError("offset and limit must be 0 or more")
        now_ns = self._clock.now_ns()
        sessions = await self.store.list_sessions(user, now_ns=now_ns)
        sessions.sort(key=lambda session: (session.updated_ns, session.id), reverse=True)
        page = sessions[offset : None if limit is None else offset + limit]
        for session in page:
            await self._merge_outer_state(session, now_ns)
        return page

    async def delete_session(self, key: SessionKey) -> None:
        """Remove a session with its events and summaries."""
        key.check()
        await self.store.delete(key)

    async def append_event(self, session: Session, event: Event, *, ctx: CallContext = EMPTY_CONTEXT) -> Event | None:
        """Add an event to the live session and to the store (SUM-SVC-06).

        Returns:
            The event as stored (hooks may change it), None when a hook dropped it.
        Raises:
            SessionNotFoundError: the store doesn't know the session.
        """
        check_session_key(session)
        if not self._append_hooks:
            await self._append(session, event)
            return event
        context = AppendEventContext(session, event, ctx)
        stored: list[Event] = []

        async def store() -> None:
            await self._append(session, context.event)
            stored.append(context.event)

        await _run_chain(self._append_hooks, context, store)
        return stored[0] if stored else None

    async def _append(self, session: Session, event: Event) -> None:
        response = event.response
        is_stored = response is not None and not response.is_partial and response.is_valid_content
        if not is_stored and not event.state_delta:
            return
        now_ns = self._clock.now_ns()
        delta = dict(event.state_delta)
        await self.store.append(
            session.key,
            event if is_stored else None,
            state_delta=delta,
            updated_ns=now_ns,
            expires_ns=self._expiry(self.settings.session_ttl_s),
            now_ns=now_ns,
        )
        if is_stored:
            session.append(event)
        session.state.update(delta)
        session.updated_ns = now_ns

    # --- windows and search --------------------------------------------------------------------------

    async def get_event_window(self, request: EventWindowRequest, *, ctx: CallContext = EMPTY_CONTEXT) -> EventWindow:
        """Meaningful events around an anchor, from the raw stored events (SUM-WIN).

        Raises:
            EventWindowAnchorNotFoundError: the anchor isn't a message of this session.
        """
        request.check()
        now_ns = self._clock.now_ns()
        if await self.store.load(request.key, now_ns=now_ns, newest_events=1) is None:
            raise EventWindowAnchorNotFoundError(f"event {request.anchor_event_id!r} isn't in the session")
        events = await self.store.list_events(request.key, now_ns=now_ns)
        return event_window(events, request, first_choice_only=self.profile.search_first_choice_only)

    async def search_events(
        self, request: EventSearchRequest, *, ctx: CallContext = EMPTY_CONTEXT
    ) -> Sequence[EventSearchResult]:
        """Events of a user's sessions that match a query, best first (SUM-SCH)."""
        now_ns = self._clock.now_ns()
        texts: list[IndexedText] = []
        for session in await self.store.list_sessions(request.user_key, now_ns=now_ns):
            if request.session_ids and session.id not in request.session_ids:
                continue
            if session.id in request.exclude_session_ids:
                continue
            for event in await self.store.list_events(session.key, now_ns=now_ns):
                texts.extend(
                    indexed_texts(
                        session.key,
                        event,
                        session_created_ns=session.created_ns,
                        first_choice_only=self.profile.search_first_choice_only,
                    )
                )
        if self._embedder is None:
            # Keywords alone: no text has a vector, so the dense half of a hybrid search finds nothing.
            if request.search_mode in SEARCH_MODES:
                request = replace(request, search_mode="hybrid")
            return await ranked_search(request, texts, HashEmbedder())
        return await ranked_search(request, await self._with_vectors(texts, self._embedder), self._embedder)

    async def _with_vectors(self, texts: Sequence[IndexedText], embedder: Embedder) -> list[IndexedText]:
        """Each distinct text is embedded once per service."""
        missing = list(dict.fromkeys(text.text for text in texts if text.text not in self._vectors))
        if missing:
            self._vectors.update(zip(missing, await embedder.embed(missing), strict=True))
        return [text.with_vector(self._vectors[text.text]) for text in texts]

    # --- state ---------------------------------------------------------------------------------------

    async def update_app_state(self, app_name: str, state: State) -> None:
        """Merge keys into the application's state; an `app:` in front is taken off (SUM-SVC-10)."""
        delta = {key.removeprefix(STATE_PREFIX_APP): value for key, value in state.items()}
        await self.store.update_app_state(app_name, delta, **self._state_times(self.settings.app_state_ttl_s))

    async def list_app_state(self, app_name: str) -> State:
        """The application's state."""
        return await self.store.app_state(app_name, now_ns=self._clock.now_ns())

    async def delete_app_state(self, app_name: str, key: str) -> None:
        """Remove one key of the application's state."""
        await self.store.delete_app_state(app_name, key.removeprefix(STATE_PREFIX_APP))

    async def update_user_state(self, user: UserKey, state: State) -> None:
        """Merge keys into a user's state.

        Raises:
            StateKeyError: a key starts with `app:` or `temp:`; nothing is written.
        """
        _refuse_prefixes(state, (STATE_PREFIX_APP, STATE_PREFIX_TEMP), "user state")
        delta = {key.removeprefix(STATE_PREFIX_USER): value for key, value in state.items()}
        await self.store.update_user_state(user, delta, **self._state_times(self.settings.user_state_ttl_s))

    async def list_user_state(self, user: UserKey) -> State:
        """A user's state."""
        return await self.store.user_state(user, now_ns=self._clock.now_ns())

    async def delete_user_state(self, user: UserKey, key: str) -> None:
        """Remove one key of a user's state."""
        await self.store.delete_user_state(user, key.removeprefix(STATE_PREFIX_USER))

    async def update_session_state(self, key: SessionKey, state: State) -> None:
        """Merge keys into a session's own state.

        Raises:
            StateKeyError: a key starts with `app:` or `user:`; nothing is written.
        """
        key.check()
        _refuse_prefixes(state, (STATE_PREFIX_APP, STATE_PREFIX_USER), "session state")
        now_ns = self._clock.now_ns()
        await self.store.update_session_state(
            key, dict(state), updated_ns=now_ns, expires_ns=self._expiry(self.settings.session_ttl_s), now_ns=now_ns
        )

    async def _merge_outer_state(self, session: Session, now_ns: int) -> None:
        user = UserKey(session.app_name, session.user_id)
        for key, value in (await self.store.app_state(session.app_name, now_ns=now_ns)).items():
            session.state[STATE_PREFIX_APP + key] = value
        for key, value in (await self.store.user_state(user, now_ns=now_ns)).items():
            session.state[STATE_PREFIX_USER + key] = value

    # --- life cycle ----------------------------------------------------------------------------------

    async def close(self) -> None:
        """Take no more jobs, finish the queued ones, release the store; may be called again (SUM-ASY-07)."""
        self._closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        await self._workers.close()
        await self.store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _state_times(self, ttl_s: float) -> dict[str, int]:
        return {"expires_ns": self._expiry(ttl_s), "now_ns": self._clock.now_ns()}

    def _expiry(self, ttl_s: float) -> int:
        return self._clock.now_ns() + round(ttl_s * NS_PER_S) if ttl_s > 0 else 0

    def _start_sweeper(self) -> None:
        settings = self.settings
        has_ttl = settings.session_ttl_s > 0 or settings.app_state_ttl_s > 0 or settings.user_state_ttl_s > 0
        if (
            has_ttl
            and settings.cleanup_interval_s > 0
            and not self._closed
            and (self._sweeper is None or self._sweeper.done())
        ):
            self._sweeper = asyncio.get_running_loop().create_task(self._sweep_forever(), name="session-sweeper")

    async def _sweep_forever(self) -> None:
        while True:
            await asyncio.sleep(self.settings.cleanup_interval_s)
            try:
                await self.store.sweep(now_ns=self._clock.now_ns())
            except Exception:  # the next sweep may succeed
                logger.exception("expired sessions can't be removed")


# --- pieces ------------------------------------------------------------------------------------------


async def _run_chain(hooks: Sequence[Any], context: Any, last: NextStep) -> None:
    """Call hooks outermost first; each decides whether the rest runs (SUM-SVC-05)."""
    if not hooks:
        await last()
        return

    async def run_from(i: int) -> None:
        if i == len(hooks):
            await last()
        else:
            await hooks[i](context, lambda: run_from(i + 1))

    await run_from(0)


def _keep_page(session: Session, offset: int, limit: int | None) -> None:
    end = max(len(session.events) - offset, 0)
    start = 0 if limit is None else max(end - limit, 0)
    session.replace_events(session.events[start:end])


def _keep_view(session: Session, event_num: int, not_before_ns: int) -> None:
    """The newest events, beginning with a user message (SUM-SVC-07)."""
    everything = session.events
    n_drop = 0
    if not_before_ns:
        kept = [event for event in everything if event.time_ns >= not_before_ns]
        n_drop = len(everything) - len(kept)
        if kept != everything[n_drop:]:  # times don't ascend: positions can't be kept
            session.replace_events(kept)
            n_drop = 0
    if event_num:
        n_drop = max(n_drop, len(session.events) - event_num)
    while n_drop < len(session.events) and not _is_user_message(session.events[n_drop]):
        n_drop += 1
    if n_drop >= len(session.events) and everything:
        last_user = next((event for event in reversed(everything) if _is_user_message(event)), None)
        session.replace_events([] if last_user is None else [last_user])
        return
    session.drop_oldest(n_drop)


def _is_user_message(event: Event) -> bool:
    return event.response is not None and event.response.is_user_message


def _refuse_prefixes(state: State, prefixes: tuple[str, ...], where: str) -> None:
    for key in state:
        if key.startswith(prefixes):
            raise StateKeyError(f"{key!r} can't be written to the {where}", hint="use the update call of that scope")
