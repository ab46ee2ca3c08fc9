"""Saving while training goes on: the files are those of a synchronous save, however many updates come before they are written; and what is
killed, stopped or fails meanwhile costs no more than it does then."""

import os
import random
import signal

import faults_test
import harness
from bad_samples_test import file_fault
from faults_test import inject, line_of
from harness import sets
from launching import Launching, compile_preloaded

ASYNC = ["--set", "training_config.async_save=true"]
WAITS = "training waits for the checkpoint of iteration 5, which is still being written"


class AsyncSave(Launching):
    """The writing of the checkpoint of iteration 5 is held up by all ranks until the test lets it go."""

    state, assert_nothing_lost = faults_test.Faults.state, faults_test.Faults.assert_nothing_lost

    def setUp(self):
        super().setUp()
        self.seed = random.randrange(10**9)
        self.random = random.Random(self.seed)
        self.library = compile_preloaded(self.folder, "file_faults")

    def held(self, configuration, run, *more, rank="any", place="iter_0000005_tmp/", at=None):
        at = at or self.random.randrange(1, 8)
        held = {**file_fault(self.library, rank, place, f"hold {at}"), "FILE_FAULT_GO": str(self.folder / f"{run}.go")}
        return self.start_tsrun(*line_of(configuration, run, *ASYNC, *more), environment=held)

    def told(self, run):
        log = self.folder / run / "tessera.log"
        return log.read_text() if log.exists() else ""

    def let_go(self, run):
        (self.folder / f"{run}.go").touch()

    def all_files(self, run, folder="checkpoints"):
        """Relative name -> bytes of all files of all checkpoints but those that repeat the command."""
        found = {}
        for path in sorted((self.folder / run / folder).rglob("*iter_*/**/*")):
            if path.is_file() and path.name not in harness.WORDS_OF_THE_COMMAND:
                found[str(path.relative_to(self.folder / run))] = harness.without_run_id(path)
        return found

    def assert_same_files(self, run, reference, about, folder="checkpoints"):
        ours, theirs = self.all_files(run, folder), self.all_files(reference, folder)
        self.assertEqual(ours.keys(), theirs.keys(), about)
        self.assertGreater(len({name.split("/")[-2] for name in ours}), 0)
        for name, content in theirs.items():
            self.assertTrue(ours[name] == content, f"{name}: {about}")

    def compare(self, configuration, *more, folder="checkpoints"):
        about = f"{configuration} {more}, seed {self.seed}"
        self.tsrun(*line_of(configuration, "sync", *more))
        job = self.held(configuration, "async", *more)
        # Five updates come before the checkpoint is written, then the save of iteration 10 waits for it.
        self.wait_until(lambda: WAITS in self.told("async"), f"the wait of the next save, {about}", 100, job)
        self.assertEqual(self.steps_logged("async"), 10, about)
        self.assertNotIn("saved ", self.told("async"), about)
        self.let_go("async")
        self.end_of(job)
        self.assertEqual(self.told("async").count("training waits for the checkpoint"), 1, about)
        self.assertEqual(self.metrics("async"), self.metrics("sync"), about)
        self.assert_same_files("async", "sync", about, folder)

    def test_of_data_parallel_ranks(self):
        self.compare("DP 3")

    def test_of_tensor_parallel_ranks_and_stages(self):
        self.compare("TP 2, PP 2", "--set", "model_config.untie_embeddings_and_output_weights=false")

    def test_with_a_distributed_optimizer_and_16_bits(self):
        self.compare("bf16, distributed optimizer")

    def test_with_experts_and_their_bias(self):
        self.compare("experts, EP 2", "--set", "moe_config.moe_router_enable_expert_bias=true", "--set",
                     "moe_config.moe_router_score_function=sigmoid", "--set", "moe_config.moe_router_load_balancing_type=none",
                     "--set", "moe_config.moe_aux_loss_coeff=0")

    def test_of_whole_matrices(self):
        self.compare("Muon")

    def test_in_megatrons_distributed_format(self):
        self.compare("bf16, distributed optimizer", "--set", "training_config.ckpt_format=torch_dist", folder=".")

    def test_a_format_that_cannot_is_saved_synchronously_and_that_is_told(self):
        self.tsrun(*line_of("one rank, lines of 5 steps", "run", *ASYNC, "--set", "training_config.ckpt_format=torch"))
        told = self.told("run")
        self.assertEqual(told.count("training waits for each checkpoint in spite of training_config.async_save"), 1, told)

    def test_a_rank_that_is_killed_loses_no_step_and_leaves_nothing(self):
        rank = self.random.randrange(3)
        about = f"rank {rank}, seed {self.seed}"
        self.tsrun(*line_of("DP 3", "undisturbed"))
        job = self.held("DP 3", "disturbed", *inject([f"{rank}:8:update:kill", "0:9:forward:stop:1"]))
        log = self.folder / "disturbed/log/worker_0.log"
        self.wait_until(lambda: log.exists() and "injected fault: rank 0, step 9, forward, stop" in log.read_text(), "the next start", 100, job)
        self.assertEqual(list((self.folder / "disturbed/checkpoints").iterdir()), [], about)  # what was not finished is gone
        pid = self.process_of(0, "tessera")
        self.wait_until(lambda: self.is_stopped(pid), "the stop", 100, job)
        os.kill(pid, signal.SIGCONT)
        told = self.end_of(job)
        self.assertEqual(told.count("starting all workers again"), 1, f"{about}\n{told}")
        self.assertNotIn("network_iter_0000005", [path.name for path in self.checkpoints("disturbed")], about)
        self.assertEqual([path for path in (self.folder / "disturbed/checkpoints").iterdir() if path.name.endswith("_tmp")], [], about)
        self.assert_nothing_lost("disturbed", about=f"{about}\n{told}")
        self.assert_nothing_left()

    def test_a_run_that_stops_finishes_the_save_first(self):
        job = self.held("DP 3", "run", *sets(exit_interval=8))
        self.wait_until(lambda: self.steps_logged("run") == 8, "8 steps", 100, job)
        self.assertEqual(self.checkpoints("run"), [])
        self.let_go("run")
        self.end_of(job)
        self.assertEqual([path.name for path in self.checkpoints("run")], ["network_iter_0000005", "network_iter_0000008"])
        self.tsrun(*line_of("DP 3", "undisturbed"))
        self.tsrun(*line_of("DP 3", "run"))
        self.assert_nothing_lost("run", about=f"seed {self.seed}")

    def test_a_disk_that_fails_costs_one_checkpoint(self):
        self.tsrun(*line_of("bf16, distributed optimizer", "undisturbed"))
        for kind in ("write", "sync"):
            rank = self.random.randrange(3)
            fault = file_fault(self.library, rank, "iter_0000010_tmp/", f"{kind} {self.random.randrange(1, 3)}")
            told = self.tsrun(*line_of("bf16, distributed optimizer", kind, *ASYNC), environment=fault)
            about = f"{kind}, rank {rank}, seed {self.seed}\n{told}"
            self.assertEqual(self.told(kind).count("could not save iteration 10"), 1, about)
            self.assertRegex(self.told(kind), r"The last good checkpoint is \S*network_iter_0000005; training continues", about)
            self.assertEqual([path.name for path in self.checkpoints(kind)],
                             [f"network_iter_{n:07d}" for n in (5, 15, 20, 24)], about)
            self.assertEqual([path for path in (self.folder / kind / "checkpoints").iterdir() if path.name.endswith("_tmp")], [], about)
            self.assert_nothing_lost(kind, about=about)


if __name__ == "__main__":
    harness.main()
