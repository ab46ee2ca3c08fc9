#!/usr/bin/env python3
"""The figures of Tessera that have a target, measured one after the other; started by benchmarks/run.sh.

Ratios are of programs that ran alternately. A file of results has the machine, as `tessera doctor --json` describes it, and a list of
figures: name, median, least, largest, target (none where none was set for this kind of processor), whether it was reached, and, of figures
that the load of the machine changes, the number of measurements that nothing disturbed and of all. Disturbed ones are left out if others remain
(training_steps.Bracketed says what disturbs). A program that fails is told, and the next figure is measured; the exit code is then 1.
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
    **{f"bfloat16 {shape} over PyTorch in float32": {"avx2": 1.0, "avx512": 1.0} for shape in ("4x64", "4x256", "1x1024")},
    "float32 small over PyTorch": {"": 3.0},
    "float32 4x256 over llm.c": {"avx512_bf16": 5.4, "amx": 11},
    "bfloat16 4x256 over llm.c": {"avx512_bf16": 10, "amx": 45},
    "float32 4x256 peak memory over PyTorch's": {"": 0.85},
    "bfloat16 8x1024 peak memory over PyTorch's": {"": 0.5},
    "bfloat16 4x256 over float32": {"avx512_bf16": 1.75, "amx": 3.8, "avx2": 0.9},
    "float32 4x64, FLOP rate over OpenBLAS's": {"avx512_bf16": 0.88, "amx": 0.75},
    "float32 4x256, FLOP rate over OpenBLAS's": {"avx512_bf16": 0.93, "amx": 0.88},
    "float32 1x1024, FLOP rate over OpenBLAS's": {"avx512_bf16": 0.92, "amx": 0.82},
    "float32 4x256, share of the multiply-add rate": {"avx512_bf16": 0.83, "amx": 0.69},
    "bfloat16 4x256, share of the bfloat16 rate": {"avx512_bf16": 0.78, "amx": 0.26},
    "float32 lora over PEFT": {"": 1.2},
    "float32 lora_attention over PEFT": {"": 1.2},
    "float32 qwen2_lora over PEFT": {"": 1.2},
    "float32 qwen2_lora peak memory over PEFT's": {"": 0.45},
    "LoRA of all linear layers over the whole model, GPT-2 1x512": {"": 1.36},
    "LoRA of attention over the whole model, GPT-2 1x512": {"": 1.42},
    "Llama shape's FLOP rate over GPT-2's": {"": 0.95},
    "B3 T200 of width 640, FLOP rate over GPT-2's": {"": 0.8},
    "float32 generate, share of the read bandwidth": {"": 0.7},
    "bfloat16 generate, share of the read bandwidth": {"": 0.7},
    "dp on 2 ranks over 1 process": {"avx512_bf16": 0.95, "amx": 0.88},
    "dp_bf16 on 2 ranks over 1 process": {"avx512_bf16": 0.92, "amx": 0.75},
    "dp_zero_bf16 on 2 ranks over 1 process": {"avx512_bf16": 0.94, "amx": 0.84},
    "seconds from start to the end of the first step, toy model": {"": 0.15},
}
AT_MOST = ("memory", "seconds")  # words in the names of figures that are better if less

# What is measured beside PyTorch; of LONG, whose steps take half a minute, one pair.
SHAPES = [*(("float32", shape) for shape in ("4x64", "4x256", "1x1024", "small", "llama")), *(("bfloat16", shape) for shape in ("4x64", "4x256", "1x1024"))]
LONG = [(dtype, shape) for shape in ("8x1024", "1x8192") for dtype in ("bfloat16", "float32")]
# A step over what the machine does before and after it: its rate in bench_limits, and the end of the figure's name.
MACHINE = [("sgemm", "FLOP rate over OpenBLAS's"), ("multiply_adds", "share of the multiply-add rate"), ("bfloat16_tile", "share of the bfloat16 rate")]
UNTUNED = training_steps.Shape({"model_config.hidden_size": 640, "model_config.num_attention_heads": 10, "dataset_config.batch_size": 3, "model_config.seq_length": 200}, [])
TOY = """
training_config: {training_iters: 1, output_dir: run, log_interval: 1, eval_iters: 0, tensorboard: false, save_interval: 0}
model_config: {num_layers: 2, hidden_size: 64, num_attention_heads: 2, seq_length: 32, max_position_embeddings: 32, vocab_size: 256}
optimizer_config: {optimizer_type: adamw}
dataset_config: {dataset_type: mock, batch_size: 1}
"""


class Suite:
    def __init__(self, args, machine, output, about):
        self.args, self.machine, self.output, self.about, self.figures, self.failed = args, machine, output, about, [], []
        self.steps = training_steps.Measure(args.build, args.python, args.threads, args.seconds, self.tell)
        sets = machine["instruction_sets"]
        self.kind = next(s for s in ("amx", "avx512_bf16", "avx512", "avx2", "portable") if s in sets)

    def tell(self, line):
        print(line, flush=True)

    def wanted(self, name):
        return not self.args.only or any(word in name for word in self.args.only)

    def add(self, name, values, unit="", clean=None):
        """`clean`: the number of undisturbed measurements and of all."""
        targets = TARGETS.get(name, {})
        target = targets.get(self.kind, targets.get(""))
        median = statistics.median(values)
        met = None if target is None else median <= target if any(word in name for word in AT_MOST) else median >= target
        self.figures.append({"name": name, "median": round(median, 4), "least": round(min(values), 4), "largest": round(max(values), 4), "unit": unit,
                             "target": target, "met": met, **({"clean": clean[0], "total": clean[1]} if clean else {})})
        spread = f" ({min(values):.3g} to {max(values):.3g})" if len(values) > 1 else ""
        disturbed = f"   {clean[0]} of {clean[1]} undisturbed" if clean and clean[0] < clean[1] else ""
        self.tell(f"{name:<58} {median:8.3g}{spread} {unit}" + ("" if met is None else f"   target {target}: {'met' if met else 'MISSED'}") + disturbed)
        self.write()

    def write(self):
        self.output.write_text(json.dumps({**self.about, "machine": self.machine, "figures": self.figures, "failed": self.failed}, indent=1) + "\n")

    def attempt(self, name, measure):
        """What measure() returns, or None if it fails, which is told."""
        try:
            return measure()
        except training_steps.Failed as error:
            self.failed.append(name)
            self.tell(f"{name}: FAILED: {error}")
            self.write()
            return None

    def brackets(self, name, measure, count):
        """The undisturbed ones of `count` results of measure(), and how many of how many these are; None if all fail."""
        results = [one for one in (self.attempt(name, measure) for _ in range(count)) if one]
        if not results:
            return None
        kept, clean = training_steps.undisturbed(results)
        for one in results:
            if one.disturbed():
                self.tell(f"  {name}: disturbed: {one.disturbed()}")
        return kept, (clean, len(results))

    def beside_machine(self, dtype, shape, kept, clean):
        """Our step over the rates of the machine in the same brackets."""
        for rate, words in MACHINE:
            name = f"{dtype} {shape}, {words}"
            if name in TARGETS and rate in kept[0].before:
                self.add(name, [one.result.flop_rate / one.rate(rate) for one in kept], clean=clean)

    def beside(self, peer, dtype, shape, measure, count):
        """A peer's step beside ours, and ours beside the machine."""
        name = f"{dtype} {shape} over {peer}"
        if not any(self.wanted(one) for one in (name, *(f"{dtype} {shape}, {words}" for _, words in MACHINE))):
            return
        if not (found := self.brackets(name, measure, count)):
            return
        kept, clean = found
        self.add(name, [one.result.speed for one in kept], clean=clean)
        self.add(f"{dtype} {shape} peak memory over {peer}'s", [one.result.memory for one in kept])
        if peer != "llm.c":
            self.add(f"{dtype} {shape}", [one.result.tokens_per_second["tessera"] for one in kept], "tokens/s", clean)
            self.beside_machine(dtype, shape, kept, clean)

    def alone(self):
        """What beside_torch tells without PyTorch."""
        for dtype, shape in SHAPES:
            names = [f"{dtype} {shape}, {words}" for _, words in MACHINE]
            if any(name in TARGETS and self.wanted(name) for name in names):
                if found := self.brackets(names[0], lambda: self.steps.alone(shape, dtype), self.args.pairs):
                    self.beside_machine(dtype, shape, *found)

    def beside_torch(self, shapes, count):
        """PyTorch's bfloat16 takes minutes for a step where the processor has no arithmetic for it; its float32 is the peer there."""
        for dtype, shape in shapes:
            other = dtype == "bfloat16" and self.kind not in ("avx512_bf16", "amx")
            self.beside("PyTorch in float32" if other else "PyTorch", dtype, shape,
                        lambda: self.steps.pair(shape, dtype, "float32" if other else dtype), count)

    def beside_peft(self):
        """LoRA beside PEFT, which trains Transformers' models."""
        shapes = [shape for shape in ("lora", "lora_attention", "qwen2_lora") if self.wanted(f"float32 {shape} over PEFT")]
        if shapes and not training_steps.imports(self.args.python, "peft"):
            self.tell(f"skipped: figures relative to PEFT, because {self.args.python} cannot import peft")
            return
        for shape in shapes:
            self.beside("PEFT", "float32", shape, lambda: self.steps.pair(shape, "float32"), self.args.pairs)

    def beside_llmc(self):
        """One pair each: a step of llm.c takes half a minute."""
        for dtype in ("float32", "bfloat16"):
            self.beside("llm.c", dtype, "4x256", lambda: self.steps.llmc_pair("4x256", dtype), 1)

    def own_ratios(self):
        """FLOP rates of other steps over that of GPT-2, B4 T256, which is measured in each round."""
        gpt2 = training_steps.gpt2(4, 256)
        others = {"bfloat16 4x256 over float32": (gpt2, "bfloat16"), "Llama shape's FLOP rate over GPT-2's": (training_steps.SHAPES["llama"], "float32"),
                  "B3 T200 of width 640, FLOP rate over GPT-2's": (UNTUNED, "float32")}
        others = {name: shape for name, shape in others.items() if self.wanted(name)}

        def one_round():
            programs = {"GPT-2": self.steps.ours(gpt2), **{name: self.steps.ours(*shape) for name, shape in others.items()}}
            rates = {name: found["model_flops"] / found["median_s"] for name, found in programs.items()}
            return {name: rate / rates["GPT-2"] for name, rate in rates.items()}, programs

        self.rounds(others, one_round)

    def adapters(self):
        """Steps with adapters beside the step that trains the whole model."""
        shapes = {f"{name} over the whole model, GPT-2 1x512": training_steps.SHAPES[shape]
                  for name, shape in (("LoRA of all linear layers", "lora"), ("LoRA of attention", "lora_attention"))}
        shapes = {name: shape for name, shape in shapes.items() if self.wanted(name)}

        def one_round():
            programs = {"whole": self.steps.ours(training_steps.SHAPES["full"]), **{name: self.steps.ours(shape) for name, shape in shapes.items()}}
            return {name: programs["whole"]["median_s"] / found["median_s"] for name, found in programs.items()}, programs

        self.rounds(shapes, one_round)

    def rounds(self, names, one_round):
        """Adds the figures `names` from the undisturbed results of one_round()."""
        found = self.brackets("; ".join(names), lambda: self.steps.bracketed(one_round), self.args.pairs) if names else None
        for name in names if found else ():
            self.add(name, [one.result[name] for one in found[0]], clean=found[1])

    def generation(self):
        for dtype in ("float32", "bfloat16"):
            names = [f"{dtype} generate, share of the read bandwidth", f"{dtype} prompt over the training step's forward pass"]
            if not any(map(self.wanted, names)):
                continue
            command = [self.args.build / "benchmarks/bench_generate", "--json", "--threads", self.args.threads, "--dtype", dtype]
            found = self.attempt(names[0], lambda: [training_steps.json_of(command, 300) for _ in range(self.args.pairs)])
            if not found:
                continue
            clean = [one for one in found if one["disturbed"] < 0.02]
            kept = clean or found
            self.add(names[0], [one["share_of_bandwidth"] for one in kept], clean=(len(clean), len(found)))
            self.add(names[1], [one["prompt_over_forward"] for one in kept], clean=(len(clean), len(found)))
            self.add(f"{dtype} generate", [one["tokens_per_second"] for one in kept], "tokens/s", (len(clean), len(found)))

    def ranks(self):
        for layout in ("dp", "dp_bf16", "dp_zero_bf16"):
            name = f"{layout} on 2 ranks over 1 process"
            if not self.wanted(name):
                continue

            def ratio():
                command = [sys.executable, HERE / "scaling.py", "--build", self.args.build, "--pairs", "1", "--layout", layout]
                try:
                    told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600).stdout
                    return float(re.search(r"ratio ([0-9.]+)", told).group(1)), {}
                except (OSError, subprocess.SubprocessError, AttributeError) as error:
                    raise training_steps.Failed(f"{error}: {getattr(error, 'stderr', '')}") from None

            if found := self.brackets(name, lambda: self.steps.bracketed(ratio), self.args.pairs):
                self.add(name, [one.result for one in found[0]], clean=found[1])

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
                    raise training_steps.Failed("the toy model did not train")
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
    parser.add_argument("--llmc", metavar="PATH", help="a checkout of llm.c, or the program that was built of llmc_step.c: measure it too")
    parser.add_argument("--no-long", action="store_true", help="leave out B8 T1024 and B1 T8192, whose steps take half a minute")
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
    with tempfile.TemporaryDirectory() as folder:
        measure(suite, args, folder)
    here = {name for name, targets in TARGETS.items() if suite.kind in targets or "" in targets}
    absent = here - {figure["name"] for figure in suite.figures}
    if absent:
        print("not measured: " + "; ".join(sorted(absent)))
    for name in suite.failed:
        print(f"failed: {name}")
    print(f"written: {output}")
    sys.exit(bool(suite.failed))


def measure(suite, args, folder):
    torch = training_steps.imports(args.python, "torch")
    if torch:
        suite.beside_torch(SHAPES, args.pairs)
        suite.beside_peft()
    else:
        suite.tell(f"skipped: figures relative to PyTorch, because {args.python} cannot import torch")
        suite.alone()
    if args.llmc:
        suite.steps.llmc = suite.attempt("llm.c", lambda: training_steps.llmc_program(args.llmc, folder))
    if suite.steps.llmc:
        suite.beside_llmc()
    suite.own_ratios()
    suite.adapters()
    suite.generation()
    suite.ranks()
    suite.attempt("start", suite.start)
    if torch and not args.no_long:
        suite.beside_torch(LONG, 1)


if __name__ == "__main__":
    main()
