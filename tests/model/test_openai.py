"""The model behind an HTTP endpoint: what goes out, what comes back, and every way in which it doesn't.

The faults and oddities are those of reliability.md, section 6; a local server plays them.
"""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from workbench.call import EMPTY_CONTEXT
from workbench.errors import (
    ConfigError,
    ContextLengthError,
    ModelAuthError,
    ModelCallForbiddenError,
    ModelError,
    ModelStreamError,
    ModelTimeoutError,
    RateLimitError,
)
from workbench.model.client import BudgetedModel
from workbench.model.openai import OpenAIModel
from workbench.model.types import ContentPart, GenerationConfig, Message, Request, Response, ToolCall, ToolSpec, Usage
from workbench.selftest.fake_server import (
    CONTEXT_LENGTH_WORDINGS,
    ECHOES,
    FAULTS,
    ODDITIES,
    STREAM_FAULTS,
    TEXT,
    FakeServer,
    answers,
    event,
    refusal,
    right,
    silent,
    streams,
    text_events,
    whole,
)
from workbench.selftest.faulty_model import (
    ASK,
    CANARY_FIELD,
    CANARY_HEADER,
    CANARY_KEY,
    EXPECTED,
    SAYS_NOTHING,
    TRIED_ONCE,
    Waits,
    assert_no_canary,
    everything_about,
    faulty,
    model_of,
    responses_of,
)

ROOT = Path(__file__).resolve().parents[2]


def call(model: OpenAIModel, request: Request = ASK, *, blocking: bool) -> list[Response]:
    return model.generate_blocking(request) if blocking else responses_of(model, request)


both_clients = pytest.mark.parametrize("blocking", [False, True], ids=["async", "blocking"])


# --- requests -------------------------------------------------------------------------------------------


def test_roles_tool_calls_parts_and_tools_go_out_in_the_provider_s_form(server: FakeServer) -> None:
    query = ToolCall(id="t1", name="query", arguments='{"n": 1}', extra_fields=(("extra_content", '{"a": 1}'),))
    parts = (
        ContentPart("text", text="看"),
        ContentPart("image", url="data:image/png;base64,AA=="),
        ContentPart("file", url="data:application/pdf;base64,AA==", name="a.pdf"),
        ContentPart("file", url="file-1"),
        ContentPart("audio", url="data:audio/wav;base64,AA=="),
        ContentPart("video", url="https://example.com/v.mp4"),
    )
    request = Request(
        messages=(
            Message("system", "你是客服。"),
            Message("", "没有角色", content_parts=parts),
            Message("assistant", tool_calls=(query,), reasoning_content="想"),
            Message("tool", "结果", tool_id="t1", tool_name="query"),
        ),
        tools=(
            ToolSpec("query", "查询", '{"type": "object"}'),
            ToolSpec("whole", declaration_json='{"type": "function", "function": {"name": "whole", "strict": true}}'),
            ToolSpec("schema", declaration_json='{"name": "schema", "inputSchema": {"type": "object"}}'),
            ToolSpec("bare"),
        ),
    )
    model_of(server).generate_blocking(request)
    body = server.received[-1].body
    assert server.received[-1].path == "/v1/chat/completions"
    assert body["model"] == "fine"
    assert body["messages"] == [
        {"role": "system", "content": "你是客服。"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "没有角色"},
                {"type": "text", "text": "看"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
                {"type": "file", "file": {"file_data": "data:application/pdf;base64,AA==", "filename": "a.pdf"}},
                {"type": "file", "file": {"file_id": "file-1"}},
                {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}},
                {"type": "video_url", "video_url": {"url": "https://example.com/v.mp4"}},
            ],
        },
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "t1",
                    "type": "function",
                    "function": {"name": "query", "arguments": '{"n": 1}'},
                    "extra_content": {"a": 1},
                }
            ],
        },
        {"role": "tool", "content": "结果", "tool_call_id": "t1"},
    ]
    functions = [tool["function"] for tool in body["tools"]]
    assert functions == [
        {"name": "query", "description": "查询", "parameters": {"type": "object"}},
        {"name": "whole", "strict": True},
        {"name": "schema", "description": "", "parameters": {"type": "object"}},
        {"name": "bare", "description": "", "parameters": {"type": "object", "properties": {}}},
    ]


def test_generation_settings_go_out_under_their_names_and_unset_ones_not_at_all(server: FakeServer) -> None:
    config = GenerationConfig(
        max_tokens=50,
        temperature=0.0,
        top_p=0.9,
        stop=("。",),
        presence_penalty=0.1,
        frequency_penalty=0.2,
        reasoning_effort="low",
        thinking_enabled=False,
        thinking_tokens=16,
    )
    request = ASK.replace(generation_config=config, structured_output={"type": "json_object"})
    model_of(server, max_tokens_field="max_completion_tokens").generate_blocking(request)
    body = server.received[-1].body
    assert {name: value for name, value in body.items() if name not in {"model", "messages"}} == {
        "max_completion_tokens": 50,
        "temperature": 0.0,
        "top_p": 0.9,
        "stop": ["。"],
        "presence_penalty": 0.1,
        "frequency_penalty": 0.2,
        "reasoning_effort": "low",
        "response_format": {"type": "json_object"},
        "enable_thinking": False,
        "thinking_budget": 16,
    }
    model_of(server).generate_blocking(ASK)
    assert set(server.received[-1].body) == {"model", "messages"}


def test_headers_and_extra_fields_of_model_and_request_reach_the_wire_the_request_s_on_top(server: FakeServer) -> None:
    model = model_of(server, headers={"x-a": "model", "x-b": "model"}, extra_fields={"one": 1, "two": 1})
    request = ASK.replace(headers={"x-b": "request"}, extra_fields={"two": 2, "three": {"deep": [3]}})
    for blocking in (True, False):
        call(model, request, blocking=blocking)
        received = server.received[-1]
        assert (received.headers["x-a"], received.headers["x-b"]) == ("model", "request")
        assert (received.body["one"], received.body["two"], received.body["three"]) == (1, 2, {"deep": [3]})


@pytest.mark.parametrize(
    ("address", "field"),
    [("https://api.openai.com/v1", "max_completion_tokens"), ("https://api.deepseek.com/v1", "max_tokens")],
)
def test_the_output_limit_has_the_name_that_the_address_knows(address: str, field: str) -> None:
    assert OpenAIModel("m", base_url=address)._form.max_tokens_field == field


def test_system_messages_move_to_the_front_before_tailoring_when_the_cache_matters(server: FakeServer) -> None:
    """ASM-CACHE-04."""
    seen: list[Request] = []

    def tailor(request: Request) -> Request:
        seen.append(request)
        return request.replace(messages=request.messages[:3])

    messages = (Message("user", "一"), Message("system", "甲"), Message("user", "二"), Message("system", "乙"))
    model_of(server, optimize_for_cache=True, tailor=tailor).generate_blocking(Request(messages=messages))
    assert [message.content for message in seen[0].messages] == ["甲", "乙", "一", "二"]
    assert [message["content"] for message in server.received[-1].body["messages"]] == ["甲", "乙", "一"]
    model_of(server).generate_blocking(Request(messages=messages))
    assert [message["content"] for message in server.received[-1].body["messages"]] == ["一", "甲", "二", "乙"]


def test_a_model_tells_the_summarizer_its_own_input_budget(server: FakeServer) -> None:
    """ASM-TLR-02, SUM-FIT-02."""
    model = model_of(server, input_budget=lambda request: 100 * len(request.messages))
    assert isinstance(model, BudgetedModel)
    assert model.input_token_budget(ASK) == 100
    assert model_of(server).input_token_budget(ASK) == 0


def test_reasoning_goes_back_only_to_providers_that_want_it(server: FakeServer) -> None:
    request = Request(messages=(Message("assistant", "好", reasoning_content="想"), Message("user", "再说")))
    for wanted in (True, False):
        model_of(server, sends_reasoning=wanted).generate_blocking(request)
        assert ("reasoning_content" in server.received[-1].body["messages"][0]) is wanted


def test_a_tool_schema_that_is_no_json_is_a_configuration_error(server: FakeServer) -> None:
    with pytest.raises(ConfigError, match="parameters of tool q: not JSON"):
        model_of(server).generate_blocking(ASK.replace(tools=(ToolSpec("q", parameters_json="{"),)))


# --- answers --------------------------------------------------------------------------------------------


@both_clients
def test_an_answer_in_one_piece_is_one_whole_response(server: FakeServer, blocking: bool) -> None:
    [response] = call(model_of(server), blocking=blocking)
    assert response.choices[0].message == Message("assistant", TEXT)
    assert response.choices[0].finish_reason == "stop"
    assert (response.id, response.model, response.created) == ("chatcmpl-1", "served", 1_772_000_000)
    assert response.usage == Usage(120, 12, 132, 100)
    assert response.done
    assert not response.is_partial


@both_clients
def test_a_stream_is_partial_responses_and_then_the_whole_one(server: FakeServer, blocking: bool) -> None:
    *partial, response = call(model_of(server, stream=True), blocking=blocking)
    assert "".join(one.choices[0].delta.content for one in partial) == TEXT
    assert all(one.is_partial and not one.done for one in partial)
    assert response.choices[0].message == Message("assistant", TEXT)
    assert response.usage == Usage(120, 12, 132, 100)
    assert server.received[-1].body["stream_options"] == {"include_usage": True}


def test_the_request_says_whether_to_stream_unless_the_model_does(server: FakeServer) -> None:
    wanting = ASK.replace(generation_config=GenerationConfig(stream=True))
    assert len(model_of(server, stream=None).generate_blocking(wanting)) > 1
    assert len(model_of(server, stream=False).generate_blocking(wanting)) == 1


@pytest.mark.parametrize("wants", [True, False])
def test_an_answer_in_the_other_form_than_asked_for_is_read_all_the_same(server: FakeServer, wants: bool) -> None:
    server.script("other", streams(text_events(), *[event(whole(choices=[{"index": 0, "finish_reason": "stop"}]))]))
    if wants:
        server.script("other", answers(whole()))
    responses = model_of(server, "other", stream=wants).generate_blocking(ASK)
    assert responses[-1].choices[0].message.content == TEXT


@both_clients
def test_no_connection_outlives_its_call(server: FakeServer, blocking: bool) -> None:
    """REL-17: an idle one would belong to an event loop that may be gone."""
    closed = threading.Event()

    def behave(connection: Any) -> None:
        data = json.dumps(whole()).encode()
        connection.head(connection="keep-alive", Content_Length=str(len(data)))
        connection.send(data)
        connection.stall()
        closed.set()

    server.script("lasting", behave)
    model = model_of(server, "lasting")
    call(model, blocking=blocking)
    assert closed.wait(10)


def test_an_instance_serves_one_event_loop_after_the_other_and_leaves_nothing_open(server: FakeServer) -> None:
    """REL-17."""
    model = model_of(server)
    assert [responses_of(model)[-1].choices[0].message.content for _ in range(3)] == [TEXT] * 3

    async def main() -> None:
        async with model:
            assert [response async for response in model.generate(EMPTY_CONTEXT, ASK)]

    asyncio.run(main())
    for _ in range(2):
        assert model.generate_blocking(ASK)
        model.close()


# --- faults and oddities of section 6 -------------------------------------------------------------------


def test_all_faults_and_oddities_of_the_list_are_here() -> None:
    """REL-09: 8 of the connection, 10 of the status (one of them in six wordings), 5 of the body, 5 of the stream."""
    n_wordings = len(CONTEXT_LENGTH_WORDINGS)
    assert n_wordings == 6
    # Three kinds of 429 are one fault of the list, and so are the six wordings.
    assert len(EXPECTED) + len(SAYS_NOTHING) - (n_wordings - 1) == 28
    assert set(FAULTS) <= {*EXPECTED, *SAYS_NOTHING}


@both_clients
@pytest.mark.parametrize("name", EXPECTED)
def test_each_fault_is_one_typed_error_after_a_bounded_number_of_attempts(
    server: FakeServer, name: str, blocking: bool
) -> None:
    """REL-09."""
    waits = Waits()
    before = server.n_connections
    with faulty(server, name, waits=waits) as model, pytest.raises(ModelError) as caught:
        call(model, blocking=blocking)
    error = caught.value
    assert type(error) is EXPECTED[name]
    assert error.model == name
    assert str(error).startswith(f"model {name}: ")
    assert (error.__cause__, error.__context__) == (None, None)
    n_attempts = len(waits.seconds) + 1
    handed_on = (
        name in STREAM_FAULTS and not blocking and name not in {"stream-cut-in-arguments", "stream-endless-line"}
    )
    assert n_attempts == (1 if name in TRIED_ONCE or handed_on else 2)
    if name in FAULTS:
        assert server.n_connections - before == n_attempts


@pytest.mark.parametrize("name", CONTEXT_LENGTH_WORDINGS)
def test_the_numbers_in_a_refusal_of_long_requests_are_taken_where_there_are_some(
    server: FakeServer, name: str
) -> None:
    _, needed, allowed = CONTEXT_LENGTH_WORDINGS[name]
    with pytest.raises(ContextLengthError) as caught:
        model_of(server, name).generate_blocking(ASK)
    assert (caught.value.needed_tokens, caught.value.max_tokens) == (needed, allowed)
    assert caught.value.request_id == "req-1"


@both_clients
@pytest.mark.parametrize("name", ["stream-without-end", "stream-cut-in-arguments", "stream-broken-chunk"])
def test_a_cut_stream_says_how_much_had_come(server: FakeServer, name: str, blocking: bool) -> None:
    with pytest.raises(ModelStreamError) as caught:
        call(model_of(server, name, max_retries=0), blocking=blocking)
    assert caught.value.received_chars == (len('{"city": "B') if "arguments" in name else len(TEXT))


@pytest.mark.parametrize("form", ["whole", "stream"])
def test_arguments_that_the_output_limit_cut_are_an_error_and_never_an_empty_object(
    server: FakeServer, form: str
) -> None:
    calls = [{"index": 0, "id": "t1", "type": "function", "function": {"name": "query", "arguments": '{"city": "B'}}]
    body = whole(None, finish="length", message={"tool_calls": calls})
    pieces = {**body, "choices": [{"index": 0, "delta": {"tool_calls": calls}, "finish_reason": "length"}]}
    server.script("cut", answers(body) if form == "whole" else streams(event(pieces), event("[DONE]")))
    with pytest.raises(ModelStreamError, match="inside the arguments of a tool call"):
        model_of(server, "cut").generate_blocking(ASK)


@both_clients
@pytest.mark.parametrize("name", ODDITIES)
def test_an_oddity_does_not_hurt_and_counts_that_cannot_be_true_are_unknown(
    server: FakeServer, name: str, blocking: bool
) -> None:
    """REL-09."""
    *_, response = call(model_of(server, name, stream="split" in name or "chunk" in name), blocking=blocking)
    expected = "上\u2028下\x85🙂 \U0001f9ea" if name == "split-characters" else TEXT
    assert response.choices[0].message == Message("assistant", expected)
    assert response.choices[0].finish_reason == "stop"
    assert response.usage == (None if "usage" in name else Usage(120, 12, 132, 100))


def test_a_break_behind_the_whole_answer_does_not_matter(server: FakeServer) -> None:
    def behave(connection: Any) -> None:
        connection.head(kind="text/event-stream", Content_Length="9999")
        connection.send(text_events() + event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}))

    server.script("early", behave)
    response = model_of(server, "early", stream=True).generate_blocking(ASK)[-1]
    assert response.choices[0].message.content == TEXT
    assert response.usage is None


# --- attempts -------------------------------------------------------------------------------------------


@both_clients
@pytest.mark.parametrize(
    ("name", "waited"),
    [
        ("rate-limit-seconds", [7.0, 7.0]),
        ("rate-limit-date", [5.0, 0.0]),  # the second time that moment has come
        ("rate-limit-bare", [0.5, 1.0]),
        ("server-error", [0.5, 1.0]),
    ],
)
def test_attempts_wait_as_long_as_the_provider_asks_or_a_little_longer_each_time(
    server: FakeServer, name: str, waited: list[float], blocking: bool
) -> None:
    waits = Waits()
    with pytest.raises(ModelError) as caught:
        call(model_of(server, name, waits=waits, max_retries=2), blocking=blocking)
    assert waits.seconds == waited
    if isinstance(caught.value, RateLimitError):
        assert caught.value.retry_after_s == {"rate-limit-seconds": 7.0, "rate-limit-date": 0.0}.get(name)


@both_clients
def test_a_call_that_succeeds_at_last_shows_nothing_of_the_failures(server: FakeServer, blocking: bool) -> None:
    waits = Waits()
    faults = ("server-error", "rate-limit-seconds", "stream-cut-in-arguments", "not-json")
    server.script("weak", *(FAULTS[name] for name in faults), right)
    *partial, response = call(model_of(server, "weak", waits=waits, stream=True, max_retries=4), blocking=blocking)
    assert "".join(one.choices[0].delta.content for one in partial) == response.choices[0].message.content == TEXT
    assert waits.seconds == [0.5, 7.0, 2.0, 4.0]


def test_the_whole_time_is_bounded_also_when_the_provider_asks_to_wait(server: FakeServer) -> None:
    """REL-09: total time no longer than configured, on a fake clock."""
    waits = Waits()
    before = server.calls()
    with pytest.raises(RateLimitError):
        model_of(server, "rate-limit-seconds", waits=waits, max_retries=50, max_total_s=20.0).generate_blocking(ASK)
    assert waits.seconds == [7.0, 7.0]
    assert server.calls() - before == 3


def test_waiting_longer_than_there_is_time_is_not_begun(server: FakeServer) -> None:
    waits = Waits()
    server.script("later", answers(refusal("later"), "503 Service Unavailable", Retry_After="3600"))
    with pytest.raises(ModelError, match="answered 503"):
        model_of(server, "later", waits=waits).generate_blocking(ASK)
    assert waits.seconds == []


@both_clients
def test_an_answer_that_trickles_on_and_on_ends_with_the_whole_time(server: FakeServer, blocking: bool) -> None:
    waits = Waits()

    def trickle(connection: Any) -> None:
        connection.head(kind="text/event-stream")
        for _ in range(5):
            waits.clock.advance(timedelta(seconds=4))
            connection.send(b": keep-alive\n\n")
        connection.stall()

    before = server.calls("trickle")
    server.script("trickle", trickle)
    model = model_of(server, "trickle", waits, stream=True, max_total_s=10.0, max_retries=3)
    with pytest.raises(ModelTimeoutError, match="no whole answer within 10 s"):
        call(model, blocking=blocking)
    assert server.calls("trickle") - before == 1


def test_no_credit_does_not_pass_by_waiting(server: FakeServer) -> None:
    server.script("broke", answers(refusal("no credit", code="insufficient_quota"), "429 Too Many Requests"))
    with pytest.raises(RateLimitError) as caught:
        model_of(server, "broke").generate_blocking(ASK)
    assert not caught.value.retryable
    assert server.calls("broke") == 1


def test_a_redirect_is_not_followed(server: FakeServer) -> None:
    """SEC-15: no address but the given one is asked."""
    server.script("moved", answers(b"", "307 Temporary Redirect", Location="http://192.0.2.1/v1/chat/completions"))
    with pytest.raises(ModelError, match="answered 307"):
        model_of(server, "moved").generate_blocking(ASK)
    assert server.calls("moved") == 1


@both_clients
def test_a_proxy_of_the_environment_is_not_asked_about_this_machine(
    server: FakeServer, blocking: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SEC-15."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://192.0.2.1:9")
    assert call(model_of(server), blocking=blocking)[-1].choices[0].message.content == TEXT


@pytest.mark.parametrize(
    "options", [{"timeout_s": 0}, {"max_total_s": -1}, {"max_retries": -1}, {"max_retries": True}], ids=str
)
def test_a_limit_out_of_range_is_a_configuration_error(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        OpenAIModel("m", **options)


def test_cancelling_ends_the_call_at_once(server: FakeServer) -> None:
    async def main() -> None:
        loop, arrived = asyncio.get_running_loop(), asyncio.Event()

        def behave(connection: Any) -> None:
            loop.call_soon_threadsafe(arrived.set)
            silent(connection)

        server.script("waiting", behave)
        task = asyncio.create_task(model_of(server, "waiting").generate(EMPTY_CONTEXT, ASK).__anext__())
        await arrived.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


# --- who may be called, with which key ------------------------------------------------------------------


def test_model_calls_that_are_switched_off_reach_this_machine_only(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SEC-15."""
    monkeypatch.setenv("WORKBENCH_FORBID_MODEL_CALLS", "1")
    for blocking in (True, False):
        with pytest.raises(ModelCallForbiddenError, match=r"calls to api\.openai\.com are switched off"):
            call(OpenAIModel("gpt-4.1", api_key=CANARY_KEY), blocking=blocking)
        assert call(model_of(server), blocking=blocking)


@pytest.mark.parametrize("address", ["http://localhost:1/v1", "http://127.8.9.1/v1", "http://[::1]:8080/v1"])
def test_this_machine_has_several_names(address: str) -> None:
    OpenAIModel("m", base_url=address)._check_allowed()


@pytest.mark.parametrize(
    "address", ["http://10.0.0.1/v1", "http://localhost.example.com/v1", "http://127.0.0.1.example.com"]
)
def test_names_that_only_look_like_this_machine_are_others(address: str) -> None:
    with pytest.raises(ModelCallForbiddenError):
        OpenAIModel("m", base_url=address)._check_allowed()


def test_the_key_comes_from_the_argument_or_the_named_variable_at_each_call(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_API_KEY", " key-1234-one \n")
    model = model_of(server, api_key_env="TEST_API_KEY")
    for blocking in (True, False):
        call(model, blocking=blocking)
        assert server.received[-1].headers["authorization"] == "Bearer key-1234-one"
    monkeypatch.setenv("TEST_API_KEY", "key-1234-two")
    model.generate_blocking(ASK)
    assert server.received[-1].headers["authorization"] == "Bearer key-1234-two"
    model_of(server, api_key=SecretStr("key-1234-three")).generate_blocking(ASK)
    assert server.received[-1].headers["authorization"] == "Bearer key-1234-three"


def test_openai_s_key_does_not_go_to_other_addresses_by_itself(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SEC-08: a settings file names addresses, so it must not choose who gets the key."""
    monkeypatch.setenv("OPENAI_API_KEY", CANARY_KEY)
    model_of(server).generate_blocking(ASK)
    assert CANARY_KEY not in str(server.received[-1].headers)
    model_of(server, api_key_env="OPENAI_API_KEY").generate_blocking(ASK)
    assert server.received[-1].headers["authorization"] == f"Bearer {CANARY_KEY}"
    monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
    model_of(server, base_url=None).generate_blocking(ASK)
    assert server.received[-1].headers["authorization"] == f"Bearer {CANARY_KEY}"


def test_a_missing_key_is_said_with_the_name_of_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORKBENCH_FORBID_MODEL_CALLS")
    with pytest.raises(ModelAuthError, match="no key in the environment variable OPENAI_API_KEY"):
        OpenAIModel("gpt-4.1").generate_blocking(ASK)


@pytest.mark.parametrize(
    "address",
    [
        "https://user:canary-1234@example.com/v1",
        "https://example.com/v1?key=canary-1234",
        "ftp://example.com",
        "example.com/v1",
    ],
)
def test_an_address_that_is_none_or_holds_a_secret_is_refused_without_repeating_it(address: str) -> None:
    with pytest.raises(ConfigError) as caught:
        OpenAIModel("m", base_url=address)
    assert "canary" not in str(vars(caught.value)) + str(caught.value)


@pytest.mark.parametrize(
    ("name", "blocking"), [*((name, False) for name in EXPECTED), *((name, True) for name in ECHOES)]
)
def test_no_secret_is_in_an_error_its_chain_its_traceback_or_a_log(
    server: FakeServer, name: str, blocking: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """SEC-08: also when the provider repeats what it got, in whatever spelling."""
    caplog.set_level(logging.DEBUG)
    request = ASK.replace(headers={"x-tenant": CANARY_HEADER}, extra_fields={"tenant": CANARY_FIELD})
    streams_back = name in {"echo-stream", "echo-broken-stream"}
    options: dict[str, Any] = {"stream": True} if streams_back else {}
    with faulty(server, name, api_key=CANARY_KEY, **options) as model, pytest.raises(ModelError) as caught:
        call(model, request, blocking=blocking)
    if name in {*FAULTS, *ECHOES}:
        assert server.received[-1].headers["authorization"] == f"Bearer {CANARY_KEY}"
        assert server.received[-1].headers["x-tenant"] == CANARY_HEADER
        assert server.received[-1].body["tenant"] == CANARY_FIELD
    assert_no_canary(*everything_about(caught.value), caplog.text, repr(model), repr(request), str(vars(model)["_key"]))


@both_clients
@pytest.mark.parametrize("place", ["key", "header"])
def test_a_value_that_no_header_can_hold_is_an_error_without_it(server: FakeServer, place: str, blocking: bool) -> None:
    """SEC-08: HTTP libraries quote such values in their errors."""
    request = ASK.replace(headers={"x-tenant": f"{CANARY_HEADER}\r\nx-evil: 1"}) if place == "header" else ASK
    model = model_of(server, api_key=f"{CANARY_KEY}ключ" if place == "key" else CANARY_KEY)
    before = server.calls()
    with pytest.raises(ModelError, match="the client couldn't make the call") as caught:
        call(model, request, blocking=blocking)
    assert server.calls() == before
    assert not caught.value.retryable
    assert_no_canary(*everything_about(caught.value))


def test_an_error_does_not_repeat_the_conversation(server: FakeServer) -> None:
    said = "客户王小明的订单号是 A1001，他要求在星期三之前全额退款到原来的信用卡。"
    server.script("quoting", answers(refusal(f"Invalid content: '{said}' is not allowed"), "400 Bad Request"))
    with pytest.raises(ModelError) as caught:
        model_of(server, "quoting").generate_blocking(Request(messages=(Message("user", said),)))
    assert "Invalid content: '[...]' is not allowed" in str(caught.value)


def test_importing_the_model_does_not_load_the_client() -> None:
    """PERF-11."""
    code = "import sys, workbench.model.openai; sys.exit('openai' in sys.modules or 'httpx2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False, timeout=60).returncode == 0
