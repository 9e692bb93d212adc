"""Findings as JUnit XML, the form that CI servers read (WB-REG-02).

In: findings. Out: one test case each, failures with their place and reason, undecided ones as skipped. Text from
recordings can't break out: it is escaped, and what XML can't hold at all is shown as its escape.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from workbench.regression.figures import plain_value
from workbench.regression.finding import FAIL, UNDECIDED, Finding

# What XML 1.0 can't hold, even as a reference, and what a viewer would obey or not show.
_UNRULY = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff\ufffe\uffff]"
)


def junit_xml(suite: str, findings: Sequence[Finding]) -> str:
    """The text of a JUnit file; no time and no name of the machine, so that equal results are equal files."""
    counts = {
        "tests": len(findings),
        "failures": sum(one.verdict == FAIL for one in findings),
        "errors": 0,
        "skipped": sum(one.verdict == UNDECIDED for one in findings),
    }
    root = Element("testsuites", {name: str(n) for name, n in counts.items()})
    part = SubElement(root, "testsuite", {"name": clean(suite), **{name: str(n) for name, n in counts.items()}})
    for one in findings:
        scope = clean(one.scope or "all conversations")
        case = SubElement(part, "testcase", {"classname": scope, "name": clean(one.expectation), "time": "0"})
        if one.verdict == FAIL:
            failure = SubElement(case, "failure", {"type": clean(one.expectation), "message": clean(sentence(one))})
            failure.text = clean(one.detail)
        elif one.verdict == UNDECIDED:
            SubElement(case, "skipped", {"message": clean(f"undecided: {one.detail}")})
    indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(root, encoding="unicode") + "\n"


def sentence(one: Finding) -> str:
    """Conversation, call, expectation, value and limit of a failure."""
    place = f"{one.conversation or one.scope}{'' if one.call is None else f', call {one.call}'}"
    said = f"{one.expectation} is {plain_value(one.value)}, limit {plain_value(one.limit)}"
    if one.scope:
        return f"{place}: {said}"
    return f"all conversations: {said}{f'; see {place}' if one.conversation else ''}"


def clean(text: str) -> str:
    """Text that every XML reader takes; line ends stay."""
    return _UNRULY.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
