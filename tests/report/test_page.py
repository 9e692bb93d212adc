"""The HTML report: what it says, and that nothing from outside becomes part of it."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser
from importlib import import_module
from xml.etree import ElementTree as ET

import pytest

import workbench.report
from tests.report.fakes import FakeRun, fake_run, fake_runs
from workbench.evaluate.compare import compare
from workbench.report.labels import number, unbroken
from workbench.report.markup import element, joined, text
from workbench.report.overview import overview
from workbench.report.page import html_document, page
from workbench.report.selection import MAX_CALL_ROWS, MAX_PANELS, Selection

VOID = {"meta", "img", "input", "br"}

# Tags, attributes, entities, addresses, styles, comments, broken nesting, scripts in every dress.
PAYLOADS = [
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '"><img src=x onerror=alert(1)>',
    "'><svg onload=alert(1)>",
    "<svg><script>alert(1)</script></svg>",
    "<svg/onload=alert(1)>",
    '" onmouseover="alert(1)',
    "' onfocus='alert(1)' autofocus='",
    "javascript:alert(1)",
    '<a href="javascript:alert(1)">x</a>',
    "<iframe src=//evil.example></iframe>",
    "<object data=x></object>",
    "<embed src=x>",
    "<link rel=stylesheet href=//evil.example/x.css>",
    "<meta http-equiv=refresh content='0;url=//evil.example'>",
    "<base href=//evil.example>",
    "<style>*{display:none}</style>",
    "</style><script>alert(1)</script>",
    "</title><script>alert(1)</script>",
    "<!-- comment",
    "-->",
    "<!--><script>alert(1)</script>-->",
    "<![CDATA[<script>alert(1)</script>]]>",
    "<?xml version='1.0'?>",
    "<!DOCTYPE html>",
    "</td></tr></table><h1>broken</h1>",
    "</main></body></html>",
    "<details open ontoggle=alert(1)>",
    "<form action=//evil.example><input name=q>",
    "<button formaction=javascript:alert(1)>",
    "<video><source onerror=alert(1)>",
    "<audio src=x onerror=alert(1)>",
    "<body onload=alert(1)>",
    "<math><mi//xlink:href='data:x,<script>alert(1)</script>'>",
    "<template><script>alert(1)</script></template>",
    "<noscript><p title='</noscript><img src=x onerror=alert(1)>'>",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "&#60;script&#62;",
    "&quot; onclick=&quot;alert(1)",
    "&amp;lt;b&amp;gt;",
    "<b>bold</b>",
    "<b",
    "b>",
    "< script >",
    "<\x00script>",
    "\x1b[31m<i>\x1b[0m",
    "\u202e<script>\u202c",
    "＜script＞alert(1)＜/script＞",
    "`${alert(1)}`",
    "{{7*7}}",
    "{% include 'x' %}",
    "%3Cscript%3E",
    "\\u003cscript\\u003e",
    "style=expression(alert(1))",
    "url(javascript:alert(1))",
    "x' style='background:url(//evil.example)",
    'x" id="theme-dark" checked="',
    "https://evil.example/<wbr>",
    "<a target=_blank href=https://evil.example>x</a>",
]  # fmt: skip


class Structure(HTMLParser):
    """Tags with their attribute names in order; ids, links and sources apart."""

    def __init__(self, document: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, tuple[str, ...]]] = []
        self.open: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text: list[str] = []
        self.feed(document)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, tuple(name for name, _ in attrs)))
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] != ["style"]:
            self.text.append(data)

    def handle_comment(self, data):
        raise AssertionError(f"comment {data!r}")

    def values(self, name: str) -> list[str]:
        return [value for _, found, value in self.attributes if found == name]


def two_runs(names: tuple[str, str], conversations: list[str]) -> dict[str, FakeRun]:
    calls = {name: 14 if index == 0 else 2 for index, name in enumerate(conversations)}
    return {
        names[0]: fake_run(names[0], calls),
        names[1]: fake_run(names[1], calls, chars_per_token=1.3),
    }


@pytest.fixture(scope="module")
def runs() -> dict[str, FakeRun]:
    found = fake_runs((24, 9, 2))
    return {name: found[name] for name in ("no summary", "today", "1.3 chars/token · user")}


@pytest.fixture(scope="module")
def document(runs) -> str:
    return html_document(runs, notes=["A note."], problems=["a.jsonl:17: no timestamp"])


@pytest.fixture(scope="module")
def structure(document) -> Structure:
    return Structure(document)


@pytest.fixture
def without_figures(monkeypatch) -> None:
    """For tests of the text alone: figures take most of the time."""
    monkeypatch.setattr(import_module("workbench.report.page"), "_figure", lambda draw: element("figure"))


def pictures(document: str) -> list[str]:
    prefix = "data:image/svg+xml;base64,"
    found = [value for value in Structure(document).values("src") if value.startswith(prefix)]
    return [base64.b64decode(value.removeprefix(prefix)).decode("utf-8") for value in found]


# --- what it says -----------------------------------------------------------------------------------------


def test_the_recommendation_stands_first_then_the_table_then_why(runs, document):
    """WB-UI-04."""
    words = "\n".join(Structure(document).text)
    order = [
        words.index(part)
        for part in (
            unbroken(overview(runs).heading),
            "net tokens",
            "Why",
            "What each configuration",
            "Conversations",
            "What a replay can",
        )
    ]
    assert order == sorted(order)


def test_no_sentence_is_broken_between_a_figure_and_its_unit(structure):
    """WB-UI-04: `−16` at the end of a line and `%` on the next read as two things."""
    sentences = [text for text in structure.text if len(text.split()) > 5]
    assert any(re.search(r"\d\xa0%", text) for text in sentences)
    configurations = [text for text in sentences if text.startswith("“")]
    assert configurations
    assert not [text for text in configurations if re.search(r"\d %", text)]


@pytest.mark.usefixtures("without_figures")
def test_the_finding_and_its_remarks_are_not_broken_there_either(runs, monkeypatch):
    """WB-UI-04."""
    sentences = ["take the one that is 9 % cheaper", "it saves 8 % of all", "another keeps 7 % more", "6 % are unknown"]
    view = replace(overview(runs), heading=sentences[0], reason=sentences[1], remarks=tuple(sentences[2:]))
    monkeypatch.setattr(import_module("workbench.report.page"), "overview", lambda *_, **__: view)
    for title in (None, "Review 5 % below"):
        shown = Structure(html_document(runs, title=title)).text
        for sentence in (*sentences, *([title] if title else [])):
            assert sentence.replace(" %", "\xa0%") in shown
            assert sentence not in shown


def test_every_figure_of_the_table_is_on_the_page(runs, structure):
    words = "\n".join(structure.text)
    for run in runs.values():
        assert number(run.facts["prompt_tokens"]) in words
        assert number(run.facts["peak_prompt_tokens"]) in words
        assert run.facts["run_id"] in words


def test_the_line_below_says_on_what_data_and_when_it_was_recorded(structure):
    words = "\n".join(structure.text)
    assert "service.jsonl · data 9f3c0000… · 3 conversations · 35 calls · profile SEED" in words
    assert "recorded 2026-01-01" in words, "the date of the data, not of the machine"


def test_notes_and_problems_are_shown(structure):
    words = "\n".join(structure.text)
    assert "A note." in words
    assert "1 problem in the recordings" in words
    assert "a.jsonl:17: no timestamp" in words


@pytest.mark.usefixtures("without_figures")
def test_an_unknown_figure_is_a_dash_with_a_reason():
    found = Structure(html_document(fake_runs((1,), None)))
    reasons = {value for tag, name, value in found.attributes if tag == "td" and name == "title"}
    assert "the context window of the model is unknown" in reasons
    assert "no call has an earlier request in its conversation" in reasons


def test_causes_of_breaks_are_summed_per_configuration(runs, structure):
    """WB-CACHE-03."""
    rows = runs["today"].rows("calls")
    lost = sum(row["lost_tokens"] for row in rows if row["break_cause"] == "summary_appeared")
    cause = structure.text.index("a first summary took the place of history")
    row = structure.text[cause : cause + 12]
    assert lost
    assert number(lost) in row


@pytest.mark.slow
def test_each_conversation_links_to_its_calls(runs, structure):
    targets = [value.removeprefix("#") for value in structure.values("href")]
    assert len(targets) == 3
    assert set(targets) <= set(structure.values("id"))


def test_ids_are_unique_and_never_names(structure):
    ids = structure.values("id")
    assert len(ids) == len(set(ids))
    assert all(re.fullmatch(r"[a-z]+(-[a-z0-9]+)?", value) for value in ids)


def test_it_says_what_a_replay_cannot_show(structure):
    """WB-RPL-17, WB-RPL-07a, WB-CACHE-01a."""
    words = "\n".join(structure.text)
    for part in (
        "How the model would have acted on the other context",
        "Fewer tokens per request need not be fewer per task",
        "each is replayed alone",
        "the extractive source wrote them",
        "a ceiling",
        "prefix reuse: reused tokens / tokens of the longest earlier request",
        "prefix share: reused tokens / prompt tokens",
    ):
        assert part in words


@pytest.mark.usefixtures("without_figures")
def test_a_given_title_replaces_the_heading_but_not_the_finding(runs):
    words = "\n".join(Structure(html_document(runs, title="Quarterly review")).text)
    assert words.index("Quarterly review") < words.index(unbroken(overview(runs).heading))


def test_the_figures_take_a_few_configurations_and_always_the_tagged_ones():
    calls = {"客服-01": 20}
    many = {"no summary": fake_run("no summary", calls), "today": fake_run("today", calls, chars_per_token=6.0)}
    for rate in range(1, 9):
        many[f"rate {rate}"] = fake_run(f"rate {rate}", calls, chars_per_token=1 + rate / 4)
    view = overview(many)
    shown = Selection.of(many, view)
    assert len(shown.names) == MAX_PANELS
    assert {view.recommended, "no summary", "today"} <= set(shown.names)


@pytest.mark.usefixtures("without_figures")
def test_dozens_of_configurations_stand_in_the_table_and_only_a_few_one_by_one():
    """WB-UI-04: the page of a sweep stays short, and what is folded is still there."""
    calls = {f"客服-{n:02d}": 12 for n in range(4)}
    many = {"no summary": fake_run("no summary", calls), "today": fake_run("today", calls, chars_per_token=6.0)}
    for rate in range(1, 21):
        many[f"rate {rate:02d}"] = fake_run(f"rate {rate:02d}", calls, chars_per_token=1 + rate / 4)
    view = overview(many)
    shown = Selection.of(many, view).names
    document = html_document(many, comparison=compare(many, reference="no summary"))
    table, rest = document.split("</table>", 1)
    assert all(f">{name}<" in table for name in many)
    told = re.findall("<li>“([^”]*)” (?:wrote|sends|never)", rest)
    assert told == [row.name for row in view.rows if row.name in shown]
    compared = re.split('<h2 id="compared">|<h2 id="facts">|<h2>', rest)
    (section,) = [part for part in compared if part.startswith("Compared conversation")]
    others = section.index("<summary>16 more configurations against “no summary”")
    assert all(f"“{name}” against" in section for name in many if name != "no summary")
    assert [section.index(f"“{name}” against") < others for name in shown if name != "no summary"] == [True] * 5
    taken = compare(many, reference="no summary").decision.recommended
    assert section.count("<summary>All figures") == len(many) - 1 - (taken != "no summary")
    few = {name: many[name] for name in ("no summary", "rate 01", "rate 02")}
    assert "All figures" not in html_document(few, comparison=compare(few))
    assert f"<summary>{len(many)} runs</summary>" in rest


def test_calls_are_listed_up_to_a_limit():
    conversations = {f"客服-{n:03d}": 100 for n in range(20)}
    run = fake_run("no summary", conversations)
    shown = Selection.of({run.name: run}, overview({run.name: run}))
    assert len(shown.with_calls) == MAX_CALL_ROWS // 100


# --- safe and self-contained ------------------------------------------------------------------------------


@pytest.mark.usefixtures("without_figures")
def test_no_payload_becomes_markup():
    """SEC-07: whatever the names hold, the page has the tags and attributes of its template."""
    plain = two_runs(("a", "b"), [f"c{n}" for n in range(len(PAYLOADS))])
    hostile = two_runs((PAYLOADS[0], PAYLOADS[7]), PAYLOADS)
    for run in hostile.values():
        run.tables["calls"][5]["break_cause"] = PAYLOADS[2]
        for row, payload in zip(run.tables["conversations"], PAYLOADS, strict=True):
            row["source"] = payload
    for run in plain.values():
        run.tables["calls"][5]["break_cause"] = "strange"
    harmless = Structure(html_document(plain, title="t", notes=["n"] * len(PAYLOADS), problems=["p"] * len(PAYLOADS)))
    attacked = html_document(hostile, title=PAYLOADS[19], notes=PAYLOADS, problems=PAYLOADS)
    found = Structure(attacked)
    assert found.tags == harmless.tags
    assert found.values("href") == harmless.values("href")


@pytest.mark.parametrize("payload", PAYLOADS)
def test_a_payload_stays_text_in_every_place(payload):
    """SEC-07."""
    made = joined([element("td", payload, title=payload, class_="x"), text(payload)])
    found = Structure(made)
    assert found.tags == [("td", ("title", "class"))]
    shown = "".join(found.text)
    assert shown == found.values("title")[0] * 2
    assert {"\x1b", "\x00", "\u202e"}.isdisjoint(shown)


def test_the_page_loads_nothing_and_runs_nothing(document, structure):
    """WB-UI-04, SEC-07."""
    policy = structure.values("content")[0]
    assert policy.startswith("default-src 'none'")
    assert "script" not in {tag for tag, _ in structure.tags}
    assert not [name for _, name, _ in structure.attributes if name.startswith("on") or name == "style"]
    assert all(value.startswith("data:") for value in structure.values("src"))
    assert all(value.startswith("#") for value in structure.values("href"))
    assert not re.search(r"https?:|//[a-z]", re.sub(r"base64,[A-Za-z0-9+/=]+", "", document))


def test_the_policy_allows_exactly_the_style_of_the_page(document, structure):
    style = re.search(r"<style>(.*?)</style>", document, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(style.encode("utf-8")).digest()).decode("ascii")
    assert f"style-src 'sha256-{digest}'" in structure.values("content")[0]
    assert not re.search(r"@import|url\((?!data:)", style)


def test_figures_are_there_in_light_and_dark_and_name_nothing_outside(document, structure):
    """WB-UI-04."""
    classes = [value for value in structure.values("class") if value.startswith("on-")]
    assert classes.count("on-light") == classes.count("on-dark") >= 4
    assert all(structure.values("alt"))
    for svg in pictures(document):
        kinds = {node.tag.rpartition("}")[2] for node in ET.fromstring(svg).iter()}
        assert kinds <= {"svg", "defs", "style", "g", "path", "use", "clipPath", "rect", "image", "pattern"}
        addresses = set(re.findall(r"https?://[^\"'<\s]+", svg))
        assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
        assert "<text" not in svg, "text is outlines, so no face is needed"


@pytest.mark.slow
def test_equal_runs_give_equal_pages():
    """WB-RPL-09."""
    first, second = (html_document({"today": fake_run("today", {"客服-01": 6})}) for _ in range(2))
    assert first == second


def test_the_file_is_written_and_its_place_returned(tmp_path, monkeypatch):
    """REL-07."""
    module = import_module("workbench.report.page")
    monkeypatch.setattr(module, "html_document", lambda *args, **rest: "<!DOCTYPE html>")
    path = page(fake_runs((1,)), tmp_path / "reports" / "first.html")
    assert path == (tmp_path / "reports" / "first.html").resolve()
    assert [found.name for found in path.parent.iterdir()] == ["first.html"]


@pytest.mark.usefixtures("without_figures")
def test_problems_of_the_run_set_are_shown_without_being_passed():
    class RunSet(dict):
        problems = ("b.jsonl:3: not JSON",)

    assert "b.jsonl:3: not JSON" in html_document(RunSet(fake_runs((1,))))


def test_the_package_offers_the_function_not_the_module():
    """WB-API-03."""
    import workbench.report.page as module

    assert workbench.report.page is page
    assert module is not None
    assert set(workbench.report.__all__) <= set(dir(workbench.report))
    assert all(callable(getattr(workbench.report, name)) for name in workbench.report.__all__)
    with pytest.raises(AttributeError, match="no attribute 'pages'"):
        workbench.report.pages  # noqa: B018


def test_no_runs_make_a_page_that_says_so():
    assert "No run to show" in html_document({})
