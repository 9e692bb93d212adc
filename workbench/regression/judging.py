"""A model as judge of summaries, whose noise never turns a verdict (WB-REG-06).

In: written summaries, a question, recorded judgements or a model. Out: findings with three verdicts: passed or failed
only when the whole interval of the share of yes lies on one side of the limit, else undecided. Judgements are kept by
content, each replicate for itself; without a model only what is recorded counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import Final

from workbench.call import EMPTY_CONTEXT
from workbench.errors import NotEnoughDataError
from workbench.evaluate.probes import yes_or_no
from workbench.evaluate.retention import wilson
from workbench.model.cassette import Cassette, CassetteModel
from workbench.model.cassette_entry import request_fields, request_key
from workbench.model.client import Model
from workbench.model.openai import OpenAIModel
from workbench.model.types import USER, Message, Request, Response
from workbench.recordings.types import Conversation
from workbench.regression.finding import FAIL, PASS, UNDECIDED, Finding, Verdict
from workbench.regression.replaying import Replayed, Row
from workbench.regression.suite import JudgeRules, Suite
from workbench.replay.loop import VirtualLoop
from workbench.replay.needed import said_by
from workbench.replay.sources import OutsideLoop
from workbench.session.scope import keys_match

MIN_JUDGEMENTS: Final = 30
"""With fewer there is no share, as with needed facts."""
JUDGE_PROMPT: Final = """Below are a conversation and a summary of it. Answer the question about the summary.

<conversation>
{conversation}
</conversation>

<summary>
{summary}
</summary>

Question: {question}
Reply with yes or no only."""


@dataclass(frozen=True, slots=True)
class JudgedSummary:
    """What the replicates said of one summary."""

    conversation: str
    call: int
    summary: int
    yes: int
    no: int
    unclear: int
    """Neither yes nor no."""
    missing: int
    """Not recorded, and nobody to ask."""

    @property
    def judged(self) -> int:
        return self.yes + self.no + self.unclear


@dataclass(frozen=True, slots=True)
class Share:
    """The share of yes with its interval."""

    yes: int
    judged: int
    low: float
    high: float

    def verdict(self, limit: float) -> Verdict:
        """Undecided when the interval straddles the limit."""
        if self.low >= limit:
            return PASS
        return FAIL if self.high < limit else UNDECIDED


def judged(suite: Suite, replayed: Replayed, *, judge: Model | None = None, record: bool = False) -> list[Finding]:
    """A finding per judge of the suite.

    Args:
        judge: Asked for judgements that aren't recorded; they are kept.
        record: Ask the model that the suite names.
    Raises:
        ModelError: the judge fails.
        CassetteFormatError: recorded judgements can't be read.
    """
    findings = []
    for rules, cassette in zip(suite.rules.judges, suite.judgements, strict=True):
        model = judge or (_live(rules) if record else None)
        summaries = judge_summaries(replayed, rules, cassette, model)
        findings.append(_finding(rules, summaries, suite))
    return findings


def judge_summaries(
    replayed: Replayed, rules: JudgeRules, cassette: str | Path, model: Model | None = None
) -> list[JudgedSummary]:
    """What is recorded of each written summary, or what the model says now.

    Equal requests have the same answers, so they are one judgement and not several: copied, an answer would weigh more.
    """
    kept = Cassette(cassette)
    found, asked = [], set()
    for conversation in replayed.conversations:
        for row in replayed.rows("summaries", conversation.id):
            if row["status"] == "written":
                request = _request(conversation, row, rules.question)
                text = request.messages[0].content
                if text in asked:
                    continue
                asked.add(text)
                said = [_judgement(kept, rules.model, number, request, model) for number in range(rules.replicates)]
                verdicts = [yes_or_no(text) for text in said if text is not None]
                found.append(
                    JudgedSummary(
                        conversation=conversation.id,
                        call=row["call"],
                        summary=row["summary"],
                        yes=verdicts.count(True),
                        no=verdicts.count(False),
                        unclear=verdicts.count(None),
                        missing=said.count(None),
                    )
                )
    if model is not None:
        kept.tidy()
    return found


def share_of(summaries: Sequence[JudgedSummary], level: float) -> Share:
    """The share of yes of at least one judgement.

    Wilson's interval over all judgements: it is about these summaries and the judge's noise, of which it takes at
    least as much as there is. An unclear judgement may have meant either.
    """
    n = sum(one.judged for one in summaries)
    yes, unclear = sum(one.yes for one in summaries), sum(one.unclear for one in summaries)
    z = NormalDist().inv_cdf((1 + level) / 2)
    return Share(yes, n, wilson(yes / n, n, z=z)[0], wilson((yes + unclear) / n, n, z=z)[1])


def _finding(rules: JudgeRules, summaries: Sequence[JudgedSummary], suite: Suite) -> Finding:
    expectation = f"judges.{rules.name}"
    n, missing = sum(one.judged for one in summaries), sum(one.missing for one in summaries)
    if missing:
        # As with a summary that isn't recorded: a changed summary must not silence its judge.
        reason = f"{missing} of {n + missing} judgements aren't recorded; {suite.record_command} asks for them"
        first = next(one for one in summaries if one.missing)
        return Finding(expectation, FAIL, "", first.conversation, first.call, None, rules.min_share, reason)
    if not summaries:
        return Finding(expectation, UNDECIDED, limit=rules.min_share, detail="no summary was written")
    if n < MIN_JUDGEMENTS:
        reason = str(NotEnoughDataError("judgements", have=n, need=MIN_JUDGEMENTS))
        return Finding(expectation, UNDECIDED, limit=rules.min_share, detail=f"{reason}: raise replicates")
    share = share_of(summaries, rules.level)
    verdict = share.verdict(rules.min_share)
    text = f"{share.yes} of {share.judged} yes, {rules.level:.4g} interval {share.low:.2f} to {share.high:.2f}"
    if unclear := sum(one.unclear for one in summaries):
        text += f", {unclear} unclear"
    value = share.yes / share.judged
    if verdict != FAIL:
        return Finding(expectation, verdict, value=value, limit=rules.min_share, detail=text)
    worst = min(summaries, key=lambda one: one.yes / one.judged if one.judged else 1.0)
    text += f"; summary {worst.summary} got {worst.yes} of {worst.judged}"
    return Finding(expectation, FAIL, "", worst.conversation, worst.call, value, rules.min_share, text)


# --- asking ---------------------------------------------------------------------------------------------


def _request(conversation: Conversation, row: Row, question: str) -> Request:
    """What the summary covers: up to its boundary, without branches of other keys."""
    places = {event.id: place for place, event in enumerate(conversation.events)}
    end = places.get(row["boundary_event_id"] or "", len(conversation.events) - 1) + 1
    lines = [
        f"{message.role or USER}: {text}"
        for event in conversation.events[:end]
        if keys_match(event.filter_key, row["filter_key"])
        if (text := said_by(event))
        for message in event.messages[:1]
    ]
    # One replacement at a time would look at what was put in.
    text = JUDGE_PROMPT.format(conversation="\n".join(lines), summary=row["text"], question=question)
    return Request(messages=(Message(role=USER, content=text),))


def _judgement(cassette: Cassette, model: str, number: int, request: Request, asked: Model | None) -> str | None:
    """The text of one replicate; each is recorded under a name of its own. None when it isn't recorded."""
    name = f"{model}#{number}"
    entry = cassette.find(request_key(request_fields(name, request)))
    if entry is not None:
        return _text_of(entry.play())
    if asked is None:
        return None
    return _ask(CassetteModel(cassette, asked, "auto", name=name), request)


def _ask(model: Model, request: Request) -> str:
    async def answer() -> str:
        return _text_of([response async for response in model.generate(EMPTY_CONTEXT, request)])

    loop = VirtualLoop()
    try:
        return loop.run(answer())
    finally:
        loop.close()


def _text_of(responses: Sequence[Response]) -> str:
    whole = [response for response in responses if not response.is_partial]
    return "".join(choice.message.content for response in whole for choice in response.choices)


def _live(rules: JudgeRules) -> Model:
    return OutsideLoop(
        OpenAIModel(rules.model, base_url=rules.base_url or None, api_key_env=rules.api_key_env, stream=False)
    )
