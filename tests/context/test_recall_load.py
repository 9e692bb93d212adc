"""session_load: windows, byte slices, anchors and what it must not tell."""

import asyncio
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.call import EMPTY_CONTEXT
from workbench.context.recall import LoadSessionRequest, RecallRun, session_load
from workbench.context.recall.load import slice_bytes
from workbench.context.recall.types import MAX_CONTENT_LIMIT, MAX_SPAN, arguments_from, span_from
from workbench.errors import EventWindowAnchorNotFoundError, RecallError, SessionNotFoundError
from workbench.model.types import ContentPart, Message, ToolCall, response_of
from workbench.profiles import SEED, TRPC_AGENT_GO_2026_07
from workbench.session.types import Event, Session, SessionKey
from workbench.store.search import event_window

SECOND = 1_000_000_000


def event(event_id, *messages, at=0, **facts):
    return Event(id=event_id, time_ns=at * SECOND, response=response_of(*messages), **facts)


def user(text):
    return Message("user", text)


def assistant(text):
    return Message("assistant", text)


def call(call_id, name="dig"):
    return Message("assistant", tool_calls=(ToolCall(call_id, name, "{}"),))


def result(call_id, text, name="dig"):
    return Message("tool", text, tool_id=call_id, tool_name=name)


class Windows:
    """A service over plain sessions that can load windows and list events."""

    def __init__(self, *sessions, profile=SEED):
        self.sessions = {session.key: session for session in sessions}
        self.profile = profile
        self.requests = []

    async def get_event_window(self, request, *, ctx=EMPTY_CONTEXT):
        self.requests.append(request)
        if request.key not in self.sessions:
            raise SessionNotFoundError(f"no session {request.key.session_id}")
        return event_window(
            self.sessions[request.key].events, request, first_choice_only=self.profile.search_first_choice_only
        )

    async def list_events(self, key):
        if key not in self.sessions:
            raise SessionNotFoundError(f"no session {key.session_id}")
        return self.sessions[key].events


def session(events, session_id="now", app="garden", who="ada"):
    return Session(app_name=app, user_id=who, id=session_id, events=events)


def load(arguments, events=(), *, service=None, profile=SEED):
    current = session(events)
    service = service or Windows(current, profile=profile)
    run = RecallRun(service.sessions.get(current.key, current), service, profile=profile)
    return asyncio.run(session_load(run, arguments))


def texts(answer):
    return [message.content for message in answer.messages]


DAY = [
    event("u1", user("where shall the pear tree stand?"), at=1),
    event("a1", assistant("by the south wall"), at=2),
    event("k1", call("c1"), at=3),
    event("r1", result("c1", "clay down to 40 cm, gravel below"), at=4),
    event("a2", assistant("the ground suits it"), at=5),
    event("u2", user("then order one"), at=6),
]


# --- the window ---------------------------------------------------------------------------------------


def test_a_load_brings_one_message_before_and_one_behind_by_default():
    """ASM-OND-20, ASM-OND-25."""
    answer = load({"event_id": "a2"}, DAY)
    assert [message.event_id for message in answer.messages] == ["r1", "a2", "u2"]
    assert (answer.session_id, answer.event_id, answer.before, answer.after, answer.count) == ("now", "a2", 1, 1, 3)
    assert "past" in answer.note


@pytest.mark.parametrize(
    ("before", "after", "span"),
    [
        (0, 0, (1, 1)),
        (-3, -1, (1, 1)),
        (-3, 2, (0, 2)),
        (0, 3, (0, 3)),
        (3, 0, (3, 0)),
        (4, 4, (2, 2)),
        (9, 0, (4, 0)),
        (0, 9, (0, 4)),
        (4, 1, (3, 1)),
        (1, 4, (1, 3)),
        (5, 3, (2, 2)),
    ],
)
def test_window_sizes_have_defaults_and_a_largest_span(before, after, span):
    """ASM-OND-20, ASM-OND-27."""
    assert span_from(before, after) == span


@given(st.integers(-20, 60), st.integers(-20, 60))
def test_the_span_shrinks_from_its_larger_side_step_by_step(before, after):
    """ASM-OND-20: the closed form agrees with the rule told as a loop."""
    b, a = max(before, 0), max(after, 0)
    if b == a == 0:
        b = a = 1
    while b + a > MAX_SPAN:
        if a >= b and a > 0:
            a -= 1
        else:
            b -= 1
    assert span_from(before, after) == (b, a)


def test_an_absurd_span_is_cut_at_once():
    """ASM-OND-20."""
    request = LoadSessionRequest.parse({"event_id": "x", "before": 10**40, "after": "9" * 20})
    assert request.span == (2, 2)


def test_calls_partial_events_and_blank_texts_are_skipped_and_not_counted():
    """ASM-OND-21, ASM-OND-04."""
    events = [
        event("u1", user("first")),
        event("k", call("c")),
        event("blank", assistant("  \n")),
        Event(id="none"),
        event("s", Message("system", "be brief")),
        Event(id="piece", response=response_of(assistant("half a"), is_partial=True, done=False)),
        event("a1", assistant("last")),
    ]
    answer = load({"event_id": "a1", "before": 1}, events)
    assert texts(answer) == ["first", "last"]
    for skipped in ("k", "blank", "none", "s", "piece"):
        with pytest.raises(EventWindowAnchorNotFoundError):
            load({"event_id": skipped}, events)


def test_a_message_without_content_is_read_from_its_text_parts():
    """ASM-OND-04: parts joined by line breaks; a missing role is the assistant's; a tool id makes it a tool's."""
    parts = (ContentPart("text", " a pear "), ContentPart("image", url="x"), ContentPart("text", "a plum"))
    events = [event("p", Message(content_parts=parts)), event("t", Message("user", "done", tool_id="c9"))]
    answer = load({"event_id": "p"}, events)
    assert [(message.role, message.content) for message in answer.messages] == [
        ("assistant", "a pear\na plum"),
        ("tool", "done"),
    ]


# --- slices -------------------------------------------------------------------------------------------


def test_a_complete_result_carries_its_tools_name_and_a_slice_does_not():
    """ASM-OND-23, ASM-OND-25."""
    whole = load({"event_id": "r1"}, DAY).messages[1]
    assert whole.content == "dig: clay down to 40 cm, gravel below"
    assert (whole.content_bytes, whole.returned_bytes, whole.content_truncated) == (32, 32, False)
    part = load({"event_id": "r1", "content_offset": 5, "content_limit": 4}, DAY).messages[1]
    assert (part.content, part.content_offset, part.returned_bytes) == ("down", 5, 4)
    assert (part.content_bytes, part.content_truncated, part.tool_call_id, part.tool_name) == (32, True, "c1", "dig")


def test_optional_zero_fields_are_left_out_of_the_json():
    """ASM-OND-25."""
    message = load({"event_id": "r1"}, DAY).to_json()["messages"][1]
    assert "content_offset" not in message
    assert "content_truncated" not in message
    assert message["created"] == "1970-01-01T00:00:04Z"


def test_users_and_assistants_are_returned_whole():
    """ASM-OND-22."""
    answer = load({"event_id": "a1", "content_limit": 3, "content_offset": 5}, DAY)
    assert texts(answer) == ["where shall the pear tree stand?", "by the south wall", "cla"]


def test_neighbouring_results_start_at_their_beginning_with_the_same_limit():
    """ASM-OND-22, assembly.md section 17 case 39."""
    events = [
        event("r1", result("c1", "zero one two", "a")),
        event("r2", result("c2", "0123456789abcdefghij", "b")),
        event("r3", result("c3", "three four", "c")),
    ]
    answer = load({"tool_call_id": "c2", "content_offset": 10, "content_limit": 4}, events)
    assert texts(answer) == ["zero", "abcd", "thre"]
    assert [message.content_offset for message in answer.messages] == [0, 10, 0]
    assert [message.content_bytes for message in answer.messages] == [12, 20, 10]


@pytest.mark.parametrize(
    ("offset", "limit", "text", "start"),
    [
        (0, 10, "梨の木", 0),  # the tenth byte stands inside the fourth character
        (4, 3, "の", 3),  # starts inside the second character, ends inside the third
        (0, 1, "梨", 0),
        (5, 2, "の", 3),
        (18, 5, "", 18),
        (99, 5, "", 18),
    ],
)
def test_slices_end_at_characters(offset, limit, text, start):
    """ASM-OND-22."""
    part = slice_bytes("梨の木を植え", offset, limit)
    assert (part.text, part.offset, part.returned_bytes) == (text, start, len(text.encode()))
    assert part.is_truncated


def test_an_offset_behind_the_end_answers_an_empty_truncated_slice():
    """ASM-OND-22."""
    message = load({"event_id": "r1", "content_offset": 500}, DAY).messages[1]
    assert (message.content, message.content_offset, message.returned_bytes) == ("", 32, 0)
    assert message.content_truncated


@given(st.text(), st.integers(1, 9))
def test_slices_read_one_after_another_join_to_the_whole_text(text, limit):
    """ASM-OND-22: reading on from offset + returned_bytes always gets on, and loses nothing."""
    pieces, offset = [], 0
    while True:
        part = slice_bytes(text, offset, limit)
        pieces.append(part.text)
        assert part.offset == offset
        assert part.returned_bytes <= max(limit, 4)
        offset += part.returned_bytes
        if offset == part.total_bytes:
            break
        assert part.returned_bytes
    assert "".join(pieces) == text


def test_half_a_surrogate_pair_has_a_length_too():
    assert slice_bytes("a\ud800b", 0, 2).text == "a"
    assert slice_bytes("a\ud800b", 1, 1).text == "\ud800"


def test_limits_are_clamped():
    """ASM-OND-22, ASM-OND-27: 16 KiB unless told otherwise, never more than 64 KiB."""
    events = [event("r", result("c", "x" * 100_000))]
    assert load({"event_id": "r"}, events).messages[0].returned_bytes == 16_384
    assert load({"event_id": "r", "content_limit": -1}, events).messages[0].returned_bytes == 16_384
    assert load({"event_id": "r", "content_limit": 10**9}, events).messages[0].returned_bytes == 65_536


def test_the_largest_load_is_bounded():
    """ASM-OND-27: five results of 64 KiB at most, however much the history holds."""
    events = [event(f"r{i}", result(f"c{i}", "x" * 200_000)) for i in range(40)]
    answer = load({"event_id": "r20", "before": 99, "after": 99, "content_limit": 10**9}, events)
    assert sum(message.returned_bytes for message in answer.messages) <= (MAX_SPAN + 1) * MAX_CONTENT_LIMIT


# --- anchors ------------------------------------------------------------------------------------------


def test_a_tool_call_id_finds_the_newest_result_with_it():
    """ASM-OND-20, ASM-OND-26."""
    events = [event("old", result("c1", "stale")), event("u", user("again")), event("new", result("c1", "fresh"))]
    assert load({"tool_call_id": " c1 "}, events).event_id == "new"


def test_a_known_event_id_wins_over_the_tool_call_id():
    assert load({"event_id": "a1", "tool_call_id": "c1"}, DAY).event_id == "a1"


def test_a_tool_call_id_helps_when_the_event_id_is_unknown():
    """ASM-OND-20."""
    assert load({"event_id": "gone", "tool_call_id": "c1"}, DAY).event_id == "r1"
    with pytest.raises(EventWindowAnchorNotFoundError):
        load({"event_id": "gone", "tool_call_id": "c9"}, DAY)


def test_a_tool_call_of_another_session_is_found_through_the_service():
    older = session([event("r9", result("c9", "moss"))], "then")
    service = Windows(session(DAY), older)
    answer = load({"session_id": "then", "tool_call_id": "c9"}, DAY, service=service)
    assert (answer.session_id, texts(answer)) == ("then", ["dig: moss"])


def test_the_live_session_answers_for_a_service_that_lists_no_events():
    class OnlyWindows(Windows):
        list_events = None

    service = OnlyWindows(session(DAY))
    assert load({"tool_call_id": "c1"}, DAY, service=service).event_id == "r1"
    with pytest.raises(RecallError):
        load({"session_id": "then", "tool_call_id": "c1"}, DAY, service=service)


PARALLEL = [
    event("u", user("dig twice")),
    event("both", result("c1", "clay", "north"), result("c2", "sand", "south")),
    event("a", assistant("north is heavier")),
]


@pytest.mark.parametrize("profile", [SEED, TRPC_AGENT_GO_2026_07], ids=lambda profile: profile.name)
def test_a_tool_call_id_leaves_the_other_results_of_its_event_out(profile):
    """ASM-OND-23, DA12: every result is loadable on its own, under every profile."""
    answer = load({"tool_call_id": "c2"}, PARALLEL, profile=profile)
    assert texts(answer) == ["dig twice", "south: sand", "north is heavier"]
    answer = load({"event_id": "both", "tool_call_id": "c1"}, PARALLEL, profile=profile)
    assert texts(answer) == ["dig twice", "north: clay", "north is heavier"]


def test_without_a_tool_call_id_all_results_of_an_event_are_loaded():
    """ASM-OND-23, DA12."""
    answer = load({"event_id": "both"}, PARALLEL)
    assert texts(answer) == ["dig twice", "north: clay", "south: sand", "north is heavier"]
    assert answer.count == 4


# --- errors -------------------------------------------------------------------------------------------


def test_errors_say_what_is_missing():
    """ASM-OND-26."""
    current = session(DAY)
    with pytest.raises(RecallError, match="during a run"):
        asyncio.run(session_load(None, {"event_id": "a1"}))
    with pytest.raises(RecallError, match="no session"):
        asyncio.run(session_load(RecallRun(None, Windows()), {"event_id": "a1"}))
    with pytest.raises(RecallError, match="user_id"):
        asyncio.run(session_load(RecallRun(session(DAY, who=""), Windows()), {"event_id": "a1"}))
    for service in (None, object()):
        with pytest.raises(RecallError, match="can't load"):
            asyncio.run(session_load(RecallRun(current, service), {"event_id": "a1"}))
    with pytest.raises(RecallError, match="neither"):
        load({"event_id": "  "}, DAY)
    with pytest.raises(RecallError, match="tool_call_id"):
        load({"tool_call_id": "c9"}, DAY)


def test_an_unknown_anchor_is_an_error_of_its_own_kind():
    """ASM-OND-26."""
    with pytest.raises(EventWindowAnchorNotFoundError) as caught:
        load({"event_id": "nope"}, DAY)
    assert not isinstance(caught.value, RecallError)


@pytest.mark.parametrize("arguments", ["{", "[1]", "7", '"word"', b"\xff", "[" * 100_000])
def test_arguments_that_are_no_object_are_refused(arguments):
    with pytest.raises(RecallError, match="JSON object"):
        load(arguments, DAY)


@pytest.mark.parametrize(
    "arguments",
    [
        '{"event_id": "a1"}',
        b'{"event_id": "a1"}',
        '"{\\"event_id\\": \\"a1\\"}"',
        '{"eventId": "a1", "before": null, "after": "", "content_limit": NaN, "session_id": null}',
        '{"EVENT-ID": [" a1 "], "before": "1", "after": 1.9, "content_offset": true, "sessionId": {}}',
        {"event_id": "a1", "before": "many", "content_limit": "1e400", "user_id": "eve", "nonsense": [1, {}]},
    ],
)
def test_odd_but_readable_arguments_are_read(arguments):
    assert texts(load(arguments, DAY))[:2] == ["where shall the pear tree stand?", "by the south wall"]


@pytest.mark.parametrize("nothing", [None, "", "  ", "null", {}, '""'])
def test_no_arguments_are_an_empty_object(nothing):
    assert arguments_from(nothing) == {}


# --- nobody else's history ----------------------------------------------------------------------------


def test_a_load_never_leaves_the_runs_application_and_user():
    """SEC-11: a thousand requests with other people's ids bring nobody else's message."""
    mine, older = session(DAY), session([event("m9", user("my older words"))], "then")
    theirs = session([event("x1", user("eve's secret"))], "now", who="eve")
    elsewhere = session([event("x2", user("another shop's secret"))], "then", app="shop")
    foreign_only = session([event("x3", result("cx", "third secret"))], "hers", who="eve")
    service = Windows(mine, older, theirs, elsewhere, foreign_only)
    rng = random.Random(20260301)
    outcomes = set()
    for _ in range(1000):
        arguments = {
            name: rng.choice(values)
            for name, values in {
                "event_id": ["x1", "x2", "x3", "m9", "u1", "", "nope"],
                "tool_call_id": ["cx", "c1", ""],
                "session_id": ["", "now", "then", "hers", "nowhere", "eve/now"],
                "user_id": ["eve", "ada"],
                "app_name": ["shop", "garden"],
                "key": [{"user_id": "eve"}],
                "before": [0, 4],
            }.items()
            if rng.random() < 0.8
        }
        try:
            answer = load(arguments, service=service)
        except (RecallError, EventWindowAnchorNotFoundError) as error:
            outcomes.add(str(error))
            continue
        assert not any("secret" in text for text in texts(answer))
    assert {request.key.user_id for request in service.requests} == {"ada"}
    assert {request.key.app_name for request in service.requests} == {"garden"}
    assert not any(word in text for text in outcomes for word in ("x1", "nowhere", "eve/now", "cx"))


def test_an_error_does_not_tell_whether_the_session_exists():
    """SEC-11."""
    service = Windows(session(DAY), session([event("x", result("cx", "s"))], "hers", who="eve"))
    for identity in ({"event_id": "x"}, {"tool_call_id": "cx"}):
        told = set()
        for session_id in ("hers", "nowhere", "now"):
            with pytest.raises((RecallError, EventWindowAnchorNotFoundError)) as caught:
                load({"session_id": session_id, **identity}, service=service)
            told.add((type(caught.value), caught.value.one_line()))
        assert len(told) == 1


def test_the_key_is_the_runs_own():
    """SEC-11, SUM-WIN-01."""
    service = Windows(session(DAY), session(DAY, "then"))
    load({"session_id": "then", "event_id": "a1", "app_name": "shop"}, service=service)
    assert service.requests[0].key == SessionKey("garden", "ada", "then")
    assert service.requests[0].roles == ("user", "assistant", "tool")
