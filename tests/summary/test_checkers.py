"""Checkers: thresholds, windows, gaps, combinations, and the values they report."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.summary.events import SECOND, agent, event, numbered, result, run, session, user
from workbench.call import EMPTY_CONTEXT
from workbench.clock import FixedClock, SystemClock
from workbench.model.scripted import ScriptedModel
from workbench.model.types import Message
from workbench.model.windows import model_windows_restored, register_model_context_window
from workbench.session.types import STATE_LAST_INCLUDED_EVENT_ID, STATE_LAST_INCLUDED_TS, SummaryBoundary
from workbench.summary.checkers import (
    CheckRun,
    Composite,
    ContextThreshold,
    EventThreshold,
    TokenThreshold,
    check_context_threshold,
    check_event_threshold,
    check_time_threshold,
    check_token_threshold,
    check_token_threshold_context,
    checks_all,
    checks_all_context,
    checks_any,
    checks_any_context,
    checks_from_options,
    measure,
    remember_request_gap,
)
from workbench.summary.context import (
    RequestGapObservation,
    context_with_report,
    context_with_request_gap,
    context_with_run_model,
)
from workbench.summary.delta import delta_of, delta_session
from workbench.summary.report import Report
from workbench.summary.summarizer import Summarizer
from workbench.tokens import SimpleTokenCounter, token_counter_in_force


def text_of(n_tokens: int) -> str:
    """Content whose conversation text, `user: ` included, is exactly so many tokens."""
    return "x" * (4 * n_tokens - len("user: "))


def checked(checker, of, *, clock=None, fallback_window=0, ctx=EMPTY_CONTEXT):
    """The check with its value, as a summarizer would measure it."""
    delta = delta_of(of, counts_head=False)
    return checker.measure(CheckRun(ctx, of, delta, clock=clock or SystemClock(), fallback_window=fallback_window))


@pytest.mark.parametrize(("n_events", "fires"), [(5, False), (6, True), (10, True)])
def test_equal_to_the_event_threshold_is_not_enough(n_events, fires):
    """SUM-CHK-05, SUM-CHK-08, E01."""
    assert check_event_threshold(5)(session(numbered(n_events))) is fires


def test_a_session_without_events_never_passes():
    """SUM-CHK-08, SUM-CHK-18."""
    for checker in (check_event_threshold(0), check_token_threshold(0), check_time_threshold(timedelta(0))):
        assert checker(session()) is False


def test_an_empty_delta_never_passes_whatever_the_threshold():
    """SUM-CHK-08: below zero too, as the reference allows."""
    below = EventThreshold(-1)
    assert below(session()) is False
    assert below(session(numbered(2), state={STATE_LAST_INCLUDED_EVENT_ID: b"e2"})) is False
    assert below(session([agent("keyed", filter_key="other")])) is True
    assert TokenThreshold(-1)(session([user(" ")])) is False


@pytest.mark.parametrize(("n_tokens", "fires"), [(100, False), (101, True)])
def test_the_label_counts_and_equal_is_not_enough(n_tokens, fires):
    """SUM-CHK-05, SUM-CHK-09, E09."""
    assert check_token_threshold(100)(session([user(text_of(n_tokens))])) is fires


def test_reasoning_counts_although_it_is_not_summarized():
    """SUM-CHK-09, E10."""
    thinking = event(Message(content="ok", reasoning_content="r" * 800), author="agent")
    assert check_token_threshold(100)(session([thinking])) is True


def test_tokens_use_the_built_in_formatters_whatever_is_configured():
    """SUM-CHK-09."""
    summarizer = Summarizer(None, token_threshold=0, tool_result_formatter=lambda message: "z" * 1000)
    report = Report()
    run(summarizer.should_summarize_with_context(context_with_report(EMPTY_CONTEXT, report), session([result("r")])))
    assert report.trigger.value == len("agent: [search returned: r]") // 4


def test_no_text_or_a_failing_counter_is_zero_tokens():
    """SUM-CHK-11."""

    class Failing(SimpleTokenCounter):
        def count_tokens(self, ctx, message):
            raise RuntimeError("no")

    with token_counter_in_force(Failing()):
        assert check_token_threshold(0)(session([user("text")])) is False
    assert check_token_threshold(0)(session([user("  ")])) is False


def test_a_coroutine_counter_makes_the_verdict_awaitable():
    """SUM-CHK-01, SUM-TOK-01."""

    class Later(SimpleTokenCounter):
        async def count_tokens(self, ctx, message):
            return len(message.content)

    class Broken(SimpleTokenCounter):
        async def count_tokens(self, ctx, message):
            raise RuntimeError("no")

    async def verdict():
        both = checks_all([check_token_threshold(8), check_token_threshold(9)])
        return await check_token_threshold(8)(session([user("abc")])), await both(session([user("abc")]))

    with token_counter_in_force(Later()):
        assert run(verdict()) == (True, False)
    with token_counter_in_force(Broken()):
        assert run(verdict()) == (False, False)


@pytest.mark.parametrize(
    ("options", "window", "n_tokens", "fires"),
    [
        (ContextThreshold(), 0, 4096, False),
        (ContextThreshold(), 0, 4097, True),
        (ContextThreshold(), 131_072, 5000, False),
        (ContextThreshold(ratio=0.1), 0, 2000, False),
        (ContextThreshold(ratio=0.1), 0, 2001, True),
        (ContextThreshold(ratio=0.1, min_tokens=0), 0, 820, True),
        (ContextThreshold(fallback_window=8192), 131_072, 5000, True),
    ],
)
def test_share_of_the_window_with_a_floor(options, window, n_tokens, fires):
    """SUM-CHK-12, SUM-CHK-13, SUM-CHK-14, E11, E12."""
    measured = checked(check_context_threshold(options), session([user(text_of(n_tokens))]), fallback_window=window)
    assert measured.passed is fires
    assert measured.threshold == max(int(measured.context_window * options.ratio), options.min_tokens)


def test_window_of_run_then_instance_then_registry_then_fallback():
    """SUM-CHK-13."""
    checker = check_context_threshold(ContextThreshold(fallback_window=50))
    one = session([user("q")])

    def window(**run_model):
        return checked(checker, one, ctx=context_with_run_model(EMPTY_CONTEXT, **run_model)).context_window

    with model_windows_restored():
        register_model_context_window("known", 30)
        register_model_context_window("zero", 0)
        assert window(model=ScriptedModel(name="known", context_window=20), model_context_window=10) == 10
        assert window(model=ScriptedModel(name="known", context_window=20)) == 20
        assert window(model=ScriptedModel(name="known"), model_context_window=-1) == 30
        assert window(model=ScriptedModel(name="zero")) == 50
        assert window() == 50


def test_the_summarizer_model_in_force_is_the_fallback():
    """SUM-CHK-13, SUM-CHK-16: `set_model` counts, and the option itself stays as it was."""
    option = ContextThreshold(min_tokens=0)
    first = Summarizer(ScriptedModel(context_window=1000), context_threshold=option)
    second = Summarizer(None, context_threshold=option)
    of = session([user(text_of(300))])
    assert run(first.should_summarize(of)) is False
    first.set_model(ScriptedModel(context_window=100))
    assert run(first.should_summarize(of)) is True
    assert run(second.should_summarize(of)) is False
    assert option == ContextThreshold(min_tokens=0)


def test_context_threshold_true_takes_the_defaults():
    """SUM-CHK-12."""
    (checker,) = checks_from_options(context_threshold=True)
    assert checker == check_context_threshold()
    assert checks_from_options(context_threshold=False) == []


def test_full_session_counts_the_primary_agent_only():
    """SUM-CHK-07, SUM-CHK-22, E05."""
    events = [agent("a", filter_key="app"), *(agent("s", filter_key="sub-agent-abc") for _ in range(5))]
    assert check_event_threshold(2)(session(events)) is False
    assert checked(check_event_threshold(0), session([*events, agent("keyless")])).value == 2
    below = session([agent("s", filter_key="app/x")] * 9)
    assert checked(check_event_threshold(0), below).value == 0
    assert check_token_threshold(0)(below) is False


def test_branch_scope_counts_the_branch_and_below():
    """SUM-CHK-07, SUM-KEY-04, E06."""
    keys = ("app", "app/sub", "app/sub", "app/sub/tool", "app/subway")
    of = session([agent("m", filter_key=key) for key in keys], scope_filter_key="app/sub")
    assert checked(check_event_threshold(2), of).value == 3
    assert check_event_threshold(2)(of) is True


def test_delta_starts_behind_the_recorded_boundary():
    """SUM-CHK-06, E02, E03, E04."""

    def counted(state):
        return checked(check_event_threshold(0), session(numbered(5), state=state)).value

    assert counted({STATE_LAST_INCLUDED_EVENT_ID: b"e3", STATE_LAST_INCLUDED_TS: b"garbage"}) == 2
    assert counted({STATE_LAST_INCLUDED_TS: b"1970-01-01T00:00:04Z"}) == 2
    assert counted({STATE_LAST_INCLUDED_TS: b"garbage"}) == 5
    assert counted({STATE_LAST_INCLUDED_EVENT_ID: b"gone", STATE_LAST_INCLUDED_TS: b"1970-01-01T01:00:00Z"}) == 0


def test_standalone_time_is_the_age_of_the_last_event_in_scope():
    """SUM-CHK-18, E07."""
    clock = FixedClock(10_000 * SECOND)
    events = [agent("s", filter_key="app/sub", at=4600), agent("o", filter_key="app/other", at=9400)]
    checker = check_time_threshold(timedelta(hours=1))
    assert checked(checker, session(events), clock=clock).passed is False
    in_branch = checked(checker, session(events, scope_filter_key="app/sub"), clock=clock)
    assert (in_branch.passed, in_branch.value, in_branch.threshold) == (True, 5_400_000, 3_600_000)
    assert checked(checker, session([events[1]], scope_filter_key="app/sub"), clock=clock).passed is False


@pytest.mark.parametrize(
    ("gap", "fires", "value"),
    [
        (RequestGapObservation(available=True, elapsed_ns=30 * SECOND), True, 30_000),
        (RequestGapObservation(available=True, elapsed_ns=20 * SECOND), False, 20_000),
        (RequestGapObservation(available=False), False, 0),
        (RequestGapObservation(available=False, elapsed_ns=30 * SECOND), False, 0),
    ],
)
def test_in_a_runner_only_the_observed_gap_counts(gap, fires, value):
    """SUM-CHK-17, SUM-CHK-05, E08: an unavailable gap doesn't fall back to the clock."""
    of = session([user("q", at=1)])
    measured = checked(
        check_time_threshold(timedelta(seconds=20)), of, ctx=context_with_request_gap(EMPTY_CONTEXT, gap)
    )
    assert (measured.passed, measured.value) == (fires, value)


def test_a_checker_called_with_the_session_only_sees_the_gap_too():
    """SUM-CHK-17: a user's function may call a built-in checker."""
    of = session([user("q", at=1)])
    remember_request_gap(of, None)
    assert check_time_threshold(timedelta(seconds=1))(of) is True
    remember_request_gap(of, RequestGapObservation(available=False))
    assert check_time_threshold(timedelta(seconds=1))(of) is False


def test_empty_combinations():
    """SUM-CHK-19: `all` of nothing is true, `any` of nothing is false, and as options they add nothing."""
    of = session([user("q")])
    assert checks_all([])(of) is True
    assert checks_any([])(of) is False
    assert checks_from_options(all_of=[], any_of=(), all_of_context=[], any_of_context=()) == []


def test_combinations_stop_as_soon_as_they_are_decided():
    """SUM-CHK-19."""
    asked = []

    def say(name, answer):
        def checker(of):
            asked.append(name)
            return answer

        checker.__name__ = name
        return checker

    tree = checks_any([checks_all([say("a", False), say("b", True)]), say("c", True), say("d", True)])
    check = checked(tree, session([user("q")]))
    assert asked == ["a", "c"]
    assert (check.name, check.metric, check.value, check.passed) == ("custom", "custom", 0, True)
    assert [(c.label, c.evaluated, c.passed) for c in check.children] == [
        ("all", True, False),
        ("c", True, True),
        ("d", False, False),
    ]
    assert [(c.label, c.evaluated) for c in check.children[0].children] == [("a", True), ("b", False)]


def test_coroutine_checkers_are_waited_for_inside_combinations():
    """SUM-CHK-01, SUM-CHK-19."""
    asked = []

    async def no(of):
        asked.append("no")
        return False

    async def yes(of):
        asked.append("yes")
        return True

    def never(of):
        raise AssertionError

    async def verdicts():
        of = session([user("q")])
        return await checks_any([no, yes, never])(of), await checks_all([yes, no, never])(of)

    assert run(verdicts()) == (True, False)
    assert asked == ["no", "yes", "yes", "no"]


def test_context_checkers_get_the_context():
    """SUM-CHK-01, SUM-CHK-20: the key is the application's own."""

    class Marker:
        pass

    def is_marked(ctx, of):
        return bool(ctx.value(Marker))

    marked = EMPTY_CONTEXT.with_value(Marker, value=True)
    of = session([user("q")])
    for combine in (checks_all_context, checks_any_context):
        assert combine([is_marked])(marked, of) is True
        assert combine([is_marked])(of) is False
    assert checks_all_context([check_token_threshold_context(0), is_marked])(marked, of) is True


def test_a_plain_function_is_reported_as_custom_by_its_name():
    """SUM-CHK-19, SUM-REP-02."""

    def always_ready(of):
        return 1

    of = session([user("q")])
    check = measure(always_ready, CheckRun(EMPTY_CONTEXT, of, delta_of(of, counts_head=False)), with_context=False)
    assert (check.name, check.passed, check.label) == ("custom", True, "always_ready")


@pytest.mark.parametrize(
    "make",
    [
        lambda: check_event_threshold(-1),
        lambda: check_token_threshold(-1),
        lambda: check_event_threshold(True),
        lambda: check_time_threshold(timedelta(seconds=-1)),
        lambda: ContextThreshold(ratio=0),
        lambda: ContextThreshold(ratio=1.1),
        lambda: ContextThreshold(min_tokens=-1),
        lambda: ContextThreshold(fallback_window=0),
        lambda: Summarizer(None, event_threshold=-1),
    ],
)
def test_limits_out_of_range_are_refused(make):
    """SUM-ERR-02, SUM-CHK-12."""
    with pytest.raises(ValueError, match="allowed"):
        make()


def test_options_become_checks_in_a_fixed_order():
    """SUM-CHK-02, SUM-OPT-01."""

    def own(of):
        return True

    checks = checks_from_options(
        context_threshold=True,
        time_threshold=timedelta(1),
        token_threshold=2,
        event_threshold=1,
        checks=[own],
        any_of=[own],
        all_of=[own],
        any_of_context=[own],
        all_of_context=[own],
    )
    names = [c.kind if isinstance(c, Composite) else getattr(c, "__name__", type(c).__name__) for c in checks]
    thresholds = ["EventThreshold", "TokenThreshold", "TimeThreshold", "WindowShare"]
    assert names == [*thresholds, "own", "all", "any", "all", "any"]


def test_the_previous_summary_in_front_does_not_count_by_itself():
    """SUM-CHK-06: bare checkers on a run's temporary session follow its profile (D4)."""
    live = session(numbered(2))
    boundary = SummaryBoundary(last_event_id="e1")
    temporary = delta_session(live, filter_key="", boundary=boundary, previous_summary="old", now_ns=9)
    assert checked(check_event_threshold(0), temporary).value == 1
    assert check_event_threshold(1)(temporary) is False
