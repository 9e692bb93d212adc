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
from dataclasses import dataclass

from workbench.model.types import Message, ToolSpec
from workbench.tokens import LineCounter

# `json.dumps` makes an encoder for each call that isn't by the defaults.
_compact_json = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode


def tools_text(tools: Sequence[ToolSpec]) -> str:
    """All tool declarations as one part: compact JSON with sorted keys; empty without tools."""
    if not tools:
        return ""
    return _compact_json([_declaration(tool) for tool in tools])


def _declaration(tool: ToolSpec) -> object:
    if tool.declaration_json:
        return json.loads(tool.declaration_json)
    parameters = json.loads(tool.parameters_json) if tool.parameters_json else {}
    function = {"name": tool.name, "description": tool.description, "parameters": parameters}
    return {"type": "function", "function": function}


def part_text(message: Message) -> str:
    """One message as it is tokenized: role, content, parts, reasoning, calls, name and call id, in this order."""
    pieces = [f"<|{message.role}|>\n{message.content}"]
    for part in message.content_parts:
        pieces.append(part.text if part.type == "text" else f"<|{part.type}|>{part.name or part.url[:200]}")
    if message.reasoning_content:
        pieces.append(message.reasoning_content)
    if message.tool_calls:
        calls = [{"arguments": c.arguments, "id": c.id, "name": c.name, "type": c.type} for c in message.tool_calls]
        pieces.append(_compact_json(calls))
    if message.tool_name or message.tool_id:
        pieces.append(f"{message.tool_name} {message.tool_id}")
    return "\n".join(pieces) + "\n"


class _Node:
    """A part in the tree of all requests seen so far; its path from the root is a prefix.

    Nearly every node has one child or none, and there are many of them, so the table of children is made only
    for the second.
    """

    __slots__ = ("children", "last", "only", "only_text", "texts", "tokens")

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens
        """Tokens of the whole path."""
        self.last = -1
        """The newest request with this path, for a node that isn't on the newest request's; -1 = of none here."""
        self.only: _Node | None = None
        self.only_text = ""
        self.children: dict[str, _Node] | None = None
        self.texts: list[str] = []
        """The children's texts in order: the one that shares most with another text is its neighbour there."""

    def child(self, text: str) -> _Node | None:
        """The child of this text, None if there is none."""
        if self.children is not None:
            return self.children.get(text)
        return self.only if self.only_text == text else None

    def add(self, text: str, tokens: int) -> _Node:
        """A new child whose text has so many tokens."""
        child = _Node(self.tokens + tokens)
        if self.children is not None:
            self.children[text] = child
            insort(self.texts, text)
        elif self.only is None:
            self.only, self.only_text = child, text
        else:
            self.children = {self.only_text: self.only, text: child}
            self.texts = sorted(self.children)
        return child

    def neighbours(self, text: str) -> list[str]:
        """Texts of children among which is the one that shares most with `text`."""
        if self.children is None:
            return [] if self.only is None else [self.only_text]
        place = bisect_left(self.texts, text)
        return self.texts[max(place - 1, 0) : place + 1]


@dataclass(frozen=True, slots=True)
class Prefix:
    """How much of a request was there before."""

    tokens: int
    """Leading tokens equal to an earlier request."""
    reusable_tokens: int
    """Tokens of the longest earlier request."""
    n_parts: int
    """Leading parts that are equal as a whole."""
    request: int | None
    """The newest earlier request with this prefix, counted from 0; None = one of another conversation."""
    recent_tokens: int
    """Leading tokens equal to the request just before, as far as known."""
    partial_tokens: int = 0
    """The end of `tokens` that is only the beginning of a part."""


class PrefixTree:
    """All requests seen so far, as a tree of parts.

    `observe` costs time for the parts behind those shared with the request before, not for the whole request.
    """

    def __init__(self, counter: LineCounter) -> None:
        self._counter = counter
        self._root = _Node(0)
        self._roots: dict[str, _Node] = {}
        """By model, those that were left; each model has a cache of its own."""
        self._seeds: list[Sequence[str]] = []
        self._path: list[_Node] = [self._root]
        self._longest = 0
        self._is_empty = True
        self._n_requests = 0

    def seed(self, texts: Sequence[str]) -> None:
        """Let a request of another conversation count as seen (`cache.scope = corpus`)."""
        self._seeds.append(texts)
        self._plant(texts)

    def _plant(self, texts: Sequence[str]) -> None:
        node = self._root
        for text in texts:
            node = node.child(text) or node.add(text, self._counter.count_text(text))
        self._longest = max(self._longest, node.tokens)
        self._is_empty = False

    def change_model(self, name: str, *, before: str) -> None:
        """What follows goes to another model: nothing that others were sent is in its cache; the next request
        shares no part with the one before it. A model that comes back finds what it had."""
        newest = self._n_requests - 1
        for node in self._path[1:]:
            node.last = newest
        self._roots[before] = self._root
        known = self._roots.get(name)
        self._root = _Node(0) if known is None else known
        self._path = [self._root]
        if known is None:
            for texts in self._seeds:
                self._plant(texts)

    def observe(self, n_shared: int, new_texts: Sequence[str]) -> Prefix | None:
        """Add a request that shares its first `n_shared` parts with the one before.

        Returns:
            Its prefix, None for the first request of all.
        """
        left = self._path[n_shared + 1 :]
        del self._path[n_shared + 1 :]
        newest = self._n_requests - 1
        for node in left:
            node.last = newest
        node = self._path[-1]
        recent = node.tokens
        n_known = 0
        for text in new_texts:
            known = node.child(text)
            if known is None:
                break
            node = known
            self._path.append(node)
            n_known += 1
        prefix = None
        if not self._is_empty:
            tokens = node.tokens
            n_common = 0
            holder = node.last if n_known else newest
            if n_known < len(new_texts):
                n_common, child = self._shared_with_a_child(node, new_texts[n_known])
                tokens += n_common
                if child is not None:
                    holder = child.last
                    if not n_known and left and child is left[0]:
                        recent = tokens
            prefix = Prefix(
                tokens,
                self._longest,
                n_shared + n_known,
                request=holder if holder >= 0 else None,
                recent_tokens=recent,
                partial_tokens=n_common,
            )
        for text in new_texts[n_known:]:
            node = node.add(text, self._counter.count_text(text))
            self._path.append(node)
        self._longest = max(self._longest, node.tokens)
        self._is_empty = False
        self._n_requests += 1
        return prefix

    def _shared_with_a_child(self, node: _Node, text: str) -> tuple[int, _Node | None]:
        """Tokens that a differing part has in common with the most similar one seen at its place, and that one."""
        common, other = max(
            ((common_text(text, one), one) for one in node.neighbours(text)), default=("", ""), key=_size
        )
        return (self._counter.count_text(common), node.child(other)) if common else (0, None)

    def match(self, texts: Sequence[str]) -> int:
        """Leading tokens of a request that an earlier one has, whole parts only; nothing is added."""
        node = self._root
        for text in texts:
            child = node.child(text)
            if child is None:
                break
            node = child
        return node.tokens


def _size(found: tuple[str, str]) -> int:
    return len(found[0])


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
