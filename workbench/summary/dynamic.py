"""A summarizer that is chosen per call: one long-lived service, many configurations (SUM-DYN).

In: a resolver `(ctx, session) -> summarizer or None`, plain or a coroutine. Out: whatever the resolved
summarizer says. The resolver runs for the check and again for the summary, so it should be cheap and answer
the same for the same context and session.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from workbench.call import EMPTY_CONTEXT, CallContext
from workbench.errors import ConfigError, NoSummarizerResolvedError
from workbench.model.client import Model
from workbench.session.types import Session
from workbench.summary.summarizer import ContextAwareSummarizer, SessionSummarizer

_log = logging.getLogger(__name__)

Resolve = Callable[[CallContext, Session], SessionSummarizer | Awaitable[SessionSummarizer | None] | None]


class DynamicSummarizer:
    """Delegates to the summarizer that `resolve` names for this call.

    Raises:
        ConfigError: `resolve` isn't callable.
    """

    def __init__(self, resolve: Resolve) -> None:
        if not callable(resolve):
            raise ConfigError.for_field("resolve", resolve, "a function (ctx, session) -> summarizer or None")
        self._resolve = resolve

    async def resolved(self, ctx: CallContext, session: Session) -> SessionSummarizer | None:
        """The summarizer for this call; what the resolver raises goes through.

        A resolver that names this dynamic summarizer itself has named none.
        """
        summarizer = self._resolve(ctx, session)
        if inspect.isawaitable(summarizer):
            summarizer = await summarizer
        return None if summarizer is self else summarizer

    async def should_summarize(self, session: Session) -> bool:
        """The resolved summarizer's check, without a call's context."""
        return await self.should_summarize_with_context(EMPTY_CONTEXT, session)

    async def should_summarize_with_context(self, ctx: CallContext, session: Session) -> bool:
        """The resolved summarizer's check; no summarizer, or a failing resolver, means no (SUM-DYN-02)."""
        try:
            summarizer = await self.resolved(ctx, session)
        except Exception as error:
            _log.warning("session %s: no summarizer resolved: %s", session.id, error)
            return False
        if summarizer is None:
            return False
        if isinstance(summarizer, ContextAwareSummarizer):
            return await summarizer.should_summarize_with_context(ctx, session)
        return await summarizer.should_summarize(session)

    async def summarize(self, session: Session, *, ctx: CallContext = EMPTY_CONTEXT) -> str:
        """The resolved summarizer's summary.

        Raises:
            NoSummarizerResolvedError: the resolver named none.
        """
        summarizer = await self.resolved(ctx, session)
        if summarizer is None:
            raise NoSummarizerResolvedError(f"no summarizer for session {session.id}")
        return await summarizer.summarize(session, ctx=ctx)

    async def forks_cache_safe(self, ctx: CallContext, session: Session) -> bool:
        """The resolved summarizer would fork; False when there is none, it fails or it is this one (SUM-DYN-04)."""
        try:
            summarizer = await self.resolved(ctx, session)
        except Exception as error:
            _log.debug("session %s: no summarizer resolved: %s", session.id, error)
            return False
        return bool(getattr(summarizer, "cache_safe_forking", False))

    def set_prompt(self, prompt: str) -> None:
        """Does nothing: the resolved summarizers have prompts of their own."""

    def set_model(self, model: Model | None) -> None:
        """Does nothing: the resolved summarizers have models of their own."""

    def metadata(self) -> dict[str, Any]:
        """`{"type": "dynamic"}`."""
        return {"type": "dynamic"}
