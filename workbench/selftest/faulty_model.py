"""A model over the local server that fails as it is told, and what its failures must look like.

In: a name of a fault. Out: an `OpenAIModel` that runs into it without ever really waiting; the expected kinds
of errors; and a search for secrets in everything that an error shows.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import socket
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Any
from unittest.mock import patch
from urllib.parse import quote

from workbench.call import EMPTY_CONTEXT
from workbench.clock import FixedClock
from workbench.errors import (
    ContentFilterError,
    ContextLengthError,
    ModelAuthError,
    ModelError,
    ModelStreamError,
    ModelTimeoutError,
    RateLimitError,
)
from workbench.model.client import Model
from workbench.model.openai import OpenAIModel
from workbench.model.types import Message, Request, Response
from workbench.selftest.fake_server import CONTEXT_LENGTH_WORDINGS, START_NS, STREAM_FAULTS, FakeServer, full_backlog

ASK = Request(messages=(Message("user", "请总结"),))
CANARY_KEY = "sk-canary-0000-Zq8vTn+Wk/3=xYb7"
CANARY_HEADER = "canary header 0000 \\ Lm5tRp&9s"
CANARY_FIELD = "canary-field-0000-Hd2kQw7%eJ"


class Waits:
    """Waiting that only moves a clock; both kinds of it."""

    def __init__(self) -> None:
        self.clock = FixedClock(START_NS)
        self.seconds: list[float] = []

    def blocking(self, seconds: float) -> None:
        self.seconds.append(seconds)
        self.clock.advance(timedelta(seconds=seconds))

    async def sleep(self, seconds: float) -> None:
        self.blocking(seconds)


def model_of(server: FakeServer, name: str = "fine", waits: Waits | None = None, **options: Any) -> OpenAIModel:
    """A model of the local server that never really waits between attempts."""
    waits = waits or Waits()
    options.setdefault("base_url", server.base_url)
    options.setdefault("timeout_s", 0.1 if name.endswith("timeout") else 10.0)
    options.setdefault("stream", name.startswith(("stream-", "chunk-", "empty-finish", "split-", "comments")))
    return OpenAIModel(
        name, clock=waits.clock, sleep=waits.sleep, sleep_blocking=waits.blocking, **{"max_retries": 1, **options}
    )


def responses_of(model: Model, request: Request = ASK) -> list[Response]:
    """All responses, through an event loop of their own."""

    async def main() -> list[Response]:
        return [response async for response in model.generate(EMPTY_CONTEXT, request)]

    return asyncio.run(main())


EXPECTED: dict[str, type[ModelError]] = {
    "refused": ModelError,
    "name-not-found": ModelError,
    "tls-failure": ModelError,
    "connect-timeout": ModelTimeoutError,
    "reset-before-headers": ModelError,
    "reset-in-body": ModelError,
    "first-byte-timeout": ModelTimeoutError,
    "between-bytes-timeout": ModelTimeoutError,
    **dict.fromkeys(CONTEXT_LENGTH_WORDINGS, ContextLengthError),
    "bad-request": ModelError,
    "wrong-key": ModelAuthError,
    "no-such-model": ModelError,
    "rate-limit-seconds": RateLimitError,
    "rate-limit-date": RateLimitError,
    "rate-limit-bare": RateLimitError,
    "server-error": ModelError,
    "html-page": ModelError,
    "overloaded": ModelError,
    "content-filter": ContentFilterError,
    "no-choices": ModelError,
    "not-json": ModelError,
    **dict.fromkeys(STREAM_FAULTS, ModelStreamError),
}
SAYS_NOTHING = ("empty-text", "white-space")
"""To a model these are answers; a summary can't be made of them."""
TRIED_ONCE = {*CONTEXT_LENGTH_WORDINGS, "bad-request", "wrong-key", "no-such-model", "content-filter", "tls-failure"}


@contextmanager
def faulty(server: FakeServer, name: str, **options: Any) -> Iterator[OpenAIModel]:
    """A model that fails in the way of this name."""
    with ExitStack() as stack:
        if name == "refused":
            with socket.create_server(("127.0.0.1", 0)) as free:
                port = free.getsockname()[1]
            yield model_of(server, name, base_url=f"http://127.0.0.1:{port}/v1", **options)
        elif name == "name-not-found":

            def unknown(*_: Any, **__: Any) -> None:
                raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

            stack.enter_context(patch.object(socket, "getaddrinfo", unknown))
            stack.enter_context(patch.dict(os.environ, {"NO_PROXY": "*"}))
            os.environ.pop("WORKBENCH_FORBID_MODEL_CALLS", None)
            yield model_of(server, name, base_url="http://nowhere.invalid/v1", **options)
        elif name == "tls-failure":
            yield model_of(server, name, base_url=server.base_url.replace("http:", "https:"), **options)
        elif name == "connect-timeout":
            listener, waiting = full_backlog()
            yield model_of(server, name, base_url=f"http://127.0.0.1:{listener.getsockname()[1]}/v1", **options)
            for one in (listener, *waiting):
                one.close()
        else:
            yield model_of(server, name, **options)


def spellings(secret: str) -> list[str]:
    data = secret.encode()
    return [secret, base64.b64encode(data).decode()[:-4], quote(secret, safe=""), json.dumps(secret)[1:-1], data.hex()]


def assert_no_canary(*texts: str) -> None:
    for text in texts:
        for secret in (CANARY_KEY, CANARY_HEADER, CANARY_FIELD):
            for form in spellings(secret):
                assert form not in text
        # Half a key is half a leak.
        for secret in (CANARY_KEY, CANARY_HEADER, CANARY_FIELD):
            assert secret[10:22] not in text


def everything_about(error: BaseException) -> Iterator[str]:
    """Texts, attributes, tracebacks with the locals of all frames, and the same of all that lies behind it."""
    seen: set[int] = set()
    cursors: list[BaseException | None] = [error]
    while cursors:
        cursor = cursors.pop()
        if cursor is None or id(cursor) in seen:
            continue
        seen.add(id(cursor))
        yield from (str(cursor), repr(cursor), repr(vars(cursor)), repr(cursor.args))
        yield "".join(traceback.TracebackException.from_exception(cursor, capture_locals=True).format())
        cursors += [cursor.__cause__, cursor.__context__]
