"""Names of files that come from data: they lead to a place inside one folder, or nowhere (SEC-05).

In: a folder, and a name that somebody wrote into a file. Out: its path. A name that is absolute, goes up, leads out by
a link, or means something else on another system is refused on all of them.
"""

from __future__ import annotations

import re
from pathlib import Path

from workbench.errors import UnsafePathError

_MAX_PART_BYTES = 255
# Devices of Windows, whatever ending they have.
_DEVICE = re.compile(r"(?:con|prn|aux|nul|conin\$|conout\$|(?:com|lpt)[0-9¹²³])\s*(?:\..*)?", re.IGNORECASE | re.DOTALL)
# Characters that some systems, or some readers, take for dots or separators.
_LOOK_ALIKES = frozenset("\u2024\u2025\u2026\ufe52\uff0e\u2044\u2215\u29f8\uff0f\uff3c\ufe68\u2216")


def path_inside(root: str | Path, name: str) -> Path:
    """The path of `name` inside `root`; it needn't exist.

    Raises:
        UnsafePathError: the name leads outside, also by a link, or isn't a plain relative path.
    """
    if reason := _fault(name):
        raise UnsafePathError(name, root, reason)
    return _checked(Path(root) / name, root, name)


def files_inside(root: str | Path, pattern: str) -> list[Path]:
    """The files that a name or a pattern such as `chats/*.jsonl` stands for, in a fixed order; none if there are none.

    A folder stands for all files in it.

    Raises:
        UnsafePathError: the pattern, or a file that it finds, leads outside.
    """
    if not any(sign in pattern for sign in "*?["):
        found = [path_inside(root, pattern)]
    else:
        if reason := _fault(pattern):
            raise UnsafePathError(pattern, root, reason)
        if any("**" in part and part != "**" for part in pattern.split("/")):  # to Python 3.12 an error, later not
            raise UnsafePathError(pattern, root, "is no pattern: ** stands alone between slashes")
        found = [_checked(path, root, pattern) for path in sorted(Path(root).glob(pattern))]
    files: list[Path] = []
    for path in found:
        inner = sorted(path.rglob("*")) if path.is_dir() else [path]
        files += [one for one in inner if _checked(one, root, pattern).is_file()]
    return list(dict.fromkeys(files))


def is_device(name: str) -> bool:
    """Whether a file of that name, with any ending, is a device of Windows."""
    return _DEVICE.fullmatch(name) is not None


def _checked(path: Path, root: str | Path, name: str) -> Path:
    """The path as it is, once it is known where its links lead."""
    try:
        real = path.resolve()
    except (OSError, RuntimeError, ValueError) as error:  # a circle of links
        raise UnsafePathError(name, root, "can't be followed") from error
    if not real.is_relative_to(Path(root).resolve()):
        raise UnsafePathError(name, root, "leads outside")
    return path


def _fault(name: str) -> str:
    """What is wrong with a name; empty for a plain relative path."""
    if not name.strip():
        return "is empty"
    if any(not char.isprintable() for char in name):
        return "holds a character that can't be seen"
    if any(char in _LOOK_ALIKES for char in name):
        return "holds a character that looks like a dot or a slash"
    if "\\" in name or ":" in name:
        return "is no path with /"
    if name.startswith(("/", "~")):
        return "is absolute"
    for part in name.split("/"):
        if part.strip(" .") == "" and part not in ("", "."):
            return "leads outside"
        if part != "." and part.endswith((".", " ")):
            return "ends in a dot or a space"
        if is_device(part):
            return "is the name of a device"
        if len(part.encode("utf-8", "surrogatepass")) > _MAX_PART_BYTES:
            return "is too long"
    return ""
