"""The virtual loop: asyncio in simulated time (WB-RPL-08)."""

from __future__ import annotations

import asyncio

import pytest

from workbench.clock import NS_PER_S
from workbench.replay.loop import VirtualLoop


def test_sleep_moves_virtual_time_and_costs_no_real_time() -> None:
    loop = VirtualLoop(1000 * NS_PER_S)

    async def sleeper() -> int:
        await asyncio.sleep(86_400)
        return loop.now_ns()

    assert loop.run(sleeper()) == (1000 + 86_400) * NS_PER_S


def test_work_of_the_engine_due_at_a_moment_is_done_before_the_conversation_goes_on() -> None:
    """WB-RPL-08: before a call, all completions up to its time are applied, also those at its very time."""
    loop = VirtualLoop()
    seen: list[str] = []

    async def summary() -> None:
        await asyncio.sleep(20)
        seen.append("written")

    async def conversation() -> None:
        task = asyncio.create_task(summary())
        await loop.sleep_until(20 * NS_PER_S)
        seen.append("call")
        await task

    loop.run(conversation())
    assert seen == ["written", "call"]


def test_a_past_moment_still_waits_for_what_is_ready() -> None:
    loop = VirtualLoop(100)
    seen: list[str] = []

    async def job() -> None:
        seen.append("job")

    async def main() -> None:
        task = asyncio.create_task(job())
        await loop.sleep_until(50)
        seen.append("main")
        await task

    loop.run(main())
    assert seen == ["job", "main"]
    assert loop.now_ns() == 100


def test_a_later_moment_is_reached_at_once_when_nothing_is_due_before_it() -> None:
    loop = VirtualLoop()

    async def main() -> None:
        later = loop.call_later(20, lambda: None)
        for moment in (10, 30):
            with pytest.raises(StopIteration):  # it ends without waiting: no task is woken for it
                loop.sleep_until(moment * NS_PER_S).send(None)
            assert loop.now_ns() == moment * NS_PER_S
            later.cancel()

    loop.run(main())


def test_a_past_moment_never_turns_time_back() -> None:
    loop = VirtualLoop(100)
    loop.run(loop.sleep_until(50))
    assert loop.now_ns() == 100


def test_a_timer_of_the_engine_at_the_very_moment_comes_first() -> None:
    """WB-RPL-08: also when nothing else waits."""
    loop = VirtualLoop()
    seen: list[str] = []

    async def main() -> None:
        loop.call_later(20, seen.append, "written")
        await loop.sleep_until(20 * NS_PER_S)
        seen.append("call")

    loop.run(main())
    assert seen == ["written", "call"]


def test_what_is_due_on_the_way_to_a_moment_happens_at_its_own_time() -> None:
    loop = VirtualLoop()
    seen: list[tuple[str, int]] = []

    async def summary() -> None:
        for _ in range(2):
            await asyncio.sleep(7)
            seen.append(("step", loop.now_ns() // NS_PER_S))

    async def conversation() -> None:
        task = asyncio.create_task(summary())
        await loop.sleep_until(20 * NS_PER_S)
        seen.append(("call", loop.now_ns() // NS_PER_S))
        await task

    loop.run(conversation())
    assert seen == [("step", 7), ("step", 14), ("call", 20)]


def test_timers_of_one_moment_fire_in_the_order_they_were_made() -> None:
    loop = VirtualLoop()
    order: list[int] = []

    async def main() -> None:
        for i in range(5):
            loop.call_later(1, order.append, i)
        await asyncio.sleep(2)

    loop.run(main())
    assert order == [0, 1, 2, 3, 4]


def test_a_timeout_of_the_engine_uses_virtual_time() -> None:
    loop = VirtualLoop()

    async def main() -> int:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(60):
                await asyncio.Event().wait()
        return loop.now_ns()

    assert loop.run(main()) == 60 * NS_PER_S


def test_cancelled_timers_neither_fire_nor_move_time() -> None:
    loop = VirtualLoop()

    async def main() -> int:
        for _ in range(1000):
            loop.call_later(500, pytest.fail, "fired").cancel()
        await asyncio.sleep(1)
        return loop.now_ns()

    assert loop.run(main()) == NS_PER_S


def test_it_runs_inside_another_running_loop_and_gives_it_back() -> None:
    """WB-API-01: a notebook's loop is running in the same thread."""

    async def notebook() -> tuple[float, bool]:
        outer_task = asyncio.current_task()
        inner = VirtualLoop().run(asyncio.sleep(3600, result=7.0))
        await asyncio.sleep(0)
        return inner, asyncio.current_task() is outer_task

    assert asyncio.run(notebook()) == (7.0, True)


def test_a_task_that_can_never_end_is_an_error_and_no_hang() -> None:
    loop = VirtualLoop()

    async def stuck() -> None:
        await asyncio.Event().wait()

    with pytest.raises((RuntimeError, asyncio.CancelledError)):
        loop.run(stuck())


def test_tasks_left_over_are_cancelled_at_the_end() -> None:
    loop = VirtualLoop()
    ended: list[str] = []

    async def worker() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("worker")

    async def main() -> None:
        asyncio.create_task(worker())  # noqa: RUF006 - left over on purpose
        await asyncio.sleep(0)

    loop.run(main())
    assert ended == ["worker"]
