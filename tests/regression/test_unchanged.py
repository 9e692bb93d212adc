"""Unchanged input never fails: the same findings in any process, in any order, however often (WB-REG-05)."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.regression.conftest import SuiteFolder
from tests.replay.conftest import chat

ROOT = Path(__file__).resolve().parents[2]
BUNDLED = ROOT / "datasets" / "service.suite.toml"

ONE_RUN = """
import json, sys
from workbench.regression.check import check
path, jobs, times = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
if __name__ == "__main__":
    for _ in range(times):
        result = check(path, jobs=jobs)
        print(json.dumps([result.counts, result.rows(), result.junit()]))
"""


def printed(script: Path, suite: Path, *, seed: int, jobs: int, times: int) -> list[str]:
    """What runs in a process of their own print, one line each."""
    env = {**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(script), str(suite), str(jobs), str(times)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
def test_fifty_unchanged_runs_flip_nothing(mine: SuiteFolder, tmp_path: Path) -> None:
    """WB-REG-05: five processes with five hash seeds, one of them with two workers, ten runs in each."""
    mine.record_chats(chat(5, ident="c1"))
    assert mine.accepted().counts["fail"] == 0
    script = tmp_path / "one_run.py"
    script.write_text(ONE_RUN, encoding="utf-8")
    dice = random.Random(7)
    lines = []
    for number in range(5):
        lines += printed(script, mine.path, seed=dice.randrange(4_000_000_000), jobs=1, times=8)
        lines += printed(script, mine.path, seed=number, jobs=2 if number == 0 else 1, times=2)
    assert len(lines) == 50
    assert len(set(lines)) == 1
    assert '"fail": 0, "undecided": 0}' in lines[0]


@pytest.mark.slow
def test_workers_find_the_same(mine: SuiteFolder) -> None:
    """WB-REG-05."""
    mine.accepted()
    alone = mine.check()
    assert mine.check(jobs=2).rows() == alone.rows()
    assert alone.passed


@pytest.mark.slow
def test_the_bundled_suite_passes_as_committed(tmp_path: Path) -> None:
    """WB-REG-01: no key, no network, the same on every machine."""
    script = tmp_path / "one_run.py"
    script.write_text(ONE_RUN, encoding="utf-8")
    lines = [*printed(script, BUNDLED, seed=1, jobs=1, times=1), *printed(script, BUNDLED, seed=2, jobs=1, times=1)]
    assert len(set(lines)) == 1
    assert '"fail": 0' in lines[0]
