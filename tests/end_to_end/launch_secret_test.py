"""Who may connect to a job on several hosts: only who knows its secret. Strangers in a third network namespace change nothing."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import harness
import launch_hosts_test
import launching

SECRET, OTHER = "the secret of all hosts of a test", "the secret of another test"
LEADER_PORT = 8848
DAEMON_PORTS, RANK_PORTS = range(61000, 62000), range(62000, 65000)  # docs/launching.md

# Run in a namespace of their own, with the folder of this file as working directory.

STRANGERS = '''
import contextlib, os, resource, socket, sys, time
import launching
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
address, port, secret, how = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
def connect():
    return socket.create_connection((address, port), timeout=200)
def attempt(words):
    """Send it, to the end or as far as the leader listens; the connection stays open."""
    end = connect()
    with contextlib.suppress(OSError):
        end.sendall(words)
    return end
def replayed(lines):
    """What a right handshake said, said again, at once and line by line: the leader's answer to the proof."""
    answers = []
    for waits in (False, True):
        end = connect()
        end.sendall(launching.line_of(**lines[0]))
        if waits:
            launching.read_line(end)
        end.sendall(launching.line_of(**lines[1]))
        if not waits:
            launching.read_line(end)
        answers.append(launching.read_line(end)["is"])
        end.close()
    return answers
def first():
    for _ in range(1000):
        with contextlib.suppress(ConnectionRefusedError):
            return connect()
        time.sleep(.03)
def misbehave():
    assert replayed(recorded) == ["refused", "refused"]
    assert launching.prove(connect(), "another secret, as long")[1]["is"] == "refused"
    return [attempt(words) for words in (os.urandom(3000), os.urandom(100000), b"x" * 4096, b"\\n" * 5000, b'{"is":"hel', b"GET / HTTP/1.1\\r\\n\\r\\n",
        b'{"is":"signal","signal":15}\\n', b'{"is":"worker","attempt":0,"rank":0,"host":"b"}\\n', b"[" * 4000 + b"\\n", b"")]
recorded, answer = launching.prove(first(), secret)
assert answer["is"] == "proven", answer
print("begun", flush=True)
while how == "quickly":
    ends = misbehave()
    print("round", flush=True)
ends, slow = misbehave(), connect()
for byte in b'{"is":':
    with contextlib.suppress(OSError):
        slow.sendall(bytes([byte]))
    time.sleep(1)
for _ in range(1000):
    end = socket.socket()
    end.setblocking(False)
    end.connect_ex((address, port))
    ends.append(end)
time.sleep(2)
ends += misbehave()
print("done", flush=True)
'''

SCAN = '''
import errno, select, socket, sys
for address in sys.argv[1:]:
    found = []
    for begin in range(1, 65536, 512):
        ends, poll = {}, select.epoll()
        for port in range(begin, min(begin + 512, 65536)):
            end = socket.socket()
            end.setblocking(False)
            code = end.connect_ex((address, port))
            if code == errno.EINPROGRESS:
                ends[end.fileno()] = (end, port)
                poll.register(end, select.EPOLLOUT | select.EPOLLERR | select.EPOLLHUP)
            elif code == 0:
                found.append(port)
        while ends:
            ready = poll.poll(60)  # every connection is made or refused, on a busy machine late
            if not ready:
                break
            for number, _ in ready:
                end, port = ends.pop(number)
                if end.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0:
                    found.append(port)
                end.close()
    print(address, *found, flush=True)
'''

# Writes every byte of the network between the hosts to a file.
LISTEN = '''
import socket, sys
end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
end.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
end.bind((sys.argv[1], 0))
with open(sys.argv[2], "wb") as file:
    print("listening", flush=True)
    while True:
        file.write(end.recv(65536)[54:])
        file.flush()
'''


class LaunchSecret(launch_hosts_test.Hosts):
    def setUp(self):
        super().setUp()
        self.secret_file("secret", SECRET)

    def secret_file(self, name, words):
        path = self.write(name, words + "\n")
        path.chmod(0o600)
        return path

    def start_host(self, host, *words, secret="--secret_file=secret", **more):
        return super().start_host(host, *([secret] if secret else []), *words, **more)

    def start_python(self, program, *words, on="h2"):
        process = subprocess.Popen([*self.on(on), sys.executable, "-c", program, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   text=True, cwd=os.path.dirname(os.path.abspath(__file__)), env=self.environment(PYTHONDONTWRITEBYTECODE="1"))
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def open_ports(self, *addresses):
        """Address -> the ports where the third namespace can connect."""
        told = self.end_of(self.start_python(SCAN, *addresses), timeout=200)
        return {line.split()[0]: {int(port) for port in line.split()[1:]} for line in told.splitlines()}

    def listening(self, host):
        """The sockets of a host that listen for connections of TCP, as the kernel lists them."""
        told = self.command(*self.on(host), "cat", "/proc/net/tcp", "/proc/net/tcp6")
        return [line for line in told.splitlines() if line.split()[3] == "0A"]

    def undisturbed_sums(self, steps):
        return {f"rank {rank} of 4: sum {sum(4 * step + 6 for step in range(1, steps + 1)):g}" for rank in range(4)}

    def sums(self, *told):
        return set(re.findall(r"rank \d of 4: sum \S+", "".join(told)))

    def test_strangers_do_not_change_a_run_and_find_no_port_beside_the_documented(self):
        self.add_host(2)
        jobs = [self.start_host(host, program=[launching.worker(), 100000, "until", self.folder / "over"]) for host in range(2)]
        self.process_of(3)
        self.wait_until(lambda: "all workers have connected" in self.log("scheduler.log", "logs0"), "a start")
        strangers = self.start_python(STRANGERS, "10.77.0.1", LEADER_PORT, SECRET, "slowly")
        self.assertEqual(strangers.stdout.readline(), "begun\n")
        found = self.open_ports("10.77.0.1", "10.77.0.2")
        self.assertEqual(self.end_of(strangers), "done\n")
        self.assertEqual([job.poll() for job in jobs], [None, None], "the job was over before the strangers were")
        self.assertIn(LEADER_PORT, found["10.77.0.1"])
        self.assertTrue(self.listening("h0") and self.listening("h1"))
        self.assertTrue(found["10.77.0.1"] & set(RANK_PORTS) and found["10.77.0.2"] & set(RANK_PORTS), found)
        for address, ports in found.items():
            documented = {*DAEMON_PORTS, *RANK_PORTS, *([LEADER_PORT] if address == "10.77.0.1" else [])}
            self.assertEqual(ports - documented, set(), address)
        self.write("over", "")
        told = [self.end_of(job) for job in jobs]
        steps = {int(count) for count in re.findall(r"after (\d+) steps", "".join(told))}
        self.assertEqual(len(steps), 1, told)
        self.assertGreater(min(steps), 0)
        self.assertEqual(self.sums(*told), self.undisturbed_sums(*steps))
        self.assertEqual([self.listening(host) for host in ("h0", "h1")], [[], []])
        log = self.log("scheduler.log", "logs0")
        for why in ("it does not know the secret of the job", "a line that is not a message of tsrun", "more bytes than it may send"):
            self.assertIn(f"closed a connection from 10.77.0.3: {why}", log)
        self.assert_nothing_left()

    def test_strangers_do_not_change_the_numbers_of_training(self):
        self.add_host(2)

        def start(run, *more):
            train = ["tessera", "train", "tiny.yaml", *harness.sets(training_iters=60, output_dir=run), *more]
            return [self.start_host(host, "--tail_worker_log=9", program=train) for host in range(2)]
        for job in start("undisturbed"):
            self.end_of(job)
        # Rank 1 stops in step 50 until the strangers have had their rounds, however slow they are: the run waits for them.
        jobs = start("run", "--set", "resilience_config.inject_fault=[1:50:forward:stop]", "--set", "resilience_config.step_time_out=600")
        self.wait_until(lambda: self.steps_logged("run") >= 1, "a step", job=jobs[0])
        strangers = self.start_python(STRANGERS, "10.77.0.1", LEADER_PORT, SECRET, "quickly")
        for expected in ("begun\n", *4 * ["round\n"]):
            told = strangers.stdout.readline()
            self.assertEqual(told, expected, told + ("" if told == expected else strangers.communicate()[0]))
        pid = self.process_of(1, "tessera")
        self.wait_until(lambda: self.is_stopped(pid), "the stop in step 50", job=jobs[0])
        os.kill(pid, signal.SIGCONT)
        for job in jobs:
            self.end_of(job)
        strangers.kill()
        strangers.communicate()
        self.assert_same_run("undisturbed", "run")
        self.assert_nothing_left()

    def test_a_host_with_a_wrong_secret_is_named_and_the_job_waits_on(self):
        self.secret_file("other", OTHER)
        leader = self.start_host(0)
        wait_for_leader = lambda: "waiting at" in (self.folder / "logs0/scheduler.log").read_text()
        self.wait_until(lambda: (self.folder / "logs0/scheduler.log").exists() and wait_for_leader(), "the leader")
        for secret, reason in (("--secret_file=other", "the secret that is given here is another one than there"), (None, "it asks for a secret")):
            told = self.end_of(self.start_host(1, secret=secret), code=2)
            self.assertRegex(told, rf"^tsrun: the leading tsrun, at 10.77.0.1:8848, refuses \S+, this host: {reason}")
            self.assertEqual(len(told.splitlines()), 1, told)
        told = [self.end_of(self.start_host(1, "--log_level=info")), self.end_of(leader)]
        self.assertEqual(self.sums(*told), self.undisturbed_sums(5))
        refusals = [line for line in told[1].splitlines() if "refused the tsrun" in line]
        self.assertEqual(len(refusals), 1, told[1])
        self.assertRegex(refusals[0], r"refused the tsrun on \S+ \(10.77.0.2\): it does not know the secret of this job")
        self.assertNotIn(SECRET, "".join(told))
        self.assert_nothing_left()

    def test_a_host_with_a_wrong_secret_is_named_again_when_the_job_does_not_begin(self):
        self.secret_file("other", OTHER)
        leader = self.start_host(0, "--cluster_time_out=8")
        self.end_of(self.start_host(1, secret="--secret_file=other"), code=2)
        self.assertRegex(self.end_of(leader, code=1), r"after 8 s only 2 of 4 workers' hosts have connected: .*; 10.77.0.2 has a wrong secret")

    def test_without_a_secret_tsrun_says_so_or_refuses(self):
        jobs = [self.start_host(host, secret=None) for host in (1, 0)]
        told = [self.end_of(job) for job in jobs]
        self.assertEqual(self.sums(*told), self.undisturbed_sums(5))
        said = [line for line in told[1].splitlines() if "no secret is given: any program that reaches port 8848 of 10.77.0.1 can take part" in line]
        self.assertEqual(len(said), 1, told[1])
        self.assertNotIn("no secret is given", told[0])
        for host in range(2):
            told = self.end_of(self.start_host(host, "--require_secret", secret=None), code=2)
            self.assertRegex(told, r"^tsrun: --require_secret: no secret is given; give all hosts the same --secret_file or TSRUN_SECRET")
        jobs = [self.start_host(host, "--require_secret", secret=None, environment={"TSRUN_SECRET": SECRET}) for host in range(2)]
        self.assertEqual(self.sums(*[self.end_of(job) for job in jobs]), self.undisturbed_sums(5))
        (self.folder / "secret").chmod(0o644)
        told = self.end_of(self.start_host(0), code=2)
        self.assertRegex(told, r"^tsrun: --secret_file secret: others than its owner have access to it")
        self.assert_nothing_left()

    def secrets_of_processes(self):
        """The keys in the environment of the supervisors and daemons, which only their owner can read."""
        return {variables["TSRUN_KEY"] for variables in self.processes().values() if "TSRUN_KEY" in variables}

    def assert_secrets_are_nowhere(self, secrets, *told):
        """On no command line now; in no output, log or file, and in nothing that the hosts said to each other."""
        lines = b"".join((pathlib.Path(f"/proc/{pid}/cmdline")).read_bytes() for pid in self.processes())
        heard = (self.folder / "heard").read_bytes()
        self.assertIn(b'"is":"proof"', heard)
        self.assertIn(b'"is":"welcome"', heard)
        for secret in map(str.encode, secrets):
            self.assertNotIn(secret, lines)
            self.assertNotIn(secret, heard)
            self.assertNotIn(secret, "".join(told).encode())
            for path in self.folder.rglob("*"):
                if path.is_file() and path.name not in ("secret", "orders", "heard"):
                    self.assertNotIn(secret, path.read_bytes(), path)

    def test_the_secret_is_never_sent(self):
        listening = self.start_python(LISTEN, "port1", self.folder / "heard", on="s")
        self.assertEqual(listening.stdout.readline(), "listening\n")
        shows_its_variables = ["sh", "-c", f"env > variables.$RANK; exec {launching.worker()} 100000 until {self.folder / 'over'}"]
        agent = self.script("agent.sh", f"shift; tee orders | ip netns exec {self.mark}h1 unshare --uts sh -c \"hostname h1; $*\"")
        listed = ["--hosts=10.77.0.1:2,10.77.0.2:2", "--agent", agent, "--log_dir=logs0"]
        for kind in ("same line", "--hosts"):
            if kind == "--hosts":
                jobs = [self.start_tsrun(*listed, *shows_its_variables, before=self.on("h0"))]
            else:
                jobs = [self.start_host(host, program=shows_its_variables, environment={"TSRUN_SECRET": SECRET}, secret=None) for host in range(2)]
            self.process_of(3)
            self.process_of(0)
            keys = self.secrets_of_processes()
            self.assertEqual(len(keys), 1, keys)
            heard = self.folder / "heard"
            self.wait_until(lambda: all(words in heard.read_bytes() for words in (b'"is":"proof"', b'"is":"welcome"')), "the handshake between the hosts")
            time.sleep(.5)
            secrets = keys | {json.loads((self.folder / "orders").read_text())["secret"] if kind == "--hosts" else SECRET}
            self.assert_secrets_are_nowhere(secrets)
            self.write("over", "")
            told = [self.end_of(job) for job in jobs]
            (self.folder / "over").unlink()
            steps, = {int(count) for count in re.findall(r"after (\d+) steps", "".join(told))}
            self.assertEqual(self.sums(*told), self.undisturbed_sums(steps))
            self.assert_secrets_are_nowhere(secrets, *told)
            for path in self.folder.glob("variables.*"):
                self.assertNotIn("TSRUN_", path.read_text())
        self.end_of_python(listening)
        self.assert_nothing_left()

    def end_of_python(self, process):
        process.send_signal(signal.SIGKILL)
        process.wait()


if __name__ == "__main__":
    harness.main()
