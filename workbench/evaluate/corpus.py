"""What a calibration looks at: each message's characters by class, its tokens, and its conversation.

In: texts or recordings, and a tokenizer. Out: a `Corpus` of equally long columns. A message's characters are those
that the engine's counters count (SUM-TOK-03), so a ratio found here is the one they should divide by.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.evaluate.tokenizers import Tokenizer
from workbench.recordings.types import Conversation
from workbench.script_counter import CLASSES, class_counts
from workbench.tokens import counted_texts

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Corpus:
    """Messages in order; empty ones are left out."""

    digest: str
    """sha256 of what was measured, in order."""
    classes: Ints
    """Characters by message and class, in the order of `CLASSES`."""
    tokens: Ints
    conversation: Ints
    """Number of the conversation of each message, from 0, ascending. A text of its own is a conversation."""
    ids: tuple[str, ...]
    """Names of the conversations; `text 17` for texts."""

    @property
    def chars(self) -> Ints:
        """Characters by message."""
        total: Ints = self.classes.sum(axis=1)
        return total

    @property
    def n_conversations(self) -> int:
        """Conversations with at least one message that isn't empty."""
        import numpy as np

        return int(np.unique(self.conversation).size)

    def __len__(self) -> int:
        return len(self.tokens)

    def windows(self, n_messages: int) -> tuple[Ints, Ints, Ints]:
        """Class counts, tokens and first message of all runs of `n_messages` messages inside one conversation.

        A shorter conversation is one run.
        """
        import numpy as np

        if n_messages == 1:
            return self.classes, self.tokens, np.arange(len(self))
        edges = np.flatnonzero(np.diff(self.conversation, prepend=-1, append=len(self.ids)))
        starts: list[Ints] = []
        ends: list[Ints] = []
        for first, after in itertools.pairwise(edges):
            begin = np.arange(first, max(after - n_messages, first) + 1)
            starts.append(begin)
            ends.append(np.minimum(begin + n_messages, after))
        start, end = np.concatenate(starts), np.concatenate(ends)
        sums = np.vstack([np.zeros((1, len(CLASSES)), np.int64), np.cumsum(self.classes, axis=0)])
        tokens = np.concatenate([[0], np.cumsum(self.tokens)])
        return sums[end] - sums[start], tokens[end] - tokens[start], start


def corpus_of(source: Iterable[str | Conversation], tokenizer: Tokenizer) -> Corpus:
    """Measure every message once."""
    import numpy as np

    digest = hashlib.sha256()
    classes: list[tuple[int, ...]] = []
    tokens: list[int] = []
    conversation: list[int] = []
    ids: list[str] = []
    for item in source:
        if isinstance(item, str):
            digest.update(f"{len(item)}:{item}".encode("utf-8", "surrogatepass"))
            messages: Iterable[list[str]] = ([item],)
        else:
            digest.update(item.content_hash.encode("ascii"))
            messages = (list(counted_texts(message)) for message in item.messages)
        for texts in messages:
            whole = [text for text in texts if text]
            if whole:
                counts = [class_counts(text) for text in whole]
                classes.append(counts[0] if len(counts) == 1 else tuple(map(sum, zip(*counts, strict=True))))
                tokens.append(sum(map(tokenizer.count, whole)))
                conversation.append(len(ids))
        ids.append(f"text {len(ids)}" if isinstance(item, str) else item.id)
    return Corpus(
        digest.hexdigest(),
        np.array(classes, np.int64).reshape(-1, len(CLASSES)),
        np.array(tokens, np.int64),
        np.array(conversation, np.int64),
        tuple(ids),
    )
