"""Whatever strangers send to tsrun: nobody crashes, no job ends, no result changes."""

import contextlib
import copy
import json
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import time

import harness
import launching
from launching import Launching

LINES_OF_THE_ISSUE = ['{"is":"signal","signal":15}', '{"is":"signal"}', '{"is":"host"}', '{"is":"worker","rank":"one"}', '{"is":7}', "[]", "", "null"]


def examples():
    """One valid message of each kind."""
    folder = pathlib.Path(os.environ["TESSERA_SOURCE"]) / "tests/data/fuzz/message"
    return {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}


def places(value, path=()):
    """Where the values of a message stand; maps such as an environment count as one value."""
    if isinstance(value, dict) and path[-1:] != ("environment",):
        for key, inner in value.items():
            yield from places(inner, (*path, key))
    else:
        yield path


def changed(message, path, value):
    message = copy.deepcopy(message)
    inside = message
    for key in path[:-1]:
        inside = inside[key]
    if value is None:
        del inside[path[-1]]
    else:
        inside[path[-1]] = value
    return message


def ill_formed(message):
    """The message with each of its values missing, and of another type."""
    for path in places(message):
        if path == ("is",):
            continue
        inside = message
        for key in path:
            inside = inside[key]
        yield json.dumps(changed(message, path, None))
        yield json.dumps(changed(message, path, {} if isinstance(inside, list) else [1]))
        if isinstance(inside, int):
            yield json.dumps(changed(message, path, "1"))
            yield json.dumps(changed(message, path, -2**40))
    yield json.dumps({**message, "more": 1})


def mutated(rng, lines):
    """A line with some bytes changed, cut, or put in."""
    line = bytearray(rng.choice(lines).encode())
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(line) + 1)
        change = rng.randrange(4)
        if change == 0:
            line[at:at] = rng.choice([b'"', b"{", b"[" * 2000, b"-1", b"1e999", b"NaN", b"\xff", b"\n", b'{"is":"signal","signal":2}\n', b"99999999999999999999"])
        elif change == 1:
            del line[at:at + rng.randint(1, 12)]
        elif at < len(line):
            line[at] = rng.randrange(256)
    return bytes(line)


class Strangers(Launching):
    def setUp(self):
        super().setUp()
        seed = int.from_bytes(os.urandom(4), "big")
        self.rng = random.Random(seed)
        self.addCleanup(lambda: print(f"seed {seed}", flush=True))

    def connect(self, port):
        return socket.create_connection(("127.0.0.1", port), timeout=200)

    def wait_for_port(self, port):
        def answers():
            with contextlib.suppress(OSError):
                self.connect(port).close()
                return True
            return False
        self.wait_until(answers, f"somebody at port {port}")

    def pester(self, port, count, secret=None):
        """Send what strangers might, or what clients might that know the secret; some connections stay open, some close at once, in
        the middle of a line or not."""
        lines = [json.dumps(message) for message in examples().values()]
        whole = [line.encode() + b"\n" for line in LINES_OF_THE_ISSUE + lines]
        for words in whole + [mutated(self.rng, lines) + self.rng.choice([b"\n", b"\n", b""]) for _ in range(count)]:
            end = self.connect(port)
            self.addCleanup(end.close)
            if secret is not None:
                launching.prove(end, secret)
            with contextlib.suppress(OSError):
                end.sendall(words)
            if words not in whole and self.rng.random() < .5:
                end.close()


class LaunchStrangers(Strangers):
    def two_shells(self, port, *work):
        return [["--worker_num=4", "--local_worker_num=2", f"--master_port={port}", f"--node_rank={host}", f"--log_dir=logs{host}",
                 launching.worker(), *work] for host in range(2)]

    def until_over(self):
        """What the workers do until this test writes the file `over`."""
        return [100000, "until", self.folder / "over"]

    def assert_sums(self, told, steps=None):
        """`steps`: None: as many as the workers of until_over() say."""
        if steps is None:
            steps, = {int(count) for count in re.findall(r"after (\d+) steps", told)}
        total = sum(rank + step for rank in range(4) for step in range(1, steps + 1))
        self.assertEqual(set(re.findall(r"rank (\d) of 4: sum (\S+)", told)), {(str(rank), f"{total:g}") for rank in range(4)})

    def test_a_head_that_waits_goes_on_waiting(self):
        port = self.free_port()
        lines = self.two_shells(port, 5)
        leader = self.start_tsrun(*lines[0])
        self.wait_for_port(port)
        self.pester(port, 60, launching.NO_SECRET)
        self.pester(port, 200)
        self.assertIsNone(leader.poll(), "the leader has ended")
        other = self.start_tsrun(*lines[1])
        self.assert_sums(self.end_of(leader) + self.end_of(other), 5)
        self.assertIn("closed a connection from 127.0.0.1: ill-formed message 'host': 'info' is not there", self.log("scheduler.log", "logs0"))
        self.assertIn("a message 'signal', which is not expected here", self.log("scheduler.log", "logs0"))
        self.assert_nothing_left()

    def test_a_running_job_goes_on(self):
        port = self.free_port()
        jobs = [self.start_tsrun(*line) for line in self.two_shells(port, *self.until_over())]
        self.process_of(3)
        self.pester(port, 60, launching.NO_SECRET)
        self.pester(port, 200)
        self.assertEqual([job.poll() for job in jobs], [None, None], "the job was over before the strangers were")
        self.write("over", "")
        self.assert_sums("".join(self.end_of(job) for job in jobs))
        self.assert_nothing_left()

    def test_who_knows_the_key_cannot_take_the_place_of_a_worker(self):
        job = self.start_tsrun("--worker_num=4", launching.worker(), *self.until_over())
        self.process_of(0)
        supervisor = next(iter(v for v in self.processes("tsrun").values() if "TSRUN_KEY" in v))
        port = int(supervisor["TSRUN_LEADER"].split(":")[1])
        for rank in (-1, 0, 3, 4, 10**9):
            with self.connect(port) as end:
                launching.prove(end, supervisor["TSRUN_KEY"], "worker")
                end.sendall(json.dumps({**examples()["worker"], "rank": rank}).encode() + b"\n")
                self.assertEqual(end.recv(1), b"")
        with self.connect(port) as end:
            launching.prove(end, supervisor["TSRUN_KEY"], "worker")
            end.sendall(json.dumps(examples()["host"]).encode() + b"\n")
            self.assertEqual(end.recv(1), b"")
        with self.connect(port) as end:
            self.assertEqual(launching.prove(end, supervisor["TSRUN_KEY"], "host")[1]["is"], "refused")
        self.assertIsNone(job.poll(), "the job was over before the strangers were")
        self.write("over", "")
        self.assert_sums(self.end_of(job))
        self.assertIn("rank 3 a second time", self.log("scheduler.log"))
        self.assertIn("a message of another role than it has proven", self.log("scheduler.log"))

    def test_a_host_that_does_not_answer_is_not_counted(self):
        port = self.free_port()
        lines = self.two_shells(port, 5)
        leader = self.start_tsrun(*lines[0])
        self.wait_for_port(port)
        host = examples()["host"]
        wrong = [host, changed(host, ("info", "address"), "10.1.2.3"), changed(host, ("info", "problem"), "I am broken")]
        ends = [self.connect(port) for _ in wrong]
        for end, message in zip(ends, wrong):
            self.addCleanup(end.close)
            launching.prove(end)
            end.sendall(json.dumps(message).encode() + b"\n" + json.dumps(examples()["listening"]).encode() + b"\n")
        self.assertIn(b"refused", ends[1].recv(1000))
        other = self.start_tsrun(*lines[1])
        self.assert_sums(self.end_of(leader) + self.end_of(other), 5)
        self.assertIn("it names 10.1.2.3 as its address, but its connection comes from 127.0.0.1", self.log("scheduler.log", "logs0"))

    def test_many_idle_connections_and_a_line_that_trickles_keep_nobody_out(self):
        port = self.free_port()
        lines = self.two_shells(port, 5)
        leader = self.start_tsrun(*lines[0])
        self.wait_for_port(port)
        held = [self.connect(port) for _ in range(400)]
        for end in held:
            self.addCleanup(end.close)
            with contextlib.suppress(OSError):
                end.sendall(b'{"is":"ho')
        other = self.start_tsrun(*lines[1])
        self.assert_sums(self.end_of(leader) + self.end_of(other), 5)
        self.assert_nothing_left()


class FakeHead(Strangers):
    """A leader that says what no leader says: each process that it leads ends by itself, with a reason."""

    def setUp(self):
        super().setUp()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(200)
        self.addCleanup(self.listener.close)

    def lead(self, start, line, secret=None):
        """What the process prints, and its exit code, when its leader sends that line as its first, or first after its proof."""
        process = start()
        end, _ = self.listener.accept()
        with end:
            end.settimeout(200)
            if secret is not None:
                launching.lead(end, secret)
            end.sendall(line.encode() + b"\n")
            with contextlib.suppress(OSError):
                while end.recv(65536):
                    pass
        told, _ = process.communicate(timeout=200)
        return told, process.returncode

    def lines(self, *kinds):
        strangers = [json.dumps(m) for kind, m in examples().items() if kind in ("hello", "proof", "worker", "orders", "ended")]
        return LINES_OF_THE_ISSUE[1:] + strangers + [line for kind in kinds for line in ill_formed(examples()[kind])]

    def test_a_watcher_ends_with_a_reason(self):
        place = {"TSRUN_LEADER": "127.0.0.1:%d" % self.listener.getsockname()[1], "TSRUN_KEY": "a", "OMPI_COMM_WORLD_RANK": "1"}
        start = lambda: subprocess.Popen([str(launching.beside_program("tsrun")), "--as-worker"], stdin=subprocess.DEVNULL, text=True,
                                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=self.environment(**place), cwd=self.folder)
        for line in self.lines("start", "signal", "stop", "leave", "heartbeat"):
            told, code = self.lead(start, line, self.rng.choice(["a", "a", None]))
            self.assertEqual(code, 1, f"{line}: {told}")
            self.assertRegex(told, "worker on \\S+: the leading tsrun sent ", line)
        self.assert_nothing_left()

    def test_folders_are_deleted_though_mpirun_outlives_its_head(self):
        """mpirun dies a moment after the leader; what it writes meanwhile must not stay."""
        folder = self.folder / "tmp" / "tsrun.of_the_job"
        # Writes without processes of its own, which would outlive it; the worker may delete the folder between both calls.
        self.write("writer.py", f"""import os
while True:
    try:
        os.makedirs("{folder}/session", exist_ok=True)
        open("{folder}/session/file", "w").close()
    except OSError:
        pass
""")
        self.script("mpirun.sh", f"{launching.beside_program('tsrun')} --as-worker & exec python3 writer.py")
        place = {"TSRUN_LEADER": "127.0.0.1:%d" % self.listener.getsockname()[1], "TSRUN_KEY": "a", "OMPI_COMM_WORLD_RANK": "0",
                 "TSRUN_FOLDERS": str(folder)}
        mpirun = subprocess.Popen(["./mpirun.sh"], env=self.environment(**place), cwd=self.folder)
        end, _ = self.listener.accept()
        launching.lead(end, "a")
        self.wait_until(folder.exists, "the folder")
        end.close()
        self.assertEqual(mpirun.wait(timeout=200), -signal.SIGKILL)
        self.wait_until(lambda: not folder.exists(), "the worker, which outlives mpirun, to delete the folder")
        self.assert_nothing_left()

    def test_a_follower_ends_with_a_reason(self):
        start = lambda: self.start_tsrun("--nnodes=2", "--node_rank=1", f"--master_port={self.listener.getsockname()[1]}", "true")
        lines = self.lines("listen", "try", "welcome", "run", "refused", "end")
        for line in self.rng.sample(lines, 24):
            told, code = self.lead(start, line, self.rng.choice([launching.NO_SECRET, launching.NO_SECRET, None]))
            self.assertEqual(code, 1, f"{line}: {told}")
            self.assertRegex(told, "the leading tsrun, on 127.0.0.1, sent (ill-formed|a message|a line)", line)
        self.assert_nothing_left()


class LaunchLoopback(Launching):
    def listening(self):
        """(address, process) of every socket on which a process of this test listens."""
        pids = self.processes()
        lines = subprocess.run(["ss", "-ltnpH"], stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
        return {(line.split()[3].rsplit(":", 1)[0], name) for line in lines
                for name, pid in re.findall(r'\("([^"]+)",pid=(\d+)', line) if int(pid) in pids}

    def test_a_job_on_one_host_listens_at_the_loopback_interface_only(self):
        address = subprocess.run(["hostname", "-I"], stdout=subprocess.PIPE, text=True).stdout.split()
        for master in ([], ["--master_addr", address[0]] if address else []):
            job = self.start_tsrun("--nproc_per_node=2", *master, launching.worker(), 100000)
            self.process_of(1)
            self.wait_until(lambda: "all workers have connected" in self.log("scheduler.log"), "a start")
            time.sleep(1)  # MPI_Init of the workers
            found = self.listening()
            self.assertTrue({"tsrun", "mpirun"} <= {name for _, name in found} or {"tsrun", "orterun"} <= {name for _, name in found}, found)
            self.assertEqual({a for a, _ in found if a not in ("127.0.0.1", "[::1]")}, set(), found)
            job.send_signal(signal.SIGTERM)
            self.end_of(job, 128 + signal.SIGTERM)
            (self.folder / "log" / "scheduler.log").unlink()


if __name__ == "__main__":
    harness.main()
