"""tessera under tsrun: the losses of one process, whatever starts, stops or kills the run."""

import os
import random
import shutil
import signal
import time

import harness
import launch_hosts_test
from harness import sets
from launching import Launching, compile_preloaded

# fp32 sums in another order: a loss differs by rounding only. 20 steps of this tiny model stay far below it.
TOLERANCE = 1e-5

TP2 = ("--set", "parallel_config.tensor_model_parallel_size=2")
# After a fault the run continues from its newest checkpoint.
FROM_CHECKPOINTS = ("--set", "resilience_config.policy=off")
# A rank dies in the middle of step 13, the first time that the job runs; checkpoint 5 is complete by then.
def dies(rank):
    return ("--set", f"resilience_config.inject_fault=[{rank}:13:reduce:kill]")


# Two replicas with half a batch each.
DP2 = ("--set", "dataset_config.batch_size=2")
PP2 = ("--set", "parallel_config.pipeline_model_parallel_size=2", "--set", "dataset_config.micro_batch_num=2")


def train(*more, **changes):
    return ["tessera", "train", "tiny.yaml", *sets(hidden_dropout_rate=0, attention_dropout_rate=0, **changes), *more]


class LaunchTrain(Launching):
    def test_a_request_to_stop_that_arrives_after_the_end_leaves_a_success(self):
        """A supervisor under load passes it on late: the other ranks have made this one stop already."""
        library = compile_preloaded(self.folder, "late_signal")
        job = self.start_tsrun("--worker_num=2", *train(output_dir="run", training_iters=1000000, eval_interval=1000000, batch_size=4),
                               environment={"LD_PRELOAD": str(library), "LATE_SIGNAL_RANK": "1"})
        self.wait_until(lambda: self.steps_logged("run") >= 3, "3 steps", job=job)
        job.send_signal(signal.SIGTERM)
        self.end_of(job)
        self.tsrun("--worker_num=2", *train(output_dir="short", training_iters=3, batch_size=4),
                   environment={"LD_PRELOAD": str(library), "LATE_SIGNAL_RANK": "0"})

    def assert_same_losses(self, run, other):
        one, two = self.losses(run), self.losses(other)
        self.assertEqual(len(one), len(two))
        for step, (a, b) in enumerate(zip(one, two), 1):
            self.assertLess(abs(a - b), TOLERANCE * abs(a), f"step {step} of {other}")

    def test_a_line_of_msrun_and_one_of_torchrun_give_the_losses_of_one_process(self):
        self.tessera(*train(output_dir="alone")[1:])
        self.tsrun("--worker_num", 4, "--local_worker_num=4", "--log_dir=msrun_log", "--join=True", "--cluster_time_out=300",
                   *train(*TP2, *DP2, output_dir="msrun"))
        self.tsrun("--nproc_per_node=2", "--nnodes=1", "--node_rank=0", *train(*DP2, output_dir="torchrun"))
        for run in ("msrun", "torchrun"):
            self.assert_same_losses("alone", run)
        self.assertIn("loss", "".join(path.read_text() for path in (self.folder / "msrun_log").glob("worker_*.log")))
        self.assertIn("loss", "".join(path.read_text() for path in (self.folder / "torchrun/log").glob("worker_*.log")))
        self.assert_nothing_left()

    def test_killed_in_mid_step_it_names_place_and_step_and_the_same_command_goes_on(self):
        line = ["--worker_num=2", "--tail_worker_log=9", *train(*TP2, *FROM_CHECKPOINTS, training_iters=60, save_interval=5, output_dir="killed")]
        rank = random.randrange(2)
        told = self.end_of(self.start_tsrun(*line, *dies(rank)), 137)
        self.assertRegex(told, rf"tsrun: rank {rank} of 2 on \S+ \(tp {rank} dp 0 pp 0, iteration \d+\) was ended by signal 9")
        self.assertIn("the same command resumes from the newest checkpoint", told.splitlines()[-1])
        self.assert_nothing_left()
        self.tsrun(*line)
        self.tessera(*train(training_iters=60, save_interval=5, output_dir="alone")[1:])
        self.assert_same_losses("alone", "killed")

    def test_restarted_after_a_kill_it_ends_as_if_nothing_had_been(self):
        job = self.start_tsrun("--worker_num=2", "--max_restarts=2",
                               *train(*PP2, *dies(1), training_iters=60, save_interval=5, output_dir="killed"))
        self.assertIn("starting all workers again (1 of 2)", self.end_of(job))
        self.tessera(*train(*PP2[2:], training_iters=60, output_dir="alone")[1:])
        self.assert_same_losses("alone", "killed")

    def test_a_restart_resumes_whatever_resume_training_says_and_a_new_job_does_not(self):
        anew = ("--set", "training_config.resume_training=false")
        line = train(*PP2, *FROM_CHECKPOINTS, *anew, *dies(1), training_iters=60, save_interval=5, output_dir="killed")
        self.end_of(self.start_tsrun("--worker_num=2", "--max_restarts=2", *line))
        self.assertRegex(self.log("worker_0.log", "killed/log"), r"resuming from \S+ after iteration (?!0\b)\d+")
        self.assertFalse((self.folder / "killed.1").exists())
        self.tessera(*train(*PP2[2:], training_iters=60, output_dir="alone")[1:])
        self.assert_same_losses("alone", "killed")

        told = self.end_of(self.start_tsrun("--worker_num=2", *line), 137)
        self.assertTrue((self.folder / "killed.1/run.json").exists())
        self.assertIn("to resume, add --set training_config.resume_training=true", told.splitlines()[-1])
        self.assert_same_losses("alone", "killed.1")

    def test_without_a_checkpoint_it_does_not_promise_to_resume(self):
        job = self.start_tsrun("--worker_num=2", *train(*DP2, *FROM_CHECKPOINTS, training_iters=1000000, eval_interval=1000000, output_dir="killed"))
        self.wait_until(lambda: self.steps_logged("killed") >= 2, "2 steps", job=job)
        os.kill(self.process_of(1, "tessera"), signal.SIGKILL)
        self.assertIn("no checkpoint was saved: the same command starts from the beginning", self.end_of(job, 137).splitlines()[-1])

    def test_logs_are_not_written_through_a_link_out_of_the_run_folder(self):
        for name, into in (("run/log", ""), ("run/log/worker_0.log", "/worker_0.log"), ("run/log/scheduler.log", "/scheduler.log")):
            outside = self.folder / "outside"
            outside.mkdir(exist_ok=True)
            link = self.folder / name
            link.parent.mkdir(parents=True)
            link.symlink_to(f"{outside}{into}")
            told = self.end_of(self.start_tsrun("--worker_num=1", *train(training_iters=1)), 127 if into == "/worker_0.log" else 2)
            self.assertRegex(told, "symbolic link")
            self.assertEqual(list(outside.iterdir()), [])
            shutil.rmtree(self.folder / "run")

    def test_interrupted_it_saves_and_goes_on(self):
        length = dict(training_iters=1000000, eval_interval=1000000, learning_rate="1e-6")
        job = self.start_tsrun("--worker_num=2", *train(*DP2, **length, output_dir="stopped"))
        self.wait_until(lambda: self.steps_logged("stopped") >= 5, "5 steps", job=job)
        job.send_signal(signal.SIGINT)
        told = self.end_of(job)
        self.assertIn("the same command resumes from the newest checkpoint", told.splitlines()[-1])
        stopped = self.metrics("stopped")[-1]["iteration"]
        self.assertTrue(self.checkpoints("stopped")[-1].name.endswith(f"{stopped:07d}"))
        self.assert_nothing_left()
        length["exit_interval"] = stopped + 10
        self.tsrun("--worker_num=2", *train(*DP2, **length, output_dir="stopped"))
        self.tessera(*train(**length, output_dir="alone")[1:])
        self.assertEqual(len(self.losses("stopped")), stopped + 10)
        self.assert_same_losses("alone", "stopped")

    def test_the_run_goes_on_while_nobody_reads_what_tsrun_prints(self):
        self.tsrun("--worker_num=2", *train(*DP2, training_iters=60, output_dir="read"))
        # More than a pipe holds; then rank 1 stops in step 5, so that the run is still there when the reader comes back.
        self.script("print.sh", 'i=0; while [ $i -lt 3000 ]; do i=$((i+1)); echo "line $i of rank $RANK, which nobody reads for a while"; done; exec "$@"')
        stops = ("--set", "resilience_config.inject_fault=[1:5:forward:stop]")
        times = ("--host_lease=3", "--host_time_out=5", "--leader_time_out=4")
        line = ["--worker_num=2", "--max_restarts=0", *times, "./print.sh", *train(*DP2, *stops, training_iters=60)]
        job = self.start_tsrun(*line, "--set", "training_config.output_dir=paused", "--set", "training_config.training_iters=60")
        self.wait_until(lambda: self.steps_logged("paused") >= 4, "4 steps", job=job)
        time.sleep(7)  # the supervisor of a worker kills it after 4 s without a message of tsrun
        os.kill(self.process_of(1, "tessera"), signal.SIGCONT)
        self.wait_until(lambda: self.steps_logged("paused") >= 50, "50 steps", job=job)
        told = self.end_of(job)
        for rank in range(2):
            for number in (1, 3000):
                self.assertEqual(told.count(f"[{rank}] line {number} of rank {rank},"), 1)
        self.assertNotIn("not shown here", told)
        self.assertEqual(self.metrics("paused"), self.metrics("read"))

        job = self.start_tsrun(*line, "--set", "training_config.output_dir=unread", "--set", "resilience_config.inject_fault=[]")
        self.assertEqual(job.wait(60), 0)
        told = self.end_of(job)
        self.assertNotIn("workers are done", told)
        log = self.log("scheduler.log")
        self.assertRegex(log, r"not shown here, because this output was not read: \d+ bytes of \S+worker_0.log, \d+ bytes of \S+worker_1.log; the files have all")
        self.assertTrue(log.splitlines()[-1].endswith("all 2 workers are done"), log)
        self.assertEqual(self.metrics("unread"), self.metrics("read"))
        self.assert_nothing_left()

    def test_a_world_that_does_not_fit_is_refused_once(self):
        told = self.tsrun("--worker_num=3", *train(*TP2), code=2)
        self.assertEqual(told.count("but the run has 3"), 1, told)
        self.assert_nothing_left()

    def files_of_numbers(self):
        """data.bin and .idx: documents of ascending numbers, each ended by 63. Returns the words that train on them."""
        rows = ('{"text": "%s"}\n' % " ".join(str((3 * document + token) % 63) for token in range(5 + document % 23)) for document in range(90))
        self.write("numbers.jsonl", "".join(rows))
        tokenizer = ("--tokenizer-type", "NullTokenizer", "--vocab-size", 63)
        self.tessera("data", "preprocess", "--input", "numbers.jsonl", "--output-prefix", "data", "--append-eod", *tokenizer)
        options = {"dataset_config.dataset_type": "gpt", "dataset_config.data_path": "data_text_document",
                   "dataset_config.split": '"80,20,0"', "dataset_config.tokenizer_type": "NullTokenizer", "dataset_config.vocab_size": 63,
                   "model_config.num_layers": 3}
        return [word for key, value in options.items() for word in ("--set", f"{key}={value}")]

    def test_a_middle_stage_opens_data_only_if_it_needs_boundaries_of_documents(self):
        data = self.files_of_numbers()
        stages = ["--set", "parallel_config.pipeline_model_parallel_size=3", "--set", "dataset_config.micro_batch_num=2"]
        passes = ["--set", "training_config.epochs=1", "--set", "training_config.training_iters=0", "--set", "dataset_config.batch_size=2"]
        # The middle rank runs in a folder where data_path leads to no file.
        self.write("elsewhere/tiny.yaml", (self.folder / "tiny.yaml").read_text())
        self.script("apart.sh", 'if [ "$RANK" = 1 ]; then cd elsewhere; fi; exec "$@"\n')
        for name, more in (("plain", []), ("passes", passes)):
            self.tessera(*train(*data, *more, *stages[2:], output_dir=f"{name}_alone")[1:])
            self.tsrun("--worker_num=3", "sh", "apart.sh", *train(*data, *more, *stages, output_dir=self.folder / f"{name}_cut"))
            self.assert_same_losses(f"{name}_alone", f"{name}_cut")
        boundaries = ["--set", "dataset_config.reset_attention_mask=true"]
        told = self.tsrun("--worker_num=3", "sh", "apart.sh", *train(*data, *boundaries, *stages, output_dir=self.folder / "bounded"), code=2)
        self.assertEqual(told.count("data_text_document.idx' cannot be read"), 1, told)

    def test_data_that_are_missing_are_told_once_by_all_stages(self):
        self.files_of_numbers()
        words = ("--set", "parallel_config.pipeline_model_parallel_size=3", "--set", "model_config.num_layers=3",
                 "--set", "dataset_config.dataset_type=gpt", "--set", "dataset_config.data_path=nothing")
        told = self.tsrun("--worker_num=3", *train(*words), code=2)
        self.assertEqual(told.count("cannot be read"), 1, told)
        self.assert_nothing_left()


class LaunchTrainHosts(launch_hosts_test.Hosts):
    def test_two_hosts_with_two_workers_give_the_losses_of_one_process(self):
        self.tessera(*train(output_dir="alone")[1:])
        jobs = [self.start_host(host, program=train(*TP2, *DP2, output_dir="hosts")) for host in range(2)]
        for job in jobs:
            self.end_of(job)
        one, two = self.losses("alone"), self.losses("hosts")
        self.assertEqual(len(one), len(two))
        for a, b in zip(one, two):
            self.assertLess(abs(a - b), TOLERANCE * abs(a))

    def test_a_cable_cut_while_training_names_the_host(self):
        jobs = [self.start_host(host, "--tail_worker_log=9", "--max_restarts=0", program=train(*TP2, training_iters=1000000, eval_interval=1000000, output_dir="hosts"))
                for host in range(2)]
        self.wait_until(lambda: self.steps_logged("hosts") >= 3, "3 steps", job=jobs[0])
        self.cut(1)
        told = [self.end_of(job, code=1) for job in jobs]
        self.assertRegex(told[0], r"host \S+ \(10.77.0.2\) with ranks 2, 3 on \S+ has not responded for 8 s")
        # What follows is tested by host_loss_test.py: these hosts share one /dev/shm, and the one that is cut off removes the job's files there.
        self.assert_nothing_left()


if __name__ == "__main__":
    harness.main()
