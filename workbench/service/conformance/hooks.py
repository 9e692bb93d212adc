"""Checks of the chains of hooks around appending and reading."""

from __future__ import annotations

from typing import Any

from workbench.call import CallContext
from workbench.service.conformance.material import (
    KEY,
    ids,
    loaded,
    raw_events,
    said,
    session_with,
)
from workbench.service.conformance.suite import Bench, check, expect, expect_equal, expect_error

HOOKS = "hooks"


@check(HOOKS, "SUM-SVC-05")
async def append_hooks_run_in_order_the_first_outermost(bench: Bench) -> None:
    order: list[str] = []

    def hook(name: str) -> Any:
        async def run(context: Any, following: Any) -> None:
            order.append(f"into {name}")
            await following()
            order.append(f"out of {name}")

        return run

    service = await bench.service(options={"append_event_hooks": [hook("a"), hook("b"), hook("c")]})
    await session_with(service, [said(1)])
    expect_equal(order, ["into a", "into b", "into c", "out of c", "out of b", "out of a"], "order of append hooks")


@check(HOOKS, "SUM-SVC-05")
async def an_append_hook_may_change_the_event(bench: Bench) -> None:
    async def hook(context: Any, following: Any) -> None:
        context.event = context.event.replace(filter_key="app/branch")
        await following()

    service = await bench.service(options={"append_event_hooks": [hook]})
    live = await session_with(service)
    stored = await service.append_event(live, said(1))
    for what, event in (
        ("the answer", stored),
        ("the live session", live.events[0]),
        ("the store", (await raw_events(service))[0]),
    ):
        expect_equal(event.filter_key, "app/branch", f"filter key in {what}")


@check(HOOKS, "SUM-SVC-05")
async def an_append_hook_that_goes_no_further_stops_storage(bench: Bench) -> None:
    async def hook(context: Any, following: Any) -> None:
        if context.event.id != "e2":
            await following()

    service = await bench.service(options={"append_event_hooks": [hook]})
    live = await session_with(service, [said(1)])
    dropped = await service.append_event(live, said(2, state_delta={"a": b"1"}))
    expect(dropped is None, "append_event answers with an event that a hook has dropped")
    expect_equal((ids(live.events), live.state), (["e1"], {}), "events and state of the live session")
    expect_equal(ids(await raw_events(service)), ["e1"], "stored events")
    expect_equal((await loaded(service)).state, {}, "stored state")


@check(HOOKS, "SUM-SVC-05")
async def an_error_of_an_append_hook_reaches_the_caller_and_stores_nothing(bench: Bench) -> None:
    async def hook(context: Any, following: Any) -> None:
        raise LookupError("hook")

    service = await bench.service(options={"append_event_hooks": [hook]})
    live = await session_with(service)
    await expect_error(service.append_event(live, said(1)), LookupError, "appending with a hook that raises")
    expect_equal((ids(live.events), ids(await raw_events(service))), ([], []), "live and stored events")


@check(HOOKS, "SUM-SVC-05")
async def an_append_hook_sees_session_event_and_context(bench: Bench) -> None:
    seen: list[Any] = []

    async def hook(context: Any, following: Any) -> None:
        seen.extend((context.session, context.event.id, context.ctx.value("tenant")))
        await following()
        seen.append(len(context.session.events))

    service = await bench.service(options={"append_event_hooks": [hook]})
    live = await session_with(service)
    await service.append_event(live, said(1), ctx=CallContext().with_value("tenant", "acme"))
    expect(bool(seen) and seen[0] is live, "the hook doesn't see the caller's session")
    expect_equal(seen[1:], ["e1", "acme", 1], "event, context value, and events behind the hook's next step")


@check(HOOKS, "SUM-SVC-05")
async def get_hooks_run_in_order_the_first_outermost(bench: Bench) -> None:
    order: list[str] = []

    def hook(name: str) -> Any:
        async def run(context: Any, following: Any) -> None:
            order.append(f"into {name}")
            await following()
            order.append(f"out of {name}")

        return run

    service = await bench.service(options={"get_session_hooks": [hook("a"), hook("b")]})
    await session_with(service)
    order.clear()
    await loaded(service)
    expect_equal(order, ["into a", "into b", "out of b", "out of a"], "order of get hooks")


@check(HOOKS, "SUM-SVC-05")
async def a_get_hook_sees_the_session_and_may_replace_it(bench: Bench) -> None:
    seen: list[Any] = []

    async def hook(context: Any, following: Any) -> None:
        await following()
        seen.append(ids(context.session.events))
        twin = context.session.clone()
        twin.state["seen"] = context.ctx.value("tenant")
        context.session = twin

    service = await bench.service(options={"get_session_hooks": [hook]})
    await session_with(service, [said(1)])
    session = await loaded(service, ctx=CallContext().with_value("tenant", b"acme"))
    expect_equal(seen, [["e1"]], "events that the hook saw")
    expect_equal(session.state, {"seen": b"acme"}, "state of the session that the hook put in place")


@check(HOOKS, "SUM-SVC-05")
async def a_get_hook_that_goes_no_further_decides_alone(bench: Bench) -> None:
    async def hook(context: Any, following: Any) -> None:
        """Reads nothing."""

    service = await bench.service(options={"get_session_hooks": [hook]})
    await session_with(service, [said(1)])
    expect(await service.get_session(KEY) is None, "a session is read although the hook stopped it")


@check(HOOKS, "SUM-SVC-05")
async def an_error_of_a_get_hook_reaches_the_caller(bench: Bench) -> None:
    async def hook(context: Any, following: Any) -> None:
        raise LookupError("hook")

    service = await bench.service(options={"get_session_hooks": [hook]})
    await session_with(service, [said(1)])
    await expect_error(service.get_session(KEY), LookupError, "reading with a hook that raises")
