"""The explorer as its user has it: JupyterLab in a real browser, keys on a slider, a prompt unfolded, a file exported."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import nbformat
import pytest

from workbench.config import RunConfig

pytestmark = pytest.mark.network

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "notebooks" / "07_explorer.ipynb"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
PATIENCE_MS = 240_000
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """The notebook, without outputs, in a folder of its own."""
    folder = tmp_path_factory.mktemp("lab")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    (folder / "work").mkdir()
    nbformat.write(notebook, folder / "work" / "explorer.ipynb")
    settings = folder / "config" / "labconfig"
    settings.mkdir(parents=True)
    news = {"disabledExtensions": {"@jupyterlab/apputils-extension:announcements": True}}
    (settings / "page_config.json").write_text(json.dumps(news), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def address(folder) -> Iterator[str]:
    """A running JupyterLab."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    token = secrets.token_hex(16)
    own = {name: str(folder / name.lower()) for name in ("JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")}
    env = {**os.environ, **own, "JUPYTER_CONFIG_DIR": str(folder / "config"), "PYTHONPATH": str(ROOT)}
    with (folder / "server.log").open("w") as log:
        server = subprocess.Popen(
            [
                sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", f"--port={port}", "--allow-root",
                f"--IdentityProvider.token={token}", f"--ServerApp.root_dir={folder / 'work'}",
                f"--LabApp.user_settings_dir={folder / 'settings'}", f"--LabApp.workspaces_dir={folder / 'workspaces'}",
            ],
            env=env,
            stdout=log,
            stderr=log,
        )  # fmt: skip
    try:
        wait_for(f"http://127.0.0.1:{port}/api/status?token={token}", server)
        yield f"http://127.0.0.1:{port}/lab/tree/explorer.ipynb?token={token}"
    finally:
        server.terminate()
        server.wait(timeout=60)


def wait_for(url: str, server: subprocess.Popen[bytes]) -> None:
    for _ in range(600):
        assert server.poll() is None, "JupyterLab has ended"
        try:
            urllib.request.urlopen(url, timeout=5).close()
        except OSError:
            time.sleep(0.2)
        else:
            return
    pytest.fail("JupyterLab doesn't answer")


@contextmanager
def opened(address: str, folder: Path) -> Iterator[Any]:
    """The notebook in the browser; every request that leaves this machine is a fault."""
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip("no browser on this machine; on Debian: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=browser, args=FLAGS)
        page = chromium.new_page(viewport={"width": 1440, "height": 1500})
        page.set_default_timeout(PATIENCE_MS)
        outside: list[str] = []
        page.on("request", lambda request: outside.append(request.url) if is_outside(request.url) else None)
        page.goto(address)
        page.wait_for_selector(".jp-Notebook-ExecutionIndicator[data-status=idle]")
        yield page
        assert outside == []
        chromium.close()


def is_outside(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme in {"http", "https", "ws", "wss"} and parts.hostname != "127.0.0.1"


def run_first_cell(page: Any) -> None:
    """Run the cell with the explorer; a kernel that has only just come up may miss the first wish."""
    cell = page.locator(".jp-Notebook .jp-CodeCell").first
    page.keyboard.press("Control+b")  # without the list of files
    for _ in range(20):
        cell.locator(".jp-InputArea-editor").click()
        page.keyboard.press("Shift+Enter")
        page.wait_for_timeout(3000)
        if cell.locator(".jp-InputArea-prompt").inner_text().strip() not in {"[ ]:", "[]:"}:
            return
    pytest.fail("the notebook doesn't run its first cell")


def replayed(page: Any) -> None:
    """Wait until the exact replay is through."""
    page.wait_for_selector(".wbx >> text='exact replay'")


def row(page: Any, label: str) -> str:
    return str(page.locator(".wbx table tr", has_text=label).first.inner_text())


def test_moving_a_slider_opening_a_prompt_and_exporting(address, folder):
    """WB-UI-03: figure and numbers change with the keys, a prompt diff opens, a configuration is exported; dark too."""
    with opened(address, folder) as page:
        run_first_cell(page)
        page.wait_for_selector(".wbx .lead:has-text('fires')")
        replayed(page)
        page.screenshot(path=folder / "1-start.png")
        before = {label: row(page, label) for label in ("firings", "tokens of all prompts", "largest prompt")}
        figure = page.locator(".wbx img.on-light")
        pictures = [figure.nth(i).get_attribute("src") for i in range(2)]
        heading = page.locator(".wbx .lead").inner_text()
        place = page.locator(".wbx .lead").bounding_box(), page.locator(".wbx table").first.bounding_box()

        beside = page.locator(".widget-hbox", has=page.get_by_text("tokens", exact=True)).last
        slider = beside.locator(".noUi-handle")
        slider.focus()
        for _ in range(8):
            page.keyboard.press("ArrowLeft")
        page.wait_for_function("text => document.querySelector('.wbx .lead').innerText !== text", arg=heading)
        replayed(page)
        page.wait_for_function("old => document.querySelectorAll('.wbx img.on-light')[1].src !== old", arg=pictures[1])
        page.screenshot(path=folder / "2-moved.png")
        assert figure.nth(0).get_attribute("src") != pictures[0]
        after = {label: row(page, label) for label in before}
        assert all(after[label] != before[label] for label in before), after
        assert not any("—" in text for text in after.values()), after
        assert (page.locator(".wbx .lead").bounding_box(), page.locator(".wbx table").first.bounding_box()) == place

        prompt = page.locator(".wbx.prompt")
        assert "less (-)" in prompt.inner_text()
        folded = prompt.locator("td details").first
        folded.locator("summary").scroll_into_view_if_needed()
        folded.locator("summary").click()
        assert folded.get_attribute("open") is not None
        page.screenshot(path=folder / "3-prompt.png")

        name = page.locator(".widget-text", has_text="name").locator("input")
        name.fill("from the browser")
        name.press("Enter")
        page.get_by_role("button", name="Export this configuration").click()
        page.wait_for_selector(".wbx >> text=/written: from the browser.toml/")
        page.screenshot(path=folder / "4-exported.png")
        exported = RunConfig.load(folder / "work" / "from the browser.toml")
        assert exported.trigger is not None
        assert exported.trigger.token is not None
        assert exported.trigger.token < 2000
        assert exported.agent.add_session_summary

        page.locator(".lm-MenuBar-itemLabel", has_text="Settings").click()
        for entry in ("Theme", "JupyterLab Dark"):
            page.locator(".lm-Menu-itemLabel").get_by_text(entry, exact=True).click()
        page.wait_for_selector("body[data-jp-theme-light=false]", state="attached")
        page.wait_for_selector(".wbx img.on-dark >> visible=true")
        assert page.locator(".wbx img.on-light >> visible=true").count() == 0
        page.locator(".wbx .lead").scroll_into_view_if_needed()
        page.screenshot(path=folder / "5-dark.png")
