#!/usr/bin/env python3
"""What fraction of the speed of one process with all cores do several processes with one core each reach, at the same global batch size?

    benchmarks/scaling.py [--build DIR] [--pairs N] [--steps N] [--ranks N] [--global-batch N] [--layout NAME ...]

Trains GPT-2 124M on mock data (layouts of experts: 4 layers with 8 SwiGLU experts, top 2, forced balance; context parallelism: 2 layers
and one sequence of 8192 tokens; layouts that begin with long: 2 layers of width 128 and one of 32768): one process with N threads, then N ranks with one thread each, in alternation. Prints, for each
layout, the median over the pairs of (least step time of one process) / (least step time of the ranks): above 1 the ranks are faster.
The first two steps of each run are not counted. Only the ratios are meaningful; the machine and its load are printed. The memory is
counted, not measured, and the largest relative difference of the losses of both runs does not depend on the load either.
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

LAYOUTS = {
    "dp": {},
    "dp_zero": {"training_config.use_distributed_optimizer": "true"},
    "dp_bf16": {"training_config.bf16": "true"},
    "dp_zero_bf16": {"training_config.bf16": "true", "training_config.use_distributed_optimizer": "true"},
    "tp": {"parallel_config.tensor_model_parallel_size": "N"},
    "tp_sp": {"parallel_config.tensor_model_parallel_size": "N", "parallel_config.sequence_parallel": "true"},
    "pp": {"parallel_config.pipeline_model_parallel_size": "N"},
    "ep": {"parallel_config.expert_model_parallel_size": "N"},
    "ep_zero_bf16": {"training_config.bf16": "true", "training_config.use_distributed_optimizer": "true",
                     "parallel_config.expert_model_parallel_size": "N"},
    **{f"cp_{algorithm}": {"parallel_config.context_parallel_size": "N", "parallel_config.cp_comm_type": algorithm}
       for algorithm in ("p2p", "all_gather", "a2a")},
    **{f"cp_{algorithm}_bf16": {"training_config.bf16": "true", "parallel_config.context_parallel_size": "N",
                                "parallel_config.cp_comm_type": algorithm} for algorithm in ("p2p", "all_gather", "a2a")},
    "long_cp_p2p": {"parallel_config.context_parallel_size": "N", "parallel_config.cp_comm_type": "p2p"},
}
# Options of both runs, by the beginning of the layout's name.
MODELS = {
    "ep": {"model_config.num_layers": 4, "model_config.hidden_act": "swiglu", "model_config.add_bias_linear": "false",
           "model_config.num_experts": 8, "moe_config.moe_router_topk": 2, "moe_config.moe_ffn_hidden_size": 1536,
           "moe_config.moe_router_force_load_balancing": "true"},
    "cp": {"model_config.num_layers": 2, "model_config.vocab_size": 4096, "model_config.seq_length": 8192, "model_config.max_position_embeddings": 8192},
    "lo": {"model_config.num_layers": 2, "model_config.hidden_size": 128, "model_config.num_attention_heads": 2, "model_config.vocab_size": 4096,
           "model_config.seq_length": 32768, "model_config.max_position_embeddings": 32768},
}
RECIPE = """
training_config: {{training_iters: {steps}, output_dir: run, log_interval: 1, eval_interval: 1000, eval_iters: 0, tensorboard: false,
                  keep_checkpoint_max: 1}}
model_config: {{num_layers: 12, hidden_size: 768, num_attention_heads: 12, seq_length: 256, max_position_embeddings: 1024,
               vocab_size: 50304, hidden_dropout_rate: 0, attention_dropout_rate: 0}}
optimizer_config: {{optimizer_type: adamw, learning_rate: 1e-4}}
dataset_config: {{dataset_type: mock, batch_size: {batch}, global_batch_size: {globally}}}
"""


def machine():
    words = pathlib.Path("/proc/cpuinfo").read_text()
    name = re.search(r"model name\s*: (.*)", words)
    sets = [s for s in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if f" {s}" in words]
    return f"{name.group(1) if name else '?'}, {os.cpu_count()} cores, {' '.join(sets)}, load {os.getloadavg()[0]:.1f}"


def run(words, folder, steps):
    """The minimum time of a step after the first two, the memory of the first rank in bytes, and the losses."""
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    lines = [json.loads(line) for line in (folder / "run/metrics.jsonl").read_text().splitlines()]
    timed = [line for line in lines if "step_seconds" in line][2:]
    return min(line["step_seconds"] for line in timed), timed[-1]["memory_bytes"], [line["loss"] for line in lines if "loss" in line]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build/release"))
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--global-batch", type=int, default=4)
    parser.add_argument("--layout", nargs="+", choices=LAYOUTS, default=list(LAYOUTS))
    o = parser.parse_args()
    tessera, tsrun = (str((o.build / "framework" / name).resolve()) for name in ("tessera", "tsrun"))
    print(machine())
    for name in o.layout:
        options = {key: value.replace("N", str(o.ranks)) for key, value in LAYOUTS[name].items()}
        model = [f"--set={key}={value}" for key, value in MODELS.get(name[:2], {}).items()]
        replicas = 1 if name[:2] in ("tp", "pp", "cp", "lo") else o.ranks
        globally = 1 if name[:2] in ("cp", "lo") else o.global_batch
        batch = 1 if name == "pp" else globally // replicas
        ratios, memory, memory_alone, apart = [], 0, 0, 0
        for _ in range(o.pairs):
            with tempfile.TemporaryDirectory() as temporary:
                alone, together = pathlib.Path(temporary, "alone"), pathlib.Path(temporary, "together")
                for folder in (alone, together):
                    folder.mkdir()
                (alone / "r.yaml").write_text(RECIPE.format(steps=o.steps, batch=globally, globally=globally))
                (together / "r.yaml").write_text(RECIPE.format(steps=o.steps, batch=batch, globally=globally))
                both = model + [f"--set={k}={v}" for k, v in options.items() if k.endswith("bf16")]
                one, memory_alone, losses = run([tessera, "train", "r.yaml", f"--set=training_config.num_threads={o.ranks}", *both], alone, o.steps)
                sets = model + [f"--set={key}={value}" for key, value in options.items()]
                many, memory, together_losses = run([tsrun, "--nproc_per_node", str(o.ranks), "--log_dir", "log", tessera, "train", "r.yaml",
                                    "--set=training_config.num_threads=1", *sets], together, o.steps)
                ratios.append(one / many)
                apart = max(apart, *(abs(a - b) / a for a, b in zip(losses, together_losses, strict=True)))
                print(f"  {name}: {one:.2f} s alone, {many:.2f} s on {o.ranks} ranks, ratio {one / many:.3f}", flush=True)
        print(f"{name}: {statistics.median(ratios):.3f} of one process with {o.ranks} threads, "
              f"{memory / 1e9:.3f} GB of state and activations on the first rank, {memory_alone / 1e9:.3f} GB alone, "
              f"losses differ by {apart:.1e}", flush=True)


if __name__ == "__main__":
    main()
