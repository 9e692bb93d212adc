"""The recorded cases of on-demand history, under every profile."""

import asyncio

import pytest

from workbench.conformance import run_file
from workbench.conformance.recall_cases import _finished
from workbench.profiles import PROFILES


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
def test_recall_answers_as_recorded(shared_path, profile):
    """ASM-OND-01, ASM-OND-10, ASM-OND-13, ASM-OND-15, ASM-OND-16, ASM-OND-20 to -26."""
    verdicts = list(run_file(shared_path / "vectors" / "on_demand.json", [profile]))
    assert verdicts
    assert [verdict for verdict in verdicts if verdict.verdict != "passed"] == []


def test_a_stand_in_that_waits_is_a_failure():
    """A case must not depend on a running event loop."""

    async def waits():
        await asyncio.sleep(0)

    with pytest.raises(RuntimeError):
        _finished(waits())
