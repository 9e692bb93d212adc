"""The format `openai-chat`: message lists as OpenAI's chat interface takes them.

In: rows that are `{"messages": [...]}`, a bare list, a logged request (with its response, also as batch
files write it), a preference pair of a fine-tuning file, or one message per line. Out: conversations.
Logged requests repeat the history; they're chained to conversations by `request_log` (WB-REC-04a).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from workbench.model.types import ASSISTANT, USER, Usage
from workbench.recordings.chat import message_from_chat, usage_from_chat
from workbench.recordings.draft import Draft
from workbench.recordings.envelope import TIME_KEYS, Envelope, body_of, messages_of, text_or_empty
from workbench.recordings.moments import moment_ns
from workbench.recordings.problems import FaultyRecordError, kind_of
from workbench.recordings.reading import SESSION_KEYS, Format, Reading, own_id
from workbench.recordings.request_log import Chain, Exchange, RequestLog
from workbench.recordings.rows import Row
from workbench.recordings.types import Conversation

FORMAT_NAME = "openai-chat"
_CORPUS_ROLES = {"usr", "sys"}  # CrossWOZ: see `dialogue`
_SESSION_ID = re.compile(r'"(?:session_id|conversation_id|thread_id)"\s*:\s*"([^"\\]+)"')
_ANSWER_KEYS = ("response", "completion", "choices")


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("role"), str) and "messages" not in value


def _is_message_list(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(_is_message(item) for item in value[:3])


def _recognises(value: Any) -> bool:
    if _is_message_list(value):
        return True
    if not isinstance(value, dict):
        return False
    if _is_message(value) and value.keys() & {"content", "tool_calls", "function_call"}:
        return True
    body = body_of(value)
    if body is None or not isinstance(body["messages"], list):
        return False
    roles = {message.get("role") if _is_message(message) else None for message in body["messages"][:4]}
    return None not in roles and not roles <= _CORPUS_ROLES


def _record_of(value: Any) -> Envelope:
    """The messages of a row and what stands around them.

    Raises:
        FaultyRecordError: no messages there (B08 and its kind).
    """
    if _is_message_list(value):
        return Envelope(value, {}, {})
    body, messages = messages_of(value)
    preferred = value.get("preferred_output")
    if isinstance(preferred, list):
        messages = [*messages, *preferred]
    answer = next((value[key] for key in _ANSWER_KEYS if value.get(key) is not None), None)
    return Envelope(messages, value, body, {"choices": answer} if isinstance(answer, list) else answer)


def _read(rows: Iterator[Row], reading: Reading) -> Iterator[Conversation]:
    """Conversations as they come; those chained from logged requests at the end."""
    log = RequestLog(reading)
    loose = _LooseMessages(reading)
    for row in rows:
        reading.note_oddities(row)
        if not row.n_bytes:
            continue
        if _is_message(row.value) and row.refusal is None:
            yield from loose.take(row)
            continue
        if loose.is_open and row.cut:
            loose.cut(row)
            continue
        if loose.is_open and row.refusal is not None:
            yield from loose.take_broken(row, row.refusal)
            continue
        yield from loose.close()
        try:
            if (fault := row.refusal) is not None:
                raise fault
            record = _record_of(row.value)
            exchange = _exchange(record, row, reading)
            if exchange is not None:
                log.take(exchange)
            else:
                yield _conversation(record, row, reading)
        except FaultyRecordError as fault:
            reading.refuse(fault, row)
    yield from loose.close()
    yield from log.conversations(_logged)


def _exchange(record: Envelope, row: Row, reading: Reading) -> Exchange | None:
    """The row as one logged request with its answer; None when it's a conversation of its own."""
    if record.answer is None:
        return None
    answer, facts = answer_of(record.answer)
    messages = tuple(message_from_chat(raw, number) for number, raw in enumerate(record.messages, 1))
    usage = facts.get("usage")
    time = record.field(*TIME_KEYS)
    return Exchange(
        line=row.line,
        session_id=record.session_id(),
        messages=messages,
        answer=None if answer is None else message_from_chat(answer, len(messages) + 1),
        usage=usage_from_chat(record.field("usage") if usage is None else usage),
        model=text_or_empty(facts.get("model")),
        answer_id=text_or_empty(facts.get("id")),
        finish_reason=text_or_empty(facts.get("finish_reason")),
        time_ns=moment_ns(facts.get("created") if time is None else time, reading.options),
        source=record,
    )


def answer_of(raw: Any) -> tuple[Any, dict[str, Any]]:
    """The assistant message of a response, and what the response says about itself.

    Raises:
        FaultyRecordError: there is none in it.
    """
    if isinstance(raw, str):
        return {"role": ASSISTANT, "content": raw}, {}
    if isinstance(raw, dict) and isinstance(raw.get("body"), dict):  # a line of a batch result
        raw = raw["body"]
    if not isinstance(raw, dict):
        raise FaultyRecordError(f"response is {kind_of(raw)}, expected an object")
    facts = {key: raw.get(key) for key in ("usage", "model", "id", "created")}
    choices = raw.get("choices")
    if choices is None:
        return ({"role": ASSISTANT, **raw} if raw.keys() & {"content", "tool_calls"} else None), facts
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        return None, facts
    facts["finish_reason"] = choices[0].get("finish_reason")
    message = choices[0].get("message")
    return ({"role": ASSISTANT, **message} if isinstance(message, dict) else None), facts


def _conversation(record: Envelope, row: Row, reading: Reading) -> Conversation:
    """A row that is a conversation of its own."""
    wanted_id = record.own_id(*SESSION_KEYS, "id", "custom_id")
    draft = Draft(reading, line=row.line)
    for number, raw in enumerate(record.messages, 1):
        add_message(draft, raw, number, reading)
    usage = usage_from_chat(record.field("usage"))
    if usage is not None and not draft.annotate_answer(usage):
        draft.lose("usage without an answer it belongs to")
    return record.finish(draft, FORMAT_NAME, wanted_id=wanted_id)


def add_message(draft: Draft, raw: Any, number: int, reading: Reading, *, line: int | None = None) -> None:
    """Add one message with the time, id and usage that stand beside it.

    Raises:
        FaultyRecordError: it isn't one.
    """
    message = message_from_chat(raw, number)
    usage: Usage | None = None
    if message.role == ASSISTANT and raw.get("usage") is not None:
        usage = usage_from_chat(raw["usage"])
    time = next((raw[key] for key in TIME_KEYS if raw.get(key) is not None), None)
    facts: dict[str, Any] = {"line": line, "time_ns": moment_ns(time, reading.options)}
    if message.role == USER and draft.has_answers and reading.options.observations == "tool":
        draft.add_observation(message, **facts)
        return
    event_id = raw.get("event_id", raw.get("id"))
    draft.add(message, usage=usage, model=text_or_empty(raw.get("model")), event_id=text_or_empty(event_id), **facts)


def _logged(chain: Chain, reading: Reading) -> Conversation:
    """The conversation of a chain: each answer with what its own exchange reported."""
    record: Envelope = chain.last.source
    return record.finish(chain.draft(reading), FORMAT_NAME, wanted_id=chain.first.session_id)


class _LooseMessages:
    """One message per line: lines of one session id, or of none, make a conversation."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._draft: Draft | None = None
        self._session_id = ""
        self._number = 0
        self._fault: FaultyRecordError | None = None
        self._row: Row | None = None

    @property
    def is_open(self) -> bool:
        """A conversation is being collected."""
        return self._draft is not None

    def take(self, row: Row) -> Iterator[Conversation]:
        """The next message; the conversation before it, if this one starts another."""
        fault: FaultyRecordError | None = None
        try:
            session_id = own_id(row.value, *SESSION_KEYS)
        except FaultyRecordError as empty:
            session_id, fault = "", empty
        if self._row is not None and (session_id != self._session_id or row.document != self._row.document):
            yield from self.close()
        if self._draft is None:
            self._draft = Draft(self._reading, line=row.line)
            self._session_id, self._number, self._fault, self._row = session_id, 0, None, row
        self._number += 1
        if self._fault is not None:
            return
        try:
            if fault is not None:
                raise fault
            add_message(self._draft, row.value, self._number, self._reading, line=row.line)
        except FaultyRecordError as found:
            found.line = found.line or row.line
            self._fault = found

    def take_broken(self, row: Row, fault: FaultyRecordError) -> Iterator[Conversation]:
        """A broken line belongs to the session that it names, else to the one around it, which has a hole without it."""
        named = _SESSION_ID.search(row.start)
        if named is not None and named[1] != self._session_id:
            yield from self.close()
            self._draft = Draft(self._reading, line=row.line)
            self._session_id, self._number, self._fault, self._row = named[1], 0, None, row
        fault.line = fault.line or row.line
        self._fault = self._fault or fault

    def cut(self, row: Row) -> None:
        """The file ends inside a message (B30)."""
        if self._draft is not None:
            self._draft.notes.add("cut", "last message is unfinished", "left out", line=row.line)

    def close(self) -> Iterator[Conversation]:
        """End the conversation that is being collected."""
        draft, self._draft = self._draft, None
        if draft is None:
            return
        try:
            if self._fault is not None:
                raise self._fault
            yield draft.finish(FORMAT_NAME, wanted_id=self._session_id)
        except FaultyRecordError as fault:
            self._reading.refuse(fault, self._row)


OPENAI_CHAT = Format(FORMAT_NAME, _recognises, _read)
