"""Summary runs of the session service: which keys, under which lock, from which delta, written how.

In: a session, a filter key, the call's context. Out: text and boundary together, on the live object and in
the store, or neither. Implements summary.md sections 14.2 to 14.5. `SessionService` is built on this class; it
adds sessions, events and state.

A summary run goes: targets -> lock of the key -> previous summary and delta, read again -> check ->
summarizer -> text and boundary together, or neither.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, Protocol

from workbench.call import EMPTY_CONTEXT, CallContext
from workbench.clock import Clock
from workbench.errors import (
    InvalidSessionKeyError,
    SessionError,
    SummaryError,
)
from workbench.profiles import Profile
from workbench.service.settings import ServiceSettings
from workbench.service.targets import cleaned_allowlist, covers_whole_session, is_allowed, summary_targets
from workbench.service.workers import SummaryWorkers, one_at_a_time
from workbench.session.scope import in_scope
from workbench.session.types import (
    SUMMARY_FILTER_KEY_ALL_CONTENTS,
    Event,
    Session,
    Summary,
    SummaryBoundary,
)
from workbench.store.base import SessionStore, is_older
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


# --- observers ---


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


# --- the runs ---


class SummaryRuns:
    """Everything of a session service that makes and reads summaries.

    Args:
        store: Where summaries are kept.
        settings: Workers, queue, time limit, allowlist, cascade.
        summarizer: Makes the summaries; None switches them off (SUM-SVC-02).
        observer: Is told of checks and attempts (used by replays and metrics).
    """

    def __init__(
        self,
        store: SessionStore,
        *,
        settings: ServiceSettings,
        summarizer: SessionSummarizer | None,
        clock: Clock,
        profile: Profile,
        observer: SummaryObserver | None,
    ) -> None:
        self.store = store
        self.settings = settings
        self.summarizer = summarizer
        self.profile = profile
        self._clock = clock
        self._observer = observer
        self._allowlist = cleaned_allowlist(settings.summary_filter_allowlist)
        self._workers = SummaryWorkers(settings.async_summary_num, settings.summary_queue_size)
        self._closed = False

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
            logger.warning(
                "summary queue is full or works in another event loop: session %s is summarised by its caller", live.id
            )
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
            check_session_key(session)
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

    async def wait_for_summaries(self) -> None:
        """Return when no queued summary job is left."""
        await self._workers.wait_idle()


# --- pieces ---


def observe_request_gap(
    session: Session, scope: str, start: RequestStart, boundary: SummaryBoundary | None
) -> RequestGapObservation:
    """How long the scope was silent before the running request came in (SUM-RNR-02)."""
    unavailable = RequestGapObservation(available=False, elapsed_ns=0)
    if not start.request_id or not start.started_ns:
        return unavailable
    if boundary is not None and boundary.cutoff_ns >= start.started_ns:
        return unavailable
    event = _last_before(session, scope, start)
    if event is None or event.request_id == start.request_id:
        return unavailable
    return RequestGapObservation(available=True, elapsed_ns=start.started_ns - event.time_ns)


class _LookedBack(NamedTuple):
    """How far the events were looked through for one request and scope, and the last one before its start."""

    start: RequestStart
    end_position: int
    newest: Event | None
    position: int
    event: Event | None


def _last_before(session: Session, scope: str, start: RequestStart) -> Event | None:
    """The last event of the scope that is older than the request; looks at what came since the last time only."""
    key = (_LookedBack, scope)
    first, end, events = session.first_position, session.end_position, session.events
    known: _LookedBack | None = session.derived.get(key)
    if known is not None and (
        known.start != start
        or not first < known.end_position <= end
        or events[known.end_position - 1 - first] is not known.newest  # another history
        or known.position < first  # dropped since
    ):
        known = None
    stop, position, found = (first, end, None) if known is None else (known.end_position, known.position, known.event)
    for later in range(end - 1, stop - 1, -1):
        event = events[later - first]
        if event.time_ns and event.time_ns < start.started_ns and (not scope or in_scope(event, scope)):
            position, found = later, event
            break
    session.derived[key] = _LookedBack(start, end, events[-1] if events else None, position, found)
    return found


async def forks_from_parent(summarizer: Any, ctx: CallContext, session: Session) -> bool:
    """The summarizer that will do the work has cache-safe forking on (SUM-DYN-04)."""
    resolve = getattr(summarizer, "forks_cache_safe", None)
    if resolve is not None:
        return bool(await resolve(ctx, session))
    return bool(summarizer.metadata().get("cache_safe_forking", False))


def _existing(session: Session | None) -> Session:
    if session is None:
        raise SessionError("session is None", hint="give the session that create_session or get_session returned")
    check_session_key(session)
    return session


def check_session_key(session: Session) -> None:
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
