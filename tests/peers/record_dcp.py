"""Writes a small Llama as torch.distributed.checkpoint saves it from three processes: tests/data/torch_dcp.

record_dcp.py OUT, with torch (2.8 or later) and safetensors.

whole: config.json and model.safetensors, the tensors as they are.
plain: dcp.save of {"model": ..., "optimizer": ..., "step": ...}; tensors are cut by rows or columns in uneven parts, some empty, or held by all.
parts: the same model by HuggingFaceStorageWriter with save_distributed.
trained: dcp.save of the model and AdamW after three steps, as get_state_dict names them; trained_whole: the tensors of both as they are.
"""

import json
import os
import pathlib
import shutil
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing
from safetensors.torch import save_file

OUT = pathlib.Path(sys.argv[1])
CONFIG = {"architectures": ["LlamaForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 0, "dtype": "float32",
          "eos_token_id": 1, "head_dim": 4, "hidden_act": "silu", "hidden_size": 8, "initializer_range": 0.02, "intermediate_size": 10,
          "max_position_embeddings": 16, "mlp_bias": False, "model_type": "llama", "num_attention_heads": 2, "num_hidden_layers": 1,
          "num_key_value_heads": 1, "pad_token_id": None, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
          "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}, "tie_word_embeddings": False, "use_cache": True, "vocab_size": 13}
LAYER = "model.layers.0."
# Shape, and the axis that is cut; None: every process holds the whole tensor.
TENSORS = {"model.embed_tokens.weight": ([13, 8], 0), LAYER + "input_layernorm.weight": ([8], 0), LAYER + "self_attn.q_proj.weight": ([8, 8], 0),
           LAYER + "self_attn.k_proj.weight": ([4, 8], 0), LAYER + "self_attn.v_proj.weight": ([4, 8], 1),
           LAYER + "self_attn.o_proj.weight": ([8, 8], 1), LAYER + "post_attention_layernorm.weight": ([8], None),
           LAYER + "mlp.gate_proj.weight": ([10, 8], 0), LAYER + "mlp.up_proj.weight": ([10, 8], 1), LAYER + "mlp.down_proj.weight": ([8, 10], 0),
           "model.norm.weight": ([8], None), "lm_head.weight": ([13, 8], 1)}
EMPTY = LAYER + "self_attn.k_proj.weight"  # four rows in parts of two: the third process has none


def whole():
    generator = torch.Generator().manual_seed(3)
    return {name: torch.randint(-999, 999, shape, generator=generator).float() / 4096 for name, (shape, axis) in TENSORS.items()}


def save(rank, ranks, out):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=os.environ.get("DCP_PORT", "29611"))
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor
    mesh = init_device_mesh("cpu", (ranks,))
    cut = lambda tensor, axis: tensor if axis is None else distribute_tensor(tensor, mesh, [Shard(axis)])
    model = {name: cut(tensor, TENSORS[name][1]) for name, tensor in whole().items()}
    dcp.save({"model": model, "optimizer": {"exp_avg": {EMPTY: model[EMPTY]}}, "step": 7}, checkpoint_id=out / "plain")
    dcp.save(model, storage_writer=dcp.HuggingFaceStorageWriter(str(out / "parts"), save_distributed=True))
    save_trained(rank, cut, out)
    dist.destroy_process_group()


def save_trained(rank, cut, out):
    from torch.distributed.checkpoint.state_dict import get_state_dict
    module = torch.nn.Module()
    for name, tensor in whole().items():
        *path, leaf = name.split(".")
        place = module
        for part in path:
            if not hasattr(place, part):
                place.add_module(part, torch.nn.Module())
            place = getattr(place, part)
        place.register_parameter(leaf, torch.nn.Parameter(cut(tensor, TENSORS[name][1])))
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.01, foreach=False)
    generator = torch.Generator().manual_seed(5)
    for _ in range(3):
        for name, parameter in module.named_parameters():
            parameter.grad = cut(torch.randn(TENSORS[name][0], generator=generator), TENSORS[name][1])
        optimizer.step()
    model, state = get_state_dict(module, optimizer)
    dcp.save({"model": model, "optimizer": state}, checkpoint_id=out / "trained")
    full = lambda tensor: (tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor).detach().contiguous()
    files = {"model": {name: full(tensor) for name, tensor in model.items()}}
    for word in "exp_avg", "exp_avg_sq":
        files[word] = {name: full(state["state"][name][word]) for name in model}
    if rank == 0:
        (out / "trained_whole").mkdir()
        for word, tensors in files.items():
            save_file(tensors, out / "trained_whole" / (word + ".safetensors"), {"format": "pt"})


def main():
    shutil.rmtree(OUT, ignore_errors=True)
    (OUT / "whole").mkdir(parents=True)
    (OUT / "whole/config.json").write_text(json.dumps(CONFIG, indent=1) + "\n")
    save_file(whole(), OUT / "whole/model.safetensors", {"format": "pt"})
    torch.multiprocessing.spawn(save, (3, OUT.absolute()), 3)
    for path in OUT.rglob("*"):
        print(path, path.stat().st_size)


if __name__ == "__main__":
    main()
