"""Configurations as hypothesis makes them: every option, hostile texts, trees of triggers."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from workbench.config import RunConfig
from workbench.errors import ConfigError

# Quotes of three languages, what ends comments and raw literals, line breaks of all kinds, CJK, bidi, surrogate-free.
_NASTY = "`\"'\\*/\n\r\t\u2028\u0085\x00\x1b\u202e\ufeff中文あ한😀$%{}|<>#"
texts = st.text(alphabet=st.one_of(st.sampled_from(_NASTY), st.characters(exclude_categories=["Cs"])), max_size=30)
nasty_lines = st.sampled_from(
    [
        "//go:build ignore",
        "*/ func init() {}",
        "`+`",
        '"""',
        "\\",
        "# h\n\n- b\n\tc",
        "end`\nx",
        "a\r\nb",
        "\n\n",
        "{{.}}",
    ]
)
hostile = st.one_of(texts, nasty_lines, st.builds(str.__add__, texts, nasty_lines))
counts = st.integers(0, 2_000_000)
positive = st.integers(1, 2_000_000)
seconds = st.one_of(st.sampled_from([0.000001, 0.5, 1.0, 60.0, 90.5, 3600.0, 86400.0]), st.floats(0.001, 1e8))


def prompts(*needed: str) -> st.SearchStrategy[str]:
    """Texts with placeholders, and no others."""
    return hostile.map(lambda text: text.replace("{", "(").replace("}", ")") + " ".join(needed))


def tables(**options: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=options)


contexts = tables(ratio=st.floats(0.01, 1.0), min_tokens=counts, fallback_window=positive)
_leaf = {"event": counts, "token": counts, "time": seconds, "context": contexts}
triggers: st.SearchStrategy[dict[str, Any]] = st.recursive(
    tables(**_leaf).filter(bool),
    lambda children: tables(**_leaf, any=st.lists(children, max_size=3), all=st.lists(children, max_size=3)).filter(
        bool
    ),
    max_leaves=5,
)
counters = st.one_of(
    tables(runes_per_token=st.floats(0.1, 20)),
    st.fixed_dictionaries(
        {"kind": st.just("tiktoken")}, optional={"encoding": st.sampled_from(["o200k_base", "gpt-4"])}
    ),
    st.fixed_dictionaries(
        {"kind": st.just("scripts"), "scripts": tables(han=st.floats(0.5, 5), latin=st.floats(1, 9)).filter(bool)}
    ),
)
summarizers = tables(
    name=hostile,
    prompt=prompts("{conversation_text}", "{max_summary_words}"),
    system_prompt=prompts("{max_summary_words}"),
    cache_safe_forking=st.booleans(),
    cache_safe_fork_prompt=prompts("{max_summary_words}"),
    max_summary_words=st.just(80),
    skip_recent=st.integers(0, 9),
    hook_abort_on_error=st.booleans(),
    overflow_policy=st.sampled_from(["bounded", "lossless"]),
    fork_prompt_in_fallback=st.booleans(),
    prompt_errors=st.sampled_from(["raise", "warn"]),
)
services = tables(
    async_summary_num=positive,
    summary_queue_size=positive,
    summary_job_timeout_s=seconds,
    event_limit=counts,
    summary_filter_allowlist=st.lists(hostile, max_size=3),
    cascade_full_session_summary=st.booleans(),
    session_ttl_s=seconds,
    app_state_ttl_s=seconds,
    user_state_ttl_s=seconds,
    cleanup_interval_s=st.one_of(st.just(0.0), seconds),
)
placements = st.sampled_from(["system", "user"])
agents = tables(
    add_session_summary=st.booleans(),
    summary_injection_mode=placements,
    max_history_runs=counts,
    history_limit_unit=st.sampled_from(["run", "message"]),
    sync_summary_intra_run=st.booleans(),
    message_filter_mode=st.sampled_from(["full_context", "request_context", "isolated_request", "isolated_invocation"]),
    timeline_filter_mode=st.sampled_from(["all", "request", "invocation"]),
    branch_filter_mode=st.sampled_from(["prefix", "subtree", "exact", "all"]),
    tool_transcript_mode=st.sampled_from(["keep_all", "omit_previous_completed"]),
    reasoning_content_mode=st.sampled_from(["discard_previous_turns", "keep_all", "discard_all"]),
    add_context_prefix=st.booleans(),
    preserve_same_branch=st.booleans(),
    preserve_foreign_messages=st.booleans(),
    enable_on_demand_session=st.booleans(),
    preload_memory=st.integers(-1, 9),
    preload_memory_injection_mode=placements,
    preload_memory_playbook=hostile,
    preload_session_recall=st.integers(0, 9),
    preload_session_recall_injection_mode=placements,
    preload_session_recall_min_score=st.floats(0, 1),
    preload_session_recall_search_mode=st.sampled_from(["hybrid", "dense"]),
    user_anchors=st.booleans(),
    summary_fallback_to_full=st.booleans(),
    tailor_with_run_window=st.booleans(),
)
compactions = tables(
    enabled=st.booleans(),
    threshold_ratio=st.floats(0.1, 1),
    tool_result_max_tokens=counts,
    oversized_tool_result_max_tokens=counts,
    keep_recent_requests=st.integers(0, 9),
    keep_tool_names=st.lists(hostile, max_size=2),
    force_clean_tool_names=st.lists(hostile, max_size=2),
    skip_recent=st.integers(0, 9),
)
tailorings = tables(
    enabled=st.booleans(),
    max_input_tokens=counts,
    strategy=st.sampled_from(["middle_out", "head_out", "tail_out"]),
    protocol_overhead_tokens=counts,
    reserve_output_tokens=counts,
    safety_margin_ratio=st.floats(0, 1),
    input_tokens_floor=counts,
    max_input_tokens_ratio=st.floats(0.1, 1),
)
models = tables(name=hostile, context_window=positive, user_first=st.booleans(), single_system=st.booleans())
summary_sources = st.one_of(
    tables(latency_s=seconds, sized_tokens=positive, context_window=positive),
    st.fixed_dictionaries(
        {"source": st.just("live"), "model": hostile.filter(bool), "cassette": st.just("answers.jsonl")},
        optional={"base_url": st.just("http://127.0.0.1:8000/v1"), "api_key_env": st.just("OUR_MODEL_KEY")},
    ),
)


def _config(values: dict[str, Any]) -> RunConfig:
    if "summarizer" not in values:
        values.pop("trigger", None)
    try:
        return RunConfig.from_values(values)
    except ConfigError as error:  # "none" as a text stands for null
        raise AssertionError(f"{values}: {error}") from error


configs: st.SearchStrategy[RunConfig] = st.fixed_dictionaries(
    {},
    optional={
        "name": hostile,
        "profile": st.sampled_from(["SEED", "TRPC_AGENT_GO_2026_07", "TRPC_AGENT_GO_2026_08"]),
        "counter": counters,
        "summarizer": summarizers,
        "trigger": triggers,
        "service": services,
        "agent": agents,
        "compaction": compactions,
        "tailoring": tailorings,
        "model": models,
        "summaries": summary_sources,
        "billing": tables(per_message=counts),
        "cache": tables(min_tokens=counts),
        "prices": tables(currency=st.just("EUR")),
    },
).map(_config)
"""Any configuration."""
