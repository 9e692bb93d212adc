"""`workbench config`: its options, the call it makes, and what it prints."""

from __future__ import annotations

import argparse

from workbench.cli.output import print_json
from workbench.errors import ConfigError


def add(command: argparse.ArgumentParser) -> None:
    """Check a configuration file, explain options, or print the JSON schema.

    workbench config explain trigger
    """
    command.add_argument("action", choices=["check", "explain", "schema", "show"], help="what to do")
    command.add_argument("names", nargs="*", metavar="FILE|OPTION", help="files to check, or options to explain")
    command.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    from workbench.config import RunConfig, option_named, schema
    from workbench.config import options as all_options

    if options.action == "schema":
        return print_json(schema())
    if options.action == "explain":
        table = list(all_options())
        if options.names:
            wanted = [name if any(o.path == name for o in table) else option_named(name).path for name in options.names]
            table = [o for o in table if any(o.path == name or o.path.startswith(name + ".") for name in wanted)]
        if options.json:
            return print_json({"options": [option._asdict() for option in table]})
        for option in table:
            print(f"{option.path}  ({option.type}, default {option.default})\n    {option.doc}")
        return 0
    if not options.names:
        raise ConfigError(f"config {options.action} needs a file", hint="give one or more TOML or JSON files")
    loaded = [RunConfig.load(name) for name in options.names]
    if options.json or options.action == "show":
        return print_json({config.label(): config.resolved() for config in loaded})
    for name, config in zip(options.names, loaded, strict=True):
        print(f"{name}: fine; {config.label()}, hash {config.config_hash[:12]}")
    return 0
