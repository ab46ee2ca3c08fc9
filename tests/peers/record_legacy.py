"""Writes checkpoints of --ckpt-format torch as Megatron-LM saved them before its core's GPTModel: tests/data/megatron/legacy.

record_legacy.py OUT, with torch. Each case is a whole model, cut for its ranks, with the rows of query_key_value as its checkpoint_version has them;
sums.json has of each tensor, whole and in today's order of rows, its sum and one weighted by place.

version_0: two tensor-parallel ranks, no args, keys of the oldest form, groups without wd_mult.
version_1: two stages with the copy of the embedding, fp16 with master weights, groups in another order.
version_2: the same on one rank, later names of norms.
modellink: 23.06 with RMSNorm, rotary positions and SwiGLU on 2 x 2 ranks, bf16, its distributed optimizer.
"""

import argparse
import collections
import json
import pathlib
import random
import sys

import numpy
import torch

HEADS, CHANNELS, HIDDEN, INNER, ROWS, LENGTH = 4, 2, 8, 12, 24, 6
OUT = pathlib.Path(sys.argv[1])
SLOTS = "exp_avg", "exp_avg_sq"


class Case:
    def __init__(self, name, tensor=1, stages=1, version=None, gated=False, half=None, args=True, shared=False, spelling="encoder", untied=False):
        self.__dict__.update(locals())
        self.generator = torch.Generator().manual_seed(len(name) * 7 + tensor)
        self.layers = 2
        self.whole = collections.OrderedDict((key, self.draw(shape)) for key, shape in self.shapes())
        self.state = {(slot, key): self.draw(value.shape) for key, value in self.whole.items() for slot in SLOTS}

    def draw(self, shape):
        values = torch.randint(-999, 999, shape, generator=self.generator).float()
        return values if self.half is None else values + torch.rand(shape, generator=self.generator)  # the masters are finer

    def shapes(self):
        """Of a model as the core has it."""
        bias = not self.gated
        yield "embedding.word_embeddings.weight", (ROWS, HIDDEN)
        if bias:
            yield "embedding.position_embeddings.weight", (LENGTH, HIDDEN)
        norms = ("weight", "bias") if bias else ("weight",)
        for number in range(self.layers):
            layer = f"decoder.layers.{number}."
            for norm, weights in (("input_layernorm", [("self_attention.linear_qkv", 3 * HIDDEN, HIDDEN), ("self_attention.linear_proj", HIDDEN, HIDDEN)]),
                                  ("pre_mlp_layernorm", [("mlp.linear_fc1", INNER * (2 if self.gated else 1), HIDDEN), ("mlp.linear_fc2", HIDDEN, INNER)])):
                for kind in norms:
                    yield f"{layer}{norm}.{kind}", (HIDDEN,)
                for weight, rows, columns in weights:
                    yield f"{layer}{weight}.weight", (rows, columns)
                    if bias:
                        yield f"{layer}{weight}.bias", (rows,)
        for kind in norms:
            yield f"decoder.final_layernorm.{kind}", (HIDDEN,)
        if self.untied:
            yield "output_layer.weight", (ROWS, HIDDEN)

    def shard(self, key, value, rank):
        """The part of a tensor-parallel rank, its rows in the order of the version."""
        if "linear_fc1" in key and self.gated:
            return torch.cat([half.chunk(self.tensor)[rank] for half in value.chunk(2)])
        if any(part in key for part in ("word_embeddings", "output_layer", "linear_fc1")):
            return value.chunk(self.tensor)[rank]
        if "linear_proj.weight" in key or "linear_fc2.weight" in key:
            return value.chunk(self.tensor, 1)[rank].contiguous()
        if "linear_qkv" not in key:
            return value
        own = value.chunk(self.tensor)[rank]
        rest = own.shape[1:]
        own = own.view(HEADS // self.tensor, 3, CHANNELS, *rest)
        if self.version is None:
            own = own.transpose(0, 1)
        elif self.version == 1.0:
            own = own.transpose(1, 2)
        return own.reshape(-1, *rest).contiguous()

    def legacy(self, key):
        """Their name, as the keys of dicts in dicts."""
        for ours, theirs in (("self_attention.linear_qkv", "self_attention.query_key_value"), ("self_attention.linear_proj", "self_attention.dense"),
                             ("linear_fc1", "dense_h_to_4h"), ("linear_fc2", "dense_4h_to_h"), ("pre_mlp_layernorm", "post_attention_layernorm")):
            key = key.replace(ours, theirs)
        if self.spelling == "later":
            for ours, theirs in (("input_layernorm", "input_norm"), ("post_attention_layernorm", "post_attention_norm"), ("final_layernorm", "final_norm")):
                key = key.replace(ours, theirs)
        if self.spelling == "flat":
            key = key.replace("self_attention.", "attention.")
            return ["language_model", key.replace("decoder.", "transformer.").replace("embedding.", "")]
        part, rest = key.split(".", 1)
        if part == "embedding":
            table, kind = rest.split(".")
            return ["language_model", "embedding", table, kind]
        return ["language_model", "output_layer", rest] if part == "output_layer" else ["language_model", "encoder", rest]

    def of_stage(self, stage):
        """Core's keys, in the order of the modules; layers counted from 0; and the whole model's key."""
        for key in self.whole:
            layer = int(key.split(".")[2]) if "layers" in key else None
            first, last = stage == 0, stage == self.stages - 1
            each = self.layers // self.stages
            if layer is not None:
                if layer // each == stage:
                    yield key.replace(f"layers.{layer}.", f"layers.{layer % each}."), key
            elif first if key.startswith("embedding") else last:
                yield key, key
        if stage > 0 and stage == self.stages - 1 and not self.untied:
            yield "word_embeddings_for_head", "embedding.word_embeddings.weight"

    def save(self):
        for stage in range(self.stages):
            for rank in range(self.tensor):
                folder = OUT / self.name / "iter_0000005" / (f"mp_rank_{rank:02d}" + (f"_{stage:03d}" if self.stages > 1 else ""))
                folder.mkdir(parents=True, exist_ok=True)
                torch.save(self.content(rank, stage), folder / "model_optim_rng.pt")
                if self.shared:
                    torch.save(self.buffers(rank, stage), folder / "distrib_optim.pt")
        (OUT / self.name / "latest_checkpointed_iteration.txt").write_text("5")
        sums = {}
        for key, value in self.whole.items():
            for name, whole in [(key, value)] + [(f"optimizer.{slot}.{key}", self.state[slot, key]) for slot in SLOTS]:
                flat = whole.double().flatten().numpy()
                weights = (numpy.arange(flat.size, dtype=numpy.uint64) * numpy.uint64(2654435761)) % numpy.uint64(1000)
                sums[name] = [float(flat.sum()), float((flat * weights).sum())]
        (OUT / self.name / "sums.json").write_text(json.dumps(sums, indent=0))

    def content(self, rank, stage):
        out = {"iteration": 5}
        if self.version is not None:
            out["checkpoint_version"] = self.version
        if self.args:
            out["args"] = self.arguments()
        out["model"] = {}
        for key, whole in self.of_stage(stage):
            path = ["word_embeddings_for_head", "weight"] if key == "word_embeddings_for_head" else self.legacy(key)
            inner = out["model"]
            for part in path[:-1]:
                inner = inner.setdefault(part, collections.OrderedDict())
            inner[path[-1]] = self.shard(whole, self.whole[whole], rank).to(self.half or torch.float32).clone()
        if self.gated:
            out["model"]["language_model"]["encoder"]["layers.0.self_attention.rotary_emb.inv_freq"] = torch.ones(1)
        out["optimizer"] = self.optimizer(rank, stage)
        out["opt_param_scheduler"] = dict(max_lr=0.01, lr_warmup_steps=0, num_steps=40, lr_decay_style="linear", lr_decay_steps=80, min_lr=0.0, start_wd=0.1, end_wd=0.1,
                                          wd_incr_style="constant", wd_incr_steps=80)
        out["rng_state"] = [{"random_rng_state": random.Random(1).getstate(), "np_rng_state": numpy.random.RandomState(1).get_state(),
                             "torch_rng_state": torch.zeros(8, dtype=torch.uint8), "cuda_rng_state": torch.zeros(16, dtype=torch.uint8),
                             "rng_tracker_states": {"model-parallel-rng": torch.zeros(16, dtype=torch.uint8)}}]
        return out

    def arguments(self):
        args = dict(num_layers=self.layers, hidden_size=HIDDEN, ffn_hidden_size=INNER, num_attention_heads=HEADS, kv_channels=CHANNELS, max_position_embeddings=LENGTH,
                    seq_length=LENGTH, padded_vocab_size=ROWS, layernorm_epsilon=1e-6, untie_embeddings_and_output_weights=self.untied, seed=11, global_batch_size=8,
                    micro_batch_size=1, train_iters=10, consumed_train_samples=40, pipeline_model_parallel_size=self.stages, data_parallel_size=2, bias_gelu_fusion=True,
                    fp16=self.half == torch.float16, bf16=self.half == torch.bfloat16, params_dtype=self.half or torch.float32, lr=0.01, optimizer="adam",
                    use_distributed_optimizer=self.shared, swiglu=self.gated, add_bias_linear=not self.gated, add_position_embedding=not self.gated,
                    use_rotary_position_embeddings=self.gated, rotary_percent=1.0, attention_dropout=0.0, hidden_dropout=0.0)
        if self.gated:
            args["normalization"] = "RMSNorm"
        args["tensor_model_parallel_size" if self.version == 3.0 else "model_parallel_size"] = self.tensor
        return argparse.Namespace(**args)

    def groups(self, stage):
        """Members of each group, those with decay first, or last."""
        keys = list(self.of_stage(stage))
        decay = [pair for pair in keys if len(self.whole[pair[1]].shape) == 2]
        rest = [pair for pair in keys if pair not in decay]
        return [(1.0, decay), (0.0, rest)] if self.version != 1.0 else [(0.0, rest), (1.0, decay)]

    def optimizer(self, rank, stage):
        groups, state, masters, number = [], {}, [], 0
        for decay, members in self.groups(stage):
            group = dict(lr=0.01, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.1 * decay, bias_correction=True, step=5)
            if self.version is not None:
                group.update(wd_mult=decay, lr_mult=1.0)
            masters.append([])
            ids = []
            for _, whole in members:
                state[number] = {slot: self.shard(whole, self.state[slot, whole], rank).clone() for slot in SLOTS}
                masters[-1].append(self.shard(whole, self.whole[whole], rank).clone())
                ids.append(number)
                number += 1
            groups.append({**group, "params": ids})
        if self.shared:
            return {"optimizer": {"param_groups": [{key: value for key, value in group.items() if key != "params"} for group in groups]}}
        inner = {"state": state, "param_groups": groups}
        if self.half is None:
            return inner
        return {"optimizer": inner, "grad_scaler": {"scale": torch.tensor([1024.0]), "growth_tracker": 3, "hysteresis_tracker": 2}, "fp32_from_fp16_params": masters}

    def buffers(self, rank, stage):
        """Weights in reverse order without gaps, padded for two data-parallel ranks."""
        flat = {"param": [], "exp_avg": [], "exp_avg_sq": []}
        for _, whole in reversed(list(self.of_stage(stage))):
            for slot, parts in flat.items():
                parts.append(self.shard(whole, self.whole[whole] if slot == "param" else self.state[slot, whole], rank).flatten())
        padding = -sum(part.numel() for part in flat["param"]) % 2 + 2
        return {0: {torch.float32: {slot: torch.cat([*parts, torch.zeros(padding)]) for slot, parts in flat.items()}}}


for case in (Case("version_0", tensor=2, args=False, spelling="flat"), Case("version_1", stages=2, version=1.0, half=torch.float16),
             Case("version_2", version=2.0, spelling="later"),
             Case("modellink", tensor=2, stages=2, version=3.0, gated=True, half=torch.bfloat16, shared=True, untied=True)):
    case.save()
