"""Model callbacks: code of the application around the summary model's call (SUM-CB-01 to -04).

In: functions, run in the order of registration, plain or coroutines. Out: a changed context or request
before the call, another response in place of the model's, or an error that fails the summary.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from workbench.call import CallContext
from workbench.errors import SummaryCallbackError
from workbench.model.types import Request, Response

A = TypeVar("A")


@dataclass(slots=True)
class BeforeModelArgs:
    """What a before-model callback gets; put another request into `request` to change what is sent."""

    request: Request


@dataclass(frozen=True, slots=True)
class BeforeModelResult:
    """What a before-model callback may return; a custom response skips the model."""

    context: CallContext | None = None
    custom_response: Response | None = None


@dataclass(slots=True)
class AfterModelArgs:
    """What an after-model callback gets, once per response."""

    request: Request
    response: Response | None
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class AfterModelResult:
    """What an after-model callback may return; a custom response replaces the model's."""

    context: CallContext | None = None
    custom_response: Response | None = None


ModelResult = BeforeModelResult | AfterModelResult
BeforeModel = Callable[[CallContext, BeforeModelArgs], BeforeModelResult | Awaitable[BeforeModelResult | None] | None]
AfterModel = Callable[[CallContext, AfterModelArgs], AfterModelResult | Awaitable[AfterModelResult | None] | None]


class ModelCallbacks:
    """Callbacks before and after the model.

    Args:
        continue_on_error: Run the others too when one raises; the first error is raised at the end.
        continue_on_response: Run the others too when one gave a response; the last response counts.
    """

    def __init__(self, *, continue_on_error: bool = False, continue_on_response: bool = False) -> None:
        self.continue_on_error = continue_on_error
        self.continue_on_response = continue_on_response
        self._before: list[BeforeModel] = []
        self._after: list[AfterModel] = []

    def register_before_model(self, callback: BeforeModel) -> ModelCallbacks:
        """Add a callback and return self."""
        self._before.append(callback)
        return self

    def register_after_model(self, callback: AfterModel) -> ModelCallbacks:
        """Add a callback and return self."""
        self._after.append(callback)
        return self

    async def run_before(self, ctx: CallContext, args: BeforeModelArgs) -> tuple[CallContext, Response | None]:
        """Run the before-model callbacks; `args.request` is then what to send.

        Raises:
            SummaryCallbackError: one raised; the cause is chained.
        """
        return await self._run("before-model", self._before, ctx, args)

    async def run_after(self, ctx: CallContext, args: AfterModelArgs) -> tuple[CallContext, Response | None]:
        """Run the after-model callbacks for one response.

        Raises:
            SummaryCallbackError: one raised; the cause is chained.
        """
        return await self._run("after-model", self._after, ctx, args)

    async def _run(
        self,
        kind: str,
        callbacks: Sequence[Callable[[CallContext, A], ModelResult | Awaitable[ModelResult | None] | None]],
        ctx: CallContext,
        args: A,
    ) -> tuple[CallContext, Response | None]:
        response: Response | None = None
        failure: Exception | None = None
        for callback in callbacks:
            try:
                result = callback(ctx, args)
                if inspect.isawaitable(result):
                    result = await result
            except Exception as error:
                failure = failure or error
                if not self.continue_on_error:
                    break
                continue
            if result is None:
                continue
            ctx = result.context if result.context is not None else ctx
            if result.custom_response is not None:
                response = result.custom_response
                if not self.continue_on_response:
                    break
        if failure is not None:
            raise SummaryCallbackError(f"{kind} callback failed: {failure}") from failure
        return ctx, response
