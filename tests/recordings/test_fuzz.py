"""Seeded mutations of good files of every format, judged by laws instead of expected output."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

import pytest

from tests.hostile.cases import CASES, HERE
from tests.recordings.files import ask, result, say
from workbench.errors import WorkbenchError
from workbench.recordings import load_recordings, write_recording

UNICODE = [
    "\0",
    "\x1b",
    "\x85",
    "\u200b",
    "\u202e",
    "\u2028",
    "\ufeff",
    "\ufffd",
    "e\u0301",
    "汉",
    "한",
    "あ",
    "🙂",
    "\ud83d",
]
EXTREMES = [0, -1, 10**40, 1e308, 1_767_830_000_000, True, None, "", [], {}, "2026-01-01 10:00"]
MESSAGES = [say("system", "s"), say("user", "a", id="m1"), ask(("k1", "f")), result("k1"), say("assistant", "b")]

ITEMS = [
    say("user", "a"),
    {"type": "function_call", "call_id": "k", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "k", "output": "r"},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "b"}]},
]
OBJECTS = [
    {"type": "human", "data": {"content": "a"}},
    {"id": ["AIMessage"], "kwargs": {"content": "", "tool_calls": [{"id": "k", "name": "f", "args": {}}]}},
    {"type": "tool", "content": "r", "tool_call_id": "k"},
    {"type": "ai", "data": {"content": "b", "usage_metadata": {"input_tokens": 3}}},
]
CALL = {"id": "k1", "type": "function", "function": {"name": "f", "arguments": "e30="}}
BLOCKS = [
    say("user", "a"),
    say(
        "assistant", [{"type": "thinking", "thinking": "t"}, {"type": "tool_use", "id": "k", "name": "f", "input": {}}]
    ),
    say("user", [{"type": "tool_result", "tool_use_id": "k", "content": "r"}]),
    say("assistant", [{"type": "text", "text": "b"}]),
]


def native_lines() -> list[str]:
    head = {"type": "session", "format": "workbench", "version": 1, "id": "n"}
    events = [
        {
            "type": "event",
            "id": f"e{n}",
            "author": "user",
            "time": f"2026-03-01T10:00:0{n}Z",
            "response": {"choices": [{"message": {"role": role, "content": "x"}}]},
        }
        for n, role in enumerate(["user", "assistant", "user", "assistant"])
    ]
    return [json.dumps(value) for value in (head, *events)] * 2


def transcript_lines() -> list[str]:
    kinds = ["user", "assistant", "user", "assistant"]
    return [
        json.dumps(
            {
                "type": kind,
                "uuid": f"u{n}",
                "parentUuid": f"u{n - 1}" if n else None,
                "sessionId": "s",
                "timestamp": f"2026-03-01T10:00:0{n}Z",
                "message": {"role": kind, "content": [{"type": "text", "text": "x"}], "id": f"a{n}"},
            }
        )
        for n, kind in enumerate(kinds)
    ]


SEEDS: dict[str, str] = {
    "openai": "\n".join(json.dumps({"messages": MESSAGES, "id": f"c{n}"}) for n in range(4)) + "\n",
    "loose": "\n".join(json.dumps(message) for message in MESSAGES) + "\n",
    "log": "\n".join(
        json.dumps({"request": {"messages": MESSAGES[:n]}, "response": {"choices": [{"message": MESSAGES[n]}]}})
        for n in (2, 4)
    ),
    "tau": json.dumps([{"task_id": n, "trial": 0, "traj": MESSAGES} for n in range(3)], indent=2),
    "crosswoz": json.dumps(
        {str(n): {"messages": [{"role": "usr", "content": "a"}, {"role": "sys", "content": "b"}]} for n in range(3)},
        indent=1,
    ),
    "kdconv": json.dumps([{"name": "x", "messages": [{"message": "a"}, {"message": "b"}]}] * 3),
    "swe": json.dumps({"trajectory": [], "history": [*MESSAGES, say("user", "c")], "info": {}}, indent=2),
    "native": "\n".join(native_lines()) + "\n",
    "transcript": "\n".join(transcript_lines()) + "\n",
    "csv": "id,role,content,time\n" + 'A,user,"a ""b"", c",1772413200\nA,assistant,b,1772413201\n',
    "otel": json.dumps(
        {
            "resourceSpans": [
                {
                    "scopeSpans": [
                        {
                            "spans": [
                                {
                                    "spanId": f"s{n}",
                                    "startTimeUnixNano": str(1772413200 * 10**9 + n),
                                    "attributes": [
                                        {"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}},
                                        {"key": "gen_ai.usage.input_tokens", "value": {"intValue": "7"}},
                                    ],
                                    "events": [
                                        {
                                            "name": "gen_ai.user.message",
                                            "attributes": [{"key": "content", "value": {"stringValue": "a"}}],
                                        }
                                    ],
                                }
                            ]
                        }
                    ]
                }
                for n in range(2)
            ]
        },
        indent=1,
    ),
    "otel lines": "\n".join(
        json.dumps(
            {
                "name": "chat",
                "context": {"span_id": f"s{n}"},
                "start_time": f"2026-03-01T10:00:0{n}Z",
                "attributes": {
                    "gen_ai.input.messages": [{"role": "user", "parts": [{"type": "text", "content": "a"}]}],
                    "gen_ai.output.messages": [{"role": "assistant", "parts": [{"type": "tool_call", "name": "f"}]}],
                    "gen_ai.prompt.0.role": "user",
                },
            }
        )
        for n in range(3)
    ),
    "responses": "\n".join(json.dumps(ITEMS) for _ in range(2)),
    "responses log": "\n".join(
        json.dumps({"input": ITEMS[:n], "response": {"object": "response", "id": f"r{n}", "output": [ITEMS[n]]}})
        for n in (1, 3)
    ),
    "responses lines": "\n".join(map(json.dumps, ITEMS)),
    "anthropic lines": "\n".join(map(json.dumps, BLOCKS)),
    "sharegpt": "\n".join(
        json.dumps({"id": f"s{n}", "conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]})
        for n in range(3)
    ),
    "langchain": "\n".join(json.dumps({"messages": OBJECTS}) for _ in range(2)),
    "langchain lines": "\n".join(map(json.dumps, OBJECTS)),
    "langchain runs": "\n".join(
        json.dumps({"id": f"r{n}", "run_type": "llm", "inputs": {"messages": OBJECTS[:n]}, "outputs": OBJECTS[n]})
        for n in (1, 3)
    ),
    "trpc": json.dumps(
        [
            {
                "id": f"s{n}",
                "appName": "a",
                "userID": "u",
                "state": {"k": "eA=="},
                "events": [
                    {
                        "id": "e1",
                        "author": "user",
                        "timestamp": "2026-03-01T10:00:00Z",
                        "invocationId": "i",
                        "choices": [{"message": {"role": "user", "content": "x"}}],
                    },
                    {
                        "id": "e2",
                        "author": "bot",
                        "timestamp": "2026-03-01T10:00:01Z",
                        "invocationId": "i",
                        "stateDelta": {"k": "eA=="},
                        "usage": {"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": 1}},
                        "choices": [{"message": {"role": "assistant", "tool_calls": [CALL]}}],
                    },
                ],
            }
            for n in range(2)
        ],
        indent=1,
    ),
    "anthropic": json.dumps({"system": "s", "messages": BLOCKS}) + "\n",
    "anthropic log": "\n".join(
        json.dumps(
            {
                "request": {"system": [{"type": "text", "text": "s"}], "messages": BLOCKS[:n]},
                "response": {
                    "type": "message",
                    "id": f"m{n}",
                    "content": BLOCKS[n]["content"],
                    "usage": {"input_tokens": 3, "cache_read_input_tokens": 2},
                },
            }
        )
        for n in (1, 3)
    ),
}


# --- mutators --------------------------------------------------------------------------------------------


def flip(data: bytes, rng: random.Random) -> bytes:
    place = rng.randrange(len(data))
    return data[:place] + bytes([data[place] ^ (1 << rng.randrange(8))]) + data[place + 1 :]


def cut(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))]


def swap_lines(data: bytes, rng: random.Random) -> bytes:
    lines = data.splitlines(keepends=True)
    rng.shuffle(lines)
    return b"".join(lines)


def repeat_line(data: bytes, rng: random.Random) -> bytes:
    lines = data.splitlines(keepends=True)
    return b"".join([*lines, rng.choice(lines)])


def splice(data: bytes, rng: random.Random) -> bytes:
    other = rng.choice(list(SEEDS.values())).encode()
    return data[: rng.randrange(len(data))] + other[rng.randrange(len(other)) :]


def insert_rune(data: bytes, rng: random.Random) -> bytes:
    place = rng.randrange(len(data))
    return data[:place] + rng.choice(UNICODE).encode("utf-8", "surrogatepass") + data[place:]


def deepen(data: bytes, rng: random.Random) -> bytes:
    depth = rng.choice([10, 63, 65, 2000])
    place = data.find(b":", rng.randrange(len(data)))
    return data[: place + 1] + b"[" * depth + b"]" * depth + b"," + data[place + 1 :]


def change_value(data: bytes, rng: random.Random) -> bytes:
    """Another value, key or type somewhere in one record; the text stays JSON."""
    text = data.decode()
    lines = text.splitlines()
    whole = (len(lines) > 1 and lines[0].strip() in {"[", "{"}) or len(lines) == 1
    place = 0 if whole else rng.randrange(len(lines))
    value = json.loads(text if whole else lines[place])
    _mutate(value, rng)
    changed = json.dumps(value, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")
    if whole:
        return changed
    return b"\n".join([*(line.encode() for line in lines[:place]), changed, *(x.encode() for x in lines[place + 1 :])])


def _mutate(value: object, rng: random.Random) -> None:
    containers = [value]
    for container in containers:
        children = container.values() if isinstance(container, dict) else container
        containers += [child for child in children if isinstance(child, dict | list)]
    container = rng.choice([item for item in containers if item] or [value])
    if not container:
        return
    key = rng.choice(list(container)) if isinstance(container, dict) else rng.randrange(len(container))
    deed = rng.randrange(4)
    if deed == 0:
        del container[key]
    elif deed == 1 and isinstance(container, dict):
        container["renamed"] = container.pop(key)
    elif deed == 2 and isinstance(container, list):
        container.append(container[key])
    else:
        container[key] = rng.choice([*EXTREMES, *UNICODE])


MUTATORS: list[Callable[[bytes, random.Random], bytes]] = [
    flip, cut, swap_lines, repeat_line, splice, insert_rune, deepen, change_value, change_value, change_value,
]  # fmt: skip


def judge(data: bytes, folder, *, where: str) -> None:
    """The oracles of the fuzz corpus."""
    path = folder / "mutant"
    path.write_bytes(data)
    try:
        recordings = load_recordings(path)
        conversations = list(recordings)
    except WorkbenchError:
        return
    assert conversations, where
    for problem in recordings.problems:
        assert problem.path == str(path), where
        assert problem.line is not None or not problem.column, where
    again = load_recordings(path)
    assert list(again) == conversations, where
    assert again.problems == recordings.problems, where
    saved = folder / "saved.jsonl"
    write_recording(saved, conversations)
    assert list(load_recordings(saved)) == conversations, where


def fuzz(folder, n_mutants: int, seed: int) -> None:
    for n in range(n_mutants):
        rng = random.Random(f"{seed}-{n}")
        name = rng.choice(list(SEEDS))
        data = SEEDS[name].encode()
        for _ in range(rng.choice([1, 1, 1, 2, 3])):
            try:
                data = rng.choice(MUTATORS)(data, rng) or b"x"
            except (UnicodeDecodeError, json.JSONDecodeError, TypeError, AttributeError, IndexError, RecursionError):
                break  # this mutant is broken enough for the next mutator
        judge(data, folder, where=f"seed {seed}-{n} of {name}: {data[:2000]!r}")


def test_the_seeds_are_good_recordings(tmp_path):
    for name, text in SEEDS.items():
        path = tmp_path / name
        path.write_text(text)
        recordings = load_recordings(path)
        assert len(recordings) >= 1, name
        if name != "native":  # the same events twice, in two sessions of one id
            assert recordings.problems == (), name


def test_mutants_break_no_law(tmp_path):
    """Fuzz oracles 1 to 5 on 400 mutants; nightly more."""
    fuzz(tmp_path, 400, seed=20261201)


@pytest.mark.slow
def test_many_mutants_break_no_law(tmp_path):
    """The same on 20 000, from another seed each time; the failing one is printed."""
    fuzz(tmp_path, 20_000, seed=random.SystemRandom().randrange(10**9))


@pytest.mark.parametrize("case", [case for case in CASES if case.file is not None], ids=lambda case: case.id)
def test_the_hostile_corpus_breaks_no_law(case, tmp_path):
    judge((HERE / case.file).read_bytes(), tmp_path, where=case.id)
