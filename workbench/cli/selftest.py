"""`workbench selftest`: its options, the call it makes, and what it prints."""

from __future__ import annotations

import argparse
import json
import sys

from workbench.cli.output import print_json


def add(command: argparse.ArgumentParser) -> None:
    """Try on this machine whether the promises about crashes, damage and hostile input are kept.

    workbench selftest --nightly -o reports/selftest.md
    """
    command.add_argument("goals", nargs="*", metavar="GOAL", help="run these only, e.g. REL-02")
    command.add_argument("--nightly", action="store_true", help="the large numbers; takes a quarter of an hour or more")
    command.add_argument(
        "--share", type=float, default=1.0, metavar="SHARE", help="of the nightly numbers, e.g. 0.2 where time is short"
    )
    command.add_argument("--seed", type=int, default=1, metavar="N", help="of all random choices")
    command.add_argument("-o", "--output", metavar="FILE", help="also write the table as Markdown, or JSON by its name")
    command.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    from workbench.report.terminal import text_table
    from workbench.report.whole_file import write_whole
    from workbench.selftest import suite

    def tell(text: str) -> None:
        print(text, file=sys.stderr)

    findings = suite.run(options.goals, nightly=options.nightly, share=options.share, seed=options.seed, tell=tell)
    command = "workbench selftest" + "".join(f" {goal}" for goal in options.goals) + " --nightly" * options.nightly
    command += f" --share {options.share:g}" if options.share != 1 else ""
    command += f" --seed {options.seed}"
    if options.output:
        is_json = options.output.endswith(".json")
        text = json.dumps(suite.facts(findings), indent=2) + "\n" if is_json else suite.markdown(findings, command)
        write_whole(options.output, text)
    if options.json:
        print_json(suite.facts(findings))
    else:
        print(text_table(suite.COLUMNS, [finding.cells() for finding in findings]))
        for finding in findings:
            for example in finding.examples:
                print(f"{finding.goal}: {example}")
    return 0 if all(finding.holds for finding in findings) else 1
