"""`load_service`: an exported configuration, running (WB-EXP-03).

In: the TOML or JSON file, models, where sessions are kept. Out: a `ProductionService`: the session service with its
summarizer, and agents and runners for it. All of it is made by `workbench.build`, as in a replay, so what was tuned
is what runs.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

from workbench.agent.agent import LLMAgent
from workbench.agent.runner import Runner
from workbench.agent.tools import Tool
from workbench.build import build_agent, build_service, engine_counter, live_summary_model
from workbench.clock import Clock, SystemClock
from workbench.config import RunConfig
from workbench.errors import ConfigError, RecordingError
from workbench.model.client import Model
from workbench.model.openai import OpenAIModel
from workbench.production.settings_file import stamp_of
from workbench.production.stamp import Stamp, counter_values, counter_words
from workbench.service.service import SessionService
from workbench.store.base import SessionStore
from workbench.store.memory import InMemoryStore
from workbench.tokens import TokenCounter

_log = logging.getLogger(__name__)


class _WithWindow:
    """A model that takes as many tokens as the configuration says, as the replay's did."""

    def __init__(self, model: Model, context_window: int) -> None:
        self._model = model
        self.context_window = context_window

    def __getattr__(self, name: str) -> Any:
        if name == "_model":  # a copy asks before it has one
            raise AttributeError(name)
        return getattr(self._model, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductionService:
    """A session service as a configuration says, and what runs agents over it. Close it, or use `async with`.

    Args:
        service: Keeps the sessions and makes their summaries.
        stamp: Where the file is from, with its evidence; None for a file that wasn't exported.
        model: The main model of agents that are given none.
        counter: Takes the place of the configuration's own; None = its own.
    """

    config: RunConfig
    service: SessionService
    stamp: Stamp | None = None
    model: Model | None = None
    counter: TokenCounter | None = None
    clock: Clock

    def agent(self, *, name: str = "assistant", model: Model | None = None, **options: Any) -> LLMAgent:
        """An agent with the configuration's prompt assembly, compaction and tailoring.

        Args:
            model: The main model; None takes the service's, else the one that the file names in `[model]`.
            options: `instruction`, `tools`, `tool_specs`, `tool_executor`.
        Raises:
            ConfigError: there is no model, or what is given is none.
        """
        _check_model("model", model)
        chosen = model if model is not None else self.model
        named = self.config.model
        if chosen is None and named.name:
            chosen = OpenAIModel(named.name, context_window=named.context_window or 0)
        if chosen is None:
            raise ConfigError("the agent has no model", field="model", hint="give `model=` here or to `load_service`")
        if named.context_window is not None and chosen.context_window != named.context_window:
            chosen = cast("Model", _WithWindow(chosen, named.context_window))
        return build_agent(self.config, chosen, name=name, counter=self.counter, **options)

    def runner(
        self,
        app_name: str,
        *,
        agent: LLMAgent | None = None,
        model: Model | None = None,
        name: str = "assistant",
        instruction: str = "",
        tools: Sequence[Tool] = (),
        **options: Any,
    ) -> Runner:
        """A runner of an application over this service.

        Args:
            agent: One that `agent` made; None makes one of the next four arguments.
            options: Further ones of `Runner`: `models`, `memory_service`, `make_event`, `before_step`, `on_request`.
        Raises:
            ConfigError: there is no model, or what is given is none.
        """
        if agent is None:
            agent = self.agent(name=name, model=model, instruction=instruction, tools=tools)
        return Runner(
            app_name=app_name,
            agent=agent,
            session_service=self.service,
            clock=self.clock,
            profile=self.config.engine_profile,
            **options,
        )

    async def close(self) -> None:
        """Finish the summaries that are queued, and let the store go."""
        await self.service.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def load_service(
    path: str | Path,
    *,
    model: Model | None = None,
    summary_model: Model | None = None,
    store: SessionStore | str | Path | None = None,
    counter: TokenCounter | None = None,
    allow_other_counter: bool = False,
    clock: Clock | None = None,
) -> ProductionService:
    """The service that an exported TOML or JSON file describes.

    Args:
        model: The main model of its agents.
        summary_model: Writes the summaries; None takes the model that the file names in `[summaries]`, else `model`.
        store: None keeps sessions in memory, a path in a DuckDB file.
        counter: Another token counter than the file's.
        allow_other_counter: Run with another counter than the configuration was tuned with.
    Raises:
        ConfigError: the file can't be read, isn't a configuration, is another version's, has another counter than it
            was tuned with, nothing says which model writes the summaries, or a path, a model or the store is none.
    Source: WB-EXP-03, WB-EXP-04.
    """
    _check_model("model", model)
    _check_model("summary_model", summary_model)
    config, stamp = _read(path)
    _check_counter(path, config, stamp, counter, allowed=allow_other_counter)
    if stamp is not None and stamp.config_hash != config.config_hash:
        _log.warning("%s was changed after its export: its evidence isn't about this configuration", path)
    clock = SystemClock() if clock is None else clock
    writer = _summary_model(path, config, summary_model, model)
    service = build_service(config, _store(store, config, clock), summary_model=writer, clock=clock, counter=counter)
    return ProductionService(config=config, service=service, stamp=stamp, model=model, counter=counter, clock=clock)


def _read(path: str | Path) -> tuple[RunConfig, Stamp | None]:
    """To a command an unreadable file is one input of several; here it is the configuration itself."""
    try:
        return RunConfig.load(path), stamp_of(path)
    except RecordingError as error:
        raise ConfigError(str(error), field="path", value=str(path), hint=error.hint) from error


def _check_model(field: str, given: Any) -> None:
    """A name, or a class, would only be noticed at the first request."""
    if given is not None and (isinstance(given, type) or not _has(given, "name", "context_window", "generate")):
        raise ConfigError.for_field(
            field, given, 'a model, such as OpenAIModel("gpt-4.1-mini"), or None for the one that the file names'
        )


def _has(given: Any, *names: str) -> bool:
    return all(hasattr(given, name) for name in names)


def _check_counter(
    path: str | Path, config: RunConfig, stamp: Stamp | None, counter: TokenCounter | None, *, allowed: bool
) -> None:
    """Thresholds are tokens of the counter that they were tuned with (WB-EXP-04)."""
    if allowed:
        return
    tuned = config.counter if stamp is None else stamp.counter
    other = "" if counter_values(config.counter) == counter_values(tuned) else counter_words(config.counter)
    if counter is not None:
        ours = engine_counter(config.replace(counter=tuned)).counter_id
        theirs = getattr(counter, "counter_id", type(counter).__name__)
        other = "" if theirs == ours else theirs
    if other:
        raise ConfigError(
            f"{path}: tuned with the counter {counter_words(tuned)}, loaded with {other}: its thresholds would fire "
            "at other places than in the replay",
            field="counter",
            hint="tune it with the new counter, or allow it with `allow_other_counter=True`",
        )


def _summary_model(path: str | Path, config: RunConfig, given: Model | None, model: Model | None) -> Model | None:
    if config.summarizer is None or given is not None:
        return given
    named = config.summaries
    if named.model:
        return live_summary_model(named)
    if model is None:
        raise ConfigError(
            f"{path}: nothing says which model writes the summaries",
            field="summary_model",
            hint="give `summary_model=` or `model=`, or name one in the file: [summaries] model",
        )
    return model


def _store(store: SessionStore | str | Path | None, config: RunConfig, clock: Clock) -> SessionStore:
    limit = config.service.event_limit
    if store is None:
        return InMemoryStore(event_limit=limit)
    if isinstance(store, str | Path):
        from workbench.store.duckdb.store import DuckDBStore

        return DuckDBStore(store, event_limit=limit, clock=clock)
    if isinstance(store, type) or not _has(store, "create", "load", "append", "close"):
        raise ConfigError.for_field("store", store, "None, a path of a DuckDB file, or a session store")
    return store
