"""Runs that speak for a configuration: a baseline and a tuned one over twelve small conversations."""

from __future__ import annotations

import json

import pytest

import workbench as wb
from tests.replay.conftest import chat, config, summarising
from workbench.config import RunConfig
from workbench.replay.runs import RunSet

TUNED = summarising("tuned", token=150, model={"context_window": 1_500})


@pytest.fixture(scope="session")
def tuned() -> RunConfig:
    return TUNED


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> RunSet:
    folder = tmp_path_factory.mktemp("evidence")
    lines = [json.dumps(chat(3 + i % 4, ident=f"c{i}"), ensure_ascii=False) for i in range(12)]
    (folder / "chats.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    recordings = wb.load_recordings(folder / "chats.jsonl")
    configs = [
        config(name="no summary", model={"context_window": 1_500}),
        TUNED,
        summarising("never", token=1_000_000, model={"context_window": 1_500}),
    ]
    return wb.replay(recordings, configs, runs=folder / "runs")
