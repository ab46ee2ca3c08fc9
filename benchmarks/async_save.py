#!/usr/bin/env python3
"""What does saving cost a run, with and without training_config.async_save?

    python3 benchmarks/async_save.py BUILD_FOLDER [--runs 5] [--layers 12 --width 768] [--folder DISK]

GPT-2 124M with AdamW (1.5 GB of state), 2 data-parallel ranks with a distributed optimizer, a save every 10 steps. Runs without saves, with synchronous
and with asynchronous ones come in turn. Prints medians and spreads of
  stall          time in which training stands still for a save (stall_seconds in events.jsonl)
  added          time that a save adds to the run, over runs without saves: stalls, and steps that are slower while the threads write;
                 of the saves after the first, which alone takes fresh memory for copies
  first          the same of the first
  processor      the same of the processor time of all ranks and of all saves
  memory         peak of a rank beyond that of runs without saves"""

import argparse
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import tempfile
import time

STEPS, INTERVAL = 40, 10  # the checkpoint of the last step is saved synchronously in each mode that saves
RECIPE = """training_config: {training_iters: %(steps)d, output_dir: run, log_interval: 1, eval_iters: 0, tensorboard: false, seed: 1,
                  use_distributed_optimizer: true, keep_checkpoint_max: 1}
model_config: {num_layers: %(layers)d, hidden_size: %(width)d, num_attention_heads: 12, seq_length: 128, max_position_embeddings: 1024,
               vocab_size: 50257, hidden_dropout_rate: 0, attention_dropout_rate: 0}
optimizer_config: {optimizer_type: adamw, learning_rate: 1e-4}
dataset_config: {dataset_type: mock, batch_size: 1, data_cache_path: cache}
"""
MODES = {
    "none": [],
    "synchronous": [f"training_config.save_interval={INTERVAL}"],
    "asynchronous": [f"training_config.save_interval={INTERVAL}", "training_config.async_save=true"],
}


def mebibytes(count):
    """Of a number with its unit."""
    number, unit = count
    return float(number) * {"KiB": 1 / 1024, "MiB": 1, "GiB": 1024}[unit]


def run(programs, folder, mode):
    """Figures of one run by name."""
    shutil.rmtree(folder / "run", ignore_errors=True)
    options = [word for one in MODES[mode] for word in ("--set", one)]
    job = subprocess.Popen([programs / "tsrun", "--worker_num=2", programs / "tessera", "train", "recipe.yaml", *options], cwd=folder,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    metrics, arrivals = folder / "run/metrics.jsonl", []
    while True:
        ended, status, used = os.wait4(job.pid, os.WNOHANG)
        if ended:
            break
        lines = metrics.read_bytes().count(b"\n") if metrics.exists() else 0
        arrivals += [time.monotonic()] * (lines - len(arrivals))
        time.sleep(.002)
    job.returncode = os.waitstatus_to_exitcode(status)
    if job.returncode != 0 or len(arrivals) < STEPS:
        raise SystemExit(f"a run failed ({mode}): {folder}/run/tessera.log")
    events = map(json.loads, (folder / "run/events.jsonl").read_text().splitlines())
    stalls = [event["stall_seconds"] for event in events
              if event["event"] == "saved" and not event["path"].endswith(f"_{STEPS:07d}")]
    peak = re.search(r"peak of the process ([\d.]+) (\w+)", (folder / "run/tessera.log").read_text())
    return {"seconds": arrivals[STEPS - 1] - arrivals[2 * INTERVAL - 1], "first": arrivals[2 * INTERVAL - 1] - arrivals[INTERVAL - 1],
            "processor": used.ru_utime + used.ru_stime, "peak": mebibytes(peak.groups()), "stall": statistics.mean(stalls) if stalls else 0.}


def told(values, unit):
    return f"{statistics.median(values):8.3f} {unit} ({min(values):.3f} to {max(values):.3f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--folder", help="a folder on the disk to save to")
    given = parser.parse_args()
    programs = pathlib.Path(given.build).resolve() / "framework"
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        folder = pathlib.Path(name)
        (folder / "recipe.yaml").write_text(RECIPE % dict(layers=given.layers, width=given.width, steps=STEPS))
        found = {mode: [] for mode in MODES}
        for _ in range(given.runs):
            for mode in MODES:
                found[mode].append(run(programs, folder, mode))
    saves = STEPS // INTERVAL
    base, figures = found["none"], {}
    for mode in ("synchronous", "asynchronous"):
        figures[mode] = {
            "stall": [ours["stall"] for ours in found[mode]],
            "added": [(ours["seconds"] - plain["seconds"]) / (saves - 2) for ours, plain in zip(found[mode], base)],
            "first": [ours["first"] - plain["first"] for ours, plain in zip(found[mode], base)],
            "processor": [(ours["processor"] - plain["processor"]) / saves for ours, plain in zip(found[mode], base)],
            "memory": [ours["peak"] - plain["peak"] for ours, plain in zip(found[mode], base)]}
        for what, values in figures[mode].items():
            print(f"{mode:13} {what:9}", told(values, "MiB" if what == "memory" else "s a save"))
    for what in ("stall", "added", "first", "processor"):
        ours, theirs = (statistics.median(figures[mode][what]) for mode in ("asynchronous", "synchronous"))
        print(f"asynchronous over synchronous, {what}: {ours / theirs:.3f}")
    print("median step without saves:", told([plain["seconds"] / (STEPS - 2 * INTERVAL) for plain in base], "s"))


if __name__ == "__main__":
    main()
