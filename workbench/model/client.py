"""The one seam to a model: `generate(request)` in, responses out.

Scripted, recorded, extractive and HTTP models stand behind the same method, so everything above is
tested without a network.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol, runtime_checkable

from workbench.call import CallContext
from workbench.model.types import Request, Response


@runtime_checkable
class Model(Protocol):
    """A language model as the engine sees it."""

    @property
    def name(self) -> str:
        """Name for window look-up, reports and prices."""
        ...

    @property
    def context_window(self) -> int:
        """Tokens this instance can take; 0 when unknown (then the registry decides)."""
        ...

    def generate(self, ctx: CallContext, request: Request) -> AsyncIterator[Response]:
        """Responses in order: partial ones (if any), then a whole one with `done`.

        Raises:
            ModelError: the call failed; nothing was answered.
        """
        ...


@runtime_checkable
class BudgetedModel(Protocol):
    """A model that knows its own input budget (SUM-FIT-02)."""

    def input_token_budget(self, request: Request) -> int:
        """Tokens that input may take; 0 or less means unknown."""
        ...
