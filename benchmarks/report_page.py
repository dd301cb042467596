"""How large the report of a large fit is, how long it takes to write, and to open in Chromium."""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from conenmf import factorize, from_columns, make_cones
from conenmf.report import write_report

LARGEST, SLOWEST = 5e6, 2.0  # bytes, seconds


def seconds_to_open(page: Path, rounds: int) -> float | None:
    """Median time until the page is drawn and its script has run; None without a browser."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return None
    if chromium is None:
        return None
    sandbox = [] if os.geteuid() else ["--no-sandbox"]
    times = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--disable-gpu", *sandbox]
        )
        for _ in range(rounds):
            tab = browser.new_page(viewport={"width": 1100, "height": 800})
            began = time.perf_counter()
            tab.goto(page.as_uri())
            tab.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(done)))")
            times.append(time.perf_counter() - began)
            tab.close()
        browser.close()
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=20_000)
    parser.add_argument("--features", type=int, default=2000)
    parser.add_argument("--components", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    model = make_cones(
        asked.features,
        asked.components,
        0.2,
        n_samples=asked.samples,
        rng=np.random.default_rng(0),
    )
    result = factorize(from_columns(model.V), asked.components)
    began = time.perf_counter()
    result.diagnose()
    print(f"diagnosis  {time.perf_counter() - began:.2f} s")
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        began = time.perf_counter()
        write_report(result, page)
        print(f"writing    {time.perf_counter() - began:.2f} s")
        size, opening = page.stat().st_size, seconds_to_open(page, asked.rounds)
    kept = "kept" if size < LARGEST else "EXCEEDED"
    print(f"size       {size:,} bytes (limit {LARGEST:,.0f}: {kept})")
    if opening is None:
        print("opening    not measured: needs playwright and Chromium")
    else:
        kept = "kept" if opening < SLOWEST else "EXCEEDED"
        print(f"opening    {opening:.2f} s (limit {SLOWEST:.0f}: {kept})")


if __name__ == "__main__":
    main()
