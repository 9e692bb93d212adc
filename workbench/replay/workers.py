"""Worker processes that end quietly with the command, and whose sudden end is one sentence.

In: how many. Out: a pool for a `with`. Without care a worker that Ctrl-C meets while it starts or waits prints a
traceback of its own, and one that was killed is a `BrokenProcessPool`.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

from workbench.errors import ReplayError

P = ParamSpec("P")
T = TypeVar("T")


class WorkerLostError(ReplayError):
    """A worker process ended in the middle of its work."""


@contextmanager
def worker_pool(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """A pool of processes; what is waiting is dropped when the block ends by an exception.

    Raises:
        WorkerLostError: a worker was killed, or found no memory.
    """
    try:
        with _QuietPool(jobs, mp_context=multiprocessing.get_context("spawn"), initializer=_end_at_once) as pool:
            try:
                yield pool
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    except BrokenProcessPool as error:
        raise WorkerLostError(
            "a worker process was killed, or found no memory",
            hint="the same command goes on where it stopped; fewer jobs take less memory",
        ) from error


class _QuietPool(ProcessPoolExecutor):
    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """As ever; a worker that is started for it hears of an interrupt only when it can end quietly."""
        with _interrupts_held():
            return super().submit(fn, *args, **kwargs)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Interrupts wait, also in processes started meanwhile; elsewhere than on POSIX they don't."""
    mask: Any = getattr(signal, "pthread_sigmask", None)
    if mask is None:
        yield
        return
    before = mask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        mask(signal.SIG_SETMASK, before)


def _end_at_once() -> None:
    """In a worker: an interrupt ends it without a word, since the command says it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if mask := getattr(signal, "pthread_sigmask", None):
        mask(signal.SIG_UNBLOCK, {signal.SIGINT})
