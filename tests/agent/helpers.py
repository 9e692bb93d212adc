"""Agents, tools and runs for agent tests."""

from __future__ import annotations

from typing import Any

from tests.service.helpers import service_of
from workbench.agent.agent import LLMAgent
from workbench.agent.runner import Runner, RunOptions
from workbench.context.settings import AgentSettings, CompactionSettings, TailoringSettings
from workbench.model.scripted import ScriptedAnswer, ScriptedModel
from workbench.model.types import ToolCall
from workbench.service.service import SessionService
from workbench.session.types import Event, SessionKey

KEY = SessionKey("app", "user", "s")


def calls(*names: str, text: str = "", first_id: int = 1) -> ScriptedAnswer:
    """An answer that asks for tools."""
    tool_calls = tuple(ToolCall(id=f"t{i}", name=name, arguments="{}") for i, name in enumerate(names, first_id))
    return ScriptedAnswer(content=text, tool_calls=tool_calls)


def agent_of(
    model: ScriptedModel, *, settings: Any = None, compaction: Any = None, tailoring: Any = None, **kwargs: Any
) -> LLMAgent:
    return LLMAgent(
        name="agent",
        model=model,
        settings=AgentSettings(**(settings or {})),
        compaction=CompactionSettings(**(compaction or {})),
        tailoring=TailoringSettings(**(tailoring or {})),
        **kwargs,
    )


def runner_of(agent: LLMAgent, service: SessionService | None = None, **kwargs: Any) -> Runner:
    return Runner(app_name="app", agent=agent, session_service=service or service_of(), **kwargs)


async def run(runner: Runner, message: Any, **options: Any) -> list[Event]:
    return [event async for event in runner.run("user", "s", message, RunOptions(**options))]


class Recorder(SessionService):
    """A service that notes which summary calls are made."""

    calls: list[tuple[str, str, str]]

    async def create_session_summary(self, session: Any, filter_key: str = "", **kwargs: Any) -> None:
        self.calls.append(("create", filter_key, session.events[-1].message.content))
        await super().create_session_summary(session, filter_key, **kwargs)

    async def enqueue_summary_job(self, session: Any, filter_key: str = "", **kwargs: Any) -> None:
        self.calls.append(("enqueue", filter_key, session.events[-1].message.content))
        await super().enqueue_summary_job(session, filter_key, **kwargs)


def recorder(model: Any = None, **kwargs: Any) -> Recorder:
    service = service_of(model, **kwargs)
    service.__class__ = Recorder
    assert isinstance(service, Recorder)
    service.calls = []
    return service
