"""A bit of weights or optimizer state changes in memory: it is found, the rank is named, and every number of the run and every byte of its
last checkpoint are those of an undisturbed run of the same command."""

import random

import faults_test
import harness
import host_loss_test
from faults_test import inject
from harness import sets
from launching import Launching

STEPS = 16
EVERY_STEP = ["--set", "resilience_config.check_state_interval=1"]
NOT_COMPARED = ["--set", "resilience_config.check_state_interval=0"]
BF16 = ["--set", "training_config.bf16=true"]
# Of vectors in 16 bits every instruction set keeps a rounded copy, and no operation reads the fp32 weights.
VECTORS = ["--set", "training_config.trainable_parameters=['.*norm.*', '.*bias']"]
TENSOR_PIPELINE = ["--set", "parallel_config.tensor_model_parallel_size=2", "--set", "parallel_config.pipeline_model_parallel_size=2",
                   "--set", "dataset_config.micro_batch_num=2"]
ONLY_COMPARED = ["--set", "resilience_config.check_updates=false"]


def flips(draw, ranks, steps, phases):
    """At different steps, each on a random rank in a random phase."""
    return [f"{draw.randrange(ranks)}:{step}:{draw.choice(phases)}:flip" for step in steps]


class Flips(Launching):
    state, assert_nothing_lost = faults_test.Faults.state, faults_test.Faults.assert_nothing_lost

    def log_of(self, run):
        return (self.folder / run / "tessera.log").read_text()


class Repaired(Flips):
    """A rank that has the same gives it: no step is computed again."""

    def assert_repaired(self, faults, run="disturbed", about=""):
        for rank, step in (fault.split(":")[:2] for fault in faults):
            self.assertRegex(self.log_of(run), rf"after iteration ({step}|{int(step) + 1}) weights or optimizer state of rank {rank} on \S+ had "
                             "changed in memory; repaired from a rank that has the same: no step is lost", about)

    def check(self, options, faults, ranks, about):
        """Not of this machine's ranks alone: `options` are those of line_of()."""
        line = lambda run, *more: [f"--worker_num={ranks}", "--tail_worker_log=9", "tessera", "train", "tiny.yaml",
                                   *sets(training_iters=STEPS, eval_interval=4, save_interval=5, output_dir=run), *options, *more]
        self.tsrun(*line("undisturbed"))
        told = self.tsrun(*line("disturbed", *inject(faults)))
        self.assertNotIn("starting all workers again", told)
        self.assert_repaired(faults, about=f"{about}\n{told}")
        self.assert_nothing_lost("disturbed", about=f"{about}\n{told}")

    def test_data_parallel_of_three_whatever_changes(self):
        """Right after the update, before anything was computed with it."""
        seed = random.randrange(10**9)
        self.check(EVERY_STEP, flips(random.Random(seed), 3, (3, 8, 15), ["report", "gather"]), 3, f"seed {seed}")

    def test_what_changes_before_a_save_that_goes_on_is_never_a_checkpoint(self):
        """The update after it finds the change; until then the checkpoint, which has the changed bit, does not get its name."""
        rank = random.randrange(3)
        line = lambda run, *more: [f"--worker_num={3}", "--tail_worker_log=9", "tessera", "train", "tiny.yaml",
                                   *sets(training_iters=STEPS, eval_interval=4, save_interval=5, output_dir=run, async_save="true"), *BF16,
                                   *VECTORS, *NOT_COMPARED, *more]
        self.tsrun(*line("undisturbed"))
        faults = [f"{rank}:5:gather:flip"]
        told = self.tsrun(*line("disturbed", *inject(faults)))
        about = f"rank {rank}\n{told}"
        self.assert_repaired(faults, about=about)
        self.assertRegex(self.log_of("disturbed"), "could not save iteration 5: .*weights or optimizer state had changed in memory", about)
        self.assertEqual([path.name for path in self.checkpoints("undisturbed")][:2], ["network_iter_0000005", "network_iter_0000010"])
        self.assertEqual([path.name for path in self.checkpoints("disturbed")][:1], ["network_iter_0000010"], about)
        self.assert_nothing_lost("disturbed", about=about)

    def test_a_save_that_goes_on_waits_for_an_update_also_over_steps_that_are_skipped(self):
        """Overflows follow the save, so that no update verifies what it has: it must not be committed because steps have passed. They are enough
        for all ranks to write."""
        rank = random.randrange(3)
        overflows = [f"{random.randrange(3)}:{step}:reduce:nan" for step in range(41, 73)]
        line = lambda run, *faults: ["--worker_num=3", "--tail_worker_log=9", "tessera", "train", "tiny.yaml",
                                     *sets(training_iters=80, eval_interval=100, save_interval=40, output_dir=run, async_save="true", fp16="true"),
                                     *VECTORS, *NOT_COMPARED, *inject([*faults, *overflows])]
        self.tsrun(*line("undisturbed"))
        told = self.tsrun(*line("disturbed", f"{rank}:40:gather:flip"))
        about = f"rank {rank}, {overflows}\n{told}"
        names = [[path.name for path in self.checkpoints(run)] for run in ("undisturbed", "disturbed")]
        self.assertEqual(names, [["network_iter_0000040", "network_iter_0000080"], ["network_iter_0000080"]], about)
        self.assertRegex(self.log_of("disturbed"), "could not save iteration 40: .*weights or optimizer state had changed in memory", about)
        self.assert_nothing_lost("disturbed", about=about)

    def test_what_only_the_optimizer_reads_at_any_time(self):
        """In 16 bits no gradient is computed with it. It is found by the next update, in the step after; a checkpoint that is due in between
        has nothing of it."""
        seed = random.randrange(10**9)
        faults = flips(random.Random(seed), 2, (5, 9, 12, 14), ["forward", "reduce", "commit", "report", "gather"])
        self.check(BF16 + VECTORS + NOT_COMPARED, faults, 2, f"seed {seed}")


class RepairedFromCopies(host_loss_test.HostLoss):
    """The shards of a distributed optimizer, of which the other host has copies."""

    def test_shards_of_a_distributed_optimizer(self):
        seed = random.randrange(10**9)
        options = [*host_loss_test.SHARDS, *host_loss_test.BF16, *host_loss_test.REPLICA, *EVERY_STEP]
        faults = flips(random.Random(seed), 4, (4, 7, 11), ["forward", "gather"])
        self.undisturbed(*options)
        told = [self.end_of(job) for job in self.start("disturbed", *options, *inject(faults))][0]
        self.assertNotIn("starting all workers again", told)
        Repaired.assert_repaired(self, faults, about=f"seed {seed}\n{told}")
        self.assert_nothing_lost("disturbed", about=f"seed {seed}\n{told}")

    log_of = Flips.log_of


class RolledBack(Flips):
    """Where nobody has the right state, or gradients of the wrong one were used, the run goes back to its newest checkpoint."""

    def check(self, options, faults, ranks, *told_of, about=""):
        line = lambda run, *more: [f"--worker_num={ranks}", "--tail_worker_log=9", "tessera", "train", "tiny.yaml",
                                   *sets(training_iters=STEPS, save_interval=5, output_dir=run), *options, *more]
        self.tsrun(*line("undisturbed"))
        told = self.tsrun(*line("disturbed", *inject(faults)))
        self.assertNotIn("starting all workers again", told)
        for words in told_of:
            self.assertRegex(self.log_of("disturbed"), words, f"{about}\n{told}")
        self.assert_nothing_lost("disturbed", about=f"{about}\n{told}")

    def test_tensor_and_pipeline_parallel_without_replicas(self):
        self.check(TENSOR_PIPELINE, ["2:10:gather:flip"], 4, r"after iteration 10 the state of rank 2 on \S+ is damaged: no other rank has the same "
                   "weights and optimizer state: the run goes back to its newest checkpoint")

    def test_an_interval_does_not_end_a_run_that_has_gone_back_to_one(self):
        line = lambda run, *more: ["--worker_num=1", "tessera", "train", "tiny.yaml",
                                   *sets(training_iters=STEPS, save_interval=5, output_dir=run), *more]
        self.tsrun(*line("undisturbed"))
        interval = sets(exit_interval=5) + ["--set", "resilience_config.check_state_interval=3"]
        self.assertIn("stopped by exit_interval 5 after iteration 5", self.tsrun(*line("disturbed", *interval)))
        told = self.tsrun(*line("disturbed", *interval, *inject(["0:9:gather:flip"])))
        self.assertIn("the run goes back to its newest checkpoint", self.log_of("disturbed"))
        self.assertIn("stopped by exit_interval 5 after iteration 10", told)
        self.tsrun(*line("disturbed"))
        self.assert_nothing_lost("disturbed", about=told)

    def test_fp32_weights_at_any_time(self):
        seed = random.randrange(10**9)
        faults = flips(random.Random(seed), 3, (7, 9, 13), ["forward", "reduce", "commit", "report", "gather"])
        self.check([], faults, 3, r"had changed in memory|is damaged", about=f"seed {seed}: {faults}")

    def test_of_two_ranks_without_checksums_of_updates(self):
        self.check(ONLY_COMPARED + EVERY_STEP, ["1:8:gather:flip"], 2,
                   r"after iteration 8 the state of rank 0 on \S+, rank 1 on \S+ differs, and it is not known which of them is wrong",
                   r"iteration 8 was computed again: the state of rank 1 on \S+ was wrong")

    def test_without_a_checkpoint_the_run_ends(self):
        job = self.start_tsrun("--worker_num=1", "tessera", "train", "tiny.yaml", *sets(training_iters=STEPS, output_dir="run"), *EVERY_STEP,
                               *inject(["0:4:gather:flip"]))
        told, _ = job.communicate(timeout=200)
        self.assertNotEqual(job.returncode, 0)
        self.assertRegex(told, r"after iteration 4 the state of rank 0 on \S+ is damaged: .* Nothing of it was saved, and there is no checkpoint")
        self.assertFalse((self.folder / "run/checkpoints").exists() and self.checkpoints("run"))


if __name__ == "__main__":
    harness.main()
