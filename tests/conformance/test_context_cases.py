"""Option values out of range are mapped before a recorded case runs."""

from __future__ import annotations

from workbench.conformance.context_cases import RUNS
from workbench.profiles import SEED

CASE = {
    "session": {"events": []},
    "base_messages": [],
    "invocation": {"request_id": "r", "invocation_id": "i", "message": {"role": "user", "content": "q"}},
}


def test_options_out_of_range_are_mapped_not_refused():
    """ASM-CHAIN-07."""
    options = {
        "add_session_summary": False,
        "keep_recent_requests": -2,
        "tool_result_max_tokens": -1,
        "oversized_tool_result_max_tokens": -1,
        "max_history_runs": -3,
        "branch_filter_mode": "sideways",
        "summary_injection_mode": "nowhere",
        "timeline_filter_mode": "never",
        "runes_per_token": -1,
        "skip_recent": {"count": -3},
    }
    produced = RUNS["injection"].produce({**CASE, "options": options}, SEED)
    assert produced == {"messages": [{"role": "user", "content": "q"}], "stored_event_ids": []}


def test_unset_tailoring_parameters_take_their_defaults():
    """ASM-TLR-02."""
    budget = {"model_name": "x", "context_window": 8192, "tailoring_config": {"protocol_overhead_tokens": 0}}
    assert RUNS["tailoring"].produce({"budget": budget}, SEED) == {"input_token_budget": 4813}
