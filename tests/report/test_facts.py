"""What was lost, on paper: the needed-fact timeline and the section of the report."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import combinations

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PolyCollection

from tests.report.fakes import fake_runs, with_facts_table
from workbench.errors import ConfigError
from workbench.report import needed_facts
from workbench.report.facts import facts_section, step_in_words
from workbench.report.fonts import drawable
from workbench.report.overview import overview
from workbench.report.page import html_document
from workbench.report.palette import DARK, LIGHT
from workbench.report.plots.facts import _LOOKS

pytestmark = pytest.mark.slow  # replays whole data sets; `make test-more` runs these

PLAIN = fake_runs((60, 12))
NONE = with_facts_table(PLAIN["no summary"], {5: {"visible_raw": 3}, 40: {"visible_raw": 7}})
TODAY = with_facts_table(
    PLAIN["today"], {5: {"visible_raw": 3}, 40: {"visible_raw": 1, "visible_summary": 2, "recoverable": 1, "lost": 3}}
)
RUNS = {"no summary": NONE, "today": TODAY}


def heights(axes) -> dict[float, tuple[float, float]]:
    """Call -> lowest and highest end of its bars."""
    ends: dict[float, tuple[float, float]] = {}
    for collection in axes.collections:
        assert isinstance(collection, PolyCollection)
        for path in collection.get_paths():
            box = path.get_extents()
            call = round((box.x0 + box.x1) / 2)
            low, high = ends.get(call, (0.0, 0.0))
            ends[call] = (min(low, box.y0), max(high, box.y1))
    return ends


def test_what_a_request_says_stands_above_the_line_and_what_it_lacks_below():
    """WB-UI-02, WB-RET-01."""
    first, second = needed_facts(RUNS).axes
    assert heights(first) == {5: (0, 3), 40: (0, 7)}
    assert heights(second) == {5: (0, 3), 40: (-4, 3)}
    assert first.get_ylim() == second.get_ylim()


def test_the_title_says_who_lacks_how_much_and_what_took_it():
    """WB-UI-02."""
    found = needed_facts(RUNS).finding
    assert found == "“today” lacks 4 of 10 needed facts, mostly taken by the summary; “no summary” lacks none"
    assert needed_facts(TODAY).finding == "“today” lacks 4 of 10 needed facts, mostly taken by the summary"
    assert needed_facts(NONE).finding == "“no summary” lacks none of 10 needed facts"
    assert needed_facts({"a": NONE, "b": replace(NONE, name="b")}).finding == (
        "No configuration lacks any of 10 needed facts"
    )
    assert needed_facts({"a": TODAY, "b": replace(TODAY, name="b")}).finding == (
        "All 2 configurations lack 4 needed facts of 10"
    )
    assert needed_facts(PLAIN).finding == "No call here needs a fact from well before it"


def test_the_worst_call_names_a_lost_fact_in_its_own_script():
    """WB-RET-03, WB-UI-02a."""
    words = "call 40 lacks 订单-40-0 and 2 more"
    (text,) = [one for one in needed_facts(TODAY).axes[0].texts if one.get_text().startswith("call")]
    assert text.get_text() == words
    assert drawable(words) == words


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("worst", [0, 59])
def test_nothing_is_clipped_and_nothing_overlaps(theme: str, worst: int):
    """WB-UI-02: also at both ends of the axis."""
    run = with_facts_table(PLAIN["today"], {worst: {"visible_summary": 1, "lost": 9}})
    figure = needed_facts({"no summary": NONE, "today": run}, theme=theme)
    FigureCanvasAgg(figure).draw()
    width, height = figure.get_size_inches() * figure.dpi
    texts = [*figure.texts, *(text for axes in figure.axes for text in (*axes.texts, axes.title, axes._left_title))]
    boxes = [text.get_window_extent() for text in texts if text.get_text()]
    for box in boxes:
        assert 0 <= box.x0 < box.x1 <= width
        assert 0 <= box.y0 < box.y1 <= height
    assert not [(a, b) for a, b in combinations(boxes, 2) if a.overlaps(b)]


def test_states_are_told_apart_without_colour():
    """WB-UI-02: by place and hatch."""
    figure = needed_facts(TODAY)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [label for label, _, _ in _LOOKS.values()]
    hatches = {_LOOKS[state][2] for state in ("visible_raw", "visible_summary")}
    assert len(hatches) == 2
    assert len({_LOOKS[state][2] for state in ("recoverable", "lost")}) == 2
    for theme in (LIGHT, DARK):
        assert len({getattr(theme, colour) for _, colour, _ in _LOOKS.values()}) == 4


def test_classes_that_are_left_out_are_named():
    """WB-RET-01b."""
    rows = [*TODAY.tables["needed_facts"], {**TODAY.tables["needed_facts"][0], "kind": "time", "value": "15:30"}]
    run = replace(TODAY, tables={**TODAY.tables, "needed_facts": rows})
    assert "without class time" in needed_facts(run).texts[1].get_text()
    assert needed_facts(run).finding == needed_facts(TODAY).finding


def test_an_unknown_theme_is_refused():
    with pytest.raises(ConfigError):
        needed_facts(TODAY, theme="neon")


# --- the section ----------------------------------------------------------------------------------------


def words_of(section) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", str(section)).split())


def test_the_section_has_counts_but_no_share_of_too_few_facts():
    """WB-RET-01b: never a percentage of ten facts from one conversation."""
    text = words_of(facts_section(RUNS, overview(RUNS)))
    assert "today 10 4 2 1 3 – –" in text.replace("—", "–")
    assert "No share: it takes 30 facts from 10 conversations" in text


def test_the_section_prints_the_chance_control():
    """WB-RET-01b: every report prints it; a class above 20 % is left out."""
    text = words_of(facts_section(RUNS, overview(RUNS)))
    assert "time 50 20 40 % left out" in text
    assert "identifier 50 1 2.0 %" in text
    assert "Not counted: class time and code." in text


def test_the_section_says_that_the_extractive_recall_is_a_ceiling():
    """WB-RPL-07a."""
    assert "its recall is a ceiling" in words_of(facts_section(RUNS, overview(RUNS)))


def test_lost_facts_are_one_click_away():
    """WB-RET-03: which fact, where it was introduced, where it was needed, which step removed it."""
    section = str(facts_section(RUNS, overview(RUNS)))
    assert section.count("<details>") == 2  # the lost facts, and how many survive further summaries
    text = words_of(section)
    assert "“today”: 3 lost facts, 4 taken by the summary" in text
    assert "订单-40-0 identifier 客服-01 event 4, tool call 40 the summary" in text


def test_enough_facts_have_a_share_with_its_interval():
    """WB-RET-01b."""
    rows = [{**row, "conversation": f"客服-{i % 12:02d}"} for i, row in enumerate(TODAY.tables["needed_facts"] * 4)]
    runs = {"today": replace(TODAY, tables={**TODAY.tables, "needed_facts": rows})}
    text = words_of(facts_section(runs, overview(runs)))
    assert re.search(r"today 40 16 8 4 12 0\.40 0\.\d\d to 0\.\d\d 0\.60 0\.\d\d to 0\.\d\d", text)
    assert "No share" not in text


def test_the_page_holds_section_and_figure():
    """WB-UI-04, WB-RET-03."""
    document = html_document(RUNS)
    assert "What was lost" in document
    assert needed_facts(RUNS).finding in document
    assert "What was lost" not in html_document(PLAIN)


def test_text_from_outside_is_escaped():
    """SEC-07."""
    rows = [{**row, "value": "<script>", "conversation": "<b>"} for row in TODAY.tables["needed_facts"]]
    runs = {"today": replace(TODAY, tables={**TODAY.tables, "needed_facts": rows})}
    section = str(facts_section(runs, overview(runs)))
    assert "<script>" not in section
    assert "&lt;script&gt;" in section


def test_without_needed_facts_there_is_no_section():
    assert facts_section(PLAIN, overview(PLAIN)) is None


def test_steps_are_told_in_words():
    """WB-RET-03."""
    assert step_in_words("oversized") == "compaction pass 2"
    assert step_in_words("some_step") == "some step"
