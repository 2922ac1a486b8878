"""A real browser that opens reports, and refuses what a report must never do."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

WIDTHS = {"wide": 1280, "phone": 390}


def start_browser() -> Iterator[Any]:
    """Chromium without a window; without one tests are skipped, but fail in CI."""
    names = ("chromium", "chromium-browser", "google-chrome")
    found = next(filter(None, map(shutil.which, names)), None)
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        found = None
    if found is None:
        reason = "needs Chromium on the path, and the package playwright"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def opened(
    browser: Any, report: Path, *, width: int = 1280, theme: str = "light", script: bool = True
) -> Iterator[Any]:
    """A report in a window; when it closes there was no error, no request, no sideways scroll."""
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=theme, java_script_enabled=script,
        has_touch=width < 600,
    )  # fmt: skip
    page = context.new_page()
    page.set_default_timeout(5000)
    told, asked = [], []
    page.on("console", lambda message: told.append(message.text))
    page.on("pageerror", lambda error: told.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(report.as_uri())
    yield page
    assert told == []
    outside = [url for url in asked if not url.startswith(("data:", report.as_uri()))]
    assert outside == []
    if script:
        root = "document.documentElement"
        assert page.evaluate(f"{root}.scrollWidth <= {root}.clientWidth")
    context.close()
