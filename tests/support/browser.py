"""Debian's Chromium without a screen, driven by its WebDriver (packages chromium, chromium-driver, python3-selenium)."""

import base64
import os

from selenium import webdriver
from selenium.common.exceptions import ElementClickInterceptedException, StaleElementReferenceException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.keys import Keys

from waiting import wait_until

__all__ = ["Browser", "Keys"]

_MOVED = (StaleElementReferenceException, ElementClickInterceptedException)  # the page has drawn it again: look once more

# The lowest contrast of a visible text against its background, and that text (WCAG 2: 4.5 is enough).
CONTRAST = """
const channel = (c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
const read = (text) => text.match(/[\\d.]+/g).map(Number);
let least = [99, ""];
for (const element of document.querySelectorAll("body *")) {
  const own = [...element.childNodes].filter((node) => node.nodeType === 3).map((node) => node.data).join("").trim();
  if (!own || !element.checkVisibility() || element.matches(":disabled, option, .unseen")) { continue; }
  let behind = element, paint = [0, 0, 0, 0];
  for (; behind && (paint[3] ?? 1) === 0; behind = behind.parentElement) { paint = read(getComputedStyle(behind).backgroundColor); }
  const [a, b] = [light(read(getComputedStyle(element).color)), light(paint)].sort((x, y) => y - x);
  const ratio = (a + 0.05) / (b + 0.05);
  if (ratio < least[0]) { least = [ratio, own]; }
}
return least;
"""


class Browser:
    """One page. Waits for what it looks for; never sleeps."""

    def __init__(self):
        options = webdriver.ChromeOptions()
        # Its sandbox and /dev/shm are not there for root in a container; it opens nothing but our page.
        for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--hide-scrollbars"):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(service=Service("/usr/bin/chromedriver"), options=options)

    def quit(self):
        self.driver.quit()

    def open(self, url):
        self.driver.get(url)

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def view(self, width, height=900, scheme="light"):
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False})
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})

    def shoot(self, path):
        """The whole page as a picture."""
        width, height = self.run("return [innerWidth, Math.max(innerHeight, document.documentElement.scrollHeight)]")
        shot = self.driver.execute_cdp_cmd("Page.captureScreenshot", {
            "captureBeyondViewport": True, "clip": {"x": 0, "y": 0, "width": width, "height": min(height, 4000), "scale": 1}})
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(base64.b64decode(shot["data"]))

    def all(self, selector):
        """The visible elements."""
        return self.run("return [...document.querySelectorAll(arguments[0])].filter((one) => one.checkVisibility())", selector)

    def one(self, selector, text=None):
        """The first visible element, with this text if one is given."""
        def found():
            return next((element for element in self.all(selector) if text is None or element.text.strip() == text), None)
        return wait_until(found, f"{selector} {text or ''}", ignore=_MOVED)

    def click(self, selector, text=None):
        wait_until(lambda: self.one(selector, text).click() or True, f"a click on {selector} {text or ''}", ignore=_MOVED)

    def type(self, selector, text):
        field = self.one(selector)
        field.clear()
        field.send_keys(text)
        return field

    def texts(self, selector):
        """The texts of the visible elements."""
        return self.run("return [...document.querySelectorAll(arguments[0])].filter((one) => one.checkVisibility()).map((one) => one.innerText)", selector)

    def text(self, selector):
        return "\n".join(self.texts(selector))

    def wait_text(self, selector, words):
        wait_until(lambda: words in self.text(selector), lambda: f"{words!r} in {selector}, not {self.text(selector)!r}", ignore=_MOVED)

    def press(self, *keys):
        for key in keys:
            self.driver.switch_to.active_element.send_keys(key)

    def focused(self):
        return self.run("return document.activeElement.textContent.trim() || document.activeElement.name || document.activeElement.tagName")

    def said(self):
        """The console's lines since the last call."""
        return [line["message"] for line in self.driver.get_log("browser")]

    def nameless(self):
        """The roles of elements that can have the focus but have no name for a screen reader."""
        nodes = self.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
        value = lambda node, name: node.get(name, {}).get("value")
        focusable = [node for node in nodes if not node["ignored"] and any(
            one["name"] == "focusable" and one["value"].get("value") for one in node.get("properties", ()))]
        return [value(node, "role") for node in focusable if not value(node, "name") and value(node, "role") not in ("main", "RootWebArea")]

    def contrast(self):
        return tuple(self.run(CONTRAST))

