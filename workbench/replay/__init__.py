"""Replays: recordings through the production engine, under a virtual clock, into traces.

`workbench.replay` is this package and the function that people call. Whichever import comes first binds that name,
so the package itself can be called: then it makes no difference.
"""

from __future__ import annotations

import inspect
import sys
from types import ModuleType
from typing import Any


class _CallablePackage(ModuleType):
    """A package that passes a call on to its function, which loads then."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self._function)

    @property
    def _function(self) -> Any:
        from workbench.replay.replay import replay

        return replay


sys.modules[__name__].__class__ = _CallablePackage
