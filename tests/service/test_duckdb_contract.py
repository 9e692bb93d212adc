"""The durable service keeps the contract of session services, with everything that it can do beyond it."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from workbench.selftest.store_files import empty_store
from workbench.service.conformance import CHECKS, GROUPS, Capabilities, Check, constructor_options, run_check
from workbench.service.conformance.suite import ASYNC_PERSISTENCE
from workbench.service.duckdb import DuckDBSessionService
from workbench.session.types import SessionKey
from workbench.store.duckdb.codec import column_text

# Each check opens a file or two, some 0.2 s; the quick tests take this many of each group, the rest runs with the
# slow ones, in `make test-more`.
QUICK_PER_GROUP = 2
ROWS_OF = """
    SELECT count(*) FROM session_events WHERE session_no IN (
        SELECT session_no FROM session_states WHERE deleted_ns <> 0 AND session_id = ? AND user_id = ? AND app_name = ?)"""
QUEUED = {"enable_async_persist": True, "async_persister_num": 2}
QUICK_IN_BACKGROUND = (
    "appending_begins_the_time_anew",
    "the_order_of_events_goes_on_after_reopening",
    "a_late_summary_is_refused_after_reopening_too",
)


def is_quick(check: Check) -> bool:
    group = [one for one in CHECKS if one.group == check.group]
    step = max(len(group) // QUICK_PER_GROUP, 1)
    return group.index(check) % step == 0


@pytest.fixture(autouse=True)
def silence() -> Iterator[None]:
    """Checks make workers fail on purpose; what they log isn't this test's output."""
    root = logging.getLogger()
    handlers, root.handlers = root.handlers, [logging.NullHandler()]
    yield
    root.handlers = handlers


class Files:
    """Makes services over files in one folder, each over an empty one, or over the last one again."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self._folder = folder
        self._options = options
        self._n_made = 0

    async def make(self, settings: Any, clock: Any, summarizer: Any = None, **options: Any) -> DuckDBSessionService:
        self._n_made += 1
        empty_store(self._folder, f"{self._n_made}.duckdb")
        return await self.reopen(settings, clock, summarizer, **options)

    async def reopen(self, settings: Any, clock: Any, summarizer: Any = None, **options: Any) -> DuckDBSessionService:
        return DuckDBSessionService(
            self._folder / f"{self._n_made}.duckdb",
            clock=clock,
            summarizer=summarizer,
            **constructor_options(settings),
            **self._options | options,
        )

    @staticmethod
    async def deleted_rows(service: DuckDBSessionService, key: SessionKey) -> int:
        """Events of deleted sessions in the file."""
        store: Any = service.store
        await store.flush()
        with store._database.reading() as connection:
            names = [column_text(part) for part in (key.session_id, key.user_id, key.app_name)]
            (found,) = connection.execute(ROWS_OF, names).fetchall()[0]
        return int(found)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(reopen=self.reopen, deleted_rows=self.deleted_rows, async_persistence=QUEUED)


@pytest.mark.parametrize(
    "check", [pytest.param(one, marks=() if is_quick(one) else pytest.mark.slow, id=str(one)) for one in CHECKS]
)
def test_the_service_over_a_duckdb_file(check: Check, tmp_path: Path) -> None:
    """SUM-STO-03, -09, -10, -12, -14: every backend passes the one suite."""
    files = Files(tmp_path)
    row = run_check(check, files.make, capabilities=files.capabilities)
    row.raise_if_failed()
    assert row.outcome == "passed"
    shutil.rmtree(tmp_path)


@pytest.mark.parametrize(
    "check",
    [
        pytest.param(one, marks=() if one.name in QUICK_IN_BACKGROUND else pytest.mark.slow, id=str(one))
        for one in CHECKS
        if one.needs != ASYNC_PERSISTENCE  # held to above
    ],
)
def test_the_service_that_stores_events_in_the_background(check: Check, tmp_path: Path) -> None:
    """SUM-STO-10, -12: nothing but a crash and a log tells the difference, for every call waits for what is queued."""
    files = Files(tmp_path, **QUEUED)
    row = run_check(check, files.make, capabilities=files.capabilities)
    row.raise_if_failed()
    assert row.outcome == "passed"
    shutil.rmtree(tmp_path)


def test_some_checks_of_every_group_are_quick() -> None:
    quick = [one for one in CHECKS if is_quick(one)]
    assert {one.group for one in quick} == set(GROUPS)
    assert 30 <= len(quick) <= 55
    assert {one.name for one in CHECKS} >= set(QUICK_IN_BACKGROUND)
