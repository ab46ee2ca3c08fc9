#!/usr/bin/env python3
"""Is `tessera report` faster than TensorBoard loading the same run, and does it need less memory?

Writes metrics.jsonl of a run of --steps logged steps, makes event files of it (tessera export --to tensorboard), and measures wall time and peak memory of
`tessera report`, and of a Python process that loads the event files with the loader of the package tensorboard (EventAccumulator, which by default keeps a
random selection of 10000 values of each curve; --keep 0: all), one after the other in --pairs rounds. Prints the figures and their ratios; "skipped" without tensorboard.

    benchmarks/report.py [--build build/release] [--python PYTHON_WITH_TENSORBOARD] [--steps 1000000] [--pairs 1] [--keep 10000] [--folder SCRATCH]
"""
import argparse
import math
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time

LOADER = """
import sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
run = EventAccumulator(sys.argv[1], size_guidance={"scalars": int(sys.argv[2])})
run.Reload()
print(len(run.Tags()["scalars"]), "curves")
"""


def write_run(folder, steps):
    """Rows as a run of a dense model writes them; a spike at two thirds."""
    folder.mkdir(parents=True)
    chance = random.Random(1)
    with open(folder / "metrics.jsonl", "w") as rows:
        for i in range(1, steps + 1):
            loss = 10 * math.exp(-5 * i / steps) + chance.random() + (50 if i == steps * 2 // 3 else 0)
            seconds = 0.02 + chance.random() / 100
            rows.write(f'{{"iteration": {i}, "consumed_samples": {i * 8}, "loss": {loss!r}, "grad_norm": {chance.random()!r}, '
                       f'"learning_rate": {3e-4 * (1 - i / steps)!r}, "weight_decay": 0.1, "loss_scale": 1.0, "skipped": false, '
                       f'"sample_chain": {chance.getrandbits(32)}, "step_seconds": {seconds!r}, "tokens_per_second": {4096 / seconds!r}, '
                       f'"data_wait_seconds": {chance.random() * 1e-5!r}, "memory_bytes": 7280640, "weight_bytes": 482304, '
                       f'"gradient_bytes": 482304, "optimizer_bytes": 964608, "activation_bytes": 5154816, "workspace_bytes": 196608, '
                       f'"message_bytes": 0' + (f', "validation_loss": {loss + 0.1!r}' if i % 1000 == 0 else "") + "}\n")


def measure(words):
    """Wall time in seconds, processor time in seconds, peak memory in bytes of a program; and, of the latter, without pages of files (programs and
    libraries), which other processes share."""
    began = time.monotonic()
    process = subprocess.Popen(list(map(str, words)), stdout=subprocess.DEVNULL)
    own, ended = 0, 0
    while not ended:
        found = re.search(r"RssAnon:\s+(\d+) kB", pathlib.Path(f"/proc/{process.pid}/status").read_text())
        own = max(own, int(found[1]) * 1024 if found else 0)
        ended, status, used = os.wait4(process.pid, os.WNOHANG)
        time.sleep(0.002)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"{words[0]} failed with exit code {process.returncode}")
    return time.monotonic() - began, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024, own


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build/release"))
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--steps", type=int, default=1000000)
    parser.add_argument("--pairs", type=int, default=1)
    parser.add_argument("--keep", type=int, default=10000, help="values of a curve that tensorboard keeps; 0: all")
    parser.add_argument("--folder", type=pathlib.Path, help="for files of about 2.5 GB for a million steps; default: a temporary folder")
    args = parser.parse_args()
    if subprocess.run([args.python, "-c", "import tensorboard"], capture_output=True).returncode != 0:
        print("skipped: the Python has no tensorboard; name one with --python")
        return
    tessera = args.build / "framework" / "tessera"
    with tempfile.TemporaryDirectory(dir=args.folder) as scratch:
        folder = pathlib.Path(scratch)
        write_run(folder / "run", args.steps)
        subprocess.run([tessera, "export", folder / "run", "--to", "tensorboard", "-o", folder / "events"], check=True, stdout=subprocess.DEVNULL)
        ours, theirs = [], []
        for _ in range(args.pairs):
            ours.append(measure([tessera, "report", folder / "run", "-o", folder / "page.html", "--force"]))
            theirs.append(measure([args.python, "-c", LOADER, folder / "events", args.keep]))
        size = (folder / "page.html").stat().st_size
    for name, runs in (("tessera report", ours), ("tensorboard", theirs)):
        seconds, processor, memory, own = (statistics.median(column) for column in zip(*runs))
        print(f"{name}: {seconds:.2f} s, processor {processor:.2f} s, peak memory {memory / 1e6:.0f} MB, of its own {own / 1e6:.1f} MB")
    print(f"ratios (tensorboard / tessera): wall time {statistics.median(b[0] / a[0] for a, b in zip(ours, theirs)):.1f}, "
          f"processor time {statistics.median(b[1] / a[1] for a, b in zip(ours, theirs)):.1f}, "
          f"memory {statistics.median(b[2] / a[2] for a, b in zip(ours, theirs)):.1f}, of its own "
          f"{statistics.median(b[3] / a[3] for a, b in zip(ours, theirs)):.1f}; page of {size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
