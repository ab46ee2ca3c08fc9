#!/usr/bin/env python3
"""What does keeping the state in memory cost, and what does a fault cost?

    python3 benchmarks/resilience.py BUILD_FOLDER [--pairs 5] [--faults 10]

Prints, from runs on this machine: step time with resilience_config.policy memory over off (alternating pairs, medians), and the time
from the kill of a rank to the next complete step, with the state in memory and from a checkpoint of every step, beside the time that a
bare start of these ranks takes to its first step."""

import argparse
import json
import os
import pathlib
import random
import shutil
import signal
import statistics
import subprocess
import tempfile
import time

SMALL = """training_config: {training_iters: %(steps)d, output_dir: run, log_interval: 1, eval_iters: 0, tensorboard: false, seed: 1}
model_config: {num_layers: 2, hidden_size: 128, num_attention_heads: 4, seq_length: 64, max_position_embeddings: 64, vocab_size: 1024,
               hidden_dropout_rate: 0, attention_dropout_rate: 0}
optimizer_config: {optimizer_type: adamw, learning_rate: 1e-4}
dataset_config: {dataset_type: mock, batch_size: %(batch)d}
"""
GPT2 = """training_config: {training_iters: %(steps)d, output_dir: run, log_interval: 1, eval_iters: 0, tensorboard: false, seed: 1}
model_config: {num_layers: 12, hidden_size: 768, num_attention_heads: 12, seq_length: 256, max_position_embeddings: 1024,
               vocab_size: 50257, hidden_dropout_rate: 0, attention_dropout_rate: 0}
optimizer_config: {optimizer_type: adamw, learning_rate: 1e-4}
dataset_config: {dataset_type: mock, batch_size: %(batch)d}
"""


class Bench:
    def __init__(self, build):
        self.programs = pathlib.Path(build).resolve() / "framework"
        self.folder = pathlib.Path(tempfile.mkdtemp())

    def start(self, recipe, ranks, *sets):
        (self.folder / "recipe.yaml").write_text(recipe)
        shutil.rmtree(self.folder / "run", ignore_errors=True)
        options = [word for one in sets for word in ("--set", one)]
        return subprocess.Popen([self.programs / "tsrun", f"--worker_num={ranks}", "--tail_worker_log=9", "--max_restarts=9",
                                 self.programs / "tessera", "train", "recipe.yaml", *options],
                                cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def lines(self):
        path = self.folder / "run/metrics.jsonl"
        return path.read_bytes().count(b"\n") if path.exists() else 0

    def wait_for(self, lines):
        while self.lines() < lines:
            time.sleep(.0005)

    def step_seconds(self, recipe, policy, skipped):
        if self.start(recipe, 1, f"resilience_config.policy={policy}").wait() != 0:
            raise SystemExit("a run failed")
        lines = (self.folder / "run/metrics.jsonl").read_text().splitlines()[skipped:]
        return statistics.median(json.loads(line)["step_seconds"] for line in lines)

    def pairs(self, name, recipe, skipped, count):
        ratios, times = [], {"off": [], "memory": []}
        for pair in range(count):
            for policy in ("off", "memory") if pair % 2 else ("memory", "off"):
                times[policy].append(self.step_seconds(recipe, policy, skipped))
            ratios.append(times["memory"][-1] / times["off"][-1])
        print(f"{name}: step {1e3 * statistics.median(times['off']):.3f} ms off, {1e3 * statistics.median(times['memory']):.3f} ms memory; "
              f"ratio {statistics.median(ratios):.3f} (median of {count} pairs, {min(ratios):.3f} to {max(ratios):.3f})")

    def ranks_alive(self):
        found = {}
        for entry in pathlib.Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and (entry / "comm").read_text().strip() == "tessera" and os.readlink(entry / "cwd") == str(self.folder):
                    variables = dict(v.split("=", 1) for v in (entry / "environ").read_text().split("\0") if "=" in v)
                    found[int(variables["RANK"])] = int(entry.name)
            except (OSError, KeyError):
                continue
        return found

    def recovery(self, recipe, ranks, count, *sets):
        """Seconds from each kill to the next complete step, and from the start to the first one."""
        began = time.monotonic()
        job = self.start(recipe, ranks, *sets)
        self.wait_for(1)
        first, recovered = time.monotonic() - began, []
        for _ in range(count):
            self.wait_for(self.lines() + 3)
            alive = self.ranks_alive()
            victim = random.choice(sorted(alive))
            os.kill(alive[victim], signal.SIGKILL)
            killed = time.monotonic()
            inode, known = None, self.lines()
            while alive.items() & self.ranks_alive().items():  # until the others are stopped too
                time.sleep(.001)
            known = self.lines()
            self.wait_for(known + 1)
            recovered.append(time.monotonic() - killed)
        job.send_signal(signal.SIGTERM)
        job.wait()
        return first, recovered

    def faults(self, name, recipe, ranks, count):
        bare, warm = self.recovery(recipe, ranks, count)
        _, disk = self.recovery(recipe, ranks, max(2, count // 2), "resilience_config.policy=off", "training_config.save_interval=1",
                                "training_config.keep_checkpoint_max=2")
        print(f"{name}: start to first step {bare:.2f} s; kill to next step: state in memory {statistics.median(warm):.2f} s "
              f"(max {max(warm):.2f}, {len(warm)} kills), from a checkpoint {statistics.median(disk):.2f} s "
              f"(max {max(disk):.2f}, {len(disk)}); ratio {statistics.median(warm) / statistics.median(disk):.2f}")


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("build")
    arguments.add_argument("--pairs", type=int, default=5)
    arguments.add_argument("--faults", type=int, default=10)
    given = arguments.parse_args()
    os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    bench = Bench(given.build)
    try:
        bench.pairs("2 layers of width 128, 1 rank", SMALL % {"steps": 400, "batch": 4}, 50, given.pairs)
        bench.pairs("GPT-2 124M, B4 T256, 1 rank", GPT2 % {"steps": 8, "batch": 4}, 2, given.pairs)
        bench.faults("2 layers of width 128, 4 ranks", SMALL % {"steps": 1000000, "batch": 4}, 4, given.faults)
        bench.faults("GPT-2 124M, 2 ranks", GPT2 % {"steps": 1000000, "batch": 1}, 2, max(2, given.faults // 3))
    finally:
        shutil.rmtree(bench.folder, ignore_errors=True)


if __name__ == "__main__":
    main()
