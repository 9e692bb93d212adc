"""The option tables of the seed document: each row with its Python name, its default and a proof of its effect.

In: nothing. Out: `ROWS`. A row has the option's name in a program and, where it can say the same, in a
configuration file; the function below it asserts what the option does.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest

import workbench as wb
from tests.seed.scenes import (
    ask,
    asks_for,
    fires,
    prompt_of,
    run,
    runner_of,
    said,
    session_of,
    spoken,
    summary_of,
    talk,
)
from workbench.context.settings import AgentSettings, CompactionSettings, SessionSummaryInjectionMode, TailoringSettings
from workbench.errors import ConfigError, SummaryHookError
from workbench.service.settings import ServiceSettings
from workbench.settings import Settings
from workbench.summary import checkers
from workbench.summary.callbacks import BeforeModelResult, ModelCallbacks
from workbench.summary.checkers import (
    ContextThreshold,
    check_event_threshold,
    check_time_threshold,
    check_token_threshold,
)
from workbench.summary.context import context_with_cache_safe_fork_request
from workbench.summary.summarizer import SummarySettings

NO_DEFAULT = "-"
"""For what has none: functions, and rows that advise a call."""

OWNERS: dict[str, Any] = {
    "AgentSettings": AgentSettings,
    "CompactionSettings": CompactionSettings,
    "ContextThreshold": ContextThreshold,
    "InMemorySessionService": wb.InMemorySessionService,
    "Summarizer": wb.Summarizer,
    "TailoringSettings": TailoringSettings,
}
SETTINGS_BEHIND: dict[Any, type[Settings]] = {
    wb.InMemorySessionService: ServiceSettings,
    wb.Summarizer: SummarySettings,
}


@dataclass(frozen=True)
class Row:
    """One row of a table."""

    table: int
    seed_name: str
    """The seed's name of the option, or the row's subject in own words."""
    python: str
    """How a program says it."""
    default: Any
    config: str
    """Path in a configuration file; empty where a file can't say it."""
    prove: Callable[[], None]

    @property
    def stated_default(self) -> Any:
        """The default as the code has it; the option must be there."""
        match = re.match(r"(\w+)\((\w+)=", self.python)
        if match is None or match[1] not in OWNERS:
            return NO_DEFAULT
        owner, name = OWNERS[match[1]], match[2]
        parameter = inspect.signature(owner).parameters[name]
        settings = SETTINGS_BEHIND.get(owner, owner)
        fields = settings.model_fields if issubclass(settings, Settings) else {}
        return fields[name].get_default() if name in fields else parameter.default


ROWS: list[Row] = []


def row(
    table: int, seed_name: str, python: str, *, default: Any = NO_DEFAULT, config: str = ""
) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Register the decorated function as the proof of a row."""

    def register(prove: Callable[[], None]) -> Callable[[], None]:
        ROWS.append(Row(table, seed_name, python, default, config, prove))
        return prove

    return register


def summarizer(**options: Any) -> wb.Summarizer:
    return wb.Summarizer(wb.ScriptedModel(["short"]), **options)


def prompt_with(*events: wb.Event, **options: Any) -> str:
    """What the summary model is sent."""
    of = summarizer(**{"prompt": "<{conversation_text}>", **options})
    summary_of(of, *(events or [said("hello")]))
    return prompt_of(of.model)


# --- 1: thresholds --------------------------------------------------------------------------------------


@row(1, "WithEventThreshold", "Summarizer(event_threshold=)", default=None, config="trigger.event")
def event_threshold() -> None:
    assert not fires(summarizer(event_threshold=2), *talk(2))
    assert fires(summarizer(event_threshold=2), *talk(3))


@row(1, "WithTokenThreshold", "Summarizer(token_threshold=)", default=None, config="trigger.token")
def token_threshold() -> None:
    text = said("x" * 394)  # with its author 400 characters, 100 tokens
    assert not fires(summarizer(token_threshold=100), text)
    assert fires(summarizer(token_threshold=99), text)


@row(1, "WithContextThreshold", "Summarizer(context_threshold=)", default=None, config="trigger.context")
def context_threshold() -> None:
    of = wb.Summarizer(wb.ScriptedModel(context_window=6_000), context_threshold=True)
    assert not fires(of, said("x" * 11_900))
    assert fires(of, said("x" * 12_100))


@row(1, "WithTimeThreshold", "Summarizer(time_threshold=)", default=None, config="trigger.time")
def time_threshold() -> None:
    of = summarizer(time_threshold=timedelta(minutes=5))
    assert not fires(of, said("hello", seconds_ago=290))
    assert fires(of, said("hello", seconds_ago=310))


# --- 2: share of the window -----------------------------------------------------------------------------


@row(2, "WithContextThresholdRatio", "ContextThreshold(ratio=)", default=0.5, config="trigger.context.ratio")
def threshold_ratio() -> None:
    model = wb.ScriptedModel(context_window=100_000)
    text = said("x" * 100_000)  # 25,000 tokens
    assert not fires(wb.Summarizer(model, context_threshold=True), text)
    assert fires(wb.Summarizer(model, context_threshold=ContextThreshold(ratio=0.2)), text)
    for wrong in (0.0, 1.1):
        with pytest.raises(ConfigError, match="ratio"):
            ContextThreshold(ratio=wrong)


@row(
    2,
    "WithContextThresholdMinTokens",
    "ContextThreshold(min_tokens=)",
    default=2000,
    config="trigger.context.min_tokens",
)
def threshold_floor() -> None:
    model = wb.ScriptedModel(context_window=1_000_000)
    low = ContextThreshold(ratio=0.001)
    text = said("x" * 7_000)  # 1,751 tokens
    assert not fires(wb.Summarizer(model, context_threshold=low), text)
    assert fires(wb.Summarizer(model, context_threshold=low.replace(min_tokens=0)), text)


@row(
    2,
    "WithContextThresholdFallbackWindow",
    "ContextThreshold(fallback_window=)",
    default=None,
    config="trigger.context.fallback_window",
)
def threshold_fallback() -> None:
    text = said("x" * 16_500)  # 4,126 tokens, above the half of 8,192
    unknown, known = wb.ScriptedModel(), wb.ScriptedModel(context_window=20_000)
    assert fires(wb.Summarizer(unknown, context_threshold=True), text)
    assert not fires(wb.Summarizer(known, context_threshold=True), text), "the summarizer's model is the fallback"
    small = ContextThreshold(fallback_window=6_000)
    assert fires(wb.Summarizer(known, context_threshold=small), text), "a given fallback comes first"


# --- 3: combinations ------------------------------------------------------------------------------------

MANY, LONG = talk(11), [said("x" * 8_100)]
COUNT_AND_LENGTH = [check_event_threshold(10), check_token_threshold(2000)]


@row(3, "WithChecksAll", "Summarizer(checks_all=)", default=(), config="trigger.all")
def all_of() -> None:
    of = summarizer(checks_all=COUNT_AND_LENGTH)
    assert [fires(of, *MANY), fires(of, *LONG), fires(of, *MANY, *LONG)] == [False, False, True]


@row(3, "WithChecksAny", "Summarizer(checks_any=)", default=(), config="trigger.any")
def any_of() -> None:
    of = summarizer(checks_any=COUNT_AND_LENGTH)
    assert [fires(of, *talk(2)), fires(of, *MANY), fires(of, *LONG)] == [False, True, True]


def asked_by(ctx: wb.CallContext, session: wb.Session) -> bool:
    return ctx.value("who") == "app"


MARKED = wb.CallContext().with_value("who", "app")


@row(3, "WithChecksAllContext", "Summarizer(checks_all_context=)", default=())
def all_of_context() -> None:
    of = summarizer(checks_all_context=[asked_by, check_event_threshold(1)])
    assert [fires(of, *MANY), fires(of, *talk(1), ctx=MARKED), fires(of, *MANY, ctx=MARKED)] == [False, False, True]


@row(3, "WithChecksAnyContext", "Summarizer(checks_any_context=)", default=())
def any_of_context() -> None:
    of = summarizer(checks_any_context=[asked_by, check_event_threshold(10)])
    assert [fires(of, *talk(1)), fires(of, *talk(1), ctx=MARKED), fires(of, *MANY)] == [False, True, True]


# --- 4: how a summary is made ---------------------------------------------------------------------------


@row(4, "WithMaxSummaryWords", "Summarizer(max_summary_words=)", default=0, config="summarizer.max_summary_words")
def max_summary_words() -> None:
    assert "120 words" in prompt_with(prompt="", max_summary_words=120)
    assert "words" not in prompt_with(prompt="")


@row(4, "WithPrompt", "Summarizer(prompt=)", default="", config="summarizer.prompt")
def prompt() -> None:
    assert prompt_with(prompt="Sum up {conversation_text} after {previous_summary}!") == "Sum up user: hello after !"
    with pytest.raises(ConfigError, match="conversation_text"):
        summarizer(prompt="Sum up.")


@row(4, "WithSystemPrompt", "Summarizer(system_prompt=)", default="", config="summarizer.system_prompt")
def system_prompt() -> None:
    of = summarizer(system_prompt="Be faithful.")
    summary_of(of, said("hello"))
    assert spoken(of.model.requests[0])[0] == ("system", "Be faithful.")
    for name in ("conversation_text", "previous_summary"):
        with pytest.raises(ConfigError, match=name):
            summarizer(system_prompt=f"{{{name}}}")


PARENT = wb.Request(messages=(wb.Message(role="system", content="S"), wb.Message(role="user", content="hello")))


def forked(**options: Any) -> list[tuple[str, str]]:
    """The summary request when there is a request of the agent to extend."""
    of = wb.Summarizer(wb.ScriptedModel(context_window=100_000), **options)
    ctx = context_with_cache_safe_fork_request(wb.CallContext(), PARENT)
    run(of.summarize(session_of(said("hello")), ctx=ctx))
    return spoken(of.model.requests[0])


@row(
    4, "WithCacheSafeForking", "Summarizer(cache_safe_forking=)", default=False, config="summarizer.cache_safe_forking"
)
def cache_safe_forking() -> None:
    assert forked(cache_safe_forking=True)[:2] == spoken(PARENT)
    assert len(forked()) == 1


@row(
    4,
    "WithCacheSafeForkPrompt",
    "Summarizer(cache_safe_fork_prompt=)",
    default="",
    config="summarizer.cache_safe_fork_prompt",
)
def cache_safe_fork_prompt() -> None:
    words = "Now sum it up in {max_summary_words} words."
    sent = forked(cache_safe_forking=True, cache_safe_fork_prompt=words, max_summary_words=9)
    assert sent[-1] == ("user", "Now sum it up in 9 words.")
    for name in ("conversation_text", "previous_summary"):
        with pytest.raises(ConfigError, match=name):
            summarizer(cache_safe_fork_prompt=f"{{{name}}}")


@row(4, "WithSkipRecent", "Summarizer(skip_recent=)", default=None, config="summarizer.skip_recent")
def skip_recent() -> None:
    assert prompt_with(*talk(3)) == "<user: message 1\nmy-agent: message 2\nuser: message 3>"
    assert prompt_with(*talk(3), skip_recent=2) == "<user: message 1>"
    assert prompt_with(*talk(3), skip_recent=lambda events: len(events) - 1) == "<user: message 1>"


# --- 5: hooks -------------------------------------------------------------------------------------------


@row(5, "WithPreSummaryHook", "Summarizer(pre_summary_hook=)", default=None)
def pre_summary_hook() -> None:
    def hide(hook: Any) -> None:
        hook.text = hook.text.replace("hello", "***")

    assert prompt_with(pre_summary_hook=hide) == "<user: ***>"


@row(5, "WithPostSummaryHook", "Summarizer(post_summary_hook=)", default=None)
def post_summary_hook() -> None:
    def mark(hook: Any) -> None:
        hook.summary += "!"

    assert summary_of(summarizer(post_summary_hook=mark), said("hello")) == "short!"


@row(
    5,
    "WithSummaryHookAbortOnError",
    "Summarizer(hook_abort_on_error=)",
    default=False,
    config="summarizer.hook_abort_on_error",
)
def hook_abort_on_error() -> None:
    def fail(hook: Any) -> None:
        raise RuntimeError("no")

    assert summary_of(summarizer(pre_summary_hook=fail, post_summary_hook=fail), said("hello")) == "short"
    for hooks in ({"pre_summary_hook": fail}, {"post_summary_hook": fail}):
        with pytest.raises(SummaryHookError):
            summary_of(summarizer(**hooks, hook_abort_on_error=True), said("hello"))


# --- 6: formatters --------------------------------------------------------------------------------------


def tool_events() -> list[wb.Event]:
    call = asks_for("query", '{"q": 1}').tool_calls
    return [
        said("", role="assistant", tool_calls=call),
        said("42", role="tool", tool_id="c1", tool_name="query"),
    ]


@row(6, "WithToolCallFormatter", "Summarizer(tool_call_formatter=)", default=None)
def tool_call_formatter() -> None:
    built_in = prompt_with(*tool_events())
    assert built_in == '<my-agent: [Called tool: query with args: {"q": 1}]\ntool: [query returned: 42]>'
    assert prompt_with(*tool_events(), tool_call_formatter=lambda call: call.name).startswith("<my-agent: query\n")
    assert prompt_with(*tool_events(), tool_call_formatter=lambda call: "") == "<tool: [query returned: 42]>"


@row(6, "WithToolResultFormatter", "Summarizer(tool_result_formatter=)", default=None)
def tool_result_formatter() -> None:
    assert prompt_with(*tool_events(), tool_result_formatter=lambda m: m.content).endswith("\ntool: 42>")
    assert "42" not in prompt_with(*tool_events(), tool_result_formatter=lambda message: "")


# --- 7: callbacks ---------------------------------------------------------------------------------------


@row(7, "WithModelCallbacks", "Summarizer(model_callbacks=)", default=None)
def model_callbacks() -> None:
    answer = wb.Response(choices=said("from a cache", role="assistant").response.choices)
    callbacks = ModelCallbacks().register_before_model(lambda ctx, args: BeforeModelResult(custom_response=answer))
    of = summarizer(model_callbacks=callbacks)
    assert summary_of(of, said("hello")) == "from a cache"
    assert of.model.requests == []


# --- 8: checkers ----------------------------------------------------------------------------------------


@row(8, "CheckEventThreshold", "check_event_threshold(n)")
def checker_of_events() -> None:
    check = check_event_threshold(2)
    assert [check(session_of(*talk(n))) for n in (2, 3)] == [False, True]


@row(8, "CheckTimeThreshold", "check_time_threshold(interval)")
def checker_of_time() -> None:
    check = check_time_threshold(timedelta(seconds=60))
    assert [check(session_of(said("hello", seconds_ago=s))) for s in (50, 70)] == [False, True]


@row(8, "CheckTokenThreshold", "check_token_threshold(n)")
def checker_of_tokens() -> None:
    check = check_token_threshold(99)
    assert [check(session_of(said("x" * n))) for n in (390, 394)] == [False, True]


@row(8, "ChecksAll", "checks_all([...])")
def checker_of_all() -> None:
    check = checkers.checks_all(COUNT_AND_LENGTH)
    assert [check(session_of(*events)) for events in (MANY, LONG, MANY + LONG)] == [False, False, True]


@row(8, "ChecksAny", "checks_any([...])")
def checker_of_any() -> None:
    check = checkers.checks_any(COUNT_AND_LENGTH)
    assert [check(session_of(*events)) for events in (MANY, LONG, talk(2))] == [True, True, False]


# --- 9: which call for which occasion -------------------------------------------------------------------


def attempts(n_events: int, *, method: str = "", force: bool = False) -> list[tuple[bool, bool]]:
    """`(made at once, made in the end)` for a summary that is due at more than two events."""
    made = []

    async def main() -> None:
        of = wb.Summarizer(wb.ScriptedModel(), event_threshold=2)
        service = wb.InMemorySessionService(summarizer=of)
        session = await service.create_session("my-app", "u", "s")
        for event in talk(n_events):
            await service.append_event(session, event)
        await getattr(service, method)(session, force=force)
        at_once = bool(session.summaries)
        await service.wait_for_summaries()
        made.append((at_once, bool(session.summaries)))

    run(main())
    return made


@row(9, "ordinary conversation", "nothing to call: `Runner.run` enqueues")
def by_the_runner() -> None:
    service = wb.InMemorySessionService(summarizer=summarizer(event_threshold=1))
    agent = wb.LLMAgent(name="my-agent", model=wb.ScriptedModel(["hi"]))
    run(ask(runner_of(agent, service), "hello"))
    session = run(service.get_session(wb.SessionKey("my-app", "user-1", "session-1")))
    assert session.summaries["my-app"].summary == "short"


@row(9, "batches in the background", "enqueue_summary_job(session)")
def in_the_background() -> None:
    assert attempts(2, method="enqueue_summary_job") == [(False, False)]
    assert attempts(3, method="enqueue_summary_job") == [(False, True)]


@row(9, "a user asks for it", "enqueue_summary_job(session, force=True)")
def when_asked_for() -> None:
    assert attempts(1, method="enqueue_summary_job", force=True) == [(False, True)]


@row(9, "trying out", "create_session_summary(session, force=True)")
def when_trying_out() -> None:
    assert attempts(1, method="create_session_summary", force=True) == [(True, True)]


@row(9, "end of a session", "enqueue_summary_job(session, force=True)")
def at_the_end() -> None:
    async def main() -> None:
        service = wb.InMemorySessionService(summarizer=summarizer(event_threshold=100))
        session = await service.create_session("my-app", "u", "s")
        await service.append_event(session, said("hello"))
        await service.enqueue_summary_job(session, force=True)
        await service.close()
        assert session.summaries[""].summary == "short", "what is queued is made before a service closes"

    run(main())


# --- 10: the three ways to a smaller prompt -------------------------------------------------------------


def long_tool_talk(**options: Any) -> tuple[wb.Request, list[wb.Event], wb.ScriptedModel]:
    """The last request of three runs with a large tool result each, what is stored, and the summary model."""
    calls = [asks_for("fetch", call_id=f"c{i}") for i in (1, 2, 3)]
    model = wb.ScriptedModel([answer for call in calls for answer in (call, "done")], context_window=1_000_000)
    tools = [wb.FunctionTool(lambda: "x" * 8000, name="fetch")]
    agent = replace(wb.LLMAgent(name="my-agent", model=model, tools=tools), **options)
    summary_model = wb.ScriptedModel(["pages were fetched"])
    summaries = wb.Summarizer(summary_model) if agent.settings.add_session_summary else None
    service = wb.InMemorySessionService(summarizer=summaries)

    async def main() -> list[wb.Event]:
        for i in (1, 2, 3):
            await ask(runner_of(agent, service), f"page {i}")
        return await service.list_events(wb.SessionKey("my-app", "user-1", "session-1"))

    events = run(main())
    return model.requests[-1], events, summary_model


def tool_results(request: wb.Request) -> list[int]:
    return [len(message.content) for message in request.messages if message.role == "tool"]


@row(10, "summary", "AgentSettings(add_session_summary=)", default=False, config="agent.add_session_summary")
def by_summary() -> None:
    request, events, summary_model = long_tool_talk(settings=AgentSettings(add_session_summary=True))
    assert "pages were fetched" in request.messages[0].content
    assert tool_results(request) == [8002], "of the history only what came after the summary"
    assert len(events) == 12
    assert summary_model.requests != []


@row(10, "context compaction", "CompactionSettings(enabled=)", default=False, config="compaction.enabled")
def by_compaction() -> None:
    request, events, summary_model = long_tool_talk(compaction=CompactionSettings(enabled=True))
    first, second, third = tool_results(request)
    assert first < 1500
    assert (second, third) == (8002, 8002), "the last request but one is recent"
    assert len(request.messages) == 11, "no message is dropped"
    assert [len(e.message.content) for e in events if e.message.role == "tool"] == [8002] * 3
    assert summary_model.requests == []


@row(10, "token tailoring", "TailoringSettings(enabled=)", default=False, config="tailoring.enabled")
def by_tailoring() -> None:
    request, events, _ = long_tool_talk(tailoring=TailoringSettings(enabled=True, max_input_tokens=5000))
    assert len(request.messages) < 11, "whole rounds are dropped"
    assert tool_results(request)[-1] == 8002
    assert len(events) == 12


# --- 11: places of the summary --------------------------------------------------------------------------


def second_request(mode: str) -> list[tuple[str, str]]:
    model = wb.ScriptedModel(["hi"])
    settings = AgentSettings(add_session_summary=True, summary_injection_mode=mode)
    agent = wb.LLMAgent(name="my-agent", model=model, instruction="Be brief.", settings=settings)
    service = wb.InMemorySessionService(summarizer=summarizer())

    async def main() -> None:
        for text in ("one", "two"):
            await ask(runner_of(agent, service), text)

    run(main())
    return spoken(model.requests[1])


@row(
    11,
    "SessionSummaryInjectionSystem",
    "AgentSettings(summary_injection_mode=SYSTEM)",
    default="system",
    config="agent.summary_injection_mode",
)
def in_the_system_message() -> None:
    (_, system), user = second_request(SessionSummaryInjectionMode.SYSTEM)
    assert system.startswith("Be brief.\n\n")
    assert "short" in system
    assert user == ("user", "two")


@row(
    11,
    "SessionSummaryInjectionUser",
    "AgentSettings(summary_injection_mode=USER)",
    default="system",
    config="agent.summary_injection_mode",
)
def in_the_user_message() -> None:
    system, (role, text) = second_request(SessionSummaryInjectionMode.USER)
    assert system == ("system", "Be brief.")
    assert role == "user"
    assert "short" in text
    assert text.endswith("two")


# --- 12: advice -----------------------------------------------------------------------------------------


def n_rounds_sent(settings: AgentSettings, n_rounds: int) -> int:
    model = wb.ScriptedModel(["hi"])
    runner = runner_of(wb.LLMAgent(name="my-agent", model=model, settings=settings), wb.InMemorySessionService())

    async def main() -> None:
        for i in range(n_rounds):
            await ask(runner, f"question {i}")

    run(main())
    return sum(role == "user" for role, _ in spoken(model.requests[-1]))


@row(12, "long sessions", "AgentSettings(add_session_summary=True)", default=False, config="agent.add_session_summary")
def for_long_sessions() -> None:
    assert "short" in second_request("system")[0][1]


@row(12, "short sessions", "AgentSettings(max_history_runs=10)", default=0, config="agent.max_history_runs")
def for_short_sessions() -> None:
    assert n_rounds_sent(AgentSettings(max_history_runs=10), 12) == 10
    assert n_rounds_sent(AgentSettings(), 12) == 12


@row(12, "trying out", "AgentSettings(max_history_runs=5)", default=0, config="agent.max_history_runs")
def for_trying_out() -> None:
    assert n_rounds_sent(AgentSettings(max_history_runs=5), 7) == 5


@row(
    12,
    "many sessions at once",
    "InMemorySessionService(async_summary_num=)",
    default=3,
    config="service.async_summary_num",
)
def for_many_sessions() -> None:
    """With one worker two slow summaries follow each other; with more they may run side by side."""

    def most_at_once(n_workers: int) -> int:
        running: list[int] = [0, 0]

        async def main() -> None:
            gate = asyncio.Event()

            async def slow(ctx: wb.CallContext, session: wb.Session) -> bool:
                running[0] += 1
                running[1] = max(running)
                await gate.wait()
                running[0] -= 1
                return False

            of = wb.Summarizer(wb.ScriptedModel(), checks_all_context=[slow])
            async with wb.InMemorySessionService(summarizer=of, async_summary_num=n_workers) as service:
                for i in range(8):
                    session = await service.create_session("my-app", "u", f"s{i}")
                    await service.append_event(session, said("hello"))
                    await service.enqueue_summary_job(session)
                for _ in range(20):
                    await asyncio.sleep(0)
                gate.set()

        run(main())
        return running[1]

    assert most_at_once(1) == 1
    assert most_at_once(4) > 1
