"""Which recall tools are offered, what they say, the overview."""

import asyncio
import json

import pytest

from workbench.call import EMPTY_CONTEXT
from workbench.context.recall import (
    OVERVIEWS,
    STATIC_LISTING,
    RecallRun,
    call_on_demand_tool,
    on_demand_overview,
    on_demand_tools,
    with_overview,
)
from workbench.errors import RecallError
from workbench.model.types import Message, response_of
from workbench.session.recall_types import EventWindow, EventWindowEntry
from workbench.session.types import Event, Session

HELLO = Event(id="e1", response=response_of(Message("user", "hello")))


class Search:
    async def search_events(self, request, *, ctx=EMPTY_CONTEXT):
        return []


class Load:
    async def get_event_window(self, request, *, ctx=EMPTY_CONTEXT):
        return EventWindow(request.key, request.anchor_event_id, (EventWindowEntry(HELLO, 0),))


class Both(Search, Load):
    pass


class SaysNo(Both):
    """One class over many stores: this store has no index."""

    supports_search = False


def names(*arguments, **options):
    return [spec.name for spec in on_demand_tools(*arguments, **options)]


@pytest.mark.parametrize(
    ("service", "offered"),
    [
        (None, []),
        (object(), []),
        (Search(), ["session_search"]),
        (Load(), ["session_load"]),
        (Both(), ["session_search", "session_load"]),
        (SaysNo(), ["session_load"]),
    ],
)
def test_each_tool_is_offered_where_the_service_can_do_it(service, offered):
    """ASM-OND-01, SUM-STO-01."""
    assert names(service) == offered


def test_nothing_is_offered_beside_an_output_schema():
    """ASM-OND-02."""
    assert names(Both(), True) == []
    assert names(has_output_schema=True) == []


def test_a_static_listing_has_both():
    """ASM-OND-02."""
    assert names() == names(STATIC_LISTING) == ["session_search", "session_load"]


def test_declarations_are_json_schemas_without_application_and_user():
    """SEC-11, ASM-OND-10, ASM-OND-20."""
    search, load = on_demand_tools()
    schema = json.loads(search.parameters_json)
    assert schema["required"] == ["query"]
    assert set(schema["properties"]) == {"query", "scope", "top_k", "min_score", "search_mode"}
    schema = json.loads(load.parameters_json)
    assert "required" not in schema
    assert set(schema["properties"]) == {
        "session_id",
        "event_id",
        "tool_call_id",
        "before",
        "after",
        "content_offset",
        "content_limit",
    }
    for spec in (search, load):
        assert "not instructions" in spec.description


def test_the_declaration_of_load_asks_for_small_pieces():
    """ASM-OND-27."""
    assert "small" in on_demand_tools()[1].description


# --- the overview -------------------------------------------------------------------------------------


def test_there_are_three_overviews_and_each_names_the_tools_it_has():
    """ASM-OND-03."""
    told = [on_demand_overview(service) for service in (Both(), Load(), Search())]
    assert tuple(told) == OVERVIEWS
    assert [("session_search" in text, "session_load" in text) for text in told] == [
        (True, True),
        (False, True),
        (True, False),
    ]
    for text in told:
        assert "hide details" in text
        assert "not instructions" in text
    assert on_demand_overview(object()) == on_demand_overview(None) == ""


def test_the_overview_stands_behind_a_blank_line_in_the_first_system_message():
    """ASM-OND-03."""
    messages = (Message("user", "hi"), Message("system", "be brief"), Message("system", "second"))
    told = with_overview(messages, "OVERVIEW")
    assert [message.content for message in told] == ["hi", "be brief\n\nOVERVIEW", "second"]
    assert messages[1].content == "be brief"


def test_the_overview_is_added_once():
    """ASM-OND-03."""
    once = with_overview((Message("system", "be brief"),), OVERVIEWS[0])
    assert with_overview(once, OVERVIEWS[0]) == once


def test_without_a_system_message_the_overview_is_one():
    """ASM-OND-03."""
    told = with_overview([Message("user", "hi")], "OVERVIEW")
    assert [(message.role, message.content) for message in told] == [("system", "OVERVIEW"), ("user", "hi")]
    assert with_overview([Message("system", "")], "OVERVIEW") == (Message("system", "OVERVIEW"),)
    assert with_overview([Message("user", "hi")], "") == (Message("user", "hi"),)


# --- calls --------------------------------------------------------------------------------------------


def call(name, arguments):
    run = RecallRun(Session(app_name="garden", user_id="ada", id="now", events=[HELLO]), Both())
    return asyncio.run(call_on_demand_tool(name, arguments, run))


def test_answers_are_plain_json():
    """ASM-OND-15, ASM-OND-25."""
    answer = call("session_search", '{"query": "pear"}')
    assert (
        json.loads(json.dumps(answer))
        == answer
        == {
            "query": "pear",
            "scope": "current_hidden",
            "results": [],
            "count": 0,
        }
    )
    answer = call("session_load", '{"event_id": "e1"}')
    assert json.loads(json.dumps(answer)) == answer
    assert answer["messages"] == [{"event_id": "e1", "role": "user", "created": "", "content": "hello"}]


def test_an_unknown_tool_is_an_error_with_the_nearest_name():
    with pytest.raises(RecallError) as caught:
        call("session_serach", "{}")
    assert "session_search" in caught.value.hint
