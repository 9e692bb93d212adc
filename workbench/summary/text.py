"""Conversation text: what a summary model reads of the events.

In: events and two formatters for tool calls and results. Out: one block `author: text` per item, joined by
newlines, and the reasoning texts that count for thresholds only. Implements SUM-TXT-01 to -07 (summary.md,
section 7).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from workbench.model.types import USER, Message, ToolCall
from workbench.session.types import Event

ToolCallFormatter = Callable[[ToolCall], str]
"""A tool call as text; the empty text leaves it out."""
ToolResultFormatter = Callable[[Message], str]
"""A tool message as text; the empty text leaves it out."""

UNKNOWN_AUTHOR = "unknown"
_EMPTY_ARGUMENTS = ("", "{}")


def tool_call_text(call: ToolCall) -> str:
    """`[Called tool: NAME with args: ARGS]`; empty for a call without a name (SUM-TXT-04)."""
    if not call.name:
        return ""
    if call.arguments in _EMPTY_ARGUMENTS:
        return f"[Called tool: {call.name}]"
    return f"[Called tool: {call.name} with args: {call.arguments}]"


def tool_result_text(message: Message) -> str:
    """`[NAME returned: CONTENT]`; empty for blank content (SUM-TXT-05)."""
    content = message.content.strip()
    return f"[{message.tool_name or 'tool'} returned: {content}]" if content else ""


@dataclass(frozen=True, slots=True)
class Formatters:
    """How tool calls and tool results are put into words."""

    tool_call: ToolCallFormatter = tool_call_text
    tool_result: ToolResultFormatter = tool_result_text


DEFAULT_FORMATTERS = Formatters()


def formatters_of(
    tool_call: ToolCallFormatter | None = None, tool_result: ToolResultFormatter | None = None
) -> Formatters:
    """The given formatters, the built-in one for each that is None."""
    if tool_call is None and tool_result is None:
        return DEFAULT_FORMATTERS
    return Formatters(tool_call or tool_call_text, tool_result or tool_result_text)


def event_items(event: Event, formatters: Formatters = DEFAULT_FORMATTERS) -> Iterator[str]:
    """The non-empty texts of an event in order, all choices: calls, then the result or else the content."""
    for message in event.messages:
        for call in message.tool_calls:
            if text := formatters.tool_call(call):
                yield text
        text = formatters.tool_result(message) if message.tool_id else message.content.strip()
        if text:
            yield text


def event_blocks(event: Event, formatters: Formatters = DEFAULT_FORMATTERS) -> list[str]:
    """The line blocks of an event, each labelled with its author."""
    label = event.author or UNKNOWN_AUTHOR
    return [f"{label}: {text}" for text in event_items(event, formatters)]


def conversation_text(events: Iterable[Event], formatters: Formatters = DEFAULT_FORMATTERS) -> str:
    """All line blocks of the events, joined by newlines."""
    return "\n".join(block for event in events for block in event_blocks(event, formatters))


def reasoning_texts(event: Event) -> list[str]:
    """The reasoning texts of an event, stripped, blank ones left out; never part of the conversation text."""
    return [text for message in event.messages if (text := message.reasoning_content.strip())]


def reasoning_text(events: Iterable[Event]) -> str:
    """All reasoning texts of the events, joined by newlines."""
    return "\n".join(text for event in events for text in reasoning_texts(event))


def has_summarizable_content(events: Iterable[Event], formatters: Formatters = DEFAULT_FORMATTERS) -> bool:
    """Some item of the events has text under these formatters (SUM-TXT-07)."""
    return any(True for event in events for _ in event_items(event, formatters))


def has_text(event: Event) -> bool:
    """The content of any choice isn't blank; calls and reasoning don't count."""
    return any(message.content.strip() for message in event.messages)


def has_user_text(events: Iterable[Event]) -> bool:
    """Some event whose author is the user says something."""
    return any(event.author == USER and has_text(event) for event in events)
