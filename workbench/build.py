"""From a `RunConfig` to running objects: counters, summarizer, service, agent.

In: a configuration and the collaborators it can't hold (models, clock, store). Out: the production objects.
Replays, notebooks and services are built here, so what was tuned is what runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from workbench.agent.agent import LLMAgent
from workbench.agent.tools import Tool, ToolExecutor
from workbench.clock import Clock
from workbench.config import RunConfig, SummariesSettings, TriggerNode
from workbench.errors import ConfigError
from workbench.model.client import Model
from workbench.model.openai import OpenAIModel
from workbench.model.types import ToolSpec
from workbench.script_counter import ScriptTokenCounter
from workbench.service.service import SessionService
from workbench.service.summaries import SummaryObserver
from workbench.session.types import Event
from workbench.store.base import SessionStore
from workbench.summary.checkers import (
    check_context_threshold,
    check_event_threshold,
    check_time_threshold,
    check_token_threshold,
    checks_all,
    checks_any,
)
from workbench.summary.summarizer import Summarizer
from workbench.tokens import LineCounter, SimpleTokenCounter, TiktokenCounter, TokenCounter

# Encoders are heavy and their counts are worth sharing between configurations.
_encoders: dict[str, TiktokenCounter] = {}


def live_summary_model(settings: SummariesSettings) -> OpenAIModel:
    """The model behind the endpoint that `[summaries]` names, for a replay and for production."""
    return OpenAIModel(
        settings.model,
        base_url=settings.base_url or None,
        api_key_env=settings.api_key_env,
        timeout_s=settings.timeout_s,
        context_window=settings.context_window or 0,
        stream=False,
    )


def tiktoken_counter(name: str) -> TiktokenCounter:
    """The process's one counter of an encoding, with its cache of counted texts."""
    if name not in _encoders:
        _encoders[name] = TiktokenCounter(name)
    return _encoders[name]


def engine_counter(config: RunConfig) -> SimpleTokenCounter | TiktokenCounter | ScriptTokenCounter:
    """The counter that drives triggers, compaction and tailoring."""
    counter = config.counter
    if counter.kind == "tiktoken":
        return tiktoken_counter(counter.encoding)
    if counter.kind == "scripts":
        return ScriptTokenCounter(counter.scripts.model_dump(), default=counter.runes_per_token)
    return SimpleTokenCounter(counter.runes_per_token)


def billing_counter(config: RunConfig) -> LineCounter:
    """The counter that measures prompts; `runes:N` in the configuration divides code points."""
    name = config.billing.encoding
    if name.startswith("runes:"):
        try:
            return SimpleTokenCounter(float(name.removeprefix("runes:")))
        except ValueError as error:
            raise ConfigError.for_field(
                "billing.encoding", name, "an encoding, a model name, or runes:N with a number"
            ) from error
    return tiktoken_counter(name)


def trigger_checks(node: TriggerNode | None) -> list[Any]:
    """The checks of a trigger table, each a top-level check of the summarizer: all of them must pass."""
    if node is None:
        return []
    checks: list[Any] = []
    if node.event is not None:
        checks.append(check_event_threshold(node.event))
    if node.token is not None:
        checks.append(check_token_threshold(node.token))
    if node.time is not None:
        checks.append(check_time_threshold(timedelta(seconds=node.time)))
    if node.context is not None:
        checks.append(check_context_threshold(node.context))
    if node.any is not None:
        checks.append(checks_any([_as_one(child) for child in node.any]))
    if node.all is not None:
        checks.append(checks_all([_as_one(child) for child in node.all]))
    return checks


def _as_one(node: TriggerNode) -> Any:
    checks = trigger_checks(node)
    return checks[0] if len(checks) == 1 else checks_all(checks)


def skip_recent(n_events: int | None) -> Any:
    """A function that always leaves out the newest `n_events`; None without one."""
    if not n_events:
        return None

    def skip(events: Sequence[Event]) -> int:
        return n_events

    return skip


def build_summarizer(
    config: RunConfig, model: Model | None, *, clock: Clock, counter: TokenCounter | None = None
) -> Summarizer | None:
    """The summarizer of a configuration, None when it has none; `counter` takes the place of its own."""
    if config.summarizer is None:
        return None
    return Summarizer(
        model,
        config.summarizer,
        checks=trigger_checks(config.trigger),
        token_counter=engine_counter(config) if counter is None else counter,
        clock=clock,
        profile=config.engine_profile,
    )


def build_service(
    config: RunConfig,
    store: SessionStore,
    *,
    summary_model: Model | None,
    clock: Clock,
    observer: SummaryObserver | None = None,
    counter: TokenCounter | None = None,
) -> SessionService:
    """A session service over `store` that behaves as the configuration says."""
    return SessionService(
        store,
        settings=config.service,
        summarizer=build_summarizer(config, summary_model, clock=clock, counter=counter),
        clock=clock,
        profile=config.engine_profile,
        observer=observer,
    )


def build_agent(
    config: RunConfig,
    model: Model,
    *,
    name: str = "assistant",
    instruction: str = "",
    tools: Sequence[Tool] = (),
    tool_specs: Sequence[ToolSpec] = (),
    tool_executor: ToolExecutor | None = None,
    counter: TokenCounter | None = None,
) -> LLMAgent:
    """The agent of a configuration around a main model."""
    counter = engine_counter(config) if counter is None else counter
    return LLMAgent(
        name=name,
        model=model,
        instruction=instruction,
        tools=tuple(tools),
        tool_specs=tuple(tool_specs),
        tool_executor=tool_executor,
        settings=config.agent,
        compaction=config.compaction,
        tailoring=config.tailoring,
        skip_recent_func=skip_recent(config.compaction.skip_recent),
        compaction_counter=counter,
        tailoring_counter=counter,
    )
