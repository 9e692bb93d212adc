"""Values as the texts that journal and database hold, and back, without losing a bit.

In: events, summaries, states. Out: JSON texts; for a database column that can't hold one as it is (halves of
surrogate pairs, M16), a readable text beside the exact one.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from workbench.errors import StoreError
from workbench.session.event_json import event_from_own_json, event_to_json
from workbench.session.types import Event, State, Summary, SummaryBoundary

_ESCAPED = "\x00json:"
_MAX_NS = 2**63

_plain = json.JSONEncoder(ensure_ascii=False, check_circular=False).encode
_ascii = json.JSONEncoder(ensure_ascii=True, check_circular=False).encode


class JsonText(NamedTuple):
    """A JSON value for a database column."""

    text: str
    """What DuckDB gets: always valid UTF-8."""
    exact: bytes | None = None
    """The same in ASCII, where `text` had to replace something."""

    @property
    def journal(self) -> str:
        """What the journal gets."""
        return self.text if self.exact is None else self.exact.decode()


def json_text(value: Any) -> JsonText:
    """A JSON value as text.

    Raises:
        StoreError: it isn't JSON.
    """
    try:
        text = _plain(value)
        if text.isascii():
            return JsonText(text)
        try:
            text.encode()
        except UnicodeEncodeError:
            return JsonText(text.encode("utf-8", "replace").decode(), _ascii(value).encode())
        return JsonText(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreError(
            f"an event holds something that isn't JSON ({type(error).__name__})", hint="see its extensions"
        ) from error


def json_value(text: str, exact: bytes | None) -> Any:
    """The value of the two columns.

    Raises:
        ValueError: not JSON.
    """
    return json.loads(text if exact is None else exact)


def json_ascii(value: Any) -> str:
    """Small JSON for a journal line."""
    return _ascii(value)


def event_text(event: Event) -> JsonText:
    """A stored event.

    Raises:
        StoreError: its extensions aren't JSON, or its time is beyond 64 bits.
    """
    check_moment(event.time_ns)
    return json_text(event_to_json(event))


event_of = event_from_own_json


def check_moment(moment_ns: int) -> None:
    """Raise unless a 64-bit column can hold the moment."""
    if not -_MAX_NS <= moment_ns < _MAX_NS:
        raise StoreError(
            f"a moment of {moment_ns} ns is out of range", hint="the years 1678 to 2261 can be stored; use nanoseconds"
        )


def state_json(state: Mapping[str, bytes | None]) -> dict[str, str | None]:
    """State with its bytes as base64."""
    return {key: None if value is None else base64.b64encode(value).decode() for key, value in state.items()}


def state_of(raw: Mapping[str, str | None]) -> State:
    """State from its JSON."""
    return {key: None if value is None else base64.b64decode(value, validate=True) for key, value in raw.items()}


def state_column(state: Mapping[str, bytes | None]) -> str:
    """State for a database column; keys in the form of `column_text`."""
    return _plain({column_text(key): value for key, value in state_json(state).items()})


def state_from_column(text: str) -> State:
    """State from a database column."""
    return {text_of_column(key): value for key, value in state_of(json.loads(text)).items()}


def summary_json(summary: Summary) -> dict[str, Any]:
    """A summary with its boundary."""
    boundary = summary.boundary
    return {
        "summary": summary.summary,
        "updated_ns": summary.updated_ns,
        "boundary": None
        if boundary is None
        else {
            "filter_key": boundary.filter_key,
            "cutoff_ns": boundary.cutoff_ns,
            "last_event_id": boundary.last_event_id,
            "version": boundary.version,
        },
        "topics": list(summary.topics),
    }


def summary_of(raw: Mapping[str, Any]) -> Summary:
    """A summary from its JSON."""
    boundary = raw["boundary"]
    return Summary(
        raw["summary"],
        raw["updated_ns"],
        None if boundary is None else SummaryBoundary(**boundary),
        tuple(raw["topics"]),
    )


def column_text(text: str) -> str:
    """An id or key as DuckDB can hold it: as it is, except for halves of surrogate pairs.

    Different texts stay different, and equal ones equal.
    """
    if text.isascii() and not text.startswith(_ESCAPED):
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return _ESCAPED + _ascii(text)
    return _ESCAPED + _ascii(text) if text.startswith(_ESCAPED) else text


def text_of_column(text: str) -> str:
    """The text that `column_text` was given."""
    return str(json.loads(text[len(_ESCAPED) :])) if text.startswith(_ESCAPED) else text
