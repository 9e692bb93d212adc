"""What every export states: profile, hashes, counter, run, key figures with intervals, version and date (WB-EXP-02).

In: a configuration and its evidence. Out: a `Stamp`: a table that a file can hold, and lines for comments. One
wording serves TOML, JSON, Python, Go and the record.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from workbench.config import EXPORT_FORMAT, CounterSettings, RunConfig
from workbench.errors import ConfigError
from workbench.evaluate.compare import MIN_CONVERSATIONS
from workbench.evaluate.evidence import Change, Evidence, KeyFigure
from workbench.version import __version__

PROGRAM = "session-summary-workbench"
UNKNOWN = "not known"
NO_INTERVALS = f"No intervals: they take {MIN_CONVERSATIONS} conversations."


@dataclass(frozen=True, slots=True)
class Stamp:
    """Where an export is from."""

    name: str
    profile: str
    config_hash: str
    counter: CounterSettings
    """The counter that the configuration was tuned with (WB-EXP-04)."""
    version: str
    """Of this program."""
    date: str
    """As 2026-03-01."""
    evidence: Evidence | None = None

    @classmethod
    def of(cls, config: RunConfig, *, date: str, evidence: Evidence | None = None) -> Stamp:
        """The stamp of an export made now."""
        return cls(config.label(), config.profile, config.config_hash, config.counter, __version__, date, evidence)

    def table(self) -> dict[str, Any]:
        """Plain values, for the table `[export]` of a file."""
        values = {
            "format": EXPORT_FORMAT,
            "program": PROGRAM,
            "version": self.version,
            "date": self.date,
            "profile": self.profile,
            "config_hash": self.config_hash,
            "counter": counter_values(self.counter),
        }
        return values if self.evidence is None else {**values, "evidence": self.evidence.as_dict()}

    @classmethod
    def from_table(cls, table: Mapping[str, Any], *, name: str, where: str) -> Stamp:
        """What `table` gave.

        Raises:
            ConfigError: something is missing or isn't what it should be.
        """
        try:
            evidence = table.get("evidence")
            return cls(
                name=name,
                profile=str(table["profile"]),
                config_hash=str(table["config_hash"]),
                counter=CounterSettings.parse(table["counter"], where=f"{where}: export.counter"),
                version=str(table["version"]),
                date=str(table["date"]),
                evidence=None if evidence is None else Evidence.from_dict(evidence),
            )
        except ConfigError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ConfigError(
                f"{where}: in the table [export] something is missing, or isn't of its kind",
                field="export",
                hint="export the configuration again",
            ) from error

    def lines(self) -> list[str]:
        """Everything in words, a sentence a line; no line holds a line break."""
        found = [
            f"Configuration {one_line(self.name)}, profile {self.profile}, hash {self.config_hash}.",
            f"Tuned with the counter {counter_words(self.counter)}.",
        ]
        if self.evidence is None:
            found.append("Not replayed: nothing is known about what it does.")
        else:
            found += evidence_lines(self.evidence)
        return [*found, f"Exported on {self.date} by {PROGRAM} {self.version}."]


def evidence_lines(evidence: Evidence) -> Iterator[str]:
    """The evidence in words."""
    corpus = f"{evidence.conversations:,} conversations, {evidence.calls:,} model requests"
    yield f"Replayed in run {one_line(evidence.run_id)} on {corpus}, data hash {evidence.data_hash}."
    if evidence.conversations < MIN_CONVERSATIONS:
        yield NO_INTERVALS
    if evidence.unreachable:
        yield f"It never fires on these recordings, and was exported all the same: {one_line(evidence.unreachable)}."
    yield "To watch in production, with the replay's values:"
    for figure in evidence.watched:
        yield f"- {figure.doc}: {figure_words(figure)}"
    yield "Other key figures:"
    for figure in evidence.figures:
        if figure not in evidence.watched:
            yield f"- {figure.doc}: {figure_words(figure)}"
    if evidence.reference:
        yield f"Against {one_line(evidence.reference)}: {evidence.verdict}."
        for change in evidence.changes:
            yield f"- {change.doc}: {change_words(change)}"
    if evidence.reason:
        yield f"Recommended: {one_line(evidence.reason)}."


def counter_values(counter: CounterSettings) -> dict[str, Any]:
    """What decides how a counter counts: the options that its kind uses."""
    used = {"runes": ("runes_per_token",), "tiktoken": ("encoding",), "scripts": ("scripts", "runes_per_token")}
    values = counter.model_dump(mode="json", exclude_none=True)
    return {name: values[name] for name in ("kind", *used[counter.kind])}


def counter_words(counter: CounterSettings) -> str:
    """A counter and what it divides by."""
    if counter.kind == "tiktoken":
        return f"tiktoken, encoding {one_line(counter.encoding)}"
    if counter.kind == "runes":
        return f"runes, {counter.runes_per_token:g} characters per token"
    ratios = counter.scripts.model_dump(exclude_none=True)
    own = ", ".join(f"{name} {ratio:g}" for name, ratio in ratios.items())
    return f"scripts, characters per token: {own}, others {counter.runes_per_token:g}"


def figure_words(figure: KeyFigure) -> str:
    """A value with its interval, if it has one."""
    if figure.value is None:
        return UNKNOWN
    said = _number(figure.value, is_share=figure.is_share)
    if figure.low is None or figure.high is None:
        return said
    low, high = (_number(value, is_share=figure.is_share) for value in (figure.low, figure.high))
    return f"{said} (95 %: {low} to {high})"


def change_words(change: Change) -> str:
    """A difference with its interval, if it has one."""
    is_relative = change.relative is not None
    value = change.difference if change.relative is None else change.relative

    def words(number: float) -> str:
        if is_relative:
            return f"{100 * number:+.1f} %"
        sign = "+" if number > 0 else ""
        return f"{100 * number:+.1f} points" if change.is_share else sign + _number(number, is_share=False)

    said = words(value)
    if change.low is None or change.high is None:
        return said
    low, high = words(change.low), words(change.high)
    return f"{said} (95 %: {low} to {high})"


def _number(value: float, *, is_share: bool) -> str:
    if is_share:
        return f"{100 * value:.1f} %"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def one_line(text: str) -> str:
    """Hostile text on one line: what isn't printable stands as its escape."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
