"""report_browser.py PAGE: opens a report in Debian's chromium and prints as JSON what a reader finds there. Exit code 77 without chromium, chromium-driver,
selenium, or axe (the file that the package axe-playwright-python carries)."""

import importlib.util
import json
import os
import pathlib
import shutil
import sys

if not (shutil.which("chromium") and shutil.which("chromedriver") and importlib.util.find_spec("selenium")):
    sys.exit(77)
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys


def axe_source():
    found = importlib.util.find_spec("axe_playwright_python")
    files = sorted(pathlib.Path(found.origin).parent.rglob("axe.min.js")) if found else []
    if not files:
        sys.exit(77)
    return files[0].read_text()


def browser(*more, script=True):
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1280,1600", *more):
        options.add_argument(word)
    if not script:
        options.add_experimental_option("prefs", {"profile.managed_default_content_settings.javascript": 2})
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    return webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))


def findings(driver, source):
    """What axe finds, with the elements; its script is evaluated by the driver, so the page's policy does not matter."""
    driver.execute_script(source)
    found = driver.execute_async_script(
        "const done = arguments[0]; axe.run(document, {resultTypes: ['violations']}).then((r) => done(r.violations.map("
        "(v) => [v.id, v.help, v.nodes.slice(0, 3).map((n) => n.html.slice(0, 200))])), (e) => done([['error', String(e), []]]));")
    return found


def requests(driver):
    sent = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    return [message["params"]["request"]["url"] for message in sent if message["method"] == "Network.requestWillBeSent"]


def tip(plot):
    return [line.text for line in plot.find_elements(By.CSS_SELECTOR, ".tip div")]


def hover(driver, plot, places):
    """The words beside the pointer at fractions of the plot's width."""
    driver.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", plot)
    size, told = plot.size, []
    for place in places:
        ActionChains(driver).move_to_element_with_offset(plot, int((place - 0.5) * size["width"]), 0).perform()
        told.append(tip(plot))
    return told


def press(driver, *keys):
    for key in keys:
        ActionChains(driver).send_keys(key).perform()


def walk(driver):
    """By keyboard alone: to the first chart, along its points, into it and out of it. What was announced after each key."""
    driver.execute_script("window.scrollTo(0, 0); document.activeElement.blur()")
    told, tabs = {}, 0
    while "plot" not in (driver.switch_to.active_element.get_attribute("class") or "") and tabs < 100:
        press(driver, Keys.TAB)
        tabs += 1
    said = lambda: driver.execute_script("return document.getElementById('said').textContent")
    told["outline"] = driver.execute_script("return getComputedStyle(document.activeElement).outlineStyle")
    for name, keys in [("home", [Keys.HOME]), ("right", [Keys.ARROW_RIGHT]), ("end", [Keys.END]), ("left", [Keys.ARROW_LEFT]),
                       ("plus", ["+"]), ("all", ["0"]), ("log", ["l"]), ("linear", ["l"]), ("down", [Keys.HOME, Keys.ARROW_DOWN])]:
        press(driver, *keys)
        told[name] = said()
    return told


def use_controls(driver, plot):
    """Each control in turn: how the first chart's lines change."""
    lines = lambda: driver.execute_script("return [...arguments[0].querySelectorAll('.line')].map((l) => l.getAttribute('d'))", plot)
    told = {"before": lines()}
    for name in ("samples", "tokens", "seconds", "steps"):
        driver.execute_script("const s = document.querySelector('#controls select'); s.value = arguments[0]; s.dispatchEvent(new Event('change'))", name)
        told[name] = lines()
        told[name + " tip"] = hover(driver, plot, [0.5])[0]
    driver.execute_script("const s = document.querySelector('#controls input[type=range]'); s.value = 0.8; s.dispatchEvent(new Event('input'))")
    told["smooth"] = lines()
    driver.execute_script("const s = document.querySelector('#controls input[type=range]'); s.value = 0; s.dispatchEvent(new Event('input'))")
    for box in driver.find_elements(By.CSS_SELECTOR, "#controls input[type=checkbox]"):
        driver.execute_script("arguments[0].click()", box)
        told[box.find_element(By.XPATH, "..").text] = lines()
        driver.execute_script("arguments[0].click()", box)
    return told


def main():
    page, source = pathlib.Path(sys.argv[1]).resolve().as_uri(), axe_source()
    told = {}
    driver = browser()
    driver.set_script_timeout(120)
    try:
        driver.get(page)
        told["load_ms"] = driver.execute_script(
            "const t = performance.getEntriesByType('navigation')[0]; return [t.domInteractive, t.loadEventEnd]")
        told["wide"] = driver.execute_script("return [document.documentElement.scrollWidth, window.innerWidth]")
        told["alerts"] = driver.execute_script("return document.querySelectorAll('img, iframe, link, object').length")
        plot = driver.find_element(By.CSS_SELECTOR, ".plot")
        told["hover"] = hover(driver, plot, [0.2, 0.4, 0.6, 0.8, 0.95])
        told["walk"] = walk(driver)
        told["controls"] = use_controls(driver, plot)
        told["axe"] = findings(driver, source)
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark"}]})
        told["dark"] = driver.execute_script("return getComputedStyle(document.body).backgroundColor")
        told["axe dark"] = findings(driver, source)
        driver.execute_script("const s = [...document.querySelectorAll('#controls select')].pop(); s.value = 'light'; s.dispatchEvent(new Event('change'))")
        told["light"] = driver.execute_script("return getComputedStyle(document.body).backgroundColor")
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": 320, "height": 800, "deviceScaleFactor": 1, "mobile": False})
        told["narrow"] = driver.execute_script("return [document.documentElement.scrollWidth, window.innerWidth]")
        told["requests"] = requests(driver)
        told["console"] = [entry["message"] for entry in driver.get_log("browser")]
    finally:
        driver.quit()
    driver = browser(script=False)
    try:
        driver.get(page)
        told["without script"] = {"text": driver.find_element(By.TAG_NAME, "body").text,
                                  "lines": len(driver.find_elements(By.CSS_SELECTOR, ".plot .line")),
                                  "controls": driver.find_element(By.ID, "controls").is_displayed()}
    finally:
        driver.quit()
    print(json.dumps(told))


if __name__ == "__main__":
    main()
