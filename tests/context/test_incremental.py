"""The incremental content stage answers what the plain one answers, with work proportional to what is new."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.context.build import BASE, call, event, invocation, result, say, session, summary, user
from tests.context.sessions import Storyteller
from workbench.context.assemble import Assembly, assemble_content
from workbench.context.incremental import ContentAssembler
from workbench.context.sanitize import sanitize_assembly
from workbench.context.settings import AgentSettings, CompactionSettings
from workbench.context.stream import EventStream
from workbench.context.tailor import strategy_named, tailor_assembly
from workbench.model.types import Message, Request, ToolSpec
from workbench.profiles import PROFILES
from workbench.tokens import SimpleTokenCounter

COUNTER = SimpleTokenCounter(2.0)
TOOLS = (ToolSpec("read", parameters_json='{"type":"object","properties":{"a":{"type":"integer"}}}'), ToolSpec("shell"))


def random_settings(rng: random.Random) -> tuple[AgentSettings, CompactionSettings]:
    pick = rng.choice
    agent = AgentSettings(
        add_session_summary=pick([True, False]),
        summary_injection_mode=pick(["system", "user"]),
        max_history_runs=pick([0, 0, 1, 2, 5]),
        history_limit_unit=pick([None, "run", "message"]),
        timeline_filter_mode=pick(["all"] * 6 + ["request", "invocation"]),
        branch_filter_mode=pick(["prefix"] * 4 + ["all", "exact", "subtree"]),
        tool_transcript_mode=pick(["keep_all", "keep_all", "omit_previous_completed"]),
        reasoning_content_mode=pick(["discard_previous_turns", "keep_all", "discard_all"]),
        add_context_prefix=pick([False, False, True]),
        preserve_foreign_messages=pick([False, False, True]),
        user_anchors=pick([None, True, False]),
    )
    compaction = CompactionSettings(
        enabled=pick([True, True, False]),
        tool_result_max_tokens=pick([0, 5, 20, 50]),
        oversized_tool_result_max_tokens=pick([0, 30, 60]),
        keep_recent_requests=pick([0, 1, 2]),
        force_clean_tool_names=pick([(), ("shell",)]),
        keep_tool_names=pick([(), ("read",)]),
        skip_recent=pick([None, None, 3, 8]),
    )
    return agent, compaction


def facts(assembly: Assembly) -> dict[str, Any]:
    return {
        "messages": assembly.messages,
        "kinds": assembly.kinds,
        "positions": assembly.positions,
        "summary": assembly.summary,
        "stats": assembly.stats,
        "covered": assembly.covered_positions_included,
        "compacted": assembly.has_compacted_tool_results,
        "rewrites": sorted(map(repr, assembly.rewrites)),
    }


@given(st.integers(0, 100_000), st.sampled_from([0.0, 0.03, 0.1, 0.3]))
def test_incremental_equals_plain_after_every_event(seed, wildness):
    """ASM-CACHE-06, ASM-CHAIN-04: over several agents, re-used ids, late results, summaries, limits, lost events."""
    rng = random.Random(seed)
    agent, compaction = random_settings(rng)
    profile = rng.choice(list(PROFILES.values()))
    sanitize = rng.random() < 0.5
    story = Storyteller(seed, wildness=wildness, summaries=rng.random() < 0.7, drops=rng.random() < 0.4)
    assembler = ContentAssembler(agent, compaction, counter=COUNTER, profile=profile, sanitize=sanitize)
    base = Request(messages=BASE.messages, tools=TOOLS)
    late = {"late_context_messages": (user("late"),)} if rng.random() < 0.2 else {}
    strategy = strategy_named(rng.choice(["middle_out", "head_out", "tail_out"]), COUNTER)
    earlier: list[tuple[Assembly, tuple[Message, ...]]] = []
    for _ in range(25):
        story.step()
        asker = story.invocation(**late)
        got = assembler.assemble(asker, base)
        wanted = assemble_content(asker, base, agent, compaction, counter=COUNTER, profile=profile)
        if sanitize:
            wanted = sanitize_assembly(wanted, TOOLS)
        assert facts(got) == facts(wanted)
        budget = rng.choice([0, 5, 60, 1000])
        short, long = tailor_assembly(got, strategy, budget), strategy.tailor(wanted.messages, budget)
        if not short.kept_original:
            assert (short.messages, short.kept, short.tokens) == (long.messages, long.kept, long.tokens)
        if earlier:
            before = earlier[-1][1]
            n_same = 0
            while n_same < min(len(before), len(got)) and before[n_same] is got.messages[n_same]:
                n_same += 1
            assert got.shared_with_previous == n_same
        earlier.append((got, got.messages))
    for assembly, messages in earlier:
        now = [one for lane, start, stop in assembly.pieces for one in lane.messages[start:stop]]
        assert tuple(now) == messages


def dialogue(n_requests: int) -> list[Any]:
    """Plain requests of four events each."""
    events = []
    for i in range(n_requests):
        at = 4 * i
        request = f"r{i}"
        events += [
            event(at, user(f"q{i}"), request=request),
            event(at + 1, call(f"c{i}"), request=request),
            event(at + 2, result(f"c{i}", "x" * 3000), request=request),
            event(at + 3, say(f"a{i}"), request=request),
        ]
    return events


def replay(assembler: ContentAssembler, events: list[Any], **summaries: Any) -> list[Assembly]:
    stored = session(**summaries)
    sent = []
    for one in events:
        stored.append(one)
        if one.message.role in ("user", "tool"):
            asker = invocation(stored, user(f"q{one.request_id[1:]}"), one.request_id)
            sent.append(assembler.assemble(asker, BASE))
    return sent


def test_a_regular_dialogue_never_goes_the_plain_way():
    """ASM-CHAIN-04: each event is looked at a fixed number of times."""

    class Counting(SimpleTokenCounter):
        calls = 0

        def count_tokens(self, ctx, message):
            type(self).calls += 1
            return super().count_tokens(ctx, message)

    compaction = CompactionSettings(enabled=True, oversized_tool_result_max_tokens=500)
    assembler = ContentAssembler(AgentSettings(), compaction, counter=Counting(), sanitize=True)
    sent = replay(assembler, dialogue(50))
    assert assembler.n_plain == 0
    assert Counting.calls <= 15 * 50  # a dozen of them look for the longest cut
    assert sent[-1].shared_with_previous >= len(sent[-2]) - 1


def test_new_rewrites_are_told_once_and_again_when_the_form_changes():
    """ASM-CMP-22: cut while current, placeholder from the third request on."""
    compaction = CompactionSettings(enabled=True, tool_result_max_tokens=100, oversized_tool_result_max_tokens=500)
    assembler = ContentAssembler(AgentSettings(), compaction)
    forms = [(one.event_id, one.by_pass) for sent in replay(assembler, dialogue(4)) for one in sent.new_rewrites]
    assert forms == [("e2", 2), ("e6", 2), ("e2", 1), ("e10", 2), ("e6", 1), ("e14", 2)]


def test_a_callable_that_may_look_at_anything_goes_the_plain_way():
    """ASM-CMP-12."""
    assembler = ContentAssembler(AgentSettings(), CompactionSettings(enabled=True), skip_recent_func=lambda events: 1)
    replay(assembler, dialogue(2))
    assert assembler.n_plain == 4


def test_a_moved_boundary_starts_from_the_boundary():
    """ASM-EVT-03, ASM-INTRA-10."""
    assembler = ContentAssembler(AgentSettings(add_session_summary=True), CompactionSettings())
    stored = session(*dialogue(3))
    asker = invocation(stored, user("q9"), "r9")
    assert len(assembler.assemble(asker, BASE)) == 14
    stored.summaries["app"] = summary(7)
    assert len(assembler.assemble(asker, BASE)) == 6
    assert assembler.n_plain == 0


@pytest.mark.parametrize("n_dropped", [4, 5])
def test_lost_events_leave_the_request(n_dropped):
    """ASM-HIST-04: whole units, or a part of one."""
    stored = session(*dialogue(6))
    assembler = ContentAssembler(AgentSettings(), CompactionSettings())
    asker = invocation(stored, user("q9"), "r9")
    assembler.assemble(asker, BASE)
    stored.drop_oldest(n_dropped)
    plain = assemble_content(asker, BASE, AgentSettings(), CompactionSettings(), counter=None)
    assert assembler.assemble(asker, BASE).messages == plain.messages
    assert assembler.n_plain == 0


def test_a_session_read_again_goes_on_where_it_was():
    """ASM-CHAIN-04."""
    stream = EventStream()
    stored = session(*dialogue(2))
    stream.sync(stored)
    again = stored.clone()
    again.drop_oldest(3)
    again.append(event(99, say()))
    stream.sync(again)
    assert (stream.end, stream.first, stream.shift, stream.generation) == (9, 3, 0, 1)
    stream.sync(session(event(1, say("another"))))
    assert (stream.end, stream.generation) == (1, 2)


@given(st.integers(0, 10**6))
def test_a_request_in_pieces_is_the_request_as_a_whole(seed):
    """ASM-CACHE-06: also after later requests were assembled from the same lanes."""
    rng = random.Random(seed)
    assembler = ContentAssembler(*random_settings(rng), counter=SimpleTokenCounter())
    lazy = [one.request(BASE) for one in replay(assembler, dialogue(rng.randint(1, 6)))]
    for request in lazy:
        n = rng.randint(0, request.n_messages)
        part = request.messages_from(n)
        places = [request.message_at(i) for i in range(request.n_messages)]
        whole = BASE.replace(messages=request.messages)
        assert part == list(request.messages[n:])
        assert places == list(request.messages)
        assert request == whole
        assert whole == request
        assert request.replace(tools=()) == whole.replace(tools=())
        assert request.replace(messages=()) == BASE.replace(messages=())
        with pytest.raises(IndexError):
            request.message_at(request.n_messages)
