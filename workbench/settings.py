"""`Settings`: the base of everything that a configuration file can hold.

In: plain values from TOML, JSON or Python. Out: frozen pydantic models that forbid unknown keys and don't
guess types (WB-CFG-02), or one `ConfigError` that names the field, the value and what is allowed.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from workbench.errors import ConfigError, nearest_name

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


class Settings(BaseModel):
    """Frozen, strict, no unknown keys; each field's docstring gives unit, default and source."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        use_attribute_docstrings=True,
        allow_inf_nan=False,
        validate_default=True,
        hide_input_in_errors=True,  # the text of a chained error: somebody may have put a key into a file
    )

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise config_error_from(error, type(self)) from error

    # Says that this is no custom constructor: pydantic would call one for nested tables too, and the place of
    # a fault inside them, and JSON's lists for tuples, would be lost.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @classmethod
    def parse(cls, values: Any, *, where: str = "") -> Self:
        """Build from plain values of a file, whose name `where` goes into the error.

        Raises:
            ConfigError: the first fault, with field, value and what is allowed.
        """
        try:
            # As JSON, because there a list is a tuple and 5 is 5.0, while `True` still isn't 1.
            return cls.model_validate_json(json.dumps(values, ensure_ascii=False, default=_not_json))
        except ValidationError as error:
            raise config_error_from(error, cls, where=where) from error

    def replace(self, **changes: Any) -> Self:
        """A copy with other values, checked like new ones."""
        return type(self).parse({**self.model_dump(mode="json"), **changes})


def _not_json(value: Any) -> Any:
    raise ConfigError(f"{value!r} can't stand in a configuration", value=value, hint="write it as text or number")


def config_error_from(error: ValidationError, model: type[BaseModel], *, where: str = "") -> ConfigError:
    """The first fault of a pydantic error as a `ConfigError` in one sentence, which names the fields of the others."""
    first, *others = error.errors(include_url=False)
    found = _one_fault(first, model, where=f"{where}: " if where else "")
    fields = {_field(fault): None for fault in others}
    fields.pop(_field(first), None)
    if fields:
        found.args = (f"{found} (wrong too: {', '.join(fields)})",)
    return found


def _field(fault: ErrorDetails) -> str:
    return ".".join(str(part) for part in fault["loc"])


def _one_fault(fault: ErrorDetails, model: type[BaseModel], *, where: str) -> ConfigError:
    path, field, value = [str(part) for part in fault["loc"]], _field(fault), fault["input"]
    if fault["type"] == "extra_forbidden":
        hint = nearest_name(path[-1], _fields_at(model, path[:-1]))
        return ConfigError(f"{where}{field}: unknown", field=field, value=value, hint=hint)
    cause = fault.get("ctx", {}).get("error")
    if isinstance(cause, ConfigError):
        inner = ".".join(part for part in (field, cause.field) if part)
        return ConfigError(f"{where}{cause}", field=inner, value=cause.value, allowed=cause.allowed, hint=cause.hint)
    if cause is not None:  # a sentence of a validator's own, which says what is wrong with the value
        return ConfigError(f"{where}{field or model.__name__}: {cause}", field=field, value=value)
    allowed = fault["msg"].removeprefix("Input should be ").replace("a valid integer", "a whole number")
    allowed = allowed.replace("a valid ", "a ")
    said = "missing" if fault["type"] == "missing" else repr(value)
    return ConfigError(
        f"{where}{field or model.__name__} = {said}; allowed: {allowed}", field=field, value=value, allowed=allowed
    )


def _fields_at(model: type[BaseModel], path: list[str]) -> list[str]:
    """Names of the fields of the model found by following `path`."""
    current: Any = model
    for part in path:
        if part.isdigit():  # a place in a list of tables
            continue
        info = current.model_fields.get(part) if hasattr(current, "model_fields") else None
        if info is None:
            return []
        candidates = [info.annotation, *getattr(info.annotation, "__args__", ())]
        current = next((c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel)), None)
        if current is None:
            return []
    return list(current.model_fields)
