"""What requests hold of a conversation's stored events: which event is where, and in which messages.

In: sessions as runs see them, and parts of lanes as assembly and tailoring made them. Out: stored events under
positions that never change in a conversation, also when a session expires or forgets; and the messages that each
event has in the request at hand. Work is proportional to what changed between two requests.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from workbench.agent.flow import SentRequest
from workbench.context.assemble import Piece
from workbench.context.project import Lane
from workbench.context.tailor import valid_form
from workbench.model.types import Message
from workbench.session.types import Event, Session


@dataclass(slots=True)
class StoredEvents:
    """Every event that was stored in a conversation, in order; a position is an index into `events`."""

    events: list[Event | None] = field(default_factory=list)
    """None stands for an event that no run ever saw: the session's view left it out from the start."""
    base: int = 0
    """Where the session in use begins; events in front of it belong to one that expired."""
    n_sessions: int = 0
    _places: dict[int, int] = field(default_factory=dict)
    _ids: dict[str, int] = field(default_factory=dict)
    _session: Session | None = None
    _created_ns: int = 0
    _segments: list[tuple[int, int]] = field(default_factory=list)
    """(first position in the session, what to add to get ours), ascending."""
    _end: int = 0
    """Position in the session up to which its events are known."""
    _first: int = 0

    def sync(self, session: Session) -> list[int]:
        """Take in what a session shows now; positions that it shows and didn't show before, or the other way."""
        old = self.shown
        if session is not self._session or session.first_position != self._first:
            self._begin(session)
        first = session.first_position
        for i in range(self._end - first, len(session.events)):
            event = session.events[i]
            place = self._places.get(id(event))
            if place is None:
                place = self._places[id(event)] = len(self.events)
                self._ids[event.id] = place
                self.events.append(event)
            if not self._segments or self._segments[-1][1] != place - first - i:
                self._segments.append((first + i, place - first - i))
        self._end = first + len(session.events)
        return _symmetric_difference(old, self.shown)

    def _begin(self, session: Session) -> None:
        first, events = session.first_position, session.events
        self._session, self._segments, self._end, self._first = session, [], first, first
        if not self.n_sessions or session.created_ns != self._created_ns:  # the one before has expired
            self.base, self._created_ns = len(self.events), session.created_ns
            self.n_sessions += 1
        if not events:
            return
        place = self._places.get(id(events[0]))
        if place is None:
            self.events += [None] * (self.base + first - len(self.events))
            return
        n_known = len(self.events) - place
        if n_known <= len(events) and events[n_known - 1] is self.events[-1]:
            self._segments.append((first, place - first))
            self._end = first + n_known

    @property
    def shown(self) -> list[tuple[int, int]]:
        """Half-open ranges of the positions that the session shows."""
        starts = [*(start for start, _ in self._segments[1:]), self._end]
        return [(start + shift, stop + shift) for (start, shift), stop in zip(self._segments, starts, strict=False)]

    @property
    def shifts(self) -> tuple[object, ...]:
        """Changes when positions of the session come to mean other events."""
        if len(self._segments) == 1:
            return (self._segments[0][1],)
        return tuple(self._segments)

    def place_of(self, position: int) -> int:
        """Our position for one of the session's."""
        segments = self._segments
        if len(segments) == 1:
            return position + segments[0][1]
        at = bisect_right(segments, position, key=lambda segment: segment[0]) - 1
        return position + segments[max(at, 0)][1] if segments else position

    def place_by_id(self, event_id: str) -> int | None:
        """Position of the newest event with this id, None without one."""
        return self._ids.get(event_id)

    def find(self, event: Event) -> int | None:
        """Position of an event, None if no run has seen it."""
        return self._places.get(id(event))


@dataclass(slots=True)
class Presence:
    """The messages that each event has in one stage of a request, brought up to date from call to call."""

    valid_only: bool = False
    """Messages that tailoring's validator drops don't count."""
    at: dict[int, list[Message]] = field(default_factory=dict)
    """Position -> its messages; events without any aren't there."""
    _pieces: Sequence[Piece] = ()
    _meaning: object = None

    def update(self, pieces: Sequence[Piece], place_of: Callable[[int], int], shift: int, meaning: object) -> set[int]:
        """Take in the next request; the positions whose messages changed.

        Args:
            place_of: From the session's positions to ours.
            shift: From the lanes' positions to the session's.
            meaning: Differs from the last call's when positions in the lanes mean other events than they did.
        """
        touched: set[int] = set()
        old = self._pieces
        if meaning != self._meaning:
            touched.update(self.at)
            self.at, old, self._meaning = {}, (), meaning
        for lane, start, stop in _without(old, pieces):
            for position, message in self._entries(lane, start, stop, place_of, shift):
                touched.add(position)
                left = [one for one in self.at.get(position, ()) if one is not message]
                if left:
                    self.at[position] = left
                else:
                    self.at.pop(position, None)
        for lane, start, stop in _without(pieces, old):
            for position, message in self._entries(lane, start, stop, place_of, shift):
                touched.add(position)
                self.at.setdefault(position, []).append(message)
        self._pieces = pieces
        return touched

    def _entries(
        self, lane: Lane, start: int, stop: int, place_of: Callable[[int], int], shift: int
    ) -> Iterator[tuple[int, Message]]:
        messages, positions, sources = lane.messages, lane.positions, lane.sources
        for i in range(start, stop):
            if positions[i] < 0 or (self.valid_only and valid_form(messages[i]) is None):
                continue
            if i in sources:
                for position in sources[i]:
                    yield place_of(position + shift), messages[i]
            else:
                yield place_of(positions[i] + shift), messages[i]


def sent_pieces(sent: SentRequest) -> Sequence[Piece]:
    """The parts of lanes that were sent, after tailoring and hooks."""
    tailored = sent.tailored
    if sent.kept is None or (tailored is not None and tailored.kept_original):
        return sent.assembly.pieces
    lanes = {id(piece.lane) for piece in sent.assembly.pieces}
    if tailored is not None and all(id(measure.lane) in lanes for measure, *_ in tailored.parts):
        return [
            Piece(measure.lane, measure.valid_sources[a], measure.valid_sources[b - 1] + 1)
            for measure, a, b, _ in tailored.parts
        ]
    return _pieces_at(sent.assembly.pieces, [i for i in sent.kept if i >= 0])


def _pieces_at(pieces: Sequence[Piece], indices: Iterable[int]) -> list[Piece]:
    """The parts of lanes that hold these messages of a request."""
    starts, offset = [], 0
    for _, start, stop in pieces:
        starts.append(offset)
        offset += stop - start
    found: list[Piece] = []
    for index in sorted(indices):
        n = bisect_right(starts, index) - 1
        lane, place = pieces[n].lane, pieces[n].start + index - starts[n]
        if found and found[-1].lane is lane and found[-1].stop == place:
            found[-1] = Piece(lane, found[-1].start, place + 1)
        else:
            found.append(Piece(lane, place, place + 1))
    return found


def _without(pieces: Sequence[Piece], others: Sequence[Piece]) -> Iterator[Piece]:
    """What is in some parts of lanes and not in others."""
    for lane, start, stop in pieces:
        left = [(start, stop)]
        for other, a, b in others:
            if other is lane:
                left = [rest for x, y in left for rest in ((x, min(y, a)), (max(x, b), y)) if rest[0] < rest[1]]
        for x, y in left:
            yield Piece(lane, x, y)


def _symmetric_difference(old: list[tuple[int, int]], new: list[tuple[int, int]]) -> list[int]:
    """Numbers that lie in ranges of one list and in none of the other."""
    found: list[int] = []
    for mine, others in ((old, new), (new, old)):
        for start, stop in mine:
            left = [(start, stop)]
            for a, b in others:
                left = [rest for x, y in left for rest in ((x, min(y, a)), (max(x, b), y)) if rest[0] < rest[1]]
            for x, y in left:
                found.extend(range(x, y))
    return found
