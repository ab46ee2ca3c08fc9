#!/usr/bin/env python3
"""Records tests/data/families: a small model of each family of Hugging Face Transformers, what it computes, what it says next.

    python record_families.py OUT [FAMILY ...]

One folder for each family: config.json and model.safetensors as save_pretrained writes them (weights drawn at random, kept in bfloat16 so that
the files are small; all arithmetic below is on these rounded weights), and case.safetensors:

    tokens [2, 24] int64      two sequences
    logits [2, 24, vocab]     of every position, by the model in float64, stored as float32
    prompt [2, 6] int64       beginnings
    greedy [2, 18] int64      what generate(do_sample=False) adds to each, in float32; nothing ends it

and case.json: the largest deviation of the float32 model from the float64 one, the smallest lead of a greedy token over the next best, and the
smallest lead of the last expert (or group of experts) that a router chose over the first that it did not.

Families with experts and those of WITH_GRADIENTS have gradients.json too: of each tensor of the checkpoint that is trained the gradient of the mean cross-entropy of the next
token, as [norm, sum g[i] cos(i), sum g[i] sin(i)] over its elements in order, by the model in float64; the loss; and the largest deviation of the
float32 model from these numbers, in units of the tensor's norm. A layer of multi-token prediction, which Transformers keeps in a model of its
own (MtpModel), is written into the same file under the names that DeepSeek's release has; its loss times 0.1 is part of the objective.
Needs torch, transformers and safetensors; the versions that made the recorded cases are in case.json.
"""
import json
import sys
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers.masking_utils import create_causal_mask
from transformers.modeling_layers import MtpModel

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
    "gemma2": dict(num_key_value_heads=2, head_dim=16, num_hidden_layers=3, sliding_window=5, query_pre_attn_scalar=24, attn_logit_softcapping=3.0,
                   final_logit_softcapping=2.0),
    "gemma3_text": dict(num_key_value_heads=2, head_dim=16, num_hidden_layers=3, sliding_window=5, query_pre_attn_scalar=24,
                        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                        rope_parameters=dict(sliding_attention=dict(rope_type="default", rope_theta=100.0),
                                             full_attention=dict(rope_type="linear", rope_theta=20000.0, factor=4.0))),
    "granite": dict(num_key_value_heads=2, attention_multiplier=0.125, embedding_multiplier=3.0, residual_multiplier=0.4, logits_scaling=0.5),
    "smollm3": dict(num_key_value_heads=2, no_rope_layers=[1, 0]),
    "glm4": dict(num_key_value_heads=2, head_dim=16),
    "stablelm": dict(num_key_value_heads=2, use_qkv_bias=True, use_parallel_residual=True),
    "bloom": dict(hidden_size=48, n_layer=2, n_head=6, vocab_size=96),
    "falcon": dict(ffn_hidden_size=80, num_kv_heads=2),
    "falcon_new": dict(model_type="falcon", num_attention_heads=8, num_kv_heads=2, new_decoder_architecture=True, bias=True, tie_word_embeddings=False),
    "falcon_rw": dict(model_type="falcon", num_attention_heads=12, hidden_size=48, alibi=True, multi_query=False, parallel_attn=False, bias=True),
    "olmo2": dict(num_key_value_heads=2),
    "phi": dict(num_key_value_heads=2, qk_layernorm=True),
    "opt": dict(vocab_size=96, hidden_size=32, ffn_dim=48, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=64, pad_token_id=3,
                dropout=0.0),
    # Sequences of 24 tokens have the long factors; answers begin with the short ones.
    "phi3_longrope": dict(num_key_value_heads=2, original_max_position_embeddings=16,
                          rope_parameters=dict(rope_type="longrope", rope_theta=10000.0, partial_rotary_factor=0.75, short_factor=[1.0, 1.5, 2.5],
                                               long_factor=[1.5, 4.0, 9.0])),
    "mixtral": dict(num_key_value_heads=2, intermediate_size=24, num_local_experts=4, num_experts_per_tok=2, sliding_window=7),
    "gpt_oss": dict(num_key_value_heads=2, head_dim=16, num_hidden_layers=3, sliding_window=5, intermediate_size=24, num_local_experts=4,
                    num_experts_per_tok=2, swiglu_limit=0.6,
                    rope_parameters=dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, beta_fast=2.0, beta_slow=0.2, truncate=False,
                                         original_max_position_embeddings=32)),
    "qwen2_moe": dict(num_key_value_heads=2, num_hidden_layers=3, mlp_only_layers=[1], num_experts=6, num_experts_per_tok=2, norm_topk_prob=False,
                      moe_intermediate_size=16, shared_expert_intermediate_size=24),
    "qwen3_moe": dict(num_key_value_heads=2, head_dim=16, num_hidden_layers=3, decoder_sparse_step=2, num_experts=8, num_experts_per_tok=3,
                      norm_topk_prob=True, moe_intermediate_size=16),
    "deepseek_v2": dict(num_key_value_heads=4, q_lora_rank=None, kv_lora_rank=16, qk_nope_head_dim=12, qk_rope_head_dim=8, v_head_dim=10,
                        first_k_dense_replace=1, n_routed_experts=8, n_shared_experts=2, num_experts_per_tok=3, moe_intermediate_size=12,
                        routed_scaling_factor=1.5, topk_method="greedy",
                        rope_parameters=dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, mscale=0.707, mscale_all_dim=0.707,
                                             beta_fast=32, beta_slow=1, original_max_position_embeddings=16)),
    "deepseek_v3": dict(num_key_value_heads=4, q_lora_rank=24, kv_lora_rank=16, qk_nope_head_dim=12, qk_rope_head_dim=8, v_head_dim=10,
                        first_k_dense_replace=1, n_routed_experts=8, n_shared_experts=1, num_experts_per_tok=4, n_group=4, topk_group=2,
                        moe_intermediate_size=12, routed_scaling_factor=2.5, num_nextn_predict_layers=1,
                        rope_parameters=dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, mscale=1.0, mscale_all_dim=1.0,
                                             beta_fast=32, beta_slow=1, original_max_position_embeddings=16)),
}
MTP_FACTOR = 0.1
WITH_GRADIENTS = {"bloom", "falcon", "falcon_new", "falcon_rw", "gemma2", "gemma3_text", "glm4", "granite", "olmo2", "opt", "phi", "phi3_longrope", "smollm3",
                  "stablelm"}  # beside those with experts


def config_of(family):
    own = dict(FAMILIES[family])
    model_type = own.pop("model_type", family.removesuffix("_longrope"))
    sizes = {} if family in ("gpt2", "bloom", "opt") else SIZES
    if model_type == "falcon":  # which has ffn_hidden_size
        sizes = {key: value for key, value in SIZES.items() if key != "intermediate_size"}
    ids = dict(bos_token_id=0, eos_token_id=1, pad_token_id=None)
    return transformers.AutoConfig.for_model(model_type, **{**sizes, **ids, **own})


def draw(model, generator):
    """Weights large enough that every part matters: norms and biases are not left at 1 and 0."""
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if parameter.dim() == 1:
            start = 1.0 if "norm" in name or "ln_" in name else 0.0
            if name.endswith("bias") or model.config.model_type.startswith("gemma"):
                start = 0.0
            value = start + 0.2 * noise
        else:
            value = noise / parameter.shape[-1] ** 0.5 * 1.3
        parameter.data = value.to(torch.bfloat16).float()
    model.tie_weights()


def draw_rest(model, mtp, generator):
    """Biases of experts, which are buffers, and the layers of multi-token prediction, which are no part of the model."""
    for module in [*model.modules(), *(mtp.layers.modules() if mtp else ())]:
        if hasattr(module, "e_score_correction_bias"):
            module.e_score_correction_bias = 0.3 * torch.randn(module.num_experts, generator=generator)
    if mtp:
        mtp.layers.config = model.config
        mtp.layers.tie_weights = lambda: None
        draw(mtp.layers, generator)


def margin(router, logits):
    """By how much the last choice of a router leads over the first one that it does not make."""
    top = router.top_k
    if not hasattr(router, "e_score_correction_bias"):
        best = logits.topk(top + 1, dim=-1).values
        return (best[:, top - 1] - best[:, top]).min().item()
    scores = logits.sigmoid() + router.e_score_correction_bias
    grouped = scores.view(len(scores), router.num_group, -1)
    groups = grouped.topk(2, dim=-1).values.sum(-1).topk(router.topk_group + 1, dim=-1)
    lead = groups.values[:, -2] - groups.values[:, -1]
    kept = torch.zeros(len(scores), router.num_group, dtype=torch.bool).scatter(1, groups.indices[:, :-1], True)
    best = grouped.masked_fill(~kept.unsqueeze(-1), -torch.inf).flatten(1).topk(top + 1, dim=-1).values
    return min(lead.min().item(), (best[:, top - 1] - best[:, top]).nan_to_num(torch.inf).min().item())


def watch_routers(modules, margins):
    for module in modules:
        if type(module).__name__.lower().endswith("router"):
            module.register_forward_hook(lambda router, _, out: margins.append(margin(router, out[0].detach())))


def objective(model, mtp, tokens):
    """The mean cross-entropy of the next token, and that of each layer of multi-token prediction as Megatron-LM computes it."""
    hidden = model.model(tokens).last_hidden_state if mtp else None
    logits = model.lm_head(hidden) if mtp else model(tokens).logits
    width = logits.shape[-1]
    losses = [torch.nn.functional.cross_entropy(logits[:, :-1].reshape(-1, width), tokens[:, 1:].reshape(-1))]
    moved, places = tokens, torch.arange(tokens.shape[1])[None]
    for number, layer in enumerate(mtp.layers if mtp else ()):
        moved = torch.nn.functional.pad(moved[:, 1:], (0, 1))
        embedded = model.model.embed_tokens(moved)
        mask = create_causal_mask(config=model.config, inputs_embeds=embedded, attention_mask=None, past_key_values=None, position_ids=places)
        hidden = layer(embedded, hidden, position_embeddings=model.model.rotary_emb(embedded, places), attention_mask=mask, position_ids=places,
                       past_key_values=None)
        ahead = number + 2
        losses.append(torch.nn.functional.cross_entropy(model.lm_head(hidden[:, :-ahead]).reshape(-1, width), tokens[:, ahead:].reshape(-1)))
    return losses


def in_checkpoint(model, mtp, value):
    """Names and values of parameters as checkpoints have them: experts one by one, layers of multi-token prediction behind the others."""
    out = {}
    for prefix, module in [("", model), *(((f"model.layers.{model.config.num_hidden_layers}.", mtp.layers[0]),) if mtp else ())]:
        for name, parameter in module.named_parameters():
            name = prefix + name.replace("mtp_block.", "").replace("post_norm.", "shared_head.norm.")
            names = ("gate_proj", "up_proj", "down_proj")
            if model.config.model_type == "mixtral":
                name, names = name.replace(".mlp.", ".block_sparse_moe."), ("w1", "w3", "w2")
            tensor = value(parameter)
            if model.config.model_type == "gpt_oss" and ".experts." in name:  # one tensor for all experts
                out |= {f"{name}[{e}]": one for e, one in enumerate(tensor)}
            elif name.endswith("experts.gate_up_proj"):
                for e, both in enumerate(tensor):
                    for which, half in zip(names, both.chunk(2)):
                        out[f"{name[:-len('gate_up_proj')]}{e}.{which}.weight"] = half
            elif name.endswith("experts.down_proj"):
                for e, one in enumerate(tensor):
                    out[f"{name[:-len('down_proj')]}{e}.{names[2]}.weight"] = one
            else:
                out[name] = tensor
    return out


def gradients(model, mtp, tokens):
    """Losses, and of each tensor three numbers of its gradient."""
    for module in (model, mtp):
        if module:
            module.zero_grad()
    losses = objective(model, mtp, tokens)
    (losses[0] + MTP_FACTOR / max(1, len(losses) - 1) * sum(losses[1:])).backward()
    numbers = {}
    for name, g in in_checkpoint(model, mtp, lambda p: torch.zeros_like(p) if p.grad is None else p.grad).items():
        flat = g.double().flatten()
        turn = torch.arange(flat.numel(), dtype=torch.float64)
        numbers[name] = [flat.norm().item(), (flat * turn.cos()).sum().item(), (flat * turn.sin()).sum().item()]
    return [loss.item() for loss in losses], numbers


def record_gradients(model, mtp, tokens, folder):
    single_losses, single = gradients(model, mtp, tokens)
    model.double(), mtp and mtp.double()
    losses, double = gradients(model, mtp, tokens)
    model.float(), mtp and mtp.float()
    # Biases of keys have no gradient without rotary positions.
    deviation = max(abs(a - b) / numbers[0] for name, numbers in double.items() if numbers[0] > 1e-6 for a, b in zip(numbers, single[name]))
    deviation = max(deviation, max(abs(a - b) / b for a, b in zip(single_losses, losses)))
    rounded = {name: [float(f"{x:.9g}") for x in numbers] for name, numbers in sorted(double.items())}
    (folder / "gradients.json").write_text(json.dumps({"losses": losses, "deviation": deviation, "gradients": rounded}).replace("], ", "],\n") + "\n")


def add_predictions(model, mtp, folder):
    """The layer of multi-token prediction into the file of the model, with the copies that DeepSeek's release has."""
    tensors = load_file(folder / "model.safetensors")
    layer = f"model.layers.{model.config.num_hidden_layers}."
    added = {name: value.to(torch.bfloat16) for name, value in in_checkpoint(model, mtp, lambda p: p.detach()).items() if name.startswith(layer)}
    added[layer + "mlp.gate.e_score_correction_bias"] = mtp.layers[0].mtp_block.mlp.gate.e_score_correction_bias
    added[layer + "embed_tokens.weight"] = tensors["model.embed_tokens.weight"].clone()
    added[layer + "shared_head.head.weight"] = tensors["lm_head.weight"].clone()
    save_file({**tensors, **{name: value.contiguous() for name, value in added.items()}}, folder / "model.safetensors", {"format": "pt"})


def save(model, mtp, folder):
    biases = {name: buffer.clone() for name, buffer in model.named_buffers() if name.endswith("e_score_correction_bias")}
    model.to(torch.bfloat16)
    for name, bias in biases.items():
        model.get_submodule(name.rpartition(".")[0]).e_score_correction_bias = bias
    model.save_pretrained(folder)
    if (folder / "generation_config.json").exists():
        (folder / "generation_config.json").unlink()
    if mtp:
        add_predictions(model, mtp, folder)


def record(family, folder):
    for seed in range(100):
        generator = torch.Generator().manual_seed(seed)
        config = config_of(family)
        config._attn_implementation = config._experts_implementation = "eager"
        if config.model_type == "falcon":  # whose eager attention adds the bias by distance twice
            config._attn_implementation = "sdpa"
        model = transformers.AutoModelForCausalLM.from_config(config).float().eval()
        predictions = getattr(config, "num_nextn_predict_layers", 0)
        mtp = MtpModel(model, predictions).float().eval() if predictions else None
        margins = [1.0]
        draw(model, generator)
        draw_rest(model, mtp, generator)
        tokens = torch.randint(2, 96, (2, 24), generator=generator)
        prompt = torch.randint(2, 96, (2, 6), generator=generator)
        watch_routers([*model.modules(), *(mtp.layers.modules() if mtp else ())], margins)
        with torch.no_grad():
            single = model(tokens).logits
            double = model.double()(tokens).logits
            model.float()
            said = model.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=18, min_new_tokens=18,
                                  eos_token_id=None, pad_token_id=0)
            best = model(said).logits[:, 5:-1].topk(2, dim=-1).values
            if mtp:
                objective(model, mtp, tokens)
        lead = (best[..., 0] - best[..., 1]).min().item()
        if lead > 0.01 and min(margins) > 1e-3:
            break
    if len(margins) > 1 or family in WITH_GRADIENTS:
        record_gradients(model, mtp, tokens, folder)
    save(model, mtp, folder)
    save_file({"tokens": tokens, "logits": double.float().contiguous(), "prompt": prompt, "greedy": said[:, 6:].contiguous()},
              folder / "case.safetensors")
    facts = {"seed": seed, "float32_deviation": (single.double() - double).abs().max().item(), "largest_logit": double.abs().max().item(),
             "smallest_lead": lead, "torch": torch.__version__, "transformers": transformers.__version__}
    if len(margins) > 1:
        facts["smallest_margin"] = min(margins)
    (folder / "case.json").write_text(json.dumps(facts, indent=1) + "\n")
    print(family, facts)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name in sys.argv[2:] or FAMILIES:
        target = Path(sys.argv[1]) / name
        target.mkdir(parents=True, exist_ok=True)
        record(name, target)
