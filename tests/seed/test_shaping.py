"""What goes into a summary and what comes out: formatters, callbacks, counters, skipped events, hooks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

import workbench as wb
from tests.seed.scenes import asks_for, fires, prompt_of, run, said, session_of, spoken, summary_of, talk
from workbench.call import EMPTY_CONTEXT
from workbench.errors import SummaryHookError
from workbench.model.types import response_of
from workbench.summary.callbacks import AfterModelResult, ModelCallbacks
from workbench.summary.hooks import PostSummaryHookContext, PreSummaryHookContext
from workbench.tokens import check_range, get_token_counter, set_token_counter, token_counter_in_force


def example_16(summary_model):
    # Cut long arguments.
    def short_call(call: wb.ToolCall) -> str:
        args = call.arguments if len(call.arguments) <= 100 else call.arguments[:100] + "...(cut)"
        return f"[Tool: {call.name}, Args: {args}]" if call.name else ""

    shortened = wb.Summarizer(summary_model, tool_call_formatter=short_call, event_threshold=20)

    # Leave results out.
    no_results = wb.Summarizer(summary_model, tool_result_formatter=lambda message: "", event_threshold=20)

    # Names of tools only.
    only_names = wb.Summarizer(
        summary_model,
        tool_call_formatter=lambda call: f"[Used tool: {call.name}]" if call.name else "",
        event_threshold=20,
    )
    return shortened, no_results, only_names


def tool_talk(arguments):
    """A question, a call, its result."""
    call = asks_for("query", arguments).tool_calls[0]
    return [
        said("how many?"),
        said("", role="assistant", tool_calls=(call,)),
        said("42 rows", role="tool", tool_id="c1", tool_name="query"),
    ]


def test_example_16_tools_are_put_into_words_as_one_likes():
    """SUM-TXT-04, SUM-TXT-05."""
    model = wb.ScriptedModel()
    events = tool_talk('{"sql": "' + "x" * 200 + '"}')
    shortened, no_results, only_names = example_16(model)
    for summarizer in (shortened, no_results, only_names, wb.Summarizer(model)):
        summary_of(summarizer, *events)
    cut, without, names, built_in = (prompt_of(model, i) for i in range(4))
    assert "[Tool: query, Args: " + events[1].message.tool_calls[0].arguments[:100] + "...(cut)]" in cut
    assert "42 rows" in cut
    assert "42 rows" not in without
    assert "[Called tool: query with args: {" in without
    assert "my-agent: [Used tool: query]\n" in names
    assert "tool: [query returned: 42 rows]" in built_in


def example_17(summary_model):
    def before_model(ctx, args):
        args.request = args.request.replace(extra_fields={"purpose": "summary"})

    def after_model(ctx, args):
        return AfterModelResult(custom_response=shouted(args.response))

    callbacks = ModelCallbacks().register_before_model(before_model).register_after_model(after_model)

    summarizer = wb.Summarizer(summary_model, model_callbacks=callbacks)
    return summarizer


def shouted(response):
    return response_of(wb.Message(role="assistant", content=response.choices[0].message.content.upper()))


def test_example_17_code_of_the_application_stands_around_the_model_call():
    """SUM-CB-01, SUM-CB-02, SUM-CB-03."""
    model = wb.ScriptedModel(["all is well"])
    assert summary_of(example_17(model), said("hello")) == "ALL IS WELL"
    assert model.requests[0].extra_fields == {"purpose": "summary"}


def example_22():
    # The built-in one.
    set_token_counter(wb.SimpleTokenCounter())

    # Or one's own.
    class CharacterCounter:
        def count_tokens(self, ctx, message):
            return len(message.content)

        def count_tokens_range(self, ctx, messages, start, end):
            check_range(messages, start, end)
            return sum(self.count_tokens(ctx, message) for message in messages[start:end])

    set_token_counter(CharacterCounter())


def test_example_22_one_counter_serves_all_checks_of_the_process():
    """SUM-TOK-01, SUM-TOK-02, SUM-TOK-03, SUM-TOK-04, SUM-TOK-06."""
    summarizer = wb.Summarizer(wb.ScriptedModel(), token_threshold=100)
    event = said("x" * 200)
    assert not fires(summarizer, event), "206 characters are 51 tokens by default"
    with token_counter_in_force(None):
        example_22()
        assert fires(summarizer, event)
        messages = [wb.Message(content="ab"), wb.Message(content="c")]
        counter = get_token_counter()
        assert counter.count_tokens_range(EMPTY_CONTEXT, messages, 0, 2) == 3
        for start, end in ((-1, 1), (0, 3), (1, 1)):
            with pytest.raises(ValueError, match="range"):
                counter.count_tokens_range(EMPTY_CONTEXT, messages, start, end)
    assert wb.SimpleTokenCounter(1.5).count_text("x" * 150) == 100
    assert wb.SimpleTokenCounter(2 / 3).count_text("x" * 100) == 150


def example_23(summary_model):
    # Always the last two.
    last_two = wb.Summarizer(summary_model, skip_recent=2, event_threshold=10)

    # What was said in the last five minutes.
    def of_five_minutes(events):
        cutoff = datetime.now(UTC) - timedelta(minutes=5)
        older = [i for i, event in enumerate(events) if event.timestamp <= cutoff]
        return len(events) - (older[-1] + 1 if older else 0)

    by_time = wb.Summarizer(summary_model, skip_recent=of_five_minutes, event_threshold=10)

    # Tool results at the end.
    def tool_results(events):
        others = [i for i, event in enumerate(events) if event.message.role != "tool"]
        return len(events) - (others[-1] + 1 if others else 0)

    no_open_round = wb.Summarizer(summary_model, skip_recent=tool_results, event_threshold=10)
    return last_two, by_time, no_open_round


def test_example_23_newest_events_stay_out_of_the_summary():
    """SUM-SEL-01, SUM-SEL-02, SUM-SEL-05."""
    model = wb.ScriptedModel()
    last_two, by_time, no_open_round = example_23(model)
    talked = [said("early", seconds_ago=400), said("later", seconds_ago=200), said("now")]
    summary_of(last_two, *talked)
    summary_of(by_time, *talked)
    results = [said(f"row {i}", role="tool", tool_id=f"c{i}", tool_name="query") for i in (1, 2)]
    summary_of(no_open_round, said("early"), results[0], said("middle"), *results)
    kept = ["early"], ["early"], ["early", "row 1", "middle"]
    for i, texts in enumerate(kept):
        left_out = {"early", "later", "now", "row 1", "middle", "row 2"} - set(texts)
        assert all(text in prompt_of(model, i) for text in texts)
        assert not any(text in prompt_of(model, i).split("<conversation>")[1] for text in left_out)
    assert fires(last_two, *talk(11)), "the number of events is counted with the skipped ones"


def example_24(note):
    def pre_summary_hook(hook: PreSummaryHookContext) -> None:
        note(hook.ctx, hook.session, hook.events, hook.text)

    return pre_summary_hook


def test_example_24_a_hook_sees_what_will_be_summarised():
    """SUM-HOOK-01."""
    seen = []
    summarizer = wb.Summarizer(wb.ScriptedModel(), pre_summary_hook=example_24(lambda *found: seen.append(found)))
    session = session_of(said("hello"))
    ctx = wb.CallContext({"request": 7})
    run(summarizer.summarize(session, ctx=ctx))
    ((seen_ctx, seen_session, events, text),) = seen
    assert seen_ctx.value("request") == 7
    assert seen_session is session
    assert events == session.events
    assert text == "user: hello"


def example_25(note):
    def post_summary_hook(hook: PostSummaryHookContext) -> None:
        note(hook.ctx, hook.session, hook.summary)

    return post_summary_hook


def test_example_25_a_hook_sees_what_the_model_wrote():
    """SUM-HOOK-06."""
    seen = []
    summarizer = wb.Summarizer(wb.ScriptedModel(["short"]), post_summary_hook=example_25(lambda *f: seen.append(f)))
    session = session_of(said("hello"))
    assert run(summarizer.summarize(session)) == "short"
    ((_, seen_session, summary),) = seen
    assert (seen_session, summary) == (session, "short")


def example_26(summary_model):
    def before(hook):
        hook.text = hook.text.replace("7731", "****")

    def after(hook):
        hook.summary = f"Summary: {hook.summary}"

    summarizer = wb.Summarizer(
        summary_model, pre_summary_hook=before, post_summary_hook=after, hook_abort_on_error=True
    )
    return summarizer


def test_example_26_hooks_change_input_and_output_or_stop_the_summary():
    """SUM-HOOK-01, SUM-HOOK-04, SUM-HOOK-06."""
    model = wb.ScriptedModel(["shipped"])
    assert summary_of(example_26(model), said("order 7731")) == "Summary: shipped"
    assert "user: order ****" in prompt_of(model)

    def fails(hook):
        raise RuntimeError("no")

    with pytest.raises(SummaryHookError, match="no"):
        summary_of(wb.Summarizer(model, pre_summary_hook=fails, hook_abort_on_error=True), said("order"))
    assert summary_of(wb.Summarizer(model, pre_summary_hook=fails), said("order")) == "shipped"
    assert spoken(model.requests[-1])[-1][0] == "user"
