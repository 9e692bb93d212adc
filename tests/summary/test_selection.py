"""Which events a summary is made of."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.summary.events import SECOND, agent, call, calls, event, numbered, result, user
from workbench.model.types import SYSTEM, Message
from workbench.summary.selection import (
    events_in_scope,
    is_previous_summary_event,
    previous_summary_event,
    skip_last,
    without_previous_summary,
    without_recent,
)
from workbench.summary.text import formatters_of

HEAD = previous_summary_event("earlier facts", now_ns=1000 * SECOND)
NO_TOOLS = formatters_of(lambda call: "", lambda message: "")


def test_the_rule_sees_all_candidates_and_says_how_many_to_leave_out():
    """SUM-SEL-01."""
    events = [HEAD, *numbered(4)]
    seen = []
    kept = without_recent(events, lambda candidates: seen.append(candidates) or 1)
    assert seen == [tuple(events)]
    assert kept == events[:-1]


@pytest.mark.parametrize("n_skipped", [0, -3])
def test_nothing_is_left_out_for_zero_or_less(n_skipped):
    """SUM-SEL-01: and then no user is asked for (SUM-SEL-02)."""
    events = [agent("a"), agent("b")]
    assert without_recent(events, skip_last(n_skipped)) is events


@pytest.mark.parametrize("n_skipped", [2, 5])
def test_leaving_out_all_leaves_nothing(n_skipped):
    """SUM-SEL-01, E13."""
    assert not without_recent([user("q"), agent("a")], skip_last(n_skipped))


def test_the_rest_needs_a_user_who_says_something():
    """SUM-SEL-02, E14."""
    assert not without_recent([agent("a"), user("q")], skip_last(1))
    assert not without_recent([user("  "), agent("a")], skip_last(1))
    assert len(without_recent([user("q"), agent("a")], skip_last(1))) == 1


def test_a_summary_in_front_stands_in_for_the_user():
    """SUM-SEL-02, E15."""
    delta = [calls(call(), at=1), result("r", at=2), agent("done", at=3)]
    assert without_recent([HEAD, *delta], skip_last(1)) == [HEAD, *delta[:2]]
    assert not without_recent([HEAD, *delta], skip_last(1), NO_TOOLS)
    assert not without_recent([HEAD, *delta], skip_last(3))


def test_a_stored_system_event_is_no_summary():
    """SUM-SEL-02: it isn't newer than what follows it."""
    stored = event(Message(role=SYSTEM, content="rules"), author="system", id="e0", at=1)
    assert not without_recent([stored, agent("a", at=2), agent("b", at=3)], skip_last(1))


def test_narrowing_to_a_branch_is_one_directional():
    """SUM-SEL-04, SUM-KEY-04."""
    events = [user("root", filter_key="app"), agent("in", filter_key="app/sub/x"), agent("keyless")]
    assert events_in_scope(events, "app/sub") == events[1:]
    assert events_in_scope(events, "") is events


def test_only_the_synthetic_event_of_this_text_is_removed():
    """SUM-RUN-03."""
    events = [HEAD, user("q")]
    assert without_previous_summary(events, "earlier facts") == events[1:]
    assert without_previous_summary(events, "other facts") is events
    assert without_previous_summary(events, "") is events
    assert not is_previous_summary_event(HEAD.replace(id="stored"), "earlier facts")


@given(st.integers(-2, 8), st.integers(0, 6))
def test_what_is_kept_is_always_a_prefix(n_skipped, n_events):
    """SUM-SEL-01, SUM-SEL-06."""
    events = numbered(n_events)
    before = list(events)
    kept = without_recent(events, skip_last(n_skipped))
    assert events == before
    assert list(kept) == events[: len(kept)]
