"""What travels in a `CallContext` for summaries: report, parent request, run model, request gap.

In: a context and a value. Out: a context that holds it, and readers. The keys are private to this module;
an application puts its own markers under keys of its own (SUM-CHK-20).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from workbench.call import CallContext
from workbench.model.client import Model
from workbench.model.types import Request
from workbench.summary.report import Report


class _Key(Enum):
    REPORT = auto()
    FORK_REQUEST = auto()
    RUN_MODEL = auto()
    REQUEST_START = auto()
    REQUEST_GAP = auto()
    PREVIOUS_SUMMARY = auto()


@dataclass(frozen=True, slots=True)
class RunModel:
    """The model of the running invocation and the run's own window for it (SUM-CHK-13, steps 1 to 3)."""

    model: Model | None = None
    model_context_window: int = 0
    """Override of this run; 0 = none."""


@dataclass(frozen=True, slots=True)
class RequestStart:
    """Arrival of a top-level request, fixed before the session is loaded (SUM-RNR-01)."""

    request_id: str
    started_ns: int


@dataclass(frozen=True, slots=True)
class RequestGapObservation:
    """How long the scope had been quiet when the request arrived (SUM-RNR-02)."""

    available: bool
    elapsed_ns: int = 0


def context_with_report(ctx: CallContext, report: Report | None) -> CallContext:
    """A context whose check and call fill `report`."""
    return ctx.with_value(_Key.REPORT, report)


def report_from_context(ctx: CallContext) -> Report | None:
    """The shared report, None if nobody attached one."""
    report: Report | None = ctx.value(_Key.REPORT)
    return report


def context_with_cache_safe_fork_request(
    ctx: CallContext, request: Request | Callable[[], Request | None] | None
) -> CallContext:
    """A context that carries the parent request of a cache-safe fork (SUM-REQ-02).

    A function makes the request when somebody asks for it: most checks don't fire, and then nobody does.
    """
    return ctx.with_value(_Key.FORK_REQUEST, request)


def cache_safe_fork_request_from_context(ctx: CallContext) -> Request | None:
    """The parent request, None without one."""
    request: Request | Callable[[], Request | None] | None = ctx.value(_Key.FORK_REQUEST)
    return request() if callable(request) else request


def context_with_run_model(
    ctx: CallContext, *, model: Model | None = None, model_context_window: int = 0
) -> CallContext:
    """A context that names the running invocation's model and the run's window override."""
    return ctx.with_value(_Key.RUN_MODEL, RunModel(model, model_context_window))


def run_model_from_context(ctx: CallContext) -> RunModel:
    """The run's model; an empty `RunModel` outside a run."""
    run_model: RunModel = ctx.value(_Key.RUN_MODEL, _NO_RUN_MODEL)
    return run_model


_NO_RUN_MODEL = RunModel()


def context_with_request_start(ctx: CallContext, start: RequestStart | None) -> CallContext:
    """A context that knows which top-level request runs and since when."""
    return ctx.with_value(_Key.REQUEST_START, start)


def request_start_from_context(ctx: CallContext) -> RequestStart | None:
    """The top-level request, None outside a runner."""
    start: RequestStart | None = ctx.value(_Key.REQUEST_START)
    return start


def context_with_request_gap(ctx: CallContext, gap: RequestGapObservation | None) -> CallContext:
    """A context with the observed gap; a time threshold then never asks the clock (SUM-CHK-17)."""
    return ctx.with_value(_Key.REQUEST_GAP, gap)


def request_gap_from_context(ctx: CallContext) -> RequestGapObservation | None:
    """The observed gap, None when nobody observed."""
    gap: RequestGapObservation | None = ctx.value(_Key.REQUEST_GAP)
    return gap


def context_with_previous_summary(ctx: CallContext, previous_summary: str) -> CallContext:
    """A context that hands the rolling summary's text to the summarizer (SUM-CORE-04)."""
    return ctx.with_value(_Key.PREVIOUS_SUMMARY, previous_summary)


def previous_summary_from_context(ctx: CallContext) -> str:
    """The rolling summary's text, empty on a first pass."""
    text: str = ctx.value(_Key.PREVIOUS_SUMMARY, "")
    return text
