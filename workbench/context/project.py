"""From selected events to messages: pairing, foreign authors, reasoning, anchors, merging, attachments.

In: entries of `workbench.context.select`, already compacted or not. Out: a `Lane` of messages with the kind
and the position of each. Implements ASM-HIST (section 3) in its order; no function changes an event.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from workbench.context.compact import Compactor, Rewrite, with_choices
from workbench.context.select import (
    DROPPED_NO_CONTENT,
    DROPPED_PAIRING,
    DROPPED_TRANSCRIPT,
    RULE_CURRENT_MESSAGE,
    RULE_CURRENT_TURN,
    RULE_PLAIN,
    Entry,
    Invocation,
    Lens,
    TurnKey,
    only_matched,
    turn_key,
    turn_role,
)
from workbench.model.types import ASSISTANT, SYSTEM, TOOL, USER, Choice, ContentPart, Message
from workbench.session.rounds import (
    ResultMatch,
    call_ids,
    is_call,
    is_complete,
    is_per_call_result,
    is_result,
    match_results,
    result_id,
    result_ids,
    round_starts,
)
from workbench.session.scope import is_same_or_below
from workbench.session.types import Event

CONTEXT_PREFIX = "For context:"
BLOCK_SEPARATOR = "\n\n"
MAX_ATTACHMENT_NAMES = 20
ATTACHMENT_PREFIX = "Attached files"

# What a message is in a request; the trace splits tokens by these.
KIND_SYSTEM = "system"
KIND_PROMPT = "prompt"
KIND_FEW_SHOT = "few_shot"
KIND_INJECTED = "injected"
KIND_SUMMARY = "summary"
KIND_HISTORY = "history"
KIND_TOOL_RESULT = "tool_result"
KIND_CURRENT = "current"
KIND_LATE = "late"
KINDS = (
    KIND_SYSTEM,
    KIND_PROMPT,
    KIND_FEW_SHOT,
    KIND_INJECTED,
    KIND_SUMMARY,
    KIND_HISTORY,
    KIND_TOOL_RESULT,
    KIND_CURRENT,
    KIND_LATE,
)
"""`prompt` is a message of the base request that isn't a system message; `summary` a block that stands alone."""

MessageProjector = Callable[[Invocation, Event, Message], Message]


@dataclass(slots=True)
class Lane:
    """Messages of a stretch of history with, in parallel, what each is and which event it stands for.

    Once a lane is part of a request it may only grow at its end, since requests hold parts of it.
    """

    messages: list[Message] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    rewrites: list[Rewrite] = field(default_factory=list)
    covered: list[tuple[int, str]] = field(default_factory=list)
    """(position, rule) of covered events that are in all the same."""
    is_verbatim: bool = True
    """False when sanitising changed the number or the order of messages."""
    sources: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """Index of a message that was made of several events -> the positions of all of them."""
    measure: object = None
    """What tailoring knows about the messages, kept beside them so that it grows with them."""
    _users: list[int] = field(default_factory=list)
    _n_scanned: int = 0

    def __len__(self) -> int:
        return len(self.messages)

    def add(self, message: Message, kind: str, position: int) -> None:
        """One more message at the end."""
        self.messages.append(message)
        self.kinds.append(kind)
        self.positions.append(position)

    def extend(self, other: Lane) -> None:
        """All of another lane behind this one."""
        offset = len(self.messages)
        self.users()
        self._users += [offset + i for i in other.users()]
        self.messages += other.messages
        self.kinds += other.kinds
        self.positions += other.positions
        self.sources.update((offset + i, positions) for i, positions in other.sources.items())
        self.rewrites += other.rewrites
        self.covered += other.covered
        self.is_verbatim = self.is_verbatim and other.is_verbatim
        self._n_scanned = len(self.messages)

    def users(self) -> list[int]:
        """Indices of the user-like messages."""
        if self._n_scanned < len(self.messages):
            for i in range(self._n_scanned, len(self.messages)):
                if self.messages[i].is_user_like:
                    self._users.append(i)
            self._n_scanned = len(self.messages)
        return self._users

    def set_users(self, indices: Iterable[int]) -> None:
        """Say which messages count as user messages, for lanes in which others look like them (ASM-SAN-02)."""
        self._users = list(indices)
        self._n_scanned = len(self.messages)


# --- arranging events ---------------------------------------------------------------------------------


def arrange(entries: list[Entry], lens: Lens, *, ends_request: bool = True) -> list[Entry]:
    """Events in the order in which they are sent: every result behind its call (ASM-HIST-04 to -08).

    `ends_request` says that the last entry is the last of the whole request (ASM-HIST-05).
    """
    if lens.settings.tool_transcript_mode == "omit_previous_completed":
        kept = _without_previous_rounds(entries, lens.invocation)
        lens.dropped.compare(DROPPED_TRANSCRIPT, entries, kept)
        entries = kept
    if _is_in_order(entries):
        return entries
    arranged = _results_behind_calls(_latest_round_closed(entries) if ends_request else entries)
    lens.dropped.compare(DROPPED_PAIRING, entries, arranged)
    return arranged


def _is_in_order(entries: Sequence[Entry]) -> bool:
    """Each call has one result event directly behind it, which answers all of it: nothing has to move."""
    waiting: list[str] = []
    for entry in entries:
        event = entry.event
        if is_call(event):
            if waiting:
                return False
            waiting = call_ids(event)
            if "" in waiting or len(set(waiting)) != len(waiting):
                return False
        elif is_result(event):
            if is_per_call_result(event) or sorted(waiting) != sorted(result_ids(event)):
                return False
            messages = event.messages
            if len(messages) != len(waiting) or (len(messages) > 1 and not all(one.has_payload for one in messages)):
                return False
            waiting = []
        elif waiting:
            return False
    return not waiting


def _events(entries: Iterable[Entry]) -> list[Event]:
    return [entry.event for entry in entries]


def _without_previous_rounds(entries: list[Entry], invocation: Invocation) -> list[Entry]:
    """Answered rounds that lie wholly in earlier requests lose calls and results; texts stay (ASM-HIST-08)."""
    events = _events(entries)
    matches = match_results(events)
    dropped_calls = set()
    dropped_choices: dict[int, set[int]] = {}
    for i, results in matches.items():
        members = [i, *(match.index for match in results)]
        if all(_is_earlier(events[j], invocation) for j in members) and is_complete(events, i, matches):
            dropped_calls.add(i)
            for match in results:
                dropped_choices.setdefault(match.index, set()).update(match.choices)
    kept = []
    for i, entry in enumerate(entries):
        rest: Event | None = entry.event
        if i in dropped_calls:
            rest = _without_calls(entry.event)
        elif i in dropped_choices:
            rest = _without_choices(entry.event, dropped_choices[i])
        if rest is not None:
            kept.append(entry if rest is entry.event else replace(entry, event=rest))
    return kept


def _is_earlier(event: Event, invocation: Invocation) -> bool:
    """The event belongs to an earlier request; where requests have no id, to an earlier invocation."""
    if invocation.request_id:
        if event.request_id:
            return event.request_id != invocation.request_id
    if invocation.invocation_id and event.invocation_id == invocation.invocation_id:
        return False
    return bool(event.request_id or event.invocation_id)


def _without_calls(event: Event) -> Event | None:
    """The event without its tool calls, None when nothing else is left."""
    assert event.response is not None
    choices = []
    for choice in event.response.choices:
        bare = replace(
            choice,
            message=replace(choice.message, tool_calls=()),
            delta=replace(choice.delta, tool_calls=()) if choice.delta.tool_calls else choice.delta,
        )
        if any(message.content or message.content_parts for message in (bare.message, bare.delta)):
            choices.append(bare)
    return with_choices(event, choices) if choices else None


def _without_choices(event: Event, dropped: Collection[int]) -> Event | None:
    assert event.response is not None
    choices = [choice for j, choice in enumerate(event.response.choices) if j not in dropped]
    return with_choices(event, choices) if choices else None


def _latest_round_closed(entries: list[Entry]) -> list[Entry]:
    """When the last event is a result: its round becomes the end of the request (ASM-HIST-05)."""
    ids = set(result_ids(entries[-1].event)) if is_result(entries[-1].event) else set()
    if not ids:
        return entries
    for i in range(len(entries) - 2, -1, -1):
        if is_call(entries[i].event) and not ids.isdisjoint(call_ids(entries[i].event)):
            wanted = set(call_ids(entries[i].event))
            results = [
                entry
                for entry in entries[i + 1 :]
                if is_result(entry.event) and not wanted.isdisjoint(result_ids(entry.event))
            ]
            return [*entries[: i + 1], _merged_results(results)]
    return entries


def _results_behind_calls(entries: list[Entry]) -> list[Entry]:
    """Every matched result directly behind its call, unmatched results dropped (ASM-HIST-04, -07)."""
    events = _events(entries)
    matches = match_results(events)
    arranged = []
    for i, entry in enumerate(entries):
        if is_call(entry.event):
            arranged += _round(entries, events, i, matches)
        elif not is_result(entry.event):
            arranged.append(entry)
    return arranged


def _round(
    entries: list[Entry], events: list[Event], call: int, matches: Mapping[int, list[ResultMatch]]
) -> list[Entry]:
    results = [_only_matched(entries[match.index], match) for match in matches.get(call, ())]
    one_by_one = _has_per_call_results(events, call, matches.get(call, ()))
    if one_by_one and not is_complete(events, call, matches):
        rest = _without_calls(events[call])
        return [] if rest is None else [replace(entries[call], event=rest)]
    if not results:
        return [entries[call]]
    merged = results[0] if len(results) == 1 else _merged_results(results)
    return [entries[call], _in_call_order(merged, call_ids(events[call])) if one_by_one else merged]


def _only_matched(entry: Entry, match: ResultMatch) -> Entry:
    event = only_matched(entry.event, match)
    if event is entry.event:
        return entry
    positions = tuple(entry.choice_positions[j] for j in match.choices) if entry.choice_positions else ()
    return replace(entry, event=event, choice_positions=positions)


def _merged_results(entries: Sequence[Entry]) -> Entry:
    """One result event of several: the first is the base, choices without payload go (ASM-HIST-06)."""
    base = entries[0]
    choices: list[Choice] = []
    positions: list[int] = []
    for entry in entries:
        assert entry.event.response is not None
        for j, choice in enumerate(entry.event.response.choices):
            message = choice.message if choice.message.tool_id else choice.delta
            if message.tool_id and message.has_payload:
                choices.append(choice)
                positions.append(_position_of(entry, j))
    if not choices:
        return base
    if len(entries) == 1 and len(choices) == len(base.event.messages):
        return base
    spread = tuple(positions) if set(positions) != {base.position} else ()
    return replace(base, event=with_choices(base.event, choices), choice_positions=spread)


def _position_of(entry: Entry, choice: int) -> int:
    return entry.choice_positions[choice] if entry.choice_positions else entry.position


def _has_per_call_results(events: Sequence[Event], call: int, results: Sequence[ResultMatch]) -> bool:
    """The round's results come one event per call, also when only an unmatched one shows it."""
    if any(is_per_call_result(events[match.index]) for match in results):
        return True
    for candidate in events[call + 1 :]:
        if not _same_invocation(events[call], candidate):
            continue
        if is_call(candidate) or (candidate.response is not None and candidate.response.is_user_message):
            return False
        if is_per_call_result(candidate):
            return True
    return False


def _same_invocation(event: Event, other: Event) -> bool:
    return (
        bool(event.invocation_id)
        and event.invocation_id == other.invocation_id
        and event.request_id == other.request_id
    )


def _in_call_order(entry: Entry, ids: Sequence[str]) -> Entry:
    """Choices in the order of the calls; choices of no call stay behind."""
    assert entry.event.response is not None
    choices = entry.event.response.choices
    rank = {call_id: i for i, call_id in reversed(list(enumerate(ids)))}
    order = sorted(range(len(choices)), key=lambda j: rank.get(result_id(choices[j]), len(ids)))
    if order == list(range(len(choices))):
        return entry
    positions = tuple(entry.choice_positions[j] for j in order) if entry.choice_positions else ()
    return replace(entry, event=with_choices(entry.event, [choices[j] for j in order]), choice_positions=positions)


# --- events to messages -------------------------------------------------------------------------------


@dataclass(slots=True)
class Projection:
    """How arranged entries become messages, for one call."""

    lens: Lens
    projector: MessageProjector | None = None
    requests_with_calls: Collection[str] = ()
    anchors: Mapping[TurnKey, Entry] = field(default_factory=dict)
    started: set[TurnKey] = field(default_factory=set)
    """Turns whose first message is out, so that they get no anchor any more."""
    forms: dict[tuple[int, str], tuple[object, Message]] = field(default_factory=dict)
    """Rewritten messages by the identity of what they were made of; shared between calls, so that equal forms
    stay the same object."""

    def project(self, entries: Sequence[Entry]) -> Lane:
        """Messages of the entries, in order, merged and annotated; without the history limit."""
        lane = Lane()
        for entry in entries:
            messages = self._messages(entry)
            if not messages:
                self.lens.dropped.note(entry.event, DROPPED_NO_CONTENT)
                continue
            if self.anchors:
                key = turn_key(entry.event)
                role = _first_role(messages)
                if key is not None and role and key not in self.started:
                    self.started.add(key)
                    if role in (ASSISTANT, TOOL) and key in self.anchors:
                        anchor = self.anchors[key]
                        self._append(anchor, self._messages(anchor), lane)
            self._append(entry, messages, lane)
        if self.lens.settings.add_context_prefix:
            lane = merge_context_messages(lane)
        for i, message in enumerate(lane.messages):
            if message.content_parts and message.is_user_like:
                lane.messages[i] = self._form(message, "files", with_attachment_names)
        return lane

    def _form(self, message: Message, purpose: str, make: Callable[[Message], Message]) -> Message:
        known = self.forms.get((id(message), purpose))
        if known is None:
            known = self.forms[id(message), purpose] = (message, make(message))
        return known[1]

    def _append(self, entry: Entry, messages: Sequence[Message], lane: Lane) -> None:
        position = entry.position
        if entry.rule != RULE_PLAIN and position >= 0 and messages:
            if self.lens.cutoff.covers(position, entry.event):
                stored = dict.fromkeys(entry.choice_positions or (position,))
                lane.covered += [(one, entry.rule) for one in stored]
        is_current = entry.rule in (RULE_CURRENT_MESSAGE, RULE_CURRENT_TURN)
        spread = len(entry.choice_positions) == len(messages)
        if entry.choice_positions and not spread and messages:
            lane.sources[len(lane)] = tuple(dict.fromkeys(entry.choice_positions))
        for j, message in enumerate(messages):
            if message.role == TOOL:
                kind = KIND_TOOL_RESULT
            elif message.role == SYSTEM:
                kind = KIND_SYSTEM
            else:
                kind = KIND_CURRENT if is_current and message.is_user_like else KIND_HISTORY
            lane.add(message, kind, entry.choice_positions[j] if spread else position)

    def _messages(self, entry: Entry) -> list[Message]:
        event = entry.event
        if self.is_foreign(event):
            sent: Iterable[Message] = self._foreign_form(event)
        elif event.response is None:
            return []
        else:
            sent = [choice.message for choice in event.response.choices]
        messages = []
        for message in sent:
            if message.role == ASSISTANT and message.reasoning_content and self._drops_reasoning(event):
                message = self._form(message, "bare", _without_reasoning)
            if self.projector is not None:
                message = self.projector(self.lens.invocation, event, message)
            if message.role == ASSISTANT and not (message.content or message.content_parts or message.tool_calls):
                continue  # reasoning alone isn't enough (ASM-HIST-14)
            messages.append(message)
        return messages

    def _drops_reasoning(self, event: Event) -> bool:
        mode = self.lens.settings.reasoning_content_mode
        if mode != "discard_previous_turns":
            return mode == "discard_all"
        if event.request_id == self.lens.invocation.request_id:
            return False
        return event.request_id not in self.requests_with_calls

    def is_foreign(self, event: Event) -> bool:
        """Another agent wrote it, and its roles aren't to be kept (ASM-HIST-09)."""
        settings, invocation = self.lens.settings, self.lens.invocation
        if not invocation.agent_name or event.author in ("", USER, invocation.agent_name):
            return False
        if settings.preserve_foreign_messages:
            return False
        if settings.preserve_same_branch and event.branch and invocation.branch:
            return not (
                is_same_or_below(event.branch, invocation.branch) or is_same_or_below(invocation.branch, event.branch)
            )
        return True

    def _foreign_form(self, event: Event) -> tuple[Message, ...]:
        known = self.forms.get((id(event), "foreign"))
        if known is not None:
            return (known[1],)
        made = self._as_foreign(event)
        if len(made) == 1:
            self.forms[id(event), "foreign"] = (event, made[0])
        return made

    def _as_foreign(self, event: Event) -> tuple[Message, ...]:
        """Another agent's event as one user message (ASM-HIST-10)."""
        if not event.messages:
            return ()
        prefixed = self.lens.settings.add_context_prefix
        texts = [CONTEXT_PREFIX] if prefixed else []
        parts: list[ContentPart] = []
        for message in event.messages:
            if message.content_parts:
                if prefixed:
                    parts.append(ContentPart("text", text=f"[{event.author}] said:"))
                parts += message.content_parts
            texts += _foreign_texts(message, event.author, prefixed=prefixed)
        if prefixed and (parts or self.lens.profile.reference_quirks):
            parts.insert(0, ContentPart("text", text=CONTEXT_PREFIX))
        if not texts and not parts:
            return event.messages
        return (Message(role=USER, content=" ".join(texts), content_parts=tuple(parts)),)


def _without_reasoning(message: Message) -> Message:
    return replace(message, reasoning_content="", reasoning_signature="")


def _first_role(messages: Iterable[Message]) -> str:
    """The part that an event plays in its turn; system messages play none (ASM-HIST-15)."""
    return next((role for message in messages if (role := turn_role(message)) and role != SYSTEM), "")


def _foreign_texts(message: Message, author: str, *, prefixed: bool) -> list[str]:
    if message.content:
        return [f"[{author}] said: {message.content}" if prefixed else message.content]
    if message.tool_calls:
        start = f"[{author}] called tool" if prefixed else "Tool"
        middle = "with parameters" if prefixed else "called with parameters"
        return [f"{start} `{call.name}` {middle}: {call.arguments}" for call in message.tool_calls]
    if message.tool_id:
        return [f"[{author}] `{message.tool_id}` tool returned result: " if prefixed else ""]
    return []


def is_context_message(message: Message) -> bool:
    """A user message that was made of another agent's event, or looks like one."""
    return message.role == USER and message.content.startswith(CONTEXT_PREFIX)


def merge_context_messages(lane: Lane) -> Lane:
    """Neighbouring context messages become one; ordinary user messages never do (ASM-HIST-12)."""
    merged = Lane(rewrites=lane.rewrites, covered=lane.covered)
    open_group = False
    for i, (message, kind, position) in enumerate(zip(lane.messages, lane.kinds, lane.positions, strict=True)):
        sources = lane.sources.get(i)
        if not (open_group and is_context_message(message)):
            open_group = is_context_message(message)
            if sources:
                merged.sources[len(merged)] = sources
            merged.add(message, kind, position)
        else:
            place = len(merged) - 1
            before = merged.sources.get(place, merged.positions[-1:])
            merged.sources[place] = tuple(dict.fromkeys((*before, *(sources or (position,)))))
            last = merged.messages[-1]
            merged.messages[-1] = replace(
                last,
                content=last.content + BLOCK_SEPARATOR + message.content,
                content_parts=last.content_parts + message.content_parts,
            )
            merged.positions[-1] = max(position, merged.positions[-1])
    return merged


def with_attachment_names(message: Message) -> Message:
    """A user message with files gets a leading text part that names them, once (ASM-HIST-17)."""
    parts = message.content_parts
    if not message.is_user_like or not parts:
        return message
    if any(part.type == "text" and part.text.strip().startswith(ATTACHMENT_PREFIX) for part in parts):
        return message
    files = [part for part in parts if part.type == "file"]
    if not files:
        return message
    names = [part.name.strip() or f"upload_{i}" for i, part in enumerate(files, 1)]
    text = f"{ATTACHMENT_PREFIX} ({len(files)}): {', '.join(names[:MAX_ATTACHMENT_NAMES])}"
    if len(files) > MAX_ATTACHMENT_NAMES:
        text += f" (+{len(files) - MAX_ATTACHMENT_NAMES} more)"
    return replace(message, content_parts=(ContentPart("text", text=text + "\n"), *parts))


# --- the history limit (ASM-HIST-16) ------------------------------------------------------------------


def history_start(messages: Sequence[Message], limit: int, unit: str) -> int:
    """Index of the first message that a limit of `limit` rounds or messages keeps."""
    if unit == "message":
        return _start_of_messages(messages, limit)
    starts = round_starts(messages)
    if messages and (not starts or starts[0] != 0):
        starts.insert(0, 0)  # what stands before the first user message is a round of its own
    return starts[-limit] if len(starts) > limit else 0


def _start_of_messages(messages: Sequence[Message], limit: int) -> int:
    start = max(len(messages) - limit, 0)
    if start == 0 or not _answers_a_call(messages[start]):
        return start
    cut_off = {call.id for message in messages[:start] for call in message.tool_calls}
    while start < len(messages) and _answers_a_call(messages[start]) and messages[start].tool_id in cut_off:
        start += 1
    return start


def _answers_a_call(message: Message) -> bool:
    return message.role == TOOL and bool(message.tool_id)


def compact_entries(
    entries: Sequence[Entry], compactor: Compactor, *, current_key: str, protected: Collection[str]
) -> tuple[list[Entry], list[Rewrite]]:
    """The three passes over entries."""
    events = _events(entries)
    compacted, rewrites = compactor.compact(events, current_key=current_key, protected=protected)
    if not rewrites:
        return list(entries), rewrites
    return [
        entry if entry.event is event else replace(entry, event=event)
        for entry, event in zip(entries, compacted, strict=True)
    ], rewrites
