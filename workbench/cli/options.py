"""Options that several commands share, and what they say: recordings, configurations, changes."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import ConfigError, RecordingError

if TYPE_CHECKING:
    from workbench.config import RunConfig
    from workbench.evaluate.kept import Kept
    from workbench.recordings import Recordings
    from workbench.replay.runs import RunSet


def add_recording_options(command: argparse.ArgumentParser, *, needed: bool = True) -> None:
    command.add_argument("paths", nargs="+" if needed else "*", metavar="PATH", help="files, folders or patterns")
    command.add_argument("--format", default="auto", metavar="NAME", help="recording format; default: by content")
    command.add_argument(
        "--map",
        metavar="FIELD=NAME,...",
        help="columns of a table or of a corpus of dialogues, e.g. --map text=utterance,speaker=who,id=chat",
    )
    command.add_argument("--observations", choices=["user", "tool"], help="role of observations")
    command.add_argument("--gap", default="30s", help="synthetic clock: silence before each request")
    command.add_argument("--step", default="2s", help="synthetic clock: time between events of a request")
    command.add_argument("--zone", help="zone of times that have none, e.g. +08:00")
    command.add_argument("--time-unit", choices=["s", "ms"], help="unit of numeric times")
    command.add_argument("--assume-order", action="store_true", help="keep events without a time, in file order")
    command.add_argument(
        "--join", type=int, default=1, metavar="N", help="make one conversation of N short dialogues, labelled so"
    )
    command.add_argument("--max-line-mb", type=int, default=64, help="longest line that is read")
    command.add_argument(
        "--max-unpacked-mb", type=int, default=1024, help="most that a packed file, or one store, may unpack to"
    )
    command.add_argument(
        "--app", action="append", metavar="NAME", help="only conversations of this application; may be repeated"
    )
    command.add_argument("--user", action="append", metavar="ID", help="only those of this user; may be repeated")
    command.add_argument(
        "--since", metavar="TIME", help="only those that went on at this time or later, e.g. 2026-03-01"
    )
    command.add_argument("--until", metavar="TIME", help="only those that began before this time")
    command.add_argument(
        "--instruction", metavar="FILE", help="the agent's instruction, for conversations whose source has none"
    )
    command.add_argument(
        "--tools", metavar="FILE", help="its tools, as JSON: a list as the chat-completions interface takes it"
    )


def add_config_options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--config", action="append", default=[], metavar="FILE", help="TOML or JSON file; may be given several times"
    )
    command.add_argument("--profile", metavar="NAME", help="profile of the baseline when no --config is given")
    add_change_options(command)


def add_change_options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="OPTION=VALUE",
        help="change an option in every configuration, e.g. --set trigger.token=2000",
    )
    command.add_argument(
        "--summaries",
        choices=["extractive", "sized", "cassette", "live"],
        help="where summaries come from; the last two need --set summaries.cassette=FILE, live a summaries.model too",
    )


def add_run_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--runs", default="runs", metavar="FOLDER", help="folder of the runs")
    command.add_argument("--jobs", type=int, default=1, metavar="N", help="processes; one is best below 50,000 events")
    command.add_argument("--fresh", action="store_true", help="replay even what is there already")
    command.add_argument("--json", action="store_true", help="print one JSON object")


def add_recall_option(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--min-recall",
        type=float,
        metavar="SHARE",
        help="needed facts that the recommendation must keep, as a share of what no summary keeps; default 0.98",
    )


def seed(text: str) -> int:
    """The number that `--seed` says; generators take none below 0."""
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number, 0 or more")
    return int(text)


def recall_of(options: argparse.Namespace) -> float:
    from workbench.evaluate.choice import MIN_RECALL

    return MIN_RECALL if options.min_recall is None else float(options.min_recall)


def add_fact_options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--facts",
        action="store_true",
        help="also say what was kept: needed facts, how they survive summaries, checks of the summaries, probes",
    )
    command.add_argument(
        "--probes",
        action="append",
        default=[],
        metavar="FILE",
        help="with --facts: questions to ask; default: a probes.jsonl beside the recordings",
    )
    command.add_argument(
        "--forbid",
        action="append",
        default=[],
        metavar="TEXT",
        help="with --facts: what no summary may hold; may be given several times",
    )


def facts_wanted(options: argparse.Namespace) -> bool:
    """Whether `--facts` was given.

    Raises:
        ConfigError: an option of it without it.
    """
    for name in ("probes", "forbid"):
        if getattr(options, name) and not options.facts:
            raise ConfigError(f"--{name} belongs to --facts", field=name, hint="give --facts too")
    return bool(options.facts)


def kept_of(runs: RunSet, options: argparse.Namespace) -> list[Kept]:
    """What each run kept, by the recordings of the command."""
    from workbench.evaluate.kept import kept_by
    from workbench.evaluate.probes import load_probes

    conversations = load(options) if options.paths else None
    probes = [probe for path in options.probes or _probes_beside(options.paths) for probe in load_probes(path)]
    return [kept_by(run, conversations, probes=probes, forbidden=options.forbid) for run in runs.values()]


def _probes_beside(paths: list[str]) -> list[Path]:
    folders = [path if (path := Path(text)).is_dir() else path.parent for text in paths]
    return [file for folder in dict.fromkeys(folders) if (file := folder / "probes.jsonl").is_file()]


def load(options: argparse.Namespace) -> Recordings:
    from workbench.clock import seconds_from_text
    from workbench.recordings import load_recordings

    try:
        gap_s, step_s = seconds_from_text(options.gap), seconds_from_text(options.step)
    except ValueError as error:
        raise ConfigError(str(error), field="gap") from error
    return load_recordings(
        options.paths,
        format=options.format,
        map=_mapping(options.map),
        gap_s=gap_s,
        step_s=step_s,
        observations=options.observations,
        zone=options.zone,
        time_unit=options.time_unit,
        assume_order=options.assume_order,
        join=options.join,
        max_line_mb=options.max_line_mb,
        max_unpacked_mb=options.max_unpacked_mb,
        app=options.app,
        user=options.user,
        since=options.since,
        until=options.until,
        instruction=_text_in(options.instruction) if options.instruction else "",
        tools=_tools_in(options.tools) if options.tools else (),
    )


def configs_of(options: argparse.Namespace) -> list[RunConfig]:
    from workbench.config import RunConfig

    configs = [RunConfig.load(path) for path in options.config]
    if not configs:
        configs = [RunConfig(name="no summary", **({"profile": options.profile} if options.profile else {}))]
    elif options.profile:
        configs = [config.replace(profile=options.profile) for config in configs]
    return changed(configs, options)


def changed(configs: list[RunConfig], options: argparse.Namespace) -> list[RunConfig]:
    """The configurations with what `--set` and `--summaries` say."""
    changes = dict(assignment(text) for text in options.set)
    if options.summaries:
        changes["summaries.source"] = options.summaries
    return [config.replace(**changes) for config in configs] if changes else configs


def assignment(text: str) -> tuple[str, Any]:
    from workbench.config import option_named

    path, sign, value = text.partition("=")
    if not sign:
        raise ConfigError.for_field("--set", text, "OPTION=VALUE, for example trigger.token=2000")
    option_named(path)
    return path, value_of(value)


def value_of(text: str) -> Any:
    """A number, true, false or JSON; anything else is a text."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def call_named(text: str) -> tuple[str, int]:
    conversation, _, call = text.rpartition(":")
    if not conversation or not (call.isascii() and call.isdigit()):
        raise ConfigError.for_field("--show", text, "CONVERSATION:CALL, for example zh-service-01:17")
    return conversation, int(call)


def _text_in(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").removesuffix("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = "not UTF-8" if isinstance(error, UnicodeDecodeError) else f"can't be read: {error.strerror}"
        raise RecordingError(reason, path=path) from error


def _tools_in(path: str) -> list[Any]:
    try:
        tools = json.loads(_text_in(path))
    except (ValueError, RecursionError) as error:
        raise RecordingError(f"not JSON: {error}", path=path) from error
    if not isinstance(tools, list):
        raise RecordingError("expected a list of tools", path=path)
    return tools


def _mapping(text: str | None) -> dict[str, str] | None:
    if not text:
        return None
    pairs = [pair.split("=", 1) for pair in text.split(",")]
    if any(len(pair) != 2 or not all(pair) for pair in pairs):
        raise ConfigError.for_field("--map", text, "FIELD=NAME pairs joined by commas")
    return {name.strip(): column.strip() for name, column in pairs}
