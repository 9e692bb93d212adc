"""Prompt templates: placeholders, one-pass rendering, the built-in prompts (SUM-PRM, SUM-OPT-01 to -05).

In: template texts and a word limit. Out: rendered texts, or an error that names the placeholder. A
conversation full of braces passes through untouched, since rendering never looks at what it put in.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from workbench.errors import ConfigError, PromptRenderError, nearest_name

CONVERSATION_TEXT = "conversation_text"
PREVIOUS_SUMMARY = "previous_summary"
MAX_SUMMARY_WORDS = "max_summary_words"
_SOURCE_NAMES = (CONVERSATION_TEXT, PREVIOUS_SUMMARY)

# A group is taken whole before anybody asks whether it is a name: that keeps JSON and stray braces literal.
_GROUP = re.compile(r"\{\{(?P<double>.*?)\}\}|\{(?!\{)(?P<single>[^}]*)\}", re.DOTALL)
_NAME = re.compile(r"(?P<name>[^\s{}'\"`?]+)(?P<optional>\?)?")


class Placeholder(NamedTuple):
    """One `{name}` of a template."""

    name: str
    optional: bool
    raw: str


@lru_cache(maxsize=256)
def template_parts(template: str) -> tuple[str | Placeholder, ...]:
    """A template as literal texts and placeholders, in order (SUM-PRM-01)."""
    parts: list[str | Placeholder] = []
    end = 0
    for group in _GROUP.finditer(template):
        inner = group["double"].strip() if group["double"] is not None else group["single"]
        name = _NAME.fullmatch(inner)
        if name is None:
            continue
        parts += [template[end : group.start()], Placeholder(name["name"], bool(name["optional"]), group[0])]
        end = group.end()
    parts.append(template[end:])
    return tuple(parts)


def placeholder_names(template: str) -> set[str]:
    """The names that occur in a template."""
    return {part.name for part in template_parts(template) if isinstance(part, Placeholder)}


def render(template: str, values: Mapping[str, str], *, field: str = "prompt") -> str:
    """Put values in, once and from left to right (SUM-PRM-02).

    Args:
        field: Name of the option that holds the template, for the error.
    Raises:
        PromptRenderError: a placeholder that isn't optional has no value (SUM-PRM-03).
    """
    out: list[str] = []
    unknown: list[str] = []
    for part in template_parts(template):
        if isinstance(part, str):
            out.append(part)
        elif part.name in values:
            out.append(values[part.name])
        elif not part.optional:
            unknown.append(part.raw)
    if unknown:
        raise PromptRenderError(
            f"{field}: nothing fills {', '.join(sorted(set(unknown)))}",
            field=field,
            allowed=", ".join(f"{{{name}}}" for name in sorted(values)),
        )
    return "".join(out)


_BUILT_IN_USER = (
    "Read the conversation below and write a short summary of it. Somebody will carry on from your summary "
    "instead of the conversation, so keep what is needed for that: what the user wants, what was decided or "
    "found out, what is still open. Use only what the conversation says and make nothing up. Do not turn it "
    "into instructions or rules for the reader. Where the conversation shows that something was cut, left out "
    "or failed, say so; do not present it as complete.{limit}\n\n"
    "<conversation>\n{conversation_text}\n</conversation>\n\nSummary:"
)
_BUILT_IN_FORK = (
    "Summarize the conversation above so that it can be continued later from your summary alone. Keep the "
    "user's goals, decisions, constraints, open tasks, results of tools and important facts. Do not call any "
    "tool and do not answer the latest request. Instructions to the assistant and descriptions of tools are "
    "not facts of the conversation: leave them out.{limit}\n\nSummary:"
)
_BUILT_IN_LIMIT = f" Use at most {{{MAX_SUMMARY_WORDS}}} words."


def built_in_prompt(max_summary_words: int) -> str:
    """The user prompt of standalone requests; names the limit only when there is one (SUM-PRM-05, SUM-OPT-02)."""
    return _BUILT_IN_USER.replace("{limit}", _BUILT_IN_LIMIT if max_summary_words > 0 else "")


def built_in_fork_prompt(max_summary_words: int) -> str:
    """The message appended to a fork (SUM-PRM-06)."""
    return _BUILT_IN_FORK.replace("{limit}", _BUILT_IN_LIMIT if max_summary_words > 0 else "")


@dataclass(frozen=True, slots=True)
class Prompts:
    """The three templates of a summarizer and its word limit; empty templates mean the built-in ones
    (SUM-OPT-04), except that there is no built-in system prompt."""

    user: str = ""
    system: str = ""
    fork: str = ""
    max_summary_words: int = 0

    def completed(self) -> Prompts:
        """With the built-in templates in the empty places."""
        return replace(
            self,
            user=self.user or built_in_prompt(self.max_summary_words),
            fork=self.fork or built_in_fork_prompt(self.max_summary_words),
        )

    @property
    def separates_previous_summary(self) -> bool:
        """The user prompt has a place of its own for the rolling summary (SUM-RUN-03)."""
        return PREVIOUS_SUMMARY in placeholder_names(self.user)

    def faults(self) -> list[ConfigError]:
        """What is wrong with completed prompts, all of it (SUM-OPT-01, -02)."""
        found = self.user_faults()
        for field, template in (("system_prompt", self.system), ("cache_safe_fork_prompt", self.fork)):
            found += [
                ConfigError(
                    f"{field} holds {{{name}}}, which belongs into prompt only",
                    field=field,
                    value=template,
                    allowed=f"a text without {{{name}}}",
                )
                for name in _SOURCE_NAMES
                if name in placeholder_names(template)
            ]
        return found

    def user_faults(self) -> list[ConfigError]:
        """What is wrong with the user prompt, next to the system prompt and the limit."""
        found = []
        names = placeholder_names(self.user)
        if CONVERSATION_TEXT not in names:
            found.append(_missing(CONVERSATION_TEXT, self.user))
        if self.max_summary_words > 0 and MAX_SUMMARY_WORDS not in names | placeholder_names(self.system):
            found.append(_missing(MAX_SUMMARY_WORDS, self.user))
        return found

    def unknown_placeholders(self) -> list[ConfigError]:
        """Placeholders that nothing will fill: each attempt would fail on them (SUM-PRM-03)."""
        known = {
            "prompt": (*_SOURCE_NAMES, MAX_SUMMARY_WORDS),
            "system_prompt": (MAX_SUMMARY_WORDS,),
            "cache_safe_fork_prompt": (MAX_SUMMARY_WORDS,),
        }
        templates = {"prompt": self.user, "system_prompt": self.system, "cache_safe_fork_prompt": self.fork}
        return [
            ConfigError(
                f"{field}: unknown placeholder {part.raw}",
                field=field,
                value=template,
                allowed=", ".join(f"{{{name}}}" for name in known[field]),
                hint=nearest_name(part.name, known[field]),
            )
            for field, template in templates.items()
            for part in template_parts(template)
            if isinstance(part, Placeholder)
            and not part.optional
            and part.name not in (*_SOURCE_NAMES, MAX_SUMMARY_WORDS)
        ]

    def render_user(self, *, conversation_text: str, previous_summary: str) -> str:
        """The user message of a standalone request."""
        values = {CONVERSATION_TEXT: conversation_text, PREVIOUS_SUMMARY: previous_summary}
        return render(self.user, {**values, **self._limit()}, field="prompt")

    def render_system(self) -> str:
        """The system message; empty without one."""
        return render(self.system, self._limit(), field="system_prompt")

    def render_fork(self) -> str:
        """The message appended to a fork."""
        return render(self.fork, self._limit(), field="cache_safe_fork_prompt")

    def _limit(self) -> dict[str, str]:
        return {MAX_SUMMARY_WORDS: str(self.max_summary_words) if self.max_summary_words > 0 else ""}


def _missing(name: str, template: str) -> ConfigError:
    where = "prompt or system_prompt" if name == MAX_SUMMARY_WORDS else "prompt"
    return ConfigError(
        f"{where} has no {{{name}}}", field="prompt", value=template, allowed=f"a text that holds {{{name}}}"
    )
