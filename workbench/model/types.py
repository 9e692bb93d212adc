"""Messages, requests and responses: values, with predicates and nothing else.

In: what a recording, a store or a provider says. Out: frozen slotted dataclasses that are shared, never
copied (ASM-CHAIN-04). Implements SUM-DM-01 to -04. JSON forms live with the readers and stores.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

SYSTEM = "system"
USER = "user"
ASSISTANT = "assistant"
TOOL = "tool"
ROLES = (SYSTEM, USER, ASSISTANT, TOOL)


@dataclass(frozen=True, slots=True)
class ContentPart:
    """One part of a message: `type` is text, image, audio, video or file."""

    type: str
    text: str = ""
    url: str = ""
    """Address or data of a part that isn't text."""
    name: str = ""
    """File name, for parts of type file."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call the model asks for; `arguments` is the raw JSON text (SUM-DM-02)."""

    id: str = ""
    name: str = ""
    arguments: str = ""
    type: str = "function"
    description: str = ""
    strict: bool | None = None
    index: int | None = None
    extra_fields: tuple[tuple[str, str], ...] = ()
    """Name and JSON text of fields a provider added."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a request or of a response (SUM-DM-01)."""

    role: str = ""
    content: str = ""
    content_parts: tuple[ContentPart, ...] = ()
    tool_id: str = ""
    """Id of the call that a tool message answers."""
    tool_name: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    reasoning_content: str = ""
    reasoning_signature: str = ""

    @property
    def is_user_like(self) -> bool:
        """Role is user or empty."""
        return self.role in ("", USER)

    @property
    def has_payload(self) -> bool:
        """Has content, content parts or reasoning text."""
        return bool(self.content or self.content_parts or self.reasoning_content)


EMPTY_MESSAGE = Message()


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the provider reported them; None means "not reported", which isn't 0 (WB-REC-07)."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    cached_tokens: int | None = None
    """Part of `prompt_tokens` that was read from the prompt cache."""
    cache_creation_tokens: int | None = None
    cache_read_tokens: int | None = None
    reasoning_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """One answer; streams use `delta`, whole answers use `message`."""

    message: Message = EMPTY_MESSAGE
    delta: Message = EMPTY_MESSAGE
    index: int = 0
    finish_reason: str = ""


@dataclass(frozen=True, slots=True)
class ResponseError:
    """An error that came inside a response."""

    type: str = ""
    message: str = ""
    code: str = ""
    param: str = ""


@dataclass(frozen=True, slots=True)
class Response:
    """What a model call or a tool round produced (SUM-DM-03)."""

    choices: tuple[Choice, ...] = ()
    id: str = ""
    object: str = ""
    model: str = ""
    usage: Usage | None = None
    error: ResponseError | None = None
    created: int = 0
    """Seconds since 1970, as the provider gave them."""
    time_ns: int = 0
    done: bool = True
    is_partial: bool = False

    @property
    def is_tool_call(self) -> bool:
        """The first choice asks for tools."""
        if not self.choices:
            return False
        first = self.choices[0]
        return bool(first.message.tool_calls or first.delta.tool_calls)

    @property
    def is_tool_result(self) -> bool:
        """The first choice answers a call."""
        if not self.choices:
            return False
        first = self.choices[0]
        return bool(first.message.tool_id or first.delta.tool_id)

    @property
    def is_user_message(self) -> bool:
        """Any choice has role user."""
        return any(USER in (choice.message.role, choice.delta.role) for choice in self.choices)

    @property
    def is_valid_content(self) -> bool:
        """Tool call, tool result, or any choice with a payload (SUM-DM-04)."""
        if not self.choices:
            return False
        if self.is_tool_call or self.is_tool_result:
            return True
        return any(choice.message.has_payload or choice.delta.has_payload for choice in self.choices)

    @property
    def is_final(self) -> bool:
        """Whole, done, no tool call, with choices or an error."""
        if self.is_partial or self.is_tool_call or not self.done:
            return False
        return bool(self.choices or self.error)


def response_of(*messages: Message, **facts: Any) -> Response:
    """A whole response with one choice per message."""
    return Response(choices=tuple(Choice(message, index=i) for i, message in enumerate(messages)), **facts)


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """What a model is told about one tool."""

    name: str
    description: str = ""
    parameters_json: str = ""
    """JSON schema of the arguments, as text."""
    declaration_json: str = ""
    """The whole declaration as JSON text, when the source has it; else derived."""
    output_json: str = ""


@dataclass(frozen=True, slots=True)
class GenerationConfig:
    """How the model shall generate; None leaves the provider's default."""

    stream: bool = False
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop: tuple[str, ...] = ()
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    reasoning_effort: str | None = None
    thinking_enabled: bool | None = None
    thinking_tokens: int | None = None


DEFAULT_GENERATION = GenerationConfig()


@dataclass(frozen=True, slots=True)
class Request:
    """One model call. Messages, tools and mappings are shared and must not be changed; use `replace`.

    Headers and extra fields may hold keys, so no `repr` shows them (SEC-08).
    """

    messages: tuple[Message, ...] = ()
    tools: tuple[ToolSpec, ...] = ()
    generation_config: GenerationConfig = DEFAULT_GENERATION
    structured_output: Mapping[str, Any] | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    extra_fields: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def replace(self, **changes: Any) -> Request:
        """A copy with other fields."""
        return replace(self, **changes)

    @property
    def n_messages(self) -> int:
        """How many messages there are."""
        return len(self.messages)

    def message_at(self, index: int) -> Message:
        """One message."""
        return self.messages[index]

    def messages_from(self, index: int) -> list[Message]:
        """The messages from `index` on."""
        return list(self.messages[index:])
