"""Options of assembly, compaction and tailoring."""

from __future__ import annotations

import pytest

from workbench.context.settings import (
    DEFAULT_CONTEXT_COMPACTION_OVERSIZED_TOOL_RESULT_MAX_TOKENS,
    AgentSettings,
    CompactionSettings,
    SessionSummaryInjectionMode,
    TailoringSettings,
)
from workbench.errors import ConfigError
from workbench.profiles import SEED, TRPC_AGENT_GO_2026_07, TRPC_AGENT_GO_2026_08


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        (AgentSettings, "max_history_runs", -1),
        (AgentSettings, "summary_injection_mode", "middle"),
        (AgentSettings, "branch_filter_mode", "some"),
        (AgentSettings, "timeline_filter_mode", "week"),
        (AgentSettings, "message_filter_mode", "half_context"),
        (AgentSettings, "tool_transcript_mode", "omit"),
        (CompactionSettings, "keep_recent_requests", -1),
        (CompactionSettings, "tool_result_max_tokens", -1),
        (CompactionSettings, "threshold_ratio", 0.0),
        (CompactionSettings, "threshold_ratio", 1.1),
        (TailoringSettings, "strategy", "middle"),
        (TailoringSettings, "max_input_tokens", -1),
    ],
)
def test_values_out_of_range_raise(kind, field, value):
    """ASM-CHAIN-07, ASM-EVT-08, ASM-HIST-16, ASM-CMP-02."""
    with pytest.raises(ConfigError) as caught:
        kind(**{field: value})
    assert caught.value.field == field
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("preset", "timeline", "branches"),
    [
        (None, "all", "prefix"),
        ("full_context", "all", "prefix"),
        ("request_context", "request", "prefix"),
        ("isolated_request", "request", "exact"),
        ("isolated_invocation", "invocation", "exact"),
    ],
)
def test_presets_of_filters(preset, timeline, branches):
    """ASM-EVT-08."""
    settings = AgentSettings(message_filter_mode=preset)
    assert (settings.timeline, settings.branches) == (timeline, branches)


def test_defaults():
    """ASM-INJ-01, ASM-HIST-11, ASM-INTRA-01, ASM-TLR-01, ASM-CMP-01; tables 6.1 and of ASM-TLR-02."""
    agent, compaction, tailoring = AgentSettings(), CompactionSettings(), TailoringSettings()
    switches = [agent.add_session_summary, agent.add_context_prefix, agent.sync_summary_intra_run]
    switches += [agent.tailor_with_run_window, tailoring.enabled, compaction.enabled]
    assert not any(switches)
    assert (compaction.threshold_ratio, compaction.tool_result_max_tokens) == (0.7, 1024)
    assert (compaction.oversized_tool_result_max_tokens, compaction.keep_recent_requests) == (0, 1)
    assert DEFAULT_CONTEXT_COMPACTION_OVERSIZED_TOOL_RESULT_MAX_TOKENS == 8192
    assert (tailoring.protocol_overhead_tokens, tailoring.reserve_output_tokens) == (512, 2048)
    assert (tailoring.safety_margin_ratio, tailoring.input_tokens_floor) == (0.1, 1024)


def test_profiles_decide_what_is_left_open():
    """ASM-HIST-15, -16 (DA1, DA11)."""
    assert [AgentSettings().limit_unit(one) for one in (SEED, TRPC_AGENT_GO_2026_07)] == ["run", "message"]
    assert AgentSettings(history_limit_unit="message").limit_unit(SEED) == "message"
    assert [AgentSettings().has_user_anchors(one) for one in (SEED, TRPC_AGENT_GO_2026_08)] == [False, True]
    assert not AgentSettings(user_anchors=False).has_user_anchors(TRPC_AGENT_GO_2026_08)


def test_enums_and_lists_are_taken():
    """ASM-INJ-08."""
    assert AgentSettings(summary_injection_mode=SessionSummaryInjectionMode.USER).summary_injection_mode == "user"
    assert CompactionSettings.parse({"keep_tool_names": ["a"]}).keep_tool_names == ("a",)
