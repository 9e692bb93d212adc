"""A `Model` over any endpoint that speaks OpenAI's chat completions, through the `openai` client.

In: a `Request`. Out: partial responses, if it streams, and a whole one; or one typed error after a bounded
number of attempts in bounded time (REL-09). `generate_blocking` does the same without an event loop, for
replays, whose loop is virtual (WB-API-01). Bytes are read by `chat_wire`, failures by `call_faults`.

Keys go into the request header and nowhere else (SEC-08): errors are made anew outside the handlers that
caught what the HTTP client raised, so neither their chain nor their traceback leads to a header.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import SecretStr

from workbench.call import CallContext
from workbench.clock import NS_PER_S, Clock, SystemClock
from workbench.errors import ConfigError, ModelAuthError, ModelCallForbiddenError, ModelError
from workbench.model.call_faults import Censor, Faults, cause_of_break, retry_after_s
from workbench.model.chat_wire import AnswerReader, BodyForm, StreamedAnswer, WholeAnswer, chat_body, thinking_fields
from workbench.model.types import SYSTEM, Request, Response

if TYPE_CHECKING:
    import openai

_log = logging.getLogger(__name__)

FORBID_VARIABLE = "WORKBENCH_FORBID_MODEL_CALLS"
"""Set to 1 it allows calls to this machine only."""
KEY_VARIABLE = "OPENAI_API_KEY"
ADDRESS_VARIABLE = "OPENAI_BASE_URL"
OPENAI_ADDRESS = "https://api.openai.com/v1"
_CONNECT_TIMEOUT_S = 10.0
_FIRST_BACKOFF_S = 0.5
_LONGEST_BACKOFF_S = 8.0
# The client wants a key; servers without one don't look at it.
_NO_KEY = "none"


@dataclass(frozen=True, slots=True)
class CallLimits:
    """How long and how often one call is tried."""

    timeout_s: float = 60.0
    """Longest silence: for the connection, for the first byte, between bytes."""
    max_total_s: float = 600.0
    """Longest time of a call with all its attempts and waits."""
    max_retries: int = 2
    """Further attempts after the first."""

    def __post_init__(self) -> None:
        for name in ("timeout_s", "max_total_s"):
            if not getattr(self, name) > 0:
                raise ConfigError.for_field(name, getattr(self, name), "seconds above 0")
        if type(self.max_retries) is not int or self.max_retries < 0:
            raise ConfigError.for_field("max_retries", self.max_retries, "0 or more")


class OpenAIModel:
    """A model behind an OpenAI-compatible endpoint.

    Args:
        name: The provider's name of the model.
        api_key: None takes it from an environment variable at each call.
        api_key_env: That variable. Empty means `OPENAI_API_KEY` for OpenAI's own address and for the one in
            `OPENAI_BASE_URL`; any other address gets no key unless its variable is named.
        base_url: Address up to and including `/v1`; None means `OPENAI_BASE_URL`, else OpenAI's own.
        context_window: Tokens; 0 = unknown.
        timeout_s: Longest silence: for the connection, for the first byte, between bytes.
        max_total_s: Longest time of a call with all its attempts and waits.
        max_retries: Further attempts after the first. None is made once a part of an answer was handed on.
        stream: Whether to stream; None does as each request says.
        headers: Go out with every request, a request's own on top of them.
        extra_fields: The same for fields of the body that this package doesn't know.
        max_tokens_field: Name of the output limit; empty = as the address wants it.
        sends_reasoning: Send earlier reasoning texts back; some providers want that, others refuse it.
        optimize_for_cache: Move system messages to the front, before tailoring (ASM-CACHE-04).
        tailor: Makes a request fit the model; None sends it as it is.
        input_budget: Tokens that a request's input may take, as the summarizer asks for them (ASM-TLR-02).
        clock: Measures total time and reads dates of `Retry-After`.
        sleep, sleep_blocking: Wait between attempts.
    Raises:
        ConfigError: an address that can't be one, or a limit out of range.
    """

    def __init__(
        self,
        name: str,
        *,
        api_key: SecretStr | str | None = None,
        api_key_env: str = "",
        base_url: str | None = None,
        context_window: int = 0,
        timeout_s: float = 60.0,
        max_total_s: float = 600.0,
        max_retries: int = 2,
        stream: bool | None = None,
        headers: Mapping[str, str] | None = None,
        extra_fields: Mapping[str, Any] | None = None,
        max_tokens_field: Literal["", "max_tokens", "max_completion_tokens"] = "",
        sends_reasoning: bool = False,
        optimize_for_cache: bool = False,
        tailor: Callable[[Request], Request] | None = None,
        input_budget: Callable[[Request], int] | None = None,
        clock: Clock | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        sleep_blocking: Callable[[float], None] = time.sleep,
    ) -> None:
        self.name = name
        self.context_window = context_window
        self.base_url = checked_address(base_url or os.environ.get(ADDRESS_VARIABLE) or OPENAI_ADDRESS)
        self._limits = CallLimits(timeout_s, max_total_s, max_retries)
        self._stream = stream
        self._headers = dict(headers or {})
        self._extra_fields = dict(extra_fields or {})
        self._host = urlsplit(self.base_url).hostname or ""
        is_openai = self._host == "openai.com" or self._host.endswith(".openai.com")
        self._form = BodyForm(
            max_tokens_field or ("max_completion_tokens" if is_openai else "max_tokens"), sends_reasoning
        )
        self._key = SecretStr(api_key) if isinstance(api_key, str) else api_key
        self._key_variable = api_key_env or (KEY_VARIABLE if is_openai or not base_url else "")
        self._optimize_for_cache = optimize_for_cache
        self._tailor = tailor
        self._input_budget = input_budget
        self._clock = clock or SystemClock()
        self._sleep = sleep
        self._sleep_blocking = sleep_blocking
        self._async_client: openai.AsyncOpenAI | None = None
        self._blocking_client: openai.OpenAI | None = None

    def __repr__(self) -> str:
        return f"OpenAIModel({self.name!r}, base_url={self.base_url!r})"

    def input_token_budget(self, request: Request) -> int:
        """Tokens that input may take; 0 when nobody said (SUM-FIT-02)."""
        return self._input_budget(request) if self._input_budget is not None else 0

    # --- calling -----------------------------------------------------------------------------------------

    async def generate(self, ctx: CallContext, request: Request) -> AsyncIterator[Response]:
        """Responses in order: partial ones if it streams, then a whole one.

        Raises:
            ModelError: a kind of it says what went wrong in the last attempt.
        """
        call = self._call(request, hands_on=True)
        while call.begins_attempt():
            async with aclosing(self._attempt(call)) as responses:
                async for response in responses:
                    yield response
            if (wait_s := call.wait_before_retry()) is not None:
                await self._sleep(wait_s)
        if call.failure is not None:
            raise call.failure

    def generate_blocking(self, request: Request) -> list[Response]:
        """The responses of `generate`, all at once and without an event loop.

        Raises:
            ModelError: as `generate`.
        """
        call = self._call(request, hands_on=False)
        responses: list[Response] = []
        while call.begins_attempt():
            responses = self._attempt_blocking(call)
            if (wait_s := call.wait_before_retry()) is not None:
                self._sleep_blocking(wait_s)
        if call.failure is not None:
            raise call.failure
        return responses

    async def _attempt(self, call: _Call) -> AsyncGenerator[Response, None]:
        """The responses of one attempt; what goes wrong is left in `call.failure`."""
        try:
            completions = self._async().chat.completions.with_streaming_response
            async with completions.create(**call.arguments()) as answer:
                reader = call.open(answer.headers)
                async for data in answer.iter_bytes():
                    for partial in reader.feed(data):
                        call.n_handed_on += 1
                        yield partial
                    if call.is_over():
                        break
        except Exception as error:  # whatever the client raises, the caller gets a `ModelError`
            call.fail(error)
        for whole in call.finish():
            yield whole

    def _attempt_blocking(self, call: _Call) -> list[Response]:
        responses: list[Response] = []
        try:
            completions = self._blocking().chat.completions.with_streaming_response
            with completions.create(**call.arguments()) as answer:
                reader = call.open(answer.headers)
                for data in answer.iter_bytes():
                    responses += reader.feed(data)
                    if call.is_over():
                        break
        except Exception as error:  # as above
            call.fail(error)
        return [*responses, *call.finish()]

    def _call(self, request: Request, *, hands_on: bool) -> _Call:
        self._check_allowed()
        key = self._secret()
        if self._optimize_for_cache:
            request = system_first(request)
        if self._tailor is not None:
            request = self._tailor(request)
        request = request.replace(
            extra_fields={**thinking_fields(request), **self._extra_fields, **request.extra_fields}
        )
        streams = request.generation_config.stream if self._stream is None else self._stream
        return _Call(
            Faults(self.name, Censor.of(request, [key.get_secret_value(), *self._headers.values()])),
            self._limits,
            self._clock,
            body=chat_body(self.name, request, streams=streams, form=self._form),
            request=request,
            hands_on=hands_on,
        )

    # --- who may be called, and with which key ------------------------------------------------------------

    def _check_allowed(self) -> None:
        if os.environ.get(FORBID_VARIABLE, "") not in {"", "0"} and not is_loopback(self._host):
            raise ModelCallForbiddenError(
                f"model {self.name}: calls to {self._host} are switched off by {FORBID_VARIABLE}",
                model=self.name,
                hint="use another source of answers, or unset the variable",
            )

    def _secret(self) -> SecretStr:
        if self._key:
            return self._key
        if not self._key_variable:
            return SecretStr(_NO_KEY)
        key = SecretStr(os.environ.get(self._key_variable, "").strip())
        if not key:
            raise ModelAuthError(
                f"model {self.name}: there is no key in the environment variable {self._key_variable}",
                model=self.name,
                hint=f"export {self._key_variable}=...",
            )
        return key

    # --- clients ------------------------------------------------------------------------------------------

    def _async(self) -> openai.AsyncOpenAI:
        if self._async_client is None:
            import openai

            async def key() -> str:
                return self._secret().get_secret_value()

            transport = openai.DefaultAsyncHttpx2Client(**self._transport())
            self._async_client = openai.AsyncOpenAI(api_key=key, http_client=transport, **self._settings())
        return self._async_client

    def _blocking(self) -> openai.OpenAI:
        if self._blocking_client is None:
            import openai

            transport = openai.DefaultHttpx2Client(**self._transport())
            self._blocking_client = openai.OpenAI(
                api_key=lambda: self._secret().get_secret_value(), http_client=transport, **self._settings()
            )
        return self._blocking_client

    def _settings(self) -> dict[str, Any]:
        # Attempts are counted and timed here, so the client makes one only.
        return {"base_url": self.base_url, "max_retries": 0, "default_headers": self._headers}

    def _transport(self) -> dict[str, Any]:
        import httpx2

        return {
            # An idle connection would belong to an event loop that may be gone at the next call.
            "limits": httpx2.Limits(max_keepalive_connections=0),
            # A redirect would carry headers to another host.
            "follow_redirects": False,
            # No proxy of the environment between this machine and itself.
            "trust_env": not is_loopback(self._host),
            # Loading all certificates takes a while, and without TLS none is looked at.
            "verify": self.base_url.startswith("https:"),
        }

    async def aclose(self) -> None:
        """Release the clients; a later call makes new ones."""
        client, self._async_client = self._async_client, None
        if client is not None:
            await client.close()
        self.close()

    def close(self) -> None:
        """Release the blocking client."""
        client, self._blocking_client = self._blocking_client, None
        if client is not None:
            client.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class _Call:
    """One call: what is sent, how often it was tried, and what came of the last attempt."""

    def __init__(
        self,
        faults: Faults,
        limits: CallLimits,
        clock: Clock,
        *,
        body: dict[str, Any],
        request: Request,
        hands_on: bool,
    ) -> None:
        self.failure: ModelError | None = None
        self.n_handed_on = 0
        """Partial responses that the caller has seen."""
        self._faults = faults
        self._limits = limits
        self._clock = clock
        self._deadline_ns = clock.now_ns() + round(limits.max_total_s * NS_PER_S)
        self._body = body
        self._request = request
        self._hands_on = hands_on
        self._n_attempts = 0
        self._is_due = True
        self._asked_wait_s: float | None = None
        self._reader: AnswerReader | None = None

    def begins_attempt(self) -> bool:
        """True, once, when an attempt is due; what the last one left is forgotten."""
        if not self._is_due:
            return False
        self._is_due = False
        self._n_attempts += 1
        self.failure = self._reader = self._asked_wait_s = None
        self._faults.request_id = ""
        return True

    def arguments(self) -> dict[str, Any]:
        """What the client's `create` is called with."""
        import openai

        silence_s = max(min(self._limits.timeout_s, self._left_s()), 0.001)
        timeout = openai.Timeout(silence_s, connect=min(silence_s, _CONNECT_TIMEOUT_S))
        return {
            **self._body,
            "extra_headers": dict(self._request.headers),
            "extra_body": dict(self._request.extra_fields),
            "timeout": timeout,
        }

    def open(self, headers: Mapping[str, str]) -> AnswerReader:
        """The reader of an answer with these headers; a server may answer in the other form than asked."""
        self._faults.request_id = headers.get("x-request-id", "")
        kind = headers.get("content-type", "").lower()
        wants_stream = self._body.get("stream", False) and "json" not in kind and "html" not in kind
        streams = "event-stream" in kind or wants_stream
        self._reader = StreamedAnswer(self._faults) if streams else WholeAnswer(self._faults)
        return self._reader

    def is_over(self) -> bool:
        """Nothing more needs to be read.

        Raises:
            ModelTimeoutError: the time for the whole call is up.
        """
        if self._reader is not None and self._reader.is_done:
            return True
        if self._left_s() <= 0:
            raise self._faults.timeout(f"no whole answer within {self._limits.max_total_s:g} s")
        return False

    def finish(self) -> Sequence[Response]:
        """The whole response, or none when the attempt failed."""
        if self.failure is None and self._reader is not None:
            try:
                return [self._reader.finish()]
            except ModelError as error:
                self.fail(error)
        return ()

    def fail(self, error: Exception) -> None:
        """Note why the attempt failed; a connection that breaks behind a whole answer doesn't matter."""
        if self._reader is not None and self._reader.is_complete and not isinstance(error, ModelError):
            return
        failure = self._failure_from(error)
        # What lies behind it holds bytes of the answer, which may repeat a key.
        failure.__cause__ = failure.__context__ = None
        self.failure = failure.with_traceback(None)

    def wait_before_retry(self) -> float | None:
        """Seconds until the next attempt, which is due then; None when there is none."""
        failure = self.failure
        if failure is None or not failure.retryable or self._n_attempts > self._limits.max_retries:
            return None
        if self._hands_on and self.n_handed_on:
            return None
        backoff_s = min(_FIRST_BACKOFF_S * 2 ** (self._n_attempts - 1), _LONGEST_BACKOFF_S)
        wait_s = backoff_s if self._asked_wait_s is None else self._asked_wait_s
        if wait_s >= self._left_s():
            return None
        _log.debug("model %s: attempt %d failed, next one in %.1f s", failure.model, self._n_attempts, wait_s)
        self._is_due = True
        return wait_s

    def _left_s(self) -> float:
        return (self._deadline_ns - self._clock.now_ns()) / NS_PER_S

    def _failure_from(self, error: Exception) -> ModelError:
        import anyio
        import httpx2
        import openai

        if isinstance(error, ModelError):
            return error
        if isinstance(error, openai.APIStatusError):
            response = error.response
            self._faults.request_id = response.headers.get("x-request-id", "")
            self._asked_wait_s = retry_after_s(response.headers, now_ns=self._clock.now_ns())
            return self._faults.from_status(error.status_code, response.content, retry_after_s=self._asked_wait_s)
        if isinstance(error, openai.APITimeoutError | httpx2.TimeoutException):
            return self._faults.timeout(self._silence(error))
        is_ours = isinstance(error.__cause__, httpx2.LocalProtocolError)  # a header that can't be one, say
        broken = (openai.APIConnectionError, httpx2.RequestError, anyio.EndOfStream, OSError)
        if isinstance(error, broken) and not is_ours:
            return self._broken(error)
        return self._faults.error(f"the client couldn't make the call ({type(error).__name__})")

    def _silence(self, error: Exception) -> str:
        import httpx2

        within = f"within {self._limits.timeout_s:g} s"
        if isinstance(error, httpx2.ConnectTimeout) or isinstance(error.__cause__, httpx2.ConnectTimeout):
            return f"no connection {within}"
        return f"no answer {within}" if self._reader is None else f"the answer stopped: nothing more {within}"

    def _broken(self, error: Exception) -> ModelError:
        why = cause_of_break(error)
        if isinstance(self._reader, StreamedAnswer):
            return self._faults.stream(f"broke off ({why})", self._reader.n_chars)
        what = "no connection" if self._reader is None else "the connection broke off in the middle of the answer"
        # A certificate doesn't become right by asking again.
        return self._faults.error(
            f"{what} ({why})", retryable=not _is_about_tls(error), hint="check address and network"
        )


def _is_about_tls(error: BaseException) -> bool:
    cursor: BaseException | None = error
    while cursor is not None:
        if isinstance(cursor, ssl.SSLError):
            return True
        cursor = cursor.__cause__ or cursor.__context__
    return False


def system_first(request: Request) -> Request:
    """The request with its system messages in front, order kept, so that the prefix stays longer the same
    (ASM-CACHE-04)."""
    system = tuple(message for message in request.messages if message.role == SYSTEM)
    others = tuple(message for message in request.messages if message.role != SYSTEM)
    return request.replace(messages=(*system, *others))


def checked_address(address: str) -> str:
    """An address that calls may go to, without a slash at its end.

    Raises:
        ConfigError: no such address, or one that holds a password or a query, where keys would show in logs.
    """
    parts = urlsplit(address)
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise ConfigError(
            "base_url has a password or a query in it",
            field="base_url",
            allowed="http(s)://host[:port]/path",
            hint="give the key by an environment variable, further values as headers",
        )
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ConfigError.for_field("base_url", address, "http(s)://host[:port]/path")
    return address.rstrip("/")


def is_loopback(host: str) -> bool:
    """The host is this machine."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
