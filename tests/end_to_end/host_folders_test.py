"""Checkpoints where each host has folders of its own: two tsruns on this machine that run in different folders, as hosts without a shared file
system. Their parts become one checkpoint, for any layout; what a host lost is named, and the newest checkpoint that is whole is taken."""

import json
import os
import shutil
import signal

import harness
from faults_test import inject
from harness import sets
from launching import Launching

FROM_DISK = ["--set", "resilience_config.policy=off"]  # not from the memory of the processes before
SHARDS = ["--set", "training_config.use_distributed_optimizer=true"]


class HostFolders(Launching):
    def setUp(self):
        super().setUp()
        self.disks = [self.folder / name for name in ("disk0", "disk1")]
        for disk in self.disks:
            disk.mkdir()
            shutil.copy(self.folder / "tiny.yaml", disk)

    def both(self, *more, code=0, **options):
        """Four ranks, two on each host. What the first host told."""
        port = self.free_port()
        options = {"training_iters": 12, "eval_interval": 100, "output_dir": "run", **options}
        line = ["--worker_num=4", "--local_worker_num=2", f"--master_port={port}", "--tail_worker_log=0", "--max_restarts=0"]
        jobs = [self.start_tsrun(f"--node_rank={host}", f"--log_dir=log{host}", *line, "tessera", "train", "tiny.yaml", *sets(**options), *FROM_DISK,
                                 *more, cwd=self.disks[host]) for host in (1, 0)]
        told = self.end_of(jobs[1], code)
        jobs[0].communicate(timeout=100)
        log = self.disks[0] / "run/tessera.log"
        return told + (log.read_text() if log.exists() else "")

    def straight(self, *more):
        self.tsrun("--worker_num=4", "--tail_worker_log=9", "tessera", "train", "tiny.yaml",
                   *sets(training_iters=12, eval_interval=100, output_dir="straight"), *more)
        return self.losses("straight")

    def losses_of(self, run):
        lines = (self.disks[0] / run / "metrics.jsonl").read_text().splitlines()
        return [json.loads(line)["loss"] for line in lines if "loss" in json.loads(line)]

    def parts(self, host, folder):
        return sorted(path.name for path in (self.disks[host] / folder).glob("manifest_*.json"))

    def test_each_host_keeps_its_parts_and_the_index_and_they_are_loaded_together(self):
        for name, more in (("copies", []), ("shards", SHARDS + ["--set", "training_config.async_save=true"])):
            with self.subTest(name):
                straight = self.straight(*more)
                self.both(*more, save_interval=3, exit_interval=6, keep_checkpoint_max=1)
                folder = "run/checkpoints/network_iter_0000006"
                for host in range(2):
                    self.assertEqual([path.name for path in (self.disks[host] / "run/checkpoints").glob("*iter_*[0-9]")], ["network_iter_0000006"])
                    self.assertEqual(self.parts(host, folder), [f"manifest_0000{2 * host + rank}.json" for rank in range(2)])
                    told = self.tessera("checkpoint", "verify", self.disks[host] / folder, code=24)
                    self.assertRegex(told, r"manifest_0000\d.json is not here: it was saved on host \S+, in a folder of its own")
                # Also on another layout.
                told = self.both(*more, "--set", "parallel_config.tensor_model_parallel_size=2", batch_size=8, exit_interval=8, keep_checkpoint_max=9)
                self.assertIn("resuming from run/checkpoints/network_iter_0000006 after iteration 6", told)
                told = self.both(*more)
                self.assertIn("resuming from run/checkpoints/network_iter_0000008 after iteration 8", told)
                found = self.losses_of("run")
                self.assertEqual(found[:6], straight[:6])
                self.assertEqual(len(found), 12)
                for ours, theirs in zip(found, straight):
                    self.assertAlmostEqual(ours, theirs, places=4)
                # The files of both hosts in one folder are an ordinary checkpoint.
                for host in range(2):
                    shutil.copytree(self.disks[host] / "run/checkpoints/network_iter_0000012", self.folder / "joined", dirs_exist_ok=True)
                self.tessera("checkpoint", "verify", self.folder / "joined")
                for path in ["joined", "straight", *(f"disk{host}/run" for host in range(2))]:
                    shutil.rmtree(self.folder / path)

    def test_frozen_parameters_come_from_the_host_that_has_them(self):
        frozen = ["--set", "training_config.frozen_parameters=[embedding.*, decoder.layers.0.*]"]
        straight = self.straight(*frozen)
        self.both(*frozen, save_interval=6, exit_interval=6)
        told = self.both(*frozen)
        self.assertIn("resuming from run/checkpoints/network_iter_0000006 after iteration 6", told)
        found = self.losses_of("run")
        self.assertEqual(len(found), 12)
        for ours, theirs in zip(found, straight):
            self.assertAlmostEqual(ours, theirs, places=4)

    def test_non_persistent_checkpoints_of_type_local_lie_on_each_host(self):
        straight = self.straight()
        shared = str(self.folder / "shared")
        options = dict(output_dir=shared, save_interval=6, non_persistent_save_interval=4, non_persistent_ckpt_type="local",
                       non_persistent_local_ckpt_dir="local")
        self.both(**options, exit_interval=10)
        for host in range(2):
            self.assertEqual([path.name for path in (self.disks[host] / "local").glob("*iter_*")], ["network_iter_0000008"])
            self.assertEqual(len(self.parts(host, "local/network_iter_0000008")), 2)
        shutil.rmtree(self.folder / "shared/checkpoints/network_iter_0000010")
        shutil.copytree(self.folder / "shared", self.folder / "shared_before")
        self.both(**options)
        log = (self.folder / "shared/tessera.log").read_text()
        self.assertIn("resuming from local/network_iter_0000008 after iteration 8", log)
        self.assertEqual(self.losses("shared"), straight)
        # A host has lost its disk: the newest that is whole is the persistent one.
        shutil.rmtree(self.folder / "shared")
        shutil.copytree(self.folder / "shared_before", self.folder / "shared")
        shutil.rmtree(self.disks[1] / "local")
        self.both(**options)
        log = (self.folder / "shared/tessera.log").read_text()
        self.assertRegex(log, r"checkpoint local/network_iter_0000008 is not whole: 2 of 4 parts, which were saved on \S+, are on no host of this run")
        self.assertRegex(log, r"resuming from \S*/shared/checkpoints/network_iter_0000006 after iteration 6")
        self.assertEqual(self.losses("shared"), straight)

    def test_a_host_that_stopped_before_it_committed_its_part_does_so_at_the_next_start(self):
        straight = self.straight()
        self.both(save_interval=3, exit_interval=6)
        newest = self.disks[1] / "run/checkpoints/network_iter_0000006"
        newest.rename(str(newest) + "_tmp")
        shutil.rmtree(str(newest) + "_tmp/blobs")
        (newest.parent / "network_iter_0000006_tmp/manifest.json").unlink()
        told = self.both()
        self.assertIn("resuming from run/checkpoints/network_iter_0000006 after iteration 6", told)
        self.assertEqual(self.losses_of("run"), straight)
        self.assertTrue((newest / "manifest.json").exists())

    def test_a_run_that_goes_on_from_memory_commits_what_a_host_has_left_unfinished(self):
        """The second host is killed, with all processes, after the first has committed: it restarts from the memory of its processes, and reads no
        checkpoint; what it has of iteration 3 is part of one all the same."""
        straight = self.straight()
        memory = ["--set", "resilience_config.policy=memory", *inject(["2:5:forward:stop"])]
        port = self.free_port()
        line = ["--worker_num=4", "--local_worker_num=2", f"--master_port={port}", "--tail_worker_log=0", "--max_restarts=1"]
        jobs = [self.start_tsrun(f"--node_rank={host}", f"--log_dir=log{host}", *line, "tessera", "train", "tiny.yaml",
                                 *sets(training_iters=12, eval_interval=100, output_dir="run", save_interval=3, keep_checkpoint_max=9), *memory,
                                 cwd=self.disks[host]) for host in (1, 0)]
        log = self.disks[1] / "log1/worker_2.log"
        self.wait_until(lambda: log.exists() and "injected fault: rank 2, step 5" in log.read_text(), "the fault", 100, jobs[1])
        newest = self.disks[1] / "run/checkpoints/network_iter_0000003"
        left = newest.rename(str(newest) + "_tmp")
        shutil.rmtree(left / "blobs")
        (left / "manifest.json").unlink()
        os.kill(self.process_of(2, "tessera"), signal.SIGKILL)
        told = self.end_of(jobs[1])
        jobs[0].communicate(timeout=100)
        self.assertIn("starting all workers again", told)
        self.assertEqual(self.losses_of("run"), straight)
        self.assertTrue((newest / "manifest.json").exists(), told)
        self.assertFalse(left.exists())
        for host in range(2):
            shutil.copytree(self.disks[host] / "run/checkpoints/network_iter_0000003", self.folder / "joined", dirs_exist_ok=True)
        self.tessera("checkpoint", "verify", self.folder / "joined")

    def test_a_damaged_part_of_one_host_sets_the_checkpoint_aside_on_all(self):
        straight = self.straight()
        self.both(save_interval=3, exit_interval=6)
        weights = next((self.disks[1] / "run/checkpoints/network_iter_0000006").glob("optimizer_*.safetensors"))
        data = bytearray(weights.read_bytes())
        data[-3] ^= 1
        weights.write_bytes(data)
        told = self.both()
        self.assertRegex(told, r"network_iter_0000006 is damaged: .*CRC")
        self.assertIn("resuming from run/checkpoints/network_iter_0000003 after iteration 3", told)
        self.assertEqual(self.losses_of("run"), straight)
        for host in range(2):
            self.assertTrue((self.disks[host] / "run/checkpoints/network_iter_0000006_damaged").exists())


if __name__ == "__main__":
    harness.main()
