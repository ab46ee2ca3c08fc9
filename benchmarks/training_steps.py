"""Training steps of Tessera (bench_train_step) and of PyTorch (torch_step.py), each in a process of its own. For against_torch.py and suite.py."""

import dataclasses
import json
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
QUICKSTART = HERE.parent / "configs" / "quickstart.yaml"


@dataclasses.dataclass
class Shape:
    """One model and batch, as options of a recipe and as arguments of torch_step.py."""
    options: dict
    peer: list
    recipe: pathlib.Path | None = None  # None: GPT-2 124M
    configurations: dict | None = None  # of the peer, by name; None: those of its type


def gpt2(samples, length):
    return Shape({"dataset_config.batch_size": samples, "model_config.seq_length": length}, ["--batch", samples, "--seq", length])


SHAPES = {
    # Two layers of width 128: what calls cost, not what products cost.
    "small": Shape({"model_config.num_layers": 2, "model_config.hidden_size": 128, "model_config.num_attention_heads": 2,
                    "model_config.vocab_size": 4096, "dataset_config.batch_size": 1, "model_config.seq_length": 64},
                   ["--layers", 2, "--hidden", 128, "--heads", 2, "--vocab", 4096, "--batch", 1, "--seq", 64]),
    # The model of configs/quickstart.yaml.
    "quickstart": Shape({"model_config.vocab_size": 4096},
                        ["--llama", "--layers", 4, "--hidden", 192, "--heads", 4, "--ffn", 512, "--vocab", 4096, "--batch", 8, "--seq", 256], QUICKSTART),
    # Four layers of eight SwiGLU experts, of which each token has two; beside Transformers' Mixtral in its fastest implementation.
    # batched_mm is not among them: it copies the weights of its experts for each token, here 29 GB a layer.
    "experts": Shape({"model_config.num_layers": 4, "model_config.seq_length": 256, "model_config.num_experts": 8, "model_config.position_embedding_type": "rope",
                      "model_config.normalization": "RMSNorm", "model_config.hidden_act": "swiglu", "model_config.add_bias_linear": "false",
                      "moe_config.moe_router_topk": 2, "moe_config.moe_ffn_hidden_size": 1536, "dataset_config.batch_size": 4},
                     ["--layers", 4, "--batch", 4, "--seq", 256, "--ffn", 1536, "--experts", 8, "--topk", 2],
                     configurations={name: ["--experts-implementation", name] for name in ("eager", "grouped_mm")}),
}
TYPES = {"float32": {}, "bfloat16": {"training_config.bf16": "true"}, "float16": {"training_config.fp16": "true"}}


def shape_of(name):
    return SHAPES[name] if name in SHAPES else gpt2(*name.split("x"))


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":")[1].strip()
    return "?"


def has_torch(python):
    return subprocess.run([python, "-c", "import torch"], capture_output=True).returncode == 0


def json_of(command):
    """The object in the last line of what a program prints."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stderr}")
    return json.loads(done.stdout.strip().splitlines()[-1])


@dataclasses.dataclass
class Pair:
    """A step of Tessera beside the same of PyTorch, in the faster of its configurations."""
    peer: str
    speed: float
    processor_speed: float  # by processor time of undisturbed steps
    memory: float           # our peak over theirs
    tokens_per_second: dict  # by program and configuration


class Measure:
    def __init__(self, build, python, threads, seconds):
        self.build, self.python = build, python
        self.common = ["--threads", threads, "--seconds", seconds]

    def ours(self, options, dtype="float32", recipe=None):
        """What bench_train_step prints, once the loss of its repeated batch has fallen."""
        words = [f"{key}={value}" for key, value in {**options, **TYPES[dtype]}.items()]
        found = json_of([self.build / "benchmarks/bench_train_step", "--json", *self.common, *([recipe] if recipe else []),
                         *(word for one in words for word in ("--set", one))])
        if not found["loss_last"] < found["loss_first"]:
            sys.exit(f"{options}: the loss did not fall: {found}")
        return found

    def theirs(self, shape, dtype):
        by_type = {"eager": [], "with oneDNN linears": ["--linear", "onednn"]} if dtype == "float32" else {"eager": [], "compiled": ["--compile"]}
        base = [self.python, HERE / "torch_step.py", *self.common, *shape.peer, "--dtype", dtype]
        return {name: json_of(base + words) for name, words in (shape.configurations or by_type).items()}

    def pair(self, name, dtype):
        shape = shape_of(name)
        mine, peers = self.ours(shape.options, dtype, shape.recipe), self.theirs(shape, dtype)
        least = lambda what: min(peer[what] for peer in peers.values())
        tokens = mine["batch"] * mine["seq"]
        return Pair(next(iter(peers.values()))["who"], least("median_s") / mine["median_s"], least("cpu_min_s") / mine["cpu_min_s"],
                    mine["peak_rss_mb"] / least("peak_rss_mb"),
                    {"tessera": tokens / mine["median_s"], **{name: tokens / peer["median_s"] for name, peer in peers.items()}})
