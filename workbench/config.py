"""`RunConfig`: everything that a configuration file can say, in one frozen value.

In: TOML, JSON or Python values. Out: checked settings, their fully resolved form and its hash. The settings
of each part live beside that part; this module gathers them (WB-CFG). `workbench.build` makes running
objects of them.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
import types
import typing
from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, Field, model_validator

from workbench.clock import seconds_from_text
from workbench.context.settings import AgentSettings, CompactionSettings, TailoringSettings
from workbench.errors import ConfigError, RecordingError, nearest_name
from workbench.model.openai import checked_address
from workbench.profiles import PROFILES, Profile, profile_named
from workbench.script_counter import ScriptRatios
from workbench.service.settings import ServiceSettings
from workbench.settings import Settings
from workbench.summary.checkers import ContextThreshold
from workbench.summary.prompt import Prompts
from workbench.summary.summarizer import SummarySettings
from workbench.tokens import DEFAULT_RUNES_PER_TOKEN


def _seconds(value: Any) -> Any:
    """`5m` as 300.0; numbers stay."""
    if isinstance(value, str):
        return seconds_from_text(value)
    return value


Seconds = Annotated[float, BeforeValidator(_seconds)]
"""Seconds, or a text such as `30s`, `5m`, `1h30m`."""


CacheProvider = Literal[
    "auto",
    "openai",
    "openai-24h",
    "openai-5.6",
    "anthropic",
    "anthropic-1h",
    "anthropic-auto",
    "deepseek",
    "gemini",
    "qwen",
    "qwen-explicit",
    "vllm",
    "none",
]
"""Names of the cache rules in `workbench.evaluate.providers`."""


class CounterSettings(Settings):
    """The engine's token counter: drives triggers, compaction and tailoring."""

    kind: Literal["runes", "tiktoken", "scripts"] = "runes"
    """`runes` divides code points, `tiktoken` tokenizes, `scripts` divides each script by its own ratio.
    SUM-TOK-03, -07."""
    runes_per_token: float = Field(default=DEFAULT_RUNES_PER_TOKEN, gt=0)
    """Code points per token, a divisor; 4.0 suits English, 1.2 to 2.0 Chinese, Japanese, Korean. SUM-TOK-05."""
    encoding: str = "o200k_base"
    """Encoding or model name for `tiktoken`. SUM-TOK-07."""
    scripts: ScriptRatios = ScriptRatios()
    """Characters per token by script for `scripts`; the command `calibrate` prints this table."""

    @model_validator(mode="after")
    def _has_a_ratio(self) -> Self:
        if self.kind == "scripts" and all_none(self.scripts):
            raise ConfigError.for_field(
                "scripts", "{}", "at least one ratio, with kind 'scripts'", hint="`workbench calibrate` fits them"
            )
        return self


class TriggerNode(Settings):
    """A trigger or a tree of them. Several keys of one node must all pass."""

    event: int | None = Field(default=None, ge=0)
    """Fires when more new events than this. SUM-CHK-08."""
    token: int | None = Field(default=None, ge=0)
    """Fires when more new tokens than this, by the engine's counter. SUM-CHK-09."""
    time: Annotated[Seconds, Field(ge=0)] | None = None
    """Fires when a request arrives after more silence than this, in seconds or as `5m`. SUM-CHK-17."""
    context: ContextThreshold | None = None
    """Fires at a share of the context window. SUM-CHK-12."""
    any: Annotated[tuple[TriggerNode, ...], Field(strict=False)] | None = None
    """Fires when one of these does. SUM-CHK-19."""
    all: Annotated[tuple[TriggerNode, ...], Field(strict=False)] | None = None
    """Fires when all of these do. SUM-CHK-19."""

    @model_validator(mode="after")
    def _is_not_empty(self) -> Self:
        if all_none(self):
            raise ConfigError.for_field("trigger", "{}", "at least one of event, token, time, context, any, all")
        return self


def all_none(settings: Settings) -> bool:
    """No field has a value."""
    return all(getattr(settings, name) is None for name in type(settings).model_fields)


class ModelChange(Settings):
    """Another main model in the middle of a conversation."""

    request: int | None = Field(default=None, ge=1)
    """From this human turn on, counted from 0. WB-RPL-15."""
    share: float | None = Field(default=None, gt=0, lt=1)
    """From this share of the calls on, 0.5 = the second half; instead of `request`. WB-RPL-15."""
    name: str = ""
    """The model's name; empty = the one before. WB-RPL-15."""
    context_window: int | None = Field(default=None, gt=0)
    """Its window in tokens; none = by name, or as before without a name. WB-RPL-15."""

    @model_validator(mode="after")
    def _says_when_and_what(self) -> Self:
        if (self.request is None) == (self.share is None):
            raise ConfigError.for_field("changes", "{}", "exactly one of request, share")
        if not self.name and self.context_window is None:
            raise ConfigError.for_field("changes", "{}", "name, context_window or both")
        return self


class ModelSettings(Settings):
    """The replayed main model."""

    name: str = ""
    """Model name for window look-up; empty = the recording's, call by call where its answers name several."""
    context_window: int | None = Field(default=None, gt=0)
    """Tokens; none = by name, unknown names have no window line. ASM-WIN-01."""
    user_first: bool = False
    """The model wants a user message behind the system message; a replay reports others. WB-RPL-18."""
    single_system: bool = False
    """The model takes one system message, in front; a replay reports others. WB-RPL-18."""
    changes: Annotated[tuple[ModelChange, ...], Field(strict=False)] | None = None
    """Changes of the model in mid-conversation: `[{request = 12, name = "gpt-4.1-mini"}]`; its cache begins empty.
    WB-RPL-15."""


class SummariesSettings(Settings):
    """Where a replay's summaries come from."""

    source: Literal["extractive", "sized", "cassette", "live"] = "extractive"
    """`extractive` picks sentences and facts offline; `sized` writes text of a given length; `cassette` plays
    recorded answers; `live` asks a model and records what it answers. WB-RPL-07."""
    latency_s: Literal["recorded"] | Annotated[Seconds, Field(ge=0)] = 0.0
    """Virtual seconds that each summary call takes, or `recorded`: as long as the recorded answer took. WB-RPL-08."""
    sized_tokens: int | None = Field(default=None, gt=0)
    """Tokens of a `sized` summary, by the billing counter; none = the word limit, else 200. WB-RPL-07."""
    model: str = ""
    """Model that `live` asks, or whose answers `cassette` plays; empty = the only one in the cassette. WB-RPL-07."""
    cassette: str = ""
    """File of recorded answers: `cassette` plays it, `live` asks only for what it lacks. WB-RPL-07."""
    base_url: str = ""
    """OpenAI-compatible address for `live`, up to and including /v1; empty = OpenAI's own. WB-RPL-07."""
    api_key_env: str = ""
    """Name of the environment variable with the key for `live`; empty = OPENAI_API_KEY for OpenAI's own address,
    no key for any other. SEC-08."""
    timeout_s: Annotated[Seconds, Field(gt=0)] = 60.0
    """Longest silence of a `live` model, in seconds. REL-09."""
    context_window: int | None = Field(default=None, gt=0)
    """Tokens that the summary model takes; none = as recorded, or by name. SUM-FIT-02."""

    @model_validator(mode="after")
    def _has_what_its_source_needs(self) -> Self:
        needed = {"live": ("model", "cassette"), "cassette": ("cassette",)}.get(self.source, ())
        for name in needed:
            if not getattr(self, name):
                raise ConfigError(
                    f"{name} is missing", field=name, allowed=f"a text, with source {self.source!r}", hint=_HINTS[name]
                )
        if self.latency_s == "recorded" and self.source in {"extractive", "sized"}:
            raise ConfigError.for_field(
                "latency_s", self.latency_s, f"seconds: source {self.source!r} has no recorded durations"
            )
        if self.base_url:
            checked_address(self.base_url)
        # The value isn't shown: it may be the key itself.
        if self.api_key_env and not re.fullmatch(r"[A-Za-z_]\w{0,80}", self.api_key_env, flags=re.ASCII):
            raise ConfigError(
                "api_key_env is no name of an environment variable",
                field="api_key_env",
                allowed="a name such as OPENAI_API_KEY",
                hint="put the key into an environment variable and name that",
            )
        return self


_HINTS = {
    "model": "name the model, e.g. --set summaries.model=gpt-4.1-mini",
    "cassette": "name a file, e.g. --set summaries.cassette=cassettes/answers.jsonl",
}


class BillingSettings(Settings):
    """How prompts are measured; never drives a trigger."""

    encoding: str = "o200k_base"
    """tiktoken encoding or model name; `runes:N` divides code points instead. WB-RPL-06."""
    per_message: int = Field(default=0, ge=0)
    """Overhead tokens per message. WB-CACHE-01b."""
    per_request: int = Field(default=0, ge=0)
    """Overhead tokens per request. WB-CACHE-01b."""


class CacheSettings(Settings):
    """The prompt cache that is simulated."""

    scope: Literal["conversation", "corpus"] = "conversation"
    """Whose earlier requests count: the conversation's own, or all before it in the run. WB-CACHE-01a."""
    provider: CacheProvider = "auto"
    """Whose rules hold: `auto` goes by the name of the model, `none` caches nothing. The other options of this
    table replace what the rules of the provider say. WB-CACHE-02."""
    min_tokens: int | None = Field(default=None, ge=0)
    """Shortest prefix that is cached, in tokens; none = the provider's. WB-CACHE-02."""
    block_tokens: int | None = Field(default=None, ge=1)
    """A cached prefix is a multiple of this, in tokens; none = the provider's. WB-CACHE-02."""
    lifetime_s: Annotated[Seconds, Field(gt=0)] | None = None
    """Silence after which a prefix is forgotten, in seconds or as `5m`; none = the provider's. WB-CACHE-02."""
    refreshed_by_use: bool | None = None
    """Reading a prefix starts its lifetime anew; none = the provider's. WB-CACHE-02."""
    breakpoints: Annotated[tuple[Literal["tools", "system", "end"], ...], Field(strict=False)] | None = None
    """Where requests mark ends of what shall be cached, for providers that match at marks; none = the
    provider's. WB-CACHE-02."""
    capacity_tokens: int | None = Field(default=None, gt=0)
    """Room of the cache, in tokens; the least recently used go first; none = the provider's. WB-CACHE-02."""
    read_factor: float | None = Field(default=None, ge=0)
    """Price of a token read from the cache, as a share of an uncached one; none = by model. WB-CACHE-02."""
    write_factor: float | None = Field(default=None, ge=0)
    """Price of a token written to the cache, as a multiple of an uncached one; none = by model. WB-CACHE-02."""


class TokenPrices(Settings):
    """Prices of one model per million tokens."""

    input: float | None = Field(default=None, ge=0)
    """Per million prompt tokens that the cache has no part in; none = the price package's. WB-COST-01."""
    output: float | None = Field(default=None, ge=0)
    """Per million tokens of answers; none = the price package's. WB-COST-01."""
    cache_read: float | None = Field(default=None, ge=0)
    """Per million tokens read from the cache; none = the price package's. WB-COST-01."""
    cache_write: float | None = Field(default=None, ge=0)
    """Per million tokens written to the cache; none = the price package's. WB-COST-01."""


class PriceSettings(Settings):
    """What tokens cost; a model without a known price is counted in tokens only."""

    model: str = ""
    """Model whose prices the main calls have; empty = `model.name`, else the recording's. WB-COST-01."""
    summary_model: str = ""
    """The same for summary calls; empty = `summaries.model`, else the main model's. WB-COST-01."""
    date: str = ""
    """Day whose prices hold, as 2026-03-01; empty = the day of each call. WB-COST-01."""
    currency: str = Field(default="USD", pattern="^[A-Z]{3}$")
    """Currency of the prices given here; the price package knows US dollars only. WB-COST-01."""
    main: TokenPrices = TokenPrices()
    """Prices of the main model, in place of the package's."""
    summary: TokenPrices = TokenPrices()
    """Prices of the summary model, in place of the package's."""

    @model_validator(mode="after")
    def _has_a_date(self) -> Self:
        if self.date:
            try:
                date.fromisoformat(self.date)
            except ValueError as error:
                raise ConfigError.for_field("date", self.date, "a day such as 2026-03-01") from error
        return self


class RunConfig(Settings):
    """One configuration of the whole system."""

    name: str = ""
    """Name in tables and figures; not part of the hash."""
    profile: str = "SEED"
    """Which behaviour to follow where seed and reference differ: SEED, TRPC_AGENT_GO_2026_07, _2026_08."""
    counter: CounterSettings = CounterSettings()
    """The engine's token counter."""
    summarizer: SummarySettings | None = None
    """Its presence switches summaries on. SUM-OPT-01."""
    trigger: TriggerNode | None = None
    """When to summarise; none = at every chance with something new. SUM-CHK-03."""
    service: ServiceSettings = ServiceSettings()
    """Workers, limits and targets of the session service."""
    agent: AgentSettings = AgentSettings()
    """Prompt assembly: injection, history, filters."""
    compaction: CompactionSettings = CompactionSettings()
    """Tool-result compaction."""
    tailoring: TailoringSettings = TailoringSettings()
    """Last-resort dropping of rounds."""
    model: ModelSettings = ModelSettings()
    """The replayed main model."""
    summaries: SummariesSettings = SummariesSettings()
    """Where a replay's summaries come from."""
    billing: BillingSettings = BillingSettings()
    """How prompts are measured."""
    cache: CacheSettings = CacheSettings()
    """The simulated prompt cache."""
    prices: PriceSettings = PriceSettings()
    """What tokens cost."""

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        if self.profile not in PROFILES:
            profile_named(self.profile)  # raises, with the nearest name
        if self.trigger is not None and self.summarizer is None:
            raise ConfigError(
                "trigger is given but summarizer isn't",
                field="trigger",
                allowed="with [summarizer] only",
                hint="add an empty [summarizer] table to switch summaries on",
            )
        self._check_prompts()
        return self

    def _check_prompts(self) -> None:
        """Raise the first fault of the summary prompts: a file is wrong when it's read, not at its first summary."""
        settings = self.summarizer
        if settings is None or (settings.prompt_errors or profile_named(self.profile).prompt_errors) != "raise":
            return
        prompts = Prompts(
            settings.prompt, settings.system_prompt, settings.cache_safe_fork_prompt, settings.max_summary_words
        ).completed()
        # A misspelt name first: it is why the right one is missing.
        for fault in (*prompts.unknown_placeholders(), *prompts.faults()):
            raise ConfigError(
                f"summarizer.{fault}",
                field=f"summarizer.{fault.field}",
                value=fault.value,
                allowed=fault.allowed,
                hint=fault.hint,
            )

    # --- reading and writing -------------------------------------------------------------------------

    @classmethod
    def load(cls, path: str | Path) -> RunConfig:
        """Read a `.toml` or `.json` file; without a name it gets the file's.

        A table `[export]` says where an exported file is from; it's no part of the configuration.

        Raises:
            ConfigError: the first fault, with file, field, value and what is allowed.
            RecordingError: the file can't be read.
        """
        return cls.from_values(values_of_file(path), where=str(path))

    @classmethod
    def from_values(cls, values: Mapping[str, Any], *, where: str = "") -> RunConfig:
        """Build from plain values, as a file holds them."""
        return cls.parse(_with_nulls(dict(values), cls), where=where)

    def replace(self, **changes: Any) -> RunConfig:
        """A copy with other values; tables are merged key by key, dotted paths reach inside.

        Example: `config.replace(name="b", counter={"runes_per_token": 1.3})`.
        """
        values = self.model_dump(mode="json", exclude_none=True)
        for path, value in changes.items():
            _set_path(values, path.split("."), value)
        return self.from_values(values)

    def to_values(self) -> dict[str, Any]:
        """Plain values: what differs from an empty file's meaning, ready for TOML or JSON."""
        return self.model_dump(mode="json", exclude_defaults=True, exclude_none=True)

    def to_toml(self) -> str:
        """The text of a file that loads back equal."""
        values = {"name": self.name, **self.to_values()} if self.name else self.to_values()
        plain = [
            f"{toml_key(key)} = {toml_value(value)}" for key, value in values.items() if not isinstance(value, dict)
        ]
        tables = [
            "\n".join(
                [f"[{toml_key(key)}]", *(f"{toml_key(name)} = {toml_value(inner)}" for name, inner in value.items())]
            )
            for key, value in values.items()
            if isinstance(value, dict)
        ]
        return "\n\n".join(["\n".join(plain), *tables] if plain else tables) + "\n"

    # --- meaning -------------------------------------------------------------------------------------

    @property
    def engine_profile(self) -> Profile:
        """The profile with the switches that this configuration sets itself."""
        profile = profile_named(self.profile)
        changes: dict[str, Any] = {}
        if self.agent.history_limit_unit is not None:
            changes["history_limit_unit"] = self.agent.history_limit_unit
        if self.agent.user_anchors is not None:
            changes["user_anchors"] = self.agent.user_anchors
        if self.summarizer is not None:
            for name in ("overflow_policy", "fork_prompt_in_fallback", "prompt_errors"):
                if (value := getattr(self.summarizer, name)) is not None:
                    changes[name] = value
        return profile.replace(**changes) if changes else profile

    def resolved(self) -> dict[str, Any]:
        """Every value as it is in force, the profile's switches included, without the name."""
        values = self.model_dump(mode="json", exclude={"name"})
        profile = self.engine_profile
        values["engine"] = {field: getattr(profile, field) for field in sorted(profile.__slots__) if field != "name"}
        return values

    @property
    def config_hash(self) -> str:
        """sha256 of the canonical JSON of `resolved()` (WB-CFG-03)."""
        text = json.dumps(self.resolved(), sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        return hashlib.sha256(text.encode("utf-8")).hexdigest()

    def label(self) -> str:
        """The name, or a short form of the hash for one without a name."""
        return self.name or self.config_hash[:8]


EXPORT_TABLE = "export"
EXPORT_FORMAT = 1


def checked_export(table: Any, *, where: str) -> Mapping[str, Any] | None:
    """What an exported file says of itself, None in a file that somebody wrote.

    Raises:
        ConfigError: it is no table, or another version's.
    """
    if table is None:
        return None
    if not isinstance(table, dict):
        raise ConfigError(f"{where}: [{EXPORT_TABLE}] is no table", field=EXPORT_TABLE, hint="take it out")
    if table.get("format") != EXPORT_FORMAT or isinstance(table["format"], bool):
        raise ConfigError(
            f"{where}: exported in form {table.get('format')!r}, this program reads form {EXPORT_FORMAT}",
            field=f"{EXPORT_TABLE}.format",
            hint=f"export again, or take the [{EXPORT_TABLE}] tables out",
        )
    return table


def values_of_file(path: str | Path) -> dict[str, Any]:
    """What a configuration file says, with a name, and without what an exported one says of itself.

    Raises:
        ConfigError: the file isn't TOML or JSON, or an export of another version.
        RecordingError: the file can't be read.
    """
    values = table_of_file(path)
    checked_export(values.pop(EXPORT_TABLE, None), where=str(path))
    return {"name": Path(path).stem, **values}


def table_of_file(path: str | Path) -> dict[str, Any]:
    """What a TOML or JSON file holds, unchecked.

    Raises:
        ConfigError: it isn't TOML or JSON, or no table; or `path` is none.
        RecordingError: the file can't be read.
    """
    try:
        path = Path(path)
    except TypeError:
        raise ConfigError.for_field("path", path, "the path of a TOML or JSON file") from None
    if "\0" in str(path):
        raise RecordingError("a path can't hold a NUL character", path=str(path).replace("\0", "\\0"))
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RecordingError(
            f"configuration can't be read: {error.strerror}", path=path, hint="check the path"
        ) from error
    try:
        text = data.decode("utf-8-sig")  # editors on Windows put a mark in front
        values = _json_value(text, path) if path.suffix.lower() == ".json" else tomllib.loads(text)
    except RecursionError as error:
        raise ConfigError(f"{path}: tables or lists stand too deep in each other", field=str(path)) from error
    except (UnicodeDecodeError, json.JSONDecodeError, tomllib.TOMLDecodeError) as error:
        kind = "JSON" if path.suffix.lower() == ".json" else "TOML"
        raise ConfigError(f"{path}: not {kind}: {error}", field=str(path), hint="mend the file") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: expected a table of options", field=str(path))
    return values


def _json_value(text: str, path: Path) -> Any:
    """The value of a JSON text, which may say nothing twice; TOML forbids that by itself."""
    from workbench.recordings.strict_json import DuplicateKeyError, object_without_duplicates  # with all the readers

    try:
        return json.loads(text, object_pairs_hook=object_without_duplicates)
    except DuplicateKeyError as error:
        raise ConfigError(
            f"{path}: {error.key!r} stands there twice", field=error.key, hint="keep one of them"
        ) from None


def toml_key(name: str) -> str:
    """A key, in quotation marks where it needs them."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name, flags=re.ASCII) else toml_value(name)


def toml_value(value: Any) -> str:
    """A value on one line; texts are escaped as JSON, whose escapes TOML has too."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{toml_key(name)} = {toml_value(inner)}" for name, inner in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return json.dumps(value)


def _set_path(values: dict[str, Any], path: list[str], value: Any) -> None:
    *parents, last = path
    for name in parents:
        inner = values.setdefault(name, {})
        if not isinstance(inner, dict):
            inner = values[name] = {}
        values = inner
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json", exclude_none=True)
    if isinstance(value, Mapping) and isinstance(values.get(last), dict) and last != "trigger":
        for name, inner_value in value.items():
            _set_path(values[last], [name], inner_value)
    elif value is None:
        values.pop(last, None)
    else:
        values[last] = value


def _with_nulls(values: dict[str, Any], model: type[BaseModel]) -> dict[str, Any]:
    """TOML has no null: the text `none` stands for it where the schema allows it (WB-CFG-03)."""
    result: dict[str, Any] = {}
    for name, value in values.items():
        field = model.model_fields.get(name)
        annotation = field.annotation if field is not None else None
        inner = model_in(annotation)
        if value == "none" and is_optional(annotation):
            result[name] = None
        elif isinstance(value, dict) and inner is not None:
            result[name] = _with_nulls(value, inner)
        elif isinstance(value, list) and inner is not None:
            result[name] = [_with_nulls(item, inner) if isinstance(item, dict) else item for item in value]
        else:
            result[name] = value
    return result


def is_optional(annotation: Any) -> bool:
    """The annotation allows None."""
    return type(None) in typing.get_args(annotation)


def model_in(annotation: Any) -> type[BaseModel] | None:
    """The settings class inside an annotation such as `X | None` or `tuple[X, ...]`."""
    if isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias):
        return annotation if issubclass(annotation, BaseModel) else None
    found = (model_in(argument) for argument in typing.get_args(annotation))
    return next((model for model in found if model is not None), None)


# --- describing --------------------------------------------------------------------------------------


class Option(typing.NamedTuple):
    """One option, for help texts and the README's table."""

    path: str
    type: str
    default: str
    doc: str


def options(model: type[BaseModel] = RunConfig, prefix: str = "") -> Iterator[Option]:
    """Every option by dotted path, in file order; trigger trees are shown one level deep."""
    for name, field in model.model_fields.items():
        path = prefix + name
        doc = " ".join((field.description or "").split())
        inner = model_in(field.annotation)
        yield Option(path, _type_text(field.annotation), _default_text(field.get_default(), inner), doc)
        if inner is not None and inner is not model and name not in ("any", "all"):
            yield from options(inner, path + ".")


def option_named(path: str) -> Option:
    """The option at a dotted path.

    Raises:
        ConfigError: there is none; the hint is the nearest name.
    """
    table = {option.path: option for option in options()}
    if path not in table:
        raise ConfigError(f"{path}: unknown option", field=path, hint=nearest_name(path, table))
    return table[path]


def _default_text(default: Any, inner: type[BaseModel] | None) -> str:
    if default is None:
        return "none"
    if inner is not None and isinstance(default, BaseModel):
        return "table"
    if isinstance(default, bool):
        return str(default).lower()
    return json.dumps(default, ensure_ascii=False) if isinstance(default, str | tuple) else f"{default:g}"


def _type_text(annotation: Any) -> str:
    if annotation is type(None):
        return "none"
    origin = typing.get_origin(annotation)
    if origin is Literal:
        return " | ".join(str(value) for value in typing.get_args(annotation))
    if origin is Annotated:
        return _type_text(typing.get_args(annotation)[0])
    if origin in (types.UnionType, typing.Union):
        return " | ".join(_type_text(argument) for argument in typing.get_args(annotation))
    if origin is tuple:
        return f"list of {_type_text(typing.get_args(annotation)[0])}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "table"
    names = {str: "text", int: "integer", float: "number", bool: "true | false"}
    return names.get(annotation, getattr(annotation, "__name__", str(annotation)))


def schema() -> dict[str, Any]:
    """JSON schema of a configuration file."""
    found = RunConfig.model_json_schema()
    found["properties"][EXPORT_TABLE] = {"type": "object", "description": "Where an exported file is from."}
    return found
