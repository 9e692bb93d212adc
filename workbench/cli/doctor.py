"""`workbench doctor`: its options, the call it makes, and what it prints."""

from __future__ import annotations

import argparse

from workbench.cli.options import add_recording_options, load
from workbench.cli.output import print_json, print_problems
from workbench.errors import ConfigError


def add(command: argparse.ArgumentParser) -> None:
    """Say what this machine has and what is missing, with the command that brings it.

    workbench doctor --calibration calibration.toml newer.jsonl
    """
    add_recording_options(command, needed=False)
    command.add_argument(
        "--calibration", metavar="FILE", help="say whether this calibration still holds for the recordings instead"
    )
    command.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    from workbench.doctor import examine

    if options.calibration or options.paths:
        return _doctor_of_calibration(options)
    findings = examine()
    if options.json:
        return print_json({"findings": [finding._asdict() for finding in findings]})
    for finding in findings:
        mark = "ok     " if finding.found else "missing"
        print(f"{mark}  {finding.name:28}{finding.detail}")
        if not finding.found and finding.remedy:
            print(f"         {'':28}-> {finding.remedy}")
    return 0


def _doctor_of_calibration(options: argparse.Namespace) -> int:
    from dataclasses import asdict

    from workbench.evaluate.calibration_file import load_calibration
    from workbench.evaluate.drift import drift
    from workbench.report.calibration import drift_text

    if not (options.calibration and options.paths):
        raise ConfigError(
            "a calibration is compared with recordings, so both are needed",
            field="calibration",
            hint="workbench doctor --calibration FILE RECORDINGS",
        )
    recordings = load(options)
    found = drift(load_calibration(options.calibration), recordings)
    if options.json:
        return print_json({"drift": asdict(found), "holds": found.holds})
    print(drift_text(found))
    print_problems(recordings)
    return 0
