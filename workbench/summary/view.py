"""The model-visible view: a summary made of what the model saw, not of what is stored (summary.md, section 15).

In: a request as it was sent, with the stored event behind each history message. Out: a temporary session of
one summary run over those messages, the request's size for token checks, and the part of the request that a
fork may keep. Used under profiles with `model_visible_view`; a boundary never runs ahead of what was seen.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from workbench.call import CallContext
from workbench.model.types import Message, Request, response_of
from workbench.session.scope import in_scope
from workbench.session.types import Event, Session
from workbench.summary.delta import Delta, DeltaSession
from workbench.summary.selection import previous_summary_event
from workbench.tokens import TokenCounter


@dataclass(frozen=True, slots=True)
class ViewItem:
    """One history message of a request."""

    message: Message
    event: Event
    """The stored event behind it."""
    is_new: bool
    """The summary in the request doesn't cover the event, so a boundary may move to it."""
    index: int
    """Where it stands in the request."""


@dataclass(frozen=True, slots=True)
class SummaryView:
    """What one request showed of one session (SUM-VIEW-01).

    Args:
        previous_summary: Text of the summary in the request; empty if none was injected.
        summary_in_items: The summary stands inside an item (user mode), so no synthetic event goes in front.
        bound: The request was sent as it is here; an unbound view makes no summary (SUM-VIEW-03).
        make_items: Called when the items are first needed.
    """

    session_id: str
    filter_key: str
    previous_summary: str
    summary_in_items: bool
    request: Request
    bound: bool
    make_items: Callable[[], Sequence[ViewItem]]

    def serves(self, session: Session, filter_key: str, previous_summary: str) -> bool:
        """It is of this session and key, and was made with this previous summary (ASM-VIEW-02)."""
        return (
            self.session_id == session.id
            and self.filter_key == filter_key
            and self.previous_summary == previous_summary
        )


class _ViewKey:
    """Context key of the view that the flow attaches."""


class _AppliedKey:
    """Context key of the view that a run works on."""


def context_with_summary_view(ctx: CallContext, view: SummaryView | None) -> CallContext:
    """A context that carries what the last request showed."""
    return ctx.with_value(_ViewKey, view)


def summary_view_from_context(ctx: CallContext) -> SummaryView | None:
    """The view that the flow attached, None without one."""
    view: SummaryView | None = ctx.value(_ViewKey)
    return view


@dataclass(frozen=True, slots=True)
class AppliedView:
    """A view in use: the events that stand for its items, each with its item."""

    view: SummaryView
    pairs: tuple[tuple[Event, ViewItem], ...]

    def stored_events(self, events: Sequence[Event]) -> tuple[Event, ...]:
        """The stored events behind these (for a hook's `source_events`)."""
        known = {id(event): item.event for event, item in self.pairs}
        return tuple(known.get(id(event), event) for event in events)

    def fork_parent(self, selected: Sequence[Event]) -> Request:
        """The request with its fixed head and the selected items only (SUM-VIEW-02)."""
        kept = {id(event) for event in selected}
        dropped = {item.index for event, item in self.pairs if id(event) not in kept}
        dropped |= {item.index for item in self.view.make_items()} - {item.index for _, item in self.pairs}
        messages = self.view.request.messages
        return self.view.request.replace(messages=tuple(m for i, m in enumerate(messages) if i not in dropped))

    @staticmethod
    def boundary_event(selected: Sequence[Event]) -> Event | None:
        """The last selected event that a boundary may move to."""
        return next((event for event in reversed(selected) if event.id), None)


def context_with_applied_view(ctx: CallContext, applied: AppliedView) -> CallContext:
    """A context whose summary run works on a view."""
    return ctx.with_value(_AppliedKey, applied)


def applied_view_from_context(ctx: CallContext) -> AppliedView | None:
    """The view that this run works on, None when it works on stored events."""
    applied: AppliedView | None = ctx.value(_AppliedKey)
    return applied


def view_session(
    view: SummaryView, live: Session, *, scope: str, counts_head: bool, now_ns: int
) -> tuple[DeltaSession, AppliedView]:
    """The temporary session of a run over a view: scope first, then whatever `skip_recent` says.

    An item that the summary covers already stands there without an id: it is text, but no boundary.
    """
    pairs = tuple((_effective_event(item), item) for item in view.make_items() if in_scope(item.event, view.filter_key))
    has_head = bool(view.previous_summary) and not view.summary_in_items
    session = DeltaSession(
        live,
        filter_key=view.filter_key,
        scope=scope,
        start=live.end_position,
        chosen=[event for event, _ in pairs],
        head=previous_summary_event(view.previous_summary, now_ns=now_ns) if has_head else None,
        counts_head=counts_head and has_head,
    )
    return session, AppliedView(view, pairs)


def _effective_event(item: ViewItem) -> Event:
    response = response_of(item.message)
    if item.event.response is not None:
        response = replace(response, id=item.event.response.id, done=item.event.response.done)
    return item.event.replace(response=response, id=item.event.id if item.is_new else "")


class RequestSized:
    """A delta whose token count is the size of the whole request (D5)."""

    def __init__(self, delta: Delta, request: Request) -> None:
        self._delta = delta
        self._request = request

    def has_events(self) -> bool:
        return self._delta.has_events()

    def n_counted(self) -> int:
        return self._delta.n_counted()

    def last_relevant_ns(self) -> int | None:
        return self._delta.last_relevant_ns()

    def tokens(self, ctx: CallContext, counter: TokenCounter) -> int | Awaitable[int]:
        messages = self._request.messages
        return counter.count_tokens_range(ctx, messages, 0, len(messages)) if messages else 0
