"""A summarizer that is chosen per call."""

from __future__ import annotations

import pytest

from tests.summary.events import run, session, user
from workbench.call import EMPTY_CONTEXT
from workbench.errors import ConfigError, NoSummarizerResolvedError
from workbench.model.scripted import ScriptedModel
from workbench.summary.dynamic import DynamicSummarizer
from workbench.summary.summarizer import ContextAwareSummarizer, SessionSummarizer, Summarizer

OF = session([user("q")])


class OnlyBase:
    """A summarizer of the published protocol, without the context-aware check."""

    async def should_summarize(self, session):
        return True

    async def summarize(self, session, *, ctx=EMPTY_CONTEXT):
        return "base"

    def set_prompt(self, prompt):
        raise AssertionError

    def set_model(self, model):
        raise AssertionError

    def metadata(self):
        return {}


def test_the_summarizer_is_resolved_per_call():
    """SUM-DYN-01, SUM-DYN-05."""
    asked = []

    async def resolve(ctx, of):
        asked.append((ctx.value("tenant"), of))
        return Summarizer(ScriptedModel([f"for {ctx.value('tenant')}"]))

    dynamic = DynamicSummarizer(resolve)
    for tenant in ("a", "b"):
        ctx = EMPTY_CONTEXT.with_value("tenant", tenant)
        assert run(dynamic.should_summarize_with_context(ctx, OF)) is True
        assert run(dynamic.summarize(OF, ctx=ctx)) == f"for {tenant}"
    assert asked == [("a", OF), ("a", OF), ("b", OF), ("b", OF)]


def test_no_summarizer_or_a_failing_resolver_means_no():
    """SUM-DYN-02."""

    def fail(ctx, of):
        raise RuntimeError("no")

    for resolve in (lambda ctx, of: None, fail):
        assert run(DynamicSummarizer(resolve).should_summarize(OF)) is False


def test_summarizing_without_one_is_an_error():
    """SUM-DYN-03, SUM-ERR-12."""
    with pytest.raises(NoSummarizerResolvedError):
        run(DynamicSummarizer(lambda ctx, of: None).summarize(OF))


def test_a_resolvers_error_goes_through_unchanged():
    """SUM-DYN-03."""
    error = RuntimeError("mine")

    def fail(ctx, of):
        raise error

    with pytest.raises(RuntimeError) as caught:
        run(DynamicSummarizer(fail).summarize(OF))
    assert caught.value is error


def test_a_base_summarizer_works_too():
    """SUM-DYN-02, SUM-OPT-07."""
    dynamic = DynamicSummarizer(lambda ctx, of: OnlyBase())
    assert run(dynamic.should_summarize(OF)) is True
    assert run(dynamic.summarize(OF)) == "base"
    assert isinstance(OnlyBase(), SessionSummarizer)
    assert not isinstance(OnlyBase(), ContextAwareSummarizer)
    for full in (dynamic, Summarizer(None)):
        assert isinstance(full, SessionSummarizer)
        assert isinstance(full, ContextAwareSummarizer)


def test_setters_do_nothing_and_metadata_says_dynamic():
    """SUM-DYN-04."""
    dynamic = DynamicSummarizer(lambda ctx, of: OnlyBase())
    dynamic.set_prompt("broken")
    dynamic.set_model(None)
    assert dynamic.metadata() == {"type": "dynamic"}


def test_the_resolved_one_is_asked_whether_it_forks():
    """SUM-DYN-04."""

    def fail(ctx, of):
        raise RuntimeError("no")

    def forks(resolve):
        return run(DynamicSummarizer(resolve).forks_cache_safe(EMPTY_CONTEXT, OF))

    assert forks(lambda ctx, of: Summarizer(None, cache_safe_forking=True)) is True
    assert forks(lambda ctx, of: Summarizer(None)) is False
    assert forks(lambda ctx, of: None) is False
    assert forks(fail) is False


def test_naming_itself_is_naming_none():
    """SUM-DYN-04."""
    dynamic = DynamicSummarizer(lambda ctx, of: dynamic)
    assert run(dynamic.should_summarize(OF)) is False
    assert run(dynamic.forks_cache_safe(EMPTY_CONTEXT, OF)) is False
    with pytest.raises(NoSummarizerResolvedError):
        run(dynamic.summarize(OF))


def test_a_resolver_is_required():
    """SUM-DYN-05."""
    with pytest.raises(ConfigError):
        DynamicSummarizer(None)
