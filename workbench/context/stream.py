"""A session's events as one growing list that survives re-reading the session.

In: session objects, call after call: the same one grown, or another one read from a store that holds the same
events. Out: events under positions that never change, units (runs of events of one request), and which
results answer a call that isn't the newest. Work is proportional to what is new.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

from workbench.context.compact import unit_key
from workbench.session.rounds import call_ids, result_ids
from workbench.session.shared_log import SharedLog
from workbench.session.types import Event, Session


@dataclass(slots=True)
class EventStream:
    """Events of one session under positions of its own; `shift` turns them into the session's."""

    events: list[Event] = field(default_factory=list)
    first: int = 0
    """Position of the oldest event that the session still shows."""
    shift: int = 0
    unit_starts: list[int] = field(default_factory=list)
    unit_keys: list[str] = field(default_factory=list)
    irregular_at: int = -1
    """Position of the newest event that comes back to an earlier unit, or answers a call of one."""
    answered: set[int] = field(default_factory=set)
    """Positions of result events that answer a call, whichever."""
    generation: int = 0
    """Grows when positions lose their meaning."""
    _session: Session | None = None
    _log: SharedLog[Event] = field(default_factory=SharedLog)
    """What the session showed the last time."""
    _ids: dict[str, int] = field(default_factory=dict)
    _seen_keys: set[str] = field(default_factory=set)
    _invocations: dict[str, int] = field(default_factory=dict)
    _waiting: dict[str, list[int]] = field(default_factory=dict)

    @property
    def end(self) -> int:
        """Position behind the newest event."""
        return len(self.events)

    def sync(self, session: Session) -> None:
        """Take in what the session has now."""
        if not (self._continues(session) if session is self._session else self._aligns(session)):
            self._restart(session)
        self._session, self._log = session, session.events.copy()
        self.first = session.first_position - self.shift
        for event in session.events[self.end - self.first :]:
            self._append(event)

    def _continues(self, session: Session) -> bool:
        """The same object has only grown, or lost old events, since the last time."""
        known = self.end + self.shift - session.first_position  # events of ours that it still shows
        first = session.first_position - self.shift
        if first < self.first or not 0 <= known <= len(session.events):
            return False
        return known == 0 or session.events[known - 1] is self.events[-1]

    def _aligns(self, session: Session) -> bool:
        """Another object shows a tail of our events and goes on from there."""
        if not self.events or not session.events:
            return False
        start = self._ids.get(session.events[0].id, -1) if session.events[0].id else -1
        known = self.end - start
        if start < self.first or known > len(session.events):
            return False
        if not session.events.continues(self._log) and session.events[:known] != self.events[start:]:
            return False
        self.shift = session.first_position - start
        return True

    def _restart(self, session: Session) -> None:
        generation = self.generation + 1
        self.__init__()  # type: ignore[misc]
        self.generation = generation
        self.shift = session.first_position

    def _append(self, event: Event) -> None:
        position = len(self.events)
        self.events.append(event)
        if event.id:
            self._ids[event.id] = position
        self._invocations.setdefault(event.invocation_id, position)
        key = unit_key(event.request_id, event.invocation_id)
        if not self.unit_keys or self.unit_keys[-1] != key:
            if key and key in self._seen_keys:
                self.irregular_at = position
            self._seen_keys.add(key)
            self.unit_starts.append(position)
            self.unit_keys.append(key)
        response = event.response
        if response is None or response.is_partial:
            return
        if response.is_tool_call:
            for call_id in dict.fromkeys(call_ids(event)):
                self._waiting.setdefault(call_id, []).append(position)
        elif response.is_tool_result:
            for answered_id in result_ids(event):
                callers = self._waiting.get(answered_id)
                if callers:
                    self.answered.add(position)
                    if callers.pop() < self.unit_starts[-1]:
                        self.irregular_at = position

    def position_of(self, event_id: str) -> int:
        """Position of the newest shown event with this id, -1 without one."""
        position = self._ids.get(event_id, -1) if event_id else -1
        return position if position >= self.first else -1

    def has_unit(self, key: str) -> bool:
        """Some event belongs to this unit."""
        return key in self._seen_keys

    def first_of_invocation(self, invocation_id: str) -> int:
        """Position of the first event of an invocation; the end if it has none."""
        return self._invocations.get(invocation_id, self.end)

    def unit_at(self, position: int) -> int:
        """Index of the unit that holds a position."""
        return bisect_right(self.unit_starts, position) - 1

    def unit_end(self, unit: int) -> int:
        """Position behind a unit."""
        return self.unit_starts[unit + 1] if unit + 1 < len(self.unit_starts) else self.end
