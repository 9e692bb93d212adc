"""The delta: the temporary session of a run, and running sums that equal the slow way."""

from __future__ import annotations

from itertools import takewhile
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.summary.events import agent, call, calls, event, numbered, result, run, session, user
from workbench.call import EMPTY_CONTEXT
from workbench.model.types import Message
from workbench.profiles import TRPC_AGENT_GO_2026_07
from workbench.script_counter import ScriptTokenCounter
from workbench.session.open_calls import OpenCalls
from workbench.session.scope import delta_events, event_matches
from workbench.session.types import STATE_LAST_INCLUDED_EVENT_ID, Event, SummaryBoundary
from workbench.summary import tally
from workbench.summary.delta import (
    DeltaSession,
    ListDelta,
    TallyDelta,
    delta_of,
    delta_session,
    has_input,
    head_of,
    input_scope,
    is_incremental,
)
from workbench.summary.selection import skip_last
from workbench.summary.text import DEFAULT_FORMATTERS, formatters_of
from workbench.tokens import SimpleTokenCounter, TiktokenCounter

BEHIND_E2 = SummaryBoundary(last_event_id="e2")


def delta_from(live, boundary=BEHIND_E2, **options) -> DeltaSession:
    return delta_session(live, **{"filter_key": "", "boundary": boundary, "now_ns": 99, **options})


def test_the_temporary_session_holds_summary_and_delta():
    """SUM-CORE-04."""
    live = session(numbered(4), state={"k": b"v"})
    temporary = delta_from(live, previous_summary="old", filter_key="app/x")
    assert temporary.id == "s1:app/x"
    assert temporary.state == {}
    assert temporary.scope_filter_key == temporary.filter_key == "app/x"
    assert temporary.events == [temporary.head, *live.events[2:]]
    assert (temporary.delta, temporary.delta_count, temporary.last_event) == (live.events[2:], 2, live.events[3])
    assert temporary.head is not None
    assert (temporary.head.author, temporary.head.id, temporary.head.time_ns) == ("system", "", 99)


def test_nothing_is_copied_until_the_list_is_read():
    """SUM-CORE-04, performance.md, decision 11."""
    temporary = delta_from(session(numbered(4)), previous_summary="old")
    assert temporary._events is None
    assert temporary.delta_count == 2
    assert TallyDelta(temporary, counts_head=True).n_counted() == 3
    assert temporary._events is None
    assert len(temporary.events) == 3
    assert temporary.events is temporary.events


def test_events_appended_later_are_not_covered():
    """SUM-CORE-09."""
    live = session(numbered(4))
    temporary = delta_from(live)
    live.append(user("later", id="e5", at=5, filter_key="app"))
    assert temporary.delta_count == 2
    assert [e.id for e in temporary.events] == ["e3", "e4"]
    assert delta_from(live).delta_count == 3


def test_a_boundary_whose_event_is_gone_falls_back_to_its_time():
    """SUM-CORE-03, SUM-CHK-06: events of the cutoff's own time are repeated rather than lost."""
    live = session(numbered(5))
    temporary = delta_from(live, SummaryBoundary(last_event_id="gone", cutoff_ns=live.events[2].time_ns))
    assert [e.id for e in temporary.events] == ["e3", "e4", "e5"]
    assert delta_from(live, SummaryBoundary(last_event_id="gone")).delta_count == 5
    assert delta_from(live, None).delta_count == 5


def test_times_that_do_not_ascend_are_looked_at_one_by_one():
    """SUM-CORE-03."""
    live = session([user("a", id="a", at=5), user("b", id="b", at=1), user("c", id="c", at=5, filter_key="x")])
    cutoff = SummaryBoundary(cutoff_ns=live.events[0].time_ns)
    assert [e.id for e in delta_from(live, cutoff).events] == ["a", "c"]
    temporary = delta_from(live, cutoff, filter_key="y")
    assert [e.id for e in temporary.delta] == ["a"]
    assert (temporary.delta_count, temporary.last_event, temporary.is_a_range) == (1, live.events[0], False)
    assert temporary.has_event_in_scope("y")
    later = delta_from(live, SummaryBoundary(cutoff_ns=10**12))
    assert (later.delta_count, later.last_event) == (0, None)


def test_the_delta_of_a_branch_takes_ancestors_and_descendants():
    """SUM-KEY-03, SUM-KEY-05."""
    keys = ("app", "app/sub", "app/sub/x", "app/other", "")
    live = session([agent("m", id=f"k{i}", at=i, filter_key=key) for i, key in enumerate(keys)])
    temporary = delta_from(live, None, filter_key="app/sub")
    assert [e.id for e in temporary.events] == ["k0", "k1", "k2", "k4"]
    assert temporary.delta_count == 4
    assert temporary.has_event_in_scope("app/sub/x")
    assert delta_from(live, None, filter_key="zzz").last_event == live.events[4]
    assert not delta_from(session(live.events[:1]), None, filter_key="app/sub").has_event_in_scope("app/sub")


def test_a_cascaded_full_target_counts_in_the_branch_but_takes_everything():
    """SUM-CHK-07, SUM-CAS-06, SUM-REP-04."""
    live = session([agent("m", filter_key=key) for key in ("app", "app/sub", "app/sub")])
    temporary = delta_from(live, None, scope="app/sub")
    assert temporary.scope_filter_key == "app/sub"
    assert input_scope(temporary) == ""
    assert len(temporary.events) == 3
    assert delta_of(temporary, counts_head=False).n_counted() == 2
    assert input_scope(session(scope_filter_key="app/x")) == "app/x"


def test_old_events_that_were_trimmed_keep_positions_right():
    """SUM-CORE-03, SUM-STO-06."""
    live = session(numbered(6))
    assert delta_from(live).delta_count == 4
    live.drop_oldest(3)
    assert delta_from(live, SummaryBoundary(last_event_id="e4")).delta_count == 2
    assert delta_from(live, None).delta_count == 3
    live.append(user("new", id="e7", at=7, filter_key="app"))
    assert [e.id for e in delta_from(live, SummaryBoundary(last_event_id="e5")).events] == ["e6", "e7"]


def test_a_written_boundary_makes_the_list_answer():
    """SUM-DM-15: the sums know nothing of a boundary inside the temporary session."""
    temporary = delta_from(session(numbered(5)), None)
    temporary.state[STATE_LAST_INCLUDED_EVENT_ID] = b"e4"
    assert not temporary.is_a_range
    assert delta_of(temporary, counts_head=False).n_counted() == 1


def test_how_the_previous_summary_counts_is_the_profile():
    """SUM-CHK-06 (D4)."""
    live = session(numbered(3))
    temporary = delta_from(live, previous_summary="x" * 400, profile=TRPC_AGENT_GO_2026_07)
    assert temporary.counts_head
    without, with_head = (delta_of(temporary, counts_head=counts) for counts in (False, True))
    assert (without.n_counted(), with_head.n_counted()) == (1, 2)
    counter = SimpleTokenCounter()
    assert without.tokens(EMPTY_CONTEXT, counter) == len("user: message 3") // 4
    assert with_head.tokens(EMPTY_CONTEXT, counter) == len("system: \nuser: message 3" + "x" * 400) // 4


def test_the_head_of_a_plain_session_is_recognised_by_its_text():
    """SUM-RUN-03."""
    temporary = delta_from(session(numbered(3)), previous_summary="old")
    plain = session(temporary.events)
    assert head_of(plain, "old") is plain.events[0]
    assert head_of(plain, "other") is None
    assert delta_of(plain, counts_head=False, previous_summary="old").n_counted() == 1
    assert delta_of(plain, counts_head=True, previous_summary="old").n_counted() == 2


def test_only_line_additive_counters_are_incremental():
    """SUM-TOK-09."""

    class Own(SimpleTokenCounter):
        line_additive = False

    assert is_incremental(SimpleTokenCounter())
    assert is_incremental(TiktokenCounter("cl100k_base"))
    assert is_incremental(ScriptTokenCounter({"han": 1.3}))
    assert not is_incremental(Own())


def test_a_counter_that_is_not_additive_counts_the_whole_text():
    """SUM-TOK-09, SUM-CHK-09."""
    seen = []

    class Own(SimpleTokenCounter):
        line_additive = False

        def count_tokens(self, ctx, message):
            seen.append(message.content)
            return 7

    temporary = delta_from(session(numbered(4)))
    assert delta_of(temporary, counts_head=False).tokens(EMPTY_CONTEXT, Own()) == 7
    assert seen == ["user: message 3\nagent: message 4"]


def test_a_counter_that_fails_half_way_goes_on_where_it_stopped():
    """SUM-CHK-11, SUM-TOK-09: also in the middle of an event with several blocks."""

    class Fragile:
        counter_id = "fragile"
        line_additive = True
        broken = True

        def count_text(self, text):
            if self.broken and "second\n" in text:
                raise RuntimeError("no")
            return len(text)

    said = [Message(content=text) for text in ("first", "second", "third")]
    live, counter = session([event(*said, id="e1"), agent("last", id="e2")]), Fragile()
    assert delta_of(delta_from(live, None), counts_head=False).tokens(EMPTY_CONTEXT, counter) == 0
    counter.broken = False
    expected = len("agent: first\nagent: second\nagent: third\nagent: last")
    assert delta_of(delta_from(live, None), counts_head=False).tokens(EMPTY_CONTEXT, counter) == expected


@pytest.mark.parametrize(("skip", "has"), [(None, True), (skip_last(1), True), (skip_last(4), False)])
def test_the_gate_asks_the_selected_input(skip, has):
    """SUM-CHK-04, SUM-SEL-03."""
    assert has_input(session(numbered(4)), skip, DEFAULT_FORMATTERS) is has


def test_the_gate_needs_text_under_the_configured_formatters():
    """SUM-CHK-04, SUM-TXT-07."""
    tools = session([calls(call()), result("r")])
    nothing = formatters_of(lambda call: "", lambda message: "")
    assert has_input(tools, None, DEFAULT_FORMATTERS)
    assert not has_input(tools, None, nothing)
    assert not has_input(delta_from(tools, None), None, nothing)
    assert not has_input(delta_from(session([user(" ")]), None), None, DEFAULT_FORMATTERS)
    assert has_input(delta_from(session([user(" ")]), None, previous_summary="old"), None, DEFAULT_FORMATTERS)


# --- the law: running sums say what the events say ----------------------------------------------------

PIECES = ("word", " ", "Z", "9", ".", "]", "-", '{"a', "\n", "\t", "中", "é", "😀", "\u0301", "'s", "\r\n")
KEYS = ("", "app", "app/sub", "app/sub/x", "app/subway", "zzz")
AUTHORS = ("user", "agent", "", "9lives", " spaced", "\nodd", "\r", "小明", "😀", "-", "[x]", "\u0301", "'s")
COUNTERS = (
    SimpleTokenCounter(1.3),
    TiktokenCounter("cl100k_base"),
    TiktokenCounter("o200k_base"),
    ScriptTokenCounter({"han": 1.3, "latin": 4.4, "code": 2.7, "emoji": 0.4}, default=1.7),
)


def hostile_text(rng: Random) -> str:
    return "".join(rng.choice(PIECES) for _ in range(rng.randrange(6)))


def hostile_event(rng: Random, number: int) -> Event:
    """Any event that a store could hold, legacy ones too."""
    messages = [
        Message(
            role=rng.choice(("user", "assistant", "tool")),
            content=hostile_text(rng),
            reasoning_content=hostile_text(rng),
            tool_id=rng.choice(("", "", "c1")),
            tool_calls=rng.choice(((), (), (call(),))),
        )
        for _ in range(rng.randrange(3))
    ]
    return event(
        *messages,
        id=f"e{number}",
        at=number,
        author=rng.choice(AUTHORS),
        filter_key=rng.choice(KEYS),
        branch=rng.choice(KEYS),
        version=rng.choice((1, 1, 0)),
    )


@pytest.fixture
def _forgets_at_once(monkeypatch):
    monkeypatch.setattr(tally, "_FORGET_EVERY", 1)


@pytest.mark.usefixtures("_forgets_at_once")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**32))
def test_running_sums_equal_the_slow_way(seed):
    """SUM-TOK-09, SUM-CHK-07, SUM-CHK-08, SUM-CHK-09: over hostile line starts, scopes, trims, snapshots."""
    rng, live, snapshots = Random(seed), session(), []
    filter_key, scope = rng.choice(("", "app/sub")), rng.choice(("", "app/sub"))
    for _ in range(12):
        for _ in range(rng.randrange(4)):
            live.append(hostile_event(rng, live.end_position))
        if rng.random() < 0.2:
            live.drop_oldest(rng.randrange(1 + len(live.events)))
        known = rng.choice([e.id for e in live.events] + ["", "gone"])
        boundary = SummaryBoundary(last_event_id=known) if known else None
        counts_head, previous = rng.random() < 0.5, hostile_text(rng)
        temporary = delta_from(live, boundary, filter_key=filter_key, scope=scope, previous_summary=previous)
        snapshots.append((temporary, boundary, counts_head, list(live.events)))
        check_one(live, *rng.choice(snapshots))


def check_one(live, temporary, boundary, counts_head, events):
    """The sums of a snapshot, new or old, against the events of its own moment."""
    if temporary.start < live.first_position:
        return  # its events were trimmed since
    open_calls = OpenCalls()
    for position, one in enumerate(events):
        open_calls.step(position, one)
    waiting = {id(one) for _, one in open_calls}
    expected = [e for e in delta_events(session(events), boundary) if event_matches(e, temporary.filter_key)]
    expected = list(takewhile(lambda e: id(e) not in waiting, expected))
    assert temporary.delta_count == len(expected)
    assert temporary.delta == expected
    fast = TallyDelta(temporary, counts_head=counts_head)
    slow = ListDelta(temporary, temporary.events, counts_head=counts_head)
    assert fast.n_counted() == slow.n_counted()
    assert fast.has_events() == slow.has_events()
    assert fast.last_relevant_ns() == slow.last_relevant_ns()
    assert fast.has_content() == has_input(
        session(temporary.events, scope_filter_key=temporary.scope_filter_key), None, DEFAULT_FORMATTERS
    )
    for counter in COUNTERS:
        assert fast.tokens(EMPTY_CONTEXT, counter) == slow.tokens(EMPTY_CONTEXT, counter)


def test_the_delta_ends_in_front_of_a_call_that_waits():
    """BUG-10, WB-RPL-18: a call that waits for a person isn't covered; with its result, the pair is."""
    asked = {"filter_key": "app", "request_id": "r1"}
    live = session([user("删除旧备份", id="u", at=1, **asked), calls(call(), id="k", at=2, **asked)])
    aside = [agent(f"side {n}", id=f"s{n}", at=3 + n, branch="side", request_id="r2") for n in range(25)]
    for one in aside:
        live.append(one)
    assert [e.id for e in delta_from(live).delta] == ["u"]
    assert [e.id for e in delta_from(live, SummaryBoundary(last_event_id="k")).delta] == [e.id for e in aside]
    assert len(delta_from(live, profile=TRPC_AGENT_GO_2026_07).delta) == 27
    live.append(result("done", id="r", at=40, **asked))
    assert [e.id for e in delta_from(live).delta] == ["u", "k", *(e.id for e in aside), "r"]


def test_a_check_costs_the_same_for_any_history():
    """SUM-TOK-09, performance.md, decision 1: after the first check only new events are looked at."""
    looked_at = 0

    class Watched:
        counter_id = "watched"
        line_additive = True

        def count_text(self, text):
            nonlocal looked_at
            looked_at += len(text)
            return len(text)

    counter = Watched()
    for n_events in (200, 2000):
        live = session(numbered(n_events))
        delta_of(delta_from(live), counts_head=False).tokens(EMPTY_CONTEXT, counter)
        looked_at = 0
        live.append(user("one more", id="new", at=n_events + 1, filter_key="app"))
        temporary = delta_from(live)
        delta_of(temporary, counts_head=False).tokens(EMPTY_CONTEXT, counter)
        assert looked_at < 100
        assert temporary._events is None


def test_a_counter_of_scripts_is_summed_too():
    """SUM-TOK-09, WB-CAL-02: no list of events is made, and only new text is looked at."""
    counter, looked_at = ScriptTokenCounter({"latin": 4.4}), []
    units = counter.unit_counter.count_text
    counter.unit_counter.count_text = lambda text: (looked_at.append(len(text)), units(text))[1]
    live = session(numbered(500))
    for _ in range(2):
        looked_at.clear()
        live.append(user("one more", id=f"n{live.end_position}", at=live.end_position, filter_key="app"))
        temporary = delta_from(live)
        assert delta_of(temporary, counts_head=False).tokens(EMPTY_CONTEXT, counter) > 1000
        assert temporary._events is None
    assert sum(looked_at) < 100


def test_sums_of_trimmed_events_are_forgotten():
    """SUM-STO-06: a session that lives long and is trimmed keeps no trace of what is gone."""
    live = session()
    for number in range(5000):
        live.append(user(f"m {number}", id=f"e{number}", at=number, filter_key="app"))
        live.drop_oldest(len(live.events) - 100)
        if number % 25 == 24:
            temporary = delta_from(live, None)
            delta_of(temporary, counts_head=False).tokens(EMPTY_CONTEXT, COUNTERS[1])
    kept = temporary.tally(tally.Rule("", "", "app"))
    assert len(kept._positions) < 2000
    assert all(len(sums._positions) < 2000 for sums in kept._lines[COUNTERS[1].counter_id])
    assert delta_of(temporary, counts_head=False).n_counted() == 100


def test_a_slow_counter_may_be_a_coroutine():
    """SUM-TOK-01."""

    class Later(SimpleTokenCounter):
        async def count_tokens(self, ctx, message):
            return 5

    async def tokens():
        return await delta_of(session([user("q")]), counts_head=False).tokens(EMPTY_CONTEXT, Later())

    assert run(tokens()) == 5
