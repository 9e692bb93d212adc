"""Calibration: how many characters make a token in this traffic, how sure that is, and what it changes.

In: texts or recordings, the name of a tokenizer. Out: a `Calibration` with ratio, median, safe ratio, intervals,
ratios by script and their cross-validation. Too little data is an error, never a number. Implements WB-CAL-01, -02
and what WB-CAL-05 says a calibration carries; fitting to reported usage is in `usage.py`, ageing in `drift.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any, Final

from workbench.clock import Clock, SystemClock, text_from_ns
from workbench.errors import ConfigError, NotEnoughDataError
from workbench.evaluate.corpus import Corpus, corpus_of
from workbench.evaluate.fit import (
    MIN_CLASS_CHARS,
    MIN_CLASS_MESSAGES,
    class_weights,
    draws,
    folds,
    group_sums,
    groups_of,
    interval,
    normal_sums,
    reported_classes,
    rounded_down,
    safe_ratio,
    weighted_quantiles,
)
from workbench.evaluate.tokenizers import Tokenizer, tokenizer_named
from workbench.recordings.types import Conversation
from workbench.script_counter import CLASSES
from workbench.tokens import DEFAULT_RUNES_PER_TOKEN
from workbench.version import __version__

if TYPE_CHECKING:
    from workbench.evaluate.corpus import Floats, Ints

MIN_MESSAGES: Final = 20
MIN_CROSS_VALIDATION_MESSAGES: Final = 50
DEFAULT_QUANTILE: Final = 0.05
DEFAULT_THRESHOLDS: Final = (1000, 2000, 4000)
ERROR_SHARES: Final = (0.05, 0.25, 0.5, 0.75, 0.95)
_N_FOLDS = 5

Pair = tuple[float, float]


@dataclass(frozen=True, slots=True)
class ScriptRatio:
    """Characters per token of one class; without enough of them `ratio` is None and `reason` says why."""

    chars: int
    share: float
    """Of all characters."""
    ratio: float | None
    interval: Pair | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ErrorSpread:
    """Relative errors of one counter's estimates: -0.5 means that it saw half of the tokens."""

    counter: str
    messages: int
    """Messages (or windows) judged."""
    underestimated: float
    """Share of messages (or windows) that it underestimates."""
    bias: float
    """Of the sum over all."""
    quantiles: tuple[float, ...]
    """At `ERROR_SHARES`."""


@dataclass(frozen=True, slots=True)
class CrossValidation:
    """Single ratio and script-aware counter, each judged on conversations that it wasn't fitted to."""

    n_folds: int
    single_error: float
    """Mean absolute error as a share of the tokens."""
    scripts_error: float
    difference: Pair
    """Interval of `scripts_error - single_error`; below 0 the script-aware counter is better."""

    @property
    def better(self) -> str:
        """`scripts`, `single`, or `neither` when the interval holds 0."""
        low, high = self.difference
        return "scripts" if high < 0 else "single" if low > 0 else "neither"

    @property
    def needs_scripts(self) -> bool:
        """The script-aware counter is better, and by so much that it matters."""
        return self.better == "scripts" and self.scripts_error < 0.75 * self.single_error


@dataclass(frozen=True, slots=True)
class ThresholdEffect:
    """A threshold of new tokens, on the bare messages: what one counter makes of it."""

    threshold: int
    counter: str
    firings: int
    real_firings: int
    """With tokens counted exactly."""
    tokens_at_firing: float | None
    """Median of what there really was when it fired; None when it never did."""

    @property
    def lateness(self) -> float | None:
        """`tokens_at_firing / threshold`: 3.0 = fires three times too late."""
        return None if self.tokens_at_firing is None else self.tokens_at_firing / self.threshold


@dataclass(frozen=True, slots=True)
class Calibration:
    """Characters per token of a corpus under one tokenizer; prints in one line, a notebook shows it as a table."""

    tokenizer: str
    tokenizer_version: str
    corpus_hash: str
    conversations: int
    messages: int
    chars: int
    tokens: int
    ratio: float
    """Ratio of sums."""
    median: float
    """Of the messages' (or windows') own ratios."""
    safe_ratio: float
    """Divisor that underestimates at most `quantile` of the messages (or windows)."""
    quantile: float
    window: int
    """Messages per window; 1 = each message alone."""
    interval: Pair
    median_interval: Pair
    safe_interval: Pair
    resampled: str
    """What the intervals draw anew: `conversations`, or `messages` of too few conversations."""
    spread: tuple[float, ...]
    """Ratios at 0, 1, ..., 100 % of the messages (or windows)."""
    by_script: Mapping[str, ScriptRatio]
    errors: tuple[ErrorSpread, ...]
    errors_by_script: Mapping[str, ErrorSpread]
    """Of the single ratio, on messages (or windows) of which more than half is one class."""
    cross_validation: CrossValidation | None
    thresholds: tuple[ThresholdEffect, ...]
    warnings: tuple[str, ...]
    seed: int
    date: str
    workbench_version: str = __version__

    def counter(self, kind: str = "runes") -> dict[str, Any]:
        """The `[counter]` table of a configuration: `runes` (the ratio), `safe`, or `scripts`.

        Raises:
            ConfigError: another kind, or no class had enough data for `scripts`.
        """
        if kind == "runes":
            return {"kind": "runes", "runes_per_token": round(self.ratio, 3)}
        if kind == "safe":
            return {"kind": "runes", "runes_per_token": self.safe_ratio}
        if kind != "scripts":
            raise ConfigError.for_field("kind", kind, "runes, safe, scripts")
        scripts = {name: round(one.ratio, 3) for name, one in self.by_script.items() if one.ratio is not None}
        if not scripts:
            raise ConfigError.for_field("kind", kind, "runes or safe: no script had enough text for its own ratio")
        return {"kind": "scripts", "runes_per_token": round(self.ratio, 3), "scripts": scripts}

    def _repr_html_(self) -> str:
        from workbench.report.display import calibration_html

        return calibration_html(self)

    def __repr__(self) -> str:
        low, high = self.interval
        return (
            f"Calibration({self.tokenizer}: {self.ratio:.3g} characters per token [{low:.3g}, {high:.3g}], "
            f"safe {self.safe_ratio:g} at {100 * self.quantile:.0f} %, {self.messages:,} messages)"
        )


def calibrate(
    source: Iterable[str | Conversation],
    tokenizer: str | Tokenizer = "o200k_base",
    *,
    quantile: float = DEFAULT_QUANTILE,
    window: int = 1,
    thresholds: Sequence[int] = DEFAULT_THRESHOLDS,
    resamples: int = 400,
    seed: int = 0,
    clock: Clock | None = None,
) -> Calibration:
    """Characters per token of texts or recordings.

    Args:
        source: Texts, each a message, or conversations.
        tokenizer: A name of `tokenizers.NAMES`, a model that tiktoken knows, the path of a `tokenizer.json`.
        quantile: Share of messages that the safe ratio may underestimate.
        window: Judge runs of so many messages instead of single ones; triggers see runs.
        thresholds: Token thresholds whose firings to compare.
    Raises:
        NotEnoughDataError: too few messages for the quantile, or windows.
        ConfigError: no such tokenizer here, or an argument out of range.
    Source: WB-CAL-01, WB-CAL-02.
    """
    _checked(quantile, window, thresholds, resamples)
    found = tokenizer_named(tokenizer) if isinstance(tokenizer, str) else tokenizer
    corpus = corpus_of(source, found)
    need = max(MIN_MESSAGES, ceil(1 / quantile - 1e-9))
    if len(corpus) < need:
        raise NotEnoughDataError("messages with text", have=len(corpus), need=need)
    classes, tokens, first = corpus.windows(window)
    if len(tokens) < need:
        raise NotEnoughDataError(f"windows of {window} messages", have=len(tokens), need=need)
    # A text that a tokenizer drops whole would have an endless ratio.
    kept = tokens > 0
    classes, tokens, first = classes[kept], tokens[kept], first[kept]
    if len(tokens) < need:
        raise NotEnoughDataError("messages that have tokens", have=len(tokens), need=need)
    return _calibration(
        corpus, (classes, tokens, first), found,
        quantile=quantile, window=window, thresholds=thresholds, resamples=resamples, seed=seed,
        date=text_from_ns((clock or SystemClock()).now_ns())[:10],
    )  # fmt: skip


def _checked(quantile: float, window: int, thresholds: Sequence[int], resamples: int) -> None:
    if not 0 < quantile < 1:
        raise ConfigError.for_field("quantile", quantile, "a share above 0 and below 1, such as 0.05")
    if type(window) is not int or window < 1:
        raise ConfigError.for_field("window", window, "a whole number of messages, at least 1")
    if type(resamples) is not int or resamples < 50:
        raise ConfigError.for_field("resamples", resamples, "a whole number, at least 50")
    for threshold in thresholds:
        if type(threshold) is not int or threshold < 1:
            raise ConfigError.for_field("thresholds", threshold, "whole numbers of tokens, at least 1")


def _calibration(
    corpus: Corpus,
    judged: tuple[Ints, Ints, Ints],
    tokenizer: Tokenizer,
    *,
    quantile: float,
    window: int,
    thresholds: Sequence[int],
    resamples: int,
    seed: int,
    date: str,
) -> Calibration:
    import numpy as np

    classes, tokens, _ = judged
    chars = classes.sum(axis=1)
    ratio = float(corpus.chars.sum() / corpus.tokens.sum())
    safe = safe_ratio(chars, tokens, quantile)
    if safe <= 0:
        raise NotEnoughDataError("tokens per character that a divisor can express", have=0, need=1)
    ratios = np.sort(chars / tokens)
    weights, reported = _class_weights(corpus)
    drawn = _Resampled(corpus, judged, reported, quantile=quantile, resamples=resamples, seed=seed)
    by_script = _by_script(corpus, weights, reported, drawn)
    counters = {
        f"default {DEFAULT_RUNES_PER_TOKEN:g}": np.full(len(CLASSES), 1 / DEFAULT_RUNES_PER_TOKEN),
        f"ratio {ratio:.3g}": np.full(len(CLASSES), 1 / round(ratio, 3)),
        f"safe {safe:g}": np.full(len(CLASSES), 1 / safe),
    }
    if any(reported):
        counters["scripts"] = weights
    validation = _cross_validation(corpus, reported, resamples=resamples, seed=seed)
    return Calibration(
        tokenizer=tokenizer.name,
        tokenizer_version=tokenizer.version,
        corpus_hash=corpus.digest,
        conversations=corpus.n_conversations,
        messages=len(corpus),
        chars=int(corpus.chars.sum()),
        tokens=int(corpus.tokens.sum()),
        ratio=ratio,
        median=float(np.median(ratios)),
        safe_ratio=safe,
        quantile=quantile,
        window=window,
        interval=interval(drawn.ratio),
        median_interval=interval(drawn.median),
        safe_interval=interval(drawn.safe),
        resampled=drawn.unit,
        spread=tuple(float(value) for value in np.percentile(ratios, range(101))),
        by_script=by_script,
        errors=tuple(_spread(name, classes @ weight, tokens) for name, weight in counters.items()),
        errors_by_script=_errors_by_script(classes, tokens, round(ratio, 3)),
        cross_validation=validation,
        thresholds=tuple(
            _effect(corpus, name, weight, threshold) for threshold in thresholds for name, weight in counters.items()
        ),
        warnings=tuple(_warnings(ratio, drawn.unit, by_script, validation)),
        seed=seed,
        date=date,
    )


def _class_weights(corpus: Corpus, places: Ints | None = None) -> tuple[Floats, list[bool]]:
    """Tokens per character by class, and which classes have enough text for one of their own."""
    classes = corpus.classes if places is None else corpus.classes[places]
    tokens = corpus.tokens if places is None else corpus.tokens[places]
    reported = reported_classes(classes)
    overall = float(tokens.sum() / classes.sum())
    matrix, right = normal_sums(classes, tokens, overall)
    weights = class_weights(matrix.sum(axis=0), right.sum(axis=0), classes.sum(axis=0), float(tokens.sum()), reported)
    return weights, reported


class _Resampled:
    """The figures of resampled corpora, one list each."""

    def __init__(
        self,
        corpus: Corpus,
        judged: tuple[Ints, Ints, Ints],
        reported: list[bool],
        *,
        quantile: float,
        resamples: int,
        seed: int,
    ) -> None:
        import numpy as np

        classes, tokens, first = judged
        group, self.unit = groups_of(corpus.conversation, seed=seed)
        overall = float(corpus.tokens.sum() / corpus.chars.sum())
        matrix, right = normal_sums(corpus.classes, corpus.tokens, overall)
        columns = (corpus.classes.astype(np.float64), corpus.tokens.astype(np.float64), matrix, right)
        sums = [group_sums(part, group) for part in columns]
        ratios = classes.sum(axis=1) / tokens
        order = np.argsort(ratios, kind="stable")
        ordered, ordered_group = ratios[order], group[first[order]]
        self.ratio: list[float] = []
        self.median: list[float] = []
        self.safe: list[float] = []
        self.by_class: list[Floats] = []
        for times in draws(len(sums[0]), resamples, seed=seed):
            n_chars, n_tokens, system, side = (np.tensordot(times, part, axes=1) for part in sums)
            self.ratio.append(float(n_chars.sum() / n_tokens))
            weights = times[ordered_group]
            if weights.any():
                middle, safe = weighted_quantiles(ordered, weights, (0.5, quantile))
                self.median.append(middle)
                self.safe.append(rounded_down(safe))
            self.by_class.append(class_weights(system, side, n_chars, float(n_tokens), reported))


def _by_script(corpus: Corpus, weights: Floats, reported: list[bool], drawn: _Resampled) -> dict[str, ScriptRatio]:
    chars = corpus.classes.sum(axis=0)
    n_messages = (corpus.classes > 0).sum(axis=0)
    found: dict[str, ScriptRatio] = {}
    for i, name in enumerate(CLASSES):
        n_chars, share = int(chars[i]), float(chars[i] / chars.sum())
        if reported[i]:
            low, high = interval([1 / float(one[i]) for one in drawn.by_class])
            found[name] = ScriptRatio(n_chars, share, 1 / float(weights[i]), (low, high))
            continue
        lacking = NotEnoughDataError(f"characters of {name}", have=n_chars, need=MIN_CLASS_CHARS)
        if n_chars >= MIN_CLASS_CHARS:
            lacking = NotEnoughDataError(f"messages with {name}", have=int(n_messages[i]), need=MIN_CLASS_MESSAGES)
        found[name] = ScriptRatio(n_chars, share, None, None, str(lacking))
    return found


def _spread(name: str, expected: Floats, tokens: Ints) -> ErrorSpread:
    """Estimates in whole tokens, as the engine makes them, against the real ones."""
    import numpy as np

    estimates = np.maximum(np.floor(expected + 1e-9), 1)
    errors = estimates / tokens - 1
    return ErrorSpread(
        name,
        len(tokens),
        float(np.mean(estimates < tokens)),
        float(estimates.sum() / tokens.sum() - 1),
        tuple(float(value) for value in np.quantile(errors, ERROR_SHARES)),
    )


def _errors_by_script(classes: Ints, tokens: Ints, ratio: float) -> dict[str, ErrorSpread]:
    """One ratio is wrong in opposite directions for different scripts, which sums hide; few messages say nothing."""
    chars = classes.sum(axis=1)
    found: dict[str, ErrorSpread] = {}
    for i, name in enumerate(CLASSES):
        mostly = classes[:, i] * 2 > chars
        if mostly.sum() >= MIN_MESSAGES:
            found[name] = _spread(f"ratio {ratio:.3g}", chars[mostly] / ratio, tokens[mostly])
    return found


def _cross_validation(corpus: Corpus, reported: list[bool], *, resamples: int, seed: int) -> CrossValidation | None:
    """None when there is too little to fit on one part and judge on another, or nothing to compare."""
    import numpy as np

    if not any(reported) or len(corpus) < MIN_CROSS_VALIDATION_MESSAGES:
        return None
    errors = np.zeros((len(corpus), 2))
    for fit_on, judge_on in folds(corpus.conversation, _N_FOLDS, seed=seed):
        if not len(judge_on) or not len(fit_on):
            continue
        weights, _ = _class_weights(corpus, fit_on)
        single = corpus.tokens[fit_on].sum() / corpus.chars[fit_on].sum()
        errors[judge_on, 0] = np.abs(corpus.chars[judge_on] * single - corpus.tokens[judge_on])
        errors[judge_on, 1] = np.abs(corpus.classes[judge_on] @ weights - corpus.tokens[judge_on])
    group, _ = groups_of(corpus.conversation, seed=seed)
    by_group = group_sums(np.column_stack([errors, corpus.tokens]), group)
    single, scripts, total = by_group.sum(axis=0)
    gaps = []
    for times in draws(len(by_group), resamples, seed=seed):
        one, other, n_tokens = times @ by_group
        gaps.append(float((other - one) / n_tokens))
    return CrossValidation(_N_FOLDS, float(single / total), float(scripts / total), interval(gaps))


def _effect(corpus: Corpus, name: str, weights: Floats, threshold: int) -> ThresholdEffect:
    """Adds messages up until the estimate exceeds the threshold, then starts again, in every conversation."""
    import numpy as np

    expected = (corpus.classes @ weights).tolist()
    tokens, conversation = corpus.tokens.tolist(), corpus.conversation.tolist()
    at_firing: list[int] = []
    real_firings = 0
    for exact in (False, True):
        estimated, real, current = 0.0, 0, -1
        for add, add_real, place in zip(expected, tokens, conversation, strict=True):
            if place != current:
                estimated, real, current = 0.0, 0, place
            estimated += add
            real += add_real
            if (real if exact else int(estimated + 1e-9)) > threshold:
                if exact:
                    real_firings += 1
                else:
                    at_firing.append(real)
                estimated, real = 0.0, 0
    middle = float(np.median(at_firing)) if at_firing else None
    return ThresholdEffect(threshold, name, len(at_firing), real_firings, middle)


def _warnings(
    ratio: float, unit: str, by_script: Mapping[str, ScriptRatio], validation: CrossValidation | None
) -> Iterable[str]:
    factor = DEFAULT_RUNES_PER_TOKEN / ratio
    if not 0.8 <= factor <= 1.25:
        words = f"{factor:.1f} times too few" if factor > 1 else f"{1 / factor:.1f} times too many"
        yield f"the default of {DEFAULT_RUNES_PER_TOKEN:g} characters per token counts {words} tokens here"
    if unit == "messages":
        yield "fewer than 10 conversations: intervals draw single messages and are too narrow for other conversations"
    for name, one in by_script.items():
        if one.ratio is None and one.share >= 0.01:
            yield f"{name} has no ratio of its own: {one.reason}"
    if validation is None:
        yield "the script-aware counter isn't cross-validated: too little data"
    elif validation.needs_scripts:
        yield (
            f"one ratio is off by {100 * validation.single_error:.0f} % per message, one per script by "
            f"{100 * validation.scripts_error:.0f} %: take the script-aware counter"
        )
