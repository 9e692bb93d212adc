"""Keeping a search index behind the writes, and an embedder that needs no model.

In: events that have just been stored. Out: their texts with vectors, handed to whoever keeps the index, in
the background unless told otherwise. A failure is a warning and never undoes the write. Implements SUM-SCH-05.
"""

from __future__ import annotations

import asyncio
import logging
import math
import zlib
from collections.abc import Awaitable, Callable, Sequence

from workbench.errors import ConfigError
from workbench.session.types import Event, SessionKey
from workbench.store.search import Embedder, IndexedText, IndexTextBuilder, document_terms, indexed_texts, vector_norm

logger = logging.getLogger(__name__)

DEFAULT_DIMENSION = 1536
DEFAULT_INDEX_TIMEOUT_S = 30.0

IndexWriter = Callable[[Sequence[IndexedText]], Awaitable[None]]


class HashEmbedder:
    """Vectors from the terms of a text by hashing: texts that share words or CJK pairs are close.

    Knows no meanings, needs no model and no network, and gives the same vectors everywhere and for ever.
    """

    def __init__(self, dimension: int = DEFAULT_DIMENSION) -> None:
        if dimension < 1:
            raise ConfigError.for_field("dimension", dimension, "1 or more")
        self.dimension = dimension

    async def embed(self, texts: Sequence[str]) -> list[tuple[float, ...]]:
        return [self.vector_of(text) for text in texts]

    def vector_of(self, text: str) -> tuple[float, ...]:
        """A vector of length 1; all zeros for a text without terms."""
        numbers = [0.0] * self.dimension
        for term, n in document_terms(text).items():
            code = zlib.crc32(term.encode("utf-8", "surrogatepass"))
            # The sign keeps terms that fall on the same number from adding up.
            numbers[(code >> 1) % self.dimension] += (1 if code & 1 else -1) * (1 + math.log(n))
        norm = vector_norm(numbers) or 1.0
        return tuple(number / norm if number else 0.0 for number in numbers)

    def __repr__(self) -> str:
        return f"HashEmbedder({self.dimension})"


class EventIndexer:
    """Turns stored events into indexed texts with vectors, after each write.

    Args:
        write: Puts texts into the index.
        dimension: Numbers per vector that the index holds; must be the embedder's.
        text_builder: May rewrite a text, or answer a blank one to leave it out.
        timeout_s: Seconds that embedding and writing one event may take together.
        sync_indexing: Wait for the index after each write; default is a task in the background.
    Raises:
        ConfigError: the embedder makes vectors of another dimension.
    """

    def __init__(
        self,
        embedder: Embedder,
        write: IndexWriter,
        *,
        dimension: int = DEFAULT_DIMENSION,
        text_builder: IndexTextBuilder | None = None,
        timeout_s: float = DEFAULT_INDEX_TIMEOUT_S,
        sync_indexing: bool = False,
        first_choice_only: bool = False,
    ) -> None:
        if embedder.dimension != dimension:
            raise ConfigError.for_field(
                "dimension", dimension, f"{embedder.dimension}, the embedder's", hint="set both alike"
            )
        self._embedder = embedder
        self._write = write
        self._text_builder = text_builder
        self._timeout_s = timeout_s
        self._sync_indexing = sync_indexing
        self._first_choice_only = first_choice_only
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    async def after_append(self, key: SessionKey, event: Event, *, session_created_ns: int = 0) -> None:
        """Index an event that has been stored; returns at once unless `sync_indexing` is on. Never raises."""
        if self._closed:
            logger.warning("an event was stored after its index had been closed; it isn't searchable")
            return
        work = self._index(key, event, session_created_ns)
        if self._sync_indexing:
            await work
            return
        task = asyncio.get_running_loop().create_task(work, name="index-event")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _index(self, key: SessionKey, event: Event, session_created_ns: int) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                texts = indexed_texts(
                    key,
                    event,
                    session_created_ns=session_created_ns,
                    text_builder=self._text_builder,
                    first_choice_only=self._first_choice_only,
                )
                if texts:
                    vectors = await self._embedder.embed([text.text for text in texts])
                    await self._write([self._with_vector(*pair) for pair in zip(texts, vectors, strict=True)])
        except Exception as error:
            logger.warning("indexing an event failed (%s); it is stored, but not searchable", type(error).__name__)

    def _with_vector(self, text: IndexedText, vector: Sequence[float]) -> IndexedText:
        if len(vector) != self._embedder.dimension:
            raise ConfigError.for_field("vector", len(vector), f"{self._embedder.dimension} numbers")
        return text.with_vector(vector)

    async def drain(self) -> None:
        """Wait until everything stored so far is indexed or has failed."""
        while self._tasks:
            await asyncio.gather(*self._tasks)

    async def close(self) -> None:
        """Index what is waiting, then take nothing more; calling it again is harmless."""
        self._closed = True
        await self.drain()
