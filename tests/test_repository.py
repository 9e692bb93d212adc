"""What is committed: nothing of one machine, nothing secret, nothing unpinned, nothing without a first sentence."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import tempfile
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from workbench.wording import RUNES

ROOT = Path(__file__).resolve().parent.parent
MAX_LINES = 800

# In parts, or this file would be the first to break its rule.
REGISTRY_HOSTS = [
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("npmjs", "org"),
        ("deb", "debian", "org"),
        ("security", "debian", "org"),
        ("proxy", "golang", "org"),
        ("crates", "io"),
    )
]
# Names set aside for examples, which no mail reaches.
EXAMPLE_DOMAIN = re.compile(r"(^|\.)(example(\.(com|net|org))?|invalid|test|localhost)$")
EMAIL = re.compile(r"[\w.+-]+@([A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,})")
KEYS = re.compile(
    r"(?<![A-Za-z0-9])(sk-[A-Za-z0-9_-]{20,}|AKIA[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{30,}|AIza[\w-]{35}|xox[abp]-[\w-]{10,})"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----"
)
MADE_UP_KEY = re.compile(r"example|fake|test|not-a-key|0000|1234|abcd", re.IGNORECASE)


@cache
def committed_files() -> list[Path]:
    """Files of the repository, and those that the next commit could add."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode != 0:
        pytest.skip(f"this is no git checkout: {listed.stderr.strip()}")
    return [path for name in sorted(listed.stdout.split("\0")) if name and (path := ROOT / name).is_file()]


@cache
def lines() -> list[tuple[str, str]]:
    """`(file:line, text)` of all text files."""
    found = []
    for path in committed_files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        name = path.relative_to(ROOT)
        found += [(f"{name}:{number}", line) for number, line in enumerate(text.splitlines(), start=1)]
    return found


def lines_with(pattern: re.Pattern[str]) -> list[str]:
    """Where the pattern occurs, without the find itself: it may be a secret."""
    return [where for where, line in lines() if pattern.search(line)]


def python_files() -> list[Path]:
    """All Python files of the repository."""
    return [path for path in committed_files() if path.suffix == ".py"]


def notebooks() -> Iterator[tuple[str, dict]]:
    """Name and content of each notebook."""
    for path in committed_files():
        if path.suffix == ".ipynb":
            yield path.name, json.loads(path.read_text(encoding="utf-8"))


def test_no_file_names_a_package_registry():
    """WB-FRESH-03."""
    assert lines_with(re.compile("|".join(map(re.escape, REGISTRY_HOSTS)))) == []


def test_no_file_holds_a_path_of_this_machine():
    paths = {ROOT, ROOT.parent, Path.home()} - {Path("/"), Path(tempfile.gettempdir())}
    assert lines_with(re.compile("|".join(rf"(?<![\w.-]){re.escape(str(path))}/" for path in paths))) == []


def foreign_mail_in(line: str) -> list[str]:
    """Mail domains that aren't set aside for examples; a line end inside a JSON string ends a word."""
    if "@" not in line:
        return []
    hosts = EMAIL.findall(re.sub(r"\\[nrt]", " ", line))
    return [host for host in hosts if not EXAMPLE_DOMAIN.search(host.lower())]


def test_no_file_holds_a_mail_address():
    assert [where for where, line in lines() if foreign_mail_in(line)] == []


def test_no_file_holds_a_key():
    found = [where for where, line in lines() if any(not MADE_UP_KEY.search(key[0]) for key in KEYS.finditer(line))]
    assert found == []


@pytest.mark.parametrize(
    ("line", "is_found"),
    [
        ("key = 'sk-" + "Zq8" * 9 + "'", True),
        ("-----BEGIN RSA " + "PRIVATE KEY-----", True),
        ("the task-" + "a" * 30, False),
    ],
    ids=["key", "private-key", "word"],
)
def test_a_key_is_recognised(line, is_found):
    assert bool(KEYS.search(line)) is is_found


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("write to ana" + "@" + "mail.org", ["mail.org"]),
        ("write to ana" + "@" + "mail.example.com", []),
        (r'{"text": "\n@pytest.mark.slow"}', []),
        ("left @ right.T", []),
    ],
    ids=["mail", "example", "decorator", "matrix-product"],
)
def test_a_mail_address_is_recognised(line, found):
    assert foreign_mail_in(line) == found


LOCKS = ("requirements.lock", "requirements-tokenizers.lock", "requirements-local-llm.lock", "requirements-go.lock")


@pytest.mark.parametrize("name", LOCKS)
def test_every_locked_package_has_a_version_and_hashes_and_no_address(name):
    """WB-FRESH-03, SEC-16."""
    lock = (ROOT / name).read_text(encoding="utf-8")
    entries = re.split(r"\n(?=[a-z0-9])", re.sub(r"^#.*\n", "", lock, flags=re.MULTILINE).strip())
    assert [entry.split()[0] for entry in entries if not re.match(r"[a-z0-9._-]+==\S+", entry)] == []
    assert [entry.split()[0] for entry in entries if "--hash=sha256:" not in entry] == []
    assert "://" not in lock


def test_everything_the_project_asks_for_is_locked():
    """WB-FRESH-03, SEC-16."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    asked = [
        *project["project"]["dependencies"],
        *project["dependency-groups"]["dev"],
        *project["build-system"]["requires"],
    ]
    assert names_of(asked) - set(locked_in("requirements.lock")) == set()


def test_the_extra_is_locked_with_versions_that_fit_the_rest():
    """WB-CAL-04, WB-FRESH-03."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extra, rest = locked_in("requirements-tokenizers.lock"), locked_in("requirements.lock")
    assert names_of(project["project"]["optional-dependencies"]["tokenizers"]) - set(extra) == set()
    assert {name: extra[name] for name in extra if name in rest and extra[name] != rest[name]} == {}


def names_of(requirements: list[str]) -> set[str]:
    return {re.split(r"[<>=!~\[; ]", name, maxsplit=1)[0] for name in requirements}


def locked_in(name: str) -> dict[str, str]:
    lock = (ROOT / name).read_text(encoding="utf-8")
    return dict(re.findall(r"^([a-z0-9._-]+)==(\S+)", lock, flags=re.MULTILINE))


def test_no_notebook_is_stored_with_an_error():
    found = [
        name
        for name, content in notebooks()
        for cell in content["cells"]
        if any(output["output_type"] == "error" for output in cell.get("outputs", []))
    ]
    assert found == []


def test_every_notebook_is_stored_as_one_run_from_top_to_bottom():
    for name, content in notebooks():
        counts = [cell["execution_count"] for cell in content["cells"] if cell["cell_type"] == "code"]
        assert counts == list(range(1, len(counts) + 1)), name


def test_every_notebook_starts_with_prose_and_names_no_version():
    for name, content in notebooks():
        assert content["cells"][0]["cell_type"] == "markdown", name
        assert set(content["metadata"]) == {"kernelspec", "language_info"}, f"{name}: run `make notebooks`"
        assert "version" not in content["metadata"]["language_info"], f"{name}: run `make notebooks`"


REACHES_OUT = {"ftplib", "http", "httpx", "httpx2", "pty", "requests", "smtplib", "socket", "subprocess", "urllib"}
RUNS_TEXT = {"eval", "exec", "system", "popen", "Popen", "get_ipython", "__import__"}


def faults_of_cell(source: str) -> list[str]:
    """What a cell does that a notebook has no business doing: a shell, the network, running text as code."""
    try:
        tree = ast.parse(source)
    except SyntaxError:  # `!ls`, `%%bash`, `files = !ls`
        return ["no plain Python"]
    found = []
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name.split(".")[0] for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [(node.module or "").split(".")[0]]
        found += [f"imports {name}" for name in names if name in REACHES_OUT]
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            found += [f"calls {called}"] if called in RUNS_TEXT else []
    return found


@pytest.mark.parametrize(
    ("source", "n_faults"),
    [
        ("!ls", 1),
        ("%%bash\nls", 1),
        ("files = !ls", 1),
        ("import urllib.request", 1),
        ("from subprocess import run", 1),
        ("import os\nos.system('ls')", 1),
        ("eval(text)", 1),
        ("import workbench as wb\nruns = wb.replay(recordings, config)\nruns", 0),
    ],
)
def test_a_cell_that_reaches_out_is_recognised(source, n_faults):
    """SEC-14."""
    assert len(faults_of_cell(source)) == n_faults


def test_no_notebook_reaches_out_or_asks_to_be_trusted():
    """SEC-14: no shell, no network and no text run as code in cells; no trust marks, nothing that isn't reproducible."""
    for name, content in notebooks():
        assert "signature" not in content["metadata"], name
        for cell in content["cells"]:
            assert "trusted" not in cell["metadata"], name
            if cell["cell_type"] == "code":
                assert faults_of_cell("".join(cell["source"])) == [], name
                views = [data for one in cell["outputs"] for data in one.get("data", {}) if "widget" in data]
                assert views == [], f"{name}: run `make notebooks`"


def test_every_module_says_what_it_is():
    found = [
        str(path.relative_to(ROOT))
        for path in python_files()
        if not path.name.startswith("test_")  # there the names of the tests say it
        and not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert found == []


def test_a_very_long_module_says_why_it_is_one_thing():
    found = []
    for path in python_files():
        text = path.read_text(encoding="utf-8")
        if text.count("\n") > MAX_LINES and "one thing" not in (ast.get_docstring(ast.parse(text)) or ""):
            found.append(f"{path.relative_to(ROOT)}: say in its docstring why it is one thing, or split it")
    assert found == []


@pytest.mark.parametrize(("sentence", "runes"), RUNES.values(), ids=RUNES.keys())
def test_a_fixed_sentence_has_the_length_of_the_reference(sentence, runes):
    """ASM-CMP-30, ASM-CMP-32, ASM-CMP-33, ASM-INJ-10, ASM-INTRA-14, SUM-FIT-07, SUM-FIT-08, SUM-REQ-05."""
    assert len(sentence) == runes
