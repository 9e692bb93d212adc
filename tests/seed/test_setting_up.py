"""Summarizer, service, agent and runner as the seed document sets them up, and its whole example."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import workbench as wb
from tests.seed.scenes import (
    SESSION,
    USER,
    ask,
    asks_for,
    fires,
    prompt_of,
    run,
    runner_of,
    said,
    spoken,
    stored,
    summary_of,
    talk,
    with_tools,
)
from workbench.context.settings import AgentSettings
from workbench.selftest.fake_server import saying
from workbench.summary.checkers import check_event_threshold, check_time_threshold, check_token_threshold


def example_01():
    summary_model = wb.OpenAIModel("gpt-4", api_key="your-api-key")

    summarizer = wb.Summarizer(
        summary_model,
        checks_any=[  # one that fires is enough
            check_event_threshold(20),
            check_token_threshold(4000),
            check_time_threshold(timedelta(minutes=5)),
        ],
        max_summary_words=200,
    )
    return summarizer


def test_example_01_any_of_three_checks_fires():
    """SUM-CHK-08, SUM-CHK-09, SUM-CHK-17, SUM-CHK-19, SUM-OPT-01."""
    summarizer = example_01()
    assert summarizer.metadata()["model_name"] == "gpt-4"
    assert not fires(summarizer, *talk(20))
    assert fires(summarizer, *talk(21))
    assert not fires(summarizer, said("x" * 15_000))
    assert fires(summarizer, said("x" * 16_100))
    assert not fires(summarizer, said("hello", seconds_ago=290))
    assert fires(summarizer, said("hello", seconds_ago=310))
    scripted = wb.ScriptedModel()
    summarizer.set_model(scripted)
    summary_of(summarizer, said("hello"))
    assert "200 words" in prompt_of(scripted)


def example_02(summarizer):
    session_service = wb.InMemorySessionService(
        summarizer=summarizer,
        async_summary_num=2,
        summary_queue_size=100,
        summary_job_timeout=timedelta(seconds=60),
    )
    return session_service


def test_example_02_a_service_summarises_in_the_background():
    """SUM-ASY-01, SUM-ASY-02."""

    async def main():
        async with example_02(wb.Summarizer(wb.ScriptedModel(["they met"]))) as service:
            settings = service.settings
            assert (settings.async_summary_num, settings.summary_queue_size) == (2, 100)
            assert settings.summary_job_timeout_s == 60
            session = await stored(service, *talk(2))
            await service.enqueue_summary_job(session)
            assert session.summaries == {}
            await service.wait_for_summaries()
            assert await service.get_session_summary_text(session) == "they met"

    run(main())


def example_03(summary_model, session_service, user_id, session_id, user_message):
    llm_agent = wb.LLMAgent(
        name="my-agent",
        model=summary_model,
        settings=AgentSettings(add_session_summary=True, max_history_runs=10),
    )

    runner = wb.Runner(app_name="my-agent", agent=llm_agent, session_service=session_service)

    events = runner.run(user_id, session_id, user_message)
    return events


def test_example_03_the_second_run_gets_the_summary_of_the_first():
    """ASM-INJ-01, SUM-RNR-01."""

    async def main():
        model = wb.ScriptedModel(["Shipped.", "Bye."])
        service = wb.InMemorySessionService(summarizer=wb.Summarizer(wb.ScriptedModel(["order 7731 was shipped"])))
        authors = []
        for question in ("Where is order 7731?", "Thanks."):
            authors += [event.author async for event in example_03(model, service, USER, SESSION, question)]
            await service.wait_for_summaries()
        assert authors == ["user", "my-agent"] * 2
        (system, summary), current = spoken(model.requests[1])
        assert system == "system"
        assert "order 7731 was shipped" in summary
        assert current == ("user", "Thanks.")

    run(main())


def example_04(summary_model):
    llm_agent = wb.LLMAgent(
        name="my-agent",
        model=summary_model,
        settings=AgentSettings(add_session_summary=True, sync_summary_intra_run=True, max_history_runs=10),
    )
    return llm_agent


def test_example_04_the_next_call_of_the_same_run_sees_the_newest_summary():
    """ASM-INTRA-01."""

    async def main():
        model = wb.ScriptedModel([asks_for("look_up"), "Shipped."])
        agent = with_tools(example_04(model), look_up)
        service = wb.InMemorySessionService(summarizer=wb.Summarizer(wb.ScriptedModel(["order 7731 was looked up"])))
        assert await ask(runner_of(agent, service), "Where is order 7731?") == "Shipped."
        first, second = model.requests
        assert spoken(first) == [("user", "Where is order 7731?")]
        assert "order 7731 was looked up" in second.messages[0].content

    run(main())


def look_up():
    """Look an order up."""
    return "shipped"


# --- the whole example ----------------------------------------------------------------------------------


def example_46(base_url):
    async def main():
        # One model for the conversation and for summaries.
        llm = wb.OpenAIModel("gpt-4", api_key="your-api-key", base_url=base_url)

        summarizer = wb.Summarizer(
            llm,
            max_summary_words=200,
            checks_any=[
                check_event_threshold(20),
                check_token_threshold(4000),
                check_time_threshold(timedelta(minutes=5)),
            ],
        )

        session_service = wb.InMemorySessionService(
            summarizer=summarizer,
            async_summary_num=2,
            summary_queue_size=100,
            summary_job_timeout=timedelta(seconds=60),
        )

        agent = wb.LLMAgent(
            name="my-agent", model=llm, settings=AgentSettings(add_session_summary=True, max_history_runs=10)
        )

        runner = wb.Runner(app_name="my-app", agent=agent, session_service=session_service)

        async for event in runner.run("user-7", "session-7", "What is a compiler?"):
            print(event.author, event.message.content)
        return session_service

    return asyncio.run(main())


def test_example_46_a_whole_program_talks_and_keeps_its_session(server, capsys):
    """SUM-RNR-01, ASM-RUN-01."""
    server.script("gpt-4", saying("It translates programs."))
    service = example_46(server.base_url)
    assert capsys.readouterr().out == "user What is a compiler?\nmy-agent It translates programs.\n"
    (request,) = server.received
    assert request.headers["authorization"] == "Bearer your-api-key"
    session = run(service.get_session(wb.SessionKey("my-app", "user-7", "session-7")))
    assert [event.message.content for event in session.events] == ["What is a compiler?", "It translates programs."]
    assert session.summaries == {}, "two events are below every threshold"
    assert fires(service.summarizer, *talk(21))
