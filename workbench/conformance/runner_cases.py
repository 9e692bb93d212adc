"""End-to-end cases: runner, agent and in-memory service together, and which summary calls they make."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from workbench.agent.agent import LLMAgent
from workbench.agent.runner import Runner, RunOptions
from workbench.agent.sub_agents import AgentTool
from workbench.call import EMPTY_CONTEXT, CallContext
from workbench.clock import FixedClock
from workbench.conformance import Run
from workbench.conformance.service_cases import ScenarioModel
from workbench.conformance.shapes import (
    event_from,
    message_to,
    model_from,
    request_to,
    summaries_to,
    time_from,
)
from workbench.conformance.stores import new_store
from workbench.conformance.summary_cases import Watch, report_to, summarizer_from, without_wall_clock
from workbench.context.recall import OVERVIEWS
from workbench.context.settings import AgentSettings, CompactionSettings
from workbench.errors import WorkbenchError
from workbench.model.scripted import ScriptedModel
from workbench.model.types import ToolSpec
from workbench.profiles import Profile
from workbench.service.service import AppendEventContext, SessionService
from workbench.session.types import Event, Session, SessionKey
from workbench.summary.context import cache_safe_fork_request_from_context

Json = Any

CREATED = time_from("2026-01-01T00:00:00Z")


def _settings_from(case: Json) -> tuple[AgentSettings, CompactionSettings, Any]:
    """Options of a case, out-of-range values mapped as the reference maps them (ASM-CHAIN-07)."""
    agent: dict[str, Any] = {
        name: case[name]
        for name in ("add_session_summary", "sync_summary_intra_run", "enable_on_demand_session")
        if name in case
    }
    if case.get("summary_injection_mode") in ("system", "user"):
        agent["summary_injection_mode"] = case["summary_injection_mode"]
    agent["max_history_runs"] = max(case.get("max_history_runs", 0), 0)
    compaction: dict[str, Any] = {"enabled": bool(case.get("enable_context_compaction", False))}
    ratio = case.get("context_compaction_threshold_ratio")
    if ratio is not None and 0 < ratio <= 1:
        compaction["threshold_ratio"] = float(ratio)
    for name in ("keep_recent_requests", "tool_result_max_tokens", "oversized_tool_result_max_tokens"):
        if case.get(name) is not None:
            compaction[name] = max(case[name], 0)
    prefix = case.get("summary_formatter_prefix")
    formatter = None if prefix is None else (lambda text: prefix + text)
    return AgentSettings(**agent), CompactionSettings(**compaction), formatter


class ScriptedTool:
    """A tool of a case: its results in order, the last one repeating."""

    def __init__(self, raw: Json) -> None:
        self.spec = ToolSpec(name=raw["name"], description=raw.get("description", ""))
        self.skip_summarization = raw.get("skip_summarization", False)
        self._results = raw.get("results") or []
        self._fails = raw.get("fails", False)
        self._calls = 0

    async def call(self, ctx: CallContext, arguments: str) -> Any:
        if self._fails:
            raise RuntimeError("tool failed")
        result = self._results[min(self._calls, len(self._results) - 1)] if self._results else ""
        self._calls += 1
        return result


class WatchedService(SessionService):
    """A service that writes down which summary calls are made, and after which event."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.calls: list[Json] = []

    def _note(self, method: str, session: Session | None, filter_key: str, force: bool, ctx: CallContext) -> None:
        assert session is not None
        last = session.events[-1]
        message = last.message
        self.calls.append(
            {
                "method": method,
                "filter_key": filter_key,
                "force": force,
                "has_parent_request": cache_safe_fork_request_from_context(ctx) is not None,
                "last_stored_event": {
                    "author": last.author,
                    "content": message.content,
                    "n_tool_calls": len(message.tool_calls),
                    "role": message.role,
                    "tool_id": message.tool_id,
                },
            }
        )

    async def create_session_summary(
        self, session: Session | None, filter_key: str = "", *, force: bool = False, ctx: CallContext = EMPTY_CONTEXT
    ) -> None:
        self._note("create", session, filter_key, force, ctx)
        await super().create_session_summary(session, filter_key, force=force, ctx=ctx)

    async def enqueue_summary_job(
        self, session: Session | None, filter_key: str = "", *, force: bool = False, ctx: CallContext = EMPTY_CONTEXT
    ) -> None:
        self._note("enqueue", session, filter_key, force, ctx)
        await super().enqueue_summary_job(session, filter_key, force=force, ctx=ctx)


class RunnerScenario:
    """One case: an agent, perhaps a sub-agent, a service, and runs one after the other."""

    def __init__(self, case: Json, profile: Profile) -> None:
        self.case = case
        self.profile = profile
        self.watch = Watch()
        self.store = new_store(event_limit=1000)
        self.summary_model = ScenarioModel(case) if "summarizer" in case else None
        summarizer = None
        if self.summary_model is not None:
            summarizer = summarizer_from(case["summarizer"], profile, self.watch, model=self.summary_model)
        self.service = WatchedService(
            self.store,
            summarizer=summarizer,
            append_event_hooks=self._hooks(),
            profile=profile,
            supports_windows=case.get("backend", "window_only") in ("window_only", "search_and_window"),
            supports_search=case.get("backend", "window_only") in ("search_only", "search_and_window"),
        )
        self.model = model_from(case["agent_model"])
        self.sub_model: ScriptedModel | None = None
        self.agent = self._agent()
        self.runner = Runner(
            app_name=case["app_name"],
            agent=self.agent,
            session_service=self.service,
            profile=profile,
        )
        self.key = SessionKey(case["app_name"], "user-1", "sess-1")

    def _hooks(self) -> list[Any]:
        key = self.case.get("append_hook_filter_key")
        if not key:
            return []

        async def set_key(context: AppendEventContext, following: Any) -> None:
            context.event = context.event.replace(filter_key=key)
            await following()

        return [set_key]

    def _agent(self) -> LLMAgent:
        case = self.case
        settings, compaction, formatter = _settings_from(case)
        tools: list[Any] = [ScriptedTool(raw) for raw in case.get("tools") or ()]
        sub_agents: list[LLMAgent] = []
        if "sub_agent" in case:
            raw = case["sub_agent"]
            self.sub_model = model_from(raw["agent_model"])
            assert self.sub_model is not None
            sub = LLMAgent(
                name=raw["name"], model=self.sub_model, instruction=raw["instruction"], description=raw["name"]
            )
            if raw["as"] == "tool":
                tools.append(AgentTool(sub))
            else:
                sub_agents.append(sub)
        assert self.model is not None
        return LLMAgent(
            name=case["agent_name"],
            model=self.model,
            instruction=case.get("instruction", ""),
            global_instruction=case.get("global_instruction", ""),
            tools=tools,
            settings=settings,
            compaction=compaction,
            summary_formatter=formatter,
            sub_agents=sub_agents,
        )

    async def run(self) -> Json:
        creator = SessionService(self.store, clock=FixedClock(CREATED))
        session = await creator.create_session(self.key.app_name, self.key.user_id, self.key.session_id)
        for raw in self.case.get("seed_events") or ():
            await creator.append_event(session, event_from(raw))
        runs = [await self._one_run(raw) for raw in self.case["runs"]]
        await self.service.close()
        return runs

    async def _one_run(self, raw: Json) -> Json:
        assert self.model is not None
        seen, sub_seen = len(self.model.requests), len(self.sub_model.requests) if self.sub_model else 0
        options = RunOptions(model_context_window=raw.get("run_model_context_window", 0))
        error = None
        try:
            async for event in self.runner.run(self.key.user_id, self.key.session_id, raw["message"], options):
                if event.response is not None and event.response.error is not None:
                    error = event.response.error.message
        except WorkbenchError as failure:
            error = str(failure)
        await self.service.wait_for_summaries()
        session = await self.service.get_session(self.key)
        assert session is not None
        produced = {
            "error": error,
            "agent_model_requests": [request_to(request) for request in self.model.requests[seen:]],
            "summaries": summaries_to(session.summaries),
            "stored_events": [_stored(event) for event in await self.service.list_events(self.key)],
            "summary_model_calls_so_far": self.summary_model.calls if self.summary_model else 0,
        }
        if self.sub_model is not None:
            produced["sub_agent_model_requests"] = [
                request_to(request) for request in self.sub_model.requests[sub_seen:]
            ]
        return produced


def _stored(event: Event) -> Json:
    raw: Json = {
        "author": event.author,
        "filter_key": event.filter_key,
        "branch": event.branch,
        "has_request_id": bool(event.request_id),
    }
    if event.response is not None and event.response.choices:
        raw["message"] = message_to(event.message)
    return raw


def _mask_overview(value: Json, overviews: Sequence[str]) -> Json:
    if isinstance(value, str):
        for text in overviews:
            value = value.replace(text, "<ON-DEMAND-OVERVIEW>")
        return value
    if isinstance(value, list):
        return [_mask_overview(item, overviews) for item in value]
    if isinstance(value, dict):
        return {key: _mask_overview(item, overviews) for key, item in value.items()}
    return value


def _runner_flow(case: Json, profile: Profile) -> Json:
    async def main() -> Json:
        scenario = RunnerScenario(case, profile)
        produced: Json = {"runs": await scenario.run()}
        if scenario.summary_model is not None:
            produced["summary_model_requests"] = [request_to(r) for r in scenario.summary_model.requests]
            produced["reports"] = [
                {**report_to(report), "trigger": without_wall_clock(report_to(report)["trigger"])}
                for report in scenario.watch.reports
            ]
        return _mask_overview(produced, OVERVIEWS)

    return asyncio.run(main())


def _runner_enqueue(case: Json, profile: Profile) -> Json:
    async def main() -> Json:
        scenario = RunnerScenario(case, profile)
        runs = await scenario.run()
        return {
            "summary_api_calls": scenario.service.calls,
            "n_agent_model_requests": [len(run["agent_model_requests"]) for run in runs],
            "run_errors": [run["error"] for run in runs],
            "stored_events": runs[-1]["stored_events"],
            "sub_agent_model_requests": [run.get("sub_agent_model_requests", []) for run in runs],
        }

    return asyncio.run(main())


def _as_recorded(expected: Json, produced: Json) -> Json:
    """Top-level entries that the recorder left out are left out; so are those of each run."""
    fitted = {key: value for key, value in produced.items() if key in expected}
    if "runs" in fitted:
        fitted["runs"] = [
            {key: value for key, value in run.items() if key in wanted}
            for run, wanted in zip(produced["runs"], expected["runs"], strict=False)
        ]
    return fitted


RUNS = {
    "runner_flow": Run(_runner_flow, fit=_as_recorded),
    "runner_enqueue": Run(_runner_enqueue, fit=_as_recorded),
}
