"""events.jsonl and run.json: what a run folder tells of a run that was stopped, resumed, killed, restarted, set aside."""

import json
import os
import signal

from bad_samples_test import file_fault
from harness import sets
from launching import Launching, compile_preloaded


class Events(Launching):
    def events(self, run="run"):
        return [json.loads(line) for line in (self.folder / run / "events.jsonl").read_text().splitlines()]

    def rows(self, run="run"):
        """The steps of metrics.jsonl, with what the machine decides."""
        lines = (self.folder / run / "metrics.jsonl").read_text().splitlines()
        return [row for row in map(json.loads, lines) if "loss" in row]

    def kinds(self, run="run"):
        return [event["event"] for event in self.events(run) if event["event"] != "note"]

    def train(self, *more, code=0, **options):
        return self.tessera("train", "tiny.yaml", *sets(**options), *more, code=code)

    def test_a_run_that_is_stopped_and_resumed_twice_tells_it(self):
        for stop in 4, 8:
            self.train(output_dir="run", training_iters=10, exit_interval=stop)
        self.train(output_dir="run", training_iters=10)
        self.assertEqual(self.kinds(), ["start", "saved", "stopped"] * 2 + ["start", "saved", "finished"])
        starts = [event for event in self.events() if event["event"] == "start"]
        self.assertEqual([event["iteration"] for event in starts], [0, 4, 8])
        self.assertNotIn("resumed_from", starts[0])
        self.assertEqual([event["resumed_from"] for event in starts[1:]],
                         [f"run/checkpoints/network_iter_000000{done}" for done in (4, 8)])
        self.assertEqual(len({event["run"] for event in starts}), 1)
        stopped = [event for event in self.events() if event["event"] == "stopped"]
        self.assertEqual([event["reason"] for event in stopped], ["stopped by exit_interval 4", "stopped by exit_interval 8"])
        for event in self.events():
            if event["event"] != "saved":
                continue
            files = [path for path in (self.folder / event["path"]).rglob("*") if path.is_file()]
            self.assertEqual(event["bytes"], sum(path.stat().st_size for path in files))
            self.assertEqual((event["format"], event["async"]), ("tessera", False))
            self.assertGreater(event["seconds"], 0)
            self.assertGreaterEqual(event["stall_seconds"], event["seconds"])  # training stood still for all of it
        times = [event["time"] for event in self.events()]
        self.assertEqual(times, sorted(times))

    def test_run_json_tells_command_layout_and_foreseen_memory(self):
        self.tsrun("--worker_num=2", "tessera", "train", "tiny.yaml", "--set", "parallel_config.tensor_model_parallel_size=2",
                   *sets(output_dir="run", training_iters=4))
        run = json.loads((self.folder / "run/run.json").read_text())
        self.assertEqual(run["command"][1:3], ["train", "tiny.yaml"])
        self.assertEqual((run["ranks"], run["layout"]["tensor_parallel"], run["layout"]["data_parallel"]), (2, 2, 1))
        self.assertEqual(sum(host["ranks"] for host in run["hosts"]), 2)
        self.train(output_dir="alone", training_iters=1)
        alone = json.loads((self.folder / "alone/run.json").read_text())
        self.assertGreater(run["parameters"], 0)
        for key in "parameters", "trained_parameters":
            self.assertEqual(alone[key], run["parameters"])
        last = self.rows("run")[-1]
        own = run["foreseen_memory"][0]
        self.assertEqual([memory["rank"] for memory in run["foreseen_memory"]], [0, 1])
        for key in "weights", "gradients", "optimizer", "activations", "workspace":
            self.assertEqual(own[key], last[{"activations": "activation", "weights": "weight", "gradients": "gradient"}.get(key, key) + "_bytes"], key)
        self.assertGreater(run["gemm_flops_per_second"], 0)

    def test_run_json_tells_who_gave_an_option_and_the_operations_of_a_token(self):
        self.train(output_dir="run", training_iters=2)
        run, last = json.loads((self.folder / "run/run.json").read_text()), self.rows()[-1]
        self.assertEqual(run["origins"]["training_config.training_iters"], "--set training_config.training_iters")
        self.assertRegex(run["origins"]["model_config.hidden_size"], r"^tiny\.yaml:\d+$")
        self.assertNotIn("training_config.log_level", run["origins"])
        self.assertEqual(run["data"], [])
        flops = last["model_flops_utilization"] * run["gemm_flops_per_second"] * last["step_seconds"]
        tokens = last["tokens_per_second"] * last["step_seconds"]
        self.assertAlmostEqual(run["flops_per_token"] / (flops / tokens), 1, places=9)

    def test_run_json_tells_the_length_of_the_run_whatever_option_gives_it(self):
        length = lambda run: json.loads((self.folder / run / "run.json").read_text())["training_iters"]
        self.train("--set", "dataset_config.train_samples=48", output_dir="samples", training_iters=0)
        self.assertEqual(length("samples"), 12)
        self.tessera("report", "samples", "-o", "samples.html")
        self.assertIn("<td>12 of 12</td>", (self.folder / "samples.html").read_text())
        for stop, iterations in (4, 8), (1000, 10):
            self.train("--set", "optimizer_config.override_opt_param_scheduler=true", output_dir="run", training_iters=iterations,
                       exit_interval=stop)
            self.assertEqual(length("run"), iterations)
        self.assertEqual(self.rows()[-1]["iteration"], 10)

    def test_a_run_that_cannot_be_saved_under_tsrun_tells_its_failure_once(self):
        fault = file_fault(compile_preloaded(self.folder, "file_faults"), "any", "network_iter", "write 1")
        self.tsrun("--worker_num=2", "--max_restarts=0", "tessera", "train", "tiny.yaml", *sets(output_dir="run", training_iters=5, batch_size=4),
                   "--set", "resilience_config.policy=off", environment=fault, code=22)
        self.assertEqual(self.kinds(), ["start", "save_failed", "failed"])
        self.assertIn("could not be saved", self.events()[-1]["message"])
        self.assertEqual(self.events()[-1]["rank"], 0)

    def test_run_json_tells_the_measured_memory_of_every_rank(self):
        two_stages = ("--set", "parallel_config.pipeline_model_parallel_size=2", "--set", "dataset_config.micro_batch_num=2")
        steps = {"training_iters": 1000000, "eval_interval": 1000000, "batch_size": 2}
        job = self.start_tsrun("--worker_num=2", "tessera", "train", "tiny.yaml", *sets(output_dir="run", **steps), *two_stages)
        metrics = self.folder / "run/metrics.jsonl"
        self.wait_until(lambda: metrics.exists() and "rank_seconds" in metrics.read_text(), "the times of ranks", job=job)
        read = lambda run: json.loads((self.folder / run / "run.json").read_text())
        running = read("run")  # a run that is killed after its first window has told its memory
        job.send_signal(signal.SIGTERM)
        self.end_of(job)
        ended = read("run")
        self.assertEqual({key: ended[key] for key in running if key != "measured_memory"},
                         {key: running[key] for key in running if key != "measured_memory"})
        names = "weights", "gradients", "optimizer", "activations", "workspace"
        for run in running, ended:
            self.assertEqual([memory["rank"] for memory in run["measured_memory"]], [0, 1])
            for measured, foreseen in zip(run["measured_memory"], run["foreseen_memory"]):
                self.assertEqual({name: measured[name] for name in names}, {name: foreseen[name] for name in names})
                self.assertGreater(measured["process_peak"], sum(measured[name] for name in names))
        self.assertNotEqual(*[memory["weights"] for memory in ended["measured_memory"]])
        for row in self.rows("run"):
            if "rank_seconds" in row:
                self.assertEqual(len(row["rank_seconds"]), 2)
                self.assertEqual((min(row["rank_seconds"]), max(row["rank_seconds"])), (row["fastest_rank_seconds"], row["slowest_rank_seconds"]))
                self.assertEqual(row["rank_seconds"][row["slowest_rank"]], row["slowest_rank_seconds"])
        self.train(output_dir="alone", training_iters=3)
        alone, last = read("alone")["measured_memory"], self.rows("alone")[-1]
        self.assertEqual([(memory["rank"], memory["weights"], memory["activations"]) for memory in alone],
                         [(0, last["weight_bytes"], last["activation_bytes"])])

    def test_rows_tell_tokens_and_speed_and_a_resumed_run_goes_on_counting(self):
        self.train(output_dir="run", training_iters=10, exit_interval=5)
        self.train(output_dir="run", training_iters=10)
        self.train(output_dir="straight", training_iters=10)
        tokens = [[row["consumed_tokens"] for row in self.rows(run)] for run in ("run", "straight")]
        self.assertEqual(*tokens)
        self.assertEqual(len(set(b - a for a, b in zip(tokens[0], tokens[0][1:]))), 1)
        for row in self.rows("run"):
            self.assertGreater(row["model_flops_utilization"], 0)
            self.assertNotIn("exposed_communication_seconds", row)
        self.tsrun("--worker_num=2", "tessera", "train", "tiny.yaml", *sets(output_dir="two", training_iters=40, batch_size=4))
        rows = self.rows("two")
        self.assertTrue(all(0 <= row["exposed_communication_seconds"] <= row["step_seconds"] for row in rows))
        windows = [row for row in rows if "slowest_rank" in row]
        self.assertTrue(windows)
        for row in windows:
            self.assertLessEqual(row["fastest_rank_seconds"], row["slowest_rank_seconds"])
            self.assertIn(row["slowest_rank"], (0, 1))

    def test_a_killed_rank_and_the_restart_are_told_by_the_launcher(self):
        for more in (), ("--log_dir=elsewhere",):
            run = "killed" + str(len(more))
            job = self.start_tsrun("--worker_num=2", "--max_restarts=2", *more, "tessera", "train", "tiny.yaml",
                                   *sets(output_dir=run, training_iters=60, save_interval=5, batch_size=4),
                                   "--set", "resilience_config.inject_fault=[1:13:reduce:kill]")
            self.end_of(job)
            kinds = self.kinds(run)
            self.assertEqual([kind for kind in kinds if kind != "saved"], ["start", "failed", "restart", "start", "finished"])
            failed = next(event for event in self.events(run) if event["event"] == "failed")
            self.assertEqual(failed["rank"], 1)
            self.assertIn("signal 9", failed["message"])
            again = [event for event in self.events(run) if event["event"] in ("restart", "start")][1:]
            self.assertEqual((again[0]["attempt"], again[0]["ranks"]), (1, 2))
            self.assertEqual((again[1]["start"], again[1]["resumed_from"]), (2, "memory"))

    def test_a_failure_without_state_in_memory_is_told_with_its_iteration(self):
        job = self.start_tsrun("--worker_num=2", "--max_restarts=1", "tessera", "train", "tiny.yaml",
                               *sets(output_dir="run", training_iters=20, save_interval=5, batch_size=4),
                               "--set", "resilience_config.policy=off", "--set", "resilience_config.inject_fault=[1:13:reduce:kill]")
        self.end_of(job)
        told = [(event["event"], event["iteration"]) for event in self.events() if event["event"] not in ("note", "saved")]
        self.assertEqual(told, [("start", 0), ("failed", 12), ("restart", 12), ("start", 10), ("finished", 20)])

    def test_a_run_without_a_restart_left_tells_the_failure_and_that_its_state_is_saved(self):
        job = self.start_tsrun("--worker_num=2", "--max_restarts=0", "tessera", "train", "tiny.yaml",
                               *sets(output_dir="run", training_iters=60, batch_size=4),
                               "--set", "resilience_config.inject_fault=[1:13:reduce:kill]")
        job.communicate(timeout=200)
        self.assertNotEqual(job.returncode, 0)
        self.assertEqual(self.kinds(), ["start", "failed", "start", "saved", "stopped"])
        self.assertEqual(self.events()[-1]["iteration"], 12)
        told = self.tessera("watch", "--plain", "run")
        self.assertIn("stopped", told.splitlines()[-1])

    def test_a_signal_and_an_error_end_a_run_with_their_reason(self):
        job = self.start("train", "tiny.yaml", *sets(output_dir="run", training_iters=1000000, eval_interval=1000000))
        self.wait_until(lambda: self.steps_logged("run") >= 3, "3 steps", job=job)
        job.send_signal(signal.SIGTERM)
        self.end_of(job)
        self.assertEqual(self.kinds()[-1], "stopped")
        self.assertRegex(self.events()[-1]["reason"], "SIGTERM|signal")
        self.train("--set", "optimizer_config.min_lr=1e30", "--set", "optimizer_config.lr_warmup_iters=0", output_dir="diverged", training_iters=200, learning_rate="1e30",
                   code=1)
        self.assertEqual(self.kinds("diverged")[-1], "failed")
        self.assertRegex(self.events("diverged")[-1]["message"], r"training: iteration \d+")

    def test_events_are_set_aside_with_their_run_and_a_folder_of_others_stays_as_it_is(self):
        self.train(output_dir="run", training_iters=3)
        before = self.events()
        self.train(output_dir="run", training_iters=3, resume_training="false", seed=7)
        self.assertEqual(self.events("run.1"), before)
        self.assertEqual(self.kinds(), ["start", "saved", "finished"])
        os.remove(self.folder / "run/events.jsonl")
        os.symlink(self.folder / "outside", self.folder / "run/events.jsonl")
        told = self.train(output_dir="run", training_iters=5, code=2)
        self.assertIn("events.jsonl", told)
        self.assertFalse((self.folder / "outside").exists())
