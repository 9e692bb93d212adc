"""The session service: sessions, events, state and summaries over any store.

In: calls of an application or of the runner. Out: stored events, and summaries that are made when their
checks say so. The rules are here, once for all stores; a store only keeps things. Works in any asyncio
program and, under a virtual loop, in a replay. Implements summary.md section 14 and SUM-STO-02, -06, -07.

A summary run goes: targets -> lock of the key -> previous summary and delta, read again -> check ->
summarizer -> text and boundary together, or neither.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol
from uuid import uuid4

from workbench.call import EMPTY_CONTEXT, CallContext
from workbench.clock import NS_PER_S, Clock, SystemClock
from workbench.errors import (
    EventWindowAnchorNotFoundError,
    InvalidSessionKeyError,
    PagingError,
    SessionError,
    StateKeyError,
    SummaryError,
)
from workbench.profiles import SEED, Profile
from workbench.service.settings import ServiceSettings
from workbench.service.targets import cleaned_allowlist, covers_whole_session, is_allowed, summary_targets
from workbench.service.workers import SummaryWorkers, one_at_a_time
from workbench.session.recall_types import (
    EventSearchRequest,
    EventSearchResult,
    EventWindow,
    EventWindowRequest,
)
from workbench.session.scope import in_scope
from workbench.session.types import (
    STATE_PREFIX_APP,
    STATE_PREFIX_TEMP,
    STATE_PREFIX_USER,
    SUMMARY_FILTER_KEY_ALL_CONTENTS,
    Event,
    Session,
    SessionKey,
    State,
    Summary,
    SummaryBoundary,
    UserKey,
)
from workbench.store.base import SessionStore, is_older
from workbench.store.indexing import HashEmbedder
from workbench.store.search import Embedder, IndexedText, event_window, indexed_texts, ranked_search
from workbench.summary.context import (
    RequestGapObservation,
    RequestStart,
    cache_safe_fork_request_from_context,
    context_with_previous_summary,
    context_with_report,
    context_with_request_gap,
    report_from_context,
    request_start_from_context,
)
from workbench.summary.delta import DeltaSession, delta_session
from workbench.summary.report import Report, Trigger
from workbench.summary.summarizer import SessionSummarizer, boundary_from_state
from workbench.summary.view import context_with_applied_view, summary_view_from_context, view_session

logger = logging.getLogger(__name__)

FULL: Final = SUMMARY_FILTER_KEY_ALL_CONTENTS


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


@dataclass(frozen=True, slots=True)
class SummaryCheck:
    """One trigger evaluation, for an observer."""

    session: Session
    filter_key: str
    path: str
    time_ns: int
    trigger: Trigger


@dataclass(frozen=True, slots=True)
class SummaryAttempt:
    """One attempt of a summary, for an observer."""

    session: Session
    filter_key: str
    path: str
    status: str
    """written, copied, failed, discarded."""
    started_ns: int
    finished_ns: int
    report: Report
    events_covered: int = 0
    summary: Summary | None = None
    error: BaseException | None = None


class SummaryObserver(Protocol):
    """Is told of every check and every attempt; must not raise."""

    def on_check(self, check: SummaryCheck) -> None:
        """A trigger was evaluated."""
        ...

    def on_attempt(self, attempt: SummaryAttempt) -> None:
        """A summary was written or copied, or failed."""
        ...


class _PathKey:
    """Context key: by which way a summary run was started."""


def context_with_path(ctx: CallContext, path: str) -> CallContext:
    """Mark where a summary run comes from: async, sync, intra_run, pre_call, manual."""
    return ctx.with_value(_PathKey, path)


# --- the service -------------------------------------------------------------------------------------


class SessionService:
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
        self.store = store
        self.supports_windows = supports_windows
        self.supports_search = supports_search
        self._embedder = embedder
        self._vectors: dict[str, Sequence[float]] = {}
        self.settings = settings if settings is not None else ServiceSettings()
        self.summarizer = summarizer
        self.profile = profile
        self._append_hooks = tuple(append_event_hooks)
        self._get_hooks = tuple(get_session_hooks)
        self._clock = clock if clock is not None else SystemClock()
        self._observer = observer
        self._allowlist = cleaned_allowlist(self.settings.summary_filter_allowlist)
        self._workers = SummaryWorkers(self.settings.async_summary_num, self.settings.summary_queue_size)
        self._sweeper: asyncio.Task[None] | None = None
        self._closed = False

    # --- sessions ------------------------------------------------------------------------------------

    async def create_session(
        self, app_name: str, user_id: str, session_id: str = "", *, state: State | None = None
    ) -> Session:
        """A new session; without an id it gets a random one (SUM-SVC-11).

        Raises:
            SessionExistsError: a live session has this id.
            InvalidSessionKeyError: no application or user.
        """
        key = SessionKey(app_name, user_id, session_id.strip() or str(uuid4()))
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
        _check_key(session)
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
        return event_window(events, request, first_choice_only=self.profile.reference_quirks)

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
                        first_choice_only=self.profile.reference_quirks,
                    )
                )
        if self._embedder is None:
            # Keywords alone: no text has a vector, so the dense half of a hybrid search finds nothing.
            return await ranked_search(replace(request, search_mode="hybrid"), texts, HashEmbedder())
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
        await self.store.update_app_state(app_name, delta, expires_ns=self._expiry(self.settings.app_state_ttl_s))

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
        await self.store.update_user_state(user, delta, expires_ns=self._expiry(self.settings.user_state_ttl_s))

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

    # --- summaries -----------------------------------------------------------------------------------

    async def create_session_summary(
        self,
        session: Session | None,
        filter_key: str = FULL,
        *,
        force: bool = False,
        ctx: CallContext = EMPTY_CONTEXT,
    ) -> None:
        """Summarise exactly one key now, if its checks pass; no cascade (SUM-SVC-03, -04).

        Raises:
            SummaryError: the attempt failed; text and boundary are as before. Carries the cause.
        """
        if self.summarizer is None:
            if session is not None and _is_copied(session.summaries.get(filter_key)):
                await self._store_copy(session, filter_key)
            return
        session = _existing(session)
        if is_allowed(filter_key, self._allowlist):
            await self._run_key(session, filter_key, scope=filter_key, force=force, ctx=ctx)

    async def enqueue_summary_job(
        self,
        session: Session | None,
        filter_key: str = FULL,
        *,
        force: bool = False,
        ctx: CallContext = EMPTY_CONTEXT,
    ) -> None:
        """Summarise a key and what it cascades to, in the background (SUM-ASY-03).

        Not a promise never to wait: with a full queue, a closed service or a cancelled caller the job runs
        here and now, and its error is raised.
        """
        if self.summarizer is None:
            return
        live = _existing(session)

        async def job() -> None:
            await self._run_job(live, filter_key, force, context_with_path(ctx, "async"))

        task = asyncio.current_task()
        is_cancelled = task is not None and task.cancelling() > 0
        if not is_cancelled and self._workers.offer(live.hash, job):
            return
        if not is_cancelled and not self._closed:
            logger.warning("summary queue is full: session %s is summarised by its caller", live.id)
        sync_ctx = context_with_path(ctx, "sync")
        await asyncio.shield(self._with_timeout(self._dispatch(live, filter_key, force, sync_ctx)))

    async def _run_job(self, session: Session, filter_key: str, force: bool, ctx: CallContext) -> None:
        try:
            await self._with_timeout(self._dispatch(session, filter_key, force, ctx))
        except TimeoutError:
            logger.warning(
                "summary job of session %s took longer than %g s", session.id, self.settings.summary_job_timeout_s
            )
        except SummaryError as error:
            logger.warning("summary job failed: %s", error)

    async def _with_timeout(self, work: Awaitable[None]) -> None:
        async with asyncio.timeout(self.settings.summary_job_timeout_s):
            await work

    async def _dispatch(self, session: Session, filter_key: str, force: bool, ctx: CallContext) -> None:
        """Refresh a key and its cascade (SUM-CAS)."""
        targets = summary_targets(
            filter_key, allowlist=self._allowlist, cascade=self.settings.cascade_full_session_summary
        )
        if len(targets) < 2:
            for target in targets:
                await self._run_key(session, target, scope=filter_key, force=force, ctx=ctx)
            return
        by_matching = self.profile.reference_quirks
        if covers_whole_session(session, filter_key, by_matching=by_matching):
            await self._run_once_for_both(session, filter_key, force, ctx)
        elif await self._would_fork(session, ctx):
            # The parent shows one branch only; a full summary isn't made from it, nor by another prompt.
            await self._run_key(session, filter_key, scope=filter_key, force=force, ctx=ctx)
        else:
            await self._run_both(session, filter_key, force, ctx)

    async def _run_once_for_both(self, session: Session, branch: str, force: bool, ctx: CallContext) -> None:
        """One branch is all there is: summarise it once and copy (SUM-CAS-05)."""
        await self._run_key(session, branch, scope=branch, force=force, ctx=ctx)
        summary = session.summaries.get(branch)
        if summary is None or not summary.summary:
            await self._run_key(session, FULL, scope=FULL, force=False, ctx=ctx)
            return
        boundary = replace(summary.boundary, filter_key=FULL) if summary.boundary is not None else None
        copy = replace(summary, boundary=boundary)
        if session.summaries.get(FULL) != copy:
            started_ns = self._clock.now_ns()
            previous = session.summaries.get(FULL)
            await self._write(session, FULL, copy)
            report = Report(trigger=Trigger(fired=True, name="copy", metric="custom", filter_key=FULL))
            self._tell_attempt(session, FULL, "copy", "copied", started_ns, report, previous, copy)

    async def _run_both(self, session: Session, branch: str, force: bool, ctx: CallContext) -> None:
        """Branch and full session side by side, both to the end; the first error is raised (SUM-CAS-06)."""

        def own_ctx() -> CallContext:
            report = report_from_context(ctx)
            return context_with_report(ctx, report.clone() if report is not None else Report())

        outcomes = await asyncio.gather(
            self._run_key(session, branch, scope=branch, force=force, ctx=own_ctx()),
            self._run_key(session, FULL, scope=branch, force=force, ctx=own_ctx()),
            return_exceptions=True,
        )
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def _would_fork(self, session: Session, ctx: CallContext) -> bool:
        if cache_safe_fork_request_from_context(ctx) is None:
            return False
        return await forks_from_parent(self.summarizer, ctx, session)

    async def _run_key(self, session: Session, key: str, *, scope: str, force: bool, ctx: CallContext) -> bool:
        """One run of one key, alone (SUM-CORE); True when a summary was written.

        Args:
            scope: Whose events the checks count: the key itself, or the branch that cascaded to it.
        """
        lock = (session.app_name, session.user_id, session.id, key)
        async with one_at_a_time(lock):
            return await self._run_key_alone(session, key, scope, force, ctx)

    async def _run_key_alone(self, session: Session, key: str, scope: str, force: bool, ctx: CallContext) -> bool:
        if _is_copied(session.summaries.get(key)):
            await self._store_copy(session, key)
            return True
        previous = await self._newest_summary(session, key)
        boundary = previous.cutoff_boundary() if previous is not None else None
        started_ns = self._clock.now_ns()

        def delta(of_scope: str) -> DeltaSession:
            return delta_session(
                session,
                filter_key=key,
                boundary=boundary,
                previous_summary=previous.summary if previous is not None else "",
                scope=of_scope,
                now_ns=started_ns,
                profile=self.profile,
            )

        source = delta(key)
        if not force and not self._has_news(source, key):
            return False
        view = summary_view_from_context(ctx) if self.profile.model_visible_view else None
        text = previous.summary if previous is not None else ""
        if view is not None and view.serves(session, key, text):
            if not view.bound:
                return False
            seen, applied = view_session(
                view, session, scope=scope, counts_head=self.profile.count_previous_summary, now_ns=started_ns
            )
            if applied.boundary_event(seen.events) is None:
                return False
            ctx = context_with_applied_view(ctx, applied)
            source = seen
        report = report_from_context(ctx)
        if report is None:
            report = Report()
            ctx = context_with_report(ctx, report)
        ctx = context_with_previous_summary(ctx, text)
        if not force:
            checked = source if scope == key else delta(scope)
            ctx = self._with_request_gap(ctx, session, scope, boundary)
            if not await self._passes(checked, key, ctx, report):
                return False
        else:
            report.trigger = Trigger(fired=True, name="force", metric="custom", filter_key=scope)
        return await self._attempt(session, key, source, previous, ctx, report, started_ns)

    def _has_news(self, source: DeltaSession, key: str) -> bool:
        """There is a new event, and (unless the reference's quirk is asked for) one in scope (SUM-CORE-02)."""
        if not source.delta_count:
            return False
        return self.profile.reference_quirks or not key or source.has_event_in_scope(key)

    async def _passes(self, checked: DeltaSession, key: str, ctx: CallContext, report: Report) -> bool:
        summarizer = self.summarizer
        assert summarizer is not None
        with_context = getattr(summarizer, "should_summarize_with_context", None)  # SUM-CHK-21
        if with_context is not None:
            passed = bool(await with_context(ctx, checked))
        else:
            passed = await summarizer.should_summarize(checked)
            report.trigger = Trigger(fired=passed, name="custom", metric="custom", filter_key=checked.scope_filter_key)
        if self._observer is not None:
            path = ctx.value(_PathKey, "manual")
            self._observer.on_check(SummaryCheck(checked.live, key, path, self._clock.now_ns(), report.trigger))
        return passed

    async def _attempt(
        self,
        session: Session,
        key: str,
        source: DeltaSession,
        previous: Summary | None,
        ctx: CallContext,
        report: Report,
        started_ns: int,
    ) -> bool:
        assert self.summarizer is not None
        path = ctx.value(_PathKey, "manual")
        try:
            text = await self.summarizer.summarize(source, ctx=ctx)
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise asyncio.CancelledError  # a summarizer may have swallowed it (SUM-CORE-05)
        except asyncio.CancelledError as error:
            self._tell_attempt(session, key, path, "discarded", started_ns, report, previous, None, error)
            raise
        except Exception as error:
            self._tell_attempt(session, key, path, "failed", started_ns, report, previous, None, error)
            if isinstance(error, SummaryError):
                raise type(error)(f"session {session.id}: {error}", hint=error.hint) from error
            raise SummaryError(f"session {session.id}: {error}") from error
        if not text:
            return False
        summary = self._summary_from(text, key, source, previous)
        await self._write(session, key, summary)
        self._tell_attempt(session, key, path, "written", started_ns, report, previous, summary)
        return True

    def _summary_from(self, text: str, key: str, source: DeltaSession, previous: Summary | None) -> Summary:
        """Text with its boundary (SUM-CORE-06)."""
        old = previous.cutoff_boundary() if previous is not None else None
        recorded = boundary_from_state(source.state)
        if not source.delta_count and old is not None:
            cutoff_ns, event_id = old.cutoff_ns, old.last_event_id
        elif recorded is not None:
            cutoff_ns, event_id = recorded
        else:
            last = max(source.delta, key=lambda event: event.time_ns, default=None)
            newest = [event for event in source.delta if last is not None and event.time_ns == last.time_ns]
            cutoff_ns, event_id = (newest[-1].time_ns, newest[-1].id) if newest else (self._clock.now_ns(), "")
        return Summary(
            summary=text,
            updated_ns=cutoff_ns,
            boundary=SummaryBoundary(filter_key=key, cutoff_ns=cutoff_ns, last_event_id=event_id),
        )

    async def _write(self, session: Session, key: str, summary: Summary) -> None:
        """Text and boundary in one value: live object and store have both old or both new."""
        session.summaries[key] = summary
        saved = await self.store.save_summary(session.key, key, summary, now_ns=self._clock.now_ns())
        if not saved:
            newer = (await self.store.load_summaries(session.key, now_ns=self._clock.now_ns())).get(key)
            if newer is not None:
                session.summaries[key] = newer

    async def _newest_summary(self, session: Session, key: str) -> Summary | None:
        """The live object's summary, or the stored one when another object has written a later one."""
        live = session.summaries.get(key)
        stored = (await self.store.load_summaries(session.key, now_ns=self._clock.now_ns())).get(key)
        if stored is None or stored is live:
            return live
        if live is None or is_older(live, stored, position_of=_positions(session, live, stored)):
            session.summaries[key] = stored
            return stored
        return live

    async def _store_copy(self, session: Session, key: str) -> None:
        """A summary put there by the application, without a time, is stored as it is (SUM-CORE-08)."""
        copied = session.summaries[key]
        boundary = copied.cutoff_boundary()
        if boundary is None:
            latest = max(
                (event for event in session.events if in_scope(event, key)),
                key=lambda event: event.time_ns,
                default=None,
            )
            cutoff_ns = latest.time_ns if latest is not None else self._clock.now_ns()
            boundary = SummaryBoundary(key, cutoff_ns, latest.id if latest is not None else "")
        await self._write(session, key, replace(copied, updated_ns=boundary.cutoff_ns, boundary=boundary))

    def _with_request_gap(
        self, ctx: CallContext, session: Session, scope: str, boundary: SummaryBoundary | None
    ) -> CallContext:
        start = request_start_from_context(ctx)
        if start is None:
            return ctx
        return context_with_request_gap(ctx, observe_request_gap(session, scope, start, boundary))

    def _tell_attempt(
        self,
        session: Session,
        key: str,
        path: str,
        status: str,
        started_ns: int,
        report: Report,
        previous: Summary | None,
        summary: Summary | None = None,
        error: BaseException | None = None,
    ) -> None:
        if self._observer is None:
            return
        covered = 0
        if summary is not None:
            covered = _covered_events(session, previous, summary)
        self._observer.on_attempt(
            SummaryAttempt(
                session, key, path, status, started_ns, self._clock.now_ns(), report.clone(), covered, summary, error
            )
        )

    async def get_session_summary_text(self, session: Session | None, filter_key: str = FULL) -> str | None:
        """The text of a summary: the session object's, else the stored one (SUM-GET-01 to -04)."""
        if session is None:
            return None
        try:
            _check_key(session)
        except InvalidSessionKeyError:
            return None
        text = self._text_among(session.summaries, filter_key, session.created_ns)
        if text is not None:
            return text
        try:
            stored = await self.store.load_summaries(session.key, now_ns=self._clock.now_ns())
        except Exception:  # a failing read is "not found" (SUM-ERR-18)
            logger.warning("summaries of session %s can't be read", session.id, exc_info=True)
            return None
        return self._text_among(stored, filter_key, session.created_ns)

    def _text_among(self, summaries: dict[str, Summary], filter_key: str, created_ns: int) -> str | None:
        usable = {
            key: summary
            for key, summary in summaries.items()
            if summary.summary and not (created_ns and summary.updated_ns < created_ns)
        }
        for key in (filter_key, FULL):
            if key in usable:
                return usable[key].summary
        if not self.profile.summary_lookup_any or not usable:
            return None
        newest = min(usable, key=lambda key: (-usable[key].updated_ns, key))
        return usable[newest].summary

    # --- life cycle ----------------------------------------------------------------------------------

    async def wait_for_summaries(self) -> None:
        """Return when no queued summary job is left."""
        await self._workers.wait_idle()

    async def close(self) -> None:
        """Take no more jobs, finish the queued ones, release the store; may be called again (SUM-ASY-07)."""
        self._closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        await self._workers.close()
        await self.store.close()

    def _expiry(self, ttl_s: float) -> int:
        return self._clock.now_ns() + round(ttl_s * NS_PER_S) if ttl_s > 0 else 0

    def _start_sweeper(self) -> None:
        settings = self.settings
        has_ttl = settings.session_ttl_s > 0 or settings.app_state_ttl_s > 0 or settings.user_state_ttl_s > 0
        if has_ttl and settings.cleanup_interval_s > 0 and self._sweeper is None and not self._closed:
            self._sweeper = asyncio.get_running_loop().create_task(self._sweep_forever(), name="session-sweeper")

    async def _sweep_forever(self) -> None:
        while True:
            await asyncio.sleep(self.settings.cleanup_interval_s)
            await self.store.sweep(now_ns=self._clock.now_ns())


# --- pieces ------------------------------------------------------------------------------------------


def observe_request_gap(
    session: Session, scope: str, start: RequestStart, boundary: SummaryBoundary | None
) -> RequestGapObservation:
    """How long the scope was silent before the running request came in (SUM-RNR-02)."""
    unavailable = RequestGapObservation(available=False, elapsed_ns=0)
    if not start.request_id or not start.started_ns:
        return unavailable
    if boundary is not None and boundary.cutoff_ns >= start.started_ns:
        return unavailable
    for event in reversed(session.events):
        if not event.time_ns or event.time_ns >= start.started_ns or (scope and not in_scope(event, scope)):
            continue
        if event.request_id == start.request_id:
            return unavailable
        return RequestGapObservation(available=True, elapsed_ns=start.started_ns - event.time_ns)
    return unavailable


async def forks_from_parent(summarizer: Any, ctx: CallContext, session: Session) -> bool:
    """The summarizer that will do the work has cache-safe forking on (SUM-DYN-04)."""
    resolve = getattr(summarizer, "forks_cache_safe", None)
    if resolve is not None:
        return bool(await resolve(ctx, session))
    return bool(summarizer.metadata().get("cache_safe_forking", False))


async def _run_chain(hooks: Sequence[Any], context: Any, last: NextStep) -> None:
    """Call hooks outermost first; each decides whether the rest runs (SUM-SVC-05)."""

    async def run_from(i: int) -> None:
        if i == len(hooks):
            await last()
        else:
            await hooks[i](context, lambda: run_from(i + 1))

    await run_from(0)


def _existing(session: Session | None) -> Session:
    if session is None:
        raise SessionError("session is None", hint="give the session that create_session or get_session returned")
    _check_key(session)
    return session


def _check_key(session: Session) -> None:
    if not (session.app_name and session.user_id and session.id):
        session.key.check()


def _is_copied(summary: Summary | None) -> bool:
    return summary is not None and bool(summary.summary) and not summary.updated_ns


def _positions(session: Session, *summaries: Summary) -> dict[str, int]:
    found = {}
    for summary in summaries:
        event_id = summary.boundary.last_event_id if summary.boundary is not None else ""
        position = session.position_of(event_id)
        if position is not None:
            found[event_id] = position
    return found


def _covered_events(session: Session, previous: Summary | None, summary: Summary) -> int:
    def end_of(one: Summary | None) -> int:
        position = None
        if one is not None and one.boundary is not None:
            position = session.position_of(one.boundary.last_event_id)
        return session.first_position if position is None else position + 1

    return max(end_of(summary) - end_of(previous), 0)


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
