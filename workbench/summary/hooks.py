"""Hooks around a summary: the application's last look at the input and at the text (SUM-HOOK).

In: mutable contexts that a hook may edit. Out: the input and text that count. What a pre hook cuts out of
the text does not leave a cache-safe fork, whose conversation is the parent request's: a hook is no redaction.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from workbench.call import CallContext
from workbench.errors import SummaryHookError
from workbench.session.types import Event, Session


@dataclass(slots=True)
class PreSummaryHookContext:
    """The input of a summary, to be edited in place.

    A non-empty `text` counts; to have it rebuilt from edited `events`, set it to the empty text.
    `previous_summary` counts only if the prompt has a place for it.
    """

    ctx: CallContext
    session: Session
    events: Sequence[Event]
    source_events: Sequence[Event]
    """The stored events behind `events`."""
    text: str
    previous_summary: str


@dataclass(slots=True)
class PostSummaryHookContext:
    """The result of a summary; another non-empty `summary` replaces it."""

    ctx: CallContext
    session: Session
    summary: str


PreSummaryHook = Callable[[PreSummaryHookContext], Awaitable[None] | None]
PostSummaryHook = Callable[[PostSummaryHookContext], Awaitable[None] | None]
Hook = Callable[..., Awaitable[None] | None]


async def run_hook(hook: Hook, hook_context: object, *, name: str) -> SummaryHookError | None:
    """Run one hook; what it raises comes back, ready to be raised by whoever wants to abort."""
    try:
        pending = hook(hook_context)
        if inspect.isawaitable(pending):
            await pending
    except Exception as error:
        failure = SummaryHookError(f"{name} failed: {error}")
        failure.__cause__ = error
        return failure
    return None
