"""Recorded cases of the summary engine: counters, checkers, texts, prompts, requests, hooks, reports.

In: one case's input as the vectors' README describes it. Out: what this engine produces, in the same form.
Runs rules, knows no case. Values that the configuration would refuse are mapped first, as the reference maps
them (ASM-CHAIN-07); what the refusal looks like is a test of its own.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from workbench.call import EMPTY_CONTEXT, CallContext
from workbench.clock import NS_PER_S, SystemClock
from workbench.conformance import Run
from workbench.conformance.shapes import (
    answer_from,
    event_from,
    message_from,
    messages_from,
    model_from,
    request_from,
    request_to,
    session_from,
    time_from,
)
from workbench.errors import ConfigError
from workbench.model.scripted import ScriptedAnswer, ScriptedModel
from workbench.model.types import TOOL, Message, Request, Response, ToolCall
from workbench.model.windows import (
    lookup_model_context_window,
    model_windows_restored,
    register_model_context_windows,
)
from workbench.profiles import Profile
from workbench.session.types import (
    STATE_LAST_INCLUDED_EVENT_ID,
    STATE_LAST_INCLUDED_TS,
    Event,
    Session,
)
from workbench.summary.callbacks import (
    AfterModelArgs,
    AfterModelResult,
    BeforeModelArgs,
    BeforeModelResult,
    ModelCallbacks,
)
from workbench.summary.checkers import (
    BuiltInChecker,
    Checker,
    ContextThreshold,
    EventThreshold,
    TimeThreshold,
    TokenThreshold,
    check_context_threshold,
    checks_all,
    checks_all_context,
    checks_any,
    checks_any_context,
)
from workbench.summary.context import (
    RequestGapObservation,
    context_with_cache_safe_fork_request,
    context_with_previous_summary,
    context_with_report,
    context_with_request_gap,
    context_with_run_model,
)
from workbench.summary.hooks import PostSummaryHookContext, PreSummaryHookContext
from workbench.summary.report import TIME_THRESHOLD, Check, Report, Trigger
from workbench.summary.selection import SkipRecent, previous_summary_event, skip_last
from workbench.summary.summarizer import Summarizer
from workbench.summary.text import conversation_text
from workbench.tokens import DEFAULT_RUNES_PER_TOKEN, SimpleTokenCounter, token_counter_in_force

Json = Any

_CONSTRUCTION_FAILED = {"construction": "ValueError"}
_COMPOSITES: dict[str, Callable[[list[Any]], BuiltInChecker]] = {
    "all": checks_all,
    "any": checks_any,
    "all_context": checks_all_context,
    "any_context": checks_any_context,
}


# --- in ---------------------------------------------------------------------------------------------------


def counter_from(raw: Json) -> SimpleTokenCounter:
    """The counter a case asks for; a divisor of 0 or less means the default."""
    runes = raw.get("runes_per_token") or 0
    return SimpleTokenCounter(runes if runes > 0 else DEFAULT_RUNES_PER_TOKEN)


def check_from(raw: Json) -> Checker:
    """A checker; out-of-range options of a context threshold are left out, negative limits are kept."""
    kind = raw["type"]
    if kind == "event_threshold":
        return EventThreshold(raw["count"])
    if kind == "token_threshold":
        return TokenThreshold(raw["tokens"])
    if kind == "time_threshold":
        return TimeThreshold(int(raw["seconds"] * NS_PER_S))
    if kind == "context_threshold":
        return check_context_threshold(ContextThreshold(**_context_options(raw)))
    if kind == "constant":
        return _constant(value=raw["value"])
    return _COMPOSITES[kind]([check_from(item) for item in raw["checks"]])


def _context_options(raw: Json) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if 0 < raw.get("ratio", 0) <= 1:
        options["ratio"] = float(raw["ratio"])
    if raw.get("min_tokens", -1) >= 0:
        options["min_tokens"] = raw["min_tokens"]
    if raw.get("fallback_window", 0) > 0:
        options["fallback_window"] = raw["fallback_window"]
    return options


def _constant(*, value: bool) -> Callable[..., bool]:
    return lambda *_: value


def checks_from(raw: Json) -> list[Checker]:
    """The top-level checks of a summarizer; a combination without members adds none (SUM-CHK-19)."""
    return [check_from(item) for item in raw or () if item["type"] not in _COMPOSITES or item["checks"]]


def skip_recent_from(raw: Json) -> SkipRecent | None:
    """One of the three skip rules."""
    if not raw:
        return None
    if "count" in raw:
        return skip_last(raw["count"])
    if raw.get("trailing_tool_results"):
        return lambda events: _trailing(events, lambda event: event.message.role == TOOL)
    newer_ns = time_from(raw["newer_than"])
    return lambda events: _trailing(events, lambda event: event.time_ns > newer_ns)


def _trailing(events: Sequence[Event], belongs: Callable[[Event], bool]) -> int:
    count = 0
    for event in reversed(events):
        if not belongs(event):
            break
        count += 1
    return count


def _call_formatter(name: str | None) -> Callable[[ToolCall], str] | None:
    if name == "empty":
        return lambda call: ""
    if name == "name_only":
        return lambda call: f"[Used tool: {call.name}]" if call.name else ""
    return None


def _result_formatter(name: str | None) -> Callable[[Message], str] | None:
    if name == "empty":
        return lambda message: ""
    if name == "name_and_length":
        return lambda message: f"[{message.tool_name}:{len(message.content)}]"
    return None


# --- a summarizer that is watched -------------------------------------------------------------------------


class _HookFailed(Exception):  # noqa: N818 - what a case's hook raises
    pass


@dataclass(slots=True)
class Watch:
    """What hooks, callbacks and the report hook saw."""

    hook_inputs: list[Json] = field(default_factory=list)
    before_requests: list[Request] = field(default_factory=list)
    reports: list[Report] = field(default_factory=list)

    def pre_hook(self, raw: Json) -> Callable[[PreSummaryHookContext], None]:
        def hook(given: PreSummaryHookContext) -> None:
            self.hook_inputs.append(
                {
                    "hook": "pre",
                    "text": given.text,
                    "previous_summary": given.previous_summary,
                    "event_ids": [event.id for event in given.events],
                }
            )
            if "set_text" in raw:
                given.text = raw["set_text"]
            if "set_events" in raw:
                given.events = [event_from(item) for item in raw["set_events"] or ()]
            if "set_previous_summary" in raw:
                given.previous_summary = raw["set_previous_summary"]
            _fail(raw.get("error"))

        return hook

    def post_hook(self, raw: Json) -> Callable[[PostSummaryHookContext], None]:
        def hook(given: PostSummaryHookContext) -> None:
            self.hook_inputs.append({"hook": "post", "summary": given.summary})
            given.summary = raw.get("set_summary", given.summary) + raw.get("append", "")
            given.session.state.update({key: text.encode() for key, text in raw.get("set_state", {}).items()})
            _fail(raw.get("error"))

        return hook

    def callbacks(self, raw: Json) -> ModelCallbacks:
        def before(ctx: CallContext, args: BeforeModelArgs) -> BeforeModelResult | None:
            self.before_requests.append(args.request)
            if "before_append_message" in raw:
                message = message_from(raw["before_append_message"])
                args.request = args.request.replace(messages=(*args.request.messages, message))
            if "before_set_max_tokens" in raw:
                config = replace(args.request.generation_config, max_tokens=raw["before_set_max_tokens"])
                args.request = args.request.replace(generation_config=config)
            _fail(raw.get("before_error"))
            custom = _response_from(raw.get("before_custom_response"))
            return None if custom is None else BeforeModelResult(custom_response=custom)

        def after(ctx: CallContext, args: AfterModelArgs) -> AfterModelResult | None:
            _fail(raw.get("after_error"))
            custom = _response_from(raw.get("after_custom_response"))
            return None if custom is None else AfterModelResult(custom_response=custom)

        return ModelCallbacks().register_before_model(before).register_after_model(after)


def _fail(text: str | None) -> None:
    if text:
        raise _HookFailed(text)


def _response_from(raw: Json) -> Response | None:
    if raw is None:
        return None
    answer: ScriptedAnswer = answer_from(raw)
    return answer.responses("callback", 1)[-1]


def summarizer_from(
    raw: Json, profile: Profile, watch: Watch, *, model: Any = None, prompt_errors: Any = "warn"
) -> Summarizer:
    """The summarizer of a case, with a report hook.

    A broken prompt is only warned about unless `prompt_errors` says otherwise: what it does at construction
    is the matter of one area.
    """
    summarizer = Summarizer(
        model_from(raw["model"]) if model is None else model,
        name=raw.get("name", ""),
        prompt=raw.get("prompt", ""),
        system_prompt=raw.get("system_prompt", ""),
        cache_safe_forking=raw.get("cache_safe_forking", False),
        cache_safe_fork_prompt=raw.get("cache_safe_fork_prompt", ""),
        max_summary_words=raw.get("max_summary_words", 0),
        skip_recent=skip_recent_from(raw.get("skip_recent")),
        checks=checks_from(raw.get("checks")),
        tool_call_formatter=_call_formatter(raw.get("tool_call_formatter")),
        tool_result_formatter=_result_formatter(raw.get("tool_result_formatter")),
        pre_summary_hook=watch.pre_hook(raw["pre_hook"]) if "pre_hook" in raw else None,
        post_summary_hook=watch.post_hook(raw["post_hook"]) if "post_hook" in raw else None,
        hook_abort_on_error=raw.get("hook_abort_on_error", False),
        model_callbacks=watch.callbacks(raw["model_callbacks"]) if "model_callbacks" in raw else None,
        report_hook=lambda ctx, report: watch.reports.append(report),
        prompt_errors=prompt_errors,
        profile=profile,
    )
    if "set_model" in raw:
        summarizer.set_model(model_from(raw["set_model"]))
    if "set_prompt" in raw:
        try:
            summarizer.set_prompt(raw["set_prompt"])
        except ConfigError as error:
            summarizer.warnings.append(str(error))
    return summarizer


# --- running a case ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class Summarized:
    """Everything that can be compared after one direct call of the summarizer."""

    session: Session
    watch: Watch
    model: ScriptedModel | None
    text: str = ""
    error: Exception | None = None
    warnings: Sequence[str] = ()
    uses_built_in_prompt: bool = False
    parent: Request | None = None

    @property
    def requests(self) -> list[Request]:
        return self.model.requests if self.model is not None else []

    def boundary(self) -> Json:
        keys = (STATE_LAST_INCLUDED_TS, STATE_LAST_INCLUDED_EVENT_ID)
        return {key: (self.session.state[key] or b"").decode() for key in keys if key in self.session.state}

    def outcome(self) -> Json:
        """Summary text and error."""
        return {"summary": self.text, "error": None if self.error is None else str(self.error)}

    def seen(self) -> Json:
        """What hooks and callbacks recorded, left out where nothing was."""
        seen: dict[str, Json] = {}
        if self.watch.hook_inputs:
            seen["hook_inputs"] = self.watch.hook_inputs
        if self.watch.before_requests:
            seen["before_model_requests"] = [request_to(request) for request in self.watch.before_requests]
        return seen

    def last_report(self) -> Report:
        return self.watch.reports[-1] if self.watch.reports else Report()


def summarize(case: Json, profile: Profile, *, prompt_errors: Any = "warn") -> Summarized:
    """Call the summarizer directly, as the case says."""
    watch = Watch()
    session = session_from(case["session"])
    previous = case.get("previous_summary", "")
    if case.get("prepend_previous_summary_event"):
        session.replace_events([previous_summary_event(previous, now_ns=SystemClock().now_ns()), *session.events])
    ctx = context_with_previous_summary(EMPTY_CONTEXT, previous)
    parent = request_from(case.get("parent_request"))
    ctx = context_with_cache_safe_fork_request(ctx, parent)
    with token_counter_in_force(counter_from(case)), model_windows_restored():
        register_model_context_windows(case.get("registered_context_windows") or {})
        summarizer = summarizer_from(case["summarizer"], profile, watch, prompt_errors=prompt_errors)
        model = summarizer.model
        assert model is None or isinstance(model, ScriptedModel)
        result = Summarized(session, watch, model, warnings=summarizer.warnings, parent=parent)
        result.uses_built_in_prompt = summarizer.uses_built_in_prompt
        try:
            result.text = asyncio.run(summarizer.summarize(session, ctx=ctx))
        except Exception as error:  # an error is an outcome like any other
            result.error = error
    return result


# --- out --------------------------------------------------------------------------------------------------


def check_to(check: Check) -> Json:
    return {
        "name": check.name,
        "passed": check.passed,
        "metric": check.metric,
        "value": check.value,
        "threshold": check.threshold,
        "unit": check.unit,
        "context_window": check.context_window,
        "threshold_ratio": check.threshold_ratio,
    }


def trigger_to(trigger: Trigger) -> Json:
    return {
        "fired": trigger.fired,
        "name": trigger.name,
        "metric": trigger.metric,
        "value": trigger.value,
        "threshold": trigger.threshold,
        "unit": trigger.unit,
        "context_window": trigger.context_window,
        "threshold_ratio": trigger.threshold_ratio,
        "filter_key": trigger.filter_key,
        "checks": [check_to(check) for check in trigger.checks],
    }


def call_to(report: Report) -> Json:
    call = report.call
    return {
        "mode": call.mode,
        "estimated_prompt_tokens": call.estimated_prompt_tokens,
        "prompt_tokens": call.prompt_tokens,
        "cached_tokens": call.cached_tokens,
    }


def report_to(report: Report) -> Json:
    return {
        "trigger": trigger_to(report.trigger),
        "call": call_to(report),
        "error": None if report.error is None else str(report.error),
    }


def without_wall_clock(trigger: Json) -> Json:
    """Without the value of time thresholds, which then depends on the machine's clock."""
    if trigger["name"] == TIME_THRESHOLD:
        trigger.pop("value")
    for check in trigger["checks"]:
        if check["name"] == TIME_THRESHOLD:
            check.pop("value")
    return trigger


# --- areas ------------------------------------------------------------------------------------------------


def _token_counter(case: Json, profile: Profile) -> Json:
    counter = counter_from(case)
    try:
        if "message" in case:
            tokens = counter.count_tokens(EMPTY_CONTEXT, message_from(case["message"]))
        else:
            messages = messages_from(case["messages"])
            tokens = counter.count_tokens_range(EMPTY_CONTEXT, messages, case["start"], case["end"])
    except ValueError:
        return {"tokens": 0, "error": True}
    return {"tokens": tokens, "error": False}


def _window_lookup(case: Json, profile: Profile) -> Json:
    register_model_context_windows(case["registered_context_windows"])  # stays for later cases, as recorded
    window = lookup_model_context_window(case["model_name"])
    return {"found": window is not None, "context_window": window or 0}


def _checkers(case: Json, profile: Profile) -> Json:
    with token_counter_in_force(counter_from(case)), model_windows_restored():
        register_model_context_windows(case.get("registered_context_windows") or {})
        ctx = _check_context(case)
        session = session_from(case["session"])
        if case.get("op") == "should_summarize":
            return _gate(case, profile, ctx, session)
        checker = check_from(case["checker"])
        return {"fired": checker(ctx, session) if isinstance(checker, BuiltInChecker) else checker(session)}


def _check_context(case: Json) -> CallContext:
    ctx = EMPTY_CONTEXT
    if invocation := case.get("invocation"):
        ctx = context_with_run_model(
            ctx,
            model=model_from(invocation.get("model")),
            model_context_window=invocation.get("run_model_context_window", 0),
        )
    if gap := case.get("request_gap_observation"):
        elapsed_ns = int(gap.get("elapsed_seconds", 0) * NS_PER_S)
        ctx = context_with_request_gap(ctx, RequestGapObservation(gap["available"], elapsed_ns))
    return ctx


def _gate(case: Json, profile: Profile, ctx: CallContext, session: Session) -> Json:
    summarizer = summarizer_from(case["summarizer"], profile, Watch())
    report = Report()
    fired = asyncio.run(summarizer.should_summarize_with_context(context_with_report(ctx, report), session))
    trigger = trigger_to(report.trigger)
    if "request_gap_observation" not in case:
        trigger = without_wall_clock(trigger)
    return {"should_summarize": fired, "trigger": trigger}


def _conversation_text(case: Json, profile: Profile) -> Json:
    result = summarize(case, profile)
    requests = result.requests
    produced = {
        "user_message": requests[0].messages[-1].content if requests else None,
        "n_model_requests": len(requests),
        "error": result.outcome()["error"],
        "boundary": result.boundary(),
    }
    if result.watch.hook_inputs:
        produced["hook_inputs"] = result.watch.hook_inputs
    return produced


def _prompt_render(case: Json, profile: Profile) -> Json:
    try:
        result = summarize(case, profile, prompt_errors=profile.prompt_errors)
    except ConfigError:
        return _CONSTRUCTION_FAILED
    produced: dict[str, Json] = {
        **result.outcome(),
        "n_model_requests": len(result.requests),
        "construction_warnings": list(result.warnings),
    }
    if result.requests:
        request = request_to(result.requests[0])
        produced["roles"] = [message["role"] for message in request["messages"]]
        if result.uses_built_in_prompt:
            produced["structure"] = _structure(case, result.requests[0].messages[-1].content)
        else:
            produced["messages"] = request["messages"]
        for name in ("generation_config", "tools", "structured_output"):
            produced[name] = request[name]
    return produced


def _structure(case: Json, content: str) -> Json:
    """Facts about a prompt whose text isn't compared."""
    text = conversation_text(event_from(item) for item in case["session"]["events"])
    words = case["summarizer"].get("max_summary_words", 0)
    previous = case.get("previous_summary", "")
    return {
        "user_message_contains_conversation_text": text in content,
        "text_before_conversation_is_non_empty": bool(content.partition(text)[0].strip()),
        "contains_max_words_number": words > 0 and str(words) in content,
        "contains_unsubstituted_placeholder": re.search(r"\{[a-z_]+\??\}", content) is not None,
        "conversation_is_wrapped_in_a_conversation_tag": f"<conversation>\n{text}\n</conversation>" in content,
        "ends_with_summary_label": content.endswith("Summary:"),
        "contains_previous_summary_text": bool(previous) and previous in content,
    }


def _expected_prompt(expected: Json, case: Json, profile: Profile) -> Json:
    """A broken prompt of the constructor is an error where the profile raises (SUM-OPT-03)."""
    texts = " ".join(expected["construction_warnings"])
    is_from_constructor = "set_prompt" not in case["input"]["summarizer"] or "NewSummarizer" in texts
    if texts and is_from_constructor and profile.prompt_errors == "raise":
        return _CONSTRUCTION_FAILED
    return expected


def _comparable_prompt(value: Json) -> Json:
    """Only whether there was a warning counts."""
    if value == _CONSTRUCTION_FAILED:
        return value
    return {**value, "construction_warnings": bool(value["construction_warnings"])}


def _fork_request(case: Json, profile: Profile) -> Json:
    result = summarize(case, profile)
    produced = {
        **result.outcome(),
        "model_requests": [request_to(request) for request in result.requests],
        "n_reports": len(result.watch.reports),
        "report_call": call_to(result.last_report()),
        "report_has_error": result.last_report().error is not None,
        "boundary": result.boundary(),
        **result.seen(),
    }
    if result.parent is not None:
        produced["parent_request_unchanged"] = result.parent == request_from(case["parent_request"])
    return produced


def _oversized_source(case: Json, profile: Profile) -> Json:
    result = summarize(case, profile)
    return {
        "user_messages_sent": [request.messages[-1].content for request in result.requests],
        **result.outcome(),
        "boundary": result.boundary(),
        "report_mode": result.last_report().call.mode,
    }


def _hooks(case: Json, profile: Profile) -> Json:
    result = summarize(case, profile)
    return {
        **result.outcome(),
        "model_requests": [request_to(request) for request in result.requests],
        "boundary": result.boundary(),
        "report_modes": [report.call.mode for report in result.watch.reports],
        **result.seen(),
    }


def _metadata(case: Json, profile: Profile) -> Json:
    return {"metadata": summarizer_from(case["summarizer"], profile, Watch()).metadata()}


def _report(case: Json, profile: Profile) -> Json:
    result = summarize(case, profile)
    return {
        **result.outcome(),
        "reports": [report_to(report) for report in result.watch.reports],
        "n_model_requests": len(result.requests),
    }


RUNS = {
    "token_counter": Run(_token_counter),
    "checkers": Run(_checkers),
    "context_window_lookup": Run(_window_lookup),
    "conversation_text": Run(_conversation_text),
    "prompt_render": Run(_prompt_render, _comparable_prompt, _expected_prompt),
    "fork_request": Run(_fork_request),
    "oversized_source": Run(_oversized_source),
    "hooks": Run(_hooks),
    "metadata": Run(_metadata),
    "report": Run(_report),
}
