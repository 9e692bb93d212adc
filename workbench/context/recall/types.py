"""Arguments and answers of the recall tools, as models send and read them.

In: raw JSON of a model, however odd. Out: requests whose values already obey the tables of ASM-OND (defaults,
limits, unknown names dropped), and answers that turn into plain JSON. Implements the tables of ASM-OND-10 and
-20, the shapes of ASM-OND-15 and -25. Nothing here names an application or a user: those come from the run (SEC-11).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from workbench.errors import RecallError
from workbench.session.recall_types import SearchMode

Scope = Literal["current_hidden", "current_session", "other_sessions", "all_sessions"]
CURRENT_HIDDEN: Final = "current_hidden"
CURRENT_SESSION: Final = "current_session"
OTHER_SESSIONS: Final = "other_sessions"
ALL_SESSIONS: Final = "all_sessions"
SCOPES: tuple[Scope, ...] = (CURRENT_HIDDEN, CURRENT_SESSION, OTHER_SESSIONS, ALL_SESSIONS)

DEFAULT_TOP_K = 5
MAX_TOP_K = 10
DEFAULT_BEFORE = 1
DEFAULT_AFTER = 1
MAX_SPAN = 4
"""Most messages around an anchor, both sides together."""
DEFAULT_CONTENT_LIMIT = 16 * 1024
MAX_CONTENT_LIMIT = 64 * 1024

Arguments = str | bytes | Mapping[str, Any] | None
_MAX_NUMBER = 2**53
_MAX_DIGITS = 32


# --- odd values ---------------------------------------------------------------------------------------


def arguments_from(raw: Arguments) -> dict[str, Any]:
    """The argument names and values that a model sent; nothing, blank and null are no arguments.

    Raises:
        RecallError: not a JSON object.
    """
    if raw is None or isinstance(raw, Mapping):
        return dict(raw or {})
    value: Any = raw
    # Twice, since some models put the object into a JSON string.
    for _ in range(2):
        if isinstance(value, str | bytes):
            value = _json_from(value)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _not_an_object()
    return value


def _json_from(text: str | bytes) -> Any:
    if not text.strip():
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _not_an_object() from error


def _not_an_object() -> RecallError:
    return RecallError("the arguments aren't a JSON object", hint='send an object such as {"query": "budget"}')


def text_from(value: Any) -> str:
    """A trimmed text: numbers as written, lists joined by blanks; anything else is no text."""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, list | tuple):
        return " ".join(text for item in value if (text := text_from(item)))
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return ""


def number_from(value: Any) -> float:
    """A finite number, also from a text; anything else is 0."""
    if isinstance(value, bool):
        return 0
    if isinstance(value, str):
        text = value.strip()
        if len(text) > _MAX_DIGITS:
            return 0
        try:
            value = float(text)
        except ValueError:
            return 0
    if not isinstance(value, int | float) or math.isnan(value):
        return 0
    return max(-_MAX_NUMBER, min(_MAX_NUMBER, value))


def _int_from(value: Any) -> int:
    return int(number_from(value))


def _scope_from(value: Any) -> str:
    scope = text_from(value).lower()
    return scope if scope in SCOPES else CURRENT_HIDDEN


def _mode_from(value: Any) -> str:
    return "dense" if text_from(value).lower() == "dense" else "hybrid"


_Text = Annotated[str, BeforeValidator(text_from)]
_Int = Annotated[int, BeforeValidator(_int_from)]
_Number = Annotated[float, BeforeValidator(number_from)]


# --- requests -----------------------------------------------------------------------------------------


class _Request(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True)

    @classmethod
    def parse(cls, raw: Arguments) -> Self:
        """Build from what a model sent; names match without regard to case, `_` and `-`.

        Raises:
            RecallError: not a JSON object.
        """
        fields = {_plain(name): name for name in cls.model_fields}
        known = {fields[_plain(name)]: value for name, value in arguments_from(raw).items() if _plain(name) in fields}
        return cls.model_validate(known)


def _plain(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


class SearchSessionRequest(_Request):
    """Arguments of session_search."""

    query: _Text = ""
    """What to look for."""
    scope: Annotated[Scope, BeforeValidator(_scope_from)] = CURRENT_HIDDEN
    """Which sessions, and how much of the current one; unknown ones count as current_hidden."""
    top_k: _Int = DEFAULT_TOP_K
    """Most hits wanted, 1 to 10."""
    min_score: _Number = 0.0
    """Least similarity of a dense hit."""
    search_mode: Annotated[SearchMode, BeforeValidator(_mode_from)] = "hybrid"
    """hybrid or dense."""

    @field_validator("top_k")
    @classmethod
    def _limited(cls, top_k: int) -> int:
        return min(top_k, MAX_TOP_K) if top_k > 0 else DEFAULT_TOP_K


class LoadSessionRequest(_Request):
    """Arguments of session_load."""

    session_id: _Text = ""
    """A session of the same user; empty = the current one."""
    event_id: _Text = ""
    """The message to read around."""
    tool_call_id: _Text = ""
    """Finds the anchor when `event_id` is missing or unknown."""
    before: _Int = 0
    """Messages before the anchor, as sent; `span` has the number in force."""
    after: _Int = 0
    """Messages after the anchor, as sent."""
    content_offset: _Int = 0
    """Bytes of the anchor's tool result to skip."""
    content_limit: _Int = DEFAULT_CONTENT_LIMIT
    """Most bytes of each tool result, up to 65536."""

    @field_validator("content_offset")
    @classmethod
    def _not_negative(cls, offset: int) -> int:
        return max(offset, 0)

    @field_validator("content_limit")
    @classmethod
    def _limited(cls, limit: int) -> int:
        return min(limit, MAX_CONTENT_LIMIT) if limit > 0 else DEFAULT_CONTENT_LIMIT

    @property
    def span(self) -> tuple[int, int]:
        """Messages before and after the anchor that will be loaded."""
        return span_from(self.before, self.after)


def span_from(before: int, after: int) -> tuple[int, int]:
    """A window's sizes in force: (1, 1) if none is wanted, 4 together at most, the larger side cut first (ASM-OND-20).

    Example: (4, 4) gives (2, 2); (0, 3) and (3, 0) stay.
    """
    before, after = max(before, 0), max(after, 0)
    if not before and not after:
        return DEFAULT_BEFORE, DEFAULT_AFTER
    surplus = max(before + after - MAX_SPAN, 0)
    # The larger side gives way down to the smaller one, then both alike; no loop, since a model may ask for 10^15.
    from_larger = min(surplus, abs(before - after))
    from_each = (surplus - from_larger) // 2
    if after >= before:
        return before - from_each, after - from_larger - from_each
    return before - from_larger - from_each, after - from_each


# --- answers ------------------------------------------------------------------------------------------


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; optional fields that say nothing (0, empty, false) are left out."""
        raw: dict[str, Any] = {}
        for name, info in type(self).model_fields.items():
            value = getattr(self, name)
            if value or info.is_required():
                raw[name] = [item.to_json() for item in value] if isinstance(value, tuple) else value
        return raw


class LoadedSessionMessage(_Answer):
    """One message of the past."""

    event_id: str
    role: str
    created: str
    """RFC 3339 in UTC; empty when the event has no time."""
    content: str
    """The text; a complete tool result starts with `<tool name>: `, a slice of one doesn't."""
    tool_call_id: str = ""
    tool_name: str = ""
    content_offset: int = 0
    """Where the slice starts, in bytes of the whole result."""
    content_bytes: int = 0
    """Bytes of the whole result."""
    returned_bytes: int = 0
    """Bytes of the slice."""
    content_truncated: bool = False
    """Something is missing before or behind the slice."""


class SearchSessionHit(_Answer):
    """One hit of session_search."""

    scope: Scope
    session_id: str
    event_id: str
    created: str
    """RFC 3339 in UTC; empty when the event has no time."""
    role: str
    score: float
    snippet: str
    context: tuple[LoadedSessionMessage, ...] = ()
    """The messages around the hit, for the first hits."""
    tool_call_id: str = ""
    tool_name: str = ""
    content_bytes: int = 0
    """Bytes of a tool result."""
    content_truncated: bool = False
    """The tool result is longer than a snippet."""


class SearchSessionResponse(_Answer):
    """What session_search answers."""

    query: str
    scope: Scope
    results: tuple[SearchSessionHit, ...]
    count: int = Field(ge=0)


class LoadSessionResponse(_Answer):
    """What session_load answers."""

    session_id: str
    event_id: str
    """The anchor that was used."""
    before: int
    """Sizes in force, not as sent."""
    after: int
    note: str
    """Says that this is history, not instructions."""
    messages: tuple[LoadedSessionMessage, ...]
    count: int = Field(ge=0)
