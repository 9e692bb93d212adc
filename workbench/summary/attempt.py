"""One summary's model calls: build, fit, callbacks, call, collect, at most one retry (SUM-CALL, section 11).

In: a source and the collaborators of a summarizer. Out: the summary text and the context that callbacks left
behind; the report in the context says what was sent. Nothing here touches a session.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass

from workbench.call import CallContext
from workbench.errors import (
    ConfigError,
    ContextLengthError,
    EmptySummaryError,
    SummaryError,
    SummaryInputTooLargeError,
    SummaryModelError,
)
from workbench.model.client import Model
from workbench.model.types import SYSTEM, USER, Message, Request, Response, ResponseError, Usage
from workbench.summary.budget import (
    RETRY_SHARE,
    Estimator,
    Fitted,
    Fitter,
    OverflowPolicy,
    Source,
    SourceText,
    SourceTooLargeError,
    input_budget,
)
from workbench.summary.callbacks import AfterModelArgs, BeforeModelArgs, ModelCallbacks
from workbench.summary.context import (
    cache_safe_fork_request_from_context,
    context_with_report,
    report_from_context,
)
from workbench.summary.fork import fork_request
from workbench.summary.prompt import Prompts
from workbench.summary.report import MODE_CUSTOM, MODE_FORK, MODE_STANDALONE, Mode, Report
from workbench.tokens import TokenCounter
from workbench.wording import SOURCE_BOUNDARY_NOTE

_log = logging.getLogger(__name__)

# What providers say when a request is too long (SUM-CALL-04); our own budget errors avoid these words.
CONTEXT_LENGTH_PHRASES = (
    "context_length_exceeded",
    "context_window_exceeded",
    "context length exceeded",
    "context window exceeded",
    "maximum context length",
    "prompt is too long",
    "input is too long",
    "too many tokens",
)


@dataclass(slots=True)
class _Outcome:
    """What one attempt came to."""

    ctx: CallContext
    budget: int = 0
    text: str = ""
    error: Exception | None = None
    response: Response | None = None
    is_custom: bool = False

    @property
    def may_be_retried(self) -> bool:
        """The request was too long for the model, or the model said nothing (SUM-CALL-03)."""
        if self.is_custom:
            return False
        return is_context_length_error(self.error, self.response) or (self.error is None and not self.text)


@dataclass(frozen=True, slots=True)
class SummaryCall:
    """Everything one summary's model calls need, fixed for its length."""

    model: Model
    prompts: Prompts
    counter: TokenCounter
    forks: bool
    """Cache-safe forking is on."""
    policy: OverflowPolicy
    fork_prompt_in_fallback: bool
    callbacks: ModelCallbacks | None = None

    async def run(self, ctx: CallContext, source: Source) -> tuple[CallContext, str]:
        """The summary of a source, after at most two calls.

        Raises:
            SummaryError: a kind of it says what went wrong; also `PromptRenderError`.
        """
        request, mode = self._build(ctx, source.text)
        outcome = await self._attempt(ctx, request, mode, source, limit=0)
        if outcome.may_be_retried:
            limit = max(int(RETRY_SHARE * outcome.budget), 1)
            _log.debug("summary is tried again as a standalone request within %d tokens", limit)
            request = self._standalone(source.text)
            outcome = await self._attempt(outcome.ctx, request, MODE_STANDALONE, source, limit=limit)
        if outcome.error is not None:
            raise outcome.error
        if not outcome.text:
            raise EmptySummaryError(
                f"the summary model answered with an empty text ({source.text.n_chars} characters of input)",
                hint="look at the prompt and at the model's finish reason",
            )
        return outcome.ctx, outcome.text

    # --- requests ----------------------------------------------------------------------------------------

    def _build(self, ctx: CallContext, text: SourceText) -> tuple[Request, Mode]:
        """A fork if forking is on and there is a parent, else a standalone request (SUM-REQ-02)."""
        if self.forks:
            parent = cache_safe_fork_request_from_context(ctx)
            if parent is not None:
                return fork_request(parent, self.prompts.render_fork()), MODE_FORK
            _log.debug("cache-safe forking is on, but there is no parent request: standalone summary request")
        return self._standalone(text), MODE_STANDALONE

    def _standalone(self, text: SourceText) -> Request:
        """Optional system message, then the prompt with the source in it (SUM-REQ-01, -05)."""
        system = self.prompts.render_system()
        user = self.prompts.render_user(conversation_text=text.conversation, previous_summary=text.previous)
        if self.forks and self.fork_prompt_in_fallback:
            parts = (user.rstrip("\n"), SOURCE_BOUNDARY_NOTE, self.prompts.render_fork())
            user = "\n\n".join(parts)
        messages = [Message(role=USER, content=user)]
        if system.strip():
            messages.insert(0, Message(role=SYSTEM, content=system))
        return Request(messages=tuple(messages))

    async def _fit(
        self, estimator: Estimator, request: Request, mode: Mode, source: Source, budget: int
    ) -> tuple[Fitted, Mode]:
        """The request made to fit; a fork that can't becomes a standalone request."""
        fitter = Fitter(estimator, self.policy, self._standalone)
        if mode == MODE_FORK:
            fork = await fitter.fit_fork(request, budget)
            if fork is not None:
                return fork, mode
            _log.debug("the fork doesn't fit %d tokens: standalone summary request", budget)
        try:
            return await fitter.fit_standalone(source.text, budget), MODE_STANDALONE
        except SourceTooLargeError:
            prefix = await fitter.fit_prefix(source, budget) if source.may_shorten else None
            if prefix is None:
                raise
            _log.debug("the source doesn't fit %d tokens: its first %d events", budget, len(source.events))
            return prefix, MODE_STANDALONE

    def _budget(self, request: Request, limit: int) -> int:
        budget = input_budget(self.model, request)
        return min(budget, limit) if limit else budget

    # --- one attempt -------------------------------------------------------------------------------------

    async def _attempt(self, ctx: CallContext, request: Request, mode: Mode, source: Source, *, limit: int) -> _Outcome:
        outcome = _Outcome(ctx, self._budget(request, limit))
        # Whether an error ends the summary or the request is tried again is for `run` to say.
        try:
            await self._try(outcome, request, mode, source, limit)
        except (SummaryError, ConfigError) as error:
            outcome.error = error
        except Exception as error:  # a token counter, say
            outcome.error = SummaryError(f"the summary request can't be made: {error}")
            outcome.error.__cause__ = error
        return outcome

    async def _try(self, outcome: _Outcome, request: Request, mode: Mode, source: Source, limit: int) -> None:
        estimator = Estimator(self.counter, outcome.ctx)
        fitted, mode = await self._fit(estimator, request, mode, source, outcome.budget)
        request, custom = await self._before(outcome, fitted.request)
        report = _report(outcome.ctx)
        if custom is not None:
            outcome.is_custom = True
            report.call.mode, report.call.estimated_prompt_tokens = MODE_CUSTOM, 0
            await self._collect(outcome, request, _one(custom))
            return
        outcome.budget = self._budget(request, limit)
        await _check_still_fits(estimator, request, outcome.budget)
        report.call.mode = mode
        report.call.estimated_prompt_tokens = await estimator.messages_or_sum(request.messages)
        report.call.dropped_chars, report.call.dropped_rounds = fitted.dropped_chars, fitted.dropped_rounds
        report.call.requests += (request,)
        await self._collect(outcome, request, self._responses(outcome.ctx, request))

    async def _before(self, outcome: _Outcome, request: Request) -> tuple[Request, Response | None]:
        if self.callbacks is None:
            return request, None
        args = BeforeModelArgs(request)
        ctx, custom = await self.callbacks.run_before(outcome.ctx, args)
        outcome.ctx = inherit_report(ctx, outcome.ctx)
        return args.request, custom

    async def _responses(self, ctx: CallContext, request: Request) -> AsyncIterator[Response]:
        """The model's responses; what it raises becomes a `SummaryModelError`."""
        try:
            stream = self.model.generate(ctx, request)
            try:
                async for response in stream:
                    yield response
            finally:
                if (close := getattr(stream, "aclose", None)) is not None:
                    await close()
        except Exception as error:
            raise SummaryModelError(f"the summary model failed: {error}") from error

    async def _collect(self, outcome: _Outcome, request: Request, responses: AsyncIterator[Response]) -> None:
        """Join the first choices' contents up to `done` or the end of the stream (SUM-CALL-01)."""
        pieces: list[str] = []
        async with aclosing(responses) as stream:  # type: ignore[type-var]
            async for received in stream:
                _record_usage(_report(outcome.ctx), received)
                response = await self._after(outcome, request, received)
                outcome.response = response
                if response.error is not None:
                    raise SummaryModelError(f"the summary model answered with an error: {error_text(response.error)}")
                if response.choices:
                    pieces.append(response.choices[0].message.content)
                if response.done:
                    break
        outcome.text = "".join(pieces).strip()

    async def _after(self, outcome: _Outcome, request: Request, response: Response) -> Response:
        if self.callbacks is None:
            return response
        error = None if response.error is None else SummaryModelError(error_text(response.error))
        ctx, custom = await self.callbacks.run_after(outcome.ctx, AfterModelArgs(request, response, error))
        outcome.ctx = inherit_report(ctx, outcome.ctx)
        return response if custom is None else custom


async def _one(response: Response) -> AsyncIterator[Response]:
    yield response


async def _check_still_fits(estimator: Estimator, request: Request, budget: int) -> None:
    """The callbacks' request is final: too large is an error, not a reason to change it (SUM-FIT-06)."""
    tokens = await estimator.request(request)
    if tokens > budget:
        raise SummaryInputTooLargeError(
            f"after the before-model callbacks the request no longer fits: {tokens} tokens, the budget is {budget}",
            hint="let the callbacks add less",
        )


def _report(ctx: CallContext) -> Report:
    return report_from_context(ctx) or Report()


def inherit_report(ctx: CallContext, before: CallContext) -> CallContext:
    """A context that a hook or callback made, with the current report unless it brings one (SUM-HOOK-03)."""
    if report_from_context(ctx) is not None:
        return ctx
    return context_with_report(ctx, report_from_context(before))


def _record_usage(report: Report, response: Response) -> None:
    """Keep what the provider counted; a response without any count changes nothing (SUM-REP-06)."""
    if response.choices and response.choices[0].finish_reason:
        report.call.finish_reason = response.choices[0].finish_reason
    usage = response.usage
    if usage is None or not _has_counts(usage):
        return
    report.call.prompt_tokens = usage.prompt_tokens or 0
    report.call.cached_tokens = usage.cached_tokens or 0


def _has_counts(usage: Usage) -> bool:
    return any(
        (
            usage.prompt_tokens,
            usage.completion_tokens,
            usage.total_tokens,
            usage.cached_tokens,
            usage.cache_read_tokens,
            usage.cache_creation_tokens,
        )
    )


def error_text(error: ResponseError) -> str:
    """`[type] message (code: code)`, without the parts that are missing (SUM-CALL-02)."""
    parts = (f"[{error.type}]" if error.type else "", error.message, f"(code: {error.code})" if error.code else "")
    return " ".join(part for part in parts if part)


def is_context_length_error(error: Exception | None, response: Response | None) -> bool:
    """The failure says that the request was too long for the model (SUM-CALL-04)."""
    if error is not None and isinstance(error.__cause__, ContextLengthError):
        return True
    texts = [] if error is None else [str(error)]
    if error is not None and response is not None and response.error is not None:
        texts += [response.error.type, response.error.message, response.error.code]
    return any(phrase in text.lower() for text in texts for phrase in CONTEXT_LENGTH_PHRASES)
