#!/usr/bin/env python3
"""The index of many sequences: ours against Megatron-LM's own code (C++ helper and NumPy), seconds and memory.

    benchmarks/dataset_index.py --bench build/release/benchmarks/bench_dataset_index --megatron CHECKOUT [--sequences N]

CHECKOUT is Megatron-LM with megatron/core/datasets/helpers_cpp built; this Python needs numpy and torch. Both read the same
file of lengths and must give the same arrays (md5). Each measurement is a process of its own; the best of some counts."""
import argparse
import json
import os
import subprocess
import sys
import tempfile


def memory(name):
    """A line of /proc/self/status in bytes."""
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(name + ":"))


def peer(file, seq_length, samples):
    import hashlib
    import time

    import numpy
    from megatron.core.datasets import gpt_dataset, helpers

    lengths = numpy.load(file, mmap_mode="r")
    tokens = int(lengths.sum(dtype=numpy.int64))
    with open("/proc/self/clear_refs", "w", encoding="ascii") as refs:
        refs.write("5")
    before = memory("VmRSS")
    begin = time.perf_counter()
    per_epoch = int(numpy.sum(lengths))
    epochs = 1
    while epochs * per_epoch < samples * seq_length + 1:
        epochs += 1
    separate, sans = False, 0
    if epochs > 1:
        sans = ((epochs - 1) * per_epoch - 1) // seq_length
        separate = samples - sans < int(0.80 * ((per_epoch - 1) // seq_length))
    state = numpy.random.RandomState(1234)
    documents = gpt_dataset._build_document_index(numpy.arange(len(lengths), dtype=numpy.int32), epochs, state, separate)
    starts = helpers.build_sample_idx(lengths.copy(), documents, seq_length, epochs, per_epoch, True, True)
    count = starts.shape[0] - 1
    shuffle = gpt_dataset._build_shuffle_index(sans if separate else count, count, state)
    seconds = time.perf_counter() - begin
    used = memory("VmHWM") - before
    arrays = [documents, starts, shuffle]
    print(json.dumps({"seconds": seconds, "memory": used, "bytes": sum(a.nbytes for a in arrays), "tokens": tokens,
                      "epochs": epochs, "samples": count, "md5": [hashlib.md5(a.tobytes()).hexdigest() for a in arrays]}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", required=True)
    parser.add_argument("--megatron", required=True)
    parser.add_argument("--sequences", type=int, default=10_000_000)
    parser.add_argument("--seq-length", type=int, default=2048)
    parser.add_argument("--epochs", type=float, default=1.0)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--peer", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        sys.path.insert(0, options.megatron)
        return peer(options.peer[0], int(options.peer[1]), int(options.peer[2]))
    import numpy

    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "lengths.npy")
        lengths = numpy.random.RandomState(1).lognormal(6.0, 1.0, options.sequences).astype(numpy.int32) + 1
        numpy.save(file, lengths)
        samples = int(options.epochs * ((int(lengths.sum(dtype=numpy.int64)) - 1) // options.seq_length))
        del lengths
        size = [file, str(options.seq_length), str(samples)]
        commands = {"Megatron-LM": [sys.executable, __file__, "--bench", "", "--megatron", options.megatron, "--peer", *size],
                    "ours, 1 thread": [options.bench, *size, "1"], "ours, 2 threads": [options.bench, *size, "2"]}
        best = {}
        for name in list(commands) * options.repeat:
            row = json.loads(subprocess.run(commands[name], check=True, capture_output=True, text=True).stdout.splitlines()[-1])
            if name not in best or row["seconds"] < best[name]["seconds"]:
                best[name] = row
    first = best["Megatron-LM"]
    print(f"{options.sequences} sequences, {first['tokens']} tokens, {first['epochs']} epochs, {first['samples']} samples of "
          f"{options.seq_length}; index of {first['bytes']} bytes")
    for name, row in best.items():
        same = "same arrays" if row["md5"] == first["md5"] else "OTHER ARRAYS"
        print(f"{name:16} {row['seconds']:8.3f} s  {first['seconds'] / row['seconds']:6.2f} x  memory "
              f"{row['memory'] / row['bytes']:5.2f} x the index  {same}")


if __name__ == "__main__":
    main()
