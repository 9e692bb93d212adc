"""Which events take part: eligibility, filters, cutoff, resume tail, pair repair."""

from __future__ import annotations

import pytest

from tests.context.build import NS, assemble, call, event, invocation, result, say, session, summary, texts, user
from workbench.context.select import Cutoff, Lens, is_eligible
from workbench.context.settings import AgentSettings
from workbench.model.types import Message, Response, ResponseError
from workbench.profiles import SEED, TRPC_AGENT_GO_2026_08
from workbench.session.types import SummaryBoundary


def test_only_whole_events_with_something_to_show_are_eligible():
    """ASM-EVT-01."""
    assert is_eligible(event(1, say("x")))
    assert is_eligible(event(1, call("c")))
    assert is_eligible(event(1, result("c", "")))
    assert is_eligible(event(1, Message(role="assistant", reasoning_content="thinking")))
    assert not is_eligible(event(1, say("")))
    assert not is_eligible(event(1, response=None))
    assert not is_eligible(event(1, response=Response(choices=event(1, say("x")).response.choices, is_partial=True)))


def test_a_stored_error_event_without_content_is_left_out():
    """ASM-EVT-09."""
    failed = event(2, response=Response(choices=event(1, say("")).response.choices, error=ResponseError("t", "m")))
    assert texts(assemble(session(event(1, user()), failed))) == ["system:S", "user:q"]


def test_the_current_message_bypasses_cutoff_and_filters():
    """ASM-EVT-02, ASM-INTRA-10."""
    stored = session(event(1, user(), filter_key="elsewhere"), event(2, say("a")), app=summary(2))
    sent = assemble(stored, agent={"add_session_summary": True})
    assert texts(sent)[1:] == ["user:q"]
    assert sent.covered_positions_included == ((0, "current_message"),)


def test_an_invocation_message_without_role_matches_a_user_message():
    """ASM-EVT-02."""
    stored = session(event(1, user("hello")))
    assert texts(assemble(stored, message=Message(content="hello"))) == ["system:S", "user:hello"]


def test_current_turn_events_stay_whatever_their_role():
    """ASM-EVT-02, ASM-RUN-14; a covered tool round of a rewriter is kept whole and not compacted."""
    stored = session(event(1, user("u")), event(2, call("c")), event(3, result("c", "long result")), app=summary(3))
    sent = assemble(
        stored,
        message=user("u"),
        agent={"add_session_summary": True},
        compaction={"enabled": True, "tool_result_max_tokens": 5},
        facts={"current_turn_ids": frozenset({"e1", "e2", "e3"})},
    )
    assert texts(sent)[1:] == ["user:u", "assistant:c", "tool:c:long result"]
    assert not sent.has_compacted_tool_results


def test_seed_history_obeys_the_cutoff():
    """ASM-EVT-02, ASM-RUN-11."""
    stored = session(event(1, user("seed")), event(2, say("seeded")), event(3, user("q")), app=summary(3))
    sent = assemble(stored, agent={"add_session_summary": True}, facts={"seed_history_ids": frozenset({"e1", "e2"})})
    assert texts(sent)[1:] == ["user:q"]


def test_a_boundary_id_in_the_list_decides_by_position():
    """ASM-EVT-03: the next event has the same time and is kept."""
    stored = session(
        event(1, user("old"), request="r1"), event(2, say("kept"), request="r1", time_ns=1 * NS), app=summary(1)
    )
    assert texts(assemble(stored, agent={"add_session_summary": True}))[1:] == ["assistant:kept", "user:q"]


def test_without_an_id_an_event_at_the_cutoff_is_kept():
    """ASM-EVT-03, -04."""
    stored = session(
        event(1, user("old"), request="r1"), event(2, say("kept"), request="r1"), app=summary(2, by_id=False)
    )
    assert texts(assemble(stored, agent={"add_session_summary": True}))[1:] == ["assistant:kept", "user:q"]
    assert not Cutoff.of(SummaryBoundary("app", 0, "e1"), stored).covers(0, stored.events[0])


@pytest.mark.parametrize(("mode", "wanted"), [("all", ["x", "y", "z"]), ("request", ["y", "z"]), ("invocation", ["z"])])
def test_the_timeline_filter_narrows_history(mode, wanted):
    """ASM-EVT-05."""
    stored = session(
        event(1, say("x"), request="r1"),
        event(2, say("y"), invocation_id="other"),
        event(3, say("z")),
        event(4, user()),
    )
    sent = assemble(stored, agent={"timeline_filter_mode": mode})
    assert [message.content for message in sent.messages[1:-1]] == wanted


@pytest.mark.parametrize(
    ("key", "current", "prefix", "subtree", "exact"),
    [
        ("app/a", "app/a", True, True, True),
        ("app/a/b", "app/a", True, True, False),
        ("app", "app/a", True, False, False),
        ("app/b", "app/a", False, False, False),
        ("app/ab", "app/a", False, False, False),
        ("", "app/a", True, True, False),
        ("app/a", "", True, True, False),
        ("", "", True, True, True),
    ],
)
def test_branch_filters_are_delimiter_aware(key, current, prefix, subtree, exact):
    """ASM-EVT-06, -07."""
    one = event(1, say(), filter_key=key)
    for mode, wanted in (("prefix", prefix), ("subtree", subtree), ("exact", exact), ("all", True)):
        lens = Lens(invocation(session(one), filter_key=current), AgentSettings(branch_filter_mode=mode), SEED)
        assert lens.passes_filters(one) is wanted, mode


def test_a_legacy_event_is_filtered_by_its_branch():
    """ASM-EVT-06, SUM-KEY-03."""
    legacy = event(1, say(), filter_key="", branch="other", version=0)
    assert not Lens(invocation(session(legacy)), AgentSettings(), SEED).passes_filters(legacy)


def test_include_contents_none_sends_only_the_own_invocation():
    """ASM-EVT-10; pass 2 works, passes 0 and 1 don't, and its marker names no event."""
    stored = session(
        event(1, user("old"), request="r1"),
        event(2, user()),
        event(3, call("c")),
        event(4, result("c", "z" * 400)),
        app=summary(1),
    )
    sent = assemble(
        stored,
        agent={"add_session_summary": True},
        compaction={"enabled": True, "oversized_tool_result_max_tokens": 300, "force_clean_tool_names": ["read"]},
        facts={"include_contents": "NONE"},
    )
    assert [message.role for message in sent.messages] == ["system", "user", "assistant", "tool"]
    assert not sent.has_session_summary
    assert "characters truncated from tool result; tool_call_id=c;" in sent.messages[-1].content


# --- the resume tail ----------------------------------------------------------------------------------


def _run(*extra, covered: int):
    return session(
        event(1, user()),
        event(2, call("a", text="first")),
        event(3, result("a", "old")),
        event(4, call("b", "c", text="second", reasoning_content="why", arguments='{"x":1}')),
        event(5, result("b", "five5"), result("c", "ninechars")),
        *extra,
        app=summary(covered),
    )


def test_only_the_latest_complete_covered_round_comes_back():
    """ASM-INTRA-10 to -12: parallel results stay together, text and reasoning with them."""
    sent = assemble(_run(event(6, say("later")), covered=5), agent={"add_session_summary": True})
    assert texts(sent)[1:] == [
        "user:q",
        "assistant:b,c:second",
        "tool:b:five5",
        "tool:c:ninechars",
        "assistant:later",
    ]
    assert sent.messages[2].reasoning_content == "why"
    assert dict(sent.covered_positions_included) == {0: "current_message", 3: "resume_tail", 4: "resume_tail"}
    assert sent.has_resume_tail


def test_tail_items_are_measured_one_by_one_and_only_with_compaction_on():
    """ASM-INTRA-14, -16; ASM-CMP-01; stored events don't change (ASM-INTRA-15, ASM-CHAIN-03)."""
    stored = _run(covered=5)
    before = list(stored.events)
    sent = assemble(
        stored, agent={"add_session_summary": True}, compaction={"enabled": True, "tool_result_max_tokens": 6}
    )
    assert sent.messages[2].tool_calls[0].arguments != '{"x":1}'
    assert sent.messages[3].content == "five5"
    assert sent.messages[4].content.endswith("not otherwise.")
    assert sent.has_compacted_tool_results
    assert sent.stats.by_pass == (0, 0, 0, 1)
    assert stored.events == before
    off = assemble(stored, agent={"add_session_summary": True}, compaction={"tool_result_max_tokens": 1})
    assert [message.content for message in off.messages[3:]] == ["five5", "ninechars"]
    assert not off.has_compacted_tool_results


def test_kept_tools_keep_their_result_in_the_tail():
    """ASM-INTRA-14."""
    compaction = {"enabled": True, "tool_result_max_tokens": 1, "keep_tool_names": ["read"]}
    sent = assemble(_run(covered=5), agent={"add_session_summary": True}, compaction=compaction)
    assert [message.content for message in sent.messages[3:]] == ["five5", "ninechars"]


def test_a_covered_call_comes_back_bare_for_the_result_that_needs_it():
    """ASM-INTRA-20."""
    stored = session(
        event(1, user()),
        event(2, call("a", "b", text="words")),
        event(3, result("a", "1")),
        event(4, result("b", "2")),
        app=summary(3),
    )
    sent = assemble(stored, agent={"add_session_summary": True})
    assert texts(sent)[1:] == ["user:q", "assistant:b", "tool:b:2"]
    assert (1, "repaired_call") in sent.covered_positions_included


def test_a_reused_id_revives_no_older_call():
    """ASM-INTRA-20, ASM-HIST-04."""
    stored = session(
        event(1, user()),
        event(2, call("a", text="old")),
        event(3, result("a", "1")),
        event(4, call("a", text="new")),
        event(5, result("a", "2")),
        app=summary(4),
    )
    sent = assemble(stored, agent={"add_session_summary": True})
    assert texts(sent)[1:] == ["user:q", "assistant:a:old", "tool:a:1", "assistant:a", "tool:a:2"]


# --- anchors ------------------------------------------------------------------------------------------


def _split_turn(**facts):
    return session(
        event(1, user("asked"), request="r1", **facts),
        event(2, say("answered"), request="r1", **facts),
        event(3, user()),
        app=summary(1),
    )


def test_the_user_message_of_a_split_turn_comes_back_under_the_newest_profile():
    """ASM-HIST-15."""
    agent = {"add_session_summary": True}
    assert texts(assemble(_split_turn(), agent=agent))[1:] == ["assistant:answered", "user:q"]
    newest = assemble(_split_turn(), agent=agent, profile=TRPC_AGENT_GO_2026_08)
    assert texts(newest)[1:] == ["user:asked", "assistant:answered", "user:q"]
    assert newest.covered_positions_included == ((0, "anchor"),)


def test_no_anchor_without_invocation_id_for_seeds_or_foreign_tails():
    """ASM-HIST-15."""
    agent = {"add_session_summary": True, "user_anchors": True}
    assert "user:asked" not in texts(assemble(_split_turn(invocation_id=""), agent=agent))
    seeds = assemble(_split_turn(), agent=agent, facts={"seed_history_ids": frozenset({"e1"})})
    assert "user:asked" not in texts(seeds)
    foreign = session(
        event(1, user("asked"), request="r1"), event(2, say("x"), request="r1", author="helper"), app=summary(1)
    )
    assert "user:asked" not in texts(assemble(foreign, agent=agent))


def test_an_anchor_stands_behind_a_retained_system_message():
    """ASM-HIST-15."""
    stored = session(
        event(1, user("asked"), request="r1"),
        event(2, Message(role="system", content="note"), request="r1", author="agent"),
        event(3, say("answered"), request="r1"),
        app=summary(1),
    )
    sent = assemble(stored, agent={"add_session_summary": True, "user_anchors": True})
    assert texts(sent)[1:] == ["system:note", "user:asked", "assistant:answered", "user:q"]
