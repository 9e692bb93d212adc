"""`workbench lint`: its options, the call it makes, and what it prints."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from workbench.cli.options import add_config_options, add_recording_options, add_run_options, configs_of, load
from workbench.cli.output import print_json, print_problems

if TYPE_CHECKING:
    from workbench.evaluate.dry_run import DryRun


def add(command: argparse.ArgumentParser) -> None:
    """Say what a configuration's trigger can and can't do on these recordings, before it is deployed.

    workbench lint chats.jsonl --config tuned.toml
    """
    add_recording_options(command)
    add_config_options(command)
    command.add_argument("--strict", action="store_true", help="exit with 1 when there is a warning")
    command.add_argument(
        "--next",
        action="store_true",
        help="also say what a summary made at the end of each conversation would cover, save and cost; calls no model",
    )
    add_run_options(command)


def run(options: argparse.Namespace) -> int:
    from workbench.evaluate.lint import lint
    from workbench.replay.replay import replay
    from workbench.report.comparison import lint_text

    recordings, configs = load(options), configs_of(options)
    following: dict[str, list[DryRun]] = {}
    if options.next:
        from workbench.evaluate.dry_run import dry_run
        from workbench.replay.runs import with_unique_ids

        makes = [config for config in configs if config.summarizer is not None]
        following = {
            config.label(): [dry_run(conversation, config) for conversation in with_unique_ids(recordings)]
            for config in makes
        }
        # A live model would be called for the lint itself: what a dry run asks needs none.
        configs = [
            c.replace(summaries={"source": "sized", "latency_s": 0.0}) if c.summaries.source == "live" else c
            for c in configs
        ]
    runs = replay(recordings, configs, runs=options.runs, jobs=options.jobs, fresh=options.fresh)
    found = [lint(run) for run in runs.values()]
    if options.json:
        problems = [problem.as_dict() for problem in runs.problems]
        after = {name: [one.as_dict() for one in ones] for name, ones in following.items()}
        configs_found = [one.as_dict() | ({"next": after.get(one.config, [])} if options.next else {}) for one in found]
        print_json({"configs": configs_found, "problems": problems})
    else:
        print("\n\n".join(lint_text(one, following.get(one.config, ())) for one in found))
        print_problems(runs)
    return 1 if options.strict and any(one.warnings for one in found) else 0
