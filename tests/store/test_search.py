"""Windows over event lists, keyword ranking in all scripts, dense and hybrid search."""

import asyncio
import logging
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.errors import ConfigError, EventWindowAnchorNotFoundError, InvalidSessionKeyError, PagingError
from workbench.model.types import ContentPart, Message, ToolCall, response_of
from workbench.session.recall_types import EventSearchRequest, EventWindowRequest, history_texts, message_text
from workbench.session.types import Event, SessionKey, UserKey
from workbench.store.indexing import HashEmbedder
from workbench.store.search import (
    cosine_similarity,
    dense_ranking,
    document_terms,
    event_window,
    fused,
    indexed_texts,
    is_history,
    keyword_ranking,
    matching,
    query_terms,
    rank,
    ranked_search,
)

SECOND = 1_000_000_000
KEY = SessionKey("garden", "ada", "now")
ADA = UserKey("garden", "ada")


def event(event_id, *messages, at=0, **facts):
    return Event(id=event_id, time_ns=at * SECOND, response=response_of(*messages), **facts)


def user(text):
    return Message("user", text)


def assistant(text):
    return Message("assistant", text)


def result(call_id, text, name="dig"):
    return Message("tool", text, tool_id=call_id, tool_name=name)


def call(call_id):
    return Message("assistant", "calling", tool_calls=(ToolCall(call_id, "dig", "{}"),))


def texts_of(*events, key=KEY, **options):
    return [text for one in events for text in indexed_texts(key, one, **options)]


def said(*sentences):
    """One indexed text per sentence, older ones first, named by their number."""
    return texts_of(*(event(str(i), user(sentence), at=i + 1) for i, sentence in enumerate(sentences)))


def found(ranking):
    return [text.event.id for text, _ in ranking]


# --- history ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "role", "text"),
    [
        (user(" hi "), "user", "hi"),
        (Message("", "hi"), "assistant", "hi"),
        (Message("user", "done", tool_id="c1"), "tool", "done"),
        (Message("tool", "done"), "tool", "done"),
        (
            Message("assistant", " ", content_parts=(ContentPart("text", "a"), ContentPart("text", "b"))),
            "assistant",
            "a\nb",
        ),
    ],
)
def test_history_is_what_users_assistants_and_tools_said(message, role, text):
    """SUM-WIN-02, ASM-OND-04."""
    (history,) = history_texts(event("e", message))
    assert (history.role, history.text) == (role, text)


@pytest.mark.parametrize(
    "other",
    [
        Event(id="e"),
        Event(id="e", response=response_of()),
        Event(id="e", response=response_of(user("hi"), is_partial=True, done=False)),
        event("e", user(" \n")),
        event("e", call("c")),
        event("e", Message("system", "be brief")),
        event("e", Message("user", content_parts=(ContentPart("image", url="x"), ContentPart("text", " ")))),
    ],
    ids=["no response", "no choice", "partial", "blank", "call", "system", "no text part"],
)
def test_everything_else_is_no_history(other):
    """SUM-WIN-02, SUM-SCH-02."""
    assert history_texts(other) == ()
    assert not is_history(other)


def test_further_choices_are_history_only_when_they_are_tool_results():
    """DA12, ASM-OND-04."""
    both = event("e", result("c1", "clay"), result("c2", "sand"), assistant("and so on"))
    assert [text.tool_call_id for text in history_texts(both)] == ["c1", "c2"]
    assert [text.tool_call_id for text in history_texts(both, first_choice_only=True)] == ["c1"]
    assert history_texts(event("e", call("c1"), result("c2", "sand"))) == ()


def test_content_goes_before_parts():
    assert message_text(Message("user", "said", content_parts=(ContentPart("text", "part"),))) == "said"


# --- windows ------------------------------------------------------------------------------------------

DAY = [
    event("u1", user("one"), at=1),
    event("k", call("c1"), at=2),
    event("r1", result("c1", "clay"), at=3),
    event("blank", assistant(""), at=4),
    event("a1", assistant("two"), at=5),
    event("u2", user("three"), at=6),
]


def window_ids(anchor, before=0, after=0, roles=(), events=None):
    request = EventWindowRequest(KEY, anchor, before=before, after=after, roles=roles)
    window = event_window(DAY if events is None else events, request)
    return [entry.event.id for entry in window.entries]


def test_a_window_counts_history_only_and_keeps_the_stored_order():
    """SUM-WIN-02, SUM-WIN-03."""
    assert window_ids("a1", 2, 1) == ["u1", "r1", "a1", "u2"]
    assert window_ids("r1") == ["r1"]
    assert window_ids("u1", 5, 0) == ["u1"]


def test_sizes_count_after_filtering_by_role():
    """SUM-WIN-02."""
    assert window_ids("a1", 1, 1, roles=("user", "assistant")) == ["u1", "a1", "u2"]
    assert window_ids("u2", 1, 0, roles=("user",)) == ["u1", "u2"]


@pytest.mark.parametrize(
    ("anchor", "roles"), [("nope", ()), ("k", ()), ("blank", ()), ("r1", ("user",)), ("u1", ("tool", "assistant"))]
)
def test_an_anchor_that_is_no_history_of_these_roles_is_not_found(anchor, roles):
    """SUM-WIN-03."""
    with pytest.raises(EventWindowAnchorNotFoundError):
        window_ids(anchor, 1, 1, roles)


def test_the_anchor_is_stripped_and_reported():
    """SUM-WIN-01, SUM-WIN-03."""
    window = event_window(DAY, EventWindowRequest(KEY, " a1\n"))
    assert (window.key, window.anchor_event_id) == (KEY, "a1")
    assert [entry.created_ns for entry in window.entries] == [5 * SECOND]


def test_entries_carry_the_time_of_storing_where_a_store_knows_it():
    """SUM-WIN-03."""
    window = event_window(DAY, EventWindowRequest(KEY, "a1"), created_ns=lambda stored: stored.time_ns + 7)
    assert window.entries[0].created_ns == 5 * SECOND + 7


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (EventWindowRequest(KEY, " "), PagingError),
        (EventWindowRequest(KEY, "a1", before=-1), PagingError),
        (EventWindowRequest(KEY, "a1", after=-1), PagingError),
        (EventWindowRequest(SessionKey("garden", "", "now"), "a1"), InvalidSessionKeyError),
    ],
)
def test_a_window_needs_a_whole_key_an_anchor_and_sizes_of_zero_or_more(request_, error):
    """SUM-WIN-01."""
    with pytest.raises(error):
        event_window(DAY, request_)


_events = st.lists(
    st.sampled_from([user("x"), assistant("y"), result("c", "z"), call("c"), user(" "), Message("system", "s")]),
    max_size=30,
).map(lambda messages: [event(f"e{i}", message) for i, message in enumerate(messages)])


@given(_events, st.integers(0, 29), st.integers(0, 6), st.integers(0, 6), st.sets(st.sampled_from(["user", "tool"])))
def test_a_window_is_a_slice_of_the_history_that_counts(events, anchor, before, after, roles):
    """SUM-WIN-02, SUM-WIN-03: the same as filtering everything first and slicing then."""
    counted = [one.id for one in events if is_history(one, roles)]
    anchor_id = f"e{anchor}"
    if anchor_id not in counted:
        with pytest.raises(EventWindowAnchorNotFoundError):
            window_ids(anchor_id, before, after, tuple(roles), events)
        return
    at = counted.index(anchor_id)
    expected = counted[max(at - before, 0) : at + after + 1]
    assert window_ids(anchor_id, before, after, tuple(roles), events) == expected


# --- terms and keywords -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("The Pear, no. 7_b!", ["the", "pear", "no", "7", "b"]),
        ("苗圃会议", ["苗圃", "圃会", "会议"]),
        ("梨の木をカー", ["梨の", "の木", "木を", "をカ", "カー"]),
        ("배나무 심기", ["배나", "나무", "심기"]),
        ("梨 pear梨木", ["梨", "pear", "梨木"]),
        ("ＰＥＡＲ ｶｰﾄﾞ", ["pear", "カー", "ード"]),
        ("Straße ЯБЛОКО", ["strasse", "яблоко"]),
        ("。、！?", []),
    ],
)
def test_words_are_terms_and_runs_without_blanks_are_pairs(text, terms):
    assert query_terms(text) == terms


def test_a_single_character_finds_every_text_that_holds_it():
    assert document_terms("梨の木") == {"梨の": 1, "の木": 1, "梨": 1, "の": 1, "木": 1}
    assert found(keyword_ranking("木", said("梨の木", "梅"), limit=5)) == ["0"]


SENTENCES = [
    "We planted the pear by the south wall in April.",
    "The irrigation pump needs a new gasket.",
    "Ada prefers plums to pears for jam.",
    "苗圃的会议改到星期五下午三点。",
    "水泵的密封圈需要更换。",
    "四月我们把梨树种在南墙边。",
    "梨の木は四月に南の壁のそばに植えました。",
    "ポンプのパッキンを交換する必要があります。",
    "来週の会議は金曜日の午後に変わりました。",
    "배나무는 사월에 남쪽 담 옆에 심었습니다.",
    "펌프의 고무 고리를 바꿔야 합니다.",
    "다음 회의는 금요일 오후로 옮겼습니다.",
]


@pytest.mark.parametrize(
    ("query", "best"),
    [
        ("where is the pear planted", 0),
        ("pump gasket", 1),
        ("jam plums", 2),
        ("会议改到什么时候", 3),
        ("密封圈", 4),
        ("梨树种在哪里", 5),
        ("梨の木はどこに植えた", 6),
        ("ポンプの交換", 7),
        ("会議はいつに変わった", 8),
        ("배나무를 어디에 심었나", 9),
        ("펌프 고리", 10),
        ("회의는 언제로 옮겼나", 11),
    ],
)
@pytest.mark.parametrize("mode", ["hybrid", "dense"])
def test_sentences_of_four_languages_are_found(query, best, mode):
    """SUM-SCH-02, SUM-SCH-04: keyword ranking, and search with the hashing embedder, need no word lists."""
    texts = said(*SENTENCES)
    assert found(keyword_ranking(query, texts, limit=3))[0] == str(best)
    embedder = HashEmbedder(512)
    embedded = [text.with_vector(embedder.vector_of(text.text)) for text in texts]
    request = EventSearchRequest(query, ADA, max_results=3, search_mode=mode)
    results = asyncio.run(ranked_search(request, embedded, embedder))
    assert results[0].event.id == str(best)


def test_rare_words_count_more_than_frequent_ones():
    texts = said("a quince", "a pear", "a pear", "a pear")
    assert found(keyword_ranking("pear quince", texts, limit=4)) == ["0", "3", "2", "1"]


def test_a_short_text_beats_a_long_one_with_the_same_word():
    texts = said("quince", "quince " + "and so on and on " * 20)
    assert found(keyword_ranking("quince", texts, limit=2)) == ["0", "1"]


def test_texts_that_share_no_term_are_left_out_and_equals_are_newest_first():
    """SUM-SCH-04."""
    assert found(keyword_ranking("pear", said("fig", "a pear", "plum", "a pear"), limit=9)) == ["3", "1"]
    assert keyword_ranking("?!", said("fig"), limit=9) == []
    assert keyword_ranking("fig", [], limit=9) == []


@given(st.lists(st.text(alphabet="ab 梨木の", max_size=12), max_size=8), st.text(alphabet="ab 梨木の", max_size=6))
def test_keyword_scores_are_positive_and_sorted(sentences, query):
    ranking = keyword_ranking(query, said(*sentences), limit=50)
    scores = [score for _, score in ranking]
    assert scores == sorted(scores, reverse=True)
    assert all(score > 0 for score in scores)
    wanted = set(query_terms(query))
    matched = {str(i) for i, sentence in enumerate(sentences) if wanted & set(document_terms(sentence))}
    assert set(found(ranking)) == {one for one in matched if sentences[int(one)].strip()}


# --- what is indexed ----------------------------------------------------------------------------------


def test_user_and_assistant_texts_and_tool_results_are_indexed():
    """SUM-SCH-02."""
    assert [text.text for text in texts_of(*DAY)] == ["one", "dig: clay", "two", "three"]


def test_every_result_of_parallel_calls_is_indexed():
    """DA12, SUM-SCH-02."""
    both = event("e", result("c1", "clay", "north"), result("c2", "sand", "south"))
    assert [text.text for text in texts_of(both)] == ["north: clay", "south: sand"]
    assert [text.text for text in texts_of(both, first_choice_only=True)] == ["north: clay"]


def test_a_text_builder_rewrites_or_leaves_out():
    """SUM-SCH-05."""

    def builder(stored, text):
        return "" if stored.id == "a1" else text.upper()

    assert [text.text for text in texts_of(*DAY, text_builder=builder)] == ["ONE", "DIG: CLAY", "THREE"]


# --- requests -----------------------------------------------------------------------------------------


def test_a_request_has_these_defaults():
    """SUM-SCH-01."""
    request = EventSearchRequest("pear", ADA)
    assert (request.max_results, request.min_score, request.search_mode) == (5, 0.0, "dense")
    assert (request.hybrid_rrf_k, request.hybrid_candidate_ratio) == (60, 3)


KEYED = [
    event("none", user("pear"), at=1),
    event("up", user("pear"), at=2, filter_key="garden"),
    event("same", assistant("pear"), at=3, filter_key="garden/a"),
    event("down", result("c", "pear"), at=4, filter_key="garden/a/b"),
    event("side", user("pear"), at=5, filter_key="garden/ab"),
]


@pytest.mark.parametrize(
    ("limits", "left"),
    [
        ({}, ["none", "up", "same", "down", "side"]),
        ({"filter_key": "garden/a"}, ["none", "up", "same", "down"]),
        ({"filter_key": "garden/ab"}, ["none", "up", "side"]),
        ({"roles": ("assistant", "tool")}, ["same", "down"]),
        ({"session_ids": ("then",)}, []),
        ({"session_ids": ("now", "then")}, ["none", "up", "same", "down", "side"]),
        ({"exclude_session_ids": ("now",)}, []),
        ({"created_after_ns": 3 * SECOND}, ["same", "down", "side"]),
        ({"created_before_ns": 3 * SECOND}, ["none", "up", "same"]),
        ({"created_after_ns": 2 * SECOND, "created_before_ns": 2 * SECOND}, ["up"]),
    ],
)
def test_a_request_limits_where_it_looks(limits, left):
    """SUM-SCH-01: keys match both ways, times include their ends."""
    request = EventSearchRequest("pear", ADA, **limits)
    assert [text.event.id for text in matching(request, texts_of(*KEYED))] == left


@pytest.mark.parametrize("user_key", [UserKey("garden", "eve"), UserKey("shop", "ada")])
def test_other_users_and_applications_are_never_searched(user_key):
    """SUM-SCH-01, SUM-SCH-06, SEC-11."""
    assert matching(EventSearchRequest("pear", user_key), texts_of(*KEYED)) == []


# --- dense and hybrid ---------------------------------------------------------------------------------


class Fixed:
    """An embedder with one vector for every query."""

    dimension = 2

    def __init__(self, *vector):
        self.vector = vector
        self.asked = []

    async def embed(self, texts):
        self.asked.extend(texts)
        return [self.vector for _ in texts]


def at_angles(**degrees):
    """Texts named and timed in order, at such angles from the query `(1, 0)`."""
    texts = []
    for i, (name, angle) in enumerate(degrees.items()):
        (text,) = texts_of(event(name, user(name), at=i + 1))
        texts.append(text.with_vector((math.cos(math.radians(angle)), math.sin(math.radians(angle)))))
    return texts


def search(texts, query="query", embedder=None, **limits):
    embedder = embedder or Fixed(1.0, 0.0)
    return asyncio.run(ranked_search(EventSearchRequest(query, ADA, **limits), texts, embedder))


def test_a_dense_score_is_one_minus_the_cosine_distance():
    """SUM-SCH-04."""
    results = search(at_angles(far=60, near=0))
    assert [(one.event.id, one.score, one.dense_score) for one in results] == [
        ("near", pytest.approx(1), pytest.approx(1)),
        ("far", pytest.approx(0.5), pytest.approx(0.5)),
    ]


def test_the_least_score_filters_dense_hits():
    """SUM-SCH-04."""
    assert [one.event.id for one in search(at_angles(a=10, b=50, c=80), min_score=0.5)] == ["a", "b"]


def test_equal_dense_scores_are_newest_first():
    """SUM-SCH-04."""
    assert [one.event.id for one in search(at_angles(old=30, new=-30, best=0))] == ["best", "new", "old"]


def test_results_are_limited_to_what_was_asked_for():
    """SUM-SCH-01."""
    texts = at_angles(**{f"t{i}": i for i in range(9)})
    assert len(search(texts)) == 5
    assert len(search(texts, max_results=2)) == 2
    assert len(search(texts, max_results=0)) == 5


def test_fusion_adds_one_over_k_plus_rank():
    """SUM-SCH-04."""
    a, b, c = at_angles(a=0, b=0, c=0)
    ranking = fused([(a, 0.9), (b, 0.8)], [(b, 7.0), (c, 5.0)], rrf_k=60, limit=9)
    assert [(text.event.id, score) for text, score in ranking] == [
        ("b", pytest.approx(1 / 62 + 1 / 61)),
        ("a", pytest.approx(1 / 61)),
        ("c", pytest.approx(1 / 62)),
    ]
    newest_first = fused([(a, 0.9)], [(c, 5.0)], rrf_k=60, limit=9)
    assert found(newest_first) == ["c", "a"]


def test_a_hybrid_result_tells_both_scores():
    """SUM-SCH-04."""
    results = search(at_angles(pear=20, fig=0), "pear", search_mode="hybrid")
    assert [one.event.id for one in results] == ["pear", "fig"]
    assert results[0].score == pytest.approx(1 / 62 + 1 / 61)
    assert results[0].dense_score == pytest.approx(math.cos(math.radians(20)))
    assert results[0].sparse_score > 0
    assert results[1].sparse_score == 0


def test_the_least_score_does_not_hold_keyword_hits_of_a_hybrid_search():
    """SUM-SCH-04."""
    results = search(at_angles(pear=80, fig=70), "pear", search_mode="hybrid", min_score=0.9)
    assert [one.event.id for one in results] == ["pear"]


def test_each_part_of_a_hybrid_search_brings_its_share_of_candidates():
    """SUM-SCH-04: max_results times the ratio."""
    texts = at_angles(**{f"t{i}": i for i in range(8)}, pear=89)
    seen = []

    def by_keywords(query, candidates, *, limit):
        seen.append(limit)
        return keyword_ranking(query, candidates, limit=limit)

    request = EventSearchRequest("pear", ADA, max_results=2, search_mode="hybrid", hybrid_candidate_ratio=4)
    results = rank(request, texts, (1.0, 0.0), by_keywords=by_keywords)
    assert seen == [8]
    # t7 is the eighth dense candidate, the keyword hit stands ninth and gets nothing from the dense part.
    assert results[0].score == pytest.approx(1 / 61)
    assert {one.event.id for one in results} == {"pear", "t0"}
    request = EventSearchRequest("pear", ADA, search_mode="hybrid", hybrid_rrf_k=0, hybrid_candidate_ratio=0)
    assert rank(request, texts, (1.0, 0.0))[0].score == pytest.approx(1 / 61 + 1 / 69)


def test_a_failing_keyword_part_leaves_the_dense_one_with_a_warning(caplog):
    """SUM-SCH-04."""

    def broken(query, candidates, *, limit):
        raise RuntimeError("no keyword index")

    request = EventSearchRequest("pear", ADA, max_results=1, search_mode="hybrid")
    with caplog.at_level(logging.WARNING):
        results = rank(request, at_angles(pear=30, fig=0), (1.0, 0.0), by_keywords=broken)
    assert [(one.event.id, one.score) for one in results] == [("fig", pytest.approx(1))]
    assert "dense results only" in caplog.text


def test_a_blank_query_finds_nothing_and_embeds_nothing():
    """SUM-SCH-03."""
    embedder = Fixed(1.0, 0.0)
    assert search(at_angles(a=0), " \n", embedder) == []
    assert search([], "pear", embedder) == []
    assert embedder.asked == []


def test_an_unknown_mode_and_a_missing_embedder_are_errors():
    """SUM-SCH-03."""
    with pytest.raises(ConfigError, match="search_mode"):
        search(at_angles(a=0), search_mode="fuzzy")
    with pytest.raises(ConfigError, match="embedder"):
        asyncio.run(ranked_search(EventSearchRequest("pear", ADA), [], None))


@pytest.mark.parametrize("user_key", [UserKey("", "ada"), UserKey("garden", "")])
def test_a_search_names_its_user(user_key):
    """SUM-SCH-01."""
    with pytest.raises(InvalidSessionKeyError):
        asyncio.run(ranked_search(EventSearchRequest("pear", user_key), [], Fixed(1.0, 0.0)))


def test_texts_without_a_vector_are_no_dense_hits():
    assert dense_ranking((1.0, 0.0), said("pear"), min_score=0.0, limit=5) == []


def test_similarity_of_odd_vectors_is_zero():
    assert cosine_similarity((0.0, 0.0), (1.0, 0.0)) == 0
    assert cosine_similarity((1.0,), (1.0, 0.0)) == 0
    assert cosine_similarity((3.0, 4.0), (6.0, 8.0)) == pytest.approx(1)
