"""`run_sync`: run a coroutine of the service from a plain script."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from workbench.errors import WorkbenchError

T = TypeVar("T")


def run_sync(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine, from code that has no event loop.

    The loop ends with the coroutine: summaries still queued then are run by the service's next use or its
    `close`; `await service.wait_for_summaries()` inside the coroutine has them at its end.

    Raises:
        WorkbenchError: a loop is running already (a notebook, an async program): use `await` there.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    coroutine.close()
    raise WorkbenchError("an event loop is running already", hint="write `await ...` instead of `run_sync(...)`")
