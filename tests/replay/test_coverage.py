"""Coverage: each state and each rule on small sessions, and that following calls agrees with a look at one."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.context.build import BASE, assemble, call, event, invocation, result, say, session, summary, user
from tests.context.sessions import Storyteller
from tests.context.test_incremental import random_settings
from tests.replay.conftest import chat, config, summarising
from workbench.agent.flow import SentRequest
from workbench.context.assemble import Assembly, Invocation, Piece
from workbench.context.incremental import ContentAssembler
from workbench.context.project import Lane
from workbench.context.settings import AgentSettings, BranchMode
from workbench.context.tailor import strategy_named, tailor_assembly
from workbench.model.types import Message, Request
from workbench.profiles import SEED
from workbench.recordings import Recordings
from workbench.replay.conversation import ConversationTrace, replay_conversation
from workbench.replay.coverage import CoverageTracker, CoverageViolation, hidden_by, states_at
from workbench.replay.trace import TABLES
from workbench.service.summaries import SummaryAttempt
from workbench.session.types import Event, Session, Summary
from workbench.summary.report import MODE_FORK, MODE_STANDALONE, Report
from workbench.summary.text import conversation_text
from workbench.tokens import SimpleTokenCounter

COUNTER = SimpleTokenCounter(1.0)


def attempt(
    stored: Session,
    events: Sequence[Event],
    written: Summary,
    *,
    key: str = "app",
    mode: Any = MODE_STANDALONE,
    request: Request | None = None,
    status: str = "written",
) -> SummaryAttempt:
    """A summary of some events; the model got all of their text unless `request` says otherwise."""
    report = Report()
    report.call.mode = mode
    report.call.events = tuple(events)
    report.call.event_texts = tuple(conversation_text([one]) for one in events)
    text = "\n".join(filter(None, report.call.event_texts))
    whole = Request(messages=(user(f"Summarize:\n{text}\nNow."),))
    report.call.requests = (request if request is not None else whole,)
    return SummaryAttempt(stored, key, "async", status, 0, 0, report, len(events), written)


def sent_of(assembly: Assembly, asker: Invocation, **facts: Any) -> SentRequest:
    assert asker.session is not None
    given = {"request": Request(messages=assembly.messages), "kept": None, "tailored": None, "rebuilt": False}
    return SentRequest(assembly=assembly, session=asker.session, invocation=asker, **(given | facts))


def look(
    stored: Session,
    *attempts: SummaryAttempt,
    agent: dict[str, Any] | None = None,
    asker: dict[str, Any] | None = None,
    budget: int = 0,
    change: Callable[[Assembly], Assembly] = lambda assembly: assembly,
    **options: Any,
) -> tuple[dict[str, str], list[CoverageViolation]]:
    """`(event id -> state, violations)` at one call."""
    settings = {"add_session_summary": bool(stored.summaries), **(agent or {})}
    facts = {"message": Message(), **(asker or {})}
    assembly = change(assemble(stored, agent=settings, message=facts.pop("message"), facts=facts, **options))
    sent = sent_of(assembly, invocation(stored, Message(), **facts))
    if budget:
        tailored = tailor_assembly(assembly, strategy_named("middle_out", COUNTER), budget)
        sent = replace(sent, request=Request(messages=tailored.messages), kept=tuple(tailored.kept), tailored=tailored)
    tracker = CoverageTracker(AgentSettings(**settings))
    for one in attempts:
        tracker.add_attempt(one)
    _, violations = tracker.observe(sent)
    return named(tracker), violations


def named(tracker: CoverageTracker) -> dict[str, str]:
    """Event id -> state with its detail in brackets."""
    found = {}
    for stored, state in zip(tracker.stored.events, tracker.states, strict=True):
        assert stored is not None
        assert state is not None
        found[stored.id] = state[0] + (f"({state[1]})" if state[1] else "")
    return found


OLD = [event(1, user("q1"), request="old"), event(2, say("a1"), request="old")]
NOW = [event(3, user("q2")), event(4, call("c")), event(5, result("c"))]


def with_ids(tracker: CoverageTracker) -> list[Any]:
    """The states of the events that have an id."""
    pairs = zip(tracker.stored.events, tracker.states, strict=True)
    return [state for stored, state in pairs if stored is not None and stored.id]


# --- the states ---------------------------------------------------------------------------------------


def test_what_is_sent_as_it_is_stored_is_raw() -> None:
    """WB-RPL-13."""
    states, violations = look(session(*OLD, *NOW))
    assert set(states.values()) == {"raw"}
    assert violations == []


def test_covered_is_what_the_summary_model_read() -> None:
    """WB-RPL-13."""
    stored = session(*OLD, *NOW, app=summary(2))
    states, violations = look(stored, attempt(stored, OLD, summary(2)))
    assert states == {"e1": "covered", "e2": "covered", "e3": "raw", "e4": "raw", "e5": "raw"}
    assert violations == []


def test_equal_times_are_told_apart_by_event_id() -> None:
    """WB-RPL-13, BUG-11: three summarised, two kept, none lost; then the same with e4 stamped before e3."""
    for fourth in (0, -1_000_000_000):
        events = [event(n, say(f"a{n}"), request="old", time_ns=5_000_000_000) for n in range(1, 6)]
        events[3] = events[3].replace(time_ns=5_000_000_000 + fourth)
        written = Summary("SUM", 5_000_000_000, replace(summary(3).boundary, cutoff_ns=5_000_000_000))  # type: ignore[type-var]
        stored = session(*events, app=written)
        states, violations = look(stored, attempt(stored, events[:3], written))
        assert list(states.values()) == ["covered"] * 3 + ["raw"] * 2
        assert violations == []


def test_a_text_that_was_cut_before_the_summary_model_read_it() -> None:
    """WB-RPL-13: the middle of a standalone source is missing."""
    events = [event(n, say(f"answer number {n} " * 3), request="old") for n in range(1, 7)]
    text = conversation_text(events)
    cut = Request(messages=(user(f"Summarize:\n{text[:90]}\n[cut]\n{text[-90:]}\nNow."),))
    stored = session(*events, app=summary(6))
    states, violations = look(stored, attempt(stored, events, summary(6), request=cut))
    assert list(states.values()) == ["covered", *["covered_cut"] * 4, "covered"]
    assert violations == []


def test_a_fork_reads_what_the_main_request_held() -> None:
    """WB-RPL-13: a result without its payload, and one that the fork lacks, are cut."""
    events = [*OLD, *NOW, event(6, say("a2"))]
    messages = [message for one in events for message in one.messages]
    fork = Request(messages=(*messages[:4], replace(messages[4], content="[left out]"), user("Summarize.")))
    stored = session(*events, event(7, user("q3"), request="next"), app=summary(6))
    states, violations = look(stored, attempt(stored, events, summary(6), mode=MODE_FORK, request=fork), request="next")
    assert [states[f"e{n}"] for n in range(1, 8)] == [*["covered"] * 4, *["covered_cut"] * 2, "raw"]
    assert violations == []


@pytest.mark.parametrize(
    ("compaction", "state"),
    [
        ({"enabled": True, "tool_result_max_tokens": 5, "keep_recent_requests": 0}, "rewritten(historical)"),
        (
            {"enabled": True, "tool_result_max_tokens": 0, "oversized_tool_result_max_tokens": 400},
            "rewritten(oversized)",
        ),
        (
            {"enabled": True, "force_clean_tool_names": ("read",), "keep_recent_requests": 0},
            "rewritten(policy)",
        ),
    ],
)
def test_a_rewritten_result_names_its_pass(compaction: dict[str, Any], state: str) -> None:
    """WB-RPL-13."""
    past = [event(1, user("q1"), request="old"), event(2, call("c"), request="old")]
    stored = session(*past, event(3, result("c", "x" * 900), request="old"), event(4, user("q2")))
    states, violations = look(stored, compaction=compaction)
    assert states == {"e1": "raw", "e2": "raw", "e3": state, "e4": "raw"}
    assert violations == []


def test_what_is_left_out_names_the_step() -> None:
    """WB-RPL-13: tailoring, history limit, transcripts, pairing, nothing to say."""
    stored = session(*OLD, *NOW)
    assert look(stored, budget=4)[0] == {"e1": "dropped(tailoring)", "e2": "dropped(tailoring)"} | dict.fromkeys(
        ("e3", "e4", "e5"), "raw"
    )
    assert look(stored, agent={"max_history_runs": 1})[0]["e2"] == "dropped(history_limit)"
    past = [event(1, user("q1"), request="old"), event(2, call("c", text="let me see"), request="old")]
    stored = session(*past, event(3, result("c"), request="old"), event(4, user("q2")))
    states, violations = look(stored, agent={"tool_transcript_mode": "omit_previous_completed"})
    assert states["e2"] == "rewritten(tool_transcript)"
    assert states["e3"] == "dropped(tool_transcript)"
    assert violations == []
    odd = session(
        event(1, user("q1"), request="old"),
        event(2, result("nobody"), request="old"),
        event(3, Message(role="assistant", reasoning_content="hm"), request="old"),
        event(4, user("q2")),
    )
    states, violations = look(odd)
    assert states == {"e1": "raw", "e2": "dropped(pairing)", "e3": "dropped(no_content)", "e4": "raw"}
    assert violations == []


def test_a_filter_hides() -> None:
    """WB-RPL-13, ASM-EVT-05, -06."""
    aside = event(2, say("a"), request="old", filter_key="app/b")
    stored = session(event(1, user("q1"), request="old"), aside, event(3, user("q2"), filter_key="app/a"))
    assert look(stored, asker={"filter_key": "app/a"})[0] == {"e1": "raw", "e2": "hidden(branch)", "e3": "raw"}
    states = look(stored, agent={"timeline_filter_mode": "request"})[0]
    assert states == {"e1": "hidden(timeline)", "e2": "hidden(timeline)", "e3": "raw"}


@pytest.mark.parametrize(
    ("key", "current", "expected"),
    [
        ("app/a", "app/a", ["", "", "", ""]),
        ("app/a/b", "app/a", ["", "", "branch", ""]),
        ("app", "app/a", ["", "branch", "branch", ""]),
        ("app/b", "app/a", ["branch", "branch", "branch", ""]),
        ("app/ab", "app/a", ["branch", "branch", "branch", ""]),
        ("", "app/a", ["", "", "branch", ""]),
        ("app/a", "", ["", "", "branch", ""]),
    ],
)
def test_the_branch_filter_is_that_of_the_specification(key: str, current: str, expected: list[str]) -> None:
    """ASM-EVT-06, read off the table."""
    one, asker = event(1, say("a"), filter_key=key), invocation(None, filter_key=current)
    modes: tuple[BranchMode, ...] = ("prefix", "subtree", "exact", "all")
    assert [hidden_by(one, asker, AgentSettings(branch_filter_mode=mode)) for mode in modes] == expected


# --- in the request and covered -----------------------------------------------------------------------


def test_the_resume_tail_and_the_current_message() -> None:
    """WB-RPL-13: `raw_and_covered` names the rule."""
    events = [
        event(1, user("q")),
        event(2, call("a")),
        event(3, result("a")),
        event(4, call("b")),
        event(5, result("b")),
    ]
    stored = session(*events, app=summary(5))
    states, violations = look(stored, attempt(stored, events, summary(5)), asker={"message": user("q")})
    assert states == {
        "e1": "raw_and_covered(current_message)",
        "e2": "covered",
        "e3": "covered",
        "e4": "raw_and_covered(resume_tail)",
        "e5": "raw_and_covered(resume_tail)",
    }
    assert violations == []


def test_the_repaired_call() -> None:
    """WB-RPL-13."""
    stored = session(*OLD, *NOW, event(6, say("a2")), event(7, user("q3"), request="next"), app=summary(4))
    read = attempt(stored, [*OLD, *NOW[:2]], summary(4))
    states, violations = look(stored, read, request="next")
    assert states["e4"] == "raw_and_covered(repaired_call)"
    assert states["e3"] == "covered"
    assert states["e5"] == "raw"
    assert violations == []


def test_the_anchor() -> None:
    """WB-RPL-13."""
    past = [event(1, user("q1"), request="old"), event(2, say("a1"), request="old"), event(3, say("a2"), request="old")]
    stored = session(*past, event(4, user("q2")), app=summary(2))
    states, violations = look(stored, attempt(stored, past[:2], summary(2)), agent={"user_anchors": True})
    assert states == {"e1": "raw_and_covered(anchor)", "e2": "covered", "e3": "raw", "e4": "raw"}
    assert violations == []


def test_the_aggregate_of_several_branches() -> None:
    """WB-RPL-13: the earliest cutoff decides, by time; what a later summary covers is in twice, by that rule."""
    one = [event(n, say(f"a{n}"), request="old", filter_key="app/a") for n in (1, 3)]
    two = [event(n, say(f"b{n}"), request="old", filter_key="app/b") for n in (2, 4)]
    stored = session(one[0], two[0], one[1], two[1], event(5, user("q")))
    stored.summaries = {"app/a": summary(1, "A"), "app/b": summary(4, "B")}
    reads = [
        attempt(stored, one[:1], stored.summaries["app/a"], key="app/a"),
        attempt(stored, two, stored.summaries["app/b"], key="app/b"),
    ]
    states, violations = look(stored, *reads, agent={"preserve_foreign_messages": True})
    assert states == {
        "e1": "raw_and_covered(aggregate)",
        "e2": "raw_and_covered(aggregate)",
        "e3": "raw",
        "e4": "raw_and_covered(aggregate)",
        "e5": "raw",
    }
    assert violations == []


def test_the_equal_time_rule() -> None:
    """WB-RPL-13, ASM-EVT-03: without an id the cutoff is a time, and what happened at that time stays."""
    stored = session(*OLD, *NOW, app=summary(2, by_id=False))
    states, violations = look(stored, attempt(stored, OLD, summary(2, by_id=False)))
    assert states["e1"] == "covered"
    assert states["e2"] == "raw_and_covered(equal_time)"
    assert violations == []


# --- violations ---------------------------------------------------------------------------------------


def without(position: int) -> Callable[[Assembly], Assembly]:
    """An assembler that forgets the messages of one event."""

    def change(assembly: Assembly) -> Assembly:
        return rebuilt(assembly, lambda place, message: [] if place == position else [message])

    return change


def rebuilt(assembly: Assembly, of: Callable[[int, Message], list[Message]]) -> Assembly:
    lane = Lane()
    for message, kind, position in zip(assembly.messages, assembly.kinds, assembly.positions, strict=True):
        for one in of(position, message):
            lane.add(one, kind, position)
    return replace(assembly, pieces=(Piece(lane, 0, len(lane)),), _messages=None, _kinds=None, _positions=None)


def test_an_event_that_nobody_has_is_lost() -> None:
    """WB-RPL-13: no state."""
    states, violations = look(session(*OLD, *NOW), change=without(1))
    assert states["e2"] == "lost"
    assert violations == [CoverageViolation("lost", 1, "projection")]


def test_an_event_before_the_boundary_that_no_summary_read_is_lost() -> None:
    """WB-RPL-13: a boundary isn't enough."""
    stored = session(*OLD, *NOW, app=summary(2))
    states, violations = look(stored, attempt(stored, OLD[:1], summary(2)))
    assert states["e1"] == "covered"
    assert states["e2"] == "lost"
    assert violations == [CoverageViolation("lost", 1, "selection")]


def test_an_event_that_is_in_twice_without_a_rule() -> None:
    """WB-RPL-13: two states."""
    stored = session(*OLD, *NOW, app=summary(1))
    states, violations = look(stored, attempt(stored, OLD, summary(1)))
    assert states["e2"] == "raw_and_covered"
    assert violations == [CoverageViolation("twice", 1, "selection")]


def test_a_text_that_nobody_changed_by_a_rule() -> None:
    """WB-RPL-13: another text without a pass."""
    changed = lambda place, message: [replace(message, content="?")] if place == 1 else [message]  # noqa: E731
    states, violations = look(session(*OLD, *NOW), change=lambda assembly: rebuilt(assembly, changed))
    assert states["e2"] == "rewritten"
    assert violations == [CoverageViolation("changed", 1, "projection")]


def test_a_message_that_is_in_more_than_once() -> None:
    """WB-RPL-13."""
    doubled = lambda place, message: [message] * (2 if place == 1 else 1)  # noqa: E731
    _, violations = look(session(*OLD, *NOW), change=lambda assembly: rebuilt(assembly, doubled))
    assert violations == [CoverageViolation("repeated", 1, "projection")]


# --- following calls ----------------------------------------------------------------------------------


@given(st.integers(0, 100_000), st.sampled_from([0.0, 0.05, 0.3]))
def test_following_calls_agrees_with_a_look_at_the_last_one(seed: int, wildness: float) -> None:
    """WB-RPL-13: over several agents, re-used ids, late results, summaries, limits, tailoring."""
    rng = random.Random(seed)
    agent, compaction = random_settings(rng)
    story = Storyteller(seed, wildness=wildness, summaries=rng.random() < 0.5)
    assembler = ContentAssembler(agent, compaction, counter=COUNTER, profile=SEED, sanitize=rng.random() < 0.7)
    tracker = CoverageTracker(agent)
    attempts: list[SummaryAttempt] = []
    known: dict[str, Summary] = {}
    budget = rng.choice([0, 0, 60])
    for _ in range(25):
        story.step()
        asker = story.invocation()
        stored = asker.session
        assert stored is not None
        for key, written in stored.summaries.items():
            if known.get(key) != written:
                known[key] = written
                attempts.append(attempt(stored, list(stored.events), written, key=key))
                tracker.add_attempt(attempts[-1])
        assembly = assembler.assemble(asker, BASE)
        sent = sent_of(assembly, asker)
        if budget:
            tailored = tailor_assembly(assembly, strategy_named("middle_out", COUNTER), budget)
            kept = None if tailored.kept_original else tuple(tailored.kept)
            sent = replace(sent, request=Request(messages=tailored.messages), kept=kept, tailored=tailored)
        _, violations = tracker.observe(sent)
        # What these summaries say they cover isn't always what they were made of: that's for selection to answer.
        assert [one for one in violations if one.step != "selection"] == []
        fresh = CoverageTracker(agent)
        fresh.rewrites = tracker.rewrites
        for one in attempts:
            fresh.add_attempt(one)
        fresh.observe(sent)
        # Steps are noted by event id, so of events without one they say nothing sure.
        assert with_ids(tracker) == with_ids(fresh)


def traced(recordings: Recordings, **values: Any) -> ConversationTrace:
    (loaded,) = recordings.load()
    return replay_conversation(loaded, config(**values))


def coverage_rows(trace: ConversationTrace) -> list[dict[str, Any]]:
    columns = TABLES["coverage"].column_names
    return [dict(zip(columns, row, strict=True)) for row in trace.rows["coverage"]]


def test_rows_say_what_changed_and_every_call_can_be_read_back(recorded: Callable[..., Recordings]) -> None:
    """WB-RPL-13: ranges per change, not events times calls; each event has a state at every call."""
    (loaded,) = recorded(chat(20)).load()
    n_calls = len(loaded.calls)
    trace = replay_conversation(loaded, summarising())
    rows = coverage_rows(trace)
    assert trace.rows["violations"] == []
    assert len(rows) < 4 * n_calls
    first = states_at(rows, 0)
    last = states_at(rows, n_calls - 1)
    assert [state for state, _ in first] == ["raw"]
    assert len(last) == len(loaded.events) - 1  # all but the last answer
    kept = [("raw_and_covered", rule) for rule in ("current_message", "resume_tail", "resume_tail")]
    assert last == [*[("covered", "")] * 76, *kept]


def test_what_the_session_forgets_has_a_state(recorded: Callable[..., Recordings]) -> None:
    """WB-RPL-13: the event limit, an expired session, a greeting in front of the first user message."""
    limited = states_at(coverage_rows(traced(recorded(chat(6)), service={"event_limit": 8})), 11)
    assert limited[0] == ("dropped", "event_limit")
    expired = states_at(coverage_rows(traced(recorded(chat(3)), service={"session_ttl_s": 20.0})), 5)
    assert expired[0] == ("dropped", "session_expired")
    greeting = chat(1, tools=False)
    greeting["messages"][0] = {"role": "assistant", "content": "您好", "timestamp": "2026-03-01T10:00:00Z"}
    assert states_at(coverage_rows(traced(recorded(greeting))), 0) == [("hidden", "user_first"), ("raw", "")]
