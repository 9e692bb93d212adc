"""A conversation being built from messages: the rules that all importers share.

In: messages in recorded order, with what the source knows about each. Out: one `Conversation`, or the first
`FaultyRecordError`. Implements WB-REC-03, WB-REC-04 and B19 to B28; the native format, which keeps its own ids and
requests, doesn't come here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from workbench.model.types import (
    ASSISTANT,
    SYSTEM,
    TOOL,
    USER,
    Choice,
    Message,
    Response,
    ToolCall,
    ToolSpec,
    Usage,
)
from workbench.recordings.chat import compact_json
from workbench.recordings.ledger import CallLedger, Notes
from workbench.recordings.moments import ADD_TIME, backward_note, synthetic_times
from workbench.recordings.problems import FaultyRecordError, quoted
from workbench.recordings.reading import Reading, ReadOptions
from workbench.recordings.types import (
    APP_NAME,
    ASSISTANT_AUTHOR,
    DEFAULT_USER_ID,
    HUMAN_AUTHOR,
    SYSTEM_AUTHOR,
    Conversation,
)
from workbench.session.types import Event

ROWS_MERGED = "rows merged"
NO_TIME = "no event has a timestamp; synthetic clock used"
_AUTHORS = {USER: HUMAN_AUTHOR, SYSTEM: SYSTEM_AUTHOR}
OBSERVED_ACTION = "action"


@dataclass(slots=True)
class _Entry:
    """One future event."""

    role: str
    messages: list[Message]
    line: int
    time_ns: int | None
    id: str
    answer_id: str = ""
    model: str = ""
    usage: Usage | None = None
    finish_reason: str = ""
    extensions: dict[str, Any] = field(default_factory=dict)


class Draft:
    """Collects one conversation; `finish` makes it, and only then are its notes reported."""

    def __init__(self, reading: Reading, *, line: int) -> None:
        self._reading = reading
        self._line = line
        self._entries: list[_Entry] = []
        self._instruction: list[str] = []
        self._lines_by_id: dict[str, int] = {}
        self._merged_rows = 0
        self._observations = 0
        self._losses: dict[str, int] = {}
        self.notes = Notes()
        self._ledger = CallLedger(self.notes)

    @property
    def n_events(self) -> int:
        """Events so far."""
        return len(self._entries)

    @property
    def has_answers(self) -> bool:
        """The model has spoken."""
        return any(entry.role == ASSISTANT for entry in self._entries)

    def lose(self, what: str, count: int = 1) -> None:
        """Count something for the loss report, should the conversation be taken."""
        self._losses[what] = self._losses.get(what, 0) + count

    # --- adding ----------------------------------------------------------------------------------------

    def add(
        self,
        message: Message,
        *,
        line: int | None = None,
        time_ns: int | None = None,
        event_id: str = "",
        answer_id: str = "",
        model: str = "",
        usage: Usage | None = None,
        finish_reason: str = "",
        extensions: Mapping[str, Any] | None = None,
    ) -> bool:
        """Add the next message; False when it became part of the answer before.

        Args:
            message: Any role; system messages at the start become the instruction.
            line: Where it stands, if not in the line of the conversation.
            answer_id: The provider's id of the answer: following rows with the same one are parts of it.

        Raises:
            FaultyRecordError: an id is used twice.
        """
        line = self._line if line is None else line
        if message.role == SYSTEM and not self._entries:
            self._instruction.append(message.content or "\n".join(part.text for part in message.content_parts))
            return True
        last = self._entries[-1] if self._entries else None
        if message.role == ASSISTANT and answer_id and last and last.answer_id == answer_id:
            self._merge(last, message, usage=usage, line=line, finish_reason=finish_reason)
            return False
        self._check_id(event_id, line)
        if message.role == TOOL:
            message = self._answering(message, line)
            if last is not None and last.role == TOOL:  # results of one round are one event (ASM-RUN-09)
                last.messages.append(message)
                last.time_ns = time_ns if time_ns is not None else last.time_ns
                return True
        elif message.role == USER:
            self._ledger.close_round()
        self._entries.append(
            _Entry(
                message.role, [message], line, time_ns, event_id, answer_id, model, usage, finish_reason,
                extensions=dict(extensions or {}),
            )
        )  # fmt: skip
        if message.tool_calls:
            self._entries[-1].messages[0] = self._asking(message, line)
        return True

    def add_observation(self, message: Message, *, action: str = "", **facts: Any) -> None:
        """Add a message of role user that isn't a person's but the result of the answer before.

        A call is added to that answer, since results without one are refused by every model.
        """
        last = self._entries[-1] if self._entries else None
        if last is None or last.role != ASSISTANT or last.messages[0].tool_calls:
            self.add(message, **facts)
            return
        self._observations += 1
        arguments = compact_json({"command": action}) if action else "{}"
        call = ToolCall(id=f"action-{self._observations}", name=OBSERVED_ACTION, arguments=arguments)
        last.messages[0] = replace(last.messages[0], tool_calls=(call,))
        self._ledger.ask((call,), last.line)
        self.add(replace(message, role=TOOL, tool_id=call.id, tool_name=call.name), **facts)
        self.lose("observations with role user read as tool results; their calls were added")

    def annotate_answer(self, usage: Usage | None, *, model: str = "", finish_reason: str = "") -> bool:
        """Give the last event what a response reported about it; False when it isn't an answer."""
        last = self._entries[-1] if self._entries else None
        if last is None or last.role != ASSISTANT:
            return False
        last.usage = usage if usage is not None else last.usage
        last.model = model or last.model
        last.finish_reason = finish_reason or last.finish_reason
        return True

    def _merge(self, entry: _Entry, message: Message, *, usage: Usage | None, line: int, finish_reason: str) -> None:
        """Another row of the same answer: contents are joined, the last usage counts (WB-REC-07)."""
        first = entry.messages[0]
        calls = self._asking(message, line).tool_calls
        entry.messages[0] = replace(
            first,
            content="\n\n".join(text for text in (first.content, message.content) if text),
            content_parts=first.content_parts + message.content_parts,
            tool_calls=first.tool_calls + calls,
            reasoning_content="\n\n".join(
                text for text in (first.reasoning_content, message.reasoning_content) if text
            ),
            reasoning_signature=message.reasoning_signature or first.reasoning_signature,
        )
        entry.usage = usage if usage is not None else entry.usage
        entry.finish_reason = finish_reason or entry.finish_reason
        self._merged_rows += 1

    def _check_id(self, event_id: str, line: int) -> None:
        if not event_id:
            return
        if event_id in self._lines_by_id:
            raise FaultyRecordError(
                f"event id {quoted(event_id)} was used at line {self._lines_by_id[event_id]}", line=line
            )
        self._lines_by_id[event_id] = line

    def _asking(self, message: Message, line: int) -> Message:
        """The message with an id for every call; older sources have none."""
        calls = tuple(
            call if call.id else replace(call, id=f"call-{len(self._entries)}-{place}")
            for place, call in enumerate(message.tool_calls, 1)
        )
        self._ledger.ask(calls, line)
        return message if calls == message.tool_calls else replace(message, tool_calls=calls)

    def _answering(self, message: Message, line: int) -> Message:
        """The result with the id and the name of the call that it answers."""
        call_id = message.tool_id or self._ledger.waiting_for(message.tool_name)
        name = message.tool_name or self._ledger.name_of(call_id)
        self._ledger.answer(call_id, line)
        if (call_id, name) == (message.tool_id, message.tool_name):
            return message
        return replace(message, tool_id=call_id, tool_name=name)

    # --- finishing -------------------------------------------------------------------------------------

    def finish(
        self,
        format_name: str,
        *,
        wanted_id: str = "",
        user_id: str = "",
        model: str = "",
        tools: tuple[ToolSpec, ...] = (),
        metadata: Mapping[str, Any] | None = None,
    ) -> Conversation:
        """The conversation.

        Raises:
            FaultyRecordError: nothing in it, or its times can't be used.
        """
        if not self._entries:
            raise FaultyRecordError("no messages", "expected at least one that isn't a system message")
        starts = list(self._request_starts())
        times, assumed = self._times(starts)
        reading = self._reading
        conversation_id = reading.claim_id(wanted_id)
        events = tuple(self._events(conversation_id, starts, times))
        reading.n_loaded += 1
        self.notes.report_to(reading)
        if assumed:
            reading.lose(NO_TIME)
        reading.lose(ROWS_MERGED, self._merged_rows)
        for what, count in self._losses.items():
            reading.lose(what, count)
        return Conversation(
            id=conversation_id,
            events=events,
            instruction="\n\n".join(text for text in self._instruction if text),
            tools=tools,
            model=model or next((entry.model for entry in self._entries if entry.model), ""),
            user_id=user_id or DEFAULT_USER_ID,
            assumed_time=assumed,
            merged_rows=self._merged_rows,
            metadata=dict(metadata or {}),
            format=format_name,
            source=reading.path,
            line=self._line,
        )

    def _request_starts(self) -> Iterable[bool]:
        """For each entry: it's a human message that begins a request (WB-REC-04 rule 1)."""
        waiting = False  # a human message was seen, no answer yet
        for entry in self._entries:
            human = entry.role == USER
            yield human and not waiting
            if human:
                waiting = True
            elif entry.role != SYSTEM:
                waiting = False

    def _times(self, starts: list[bool]) -> tuple[list[int], bool]:
        """The time of each entry, and whether they're made up (B22, B25)."""
        options = self._reading.options
        given = [entry.time_ns for entry in self._entries]
        if not any(given):
            return list(synthetic_times(starts, options)), True
        times = self._filled(given, options)
        for position in range(1, len(times)):
            if times[position] < times[position - 1]:
                step_back = times[position - 1] - times[position]
                self.notes.add("backward", backward_note(step_back, position + 1), line=self._entries[position].line)
        return times, False

    def _filled(self, given: list[int | None], options: ReadOptions) -> list[int]:
        """Missing times become those of the event before: order is kept, nothing is invented."""
        times: list[int] = []
        previous = next(moment for moment in given if moment)
        for entry, moment in zip(self._entries, given, strict=True):
            if not moment:
                if not options.assume_order:
                    raise FaultyRecordError("event has no timestamp", ADD_TIME, line=entry.line)
                self.lose("events without a timestamp took that of the event before")
            previous = moment or previous
            times.append(previous)
        return times

    def _events(self, conversation_id: str, starts: list[bool], times: list[int]) -> Iterable[Event]:
        n_request = 0
        for n, (entry, begins, time_ns) in enumerate(zip(self._entries, starts, times, strict=True), 1):
            n_request += begins
            choices = tuple(
                Choice(message, index=i, finish_reason=entry.finish_reason) for i, message in enumerate(entry.messages)
            )
            yield Event(
                id=entry.id or f"{conversation_id}:{n:05d}",
                author=_AUTHORS.get(entry.role, ASSISTANT_AUTHOR),
                time_ns=time_ns,
                response=Response(choices, id=entry.answer_id, model=entry.model, usage=entry.usage),
                request_id=f"{conversation_id}:r{n_request}",
                invocation_id=f"{conversation_id}:i{n_request}",
                filter_key=APP_NAME,
                extensions=entry.extensions,
            )
