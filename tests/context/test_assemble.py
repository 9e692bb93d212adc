"""The whole content stage: order of stages, provenance, immutability."""

from __future__ import annotations

from tests.context.build import BASE, assemble, call, event, result, say, session, summary, texts, user
from workbench.context.project import KINDS
from workbench.model.types import Message


def history(**summaries):
    return session(
        event(1, user("old"), request="r1"),
        event(2, call("c"), request="r1"),
        event(3, result("c", "x" * 2000), request="r1"),
        event(4, say("done"), request="r1"),
        event(5, user("more"), request="r2"),
        event(6, say("ok"), request="r2"),
        event(7, user()),
        **summaries,
    )


def test_summary_then_compaction():
    """ASM-CHAIN-01 to -03: the passes see what the summary left."""
    compaction = {"enabled": True, "tool_result_max_tokens": 10}
    agent = {"add_session_summary": True}
    assert assemble(history(), agent=agent, compaction=compaction).stats.results_per_pass == (0, 1, 0)
    late = assemble(history(app=summary(3)), agent=agent, compaction=compaction)
    assert late.stats.results_per_pass == (0, 0, 0)
    assert texts(late)[1:] == ["assistant:done", "user:more", "assistant:ok", "user:q"]


def test_every_message_says_what_it_is_and_where_it_is_from():
    """ASM-CHAIN-06, ASM-VIEW-01."""
    sent = assemble(history())
    assert sent.kinds == ("system", "history", "history", "tool_result", "history", "history", "history", "current")
    assert sent.positions == (-1, 0, 1, 2, 3, 4, 5, 6)
    assert set(sent.kinds) <= set(KINDS)
    assert sent.current_index == 7
    assert sent.first_position == 0
    assert len(sent) == 8


def test_messages_are_shared_and_stored_events_stay():
    """ASM-CHAIN-03, -04."""
    stored = history()
    before = list(stored.events)
    sent = assemble(stored, compaction={"enabled": True, "tool_result_max_tokens": 10})
    assert sent.messages[0] is BASE.messages[0]
    assert sent.messages[1] is before[0].message
    assert stored.events == before
    assert len(before[2].message.content) == 2000


def test_the_same_input_gives_the_same_request():
    """ASM-CACHE-06."""
    one, other = (assemble(history(app=summary(2)), agent={"add_session_summary": True}) for _ in range(2))
    assert (one.messages, one.positions, one.summary) == (other.messages, other.positions, other.summary)


def test_a_suffix_goes_behind_all_of_the_first_system_message():
    """ASM-CHAIN-02, ASM-CACHE-02, -03, ASM-OND-03."""
    assert texts(assemble(session(), system_suffix="TODAY")) == ["system:S\n\nTODAY", "user:q"]
    sent = assemble(
        session(app=summary(1)), agent={"add_session_summary": True}, summary_formatter=lambda text: "[SUM]"
    )
    suffixed = sent.with_system_suffix("OVERVIEW")
    assert texts(suffixed)[0] == "system:S\n\n[SUM]\n\nOVERVIEW"
    assert suffixed.summary.content_without == "S\n\nOVERVIEW"
    assert suffixed.with_system_suffix("OVERVIEW") is suffixed


def test_rewrites_list_every_changed_result():
    """ASM-CMP-22."""
    sent = assemble(history(), compaction={"enabled": True, "tool_result_max_tokens": 10})
    assert [(one.event_id, one.tool_call_id, one.by_pass) for one in sent.rewrites] == [("e3", "c", 1)]
    assert sent.new_rewrites == sent.rewrites
    assert sent.rewrite_at(3) == sent.rewrites[0]


def test_an_empty_session_sends_the_message():
    """ASM-HIST-03, BUG-13."""
    assert texts(assemble(session(), message=Message(role="user", content="hi"))) == ["system:S", "user:hi"]
