"""Sessions, events, summaries and boundaries.

In: what stores and recordings hold. Out: frozen values, and `Session`, the one live object: it owns the
event list and an index of event ids, so that finding a boundary never scans the history. Implements
SUM-DM-05 to -15. Moments are nanoseconds since 1970 (`workbench.clock`), 0 meaning none.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from operator import attrgetter
from typing import Any

from workbench.clock import datetime_from_ns
from workbench.errors import InvalidSessionKeyError
from workbench.model.types import EMPTY_MESSAGE, Message, Response
from workbench.session.shared_log import SharedLog

SUMMARY_FILTER_KEY_ALL_CONTENTS = ""
FILTER_KEY_DELIMITER = "/"
EVENT_VERSION = 1
BOUNDARY_VERSION = 1
STATE_LAST_INCLUDED_TS = "summary:last_included_ts"
STATE_LAST_INCLUDED_EVENT_ID = "summary:last_included_event_id"
STATE_PREFIX_APP = "app:"
STATE_PREFIX_USER = "user:"
STATE_PREFIX_TEMP = "temp:"

State = dict[str, bytes | None]


@dataclass(frozen=True, slots=True)
class Event:
    """One stored unit: a response with its place in the session (SUM-DM-05)."""

    id: str = ""
    author: str = ""
    time_ns: int = 0
    response: Response | None = None
    request_id: str = ""
    """The top-level run that it belongs to."""
    invocation_id: str = ""
    """The agent invocation inside that run."""
    parent_invocation_id: str = ""
    branch: str = ""
    filter_key: str = ""
    tag: str = ""
    state_delta: Mapping[str, bytes | None] = field(default_factory=dict)
    skip_summarization: bool = False
    extensions: Mapping[str, Any] = field(default_factory=dict)
    version: int = EVENT_VERSION

    @property
    def timestamp(self) -> datetime | None:
        """The time as an aware UTC datetime."""
        return datetime_from_ns(self.time_ns) if self.time_ns else None

    @property
    def message(self) -> Message:
        """The first choice's message, or an empty one."""
        if self.response is None or not self.response.choices:
            return EMPTY_MESSAGE
        return self.response.choices[0].message

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages of all choices, in order."""
        if self.response is None:
            return ()
        choices = self.response.choices
        if len(choices) == 1:  # nearly always; asked for many times per call
            return (choices[0].message,)
        return tuple([choice.message for choice in choices])

    @property
    def is_partial(self) -> bool:
        """Is a piece of a stream: never stored, never counted (SUM-DM-06)."""
        return self.response is not None and self.response.is_partial

    @property
    def effective_key(self) -> str:
        """The filter key; legacy events (version 0) use their branch instead when they have no key (SUM-KEY-04)."""
        if self.filter_key:
            return self.filter_key
        return self.branch if self.version != EVENT_VERSION else ""

    def replace(self, **changes: Any) -> Event:
        """A copy with other fields."""
        values = dict(zip(_EVENT_FIELDS, _event_values(self), strict=True))
        values.update(changes)
        return Event(**values)


# `dataclasses.replace` looks at every field's description each time; events are replaced twice per stored event.
_EVENT_FIELDS = tuple(one.name for one in fields(Event))
_event_values = attrgetter(*_EVENT_FIELDS)


@dataclass(frozen=True, slots=True)
class SummaryBoundary:
    """Where a summary ends; the id separates events of equal time (SUM-DM-10)."""

    filter_key: str = ""
    cutoff_ns: int = 0
    last_event_id: str = ""
    version: int = BOUNDARY_VERSION

    @property
    def cutoff_at(self) -> datetime | None:
        """The cutoff as an aware UTC datetime."""
        return datetime_from_ns(self.cutoff_ns) if self.cutoff_ns else None


@dataclass(frozen=True, slots=True)
class Summary:
    """A stored summary; `updated_ns` is the time of the last covered event, not of writing (SUM-DM-09)."""

    summary: str
    updated_ns: int = 0
    boundary: SummaryBoundary | None = None
    topics: tuple[str, ...] = ()

    @property
    def updated_at(self) -> datetime | None:
        """The cutoff time as an aware UTC datetime."""
        return datetime_from_ns(self.updated_ns) if self.updated_ns else None

    def cutoff_boundary(self) -> SummaryBoundary | None:
        """The boundary, completed from `updated_ns` for summaries stored without one (SUM-DM-11)."""
        if self.boundary is not None:
            if self.boundary.cutoff_ns or not self.updated_ns:
                return self.boundary if self.boundary.cutoff_ns else None
            return replace(self.boundary, cutoff_ns=self.updated_ns)
        return SummaryBoundary(cutoff_ns=self.updated_ns) if self.updated_ns else None


@dataclass(frozen=True, slots=True)
class SessionKey:
    """Names one session."""

    app_name: str
    user_id: str
    session_id: str

    def check(self) -> None:
        """Raise `InvalidSessionKeyError` for the first empty field: application, user, session (SUM-ERR-14)."""
        for name in ("app_name", "user_id", "session_id"):
            if not getattr(self, name):
                raise InvalidSessionKeyError(name)


@dataclass(frozen=True, slots=True)
class UserKey:
    """Names one user of one application."""

    app_name: str
    user_id: str


def fnv1a_32(text: str) -> int:
    """32-bit FNV-1a of the UTF-8 bytes; stable between processes, unlike `hash`."""
    value = 0x811C9DC5
    for byte in text.encode("utf-8", "surrogatepass"):
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return value


class EventFold:
    """Something derived from a session's events, one step per event, kept in `session.derived`.

    Clones of a session share their folds, so that work done for one isn't repeated for the next. A fold keeps
    the events it has seen and compares by identity: a session with another history starts it anew. It may be
    ahead of a clone that has fewer events; answers must then be bounded by `session.end_position`.
    """

    __slots__ = ("seen", "start")

    def __init__(self) -> None:
        self.start = 0
        """Absolute position of `seen[0]`."""
        self.seen: list[Event] = []

    def reset(self) -> None:
        """Forget everything derived; `seen` and `start` are dealt with by `follow`."""

    def step(self, position: int, event: Event) -> None:
        """Take in one more event."""

    def follow(self, session: Session) -> None:
        """Take in the events of `session` that weren't seen yet."""
        first, events = session.first_position, session.events
        if not self._agrees(first, events):
            self.seen, self.start = [], first
            self.reset()
        for position in range(self.start + len(self.seen), first + len(events)):
            event = events[position - first]
            self.seen.append(event)
            self.step(position, event)

    def _agrees(self, first: int, events: Sequence[Event]) -> bool:
        end_seen = self.start + len(self.seen)
        if not self.start <= first <= end_seen:
            return False
        newest_common = min(end_seen, first + len(events)) - 1
        return newest_common < first or events[newest_common - first] is self.seen[newest_common - self.start]


class _EventIndex(EventFold):
    __slots__ = ("positions",)

    def __init__(self) -> None:
        super().__init__()
        self.positions: dict[str, int] = {}

    def reset(self) -> None:
        self.positions = {}

    def step(self, position: int, event: Event) -> None:
        self.positions[event.id] = position


class Session:
    """The live session: events in stored order, state, summaries.

    `events` may be read freely; change it through `append` and `drop_oldest`. `derived` holds what other
    modules keep per session (running sums, projections), keyed by their owner, as `EventFold`s. Positions are
    absolute: event `events[i]` has position `first_position + i` for ever, also after old events were dropped.
    """

    __slots__ = (
        "_hash",
        "app_name",
        "created_ns",
        "derived",
        "events",
        "first_position",
        "id",
        "scope_filter_key",
        "state",
        "summaries",
        "tracks",
        "updated_ns",
        "user_id",
    )

    def __init__(
        self,
        *,
        app_name: str,
        user_id: str,
        id: str,  # noqa: A002 - the reference's field name
        state: State | None = None,
        events: Iterable[Event] = (),
        summaries: dict[str, Summary] | None = None,
        tracks: dict[str, list[Any]] | None = None,
        created_ns: int = 0,
        updated_ns: int = 0,
        scope_filter_key: str = "",
    ) -> None:
        self.app_name = app_name
        self.user_id = user_id
        self.id = id
        self.state: State = {} if state is None else state
        self.events: SharedLog[Event] = events.copy() if isinstance(events, SharedLog) else SharedLog(events)
        self.summaries: dict[str, Summary] = {} if summaries is None else summaries
        self.tracks: dict[str, list[Any]] = {} if tracks is None else tracks
        self.created_ns = created_ns
        self.updated_ns = updated_ns
        self.scope_filter_key = scope_filter_key
        """The branch that a check of this (temporary) session stands for; empty = full session."""
        self._hash: int | None = None
        self.first_position = 0
        self.derived: dict[Hashable, Any] = {}

    @property
    def key(self) -> SessionKey:
        """Application, user and session id."""
        return SessionKey(self.app_name, self.user_id, self.id)

    @property
    def hash(self) -> int:
        """FNV-1a of `app:user:session`, the same in every process (SUM-DM-07)."""
        if self._hash is None:
            self._hash = fnv1a_32(f"{self.app_name}:{self.user_id}:{self.id}")
        return self._hash

    @property
    def end_position(self) -> int:
        """Absolute position behind the last event."""
        return self.first_position + len(self.events)

    def append(self, event: Event) -> None:
        """Add an event at the end."""
        self.events.append(event)

    def drop_oldest(self, n_events: int) -> None:
        """Forget the first `n_events`; positions of the others stay."""
        if n_events <= 0:
            return
        n_events = min(n_events, len(self.events))
        self.events.drop_oldest(n_events)
        self.first_position += n_events

    def add_oldest(self, events: Sequence[Event]) -> None:
        """Put events in front that were dropped, or not loaded; all that was derived is forgotten."""
        self.events = SharedLog([*events, *self.events])
        self.first_position -= len(events)
        self.derived = {}

    def replace_events(self, events: Iterable[Event]) -> None:
        """Put another list in place; all that was derived from the old one is forgotten."""
        self.events = SharedLog(events)
        self.first_position = 0
        self.derived = {}

    def position_of(self, event_id: str) -> int | None:
        """Absolute position of the (last) event with this id, None if there is none."""
        if not event_id:
            return None
        index = self.derived.get(_EventIndex)
        if index is None:
            index = self.derived[_EventIndex] = _EventIndex()
        index.follow(self)
        position: int | None = index.positions.get(event_id)
        if position is None or not self.first_position <= position < self.end_position:
            return None
        return position

    def clone(self) -> Session:
        """A copy that shares only immutable values, and the folds over them (SUM-DM-08)."""
        twin = Session(
            app_name=self.app_name,
            user_id=self.user_id,
            id=self.id,
            state=dict(self.state),
            events=self.events,
            summaries=dict(self.summaries),
            tracks={name: list(events) for name, events in self.tracks.items()},
            created_ns=self.created_ns,
            updated_ns=self.updated_ns,
            scope_filter_key=self.scope_filter_key,
        )
        twin.first_position = self.first_position
        twin.derived = self.derived
        return twin

    def __repr__(self) -> str:
        return f"Session({self.app_name}/{self.user_id}/{self.id}, {len(self.events)} events)"
