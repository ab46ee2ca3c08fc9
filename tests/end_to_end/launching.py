"""What the tests of tsrun share: its program, workers that misbehave on demand, and the check that nothing is left."""

import contextlib
import hashlib
import hmac
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import time

import harness


def beside_program(name):
    return pathlib.Path(harness.program()).parent / name


def worker():
    """tests/launch/launch_worker.cpp: STEPS [MISCHIEF RANK]."""
    return pathlib.Path(os.environ["TESSERA_BUILD"]) / "tests" / "launch_worker"


def compile_preloaded(folder, name):
    """tests/faults/NAME.cpp as a library for LD_PRELOAD."""
    source = pathlib.Path(os.environ["TESSERA_SOURCE"]) / "tests" / "faults" / f"{name}.cpp"
    library = folder / f"{name}.so"
    done = os.system(f"{os.environ['TESSERA_COMPILER']} -std=c++20 -O1 -shared -fPIC '{source}' -o '{library}' -ldl")
    assert done == 0, f"{source} does not compile"
    return library


# The handshake of launch/tsrun/handshake.h, once more: both sides. NO_SECRET is what those prove who have none.
NO_SECRET = "no secret"


def proof_of(prover, secret, role, client_nonce, leader_nonce):
    words = f"tsrun proof of the {prover}\n{role}\n{client_nonce}\n{leader_nonce}"
    return hmac.new(secret.encode(), words.encode(), hashlib.sha256).hexdigest()


def line_of(**message):
    return json.dumps(message).encode() + b"\n"


def read_line(end):
    """The next line, byte by byte: what follows stays in the socket."""
    line = b""
    while not line.endswith(b"\n"):
        byte = end.recv(1)
        if not byte:
            raise ConnectionError(f"closed after {line}")
        line += byte
    return json.loads(line)


def prove(end, secret=NO_SECRET, role="host"):
    """Connect as one who knows the secret. The lines that were sent, and the leader's answer."""
    nonce = os.urandom(32).hex()
    hello = {"is": "hello", "role": role, "nonce": nonce, "host": "b"}
    end.sendall(line_of(**hello))
    proof = {"is": "proof", "proof": proof_of("client", secret, role, nonce, read_line(end)["nonce"])}
    end.sendall(line_of(**proof))
    return [hello, proof], read_line(end)


def lead(end, secret=NO_SECRET):
    """Answer one who connects as a leader that knows the secret."""
    hello, nonce = read_line(end), os.urandom(32).hex()
    end.sendall(line_of(**{"is": "challenge", "nonce": nonce}))
    read_line(end)
    end.sendall(line_of(**{"is": "proven", "proof": proof_of("leader", secret, hello["role"], hello["nonce"], nonce)}))


class Launching(harness.InOwnFolder):
    """Every process of a test carries the test's folder in its environment, so tests may run side by side."""

    def setUp(self):
        super().setUp()
        (self.folder / "tmp").mkdir()
        self.addCleanup(self.end_everything)

    def environment(self, **more):
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PET_", "OMPI_", "PMIX_"))}
        path = f"{beside_program('tsrun').parent}:{worker().parent}:{os.environ['PATH']}"
        return {**kept, "PATH": path, "TMPDIR": str(self.folder / "tmp"), "LAUNCH_TEST": str(self.folder), **more}

    def start_tsrun(self, *words, before=(), tsrun=None, environment=None, **popen):
        """`before`: a command that runs tsrun, such as ip netns exec; `tsrun`: another copy of the program."""
        line = [*before, str(tsrun or beside_program("tsrun")), *map(str, words)]
        popen.setdefault("cwd", self.folder)
        return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True,
                                env=self.environment(**(environment or {})), **popen)

    def end_of(self, process, code=0, timeout=200):
        """What it printed, both streams in their order. Fails when the exit code is another."""
        try:
            told, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            told, _ = process.communicate()
            self.fail(f"tsrun still runs after {timeout} s:\n{told}")
        self.assertEqual(process.returncode, code, told)
        return told

    def tsrun(self, *words, code=0, timeout=200, **more):
        return self.end_of(self.start_tsrun(*words, **more), code, timeout)

    def free_port(self):
        """One that the kernel chooses, and gives to nobody until the test ends: tsrun can listen there, because both sockets allow it."""
        one = socket.socket()
        self.addCleanup(one.close)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]

    def script(self, name, words):
        path = self.write(name, "#!/bin/sh\n" + words + "\n")
        path.chmod(0o755)
        return f"./{name}"

    def log(self, name, folder="log"):
        return (self.folder / folder / name).read_text()

    def processes(self, name=None):
        """Process id -> its environment, of all processes of this test (those called `name`) that are alive."""
        mark, found = f"LAUNCH_TEST={self.folder}".encode(), {}
        for pid in os.listdir("/proc"):
            if not pid.isdigit() or int(pid) == os.getpid():
                continue
            try:
                variables = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                if mark in variables and name in (None, pathlib.Path(f"/proc/{pid}/comm").read_text().strip()):
                    found[int(pid)] = dict(v.decode(errors="replace").split("=", 1) for v in variables if b"=" in v)
            except OSError:
                continue  # it has ended meanwhile
        return found

    def end_everything(self):
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
                os.kill(pid, signal.SIGKILL)
        for folder in self.segments():
            shutil.rmtree(folder, ignore_errors=True)

    def segments(self):
        """The folders in memory of all jobs of this test."""
        logs = [path.read_text() for path in self.folder.rglob("scheduler.log")]
        return {name for words in logs for name in re.findall(r"/dev/shm/tsrun\.\w+\.shm", words)}

    def processes_of(self, rank, name="launch_worker"):
        """The process ids of a rank's program: one, or none."""
        return [pid for pid, variables in self.processes(name).items() if variables.get("RANK") == str(rank)]

    def process_of(self, rank, name="launch_worker", seconds=200):
        """The process id of a rank's program, as soon as there is one."""
        found = []

        def is_there():
            found[:] = self.processes_of(rank, name)
            return bool(found)
        self.wait_until(is_there, f"{name} of rank {rank}", seconds)
        return found[0]

    def assert_nothing_left(self):
        """No process, hence no port; no shared memory, no folder for small files."""
        until = time.monotonic() + 120  # the limit of a machine that hangs; processes that end are waited for
        while self.processes() and time.monotonic() < until:
            time.sleep(.02)
        self.assertEqual([pathlib.Path(f"/proc/{pid}/cmdline").read_text() for pid in self.processes()], [])
        self.assertEqual(list((self.folder / "tmp").iterdir()), [])
        segments = self.segments()
        self.assertEqual([name for name in segments if os.path.exists(name)], [])
        return segments
