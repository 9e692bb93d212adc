"""The wire form of chat completions: requests as JSON, and answers or streams of bytes back as responses.

In: a `Request`; bytes as they arrive, cut anywhere. Out: the body to send; partial `Response`s and a whole
one. Does no I/O, so the asynchronous and the blocking client read with the same code. What isn't a complete
answer is a `ModelError`; counts that can't be true are "not reported" (reliability.md, section 6).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from workbench.errors import ConfigError, ModelError
from workbench.model.call_faults import Faults, kind_of_body
from workbench.model.types import (
    ASSISTANT,
    TOOL,
    USER,
    Choice,
    ContentPart,
    Message,
    Request,
    Response,
    ToolCall,
    ToolSpec,
    Usage,
)

MAX_LINE_BYTES = 4 * 2**20
"""A line of a stream holds one piece of an answer; a longer one is no such stream."""
MAX_BODY_BYTES = 64 * 2**20
_MAX_TOKENS_REPORTED = 10_000_000
"""Ten times the longest windows: a provider that reports more is wrong."""

# --- requests -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BodyForm:
    """Where providers differ."""

    max_tokens_field: str = "max_tokens"
    """OpenAI's own newer models know `max_completion_tokens` only."""
    sends_reasoning: bool = False
    """Earlier reasoning texts go back to the provider; some want that, others refuse it."""


def chat_body(model: str, request: Request, *, streams: bool, form: BodyForm) -> dict[str, Any]:
    """The body of a request, without the caller's own extra fields.

    Raises:
        ConfigError: a tool's schema isn't JSON.
    """
    config = request.generation_config
    body: dict[str, Any] = {
        "model": model,
        "messages": [_message_json(message, form) for message in request.messages],
        "tools": [_tool_json(tool) for tool in request.tools] or None,
        form.max_tokens_field: config.max_tokens if (config.max_tokens or 0) >= 1 else None,
        "temperature": config.temperature,
        "top_p": config.top_p,
        "stop": list(config.stop) or None,
        "presence_penalty": config.presence_penalty,
        "frequency_penalty": config.frequency_penalty,
        "reasoning_effort": config.reasoning_effort,
        "response_format": dict(request.structured_output) if request.structured_output is not None else None,
    }
    if streams:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return {name: value for name, value in body.items() if value is not None}


def thinking_fields(request: Request) -> dict[str, Any]:
    """Fields for thinking under the names that Qwen's and compatible servers use; none unless asked for."""
    config = request.generation_config
    fields = {"enable_thinking": config.thinking_enabled, "thinking_budget": config.thinking_tokens}
    return {name: value for name, value in fields.items() if value is not None}


def _message_json(message: Message, form: BodyForm) -> dict[str, Any]:
    out: dict[str, Any] = {"role": message.role or USER, "content": _content_json(message)}
    if message.role == TOOL:
        out["tool_call_id"] = message.tool_id
    if message.tool_calls:
        out["content"] = out["content"] or None
        out["tool_calls"] = [_call_json(call) for call in message.tool_calls]
    if form.sends_reasoning and message.reasoning_content:
        out["reasoning_content"] = message.reasoning_content
    return out


def _content_json(message: Message) -> str | list[dict[str, Any]]:
    if not message.content_parts:
        return message.content
    parts = [_part_json(part) for part in message.content_parts]
    return [{"type": "text", "text": message.content}, *parts] if message.content else parts


def _part_json(part: ContentPart) -> dict[str, Any]:
    if part.type == "text":
        return {"type": "text", "text": part.text}
    if part.type == "file":
        # An uploaded file goes by its id, any other as data.
        source = {"file_data": part.url} if part.url.startswith("data:") else {"file_id": part.url}
        return {"type": "file", "file": source | ({"filename": part.name} if part.name else {})}
    if part.type == "audio" and part.url.startswith("data:"):
        kind, _, data = part.url.removeprefix("data:").partition(";base64,")
        return {"type": "input_audio", "input_audio": {"data": data, "format": kind.rpartition("/")[2]}}
    return {"type": f"{part.type}_url", f"{part.type}_url": {"url": part.url}}


def _call_json(call: ToolCall) -> dict[str, Any]:
    extra = {name: _parsed(text, f"field {name} of a tool call") for name, text in call.extra_fields}
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": call.type, "function": function, **extra}


def _tool_json(tool: ToolSpec) -> dict[str, Any]:
    """The declaration as the source has it, if that is of this form; else made of its parts."""
    declared = _parsed(tool.declaration_json, f"declaration of tool {tool.name}") if tool.declaration_json else {}
    if isinstance(declared, dict) and isinstance(declared.get("function"), dict):
        return declared
    parameters: Any = {"type": "object", "properties": {}}
    if tool.parameters_json:
        parameters = _parsed(tool.parameters_json, f"parameters of tool {tool.name}")
    elif isinstance(declared, dict):
        names = ("parameters", "input_schema", "inputSchema")
        parameters = next((declared[name] for name in names if declared.get(name)), parameters)
    function = {"name": tool.name, "description": tool.description, "parameters": parameters}
    return {"type": "function", "function": function}


def _parsed(text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{what}: not JSON", field=what, hint="mend the declaration") from error


# --- answers --------------------------------------------------------------------------------------------


class AnswerReader(Protocol):
    """Reads one answer."""

    @property
    def is_complete(self) -> bool:
        """The whole answer is there, even if the connection now breaks."""
        ...

    @property
    def is_done(self) -> bool:
        """Nothing that could follow matters."""
        ...

    def feed(self, data: bytes) -> Iterator[Response]:
        """Partial responses that these bytes complete.

        Raises:
            ModelError: what arrives isn't an answer.
        """
        ...

    def finish(self) -> Response:
        """The whole response, after the last byte.

        Raises:
            ModelError: the answer isn't complete, or none.
        """
        ...


class WholeAnswer:
    """Reads an answer that comes as one JSON object."""

    is_complete = False
    is_done = False

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._body = bytearray()

    def feed(self, data: bytes) -> Iterator[Response]:
        self._body += data
        if len(self._body) > MAX_BODY_BYTES:
            raise self._faults.error(f"the answer is longer than {MAX_BODY_BYTES} bytes")
        return iter(())

    def finish(self) -> Response:
        try:
            raw = json.loads(self._body)
        except (ValueError, RecursionError):
            what = f"the answer is {kind_of_body(bytes(self._body[:200]))}"
            raise self._faults.error(what, retryable=True, hint="check the address") from None
        if not isinstance(raw, dict):
            raise self._faults.error("the answer is JSON, but no object", hint="check the address")
        if raw.get("error"):
            raise self._faults.from_answer(raw)
        drafts = [draft for choice in _list(raw.get("choices")) if (draft := _whole_choice(choice)) is not None]
        return _whole_response(drafts, _Head.of(raw), usage_of(raw.get("usage")), self._faults)


class StreamedChoices:
    """The choices of an answer as its chunks arrive."""

    def __init__(self) -> None:
        self._drafts: dict[int, _Draft] = {}
        self._head = _Head()
        self.usage: Usage | None = None

    @property
    def is_complete(self) -> bool:
        """Every choice has said why it ends."""
        return bool(self._drafts) and all(draft.finish_reason for draft in self._drafts.values())

    @property
    def n_chars(self) -> int:
        """Characters of the answer so far."""
        return sum(draft.n_chars for draft in self._drafts.values())

    def add(self, chunk: Mapping[str, Any]) -> list[Response]:
        """Take a chunk in; its texts as partial responses."""
        self._head = self._head.or_from(chunk)
        if chunk.get("usage") is not None:
            self.usage = usage_of(chunk["usage"])
        pieces = []
        for choice in _list(chunk.get("choices")):
            if not isinstance(choice, dict):
                continue
            index = _index(choice.get("index")) or 0
            draft = self._drafts.setdefault(index, _Draft())
            message = draft.add(_dict(choice.get("delta")))
            draft.finish_reason = _text(choice.get("finish_reason")) or draft.finish_reason
            if message.has_payload:
                delta = Choice(delta=message, index=index)
                pieces.append(self._head.response(choices=(delta,), is_partial=True, done=False))
        return pieces

    def response(self) -> Response:
        """All choices so far as one whole response."""
        drafts = [draft for _, draft in sorted(self._drafts.items())]
        choices = tuple(
            Choice(draft.message(), index=i, finish_reason=draft.finish_reason) for i, draft in enumerate(drafts)
        )
        return self._head.response(choices=choices, usage=self.usage)

    def checked_response(self, faults: Faults) -> Response:
        """The whole response of an answer that is one.

        Raises:
            ModelError: it's empty, filtered or broken.
        """
        drafts = [draft for _, draft in sorted(self._drafts.items())]
        return _whole_response(drafts, self._head, self.usage, faults)


class StreamedAnswer:
    """Reads a stream of server-sent events, split by CR and LF only: U+2028 may stand inside JSON (M18)."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._line = bytearray()
        self._after_cr = False
        self._data: list[str] = []
        self._choices = StreamedChoices()
        self.is_done = False

    @property
    def is_complete(self) -> bool:
        return self._choices.is_complete

    @property
    def n_chars(self) -> int:
        """Characters of the answer so far."""
        return self._choices.n_chars

    def feed(self, data: bytes) -> Iterator[Response]:
        for line in self._lines(data):
            if self.is_done:
                return
            yield from self._take(line)

    def _lines(self, data: bytes) -> Iterator[bytes]:
        """Lines that `data` completes; only new bytes are looked at, however long the line is by now."""
        for part in data.splitlines(keepends=True):
            if self._after_cr and part == b"\n":  # CR LF, cut in the middle
                self._after_cr = False
                continue
            self._after_cr = part.endswith(b"\r")
            text = part.rstrip(b"\r\n")
            if len(self._line) + len(text) > MAX_LINE_BYTES:
                raise self._faults.stream(f"has a line longer than {MAX_LINE_BYTES} bytes", self.n_chars)
            self._line += text
            if len(text) < len(part):
                yield bytes(self._line)
                self._line.clear()

    def _take(self, line: bytes) -> Iterator[Response]:
        if not line:
            yield from self._event()
            return
        try:
            name, _, value = line.decode("utf-8").partition(":")
        except UnicodeDecodeError:
            raise self._faults.stream("has a broken chunk (not UTF-8)", self.n_chars) from None
        if name.removeprefix("\ufeff") == "data":  # other fields and comments say nothing here
            self._data.append(value.removeprefix(" "))

    def _event(self) -> Iterator[Response]:
        text = "\n".join(self._data).strip()
        self._data.clear()
        if text == "[DONE]":
            self.is_done = True
        elif text:
            yield from self._chunk(text)

    def _chunk(self, text: str) -> Iterator[Response]:
        try:
            raw = json.loads(text)
        except (ValueError, RecursionError):
            raise self._faults.stream("has a broken chunk (not JSON)", self.n_chars) from None
        if not isinstance(raw, dict):
            raise self._faults.stream("has a broken chunk (no object)", self.n_chars)
        if raw.get("error"):
            raise self._faults.from_answer(raw, received_chars=self.n_chars)
        yield from self._choices.add(raw)

    def finish(self) -> Response:
        if not self.is_done:
            self._end()
        if not self.is_complete:
            raise self._faults.stream("ends without a finish reason", self.n_chars)
        return self._choices.checked_response(self._faults)

    def _end(self) -> None:
        """Take what no line end or blank line follows; some servers leave the last ones out."""
        for line in (bytes(self._line), b""):
            for _ in self._take(line):
                pass  # it becomes part of the whole response, which follows at once


@dataclass(slots=True)
class _Head:
    """What a response says about itself."""

    id: str = ""
    object: str = ""
    model: str = ""
    created: int = 0

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> _Head:
        created = raw.get("created")
        return cls(
            _text(raw.get("id")),
            _text(raw.get("object")),
            _text(raw.get("model")),
            created if isinstance(created, int) and 0 <= created < 2**40 else 0,
        )

    def or_from(self, raw: Mapping[str, Any]) -> _Head:
        """This one, or the one of a first chunk that names itself."""
        return self if self.id or self.model else _Head.of(raw)

    def response(self, **fields: Any) -> Response:
        return Response(id=self.id, object=self.object, model=self.model, created=self.created, **fields)


@dataclass(slots=True)
class _CallDraft:
    id: str = ""
    name: str = ""
    type: str = "function"
    arguments: str = ""
    index: int | None = None
    extra: dict[str, str] = field(default_factory=dict)

    def add(self, raw: Mapping[str, Any]) -> None:
        function = _dict(raw.get("function"))
        self.id = self.id or _text(raw.get("id"))
        self.type = _text(raw.get("type")) or self.type
        self.name += _text(function.get("name"))
        arguments = function.get("arguments")
        # Some servers give the arguments parsed.
        self.arguments += _compact(arguments) if isinstance(arguments, dict | list) else _text(arguments)
        own = {name: _compact(raw[name]) for name in raw.keys() - {"id", "index", "type", "function"}}
        self.extra |= dict(sorted(own.items()))

    def call(self) -> ToolCall:
        return ToolCall(
            id=self.id,
            name=self.name,
            arguments=self.arguments,
            type=self.type,
            index=self.index,
            extra_fields=tuple(self.extra.items()),
        )


@dataclass(slots=True)
class _Draft:
    """One choice as it grows."""

    content: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    refusal: list[str] = field(default_factory=list)
    calls: list[_CallDraft] = field(default_factory=list)
    finish_reason: str = ""
    n_chars: int = 0

    def add(self, raw: Mapping[str, Any]) -> Message:
        """Take a piece in; its text as a message."""
        content = _content_text(raw.get("content"))
        reasoning = _text(raw.get("reasoning_content")) or _text(raw.get("reasoning"))
        self.content.append(content)
        self.reasoning.append(reasoning)
        self.refusal.append(_text(raw.get("refusal")))
        self.n_chars += len(content) + len(reasoning)
        for call in _list(raw.get("tool_calls")):
            if isinstance(call, dict):
                self._add_call(call)
        return Message(role=ASSISTANT, content=content, reasoning_content=reasoning)

    def _add_call(self, raw: Mapping[str, Any]) -> None:
        """A piece belongs to the call of its index; without one, to the last call unless its id is new."""
        index = _index(raw.get("index"))
        draft = next((call for call in self.calls if index is not None and call.index == index), None)
        if draft is None and index is None and self.calls and _text(raw.get("id")) in {"", self.calls[-1].id}:
            draft = self.calls[-1]
        if draft is None:
            draft = _CallDraft(index=index)
            self.calls.append(draft)
        before = len(draft.arguments)
        draft.add(raw)
        self.n_chars += len(draft.arguments) - before

    def message(self) -> Message:
        content = "".join(self.content)
        return Message(
            role=ASSISTANT,
            content=content or "".join(self.refusal),
            reasoning_content="".join(self.reasoning),
            tool_calls=tuple(call.call() for call in self.calls),
        )


def _whole_choice(raw: Any) -> _Draft | None:
    if not isinstance(raw, dict) or not isinstance(raw.get("message"), dict):
        return None
    draft = _Draft(finish_reason=_text(raw.get("finish_reason")))
    draft.add(raw["message"])
    return draft


def _whole_response(drafts: list[_Draft], head: _Head, usage: Usage | None, faults: Faults) -> Response:
    if not drafts:
        raise faults.error("the answer has no choices", retryable=True)
    for draft in drafts:
        if (fault := _fault_of(draft, faults)) is not None:
            raise fault
    choices = tuple(
        Choice(message=draft.message(), index=i, finish_reason=draft.finish_reason) for i, draft in enumerate(drafts)
    )
    return head.response(choices=choices, usage=usage)


def _fault_of(draft: _Draft, faults: Faults) -> ModelError | None:
    """Why a choice that has come to its end is no answer all the same."""
    if draft.finish_reason == "content_filter":
        return faults.filtered()
    if draft.finish_reason == "error":
        return faults.error("the provider gave up in the middle of the answer", retryable=True)
    if draft.finish_reason == "length" and any(not _is_json(call.arguments) for call in draft.calls):
        return faults.stream(
            "reached the output limit inside the arguments of a tool call", draft.n_chars, retryable=False
        )
    return None


def usage_of(raw: Any) -> Usage | None:
    """What a provider reported; None when it reported nothing, or anything that can't be true."""
    if not isinstance(raw, dict):
        return None
    reported = {
        "prompt_tokens": raw.get("prompt_tokens"),
        "completion_tokens": raw.get("completion_tokens"),
        "total_tokens": raw.get("total_tokens"),
        "cached_tokens": _cached(raw),
        "reasoning_tokens": _dict(raw.get("completion_tokens_details")).get("reasoning_tokens"),
        "cache_creation_tokens": raw.get("cache_creation_input_tokens"),
        "cache_read_tokens": raw.get("cache_read_input_tokens"),
    }
    counts = {name: value for name, value in reported.items() if value is not None}
    if not all(type(value) is int and 0 <= value <= _MAX_TOKENS_REPORTED for value in counts.values()):
        return None
    prompt, completion = counts.get("prompt_tokens", 0), counts.get("completion_tokens", 0)
    if counts.get("total_tokens", prompt + completion) < prompt + completion:
        return None
    if counts.get("cached_tokens", 0) > counts.get("prompt_tokens", _MAX_TOKENS_REPORTED):
        return None
    return Usage(**counts) if counts else None


def _cached(raw: Mapping[str, Any]) -> Any:
    """Cached prompt tokens, as OpenAI, Moonshot or DeepSeek name them."""
    details = _dict(raw.get("prompt_tokens_details"))
    places = (details.get("cached_tokens"), raw.get("cached_tokens"), raw.get("prompt_cache_hit_tokens"))
    return next((count for count in places if count is not None), None)


def _text(raw: Any) -> str:
    return raw if isinstance(raw, str) else ""


def _content_text(raw: Any) -> str:
    """A text, or the texts of a list of parts."""
    if isinstance(raw, list):
        return "".join(_text(part.get("text")) for part in raw if isinstance(part, dict))
    return _text(raw)


def _dict(raw: Any) -> dict[str, Any]:
    return raw if isinstance(raw, dict) else {}


def _list(raw: Any) -> list[Any]:
    return raw if isinstance(raw, list) else []


def _index(raw: Any) -> int | None:
    return raw if type(raw) is int and raw >= 0 else None


def _compact(raw: Any) -> str:
    return json.dumps(raw, ensure_ascii=False, separators=(",", ":"))


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
