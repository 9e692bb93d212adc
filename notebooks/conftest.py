"""Keeps the cells of a notebook in order, since pytest's random order would shuffle them."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort cells by notebook and number; anything else stays where it is."""
    places = [place for place, item in enumerate(items) if hasattr(item, "cell_num")]
    cells = sorted((items[place] for place in places), key=lambda item: (item.path, item.cell_num))
    for place, cell in zip(places, cells, strict=True):
        items[place] = cell
