"""What a failed model call means: status codes, provider errors and broken connections as `ModelError`s.

In: what came back instead of an answer. Out: one typed error that says whether another attempt may help
(reliability.md, section 6). Texts of providers are quoted in part only: whatever repeats a key or the
conversation is masked (SEC-08). Nothing here does I/O.
"""

from __future__ import annotations

import base64
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from operator import itemgetter
from typing import Any
from urllib.parse import quote

from workbench.clock import NS_PER_S, ns_from_datetime
from workbench.errors import (
    ContentFilterError,
    ContextLengthError,
    ModelAuthError,
    ModelError,
    ModelStreamError,
    ModelTimeoutError,
    RateLimitError,
)
from workbench.model.types import Request

_MAX_QUOTED_CHARS = 300
# Shorter runs than these are shared by chance. A key is masked from fewer characters on than a message.
_SECRET_RUN_CHARS = 8
_CONTENT_RUN_CHARS = 20
_LOOKS_LIKE_A_KEY = re.compile(r"\b(?:sk|pk|rk|key|token)[-_][\w*.-]{6,}|\bbearer\s+\S+", re.IGNORECASE)

# The ways in which providers say that a request is too long, beyond the phrases of SUM-CALL-04: OpenAI, Azure,
# vLLM, llama.cpp, Anthropic, Bedrock, Gemini, Groq, Mistral, xAI, DashScope, Zhipu (seen 2023 to 2026).
_CONTEXT_LENGTH = re.compile(
    r"context[ _-]?(?:length|window|size|limit)|context_length_exceeded|exceed_context_size"
    r"|(?:prompt|input|request|messages?) (?:is|are) too (?:long|large)|too many (?:input )?tokens"
    r"|maximum (?:prompt|input) length|(?:prompt|input) exceeds (?:the )?max"
    r"|input token count|range of input length|reduce the length of (?:the|your) (?:messages|prompt|input)",
    re.IGNORECASE,
)
_WINDOW_TOKENS = re.compile(
    r"(?:(?:context|prompt|input)[ _](?:length|window|size|limit)(?: is| of)?|(?:maximum|max)(?: number)? of tokens(?: allowed)?|>)"
    r"\s*[:(]?\s*(\d[\d,]{2,})(?![\d,]|\s*\+)",
    re.IGNORECASE,
)
_NEEDED_TOKENS = re.compile(
    r"(?:resulted in|requested(?: about)?|contains?|too long:|token count|has)\s*\(?\s*(\d[\d,]{2,})", re.IGNORECASE
)

# Refusals that come with status 429 but don't pass by waiting.
_NO_CREDIT = ("insufficient_quota", "billing_hard_limit_reached", "insufficient_balance")
_PASSING_STATUS = frozenset({408, 409, 425, 429})


@dataclass(frozen=True, slots=True)
class ProviderError:
    """What a provider says about a failure, as it says it."""

    type: str = ""
    message: str = ""
    code: str = ""
    needed_tokens: int | None = None
    max_tokens: int | None = None

    @property
    def is_context_length(self) -> bool:
        """It says that the request is too long (SUM-CALL-04)."""
        return any(_CONTEXT_LENGTH.search(text) for text in (self.code, self.type, self.message))


def provider_error(raw: Any) -> ProviderError | None:
    """The error inside an answer's JSON: `{"error": {...}}`, `{"error": "..."}`, or the object itself."""
    inner = raw.get("error", raw) if isinstance(raw, dict) else raw
    if isinstance(inner, str):
        return ProviderError(message=inner)
    if not isinstance(inner, dict):
        return None
    message = next((inner[key] for key in ("message", "detail", "msg") if isinstance(inner.get(key), str)), "")
    found = ProviderError(
        type=_text(inner.get("type")),
        message=message,
        code=_text(inner.get("code")),
        # llama.cpp gives both numbers as fields.
        needed_tokens=_tokens(inner.get("n_prompt_tokens")) or _number(_NEEDED_TOKENS, message),
        max_tokens=_tokens(inner.get("n_ctx")) or _number(_WINDOW_TOKENS, message),
    )
    return found if found.type or found.message or found.code else None


def _text(raw: Any) -> str:
    return str(raw) if isinstance(raw, str | int) and not isinstance(raw, bool) else ""


def _tokens(raw: Any) -> int | None:
    return raw if isinstance(raw, int) and raw > 0 else None


def _number(pattern: re.Pattern[str], text: str) -> int | None:
    match = pattern.search(text)
    return int(match[1].replace(",", "")) if match else None


# --- what may be quoted ---------------------------------------------------------------------------------


class Censor:
    """Masks in a text what repeats a secret, in any usual spelling, or a longer run of the conversation."""

    def __init__(self, secrets: Iterable[str] = (), contents: Iterable[str] = ()) -> None:
        self._secrets = [form for secret in secrets for form in _spellings(secret)]
        self._contents = [content for content in contents if len(content) >= _CONTENT_RUN_CHARS]

    @classmethod
    def of(cls, request: Request, secrets: Iterable[str]) -> Censor:
        """Knows the texts of a request, and as secrets also its headers and extra fields."""
        own = [*request.headers.values(), *_long_texts(dict(request.extra_fields))]
        return cls([*secrets, *own], _contents_of(request))

    def clean(self, text: str) -> str:
        """One line of at most 300 characters, masked."""
        line = " ".join(text[: 2 * _MAX_QUOTED_CHARS].split())
        line = _LOOKS_LIKE_A_KEY.sub("***", line)
        line = _without_runs(line, self._secrets, _SECRET_RUN_CHARS, "***")
        line = line if len(line) <= _MAX_QUOTED_CHARS else line[:_MAX_QUOTED_CHARS] + "..."
        return _without_runs(line, self._contents, _CONTENT_RUN_CHARS, "[...]")


def _spellings(secret: str) -> Iterator[str]:
    """A secret as it stands, and as base64, in an address, in JSON and in hexadecimal."""
    if len(secret) < _SECRET_RUN_CHARS // 2:
        return
    data = secret.encode("utf-8", "surrogatepass")
    in_address = quote(data, safe="")
    forms = (secret, base64.b64encode(data).decode().rstrip("="), in_address, json.dumps(secret)[1:-1], data.hex())
    yield from dict.fromkeys(forms)


def _long_texts(raw: Any) -> Iterator[str]:
    """The texts inside a value that are long enough to be secrets; shorter ones are names of options."""
    if isinstance(raw, str):
        if len(raw) >= 2 * _SECRET_RUN_CHARS:
            yield raw
    elif isinstance(raw, Mapping):
        for value in raw.values():
            yield from _long_texts(value)
    elif isinstance(raw, list | tuple):
        for value in raw:
            yield from _long_texts(value)


def _contents_of(request: Request) -> Iterator[str]:
    for message in request.messages:
        yield message.content
        yield message.reasoning_content
        yield from (part.text for part in message.content_parts)
        yield from (call.arguments for call in message.tool_calls)


def _without_runs(text: str, sources: list[str], n_chars: int, mask: str) -> str:
    """`text` with `mask` for each stretch whose every `n_chars` characters, or a whole shorter source, occur in
    a source."""
    masked = bytearray(len(text))
    for length in {min(n_chars, len(source)) for source in sources} - {0}:
        known = [source for source in sources if len(source) >= length and (length == n_chars or len(source) == length)]
        for start in range(len(text) - length + 1):
            if any(text[start : start + length] in source for source in known):
                masked[start : start + length] = b"\x01" * length
    runs = itertools.groupby(zip(text, masked, strict=True), key=itemgetter(1))
    return "".join(mask if is_masked else "".join(char for char, _ in run) for is_masked, run in runs)


# --- errors ---------------------------------------------------------------------------------------------


class Faults:
    """Makes the errors of one call's attempts.

    Args:
        model: Name of the model, for texts and attributes.
        censor: Cleans what is quoted.
    """

    def __init__(self, model: str, censor: Censor) -> None:
        self.model = model
        self.request_id = ""
        """The provider's name for the attempt, as soon as it is known."""
        self._censor = censor

    def error(self, what: str, *, retryable: bool = False, hint: str = "") -> ModelError:
        """A failure without a type of its own."""
        return ModelError(f"model {self.model}: {what}", **self._facts(retryable), hint=hint)

    def timeout(self, what: str) -> ModelTimeoutError:
        """No answer in time."""
        return ModelTimeoutError(
            f"model {self.model}: {what}", **self._facts(retryable=True), hint="raise the time limit or try later"
        )

    def stream(self, what: str, n_chars: int, *, retryable: bool = True) -> ModelStreamError:
        """A stream that ended before its answer did, `n_chars` characters into it."""
        text = f"model {self.model}: the stream {what} after {n_chars} characters"
        return ModelStreamError(text, received_chars=n_chars, **self._facts(retryable))

    def filtered(self) -> ContentFilterError:
        """The provider's filter stopped the answer."""
        text = f"model {self.model}: the provider's content filter stopped the answer"
        return ContentFilterError(text, **self._facts(retryable=False))

    def from_status(self, status: int, body: bytes, *, retry_after_s: float | None = None) -> ModelError:
        """What a status code and the body with it mean."""
        said = _said_in(body)
        what = f"the provider answered {status}{self._quoted(said, body)}"
        if status in {401, 403}:
            return ModelAuthError(
                f"model {self.model}: {what}", **self._facts(retryable=False), hint="check the key and what it may use"
            )
        if status == 429:
            return self._rate_limit(what, said, retry_after_s)
        if status == 413 or (said is not None and said.is_context_length):
            return self._context_length(what, said)
        hint = "check the model's name and the address" if status == 404 else ""
        return self.error(what, retryable=status >= 500 or status in _PASSING_STATUS, hint=hint)

    def from_answer(self, raw: Any, *, received_chars: int | None = None) -> ModelError:
        """An error object in place of an answer, or in the middle of a stream of `received_chars` so far."""
        said = provider_error(raw) or ProviderError()
        what = f"the provider sent an error{self._quoted(said)}"
        if said.is_context_length:
            return self._context_length(what, said)
        if "429" in said.code or "rate_limit" in said.code + said.type:
            return self._rate_limit(what, said, None)
        if received_chars is None:
            return self.error(what, retryable=True)
        return ModelStreamError(
            f"model {self.model}: {what} after {received_chars} characters of a stream",
            received_chars=received_chars,
            **self._facts(retryable=True),
        )

    def _facts(self, retryable: bool) -> dict[str, Any]:
        return {"model": self.model, "request_id": self.request_id, "retryable": retryable}

    def _rate_limit(self, what: str, said: ProviderError | None, retry_after_s: float | None) -> RateLimitError:
        is_out_of_credit = said is not None and (said.code in _NO_CREDIT or said.type in _NO_CREDIT)
        return RateLimitError(
            f"model {self.model}: {what}",
            retry_after_s=retry_after_s,
            **self._facts(retryable=not is_out_of_credit),
            hint="check the account's credit" if is_out_of_credit else "try later, or send fewer calls at a time",
        )

    def _context_length(self, what: str, said: ProviderError | None) -> ContextLengthError:
        return ContextLengthError(
            f"model {self.model}: {what}",
            needed_tokens=said.needed_tokens if said else None,
            max_tokens=said.max_tokens if said else None,
            **self._facts(retryable=False),
            hint="set the model's context window",
        )

    def _quoted(self, said: ProviderError | None, body: bytes = b"") -> str:
        """`: [type] message (code: code)`, cleaned; for a body without such fields what kind of body it is."""
        if said is None:
            return f" with {kind_of_body(body)}" if body.strip() else ""
        parts = (f"[{said.type}]" if said.type else "", said.message, f"(code: {said.code})" if said.code else "")
        text = self._censor.clean(" ".join(part for part in parts if part))
        return f": {text}" if text else ""


def _said_in(body: bytes) -> ProviderError | None:
    try:
        return provider_error(json.loads(body))
    except (ValueError, RecursionError):
        return None


def kind_of_body(body: bytes) -> str:
    """What a body that isn't a proper answer looks like."""
    start = body[:200].lstrip().lower()
    if start.startswith((b"<!doctype", b"<html", b"<head", b"<?xml")):
        return "a web page, as from a proxy"
    return "a text that isn't JSON" if start else "an empty body"


def retry_after_s(headers: Mapping[str, str], *, now_ns: int) -> float | None:
    """Seconds that a provider asks to wait: a number, or a date; None when it doesn't ask, or not readably."""
    for name, unit_s in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        text = headers.get(name, "").strip()
        if re.fullmatch(r"\d{1,9}(?:\.\d{1,9})?", text):
            return float(text) * unit_s
    try:
        moment = parsedate_to_datetime(headers.get("retry-after", ""))
        return max(ns_from_datetime(moment) - now_ns, 0) / NS_PER_S
    except (ValueError, TypeError):
        return None


def cause_of_break(error: BaseException) -> str:
    """Why a connection broke: the system's own words from the end of the chain, else the kind of error.

    Texts of HTTP libraries can quote a header, so none is taken.
    """
    seen: set[int] = set()
    words = ""
    cursor: BaseException | None = error
    while cursor is not None and id(cursor) not in seen:
        seen.add(id(cursor))
        if isinstance(cursor, OSError) and cursor.strerror:
            words = str(cursor.strerror)
        cursor = cursor.__cause__ or cursor.__context__
    return words or type(error).__name__
