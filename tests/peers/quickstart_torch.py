#!/usr/bin/env python3
"""The quickstart's model in PyTorch and in Tessera: the same recipe, initial weights and batches, step by step.

    TESSERA_QUICKSTART=quickstart tests/peers/quickstart_torch.py --tessera build/release/framework/tessera --output compared

Trains configs/quickstart.yaml for --steps steps in each --precision with both programs, writes losses.csv and losses.svg, and prints
how far the losses are apart. What is there already is not trained again. Needs torch, numpy, safetensors, PyYAML.
"""
import argparse
import csv
import json
import math
import os
import re
import subprocess
from pathlib import Path

import numpy as np
import torch
import yaml
from safetensors.torch import load_file
from torch.nn import functional as F

REPOSITORY = Path(__file__).resolve().parents[2]


def options_of(recipe):
    """All groups of the recipe in one dictionary, with the environment's folders put in."""
    words = re.sub(r"\$\{(\w+):-([^}]*)\}", lambda m: os.environ.get(m[1], m[2]), recipe.read_text())
    number = lambda value: float(value) if isinstance(value, str) and re.fullmatch(r"[\d.]+e-?\d+", value) else value  # YAML 1.1: text
    return {key: number(value) for group in yaml.safe_load(words).values() for key, value in group.items()}


def tokens_and_bounds(prefix):
    """A .bin as one array, and where each sequence in it begins and ends, from the .idx."""
    index = Path(prefix + ".idx").read_bytes()
    assert index[:9] == b"MMIDIDX\x00\x00" and index[9] == 1
    kind = {4: np.int32, 8: np.uint16}[index[17]]
    sequences = int(np.frombuffer(index, np.int64, 1, 18)[0])
    lengths = np.frombuffer(index, np.int32, sequences, 34)
    return np.fromfile(prefix + ".bin", kind), np.concatenate([[0], np.cumsum(lengths)])


class Batches:
    """Samples in the order of Megatron-LM's GPTDataset, for a run that needs less than one pass over the data."""

    def __init__(self, prefix, length, seed):
        self.length = length
        tokens, bounds = tokens_and_bounds(prefix)
        random = np.random.RandomState(seed)
        sequences = np.arange(len(bounds) - 1, dtype=np.int32)
        random.shuffle(sequences)
        self.stream = np.concatenate([tokens[bounds[s] : bounds[s + 1]] for s in sequences]).astype(np.int64)
        self.order = np.arange((len(self.stream) - 1) // length, dtype=np.uint32)
        random.shuffle(self.order)

    def at(self, consumed, size):
        assert consumed + size <= len(self.order), "more than one pass over the data"
        rows = [self.stream[int(s) * self.length :][: self.length + 1] for s in self.order[consumed : consumed + size]]
        rows = torch.from_numpy(np.stack(rows))
        return rows[:, :-1], rows[:, 1:]


def rms_norm(x, gain):
    wide = x.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5) * gain.float()).to(x.dtype)


def turned(x, cosine, sine):
    """Rotary positions: channel i of a head turns together with channel i + half."""
    a, b = x.float().chunk(2, -1)
    return torch.cat([a * cosine - b * sine, b * cosine + a * sine], -1).to(x.dtype)


def logits_of(weights, tokens, o):
    heads, channels = o["num_attention_heads"], o["hidden_size"] // o["num_attention_heads"]
    angles = torch.arange(tokens.shape[1])[:, None] * 10000.0 ** (-torch.arange(0, channels, 2) / channels)
    cosine, sine = angles.cos(), angles.sin()
    split = lambda y: y.view(*tokens.shape, heads, channels).transpose(1, 2)
    x = F.embedding(tokens, weights["model.embed_tokens.weight"])
    for layer in range(o["num_layers"]):
        w = lambda name: weights[f"model.layers.{layer}.{name}.weight"]
        y = rms_norm(x, w("input_layernorm"))
        q, k, v = (split(F.linear(y, w(f"self_attn.{part}_proj"))) for part in "qkv")
        y = F.scaled_dot_product_attention(turned(q, cosine, sine), turned(k, cosine, sine), v, is_causal=True)
        x = x + F.linear(y.transpose(1, 2).reshape(x.shape), w("self_attn.o_proj"))
        y = rms_norm(x, w("post_attention_layernorm"))
        x = x + F.linear(F.silu(F.linear(y, w("mlp.gate_proj"))) * F.linear(y, w("mlp.up_proj")), w("mlp.down_proj"))
    return F.linear(rms_norm(x, weights["model.norm.weight"]), weights["model.embed_tokens.weight"])


def learning_rate(step, steps, o):
    """In step 0, 1, ...: a line up, then half a cosine down."""
    warm = o["lr_warmup_fraction"] * steps
    if step <= warm:
        return o["learning_rate"] * step / warm
    share = (step - warm) / (steps - warm)
    return o["min_lr"] + (o["learning_rate"] - o["min_lr"]) * 0.5 * (1 + math.cos(math.pi * share))


def train_in_torch(initial, o, steps, precision):
    """fp32 weights of record; with bf16 every product, norm and activation reads and gives bf16."""
    masters = {name: tensor.float().clone().requires_grad_() for name, tensor in load_file(initial).items()}
    decayed = [p for p in masters.values() if p.dim() > 1]
    rest = [p for p in masters.values() if p.dim() == 1]
    groups = [{"params": decayed, "weight_decay": o["weight_decay"]}, {"params": rest, "weight_decay": 0.0}]
    adam = torch.optim.AdamW(groups, lr=0.0, betas=tuple(o["betas"]), eps=1e-8)
    kind = torch.bfloat16 if precision == "bf16" else torch.float32
    batches = Batches(o["train_data_path"], o["seq_length"], o.get("seed", 1234))
    rows = []
    for step in range(steps):
        tokens, labels = batches.at(step * o["batch_size"], o["batch_size"])
        logits = logits_of({name: p.to(kind) for name, p in masters.items()}, tokens, o).float()
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
        adam.zero_grad()
        loss.backward()
        # In double: torch's own norm of a large tensor is off by some 2e-5.
        norm = math.sqrt(sum(p.grad.double().square().sum().item() for p in masters.values()))
        for p in masters.values():
            p.grad.mul_(min(1.0, o["clip_grad"] / (norm + 1e-6)))
        for group in adam.param_groups:
            group["lr"] = learning_rate(step, steps, o)
        adam.step()
        rows.append({"iteration": step + 1, "loss": loss.item(), "grad_norm": norm, "learning_rate": group["lr"]})
        if step % 20 == 0:
            print(f"torch {precision} step {step + 1} loss {loss.item():.4f}", flush=True)
    return rows


class Tessera:
    def __init__(self, program, recipe, steps, threads):
        self.program, self.recipe = program, recipe
        self.sets = {"training_iters": steps, "log_interval": 1, "eval_iters": 0, "save_interval": "null", "tensorboard": "false",
                     "num_threads": threads}

    def train(self, folder, **more):
        sets = {**self.sets, "output_dir": folder, **more}
        words = [word for key, value in sets.items() for word in ("--set", f"training_config.{key}={value}")]
        subprocess.run([self.program, "train", self.recipe, *words], check=True, stdout=subprocess.DEVNULL)
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        return [line for line in lines if "loss" in line]

    def initial_weights(self, output):
        """The first step has learning rate 0: what is saved after it are the initial weights."""
        if not (output / "initial").exists():
            self.train(output / "start", exit_interval=1)
            subprocess.run([self.program, "checkpoint", "convert", "--from", "tessera", "--to", "hf", output / "start",
                            output / "initial"], check=True)
        return output / "initial" / "model.safetensors"


def plot(rows, file):
    """The losses of both programs, one over the other, and below how far they are apart."""
    wide, high, left = 760, 460, 60
    steps = max(len(column) for column in rows.values())
    x = lambda i: left + (wide - left - 10) * i / (steps - 1)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" font-family="sans-serif" font-size="12">',
             f'<rect width="{wide}" height="{high}" fill="white"/>']
    text = lambda x, y, words, colour="black": parts.append(f'<text x="{x}" y="{y}" fill="{colour}">{words}</text>')
    line = lambda points, colour, more="": parts.append(
        f'<polyline fill="none" stroke="{colour}" {more} points="{" ".join(f"{a:.1f},{b:.1f}" for a, b in points)}"/>')
    colours = {"fp32": "#1f77b4", "bf16": "#d62728"}
    low, top = min(min(c) for c in rows.values()), max(max(c) for c in rows.values())
    y = lambda loss: 20 + 250 * (top - loss) / (top - low)
    # Powers of ten from 1e-8 to 1.
    z = lambda apart: 300 + 120 * min(1, -math.log10(max(apart, 1e-8)) / 8)
    text(4, 24, f"{top:.1f}"), text(4, 272, f"{low:.1f}"), text(4, 14, "loss")
    for power in (0, 2, 4, 6, 8):
        line([(left, z(10.0**-power)), (wide - 10, z(10.0**-power))], "#dddddd")
        text(4, z(10.0**-power) + 4, f"1e-{power}")
    text(left, 296, "|PyTorch - Tessera|"), text(left, high - 8, "step 1"), text(wide - 70, high - 8, f"step {steps}")
    for place, (name, colour) in enumerate(colours.items()):
        if f"tessera {name}" not in rows:
            continue
        ours, theirs = rows[f"tessera {name}"], rows[f"torch {name}"]
        line([(x(i), y(v)) for i, v in enumerate(ours)], colour, 'stroke-width="3" stroke-opacity="0.35"')
        line([(x(i), y(v)) for i, v in enumerate(theirs)], colour, 'stroke-width="1"')
        line([(x(i), z(abs(a - b))) for i, (a, b) in enumerate(zip(ours, theirs))], colour)
        text(wide - 260, 34 + 16 * place, f"{name}: Tessera wide, PyTorch thin", colour)
    file.write_text("\n".join([*parts, "</svg>", ""]))


def compare(precision, ours, theirs):
    apart = [abs(a["loss"] - b["loss"]) for a, b in zip(ours, theirs)]
    norms = [abs(a["grad_norm"] - b["grad_norm"]) / b["grad_norm"] for a, b in zip(ours, theirs)]
    rates = max(abs(a["learning_rate"] - b["learning_rate"]) for a, b in zip(ours, theirs))
    print(f"{precision}: {len(apart)} steps, last loss {theirs[-1]['loss']:.6f} (torch) {ours[-1]['loss']:.6f} (tessera); "
          f"losses apart {max(apart):.2e} at most, {sum(apart) / len(apart):.2e} in the mean, {apart[0]:.2e} in the first step; "
          f"norms {max(norms):.2e} of themselves at most; learning rates {rates:.0e}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tessera", default=REPOSITORY / "build/release/framework/tessera", type=Path)
    parser.add_argument("--recipe", default=REPOSITORY / "configs/quickstart.yaml", type=Path)
    parser.add_argument("--output", default="compared", type=Path)
    parser.add_argument("--steps", default=200, type=int)
    parser.add_argument("--threads", default=os.cpu_count(), type=int)
    parser.add_argument("--precision", default="fp32,bf16")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    given.output.mkdir(parents=True, exist_ok=True)
    options = options_of(given.recipe)
    tessera = Tessera(given.tessera.resolve(), given.recipe.resolve(), given.steps, given.threads)
    initial = tessera.initial_weights(given.output)
    columns = {}
    for precision in given.precision.split(","):
        ours = tessera.train(given.output / precision, **({"bf16": "true"} if precision == "bf16" else {}))
        kept = given.output / f"torch.{precision}.json"
        if not kept.exists():
            kept.write_text(json.dumps(train_in_torch(initial, options, given.steps, precision)))
        theirs = json.loads(kept.read_text())
        compare(precision, ours, theirs)
        columns[f"tessera {precision}"] = [row["loss"] for row in ours]
        columns[f"torch {precision}"] = [row["loss"] for row in theirs]
    with open(given.output / "losses.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["step", *columns])
        writer.writerows([i + 1, *row] for i, row in enumerate(zip(*columns.values())))
    plot(columns, given.output / "losses.svg")
    print(given.output / "losses.csv", given.output / "losses.svg")


if __name__ == "__main__":
    main()
