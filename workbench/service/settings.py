"""Settings of the session service (SUM-ASY-01, SUM-CAS-02, -04, SUM-STO-06, -07)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from pydantic import Field

from workbench.settings import Settings


class ServiceSettings(Settings):
    """Workers, limits, lifetimes and targets of a session service."""

    async_summary_num: int = Field(default=3, ge=1)
    """Background summary workers; not an on/off switch. SUM-ASY-01."""
    summary_queue_size: int = Field(default=100, ge=1)
    """Jobs that may wait per worker; a full queue makes the caller run its job. SUM-ASY-01."""
    summary_job_timeout_s: float = Field(default=60.0, gt=0)
    """Seconds that one summary job may take. SUM-ASY-01."""
    event_limit: int = Field(default=1000, ge=0)
    """Newest events that a session read returns; 0 = all. SUM-STO-06."""
    summary_filter_allowlist: tuple[str, ...] | None = None
    """Branches that may be summarised; none = all, an empty list = none. SUM-CAS-02."""
    cascade_full_session_summary: bool = True
    """A branch job refreshes the full-session summary too. SUM-CAS-04."""
    session_ttl_s: float = Field(default=0.0, ge=0)
    """Seconds after the last write until a session expires; 0 = never. SUM-STO-07."""
    app_state_ttl_s: float = Field(default=0.0, ge=0)
    """The same for application state. SUM-STO-07."""
    user_state_ttl_s: float = Field(default=0.0, ge=0)
    """The same for user state. SUM-STO-07."""
    cleanup_interval_s: float = Field(default=300.0, ge=0)
    """Seconds between sweeps of expired rows; 0 = no sweeps. SUM-STO-07."""


def settings_given(**values: Any) -> ServiceSettings:
    """Settings from the options that were given, None = not; durations become seconds, lists tuples."""
    given = {}
    for name, value in values.items():
        if isinstance(value, timedelta):
            value = value.total_seconds()
        elif isinstance(value, list):
            value = tuple(value)
        if value is not None:
            given[name] = value
    return ServiceSettings(**given)
