"""One summary's input: selection, previous summary, options, forks, hooks, boundary."""

from __future__ import annotations

import pytest

from tests.summary.events import agent, call, calls, numbered, result, run, session, user
from tests.summary.pipeline import PARENT, SEPARATE, model, rolled, sent, summarize, summarizer
from workbench.call import EMPTY_CONTEXT
from workbench.errors import (
    ConfigError,
    NothingToSummarizeError,
    PromptRenderError,
    SummaryError,
    SummaryHookError,
)
from workbench.model.scripted import ScriptedModel
from workbench.model.types import Message, Request, ToolSpec
from workbench.profiles import SEED, TRPC_AGENT_GO_2026_07, TRPC_AGENT_GO_2026_08
from workbench.session.types import STATE_LAST_INCLUDED_EVENT_ID, STATE_LAST_INCLUDED_TS
from workbench.summary.callbacks import ModelCallbacks
from workbench.summary.context import (
    context_with_report,
    report_from_context,
)
from workbench.summary.delta import delta_session
from workbench.summary.report import Report
from workbench.summary.summarizer import Summarizer, SummarySettings
from workbench.tokens import SimpleTokenCounter, token_counter_in_force
from workbench.wording import SOURCE_BOUNDARY_NOTE


def test_a_summary_leaves_the_events_alone_and_records_the_boundary():
    """SUM-SEL-05, SUM-SEL-06, SUM-REQ-01, SUM-DM-15."""
    of_model, of = model("S"), session(numbered(3))
    before = list(of.events)
    assert summarize(summarizer(of_model), of) == "S"
    assert of.events == before
    assert of.state[STATE_LAST_INCLUDED_EVENT_ID] == b"e3"
    (request,) = of_model.requests
    assert request == Request(
        messages=(Message(role="user", content="SUM<user: message 1\nagent: message 2\nuser: message 3>"),)
    )


def test_steps_run_in_one_order():
    """SUM-RUN-01."""
    steps = []

    def note(name):
        return lambda *given: steps.append(name)

    class Noting(ScriptedModel):
        def generate(self, ctx, request):
            steps.append("model")
            return super().generate(ctx, request)

    callbacks = ModelCallbacks().register_before_model(note("before")).register_after_model(note("after"))
    by = summarizer(
        Noting(["", "S"], context_window=1000),
        skip_recent=lambda events: steps.append("select") or 0,
        tool_call_formatter=lambda c: steps.append("text") or "call",
        pre_summary_hook=note("pre"),
        post_summary_hook=note("post"),
        model_callbacks=callbacks,
        report_hook=note("report"),
    )
    summarize(by, session([calls(call())]))
    attempt = ["before", "model", "after"]
    assert steps == ["select", "text", "pre", *attempt, *attempt, "report", "post"]


def test_the_policy_is_the_option_else_the_profile():
    """SUM-FIT-01 (D1)."""
    of = session(numbered(6, text="y" * 100))

    def covered(**options):
        twin = session(of.events)
        summarize(summarizer(model(window=100), **options), twin)
        return twin.state[STATE_LAST_INCLUDED_EVENT_ID]

    assert covered() == covered(profile=TRPC_AGENT_GO_2026_07) == b"e6"
    assert covered(profile=TRPC_AGENT_GO_2026_08) == covered(overflow_policy="lossless") == b"e2"
    assert covered(profile=TRPC_AGENT_GO_2026_08, overflow_policy="bounded") == b"e6"


def test_a_provider_budget_below_the_window_counts():
    """SUM-FIT-02, E22."""
    of_model = model(window=1000, input_token_budget=220)
    summarize(summarizer(of_model), session([user("x" * 5000)]))
    assert 215 <= len(sent(of_model)) // 4 <= 220


def test_a_system_prompt_is_a_message_of_its_own_unless_blank():
    """SUM-REQ-01, SUM-PRM-04."""
    of_model = model()
    limited = summarizer(of_model, system_prompt="Keep to {max_summary_words} words.", max_summary_words=9)
    summarize(limited, session([user("q")]))
    assert of_model.requests[0].messages[0] == Message(role="system", content="Keep to 9 words.")
    summarize(summarizer(of_model, system_prompt=" {max_summary_words}\n"), session([user("q")]))
    assert [m.role for m in of_model.requests[1].messages] == ["user"]


def test_skipped_events_stay_uncovered():
    """SUM-SEL-05: the boundary is the last selected event."""
    of_model, of = model(), session(numbered(4))
    summarize(summarizer(of_model, skip_recent=2), of)
    assert sent(of_model) == "SUM<user: message 1\nagent: message 2>"
    assert of.state[STATE_LAST_INCLUDED_EVENT_ID] == b"e2"


def test_skip_recent_holds_for_the_token_check_but_not_for_the_event_check():
    """SUM-CHK-08, SUM-CHK-10: also inside combinations."""
    from workbench.summary.checkers import check_event_threshold, check_token_threshold

    of = session(numbered(4))
    seven = len("user: message 1") // 4 + len("agent: message 2") // 4
    for checks in ([check_token_threshold(seven + 1)],):
        assert run(Summarizer(None, skip_recent=2, checks_any=checks).should_summarize(of)) is False
        assert run(Summarizer(None, checks_any=checks).should_summarize(of)) is True
    assert run(Summarizer(None, skip_recent=2, checks_all=[check_event_threshold(3)]).should_summarize(of)) is True


def test_a_branch_run_is_narrowed_after_skipping():
    """SUM-SEL-04, SUM-KEY-05."""
    of_model = model()
    live = session([user("root", id="r", filter_key="app"), agent("mine", id="m", filter_key="app/sub")])
    summarize(summarizer(of_model), delta_session(live, filter_key="app/sub", boundary=None, now_ns=1))
    assert sent(of_model) == "SUM<agent: mine>"


def test_a_cascaded_full_run_summarizes_everything():
    """SUM-CAS-06."""
    of_model = model()
    live = session([user("root", filter_key="app"), agent("mine", filter_key="app/sub")])
    summarize(summarizer(of_model), delta_session(live, filter_key="", scope="app/sub", boundary=None, now_ns=1))
    assert sent(of_model) == "SUM<user: root\nagent: mine>"


# --- previous summary ---------------------------------------------------------------------------------------


def test_without_a_place_the_previous_summary_is_the_first_line():
    """SUM-RUN-03."""
    of_model = model()
    summarize(summarizer(of_model), rolled(), previous="old facts")
    assert sent(of_model) == "SUM<system: old facts\nuser: message 3\nagent: message 4>"


def test_with_a_place_it_stands_there_and_nowhere_else():
    """SUM-RUN-03, SUM-PRM-04."""
    of_model = model()
    summarize(summarizer(of_model, SEPARATE), rolled(), previous="old facts")
    assert sent(of_model) == "PREV<old facts>CONV<user: message 3\nagent: message 4>"
    summarize(summarizer(of_model, SEPARATE), session([user("q")]))
    assert sent(of_model) == "PREV<>CONV<user: q>"


def test_the_previous_summary_alone_can_be_summarized_again():
    """SUM-RUN-02, E19, E37."""
    of_model = model()
    assert summarize(summarizer(of_model, SEPARATE), session(), previous="old facts") == "SUMMARY-1"
    assert sent(of_model) == "PREV<old facts>CONV<>"
    for profile, moves in ((SEED, False), (TRPC_AGENT_GO_2026_07, True)):
        of = rolled(n_new=0)
        summarize(summarizer(of_model, profile=profile), of, previous="old facts")
        assert sent(of_model) == "SUM<system: old facts>"
        assert (STATE_LAST_INCLUDED_TS in of.state) is moves


# --- errors before the model is called ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "of"),
    [
        ({}, session()),
        ({}, session([user("  ")])),
        ({"skip_recent": 5}, session(numbered(3))),
        ({"tool_call_formatter": lambda c: "", "tool_result_formatter": lambda m: ""}, session([calls(call())])),
        ({"prompt": SEPARATE}, session()),
    ],
)
def test_nothing_to_summarize_is_an_error_without_call_or_report(options, of):
    """SUM-RUN-02, SUM-SEL-03, SUM-ERR-05, SUM-REP-07."""
    of_model, reports = model(), []
    by = summarizer(
        of_model, **{"prompt": "{conversation_text}", **options}, report_hook=lambda c, r: reports.append(r)
    )
    with pytest.raises(NothingToSummarizeError):
        summarize(by, of)
    assert (of_model.requests, reports, of.state) == ([], [], {})


def test_without_a_model_the_check_still_works():
    """SUM-RUN-02, SUM-ERR-04, SUM-OPT-06."""
    by = summarizer(None, event_threshold=0, name="n")
    assert run(by.should_summarize(session([user("q")]))) is True
    with pytest.raises(SummaryError, match="no summary model"):
        summarize(by, session([user("q")]))
    assert by.metadata() == {
        "model_name": "",
        "summarizer_name": "n",
        "max_summary_words": 0,
        "model_available": False,
        "check_functions": 1,
        "skip_recent_enabled": False,
        "cache_safe_forking": False,
    }


def test_an_unknown_placeholder_fails_before_the_model():
    """SUM-PRM-03, SUM-ERR-03, SUM-REP-07: and is reported."""
    of_model, reports = model(), []
    by = summarizer(of_model, "{conversation_text} {zz}", report_hook=lambda ctx, report: reports.append(report))
    with pytest.raises(PromptRenderError):
        summarize(by, session([user("q")]))
    assert of_model.requests == []
    assert [(type(r.error), r.call.mode) for r in reports] == [(PromptRenderError, "")]


# --- options --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"prompt": "x"},
        {"system_prompt": "{conversation_text}"},
        {"prompt": "{conversation_text}", "max_summary_words": 3},
    ],
)
def test_a_broken_prompt_is_an_error_or_a_warning(options):
    """SUM-OPT-03, SUM-ERR-01."""
    with pytest.raises(ValueError, match=r"\{"):
        Summarizer(None, **options)
    assert len(Summarizer(None, **options, profile=TRPC_AGENT_GO_2026_07).warnings) == 1
    assert len(Summarizer(None, **options, prompt_errors="warn").warnings) == 1
    with pytest.raises(ConfigError):
        Summarizer(None, **options, profile=TRPC_AGENT_GO_2026_08, prompt_errors="raise")


def test_an_invalid_new_prompt_leaves_the_old_one():
    """SUM-OPT-05, SUM-ERR-01."""
    of_model = model()
    by = summarizer(of_model, "OLD {conversation_text} {max_summary_words}", max_summary_words=5)
    for bad in ("NEW", "NEW {conversation_text}"):
        with pytest.raises(ConfigError):
            by.set_prompt(bad)
    by.set_prompt("")
    summarize(by, session([user("q")]))
    assert sent(of_model) == "OLD user: q 5"
    by.set_prompt("NEW {conversation_text} {max_summary_words}")
    summarize(by, session([user("q")]))
    assert sent(of_model) == "NEW user: q 5"


def test_the_system_prompt_may_carry_the_limit_for_a_new_prompt():
    """SUM-OPT-02, SUM-OPT-05."""
    by = summarizer(model(), system_prompt="{max_summary_words}", max_summary_words=5)
    by.set_prompt("NEW {conversation_text}")


def test_another_model_counts_from_the_next_summary_on():
    """SUM-OPT-05."""
    first, second = model("one"), model("two")
    by = summarizer(first)
    by.set_model(second)
    by.set_model(None)
    assert summarize(by, session([user("q")])) == "two"
    assert by.model is second
    assert first.requests == []


def test_keyword_arguments_override_settings():
    """SUM-OPT-01, SUM-OPT-04."""
    settings = SummarySettings(prompt="FILE {conversation_text}", skip_recent=1, overflow_policy="lossless")
    by = Summarizer(None, settings, prompt="CODE {conversation_text}", cache_safe_forking=True)
    assert by.settings == settings.replace(prompt="CODE {conversation_text}", cache_safe_forking=True)
    assert by.metadata()["skip_recent_enabled"] is True
    assert Summarizer(None).uses_built_in_prompt
    assert not by.uses_built_in_prompt


@pytest.mark.parametrize(
    "values", [{"skip_recent": -1}, {"overflow_policy": "cut"}, {"max_summary_words": "9"}, {"promt": ""}]
)
def test_settings_refuse_what_no_option_means(values):
    """SUM-ERR-02, SUM-OPT-01."""
    with pytest.raises(ConfigError):
        SummarySettings.parse(values)


def test_the_process_counter_of_the_moment_counts_unless_one_was_given():
    """SUM-TOK-06."""
    by = summarizer(None, token_threshold=5)
    own = summarizer(None, token_threshold=5, token_counter=SimpleTokenCounter(100))
    of = session([user("hello")])
    assert run(by.should_summarize(of)) is False
    with token_counter_in_force(SimpleTokenCounter(1)):
        assert run(by.should_summarize(of)) is True
        assert run(own.should_summarize(of)) is False


def test_the_check_without_context_equals_the_one_with_an_empty_context():
    """SUM-CHK-21."""
    by = summarizer(None, checks_any_context=[lambda ctx, of: "mark" in ctx])
    of = session([user("q")])
    assert run(by.should_summarize(of)) is run(by.should_summarize_with_context(EMPTY_CONTEXT, of)) is False
    assert run(by.should_summarize_with_context(EMPTY_CONTEXT.with_value("mark", 1), of)) is True


# --- forks ----------------------------------------------------------------------------------------------------


def test_a_fork_needs_the_switch_and_a_parent():
    """SUM-REQ-02, SUM-CAS-07."""
    of_model = model()
    off, on = summarizer(of_model), summarizer(of_model, cache_safe_forking=True, cache_safe_fork_prompt="FORK")
    summarize(off, session([user("q")]), parent=PARENT)
    summarize(on, session([user("q")]))
    summarize(on, session([user("q")]), parent=PARENT)
    assert [len(r.messages) for r in of_model.requests] == [1, 1, 3]
    assert sent(of_model) == "FORK"
    assert on.cache_safe_forking


def test_a_parent_without_conversation_fails_and_is_no_reason_to_fall_back():
    """SUM-REQ-04, SUM-ERR-06, E23."""
    of_model = model()
    by = summarizer(of_model, cache_safe_forking=True)
    with pytest.raises(SummaryError, match="no conversation"):
        summarize(by, session([user("q")]), parent=Request(messages=(Message(role="system", content="S"),)))
    assert of_model.requests == []


def test_a_fork_never_repeats_text_or_previous_summary():
    """SUM-REQ-06, SUM-HOOK-05: what a pre hook changes doesn't reach it either."""
    of_model = model()
    by = summarizer(
        of_model,
        cache_safe_forking=True,
        cache_safe_fork_prompt="FORK",
        pre_summary_hook=lambda given: setattr(given, "text", "REDACTED"),
    )
    summarize(by, rolled(), previous="old facts", parent=PARENT)
    assert of_model.requests[0].messages == (*PARENT.messages, Message(role="user", content="FORK"))


def test_a_hooks_change_reaches_the_standalone_fallback():
    """SUM-HOOK-05, SUM-FIT-10."""
    of_model = model(window=100)
    by = summarizer(
        of_model, cache_safe_forking=True, pre_summary_hook=lambda given: setattr(given, "text", "REDACTED")
    )
    big = Request(messages=(Message(role="user", content="x" * 5000),))
    summarize(by, session([user("q")]), parent=big)
    assert sent(of_model) == "SUM<REDACTED>"


@pytest.mark.parametrize("profile", [TRPC_AGENT_GO_2026_08, SEED.replace(fork_prompt_in_fallback=True)])
def test_the_fallback_may_carry_the_fork_prompt(profile):
    """SUM-REQ-05 (D2)."""
    of_model = model()
    by = summarizer(
        of_model, "C {conversation_text}\n\n", cache_safe_forking=True, cache_safe_fork_prompt="FORK", profile=profile
    )
    summarize(by, session([user("q")]))
    assert sent(of_model) == f"C user: q\n\n{SOURCE_BOUNDARY_NOTE}\n\nFORK"
    summarize(
        summarizer(of_model, cache_safe_forking=True, fork_prompt_in_fallback=False, profile=profile),
        session([user("q")]),
    )
    assert SOURCE_BOUNDARY_NOTE not in sent(of_model)


def test_the_parent_never_changes():
    """SUM-REQ-04, E20."""
    tools = (ToolSpec("t", declaration_json="d" * 4000),)
    messages = (
        Message(role="user", content="old " * 400),
        *PARENT.messages,
        *calls(call(arguments="k" * 900)).messages,
    )
    parent = Request(messages=(*messages, *result("r" * 900).messages), tools=tools)
    twin = Request(messages=parent.messages, tools=parent.tools)
    of_model = model(window=1000)
    summarize(summarizer(of_model, cache_safe_forking=True), session([user("q")]), parent=parent)
    assert parent == twin
    assert of_model.requests[0].tools == ()


# --- hooks ----------------------------------------------------------------------------------------------------


def test_the_pre_hook_sees_the_input_and_may_replace_the_text():
    """SUM-HOOK-01, SUM-HOOK-02."""
    of_model, seen = model(), []

    async def hook(given):
        seen.append((given.session, [e.id for e in given.events], given.text, given.previous_summary))
        assert tuple(given.events) == given.source_events
        given.text = "TEXT"

    of = session(numbered(2))
    summarize(summarizer(of_model, pre_summary_hook=hook), of)
    assert seen == [(of, ["e1", "e2"], "user: message 1\nagent: message 2", "")]
    assert sent(of_model) == "SUM<TEXT>"


def test_edited_events_count_only_with_the_text_cleared():
    """SUM-HOOK-02."""
    of_model = model()

    def edit(clear):
        def hook(given):
            given.events = [agent("edited")]
            given.text = "" if clear else given.text

        return hook

    for clear, text in ((False, "SUM<user: q>"), (True, "SUM<agent: edited>")):
        summarize(summarizer(of_model, pre_summary_hook=edit(clear)), session([user("q")]))
        assert sent(of_model) == text


def test_a_hook_that_clears_both_leaves_nothing():
    """SUM-HOOK-02, SUM-ERR-05."""

    def hook(given):
        given.events, given.text = [], ""

    with pytest.raises(NothingToSummarizeError):
        summarize(summarizer(model(), pre_summary_hook=hook), session([user("q")]))


def test_a_changed_previous_summary_counts_only_where_it_has_a_place():
    """SUM-HOOK-03."""
    of_model = model()
    hook = lambda given: setattr(given, "previous_summary", "NEW")  # noqa: E731
    summarize(summarizer(of_model, SEPARATE, pre_summary_hook=hook), rolled(), previous="old facts")
    assert sent(of_model).startswith("PREV<NEW>")
    summarize(summarizer(of_model, pre_summary_hook=hook), rolled(), previous="old facts")
    assert "NEW" not in sent(of_model)


def test_a_changed_context_is_used_from_then_on_with_the_same_report():
    """SUM-HOOK-03."""
    seen, report = [], Report()

    def hook(given):
        given.ctx = EMPTY_CONTEXT.with_value("mine", 1)

    callbacks = ModelCallbacks().register_before_model(lambda ctx, args: seen.append(ctx))
    by = summarizer(
        model(),
        pre_summary_hook=hook,
        post_summary_hook=lambda given: seen.append(given.ctx),
        model_callbacks=callbacks,
    )
    summarize(by, session([user("q")]), ctx=context_with_report(EMPTY_CONTEXT, report))
    assert [ctx.value("mine") for ctx in seen] == [1, 1]
    assert all(report_from_context(ctx) is report for ctx in seen)
    other = Report()
    by = summarizer(
        model(), pre_summary_hook=lambda given: setattr(given, "ctx", context_with_report(given.ctx, other))
    )
    summarize(by, session([user("q")]))
    assert other.call.mode == "standalone"


def test_a_failing_pre_hook_changes_nothing_or_ends_the_summary():
    """SUM-HOOK-04, SUM-ERR-09, SUM-REP-07."""
    of_model, reports = model(), []

    def hook(given):
        given.text = "half done"
        given.ctx = given.ctx.with_value("half", 1)
        raise ValueError("why")

    by = summarizer(of_model, pre_summary_hook=hook)
    assert summarize(by, session([user("q")])) == "SUMMARY-1"
    assert sent(of_model) == "SUM<user: q>"
    aborting = summarizer(
        of_model, pre_summary_hook=hook, hook_abort_on_error=True, report_hook=lambda c, r: reports.append(r)
    )
    with pytest.raises(SummaryHookError, match="why") as caught:
        summarize(aborting, session([user("q")]))
    assert isinstance(caught.value.__cause__, ValueError)
    assert (len(of_model.requests), reports) == (1, [])


@pytest.mark.parametrize(("answer", "text"), [("POSTED", "POSTED"), ("", "SUMMARY-1")])
def test_the_post_hook_may_replace_the_text_by_a_non_empty_one(answer, text):
    """SUM-HOOK-06."""
    assert (
        summarize(
            summarizer(model(), post_summary_hook=lambda given: setattr(given, "summary", answer)), session([user("q")])
        )
        == text
    )


def test_a_failing_post_hook_keeps_the_text_or_takes_the_boundary_back():
    """SUM-HOOK-06, SUM-HOOK-07, SUM-RUN-04, SUM-REP-07."""
    reports = []

    async def hook(given):
        given.summary = "half done"
        assert given.session.state[STATE_LAST_INCLUDED_EVENT_ID] == b"e1"
        raise ValueError("why")

    of = session(numbered(1))
    assert summarize(summarizer(model(), post_summary_hook=hook), of) == "SUMMARY-1"
    for profile, left in ((SEED, b"old"), (TRPC_AGENT_GO_2026_07, b"e1"), (TRPC_AGENT_GO_2026_08, b"old")):
        of = session(numbered(1), state={STATE_LAST_INCLUDED_EVENT_ID: b"old"})
        by = summarizer(
            model(),
            post_summary_hook=hook,
            hook_abort_on_error=True,
            profile=profile,
            report_hook=lambda ctx, report: reports.append(report.error),
        )
        with pytest.raises(SummaryHookError):
            summarize(by, of)
        assert of.state[STATE_LAST_INCLUDED_EVENT_ID] == left
    assert reports == [None, None, None]
