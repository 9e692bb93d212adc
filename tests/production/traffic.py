"""Recorded conversations as traffic of a production service: people write, model and tools answer, at their times.

Nothing of the replay is in here, so that what both send can be compared.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

from workbench.agent.flow import InvocationState, SentRequest
from workbench.agent.runner import Runner, RunOptions
from workbench.agent.tools import ToolRound
from workbench.call import CallContext
from workbench.model.chat_wire import BodyForm, chat_body
from workbench.model.types import Request, Response, ToolCall
from workbench.recordings.types import Conversation, RecordedRequest, is_answer, is_tool_round
from workbench.session.types import Event


class TrafficClock:
    """Stands at the time of what is happening in the recording."""

    def __init__(self) -> None:
        self.time_ns = 0

    def now_ns(self) -> int:
        return self.time_ns


class Traffic:
    """One conversation; `requests` are the bytes that its main model received."""

    answers_all = True

    def __init__(self, conversation: Conversation, clock: TrafficClock, *, name: str = "", window: int = 0) -> None:
        self.name = name or conversation.model or "recorded"
        self.context_window = window
        self.conversation = conversation
        self.requests: list[bytes] = []
        self._clock = clock
        self._steps: list[Event] = []
        self._expected: Event | None = None
        self._wait: Callable[[], Awaitable[Any]] | None = None

    # --- the main model and its tools --------------------------------------------------------------------

    async def generate(self, ctx: CallContext, request: Request) -> AsyncIterator[Response]:
        event = self._next()
        response = event.response
        assert response is not None
        more = any(map(is_answer, self._steps))
        yield replace(response, done=not more or response.is_tool_call, is_partial=False)

    async def execute(self, ctx: CallContext, calls: Sequence[ToolCall]) -> ToolRound:
        assert is_tool_round(self._steps[0])
        return ToolRound(self._next().messages)

    def _next(self) -> Event:
        event = self._expected = self._steps.pop(0)
        self._clock.time_ns = event.time_ns
        return event

    # --- the application ---------------------------------------------------------------------------------

    def hooks(self) -> dict[str, Any]:
        """Options of a runner: ids as recorded, and summaries that are as quick as the replay's."""
        return {"make_event": self._with_recorded_id, "before_step": self._before_step, "on_request": self._on_request}

    async def run(self, runner: Runner) -> None:
        """The whole conversation."""
        self._wait = runner.session_service.wait_for_summaries
        for request in self.conversation.requests:
            await self._one(request, runner)
        await self._wait()

    async def _one(self, request: RecordedRequest, runner: Runner) -> None:
        message = self._expected = request.message
        assert len(request.inputs) == 1
        self._steps = list(request.steps)
        self._clock.time_ns = message.time_ns
        options = RunOptions(
            request_id=message.request_id or request.id,
            invocation_id=message.invocation_id,
            event_filter_key=message.filter_key,
        )
        conversation = self.conversation
        async for _ in runner.run(conversation.user_id, conversation.id, message.message, options):
            pass
        assert not self._steps
        await runner.session_service.wait_for_summaries()

    async def _before_step(self, state: InvocationState) -> None:
        assert self._wait is not None
        await self._wait()
        if not self._steps:
            state.ended = True

    def _on_request(self, sent: SentRequest) -> None:
        self.requests.append(wire_bytes(self.name, sent.request))

    def _with_recorded_id(self, event: Event) -> Event:
        recorded, self._expected = self._expected, None
        assert recorded is not None
        return event.replace(
            id=recorded.id,
            author=recorded.author or event.author,
            filter_key=recorded.filter_key or event.filter_key,
            branch=recorded.branch or event.branch,
            invocation_id=recorded.invocation_id or event.invocation_id,
        )


def wire_bytes(model: str, request: Request) -> bytes:
    """A request as it goes over the wire."""
    return as_bytes(chat_body(model, request, streams=False, form=BodyForm(sends_reasoning=True)))


def as_bytes(body: Any) -> bytes:
    return json.dumps(body, ensure_ascii=False).encode("utf-8", "surrogatepass")
