"""Filter keys, scopes and boundaries: which events belong to whom, and where the delta starts.

In: sessions, keys, boundaries. Out: predicates and positions; nothing is changed. Implements SUM-KEY-03
to -05, SUM-DM-12, SUM-CHK-06 and the delta of SUM-CORE-03.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from workbench.session.types import (
    EVENT_VERSION,
    FILTER_KEY_DELIMITER,
    Event,
    Session,
    Summary,
    SummaryBoundary,
)


def is_same_or_below(key: str, ancestor: str) -> bool:
    """`key` equals `ancestor` or lies below it; `/` delimits, so `a/bc` isn't below `a/b`."""
    return key == ancestor or key.startswith(ancestor + FILTER_KEY_DELIMITER)


def keys_match(key: str, other: str) -> bool:
    """Either is the other's ancestor, or one of them is empty (SUM-KEY-03)."""
    if not key or not other:
        return True
    return is_same_or_below(key, other) or is_same_or_below(other, key)


def matching_key(event: Event) -> str:
    """The key that deltas and history compare: legacy events use their branch in place of the filter key."""
    return event.filter_key if event.version == EVENT_VERSION else event.branch


def event_matches(event: Event, filter_key: str) -> bool:
    """The event takes part in history and deltas of `filter_key`: ancestors and descendants do (SUM-KEY-03)."""
    return keys_match(matching_key(event), filter_key)


def in_scope(event: Event, scope: str) -> bool:
    """The event counts for thresholds of `scope`: no key, the same or below; ancestors don't (SUM-KEY-04)."""
    key = event.effective_key
    return not key or not scope or is_same_or_below(key, scope)


def counts_for_full_session(event: Event, app_name: str) -> bool:
    """The event counts for a full-session threshold: no key, or exactly the application's (SUM-CHK-07)."""
    key = event.effective_key
    return not key or key == app_name


def delta_start(session: Session, boundary: SummaryBoundary | None) -> int:
    """Absolute position of the first event after a boundary.

    A boundary id that is in the list decides by position, whatever the times say; otherwise events at or
    after the cutoff are new, so that equal times are repeated rather than lost (SUM-CHK-06, SUM-CORE-03).
    The answer is the start of a slice only with an id; without one use `delta_events`, since times need
    not ascend.
    """
    if boundary is None:
        return session.first_position
    position = session.position_of(boundary.last_event_id)
    if position is not None:
        return position + 1
    if not boundary.cutoff_ns:
        return session.first_position
    events = session.events
    return session.first_position + next(
        (i for i, event in enumerate(events) if event.time_ns >= boundary.cutoff_ns), len(events)
    )


def delta_events(session: Session, boundary: SummaryBoundary | None) -> list[Event]:
    """Events after a boundary, oldest first."""
    start = delta_start(session, boundary)
    tail = list(islice(session.events, start - session.first_position, None))
    if boundary is None or session.position_of(boundary.last_event_id) is not None or not boundary.cutoff_ns:
        return tail
    return [event for event in tail if event.time_ns >= boundary.cutoff_ns]


def prefix_cutoff(summaries: Mapping[str, Summary], prefix: str) -> SummaryBoundary | None:
    """The cutoff that is safe for all summaries at or below `prefix` (SUM-DM-12).

    Returns:
        None without any; the earliest cutoff, without an id; a zero cutoff (keep all history) if any lacks one.
    """
    cutoffs = [
        summary.cutoff_boundary()
        for key, summary in summaries.items()
        if summary.summary.strip() and is_same_or_below(key, prefix)
    ]
    if not cutoffs:
        return None
    earliest = min((cutoff.cutoff_ns if cutoff is not None else 0) for cutoff in cutoffs)
    return SummaryBoundary(filter_key=prefix, cutoff_ns=earliest)
