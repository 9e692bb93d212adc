"""Prompt caches of providers (WB-CACHE-02, -03, -05)."""

from __future__ import annotations

import re
import typing
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.config import CacheProvider, CacheSettings
from workbench.errors import ConfigError
from workbench.evaluate.providers import CAUSES, PROVIDERS, CacheSimulation, CacheUse, Sent, cache_rule, provider_of

SECOND = 1_000_000_000
MINUTE = 60 * SECOND


def growing(sizes: Sequence[int], *, every_s: int = 30, system: int = 0) -> list[Sent]:
    """Calls that each only add to the one before."""
    return [
        Sent(
            time_ns=i * every_s * SECOND,
            tokens=size,
            prefix_tokens=sizes[i - 1] if i else None,
            prefix_call=i - 1 if i else None,
            recent_tokens=sizes[i - 1] if i else 0,
            system_end=system,
            n_messages=2 * i + 2,
        )
        for i, size in enumerate(sizes)
    ]


def uses(rule_name: str, calls: Sequence[Sent], **changes: object) -> list[CacheUse]:
    cache = CacheSimulation(replace(PROVIDERS[rule_name], **changes))
    return [cache.call(sent) for sent in calls]


# --- the table -----------------------------------------------------------------------------------------


def test_every_rule_has_a_source_and_a_date_and_a_place_in_the_configuration():
    """WB-CACHE-02."""
    assert set(PROVIDERS) | {"auto"} == set(typing.get_args(CacheProvider))
    for rule in PROVIDERS.values():
        assert len(rule.source) > 10
        assert re.fullmatch(r"20\d\d(-\d\d){0,2}", rule.date)
        assert rule.longer in PROVIDERS or not rule.longer
        assert len(rule.breakpoints) <= rule.max_breakpoints


@pytest.mark.parametrize(
    ("model", "provider"),
    [
        ("gpt-4.1-mini", "openai"),
        ("openai/gpt-5.5", "openai"),
        ("ft:gpt-4o-mini-2024-07-18:shop", "openai"),
        ("o3-mini", "openai"),
        ("gpt-5.6", "openai-5.6"),
        ("gpt-5.10-mini", "openai-5.6"),
        ("gpt-6", "openai-5.6"),
        ("claude-opus-4-5-20251101", "anthropic"),
        ("deepseek-chat", "deepseek"),
        ("models/gemini-2.5-pro", "gemini"),
        ("qwen3-max", "qwen"),
        ("qwen3-8b", None),
        ("gpt-oss-120b", None),
        ("omni", None),
        ("", None),
    ],
)
def test_a_models_name_says_whose_rules_hold_or_nothing(model, provider):
    """WB-CACHE-02."""
    assert provider_of(model) == provider
    rule = cache_rule(CacheSettings(), model)
    assert (rule.name if rule else None) == provider


@pytest.mark.parametrize(
    ("model", "minimum"),
    [
        ("claude-opus-5", 512),
        ("claude-sonnet-5-5", 512),
        ("claude-opus-4-8", 1024),
        ("claude-sonnet-4-5", 1024),
        ("claude-sonnet-5", 1024),
        ("claude-opus-4-7", 2048),
        ("claude-3-5-haiku-latest", 2048),
        ("claude-opus-4-6", 4096),
        ("claude-haiku-4-5", 4096),
        ("gemini-2.5-flash", 2048),
        ("gemini-2.5-pro", 4096),
        ("gemini-3-pro", 4096),
    ],
)
def test_the_minimum_depends_on_the_model(model, minimum):
    """WB-CACHE-02."""
    assert cache_rule(CacheSettings(), model).min_tokens == minimum


@pytest.mark.parametrize(("model", "factor"), [("gpt-4o", 0.5), ("gpt-4.1", 0.25), ("gpt-5.1", 0.1)])
def test_the_price_of_reading_depends_on_the_model(model, factor):
    """WB-CACHE-02."""
    assert cache_rule(CacheSettings(), model).read_factor == factor


def test_the_configuration_replaces_what_a_rule_says():
    """WB-CACHE-02."""
    settings = CacheSettings.parse(
        {"provider": "anthropic", "lifetime_s": "1h", "min_tokens": 10, "breakpoints": ["end"], "read_factor": 0.2}
    )
    rule = cache_rule(settings, "claude-opus-4-5")
    assert (rule.lifetime_s, rule.min_tokens, rule.breakpoints, rule.read_factor) == (3600.0, 10, ("end",), 0.2)
    assert rule.write_factor == PROVIDERS["anthropic"].write_factor


def test_more_marks_than_the_provider_takes_are_refused():
    """WB-CACHE-02."""
    settings = CacheSettings.parse({"provider": "anthropic-auto", "breakpoints": ["system", "end"]})
    with pytest.raises(ConfigError, match=r"cache\.breakpoints.*at most 1 with anthropic-auto"):
        cache_rule(settings, "")


# --- blocks --------------------------------------------------------------------------------------------


def test_openai_reads_whole_steps_of_128_from_1024_tokens_on():
    """WB-CACHE-02."""
    found = uses("openai", growing([1000, 1100, 1300, 1500]))
    assert [use.cached for use in found] == [0, 0, 1024, 1280]
    assert [use.written for use in found] == [0, 1024, 256, 128]
    assert [use.cause for use in found] == ["first_call", "below_minimum", None, None]


def test_a_prefix_is_gone_after_its_lifetime():
    """WB-CACHE-02, WB-CACHE-03."""
    sizes = [2048, 2176, 2304]
    in_time, too_late = growing(sizes, every_s=300), growing(sizes, every_s=301)
    assert [use.cached for use in uses("openai", in_time)] == [0, 2048, 2176]
    late = uses("openai", too_late)
    assert [(use.cached, use.cause, use.lost) for use in late] == [
        (0, "first_call", 0),
        (0, "expired", 2048),
        (0, "expired", 2176),
    ]
    assert [use.cached for use in uses("openai-24h", too_late)] == [0, 2048, 2176]


def test_reading_refreshes_only_where_the_rule_says_so():
    """WB-CACHE-02."""
    calls = growing([2048] * 5, every_s=200)
    assert [use.cached for use in uses("openai", calls)] == [0, 2048, 2048, 2048, 2048]
    assert [use.cached for use in uses("openai", calls, refreshed_by_use=False)] == [0, 2048, 0, 2048, 0]


def test_an_older_branch_is_as_old_as_the_last_call_that_had_it():
    """WB-CACHE-02: two agents in turn; the newest call shares only the beginning."""
    calls = [
        Sent(0, 4096),
        Sent(200 * SECOND, 4096, prefix_tokens=1024, prefix_call=0, recent_tokens=1024, cause="other"),
        Sent(250 * SECOND, 4096, prefix_tokens=4096, prefix_call=0, recent_tokens=1024),
        Sent(520 * SECOND, 4096, prefix_tokens=4096, prefix_call=1, recent_tokens=1024),
    ]
    assert [use.cached for use in uses("openai", calls)] == [0, 1024, 4096, 1024]
    assert uses("openai", calls)[3].cause == "expired"


def test_a_full_cache_has_lost_the_end_of_what_was_used_longest_ago():
    """WB-CACHE-02: capacity of vllm."""
    calls = [
        Sent(0, 1600),
        Sent(SECOND, 800, prefix_tokens=0, prefix_call=0, recent_tokens=0, cause="other"),
        Sent(2 * SECOND, 1600, prefix_tokens=1600, prefix_call=0, recent_tokens=0),
    ]
    assert [use.cached for use in uses("vllm", calls)] == [0, 0, 1600]
    assert [use.cached for use in uses("vllm", calls, capacity_tokens=2000)] == [0, 0, 1200]
    assert [use.cached for use in uses("vllm", calls, capacity_tokens=500)] == [0, 0, 0]


# --- marks ---------------------------------------------------------------------------------------------


def test_a_mark_at_the_newest_message_has_no_shorter_fallback():
    """WB-CACHE-02: OpenAI from GPT-5.6; a new summary in the system message loses everything."""
    calls = growing([3000, 3500])
    calls.append(
        Sent(
            60 * SECOND,
            2500,
            prefix_tokens=2000,
            prefix_call=1,
            recent_tokens=2000,
            n_messages=4,
            cause="summary_updated_user",
        )
    )
    found = uses("openai-5.6", calls)
    assert [(use.cached, use.written) for use in found] == [(0, 3000), (3000, 500), (0, 2500)]
    assert (found[2].cause, found[2].lost) == ("summary_updated_user", 2500)
    assert uses("openai", calls)[2].cached == 1920


def test_a_mark_behind_the_system_message_survives_a_new_summary_behind_it():
    """WB-CACHE-02: Anthropic, explicit against automatic marks."""
    calls = growing([5000, 5500], system=2000)
    calls.append(
        Sent(60 * SECOND, 4000, prefix_tokens=2300, prefix_call=1, recent_tokens=2300, system_end=2000, n_messages=9)
    )
    assert [use.cached for use in uses("anthropic", calls)] == [0, 5000, 2000]
    assert [use.cached for use in uses("anthropic-auto", calls)] == [0, 5000, 0]


def test_a_mark_is_found_only_so_many_messages_back():
    """WB-CACHE-02: look-back."""
    calls = growing([5000, 6000])
    near, far = replace(calls[1], n_messages=22), replace(calls[1], n_messages=23)
    assert uses("anthropic", [calls[0], near])[1].cached == 5000
    missed = uses("anthropic", [calls[0], far])[1]
    assert (missed.cached, missed.cause, missed.lost) == (0, "no_breakpoint", 5000)


def test_marks_below_the_minimum_are_silently_not_cached():
    """WB-CACHE-02."""
    found = uses("anthropic", growing([900, 950, 1200, 1300]))
    assert [(use.cached, use.written) for use in found] == [(0, 0), (0, 0), (0, 1200), (1200, 100)]
    assert found[1].cause == "below_minimum"


def test_a_prefix_of_another_conversation_is_found_where_both_have_a_mark():
    """WB-CACHE-02, cache_scope = corpus."""
    calls = [Sent(0, 5000, prefix_tokens=2000, prefix_call=None, system_end=2000, n_messages=2)]
    assert uses("anthropic", calls) == [CacheUse(2000, 3000, 0, None, 0)]
    assert uses("openai", calls)[0].cached == 1920


def test_who_reads_a_prompt_keeps_its_beginning_alive():
    """WB-CACHE-02: marks of a long chain stay while its end is in use."""
    calls = growing([5000, 5500, 6000], every_s=200, system=2000)
    calls.append(
        Sent(600 * SECOND, 4000, prefix_tokens=2300, prefix_call=2, recent_tokens=2300, system_end=2000, n_messages=9)
    )
    assert [use.cached for use in uses("anthropic", calls)] == [0, 5000, 5500, 2000]
    # A call that adds nothing reads a mark without writing one: that alone keeps it.
    still = growing([5000, 5000, 5000], every_s=250)
    assert [use.cached for use in uses("anthropic-auto", still)] == [0, 5000, 5000]


# --- summary calls ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["openai", "openai-5.6", "anthropic", "deepseek", "qwen-explicit", "vllm"])
def test_a_fork_reads_what_its_parent_wrote_and_a_standalone_call_does_not(name):
    """WB-CACHE-05."""
    cache = CacheSimulation(PROVIDERS[name])
    cache.call(Sent(0, 5120, n_messages=10))
    fork = cache.summary(10 * SECOND, 5200, 5120)
    alone = cache.summary(10 * SECOND, 5200, 0)
    assert fork.cached == 5120
    assert alone.cached == 0
    assert sum(fork[:3]) == sum(alone[:3]) == 5200


def test_a_fork_keeps_its_parent_alive():
    """WB-CACHE-05."""
    late = Sent(500 * SECOND, 5248, prefix_tokens=5120, prefix_call=0, recent_tokens=5120, n_messages=12)
    for name in ("openai", "anthropic"):
        cache = CacheSimulation(PROVIDERS[name])
        cache.call(Sent(0, 5120, n_messages=10))
        assert cache.summary(250 * SECOND, 5200, 5120).cached == 5120
        assert cache.call(late).cached == 5120


def test_a_fork_comes_too_late_like_any_other_call():
    """WB-CACHE-05."""
    for name in ("openai", "anthropic"):
        cache = CacheSimulation(PROVIDERS[name])
        cache.call(Sent(0, 5120, n_messages=10))
        assert cache.summary(301 * SECOND, 5200, 5120).cached == 0


# --- laws ----------------------------------------------------------------------------------------------


@st.composite
def conversations(draw: st.DrawFn) -> list[Sent]:
    """Calls as a trace could have them: requests are lists of parts, and prefixes are really shared."""
    requests: list[tuple[int, ...]] = []
    times, now = [], 0
    for i in range(draw(st.integers(1, 10))):
        base = requests[draw(st.integers(max(i - 3, 0), i - 1))] if i else ()
        keep = draw(st.integers(0, len(base))) if draw(st.booleans()) else len(base)
        # A part's number makes it different from all others; its tokens follow from it.
        new = tuple(1000 * (i + 1) + n for n in range(draw(st.integers(1, 3))))
        requests.append((*base[:keep], *new))
        now += draw(st.sampled_from([1, 60, 250, 400, 4000])) * SECOND
        times.append(now)
    calls = []
    for i, request in enumerate(requests):
        shared = [_shared(request, other) for other in requests[:i]]
        best = max(shared, default=None)
        calls.append(
            Sent(
                times[i],
                _tokens(request) + 7,
                prefix_tokens=best,
                prefix_call=None if best is None else max(n for n, tokens in enumerate(shared) if tokens == best),
                recent_tokens=shared[-1] if shared else 0,
                system_end=_tokens(request[:1]),
                overhead_tokens=7,
                n_messages=len(request),
            )
        )
    return calls


def _tokens(parts: Sequence[int]) -> int:
    return sum(200 + part * 37 % 900 for part in parts)


def _shared(left: Sequence[int], right: Sequence[int]) -> int:
    n = 0
    while n < min(len(left), len(right)) and left[n] == right[n]:
        n += 1
    return _tokens(left[:n])


@given(conversations(), st.sampled_from(sorted(PROVIDERS)))
def test_cached_written_and_uncached_sum_to_the_prompt(calls, name):
    """WB-CACHE-02: for every provider, call by call."""
    for sent, use in zip(calls, uses(name, calls), strict=True):
        assert use.cached + use.written + use.uncached == sent.tokens
        assert min(use[:3]) >= 0
        assert use.cached <= (sent.prefix_tokens or 0)
        assert use.lost >= 0
        assert use.cause is None or use.cause in CAUSES
        if use.cause is None:
            assert use.lost < max(PROVIDERS[name].block_tokens, 1)


@given(conversations(), st.sampled_from(sorted(PROVIDERS)), st.integers(1, 5000), st.integers(0, 5000))
def test_a_longer_lifetime_never_lowers_reuse(calls, name, seconds, more):
    """WB-CACHE-02: call by call, for caches that use refreshes."""
    short = uses(name, calls, lifetime_s=float(seconds))
    long = uses(name, calls, lifetime_s=float(seconds + more))
    endless = uses(name, calls, lifetime_s=None)
    for one, other, last in zip(short, long, endless, strict=True):
        assert one.cached <= other.cached <= last.cached


@given(conversations())
def test_without_a_provider_nothing_is_cached(calls):
    """WB-CACHE-02."""
    assert [use[:3] for use in uses("none", calls)] == [(0, 0, sent.tokens) for sent in calls]


@given(conversations(), st.sampled_from(["openai", "gemini", "vllm"]), st.integers(1, 200), st.integers(1, 4000))
def test_smaller_blocks_and_more_room_never_lower_reuse(calls, name, block, room):
    """WB-CACHE-02."""
    for coarse, fine in zip(
        uses(name, calls, block_tokens=2 * block), uses(name, calls, block_tokens=block), strict=True
    ):
        assert coarse.cached <= fine.cached
    for small, large in zip(
        uses(name, calls, capacity_tokens=room), uses(name, calls, capacity_tokens=room * 2), strict=True
    ):
        assert small.cached <= large.cached
