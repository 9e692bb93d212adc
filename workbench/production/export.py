"""`export`: a configuration in the forms that production takes, each with its evidence (WB-EXP-01, -02, -04).

In: a configuration, runs, a folder or a file. Out: the files. Nothing is written before everything is checked: a
trigger that never fires needs a word, a text that looks like a key is refused, and so is writing over a file of another
configuration.
"""

from __future__ import annotations

import contextlib
import keyword
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date as Date  # noqa: N812 - `date` is the argument
from pathlib import Path
from typing import Any, Final, Literal, get_args

from workbench.clock import Clock, SystemClock, datetime_from_ns
from workbench.config import RunConfig
from workbench.errors import ConfigError, WorkbenchError, nearest_name
from workbench.evaluate.evidence import Evidence, EvidenceSource, evidence_of
from workbench.paths import is_device
from workbench.production.go_source import go_text
from workbench.production.python_source import python_text
from workbench.production.record import record_text
from workbench.production.settings_file import json_text, toml_text
from workbench.production.stamp import Stamp
from workbench.recordings.personal import KEY, personal_in
from workbench.report.whole_file import write_whole

Form = Literal["toml", "json", "python", "go", "markdown"]
FORMS: Final[tuple[Form, ...]] = get_args(Form)
_ENDINGS: Mapping[str, str] = {"toml": ".toml", "json": ".json", "python": ".py", "go": ".go", "markdown": ".md"}
_FORM_OF: Mapping[str, Form] = {_ENDINGS[form]: form for form in FORMS}
_SECRET_VARIABLE = re.compile(
    r"(?:^|_)(?:API_?KEY|KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|PAT|DSN)(?:$|_)"
    r"|(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD)$",
    re.IGNORECASE,
)
"""Names such as OPENAI_API_KEY, DB_PASSWD, AWS_ACCESS_KEY_ID: what they hold goes into no file."""
_SHORTEST_SECRET = 8
_LONGEST_NAME = 60
_HASH_CHARS = 8


@dataclass(frozen=True, slots=True)
class Exported:
    """The files of an export."""

    paths: Mapping[str, Path]
    """By form, in the order asked for."""
    stamp: Stamp
    """What each of them states."""

    @property
    def evidence(self) -> Evidence | None:
        """The evidence in the files; None for an export without."""
        return self.stamp.evidence

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as `workbench export --json` prints them."""
        return {"files": {form: str(path) for form, path in self.paths.items()}, "export": self.stamp.table()}

    def __repr__(self) -> str:
        return f"Exported({self.stamp.name}: {', '.join(path.name for path in self.paths.values())})"


def export(
    config: RunConfig,
    target: str | Path,
    *,
    to: str | Sequence[str] | None = None,
    evidence: EvidenceSource | None = None,
    backend: str = "inmemory",
    date: Date | str | None = None,
    allow_unreachable: bool = False,
    seed: int = 0,
    clock: Clock | None = None,
) -> Exported:
    """Write a configuration for production.

    Args:
        target: A folder, or for one form a file with its ending: .toml, .json, .py, .go, .md.
        to: Of `toml`, `json`, `python`, `go`, `markdown`; None = what the file's ending says, or TOML and Markdown.
        evidence: The runs that speak for it: a run, runs, a comparison or a sweep. None says so in every file.
        backend: Where the Go source keeps sessions.
        date: Stands in the files; None = today, by `clock`.
        allow_unreachable: Export a trigger that never fires on the evidence's recordings.
        seed: Of the intervals.
    Raises:
        ConfigError: an unknown form or backend, no run of this configuration in the evidence, a trigger that never
            fires, a text that looks like a key, a file that is there and isn't of this configuration, or one that
            can't be written.
    Source: WB-EXP-01.
    """
    forms = _forms(to, Path(target))
    found = None if evidence is None else evidence_of(config, evidence, seed=seed)
    if found is not None and found.unreachable and not allow_unreachable:
        raise ConfigError(
            f"{config.label()}: {found.unreachable}",
            field="trigger",
            hint="lower it, or export it all the same with `allow_unreachable=True` (--allow-unreachable)",
        )
    _check_secrets(config, found)
    stamp = Stamp.of(config, date=_day(date, clock), evidence=found)
    texts = {form: _text(form, config, stamp, backend) for form in forms}
    paths = _paths(forms, Path(target), config)
    for form, path in paths.items():
        _check_free(form, path, config)
    return Exported({form: _write(paths[form], text) for form, text in texts.items()}, stamp)


def _forms(to: str | Sequence[str] | None, target: Path) -> tuple[Form, ...]:
    known = _FORM_OF.get(target.suffix.lower())
    if to is None:
        return (known,) if known else ("toml", "markdown")
    wanted = [to] if isinstance(to, str) else list(dict.fromkeys(to))
    for form in wanted:
        if form not in FORMS:
            raise ConfigError.for_field("to", form, ", ".join(FORMS), hint=nearest_name(form, FORMS))
    if not wanted:
        raise ConfigError.for_field("to", wanted, f"at least one of {', '.join(FORMS)}")
    if known and wanted != [known]:
        raise ConfigError(
            f"{target} is one file, to be written as {known}; asked for: {', '.join(wanted)}",
            field="to",
            hint="name a folder",
        )
    return tuple(form for form in FORMS if form in wanted)


def _text(form: Form, config: RunConfig, stamp: Stamp, backend: str) -> str:
    if form == "toml":
        return toml_text(config, stamp)
    if form == "json":
        return json_text(config, stamp)
    if form == "python":
        return python_text(config, stamp)
    if form == "go":
        return go_text(config, stamp, backend=backend)
    return record_text(config, stamp)


def _paths(forms: Sequence[Form], target: Path, config: RunConfig) -> dict[Form, Path]:
    if target.suffix.lower() in _FORM_OF:
        return dict.fromkeys(forms, target)
    stem = file_stem(config.label(), config.config_hash)
    # Go reads meaning into what stands behind an underscore: `_test`, `_linux`.
    return {form: target / f"{stem.replace('_', '-') if form == 'go' else stem}{_ENDINGS[form]}" for form in forms}


def file_stem(name: str, config_hash: str) -> str:
    """A name that is a file's in any folder, and a module's: letters, digits and underscores.

    A long one is cut; so that two that begin alike stay apart, it ends as the hash begins.
    """
    stem = re.sub(r"\W+", "_", name).strip("_")
    if len(stem) > _LONGEST_NAME:
        stem = f"{stem[: _LONGEST_NAME - _HASH_CHARS - 1].strip('_')}_{config_hash[:_HASH_CHARS]}"
    if not stem:
        return "configuration"
    return stem if stem.isidentifier() and not _is_taken(stem) else f"config_{stem}"


def _is_taken(stem: str) -> bool:
    """A word of Python, a module that this one would stand in front of, or a device of Windows."""
    return keyword.iskeyword(stem) or stem.lower() in {"workbench", *sys.stdlib_module_names} or is_device(stem)


def _check_free(form: Form, path: Path, config: RunConfig) -> None:
    """Refuse to write over what isn't an earlier export of this configuration."""
    try:
        before = path.read_bytes() if path.is_file() else b""
    except OSError as error:
        raise _unwritable(path, error) from error
    if not before or config.config_hash.encode() in before:
        return
    if form in ("toml", "json"):  # the file that the configuration came from states no hash
        with contextlib.suppress(WorkbenchError):
            if RunConfig.load(path).config_hash == config.config_hash:
                return
    raise ConfigError(
        f"{path} is there already, and isn't of this configuration ({config.label()})",
        field="target",
        value=str(path),
        hint="name another folder, give the configuration another name, or take the file away",
    )


def _write(path: Path, text: str) -> Path:
    try:
        return write_whole(path, text)
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> ConfigError:
    return ConfigError(
        f"{path}: can't be written: {error.strerror}", field="target", value=str(path), hint="name another folder"
    )


def _day(date: Date | str | None, clock: Clock | None) -> str:
    if date is None:
        return datetime_from_ns((clock or SystemClock()).now_ns()).date().isoformat()
    try:
        return Date.fromisoformat(str(date)).isoformat()
    except ValueError as error:
        raise ConfigError.for_field("date", str(date), "a day such as 2026-03-01") from error


# --- secrets ------------------------------------------------------------------------------------------------


def _check_secrets(config: RunConfig, evidence: Evidence | None) -> None:
    """Refuse texts that look like a key, or hold the value of an environment variable with one (SEC-08).

    The error doesn't say the text.
    """
    secrets = [
        value
        for variable, value in os.environ.items()
        if len(value) >= _SHORTEST_SECRET
        and (_SECRET_VARIABLE.search(variable) or variable == config.summaries.api_key_env)
    ]
    texts = [*_texts(config.to_values(), ""), ("name", config.name)]
    if evidence is not None:
        texts += _texts(evidence.as_dict(), "evidence.")
    for path, text in texts:
        if any(secret in text for secret in secrets) or any(find.kind == KEY for find in personal_in(text)):
            raise ConfigError(
                f"{path} holds what looks like a key or a password",
                field=path,
                hint="take it out: keys come from environment variables",
            )


def _texts(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Every text with its dotted path, keys of tables included."""
    if isinstance(value, str):
        yield path.rstrip("."), value
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield path.rstrip("."), name
            yield from _texts(inner, f"{path}{name}.")
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner, path)
