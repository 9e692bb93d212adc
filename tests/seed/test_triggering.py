"""Summaries within a run, in the background and by hand."""

from __future__ import annotations

from dataclasses import replace

import workbench as wb
from tests.seed.scenes import ask, asks_for, run, runner_of, stored, talk, with_tools
from workbench.context.settings import AgentSettings
from workbench.session.types import SUMMARY_FILTER_KEY_ALL_CONTENTS


class Watch:
    """Notes by which way each check and each attempt came."""

    def __init__(self):
        self.checks = []
        self.attempts = []

    def on_check(self, check):
        self.checks.append((check.path, check.trigger.fired))

    def on_attempt(self, attempt):
        self.attempts.append((attempt.path, attempt.status, attempt.report.trigger.name))


def example_27(model):
    agent = wb.LLMAgent(
        name="my-agent",
        model=model,
        settings=AgentSettings(add_session_summary=True, sync_summary_intra_run=True),
    )
    return agent


def test_example_27_only_the_final_answer_enqueues_and_thresholds_hold():
    """ASM-INTRA-01, ASM-INTRA-02, ASM-INTRA-03, SUM-RNR-05."""

    def watched(event_threshold, *, sync=True):
        calls = [asks_for("look_up", call_id=f"c{i}") for i in (1, 2)]
        agent = with_tools(example_27(wb.ScriptedModel([*calls, "Shipped."])), look_up)
        agent = replace(agent, settings=agent.settings.replace(sync_summary_intra_run=sync))
        watch = Watch()
        summarizer = wb.Summarizer(wb.ScriptedModel(), event_threshold=event_threshold)
        service = wb.InMemorySessionService(summarizer=summarizer, observer=watch)
        run(ask(runner_of(agent, service), "Where is order 7731?"))
        return watch

    always = watched(0)
    assert always.checks == [("intra_run", True), ("intra_run", True), ("async", True)]
    assert [path for path, _, _ in always.attempts if path != "copy"] == ["intra_run", "intra_run", "async"]
    never = watched(100)
    assert [path for path, _ in never.checks][:2] == ["intra_run", "intra_run"]
    assert never.attempts == [], "no threshold is passed over"
    assert {path for path, _ in watched(0, sync=False).checks} == {"async"}


def look_up():
    """Look an order up."""
    return "shipped"


async def example_28(session_service, session):
    # In the background, if a check fires.
    await session_service.enqueue_summary_job(session, SUMMARY_FILTER_KEY_ALL_CONTENTS)

    # Here and now, if a check fires.
    await session_service.create_session_summary(session, SUMMARY_FILTER_KEY_ALL_CONTENTS)

    # In the background, whatever the checks say.
    await session_service.enqueue_summary_job(session, SUMMARY_FILTER_KEY_ALL_CONTENTS, force=True)

    # Here and now, whatever the checks say.
    await session_service.create_session_summary(session, SUMMARY_FILTER_KEY_ALL_CONTENTS, force=True)


def test_example_28_force_passes_over_all_checks():
    """SUM-SVC-03, SUM-SVC-04, SUM-ASY-03, SUM-REP-02."""

    async def main():
        watch = Watch()
        summarizer = wb.Summarizer(wb.ScriptedModel(), event_threshold=100)
        async with wb.InMemorySessionService(summarizer=summarizer, observer=watch) as service:
            session = await stored(service, *talk(3))
            await example_28(service, session)
            await service.wait_for_summaries()
            assert ("manual", False) in watch.checks
            assert not any(fired for _, fired in watch.checks), "three events are too few"
            assert sorted(watch.attempts) == [("async", "written", "force"), ("manual", "written", "force")]
        # A closed service has no workers: the caller's own call does the work.
        await service.enqueue_summary_job(session, force=True)
        assert watch.attempts[-1] == ("sync", "written", "force")

    run(main())
