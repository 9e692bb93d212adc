"""Tool calls and their results, followed through one conversation.

In: calls as they're asked for, results as they come. Out: notes on what is odd but kept, and a `FaultyRecordError`
for a call id that is used twice within one round (B19 to B21).
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from workbench.model.types import ToolCall
from workbench.recordings.problems import FaultyRecordError, quoted
from workbench.recordings.reading import Reading


class Notes:
    """Notes of one conversation: of each kind the first, and how many more there were."""

    def __init__(self) -> None:
        self._first: dict[str, tuple[str, str, int | None]] = {}
        self._counts: dict[str, int] = {}

    def add(self, kind: str, reason: str, hint: str = "", *, line: int | None = None) -> None:
        """Remember a note; notes of the same kind are counted together."""
        self._first.setdefault(kind, (reason, hint, line))
        self._counts[kind] = self._counts.get(kind, 0) + 1

    def report_to(self, reading: Reading) -> None:
        """Write them down: only called once the conversation was taken."""
        for kind, (reason, hint, line) in self._first.items():
            more = self._counts[kind] - 1
            tail = f" (and {more} more)" if more else ""  # behind the whole sentence, whose hint may be empty
            reason, hint = (reason, hint + tail) if hint else (reason + tail, "")
            reading.report(reason, hint, line=line, severity="note")


class CallLedger:
    """Which call ids were used, and which still wait for a result."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._lines: dict[str, int] = {}
        self._open: dict[str, str] = {}

    def ask(self, calls: Iterable[ToolCall], line: int) -> None:
        """The model asks for calls.

        Raises:
            FaultyRecordError: an id is taken by another call of the same answer, or by one without a result yet.
        """
        for call in calls:
            if call.arguments.strip() and not _is_json(call.arguments):
                self._notes.add(
                    "arguments", f"arguments of {quoted(call.name)} are not JSON", "kept as text", line=line
                )
            if not call.id:
                continue
            if call.id in self._open:
                raise FaultyRecordError(f"call id {quoted(call.id)} was used at line {self._lines[call.id]}", line=line)
            if call.id in self._lines:
                reason = f"call id {quoted(call.id)} was used at line {self._lines[call.id]}"
                self._notes.add("reused", reason, "in an earlier round; kept", line=line)
            self._open[call.id] = call.name
            self._lines[call.id] = line

    def waiting_for(self, tool_name: str) -> str:
        """The id of the oldest call without a result, of this tool if the result names one; else empty."""
        names = [call_id for call_id, name in self._open.items() if not tool_name or name == tool_name]
        return names[0] if names else ""

    def name_of(self, call_id: str) -> str:
        """The tool of a call that waits for its result; empty if none does."""
        return self._open.get(call_id, "")

    def answer(self, call_id: str, line: int) -> None:
        """A result comes."""
        if call_id not in self._lines:
            subject = f"tool result {quoted(call_id)}" if call_id else "tool result without call id"
            self._notes.add("orphan", f"{subject} answers no earlier call", "kept", line=line)
        self._open.pop(call_id, None)

    def close_round(self) -> None:
        """A person speaks: calls without a result will get none."""
        self._open.clear()


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
