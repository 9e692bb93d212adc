"""A clerk without a network: the scripted main model of the notebook on agents.

In: a request. Out: what a careful clerk at a parcel desk would do next, by four fixed rules and from nothing but that
request: look a parcel up, report what was found, quote a claim reference that is in sight, search the session's
history for one that isn't. A real model takes its place without any other change.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from workbench.model.scripted import ScriptedAnswer, ScriptedModel
from workbench.model.types import TOOL, Message, Request, ToolCall

_PARCEL = re.compile(r"\bPX-\d{6}-\d{4}\b")
_REFERENCE = re.compile(r"\bCLM-\d+\b")
_ASKS_FOR_REFERENCE = re.compile(r"\breference\b.*\?", re.IGNORECASE)
LOOK_UPS = ("look_up_order", "look_up_bill")


def scripted_clerk() -> ScriptedModel:
    """A main model that knows its four rules; it keeps every request it got."""
    return ScriptedModel(_next_step, name="scripted-clerk")


def _next_step(request: Request) -> ScriptedAnswer:
    question, results = _last_turn(request.messages)
    offered = {tool.name for tool in request.tools}
    if _ASKS_FOR_REFERENCE.search(question):
        return _reference(request, question, results, offered)
    parcel = _PARCEL.search(question)
    if parcel is None:
        return ScriptedAnswer("Noted.")
    if not results:
        return _calling(*((name, {"order_id": parcel[0]}) for name in LOOK_UPS if name in offered))
    return ScriptedAnswer(_report(parcel[0], results))


def _last_turn(messages: Sequence[Message]) -> tuple[str, list[Message]]:
    """The newest user message, and the tool results since."""
    place = max((i for i, message in enumerate(messages) if message.is_user_like), default=-1)
    if place < 0:
        return "", []
    return messages[place].content, [message for message in messages[place + 1 :] if message.role == TOOL]


def _calling(*calls: tuple[str, dict[str, Any]]) -> ScriptedAnswer:
    return ScriptedAnswer(
        tool_calls=tuple(
            ToolCall(id=f"{name}-{json.dumps(arguments, sort_keys=True)}", name=name, arguments=json.dumps(arguments))
            for name, arguments in calls
        )
    )


def _report(parcel: str, results: Sequence[Message]) -> str:
    found: dict[str, Any] = {}
    for message in results:
        value = _decoded(message.content)
        if not isinstance(value, dict):
            return f"{parcel}: {message.content}"
        found |= value
    weight, fee = found.get("actual_kg", "?"), found.get("fee_cents")
    return f"{parcel} weighs {weight} kg; the carrier billed {'nothing' if fee is None else f'{fee / 100:.2f} yuan'}."


def _reference(request: Request, question: str, results: Sequence[Message], offered: set[str]) -> ScriptedAnswer:
    """Quote what is in sight; else search, read the best hit in full, and quote that."""
    searches = [message for message in results if message.tool_name == "session_search"]
    loads = [message for message in results if message.tool_name == "session_load"]
    trusted = loads if searches else request.messages
    in_sight = next((found[0] for message in trusted if (found := _REFERENCE.search(message.content))), "")
    if in_sight:
        return ScriptedAnswer(f"The claim reference is {in_sight}.")
    if "session_search" in offered and not searches:
        return _calling(("session_search", {"query": question}))
    if "session_load" in offered and searches and not loads:
        event_id = next(_hits(searches[-1]), "")
        if event_id:
            return _calling(("session_load", {"event_id": event_id}))
    return ScriptedAnswer("I can no longer see a claim reference in this conversation.")


def _hits(message: Message) -> Iterator[str]:
    """Event ids of a search's hits, those that show a reference first."""
    value = _decoded(message.content)
    hits = value.get("results", []) if isinstance(value, dict) else []
    yield from (hit["event_id"] for hit in sorted(hits, key=lambda hit: not _REFERENCE.search(json.dumps(hit))))


def _decoded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
