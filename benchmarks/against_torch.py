#!/usr/bin/env python3
"""Is a training step of Tessera faster than in PyTorch, and does it need less memory?

Runs bench_train_step and torch_step.py in alternating processes, so that other load on the machine affects both, and prints the
medians of the pairwise ratios (above 1: Tessera is faster; memory below 1: Tessera needs less). PyTorch runs in several configurations; the
ratio is relative to its best in each pair. Prints "skipped" if torch cannot be imported.

    benchmarks/against_torch.py --build build/release [--python PYTHON_WITH_TORCH] [--pairs 5] [--seconds 15] [--threads 2]
                                [--dtype float32|bfloat16|float16] [--shapes 4x64 ... quickstart experts]

In 16 bits PyTorch runs its forward pass under autocast, and once more compiled; both keep fp32 weights.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys

here = pathlib.Path(__file__).resolve().parent
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--build", default="build/release")
parser.add_argument("--python", default=sys.executable)
parser.add_argument("--pairs", type=int, default=5)
parser.add_argument("--seconds", type=float, default=15)
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--shapes", nargs="*", default=["4x64", "4x256", "1x1024", "quickstart"])
parser.add_argument("--dtype", choices=["float32", "bfloat16", "float16"], default="float32")
args = parser.parse_args()

# Four layers of eight SwiGLU experts, of which each token has two; beside Transformers' Mixtral in its fastest implementation.
# batched_mm is not among them: it copies the weights of its experts for each token, here 29 GB a layer.
EXPERTS = {"model_config": {"num_layers": 4, "seq_length": 256, "num_experts": 8, "position_embedding_type": "rope", "normalization": "RMSNorm",
                            "hidden_act": "swiglu", "add_bias_linear": "false"},
           "moe_config": {"moe_router_topk": 2, "moe_ffn_hidden_size": 1536}, "dataset_config": {"batch_size": 4}}
EXPERTS_IMPLEMENTATIONS = ["eager", "grouped_mm"]
EXPERTS_PEER = ["--layers", "4", "--batch", "4", "--seq", "256", "--ffn", "1536", "--experts", "8", "--topk", "2"]
QUICKSTART = here.parent / "configs" / "quickstart.yaml"
# The model of configs/quickstart.yaml, as arguments of torch_step.py.
QUICKSTART_PEER = ["--llama", "--layers", "4", "--hidden", "192", "--heads", "4", "--ffn", "512", "--vocab", "4096", "--batch", "8", "--seq", "256"]


def json_of(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stderr}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def ours(shape):
    command = [pathlib.Path(args.build) / "benchmarks" / "bench_train_step", "--json", "--threads", args.threads, "--seconds", args.seconds]
    if shape == "quickstart":
        command += [QUICKSTART, "--set", "model_config.vocab_size=4096"]
    elif shape == "experts":
        command += [word for group, options in EXPERTS.items() for key, value in options.items() for word in ("--set", f"{group}.{key}={value}")]
    else:
        samples, length = shape.split("x")
        command += ["--set", f"dataset_config.batch_size={samples}", "--set", f"model_config.seq_length={length}"]
    if args.dtype != "float32":
        command += ["--set", "training_config.bf16=true" if args.dtype == "bfloat16" else "training_config.fp16=true"]
    return json_of([str(word) for word in command])


def theirs(shape):
    base = [args.python, str(here / "torch_step.py"), "--threads", str(args.threads), "--seconds", str(args.seconds)]
    if shape == "experts":
        base += [*EXPERTS_PEER, "--dtype", args.dtype]
        return [json_of(base + ["--experts-implementation", name]) for name in EXPERTS_IMPLEMENTATIONS]
    base += QUICKSTART_PEER if shape == "quickstart" else ["--batch", shape.split("x")[0], "--seq", shape.split("x")[1]]
    base += ["--dtype", args.dtype]
    return [json_of(base), json_of(base + (["--linear", "onednn"] if args.dtype == "float32" else ["--compile"]))]


if subprocess.run([args.python, "-c", "import torch"], capture_output=True).returncode != 0:
    print(f"skipped: {args.python} cannot import torch")
    sys.exit(0)

for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
    if line.startswith("model name"):
        print(line.split(":")[1].strip(), f"- {args.threads} threads, {args.dtype}, {args.pairs} pairs of {args.seconds:g} s")
        break
second = "with oneDNN linears" if args.dtype == "float32" else "compiled"
for shape in args.shapes:
    times, processor, memory, rows = [], [], [], []
    for _ in range(args.pairs):
        mine, peers = ours(shape), theirs(shape)
        if not mine["loss_last"] < mine["loss_first"]:
            sys.exit(f"{shape}: the loss did not fall: {mine}")
        times.append(min(p["median_s"] for p in peers) / mine["median_s"])
        processor.append(min(p["cpu_min_s"] for p in peers) / mine["cpu_min_s"])
        memory.append(mine["peak_rss_mb"] / min(p["peak_rss_mb"] for p in peers))
        rows.append((mine["median_s"], *(p["median_s"] for p in peers)))
    names = EXPERTS_IMPLEMENTATIONS if shape == "experts" else ["eager", second]
    middle = [statistics.median(column) for column in zip(*rows)]
    tokens = mine["batch"] * mine["seq"]
    print(f"{shape:>10}: {statistics.median(times):.2f} x as fast as {peers[0]['who']} ({min(times):.2f} to {max(times):.2f}), "
          f"{statistics.median(processor):.2f} x by processor time, {statistics.median(memory):.2f} of its memory; "
          f"{tokens / middle[0]:.0f} tokens/s here, " + ", ".join(f"{tokens / m:.0f} {name}" for m, name in zip(middle[1:], names)), flush=True)
