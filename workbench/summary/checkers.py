"""When to summarize: checkers, their combinations, and the value each one measured (SUM-CHK, section 3).

In: a session, inside a summarizer also the call's context. Out: yes or no; the built-in checkers also give a
`Check` with value, threshold and unit for the report. All comparisons are strict. A checker of your own is
any function `session -> bool`, a context checker `(ctx, session) -> bool`; both may be coroutines.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar, cast

from pydantic import Field

from workbench.call import EMPTY_CONTEXT, CallContext
from workbench.clock import Clock, SystemClock, ns_from_timedelta
from workbench.errors import ConfigError
from workbench.model.windows import UNKNOWN_WINDOW, resolve_context_window
from workbench.session.types import Session
from workbench.settings import Settings
from workbench.summary.context import (
    RequestGapObservation,
    previous_summary_from_context,
    request_gap_from_context,
    run_model_from_context,
)
from workbench.summary.delta import Delta, DeltaSession, delta_of
from workbench.summary.report import (
    CONTEXT_THRESHOLD,
    EVENT_THRESHOLD,
    METRIC_DURATION,
    METRIC_EVENTS,
    METRIC_TOKENS,
    TIME_THRESHOLD,
    TOKEN_THRESHOLD,
    UNIT_MILLISECONDS,
    Check,
)
from workbench.tokens import TokenCounter, get_token_counter

T = TypeVar("T")
R = TypeVar("R")
Verdict = bool | Awaitable[bool]
Checker = Callable[[Session], Verdict]
ContextChecker = Callable[[CallContext, Session], Verdict]

DEFAULT_RATIO = 0.5
DEFAULT_MIN_TOKENS = 2000
_NS_PER_MS = 1_000_000
_GAP_IN_DERIVED = "workbench.summary.request_gap"


class ContextThreshold(Settings):
    """Fire when the delta exceeds a share of the model's window: `max(int(window * ratio), min_tokens)`."""

    ratio: float = Field(default=DEFAULT_RATIO, gt=0, le=1)
    """Share of the context window, above 0 and at most 1. Source: SUM-CHK-12."""
    min_tokens: int = Field(default=DEFAULT_MIN_TOKENS, ge=0)
    """Never fire at or below so many tokens; 0 = no such floor. Source: SUM-CHK-12."""
    fallback_window: int | None = Field(default=None, gt=0)
    """Window in tokens when the run's model is unknown; None = the summarizer model's, else 8192.
    Source: SUM-CHK-13."""


@dataclass(frozen=True, slots=True)
class CheckRun:
    """What one evaluation may look at."""

    ctx: CallContext
    session: Session
    delta: Delta
    counter: TokenCounter = field(default_factory=get_token_counter)
    clock: Clock = field(default_factory=SystemClock)
    fallback_window: int = 0
    """Window of the summarizer's model; 0 outside a summarizer or when unknown."""

    @property
    def request_gap(self) -> RequestGapObservation | None:
        """What the runner observed, None outside a runner."""
        gap = request_gap_from_context(self.ctx)
        observed = self.session.derived.get(_GAP_IN_DERIVED) if gap is None else gap
        return observed if isinstance(observed, RequestGapObservation) else None


def remember_request_gap(session: Session, gap: RequestGapObservation | None) -> None:
    """Let checkers that are called with the session only see the runner's observation too."""
    if gap is not None:
        session.derived[_GAP_IN_DERIVED] = gap


class BuiltInChecker(ABC):
    """A checker that says what it measured; callable as `checker(session)` and as `checker(ctx, session)`."""

    @abstractmethod
    def measure(self, run: CheckRun) -> Check | Awaitable[Check]:
        """The check with its value; awaitable only if something it asks is."""

    def __call__(self, *args: Any) -> Verdict:
        ctx, session = args if len(args) == 2 else (EMPTY_CONTEXT, *args)
        counts_head = session.counts_head if isinstance(session, DeltaSession) else False
        previous_summary = previous_summary_from_context(ctx)
        delta = delta_of(session, counts_head=counts_head, previous_summary=previous_summary)
        return _then(self.measure(CheckRun(ctx, session, delta)), lambda check: check.passed)


def _then(value: T | Awaitable[T], use: Callable[[T], R]) -> R | Awaitable[R]:
    """`use(value)`, later if the value comes later."""
    return _use_later(value, use) if isinstance(value, Awaitable) else use(value)


async def _use_later(value: Awaitable[T], use: Callable[[T], R]) -> R:
    return use(await value)


@dataclass(frozen=True, slots=True)
class EventThreshold(BuiltInChecker):
    """More than `count` counted events since the last summary (SUM-CHK-08)."""

    count: int

    def measure(self, run: CheckRun) -> Check:
        n_events = run.delta.n_counted()
        return Check(
            name=EVENT_THRESHOLD,
            passed=n_events > self.count and run.delta.has_events(),
            metric=METRIC_EVENTS,
            value=n_events,
            threshold=self.count,
            unit=METRIC_EVENTS,
        )


@dataclass(frozen=True, slots=True)
class TokenThreshold(BuiltInChecker):
    """More than `tokens` estimated tokens since the last summary (SUM-CHK-09)."""

    tokens: int

    def measure(self, run: CheckRun) -> Check | Awaitable[Check]:
        return _then(
            run.delta.tokens(run.ctx, run.counter),
            lambda tokens: _token_check(TOKEN_THRESHOLD, tokens, self.tokens, run.counter),
        )


@dataclass(frozen=True, slots=True)
class WindowShare(BuiltInChecker):
    """More tokens than a share of the running model's window (SUM-CHK-12, -13)."""

    options: ContextThreshold

    def measure(self, run: CheckRun) -> Check | Awaitable[Check]:
        window = self._window(run)
        limit = max(int(window * self.options.ratio), self.options.min_tokens)

        def check(tokens: int) -> Check:
            measured = _token_check(CONTEXT_THRESHOLD, tokens, limit, run.counter)
            measured.context_window = window
            measured.threshold_ratio = self.options.ratio
            return measured

        return _then(run.delta.tokens(run.ctx, run.counter), check)

    def _window(self, run: CheckRun) -> int:
        """Run override, the run's model, explicit fallback, the summarizer's model, 8192; anew at every check."""
        in_run = run_model_from_context(run.ctx)
        return resolve_context_window(
            override=in_run.model_context_window,
            model=in_run.model,
            fallback=self.options.fallback_window or run.fallback_window or UNKNOWN_WINDOW,
        )


def _token_check(name: str, tokens: int, limit: int, counter: TokenCounter) -> Check:
    # 0 tokens never pass, so a negative limit doesn't fire on an empty text.
    return Check(
        name=name,
        passed=tokens > limit and tokens > 0,
        metric=METRIC_TOKENS,
        value=tokens,
        threshold=limit,
        unit=METRIC_TOKENS,
        counter=getattr(counter, "counter_id", type(counter).__name__),
    )


@dataclass(frozen=True, slots=True)
class TimeThreshold(BuiltInChecker):
    """Quiet for more than an interval: before the request in a runner, else since the last event
    (SUM-CHK-17, -18)."""

    interval_ns: int

    def measure(self, run: CheckRun) -> Check:
        elapsed_ns = self._elapsed_ns(run)
        return Check(
            name=TIME_THRESHOLD,
            passed=elapsed_ns is not None and elapsed_ns > self.interval_ns,
            metric=METRIC_DURATION,
            value=int((elapsed_ns or 0) / _NS_PER_MS),
            threshold=int(self.interval_ns / _NS_PER_MS),
            unit=UNIT_MILLISECONDS,
        )

    def _elapsed_ns(self, run: CheckRun) -> int | None:
        gap = run.request_gap
        if gap is not None:
            return gap.elapsed_ns if gap.available else None
        last_ns = run.delta.last_relevant_ns()
        return None if last_ns is None else run.clock.now_ns() - last_ns


@dataclass(frozen=True, slots=True)
class Composite(BuiltInChecker):
    """Several checkers as one: `all` or `any` of them, in order, no further than needed (SUM-CHK-19)."""

    checks: tuple[Checker | ContextChecker, ...]
    kind: str
    """`all` or `any`."""
    with_context: bool = False
    """The checkers take `(ctx, session)`."""

    def measure(self, run: CheckRun) -> Check | Awaitable[Check]:
        done: list[Check] = []
        for checker in self.checks:
            child = measure(checker, run, with_context=self.with_context)
            if isinstance(child, Awaitable):
                return self._measure_rest(run, done, child)
            done.append(child)
            if self._is_decided_by(child):
                break
        return self._verdict(done)

    async def _measure_rest(self, run: CheckRun, done: list[Check], pending: Awaitable[Check]) -> Check:
        """Go on from a child that has to be waited for."""
        done.append(await pending)
        for checker in self.checks[len(done) :]:
            if self._is_decided_by(done[-1]):
                break
            child = measure(checker, run, with_context=self.with_context)
            done.append(await child if isinstance(child, Awaitable) else child)
        return self._verdict(done)

    def _is_decided_by(self, child: Check) -> bool:
        return child.passed == (self.kind == "any")

    def _verdict(self, done: list[Check]) -> Check:
        is_decided = bool(done) and self._is_decided_by(done[-1])
        skipped = [Check(label=checker_label(c), evaluated=False) for c in self.checks[len(done) :]]
        passed = is_decided if self.kind == "any" else not is_decided
        return Check(passed=passed, label=self.kind, children=[*done, *skipped])


def measure(checker: Checker | ContextChecker, run: CheckRun, *, with_context: bool) -> Check | Awaitable[Check]:
    """What any checker says; a plain function counts as `custom` without a value."""
    if isinstance(checker, BuiltInChecker):
        return checker.measure(run)
    if with_context:
        verdict = cast("ContextChecker", checker)(run.ctx, run.session)
    else:
        verdict = cast("Checker", checker)(run.session)
    return _then(verdict, lambda passed: Check(passed=bool(passed), label=checker_label(checker)))


def checker_label(checker: Any) -> str:
    """A name for a truth table."""
    if isinstance(checker, Composite):
        return checker.kind
    return str(getattr(checker, "__name__", type(checker).__name__))


# --- what users write -------------------------------------------------------------------------------------


def check_event_threshold(count: int) -> BuiltInChecker:
    """Fire on more than `count` new events."""
    return EventThreshold(_not_negative("event_threshold", count))


def check_token_threshold(tokens: int) -> BuiltInChecker:
    """Fire on more than `tokens` new tokens, estimated by the token counter."""
    return TokenThreshold(_not_negative("token_threshold", tokens))


def check_token_threshold_context(tokens: int) -> BuiltInChecker:
    """`check_token_threshold` for lists of context checkers, whose counter then sees the call's context."""
    return check_token_threshold(tokens)


def check_time_threshold(interval: timedelta) -> BuiltInChecker:
    """Fire when it was quiet for more than `interval`."""
    if interval < timedelta(0):
        raise ConfigError.for_field("time_threshold", interval, "a timedelta, at least 0")
    return TimeThreshold(ns_from_timedelta(interval))


def check_context_threshold(options: ContextThreshold | None = None) -> BuiltInChecker:
    """Fire on more new tokens than a share of the running model's window."""
    return WindowShare(options or ContextThreshold())


def checks_all(checks: Iterable[Checker]) -> BuiltInChecker:
    """Fire when all do; an empty list fires."""
    return Composite(tuple(checks), "all")


def checks_any(checks: Iterable[Checker]) -> BuiltInChecker:
    """Fire when one does; an empty list doesn't."""
    return Composite(tuple(checks), "any")


def checks_all_context(checks: Iterable[ContextChecker]) -> BuiltInChecker:
    """`checks_all` for checkers that take `(ctx, session)`."""
    return Composite(tuple(checks), "all", with_context=True)


def checks_any_context(checks: Iterable[ContextChecker]) -> BuiltInChecker:
    """`checks_any` for checkers that take `(ctx, session)`."""
    return Composite(tuple(checks), "any", with_context=True)


def _not_negative(field_name: str, value: int) -> int:
    if type(value) is not int or value < 0:
        raise ConfigError.for_field(field_name, value, "a whole number, at least 0")
    return value


def checks_from_options(
    *,
    event_threshold: int | None = None,
    token_threshold: int | None = None,
    time_threshold: timedelta | None = None,
    context_threshold: ContextThreshold | bool | None = None,
    checks: Iterable[Checker] = (),
    all_of: Iterable[Checker] = (),
    any_of: Iterable[Checker] = (),
    all_of_context: Iterable[ContextChecker] = (),
    any_of_context: Iterable[ContextChecker] = (),
) -> list[Checker]:
    """The checks of a summarizer in order, all of which must pass; an empty combination adds none (SUM-CHK-02,
    -19)."""
    found: list[Checker] = []
    if event_threshold is not None:
        found.append(check_event_threshold(event_threshold))
    if token_threshold is not None:
        found.append(check_token_threshold(token_threshold))
    if time_threshold is not None:
        found.append(check_time_threshold(time_threshold))
    if context_threshold:
        found.append(check_context_threshold(None if context_threshold is True else context_threshold))
    found += checks
    found += [combine(members) for combine, members in ((checks_all, [*all_of]), (checks_any, [*any_of])) if members]
    if members := tuple(all_of_context):
        found.append(checks_all_context(members))
    if members := tuple(any_of_context):
        found.append(checks_any_context(members))
    return found
