"""Every requirement of the engine's specification is named by a test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tools.requirement_map import named_ids

ROOT = Path(__file__).resolve().parent.parent


def test_no_requirement_is_without_a_test(shared_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "tools/requirement_map.py", "--gaps"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines()[-1].endswith(" 0 without a test"), done.stdout
    assert done.returncode == 0


def test_sequences_of_ids_are_spelt_out() -> None:
    assert named_ids("SUM-TOK-01 to -03, ASM-RETRY-01, -04 and SUM-GET-02") == {
        "SUM-TOK-01",
        "SUM-TOK-02",
        "SUM-TOK-03",
        "ASM-RETRY-01",
        "ASM-RETRY-04",
        "SUM-GET-02",
    }
