"""Writes `reports/field_facts.md`: four findings of the field survey, tried again with the engine on the same recordings.

In: the public recordings beside the checkout. Out: the report, figures only, each beside the survey's, with "agrees" or
"differs" and why. `measure()` gives the rows, `main()` writes the page. The four: prompts that shrink while the bill
grows; the place of the summary in the prompt; requests above a threshold against firings; a counter that moves the
trigger. Run: `python tools/field_facts.py`; well under a minute on two quiet cores.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.build import tiktoken_counter
from workbench.config import CacheSettings, RunConfig
from workbench.evaluate.cost import cost_of
from workbench.model.types import ToolSpec
from workbench.recordings import load_recordings
from workbench.recordings.types import Conversation
from workbench.replay.cache import tools_text
from workbench.replay.replay import replay
from workbench.replay.runs import Run, RunSet

ROOT = Path(__file__).resolve().parent.parent
REPORT = ROOT / "reports" / "field_facts.md"

TOOLS_TOKENS = 2_000
SUMMARY_TOKENS = 400
# The survey's bill: reads at a tenth, nothing expires, writes and answers are free.
BILL = {"provider": "openai-24h", "read_factor": 0.1}
MARKS = {"provider": "anthropic", "min_tokens": 1024, "read_factor": 0.1, "write_factor": 1.0, "lifetime_s": 86_400}
"""The same, but only whole messages match."""


@dataclass(frozen=True, slots=True)
class Row:
    """One figure here and in the survey."""

    finding: str
    recording: str
    figure: str
    here: str
    survey: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One of the four: its figures, whether the claim holds here, and why figures differ."""

    title: str
    claim: str
    agrees: bool
    rows: tuple[Row, ...]
    why: str


def fixed_tools() -> tuple[ToolSpec, ...]:
    """A declaration of exactly 2,000 tokens, as the survey put in front of every request."""
    counter = tiktoken_counter("o200k_base")

    def tools(n_words: int) -> tuple[ToolSpec, ...]:
        return (ToolSpec(name="tool", description="word " * n_words, parameters_json="{}"),)

    n_words = TOOLS_TOKENS
    while counter.count_text(tools_text(tools(n_words))) > TOOLS_TOKENS:
        n_words -= 1
    return tools(n_words)


def configuration(name: str, token: int | None = None, *, keep: int = 10, **changes: Any) -> RunConfig:
    """Without `token` the baseline, else summaries of 400 tokens behind so many new ones, the newest `keep` events kept.

    `sync_summary_intra_run`: a loop of tool calls is one request, so a summary within it needs this.
    """
    values: dict[str, Any] = {"name": name, "counter": {"kind": "tiktoken"}, "cache": BILL}
    agent = {"add_session_summary": True, "summary_injection_mode": "user", "sync_summary_intra_run": True}
    if token is not None:
        values |= {
            "trigger": {"token": token},
            "summarizer": {"skip_recent": keep},
            "summaries": {"source": "sized", "sized_tokens": SUMMARY_TOKENS, "context_window": 200_000},
            "agent": agent,
        }
    return RunConfig.from_values(values).replace(**changes)


def _replayed(conversations: Iterable[Conversation], configs: Sequence[RunConfig], folder: Path) -> RunSet:
    tools = fixed_tools()
    return replay([one.replace(tools=tools) for one in conversations], configs, runs=folder, progress=False)


def _units(run: Run, cache: dict[str, Any] | None = None) -> float:
    """All prompts, those of summaries too, in units of an uncached token."""
    cost = run.cost if cache is None else cost_of(run, cache=CacheSettings.parse(cache))
    assert cost.weighed_tokens is not None
    return cost.weighed_tokens


def _above(run: Run, threshold: int) -> int:
    return sum(row["prompt_tokens"] > threshold for row in run.rows("calls"))


def _peak(run: Run) -> int:
    return max(row["prompt_tokens"] for row in run.rows("calls"))


def _k(value: float) -> str:
    return f"{value / 1000:,.1f} k" if value < 1_000_000 else f"{value / 1_000_000:.2f} M"


def _change(before: float, after: float) -> str:
    return f"{(after / before - 1) * 100:+.0f} %".replace("-", "−")


def measure(data: Path, folder: Path) -> list[Finding]:
    """The four findings.

    Args:
        data: The folder of the public recordings.
        folder: Where the runs go.
    """
    swe = list(load_recordings(data / "swe-smith"))
    pandas = _replayed(
        [one for one in swe if "pandas" in one.id],
        [
            configuration("none"),
            configuration("standalone", 200),
            configuration("riding", 200, **{"summarizer.cache_safe_forking": True}),
        ],
        folder / "pandas",
    )
    pydantic = _replayed(
        [one for one in swe if "pydantic" in one.id],
        [
            configuration("none"),
            configuration("standalone", 3000),
            configuration("riding", 3000, **{"summarizer.cache_safe_forking": True}),
        ],
        folder / "pydantic",
    )
    chinese = _replayed(
        list(load_recordings(data / "kdconv", join=40))[:1],
        [
            configuration("none"),
            configuration("standalone", 4000),
            configuration("riding", 4000, **{"summarizer.cache_safe_forking": True}),
            configuration("runes/4", 4000, counter={"kind": "runes"}),
            configuration("runes/4, higher", 8000, counter={"kind": "runes"}),
        ],
        folder / "kdconv",
    )
    airline = _replayed(
        list(load_recordings(data / "tau-bench"))[:25],
        [
            configuration("none"),
            configuration("user", 150, keep=8),
            configuration("system", 150, keep=8, **{"agent.summary_injection_mode": "system"}),
        ],
        folder / "tau-bench",
    )
    return [
        _smaller_but_dearer(pandas, pydantic, chinese, airline),
        _injection(airline),
        _above_and_fired(pandas, pydantic, chinese),
        _counter(chinese),
    ]


def _smaller_but_dearer(pandas: RunSet, pydantic: RunSet, chinese: RunSet, airline: RunSet) -> Finding:
    rows = []
    holds = True
    for name, runs, shrank, survey, dearer in (
        ("SWE-smith pandas", pandas, "197 k to 109 k (−45 %)", "36.2 / 84.9 / 57.8 k", True),
        ("SWE-smith pydantic", pydantic, "215 k to 150 k (−30 %)", "39.0 / 61.5 / 44.8 k", True),
        ("KdConv, 40 joined", chinese, "3.50 M to 1.46 M (−58 %)", "386 / 207 / 186 k", False),
    ):
        none, alone, riding = (runs[key] for key in ("none", "standalone", "riding"))
        before, after = none.facts["prompt_tokens"], alone.facts["prompt_tokens"]
        figure = f"{_k(before)} to {_k(after)} ({_change(before, after)})"
        rows.append(Row("1", name, "prompt tokens", figure, shrank))
        units = [_units(run) for run in (none, alone, riding)]
        here = " / ".join(_k(value).removesuffix(" k") for value in units) + " k"
        rows.append(Row("1", name, "units: none / standalone / riding", here, survey))
        holds = holds and after < before and (units[1] > units[0]) == dearer and units[2] < units[1]
    none, user = airline["none"], airline["user"]
    before, after = none.facts["prompt_tokens"], user.facts["prompt_tokens"]
    figure = f"{_k(before)} to {_k(after)} ({_change(before, after)})"
    rows.append(Row("1", "tau-bench, 25 runs", "prompt tokens", figure, "1.73 M to 1.51 M (−13 %)"))
    here = f"{_k(_units(none))} / {_k(_units(user))}"
    rows.append(Row("1", "tau-bench, 25 runs", "units: none / standalone", here, "323 k / 852 k"))
    return Finding(
        "Prompts shrink and the bill grows",
        "in tool loops summaries make prompts smaller and the bill larger, in long chat both smaller; a summary that "
        "rides the cached prefix costs less than a standalone one",
        holds and after < before and _units(user) > _units(none),
        tuple(rows),
        "Same signs everywhere, and riding the cached prefix is the cheaper way to write a summary each time. Amounts "
        "differ because the trigger does: the survey fired on the size of the whole request, the engine counts what is "
        "new since the last summary and not among the newest events that are kept. Thresholds here are those that fire "
        "about as often on the tool loops (200, 3,000 and 150 tokens), and the survey's less the tools on KdConv. On "
        "SWE-smith prompts shrink less, since the engine keeps the message of the running request, there the whole "
        "issue, beside the ten newest events; riding saves less, since a standalone request holds what is new only.",
    )


def _injection(airline: RunSet) -> Finding:
    user, system = airline["user"], airline["system"]
    blocks, marks = ((_units(user, rules), _units(system, rules)) for rules in (None, MARKS))
    rows = (
        Row("2", "tau-bench, 25 runs", "firings", str(user.facts["firings"]), "108"),
        Row(
            "2", "tau-bench, 25 runs", "user / system, whole messages match",
            f"{_k(marks[0])} / {_k(marks[1])} ({_change(*marks)})", "852 k / 976 k (+15 %)",
        ),
        Row(
            "2", "tau-bench, 25 runs", "user / system, blocks of 128 tokens match",
            f"{_k(blocks[0])} / {_k(blocks[1])} ({_change(*blocks)})", "not tried",
        ),
    )  # fmt: skip
    return Finding(
        "The place of the summary changes the bill",
        "a summary in the system message costs more than one in the first user message",
        marks[1] > marks[0],
        rows,
        "It depends on what a provider matches. Where a changed message is lost as a whole, as the survey counted, the "
        "instruction is paid again at every summary, and the system message is the dearer place. Where any block of "
        "tokens matches, the engine's order (instruction first, summary behind it) keeps the instruction in the cache, "
        "and the two places cost about the same.",
    )


def _above_and_fired(pandas: RunSet, pydantic: RunSet, chinese: RunSet) -> Finding:
    rows = []
    holds = True
    for name, runs, threshold, survey in (
        ("SWE-smith pandas", pandas, 6_000, (15, 8)),
        ("SWE-smith pydantic", pydantic, 10_000, (10, 3)),
        ("KdConv, 40 joined", chinese, 6_000, (265, 4)),
    ):
        above, fired = _above(runs["none"], threshold), runs["standalone"].facts["firings"]
        rows.append(Row("3", name, f"requests above {threshold:,}", str(above), str(survey[0])))
        rows.append(Row("3", name, "firings", str(fired), str(survey[1])))
        holds = holds and fired < above
    return Finding(
        "Recorded requests above a threshold don't predict firings",
        "far fewer firings than recorded requests above the threshold, in no fixed proportion",
        holds,
        tuple(rows),
        "Requests above the threshold are the survey's, but for two of KdConv (labels of the roles are counted here). "
        "Each firing makes the next requests small again, so the count of recorded ones says nothing.",
    )


def _counter(chinese: RunSet) -> Finding:
    exact, four, higher = chinese["standalone"], chinese["runes/4"], chinese["runes/4, higher"]
    rows = (
        Row("4", "KdConv, 40 joined", "firings at 6,000, tokens counted", str(exact.facts["firings"]), "4"),
        Row("4", "KdConv, 40 joined", "firings at 6,000, characters / 4", str(four.facts["firings"]), "1"),
        Row("4", "KdConv, 40 joined", "largest prompt with characters / 4", _k(_peak(four)), "11.2 k"),
        Row("4", "KdConv, 40 joined", "firings at 10,000, characters / 4", str(higher.facts["firings"]), "0"),
    )
    return Finding(
        "A wrong counter moves the trigger",
        "with 4 characters per token Chinese chat fires once instead of several times, and at 10,000 never",
        four.facts["firings"] < exact.facts["firings"] and higher.facts["firings"] == 0,
        rows,
        "One firing fewer with the exact counter, and a larger peak: the survey fired when the whole request passed the "
        "threshold; here 4,000 new tokens have to come together, and by then the summary and the ten kept events have "
        "made the request longer than 6,000.",
    )


def report(findings: Sequence[Finding]) -> str:
    """The page."""
    lines = [
        "# Four findings of the field survey, tried again",
        "",
        "Made by `python tools/field_facts.py` from the public recordings beside the checkout; figures only. As in the",
        "survey: tokens of o200k, a fixed 2,000 tokens of tools in front, summaries of 400 tokens, reads from the cache at",
        "a tenth of the price in blocks of 128 from 1,024 on, nothing expires, answers aren't billed; units are uncached",
        "prompt tokens, calls for summaries included. Each is one corpus: a hint, not a law.",
        "",
    ]
    for number, found in enumerate(findings, 1):
        lines += [
            f"## {number}. {found.title}: {'agrees' if found.agrees else 'differs'}",
            "",
            f"Claim: {found.claim}.",
            "",
            "| recording | figure | here | survey |",
            "|---|---|---|---|",
            *(f"| {row.recording} | {row.figure} | {row.here} | {row.survey} |" for row in found.rows),
            "",
            found.why,
            "",
        ]
    return "\n".join(lines).rstrip() + "\n"


def findings_of(page: str) -> list[Finding]:
    """The findings of a page that `report` wrote."""
    found = []
    for section in page.split("\n## ")[1:]:
        head, claim, table, why = section.strip("\n").split("\n\n")
        title, _, verdict = head.partition(". ")[2].rpartition(": ")
        rows = [Row(title, *(cell.strip() for cell in line.strip("|").split("|"))) for line in table.split("\n")[2:]]
        said = claim.removeprefix("Claim: ").removesuffix(".")
        found.append(Finding(title, said, verdict == "agrees", tuple(rows), why))
    return found


def public_recordings() -> Path:
    """Where they are, if they are."""
    return Path(os.environ.get("WORKBENCH_SHARED") or ROOT.parent / "shared") / "data"


def main() -> int:
    data = public_recordings()
    if not data.is_dir():
        print(
            "the public recordings are not here: put them beside the checkout as shared/data, or set WORKBENCH_SHARED"
        )
        return 0
    with tempfile.TemporaryDirectory() as folder:
        text = report(measure(data, Path(folder)))
    REPORT.write_text(text, encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
