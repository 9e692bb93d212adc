"""The boundary in a session's state: where a summarizer says that its summary ends (SUM-DM-15, SUM-HOOK-07).

In: a session, usually the temporary one of a run, and the last summarized event. Out: the two boundary keys,
read, written, or guarded against what a hook does to them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from workbench.clock import ns_from_text, text_from_ns
from workbench.session.types import (
    STATE_LAST_INCLUDED_EVENT_ID,
    STATE_LAST_INCLUDED_TS,
    Event,
    Session,
    State,
)

_log = logging.getLogger(__name__)


def boundary_from_state(state: State) -> tuple[int, str] | None:
    """`(cutoff_ns, last event id)` that a summarizer recorded in a session's state (SUM-DM-15); None without.

    A time that can't be read counts as none and is worth a warning; an id is kept without one, for it decides.
    """
    event_id = (state.get(STATE_LAST_INCLUDED_EVENT_ID) or b"").decode("utf-8", "replace")
    text = (state.get(STATE_LAST_INCLUDED_TS) or b"").decode("utf-8", "replace")
    cutoff_ns = 0
    if text:
        try:
            cutoff_ns = ns_from_text(text)
        except ValueError:
            _log.warning("%s in a session's state isn't a time: %r", STATE_LAST_INCLUDED_TS, text)
    return (cutoff_ns, event_id) if event_id or cutoff_ns else None


def record_boundary(session: Session, event: Event | None) -> None:
    """Write the two boundary keys into the session's state (SUM-SEL-05)."""
    if event is None:
        return
    _put(session, STATE_LAST_INCLUDED_TS, text_from_ns(event.time_ns).encode() if event.time_ns else None)
    _put(session, STATE_LAST_INCLUDED_EVENT_ID, event.id.encode("utf-8", "surrogatepass") if event.id else None)


def _put(session: Session, key: str, value: bytes | None) -> None:
    if value is None:
        session.state.pop(key, None)
    else:
        session.state[key] = value


@contextmanager
def boundary_guarded(session: Session, event: Event | None) -> Iterator[None]:
    """The new boundary is visible inside; it stands afterwards whatever was written, or is taken back."""
    before = {key: session.state.get(key) for key in (STATE_LAST_INCLUDED_TS, STATE_LAST_INCLUDED_EVENT_ID)}
    record_boundary(session, event)
    try:
        yield
    except BaseException:
        for key, value in before.items():
            _put(session, key, value)
        raise
    record_boundary(session, event)


@contextmanager
def boundary_left_alone(session: Session, event: Event | None) -> Iterator[None]:
    """The reference of July 2026: whatever the hook does to the boundary stays."""
    record_boundary(session, event)
    yield
