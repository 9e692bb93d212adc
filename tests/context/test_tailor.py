"""Token tailoring: budget, strategies, the smallest context, validation."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.context.build import assemble, call, event, result, say, session, summary, user
from workbench.context.counting import TokenMemo
from workbench.context.settings import TailoringSettings
from workbench.context.tailor import (
    STRATEGIES,
    input_token_budget,
    strategy_named,
    tailor_assembly,
    tool_schema_tokens,
    validate_messages,
    window_for_tailoring,
)
from workbench.errors import ConfigError
from workbench.model.types import ContentPart, GenerationConfig, Message, Request, ToolSpec
from workbench.tokens import SimpleTokenCounter

SYSTEM = Message(role="system", content="s" * 7)
ONE = SimpleTokenCounter(1.0)


def budget(window, *, config=None, tools=(), name="", **settings):
    request = Request(tools=tools, generation_config=config or GenerationConfig())
    return input_token_budget(TailoringSettings(**settings), request, window=window, model_name=name)


def rounds(n, size=2):
    """`n` rounds of two messages, `size` tokens together."""
    return [message for i in range(n) for message in (user(str(i)), say("x" * (size - 1)))]


def tailored(messages, max_tokens, name="middle_out", counter=ONE):
    return strategy_named(name, counter).tailor(messages, max_tokens)


@pytest.mark.parametrize(
    ("window", "wanted"),
    [(128_000, 112_640), (131_072, 115_405), (8192, 4813), (4096, 1127), (2048, 0), (1000, 0)],
)
def test_the_budget_of_a_window(window, wanted):
    """ASM-TLR-02, -03."""
    assert budget(window) == wanted


def test_the_output_reserve_follows_the_request():
    """ASM-TLR-02, -05: a model's cap limits it, less than 1 counts as unset."""
    assert budget(4096, config=GenerationConfig(max_tokens=65536)) == 0
    assert budget(131_072, config=GenerationConfig(max_tokens=65536), name="gpt-4o") == 131_072 - 16_384 - 512 - 13_107
    assert budget(8192, config=GenerationConfig(max_tokens=0)) == 4813
    assert budget(32_768, config=GenerationConfig(thinking_tokens=4096)) == 32_768 - 4096 - 512 - 3276


def test_an_explicit_budget_is_capped_and_ignores_tools():
    """ASM-TLR-02."""
    tools = (ToolSpec("t", "d" * 400, parameters_json="{}"),)
    assert budget(4096, max_input_tokens=8192, tools=tools) == 1127
    assert budget(8192, tools=tools) == 4813 - tool_schema_tokens(tools)
    assert tool_schema_tokens(()) == 0


def test_which_window_counts():
    """ASM-TLR-04 (DA5)."""
    assert window_for_tailoring("gpt-4", 0) == 8192
    assert window_for_tailoring("gpt-4", 100) == 100
    assert window_for_tailoring("nobody-knows", 0) == 128_000
    assert window_for_tailoring("gpt-4", 100, run_window=50) == 50


def test_middle_out_drops_from_the_middle():
    """ASM-TLR-08, -09: head 7 and six rounds of 2, budget 15 drops rounds 2 and 3."""
    sent = tailored([SYSTEM, *rounds(6), user("")], 15)
    assert sent.n_rounds_dropped == 2
    kept = [message.content for message in tailored([SYSTEM, *rounds(6)], 15).messages if message.role == "user"]
    assert kept == ["0", "1", "4", "5"]


@pytest.mark.parametrize(("name", "kept"), [("head_out", ["2", "3", "q"]), ("tail_out", ["0", "1", "q"])])
def test_the_other_strategies(name, kept):
    """ASM-TLR-08."""
    sent = tailored([*rounds(4), user("q")], 5, name)
    assert [message.content for message in sent.messages if message.role == "user"] == kept


def test_middle_out_order_of_seven():
    """ASM-TLR-09: 3, 2, 4, 1, then the outer ones; 6 stays."""
    messages = rounds(7)
    gone: list[str] = []
    for max_tokens in range(13, 1, -2):
        sent = tailored(messages, max_tokens)
        left = {message.content for message in sent.messages if message.role == "user"}
        gone += [str(i) for i in range(7) if str(i) not in left and str(i) not in gone]
    assert gone == ["3", "2", "4", "1", "5", "0"]


def test_head_and_pairs_survive_and_stray_messages_go():
    """ASM-TLR-07, -08: what stands between head and first round is dropped."""
    messages = [SYSTEM, say("stray"), *rounds(3, 30), user("q"), call("c"), result("c", "r")]
    sent = tailored(messages, 50)
    assert [message.role for message in sent.messages] == ["system", "user", "assistant", "tool"]
    assert sent.kept == (0, 8, 9, 10)


def test_without_an_assistant_every_user_message_is_a_round():
    """ASM-TLR-07."""
    assert [one.content for one in tailored([user("a"), user("b"), user("c")], 2, "head_out").messages] == ["b", "c"]
    joined = [user("a"), user("b"), say("x"), user("c")]
    assert [one.content for one in tailored(joined, 2, "head_out").messages] == ["c"]


def test_the_smallest_context_comes_with_its_overflow():
    """ASM-TLR-10, -11: system messages are never sacrificed, also at budget 0."""
    messages = [SYSTEM, *rounds(1), user("now"), call("c"), result("c", "r" * 99)]
    sent = tailored(messages, 10)
    assert [message.role for message in sent.messages] == ["system", "user", "assistant", "tool"]
    assert (sent.overflow.tokens, sent.overflow.max_tokens) == (sent.tokens, 10)
    assert sent.overflow.messages == sent.messages
    none = tailored([SYSTEM, *rounds(1), user("now")], 0)
    assert [message.content for message in none.messages] == ["sssssss", "now"]
    assert none.overflow is not None


def test_a_last_round_too_big_is_cut_to_its_latest_group():
    """ASM-TLR-10."""
    messages = [SYSTEM, user("long" * 9), say("x" * 30), Message(role="system", content="m"), say("y"), user("q")]
    assert [message.content for message in tailored(messages, 20).messages] == ["sssssss", "q"]


def test_messages_that_fit_are_validated_all_the_same():
    """ASM-TLR-05, -20: a leading tool message goes, although all fits."""
    sent = tailored([result("c"), user("q"), say("a")], 1000)
    assert [message.role for message in sent.messages] == ["user"]
    assert sent.kept == (1,)
    assert sent.n_rounds_dropped == 0


def test_the_validator():
    """ASM-TLR-20."""
    messages = [
        SYSTEM,
        say("lead"),
        Message(role="narrator", content="x"),
        user(""),
        Message(role="user", content_parts=(ContentPart("image"),)),
        call("c"),
        result("c"),
        say("end"),
        Message(role="system", content="t"),
    ]
    assert [(one.role, one.content) for one in validate_messages(messages)] == [
        ("system", "sssssss"),
        ("user", " "),
        ("assistant", " "),
        ("tool", "r"),
    ]


def test_an_empty_result_stays_behind_its_call():
    """ASM-TLR-08, -20, WB-RPL-18: without it the request would have a call that nobody answered."""
    sent = validate_messages([user("q"), call("c"), result("c", "")])
    assert [(one.role, one.content) for one in sent] == [("user", "q"), ("assistant", " "), ("tool", " ")]
    assert validate_messages([user("q"), Message(role="tool")]) == (user("q"),)


def test_nothing_left_means_the_original():
    """ASM-TLR-12, -13: without any round the head alone would be empty."""
    sent = assemble(session(event(1, say("only"))), message=Message())
    kept = tailor_assembly(sent, strategy_named("middle_out", ONE), 3)
    assert kept.kept_original
    assert kept.messages == sent.messages
    assert kept.kept == (0, 1)
    assert strategy_named("middle_out", ONE).tailor([SYSTEM], 1).messages == ()


def test_a_failing_counter_is_replaced_per_message():
    """ASM-TLR-13."""

    class Moody(SimpleTokenCounter):
        def count_tokens(self, ctx, message):
            if message.role == "assistant":
                raise RuntimeError("no")
            return super().count_tokens(ctx, message)

    assert tailored([user("abcd"), say("abcdefgh"), user("q")], 100, counter=Moody(1.0)).tokens_before == 4 + 2 + 1


def test_an_unknown_strategy_is_named():
    """ASM-CHAIN-07."""
    with pytest.raises(ConfigError, match="middle_out"):
        strategy_named("middle_in")


def test_a_user_mode_summary_can_go_and_a_system_one_stays():
    """ASM-TLR-15."""
    events = [
        one
        for i in range(4)
        for one in (event(2 * i, user("u" * 9), request=f"r{i}"), event(2 * i + 1, say(), request=f"r{i}"))
    ]
    stored = session(*events, app=summary(-1))
    stored.summaries["app"] = summary(1)
    for mode, stays in (("system", True), ("user", False)):
        sent = assemble(
            stored,
            agent={"add_session_summary": True, "summary_injection_mode": mode},
            summary_formatter=lambda text: "[SUM]",
        )
        out = tailor_assembly(sent, strategy_named("head_out", ONE), 12)
        assert any("[SUM]" in message.content for message in out.messages) is stays


# --- against the plain loop ---------------------------------------------------------------------------


def loop_oracle(messages, max_tokens, name):
    """ASM-TLR-07 to -11 as they are written, one round after the other."""
    count = lambda part: sum(ONE.count_tokens(None, message) for message in part)  # noqa: E731
    if count(messages) <= max_tokens:
        return validate_messages(messages)
    n_head = next((i for i, message in enumerate(messages) if message.role != "system"), len(messages))
    body = messages[n_head:]
    has_assistant = any(message.role == "assistant" for message in body)
    parts, before = [], ""
    for message in body:
        if message.role == "user" and (not has_assistant or before != "user"):
            parts.append([])
        if parts:
            parts[-1].append(message)
        before = before if message.role == "system" else message.role
    if not parts:
        return validate_messages(messages[:n_head])
    older, last = parts[:-1], parts[-1]
    flat = lambda: messages[:n_head] + [one for part in [*older, last] for one in part]  # noqa: E731
    while older and count(flat()) > max_tokens:
        older.pop({"middle_out": len(older) // 2, "head_out": 0, "tail_out": -1}[name])
    valid = list(validate_messages(flat()))
    if count(valid) <= max_tokens and max_tokens > 0:
        return tuple(valid)
    n_head = next((i for i, message in enumerate(valid) if message.role != "system"), len(valid))
    end = len(valid)
    while end > n_head and valid[end - 1].role in ("system", "assistant"):
        end -= 1
    start = end - 1
    if end > n_head and valid[start].role == "tool":
        while valid[start].role != "user":
            start -= 1
    return validate_messages(valid[:n_head] + valid[start:end]) if end > n_head else ()


MESSAGES = st.lists(
    st.tuples(st.sampled_from(["system", "user", "assistant", "tool", ""]), st.integers(0, 6)), max_size=24
).map(lambda pairs: [Message(role=role, content="x" * n, tool_id="c" if role == "tool" else "") for role, n in pairs])


@given(MESSAGES, st.integers(-1, 60), st.sampled_from(sorted(STRATEGIES)))
def test_the_closed_form_drops_what_the_loop_drops(messages, max_tokens, name):
    """ASM-TLR-08, -09."""
    assert tailored(messages, max_tokens, name).messages == loop_oracle(messages, max_tokens, name)


@given(MESSAGES, st.integers(0, 60), st.sampled_from(sorted(STRATEGIES)))
def test_the_budget_is_kept_or_the_overflow_says_so(messages, max_tokens, name):
    """ASM-TLR-11, ASM-CACHE-06; the kept indices name the sources."""
    sent = tailored(messages, max_tokens, name)
    total = sum(ONE.count_tokens(None, message) for message in sent.messages)
    assert sent.tokens == total
    assert total <= max_tokens or sent.overflow is not None
    assert len(sent.kept) == len(sent.messages)
    for index, message in zip(sent.kept, sent.messages, strict=True):
        assert messages[index].role == message.role
        assert messages[index].content in (message.content, "")
    assert tailored(messages, max_tokens, name).messages == sent.messages


@given(MESSAGES, st.integers(0, 60), st.sampled_from(sorted(STRATEGIES)))
def test_tailoring_knows_whether_it_changed_anything(messages, max_tokens, name):
    """ASM-VIEW-02: only a change unbinds the view."""
    sent = tailored(messages, max_tokens, name)
    assert sent.is_unchanged == (list(sent.messages) == messages)


def test_each_message_is_counted_once():
    """ASM-TLR-05."""

    class Counting(SimpleTokenCounter):
        calls = 0

        def count_tokens(self, ctx, message):
            type(self).calls += 1
            return super().count_tokens(ctx, message)

    memo = TokenMemo(Counting(1.0))
    strategy = strategy_named("middle_out", memo)
    messages = rounds(50)
    for max_tokens in (10, 20, 30):
        strategy.tailor(messages, max_tokens)
    assert Counting.calls == 100
