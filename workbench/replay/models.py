"""Which model each call of a conversation goes to, where it changes in the middle (WB-RPL-15).

In: a recorded conversation and a configuration. Out: a `ModelPlan`: name and window by call. The configuration's
changes win; without a model name of its own it follows the names that the recorded answers carry. Pure.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass

from workbench.config import ModelSettings, RunConfig
from workbench.model.windows import lookup_model_context_window
from workbench.recordings.types import Conversation

UNNAMED = "recorded"
"""A model that neither the configuration nor the recording names."""


@dataclass(frozen=True, slots=True)
class CallModel:
    """A model as a call is sent to it."""

    name: str
    """Empty when nobody names it."""
    context_window: int | None
    """As configured; None = by name."""

    @property
    def window(self) -> int | None:
        """The window that requests are measured against; None for an unknown one."""
        return self.context_window or lookup_model_context_window(self.name) or None


@dataclass(frozen=True, slots=True)
class ModelPlan:
    """The models of one conversation, each from its first call on."""

    first_calls: tuple[int, ...]
    """Starts with 0, in order."""
    models: tuple[CallModel, ...]

    def at(self, call: int) -> CallModel:
        """The model of a call."""
        return self.models[bisect_right(self.first_calls, call) - 1]


def model_plan(conversation: Conversation, config: RunConfig) -> ModelPlan:
    """The models of a conversation under a configuration.

    A change before a request that makes no call counts from the next call on.
    """
    settings = config.model
    starts = _recorded(conversation, settings)
    for first_call, changed in _configured(conversation, settings):
        before = max((call for call in starts if call <= first_call), default=0)
        name = changed.name or starts[before].name
        # The window belongs to a model: another model has its own unless one is given.
        window = changed.context_window or (None if changed.name else starts[before].context_window)
        # What is recorded about later calls doesn't hold once the model was changed on purpose.
        starts = {call: model for call, model in starts.items() if call < first_call}
        starts[first_call] = CallModel(name, window)
    kept: dict[int, CallModel] = {}
    for call in sorted(starts):
        if not kept or starts[call] != next(reversed(kept.values())):
            kept[call] = starts[call]
    return ModelPlan(tuple(kept), tuple(kept.values()))


def _recorded(conversation: Conversation, settings: ModelSettings) -> dict[int, CallModel]:
    """First call -> model, as recorded; one model where the configuration names it or the answers don't differ."""
    window = settings.context_window
    if settings.name:
        return {0: CallModel(settings.name, window)}
    answers = [call.event.response for call in conversation.calls]
    names = [answer.model if answer is not None else "" for answer in answers]
    if len({name for name in names if name}) < 2:
        return {0: CallModel(conversation.model, window)}
    first = next(name for name in names if name)
    starts = {0: CallModel(first, window)}
    for call, name in enumerate(names):
        if name and name != next(reversed(starts.values())).name:
            starts[call] = CallModel(name, window)
    return starts


def _configured(conversation: Conversation, settings: ModelSettings) -> list[tuple[int, CallModel]]:
    """The changes of a configuration by the call that they take effect with; those behind the last call never do."""
    first_calls: dict[int, int] = {}
    for call in conversation.calls:
        first_calls.setdefault(call.request.index, call.index)
    n_calls = len(conversation.calls)
    found = []
    for change in settings.changes or ():
        if change.request is not None:
            later = [call for request, call in first_calls.items() if request >= change.request]
            first = min(later, default=n_calls)
        else:
            first = math.ceil((change.share or 0.0) * n_calls)
        if first < n_calls:
            found.append((first, CallModel(change.name, change.context_window)))
    return sorted(found, key=lambda item: item[0])
