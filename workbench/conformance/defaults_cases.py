"""The reference's public defaults, each looked up in this product's own settings and constants.

In: an entry of the vectors' table of defaults. Out: the difference in words, empty when there is none. A name
without a counterpart here is a failure.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

from workbench.agent import flow
from workbench.call import EMPTY_CONTEXT
from workbench.conformance.shapes import first_difference
from workbench.context import recall, tailor
from workbench.context import settings as context_settings
from workbench.context.compact import SESSION_LOAD
from workbench.context.recall import search, types
from workbench.errors import EmptySummaryError
from workbench.model import windows
from workbench.model.scripted import ScriptedAnswer, ScriptedModel
from workbench.model.types import Message, Request, response_of
from workbench.service.settings import ServiceSettings
from workbench.session import types as session_types
from workbench.session.types import Event, Session
from workbench.summary import attempt, budget, checkers, report
from workbench.summary.delta import delta_of
from workbench.summary.summarizer import Summarizer, SummarySettings
from workbench.tokens import DEFAULT_RUNES_PER_TOKEN, MIN_TOKENS_NON_EMPTY

_SUMMARY = SummarySettings()
_SERVICE = ServiceSettings()
_AGENT = context_settings.AgentSettings()
_COMPACTION = context_settings.CompactionSettings()
_TAILORING = context_settings.TailoringSettings()


def _default_checks() -> list[Any]:
    return [None] * Summarizer(ScriptedModel()).metadata()["check_functions"]


def _requests_of_empty_answers() -> list[Request]:
    """What a summarizer sends to a model that always answers with nothing."""
    model = ScriptedModel([ScriptedAnswer(content="")])
    event = Event(id="e1", author="user", time_ns=1, response=response_of(Message(role="user", content="hello")))
    session = Session(app_name="app", user_id="user", id="session", events=[event])

    async def summarize() -> None:
        with suppress(EmptySummaryError):
            await Summarizer(model).summarize(session)

    asyncio.run(summarize())
    return model.requests


def _metrics() -> dict[str, list[str]]:
    """Metric and unit of each kind of check, as evaluating one reports them."""
    session = Session(app_name="app", user_id="user", id="session")
    run = checkers.CheckRun(EMPTY_CONTEXT, session, delta_of(session, counts_head=False))
    kinds: dict[str, Any] = {
        "event_threshold": checkers.check_event_threshold(1),
        "time_threshold": checkers.check_time_threshold(timedelta(seconds=1)),
        "token_threshold": checkers.check_token_threshold(1),
        "context_threshold": checkers.check_context_threshold(),
        "custom": checkers.checks_all([]),
    }
    found = {}
    for name, checker in kinds.items():
        check = checker.measure(run)
        found[name] = [check.metric, check.unit]
    return found


_VALUES: dict[str, Callable[[], Any]] = {
    "simple_token_counter.runes_per_token": lambda: DEFAULT_RUNES_PER_TOKEN,
    "simple_token_counter.minimum_for_non_empty_message": lambda: MIN_TOKENS_NON_EMPTY,
    "summarizer.max_summary_words": lambda: _SUMMARY.max_summary_words,
    "summarizer.cache_safe_forking": lambda: _SUMMARY.cache_safe_forking,
    "summarizer.hook_abort_on_error": lambda: _SUMMARY.hook_abort_on_error,
    "summarizer.skip_recent": lambda: _SUMMARY.skip_recent,
    "summarizer.checks": _default_checks,
    "context_threshold.ratio": lambda: checkers.ContextThreshold().ratio,
    "context_threshold.min_tokens": lambda: checkers.ContextThreshold().min_tokens,
    "context_threshold.fallback_window": lambda: windows.UNKNOWN_WINDOW,
    "summary_request.input_ratio_of_context_window": lambda: budget.INPUT_SHARE,
    "summary_request.unknown_window": lambda: windows.UNKNOWN_WINDOW,
    "summary_request.retry_ratio_of_first_budget": lambda: budget.RETRY_SHARE,
    "summary_request.minimum_budget": lambda: budget.input_budget(ScriptedModel(context_window=1), Request()),
    "summary_request.stream": lambda: _requests_of_empty_answers()[0].generation_config.stream,
    "summary_request.max_attempts": lambda: len(_requests_of_empty_answers()),
    "state_key.last_included_timestamp": lambda: session_types.STATE_LAST_INCLUDED_TS,
    "state_key.last_included_event_id": lambda: session_types.STATE_LAST_INCLUDED_EVENT_ID,
    "filter_key.all_contents": lambda: session_types.SUMMARY_FILTER_KEY_ALL_CONTENTS,
    "filter_key.delimiter": lambda: session_types.FILTER_KEY_DELIMITER,
    "session_service.async_summary_num": lambda: _SERVICE.async_summary_num,
    "session_service.summary_queue_size": lambda: _SERVICE.summary_queue_size,
    "session_service.summary_job_timeout": lambda: int(_SERVICE.summary_job_timeout_s),
    "session_service.event_limit": lambda: _SERVICE.event_limit,
    "session_service.cascade_full_session_summary": lambda: _SERVICE.cascade_full_session_summary,
    "session_service.summary_filter_allowlist": lambda: _SERVICE.summary_filter_allowlist,
    "agent.add_session_summary": lambda: _AGENT.add_session_summary,
    "agent.summary_injection_mode": lambda: _AGENT.summary_injection_mode,
    "agent.sync_summary_intra_run": lambda: _AGENT.sync_summary_intra_run,
    "agent.max_history_runs": lambda: _AGENT.max_history_runs,
    "agent.enable_context_compaction": lambda: _COMPACTION.enabled,
    "agent.context_compaction_threshold_ratio": lambda: _COMPACTION.threshold_ratio,
    "agent.context_compaction_pre_call_minimum": lambda: flow.PRE_CALL_MINIMUM_TOKENS,
    "agent.context_compaction_unknown_window": lambda: windows.UNKNOWN_WINDOW,
    "compaction.tool_result_max_tokens": lambda: _COMPACTION.tool_result_max_tokens,
    "compaction.keep_recent_requests": lambda: _COMPACTION.keep_recent_requests,
    "compaction.oversized_tool_result_max_tokens": lambda: _COMPACTION.oversized_tool_result_max_tokens,
    "compaction.oversized_recommended": (
        lambda: context_settings.DEFAULT_CONTEXT_COMPACTION_OVERSIZED_TOOL_RESULT_MAX_TOKENS
    ),
    "compaction.exempt_from_pass_2": lambda: [SESSION_LOAD],
    "agent.enable_on_demand_session": lambda: _AGENT.enable_on_demand_session,
    "on_demand.tool_names": lambda: list(recall.TOOL_NAMES),
    "on_demand.scopes": lambda: [
        types.CURRENT_HIDDEN,
        types.CURRENT_SESSION,
        types.OTHER_SESSIONS,
        types.ALL_SESSIONS,
    ],
    "on_demand.default_scope": lambda: types.SearchSessionRequest(query="x").scope,
    "on_demand.search_top_k": lambda: types.DEFAULT_TOP_K,
    "on_demand.search_top_k_max": lambda: types.MAX_TOP_K,
    "on_demand.search_hits_with_context": lambda: search.HITS_WITH_CONTEXT,
    "on_demand.search_context_before": lambda: search.CONTEXT_BEFORE,
    "on_demand.search_context_after": lambda: search.CONTEXT_AFTER,
    "on_demand.snippet_max_length": lambda: search.MAX_SNIPPET_CHARS,
    "on_demand.load_before": lambda: types.DEFAULT_BEFORE,
    "on_demand.load_after": lambda: types.DEFAULT_AFTER,
    "on_demand.load_window_span_max": lambda: types.MAX_SPAN,
    "on_demand.content_limit": lambda: types.DEFAULT_CONTENT_LIMIT,
    "on_demand.content_limit_max": lambda: types.MAX_CONTENT_LIMIT,
    "tailoring.strategy": lambda: _TAILORING.strategy,
    "tailoring.unknown_window": lambda: tailor.FALLBACK_WINDOW_TOKENS,
    "tailoring.protocol_overhead_tokens": lambda: _TAILORING.protocol_overhead_tokens,
    "tailoring.reserve_output_tokens": lambda: _TAILORING.reserve_output_tokens,
    "tailoring.input_tokens_floor": lambda: _TAILORING.input_tokens_floor,
    "tailoring.safety_margin_ratio": lambda: _TAILORING.safety_margin_ratio,
    "tailoring.max_input_tokens_ratio": lambda: _TAILORING.max_input_tokens_ratio,
    "report.trigger_names": lambda: [
        report.ALWAYS,
        report.CUSTOM,
        report.EVENT_THRESHOLD,
        report.TIME_THRESHOLD,
        report.TOKEN_THRESHOLD,
        report.CONTEXT_THRESHOLD,
        report.FORCE,
        report.MANUAL,
    ],
    "report.trigger_preference": lambda: list(report.HEADLINE_ORDER),
    "report.metrics": _metrics,
    "report.call_modes": lambda: [report.MODE_STANDALONE, report.MODE_FORK, report.MODE_CUSTOM],
    "context_length_error_markers": lambda: list(attempt.CONTEXT_LENGTH_PHRASES),
}


def difference_of(entry: dict[str, Any]) -> str:
    """How this product's value differs from the reference's; empty when it doesn't."""
    lookup = _VALUES.get(entry["name"])
    if lookup is None:
        return f"{entry['name']}: no counterpart in this product"
    return first_difference(entry["value"], lookup())
