"""Accepted figures: what a suite drifts from (WB-REG-01, -02).

In: the figures of a suite, or the file of an accepted baseline. Out: a `Baseline`, its TOML, and what differs between
two. A baseline that was counted otherwise or made of other recordings can't be compared, and says so.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import Field

from workbench.config import table_of_file
from workbench.errors import ConfigError
from workbench.regression.figures import Figures, Place, measured
from workbench.regression.replaying import Replayed
from workbench.regression.suite import Suite
from workbench.report.whole_file import write_whole
from workbench.settings import Settings

BASELINE_VERSION: Final = 1
BASELINE_SUFFIX: Final = ".baseline.toml"
NOT_A_BASELINE: Final = "baseline file"
"""Field of the error for a file that is something else."""
_SHOWN: Final = 3
Numbers = Annotated[tuple[int, ...], Field(strict=False)]
Texts = Annotated[tuple[str, ...], Field(strict=False)]


class AcceptedConversation(Settings):
    """The accepted figures of one conversation."""

    id: str
    content_hash: str
    """Of the recording."""
    prompt_tokens: Numbers
    """Per call."""
    summary_tokens: int
    firings: Numbers
    """Call before which each firing stood."""
    summaries: Annotated[tuple[Annotated[tuple[int, int], Field(strict=False)], ...], Field(strict=False)]
    """First call that can see it, and place of its last event."""
    lost_facts: Texts
    lost_probes: Texts


class Baseline(Settings):
    """Accepted figures of a suite."""

    baseline: int = BASELINE_VERSION
    """Version of the format."""
    billing: str
    """The counter that tokens were counted with, and its overheads."""
    config: dict[str, Any]
    """The configuration, to say what changed."""
    needed_fact_recall: float | None = None
    """None: too few facts."""
    probe_recall: float | None = None
    conversations: Annotated[tuple[AcceptedConversation, ...], Field(strict=False)]


def baseline_of(replayed: Replayed, figures: Sequence[Figures]) -> Baseline:
    """These figures as a baseline."""
    config = replayed.config.to_values()
    recalls = {name: measured(name, figures).value for name in ("needed_fact_recall", "probe_recall")}
    return Baseline.parse(
        {
            "billing": billing_name(replayed),
            "config": {name: value for name, value in config.items() if name != "name"},
            **{name: round(value, 6) for name, value in recalls.items() if value is not None},
            "conversations": [
                {
                    "id": one.conversation,
                    "content_hash": one.content_hash,
                    "prompt_tokens": one.prompt_tokens,
                    "summary_tokens": one.summary_tokens,
                    "firings": one.firings,
                    "summaries": one.summaries,
                    "lost_facts": [named_fact(place) for place in one.lost_facts],
                    "lost_probes": [place.what for place in one.lost_probes],
                }
                for one in figures
            ],
        }
    )


def named_fact(place: Place) -> str:
    """A lost fact by the call that needs it."""
    return f"{place.call} {place.what}"


def billing_name(replayed: Replayed) -> str:
    """The counter behind all token figures."""
    billing = replayed.config.billing
    return f"{billing.encoding} +{billing.per_message} per message +{billing.per_request} per request"


def load_baseline(suite: Suite) -> Baseline | None:
    """The accepted baseline of a suite; None when there is none yet.

    Raises:
        ConfigError: it isn't one, or one of another version.
    """
    path = suite.baseline
    if not path.exists():
        return None
    try:
        values = table_of_file(path)
    except ConfigError as error:
        raise _no_baseline(path, suite) from error
    version = values.get("baseline")
    if version is None:
        raise _no_baseline(path, suite)
    if isinstance(version, bool) or version != BASELINE_VERSION:
        what = f"baseline version {version!r}; this program reads {BASELINE_VERSION}"
        raise ConfigError(f"{path}: {what}", field="baseline", value=version, hint=accept_hint(suite))
    return Baseline.parse(values, where=str(path))


def _no_baseline(path: Path, suite: Suite) -> ConfigError:
    hint = accept_hint(suite)
    if not path.name.endswith(BASELINE_SUFFIX):
        hint = f"name another file as `baseline` in {suite.path.name}; this one isn't written over"
    return ConfigError(f"{path}: not a baseline", field=NOT_A_BASELINE, value=str(path), hint=hint)


def check_comparable(accepted: Baseline, now: Baseline, suite: Suite) -> None:
    """Refuse to compare what can't be compared.

    Raises:
        ConfigError: another counter, or other recordings.
    """
    if accepted.billing != now.billing:
        raise ConfigError(
            f"{suite.baseline}: accepted for the counter {accepted.billing!r}, the suite counts with {now.billing!r}",
            field="billing",
            value=accepted.billing,
            hint=accept_hint(suite),
        )
    before = {one.id: one.content_hash for one in accepted.conversations}
    after = {one.id: one.content_hash for one in now.conversations}
    if changed := [name for name in after if before.get(name) != after[name]] or [n for n in before if n not in after]:
        what = "isn't recorded any more" if changed[0] not in after else "is another recording now"
        if changed[0] not in before:
            what = "isn't in it"
        raise ConfigError(
            f"{suite.baseline}: accepted for other recordings: conversation {changed[0]!r} {what}",
            field="recordings",
            value=changed[0],
            hint=accept_hint(suite),
        )


def accept_hint(suite: Suite) -> str:
    """How to accept what there is now."""
    return f"look at the figures, then accept them: `workbench check {suite.path.name} --accept`"


def write_baseline(baseline: Baseline, path: Path) -> None:
    """Write it whole or not at all.

    Raises:
        ConfigError: the file can't be written.
    """
    try:
        write_whole(path, _toml(baseline))
    except OSError as error:
        raise ConfigError(f"{path}: can't be written: {error.strerror}", field="baseline", value=str(path)) from error


def _toml(baseline: Baseline) -> str:
    """Plain values, the configuration option by option, then one table per conversation, so that a diff reads well."""
    values = baseline.model_dump(mode="json", exclude_none=True)
    head = ["# Accepted figures. `workbench check SUITE --accept` writes this file."]
    head += [f"{name} = {_value(value)}" for name, value in values.items() if name not in {"config", "conversations"}]
    config = ["[config]", *(f"{_value(path)} = {_value(value)}" for path, value in flat(values["config"]).items())]
    tables = [
        "\n".join(["[[conversations]]", *(f"{name} = {_value(value)}" for name, value in one.items())])
        for one in values["conversations"]
    ]
    return "\n\n".join(["\n".join(head), "\n".join(config), *tables]) + "\n"


def _value(value: Any) -> str:
    """A value on one line; JSON's texts, numbers and lists are TOML's, but for one control character."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_value(name)} = {_value(inner)}" for name, inner in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


# --- what differs ---------------------------------------------------------------------------------------


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Options by dotted path; lists stay whole."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{name}.")
        else:
            found[prefix + name] = value
    return found


def changed_options(accepted: Baseline, now: Baseline) -> list[tuple[str, Any, Any]]:
    """Options that differ: path, accepted, now; None where one isn't set."""
    before, after = flat(accepted.config), flat(now.config)
    return [
        (path, before.get(path), after.get(path))
        for path in sorted({*before, *after})
        if before.get(path) != after.get(path)
    ]


def differences(accepted: Baseline | None, now: Baseline) -> list[dict[str, Any]]:
    """What accepting would change, a row per figure that differs (WB-REG-02); everything when nothing is accepted."""
    rows: list[dict[str, Any]] = []

    def note(conversation: str, figure: str, before: Any, after: Any) -> None:
        if before != after:
            rows.append({"conversation": conversation, "figure": figure, "accepted": before, "now": after})

    if accepted is not None:
        note("", "counter", accepted.billing, now.billing)
        for path, before, after in changed_options(accepted, now):
            note("", path, before, after)
    for name in ("needed_fact_recall", "probe_recall"):
        note("", name, getattr(accepted, name, None), getattr(now, name))
    known = {} if accepted is None else {one.id: one for one in accepted.conversations}
    for one in now.conversations:
        before, after = _shown(known.get(one.id)), _shown(one)
        for figure, value in after.items():
            note(one.id, figure, before.get(figure), value)
    for name in sorted(known.keys() - {one.id for one in now.conversations}):
        note(name, "conversation", "recorded", None)
    return rows


def _shown(one: AcceptedConversation | None) -> dict[str, Any]:
    if one is None:
        return {}
    return {
        "prompt_tokens": sum(one.prompt_tokens),
        "peak_prompt_tokens": max(one.prompt_tokens, default=0),
        "summary_tokens": one.summary_tokens,
        "firings": len(one.firings),
        "summaries at call:event": " ".join(f"{call}:{event}" for call, event in one.summaries),
        "lost_facts": _counted(one.lost_facts),
        "lost_probes": _counted(one.lost_probes),
    }


def _counted(names: Sequence[str]) -> str:
    """How many, and the first of them."""
    shown = ", ".join(names[:_SHOWN])
    return f"{len(names)}{f': {shown}' if names else ''}{', …' if len(names) > _SHOWN else ''}"
