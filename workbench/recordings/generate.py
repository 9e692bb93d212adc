"""Conversations of any length, made by rule from a seed: for load tests, long replays and notebooks.

In: number of events, seed, language. Out: one conversation in the `openai-chat` form, or a file of them.
The same arguments give the same bytes on every machine: only `random.Random(seed).random()` decides, the
clock is the recording's own. The rhythm is that of a service desk: a user tells of a case, the assistant
looks it up, the tool answers, the assistant decides; later the user comes back to cases of long ago, so the
assistant needs facts that were said thousands of events before (WB-DATA-01).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from random import Random
from typing import Any, Literal, TypeVar, get_args

from workbench.errors import ConfigError
from workbench.recordings.phrases import LEXICONS, Lexicon, Prose

Language = Literal["zh", "en", "mixed", "ja", "ko"]

START = datetime(2026, 1, 5, 1, 0, tzinfo=UTC)
_ZONE_HOURS = {"zh": 8, "en": 0, "mixed": 8, "ja": 9, "ko": 9}
_CURRENT, _RECALLED = 0.45, 0.25
"""Shares of turns that stay with the current case, and that go back to an old one; the rest open a new one."""
_TOOLS = (
    ("lookup_case", "Look up a case by its id.", "case_id"),
    ("search_log", "Search the log of a case.", "query"),
    ("update_case", "Write a decision into a case.", "case_id"),
)
_LEVELS = ("INFO", "INFO", "INFO", "WARN")
_LOG_EVENTS = (
    "scan accepted",
    "retry scheduled",
    "label printed",
    "quota checked",
    "operator note added",
    "route recalculated",
    "stock reserved",
    "sensor read",
    "queue drained",
    "signature stored",
)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Case:
    """The facts of one matter; they are what later turns come back to."""

    id: str
    goods: str
    bought: str
    amount: str
    date: str
    place: str
    name: str
    code: str


def generate_conversation(
    *,
    n_events: int,
    seed: int,
    language: Language = "mixed",
    tool_share: float = 0.6,
    id: str = "",  # noqa: A002 - the form's own word
) -> dict[str, Any]:
    """One conversation with exactly `n_events` messages after the system message.

    Args:
        n_events: Messages besides the system message; each becomes one event. A last user message may stay
            unanswered when the number leaves no room for an answer.
        seed: Decides everything together with the other arguments.
        language: `mixed` is Chinese and English by turns, with tool results in English.
        tool_share: Share of turns in which the assistant calls a tool, 0 to 1.
        id: Name of the conversation, `generated-<language>-<seed>` by default.
    Raises:
        ConfigError: a negative length, an unknown language, a share outside 0 to 1.
    """
    if n_events < 0:
        raise ConfigError.for_field("n_events", n_events, "0 or more")
    if language not in get_args(Language):
        raise ConfigError.for_field("language", language, ", ".join(get_args(Language)))
    if not 0 <= tool_share <= 1:
        raise ConfigError.for_field("tool_share", tool_share, "0 to 1")
    writer = _Writer(Random(seed), language, tool_share)  # noqa: S311 - made-up text, no secrets
    return {
        "id": id or f"generated-{language}-{seed}",
        "model": "gpt-4.1-mini",
        "messages": writer.write(n_events),
        "tools": [_tool(*row) for row in _TOOLS],
    }


def write_generated(
    path: str | Path,
    *,
    n_events: int,
    seed: int,
    language: Language = "mixed",
    tool_share: float = 0.6,
    n_conversations: int = 1,
) -> Path:
    """Write a JSONL file of generated conversations with seeds `seed`, `seed + 1`, ...; returns its path."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("w", encoding="utf-8", newline="") as file:
        for number in range(n_conversations):
            conversation = generate_conversation(
                n_events=n_events, seed=seed + number, language=language, tool_share=tool_share
            )
            file.write(json.dumps(conversation, ensure_ascii=False) + "\n")
    return target


class _Writer:
    """Grows one conversation, message by message, and moves its clock."""

    def __init__(self, random: Random, language: Language, tool_share: float) -> None:
        self._chance = random.random
        self._language = language
        self._tool_share = tool_share
        self._now = START.astimezone(timezone(timedelta(hours=_ZONE_HOURS[language])))
        self._messages: list[dict[str, Any]] = []
        self._cases: list[tuple[Case, Lexicon]] = []
        self._n_calls = 0

    def write(self, n_events: int) -> list[dict[str, Any]]:
        lexicon = LEXICONS["zh" if self._language == "mixed" else self._language]
        self._add("system", lexicon.system)
        while (left := n_events + 1 - len(self._messages)) > 0:
            self._idle()
            self._turn(left)
        return self._messages

    def _turn(self, left: int) -> None:
        """One request: user, perhaps call and result, answer; never more than `left` messages."""
        case, lexicon, asks, answers = self._subject()
        words = {slot: getattr(case, slot) for slot in Case.__slots__}
        self._say("user", lexicon.user_prose, asks, words, lexicon.gap)
        if left >= 4 and self._chance() < self._tool_share:
            self._call_tool(case, lexicon)
        if left >= 2:
            self._say("assistant", lexicon.staff_prose, answers, words, lexicon.gap)

    def _subject(self) -> tuple[Case, Lexicon, Sequence[str], Sequence[str]]:
        """`(case, lexicon, patterns of the user, patterns of the assistant)` of the next turn."""
        dice = self._chance()
        if self._cases and dice < _CURRENT:
            case, lexicon = self._cases[-1]
            return case, lexicon, lexicon.questions, lexicon.answers
        if len(self._cases) > 3 and dice < _CURRENT + _RECALLED:
            # The square favours the oldest cases: facts have to survive long, not only often.
            case, lexicon = self._cases[int(len(self._cases) * self._chance() ** 2)]
            return case, lexicon, lexicon.recalls, lexicon.answers
        lexicon = self._lexicon()
        case = self._new_case(lexicon)
        self._cases.append((case, lexicon))
        return case, lexicon, lexicon.openings, lexicon.decisions

    def _lexicon(self) -> Lexicon:
        if self._language == "mixed":
            return LEXICONS["zh" if self._chance() < 0.65 else "en"]
        return LEXICONS[self._language]

    def _new_case(self, lexicon: Lexicon) -> Case:
        bought = self._now - timedelta(days=2 + self._below(28))
        promised = self._now + timedelta(days=2 + self._below(20))
        whole, cents = 20 + self._below(4000), self._below(20) * 5
        return Case(
            id=f"{self._letters()}{self._now:%y%m%d}-{len(self._cases) + 1:05d}",
            goods=self._pick(lexicon.goods),
            bought=bought.date().isoformat(),
            amount=f"{whole}.{cents:02d}" if lexicon.has_cents else f"{whole * 10:,}",
            date=promised.date().isoformat(),
            place=self._pick(lexicon.places),
            name=self._pick(lexicon.names),
            code=f"E{10 + self._below(90)}",
        )

    def _call_tool(self, case: Case, lexicon: Lexicon) -> None:
        """An assistant message with one call, and the tool's answer."""
        name, _, argument = self._pick(_TOOLS)
        self._n_calls += 1
        call_id = f"call_{self._n_calls:06d}"
        arguments = {argument: case.id if argument == "case_id" else f"{case.id} {case.code}"}
        function = {"name": name, "arguments": json.dumps(arguments)}
        self._add("assistant", None, tool_calls=[{"id": call_id, "type": "function", "function": function}])
        result = self._log(case) if name == "search_log" else self._record(case, lexicon)
        self._add("tool", result, tool_call_id=call_id, name=name)

    def _record(self, case: Case, lexicon: Lexicon) -> str:
        """A JSON answer of a few hundred characters."""
        moment = self._now - timedelta(hours=1 + self._below(40))
        steps = []
        for _ in range(1 + self._below(5)):
            state, by = self._pick(lexicon.states), self._pick(lexicon.names)
            steps.append({"at": moment.isoformat(), "by": by, "state": state})
            moment += timedelta(minutes=1 + self._below(8))
        facts = {slot: getattr(case, slot) for slot in Case.__slots__}
        note = self._prose(lexicon.staff_prose, self._below(100))
        return json.dumps({"ok": True, **facts, "note": note, "steps": steps}, ensure_ascii=False)

    def _log(self, case: Case) -> str:
        """Log lines, English whatever the conversation speaks; now and then very many."""
        n_lines = 40 + self._below(60) if self._chance() < 0.06 else 4 + self._below(10)
        moment = self._now - timedelta(hours=2 + self._below(40))
        lines = []
        for _ in range(n_lines):
            level, event = self._pick(_LEVELS), self._pick(_LOG_EVENTS)
            where = f"unit={self._below(64):02d} case={case.id} code={case.code}"
            lines.append(f"{moment.isoformat()} {level} {where} {event} took_ms={self._below(9000)}")
            moment += timedelta(seconds=self._below(70))
        return "\n".join(lines)

    def _say(self, role: str, prose: Prose, patterns: Sequence[str], words: dict[str, str], gap: str) -> None:
        """One sentence with facts, and up to three of prose behind it."""
        sentences = [self._pick(patterns).format_map(words)]
        first = self._below(len(prose.beginnings))
        sentences += [self._prose(prose, first + number) for number in range(self._below(4))]
        self._add(role, gap.join(sentences))

    def _prose(self, prose: Prose, number: int) -> str:
        """A sentence with the beginning of that number, so that one message doesn't begin two alike."""
        beginning = prose.beginnings[number % len(prose.beginnings)]
        return f"{beginning}{prose.joint}{self._pick(prose.middles)}{prose.tail}{self._pick(prose.ends)}"

    def _add(self, role: str, content: str | None, **fields: Any) -> None:
        self._messages.append({"role": role, "content": content, **fields, "timestamp": self._now.isoformat()})
        self._now += timedelta(seconds=2 + self._below(12))

    def _idle(self) -> None:
        """Time between two requests: mostly minutes, sometimes hours, sometimes days."""
        dice = self._chance()
        if dice < 0.85:
            self._now += timedelta(seconds=15 + self._below(600))
        elif dice < 0.97:
            self._now += timedelta(minutes=60 + self._below(9 * 60))
        else:
            self._now += timedelta(hours=14 + self._below(60))

    def _letters(self) -> str:
        return "".join(self._pick("ABCDEFGHKLMNPRSTWXZ") for _ in range(2))

    def _below(self, limit: int) -> int:
        return int(self._chance() * limit)

    def _pick(self, choices: Sequence[T]) -> T:
        return choices[int(self._chance() * len(choices))]


def _tool(name: str, description: str, argument: str) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {argument: {"type": "string"}}, "required": [argument]}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}
