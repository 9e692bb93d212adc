"""Whether a calibration still holds for newer recordings (WB-CAL-05).

In: a stored calibration and recordings. Out: a `Drift`, whose warnings are empty while it holds. Differences that
chance explains, or that move no threshold by more than a twentieth, are none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from workbench.errors import ConfigError
from workbench.evaluate.calibrate import Calibration, calibrate
from workbench.evaluate.corpus import corpus_of
from workbench.evaluate.tokenizers import Tokenizer, tokenizer_named
from workbench.evaluate.usage import UsageCalibration, calibrate_usage
from workbench.recordings.types import Conversation

_LEAST_CHANGE: Final = 0.05
_LEAST_SHIFT: Final = 0.1
_Z: Final = 1.96


@dataclass(frozen=True, slots=True)
class Drift:
    """A stored ratio against the same figure of newer recordings."""

    measured_with: str
    then: float
    then_interval: tuple[float, float]
    now: float
    now_interval: tuple[float, float]
    underestimated: float | None
    """Share of the newer messages that the stored safe ratio underestimates; None for a calibration from usage."""
    quantile: float
    same_recordings: bool
    warnings: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Nothing to warn of."""
        return not self.warnings


def drift(
    calibration: Calibration | UsageCalibration,
    conversations: Iterable[Conversation],
    *,
    tokenizer: Tokenizer | None = None,
    resamples: int = 400,
) -> Drift:
    """Measure newer recordings as the calibration was measured, and compare.

    Raises:
        NotEnoughDataError: too few messages to say anything.
        ConfigError: the tokenizer isn't on this machine.
    """
    if isinstance(calibration, UsageCalibration):
        new = calibrate_usage(conversations, quantile=calibration.quantile, resamples=resamples, seed=calibration.seed)
        return Drift(
            f"usage of {calibration.model or 'an unknown model'}", calibration.ratio, calibration.interval,
            new.ratio, new.interval, None, calibration.quantile, new.corpus_hash == calibration.corpus_hash,
            tuple(_ratio_warning(calibration.ratio, calibration.interval, new.ratio, new.interval)),
        )  # fmt: skip
    kept = list(conversations)
    found = tokenizer or tokenizer_named(calibration.tokenizer)
    if tokenizer is not None and tokenizer.name != calibration.tokenizer:
        raise ConfigError.for_field(
            "tokenizer", tokenizer.name, f"{calibration.tokenizer}, which the file was made with"
        )
    fresh = calibrate(
        kept, found, quantile=calibration.quantile, window=calibration.window, thresholds=(),
        resamples=resamples, seed=calibration.seed,
    )  # fmt: skip
    underestimated, n_judged = _underestimated(kept, found, calibration)
    return Drift(
        f"{found.name} ({found.version})", calibration.ratio, calibration.interval, fresh.ratio, fresh.interval,
        underestimated, calibration.quantile, fresh.corpus_hash == calibration.corpus_hash,
        tuple(_warnings(calibration, fresh, underestimated, n_judged)),
    )  # fmt: skip


def _underestimated(
    conversations: Iterable[Conversation], tokenizer: Tokenizer, calibration: Calibration
) -> tuple[float, int]:
    import numpy as np

    classes, tokens, _ = corpus_of(conversations, tokenizer).windows(calibration.window)
    estimates = np.floor(classes.sum(axis=1) / calibration.safe_ratio)
    return float(np.mean(estimates < tokens)), len(tokens)


def _warnings(then: Calibration, now: Calibration, underestimated: float, n_judged: int) -> Iterator[str]:
    yield from _ratio_warning(then.ratio, then.interval, now.ratio, now.interval)
    if _at_least(underestimated, n_judged) > then.quantile:
        yield (
            f"the safe ratio {then.safe_ratio:g} underestimates {100 * underestimated:.0f} % of the newer messages, "
            f"{100 * then.quantile:.0f} % were allowed: use {now.safe_ratio:g}"
        )
    for name, new in now.by_script.items():
        old = then.by_script.get(name)
        if old is not None and abs(new.share - old.share) > _LEAST_SHIFT:
            yield (
                f"{name} is {100 * new.share:.0f} % of the characters, it was {100 * old.share:.0f} %: "
                "the mix of scripts has changed"
            )
    if then.tokenizer_version != now.tokenizer_version:
        yield f"measured with {now.tokenizer_version}, the file with {then.tokenizer_version}"


def _ratio_warning(
    then: float, then_interval: tuple[float, float], now: float, now_interval: tuple[float, float]
) -> Iterator[str]:
    apart = now_interval[0] > then_interval[1] or now_interval[1] < then_interval[0]
    if apart and abs(now / then - 1) > _LEAST_CHANGE:
        effect = "earlier" if now > then else "later"
        yield (
            f"{now:.3g} characters per token, the file says {then:.3g}: a threshold fires at "
            f"{then / now:.2g} times its tokens, {effect} than meant; calibrate again"
        )


def _at_least(share: float, n: int) -> float:
    """Lower end of Wilson's interval of a share."""
    centre = share + _Z**2 / (2 * n)
    margin = _Z * math.sqrt(share * (1 - share) / n + _Z**2 / (4 * n**2))
    return (centre - margin) / (1 + _Z**2 / n)
