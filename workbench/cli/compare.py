"""`workbench compare`: its options, the call it makes, and what it prints."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from workbench.cli.options import (
    add_config_options,
    add_fact_options,
    add_recall_option,
    add_recording_options,
    add_run_options,
    assignment,
    call_named,
    configs_of,
    facts_wanted,
    kept_of,
    load,
    recall_of,
    seed,
)
from workbench.cli.output import print_json, print_kept, print_problems
from workbench.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from workbench.config import RunConfig
    from workbench.replay.runs import RunSet


def add(command: argparse.ArgumentParser) -> None:
    """Compare configurations conversation by conversation: differences with intervals, and where they are largest.

    workbench compare chats.jsonl --config today.toml --config tuned.toml --report reports/comparison.html
    """
    add_recording_options(command, needed=False)
    add_config_options(command)
    command.add_argument(
        "--run",
        dest="names",
        action="append",
        default=[],
        metavar="NAME",
        help="a finished run, by id or name, instead of --config; the recordings are needed for --show only",
    )
    command.add_argument(
        "--what-if",
        action="append",
        default=[],
        metavar="OPTION=VALUE",
        help="also each configuration with this change, e.g. model.context_window=8000 or model.name=gpt-4.1-mini",
    )
    command.add_argument("--against", metavar="NAME", help="the run that the others are compared with; default: first")
    command.add_argument("--seed", type=seed, default=0, metavar="N", help="seed of the intervals")
    add_recall_option(command)
    command.add_argument(
        "--show",
        nargs="?",
        const="",
        metavar="CONVERSATION:CALL",
        help="also print the prompts side by side at a call; without one, where they differ most",
    )
    command.add_argument("--full", action="store_true", help="with --show: texts from beginning to end")
    add_fact_options(command)
    command.add_argument("--report", metavar="FILE", help="also write an HTML report")
    add_run_options(command)


def run(options: argparse.Namespace) -> int:
    from workbench.evaluate.compare import compare
    from workbench.report.comparison import comparison_text
    from workbench.report.page import page

    wants_facts = facts_wanted(options)
    runs = _runs_to_compare(options)
    comparison = compare(runs, reference=options.against, seed=options.seed, min_recall=recall_of(options))
    report = page(runs, options.report, comparison=comparison) if options.report else None
    place = call_named(options.show) if options.show else (None, None)
    others = [verdict.run for verdict in comparison.verdicts]
    diffs = [] if options.show is None else [comparison.diff(name, *place) for name in others]
    kept = kept_of(runs, options) if wants_facts else []
    if options.json:
        found = comparison.as_dict() | {"runs": runs.facts(), "problems": [p.as_dict() for p in runs.problems]}
        found |= {"facts": {one.run: one.as_dict() for one in kept}} if kept else {}
        found |= {"diffs": [diff.as_dict() for diff in diffs]} if diffs else {}
        return print_json(found | ({"report": str(report)} if report else {}))
    print(comparison_text(comparison))
    print_kept(kept)
    print_problems(runs)
    if diffs:
        from workbench.report.prompt import calls_text

        for diff in diffs:
            print(f"\n{calls_text([diff.before, diff.after], full=options.full)}")
    if report:
        print(f"\nreport: {report}")
    return 0


def _runs_to_compare(options: argparse.Namespace) -> RunSet:
    """Finished runs by name, or the configurations replayed."""
    from workbench.replay.replay import replay
    from workbench.replay.runs import load_runs

    if options.names:
        if options.config or options.what_if:
            raise ConfigError(
                "--run takes runs as they are", field="run", hint="leave --config and --what-if out, or --run"
            )
        return load_runs(options.runs, options.names, conversations=load(options) if options.paths else None)
    if not options.paths:
        raise ConfigError("compare needs recordings", field="PATH", hint="give a PATH, or finished runs with --run")
    configs = configs_of(options)
    changes = [assignment(text) for text in options.what_if]
    if changes:
        _check_windows(configs, changes)
        configs += [
            config.replace(**{option: value, "name": f"{config.label()}, {option}={_text_of(value)}"})
            for config in configs
            for option, value in changes
        ]
    if len(configs) == 1:  # savings are stated against a baseline that was replayed too (WB-TUNE-06)
        configs.insert(0, _baseline_of(configs[0]))
    return replay(load(options), configs, runs=options.runs, jobs=options.jobs, fresh=options.fresh)


def _check_windows(configs: Sequence[RunConfig], changes: Sequence[tuple[str, Any]]) -> None:
    """What another model would do can't be said without its window.

    Raises:
        ConfigError: a model that isn't known, where no configuration sets a window.
    """
    from workbench.model.windows import lookup_model_context_window

    if any(option == "model.context_window" for option, _ in changes) or all(c.model.context_window for c in configs):
        return
    for option, value in changes:
        if option == "model.name" and lookup_model_context_window(str(value)) is None:
            raise ConfigError(
                f'model "{value}": context window unknown',
                field="model.context_window",
                value=value,
                hint="set model.context_window in the configuration",
            )


def _text_of(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _baseline_of(config: RunConfig) -> RunConfig:
    from workbench.evaluate.net import without_shortening

    return without_shortening(config)
