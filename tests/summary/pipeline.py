"""A summarizer, a scripted model and one call, for the tests of the pipeline."""

from __future__ import annotations

from tests.summary.events import numbered, run, session
from workbench.call import EMPTY_CONTEXT
from workbench.model.scripted import ScriptedModel
from workbench.model.types import Message, Request
from workbench.session.types import SummaryBoundary
from workbench.summary.context import (
    context_with_cache_safe_fork_request,
    context_with_previous_summary,
)
from workbench.summary.delta import delta_session
from workbench.summary.summarizer import Summarizer

SEPARATE = "PREV<{previous_summary}>CONV<{conversation_text}>"
PARENT = Request(messages=(Message(role="system", content="S"), Message(role="user", content="main question")))


def model(*answers, window=100_000, **facts) -> ScriptedModel:
    return ScriptedModel(list(answers), context_window=window, **facts)


def summarizer(of_model, prompt="SUM<{conversation_text}>", **options) -> Summarizer:
    return Summarizer(of_model, prompt=prompt, **options)


def summarize(by, of, *, previous="", parent=None, ctx=EMPTY_CONTEXT):
    ctx = context_with_previous_summary(ctx, previous)
    return run(by.summarize(of, ctx=context_with_cache_safe_fork_request(ctx, parent)))


def sent(of_model, index=-1) -> str:
    return of_model.requests[index].messages[-1].content


def rolled(previous="old facts", n_new=2):
    live = session(numbered(2 + n_new))
    return delta_session(
        live, filter_key="", boundary=SummaryBoundary(last_event_id="e2"), previous_summary=previous, now_ns=10**18
    )
