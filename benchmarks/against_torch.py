#!/usr/bin/env python3
"""Is a training step of Tessera faster than in PyTorch or llm.c, and does it need less memory?

Runs bench_train_step and torch_step.py in alternating processes, so that other load on the machine affects both, and prints the
medians of the pairwise ratios (above 1: Tessera is faster; memory below 1: Tessera needs less). PyTorch runs in several configurations; the
ratio is relative to its best in each pair. Prints "skipped" if torch cannot be imported.

    benchmarks/against_torch.py --build build/release [--python PYTHON_WITH_TORCH] [--pairs 5] [--seconds 15] [--threads 2]
                                [--dtype float32|bfloat16|float16] [--shapes 4x64 8x1024 1x8192 ... small llama quickstart experts
                                 full lora lora_attention qwen2_full qwen2_lora qwen2_lora_attention]
                                [--llmc CHECKOUT_OF_LLM.C_OR_PROGRAM]

In 16 bits PyTorch runs its forward pass under autocast, and once more compiled; both keep fp32 weights. With --llmc the peer is llm.c,
which has fp32 only and whose shapes are SAMPLESxLENGTH: a checkout, or the program that was built of llmc_step.c.

Steps during which other programs took a processor away (by /proc/pressure/cpu) are left out if three others remain. Before and after each pair
bench_limits measures the machine; a pair is left out if its rates differ by more than 8 %, or if fewer than three steps were undisturbed.
If no pair is left, all are used, and the line says so.
"""
import argparse
import collections
import pathlib
import statistics
import sys
import tempfile

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
    parser.add_argument("--llmc", help="measure llm.c instead of PyTorch")
    args = parser.parse_args()
    if not args.llmc and not training_steps.imports(args.python, "torch"):
        print(f"skipped: {args.python} cannot import torch")
        return
    print(f"{training_steps.processor()} - {args.threads} threads, {args.dtype}, {args.pairs} pairs of {args.seconds:g} s")
    with tempfile.TemporaryDirectory() as folder:
        try:
            llmc = training_steps.llmc_program(args.llmc, folder) if args.llmc else None
            measure = training_steps.Measure(args.build, args.python, args.threads, args.seconds, llmc=llmc)
            for shape in args.shapes:
                report(shape, [measure.llmc_pair(shape, args.dtype) if llmc else measure.pair(shape, args.dtype) for _ in range(args.pairs)])
        except training_steps.Failed as error:
            sys.exit(str(error))


def report(shape, all_pairs):
    kept, count = training_steps.undisturbed(all_pairs)
    pairs = [one.result for one in kept]
    times, processor, memory = ([getattr(pair, what) for pair in pairs] for what in ("speed", "processor_speed", "memory"))
    rates = collections.defaultdict(list)
    for pair in pairs:
        for name, rate in pair.tokens_per_second.items():
            rates[name].append(rate)
    middle = {name: statistics.median(values) for name, values in rates.items()}
    ours = middle.pop("tessera")
    print(f"{shape:>10}: {statistics.median(times):.2f} x as fast as {pairs[0].peer} ({min(times):.2f} to {max(times):.2f}; "
          f"{count} of {len(all_pairs)} pairs undisturbed), "
          f"{statistics.median(processor):.2f} x by processor time, {statistics.median(memory):.2f} of its memory; "
          f"{ours:.0f} tokens/s here, " + ", ".join(f"{rate:.0f} {name}" for name, rate in middle.items()), flush=True)
    for number, one in enumerate(all_pairs, 1):
        if one.disturbed():
            print(f"            pair {number} was disturbed: {one.disturbed()}")


if __name__ == "__main__":
    main()
