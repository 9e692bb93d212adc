"""Which events a summary is made of: recent ones left out, the branch's own kept (SUM-SEL, section 6).

In: candidate events, oldest first; in a service run the synthetic previous summary stands in front. Out: the
selection; nothing is changed. Also knows how to make and to recognise that synthetic event.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from workbench.model.types import SYSTEM, Message, response_of
from workbench.session.scope import in_scope
from workbench.session.types import Event
from workbench.summary.text import DEFAULT_FORMATTERS, Formatters, has_summarizable_content, has_text, has_user_text

SkipRecent = Callable[[Sequence[Event]], int]
"""How many events at the end to leave out, given all candidates."""


def skip_last(n_events: int) -> SkipRecent:
    """Always leave out the last `n_events`."""
    return lambda events: n_events


def previous_summary_event(text: str, *, now_ns: int) -> Event:
    """The event that stands for the rolling summary: author `system`, no ids, no keys (SUM-RUN-03)."""
    return Event(author=SYSTEM, time_ns=now_ns, response=response_of(Message(role=SYSTEM, content=text)))


def is_previous_summary_event(event: Event, text: str) -> bool:
    """The event is the synthetic one for this text and no stored event."""
    if not text or event.author != SYSTEM or event.id or event.request_id or event.invocation_id or event.filter_key:
        return False
    messages = event.messages
    return len(messages) == 1 and messages[0].content == text


def without_previous_summary(events: Sequence[Event], text: str) -> Sequence[Event]:
    """The events without the synthetic event in front, if it's there."""
    return events[1:] if events and is_previous_summary_event(events[0], text) else events


def without_recent(
    events: Sequence[Event], skip_recent: SkipRecent | None, formatters: Formatters = DEFAULT_FORMATTERS
) -> Sequence[Event]:
    """The events without the recent ones; empty when what is left has no user to answer (SUM-SEL-01, -02)."""
    n_skipped = skip_recent(tuple(events)) if skip_recent is not None else 0
    if n_skipped <= 0:
        return events
    kept = events[: max(len(events) - n_skipped, 0)]
    if has_user_text(kept) or _continues_a_summary(kept, formatters):
        return kept
    return ()


def _continues_a_summary(events: Sequence[Event], formatters: Formatters) -> bool:
    """A summary in front gives the rest its context. The synthetic event is stamped "now", a stored one isn't
    newer than its successor."""
    if len(events) < 2:
        return False
    first, rest = events[0], events[1:]
    return (
        first.author == SYSTEM
        and has_text(first)
        and first.time_ns >= rest[0].time_ns
        and has_summarizable_content(rest, formatters)
    )


def events_in_scope(events: Sequence[Event], scope: str) -> Sequence[Event]:
    """The events of a branch (SUM-KEY-04); all of them for a full session."""
    return [event for event in events if in_scope(event, scope)] if scope else events
