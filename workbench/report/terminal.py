"""The report in a terminal: recommendation, table, one sentence per configuration.

In: a run set. Out: plain text of at most 100 columns where names allow it; CJK characters count as two columns,
and nothing in a name can move the cursor. Same table and words as the page; needs neither pandas nor matplotlib.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from workbench.report.cache_words import gap_sentence, gaps_of, option_sentences, reported_of, reported_sentence
from workbench.report.labels import UNKNOWN, display_width, printable, shorten, units_to_wrap, within
from workbench.report.overview import Cell, Overview, Row, overview, sentence
from workbench.report.shortening import COLUMNS, N_NAME_COLUMNS, shortening_sentences, shortenings, units

if TYPE_CHECKING:
    from workbench.report.frames import Runs

__all__ = ["LINE_WIDTH", "broken", "figures_table", "runs_table", "sentence", "summary", "text_table"]

LINE_WIDTH = 100
_GAP = "  "
_NAME_WIDTH = (16, 44)
_SHORTENED_NAME = 30
_MAX_SHORTENINGS = 12


def summary(runs: Runs, *, today: str | None = None) -> str:
    """What `replay` prints: recommendation, provenance, table, sentences, remarks."""
    if not runs:
        return "No run to show."
    view = overview(runs, today=today)
    baseline = runs[view.baseline] if view.baseline else None
    sentences = [sentence(runs[row.name], baseline) for row in view.rows]
    blocks = [
        [view.heading, view.provenance],
        _overview_lines(view).split("\n"),
        sentences,
        _cache_lines(runs, view),
        _shortening_lines(runs, view),
        [view.rule, *view.remarks] if len(view.rows) > 1 else [],
    ]
    return "\n\n".join("\n".join(_wrapped(line) for line in block) for block in blocks if block)


def _cache_lines(runs: Runs, view: Overview) -> list[str]:
    """Which option cost how many cached tokens, pauses, and how right the prediction is; empty without rules."""
    run = runs[view.recommended or view.rows[0].name]
    gaps, reported = gaps_of(run), reported_of(runs)
    return [
        *option_sentences(runs, [row.name for row in view.rows]),
        *([gap_sentence(run, gaps)] if gaps else []),
        *([reported_sentence(reported)] if reported else []),
    ]


def _shortening_lines(runs: Runs, view: Overview) -> list[str]:
    """What compaction and tailoring saved and lost; nothing where neither is on."""
    found = shortenings(runs, [row.name for row in view.rows])
    if not found:
        return []
    rows = [[shorten(text, _SHORTENED_NAME) for text in one.cells] for one in found[:_MAX_SHORTENINGS]]
    table = figures_table(COLUMNS, rows, n_names=N_NAME_COLUMNS).split("\n")
    left_out = len(found) - len(rows)
    more = [f"… and {left_out} more in the report"] if left_out else []
    return [*shortening_sentences(found), "", *table, *more, units(runs, found)]


def runs_table(runs: Runs, *, today: str | None = None) -> str:
    """The table of the report: one line per configuration, best first, figures right-aligned, `!` where one needs action."""
    return _overview_lines(overview(runs, today=today)) if runs else "No run to show."


def _overview_lines(view: Overview) -> str:
    figures = [[_figure(row.cells[index]) for row in view.rows] for index in range(len(view.columns))]
    heads = [_two_lines(column.title) for column in view.columns]
    widths = [max(map(display_width, (*head, *texts))) for head, texts in zip(heads, figures, strict=True)]
    room = LINE_WIDTH - sum(width + len(_GAP) for width in widths)
    longest = max(display_width(" ".join(_name_parts(row))) for row in view.rows)
    name_width = max(min(longest, max(room, _NAME_WIDTH[0]), _NAME_WIDTH[1]), len("configuration"))
    lines = [
        _line("", [upper for upper, _ in heads], name_width, widths),
        _line("configuration", [lower for _, lower in heads], name_width, widths),
        "─" * (name_width + sum(width + len(_GAP) for width in widths)),
    ]
    for position, row in enumerate(view.rows):
        first, *further = _name_lines(row, name_width)
        lines.append(_line(first, [texts[position] for texts in figures], name_width, widths))
        lines += further
    return "\n".join(lines)


def text_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Any rows as an aligned table: numbers to the right, everything else to the left, unknown as a dash."""
    values = [list(row) for row in rows]
    texts = [[printable(column) for column in columns], *([_plain(value) for value in row] for row in values)]
    to_the_right = [
        any(_is_number(row[index]) for row in values) and all(_is_number(row[index], or_none=True) for row in values)
        for index in range(len(columns))
    ]
    return _aligned(texts, to_the_right)


def figures_table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, n_names: int = 1) -> str:
    """Figures as they shall be read, to the right of `n_names` columns of names; a single one gives way in a wide table."""
    texts = [[printable(text) for text in row] for row in (columns, *rows)]
    if n_names == 1:
        others = [max(display_width(row[index]) for row in texts) for index in range(1, len(columns))]
        room = max(LINE_WIDTH - sum(width + len(_GAP) for width in others), _NAME_WIDTH[0])
        texts = [[shorten(row[0], room), *row[1:]] for row in texts]
    return _aligned(texts, [index >= n_names for index in range(len(columns))])


def _aligned(texts: Sequence[Sequence[str]], to_the_right: Sequence[bool]) -> str:
    """Heading, rule and rows, each column as wide as its widest text."""
    widths = [max(display_width(row[index]) for row in texts) for index in range(len(to_the_right))]
    lines = [
        _GAP.join(
            _padded(text, width, right=right) for text, width, right in zip(row, widths, to_the_right, strict=True)
        )
        for row in texts
    ]
    rule = "─" * (sum(widths) + len(_GAP) * (len(widths) - 1))
    return "\n".join(line.rstrip() for line in (lines[0], rule, *lines[1:]))


def _is_number(value: object, *, or_none: bool = False) -> bool:
    return (value is None and or_none) or (isinstance(value, int | float) and not isinstance(value, bool))


def _plain(value: object) -> str:
    return UNKNOWN if value is None else printable(f"{value:.6g}" if isinstance(value, float) else str(value))


def _padded(text: str, width: int, *, right: bool) -> str:
    space = " " * (width - display_width(text))
    return space + text if right else text + space


def _two_lines(title: str) -> tuple[str, str]:
    """A heading over two lines, so that figures and not headings decide the width of a column."""
    upper, _, lower = title.rpartition(" ")
    return upper, lower


def _line(name: str, figures: list[str], name_width: int, widths: list[int]) -> str:
    cells = [_padded(name, name_width, right=False)]
    cells += [_padded(text, width, right=True) for text, width in zip(figures, widths, strict=True)]
    return _GAP.join(cells).rstrip()


def _name_parts(row: Row) -> list[str]:
    """The name, and its tags in brackets if it has any."""
    return [printable(row.name), *([f"[{', '.join(row.tags)}]"] if row.tags else [])]


def _name_lines(row: Row, width: int) -> list[str]:
    """Name and tags within the first column; what doesn't fit goes on below, so that names stay apart.

    A tag is never cut: those that don't fit together stand one below the other.
    """
    name, *together = _name_parts(row)
    room = width - len(_GAP)
    lines = [name]
    if display_width(name) > width:
        lines = broken(name, width)
        if len(lines) > 2 or any(display_width(unit) > room for unit in units_to_wrap(name)):
            # Broken inside a word its halves would read as two names.
            lines = [f"{within(name, width - 1)}…", _GAP + within(name[::-1], room)[::-1]]
    for tag in together:
        if display_width(f"{lines[-1]} {tag}") <= width:
            lines[-1] += f" {tag}"
        elif display_width(tag) <= room:
            lines.append(_GAP + tag)
        else:
            lines += [f"{_GAP}[{one}]" for one in row.tags]
    return lines


def _figure(cell: Cell) -> str:
    mark = "!" if cell.needs_action else ""
    return f"{mark}{cell.text}{' ' + cell.difference if cell.difference else ''}"


def _wrapped(line: str) -> str:
    """A sentence on lines that fit, the later ones indented; lines of the table are left alone."""
    return line if _GAP in line else "\n".join(broken(line, LINE_WIDTH))


def broken(text: str, width: int) -> list[str]:
    """`text` on lines of at most `width` columns, the later ones indented; broken inside a word only if need be."""
    lines = [""]
    for piece in units_to_wrap(text):
        while display_width((lines[-1] + piece).rstrip()) > width:
            if lines[-1].strip():
                lines.append(_GAP)
            else:
                lines[-1] += (head := within(piece, width - display_width(lines[-1])))
                piece = piece[len(head) :]
                lines.append(_GAP)
        if lines[-1].strip() or not piece.isspace():
            lines[-1] += piece
    return [line.rstrip() for line in lines]
