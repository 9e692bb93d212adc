"""session_search: scopes, boundary, broadening, the scan of the current session, hits and snippets."""

import asyncio
import random
from dataclasses import replace

import pytest

from workbench.call import EMPTY_CONTEXT
from workbench.context.recall import RecallRun, SearchSessionRequest, hidden_boundary, session_search
from workbench.context.recall.search import MAX_SCANNED_EVENTS, cut, merged
from workbench.errors import RecallError, StoreClosedError
from workbench.model.types import Message, ToolCall, response_of
from workbench.profiles import SEED, TRPC_AGENT_GO_2026_07, TRPC_AGENT_GO_2026_08
from workbench.session.recall_types import EventSearchResult, EventWindow, history_texts
from workbench.session.types import Event, Session, SessionKey, Summary, SummaryBoundary
from workbench.store.search import event_window

SECOND = 1_000_000_000


def event(event_id, *messages, at=0, **facts):
    return Event(id=event_id, time_ns=at * SECOND, response=response_of(*messages), **facts)


def user(text):
    return Message("user", text)


def assistant(text):
    return Message("assistant", text)


def result(call_id, text, name="dig"):
    return Message("tool", text, tool_id=call_id, tool_name=name)


def session(events=(), session_id="now", app="garden", who="ada", **facts):
    return Session(app_name=app, user_id=who, id=session_id, events=events, **facts)


def summary(text="so far", cutoff=0, last="", updated=0):
    boundary = SummaryBoundary(cutoff_ns=cutoff * SECOND, last_event_id=last) if cutoff or last else None
    return Summary(text, updated_ns=updated * SECOND, boundary=boundary)


class Searchable:
    """Finds the query as it stands, in session then event order; scores 1, 1/2, 1/3..."""

    def __init__(self, *sessions, profile=SEED):
        self.sessions = {session.key: session for session in sessions}
        self.profile = profile
        self.requests = []

    async def list_events(self, key):
        return self.sessions[key].events

    async def search_events(self, request, *, ctx=EMPTY_CONTEXT):
        self.requests.append(request)
        found = []
        for one in self.sessions.values():
            for stored in one.events:
                for text in history_texts(stored, first_choice_only=self.profile.search_first_choice_only):
                    if self.fits(one, stored, text, request):
                        score = 1 / (1 + len(found))
                        found.append(
                            EventSearchResult(
                                one.key, stored, stored.time_ns, text.role, text.labelled, score, choice=text.choice
                            )
                        )
        return found[: request.max_results]

    def fits(self, one, stored, text, request):
        return (
            (one.app_name, one.user_id) == (request.user_key.app_name, request.user_key.user_id)
            and (not request.session_ids or one.id in request.session_ids)
            and one.id not in request.exclude_session_ids
            and (not request.created_before_ns or stored.time_ns <= request.created_before_ns)
            and request.query.lower() in text.labelled.lower()
        )


class SearchableWithWindows(Searchable):
    async def get_event_window(self, request, *, ctx=EMPTY_CONTEXT):
        return event_window(
            self.sessions[request.key].events, request, first_choice_only=self.profile.search_first_choice_only
        )


class NothingIndexed(Searchable):
    def fits(self, one, stored, text, request):
        return False


def search(arguments, current, *others, kind=Searchable, filter_key="", profile=SEED, service=None):
    service = service or kind(current, *others, profile=profile)
    return asyncio.run(session_search(RecallRun(current, service, filter_key, profile), arguments))


def ids(answer):
    return [hit.event_id for hit in answer.results]


def now(**facts):
    """A session whose summary ends at `a1`."""
    facts.setdefault("summaries", {"": summary(cutoff=2, last="a1")})
    return session(
        [
            event("u1", user("the pear wants sun"), at=1),
            event("a1", assistant("the pear stands south"), at=2),
            event("u2", user("prune the pear"), at=3),
        ],
        **facts,
    )


def then():
    return session([event("o1", user("a pear for mother"), at=9)], "then")


# --- arguments ----------------------------------------------------------------------------------------


def test_defaults_are_five_hybrid_hits_of_hidden_history():
    """ASM-OND-10: the table of arguments."""
    request = SearchSessionRequest.parse('{"query": "  pear "}')
    assert request == SearchSessionRequest(
        query="pear", scope="current_hidden", top_k=5, min_score=0.0, search_mode="hybrid"
    )


@pytest.mark.parametrize(("sent", "used"), [(0, 5), (-4, 5), (1, 1), (10, 10), (99, 10), ("3", 3), ("x", 5), (None, 5)])
def test_top_k_is_clamped(sent, used):
    assert SearchSessionRequest.parse({"query": "q", "top_k": sent}).top_k == used


@pytest.mark.parametrize(
    ("sent", "used"),
    [
        ("CURRENT_Session", "current_session"),
        (" other_sessions ", "other_sessions"),
        ("ALL_SESSIONS", "all_sessions"),
        ("everything", "current_hidden"),
        (None, "current_hidden"),
        (7, "current_hidden"),
    ],
)
def test_scopes_are_read_without_regard_to_case_and_unknown_ones_are_hidden_history(sent, used):
    """ASM-OND-10."""
    assert SearchSessionRequest.parse({"query": "q", "scope": sent}).scope == used


def test_odd_values_become_usable_ones():
    request = SearchSessionRequest.parse(
        {"Query": ["pear", 7, {}], "topK": 2.0, "min_score": "0.25", "SearchMode": "dense", "user_id": "eve"}
    )
    assert request == SearchSessionRequest(query="pear 7", top_k=2, min_score=0.25, search_mode="dense")


def test_a_blank_query_finds_nothing_and_asks_nobody():
    """ASM-OND-10, SUM-SCH-03."""
    current = now()
    service = Searchable(current)
    answer = search({"query": " \n", "scope": "all_sessions"}, current, service=service)
    assert answer.to_json() == {"query": "", "scope": "current_hidden", "results": [], "count": 0}
    assert not service.requests


# --- scopes -------------------------------------------------------------------------------------------


def test_hidden_history_ends_with_the_boundary_event_itself():
    """ASM-OND-10, SUM-SCH-06, DA3."""
    answer = search({"query": "pear"}, now(), then())
    assert ids(answer) == ["u1", "a1"]
    assert {hit.scope for hit in answer.results} == {"current_hidden"}


def test_hidden_history_of_a_session_without_a_summary_is_empty():
    """ASM-OND-10."""
    current = now(summaries={})
    service = Searchable(current)
    assert search({"query": "pear"}, current, service=service).count == 0
    assert not service.requests


def test_the_whole_current_session_can_be_searched():
    """ASM-OND-10, ASM-OND-15."""
    answer = search({"query": "pear", "scope": "current_session"}, now(), then())
    assert ids(answer) == ["u1", "a1", "u2"]
    assert {hit.scope for hit in answer.results} == {"current_session"}


def test_other_sessions_leave_the_current_one_out():
    """ASM-OND-10, SUM-SCH-06."""
    answer = search({"query": "pear", "scope": "other_sessions"}, now(), then())
    assert [(hit.scope, hit.session_id, hit.event_id) for hit in answer.results] == [("other_sessions", "then", "o1")]


def test_all_sessions_join_hidden_history_and_other_sessions_newest_first_among_equals():
    """ASM-OND-10."""
    answer = search({"query": "pear", "scope": "all_sessions"}, now(), then())
    assert [(hit.event_id, hit.scope) for hit in answer.results] == [
        ("o1", "other_sessions"),
        ("u1", "current_hidden"),
        ("a1", "current_hidden"),
    ]
    assert ids(search({"query": "pear", "scope": "all_sessions", "top_k": 2}, now(), then())) == ["o1", "u1"]


def test_the_service_is_asked_for_the_runs_user_filter_key_and_roles():
    """ASM-OND-10, SUM-SCH-01, SEC-11."""
    current = now(summaries={"garden": summary(cutoff=2, last="a1")})
    service = Searchable(current)
    search(
        {"query": "pear", "user_id": "eve", "top_k": 7, "min_score": 0.5, "search_mode": "dense"},
        current,
        service=service,
        filter_key=" garden ",
    )
    request = service.requests[0]
    assert (request.user_key.app_name, request.user_key.user_id) == ("garden", "ada")
    assert (request.filter_key, request.roles) == ("garden", ("user", "assistant", "tool"))
    assert (request.max_results, request.min_score, request.search_mode) == (7, 0.5, "dense")
    assert (request.session_ids, request.created_before_ns) == (("now",), 2 * SECOND)


def test_no_search_brings_anybody_elses_history():
    """SEC-11: a service that answers with everything it has doesn't get it through."""

    class Leaky(Searchable):
        def fits(self, one, stored, text, request):
            return True

    current = now()
    others = [
        session([event("x", user("eve's secret"), at=1)], name, app=app, who=who)
        for name, app, who in [("now", "garden", "eve"), ("then", "shop", "ada"), ("hers", "garden", "eve")]
    ]
    service = Leaky(*others, current, then())
    rng = random.Random(7)
    for _ in range(250):
        arguments = {
            "query": rng.choice(["secret", "pear", "eve", "now"]),
            "scope": rng.choice(["current_hidden", "current_session", "other_sessions", "all_sessions", "eve"]),
            "user_id": "eve",
            "app_name": rng.choice(["shop", "garden"]),
            "session_ids": ["hers"],
            "top_k": rng.choice([1, 10]),
        }
        answer = search(arguments, current, service=service)
        assert {hit.session_id for hit in answer.results} <= {"now", "then"}
        assert not any("secret" in hit.snippet for hit in answer.results)
    assert {request.user_key.user_id for request in service.requests} == {"ada"}


# --- the boundary -------------------------------------------------------------------------------------


def test_the_summary_of_the_same_key_decides_first():
    """ASM-OND-11."""
    current = now(
        summaries={"garden": summary(cutoff=3, last="u2"), "garden/a": summary(cutoff=1), "": summary(cutoff=2)}
    )
    assert hidden_boundary(current, "garden").last_event_id == "u2"


def test_summaries_below_the_key_come_next_with_their_earliest_cutoff():
    """ASM-OND-11."""
    below = {"garden/a": summary(cutoff=3, last="u2"), "garden/b": summary(cutoff=2), "": summary(cutoff=9)}
    boundary = hidden_boundary(now(summaries=below), "garden")
    assert (boundary.cutoff_ns, boundary.last_event_id) == (2 * SECOND, "")


def test_a_summary_below_without_a_cutoff_hides_nothing():
    """ASM-OND-11."""
    assert hidden_boundary(now(summaries={"garden/a": summary(cutoff=3), "garden/b": summary()}), "garden") is None


def test_the_full_session_summary_comes_third_and_blank_texts_are_ignored():
    """ASM-OND-11."""
    current = now(summaries={"garden": summary(" \n", cutoff=9), "": summary(cutoff=2, last="a1")})
    assert hidden_boundary(current, "garden").last_event_id == "a1"


def test_the_state_of_a_direct_call_comes_last():
    """ASM-OND-11."""
    state = {
        "summary:last_included_ts": b"1970-01-01T00:00:02.5Z",
        "summary:last_included_event_id": b"a1",
    }
    boundary = hidden_boundary(now(summaries={"": summary(" ")}, state=state), "garden")
    assert (boundary.cutoff_ns, boundary.last_event_id) == (2 * SECOND + SECOND // 2, "a1")
    for broken in (b"yesterday", b"", None):
        assert hidden_boundary(now(summaries={}, state={"summary:last_included_ts": broken}), "") is None


def test_a_summary_without_a_boundary_ends_at_its_time():
    """ASM-OND-11, SUM-SCH-06."""
    answer = search({"query": "pear"}, now(summaries={"": summary(updated=2)}))
    assert ids(answer) == ["u1", "a1"]


TWINS = [event("covered", user("pear one"), at=5), event("open", user("pear two"), at=5)]


@pytest.mark.parametrize("kind", [Searchable, NothingIndexed])
def test_an_event_of_the_boundarys_time_but_behind_it_is_not_hidden(kind):
    """ASM-OND-11, SUM-SCH-06: by order with a known id, in the index and in the scan."""
    by_id = session(TWINS, summaries={"": summary(cutoff=5, last="covered")})
    assert ids(search({"query": "pear"}, by_id, kind=kind)) == ["covered"]
    by_time = session(TWINS, summaries={"": summary(cutoff=5, last="forgotten")})
    assert sorted(ids(search({"query": "pear"}, by_time, kind=kind))) == ["covered", "open"]


def test_events_that_left_the_live_session_are_judged_by_time():
    """SUM-SCH-06."""
    stored = [event("first", user("pear zero"), at=1), *now().events]
    current = now()
    service = Searchable(session(stored))
    assert ids(search({"query": "pear"}, current, service=service)) == ["first", "u1", "a1"]


# --- broadening ---------------------------------------------------------------------------------------


def asked(arguments, current, **options):
    service = options.pop("kind", Searchable)(current)
    answer = search({"scope": "current_session", **arguments}, current, service=service, **options)
    return answer, [request.query for request in service.requests]


def test_a_failed_question_stops_at_the_first_query_that_succeeds():
    """ASM-OND-13, assembly.md section 17 case 40: exactly two calls."""
    current = session([event("e", user("rope ladder orchard gate"), at=1)])
    answer, queries = asked({"query": "What did we say about the rope ladder at orchard gate?"}, current)
    assert queries == ["What did we say about the rope ladder at orchard gate?", "rope ladder orchard gate"]
    assert ids(answer) == ["e"]


def test_enough_hits_need_no_second_query():
    """ASM-OND-13."""
    current = session([event("a", user("pear, plum"), at=1), event("b", user("pear, plum too"), at=2)])
    assert asked({"query": "plum"}, current)[1] == ["plum"]
    assert asked({"query": "pear, plum", "top_k": 2}, current)[1] == ["pear, plum"]
    assert asked({"query": "pear", "top_k": 1}, current)[1] == ["pear"]


def test_a_compound_question_goes_on_until_top_k():
    """ASM-OND-13."""
    current = session(
        [
            event("both", user("pear and plum")),
            event("pear", user("a pear")),
            event("plum", user("a plum")),
            event("fig", user("a fig")),
        ]
    )
    answer, queries = asked({"query": "pear and plum", "top_k": 3}, current)
    assert queries == ["pear and plum", "pear", "plum"]
    assert sorted(ids(answer)) == ["both", "pear", "plum"]


def test_one_hit_of_five_wanted_is_too_little():
    """ASM-OND-13."""
    current = session([event("one", user("id 0001-x")), event("two", user("id 0001"))])
    answer, queries = asked({"query": "0001-"}, current)
    assert queries == ["0001-", "0001"]
    assert ids(answer) == ["one", "two"]


def test_the_same_hit_keeps_its_higher_score():
    """ASM-OND-13, ASM-OND-10."""
    first = EventSearchResult(SessionKey("g", "a", "s"), event("e", user("x")), 1, "user", "x", 0.4)
    better, other = replace(first, score=0.9), replace(first, session_key=SessionKey("g", "a", "t"), score=0.5)
    assert merged([first, other], [better]) == [better, other]


def test_blanks_in_a_question_are_made_one_before_it_is_asked():
    """ASM-OND-13."""
    current = session([event("a", user("pear tree")), event("b", user("pear tree"))])
    answer, queries = asked({"query": " pear \n tree "}, current)
    assert queries == ["pear tree"]
    assert answer.query == "pear \n tree"


# --- the scan -----------------------------------------------------------------------------------------


def test_an_unindexed_session_is_read_word_by_word():
    """ASM-OND-12."""
    current = session(
        [
            event("off", user("nothing to see"), at=1),
            event("some", assistant("the budget waits until April"), at=2),
            event("most", assistant("the budget review moves to Friday, in April"), at=3),
        ]
    )
    answer = search({"query": "budget review April", "scope": "current_session"}, current, kind=NothingIndexed)
    assert ids(answer) == ["most", "some"]
    assert answer.results[0].score == pytest.approx(1.15)
    assert answer.results[1].score == pytest.approx(2 / 3 + 0.15)


def test_the_scan_obeys_filter_key_top_k_and_boundary():
    """ASM-OND-12, ASM-OND-10."""
    events = [event(f"e{i}", user(f"pear {i}"), at=i, filter_key="garden/a" if i % 2 else "shed") for i in range(1, 9)]
    current = session(events, summaries={"garden": summary(cutoff=5, last="e5")})
    answer = search({"query": "pear", "top_k": 2}, current, kind=NothingIndexed, filter_key="garden")
    assert ids(answer) == ["e5", "e3"]


def test_the_scan_reads_the_newest_ten_thousand_events():
    """ASM-OND-12."""
    events = [event("old", user("a quince"))] + [event(f"e{i}", user("pear")) for i in range(MAX_SCANNED_EVENTS)]
    current = session(events)
    assert search({"query": "quince", "scope": "current_session"}, current, kind=NothingIndexed).count == 0
    current = session(events[: MAX_SCANNED_EVENTS - 1])
    assert search({"query": "quince", "scope": "current_session"}, current, kind=NothingIndexed).count == 1


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("苗圃的会议改到什么时候", "苗圃的会议改到星期五下午"),
        ("梨の木はどこに植えますか", "梨の木は南の壁に植えました"),
        ("배나무를 어디에 심었나요", "배나무를 남쪽 담에 심었어요"),
    ],
    ids=["Chinese", "Japanese", "Korean"],
)
def test_the_scan_finds_sentences_written_without_blanks(question, said):
    """ASM-OND-12: by character pairs, which the references lack."""
    current = session([event("x", user("今日は晴れ")), event("hit", assistant(said)), event("y", user("좋아요 好的"))])
    found = {
        profile.name: ids(
            search({"query": question, "scope": "current_session"}, current, kind=NothingIndexed, profile=profile)
        )
        for profile in (SEED, TRPC_AGENT_GO_2026_08)
    }
    assert found == {"SEED": ["hit"], "TRPC_AGENT_GO_2026_08": []}


def test_other_sessions_are_not_scanned():
    """ASM-OND-12: only the two scopes of the current session are."""
    assert search({"query": "pear", "scope": "other_sessions"}, now(), then(), kind=NothingIndexed).count == 0


# --- hits ---------------------------------------------------------------------------------------------


def test_the_first_two_hits_come_with_the_messages_around_them():
    """ASM-OND-16, ASM-OND-15."""
    answer = search({"query": "pear", "scope": "current_session"}, now(), kind=SearchableWithWindows)
    first, second, third = answer.results
    assert first.snippet == "[match] user: the pear wants sun\nassistant: the pear stands south\nuser: prune the pear"
    assert [message.event_id for message in second.context] == ["u1", "a1", "u2"]
    assert (third.context, third.snippet) == ((), "prune the pear")
    assert "context" not in third.to_json()


def test_a_service_without_windows_gives_the_text_found():
    """ASM-OND-16."""
    answer = search({"query": "pear", "scope": "current_session"}, now())
    assert [hit.snippet for hit in answer.results] == ["the pear wants sun", "the pear stands south", "prune the pear"]
    assert all(hit.context == () for hit in answer.results)


@pytest.mark.parametrize("error", [StoreClosedError("closed"), ValueError("odd")])
def test_an_error_of_a_window_is_ignored(error):
    """ASM-OND-16."""

    class Broken(Searchable):
        async def get_event_window(self, request, *, ctx=EMPTY_CONTEXT):
            raise error

    assert search({"query": "pear"}, now(), kind=Broken).results[0].snippet == "the pear wants sun"


def test_lines_and_snippets_are_cut_with_dots_that_count():
    """ASM-OND-16: 93 + 3 characters of a line's text, 277 + 3 of the whole."""
    events = [event(f"e{i}", user(f"pear {'x' * 200}"), at=i) for i in range(5)]
    answer = search({"query": "pear", "scope": "current_session"}, session(events), kind=SearchableWithWindows)
    first, third = answer.results[0], answer.results[2]
    lines = first.snippet.split("\n")
    assert lines[0] == "[match] user: pear " + "x" * 88 + "..."
    assert len(first.snippet) == 280
    assert first.snippet.endswith("...")
    assert third.snippet == "pear " + "x" * 200
    long = search({"query": "pear", "scope": "current_session"}, session([event("e", user("pear " + "梨" * 500))]))
    assert long.results[0].snippet == "pear " + "梨" * 272 + "..."


def test_a_cut_text_is_one_line():
    """ASM-OND-16."""
    assert cut(" a\n\tb  c ", 10) == "a b c"
    assert cut("abcdefgh", 7) == "abcd..."
    assert cut("abcdefg", 7) == "abcdefg"


def test_tool_hits_name_the_call_and_say_whether_the_result_fits():
    """ASM-OND-15."""
    events = [
        event("long", result("c1", "pear " + "é" * 400), at=1),
        event("short", result("c2", "pear é"), at=2),
    ]
    long, short = search({"query": "pear", "scope": "current_session"}, session(events)).results
    assert (long.tool_call_id, long.tool_name, long.content_bytes, long.content_truncated) == ("c1", "dig", 805, True)
    assert (short.tool_call_id, short.tool_name, short.content_bytes, short.content_truncated) == (
        "c2",
        "dig",
        7,
        False,
    )
    assert long.snippet.startswith("dig: pear é")
    assert short.snippet == "dig: pear é"
    assert short.created == "1970-01-01T00:00:02Z"


def test_context_messages_are_whole():
    """ASM-OND-15: tool results with their names in front, never sliced."""
    events = [event("r", result("c1", "x" * 90_000)), event("u", user("pear"))]
    hit = search({"query": "pear", "scope": "current_session"}, session(events), kind=SearchableWithWindows).results[0]
    message = hit.context[0]
    assert message.content == "dig: " + "x" * 90_000
    assert (message.tool_call_id, message.tool_name, message.content_bytes) == ("c1", "dig", 90_000)
    assert "returned_bytes" not in message.to_json()


def test_hits_without_an_event_id_are_skipped_and_blank_ones_say_so():
    """ASM-OND-15, ASM-OND-16."""

    class Odd(Searchable):
        async def search_events(self, request, *, ctx=EMPTY_CONTEXT):
            key = SessionKey("garden", "ada", "now")
            return [
                EventSearchResult(key, event("", user("no id")), 1, "user", "no id", 0.9),
                EventSearchResult(key, event("blank", assistant(" ")), 0, "", " ", 0.8),
                EventSearchResult(key, event("bare", user("taken from the event"), at=4), 0, "", "", 0.7),
            ]

    answer = search({"query": "pear", "scope": "current_session"}, now(), kind=Odd)
    assert [(hit.event_id, hit.snippet, hit.role, hit.created) for hit in answer.results] == [
        ("blank", "<empty>", "", ""),
        ("bare", "taken from the event", "user", "1970-01-01T00:00:04Z"),
    ]
    assert answer.count == 2


PARALLEL = [
    event("u", user("dig twice"), at=1),
    event("both", result("c1", "clay below", "north"), result("c2", "sand below", "south"), at=2),
]


@pytest.mark.parametrize("kind", [SearchableWithWindows, NothingIndexed])
def test_every_result_of_parallel_calls_can_be_found(kind):
    """DA12, ASM-OND-04: the references look at the first choice only."""
    current = session(PARALLEL)
    hits = search({"query": "sand", "scope": "current_session"}, current, kind=kind).results
    assert [(hit.event_id, hit.tool_call_id, hit.tool_name, hit.content_bytes) for hit in hits] == [
        ("both", "c2", "south", 10)
    ]
    for profile in (TRPC_AGENT_GO_2026_07, TRPC_AGENT_GO_2026_08):
        assert search({"query": "sand", "scope": "current_session"}, current, kind=kind, profile=profile).count == 0
    below = search({"query": "below", "scope": "current_session"}, current, kind=kind)
    assert [hit.tool_call_id for hit in below.results] == ["c1", "c2"]


def test_the_line_of_the_result_that_was_found_is_marked():
    """DA12, ASM-OND-16."""
    hit = search({"query": "sand", "scope": "current_session"}, session(PARALLEL), kind=SearchableWithWindows).results[
        0
    ]
    assert hit.snippet == "user: dig twice\ntool: north: clay below\n[match] tool: south: sand below"
    assert [message.tool_call_id for message in hit.context] == ["", "c1", "c2"]


def test_calls_partial_events_and_blank_texts_are_not_searchable():
    """ASM-OND-04."""
    events = [
        event("call", Message("assistant", "pear", tool_calls=(ToolCall("c", "dig", "{}"),))),
        Event(id="piece", response=response_of(user("pear"), is_partial=True, done=False)),
        event("blank", user(" ")),
        event("system", Message("system", "pear")),
    ]
    assert search({"query": "pear", "scope": "current_session"}, session(events), kind=NothingIndexed).count == 0


# --- errors -------------------------------------------------------------------------------------------


def test_errors_of_a_search_say_what_is_missing():
    """ASM-OND-26."""
    with pytest.raises(RecallError, match="during a run"):
        asyncio.run(session_search(None, {"query": "pear"}))
    with pytest.raises(RecallError, match="no session"):
        asyncio.run(session_search(RecallRun(None, Searchable()), {"query": "pear"}))
    with pytest.raises(RecallError, match="can't search"):
        asyncio.run(session_search(RecallRun(now(), object()), {"query": "pear"}))
    with pytest.raises(RecallError, match="JSON object"):
        search("pear", now())


def test_an_empty_window_leaves_the_text_found():
    """ASM-OND-16."""

    class Empty(Searchable):
        async def get_event_window(self, request, *, ctx=EMPTY_CONTEXT):
            return EventWindow(request.key, request.anchor_event_id, ())

    assert search({"query": "pear"}, now(), kind=Empty).results[0].snippet == "the pear wants sun"
