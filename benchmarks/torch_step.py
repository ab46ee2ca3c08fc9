"""One training step of a GPT in PyTorch, for comparison: forward, loss, backward, gradient clipping, AdamW. Prints one line of JSON.

PyTorch gets its best configuration: flash attention, fused AdamW, flush-to-zero, an allocator that keeps its memory and uses huge
pages, and optionally the linear layers through oneDNN or the whole step through torch.compile.
"""
import argparse
import json
import os
import sys
import time

parser = argparse.ArgumentParser(description=__doc__)
for name, default in [("layers", 12), ("hidden", 768), ("heads", 12), ("vocab", 50304), ("positions", 1024), ("batch", 4),
                      ("seq", 256), ("threads", 2), ("ffn", 0), ("groups", 0), ("warm-up", 2), ("least", 3)]:
    parser.add_argument("--" + name, type=int, default=default)
parser.add_argument("--llama", action="store_true", help="RMSNorm, rotary embedding, SwiGLU, no biases; default: GPT-2")
parser.add_argument("--experts", type=int, default=0,
                    help="Transformers' Mixtral with so many experts of inner width --ffn and as many key heads as query heads")
parser.add_argument("--topk", type=int, default=2)
parser.add_argument("--experts-implementation", choices=["eager", "batched_mm", "grouped_mm"], default="eager")
parser.add_argument("--model", choices=["gpt2", "qwen2"], help="Transformers' GPT-2 or Qwen2 instead of the models written here; with --peft")
parser.add_argument("--peft", choices=["all-linear", "attention"],
                    help="train LoRA of PEFT, rank 16, alpha 32: in all linear layers, or in the query and value projections (GPT-2: its fused one)")
parser.add_argument("--linear", choices=["default", "onednn"], default="default")
parser.add_argument("--compile", action="store_true")
parser.add_argument("--dtype", choices=["float32", "bfloat16", "float16"], default="float32",
                    help="16 bits: autocast of the forward pass, fp32 weights")
parser.add_argument("--seconds", type=float, default=20)
args = parser.parse_args()

if "TORCH_STEP_MEMORY" not in os.environ:  # glibc reads its settings before Python runs
    os.environ["TORCH_STEP_MEMORY"] = "1"
    os.environ["GLIBC_TUNABLES"] = ":".join("glibc.malloc." + setting for setting in [
        "hugetlb=1", "mmap_max=0", "trim_threshold=68719476736", "top_pad=268435456", "arena_max=1"])
    os.environ["OMP_NUM_THREADS"] = str(args.threads)
    os.execv(sys.executable, [sys.executable] + sys.argv)

import torch
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(args.threads)
torch.set_flush_denormal(True)
torch.manual_seed(1)
C, H = args.hidden, args.heads
D = C // H
G = args.groups or H  # key and value heads


class OneDnn(torch.autograd.Function):
    """x w^T + b through oneDNN in fp32; PyTorch would call MKL."""

    @staticmethod
    def forward(ctx, x, w, b):
        rows = x.reshape(-1, x.shape[-1])
        ctx.save_for_backward(rows, w)
        ctx.has_bias = b is not None
        return torch.ops.mkldnn._linear_pointwise(rows, w, b, "none", [], "").view(*x.shape[:-1], w.shape[0])

    @staticmethod
    def backward(ctx, dy):
        rows, w = ctx.saved_tensors
        d = dy.reshape(-1, dy.shape[-1])
        product = lambda a, b: torch.ops.mkldnn._linear_pointwise(a, b, None, "none", [], "")
        return product(d, w.t()).view(*dy.shape[:-1], w.shape[1]), product(d.t(), rows.t()), d.sum(0) if ctx.has_bias else None


class Linear(nn.Linear):
    def forward(self, x):
        return OneDnn.apply(x, self.weight, self.bias) if args.linear == "onednn" else super().forward(x)


def rotate(x, cosine, sine):
    a, b = x.chunk(2, -1)
    return x * cosine + torch.cat((-b, a), -1) * sine


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        bias = not args.llama
        norm = nn.RMSNorm if args.llama else nn.LayerNorm
        ffn = args.ffn or 4 * C
        self.norm1, self.norm2 = norm(C, eps=1e-5), norm(C, eps=1e-5)
        self.qkv, self.proj = Linear(C, C + 2 * G * D, bias), Linear(C, C, bias)
        self.fc1, self.fc2 = Linear(C, ffn * (2 if args.llama else 1), bias), Linear(ffn, C, bias)

    def forward(self, x, cosine, sine):
        B, T, _ = x.shape
        q, k, v = (part.view(B, T, -1, D).transpose(1, 2) for part in self.qkv(self.norm1(x)).split((C, G * D, G * D), 2))
        if args.llama:
            q, k = rotate(q, cosine, sine), rotate(k, cosine, sine)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=G < H)
        x = x + self.proj(mixed.transpose(1, 2).reshape(B, T, C))
        inner = self.fc1(self.norm2(x))
        if args.llama:
            gate, up = inner.chunk(2, -1)
            inner = F.silu(gate) * up
        else:
            inner = F.gelu(inner, approximate="tanh")
        return x + self.fc2(inner)


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(args.vocab, C)
        self.positions = None if args.llama else nn.Embedding(args.positions, C)
        self.layers = nn.ModuleList(Layer() for _ in range(args.layers))
        self.norm = (nn.RMSNorm if args.llama else nn.LayerNorm)(C, eps=1e-5)
        turn = 10000.0 ** (-torch.arange(0, D, 2).float() / D)
        angle = torch.outer(torch.arange(args.seq).float(), turn).repeat(1, 2)
        self.register_buffer("cosine", angle.cos())
        self.register_buffer("sine", angle.sin())
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, ids, labels):
        x = self.words(ids)
        if self.positions is not None:
            x = x + self.positions(torch.arange(ids.shape[1]))
        for layer in self.layers:
            x = layer(x, self.cosine, self.sine)
        logits = self.norm(x).view(-1, C) @ self.words.weight.t() if args.linear == "default" else OneDnn.apply(
            self.norm(x).view(-1, C), self.words.weight, None)
        return F.cross_entropy(logits.float(), labels.view(-1))


def mixtral():
    from transformers import MixtralConfig, MixtralForCausalLM

    config = MixtralConfig(vocab_size=args.vocab, hidden_size=C, intermediate_size=args.ffn, num_hidden_layers=args.layers,
                           num_attention_heads=H, num_key_value_heads=H, num_local_experts=args.experts, num_experts_per_tok=args.topk,
                           max_position_embeddings=args.positions, tie_word_embeddings=True, sliding_window=None, use_cache=False)
    config._attn_implementation, config._experts_implementation = "sdpa", args.experts_implementation
    return MixtralForCausalLM(config).train()


def of_transformers():
    from transformers import GPT2Config, GPT2LMHeadModel, Qwen2Config, Qwen2ForCausalLM

    if args.model == "gpt2":
        config = GPT2Config(vocab_size=args.vocab, n_positions=args.positions, n_embd=C, n_layer=args.layers, n_head=H, use_cache=False,
                            resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, attn_implementation="sdpa")
        return GPT2LMHeadModel(config).train()
    config = Qwen2Config(vocab_size=args.vocab, hidden_size=C, intermediate_size=args.ffn, num_hidden_layers=args.layers, num_attention_heads=H,
                         num_key_value_heads=G, max_position_embeddings=args.positions, tie_word_embeddings=True, use_cache=False,
                         attn_implementation="sdpa")
    return Qwen2ForCausalLM(config).train()


def with_adapters(model):
    from peft import LoraConfig, get_peft_model

    attention = ["c_attn"] if args.model == "gpt2" else ["q_proj", "v_proj"]
    targets = attention if args.peft == "attention" else args.peft
    return get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", r=16, lora_alpha=32, target_modules=targets, lora_dropout=0))


class CrossEntropyOf(nn.Module):
    """The loss of a model of Transformers: labels are those of torch_step.py, not the moved input."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids, labels):
        return F.cross_entropy(self.model(input_ids=ids).logits.view(-1, args.vocab).float(), labels.view(-1))


def made():
    if args.experts:
        return CrossEntropyOf(mixtral())
    if not args.model:
        return Gpt()
    return CrossEntropyOf(with_adapters(of_transformers()) if args.peft else of_transformers())


model = made()
trained = [p for p in model.parameters() if p.requires_grad]
forward = torch.compile(model) if args.compile else model
optimizer = torch.optim.AdamW(trained, lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
ids = torch.randint(0, args.vocab, (args.batch, args.seq))
labels = torch.randint(0, args.vocab, (args.batch, args.seq))


def step():
    with torch.autocast("cpu", getattr(torch, args.dtype), enabled=args.dtype != "float32"):
        loss = forward(ids, labels)
    loss.backward()
    nn.utils.clip_grad_norm_(trained, 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.item()


def stalled():
    """Seconds in which some program of the system waited for a processor; 0 if Linux does not tell."""
    try:
        with open("/proc/pressure/cpu") as file:
            return 1e-6 * int(file.readline().split("total=")[1])
    except (OSError, IndexError):
        return 0.0


losses = [step() for _ in range(args.warm_up)]
wall, clean, processor, begin = [], [], [], time.perf_counter()
while len(wall) < args.least or time.perf_counter() - begin < args.seconds:
    stall, at, work = stalled(), time.perf_counter(), time.process_time()
    losses.append(step())
    wall.append(time.perf_counter() - at)
    processor.append(time.process_time() - work)
    if stalled() - stall < wall[-1] / 50:
        clean.append(wall[-1])
times = sorted(clean if len(clean) >= min(3, len(wall)) else wall)  # as benchmarks/report.h chooses
with open("/proc/self/status") as status:
    peak = int(status.read().split("VmHWM:")[1].split()[0]) / 1024
print(json.dumps({"who": "PEFT" if args.peft else "torch " + torch.__version__, "batch": args.batch, "seq": args.seq, "threads": args.threads,
                  "min_s": times[len(times) // 10], "median_s": times[len(times) // 2], "cpu_min_s": min(processor),
                  "peak_rss_mb": round(peak), "loss_first": losses[0], "loss_last": losses[-1], "clean": len(clean), "steps": len(wall)}))
