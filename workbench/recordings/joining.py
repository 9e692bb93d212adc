"""Short dialogues joined to longer conversations, for measures that need something to forget (WB-RET-01b).

In: conversations in order. Out: conversations of up to N of them each, one behind the other in time. Only
neighbours with the same instruction and tools are joined. What is joined says so in its id, its format and its
metadata.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from workbench.recordings.types import Conversation
from workbench.session.types import Event

GAP_NS = 30_000_000_000
"""Between two dialogues whose times don't follow each other."""
_LABEL = "joined"


def joined(conversations: Iterable[Conversation], n: int) -> Iterator[Conversation]:
    """Conversations made of up to `n` neighbours each; one alone stays as it is."""
    parts: list[Conversation] = []
    for conversation in conversations:
        if parts and (len(parts) == n or not _fit(parts[0], conversation)):
            yield _one_of(parts)
            parts = []
        parts.append(conversation)
    if parts:
        yield _one_of(parts)


def is_joined(format_name: str) -> bool:
    """The conversation is made of several, by the name of its format."""
    return format_name.endswith(_LABEL)


def _fit(first: Conversation, other: Conversation) -> bool:
    def head(one: Conversation) -> tuple[object, ...]:
        return one.instruction, one.tools, one.app_name, one.user_id

    return head(first) == head(other)


def _one_of(parts: Sequence[Conversation]) -> Conversation:
    first = parts[0]
    if len(parts) == 1:
        return first
    events: list[Event] = []
    ids: set[str] = set()
    request_ids: set[str] = set()
    is_shifted = False
    for number, part in enumerate(parts):
        shift = 0
        if events and part.events and part.events[0].time_ns <= events[-1].time_ns:
            shift = events[-1].time_ns + GAP_NS - part.events[0].time_ns
            is_shifted = True
        own_ids = {event.id for event in part.events}
        own_requests = {event.request_id for event in part.events if event.request_id}
        tail = f"~{number + 1}" if own_ids & ids or own_requests & request_ids else ""
        for event in part.events:
            events.append(
                event.replace(
                    id=event.id + tail,
                    request_id=event.request_id + tail if event.request_id else "",
                    invocation_id=event.invocation_id + tail if event.invocation_id else "",
                    time_ns=event.time_ns + shift,
                )
                if tail or shift
                else event
            )
        ids.update(event.id for event in events[-len(part.events) :])
        request_ids |= {request_id + tail for request_id in own_requests}
    return first.replace(
        id=f"{first.id}+{len(parts) - 1}",
        events=tuple(events),
        assumed_time=is_shifted or any(part.assumed_time for part in parts),
        merged_rows=sum(part.merged_rows for part in parts),
        metadata={_LABEL: [part.id for part in parts]},
        format=f"{first.format}, {_LABEL}",
    )
