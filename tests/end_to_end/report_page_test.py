"""tessera report: the page of runs, also as a reader finds it in a browser (report_browser.py)."""

import json
import os
import pathlib
import re
import subprocess
import sys
import unittest

from harness import InOwnFolder, main, sets

HERE = pathlib.Path(__file__).resolve().parent
PYTHON = os.environ.get("TESSERA_TEST_PYTHON") or sys.executable
HOSTILE = "</script><img src=x onerror=alert(1)>"


class Report(InOwnFolder):
    def test_shows_a_run_and_replaces_no_file_unless_forced(self):
        self.tessera("train", "tiny.yaml")
        self.assertEqual(self.tessera("report", "run"), "report.html\n")
        page = (self.folder / "report.html").read_text()
        last = self.metrics()[-1]
        for words in ("Loss", "Gradient norm", "tessera train", "layout of 1 ranks", "tiny.yaml"):
            self.assertIn(words, page)
        curve = json.loads(re.search(r'id="data">(.*?)</script>', page, re.S)[1])["runs"][0]["curves"]["loss"]
        self.assertEqual(curve, [[row["iteration"], row["loss"]] for row in self.metrics() if "loss" in row])
        self.assertEqual(curve[-1][1], last["loss"])
        self.assertIn("report.html: exists already; give another name with -o, or --force", self.tessera("report", "run", code=2))
        self.write("report.html", "mine")
        self.tessera("report", "run", "--force")
        self.assertIn("<!DOCTYPE html>", (self.folder / "report.html").read_text())

    def test_says_what_is_wrong_with_its_arguments(self):
        (self.folder / "empty").mkdir()
        self.assertIn("empty: has no metrics.jsonl", self.tessera("report", "empty", code=2))
        self.assertIn("absent: does not exist", self.tessera("report", "absent", code=2))
        self.assertIn("tiny.yaml: is not a folder", self.tessera("report", "tiny.yaml", code=2))
        self.write("run/metrics.jsonl", '{"iteration": 1, "loss": 1e308}\n{"iteration": 2, "loss": nu\n{"iteration": 3, "lo')
        self.assertIn("empty: is a folder", self.tessera("report", "run", "-o", "empty", "--force", code=2))
        self.assertIn("no/such.html", self.tessera("report", "run", "-o", "no/such.html", code=1))
        self.write("run/events.jsonl", '{"event": "start", "iteration": 0}\n{"event": "fail\n{}\n')
        told = self.tessera("report", "run")
        self.assertIn("1 lines of metrics.jsonl are damaged", told)
        self.assertIn("2 lines of events.jsonl are damaged", told)
        page = (self.folder / "report.html").read_text()
        self.assertIn("1e+308", page)
        self.assertIn("a line that is not finished", page)
        self.assertIn("the folder has no resolved.yaml", page)

    def test_a_full_disk_leaves_no_page(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("this system has no /dev/full")
        self.write("run/metrics.jsonl", '{"iteration": 1, "loss": 2}\n')
        self.tessera("report", "run", "-o", "/dev/full", "--force", code=1)


def is_there(program_name):
    return any(os.access(os.path.join(folder, program_name), os.X_OK) for folder in os.environ["PATH"].split(":"))


def find(rows, iteration, key):
    return next(row[key] for row in rows if row["iteration"] == iteration and key in row)


@unittest.skipUnless(is_there("node"), "no node")
class ReportScript(InOwnFolder):
    """What the script of the page draws, without a browser: page_in_node.js."""

    def make_run(self, name, rows, events=()):
        for file, lines in (("metrics", rows), ("events", events)):
            self.write(f"{name}/{file}.jsonl", "".join(json.dumps(line) + "\n" for line in lines))

    def evaluate(self, *expressions):
        self.tessera("report", "a", "b", "-o", "page.html", "--force")
        done = subprocess.run(["node", HERE / "page_in_node.js", self.folder / "page.html", *expressions], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        return json.loads(done.stdout)

    def test_a_difference_has_no_value_beside_one_that_is_not_finite(self):
        self.make_run("a", [{"iteration": at, "loss": loss} for at, loss in ((10, 4), (20, None), (30, 4))])
        self.make_run("b", [{"iteration": at, "loss": 5} for at in range(5, 31, 5)])
        less, shown = self.evaluate(
            "curves.lessFirst(curves.unpack([[5, 4], [10, 4], [15, 4], [20, 4], [25, 4], [30, 4]]), curves.unpack([[10, 4], [20, null], [30, 4]]))"
            ".map((c) => [c.x, c.y])",
            'choose("less run A", true); shown("chart-loss")')
        self.assertEqual(less, [[10, 0], [15, None], [20, None], [25, None], [30, 0]])
        line, = shown["lines"]
        self.assertEqual((line.count("M"), line.count("L")), (2, 0), line)

    def test_a_run_without_the_chosen_axis_is_left_out_and_the_legend_says_so(self):
        rows = [{"iteration": at, "loss": 1 / at, "consumed_tokens": at * 64} for at in range(1, 9)]
        events = [{"event": "start", "iteration": 1}, {"event": "saved", "iteration": 4}, {"event": "failed", "message": "no memory"}]
        self.make_run("a", rows, events)
        self.make_run("b", [{key: row[key] for key in ("iteration", "loss")} for row in rows], events)
        shown = self.evaluate('shown("chart-loss")', 'choose("Axis", "tokens"); shown("chart-loss")', 'choose("Axis", "steps"); shown("chart-loss")')
        marks = [["mark plain", "start at 1"], ["mark bad", "failed (iteration unknown): no memory"]]
        self.assertEqual([len(one["lines"]) for one in shown], [2, 1, 2])
        self.assertEqual([one["marks"] for one in shown], [marks * 2, marks, marks * 2])
        legend = ["A loss", "B loss"]
        self.assertEqual([one["legend"] for one in shown], [legend, [*legend, "B: not drawn, without tokens"], legend])
        self.assertEqual(shown[1]["ticks"][-1], "500")

    def test_labels_of_the_x_axis_are_exact(self):
        for run in "ab":
            self.make_run(run, [{"iteration": at, "loss": 1} for at in range(1234562, 1234573)])
        shown, said, texts = self.evaluate('shown("chart-loss")', 'press("chart-loss", "Home", "+"); shown("chart-loss").said',
                                           "[1234562, 999999999999999, 0.1 + 0.2, 1 / 3, 123456.25].map(curves.placeText)")
        self.assertEqual(shown["ticks"], [str(at) for at in range(1234562, 1234573, 2)])
        self.assertEqual(said, "from 1234562 to 1234564.5")
        self.assertEqual(texts, ["1234562", "999999999999999", "0.3", "0.333333", "123456.25"])


@unittest.skipUnless(is_there("chromium") and is_there("chromedriver"), "no chromium and chromium-driver")
class ReportInABrowser(InOwnFolder):
    def make_runs(self):
        """One run that is resumed twice, one that diverges, one with experts."""
        common = sets(training_iters=30) + ["--set", "training_config.tensorboard=false"]
        for stop in (10, 20, 1000):
            self.tessera("train", "tiny.yaml", *common, *sets(output_dir="resumed"), "--set", f"training_config.exit_interval={stop}",
                         "--set", "training_config.resume_training=auto", "--set", "training_config.profile=true")
        self.tessera("train", "tiny.yaml", *common, *sets(output_dir="diverged", learning_rate=1000),
                     "--set", "training_config.check_for_nan_in_grad=false")
        # A loss that is not finite, whatever this machine's arithmetic made of the learning rate.
        path = self.folder / "diverged" / "metrics.jsonl"
        rows = path.read_text().splitlines()
        rows[20] = re.sub(r'"loss": [^,]*', '"loss": null', rows[20])
        path.write_text("\n".join(rows) + "\n")
        self.tessera("train", "tiny.yaml", *common, *sets(output_dir="experts"), "--set", "model_config.num_experts=4", "--set",
                     "moe_config.moe_router_topk=2", "--set", "model_config.add_bias_linear=false")
        with open(self.folder / "resumed" / "events.jsonl", "a") as events:
            for event in ({"event": "start", "iteration": 0}, {"event": "note", "iteration": 3, "message": HOSTILE},
                          {"event": "failed", "iteration": 20, "message": HOSTILE}, {"event": "finished", "iteration": 30}):
                events.write(json.dumps({"time": 1e9, **event}) + "\n")

    def test_a_reader_finds_every_value_with_pointer_or_keys_and_no_request_is_made(self):
        self.make_runs()
        self.tessera("report", "resumed", "diverged", "experts", "-o", "page.html")
        done = subprocess.run([PYTHON, "-B", HERE / "report_browser.py", self.folder / "page.html"], capture_output=True, text=True, timeout=280)
        if done.returncode == 77:
            self.skipTest("no Python with selenium and axe-playwright-python; name one in TESSERA_TEST_PYTHON")
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        told = json.loads(done.stdout)
        self.check_values(told)
        self.check_walk(told["walk"])
        self.check_controls(told["controls"])
        self.assertEqual(told["axe"], [])
        self.assertEqual(told["axe dark"], [])
        self.assertEqual(told["requests"], [(self.folder / "page.html").resolve().as_uri()])
        self.assertEqual(told["console"], [])
        self.assertEqual(told["alerts"], 0)
        for name in ("wide", "narrow"):
            self.assertLessEqual(*told[name], name)
        self.assertNotEqual(told["dark"], told["light"])
        bare = told["without script"]
        self.assertFalse(bare["controls"])
        self.assertGreater(bare["lines"], 20)
        for words in ("Run report", HOSTILE, "optimizer_config.learning_rate", "layout of 1 ranks", "This line repeats run A:"):
            self.assertIn(words, bare["text"])

    def check_values(self, told):
        rows = {letter: self.metrics(run) for letter, run in (("A", "resumed"), ("B", "diverged"), ("C", "experts"))}
        seen = 0
        for lines in told["hover"]:
            iteration = int(re.fullmatch(r"iteration (\d+)", lines[0])[1])
            for line in lines[1:]:
                _, letter, key, value, _, at = re.fullmatch(r"(\S+) (\w) (\w+): (.*?)( \(iteration (\d+)\))?", line).groups()
                kept = find(rows[letter], int(at or iteration), key)
                self.assertEqual(value if kept is None else float(value), "not finite" if kept is None else kept, line)
                seen += 1
        self.assertGreater(seen, 15)
        self.assertEqual(len({lines[0] for lines in told["hover"]}), len(told["hover"]))

    def check_walk(self, walk):
        rows = self.metrics("resumed")
        self.assertEqual(walk["outline"], "solid")
        for key, iteration in (("home", 1), ("right", 2), ("end", 30), ("left", 29)):
            self.assertEqual(walk[key], f"A loss, iteration {iteration}: " + re.search(r": (.*)", walk[key])[1])
            self.assertEqual(float(walk[key].split(": ")[1]), find(rows, iteration, "loss"))
        self.assertRegex(walk["plus"], r"^from [\d.]+ to 30$")
        self.assertEqual([walk["all"], walk["log"], walk["linear"]], ["whole range", "logarithmic scale", "linear scale"])
        self.assertTrue(walk["down"].startswith("A validation_loss, iteration 8: "), walk["down"])

    def check_controls(self, told):
        before = told["before"]
        self.assertEqual(told["steps"], before)
        for name in ("tokens", "samples", "seconds"):
            self.assertEqual(len(told[name]), len(before))
            self.assertIn(f", {name} ", told[name + " tip"][0])
        self.assertNotEqual(told["seconds"], before)
        self.assertEqual(len(told["smooth"]), 2 * len(before))
        self.assertEqual(told["smooth"][0], before[0], "the raw curve stays")
        self.assertNotEqual(told["logarithmic (l)"], before)
        self.assertLess(len(told["less run A"]), len(before))
        self.assertLess(len(told["C: experts"]), len(before))


if __name__ == "__main__":
    main()
