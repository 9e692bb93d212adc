"""A summary source for pure budget questions: text of exactly N tokens, and nothing to read in it (WB-RPL-07).

In: a number of tokens, or none (then the word limit of the request), and the counter that measures. Out: a
`Model` whose answers have exactly that size by that counter. Another request gives another text: a summary that
repeated itself would leave the prompt cache whole, as no real one does.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from functools import lru_cache

from workbench.call import CallContext
from workbench.errors import ConfigError, ModelError
from workbench.model.request_text import word_limit
from workbench.model.types import ASSISTANT, Choice, Message, Request, Response
from workbench.tokens import LineCounter

DEFAULT_TOKENS = 200
"""When neither the model nor the request gives a size."""

# Short common words: vocabularies have each of them, with its space, as one token.
_WORDS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_N_SEEDED = 6
"""Words that differ from request to request."""
# Endings that move the count by small steps where a whole word is too much.
_ENDINGS = ("", " a", " to", " one", ".", " .", "..", " ..", "a", "aa", "aaa", " a.", " to.", " a a", " a a.")


def text_of_size(n_tokens: int, counter: LineCounter, *, seed: int = 0) -> str:
    """Plain words that count exactly `n_tokens`; the same text for the same counter, number and seed.

    Args:
        seed: Decides the first words, as far as there are so many.

    Raises:
        ModelError: no text of this size was found, which no counter of this package makes happen.
    """
    if n_tokens == 0:
        return ""
    low, high = 1, 2
    while counter.count_text(_plain(high, seed)) < n_tokens:
        low, high = high, high * 2
    while high - low > 1:  # the largest number of words that isn't too much
        middle = (low + high) // 2
        low, high = (middle, high) if counter.count_text(_plain(middle, seed)) <= n_tokens else (low, middle)
    for n_words in range(low + 1, max(low - 8, -1), -1):
        for ending in _ENDINGS:
            text = (_plain(n_words, seed) + ending).lstrip()
            if text and counter.count_text(text) == n_tokens:
                return text
    raise ModelError(f"no text of exactly {n_tokens} tokens by this counter", hint="choose another size or counter")


def _plain(n_words: int, seed: int) -> str:
    first = [_WORDS[seed // len(_WORDS) ** i % len(_WORDS)] for i in range(min(n_words, _N_SEEDED))]
    return " ".join([*first, *(_WORDS[i % len(_WORDS)] for i in range(_N_SEEDED, n_words))])


class SizedModel:
    """Answers every request with `n_tokens` tokens; None takes the request's word limit as the number.

    Args:
        counter: Measures the answer, usually the billing counter.
        context_window: Tokens; 0 = unknown.
    """

    def __init__(
        self, n_tokens: int | None, counter: LineCounter, *, name: str = "sized", context_window: int = 0
    ) -> None:
        if n_tokens is not None and (isinstance(n_tokens, bool) or n_tokens < 1):
            raise ConfigError.for_field("sized_tokens", n_tokens, "a whole number above 0, or none")
        self.name = name
        self.context_window = context_window
        self._n_tokens = n_tokens
        self._text_of_size = lru_cache(maxsize=64)(lambda size, seed: text_of_size(size, counter, seed=seed))

    async def generate(self, ctx: CallContext, request: Request) -> AsyncIterator[Response]:
        size = self._n_tokens or word_limit(request) or DEFAULT_TOKENS
        digest = hashlib.sha256("\n".join(message.content for message in request.messages).encode("utf-8", "replace"))
        seed = int.from_bytes(digest.digest()[:4])
        message = Message(role=ASSISTANT, content=self._text_of_size(size, seed))
        yield Response(id=self.name, model=self.name, choices=(Choice(message, finish_reason="stop"),))
