#!/usr/bin/env python3
"""What does keeping the state in memory cost, and what does a fault cost?

    python3 benchmarks/resilience.py BUILD_FOLDER [--pairs 5] [--faults 10] [--only PART ...]

Prints, from runs on this machine, a part each:
  step       step time with resilience_config.policy memory over off (alternating pairs, medians), and the memory beyond that of off
  update     AdamW with an undo log, and with checksums, over without (bench_optimizer: in memory, in cache)
  recovery   the time from the kill of a rank to its detection and to the next complete step, with the state in memory and from a checkpoint of every
             step, beside the time that a bare start of these ranks takes to its first step
  hang       the time from the hang of a rank to its detection, less the step time-out
  replica    step time with policy replica over off, on two hosts that are network namespaces (needs root)"""

import argparse
import json
import os
import pathlib
import random
import re
import shutil
import signal
import statistics
import subprocess
import tempfile
import sys
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests/faults"))
import fault_run

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


def step_seconds(path, skipped):
    return statistics.median(json.loads(line)["step_seconds"] for line in path.read_text().splitlines()[skipped:])


def most(values):
    return f"{statistics.median(values):.2f} s (max {max(values):.2f}, {len(values)} times)"


class Bench:
    def __init__(self, build):
        self.programs = pathlib.Path(build).resolve() / "framework"
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.kills = []  # moments of the last recovery()

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
        return step_seconds(self.folder / "run/metrics.jsonl", skipped)

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
        first, recovered, self.kills = time.monotonic() - began, [], []
        for _ in range(count):
            self.wait_for(self.lines() + 3)
            alive = self.ranks_alive()
            victim = random.choice(sorted(alive))
            os.kill(alive[victim], signal.SIGKILL)
            killed = time.monotonic()
            self.kills.append(time.time())
            while alive.items() & self.ranks_alive().items():  # until the others are stopped too
                time.sleep(.001)
            known = self.lines()
            self.wait_for(known + 1)
            recovered.append(time.monotonic() - killed)
        job.send_signal(signal.SIGTERM)
        job.wait()
        return first, recovered

    def detection(self):
        """Seconds from each kill of the last recovery() to the line of tsrun that names it."""
        told = fault_run.detected_in((self.folder / "run/log/scheduler.log").read_text())
        return [min(found - kill for found in told if found >= kill) for kill in self.kills]

    def faults(self, name, recipe, ranks, count):
        bare, warm = self.recovery(recipe, ranks, count)
        detection = self.detection()
        _, disk = self.recovery(recipe, ranks, max(2, count // 2), "resilience_config.policy=off", "training_config.save_interval=1",
                                "training_config.keep_checkpoint_max=2")
        print(f"{name}: start to first step {bare:.2f} s; kill to its detection {most(detection)}; kill to next step: state in memory {most(warm)}, "
              f"{statistics.median(warm) / bare:.2f} of the start; from a checkpoint {most(disk)}; ratio {statistics.median(warm) / statistics.median(disk):.2f}",
              flush=True)

    def hangs(self, name, recipe, ranks, count, time_out=1):
        faults = [f"{start % ranks}:{5 + 5 * start}:{phase}:hang:{start}" for start, phase in zip(range(count), ("forward", "commit", "reduce") * count)]
        job = self.start(recipe, ranks, f"resilience_config.inject_fault=[{', '.join(faults)}]", f"resilience_config.step_time_out={time_out}")
        if job.wait() != 0:
            raise SystemExit("a run failed")
        log = self.folder / "run/log"
        found, _ = fault_run.times_of((log / "scheduler.log").read_text(), list(log.glob("worker_*.log")), [])
        print(f"{name}: hang to its detection, less the time-out of {time_out} s: {most([seconds - time_out for seconds in found])}", flush=True)

    def memory(self, recipe):
        """The peak of the process, as the operating system measured it."""
        peaks = {}
        for policy in ("off", "memory"):
            self.start(recipe, 1, f"resilience_config.policy={policy}").wait()
            peaks[policy], = re.findall(r"peak of the process (.*)", (self.folder / "run/tessera.log").read_text())
        print(f"  peak memory of a rank: {peaks['off']} off, {peaks['memory']} memory")


def updates(build):
    """Ratios of the medians that bench_optimizer prints in turn."""
    for millions, name in ((60, "60 million parameters"), (.5, "0.5 million, in cache")):
        told = subprocess.run([build / "benchmarks/bench_optimizer", str(os.cpu_count()), str(millions)], check=True, capture_output=True, text=True).stdout
        found = {}
        for what, milliseconds in re.findall(r"^  (by rule|with undo|and sums) +([\d.]+) ms", told, re.M):
            found.setdefault(what, []).append(float(milliseconds))
        rule, undo, sums = (statistics.median(found[what]) for what in ("by rule", "with undo", "and sums"))
        print(f"AdamW, {name}: {rule:.3f} ms; with an undo log {undo / rule:.3f} of that; with checksums, too, {sums / undo:.3f} of that", flush=True)


def replicas(build, name, recipe, skipped, pairs):
    """Two hosts with two ranks each and a distributed optimizer: no other host has a rank's shard."""
    job_class, _ = fault_run.job_type(on_hosts=True)
    case, times = job_class(), {"off": [], "replica": []}
    try:
        case.setUp()
        (case.folder / "recipe.yaml").write_text(recipe)
        for pair in range(pairs):
            for policy in ("off", "replica") if pair % 2 else ("replica", "off"):
                run = f"{policy}{pair}"
                line = ["tessera", "train", "recipe.yaml", "--set", "training_config.use_distributed_optimizer=true", "--set", f"training_config.output_dir={run}",
                        "--set", f"resilience_config.policy={policy}"]
                for job in [case.start_host(host, program=line) for host in (0, 1)]:
                    told, _ = job.communicate()
                    if job.returncode != 0:
                        raise SystemExit(told)
                times[policy].append(step_seconds(case.folder / run / "metrics.jsonl", skipped))
    except unittest.SkipTest as reason:
        print(f"{name}: skipped, {reason}")
        return
    finally:
        case.doCleanups()
    ratios = [replica / off for replica, off in zip(times["replica"], times["off"])]
    print(f"{name}: step {1e3 * statistics.median(times['off']):.1f} ms off, {1e3 * statistics.median(times['replica']):.1f} ms replica; ratio "
          f"{statistics.median(ratios):.3f} (median of {pairs} pairs, {min(ratios):.3f} to {max(ratios):.3f})", flush=True)


PARTS = ("step", "update", "recovery", "hang", "replica")


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("build")
    arguments.add_argument("--pairs", type=int, default=5)
    arguments.add_argument("--faults", type=int, default=10)
    arguments.add_argument("--only", action="append", choices=PARTS, metavar="PART")
    given = arguments.parse_args()
    build, parts = fault_run.environment_of(given.build), given.only or PARTS
    bench = Bench(build)
    try:
        if "step" in parts:
            bench.pairs("2 layers of width 128, 1 rank", SMALL % {"steps": 400, "batch": 4}, 50, given.pairs)
            bench.pairs("GPT-2 124M, B4 T256, 1 rank", GPT2 % {"steps": 8, "batch": 4}, 2, given.pairs)
            bench.memory(GPT2 % {"steps": 3, "batch": 4})
        if "update" in parts:
            updates(build)
        if "recovery" in parts:
            bench.faults("2 layers of width 128, 4 ranks", SMALL % {"steps": 1000000, "batch": 4}, 4, given.faults)
            bench.faults("GPT-2 124M, 2 ranks", GPT2 % {"steps": 1000000, "batch": 1}, 2, max(2, given.faults // 3))
        if "hang" in parts:
            bench.hangs("2 layers of width 128, 4 ranks", SMALL % {"steps": 5 * given.faults + 10, "batch": 4}, 4, given.faults)
        if "replica" in parts:
            replicas(build, "2 layers of width 128, 2 hosts with 2 ranks", SMALL % {"steps": 200, "batch": 4}, 50, given.pairs)
            replicas(build, "GPT-2 124M, 2 hosts with 2 ranks", GPT2 % {"steps": 6, "batch": 1}, 2, max(1, given.pairs // 2))
    finally:
        shutil.rmtree(bench.folder, ignore_errors=True)


if __name__ == "__main__":
    main()
