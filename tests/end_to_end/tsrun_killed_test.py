"""tsrun is killed with SIGKILL, alone or with all processes of its job: no step is lost, and the same command continues."""

import collections
import contextlib
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import time

import harness
import launch_hosts_test
from faults_test import Faults, inject, line_of
from harness import sets
from in_turn import mpirun
from launching import Launching

STEPS = 200
LENGTH = sets(training_iters=STEPS)
# A start that is killed does not end before; those that continue from its state have other numbers.
HELD = inject(["1:190:forward:stop:0", "1:195:forward:stop:1"])


class Killed(Launching):
    state, assert_nothing_lost = Faults.state, Faults.assert_nothing_lost

    def folders(self, run):
        words = (self.folder / run / "log/scheduler.log").read_text()
        return [pathlib.Path(name) for name in sorted(set(re.findall(r"/dev/shm/tsrun\.\w+\.shm", words)))]

    def kill_all(self):
        """At once: nobody sees another one die."""
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in self.processes():
                with contextlib.suppress(ProcessLookupError):  # it has ended since it was listed
                    os.kill(pid, number)
        self.wait_until(lambda: not self.processes(), "the end of all processes")

    def running(self, run, line, steps=20):
        job = self.start_tsrun(*line)
        self.wait_until(lambda: self.steps_logged(run) >= steps, f"{steps} steps")
        return job

    def killed_alone(self, configuration):
        self.tsrun(*line_of(configuration, "undisturbed", *LENGTH), timeout=120)
        # Rank 1 stops in step 50, so that tsrun is killed before step 100, and in step 100, so that the lease ends before the run.
        line = line_of(configuration, "disturbed", *LENGTH, *inject(["1:50:forward:stop", "1:100:forward:stop"]),
                       "--set", "resilience_config.step_time_out=600")
        job = self.running("disturbed", ["--lease=3", *line])
        held = self.process_of(1, "tessera")
        self.wait_until(lambda: self.is_stopped(held), "the stop of rank 1", job=job)
        refused = self.tsrun(*line, code=2)
        self.assertIn(f"this command is already running as process {job.pid}", refused)
        job.kill()
        job.wait()
        self.assertIn("whose tsrun was killed: its workers save their state and end soon", self.tsrun(*line, code=2))
        os.kill(held, signal.SIGCONT)
        self.end_of(job, -signal.SIGKILL)
        asked = lambda: self.is_stopped(held) and self.is_pending(held, signal.SIGTERM)
        latest = time.monotonic() + 30  # rank 1 may have taken the signal at the moment before it stopped
        self.wait_until(lambda: asked() or not self.processes_of(1, "tessera") or time.monotonic() > latest, "the end of the lease")

        def have_ended():
            """Rank 1 goes on; on a slow machine the lease ends before its iteration 100."""
            for pid in self.processes_of(1, "tessera"):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
            return not self.processes()
        self.wait_until(have_ended, "the workers' own end")
        after = self.steps_logged("disturbed")
        self.assertGreaterEqual(after, 50, "no step in the lease")
        self.assertLessEqual(after, 100, "the lease did not end")
        self.assertTrue(self.checkpoints("disturbed")[-1].name.endswith(f"{after:07d}"), self.checkpoints("disturbed"))
        self.assertIn("all workers have saved their state", self.log("scheduler.log", "disturbed/log"))
        self.assert_nothing_left()
        told = self.tsrun(*line_of(configuration, "disturbed", *LENGTH), timeout=120)
        self.assert_nothing_lost("disturbed", about=told)
        self.assert_nothing_left()

    def test_tsrun_alone_data_parallel(self):
        self.killed_alone("DP 3")

    def test_tsrun_alone_tensor_and_pipeline_parallel(self):
        self.killed_alone("TP 2, PP 2")

    def all_killed(self, configuration):
        self.tsrun(*line_of(configuration, "undisturbed", *LENGTH), timeout=120)
        # However late the first kill is, there are 20 more steps before the second hold.
        line = line_of(configuration, "disturbed", *LENGTH, *inject(["1:100:forward:stop:0", "1:195:forward:stop:1"]))
        for _ in range(2):
            job = self.running("disturbed", line, self.steps_logged("disturbed") + 20)
            self.kill_all()
            self.end_of(job, -signal.SIGKILL)
        folder, = self.folders("disturbed")
        self.assertTrue(folder.is_dir(), "the state is gone")
        steps = self.steps_logged("disturbed")
        told = self.tsrun(*line, timeout=120)
        self.assertIn(f"continuing from the state in {folder}, which a tsrun that was killed left", told)
        step = int(re.findall(r"continuing after iteration (\d+) with the state in memory", self.log("worker_0.log", "disturbed/log"))[-1])
        self.assertLessEqual(abs(step - steps), 1, "steps were repeated")
        self.assert_nothing_lost("disturbed", about=told)
        self.assert_nothing_left()

    def test_all_processes_data_parallel(self):
        self.all_killed("DP 3")

    def test_all_processes_tensor_and_pipeline_parallel(self):
        self.all_killed("TP 2, PP 2")

    def continued_without_the_state(self):
        """Killed, then continued from a checkpoint by MPI alone, to iteration 150. The command, the folder of the state and what is
        told of it."""
        self.tsrun(*line_of("DP 3", "undisturbed", *LENGTH), timeout=120)
        line = line_of("DP 3", "disturbed", *LENGTH, *inject(["1:100:forward:stop:0"]))
        job = self.running("disturbed", line)
        self.kill_all()
        self.end_of(job, -signal.SIGKILL)
        folder, = self.folders("disturbed")
        self.command(*mpirun(3, self.folder), harness.program(), *line[3:], *inject([]), *sets(exit_interval=150))
        self.assertTrue(self.checkpoints("disturbed")[-1].name.endswith("0000150"))
        before = self.state("disturbed")
        told = self.tsrun(*line, code=2)
        after = re.search(rf"the state in memory of job {folder.name.split('.')[1]} is after iteration (\d+), but the checkpoint "
                          r"\S+_iter_0000150 is after iteration 150", told)
        self.assertTrue(after, told)
        self.assertEqual(self.state("disturbed"), before)
        self.assertTrue(folder.is_dir(), "the state is gone")
        return line, folder, int(after[1])

    def test_a_later_checkpoint_is_neither_lost_nor_taken(self):
        line, folder, after = self.continued_without_the_state()
        self.told_of(folder.name.split(".")[1], "save", code=2)
        self.assertTrue(folder.is_dir(), "the state is gone")
        for path in self.checkpoints("disturbed"):
            if int(path.name[-7:]) > after:
                path.rename(self.folder / path.name)
        told = self.tsrun(*line, timeout=120)
        self.assertIn(f"continuing after iteration {after} with the state in memory", self.log("worker_0.log", "disturbed/log"))
        self.assert_nothing_lost("disturbed", about=told)
        self.assert_nothing_left()

    def test_a_later_checkpoint_counts_when_the_state_is_deleted(self):
        _, folder, _ = self.continued_without_the_state()
        self.told_of(folder.name.split(".")[1], "clean")
        told = self.tsrun(*line_of("DP 3", "disturbed", *LENGTH), timeout=120)
        self.assertIn("after iteration 150", self.log("worker_0.log", "disturbed/log"))
        self.assert_nothing_lost("disturbed", about=told)
        self.assert_nothing_left()

    def test_a_damaged_checkpoint_does_not_keep_a_run_from_its_state(self):
        for kept_as in ("safetensors", "torch"):
            line = line_of("DP 3", kept_as, *LENGTH, *sets(ckpt_format=kept_as), *inject(["1:57:forward:stop"]))
            job = self.running(kept_as, line, 56)
            newest, = (self.folder / kept_as).rglob("*iter_0000055")
            for path in newest.rglob("*"):
                if path.is_file():
                    os.truncate(path, 100)
            os.kill(self.process_of(1, "tessera"), signal.SIGKILL)
            told = self.end_of(job)
            self.assertEqual(told.count("starting all workers again"), 1, told)
            self.assertIn("continuing after iteration 56 with the state in memory", self.log("worker_0.log", f"{kept_as}/log"))

    def told_of(self, job, *words, code=0):
        return self.tessera("state", *words, *([job] if words != ("probe",) else []), code=code, environment=self.environment())

    def test_its_state_can_be_seen_completed_saved_and_deleted(self):
        self.tsrun(*line_of("DP 3", "undisturbed", *LENGTH), timeout=120)
        held_at = lambda step: line_of("DP 3", "disturbed", *LENGTH, *inject([f"1:{step}:forward:stop"]))
        job = self.running("disturbed", held_at(100))
        folder, = self.folders("disturbed")
        number = folder.name.split(".")[1]
        own = lambda: re.search(rf"job {number}: (.*)\n  command    tsrun --worker_num=3 .*\n.*\n  ranks      0, 1, 2 of 3\n"
                                rf"  state      after iteration (\d+), [\d.]+ \w+ in {folder}\n", self.told_of(number, "probe")).groups()
        self.assertEqual(own()[0], f"running as process {job.pid}")
        for word in ("clean", "save", "finish"):
            self.assertIn(f"job {number} is still running as process {job.pid}; stop it first", self.told_of(number, word, code=2))
        self.kill_all()
        self.end_of(job, -signal.SIGKILL)
        life, step = own()
        self.assertEqual(life, "all its processes have ended")
        self.assertLessEqual(abs(int(step) - self.steps_logged("disturbed")), 1)
        self.assertIn(f"the state after iteration {step} is complete, and stays in memory", self.told_of(number, "finish"))
        self.assertEqual(own(), (life, step))
        self.assertIn(f"the state after iteration {step} is saved", self.told_of(number, "save"))
        self.assertTrue(self.checkpoints("disturbed")[-1].name.endswith(f"{int(step):07d}"))
        self.assert_nothing_left()
        self.assertIn(f"no job '{number}' on this host", self.told_of(number, "clean", code=2))
        self.running("disturbed", held_at(195), self.steps_logged("disturbed") + 20)
        self.kill_all()
        folder = next(folder for folder in self.folders("disturbed") if folder.exists())
        self.told_of(folder.name.split(".")[1], "clean")
        self.assert_nothing_left()
        told = self.tsrun(*line_of("DP 3", "disturbed", *LENGTH), timeout=120)
        self.assert_nothing_lost("disturbed", about=told)

    def test_a_rank_that_fails_in_the_lease_leaves_the_state(self):
        self.tsrun(*line_of("DP 3", "undisturbed", *LENGTH), timeout=120)
        line = line_of("DP 3", "disturbed", *LENGTH, *HELD, "--set", "resilience_config.step_time_out=2")
        job = self.running("disturbed", ["--lease=3", "--stop_time_out=5", *line])
        rank = self.process_of(1, "tessera")
        job.kill()
        self.end_of(job, -signal.SIGKILL)
        os.kill(rank, signal.SIGKILL)
        self.wait_until(lambda: not self.processes(), "the end of the others")
        self.assertIn("the state of the job is kept in", self.log("scheduler.log", "disturbed/log"))
        told = self.tsrun(*line, timeout=120)
        self.assert_nothing_lost("disturbed", about=told)
        self.assert_nothing_left()

    def test_a_recipe_that_changed_is_refused_and_its_state_stays(self):
        changing = lambda **more: self.recipe("changing.yaml", training_iters=24, output_dir="disturbed", **more)
        line = ["--worker_num=2", "--tail_worker_log=9", "tessera", "train", "changing.yaml"]
        changing()
        self.tsrun(*line, *sets(output_dir="undisturbed"))
        job = self.start_tsrun(*line, "--set", "resilience_config.inject_fault=[1:5:forward:hang]")
        self.wait_until(lambda: self.steps_logged("disturbed") >= 4, "4 steps")
        changing(learning_rate=2e-3)
        os.kill(self.process_of(1, "tessera"), signal.SIGKILL)
        told = self.end_of(job, 2)
        self.assertRegex(told, r"the state in /dev/shm/\S+ was left with another recipe, and is not changed")
        self.assertRegex(told, r"The state after iteration 4 is kept in /dev/shm/\S+: with what it was given before, the same command continues")
        changing()
        told = self.tsrun(*line, "--set", "resilience_config.inject_fault=[1:5:forward:hang]")
        self.assertIn("continuing after iteration 4 with the state in memory", self.log("worker_0.log", "disturbed/log"))
        self.assert_nothing_lost("disturbed", about=told)
        self.assert_nothing_left()


class KilledOnHosts(launch_hosts_test.Hosts):
    state, assert_nothing_lost = Faults.state, Faults.assert_nothing_lost
    folders, kill_all = Killed.folders, Killed.kill_all

    def program(self, run, faults=()):
        return line_of("DP 3", run, *sets(training_iters=40), "--set", "resilience_config.step_time_out=60", *inject(faults))[2:]

    def start_both(self, run, *more, faults=()):
        return [self.start_host(host, f"--worker_log_name={run}", *more, program=self.program(run, faults)) for host in range(2)]

    def undisturbed(self):
        """On this machine: numbers do not depend on hosts, and over TCP the run takes three times as long."""
        self.tsrun("--worker_num=4", *self.program("undisturbed"))

    def assert_continued(self, jobs):
        """They ran the same command once more, to the end; what the leader told."""
        told = [self.end_of(job) for job in jobs][0]
        self.assert_nothing_lost("disturbed", about=told)
        self.assert_nothing_left()
        return told

    def test_the_leading_tsrun_alone(self):
        self.undisturbed()
        jobs = self.start_both("disturbed", "--lease=1", "--stop_time_out=3", faults=["1:12:forward:stop"])  # so the lease ends before the run
        held = self.process_of(1, "tessera")
        self.wait_until(lambda: self.is_stopped(held), "the stop of rank 1")
        jobs[0].kill()
        self.wait_until(lambda: self.is_pending(held, signal.SIGTERM), "the end of the lease")
        os.kill(held, signal.SIGCONT)
        self.wait_until(lambda: not self.processes(), "the workers' own end")
        told = self.end_of(jobs[1], 1)
        self.assertRegex(told, "the leading tsrun, on 10.77.0.1, was killed; the workers here train on for 1 s")
        after = self.steps_logged("disturbed")
        self.assertLess(after, 40)
        self.assertTrue(self.checkpoints("disturbed")[-1].name.endswith(f"{after:07d}"), told)
        self.assert_nothing_left()
        self.assert_continued(self.start_both("disturbed"))

    def test_all_processes(self):
        self.undisturbed()
        faults = ["1:30:forward:stop"]  # of the first start, so the run does not end before it is killed
        self.start_both("disturbed", faults=faults)
        self.wait_until(lambda: self.steps_logged("disturbed") >= 10, "10 steps")
        self.kill_all()
        self.assertIn("continuing from the state in", self.assert_continued(self.start_both("disturbed", faults=faults)))


class KilledInASave(Launching):
    """Rank 0 is killed at a system call of a save: each time all ranks continue, and the checkpoint is written again. All calls with
    TESSERA_SAVE_KILLS=all, else some."""

    state, assert_nothing_lost = Faults.state, Faults.assert_nothing_lost
    CALLS = ("rename", "renameat", "renameat2", "fsync", "fdatasync", "openat", "write", "pwrite64", "fallocate")

    def setUp(self):
        super().setUp()
        sleeping = subprocess.Popen(["sleep", "60"])
        self.addCleanup(sleeping.wait)
        self.addCleanup(sleeping.kill)
        if shutil.which("strace") is None:
            self.skipTest("strace is not installed")
        tracer = self.attach(sleeping.pid, "exit_group", may_fail=True)
        if tracer is None:
            self.skipTest("strace may not attach to processes here")
        tracer.terminate()
        tracer.wait()

    def attach(self, pid, *filters, may_fail=False):
        """strace of a process, as soon as it has it; None if it may not."""
        words = [word for filter in filters for word in ("-e", filter)]
        tracer = subprocess.Popen(["strace", "-f", "-o", str(self.folder / "calls"), *words, "-p", str(pid)], text=True,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self.addCleanup(tracer.stderr.close)
        for line in tracer.stderr:
            if "attached" in line and "could not" not in line:
                return tracer
        tracer.wait()
        self.assertTrue(may_fail, "strace did not attach")
        return None

    def stopped_rank(self, run, step, phase):
        """Rank 0, when the fault has stopped it there."""
        log = self.folder / run / "log/worker_0.log"
        told = f"injected fault: rank 0, step {step}, {phase}, stop"
        self.wait_until(lambda: log.exists() and told in log.read_text(), f"{run}: {told}")
        pid = self.process_of(0, "tessera")
        self.wait_until(lambda: re.search(r"State:\t[Tt]", pathlib.Path(f"/proc/{pid}/status").read_text()), "the stop")
        return pid

    def calls_of_a_save(self, length, end):
        """Their names and numbers, counted from the save after step 2 of an undisturbed run to `end`."""
        step, phase = end
        job = self.start_tsrun(*line_of("DP 3", "undisturbed", *length, *inject(["0:2:save:stop", f"0:{step}:{phase}:stop"])))
        pid = self.stopped_rank("undisturbed", 2, "save")
        tracer = self.attach(pid, f"trace={','.join(self.CALLS)}")
        os.kill(pid, signal.SIGCONT)
        pid = self.stopped_rank("undisturbed", step, phase)
        tracer.terminate()
        tracer.wait()
        os.kill(pid, signal.SIGCONT)
        self.end_of(job)
        # strace counts the calls of each thread alone, so a number is reached if one thread makes that many.
        of_threads = collections.Counter(re.findall(r"^(\d+) +(\w+)\(", (self.folder / "calls").read_text(), re.M))
        saving = {thread for thread, name in of_threads if name == "fsync"}  # others send messages, however long the save takes
        counts = {}
        for (thread, name), count in sorted(of_threads.items()):
            if thread in saving:
                counts[name] = max(count, counts.get(name, 0))
        self.assertTrue({"rename", "fsync", "openat", "write"} <= counts.keys(), counts)
        return [(name, number) for name, count in counts.items() for number in range(1, count + 1)]

    def killed_at(self, run, calls, length, about, every):
        """One call in each start, in the save after each `every` steps."""
        faults = [f"0:{every * k + 2}:save:stop:{k}" for k in range(len(calls))]
        job = self.start_tsrun(*line_of("DP 3", run, *length, *inject(faults)))
        for k, (name, number) in enumerate(calls):
            pid = self.stopped_rank(run, every * k + 2, "save")
            tracer = self.attach(pid, f"trace={name}", f"inject={name}:signal=KILL:when={number}")
            os.kill(pid, signal.SIGCONT)
            self.wait_until(lambda: not pathlib.Path(f"/proc/{pid}").exists(), f"the end at {name} {number}, {about}")
            tracer.wait()
        told = self.end_of(job)
        self.assertEqual(told.count("starting all workers again"), len(calls), f"{about}\n{told}")
        for folder in self.checkpoints(run):
            self.tessera("checkpoint", "verify", folder)
        self.assert_nothing_lost(run, about=f"{about}\n{told}")

    def killed_at_calls(self, *more, end, every):
        seed, at_once = random.randrange(10**9), 6
        length = [*sets(training_iters=every * at_once + 2, save_interval=2, eval_interval=0), *more]
        calls = random.Random(seed).sample(found := self.calls_of_a_save(length, end), len(found))
        if os.environ.get("TESSERA_SAVE_KILLS") != "all":
            calls = calls[:at_once]
        for first in range(0, len(calls), at_once):
            batch = calls[first:first + at_once]
            self.killed_at(f"disturbed{first}", batch, length, f"seed {seed}: {batch}", every)
        self.assert_nothing_left()

    def test_at_system_calls_of_a_save(self):
        self.killed_at_calls(end=(3, "forward"), every=2)

    def test_at_system_calls_of_the_threads_that_save_while_the_run_trains(self):
        # The next save waits for the one before, so two steps may be done; tsrun asks for a complete one between two such failures.
        self.killed_at_calls("--set", "training_config.async_save=true", end=(4, "save"), every=4)


if __name__ == "__main__":
    harness.main()
