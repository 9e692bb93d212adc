"""Indexing behind the writes, and the embedder without a model."""

import asyncio
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.clock import NS_PER_S
from workbench.errors import ConfigError
from workbench.model.types import Message, response_of
from workbench.replay.loop import VirtualLoop
from workbench.session.types import Event, SessionKey
from workbench.store.indexing import DEFAULT_DIMENSION, EventIndexer, HashEmbedder
from workbench.store.search import cosine_similarity

KEY = SessionKey("garden", "ada", "now")


def said(event_id, text):
    return Event(id=event_id, time_ns=1, response=response_of(Message("user", text)))


class Index:
    def __init__(self):
        self.texts = []

    async def write(self, texts):
        self.texts.extend(texts)

    def ids(self):
        return [text.event.id for text in self.texts]


class Gated(HashEmbedder):
    """Embeds only once it is let."""

    def __init__(self):
        super().__init__(8)
        self.open = asyncio.Event()

    async def embed(self, texts):
        await self.open.wait()
        return await super().embed(texts)


def test_indexing_runs_in_the_background_and_can_be_waited_for():
    """SUM-SCH-05."""

    async def story():
        index, embedder = Index(), Gated()
        indexer = EventIndexer(embedder, index.write, dimension=8)
        await indexer.after_append(KEY, said("a", "pear"), session_created_ns=7)
        assert index.ids() == []
        embedder.open.set()
        await indexer.drain()
        return index

    (text,) = asyncio.run(story()).texts
    assert (text.event.id, text.session_key, text.session_created_ns, len(text.vector)) == ("a", KEY, 7, 8)


def test_sync_indexing_waits_after_each_write():
    """SUM-SCH-05."""

    async def story():
        index = Index()
        indexer = EventIndexer(HashEmbedder(8), index.write, dimension=8, sync_indexing=True)
        await indexer.after_append(KEY, said("a", "pear"))
        return index.ids()

    assert asyncio.run(story()) == ["a"]


def test_nothing_is_embedded_for_an_event_that_is_no_history():
    """SUM-SCH-02, SUM-SCH-05."""

    async def story():
        index = Index()
        indexer = EventIndexer(
            HashEmbedder(8),
            index.write,
            dimension=8,
            sync_indexing=True,
            text_builder=lambda event, text: text[:4].strip(),
        )
        for text in ("", "    x", "pears"):
            await indexer.after_append(KEY, said(text or "blank", text))
        return [text.text for text in index.texts]

    assert asyncio.run(story()) == ["x", "pear"]


@pytest.mark.parametrize("sync_indexing", [True, False])
def test_a_failure_is_a_warning_and_nothing_more(sync_indexing, caplog):
    """SUM-SCH-05: also that of an embedder which breaks its word about the dimension."""

    class Broken(HashEmbedder):
        async def embed(self, texts):
            if "short" in texts[0]:
                return [(1.0,)]
            raise RuntimeError("no network")

    async def story():
        index = Index()
        indexer = EventIndexer(Broken(8), index.write, dimension=8, sync_indexing=sync_indexing)
        for text in ("short pear", "pear"):
            await indexer.after_append(KEY, said(text, text))
        await indexer.close()
        return index.ids()

    with caplog.at_level(logging.WARNING):
        assert asyncio.run(story()) == []
    assert [name in caplog.text for name in ("ConfigError", "RuntimeError")] == [True, True]
    assert "pear" not in caplog.text


def test_indexing_an_event_may_take_thirty_seconds(caplog):
    """SUM-SCH-05."""

    async def story():
        indexer = EventIndexer(Gated(), Index().write, dimension=8, sync_indexing=True)
        await indexer.after_append(KEY, said("a", "pear"))

    loop = VirtualLoop()
    with caplog.at_level(logging.WARNING):
        loop.run(story())
    assert loop.now_ns() == 30 * NS_PER_S
    assert "TimeoutError" in caplog.text


def test_closing_finishes_what_waits_and_takes_nothing_more(caplog):
    """SUM-SCH-05."""

    async def story():
        index = Index()
        indexer = EventIndexer(HashEmbedder(8), index.write, dimension=8)
        await indexer.after_append(KEY, said("a", "pear"))
        await indexer.close()
        await indexer.after_append(KEY, said("b", "plum"))
        await indexer.close()
        return index.ids()

    with caplog.at_level(logging.WARNING):
        assert asyncio.run(story()) == ["a"]
    assert "isn't searchable" in caplog.text


def test_the_dimension_is_1536_and_must_be_the_embedders():
    """SUM-SCH-05."""
    assert DEFAULT_DIMENSION == HashEmbedder().dimension == 1536
    EventIndexer(HashEmbedder(), Index().write)
    with pytest.raises(ConfigError, match="dimension"):
        EventIndexer(HashEmbedder(8), Index().write)
    with pytest.raises(ConfigError):
        HashEmbedder(0)


@given(st.text())
def test_hash_vectors_are_the_same_every_time_and_of_length_one(text):
    vector = HashEmbedder(32).vector_of(text)
    assert vector == HashEmbedder(32).vector_of(text)
    assert sum(number * number for number in vector) == pytest.approx(1) or not any(vector)


@pytest.mark.parametrize(
    ("text", "near", "far"),
    [
        ("the pear by the wall", "a pear at the wall", "irrigation pump gasket"),
        ("梨树种在南墙边", "南墙边的梨树", "水泵需要更换"),
        ("梨の木を植えた", "梨の木はどこ", "ポンプを交換"),
        ("배나무를 심었다", "배나무는 어디", "펌프 고리"),
    ],
)
def test_texts_that_share_terms_are_closer(text, near, far):
    embedder = HashEmbedder(512)
    assert cosine_similarity(embedder.vector_of(text), embedder.vector_of(near)) > 0.2
    assert cosine_similarity(embedder.vector_of(text), embedder.vector_of(far)) < 0.1
