"""Takes the home page's picture of a report, docs/report.png: python docs/report_picture.py

The README's own example is run, and its report.html opened in an installed Chromium. Needs the
package playwright; takes some seconds.
"""

import re
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image
from playwright.sync_api import sync_playwright

DOCS = Path(__file__).parent
WIDTH, HEIGHT, PIXELS = 1120, 1060, 1.5
"""Of the window, in CSS pixels, and device pixels in one of them."""
ZOOM = 1.25
"""Enlarges the page, so that its text can be read where the home page shows the picture smaller."""


def take(report: Path, picture: Path) -> None:
    """Take a picture of what a window shows first of a page."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        window = {"width": WIDTH, "height": HEIGHT}
        page = browser.new_page(viewport=window, device_scale_factor=PIXELS)
        page.goto(report.as_uri())
        page.evaluate(f"document.body.style.zoom = {ZOOM}")
        page.screenshot(path=picture)
        browser.close()
    with Image.open(picture) as taken:
        taken.convert("RGB").quantize(128).save(picture, optimize=True)


if __name__ == "__main__":
    (example,) = re.findall(r"```python\n(.*?)```", (DOCS.parent / "README.md").read_text(), re.S)
    with TemporaryDirectory() as folder:
        exec(compile(example.replace("outputs/mine", folder), "README.md", "exec"), {})
        take(Path(folder, "report.html"), DOCS / "report.png")
