"""live_browser.py ADDRESS FOLDER PID: opens the page that `tessera watch --serve` (process PID) serves about the run in FOLDER, uses it while the run
grows, and prints as JSON what stays and what changes. Then it ends the server. Exit code 77 as report_browser.py."""

import json
import os
import pathlib
import signal
import sys

from report_browser import browser, findings, axe_source, press, requests  # ends with 77 without its programs

from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

STATE = """
const plot = document.querySelector('.plot'), body = document.documentElement;
return {ticks: [...plot.querySelectorAll('text.middle:not(.dots)')].map((t) => t.textContent), zoomed: plot.querySelector('.line').getAttribute('d'),
        tip: [...plot.querySelectorAll('.tip div')].map((d) => d.textContent), focus: document.activeElement === plot, scroll: window.scrollY,
        open: [...document.querySelectorAll('details[open]')].map((d) => d.firstChild.textContent), log: document.querySelector('#controls input').checked,
        scrolled: document.querySelector('details[open] .scroll').scrollTop, selected: String(getSelection()),
        live: document.getElementById('live').textContent, charts: [...document.querySelectorAll('figcaption')].map((c) => c.textContent),
        iterations: [...document.querySelectorAll('.facts tr')].map((r) => r.textContent).find((t) => t.startsWith('iterations'))};
"""


def row(iteration, **more):
    return json.dumps({"iteration": iteration, "loss": 5.0 / iteration, "step_seconds": 0.1, **more}) + "\n"


def wait(driver, script, seconds=120):
    WebDriverWait(driver, seconds, poll_frequency=0.2).until(lambda _: driver.execute_script("return " + script))


def use(driver):
    """Opens a table and scrolls in it, selects a text, then zooms and walks to a point by keyboard."""
    summary = driver.find_element(By.CSS_SELECTOR, ".chart summary")
    driver.execute_script("arguments[0].click()", summary)
    driver.execute_script("document.querySelector('details[open] .scroll').scrollTop = 40;"
                          "getSelection().selectAllChildren(document.querySelector('.facts td'));"
                          "document.querySelector('.plot').focus({preventScroll: true}); window.scrollTo({top: 300, behavior: 'instant'})")
    press(driver, Keys.HOME, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, "l", "+", "+", Keys.ARROW_RIGHT)
    driver.execute_script("window.scrollTo({top: 300, behavior: 'instant'})")


def main():
    address, folder, server = sys.argv[1], pathlib.Path(sys.argv[2]), int(sys.argv[3])
    source, told = axe_source(), {}
    driver = browser()
    driver.set_script_timeout(120)
    try:
        driver.get(address)
        use(driver)
        told["before"] = driver.execute_script(STATE)
        with (folder / "metrics.jsonl").open("a") as metrics, (folder / "events.jsonl").open("a") as events:
            metrics.write("".join(row(i, new_key=i) for i in range(41, 61)))
            events.write(json.dumps({"time": 1000.0, "event": "note", "iteration": 50, "message": "</script><img src=x onerror=alert(1)>"}) + "\n")
        wait(driver, "document.body.textContent.includes('onerror=alert')")
        told["after"] = driver.execute_script(STATE)
        told["images"] = driver.execute_script("return document.querySelectorAll('main img').length")
        press(driver, "0", "l", Keys.END)
        told["end"] = driver.execute_script("return document.getElementById('said').textContent")
        told["axe"] = findings(driver, source)
        with (folder / "events.jsonl").open("a") as events:
            events.write(json.dumps({"time": 1001.0, "event": "failed", "iteration": 60, "message": "no memory"}) + "\n")
        wait(driver, "document.querySelector('.facts').textContent.includes('died: no memory')")
        told["requests"], told["console"] = requests(driver), [entry["message"] for entry in driver.get_log("browser")]
        os.kill(server, signal.SIGINT)
        wait(driver, "document.getElementById('live').textContent.startsWith('Not read again')")
        told["gone"] = driver.execute_script("return [document.getElementById('live').textContent, document.getElementById('said').textContent]")
    finally:
        driver.quit()
    print(json.dumps(told))


if __name__ == "__main__":
    main()
