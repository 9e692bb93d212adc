"""Prompt parts and prefixes: what of a request a prompt cache could have seen before.

In: requests of one conversation, in order. Out: per request its parts' tokens, the leading tokens that equal
an earlier request, and where the two first differ. Implements WB-CACHE-01 and -01a. Requests share message
objects, so only parts that are new to the conversation are serialised and tokenized; comparing whole texts is
the test oracle (`common_prefix_tokens`).
"""

from __future__ import annotations

import json
from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass, field

from workbench.model.types import Message, ToolSpec
from workbench.tokens import LineCounter


def tools_text(tools: Sequence[ToolSpec]) -> str:
    """All tool declarations as one part: compact JSON with sorted keys; empty without tools."""
    if not tools:
        return ""
    return json.dumps([_declaration(tool) for tool in tools], ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def _declaration(tool: ToolSpec) -> object:
    if tool.declaration_json:
        return json.loads(tool.declaration_json)
    parameters = json.loads(tool.parameters_json) if tool.parameters_json else {}
    function = {"name": tool.name, "description": tool.description, "parameters": parameters}
    return {"type": "function", "function": function}


def part_text(message: Message) -> str:
    """One message as it is tokenized: role, content, parts, reasoning, calls, name and call id, in this order."""
    pieces = [f"<|{message.role}|>\n{message.content}"]
    pieces += [
        part.text if part.type == "text" else f"<|{part.type}|>{part.name or part.url[:200]}"
        for part in message.content_parts
    ]
    if message.reasoning_content:
        pieces.append(message.reasoning_content)
    if message.tool_calls:
        calls = [{"arguments": c.arguments, "id": c.id, "name": c.name, "type": c.type} for c in message.tool_calls]
        pieces.append(json.dumps(calls, ensure_ascii=False, sort_keys=True, separators=(",", ":")))
    if message.tool_name or message.tool_id:
        pieces.append(f"{message.tool_name} {message.tool_id}")
    return "\n".join(pieces) + "\n"


@dataclass(slots=True)
class _Node:
    """A part in the tree of all requests seen so far; its path from the root is a prefix."""

    tokens: int
    """Tokens of the whole path."""
    children: dict[str, _Node] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)
    """The children's texts in order: the one that shares most with another text is its neighbour there."""


@dataclass(frozen=True, slots=True)
class Prefix:
    """How much of a request was there before."""

    tokens: int
    """Leading tokens equal to an earlier request."""
    reusable_tokens: int
    """Tokens of the longest earlier request."""
    n_parts: int
    """Leading parts that are equal as a whole."""


class PrefixTree:
    """All requests seen so far, as a tree of parts.

    `observe` costs time for the parts behind those shared with the request before, not for the whole request.
    """

    def __init__(self, counter: LineCounter) -> None:
        self._counter = counter
        self._root = _Node(0)
        self._path: list[_Node] = [self._root]
        self._longest = 0
        self._is_empty = True

    def seed(self, texts: Sequence[str]) -> None:
        """Let a request of another conversation count as seen (`cache.scope = corpus`)."""
        node = self._root
        for text in texts:
            node = self._child(node, text)
        self._longest = max(self._longest, node.tokens)
        self._is_empty = False

    def observe(self, n_shared: int, new_texts: Sequence[str]) -> Prefix | None:
        """Add a request that shares its first `n_shared` parts with the one before.

        Returns:
            Its prefix, None for the first request of all.
        """
        del self._path[n_shared + 1 :]
        node = self._path[-1]
        prefix = None if self._is_empty else self._prefix(node, n_shared, new_texts)
        for text in new_texts:
            node = self._child(node, text)
            self._path.append(node)
        self._longest = max(self._longest, node.tokens)
        self._is_empty = False
        return prefix

    def match(self, texts: Sequence[str]) -> int:
        """Leading tokens of a request that an earlier one has, whole parts only; nothing is added."""
        node = self._root
        for text in texts:
            child = node.children.get(text)
            if child is None:
                break
            node = child
        return node.tokens

    @property
    def total_tokens(self) -> int:
        """Tokens of the newest request."""
        return self._path[-1].tokens

    def _child(self, node: _Node, text: str) -> _Node:
        child = node.children.get(text)
        if child is None:
            child = node.children[text] = _Node(node.tokens + self._counter.count_text(text))
            insort(node.texts, text)
        return child

    def _prefix(self, node: _Node, n_shared: int, new_texts: Sequence[str]) -> Prefix:
        n_parts = n_shared
        for text in new_texts:
            child = node.children.get(text)
            if child is None:
                break
            node = child
            n_parts += 1
        tokens = node.tokens
        if n_parts < n_shared + len(new_texts) and node.children:
            text = new_texts[n_parts - n_shared]
            place = bisect_left(node.texts, text)
            neighbours = node.texts[max(place - 1, 0) : place + 1]
            common = max((common_text(text, other) for other in neighbours), key=len)
            tokens += self._counter.count_text(common)
        return Prefix(tokens, self._longest, n_parts)


def common_text(text: str, other: str) -> str:
    """What two parts of the same role begin with, cut back to the last newline; empty for different roles."""
    if text[: text.index("\n") + 1 if "\n" in text else 0] != other[: other.index("\n") + 1 if "\n" in other else 0]:
        return ""
    low, high = 0, min(len(text), len(other))
    while low < high:  # slices compare at memcmp speed; a loop over characters would not
        middle = (low + high + 1) // 2
        if text[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return text[: text.rfind("\n", 0, low) + 1]


def common_prefix_tokens(texts: Sequence[str], earlier: Sequence[Sequence[str]], counter: LineCounter) -> int:
    """The slow and obvious answer to the same question, over whole lists of part texts; for tests."""
    best = 0
    for other in earlier:
        tokens = 0
        for i, text in enumerate(texts):
            if i < len(other) and other[i] == text:
                tokens += counter.count_text(text)
                continue
            if i < len(other):
                tokens += counter.count_text(common_text(text, other[i]))
            break
        best = max(best, tokens)
    return best
