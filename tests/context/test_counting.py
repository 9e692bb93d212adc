"""The memo over a counter."""

from __future__ import annotations

import asyncio

import pytest

from tests.context.build import say, user
from workbench.context.counting import TokenMemo, count_now
from workbench.errors import AssemblyError
from workbench.tokens import SimpleTokenCounter


def test_a_message_is_counted_once_and_lists_are_sums():
    """ASM-TOK-01 to -03."""

    class Counting(SimpleTokenCounter):
        calls = 0

        def count_tokens(self, ctx, message):
            type(self).calls += 1
            return super().count_tokens(ctx, message)

    memo = TokenMemo(Counting(1.0))
    messages = [user("ab"), say("c")]
    assert memo.total(messages) == memo.total(messages) == 3
    assert Counting.calls == 2
    assert TokenMemo().tokens(user("12345678")) == 2


def test_coroutines_that_answer_at_once_are_fine():
    """SUM-TOK-01."""

    class Async:
        async def count_tokens(self, ctx, message):
            return 7

    class Waiting:
        async def count_tokens(self, ctx, message):
            await asyncio.sleep(0)

    assert count_now(Async(), user()) == 7
    with pytest.raises(AssemblyError, match="waits"):
        count_now(Waiting(), user())
    assert TokenMemo(Waiting()).tokens_or_estimate(user("12345678")) == 2
