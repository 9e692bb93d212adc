"""When a summary is due and by whom it's made: own summarizers, checks, contexts, windows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import pytest

import workbench as wb
from tests.seed.scenes import USER, ask, fires, prompt_of, run, runner_of, said, stored, summary_of, talk
from workbench.call import EMPTY_CONTEXT
from workbench.errors import NoSummarizerResolvedError, SummaryError
from workbench.model.windows import lookup_model_context_window, model_windows_restored, register_model_context_window
from workbench.selftest.fake_server import saying
from workbench.summary.checkers import check_event_threshold, check_time_threshold, check_token_threshold
from workbench.summary.context import context_with_run_model
from workbench.summary.dynamic import DynamicSummarizer
from workbench.summary.report import Report
from workbench.summary.summarizer import SessionSummarizer


def example_08():
    class FirstWords:
        def __init__(self):
            self.n_words = 3

        async def should_summarize(self, session):
            return len(session.events) > 1

        async def summarize(self, session, *, ctx=EMPTY_CONTEXT):
            return " ".join(session.events[0].message.content.split()[: self.n_words])

        def set_prompt(self, prompt):
            self.n_words = int(prompt)

        def set_model(self, model):
            pass

        def metadata(self):
            return {"n_words": self.n_words}

    return FirstWords()


def test_example_08_a_service_works_with_any_summarizer_of_this_form():
    """SUM-OPT-07."""

    async def main():
        summarizer = example_08()
        assert isinstance(summarizer, SessionSummarizer)
        assert isinstance(wb.Summarizer(None), SessionSummarizer)
        summarizer.set_prompt("2")
        service = wb.InMemorySessionService(summarizer=summarizer)
        session = await stored(service, said("where is order 7731"))
        await service.create_session_summary(session)
        assert session.summaries == {}
        await service.append_event(session, said("shipped", role="assistant"))
        before = list(session.events)
        await service.create_session_summary(session)
        assert await service.get_session_summary_text(session) == "where is"
        assert session.events == before

    run(main())


def example_09(summary_model):
    async_summary = object()  # the application's own key

    event_threshold = check_event_threshold(20)

    def is_due(ctx, session):
        return event_threshold(session) or ctx.value(async_summary, default=False)

    summarizer = wb.Summarizer(summary_model, checks_any_context=[is_due])
    return summarizer, async_summary


def test_example_09_a_check_reads_a_mark_of_the_application():
    """SUM-CHK-20, SUM-CHK-21."""
    summarizer, key = example_09(wb.ScriptedModel())
    marked = wb.CallContext().with_value(key, True)
    assert not fires(summarizer, *talk(20))
    assert fires(summarizer, *talk(21))
    assert fires(summarizer, *talk(1), ctx=marked)

    async def main():
        service = wb.InMemorySessionService(summarizer=summarizer)
        session = await stored(service, said("hello"))
        await service.create_session_summary(session)
        assert session.summaries == {}
        await service.create_session_summary(session, ctx=marked)
        assert session.summaries[""].summary == "SUMMARY-1"

    run(main())


def example_10(build_summarizer):
    @dataclass(frozen=True)
    class SummaryCfg:
        model_name: str
        prompt: str

    def resolve(ctx, session):
        cfg = ctx.value(SummaryCfg)
        return None if cfg is None else build_summarizer(cfg)  # None: no summary this time

    summarizer = DynamicSummarizer(resolve)

    session_service = wb.InMemorySessionService(summarizer=summarizer)
    return SummaryCfg, session_service


def test_example_10_one_service_takes_a_summarizer_per_call():
    """SUM-DYN-01, SUM-DYN-02, SUM-DYN-03."""

    def build(cfg):
        if cfg.model_name == "broken":
            raise RuntimeError("no such model")
        return wb.Summarizer(wb.ScriptedModel([f"by {cfg.model_name}"]), prompt=cfg.prompt)

    async def main():
        summary_cfg, service = example_10(build)
        session = await stored(service, said("hello"))

        def ctx(name):
            return EMPTY_CONTEXT.with_value(summary_cfg, summary_cfg(name, "{conversation_text}"))

        await service.create_session_summary(session)
        await service.create_session_summary(session, ctx=ctx("broken"))
        assert session.summaries == {}
        await service.create_session_summary(session, ctx=ctx("small"))
        assert session.summaries[""].summary == "by small"
        with pytest.raises(NoSummarizerResolvedError):
            await service.summarizer.summarize(session)
        with pytest.raises(RuntimeError, match="no such model"):
            await service.summarizer.summarize(session, ctx=ctx("broken"))
        with pytest.raises(SummaryError):
            await service.create_session_summary(session, force=True)

    run(main())


def example_11(ctx, summary_cfg, req):
    ctx = ctx.with_value(summary_cfg, summary_cfg(model_name=req.summary_model, prompt=req.summary_prompt))
    return ctx


@dataclass(frozen=True)
class Asked:
    """What a web request of the application carries."""

    summary_model: str
    summary_prompt: str


def test_example_11_the_choice_travels_with_the_run():
    """SUM-DYN-01, ASM-RUN-13."""
    built = []

    def build(cfg):
        built.append(cfg)
        return wb.Summarizer(wb.ScriptedModel(["done"]), prompt=cfg.prompt)

    async def main():
        summary_cfg, service = example_10(build)
        ctx = example_11(EMPTY_CONTEXT, summary_cfg, Asked("large", "Sum up: {conversation_text}"))
        assert EMPTY_CONTEXT.value(summary_cfg) is None
        agent = wb.LLMAgent(name="my-agent", model=wb.ScriptedModel(["hi"]))
        await ask(runner_of(agent, service), "hello", wb.RunOptions(ctx=ctx))
        assert set(built) == {summary_cfg("large", "Sum up: {conversation_text}")}

    run(main())


def example_12(summary_model, use):
    def on_report(ctx, report: Report):
        trigger_tokens = report.trigger.value
        summary_prompt_tokens = report.call.prompt_tokens
        use(trigger_tokens, summary_prompt_tokens)

    summarizer = wb.Summarizer(summary_model, context_threshold=True, report_hook=on_report)
    return summarizer


def test_example_12_a_report_keeps_the_estimate_and_the_bill_apart():
    """SUM-REP-01, SUM-REP-05, SUM-REP-07."""
    from workbench.model.types import Usage

    reported = []
    answer = wb.ScriptedAnswer(content="short", usage=Usage(prompt_tokens=5321))
    summarizer = example_12(wb.ScriptedModel([answer], context_window=10_000), lambda *n: reported.append(n))

    async def main():
        service = wb.InMemorySessionService(summarizer=summarizer)
        session = await stored(service, said("x" * 20_400))
        await service.create_session_summary(session)

    run(main())
    assert reported == [((20_400 + len("user: ")) // 4, 5321)]


def example_13(runner, api_key, api_uri, user_id, session_id, user_message):
    model = wb.OpenAIModel("my-custom-model", api_key=api_key, base_url=api_uri, context_window=204_800)

    by_instance = runner.run(user_id, session_id, user_message, wb.RunOptions(model=model))

    options = wb.RunOptions(model_name="my-custom-model", model_context_window=204_800)
    by_name = runner.run(user_id, session_id, user_message, options)
    return by_instance, by_name


class Checks:
    """Notes the window of every check."""

    def __init__(self):
        self.windows = []

    def on_check(self, check):
        self.windows.append(check.trigger.context_window)

    def on_attempt(self, attempt):
        pass


def test_example_13_the_window_comes_from_the_model_or_from_the_run(server):
    """SUM-CHK-13, ASM-RUN-12, ASM-RUN-13."""
    server.script("my-custom-model", saying("from the endpoint"))

    async def main():
        checks = Checks()
        summarizer = wb.Summarizer(wb.ScriptedModel(), context_threshold=True)
        service = wb.InMemorySessionService(summarizer=summarizer, observer=checks)
        agent = wb.LLMAgent(name="my-agent", model=wb.ScriptedModel(["own"], context_window=4096))
        runner = runner_of(agent, service, models={"my-custom-model": wb.ScriptedModel(["by name"])})
        answers = []
        for events in example_13(runner, "key-for-a-test", server.base_url, USER, "s", "hello"):
            answers += [event.message.content async for event in events if event.author == "my-agent"]
            await service.wait_for_summaries()
        assert answers == ["from the endpoint", "by name"]
        assert set(checks.windows) == {204_800}

    run(main())


def example_14():
    register_model_context_window("my-custom-model", 32_768)


def test_example_14_a_window_is_known_by_name_in_the_whole_process():
    """SUM-CHK-15, ASM-WIN-01."""
    summarizer = wb.Summarizer(wb.ScriptedModel(name="my-custom-model"), context_threshold=True)
    event = said("x" * 20_000)
    assert fires(summarizer, event), "5,000 tokens are more than half of the 8,192 of an unknown model"
    with model_windows_restored():
        example_14()
        assert lookup_model_context_window("my-custom-model") == 32_768
        assert not fires(summarizer, event)
        assert fires(summarizer, said("x" * 66_000))
        named = context_with_run_model(EMPTY_CONTEXT, model_context_window=8_192)
        assert fires(summarizer, event, ctx=named), "the run's own window counts first"
    assert lookup_model_context_window("my-custom-model") is None


def example_15(summary_model):
    # All of them have to fire.
    careful = wb.Summarizer(summary_model, checks_all=[check_event_threshold(10), check_token_threshold(2000)])

    # One of them is enough.
    eager = wb.Summarizer(
        summary_model, checks_any=[check_event_threshold(50), check_time_threshold(timedelta(minutes=10))]
    )
    return careful, eager


def test_example_15_checks_are_joined_by_and_or_by_or():
    """SUM-CHK-19."""
    careful, eager = example_15(wb.ScriptedModel())
    long = said("x" * 8_100)
    assert not fires(careful, *talk(11))
    assert not fires(careful, long)
    assert fires(careful, *talk(10), long)
    assert not fires(eager, *talk(50))
    assert fires(eager, *talk(51))
    assert fires(eager, said("hello", seconds_ago=601))


def example_18():
    def asks_for_money(session: wb.Session) -> bool:
        return any("refund" in event.message.content for event in session.events)

    return asks_for_money


def test_example_18_a_checker_is_a_function_of_the_session():
    """SUM-CHK-01, SUM-CHK-02."""
    model = wb.ScriptedModel()
    summarizer = wb.Summarizer(model, checks=[example_18()])
    assert not fires(summarizer, said("hello"))
    assert fires(summarizer, said("I want a refund."))
    assert model.requests == []
    assert summary_of(summarizer, said("I want a refund.")) == "SUMMARY-1"
    assert "refund" in prompt_of(model)
