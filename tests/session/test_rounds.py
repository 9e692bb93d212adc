"""Which results answer which calls."""

from __future__ import annotations

from tests.context.build import call, event, result, say, user
from workbench.model.types import Choice, Message, Response
from workbench.session.rounds import (
    answered_ids,
    call_ids,
    is_call,
    is_complete,
    is_result,
    match_results,
    result_ids,
    round_starts,
)


def matched(*events):
    return {i: [(one.index, one.choices) for one in found] for i, found in match_results(events).items()}


def test_a_result_belongs_to_the_nearest_call_that_waits():
    """ASM-HIST-04."""
    events = [
        event(1, call("a")),
        event(2, call("a")),
        event(3, result("a")),
        event(4, result("a")),
        event(5, result("a")),
    ]
    assert matched(*events) == {1: [(2, [0])], 0: [(3, [0])]}


def test_one_event_may_answer_two_rounds():
    """ASM-HIST-04."""
    events = [event(1, call("a", "b")), event(2, call("c")), event(3, result("b"), result("c"), result("a"))]
    assert matched(*events) == {0: [(2, [0, 2])], 1: [(2, [1])]}


def test_events_can_be_left_out():
    """ASM-INTRA-11."""
    events = [event(1, call("a")), event(2, call("a")), event(3, result("a"))]
    assert list(match_results(events, include=lambda i: i != 1)) == [0]


def test_a_round_without_ids_is_never_complete():
    """ASM-INTRA-11."""
    events = [event(1, call("a", "")), event(2, result("a")), event(3, call(""))]
    matches = match_results(events)
    assert is_complete(events, 0, matches)
    assert not is_complete(events, 2, matches)
    assert answered_ids(events, matches[0]) == {"a"}


def test_streamed_forms_count_too():
    """ASM-HIST-04."""
    delta = event(1, response=Response(choices=(Choice(delta=call("a")),)))
    assert is_call(delta)
    assert call_ids(delta) == ["a"]
    answer = event(2, response=Response(choices=(Choice(delta=result("a")),)))
    assert is_result(answer)
    assert result_ids(answer) == ["a"]
    assert call_ids(event(3, response=None)) == result_ids(event(3, response=None)) == []


def test_rounds_of_dialogue_start_at_users_after_others():
    """ASM-HIST-16."""
    assert round_starts([say(), user(), Message(content="x"), say(), Message(content="y")]) == [1, 4]
