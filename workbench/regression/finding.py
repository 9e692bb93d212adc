"""One verdict on one expectation, with the place that decided it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from workbench.regression.figures import plain_value

Verdict = Literal["pass", "fail", "undecided"]
PASS: Final = "pass"  # noqa: S105 - a verdict
FAIL: Final = "fail"
UNDECIDED: Final = "undecided"
"""There is too little to tell, or the interval straddles the limit: neither good news nor bad."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What became of one expectation."""

    expectation: str
    """The field of the suite that says it, such as `limits.firings.max`."""
    verdict: Verdict
    scope: str = ""
    """The conversation that it is about; empty = all."""
    conversation: str = ""
    """Where it failed, or, of one over all conversations, where to look first; else the scope."""
    call: int | None = None
    """The call where it failed: it is the first that gets the faulty summary, or has the faulty prompt."""
    value: Any = None
    limit: Any = None
    detail: str = ""
    """In words: what is wrong there, or why there is no verdict."""

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as `workbench check --json` prints them (WB-CLI-03)."""
        return {
            "conversation": self.conversation or self.scope,
            "call": self.call,
            "expectation": self.expectation,
            "value": plain_value(self.value),
            "limit": plain_value(self.limit),
            "verdict": self.verdict,
            "detail": self.detail,
        }
