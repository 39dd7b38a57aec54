"""Pages in a browser: a silent console, nothing that overflows, no serious fault for axe.

It takes Chromium with its driver (`apt-get install chromium chromium-driver`), Selenium
(`pip install selenium`), and axe (`npm install axe-core`), whose file is named by
DEPLOYKIT_AXE=.../axe-core/axe.min.js. Where one is missing, these tests are skipped and say which.
DEPLOYKIT_SHOTS=FOLDER keeps a picture of each page.
"""

import base64
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploykit.reporting.charts.inline import images
from deploykit.reporting.page.page import html_of
from tests.deploykit.reporting.page.drawn import documents
from tests.deploykit.reporting.page.samples import KINDS, figure, ship

pytestmark = pytest.mark.slow
WIDTHS = (375, 800, 1400)
PRINTED = 700  # CSS pixels that A4 has beside its margins, or a few less
NAMES = frozenset({"name", "node", "layer", "op", "why", "reason", "verdict", "source", "tensor",
                   "label", "model", "cpu", "asked", "got", "command", "text", "transform", "bar",
                   "style"})  # fmt: skip
LONG = "model/block_with_a_long_name_17/" * 8
# An element that is wider than its place, or than the page. What only readers of the screen
# are told is cut to one pixel, and is no fault.
OVERFLOWS = """
for (const each of document.querySelectorAll('details')) each.open = true;
const wide = document.documentElement.clientWidth, found = [];
if (document.documentElement.scrollWidth > wide) found.push('the page');
for (const each of document.querySelectorAll('body *')) {
  if (each.closest('thead, .skip, svg') || getComputedStyle(each).display == 'none') continue;
  const box = each.getBoundingClientRect();
  const style = getComputedStyle(each);  // on a phone, a chart scrolls in its own figure
  const isInline = style.display == 'inline' || style.overflowX == 'auto';
  const inner = each.clientWidth && each.scrollWidth > each.clientWidth + 1;
  if (box.right > wide + 1 || box.left < -1 || (inner && !isInline))
    found.push(`${each.tagName}.${each.className}: ${each.textContent.slice(0, 60)}`);
}
for (const each of document.querySelectorAll('svg text')) {
  const box = each.getBoundingClientRect(), place = each.closest('svg').getBoundingClientRect();
  if (box.right > place.right + 2 || box.left < place.left - 2)
    found.push(`svg: ${each.textContent}`);
}
return found.slice(0, 10);
"""
AXE = """
const done = arguments[arguments.length - 1];
axe.run().then(found => done(found.violations
  .filter(each => ['serious', 'critical'].includes(each.impact))
  .map(each => `${each.id}: ${each.nodes[0].html.slice(0, 200)}`)));
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs: pip install selenium")
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("needs: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for each in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                 "--hide-scrollbars"):  # fmt: skip
        options.add_argument(each)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    found = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield found
    found.quit()


def leaf(path: str) -> Any:
    """Return what is likely at a path: figures, and names that are long or hostile."""
    last = path.rpartition(".")[2]
    if last in ("verified", "passed", "sound", "complete", "agrees"):
        return True
    if last in NAMES or last.startswith(("why", "output", "input")):
        return f"{LONG}{path} <script>alert(1)</script>"
    return 1234.5678 if last.endswith(("bytes", "ms")) else 0.25


def shipped() -> dict[str, Any]:
    document = ship(leaf, 12)
    document["figures"] |= {
        "p50": figure(verdict=f"faster: {LONG}", ratio={"value": 2, "low": 1.9, "high": 2.1}),
        "cpu": figure(ratio={"value": 0.5, "low": 0.4, "high": 0.6}),
    }
    for each in document["stages"]:
        if each["stage"] == "accuracy":
            point = base64.b64decode(
                "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJ"
                "RU5ErkJggg=="
            )
            uri = f"data:image/png;base64,{base64.b64encode(point).decode()}"
            each["document"]["worst"][0]["picture"] = uri
        if each["stage"] == "tune":
            each |= {"outcome": "left out", "why": LONG, "document": None}
    return document


@pytest.fixture(scope="module", params=[*sorted(KINDS), 0, 1, 2])
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a page of a kind, with long and hostile names; of a number, one with pictures."""
    if isinstance(request.param, int):
        several = documents(request.param)
    else:
        several = [shipped() if request.param == "ship" else KINDS[request.param](leaf, 12)]
    path = tmp_path_factory.mktemp("pages") / f"{request.param}.html".replace(" ", "_")
    path.write_text(html_of(several, images, [f"{LONG}.json"]))
    return path


def shown(browser: Any, page: Path, width: int, dark: bool = False, printed: bool = False) -> None:
    """Load a page as a reader would see it."""
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    media = {"media": "print" if printed else "screen", "features": [scheme]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    browser.get_log("browser")
    browser.get(page.as_uri())
    if folder := os.environ.get("DEPLOYKIT_SHOTS"):
        name = f"{page.stem}-{width}{'-dark' * dark}{'-print' * printed}.png"
        shot = browser.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True})
        (Path(folder) / name).write_bytes(base64.b64decode(shot["data"]))


@pytest.mark.parametrize(
    ("width", "dark"), [*((width, False) for width in WIDTHS), (WIDTHS[-1], True)]
)
def test_nothing_overflows_and_the_console_is_silent(browser, page, width, dark):
    shown(browser, page, width, dark)
    assert browser.execute_script(OVERFLOWS) == []
    assert browser.get_log("browser") == []


def test_nothing_overflows_in_print(browser, page):
    shown(browser, page, PRINTED, printed=True)
    assert browser.execute_script(OVERFLOWS) == []
    assert browser.execute_script("return getComputedStyle(document.body).backgroundColor") in (
        "rgb(255, 255, 255)",
        "rgba(0, 0, 0, 0)",
    )


def test_a_long_table_is_printed_whole(browser, page):
    """On a screen its reader opens it; paper has nothing to press."""
    shown(browser, page, PRINTED, printed=True)
    heights = browser.execute_script(
        "return [...document.querySelectorAll('details table')].map(e => "
        "e.checkVisibility({contentVisibilityAuto: true}) && e.offsetHeight)"
    )
    assert all(heights)


@pytest.mark.parametrize(("width", "dark"), [(WIDTHS[0], False), (WIDTHS[-1], True)])
def test_axe_finds_no_serious_fault(browser, page, width, dark):
    axe = os.environ.get("DEPLOYKIT_AXE", "")
    if not Path(axe).is_file():
        pytest.skip("needs: npm install axe-core, and DEPLOYKIT_AXE=.../axe.min.js")
    shown(browser, page, width, dark)
    browser.execute_script(OVERFLOWS)  # opens what can be opened
    browser.execute_script(Path(axe).read_text())
    assert browser.execute_async_script(AXE) == []


BROKEN = {
    "overflow": "<p style='width: 3000px'>wide</p>",
    "console": "<img src='https://x.invalid/a.png' alt=''>",
    "axe": "<p style='color: #ddd; background: #fff'>hardly seen</p>",
}


@pytest.mark.parametrize("fault", BROKEN)
def test_faults_are_seen(browser, tmp_path, fault):
    path = tmp_path / "broken.html"
    html = html_of([KINDS["verify"](leaf)])
    path.write_text(html.replace("</main>", f"{BROKEN[fault]}</main>"))
    shown(browser, path, 800)
    found = {
        "overflow": lambda: browser.execute_script(OVERFLOWS),
        "console": lambda: browser.get_log("browser"),
        "axe": lambda: _axe(browser),
    }
    assert found[fault]()


def _axe(browser: Any) -> Any:
    axe = os.environ.get("DEPLOYKIT_AXE", "")
    if not Path(axe).is_file():
        pytest.skip("needs: npm install axe-core, and DEPLOYKIT_AXE=.../axe.min.js")
    browser.execute_script(Path(axe).read_text())
    return browser.execute_async_script(AXE)
