"""Recorded cases of the reference, under all three profiles."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from workbench.conformance import run_file
from workbench.conformance.summary_cases import RUNS
from workbench.model.windows import model_windows_restored
from workbench.profiles import PROFILES


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    with model_windows_restored():
        yield


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
@pytest.mark.parametrize("area", RUNS)
def test_every_recorded_case_of_the_summary_engine_agrees(shared_path, area, profile):
    """SUM-OPT-03, ASM-CHAIN-07."""
    results = list(run_file(shared_path / "vectors" / f"{area}.json", [profile]))
    assert results
    assert [(r.id, r.difference) for r in results if r.verdict != "passed"] == []
