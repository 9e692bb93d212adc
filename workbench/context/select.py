"""Which events take part in a request, and why.

In: positioned events, one invocation, a cutoff. Out: `Entry`s in stored order: events after the cutoff that
pass the filters, the current message whatever the cutoff says, the latest covered tool round of the running
invocation (resume tail) and covered calls whose results are still needed (pair repair). Implements ASM-EVT
(section 2) and ASM-INTRA-10 to -20 (section 7). Each entry says by which rule it's in; traces rely on it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from workbench.context.compact import Compactor, Rewrite, with_choices
from workbench.context.settings import AgentSettings
from workbench.model.types import ASSISTANT, EMPTY_MESSAGE, USER, Choice, Message, Response
from workbench.profiles import Profile
from workbench.session.rounds import (
    ResultMatch,
    answered_ids,
    call_ids,
    is_call,
    is_complete,
    match_results,
    result_id,
)
from workbench.session.scope import event_matches, is_same_or_below
from workbench.session.types import Event, Session, SummaryBoundary

# Why a covered event is in a request all the same.
RULE_PLAIN = ""
RULE_CURRENT_TURN = "current_turn"
RULE_CURRENT_MESSAGE = "current_message"
RULE_RESUME_TAIL = "resume_tail"
RULE_REPAIRED_CALL = "repaired_call"
RULE_ANCHOR = "anchor"

# By which step a selected event left the request again.
DROPPED_TRANSCRIPT = "tool_transcript"
DROPPED_PAIRING = "pairing"
DROPPED_NO_CONTENT = "no_content"


@dataclass(frozen=True, slots=True)
class Invocation:
    """One model call to be prepared: who asks, in which session, with which message."""

    session: Session | None
    agent_name: str = ""
    invocation_id: str = ""
    request_id: str = ""
    filter_key: str = ""
    """Event filter key of the run; the application's name unless the caller chose another (ASM-EVT-07)."""
    branch: str = ""
    message: Message = EMPTY_MESSAGE
    """The invocation message: what this run answers."""
    injected_context_messages: tuple[Message, ...] = ()
    """Messages for this run only, in front of the history (ASM-INJ-20)."""
    late_context_messages: tuple[Message, ...] = ()
    """Messages for this run only, in front of the last user message (ASM-INJ-21)."""
    current_turn_ids: frozenset[str] = frozenset()
    """Ids of the events that were stored as this run's input (ASM-RUN-14)."""
    seed_history_ids: frozenset[str] = frozenset()
    """Ids of history that the caller passed in (ASM-RUN-11)."""
    include_contents: str = ""
    """`none` leaves out history, summary and recall (ASM-EVT-10)."""
    can_load_windows: bool = False
    """The session service can load windows of events."""
    few_shot: tuple[tuple[Message, ...], ...] = ()
    """Examples, each a short conversation."""
    memory_block: str = ""
    """Preloaded memories, ready to be placed (`workbench.context.preload`)."""
    recall_block: str = ""
    """Recalled events of other sessions, ready to be placed."""

    @property
    def skips_history(self) -> bool:
        """`include_contents` is none."""
        return self.include_contents.lower() == "none"

    def owns(self, event: Event) -> bool:
        """Same request and same invocation, neither empty."""
        return (
            event.request_id == self.request_id
            and event.invocation_id == self.invocation_id
            and bool(self.request_id and self.invocation_id)
        )

    def is_strict_message(self, event: Event) -> bool:
        """The event is this run's message: same request (both may be empty) and an equal first message."""
        response = event.response
        if response is None or not response.choices or event.request_id != self.request_id:
            return False
        first = response.choices[0].message
        if not self.message.role:  # an empty role stands for a user message of the same text
            return first.role == USER and first.content == self.message.content
        return first is self.message or first == self.message


@dataclass(frozen=True, slots=True)
class Cutoff:
    """Where the injected summary ends (ASM-EVT-03): a position if its last event is known, else a time."""

    last_position: int = -1
    """Position of the last covered event, -1 when it isn't in the list."""
    cutoff_ns: int = 0
    """0 covers nothing."""

    @classmethod
    def of(cls, boundary: SummaryBoundary | None, session: Session | None) -> Cutoff:
        """The cutoff of a boundary in a session."""
        if boundary is None or not boundary.cutoff_ns:
            return NO_CUTOFF
        position = session.position_of(boundary.last_event_id) if session is not None else None
        return cls(-1 if position is None else position, boundary.cutoff_ns)

    def covers(self, position: int, event: Event) -> bool:
        """The summary stands for this event."""
        if not self.cutoff_ns:
            return False
        if self.last_position >= 0:
            return position <= self.last_position
        return event.time_ns < self.cutoff_ns


NO_CUTOFF = Cutoff()


@dataclass(slots=True)
class Entry:
    """One event of a request, perhaps in another form than the stored one."""

    event: Event
    position: int
    """Position of the stored event in its session, -1 for the inserted invocation message."""
    rule: str = RULE_PLAIN
    """Why it's in, when the plain filters aren't the reason."""
    choice_positions: tuple[int, ...] = ()
    """Position per choice when results of several events were merged; empty = all from `position`."""


def is_eligible(event: Event) -> bool:
    """Has a whole response with something to show (ASM-EVT-01)."""
    response = event.response
    return response is not None and not response.is_partial and response.is_valid_content


@dataclass(slots=True)
class DropNotes:
    """Which selected events a later step left out, or left without their calls; nothing about those that are in."""

    steps: dict[str, str] = field(default_factory=dict)
    """Event id -> the step, in this request or an earlier one."""
    changed: list[str] = field(default_factory=list)
    """Event ids in the order in which their step was noted; only grows."""

    def note(self, event: Event, step: str) -> None:
        """A step left out this event."""
        if self.steps.get(event.id) != step:
            self.steps[event.id] = step
            self.changed.append(event.id)

    def compare(self, step: str, before: Iterable[Entry], after: Iterable[Entry]) -> None:
        """Note what a step left out of some entries: whole events, single messages, calls."""
        n_messages: Counter[int] = Counter()
        with_calls: set[int] = set()
        for entry in after:
            if entry.choice_positions:
                n_messages.update(entry.choice_positions)
            else:
                n_messages[entry.position] += len(entry.event.messages)
            if is_call(entry.event):
                with_calls.add(entry.position)
        for entry in before:
            position = entry.position
            is_bare = is_call(entry.event) and position not in with_calls
            if is_bare or n_messages[position] < len(entry.event.messages):
                self.note(entry.event, step)


@dataclass(slots=True)
class Lens:
    """One invocation's way of looking at events: its filters, its cutoff, its own message."""

    invocation: Invocation
    settings: AgentSettings
    profile: Profile
    cutoff: Cutoff = NO_CUTOFF
    dropped: DropNotes = field(default_factory=DropNotes)
    timeline: str = field(init=False)
    branches: str = field(init=False)

    def __post_init__(self) -> None:
        self.timeline = self.settings.timeline
        self.branches = self.settings.branches

    def pinned_rule(self, event: Event) -> str:
        """The rule that includes an eligible event whatever cutoff and filters say; empty if none (ASM-EVT-02)."""
        invocation = self.invocation
        if event.request_id != invocation.request_id:
            return RULE_PLAIN
        owned = event.invocation_id == invocation.invocation_id and bool(invocation.request_id and event.invocation_id)
        if owned and event.id in invocation.current_turn_ids:
            return RULE_CURRENT_TURN
        if event.id in invocation.seed_history_ids:
            return RULE_PLAIN
        if owned and event.message.role == USER:
            return RULE_CURRENT_MESSAGE
        return RULE_CURRENT_MESSAGE if invocation.is_strict_message(event) else RULE_PLAIN

    def answers_to_message(self, event: Event, rule: str) -> bool:
        """An event included by `rule` is the invocation message itself, so it needn't be inserted."""
        return bool(rule) and self.invocation.is_strict_message(event)

    def passes_filters(self, event: Event) -> bool:
        """Timeline and branch filter (ASM-EVT-05, -06)."""
        invocation = self.invocation
        if self.timeline == "request" and event.request_id != invocation.request_id:
            return False
        if self.timeline == "invocation" and event.invocation_id != invocation.invocation_id:
            return False
        if self.branches == "prefix":
            return event_matches(event, invocation.filter_key)
        if self.branches == "all":
            return True
        if self.branches == "exact":
            return event.filter_key == invocation.filter_key
        key, current = event.filter_key, invocation.filter_key
        return not key or not current or is_same_or_below(key, current)

    def is_visible(self, event: Event) -> bool:
        """Eligible and passing the filters, covered or not."""
        return is_eligible(event) and self.passes_filters(event)

    def rule_of(self, position: int, event: Event) -> str | None:
        """Why an event is included (empty: by the plain filters), None when it isn't (ASM-EVT-02)."""
        if not is_eligible(event):
            return None
        rule = self.pinned_rule(event)
        if rule:
            return rule
        if self.cutoff.covers(position, event) or not self.passes_filters(event):
            return None
        return RULE_PLAIN


@dataclass(slots=True)
class Selection:
    """The selected entries and what was found on the way."""

    entries: list[Entry]
    found_message: bool = False
    """The invocation message is among them."""
    resume_rewrites: list[Rewrite] = field(default_factory=list)
    has_compacted_tool_results: bool = False


def select(positions: Sequence[int], events: Sequence[Event], lens: Lens, compactor: Compactor) -> Selection:
    """The events of a request, before any of them is rewritten for other reasons than the resume tail.

    Args:
        positions: Position of each event in its session, ascending.
        events: The events, oldest first; all that may matter: without a cutoff every event stands for itself.
    """
    selection = Selection([])
    tail: dict[int, Event] = {}
    needed: dict[int, set[str]] = {}
    rules = [lens.rule_of(position, event) for position, event in zip(positions, events, strict=True)]
    if lens.cutoff.cutoff_ns:
        needed = _calls_to_repair(events, rules, lens)
        tail = _resume_tail(positions, events, lens, compactor, selection)
    for i, event in enumerate(events):
        if i in tail:
            selection.entries.append(Entry(tail[i], positions[i], RULE_RESUME_TAIL))
            continue
        rule = rules[i]
        if rule is None:
            if i in needed and lens.is_visible(event) and lens.cutoff.covers(positions[i], event):
                repaired = _reduced_to_calls(event, needed[i])
                if repaired is not None:
                    selection.entries.append(Entry(repaired, positions[i], RULE_REPAIRED_CALL))
            continue
        if lens.answers_to_message(event, rule):
            selection.found_message = True
        selection.entries.append(Entry(event, positions[i], rule))
    return selection


def select_own_invocation(positions: Sequence[int], events: Sequence[Event], lens: Lens) -> Selection:
    """`include_contents = none`: only what this invocation did itself (ASM-EVT-10)."""
    invocation = lens.invocation
    selection = Selection([])
    for position, event in zip(positions, events, strict=True):
        if event.invocation_id == invocation.invocation_id and is_eligible(event):
            is_message = _equals_message(event, invocation)
            selection.found_message = selection.found_message or is_message
            rule = lens.pinned_rule(event)
            selection.entries.append(Entry(event, position, rule))
    return selection


def _equals_message(event: Event, invocation: Invocation) -> bool:
    return replace(invocation, request_id=event.request_id).is_strict_message(event)


def with_invocation_message(selection: Selection, invocation: Invocation) -> list[Entry]:
    """The entries with the invocation message put in, if no event was it (ASM-HIST-02)."""
    entries = selection.entries
    if selection.found_message or not invocation.message.has_payload:
        return entries
    own = next(
        (
            i
            for i, entry in enumerate(entries)
            if entry.event.request_id == invocation.request_id and entry.event.invocation_id == invocation.invocation_id
        ),
        len(entries),
    )
    return [*entries[:own], inserted_message(invocation), *entries[own:]]


def inserted_message(invocation: Invocation) -> Entry:
    """An entry for an invocation message that no stored event holds."""
    event = Event(
        author=USER,
        invocation_id=invocation.invocation_id,
        request_id=invocation.request_id,
        response=Response(choices=(Choice(invocation.message),), done=False),
    )
    return Entry(event, -1, RULE_CURRENT_MESSAGE)


# --- pair repair (ASM-INTRA-20) -----------------------------------------------------------------------


def _calls_to_repair(events: Sequence[Event], rules: Sequence[str | None], lens: Lens) -> dict[int, set[str]]:
    """Excluded call events whose results are included: index -> the ids that are needed."""
    matches = match_results(events, include=lambda i: lens.is_visible(events[i]))
    needed: dict[int, set[str]] = {}
    for i, results in matches.items():
        if rules[i] is not None:
            continue
        for match in results:
            response = events[match.index].response
            if rules[match.index] is None or response is None:
                continue
            needed.setdefault(i, set()).update(result_id(response.choices[j]) for j in match.choices)
    return needed


def _reduced_to_calls(event: Event, needed: set[str]) -> Event | None:
    """The call event with nothing but the needed calls."""
    if event.response is None or not event.response.is_tool_call:
        return None
    choices = []
    for choice in event.response.choices:
        message = _bare_calls(choice.message, needed)
        delta = _bare_calls(choice.delta, needed)
        if message is not None or delta is not None:
            choices.append(Choice(message or EMPTY_MESSAGE, delta or EMPTY_MESSAGE, choice.index))
    if not choices:
        return None
    return replace(
        event, response=Response(choices=tuple(choices), object=event.response.object, done=event.response.done)
    )


def _bare_calls(message: Message, needed: set[str]) -> Message | None:
    calls = tuple(call for call in message.tool_calls if call.id in needed)
    return Message(role=message.role or ASSISTANT, tool_calls=calls) if calls else None


# --- the resume tail (ASM-INTRA-10 to -16) ------------------------------------------------------------


def _resume_tail(
    positions: Sequence[int], events: Sequence[Event], lens: Lens, compactor: Compactor, selection: Selection
) -> dict[int, Event]:
    """The latest complete covered tool round of the running invocation: index -> event as it is sent."""
    own = [i for i, event in enumerate(events) if _may_be_tail(positions[i], event, lens)]
    if not own:
        return {}
    members = set(own)
    matches = match_results(events, include=members.__contains__)
    tail = _latest_complete_round(events, matches)
    sent: dict[int, Event] = {}
    for i, event in tail.items():
        sent[i], rewrites = compactor.compact_resume_event(event)
        selection.resume_rewrites.extend(rewrites)
    selection.has_compacted_tool_results = bool(selection.resume_rewrites) or any(
        compactor.would_compact_resume_event(events[i]) for i in own
    )
    return sent


def _may_be_tail(position: int, event: Event, lens: Lens) -> bool:
    invocation = lens.invocation
    return (
        invocation.owns(event)
        and lens.cutoff.covers(position, event)
        and event.id not in invocation.seed_history_ids
        and event.id not in invocation.current_turn_ids
        and lens.is_visible(event)
    )


def _latest_complete_round(events: Sequence[Event], matches: dict[int, list[ResultMatch]]) -> dict[int, Event]:
    """Call and results of the round that ended last, ties by the later call (ASM-INTRA-11)."""
    ends = [(results[-1].index, i) for i, results in matches.items() if is_complete(events, i, matches)]
    if not ends:
        return {}
    _, call = max(ends)
    round_events = {call: _only_calls(events[call])}
    for match in matches[call]:
        round_events[match.index] = only_matched(events[match.index], match)
    return round_events


def _only_calls(event: Event) -> Event:
    assert event.response is not None
    choices = event.response.choices
    kept = [choice for choice in choices if choice.message.tool_calls or choice.delta.tool_calls]
    return event if len(kept) == len(choices) else with_choices(event, kept)


def only_matched(event: Event, match: ResultMatch) -> Event:
    """A result event reduced to the choices that belong to one round."""
    assert event.response is not None
    choices = event.response.choices
    return event if len(match.choices) == len(choices) else with_choices(event, [choices[j] for j in match.choices])


# --- user anchors (ASM-HIST-15) -----------------------------------------------------------------------

TurnKey = tuple[str, str]


def turn_key(event: Event) -> TurnKey | None:
    """Request and invocation of an event; None without an invocation."""
    return (event.request_id, event.invocation_id) if event.invocation_id else None


def covered_user_entries(positions: Iterable[int], events: Iterable[Event], lens: Lens) -> dict[TurnKey, Entry]:
    """Per turn the last covered user message in front of its first event that isn't covered."""
    anchors: dict[TurnKey, Entry] = {}
    started: set[TurnKey] = set()
    for position, event in zip(positions, events, strict=True):
        key = turn_key(event)
        if key is None or key in started or not lens.is_visible(event):
            continue
        if event.id in lens.invocation.seed_history_ids:
            continue
        role = _role_of(event)
        if not role:
            continue
        if not lens.cutoff.covers(position, event):
            started.add(key)
        elif role == USER:
            anchors[key] = Entry(event, position, RULE_ANCHOR)
    return anchors


def _role_of(event: Event) -> str:
    return next((role for message in event.messages if (role := turn_role(message))), "")


def turn_role(message: Message) -> str:
    """The part a message plays in its turn; empty when it plays none."""
    if message.is_user_like and message.has_payload:
        return USER
    if message.role:
        return message.role
    if message.tool_id:
        return "tool"
    return ASSISTANT if message.tool_calls else ""


def calls_of(entries: Iterable[Entry]) -> set[str]:
    """Requests that ask for tools among the entries (ASM-HIST-13)."""
    return {
        entry.event.request_id
        for entry in entries
        if entry.event.request_id and any(message.tool_calls for message in entry.event.messages)
    }


def waiting_ids(entries: Sequence[Entry]) -> set[str]:
    """Call ids that no entry answers."""
    events = [entry.event for entry in entries]
    matches = match_results(events)
    waiting: set[str] = set()
    for i, event in enumerate(events):
        if is_call(event):
            waiting.update(set(call_ids(event)) - answered_ids(events, matches.get(i, ())))
    return waiting
