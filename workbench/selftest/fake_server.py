"""One server on 127.0.0.1 that answers chat completions in every wrong way, and in the right one.

In: a name of `FAULTS` or `ODDITIES` as the request's model, or answers of one's own by `script`. Out: what a
provider was seen to send then. Every request is kept, and so is the number of connections.
"""

from __future__ import annotations

import base64
import json
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import quote

TEXT = "摘要：退款 A1001 已处理 🙂。"
START_NS = 1_772_000_000 * 10**9
FIVE_SECONDS_LATER = "Wed, 25 Feb 2026 06:13:25 GMT"


@dataclass(repr=False)
class Received:
    """One request as it came in."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


class Connection:
    """What a behaviour may do with a request."""

    def __init__(self, raw: socket.socket, request: Received, closing: threading.Event) -> None:
        self.raw = raw
        self.request = request
        self._closing = closing

    def send(self, data: bytes | str) -> None:
        self.raw.sendall(data.encode() if isinstance(data, str) else data)

    def head(
        self, status: str = "200 OK", kind: str = "application/json", *, connection: str = "close", **headers: str
    ) -> None:
        lines = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Connection: {connection}", "x-request-id: req-1"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.send("\r\n".join(lines) + "\r\n\r\n")

    def reset(self) -> None:
        """Close so that the other side gets a reset instead of an end."""
        self.raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        self.raw.close()

    def stall(self) -> None:
        """Say nothing more until the other side goes away or the server closes."""
        self.raw.settimeout(0.02)
        while not self._closing.is_set():
            try:
                if not self.raw.recv(1024):
                    return
            except TimeoutError:
                continue
            except OSError:
                return


Behaviour = Callable[[Connection], None]


# --- answers in the right form --------------------------------------------------------------------------


def usage(**counts: Any) -> dict[str, Any]:
    return {
        "prompt_tokens": 120,
        "completion_tokens": 12,
        "total_tokens": 132,
        "prompt_tokens_details": {"cached_tokens": 100},
        **counts,
    }


def whole(text: str | None = TEXT, *, finish: str | None = "stop", **fields: Any) -> dict[str, Any]:
    """An answer in one piece."""
    message = {"role": "assistant", "content": text, **fields.pop("message", {})}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_772_000_000,
        "model": "served",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": usage(),
        **fields,
    }


def chunk(delta: Any = None, *, finish: str | None = None, **fields: Any) -> dict[str, Any]:
    """A piece of a streamed answer."""
    choice: dict[str, Any] = {"index": 0, "finish_reason": finish}
    if delta is not None:
        choice["delta"] = {"content": delta} if isinstance(delta, str) else delta
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1_772_000_000,
        "model": "served",
        "choices": [choice],
        **fields,
    }


def event(data: Any) -> bytes:
    """One server-sent event."""
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    return f"data: {text}\n\n".encode()


def text_events(text: str = TEXT) -> bytes:
    """A text in three pieces, without an end."""
    third = len(text) // 3
    pieces = (text[:third], text[third : 2 * third], text[2 * third :])
    return event(chunk({"role": "assistant", "content": ""})) + b"".join(event(chunk(piece)) for piece in pieces)


def end_events(*, counts: Any = None, finish: str = "stop") -> bytes:
    last: dict[str, Any] = {
        "id": "chatcmpl-1",
        "model": "served",
        "choices": [],
        "usage": usage() if counts is None else counts,
    }
    return event(chunk({}, finish=finish)) + event(last) + event("[DONE]")


def answers(body: Any, status: str = "200 OK", kind: str = "application/json", **headers: str) -> Behaviour:
    """Answer with this status and body."""

    def behave(connection: Connection) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body, ensure_ascii=False).encode()
        connection.head(status, kind, Content_Length=str(len(data)), **headers)
        connection.send(data)

    return behave


def streams(*parts: bytes) -> Behaviour:
    """Send these bytes as a stream, each part by itself."""

    def behave(connection: Connection) -> None:
        connection.head(kind="text/event-stream")
        for part in parts:
            connection.send(part)

    return behave


def right(connection: Connection) -> None:
    """The right answer in the form that was asked for."""
    if connection.request.body.get("stream"):
        streams(text_events(), end_events())(connection)
    else:
        answers(whole())(connection)


def saying(text: str) -> Behaviour:
    """This text in the form that was asked for."""

    def behave(connection: Connection) -> None:
        if connection.request.body.get("stream"):
            streams(text_events(text), end_events())(connection)
        else:
            answers(whole(text))(connection)

    return behave


def refusal(
    message: str, *, code: str | None = None, kind: str = "invalid_request_error", **fields: Any
) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "code": code, "param": None, **fields}}


# --- faults (reliability.md, section 6) -----------------------------------------------------------------


def reset_before_headers(connection: Connection) -> None:
    connection.reset()


def reset_within_the_body(connection: Connection) -> None:
    if connection.request.body.get("stream"):
        connection.head(kind="text/event-stream")
        connection.send(text_events())
    else:
        connection.head(Content_Length="4000")
        connection.send(json.dumps(whole())[:90])
    connection.reset()


def silent(connection: Connection) -> None:
    connection.stall()


def silent_in_the_middle(connection: Connection) -> None:
    if connection.request.body.get("stream"):
        connection.head(kind="text/event-stream")
        connection.send(text_events())
    else:
        connection.head(Content_Length="4000")
        connection.send(json.dumps(whole())[:90])
    connection.stall()


CONTEXT_LENGTH_WORDINGS: dict[str, tuple[dict[str, Any], int | None, int | None]] = {
    # name: body, tokens needed, tokens allowed
    "context-openai": (
        refusal(
            "This model's maximum context length is 8192 tokens. However, your messages resulted in 9321 tokens.",
            code="context_length_exceeded",
        ),
        9321,
        8192,
    ),
    "context-anthropic": (refusal("prompt is too long: 210000 tokens > 200000 maximum"), 210_000, 200_000),
    "context-bedrock": (refusal("Input is too long for requested model.", kind="ValidationException"), None, None),
    "context-llama-cpp": (
        refusal(
            "the request exceeds the available context size (8192 tokens), try increasing it",
            kind="exceed_context_size_error",
            n_prompt_tokens=11_946,
            n_ctx=8192,
        ),
        11_946,
        8192,
    ),
    "context-gemini": (
        refusal("The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."),
        1_200_000,
        1_048_576,
    ),
    "context-plain": ({"detail": "Please reduce the length of the messages or completion."}, None, None),
}

HTML = b"<!DOCTYPE html>\n<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>"
TOOL_DELTA = {"tool_calls": [{"index": 0, "id": "call_1", "function": {"name": "query", "arguments": '{"city": "B'}}]}

FAULTS: dict[str, Behaviour] = {
    # Connection; refused, name not found, TLS and the connect timeout need no server.
    "reset-before-headers": reset_before_headers,
    "reset-in-body": reset_within_the_body,
    "first-byte-timeout": silent,
    "between-bytes-timeout": silent_in_the_middle,
    # Status.
    **{name: answers(body, "400 Bad Request") for name, (body, _, _) in CONTEXT_LENGTH_WORDINGS.items()},
    "bad-request": answers(refusal("Unsupported value: 'temperature'", code="unsupported_value"), "400 Bad Request"),
    "wrong-key": answers(refusal("Incorrect API key provided", code="invalid_api_key"), "401 Unauthorized"),
    "no-such-model": answers(refusal("The model does not exist", code="model_not_found"), "404 Not Found"),
    "rate-limit-seconds": answers(refusal("Slow down", kind="requests"), "429 Too Many Requests", Retry_After="7"),
    "rate-limit-date": answers(refusal("Slow down"), "429 Too Many Requests", Retry_After=FIVE_SECONDS_LATER),
    "rate-limit-bare": answers(refusal("Slow down"), "429 Too Many Requests"),
    "server-error": answers(refusal("The server had an error", kind="server_error"), "500 Internal Server Error"),
    "html-page": answers(HTML, "502 Bad Gateway", "text/html"),
    "overloaded": answers(refusal("Overloaded", kind="overloaded_error"), "529 Overloaded"),
    # Body.
    "empty-text": answers(whole("")),
    "white-space": answers(whole(" \n\t ")),
    "content-filter": answers(whole("摘要：", finish="content_filter")),
    "no-choices": answers(whole(choices=[])),
    "not-json": answers(b"upstream connect error", kind="text/plain"),
    # Stream.
    "stream-without-end": streams(text_events()),
    "stream-cut-in-arguments": streams(event(chunk({"role": "assistant"})), event(chunk(TOOL_DELTA))),
    "stream-broken-chunk": streams(text_events(), b'data: {"id": "chatcmpl-1", "choi\n\n', end_events()),
    "stream-error-object": streams(
        text_events(), event(refusal("The engine is gone", kind="server_error")), end_events()
    ),
    "stream-endless-line": streams(b"data: " + b"x" * 65_536, *[b"x" * 1_048_576] * 10),
}
STREAM_FAULTS = [name for name in FAULTS if name.startswith("stream-")]

ODDITIES: dict[str, Behaviour] = {
    "usage-missing": answers({key: value for key, value in whole().items() if key != "usage"}),
    "usage-negative": answers(whole(usage=usage(prompt_tokens=-5))),
    "usage-absurd": answers(whole(usage=usage(prompt_tokens=10**15, total_tokens=10**15 + 12))),
    "usage-inconsistent": answers(whole(usage=usage(total_tokens=3))),
    "usage-not-a-number": answers(whole(usage=usage(completion_tokens="many"))),
    "stream-usage-absurd": streams(text_events(), end_events(counts=usage(cached_tokens=10**12, prompt_tokens=-1))),
    "chunk-without-delta": streams(
        event(chunk()), text_events(), event(chunk()), event({"choices": None}), event({}), end_events()
    ),
    "empty-finish-reason": streams(
        text_events().replace(b'"finish_reason": null', b'"finish_reason": ""'), end_events()
    ),
    "split-characters": streams(*(bytes([byte]) for byte in text_events("上\u2028下\x85🙂 \U0001f9ea") + end_events())),
    "comments": streams(
        b": keep-alive\n\n: OPENROUTER PROCESSING\r\n\r\n",
        text_events(),
        b"event: ping\nid: 7\nretry: 3\n\n:\n\n",
        end_events(),
    ),
}


# --- providers that repeat what they got ----------------------------------------------------------------


def echo_of(request: Received) -> str:
    """Everything secret of a request, in every usual spelling."""
    secrets = [value for name, value in request.headers.items() if name in {"authorization", "x-tenant"}]
    secrets += [secrets[0].removeprefix("Bearer "), json.dumps(request.body.get("tenant"))]
    forms = [form for text in secrets for form in (text, quote(text), base64.b64encode(text.encode()).decode())]
    return "you sent " + " and ".join([*forms, *(text.encode().hex() for text in secrets)])


def echoing(connection: Connection) -> None:
    """Refuse, and quote the secrets of the request in the way that the model's name says."""
    where = connection.request.body["model"].removeprefix("echo-")
    for start in range(0, 1200, 150):  # only the start of a message is shown, so every part has to be the start once
        if where == f"status-{start}":
            answers(refusal(echo_of(connection.request)[start:]), "401 Unauthorized")(connection)
    text = echo_of(connection.request)
    if where == "body":
        answers(text.encode(), kind="text/plain")(connection)
    elif where == "page":
        answers(b"<html>" + text.encode(), "502 Bad Gateway", "text/html")(connection)
    elif where == "answer":
        answers(refusal(text))(connection)
    elif where == "stream":
        streams(text_events(), event(refusal(text)))(connection)
    elif where == "broken-stream":
        streams(text_events(), f"data: {text}\n\n".encode())(connection)


ECHOES = [f"echo-{where}" for where in ("body", "page", "answer", "stream", "broken-stream")]
ECHOES += [f"echo-status-{start}" for start in range(0, 1200, 150)]


# --- the server -----------------------------------------------------------------------------------------


@dataclass(repr=False)
class FakeServer:
    """Serves until it is closed; use it in a `with` block. Has no `repr`: tests look for secrets in locals."""

    received: list[Received] = field(default_factory=list)
    n_connections: int = 0

    def __enter__(self) -> Self:
        self._scripts: dict[str, list[Behaviour]] = {}
        self._closing = threading.Event()
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._socket.settimeout(0.05)
        self._threads: list[threading.Thread] = []
        self._main = threading.Thread(target=self._serve, daemon=True)
        self._main.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._main.join()
        for thread in self._threads:
            thread.join()
        self._socket.close()

    @property
    def port(self) -> int:
        return int(self._socket.getsockname()[1])

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def script(self, model: str, *behaviours: Behaviour) -> None:
        """What requests of this model get, in order; the last one repeats."""
        self._scripts[model] = list(behaviours)

    def calls(self, model: str | None = None) -> int:
        """Requests so far, of one model or of all."""
        return sum(model in {None, request.body.get("model")} for request in self.received)

    def _serve(self) -> None:
        while not self._closing.is_set():
            try:
                raw, _ = self._socket.accept()
            except TimeoutError:
                continue
            self.n_connections += 1
            thread = threading.Thread(target=self._answer, args=(raw,), daemon=True)
            self._threads = [one for one in self._threads if one.is_alive()] + [thread]
            thread.start()

    def _answer(self, raw: socket.socket) -> None:
        with raw:
            raw.settimeout(5)
            try:
                request = read_request(raw)
                if request is None:
                    return
                self.received.append(request)
                self._behaviour(request)(Connection(raw, request, self._closing))
            except OSError:
                return  # the other side has gone, as it should

    def _behaviour(self, request: Received) -> Behaviour:
        model = str(request.body.get("model"))
        if script := self._scripts.get(model):
            return script.pop(0) if len(script) > 1 else script[0]
        if model.startswith("echo-"):
            return echoing
        return FAULTS.get(model) or ODDITIES.get(model) or right


def read_request(raw: socket.socket) -> Received | None:
    """A whole request, or None when what comes is none."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = raw.recv(65_536)
        if not piece or piece[:1] == b"\x16":  # nothing, or a TLS greeting
            return None
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    while len(body) < int(headers.get("content-length", 0)):
        body += raw.recv(65_536)
    return Received(first.split()[1], headers, json.loads(body or b"{}"))


def full_backlog() -> tuple[socket.socket, Sequence[socket.socket]]:
    """A listening socket that takes no further connection: whoever connects waits."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=0)
    waiting = []
    for _ in range(3):
        client = socket.socket()
        client.setblocking(False)
        client.connect_ex(listener.getsockname())
        waiting.append(client)
    return listener, waiting
