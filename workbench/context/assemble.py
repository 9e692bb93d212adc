"""The request that a model call would send, assembled from a session; pure and without state.

In: an invocation, the base request (instruction, tools), settings. Out: an `Assembly`: the messages and, for
each, what it is and which event it stands for; the summary used; what compaction did. Implements the content
stage (ASM-CHAIN-02, row 4), that is ASM-EVT, -HIST, -INJ, -CMP and -INTRA in their order. This is the plain
version, which looks at every event; `workbench.context.incremental` gives the same answer with less work.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

from workbench.context.compact import (
    PASS_OVERSIZED,
    SESSION_LOAD,
    Compactor,
    ContextCompactionStats,
    Rewrite,
    SkipRecentFunc,
    protected_units,
    unit_key,
)
from workbench.context.counting import TokenMemo
from workbench.context.inject import (
    Blocks,
    FoundSummary,
    Head,
    SummaryFormatter,
    behind,
    block_message,
    blocks_of,
    build_head,
    find_summary,
    in_front,
    leading_system,
)
from workbench.context.project import (
    KIND_CURRENT,
    KIND_LATE,
    KIND_SUMMARY,
    KIND_SYSTEM,
    Lane,
    MessageProjector,
    Projection,
    arrange,
    compact_entries,
    history_start,
    with_attachment_names,
)
from workbench.context.select import (
    NO_CUTOFF,
    RULE_RESUME_TAIL,
    Cutoff,
    DropNotes,
    Invocation,
    Lens,
    calls_of,
    covered_user_entries,
    select,
    select_own_invocation,
    with_invocation_message,
)
from workbench.context.settings import AgentSettings, CompactionSettings
from workbench.model.types import SYSTEM, Message, Request
from workbench.profiles import SEED, Profile
from workbench.session.types import SummaryBoundary
from workbench.tokens import TokenCounter

__all__ = ["Assembly", "ContentStage", "Invocation", "Piece", "SummaryInRequest", "assemble_content"]


class Piece(NamedTuple):
    """A stretch of a lane inside a request."""

    lane: Lane
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class SummaryInRequest:
    """The summary that a request holds."""

    filter_key: str
    text: str
    boundary: SummaryBoundary | None
    message_index: int
    """Which message holds it."""
    content_without: str
    """What that message would say without it; empty when the summary stands alone."""


@dataclass(slots=True)
class Assembly:
    """One assembled request; messages, kinds and positions are made when they are asked for."""

    pieces: tuple[Piece, ...]
    summary: SummaryInRequest | None = None
    stats: ContextCompactionStats = field(default_factory=ContextCompactionStats)
    """What compaction did, before the history limit cut anything."""
    has_session_summary: bool = False
    has_compacted_tool_results: bool = False
    """A result of the running invocation was replaced in the resume tail (ASM-INTRA-16)."""
    covered_positions_included: tuple[tuple[int, str], ...] = ()
    """(position, rule) of events that the summary covers and that are in nevertheless."""
    new_rewrites: tuple[Rewrite, ...] = ()
    """Rewrites whose form the assembly before this one didn't have; all of them in a plain assembly."""
    shared_with_previous: int = 0
    """Leading messages that are the very objects of the assembly before this one."""
    shift: int = 0
    """What has to be added to the positions in the lanes to get the session's."""
    unlimited: tuple[Piece, ...] = ()
    """The history before the limit cut it; empty when it cut nothing."""
    dropped: DropNotes = field(default_factory=DropNotes)
    """Which selected events are out all the same, in this request or in earlier ones."""
    rewrite_parts: tuple[tuple[list[Rewrite], int, int], ...] = ()
    passes: Mapping[int, Rewrite] = field(default_factory=dict)
    """id of a rewritten message -> its rewrite, of this request and of earlier ones."""
    _messages: tuple[Message, ...] | None = None
    _kinds: tuple[str, ...] | None = None
    _positions: tuple[int, ...] | None = None
    _n_messages: int = field(init=False)

    def __post_init__(self) -> None:
        self._n_messages = sum([stop - start for _, start, stop in self.pieces])

    def __len__(self) -> int:
        return self._n_messages

    @property
    def messages(self) -> tuple[Message, ...]:
        """The whole request, in order."""
        if self._messages is None:
            out: list[Message] = []
            for lane, start, stop in self.pieces:
                out += lane.messages[start:stop]
            self._messages = tuple(out)
        return self._messages

    def messages_from(self, index: int) -> list[Message]:
        """The messages from `index` on, without making those in front."""
        out: list[Message] = []
        start_of_piece = len(self)
        for lane, start, stop in reversed(self.pieces):
            start_of_piece -= stop - start
            out[:0] = lane.messages[start + max(index - start_of_piece, 0) : stop]
            if start_of_piece <= index:
                break
        return out

    def message_at(self, index: int) -> Message:
        """One message, without making the others."""
        start_of_piece = len(self)
        if not 0 <= index < start_of_piece:
            raise IndexError(index)
        for piece in reversed(self.pieces):
            start_of_piece -= piece.stop - piece.start
            if start_of_piece <= index:
                break
        return piece.lane.messages[piece.start + index - start_of_piece]

    def request(self, base: Request) -> Request:
        """`base` with these messages, which are put together when somebody reads them."""
        return AssembledRequest(base, self)

    @property
    def kinds(self) -> tuple[str, ...]:
        """What each message is: one of `workbench.context.project.KINDS`."""
        if self._kinds is None:
            out: list[str] = []
            for lane, start, stop in self.pieces:
                out += lane.kinds[start:stop]
            self._kinds = tuple(out)
        return self._kinds

    @property
    def positions(self) -> tuple[int, ...]:
        """Absolute position of the event behind each message, -1 for messages that no event stands behind."""
        if self._positions is None:
            out: list[int] = []
            for lane, start, stop in self.pieces:
                out += lane.positions[start:stop]
            if self.shift:
                out = [position + self.shift if position >= 0 else position for position in out]
            self._positions = tuple(out)
        return self._positions

    @property
    def merged_positions(self) -> dict[int, tuple[int, ...]]:
        """Index of each message that was made of several events -> their positions, without the shift."""
        merged: dict[int, tuple[int, ...]] = {}
        offset = 0
        for lane, start, stop in self.pieces:
            merged.update((offset + i - start, found) for i, found in lane.sources.items() if start <= i < stop)
            offset += stop - start
        return merged

    @property
    def rewrites(self) -> tuple[Rewrite, ...]:
        """Every rewritten tool result, resume tail included, in no fixed order."""
        return tuple(rewrite for part, start, stop in self.rewrite_parts for rewrite in part[start:stop])

    def rewrite_at(self, index: int) -> Rewrite | None:
        """What compaction did to one message; None when it left it alone."""
        return self.rewrite_of(self.message_at(index))

    def rewrite_of(self, message: Message) -> Rewrite | None:
        """The rewrite that made this very message; None for one that stands as stored."""
        rewrite = self.passes.get(id(message))
        return rewrite if rewrite is not None and rewrite.message is message else None

    @property
    def has_resume_tail(self) -> bool:
        """A covered tool round of the running invocation is in (ASM-INTRA-10)."""
        return any(rule == RULE_RESUME_TAIL for _, rule in self.covered_positions_included)

    @property
    def current_index(self) -> int | None:
        """Index of the newest current user message."""
        end = len(self)
        for lane, start, stop in reversed(self.pieces):
            end -= stop - start
            users = lane.users()
            for j in range(bisect_left(users, stop) - 1, -1, -1):
                if users[j] < start:
                    break
                if lane.kinds[users[j]] == KIND_CURRENT:
                    return end + users[j] - start
        return None

    @property
    def first_position(self) -> int:
        """Position of the oldest event in the request, in the order of the messages; -1 without any."""
        for lane, start, stop in self.pieces:
            for position in lane.positions[start:stop]:
                if position >= 0:
                    return position + self.shift
        return -1

    def with_system_suffix(self, text: str) -> Assembly:
        """Another assembly with `text` behind the first system message and a blank line; a new one without any.

        A text that is there already isn't added again (ASM-OND-03).
        """
        offset = 0
        for n, (lane, start, stop) in enumerate(self.pieces):
            for i in range(start, stop):
                message = lane.messages[i]
                if message.role != SYSTEM:
                    continue
                if text in message.content:
                    return self
                changed = Lane()
                changed.add(replace(message, content=behind(message.content, text)), lane.kinds[i], lane.positions[i])
                parts = (Piece(lane, start, i), Piece(changed, 0, 1), Piece(lane, i + 1, stop))
                kept = tuple(part for part in parts if part.stop > part.start)
                pieces = (*self.pieces[:n], *kept, *self.pieces[n + 1 :])
                return self._with_head(pieces, suffixed=offset + i - start, text=text)
            offset += stop - start
        alone = Lane()
        alone.add(Message(role=SYSTEM, content=text), KIND_SYSTEM, -1)
        return self._with_head((Piece(alone, 0, 1), *self.pieces), suffixed=-1, text=text)

    def _with_head(self, pieces: tuple[Piece, ...], *, suffixed: int, text: str) -> Assembly:
        summary = self.summary
        if summary is not None and suffixed < 0:
            summary = replace(summary, message_index=summary.message_index + 1)
        elif summary is not None and summary.message_index == suffixed:
            summary = replace(summary, content_without=behind(summary.content_without, text))
        return replace(self, pieces=pieces, summary=summary, _messages=None, _kinds=None, _positions=None)


class AssembledRequest(Request):
    """A request whose messages still lie in the lanes of its assembly.

    A call sends nearly what the call before sent, so whoever looks only at the new messages shouldn't pay for all
    of them; who reads `messages` gets the same tuple as from any request.
    """

    __slots__ = ("_assembly",)

    _assembly: Assembly

    def __init__(self, base: Request, assembly: Assembly) -> None:
        for name in _OWN_FIELDS:
            object.__setattr__(self, name, getattr(base, name))
        object.__setattr__(self, "_assembly", assembly)

    @property
    def messages(self) -> tuple[Message, ...]:
        return self._assembly.messages

    @property
    def n_messages(self) -> int:
        return len(self._assembly)

    def message_at(self, index: int) -> Message:
        return self._assembly.message_at(index)

    def messages_from(self, index: int) -> list[Message]:
        return self._assembly.messages_from(index)

    def replace(self, **changes: Any) -> Request:
        own = {name: getattr(self, name) for name in _OWN_FIELDS}
        if "messages" not in changes:
            own["messages"] = self.messages
        return Request(**{**own, **changes})

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Request):
            return NotImplemented
        return self.messages == other.messages and all(
            getattr(self, name) == getattr(other, name) for name in _OWN_FIELDS
        )

    __hash__ = Request.__hash__


_OWN_FIELDS = tuple(field.name for field in fields(Request) if field.name != "messages")


def assemble_content(
    invocation: Invocation,
    base: Request,
    settings: AgentSettings,
    compaction: CompactionSettings,
    *,
    counter: TokenCounter | TokenMemo | None,
    summary_formatter: SummaryFormatter | None = None,
    skip_recent_func: SkipRecentFunc | None = None,
    message_projector: MessageProjector | None = None,
    system_suffix: str = "",
    profile: Profile = SEED,
) -> Assembly:
    """The content of one request.

    Args:
        invocation: Who asks.
        base: Messages built before (instruction), and the tools that the request offers.
        settings: What goes in.
        compaction: Which tool results are rewritten.
        counter: The compaction counter; a `TokenMemo` is used as it is.
        summary_formatter: Replaces the default block around a summary (ASM-INJ-11).
        skip_recent_func: Newest events whose units passes 0 and 1 spare; overrides `compaction.skip_recent`.
        message_projector: Rewrites each message that was made of an event.
        system_suffix: Goes behind everything else in the first system message: overview, guidance, date
            (ASM-CACHE-02).
        profile: Which revision to follow.
    """
    memo = counter if isinstance(counter, TokenMemo) else TokenMemo(counter)
    stage = ContentStage(
        settings,
        Compactor(compaction, memo, can_recover(invocation, base)),
        summary_formatter,
        skip_recent_func if skip_recent_func is not None else constant_skip(compaction.skip_recent),
        message_projector,
        profile,
    )
    return stage.assemble(invocation, base, system_suffix)


@dataclass(slots=True)
class ContentStage:
    """The content stage with all that stays the same from call to call."""

    settings: AgentSettings
    compactor: Compactor
    summary_formatter: SummaryFormatter | None
    skip_recent: SkipRecentFunc | None
    projector: MessageProjector | None
    profile: Profile
    dropped: DropNotes = field(default_factory=DropNotes)

    def assemble(self, invocation: Invocation, base: Request, system_suffix: str = "") -> Assembly:
        """One request, from every event of the session."""
        found = find_summary(invocation, self.settings)
        cutoff = NO_CUTOFF if found is None else Cutoff.of(found.boundary, invocation.session)
        system_blocks, user_blocks = blocks_of(invocation, self.settings, found, self.summary_formatter)
        if invocation.session is None:
            head = build_head(base.messages, invocation, Blocks(), self.profile, system_suffix)
            return compose(invocation, head, [], user_blocks=Blocks(), found=None)
        lane, has_compacted = _history(Lens(invocation, self.settings, self.profile, cutoff, self.dropped), self)
        start = 0
        if self.limit and not invocation.skips_history:
            start = history_start(lane.messages, self.limit, self.settings.limit_unit(self.profile))
        head = build_head(base.messages, invocation, system_blocks, self.profile, system_suffix)
        assembly = compose(invocation, head, [Piece(lane, start, len(lane))], user_blocks=user_blocks, found=found)
        assembly.has_compacted_tool_results = has_compacted
        assembly.stats = ContextCompactionStats.of(lane.rewrites)
        assembly.rewrite_parts = ((lane.rewrites, 0, len(lane.rewrites)),)
        assembly.new_rewrites = tuple(lane.rewrites)
        assembly.covered_positions_included = tuple(sorted(lane.covered))
        assembly.passes = self.compactor.passes
        assembly.dropped = self.dropped
        if start:
            assembly.unlimited = (Piece(lane, 0, len(lane)),)
        return assembly

    @property
    def limit(self) -> int:
        """Rounds or messages of history; 0 = all."""
        return 0 if self.settings.add_session_summary else self.settings.max_history_runs


def can_recover(invocation: Invocation, base: Request) -> bool:
    """`session_load` works: the service can load windows and the request offers the tool (ASM-CMP-32)."""
    return invocation.can_load_windows and any(tool.name == SESSION_LOAD for tool in base.tools)


def constant_skip(n_events: int | None) -> SkipRecentFunc | None:
    """A skip function that always answers the same; None for None."""
    return None if n_events is None else lambda events: n_events


def _history(lens: Lens, stage: ContentStage) -> tuple[Lane, bool]:
    """The history's messages, before the limit, and whether a result of this invocation was replaced."""
    invocation, compactor = lens.invocation, stage.compactor
    session = invocation.session
    assert session is not None
    events = session.events
    positions = range(session.first_position, session.end_position)
    if invocation.skips_history:
        return _own_history(lens, compactor, stage.projector), False
    selection = select(positions, events, lens, compactor)
    entries = arrange(with_invocation_message(selection, invocation), lens)
    current_key = unit_key(invocation.request_id, invocation.invocation_id)
    protected: set[str] = set()
    if compactor.spares_recent:
        protected = protected_units(
            [entry.event for entry in entries],
            current_key,
            keep_recent=compactor.settings.keep_recent_requests,
            skip_recent=stage.skip_recent,
        )
    entries, rewrites = compact_entries(entries, compactor, current_key=current_key, protected=protected)
    anchors = {}
    if lens.cutoff.cutoff_ns and lens.settings.has_user_anchors(lens.profile):
        anchors = covered_user_entries(positions, events, lens)
    lane = Projection(lens, stage.projector, calls_of(entries), anchors).project(entries)
    lane.rewrites = selection.resume_rewrites + rewrites
    return lane, selection.has_compacted_tool_results


def _own_history(lens: Lens, compactor: Compactor, projector: MessageProjector | None) -> Lane:
    """History of `include_contents = none`: own events, pass 2 on the finished messages."""
    invocation = lens.invocation
    session = invocation.session
    assert session is not None
    positions = range(session.first_position, session.end_position)
    selection = select_own_invocation(positions, session.events, lens)
    entries = arrange(with_invocation_message(selection, invocation), replace_transcript_mode(lens))
    lane = Projection(lens, projector, calls_of(entries)).project(entries)
    settings = compactor.settings
    if settings.enabled and settings.oversized_tool_result_max_tokens > 0:
        # Without an event at hand there's nothing to load from, so the marker gives the other hint.
        plain = replace(compactor, session_load_available=False)
        for i, message in enumerate(lane.messages):
            changed = plain.rewrite(message, "", PASS_OVERSIZED)
            if changed is not None:
                event = session.events[lane.positions[i] - session.first_position]
                lane.messages[i] = changed[0]
                lane.rewrites.append(replace(changed[1], event_id=event.id))
    return lane


def replace_transcript_mode(lens: Lens) -> Lens:
    """The same lens, keeping all tool transcripts: an invocation's own rounds are never of the past."""
    if lens.settings.tool_transcript_mode == "keep_all":
        return lens
    return replace(lens, settings=lens.settings.replace(tool_transcript_mode="keep_all"))


# --- head, history and blocks as one request ----------------------------------------------------------


def compose(
    invocation: Invocation,
    head: Head,
    history: Sequence[Piece],
    *,
    user_blocks: Blocks,
    found: FoundSummary | None,
) -> Assembly:
    """Join head and history, put user-mode blocks and late context in (ASM-INJ-08, -21, ASM-HIST-03)."""
    front = Piece(head.lane, 0, len(head.lane))
    pieces = [piece for piece in history if piece.stop > piece.start]
    index, without = head.summary_index, head.content_without
    block = user_blocks.joined()
    if block:
        front, pieces, index, without = _with_user_block(front, pieces, user_blocks)
        if not user_blocks.summary:
            index, without = head.summary_index, head.content_without
    if not pieces and invocation.message.has_payload:
        message_lane = Lane()
        message_lane.add(with_attachment_names(invocation.message), KIND_CURRENT, -1)
        pieces = [Piece(message_lane, 0, 1)]
    all_pieces = [front, *pieces] if front.stop else pieces
    if invocation.late_context_messages:
        all_pieces, late_at = _with_late_context(all_pieces, invocation.late_context_messages)
        if index >= late_at:
            index += len(invocation.late_context_messages)
    summary = None
    if found is not None and index >= 0:
        summary = SummaryInRequest(found.filter_key, found.text, found.boundary, index, without)
    return Assembly(tuple(all_pieces), summary, has_session_summary=found is not None)


def _with_user_block(front: Piece, history: list[Piece], blocks: Blocks) -> tuple[Piece, list[Piece], int, str]:
    """Put the user-mode block in by the first matching case of ASM-INJ-08.

    Returns:
        Head, history, index of the message that holds the block, its text without the summary.
    """
    block, rest = blocks.joined(), blocks.joined(with_summary=False)
    at = front.stop
    for i, (lane, start, stop) in enumerate(history):
        users = lane.users()
        j = bisect_left(users, start)
        if j < len(users) and users[j] < stop:
            place = users[j]
            message = lane.messages[place]
            merged = Lane()
            merged.add(
                replace(message, content=in_front(block, message.content)), lane.kinds[place], lane.positions[place]
            )
            if place in lane.sources:
                merged.sources[0] = lane.sources[place]
            parts = [Piece(lane, start, place), Piece(merged, 0, 1), Piece(lane, place + 1, stop)]
            kept = [part for part in parts if part.stop > part.start]
            index = at + place - start
            return front, [*history[:i], *kept, *history[i + 1 :]], index, in_front(rest, message.content)
        at += stop - start
    last = front.lane.messages[-1] if front.stop else None
    if last is not None and last.is_user_like:
        head = Lane(front.lane.messages[:], front.lane.kinds[:], front.lane.positions[:])
        head.messages[-1] = replace(last, content=behind(last.content, block))
        return Piece(head, 0, front.stop), history, front.stop - 1, behind(last.content, rest)
    alone = Lane()
    alone.add(block_message(block), KIND_SUMMARY, -1)
    return front, [Piece(alone, 0, 1), *history], front.stop, rest


def _with_late_context(pieces: list[Piece], late: Sequence[Message]) -> tuple[list[Piece], int]:
    """Put late context before the last user-like message, else behind the leading system messages."""
    lane = Lane()
    for message in late:
        lane.add(message, KIND_LATE, -1)
    inserted = Piece(lane, 0, len(lane))
    end = sum(stop - start for _, start, stop in pieces)
    for i in range(len(pieces) - 1, -1, -1):
        host, start, stop = pieces[i]
        end -= stop - start
        users = host.users()
        j = bisect_left(users, stop) - 1
        if j >= 0 and users[j] >= start:
            place = users[j]
            return _split(pieces, i, place, inserted), end + place - start
    if not pieces:
        return [inserted], 0
    host, start, stop = pieces[0]
    place = start + leading_system(host.messages[start:stop])
    return _split(pieces, 0, place, inserted), place - start


def _split(pieces: list[Piece], i: int, place: int, inserted: Piece) -> list[Piece]:
    host, start, stop = pieces[i]
    parts = [Piece(host, start, place), inserted, Piece(host, place, stop)]
    return [*pieces[:i], *(part for part in parts if part.stop > part.start), *pieces[i + 1 :]]
