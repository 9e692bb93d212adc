"""The machinery of the contract: checks, the bench each works on, outcomes, the report.

In: a factory of services. Out: one row per check. A check is an async function that takes a `Bench`, is
registered with its group and requirement ids, and raises `ContractError` with a sentence when the service
breaks a rule. Each check has an event loop, a clock and a service of its own.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import timedelta
from itertools import count
from types import ModuleType
from typing import Any, Literal, Protocol

from workbench.call import EMPTY_CONTEXT, CallContext
from workbench.clock import Clock, FixedClock
from workbench.errors import ConfigError, ContractError, WorkbenchError, nearest_name
from workbench.service.run_sync import run_sync
from workbench.service.settings import ServiceSettings
from workbench.session.recall_types import supports_search, supports_windows
from workbench.session.types import Event, Session, SessionKey, State, UserKey
from workbench.summary.summarizer import SessionSummarizer

START_NS = 1_772_000_000_123_456_789
"""When every check begins: a moment that needs all nine digits."""
TIMEOUT_S = 30.0
_CLOSING_S = 2.0

_ID = re.compile(r"SUM-[A-Z]+-\d\d")

EVENT_WINDOW = "event window"
SEARCH = "search"
REOPENING = "reopening"
SOFT_DELETE = "soft delete"
ASYNC_PERSISTENCE = "asynchronous persistence"

Outcome = Literal["passed", "failed", "skipped", "known"]


# --- what is checked ------------------------------------------------------------------------------------


class ContractService(Protocol):
    """The calls that the required checks make (SUM-SVC-01)."""

    async def create_session(
        self, app_name: str, user_id: str, session_id: str = "", *, state: State | None = None
    ) -> Session: ...
    async def get_session(
        self,
        key: SessionKey,
        *,
        event_num: int = 0,
        event_time_ns: int = 0,
        offset: int | None = None,
        limit: int | None = None,
        ctx: CallContext = EMPTY_CONTEXT,
    ) -> Session | None: ...
    async def list_events(self, key: SessionKey) -> Sequence[Event]: ...
    async def list_sessions(self, user: UserKey, *, offset: int = 0, limit: int | None = None) -> Sequence[Session]: ...
    async def delete_session(self, key: SessionKey) -> None: ...
    async def append_event(
        self, session: Session, event: Event, *, ctx: CallContext = EMPTY_CONTEXT
    ) -> Event | None: ...
    async def update_app_state(self, app_name: str, state: State) -> None: ...
    async def list_app_state(self, app_name: str) -> State: ...
    async def delete_app_state(self, app_name: str, key: str) -> None: ...
    async def update_user_state(self, user: UserKey, state: State) -> None: ...
    async def list_user_state(self, user: UserKey) -> State: ...
    async def delete_user_state(self, user: UserKey, key: str) -> None: ...
    async def update_session_state(self, key: SessionKey, state: State) -> None: ...
    async def create_session_summary(
        self, session: Session | None, filter_key: str = "", *, force: bool = False, ctx: CallContext = EMPTY_CONTEXT
    ) -> None: ...
    async def enqueue_summary_job(
        self, session: Session | None, filter_key: str = "", *, force: bool = False, ctx: CallContext = EMPTY_CONTEXT
    ) -> None: ...
    async def get_session_summary_text(self, session: Session | None, filter_key: str = "") -> str | None: ...
    async def wait_for_summaries(self) -> None: ...
    async def close(self) -> None: ...


class ServiceFactory(Protocol):
    """Makes a service: `await make(settings, clock, summarizer=None, **options)`.

    Options are keyword arguments of `SessionService`: `append_event_hooks` and `get_session_hooks` where a
    check brings hooks, `embedder` where it searches; and those of `Capabilities.async_persistence`.
    """

    def __call__(
        self,
        settings: ServiceSettings,
        clock: Clock,
        summarizer: SessionSummarizer | None = None,
        **options: Any,
    ) -> Awaitable[ContractService]: ...


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a backend can do beyond the service's own calls; whatever isn't given is skipped.

    Event windows and search aren't here: the service itself tells (`supports_windows`, `supports_search`).
    """

    reopen: ServiceFactory | None = None
    """Like the factory, but over what the last service made by it has left; that one is closed then."""
    deleted_rows: Callable[[Any, SessionKey], Awaitable[int]] | None = None
    """How many rows of a deleted session `(service, key)` the store still keeps (soft delete)."""
    async_persistence: Mapping[str, Any] | None = None
    """Options that make the factory build a service that stores events in the background; needs `reopen`."""


@dataclass(frozen=True, slots=True)
class KnownDifference:
    """Why a backend fails a check, and a part of the sentence that it fails with."""

    reason: str
    error: str = ""


KnownDifferences = Mapping[str, str | KnownDifference]
"""Check name -> reason. A check that passes although it is listed here fails: the list is out of date."""


# --- checks ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Check:
    """One rule of the contract."""

    name: str
    group: str
    ids: tuple[str, ...]
    """Requirements of the specification that it stands for."""
    needs: str
    """The optional capability it is about; empty = required of every service."""
    run: Callable[[Bench], Awaitable[None]] = field(repr=False, compare=False)

    def __str__(self) -> str:
        return self.name


_registered: dict[str, Check] = {}


def check(
    group: str, *ids: str, needs: str = ""
) -> Callable[[Callable[[Bench], Awaitable[None]]], Callable[[Bench], Awaitable[None]]]:
    """Register an async function as a check of `group`; its name is the rule it checks."""

    def register(run: Callable[[Bench], Awaitable[None]]) -> Callable[[Bench], Awaitable[None]]:
        name = getattr(run, "__name__", "")
        if name in _registered:
            raise ConfigError(f"two checks are called {name}", field="name", hint="rename one")
        if not ids or not all(_ID.fullmatch(one) for one in ids):
            raise ConfigError(f"check {name} names no requirement", field="ids", hint="give ids such as SUM-STO-05")
        _registered[name] = Check(name, group, ids, needs, run)
        return run

    return register


def registered_checks(*modules: ModuleType) -> tuple[Check, ...]:
    """The checks of these modules, in the order in which they are written there."""
    return tuple(one for module in modules for one in _registered.values() if one.run.__module__ == module.__name__)


# --- the bench ------------------------------------------------------------------------------------------


class _MissingCapabilityError(Exception):
    """The service can't do what the check is about."""


class Bench:
    """What one check works with: a clock that stands, and a service made to its wishes."""

    def __init__(self, make: ServiceFactory, capabilities: Capabilities, *, needs: str = "") -> None:
        self.clock = FixedClock(START_NS)
        self.capabilities = capabilities
        self._make = make
        self._needs = needs
        self._open: Any = None
        self._gates: list[asyncio.Event] = []

    def gate(self) -> asyncio.Event:
        """An event that holds summaries back until the check sets it, or fails."""
        self._gates.append(asyncio.Event())
        return self._gates[-1]

    async def service(
        self, *, summarizer: SessionSummarizer | None = None, options: Mapping[str, Any] | None = None, **settings: Any
    ) -> Any:
        """A fresh service; `settings` are fields of `ServiceSettings`. Sweeps are off unless asked for."""
        made = await self._make(_settings(settings), self.clock, summarizer, **(options or {}))
        self._open = made
        if (self._needs == EVENT_WINDOW and not supports_windows(made)) or (
            self._needs == SEARCH and not supports_search(made)
        ):
            raise _MissingCapabilityError
        return made

    async def reopened(
        self, *, summarizer: SessionSummarizer | None = None, options: Mapping[str, Any] | None = None, **settings: Any
    ) -> Any:
        """Close the service, then open what it has left."""
        reopen = self.capabilities.reopen
        if reopen is None:
            raise _MissingCapabilityError
        await self.close()
        self._open = await reopen(_settings(settings), self.clock, summarizer, **(options or {}))
        return self._open

    async def close(self) -> None:
        """Close the service that is open."""
        service, self._open = self._open, None
        if service is not None:
            await service.close()

    async def give_up(self) -> None:
        """Let everything go on that is held back, and close."""
        for gate in self._gates:
            gate.set()
        await self.close()


def constructor_options(settings: ServiceSettings) -> dict[str, Any]:
    """Settings under the names that the services' own constructors have for them (SUM-STO-14).

    For factories of services that take no `ServiceSettings`: `MyService(path, **constructor_options(settings))`.
    """
    given = settings.model_dump()
    spans = {name.removesuffix("_s"): timedelta(seconds=given.pop(name)) for name in list(given) if name.endswith("_s")}
    return {"session_event_limit": given.pop("event_limit"), **given, **spans}


def _settings(values: Mapping[str, Any]) -> ServiceSettings:
    return ServiceSettings(**{"cleanup_interval_s": 0.0, **values})


def expect(condition: object, sentence: str) -> None:
    """Raise `ContractError` with the sentence unless the condition holds."""
    if not condition:
        raise ContractError(sentence)


def expect_equal(found: Any, expected: Any, what: str) -> None:
    """Raise `ContractError` unless both are equal; the sentence shows the first difference, shortened."""
    if found != expected:
        place, found, expected = _first_difference(found, expected)
        raise ContractError(f"{what}{place}: expected {_short(expected)}, found {_short(found)}")


def _first_difference(found: Any, expected: Any) -> tuple[str, Any, Any]:
    """Where two unequal values begin to differ, as `.field[2].field`, and what is there in each."""
    pairs: list[tuple[str, Any, Any]] = []
    if type(found) is not type(expected):
        return "", found, expected
    if is_dataclass(found):
        names = [one.name for one in fields(found)]
        pairs = [(f".{name}", getattr(found, name), getattr(expected, name)) for name in names]
    elif isinstance(found, tuple) and len(found) == len(expected) and any(map(is_dataclass, found)):
        pairs = [(f"[{i}]", *pair) for i, pair in enumerate(zip(found, expected, strict=True))]
    for place, one, other in pairs:
        if one != other:
            deeper, one, other = _first_difference(one, other)
            return place + deeper, one, other
    return "", found, expected


async def expect_error(call: Awaitable[Any], kind: type[BaseException], what: str) -> BaseException:
    """The error that the call raises; `ContractError` when it raises another one or none."""
    try:
        await call
    except kind as error:
        return error
    except Exception as error:
        raise ContractError(f"{what}: expected {kind.__name__}, found {type(error).__name__}: {error}") from error
    raise ContractError(f"{what}: expected {kind.__name__}, but no error was raised")


async def until(condition: Callable[[], object], what: str, *, timeout_s: float = 5.0) -> None:
    """Let others work until the condition holds; `ContractError` when it doesn't in time."""
    pause_s = 0.001
    for n_waits in count():
        if condition():
            return
        if n_waits * pause_s > timeout_s:
            raise ContractError(f"{what}: not so after {timeout_s:g} s")
        await asyncio.sleep(pause_s if n_waits > 5 else 0)


async def idle() -> None:
    """Long enough for whatever could go on to go on, before a check says that it didn't."""
    for _ in range(10):
        await asyncio.sleep(0)
    await asyncio.sleep(0.01)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 300 else f"{text[:200]} ... {text[-80:]}"


# --- running --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ContractRow:
    """What came of one check."""

    check: str
    group: str
    ids: tuple[str, ...]
    outcome: Outcome
    detail: str = ""
    """Why it failed, what was missing, or the reason of a known difference."""

    def raise_if_failed(self) -> None:
        """Raise `ContractError` with the detail when the check failed."""
        if self.outcome == "failed":
            raise ContractError(f"{self.check} ({', '.join(self.ids)}): {self.detail}")


@dataclass(frozen=True, slots=True)
class ContractReport:
    """The rows of all checks that were asked for, in the order of the suite."""

    rows: tuple[ContractRow, ...]

    def with_outcome(self, outcome: Outcome) -> tuple[ContractRow, ...]:
        """The rows that ended so."""
        return tuple(row for row in self.rows if row.outcome == outcome)

    @property
    def failed(self) -> tuple[ContractRow, ...]:
        """The rows of broken rules."""
        return self.with_outcome("failed")

    @property
    def summary_line(self) -> str:
        """`131 checks: 120 passed, 1 failed, 2 known differences, 8 skipped (no search)`."""
        counts = Counter(row.outcome for row in self.rows)
        parts = [f"{counts['passed']} passed", f"{counts['failed']} failed"]
        if counts["known"]:
            parts.append(f"{counts['known']} known difference{'s' if counts['known'] > 1 else ''}")
        if counts["skipped"]:
            missing = dict.fromkeys(row.detail for row in self.with_outcome("skipped"))
            parts.append(f"{counts['skipped']} skipped ({', '.join(missing)})")
        return f"{len(self.rows)} check{'s' if len(self.rows) != 1 else ''}: {', '.join(parts)}"

    def raise_if_failed(self) -> None:
        """Raise one `ContractError` with a line for each failed check."""
        if self.failed:
            lines = "\n".join(f"  {row.group}: {row.check}: {row.detail}" for row in self.failed)
            raise ContractError(f"{self.summary_line}\n{lines}")


def run_check(
    one: Check,
    make: ServiceFactory,
    *,
    capabilities: Capabilities | None = None,
    known_differences: KnownDifferences | None = None,
    timeout_s: float = TIMEOUT_S,
) -> ContractRow:
    """Run one check in an event loop of its own; whatever goes wrong is the row's detail.

    Raises:
        WorkbenchError: an event loop is running in this thread already.
        ConfigError: a known difference names no check of the suite.
    """
    _refuse_inside_a_loop()
    _refuse_unknown(known_differences or {})
    given = capabilities if capabilities is not None else Capabilities()

    def row(outcome: Outcome, detail: str = "") -> ContractRow:
        return ContractRow(one.name, one.group, one.ids, outcome, detail)

    if not _may_run(one, given):
        return row("skipped", f"no {one.needs}")
    try:
        run_sync(_run(one, Bench(make, given, needs=one.needs), timeout_s))
        fault = ""
    except _MissingCapabilityError:
        return row("skipped", f"no {one.needs}")
    except ContractError as error:
        fault = str(error)
    except (Exception, asyncio.CancelledError) as error:  # one that the check didn't ask for is a broken rule too
        fault = f"{type(error).__name__}: {error}"
    known = (known_differences or {}).get(one.name)
    if known is None:
        return row("failed", fault) if fault else row("passed")
    difference = KnownDifference(known) if isinstance(known, str) else known
    if not fault:
        return row("failed", f"passes now: take it off the known differences ({difference.reason})")
    if difference.error not in fault:
        return row("failed", f"fails otherwise than known ({difference.error!r}): {fault}")
    return row("known", difference.reason)


def _refuse_inside_a_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise WorkbenchError(
        "each check has an event loop of its own, and one is running here already",
        hint="write `await asyncio.to_thread(run_contract, make)`",
    )


def _refuse_unknown(known_differences: KnownDifferences) -> None:
    for name in known_differences:
        if name not in _registered:
            raise ConfigError(
                f"known_differences: there is no check {name!r}",
                field="known_differences",
                value=name,
                hint=nearest_name(name, _registered),
            )


def _may_run(one: Check, given: Capabilities) -> bool:
    if one.needs == REOPENING:
        return given.reopen is not None
    if one.needs == SOFT_DELETE:
        return given.deleted_rows is not None
    if one.needs == ASYNC_PERSISTENCE:
        return given.async_persistence is not None and given.reopen is not None
    return True


async def _run(one: Check, bench: Bench, timeout_s: float) -> None:
    limit = asyncio.timeout(timeout_s)
    try:
        async with limit:
            await one.run(bench)
            await bench.close()
    except BaseException as error:
        # What is wrong is known; jobs that the check held back mustn't hold up the end.
        with suppress(Exception):
            async with asyncio.timeout(_CLOSING_S):
                await bench.give_up()
        if limit.expired():
            raise ContractError(f"still at work after {timeout_s:g} s") from error
        raise
