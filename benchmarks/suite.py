#!/usr/bin/env python3
"""The figures of Tessera that have a target, measured one after the other; started by benchmarks/run.sh.

Ratios are of programs that ran alternately. A file of results has the machine, as `tessera doctor --json` describes it, and a list of
figures: name, median, least, largest, target (none where none was set for this kind of processor), and whether it was reached.
"""

import argparse
import datetime
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

import training_steps
from training_steps import HERE

# Targets by figure, then by the best instruction set of the processor. Ratios above 1: Tessera is faster; of memory: at most.
TARGETS = {
    "float32 4x64 over PyTorch": {"avx512_bf16": 1.27, "amx": 1.2, "avx2": 1.20},
    "float32 4x256 over PyTorch": {"avx512_bf16": 1.13, "amx": 1.1, "avx2": 1.15},
    "float32 1x1024 over PyTorch": {"avx512_bf16": 1.15, "amx": 1.1, "avx2": 1.15},
    "bfloat16 4x64 over PyTorch": {"avx512_bf16": 1.38, "amx": 1.5},
    "bfloat16 4x256 over PyTorch": {"avx512_bf16": 1.20, "amx": 1.4},
    "bfloat16 1x1024 over PyTorch": {"avx512_bf16": 1.18, "amx": 1.5},
    "bfloat16 8x1024 over PyTorch": {"avx512_bf16": 1.28, "amx": 1.5},
    "float32 small over PyTorch": {"": 3.0},
    "float32 4x256 peak memory over PyTorch's": {"": 0.85},
    "bfloat16 8x1024 peak memory over PyTorch's": {"": 0.5},
    "bfloat16 4x256 over float32": {"avx512_bf16": 1.75, "amx": 3.8, "avx2": 0.9},
    "float32 4x256, share of the multiply-add rate": {"avx512_bf16": 0.83, "amx": 0.69},
    "Llama shape's FLOP rate over GPT-2's": {"": 0.95},
    "B3 T200 of width 640, FLOP rate over GPT-2's": {"": 0.8},
    "dp on 2 ranks over 1 process": {"avx512_bf16": 0.95, "amx": 0.88},
    "dp_bf16 on 2 ranks over 1 process": {"avx512_bf16": 0.92, "amx": 0.75},
    "dp_zero_bf16 on 2 ranks over 1 process": {"avx512_bf16": 0.94, "amx": 0.84},
    "seconds from start to the end of the first step, toy model": {"": 0.15},
}
AT_MOST = ("memory", "seconds")  # words in the names of figures that are better if less

# Of GPT-2's width and depth, as Llama: grouped heads, SwiGLU, rotary embedding.
LLAMA = {"model_config.normalization": "RMSNorm", "model_config.hidden_act": "swiglu", "model_config.add_bias_linear": "false",
         "model_config.position_embedding_type": "rope", "model_config.ffn_hidden_size": 2048, "model_config.num_query_groups": 4,
         "dataset_config.batch_size": 4, "model_config.seq_length": 256}
UNTUNED = {"model_config.hidden_size": 640, "model_config.num_attention_heads": 10, "dataset_config.batch_size": 3, "model_config.seq_length": 200}
TOY = """
training_config: {training_iters: 1, output_dir: run, log_interval: 1, eval_iters: 0, tensorboard: false, save_interval: 0}
model_config: {num_layers: 2, hidden_size: 64, num_attention_heads: 2, seq_length: 32, max_position_embeddings: 32, vocab_size: 256}
optimizer_config: {optimizer_type: adamw}
dataset_config: {dataset_type: mock, batch_size: 1}
"""


class Suite:
    def __init__(self, args, machine, output, about):
        self.args, self.machine, self.output, self.about, self.figures = args, machine, output, about, []
        self.steps = training_steps.Measure(args.build, args.python, args.threads, args.seconds)
        sets = machine["instruction_sets"]
        self.kind = next(s for s in ("amx", "avx512_bf16", "avx512", "avx2", "portable") if s in sets)

    def wanted(self, name):
        return not self.args.only or any(word in name for word in self.args.only)

    def add(self, name, values, unit=""):
        targets = TARGETS.get(name, {})
        target = targets.get(self.kind, targets.get(""))
        median = statistics.median(values)
        met = None if target is None else median <= target if any(word in name for word in AT_MOST) else median >= target
        self.figures.append({"name": name, "median": round(median, 4), "least": round(min(values), 4), "largest": round(max(values), 4), "unit": unit,
                             "target": target, "met": met})
        spread = f" ({min(values):.3g} to {max(values):.3g})" if len(values) > 1 else ""
        print(f"{name:<58} {median:8.3g}{spread} {unit}" + ("" if met is None else f"   target {target}: {'met' if met else 'MISSED'}"), flush=True)
        self.output.write_text(json.dumps({**self.about, "machine": self.machine, "figures": self.figures}, indent=1) + "\n")

    def beside_torch(self):
        for dtype, shapes in (("float32", ("4x64", "4x256", "1x1024", "small")), ("bfloat16", ("4x64", "4x256", "1x1024", "8x1024"))):
            for shape in shapes:
                name = f"{dtype} {shape} over PyTorch"
                if not self.wanted(name):
                    continue
                pairs = [self.steps.pair(shape, dtype) for _ in range(self.args.pairs)]
                self.add(name, [pair.speed for pair in pairs])
                self.add(f"{dtype} {shape} peak memory over PyTorch's", [pair.memory for pair in pairs])
                self.add(f"{dtype} {shape}", [pair.tokens_per_second["tessera"] for pair in pairs], "tokens/s")

    def own_ratios(self):
        """Of steps that alternate with those of GPT-2, B4 T256."""
        gpt2 = training_steps.gpt2(4, 256).options
        flop_rate = lambda found: found["model_flops"] / found["median_s"]
        others = {"bfloat16 4x256 over float32": (gpt2, "bfloat16"), "Llama shape's FLOP rate over GPT-2's": (LLAMA, "float32"),
                  "B3 T200 of width 640, FLOP rate over GPT-2's": (UNTUNED, "float32")}
        rate = self.machine["rates"]["fp32_multiply_adds"]
        shares = []
        for name, (options, dtype) in others.items():
            if not self.wanted(name):
                continue
            ratios = []
            for _ in range(self.args.pairs):
                base, other = flop_rate(self.steps.ours(gpt2)), flop_rate(self.steps.ours(options, dtype))
                ratios.append(other / base)
                shares.append(base / rate)
            self.add(name, ratios)
        if shares:
            self.add("float32 4x256, share of the multiply-add rate", shares)

    def ranks(self):
        for layout in ("dp", "dp_bf16", "dp_zero_bf16"):
            name = f"{layout} on 2 ranks over 1 process"
            if not self.wanted(name):
                continue
            told = subprocess.run([sys.executable, HERE / "scaling.py", "--build", self.args.build, "--pairs", str(self.args.pairs), "--layout", layout],
                                  capture_output=True, text=True, check=True).stdout
            self.add(name, [float(ratio) for ratio in re.findall(r"ratio ([0-9.]+)", told)])

    def start(self):
        name = "seconds from start to the end of the first step, toy model"
        if not self.wanted(name):
            return
        seconds = []
        for _ in range(max(5, self.args.pairs)):
            with tempfile.TemporaryDirectory() as folder:
                pathlib.Path(folder, "toy.yaml").write_text(TOY)
                began = time.monotonic()
                job = subprocess.Popen([self.args.build / "framework/tessera", "train", "toy.yaml"], cwd=folder, stdout=subprocess.PIPE, text=True)
                for line in job.stdout:
                    if "iteration        1/" in line:
                        seconds.append(time.monotonic() - began)
                if job.wait() != 0:
                    sys.exit("the toy model did not train")
        self.add(name, seconds, "s")


def pressure():
    """Share of the last minute in which some process waited for a processor, in percent; null if the kernel does not tell."""
    try:
        return float(re.search(r"some avg10=\S+ avg60=(\S+)", pathlib.Path("/proc/pressure/cpu").read_text()).group(1))
    except (OSError, AttributeError):
        return None


def commit():
    git = lambda *words: subprocess.run(["git", "-C", HERE, *words], capture_output=True, text=True).stdout.strip()
    return git("rev-parse", "--short", "HEAD") + ("+" if git("status", "--porcelain") else "")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=lambda path: pathlib.Path(path).resolve(), default=HERE.parent / "build/release")
    parser.add_argument("--python", default=sys.executable, help="with torch")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=15, help="of each run of a step")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--only", nargs="+", metavar="WORD", help="only figures whose name has one of these words")
    parser.add_argument("--output", type=pathlib.Path)
    args = parser.parse_args()
    doctor = json.loads(subprocess.run([args.build / "framework/tessera", "doctor", "--json"], capture_output=True, text=True, check=True).stdout)
    machine = {**doctor["machine"], "rates": doctor["per_second"]}
    about = {"commit": commit(), "date": datetime.date.today().isoformat(), "load": os.getloadavg()[0], "cpu_pressure_percent": pressure(),
             "pairs": args.pairs, "threads": args.threads}
    print(f"{machine['processor']}, {machine['instruction_set']}, {args.threads} threads, commit {about['commit']}, load {about['load']:.1f}, "
          f"{args.pairs} pairs")
    kind = re.sub(r"[^A-Za-z0-9]+", "-", f"{machine['processor']} {machine['instruction_set']}").strip("-")
    output = args.output or HERE / "results" / f"{kind}-{about['date']}.json"
    output.parent.mkdir(parents=True, exist_ok=True)
    suite = Suite(args, machine, output, about)
    if training_steps.has_torch(args.python):
        suite.beside_torch()
    else:
        print(f"skipped: figures relative to PyTorch, because {args.python} cannot import torch")
    suite.own_ratios()
    suite.ranks()
    suite.start()
    absent = TARGETS.keys() - {figure["name"] for figure in suite.figures}
    if absent:
        print("not measured: " + "; ".join(sorted(absent)))
    print(f"written: {output}")


if __name__ == "__main__":
    main()
