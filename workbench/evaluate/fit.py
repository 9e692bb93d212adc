"""The arithmetic of a calibration: ratios, safe ratios, ratios by class, and their intervals by resampling.

In: columns of a corpus. Out: numbers. Nothing here reads a file, a clock or an unseeded random number.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from workbench.script_counter import CLASSES

if TYPE_CHECKING:
    from workbench.evaluate.corpus import Floats, Ints

MIN_CLASS_CHARS = 200
MIN_CLASS_MESSAGES = 10
_MAX_GROUPS = 2000
_PRIOR_TOKENS = 5.0
"""How many tokens' worth of evidence say that a class has the ratio of the whole: keeps classes that always come
together from being told apart by chance."""
_MIN_WEIGHT = 0.02
"""A character costs at least 1/50 of a token; a fit may want less, or a negative one."""


def rounded_down(ratio: float) -> float:
    """Three decimals, never above the value: what is written into a configuration stays safe."""
    return math.floor(ratio * 1000 + 1e-9) / 1000


def safe_ratio(chars: Ints, tokens: Ints, quantile: float) -> float:
    """The largest ratio, to three decimals, by which the engine underestimates at most that share of messages."""
    import numpy as np

    allowed = int(quantile * len(chars) + 1e-9)
    ratio = rounded_down(float(np.partition(chars / tokens, allowed)[allowed]))
    while int(np.sum(np.floor(chars / ratio) < tokens)) > allowed:  # the last bit of a quotient may round down
        ratio = round(ratio - 0.001, 3)
    return ratio


def reported_classes(classes: Ints) -> list[bool]:
    """Which classes have enough characters in enough messages for a ratio of their own."""
    enough = (classes.sum(axis=0) >= MIN_CLASS_CHARS) & ((classes > 0).sum(axis=0) >= MIN_CLASS_MESSAGES)
    return [bool(one) for one in enough]


def normal_sums(classes: Ints, tokens: Ints, weight: float) -> tuple[Floats, Floats]:
    """Per message the terms of the normal equations; a message's error counts relative to its expected tokens."""
    import numpy as np

    n = classes.astype(np.float64)
    scale = 1.0 / np.maximum(n.sum(axis=1) * weight, 1.0)
    return n[:, :, None] * n[:, None, :] * scale[:, None, None], n * (tokens * scale)[:, None]


def class_weights(matrix: Floats, right: Floats, chars: Floats, tokens: float, reported: list[bool]) -> Floats:
    """Tokens per character by class: least squares, none too small, scaled so that all tokens are accounted for.

    All classes are fitted together, so that a rare one doesn't bend its neighbours.

    Args:
        chars: Characters by class; one without any has the weight of the whole.
        reported: Classes that keep their own weight; the others then get that of the whole.
    """
    import numpy as np

    overall = tokens / chars.sum()
    weights = np.full(len(CLASSES), overall)
    prior = _PRIOR_TOKENS / overall**2
    present = chars > 0
    free = [i for i, is_present in enumerate(present) if is_present]
    fixed: list[int] = []
    while free:
        system = matrix[np.ix_(free, free)] + prior * np.eye(len(free))
        rest = right[free] - matrix[np.ix_(free, fixed)] @ weights[fixed] + prior * overall
        found = np.linalg.solve(system, rest)
        too_small = [i for i, value in zip(free, found, strict=True) if value < _MIN_WEIGHT]
        if not too_small:
            weights[free] = found
            break
        weights[too_small] = _MIN_WEIGHT
        free = [i for i in free if i not in too_small]
        fixed += too_small
    weights[present] *= tokens / float(chars @ weights)
    return np.where(reported, weights, overall)


def groups_of(conversation: Ints, *, seed: int) -> tuple[Ints, str]:
    """The group of each message and what a group is: messages of one conversation resemble each other, so whole
    conversations are drawn, unless there are too few of them."""
    import numpy as np

    names, group = np.unique(conversation, return_inverse=True)
    unit = "conversations"
    if len(names) < 10:
        unit = "messages"
        names, group = np.arange(len(conversation)), np.arange(len(conversation))
    if len(names) > _MAX_GROUPS:  # drawn in random bundles: the same spread for much less work
        bundle = np.random.default_rng(seed).permutation(len(names)) % _MAX_GROUPS
        group = bundle[group]
    return group.astype(np.int64), unit


def draws(n_groups: int, n_resamples: int, *, seed: int) -> Iterator[Ints]:
    """How often each group is drawn, once per resample."""
    import numpy as np

    rng = np.random.default_rng(seed)
    for _ in range(n_resamples):
        yield np.bincount(rng.integers(0, n_groups, n_groups), minlength=n_groups)


def group_sums(values: Floats, group: Ints) -> Floats:
    """Sums of rows by group."""
    import numpy as np

    sums = np.zeros((int(group.max()) + 1, *values.shape[1:]))
    np.add.at(sums, group, values)
    return sums


def weighted_quantiles(ordered: Floats, weights: Ints, shares: tuple[float, ...]) -> list[float]:
    """Values of an ascending column at shares of the summed weights."""
    import numpy as np

    summed = np.cumsum(weights)
    places = np.searchsorted(summed, [share * summed[-1] for share in shares], side="right")
    return [float(ordered[min(int(place), len(ordered) - 1)]) for place in places]


def interval(values: list[float], confidence: float = 0.95) -> tuple[float, float]:
    """The middle part of resampled values."""
    import numpy as np

    tail = (1 - confidence) / 2
    low, high = np.quantile(values, [tail, 1 - tail])
    return float(low), float(high)


def folds(conversation: Ints, n_folds: int, *, seed: int) -> Iterator[tuple[Ints, Ints]]:
    """Places of the messages to fit on and to judge on; a conversation is never on both sides."""
    import numpy as np

    group, _ = groups_of(conversation, seed=seed)
    n_groups = int(group.max()) + 1
    fold_of_group = np.random.default_rng(seed).permutation(n_groups) % n_folds
    fold = fold_of_group[group]
    for number in range(n_folds):
        yield np.flatnonzero(fold != number), np.flatnonzero(fold == number)
