"""`workbench.replay` is a function for its users, whatever they imported before."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # replays whole data sets; `make test-more` runs these

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.parametrize(
    "imports",
    [
        "from workbench.replay.runs import load_runs; import workbench as wb",
        "import workbench as wb; wb.replay; import workbench.replay.trace",
    ],
)
def test_the_public_name_can_be_called_whatever_was_imported_before(imports):
    """WB-API-01."""
    program = f"{imports}; import inspect; assert 'configs' in inspect.signature(wb.replay).parameters; wb.replay()"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=False)
    assert "missing 2 required positional arguments" in ran.stderr
