"""What a person reads about a calibration: the finding, the tables, the remarks; in a terminal and in a notebook.

In: a calibration, moved firings, a drift. Out: plain text, or the same as markup. Words and tables are made once, so
that both say the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from workbench.evaluate.calibrate import Calibration, ErrorSpread
from workbench.evaluate.drift import Drift
from workbench.evaluate.firings import MovedFirings
from workbench.evaluate.usage import UsageCalibration
from workbench.report.labels import UNKNOWN, counted, number, percent, shorten
from workbench.report.markup import Markup, element, joined
from workbench.report.terminal import LINE_WIDTH, broken, figures_table
from workbench.tokens import DEFAULT_RUNES_PER_TOKEN

SCRIPT_NAMES: Final = {
    "han": "Han 汉字",
    "kana": "Kana かな",
    "hangul": "Hangul 한글",
    "latin": "Latin",
    "digits": "digits",
    "code": "code, JSON",
    "emoji": "emoji",
    "other": "other",
}
_MAX_MOVES = 12
_MAX_CALLS = 6


@dataclass(frozen=True, slots=True)
class Table:
    """A table as it shall be read."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    n_names: int = 1


def finding(calibration: Calibration) -> str:
    """The title: the ratio, and what the default makes of it."""
    factor = DEFAULT_RUNES_PER_TOKEN / calibration.ratio
    words = f"{calibration.ratio:.3g} characters per token"
    if factor >= 1.05:
        return f"{words}: the default of {DEFAULT_RUNES_PER_TOKEN:g} fires {factor:.1f} times too late"
    if factor <= 0.95:
        return f"{words}: the default of {DEFAULT_RUNES_PER_TOKEN:g} fires at {percent(factor)} of a threshold"
    return f"{words}: the default of {DEFAULT_RUNES_PER_TOKEN:g} is about right"


def source(calibration: Calibration) -> str:
    """Corpus, tokenizer and date: the line below a figure or a heading."""
    return " · ".join(
        [
            counted(calibration.conversations, "conversation"),
            counted(calibration.messages, "message"),
            f"{number(calibration.chars)} characters",
            (
                f"{number(calibration.tokens)} tokens by {shorten(calibration.tokenizer, 40)} "
                f"({calibration.tokenizer_version})"
            ),
            calibration.date,
        ]
    )


def tables(calibration: Calibration) -> list[Table]:
    """Ratios, scripts, errors of each counter, thresholds."""
    judged = "messages" if calibration.window == 1 else f"windows of {calibration.window} messages"
    ratios = (
        ("ratio of sums", _ratio(calibration.ratio), _pair(calibration.interval), "on the whole right"),
        (f"median of {judged}", _ratio(calibration.median), _pair(calibration.median_interval), "the usual one"),
        (
            "safe",
            _ratio(calibration.safe_ratio),
            _pair(calibration.safe_interval),
            f"at most {percent(calibration.quantile)} of {judged} underestimated",
        ),
    )
    found = [Table("Characters per token", ("", "value", "95 % interval", "meaning"), ratios)]
    scripts = [
        (SCRIPT_NAMES[name], number(one.chars), percent(one.share), _ratio(one.ratio), _pair(one.interval))
        for name, one in calibration.by_script.items()
        if one.chars
    ]
    found.append(Table("By script", ("script", "characters", "share", "per token", "95 % interval"), tuple(scripts)))
    heads = ("counter", "too low", "in sum", "5 %", "25 %", "median", "75 %", "95 %")
    errors = tuple((one.counter, *_errors(one)) for one in calibration.errors)
    found.append(Table(f"Errors of the estimates, by {judged}", heads, errors))
    if len(calibration.errors_by_script) > 1:
        by_script = calibration.errors_by_script.items()
        mostly = tuple((f"{SCRIPT_NAMES[name]} ({number(one.messages)})", *_errors(one)) for name, one in by_script)
        found.append(
            Table(f"Errors of the one ratio, on {judged} mostly of one script", ("script", *heads[1:]), mostly)
        )
    reached = [one for one in calibration.thresholds if one.firings or one.real_firings]
    if reached:
        rows = [
            (
                number(one.threshold),
                one.counter,
                number(one.firings),
                number(one.real_firings),
                UNKNOWN if one.lateness is None else f"{one.lateness:.2f}",
            )
            for one in reached
        ]
        columns = ("threshold", "counter", "firings", "if exact", "fires at × threshold")
        found.append(Table("Thresholds of new tokens, on bare messages", columns, tuple(rows), n_names=2))
    return found


def remarks(calibration: Calibration) -> list[str]:
    """Cross-validation, thresholds that nothing reaches, warnings."""
    found: list[str] = []
    validation = calibration.cross_validation
    if validation is not None:
        verdict = {"scripts": "one ratio per script is better", "single": "one ratio is better"}.get(
            validation.better, "no difference beyond chance"
        )
        found.append(
            f"On conversations not fitted to, one ratio is off by {percent(validation.single_error)} per message, one "
            f"ratio per script by {percent(validation.scripts_error)}: {verdict}."
        )
    asked = sorted({one.threshold for one in calibration.thresholds})
    reached = {one.threshold for one in calibration.thresholds if one.real_firings}
    if silent := [number(one) for one in asked if one not in reached]:
        found.append(f"No conversation reaches {' or '.join(silent)} tokens.")
    return [*found, *(f"Warning: {warning}." for warning in calibration.warnings)]


def calibration_text(calibration: Calibration) -> str:
    """What `calibrate` prints."""
    blocks = [[finding(calibration), source(calibration)]]
    for table in tables(calibration):
        blocks.append([table.title, figures_table(table.columns, table.rows, n_names=table.n_names)])
    if notes := remarks(calibration):
        blocks.append(notes)
    return _text(blocks)


def calibration_markup(calibration: Calibration) -> Markup:
    """The same for a notebook."""
    parts = [element("div", element("b", finding(calibration))), element("div", element("small", source(calibration)))]
    for table in tables(calibration):
        head = [element("th", column, scope="col") for column in table.columns]
        rows = [
            element("tr", element("th", first, scope="row"), *(element("td", cell, class_="number") for cell in rest))
            for first, *rest in table.rows
        ]
        parts.append(element("div", element("small", table.title)))
        parts.append(element("table", element("thead", element("tr", *head)), element("tbody", *rows)))
    parts += [element("div", element("small", remark)) for remark in remarks(calibration)]
    return element("div", joined(parts))


def usage_text(calibration: UsageCalibration) -> str:
    """What `calibrate --usage` prints."""
    rows = (
        ("characters per token", _ratio(calibration.ratio), _pair(calibration.interval)),
        (f"safe at {percent(calibration.quantile)}", _ratio(calibration.safe_ratio), UNKNOWN),
        ("tokens per message", _tokens(calibration.per_message), _pair(calibration.per_message_interval)),
        ("tokens per tool schema, beyond its text", _tokens(calibration.per_tool), UNKNOWN),
        ("tokens per request", _tokens(calibration.per_request), UNKNOWN),
    )
    about = [
        f"{calibration.ratio:.3g} characters per token by the usage of {shorten(calibration.model, 40) or 'the provider'}",
        (
            f"{counted(calibration.conversations, 'conversation')} · {counted(calibration.steps, 'step')} from call to call "
            f"({calibration.left_out} left out) · off by {percent(calibration.error)} on conversations not fitted to · "
            f"{calibration.date}"
        ),
    ]
    blocks = [about, [figures_table(("", "value", "95 % interval"), rows)]]
    if calibration.warnings:
        blocks.append([f"Warning: {warning}." for warning in calibration.warnings])
    return _text(blocks)


def firings_text(moved: MovedFirings) -> str:
    """Which firings another counter moves."""
    head = (
        f"{moved.config}: {counted(moved.n_before, 'firing')} with {moved.before}, {moved.n_after} with {moved.after}; "
        f"{moved.n_kept} stay where they are, in {len(moved.moves)} of {counted(moved.conversations, 'conversation')} "
        "they move."
    )
    if not moved.moves:
        return _text([[head]])
    rows = [(shorten(one.conversation, 30), _calls(one.before), _calls(one.after)) for one in moved.moves[:_MAX_MOVES]]
    left_out = len(moved.moves) - len(rows)
    more = [f"… and {counted(left_out, 'more conversation')}"] if left_out else []
    return _text([[head, figures_table(("conversation", "fires before calls", "and then"), rows, n_names=3), *more]])


def drift_text(found: Drift) -> str:
    """What `doctor --calibration` prints."""
    lines = [
        (
            f"{found.then:.3g} characters per token [{_pair(found.then_interval)}] in the file, {found.now:.3g} "
            f"[{_pair(found.now_interval)}] in these recordings, by {found.measured_with}"
        )
    ]
    if found.underestimated is not None:
        lines.append(
            f"the safe ratio underestimates {percent(found.underestimated)} of them, {percent(found.quantile)} allowed"
        )
    if found.same_recordings:
        lines.append("these are the recordings that the file was made from")
    lines += [f"warning: {warning}" for warning in found.warnings] or ["the calibration holds"]
    return _text([lines])


def _text(blocks: Iterable[Sequence[str]]) -> str:
    wrapped = [
        "\n".join(line if "\n" in line else "\n".join(broken(line, LINE_WIDTH)) for line in block) for block in blocks
    ]
    return "\n\n".join(wrapped)


def _errors(one: ErrorSpread) -> tuple[str, ...]:
    return (percent(one.underestimated), *(_signed(value) for value in (one.bias, *one.quantiles)))


def _ratio(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.2f}"


def _tokens(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.1f}"


def _pair(values: tuple[float, float] | None) -> str:
    return UNKNOWN if values is None else f"{values[0]:.2f} to {values[1]:.2f}"


def _signed(value: float) -> str:
    if round(value, 3) == 0:
        return "±0 %"
    return f"{'−' if value < 0 else '+'}{percent(value)}"


def _calls(calls: Sequence[int]) -> str:
    if not calls:
        return "never"
    shown = ", ".join(map(str, calls[:_MAX_CALLS]))
    return f"{shown}, … ({len(calls)})" if len(calls) > _MAX_CALLS else shown
