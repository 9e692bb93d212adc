"""A configuration as Go source with the option calls of trpc-agent-go (WB-EXP-01).

In: a configuration, its stamp, the session backend. Out: one file of package `production`, as gofmt leaves it, with
functions that make counter, models, summarizer, session service, agent and runner. Each option that the reference
hasn't got is listed in a comment at the end: whatever isn't taken by one of the functions ends up there, so none can
be forgotten. Texts of the configuration stand in literals and in escaped comment lines only.
Implements the mapping tables of summary.md section 20 and assembly.md section 19.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Literal, get_args

from workbench.config import RunConfig, TriggerNode
from workbench.errors import ConfigError, nearest_name
from workbench.production.go_spelling import (
    call_of,
    comment_of,
    duration_of,
    float_of,
    function_of,
    list_of,
    long_string_of,
    said,
    skip_of,
    string_of,
    strings_of,
    struct_of,
)
from workbench.production.stamp import Stamp
from workbench.profiles import TRPC_AGENT_GO_2026_08
from workbench.summary.checkers import ContextThreshold

Backend = Literal["inmemory", "redis", "postgres", "mysql", "clickhouse", "pgvector"]
BACKENDS: Final[tuple[Backend, ...]] = get_args(Backend)

_ROOT = "trpc.group/trpc-go/trpc-agent-go"
_CONNECTIONS: Mapping[str, Mapping[str, str]] = {
    "inmemory": {},
    "redis": {"WithRedisClientURL": "REDIS_URL"},
    "postgres": {"WithHost": "POSTGRES_HOST", "WithPassword": "POSTGRES_PASSWORD"},
    "mysql": {"WithMySQLClientDSN": "MYSQL_DSN"},
    "clickhouse": {"WithClickHouseDSN": "CLICKHOUSE_DSN"},
    "pgvector": {"WithDSN": "PGVECTOR_DSN"},
}
"""Option -> environment variable: no address or password stands in the source."""

_FILTER_MODES = {
    "full_context": "FullContext",
    "request_context": "RequestContext",
    "isolated_request": "IsolatedRequest",
    "isolated_invocation": "IsolatedInvocation",
}
_TIMELINES = {"request": "TimelineFilterCurrentRequest", "invocation": "TimelineFilterCurrentInvocation"}
_BRANCHES = {"subtree": "BranchFilterModeSubtree", "exact": "BranchFilterModeExact", "all": "BranchFilterModeAll"}
_REASONING = {"keep_all": "ReasoningContentModeKeepAll", "discard_all": "ReasoningContentModeDiscardAll"}
_STRATEGIES = {"head_out": "NewHeadOutStrategy", "tail_out": "NewTailOutStrategy"}
_BUDGETS = {
    "protocol_overhead_tokens": "ProtocolOverheadTokens",
    "reserve_output_tokens": "ReserveOutputTokens",
    "input_tokens_floor": "InputTokensFloor",
    "safety_margin_ratio": "SafetyMarginRatio",
    "max_input_tokens_ratio": "MaxInputTokensRatio",
}
_MODEL_OF = {"o200k_base": "gpt-4o", "cl100k_base": "gpt-4", "p50k_base": "text-davinci-003", "r50k_base": "davinci"}
"""A model of each encoding: the reference asks for models, and takes cl100k_base for a name that it doesn't know."""

_REASONS = {
    "counter": "it has no counter by script: the ratio of all characters stands in",
    "summarizer.overflow_policy": "the release decides",
    "summarizer.fork_prompt_in_fallback": "the release decides",
    "summarizer.prompt_errors": "the release decides",
    "agent.history_limit_unit": "the release decides",
    "agent.user_anchors": "the release decides",
    "tailoring": "0 means its default there",
    "model": "says what a replay reports",
    "summaries": "says where a replay's summaries are from",
    "billing": "says how a replay measures",
    "cache": "says how a replay simulates the cache",
    "prices": "says what a replay's tokens cost",
}


def go_text(config: RunConfig, stamp: Stamp, *, backend: str = "inmemory") -> str:
    """The source file.

    Raises:
        ConfigError: an unknown backend, or a duration that Go can't hold.
    """
    if backend not in BACKENDS:
        raise ConfigError.for_field("backend", backend, ", ".join(BACKENDS), hint=nearest_name(backend, BACKENDS))
    file = _File(config, backend)
    functions = list(file.functions())
    parts = [comment_of(stamp.lines()), "package production", file.imports(), *file.constants, *functions]
    return "\n\n".join([*parts, comment_of(file.left_out())]) + "\n"


class _File:
    """Takes the options of a configuration one by one; what nobody took is left out, and said so."""

    def __init__(self, config: RunConfig, backend: str) -> None:
        self._config = config
        self._backend = backend
        self._left = dict(_leaves(config.to_values()))
        self._imports: set[str] = set()
        self.constants: list[str] = []

    def _take(self, *paths: str) -> None:
        """These options stand in the source."""
        for path in paths:
            for name in [n for n in self._left if n == path or n.startswith((f"{path}.", f"{path}["))]:
                del self._left[name]

    def _has(self, path: str) -> bool:
        """An option isn't at its default, and wasn't taken."""
        return any(n == path or n.startswith((f"{path}.", f"{path}[")) for n in self._left)

    def _use(self, *packages: str) -> None:
        self._imports.update(packages)

    def imports(self) -> str:
        """Standard library first, then the reference, sorted."""
        own = sorted(name for name in self._imports if "/" not in name)
        theirs = sorted(f"{_ROOT}/{name.removeprefix('./')}" for name in self._imports if "/" in name)
        groups = ["".join(f'\t"{name}"\n' for name in group) for group in (own, theirs) if group]
        return "import (\n" + "\n".join(groups) + ")"

    def functions(self) -> Iterator[str]:
        """Every function, from the counter to the runner."""
        yield self._counter()
        yield self._chat_model()
        if self._config.summarizer is not None:
            yield self._summary_model()
            yield self._summarizer()
        yield self._session_service()
        yield self._agent()
        yield self._runner()

    def left_out(self) -> list[str]:
        """The options that the reference hasn't got, and where its behaviour differs from the profile's."""
        self._take("profile")  # what it changes is listed below
        lines = ["Options of the configuration that aren't in this file:"]
        for path, value in self._left.items():
            reason = self._reason(path)
            lines.append(f"- {path} = {said(value)} ({reason})")
        if not self._left:
            lines.append("- none")
        engine, newest = self._config.engine_profile, TRPC_AGENT_GO_2026_08
        differing = [
            name for name in newest.__slots__ if name != "name" and getattr(engine, name) != getattr(newest, name)
        ]
        if differing:
            lines.append("Where this configuration was replayed otherwise than the release of August 2026 behaves:")
            lines += [
                f"- {name}: {said(getattr(engine, name))} here, {said(getattr(newest, name))} there"
                for name in differing
            ]
        return lines

    def _reason(self, path: str) -> str:
        """Why an option isn't in the source."""
        table = path.split(".", maxsplit=1)[0]
        if table in ("compaction", "tailoring") and not getattr(self._config, table).enabled:
            return "its table isn't enabled"
        if path in ("agent.timeline_filter_mode", "agent.branch_filter_mode"):
            return "agent.message_filter_mode overrides it"
        while path:
            if path in _REASONS:
                return _REASONS[path]
            path = path.rpartition(".")[0]
        return "trpc-agent-go hasn't got it"

    # --- counter and models ------------------------------------------------------------------------------

    def _counter(self) -> str:
        counter = self._config.counter
        self._use("./model")
        if counter.kind == "tiktoken":
            self._use("./model/tiktoken")
            self._take("counter")
            return function_of(
                "NewTokenCounter returns the counter that the thresholds were tuned with.",
                "NewTokenCounter() (model.TokenCounter, error)",
                [f"return tiktoken.New({string_of(_MODEL_OF.get(counter.encoding, counter.encoding))})"],
            )
        self._take("counter.runes_per_token")
        if counter.kind == "runes":
            self._take("counter")
        ratio = call_of("model.WithApproxRunesPerToken", [float_of(counter.runes_per_token)])
        return function_of(
            "NewTokenCounter returns the counter that the thresholds were tuned with.",
            "NewTokenCounter() (model.TokenCounter, error)",
            [f"return model.NewSimpleTokenCounter({ratio}), nil"],
        )

    def _chat_model(self) -> str:
        model, tailoring = self._config.model, self._config.tailoring
        self._use("./model", "./model/openai", "os")
        options = [*self._model_options("model", "OPENAI_API_KEY")]
        body = []
        if tailoring.enabled:
            self._take("tailoring.enabled", "tailoring.max_input_tokens", "tailoring.strategy")
            options += ["openai.WithEnableTokenTailoring(true)", "openai.WithTokenCounter(counter)"]
            if tailoring.max_input_tokens:
                options.append(f"openai.WithMaxInputTokens({tailoring.max_input_tokens})")
            if tailoring.strategy in _STRATEGIES:
                options.append(f"openai.WithTailoringStrategy(model.{_STRATEGIES[tailoring.strategy]}(counter))")
            budgets = {}
            for name, field in _BUDGETS.items():
                value = getattr(tailoring, name)
                if self._has(f"tailoring.{name}") and value:
                    self._take(f"tailoring.{name}")
                    budgets[field] = float_of(value) if isinstance(value, float) else str(value)
            if budgets:
                body = ["budget := " + struct_of("&model.TokenTailoringConfig", budgets)]
                options.append("openai.WithTokenTailoringConfig(budget)")
        name = "ChatModelName" if model.name else "name"
        counter = "counter" if tailoring.enabled else "_"
        return function_of(
            "NewChatModel returns the main model; its key is taken from the environment.",
            f"NewChatModel({'' if model.name else 'name string, '}{counter} model.TokenCounter) model.Model",
            [*body, f"return {call_of('openai.New', [name, *options])}"],
        )

    def _model_options(self, table: str, key: str) -> Iterator[str]:
        """What `[model]` and `[summaries]` have in common: key, name and window."""
        settings = getattr(self._config, table if table == "model" else "summaries")
        yield f"openai.WithAPIKey(os.Getenv({string_of(key)}))"
        name = settings.name if table == "model" else settings.model
        if name:
            self._take("model.name" if table == "model" else "summaries.model")
            constant = "ChatModelName" if table == "model" else "SummaryModelName"
            what = "the main model" if table == "model" else "the model that writes summaries"
            self.constants.append(f"// {constant} names {what}.\nconst {constant} = {string_of(name)}")
        if settings.context_window is not None:
            self._take(f"{table}.context_window")
            yield f"openai.WithContextWindow({settings.context_window})"

    def _summary_model(self) -> str:
        settings = self._config.summaries
        self._use("./model", "./model/openai", "os")
        self._take("summaries.api_key_env", "summaries.base_url")
        options = [*self._model_options("summaries", settings.api_key_env or "OPENAI_API_KEY")]
        if settings.base_url:
            options.append(f"openai.WithBaseURL({string_of(settings.base_url)})")
        name = "SummaryModelName" if settings.model else "name"
        return function_of(
            "NewSummaryModel returns the model that writes summaries; its key is taken from the environment.",
            f"NewSummaryModel({'' if settings.model else 'name string'}) model.Model",
            [f"return {call_of('openai.New', [name, *options])}"],
        )

    # --- summarizer --------------------------------------------------------------------------------------

    def _summarizer(self) -> str:
        settings = self._config.summarizer
        assert settings is not None
        self._use("./model", "./session/summary")
        options = []
        for field, option in (
            ("name", "WithName"),
            ("prompt", "WithPrompt"),
            ("system_prompt", "WithSystemPrompt"),
            ("cache_safe_fork_prompt", "WithCacheSafeForkPrompt"),
        ):
            if text := getattr(settings, field):
                self._take(f"summarizer.{field}")
                options.append(f"summary.{option}({self._text('Summary' + option.removeprefix('With'), text)})")
        if settings.cache_safe_forking:
            options.append("summary.WithCacheSafeForking(true)")
        if settings.max_summary_words:
            options.append(f"summary.WithMaxSummaryWords({settings.max_summary_words})")
        if settings.skip_recent is not None:
            self._use("./event")
            options.append(f"summary.WithSkipRecent({skip_of(settings.skip_recent)})")
        if settings.hook_abort_on_error:
            options.append("summary.WithSummaryHookAbortOnError(true)")
        self._take(*(f"summarizer.{name}" for name in (
            "cache_safe_forking", "max_summary_words", "skip_recent", "hook_abort_on_error"
        )))  # fmt: skip
        body = ["summary.SetTokenCounter(counter)"]
        if self._config.trigger is not None:
            trigger = _Trigger(self._duration)
            options += trigger.options(self._config.trigger)
            body += trigger.statements
            self._use(*trigger.packages)
            self._take("trigger")
        body.append(f"return {call_of('summary.NewSummarizer', ['summaryModel', *options])}")
        return function_of(
            "NewSummarizer returns the summarizer. It sets the token counter of the whole process.",
            "NewSummarizer(summaryModel model.Model, counter model.TokenCounter) summary.SessionSummarizer",
            body,
        )

    def _text(self, option: str, text: str) -> str:
        """A literal; a text of several lines gets a constant, named after the option."""
        if "\n" not in text:
            return string_of(text)
        constant = option[:1].lower() + option[1:]
        self.constants.append(f"const {constant} = {long_string_of(text)}")
        return constant

    def _duration(self, name: str, path: str, seconds: float) -> str:
        """The name of a constant: gofmt spaces products by where they stand."""
        self._use("time")
        self.constants.append(f"const {name} = {duration_of(path, seconds)}")
        return name

    # --- service, agent, runner --------------------------------------------------------------------------

    def _session_service(self) -> str:
        package, settings = self._backend, self._config.service
        self._use("./session", f"./session/{package}")
        options = []
        for option, variable in _CONNECTIONS[package].items():
            self._use("os")
            options.append(f'{package}.{option}(os.Getenv("{variable}"))')
        parameters = []
        if package == "pgvector":
            self._use("./knowledge/embedder")
            parameters.append("textEmbedder embedder.Embedder")
            options.append("pgvector.WithEmbedder(textEmbedder)")
        if self._config.summarizer is not None:
            self._use("./session/summary")
            parameters.append("summarizer summary.SessionSummarizer")
            options.append(f"{package}.WithSummarizer(summarizer)")
        for field, option in (
            ("async_summary_num", "WithAsyncSummaryNum"),
            ("summary_queue_size", "WithSummaryQueueSize"),
            ("summary_job_timeout_s", "WithSummaryJobTimeout"),
            ("event_limit", "WithSessionEventLimit"),
            ("summary_filter_allowlist", "WithSummaryFilterAllowlist"),
            ("cascade_full_session_summary", "WithCascadeFullSessionSummary"),
            ("session_ttl_s", "WithSessionTTL"),
            ("app_state_ttl_s", "WithAppStateTTL"),
            ("user_state_ttl_s", "WithUserStateTTL"),
            ("cleanup_interval_s", "WithCleanupInterval"),
        ):
            if not self._has(f"service.{field}"):
                continue
            self._take(f"service.{field}")
            value = getattr(settings, field)
            if field.endswith("_s"):
                name = option.removeprefix("With")
                arguments = [self._duration(name[:1].lower() + name[1:], f"service.{field}", value)]
            elif isinstance(value, tuple):
                arguments = [string_of(name) for name in value]
            else:
                arguments = [str(value).lower()]
            options.append(call_of(f"{package}.{option}", arguments))
        in_memory = package == "inmemory"
        made = call_of(f"{package}.{'NewSessionService' if in_memory else 'NewService'}", options)
        return function_of(
            "NewSessionService returns the session service.",
            f"NewSessionService({', '.join(parameters)}) (session.Service, error)",
            [f"return {made}{', nil' if in_memory else ''}"],
        )

    def _agent(self) -> str:
        self._use("./agent", "./agent/llmagent", "./model")
        options = ["llmagent.WithModel(chatModel)", *self._agent_options(), *self._compaction_options()]
        needs_counter = any("counter" in option for option in options)
        return function_of(
            "NewAgent returns the agent; give it its instruction and tools by further options.",
            f"NewAgent(name string, chatModel model.Model, {'counter' if needs_counter else '_'} model.TokenCounter, "
            "further ...llmagent.Option) agent.Agent",
            [
                f"options := {list_of('[]llmagent.Option', options)}",
                "return llmagent.New(name, append(options, further...)...)",
            ],
        )

    def _agent_options(self) -> Iterator[str]:
        agent = self._config.agent
        for field, option in (
            ("add_session_summary", "WithAddSessionSummary"),
            ("max_history_runs", "WithMaxHistoryRuns"),
            ("sync_summary_intra_run", "WithSyncSummaryIntraRun"),
            ("add_context_prefix", "WithAddContextPrefix"),
            ("preserve_same_branch", "WithPreserveSameBranch"),
            ("preserve_foreign_messages", "WithPreserveForeignMessages"),
            ("enable_on_demand_session", "WithEnableOnDemandSession"),
            ("preload_memory", "WithPreloadMemory"),
            ("preload_session_recall", "WithPreloadSessionRecall"),
        ):
            if self._has(f"agent.{field}"):
                self._take(f"agent.{field}")
                yield f"llmagent.{option}({str(getattr(agent, field)).lower()})"
        for field, option, constant in (
            ("summary_injection_mode", "WithSessionSummaryInjectionMode", "SessionSummaryInjectionUser"),
            ("preload_memory_injection_mode", "WithPreloadMemoryInjectionMode", "PreloadMemoryInjectionUser"),
            (
                "preload_session_recall_injection_mode",
                "WithPreloadSessionRecallInjectionMode",
                "PreloadSessionRecallInjectionUser",
            ),
        ):
            if self._has(f"agent.{field}"):
                self._take(f"agent.{field}")
                yield f"llmagent.{option}(llmagent.{constant})"
        for field, option, names in (
            ("message_filter_mode", "WithMessageFilterMode", _FILTER_MODES),
            ("timeline_filter_mode", "WithMessageTimelineFilterMode", _TIMELINES),
            ("branch_filter_mode", "WithMessageBranchFilterMode", _BRANCHES),
            ("reasoning_content_mode", "WithReasoningContentMode", _REASONING),
        ):
            # The preset overrides the two filters behind it.
            is_overridden = agent.message_filter_mode and field in ("timeline_filter_mode", "branch_filter_mode")
            if self._has(f"agent.{field}") and not is_overridden:
                self._take(f"agent.{field}")
                yield f"llmagent.{option}(llmagent.{names[getattr(agent, field)]})"
        if self._has("agent.tool_transcript_mode"):
            self._take("agent.tool_transcript_mode")
            yield f"llmagent.WithToolTranscriptMode({string_of(agent.tool_transcript_mode)})"
        if agent.preload_memory_playbook:
            self._take("agent.preload_memory_playbook")
            yield f"llmagent.WithPreloadMemoryPlaybook({self._text('PreloadMemoryPlaybook', agent.preload_memory_playbook)})"
        if self._has("agent.preload_session_recall_min_score"):
            self._take("agent.preload_session_recall_min_score")
            yield f"llmagent.WithPreloadSessionRecallMinScore({float_of(agent.preload_session_recall_min_score)})"
        if self._has("agent.preload_session_recall_search_mode"):
            self._take("agent.preload_session_recall_search_mode")
            self._use("./session")
            yield "llmagent.WithPreloadSessionRecallSearchMode(session.SearchModeDense)"

    def _compaction_options(self) -> Iterator[str]:
        compaction = self._config.compaction
        if not compaction.enabled:
            return
        self._take("compaction")
        yield "llmagent.WithEnableContextCompaction(true)"
        yield f"llmagent.WithContextCompactionThresholdRatio({float_of(compaction.threshold_ratio)})"
        yield f"llmagent.WithContextCompactionToolResultMaxTokens({compaction.tool_result_max_tokens})"
        oversized = compaction.oversized_tool_result_max_tokens
        yield f"llmagent.WithContextCompactionOversizedToolResultMaxTokens({oversized})"
        yield f"llmagent.WithContextCompactionKeepRecentRequests({compaction.keep_recent_requests})"
        yield "llmagent.WithContextCompactionTokenCounter(counter)"
        fields = {}
        if compaction.force_clean_tool_names:
            fields["ForceCleanToolNames"] = strings_of(compaction.force_clean_tool_names)
        if compaction.keep_tool_names:
            fields["KeepToolNames"] = strings_of(compaction.keep_tool_names)
        if compaction.skip_recent:
            self._use("./event")
            fields["SkipRecentFunc"] = skip_of(compaction.skip_recent)
        if fields:
            made = struct_of("&llmagent.ToolResultCompactionConfig", fields)
            yield f"llmagent.WithToolResultCompactionConfig({made})"

    def _runner(self) -> str:
        self._use("./agent", "./runner", "./session")
        return function_of(
            "NewRunner returns the runner of an application.",
            "NewRunner(appName string, llmAgent agent.Agent, sessionService session.Service) runner.Runner",
            ["return runner.NewRunner(appName, llmAgent, runner.WithSessionService(sessionService))"],
        )


class _Trigger:
    """The checks of a trigger. A share of the window needs the request's context: a tree that holds one is a function."""

    def __init__(self, duration: Callable[[str, str, float], str]) -> None:
        self.statements: list[str] = []
        self.packages: set[str] = set()
        self._duration_constant = duration
        self._n_durations = 0

    def options(self, node: TriggerNode) -> Iterator[str]:
        """One option for each check at the top: all of them must pass."""
        if node.event is not None:
            yield f"summary.WithEventThreshold({node.event})"
        if node.token is not None:
            yield f"summary.WithTokenThreshold({node.token})"
        if node.time is not None:
            yield f"summary.WithTimeThreshold({self._duration(node.time)})"
        if node.context is not None:
            yield call_of("summary.WithContextThreshold", _context_options(node.context))
        for children, both, alone in ((node.any, "Any", "||"), (node.all, "All", "&&")):
            if children is None:
                continue
            if not children or any(map(_needs_context, children)):  # an empty option adds no check there
                yield f"summary.WithChecks{both}Context({self._closure(children, alone)})"
            else:
                yield call_of(f"summary.WithChecks{both}", [self._check(child) for child in children])

    def _duration(self, seconds: float) -> str:
        self._n_durations += 1
        name = "silence" if self._n_durations == 1 else f"silence{self._n_durations}"
        return self._duration_constant(name, "trigger.time", seconds)

    def _leaves(self, node: TriggerNode) -> Iterator[str]:
        """The checks of one node, without the trees below it."""
        if node.event is not None:
            yield f"summary.CheckEventThreshold({node.event})"
        if node.token is not None:
            yield f"summary.CheckTokenThreshold({node.token})"
        if node.time is not None:
            yield f"summary.CheckTimeThreshold({self._duration(node.time)})"

    def _check(self, node: TriggerNode) -> str:
        """A checker that looks at the session only."""
        checks = [*self._leaves(node)]
        for children, both in ((node.any, "Any"), (node.all, "All")):
            if children is not None:
                inner = list_of("[]summary.Checker", [self._check(child) for child in children])
                checks.append(f"summary.Checks{both}({inner})")
        return checks[0] if len(checks) == 1 else f"summary.ChecksAll({list_of('[]summary.Checker', checks)})"

    def _closure(self, children: Iterable[TriggerNode], operator: str) -> str:
        self.packages |= {"context", "./session"}
        conditions = [self._condition(child) for child in children]
        joined = f" {operator} ".join(conditions) if conditions else str(operator == "&&").lower()
        return f"func(ctx context.Context, sess *session.Session) bool {{\n\treturn {joined}\n}}"

    def _condition(self, node: TriggerNode) -> str:
        """Each check is made once and asked for its verdict; trees stand in parentheses."""
        asked = [f"{self._named(check)}(sess)" for check in self._leaves(node)]
        if node.context is not None:
            made = call_of("summary.CheckContextThreshold", _context_options(node.context))
            asked.append(f"{self._named(made)}(ctx, sess)")
        for children, operator in ((node.any, "||"), (node.all, "&&")):
            if children is not None:
                inner = [self._condition(child) for child in children]
                joined = f" {operator} ".join(inner) if inner else str(operator == "&&").lower()
                asked.append(f"({joined})" if len(inner) > 1 else joined)
        return asked[0] if len(asked) == 1 else f"({' && '.join(asked)})"

    def _named(self, check: str) -> str:
        name = f"check{len(self.statements) + 1}"
        self.statements.append(f"{name} := {check}")
        return name


def _needs_context(node: TriggerNode) -> bool:
    return node.context is not None or any(map(_needs_context, (*(node.any or ()), *(node.all or ()))))


def _context_options(context: ContextThreshold) -> list[str]:
    options = [
        f"summary.WithContextThresholdRatio({float_of(context.ratio)})",
        f"summary.WithContextThresholdMinTokens({context.min_tokens})",
    ]
    if context.fallback_window is not None:
        options.append(f"summary.WithContextThresholdFallbackWindow({context.fallback_window})")
    return options


def _leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every value with its dotted path; lists are values."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{name}.")
        elif prefix or name != "name":
            yield prefix + name, value
