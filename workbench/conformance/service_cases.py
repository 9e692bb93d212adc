"""Cases of the session service: policy, summaries step by step, reports."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from workbench.call import EMPTY_CONTEXT, CallContext
from workbench.clock import FixedClock, SystemClock
from workbench.conformance import Run
from workbench.conformance.shapes import (
    event_from,
    model_from,
    request_from,
    summaries_from,
    summaries_to,
    time_from,
)
from workbench.conformance.stores import new_store
from workbench.conformance.summary_cases import Watch, report_to, summarizer_from, without_wall_clock
from workbench.errors import WorkbenchError
from workbench.model.scripted import ScriptedModel
from workbench.model.types import Message, Request, Response, response_of
from workbench.profiles import Profile
from workbench.service.service import SessionService
from workbench.service.settings import ServiceSettings
from workbench.service.targets import cleaned_allowlist, is_allowed, summary_targets
from workbench.session.types import Session, SessionKey
from workbench.summary.context import (
    RequestStart,
    context_with_cache_safe_fork_request,
    context_with_report,
    context_with_request_start,
)
from workbench.summary.dynamic import DynamicSummarizer
from workbench.summary.report import Report

Json = Any

CREATED = time_from("2026-01-01T00:00:00Z")


def _policy(case: Json, profile: Profile) -> Json:
    allowlist = cleaned_allowlist(case.get("filter_allowlist"))
    key = case["filter_key"]
    return {
        "targets": summary_targets(key, allowlist=allowlist, cascade=case["cascade_full_session_summary"]),
        "direct_request_allowed": is_allowed(key, allowlist),
    }


class ScenarioModel:
    """The summary model of a case: echoing or scripted, and blocking on a text until released."""

    def __init__(self, case: Json) -> None:
        raw = case["summarizer"]["model"]
        self._inner = model_from({**raw, "nil": False}) or ScriptedModel()
        self.name = self._inner.name
        self.context_window = self._inner.context_window
        self._echo = case.get("echo_model") or case.get("echo_summary_model")
        self._block_on = case.get("block_on_text", "")
        self._released = asyncio.Event()
        self.blocked = asyncio.Event()
        self.requests: list[Request] = []

    @property
    def calls(self) -> int:
        return len(self.requests)

    @property
    def last_messages(self) -> list[str]:
        return [request.messages[-1].content for request in self.requests]

    def input_token_budget(self, request: Request) -> int:
        return self._inner.input_token_budget(request)

    def release(self) -> None:
        self._released.set()

    async def generate(self, ctx: CallContext, request: Request) -> AsyncIterator[Response]:
        self.requests.append(request)
        text = request.messages[-1].content
        if self._block_on and self._block_on in text and not self._released.is_set():
            self.blocked.set()
            await self._released.wait()
        if self._echo:
            content = "ECHO(" + text.replace("\n", "|") + ")"
            yield response_of(Message(role="assistant", content=content), model=self.name)
            return
        async for response in self._inner.generate(ctx, request):
            yield response


class Scenario:
    """A service with one or more sessions, and the steps of a case."""

    def __init__(self, case: Json, profile: Profile) -> None:
        self.case = case
        service = case["service"]
        self.watch = Watch()
        self.resolver_calls = 0
        self.model = ScenarioModel(case)
        inner = summarizer_from(case["summarizer"], profile, self.watch, model=self.model)
        summarizer: Any = inner
        if case.get("dynamic"):
            summarizer = DynamicSummarizer(self._resolver(case["dynamic"], inner))
        if service.get("no_summarizer"):
            summarizer = None
        limit = service.get("event_limit", 1000)
        self.clock = SystemClock()
        self.store = new_store(event_limit=limit)
        values: dict[str, Any] = {"event_limit": limit}
        for name in ("cascade_full_session_summary", "async_summary_num", "summary_queue_size"):
            if name in service:
                values[name] = service[name]
        if "filter_allowlist" in service:
            allowlist = service["filter_allowlist"]
            values["summary_filter_allowlist"] = None if allowlist is None else tuple(allowlist)
        if "summary_job_timeout_ms" in service:
            values["summary_job_timeout_s"] = service["summary_job_timeout_ms"] / 1000
        self.service = SessionService(
            self.store, settings=ServiceSettings(**values), summarizer=summarizer, clock=self.clock, profile=profile
        )
        self.sessions: dict[str, Session] = {}

    def _resolver(self, kind: str, inner: Any) -> Any:
        def resolve(ctx: CallContext, session: Session) -> Any:
            self.resolver_calls += 1
            if kind == "error":
                raise RuntimeError("resolver failed")
            return None if kind == "nil" else inner

        return resolve

    async def run(self) -> list[Json]:
        creator = SessionService(self.store, clock=FixedClock(CREATED))
        for session_id in self.case.get("session_ids") or ["sess-1"]:
            self.sessions[session_id] = await creator.create_session("app", "user-1", session_id)
        produced = []
        for step in self.case["steps"]:
            produced.append({"op": step["op"], **await self._step(step)})
        self.model.release()
        await self.service.close()
        return produced

    async def _step(self, step: Json) -> Json:
        handler = getattr(self, "_do_" + step["op"])
        try:
            result: Json = await handler(step)
        except (WorkbenchError, TimeoutError, asyncio.CancelledError, ValueError) as error:
            return {"error": str(error) or type(error).__name__, **self._after(step)}
        return result

    def _after(self, step: Json) -> Json:
        """What a failed summary step still shows."""
        if step["op"] in ("create_summary", "enqueue", "create_summary_concurrent"):
            return self._summary_state(step)
        return {}

    def _session(self, step: Json) -> Session | None:
        return None if step.get("nil_session") else self.sessions[step.get("session_id", "sess-1")]

    def _ctx(self, step: Json) -> tuple[CallContext, Report | None]:
        ctx = EMPTY_CONTEXT
        if step.get("parent_request") is not None:
            ctx = context_with_cache_safe_fork_request(ctx, request_from(step["parent_request"]))
        if step.get("request_start"):
            start = step["request_start"]
            ctx = context_with_request_start(ctx, RequestStart(start["request_id"], time_from(start["started_at"])))
        report = Report() if step.get("attach_report") else None
        if report is not None:
            ctx = context_with_report(ctx, report)
        return ctx, report

    def _summary_state(self, step: Json, report: Report | None = None) -> Json:
        session = self._session(step)
        state: Json = {
            "model_calls_so_far": self.model.calls,
            "summaries": summaries_to(session.summaries) if session is not None else {},
        }
        if report is not None:
            state["root_report"] = report_to(report)
        return state

    async def _do_append(self, step: Json) -> Json:
        session = self._session(step)
        assert session is not None
        await self.service.append_event(session, event_from(step["event"]))
        return {"error": None}

    async def _do_create_summary(self, step: Json) -> Json:
        ctx, report = self._ctx(step)
        call = self.service.create_session_summary(
            self._session(step), step.get("filter_key", ""), force=step.get("force", False), ctx=ctx
        )
        error = await _outcome(call, cancelled=step.get("canceled_context", False))
        return {"error": error, **self._summary_state(step, report)}

    async def _do_create_summary_concurrent(self, step: Json) -> Json:
        calls = [
            self.service.create_session_summary(
                self._session(step), step.get("filter_key", ""), force=step.get("force", False)
            )
            for _ in range(step["n"])
        ]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        error = next((str(outcome) for outcome in outcomes if isinstance(outcome, BaseException)), None)
        return {"error": error, **self._summary_state(step)}

    async def _do_enqueue(self, step: Json) -> Json:
        ctx, report = self._ctx(step)
        call = self.service.enqueue_summary_job(
            self._session(step), step.get("filter_key", ""), force=step.get("force", False), ctx=ctx
        )
        error = await _outcome(call, cancelled=step.get("canceled_context", False))
        if step.get("wait"):
            await self.service.wait_for_summaries()
        return {"error": error, **self._summary_state(step, report)}

    async def _do_get_text(self, step: Json) -> Json:
        key = step.get("filter_key", "")
        text = await self.service.get_session_summary_text(self._session(step), key)
        return {"found": text is not None, "text": text or ""}

    async def _do_set_summaries(self, step: Json) -> Json:
        session = self._session(step)
        assert session is not None
        session.summaries.clear()
        session.summaries.update(summaries_from(step["summaries"]))
        return {}

    async def _do_get_session(self, step: Json) -> Json:
        session_id = step.get("session_id", "sess-1")
        session = await self.service.get_session(SessionKey("app", "user-1", session_id))
        assert session is not None
        return {
            "error": None,
            "event_ids": [event.id for event in session.events],
            "summaries": summaries_to(session.summaries),
        }

    async def _do_state(self, step: Json) -> Json:
        session = self._session(step)
        assert session is not None
        value = session.state.get(step["key"])
        present = step["key"] in session.state
        return {"present": present, "value": (value or b"").decode()}

    async def _do_wait_model_blocked(self, step: Json) -> Json:
        await asyncio.wait_for(self.model.blocked.wait(), 10)
        return {}

    async def _do_release_model(self, step: Json) -> Json:
        self.model.release()
        await self.service.wait_for_summaries()
        return {
            "processed_order": list(self.model.last_messages),
            "summaries_by_session": {name: summaries_to(session.summaries) for name, session in self.sessions.items()},
        }


async def _outcome(call: Any, *, cancelled: bool) -> str | None:
    """The error text of a call, None if it succeeded; optionally made by a caller that is cancelled already."""

    async def run() -> None:
        if cancelled:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
        await call

    try:
        await asyncio.ensure_future(run())
    except (WorkbenchError, TimeoutError, asyncio.CancelledError) as error:
        return str(error) or type(error).__name__
    return None


def _recorded_report(report: Report, case: Json) -> Json:
    """Without an observed request the age of the last event depends on today; its value isn't recorded."""
    raw = report_to(report)
    if not any("request_start" in step for step in case["steps"]):
        without_wall_clock(raw["trigger"])
    return raw


def _seed_lookup(expected: Json, case: Json, profile: Profile) -> Json:
    """Under the seed, reading the text falls back to any other summary (SUM-GET-03, D3).

    The reference dropped this step although its page still promises it, so a recorded "not found" while
    there is a summary becomes "found" here: the newest, ties by key.
    """
    if not profile.summary_lookup_any:
        return expected
    summaries: dict[str, Json] = {}
    steps = []
    for step, given in zip(expected["steps"], case["input"]["steps"], strict=False):
        if given["op"] == "set_summaries":
            summaries = given["summaries"]
        summaries = step.get("summaries", summaries)
        usable = {
            key: item
            for key, item in summaries.items()
            if item["summary"] and time_from(item.get("updated_at", "")) >= CREATED
        }
        if step.get("op") == "get_text" and not step["found"] and usable:
            newest = min(usable, key=lambda key: (-time_from(usable[key]["updated_at"]), key))
            step = {**step, "found": True, "text": usable[newest]["summary"]}
        steps.append(step)
    return {**expected, "steps": steps}


def _service_summary(case: Json, profile: Profile) -> Json:
    async def main() -> Json:
        scenario = Scenario(case, profile)
        steps = await scenario.run()
        produced: Json = {
            "steps": steps,
            "last_message_of_each_model_request_sorted": sorted(scenario.model.last_messages),
            "reports_sorted": [_recorded_report(report, case) for report in scenario.watch.reports],
        }
        if case.get("dynamic"):
            produced["resolver_calls"] = scenario.resolver_calls
        return produced

    return asyncio.run(main())


def _as_recorded(expected: Json, produced: Json) -> Json:
    """Leave out what the recorder left out: raced counts, steps without a result, whole lists."""
    steps = iter(expected["steps"])
    fitted = []
    recorded_ops = {step["op"] for step in expected["steps"] if "op" in step}
    for step in produced["steps"]:
        if step["op"] == "append" and "append" not in recorded_ops:
            continue
        wanted = next(steps, None)
        fitted.append(step if wanted is None else {key: value for key, value in step.items() if key in wanted})
    return {key: value for key, value in produced.items() if key in expected} | {"steps": fitted}


def _in_one_order(value: Json) -> Json:
    """Parallel work compares as a multiset; raced counts and empty optional entries are left out alike."""
    result = dict(value)
    for name in ("last_message_of_each_model_request_sorted", "reports_sorted"):
        if name in result:
            result[name] = sorted(result[name], key=lambda item: json.dumps(_comparable(item), sort_keys=True))
    return result


def _comparable(report: Json) -> Json:
    if isinstance(report, dict) and "error" in report:
        return {**report, "error": report["error"] is not None}
    return report


RUNS = {
    "service_policy": Run(_policy),
    "service_summary": Run(_service_summary, normalise=_in_one_order, expect=_seed_lookup, fit=_as_recorded),
    "report_service": Run(_service_summary, normalise=_in_one_order, fit=_as_recorded),
}
