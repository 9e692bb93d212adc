"""What travels in a call context."""

from __future__ import annotations

from workbench.call import EMPTY_CONTEXT
from workbench.model.scripted import ScriptedModel
from workbench.model.types import Request
from workbench.summary import context as c
from workbench.summary.report import Report


def test_what_is_put_in_comes_out_and_an_empty_context_has_none():
    """SUM-REP-08, SUM-REQ-02, SUM-RNR-01, SUM-RNR-02, SUM-CORE-04."""
    report, request, model = Report(), Request(), ScriptedModel()
    start, gap = c.RequestStart("r1", 5), c.RequestGapObservation(available=True, elapsed_ns=7)
    ctx = c.context_with_report(EMPTY_CONTEXT, report)
    ctx = c.context_with_cache_safe_fork_request(ctx, request)
    ctx = c.context_with_run_model(ctx, model=model, model_context_window=9)
    ctx = c.context_with_request_start(ctx, start)
    ctx = c.context_with_request_gap(ctx, gap)
    ctx = c.context_with_previous_summary(ctx, "old")
    assert c.report_from_context(ctx) is report
    assert c.cache_safe_fork_request_from_context(ctx) is request
    assert c.run_model_from_context(ctx) == c.RunModel(model, 9)
    assert c.request_start_from_context(ctx) is start
    assert c.request_gap_from_context(ctx) is gap
    assert c.previous_summary_from_context(ctx) == "old"
    for reader in (
        c.report_from_context,
        c.cache_safe_fork_request_from_context,
        c.request_start_from_context,
        c.request_gap_from_context,
    ):
        assert reader(EMPTY_CONTEXT) is None
    assert c.run_model_from_context(EMPTY_CONTEXT) == c.RunModel()
    assert c.previous_summary_from_context(EMPTY_CONTEXT) == ""


def test_no_plain_text_is_a_reserved_key():
    """SUM-CHK-20."""
    ctx = EMPTY_CONTEXT.with_value("report", 1).with_value("REPORT", 2).with_value(1, 3)
    assert c.report_from_context(ctx) is None
