"""Runs whose processes die again and again under tsrun: every number of the run and every byte of its last checkpoint are those
of an undisturbed run of the same command."""

import contextlib
import os
import random
import re
import signal
import subprocess
import time

import harness
import launch_hosts_test
from harness import sets
from launching import Launching

STEPS = 24

# What is trained, and by how many ranks. Names of docs/resilience.md.
CONFIGURATIONS = {
    "DP 3": (3, []),
    "TP 2, PP 2": (4, ["parallel_config.tensor_model_parallel_size=2", "parallel_config.pipeline_model_parallel_size=2",
                       "dataset_config.micro_batch_num=2"]),
    "bf16, distributed optimizer": (3, ["training_config.bf16=true", "training_config.use_distributed_optimizer=true",
                                        "training_config.overlap_grad_reduce=true", "optimizer_config.overlap_param_gather=true"]),
    "fp16, overflows": (2, ["training_config.fp16=true", "training_config.loss_scale_value=1e9", "training_config.hysteresis=1",
                            "training_config.loss_scale_window=4"]),
    "experts, EP 2": (2, ["model_config.num_experts=4", "parallel_config.expert_model_parallel_size=2",
                          "moe_config.moe_router_topk=2", "moe_config.moe_router_load_balancing_type=aux_loss",
                          "moe_config.moe_aux_loss_coeff=0.01", "model_config.add_bias_linear=false"]),
    "Muon": (2, ["optimizer_config.optimizer_type=muon"]),
    "one rank, lines of 5 steps": (1, ["training_config.log_interval=5"]),
}
PHASES = ["forward", "reduce", "commit", "update", "report", "gather"]
MODES = ["kill", "segv", "bus", "fpe", "abort", "exit", "quit", "error", "term"]
EVALUATIONS, SAVES = 4, 5


def line_of(configuration, folder, *more):
    ranks, options = CONFIGURATIONS[configuration]
    options = [word for option in options for word in ("--set", option)]
    return [f"--worker_num={ranks}", "--tail_worker_log=9", "tessera", "train", "tiny.yaml",
            *sets(training_iters=STEPS, eval_interval=EVALUATIONS, save_interval=SAVES, output_dir=folder), *options, *more]


FROM_CHECKPOINTS = ["--set", "resilience_config.policy=off"]


def inject(faults):
    return ["--set", f"resilience_config.inject_fault=[{', '.join(faults)}]"]


def random_faults(draw, ranks, count, without=(), steps=STEPS):
    """One fault or several for each start, at the same step or a later one, never in the same way twice in a row: without a
    complete step between them that would end the run."""
    faults, step, last, phase, repeats = [], 0, None, None, 0
    for start in range(count):
        again = phase in ("forward", "reduce")  # else a rank has begun the update, and the next start completes the step
        repeats = repeats + 1 if again and repeats < 2 and draw.random() < .4 else 0
        step += 0 if repeats else draw.choice([1, 1, 2])
        if step > steps:
            break
        phases = [phase for phase in PHASES if phase not in without] + ["evaluate"] * (step % EVALUATIONS == 0) + ["save"] * (step % SAVES == 0)
        while True:
            rank, phase, mode = draw.randrange(ranks), draw.choice(phases), draw.choice(MODES)
            way = "exit" if mode == "error" else mode  # the same exit code
            if way != last:
                break
        last = way
        faults.append(f"{rank}:{step}:{phase}:{mode}:{start}")
        if draw.random() < .2:  # all at once
            faults += [f"{other}:{step}:{phase}:{mode}:{start}" for other in range(ranks) if other != rank]
    return faults


class Faults(Launching):
    def state(self, run):
        folder = self.checkpoints(run)[-1]
        return {str(path.relative_to(folder)): harness.without_run_id(path) for path in sorted(folder.rglob("*"))
                if path.is_file() and path.name not in harness.WORDS_OF_THE_COMMAND}

    def assert_nothing_lost(self, run, reference="undisturbed", about=""):
        self.assertEqual(self.metrics(run), self.metrics(reference), about)
        ours, theirs = self.state(run), self.state(reference)
        self.assertEqual(ours.keys(), theirs.keys(), about)
        for name, content in theirs.items():
            self.assertTrue(ours[name] == content, f"{name}: {about}")
        self.assertEqual(self.checkpoints(run)[-1].name, self.checkpoints(reference)[-1].name, about)

    def check(self, configuration, count=6, without=()):
        seed = random.randrange(10**9)
        ranks = CONFIGURATIONS[configuration][0]
        faults = random_faults(random.Random(seed), ranks, count, without)
        about = f"{configuration}, seed {seed}: {' '.join(faults)}"
        self.tsrun(*line_of(configuration, "undisturbed"))
        job = self.start_tsrun("--max_restarts=9", *line_of(configuration, "disturbed", *inject(faults)))
        told, _ = job.communicate(timeout=120)
        self.assertEqual(job.returncode, 0, f"{about}\n{told}")
        self.assertEqual(told.count("starting all workers again"), len({fault.split(":")[4] for fault in faults}), f"{about}\n{told}")
        self.assert_nothing_lost("disturbed", about=f"{about}\n{told}")
        self.assert_nothing_left()

    def test_data_parallel_of_three(self):
        self.check("DP 3")

    def test_tensor_and_pipeline_parallel_without_replicas(self):
        self.check("TP 2, PP 2")

    def test_bf16_with_a_distributed_optimizer_that_overlaps(self):
        self.check("bf16, distributed optimizer")

    def test_fp16_with_overflows(self):
        self.check("fp16, overflows", without=["update"])  # which a step that overflows does not have
        self.assertTrue(any(line.get("skipped") for line in self.metrics("disturbed")), "no step overflowed")

    def test_experts(self):
        self.check("experts, EP 2")

    def test_muon(self):
        self.check("Muon")

    def test_killed_again_while_it_completes_an_update(self):
        faults = ["0:7:update:kill:0", "0:7:update:segv:1", "0:7:update:abort:2"]
        self.tsrun(*line_of("DP 3", "undisturbed"))
        told = self.tsrun(*line_of("DP 3", "disturbed", *inject(faults)))
        self.assertEqual(told.count("starting all workers again"), 3, told)
        self.assert_nothing_lost("disturbed", about=told)

    def test_restarts_that_fail_before_any_rank_has_its_state_again(self):
        # Not the same failure of the same rank twice: that step would be given up.
        faults = [f"{rank}:7:update:{mode}:{start}" for start, mode in enumerate(("kill", "segv")) for rank in range(3)]
        self.tsrun(*line_of("DP 3", "undisturbed"))
        told = self.tsrun(*line_of("DP 3", "disturbed", *inject(faults)))
        self.assertEqual(told.count("starting all workers again"), 2, told)
        self.assert_nothing_lost("disturbed", about=told)
        self.assert_nothing_left()

    def test_one_rank_whose_lines_average_several_steps(self):
        self.check("one rank, lines of 5 steps", 10)
        lines = lambda run: [re.sub(r"^.*?iteration|elapsed time per iteration \(ms\): [\d.]+", "", line)
                             for line in (self.folder / run / "tessera.log").read_text().splitlines() if "lm loss:" in line]
        self.assertEqual([line for line in lines("disturbed") if line], lines("undisturbed"))

    def test_killed_from_outside_at_any_moment(self):
        seed = random.randrange(10**9)
        draw = random.Random(seed)
        self.tsrun(*line_of("DP 3", "undisturbed", *sets(training_iters=400)))
        # The first start stops at step 395: it cannot end before it is killed.
        job = self.start_tsrun(*line_of("DP 3", "disturbed", *sets(training_iters=400), *inject(["1:395:forward:stop:0"])))
        for step in sorted(draw.sample(range(5, 390), 4)):
            self.wait_until(lambda: self.steps_logged("disturbed") >= step, f"step {step}")
            for rank in draw.sample(range(3), draw.choice([1, 1, 2, 3])):
                for pid, variables in self.processes("tessera").items():
                    if variables.get("RANK") == str(rank):
                        with contextlib.suppress(ProcessLookupError):  # it has ended since it was listed
                            os.kill(pid, signal.SIGKILL)
        told = self.end_of(job)
        self.assertIn("starting all workers again", told)
        self.assert_nothing_lost("disturbed", about=f"seed {seed}\n{told}")
        self.assert_nothing_left()

    def test_mpirun_may_be_killed(self):
        # The run does not end before mpirun is killed; a mpirun that survives does not wait for the stopped rank.
        length = [*sets(training_iters=40), "--set", "resilience_config.step_time_out=3"]
        self.tsrun(*line_of("DP 3", "undisturbed", *length))
        for number in (signal.SIGKILL, signal.SIGTERM):
            with self.subTest(number):
                run = f"disturbed{number}"
                job = self.start_tsrun(*line_of("DP 3", run, *length, *inject(["1:30:forward:stop:0"])))
                self.wait_until(lambda: self.steps_logged(run) >= 5, "5 steps")
                os.kill(next(iter(self.processes("mpirun") or self.processes("orterun"))), number)
                told = self.end_of(job)
                self.assert_nothing_lost(run, about=told)
                self.assert_nothing_left()

    def test_an_only_rank_that_hangs_or_is_stopped(self):
        """Nobody waits for it in an operation; the process that watches it knows how long a step takes. In the first, the second and the
        third start: of jobs side by side, because each waits for a time-out that no step reaches on a slow machine."""
        stacks = "the stacks of its threads are in its log"
        cases = ((["0:5:forward:hang:0"], f"step 5 within 3 s; {stacks}"),
                 (["0:3:forward:kill:0", "0:11:commit:stop:1"], "step 11 within 3 s; it is stopped by SIGSTOP"),
                 (["0:3:forward:kill:0", "0:8:update:segv:1", "0:20:evaluate:hang:2"], rf"an evaluation within \d+ s; {stacks}"))
        line = lambda run, *more: line_of("one rank, lines of 5 steps", run, *sets(eval_interval=5), *more)
        self.tsrun(*line("undisturbed"))
        jobs = [self.start_tsrun(*line(f"disturbed{number}", *inject(faults), "--set", "resilience_config.step_time_out=3"))
                for number, (faults, _) in enumerate(cases)]
        for number, (faults, words) in enumerate(cases):
            told = self.end_of(jobs[number])
            self.assertRegex(told, rf"\(it did not complete {words}\)")
            self.assertEqual(told.count("starting all workers again"), len(faults), told)
            log = self.log("worker_0.log", f"disturbed{number}/log")
            self.assertEqual([log.count("end of the stacks"), "tessera::resilience::Faults::reach(" in log], [1, True] if stacks in words else [0, False])
            self.assert_nothing_lost(f"disturbed{number}", about=told)
        self.assert_nothing_left()

    def test_a_rank_that_hangs_or_is_stopped(self):
        faults = ["1:5:forward:hang:0", "2:11:reduce:stop:1", "0:14:commit:hang:2"]
        self.tsrun(*line_of("DP 3", "undisturbed"))
        told = self.tsrun(*line_of("DP 3", "disturbed", *inject(faults), "--set", "resilience_config.step_time_out=3"))
        for rank, step in ((1, 5), (2, 11), (0, 14)):
            self.assertRegex(told, rf"rank {rank} of 3 on \S+ \(tp 0 dp {rank} pp 0, iteration {step}\) hung")
        stacks = [self.log(f"worker_{rank}.log", "disturbed/log").count("end of the stacks") for rank in range(3)]
        self.assertEqual(stacks, [1, 1, 0], "who waits for a hung rank is not taken for hung")
        self.assert_nothing_lost("disturbed", about=told)
        self.assert_nothing_left()

    def test_a_rank_that_is_stopped_for_a_moment_is_waited_for(self):
        self.tsrun(*line_of("DP 3", "undisturbed"))
        job = self.start_tsrun(*line_of("DP 3", "disturbed", *inject(["1:7:reduce:stop"]), "--set", "resilience_config.step_time_out=20"))
        log = self.folder / "disturbed/log/worker_1.log"
        self.wait_until(lambda: log.exists() and "injected fault" in log.read_text(), "the stop")
        time.sleep(1)
        os.kill(self.process_of(1, "tessera"), signal.SIGCONT)
        told = self.end_of(job)
        self.assertNotIn("starting all workers again", told)
        self.assert_nothing_lost("disturbed", about=told)

    def test_an_only_rank_has_its_time(self):
        """It is not stopped as hung while it saves, which may take long, or when all processes of the job were stopped for a while."""
        line = lambda run, *more: line_of("one rank, lines of 5 steps", run, *more)
        self.tsrun(*line("undisturbed"))
        job = self.start_tsrun(*line("disturbed", *inject(["0:5:save:stop", "0:14:forward:stop"]), "--set", "resilience_config.step_time_out=6"))
        log = self.folder / "disturbed/log/worker_0.log"
        for times in (1, 2):
            self.wait_until(lambda: log.exists() and log.read_text().count("injected fault") == times, "the stop")
            rank = self.process_of(0, "tessera")
            others = [pid for pid in self.processes() if pid != rank] if times == 2 else []
            for pid in others:
                os.kill(pid, signal.SIGSTOP)
            time.sleep(6.5)
            for pid in others:
                os.kill(pid, signal.SIGCONT)
            time.sleep(.5)  # the others see that the time is up before the rank goes on
            os.kill(rank, signal.SIGCONT)
        told = self.end_of(job)
        self.assertNotIn("hung", told)
        self.assertNotIn("starting all workers again", told)
        self.assert_nothing_lost("disturbed", about=told)

    def test_a_rank_that_computes_slowly_is_named(self):
        """Its delay is a multiple of what it computes, so the ratio does not depend on what else the machine does."""
        endless = sets(save_interval=0, training_iters=1000000, eval_interval=1000000, log_interval=100)
        job = self.start_tsrun(*line_of("DP 3", "run", *endless, *FROM_CHECKPOINTS, *inject(["1:1:reduce:slow"])))
        log = self.folder / "run/tessera.log"
        self.wait_until(lambda: log.exists() and "straggler: " in log.read_text(), "the line of a straggler", job=job)
        self.assertRegex(log.read_text(), r"straggler: rank 1 on \S+ computes \d+\.\d\d times as long as the median rank of its pipeline stage")
        job.send_signal(signal.SIGTERM)
        self.end_of(job)

    def test_where_dev_shm_is_small(self):
        if subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", "/dev/shm"], stderr=subprocess.DEVNULL).returncode != 0:
            self.skipTest("nothing can be mounted here (root is needed)")
        larger = ["--set", "model_config.vocab_size=20000", "--set", "model_config.hidden_size=128", *sets(training_iters=6)]
        line = line_of("one rank, lines of 5 steps", "disturbed", *larger, *inject(["0:3:update:kill"]))
        self.tsrun(*line_of("one rank, lines of 5 steps", "undisturbed", *larger))
        self.write("small.sh", 'mount -t tmpfs -o size=20m tmpfs /dev/shm && exec "$@"')
        told = self.end_of(self.start_tsrun(*line, before=["unshare", "-m", "sh", "small.sh"]))
        self.assertIn("from their state after iteration 2, in memory", told)  # the last that it told of
        self.assert_nothing_lost("disturbed", about=told)


class FaultsOnHosts(launch_hosts_test.Hosts):
    state, assert_nothing_lost = Faults.state, Faults.assert_nothing_lost

    def test_all_ranks_of_a_host_are_killed(self):
        line = lambda run, *more: line_of("bf16, distributed optimizer", run, *more)[2:]
        for run, more in (("undisturbed", []), ("disturbed", inject(["2:7:update:kill", "3:7:update:kill", "1:12:reduce:abort:1"]))):
            jobs = [self.start_host(host, f"--worker_log_name={run}", program=line(run, *more)) for host in range(2)]  # 4 ranks
            told = [self.end_of(job) for job in jobs]
        self.assertEqual(told[0].count("starting all workers again"), 2)
        self.assert_nothing_lost("disturbed", about=told[0])
        self.assert_nothing_left()


    def beside_a_run(self, body, *words):
        """`body` is called in the middle of a run on two hosts that is compared with an undisturbed one; returns what was told.
        Rank 1 stops at step 20 until `body` has returned."""
        line = lambda run, *more: line_of("DP 3", run, *more)[2:]
        hold = [*inject(["1:20:forward:stop:0"]), "--set", "resilience_config.step_time_out=60"]
        for job in [self.start_host(host, "--worker_log_name=undisturbed", program=line("undisturbed")) for host in range(2)]:
            self.end_of(job)
        jobs = [self.start_host(host, "--worker_log_name=disturbed", *words, program=line("disturbed", *hold)) for host in range(2)]
        self.wait_until(lambda: self.steps_logged("disturbed") >= 5, "5 steps")
        held = self.process_of(1, "tessera")
        body()
        self.wait_until(lambda: self.is_stopped(held) or not os.path.exists(f"/proc/{held}"), "the stop or the end of rank 1")
        with contextlib.suppress(ProcessLookupError):  # it has ended with a start that failed
            os.kill(held, signal.SIGCONT)
        told = [self.end_of(job) for job in jobs][0]
        self.assert_nothing_lost("disturbed", about=told)
        self.assert_nothing_left()
        return told

    def test_a_link_that_is_down_for_a_second(self):
        def flap():
            self.cut(1)
            time.sleep(1)
            self.ip("-n", self.names[0], "link", "set", "port1", "up")
        self.assertNotIn("starting all workers again", self.beside_a_run(flap, "--host_time_out=30"))

    def test_the_daemon_of_mpi_on_a_host_is_killed(self):
        def kill():
            os.kill(next(iter(self.processes("orted"))), signal.SIGKILL)
        self.beside_a_run(kill)


class GivingUp(Launching):
    """What becomes of the state in memory when nobody continues with it."""

    def save_and_resume(self, told, steps):
        self.assertRegex(told.splitlines()[-1], "the same command resumes from the newest checkpoint")
        self.assertIn(f"the state after iteration {steps} is saved: no step is lost", told)
        self.assertTrue(self.checkpoints("disturbed")[-1].name.endswith(f"{steps:07d}"))
        self.assert_nothing_left()
        self.tsrun(*line_of("DP 3", "disturbed"))
        self.tsrun(*line_of("DP 3", "undisturbed"))
        self.assertEqual(self.metrics("disturbed"), self.metrics("undisturbed"))
        Faults.assert_nothing_lost(self, "disturbed")

    state = Faults.state

    def test_when_the_restarts_are_used_up_a_checkpoint_is_saved(self):
        faults = ["0:7:update:kill:0", "1:8:forward:kill:1", "2:8:forward:segv:2"]
        told = self.tsrun("--max_restarts=1", *line_of("DP 3", "disturbed", *inject(faults)), code=20)
        self.assertIn("The 1 restarts of --max_restarts are used up", told)
        self.save_and_resume(told, 7)

    def test_restarts_within_the_window_count_though_steps_were_completed(self):
        faults = inject(["0:7:update:kill:0", "1:9:forward:kill:1", "2:11:forward:kill:2"])
        told = self.tsrun("--max_restarts=2", "--restart_window=600", *line_of("DP 3", "disturbed", *faults), code=20)
        self.assertEqual(told.count("starting all workers again"), 2, told)
        self.assertIn("starting all workers again (2 of 2)", told)
        self.assertIn("There were 2 restarts within the 600 s of --restart_window, and --max_restarts allows 2", told)
        self.assertNotIn("are used up", told)
        self.save_and_resume(told, 10)

    def test_without_restarts_too(self):
        told = self.tsrun("--max_restarts=0", *line_of("DP 3", "disturbed", *inject(["1:7:report:kill"])), code=128 + signal.SIGKILL)
        self.save_and_resume(told, 7)

    def test_a_step_that_fails_alike_again_ends_the_run(self):
        told = self.tsrun(*line_of("DP 3", "disturbed", *inject(["1:9:forward:abort:*"])), code=21)
        self.assertEqual(told.count("starting all workers again"), 1)
        self.assertIn("It is the same failure as before at the same step, 9", told)
        self.save_and_resume(told, 8)

    def test_a_fault_of_a_rank_that_does_not_exist_is_refused(self):
        told = self.tsrun(*line_of("DP 3", "run", *inject(["3:2:update:kill"])), code=2)
        self.assertIn("'3:2:update:kill': there is no rank 3; the run has 3, from 0", told)
        self.assert_nothing_left()

    def test_a_rank_that_calls_mpi_abort(self):
        told = self.tsrun(*line_of("DP 3", "disturbed", *inject(["1:7:update:mpiabort", "2:12:forward:mpiabort:1"])))
        self.tsrun(*line_of("DP 3", "undisturbed"))
        self.assertEqual(told.count("starting all workers again"), 2, told)
        Faults.assert_nothing_lost(self, "disturbed", about=told)
        self.assert_nothing_left()

    def test_a_wrong_fault_is_named(self):
        told = self.tessera("check", "tiny.yaml", *inject(["1:2:updat:kill"]), code=2)
        self.assertIn("resilience_config.inject_fault: '1:2:updat:kill': 'updat' is not a phase; known: start, forward", told)


if __name__ == "__main__":
    harness.main()
