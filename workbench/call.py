"""`CallContext`: the values that travel with one call, from the application down to a checker.

In: key and value pairs. Out: an immutable bag. Cancellation and deadlines aren't in it: they are
asyncio's own (summary.md, section 0).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any


class CallContext:
    """An immutable bag of values; `with_value` returns a bag with one more.

    Keys compare by equality, so use a class or a module-private object as key, as with Go's contexts.
    """

    __slots__ = ("_values",)

    def __init__(self, values: dict[Hashable, Any] | None = None) -> None:
        self._values: dict[Hashable, Any] = dict(values) if values else {}

    def with_value(self, key: Hashable, value: Any) -> CallContext:
        """A copy that also holds `value` under `key`."""
        return CallContext({**self._values, key: value})

    def value(self, key: Hashable, default: Any = None) -> Any:
        """What `key` holds, or `default`."""
        return self._values.get(key, default)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._values

    def __repr__(self) -> str:
        return f"CallContext({len(self._values)} values)"


EMPTY_CONTEXT = CallContext()
