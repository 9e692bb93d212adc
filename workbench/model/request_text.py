"""What a summary request asks for, read from its text alone: the conversation in it and its word limit.

In: a request as the summarizer built it, standalone or fork (SUM-REQ-01, -03). Out: `Block`s, what was said
by whom in order, and the word limit. For models that answer without a network (WB-RPL-07, -07a).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from workbench.model.types import ASSISTANT, SYSTEM, TOOL, USER, Message, Request
from workbench.wording import SOURCE_BOUNDARY_NOTE

SUMMARY = "summary"
CALL = "call"


@dataclass(frozen=True, slots=True)
class Block:
    """What one speaker said at a time."""

    role: str
    """user, assistant, tool, system, call (arguments of a tool call) or summary (a previous summary)."""
    label: str
    """Name to print before it; empty for the previous summary."""
    text: str


def conversation_of(request: Request) -> list[Block]:
    """The conversation in a summary request; the instruction isn't part of it."""
    if parts := _standalone_parts(request):
        return [*_summary_blocks(parts.previous_summary), *_conversation_blocks(parts.conversation)]
    return list(_message_blocks(request.messages[:-1]))


def word_limit(request: Request) -> int | None:
    """The word limit that the instruction names; None when it names none."""
    parts = _standalone_parts(request)
    instruction = parts.instruction if parts else "".join(_text_of(message) for message in request.messages[-1:])
    for pattern in (_LIMIT_WITH_UNIT, _LIMIT_AFTER, _LIMIT_BEFORE):
        if match := pattern.search(instruction):
            return int(match[1].replace(",", "")) or None
    return None


_COUNT = r"(?<![\d.,])(\d{1,3}(?:,\d{3})+|\d{1,7})(?![\d,]*\d)"
_LIMIT_WITH_UNIT = re.compile(
    rf"{_COUNT}[\s-]{{0,3}}(?:words?\b|个?字|個字|汉字|漢字|个?词|個?詞|单词|單詞|単語|文字|語|글자|자|개?\s?단어|어절)",
    re.IGNORECASE,
)
_LIMIT_AFTER = re.compile(
    r"(?:limit|at most|no more than|within|under|maximum|max|up to|不超过|不超過|最多|限制|上限|최대)\D{0,20}" + _COUNT,
    re.IGNORECASE,
)
_LIMIT_BEFORE = re.compile(_COUNT + r"\D{0,3}(?:以内|以內|以下|이내|이하)")


# --- standalone requests: one user message, with the conversation between tags or bare ------------------------


@dataclass(frozen=True, slots=True)
class _Parts:
    instruction: str
    conversation: str
    previous_summary: str = ""


_TAG_LINE = re.compile(r"^<([A-Za-z][\w-]{0,60})>[ \t]*$", re.MULTILINE)
_CONVERSATION_TAG = re.compile("conversation|transcript|dialog|history|messages", re.IGNORECASE)


def _standalone_parts(request: Request) -> _Parts | None:
    """Instruction and payload of a standalone request; None for a fork, which has more than one message."""
    spoken = [message for message in request.messages if message.role != SYSTEM]
    if len(spoken) != 1:
        return None
    system = "\n".join(_text_of(message) for message in request.messages if message.role == SYSTEM)
    body, boundary, after = _text_of(spoken[0]).partition(SOURCE_BOUNDARY_NOTE)
    tail = after if boundary else ""
    tagged = _tagged(body)
    conversation = next((span for name, *span in tagged if _CONVERSATION_TAG.search(name)), None)
    if conversation is None:
        return _bare_parts(body, system, tail)
    start, end = conversation
    around = body[:start] + "\n" + body[end:]
    previous = next((around[a:b] for name, a, b in _tagged(around) if SUMMARY in name.lower()), "")
    if previous:
        around = around.replace(previous, "\n", 1)
    return _Parts(f"{system}\n{around}\n{tail}", body[start:end], previous)


def _tagged(text: str) -> list[tuple[str, int, int]]:
    """`(tag, start, end)` of the texts between a line `<tag>` and the last line `</tag>`, outermost only."""
    spans: list[tuple[str, int, int]] = []
    floor = 0
    for match in _TAG_LINE.finditer(text):
        if match.start() < floor:
            continue
        end = text.rfind(f"\n</{match[1]}>", match.end())
        if end >= 0:
            spans.append((match[1], match.end() + 1, max(end, match.end() + 1)))
            floor = end
    return spans


def _bare_parts(body: str, system: str, tail: str) -> _Parts:
    """Without tags: what stands before the first speaker, and the last lines, may name the limit."""
    first = _author_lines(body)
    match = next(first.finditer(body), None)
    head = body[: match.start()] if match else ""
    last_lines = "\n".join(body[-300:].rsplit("\n", 2)[1:])
    return _Parts("\n".join((system, head or body[:300], last_lines, tail)), body[len(head) :])


# --- conversation text: `author: text` blocks ----------------------------------------------------------------

_KNOWN_AUTHORS = ("user", "assistant", "system", "tool", "call", "agent", "unknown")
_TOOL_AUTHOR = re.compile(r"^([^\s:\[\]]{1,64}): \[(?:Called tool: |[^\s\]]{1,64} returned: )", re.MULTILINE)
_AFTER_USER = re.compile(r"^user: [^\n]*\n([^\s:\[\]]{1,64}): ", re.MULTILINE)
_CALL_HEAD = re.compile(r"\[Called tool: (\S+?)(?: with args: |\]$)")
_RESULT_HEAD = re.compile(r"\[(\S{1,64}) returned: ")


def _author_lines(text: str) -> re.Pattern[str]:
    """Finds line starts `author: `: the usual names, and names seen to call tools or to answer the user twice."""
    answering = _AFTER_USER.findall(text)
    seen = dict.fromkeys([*_KNOWN_AUTHORS, *_TOOL_AUTHOR.findall(text)])
    seen.update(dict.fromkeys(name for name in dict.fromkeys(answering) if answering.count(name) > 1))
    names = "|".join(re.escape(name) for name in sorted(seen, key=lambda name: (-len(name), name)))
    return re.compile(rf"^({names}):(?: |$)", re.MULTILINE)


def _conversation_blocks(text: str) -> Iterator[Block]:
    """The blocks of a conversation text; a first block by `system` is the previous summary (SUM-RUN-03)."""
    pattern = _author_lines(text)
    if (first := pattern.match(text)) and first[1] == SYSTEM:
        # A summary that begins with a label would nest it: its first line is read as if it stood alone.
        yield from _labelled_blocks(text[first.end() :], pattern, unlabelled=SUMMARY)
    else:
        yield from _labelled_blocks(text, pattern, unlabelled=USER)


def _summary_blocks(text: str) -> Iterator[Block]:
    """A previous summary: lines of its own, then perhaps labelled lines."""
    return _labelled_blocks(text, _author_lines(text), unlabelled=SUMMARY)


def _labelled_blocks(text: str, pattern: re.Pattern[str], *, unlabelled: str) -> Iterator[Block]:
    """Blocks by author; what stands before the first author has the role `unlabelled`."""
    matches = list(pattern.finditer(text))
    ends = [*(match.start() for match in matches), len(text)]
    if head := text[: ends[0]].strip():
        yield Block(unlabelled, "" if unlabelled == SUMMARY else unlabelled, head)
    for match, end in zip(matches, ends[1:], strict=True):
        block = _authored_block(match[1], text[match.end() : end].strip())
        if block.text:
            yield block


def _authored_block(author: str, text: str) -> Block:
    if call := _CALL_HEAD.match(text):
        return Block(CALL, CALL, text[call.end() :].removesuffix("]"))
    if result := _RESULT_HEAD.match(text):
        return Block(TOOL, TOOL, text[result.end() :].removesuffix("]"))
    return Block(author if author in (USER, SYSTEM, TOOL, CALL) else ASSISTANT, author, text)


# --- forks: the agent's own messages ---------------------------------------------------------------------------


def _text_of(message: Message) -> str:
    texts = [message.content, *(part.text for part in message.content_parts if part.type == "text")]
    return "\n".join(text for text in texts if text)


def _message_blocks(messages: tuple[Message, ...]) -> Iterator[Block]:
    """The conversation of a fork: of system messages only an injected summary belongs to it."""
    for message in messages:
        text = _text_of(message).strip()
        if message.role == SYSTEM or message.is_user_like:
            summary = next(((start, end) for tag, start, end in _tagged(text) if SUMMARY in tag.lower()), None)
            if summary:
                yield from _summary_blocks(text[summary[0] : summary[1]])
                text = ""
            if text and message.role != SYSTEM:
                yield Block(USER, USER, text)
        elif text:
            yield Block(message.role, message.role, text)
        yield from (Block(CALL, CALL, call.arguments) for call in message.tool_calls if call.arguments.strip())
