"""Calibration from usage alone: where no tokenizer is public, the provider's own counts are fitted (WB-CAL-03).

In: recordings whose calls report prompt tokens. Out: characters per token, and what a message, a tool schema and a
request cost on top. From one call to the next of a conversation only new messages come in, so the differences hold
neither the system prompt nor the schemas; those are fitted afterwards to the first calls.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any, Final

from workbench.clock import Clock, SystemClock, text_from_ns
from workbench.errors import ConfigError, NotEnoughDataError
from workbench.evaluate.fit import draws, group_sums, groups_of, interval, safe_ratio
from workbench.recordings.types import Conversation
from workbench.replay.cache import tools_text
from workbench.tokens import DEFAULT_RUNES_PER_TOKEN, SimpleTokenCounter
from workbench.version import __version__

if TYPE_CHECKING:
    from workbench.evaluate.corpus import Floats, Ints

MIN_STEPS: Final = 20
DEFAULT_QUANTILE: Final = 0.05
_MAX_CONDITION = 1e8
_OUTLIER = 6.0
"""A step this many times farther from the fit than the typical one isn't explained by text: the context was edited."""
_HIDDEN_TOKENS = 50.0
"""More than this on top of a request without a recorded system message is a prompt that the recording lacks."""


@dataclass(frozen=True, slots=True)
class UsageCalibration:
    """Characters per token by a provider's usage, and its overheads; None = can't be told from these recordings."""

    model: str
    corpus_hash: str
    conversations: int
    calls: int
    """Calls with reported prompt tokens."""
    steps: int
    """Pairs of such calls, one after the other, that were fitted."""
    left_out: int
    """Pairs left out: the prompt shrank, or grew by something that isn't in the recording."""
    chars: int
    tokens: int
    """Sums over the steps."""
    ratio: float
    interval: tuple[float, float]
    safe_ratio: float
    """Divisor that underestimates the text of at most `quantile` of the steps."""
    quantile: float
    per_message: float | None
    per_message_interval: tuple[float, float] | None
    per_tool: float | None
    """Tokens per tool schema beyond its text."""
    per_request: float | None
    error: float
    """Mean absolute error of a step as a share of its tokens, on conversations not fitted to."""
    resampled: str
    warnings: tuple[str, ...]
    seed: int
    date: str
    workbench_version: str = __version__

    def counter(self, kind: str = "runes") -> dict[str, Any]:
        """The `[counter]` table of a configuration: `runes` (the ratio) or `safe`."""
        if kind not in {"runes", "safe"}:
            raise ConfigError.for_field("kind", kind, "runes, safe")
        return {"kind": "runes", "runes_per_token": round(self.ratio, 3) if kind == "runes" else self.safe_ratio}

    def billing(self) -> dict[str, Any]:
        """The `[billing]` table: measures prompts as the provider counted them."""
        return {
            "encoding": f"runes:{round(self.ratio, 3):g}",
            "per_message": round(self.per_message or 0),
            "per_request": round(self.per_request or 0),
        }

    def __repr__(self) -> str:
        low, high = self.interval
        return (
            f"UsageCalibration({self.model or 'unknown model'}: {self.ratio:.3g} characters per token "
            f"[{low:.3g}, {high:.3g}], {self.steps:,} steps)"
        )


@dataclass(slots=True)
class _Rows:
    """Columns of steps and of first calls."""

    chars: list[int]
    messages: list[int]
    tokens: list[int]
    conversation: list[int]
    first: list[tuple[int, int, int, int, bool]]
    """Characters, messages, tools, tokens, whether the system message is known."""
    n_calls: int = 0
    n_shrunk: int = 0


def calibrate_usage(
    conversations: Iterable[Conversation],
    *,
    quantile: float = DEFAULT_QUANTILE,
    resamples: int = 400,
    seed: int = 0,
    clock: Clock | None = None,
) -> UsageCalibration:
    """Fit characters per token and overheads to the prompt tokens that the recordings report.

    Raises:
        NotEnoughDataError: too few calls with usage that follow one another.
    Source: WB-CAL-03.
    """
    import numpy as np

    if not 0 < quantile < 1:
        raise ConfigError.for_field("quantile", quantile, "a share above 0 and below 1, such as 0.05")
    kept = list(conversations)
    rows = _rows(kept)
    need = max(MIN_STEPS, ceil(1 / quantile - 1e-9))
    if len(rows.tokens) < need:
        raise NotEnoughDataError("pairs of calls in a row that report prompt tokens", have=len(rows.tokens), need=need)
    design = np.column_stack([rows.chars, rows.messages]).astype(np.float64)
    tokens = np.array(rows.tokens, np.float64)
    conversation = np.array(rows.conversation, np.int64)
    inside = _without_outliers(design, tokens)
    design, tokens, conversation = design[inside], tokens[inside], conversation[inside]
    if len(tokens) < need:
        raise NotEnoughDataError("pairs of calls that text explains", have=len(tokens), need=need)
    per_char, per_message = _fit(design, tokens)
    if not per_char > 0:
        raise NotEnoughDataError("steps whose tokens grow with their characters", have=0, need=need)
    group, unit = groups_of(conversation, seed=seed)
    ratios, overheads = _resampled(design, tokens, group, per_message, resamples=resamples, seed=seed)
    per_tool, per_request, warnings = _level(rows, per_char, per_message or 0.0)
    text_tokens = np.maximum(np.ceil(tokens - design[:, 1] * (per_message or 0.0) - 1e-9), 1).astype(np.int64)
    if per_message is None:
        warnings.insert(
            0, "the overhead per message can't be told apart: every step brings as many messages per character"
        )
    if unit == "messages":
        warnings.append("fewer than 10 conversations: intervals draw single calls and are too narrow for others")
    factor = DEFAULT_RUNES_PER_TOKEN * per_char
    if not 0.8 <= factor <= 1.25:
        warnings.append(
            f"the default of {DEFAULT_RUNES_PER_TOKEN:g} characters per token sees 1/{factor:.2g} of the tokens"
        )
    digest = hashlib.sha256("".join(one.content_hash for one in kept).encode("ascii")).hexdigest()
    return UsageCalibration(
        model=", ".join(sorted({one.model for one in kept if one.model})),
        corpus_hash=digest,
        conversations=int(np.unique(conversation).size),
        calls=rows.n_calls,
        steps=len(tokens),
        left_out=rows.n_shrunk + int(np.sum(~inside)),
        chars=int(design[:, 0].sum()),
        tokens=int(tokens.sum()),
        ratio=1 / per_char,
        interval=interval(ratios),
        safe_ratio=safe_ratio(design[:, 0].astype(np.int64), text_tokens, quantile),
        quantile=quantile,
        per_message=per_message,
        per_message_interval=interval(overheads) if overheads else None,
        per_tool=per_tool,
        per_request=per_request,
        error=_held_out_error(design, tokens, group, seed=seed),
        resampled=unit if unit == "conversations" else "calls",
        warnings=tuple(warnings),
        seed=seed,
        date=text_from_ns((clock or SystemClock()).now_ns())[:10],
    )


def _rows(conversations: Iterable[Conversation]) -> _Rows:
    rows = _Rows([], [], [], [], [])
    runes = SimpleTokenCounter().runes
    for number, conversation in enumerate(conversations):
        usage = conversation.usage
        n_chars, n_messages = len(conversation.instruction), int(bool(conversation.instruction))
        asked = {call.event.id for call in conversation.calls}
        last: tuple[int, int, int] | None = None
        is_first = True
        for event in conversation.events:
            reported = usage[event.id].prompt_tokens if event.id in asked and event.id in usage else None
            if reported:
                rows.n_calls += 1
                if is_first:
                    tools = len(tools_text(conversation.tools))
                    known = bool(conversation.instruction)
                    rows.first.append((n_chars + tools, n_messages, len(conversation.tools), reported, known))
                if last is not None:
                    grown = (n_chars - last[0], n_messages - last[1], reported - last[2])
                    if grown[0] > 0 and grown[2] > 0:
                        rows.chars.append(grown[0])
                        rows.messages.append(grown[1])
                        rows.tokens.append(grown[2])
                        rows.conversation.append(number)
                    else:
                        rows.n_shrunk += 1
                last = (n_chars, n_messages, reported)
                is_first = False
            if not event.is_partial:
                n_chars += sum(map(runes, event.messages))
                n_messages += len(event.messages)
    return rows


def _fit(design: Floats, tokens: Floats) -> tuple[float, float | None]:
    """Tokens per character and per message by weighted least squares; the latter is never negative, and None when
    messages and characters grow in step."""
    import numpy as np

    scale = 1 / np.sqrt(tokens)
    scaled, side = design * scale[:, None], tokens * scale
    unit = scaled / np.linalg.norm(scaled, axis=0)
    alone = float(scaled[:, 0] @ side / (scaled[:, 0] @ scaled[:, 0]))
    if np.linalg.cond(unit.T @ unit) > _MAX_CONDITION:
        return alone, None
    per_char, per_message = np.linalg.lstsq(scaled, side, rcond=None)[0]
    return (alone, 0.0) if per_message < 0 else (float(per_char), float(per_message))


def _without_outliers(design: Floats, tokens: Floats) -> Any:
    """Which steps text explains: their distance from a first fit is of the usual size."""
    import numpy as np

    per_char = float(np.median(tokens / np.maximum(design[:, 0], 1)))
    for _ in range(2):
        distance = np.abs(np.log((design[:, 0] * per_char + 1) / (tokens + 1)))
        typical = float(np.median(distance))
        inside = distance <= _OUTLIER * max(typical, 0.05)
        per_char = float(tokens[inside].sum() / max(design[inside, 0].sum(), 1))
    return inside


def _resampled(
    design: Floats, tokens: Floats, group: Ints, per_message: float | None, *, resamples: int, seed: int
) -> tuple[list[float], list[float]]:
    import numpy as np

    terms = design[:, :, None] * design[:, None, :] / tokens[:, None, None]
    by_group = group_sums(terms, group), group_sums(design, group)
    ratios: list[float] = []
    overheads: list[float] = []
    for times in draws(len(by_group[0]), resamples, seed=seed):
        matrix, side = (np.tensordot(times, part, axes=1) for part in by_group)
        per_char, overhead = float(side[0] / matrix[0, 0]) if matrix[0, 0] else 0.0, 0.0
        if per_message is not None and np.linalg.matrix_rank(matrix) == 2:
            found = np.linalg.solve(matrix, side)
            if found[1] >= 0:
                per_char, overhead = float(found[0]), float(found[1])
        if per_char > 0:
            ratios.append(1 / per_char)
            if per_message is not None:
                overheads.append(overhead)
    return ratios, overheads


def _held_out_error(design: Floats, tokens: Floats, group: Ints, *, seed: int) -> float:
    import numpy as np

    fold = np.random.default_rng(seed).permutation(int(group.max()) + 1) % 5
    error = 0.0
    for number in range(5):
        out = fold[group] == number
        if out.any() and not out.all():
            per_char, per_message = _fit(design[~out], tokens[~out])
            error += float(np.abs(design[out] @ [per_char, per_message or 0.0] - tokens[out]).sum())
    return error / float(tokens.sum())


def _level(rows: _Rows, per_char: float, per_message: float) -> tuple[float | None, float | None, list[str]]:
    """What first calls cost beyond their text: per tool schema and per request, and what can't be told."""
    import numpy as np

    first = [row for row in rows.first if row[4]]
    if not first:
        return None, None, ["the recordings hold no system message: overheads per request and per tool can't be told"]
    rest = np.array([tokens - per_char * chars - per_message * n for chars, n, _, tokens, _ in first])
    n_tools = np.array([row[2] for row in first], np.float64)
    if len(set(n_tools.tolist())) > 1:
        constant, slope = np.linalg.lstsq(np.column_stack([np.ones(len(rest)), n_tools]), rest, rcond=None)[0]
        return float(slope), float(constant), []
    constant = float(np.median(rest))
    if n_tools[0] == 0:
        return None, constant, _hidden(constant)
    return (
        None,
        constant,
        [
            f"all conversations offer {int(n_tools[0])} tools: what a schema costs beyond its text is part of the request"
        ],
    )


def _hidden(constant: float) -> list[str]:
    if constant <= _HIDDEN_TOKENS:
        return []
    return [
        f"each request holds about {constant:.0f} tokens that the recordings lack: a hidden prompt, or tool schemas"
    ]
