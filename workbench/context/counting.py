"""Counting inside the pure core: each message once, no coroutine left waiting.

In: a token counter, messages. Out: counts, kept per message object. `TokenMemo` is what makes passes,
tailoring and traces count a message once, however many requests it appears in (ASM-TOK-03).
"""

from __future__ import annotations

from collections.abc import Iterable

from workbench.call import EMPTY_CONTEXT
from workbench.errors import AssemblyError
from workbench.model.types import Message
from workbench.tokens import SimpleTokenCounter, TokenCounter

_SIMPLE = SimpleTokenCounter()


class TokenMemo:
    """A counter that remembers; messages are told apart by identity, since they never change.

    It keeps the messages alive that it knows, so one memo should live as long as its session's requests.
    """

    __slots__ = ("_known", "counter")

    def __init__(self, counter: TokenCounter | None = None) -> None:
        self.counter: TokenCounter = _SIMPLE if counter is None else counter
        self._known: dict[int, tuple[Message, int]] = {}

    def tokens(self, message: Message) -> int:
        """Tokens of a message; raises whatever the counter raises."""
        known = self._known.get(id(message))
        if known is not None:
            return known[1]
        tokens = count_now(self.counter, message)
        self._known[id(message)] = (message, tokens)
        return tokens

    def tokens_or_estimate(self, message: Message) -> int:
        """Tokens of a message; if the counter fails, those of the simple counter (ASM-TLR-13)."""
        try:
            return self.tokens(message)
        except Exception:  # a foreign counter may raise anything
            return _SIMPLE.count_tokens(EMPTY_CONTEXT, message)

    def total(self, messages: Iterable[Message]) -> int:
        """Tokens of a list: the sum over its messages (ASM-TOK-02)."""
        return sum(self.tokens(message) for message in messages)


def count_now(counter: TokenCounter, message: Message) -> int:
    """Tokens of one message from a counter whose method may be a coroutine.

    Raises:
        AssemblyError: the coroutine really waits for something, which pure code can't do.
    """
    counted = counter.count_tokens(EMPTY_CONTEXT, message)
    if isinstance(counted, int):
        return counted
    steps = counted.__await__()
    try:
        next(steps)
    except StopIteration as stop:
        return int(stop.value)
    finally:
        close = getattr(steps, "close", None)
        if close is not None:
            close()
    raise AssemblyError("the token counter waits for something", hint="use a counter that answers at once")
