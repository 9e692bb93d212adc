"""What a failure is called, how long to wait, and what of a provider's words may be repeated."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.clock import FixedClock
from workbench.errors import ContextLengthError, ModelAuthError, ModelError, ModelStreamError, RateLimitError
from workbench.model.call_faults import Censor, Faults, cause_of_break, provider_error, retry_after_s
from workbench.model.types import Message, Request, ToolCall

NOW_NS = FixedClock(1_772_000_000 * 10**9).now_ns()


def faults(censor: Censor | None = None) -> Faults:
    return Faults("m", censor or Censor())


@pytest.mark.parametrize(
    ("message", "needed", "allowed"),
    [
        ("This model's maximum context length is 4096 tokens. However, you requested 122946 tokens", 122_946, 4096),
        ("input length and `max_tokens` exceed context limit: 174167 + 64000 > 200000", None, 200_000),
        ("This model's maximum prompt length is 131,072 but the request contains 537,812 tokens.", 537_812, 131_072),
        ("Your input exceeds the context window of this model. Please adjust your input", None, None),
        ("Range of input length should be [1, 30720]", None, None),
        ("Prompt exceeds max length", None, None),
        ("too many tokens in the request", None, None),
    ],
)
def test_further_wordings_of_a_request_that_is_too_long_are_known(
    message: str, needed: int | None, allowed: int | None
) -> None:
    """REL-09, SUM-CALL-04."""
    said = provider_error({"error": {"message": message}})
    assert said is not None
    assert said.is_context_length
    assert (said.needed_tokens, said.max_tokens) == (needed, allowed)


@pytest.mark.parametrize(
    "message",
    [
        "max_tokens is too large: 100000. This model supports at most 16384 completion tokens",
        "The model `context` does not exist",
        "Invalid type for 'messages[0].content'",
    ],
)
def test_other_refusals_are_not_taken_for_it(message: str) -> None:
    said = provider_error({"error": message})
    assert said is not None
    assert not said.is_context_length


@pytest.mark.parametrize(
    ("status", "body", "kind", "retryable"),
    [
        (400, b'{"error": {"message": "no"}}', ModelError, False),
        (401, b"", ModelAuthError, False),
        (403, b"<html>", ModelAuthError, False),
        (404, b'{"detail": "Not Found"}', ModelError, False),
        (408, b"", ModelError, True),
        (413, b"<html>too large</html>", ContextLengthError, False),
        (429, b"context length of the queue", RateLimitError, True),
        (429, b'{"error": {"type": "insufficient_quota"}}', RateLimitError, False),
        (500, b'{"error": {"message": "exceeds the available context size"}}', ContextLengthError, False),
        (500, b"[]", ModelError, True),
        (529, b"null", ModelError, True),
        (302, b"", ModelError, False),
    ],
)
def test_status_and_body_decide_the_kind_of_error(
    status: int, body: bytes, kind: type[ModelError], retryable: bool
) -> None:
    """REL-09."""
    error = faults().from_status(status, body)
    assert (type(error), error.retryable) == (kind, retryable)
    assert f"answered {status}" in str(error)


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        ({"error": {"message": "prompt is too long"}}, ContextLengthError),
        ({"error": {"message": "slow down", "code": 429}}, RateLimitError),
        ({"error": {"type": "rate_limit_error"}}, RateLimitError),
        ({"error": {"message": "gone"}}, ModelStreamError),
        ({"error": True}, ModelStreamError),
    ],
)
def test_an_error_in_the_middle_of_a_stream_has_the_kind_of_what_it_says(raw: object, kind: type[ModelError]) -> None:
    """REL-09."""
    assert type(faults().from_answer(raw, received_chars=3)) is kind


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": " 0.5 "}, 0.5),
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
        ({"retry-after": "Wed, 25 Feb 2026 06:13:25 GMT"}, 5.0),
        ({"retry-after": "Wed, 25 Feb 2026 07:13:25 +0100"}, 5.0),
        ({"retry-after": "Wed, 25 Feb 2026 06:00:00 GMT"}, 0.0),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "1e9"}, None),
        ({"retry-after": "9" * 400}, None),
    ],
    ids=str,
)
def test_a_wish_to_wait_is_a_number_a_date_or_none(headers: dict[str, str], seconds: float | None) -> None:
    """REL-09."""
    assert retry_after_s(headers, now_ns=NOW_NS) == seconds


def test_only_the_system_s_own_words_tell_why_a_connection_broke() -> None:
    """SEC-08: an HTTP library may quote a header in its text."""
    outer = RuntimeError("Illegal header value b'Bearer canary-0000'")
    assert cause_of_break(outer) == "RuntimeError"
    outer.__cause__ = ConnectionRefusedError(111, "Connection refused")
    assert cause_of_break(outer) == "Connection refused"


SECRET = "sk-canary-0000-Zq8vTnWk3xYb7"


@pytest.mark.parametrize(
    "spelling", [SECRET, base64.b64encode(SECRET.encode()).decode(), SECRET.encode().hex(), SECRET[:15], SECRET[-12:]]
)
def test_a_secret_is_masked_in_every_spelling_and_in_part(spelling: str) -> None:
    """SEC-08."""
    cleaned = Censor([SECRET]).clean(f"wrong key {spelling}, look at your account")
    assert "***" in cleaned
    assert cleaned.startswith("wrong key ")
    assert cleaned.endswith(", look at your account")


def test_what_looks_like_a_key_is_masked_even_if_it_is_not_ours() -> None:
    """SEC-08: providers quote keys with stars in the middle."""
    assert Censor().clean("Incorrect key: sk-pr****4x2Q. Bearer abcdef") == "Incorrect key: *** ***"


@given(st.text(alphabet="abcXYZ019+/=-_ ", min_size=8, max_size=40), st.text(max_size=30), st.text(max_size=30))
def test_no_run_of_a_secret_survives(secret: str, before: str, behind: str) -> None:
    """SEC-08."""
    line = " ".join(secret.split())
    cleaned = Censor([line]).clean(f"{before}{line}{behind}")
    if len(line) >= 8:
        assert not any(line[i : i + 8] in cleaned for i in range(len(line) - 7))


def test_the_conversation_is_not_repeated_but_short_common_runs_are() -> None:
    said = "王小明的订单是 A1001，请在星期三之前全额退款到原来的信用卡上，谢谢"
    call = ToolCall("t1", "query", '{"customer": "Wang Xiaoming", "order": "A1001"}')
    request = Request(messages=(Message("user", said), Message("assistant", tool_calls=(call,))))
    censor = Censor.of(request, [])
    assert censor.clean(f"bad text: {said}!") == "bad text: [...]!"
    assert censor.clean(f"bad arguments: {call.arguments}") == "bad arguments: [...]"
    assert censor.clean("订单是 A1001") == "订单是 A1001"
    assert Censor(contents=["the"]).clean("the model is gone") == "the model is gone"


def test_headers_and_long_extra_fields_of_a_request_are_secrets_short_ones_are_options() -> None:
    """SEC-08."""
    request = Request(
        headers={"x-key": "header-canary-1"}, extra_fields={"a": ["field-canary-0000-1"], "mode": "json_object"}
    )
    cleaned = Censor.of(request, []).clean("got header-canary-1, field-canary-0000-1 and json_object")
    assert cleaned == "got ***, *** and json_object"


def test_a_quote_is_one_line_of_bounded_length() -> None:
    assert Censor().clean("a\n\tb  c") == "a b c"
    assert len(Censor().clean("word " * 500)) <= 303
