"""What a suite expects, against what its replay did: one `Finding` per expectation and scope.

In: a suite, its `Replayed` and figures. Out: findings, in the order of the suite's fields. No model is asked and no
percentage is made of too little data. Pure. Implements the limits and facts of WB-REG-01 and the miss of WB-REG-04.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from workbench.errors import nearest_name
from workbench.evaluate.summary_checks import SummaryCheckResult, check_summaries
from workbench.facts import QUOTED, Candidate, CandidateFinder, Mentions, candidates, folded
from workbench.recordings.types import Conversation
from workbench.regression.figures import Figures, Measured, Place, measured
from workbench.regression.finding import FAIL, PASS, UNDECIDED, Finding
from workbench.regression.replaying import Miss, Replayed, Row
from workbench.regression.suite import ConversationRules, Limit, Suite, SummaryRules
from workbench.replay.needed import said_by
from workbench.session.scope import keys_match

_MAX_NAMED = 5
_NOT_TO_ANSWER = "let summarizer.prompt forbid that, or, if this is a summary, leave `is_summary` out"
_LANGUAGES = {"zh": "Chinese", "ja": "Japanese", "ko": "Korean", "latin": "a language with Latin letters"}
STOPPED_EARLY = "replay"
"""The expectation, of every suite, that each recorded call is replayed."""


def findings_of(suite: Suite, replayed: Replayed, figures: Sequence[Figures]) -> list[Finding]:
    """Everything but drift and judgements."""
    if replayed.misses:
        return misses(suite, replayed.misses)
    found = _stopped(replayed)
    found += [
        one for name, limit in suite.rules.limits.given() for one in _limited(f"limits.{name}", name, limit, figures)
    ]
    for name, limit in suite.rules.each.given():
        for one in figures:
            found += _limited(f"each.{name}", name, limit, [one], scope=one.conversation)
    checks = _checks_by_conversation(suite.rules.summaries, replayed)
    found += _summary_findings(suite.rules.summaries, replayed, checks)
    rules = {one.id: one for one in suite.rules.conversations}
    by_id = {one.id: one for one in replayed.conversations}
    for name, rule in rules.items():
        found += _held(rule, by_id[name], _written(replayed, name)) if name in by_id else [_unknown(rule, by_id)]
    return found


def _stopped(replayed: Replayed) -> list[Finding]:
    """Conversations whose replay made fewer calls than were recorded: fewer tokens would look like an improvement."""
    findings = []
    for conversation in replayed.conversations:
        name, n, due = conversation.id, len(replayed.rows("calls", conversation.id)), len(conversation.calls)
        if n < due:
            text = "the engine stopped before this call; its log says why"
            findings.append(
                Finding(STOPPED_EARLY, FAIL, name, name, n, f"{n} of {due} calls", "every recorded call", text)
            )
    return findings


def misses(suite: Suite, found: Iterable[Miss]) -> list[Finding]:
    """Requests without a recorded answer: a prompt, an option or a formatter has changed (WB-REG-04)."""
    return [
        Finding(
            expectation="cassette",
            verdict=FAIL,
            scope=one.conversation,
            conversation=one.conversation,
            call=one.call,
            value="no recorded answer",
            limit="every summary request is recorded",
            detail=_miss_in_words(one, suite),
        )
        for one in found
    ]


def _miss_in_words(one: Miss, suite: Suite) -> str:
    record = f"if that is meant, {suite.record_command} records what is missing"
    if not one.place:
        return f"nothing is recorded yet; {suite.record_command} records it"
    return f"the closest entry ({one.closest}) first differs in {one.place}: recorded “{one.recorded}”, now “{one.now}”; {record}"


def _unknown(rule: ConversationRules, known: Iterable[str]) -> Finding:
    near = nearest_name(rule.id, known)
    return Finding(
        expectation="conversations.id",
        verdict=FAIL,
        scope=rule.id,
        value="not recorded",
        limit="in the recordings",
        detail=near,
    )


# --- limits ---------------------------------------------------------------------------------------------


def _limited(
    expectation: str, name: str, limit: Limit, figures: Sequence[Figures], *, scope: str = ""
) -> list[Finding]:
    """A finding per bound."""
    found = measured(name, figures)
    bounds: list[tuple[str, float | None, Callable[[float, float], bool]]] = [
        ("min", limit.min, lambda value, bound: value >= bound),
        ("max", limit.max, lambda value, bound: value <= bound),
    ]
    findings = []
    for side, bound, holds in bounds:
        if bound is None:
            continue
        label = f"{expectation}.{side}"
        certain = found.at_least if found.value is None else found.value
        if found.value is None and (certain is None or holds(certain, bound) == (side == "max")):
            findings.append(Finding(label, UNDECIDED, scope, limit=bound, detail=found.reason))
        elif certain is not None and holds(certain, bound):
            findings.append(Finding(label, PASS, scope, value=certain, limit=bound))
        else:
            place = _deciding(found, bound, side)
            detail = _in_words(found, place)
            findings.append(
                Finding(label, FAIL, scope, place.conversation or scope, place.call, certain, bound, detail)
            )
    return findings


def _deciding(found: Measured, bound: float, side: str) -> Place:
    """The place to look at: of a count the first thing over the limit, else where most of it is."""
    if not found.places or (side == "min" and found.is_count):
        return Place("", None)
    if found.is_count:
        return found.places[min(int(bound), len(found.places) - 1)]
    return found.places[0]


def _in_words(found: Measured, place: Place) -> str:
    sort = f"{found.sort} " if found.sort else ""
    if not found.is_count:
        return f"{sort}{place.what}" if place.what else ""
    named = [one for one in found.places if one.what][:_MAX_NAMED]
    text = "; ".join(f"{sort}{one.what} ({one.conversation}, call {one.call})" for one in named)
    left = len(found.places) - len(named)
    return f"{text}; and {left} more" if named and left > 0 else text


# --- what every summary keeps ---------------------------------------------------------------------------


def _written(replayed: Replayed, conversation: str) -> list[Row]:
    return [row for row in replayed.rows("summaries", conversation) if row["status"] == "written"]


Checked = list[tuple[Row, SummaryCheckResult]]


def _checks_by_conversation(rules: SummaryRules, replayed: Replayed) -> dict[str, Checked]:
    found: dict[str, Checked] = {}
    if rules == SummaryRules():
        return found
    for conversation in replayed.conversations:
        rows = _written(replayed, conversation.id)
        results = check_summaries(conversation, rows, max_words=rules.max_words, forbidden=rules.forbidden)
        found[conversation.id] = list(zip(rows, results, strict=True))
    return found


def _summary_findings(rules: SummaryRules, replayed: Replayed, checks: dict[str, Checked]) -> list[Finding]:
    findings: list[Finding] = []

    def judge(field: str, limit: Any, fault: Callable[[SummaryCheckResult], tuple[Any, str] | None]) -> None:
        """One finding per conversation: the first summary with a fault decides."""
        for name, checked in checks.items():
            findings.append(_first_fault(f"summaries.{field}", name, limit, checked, fault))

    if rules.max_words is not None:
        judge(
            "max_words",
            rules.max_words,
            lambda one: None if one.keeps_limit else (one.words, f"the summary has {one.words:,} words"),
        )
    if (most := rules.invented_numbers) is not None:
        judge(
            "invented_numbers",
            most,
            lambda one: (
                None if len(one.invented) <= most else (len(one.invented), f"nothing says {_listed(one.invented)}")
            ),
        )
    if rules.keeps_language:
        judge(
            "keeps_language",
            True,
            lambda one: None if one.keeps_language else (False, _other_language(one)),
        )
    if rules.is_summary:
        judge("is_summary", True, _not_a_summary)
    if rules.forbidden:
        judge(
            "forbidden",
            0,
            lambda one: (len(one.forbidden), f"it holds {_listed(one.forbidden)}") if one.forbidden else None,
        )
    if rules.prompt_holds:
        findings += _prompt_findings(rules, replayed)
    return findings


def _other_language(one: SummaryCheckResult) -> str:
    known = " and ".join(_LANGUAGES[name] for name in one.languages)
    return f"it is in {_LANGUAGES[one.language]}, the conversation in {known}"


def _not_a_summary(one: SummaryCheckResult) -> tuple[Any, str] | None:
    if one.has_tool_call:
        return False, "it holds a tool call"
    if one.is_refusal:
        return False, "it asks for a conversation, or declines to sum up"
    if one.answers_the_request:
        return False, f"it answers the request instead of summing up: {one.answer}; {_NOT_TO_ANSWER}"
    return None


def _first_fault(
    expectation: str,
    conversation: str,
    limit: Any,
    checked: Checked,
    fault: Callable[[SummaryCheckResult], tuple[Any, str] | None],
) -> Finding:
    if not checked:
        return Finding(expectation, UNDECIDED, conversation, limit=limit, detail="no summary was written")
    faults = [(row, found) for row, one in checked if (found := fault(one)) is not None]
    if not faults:
        return Finding(expectation, PASS, conversation, value=_good(limit), limit=limit)
    row, (value, text) = faults[0]
    more = f"; {len(faults)} of {len(checked)} summaries fail" if len(checked) > 1 else ""
    return Finding(
        expectation,
        FAIL,
        conversation,
        conversation,
        row["call"],
        value,
        limit,
        f"summary {row['summary']}: {text}{more}",
    )


def _good(limit: Any) -> Any:
    """What a table shows where every summary passes: nothing for numbers, which differ from summary to summary."""
    return limit if isinstance(limit, bool) else None


def _prompt_findings(rules: SummaryRules, replayed: Replayed) -> list[Finding]:
    findings = []
    for conversation in replayed.conversations:
        name = conversation.id
        bare = [one for one in replayed.bare_prompts if one.conversation == name]
        expectation, limit = "summaries.prompt_holds", len(rules.prompt_holds)
        if not replayed.n_prompts[name]:
            findings.append(Finding(expectation, UNDECIDED, name, limit=limit, detail="no summary was asked for"))
        elif not bare:
            findings.append(Finding(expectation, PASS, name, value=limit, limit=limit))
        else:
            lacking = list(dict.fromkeys(one.lacks for one in bare))
            text = f"the request to the summary model doesn't say {_listed(lacking)}"
            findings.append(Finding(expectation, FAIL, name, name, bare[0].call, limit - len(lacking), limit, text))
    return findings


def _listed(values: Sequence[str]) -> str:
    shown = ", ".join(f"“{one}”" for one in values[:_MAX_NAMED])
    return f"{shown} and {len(values) - _MAX_NAMED} more" if len(values) > _MAX_NAMED else shown


# --- what the summaries of one conversation hold --------------------------------------------------------


def fact_of(text: str) -> Candidate:
    """A text as a fact: of its own class where it is one value, else as words that must occur."""
    whole = next((one for one in candidates(text) if one.end - one.start == len(text.strip())), None)
    return whole or Candidate(text, QUOTED, 0, len(text), folded(text))


def _held(rule: ConversationRules, conversation: Conversation, rows: Sequence[Row]) -> list[Finding]:
    """Facts are due in every summary whose conversation has said them by its last event, in a branch it covers."""
    findings = []
    finder = CandidateFinder(fact_of(text) for text in rule.holds)
    first_said = _first_said(finder, conversation, {row["filter_key"] for row in rows} | {""})
    places = {event.id: place for place, event in enumerate(conversation.events)}
    ends = [places.get(row["boundary_event_id"] or "", len(conversation.events) - 1) for row in rows]
    told = [finder.found_in(Mentions(row["text"])) for row in rows]
    for index, text in enumerate(rule.holds):
        expectation = f"conversations.holds {text!r}"
        said = [first_said[row["filter_key"]].get(index, len(conversation.events)) for row in rows]
        due = [number for number, end in enumerate(ends) if said[number] <= end]
        if not due:
            is_said = index in first_said[""]
            reason = "no summary covers the event that says it first" if is_said else "the conversation never says it"
            findings.append(Finding(expectation, UNDECIDED, rule.id, limit="in each summary", detail=reason))
            continue
        missing = [number for number in due if index not in told[number]]
        value = f"in {len(due) - len(missing)} of {len(due)}"
        if not missing:
            findings.append(Finding(expectation, PASS, rule.id, value=value, limit="in each summary"))
            continue
        row = rows[missing[0]]
        detail = f"summary {row['summary']} doesn't say it"
        findings.append(Finding(expectation, FAIL, rule.id, rule.id, row["call"], value, "in each summary", detail))
    for text in rule.lacks:
        expectation = f"conversations.lacks {text!r}"
        if not rows:
            findings.append(Finding(expectation, UNDECIDED, rule.id, limit="in none", detail="no summary was written"))
            continue
        holding = [row for row in rows if folded(text) in folded(row["text"])]
        value = f"in {len(holding)} of {len(rows)}"
        if not holding:
            findings.append(Finding(expectation, PASS, rule.id, value=value, limit="in none"))
            continue
        detail = f"summary {holding[0]['summary']} says it"
        findings.append(Finding(expectation, FAIL, rule.id, rule.id, holding[0]["call"], value, "in none", detail))
    return findings


def _first_said(
    finder: CandidateFinder, conversation: Conversation, filter_keys: Collection[str]
) -> dict[str, dict[int, int]]:
    """By key of a summary, fact -> the event that says it first among those that it covers; each event is read once."""
    first: dict[str, dict[int, int]] = {key: {} for key in filter_keys}
    for place, event in enumerate(conversation.events):
        said = finder.found_in(Mentions(said_by(event)))
        for key, known in first.items():
            if keys_match(event.filter_key, key):
                known.update({index: place for index in said if index not in known})
    return first
