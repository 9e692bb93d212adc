"""Time: the only module that asks for it, and the one form in which it is kept.

In: nothing. Out: `Clock`s, and conversions between the three spellings of a moment. Inside the engine a
moment is an `int` of nanoseconds since 1970 UTC, 0 meaning "none": exact for recordings made with
nanoseconds (SUM-DM-15), cheap to compare and to store. People get aware `datetime`s; files get RFC 3339.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

NS_PER_S = 1_000_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RFC3339 = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,9})\d*)?)?\s*([Zz]|[+-]\d\d:?\d\d)?"
)
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
_UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class Clock(Protocol):
    """Whoever knows what time it is."""

    def now_ns(self) -> int:
        """The present moment in nanoseconds since 1970 UTC."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now_ns(self) -> int:
        return time.time_ns()


class FixedClock:
    """A clock that stands until somebody moves it; for tests."""

    def __init__(self, now: datetime | int = 0) -> None:
        self._now_ns = now if isinstance(now, int) else ns_from_datetime(now)

    def now_ns(self) -> int:
        return self._now_ns

    def advance(self, step: timedelta) -> None:
        """Move forward (or, with a negative step, back) by `step`."""
        self._now_ns += ns_from_timedelta(step)


def ns_from_datetime(moment: datetime) -> int:
    """Nanoseconds since 1970 UTC.

    Raises:
        ValueError: the datetime has no zone.
    """
    if moment.tzinfo is None:
        raise ValueError("a datetime without a zone; give an aware one")
    delta = moment - _EPOCH
    return (delta.days * 86_400 + delta.seconds) * NS_PER_S + delta.microseconds * 1000


def datetime_from_ns(moment_ns: int) -> datetime:
    """An aware UTC datetime; digits below a microsecond are cut."""
    return _EPOCH + timedelta(microseconds=moment_ns // 1000)


def ns_from_timedelta(span: timedelta) -> int:
    """A span in nanoseconds."""
    return (span.days * 86_400 + span.seconds) * NS_PER_S + span.microseconds * 1000


def ns_from_text(text: str) -> int:
    """Parse RFC 3339 (up to nanoseconds, any offset).

    Raises:
        ValueError: not such a text (also when the zone is missing: it would be a guess).
    """
    moment_ns, has_zone = parse_time(text)
    if not has_zone:
        raise ValueError(f"timestamp {text!r} has no zone")
    return moment_ns


def parse_time(text: str) -> tuple[int, bool]:
    """`(nanoseconds, has_zone)` of a date and time; without a zone it is read as UTC.

    Raises:
        ValueError: not a date and time.
    """
    match = _RFC3339.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"not a timestamp: {text!r}")
    year, month, day, hour, minute = (int(part) for part in match.groups()[:5])
    base = datetime(year, month, day, hour, minute, int(match[6] or 0), tzinfo=UTC)
    moment_ns = ns_from_datetime(base) + int((match[7] or "").ljust(9, "0"))
    zone = match[8]
    if zone and zone not in "Zz":
        digits = zone[1:].replace(":", "")
        offset_s = int(digits[:2]) * 3600 + int(digits[2:]) * 60
        moment_ns -= (offset_s if zone[0] == "+" else -offset_s) * NS_PER_S
    return moment_ns, bool(zone)


def text_from_ns(moment_ns: int) -> str:
    """RFC 3339 in UTC with as many digits as are needed: `2026-03-01T10:00:00.123456789Z`."""
    seconds, fraction = divmod(moment_ns, NS_PER_S)
    text = (_EPOCH + timedelta(seconds=seconds)).isoformat()[:19]  # unlike strftime, four digits for every year
    if fraction:
        text += "." + f"{fraction:09d}".rstrip("0")
    return text + "Z"


def seconds_from_text(text: str) -> float:
    """Seconds of a duration such as `5m`, `1h30m`, `250ms`.

    Raises:
        ValueError: not a duration.
    """
    compact = text.strip()
    parts = _DURATION.findall(compact)
    if not parts or _DURATION.sub("", compact).strip():
        raise ValueError(f"not a duration: {text!r}; write for example 30s, 5m or 1h30m")
    return float(sum(float(number) * _UNIT_S[unit] for number, unit in parts))
