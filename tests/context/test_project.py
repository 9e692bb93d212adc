"""From events to messages: pairing, foreign authors, reasoning, merging, limits, attachments."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.context.build import assemble, call, event, result, say, session, summary, texts, user
from tests.context.sessions import Storyteller
from workbench.context.project import _is_in_order, _results_behind_calls, history_start
from workbench.context.select import Entry, is_eligible
from workbench.model.types import ContentPart, Message
from workbench.profiles import TRPC_AGENT_GO_2026_07
from workbench.session.rounds import PER_CALL_RESULT


def test_an_unstored_message_goes_before_the_first_own_event_or_to_the_end():
    """ASM-HIST-01, -02."""
    old = event(1, say("old"), request="r1")
    assert texts(assemble(session(old)))[1:] == ["assistant:old", "user:q"]
    begun = session(old, event(2, call("c")), event(3, result("c")))
    assert texts(assemble(begun))[1:] == ["assistant:old", "user:q", "assistant:c", "tool:c:r"]


def test_without_a_session_the_message_stands_alone():
    """ASM-HIST-03."""
    sent = assemble(None)
    assert texts(sent) == ["system:S", "user:q"]
    assert sent.positions == (-1, -1)


def test_results_move_behind_the_nearest_call_that_waits_for_them():
    """ASM-HIST-04: ids may be re-used; a result of two rounds is split; unmatched results go."""
    stored = session(
        event(1, user()),
        event(2, call("a", text="one")),
        event(3, call("a", "b", text="two")),
        event(4, result("a", "x"), result("a", "y"), result("zz", "stray")),
        event(5, result("b", "z")),
        event(6, say("end")),
    )
    assert texts(assemble(stored))[1:] == [
        "user:q",
        "assistant:a:one",
        "tool:a:y",
        "assistant:a,b:two",
        "tool:a:x",
        "tool:b:z",
        "assistant:end",
    ]


def test_a_result_at_the_end_closes_its_round_and_ends_the_request():
    """ASM-HIST-05, -06: what stands between call and result is dropped, merged results keep the first's place."""
    stored = session(
        event(1, user()),
        event(2, call("a", "b")),
        event(3, result("a", "1")),
        event(4, say("meanwhile")),
        event(5, result("b", "2")),
    )
    sent = assemble(stored)
    assert texts(sent)[1:] == ["user:q", "assistant:a,b", "tool:a:1", "tool:b:2"]
    assert sent.positions[1:] == (0, 1, 2, 4)


def test_results_that_come_one_by_one_are_sorted_and_never_sent_in_part():
    """ASM-HIST-07."""
    mark = {"extensions": {PER_CALL_RESULT: True}}
    start = [event(1, user()), event(2, call("a", "b", text="look"))]
    part = session(*start, event(3, result("b", "2"), **mark), event(4, user("and?")))
    assert texts(assemble(part))[1:] == ["user:q", "assistant:look", "user:and?"]
    whole = session(*start, event(3, result("b", "2"), **mark), event(4, result("a", "1"), **mark), event(5, say("x")))
    assert texts(assemble(whole))[1:] == ["user:q", "assistant:a,b:look", "tool:a:1", "tool:b:2", "assistant:x"]


def test_answered_rounds_of_earlier_requests_can_be_left_out():
    """ASM-HIST-08: a text stays; a round whose result is of this request stays whole."""
    stored = session(
        event(1, call("a", text="words"), request="r1"),
        event(2, result("a"), request="r1"),
        event(3, call("b"), request="r1"),
        event(4, user()),
        event(5, result("b")),
        event(6, say("x")),
    )
    sent = assemble(stored, agent={"tool_transcript_mode": "omit_previous_completed"})
    assert texts(sent)[1:] == ["assistant:words", "assistant:b", "tool:b:r", "user:q", "assistant:x"]


@pytest.mark.parametrize(
    ("agent", "branch", "role"),
    [
        ({}, "agent/x", "user"),
        ({"preserve_foreign_messages": True}, "z", "assistant"),
        ({"preserve_same_branch": True}, "agent/x", "assistant"),
        ({"preserve_same_branch": True}, "agent2", "user"),
    ],
)
def test_who_is_foreign(agent, branch, role):
    """ASM-HIST-09."""
    stored = session(event(1, say("hi"), request="r1", author="helper", branch=branch))
    assert assemble(stored, agent=agent).messages[1].role == role


def test_foreign_events_become_user_messages():
    """ASM-HIST-10, -11: both forms; the agent's default has no prefix."""
    parts = (ContentPart("image", url="u"),)
    stored = session(
        event(1, say("hi", content_parts=parts), request="r1", author="h"),
        event(2, call("c", arguments="{1}"), request="r1", author="h"),
        event(3, result("c", ""), request="r1", author="h"),
    )
    plain = assemble(stored)
    assert [message.content for message in plain.messages[1:4]] == ["hi", "Tool `read` called with parameters: {1}", ""]
    assert plain.messages[1].content_parts == parts
    prefixed = assemble(stored, agent={"add_context_prefix": True}).messages[1]
    assert prefixed.content == (
        "For context: [h] said: hi\n\nFor context: [h] called tool `read` with parameters: {1}\n\n"
        "For context: [h] `c` tool returned result: "
    )
    assert [part.text for part in prefixed.content_parts] == ["For context:", "[h] said:", ""]


def test_the_lone_part_of_the_reference_is_a_quirk():
    """ASM-HIST-10 (B-29)."""
    stored = session(event(1, say("hi"), request="r1", author="h"))
    agent = {"add_context_prefix": True}
    assert assemble(stored, agent=agent).messages[1].content_parts == ()
    quirk = assemble(stored, agent=agent, profile=TRPC_AGENT_GO_2026_07).messages[1]
    assert [part.text for part in quirk.content_parts] == ["For context:"]


def test_ordinary_user_messages_are_never_merged():
    """ASM-HIST-12."""
    stored = session(event(1, user("a"), request="r1"), event(2, user("b"), request="r1"), event(3, user()))
    assert texts(assemble(stored, agent={"add_context_prefix": True}))[1:] == ["user:a", "user:b", "user:q"]


@pytest.mark.parametrize(
    ("mode", "kept"),
    [
        ("discard_previous_turns", [False, True, True]),
        ("keep_all", [True, True, True]),
        ("discard_all", [False, False, False]),
    ],
)
def test_reasoning_of_past_requests_stays_only_where_tools_were_called(mode, kept):
    """ASM-HIST-13."""
    stored = session(
        event(1, say("a", reasoning_content="t"), request="r1"),
        event(2, call("c", reasoning_content="t"), request="r2"),
        event(3, result("c"), request="r2"),
        event(4, user()),
        event(5, say("b", reasoning_content="t")),
    )
    sent = assemble(stored, agent={"reasoning_content_mode": mode})
    assistants = [message for message in sent.messages if message.role == "assistant"]
    assert [bool(message.reasoning_content) for message in assistants] == kept


def test_an_assistant_with_reasoning_alone_is_dropped():
    """ASM-HIST-14."""
    stored = session(event(1, user()), event(2, Message(role="assistant", reasoning_content="t")))
    assert texts(assemble(stored))[1:] == ["user:q"]


HISTORY = [user("1"), user("2"), say("3"), call("c"), result("c"), user("6"), say("7"), user("8")]


@pytest.mark.parametrize(("limit", "start"), [(1, 7), (2, 5), (3, 0), (9, 0)])
def test_rounds_are_counted_from_the_end(limit, start):
    """ASM-HIST-16, unit run."""
    assert history_start(HISTORY, limit, "run") == start


def test_what_stands_before_the_first_user_message_is_a_round():
    """ASM-HIST-16."""
    assert history_start([say("x"), user("1"), say("2")], 1, "run") == 1
    assert history_start([say("x"), user("1"), say("2")], 2, "run") == 0


@pytest.mark.parametrize(("limit", "start"), [(1, 7), (4, 5), (5, 3), (6, 2)])
def test_messages_are_counted_and_cut_results_skipped(limit, start):
    """ASM-HIST-16, unit message: a result whose call was cut goes too."""
    assert history_start(HISTORY, limit, "message") == start
    assert history_start([call("c"), result("c"), user("q")], 2, "message") == 2
    assert history_start([user("u"), call("c"), result("c"), user("q")], 3, "message") == 1


def test_the_limit_is_ignored_with_a_summary():
    """ASM-HIST-16, ASM-INJ-01."""
    stored = session(event(1, user("a"), request="r1"), event(2, say("b"), request="r1"), event(3, user()))
    assert len(assemble(stored, agent={"max_history_runs": 1}).messages) == 2
    assert len(assemble(stored, agent={"max_history_runs": 1, "add_session_summary": True}).messages) == 4


def test_attached_files_are_named_once():
    """ASM-HIST-17."""
    files = tuple(ContentPart("file", url="u", name=f"f{i}") for i in range(22))
    stored = session(event(1, Message(role="user", content="q", content_parts=files)))
    sent = assemble(stored, message=stored.events[0].message).messages[1]
    assert sent.content_parts[0].text == f"Attached files (22): {', '.join(f'f{i}' for i in range(20))} (+2 more)\n"
    again = session(event(1, sent))
    assert assemble(again, message=sent).messages[1] == sent


def test_a_projector_rewrites_each_message_and_anchors_follow_it():
    """ASM-HIST-01, -15."""
    stored = session(
        event(1, user("asked"), request="r1"), event(2, say("gone"), request="r1"), event(3, user()), app=summary(1)
    )

    def project(asker, stored_event, message):
        return Message(role="assistant") if message.content == "gone" else message

    sent = assemble(stored, agent={"add_session_summary": True, "user_anchors": True}, message_projector=project)
    assert texts(sent)[1:] == ["user:q"]


@given(st.integers(0, 10_000))
def test_entries_that_are_in_order_stay_as_they_are(seed):
    """ASM-HIST-04: the short cut of `arrange` answers what the long way does."""
    story = Storyteller(seed, wildness=0.2)
    for _ in range(12):
        story.step()
    entries = [Entry(one, i) for i, one in enumerate(story.session.events) if is_eligible(one)]
    for start in range(len(entries)):
        part = entries[start : start + 4]
        if _is_in_order(part):
            assert [one.event for one in _results_behind_calls(part)] == [one.event for one in part]
