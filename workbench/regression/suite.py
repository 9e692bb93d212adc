"""A suite: which recordings, under which configuration, and what is expected of the summaries (WB-REG-01).

In: a TOML file. Out: a `Suite`, every name in it resolved inside the file's own folder (SEC-05). Nothing is replayed
here; a fault is one sentence with file, field and the nearest right name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Self

from pydantic import Field, model_validator

from workbench.config import RunConfig, table_of_file, values_of_file
from workbench.errors import ConfigError, RecordingError, UnsafePathError, nearest_name
from workbench.paths import files_inside, path_inside
from workbench.settings import Settings

SUITE_VERSION: Final = 1
_RELATIVE: Final = "names are relative to the suite"
Texts = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(strict=False)]
Paths = Annotated[tuple[str, ...], Field(strict=False)]


class Limit(Settings):
    """A lower bound, an upper bound, or both; the bounds themselves are allowed."""

    min: float | None = None
    """Least value that passes."""
    max: float | None = None
    """Greatest value that passes."""

    @model_validator(mode="after")
    def _has_a_bound(self) -> Self:
        if self.min is None and self.max is None:
            raise ConfigError.for_field("limit", "{}", "min, max, or both")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ConfigError.for_field("min", self.min, f"at most max, which is {self.max:g}")
        return self


class Limits(Settings):
    """Limits of figures."""

    prompt_tokens: Limit | None = None
    """All prompts together, by the billing counter."""
    peak_prompt_tokens: Limit | None = None
    """The longest prompt."""
    summary_tokens: Limit | None = None
    """What the summary model reads and writes."""
    firings: Limit | None = None
    """Triggers that fired."""
    summaries: Limit | None = None
    """Summaries that were written."""
    failed_summaries: Limit | None = None
    """Attempts that failed, or whose result was thrown away."""
    overflow_calls: Limit | None = None
    """Prompts over the window; undecided where no window is known."""
    cost: Limit | None = None
    """Main calls and summaries, in the currency of the configuration; undecided without prices."""
    needed_fact_recall: Limit | None = None
    """Share of needed facts that their prompts still say; undecided under 30 facts of 10 conversations."""
    lost_facts: Limit | None = None
    """Needed facts that their prompt no longer says and no search finds."""
    probe_recall: Limit | None = None
    """Share of probes whose answer the prompt still says; undecided under 30 probes of 10 conversations."""
    lost_probes: Limit | None = None
    """Probes whose answer the prompt no longer says."""
    protocol_violations: Limit | None = None
    """Requests that a provider may refuse, such as a tool result without its call."""
    coverage_violations: Limit | None = None
    """Events that are lost, or there twice."""

    def given(self) -> Iterator[tuple[str, Limit]]:
        """Figures that have a limit, in the order of the fields."""
        for name in type(self).model_fields:
            if (limit := getattr(self, name)) is not None:
                yield name, limit


class SummaryRules(Settings):
    """What every summary has to keep, judged without a model."""

    max_words: int | None = Field(default=None, gt=0)
    """Longest summary, in words (a Han character is one)."""
    invented_numbers: int | None = Field(default=None, ge=0)
    """Most numbers, dates and identifiers in one summary that nothing before its boundary says; 0 is usual."""
    keeps_language: bool = False
    """The summary is in a language of its conversation."""
    is_summary: bool = False
    """It holds no tool call, doesn't begin as an answer does, and doesn't repeat the recorded answer."""
    forbidden: Texts = ()
    """Texts that no summary may hold, compared without regard to case."""
    prompt_holds: Texts = ()
    """Texts that every request to the summary model must hold: its instruction."""


class ConversationRules(Settings):
    """What the summaries of one conversation must hold and must not hold."""

    id: str = Field(min_length=1)
    """The conversation."""
    holds: Texts = ()
    """Facts that a summary must say once its conversation has said them; another spelling of the same date or
    amount counts."""
    lacks: Texts = ()
    """Texts that no summary of it may hold."""


class DriftRules(Settings):
    """How far a figure may move from the accepted baseline, up or down; 0 = not at all."""

    prompt_tokens: float | None = Field(default=None, ge=0)
    """Share of each conversation's prompt tokens, 0.02 = 2 %."""
    peak_prompt_tokens: float | None = Field(default=None, ge=0)
    """Share of each conversation's longest prompt."""
    summary_tokens: float | None = Field(default=None, ge=0)
    """Share of what the summary model reads and writes in each conversation."""
    firings: int | None = Field(default=None, ge=0)
    """Firings of each conversation."""
    moved_summaries: int | None = Field(default=None, ge=0)
    """Summaries of each conversation at another call, or with another last event."""
    lost_facts: int | None = Field(default=None, ge=0)
    """Needed facts of each conversation that are lost now and weren't, or the other way round."""
    lost_probes: int | None = Field(default=None, ge=0)
    """Probes of each conversation that are lost now and weren't, or the other way round."""
    needed_fact_recall: float | None = Field(default=None, ge=0)
    """Needed-fact recall of all conversations, 0.02 = two points."""
    probe_recall: float | None = Field(default=None, ge=0)
    """Probe recall of all conversations, 0.02 = two points."""

    def given(self) -> Iterator[tuple[str, float]]:
        """Figures that have a limit, in the order of the fields."""
        for name in type(self).model_fields:
            if (limit := getattr(self, name)) is not None:
                yield name, limit


class JudgeRules(Settings):
    """A question about each summary that a model answers with yes or no (WB-REG-06)."""

    name: str = Field(min_length=1)
    """Name in tables."""
    question: str = Field(min_length=1)
    """Asked of each summary; the judge sees what it covers and the summary."""
    min_share: float = Field(gt=0, lt=1)
    """Least share of yes; passed or failed only when the interval leaves no doubt."""
    replicates: int = Field(default=3, ge=1, le=100)
    """How often each summary is judged."""
    level: float = Field(default=0.9999, ge=0.5, lt=1)
    """Confidence of the interval; the higher, the more judgements a verdict needs and the less noise turns it."""
    model: str = Field(min_length=1)
    """The judge."""
    base_url: str = ""
    """OpenAI-compatible address for `--record`; empty = OpenAI's own."""
    api_key_env: str = ""
    """Name of the environment variable with its key, for `--record`."""
    cassette: str = Field(min_length=1)
    """File of its judgements; asked only for what it lacks, and only with `--record`."""


class SuiteFile(Settings):
    """What a suite file holds."""

    suite: int = SUITE_VERSION
    """Version of the format."""
    name: str = ""
    """Name in tables; empty = the file's."""
    recordings: Annotated[Paths, Field(min_length=1)]
    """Files, folders or patterns inside the suite's folder."""
    format: str = "auto"
    """Recording format; auto = by content."""
    config: str | dict[str, Any]
    """A configuration file inside the suite's folder, or its options as a table."""
    cassette: str = ""
    """File of recorded summaries; empty = the configuration's, or its offline source."""
    baseline: str = ""
    """File of accepted figures; empty = NAME.baseline.toml."""
    probes: Paths = ()
    """Files of questions with known answers."""
    limits: Limits = Limits()
    """Limits over all conversations."""
    each: Limits = Limits()
    """Limits for each conversation."""
    summaries: SummaryRules = SummaryRules()
    """What every summary has to keep."""
    conversations: Annotated[tuple[ConversationRules, ...], Field(strict=False)] = ()
    """What the summaries of single conversations must hold."""
    drift: DriftRules = DriftRules()
    """How far figures may move from the accepted baseline."""
    judges: Annotated[tuple[JudgeRules, ...], Field(strict=False)] = ()
    """Questions that a model answers."""

    @model_validator(mode="after")
    def _expects_something(self) -> Self:
        unset = SuiteFile.model_fields
        parts = ("limits", "each", "summaries", "conversations", "drift", "judges")
        if all(getattr(self, part) == unset[part].default for part in parts):
            raise ConfigError.for_field(
                "limits", "{}", f"at least one expectation in {', '.join(parts)}", hint="e.g. [limits] firings.max = 20"
            )
        for part in ("conversations", "judges"):
            names = [one.id if isinstance(one, ConversationRules) else one.name for one in getattr(self, part)]
            if twice := next((name for name in names if names.count(name) > 1), None):
                raise ConfigError.for_field(part, twice, "each name once")
        return self


@dataclass(frozen=True, slots=True)
class Suite:
    """A suite with its files found and its configuration read."""

    path: Path
    name: str
    rules: SuiteFile
    recordings: tuple[Path, ...]
    """Every file that it names, those in folders too."""
    sources: tuple[Path, ...]
    """What to load: files, and folders whole, so that what isn't a recording in them is passed over."""
    config: RunConfig
    """As written, so that its values mean the same on every machine."""
    cassette: Path | None
    baseline: Path
    probes: tuple[Path, ...]
    judgements: tuple[Path, ...]
    """Cassettes of the judges, in their order."""

    @property
    def files(self) -> tuple[Path, ...]:
        """Every file that it names, there or not, and itself."""
        config = [self.path.parent / self.rules.config] if isinstance(self.rules.config, str) else []
        cassettes = [path for path in (self.cassette, *self.judgements) if path is not None]
        return (self.path, *config, *self.recordings, *self.probes, self.baseline, *cassettes)

    @property
    def to_play(self) -> RunConfig:
        """The configuration with summaries from the cassette, if there is one: a check asks no model."""
        if self.cassette is None or self.config.summarizer is None:
            return self.config
        latency = self.config.summaries.latency_s
        changes = {"source": "cassette", "cassette": str(self.cassette), "latency_s": latency}
        return self.config.replace(summaries=changes)

    @property
    def record_command(self) -> str:
        """How to record what is missing."""
        return f"`workbench check {self.path.name} --record`"


def load_suite(path: str | Path) -> Suite:
    """Read a suite file and find what it names.

    Raises:
        ConfigError: the first fault, with file and field; a suite of another version; one file for two things.
        UnsafePathError: a name leads outside the suite's folder.
        RecordingError: the suite, or a file that it names, isn't there.
    """
    path = Path(path)
    values = _values_of(path)
    rules = SuiteFile.parse(values, where=str(path))
    named = _Names(path)
    config = _config_of(rules, named)
    cassette = rules.cassette or config.summaries.cassette
    stem = path.name.removesuffix(path.suffix).removesuffix(".suite")
    suite = Suite(
        path=path,
        name=rules.name or stem,
        rules=rules,
        recordings=tuple(
            dict.fromkeys(found for name in rules.recordings for found in named.files("recordings", name))
        ),
        sources=tuple(dict.fromkeys(found for name in rules.recordings for found in named.sources(name))),
        config=config,
        cassette=named.one("cassette", cassette) if cassette else None,
        baseline=named.one("baseline", rules.baseline or f"{stem}.baseline.toml"),
        judgements=tuple(named.one(f"judges.{one.name}.cassette", one.cassette) for one in rules.judges),
        probes=tuple(found for name in rules.probes for found in named.files("probes", name)),
    )
    _check_written(suite)
    return suite


def _check_written(suite: Suite) -> None:
    """A check may write baseline and cassettes: none of them is another file of the suite; cassettes may be one."""
    read = dict.fromkeys(suite.recordings, "recordings") | dict.fromkeys(suite.probes, "probes")
    read[suite.path] = "the suite itself"
    if isinstance(suite.rules.config, str):
        read[suite.path.parent / suite.rules.config] = "config"
    named = {path.resolve(): what for path, what in read.items()}
    cassettes = dict.fromkeys(path for path in (suite.cassette, *suite.judgements) if path is not None)
    for field, path in [("baseline", suite.baseline), *(("cassette", path) for path in cassettes)]:
        if other := named.get(path.resolve()):
            raise ConfigError(
                f"{suite.path}: {field}: {path.name} is {other} already, and a check would write over it",
                field=field,
                value=path.name,
                hint=f"name another file as {field}",
            )
        if field == "baseline":
            named[path.resolve()] = field


def _values_of(path: Path) -> dict[str, Any]:
    try:
        values = table_of_file(path)
    except RecordingError as error:
        reason = str(error).removeprefix(f"{path}: ").replace("configuration", "the suite")
        raise RecordingError(reason, path=path, hint="check the path") from error
    version = values.get("suite")
    if version is None:
        near = nearest_name("suite", values)
        raise ConfigError(
            f"{path}: not a suite: `suite` is missing",
            field="suite",
            hint=near or f"begin it with suite = {SUITE_VERSION}",
        )
    if isinstance(version, bool) or version != SUITE_VERSION:
        raise ConfigError(
            f"{path}: suite version {version!r}; this program reads {SUITE_VERSION}",
            field="suite",
            value=version,
            hint="write it for this version, or use the program that it was written for",
        )
    return values


class _Names:
    """Finds what a suite names, and says which field named it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def one(self, field: str, name: str) -> Path:
        try:
            return path_inside(self.path.parent, name)
        except UnsafePathError as error:
            raise self._told(field, error) from error

    def files(self, field: str, name: str) -> list[Path]:
        try:
            found = files_inside(self.path.parent, name)
        except UnsafePathError as error:
            raise self._told(field, error) from error
        if not found:
            raise RecordingError(f"{field}: no file {name!r}", path=self.path, hint=_RELATIVE)
        return found

    def sources(self, name: str) -> list[Path]:
        """As `files` of recordings, which has looked at all that is in a folder, but a folder as it is."""
        folder = self.path.parent / name
        return [folder] if folder.is_dir() else self.files("recordings", name)

    def _told(self, field: str, error: UnsafePathError) -> UnsafePathError:
        return UnsafePathError(error.path, error.root, error.reason, where=f"{self.path}: {field}: ", field=field)


def _config_of(rules: SuiteFile, named: _Names) -> RunConfig:
    """The configuration; where its summaries need a cassette, the suite's is as good as one of its own."""
    if isinstance(rules.config, dict):
        where = f"{named.path}: config"
        values = {"name": rules.name or named.path.stem.removesuffix(".suite"), **rules.config}
    else:
        path = named.one("config", rules.config)
        if not path.is_file():
            raise RecordingError(f"config: no file {rules.config!r}", path=named.path, hint=_RELATIVE)
        where = str(path)
        values = values_of_file(path)
    summaries = values.get("summaries")
    if rules.cassette and isinstance(summaries, dict) and summaries.get("source") in {"live", "cassette"}:
        values["summaries"] = {**summaries, "cassette": rules.cassette}
    return RunConfig.from_values(values, where=where)
