"""Firings that don't pay, and conversations that are stuck in them (WB-RPL-14)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.replay.conftest import chat, config, summarising
from workbench.evaluate.thrash import MIN_SAVED_SHARE, thrash
from workbench.recordings import Recordings
from workbench.replay.replay import replay
from workbench.replay.trace import TABLES

Row = dict[str, Any]


def calls(n: int, *, per_request: int = 1, conversation: str = "c", sent: bool = True) -> list[Row]:
    return [
        {
            "conversation": conversation,
            "call": i,
            "request": i // per_request,
            "prompt_tokens": 1_000,
            "summary_key": "k" if sent else None,
        }
        for i in range(n)
    ]


def summary(call: int, *, covered: int = 800, tokens: int = 100, **other: Any) -> Row:
    row = {"conversation": "c", "summary": call, "call": call, "filter_key": "k", "status": "written"}
    return {**row, "covered_tokens": covered, "completion_tokens": tokens, **other}


def test_a_firing_saves_what_it_covers_without_what_it_adds() -> None:
    """WB-RPL-14: 800 covered by 100 tokens; then 300 more and the 100 before it by 150."""
    first, second = thrash(calls(20), [summary(3), summary(9, covered=300, tokens=150)]).firings
    assert (first.saved_tokens, first.saved_share) == (700, pytest.approx(700 / 1_700))
    assert (second.saved_tokens, second.saved_share) == (250, pytest.approx(250 / 1_250))
    assert not first.is_thrash
    assert (second.saves_little, second.is_consecutive, second.has_grown) == (False, False, True)


@pytest.mark.parametrize(("covered", "little"), [(100, True), (210, True), (212, False), (800, False)])
def test_under_ten_percent_of_the_prompt_is_little(covered: int, little: bool) -> None:
    """WB-RPL-14: 111 of 1,111 is just under, 112 of 1,112 just over ten percent."""
    assert MIN_SAVED_SHARE == 0.10
    (firing,) = thrash(calls(20), [summary(3, covered=covered)]).firings
    assert firing.saves_little is little


def test_a_summary_that_is_not_sent_saves_nothing() -> None:
    """WB-RPL-14."""
    (firing,) = thrash(calls(20, sent=False), [summary(3)]).firings
    assert (firing.saved_tokens, firing.saves_little) == (0, True)


def test_consecutive_are_firings_of_one_key_in_neighbouring_requests() -> None:
    """WB-RPL-14: calls of one request are one."""
    found = thrash(calls(30, per_request=3), [summary(3), summary(5), summary(8), summary(14)]).firings
    assert [firing.request for firing in found] == [1, 1, 2, 4]
    assert [firing.is_consecutive for firing in found] == [False, True, True, False]
    other_key = thrash(calls(9), [summary(3), summary(4, filter_key="other")]).firings
    assert not any(firing.is_consecutive for firing in other_key)


def test_a_summary_grows_when_it_is_longer_than_all_before_it() -> None:
    """WB-RPL-14."""
    lengths = [100, 90, 100, 130, 120, 131]
    found = thrash(calls(60), [summary(8 * i, tokens=n) for i, n in enumerate(lengths)]).firings
    assert [firing.has_grown for firing in found] == [False, False, False, True, False, True]


def test_failed_attempts_and_copies_are_no_firings() -> None:
    """WB-RPL-14."""
    rows = [summary(3), summary(4, status="failed"), summary(4, status="copied")]
    assert len(thrash(calls(9), rows).firings) == 1


def test_three_bad_firings_in_a_row_mark_the_conversation_with_the_place() -> None:
    """WB-RPL-14."""
    bad = [summary(2), *(summary(call) for call in (3, 4, 5, 6))]
    (stuck,) = thrash(calls(20), bad).stuck
    assert (stuck.conversation, stuck.filter_key, stuck.first_call, stuck.call, stuck.firings) == ("c", "k", 3, 5, 4)
    two_then_good = [summary(2), summary(3), summary(4), summary(9), summary(10), summary(11)]
    assert thrash(calls(20), two_then_good).stuck == ()
    assert len(thrash(calls(20), [*two_then_good, summary(12)]).stuck) == 1


def test_each_kind_alone_can_make_it_stuck() -> None:
    """WB-RPL-14."""
    little = [summary(call, covered=20) for call in (2, 9, 16)]
    grows = [summary(call, tokens=100 + call) for call in (2, 9, 16, 23)]
    for rows, place in ((little, 16), (grows, 23)):
        (stuck,) = thrash(calls(30), rows).stuck
        assert stuck.call == place


def test_a_conversation_counts_once_wherever_it_is_stuck_first() -> None:
    """WB-RPL-14."""
    rows = [summary(call) for call in (5, 6, 7, 8)] + [summary(call, filter_key="b") for call in (1, 2, 3, 4)]
    (stuck,) = thrash(calls(20), rows).stuck
    assert (stuck.filter_key, stuck.call) == ("b", 4)


def test_a_run_knows_how_many_of_its_conversations_are_stuck(
    recorded: Callable[..., Recordings], tmp_path: Path
) -> None:
    """WB-RPL-14: a threshold below one turn fires after every request; a sensible one doesn't."""
    recordings = recorded(chat(10), chat(1, ident="short"))
    eager, sensible = summarising("eager", token=5), summarising("sensible", token=900)
    runs = replay(recordings, [config(name="none"), eager, sensible], runs=tmp_path, progress=False)
    assert {name: run.facts["stuck_conversations"] for name, run in runs.items()} == {
        "none": 0,
        "eager": 1,
        "sensible": 0,
    }
    found = thrash(runs["eager"].rows("calls"), runs["eager"].rows("summaries"))
    assert [one.conversation for one in found.stuck] == ["c1"]
    assert found.as_dict()["firings"] == runs["eager"].facts["summaries"]


def test_covered_tokens_are_those_of_the_covered_events(recorded: Callable[..., Recordings], tmp_path: Path) -> None:
    """WB-RPL-05: counted from the recording, between the old boundary and the new one."""
    from workbench.model.types import Message
    from workbench.replay.cache import part_text

    recordings = recorded(chat(12))
    run = replay(recordings, summarising(), runs=tmp_path, progress=False)["summaries"]
    events = recordings[0].events
    place = {event.id: i + 1 for i, event in enumerate(events)}
    start = 0
    written = [row for row in run.rows("summaries") if row["status"] == "written"]
    assert len(written) > 2
    for row in written:
        end = place[row["boundary_event_id"]]
        assert end - start == row["events_covered"]
        messages: list[Message] = [message for event in events[start:end] for message in event.messages]
        assert row["covered_tokens"] == sum(len(part_text(message)) for message in messages)
        start = end
    assert "covered_tokens" in TABLES["summaries"].column_names
