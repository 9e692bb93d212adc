"""Which firings move when only the engine's counter changes, by replaying both (WB-CAL-05).

In: conversations, a configuration, another counter. Out: the calls after which each of the two fires. It is the engine
that fires here, summaries and all, so what is said is what production would do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from workbench.config import RunConfig
from workbench.errors import ConfigError
from workbench.recordings.types import Conversation
from workbench.replay.conversation import replay_conversation
from workbench.replay.runs import with_unique_ids
from workbench.replay.trace import TABLES

_COLUMN: Final = {column.name: i for i, column in enumerate(TABLES["checks"].columns)}


@dataclass(frozen=True, slots=True)
class FiringMove:
    """One conversation whose firings differ: the calls that each of them precedes."""

    conversation: str
    before: tuple[int, ...]
    after: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MovedFirings:
    """Firings under a configuration's own counter and under another one."""

    config: str
    before: str
    """The counter of the configuration, in words."""
    after: str
    conversations: int
    n_before: int
    n_after: int
    moves: tuple[FiringMove, ...]

    @property
    def n_kept(self) -> int:
        """Firings that both have at the same place."""
        gone = sum(len(set(move.before) - set(move.after)) for move in self.moves)
        return self.n_before - gone


def moved_firings(conversations: Iterable[Conversation], config: RunConfig, counter: Mapping[str, Any]) -> MovedFirings:
    """Replay under the configuration as it is and under another counter, and say which firings differ.

    Args:
        config: Needs a summarizer and a trigger that counts tokens.
        counter: A `[counter]` table, such as `calibration.counter("scripts")`.
    Raises:
        ConfigError: the configuration never counts tokens to fire.
    """
    if config.summarizer is None or not _counts_tokens(config.trigger):
        raise ConfigError(
            f"{config.label()}: no trigger counts tokens, so no counter can move a firing",
            field="trigger",
            hint="give a configuration with trigger.token or trigger.context",
        )
    changed = RunConfig.from_values({**config.model_dump(mode="json", exclude_none=True), "counter": dict(counter)})
    moves: list[FiringMove] = []
    n_conversations = n_before = n_after = 0
    for position, conversation in enumerate(with_unique_ids(conversations)):
        before, after = (_firings(conversation, one, position) for one in (config, changed))
        n_conversations += 1
        n_before += len(before)
        n_after += len(after)
        if before != after:
            moves.append(FiringMove(conversation.id, before, after))
    return MovedFirings(
        config.label(), _in_words(config), _in_words(changed), n_conversations, n_before, n_after, tuple(moves)
    )


def _firings(conversation: Conversation, config: RunConfig, position: int) -> tuple[int, ...]:
    rows = replay_conversation(conversation, config, position=position).rows["checks"]
    fired, call = _COLUMN["fired"], _COLUMN["call"]
    return tuple(int(str(row[call])) for row in rows if row[fired])


def _counts_tokens(node: Any) -> bool:
    if node is None:
        return False
    if node.token is not None or node.context is not None:
        return True
    return any(_counts_tokens(child) for child in (*(node.any or ()), *(node.all or ())))


def _in_words(config: RunConfig) -> str:
    counter = config.counter
    if counter.kind == "tiktoken":
        return counter.encoding
    if counter.kind == "scripts":
        return "one ratio per script"
    return f"{counter.runes_per_token:g} characters per token"
