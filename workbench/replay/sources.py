"""Where a replay's summaries come from, and how long they take (WB-RPL-07, -08).

In: a configuration. Out: the model that its summarizer calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from workbench.call import CallContext
from workbench.config import RunConfig
from workbench.model.client import Model
from workbench.model.extractive import ExtractiveModel
from workbench.model.sized import SizedModel
from workbench.model.types import Request, Response
from workbench.tokens import LineCounter

SUMMARY_SOURCE_VERSION = "1"
"""Changes when a source would write another text for the same request; part of a run's identity."""


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


def summary_model(config: RunConfig, billing: LineCounter) -> Model:
    """The summary source that a configuration names."""
    model: Model
    if config.summaries.source == "sized":
        model = SizedModel(config.summaries.sized_tokens, billing)
    else:
        model = ExtractiveModel()
    return SlowModel(model, config.summaries.latency_s) if config.summaries.latency_s else model
