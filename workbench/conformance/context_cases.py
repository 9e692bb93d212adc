"""Runs the recorded cases of prompt assembly, compaction and tailoring.

In: a case's input. Out: what this package produces for it, in the vectors' form. Option values outside their
range are mapped as the reference maps them before any setting is built (ASM-CHAIN-07).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from workbench.conformance import Run
from workbench.conformance.shapes import message_from, messages_from, messages_to, session_from, tool_from
from workbench.context.assemble import Invocation, assemble_content
from workbench.context.settings import AgentSettings, CompactionSettings, TailoringSettings
from workbench.context.tailor import input_token_budget, strategy_named, window_for_tailoring
from workbench.model.types import GenerationConfig, Request
from workbench.profiles import Profile
from workbench.session.types import Event
from workbench.tokens import SimpleTokenCounter

Json = Any

_AGENT_MODES = {
    "summary_injection_mode": ("system", "user"),
    "branch_filter_mode": ("prefix", "all", "exact", "subtree"),
    "timeline_filter_mode": ("all", "request", "invocation"),
}


def _agent_settings(options: Json) -> AgentSettings:
    known = {name: options[name] for name, modes in _AGENT_MODES.items() if options.get(name) in modes}
    return AgentSettings(
        add_session_summary=bool(options.get("add_session_summary", False)),
        max_history_runs=max(options.get("max_history_runs", 0), 0),
        add_context_prefix=True,
        **known,
    )


def _compaction_settings(options: Json) -> CompactionSettings:
    limits = {
        name: max(options[name], 0)
        for name in ("keep_recent_requests", "tool_result_max_tokens", "oversized_tool_result_max_tokens")
        if options.get(name) is not None
    }
    return CompactionSettings(
        enabled=bool(options.get("enable_context_compaction", False)),
        keep_tool_names=tuple(options.get("keep_tool_names") or ()),
        force_clean_tool_names=tuple(options.get("force_clean_tool_names") or ()),
        **limits,
    )


def _skip_recent(raw: Json) -> Callable[[Sequence[Event]], int] | None:
    if raw is None:
        return None
    if "count" in raw:
        count = int(raw["count"])
        return lambda events: count
    if raw.get("trailing_tool_results"):
        return _trailing_tool_results
    raise ValueError(f"unknown skip_recent: {raw!r}")


def _trailing_tool_results(events: Sequence[Event]) -> int:
    count = 0
    for event in reversed(events):
        if event.message.role != "tool":
            break
        count += 1
    return count


def _counter(options: Json) -> SimpleTokenCounter:
    divisor = options.get("runes_per_token") or 0
    return SimpleTokenCounter(divisor) if divisor > 0 else SimpleTokenCounter()


def assembly_case(case: Json, profile: Profile) -> Json:
    """The content stage: session to messages."""
    options, raw = case["options"], case["invocation"]
    session = session_from(case["session"])
    prefix = options.get("summary_formatter_prefix")
    invocation = Invocation(
        session=session,
        agent_name=raw.get("agent_name", ""),
        invocation_id=raw.get("invocation_id", ""),
        request_id=raw.get("request_id", ""),
        filter_key=raw.get("event_filter_key", ""),
        branch=raw.get("branch", ""),
        message=message_from(raw.get("message") or {}),
        injected_context_messages=messages_from(raw.get("injected_context_messages")),
        late_context_messages=messages_from(raw.get("late_context_messages")),
        can_load_windows=bool(raw.get("session_service_supports_windows", False)),
        few_shot=tuple(messages_from(example) for example in options.get("few_shot") or ()),
    )
    base = Request(
        messages=messages_from(case.get("base_messages")),
        tools=tuple(tool_from(tool) for tool in case.get("tools") or ()),
    )
    assembly = assemble_content(
        invocation,
        base,
        _agent_settings(options),
        _compaction_settings(options),
        counter=_counter(options),
        summary_formatter=None if prefix is None else (lambda text: prefix + text),
        skip_recent_func=_skip_recent(options.get("skip_recent")),
        profile=profile,
    )
    return {
        "messages": messages_to(assembly.messages),
        "stored_event_ids": [event.id for event in session.events],
    }


def tailoring_case(case: Json, profile: Profile) -> Json:
    """A strategy over a message list, or the budget formula."""
    if "budget" in case:
        return {"input_token_budget": _budget(case["budget"])}
    strategy = strategy_named(case["strategy"], _counter(case))
    tailored = strategy.tailor(messages_from(case["messages"]), case["max_tokens"])
    error = None if tailored.overflow is None else str(tailored.overflow)
    return {"messages": messages_to(tailored.messages), "error": error}


def _budget(raw: Json) -> int:
    # Zero means "not set" there, and a share above 1 changes nothing that 1 doesn't.
    config = {name: value for name, value in (raw.get("tailoring_config") or {}).items() if value > 0}
    config |= {name: min(value, 1.0) for name, value in config.items() if name.endswith("_ratio")}
    settings = TailoringSettings(
        enabled=True,
        max_input_tokens=max(raw.get("max_input_tokens") or 0, 0),
        **{name: value for name, value in config.items() if name in TailoringSettings.model_fields},
    )
    name = raw.get("model_name", "")
    max_tokens = raw.get("request_max_tokens")
    return input_token_budget(
        settings,
        Request(generation_config=GenerationConfig(max_tokens=max_tokens)),
        window=window_for_tailoring(name, raw.get("context_window") or 0),
        model_name=name,
    )


RUNS = {
    "injection": Run(assembly_case),
    "compaction": Run(assembly_case),
    "tailoring": Run(tailoring_case),
}
