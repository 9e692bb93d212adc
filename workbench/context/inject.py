"""Where summary, memories, recall, examples and per-run messages go in a request.

In: the base messages of a request, blocks of text, the history's messages. Out: the head of the request and
the place of user-mode blocks. Implements ASM-INJ (section 4). Nothing is changed: messages are shared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from workbench.context.project import (
    BLOCK_SEPARATOR,
    KIND_FEW_SHOT,
    KIND_INJECTED,
    KIND_PROMPT,
    KIND_SUMMARY,
    KIND_SYSTEM,
    Lane,
)
from workbench.context.select import Invocation
from workbench.context.settings import AgentSettings
from workbench.model.types import SYSTEM, USER, Message
from workbench.profiles import Profile
from workbench.session.scope import is_same_or_below, prefix_cutoff
from workbench.session.types import Session, SummaryBoundary
from workbench.wording import USER_MODE_NOTE

SummaryFormatter = Callable[[str], str]

_OPEN_TAG = "<summary_of_previous_interactions>"
_CLOSE_TAG = "</summary_of_previous_interactions>"
# Lead-in and note of the system block are data of the format (ASM-INJ-10).
_SYSTEM_LEAD_IN = "Here is a brief summary of your previous interactions:"
_SYSTEM_NOTE = (
    "Note: this information is from previous interactions and may be outdated. "
    "You should ALWAYS prefer information from this conversation over the past summary."
)
_USER_LEAD_IN = "Context from previous interactions:"


@dataclass(frozen=True, slots=True)
class FoundSummary:
    """The summary that a request uses."""

    filter_key: str
    text: str
    boundary: SummaryBoundary | None
    """Where it ends; None keeps all history beside it."""


def find_summary(invocation: Invocation, settings: AgentSettings) -> FoundSummary | None:
    """The summary for an invocation, None if nothing is to be injected (ASM-INJ-01 to -04, -12)."""
    session = invocation.session
    if session is None or not settings.add_session_summary or settings.timeline != "all" or invocation.skips_history:
        return None
    if not session.summaries:
        return None
    key = "" if settings.branches == "all" else invocation.filter_key
    found = _exact(session, key)
    if found is None and settings.branches == "prefix" and key:
        found = _aggregate(session, key)
    if found is None and settings.summary_fallback_to_full:
        found = _exact(session, "")
    return found


def _exact(session: Session, key: str) -> FoundSummary | None:
    summary = session.summaries.get(key)
    if summary is None or not summary.summary:
        return None
    return FoundSummary(key, summary.summary, summary.cutoff_boundary())


def _aggregate(session: Session, prefix: str) -> FoundSummary | None:
    """All summaries at or below a key as one, ending where the earliest ends (ASM-INJ-04)."""
    texts = [
        summary.summary
        for key, summary in sorted(session.summaries.items())
        if summary.summary and is_same_or_below(key, prefix)
    ]
    if not texts:
        return None
    return FoundSummary(prefix, BLOCK_SEPARATOR.join(texts), prefix_cutoff(session.summaries, prefix))


def system_block(text: str) -> str:
    """The default summary block of system mode."""
    return f"{_SYSTEM_LEAD_IN}\n\n{_OPEN_TAG}\n{text}\n{_CLOSE_TAG}\n\n{_SYSTEM_NOTE}\n"


def user_block(text: str) -> str:
    """The default summary block of user mode."""
    return f"{_USER_LEAD_IN}\n\n{_OPEN_TAG}\n{text}\n{_CLOSE_TAG}\n\n{USER_MODE_NOTE}\n"


@dataclass(frozen=True, slots=True)
class Blocks:
    """Blocks of one placement, in their fixed order: memory, summary, recall (ASM-INJ-07)."""

    memory: str = ""
    summary: str | None = None
    """None = no summary; the empty text is a formatter's empty answer."""
    recall: str = ""

    def texts(self, *, with_summary: bool = True) -> list[str]:
        """The blocks that are there."""
        summary = self.summary if with_summary else None
        return [text for text in (self.memory, summary, self.recall) if text]

    def joined(self, *, with_summary: bool = True) -> str:
        """One text of all blocks."""
        return BLOCK_SEPARATOR.join(self.texts(with_summary=with_summary))


def blocks_of(
    invocation: Invocation,
    settings: AgentSettings,
    found: FoundSummary | None,
    formatter: SummaryFormatter | None,
) -> tuple[Blocks, Blocks]:
    """`(system, user)`: which block goes where (ASM-INJ-05 to -11, ASM-PRE-01)."""
    in_user = settings.summary_injection_mode == "user"
    text: str | None = None
    if found is not None:
        if formatter is not None:
            text = formatter(found.text)
        else:
            text = user_block(found.text) if in_user else system_block(found.text)
    memory_in_user = settings.preload_memory_injection_mode == "user"
    recall_in_user = settings.preload_session_recall_injection_mode == "user"
    recall = "" if invocation.skips_history else invocation.recall_block
    system = Blocks(
        "" if memory_in_user else invocation.memory_block,
        None if in_user else text,
        "" if recall_in_user else recall,
    )
    user = Blocks(
        invocation.memory_block if memory_in_user else "",
        text if in_user else None,
        recall if recall_in_user else "",
    )
    return system, user


@dataclass(slots=True)
class Head:
    """The request in front of its history."""

    lane: Lane
    summary_index: int = -1
    """Index of the message that holds a system-mode summary, -1 without one."""
    content_without: str = ""
    """What that message would say without it."""


def build_head(
    base: Sequence[Message], invocation: Invocation, blocks: Blocks, profile: Profile, system_suffix: str = ""
) -> Head:
    """Base messages, examples, injected context, system-mode blocks and suffix in their order (ASM-INJ-20)."""
    lane = Lane()
    for message in base:
        lane.add(message, KIND_SYSTEM if message.role == SYSTEM else KIND_PROMPT, -1)
    for message in invocation.injected_context_messages:
        lane.add(message, KIND_SYSTEM if message.role == SYSTEM else KIND_INJECTED, -1)
    examples = [message for example in invocation.few_shot for message in example]
    if examples:
        at = leading_system(lane.messages)
        lane.messages[at:at] = examples
        lane.kinds[at:at] = [KIND_FEW_SHOT] * len(examples)
        lane.positions[at:at] = [-1] * len(examples)
    head = _with_system_blocks(lane, blocks, profile)
    if system_suffix:
        # Stages behind this one append to the first system message, or make one (ASM-CHAIN-02, row 5).
        suffixed = _with_system_blocks(head.lane, Blocks(recall=system_suffix), profile)
        if head.summary_index >= 0:
            head.content_without = behind(head.content_without, system_suffix)
        head.lane = suffixed.lane
    return head


def _with_system_blocks(lane: Lane, blocks: Blocks, profile: Profile) -> Head:
    # The reference appends even an empty formatted summary, as a bare blank line (ASM-INJ-11).
    keeps_empty = profile.reference_quirks and blocks.summary == ""
    texts = [blocks.memory, blocks.summary or "", blocks.recall]
    wanted = [bool(blocks.memory), bool(blocks.summary) or keeps_empty, bool(blocks.recall)]
    if not any(wanted):
        return Head(lane)
    at = next((i for i, message in enumerate(lane.messages) if message.role == SYSTEM), -1)
    before = lane.messages[at].content if at >= 0 else ""
    without = BLOCK_SEPARATOR.join(filter(None, [before, *blocks.texts(with_summary=False)]))
    content = before
    for text, is_wanted in zip(texts, wanted, strict=True):
        if is_wanted:
            content = f"{content}{BLOCK_SEPARATOR}{text}" if content else text
    if at >= 0:
        lane.messages[at] = replace(lane.messages[at], content=content)
    else:
        at = 0
        lane.messages.insert(0, Message(role=SYSTEM, content=content))
        lane.kinds.insert(0, KIND_SYSTEM if without else KIND_SUMMARY)
        lane.positions.insert(0, -1)
    return Head(lane, at if blocks.summary else -1, without)


def leading_system(messages: Sequence[Message]) -> int:
    """How many system messages the list starts with."""
    return next((i for i, message in enumerate(messages) if message.role != SYSTEM), len(messages))


def in_front(block: str, content: str) -> str:
    """A block before the text it's merged into."""
    return BLOCK_SEPARATOR.join(filter(None, [block, content]))


def behind(content: str, block: str) -> str:
    """A block behind the text it's merged into."""
    return BLOCK_SEPARATOR.join(filter(None, [content, block]))


def block_message(block: str) -> Message:
    """A user message of its own for user-mode blocks."""
    return Message(role=USER, content=block)
