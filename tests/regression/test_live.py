"""Recording with a live model: asked once, for what is missing; a check alone asks nobody."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.regression.conftest import CONFIG, HEAD, WITH_CASSETTE, SuiteFolder, failing
from workbench.errors import ModelError
from workbench.model.cassette import Cassette
from workbench.selftest.fake_server import FakeServer, answers, refusal, saying

CANARY = "sk-canary-0000-Rg5uPmWe2yQa9"
RULES = """
[summaries]
max_words = 60
[[judges]]
name = "faithful"
question = "Is it true?"
min_share = 0.5
replicates = 6
model = "judge"
base_url = "{address}"
api_key_env = "CHECK_CANARY"
cassette = "judgements.jsonl"
"""
LIVE = """
[config.summaries]
source = "live"
model = "writer"
base_url = "{address}"
api_key_env = "CHECK_CANARY"
"""


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer() as running:
        running.script("writer", saying("订单和物流已经处理完毕，编号 A1000。"))
        running.script("judge", saying("yes"))
        yield running


@pytest.fixture
def live(mine: SuiteFolder, server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> SuiteFolder:
    monkeypatch.setenv("CHECK_CANARY", CANARY)
    monkeypatch.delenv("WORKBENCH_FORBID_MODEL_CALLS", raising=False)
    address = server.base_url
    mine.write(
        RULES.replace("{address}", address),
        head=HEAD + WITH_CASSETTE,
        config=CONFIG + LIVE.replace("{address}", address),
    )
    return mine


def test_a_check_alone_asks_nobody(live: SuiteFolder, server: FakeServer) -> None:
    """WB-REG-04: even where the configuration names a live model."""
    assert failing(live.check()) == ["cassette"]
    assert server.calls() == 0


def test_what_is_missing_is_asked_for_once_and_no_key_is_kept(live: SuiteFolder, server: FakeServer) -> None:
    """WB-REG-04, WB-REG-06, SEC-08."""
    recorded = live.check(record=True)
    n_summaries, n_judgements = server.calls("writer"), server.calls("judge")
    assert n_summaries == len(Cassette(live.folder / "answers.jsonl")) > 3
    assert n_judgements == len(Cassette(live.folder / "judgements.jsonl")) > 20
    assert recorded.passed
    assert live.check(record=True).rows() == live.check().rows() == recorded.rows()
    assert (server.calls("writer"), server.calls("judge")) == (n_summaries, n_judgements)
    live.check(accept=True)
    written = [path for path in live.folder.iterdir() if path.is_file()]
    assert len(written) == 5
    assert [path.name for path in written if CANARY in path.read_text(encoding="utf-8")] == []


def test_a_model_that_refuses_stops_the_recording(live: SuiteFolder, server: FakeServer) -> None:
    """WB-REG-04: it isn't asked for each further summary."""
    server.script("writer", answers(refusal("no such key", code="invalid_api_key"), "401 Unauthorized"))
    with pytest.raises(ModelError):
        live.check(record=True)
    assert server.calls("writer") <= 2
