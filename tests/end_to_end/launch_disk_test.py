"""tsrun on a disk without room: what failed is said, by the rank that failed, whatever the logs could take."""

import os
import re
import signal
import subprocess

import harness
from harness import sets
from launching import Launching


class LaunchLogsWhole(Launching):
    def test_what_a_worker_printed_before_a_kill_is_in_its_log(self):
        self.script("killed.sh", "head -c 3000000 /dev/zero | tr '\\0' x; echo; printf 'last words'; kill -9 $$")
        told = self.tsrun("--worker_num=2", "--tail_worker_log=9", "./killed.sh", code=137)
        self.assertIn("| last words", told)
        killed = [rank for rank in range(2) if self.log(f"worker_{rank}.log").endswith("x\nlast words")]
        self.assertTrue(killed)
        self.assertEqual(len(self.log(f"worker_{killed[0]}.log")), 3000000 + len("\nlast words"))
        self.assert_nothing_left()

    def test_what_a_worker_printed_is_in_its_log_when_tsrun_is_killed(self):
        self.write("say.py", "import time\nprint('I am here', flush=True)\ntime.sleep(60)")
        job = self.start_tsrun("--worker_num=2", "--tail_worker_log=9", "say.py")
        logs = [self.folder / f"log/worker_{rank}.log" for rank in range(2)]
        self.wait_until(lambda: all(log.exists() and "here" in log.read_text() for log in logs), "logs")
        job.kill()
        self.end_of(job, -signal.SIGKILL)
        self.assert_nothing_left()

    def test_a_watcher_that_hangs_ends_the_job_and_does_not_hold_the_workers_for_ever(self):
        # Rank 1 soon waits for room in the pipe; rank 0, whose output is taken, would keep a processor and a disk busy.
        self.write("say.py", "import os, time\nwhile True: print('x' * 1000) if os.environ['RANK'] == '1' else time.sleep(1)")
        job = self.start_tsrun("--worker_num=2", "--host_time_out=4", "--host_lease=2", "--tail_worker_log=9", "say.py")
        self.process_of(1, "python3")
        supervisor = next(pid for pid, variables in self.processes("tsrun").items() if variables.get("OMPI_COMM_WORLD_RANK") == "1")
        os.kill(supervisor, signal.SIGSTOP)
        # A process of this machine that cannot run has four times as long.
        self.assertIn("rank 1 has not responded for 16 s; is its supervisor (a tsrun process) stopped", self.end_of(job, 1, timeout=200))
        self.assert_nothing_left()


class LaunchFullDisk(Launching):
    """`disk` is a file system of its own with so much room, in a mount namespace that ends with tsrun."""

    def setUp(self):
        super().setUp()
        (self.folder / "disk").mkdir()
        self.namespace = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--mount"]
        if subprocess.run([*self.on_disk("64k"), "true"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode != 0:
            self.skipTest("no file system can be mounted here")

    def on_disk(self, size, first="true"):
        mount = f'mount -t tmpfs -o size={size} tmpfs "$0" && {{ {first}; }} && exec "$@"'
        return [*self.namespace, "sh", "-c", mount, str(self.folder / "disk")]

    def train(self, before, code, **changes):
        return self.tsrun("--worker_num=2", "tessera", "train", "tiny.yaml",
                          *sets(output_dir=self.folder / "disk/run", save_interval=5, batch_size=2, **changes), before=before, code=code)

    def test_full_from_the_start_the_cause_is_said(self):
        told = self.train(self.on_disk("64k", 'head -c 1M /dev/zero > "$0/fill" 2>&- || true'), code=2)
        self.assertRegex(told, rf"\| \[.*\] \[rank 0\] \[error\] \[tessera\] {self.folder}/disk/run/\S+: cannot be written: No space left on device; it is training_config.output_dir")
        self.assertNotIn("see above", told)
        self.assert_nothing_left()

    def test_filled_by_a_checkpoint_the_cause_and_the_rank_are_said(self):
        told = self.train(self.on_disk("64k"), code=22, training_iters=10)
        self.assertRegex(told, rf"tsrun: rank 0 of 2 on \S+ .*ended with exit code 22")
        self.assertRegex(told, rf"it said: iteration 10 could not be saved: .*{self.folder}/disk/run/checkpoints/\S+: "
                         "cannot be written: No space left on device; there is no checkpoint")
        kept = re.search(r"The state after iteration 10 is kept in (/dev/shm/\S+): the same command continues", told)
        self.assertTrue(kept and os.path.isdir(kept[1]), told)
        self.assertEqual(told.count("the same command"), 1, "one way to continue: " + told)
        told = self.train(self.on_disk("64M"), code=0, training_iters=10)
        self.assertIn(f"continuing from the state in {kept[1]}", told)
        self.assertFalse(os.path.exists(kept[1]))
        self.assert_nothing_left()

    def test_with_room_for_a_part_of_the_logs_the_rank_that_failed_is_told_with_its_last_lines(self):
        self.script("talk.sh", 'i=0; while [ $i -lt 2000 ]; do echo "line $i of rank $RANK"; i=$((i + 1)); done; '
                    'test $RANK = 1 || exec sleep 60; echo no room for rank $RANK; exit 7')
        told = self.tsrun("--worker_num=3", "--tail_worker_log=9", f"--log_dir={self.folder}/disk/log", "./talk.sh", code=7,
                          before=self.on_disk("40k"))
        self.assertRegex(told, r"tsrun: rank 1 of 3 on \S+ ended with exit code 7")
        self.assertIn("| no room for rank 1", told)
        self.assertRegex(told, r"its log is incomplete: \S+/worker_1.log: cannot be written: No space left on device")
        self.assertRegex(told, r"rank \d: its log \S+ cannot be written: No space left on device; it continues")
        self.assert_nothing_left()

    def test_a_rank_that_only_heard_of_the_error_is_not_blamed(self):
        self.script("one_wrong.sh", 'echo rank $RANK begins; test $RANK != 1 || set -- "$@" --set training_config.no_such=1; exec tessera "$@"')
        told = self.tsrun("--worker_num=2", "--tail_worker_log=9", "./one_wrong.sh", "train", "tiny.yaml", code=2)
        self.assertIn("no option 'no_such'", told)
        self.assertNotIn("rank 0 begins", told)


if __name__ == "__main__":
    harness.main()
