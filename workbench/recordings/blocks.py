"""Content blocks as Anthropic's messages interface has them, and its usage.

In: the content of one message, or a usage object. Out: `Blocks`, sorted by kind, and `Usage` in the engine's
meaning. Input, cache writes and cache reads are disjoint there; here `prompt_tokens` is their sum (WB-REC-07).
"""

from __future__ import annotations

from typing import Any

from workbench.model.types import ASSISTANT, ContentPart, Message, ToolCall, Usage
from workbench.recordings.chat import arguments_text, check_usage, compact_json, token_count
from workbench.recordings.problems import FaultyRecordError, kind_of, quoted

_MEDIA = {"image": "image", "document": "file"}
# What a provider's own tools did stands inside the answer; no other model's messages have a place for it.
_SERVER_SIDE = frozenset(("server_tool_use", "mcp_tool_use", "mcp_tool_result", "search_result", "container_upload"))
BLOCK_TYPES = frozenset(("tool_use", "tool_result", "thinking", "redacted_thinking", *_SERVER_SIDE))
"""Types of blocks that only this interface has."""


class Blocks:
    """The content blocks of a message, sorted by kind."""

    def __init__(self, content: Any, number: int) -> None:
        self.texts: list[str] = []
        self.parts: list[ContentPart] = []
        self.calls: list[ToolCall] = []
        self.results: list[tuple[str, str]] = []
        self.thinking: list[str] = []
        self.signature = ""
        self.n_server_side = 0
        if content is None:
            raise FaultyRecordError(f"message {number} has neither content nor tool calls")
        if isinstance(content, str):
            self.texts.append(content)
            return
        if not isinstance(content, list):
            raise FaultyRecordError(f"message {number}: content is {kind_of(content)}, expected text or parts")
        for place, block in enumerate(content, 1):
            self._take(block, number, place)

    @property
    def text(self) -> str:
        """What was said, in one text."""
        return "\n\n".join(text for text in self.texts if text)

    def answer(self) -> Message:
        """All of it as the model's message."""
        return Message(
            role=ASSISTANT,
            content=self.text,
            content_parts=tuple(self.parts),
            tool_calls=tuple(self.calls),
            reasoning_content="\n\n".join(self.thinking),
            reasoning_signature=self.signature,
        )

    def _take(self, block: Any, number: int, place: int) -> None:
        kind = block.get("type") if isinstance(block, dict) else None
        if not isinstance(kind, str):
            raise FaultyRecordError(f"message {number}, part {place} is {kind_of(block)} without a type")
        if kind == "text":
            self.texts.append(str(block.get("text") or ""))
        elif kind == "thinking":
            self.thinking.append(str(block.get("thinking") or ""))
            self.signature = str(block.get("signature") or "")
        elif kind == "redacted_thinking":
            self.signature = str(block.get("data") or "")
        elif kind == "tool_use":
            call_id, name = str(block.get("id") or ""), str(block.get("name") or "")
            self.calls.append(ToolCall(id=call_id, name=name, arguments=arguments_text(block.get("input"))))
        elif kind == "tool_result":
            self.results.append((str(block.get("tool_use_id") or ""), _result_text(block.get("content"))))
        elif kind in _MEDIA:
            source = block.get("source")
            data = source.get("data") or source.get("url") if isinstance(source, dict) else ""
            self.parts.append(ContentPart(type=_MEDIA[kind], url=str(data or "")))
        elif kind in _SERVER_SIDE or kind.endswith("_tool_result"):
            self.texts.append(compact_json(block))
            self.n_server_side += 1
        else:
            raise FaultyRecordError(f"message {number}, part {place}: type {quoted(kind)} is not known")


def _result_text(content: Any) -> str:
    """The text of a tool result; what isn't text stays as JSON."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        texts = [
            block["text"] if isinstance(block, dict) and isinstance(block.get("text"), str) else compact_json(block)
            for block in content
        ]
        return "\n".join(texts)
    return compact_json(content)


def usage_from_blocks(raw: Any) -> tuple[Usage | None, dict[str, int]]:
    """Usage in the engine's meaning, and cache writes by lifetime where the source tells them apart.

    Raises:
        FaultyRecordError: a count can't be one.
    """
    if raw is None:
        return None, {}
    if not isinstance(raw, dict):
        raise FaultyRecordError(f"usage is {kind_of(raw)}, expected an object")
    fresh = token_count(raw, "input", "input_tokens")
    written = token_count(raw, "cache creation", "cache_creation_input_tokens")
    read = token_count(raw, "cache read", "cache_read_input_tokens")
    output = token_count(raw, "output", "output_tokens")
    reported = [n for n in (fresh, written, read) if n is not None]
    usage = Usage(
        prompt_tokens=sum(reported) if reported else None,
        completion_tokens=output,
        cached_tokens=read,
        cache_creation_tokens=written,
        cache_read_tokens=read,
    )
    check_usage(usage)
    split = raw.get("cache_creation")
    lifetimes = {
        name: n for name in ("ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens")
        if (n := token_count(split, name, name)) is not None
    }  # fmt: skip
    return (None if usage == Usage() else usage), lifetimes
