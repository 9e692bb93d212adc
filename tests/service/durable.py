"""A durable service, and faulty ones, for tests of the contract."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from workbench.errors import SessionNotFoundError
from workbench.service.conformance import Capabilities
from workbench.service.service import SessionService
from workbench.service.settings import ServiceSettings
from workbench.session.types import SessionKey
from workbench.store.memory import InMemoryStore


class KeptStore(InMemoryStore):
    """What a durable store keeps while nothing is open; deleted rows stay, hidden."""

    def __init__(self, *, event_limit: int = 0) -> None:
        super().__init__(event_limit=event_limit)
        self.deleted: list[SessionKey] = []

    async def delete(self, key: SessionKey) -> None:
        if key in self._rows:
            self.deleted.append(key)
        await super().delete(key)

    def opened(self, *, event_limit: int) -> KeptStore:
        self._event_limit = event_limit
        return self


class QueuedStore:
    """Writes events in the background, in order; everything else goes to the store behind it."""

    def __init__(self, behind: InMemoryStore, *, buffer: int) -> None:
        self._behind = behind
        self._queue: asyncio.Queue[Any] = asyncio.Queue(buffer)
        self._writer: asyncio.Task[None] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._behind, name)

    async def append(self, *args: Any, **facts: Any) -> None:
        if self._writer is None:
            self._writer = asyncio.create_task(self._write())
        await self._queue.put((args, facts))

    async def _write(self) -> None:
        while True:
            args, facts = await self._queue.get()
            try:
                await self._behind.append(*args, **facts)
            except SessionNotFoundError:
                logging.getLogger(__name__).warning("an event couldn't be written")
            finally:
                self._queue.task_done()

    async def close(self) -> None:
        await self._queue.join()
        if self._writer is not None:
            self._writer.cancel()


class Durable:
    """A factory, and how its services are opened again.

    Args:
        store: Class of what is kept.
        queued: Class that stands before it where events are to be written in the background.
    """

    def __init__(self, store: type[KeptStore] = KeptStore, queued: type[QueuedStore] = QueuedStore) -> None:
        self._store, self._queued = store, queued
        self._kept: KeptStore | None = None

    async def make(self, settings: ServiceSettings, clock: Any, summarizer: Any = None, **options: Any) -> Any:
        self._kept = self._store(event_limit=settings.event_limit)
        return self._service(settings, clock, summarizer, **options)

    async def reopen(self, settings: ServiceSettings, clock: Any, summarizer: Any = None, **options: Any) -> Any:
        assert self._kept is not None
        self._kept = self._kept.opened(event_limit=settings.event_limit)
        return self._service(settings, clock, summarizer, **options)

    def _service(
        self, settings: ServiceSettings, clock: Any, summarizer: Any, *, buffer: int = 0, **options: Any
    ) -> Any:
        assert self._kept is not None
        store: Any = self._queued(self._kept, buffer=buffer) if buffer else self._kept
        return SessionService(store, settings=settings, clock=clock, summarizer=summarizer, **options)

    async def deleted_rows(self, service: Any, key: SessionKey) -> int:
        assert self._kept is not None
        return self._kept.deleted.count(key)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(self.reopen, self.deleted_rows, {"buffer": 10})


class OpensEmpty(KeptStore):
    def opened(self, *, event_limit: int) -> KeptStore:
        return type(self)(event_limit=event_limit)


class LosesSummariesByReopening(KeptStore):
    def opened(self, *, event_limit: int) -> KeptStore:
        for row in self._rows.values():
            row.session.summaries.clear()
        return super().opened(event_limit=event_limit)


class NeverExpiresAfterReopening(KeptStore):
    def opened(self, *, event_limit: int) -> KeptStore:
        for row in self._rows.values():
            row.expires_ns = 0
        return super().opened(event_limit=event_limit)


class RemovesDeletedRows(KeptStore):
    async def delete(self, key: SessionKey) -> None:
        await InMemoryStore.delete(self, key)


class ForgetsItsQueue(QueuedStore):
    async def close(self) -> None:
        if self._writer is not None:
            self._writer.cancel()


class WritesTheNewestFirst(QueuedStore):
    def __init__(self, behind: InMemoryStore, *, buffer: int) -> None:
        super().__init__(behind, buffer=buffer)
        self._queue = asyncio.LifoQueue(buffer)


class QueuesForWhoHasGivenUp(QueuedStore):
    async def append(self, *args: Any, **facts: Any) -> None:
        await asyncio.shield(super().append(*args, **facts))


class StopsAtTheFirstError(QueuedStore):
    async def _write(self) -> None:
        while True:
            args, facts = await self._queue.get()
            self._queue.task_done()
            try:
                await self._behind.append(*args, **facts)
            except SessionNotFoundError:
                while True:
                    await self._queue.get()
                    self._queue.task_done()


DURABLE_FAULTS: dict[str, tuple[str, Durable]] = {
    "OpensEmpty": ("reopening", Durable(OpensEmpty)),
    "LosesSummariesByReopening": ("reopening", Durable(LosesSummariesByReopening)),
    "NeverExpiresAfterReopening": ("reopening", Durable(NeverExpiresAfterReopening)),
    "RemovesDeletedRows": ("soft delete", Durable(RemovesDeletedRows)),
    "ForgetsItsQueue": ("asynchronous persistence", Durable(queued=ForgetsItsQueue)),
    "WritesTheNewestFirst": ("asynchronous persistence", Durable(queued=WritesTheNewestFirst)),
    "QueuesForWhoHasGivenUp": ("asynchronous persistence", Durable(queued=QueuesForWhoHasGivenUp)),
    "StopsAtTheFirstError": ("asynchronous persistence", Durable(queued=StopsAtTheFirstError)),
}
