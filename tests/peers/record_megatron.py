#!/usr/bin/env python3
"""Records tests/data/megatron: a checkpoint as Megatron-LM's --ckpt-format torch lays it out, written by torch itself.

    python record_megatron.py OUT

One layer of width 8 in bfloat16 with fp32 masters, names as Transformer Engine's layers give them, groups in the order [no decay, decay], so that
a reader which goes by places instead of by what the groups say is caught. Every number says where it belongs: element i of weight number w is
w + i / 1024, its exp_avg 100 + that, its exp_avg_sq 200 + that; masters are 0.0001 more. Needs torch.
"""
import argparse
import collections
import sys
from pathlib import Path

import torch

NAMES = {
    "embedding.word_embeddings.weight": (16, 8),
    "decoder.layers.0.self_attention.linear_proj.weight": (8, 8),
    "decoder.layers.0.self_attention.linear_qkv.layer_norm_weight": (8,),
    "decoder.layers.0.self_attention.linear_qkv.weight": (24, 8),
    "decoder.layers.0.self_attention.linear_qkv._extra_state": None,
    "decoder.layers.0.mlp.linear_fc1.layer_norm_weight": (8,),
    "decoder.layers.0.mlp.linear_fc1.weight": (32, 8),
    "decoder.layers.0.mlp.linear_fc2.weight": (8, 16),
    "decoder.final_layernorm.weight": (8,),
}


def numbers(which, shape, more):
    count = torch.Size(shape).numel()
    return (which + more + torch.arange(count, dtype=torch.float32) / 1024).reshape(shape)


def main(out):
    model, groups, masters, state = collections.OrderedDict(), {0.0: [], 1.0: []}, {0.0: [], 1.0: []}, {}
    for which, (name, shape) in enumerate(NAMES.items()):
        if shape is None:
            model[name] = None
            continue
        model[name] = numbers(which, shape, 0).to(torch.bfloat16)
        decay = 0.0 if len(shape) == 1 else 1.0
        masters[decay].append(numbers(which, shape, 0.0001))
        groups[decay].append({"step": torch.tensor(4.0), "exp_avg": numbers(which, shape, 100), "exp_avg_sq": numbers(which, shape, 200)})
    described, first = [], 0
    for decay in (0.0, 1.0):
        ids = list(range(first, first + len(groups[decay])))
        first += len(ids)
        state.update(zip(ids, groups[decay]))
        described.append({"wd_mult": decay, "lr_mult": 1.0, "is_expert_parallel": False, "is_decoupled_lr": False, "lr": 1e-3, "betas": (0.9, 0.95),
                          "eps": 1e-8, "weight_decay": 0.1 * decay, "params": ids})
    args = argparse.Namespace(num_layers=1, hidden_size=8, ffn_hidden_size=16, num_attention_heads=2, kv_channels=None, group_query_attention=False,
                              num_query_groups=1, seq_length=16, max_position_embeddings=16, position_embedding_type="rope", rotary_base=10000,
                              normalization="RMSNorm", norm_epsilon=1e-5, swiglu=True, squared_relu=False, bias_gelu_fusion=False,
                              add_bias_linear=False, add_qkv_bias=False, untie_embeddings_and_output_weights=False, padded_vocab_size=16,
                              attention_dropout=0.0, hidden_dropout=0.0, bf16=True, fp16=False, params_dtype=torch.bfloat16, train_iters=10, seed=42,
                              micro_batch_size=1, global_batch_size=8, optimizer="adam", lr=1e-3, min_lr=1e-4, adam_beta1=0.9, adam_beta2=0.95,
                              adam_eps=1e-8, weight_decay=0.1, lr_decay_style="cosine", consumed_train_samples=40, skipped_train_samples=8,
                              consumed_valid_samples=16, rank=0)
    schedule = {"max_lr": 1e-3, "lr_warmup_steps": 0, "num_steps": 32, "lr_decay_style": "cosine", "lr_decay_steps": 80, "min_lr": 1e-4,
                "start_wd": 0.1, "end_wd": 0.1, "wd_incr_style": "constant", "wd_incr_steps": 80}
    folder = out / "iter_0000005" / "mp_rank_00"
    folder.mkdir(parents=True, exist_ok=True)
    torch.save({"args": args, "checkpoint_version": 3.0, "iteration": 5, "model": model,
                "optimizer": {"optimizer": {"state": state, "param_groups": described}, "fp32_from_fp16_params": [masters[0.0], masters[1.0]]},
                "opt_param_scheduler": schedule, "rng_state": [{"torch_rng_state": torch.zeros(8, dtype=torch.uint8)}],
                "num_floating_point_operations_so_far": 0}, folder / "model_optim_rng.pt")
    (out / "latest_checkpointed_iteration.txt").write_text("5")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
