"""Spans and log records of OpenTelemetry as JSON, in the forms that exporters write them.

In: OTLP JSON (`resourceSpans`, `resourceLogs`) or one span per row. Out: `Span`s with plain attributes. What the
attributes mean is the business of `otel_genai`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from workbench.recordings.moments import moment_ns
from workbench.recordings.problems import FaultyRecordError, kind_of
from workbench.recordings.reading import ReadOptions

_MAX_DEPTH = 64


@dataclass(frozen=True, slots=True)
class SpanEvent:
    """Something that happened inside a span: an event of it, or a log record that names it."""

    name: str
    attributes: Mapping[str, Any]
    body: Any = None


@dataclass(slots=True)
class Span:
    """One span."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    start_ns: int | None
    end_ns: int | None
    attributes: Mapping[str, Any]
    events: list[SpanEvent] = field(default_factory=list)
    line: int = 0


def holds_spans(value: Any) -> bool:
    """The row is an export, of spans or of log records."""
    return isinstance(value, dict) and any(
        isinstance(value.get(key), list) for key in ("resourceSpans", "resourceLogs")
    )


def is_span(value: Any) -> bool:
    """The row is one span."""
    if not isinstance(value, dict) or not isinstance(value.get("attributes"), dict | list):
        return False
    context = value.get("context")
    return isinstance(context, dict) or bool(value.keys() & {"spanId", "span_id", "startTimeUnixNano", "start_time"})


def spans_in(value: Mapping[str, Any], options: ReadOptions) -> Iterator[Span]:
    """The spans of a row.

    Raises:
        FaultyRecordError: not of the known form.
    """
    if not holds_spans(value):
        yield _span(value, options)
        return
    for resource in _objects(value.get("resourceSpans"), "resourceSpans"):
        shared = attributes_of(_member(resource, "resource").get("attributes"))
        for scope in _objects(resource.get("scopeSpans", resource.get("instrumentationLibrarySpans")), "scopeSpans"):
            for raw in _objects(scope.get("spans"), "spans"):
                yield _span(raw, options, shared)


def records_in(value: Mapping[str, Any]) -> Iterator[tuple[str, SpanEvent]]:
    """The log records of a row with the id of the span that each belongs to.

    Raises:
        FaultyRecordError: not of the known form.
    """
    for resource in _objects(value.get("resourceLogs"), "resourceLogs"):
        for scope in _objects(resource.get("scopeLogs"), "scopeLogs"):
            for raw in _objects(scope.get("logRecords"), "logRecords"):
                attributes = attributes_of(raw.get("attributes"))
                name = raw.get("eventName") or attributes.get("event.name") or ""
                yield _text(raw.get("spanId")), SpanEvent(_text(name), attributes, _plain(raw.get("body")))


def attributes_of(raw: Any) -> dict[str, Any]:
    """Attributes as a plain object, from one or from OTLP's list of keys and values.

    Raises:
        FaultyRecordError: neither.
    """
    if raw is None:
        return {}
    if isinstance(raw, dict):
        return raw
    if not isinstance(raw, list):
        raise FaultyRecordError(f"attributes is {kind_of(raw)}, expected an object or an array")
    return {
        item["key"]: _plain(item.get("value"))
        for item in raw
        if isinstance(item, dict) and isinstance(item.get("key"), str)
    }


def _plain(raw: Any, depth: int = 0) -> Any:
    """The value inside OTLP's wrapper, which names its type; 64-bit numbers are texts there."""
    if not isinstance(raw, dict) or depth > _MAX_DEPTH:
        return raw
    for key in ("stringValue", "boolValue", "doubleValue", "bytesValue"):
        if key in raw:
            return raw[key]
    if "intValue" in raw:
        value = raw["intValue"]
        return int(value) if isinstance(value, str) and value.lstrip("-").isdecimal() and len(value) < 25 else value
    if isinstance(raw.get("arrayValue"), dict):
        values = raw["arrayValue"].get("values") or []
        return [_plain(item, depth + 1) for item in values] if isinstance(values, list) else []
    if isinstance(raw.get("kvlistValue"), dict):
        values = raw["kvlistValue"].get("values") or []
        return {
            item["key"]: _plain(item.get("value"), depth + 1)
            for item in (values if isinstance(values, list) else [])
            if isinstance(item, dict) and isinstance(item.get("key"), str)
        }
    return raw


def _span(raw: Any, options: ReadOptions, shared: Mapping[str, Any] | None = None) -> Span:
    if not isinstance(raw, dict):
        raise FaultyRecordError(f"span is {kind_of(raw)}, expected an object")
    context = _member(raw, "context")
    events = raw.get("events") or []
    if not isinstance(events, list):
        raise FaultyRecordError(f"events is {kind_of(events)}, expected an array")
    return Span(
        name=_text(raw.get("name")),
        trace_id=_first(raw, context, "traceId", "trace_id"),
        span_id=_first(raw, context, "spanId", "span_id"),
        parent_id=_first(raw, {}, "parentSpanId", "parent_span_id", "parent_id"),
        start_ns=_time(raw, options, "startTimeUnixNano", "start_time_unix_nano", "start_time", "startTime"),
        end_ns=_time(raw, options, "endTimeUnixNano", "end_time_unix_nano", "end_time", "endTime"),
        attributes={**(shared or {}), **attributes_of(raw.get("attributes"))},
        events=[
            SpanEvent(_text(event.get("name")), attributes_of(event.get("attributes")))
            for event in events
            if isinstance(event, dict)
        ],
    )


def _time(raw: Mapping[str, Any], options: ReadOptions, *names: str) -> int | None:
    name = next((name for name in names if raw.get(name) is not None), None)
    if name is None:
        return None
    value = raw[name]
    if "nano" in name.lower():
        if isinstance(value, str) and value.isdecimal() and len(value) < 25:
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 63:
            raise FaultyRecordError(f"{name} is not a number of nanoseconds")
        return value or None
    return moment_ns(value, options)


def _objects(raw: Any, name: str) -> Iterator[Mapping[str, Any]]:
    """The objects of an array; none of nothing."""
    if raw is None:
        return
    if not isinstance(raw, list):
        raise FaultyRecordError(f"{name} is {kind_of(raw)}, expected an array")
    for item in raw:
        if not isinstance(item, dict):
            raise FaultyRecordError(f"{name} holds {kind_of(item)}, expected objects")
        yield item


def _member(raw: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = raw.get(name)
    return value if isinstance(value, dict) else {}


def _first(raw: Mapping[str, Any], context: Mapping[str, Any], *names: str) -> str:
    return next((part[name] for part in (raw, context) for name in names if isinstance(part.get(name), str)), "")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
