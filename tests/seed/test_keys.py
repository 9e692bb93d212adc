"""Summaries of kinds of events: reading them, filter keys, which of them are made."""

from __future__ import annotations

import workbench as wb
from tests.seed.scenes import USER, ask, run, runner_of, said, spoken, stored
from workbench.session.types import SUMMARY_FILTER_KEY_ALL_CONTENTS


async def example_40(session_service, session):
    summary_text = await session_service.get_session_summary_text(session)
    if summary_text is not None:
        print(f"summary: {summary_text}")

    user_summary = await session_service.get_session_summary_text(session, filter_key="user-messages")
    if user_summary is not None:
        print(f"of what the user said: {user_summary}")


def test_example_40_a_missing_branch_falls_back_to_the_whole_session(capsys):
    """SUM-GET-01, SUM-GET-02, SUM-GET-03, SUM-GET-04."""

    async def main():
        service = wb.InMemorySessionService(summarizer=wb.Summarizer(wb.ScriptedModel(["whole", "branch"])))
        session = await stored(service, said("hello", key="user-messages"))
        await example_40(service, session)
        assert capsys.readouterr().out == ""
        await service.create_session_summary(session)
        await example_40(service, session)
        assert capsys.readouterr().out == "summary: whole\nof what the user said: whole\n"
        await service.create_session_summary(session, "user-messages")
        await example_40(service, session)
        assert capsys.readouterr().out == "summary: whole\nof what the user said: branch\n"
        del session.summaries[""]
        other = wb.InMemorySessionService()
        assert await other.get_session_summary_text(session, "unknown") == "branch", "better any than none"

    run(main())


def example_41():
    async def classify(context, proceed):
        kinds = {"user": "user-messages", "tool": "tool-calls"}
        kind = kinds.get(context.event.author, "misc")
        context.event = context.event.replace(filter_key=f"my-app/{kind}")  # always behind the application's name
        await proceed()

    session_service = wb.InMemorySessionService(append_event_hooks=[classify])
    return session_service


def test_example_41_a_hook_sorts_events_by_author():
    """SUM-SVC-05, SUM-KEY-03."""

    async def main():
        service = example_41()
        session = await stored(service, said("q"), said("r", role="tool", tool_id="c"), said("a", role="assistant"))
        assert [event.filter_key for event in session.events] == [
            "my-app/user-messages",
            "my-app/tool-calls",
            "my-app/misc",
        ]
        assert await service.list_events(session.key) == session.events

    run(main())


def example_42(event):
    right = event.replace(filter_key="my-app/user-messages")

    wrong = event.replace(filter_key="user-messages")  # no run of my-app will see it
    return right, wrong


def test_example_42_a_key_without_the_applications_name_is_filtered_out():
    """SUM-KEY-02, ASM-EVT-06."""
    right, wrong = example_42(said("hello"))

    async def main():
        model = wb.ScriptedModel(["hi"])
        service = wb.InMemorySessionService()
        for content, event in (("seen", right), ("lost", wrong)):
            response = said(content).response
            session = await service.get_session(wb.SessionKey("my-app", USER, "session-1"))
            if session is None:
                session = await stored(service)
            await service.append_event(session, event.replace(id=content, response=response))
        await ask(runner_of(wb.LLMAgent(name="my-agent", model=model), service), "now")
        assert [content for _, content in spoken(model.requests[0])] == ["seen", "now"]

    run(main())


async def example_43(session_service, session):
    await session_service.create_session_summary(session, "my-app/user-messages")

    await session_service.create_session_summary(session, "my-app/tool-calls")

    user_summary = await session_service.get_session_summary_text(session, filter_key="my-app/user-messages")
    return user_summary


def test_example_43_each_kind_of_event_has_its_own_summary():
    """SUM-KEY-01, SUM-CORE-02, SUM-GET-01."""

    async def main():
        model = wb.ScriptedModel(["what the user said", "what tools did"])
        service = wb.InMemorySessionService(summarizer=wb.Summarizer(model, prompt="<{conversation_text}>"))
        asked = said("how many?", key="my-app/user-messages")
        session = await stored(service, asked, said("42", role="tool", tool_id="c", key="my-app/tool-calls"))
        assert await example_43(service, session) == "what the user said"
        assert await service.get_session_summary_text(session, filter_key="my-app/tool-calls") == "what tools did"
        prompts = [request.messages[-1].content for request in model.requests]
        assert prompts == ["<user: how many?>", "<tool: [tool returned: 42]>"]
        assert sorted(session.summaries) == ["my-app/tool-calls", "my-app/user-messages"]

    run(main())


def example_44(summarizer):
    session_service = wb.InMemorySessionService(
        summarizer=summarizer,
        summary_filter_allowlist=["my-app/user-messages", "my-app/tool-calls"],
        cascade_full_session_summary=False,
    )
    return session_service


async def keys_after(service, *keys, enqueued):
    """Keys that have a summary after one job for each of `enqueued`."""
    async with service:
        session = await stored(service, *(said(f"about {key}", key=key) for key in keys))
        for key in enqueued:
            await service.enqueue_summary_job(session, key)
            await service.wait_for_summaries()
        return sorted(session.summaries)


def summarizer_of_tests():
    return wb.Summarizer(wb.ScriptedModel())


def test_example_44_only_listed_branches_are_summarised():
    """SUM-CAS-02, SUM-CAS-03, SUM-CAS-04."""

    async def main():
        keys = ("my-app/user-messages", "my-app/tool-calls", "my-app/misc")
        service = example_44(summarizer_of_tests())
        assert await keys_after(service, *keys, enqueued=keys) == sorted(keys[:2])
        whole = SUMMARY_FILTER_KEY_ALL_CONTENTS
        assert await keys_after(example_44(summarizer_of_tests()), *keys, enqueued=[whole]) == [whole]
        unlimited = wb.InMemorySessionService(summarizer=summarizer_of_tests())
        assert await keys_after(unlimited, *keys, enqueued=keys) == sorted([whole, *keys])

    run(main())


def example_45(summarizer):
    session_service = wb.InMemorySessionService(
        summarizer=summarizer,
        summary_filter_allowlist=[""],
    )
    return session_service


def test_example_45_an_empty_list_leaves_the_whole_session_only():
    """SUM-CAS-02, SUM-CAS-03, SUM-CAS-04."""

    async def main():
        keys = ("my-app/tool", "my-app/misc")
        assert await keys_after(example_45(summarizer_of_tests()), *keys, enqueued=keys) == [""]
        empty = wb.InMemorySessionService(summarizer=summarizer_of_tests(), summary_filter_allowlist=[])
        assert await keys_after(empty, *keys, enqueued=keys) == [""]
        nothing = wb.InMemorySessionService(
            summarizer=summarizer_of_tests(), summary_filter_allowlist=[], cascade_full_session_summary=False
        )
        assert await keys_after(nothing, *keys, enqueued=keys) == []

    run(main())


def test_a_list_of_branches_goes_by_levels_not_by_letters():
    """SUM-CAS-03."""

    async def main(listed, key):
        service = wb.InMemorySessionService(
            summarizer=summarizer_of_tests(), summary_filter_allowlist=[listed], cascade_full_session_summary=False
        )
        return await keys_after(service, key, enqueued=[key]) == [key]

    assert run(main("my-app/tool", "my-app/tool"))
    assert run(main("my-app/tool", "my-app/tool/search"))
    assert run(main("my-app/tool/search", "my-app/tool"))
    assert not run(main("my-app/tool", "my-app/toolbox"))
    assert not run(main("my-app/tool", "other-app/tool"))
