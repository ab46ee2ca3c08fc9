#!/usr/bin/env python3
"""Is a training step of Tessera faster than in PyTorch, and does it need less memory?

Runs bench_train_step and torch_step.py in alternating processes, so that other load on the machine affects both, and prints the
medians of the pairwise ratios (above 1: Tessera is faster; memory below 1: Tessera needs less). PyTorch runs in several configurations; the
ratio is relative to its best in each pair. Prints "skipped" if torch cannot be imported.

    benchmarks/against_torch.py --build build/release [--python PYTHON_WITH_TORCH] [--pairs 5] [--seconds 15] [--threads 2]
                                [--dtype float32|bfloat16|float16] [--shapes 4x64 ... small quickstart experts]

In 16 bits PyTorch runs its forward pass under autocast, and once more compiled; both keep fp32 weights.
"""
import argparse
import pathlib
import statistics
import sys

import training_steps


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build/release"))
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--shapes", nargs="*", default=["4x64", "4x256", "1x1024", "quickstart"])
    parser.add_argument("--dtype", choices=["float32", "bfloat16", "float16"], default="float32")
    args = parser.parse_args()
    if not training_steps.has_torch(args.python):
        print(f"skipped: {args.python} cannot import torch")
        return
    print(f"{training_steps.processor()} - {args.threads} threads, {args.dtype}, {args.pairs} pairs of {args.seconds:g} s")
    measure = training_steps.Measure(args.build, args.python, args.threads, args.seconds)
    for shape in args.shapes:
        pairs = [measure.pair(shape, args.dtype) for _ in range(args.pairs)]
        times, processor, memory = ([getattr(pair, what) for pair in pairs] for what in ("speed", "processor_speed", "memory"))
        middle = {name: statistics.median(pair.tokens_per_second[name] for pair in pairs) for name in pairs[0].tokens_per_second}
        ours = middle.pop("tessera")
        print(f"{shape:>10}: {statistics.median(times):.2f} x as fast as {pairs[0].peer} ({min(times):.2f} to {max(times):.2f}), "
              f"{statistics.median(processor):.2f} x by processor time, {statistics.median(memory):.2f} of its memory; "
              f"{ours:.0f} tokens/s here, " + ", ".join(f"{rate:.0f} {name}" for name, rate in middle.items()), flush=True)


if __name__ == "__main__":
    main()
