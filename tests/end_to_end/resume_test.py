"""Stopping and going on: whatever ends a run, the finished run is the one that was never disturbed."""

import json
import random
import shutil
import signal
import subprocess
import time

import harness
from harness import sets
from launching import Launching


class Resume(harness.InOwnFolder):
    def test_ten_steps_equal_five_then_five(self):
        self.tessera("train", "tiny.yaml", *sets(training_iters=10, output_dir="straight"))
        # exit_interval=5 ends the first call after step 5 and the second after step 10.
        for _ in range(2):
            self.tessera("train", "tiny.yaml", *sets(training_iters=10, output_dir="halves", exit_interval=5))
        self.assert_same_run("straight", "halves")
        self.assertEqual([line["iteration"] for line in self.metrics("halves") if "loss" in line], list(range(1, 11)))

    def test_killed_at_random_moments_and_resumed_equals_undisturbed(self):
        length = dict(training_iters=360, save_interval=10)
        begin = time.monotonic()
        self.tessera("train", "tiny.yaml", *sets(output_dir="straight", **length))
        undisturbed = time.monotonic() - begin
        chance = random.Random()
        kills = 0
        for attempt in range(60):
            # The first attempt stops at step 300, so that however busy the machine is at least one attempt is killed.
            more = [] if attempt else ["--set", "resilience_config.inject_fault=[0:300:forward:stop]"]
            process = self.start("train", "tiny.yaml", *sets(output_dir="killed", **length), *more)
            delay = chance.uniform(0.02, 0.4) * undisturbed
            try:
                process.wait(timeout=delay)
            except subprocess.TimeoutExpired:
                process.kill()
                kills += 1
            out, err = process.communicate()
            if process.returncode == 0:
                break
            self.assertEqual(process.returncode, -signal.SIGKILL, out + err)
        else:
            self.tessera("train", "tiny.yaml", *sets(output_dir="killed", **length))
        self.assertGreater(kills, 0)
        self.assert_same_run("straight", "killed")

    def test_sigterm_finishes_the_step_saves_and_says_how_to_go_on(self):
        self.tessera("train", "tiny.yaml", *sets(training_iters=400, output_dir="straight"))
        process = self.start("train", "tiny.yaml", *sets(training_iters=400, output_dir="stopped"),
                             "--set", "resilience_config.inject_fault=[0:350:forward:stop]")  # the signal comes before its end
        self.wait_until(lambda: self.steps_logged("stopped") >= 20, "20 steps")
        process.send_signal(signal.SIGTERM)
        self.wait_until(lambda: self.is_stopped(process.pid) or process.poll() is not None, "the end, or the stop at step 350")
        process.send_signal(signal.SIGCONT)
        out, err = process.communicate(timeout=200)
        self.assertEqual(process.returncode, 0, out + err)
        steps = self.metrics("stopped")[-1]["iteration"]
        self.assertLess(steps, 400)
        self.assertRegex(out.splitlines()[-1], f"SIGTERM after iteration {steps} .*same command resumes from the newest checkpoint")
        self.tessera("train", "tiny.yaml", *sets(training_iters=400, output_dir="stopped"))
        self.assert_same_run("straight", "stopped")

    def test_second_signal_stops_at_once(self):
        process = self.start("train", "tiny.yaml", *sets(training_iters=1000000))
        self.wait_until(lambda: self.steps_logged() >= 5, "5 steps")
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=200)
        self.assertIn(process.returncode, (0, 130, -signal.SIGINT))

    def stopped_run(self, *numbers, **popen):
        """Trains for ever and sends the signals as soon as some steps are logged; what it printed in the end."""
        process = self.start("train", "tiny.yaml", *sets(training_iters=1000000), **popen)
        seen = self.steps_logged()
        self.wait_until(lambda: self.steps_logged() > seen, "a step")
        for number in numbers:
            process.send_signal(number)
        out, err = process.communicate(timeout=200)
        self.assertEqual(process.returncode, 0, out + err)
        return out.splitlines()[-1]

    def test_every_signal_of_terminals_and_schedulers_saves_and_ends(self):
        for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU, signal.SIGQUIT):
            self.assertRegex(self.stopped_run(number), rf"stopped by {number.name} after iteration \d+ .*, saved run/checkpoints/")

    def test_a_warning_that_is_repeated_is_one_request(self):
        """The system and the shell each report a closed terminal; the system repeats SIGXCPU every second."""
        self.assertIn("stopped by SIG", self.stopped_run(*3 * [signal.SIGHUP, signal.SIGXCPU, signal.SIGUSR1]))

    def test_a_hangup_ignored_by_nohup_stays_ignored(self):
        ends = self.stopped_run(signal.SIGHUP, signal.SIGTERM, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        self.assertIn("stopped by SIGTERM", ends)

    def test_a_closed_pipe_does_not_end_the_run(self):
        """As `tessera train | head`: what is printed later is in the run folder's log only."""
        process = self.start("train", "tiny.yaml", *sets(training_iters=20))
        process.stdout.close()
        self.assertEqual(process.wait(timeout=200), 0, process.stderr.read())
        process.stderr.close()
        self.assertEqual(len(self.losses()), 20)
        self.assertEqual(self.checkpoints()[-1].name, "network_iter_0000020")
        self.assertIn("iteration       20/", (self.folder / "run/tessera.log").read_text())

    def test_finished_run_says_so_and_changes_nothing(self):
        self.tessera("train", "tiny.yaml", *sets(training_iters=5))
        before, metrics = self.last_checkpoint(), self.metrics()
        told = self.tessera("train", "tiny.yaml", *sets(training_iters=5))
        self.assertRegex(told, "(?i)(done|finished|complete|nothing)")
        self.assertEqual(before, self.last_checkpoint())
        self.assertEqual(metrics, self.metrics())

    def test_resolved_recipe_repeats_the_run(self):
        self.tessera("train", "tiny.yaml", *sets(output_dir="first"))
        self.tessera("train", "first/resolved.yaml", *sets(output_dir="second"))
        self.assertEqual(self.metrics("first"), self.metrics("second"))

    def test_one_and_two_threads_give_the_same_bits(self):
        for threads in (1, 2, 3):
            self.tessera("train", "tiny.yaml", "--set", f"training_config.num_threads={threads}",
                         *sets(output_dir=f"threads{threads}"))
        for other in ("threads2", "threads3"):
            self.assertEqual(self.metrics("threads1"), self.metrics(other))
            one, two = self.last_checkpoint("threads1"), self.last_checkpoint(other)
            tensors = [name for name in one if name.endswith(".safetensors")]
            self.assertTrue(tensors)
            for name in tensors:
                self.assertTrue(one[name] == two[name], f"{name} differs between 1 thread and {other}")

    def test_damaged_newest_checkpoint_is_named_and_the_one_before_is_used(self):
        length = dict(training_iters=20, save_interval=5)
        self.tessera("train", "tiny.yaml", *sets(output_dir="straight", **length))
        self.tessera("train", "tiny.yaml", *sets(output_dir="damaged", exit_interval=15, **length))
        newest = self.checkpoints("damaged")[-1]
        victim = max(newest.rglob("*.safetensors"), key=lambda path: path.stat().st_size)
        data = bytearray(victim.read_bytes())
        data[len(data) * 3 // 4] ^= 0x10
        victim.write_bytes(data)
        told = self.tessera("train", "tiny.yaml", *sets(output_dir="damaged", **length))
        self.assertIn(newest.name, told)
        self.assertRegex(told, r"\b5 steps\b")
        self.assert_same_run("straight", "damaged")

    def test_full_disk_while_saving_keeps_the_run_and_the_last_good_checkpoint(self):
        process = self.start("train", "tiny.yaml", *sets(training_iters=300, save_interval=20),
                             preexec_fn=harness.ignore_file_size_signal)
        self.wait_until(lambda: self.checkpoints(), "a first checkpoint")
        size = max(path.stat().st_size for path in self.checkpoints()[-1].rglob("*.safetensors"))
        log = self.folder / "run" / "metrics.jsonl"
        limit = size // 2
        if log.stat().st_size < limit:
            harness.limit_file_size(process.pid, limit)
        good = self.checkpoints()[-1].name
        out, err = process.communicate(timeout=120)
        self.assertIn("save", out + err)
        self.assertGreaterEqual(self.steps_logged(), 100, "the run did not go on:\n" + out + err)
        self.assertIn(good, [path.name for path in self.checkpoints()])
        self.tessera("checkpoint", "verify", self.checkpoints()[-1])
        # With room again, the same command ends as if nothing had been.
        self.tessera("train", "tiny.yaml", *sets(training_iters=300, save_interval=20))
        self.tessera("train", "tiny.yaml", *sets(training_iters=300, save_interval=20, output_dir="straight"))
        self.assert_same_run("straight", "run")


class AsItBegan(Launching):
    """Options that say what a job takes of the checkpoint with which it begins. What the job saves itself is continued whole, by a restart and
    by a return to it; a return to the checkpoint with which it began begins as it did."""

    GOES_BACK = ["--set", "resilience_config.bad_step=skip", "--set", "resilience_config.roll_back_after=1"]
    GIVEN = dict(no_load_optim="true", new_dataset="true")
    MORE_TENSORS = ["--set", "model_config.qk_layernorm=true", *sets(dist_ckpt_strictness="log_all", allow_changes="[model_config.qk_layernorm]")]

    def setUp(self):
        super().setUp()
        self.recipe(training_iters=12, eval_interval=0, learning_rate=.01, optimizer_config__lr_decay_style="linear", optimizer_config__min_lr=.001,
                    training_config__save_interval=4)

    def train(self, run, *more, code=0, **options):
        return self.tessera("train", "tiny.yaml", *sets(output_dir=run, **options), *more, code=code)

    def after_four_steps(self, *runs):
        self.train("half", exit_interval=4)
        for run in runs:
            shutil.copytree(self.folder / "half", self.folder / run)

    def goes_back(self, run, step, *more, **options):
        """`step` is rejected, and is skipped from the newest checkpoint before it on."""
        told = self.train(run, *self.GOES_BACK, "--set", f"resilience_config.inject_fault=['0:{step}:reduce:nan!']", *more, **options)
        self.assertIn(f"iterations {step} to {step} are skipped, from the newest checkpoint before them on", told)
        return told

    def without_findings(self, run):
        files = self.last_checkpoint(run)
        name = next(name for name in files if name.endswith("progress.json"))
        content = json.loads(files[name])
        content.pop("findings", None)
        return {**files, name: json.dumps(content).encode()}

    def assert_same_steps(self, one, other):
        self.assertEqual(self.metrics(one), self.metrics(other))
        files, others = self.without_findings(one), self.without_findings(other)
        self.assertEqual([name for name in files if files[name] != others.get(name)], [])
        self.assertEqual(files.keys(), others.keys())

    def test_a_run_that_goes_back_continues_what_it_saved(self):
        self.train("calm", iterations_to_skip="[6]")
        self.assertIn("resuming from back/checkpoints/network_iter_0000004", self.goes_back("back", 7, no_load_optim="true"))
        self.assert_same_steps("calm", "back")

    def test_a_run_that_goes_back_to_where_it_began_begins_as_before(self):
        self.after_four_steps("calm", "back", "whole")
        self.train("calm", iterations_to_skip="[5]", **self.GIVEN)
        self.assertIn("resuming from back/checkpoints/network_iter_0000004", self.goes_back("back", 6, **self.GIVEN))
        self.assert_same_steps("calm", "back")
        self.train("whole", iterations_to_skip="[5]")
        self.assertNotEqual(self.losses("whole"), self.losses("calm"))

    def test_restarts_without_state_in_memory(self):
        """One before the job has saved a checkpoint, one after it."""
        self.after_four_steps("calm", "killed")
        self.train("calm", **self.GIVEN)
        told = self.tsrun("--worker_num=1", "--max_restarts=3", "tessera", "train", "tiny.yaml", *sets(output_dir="killed", **self.GIVEN),
                          "--set", "resilience_config.policy=off", "--set", "resilience_config.inject_fault=['0:6:forward:kill:0', '0:10:forward:segv:1']")
        self.assertEqual(told.count("starting all workers again"), 2, told)
        self.assert_same_run("calm", "killed")

    def test_another_phase_of_a_job_script_takes_what_it_says(self):
        """A requeued Slurm job whose script trains in two phases: the second one is no restart of the first."""
        self.after_four_steps("calm")
        self.train("calm", **self.GIVEN)
        for options, count in ((dict(exit_interval=4), {}), (self.GIVEN, {"SLURM_RESTART_COUNT": "1"})):
            self.tessera("train", "tiny.yaml", *sets(output_dir="phases", **options), environment={"SLURM_JOB_ID": "7", **count})
        self.assertEqual(self.metrics("calm"), self.metrics("phases"))

    def test_a_requeued_job_that_saves_no_optimizer_state_begins_it_anew(self):
        for exit_interval, count in ((4, {}), (8, {"SLURM_RESTART_COUNT": "1"})):
            told = self.tessera("train", "tiny.yaml", *sets(output_dir="bare", exit_interval=exit_interval, no_save_optim="true", no_load_optim="true"),
                                environment={"SLURM_JOB_ID": "7", **count})
        self.assertIn("resuming from bare/checkpoints/network_iter_0000004", told)

    def test_data_that_go_on_are_read_in_an_order_that_can_go_on(self):
        """The samples of a cyclic loader depend on the batch size; new_dataset is about the data with which the job began."""
        cyclic = ["--set", "dataset_config.dataloader_type=cyclic", "--set", "optimizer_config.override_opt_param_scheduler=true",
                  *sets(output_dir="cyclic", new_dataset="true")]
        for batch, count, code in ((4, {}, 0), (5, {"SLURM_RESTART_COUNT": "1"}, 2)):
            told = self.tessera("train", "tiny.yaml", *cyclic, *sets(exit_interval=4), "--set", f"dataset_config.batch_size={batch}",
                                environment={"SLURM_JOB_ID": "7", **count}, code=code)
        self.assertIn("the run has consumed 16 samples", told)

    def test_tensors_that_the_checkpoint_lacks_have_their_initial_values_again(self):
        self.after_four_steps("calm", "back", "straight", "damaged")
        self.train("calm", *self.MORE_TENSORS, iterations_to_skip="[5]")
        self.goes_back("back", 6, *self.MORE_TENSORS)
        self.assert_same_steps("calm", "back")
        self.assertEqual(len(self.tensors(self.checkpoints("back")[-1], r"decoder.*\.[qk]_layernorm")), 8)
        # A newer checkpoint that has them is read in part, and found to be damaged.
        self.train("straight", *self.MORE_TENSORS)
        self.train("damaged", *self.MORE_TENSORS, exit_interval=8)
        file = self.checkpoints("damaged")[-1] / "optimizer_00000.safetensors"
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 0x10
        file.write_bytes(data)
        self.assertIn("resuming from damaged/checkpoints/network_iter_0000004", self.train("damaged", *self.MORE_TENSORS))
        self.assert_same_run("straight", "damaged")


if __name__ == "__main__":
    harness.main()
