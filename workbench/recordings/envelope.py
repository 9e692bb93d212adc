"""Rows that wrap a conversation or one logged request: where the messages are, and what stands around them.

In: a row's value, in any of the forms that logs, batch files and data sets use. Out: `Envelope`. The dialects
of chat interfaces (`openai-chat`, `anthropic`) share it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workbench.recordings.chat import tools_from_chat
from workbench.recordings.draft import Draft
from workbench.recordings.problems import FaultyRecordError, kind_of
from workbench.recordings.reading import SESSION_KEYS, own_id
from workbench.recordings.types import Conversation

TIME_KEYS = ("timestamp", "created_at", "time", "created")
_BODY_KEYS = ("request", "body", "input", "kwargs", "params")
_KEPT_KEYS = ("metadata", "probes", "labels")


@dataclass(frozen=True, slots=True)
class Envelope:
    """One row, whatever form it has."""

    messages: list[Any]
    outer: Mapping[str, Any]
    """The row itself: ids, times and usage are looked up here first."""
    body: Mapping[str, Any]
    """Where `messages` was found."""
    answer: Any = None
    """The response that goes with a logged request."""

    def field(self, *names: str) -> Any:
        """The first of these fields that the row or its body has."""
        for part in (self.outer, self.body):
            for name in names:
                if part.get(name) is not None:
                    return part[name]
        return None

    def own_id(self, *names: str) -> str:
        """The first of these ids that the row or its body has.

        Raises:
            FaultyRecordError: it's blank.
        """
        return own_id(self.outer, *names) or own_id(self.body, *names)

    def session_id(self) -> str:
        """The session that a logged request names, in the row or in its metadata; empty without one.

        Raises:
            FaultyRecordError: it's blank.
        """
        session_id = self.own_id(*SESSION_KEYS)
        metadata = self.field("metadata")
        return own_id(metadata, *SESSION_KEYS) if not session_id and isinstance(metadata, dict) else session_id

    def finish(self, draft: Draft, format_name: str, *, wanted_id: str) -> Conversation:
        """The conversation of a draft, with what stands around its messages.

        Raises:
            FaultyRecordError: something there can't be used.
        """
        return draft.finish(
            format_name,
            wanted_id=wanted_id,
            user_id=self.own_id("user_id", "user"),
            model=text_or_empty(self.field("model")),
            tools=tools_from_chat(self.field("tools", "functions")),
            metadata={key: self.outer[key] for key in _KEPT_KEYS if self.outer.get(key)},
        )


def body_of(value: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The object that holds `messages`: the row, or the request inside a log or batch row."""
    if "messages" in value:
        return value
    for name in _BODY_KEYS:
        inner = value.get(name)
        if isinstance(inner, dict):
            found = body_of(inner) if name != "input" or "messages" in inner else None
            if found is not None:
                return found
    return None


def messages_of(value: Any) -> tuple[Mapping[str, Any], list[Any]]:
    """The body of a row and its messages.

    Raises:
        FaultyRecordError: no messages there (B08 and its kind).
    """
    if not isinstance(value, dict):
        raise FaultyRecordError(f"expected an object, got {kind_of(value)}")
    body = body_of(value)
    if body is None:
        raise FaultyRecordError("no messages", 'expected a "messages" list')
    messages = body["messages"]
    if not isinstance(messages, list):
        raise FaultyRecordError(f"messages is {kind_of(messages)}, expected an array")
    return body, messages


def text_or_empty(value: Any) -> str:
    """The value if it's a text."""
    return value if isinstance(value, str) else ""
