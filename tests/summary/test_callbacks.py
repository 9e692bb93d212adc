"""Model callbacks: order, switches, errors."""

from __future__ import annotations

import pytest

from tests.summary.events import run
from workbench.call import EMPTY_CONTEXT
from workbench.errors import SummaryCallbackError
from workbench.model.types import Message, Request, response_of
from workbench.summary.callbacks import (
    AfterModelArgs,
    AfterModelResult,
    BeforeModelArgs,
    BeforeModelResult,
    ModelCallbacks,
)

REQUEST = Request(messages=(Message(role="user", content="q"),))
FIRST, SECOND = response_of(Message(content="first")), response_of(Message(content="second"))


def before(*callbacks, **switches):
    registered = ModelCallbacks(**switches)
    for callback in callbacks:
        registered.register_before_model(callback)
    args = BeforeModelArgs(REQUEST)
    ctx, response = run(registered.run_before(EMPTY_CONTEXT, args))
    return ctx, response, args.request


def test_callbacks_may_change_request_and_context():
    """SUM-CB-01, SUM-CB-03: each sees what the one before it left."""

    def shorten(ctx, args):
        args.request = args.request.replace(messages=())
        return BeforeModelResult(context=ctx.with_value("seen", 1))

    async def check(ctx, args):
        assert args.request.messages == ()
        return BeforeModelResult(context=ctx.with_value("seen", ctx.value("seen") + 1))

    ctx, response, request = before(shorten, check)
    assert (ctx.value("seen"), response, request.messages) == (2, None, ())
    assert REQUEST.messages


def test_the_first_response_ends_the_chain():
    """SUM-CB-01, SUM-CB-03."""

    def never(ctx, args):
        raise AssertionError

    _, response, _ = before(lambda ctx, args: BeforeModelResult(custom_response=FIRST), never)
    assert response is FIRST


def test_the_chain_goes_on_after_a_response_if_asked():
    """SUM-CB-03."""
    _, response, _ = before(
        lambda ctx, args: BeforeModelResult(custom_response=FIRST),
        lambda ctx, args: None,
        lambda ctx, args: BeforeModelResult(custom_response=SECOND),
        continue_on_response=True,
    )
    assert response is SECOND


def test_an_exception_becomes_a_callback_error_with_its_cause():
    """SUM-CB-01, SUM-CB-03, SUM-ERR-09."""
    ran = []

    def fail(ctx, args):
        raise KeyError("why")

    with pytest.raises(SummaryCallbackError, match="before-model callback failed") as caught:
        before(fail, lambda ctx, args: ran.append(1))
    assert isinstance(caught.value.__cause__, KeyError)
    assert ran == []


def test_the_chain_goes_on_after_an_error_if_asked():
    """SUM-CB-03: the first error is raised at the end."""
    ran = []

    def fail(text):
        def callback(ctx, args):
            raise ValueError(text)

        return callback

    with pytest.raises(SummaryCallbackError, match="one"):
        before(fail("one"), fail("two"), lambda ctx, args: ran.append(1), continue_on_error=True)
    assert ran == [1]


def test_after_model_callbacks_see_request_response_and_error():
    """SUM-CB-02."""
    seen = []

    def look(ctx, args):
        seen.append((args.request, args.response, args.error))
        return AfterModelResult(custom_response=SECOND)

    error = ValueError("said so")
    registered = ModelCallbacks().register_after_model(look)
    _, response = run(registered.run_after(EMPTY_CONTEXT, AfterModelArgs(REQUEST, FIRST, error)))
    assert response is SECOND
    assert seen == [(REQUEST, FIRST, error)]


def test_no_callbacks_change_nothing():
    """SUM-CB-03."""
    assert before() == (EMPTY_CONTEXT, None, REQUEST)
