"""`workbench store`: its options, the call it makes, and what it prints."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.cli.output import plain, print_json
from workbench.errors import ConfigError, StoreError

if TYPE_CHECKING:
    from workbench.store.duckdb.maintenance import StoreReport


def add(command: argparse.ArgumentParser) -> None:
    """Check, copy, migrate or compact the file of a durable session service.

    workbench store check sessions.duckdb
    """
    command.add_argument("action", choices=["check", "copy", "migrate", "vacuum"], help="what to do")
    command.add_argument("path", metavar="FILE", help="the store; check and copy work while a service has it open")
    command.add_argument("target", nargs="?", metavar="TARGET", help="with copy: the new file")
    command.add_argument(
        "--accept-loss", action="store_true", help="go on with what is left of a damaged store, and say what is missing"
    )
    command.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    from workbench.store.duckdb import maintenance

    path, accept_loss = Path(options.path), options.accept_loss
    if (options.action == "copy") != (options.target is not None):
        hint = "workbench store copy FILE TARGET"
        raise ConfigError(f"store {options.action}: only copy takes a target, and needs one", field="target", hint=hint)
    if options.action == "check":
        return _store_report(maintenance.check(path, accept_loss=accept_loss), options)
    facts: dict[str, Any] = {"path": str(path)}
    with _told_once("workbench.store"):
        if options.action == "copy":
            losses = maintenance.copy(path, options.target, accept_loss=accept_loss)
            facts["target"] = options.target
            done = f"{path} -> {options.target}"
        elif options.action == "migrate":
            facts["version_before"], facts["version"], losses = maintenance.migrate(path, accept_loss=accept_loss)
            done = f"{path}: schema version {facts['version_before']} -> {facts['version']}"
        else:
            facts["bytes_before"], facts["bytes"], losses = maintenance.vacuum(path, accept_loss=accept_loss)
            done = f"{path}: {facts['bytes_before']:,} -> {facts['bytes']:,} bytes"
    if options.json:
        return print_json({**facts, "losses": list(losses)})
    print(plain(done))
    for loss in losses:
        print(f"missing: {plain(loss)}", file=sys.stderr)
    return 0


@contextmanager
def _told_once(name: str) -> Iterator[None]:
    """What a part logs as a warning, the command prints itself."""
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def _store_report(report: StoreReport, options: argparse.Namespace) -> int:
    figures: dict[str, int | None] = {
        "version": report.version,
        "sessions": report.n_sessions,
        "deleted_sessions": report.n_deleted_sessions,
        "events": report.n_events,
        "summaries": report.n_summaries,
        "changes": report.sequence,
        "waiting_changes": report.n_waiting_changes,
    }
    if not report.version:  # it couldn't be opened
        figures = dict.fromkeys(figures)
    if options.json:
        facts = {"path": str(report.path), "is_sound": report.is_sound, **figures, "settings": dict(report.settings)}
        print_json({**facts, "problems": list(report.problems), "losses": list(report.losses)})
    else:
        for name, figure in figures.items():
            if figure is not None:
                print(f"{name.replace('_', ' '):18}{figure:>12,}")
        for name, value in report.settings:
            print(f"setting {name} = {plain(value)}")
        for problem in report.problems:
            kind = "missing" if problem in report.losses else "problem"
            print(f"{kind}: {plain(problem)}", file=sys.stderr)
        n_problems = len(report.problems)
        print("sound" if report.is_sound else f"{n_problems} problem{'s' if n_problems > 1 else ''}")
    return 0 if report.is_sound else StoreError.exit_code
