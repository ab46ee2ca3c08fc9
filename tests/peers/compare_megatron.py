#!/usr/bin/env python3
"""A checkpoint that torch wrote (A) against what became of it (B): torch.load takes B, and its tensors are those of A under the names of local layers.

Needs torch.
"""
import sys
from pathlib import Path

import torch

LOCAL = {"self_attention.linear_qkv.layer_norm_": "input_layernorm.", "mlp.linear_fc1.layer_norm_": "pre_mlp_layernorm."}


def load(folder):
    iteration = int((Path(folder) / "latest_checkpointed_iteration.txt").read_text())
    return torch.load(Path(folder) / f"iter_{iteration:07d}/mp_rank_00/model_optim_rng.pt", map_location="cpu", weights_only=False)


def local(name):
    for te, own in LOCAL.items():
        name = name.replace(te, own)
    return name


def state_of(checkpoint):
    """Weight name -> master and optimizer state, by what the groups say."""
    names = {0.0: [], 1.0: []}
    for name, tensor in checkpoint["model"].items():
        if tensor is not None:
            names[0.0 if tensor.dim() == 1 else 1.0].append(local(name))
    out = {}
    inner = checkpoint["optimizer"]["optimizer"]
    for group, masters in zip(inner["param_groups"], checkpoint["optimizer"]["fp32_from_fp16_params"]):
        for name, master, index in zip(names[group["wd_mult"]], masters, group["params"]):
            state = inner["state"][index]
            out[name] = (master, state["exp_avg"], state["exp_avg_sq"], state["step"])
    return out


if __name__ == "__main__":
    a, b = load(sys.argv[1]), load(sys.argv[2])
    weights = {local(name): tensor for name, tensor in a["model"].items() if tensor is not None}
    assert weights.keys() == b["model"].keys(), (weights.keys(), b["model"].keys())
    x, y = state_of(a), state_of(b)
    for name, tensor in weights.items():
        assert b["model"][name].dtype == tensor.dtype
        assert torch.equal(b["model"][name], x[name][0].to(tensor.dtype)), name
        assert all(torch.equal(p, q) for p, q in zip(x[name], y[name])), name
    for key in ("iteration", "checkpoint_version", "opt_param_scheduler"):
        assert a[key] == b[key], key
    for key in ("num_layers", "hidden_size", "num_attention_heads", "consumed_train_samples", "swiglu", "bf16", "padded_vocab_size"):
        assert getattr(a["args"], key) == getattr(b["args"], key), key
