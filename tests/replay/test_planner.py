"""The planner fires where the engine fires, for any trigger and counter that it answers for (WB-TUNE-05, WB-RPL-01)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.config import RunConfig
from workbench.errors import ReplayError
from workbench.model.types import ASSISTANT, TOOL, USER, Message, ToolCall, response_of
from workbench.recordings import load_recordings
from workbench.recordings.types import Conversation
from workbench.replay.conversation import replay_conversation
from workbench.replay.planner import ThresholdSums, sums_key
from workbench.replay.runs import with_unique_ids
from workbench.replay.trace import TABLES
from workbench.session.types import Event

DATASETS = Path(__file__).resolve().parents[2] / "datasets"
SECOND = 1_000_000_000
START = 1_772_000_000 * SECOND
COLUMNS = TABLES["checks"].column_names
RUNES = {"billing": {"encoding": "runes:1"}, "summaries": {"source": "sized", "sized_tokens": 20}}
COUNTERS: list[dict[str, Any]] = [
    {"runes_per_token": 4.0},
    {"runes_per_token": 1.3},
    {"runes_per_token": 0.7},
    {"kind": "scripts", "scripts": {"han": 1.3, "latin": 4.0}, "runes_per_token": 2.0},
    {"kind": "tiktoken", "encoding": "o200k_base"},
]


def checks_of(conversation: Conversation, config: RunConfig) -> list[dict[str, Any]]:
    rows = replay_conversation(conversation, config).rows["checks"]
    return [dict(zip(COLUMNS, row, strict=True)) for row in rows]


def assert_the_same(conversation: Conversation, config: RunConfig, sums: ThresholdSums) -> int:
    """The plan has the engine's firings, at the same calls; how many there are."""
    fired = [row["call"] for row in checks_of(conversation, config) if row["fired"]]
    plan = sums.firings(config)
    assert list(plan.calls) == fired
    return len(fired)


# --- any conversation -------------------------------------------------------------------------------------

texts = st.sampled_from(
    [
        "",
        " ",
        "ok",
        "订单 7731 到哪了？",
        "The parcel left on Monday.",
        "이미 보냈습니다.",
        "🙂 done",
        "1.",
        "a\nb",
        "x" * 90,
    ]
)


@st.composite
def conversations(draw: st.DrawFn) -> Conversation:
    """Requests of users, each with tool rounds and an answer, at ascending times; some texts are empty."""
    events: list[Event] = []
    now = START

    def add(author: str, *messages: Message) -> None:
        nonlocal now
        now += draw(st.sampled_from([1, 1, 2, 40, 900])) * SECOND // draw(st.sampled_from([1, 1, 3]))
        n = len(events)
        events.append(Event(id=f"e{n}", author=author, time_ns=now, response=response_of(*messages, id=f"r{n}")))

    for turn in range(draw(st.integers(1, 9))):
        add("user", Message(role=USER, content=draw(texts) or f"question {turn}"))
        for step in range(draw(st.integers(0, 2))):
            ident = f"t{turn}-{step}"
            asked = ToolCall(id=ident, name="look", arguments='{"n": 1}')
            add("assistant", Message(role=ASSISTANT, content=draw(texts), tool_calls=(asked,)))
            add("assistant", Message(role=TOOL, content=draw(texts), tool_id=ident, tool_name="look"))
        thought = draw(st.sampled_from(["", "", "because of the date", "(hm)"]))
        add("assistant", Message(role=ASSISTANT, content=draw(texts) or "Done.", reasoning_content=thought))
    return Conversation("c", tuple(events))


leaves = st.one_of(
    st.integers(0, 30).map(lambda n: {"event": n}),
    st.integers(0, 300).map(lambda n: {"token": n}),
    st.sampled_from([0, 1, 5, 60, 700]).map(lambda s: {"time": float(s)}),
    st.sampled_from([0.001, 0.01, 0.02]).map(lambda r: {"context": {"ratio": r, "min_tokens": 0}}),
)
triggers = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda nodes: {"any": nodes}),
        st.lists(inner, max_size=3).map(lambda nodes: {"all": nodes}),
        st.tuples(leaves, leaves).map(lambda pair: pair[0] | pair[1]),
    ),
    max_leaves=5,
)


@given(
    conversation=conversations(),
    trigger=st.none() | triggers,
    counter=st.sampled_from(COUNTERS),
    event_limit=st.sampled_from([0, 1000, 12, 7]),
    intra_run=st.booleans(),
    agent=st.sampled_from([{}, {"add_session_summary": True}]),
    window=st.sampled_from([None, 9_000]),
)
def test_the_plan_fires_where_the_engine_fires(conversation, trigger, counter, event_limit, intra_run, agent, window):
    """WB-TUNE-05: equal to exact replay over random conversations, trigger trees, counters and event limits."""
    config = RunConfig.from_values(
        {
            **RUNES,
            "summarizer": {},
            **({"trigger": trigger} if trigger is not None else {}),
            "counter": counter,
            "service": {"event_limit": event_limit},
            "agent": {**agent, "sync_summary_intra_run": intra_run},
            **({"model": {"context_window": window}} if window else {}),
        }
    )
    sums = ThresholdSums(conversation, config)
    if sums.why_not(config):
        assert sums.why_not(config) in KNOWN_REASONS
        return
    if fires_without_text(sums, config):
        return
    assert_the_same(conversation, config, sums)


def fires_without_text(sums: ThresholdSums, config: RunConfig) -> bool:
    """The plan refuses: a summary would be made of events without any text."""
    try:
        sums.firings(config)
    except ReplayError as error:
        return "events without text" in str(error)
    return False


KNOWN_REASONS = {
    "a line that doesn't start with a letter isn't counted alone",
    "more events than the session keeps lie between two checks",
}


@given(conversation=conversations(), threshold=st.integers(0, 200), counter=st.sampled_from(COUNTERS[:4]))
def test_what_a_check_measures_is_what_the_engine_measures(conversation, threshold, counter):
    """WB-TUNE-05, WB-RPL-19: the trigger's own value, at every check."""
    config = RunConfig.from_values({**RUNES, "summarizer": {}, "trigger": {"token": threshold}, "counter": counter})
    sums = ThresholdSums(conversation, config)
    if sums.why_not(config) or fires_without_text(sums, config):
        return
    plan = sums.firings(config)
    (track,) = sums.tracks(config, plan)
    checked = [row for row in checks_of(conversation, config) if row["filter_key"] and row["unit"] == "tokens"]
    by_event = {row["event_id"]: row["value"] for row in checked}
    for at, value in enumerate(track.values):
        known = by_event.get(sums.event_id(at))
        assert known is None or known == value
    assert {sums.event_id(at) for at in plan.moments} <= set(by_event)


# --- bundled conversations --------------------------------------------------------------------------------


TRIGGERS: list[dict[str, Any]] = [
    {"token": 150},
    {"token": 1500},
    {"event": 8},
    {"any": [{"event": 30}, {"time": 1800}]},
]


def firings_in(dataset: str, counters: list[dict[str, Any]], triggers: list[dict[str, Any]]) -> int:
    total = 0
    for conversation in with_unique_ids(load_recordings(DATASETS / dataset / "conversations.jsonl")):
        base = RunConfig.from_values({**RUNES, "summarizer": {}, "trigger": {"token": 1}})
        sums = ThresholdSums(conversation, base)
        for counter in counters:
            for trigger in triggers:
                config = base.replace(counter=counter, trigger=trigger)
                assert sums.why_not(config) == ""
                total += assert_the_same(conversation, config, sums)
    return total


def test_a_bundled_conversation_fires_where_the_engine_fires():
    """WB-TUNE-05, WB-RPL-01."""
    assert firings_in("ja-support", COUNTERS[1:2], TRIGGERS[:2]) > 10


@pytest.mark.slow
@pytest.mark.parametrize("dataset", ["zh-service", "ja-support", "ko-support", "en-research", "zh-en-coding"])
def test_bundled_conversations_fire_where_the_engine_fires(dataset):
    """WB-TUNE-05, WB-RPL-01: every counter and a range of thresholds."""
    assert firings_in(dataset, COUNTERS, TRIGGERS) > 20


def chat_of(n_turns: int) -> Conversation:
    events = []
    for n in range(2 * n_turns):
        role = ASSISTANT if n % 2 else USER
        author = "assistant" if n % 2 else "user"
        message = Message(role=role, content=f"message {n} " * 5)
        events.append(Event(id=f"e{n}", author=author, time_ns=START + n * SECOND, response=response_of(message)))
    return Conversation("c", tuple(events))


def test_a_whole_range_is_what_each_threshold_gives_alone():
    """WB-TUNE-05."""
    config = RunConfig.from_values({**RUNES, "summarizer": {}, "trigger": {"token": 1}})
    sums = ThresholdSums(chat_of(40), config)
    for option, thresholds in (("event", [0, 3, 10, 79, 80]), ("token", [0, 50, 400, 10_000])):
        alone = [len(sums.firings(config.replace(trigger={option: one}))) for one in thresholds]
        assert sums.counts(config, option, thresholds) == alone
        assert alone == sorted(alone, reverse=True)
        assert alone[0] > alone[-1] == 0


def test_an_event_trigger_fires_every_so_many_events():
    """WB-TUNE-05: checks come after each answer, so every second event; worked out by hand."""
    config = RunConfig.from_values({**RUNES, "summarizer": {}, "trigger": {"event": 5}})
    assert ThresholdSums(chat_of(10), config).firings(config).calls == (3, 6, 9)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"summarizer": {"skip_recent": 4}}, "skip_recent"),
        ({"summarizer": {"cache_safe_forking": True}}, "cache_safe_forking"),
        ({"profile": "TRPC_AGENT_GO_2026_07"}, "previous summary"),
        ({"summaries": {"latency_s": 5.0}}, "latency_s"),
        ({"compaction": {"enabled": True}, "agent": {"add_session_summary": True}}, "compaction"),
        ({"tailoring": {"enabled": True}}, "tailoring"),
        ({"counter": {"runes_per_token": 0.1}}, "prompt may not fit"),
        (
            {
                "trigger": {"context": {"ratio": 0.5, "min_tokens": 10}},
                "model": {"context_window": 1000, "changes": [{"request": 4, "name": "m2", "context_window": 4000}]},
            },
            "window changes",
        ),
        ({"service": {"event_limit": 50}}, "other moments"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_proved_is_said_and_not_guessed(values, reason):
    """WB-TUNE-05, WB-RPL-01."""
    base = {**RUNES, "summarizer": {}, "trigger": {"token": 100}}
    sums = ThresholdSums(chat_of(10), RunConfig.from_values(base))
    config = RunConfig.from_values({**base, **values})
    if reason != "other moments":
        sums = ThresholdSums(chat_of(10), config)
    assert reason in sums.why_not(config)
    with pytest.raises(ReplayError, match="no plan"):
        sums.firings(config)


def test_a_conversation_of_several_agents_is_left_to_the_engine():
    """WB-TUNE-05."""
    conversation = load_recordings(DATASETS / "multi-agent" / "conversations.jsonl")[0]
    config = RunConfig.from_values({**RUNES, "summarizer": {}, "trigger": {"token": 100}})
    assert "branches" in ThresholdSums(conversation, config).why_not(config)


def test_equal_times_are_left_to_the_engine():
    """WB-TUNE-05: a summary could come too late for an event of the same time."""
    first, *rest = chat_of(5).events
    together = Conversation("c", (first, rest[0], rest[1].replace(time_ns=rest[0].time_ns), *rest[2:]))
    config = RunConfig.from_values({**RUNES, "summarizer": {}, "trigger": {"event": 1}})
    assert "very time" in ThresholdSums(together, config).why_not(config)


def test_what_does_not_move_checks_shares_the_sums():
    base = RunConfig.from_values({**RUNES, "summarizer": {}, "trigger": {"token": 100}})
    same = base.replace(
        trigger={"event": 9}, counter={"runes_per_token": 1.3}, summarizer={"max_summary_words": 50},
        agent={"summary_injection_mode": "user"}, name="other",
    )  # fmt: skip
    assert sums_key(same) == sums_key(base)
    assert sums_key(base.replace(agent={"sync_summary_intra_run": True})) != sums_key(base)


def test_configurations_of_one_name_are_answered_by_what_they_are(monkeypatch):
    """WB-TUNE-05: answers are kept, but few, and never for another configuration."""
    monkeypatch.setattr("workbench.replay.planner._KEPT", 2)
    config = RunConfig.from_values({**RUNES, "name": "tuned", "summarizer": {}, "trigger": {"event": 5}})
    sums = ThresholdSums(chat_of(10), config)
    for _ in range(2):
        for events in (5, 9, 3, 19):
            asked = config.replace(trigger={"event": events})
            assert sums.firings(asked) == ThresholdSums(chat_of(10), asked).firings(asked)
    assert len(sums._found) == 2
