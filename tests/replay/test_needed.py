"""Needed facts: which a recording has, and what becomes of them in the requests of a replay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.replay.conftest import config, summarising
from workbench.agent.flow import SentRequest
from workbench.config import RunConfig
from workbench.facts import Mentions, TermCounts
from workbench.model.types import Message
from workbench.recordings import Recordings, load_recordings
from workbench.recordings.types import Conversation
from workbench.replay.conversation import ConversationTrace, replay_conversation
from workbench.replay.needed import NeededFacts, RecordedTexts, needed_facts, said, term_counts
from workbench.replay.replay import replay
from workbench.replay.trace import TABLES

pytestmark = pytest.mark.slow  # long texts or whole data sets; `make test-more` runs these

DATASETS = Path(__file__).resolve().parents[2] / "datasets"
Turns = Sequence[tuple[str, str]]


def chat_of(turns: Turns, *, ident: str = "c", system: str = "") -> dict[str, Any]:
    head = [{"role": "system", "content": system}] if system else []
    return {"id": ident, "messages": [*head, *({"role": role, "content": text} for role, text in turns)]}


FILLER: Turns = (("user", "嗯"), ("assistant", "好"), ("user", "嗯"), ("assistant", "好"))


@pytest.fixture
def needed_of(recorded: Callable[..., Recordings]) -> Callable[..., list[tuple[str, str, int, str]]]:
    """`(class, value, call, who said it first)` of each needed fact of a conversation."""

    def find(turns: Turns, *, system: str = "", others: Sequence[Turns] = ()) -> list[tuple[str, str, int, str]]:
        rest = [chat_of(other, ident=f"other-{n}") for n, other in enumerate(others)]
        conversations = recorded(chat_of(turns, system=system), *rest).load()
        found = needed_facts(RecordedTexts(conversations[0]), term_counts(conversations))
        return [
            (found.facts[one.fact].kind, found.facts[one.fact].value, one.call, one.source_role) for one in found.needed
        ]

    return find


def table(trace: ConversationTrace, name: str) -> list[dict[str, Any]]:
    return [dict(zip(TABLES[name].column_names, row, strict=True)) for row in trace.rows[name]]


# --- which facts are needed -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "later", "fact"),
    [
        ("订单号是 HB-20417，请查", "订单 HB-20417 已发货", ("identifier", "HB-20417")),
        ("我住在翠屏山庄北区", "会送到翠屏山庄北区", ("cjk", "翠屏山庄北区")),
        ("予約番号はKJ-0154です", "KJ-0154を確認しました", ("identifier", "KJ-0154")),
        ("ホームルーターが壊れました", "ホームルーターを交換します", ("cjk", "ホームルーター")),
        ("경사판을 주문했어요", "경사판이 도착했습니다", ("hangul", "경사판")),
        ("결제 금액은 412,000원입니다", "412,000원 환불됩니다", ("amount", "412,000원")),
        ("My account is mia_li_3668", "I opened mia_li_3668.", ("identifier", "mia_li_3668")),
        ("Ask for Hanne Lorring there", "It goes to Hanne Lorring now", ("name", "Hanne Lorring")),
        ("下午3点半见", "会议在 15:30 开始", ("time", "15:30")),
    ],
    ids=["zh-id", "zh-term", "ja-id", "ja-term", "ko-stem", "ko-amount", "en-id", "en-name", "zh-time"],
)
def test_what_an_answer_uses_of_long_ago_is_needed(first, later, fact, needed_of) -> None:
    """WB-RET-01, WB-RET-01a: in Chinese, Japanese, Korean and English."""
    found = needed_of([("user", first), ("assistant", "好"), *FILLER, ("user", "?"), ("assistant", later)])
    assert (*fact, 3, "user") in found


def test_what_was_said_in_the_previous_round_is_not_needed(needed_of) -> None:
    """WB-RET-01a: first seen before the previous round, and in none of the last two."""
    asked = ("user", "编号 HB-20417")
    assert needed_of([asked, ("assistant", "HB-20417 收到")]) == []
    assert needed_of([asked, ("assistant", "好"), asked, ("assistant", "HB-20417 收到")]) == []
    assert len(needed_of([asked, ("assistant", "好"), ("user", "嗯"), ("assistant", "HB-20417 收到")])) == 1


def test_what_every_request_says_anyway_is_not_needed(needed_of) -> None:
    """WB-RET-01a: not in system or tools."""
    turns = [("user", "热线 400-820-1234"), *FILLER[1:], ("user", "?"), ("assistant", "请拨 400-820-1234")]
    assert needed_of(turns)
    assert needed_of(turns, system="客服热线 400-820-1234") == []


def test_names_and_small_amounts_hang_on_who_said_them_first(needed_of) -> None:
    """WB-RET-01a: a name isn't the assistant's own, an amount under three digits is a user's."""
    for text in ("See Hanne Lorring about it", "It takes 45 minutes"):
        by_user = [("user", text), *FILLER[1:], ("user", "?"), ("assistant", text)]
        by_assistant = [("user", "?"), ("assistant", text), *FILLER, ("user", "?"), ("assistant", text)]
        assert needed_of(by_user), text
        assert needed_of(by_assistant) == [], text
    long_amount = "The fee is $2,787 now"
    assert needed_of([("user", "?"), ("assistant", long_amount), *FILLER, ("user", "?"), ("assistant", long_amount)])


def test_a_heading_made_of_what_the_user_said_is_no_name(needed_of) -> None:
    """WB-RET-01a: a name is written as one where it comes from."""
    turns = [("user", "please move my return flight for Ana Bell"), ("assistant", "sure")]
    turns += [("user", "and?"), ("assistant", "wait"), ("user", "now?"), ("assistant", "checking")]
    turns += [("user", "well?"), ("assistant", "On the Return Flight sits Ana Bell.")]
    assert [(kind, value) for kind, value, *_ in needed_of(turns)] == [("name", "Ana Bell")]


def test_terms_that_many_conversations_say_are_no_facts(needed_of) -> None:
    """WB-RET-01a: the rarest 4-gram in at most max(2, 2 %) of conversations."""
    turns = [("user", "我住在翠屏山庄"), *FILLER[1:], ("user", "?"), ("assistant", "会送到翠屏山庄")]
    assert needed_of(turns, others=[turns])
    assert needed_of(turns, others=[turns, turns]) == []


def test_a_run_is_cut_to_what_it_shares_with_earlier_text(needed_of) -> None:
    """WB-RET-01a."""
    found = needed_of(
        [("user", "昨日参观国家图书馆古籍展厅"), *FILLER[1:], ("user", "?"), ("assistant", "重游国家图书馆古籍")]
    )
    assert [fact[:2] for fact in found] == [("cjk", "国家图书馆古籍")]


def test_the_chance_control_asks_another_history_for_the_same_facts(recorded) -> None:
    """WB-RET-01b."""
    one = [("user", "编号 HB-20417，共 1,580 元"), *FILLER[1:], ("user", "?"), ("assistant", "HB-20417 共 1,580 元")]
    other = [("user", "上次付了 1580 元"), *FILLER]
    conversations = recorded(chat_of(one, ident="a"), chat_of(other, ident="b")).load()
    counts = term_counts(conversations)
    found = needed_facts(RecordedTexts(conversations[0]), counts, other=RecordedTexts(conversations[1]))
    assert found.compared_with == "b"
    assert sorted(found.chance) == [("amount", 1, 1), ("identifier", 1, 0)]
    assert needed_facts(RecordedTexts(conversations[0]), counts).chance == ()


# --- what becomes of them -------------------------------------------------------------------------------

LONG = "这一段没有编号也没有日期，只是说了很多很多的话。" * 12


def forgetful(n_filler: int = 6) -> Turns:
    middle = [("user", LONG), ("assistant", "好")] * n_filler
    return [("user", "编号 HB-20417"), ("assistant", "好"), *middle, ("user", "?"), ("assistant", "HB-20417 已办")]


def states(conversation: Conversation, run_config: RunConfig) -> list[tuple[str, str, int]]:
    needed = needed_facts(RecordedTexts(conversation), TermCounts([]))
    trace = replay_conversation(conversation, run_config, needed=needed)
    return [(row["state"], row["step"], row["summaries"]) for row in table(trace, "needed_facts")]


def test_a_fact_is_visible_raw_while_a_message_says_it(recorded) -> None:
    """WB-RET-01."""
    (conversation,) = recorded(chat_of(forgetful())).load()
    assert states(conversation, config()) == [("visible_raw", "", 0)]


@pytest.mark.parametrize("mode", ["system", "user"])
def test_a_fact_is_visible_in_the_summary_that_took_its_place(mode: str, recorded) -> None:
    """WB-RET-01: the words around the summary aren't the summary."""
    (conversation,) = recorded(chat_of(forgetful())).load()
    ((state, step, n_summaries),) = states(conversation, summarising(token=500, mode=mode))
    assert (state, step) == ("visible_summary", "summary")
    assert n_summaries > 1, "it went through several"


def test_a_fact_that_the_summary_leaves_out_is_lost(recorded) -> None:
    """WB-RET-01, WB-RET-03: and the step that took it is named."""
    (conversation,) = recorded(chat_of(forgetful())).load()
    empty = summarising(token=500, summaries={"source": "sized", "sized_tokens": 5})
    ((state, step, n_summaries),) = states(conversation, empty)
    assert (state, step) == ("lost", "summary")
    assert n_summaries > 1


def test_a_lost_fact_that_a_search_finds_is_recoverable(recorded) -> None:
    """WB-RET-01: on-demand is on, and `session_search` with the fact as query returns its event."""
    (conversation,) = recorded(chat_of(forgetful())).load()
    values: dict[str, Any] = {"token": 500, "summaries": {"source": "sized", "sized_tokens": 5}}
    assert states(conversation, summarising(**values, agent={"enable_on_demand_session": True}))[0][0] == "recoverable"
    # The search is in what a summary hides: what tailoring drops of it stays lost.
    assert states(conversation, summarising(**values))[0][0] == "lost"


def test_the_step_that_dropped_a_fact_is_tailoring_where_that_did_it(recorded) -> None:
    """WB-RET-03."""
    middle: Turns = [("user", LONG), ("assistant", "好")] * 9  # both ends of a conversation are kept
    (conversation,) = recorded(chat_of([*middle, *forgetful(9)])).load()
    tailored = config(tailoring={"enabled": True, "max_input_tokens": 900}, model={"context_window": 32_000})
    assert states(conversation, tailored) == [("lost", "tailoring", 0)]


# --- the slow way says the same -------------------------------------------------------------------------

SUMMARIES: dict[str, Any] = {"summarizer": {"max_summary_words": 100}, "trigger": {"token": 800}}
CONFIGS: dict[str, dict[str, Any]] = {
    "system": {**SUMMARIES, "agent": {"add_session_summary": True}},
    "user": {**SUMMARIES, "agent": {"add_session_summary": True, "summary_injection_mode": "user"}},
    "compaction": {
        "compaction": {"enabled": True, "tool_result_max_tokens": 60, "oversized_tool_result_max_tokens": 300}
    },
    "tailoring": {"tailoring": {"enabled": True, "max_input_tokens": 3000}, "model": {"context_window": 32_000}},
}


def rescanned(needed: NeededFacts, call: int, sent: SentRequest) -> list[tuple[str, str]]:
    """`(value, state)` of a call's facts, by reading every message of the request anew."""
    summary = sent.assembly.summary
    texts = [said(message) for message in sent.request.messages]
    told = ""
    if summary is not None:
        place = summary.message_index if sent.kept is None else [*sent.kept, -2].index(summary.message_index)
        texts[place] = summary.content_without
        told = summary.text
    wanted = [needed.facts[one.fact] for one in needed.needed if one.call == call]
    found = []
    for fact in wanted:
        is_raw = any(fact in Mentions(text) for text in texts)
        state = "visible_raw" if is_raw else "visible_summary" if fact in Mentions(told) else "lost"
        found.append((fact.value, state))
    return found


def disagreements(conversations: Recordings, values: dict[str, Any]) -> tuple[list[Any], Counter[str]]:
    run_config = RunConfig.from_values(
        {"billing": {"encoding": "runes:1"}, "counter": {"runes_per_token": 1.5}, **values}
    )
    counts = term_counts(conversations)
    wrong: list[Any] = []
    seen: Counter[str] = Counter()
    for conversation in conversations:
        needed = needed_facts(RecordedTexts(conversation), counts)
        slow: list[tuple[str, str]] = []

        def note(facts: Any, sent: Any, needed: NeededFacts = needed, slow: list[tuple[str, str]] = slow) -> None:
            slow += rescanned(needed, facts.call, sent)

        trace = replay_conversation(conversation, run_config, on_sent=note, needed=needed)
        fast = [(row["value"], row["state"]) for row in table(trace, "needed_facts")]
        seen.update(state for _, state in fast)
        if fast != slow:
            wrong.append((conversation.id, [pair for pair in zip(fast, slow, strict=False) if pair[0] != pair[1]]))
    return wrong, seen


@pytest.mark.parametrize("values", CONFIGS.values(), ids=CONFIGS.keys())
def test_states_are_what_reading_every_request_anew_gives(values: dict[str, Any]) -> None:
    """WB-RET-01: call by call, in four languages' smallest recordings."""
    for name in ("ja-support", "ko-support", "multi-agent"):
        wrong, seen = disagreements(load_recordings(DATASETS / name), values)
        assert wrong == []
        assert sum(seen.values()) > 20


@pytest.mark.slow
@pytest.mark.parametrize("values", CONFIGS.values(), ids=CONFIGS.keys())
def test_states_of_all_bundled_recordings_are_what_reading_anew_gives(values: dict[str, Any]) -> None:
    """WB-RET-01."""
    wrong, seen = disagreements(load_recordings(DATASETS), values)
    assert wrong == []
    assert len(seen) >= 2


@pytest.mark.parametrize("name", ["ja-support", "ko-support"])
def test_the_whole_history_loses_nothing(name: str) -> None:
    """WB-RET-01: the check on the metric itself."""
    for conversation in load_recordings(DATASETS / name):
        assert {state for state, _, _ in states(conversation, config())} == {"visible_raw"}


def test_a_call_that_waits_for_a_sub_agent_is_not_in_that_agents_request() -> None:
    """WB-RET-01, WB-RET-03: even the whole history lacks what only that call said."""
    (conversation,) = load_recordings(DATASETS / "multi-agent")
    found = {(state, step) for state, step, _ in states(conversation, config())}
    assert found == {("visible_raw", ""), ("lost", "pairing")}


def test_a_message_is_looked_through_once(recorded, monkeypatch) -> None:
    """The work of a call is that of what is new in it."""
    (conversation,) = recorded(chat_of(forgetful(40))).load()
    needed = needed_facts(RecordedTexts(conversation), TermCounts([]))
    read: list[str] = []
    original = Mentions.__init__
    monkeypatch.setattr(Mentions, "__init__", lambda self, text: (read.append(text), original(self, text))[1])
    replay_conversation(conversation, summarising(token=500), needed=needed)
    assert len(read) == len(set(read))
    assert len(read) < 60, "summaries, and system messages"


# --- in a run -------------------------------------------------------------------------------------------


def many(n: int) -> list[dict[str, Any]]:
    """Conversations with four needed facts each, one of them of a class that chance alone fills."""
    chats = []
    for i in range(n):
        facts = f"编号 HB-{20417 + i} 和 KJ-{70154 + i} 和 QX-{30511 + i}，下午3点半"
        middle = [("user", LONG), ("assistant", "好")] * 3
        chats.append(
            chat_of([("user", facts), ("assistant", "好"), *middle, ("user", "?"), ("assistant", facts)], ident=f"c{i}")
        )
    return chats


def test_a_run_knows_its_needed_facts_and_their_recall(recorded, tmp_path) -> None:
    """WB-RET-01, WB-RET-01b, WB-CLI-03: classes above 20 % by chance are left out."""
    runs = replay(recorded(*many(12)), [config(name="all"), summarising(token=300)], runs=tmp_path)
    assert (runs["all"].facts["needed_facts"], runs["all"].facts["needed_fact_recall"]) == (36, 1.0)
    assert 0 < runs["summaries"].facts["needed_fact_recall"] <= 1
    assert {row["kind"] for row in runs["all"].rows("needed_facts")} == {"identifier", "time"}
    chance = {row["kind"]: (row["needed"], row["by_chance"]) for row in runs["all"].rows("fact_chance")}
    assert chance == {"identifier": (3, 0), "time": (1, 1)}


@pytest.mark.parametrize("n", [9, 2], ids=["29-of-9", "few"])
def test_too_few_facts_have_a_count_but_no_share(n: int, recorded, tmp_path) -> None:
    """WB-RET-01b: under 30 facts from 10 conversations never a percentage."""
    facts = replay(recorded(*many(n)), config(name="all"), runs=tmp_path)["all"].facts
    assert (facts["needed_facts"], facts["needed_fact_recall"]) == (3 * n, None)


def test_rows_don_t_hang_on_the_number_of_processes(recorded, tmp_path) -> None:
    """WB-RPL-09."""
    conversations = recorded(*many(4))
    one = replay(conversations, summarising(), runs=tmp_path / "one")
    two = replay(conversations, summarising(), runs=tmp_path / "two", jobs=2)
    assert one["summaries"].facts["trace_hash"] == two["summaries"].facts["trace_hash"]
    assert one["summaries"].rows("needed_facts") == two["summaries"].rows("needed_facts")


def test_what_a_message_says_are_its_words_and_the_values_of_its_calls() -> None:
    """WB-RET-01a."""
    assert said(Message(role="user", content="订单")) == "订单"
