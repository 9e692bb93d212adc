"""Reports: triggers, headlines, the three token figures."""

from __future__ import annotations

import pytest

from tests.summary.events import numbered, run, session, user
from workbench.call import EMPTY_CONTEXT
from workbench.model.scripted import ScriptedAnswer, ScriptedModel
from workbench.model.types import Message, Request, Usage
from workbench.summary.callbacks import BeforeModelResult, ModelCallbacks
from workbench.summary.context import context_with_cache_safe_fork_request, context_with_report
from workbench.summary.report import (
    ALWAYS,
    FORCE,
    MANUAL,
    Check,
    Report,
    Trigger,
    headline,
    named_trigger,
    trigger_from_check,
)
from workbench.summary.summarizer import Summarizer


def summarized(summarizer, of, ctx=EMPTY_CONTEXT):
    report = Report()
    run(summarizer.summarize(of, ctx=context_with_report(ctx, report)))
    return report


def gated(summarizer, of):
    report = Report()
    run(summarizer.should_summarize_with_context(context_with_report(EMPTY_CONTEXT, report), of))
    return report.trigger


def test_headline_order_is_context_token_event_time():
    """SUM-REP-03."""
    names = ["custom", "time_threshold", "event_threshold", "token_threshold", "context_threshold"]
    checks = [Check(name=name, passed=True) for name in names]
    found = []
    while checks:
        found.append(headline(checks).name)
        checks = [check for check in checks if check.name != found[-1]]
    assert found == ["context_threshold", "token_threshold", "event_threshold", "time_threshold", "custom"]


def test_the_failing_check_is_the_headline():
    """SUM-REP-02, SUM-REP-03, SUM-CHK-02: checks behind it aren't evaluated."""
    summarizer = Summarizer(None, event_threshold=2, token_threshold=9999, checks=[pytest.fail])
    trigger = gated(summarizer, session(numbered(4)))
    assert (trigger.fired, trigger.name, trigger.metric, trigger.unit) == (False, "token_threshold", "tokens", "tokens")
    assert [(c.name, c.passed) for c in trigger.checks] == [("event_threshold", True), ("token_threshold", False)]
    assert trigger.stopped_by == f"token_threshold: {trigger.value:g} is not above 9999 tokens"


def test_stopped_before_any_check():
    """SUM-CHK-04, SUM-REP-03."""
    trigger = gated(Summarizer(None, event_threshold=0), session([user(" ")], scope_filter_key="b"))
    assert trigger == Trigger(stopped_by=trigger.stopped_by)
    assert trigger.stopped_by


def test_no_checks_always_fire_when_there_is_content():
    """SUM-CHK-03, SUM-REP-02."""
    assert gated(Summarizer(None), session([user("q")], scope_filter_key="app")) == Trigger(
        fired=True, name=ALWAYS, metric="custom", filter_key="app"
    )


def test_a_custom_check_says_no_by_name():
    """SUM-REP-02."""

    def business_hours(of):
        return False

    assert gated(Summarizer(None, checks=[business_hours]), session([user("q")])).stopped_by == "business_hours said no"


def test_forced_runs_have_a_trigger_of_their_own():
    """SUM-REP-04."""
    assert named_trigger(FORCE, filter_key="app/x") == Trigger(
        fired=True, name="force", metric="custom", filter_key="app/x"
    )


def test_a_direct_summary_is_manual_and_a_checked_one_keeps_its_trigger():
    """SUM-REP-04."""
    summarizer = Summarizer(ScriptedModel(), event_threshold=0)
    assert summarized(summarizer, session([user("q")])).trigger.name == MANUAL
    report = Report(trigger=named_trigger(FORCE, filter_key=""))
    run(summarizer.summarize(session([user("q")]), ctx=context_with_report(EMPTY_CONTEXT, report)))
    assert report.trigger.name == FORCE


def test_the_three_token_figures_are_separate():
    """SUM-REP-01, SUM-REP-06."""
    model = ScriptedModel(
        [ScriptedAnswer(content="S", usage=Usage(prompt_tokens=77, completion_tokens=1, cached_tokens=64))],
        context_window=1000,
    )
    summarizer = Summarizer(model, prompt="SUM<{conversation_text}>", token_threshold=0)
    of, report = session([user("alpha", filter_key="app")]), Report()
    ctx = context_with_report(EMPTY_CONTEXT, report)

    async def both():
        assert await summarizer.should_summarize_with_context(ctx, of)
        return await summarizer.summarize(of, ctx=ctx)

    run(both())
    assert report.trigger.value == len("user: alpha") // 4
    assert report.call.estimated_prompt_tokens == len("SUM<user: alpha>") // 4
    assert (report.call.prompt_tokens, report.call.cached_tokens) == (77, 64)
    assert report.call.mode == "standalone"
    assert report.call.requests == (model.requests[0],)


def test_usage_of_an_early_response_stays():
    """SUM-REP-06, E31."""
    model = ScriptedModel(["", ScriptedAnswer(content="S", usage=Usage(0, 0, 0))], name="m", context_window=1000)
    model_with_usage = ScriptedModel(
        [ScriptedAnswer(content="", usage=Usage(prompt_tokens=9)), ScriptedAnswer(content="S", usage=Usage(0, 0, 0))],
        context_window=1000,
    )
    assert summarized(Summarizer(model), session([user("q")])).call.prompt_tokens == 0
    report = summarized(Summarizer(model_with_usage), session([user("q")]))
    assert report.call.prompt_tokens == 9
    assert len(report.call.requests) == 2


def test_a_custom_response_is_no_call_but_its_usage_counts():
    """SUM-REP-05, SUM-REP-06."""
    answer = ScriptedAnswer(content="C", usage=Usage(prompt_tokens=5)).responses("x", 1)[0]
    callbacks = ModelCallbacks().register_before_model(lambda ctx, args: BeforeModelResult(custom_response=answer))
    report = summarized(Summarizer(ScriptedModel(), model_callbacks=callbacks), session([user("q")]))
    assert (report.call.mode, report.call.estimated_prompt_tokens) == ("custom_response", 0)
    assert (report.call.prompt_tokens, report.call.requests) == (5, ())


def test_a_fork_reports_its_mode():
    """SUM-REP-05."""
    parent = Request(messages=(Message(role="user", content="q"),))
    ctx = context_with_cache_safe_fork_request(EMPTY_CONTEXT, parent)
    report = summarized(Summarizer(ScriptedModel(), cache_safe_forking=True), session([user("q")]), ctx)
    assert report.call.mode == "cache_safe_fork"


def test_what_was_cut_is_reported():
    """SUM-FIT-14, section 19 (2026-08-04): a lossy request says so."""
    of = session([user("x" * 5000)])
    report = summarized(Summarizer(ScriptedModel(context_window=200), prompt="{conversation_text}"), of)
    kept = len(report.call.requests[0].messages[0].content)
    assert 4000 < report.call.dropped_chars < 5000
    assert kept <= 4 * 140 + 3


def test_a_clone_is_independent():
    """SUM-REP-08."""
    report = Report(trigger=trigger_from_check(Check(name="a", passed=True), [Check(name="a")], filter_key="k"))
    twin = report.clone()
    twin.trigger.checks[0].name = "changed"
    twin.trigger.checks.append(Check())
    twin.call.mode = "standalone"
    assert [check.name for check in report.trigger.checks] == ["a"]
    assert report.call.mode == ""
    assert report.clone() == report
