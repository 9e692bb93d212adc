"""Entries of a cassette: what was asked, reduced to what decides an answer, and what was answered.

In: requests and responses. Out: JSON objects of an allow-list of fields, and back; a key and a checksum per entry;
the first field in which two requests differ (WB-RPL-07, REL-15). Headers, extra fields and keys aren't on the
list (SEC-08).
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_left
from dataclasses import asdict, dataclass
from typing import Any

from workbench.errors import ContentFilterError, ContextLengthError, ModelError
from workbench.model.types import (
    Choice,
    ContentPart,
    Message,
    Request,
    Response,
    ResponseError,
    ToolCall,
    Usage,
)

# Failures that are the model's answer to this very request; all others say nothing about it and aren't kept.
_KEPT_FAILURES: dict[str, type[ModelError]] = {
    "context_length": ContextLengthError,
    "content_filter": ContentFilterError,
}

# --- what was asked -------------------------------------------------------------------------------------


def canonical_json(value: Any) -> str:
    """The one text of a JSON value: sorted keys, no space, ASCII only."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def request_fields(model: str, request: Request) -> dict[str, Any]:
    """The fields of a request that decide what a model answers; nothing else is looked at.

    Whether the answer comes as a stream isn't one of them.
    """
    config = asdict(request.generation_config) | {"stream": None, "stop": list(request.generation_config.stop)}
    config = _filled(config)
    fields: dict[str, Any] = {"model": model, "messages": [_message_fields(message) for message in request.messages]}
    if request.tools:
        fields["tools"] = [_filled(asdict(tool)) for tool in request.tools]
    if config:
        fields["generation_config"] = config
    if request.structured_output is not None:
        fields["structured_output"] = dict(request.structured_output)
    return fields


def request_key(fields: dict[str, Any]) -> str:
    """sha256 of a request's canonical fields."""
    return hashlib.sha256(canonical_json(fields).encode()).hexdigest()


def _message_fields(message: Message) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "role": message.role,
        "content": message.content,
        "content_parts": [_filled(asdict(part)) for part in message.content_parts],
        "tool_id": message.tool_id,
        "tool_name": message.tool_name,
        "tool_calls": [_call_fields(call) for call in message.tool_calls],
        "reasoning_content": message.reasoning_content,
        "reasoning_signature": message.reasoning_signature,
    }
    return _filled(fields)


def _call_fields(call: ToolCall) -> dict[str, Any]:
    extra = [list(pair) for pair in call.extra_fields]
    fields = {"id": call.id, "name": call.name, "arguments": call.arguments, "type": call.type, "extra_fields": extra}
    return _filled(fields)


def _filled(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value not in ("", [], None)}


# --- what was answered ----------------------------------------------------------------------------------


def response_fields(response: Response) -> dict[str, Any]:
    """A response as a JSON object; its time isn't part of what was answered."""
    fields: dict[str, Any] = {
        "id": response.id,
        "object": response.object,
        "model": response.model,
        "created": response.created or None,
        "choices": [_choice_fields(choice) for choice in response.choices],
        "usage": None if response.usage is None else _filled(asdict(response.usage)),
        "error": None if response.error is None else _filled(asdict(response.error)),
        "is_partial": response.is_partial or None,
        "done": None if response.done else False,
    }
    return _filled(fields)


def _choice_fields(choice: Choice) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "index": choice.index or None,
        "message": _message_fields(choice.message) or None,
        "delta": _message_fields(choice.delta) or None,
        "finish_reason": choice.finish_reason,
    }
    return _filled(fields)


def response_of_fields(raw: dict[str, Any]) -> Response:
    """The response of such an object."""
    return Response(
        choices=tuple(
            Choice(
                message=_message_of(choice.get("message", {})),
                delta=_message_of(choice.get("delta", {})),
                index=choice.get("index", 0),
                finish_reason=choice.get("finish_reason", ""),
            )
            for choice in raw.get("choices", ())
        ),
        id=raw.get("id", ""),
        object=raw.get("object", ""),
        model=raw.get("model", ""),
        usage=Usage(**raw["usage"]) if "usage" in raw else None,
        error=ResponseError(**raw["error"]) if "error" in raw else None,
        created=raw.get("created", 0),
        done=raw.get("done", True),
        is_partial=raw.get("is_partial", False),
    )


def _message_of(raw: dict[str, Any]) -> Message:
    parts = tuple(ContentPart(**part) for part in raw.get("content_parts", ()))
    calls = tuple(
        ToolCall(**{**call, "extra_fields": tuple((name, text) for name, text in call.get("extra_fields", ()))})
        for call in raw.get("tool_calls", ())
    )
    return Message(**{**raw, "content_parts": parts, "tool_calls": calls})


def is_kept(response: Response) -> bool:
    """A partial response that only has deltas isn't kept: the whole one repeats them (SUM-CALL-01)."""
    return not response.is_partial or any(choice.message.has_payload for choice in response.choices)


@dataclass(frozen=True, slots=True)
class Entry:
    """One request with its answer, or with the way in which the model refused it."""

    request: dict[str, Any]
    responses: tuple[Response, ...] = ()
    failure: ModelError | None = None
    duration_s: float = 0.0
    context_window: int = 0
    """Of the model that answered; 0 = unknown."""
    line: int = 0

    @property
    def key(self) -> str:
        """sha256 of the request."""
        return request_key(self.request)

    @property
    def model(self) -> str:
        """Name of the model that was asked."""
        return str(self.request.get("model", ""))

    def play(self) -> tuple[Response, ...]:
        """The responses.

        Raises:
            ContextLengthError, ContentFilterError: what the model answered then.
        """
        if self.failure is not None:
            raise copy_of(self.failure)
        return self.responses

    def fields(self) -> dict[str, Any]:
        """The entry as a JSON object, with its checksum."""
        fields: dict[str, Any] = {"request": self.request, "duration_s": self.duration_s}
        if self.context_window:
            fields["context_window"] = self.context_window
        if self.failure is None:
            fields["responses"] = [response_fields(response) for response in self.responses]
        else:
            fields["failure"] = _failure_fields(self.failure)
        return {"key": self.key, **fields, "check": _checksum(fields)}

    def agrees_with(self, other: Entry) -> bool:
        """Has the same answer, whenever and however long it was given."""
        left, right = self.fields(), other.fields()
        return all(left.get(name) == right.get(name) for name in ("responses", "failure"))

    @classmethod
    def of(cls, raw: Any, line: int) -> Entry:
        """An entry read from a file.

        Raises:
            KeyError, TypeError, ValueError, AttributeError: it hasn't the form of one, or its checksum is wrong.
        """
        fields = {name: value for name, value in raw.items() if name not in {"key", "check"}}
        if raw["check"] != _checksum(fields) or raw["key"] != request_key(fields["request"]):
            raise ValueError("it was changed after it had been recorded")
        return cls(
            request=fields["request"],
            responses=tuple(response_of_fields(response) for response in fields.get("responses", ())),
            failure=_failure_of(fields["failure"]) if "failure" in fields else None,
            duration_s=float(fields["duration_s"]),
            context_window=int(fields.get("context_window", 0)),
            line=line,
        )


def _checksum(fields: dict[str, Any]) -> str:
    return hashlib.sha256(canonical_json(fields).encode()).hexdigest()[:16]


def _failure_fields(failure: ModelError) -> dict[str, Any]:
    kind = next(kind for kind, error in _KEPT_FAILURES.items() if isinstance(failure, error))
    fields: dict[str, Any] = {"kind": kind, "message": str(failure), "hint": failure.hint}
    if isinstance(failure, ContextLengthError):
        fields |= {"needed_tokens": failure.needed_tokens, "max_tokens": failure.max_tokens}
    return _filled(fields)


def _failure_of(raw: dict[str, Any]) -> ModelError:
    facts = {name: value for name, value in raw.items() if name not in {"kind", "message"}}
    return _KEPT_FAILURES[raw["kind"]](raw["message"], **facts)


def copy_of(failure: ModelError) -> ModelError:
    """The same error anew: a raised one carries the traceback of where it was raised."""
    return _failure_of(_failure_fields(failure))


# --- what differs ---------------------------------------------------------------------------------------


def common_start(left: str, right: str) -> int:
    """Characters that two texts share from the start."""
    n_chars = min(len(left), len(right))
    if left[:n_chars] == right[:n_chars]:
        return n_chars
    return bisect_left(range(1, n_chars + 1), x=True, key=lambda n: left[:n] != right[:n])


def first_difference(left: Any, right: Any, path: str = "") -> tuple[str, int | None] | None:
    """Path of the first field in which two JSON values differ, and where in its text; None when they don't.

    The model comes first, then what was said in order, then everything else by name.
    """
    if isinstance(left, dict) and isinstance(right, dict):
        for name in sorted({*left, *right}, key=lambda name: (_FIELD_ORDER.get(name, len(_FIELD_ORDER)), name)):
            found = first_difference(left.get(name), right.get(name), f"{path}.{name}" if path else name)
            if found is not None:
                return found
        return None
    if isinstance(left, list) and isinstance(right, list):
        for i, (one, other) in enumerate(zip(left, right, strict=False)):
            if (found := first_difference(one, other, f"{path}[{i}]")) is not None:
                return found
        return None if len(left) == len(right) else (f"{path}[{min(len(left), len(right))}]", None)
    if left == right and type(left) is type(right):
        return None
    if isinstance(left, str) and isinstance(right, str):
        return path, common_start(left, right)
    return path, None


_FIELD_ORDER = {name: i for i, name in enumerate(("model", "messages", "role", "content"))}
