"""The hashed worker queues of background summaries, and the lock that serialises runs of one key.

In: jobs. Out: each job run once, jobs of one session in order on one worker; or `False` when a queue has no
room, so that the caller runs the job itself. Implements SUM-ASY-01, -02, -05, -07 and SUM-CORE-01.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from weakref import WeakKeyDictionary

logger = logging.getLogger(__name__)

Job = Callable[[], Awaitable[None]]


class SummaryWorkers:
    """`n_workers` tasks with a queue each; started by the first job, in the loop of whoever brings it."""

    def __init__(self, n_workers: int, queue_size: int) -> None:
        self._n_workers = n_workers
        self._queue_size = queue_size
        self._queues: list[asyncio.Queue[Job]] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    def offer(self, session_hash: int, job: Job) -> bool:
        """Queue a job without waiting; False when closed, full, or owned by another event loop."""
        if self._closed:
            return False
        loop = asyncio.get_running_loop()
        if self._loop is None or self._loop.is_closed():
            self._start(loop)
        elif self._loop is not loop:
            return False
        try:
            self._queues[session_hash % self._n_workers].put_nowait(job)
        except asyncio.QueueFull:
            return False
        return True

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        left = self._queues  # of a loop that was closed before its jobs were done
        self._loop = loop
        self._queues = [asyncio.Queue(self._queue_size) for _ in range(self._n_workers)]
        for old, new in zip(left, self._queues, strict=False):
            while not old.empty():
                new.put_nowait(old.get_nowait())
        self._tasks = [
            loop.create_task(self._work(queue), name=f"summary-worker-{i}") for i, queue in enumerate(self._queues)
        ]

    async def _work(self, queue: asyncio.Queue[Job]) -> None:
        while True:
            job = await queue.get()
            try:
                await job()
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise
                logger.warning("summary job was cancelled")
            except Exception:  # a worker outlives whatever a job does
                logger.exception("summary worker: job crashed")
            finally:
                queue.task_done()

    async def wait_idle(self) -> None:
        """Return when every queued job has been run."""
        for queue in self._queues:
            await queue.join()

    async def close(self) -> None:
        """Take no more jobs, run what is queued, end the workers; calling it again is harmless."""
        self._closed = True
        loop = asyncio.get_running_loop()
        if self._loop is not None and self._loop.is_closed():
            self._start(loop)
        if self._loop is not loop:
            self._tasks.clear()  # their loop is gone or elsewhere; they can't be awaited from here
            return
        await self.wait_idle()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()


class _Entry:
    __slots__ = ("lock", "users")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0


# One table per event loop: an asyncio lock can't be shared between loops.
_locks: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Hashable, _Entry]] = WeakKeyDictionary()


class one_at_a_time:  # noqa: N801 - reads as the context manager it is
    """Hold the process-wide lock of a key; waiters can be cancelled, an unused lock leaves no trace."""

    __slots__ = ("_entry", "_key", "_table")

    def __init__(self, key: Hashable) -> None:
        self._key = key
        self._table = _locks.setdefault(asyncio.get_running_loop(), {})
        entry = self._table.get(key)
        if entry is None:
            entry = self._table[key] = _Entry()
        self._entry = entry

    async def __aenter__(self) -> None:
        self._entry.users += 1
        try:
            await self._entry.lock.acquire()
        except BaseException:
            self._leave()
            raise

    async def __aexit__(self, *error: object) -> None:
        self._entry.lock.release()
        self._leave()

    def _leave(self) -> None:
        self._entry.users -= 1
        if not self._entry.users and self._table.get(self._key) is self._entry:
            del self._table[self._key]
