"""The meter: one trace row per model call, with the prompt split into parts and the cause of each prefix break.

In: the requests of one conversation as they were sent. Out: rows of the `calls` table. Two counters are kept
apart: the billing counter measures, the engine's estimates (WB-RPL-06). Work per call is proportional to the
messages behind those shared with the call before. Implements WB-RPL-03, WB-CACHE-01b and -03.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from workbench.agent.flow import SentRequest
from workbench.call import EMPTY_CONTEXT
from workbench.context.assemble import Assembly, SummaryInRequest
from workbench.context.project import KIND_CURRENT, Lane
from workbench.model.types import SYSTEM, TOOL, Message, Request, ToolSpec, Usage
from workbench.replay.cache import Prefix, PrefixTree, part_text, tools_text
from workbench.tokens import LineCounter, TokenCounter


@dataclass(frozen=True, slots=True)
class CallFacts:
    """What the harness knows about a call beside its request."""

    conversation: str
    call: int
    request: int
    event_id: str
    time_ns: int
    model: str
    """Name of the model that it goes to; empty when nobody names it."""
    window: int | None
    answer: Message
    usage: Usage | None
    boundary_position: int | None
    """Absolute position of the boundary event of the injected summary."""
    end_position: int
    """Absolute position behind the newest event."""


@dataclass(frozen=True, slots=True)
class _Cut:
    """What decides the shape of a request, for naming what changed between two calls."""

    summary: SummaryInRequest | None
    first_position: int
    n_tailored: int
    resume_tail: bool
    covered: frozenset[int]
    """Positions of events that the summary covers and that are in the request nevertheless."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A message as it is billed; holds the message, so that its identity stays its own."""

    message: Message
    role: str
    text: str
    tokens: int
    estimate: int


class CallMeter:
    """Measures the calls of one conversation, in order.

    Args:
        billing: Measures; needs `count_text`.
        engine: Estimates, as the engine would.
        per_message: Billing overhead per message, in tokens.
        per_request: Billing overhead per request, in tokens.
    """

    def __init__(
        self, billing: LineCounter, engine: TokenCounter, *, per_message: int = 0, per_request: int = 0
    ) -> None:
        self.tree = PrefixTree(billing)
        self._billing = billing
        self._engine = engine
        self._per_message = per_message
        self._per_request = per_request
        self._model: str | None = None
        self._previous = Request()
        self.n_shared = 0
        """Leading messages that the last request shares with the one before it."""
        self._tools: tuple[ToolSpec, ...] = ()
        self._tools_text = ""
        self._parts: dict[int, _Part] = {}
        # Running sums over the messages of the last request: entry i is the sum over messages[:i].
        self._all_tokens = [0]
        self._tool_tokens = [0]
        self._system_tokens = [0]
        self._estimates = [0]
        self._last_cut: _Cut | None = None
        self._last_total = 0
        self._current_index = 0
        self._was_whole = False
        self._current_lane: Lane | None = None
        self._current_slot = 0

    def row(self, facts: CallFacts, sent: SentRequest) -> tuple[object, ...]:
        """The `calls` row of one call."""
        request, assembly = sent.request, sent.assembly
        before, self._model = self._model, facts.model
        same_model = before is None or before == facts.model
        if before is not None and not same_model:
            self.tree.change_model(facts.model, before=before)
        same_tools = request.tools == self._tools
        n_previous = self._previous.n_messages
        n_shared = self.n_shared = self._n_shared(sent) if same_tools else 0
        if not same_tools:
            self._tools, self._tools_text = request.tools, tools_text(request.tools)
        parts = [self._part(message) for message in request.messages_from(n_shared)]
        if same_model:
            prefix = self._observe(n_shared, [part.text for part in parts], same_tools)
        else:
            head = [self._tools_text] if self._tools_text else []
            prefix = self.tree.observe(0, [*head, *(self._part(message).text for message in request.messages)])
        self._extend_sums(n_shared, parts)
        self._previous = request

        n_messages = request.n_messages
        schema = self._billing.count_text(self._tools_text)
        overhead = self._per_message * n_messages + self._per_request
        summary = self._summary_tokens(sent)
        current = self._current_tokens(sent)
        tool_results = self._tool_tokens[-1]
        in_system = summary if sent.assembly.summary is not None and self._summary_is_system(sent) else 0
        system = self._system_tokens[-1] - in_system
        in_current = summary if summary and not in_system and self._summary_is_current(sent) else 0
        current -= in_current
        history = self._all_tokens[-1] - tool_results - system - summary - current
        total = self._all_tokens[-1] + schema + overhead
        last_total = self._last_total

        cause, part, lost = self._break(sent, prefix, n_shared, same_tools, total, n_previous)
        if not same_model and prefix is not None:
            cause, part, lost = "model_changed", 0, max(min(last_total, total) - prefix.tokens, 0)
        window = facts.window
        boundary = assembly.summary
        age = None
        if boundary is not None and facts.boundary_position is not None:
            age = facts.end_position - facts.boundary_position - 1
        usage = facts.usage
        tailored = sent.tailored
        return (
            facts.conversation,
            facts.call,
            facts.request,
            facts.event_id,
            facts.time_ns,
            n_messages,
            total,
            system,
            summary,
            history,
            tool_results,
            schema,
            current,
            overhead,
            self._estimates[-1],
            window,
            None if window is None else total / window,
            None if window is None else total > window,
            None if boundary is None else boundary.filter_key,
            None if boundary is None or boundary.boundary is None else boundary.boundary.last_event_id or None,
            age,
            None if prefix is None else prefix.tokens,
            None if prefix is None else prefix.reusable_tokens,
            None if prefix is None else prefix.request,
            None if prefix is None else prefix.recent_tokens,
            None if prefix is None else prefix.partial_tokens,
            cause,
            part,
            lost,
            *assembly.stats.by_pass[:3],
            *assembly.stats.saved_by_pass[:3],
            assembly.stats.estimated_tokens_saved,
            0 if tailored is None else len(sent.assembly) - n_messages,
            0 if tailored is None else tailored.tokens_before - tailored.tokens,
            None if usage is None else usage.prompt_tokens,
            None if usage is None else usage.completion_tokens,
            None if usage is None else usage.cached_tokens,
            self._billing.count_text(part_text(facts.answer)),
            facts.model,
        )

    def _n_shared(self, sent: SentRequest) -> int:
        """Leading messages in common with the call before; assembly knows most of them already."""
        known = sent.assembly.shared_with_previous if sent.kept is None and self._was_whole else 0
        self._was_whole = sent.kept is None
        previous, request = self._previous, sent.request
        known = min(known, previous.n_messages, request.n_messages)
        if known and previous.message_at(known - 1) is not request.message_at(known - 1):
            known = 0
        return known + shared_messages(previous.messages_from(known), request.messages_from(known))

    # --- sums ----------------------------------------------------------------------------------------

    def _observe(self, n_shared: int, texts: list[str], same_tools: bool) -> Prefix | None:
        if same_tools and (self._previous.n_messages or not self._tools_text):
            return self.tree.observe(n_shared + (1 if self._tools_text else 0), texts)
        head = [self._tools_text] if self._tools_text else []
        return self.tree.observe(0, [*head, *texts])

    def _extend_sums(self, n_shared: int, parts: list[_Part]) -> None:
        """Running sums end with the last request's total; those of the shared messages stay."""
        columns = self._all_tokens, self._tool_tokens, self._system_tokens, self._estimates
        for sums in columns:
            del sums[n_shared + 1 :]
        total, tools, system, estimate = (sums[n_shared] for sums in columns)
        for part in parts:
            total += part.tokens
            estimate += part.estimate
            if part.role == TOOL:
                tools += part.tokens
            elif part.role == SYSTEM:
                system += part.tokens
            self._all_tokens.append(total)
            self._tool_tokens.append(tools)
            self._system_tokens.append(system)
            self._estimates.append(estimate)

    def _part(self, message: Message) -> _Part:
        """Text and counts of a message, made once: requests share message objects."""
        part = self._parts.get(id(message))
        if part is None:
            text = part_text(message)
            estimate = self._engine.count_tokens(EMPTY_CONTEXT, message)
            tokens = self._billing.count_text(text)
            part = _Part(message, message.role, text, tokens, estimate if isinstance(estimate, int) else 0)
            self._parts[id(message)] = part
        return part

    def _tokens_at(self, index: int) -> int:
        return self._all_tokens[index + 1] - self._all_tokens[index]

    @staticmethod
    def _index_in_request(sent: SentRequest, assembly_index: int) -> int | None:
        """Where a message of the assembly stands in the request as sent; None if it was dropped."""
        if sent.kept is None:
            return assembly_index
        try:
            return sent.kept.index(assembly_index)
        except ValueError:
            return None

    def _summary_tokens(self, sent: SentRequest) -> int:
        """The message with the summary, minus the same message without it (WB-CACHE-01b)."""
        summary = sent.assembly.summary
        if summary is None:
            return 0
        index = self._index_in_request(sent, summary.message_index)
        if index is None:
            return 0
        without = replace(sent.request.message_at(index), content=summary.content_without)
        rest = self._billing.count_text(part_text(without)) if summary.content_without else 0
        return self._tokens_at(index) - rest

    def _summary_is_system(self, sent: SentRequest) -> bool:
        summary = sent.assembly.summary
        return summary is not None and sent.assembly.message_at(summary.message_index).role == SYSTEM

    def _summary_is_current(self, sent: SentRequest) -> bool:
        summary = sent.assembly.summary
        return summary is not None and self._index_in_request(sent, summary.message_index) == self._current_index

    def _current_tokens(self, sent: SentRequest) -> int:
        """The current user message's tokens."""
        index = self._find_current(sent.assembly)
        self._current_index = -1
        if index is None:
            return 0
        place = self._index_in_request(sent, index)
        if place is None or sent.request.message_at(place).role in (SYSTEM, TOOL):
            return 0
        self._current_index = place
        return self._tokens_at(place)

    def _find_current(self, assembly: Assembly) -> int | None:
        """Index of the last current message: where it was in the call before, else looked for from the end."""
        offset = len(assembly)
        for lane, start, stop in reversed(assembly.pieces):
            offset -= stop - start
            if lane is self._current_lane and start <= self._current_slot < stop:
                if lane.kinds[self._current_slot] == KIND_CURRENT:
                    return offset + self._current_slot - start
            kinds = lane.kinds[start:stop]
            if KIND_CURRENT in kinds:
                kinds.reverse()
                self._current_lane, self._current_slot = lane, stop - 1 - kinds.index(KIND_CURRENT)
                return offset + self._current_slot - start
        return None

    # --- causes --------------------------------------------------------------------------------------

    def _break(
        self, sent: SentRequest, prefix: Prefix | None, n_shared: int, same_tools: bool, total: int, n_previous: int
    ) -> tuple[str | None, int | None, int]:
        """`(cause, index of the first differing part, tokens written again)`; no break: `(None, None, 0)`."""
        included = sent.assembly.covered_positions_included
        cut = _Cut(
            summary=sent.assembly.summary,
            first_position=_first_position(sent.assembly),
            n_tailored=len(sent.assembly) - sent.request.n_messages,
            resume_tail=any(rule == "resume_tail" for _, rule in included),
            covered=frozenset(position for position, _ in included),
        )
        last, self._last_cut = self._last_cut, cut
        last_total, self._last_total = self._last_total, total
        if prefix is None or last is None:
            return ("first_call" if prefix is None else None), None, 0
        tools_part = 1 if self._tools_text else 0
        if same_tools and n_shared == n_previous:
            return None, None, 0
        lost = max(min(last_total, total) - prefix.tokens, 0)
        if not same_tools:
            return "tools_changed", 0, lost
        return self._cause(sent, last, cut, n_shared), n_shared + tools_part, lost

    def _cause(self, sent: SentRequest, last: _Cut, cut: _Cut, n_shared: int) -> str:
        request = sent.request
        differing = request.message_at(n_shared) if n_shared < request.n_messages else None
        if last.summary != cut.summary and _text(last.summary) != _text(cut.summary):
            if last.summary is None:
                return "summary_appeared"
            in_system = differing is not None and differing.role == SYSTEM
            return "summary_updated_system" if in_system else "summary_updated_user"
        if (
            last.summary is not None
            and cut.summary is not None
            and last.summary.message_index != cut.summary.message_index
        ):
            return "summary_moved"
        if differing is not None and differing.role == TOOL:
            kind = _rewriting_pass(sent.assembly, differing)
            if kind in (0, 1, 3):
                return "compaction_placeholder"
            if kind == 2:
                return "compaction_truncation"
        if cut.n_tailored != last.n_tailored:
            return "tailoring"
        if cut.resume_tail or last.resume_tail:
            return "resume_tail"
        if last.covered - cut.covered:
            return "covered_turn_ended"
        if cut.first_position != last.first_position:
            return "history_limit"
        if differing is not None and differing.role == SYSTEM:
            return "instruction_changed"
        return "other"


def _first_position(assembly: Assembly) -> int:
    """Position of the first stored event in the request, -1 without any."""
    for lane, start, stop in assembly.pieces:
        positions = lane.positions
        for i in range(start, stop):
            if positions[i] >= 0:
                return positions[i]
    return -1


def _rewriting_pass(assembly: Assembly, message: Message) -> int | None:
    """The compaction pass that wrote this tool message, None if it is as stored."""
    found = [rewrite for rewrite in assembly.rewrites if rewrite.tool_call_id == message.tool_id]
    return found[-1].by_pass if found else None


def _text(summary: SummaryInRequest | None) -> str:
    return "" if summary is None else summary.text


def shared_messages(previous: Sequence[Message], messages: Sequence[Message]) -> int:
    """How many leading messages two requests have in common; tuples compare at C speed, by identity first."""
    n_common = min(len(previous), len(messages))
    if previous[:n_common] == messages[:n_common]:
        return n_common
    low, high = 0, n_common
    while high - low > 1:
        middle = (low + high) // 2
        if previous[low:middle] == messages[low:middle]:
            low = middle
        else:
            high = middle
    return low
