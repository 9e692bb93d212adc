"""What requests hold of a conversation's stored events: which event is where, and in which messages.

In: sessions as runs see them, and parts of lanes as assembly and tailoring made them. Out: stored events under
positions that never change in a conversation, also when a session expires or forgets; and the messages that each
event has in the request at hand. Work is proportional to what changed between two requests.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from workbench.agent.flow import SentRequest
from workbench.context.assemble import Piece
from workbench.context.tailor import valid_form
from workbench.model.types import ROLES, Message
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
        if session is self._session and len(self._segments) == 1 and session.first_position == self._first:
            known = len(self.events)
            self._append(session)  # the common case: it has grown, and what it grew by is new to us
            return list(range(known, len(self.events)))
        old = self.shown
        if session is not self._session or session.first_position != self._first:
            self._begin(session)
        self._append(session)
        return _symmetric_difference(old, self.shown)

    def _append(self, session: Session) -> None:
        """Take in the events behind those that are known."""
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
        if len(self._segments) == 1:
            start, shift = self._segments[0]
            return [(start + shift, self._end + shift)]
        starts = [*(start for start, _ in self._segments[1:]), self._end]
        return [(start + shift, stop + shift) for (start, shift), stop in zip(self._segments, starts, strict=False)]

    @property
    def shifts(self) -> tuple[object, ...]:
        """Changes when positions of the session come to mean other events."""
        if len(self._segments) == 1:
            return (self._segments[0][1],)
        return tuple(self._segments)

    @property
    def offset(self) -> int | None:
        """What turns the session's positions into ours, if it's the same for all of them."""
        return self._segments[0][1] if len(self._segments) == 1 else None

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

    def update(self, pieces: Sequence[Piece], stored: StoredEvents, shift: int) -> set[int]:
        """Take in the next request; the positions whose messages changed.

        Args:
            shift: From the lanes' positions to the session's.
        """
        touched: set[int] = set()
        old = self._pieces
        if not old and not pieces:
            return touched
        meaning = (shift, stored.shifts, self.valid_only)
        if meaning != self._meaning:  # positions in the lanes mean other events than they did
            touched.update(self.at)
            self.at, old, self._meaning = {}, (), meaning
        at = self.at
        for piece in _without(old, pieces):
            for position, message in self._entries(piece, stored, shift):
                touched.add(position)
                left = [one for one in at.get(position, ()) if one is not message]
                if left:
                    at[position] = left
                else:
                    at.pop(position, None)
        for piece in _without(pieces, old):
            for position, message in self._entries(piece, stored, shift):
                touched.add(position)
                if position in at:
                    at[position].append(message)
                else:
                    at[position] = [message]
        self._pieces = pieces
        return touched

    def _entries(self, piece: Piece, stored: StoredEvents, shift: int) -> Iterator[tuple[int, Message]]:
        """Position and message, one after the other; a message of several events comes once for each."""
        lane, start, stop = piece
        if not lane.sources and not self.valid_only and stored.offset is not None:
            offset = stored.offset + shift
            places = lane.positions[start:stop]
            yield from (
                (at + offset, one) for at, one in zip(places, lane.messages[start:stop], strict=True) if at >= 0
            )
            return
        for i in range(start, stop):
            message = lane.messages[i]
            if lane.positions[i] < 0:
                continue
            if self.valid_only and not (message.content and message.role in ROLES) and valid_form(message) is None:
                continue
            for position in lane.sources.get(i, lane.positions[i : i + 1]):
                yield stored.place_of(position + shift), message


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
        if any(other is lane and a <= start and stop <= b for other, a, b in others):
            continue  # what two requests in a row have in common, which is most
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
