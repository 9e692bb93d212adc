"""Where a replay's summaries come from, and how long they take (WB-RPL-07, -08).

In: a configuration. Out: the model that its summarizer calls.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import ClassVar

from workbench.build import live_summary_model
from workbench.call import CallContext
from workbench.config import RunConfig, SummariesSettings
from workbench.errors import ContentFilterError, ContextLengthError, ModelError, ReplayError
from workbench.model.cassette import Cassette, CassetteModel
from workbench.model.client import Model
from workbench.model.extractive import ExtractiveModel, answer_of, summary_text
from workbench.model.openai import OpenAIModel
from workbench.model.request_text import conversation_of, word_limit
from workbench.model.sized import SizedModel
from workbench.model.types import Request, Response
from workbench.tokens import LineCounter

SUMMARY_SOURCE_VERSION = "2"
"""Changes when a source would write another text for the same request; part of a run's identity."""


_MAX_TEXTS = 4_096


class SlowModel:
    """Another model, each of whose calls takes `latency_s` on the loop's clock."""

    def __init__(self, model: Model, latency_s: float) -> None:
        self._model = model
        self._latency_s = latency_s
        self.name = model.name
        self.context_window = model.context_window

    async def generate(self, ctx: CallContext, request: Request) -> AsyncIterator[Response]:
        await asyncio.sleep(self._latency_s)
        async for response in self._model.generate(ctx, request):
            yield response


class OutsideLoop:
    """A live model that is called without the event loop, whose time is virtual (WB-API-01)."""

    def __init__(self, model: OpenAIModel) -> None:
        self._model = model
        self.name = model.name
        self.context_window = model.context_window

    async def generate(self, ctx: CallContext, request: Request) -> AsyncIterator[Response]:
        for response in self._model.generate_blocking(request):
            yield response


class OnceExtractive(ExtractiveModel):
    """The extractive source, with its newest answers kept for the whole process.

    A text depends on nothing but conversation and word limit, so that configurations that ask for the same summary
    share it (WB-TUNE-02): the key is that input itself.
    """

    n_made: ClassVar[int] = 0
    """Texts made so far in this process."""
    _texts: ClassVar[OrderedDict[bytes, str]] = OrderedDict()

    async def generate(self, ctx: CallContext, request: Request) -> AsyncIterator[Response]:
        limit = word_limit(request) or self.max_words
        blocks = conversation_of(request)
        digest = hashlib.sha256(f"{SUMMARY_SOURCE_VERSION} {limit} {self.ledger_share}".encode())
        for block in blocks:
            for text in (block.role, block.label, block.text):
                data = text.encode("utf-8", "surrogatepass")
                digest.update(len(data).to_bytes(8) + data)
        key = digest.digest()
        known = self._texts
        if key in known:
            known.move_to_end(key)
        else:
            known[key] = summary_text(blocks, limit, ledger_share=self.ledger_share)
            OnceExtractive.n_made += 1
            if len(known) > _MAX_TEXTS:
                known.popitem(last=False)
        yield answer_of(self.name, known[key])


class WatchedModel:
    """Another model, with its first failure that says nothing about the request: a replay can't go on from it.

    In production the old summary stays and the run continues; a trace of that would show the network, not the
    configuration.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self.name = model.name
        self.context_window = model.context_window
        self.failure: ModelError | ReplayError | None = None

    async def generate(self, ctx: CallContext, request: Request) -> AsyncIterator[Response]:
        try:
            async for response in self._model.generate(ctx, request):
                yield response
        except (ContextLengthError, ContentFilterError):
            raise
        except (ModelError, ReplayError) as error:
            self.failure = self.failure or error
            raise


def summary_model(config: RunConfig, billing: LineCounter) -> Model:
    """The summary source that a configuration names.

    Raises:
        CassetteFormatError: its cassette can't be read.
    """
    settings = config.summaries
    model: Model
    if settings.source == "sized":
        model = SizedModel(settings.sized_tokens, billing, context_window=settings.context_window or 0)
    elif settings.source == "extractive" or config.summarizer is None:  # without a summarizer none is asked
        model = OnceExtractive(context_window=settings.context_window or 0)
    else:
        model = _recorded_or_live(settings)
    if settings.latency_s and settings.latency_s != "recorded":
        model = SlowModel(model, settings.latency_s)
    return model if settings.source in {"extractive", "sized"} else WatchedModel(model)


def _recorded_or_live(settings: SummariesSettings) -> CassetteModel:
    cassette = _cassette(Path(settings.cassette).absolute())
    window = settings.context_window or 0
    timed = settings.latency_s == "recorded"
    if settings.source == "cassette":
        return CassetteModel(cassette, name=settings.model, context_window=window, takes_recorded_time=timed)
    live = OutsideLoop(_live_model(settings))
    return CassetteModel(cassette, live, "auto", context_window=window, takes_recorded_time=timed)


@lru_cache(maxsize=16)
def _cassette(path: Path) -> Cassette:
    """The process's one reader of a file; it notices what other processes add."""
    return Cassette(path)


@lru_cache(maxsize=16)
def _live_model(settings: SummariesSettings) -> OpenAIModel:
    """The process's one client of an endpoint, which is worth more than a conversation takes."""
    return live_summary_model(settings)


def source_version(config: RunConfig) -> str:
    """What decides summaries beside configuration and data: part of a run's identity (WB-CFG-03).

    Raises:
        CassetteFormatError: the configuration's cassette can't be read.
    """
    settings = config.summaries
    if config.summarizer is not None and settings.source == "cassette":
        return f"{SUMMARY_SOURCE_VERSION} cassette {_cassette(Path(settings.cassette).absolute()).content_hash}"
    if config.summarizer is not None and settings.source == "live":
        return f"{SUMMARY_SOURCE_VERSION} live {settings.model}"
    return SUMMARY_SOURCE_VERSION


def tidy_cassettes(configs: Sequence[RunConfig]) -> None:
    """Sort the cassettes that a replay may have added to: the same file, whichever process was first."""
    for path in sorted({Path(config.summaries.cassette) for config in configs if config.summaries.source == "live"}):
        _cassette(path.absolute()).tidy()
