"""The delta: what happened since the last summary, and the temporary session of one summary run.

In: a live session and a boundary. Out: `DeltaSession`, which the service hands to a summarizer (SUM-CORE-04)
and which copies no event until somebody reads its list; and `Delta`, which answers what checkers ask
(SUM-CHK-06 to -11, -18), either from running sums or, where those can't know, from the events themselves.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from workbench.call import CallContext
from workbench.model.types import ASSISTANT, Message
from workbench.profiles import SEED, Profile
from workbench.session.open_calls import OpenCalls
from workbench.session.scope import counts_for_full_session, delta_events, event_matches, in_scope
from workbench.session.shared_log import SharedLog
from workbench.session.types import (
    Event,
    Session,
    SummaryBoundary,
)
from workbench.summary.boundary import boundary_from_state
from workbench.summary.selection import (
    SkipRecent,
    events_in_scope,
    is_previous_summary_event,
    previous_summary_event,
    without_recent,
)
from workbench.summary.tally import CountsText, Rule, SessionTallies, Tally
from workbench.summary.text import (
    DEFAULT_FORMATTERS,
    Formatters,
    conversation_text,
    event_blocks,
    has_summarizable_content,
    reasoning_text,
)
from workbench.tokens import SimpleTokenCounter, TokenCounter

_log = logging.getLogger(__name__)


# --- the temporary session of one run -------------------------------------------------------------------


class DeltaSession(Session):
    """The session that one summary run works on: the previous summary in front, then the delta.

    Its end is fixed when it is made, so events that are appended to the live session later aren't covered
    (SUM-CORE-09). Made by `delta_session`.
    """

    __slots__ = ("_chosen", "_events", "counts_head", "end", "filter_key", "head", "live", "start")

    def __init__(
        self,
        live: Session,
        *,
        filter_key: str,
        scope: str,
        start: int,
        chosen: list[Event] | None,
        head: Event | None,
        counts_head: bool,
        end: int | None = None,
    ) -> None:
        self._events: SharedLog[Event] | None = None
        super().__init__(
            app_name=live.app_name,
            user_id=live.user_id,
            id=f"{live.id}:{filter_key}",
            created_ns=live.created_ns,
            updated_ns=live.updated_ns,
            scope_filter_key=scope,
        )
        self._events = None
        self.live = live
        self.filter_key = filter_key
        """Key that the summary is stored under; selects the delta and narrows the input."""
        self.start = start
        """Absolute position in `live` where the delta starts."""
        self.end = live.end_position if end is None else end
        """Absolute position behind the delta."""
        self.head = head
        """The synthetic previous summary, None on a first run."""
        self.counts_head = counts_head
        """The head counts as one event and its text as tokens (D4)."""
        self._chosen = chosen

    @property
    def events(self) -> SharedLog[Event]:
        """Head and delta; built when first read."""
        if self._events is None:
            delta = self._delta() if self._chosen is None else self._chosen
            self._events = SharedLog([self.head, *delta] if self.head is not None else delta)
        return self._events

    @events.setter
    def events(self, events: SharedLog[Event]) -> None:
        self._events = events

    def _delta(self) -> list[Event]:
        live = self.live
        base = live.first_position
        events = live.events[max(self.start - base, 0) : max(self.end - base, 0)]
        key = self.filter_key
        return [event for event in events if event_matches(event, key)] if key else events

    @property
    def is_a_range(self) -> bool:
        """The delta is a range of positions, untouched since: sums can answer for it."""
        return self._chosen is None and not self.state

    @property
    def delta_count(self) -> int:
        """Delta events, the head not among them."""
        if not self.is_a_range:
            return len(self.delta)
        return self.tally(Rule(self.filter_key)).totals(self.start, self.end).n_events

    @property
    def last_event(self) -> Event | None:
        """The last delta event, None without any."""
        if not self.is_a_range:
            return self.delta[-1] if self.delta else None
        return self.event_at(self.tally(Rule(self.filter_key)).last_position(self.start, self.end))

    @property
    def delta(self) -> list[Event]:
        """The delta events, without the head."""
        return self.events[self.head is not None :]

    def has_event_in_scope(self, scope: str) -> bool:
        """Some delta event belongs to this branch (SUM-KEY-04)."""
        if not self.is_a_range:
            return any(in_scope(event, scope) for event in self.delta)
        return self.tally(Rule(self.filter_key, scope)).last_position(self.start, self.end) is not None

    def tally(self, rule: Rule) -> Tally:
        """The live session's running sums of a rule, up to this session's end."""
        return SessionTallies.of(self.live).tally(self.live, rule, self.end)

    def event_at(self, position: int | None) -> Event | None:
        """The live event at an absolute position; None stays None."""
        return None if position is None else self.live.events[position - self.live.first_position]


def delta_session(
    live: Session,
    *,
    filter_key: str,
    boundary: SummaryBoundary | None,
    previous_summary: str = "",
    scope: str | None = None,
    now_ns: int,
    profile: Profile = SEED,
) -> DeltaSession:
    """The temporary session of one summary run (SUM-CORE-03, -04); costs the same for any history.

    Args:
        filter_key: Target of the summary; empty = full session.
        boundary: Where the stored summary ends; None = nothing covered yet.
        scope: Branch in whose scope the checks count; None = `filter_key` (a cascade passes the trigger's).
        now_ns: Time stamp of the synthetic event.
    """
    start, chosen = _delta_range(live, boundary)
    if chosen is not None and filter_key:
        chosen = [event for event in chosen if event_matches(event, filter_key)]
    end = live.end_position
    if not profile.reference_quirks:
        end, chosen = _before_open_calls(live, start, chosen, filter_key)
    return DeltaSession(
        live,
        filter_key=filter_key,
        scope=filter_key if scope is None else scope,
        start=start,
        chosen=chosen,
        head=previous_summary_event(previous_summary, now_ns=now_ns) if previous_summary else None,
        counts_head=profile.count_previous_summary,
        end=end,
    )


def _before_open_calls(
    live: Session, start: int, chosen: list[Event] | None, filter_key: str
) -> tuple[int, list[Event] | None]:
    """Where the delta ends: in front of the first call of this branch that may still get its result (BUG-10)."""
    end = live.end_position
    waiting = [
        (at, event) for at, event in OpenCalls.of(live) if start <= at < end and event_matches(event, filter_key)
    ]
    if not waiting:
        return end, chosen
    first, call = min(waiting, key=lambda one: one[0])
    if chosen is None:
        return first, None
    return first, chosen[: next((i for i, event in enumerate(chosen) if event is call), len(chosen))]


def _delta_range(live: Session, boundary: SummaryBoundary | None) -> tuple[int, list[Event] | None]:
    """Where the delta starts, or its events when they aren't a range."""
    position = live.position_of(boundary.last_event_id) if boundary is not None else None
    if position is not None:
        return position + 1, None
    if boundary is None or not boundary.cutoff_ns:
        return live.first_position, None
    if SessionTallies.of(live).times_ascend_from(live) > live.first_position:
        return live.first_position, delta_events(live, boundary)
    offset = bisect_left(live.events, boundary.cutoff_ns, key=lambda event: event.time_ns)
    return live.first_position + offset, None


def input_scope(session: Session) -> str:
    """The branch that a summary of this session is about; a cascaded full target is about everything."""
    return session.filter_key if isinstance(session, DeltaSession) else session.scope_filter_key


# --- what checkers ask ----------------------------------------------------------------------------------


class Delta(Protocol):
    """The delta as a checker sees it; "counted" is SUM-CHK-07."""

    def has_events(self) -> bool:
        """There is any event since the boundary, counted or not."""
        ...

    def n_counted(self) -> int:
        """Counted events."""
        ...

    def last_relevant_ns(self) -> int | None:
        """Time of the last event in scope, counted or not (SUM-CHK-18); None without one."""
        ...

    def tokens(self, ctx: CallContext, counter: TokenCounter) -> int | Awaitable[int]:
        """Tokens of the counted events' texts (SUM-CHK-09); 0 when there is no text."""
        ...


def is_incremental(counter: TokenCounter) -> bool:
    """Delta tokens by this counter are running sums; with any other, each check counts the whole text."""
    return (
        type(counter) is SimpleTokenCounter or _line_counter(counter) is not None or _unit_counter(counter) is not None
    )


def _line_counter(counter: TokenCounter) -> CountsText | None:
    if getattr(counter, "line_additive", False) and hasattr(counter, "count_text") and hasattr(counter, "counter_id"):
        return counter  # type: ignore[return-value]
    return None


def _unit_counter(counter: TokenCounter) -> CountsText | None:
    """The counter's finer twin, of whose units a text has exactly the sum over its lines."""
    units: CountsText | None = getattr(counter, "unit_counter", None)
    return units if hasattr(counter, "tokens_from_units") else None


class TallyDelta:
    """The delta of a `DeltaSession` from the live session's running sums."""

    def __init__(self, session: DeltaSession, *, counts_head: bool) -> None:
        self._session = session
        scope = session.scope_filter_key
        self._scope_rule = Rule(session.filter_key, scope)
        self._rule = Rule(session.filter_key, scope) if scope else Rule(session.filter_key, "", session.app_name)
        self._head = session.head if counts_head else None

    def has_events(self) -> bool:
        return self._head is not None or self._session.delta_count > 0

    def n_counted(self) -> int:
        session = self._session
        n_events = session.tally(self._rule).totals(session.start, session.end).n_events
        return n_events + (self._head is not None)

    def last_relevant_ns(self) -> int | None:
        session = self._session
        position = session.tally(self._scope_rule).last_position(session.start, session.end)
        event = session.event_at(position) or self._head
        return None if event is None else event.time_ns

    def has_content(self) -> bool:
        """Some item of the selected input, head included, has text under the built-in formatters."""
        session = self._session
        if session.head is not None and has_summarizable_content([session.head]):
            return True
        return session.tally(self._scope_rule).totals(session.start, session.end).n_blocks > 0

    def tokens(self, ctx: CallContext, counter: TokenCounter) -> int | Awaitable[int]:
        session = self._session
        tally = session.tally(self._rule)
        before = event_blocks(self._head) if self._head is not None else []
        totals = tally.totals(session.start, session.end)
        if not (before or totals.n_blocks or totals.n_reasoning):
            return 0
        if type(counter) is SimpleTokenCounter:
            runes = totals.runes() + sum(map(len, before)) + (len(before) if totals.n_blocks else 0)
            return counter.tokens_from_runes(runes, non_empty=True)
        if (unit_counter := _unit_counter(counter)) is not None:
            from_units: Callable[..., int] = counter.tokens_from_units  # type: ignore[attr-defined]
            units = tally.tokens(session.live, unit_counter, session.start, session.end, before=before)
            return from_units(units, non_empty=True)
        line_counter = _line_counter(counter)
        if line_counter is None:
            whole = ListDelta(session, session.events, counts_head=self._head is not None)
            return whole.tokens(ctx, counter)
        return _or_zero(lambda: tally.tokens(session.live, line_counter, session.start, session.end, before=before))


class ListDelta:
    """The delta from its events: works for any session, counter and skip rule; the oracle of `TallyDelta`."""

    def __init__(
        self,
        session: Session,
        events: Sequence[Event],
        *,
        counts_head: bool,
        head: Event | None = None,
        skip_recent: SkipRecent | None = None,
        formatters: Formatters = DEFAULT_FORMATTERS,
    ) -> None:
        self._session = session
        self._scope = session.scope_filter_key
        head = session.head if isinstance(session, DeltaSession) else head
        self._uncounted = None if counts_head else head
        self._events = events
        self._skip_recent = skip_recent
        self._formatters = formatters

    def _since_boundary(self) -> list[Event]:
        recorded = boundary_from_state(self._session.state)
        if recorded is None:
            return list(self._events)
        cutoff_ns, event_id = recorded
        return delta_events(self._session, SummaryBoundary(cutoff_ns=cutoff_ns, last_event_id=event_id))

    def _without_head(self, events: Sequence[Event]) -> list[Event]:
        return [event for event in events if event is not self._uncounted]

    def _counted(self, events: Sequence[Event]) -> list[Event]:
        app_name = self._session.app_name
        return [
            event
            for event in self._without_head(events)
            if (in_scope(event, self._scope) if self._scope else counts_for_full_session(event, app_name))
        ]

    def has_events(self) -> bool:
        return bool(self._without_head(self._since_boundary()))

    def n_counted(self) -> int:
        return len(self._counted(self._since_boundary()))

    def last_relevant_ns(self) -> int | None:
        relevant = events_in_scope(self._without_head(self._events), self._scope)
        return relevant[-1].time_ns if relevant else None

    def token_message(self) -> Message:
        """The one message whose tokens are counted: conversation text and reasoning, built-in formatters."""
        counted = self._counted(without_recent(self._since_boundary(), self._skip_recent, self._formatters))
        return Message(role=ASSISTANT, content=conversation_text(counted), reasoning_content=reasoning_text(counted))

    def tokens(self, ctx: CallContext, counter: TokenCounter) -> int | Awaitable[int]:
        message = self.token_message()
        if not message.content and not message.reasoning_content:
            return 0
        return _or_zero(lambda: counter.count_tokens(ctx, message))


def _or_zero(count: Callable[[], int | Awaitable[int]]) -> int | Awaitable[int]:
    """What `count` gives, 0 if it fails (SUM-CHK-11)."""
    try:
        tokens = count()
    except Exception as error:
        _log.debug("token counter failed in a check: %s", error)
        return 0
    return tokens if isinstance(tokens, int) else _awaited_or_zero(tokens)


async def _awaited_or_zero(tokens: Awaitable[int]) -> int:
    try:
        return await tokens
    except Exception as error:
        _log.debug("token counter failed in a check: %s", error)
        return 0


def head_of(session: Session, previous_summary: str) -> Event | None:
    """The synthetic previous summary in front of a session's events, None if there isn't one."""
    if isinstance(session, DeltaSession):
        return session.head
    events = session.events
    return events[0] if events and is_previous_summary_event(events[0], previous_summary) else None


def delta_of(
    session: Session,
    *,
    counts_head: bool,
    previous_summary: str = "",
    skip_recent: SkipRecent | None = None,
    formatters: Formatters = DEFAULT_FORMATTERS,
) -> Delta:
    """The delta of a session: from running sums where they can answer, else from its events."""
    if isinstance(session, DeltaSession) and session.is_a_range and skip_recent is None:
        return TallyDelta(session, counts_head=counts_head)
    return ListDelta(
        session,
        session.events,
        counts_head=counts_head,
        head=head_of(session, previous_summary),
        skip_recent=skip_recent,
        formatters=formatters,
    )


def has_input(session: Session, skip_recent: SkipRecent | None, formatters: Formatters) -> bool:
    """The gate's first question: is there anything to summarize in the selected input (SUM-CHK-04)?"""
    summable = skip_recent is None and formatters is DEFAULT_FORMATTERS
    if summable and isinstance(session, DeltaSession) and session.is_a_range:
        return TallyDelta(session, counts_head=session.counts_head).has_content()
    kept = without_recent(session.events, skip_recent, formatters)
    return has_summarizable_content(events_in_scope(kept, session.scope_filter_key), formatters)
