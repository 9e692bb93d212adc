"""The format `dialogue`: conversations of corpora that know speakers, or only turns, but no roles.

In: rows of CrossWOZ, KdConv, RealPersonaChat, lists of utterances under the usual names, or any other rows
with a column mapping (`--map`). Out: conversations; who counts as user and who as assistant is stated in the
loss report. A mapping names columns (`text`, `speaker`, `turns`, `id`, `time`); with `speaker`, `user` and
`assistant` are the names that stand in it, without, they're two columns of one row per exchange.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta, timezone
from itertools import zip_longest
from typing import Any

from workbench.model.types import ASSISTANT, SYSTEM, TOOL, USER, Message
from workbench.recordings.draft import Draft
from workbench.recordings.moments import moment_ns
from workbench.recordings.problems import FaultyRecordError, kind_of, quoted
from workbench.recordings.reading import Format, Reading, own_id, values_of
from workbench.recordings.rows import Row
from workbench.recordings.types import Conversation

FORMAT_NAME = "dialogue"
JAPAN = timezone(timedelta(hours=9))
_ROLE_NAMES = {
    "tool": TOOL, "function": TOOL, "developer": SYSTEM,
    "用户": USER, "客户": USER, "顾客": USER, "ユーザー": USER, "お客様": USER, "고객": USER, "사용자": USER,
    "客服": ASSISTANT, "助手": ASSISTANT, "坐席": ASSISTANT, "オペレーター": ASSISTANT, "アシスタント": ASSISTANT,
    "상담원": ASSISTANT, "챗봇": ASSISTANT,
    "usr": USER, "user": USER, "human": USER, "customer": USER, "client": USER, "visitor": USER,
    "sys": ASSISTANT, "system": ASSISTANT, "assistant": ASSISTANT, "agent": ASSISTANT, "bot": ASSISTANT, "gpt": ASSISTANT,
}  # fmt: skip
_ANSWERING = {"assistant", "agent", "bot", "gpt"}
_TURN_KEYS = ("utterances", "turns", "dialogue", "dialog", "log", "conversation", "messages")
_TEXT_KEYS = ("text", "utterance", "message", "content", "value")
_SPEAKER_KEYS = ("speaker", "interlocutor_id", "from", "role", "user", "name")
_TIME_KEYS = ("timestamp", "time", "created_at")
_ID_KEYS = ("dialogue_id", "dialog_id", "conversation_id", "session_id", "id")


@dataclass(frozen=True, slots=True)
class _Turn:
    """One utterance: its text, who said it (if known), when (if known)."""

    text: Any
    speaker: Any = None
    time: Any = None
    line: int | None = None


def _turns_in(value: Any) -> tuple[str, list[Any]] | None:
    """The list of utterances in a row, with the key that it stands under."""
    if not isinstance(value, dict):
        return None
    for key in _TURN_KEYS:
        turns = value.get(key)
        if isinstance(turns, list) and turns and all(_is_turn(turn) for turn in turns[:2]):
            return key, turns
    return None


def _is_turn(turn: Any) -> bool:
    if isinstance(turn, str):
        return True
    return isinstance(turn, dict) and any(isinstance(turn.get(key), str) for key in _TEXT_KEYS)


def _recognises(value: Any) -> bool:
    found = _turns_in(value)
    if found is None:
        return False
    # Lists with the roles of the chat interface, or with roles nobody knows, are `openai-chat`.
    roles = {str(turn["role"]) for turn in found[1][:4] if isinstance(turn, dict) and "role" in turn}
    return roles <= {"usr", "sys"} or ("content" not in found[1][0] and roles <= _ROLE_NAMES.keys())


def _read(rows: Iterator[Row], reading: Reading) -> Iterator[Conversation]:
    if reading.options.mapping is not None:
        yield from _read_mapped(rows, reading, reading.options.mapping)
        return
    for row, value in values_of(rows, reading):
        try:
            yield _corpus_conversation(value, row, reading)
        except FaultyRecordError as fault:
            reading.refuse(fault, row)


def _corpus_conversation(value: Any, row: Row, reading: Reading) -> Conversation:
    """A row of a corpus whose layout is found out."""
    found = _turns_in(value)
    if found is None:
        if not isinstance(value, dict):
            raise FaultyRecordError(f"expected an object, got {kind_of(value)}")
        raise FaultyRecordError("no utterances found", "say where with --map turns=...,text=...")
    turns = [_turn_of(raw, number) for number, raw in enumerate(found[1], 1)]
    draft = Draft(reading, line=row.line)
    role = _roles([turn.speaker for turn in turns], draft)
    zone = None
    if "interlocutors" in value and reading.options.zone is None:  # RealPersonaChat; its paper names no zone
        zone = JAPAN
    _add_turns(draft, turns, role, reading, default_zone=zone)
    if zone is not None and any(turn.time for turn in turns):
        draft.lose("times without a zone read as Japan's (+09:00)")
    if value.keys() - {found[0], *_ID_KEYS, "interlocutors"} or any(map(_has_more, found[1])):
        draft.lose("annotations of the corpus (acts, states, goals, ratings)")
    return draft.finish(FORMAT_NAME, wanted_id=row.key or own_id(value, *_ID_KEYS))


def _turn_of(raw: Any, number: int) -> _Turn:
    if isinstance(raw, str):
        return _Turn(raw)
    if not isinstance(raw, dict):
        raise FaultyRecordError(f"message {number} is {kind_of(raw)}, expected an object or a text")

    def first(keys: Sequence[str]) -> Any:
        return next((raw[key] for key in keys if raw.get(key) is not None), None)

    return _Turn(first(_TEXT_KEYS), first(_SPEAKER_KEYS), first(_TIME_KEYS))


def _has_more(raw: Any) -> bool:
    known = {*_TEXT_KEYS, *_SPEAKER_KEYS, *_TIME_KEYS, "utterance_id"}
    return isinstance(raw, dict) and bool(raw.keys() - known)


def _roles(speakers: Sequence[Any], draft: Draft) -> Callable[[int], str]:
    """From the place of a turn to its role: known role names, else order of appearance, else turn about."""
    named = [name for name in speakers if isinstance(name, str)]
    if not named:
        draft.lose("roles assumed: the first turn is the user's, then turn about")
        return lambda place: ASSISTANT if place % 2 else USER
    if len(named) < len(speakers):
        place = next(place for place, name in enumerate(speakers, 1) if not isinstance(name, str))
        raise FaultyRecordError(f"message {place} has no speaker", "the others have one")
    if all(name.lower() in _ROLE_NAMES for name in named):
        roles = dict(_ROLE_NAMES)
        if any(name.lower() in _ANSWERING for name in named):  # else `system` is the side that answers
            roles["system"] = SYSTEM
        return lambda place: roles[str(speakers[place]).lower()]
    second = next((name for name in named if name != named[0]), None)
    draft.lose("roles assumed: the first speaker is the user, the second the assistant")
    return lambda place: ASSISTANT if speakers[place] == second and second is not None else USER


def _add_turns(
    draft: Draft, turns: Sequence[_Turn], role: Callable[[int], str], reading: Reading, *, default_zone: Any = None
) -> None:
    for place, turn in enumerate(turns):
        if turn.text is None:
            raise FaultyRecordError(f"message {place + 1} has neither content nor tool calls", line=turn.line)
        if not isinstance(turn.text, str):
            reason = f"message {place + 1}: content is {kind_of(turn.text)}, expected text or parts"
            raise FaultyRecordError(reason, line=turn.line)
        try:
            time_ns = moment_ns(turn.time, reading.options, default_zone=default_zone)
            draft.add(Message(role=role(place), content=turn.text), time_ns=time_ns, line=turn.line)
        except FaultyRecordError as fault:
            fault.line = fault.line or turn.line
            raise


# --- with a mapping ----------------------------------------------------------------------------------


def _read_mapped(rows: Iterator[Row], reading: Reading, columns: Mapping[str, str]) -> Iterator[Conversation]:
    """Rows that each hold a conversation (`turns`), or rows that are turns of one, grouped by `id`."""
    group: list[tuple[Row, Any]] = []
    group_id = ""
    for row, value in values_of(rows, reading):
        try:
            if not isinstance(value, dict):
                raise FaultyRecordError(f"expected an object, got {kind_of(value)}")
            row_id = own_id(value, columns["id"]) if "id" in columns else ""
            turns = _column(value, columns["turns"]) if "turns" in columns else (_turns_in(value) or (None, None))[1]
            if turns is not None:
                if not isinstance(turns, list):
                    raise FaultyRecordError(f"{columns['turns']} is {kind_of(turns)}, expected an array")
                yield mapped_conversation(turns, row, row_id or row.key, reading, columns)
                continue
        except FaultyRecordError as fault:
            reading.refuse(fault, row)
            continue
        if group and row_id != group_id:
            yield from _grouped(group, group_id, reading, columns)
            group = []
        group_id = row_id
        group.append((row, value))
    if group:
        yield from _grouped(group, group_id, reading, columns)


def _grouped(
    group: list[tuple[Row, Any]], group_id: str, reading: Reading, columns: Mapping[str, str]
) -> Iterator[Conversation]:
    try:
        yield mapped_conversation([value for _, value in group], group[0][0], group_id, reading, columns)
    except FaultyRecordError as fault:
        reading.refuse(fault, group[0][0])


def _column(value: Mapping[str, Any], path: str) -> Any:
    """A column; dots lead into objects, unless the name itself has them."""
    if path in value:
        return value[path]
    current: Any = value
    for name in path.split("."):
        current = current.get(name) if isinstance(current, dict) else None
    return current


def mapped_conversation(
    turns: Sequence[Any],
    row: Row,
    wanted_id: str,
    reading: Reading,
    columns: Mapping[str, str],
    *,
    format_name: str = FORMAT_NAME,
    lines: Sequence[int] = (),
) -> Conversation:
    """The conversation of rows, or of the turns in one, whose columns are known.

    Args:
        lines: Where each turn stands, if not all in the line of `row`.

    Raises:
        FaultyRecordError: a turn has no text, or its speaker isn't known.
    """
    draft = Draft(reading, line=row.line)
    numbered = list(zip_longest(turns, lines))
    if "text" not in columns:
        pairs = [pair for raw, line in numbered for pair in _exchange(raw, columns, line)]
        _add_turns(draft, [turn for turn, _ in pairs], lambda place: pairs[place][1], reading)
    else:
        found = [_mapped_turn(raw, columns, line) for raw, line in numbered]
        _add_turns(draft, found, _mapped_roles([turn.speaker for turn in found], columns, draft), reading)
    return draft.finish(format_name, wanted_id=wanted_id)


def _exchange(raw: Any, columns: Mapping[str, str], line: int | None) -> Iterator[tuple[_Turn, str]]:
    """The two turns of a row that holds a question and its answer."""
    if not isinstance(raw, dict):
        raise FaultyRecordError(f"expected an object, got {kind_of(raw)}")
    time = _column(raw, columns["time"]) if "time" in columns else None
    for role in (USER, ASSISTANT):
        yield _Turn(_column(raw, columns[role]), time=time, line=line), role


def _mapped_turn(raw: Any, columns: Mapping[str, str], line: int | None) -> _Turn:
    if not isinstance(raw, dict):
        raise FaultyRecordError(f"expected an object, got {kind_of(raw)}")
    speaker, time = (_column(raw, columns[key]) if key in columns else None for key in ("speaker", "time"))
    return _Turn(_column(raw, columns["text"]), speaker, time, line)


def _mapped_roles(speakers: Sequence[Any], columns: Mapping[str, str], draft: Draft) -> Callable[[int], str]:
    """Names given by the mapping (several with `|`); the side that isn't named is everybody else."""
    names = {role: set(columns[role].split("|")) for role in (USER, ASSISTANT) if role in columns}
    if not names:
        return _roles(speakers, draft)

    def role(place: int) -> str:
        speaker = str(speakers[place])
        for known, wanted in names.items():
            if speaker in wanted:
                return known
        if len(names) == 1:
            return ASSISTANT if USER in names else USER
        if speaker.lower() == SYSTEM:
            return SYSTEM
        raise FaultyRecordError(f"role {quoted(speaker)}", "expected the user or the assistant of --map")

    return role


DIALOGUE = Format(FORMAT_NAME, _recognises, _read)
