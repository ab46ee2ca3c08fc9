"""Training steps of Tessera (bench_train_step), of PyTorch (torch_step.py) and of llm.c (llmc_step.c), each in a process of its own, between
measurements of the machine (bench_limits). For against_torch.py and suite.py."""

import dataclasses
import json
import os
import pathlib
import subprocess
import time

HERE = pathlib.Path(__file__).resolve().parent
QUICKSTART = HERE.parent / "configs" / "quickstart.yaml"
SAME = 0.08  # Largest relative difference of the machine's rates before and after a pair that counts as undisturbed.


class Failed(Exception):
    """A program that was to be measured failed, or took too long."""


@dataclasses.dataclass
class Shape:
    """One model and batch, as options of a recipe and as arguments of torch_step.py."""
    options: dict
    peer: list
    recipe: pathlib.Path | None = None  # None: GPT-2 124M
    configurations: dict | None = None  # of the peer, by name; None: those of its type
    long: bool = False  # a step takes half a minute: one step is warm-up, at least one is measured, and the peer runs in one configuration


def gpt2(samples, length):
    samples, length = int(samples), int(length)
    longer = {"model_config.max_position_embeddings": length} if length > 1024 else {}
    return Shape({"dataset_config.batch_size": samples, "model_config.seq_length": length, **longer},
                 ["--batch", samples, "--seq", length, "--positions", max(length, 1024)], long=samples * length > 4096)


QWEN2 = {"model_config.num_layers": 24, "model_config.hidden_size": 896, "model_config.ffn_hidden_size": 4864, "model_config.num_attention_heads": 14,
         "model_config.num_query_groups": 2, "model_config.vocab_size": 151936, "model_config.normalization": "RMSNorm",
         "model_config.hidden_act": "swiglu", "model_config.add_bias_linear": "false", "model_config.add_qkv_bias": "true",
         "model_config.position_embedding_type": "rope", "dataset_config.batch_size": 1, "model_config.seq_length": 512}
PEFT_QWEN2 = ["--model", "qwen2", "--layers", 24, "--hidden", 896, "--ffn", 4864, "--heads", 14, "--groups", 2, "--vocab", 151936, "--batch", 1, "--seq", 512]


def lora(targets):
    return {"lora_config.use_lora": "true", "lora_config.lora_rank": 16, "lora_config.target_modules": targets}


def fine_tuned(model, peer, targets=None, theirs=None):
    """Transformers' model, all of it trained or LoRA of PEFT."""
    return Shape({**model, **(lora(targets) if targets else {})}, [*peer, *(["--peft", theirs] if theirs else [])], configurations={"eager": []})


GPT2_512 = {"dataset_config.batch_size": 1, "model_config.seq_length": 512}
PEFT_GPT2 = ["--model", "gpt2", "--batch", 1, "--seq", 512]

SHAPES = {
    # Two layers of width 128: what calls cost, not what products cost.
    "small": Shape({"model_config.num_layers": 2, "model_config.hidden_size": 128, "model_config.num_attention_heads": 2,
                    "model_config.vocab_size": 4096, "dataset_config.batch_size": 1, "model_config.seq_length": 64},
                   ["--layers", 2, "--hidden", 128, "--heads", 2, "--vocab", 4096, "--batch", 1, "--seq", 64]),
    # Of GPT-2's width and depth: RMSNorm, rotary embedding, grouped heads, SwiGLU.
    "llama": Shape({"model_config.normalization": "RMSNorm", "model_config.hidden_act": "swiglu", "model_config.add_bias_linear": "false",
                    "model_config.position_embedding_type": "rope", "model_config.ffn_hidden_size": 2048, "model_config.num_query_groups": 4,
                    "dataset_config.batch_size": 4, "model_config.seq_length": 256},
                   ["--llama", "--groups", 4, "--ffn", 2048, "--batch", 4, "--seq", 256]),
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
    # GPT-2 124M and the shape of Qwen2.5-0.5B, B1 T512: trained whole, and with LoRA of rank 16.
    "full": fine_tuned(GPT2_512, PEFT_GPT2),
    "lora": fine_tuned(GPT2_512, PEFT_GPT2, "all-linear", "all-linear"),
    "lora_attention": fine_tuned(GPT2_512, PEFT_GPT2, "[linear_qkv]", "attention"),
    "qwen2_full": fine_tuned(QWEN2, PEFT_QWEN2),
    "qwen2_lora": fine_tuned(QWEN2, PEFT_QWEN2, "all-linear", "all-linear"),
    "qwen2_lora_attention": fine_tuned(QWEN2, PEFT_QWEN2, "[q_proj, v_proj]", "attention"),
}
TYPES = {"float32": {}, "bfloat16": {"training_config.bf16": "true"}, "float16": {"training_config.fp16": "true"}}


def shape_of(name):
    return SHAPES[name] if name in SHAPES else gpt2(*name.split("x"))


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":")[1].strip()
    return "?"


def imports(python, package):
    try:
        return subprocess.run([python, "-c", f"import {package}"], capture_output=True).returncode == 0
    except OSError:
        return False


def json_of(command, longest=None, environment=None):
    """The object in the last line of what a program prints. Throws Failed."""
    words = [str(word) for word in command]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=longest, env=environment)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failed(str(error)) from None
    if done.returncode != 0:
        raise Failed(f"{' '.join(words)}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    try:
        return json.loads(done.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        raise Failed(f"{' '.join(words)}: its last line is not JSON: {done.stdout[-200:]}") from None


@dataclasses.dataclass
class Bracketed:
    """What a piece of work gave, and the machine's rates before and after it, by name."""
    result: object
    before: dict
    after: dict
    busy: list = dataclasses.field(default_factory=list)  # programs that other programs disturbed in most of their steps

    def rate(self, name):
        return (self.before[name] + self.after[name]) / 2

    def disturbed(self):
        """Why the figures say little: what others did meanwhile; empty: nothing."""
        apart = [f"{name} {self.before[name]:.3g}/s before, {self.after[name]:.3g}/s after" for name in self.before
                 if abs(self.before[name] - self.after[name]) > SAME * max(self.before[name], self.after[name])]
        return "; ".join(apart + [f"other programs ran during the steps of {name}" for name in self.busy])


def undisturbed(all_of):
    """Those that nothing disturbed and their number; all of them if there is none."""
    kept = [one for one in all_of if not one.disturbed()]
    return kept or all_of, len(kept)


@dataclasses.dataclass
class Pair:
    """A step of Tessera beside the same of a peer, in the faster of its configurations."""
    peer: str
    speed: float
    processor_speed: float  # by processor time of undisturbed steps
    memory: float           # our peak over theirs
    flop_rate: float        # of our step: operations of the model per second
    tokens_per_second: dict  # by program and configuration


@dataclasses.dataclass
class Alone:
    """A step of Tessera."""
    flop_rate: float


def is_busy(found):
    return found["clean"] < min(3, found["steps"])


class Measure:
    """`llmc`: a program built of llmc_step.c, or None."""

    def __init__(self, build, python, threads, seconds, tell=print, llmc=None):
        self.build, self.python, self.threads, self.seconds, self.tell, self.llmc = build, python, threads, seconds, tell, llmc
        self.known = {}  # What the first pair of a shape and type told: configurations not to be measured again, least peak memory.
        self.latest = (0.0, {})

    def limits(self):
        """The machine's rates at this moment; those of a moment ago are not measured again."""
        if time.monotonic() - self.latest[0] > 3:
            found = json_of([self.build / "benchmarks/bench_limits", "--json", "--threads", self.threads], 120)
            self.latest = (0.0, {name: rate for name, rate in found.items() if rate > 0})
        self.latest = (time.monotonic(), self.latest[1])
        return self.latest[1]

    def bracketed(self, work):
        """work() returns its result and the programs it ran, by name."""
        before = self.limits()
        self.latest = (0.0, {})
        result, programs = work()
        return Bracketed(result, before, self.limits(), [name for name, found in programs.items() if is_busy(found)])

    def length(self, shape):
        return ["--threads", self.threads, "--seconds", self.seconds, *(["--warm-up", 1, "--least", 1] if shape.long else [])]

    def longest(self):
        """Seconds after which a program is given up: a step of bfloat16 can take minutes where the processor lacks the arithmetic."""
        return max(600, 20 * self.seconds)

    def ours(self, shape, dtype="float32"):
        """What bench_train_step prints, once the loss of its repeated batch has fallen."""
        words = [f"{key}={value}" for key, value in {**shape.options, **TYPES[dtype]}.items()]
        found = json_of([self.build / "benchmarks/bench_train_step", "--json", *self.length(shape), *([shape.recipe] if shape.recipe else []),
                         *(word for one in words for word in ("--set", one))], self.longest())
        if not found["loss_last"] < found["loss_first"]:
            raise Failed(f"{shape.options}: the loss did not fall: {found}")
        return found

    def theirs(self, shape, dtype):
        """What torch_step.py prints, by configuration, and the least peak memory. A configuration that fails is told and left out; one much slower than another is not measured again."""
        by_type = {"eager": [], "with oneDNN linears": ["--linear", "onednn"]} if dtype == "float32" else {"eager": [], "compiled": ["--compile"]}
        configurations = shape.configurations or by_type
        if shape.long:
            configurations = dict(list(configurations.items())[:1])
        known = self.known.setdefault((*map(str, shape.peer), dtype), {"slow": set(), "peak_rss_mb": float("inf")})
        found = {}
        for name, words in configurations.items():
            if name in known["slow"]:
                continue
            try:
                found[name] = json_of([self.python, HERE / "torch_step.py", *self.length(shape), *shape.peer, "--dtype", dtype, *words], self.longest())
            except Failed as error:
                self.tell(f"PyTorch, {name}: failed: {error}")
                known["slow"].add(name)
        if not found:
            raise Failed("no configuration of PyTorch could be measured")
        best = min(one["median_s"] for one in found.values())
        known["slow"].update(name for name, one in found.items() if one["median_s"] > 1.05 * best)
        known["peak_rss_mb"] = min(known["peak_rss_mb"], *(one["peak_rss_mb"] for one in found.values()))
        return found, known["peak_rss_mb"]

    def beside(self, peers, memory, mine):
        """The Pair and all programs. `memory`: the least peak of the peer, in MB."""
        least = lambda what: min(peer[what] for peer in peers.values())
        tokens = mine["batch"] * mine["seq"]
        pair = Pair(next(iter(peers.values()))["who"], least("median_s") / mine["median_s"], least("cpu_min_s") / mine["cpu_min_s"],
                    mine["peak_rss_mb"] / memory, mine["model_flops"] / mine["median_s"],
                    {"tessera": tokens / mine["median_s"], **{name: tokens / peer["median_s"] for name, peer in peers.items()}})
        return pair, {"Tessera": mine, **peers}

    def pair(self, name, dtype, peer_dtype=None):
        """A Pair with PyTorch in the same or in another type, bracketed."""
        shape = shape_of(name)
        return self.bracketed(lambda: self.beside(*self.theirs(shape, peer_dtype or dtype), self.ours(shape, dtype)))

    def alone(self, name, dtype):
        """Alone, bracketed."""

        def work():
            mine = self.ours(shape_of(name), dtype)
            return Alone(mine["model_flops"] / mine["median_s"]), {"Tessera": mine}

        return self.bracketed(work)

    def llmc_pair(self, name, dtype):
        """A Pair with llm.c, which computes in fp32, bracketed."""
        shape = shape_of(name)
        samples, length = name.split("x")

        def work():
            peer = json_of([self.llmc, samples, length, self.seconds], self.longest(), {**os.environ, "OMP_NUM_THREADS": str(self.threads)})
            return self.beside({"llm.c": peer}, peer["peak_rss_mb"], self.ours(shape, dtype))

        return self.bracketed(work)


def llmc_program(where, folder):
    """The program of llmc_step.c: `where` itself, or built in `folder` if `where` is a checkout of llm.c. Throws Failed."""
    where, folder = pathlib.Path(where).resolve(), pathlib.Path(folder)
    if not where.is_dir():
        if not where.is_file():
            raise Failed(f"{where} is neither a checkout of llm.c nor a program")
        return where
    if not (where / "train_gpt2.c").is_file():
        raise Failed(f"{where} has no train_gpt2.c, so it is no checkout of llm.c")
    built = folder / "llmc_step"
    done = subprocess.run(["gcc", "-Ofast", "-march=native", "-fopenmp", "-DOMP", "-DTESTING", "-w", f"-I{where}", str(HERE / "llmc_step.c"), "-o",
                           str(built), "-lm"], capture_output=True, text=True)
    if done.returncode != 0:
        raise Failed(f"llm.c does not compile: {done.stderr[-2000:]}")
    return built
