"""Coverage by event identity: at each call every stored event is in exactly one state (WB-RPL-13).

In: the requests of one conversation as they were sent, and what each summary was made of. Out: the states that
changed with each call, as ranges of event positions, and the violations: an event that nobody has, one that is in
twice without a rule that says why, one whose text isn't what was stored. Pure. States come from what requests and
summary calls really held, never from the rules that made them; filters are read off the specification anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from workbench.agent.flow import SentRequest
from workbench.context.assemble import Invocation
from workbench.context.compact import Rewrite
from workbench.context.select import RULE_CURRENT_MESSAGE, RULE_CURRENT_TURN, DropNotes
from workbench.context.settings import AgentSettings
from workbench.model.types import Message, Request
from workbench.replay.contents import Presence, StoredEvents, sent_pieces
from workbench.service.summaries import SummaryAttempt
from workbench.session.types import EVENT_VERSION, FILTER_KEY_DELIMITER, Event, Summary
from workbench.summary.report import MODE_FORK, MODE_STANDALONE

RAW = "raw"
COVERED = "covered"
COVERED_CUT = "covered_cut"
BOTH = "raw_and_covered"
REWRITTEN = "rewritten"
DROPPED = "dropped"
HIDDEN = "hidden"
LOST = "lost"
COVERAGE_STATES = {
    RAW: "in the request as it is stored",
    COVERED: "the summary in the request was made of it",
    COVERED_CUT: "the same, but its text was cut before the summary model read it",
    BOTH: "in the request although the summary covers it; the detail is the rule",
    REWRITTEN: "in the request in another form; the detail is the step that gave it",
    DROPPED: "left out of the request; the detail is the step",
    HIDDEN: "not for this request; the detail is the filter",
    LOST: "neither in the request nor in its summary, and no step says why: a violation",
}

PASSES = {0: "policy", 1: "historical", 2: "oversized", 3: "resume_tail"}
COVERAGE_RULES = {
    "lost": "an event is neither in the request nor in its summary, and no step says why",
    "twice": "an event is in the request and in its summary, and no rule says why",
    "changed": "an event is in the request in another form, and no step says why",
    "repeated": "a message of an event is in the request more than once",
}

_WHOLE, _CUT = 1, 2


@dataclass(frozen=True, slots=True)
class CoverageSpan:
    """Events that came into one state with a call."""

    first: int
    last: int
    state: str
    """A key of `COVERAGE_STATES`."""
    detail: str = ""
    """Rule, step or filter."""


@dataclass(frozen=True, slots=True)
class CoverageViolation:
    """An event without a state, or with two."""

    rule: str
    """A key of `COVERAGE_RULES`."""
    position: int
    step: str
    """Where it happened: selection, projection, tailoring."""


State = tuple[str, str]


# --- what summaries were made of ----------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class _Chain:
    """One summary that was updated again and again: each version was made of the one before and of new events."""

    key: str
    """The filter key that it is stored under; copies under another key point into it."""
    parent: tuple[_Chain, int] | None = None
    """The chain and version that the first version was made of."""
    added: list[list[int]] = field(default_factory=list)
    """Positions that each version was made of, beside those of the version before."""
    _levels: dict[int, tuple[int, int]] = field(default_factory=dict)

    def add(self, levels: Mapping[int, int]) -> None:
        """One more version, and how it read its events."""
        version = len(self.added)
        self.added.append(list(levels))
        for position, level in levels.items():
            known = self._levels.get(position)
            if known is None or known[1] > level:
                self._levels[position] = (version, level)

    def level(self, position: int, version: int) -> int:
        """How a version knows an event: 0 not at all, 1 whole, 2 cut."""
        known = self._levels.get(position)
        if known is not None and known[0] <= version:
            return known[1]
        return self.parent[0].level(position, self.parent[1]) if self.parent is not None else 0

    def age(self, position: int, version: int) -> int:
        """How many versions in a row an event has gone through; 0 when this one wasn't made of it."""
        known = self._levels.get(position)
        if known is not None and known[0] <= version:
            return version - known[0] + 1
        before = self.parent[0].age(position, self.parent[1]) if self.parent is not None else 0
        return before + version + 1 if before else 0


@dataclass(frozen=True, slots=True)
class _Version:
    """One summary of a chain."""

    summary: Summary
    chain: _Chain
    number: int


@dataclass(slots=True)
class SummaryReadings:
    """Which events the summary model has read for which summary, by the requests that it got."""

    _versions: dict[str, list[_Version]] = field(default_factory=dict)

    def add(self, attempt: SummaryAttempt, stored: StoredEvents, presence: Presence) -> None:
        """A summary was written, or copied to another key."""
        summary, key = attempt.summary, attempt.filter_key
        if summary is None:
            return
        known = self._versions.setdefault(key, [])
        if attempt.status == "copied":
            source = self._copied_from(summary, key)
            if source is not None:
                known.append(_Version(summary, source.chain, source.number))
            return
        chain = _Chain(key)
        if known:
            last = known[-1]
            is_newest = last.number == len(last.chain.added) - 1
            chain = last.chain if last.chain.key == key and is_newest else _Chain(key, (last.chain, last.number))
        call = attempt.report.call
        texts = dict(zip(map(id, call.events), call.event_texts, strict=False))
        events = [event for event in call.events if stored.find(event) is not None]
        cut = _events_cut(events, texts, call.requests[-1] if call.requests else None, call.mode, stored, presence)
        chain.add(
            {place: _CUT if place in cut else _WHOLE for event in events if (place := _place(stored, event)) >= 0}
        )
        known.append(_Version(summary, chain, len(chain.added) - 1))

    def _copied_from(self, summary: Summary, key: str) -> _Version | None:
        for other, versions in self._versions.items():
            if other != key and versions and versions[-1].summary.summary == summary.summary:
                return versions[-1]
        return None

    def behind(self, sent: SentRequest) -> list[_Version]:
        """The versions of the summaries in a request: one, or several that were joined."""
        found = sent.assembly.summary
        if found is None:
            return []
        for version in reversed(self._versions.get(found.filter_key, ())):
            if version.summary.summary == found.text and version.summary.cutoff_boundary() == found.boundary:
                return [version]
        prefix = found.filter_key + FILTER_KEY_DELIMITER
        return [
            version
            for key, summary in sorted(sent.session.summaries.items())
            if key == found.filter_key or key.startswith(prefix)
            for version in [next((v for v in reversed(self._versions.get(key, ())) if v.summary == summary), None)]
            if version is not None
        ]

    def forget(self) -> None:
        """The session expired, and its summaries with it."""
        self._versions.clear()


def _place(stored: StoredEvents, event: Event) -> int:
    place = stored.find(event)
    return -1 if place is None else place


def _events_cut(
    events: Sequence[Event],
    texts: Mapping[int, str],
    request: Request | None,
    mode: str,
    stored: StoredEvents,
    presence: Presence,
) -> set[int]:
    """Positions of the events whose text the summary model didn't get whole."""
    if request is None:
        return set()
    if mode == MODE_STANDALONE and request.messages:
        whole = _whole_texts([texts.get(id(event), "") for event in events], request.messages[-1].content)
        return {_place(stored, event) for event, is_whole in zip(events, whole, strict=True) if not is_whole}
    if mode == MODE_FORK:
        sent = {id(message) for message in request.messages}
        return {
            place
            for event in events
            if (place := _place(stored, event)) >= 0
            and not _is_in_fork(event, request, sent, presence.at.get(place, ()))
        }
    return set()


def _whole_texts(texts: Sequence[str], content: str) -> list[bool]:
    """Which texts of a conversation stand whole in a prompt that may lack a stretch in the middle."""
    whole = [not text for text in texts]
    filled = [i for i, text in enumerate(texts) if text]
    if not filled:
        return whole
    joined = "\n".join(texts[i] for i in filled)
    if joined in content:
        return [True] * len(texts)
    at = content.find(texts[filled[0]])
    n_front = 0
    while at >= 0 and n_front < len(filled) and content.startswith(texts[filled[n_front]], at):
        whole[filled[n_front]] = True
        at += len(texts[filled[n_front]]) + 1
        n_front += 1
    end = content.rfind(texts[filled[-1]])
    end = end + len(texts[filled[-1]]) if end >= 0 else -1
    for i in reversed(filled[n_front:]):
        if end < 0 or not content.endswith(texts[i], 0, end):
            break
        whole[i] = True
        end -= len(texts[i]) + 1
    return whole


def _is_in_fork(event: Event, request: Request, sent: set[int], forms: Sequence[Message]) -> bool:
    """All that the event says is in a request, in the form that the main model got or as it is stored."""
    for message in event.messages:
        if id(message) in sent or not _says_something(message):
            continue
        if any(id(form) in sent and _carries(form, message) for form in forms):
            continue
        if message.is_user_like and any(_carries(one, message) for one in request.messages if one.is_user_like):
            continue  # an earlier request put the summary block in front of it
        return False
    return True


# --- what an event says -------------------------------------------------------------------------------


def _says_something(message: Message) -> bool:
    return bool(message.content or message.content_parts or message.tool_calls)


def _carries(form: Message, message: Message) -> bool:
    """A message of a request has all that a stored one says; reasoning, which may be left out, aside."""
    if form is message:
        return True
    if message.content and message.content not in form.content:
        return False
    if message.content_parts and not set(map(id, message.content_parts)) <= set(map(id, form.content_parts)):
        return False
    kept = {(call.id, call.name) for call in form.tool_calls}
    return all((call.id, call.name) in kept or call.name in form.content for call in message.tool_calls)


def _carried(message: Message, forms: Sequence[Message]) -> bool:
    """The messages that stand for an event have all that one of its stored messages says."""
    if any(_carries(form, message) for form in forms):
        return True
    # The sanitiser spreads an assistant message: its text and good calls, and a note for each call it took out.
    if message.content and not any(message.content in form.content for form in forms):
        return False
    if message.content_parts or not message.tool_calls:
        return False
    kept = {call.id for form in forms for call in form.tool_calls}
    return all(
        call.id in kept or any(call.name in form.content and call.arguments in form.content for form in forms)
        for call in message.tool_calls
    )


def _is_told(message: Message, forms: Sequence[Message]) -> bool:
    """Another agent's text is told as a user message; the calls beside a text aren't (ASM-HIST-10)."""
    bare = replace(message, tool_calls=())
    return not message.is_user_like and any(form.is_user_like and _carries(form, bare) for form in forms)


# --- filters, read off the specification ---------------------------------------------------------------


def hidden_by(event: Event, invocation: Invocation, settings: AgentSettings) -> str:
    """The filter that keeps an event out of an invocation's requests; empty when none does (ASM-EVT-01, -05, -06)."""
    response = event.response
    if response is None or response.is_partial or not response.choices:
        return "no_content"
    timeline, branches = settings.timeline, settings.branches
    if timeline == "request" and event.request_id != invocation.request_id:
        return "timeline"
    if timeline == "invocation" and event.invocation_id != invocation.invocation_id:
        return "timeline"
    mine, current = event.filter_key, invocation.filter_key
    if branches == "exact":
        return "" if mine == current else "branch"
    if branches == "prefix" and event.version != EVENT_VERSION:
        mine = event.branch
    if branches == "all" or not mine or not current or mine == current:
        return ""
    is_below = mine.startswith(current + FILTER_KEY_DELIMITER)
    is_above = current.startswith(mine + FILTER_KEY_DELIMITER)
    return "" if is_below or (is_above and branches == "prefix") else "branch"


# --- the states ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class CoverageTracker:
    """Follows one conversation call by call.

    Args:
        settings: The agent's, for its filters.
        event_limit: Events that the session service shows; 0 = all.
    """

    settings: AgentSettings
    event_limit: int = 0
    stored: StoredEvents = field(default_factory=StoredEvents)
    states: list[State | None] = field(default_factory=list)
    """By position, as of the last call."""
    sent_messages: Presence = field(default_factory=Presence)
    """What the last request holds."""
    assembled_messages: Presence = field(default_factory=Presence)
    """What it held before tailoring; empty when nothing tailored it."""
    unlimited_messages: Presence = field(default_factory=Presence)
    """What it held before the history limit; empty when that cut nothing."""
    summaries: list[_Version] = field(default_factory=list)
    """The summaries in it."""
    rewrites: dict[str, dict[tuple[str, int], Rewrite]] = field(default_factory=dict)
    """Call id -> (event id, pass) -> the latest form that this pass gave to the result."""
    rules: dict[int, str] = field(default_factory=dict)
    """Position -> why selection brought a covered event back."""
    _readings: SummaryReadings = field(default_factory=SummaryReadings)
    _pending: list[SummaryAttempt] = field(default_factory=list)
    _filters: tuple[str, ...] = ()
    _notes: DropNotes | None = None
    _n_notes: int = 0

    def add_attempt(self, attempt: SummaryAttempt) -> None:
        """A summary was written or copied."""
        if attempt.summary is not None:
            self._pending.append(attempt)

    def observe(self, sent: SentRequest) -> tuple[list[CoverageSpan], list[CoverageViolation]]:
        """The next call: states that changed with it, and violations that began with it."""
        touched = self._take_in_events(sent)
        touched |= self._take_in_request(sent)
        touched |= self._take_in_summaries(sent)
        touched |= self._take_in_rules(sent)
        touched |= self._take_in_drops(sent)
        for one in sent.assembly.new_rewrites:
            self.rewrites.setdefault(one.tool_call_id, {})[one.event_id, one.by_pass] = one
        touched |= self._take_in_filters(sent)
        self.states += [None] * (len(self.stored.events) - len(self.states))
        changed: list[tuple[int, State]] = []
        violations: list[CoverageViolation] = []
        view = _View(self, sent)
        for position in sorted(touched):
            state, rule = view.state_of(position)
            before = self.states[position]
            if state != before:
                self.states[position] = state
                changed.append((position, state))
            if rule and (state != before or rule == "repeated"):
                violations.append(CoverageViolation(rule, position, view.step_of(rule, position)))
        return list(_spans(changed)), violations

    def is_covered(self, position: int) -> bool:
        """The summary in the last request stands for this event, which isn't in it."""
        state = self.states[position] if position < len(self.states) else None
        return state is not None and state[0] in (COVERED, COVERED_CUT)

    def n_summaries_of(self, position: int) -> int:
        """How many summaries in a row an event went through, the one in the last request included; 0 for none."""
        return max((version.chain.age(position, version.number) for version in self.summaries), default=0)

    def is_sent(self, event: Event) -> bool:
        """The last request has a message of this event."""
        return self.stored.find(event) in self.sent_messages.at

    def _take_in_events(self, sent: SentRequest) -> set[int]:
        n_sessions = self.stored.n_sessions
        touched = set(self.stored.sync(sent.session))
        touched.update(range(len(self.states), len(self.stored.events)))
        for attempt in self._pending:
            self._readings.add(attempt, self.stored, self.sent_messages)
        self._pending.clear()
        if n_sessions and self.stored.n_sessions != n_sessions:
            self._readings.forget()
            touched.update(range(len(self.stored.events)))
        return touched

    def _take_in_request(self, sent: SentRequest) -> set[int]:
        assembly, stored = sent.assembly, self.stored
        is_cut = sent.kept is not None
        self.sent_messages.valid_only = is_cut
        touched = self.sent_messages.update(sent_pieces(sent), stored, assembly.shift)
        # What tailoring or the history limit left out is looked for only where they were at work.
        touched |= self.assembled_messages.update(assembly.pieces if is_cut else (), stored, assembly.shift)
        return touched | self.unlimited_messages.update(assembly.unlimited, stored, assembly.shift)

    def _take_in_summaries(self, sent: SentRequest) -> set[int]:
        old, new = self.summaries, self._readings.behind(sent)
        self.summaries = new
        if [version.chain for version in old] != [version.chain for version in new]:
            return set(range(len(self.stored.events)))
        touched: set[int] = set()
        for before, after in zip(old, new, strict=True):
            first, last = sorted((before.number, after.number))
            for number in range(first + 1, last + 1):
                touched.update(after.chain.added[number])
        return touched

    def _take_in_rules(self, sent: SentRequest) -> set[int]:
        if not self.rules and not sent.assembly.covered_positions_included:
            return set()
        place_of = self.stored.place_of
        rules = {place_of(position): rule for position, rule in sent.assembly.covered_positions_included}
        touched = {position for position, rule in self.rules.items() if rules.get(position) != rule}
        touched |= rules.keys() - self.rules.keys()
        self.rules = rules
        return touched

    def _take_in_filters(self, sent: SentRequest) -> set[int]:
        old, new = self._filters, _filters_of(sent.invocation, self.settings)
        if new == old:
            return set()
        self._filters = new
        events = self.stored.events
        if not old or new[0] != old[0]:
            return set(range(len(events)))
        # Another request begins: what the timeline hid stays hidden, unless it belongs to this one.
        _, request, invocation = new
        return {
            position
            for position, (event, state) in enumerate(zip(events, self.states, strict=False))
            if state != (HIDDEN, "timeline")
            or (event and (event.request_id == request or event.invocation_id == invocation))
        }

    def _take_in_drops(self, sent: SentRequest) -> set[int]:
        notes = sent.assembly.dropped
        if notes is not self._notes:
            self._notes, self._n_notes = notes, 0
        new, self._n_notes = notes.changed[self._n_notes :], len(notes.changed)
        places = map(self.stored.place_by_id, new)
        return {place for place in places if place is not None}


def _filters_of(invocation: Invocation, settings: AgentSettings) -> tuple[str, ...]:
    """What decides which events an invocation may see: its key, and its request or invocation where they matter."""
    timeline = settings.timeline
    return (
        invocation.filter_key,
        invocation.request_id if timeline == "request" else "",
        invocation.invocation_id if timeline == "invocation" else "",
    )


@dataclass(slots=True)
class _View:
    """One call's answer to what state an event is in."""

    tracker: CoverageTracker
    sent: SentRequest
    _shown: list[tuple[int, int]] = field(init=False)

    def __post_init__(self) -> None:
        self._shown = self.tracker.stored.shown

    def state_of(self, position: int) -> tuple[State, str]:
        """`(state, broken rule)`; no rule is broken when it's empty."""
        tracker = self.tracker
        event = tracker.stored.events[position]
        messages = tracker.sent_messages.at.get(position)
        level = 0
        for version in tracker.summaries:
            own = version.chain.level(position, version.number)
            level = own if not level or own == _WHOLE else level
        if event is None or not self._is_shown(position):
            return (COVERED if level == _WHOLE else COVERED_CUT, "") if level else self._gone(position), ""
        if messages:
            return self._present(position, event, messages, level)
        if level:
            return (COVERED if level == _WHOLE else COVERED_CUT, ""), ""
        return self._absent(position, event)

    def _is_shown(self, position: int) -> bool:
        if len(self._shown) == 1:
            start, stop = self._shown[0]
            return start <= position < stop
        return any(start <= position < stop for start, stop in self._shown)

    def _gone(self, position: int) -> State:
        """The session doesn't show the event any more."""
        stored, limit = self.tracker.stored, self.tracker.event_limit
        if position < stored.base:
            return DROPPED, "session_expired"
        if limit and len(stored.events) - stored.base > limit:
            return DROPPED, "event_limit"
        return HIDDEN, "user_first"

    def _present(self, position: int, event: Event, messages: Sequence[Message], level: int) -> tuple[State, str]:
        state, broken = self._form(position, event, messages)
        if level:
            rule = self.tracker.rules.get(position) or self._rule_by_boundary(event)
            if rule:
                rule = RULE_CURRENT_MESSAGE if rule == RULE_CURRENT_TURN else rule
                return (BOTH, rule), broken if broken == "repeated" else ""
            return (BOTH, ""), "twice"
        return state, broken

    def _rule_by_boundary(self, event: Event) -> str:
        """Why history stays that a summary was made of, when no rule of selection brought it back (ASM-EVT-03)."""
        tracker, summary = self.tracker, self.sent.assembly.summary
        assert summary is not None
        if len(tracker.summaries) > 1 or (summary.filter_key not in self.sent.session.summaries):
            return "aggregate"
        boundary = summary.boundary
        if boundary is None or self.sent.session.position_of(boundary.last_event_id) is not None:
            return ""
        return "equal_time" if event.time_ns >= boundary.cutoff_ns else ""

    def _form(self, position: int, event: Event, messages: Sequence[Message]) -> tuple[State, str]:
        """Whether the messages say what is stored."""
        stored = event.messages
        if len(messages) == 1 and len(stored) == 1 and messages[0] is stored[0]:
            return (RAW, ""), ""
        broken = "repeated" if len({id(message) for message in messages}) < len(messages) else ""
        missing = [one for one in stored if _says_something(one) and not _carried(one, messages)]
        if not missing:
            return (RAW, ""), broken
        passes = [self._pass_of(event.id, message.tool_id, messages) for message in missing]
        if -1 not in passes:
            return (REWRITTEN, PASSES[max(passes)]), broken
        if all(message.content and _is_told(message, messages) for message in missing):
            return (REWRITTEN, "foreign"), broken
        step = self.sent.assembly.dropped.steps.get(event.id) or self._left_by(position, len(messages))
        return (REWRITTEN, step), broken or ("" if step else "changed")

    def _pass_of(self, event_id: str, call_id: str, messages: Sequence[Message]) -> int:
        """The pass whose form of a result is among the messages, -1 for none."""
        forms = self.tracker.rewrites.get(call_id, {})
        own = [form for by_pass in PASSES if (form := forms.get((event_id, by_pass))) is not None]
        # Where several events were merged, a form goes by the first one's id (ASM-HIST-06).
        for form in own or [*forms.values()][::-1]:
            if any(form.message.content in message.content for message in messages):
                return form.by_pass
        return -1

    def _left_by(self, position: int, n_messages: int) -> str:
        """The step that left out a part of an event's messages."""
        stages = ((self.tracker.assembled_messages, "tailoring"), (self.tracker.unlimited_messages, "history_limit"))
        return next((step for stage, step in stages if len(stage.at.get(position, ())) > n_messages), "")

    def _absent(self, position: int, event: Event) -> tuple[State, str]:
        tracker = self.tracker
        if position in tracker.assembled_messages.at:
            return (DROPPED, "tailoring"), ""
        if position in tracker.unlimited_messages.at:
            return (DROPPED, "history_limit"), ""
        filter_name = hidden_by(event, self.sent.invocation, tracker.settings)
        if filter_name:
            return (HIDDEN, filter_name), ""
        step = self.sent.assembly.dropped.steps.get(event.id)
        return ((DROPPED, step), "") if step else ((LOST, ""), "lost")

    def step_of(self, rule: str, position: int) -> str:
        """The step that broke a rule."""
        if rule == "twice" or position in self.tracker.rules:
            return "selection"
        if rule != "lost":
            whole = self.tracker.assembled_messages.at.get(position)
            event = self.tracker.stored.events[position]
            if whole and event is not None and not self._form(position, event, whole)[1]:
                return "tailoring"
            return "projection"
        summary = self.sent.assembly.summary
        boundary = summary.boundary if summary is not None else None
        if boundary is None:
            return "projection"
        last = self.sent.session.position_of(boundary.last_event_id)
        event = self.tracker.stored.events[position]
        is_by_time = last is None and event is not None and event.time_ns < boundary.cutoff_ns
        is_in_front = last is not None and position <= self.tracker.stored.place_of(last)
        return "selection" if is_by_time or is_in_front else "projection"


def _spans(changed: Iterable[tuple[int, State]]) -> Iterator[CoverageSpan]:
    """Neighbours that came into one state as one range."""
    first = last = -1
    state: State = ("", "")
    for position, new in changed:
        if position == last + 1 and new == state and first >= 0:
            last = position
            continue
        if first >= 0:
            yield CoverageSpan(first, last, *state)
        first = last = position
        state = new
    if first >= 0:
        yield CoverageSpan(first, last, *state)


def states_at(rows: Iterable[Mapping[str, object]], call: int) -> list[State]:
    """Every event's state at one call, from the `coverage` rows of one conversation.

    Args:
        rows: With `call`, `first_position`, `last_position`, `state`, `detail`, in the order of the trace.
    """
    states: dict[int, State] = {}
    for row in rows:
        if int(str(row["call"])) > call:
            break
        span = range(int(str(row["first_position"])), int(str(row["last_position"])) + 1)
        states.update(dict.fromkeys(span, (str(row["state"]), str(row["detail"] or ""))))
    return [states[position] for position in sorted(states)]
