"""Questions with known answers, and whether a configuration still shows the answers (WB-RET-02).

In: `probes.jsonl` beside a recording, the recording, a configuration. Out: the state of each answer at the call that
needs it, by the same rules as needed facts; with a live model also what it answers from that very request, as a
judge sees it. Judgements are cached by content. Only the judged part calls a model.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from workbench.agent.flow import SentRequest
from workbench.call import EMPTY_CONTEXT
from workbench.config import RunConfig
from workbench.errors import ModelError, RecordingError
from workbench.facts import QUOTED, Candidate, candidates, folded
from workbench.model.client import Model
from workbench.model.types import USER, Message, Request
from workbench.recordings.types import Conversation, RecordedCall
from workbench.replay.conversation import replay_conversation
from workbench.replay.needed import NeededFact, NeededFacts
from workbench.replay.needed_states import VISIBLE
from workbench.replay.trace import TABLES
from workbench.session.types import Event

_NATIVE: Final = "workbench"
_KEYS: Final = {
    "id": str,
    "conversation": str,
    "question": str,
    "answer": str,
    "source_index": int,
    "needed_index": int,
}


@dataclass(frozen=True, slots=True)
class Probe:
    """A question that a later answer of the recording had to know."""

    id: str
    conversation: str
    question: str
    answer: str
    source_index: int
    """Message that says the answer first, from 0, the system message included; in a native recording the event."""
    needed_index: int
    """Message of the recorded answer that uses it, counted alike."""


@dataclass(frozen=True, slots=True)
class ProbeState:
    """What became of one probe's answer at the call that needs it."""

    probe: Probe
    call: int
    state: str
    """A key of `FACT_STATES`."""
    step: str
    """What took the event that said it out of the request; empty while a message says it."""
    request: Request
    """What the model would have got."""

    @property
    def is_visible(self) -> bool:
        """The request says the answer."""
        return self.state in VISIBLE


def load_probes(path: str | Path) -> list[Probe]:
    """The probes of a JSONL file.

    Raises:
        RecordingError: a line isn't a probe; carries path and line.
    """
    path = Path(path)
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.strip():
            try:
                value: Any = json.loads(line)
            except ValueError:
                value = None
            if not isinstance(value, dict) or any(type(value.get(key)) is not kind for key, kind in _KEYS.items()):
                reason = f"a probe is an object with {', '.join(_KEYS)}"
                raise RecordingError(reason, path=str(path), line=number, hint="mend the line or take it out")
            found.append(Probe(**{key: value[key] for key in _KEYS}))
    return found


def probe_states(conversation: Conversation, probes: Iterable[Probe], config: RunConfig) -> list[ProbeState]:
    """The state of each probe of this conversation under one configuration, in the order of the calls.

    Raises:
        RecordingError: a probe points at a message that the conversation hasn't, or at none that answers a call.
    """
    own = [probe for probe in probes if probe.conversation == conversation.id]
    placed = sorted(((_call_of(probe, conversation), probe) for probe in own), key=lambda pair: pair[0].index)
    needed = NeededFacts(
        facts=tuple(_fact(probe.answer) for _, probe in placed),
        needed=tuple(
            NeededFact(call.index, fact, _place(probe, probe.source_index, conversation), "")
            for fact, (call, probe) in enumerate(placed)
        ),
        source_ids=tuple(_event(probe, probe.source_index, conversation).id for _, probe in placed),
    )
    requests: dict[int, Request] = {}
    wanted = {call.index for call, _ in placed}

    def keep(facts: Any, sent: SentRequest) -> None:
        if facts.call in wanted:
            requests[facts.call] = sent.request

    trace = replay_conversation(conversation, config, on_sent=keep, needed=needed)
    rows = [dict(zip(TABLES["needed_facts"].column_names, row, strict=True)) for row in trace.rows["needed_facts"]]
    return [
        ProbeState(probe, call.index, str(row["state"]), str(row["step"]), requests[call.index])
        for (call, probe), row in zip(placed, rows, strict=True)
    ]


def _fact(answer: str) -> Candidate:
    """The answer as a fact: of its own class where it is one value, else as words that must occur."""
    whole = next((one for one in candidates(answer) if one.end - one.start == len(answer.strip())), None)
    return whole or Candidate(answer, QUOTED, 0, len(answer), folded(answer))


def _place(probe: Probe, index: int, conversation: Conversation) -> int:
    """The event that a probe's index points at."""
    if conversation.format == _NATIVE:
        if 0 <= index < len(conversation.events):
            return index
    else:
        left = index - bool(conversation.instruction)
        for place, event in enumerate(conversation.events):
            if 0 <= left < len(event.messages):
                return place
            left -= len(event.messages)
    raise RecordingError(
        f"probe {probe.id} points at message {index}, which conversation {conversation.id} hasn't",
        hint="count messages from 0, the system message included; events in a native recording",
    )


def _event(probe: Probe, index: int, conversation: Conversation) -> Event:
    return conversation.events[_place(probe, index, conversation)]


def _call_of(probe: Probe, conversation: Conversation) -> RecordedCall:
    event = _event(probe, probe.needed_index, conversation)
    call = next((call for call in conversation.calls if call.event.id == event.id), None)
    if call is None:
        raise RecordingError(
            f"probe {probe.id} is needed at message {probe.needed_index}, which answers no call",
            hint="needed_index is the recorded answer that uses the fact",
        )
    return call


# --- judged answers ---------------------------------------------------------------------------------------

JUDGE_PROMPT: Final = """Question: {question}
Right answer: {answer}
Given answer: {given}

Does the given answer say the right answer? Another spelling of the same value counts. Reply with yes or no only."""


@dataclass(frozen=True, slots=True)
class JudgedProbe:
    """What a model answered from a probe's request."""

    state: ProbeState
    given: str
    is_right: bool | None
    """None where the judge said neither yes nor no."""


async def judge_probes(
    states: Sequence[ProbeState], model: Model, *, judge: Model | None = None, cache: MutableMapping[str, str]
) -> list[JudgedProbe]:
    """Ask a model each question with the very request of its call, and a judge whether it knew.

    Args:
        judge: Judges; without one the model itself does.
        cache: Texts of models by content; equal questions are asked once. Keep it to keep judgements.
    Raises:
        ModelError: a model failed, or gave no text.
    """
    judge = judge or model
    judged = []
    for state in states:
        question = Message(role=USER, content=state.probe.question)
        given = await _asked(
            model, state.request.replace(messages=(*state.request.messages, question), tools=()), cache
        )
        text = JUDGE_PROMPT.format(question=state.probe.question, answer=state.probe.answer, given=given)
        verdict = await _asked(judge, Request(messages=(Message(role=USER, content=text),)), cache)
        judged.append(JudgedProbe(state, given, yes_or_no(verdict)))
    return judged


async def _asked(model: Model, request: Request, cache: MutableMapping[str, str]) -> str:
    key = content_key(model.name, request)
    if key not in cache:
        text = ""
        async for response in model.generate(EMPTY_CONTEXT, request):
            if response.error is not None:
                raise ModelError(f"the model answered with an error: {response.error.message}", model=model.name)
            if not response.is_partial:
                text = "".join(choice.message.content for choice in response.choices) or text
        if not text.strip():
            raise ModelError(f"model {model.name} gave no text", model=model.name, hint="ask another model")
        cache[key] = text
    return cache[key]


def content_key(model_name: str, request: Request) -> str:
    """What an answer is cached under: model and everything that it reads."""
    parts = [[m.role, m.content, [[c.name, c.arguments] for c in m.tool_calls], m.tool_id] for m in request.messages]
    return hashlib.sha256(
        json.dumps([model_name, parts], ensure_ascii=False).encode("utf-8", "surrogatepass")
    ).hexdigest()


def yes_or_no(verdict: str) -> bool | None:
    """What a judge said; None for anything else than one word of yes or no."""
    word = verdict.strip().strip(".!。\"'*` ").casefold()
    known: Mapping[str, bool] = {"yes": True, "no": False, "是": True, "否": False, "はい": True, "いいえ": False}
    return known.get(word)
