"""Budgets, estimates, cuts, and both policies for a source that is too large."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.summary.events import agent, call, calls, event, result, run, user
from workbench.call import EMPTY_CONTEXT
from workbench.errors import SummaryInputTooLargeError
from workbench.model.scripted import ScriptedModel
from workbench.model.types import Choice, Message, Request, Response, ToolCall, ToolSpec
from workbench.model.windows import model_windows_restored, register_model_context_window
from workbench.session.types import Event
from workbench.summary.attempt import is_context_length_error
from workbench.summary.budget import (
    Estimator,
    Fitter,
    Source,
    SourceText,
    SourceTooLargeError,
    cut_source,
    declaration_text,
    head_and_tail,
    input_budget,
    prefix_ends,
)
from workbench.summary.fork import fork_request
from workbench.summary.text import conversation_text
from workbench.tokens import SimpleTokenCounter
from workbench.wording import CONVERSATION_CUT, OMITTED_ARGUMENTS, PREVIOUS_SUMMARY_CUT

ONE = SimpleTokenCounter(1.0)
"""One character, one token."""
PROMPT = "P<>C<>"


def standalone(text: SourceText) -> Request:
    return Request(messages=(Message(role="user", content=f"P<{text.previous}>C<{text.conversation}>"),))


def fitter(policy="bounded", counter=ONE) -> Fitter:
    return Fitter(Estimator(counter, EMPTY_CONTEXT), policy, standalone)


def tokens(request: Request) -> int:
    return ONE.count_tokens_range(EMPTY_CONTEXT, request.messages, 0, len(request.messages))


# --- budget and estimate ------------------------------------------------------------------------------------


def test_budget_is_a_share_of_the_window_or_the_models_own():
    """SUM-FIT-02."""
    request = Request()
    assert input_budget(ScriptedModel(context_window=309), request) == 216
    assert input_budget(ScriptedModel(name="nobody"), request) == int(0.7 * 8192)
    assert input_budget(ScriptedModel(context_window=1000, input_token_budget=220), request) == 220
    assert input_budget(ScriptedModel(context_window=1000, input_token_budget=9999), request) == 700
    assert input_budget(ScriptedModel(context_window=1), request) == 1
    with model_windows_restored():
        register_model_context_window("acme", 100)
        assert input_budget(ScriptedModel(name="acme-1"), request) == 70


def test_the_model_is_asked_about_the_request_without_tools():
    """SUM-FIT-02."""
    asked = []

    class Asked(ScriptedModel):
        def input_token_budget(self, request):
            asked.append(request.tools)
            return 0

    assert input_budget(Asked(context_window=10), Request(tools=(ToolSpec("t"),))) == 7
    assert asked == [()]


def test_estimate_adds_declarations_in_name_order():
    """SUM-FIT-04."""
    counted = []

    class Watched(SimpleTokenCounter):
        def count_tokens(self, ctx, message):
            counted.append((message.role, message.content))
            return super().count_tokens(ctx, message)

    tools = (ToolSpec("b", declaration_json="{B}"), ToolSpec("a", declaration_json="{AA}"))
    request = Request(messages=(Message(role="user", content="hello"),), tools=tools)
    assert run(Estimator(Watched(1.0), EMPTY_CONTEXT).request(request)) == 5 + 4 + 3
    assert counted == [("user", "hello"), ("system", "{AA}"), ("system", "{B}")]
    assert run(Estimator(ONE, EMPTY_CONTEXT).request(Request())) == 0


def test_a_coroutine_counter_estimates_too():
    """SUM-TOK-01, SUM-FIT-04."""

    class Later(SimpleTokenCounter):
        async def count_tokens(self, ctx, message):
            return 3

        async def count_tokens_range(self, ctx, messages, start, end):
            return 10

    request = Request(messages=(Message(content="x"),), tools=(ToolSpec("t"),))
    assert run(Estimator(Later(), EMPTY_CONTEXT).request(request)) == 13


def test_a_reports_estimate_survives_a_failing_range_call():
    """SUM-REP-05, E32."""

    class NoRange(SimpleTokenCounter):
        def count_tokens_range(self, ctx, messages, start, end):
            raise RuntimeError("no")

    class Nothing(NoRange):
        def count_tokens(self, ctx, message):
            raise RuntimeError("no")

    messages = (Message(content="x" * 8), Message(content="x" * 8))
    assert run(Estimator(NoRange(), EMPTY_CONTEXT).messages_or_sum(messages)) == 4
    assert run(Estimator(Nothing(), EMPTY_CONTEXT).messages_or_sum(messages)) == 0


def test_a_declaration_is_the_sources_own_text_or_built():
    """SUM-FIT-04."""
    assert declaration_text(ToolSpec("t", declaration_json="{own}")) == "{own}"
    assert declaration_text(ToolSpec("t", "does")) == '{"name":"t","description":"does","inputSchema":null}'
    built = declaration_text(ToolSpec("t", "", parameters_json='{"type": "object"}', output_json="broken {"))
    assert built == '{"name":"t","description":"","inputSchema":{"type":"object"},"outputSchema":"broken {"}'


# --- cutting --------------------------------------------------------------------------------------------------


ALPHABET = "abcdefghijklmnopqrstuvwxyz"


@pytest.mark.parametrize("length", range(13))
def test_head_and_tail_keep_exactly_the_characters_asked_for(length):
    """SUM-FIT-08."""
    text = ALPHABET[:length]
    for n_chars in range(-1, length + 2):
        cut = head_and_tail(text, n_chars, marker="M")
        if n_chars >= length:
            assert cut == text
        elif n_chars <= 0:
            assert cut == ""
        else:
            n_tail = n_chars // 2
            assert cut == text[: n_chars - n_tail] + "\nM\n" + text[length - n_tail :]
            assert len(cut) == n_chars + len("\nM\n")
    assert head_and_tail("abcdef", 3, marker="M") == "ab\nM\nf"


@given(st.integers(0, 26), st.integers(0, 26), st.integers(1, 60))
def test_both_payloads_are_cut_in_proportion(n_conversation, n_previous, n_chars):
    """SUM-FIT-13."""
    source = SourceText(ALPHABET[:n_conversation], ALPHABET[:n_previous].upper())
    cut = cut_source(source, n_chars)
    if n_chars >= source.n_chars:
        assert cut is source
        return
    kept_previous = max(1, n_chars * n_previous // source.n_chars) if n_previous and n_chars > 1 else 0
    if not n_conversation:
        kept_previous = n_chars
    assert cut.previous == head_and_tail(source.previous, kept_previous, marker=PREVIOUS_SUMMARY_CUT)
    assert cut.conversation == head_and_tail(source.conversation, n_chars - kept_previous, marker=CONVERSATION_CUT)


@pytest.mark.parametrize(
    ("source", "n_chars", "kept"),
    [
        (SourceText("c" * 30, "p" * 10), 8, (6, 2)),
        (SourceText("c" * 99, "p"), 2, (1, 1)),
        (SourceText("c" * 99, "p" * 99), 1, (1, 0)),
        (SourceText("", "p" * 99), 5, (0, 5)),
        (SourceText("c" * 99, ""), 5, (5, 0)),
    ],
)
def test_some_splits_by_hand(source, n_chars, kept):
    """SUM-FIT-13."""
    cut = cut_source(source, n_chars)
    conversation = cut.conversation.replace(f"\n{CONVERSATION_CUT}\n", "")
    previous = cut.previous.replace(f"\n{PREVIOUS_SUMMARY_CUT}\n", "")
    assert (len(conversation), len(previous)) == kept


def test_the_markers_differ():
    """SUM-FIT-08."""
    cut = cut_source(SourceText("c" * 50, "p" * 50), 10)
    assert CONVERSATION_CUT in cut.conversation
    assert PREVIOUS_SUMMARY_CUT in cut.previous
    assert CONVERSATION_CUT != PREVIOUS_SUMMARY_CUT


# --- policy "bounded" -----------------------------------------------------------------------------------------


def test_a_request_at_the_budget_fits_and_lacks_nothing():
    """SUM-FIT-03."""
    source = SourceText("c" * 20, "p" * 4)
    fitted = run(fitter().fit_standalone(source, len(PROMPT) + 24))
    assert fitted.request == standalone(source)
    assert fitted.dropped_chars == 0


@given(st.integers(0, 400), st.integers(0, 400), st.integers(1, 500))
@example(50, 0, len(PROMPT))
@example(0, 50, len(PROMPT) + 1)
def test_the_largest_cut_that_fits_is_taken(n_conversation, n_previous, budget):
    """SUM-FIT-12, SUM-ERR-07, E26."""
    source = SourceText("c" * n_conversation, "p" * n_previous)
    if tokens(standalone(source)) <= budget:
        assert run(fitter().fit_standalone(source, budget)).request == standalone(source)
        return
    sizes = [n for n in range(1, source.n_chars + 1) if tokens(standalone(cut_source(source, n))) <= budget]
    if budget <= len(PROMPT) or not sizes:
        why = "prompt alone" if budget <= len(PROMPT) else "not one character"
        with pytest.raises(SummaryInputTooLargeError, match=why):
            run(fitter().fit_standalone(source, budget))
        return
    fitted = run(fitter().fit_standalone(source, budget))
    assert fitted.request == standalone(cut_source(source, max(sizes)))
    assert fitted.dropped_chars == source.n_chars - max(sizes)
    assert tokens(fitted.request) <= budget


def test_own_budget_errors_are_no_context_length_errors():
    """SUM-CALL-04: a retry must not follow from our own words."""
    for policy, budget in (("bounded", 3), ("bounded", 8), ("lossless", 3)):
        with pytest.raises(SummaryInputTooLargeError) as caught:
            run(fitter(policy).fit_standalone(SourceText("c" * 99), budget))
        assert not is_context_length_error(caught.value, None)


def tool_parent(n_arguments: int, n_result: int) -> Request:
    return Request(
        messages=(
            Message(role="system", content="S"),
            Message(role="user", content="u" * 20),
            Message(role="assistant", tool_calls=(ToolCall("c1", "t", "k" * n_arguments),)),
            Message(role="tool", content="r" * n_result, tool_id="c1", tool_name="t"),
        ),
        tools=(ToolSpec("t", declaration_json="d" * 300),),
    )


def test_tools_go_first_and_only_they_if_that_is_enough():
    """SUM-FIT-10, SUM-FIT-20, E21."""
    parent = tool_parent(5, 5)
    for policy in ("bounded", "lossless"):
        fork = fork_request(parent, "I")
        fitted = run(fitter(policy).fit_fork(fork, 100))
        assert fitted is not None
        assert fitted.request == fork.replace(tools=())
        assert run(fitter(policy).fit_fork(fork, 1000)).request is fork


def test_payloads_go_largest_saving_first_until_it_fits():
    """SUM-FIT-07, SUM-FIT-10, E20."""
    parent = tool_parent(200, 900)
    fork = fork_request(parent, "I")
    fitted = run(fitter().fit_fork(fork, 400))
    assert fitted is not None
    assert len(fitted.request.messages[3].content) < 200
    assert fitted.request.messages[2] is fork.messages[2]
    assert (fitted.dropped_chars, fitted.dropped_rounds) == (900, 0)
    both = run(fitter().fit_fork(fork, 300))
    assert both is not None
    assert both.request.messages[2].tool_calls[0].arguments == OMITTED_ARGUMENTS
    assert both.request.messages[1] is parent.messages[1]
    assert both.dropped_chars == 1100
    assert run(fitter().fit_fork(fork, 50)) is None
    assert parent == tool_parent(200, 900)


def test_omission_never_makes_a_message_larger():
    """SUM-FIT-07: a short payload is no candidate."""
    fork = fork_request(tool_parent(3, 3), "I")
    assert run(fitter().fit_fork(fork, 10)) is None
    assert run(fitter()._omissions(fork.messages)) == []


E24_PARENT = Request(
    messages=(
        Message(role="system", content="S"),
        Message(role="user", content="u" * 500),
        Message(role="assistant", tool_calls=(ToolCall("c1", "t", "k" * 300),)),
        Message(role="tool", content="r", tool_id="c1", tool_name="t"),
        Message(role="user", content="now"),
        Message(role="assistant", content="a"),
    )
)


def test_bounded_drops_the_oldest_round_whole():
    """SUM-FIT-10, SUM-FIT-11, E24."""
    fitted = run(fitter().fit_fork(fork_request(E24_PARENT, "I"), 200))
    assert fitted is not None
    assert [m.role for m in fitted.request.messages] == ["system", "user", "assistant", "user"]
    assert (fitted.dropped_rounds, fitted.dropped_chars) == (1, 500 + 300 + 1)


def test_lossless_drops_no_turn():
    """SUM-FIT-20, E25."""
    assert run(fitter("lossless").fit_fork(fork_request(E24_PARENT, "I"), 200)) is None
    fitted = run(fitter("lossless").fit_fork(fork_request(E24_PARENT, "I"), 620))
    assert fitted is not None
    assert len(fitted.request.messages) == 7
    assert fitted.request.messages[2].tool_calls[0].arguments == OMITTED_ARGUMENTS


def test_a_failing_counter_fails_the_fit():
    """SUM-FIT-04."""

    class Failing(SimpleTokenCounter):
        def count_tokens_range(self, ctx, messages, start, end):
            raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        run(fitter(counter=Failing()).fit_standalone(SourceText("c"), 100))


# --- policy "lossless" ----------------------------------------------------------------------------------------


@given(st.integers(0, 60), st.integers(0, 400), st.integers(1, 300))
def test_lossless_cuts_the_previous_summary_only(n_conversation, n_previous, budget):
    """SUM-FIT-21."""
    source = SourceText("c" * n_conversation, "p" * n_previous)
    if len(PROMPT) + n_conversation > budget:
        with pytest.raises(SourceTooLargeError):
            run(fitter("lossless").fit_standalone(source, budget))
        return
    fitted = run(fitter("lossless").fit_standalone(source, budget))
    assert f"C<{source.conversation}>" in fitted.request.messages[0].content
    sizes = [
        n
        for n in range(n_previous + 1)
        if tokens(standalone(source._replace(previous=head_and_tail(source.previous, n, marker=PREVIOUS_SUMMARY_CUT))))
        <= budget
    ]
    assert fitted.dropped_chars == n_previous - max(sizes)


def prefix_source(events: list[Event], previous: str = "") -> Source:
    texts = [conversation_text([e]) for e in events]
    return Source(SourceText("\n".join(t for t in texts if t), previous), events[-1], events, texts, may_shorten=True)


def test_the_longest_prefix_that_fits_moves_the_boundary_to_its_end():
    """SUM-FIT-22, SUM-FIT-24."""
    events = [(user if i % 2 else agent)(f"m{i}", id=f"e{i}", at=i) for i in range(1, 7)]
    source = prefix_source(events)
    budget = len(PROMPT) + len(conversation_text(events[:4])) + 3
    fitted = run(fitter("lossless").fit_prefix(source, budget))
    assert fitted is not None
    assert fitted.request == standalone(SourceText(conversation_text(events[:4])))
    assert source.boundary_event is events[3]
    assert source.text.conversation == conversation_text(events[:4])
    assert (len(source.events), len(source.event_texts)) == (4, 4)


def test_no_prefix_is_tried_when_the_shortest_does_not_fit():
    """SUM-FIT-24."""
    events = [user("u" * 500, id="e1", at=1), agent("a", id="e2", at=2), user("q", id="e3", at=3)]
    source = prefix_source(events)
    assert run(fitter("lossless").fit_prefix(source, 100)) is None
    assert run(fitter("lossless").fit_prefix(prefix_source([user("only", id="e1", at=1)]), 100)) is None
    assert source.boundary_event is events[-1]


def ends(*events: Event) -> list[int]:
    closing = [*events, user("last", id="z", at=99)]
    return prefix_ends(closing, [conversation_text([e]) for e in closing])


def test_a_prefix_may_end_behind_a_complete_answer_only():
    """SUM-FIT-23."""
    answer = agent("a", id="a", at=2)
    assert ends(user("q", id="q", at=1), answer) == [2]
    assert ends(answer.replace(id="")) == []
    assert ends(answer.replace(time_ns=0)) == []
    assert ends(answer.replace(author="user")) == []
    assert ends(answer.replace(author="system")) == []
    assert ends(event(Message(role="system", content="s"), id="s", at=1)) == []
    assert ends(answer.replace(response=Response(choices=(Choice(Message(content="a")),), is_partial=True))) == []
    assert ends(Event(id="n", time_ns=1)) == []


def test_a_tool_round_stays_whole():
    """SUM-FIT-23."""
    asked = calls(call("c1"), call("c2"), id="c", at=1)
    first, second = result("r1", call_id="c1", id="r1", at=2), result("r2", call_id="c2", id="r2", at=3)
    assert ends(asked, first, second) == [3]
    assert ends(asked, first) == []


def test_behind_an_ambiguous_call_nothing_is_safe():
    """SUM-FIT-23, E33."""
    done = [calls(call("c1"), id="c", at=1), result("r", id="r", at=2)]
    assert ends(*done, agent("a", id="a", at=3)) == [2, 3]
    assert ends(*done, calls(call("c1"), id="d", at=3), result("r", id="s", at=4), agent("a", id="a", at=5)) == [2]
    assert ends(*done, calls(call(""), id="d", at=3), result("r", call_id="", id="s", at=4)) == [2]
    assert ends(calls(call("x"), call("x"), id="d", at=3), result("r", call_id="x", id="s", at=4)) == []


def test_chunks_of_one_response_stay_together():
    """SUM-FIT-23, E33."""

    def chunk(event_id: str, response_id: str) -> Event:
        one = agent(event_id, id=event_id, at=1)
        assert one.response is not None
        return one.replace(response=Response(id=response_id, choices=one.response.choices))

    assert ends(chunk("a", "r1"), chunk("b", "r1"), chunk("c", "")) == [2, 3]


def test_a_longer_prefix_must_add_text():
    """SUM-FIT-23."""
    empty = result(" ", call_id="x", id="e", at=2)
    assert ends(empty, agent("a", id="a", at=1), empty, agent("b", id="b", at=3)) == [2, 4]
