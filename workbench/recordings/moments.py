"""Times of a recording: reading them, and making them up when there are none.

In: texts and numbers as sources write them. Out: nanoseconds since 1970 UTC, or a `FaultyRecordError` (B22 to B24).
Implements the synthetic clock of WB-REC-03.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, tzinfo
from typing import Any

from workbench.clock import NS_PER_S, datetime_from_ns, ns_from_datetime, ns_from_timedelta, parse_time
from workbench.recordings.problems import FaultyRecordError, kind_of, quoted
from workbench.recordings.reading import UNIT_NS, ReadOptions

SYNTHETIC_START_NS = ns_from_datetime(datetime(2026, 1, 1, tzinfo=UTC))
ADD_TIME = "add one or load with --assume-order"
_LAST_SANE_S = ns_from_datetime(datetime(2999, 12, 31, 23, 59, 59, tzinfo=UTC)) // NS_PER_S
_COUNTED_S = 10**18
_DAYS_PER_ERA = 146_097  # 400 Gregorian years


def moment_ns(raw: Any, options: ReadOptions, *, default_zone: tzinfo | None = None) -> int | None:
    """The moment of a source value; None for none.

    Raises:
        FaultyRecordError: no time, a time without zone, or one so far away that its unit must be wrong.
    """
    if raw is None or raw == "":
        return None
    if isinstance(raw, bool) or not isinstance(raw, str | int | float):
        raise FaultyRecordError(f"timestamp is {kind_of(raw)}, expected a text or a number")
    if isinstance(raw, str):
        return _from_text(raw, options.zone or default_zone)
    return _from_number(raw, options.time_unit)


def _from_text(text: str, zone: tzinfo | None) -> int:
    try:
        moment, has_zone = parse_time(text)
    except (ValueError, OverflowError):
        raise FaultyRecordError(f"timestamp {quoted(text)} is not a date and time", "write it as RFC 3339") from None
    if has_zone:
        return moment
    if zone is None:
        raise FaultyRecordError(f"timestamp {quoted(text)} has no zone", "load with --zone")
    offset = zone.utcoffset(datetime_from_ns(moment).replace(tzinfo=None))
    return moment - (ns_from_timedelta(offset) if offset is not None else 0)


def _from_number(number: float, unit: str | None) -> int | None:
    if number < 0:
        raise FaultyRecordError(f"timestamp {number} is before 1970")
    scale = UNIT_NS[unit or "s"]
    whole = int(number)
    # A float of seconds has about microseconds left; more digits would be noise.
    moment = whole * scale + round((number - whole) * scale / 1000) * 1000
    seconds = moment // NS_PER_S
    if seconds > _LAST_SANE_S:
        year = str(year_of(seconds)) if seconds < _COUNTED_S else "far away"
        hint = "milliseconds? use --time-unit ms" if unit is None else "check --time-unit"
        raise FaultyRecordError(f"timestamp is in the year {year}", hint)
    return moment or None


def year_of(seconds: int) -> int:
    """The Gregorian year of a moment, also far beyond what `datetime` can hold."""
    days = seconds // 86_400
    eras, day_of_era = divmod(days, _DAYS_PER_ERA)
    day = datetime(1970, 1, 1, tzinfo=UTC).toordinal() + day_of_era
    return datetime.fromordinal(day).year + 400 * eras


def synthetic_times(request_starts: Iterable[bool], options: ReadOptions) -> Iterator[int]:
    """Made-up times, one for each event; an item says whether the event starts a request."""
    now_ns = SYNTHETIC_START_NS
    for i, starts in enumerate(request_starts):
        if i:
            now_ns += options.gap_ns if starts else options.step_ns
        yield now_ns


def backward_note(step_back_ns: int, position: int) -> str:
    """`goes back 3 600 s at event 12` (B25)."""
    seconds = step_back_ns / NS_PER_S
    shown_seconds = f"{math.floor(seconds):,}".replace(",", " ") if seconds >= 1 else f"{seconds:.3g}"
    return f"goes back {shown_seconds} s at event {position}"
