"""tessera watch in a terminal (tmux, a pseudo terminal), as lines, and as a server."""

import http.client
import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import termios

import harness
from harness import InOwnFolder, program

HERE = pathlib.Path(__file__).resolve().parent
PYTHON = os.environ.get("TESSERA_TEST_PYTHON") or sys.executable


def row(iteration, **more):
    return json.dumps({"iteration": iteration, "consumed_samples": iteration * 8, "loss": 5.0 / iteration, "grad_norm": 1.5,
                       "learning_rate": 1e-3, "tokens_per_second": 1000.0, "step_seconds": 0.1, **more}) + "\n"


class WatchFolder(InOwnFolder):
    def make_run(self, name="run", rows=9, events=()):
        folder = self.folder / name
        folder.mkdir()
        if rows:
            (folder / "metrics.jsonl").write_text("".join(row(i + 1) for i in range(rows)))
        if events:
            (folder / "events.jsonl").write_text("".join(json.dumps({"time": 1000.0 + i, **event}) + "\n"
                                                         for i, event in enumerate(events)))
        return folder

    FAILED = ({"event": "start", "iteration": 0}, {"event": "failed", "iteration": 9, "message": "rank 1: no memory"})


class WatchInATerminal(WatchFolder):
    def setUp(self):
        super().setUp()
        if shutil.which("tmux") is None:
            self.skipTest("skipped: tmux is not installed")
        self.socket = self.folder / "tmux"
        self.addCleanup(self.tmux, "kill-server", check=False)

    def tmux(self, *words, check=True):
        return subprocess.run(["tmux", "-S", str(self.socket), "-f", "/dev/null", *words], check=check, capture_output=True,
                              text=True, env={**os.environ, "LC_ALL": "C.UTF-8", "TERM": "xterm-256color"}).stdout

    def open(self, *words, columns=80, rows=24):
        # The code comes last: who sees it sees the modes of the terminal, too.
        command = f"'{program()}' watch {' '.join(words)}; code=$?; stty -a; echo code $code; exec cat"
        self.tmux("-u", "new-session", "-d", "-x", str(columns), "-y", str(rows), "-c", str(self.folder), command)

    def screen(self):
        return self.tmux("capture-pane", "-p")

    def wait_for(self, *words):
        """The screen that shows all of them: one is drawn in pieces."""
        seen = [""]

        def shows():
            seen[0] = self.screen()
            return all(word in seen[0] for word in words)
        self.wait_until(shows, f"the screen shows {words}")
        return seen[0]

    def test_a_run_is_shown_in_80x24_and_keys_change_what_is_shown(self):
        folder = self.make_run()
        self.open("run")
        screen = self.wait_for("iteration 9", "run", "loss 0.5556", "grad_norm 1.5", "learning_rate 0.001", "tokens_per_second", "? keys")
        self.assertRegex(screen, "[\u2801-\u28ff]")
        with (folder / "metrics.jsonl").open("a") as file:
            file.write(row(10))
        self.wait_for("iteration 10")
        self.tmux("send-keys", "?")
        self.wait_for("Keys of tessera watch")
        self.tmux("send-keys", "?")
        self.wait_for("iteration 10")
        self.tmux("send-keys", "l")
        self.wait_for("loss 0.5, log scale")
        self.tmux("send-keys", "-l", "/grad")
        self.wait_for("curves with: grad_")
        self.tmux("send-keys", "Enter")
        self.wait_until(lambda: "curves with: grad " in self.screen() and "tokens_per_second" not in self.screen(), "curves of grad alone")
        self.tmux("send-keys", "Escape")
        self.wait_for("tokens_per_second")
        self.tmux("resize-window", "-x", "40", "-y", "10")
        self.wait_until(lambda: max(map(len, self.screen().splitlines())) <= 40 and "iteration 10" in self.screen(), "40 x 10")
        self.tmux("resize-window", "-x", "10", "-y", "10")
        self.wait_for("too small")
        self.tmux("resize-window", "-x", "100", "-y", "30")
        self.wait_for("tokens_per_second")
        self.tmux("send-keys", "q")
        screen = self.wait_for("code 0")
        self.assertIn("icanon", screen.replace("-icanon", ""))
        self.assertNotIn("grad_norm", screen, "the first screen is back")

    def test_a_killed_run_tells_its_root_cause_and_a_resumed_one_where_it_went_back_to(self):
        self.make_run("dead", events=self.FAILED)
        self.make_run("again", events=({"event": "start", "iteration": 0}, {"event": "saved", "iteration": 9},
                                       {"event": "start", "iteration": 4}))
        self.make_run("empty", rows=0)
        self.open("dead", "again", "empty")
        self.wait_for("A dead", "died: rank 1: no memory")
        self.tmux("send-keys", "Down")
        self.wait_for("resumed at iteration 4 after 9")
        self.tmux("send-keys", "Down")
        self.wait_for("C empty  not begun")


class WatchRestoresTheTerminal(WatchFolder):
    def ended_by(self, number):
        """The mode of a terminal before and after, the exit status, and what was written to it."""
        self.make_run()
        master, slave = pty.openpty()
        self.addCleanup(os.close, master)
        self.addCleanup(os.close, slave)
        before = termios.tcgetattr(slave)
        process = subprocess.Popen([program(), "watch", "run"], cwd=self.folder, stdin=slave, stdout=slave, stderr=slave,
                                   env={**os.environ, "TERM": "xterm", "NO_COLOR": "1"})
        written = b""

        def read():
            nonlocal written
            while select.select([master], [], [], 0)[0]:
                written += os.read(master, 65536)
            return written

        self.wait_until(lambda: b"keys" in read(), "the first screen")
        self.assertNotEqual(termios.tcgetattr(slave), before, "raw mode")
        process.send_signal(number)
        self.wait_until(lambda: read() and process.poll() is not None, "the program ended")
        return before, termios.tcgetattr(slave), process.returncode, read()

    def check(self, number, code):
        before, after, status, written = self.ended_by(number)
        self.assertEqual(after, before)
        self.assertEqual(status, code)
        self.assertTrue(written.endswith(b"\x1b[?25h\x1b[?1049l"), written[-80:])
        self.assertNotRegex(written, rb"\x1b\[[0-9;]*3[1-7]m", "NO_COLOR")

    def test_sigterm_restores_the_terminal(self):
        self.check(signal.SIGTERM, -signal.SIGTERM)

    def test_an_interrupt_restores_the_terminal(self):
        self.check(signal.SIGINT, 0)

    def test_a_crash_restores_the_terminal(self):
        self.check(signal.SIGABRT, -signal.SIGABRT)


class WatchInLines(WatchFolder):
    def test_a_pipe_gets_a_line_for_each_step_and_event_without_control_characters(self):
        folder = self.make_run(events=({"event": "note", "iteration": 2, "message": "\x1b[2J evil"},
                                       {"event": "finished", "iteration": 9}))
        told = self.tessera("watch", "run")
        self.assertEqual(re.findall(r"iteration (\d+)  loss", told), [str(i) for i in range(1, 10)])
        self.assertIn("state: finished", told)
        self.assertIn("\\u001b[2J evil", told)
        self.assertNotRegex(told, "[\x00-\x09\x0b-\x1f]")
        self.assertEqual({file.name for file in folder.iterdir()}, {"metrics.jsonl", "events.jsonl"}, "nothing is written")

    def test_runs_below_the_current_folder_are_found_and_none_is_an_error(self):
        self.assertIn("there is no run folder", self.tessera("watch", code=2))
        self.make_run("somewhere", events=({"event": "finished", "iteration": 9},))
        self.assertIn("state: finished", self.tessera("watch"))
        self.assertIn("does not exist", self.tessera("watch", "absent", code=2))

    def test_a_real_run_is_followed_to_its_end(self):
        run = self.start("train", self.recipe(training_iters=6))
        self.wait_until(lambda: (self.folder / "run").is_dir() or run.poll() is not None, "the run folder", 100)
        watch = self.start("watch", "--interval", "0.2", "run")
        out, err = watch.communicate(timeout=200)
        run.communicate(timeout=100)
        self.assertEqual(run.returncode, 0)
        self.assertEqual(watch.returncode, 0, err)
        self.assertEqual(re.findall(r"iteration (\d+)  loss", out), [str(i) for i in range(1, 7)], out)


class WatchServer(WatchFolder):
    def serve(self, *words):
        process = self.start("watch", "--serve", *words)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)  # the last added is called first
        line = process.stdout.readline()
        found = re.fullmatch(r"http://127\.0\.0\.1:(\d+)(/\?token=[0-9a-f]{32})\n", line)
        self.assertTrue(found, line)
        return process, int(found[1]), found[2]


class WatchInABrowser(WatchServer):
    def test_the_served_page_takes_over_what_is_new_and_keeps_zoom_focus_scroll_and_selection(self):
        folder = self.make_run(rows=40, events=({"event": "start", "iteration": 0},))
        process, port, path = self.serve("run")
        done = subprocess.run([PYTHON, "-B", HERE / "live_browser.py", f"http://127.0.0.1:{port}{path}", folder, str(process.pid)],
                              capture_output=True, text=True, timeout=280)
        if done.returncode == 77:
            self.skipTest("no chromium, chromium-driver, or Python with selenium and axe-playwright-python; name one in TESSERA_TEST_PYTHON")
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        told = json.loads(done.stdout)
        before, after = told["before"], told["after"]
        for name in ("ticks", "tip", "focus", "scroll", "open", "log", "scrolled", "selected"):
            self.assertEqual(after[name], before[name], name)
        self.assertTrue(after["zoomed"].startswith(before["zoomed"]), "new points alone are added")
        self.assertEqual(before["tip"], ["iteration 4", "● loss: 1.25"])
        self.assertTrue(before["focus"] and before["log"] and before["selected"])
        self.assertEqual(before["open"], ["Values of Loss as a table"])
        self.assertGreater(min(before["scroll"], before["scrolled"]), 0)
        self.assertEqual((before["iterations"], after["iterations"]), ("iterations40", "iterations60"))
        self.assertEqual(set(after["charts"]) - set(before["charts"]), {"new_key"})
        self.assertRegex(before["live"], "^Live: last read at ")
        self.assertEqual(told["end"], "loss, iteration 60: " + str(5.0 / 60))
        self.assertEqual((told["images"], told["axe"], told["console"]), (0, [], []))
        self.assertGreater(len(told["requests"]), 2)
        self.assertEqual(set(told["requests"]), {f"http://127.0.0.1:{port}{path}"})
        for words in told["gone"]:
            self.assertIn("Not read again: the command that serves this page does not answer", words)


class WatchServes(WatchServer):
    def test_the_commands_of_the_page_of_documentation_run(self):
        page = (pathlib.Path(os.environ["TESSERA_SOURCE"]) / "docs/watch.md").read_text()
        commands = [line.split("#")[0].split() for line in re.search("```sh\n(.*?)```", page, re.DOTALL)[1].splitlines()]
        (self.folder / "runs").mkdir()
        for name in ("runs/a", "runs/b"):
            self.make_run(name, events=({"event": "finished", "iteration": 9},))
        for words in commands:
            self.assertEqual(words[:2], ["tessera", "watch"])
            if "--serve" in words:
                self.serve("0", *words[words.index("--serve") + 2:])  # not the page's port, which may be in use here
            else:
                self.assertIn("state: finished", self.tessera(*words[1:]))
        self.assertEqual(len(commands), 3)

    def ask(self, port, path, method="GET", headers=None, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=100)
        connection.request(method, path, body=body, headers=headers or {})
        answer = connection.getresponse()
        words = answer.read().decode()
        connection.close()
        return answer, words

    def test_only_the_address_with_its_token_gets_the_page(self):
        self.make_run(events=self.FAILED)
        process, port, path = self.serve("0", "run")
        answer, page = self.ask(port, path)
        self.assertEqual(answer.status, 200)
        self.assertIn("no memory", page)
        self.assertEqual(answer.headers["Cache-Control"], "no-store")
        self.assertEqual(answer.headers["X-Content-Type-Options"], "nosniff")
        self.assertEqual(answer.headers["Referrer-Policy"], "no-referrer")
        self.assertIn("default-src 'none'", answer.headers["Content-Security-Policy"])
        answer, page = self.ask(port, path, "HEAD")
        self.assertEqual((answer.status, page), (200, ""))
        own = f"http://127.0.0.1:{port}"
        self.assertEqual(self.ask(port, path, headers={"Origin": own})[0].status, 200)
        for wrong, headers in (("/", {}), ("/?token=" + "0" * 32, {}), (path + "0", {}),
                               (path, {"Host": "evil.example"}), (path, {"Host": "evil.example:%d" % port}),
                               (path, {"Origin": "http://evil.example"}), (path, {"Origin": "null"}),
                               (path, {"Origin": own + ".evil.example"})):
            answer, words = self.ask(port, wrong, headers=headers)
            self.assertEqual(answer.status, 403, (wrong, headers))
            self.assertNotIn("no memory", words)
            self.assertEqual(len(words.splitlines()), 1)
        self.assertEqual(self.ask(port, path.replace("/?", "/other?"))[0].status, 404)
        for method in ("POST", "PUT", "DELETE", "OPTIONS"):
            answer, words = self.ask(port, path, method, body="x=1" if method == "POST" else None)
            self.assertEqual((answer.status, answer.headers["Allow"]), (405, "GET, HEAD"), method)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(timeout=100), 0)
        with self.assertRaises(ConnectionRefusedError):
            self.ask(port, path)

    def test_the_page_of_a_live_run_reads_itself_again_and_that_of_a_finished_one_does_not(self):
        folder = self.make_run()
        _, port, path = self.serve("run")
        page = self.ask(port, path)[1]
        self.assertIn('<p id="live"', page)
        self.assertRegex(page, "default-src 'none'[^\"]*connect-src 'self'")
        with (folder / "metrics.jsonl").open("a") as file:
            file.write(row(10, loss=123.456))
        self.assertNotIn("123.456", page)
        self.assertIn("123.456", self.ask(port, path)[1])
        (folder / "events.jsonl").write_text(json.dumps({"time": 1000.0, "event": "finished", "iteration": 10}) + "\n")
        page = self.ask(port, path)[1]
        self.assertNotIn('<p id="live"', page)
        self.assertNotRegex(page, "default-src 'none'[^\"]*connect-src")

    def test_a_port_in_use_is_one_clear_message(self):
        self.make_run()
        _, port, _ = self.serve("run")
        self.assertIn(f"--serve {port}: this port of 127.0.0.1 is in use", self.tessera("watch", "--serve", port, "run", code=2))
        self.assertIn("is no port", self.tessera("watch", "--serve", "70000", "run", code=2))
        self.assertIn("--plain", self.tessera("watch", "--serve", "0", "--plain", "run", code=2))

    def test_other_interfaces_are_not_served(self):
        self.make_run()
        _, port, _ = self.serve("run")
        with socket.socket(socket.AF_INET) as other:
            other.settimeout(20)
            self.assertNotEqual(other.connect_ex(("127.0.0.2", port)), 0)


if __name__ == "__main__":
    harness.main()
