"""The contract of a session service as a suite that any store can be held to (SUM-STO-12).

In: a factory of services. Out: a row for each check: passed, failed, skipped (the store lacks an optional
capability) or known. Each check names the requirements it stands for. All groups but event window, search,
reopening, soft delete and asynchronous persistence are required.

Three lines hold a store of your own to it, one test per check:

    async def make(settings, clock, summarizer=None, **options):
        return SessionService(MyStore(), settings=settings, clock=clock, summarizer=summarizer, **options)
    test_my_store = contract_test(make)

A durable store says how it is opened again, over what the last service of the same check has left, and which
rules it is known to break; a difference that has healed fails until it is taken off the list:

    @pytest.mark.parametrize("check", CHECKS, ids=str)
    def test_my_durable_store(check, tmp_path):
        async def make(settings, clock, summarizer=None, **options):
            options |= constructor_options(settings)
            return MyService(tmp_path / "sessions", clock=clock, summarizer=summarizer, **options)
        known = {"text_with_nul_comes_back_exactly": "the server refuses NUL in texts"}
        run_check(check, make, capabilities=Capabilities(reopen=make), known_differences=known).raise_if_failed()

Without pytest, `print(run_contract(make).summary_line)`. A factory is called with `ServiceSettings`, a clock
that the check moves, a summarizer or None, and where a check needs them `append_event_hooks`,
`get_session_hooks` and `embedder`. `asyncio` runs each check in an event loop of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from workbench.errors import ConfigError, ContractError, nearest_name
from workbench.service.conformance import (
    durable,
    hooks,
    isolation,
    jobs,
    read_back,
    reads,
    recall,
    sessions,
    state,
    summaries,
)
from workbench.service.conformance.suite import (
    TIMEOUT_S,
    Capabilities,
    Check,
    ContractReport,
    ContractRow,
    KnownDifference,
    KnownDifferences,
    ServiceFactory,
    constructor_options,
    registered_checks,
    run_check,
)

__all__ = [
    "CHECKS",
    "GROUPS",
    "Capabilities",
    "Check",
    "ContractError",
    "ContractReport",
    "ContractRow",
    "KnownDifference",
    "constructor_options",
    "contract_test",
    "run_check",
    "run_contract",
]

# In the order of the report; importing a module has registered its checks.
CHECKS: tuple[Check, ...] = registered_checks(
    sessions, read_back, reads, state, summaries, hooks, isolation, jobs, recall, durable
)
GROUPS: tuple[str, ...] = tuple(dict.fromkeys(check.group for check in CHECKS))


def run_contract(
    make: ServiceFactory,
    *,
    groups: Sequence[str] = (),
    capabilities: Capabilities | None = None,
    known_differences: KnownDifferences | None = None,
    timeout_s: float = TIMEOUT_S,
) -> ContractReport:
    """Hold a service to the contract; one row per check.

    Args:
        groups: Only the checks of these groups; none = all.
        capabilities: What the backend can do beyond the service's own calls.
        known_differences: Check name -> reason, for rules that the backend is known to break.
        timeout_s: Seconds that one check may take.
    Raises:
        ConfigError: an unknown group, or a known difference that names no check.
    """
    for group in groups:
        if group not in GROUPS:
            raise ConfigError.for_field("groups", group, ", ".join(GROUPS), hint=nearest_name(group, GROUPS))
    return ContractReport(
        tuple(
            run_check(one, make, capabilities=capabilities, known_differences=known_differences, timeout_s=timeout_s)
            for one in CHECKS
            if not groups or one.group in groups
        )
    )


def contract_test(
    make: ServiceFactory,
    *,
    capabilities: Capabilities | None = None,
    known_differences: KnownDifferences | None = None,
    timeout_s: float = TIMEOUT_S,
) -> Callable[[Check], None]:
    """A test function for pytest, parametrised by check: `test_my_store = contract_test(make)`."""
    import pytest

    def test_the_contract(check: Check) -> None:
        row = run_check(
            check, make, capabilities=capabilities, known_differences=known_differences, timeout_s=timeout_s
        )
        row.raise_if_failed()
        if row.outcome == "skipped":
            pytest.skip(row.detail)
        if row.outcome == "known":
            pytest.xfail(row.detail)

    mark: Any = pytest.mark.parametrize("check", CHECKS, ids=str)
    marked: Callable[[Check], None] = mark(test_the_contract)
    return marked
