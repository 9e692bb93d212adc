"""A local endpoint for the examples that name a real model, and the seed document itself."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tools import seed_table
from workbench.selftest.fake_server import FakeServer


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer() as running:
        yield running


@pytest.fixture(scope="session")
def seed_text(shared_path) -> str:
    """The seed document; skips where it isn't beside the checkout."""
    text = seed_table.seed_text()
    if text is None:
        pytest.skip("the seed document is not here: put it beside the checkout as shared/spec/seed")
    return text


@pytest.fixture(scope="session")
def seed_blocks(seed_text) -> list[seed_table.Block]:
    return seed_table.blocks_of(seed_text)
