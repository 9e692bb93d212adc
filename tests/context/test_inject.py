"""Where summaries, examples and per-run messages go."""

from __future__ import annotations

import pytest

from tests.context.build import BASE, assemble, event, invocation, result, say, session, summary, texts, user
from workbench.context.inject import find_summary, system_block, user_block
from workbench.context.settings import AgentSettings
from workbench.model.types import Message, Request
from workbench.profiles import TRPC_AGENT_GO_2026_07
from workbench.session.types import Summary
from workbench.wording import USER_MODE_NOTE

ON = {"add_session_summary": True}
IN_USER = {"add_session_summary": True, "summary_injection_mode": "user"}
EMPTY = Request()


def plain(text: str) -> str:
    return f"<{text}>"


def test_a_summary_is_injected_only_on_request():
    """ASM-INJ-01, -02, -12."""
    stored = session(event(1, say("old"), request="r1"), app=summary(1))
    assert not assemble(stored).has_session_summary
    assert assemble(stored, agent=ON).has_session_summary
    assert not assemble(stored, agent=ON | {"timeline_filter_mode": "request"}).has_session_summary
    assert not assemble(stored, agent=ON, facts={"include_contents": "none"}).has_session_summary
    empty = session(event(1, say("old"), request="r1"), app=Summary("", 1))
    assert texts(assemble(empty, agent=ON)) == ["system:S", "assistant:old", "user:q"]


@pytest.mark.parametrize(
    ("mode", "key", "wanted"),
    [
        ("all", "app", "full"),
        ("exact", "app", "app"),
        ("subtree", "app/x", None),
        ("prefix", "app", "app"),
        ("prefix", "app/a", "one\n\ntwo"),
        ("prefix", "app/a/b", "one"),
        ("prefix", "", "full"),
        ("prefix", "other", None),
    ],
)
def test_which_summary_is_used(mode, key, wanted):
    """ASM-INJ-03: never the full session's for a branch."""
    stored = session()
    stored.summaries.update(
        {"": summary(1, "full"), "app": summary(1, "app"), "app/a/c": summary(2, "two"), "app/a/b": summary(1, "one")}
    )
    found = find_summary(
        invocation(stored, filter_key=key), AgentSettings(add_session_summary=True, branch_filter_mode=mode)
    )
    assert (found.text if found else None) == wanted


def test_the_full_summary_serves_a_branch_only_as_an_option():
    """ASM-INJ-03 (DA7)."""
    stored = session()
    stored.summaries[""] = summary(1, "full")
    settings = AgentSettings(add_session_summary=True, summary_fallback_to_full=True)
    assert find_summary(invocation(stored, filter_key="app"), settings).text == "full"


def test_an_aggregate_ends_where_its_earliest_part_ends():
    """ASM-INJ-04."""
    events = [event(i, say(str(i)), request="r1", filter_key="app/a/b") for i in (1, 2, 3)]
    stored = session(*events)
    stored.summaries.update({"app/a/b": summary(2, "one"), "app/a/c": summary(3, "two")})
    sent = assemble(stored, agent=ON, facts={"filter_key": "app/a"})
    assert texts(sent)[1:] == ["assistant:2", "assistant:3", "user:q"]
    stored.summaries["app/a/d"] = Summary("three")
    assert texts(assemble(stored, agent=ON, facts={"filter_key": "app/a"}))[1:] == [
        "assistant:1",
        "assistant:2",
        "assistant:3",
        "user:q",
    ]


def test_system_mode_changes_only_the_first_system_message():
    """ASM-INJ-05, -06, -11."""
    stored = session(app=summary(1))
    two = Request(messages=(Message(role="user", content="u"), *BASE.messages, Message(role="system", content="T")))
    sent = assemble(stored, agent=ON, base=two, summary_formatter=plain)
    assert texts(sent) == ["user:u", "system:S\n\n<SUM>", "system:T", "user:q"]
    assert sent.summary.message_index == 1
    assert sent.summary.content_without == "S"
    none = assemble(stored, agent=ON, base=EMPTY, summary_formatter=plain)
    assert texts(none) == ["system:<SUM>", "user:q"]
    blank = Request(messages=(Message(role="system"),))
    assert texts(assemble(stored, agent=ON, base=blank, summary_formatter=plain)) == ["system:<SUM>", "user:q"]
    injected = {"injected_context_messages": (Message(role="system", content="I"),)}
    sent = assemble(stored, agent=ON, base=EMPTY, summary_formatter=plain, facts=injected)
    assert texts(sent) == ["system:I\n\n<SUM>", "user:q"]


def test_blocks_keep_their_order_in_both_places():
    """ASM-INJ-07, ASM-PRE-01, ASM-CACHE-02."""
    facts = {"memory_block": "MEM", "recall_block": "REC"}
    stored = session(app=summary(1))
    sent = assemble(stored, agent=ON, facts=facts, summary_formatter=plain, system_suffix="LAST")
    assert texts(sent) == ["system:S\n\nMEM\n\n<SUM>\n\nREC\n\nLAST", "user:q"]
    assert sent.summary.content_without == "S\n\nMEM\n\nREC\n\nLAST"
    mixed = IN_USER | {"preload_memory_injection_mode": "user", "preload_session_recall_injection_mode": "user"}
    sent = assemble(stored, agent=mixed, facts=facts, summary_formatter=plain)
    assert texts(sent) == ["system:S", "user:MEM\n\n<SUM>\n\nREC\n\nq"]
    assert sent.summary.content_without == "MEM\n\nREC\n\nq"
    only_memory = assemble(session(), agent=mixed, facts=facts)
    assert only_memory.summary is None


def test_user_mode_puts_the_block_before_the_first_user_message():
    """ASM-INJ-08, -09, ASM-CACHE-01; few-shot examples stay as they are."""
    stored = session(event(1, say("a"), request="r1"), event(2, user("u"), request="r1"), app=summary(0))
    shots = {"few_shot": ((user("ex"), say("ans")),)}
    sent = assemble(stored, agent=IN_USER, facts=shots, summary_formatter=plain)
    assert texts(sent) == ["system:S", "user:ex", "assistant:ans", "assistant:a", "user:<SUM>\n\nu", "user:q"]
    assert sent.kinds == ("system", "few_shot", "few_shot", "history", "history", "current")
    assert sent.summary.message_index == 4
    assert stored.events[1].message.content == "u"


def test_an_empty_user_message_becomes_the_block():
    """ASM-INJ-08; an empty role counts as user and stays empty."""
    stored = session(
        event(1, Message(content_parts=user("x").content_parts, content="", reasoning_content="t"), request="r1"),
        app=summary(0),
    )
    sent = assemble(stored, agent=IN_USER, summary_formatter=plain)
    assert sent.messages[1].role == ""
    assert sent.messages[1].content == "<SUM>"


def test_without_a_user_message_the_prefix_takes_the_block_or_it_stands_alone():
    """ASM-INJ-08, cases 2 and 3."""
    answer = result("c", "tool output")
    injected = {"injected_context_messages": (user("inj"),)}
    sent = assemble(session(app=summary(1)), message=answer, agent=IN_USER, facts=injected, summary_formatter=plain)
    assert texts(sent)[:2] == ["system:S", "user:inj\n\n<SUM>"]
    stored = session(event(1, say("a"), request="now"), app=summary(0))
    sent = assemble(stored, message=Message(), agent=IN_USER, summary_formatter=plain)
    assert texts(sent) == ["system:S", "user:<SUM>", "assistant:a"]
    assert sent.kinds[1] == "summary"
    assert sent.summary.content_without == ""


def test_default_blocks_have_tags_and_a_note():
    """ASM-INJ-10."""
    assert system_block("T").startswith("Here is a brief summary of your previous interactions:\n\n<summary_of_")
    assert user_block("T") == (
        "Context from previous interactions:\n\n<summary_of_previous_interactions>\nT\n"
        f"</summary_of_previous_interactions>\n\n{USER_MODE_NOTE}\n"
    )


@pytest.mark.parametrize("agent", [ON, IN_USER])
def test_an_empty_block_injects_nothing(agent):
    """ASM-INJ-11; the reference leaves a blank line in system mode."""
    stored = session(app=summary(1))
    assert texts(assemble(stored, agent=agent, summary_formatter=lambda text: "")) == ["system:S", "user:q"]
    quirk = assemble(stored, agent=agent, summary_formatter=lambda text: "", profile=TRPC_AGENT_GO_2026_07)
    assert texts(quirk)[0] == ("system:S\n\n" if agent is ON else "system:S")


def test_examples_and_injected_context_stand_in_front_of_history():
    """ASM-INJ-20, -22."""
    facts = {
        "few_shot": ((user("ex"), say("ans")),),
        "injected_context_messages": (Message(role="system", content="I"), user("inj")),
    }
    sent = assemble(session(event(1, say("h"), request="r1")), facts=facts)
    assert texts(sent) == ["system:S", "system:I", "user:ex", "assistant:ans", "user:inj", "assistant:h", "user:q"]


def test_late_context_goes_before_the_last_user_message():
    """ASM-INJ-21, -22: the tool tail stays behind it."""
    late = {"late_context_messages": (user("late"),)}
    stored = session(event(1, user()), event(2, say("x")), app=summary(0))
    sent = assemble(stored, facts=late, agent=IN_USER, summary_formatter=plain)
    assert texts(sent) == ["system:S", "user:late", "user:<SUM>\n\nq", "assistant:x"]
    assert sent.summary.message_index == 2
    assert sent.kinds[1] == "late"
    alone = assemble(session(event(1, say("x"))), message=Message(), facts=late)
    assert texts(alone) == ["system:S", "user:late", "assistant:x"]
