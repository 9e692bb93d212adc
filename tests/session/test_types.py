"""Values of sessions and responses (SUM-DM), and the scopes of filter keys (SUM-KEY)."""

from __future__ import annotations

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.model.types import (
    Choice,
    ContentPart,
    Message,
    Response,
    ResponseError,
    ToolCall,
    Usage,
    response_of,
)
from workbench.session.scope import delta_events, event_matches, in_scope, prefix_cutoff
from workbench.session.types import (
    SUMMARY_FILTER_KEY_ALL_CONTENTS,
    Event,
    Session,
    Summary,
    SummaryBoundary,
    fnv1a_32,
)

CALL = ToolCall(id="c", name="n", arguments="{}")


def test_messages_calls_and_usage_hold_what_the_reference_holds() -> None:
    """SUM-DM-01, SUM-DM-02, SUM-DM-03."""
    message = Message(role="assistant", content="a", content_parts=(ContentPart("image", url="u"),), tool_calls=(CALL,))
    assert message.has_payload
    assert not Message(role="assistant", tool_calls=(CALL,)).has_payload
    assert (CALL.type, CALL.index, CALL.strict) == ("function", None, None)
    usage = Usage(prompt_tokens=3)
    assert (usage.prompt_tokens, usage.cached_tokens) == (3, None)
    with pytest.raises(AttributeError):
        message.content = "b"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("response", "call", "result", "user", "valid", "final"),
    [
        (response_of(Message(role="assistant", content="a")), False, False, False, True, True),
        (response_of(Message(role="assistant", tool_calls=(CALL,))), True, False, False, True, False),
        (response_of(Message(role="tool", tool_id="c")), False, True, False, True, True),
        (response_of(Message(role="assistant"), Message(role="user", content="u")), False, False, True, True, True),
        (response_of(Message(role="assistant"), Message(role="tool", tool_id="c")), False, False, False, False, True),
        (response_of(Message(role="assistant", reasoning_content="r")), False, False, False, True, True),
        (Response(choices=(Choice(delta=Message(content="d")),), is_partial=True), False, False, False, True, False),
        (Response(), False, False, False, False, False),
        (Response(error=ResponseError("t", "m")), False, False, False, False, True),
        (Response(choices=(Choice(),), done=False), False, False, False, False, False),
    ],
)
def test_predicates_of_a_response(
    response: Response, call: bool, result: bool, user: bool, valid: bool, final: bool
) -> None:
    """SUM-DM-04."""
    seen = (response.is_tool_call, response.is_tool_result, response.is_user_message)
    assert seen == (call, result, user)
    assert (response.is_valid_content, response.is_final) == (valid, final)


def test_an_event_knows_its_time_its_message_and_its_effective_key() -> None:
    """SUM-DM-05."""
    event = Event(id="e", time_ns=1_500_000_000, branch="b", response=response_of(Message(content="x")))
    assert event.timestamp is not None
    assert event.timestamp.isoformat() == "1970-01-01T00:00:01.500000+00:00"
    assert event.message.content == "x"
    assert event.effective_key == ""
    assert event.replace(version=0).effective_key == "b"
    assert Event().timestamp is None
    assert Event().messages == ()


def test_a_copy_of_an_event_differs_in_the_named_fields_only() -> None:
    event = Event(**{field.name: object() for field in fields(Event)})
    copied = event.replace(id="other", tag="t")
    assert {field.name: getattr(copied, field.name) for field in fields(Event)} == {
        **{field.name: getattr(event, field.name) for field in fields(Event)},
        "id": "other",
        "tag": "t",
    }
    with pytest.raises(TypeError, match="nothing"):
        event.replace(nothing=1)


def test_an_event_has_the_messages_of_all_its_choices() -> None:
    one, two = Message(content="1"), Message(content="2")
    assert Event(response=response_of(one)).messages == (one,)
    assert Event(response=response_of(one, two)).messages == (one, two)
    assert Event(response=Response()).messages == ()


def test_a_sessions_hash_is_the_same_in_every_process() -> None:
    """SUM-DM-07: FNV-1a of app:user:session."""
    assert fnv1a_32("") == 0x811C9DC5
    assert fnv1a_32("a") == 0xE40C292C
    assert Session(app_name="app", user_id="u", id="s").hash == fnv1a_32("app:u:s")


def test_changing_a_clone_never_changes_the_original() -> None:
    """SUM-DM-08."""
    session = Session(app_name="a", user_id="u", id="s", events=[Event(id="1")], tracks={"t": [1]})
    twin = session.clone()
    twin.append(Event(id="2"))
    twin.state["x"] = b""
    twin.summaries["k"] = Summary("t")
    twin.tracks["t"].append(2)
    assert (len(session.events), session.state, session.summaries, session.tracks) == (1, {}, {}, {"t": [1]})
    assert twin.position_of("2") == 1
    assert session.position_of("2") is None


def test_a_boundary_without_a_cutoff_takes_the_summarys_time() -> None:
    """SUM-DM-10, SUM-DM-11."""
    boundary = SummaryBoundary("k", 7, "e7")
    assert Summary("t", 9, boundary).cutoff_boundary() == boundary
    assert Summary("t", 9, SummaryBoundary("k", 0, "e7")).cutoff_boundary() == SummaryBoundary("k", 9, "e7")
    assert Summary("t", 9).cutoff_boundary() == SummaryBoundary("", 9, "")
    assert Summary("t").cutoff_boundary() is None


def test_the_cutoff_of_a_prefix_is_the_earliest_of_its_summaries() -> None:
    """SUM-DM-12."""
    summaries = {
        "root": Summary("a", 5, SummaryBoundary("root", 5, "e5")),
        "root/c": Summary("b", 3, SummaryBoundary("root/c", 3, "e3")),
        "rooted/c": Summary("c", 1),
        "root/blank": Summary("  ", 1),
    }
    assert prefix_cutoff(summaries, "root") == SummaryBoundary("root", 3, "")
    assert prefix_cutoff({**summaries, "root/x": Summary("no time")}, "root") == SummaryBoundary("root", 0, "")
    assert prefix_cutoff(summaries, "other") is None


def test_the_full_session_has_the_empty_key() -> None:
    """SUM-KEY-01."""
    assert SUMMARY_FILTER_KEY_ALL_CONTENTS == ""


@pytest.mark.parametrize(
    ("key", "other", "matches", "scoped"),
    [
        ("my-app/tool", "my-app", True, True),
        ("my-app", "my-app/tool", True, False),
        ("my-app/toolbox", "my-app/tool", False, False),
        ("", "my-app/tool", True, True),
        ("my-app/tool", "", True, True),
    ],
)
def test_matching_goes_both_ways_and_scope_only_down(key: str, other: str, matches: bool, scoped: bool) -> None:
    """SUM-KEY-03, SUM-KEY-04."""
    event = Event(filter_key=key)
    assert event_matches(event, other) is matches
    assert in_scope(event, other) is scoped


def test_equal_timestamps_are_split_by_event_id() -> None:
    """SUM-DM-10, SUM-CHK-06; BUG-11."""
    events = [Event(id=f"e{i}", time_ns=100) for i in range(1, 6)]
    session = Session(app_name="a", user_id="u", id="s", events=events)
    assert [e.id for e in delta_events(session, SummaryBoundary("", 100, "e3"))] == ["e4", "e5"]
    assert len(delta_events(session, SummaryBoundary("", 100, "gone"))) == 5
    session.replace_events([*events[:3], Event(id="e4", time_ns=99), events[4]])
    assert [e.id for e in delta_events(session, SummaryBoundary("", 100, "e3"))] == ["e4", "e5"]


STEPS = st.lists(st.sampled_from(["append", "drop", "clone append", "look"]), max_size=30)


@given(STEPS)
def test_positions_agree_with_a_scan_whatever_happens_to_session_and_clones(steps: list[str]) -> None:
    """SUM-DM-08: clones share their index and never see each other's events."""
    session = Session(app_name="a", user_id="u", id="s")
    clone = session.clone()
    for n, step in enumerate(steps):
        if step == "append":
            session.append(Event(id=f"e{n}"))
        elif step == "drop":
            session.drop_oldest(min(1, len(session.events)))
        elif step == "clone append":
            clone = session.clone()
            clone.append(Event(id=f"c{n}"))
        for one in (session, clone):
            for i, event in enumerate(one.events):
                assert one.position_of(event.id) == one.first_position + i
            assert one.position_of("missing") is None
