"""Worker processes that are interrupted or killed: one sentence and no traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from workbench.errors import ReplayError
from workbench.replay.workers import worker_pool

PROGRAM = """
import time
from workbench.replay.workers import worker_pool

if __name__ == "__main__":
    try:
        with worker_pool(2) as pool:
            waiting = [pool.submit(time.sleep, 60) for _ in range(2)]
            print("begun", flush=True)
            waiting[0].result()
    except KeyboardInterrupt:
        print("interrupted")
"""


def test_a_killed_worker_is_told_in_one_sentence() -> None:
    with pytest.raises(ReplayError, match="a worker process was killed") as caught, worker_pool(1) as pool:
        pool.submit(os._exit, 9).result()
    assert "goes on where it stopped" in caught.value.hint


@pytest.mark.skipif(os.name != "posix", reason="signals of a process group")
@pytest.mark.parametrize("after_s", [0.0, 0.1, 0.3, 1.5])
def test_an_interrupt_of_all_processes_is_quiet(tmp_path: Path, after_s: float) -> None:
    """Ctrl-C on a terminal reaches the workers too, while they start and while they work."""
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    running = subprocess.Popen(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert running.stdout is not None
    assert running.stdout.readline() == "begun\n"
    time.sleep(after_s)
    began = time.monotonic()
    os.killpg(running.pid, signal.SIGINT)
    assert running.communicate(timeout=50) == ("interrupted\n", "")
    assert time.monotonic() - began < 30
