"""The summarizer: the gate that says when, and the pipeline that makes a summary (SUM-OPT, SUM-RUN).

In: a session (in a service run a temporary one) and a call's context. Out: yes or no, or the summary text;
the new boundary goes into the state of the session it was handed (SUM-DM-15), and the report says why, what
was sent and what it cost. Events are never changed.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Annotated, Any, Literal, Protocol, runtime_checkable

from pydantic import Field

from workbench.call import EMPTY_CONTEXT, CallContext
from workbench.clock import Clock, SystemClock
from workbench.errors import ConfigError, NothingToSummarizeError, SummaryError
from workbench.model.client import Model
from workbench.model.windows import known_context_window
from workbench.profiles import SEED, Profile
from workbench.session.types import Event, Session
from workbench.settings import Settings
from workbench.summary.attempt import SummaryCall, inherit_report
from workbench.summary.boundary import (
    boundary_from_state,
    boundary_guarded,
    boundary_left_alone,
    record_boundary,
)
from workbench.summary.budget import OverflowPolicy, Source, SourceText, joined_texts
from workbench.summary.callbacks import ModelCallbacks
from workbench.summary.checkers import (
    Checker,
    CheckRun,
    ContextChecker,
    ContextThreshold,
    checks_from_options,
    measure,
    remember_request_gap,
)
from workbench.summary.context import (
    cache_safe_fork_request_from_context,
    context_with_cache_safe_fork_request,
    context_with_report,
    previous_summary_from_context,
    report_from_context,
    request_gap_from_context,
)
from workbench.summary.delta import delta_of, has_input, head_of, input_scope
from workbench.summary.hooks import (
    PostSummaryHook,
    PostSummaryHookContext,
    PreSummaryHook,
    PreSummaryHookContext,
    run_hook,
)
from workbench.summary.prompt import Prompts, built_in_prompt
from workbench.summary.report import (
    ALWAYS,
    MANUAL,
    Check,
    Report,
    Trigger,
    headline,
    named_trigger,
    trigger_from_check,
)
from workbench.summary.selection import (
    SkipRecent,
    events_in_scope,
    skip_last,
    without_previous_summary,
    without_recent,
)
from workbench.summary.text import (
    Formatters,
    ToolCallFormatter,
    ToolResultFormatter,
    conversation_text,
    formatters_of,
)
from workbench.summary.view import AppliedView, RequestSized, applied_view_from_context
from workbench.tokens import TokenCounter, get_token_counter

__all__ = [
    "ContextAwareSummarizer",
    "ReportHook",
    "SessionSummarizer",
    "Summarizer",
    "SummarySettings",
    "boundary_from_state",
]

_log = logging.getLogger(__name__)

ReportHook = Callable[[CallContext, Report], Awaitable[None] | None]


@runtime_checkable
class SessionSummarizer(Protocol):
    """What every session service can work with (SUM-OPT-07)."""

    async def should_summarize(self, session: Session) -> bool:
        """A summary is due."""
        ...

    async def summarize(self, session: Session, *, ctx: CallContext = EMPTY_CONTEXT) -> str:
        """The summary of a session; its events stay as they are."""
        ...

    def set_prompt(self, prompt: str) -> None:
        """Another user prompt from the next summary on."""
        ...

    def set_model(self, model: Model | None) -> None:
        """Another model from the next summary on."""
        ...

    def metadata(self) -> dict[str, Any]:
        """Facts about the configuration."""
        ...


@runtime_checkable
class ContextAwareSummarizer(Protocol):
    """A summarizer whose check looks at the call's context; a service prefers this form (SUM-CHK-21)."""

    async def should_summarize_with_context(self, ctx: CallContext, session: Session) -> bool:
        """A summary is due in this call."""
        ...


class SummarySettings(Settings):
    """The options of a summarizer that a file can hold."""

    name: str = ""
    """Label for metadata. Source: SUM-OPT-01."""
    prompt: str = ""
    """User prompt of standalone requests, with {conversation_text}; empty = built-in. Source: SUM-OPT-01."""
    system_prompt: str = ""
    """Extra system message of standalone requests; empty = none. Source: SUM-OPT-01."""
    cache_safe_forking: bool = False
    """Extend the main agent's request instead of sending one of our own, where there is one. Source: SUM-REQ-02."""
    cache_safe_fork_prompt: str = ""
    """Message appended to a fork; empty = built-in. Source: SUM-OPT-01."""
    max_summary_words: int = 0
    """Word limit that guides the model, 0 = none; the text is never cut. Source: SUM-OPT-01."""
    skip_recent: Annotated[int, Field(ge=0)] | None = None
    """Events at the end to leave out of each summary; none = leave out nothing. Source: SUM-SEL-01."""
    hook_abort_on_error: bool = False
    """A hook that raises fails the summary. Source: SUM-HOOK-04."""
    overflow_policy: Literal["bounded", "lossless"] | None = None
    """What happens to a source over the budget; none = as the profile says. Source: SUM-FIT-01."""
    fork_prompt_in_fallback: bool | None = None
    """Standalone requests carry the fork prompt while forking is on; none = as the profile says.
    Source: SUM-REQ-05."""
    prompt_errors: Literal["raise", "warn"] | None = None
    """What a broken prompt does; none = as the profile says. Source: SUM-OPT-03."""


class Summarizer:
    """Makes summaries of sessions with a model.

    Args:
        model: The summary model; None still allows checks.
        settings: Options from a file; keyword arguments of the same name win.
        skip_recent: How many events at the end to leave out: a number, or a function of all candidates.
        event_threshold, token_threshold, time_threshold, context_threshold: One check each, in this order;
            `context_threshold=True` takes the defaults.
        checks: Further checks; all checks must pass, in order (SUM-CHK-02).
        checks_all, checks_any, checks_all_context, checks_any_context: One combined check each; empty adds none.
        token_counter: None = the process-wide counter, asked for at each use.
    Raises:
        ConfigError: an option is out of range, or a prompt lacks or has a placeholder that it may not.
    """

    def __init__(
        self,
        model: Model | None,
        settings: SummarySettings | None = None,
        *,
        name: str | None = None,
        prompt: str | None = None,
        system_prompt: str | None = None,
        cache_safe_forking: bool | None = None,
        cache_safe_fork_prompt: str | None = None,
        max_summary_words: int | None = None,
        skip_recent: SkipRecent | int | None = None,
        event_threshold: int | None = None,
        token_threshold: int | None = None,
        time_threshold: timedelta | None = None,
        context_threshold: ContextThreshold | bool | None = None,
        checks: Iterable[Checker] = (),
        checks_all: Iterable[Checker] = (),
        checks_any: Iterable[Checker] = (),
        checks_all_context: Iterable[ContextChecker] = (),
        checks_any_context: Iterable[ContextChecker] = (),
        pre_summary_hook: PreSummaryHook | None = None,
        post_summary_hook: PostSummaryHook | None = None,
        hook_abort_on_error: bool | None = None,
        tool_call_formatter: ToolCallFormatter | None = None,
        tool_result_formatter: ToolResultFormatter | None = None,
        model_callbacks: ModelCallbacks | None = None,
        report_hook: ReportHook | None = None,
        overflow_policy: OverflowPolicy | None = None,
        fork_prompt_in_fallback: bool | None = None,
        prompt_errors: Literal["raise", "warn"] | None = None,
        token_counter: TokenCounter | None = None,
        clock: Clock | None = None,
        profile: Profile = SEED,
    ) -> None:
        given = {
            "name": name,
            "prompt": prompt,
            "system_prompt": system_prompt,
            "cache_safe_forking": cache_safe_forking,
            "cache_safe_fork_prompt": cache_safe_fork_prompt,
            "max_summary_words": max_summary_words,
            "skip_recent": skip_recent if isinstance(skip_recent, int) else None,
            "hook_abort_on_error": hook_abort_on_error,
            "overflow_policy": overflow_policy,
            "fork_prompt_in_fallback": fork_prompt_in_fallback,
            "prompt_errors": prompt_errors,
        }
        changes = {option: value for option, value in given.items() if value is not None}
        self.settings = (settings or SummarySettings()).replace(**changes)
        self.profile = profile
        self.warnings: list[str] = []
        """Faults of prompts that were accepted all the same (`prompt_errors="warn"`)."""
        self._model = model
        self._skip_recent = skip_recent if callable(skip_recent) else _skip_from(self.settings.skip_recent)
        self._checks = checks_from_options(
            event_threshold=event_threshold,
            token_threshold=token_threshold,
            time_threshold=time_threshold,
            context_threshold=context_threshold,
            checks=checks,
            all_of=checks_all,
            any_of=checks_any,
            all_of_context=checks_all_context,
            any_of_context=checks_any_context,
        )
        self._pre_hook = pre_summary_hook
        self._post_hook = post_summary_hook
        self._formatters: Formatters = formatters_of(tool_call_formatter, tool_result_formatter)
        self._callbacks = model_callbacks
        self._report_hook = report_hook
        self._token_counter = token_counter
        self._clock: Clock = clock or SystemClock()
        self._prompts = Prompts(
            user=self.settings.prompt,
            system=self.settings.system_prompt,
            fork=self.settings.cache_safe_fork_prompt,
            max_summary_words=self.settings.max_summary_words,
        ).completed()
        if faults := self._prompts.faults():
            self._object_to(faults)

    # --- configuration -----------------------------------------------------------------------------------

    @property
    def model(self) -> Model | None:
        """The summary model in force."""
        return self._model

    @property
    def cache_safe_forking(self) -> bool:
        """Forking is on; the cascade rule asks for it (SUM-CAS-07)."""
        return self.settings.cache_safe_forking

    @property
    def uses_built_in_prompt(self) -> bool:
        """The user prompt in force is the built-in one."""
        return self._prompts.user == built_in_prompt(self._prompts.max_summary_words)

    def set_prompt(self, prompt: str) -> None:
        """Take another user prompt from the next summary on; an empty one changes nothing (SUM-OPT-05).

        Raises:
            ConfigError: the prompt is invalid; the old one stays in force (a warning where broken prompts
                are only warned about).
        """
        if not prompt:
            return
        prompts = replace(self._prompts, user=prompt)
        if faults := prompts.user_faults():
            self._object_to(faults)
        else:
            self._prompts = prompts

    def set_model(self, model: Model | None) -> None:
        """Take another model from the next summary on; None changes nothing."""
        if model is not None:
            self._model = model

    def metadata(self) -> dict[str, Any]:
        """Facts about the configuration; works without a model (SUM-OPT-06)."""
        return {
            "model_name": self._model.name if self._model is not None else "",
            "summarizer_name": self.settings.name,
            "max_summary_words": self.settings.max_summary_words,
            "model_available": self._model is not None,
            "check_functions": len(self._checks),
            "skip_recent_enabled": self._skip_recent is not None,
            "cache_safe_forking": self.settings.cache_safe_forking,
        }

    def _object_to(self, faults: Sequence[ConfigError]) -> None:
        """Raise the first fault, or note them all, as `prompt_errors` says (SUM-OPT-03)."""
        if (self.settings.prompt_errors or self.profile.prompt_errors) == "raise":
            raise faults[0]
        for fault in faults:
            _log.warning("summary prompt: %s", fault)
            self.warnings.append(str(fault))

    @property
    def _counter(self) -> TokenCounter:
        return self._token_counter or get_token_counter()

    # --- when --------------------------------------------------------------------------------------------

    async def should_summarize(self, session: Session) -> bool:
        """A summary is due, judged without a call's context."""
        return await self.should_summarize_with_context(EMPTY_CONTEXT, session)

    async def should_summarize_with_context(self, ctx: CallContext, session: Session) -> bool:
        """A summary is due; the report in `ctx`, if any, gets the trigger with all evaluated checks."""
        trigger = await self._trigger(ctx, session)
        report = report_from_context(ctx)
        if report is not None:
            report.trigger = trigger
        return trigger.fired

    async def _trigger(self, ctx: CallContext, session: Session) -> Trigger:
        if not has_input(session, self._skip_recent, self._formatters):
            return Trigger(stopped_by="nothing to summarize in the selected events")
        filter_key = session.scope_filter_key
        if not self._checks:
            return named_trigger(ALWAYS, filter_key=filter_key)
        remember_request_gap(session, request_gap_from_context(ctx))
        run = self._check_run(ctx, session)
        done: list[Check] = []
        for checker in self._checks:
            pending = measure(checker, run, with_context=False)
            check = await pending if isinstance(pending, Awaitable) else pending
            done.append(check)
            if not check.passed:
                return trigger_from_check(check, done, filter_key=filter_key)
        return trigger_from_check(headline(done), done, filter_key=filter_key)

    def _check_run(self, ctx: CallContext, session: Session) -> CheckRun:
        delta = delta_of(
            session,
            counts_head=self.profile.count_previous_summary,
            previous_summary=previous_summary_from_context(ctx),
            skip_recent=self._skip_recent,
            formatters=self._formatters,
        )
        applied = applied_view_from_context(ctx)
        return CheckRun(
            ctx,
            session,
            delta if applied is None else RequestSized(delta, applied.view.request),
            counter=self._counter,
            clock=self._clock,
            fallback_window=known_context_window(self._model),
        )

    # --- what --------------------------------------------------------------------------------------------

    async def summarize(self, session: Session, *, ctx: CallContext = EMPTY_CONTEXT) -> str:
        """The summary of a session; on success the new boundary is in the session's state.

        Raises:
            NothingToSummarizeError: no events, or no text in the selected ones.
            SummaryInputTooLargeError: the source doesn't fit the summary model.
            SummaryModelError, EmptySummaryError: the model failed, or said nothing twice.
            SummaryHookError, SummaryCallbackError: code of the application failed the summary.
            PromptRenderError: a template names a placeholder that nothing fills.
        """
        model = self._model
        if model is None:
            raise SummaryError(f"no summary model for session {session.id}", hint="give the summarizer a model")
        report = report_from_context(ctx)
        if report is None:
            report = Report()
            ctx = context_with_report(ctx, report)
        if report.trigger == Trigger():
            report.trigger = named_trigger(MANUAL, filter_key="")
        ctx, source = await self._source(ctx, session)
        ctx, text = await self._call_model(ctx, model, source)
        return await self._finish(ctx, session, source, text)

    async def _source(self, ctx: CallContext, session: Session) -> tuple[CallContext, Source]:
        """Selection, separation of the previous summary, text, pre hook (SUM-RUN-01 to -03)."""
        separates = self._prompts.separates_previous_summary
        previous = previous_summary_from_context(ctx) if separates else ""
        events = session.events
        if not events and not previous:
            raise NothingToSummarizeError(f"session {session.id} has no events to summarize")
        selected = events_in_scope(without_recent(events, self._skip_recent, self._formatters), input_scope(session))
        applied = applied_view_from_context(ctx)
        if applied is not None:
            ctx = self._with_view_parent(ctx, applied, selected)
        conversation = without_previous_summary(selected, previous)
        texts = [conversation_text([event], self._formatters) for event in conversation]
        ctx, text = await self._pre_hook_input(
            ctx, session, conversation, SourceText(joined_texts(texts), previous), separates=separates
        )
        if not text.conversation and not text.previous:
            raise NothingToSummarizeError(
                f"session {session.id} has no conversation text in {len(selected)} selected events"
            )
        return ctx, Source(
            text,
            boundary_event=(
                self._boundary_event(session, selected, previous_summary_from_context(ctx))
                if applied is None
                else applied.boundary_event(selected)
            ),
            events=conversation,
            event_texts=texts,
            # A hook may have rewritten the text, which then no longer shows where an event ends.
            may_shorten=self._pre_hook is None,
        )

    def _with_view_parent(self, ctx: CallContext, applied: AppliedView, selected: Sequence[Event]) -> CallContext:
        """A fork keeps the head of what the model saw, and the selected messages (SUM-VIEW-02, -03)."""
        if applied.boundary_event(selected) is None:
            raise NothingToSummarizeError("no selected message of the model's view stands for a new event")
        if cache_safe_fork_request_from_context(ctx) is None:
            return ctx
        return context_with_cache_safe_fork_request(ctx, applied.fork_parent(selected))

    def _boundary_event(self, session: Session, selected: Sequence[Event], previous: str) -> Event | None:
        """The last selected event (SUM-SEL-05); the synthetic head alone moves no boundary."""
        if not selected:
            return None
        if selected[-1] is head_of(session, previous) and not self.profile.reference_quirks:
            return None
        return selected[-1]

    async def _pre_hook_input(
        self,
        ctx: CallContext,
        session: Session,
        events: Sequence[Event],
        text: SourceText,
        *,
        separates: bool,
    ) -> tuple[CallContext, SourceText]:
        """What counts after the pre hook (SUM-HOOK-01 to -04)."""
        if self._pre_hook is None:
            return ctx, text
        applied = applied_view_from_context(ctx)
        stored = tuple(events) if applied is None else applied.stored_events(events)
        hook_input = PreSummaryHookContext(ctx, session, list(events), stored, text.conversation, text.previous)
        failure = await run_hook(self._pre_hook, hook_input, name="pre-summary hook")
        if failure is not None:
            if self.settings.hook_abort_on_error:
                raise failure
            _log.warning("%s; the summary goes on with its own input", failure)
            return ctx, text
        conversation = hook_input.text or conversation_text(hook_input.events, self._formatters)
        previous = hook_input.previous_summary if separates else text.previous
        return inherit_report(hook_input.ctx, ctx), SourceText(conversation, previous)

    async def _call_model(self, ctx: CallContext, model: Model, source: Source) -> tuple[CallContext, str]:
        """Model calls, then the report hook, whatever came of them."""
        fallback_prompt = self.settings.fork_prompt_in_fallback
        call = SummaryCall(
            model=model,
            prompts=self._prompts,
            counter=self._counter,
            forks=self.settings.cache_safe_forking,
            policy=self.settings.overflow_policy or self.profile.overflow_policy,
            fork_prompt_in_fallback=(
                self.profile.fork_prompt_in_fallback if fallback_prompt is None else fallback_prompt
            ),
            callbacks=self._callbacks,
        )
        try:
            ctx, text = await call.run(ctx, source)
        except asyncio.CancelledError:
            await self._emit_report(ctx, SummaryError("the summary was cancelled or timed out"))
            raise
        except Exception as error:
            await self._emit_report(ctx, error)
            raise
        self._note_source(ctx, source)
        await self._emit_report(ctx, None)
        return ctx, text

    @staticmethod
    def _note_source(ctx: CallContext, source: Source) -> None:
        """Say which events the summary is made of, after fitting may have left some out."""
        report, applied = report_from_context(ctx), applied_view_from_context(ctx)
        if report is not None:
            report.call.events = tuple(source.events) if applied is None else applied.stored_events(source.events)
            report.call.event_texts = tuple(source.event_texts)

    async def _emit_report(self, ctx: CallContext, error: Exception | None) -> None:
        """Hand a copy of the report to the hook; what the hook raises is only logged (SUM-REP-07)."""
        report = report_from_context(ctx)
        if report is None:
            return
        report.error = error
        if self._report_hook is None:
            return
        try:
            pending = self._report_hook(ctx, report.clone())
            if inspect.isawaitable(pending):
                await pending
        except Exception as hook_error:
            _log.warning("report hook failed: %s", hook_error)

    async def _finish(self, ctx: CallContext, session: Session, source: Source, text: str) -> str:
        """Boundary and post hook (SUM-HOOK-06, -07)."""
        if self._post_hook is None:
            record_boundary(session, source.boundary_event)
            return text
        guard = boundary_guarded if self.profile.guarded_post_hook else boundary_left_alone
        with guard(session, source.boundary_event):
            result = PostSummaryHookContext(ctx, session, text)
            failure = await run_hook(self._post_hook, result, name="post-summary hook")
            if failure is not None:
                if self.settings.hook_abort_on_error:
                    raise failure
                _log.warning("%s; the summary stays as the model wrote it", failure)
                return text
            return result.summary or text


def _skip_from(n_events: int | None) -> SkipRecent | None:
    return None if n_events is None else skip_last(n_events)
