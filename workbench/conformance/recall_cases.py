"""Runs the vectors of on-demand history: session_search, session_load and what a service offers.

In: cases of `on_demand.json`. Out: the tools' answers in vector form. The search backend of the vectors is a
stand-in that looks for the query as it stands; it is rebuilt here from its description.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any

from workbench.call import EMPTY_CONTEXT, CallContext
from workbench.conformance import Json, Run
from workbench.conformance.shapes import session_from, time_to
from workbench.context.recall import SESSION_LOAD, SESSION_SEARCH, RecallRun, call_on_demand_tool, on_demand_tools
from workbench.errors import WorkbenchError
from workbench.profiles import Profile
from workbench.session.recall_types import (
    EventSearchRequest,
    EventSearchResult,
    EventWindow,
    EventWindowRequest,
    history_texts,
)
from workbench.session.types import Event, Session, SessionKey, UserKey
from workbench.store.search import anchor_not_found, event_window


class _Service:
    """Sessions of the case; lists their events, nothing more."""

    def __init__(self, sessions: Sequence[Session], profile: Profile) -> None:
        self._sessions = {session.key: session for session in sessions}
        self._first_choice_only = profile.search_first_choice_only
        self.requests: list[EventSearchRequest] = []

    async def list_events(self, key: SessionKey) -> Sequence[Event]:
        session = self._sessions.get(key)
        return session.events if session is not None else ()


class _WindowService(_Service):
    async def get_event_window(self, request: EventWindowRequest, *, ctx: CallContext = EMPTY_CONTEXT) -> EventWindow:
        session = self._sessions.get(request.key)
        if session is None:
            raise anchor_not_found()
        return event_window(session.events, request, first_choice_only=self._first_choice_only)


class _SearchService(_Service):
    async def search_events(
        self, request: EventSearchRequest, *, ctx: CallContext = EMPTY_CONTEXT
    ) -> list[EventSearchResult]:
        self.requests.append(request)
        results: list[EventSearchResult] = []
        for session in self._sessions.values():
            for event in session.events:
                if _is_found(session, event, request) and len(results) < request.max_results:
                    results.append(self._result(session, event, 1 / (1 + len(results))))
        return results

    def _result(self, session: Session, event: Event, score: float) -> EventSearchResult:
        found = next(iter(history_texts(event, first_choice_only=self._first_choice_only)), None)
        role, text = (found.role, found.labelled) if found is not None else (event.message.role, "")
        return EventSearchResult(session.key, event, event.time_ns, role, text, score)


class _SearchWindowService(_SearchService, _WindowService):
    pass


_SERVICES: dict[str, type[_Service]] = {
    "none": _Service,
    "window_only": _WindowService,
    "search_only": _SearchService,
    "search_and_window": _SearchWindowService,
}


def _is_found(session: Session, event: Event, request: EventSearchRequest) -> bool:
    return (
        UserKey(session.app_name, session.user_id) == request.user_key
        and (not request.session_ids or session.id in request.session_ids)
        and session.id not in request.exclude_session_ids
        and not event.is_partial
        and not event.message.tool_calls
        and request.query.lower() in event.message.content.lower()
        and (not request.created_before_ns or event.time_ns <= request.created_before_ns)
    )


def _produce(case: Json, profile: Profile) -> Json:
    sessions = [session_from(raw) for raw in case.get("sessions") or ()]
    service = _SERVICES[case["backend"]](sessions, profile)
    tool = case.get("tool")
    if not tool:
        offered = {spec.name for spec in on_demand_tools(service)}
        return {"supports_search": SESSION_SEARCH in offered, "supports_load": SESSION_LOAD in offered}
    current_id = case.get("current_session_id") or "sess-1"
    current = next((session for session in sessions if session.id == current_id), None)
    run = RecallRun(current, service, case.get("event_filter_key") or "", profile)
    produced: dict[str, Json] = {"error": None, "result": None}
    try:
        produced["result"] = _in_vector_form(_finished(call_on_demand_tool(tool, case.get("arguments"), run)))
    except WorkbenchError as error:
        produced["error"] = str(error)
    if tool == SESSION_SEARCH:
        produced["backend_requests"] = [_request_to(request) for request in service.requests] or None
    return produced


def _finished(coroutine: Coroutine[Any, Any, Json]) -> Json:
    """The result of a coroutine that never waits, with or without a running event loop."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    coroutine.close()
    raise RuntimeError("a stand-in service waited for something")


def _in_vector_form(answer: Any) -> Json:
    """Without the fixed note; a missing time as the vectors write it."""
    if isinstance(answer, list):
        return [_in_vector_form(item) for item in answer]
    if not isinstance(answer, dict):
        return answer
    raw = {name: _in_vector_form(value) for name, value in answer.items() if name != "note"}
    if raw.get("created") == "":
        raw["created"] = time_to(0)
    return raw


def _request_to(request: EventSearchRequest) -> Json:
    raw: dict[str, Json] = {
        "app_name": request.user_key.app_name,
        "user_id": request.user_key.user_id,
        "query": request.query,
        "session_ids": list(request.session_ids) or None,
        "exclude_session_ids": list(request.exclude_session_ids) or None,
        "max_results": request.max_results,
        "min_score": request.min_score,
        "filter_key": request.filter_key,
        "roles": list(request.roles),
        "search_mode": request.search_mode,
    }
    if request.created_before_ns:
        raw["created_before"] = time_to(request.created_before_ns)
    if request.created_after_ns:
        raw["created_after"] = time_to(request.created_after_ns)
    return raw


RUNS = {"on_demand": Run(_produce)}
