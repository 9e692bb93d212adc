"""A suite to begin with: written for recordings and a configuration, checked by reading it back (WB-REG-01).

In: where the suite shall be, recordings and a configuration that lie beside it. Out: the suite file. A file that is
there already is never touched.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from workbench.config import RunConfig, toml_value
from workbench.errors import ConfigError, RecordingError
from workbench.regression.suite import Suite, load_suite

_SLACK = 1.1
"""A summary may be a tenth longer than its prompt asks for: no model counts exactly."""


def new_suite(path: str | Path, recordings: Sequence[str | Path], config: str | Path) -> Suite:
    """Write a suite with the usual expectations.

    Args:
        path: The new file; its folder holds recordings and configuration, directly or deeper.
        recordings: Files or folders.
        config: A configuration file.
    Returns:
        The suite as `load_suite` reads it. Nothing stays behind if it can't be read.
    Raises:
        ConfigError: there is such a file already, or a part of it lies elsewhere or isn't right.
        RecordingError: a recording or the configuration isn't there.
    """
    path = Path(path)
    named = [_relative(path, one, "recordings") for one in recordings]
    text = _text(named, _relative(path, config, "config"), RunConfig.load(config))
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise ConfigError(f"{path}: is there already", field="suite", hint="choose another name, or edit it") from error
    except OSError as error:
        raise ConfigError(f"{path}: can't be written: {error.strerror}", field="suite", value=str(path)) from error
    try:
        return load_suite(path)
    except BaseException:
        path.unlink()
        raise


def _relative(suite: Path, named: str | Path, field: str) -> str:
    folder, found = suite.parent.resolve(), Path(named)
    if not found.exists():
        raise RecordingError(f"{named}: doesn't exist", path=str(named), hint="check the path")
    try:
        return found.resolve().relative_to(folder).as_posix()
    except ValueError:
        raise ConfigError(
            f"{named}: lies outside {suite.parent}, the folder of the suite",
            field=field,
            value=str(named),
            hint="put it there, or the suite into a folder above both",
        ) from None


def _text(recordings: Sequence[str], config: str, found: RunConfig) -> str:
    words = None if found.summarizer is None else found.summarizer.max_summary_words
    most_words = f"max_words = {round(_SLACK * words)}\n" if words else ""
    return f"""suite = 1
recordings = {toml_value(list(recordings))}
config = {toml_value(config)}
# cassette = "answers.jsonl"   # summaries of a real model, recorded once with --record

[limits]                     # over all conversations
failed_summaries = {{ max = 0 }}
protocol_violations = {{ max = 0 }}
coverage_violations = {{ max = 0 }}

[summaries]                  # every summary, judged without a model
{most_words}invented_numbers = 0
keeps_language = true
is_summary = true

# [[conversations]]
# id = "..."                 # facts that each summary of it must keep, once they were said
# holds = ["..."]

[drift]                      # from the figures that `--accept` writes
prompt_tokens = 0.02         # a share
needed_fact_recall = 0.02
firings = 0
moved_summaries = 0
lost_facts = 0
"""
