"""One summary's model calls: collecting, retry, budgets, callbacks, reports."""

from __future__ import annotations

import asyncio

import pytest

from tests.summary.events import numbered, run, session, user
from tests.summary.pipeline import PARENT, SEPARATE, model, rolled, sent, summarize, summarizer
from workbench.call import EMPTY_CONTEXT
from workbench.errors import (
    ContextLengthError,
    EmptySummaryError,
    SummaryCallbackError,
    SummaryError,
    SummaryInputTooLargeError,
    SummaryModelError,
)
from workbench.model.scripted import ScriptedAnswer, ScriptedModel
from workbench.model.types import Choice, GenerationConfig, Message, Request, Response, ResponseError
from workbench.profiles import SEED, TRPC_AGENT_GO_2026_07, TRPC_AGENT_GO_2026_08
from workbench.session.types import STATE_LAST_INCLUDED_EVENT_ID
from workbench.summary.callbacks import AfterModelResult, BeforeModelResult, ModelCallbacks
from workbench.summary.checkers import ContextThreshold
from workbench.summary.context import (
    context_with_previous_summary,
    context_with_report,
    report_from_context,
)
from workbench.summary.report import Report
from workbench.summary.selection import previous_summary_event
from workbench.summary.summarizer import Summarizer
from workbench.tokens import SimpleTokenCounter
from workbench.wording import PREVIOUS_SUMMARY_CUT


def streaming(*responses):
    class Stream(ScriptedModel):
        async def generate(self, ctx, request):
            self.requests.append(request)
            for response in responses:
                yield response

    return Stream(context_window=1000)


def said(text, *, done=False, delta=""):
    return Response(choices=(Choice(Message(content=text), Message(content=delta)),), done=done, is_partial=not done)


def test_contents_are_joined_up_to_done_and_deltas_ignored():
    """SUM-CALL-01."""
    of_model = streaming(said(" a", delta="x"), said("b"), Response(done=False), said("c ", done=True), said("never"))
    assert summarize(summarizer(of_model), session([user("q")])) == "abc"
    assert summarize(summarizer(streaming(said("no done"))), session([user("q")])) == "no done"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ResponseError("t", "m", "c"), "[t] m (code: c)"),
        (ResponseError("", "m", ""), "m"),
        (ResponseError("t", "", ""), "[t]"),
    ],
)
def test_a_response_error_fails_with_its_facts(error, text):
    """SUM-CALL-02, SUM-ERR-10, SUM-RUN-04."""
    of = session(numbered(1))
    with pytest.raises(SummaryModelError) as caught:
        summarize(summarizer(model(ScriptedAnswer(error=error))), of)
    assert str(caught.value).endswith(f": {text}")
    assert of.state == {}


def test_an_exception_of_the_model_is_chained():
    """SUM-CALL-02, SUM-ERR-10."""

    class NoStream(ScriptedModel):
        def generate(self, ctx, request):
            return None

    for broken in (model(ScriptedAnswer(call_error="boom")), NoStream()):
        with pytest.raises(SummaryModelError) as caught:
            summarize(summarizer(broken), session([user("q")]))
        assert caught.value.__cause__ is not None


def test_cancellation_ends_a_call_that_never_answers():
    """SUM-CALL-02."""
    of, reports = session(numbered(1)), []
    by = summarizer(model(ScriptedAnswer(never_answers=True)), report_hook=lambda c, r: reports.append(r))

    async def cancelled():
        task = asyncio.ensure_future(by.summarize(of))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(cancelled())
    assert of.state == {}


CONTEXT_ERRORS = [
    ScriptedAnswer(call_error="Maximum context length is 10"),
    ScriptedAnswer(call_error="Input is TOO LONG; input is too long"),
    ScriptedAnswer(error=ResponseError("invalid", "nope", "context_length_exceeded")),
    ScriptedAnswer(error=ResponseError("context_window_exceeded", "", "")),
    ScriptedAnswer(error=ResponseError("x", "the prompt is too long", "")),
]


@pytest.mark.parametrize("first", [*CONTEXT_ERRORS, "", " \n", ScriptedAnswer(no_choices=True)])
def test_one_retry_standalone_with_half_the_budget(first):
    """SUM-CALL-03, SUM-CALL-04, E27, E28."""
    of_model = model(first, "SECOND", window=300)
    of = session([user("x" * 5000, id="e1", at=1)])
    by = summarizer(of_model, cache_safe_forking=True)
    assert summarize(by, of, parent=PARENT) == "SECOND"
    assert len(of_model.requests) == 2
    assert of_model.requests[0].messages[:-1] == PARENT.messages
    assert 105 - 3 <= len(sent(of_model)) // 4 <= 105
    assert of.state[STATE_LAST_INCLUDED_EVENT_ID] == b"e1"


def test_our_own_client_says_so_by_type():
    """SUM-CALL-04."""

    class TooLong(ScriptedModel):
        async def generate(self, ctx, request):
            self.requests.append(request)
            if len(self.requests) == 1:
                raise ContextLengthError("needs more room")
            yield said("S", done=True)

    assert summarize(summarizer(TooLong()), session([user("q")])) == "S"


def test_other_errors_are_not_tried_again():
    """SUM-CALL-03."""
    for answer in (ScriptedAnswer(call_error="boom"), ScriptedAnswer(error=ResponseError("t", "rate limit", ""))):
        of_model = model(answer, "SECOND")
        with pytest.raises(SummaryModelError):
            summarize(summarizer(of_model), session([user("q")]))
        assert len(of_model.requests) == 1


def test_there_is_never_a_third_attempt():
    """SUM-CALL-03, SUM-CALL-05, SUM-ERR-11."""
    of_model, of = model("", "", "THIRD"), session(numbered(1))
    with pytest.raises(EmptySummaryError, match=r"\b15\b"):
        summarize(summarizer(of_model), of)
    assert len(of_model.requests) == 2
    assert of.state == {}
    again = model(*CONTEXT_ERRORS[:2], "THIRD")
    with pytest.raises(SummaryModelError):
        summarize(summarizer(again), session([user("q")]))


def test_a_retry_that_cannot_be_built_is_an_error():
    """SUM-CALL-05, SUM-ERR-07."""
    of_model = model("", "SECOND", window=110)
    with pytest.raises(SummaryInputTooLargeError):
        summarize(summarizer(of_model, "x" * 150 + "{conversation_text}"), session([user("y" * 900)]))
    assert len(of_model.requests) == 1


def test_a_prompt_over_the_budget_never_reaches_the_model():
    """SUM-FIT-12, SUM-ERR-07."""
    of_model, reports = model(window=20), []
    by = summarizer(of_model, "x" * 200 + "{conversation_text}", report_hook=lambda c, r: reports.append(r.error))
    with pytest.raises(SummaryInputTooLargeError):
        summarize(by, session([user("q")]))
    assert of_model.requests == []
    assert isinstance(reports[0], SummaryInputTooLargeError)


@pytest.mark.parametrize("fork", [False, True])
def test_text_that_was_cut_counts_as_covered(fork):
    """SUM-FIT-14, E26."""
    of_model, of = model(window=100), session([user("y" * 900, id="e1", at=1)])
    parent = Request(messages=(Message(role="user", content="z" * 900),)) if fork else None
    summarize(summarizer(of_model, cache_safe_forking=fork), of, parent=parent)
    assert len(sent(of_model)) < 300
    assert of.state[STATE_LAST_INCLUDED_EVENT_ID] == b"e1"


def test_lossless_summarizes_a_prefix_and_moves_the_boundary_no_further():
    """SUM-FIT-22, SUM-FIT-24."""
    of_model, of = model(window=100), session(numbered(6, text="y" * 100))
    summarize(summarizer(of_model, overflow_policy="lossless"), of)
    assert sent(of_model).count("yyy 2") == 1
    assert of.state[STATE_LAST_INCLUDED_EVENT_ID] == b"e2"


def test_lossless_with_a_pre_hook_fails_rather_than_guess():
    """SUM-FIT-21, SUM-FIT-22."""
    of_model, of = model(window=100), session(numbered(6, text="y" * 100))
    by = summarizer(of_model, overflow_policy="lossless", pre_summary_hook=lambda given: None)
    with pytest.raises(SummaryInputTooLargeError):
        summarize(by, of)
    assert (of_model.requests, of.state) == ([], {})


def test_a_lossless_retry_may_choose_a_shorter_prefix():
    """SUM-CALL-05."""
    of_model, of = model("", "SECOND", window=200), session(numbered(6, text="y" * 100))
    assert summarize(summarizer(of_model, profile=TRPC_AGENT_GO_2026_08), of) == "SECOND"
    assert of.state[STATE_LAST_INCLUDED_EVENT_ID] == b"e2"
    assert len(sent(of_model, 0)) > len(sent(of_model, 1))


def test_lossless_cuts_only_the_previous_summary():
    """SUM-FIT-21."""
    of_model = model(window=100)
    by = summarizer(of_model, SEPARATE, overflow_policy="lossless")
    summarize(by, rolled(previous="p" * 900), previous="p" * 900)
    assert PREVIOUS_SUMMARY_CUT in sent(of_model)
    assert "user: message 3\nagent: message 4" in sent(of_model)


def test_a_failing_counter_fails_the_attempt():
    """SUM-FIT-04, E32."""

    class NoRange(SimpleTokenCounter):
        def count_tokens_range(self, ctx, messages, start, end):
            raise RuntimeError("no")

    with pytest.raises(SummaryError) as caught:
        summarize(summarizer(model(), token_counter=NoRange()), session([user("q")]))
    assert isinstance(caught.value.__cause__, RuntimeError)


# --- callbacks ------------------------------------------------------------------------------------------------


def before(change):
    def callback(ctx, args):
        args.request = change(args.request)

    return ModelCallbacks().register_before_model(callback)


def test_callbacks_see_and_edit_the_final_request():
    """SUM-FIT-05, SUM-CB-01, E30."""
    seen = []

    def change(request):
        seen.append(request)
        return request.replace(headers={"X": "1"}, generation_config=GenerationConfig(max_tokens=9))

    of_model = model(window=100)
    big = Request(messages=(Message(role="user", content="x" * 5000),))
    summarize(
        summarizer(of_model, cache_safe_forking=True, model_callbacks=before(change)), session([user("q")]), parent=big
    )
    assert seen[0].messages[0].content == "SUM<user: q>"
    assert (of_model.requests[0].headers, of_model.requests[0].generation_config.max_tokens) == ({"X": "1"}, 9)


def test_a_request_that_a_callback_made_too_large_fails_for_good():
    """SUM-FIT-06, SUM-ERR-08, SUM-REP-05, E29."""
    of_model, reports = model("", "SECOND", window=1000), []
    grow = before(lambda r: r.replace(messages=(*r.messages, Message(role="user", content="x" * 17_000))))
    by = summarizer(of_model, model_callbacks=grow, report_hook=lambda c, r: reports.append(r))
    with pytest.raises(SummaryInputTooLargeError, match="callbacks the request no longer fits"):
        summarize(by, session([user("q")]))
    assert of_model.requests == []
    assert [(r.call.mode, r.call.estimated_prompt_tokens) for r in reports] == [("", 0)]


def test_a_custom_response_is_not_measured():
    """SUM-FIT-06, SUM-CB-01."""
    custom = said("CUSTOM", done=True)

    def callback(ctx, args):
        args.request = args.request.replace(messages=(Message(content="x" * 17_000),))
        return BeforeModelResult(custom_response=custom)

    of_model = model(window=1000)
    callbacks = ModelCallbacks().register_before_model(callback)
    assert summarize(summarizer(of_model, model_callbacks=callbacks), session([user("q")])) == "CUSTOM"
    assert of_model.requests == []


def test_an_empty_custom_response_is_an_error_without_retry():
    """SUM-CB-04, SUM-CALL-03, SUM-ERR-11."""
    asked = []

    def callback(ctx, args):
        asked.append(1)
        return BeforeModelResult(custom_response=said(" ", done=True))

    with pytest.raises(EmptySummaryError):
        summarize(
            summarizer(model(), model_callbacks=ModelCallbacks().register_before_model(callback)), session([user("q")])
        )
    assert asked == [1]


def test_callbacks_run_again_for_the_retry():
    """SUM-CALL-03."""
    seen = []
    by = summarizer(model("", "S"), model_callbacks=before(lambda r: seen.append(r) or r))
    summarize(by, session([user("q")]))
    assert len(seen) == 2


def test_after_model_callbacks_may_replace_each_response():
    """SUM-CB-02: also one that carries an error."""
    seen = []

    def callback(ctx, args):
        seen.append((args.response.error, str(args.error)))
        return AfterModelResult(context=ctx.with_value("after", 1), custom_response=said("AFTER", done=True))

    ctxs = []
    by = summarizer(
        model(ScriptedAnswer(error=ResponseError("t", "m", ""))),
        model_callbacks=ModelCallbacks().register_after_model(callback),
        post_summary_hook=lambda given: ctxs.append(given.ctx.value("after")),
    )
    assert summarize(by, session([user("q")])) == "AFTER"
    assert seen == [(ResponseError("t", "m", ""), "[t] m")]
    assert ctxs == [1]


@pytest.mark.parametrize("kind", ["register_before_model", "register_after_model"])
def test_a_failing_callback_fails_the_summary(kind):
    """SUM-CB-01, SUM-CB-02, SUM-ERR-09, SUM-RUN-04."""

    def fail(ctx, args):
        raise ValueError("why")

    of, callbacks = session(numbered(1)), ModelCallbacks()
    getattr(callbacks, kind)(fail)
    with pytest.raises(SummaryCallbackError, match="why"):
        summarize(summarizer(model(), model_callbacks=callbacks), of)
    assert of.state == {}


# --- reports --------------------------------------------------------------------------------------------------


def test_the_report_hook_runs_once_with_a_copy_and_may_fail():
    """SUM-REP-07, SUM-REP-08."""
    got, shared = [], Report()

    async def hook(ctx, report):
        got.append((report_from_context(ctx) is shared, report is not shared, report == shared))
        raise ValueError("ignored")

    by = summarizer(model("", "S"), report_hook=hook)
    assert summarize(by, session([user("q")]), ctx=context_with_report(EMPTY_CONTEXT, shared)) == "S"
    assert got == [(True, True, True)]


def test_a_check_that_does_not_fire_calls_no_report_hook():
    """SUM-REP-07."""
    by = summarizer(model(), event_threshold=5, report_hook=lambda ctx, report: pytest.fail("called"))
    assert run(by.should_summarize(session([user("q")]))) is False


def test_one_report_travels_from_check_to_call():
    """SUM-REP-08."""
    report = Report()
    ctx = context_with_report(EMPTY_CONTEXT, report)
    by, of = summarizer(model(), event_threshold=0), session(numbered(1))

    async def both():
        await by.should_summarize_with_context(ctx, of)
        await by.summarize(of, ctx=ctx)

    run(both())
    assert (report.trigger.name, report.call.mode, report.error) == ("event_threshold", "standalone", None)


def test_an_attached_report_gets_the_error():
    """SUM-REP-01."""
    report = Report()
    with pytest.raises(SummaryModelError):
        summarize(
            summarizer(model(ScriptedAnswer(call_error="boom"))),
            session([user("q")]),
            ctx=context_with_report(EMPTY_CONTEXT, report),
        )
    assert isinstance(report.error, SummaryModelError)


def test_a_plain_session_with_the_synthetic_event_is_understood():
    """SUM-RUN-03, SUM-CHK-06 (D4)."""
    of_model = model()
    of = session([previous_summary_event("old", now_ns=10**18), user("q", at=1)])
    summarize(summarizer(of_model, SEPARATE), of, previous="old")
    assert sent(of_model) == "PREV<old>CONV<user: q>"
    ctx = context_with_previous_summary(EMPTY_CONTEXT, "old")
    for profile, fires in ((SEED, False), (TRPC_AGENT_GO_2026_07, True)):
        by = summarizer(None, event_threshold=1, profile=profile)
        assert run(by.should_summarize_with_context(ctx, of)) is fires


def test_a_context_threshold_may_be_given_as_options():
    """SUM-OPT-01, SUM-CHK-12."""
    by = Summarizer(None, context_threshold=ContextThreshold(fallback_window=10, min_tokens=0))
    assert run(by.should_summarize(session([user("x" * 40)]))) is True
