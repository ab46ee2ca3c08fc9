#!/usr/bin/env python3
"""A checkpoint in Megatron-LM's format by 2 tensor parallel ranks x 2 stages with a shared optimizer (B), against the same as safetensors files (A):
torch.load takes every file of B; put together again in plain torch its weights and their state are those of A.

Needs torch and safetensors.
"""
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file

ROWS = ("word_embeddings.weight", "output_layer.weight", "linear_qkv.weight", "linear_qkv.bias", "linear_fc1.weight", "linear_fc1.bias")
COLUMNS = ("linear_proj.weight", "linear_fc2.weight")


def whole(name, parts):
    if name.endswith(ROWS):
        return torch.cat(parts)
    if name.endswith(COLUMNS):
        return torch.cat(parts, dim=1)
    assert all(torch.equal(part, parts[0]) for part in parts), name
    return parts[0]


def places(model):
    """Weights in reverse order, each from a multiple of 64; the tied table of an end of the pipeline has a bucket of its own."""
    at, out = 0, {}
    for name, tensor in reversed(model.items()):
        at = (at + 63) // 64 * 64
        out[name] = at
        at += tensor.numel()
    return out, at


if __name__ == "__main__":
    a = {}
    for file in Path(sys.argv[1]).glob("*.safetensors"):
        a.update(load_file(file))
    seen = set()
    for stage, shift in ((0, 0), (1, 1)):
        folders = [Path(sys.argv[2]) / f"mp_rank_{tensor:02d}_{stage:03d}" for tensor in (0, 1)]
        ranks = [torch.load(folder / "model_optim_rng.pt", map_location="cpu", weights_only=False) for folder in folders]
        shared = [torch.load(folder / "distrib_optim.pt", map_location="cpu", weights_only=False) for folder in folders]
        assert all(rank["args"].tensor_model_parallel_size == rank["args"].pipeline_model_parallel_size == 2 for rank in ranks)
        assert all(rank["args"].use_distributed_optimizer and "state" not in rank["optimizer"]["optimizer"] for rank in ranks)
        buffers = [file[0][(torch.float32, torch.float32)] for file in shared]
        starts, length = places(ranks[0]["model"])
        for buffer in buffers:
            assert buffer["numel_unpadded"] == buffer["param"].numel() == length, (buffer["numel_unpadded"], length)
        for name in ranks[0]["model"]:
            ours = name.replace("layers.0.", f"layers.{shift}.").replace("output_layer.weight", "embedding.word_embeddings.weight")
            seen.add(ours)
            parts = [rank["model"][name] for rank in ranks]
            assert torch.equal(whole(name, parts), a[ours]), name
            for slot, key in (("param", ours), ("exp_avg", f"optimizer.exp_avg.{ours}"), ("exp_avg_sq", f"optimizer.exp_avg_sq.{ours}")):
                flat = [buffer[slot][starts[name]:starts[name] + parts[0].numel()].view(parts[0].shape) for buffer in buffers]
                assert torch.equal(whole(name, flat), a[key]), (name, slot)
    assert seen == {name for name in a if not name.startswith("optimizer.")}, seen
