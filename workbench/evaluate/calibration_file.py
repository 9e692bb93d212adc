"""A calibration as a file: TOML or JSON that a person can read, and that loads back equal (WB-CAL-05).

In: a `Calibration` or a `UsageCalibration`. Out: plain values, a file, and the calibration again.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Final

from workbench.errors import ConfigError, RecordingError
from workbench.evaluate.calibrate import Calibration, CrossValidation, ErrorSpread, ScriptRatio, ThresholdEffect
from workbench.evaluate.usage import UsageCalibration

FORMAT_VERSION: Final = 1
AnyCalibration = Calibration | UsageCalibration


def calibration_values(calibration: AnyCalibration) -> dict[str, Any]:
    """Every figure by its name, as JSON holds it; None where there is none."""
    values: dict[str, Any] = _plain(asdict(calibration))
    return values


def save_calibration(calibration: AnyCalibration, path: str | Path) -> Path:
    """Write a `.toml` or `.json` file; TOML leaves out what is None.

    Raises:
        ConfigError: another ending, or the file can't be written.
    """
    path = Path(path)
    kind = "usage" if isinstance(calibration, UsageCalibration) else "tokenizer"
    values = {"calibration": FORMAT_VERSION, "from": kind, **calibration_values(calibration)}
    values["counters"] = _plain(counter_tables(calibration))
    if path.suffix.lower() == ".json":
        text = json.dumps(values, ensure_ascii=False, indent=2) + "\n"
    elif path.suffix.lower() == ".toml":
        text = _toml(values)
    else:
        raise ConfigError.for_field("-o", str(path), "a file name that ends in .toml or .json")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: can't be written: {error.strerror}", field="-o", value=str(path)) from error
    return path


def counter_tables(calibration: AnyCalibration) -> dict[str, dict[str, Any]]:
    """The `[counter]` tables that a configuration can take from it, by what they are good for."""
    tables = {"ratio": calibration.counter("runes"), "safe": calibration.counter("safe")}
    if isinstance(calibration, Calibration) and any(one.ratio is not None for one in calibration.by_script.values()):
        tables["scripts"] = calibration.counter("scripts")
    return tables


def load_calibration(path: str | Path) -> AnyCalibration:
    """Read what `save_calibration` wrote.

    Raises:
        RecordingError: the file can't be read.
        ConfigError: it is no calibration, or one of another version.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise RecordingError(
            f"the calibration can't be read: {reason}", path=path, hint="`workbench calibrate … -o FILE` writes one"
        ) from error
    try:
        values = json.loads(text) if path.suffix.lower() == ".json" else tomllib.loads(text)
        if values["calibration"] != FORMAT_VERSION:
            raise ConfigError(
                f"{path}: calibration version {values['calibration']!r}, this program reads {FORMAT_VERSION}",
                field="calibration",
                hint="calibrate again",
            )
        return _from_values(values)
    except ConfigError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"{path}: not a calibration: {error}", field=str(path), hint="`workbench calibrate … -o FILE` writes one"
        ) from error


def _from_values(values: Mapping[str, Any]) -> AnyCalibration:
    cls: type[AnyCalibration] = UsageCalibration if values["from"] == "usage" else Calibration
    known: dict[str, Any] = {}
    for field in fields(cls):
        value = values.get(field.name)
        known[field.name] = tuple(value) if isinstance(value, list) else value
    if cls is Calibration:
        known["by_script"] = {
            name: ScriptRatio(**_complete(ScriptRatio, one)) for name, one in known["by_script"].items()
        }
        known["errors_by_script"] = {
            name: ErrorSpread(**_complete(ErrorSpread, one)) for name, one in (known["errors_by_script"] or {}).items()
        }
        known["errors"] = tuple(ErrorSpread(**_complete(ErrorSpread, one)) for one in known["errors"])
        known["thresholds"] = tuple(
            ThresholdEffect(**_complete(ThresholdEffect, one)) for one in known["thresholds"] or ()
        )
        if known["cross_validation"] is not None:
            known["cross_validation"] = CrossValidation(**_complete(CrossValidation, known["cross_validation"]))
    found = cls(**known)
    for name in ("ratio", "safe_ratio", "quantile"):
        number = getattr(found, name)
        if isinstance(number, bool) or not isinstance(number, int | float) or not 0 < number < math.inf:
            raise ConfigError.for_field(name, number, "a number above 0", hint="calibrate again")
    return found


def _complete(cls: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Values of a class, with None for what the file leaves out and tuples for lists."""
    found = {field.name: values.get(field.name) for field in fields(cls)}
    if "reason" in found and found["reason"] is None:
        found["reason"] = ""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in found.items()}


def _plain(value: Any) -> Any:
    """Tuples as lists, numbers with six significant digits behind the point."""
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(inner) for inner in value]
    return round(value, 6) if isinstance(value, float) else value


def _toml(values: Mapping[str, Any], path: tuple[str, ...] = ()) -> str:
    """TOML text: plain values first, then tables, then lists of tables."""
    lines: list[str] = []
    tables: list[str] = []
    for name, value in values.items():
        where = ".".join((*path, name))
        if value is None:
            continue
        if isinstance(value, Mapping):
            tables.append(f"\n[{where}]\n{_toml(value, (*path, name))}")
        elif isinstance(value, list) and value and isinstance(value[0], Mapping):
            tables += [f"\n[[{where}]]\n{_toml(one, (*path, name))}" for one in value]
        else:
            # JSON's texts, numbers and lists of them are TOML's, but for one control character.
            text = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
            lines.append(f"{name} = {text}\n")
    return "".join(lines + tables)
