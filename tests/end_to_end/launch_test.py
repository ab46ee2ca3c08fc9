"""tsrun on one host: msrun's and torchrun's words, logs, and the end of a run, whoever ends it."""

import contextlib
import fcntl
import os
import pty
import random
import re
import shutil
import signal
import socket
import termios
import time
import unittest

import harness
import launching
from launching import Launching

# What a worker sees of the two dialects.
SHOW = "env | grep -E '^(MS_|RANK|LOCAL_|WORLD|MASTER|GROUP|ROLE|TORCHELASTIC|DEVICE|OMP)' | sort"


class LaunchWords(Launching):
    def variables(self, rank, folder="log"):
        return dict(line.split("=", 1) for line in self.log(f"worker_{rank}.log", folder).splitlines())

    def test_line_of_msrun_starts_its_workers(self):
        self.script("show.sh", SHOW)
        self.tsrun("--worker_num", 3, "--local_worker_num=3", "--log_dir=msrun_log", "--join=True", "--cluster_time_out=300",
                   "./show.sh", environment={"MS_ROLE": "of before"})
        for rank in range(3):
            told = self.variables(rank, "msrun_log")
            for name, value in {"MS_ROLE": "MS_WORKER", "MS_WORKER_NUM": "3", "MS_SCHED_HOST": "127.0.0.1", "RANK_ID": str(rank),
                                "RANK_SIZE": "3", "MS_NODE_ID": str(rank), "DEVICE_ID": str(rank), "MS_TOPO_TIMEOUT": "300",
                                "MS_CLUSTER_TIMEOUT": "300"}.items():
                self.assertEqual(told.get(name), value, name)
            self.assertEqual(told["MS_SCHED_PORT"], told["MASTER_PORT"])

    def test_line_of_torchrun_starts_its_workers(self):
        self.script("show.sh", SHOW)
        self.tsrun("--nproc-per-node", 2, "--nnodes", "1:1", "--node_rank=0", "--master_addr", "localhost", "--rdzv-id", "job7",
                   "--max-restarts=2", "--role=trainer", "./show.sh")
        for rank in range(2):
            told = self.variables(rank)
            for name, value in {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2",
                                "GROUP_RANK": "0", "ROLE_RANK": str(rank), "ROLE_WORLD_SIZE": "2", "ROLE_NAME": "trainer",
                                "MASTER_ADDR": "127.0.0.1", "TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_MAX_RESTARTS": "2",
                                "TORCHELASTIC_RUN_ID": "job7", "OMP_NUM_THREADS": "1"}.items():
                self.assertEqual(told.get(name), value, name)

    def test_the_port_of_an_x_display_lets_nobody_wait(self):
        # hwloc, asked by MPI, looks for displays at ports 6000 to 6009; the leader listens there and is none.
        done = self.tsrun("--nproc_per_node=2", "--master_addr", "localhost", "--master_port", self.free_port_of_a_display(), launching.worker(), 1)
        self.assertIn("all 2 workers are done", done)

    def free_port_of_a_display(self):
        for port in random.sample(range(6000, 6010), 10):
            with socket.socket() as one, contextlib.suppress(OSError):
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as tsrun: a connection that has ended does not count
                one.bind(("127.0.0.1", port))
                return port
        self.skipTest("other programs use ports 6000 to 6009")

    def test_variables_of_pet_stand_for_options_of_torchrun(self):
        told = self.tsrun("true", environment={"PET_NPROC_PER_NODE": "2", "PET_LOG_DIR": "logs"})
        self.assertIn("2 workers", told)
        self.assertIn("3 workers", self.tsrun("--nproc_per_node=3", "true", environment={"PET_NPROC_PER_NODE": "2"}))
        self.assertTrue((self.folder / "logs" / "worker_1.log").exists())

    def test_all_mistakes_are_named_at_once(self):
        told = self.tsrun("--worker_num=no", "--locl_worker_num=2", "--master_port=99999", "--nnodes=1", "true", code=2)
        for words in ("'no' is not a whole number", "did you mean '--local_worker_num'", "99999 is out of range",
                      "--worker_num is msrun's and --nnodes is torchrun's"):
            self.assertIn(words, told)
        for words, reason in ((["--nnodes=1:4", "true"], "--after_host_loss shrink"), (["--rdzv_backend=etcd", "true"], "etcd"),
                              (["--worker_num=2", "--sim_level=1", "true"], "tessera check"), (["true"], "number of workers is missing"),
                              (["--worker_num=2", "--local_worker_num=4", "true"], "more than"), (["--worker_num=2"], "PROGRAM"),
                              (["--worker_num=2", "--join=maybe", "true"], "neither True nor False"),
                              (["--worker_num=2", "no_such_program"], "no_such_program"),
                              (["--worker_num=2", '--bind_core={"device0": ["0"]}', "true"], "device1")):
            self.assertIn(reason, self.tsrun(*words, code=2))

    def test_variables_of_ttp_that_are_no_truth_value_or_number_are_named_and_nothing_is_started(self):
        for name, value, reason in (("ENABLE_TTP", "maybe", "'maybe' is neither 1 nor 0, nor true nor false"), ("ENABLE_TTP", "2", "'2' is neither"),
                                    ("TTP_OT", "soon", "'soon' is not a whole number"), ("TTP_OT", "1.5", "'1.5' is not a whole number"),
                                    ("TTP_OT", "0", "0 is out of range; 1 and above is"), ("TTP_OT", "-3", "-3 is out of range")):
            told = self.tsrun("--worker_num=1", "touch", "started", environment={name: value}, code=2)
            self.assertIn(f"tsrun: {name}: {reason}", told)
            self.assertEqual(told.count("tsrun: "), 1, told)
            self.assertFalse((self.folder / "started").exists() or (self.folder / "log").exists())

    def test_a_secret_that_is_none_is_named_and_nothing_is_started(self):
        self.write("short", "0123456789\n").chmod(0o600)
        self.write("readable", "0123456789abcdef\n").chmod(0o604)
        for words, environment, reason in ((["--secret_file=none"], {}, "--secret_file none: No such file or directory"),
                                           (["--secret_file=short"], {}, "--secret_file short has 10 bytes; a secret has 16 to 1024"),
                                           (["--secret_file=readable"], {}, "--secret_file readable: others than its owner have access to it (mode 604)"),
                                           ([], {"TSRUN_SECRET": "0123456789"}, "TSRUN_SECRET has 10 bytes; a secret has 16 to 1024"),
                                           (["--hosts=localhost:1", "--secret_file=short"], {}, "--secret_file is for the same line on each host")):
            told = self.tsrun("--worker_num=1", *words, "touch", "started", environment=environment, code=2)
            self.assertTrue(told.startswith(f"tsrun: {reason}"), told)
            self.assertEqual(len(told.splitlines()), 1, told)
            self.assertNotIn("0123456789", told)
            self.assertFalse((self.folder / "started").exists() or (self.folder / "log").exists())

    def test_a_line_that_trains_puts_logs_into_the_run_folder_and_refuses_a_wrong_recipe_once(self):
        self.tsrun("--worker_num=1", "tessera", "train", "tiny.yaml", *harness.sets(training_iters=2))
        self.assertIn("loss", self.log("worker_0.log", "run/log"))
        told = self.tsrun("--worker_num=2", "tessera", "train", "tiny.yaml", "--set", "training_config.no_such=1", code=2)
        self.assertEqual(told.count("no option 'no_such'"), 1, told)

    def test_a_python_file_is_run_by_python(self):
        self.write("hello.py", "import os, sys; print('I am', os.environ['RANK'], sys.argv[1:])")
        self.tsrun("--worker_num=2", "hello.py", "--flag", "x")
        self.assertEqual(self.log("worker_1.log"), "I am 1 ['--flag', 'x']\n")

    def test_a_missing_loopback_library_is_told(self):
        missing = "tsrun_loopback.so is not installed beside tsrun: mpirun will listen on all network interfaces"
        alone = shutil.copy(launching.beside_program("tsrun"), self.folder)
        self.assertIn(missing, self.tsrun("--worker_num=1", "true", tsrun=alone))
        self.assertNotIn(missing, self.tsrun("--worker_num=1", "true"))

    def test_a_port_in_use_is_named(self):
        first = self.start_tsrun("--worker_num=1", "sleep", "60")
        self.wait_until(lambda: self.processes("sleep"), "a worker")
        port = next(iter(self.processes("sleep").values()))["MASTER_PORT"]
        told = self.tsrun("--worker_num=1", f"--master_port={port}", "true", code=2)
        self.assertIn(f"port {port}", told)
        self.assertIn("in use", told)
        first.send_signal(signal.SIGTERM)
        self.end_of(first, 128 + signal.SIGTERM)


class LaunchLogs(Launching):
    def test_workers_have_a_log_each_and_the_screen_shows_what_was_asked(self):
        self.script("say.sh", "echo out of $RANK; echo err of $RANK >&2")
        for tail, shown in (("-1", {"0", "1", "2"}), ("1", {"1"}), ("0,2", {"0", "2"}), ("7", set())):
            told = self.tsrun("--worker_num=3", f"--tail_worker_log={tail}", "--log_dir", f"tail{tail}", "./say.sh")
            self.assertEqual(set(re.findall(r"out of (\d)", told)), shown)
            self.assertEqual(set(re.findall(r"err of (\d)", told)), shown)
        self.assertEqual(self.log("worker_2.log", "tail7"), "out of 2\nerr of 2\n")
        self.assertIn("3 workers", self.log("scheduler.log", "tail7"))

    def test_a_name_of_logs_holds_host_and_address(self):
        self.tsrun("--worker_num=1", "--worker_log_name={hostname}_{ip}", "true")
        self.assertTrue((self.folder / "log" / f"{os.uname().nodename}_127.0.0.1_0.log").exists())

    def test_logs_grow_over_starts(self):
        for word in ("first", "second"):
            self.script("say.sh", f"echo {word}")
            self.tsrun("--worker_num=1", "./say.sh")
        lines = self.log("worker_0.log").splitlines()
        self.assertEqual((lines[0], lines[2]), ("first", "second"))
        self.assertRegex(lines[1], "^==== rank 0 of 1 ")

    def test_cores_are_shared_out(self):
        cores = sorted(os.sched_getaffinity(0))
        self.script("cores.py", "")
        self.write("cores.py", "import os; print(sorted(os.sched_getaffinity(0)), os.environ.get('MSRUN_CPU_LIST'))")
        self.tsrun("--worker_num=2", "--bind_core=True", "cores.py")
        lines = [self.log(f"worker_{rank}.log").split(" ", 0)[0] for rank in range(2)]
        used = [set(map(int, re.findall(r"\d+", line.split("]")[0]))) for line in lines]
        self.assertTrue(used[0] and used[0] <= set(cores), lines)
        self.assertEqual(bool(used[0] & used[1]), len(cores) < 2, lines)
        told = self.tsrun("--worker_num=1", f'--bind_core={{"device0": ["{cores[-1]}"]}}', "--log_dir=map", "cores.py")
        self.assertEqual(self.log("worker_0.log", "map"), f"[{cores[-1]}] {cores[-1]}\n", told)


class LaunchEnds(Launching):
    WORKERS = 4

    def start_job(self, *words, steps=100000):
        return self.start_tsrun(f"--worker_num={self.WORKERS}", *(words or ()), launching.worker(), steps)

    def assert_killed_is_reported(self, delay):
        """Kill a random rank `delay` seconds after its program has begun; what is said, how soon, and what is left."""
        rank = random.randrange(self.WORKERS)
        job = self.start_job("--tail_worker_log=9")
        pid = self.process_of(rank)
        time.sleep(delay)
        os.kill(pid, signal.SIGKILL)
        told = self.end_of(job, 128 + signal.SIGKILL)  # not by one of the time-outs, whose words are others
        self.assertRegex(told, rf"tsrun: rank {rank} of {self.WORKERS} on \S+ (\(dp {rank}, iteration \d+\) )?was ended by signal 9")
        self.assertEqual(len(re.findall("was ended|ended with|hung", told)), 1, told)
        self.assertEqual(len(self.assert_nothing_left()), 1)

    def test_killed_before_in_and_after_the_start_of_mpi(self):
        for delay in (0, .02, .06, .12, .3, .6):
            (self.folder / "log" / "scheduler.log").unlink(missing_ok=True)
            with self.subTest(delay=delay):
                self.assert_killed_is_reported(delay)

    def test_an_exit_code_goes_through_with_the_last_lines(self):
        self.script("fail.sh", 'for i in $(seq 40); do echo line $i; done; test $RANK = 2 && exit 7; sleep 60')
        told = self.tsrun("--worker_num=3", "--tail_worker_log=9", "./fail.sh", code=7)
        self.assertIn("rank 2 of 3", told)
        self.assertIn("exit code 7", told)
        self.assertEqual(re.findall(r"\| line (\d+)", told), [str(i) for i in range(21, 41)])
        self.assert_nothing_left()

    def test_the_worker_that_failed_by_itself_is_named_not_those_it_left(self):
        told = self.tsrun("--worker_num=4", "--tail_worker_log=9", launching.worker(), 1000, "exit", 3, code=7)
        self.assertRegex(told, r"rank 3 of 4 on \S+ \(dp 3, iteration 3\) ended with exit code 7")
        self.assert_nothing_left()

    def test_a_worker_that_stays_away_is_named_with_where_it_is(self):
        told = self.tsrun("--worker_num=3", "--tail_worker_log=9", launching.worker(), 1000, "absent", 1, code=1)
        self.assertRegex(told, r"tsrun: rank 1 of 3 on \S+ \(dp 1, iteration 3\) hung")
        self.assertIn("its last was all_reduce 2 of group world", told)
        self.assert_nothing_left()

    def test_a_worker_that_is_held_is_named_with_the_reason(self):
        """Stopped between two operations or in one, where it waits for another worker."""
        for inside in (False, True):
            with self.subTest(inside=inside):
                folder = f"log_{inside}"
                job = self.start_job("--tail_worker_log=9", f"--log_dir={folder}")
                pid, late = self.process_of(2), self.process_of(1)
                # Nobody misses a worker that is stopped before it has connected to the others.
                logs = [self.folder / folder / f"worker_{rank}.log" for rank in range(self.WORKERS)]
                self.wait_until(lambda: all(log.exists() and "the first step is done" in log.read_text() for log in logs), "a step", job=job)
                if inside:
                    os.kill(late, signal.SIGSTOP)
                    time.sleep(.2)
                os.kill(pid, signal.SIGSTOP)
                os.kill(late, signal.SIGCONT)
                told = self.end_of(job, 1)
                self.assertRegex(told, r"tsrun: rank 2 of 4 on \S+ \(dp 2, iteration \d+\) hung")
                self.assertIn("stopped by SIGSTOP", told)
                self.assert_nothing_left()

    def test_a_worker_that_never_comes_is_named(self):
        told = self.tsrun("--worker_num=3", "--cluster_time_out=15", launching.worker(), 10, "late", 2, code=1)
        self.assertRegex(told, r"rank 2 did not connect to the others within 15 s")
        self.assert_nothing_left()

    def test_exit_code_0_before_the_work_is_done_is_a_failure(self):
        told = self.tsrun("--worker_num=2", launching.worker(), 1000, "early", 1, code=1)
        self.assertRegex(told, "rank 1 of 2 .* ended with exit code 0 before its work was done")

    def test_refused_input_is_told_once_with_exit_code_2_and_not_tried_again(self):
        for tail in ("9", "-1"):
            told = self.tsrun("--worker_num=2", "--max_restarts=3", f"--tail_worker_log={tail}", launching.worker(), 5, "refuse", 0, code=2)
            self.assertEqual(told.count("recipe.yaml:3: this is wrong"), 1, told)
            self.assertNotIn("again", told)

    def test_interrupt_ends_everything(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            job = self.start_job("--tail_worker_log=9")
            self.process_of(self.WORKERS - 1)
            job.send_signal(number)
            told = self.end_of(job, 128 + number)
            self.assertIn(f"stopped by signal {number:d}", told.splitlines()[-1])
            self.assert_nothing_left()

    def test_a_hangup_is_one_request_however_often_it_comes_and_none_under_nohup(self):
        """A program that is asked to stop and works on for a moment: a second request would kill it."""
        self.write("save.py", "import signal, time\nasked = []\nsignal.signal(signal.SIGTERM, lambda *_: asked.append(1))\n"
                              "print('ready', flush=True)\nwhile not asked: time.sleep(.01)\n"
                              "time.sleep(1)\nprint('saved')")
        for nohup in (False, True):
            ignore = (lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)) if nohup else None
            job = self.start_tsrun("--worker_num=1", f"--log_dir=log_{nohup}", "save.py", preexec_fn=ignore)
            logged = lambda name, words: self.wait_until(
                lambda: (self.folder / f"log_{nohup}" / name).exists() and words in self.log(name, f"log_{nohup}"), words)
            logged("worker_0.log", "ready")
            job.send_signal(signal.SIGHUP)
            if nohup:
                job.send_signal(signal.SIGTERM)
            logged("scheduler.log", "the workers are asked to end")
            job.send_signal(signal.SIGHUP)
            told = self.end_of(job, 0)
            self.assertIn("signal 15 (SIGTERM): the workers are asked" if nohup else "signal 1 (SIGHUP): the workers are asked", told)
            self.assertIn("saved", self.log("worker_0.log", f"log_{nohup}"))
        self.assert_nothing_left()

    def test_user_signal_and_stop_file_ask_the_workers_to_stop(self):
        for ask in (lambda job: job.send_signal(signal.SIGUSR1), lambda job: self.write("log/STOP", "")):
            job = self.start_job("--tail_worker_log=9")
            self.process_of(self.WORKERS - 1)
            ask(job)
            self.assertIn("stopped by signal 15", self.end_of(job, 128 + signal.SIGTERM))
            self.assertFalse((self.folder / "log/STOP").exists())
            self.assert_nothing_left()

    def test_second_signal_kills_what_does_not_listen(self):
        self.script("deaf.sh", "trap '' TERM INT; echo deaf; while :; do sleep .1; done")
        job = self.start_tsrun("--worker_num=2", "--tail_worker_log=9", "./deaf.sh")
        self.wait_until(lambda: (self.folder / "log/worker_1.log").exists() and self.log("worker_1.log"), "a worker")
        job.send_signal(signal.SIGTERM)
        self.wait_until(lambda: "the workers are asked to end" in self.log("scheduler.log"), "the request to end")
        self.assertIsNone(job.poll())
        job.send_signal(signal.SIGTERM)
        self.end_of(job, 128 + signal.SIGTERM)
        self.assert_nothing_left()

    def test_a_signal_to_every_process_of_the_job_is_one_request_to_save(self):
        """As Slurm and systemd send it. A program that is asked twice stops at once, without having saved."""
        self.write("save.py", "import signal, sys, time\nasked = []\nsignal.signal(signal.SIGTERM, lambda *_: asked.append(1))\n"
                              "print('ready', flush=True)\nwhile not asked: time.sleep(.01)\n"
                              "time.sleep(3)\nprint('asked', len(asked), 'saved')")
        job = self.start_tsrun("--worker_num=2", "--tail_worker_log=9", "save.py")
        self.wait_until(lambda: all((self.folder / f"log/worker_{r}.log").exists() and self.log(f"worker_{r}.log") for r in (0, 1)), "workers")
        job.send_signal(signal.SIGSTOP)  # it passes the signal on only after each process has got its own
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):  # it has ended since it was listed
                os.kill(pid, signal.SIGTERM)
        job.send_signal(signal.SIGCONT)
        self.end_of(job, 0)
        for rank in range(2):
            self.assertIn("asked 1 saved", self.log(f"worker_{rank}.log"))
        self.assert_nothing_left()

    def assert_both_say(self, words):
        self.wait_until(lambda: all((self.folder / f"log/worker_{r}.log").exists() and words in self.log(f"worker_{r}.log") for r in (0, 1)), words)

    def test_a_stop_signal_is_final_however_the_workers_end(self):
        self.script("fails.sh", "trap 'exit 7' TERM; echo ready; while :; do sleep .1; done")
        job = self.start_tsrun("--worker_num=2", "--max_restarts=3", "--tail_worker_log=9", "./fails.sh")
        self.assert_both_say("ready")
        job.send_signal(signal.SIGTERM)
        told = self.end_of(job, 7)
        self.assertNotIn("starting all workers again", told)
        self.assertIn("The workers are not started again, because a signal asked the job to stop", told)
        self.assert_nothing_left()

    def test_a_stop_signal_after_a_restart_is_final_though_a_worker_is_killed(self):
        self.script("again.sh", "echo try $TORCHELASTIC_RESTART_COUNT; test $TORCHELASTIC_RESTART_COUNT = 1 || exit 5\n"
                                "trap '' TERM; echo ready; while :; do sleep .1; done")
        job = self.start_tsrun("--worker_num=2", "--max_restarts=3", "--tail_worker_log=9", "./again.sh")
        self.assert_both_say("ready")
        job.send_signal(signal.SIGTERM)
        self.wait_until(lambda: "the workers are asked to end" in self.log("scheduler.log"), "the request to stop")
        os.kill(self.process_of(1, "again.sh"), signal.SIGKILL)
        told = self.end_of(job, 137)
        self.assertEqual(told.count("starting all workers again"), 1, told)
        self.assert_nothing_left()

    def test_whoever_is_killed_the_others_go_too(self):
        for victim in ("tsrun", "mpirun"):
            with self.subTest(victim=victim):
                job = self.start_job("--tail_worker_log=9")
                self.process_of(0)
                time.sleep(.3)
                os.kill(job.pid if victim == "tsrun" else next(iter(self.processes("mpirun") or self.processes("orterun"))), signal.SIGKILL)
                told = self.end_of(job, -signal.SIGKILL if victim == "tsrun" else 1)
                self.assertIn("" if victim == "tsrun" else "mpirun ended", told)
                self.assert_nothing_left()

    def test_a_program_dies_with_its_watcher_when_nobody_else_can_end_it(self):
        job = self.start_tsrun("--worker_num=2", "--tail_worker_log=9", "sleep", 77)  # MPI would end its own
        pid = self.process_of(1, "sleep")
        supervisor = next(p for p, v in self.processes("tsrun").items() if v.get("OMPI_COMM_WORLD_RANK") == "1")
        stopped = [job.pid, *(self.processes("mpirun") or self.processes("orterun"))]
        for other in stopped:
            os.kill(other, signal.SIGSTOP)
        os.kill(supervisor, signal.SIGKILL)
        try:
            self.wait_until(lambda: pid not in self.processes("sleep"), "the end of the program whose supervisor was killed")
        finally:
            for other in stopped:
                os.kill(other, signal.SIGCONT)
        self.assertRegex(self.end_of(job, 128 + signal.SIGKILL), "rank 1 of 2 .*\\n.*its supervisor was killed")
        self.assert_nothing_left()

    def test_mpirun_dies_with_tsrun_when_nobody_else_can_end_it(self):
        job = self.start_job("--tail_worker_log=9")
        for rank in range(self.WORKERS):  # before its program starts, a supervisor's child is a tsrun too
            self.process_of(rank)
        supervisors = [p for p, v in self.processes("tsrun").items() if "OMPI_COMM_WORLD_RANK" in v]
        self.assertEqual(len(supervisors), self.WORKERS)
        for pid in supervisors:
            os.kill(pid, signal.SIGSTOP)
        job.kill()
        try:
            self.wait_until(lambda: not self.processes("mpirun") and not self.processes("orterun"), "the end of mpirun")
        finally:
            for pid in supervisors:
                with contextlib.suppress(ProcessLookupError):  # mpirun's guard has killed it
                    os.kill(pid, signal.SIGCONT)
        self.end_of(job, -signal.SIGKILL)
        self.assert_nothing_left()

    def test_workers_are_in_the_session_of_tsrun_without_its_terminal(self):
        """Linux shares cores between sessions, so nice acts within one; whoever reads from the terminal fails and is not stopped."""
        _, terminal = pty.openpty()

        def take_terminal():
            os.setsid()
            fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
        self.script("where.sh", "cut -d' ' -f6,7 /proc/$$/stat; cat </dev/tty || echo no terminal")
        job = self.start_tsrun("--worker_num=2", "./where.sh", preexec_fn=take_terminal)
        self.end_of(job)
        for rank in range(2):
            told = self.log(f"worker_{rank}.log")
            self.assertIn(f"\n{job.pid} 0\n", "\n" + told)
            self.assertIn("no terminal", told)

    def test_a_machine_that_pauses_loses_no_worker(self):
        """All processes of a job are stopped together for longer than any time-out, and then all that watch workers."""
        job = self.start_tsrun(f"--worker_num={self.WORKERS}", "--host_time_out=4", "--host_lease=2", "--leader_time_out=3",
                               launching.worker(), 100000, "until", self.folder / "end")
        for rank in range(self.WORKERS):
            self.process_of(rank)
        self.wait_until(lambda: "all workers have connected" in self.log("scheduler.log"), "a start")
        every = lambda: list(self.processes())
        supervisors = lambda: [pid for pid, variables in self.processes("tsrun").items() if "OMPI_COMM_WORLD_RANK" in variables]
        for stopped in (every(), supervisors()):
            for number, seconds in ((signal.SIGSTOP, 7), (signal.SIGCONT, 2)):
                for pid in stopped:
                    os.kill(pid, number)
                time.sleep(seconds)
            self.assertIsNone(job.poll(), self.log("scheduler.log"))
        self.write("end", "")
        told = self.end_of(job)
        self.assertNotIn("not responded", told)
        self.assertEqual(told.count(f"of {self.WORKERS}: sum"), self.WORKERS, told)
        self.assert_nothing_left()

    def test_more_workers_than_descriptors_are_refused_and_a_low_soft_limit_is_raised(self):
        told = self.tsrun("--nproc_per_node=100", "true", code=2, before=["sh", "-c", 'ulimit -n 64 && exec "$@"', "sh"])
        self.assertRegex(told, r"100 workers need on this host up to \d+ file descriptors in a process, and the hard limit is 64 \(ulimit -Hn\): raise it")
        self.assertEqual(list((self.folder / "tmp").iterdir()), [])
        told = self.tsrun("--worker_num=6", "true", before=["sh", "-c", 'ulimit -Sn 40 && exec "$@"', "sh"])
        self.assertIn("all 6 workers are done", told)
        self.assert_nothing_left()

    def test_a_workers_own_children_go_too(self):
        self.script("parent.sh", "setsid sleep 77 & sleep 77 & sleep 1; exit 3")
        self.tsrun("--worker_num=2", "./parent.sh", code=3)
        self.assert_nothing_left()

    def test_restarts_go_on_until_they_are_used_up(self):
        self.script("third.sh", 'echo try $TORCHELASTIC_RESTART_COUNT; test $RANK = 0 || exec sleep 60; exit $((2 - TORCHELASTIC_RESTART_COUNT + 3))')
        told = self.tsrun("--worker_num=2", "--max-restarts=2", "--tail_worker_log=9", "./third.sh", code=3)
        self.assertEqual(re.findall(r"exit code (\d)", told), ["5", "4", "3"])
        self.assertEqual(re.findall(r"try (\d)", self.log("worker_0.log")), ["0", "1", "2"])
        self.script("second.sh", 'exit $((1 - TORCHELASTIC_RESTART_COUNT))')
        self.assertIn("done", self.tsrun("--worker_num=2", "--max-restarts=2", "./second.sh"))

    def test_without_join_it_returns_at_once_and_says_how_to_stop(self):
        told = self.tsrun("--worker_num=2", "--join=False", launching.worker(), 100000)  # whose steps take a quarter of an hour
        self.process_of(1)
        os.kill(int(re.search(r"`kill (\d+)`", told)[1]), signal.SIGTERM)
        self.wait_until(lambda: "stopped" in self.log("scheduler.log"), "the end")
        self.assert_nothing_left()

    def test_out_of_memory_is_said(self):
        group = memory_group(self)
        self.write("greedy.py", "import os\nif os.environ['RANK'] == '1':\n    x = bytearray(400 << 20)\nimport time; time.sleep(60)")
        told = self.tsrun("--worker_num=2", "greedy.py", code=137, before=["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh"])
        self.assertRegex(told, "rank 1 of 2 .* was killed for memory")

    def test_killed_many_times_at_random_moments(self):
        for _ in range(int(os.environ.get("TESSERA_LAUNCH_KILLS", 10))):
            (self.folder / "log" / "scheduler.log").unlink(missing_ok=True)
            delay = random.choice([0, random.uniform(0, .15), random.uniform(.1, 1)])
            with self.subTest(delay=delay):
                self.assert_killed_is_reported(delay)


def memory_group(test):
    """A cgroup of 200 MB, version 1 or 2; skips the test where none may be made."""
    for root, limit in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        path = f"{root}/tessera_test_{os.getpid()}"
        try:
            os.mkdir(path)
            with open(f"{path}/{limit}", "w") as file:
                file.write(str(200 << 20))
            test.addCleanup(os.rmdir, path)
            return path
        except OSError:
            if os.path.isdir(path):
                os.rmdir(path)
    raise unittest.SkipTest("no cgroup with a memory limit can be made here")


if __name__ == "__main__":
    harness.main()
