"""What a summary attempt did: which trigger fired, what was sent, what it cost (SUM-REP).

In: filled by the gate and by the attempt. Out: `Report`, which one path shares from check to call and which
a report hook gets as an independent copy. Fields marked [py] are this project's own and not compared with
the reference.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Final, Literal

from workbench.model.types import Request
from workbench.session.types import Event

EVENT_THRESHOLD = "event_threshold"
TOKEN_THRESHOLD = "token_threshold"  # noqa: S105 - the name of a trigger, no secret
CONTEXT_THRESHOLD = "context_threshold"
TIME_THRESHOLD = "time_threshold"
CUSTOM = "custom"
ALWAYS = "always"
FORCE = "force"
MANUAL = "manual"

METRIC_EVENTS = "events"
METRIC_TOKENS = "tokens"
METRIC_DURATION = "duration"
METRIC_CUSTOM = "custom"
UNIT_MILLISECONDS = "milliseconds"

MODE_STANDALONE: Final = "standalone"
MODE_FORK: Final = "cache_safe_fork"
MODE_CUSTOM: Final = "custom_response"

Mode = Literal["", "standalone", "cache_safe_fork", "custom_response"]

HEADLINE_ORDER = (CONTEXT_THRESHOLD, TOKEN_THRESHOLD, EVENT_THRESHOLD, TIME_THRESHOLD)


@dataclass(slots=True)
class Check:
    """One evaluated check with what it measured."""

    name: str = CUSTOM
    passed: bool = False
    metric: str = METRIC_CUSTOM
    value: float = 0
    threshold: float = 0
    unit: str = ""
    context_window: int = 0
    threshold_ratio: float = 0
    label: str = ""
    """[py] `all`, `any` or the name of a user's checker, to read a truth table by."""
    counter: str = ""
    """[py] What counted the tokens, with its parameters: `runes:1.6`; empty where none were counted."""
    evaluated: bool = True
    """[py] False for a child that a composite didn't have to look at."""
    children: list[Check] = field(default_factory=list)
    """[py] The parts of a composite, in order."""


@dataclass(slots=True)
class Trigger:
    """Why a summary was made, or what stopped it."""

    fired: bool = False
    name: str = ""
    metric: str = ""
    value: float = 0
    threshold: float = 0
    unit: str = ""
    context_window: int = 0
    threshold_ratio: float = 0
    filter_key: str = ""
    checks: list[Check] = field(default_factory=list)
    stopped_by: str = ""
    """[py] In words, what stopped the gate before or at a check; empty when it fired."""


@dataclass(slots=True)
class Call:
    """What was sent to the summary model and what it cost."""

    mode: Mode = ""
    estimated_prompt_tokens: int = 0
    """Estimate of the last request's messages, without tools."""
    prompt_tokens: int = 0
    """As the provider reported it."""
    cached_tokens: int = 0
    dropped_chars: int = 0
    """[py] Characters of the source that the last request lacks: cut, omitted payloads, dropped rounds."""
    dropped_rounds: int = 0
    """[py] Source rounds left out of a fork."""
    requests: tuple[Request, ...] = ()
    """[py] The requests that reached the model, in order."""
    events: tuple[Event, ...] = ()
    """[py] The stored events that the summary is made of, the previous summary aside."""
    event_texts: tuple[str, ...] = ()
    """[py] The conversation text of each, as it stands in a standalone request that cuts nothing."""
    finish_reason: str = ""
    """[py] Why the model stopped, as the provider said."""


@dataclass(slots=True)
class Report:
    """Trigger, call and error of one attempt series."""

    trigger: Trigger = field(default_factory=Trigger)
    call: Call = field(default_factory=Call)
    error: Exception | None = None

    def clone(self) -> Report:
        """An independent copy; requests and the error object are shared, being values."""
        return Report(trigger=copy.deepcopy(self.trigger), call=copy.copy(self.call), error=self.error)


def headline(checks: list[Check]) -> Check:
    """The check that stands for all of them when they passed (SUM-REP-03): context, token, event, time, else
    the first."""
    for name in HEADLINE_ORDER:
        for check in checks:
            if check.name == name:
                return check
    return checks[0]


def trigger_from_check(check: Check, checks: list[Check], *, filter_key: str) -> Trigger:
    """A trigger whose headline is `check`; it fired if that check passed."""
    return Trigger(
        fired=check.passed,
        name=check.name,
        metric=check.metric,
        value=check.value,
        threshold=check.threshold,
        unit=check.unit,
        context_window=check.context_window,
        threshold_ratio=check.threshold_ratio,
        filter_key=filter_key,
        checks=checks,
        stopped_by="" if check.passed else _shortfall(check),
    )


def _shortfall(check: Check) -> str:
    if check.metric == METRIC_CUSTOM:
        return f"{check.label or check.name} said no"
    return f"{check.name}: {check.value:g} is not above {check.threshold:g} {check.unit}"


def named_trigger(name: str, *, filter_key: str) -> Trigger:
    """A trigger that fired without any check: `always`, `force` or `manual` (SUM-REP-02, -04)."""
    return Trigger(fired=True, name=name, metric=METRIC_CUSTOM, filter_key=filter_key)
