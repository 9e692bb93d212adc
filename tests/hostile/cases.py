"""The bad inputs B01 to B30 as bytes, and what a load must say about each.

Each case is one record of a file of JSON lines, or a whole file. Run this file to write the small ones beside
it, with `index.jsonl`; large and binary ones are only made when a test needs them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
MAX_FILE_BYTES = 20_000
START = "2026-03-01T10:00:0"


def message(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def chat(*messages: Any, **more: Any) -> bytes:
    """One record of format `openai-chat`."""
    return json.dumps({"messages": list(messages), **more}, ensure_ascii=False).encode()


def call(call_id: str, name: str = "search", arguments: str = "{}") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def asks(*calls: dict[str, Any]) -> dict[str, Any]:
    return message("assistant", None, tool_calls=list(calls))


HELLO = message("user", "hello")
HI = message("assistant", "hi")


@dataclass(frozen=True)
class Case:
    """One bad input.

    `expected` is the text behind the place, `{line}` standing for the line of the record.
    """

    id: str
    feature: str
    data: bytes | Callable[[], bytes]
    expected: str
    loads: bool = False
    column: int | None = None
    whole_file: bool = False
    stops: bool = False
    format: str = "openai-chat"
    options: dict[str, Any] = field(default_factory=dict)
    source: str = "reliability.md section 8"

    def bytes(self) -> bytes:
        return self.data if isinstance(self.data, bytes) else self.data()

    @property
    def file(self) -> str | None:
        """Name of its file; None for one that is only made when needed."""
        data = self.bytes()
        if len(data) > MAX_FILE_BYTES or b"\0" in data:
            return None
        try:
            data.decode()
        except UnicodeDecodeError:
            return None
        return f"{self.id}.jsonl"

    def index_entry(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "file": self.file,
            "feature": self.feature,
            "format": self.format,
            "expected": self.expected,
            "severity": "stop" if self.stops else "note" if self.loads else "problem",
            "source": self.source,
        }


def _cut_at(data: bytes, n_bytes: int) -> bytes:
    return data[:n_bytes]


_LONG = chat(message("user", "x" * 3000), HI)
_NATIVE_HEAD = b'{"type": "session", "format": "workbench", "version": 1, "id": "n1"}\n'


def _native_event(number: int, role: str, content: str) -> bytes:
    event = {
        "type": "event",
        "id": f"n1:{number}",
        "author": role,
        "time": f"{START}{number}Z",
        "response": {"choices": [{"message": message(role, content)}]},
    }
    return json.dumps(event).encode()


RECORDS = [
    Case("B03", "byte-order mark", b"\xef\xbb\xbf" + chat(HELLO, HI), "byte-order mark ignored", loads=True),
    Case(
        "B05",
        "bytes that aren't UTF-8",
        chat(message("user", "x" * 90), HI)[:132] + b"\xff" + chat(message("user", "x" * 90), HI)[132:],
        "byte 0xff at column 133 is not UTF-8",
        column=133,
    ),
    Case(
        "B06",
        "cut in mid-line",
        _cut_at(_LONG, 2048),
        "JSON ends early at column 2048; the file may be cut",
        column=2048,
    ),
    Case(
        "B07",
        "single quotes",
        b"""{"messages": ['role': "user"]}""",
        "not JSON at column 15: expected double quotes",
        column=15,
    ),
    Case(
        "B07-comma",
        "trailing comma",
        b'{"messages": [{"role": "user", "content": "hello"}], }',
        "not JSON at column 54: expected double quotes",
        column=54,
    ),
    Case("B08", "an array where an object is due", b"[1, 2, 3]", "expected an object, got an array of 3"),
    Case("B08-number", "a number where an object is due", b"17", "expected an object, got a number"),
    Case(
        "B09",
        "duplicate key",
        b'{"messages": [{"role": "user", "content": "a", "content": "b"}]}',
        'key "content" occurs twice',
    ),
    Case(
        "B10",
        "NaN",
        b'{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], '
        b'"usage": {"total_tokens": NaN}}',
        "usage.total_tokens is not a finite number",
    ),
    Case(
        "B10-overflow",
        "a number beyond all doubles",
        b'{"messages": [{"role": "user", "content": "a", "weight": 1e999}]}',
        "messages[0].weight is not a finite number",
    ),
    Case(
        "B11",
        "integer of 5 000 digits",
        b'{"messages": [{"role": "user", "content": "a"}], "seed": ' + b"9" * 5000 + b"}",
        "number with 5000 digits; at most 40",
    ),
    Case(
        "B12",
        "nesting of 200 000",
        lambda: b'{"messages": [{"role": "user", "content": "a"}], "x": ' + b"[" * 200_000 + b"]" * 200_000 + b"}",
        "nested deeper than 64 levels",
    ),
    Case(
        "B12-65",
        "nesting of 65",
        b'{"messages": [{"role": "user", "content": "a"}], "x": ' + b"[" * 64 + b"]" * 64 + b"}",
        "nested deeper than 64 levels",
    ),
    Case(
        "B13",
        "half a surrogate pair",
        b'{"messages": [{"role": "user", "content": "'
        + b"x" * 56
        + b'\\ud800"}, {"role": "assistant", "content": "b"}]}',
        "content has a broken Unicode escape at character 57",
    ),
    Case(
        "B14",
        "line over the limit",
        lambda: chat(message("user", "x" * 2_100_000)),
        "line has 3 MB, limit is 1 MB; raise --max-line-mb",
        options={"max_line_mb": 1},
    ),
    Case(
        "B15",
        "unknown role",
        chat(HELLO, message("narrator", "Meanwhile")),
        'role "narrator"; expected system, user, assistant or tool',
    ),
    Case(
        "B16",
        "content missing without tool calls",
        chat(message("system", "s"), HELLO, HI, {"role": "assistant"}),
        "message 4 has neither content nor tool calls",
    ),
    Case(
        "B17",
        "content is a number",
        chat(message("system", "s"), HELLO, HI, message("user", 7)),
        "message 4: content is a number, expected text or parts",
    ),
    Case(
        "B18",
        "unknown part type",
        chat(message("system", "s"), HELLO, HI, message("user", [{"type": "text", "text": "a"}, {"type": "hologram"}])),
        'message 4, part 2: type "hologram" is not known',
    ),
    Case(
        "B19",
        "tool result without call",
        chat(HELLO, HI, message("tool", "42", tool_call_id="call_9")),
        'tool result "call_9" answers no earlier call; kept',
        loads=True,
    ),
    Case(
        "B20",
        "call id used twice within one round",
        chat(HELLO, asks(call("call_1"), call("call_1", "open")), message("tool", "42", tool_call_id="call_1")),
        'call id "call_1" was used at line {line}',
    ),
    Case(
        "B20-later",
        "call id used again in a later round",
        chat(
            HELLO,
            asks(call("call_1")),
            message("tool", "42", tool_call_id="call_1"),
            asks(call("call_1")),
            message("tool", "43", tool_call_id="call_1"),
            HI,
        ),
        'call id "call_1" was used at line {line}; in an earlier round; kept',
        loads=True,
    ),
    Case(
        "B21",
        "tool arguments aren't JSON",
        chat(HELLO, asks(call("call_1", "search", "{q: 1")), message("tool", "42", tool_call_id="call_1")),
        'arguments of "search" are not JSON; kept as text',
        loads=True,
    ),
    Case(
        "B22",
        "some events have a timestamp and this one has none",
        chat(message("user", "hello", timestamp=f"{START}0Z"), HI),
        "event has no timestamp; add one or load with --assume-order",
    ),
    Case(
        "B23",
        "time without zone",
        chat(message("user", "hello", timestamp="2026-01-01 10:00"), HI),
        'timestamp "2026-01-01 10:00" has no zone; load with --zone',
    ),
    Case(
        "B24",
        "time in milliseconds read as seconds",
        chat(message("user", "hello", timestamp=1_767_830_000_000), HI),
        "timestamp is in the year 57990; milliseconds? use --time-unit ms",
    ),
    Case(
        "B25",
        "times run backwards",
        chat(
            message("user", "hello", timestamp="2026-03-01T11:00:00Z"),
            message("assistant", "hi", timestamp="2026-03-01T10:00:00Z"),
        ),
        "goes back 3 600 s at event 2",
        loads=True,
    ),
    Case(
        "B26",
        "event id twice",
        chat(message("user", "hello", id="e7"), message("assistant", "hi", id="e7")),
        'event id "e7" was used at line {line}',
    ),
    Case("B27", "empty session id", chat(HELLO, HI, session_id=""), "session id is empty"),
    Case("B27-user", "empty user id", chat(HELLO, HI, user_id=" "), "user id is empty"),
    Case(
        "B28",
        "usage that doesn't add up",
        chat(HELLO, HI, usage={"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 10}),
        "usage: total 10 is less than prompt 12 + completion 3",
    ),
    Case(
        "B28-negative",
        "negative usage",
        chat(HELLO, HI, usage={"prompt_tokens": -5, "completion_tokens": 3}),
        "usage: prompt -5 is negative",
    ),
]

FILES = [
    Case("B01", "empty file", b"", "file is empty; expected at least one conversation", whole_file=True),
    Case(
        "B02",
        "only white space or comments",
        b"\n  \n# nothing\n" * 4,
        "no conversation found in 12 lines",
        whole_file=True,
    ),
    Case(
        "B04",
        "UTF-16 text",
        chat(HELLO, HI).decode().encode("utf-16"),
        "not UTF-8 (looks like UTF-16); convert the file",
        whole_file=True,
        stops=True,
    ),
    Case(
        "B29",
        "a version of the future",
        _NATIVE_HEAD.replace(b'"version": 1', b'"version": 9') + _native_event(1, "user", "hello") + b"\n",
        "format version 9; this release reads 1",
        whole_file=True,
        stops=True,
        format="workbench",
    ),
    Case(
        "B30",
        "half a message at the end of an interrupted recording",
        _NATIVE_HEAD + _native_event(1, "user", "hello") + b"\n" + _native_event(2, "assistant", "hi")[:-20],
        "last message is unfinished; left out",
        whole_file=True,
        loads=True,
        format="workbench",
    ),
    Case(
        "B30-loose",
        "the same with one message per line",
        b'{"role": "user", "content": "hello"}\n{"role": "assistant", "con',
        "last message is unfinished; left out",
        whole_file=True,
        loads=True,
    ),
]

CASES = [*FILES, *RECORDS]


def index_text() -> str:
    return "".join(json.dumps(case.index_entry(), ensure_ascii=False) + "\n" for case in CASES)


def write() -> None:
    """Write the small text files and the index."""
    for case in CASES:
        if case.file is not None:
            (HERE / case.file).write_bytes(case.bytes() if case.whole_file else case.bytes() + b"\n")
    (HERE / "index.jsonl").write_text(index_text(), encoding="utf-8")


if __name__ == "__main__":
    write()
