"""What a recall tool knows of the run that calls it, and which history the summary has hidden.

In: the running invocation's session, service and filter key. Out: keys that can only point at the same
application and user (SEC-11), and the boundary of ASM-OND-11 (its rule of membership is SUM-SCH-06, DA3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from workbench.call import EMPTY_CONTEXT, CallContext
from workbench.clock import ns_from_text
from workbench.errors import InvalidSessionKeyError, RecallError, SessionNotFoundError
from workbench.profiles import SEED, Profile
from workbench.session.recall_types import EventListService
from workbench.session.scope import prefix_cutoff
from workbench.session.types import (
    STATE_LAST_INCLUDED_EVENT_ID,
    STATE_LAST_INCLUDED_TS,
    SUMMARY_FILTER_KEY_ALL_CONTENTS,
    Event,
    Session,
    SessionKey,
    Summary,
    SummaryBoundary,
)


@dataclass(frozen=True, slots=True)
class RecallRun:
    """The part of a running invocation that recall needs."""

    session: Session | None
    service: Any
    """The session service; what it can do is asked at each call."""
    event_filter_key: str = ""
    profile: Profile = SEED
    ctx: CallContext = EMPTY_CONTEXT

    @property
    def filter_key(self) -> str:
        """The invocation's filter key without blanks around it."""
        return self.event_filter_key.strip()


def in_session(run: RecallRun | None) -> tuple[RecallRun, Session]:
    """The run and its session.

    Raises:
        RecallError: called outside a run, or in one without a session (ASM-OND-26).
    """
    if run is None:
        raise RecallError("session history can only be read during a run", hint="call the tool from an agent's run")
    if run.session is None:
        raise RecallError("this run has no session", hint="run the agent with a session service")
    try:
        run.session.key.check()
    except InvalidSessionKeyError as error:
        raise RecallError(f"this run's session has no {error.field}", hint=error.hint) from error
    return run, run.session


def key_of(session: Session, session_id: str) -> SessionKey:
    """The key of another session of the same application and user; an empty id is the current session."""
    return SessionKey(session.app_name, session.user_id, session_id or session.id)


async def stored_events(run: RecallRun, session: Session, key: SessionKey) -> Sequence[Event]:
    """Raw events from the service; the live session's own where the service doesn't list events."""
    if isinstance(run.service, EventListService):
        try:
            return await run.service.list_events(key)
        except SessionNotFoundError:
            return ()
    return session.events if key == session.key else ()


# --- what is hidden -----------------------------------------------------------------------------------


def hidden_boundary(session: Session, filter_key: str) -> SummaryBoundary | None:
    """Up to where a summary stands for the history; None when nothing is hidden (ASM-OND-11).

    The first source that has a non-blank text decides: the summary of this key, all those below it together,
    the full-session summary; without any, the state of a direct summarizer call.
    """
    if (exact := _written(session, filter_key)) is not None:
        return exact.cutoff_boundary()
    if filter_key and (below := prefix_cutoff(session.summaries, filter_key)) is not None:
        return below if below.cutoff_ns else None
    if (full := _written(session, SUMMARY_FILTER_KEY_ALL_CONTENTS)) is not None:
        return full.cutoff_boundary()
    return _boundary_in_state(session)


def _written(session: Session, key: str) -> Summary | None:
    summary = session.summaries.get(key)
    return summary if summary is not None and summary.summary.strip() else None


def _boundary_in_state(session: Session) -> SummaryBoundary | None:
    try:
        cutoff_ns = ns_from_text(_state_text(session, STATE_LAST_INCLUDED_TS))
    except ValueError:
        return None
    if not cutoff_ns:
        return None
    return SummaryBoundary(cutoff_ns=cutoff_ns, last_event_id=_state_text(session, STATE_LAST_INCLUDED_EVENT_ID))


def _state_text(session: Session, key: str) -> str:
    return (session.state.get(key) or b"").decode("utf-8", "replace").strip()


def is_hidden(session: Session, boundary: SummaryBoundary, event: Event, created_ns: int) -> bool:
    """The summary covers the event: by order in the session when both are known there, else by time."""
    end = session.position_of(boundary.last_event_id)
    if end is None:
        return created_ns <= boundary.cutoff_ns
    position = session.position_of(event.id)
    # Unknown to the live session: dropped from its front long ago, or written elsewhere just now.
    return position <= end if position is not None else created_ns < boundary.cutoff_ns


def hidden_events(events: Sequence[Event], boundary: SummaryBoundary) -> Sequence[Event]:
    """Those of a session's stored events that the summary covers."""
    if boundary.last_event_id:
        for i in range(len(events) - 1, -1, -1):
            if events[i].id == boundary.last_event_id:
                return events[: i + 1]
    return [event for event in events if event.time_ns <= boundary.cutoff_ns]
