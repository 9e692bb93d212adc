"""The content stage, call after call, with work proportional to what is new.

In: the same as `workbench.context.assemble.assemble_content`. Out: the same, to the byte; tests hold both
together. A request's history is a row of lanes that only grow at their ends:

    closed      earlier units (requests) in their final form: their tool results are compacted
    recent      units that compaction still spares; each moves to `closed` once, when it loses protection
    current     the running request, up to its newest tool call
    open        from that call on; made anew for each request, usually two events

What can't be split at unit and round borders (units that interleave, results that answer calls of earlier
requests, calls without ids, a `skip_recent_func` that may look at anything) goes the plain way, per call.

The module is long but one thing: the four lanes, what moves between them, and the accounts that go with them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from workbench.context.assemble import Assembly, ContentStage, Invocation, Piece, can_recover, compose, constant_skip
from workbench.context.compact import NO_STATS, Compactor, ContextCompactionStats, Rewrite, SkipRecentFunc, unit_key
from workbench.context.counting import TokenMemo
from workbench.context.inject import Blocks, Head, SummaryFormatter, blocks_of, build_head, find_summary
from workbench.context.project import (
    Lane,
    MessageProjector,
    Projection,
    arrange,
    compact_entries,
    is_context_message,
)
from workbench.context.sanitize import Schemas, sanitize_assembly, sanitized_lane, schemas_of
from workbench.context.select import (
    NO_CUTOFF,
    Cutoff,
    Entry,
    Lens,
    TurnKey,
    calls_of,
    covered_user_entries,
    inserted_message,
    is_eligible,
    only_matched,
    select,
    turn_key,
    waiting_ids,
)
from workbench.context.settings import AgentSettings, CompactionSettings
from workbench.context.stream import EventStream
from workbench.model.types import TOOL, Message, Request
from workbench.profiles import SEED, Profile
from workbench.session.rounds import (
    ResultMatch,
    call_ids,
    is_call,
    is_per_call_result,
    is_result,
    match_results,
    result_ids,
)
from workbench.session.types import Event, SummaryBoundary
from workbench.tokens import TokenCounter


class _GoPlain(Exception):  # noqa: N818 - a way out, not an error
    """This call can't be split; the plain stage answers it."""


@dataclass(slots=True)
class _Mark:
    """Where a unit begins in the closed lane."""

    start: int
    stop: int
    """Positions of the unit."""
    n_messages: int
    n_rewrites: int
    stats: ContextCompactionStats
    """Message, rewrite and saving counts in front of it."""


@dataclass(slots=True)
class _Unit:
    """A past unit that compaction may still spare."""

    start: int
    stop: int
    key: str
    entries: list[Entry]
    resume_rewrites: list[Rewrite]
    anchors: dict[TurnKey, Entry]
    is_completed: bool = False
    is_protected: bool = False
    lane: Lane | None = None

    def arrange(self, lens: Lens) -> None:
        """Bring the entries in their final order."""
        self.entries = arrange(self.entries, lens, ends_request=False)
        self.is_completed = any(
            entry.event.response is not None and entry.event.response.done for entry in self.entries
        )


@dataclass(slots=True)
class _Round:
    """A tool round of the current unit, as far as it's there."""

    call: int
    waiting: set[str]
    last: int
    """Position of its newest event."""
    is_own: bool
    """It may become the resume tail."""


@dataclass(slots=True)
class _Facts:
    """What is known of the current unit's events whatever the cutoff: what a moved boundary needs."""

    start: int
    end: int
    """Positions taken in so far."""
    pinned: list[int] = field(default_factory=list)
    rounds: list[_Round] = field(default_factory=list)
    own_results: list[int] = field(default_factory=list)
    turn_users: dict[TurnKey, list[int]] = field(default_factory=dict)
    is_tangled: bool = False
    """Rounds overlap, so the resume tail has to be looked for among all events."""
    n_checked: int = 0
    first_big: int = -1
    """Position of the first own result that the resume tail would replace."""

    def add(self, position: int, event: Event, lens: Lens) -> None:
        """One more event of the unit."""
        self.end = position + 1
        if not is_eligible(event):
            return
        if lens.pinned_rule(event):
            self.pinned.append(position)
        if not lens.passes_filters(event):
            return
        key = turn_key(event)
        if key is not None and event.message.is_user_like:
            self.turn_users.setdefault(key, []).append(position)
        invocation = lens.invocation
        is_own = (
            invocation.owns(event)
            and event.id not in invocation.seed_history_ids
            and event.id not in invocation.current_turn_ids
        )
        if is_call(event):
            ids = {call_id for call_id in call_ids(event) if call_id}
            self.rounds.append(_Round(position, ids, position, is_own and bool(ids)))
        elif is_result(event):
            if is_own:
                self.own_results.append(position)
            latest = self.rounds[-1] if self.rounds else None
            ids = set(result_ids(event))
            if latest is None or not ids <= latest.waiting:
                self.is_tangled = True
            if latest is not None:
                latest.waiting -= ids
                latest.last = position
                latest.is_own = latest.is_own and is_own

    def scan_start(self, boundary: int) -> int:
        """From where on events matter when the summary ends at `boundary`, pinned ones aside."""
        if self.is_tangled:
            return self.start
        start = boundary + 1
        for one in reversed(self.rounds):
            if one.call > boundary:
                continue
            if one.last > boundary:
                start = one.call
            elif one.is_own and not one.waiting:
                return min(start, one.call)
        return start

    def positions(self, cutoff: Cutoff, end: int, *, with_anchors: bool) -> list[int]:
        """Positions that decide what the current unit sends under a cutoff."""
        boundary = cutoff.last_position
        if not cutoff.cutoff_ns or boundary < self.start:
            return list(range(self.start, end))
        start = self.scan_start(boundary)
        early = set(self.pinned[: bisect_left(self.pinned, start)])
        if with_anchors:
            for users in self.turn_users.values():
                n_covered = bisect_right(users, boundary)
                if n_covered:
                    early.add(users[n_covered - 1])
        return [*sorted(position for position in early if position < start), *range(start, end)]

    def has_big_result(self, boundary: int, events: Sequence[Event], compactor: Compactor) -> bool:
        """A covered own result is so long that the resume tail would replace it (ASM-INTRA-16)."""
        while self.first_big < 0 and self.n_checked < len(self.own_results):
            position = self.own_results[self.n_checked]
            if position > boundary:
                break
            self.n_checked += 1
            if compactor.would_compact_resume_event(events[position]):
                self.first_big = position
        return 0 <= self.first_big <= boundary


@dataclass(slots=True)
class _Current:
    """The running request under one cutoff: closed up to its newest call, open behind it."""

    lens: Lens
    facts: _Facts
    lane: Lane = field(default_factory=Lane)
    open: list[Entry] = field(default_factory=list)
    end: int = 0
    """Positions taken in so far."""
    waiting: set[str] = field(default_factory=set)
    """Ids that closed calls still wait for."""
    open_waiting: set[str] = field(default_factory=set)
    found_message: bool = False
    has_late_result: bool = False
    """Behind the newest call stands a result of an older one; if the request ends in a result, it's dropped."""
    ends_with_result: bool = False
    """The newest entry is a tool result, wherever it went."""
    is_floating: bool = False
    """The inserted message stands behind everything and may have to move."""
    n_closed: int = 0
    """Entries in the closed part."""
    sent: tuple[int, Lane, Lane, set[TurnKey]] | None = None
    """Of the last request: entries in the open part, its lane before and after sanitising, turns begun in it; None
    when closing it would give another lane."""
    anchors: dict[TurnKey, Entry] = field(default_factory=dict)
    started: set[TurnKey] = field(default_factory=set)
    stats: ContextCompactionStats = NO_STATS
    has_compacted: bool = False


@dataclass(slots=True)
class _View:
    """Past units under one filter and one cutoff."""

    lens: Lens
    folded: int
    """Positions in front of this are in the lanes below."""
    first: int
    closed: Lane = field(default_factory=Lane)
    marks: list[_Mark] = field(default_factory=list)
    stats: ContextCompactionStats = NO_STATS
    n_skipped_marks: int = 0
    partial: Lane | None = None
    """What is left of the oldest unit when the session dropped a part of it."""
    recent: list[_Unit] = field(default_factory=list)
    waiting: set[str] = field(default_factory=set)
    has_entries_closed: bool = False
    has_completed_closed: bool = False
    can_split: bool = True


@dataclass(slots=True)
class _HeadKey:
    """What a request's head was made of."""

    base: tuple[Message, ...]
    injected: tuple[Message, ...]
    few_shot: tuple[tuple[Message, ...], ...]
    blocks: Blocks
    suffix: str


class ContentAssembler:
    """Assembles the requests of one agent in one session, one after the other.

    Args:
        settings: What goes in.
        compaction: Which tool results are rewritten.
        counter: The compaction counter.
        summary_formatter: Replaces the default block around a summary.
        skip_recent_func: As in `assemble_content`; with one, each call goes the plain way.
        message_projector: The same.
        profile: Which revision to follow.
        sanitize: Also bring tool messages in order (ASM-SAN), against the tools of the base request.
    """

    def __init__(
        self,
        settings: AgentSettings,
        compaction: CompactionSettings,
        *,
        counter: TokenCounter | TokenMemo | None = None,
        summary_formatter: SummaryFormatter | None = None,
        skip_recent_func: SkipRecentFunc | None = None,
        message_projector: MessageProjector | None = None,
        profile: Profile = SEED,
        sanitize: bool = False,
    ) -> None:
        self.settings = settings
        self.memo = counter if isinstance(counter, TokenMemo) else TokenMemo(counter)
        self.profile = profile
        self.n_plain = 0
        """Calls that went the plain way."""
        self._compactors = {can_load: Compactor(compaction, self.memo, can_load) for can_load in (False, True)}
        self._stage = ContentStage(
            settings,
            self._compactors[False],
            summary_formatter,
            skip_recent_func if skip_recent_func is not None else constant_skip(compaction.skip_recent),
            message_projector,
            profile,
        )
        self._n_skip = 0 if skip_recent_func is not None else compaction.skip_recent or 0
        self._always_plain = skip_recent_func is not None or message_projector is not None
        self._sanitize = sanitize
        self._has_anchors = settings.has_user_anchors(profile)
        self._stream = EventStream()
        self._forms: dict[tuple[int, str], tuple[object, Message]] = {}
        self._view: _View | None = None
        self._view_key: tuple[object, ...] = ()
        self._current: _Current | None = None
        self._facts = _Facts(0, 0)
        self._facts_key: tuple[object, ...] = ()
        self._head: tuple[_HeadKey, Head] | None = None
        self._schemas: Schemas = {}
        self._schemas_of: object = None
        self._previous: Assembly | None = None
        self._published: dict[tuple[str, str], Rewrite] = {}
        self._fresh: list[Rewrite] = []

    # --- one call -------------------------------------------------------------------------------------

    def assemble(self, invocation: Invocation, base: Request, *, system_suffix: str = "") -> Assembly:
        """The request for one model call; see `assemble_content`."""
        compactor = self._compactors[can_recover(invocation, base)]
        self._stage.compactor = compactor
        if invocation.session is not None:
            self._stream.sync(invocation.session)
        try:
            assembly = self._split_assembly(invocation, base, system_suffix)
        except _GoPlain:
            assembly = self._plain_assembly(invocation, base, system_suffix)
        assembly.passes = compactor.passes
        assembly.new_rewrites, self._fresh = tuple(self._fresh), []
        assembly.shared_with_previous = _n_shared(self._previous, assembly)
        self._previous = assembly
        return assembly

    def _plain_assembly(self, invocation: Invocation, base: Request, system_suffix: str) -> Assembly:
        self.n_plain += 1
        assembly = self._stage.assemble(invocation, base, system_suffix)
        self._publish(assembly.rewrites)
        return sanitize_assembly(assembly, base.tools) if self._sanitize else assembly

    def _split_assembly(self, invocation: Invocation, base: Request, system_suffix: str) -> Assembly:
        if (
            invocation.session is None
            or self._always_plain
            or invocation.skips_history
            or not invocation.request_id
            or not invocation.invocation_id
            or (self._sanitize and _has_tool_messages((*invocation.late_context_messages, invocation.message)))
        ):
            raise _GoPlain
        found = find_summary(invocation, self.settings)
        cutoff = self._cutoff_of(found.boundary) if found is not None else NO_CUTOFF
        self._check_regular(cutoff)
        lens = Lens(invocation, self.settings, self.profile, cutoff, self._stage.dropped)
        view = self._view_for(lens, base)
        current = self._current_for(lens, view)
        open_lane = self._open_lane(current, view)
        everything = self._pieces(view, current, open_lane)
        pieces = self._limited(everything)
        system_blocks, user_blocks = blocks_of(invocation, self.settings, found, self._stage.summary_formatter)
        head = self._head_for(invocation, base, system_blocks, system_suffix)
        assembly = compose(invocation, head, pieces, user_blocks=user_blocks, found=found)
        assembly.dropped = self._stage.dropped
        if pieces is not everything:
            assembly.unlimited = tuple(everything)
        self._account(assembly, view, current, open_lane)
        return assembly

    def _cutoff_of(self, boundary: SummaryBoundary | None) -> Cutoff:
        if boundary is None or not boundary.cutoff_ns:
            return NO_CUTOFF
        return Cutoff(self._stream.position_of(boundary.last_event_id), boundary.cutoff_ns)

    def _check_regular(self, cutoff: Cutoff) -> None:
        """Units and rounds can be told apart behind the cutoff."""
        stream = self._stream
        if stream.irregular_at < stream.first:
            return
        if cutoff.last_position < 0 or stream.irregular_at >= stream.unit_starts[stream.unit_at(cutoff.last_position)]:
            raise _GoPlain

    # --- past units -----------------------------------------------------------------------------------

    def _view_for(self, lens: Lens, base: Request) -> _View:
        """Past units up to the current one, each in the form it has now."""
        stream, invocation = self._stream, lens.invocation
        start = self._current_start(invocation)
        if lens.timeline == "invocation" and stream.first_of_invocation(invocation.invocation_id) < start:
            raise _GoPlain  # earlier units have events of this invocation
        tools: object = base.tools if self._sanitize else None
        if self._sanitize and base.tools is not self._schemas_of:
            self._schemas, self._schemas_of = schemas_of(base.tools), base.tools
        key = (
            stream.generation,
            lens.cutoff,
            invocation.filter_key,
            invocation.branch,
            invocation.agent_name,
            invocation.seed_history_ids,
            self._stage.compactor.session_load_available,
            tools,
        )
        view = self._view
        if view is None or key != self._view_key or start < view.folded or not self._drop_oldest(view):
            view = self._view = _View(lens, self._first_position(lens.cutoff), stream.first)
            self._view_key = key
            self._current = None
        view.lens = lens
        while view.folded < start:
            unit = stream.unit_at(view.folded)
            self._fold(view, view.folded, min(stream.unit_end(unit), start), stream.unit_keys[unit])
        if not view.can_split:
            raise _GoPlain
        return view

    def _current_start(self, invocation: Invocation) -> int:
        """Where the running request's events begin; the end if it has none yet."""
        stream = self._stream
        key = unit_key(invocation.request_id, invocation.invocation_id)
        if not stream.unit_keys or stream.unit_keys[-1] != key:
            if stream.has_unit(key):
                raise _GoPlain  # the request goes on although another one has begun
            return stream.end
        return max(stream.unit_starts[-1], stream.first)

    def _first_position(self, cutoff: Cutoff) -> int:
        """The oldest position that a request may still need; units in front of it are covered wholly."""
        stream = self._stream
        if cutoff.cutoff_ns and cutoff.last_position >= 0:
            return max(stream.unit_starts[stream.unit_at(cutoff.last_position)], stream.first)
        return stream.first

    def _fold(self, view: _View, start: int, stop: int, key: str) -> None:
        """Take in one past unit."""
        unit = self._past_unit(view, start, stop, key)
        unmatched = _unmatched_ids([entry.event for entry in unit.entries])
        if not unmatched.isdisjoint(view.waiting):
            view.can_split = False
        unit.arrange(view.lens)
        view.waiting |= waiting_ids(unit.entries)
        view.recent.append(unit)
        view.folded = stop
        if not self._stage.compactor.spares_recent:
            self._close_oldest(view)

    def _past_unit(self, view: _View, start: int, stop: int, key: str) -> _Unit:
        events = self._stream.events[start:stop]
        positions = range(start, stop)
        selection = select(positions, events, view.lens, self._stage.compactor)
        anchors = {}
        if self._has_anchors and view.lens.cutoff.cutoff_ns:
            anchors = covered_user_entries(positions, events, view.lens)
        return _Unit(start, stop, key, selection.entries, selection.resume_rewrites, anchors)

    def _close_oldest(self, view: _View) -> None:
        """Move the oldest recent unit into the closed lane, in its final form."""
        unit = view.recent.pop(0)
        unit.is_protected, unit.lane = False, None
        lane = self._unit_lane(view, unit)
        if view.closed.messages and lane.messages and self._would_merge(view.closed.messages[-1], lane.messages[0]):
            view.can_split = False
        view.marks.append(_Mark(unit.start, unit.stop, len(view.closed), len(view.closed.rewrites), view.stats))
        view.stats = view.stats.plus(ContextCompactionStats.of(lane.rewrites))
        view.closed.extend(lane)
        view.has_entries_closed = view.has_entries_closed or bool(unit.entries)
        view.has_completed_closed = view.has_completed_closed or unit.is_completed

    def _unit_lane(self, view: _View, unit: _Unit) -> Lane:
        if unit.lane is None:
            compactor = self._stage.compactor
            entries, rewrites = compact_entries(
                unit.entries,
                compactor,
                current_key="current",
                protected={unit.key} if unit.is_protected and unit.key else (),
            )
            lane = self._projection(view.lens, calls_of(entries), unit.anchors, set()).project(entries)
            lane.rewrites = unit.resume_rewrites + rewrites
            unit.lane = self._clean(lane)
            self._publish(lane.rewrites)
        return unit.lane

    def _projection(
        self, lens: Lens, requests: set[str], anchors: dict[TurnKey, Entry], started: set[TurnKey]
    ) -> Projection:
        return Projection(lens, self._stage.projector, requests, anchors, started, self._forms)

    def _clean(self, lane: Lane) -> Lane:
        return sanitized_lane(lane, self._schemas) if self._sanitize else lane

    def _would_merge(self, last: Message, first: Message) -> bool:
        return self.settings.add_context_prefix and is_context_message(last) and is_context_message(first)

    def _protect(self, view: _View, n_current: int) -> None:
        """Say which recent units passes 0 and 1 spare, and close those that they'll never spare again."""
        compactor = self._stage.compactor
        if not compactor.spares_recent:
            return
        n_skipped = self._n_skip - n_current
        n_kept = compactor.settings.keep_recent_requests
        for unit in reversed(view.recent):
            by_skip = n_skipped > 0 and bool(unit.entries)
            n_skipped -= len(unit.entries)
            protected = by_skip and bool(unit.key)
            if not protected and n_kept > 0 and unit.key and unit.is_completed:
                protected = True
                n_kept -= 1
            if protected != unit.is_protected:
                unit.is_protected, unit.lane = protected, None
        if (n_skipped > 0 and view.has_entries_closed) or (n_kept > 0 and view.has_completed_closed):
            # More is spared than was before: a unit that was closed has to come back.
            self._view = None
            raise _GoPlain
        while view.recent and not view.recent[0].is_protected:
            self._close_oldest(view)

    def _drop_oldest(self, view: _View) -> bool:
        """Let go of what the session has dropped; false when everything has to be made anew."""
        first = self._stream.first
        if first == view.first:
            return True
        start = view.marks[0].start if view.marks else view.recent[0].start if view.recent else view.folded
        if first <= start:
            view.first = first
            return True
        if not view.marks or first >= view.marks[-1].stop:
            return False
        n_gone = bisect_right([mark.stop for mark in view.marks], first)
        view.first, view.n_skipped_marks, view.partial = first, n_gone, None
        cut = view.marks[n_gone]
        if cut.start < first:
            key = self._stream.unit_keys[self._stream.unit_at(cut.start)]
            unit = self._past_unit(view, first, cut.stop, key)
            if not _unmatched_ids([entry.event for entry in unit.entries]).isdisjoint(view.waiting):
                return False
            unit.arrange(view.lens)
            view.partial = self._unit_lane(view, unit)
            view.n_skipped_marks += 1
        return True

    # --- the running request --------------------------------------------------------------------------

    def _current_for(self, lens: Lens, view: _View) -> _Current:
        """The running request with its new events."""
        invocation = lens.invocation
        stream, current = self._stream, self._current
        facts_key = (
            stream.generation,
            view.folded,
            invocation.request_id,
            invocation.invocation_id,
            invocation.filter_key,
            invocation.current_turn_ids,
            invocation.seed_history_ids,
            invocation.message,
        )
        if facts_key != self._facts_key:
            self._facts, self._facts_key, current = _Facts(view.folded, view.folded), facts_key, None
        self._current = None  # until it's whole again
        if current is not None:
            current.lens = lens
            for position in range(current.end, stream.end):
                if not self._take_in(current, position, view):
                    current = None
                    break
        if current is None:
            current = self._build_current(lens, view, self._facts)
        self._current = current
        return current

    def _build_current(self, lens: Lens, view: _View, facts: _Facts) -> _Current:
        """The running request from its events, closed up to its newest call."""
        stream, cutoff = self._stream, lens.cutoff
        compactor = self._stage.compactor
        if cutoff.cutoff_ns and cutoff.last_position >= facts.start:
            for position in range(facts.end, stream.end):
                facts.add(position, stream.events[position], lens)
        positions = facts.positions(cutoff, stream.end, with_anchors=self._has_anchors)
        events = [stream.events[position] for position in positions]
        selection = select(positions, events, lens, compactor)
        current = _Current(lens, facts, end=stream.end, found_message=selection.found_message)
        current.has_compacted = selection.has_compacted_tool_results or (
            bool(cutoff.cutoff_ns)
            and cutoff.last_position >= 0
            and facts.has_big_result(cutoff.last_position, stream.events, compactor)
        )
        entries = self._with_message(selection.entries, current, lens)
        if self._has_anchors and cutoff.cutoff_ns:
            current.anchors = covered_user_entries(positions, events, lens)
        raw = [entry.event for entry in entries]
        matches = match_results(raw)
        if not _unmatched_ids(raw).isdisjoint(view.waiting):
            raise _GoPlain
        # The newest call and what follows it stays open; so does a result at the end, since it may close a round.
        split = max((i for i, event in enumerate(raw) if is_call(event)), default=len(raw))
        if raw and split == len(raw) and is_result(raw[-1]):
            split -= 1
        if _has_stray_mark(raw, split, matches):
            raise _GoPlain  # it says something about a round in front of it
        closed, current.open = _split_at(entries, split, matches)
        current.has_late_result = len(closed) > split
        current.ends_with_result = bool(raw) and is_result(raw[-1])
        if current.is_floating:
            closed, current.open = [], entries
        closed = arrange(closed, lens, ends_request=False)
        current.waiting = waiting_ids(closed)
        current.open_waiting = waiting_ids(current.open)
        if not self._close(current, closed, selection.resume_rewrites):
            raise _GoPlain
        return current

    def _with_message(self, entries: list[Entry], current: _Current, lens: Lens) -> list[Entry]:
        """The entries with the invocation message put in where it belongs (ASM-HIST-02)."""
        invocation = lens.invocation
        if current.found_message or not invocation.message.has_payload:
            return entries
        own = next((i for i, entry in enumerate(entries) if invocation.owns(entry.event)), len(entries))
        current.is_floating = own == len(entries)
        return [*entries[:own], inserted_message(invocation), *entries[own:]]

    def _take_in(self, current: _Current, position: int, view: _View) -> bool:
        """Add one event to the open part; false when the request has to be built anew."""
        event = self._stream.events[position]
        lens = current.lens
        current.end = position + 1
        rule = lens.rule_of(position, event)
        if current.is_floating:
            return False
        if rule is None:
            # A covered call or result may belong to a pair or to the resume tail.
            return not (lens.cutoff.covers(position, event) and is_eligible(event))
        if lens.answers_to_message(event, rule) and not current.found_message:
            if lens.invocation.message.has_payload:
                return False
            current.found_message = True
        if is_result(event) and not is_call(event):
            ids = set(result_ids(event))
            strange = ids - current.open_waiting
            if strange:
                if not strange.isdisjoint(view.waiting):
                    raise _GoPlain
                is_known = position in self._stream.answered or is_per_call_result(event)
                if is_known or not strange.isdisjoint(current.waiting):
                    return False
            current.open_waiting -= ids
        else:
            self._close_open(current, before_call=is_call(event))
            if is_call(event):
                current.open_waiting |= set(call_ids(event))
        current.open.append(Entry(event, position, rule))
        current.ends_with_result = is_result(event)
        return True

    def _close_open(self, current: _Current, *, before_call: bool) -> None:
        """Close the open part if nothing can change it any more."""
        if not current.open:
            return
        starts_with_call = is_call(current.open[0].event)
        if starts_with_call and current.open_waiting and not before_call:
            return
        sent = current.sent
        current.sent = None
        if sent is not None and sent[0] == len(current.open):
            current.started = sent[3]
            self._grow(current, sent[1], sent[2], sent[0])
            closed = True
        else:
            closed = self._close(current, arrange(current.open, current.lens, ends_request=False), [])
        if closed:
            current.waiting |= current.open_waiting
            current.open, current.open_waiting, current.has_late_result = [], set(), False

    def _close(self, current: _Current, entries: list[Entry], resume_rewrites: list[Rewrite]) -> bool:
        """Entries in their final order become part of the closed lane, unless their end may still be merged."""
        started = set(current.started)
        lane = self._current_lane(current, entries, started)
        if self.settings.add_context_prefix and lane.messages and is_context_message(lane.messages[-1]):
            return False
        lane.rewrites = resume_rewrites + lane.rewrites
        current.started = started
        self._grow(current, lane, self._clean(lane), len(entries))
        return True

    def _grow(self, current: _Current, lane: Lane, clean: Lane, n_entries: int) -> None:
        current.n_closed += n_entries
        if lane.rewrites:
            current.stats = current.stats.plus(ContextCompactionStats.of(lane.rewrites))
            self._publish(lane.rewrites)
        current.lane.extend(clean)

    def _current_lane(self, current: _Current, entries: list[Entry], started: set[TurnKey]) -> Lane:
        compactor = self._stage.compactor
        key = unit_key(current.lens.invocation.request_id, current.lens.invocation.invocation_id)
        entries, rewrites = compact_entries(entries, compactor, current_key=key, protected={key})
        lane = self._projection(current.lens, set(), current.anchors, started).project(entries)
        lane.rewrites = rewrites
        return lane

    def _open_lane(self, current: _Current, view: _View) -> Lane:
        """The open part as this request sends it."""
        entries = current.open
        if current.ends_with_result and (
            current.has_late_result
            or not entries
            or not is_call(entries[0].event)
            or set(result_ids(entries[-1].event)).isdisjoint(call_ids(entries[0].event))
        ):
            raise _GoPlain  # the result may answer a call far back, which then ends the request
        if not entries and not current.lane.messages and view.folded > view.first:
            raise _GoPlain  # the request ends in a past unit
        arranged = arrange(entries, current.lens)
        self._protect(view, current.n_closed + len(arranged))
        started = set(current.started)
        lane = self._current_lane(current, arranged, started)
        self._publish(lane.rewrites)
        clean = self._clean(lane)
        # Entries that were in order already stay as they are when a later event closes them.
        in_order = arranged is entries and not self.settings.add_context_prefix
        current.sent = (len(entries), lane, clean, started) if in_order else None
        return clean

    # --- the request ----------------------------------------------------------------------------------

    def _pieces(self, view: _View, current: _Current, open_lane: Lane) -> list[Piece]:
        start = self._closed_mark(view)
        pieces = []
        if view.partial is not None:
            pieces.append(Piece(view.partial, 0, len(view.partial)))
        pieces.append(Piece(view.closed, start.n_messages, len(view.closed)))
        pieces += [Piece(lane, 0, len(lane)) for unit in view.recent for lane in [self._unit_lane(view, unit)]]
        pieces += [Piece(current.lane, 0, len(current.lane)), Piece(open_lane, 0, len(open_lane))]
        pieces = [piece for piece in pieces if piece.stop > piece.start]
        if self.settings.add_context_prefix:
            for left, right in pairwise(pieces):
                if self._would_merge(left.lane.messages[left.stop - 1], right.lane.messages[right.start]):
                    raise _GoPlain
        return pieces

    def _closed_mark(self, view: _View) -> _Mark:
        """Where the closed lane begins, now that the session may have dropped units."""
        if view.n_skipped_marks < len(view.marks):
            return view.marks[view.n_skipped_marks]
        end = view.folded
        return _Mark(end, end, len(view.closed), len(view.closed.rewrites), view.stats)

    def _limited(self, pieces: list[Piece]) -> list[Piece]:
        """The pieces that the history limit leaves (ASM-HIST-16)."""
        limit = self._stage.limit
        if not limit:
            return pieces
        if self.settings.limit_unit(self.profile) == "message":
            return self._last_messages(pieces, limit)
        return _last_rounds(pieces, limit)

    def _last_messages(self, pieces: list[Piece], limit: int) -> list[Piece]:
        if self._sanitize and any(not piece.lane.is_verbatim for piece in pieces):
            raise _GoPlain  # the limit counts messages before they're sanitised
        n_left = sum(stop - start for _, start, stop in pieces) - limit
        if n_left <= 0:
            return pieces
        for i, (lane, start, stop) in enumerate(pieces):
            if n_left >= stop - start:
                n_left -= stop - start
                continue
            place = start + n_left
            first = lane.messages[place]
            if first.role == TOOL and first.tool_id:
                place = _behind_cut_round(lane, start, stop, place)
            return [Piece(lane, place, stop), *pieces[i + 1 :]]
        return []

    def _head_for(self, invocation: Invocation, base: Request, blocks: Blocks, suffix: str) -> Head:
        """The head, the same objects as before when nothing in it changed."""
        key = _HeadKey(base.messages, invocation.injected_context_messages, invocation.few_shot, blocks, suffix)
        if self._head is None or self._head[0] != key:
            head = build_head(base.messages, invocation, blocks, self.profile, suffix)
            if self._sanitize:
                clean = sanitized_lane(head.lane, self._schemas)
                if clean is not head.lane:
                    raise _GoPlain
            self._head = (key, head)
        return self._head[1]

    def _account(self, assembly: Assembly, view: _View, current: _Current, open_lane: Lane) -> None:
        mark = self._closed_mark(view)
        lanes = [lane for unit in view.recent for lane in [self._unit_lane(view, unit)]]
        if view.partial is not None:
            lanes.append(view.partial)
        lanes.append(open_lane)
        stats = view.stats.minus(mark.stats).plus(current.stats)
        for lane in lanes:
            if lane.rewrites:
                stats = stats.plus(ContextCompactionStats.of(lane.rewrites))
        assembly.stats = stats
        closed, running = view.closed.rewrites, current.lane.rewrites
        parts = [(lane.rewrites, 0, len(lane.rewrites)) for lane in lanes]
        assembly.rewrite_parts = ((closed, mark.n_rewrites, len(closed)), *parts, (running, 0, len(running)))
        closed_covered = [pair for pair in view.closed.covered if pair[0] >= mark.start]
        covered = [*closed_covered, *(pair for lane in lanes for pair in lane.covered), *current.lane.covered]
        shift = assembly.shift = self._stream.shift
        first = self._stream.first
        assembly.covered_positions_included = tuple(
            (position + shift, rule) for position, rule in sorted(covered) if position >= first
        )
        assembly.has_compacted_tool_results = current.has_compacted

    def _publish(self, rewrites: Sequence[Rewrite]) -> None:
        """Remember which forms requests have held, and which are new."""
        for rewrite in rewrites:
            key = (rewrite.event_id, rewrite.tool_call_id)
            if self._published.get(key) != rewrite:
                self._published[key] = rewrite
                self._fresh.append(rewrite)


# --- small pieces -------------------------------------------------------------------------------------


def _has_tool_messages(messages: Sequence[Message]) -> bool:
    return any(message.tool_calls or message.role == TOOL for message in messages)


def _unmatched_ids(events: Sequence[Event]) -> set[str]:
    """Ids of results that answer no call among the events."""
    if not any(is_result(event) for event in events):
        return set()
    matches = match_results(events)
    matched = {(match.index, j) for results in matches.values() for match in results for j in match.choices}
    unmatched = set()
    for i, event in enumerate(events):
        if is_result(event) and not is_call(event):
            assert event.response is not None
            for j, choice in enumerate(event.response.choices):
                tool_id = choice.message.tool_id or choice.delta.tool_id
                if tool_id and (i, j) not in matched:
                    unmatched.add(tool_id)
    return unmatched


def _split_at(
    entries: list[Entry], split: int, matches: dict[int, list[ResultMatch]]
) -> tuple[list[Entry], list[Entry]]:
    """Entries before a call and from it on; late results go to the side on which their call stands."""
    closed, late = entries[:split], []
    taken: dict[int, set[int]] = {}
    for call, results in matches.items():
        if call < split:
            for match in results:
                if match.index >= split:
                    taken.setdefault(match.index, set()).update(match.choices)
                    late.append((match.index, match))
    for index, match in sorted(late, key=lambda pair: pair[0]):
        closed = [*closed, replace(entries[index], event=only_matched(entries[index].event, match))]
    opened = []
    for i in range(split, len(entries)):
        entry = entries[i]
        response = entry.event.response
        if i in taken and response is not None:
            rest = [j for j in range(len(response.choices)) if j not in taken[i]]
            if not rest:
                continue
            entry = replace(entry, event=only_matched(entry.event, ResultMatch(i, rest)))
        opened.append(entry)
    return closed, opened


def _has_stray_mark(raw: Sequence[Event], split: int, matches: dict[int, list[ResultMatch]]) -> bool:
    """A marked result behind the newest call doesn't belong to it (ASM-HIST-07)."""
    own = {match.index: len(match.choices) for match in matches.get(split, ())}
    return any(is_per_call_result(raw[i]) and own.get(i, 0) != len(raw[i].messages) for i in range(split, len(raw)))


def _last_rounds(pieces: list[Piece], limit: int) -> list[Piece]:
    """The last rounds of dialogue, found from the end."""
    n_starts = 0
    for i in range(len(pieces) - 1, -1, -1):
        lane, start, stop = pieces[i]
        users = lane.users()
        for j in range(bisect_left(users, stop) - 1, -1, -1):
            place = users[j]
            if place < start:
                break
            if place > start:
                after_user = j > 0 and users[j - 1] == place - 1
            else:
                after_user = i > 0 and _ends_with_user(pieces[i - 1])
            if not after_user:
                n_starts += 1
                if n_starts == limit:
                    return [Piece(lane, place, stop), *pieces[i + 1 :]]
    return pieces


def _ends_with_user(piece: Piece) -> bool:
    users = piece.lane.users()
    j = bisect_left(users, piece.stop) - 1
    return j >= 0 and users[j] == piece.stop - 1


def _behind_cut_round(lane: Lane, start: int, stop: int, place: int) -> int:
    """Where the kept messages begin when the limit falls among the results of a round."""
    call = place - 1
    while call >= start and lane.messages[call].role == TOOL:
        call -= 1
    ids = {one.id for one in lane.messages[call].tool_calls} if call >= start else set()
    if lane.messages[place].tool_id not in ids:
        raise _GoPlain  # its call may stand anywhere in front
    while place < stop and lane.messages[place].role == TOOL and lane.messages[place].tool_id in ids:
        place += 1
    if place < stop and lane.messages[place].role == TOOL:
        raise _GoPlain
    return place


def _n_shared(previous: Assembly | None, assembly: Assembly) -> int:
    """Leading messages that two requests share as objects; lanes are compared first, messages only at the seam."""
    if previous is None:
        return 0
    n_shared = 0
    old, new = iter(previous.pieces), iter(assembly.pieces)
    left, right = next(old, None), next(new, None)
    while left is not None and right is not None:
        if left.lane is right.lane and left.start == right.start:
            n = min(left.stop, right.stop) - left.start
        else:
            n = 0
            limit = min(left.stop - left.start, right.stop - right.start)
            mine, theirs = left.lane.messages, right.lane.messages
            while n < limit and mine[left.start + n] is theirs[right.start + n]:
                n += 1
            if n < limit:
                return n_shared + n
        n_shared += n
        left = _rest(left, n) or next(old, None)
        right = _rest(right, n) or next(new, None)
    return n_shared


def _rest(piece: Piece, n: int) -> Piece | None:
    return Piece(piece.lane, piece.start + n, piece.stop) if piece.start + n < piece.stop else None
