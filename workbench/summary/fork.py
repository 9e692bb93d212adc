"""The cache-safe request: the parent's own messages, then one instruction (SUM-REQ-02 to -06).

In: the main agent's request. Out: a request with the same prefix, so that a provider's prompt cache serves
it; and the steps that make one smaller. The parent is never changed: its values are frozen and shared.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

from workbench.errors import SummaryError
from workbench.model.types import SYSTEM, TOOL, USER, Message, Request
from workbench.wording import OMITTED_ARGUMENTS, OMITTED_RESULT_HEAD, OMITTED_RESULT_TAIL


def fork_request(parent: Request, instruction: str) -> Request:
    """The parent with `instruction` as one more user message; no stream, no structured output (SUM-REQ-03).

    Raises:
        SummaryError: the parent holds no conversation (SUM-REQ-04).
    """
    if not has_conversation(parent.messages):
        raise SummaryError("the parent request holds no conversation to summarize")
    return parent.replace(
        messages=(*parent.messages, Message(role=USER, content=instruction)),
        generation_config=replace(parent.generation_config, stream=False),
        structured_output=None,
        headers=deepcopy(dict(parent.headers)),
        extra_fields=deepcopy(dict(parent.extra_fields)),
    )


def has_conversation(messages: tuple[Message, ...]) -> bool:
    """Some message that isn't a system message has text, parts or tool calls."""
    return any(
        message.role != SYSTEM and bool(message.content.strip() or message.content_parts or message.tool_calls)
        for message in messages
    )


def source_rounds(messages: tuple[Message, ...]) -> list[list[int]]:
    """Indices of the source rounds of a fork, without the instruction at its end (SUM-FIT-11).

    A round starts at each user message; what stands before the first one opens the first round; system
    messages belong to none.
    """
    rounds: list[list[int]] = []
    for index, message in enumerate(messages[:-1]):
        if message.role == SYSTEM:
            continue
        if message.role == USER or not rounds:
            rounds.append([])
        rounds[-1].append(index)
    return rounds


def without_oldest_round(request: Request) -> Request | None:
    """The fork without its oldest source round; None when only the latest is left."""
    rounds = source_rounds(request.messages)
    if len(rounds) <= 1:
        return None
    dropped = set(rounds[0])
    return request.replace(messages=tuple(m for i, m in enumerate(request.messages) if i not in dropped))


def with_payload_omitted(message: Message) -> Message | None:
    """A tool result or a message with tool calls without its payload; ids, names and pairing stay
    (SUM-FIT-07). None for any other message."""
    if message.role == TOOL and message.tool_id:
        fields = f'tool_name="{message.tool_name}", tool_call_id="{message.tool_id}"'
        note = f"{OMITTED_RESULT_HEAD}{fields}{OMITTED_RESULT_TAIL}"
        return replace(message, content=note, content_parts=(), reasoning_content="", reasoning_signature="")
    if any(call.arguments for call in message.tool_calls):
        calls = tuple(
            replace(call, arguments=OMITTED_ARGUMENTS) if call.arguments else call for call in message.tool_calls
        )
        return replace(message, tool_calls=calls)
    return None


def with_message(request: Request, index: int, message: Message) -> Request:
    """The request with one message in another's place."""
    return request.replace(messages=(*request.messages[:index], message, *request.messages[index + 1 :]))


def payload_chars(message: Message) -> int:
    """Characters that payload omission would take from a message."""
    if message.role == TOOL:
        return len(message.content) + sum(len(part.text) for part in message.content_parts)
    return sum(len(call.arguments) for call in message.tool_calls)


def source_chars(messages: tuple[Message, ...]) -> int:
    """Characters of text, parts and arguments in messages."""
    return sum(
        len(message.content)
        + sum(len(part.text) for part in message.content_parts)
        + sum(len(call.arguments) for call in message.tool_calls)
        for message in messages
    )
