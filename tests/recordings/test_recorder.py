"""`record`: an `openai` client whose chat completions are written down as native JSON lines (WB-REC-04b)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from workbench.clock import FixedClock
from workbench.errors import RecordingError
from workbench.recordings import load_recordings
from workbench.recordings.recorder import record
from workbench.recordings.types import Conversation
from workbench.selftest.fake_server import FakeServer, right

KEY = "sk-canary-4711"


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer() as fake:
        yield fake


def client_of(server: FakeServer, path: Path, **options: Any) -> openai.OpenAI:
    return record(openai.OpenAI(api_key=KEY, base_url=server.base_url, max_retries=0), path, **options)


def answer(server: FakeServer, model: str, **message: Any) -> None:
    body = {
        "id": "answer-1",
        "model": f"{model}-2026",
        "choices": [{"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 120, "completion_tokens": 12, "total_tokens": 132,
                  "prompt_tokens_details": {"cached_tokens": 100}},
    }  # fmt: skip

    def behave(connection: Any) -> None:
        connection.head()
        connection.send(json.dumps(body))

    server.script(model, behave)


def loaded(path: Path) -> list[Conversation]:
    recordings = load_recordings(path)
    conversations = recordings.load()
    assert not [problem for problem in recordings.problems if problem.severity == "error"], recordings.problems
    return conversations


def spoken(conversation: Conversation) -> list[tuple[str, str]]:
    return [(message.role, message.content) for event in conversation.events for message in event.messages]


def test_each_message_is_written_once_with_usage_and_times(server: FakeServer, tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    client = client_of(server, path, app_name="shop", user_id="u1", clock=FixedClock(1_772_000_000 * 10**9))
    answer(server, "m", content="改到周五了。")
    messages: list[Any] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "改签到周五"}]
    first = client.chat.completions.create(model="m", messages=messages)
    messages += [first.choices[0].message, {"role": "user", "content": "谢谢"}]
    client.chat.completions.create(model="m", messages=messages)
    [conversation] = loaded(path)
    assert conversation.instruction == "Be brief."
    assert (conversation.app_name, conversation.user_id, conversation.model) == ("shop", "u1", "m")
    assert spoken(conversation) == [
        ("user", "改签到周五"), ("assistant", "改到周五了。"), ("user", "谢谢"), ("assistant", "改到周五了。"),
    ]  # fmt: skip
    assert len(conversation.requests) == 2
    assert len(conversation.calls) == 2
    usage = conversation.usage[conversation.calls[0].event.id]
    assert (usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens) == (120, 12, 100)
    assert {event.time_ns for event in conversation.events} == {1_772_000_000 * 10**9}
    assert conversation.events[1].response is not None
    assert conversation.events[1].response.model == "m-2026"


def test_tools_calls_and_the_results_of_one_round_are_kept(server: FakeServer, tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    client = client_of(server, path)
    tool = {"type": "function", "function": {"name": "look", "description": "d", "parameters": {"type": "object"}}}
    calls = [
        {"id": f"c{n}", "type": "function", "function": {"name": "look", "arguments": f'{{"n": {n}}}'}} for n in (1, 2)
    ]
    answer(server, "m", content=None, tool_calls=calls)
    messages: list[Any] = [{"role": "user", "content": "look twice"}]
    first = client.chat.completions.create(model="m", messages=messages, tools=[tool])  # type: ignore[list-item]
    answer(server, "m", content="done")
    messages.append(first.choices[0].message)
    messages += [{"role": "tool", "tool_call_id": f"c{n}", "content": f"result {n}"} for n in (1, 2)]
    client.chat.completions.create(model="m", messages=messages, tools=[tool])  # type: ignore[list-item]
    [conversation] = loaded(path)
    assert [spec.name for spec in conversation.tools] == ["look"]
    assert [len(event.messages) for event in conversation.events] == [1, 1, 2, 1]
    assert [call.arguments for call in conversation.events[1].message.tool_calls] == ['{"n": 1}', '{"n": 2}']
    assert len(conversation.calls) == 2


def test_a_stream_is_handed_on_as_it_comes_and_written_when_it_has_ended(server: FakeServer, tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    client = client_of(server, path)
    server.script("m", right)
    messages: list[Any] = [{"role": "user", "content": "hi"}]
    texts = []
    with client.chat.completions.create(model="m", messages=messages, stream=True) as stream:
        for chunk in stream:
            texts += [choice.delta.content or "" for choice in chunk.choices]
    [conversation] = loaded(path)
    assert "".join(texts)
    assert spoken(conversation)[-1] == ("assistant", "".join(texts))


def test_a_stream_that_is_left_early_leaves_no_answer(server: FakeServer, tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    client = client_of(server, path)
    server.script("m", right)
    messages: list[Any] = [{"role": "user", "content": "hi"}]
    with client.chat.completions.create(model="m", messages=messages, stream=True) as stream:
        next(stream)
    [conversation] = loaded(path)
    assert spoken(conversation) == [("user", "hi")]


def test_conversations_at_the_same_time_share_the_file(server: FakeServer, tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    twin = record(openai.AsyncOpenAI(api_key=KEY, base_url=server.base_url, max_retries=0), path)
    answer(server, "m", content="ok")

    async def talk(n: int) -> None:
        messages: list[Any] = [{"role": "user", "content": f"{n}: begin"}]
        for turn in range(3):
            reply = await twin.chat.completions.create(model="m", messages=messages)
            messages += [reply.choices[0].message, {"role": "user", "content": f"{n}: turn {turn}"}]

    async def all_of_them() -> None:
        await asyncio.gather(*(talk(n) for n in range(4)))
        await twin.close()

    asyncio.run(all_of_them())
    conversations = loaded(path)
    assert len(conversations) == 4
    for conversation in conversations:
        own = conversation.events[0].message.content.partition(":")[0]
        users = [text for role, text in spoken(conversation) if role == "user"]
        assert users == [f"{own}: begin", f"{own}: turn 0", f"{own}: turn 1"]
        assert len(conversation.calls) == 3


def test_an_answer_that_the_application_changed_goes_on_in_its_conversation(server: FakeServer, tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    client = client_of(server, path)
    answer(server, "m", content="  padded  ")
    messages: list[Any] = [{"role": "user", "content": "a"}]
    client.chat.completions.create(model="m", messages=messages)
    messages += [{"role": "assistant", "content": "padded"}, {"role": "user", "content": "b"}]
    client.chat.completions.create(model="m", messages=messages)
    [conversation] = loaded(path)
    assert [text for _, text in spoken(conversation)] == ["a", "  padded  ", "b", "  padded  "]


def test_a_failed_call_and_its_repetition_are_one(server: FakeServer, tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    client = client_of(server, path)
    messages: list[Any] = [{"role": "user", "content": "a"}]
    with pytest.raises(openai.APIStatusError):
        client.chat.completions.create(model="wrong-key", messages=messages)
    answer(server, "m", content="now")
    client.chat.completions.create(model="m", messages=messages)
    [conversation] = loaded(path)
    assert [text for _, text in spoken(conversation)] == ["a", "now"]


def test_no_key_and_no_header_reaches_the_file(server: FakeServer, tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    client = client_of(server, path)
    answer(server, "m", content="ok")
    messages: list[Any] = [{"role": "user", "content": "a"}]
    client.chat.completions.create(
        model="m", messages=messages, extra_headers={"x-secret": "canary-header"}, extra_body={"token": "canary-body"}
    )
    text = path.read_text(encoding="utf-8")
    assert KEY not in text
    assert "canary" not in text


def test_the_given_client_stays_as_it_is(server: FakeServer, tmp_path: Path) -> None:
    plain = openai.OpenAI(api_key=KEY, base_url=server.base_url, max_retries=0)
    record(plain, tmp_path / "own.jsonl")
    answer(server, "m", content="ok")
    plain.chat.completions.create(model="m", messages=[{"role": "user", "content": "a"}])
    assert (tmp_path / "own.jsonl").read_bytes() == b""


def test_later_conversations_are_appended_and_a_cut_last_line_is_dropped(server: FakeServer, tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    answer(server, "m", content="ok")
    client_of(server, path).chat.completions.create(model="m", messages=[{"role": "user", "content": "a"}])
    with path.open("ab") as file:
        file.write(b'{"type":"event","session_id":"x","resp')
    client_of(server, path).chat.completions.create(model="m", messages=[{"role": "user", "content": "b"}])
    assert [conversation.events[0].message.content for conversation in loaded(path)] == ["a", "b"]


def test_a_full_disk_never_breaks_a_call(server: FakeServer, caplog: pytest.LogCaptureFixture) -> None:
    client = client_of(server, Path("/dev/full"))
    answer(server, "m", content="ok")
    for _ in range(2):
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": "a"}])
    assert [record.message for record in caplog.records if "can't be written" in record.message] == [
        "/dev/full: can't be written: No space left on device; the application goes on"
    ]


def test_what_cannot_be_recorded_says_so(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="can't record object"):
        record(object(), tmp_path / "own.jsonl")
    with pytest.raises(RecordingError, match="can't be written"):
        record(openai.OpenAI(api_key=KEY), tmp_path / "missing" / "own.jsonl")


def test_what_was_answered_survives_a_kill(server: FakeServer, tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    answer(server, "m", content="ok")
    script = textwrap.dedent("""
        import os, signal, sys
        import openai
        from workbench.recordings.recorder import record
        client = record(openai.OpenAI(api_key="k", base_url=sys.argv[1]), sys.argv[2])
        messages = [{"role": "user", "content": "a"}]
        for n in range(3):
            reply = client.chat.completions.create(model="m", messages=messages)
            messages += [reply.choices[0].message, {"role": "user", "content": str(n)}]
        os.kill(os.getpid(), signal.SIGKILL)
    """)
    done = subprocess.run([sys.executable, "-c", script, server.base_url, str(path)], check=False, env=dict(os.environ))
    assert done.returncode == -signal.SIGKILL
    [conversation] = loaded(path)
    assert len(conversation.calls) == 3
