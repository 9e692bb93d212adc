"""The contract of session services: that the services here keep it, that it covers the specification, that it can fail."""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.service.broken import FAULTS, OverwritesALiveSession, sound
from tests.service.durable import DURABLE_FAULTS, Durable
from tools.requirement_map import defined_ids
from workbench.clock import FixedClock
from workbench.errors import ConfigError, ContractError, WorkbenchError
from workbench.service import conformance
from workbench.service.conformance import (
    CHECKS,
    GROUPS,
    Capabilities,
    Check,
    ContractReport,
    ContractRow,
    KnownDifference,
    constructor_options,
    contract_test,
    run_check,
    run_contract,
)
from workbench.service.conformance.suite import START_NS, check
from workbench.service.in_memory import InMemorySessionService
from workbench.service.service import SessionService
from workbench.service.settings import ServiceSettings
from workbench.store.memory import InMemoryStore

BY_NAME = {one.name: one for one in CHECKS}
OPTIONAL = ("event window", "search", "reopening", "soft delete", "asynchronous persistence")
REQUIRED = (
    "session life cycle",
    "append and read back",
    "order and limits",
    "state scopes",
    "summaries with boundaries",
    "late writes",
    "reading a summary",
    "expiry",
    "deletion",
    "hooks",
    "event paging",
    "isolation",
    "errors",
    "background summaries",
    "close",
)
NUL = "text_with_nul_comes_back_exactly"


@pytest.fixture(autouse=True)
def silence() -> Iterator[None]:
    """Checks make workers fail on purpose; what they log isn't this test's output."""
    root = logging.getLogger()
    handlers, root.handlers = root.handlers, [logging.NullHandler()]
    yield
    root.handlers = handlers


# --- the services here keep the contract ----------------------------------------------------------------

test_the_service_over_the_in_memory_store = contract_test(sound)
"""SUM-STO-12: every backend passes the one suite."""


def test_the_named_constructor_keeps_the_contract() -> None:
    """SUM-STO-14: under the reference's option names, durations as timedeltas."""

    async def make(settings: Any, clock: Any, summarizer: Any = None, **options: Any) -> Any:
        return InMemorySessionService(clock=clock, summarizer=summarizer, **constructor_options(settings), **options)

    run_contract(make).raise_if_failed()


def test_a_durable_service_passes_with_every_capability() -> None:
    """SUM-STO-09, SUM-STO-10, SUM-STO-12."""
    durable = Durable()
    report = run_contract(durable.make, capabilities=durable.capabilities)
    assert report.failed == ()
    assert report.summary_line == f"{len(CHECKS)} checks: {len(CHECKS)} passed, 0 failed"


# --- it covers the specification ------------------------------------------------------------------------


def test_the_suite_has_at_least_120_checks_in_all_groups() -> None:
    assert len(CHECKS) >= 120
    assert set(GROUPS) == {*REQUIRED, *OPTIONAL}
    assert {one.group for one in CHECKS if one.needs} == set(OPTIONAL)
    assert all(one.needs == one.group for one in CHECKS if one.needs)


def test_every_requirement_of_service_and_store_has_a_check(shared_path: Path) -> None:
    """SUM-STO-01 to -14, SUM-SVC-01 to -11, SUM-GET-01 to -04, SUM-ASY-01 to -08."""
    wanted = [one for one in defined_ids(shared_path) if re.match("SUM-(STO|SVC|GET|ASY)-", one)]
    assert len(wanted) == 37
    named = {one for each in CHECKS for one in each.ids}
    assert sorted(set(wanted) - named) == []


def test_checks_name_only_requirements_that_exist(shared_path: Path) -> None:
    known = set(re.findall(r"\bSUM-[A-Z]+-\d\d\b", (shared_path / "spec" / "summary.md").read_text(encoding="utf-8")))
    assert {one for each in CHECKS for one in each.ids} - known == set()


def test_what_is_true_of_every_store_is_checked_without_optional_capabilities() -> None:
    """SUM-STO-10 alone is about stores that write in the background."""
    required = {one for each in CHECKS if not each.needs for one in each.ids}
    optional = {one for each in CHECKS if each.needs for one in each.ids}
    only_optional = {one for one in optional - required if one.startswith(("SUM-STO", "SUM-SVC", "SUM-GET", "SUM-ASY"))}
    assert only_optional == {"SUM-STO-10"}


# --- it can fail ----------------------------------------------------------------------------------------


def first_failure(make: Any, group: str, capabilities: Capabilities | None = None) -> ContractRow | None:
    for one in CHECKS:
        if one.group == group:
            row = run_check(one, make, capabilities=capabilities, timeout_s=0.5)
            if row.outcome == "failed":
                return row
    return None


@pytest.mark.parametrize("name", FAULTS)
def test_a_broken_service_is_caught_by_its_group(name: str) -> None:
    """SUM-STO-12: each fault breaks a check of the group that is about it."""
    fault = FAULTS[name]
    row = first_failure(fault.make, fault.group)
    assert row is not None, f"no check of {fault.group!r} notices"
    # A service that can't even run proves nothing: the check has to find the fault.
    assert not re.match("AttributeError|TypeError|NameError|NotImplementedError", row.detail), row.detail


@pytest.mark.parametrize("name", DURABLE_FAULTS)
def test_a_broken_durable_service_is_caught_by_its_group(name: str) -> None:
    """SUM-STO-09, SUM-STO-10."""
    group, durable = DURABLE_FAULTS[name]
    row = first_failure(durable.make, group, durable.capabilities)
    assert row is not None, f"no check of {group!r} notices"
    # A service that can't even run proves nothing: the check has to find the fault.
    assert not re.match("AttributeError|TypeError|NameError", row.detail), row.detail


def test_every_group_has_a_service_that_breaks_it() -> None:
    broken = {fault.group for fault in FAULTS.values()} | {group for group, _ in DURABLE_FAULTS.values()}
    assert broken == set(GROUPS)
    assert len(FAULTS) >= 15


def test_a_failure_is_told_in_a_sentence_with_both_values() -> None:
    row = run_check(BY_NAME["events_of_one_time_keep_the_order_of_appending"], FAULTS["SortsEventsById"].make)
    assert row.outcome == "failed"
    assert row.detail == (
        "stored ids of one moment: expected ['z', 'b', '10', '9', 'a', 'Z'], found ['10', '9', 'Z', 'a', 'b', 'z']"
    )
    with pytest.raises(ContractError, match=r"^events_of_one_time_keep_the_order_of_appending \(SUM-STO-05\): stored"):
        row.raise_if_failed()


def test_what_is_logged_is_seen_also_by_somebody_who_asked_for_silence() -> None:
    logging.disable(logging.CRITICAL)
    try:
        row = run_check(BY_NAME["a_failed_job_is_a_warning_and_the_worker_goes_on"], sound)
        assert logging.root.manager.disable == logging.CRITICAL
    finally:
        logging.disable(logging.NOTSET)
    assert (row.outcome, row.detail) == ("passed", "")


def test_values_of_a_megabyte_are_shortened_in_the_sentence() -> None:
    row = run_check(BY_NAME["a_megabyte_of_text_comes_back_exactly"], FAULTS["CutsLongTexts"].make)
    assert row.outcome == "failed"
    assert len(row.detail) < 1000


# --- the machinery --------------------------------------------------------------------------------------


def test_a_service_that_hangs_fails_the_check() -> None:
    class Hangs(SessionService):
        async def list_app_state(self, app_name: str) -> Any:
            await asyncio.Event().wait()

    async def make(settings: Any, clock: Any, summarizer: Any = None, **options: Any) -> Any:
        return Hangs(InMemoryStore(), settings=settings, clock=clock, summarizer=summarizer, **options)

    row = run_check(BY_NAME["state_that_was_never_written_is_empty"], make, timeout_s=0.05)
    assert (row.outcome, row.detail) == ("failed", "still at work after 0.05 s")


@pytest.mark.parametrize(
    ("error", "detail"),
    [
        (ConnectionError("no server there"), "ConnectionError: no server there"),
        (TimeoutError("the server is slow"), "TimeoutError: the server is slow"),
        (asyncio.CancelledError("by nobody"), "CancelledError: by nobody"),
    ],
    ids=["connection", "timeout", "cancelled"],
)
def test_an_error_out_of_the_service_is_a_failure_with_its_kind(error: BaseException, detail: str) -> None:
    async def make(settings: Any, clock: Any, summarizer: Any = None, **options: Any) -> Any:
        raise error

    row = run_check(CHECKS[0], make)
    assert (row.outcome, row.detail) == ("failed", detail)


def test_inside_a_running_loop_the_suite_says_what_to_write() -> None:
    async def main() -> ContractReport:
        with pytest.raises(WorkbenchError, match="an event loop of its own, and one is running here") as caught:
            run_contract(sound, groups=["hooks"])
        assert caught.value.hint == "write `await asyncio.to_thread(run_contract, make)`"
        return await asyncio.to_thread(run_contract, sound, groups=["hooks"])

    assert asyncio.run(main()).failed == ()


def test_each_check_gets_one_fresh_service_and_it_is_closed() -> None:
    made: list[SessionService] = []
    closed: list[SessionService] = []

    class Counted(SessionService):
        async def close(self) -> None:
            closed.append(self)
            await super().close()

    async def make(settings: Any, clock: Any, summarizer: Any = None, **options: Any) -> Any:
        assert isinstance(clock, FixedClock)
        assert clock.now_ns() == START_NS
        made.append(Counted(InMemoryStore(), settings=settings, clock=clock, summarizer=summarizer, **options))
        return made[-1]

    report = run_contract(make, groups=["state scopes"])
    assert len(made) == len(report.rows) == len(closed)
    assert closed == made


def test_an_error_while_closing_is_a_failure() -> None:
    row = run_check(BY_NAME["closing_may_be_repeated"], FAULTS["ClosesOnce"].make)
    assert (row.outcome, row.detail) == ("failed", "StoreClosedError: closed already")


def test_optional_groups_are_skipped_by_what_is_missing() -> None:
    async def make(settings: Any, clock: Any, summarizer: Any = None, **options: Any) -> Any:
        return SessionService(
            InMemoryStore(), settings=settings, clock=clock, supports_windows=False, supports_search=False, **options
        )

    report = run_contract(make, groups=OPTIONAL)
    assert {row.outcome for row in report.rows} == {"skipped"}
    n_checks = len(report.rows)
    assert report.summary_line == (
        f"{n_checks} checks: 0 passed, 0 failed, {n_checks} skipped "
        "(no event window, no search, no reopening, no soft delete, no asynchronous persistence)"
    )


def test_windows_and_search_are_detected_independently() -> None:
    """SUM-STO-01."""

    async def make(settings: Any, clock: Any, summarizer: Any = None, **options: Any) -> Any:
        return SessionService(InMemoryStore(), settings=settings, clock=clock, supports_search=False, **options)

    report = run_contract(make, groups=["event window", "search"])
    assert {(row.group, row.outcome) for row in report.rows} == {("event window", "passed"), ("search", "skipped")}


def test_a_known_difference_is_told_apart_from_a_failure() -> None:
    make = FAULTS["CutsTextsAtNul"].make
    known = {NUL: KnownDifference("the server ends texts at NUL", error="message.content")}
    row = run_check(BY_NAME[NUL], make, known_differences=known)
    assert (row.outcome, row.detail) == ("known", "the server ends texts at NUL")
    row.raise_if_failed()
    assert ContractReport((row,)).summary_line == "1 check: 0 passed, 0 failed, 1 known difference"


def test_a_known_difference_that_healed_fails() -> None:
    row = run_check(BY_NAME[NUL], sound, known_differences={NUL: "the server ends texts at NUL"})
    assert row.outcome == "failed"
    assert row.detail == "passes now: take it off the known differences (the server ends texts at NUL)"


def test_a_known_difference_that_fails_otherwise_fails() -> None:
    known = {NUL: KnownDifference("the server refuses NUL", error="ServerError")}
    row = run_check(BY_NAME[NUL], FAULTS["CutsTextsAtNul"].make, known_differences=known)
    assert row.outcome == "failed"
    assert row.detail == (
        "fails otherwise than known ('ServerError'): list_events, event e1.response.choices[0].message.content: "
        r"expected '\x00', found ''"
    )


def test_unknown_names_are_refused_with_the_nearest_one() -> None:
    with pytest.raises(ConfigError, match="there is no check 'text_with_nul_comes_back'") as caught:
        run_contract(sound, known_differences={"text_with_nul_comes_back": "?"})
    assert caught.value.hint == f"did you mean {NUL}?"
    with pytest.raises(ConfigError, match="there is no check 'nothing'"):
        contract_test(sound, known_differences={"nothing": "?"})(CHECKS[0])
    with pytest.raises(ConfigError, match=r"groups = 'hook'; allowed: .*hooks"):
        run_contract(sound, groups=["hook"])


def test_a_report_names_each_failure() -> None:
    report = run_contract(FAULTS["RunsHooksBackwards"].make, groups=["hooks"])
    assert {row.group for row in report.failed} == {"hooks"}
    first = report.failed[0]
    with pytest.raises(ContractError) as caught:
        report.raise_if_failed()
    lines = str(caught.value).splitlines()
    assert lines[0] == report.summary_line
    assert lines[1] == f"  hooks: {first.check}: {first.detail}"
    assert len(lines) == 1 + len(report.failed)
    run_contract(sound, groups=["hooks"]).raise_if_failed()


def test_a_check_must_name_a_requirement_and_have_a_name_of_its_own() -> None:
    async def nameless(bench: Any) -> None:
        """Checks nothing."""

    with pytest.raises(ConfigError, match="check nameless names no requirement"):
        check("errors")(nameless)
    with pytest.raises(ConfigError, match="check nameless names no requirement"):
        check("errors", "STO-1")(nameless)
    nameless.__name__ = CHECKS[0].name
    with pytest.raises(ConfigError, match="two checks are called"):
        check("errors", "SUM-STO-01")(nameless)


def test_checks_are_named_by_their_rules() -> None:
    for one in CHECKS:
        assert one.name.count("_") >= 2, one.name
        assert inspect.iscoroutinefunction(one.run)
        assert str(one) == one.name


# --- three lines for a foreign store --------------------------------------------------------------------


def examples() -> list[str]:
    """The indented blocks of the module's docstring."""
    text = conformance.__doc__ or ""
    return [textwrap.dedent(block) for block in re.findall(r"(?:^    .*\n)+", text, re.MULTILINE)]


def outcome_of(test: Any, one: Check, **fixtures: Any) -> str:
    try:
        test(check=one, **fixtures)
    except pytest.skip.Exception:
        return "skipped"
    except pytest.xfail.Exception:
        return "known"
    except ContractError:
        return "failed"
    return "passed"


def test_three_lines_make_a_test_per_check() -> None:
    names: dict[str, Any] = {"SessionService": SessionService, "MyStore": InMemoryStore, "contract_test": contract_test}
    example = examples()[0]
    assert len(example.splitlines()) == 3
    exec(example, names)
    test = names["test_my_store"]
    (mark,) = test.pytestmark
    assert mark.args == ("check", CHECKS)
    assert outcome_of(test, BY_NAME[NUL]) == "passed"
    assert outcome_of(test, BY_NAME["everything_is_there_after_reopening"]) == "skipped"
    names["MyStore"] = OverwritesALiveSession
    assert outcome_of(test, BY_NAME["a_live_id_is_refused_and_its_session_unharmed"]) == "failed"


def test_the_example_of_a_durable_store_works(tmp_path: Path) -> None:
    durable = Durable()

    class MyService:
        """Takes a path, and finds there what was left."""

        def __new__(cls, path: Path, *, clock: Any, summarizer: Any, **options: Any) -> Any:
            assert options["session_event_limit"] == 1000
            coroutine = durable.reopen if path.exists() else durable.make
            path.touch()
            call = coroutine(ServiceSettings(), clock, summarizer)
            with pytest.raises(StopIteration) as made:
                call.send(None)
            return made.value.value

    names: dict[str, Any] = {"pytest": pytest, "MyService": MyService, **vars(conformance)}
    exec(examples()[1], names)
    test = names["test_my_durable_store"]
    assert outcome_of(test, BY_NAME["everything_is_there_after_reopening"], tmp_path=tmp_path) == "passed"
    healed = tmp_path / "healed"
    healed.mkdir()
    assert outcome_of(test, BY_NAME[NUL], tmp_path=healed) == "failed"


def test_a_known_difference_is_an_expected_failure_in_pytest() -> None:
    test = contract_test(FAULTS["CutsTextsAtNul"].make, known_differences={NUL: "the server ends texts at NUL"})
    assert outcome_of(test, BY_NAME[NUL]) == "known"
    assert outcome_of(test, BY_NAME["an_event_without_a_time_gets_none"]) == "passed"
