#!/usr/bin/env python3
"""What do all recorders of a run cost: metrics.jsonl, console lines, TensorBoard, Weights & Biases, Prometheus?

    python3 benchmarks/recorders.py BUILD_FOLDER [--pairs 5] [--steps 3000]

Steps of the quickstart's model take hundreds of milliseconds, and two runs of them differ by more than the recorders cost. So the cost of a
step's records is measured where it is most of the time: runs of a tiny model with everything recorded after each step, over runs that record
nothing, in alternating pairs, by processor time (user and system, which a loaded machine hardly changes). It is told as a share of a step of
configs/quickstart.yaml's model (on made-up data): recorded after each step, and as often as the recipe records."""

import argparse
import os
import pathlib
import statistics
import subprocess
import tempfile

CONFIGS = pathlib.Path(__file__).resolve().parents[1] / "configs"
TINY = """training_config: {eval_interval: 0, num_threads: 1}
model_config: {num_layers: 1, hidden_size: 8, num_attention_heads: 1, seq_length: 4, vocab_size: 16}
optimizer_config: {learning_rate: 1e-4}
dataset_config: {dataset_type: mock, batch_size: 1}
"""
NOTHING = ("tensorboard=false", "log_interval=1000000000")
GOAL = .005  # of a step


class Bench:
    def __init__(self, build):
        self.program = pathlib.Path(build).resolve() / "framework" / "tessera"
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="tessera.recorders."))
        (self.folder / "tiny.yaml").write_text(TINY)

    def everything(self):
        return "tensorboard=true", "log_interval=1", "wandb_project=models", f"prometheus_file={self.folder / 'run.prom'}"

    def seconds(self, recipe, steps, *training):
        """Processor time of a run from its beginning."""
        words = [word for option in (*training, f"training_iters={steps}", f"output_dir={self.folder / 'run'}", "resume_training=false")
                 for word in ("--set", "training_config." + option)]
        before = os.times()
        subprocess.run([self.program, "train", recipe, *words], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        after = os.times()
        subprocess.run(["rm", "-rf", *self.folder.glob("run*")], check=True)
        return after.children_user - before.children_user + after.children_system - before.children_system

    def records_of_a_step(self, pairs, steps):
        """Seconds of each pair."""
        tiny, found = self.folder / "tiny.yaml", []
        for pair in range(pairs):
            order = [self.everything(), NOTHING] if pair % 2 else [NOTHING, self.everything()]
            taken = {options: self.seconds(tiny, steps, *options) for options in order}
            found.append((taken[self.everything()] - taken[NOTHING]) / steps)
        return found

    def quickstart_step(self):
        """Seconds of a step of the quickstart's model, without the start of the run."""
        recipe = self.folder / "quickstart.yaml"
        groups, _, data = (CONFIGS / "quickstart.yaml").read_text().partition("dataset_config:\n")
        assert "batch_size: 8\n" in data and groups.count("model_config:\n") == 1, "the quickstart's recipe has changed"
        recipe.write_text(groups.replace("model_config:\n", "model_config:\n  vocab_size: 4096\n") +
                          "dataset_config: {dataset_type: mock, batch_size: 8}\n")
        run = lambda steps: self.seconds(recipe, steps, *NOTHING, "eval_interval=0", "save_interval=null")
        return (run(25) - run(5)) / 20


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("build")
    words.add_argument("--pairs", type=int, default=5)
    words.add_argument("--steps", type=int, default=3000)
    given = words.parse_args()
    bench = Bench(given.build)
    try:
        costs = bench.records_of_a_step(given.pairs, given.steps)
        step = bench.quickstart_step()
    finally:
        subprocess.run(["rm", "-rf", bench.folder], check=True)
    cost = statistics.median(costs)
    print(f"records of a step: {1e6 * cost:.0f} us (pairs {1e6 * min(costs):.0f} to {1e6 * max(costs):.0f}, {given.steps} steps each)")
    print(f"step of the quickstart: {1e3 * step:.0f} ms of processor time")
    print(f"all recorders after each step: {cost / step:.4%} of a step; every 20 steps, as its recipe: at most that (goal: below {GOAL:.1%})")


main()
