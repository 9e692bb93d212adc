"""Recorded conversations as values: what a reader makes and what a replay plays.

In: events in recorded order, and what else the source knew (instruction, tools, model). Out: `Conversation`,
with the view that a replay walks: requests, each with its human input and the recorded steps after it.
Implements WB-REC-04 rules 1 to 5 on any event list, also on one that kept its own request ids.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from workbench.model.types import ASSISTANT, SYSTEM, TOOL, USER, Message, ToolSpec, Usage
from workbench.session.event_json import event_to_json, tool_to_json
from workbench.session.types import Event

APP_NAME = "replay"
DEFAULT_USER_ID = "user"
HUMAN_AUTHOR = "user"
ASSISTANT_AUTHOR = "assistant"
SYSTEM_AUTHOR = "system"


def is_human(event: Event) -> bool:
    """A person's message; tool results and answers aren't."""
    return any(message.role == USER and not message.tool_id for message in event.messages)


def is_answer(event: Event) -> bool:
    """A whole answer of the recorded model, also one that only asks for tools."""
    return not event.is_partial and any(message.role == ASSISTANT for message in event.messages)


def is_tool_round(event: Event) -> bool:
    """Results of the tools that one answer asked for."""
    return any(message.role == TOOL or message.tool_id for message in event.messages)


def is_system(event: Event) -> bool:
    """A system message in mid-conversation."""
    return any(message.role == SYSTEM for message in event.messages)


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """One top-level request: what people said, then what the recorded model and its tools did."""

    index: int
    """From 0, in the conversation."""
    id: str
    inputs: tuple[Event, ...]
    """At least one. The last is the run's message, the earlier ones are appended before the run."""
    steps: tuple[Event, ...]
    """Answers, tool results and whatever else was recorded up to the next request, in recorded order."""

    @property
    def message(self) -> Event:
        """The message that starts the run."""
        return self.inputs[-1]

    @property
    def earlier(self) -> tuple[Event, ...]:
        """Input that came before the message, without an answer of its own."""
        return self.inputs[:-1]

    @property
    def answers(self) -> tuple[Event, ...]:
        """The recorded answers: one model call each; none when the recording ends with a user message."""
        return tuple(event for event in self.steps if is_answer(event))


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """One main-model call of the recording."""

    index: int
    """From 0, in the conversation."""
    request: RecordedRequest
    event: Event
    """The recorded answer."""
    step: int
    """Place of the answer in `request.steps`."""
    continuation: bool
    """The step before was an answer too: called again without input between (WB-REC-04 rule 3)."""

    @property
    def before(self) -> Event:
        """The last event before the answer; its time is the time of the call (WB-RPL-08)."""
        return self.request.steps[self.step - 1] if self.step else self.request.message


@dataclass(frozen=True)
class Conversation:
    """One recorded conversation. Two are equal when all their values are, wherever they were read from."""

    id: str
    events: tuple[Event, ...] = ()
    instruction: str = ""
    """Leading system messages, joined by a blank line (WB-REC-04 rule 7)."""
    tools: tuple[ToolSpec, ...] = ()
    model: str = ""
    """Name of the recorded model, empty if the source doesn't say."""
    app_name: str = APP_NAME
    user_id: str = DEFAULT_USER_ID
    assumed_time: bool = False
    """No event had a time: a synthetic clock was used, so findings about time are assumptions (WB-REC-03)."""
    merged_rows: int = 0
    """Source rows that were parts of an answer already counted (WB-REC-04 rule 3)."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """What else the source knew: probes, rewards, task ids."""
    format: str = field(default="", compare=False)
    source: str = field(default="", compare=False)
    """File it was read from, with the member for an archive."""
    line: int | None = field(default=None, compare=False)
    """Line where it starts in that file."""

    @cached_property
    def _split(self) -> tuple[tuple[Event, ...], tuple[RecordedRequest, ...]]:
        return split_requests(self.id, self.events)

    @property
    def seed_events(self) -> tuple[Event, ...]:
        """Events before the first human message: history, no calls."""
        return self._split[0]

    @property
    def requests(self) -> tuple[RecordedRequest, ...]:
        """The top-level requests, in order."""
        return self._split[1]

    @property
    def greetings(self) -> int:
        """Answers before any human message (WB-REC-04 rule 4)."""
        return sum(is_answer(event) for event in self.seed_events)

    @cached_property
    def calls(self) -> tuple[RecordedCall, ...]:
        """The main-model calls: recorded answers without greetings (WB-REC-04 rule 5)."""
        return tuple(_calls(self.requests))

    @cached_property
    def usage(self) -> Mapping[str, Usage]:
        """What the provider reported, by the id of the answer."""
        return {
            event.id: event.response.usage
            for event in self.events
            if event.response is not None and event.response.usage is not None
        }

    @property
    def messages(self) -> Iterator[Message]:
        """The messages of all events, in order."""
        return (message for event in self.events for message in event.messages)

    @property
    def duration_s(self) -> float:
        """Seconds from the first to the last event."""
        if not self.events:
            return 0.0
        return (self.events[-1].time_ns - self.events[0].time_ns) / 1e9

    @cached_property
    def content_hash(self) -> str:
        """sha256 of events, instruction and tools in a fixed form; where it was read from has no part in it."""
        digest = hashlib.sha256()
        head = {"instruction": self.instruction, "tools": [tool_to_json(tool) for tool in self.tools]}
        for part in (head, *map(event_to_json, self.events)):
            digest.update(json.dumps(part, sort_keys=True, separators=(",", ":")).encode("ascii"))
            digest.update(b"\n")
        return digest.hexdigest()

    @property
    def place(self) -> str:
        """`file:line` for messages to people."""
        return f"{self.source}:{self.line}" if self.line is not None else self.source

    def replace(self, **changes: Any) -> Conversation:
        """A copy with other fields."""
        return replace(self, **changes)

    def __repr__(self) -> str:
        return f"Conversation({self.id!r}, {len(self.events)} events, {len(self.calls)} calls)"


def split_requests(
    conversation_id: str, events: Iterable[Event]
) -> tuple[tuple[Event, ...], tuple[RecordedRequest, ...]]:
    """Seed history and requests of an event list (WB-REC-04 rules 1 to 4).

    A request starts at a human message. When events carry request ids those decide instead: a human message
    whose id is that of the running request is one of its steps, one with another id starts a request even
    right after a human message. Events without a human message of their own stay in the request before.
    """
    seed: list[Event] = []
    requests: list[RecordedRequest] = []
    inputs: list[Event] = []
    steps: list[Event] = []

    def close() -> None:
        if inputs:
            index = len(requests)
            request_id = inputs[-1].request_id or f"{conversation_id}:r{index + 1}"
            requests.append(RecordedRequest(index, request_id, tuple(inputs), tuple(steps)))

    for event in events:
        if not is_human(event):
            (steps if inputs else seed).append(event)
            continue
        running_id = inputs[-1].request_id if inputs else ""
        answered = any(not is_system(step) for step in steps)
        starts = event.request_id != running_id if event.request_id and running_id else answered
        if not inputs or starts:
            close()
            inputs, steps = [event], []
        elif answered:
            steps.append(event)
        else:  # another message before any answer; a system message between the two stays in its place
            inputs += [*steps, event]
            steps = []
    close()
    return tuple(seed), tuple(requests)


def _calls(requests: Iterable[RecordedRequest]) -> Iterator[RecordedCall]:
    index = 0
    for request in requests:
        previous_was_answer = False
        for step, event in enumerate(request.steps):
            if is_answer(event):
                yield RecordedCall(index, request, event, step, previous_was_answer)
                index += 1
            previous_was_answer = is_answer(event)
