"""Compaction: protected units, passes 0 to 2, placeholders, markers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.context.build import LOAD_TOOLS, assemble, call, event, result, session, user
from workbench.context.compact import (
    Compactor,
    ToolResultRecoveryRef,
    compact_increment_events,
    is_recovery_placeholder,
    plain_marker,
    protected_units,
    truncate_middle,
    unit_key,
)
from workbench.context.counting import TokenMemo
from workbench.context.settings import CompactionSettings
from workbench.model.types import ContentPart, Message, Request
from workbench.tokens import SimpleTokenCounter
from workbench.wording import (
    LOAD_INSTRUCTION,
    NO_RECOVERY_INSTRUCTION,
    POLICY_PLACEHOLDER,
    RECOVERY_SENTENCE,
    RESUME_SENTENCE,
)

LONG = "x" * 2000


class FailingCounter:
    """Counts nothing."""

    def count_tokens(self, ctx: Any, message: Message) -> int:
        raise RuntimeError("no count")

    def count_tokens_range(self, ctx: Any, messages: Any, start: int, end: int) -> int:
        raise RuntimeError("no count")


def compactor(counter: Any = None, *, load: bool = False, **settings: Any) -> Compactor:
    values = {"enabled": True, "tool_result_max_tokens": 0} | settings
    return Compactor(CompactionSettings(**values), TokenMemo(counter or SimpleTokenCounter(1.0)), load)


def compacted(*events: Any, tool: Compactor, current: str = "req:now", **options: Any) -> list[str]:
    done, _ = compact_increment_events(events, current, tool, **options)
    return [message.content for one in done for message in one.messages]


def unit(request: str, number: int, text: str = LONG, **facts: Any) -> Any:
    return event(number, result(f"c{number}", text), request=request, **facts)


# --- protected units ----------------------------------------------------------------------------------


def test_current_and_recent_completed_units_are_protected():
    """ASM-CMP-10, -11: an uncompleted unit isn't, and doesn't use up the count."""
    events = [unit("old", 1), unit("interrupted", 2, done=False), unit("now", 3)]
    assert protected_units(events, "req:now", keep_recent=1, skip_recent=None) == {"req:now", "req:old"}
    assert protected_units(events, "req:now", keep_recent=0, skip_recent=None) == {"req:now"}


def test_skipped_units_do_not_use_up_the_count():
    """ASM-CMP-10, -12: keep 1 plus skip 2."""
    events = [unit(name, i) for i, name in enumerate(["old", "recent", "skip", "now"])]
    assert protected_units(events, "req:now", keep_recent=1, skip_recent=lambda _: 2) == {
        "req:now",
        "req:skip",
        "req:recent",
    }


@pytest.mark.parametrize(
    ("n_events", "wanted"), [(-1, {"req:now"}), (0, {"req:now"}), (99, {"req:a", "inv:i", "req:now"})]
)
def test_skip_counts_out_of_range(n_events, wanted):
    """ASM-CMP-12; events without a unit key are passed over."""
    events = [
        unit("a", 1),
        unit("", 2, invocation_id="i"),
        unit("", 3, invocation_id=""),
        unit("now", 4),
    ]
    assert protected_units(events, "req:now", keep_recent=0, skip_recent=lambda _: n_events) == wanted


def test_the_request_is_the_unit_else_the_invocation():
    """ASM-CMP-10."""
    assert [unit_key("r", "i"), unit_key("", "i"), unit_key("", "")] == ["req:r", "inv:i", ""]


# --- passes -------------------------------------------------------------------------------------------


def test_nothing_is_rewritten_with_the_switch_off():
    """ASM-CHAIN-05, ASM-CMP-01."""
    tool = compactor(
        enabled=False, tool_result_max_tokens=1, oversized_tool_result_max_tokens=1, force_clean_tool_names=["read"]
    )
    assert compacted(unit("old", 1), tool=tool) == [LONG]


def test_pass_one_replaces_what_is_over_the_limit_and_gets_smaller():
    """ASM-CMP-02 to -04, -20, -22, -30; a result shorter than its placeholder stays."""
    tool = compactor(tool_result_max_tokens=10)
    events = [unit("old", 1), unit("old", 2, "x" * 20), unit("old", 3, "x" * 10), unit("now", 4)]
    done, stats = compact_increment_events(
        events, "req:now", compactor(tool_result_max_tokens=10, keep_recent_requests=0)
    )
    assert done[0].message.content.startswith(RECOVERY_SENTENCE + "\nevent_id: e1\ntool_call_id: c1\ntool_name: read\n")
    assert [one.message.content for one in done[1:]] == ["x" * 20, "x" * 10, LONG]
    assert (done[0].message.tool_id, done[0].message.tool_name) == ("c1", "read")
    assert stats.tool_results_compacted == 1
    assert stats.estimated_tokens_saved == 2000 - len(done[0].message.content)
    assert compacted(*events, tool=tool) == [LONG, "x" * 20, "x" * 10, LONG]  # one recent request is kept


def test_pass_one_needs_a_current_unit_and_a_unit_key():
    """ASM-CMP-10 and table 6.3; pass 2 works without either."""
    tool = compactor(tool_result_max_tokens=10, keep_recent_requests=0)
    assert compacted(unit("old", 1), tool=tool, current="") == [LONG]
    assert compacted(unit("", 1, invocation_id=""), tool=tool) == [LONG]
    both = compactor(tool_result_max_tokens=10, oversized_tool_result_max_tokens=500)
    assert "characters truncated" in compacted(unit("old", 1), tool=both, current="")[0]


def test_pass_zero_replaces_by_name_whatever_the_size():
    """ASM-CMP-20, -21, -33: no hints; keep beats force; a nameless result is neither."""
    tool = compactor(force_clean_tool_names=["sh", "kept", ""], keep_tool_names=["kept"], keep_recent_requests=0)
    events = [
        event(1, result("a", "tiny", "sh"), request="old"),
        event(2, result("b", "tiny", "kept"), request="old"),
        event(3, result("c", "tiny", ""), request="old"),
        event(4, result("d", "tiny", "sh"), request="", invocation_id=""),
        event(5, result("e", "tiny", "sh")),
        event(6, result("f", "", "sh", content_parts=(ContentPart("text", "p"),)), request="old"),
    ]
    done, stats = compact_increment_events(events, "req:now", tool)
    assert [one.message.content for one in done] == [
        POLICY_PLACEHOLDER,
        "tiny",
        "tiny",
        POLICY_PLACEHOLDER,
        "tiny",
        POLICY_PLACEHOLDER,
    ]
    assert done[5].message.content_parts == ()
    assert stats.results_per_pass == (3, 0, 0)
    assert stats.estimated_tokens_saved == 0


def test_pass_two_cuts_current_results_too_but_not_those_of_session_load():
    """ASM-CMP-20, -40; parts stay, a result with parts alone stays."""
    tool = compactor(oversized_tool_result_max_tokens=300, keep_tool_names=["kept"])
    parts = (ContentPart("image", url="u"),)
    events = [
        event(1, result("a", LONG, content_parts=parts)),
        event(2, result("b", LONG, "session_load")),
        event(3, result("c", LONG, "kept")),
        event(4, result("d", "", content_parts=(ContentPart("text", LONG),))),
        event(5, result("e", RECOVERY_SENTENCE + "\nreason: x" + LONG)),
    ]
    done, stats = compact_increment_events(events, "req:now", tool)
    assert len(done[0].message.content) <= 300
    assert done[0].message.content_parts == parts
    assert [one is new for one, new in zip(events, done, strict=True)] == [False, True, True, True, True]
    assert stats.results_per_pass == (0, 0, 1)


def test_a_failing_counter_changes_nothing_but_policy():
    """ASM-CMP table 6.3, last row."""
    tool = compactor(
        FailingCounter(), tool_result_max_tokens=1, oversized_tool_result_max_tokens=1, keep_recent_requests=0
    )
    assert compacted(unit("old", 1), tool=tool) == [LONG]
    forced = compactor(FailingCounter(), force_clean_tool_names=["read"], keep_recent_requests=0)
    done, stats = compact_increment_events([unit("old", 1)], "req:now", forced)
    assert done[0].message.content == POLICY_PLACEHOLDER
    assert stats.estimated_tokens_saved == 0


def test_passes_run_in_every_timeline_mode():
    """ASM-CMP-03."""
    stored = session(event(1, user()), event(2, call("c")), event(3, result("c", LONG)))
    sent = assemble(
        stored,
        agent={"timeline_filter_mode": "request"},
        compaction={"enabled": True, "oversized_tool_result_max_tokens": 300},
    )
    assert sent.stats.results_per_pass == (0, 0, 1)
    assert sent.rewrite_at(3).by_pass == 2
    assert sent.rewrite_at(1) is None


# --- placeholders and markers -------------------------------------------------------------------------


def test_placeholders_name_what_is_known():
    """ASM-CMP-30 to -33."""
    bare = ToolResultRecoveryRef(reason="historical_compaction")
    assert bare.placeholder() == RECOVERY_SENTENCE
    ref = ToolResultRecoveryRef.of(" e ", result(" c ", name=" t "), "historical_compaction", available=True)
    assert ref.placeholder().split("\n") == [
        RECOVERY_SENTENCE,
        "event_id: e",
        "tool_call_id: c",
        "tool_name: t",
        "reason: historical_compaction",
        LOAD_INSTRUCTION,
    ]
    tail = ToolResultRecoveryRef(tool_call_id="c", reason="current_invocation_summary")
    assert tail.placeholder().startswith(RESUME_SENTENCE + "\ntool_call_id: c\nreason:")
    assert tail.placeholder().endswith(NO_RECOVERY_INSTRUCTION)


def test_placeholders_are_recognised():
    """ASM-CMP-34."""
    assert is_recovery_placeholder(f"  {RECOVERY_SENTENCE}\n")
    assert is_recovery_placeholder(RESUME_SENTENCE + "\nevent_id: e")
    assert not is_recovery_placeholder(RECOVERY_SENTENCE + " and more")


@pytest.mark.parametrize("can_load", [False, True])
@pytest.mark.parametrize("has_tool", [False, True])
def test_recovery_needs_a_service_and_a_tool(can_load, has_tool):
    """ASM-CMP-32."""
    stored = session(event(1, call("c"), request="old"), event(2, result("c", LONG), request="old"), event(3, user()))
    sent = assemble(
        stored,
        base=Request(tools=LOAD_TOOLS if has_tool else ()),
        compaction={"enabled": True, "tool_result_max_tokens": 10, "keep_recent_requests": 0},
        facts={"can_load_windows": can_load},
    )
    last = LOAD_INSTRUCTION if can_load and has_tool else NO_RECOVERY_INSTRUCTION
    assert sent.messages[1].content.endswith(last)


def test_markers():
    """ASM-CMP-36, -42: without an event id the hint isn't to load."""
    ref = ToolResultRecoveryRef("e", "c", "t", "oversized_truncation", session_load_available=True)
    assert ref.full_marker(7) == (
        "\n\n[... 7 characters truncated from tool result; event_id=e; tool_call_id=c; tool_name=t; use session_load ...]\n\n"
    )
    assert ref.compact_marker() == "\n\n[... event_id=e; tool_call_id=c; session_load]\n\n"
    no_event = ToolResultRecoveryRef("", "c", "t", "x", session_load_available=True)
    assert "re-run only safe read-only/idempotent tools" in no_event.full_marker(1)
    assert no_event.compact_marker() == "\n\n[... tool_call_id=c; compacted]\n\n"


def test_truncation_example():
    """ASM-CMP-43: 500 characters to 200 say 300 and lose 338."""
    text = "".join(chr(97 + i % 26) for i in range(500))
    cut = truncate_middle(text, 200)
    assert cut == text[:81] + plain_marker(300) + text[-81:]
    assert len(cut) == 200


def test_truncation_without_room():
    """ASM-CMP-41: no ids: a bare head; ids: the compact marker alone."""
    assert truncate_middle("01234567890123456789", 10) == "0123456789"
    ref = ToolResultRecoveryRef("e", "c")
    assert truncate_middle("x" * 500, 10, ref) == ref.compact_marker()
    assert truncate_middle("short", 10, ref) == "short"


@given(st.integers(1, 400), st.integers(1, 400), st.booleans(), st.sampled_from([0.7, 1.0, 4.0]))
def test_the_longest_cut_within_the_limit_is_taken(n_chars, max_tokens, has_ids, divisor):
    """ASM-CMP-40: the short way of measuring gives what cutting and counting gives."""

    class Plain(SimpleTokenCounter):
        """Not the built-in class itself, so its texts are built and counted."""

    message = result("c" if has_ids else "", "汉" * n_chars)
    ref = ToolResultRecoveryRef("e", "c", "t") if has_ids else ToolResultRecoveryRef()
    cuts = [
        Compactor(CompactionSettings(), TokenMemo(kind(divisor)))._largest_cut(message, max_tokens, ref)
        for kind in (SimpleTokenCounter, Plain)
    ]
    assert cuts[0] == cuts[1]
    if cuts[0] is not None:
        assert SimpleTokenCounter(divisor).count_tokens(None, cuts[0]) <= max_tokens
