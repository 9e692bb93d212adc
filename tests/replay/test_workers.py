"""Worker processes that are interrupted or killed: one sentence and no traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from tests.replay.conftest import chat, summarising
from workbench.errors import ReplayError
from workbench.recordings import Recordings
from workbench.replay import replay as replaying
from workbench.replay.workers import WorkerLostError, worker_pool

PROGRAM = """
import time
from workbench.replay.workers import WorkerLostError, worker_pool

if __name__ == "__main__":
    try:
        with worker_pool(2) as pool:
            waiting = [pool.submit(time.sleep, 60) for _ in range(2)]
            print("begun", flush=True)
            waiting[0].result()
    except KeyboardInterrupt:
        print("interrupted")
"""


@pytest.mark.slow
def test_a_killed_worker_is_told_in_one_sentence() -> None:
    with pytest.raises(ReplayError, match="a worker process was killed") as caught, worker_pool(1) as pool:
        pool.submit(os._exit, 9).result()
    assert "goes on where it stopped" in caught.value.hint


def dies_of_the_third(task: Any, configs: Any) -> Any:
    """In a worker: as `_replay_task`, but one conversation takes its process with it."""
    if any(conversation.id == "c3" for conversation in task.conversations):
        os._exit(9)
    return replaying._replay_task(task, configs)


def dies_in_company(task: Any, configs: Any) -> Any:
    """In a worker: several conversations at once are too much for it."""
    if len(task.conversations) > 1:
        os._exit(9)
    return replaying._replay_task(task, configs)


@pytest.mark.slow
def test_a_conversation_that_kills_its_worker_is_named_and_the_only_one_that_is_lost(
    recorded: Callable[..., Recordings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recordings = recorded(*(chat(3, ident=f"c{i}") for i in range(8)))
    monkeypatch.setattr(replaying, "BLOCK_EVENTS", 60)
    configs = [summarising("a"), summarising("b", token=500)]
    whole = replaying.replay(recordings, configs, runs=tmp_path / "whole", progress=False)
    monkeypatch.setattr(replaying, "_replay_task", dies_of_the_third)
    with pytest.raises(
        ReplayError, match="conversation 'c3': the worker process that replayed it was killed"
    ) as caught:
        replaying.replay(recordings, configs, runs=tmp_path / "runs", jobs=2, progress=False)
    assert "everything else is stored" in caught.value.hint
    monkeypatch.undo()
    steps: list[int] = []
    again = replaying.replay(recordings, configs, runs=tmp_path / "runs", progress=Counted(steps))
    assert sum(steps) == 16
    assert steps.count(1) >= 2, "of both configurations only the third conversation was left"
    for name, run in again.items():
        assert run.facts["trace_hash"] == whole[name].facts["trace_hash"]


@pytest.mark.slow
def test_conversations_that_are_too_much_together_are_replayed_one_by_one(
    recorded: Callable[..., Recordings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recordings = recorded(*(chat(3, ident=f"c{i}") for i in range(5)))
    whole = replaying.replay(recordings, summarising(), runs=tmp_path / "whole", progress=False)["summaries"]
    monkeypatch.setattr(replaying, "_replay_task", dies_in_company)
    found = replaying.replay(recordings, summarising(), runs=tmp_path / "runs", jobs=2, progress=False)["summaries"]
    assert found.rows("calls") == whole.rows("calls")
    assert found.facts == whole.facts


class Counted:
    """Hears how a replay goes on."""

    def __init__(self, steps: list[int]) -> None:
        self.steps = steps

    def start(self, total: int) -> None:
        assert total == 16

    def advance(self, steps: int) -> None:
        self.steps.append(steps)


@pytest.mark.slow
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


class Refusing:
    """A pool that is found dead when the third task is given to it."""

    def __init__(self) -> None:
        self.n_given = 0

    def submit(self, work: Callable[..., Any], *arguments: Any) -> Future[Any]:
        self.n_given += 1
        if self.n_given == 3:
            raise WorkerLostError("dead")
        done: Future[Any] = Future()
        done.set_result(work(*arguments))
        return done


def test_a_task_that_finds_its_pool_dead_is_worked_at_all_the_same(
    recorded: Callable[..., Recordings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recordings = recorded(*(chat(3, ident=f"c{i}") for i in range(6)))
    monkeypatch.setattr(replaying, "BLOCK_EVENTS", 1)
    monkeypatch.setattr(replaying, "worker_pool", lambda jobs: nullcontext(Refusing()))
    run = replaying.replay(recordings, summarising(), runs=tmp_path, jobs=2, progress=False)["summaries"]
    assert [row["conversation"] for row in run.rows("conversations")] == [f"c{i}" for i in range(6)]
