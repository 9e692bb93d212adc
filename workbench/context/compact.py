"""Context compaction: tool results rewritten inside a request, never in the session.

In: the projected events of a request (after selection and re-ordering). Out: events of the same number and
order, in which some tool results are placeholders (pass 0 by policy, pass 1 historical) or cut in the middle
(pass 2 oversized), with one `Rewrite` per changed result. Implements ASM-CMP (section 6) and the payload
rules of ASM-INTRA-14. The fixed sentences live in `workbench.wording`, the markers here: they're data.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

from workbench.call import EMPTY_CONTEXT
from workbench.context.counting import TokenMemo
from workbench.context.settings import CompactionSettings
from workbench.model.types import EMPTY_MESSAGE, TOOL, USER, Choice, Message, ToolCall
from workbench.session.types import Event
from workbench.tokens import SimpleTokenCounter
from workbench.wording import (
    LOAD_INSTRUCTION,
    NO_RECOVERY_INSTRUCTION,
    POLICY_PLACEHOLDER,
    RECOVERY_SENTENCE,
    RESUME_ARGUMENTS,
    RESUME_SENTENCE,
)

SESSION_LOAD = "session_load"
REASON_HISTORICAL = "historical_compaction"
REASON_OVERSIZED = "oversized_truncation"
REASON_RESUME = "current_invocation_summary"
REASON_POLICY = "policy_force_clean"
PASS_POLICY, PASS_HISTORICAL, PASS_OVERSIZED, PASS_RESUME = 0, 1, 2, 3

SkipRecentFunc = Callable[[Sequence[Event]], int]


@dataclass(frozen=True, slots=True)
class Rewrite:
    """One tool result that a request holds in another form than the session."""

    event_id: str
    tool_call_id: str
    tool_name: str
    by_pass: int
    """0 policy, 1 historical, 2 oversized, 3 resume tail."""
    tokens_before: int
    tokens_after: int
    message: Message = field(default=EMPTY_MESSAGE, compare=False, repr=False)
    """The form that the request holds."""


FourPasses = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class ContextCompactionStats:
    """What the passes did to one request (ASM-CMP-22)."""

    by_pass: FourPasses = (0, 0, 0, 0)
    """Rewritten tool results of pass 0, 1, 2 and of the resume tail."""
    saved_by_pass: FourPasses = (0, 0, 0, 0)
    """Estimated tokens that each of them saved."""

    @property
    def estimated_tokens_saved(self) -> int:
        """What all of them saved together."""
        return sum(self.saved_by_pass)

    @property
    def results_per_pass(self) -> tuple[int, int, int]:
        """Rewritten tool results of pass 0, 1 and 2."""
        return self.by_pass[:3]

    @property
    def tool_results_compacted(self) -> int:
        """Tool results rewritten by the three passes; the resume tail isn't one."""
        return sum(self.by_pass[:3])

    @classmethod
    def of(cls, rewrites: Sequence[Rewrite]) -> ContextCompactionStats:
        """The sums of a list of rewrites."""
        if not rewrites:
            return NO_STATS
        counts, saved = [0, 0, 0, 0], [0, 0, 0, 0]
        for rewrite in rewrites:
            counts[rewrite.by_pass] += 1
            saved[rewrite.by_pass] += max(rewrite.tokens_before - rewrite.tokens_after, 0)
        return cls((counts[0], counts[1], counts[2], counts[3]), (saved[0], saved[1], saved[2], saved[3]))

    def plus(self, other: ContextCompactionStats) -> ContextCompactionStats:
        """Both together."""
        if other is NO_STATS:
            return self
        return ContextCompactionStats(
            _sum(self.by_pass, other.by_pass, 1), _sum(self.saved_by_pass, other.saved_by_pass, 1)
        )

    def minus(self, other: ContextCompactionStats) -> ContextCompactionStats:
        """What is left without the other."""
        if other is NO_STATS:
            return self
        return ContextCompactionStats(
            _sum(self.by_pass, other.by_pass, -1), _sum(self.saved_by_pass, other.saved_by_pass, -1)
        )


NO_STATS = ContextCompactionStats()


def _sum(a: FourPasses, b: FourPasses, sign: int) -> FourPasses:
    return (a[0] + sign * b[0], a[1] + sign * b[1], a[2] + sign * b[2], a[3] + sign * b[3])


@dataclass(frozen=True, slots=True)
class ToolResultRecoveryRef:
    """What a placeholder or marker tells about the payload it stands for; blank fields are left out."""

    event_id: str = ""
    tool_call_id: str = ""
    tool_name: str = ""
    reason: str = ""
    session_load_available: bool = False

    @classmethod
    def of(cls, event_id: str, message: Message, reason: str, *, available: bool) -> ToolResultRecoveryRef:
        """The reference for one result of an event."""
        return cls(event_id.strip(), message.tool_id.strip(), message.tool_name.strip(), reason, available)

    @property
    def has_ids(self) -> bool:
        """The result can be named."""
        return bool(self.event_id or self.tool_call_id)

    def placeholder(self) -> str:
        """The text that takes the place of the payload (ASM-CMP-30)."""
        sentence = RESUME_SENTENCE if self.reason == REASON_RESUME else RECOVERY_SENTENCE
        if not self.has_ids:
            return sentence
        lines = [sentence]
        for name in ("event_id", "tool_call_id", "tool_name", "reason"):
            if value := getattr(self, name):
                lines.append(f"{name}: {value}")
        lines.append(LOAD_INSTRUCTION if self.session_load_available else NO_RECOVERY_INSTRUCTION)
        return "\n".join(lines)

    def full_marker(self, n_removed: int) -> str:
        """The marker between head and tail (ASM-CMP-42)."""
        if not self.has_ids:
            return plain_marker(n_removed)
        hint = "use session_load ..." if self._can_load else "re-run only safe read-only/idempotent tools"
        fields = [f"{n_removed} characters truncated from tool result", *self._fields(with_name=True), hint]
        return f"\n\n[... {'; '.join(fields)}]\n\n"

    def compact_marker(self) -> str:
        """The short marker, for budgets in which the full one leaves no room."""
        fields = [*self._fields(with_name=False), SESSION_LOAD if self._can_load else "compacted"]
        return f"\n\n[... {'; '.join(fields)}]\n\n"

    @property
    def _can_load(self) -> bool:
        # Loading starts from an event, so a result without one gets the other hint (ASM-CMP-36).
        return self.session_load_available and bool(self.event_id)

    def _fields(self, *, with_name: bool) -> list[str]:
        names = ("event_id", "tool_call_id", "tool_name") if with_name else ("event_id", "tool_call_id")
        return [f"{name}={value}" for name in names if (value := getattr(self, name))]


_NO_REF = ToolResultRecoveryRef()


def plain_marker(n_removed: int) -> str:
    """The marker of a result that has no ids."""
    return f"\n\n[... {n_removed} characters truncated ...]\n\n"


def is_recovery_placeholder(content: str) -> bool:
    """The text is a placeholder of pass 1 or of the resume tail (ASM-CMP-34)."""
    text = content.strip()
    return any(text == first or text.startswith(first + "\n") for first in (RECOVERY_SENTENCE, RESUME_SENTENCE))


def truncate_middle(text: str, max_chars: int, ref: ToolResultRecoveryRef = _NO_REF) -> str:
    """Head, marker and tail in about `max_chars` characters; a text that fits is returned as it is.

    The marker's number understates the loss by the marker's own length (ASM-CMP-43).
    """
    if len(text) <= max_chars:
        return text
    marker, half = _cut_plan(len(text), max_chars, ref)
    if half:
        return text[:half] + marker + text[-half:]
    return marker if ref.has_ids else text[:max_chars]


def _cut_plan(n_chars: int, max_chars: int, ref: ToolResultRecoveryRef) -> tuple[str, int]:
    """Marker and characters kept on either side; 0 when only the marker (or a bare head) fits (ASM-CMP-41)."""
    marker = ref.full_marker(n_chars - max_chars)
    available = max_chars - len(marker)
    if available < 2 and ref.has_ids:
        marker = ref.compact_marker()
        available = max_chars - len(marker)
    return marker, available // 2 if available >= 2 else 0


def _cut_length(n_chars: int, max_chars: int, ref: ToolResultRecoveryRef) -> int:
    """`len(truncate_middle(...))` without building it."""
    marker, half = _cut_plan(n_chars, max_chars, ref)
    if half:
        return 2 * half + len(marker)
    return len(marker) if ref.has_ids else max_chars


# --- protected units ----------------------------------------------------------------------------------


def unit_key(request_id: str, invocation_id: str) -> str:
    """What compaction protects as one: a request, else an invocation, else nothing."""
    if request_id:
        return f"req:{request_id}"
    return f"inv:{invocation_id}" if invocation_id else ""


def protected_units(
    events: Sequence[Event], current_key: str, *, keep_recent: int, skip_recent: SkipRecentFunc | None
) -> set[str]:
    """Unit keys that passes 0 and 1 leave alone (ASM-CMP-10 to -12).

    Units protected by `skip_recent` don't use up `keep_recent`, and neither do uncompleted ones.
    """
    protected = {current_key}
    keys = [unit_key(event.request_id, event.invocation_id) for event in events]
    if skip_recent is not None and events:
        n_skipped = skip_recent(events)
        if n_skipped > 0:
            protected.update(key for key in keys[-n_skipped:] if key)
    if keep_recent > 0:
        completed = {
            key for key, event in zip(keys, events, strict=True) if event.response is not None and event.response.done
        }
        for key in reversed(keys):
            if key and key not in protected and key in completed:
                protected.add(key)
                keep_recent -= 1
                if not keep_recent:
                    break
    return protected


# --- the passes ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class Compactor:
    """The passes with everything they need; results are remembered, so a result is judged once per form.

    Args:
        settings: Limits and lists.
        memo: The compaction counter (ASM-CMP-04).
        session_load_available: The service can load windows and the request offers `session_load` (ASM-CMP-32).
    """

    settings: CompactionSettings
    memo: TokenMemo
    session_load_available: bool = False
    passes: dict[int, Rewrite] = field(default_factory=dict)
    """id of a rewritten message -> its rewrite, for asking which pass a message of a request went through."""
    _forms: dict[tuple[int, int, str], tuple[Message, tuple[Message, Rewrite] | None]] = field(default_factory=dict)
    _events: dict[tuple[int, bool, bool], tuple[Event, Event, list[Rewrite]]] = field(default_factory=dict)
    _keep: frozenset[str] = frozenset()
    _force: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self._keep = frozenset(filter(None, self.settings.keep_tool_names))
        self._force = frozenset(filter(None, self.settings.force_clean_tool_names))

    @property
    def spares_recent(self) -> bool:
        """A pass is on that treats protected units differently."""
        on = self.settings.enabled
        return on and (bool(self._force) or self.settings.tool_result_max_tokens > 0)

    @property
    def is_active(self) -> bool:
        """Any pass is on."""
        return self.spares_recent or (self.settings.enabled and self.settings.oversized_tool_result_max_tokens > 0)

    def compact(
        self, events: Sequence[Event], *, current_key: str, protected: Collection[str]
    ) -> tuple[list[Event], list[Rewrite]]:
        """Passes 0, 1, 2 in this order over a list of events."""
        rewrites: list[Rewrite] = []
        done = list(events)
        if self.is_active:
            for i, event in enumerate(done):
                response = event.response
                if response is not None and any(choice.message.tool_id for choice in response.choices):
                    done[i] = self._compact_event(event, current_key, protected, rewrites)
        return done, rewrites

    def _compact_event(
        self, event: Event, current_key: str, protected: Collection[str], rewrites: list[Rewrite]
    ) -> Event:
        # A message is rewritten by one pass at most, since later passes skip placeholders, so the three
        # passes can be taken together, event by event.
        key = unit_key(event.request_id, event.invocation_id)
        is_free = not key or key not in protected
        # The answer depends on nothing else, so an event that comes again gets the very same form.
        place = (id(event), is_free, bool(current_key))
        known = self._events.get(place)
        if known is None:
            changes: list[Rewrite] = []
            known = (event, self._compacted(event, key, current_key, changes, is_free=is_free), changes)
            self._events[place] = known
        rewrites += known[2]
        return known[1]

    def _compacted(self, event: Event, key: str, current_key: str, rewrites: list[Rewrite], *, is_free: bool) -> Event:
        passes = []
        if is_free and self._force:
            passes.append(PASS_POLICY)
        if is_free and key and current_key and self.settings.tool_result_max_tokens > 0:
            passes.append(PASS_HISTORICAL)
        if self.settings.oversized_tool_result_max_tokens > 0:
            passes.append(PASS_OVERSIZED)
        assert event.response is not None
        choices: list[Choice] | None = None
        for j, choice in enumerate(event.response.choices):
            for by_pass in passes:
                changed = self.rewrite(choice.message, event.id, by_pass)
                if changed is not None:
                    choices = list(event.response.choices) if choices is None else choices
                    choices[j] = replace(choice, message=changed[0])
                    rewrites.append(changed[1])
                    break
        return event if choices is None else with_choices(event, choices)

    def rewrite(self, message: Message, event_id: str, by_pass: int) -> tuple[Message, Rewrite] | None:
        """The form that one pass gives to one message, None when it leaves it alone."""
        if message.role != TOOL or not message.tool_id or (message.tool_name and message.tool_name in self._keep):
            return None
        place = (id(message), by_pass, event_id)
        known = self._forms.get(place)
        if known is None:
            known = self._forms[place] = (message, self._judge(message, event_id, by_pass))
            if known[1] is not None:
                self.passes[id(known[1][0])] = known[1][1]
        return known[1]

    def _judge(self, message: Message, event_id: str, by_pass: int) -> tuple[Message, Rewrite] | None:
        if by_pass == PASS_POLICY:
            return self._force_clean(message, event_id)
        try:
            if by_pass == PASS_HISTORICAL:
                return self._replace_historical(message, event_id)
            if by_pass == PASS_RESUME:
                return self._replace_in_resume_tail(message, event_id)
            return self._cut_oversized(message, event_id)
        except Exception:  # a foreign counter may raise anything; without a count nothing is changed
            return None

    def _force_clean(self, message: Message, event_id: str) -> tuple[Message, Rewrite] | None:
        if not message.tool_name or message.tool_name not in self._force:
            return None
        if not message.content and not message.content_parts:
            return None
        if _is_any_placeholder(message.content) and not message.content_parts:
            return None
        cleaned = Message(role=TOOL, content=POLICY_PLACEHOLDER, tool_id=message.tool_id, tool_name=message.tool_name)
        try:
            before, after = self.memo.tokens(message), self.memo.tokens(cleaned)
        except Exception:  # policy doesn't depend on counting; the saving is just unknown
            before = after = 0
        return cleaned, _rewrite_of(message, cleaned, event_id, PASS_POLICY, before, after)

    def _replace_historical(self, message: Message, event_id: str) -> tuple[Message, Rewrite] | None:
        if is_recovery_placeholder(message.content) and not message.content_parts:
            return None
        before = self.memo.tokens(message)
        if before <= self.settings.tool_result_max_tokens:
            return None
        ref = ToolResultRecoveryRef.of(event_id, message, REASON_HISTORICAL, available=self.session_load_available)
        replaced = Message(role=TOOL, content=ref.placeholder(), tool_id=message.tool_id, tool_name=message.tool_name)
        after = self.memo.tokens(replaced)
        if after >= before:
            return None
        return replaced, _rewrite_of(message, replaced, event_id, PASS_HISTORICAL, before, after)

    def _cut_oversized(self, message: Message, event_id: str) -> tuple[Message, Rewrite] | None:
        if message.tool_name == SESSION_LOAD or not message.content or _is_any_placeholder(message.content):
            return None
        max_tokens = self.settings.oversized_tool_result_max_tokens
        before = self.memo.tokens(message)
        if before <= max_tokens:
            return None
        ref = ToolResultRecoveryRef.of(event_id, message, REASON_OVERSIZED, available=self.session_load_available)
        cut = self._largest_cut(message, max_tokens, ref)
        if cut is None:
            return None
        after = self.memo.tokens(cut)
        if after >= before:
            return None
        return cut, _rewrite_of(message, cut, event_id, PASS_OVERSIZED, before, after)

    def _largest_cut(self, message: Message, max_tokens: int, ref: ToolResultRecoveryRef) -> Message | None:
        """The longest head-and-tail form within the limit, by binary search (ASM-CMP-40)."""
        text = message.content
        measure = self._measure_of_cut(message, ref)
        best, low, high = -1, 0, len(text) - 1
        while low <= high:
            middle = (low + high) // 2
            if measure(middle) <= max_tokens:
                best, low = middle, middle + 1
            else:
                high = middle - 1
        return None if best < 0 else replace(message, content=truncate_middle(text, best, ref))

    def _measure_of_cut(self, message: Message, ref: ToolResultRecoveryRef) -> Callable[[int], int]:
        """max_chars -> tokens of the message cut to it."""
        counter = self.memo.counter
        if type(counter) is SimpleTokenCounter:  # lengths are enough, no text needs to be built
            n_chars = len(message.content)
            other_runes = counter.runes(message) - n_chars
            return lambda max_chars: counter.tokens_from_runes(
                other_runes + _cut_length(n_chars, max_chars, ref), non_empty=True
            )
        probe = TokenMemo(counter)
        return lambda max_chars: probe.tokens(
            replace(message, content=truncate_middle(message.content, max_chars, ref))
        )

    def _replace_in_resume_tail(self, message: Message, event_id: str) -> tuple[Message, Rewrite] | None:
        before = self.memo.tokens(message)
        if before <= self.settings.tool_result_max_tokens:
            return None
        ref = ToolResultRecoveryRef.of(event_id, message, REASON_RESUME, available=self.session_load_available)
        replaced = replace(
            message, content=ref.placeholder(), content_parts=(), reasoning_content="", reasoning_signature=""
        )
        return replaced, _rewrite_of(message, replaced, event_id, PASS_RESUME, before, self.memo.tokens(replaced))

    # --- the resume tail (ASM-INTRA-14) ---------------------------------------------------------------

    def compact_resume_event(self, event: Event) -> tuple[Event, list[Rewrite]]:
        """An event of the resume tail with its oversized arguments and results replaced, one by one."""
        rewrites: list[Rewrite] = []
        if not self.settings.enabled or self.settings.tool_result_max_tokens <= 0 or event.response is None:
            return event, rewrites
        choices = []
        for choice in event.response.choices:
            message = self._without_big_arguments(choice.message)
            delta = self._without_big_arguments(choice.delta)
            changed = self.rewrite(message, event.id, PASS_RESUME)
            if changed is not None:
                message = changed[0]
                rewrites.append(changed[1])
            choices.append(replace(choice, message=message, delta=delta))
        return with_choices(event, choices), rewrites

    def would_compact_resume_event(self, event: Event) -> bool:
        """The event holds a result that the resume tail would replace (ASM-INTRA-16)."""
        if not self.settings.enabled or self.settings.tool_result_max_tokens <= 0:
            return False
        return any(self.rewrite(message, event.id, PASS_RESUME) is not None for message in event.messages)

    def _without_big_arguments(self, message: Message) -> Message:
        if not message.tool_calls:
            return message
        calls = tuple(
            replace(call, arguments=RESUME_ARGUMENTS) if self._is_big(call) else call for call in message.tool_calls
        )
        return message if calls == message.tool_calls else replace(message, tool_calls=calls)

    def _is_big(self, call: ToolCall) -> bool:
        if not call.arguments:
            return False
        try:
            tokens = self.memo.counter.count_tokens(EMPTY_CONTEXT, Message(role=USER, content=call.arguments))
        except Exception:  # as above: no count, no change
            return False
        return isinstance(tokens, int) and tokens > self.settings.tool_result_max_tokens


def compact_increment_events(
    events: Sequence[Event],
    current_key: str,
    compactor: Compactor,
    *,
    skip_recent: SkipRecentFunc | None = None,
) -> tuple[list[Event], ContextCompactionStats]:
    """Protected set and passes over a whole list of projected events."""
    protected = protected_units(
        events, current_key, keep_recent=compactor.settings.keep_recent_requests, skip_recent=skip_recent
    )
    compacted, rewrites = compactor.compact(events, current_key=current_key, protected=protected)
    return compacted, ContextCompactionStats.of(rewrites)


def with_choices(event: Event, choices: Sequence[Choice]) -> Event:
    """The event with other choices."""
    assert event.response is not None
    return replace(event, response=replace(event.response, choices=tuple(choices)))


def _is_any_placeholder(content: str) -> bool:
    return content == POLICY_PLACEHOLDER or is_recovery_placeholder(content)


def _rewrite_of(message: Message, form: Message, event_id: str, by_pass: int, before: int, after: int) -> Rewrite:
    return Rewrite(event_id, message.tool_id, message.tool_name, by_pass, before, after, form)
