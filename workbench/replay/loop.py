"""The virtual loop: an asyncio event loop whose time is simulated (WB-RPL-08).

In: coroutines of the production engine. Out: their results, after exactly the virtual time they asked for:
`asyncio.sleep`, `asyncio.timeout`, queues and tasks work as in production, but nothing waits for the wall
clock. One conversation runs on one such loop, single-threaded, so the order of everything is fixed:

- what is ready runs first, in the order it became ready;
- only when nothing is ready does time move, to the earliest timer;
- timers of the engine (a summary finishing, a job timing out) come before the conversation's own timers of
  the same moment, so that a call sees every summary completed up to its time.

It also runs inside a notebook, whose own loop is running in the same thread: that loop is set aside for the
time being (WB-API-01).
"""

from __future__ import annotations

import asyncio
import heapq
from asyncio import events as _events
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, TypeVar

from workbench.clock import NS_PER_S

T = TypeVar("T")

_ENGINE = 0
_CONVERSATION = 1


class VirtualTimer(asyncio.TimerHandle):
    """A timer that sorts by (time, who, order of creation)."""

    __slots__ = ("order",)

    order: tuple[int, int, int]

    def __lt__(self, other: Any) -> bool:
        return bool(self.order < other.order)


# The abstract loop has some forty methods for sockets and processes; a simulated one has no use for them.
_LoopBase: Any = asyncio.AbstractEventLoop


class VirtualLoop(_LoopBase):  # type: ignore[misc]
    """An event loop with simulated time; its `now_ns` is the engine's clock."""

    def __init__(self, start_ns: int = 0) -> None:
        self._now_ns = start_ns
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[VirtualTimer] = []
        self._counter = 0
        self._n_cancelled = 0
        self._running = False
        self._closed = False
        self.failures: list[dict[str, Any]] = []
        """Exceptions nobody awaited, as asyncio reports them."""

    # --- the clock -----------------------------------------------------------------------------------

    def now_ns(self) -> int:
        """Virtual nanoseconds since 1970 UTC."""
        return self._now_ns

    def time(self) -> float:
        return self._now_ns / NS_PER_S

    def set_time(self, now_ns: int) -> None:
        """Start a conversation at its own time; only while nothing is scheduled."""
        self._now_ns = now_ns

    async def sleep_until(self, moment_ns: int) -> None:
        """Wait until `moment_ns`, and until the engine has done all that is due by then.

        Returns at once when the engine has nothing to do by then: time moves, and who asked would be next anyway.
        """
        moment_ns = max(moment_ns, self._now_ns)
        if not self._ready and not self._is_due(moment_ns):
            self._now_ns = moment_ns
            return
        future = self.create_future()
        self._push(moment_ns, _CONVERSATION, future.set_result, (None,), None)
        await future

    def _is_due(self, moment_ns: int) -> bool:
        """Whether any timer comes up to that moment."""
        self._drop_cancelled()
        return bool(self._timers) and self._timers[0].order[0] <= moment_ns

    # --- scheduling, as asyncio asks for it ----------------------------------------------------------

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        moment_ns = self._now_ns + max(round(delay * NS_PER_S), 0)
        return self._push(moment_ns, _ENGINE, callback, args, context)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        # `when` is a float of seconds since 1970, exact to about 0.2 us only: take the distance, not the sum.
        return self.call_later(when - self.time(), callback, *args, context=context)

    def _push(
        self,
        moment_ns: int,
        who: int,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: Context | None,
    ) -> VirtualTimer:
        timer = VirtualTimer(moment_ns / NS_PER_S, callback, args, self, context)
        self._counter += 1
        timer.order = (moment_ns, who, self._counter)
        heapq.heappush(self._timers, timer)
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Cancelled timers are dropped when they reach the top, or all at once when they are the majority."""
        self._n_cancelled += 1
        if self._n_cancelled > 64 and self._n_cancelled * 2 > len(self._timers):
            self._timers[:] = [timer for timer in self._timers if not timer.cancelled()]
            heapq.heapify(self._timers)
            self._n_cancelled = 0

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: str | None = None, context: Context | None = None) -> asyncio.Task[Any]:
        return asyncio.Task(coro, loop=self, name=name, context=context)

    # --- running -------------------------------------------------------------------------------------

    def run_until_complete(self, future: Any) -> Any:
        """Run until `future` (a coroutine or a future) is done, and return its result."""
        outer, outer_task = _set_aside_running_loop()
        _events._set_running_loop(self)
        self._running = True
        try:
            main = asyncio.ensure_future(future, loop=self)
            self._run_until(main)
            return main.result()
        finally:
            self._running = False
            _restore_running_loop(outer, outer_task)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """`run_until_complete`, typed; afterwards tasks that are left are cancelled."""
        try:
            result: T = self.run_until_complete(coroutine)
            return result
        finally:
            self._cancel_leftovers()

    def _run_until(self, main: asyncio.Future[Any]) -> None:
        ready, timers = self._ready, self._timers
        while not main.done():
            while ready:
                handle = ready.popleft()
                if not handle._cancelled:
                    handle._run()
            if main.done():
                return
            self._drop_cancelled()
            if not timers:
                main.cancel()
                if not ready:
                    raise RuntimeError("the virtual loop has nothing left to do, but its task isn't done")
                continue
            timer = heapq.heappop(timers)
            self._now_ns = max(self._now_ns, timer.order[0])
            timer._run()

    def _drop_cancelled(self) -> None:
        timers = self._timers
        while timers and timers[0]._cancelled:
            heapq.heappop(timers)

    def _cancel_leftovers(self) -> None:
        leftovers = [task for task in asyncio.all_tasks(self) if not task.done()]
        for task in leftovers:
            task.cancel()
        if leftovers:
            self.run_until_complete(_gather_quietly(leftovers))
        self._timers.clear()

    def is_running(self) -> bool:
        return self._running

    def is_closed(self) -> bool:
        return self._closed

    def stop(self) -> None:
        """Nothing to stop: the loop runs one task to its end."""

    def close(self) -> None:
        self._closed = True
        self._ready.clear()
        self._timers.clear()

    def get_debug(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.failures.append(context)

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.failures.append(context)

    async def shutdown_asyncgens(self) -> None:
        """Async generators are finalised by their own tasks."""


async def _gather_quietly(tasks: list[asyncio.Task[Any]]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)


def _set_aside_running_loop() -> tuple[asyncio.AbstractEventLoop | None, asyncio.Task[Any] | None]:
    """Take a running loop (a notebook's) out of the way; asyncio allows one running loop per thread."""
    outer = _events._get_running_loop()
    if outer is None:
        return None, None
    task = asyncio.current_task(outer)
    if task is not None:
        asyncio.tasks._leave_task(outer, task)
    return outer, task


def _restore_running_loop(outer: asyncio.AbstractEventLoop | None, task: asyncio.Task[Any] | None) -> None:
    _events._set_running_loop(outer)
    if outer is not None and task is not None:
        asyncio.tasks._enter_task(outer, task)
