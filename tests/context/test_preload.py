"""Preloaded memories and recalled events."""

from __future__ import annotations

import asyncio

import pytest

from tests.context.build import event, say, session, user
from workbench.context.preload import (
    MemoryEntry,
    load_memory_block,
    load_recall_block,
    memory_block,
    memory_query,
    recall_block,
    recall_query,
)
from workbench.model.types import ContentPart, Message
from workbench.session.recall_types import EventSearchResult
from workbench.session.types import SessionKey

THREE = tuple(MemoryEntry(str(i), f"fact {i}") for i in range(3))


class Memories:
    """Keeps memories and notes what it's asked."""

    def __init__(self, entries=THREE, *, found=(), fails=()):
        self.entries, self.found, self.fails, self.asked = entries, found, fails, []

    async def read_memories(self, user_key, limit):
        self.asked.append(("read", limit))
        if "read" in self.fails:
            raise RuntimeError("down")
        return self.entries[:limit] if limit else self.entries

    async def search_memories(self, user_key, query, max_results):
        self.asked.append(("search", query, max_results))
        if "search" in self.fails:
            raise RuntimeError("down")
        return self.found


def load(reader, budget, message=None, **facts):
    stored = session()
    for name, value in facts.items():
        setattr(stored, name, value)
    return asyncio.run(load_memory_block(reader, stored, message or user("what"), budget))


@pytest.mark.parametrize(
    ("budget", "asked"),
    [(0, []), (-1, [("read", 0)]), (3, [("read", 4)]), (2, [("read", 3), ("search", "what", 2)])],
)
def test_how_memories_are_read(budget, asked):
    """ASM-PRE-02."""
    reader = Memories(found=THREE[:1])
    text = load(reader, budget)
    assert reader.asked == asked
    assert text.count("- [") == {0: 0, -1: 3, 3: 3, 2: 1}[budget]


def test_without_a_query_or_hits_the_newest_are_read():
    """ASM-PRE-02: limits 3 then 2, and no search for an empty query."""
    reader = Memories()
    assert load(reader, 2, Message(role="user")).count("- [") == 2
    assert reader.asked == [("read", 3), ("read", 2)]
    for reader in (Memories(), Memories(fails=("search",))):
        assert load(reader, 2).count("- [") == 2
        assert reader.asked[-1] == ("read", 2)


def test_a_failing_reader_injects_nothing():
    """ASM-PRE-02, -03; an application and a user are needed."""
    assert load(Memories(fails=("read",)), 2) == ""
    assert load(Memories(()), 2) == ""
    assert load(Memories(), 2, user_id="") == ""
    assert load(Memories(), -1, app_name="") == ""


def test_queries():
    """ASM-PRE-03, -05."""
    parts = (ContentPart("text", " b "), ContentPart("image", url="u"), ContentPart("text", "c"))
    assert memory_query(Message(content=" a ", content_parts=parts)) == "a\nb\nc"
    assert recall_query(Message(content=" a ", content_parts=parts)) == "a"
    assert recall_query(Message(content_parts=parts)) == "b c"


def test_the_memory_block():
    """ASM-PRE-04."""
    entry = MemoryEntry("m1", "likes tea", "fact", "2026-03-01", ("Ann", "Bo"), "home")
    text = memory_block([entry], "PLAY")
    assert text.startswith("PLAY\n\n<preloaded_memories>\n")
    assert "- [m1] likes tea (kind=fact; date=2026-03-01; with=Ann, Bo; at=home)\n</preloaded_memories>" in text
    assert memory_block([entry], "  ").startswith("Below")
    assert "session_" not in memory_block([entry])
    assert memory_block([]) == ""


class Searchable:
    """Finds one event, or fails."""

    def __init__(self, *, fails=False):
        self.fails, self.requests = fails, []

    async def search_events(self, request, *, ctx=None):
        self.requests.append(request)
        if self.fails:
            raise RuntimeError("down")
        key = SessionKey("app", "u", "other")
        return [
            EventSearchResult(
                key, event(1, say()), 1, "user", " two\nlines ", 0.5, session_created_ns=86_400_000_000_000
            )
        ]


def test_recall_searches_other_sessions():
    """ASM-PRE-05, -06."""
    service = Searchable()
    text = asyncio.run(load_recall_block(service, session(), user("tea"), 3, min_score=0.2, mode="odd"))
    assert "untrusted" in text
    assert text.endswith(
        "- [session=other created=1970-01-02 role=user score=0.500]\n"
        "<recalled_session_event>two lines</recalled_session_event>\n"
    )
    request = service.requests[0]
    assert (request.query, request.max_results, request.min_score) == ("tea", 3, 0.2)
    assert (request.search_mode, request.exclude_session_ids) == ("hybrid", ("s",))


@pytest.mark.parametrize(
    ("service", "message", "n_events"),
    [(object(), "q", 3), (Searchable(fails=True), "q", 3), (Searchable(), "", 3), (Searchable(), "q", 0)],
)
def test_recall_needs_a_search_a_query_and_a_wish(service, message, n_events):
    """ASM-PRE-05."""
    assert asyncio.run(load_recall_block(service, session(), user(message), n_events)) == ""


def test_an_empty_hit_says_so():
    """ASM-PRE-06."""
    hit = EventSearchResult(SessionKey("a", "u", "s"), event(1, say()), 1, "", " ", 1.0)
    assert "- [session=s score=1.000]\n<recalled_session_event><empty></" in recall_block([hit])
    assert recall_block([]) == ""
