"""A configuration as a Python module that builds service, summarizer and agent from this package only (WB-EXP-01).

In: a configuration and its stamp. Out: source that names every option that isn't at its default, as somebody would
write it by hand. Texts of the configuration stand in it as literals only, so nothing of them is run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from workbench.config import RunConfig, TriggerNode
from workbench.errors import ConfigError
from workbench.production.stamp import Stamp
from workbench.profiles import PROFILES
from workbench.settings import Settings

LONGEST_S = 10 * 365 * 86_400
"""Ten years; a longer duration is a slip, and Go's durations end at 292 years."""
_WIDTH = 120
_LINE = 88
"""Longest call on one line: it may still move to the right."""


def checked_seconds(field: str, seconds: float) -> float:
    """A duration that source code can hold.

    Raises:
        ConfigError: it is longer than ten years, or shorter than a microsecond and not 0.
    """
    if seconds > LONGEST_S or 0 < seconds < 1e-6:
        raise ConfigError.for_field(field, seconds, "0, or from a microsecond to ten years, to be exported as source")
    return seconds


def python_text(config: RunConfig, stamp: Stamp) -> str:
    """The module."""
    module = _Module(config)
    body = "\n\n\n".join((module.constants(), *module.functions()))
    return f"{_docstring(stamp)}\n\n{module.imports()}\n\n{body}\n"


class _Module:
    """Collects the names that the source uses while its parts are written."""

    def __init__(self, config: RunConfig) -> None:
        self._config = config
        self._names: dict[str, set[str]] = {}

    def _use(self, module: str, *names: str) -> str:
        self._names.setdefault(module, set()).update(names)
        return names[0]

    def imports(self) -> str:
        """Standard library first, then this package, sorted."""
        ours = sorted(name for name in self._names if name.startswith("workbench"))
        others = sorted(name for name in self._names if name not in ours)
        groups = ["\n".join(self._import(name) for name in group) for group in (others, ours) if group]
        return "from __future__ import annotations\n\n" + "\n\n".join(groups)

    def _import(self, module: str) -> str:
        names = sorted(self._names[module])
        line = f"from {module} import {', '.join(names)}"
        return (
            line if len(line) <= _WIDTH else f"from {module} import (\n" + "".join(f"    {n},\n" for n in names) + ")"
        )

    # --- parts -------------------------------------------------------------------------------------------

    def constants(self) -> str:
        """Profile, with the switches that the configuration sets itself, counter and checks."""
        config = self._config
        base, engine = PROFILES[config.profile], config.engine_profile
        self._use("workbench.profiles", config.profile)
        changes = {
            name: getattr(engine, name) for name in base.__slots__ if getattr(engine, name) != getattr(base, name)
        }
        made = _call(f"{config.profile}.replace", _arguments(changes)) if changes else config.profile
        lines = [f"PROFILE = {made}", f"COUNTER = {self._counter()}"]
        if config.trigger is not None:
            lines.append(f"CHECKS = {_list(self._checks_of(config.trigger, 'trigger'))}")
        return "\n".join(lines)

    def _counter(self) -> str:
        counter = self._config.counter
        if counter.kind == "tiktoken":
            return _call(self._use("workbench.tokens", "TiktokenCounter"), [repr(counter.encoding)])
        if counter.kind == "scripts":
            ratios = counter.scripts.model_dump(exclude_none=True)
            return _call(
                self._use("workbench.script_counter", "ScriptTokenCounter"),
                [_literal(ratios), f"default={counter.runes_per_token!r}"],
            )
        return _call(self._use("workbench.tokens", "SimpleTokenCounter"), [repr(counter.runes_per_token)])

    def _checks_of(self, node: TriggerNode, path: str) -> list[str]:
        home = "workbench.summary.checkers"
        checks: list[str] = []
        if node.event is not None:
            checks.append(f"{self._use(home, 'check_event_threshold')}({node.event})")
        if node.token is not None:
            checks.append(f"{self._use(home, 'check_token_threshold')}({node.token})")
        if node.time is not None:
            checks.append(f"{self._use(home, 'check_time_threshold')}({self._duration(f'{path}.time', node.time)})")
        if node.context is not None:
            self._use(home, "ContextThreshold")
            made = _call("ContextThreshold", _arguments(_set(node.context)))
            checks.append(f"{self._use(home, 'check_context_threshold')}({made})")
        for name, function in (("any", "checks_any"), ("all", "checks_all")):
            children: tuple[TriggerNode, ...] | None = getattr(node, name)
            if children is not None:
                inner = [self._one(child, f"{path}.{name}") for child in children]
                checks.append(_call(self._use(home, function), [_list(inner)]))
        return checks

    def _one(self, node: TriggerNode, path: str) -> str:
        checks = self._checks_of(node, path)
        if len(checks) == 1:
            return checks[0]
        return _call(self._use("workbench.summary.checkers", "checks_all"), [_list(checks)])

    def _duration(self, field: str, seconds: float) -> str:
        self._use("datetime", "timedelta")
        span = timedelta(seconds=checked_seconds(field, seconds))
        for unit, length in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
            if span and not span % timedelta(seconds=length):
                return f"timedelta({unit}={span // timedelta(seconds=length)})"
        return (
            f"timedelta(seconds={seconds:g})" if float(f"{seconds:g}") == seconds else f"timedelta(seconds={seconds!r})"
        )

    def functions(self) -> Iterable[str]:
        """Models that the configuration names, summarizer (if there is one), service, agent, runner."""
        yield from self._models()
        if self._config.summarizer is not None:
            yield self._summarizer()
        yield self._service()
        yield self._agent()
        yield self._runner()

    def _models(self) -> Iterable[str]:
        main, summaries = self._config.model, self._config.summaries
        if main.name or main.context_window is not None:
            arguments = [_literal(main.name) if main.name else "name"]
            if main.context_window is not None:
                arguments.append(f"context_window={main.context_window}")
            parameters = "**options: Any" if main.name else "name: str, **options: Any"
            yield self._model(
                "build_model", parameters, "The main model; its key is taken from the environment.", arguments
            )
        if self._config.summarizer is not None and summaries.model:
            arguments = [_literal(summaries.model)]
            given: dict[str, Any] = {
                "base_url": summaries.base_url or None,
                "api_key_env": summaries.api_key_env or None,
            }
            given |= {"timeout_s": summaries.timeout_s, "context_window": summaries.context_window, "stream": False}
            arguments += _arguments({name: value for name, value in given.items() if value is not None})
            doc = "The model that writes summaries; its key is taken from the environment."
            yield self._model("build_summary_model", "**options: Any", doc, arguments)

    def _model(self, name: str, parameters: str, doc: str, arguments: list[str]) -> str:
        self._use("typing", "Any")
        self._use("workbench", "OpenAIModel")
        made = _call("OpenAIModel", [*arguments, "**options"])
        return f'def {name}({parameters}) -> OpenAIModel:\n    """{doc}"""\n    return {_indented(made)}'

    def _summarizer(self) -> str:
        settings = self._config.summarizer
        assert settings is not None
        self._use("workbench", "Summarizer")
        self._use("workbench.clock", "Clock")
        self._use("workbench.model.client", "Model")
        arguments = ["model", *_arguments(_set(settings))]
        if self._config.trigger is not None:
            arguments.append("checks=CHECKS")
        arguments += ["token_counter=COUNTER", "clock=clock", "profile=PROFILE"]
        return (
            "def build_summarizer(model: Model, *, clock: Clock | None = None) -> Summarizer:\n"
            '    """Decides when a summary is due, and has `model` write it."""\n'
            f"    return {_indented(_call('Summarizer', arguments))}"
        )

    def _service(self) -> str:
        config = self._config
        self._use("pathlib", "Path")
        self._use("workbench", "DuckDBSessionService", "InMemorySessionService")
        self._use("workbench.clock", "Clock")
        self._use("workbench.model.client", "Model")
        options = []
        if config.summarizer is not None:
            options.append(("summarizer", "build_summarizer(summary_model, clock=clock)"))
        for name, value in _set(config.service).items():
            if name.endswith("_s"):
                options.append((name.removesuffix("_s"), self._duration(f"service.{name}", value)))
            else:
                options.append(({"event_limit": "session_event_limit"}.get(name, name), _literal(value)))
        options += [("clock", "clock"), ("profile", "PROFILE")]
        self._use("typing", "Any")
        entries = "".join(f"        {json.dumps(name)}: {value},\n" for name, value in options)
        says = "Sessions in memory, or with a path in a DuckDB file"
        says += "." if config.summarizer is not None else "; no summaries are made, so `summary_model` isn't called."
        model = "summary_model: Model" if config.summarizer is not None else "summary_model: Model | None = None"
        return (
            "def build_service(\n"
            f"    {model}, *, path: str | Path | None = None, clock: Clock | None = None\n"
            ") -> InMemorySessionService | DuckDBSessionService:\n"
            f'    """{says}"""\n'
            f"    options: dict[str, Any] = {{\n{entries}    }}\n"
            "    return InMemorySessionService(**options) if path is None else DuckDBSessionService(path, **options)"
        )

    def _agent(self) -> str:
        config = self._config
        self._use("collections.abc", "Sequence")
        self._use("workbench", "LLMAgent")
        self._use("workbench.agent.tools", "Tool")
        self._use("workbench.model.client", "Model")
        arguments = ["name=name", "model=model", "instruction=instruction", "tools=tools"]
        for name, kind, settings in (
            ("settings", "AgentSettings", config.agent),
            ("compaction", "CompactionSettings", config.compaction),
            ("tailoring", "TailoringSettings", config.tailoring),
        ):
            if changed := _set(settings):
                self._use("workbench.context.settings", kind)
                arguments.append(f"{name}={_call(kind, _arguments(changed))}")
        if config.compaction.skip_recent:
            arguments.append(f"skip_recent_func=lambda events: {config.compaction.skip_recent}")
        arguments += ["compaction_counter=COUNTER", "tailoring_counter=COUNTER", "**options"]
        self._use("typing", "Any")
        return (
            "def build_agent(\n"
            '    model: Model, *, name: str = "assistant", instruction: str = "", tools: Sequence[Tool] = (), '
            "**options: Any\n"
            ") -> LLMAgent:\n"
            '    """An agent whose requests are put together, compacted and made to fit as configured."""\n'
            f"    return {_indented(_call('LLMAgent', arguments))}"
        )

    def _runner(self) -> str:
        self._use("workbench", "Runner")
        self._use("workbench.clock", "SystemClock")
        self._use("workbench.service.service", "SessionService")
        arguments = [
            "app_name=app_name",
            "agent=agent",
            "session_service=service",
            "clock=clock or SystemClock()",
            "profile=PROFILE",
            "**options",
        ]
        return (
            "def build_runner(\n"
            "    app_name: str, agent: LLMAgent, service: SessionService, *, clock: Clock | None = None, "
            "**options: Any\n"
            ") -> Runner:\n"
            '    """Runs the agent: `async for event in runner.run(user_id, session_id, text)`."""\n'
            f"    return {_indented(_call('Runner', arguments))}"
        )


def _docstring(stamp: Stamp) -> str:
    """The stamp as the module's docstring; whatever could end it early is escaped."""
    lines = [line.replace("\\", "\\\\").replace('"', '\\"') for line in stamp.lines()]
    first = "Service, summarizer and agent of a configuration that was tuned by replay."
    return '"""' + "\n".join((first, "", *lines)) + '\n"""'


def _set(settings: Settings) -> dict[str, Any]:
    """The options that aren't at their defaults."""
    return settings.model_dump(exclude_defaults=True)


def _arguments(values: Mapping[str, Any]) -> list[str]:
    return [f"{name}={_text(value) if isinstance(value, str) else _literal(value)}" for name, value in values.items()]


def _text(text: str) -> str:
    """A long text as a literal for each of its lines."""
    lines = text.splitlines(keepends=True)
    if len(lines) < 2 or len(text) < _LINE:
        return _literal(text)
    return "(\n" + "".join(f"    {_literal(line)}\n" for line in lines) + ")"


def _literal(value: Any) -> str:
    """Python for a value; texts in plain ASCII where they must be, else as they are."""
    if isinstance(value, str):
        # JSON's escapes are Python's; what no editor shows is escaped too.
        text = json.dumps(value, ensure_ascii=False)
        return "".join(
            char if char.isprintable() else (f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}")
            for char in text
        )
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_literal(name)}: {_literal(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, tuple):
        inner = ", ".join(map(_literal, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    return repr(value)


def _list(items: list[str]) -> str:
    line = f"[{', '.join(items)}]"
    if len(line) <= _LINE and "\n" not in line:
        return line
    return "[\n" + "".join(f"    {_indented(item)},\n" for item in items) + "]"


def _call(function: str, arguments: list[str]) -> str:
    """A call on one line where it fits, else an argument a line."""
    line = f"{function}({', '.join(arguments)})"
    if len(line) <= _LINE and "\n" not in line:
        return line
    return f"{function}(\n" + "".join(f"    {_indented(argument)},\n" for argument in arguments) + ")"


def _indented(source: str) -> str:
    """The lines behind the first one step further in; no text literal holds a line break."""
    return source.replace("\n", "\n    ")
