"""What the provider's cache rules make of the runs, in words and cells for the terminal and the page.

In: runs whose cost is known call by call. Out: which option cost how many cached tokens (WB-CACHE-03), pauses against
the cache's lifetime (WB-CACHE-06), predicted against reported tokens (WB-CACHE-04). Nothing for runs without rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from workbench.evaluate.cache_findings import (
    IdleGaps,
    Loss,
    Reported,
    against_reported,
    idle_gaps,
    losses_by_cause,
    losses_by_option,
    mean_error,
)
from workbench.evaluate.net import is_baseline
from workbench.report.labels import counted, listed, money, number, percent, quoted, share
from workbench.report.overview import cost_in_detail

if TYPE_CHECKING:
    from workbench.report.frames import RunLike, Runs

GAP_COLUMNS = ("silence before a call", "calls", "prefix gone", "sent before", "lost")
REPORTED_COLUMNS = ("conversation", "calls", "prompt", "reported", "cached", "reported", "share", "reported", "error")
NO_BREAK = frozenset({None, "", "first_call"})
_OPTION_WORDS = {
    "summaries": "summaries",
    "preloads": "preloads",
    "model": "changes of the model",
    "tailoring": "tailoring",
    "cache.lifetime_s": "pauses longer than the cache's lifetime",
    "cache.breakpoints": "missing marks",
}


def provider_losses(run: RunLike) -> dict[str, Loss] | None:
    """Lost tokens by cause under the provider's rules; None where these aren't known."""
    cost = cost_in_detail(run)
    return None if cost is None or cost.cached_tokens is None else losses_by_cause(cost)


def break_totals(runs: Runs) -> tuple[dict[str, dict[str, tuple[int, int]]], bool]:
    """By run and cause: calls whose prefix broke, and the tokens that they couldn't take from the cache.

    True beside it where the provider's rules of every run say so; else what each request's text says.
    """
    by_rules = {name: provider_losses(run) for name, run in runs.items()}
    known = {name: losses for name, losses in by_rules.items() if losses is not None}
    if len(known) == len(by_rules):
        return {
            name: {cause: (loss.calls, loss.tokens) for cause, loss in losses.items()} for name, losses in known.items()
        }, True
    return {name: _by_text(run) for name, run in runs.items()}, False


def _by_text(run: RunLike) -> dict[str, tuple[int, int]]:
    totals: dict[str, tuple[int, int]] = {}
    for row in run.rows("calls"):
        cause = row.get("break_cause")
        if cause is not None and cause not in NO_BREAK:
            calls, lost = totals.get(cause, (0, 0))
            totals[cause] = (calls + 1, lost + (row.get("lost_tokens") or 0))
    return totals


def option_sentences(runs: Runs, names: Iterable[str]) -> list[str]:
    """Per configuration: which option cost how many cached tokens."""
    sentences = []
    for name in names:
        cost = cost_in_detail(runs[name])
        if cost is None or cost.cached_tokens is None:
            continue
        lost = [
            f"{_OPTION_WORDS.get(option, option)} cost {_amount(loss, cost.currency)}"
            for option, loss in losses_by_option(cost).items()
            if loss.tokens
        ]
        if lost:
            sentences.append(f"{quoted(name)}: {listed(lost)}.")
    return sentences


def _amount(loss: Loss, currency: str) -> str:
    worth = "" if loss.cost is None else f" ({money(loss.cost, currency)})"
    return f"{number(loss.tokens)} cached tokens{worth}"


def gaps_of(run: RunLike) -> IdleGaps | None:
    """The idle-gap map of a run; None where no call came after another, or without rules."""
    cost = cost_in_detail(run)
    found = idle_gaps(run, cost) if cost is not None else None
    return found if found is not None and any(gap.calls for gap in found.gaps) else None


def gap_rows(found: IdleGaps) -> list[list[str]]:
    """Lines of the idle-gap map."""
    return [
        [gap.title, *map(number, (gap.calls, gap.expired, gap.prefix_tokens, gap.lost_tokens))]
        for gap in found.gaps
        if gap.calls
    ]


def gap_sentence(run: RunLike, found: IdleGaps) -> str:
    """How many calls came too late, and whether a longer lifetime would pay."""
    calls = sum(gap.calls for gap in found.gaps)
    if found.rule.lifetime_s is None:
        return f"{found.rule.title}: the lifetime of a cached prefix isn't published, so none expires here."
    words = (
        f"Under {quoted(run.name)} {number(found.expired)} of {counted(calls, 'later call')} came after the cached "
        f"prefix had gone ({number(found.lost_tokens)} tokens)"
    )
    if found.longer is None or found.longer_costs is None:
        return f"{words}."
    size = abs(found.longer_costs)
    amount = money(size, found.unit) if found.unit.isupper() else f"{number(size)} {found.unit}"
    if round(size, 9) == 0:
        verdict = "would change nothing"
    else:
        verdict = f"would save {amount} here" if found.longer_costs < 0 else f"would not pay: {amount} more"
    return f"{words}; {found.longer.name} {verdict}."


def reported_of(runs: Runs) -> list[Reported]:
    """Predicted and reported tokens of the baseline, which sends what was recorded; empty without reports."""
    run = next((run for run in runs.values() if is_baseline(run)), None)
    cost = cost_in_detail(run) if run is not None else None
    return [] if run is None or cost is None else against_reported(run, cost)


def reported_rows(reported: Sequence[Reported]) -> list[list[str]]:
    """Lines of the comparison with what providers reported."""
    return [
        [
            one.conversation,
            *map(
                number,
                (
                    one.calls,
                    one.prompt_tokens,
                    one.reported_prompt_tokens,
                    one.cached_tokens,
                    one.reported_cached_tokens,
                ),
            ),
            share(one.share),
            share(one.reported_share),
            f"{'+' if one.error > 0 else ''}{number(100 * one.error)} points",
        ]
        for one in reported
    ]


def reported_sentence(reported: Sequence[Reported]) -> str:
    """How far the prediction is off."""
    calls = sum(one.calls for one in reported)
    return (
        f"The cached share of {counted(calls, 'call')} with reported usage is predicted with a mean error of "
        f"{percent(mean_error(reported) or 0.0)} of the prompt; a recording lacks what its client put in front."
    )
