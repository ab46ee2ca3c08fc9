#!/usr/bin/env python3
"""Records tests/data/families: a small model of each family of Hugging Face Transformers, what it computes, what it says next.

    python record_families.py OUT

One folder for each family: config.json and model.safetensors as save_pretrained writes them (weights drawn at random, kept in bfloat16 so that
the files are small; all arithmetic below is on these rounded weights), and case.safetensors:

    tokens [2, 24] int64      two sequences
    logits [2, 24, vocab]     of every position, by the model in float64, stored as float32
    prompt [2, 6] int64       beginnings
    greedy [2, 18] int64      what generate(do_sample=False) adds to each, in float32; nothing ends it

and case.json: the largest deviation of the float32 model from the float64 one, and the smallest lead of a greedy token over the next best.
Needs torch, transformers and safetensors; the versions that made the recorded cases are in case.json.
"""
import json
import sys
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file

SIZES = dict(vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=64)
# What makes each family itself is switched on: odd widths of heads, windows, partial and bent rotary positions.
FAMILIES = {
    "gpt2": dict(n_embd=32, n_layer=2, n_head=4, n_positions=64, vocab_size=96, n_inner=80),
    "llama": dict(num_key_value_heads=2, rope_parameters=dict(rope_type="llama3", rope_theta=10000.0, factor=4.0, low_freq_factor=1.0,
                  high_freq_factor=4.0, original_max_position_embeddings=16)),
    "mistral": dict(num_key_value_heads=2, head_dim=16, sliding_window=5),
    "qwen2": dict(num_key_value_heads=2, tie_word_embeddings=True),
    "qwen3": dict(num_key_value_heads=2, head_dim=16),
    "gpt_neox": dict(use_parallel_residual=True, rotary_pct=0.5),
    "phi3": dict(num_key_value_heads=2, sliding_window=9, rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5)),
    "gemma": dict(num_key_value_heads=1, head_dim=16),
}


def config_of(family):
    own = FAMILIES[family]
    sizes = {} if family == "gpt2" else SIZES
    ids = dict(bos_token_id=0, eos_token_id=1, pad_token_id=None)
    return transformers.AutoConfig.for_model(family, **{**sizes, **own, **ids})


def draw(model, generator):
    """Weights large enough that every part matters: norms and biases are not left at 1 and 0."""
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if parameter.dim() == 1:
            start = 1.0 if "norm" in name or "ln_" in name else 0.0
            if name.endswith("bias") or model.config.model_type == "gemma":
                start = 0.0
            value = start + 0.2 * noise
        else:
            value = noise / parameter.shape[-1] ** 0.5 * 1.3
        parameter.data = value.to(torch.bfloat16).float()
    model.tie_weights()


def record(family, folder):
    for seed in range(100):
        generator = torch.Generator().manual_seed(seed)
        config = config_of(family)
        config._attn_implementation = "eager"
        model = transformers.AutoModelForCausalLM.from_config(config).float().eval()
        draw(model, generator)
        tokens = torch.randint(2, 96, (2, 24), generator=generator)
        prompt = torch.randint(2, 96, (2, 6), generator=generator)
        with torch.no_grad():
            single = model(tokens).logits
            double = model.double()(tokens).logits
            model.float()
            said = model.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=18, min_new_tokens=18,
                                  eos_token_id=None, pad_token_id=0)
            best = model(said).logits[:, 5:-1].topk(2, dim=-1).values
        lead = (best[..., 0] - best[..., 1]).min().item()
        if lead > 0.01:
            break
    model.to(torch.bfloat16).save_pretrained(folder)
    if (folder / "generation_config.json").exists():
        (folder / "generation_config.json").unlink()
    save_file({"tokens": tokens, "logits": double.float().contiguous(), "prompt": prompt, "greedy": said[:, 6:].contiguous()},
              folder / "case.safetensors")
    facts = {"seed": seed, "float32_deviation": (single.double() - double).abs().max().item(), "largest_logit": double.abs().max().item(),
             "smallest_lead": lead, "torch": torch.__version__, "transformers": transformers.__version__}
    (folder / "case.json").write_text(json.dumps(facts, indent=1) + "\n")
    print(family, facts)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name in FAMILIES:
        target = Path(sys.argv[1]) / name
        target.mkdir(parents=True, exist_ok=True)
        record(name, target)
