"""A grid of options as configurations: lists, ranges and conditions (WB-TUNE-02).

In: a base configuration and `{option path: values}`. Out: configurations, each named by what it changes, without
those that come to the same. Everything is checked before anything runs: option names, values, the number of runs.

An axis is a list (`[1000, 2000]`), a range (`{"from": 1000, "to": 8000, "steps": 4, "scale": "log"}`, or with
`"step": 500`), or `{"values": ..., "when": {option: values}}`, which varies only where other options have one of the
named values.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workbench.config import RunConfig, option_named
from workbench.errors import ConfigError

DEFAULT_MAX_RUNS = 10_000
_MAX_VALUES = 100_000
# What a sweep without a grid varies: names have to fit into a title.
SHORT_NAMES = {
    "agent.summary_injection_mode": "in",
    "compaction.tool_result_max_tokens": "results",
    "counter.runes_per_token": "ratio",
    "summarizer.max_summary_words": "words",
}
_RANGE_KEYS = {"from", "to", "steps", "step", "scale"}


@dataclass(frozen=True, slots=True)
class Axis:
    """One option and the values that it takes."""

    option: str
    values: tuple[Any, ...]
    when: tuple[tuple[str, tuple[Any, ...]], ...] = ()
    """The axis varies only where each of these options has one of these values."""


def axes_of(grid: Mapping[str, Any]) -> tuple[Axis, ...]:
    """The axes of a grid as a file or Python writes it.

    Raises:
        ConfigError: an option that doesn't exist (with the nearest name), an empty axis, a range that isn't one.
    """
    axes = []
    for option, said in grid.items():
        option_named(option)
        when: Mapping[str, Any] = {}
        values = said
        if isinstance(said, Mapping) and "values" in said:
            values, when = said["values"], said.get("when") or {}
            _check_keys(option, said, {"values", "when"})
            if not isinstance(when, Mapping):
                raise ConfigError.for_field(f"grid.{option}.when", when, "a table of options and their values")
        axes.append(Axis(option, _values(option, values), tuple(_condition(name, one) for name, one in when.items())))
    return tuple(axes)


def _condition(option: str, values: Any) -> tuple[str, tuple[Any, ...]]:
    option_named(option)
    return option, tuple(values) if isinstance(values, list | tuple) else (values,)


def _check_keys(option: str, said: Mapping[str, Any], allowed: set[str]) -> None:
    for key in said:
        if key not in allowed:
            raise ConfigError.for_field(f"grid.{option}", key, ", ".join(sorted(allowed)))


def _values(option: str, said: Any) -> tuple[Any, ...]:
    if isinstance(said, Mapping) and "from" in said:
        return _range(option, said)
    if not isinstance(said, list | tuple):
        raise ConfigError.for_field(f"grid.{option}", said, "a list of values, or a range with from, to and steps")
    if not said:
        raise ConfigError(f"sweep: {option} has no values", field=f"grid.{option}", hint="give at least one value")
    return tuple(said)


def _range(option: str, said: Mapping[str, Any]) -> tuple[Any, ...]:
    _check_keys(option, said, _RANGE_KEYS)
    low: Any = said["from"]
    high: Any = said.get("to")
    ends = (low, high, said.get("step", 1), said.get("steps", 2))
    if not all(map(_is_number, ends)) or high < low or not _is_number(high - low):
        raise ConfigError.for_field(f"grid.{option}", dict(said), "numbers, from at most to")
    if ("step" in said) == ("steps" in said):
        raise ConfigError.for_field(f"grid.{option}", dict(said), "either steps (how many) or step (how far apart)")
    scale = said.get("scale", "linear")
    if scale not in {"linear", "log"} or (scale == "log" and (low <= 0 or "step" in said)):
        raise ConfigError.for_field(f"grid.{option}.scale", scale, "linear, or log above 0 with steps")
    if "step" in said and said["step"] <= 0:
        raise ConfigError.for_field(f"grid.{option}.step", said["step"], "a number above 0")
    if "steps" in said and said["steps"] != int(said["steps"]):
        raise ConfigError.for_field(f"grid.{option}.steps", said["steps"], "a whole number")
    n_points = (high - low) / said["step"] + 1e-9 + 1 if "step" in said else said["steps"]
    if n_points > _MAX_VALUES:
        raise ConfigError(
            f"sweep: {option} alone has {math.floor(n_points) if math.isfinite(n_points) else n_points:,} values; limit {_MAX_VALUES:,}",
            field=f"grid.{option}",
            hint="fewer steps: neighbouring thresholds fire at the same calls",
        )
    if "step" in said:
        points = [low + i * said["step"] for i in range(int(n_points))]
    else:
        points = list(_spread(low, high, said["steps"], is_log=scale == "log"))
    if not points:
        raise ConfigError(f"sweep: {option} has no values", field=f"grid.{option}", hint="steps is at least 1")
    whole = isinstance(low, int) and isinstance(high, int) and isinstance(said.get("step", 1), int)
    return tuple(dict.fromkeys(round(point) if whole else float(f"{point:.6g}") for point in points))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _spread(low: float, high: float, steps: int, *, is_log: bool) -> Iterator[float]:
    for i in range(int(steps)):
        share = i / (steps - 1) if steps > 1 else 0.0
        yield math.exp(math.log(low) + share * math.log(high / low)) if is_log else low + share * (high - low)


def configurations(
    base: RunConfig, grid: Mapping[str, Any], *, max_runs: int = DEFAULT_MAX_RUNS
) -> tuple[RunConfig, ...]:
    """The configurations of a grid; of several that come to the same the first.

    Raises:
        ConfigError: too many runs, or an impossible combination, named.
    """
    axes = axes_of(grid)
    _check_count(base, axes, max_runs)
    shorts = _short_names([axis.option for axis in axes])
    varied = {axis.option for axis in axes if len(axis.values) > 1 or axis.when}
    found: dict[str, RunConfig] = {}
    names: set[str] = set()
    for chosen in _combinations(base, axes):
        # What all runs share tells none apart; a whole table says itself what it is.
        told = {option: value for option, value in chosen.items() if option in varied} or chosen
        name = " ".join(
            _shown(value) if isinstance(value, Mapping) and value else f"{shorts[option]}={_shown(value)}"
            for option, value in told.items()
        )
        try:
            config = base.replace(**{**chosen, "name": name})
        except ConfigError as error:
            raise ConfigError(
                f"sweep: {name}: {error}", field=error.field, value=error.value, hint=error.hint
            ) from error
        if config.config_hash in found:
            continue
        if name in names:  # 1 and true look alike
            config = config.replace(name=f"{name} ({config.config_hash[:6]})")
        names.add(name)
        found[config.config_hash] = config
    return tuple(found.values())


def _check_count(base: RunConfig, axes: Sequence[Axis], max_runs: int) -> None:
    n_runs = math.prod(len(axis.values) for axis in axes)
    if n_runs > max_runs and any(axis.when for axis in axes):
        n_runs = sum(1 for _, _ in zip(range(max_runs + 1), _combinations(base, axes), strict=False))
        said = f"more than {max_runs:,}" if n_runs > max_runs else ""
    else:
        said = f"{n_runs:,}"
    if n_runs > max_runs:
        raise ConfigError(
            f"sweep: {said} runs; limit {max_runs:,}", field="max_runs", value=max_runs, hint="raise max_runs"
        )


def _combinations(base: RunConfig, axes: Sequence[Axis]) -> Iterator[dict[str, Any]]:
    """What each run changes; an axis whose condition doesn't hold leaves its option as it is."""
    ordered = [*(axis for axis in axes if not axis.when), *(axis for axis in axes if axis.when)]
    at_base = base.model_dump(mode="json")
    seen: set[str] = set()

    def holds(axis: Axis, chosen: Mapping[str, Any]) -> bool:
        return all(
            (chosen[option] if option in chosen else _at(at_base, option)) in values for option, values in axis.when
        )

    def grow(chosen: dict[str, Any], rest: Sequence[Axis]) -> Iterator[dict[str, Any]]:
        if not rest:
            yield chosen
            return
        axis, *others = rest
        if not holds(axis, chosen):
            yield from grow(chosen, others)
            return
        for value in axis.values:
            yield from grow({**chosen, axis.option: value}, others)

    for chosen in grow({}, ordered):
        key = json.dumps(chosen, sort_keys=True, default=str)
        if key not in seen:
            seen.add(key)
            yield chosen


def _at(values: Any, path: str) -> Any:
    for name in path.split("."):
        values = values.get(name) if isinstance(values, Mapping) else None
    return values


def _short_names(options: Sequence[str]) -> dict[str, str]:
    """A short form, else the last part of each option's name; the whole where that isn't enough to tell them apart.

    `compaction.enabled` is `compaction`: what is switched says more than that it is a switch.
    """
    last = [SHORT_NAMES.get(option, option.removesuffix(".enabled").rsplit(".", 1)[-1]) for option in options]
    return {option: short if last.count(short) == 1 else option for option, short in zip(options, last, strict=True)}


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):  # a whole table: {"token": 2000} as token:2000
        return "+".join(f"{name}:{_shown(inner)}" for name, inner in value.items()) or "{}"
    if isinstance(value, list | tuple):
        return f"[{','.join(map(_shown, value))}]"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float) and value.is_integer():
        return f"{value:.0f}"
    return value if isinstance(value, str) else json.dumps(value)
