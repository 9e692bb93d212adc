"""Over which store the cases of the session service run.

In: a name. Out: fresh stores; those of a database lie in a temporary folder that goes at the end of the `with`
block.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from workbench.errors import ConfigError, nearest_name
from workbench.store.base import SessionStore
from workbench.store.memory import InMemoryStore

StoreMaker = Callable[[int], SessionStore]
"""A store that returns at most so many events of a session."""


def _in_memory(event_limit: int) -> SessionStore:
    return InMemoryStore(event_limit=event_limit)


_maker: ContextVar[StoreMaker] = ContextVar("store maker", default=_in_memory)


def new_store(*, event_limit: int) -> SessionStore:
    """An empty store of the kind that is in force."""
    return _maker.get()(event_limit)


@contextmanager
def stores_of(kind: str) -> Iterator[None]:
    """Cases inside the `with` block keep their sessions in stores of this kind.

    Raises:
        ConfigError: there is no such kind.
    """
    if kind not in STORES:
        raise ConfigError.for_field("store", kind, ", ".join(STORES), hint=nearest_name(kind, STORES))
    with STORES[kind]() as maker:
        token = _maker.set(maker)
        try:
            yield
        finally:
            _maker.reset(token)


@contextmanager
def _memory() -> Iterator[StoreMaker]:
    yield _in_memory


@contextmanager
def _duckdb() -> Iterator[StoreMaker]:
    from workbench.store.duckdb.journal import journal_path
    from workbench.store.duckdb.store import DuckDBStore

    with TemporaryDirectory(prefix="workbench-cases-") as folder:
        empty = Path(folder) / "empty.duckdb"
        DuckDBStore(empty).close_now()
        numbers = count(1)

        def make(event_limit: int) -> SessionStore:
            path = Path(folder) / f"{next(numbers)}.duckdb"  # a copy of an empty file: making one takes longer
            shutil.copy(empty, path)
            shutil.copy(journal_path(empty), journal_path(path))
            return DuckDBStore(path, event_limit=event_limit)

        yield make


STORES = {"memory": _memory, "duckdb": _duckdb}
