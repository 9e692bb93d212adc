"""`workbench calibrate`: its options, the call it makes, and what it prints."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.cli.options import add_recording_options, load, seed
from workbench.cli.output import print_json, print_problems
from workbench.errors import ConfigError

if TYPE_CHECKING:
    from workbench.recordings import Recordings


def add(command: argparse.ArgumentParser) -> None:
    """Find out how many characters make a token in recordings, and what another counter would change.

    workbench calibrate chats.jsonl --tokenizer o200k_base --config today.toml -o calibration.toml
    """
    add_recording_options(command)
    command.add_argument(
        "--tokenizer",
        default="o200k_base",
        metavar="NAME",
        help="an encoding, a model, or the path of a tokenizer.json; `workbench doctor` lists what is here",
    )
    command.add_argument(
        "--usage", action="store_true", help="fit to the prompt tokens that the recordings report, without a tokenizer"
    )
    command.add_argument(
        "--quantile",
        type=float,
        default=0.05,
        metavar="Q",
        help="share of messages that the safe ratio may underestimate",
    )
    command.add_argument("--window", type=int, default=1, metavar="N", help="judge N messages in a row, as triggers do")
    command.add_argument(
        "--threshold", type=int, action="append", default=[], metavar="TOKENS", help="compare firings at this threshold"
    )
    command.add_argument("--config", metavar="FILE", help="replay this configuration and say which of its firings move")
    command.add_argument(
        "--counter", choices=["ratio", "safe", "scripts"], default="ratio", help="the counter that --config is given"
    )
    command.add_argument("--seed", type=seed, default=0, metavar="N", help="of the resampling")
    command.add_argument("-o", "--output", metavar="FILE", help="write the calibration, as .toml or .json")
    command.add_argument("--figure", metavar="FILE", help="draw real against estimated, as .png or .svg")
    command.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    from workbench.config import RunConfig
    from workbench.evaluate.calibrate import DEFAULT_THRESHOLDS, calibrate
    from workbench.evaluate.calibration_file import counter_tables, save_calibration
    from workbench.evaluate.firings import moved_firings
    from workbench.evaluate.usage import calibrate_usage
    from workbench.report import calibration as words

    config = RunConfig.load(options.config) if options.config else None
    if options.usage and options.figure:
        raise ConfigError("--figure needs a tokenizer", field="figure", hint="leave out --usage")
    recordings = load(options)
    found: Any
    if options.usage:
        found = calibrate_usage(recordings, quantile=options.quantile, seed=options.seed)
    else:
        found = calibrate(
            recordings,
            options.tokenizer,
            quantile=options.quantile,
            window=options.window,
            thresholds=options.threshold or DEFAULT_THRESHOLDS,
            seed=options.seed,
        )
    counters = counter_tables(found)
    moved = None
    if config is not None:
        if options.counter not in counters:
            raise ConfigError.for_field("--counter", options.counter, ", ".join(counters))
        moved = moved_firings(recordings, config, counters[options.counter])
    if options.output:
        save_calibration(found, options.output)
    if options.figure:
        _draw_calibration(found, options.figure)
    if options.json:
        return print_json(_calibration_facts(found, counters, moved, recordings))
    print(words.usage_text(found) if options.usage else words.calibration_text(found))
    if moved is not None:
        print("\n" + words.firings_text(moved))
    print("\nfor a configuration file:")
    for name, table in counters.items():
        print(f"  [counter]  # {name}")
        for key, value in table.items():
            inline = ", ".join(f"{inner} = {ratio:g}" for inner, ratio in value.items()) if key == "scripts" else ""
            print(f"  {key} = {{ {inline} }}" if inline else f"  {key} = {json.dumps(value)}")
    print_problems(recordings)
    for path in filter(None, (options.output, options.figure)):
        print(f"written: {path}")
    return 0


def _calibration_facts(found: Any, counters: Any, moved: Any, recordings: Recordings) -> dict[str, Any]:
    """The documented keys first (WB-CLI-03), then everything else that the file holds."""
    from dataclasses import asdict

    from workbench.evaluate.calibration_file import calibration_values

    return {
        **calibration_values(found),
        "counters": counters,
        "moved_firings": None if moved is None else asdict(moved),
        "problems": [problem.as_dict() for problem in recordings.problems],
    }


def _draw_calibration(found: Any, path: str) -> None:
    from workbench.report.plots import calibration_error

    if Path(path).suffix.lower() not in {".png", ".svg"}:
        raise ConfigError.for_field("--figure", path, "a file name that ends in .png or .svg")
    try:
        calibration_error(found).savefig(path)
    except OSError as error:
        raise ConfigError(f"{path}: can't be written: {error.strerror}", field="--figure", value=path) from error
