#!/usr/bin/env python3
"""Records what Transformers makes of a config.json: tests/data/config_json/transformers_4.json and transformers_5.json.

    python record_config_json.py OUT_FOLDER

For every family, a small config.json that gives every key (`given`) is changed: keys are left out ("<absent>"), are null, have another value, or
belong to another family. AutoConfig reads each file; the model is built and computes logits of a few tokens. `cases` are pairs of the change and
its result:

    "error"      Transformers refuses the file, or cannot build or run its model
    "same"       the logits are those of `given`, and so is the configuration object, except for the change
    otherwise    config: what the configuration object says, where it differs from that of `given` and from the change; parameters: number of
                 elements of all parameters; frequencies, windows: where they differ from those of `given`

`frequencies` are the rotary frequencies and, behind them, the factor of cosines and sines; `windows` is the sliding window of each layer (null:
none). `unused` are keys of other families that change nothing. Models of more than 60 million parameters are built without memory and compute nothing.
Needs torch and transformers; run it once with each major version. With names of families behind OUT_FOLDER only these are recorded anew.
"""
import copy
import inspect
import json
import sys
import tempfile
from pathlib import Path

import torch
import transformers

FIVE = int(transformers.__version__.split(".")[0]) >= 5
MOST = 60_000_000
ABSENT = "<absent>"  # in `change`: the key is not in the file

SIZES = dict(vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
             hidden_act="silu", max_position_embeddings=64, initializer_range=0.02, rms_norm_eps=1e-5, tie_word_embeddings=False,
             rope_theta=20000.0, attention_dropout=0.0, bos_token_id=0, eos_token_id=1, pad_token_id=None)
MOE = dict(num_experts_per_tok=2, router_aux_loss_coef=0.01, output_router_logits=False)
QWEN = dict(use_sliding_window=False, sliding_window=4, max_window_layers=2)
DEEPSEEK = dict(num_key_value_heads=4, q_lora_rank=24, kv_lora_rank=16, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=16,
                first_k_dense_replace=1, n_routed_experts=8, n_shared_experts=1, num_experts_per_tok=4, moe_intermediate_size=16,
                routed_scaling_factor=1.5, attention_bias=False, rms_norm_eps=1e-6)
FAMILIES = {
    "llama": SIZES | dict(head_dim=8, attention_bias=False, mlp_bias=False),
    "mistral": SIZES | dict(head_dim=8, sliding_window=4),
    "qwen2": SIZES | QWEN,
    "qwen3": SIZES | QWEN | dict(head_dim=16, attention_bias=False),
    "gemma": SIZES | dict(head_dim=8, attention_bias=False, hidden_act="gelu_pytorch_tanh", tie_word_embeddings=True),
    "phi3": SIZES | dict(sliding_window=4, partial_rotary_factor=0.5, resid_pdrop=0.0, embd_pdrop=0.0, original_max_position_embeddings=64),
    "gpt2": dict(vocab_size=96, n_embd=32, n_layer=2, n_head=4, n_positions=64, n_inner=80, activation_function="gelu_new",
                 layer_norm_epsilon=1e-5, resid_pdrop=0.1, embd_pdrop=0.1, attn_pdrop=0.1, initializer_range=0.02, scale_attn_weights=True,
                 scale_attn_by_inverse_layer_idx=False, reorder_and_upcast_attn=False, tie_word_embeddings=True, bos_token_id=0,
                 eos_token_id=1),
    "gpt_neox": dict(vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, hidden_act="gelu",
                     max_position_embeddings=64, rotary_pct=0.5, rotary_emb_base=20000, layer_norm_eps=1e-5, attention_bias=True,
                     use_parallel_residual=True, tie_word_embeddings=False, hidden_dropout=0.0, attention_dropout=0.0,
                     initializer_range=0.02, bos_token_id=0, eos_token_id=1),
    "mixtral": SIZES | MOE | dict(head_dim=8, sliding_window=4, num_local_experts=4, router_jitter_noise=0.0),
    "qwen2_moe": SIZES | MOE | QWEN | dict(num_experts=4, moe_intermediate_size=16, shared_expert_intermediate_size=24, norm_topk_prob=False,
                                           decoder_sparse_step=1, mlp_only_layers=[1], qkv_bias=True),
    "qwen3_moe": SIZES | MOE | QWEN | dict(head_dim=16, attention_bias=False, num_experts=4, moe_intermediate_size=16, norm_topk_prob=False,
                                           decoder_sparse_step=1, mlp_only_layers=[1]),
    "deepseek_v2": SIZES | DEEPSEEK | dict(topk_method="greedy", mlp_bias=False),
    "deepseek_v3": SIZES | DEEPSEEK | dict(n_group=4, topk_group=2, norm_topk_prob=True, rope_interleave=True),
}
FAMILIES |= {
    "gemma2": FAMILIES["gemma"] | dict(hidden_activation="gelu_pytorch_tanh", query_pre_attn_scalar=24, sliding_window=4, attn_logit_softcapping=3.0,
                                       final_logit_softcapping=2.0),
    "glm4": SIZES | dict(head_dim=8, attention_bias=True, partial_rotary_factor=0.5),
    "granite": SIZES | dict(attention_bias=False, mlp_bias=False, attention_multiplier=0.5, embedding_multiplier=3.0, residual_multiplier=0.4,
                            logits_scaling=0.5),
    "smollm3": SIZES | dict(attention_bias=False, mlp_bias=False, use_sliding_window=False, sliding_window=None, no_rope_layers=[1, 0, 1],
                            no_rope_layer_interval=2),
    "stablelm": {key: value for key, value in SIZES.items() if key != "rms_norm_eps"} | dict(
        layer_norm_eps=1e-5, use_qkv_bias=True, use_parallel_residual=True, partial_rotary_factor=0.5, hidden_dropout=0.0, qk_layernorm=False),
}
FAMILIES |= {
    "olmo2": SIZES | dict(attention_bias=False),
    "phi": {key: value for key, value in SIZES.items() if key != "rms_norm_eps"} | dict(
        hidden_act="gelu_new", layer_norm_eps=1e-5, qk_layernorm=True, partial_rotary_factor=0.5, resid_pdrop=0.1, embd_pdrop=0.0),
    "opt": dict(vocab_size=96, hidden_size=32, ffn_dim=48, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=64,
                activation_function="gelu", do_layer_norm_before=True, _remove_final_layer_norm=False, word_embed_proj_dim=32, dropout=0.1,
                attention_dropout=0.0, layerdrop=0.0, init_std=0.02, enable_bias=True, layer_norm_elementwise_affine=True,
                tie_word_embeddings=True, bos_token_id=0, eos_token_id=1, pad_token_id=3),
}
FAMILIES |= {
    "gemma3_text": FAMILIES["gemma2"] | dict(num_hidden_layers=4, attn_logit_softcapping=None, final_logit_softcapping=None,
                                             rope_local_base_freq=10000.0, sliding_window_pattern=2),
    "gpt_oss": SIZES | MOE | dict(head_dim=8, num_local_experts=4, sliding_window=4, swiglu_limit=7.0, attention_bias=True,
                                rope_scaling=dict(rope_type="yarn", factor=4.0, beta_fast=8.0, beta_slow=2.0, truncate=False,
                                                  original_max_position_embeddings=16)),
    "bloom": dict(vocab_size=96, hidden_size=32, n_layer=2, n_head=4, layer_norm_epsilon=1e-5, initializer_range=0.02,
                  apply_residual_connection_post_layernorm=False, hidden_dropout=0.0, attention_dropout=0.0, tie_word_embeddings=True,
                  slow_but_exact=False, bos_token_id=0, eos_token_id=1, pad_token_id=3),
    "falcon": dict(vocab_size=96, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_kv_heads=2, ffn_hidden_size=48, alibi=False,
                   new_decoder_architecture=False, multi_query=True, parallel_attn=True, bias=False, layer_norm_epsilon=1e-5, activation="gelu",
                   max_position_embeddings=64, rope_theta=20000.0, initializer_range=0.02, hidden_dropout=0.0, attention_dropout=0.0,
                   tie_word_embeddings=True, bos_token_id=0, eos_token_id=1),
}
NO_ROPE = ("gpt2", "opt", "bloom")
# Tokens and what Python does, not the model.
QUIET = {"bos_token_id", "eos_token_id", "pad_token_id", "return_dict", "use_cache", "transformers_version", "architectures", "dtype", "id2label",
         "label2id", "problem_type", "output_hidden_states", "chunk_size_feed_forward", "is_encoder_decoder", "classifier_dropout", "is_decoder",
         "add_cross_attention"}
# A value of each key that is not the one above.
OTHER = dict(attention_bias=True, mlp_bias=True, qkv_bias=False, head_dim=12, hidden_act="relu", activation_function="relu", rms_norm_eps=0.1,
             layer_norm_eps=0.1, layer_norm_epsilon=0.1, tie_word_embeddings=True, rope_theta=500.0, rotary_emb_base=500, rotary_pct=0.25,
             partial_rotary_factor=0.25, sliding_window=2, use_sliding_window=True, max_window_layers=1, num_experts=6, num_local_experts=6,
             n_routed_experts=4, num_experts_per_tok=3, moe_intermediate_size=8, shared_expert_intermediate_size=8, norm_topk_prob=True,
             decoder_sparse_step=2, mlp_only_layers=[0], n_shared_experts=2, first_k_dense_replace=2, routed_scaling_factor=3.0, n_group=2,
             topk_group=1, topk_method="group_limited_greedy", rope_interleave=False, q_lora_rank=None, kv_lora_rank=8, qk_nope_head_dim=8,
             qk_rope_head_dim=4, v_head_dim=8, use_parallel_residual=False, scale_attn_weights=False, scale_attn_by_inverse_layer_idx=True,
             n_inner=40, intermediate_size=40, num_key_value_heads=1, n_embd=16, hidden_size=64, n_layer=1, num_hidden_layers=2,
             n_positions=32, max_position_embeddings=32, original_max_position_embeddings=16, router_jitter_noise=0.1,
             use_bidirectional_attention=True, hidden_activation="gelu", moe_layer_freq=2, scoring_func="softmax", num_mtp_layers=2,
             use_mrope=True, n_ctx=32, query_pre_attn_scalar=100, logit_scale=2.0,
             attention_multiplier=2.0, embedding_multiplier=2.0, residual_multiplier=2.0, logits_scaling=2.0, final_logit_softcapping=5.0,
             attn_logit_softcapping=5.0, use_qk_norm=True, clip_qkv=0.01, no_rope_layers=[0, 0, 0], attention_out_bias=True,
             do_layer_norm_before=False, _remove_final_layer_norm=True, word_embed_proj_dim=16, enable_bias=False, ffn_dim=40, layerdrop=0.1,
             layer_norm_elementwise_affine=False, dropout=0.2,
             n_head=8, apply_residual_connection_post_layernorm=True, alibi=True, new_decoder_architecture=True, multi_query=False,
             parallel_attn=False, num_ln_in_parallel_attn=1, num_kv_heads=4, ffn_hidden_size=40, activation="relu", swiglu_limit=5.0,
             rope_local_base_freq=500.0, sliding_window_pattern=3, initial_context_length=32,
             use_bias=True, bias=True, qk_layernorm=True, no_rope_layer_interval=3, use_qkv_bias=False, hidden_dropout=0.1)


def rope_cases(family):
    full = {
        "default": {},
        "linear": dict(factor=2.0),
        "dynamic": dict(factor=2.0),
        "yarn": dict(factor=4.0, original_max_position_embeddings=16, beta_fast=8.0, beta_slow=2.0, attention_factor=1.5),
        "llama3": dict(factor=4.0, low_freq_factor=2.0, high_freq_factor=8.0, original_max_position_embeddings=16),
        "longrope": dict(short_factor=[1.0, 1.1, 1.2, 1.3], long_factor=[1.0, 2.0, 3.0, 4.0], original_max_position_embeddings=16, factor=4.0),
        "mrope": dict(mrope_section=[1, 1, 2]),
        "su": dict(short_factor=[1.0, 1.1], long_factor=[1.0, 2.0]),
    }
    more = [dict(rope_type="yarn", factor=4.0, mscale=0.8, mscale_all_dim=0.4), dict(rope_type="yarn", factor=4.0, mscale=0.8),
            dict(rope_type="yarn", factor=4.0, mscale_all_dim=0.8), dict(rope_type="yarn", factor=4.0, mscale=0.8, mscale_all_dim=0.8),
            dict(rope_type="yarn", factor=4.0, truncate=False), dict(rope_type="yarn", factor=4.0, truncate=True),
            dict(rope_type="yarn", factor=4.0, finetuned=True), dict(rope_type="yarn", factor=1.0), dict(rope_type="yarn", factor=4.0, mscale=0.0,
            mscale_all_dim=0.0), dict(rope_type="yarn", factor=4.0, attention_factor=0.0), dict(rope_type="yarn", factor=4.0, beta_fast=0, beta_slow=0),
            dict(rope_type="linear", factor=2.0, original_max_position_embeddings=16), dict(rope_type="default", factor=2.0),
            dict(rope_type="default", original_max_position_embeddings=16), dict(factor=2.0), dict(rope_type="linear", type="linear", factor=2.0),
            dict(type="linear", rope_type="default", factor=2.0), dict(type="default", rope_type="linear", factor=2.0), {},
            dict(rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64),
            dict(rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=128),
            dict(rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16, beta_fast=3.0)]
    if family not in ("llama", "gpt_neox", "phi3", "deepseek_v3"):  # the others share all of this code with llama
        more = []
        for name in ("dynamic", "longrope", "mrope", "su"):
            full.pop(name)
    for name, keys in full.items():
        for spelling in ("rope_type", "type"):
            more.append({spelling: name, **keys})
        for key in keys:
            more.append({"rope_type": name, **{k: v for k, v in keys.items() if k != key}})
            more.append({"rope_type": name, **keys, key: None})
        if keys:
            more.append({"rope_type": name})
    for rope in more:
        yield dict(rope_scaling=rope)
        yield dict(rope_theta=ABSENT, rope_parameters=dict(rope_theta=20000.0) | rope)
    yield dict(rope_parameters=dict(rope_type="linear", factor=2.0))
    yield dict(rope_parameters=dict(rope_type="linear", factor=2.0), rope_scaling=None)
    yield dict(rope_scaling=dict(rope_type="yarn", factor=4.0, rope_theta=500.0), rope_theta=ABSENT)
    for key in ("rope_parameters", "rope_scaling"):
        yield {key: dict(rope_type="default", partial_rotary_factor=0.5)}
        yield {key: dict(rope_type="linear", factor=2.0, partial_rotary_factor=0.5)}
        yield {key: dict(rope_type=None, rope_theta=20000.0)}


def window_cases(layers):
    kinds = ["full_attention"] * layers, ["sliding_attention"] * layers, ["full_attention"] + ["sliding_attention"] * (layers - 1)
    for use in (True, False, ABSENT, None):
        for window in (4, None, ABSENT, 0) if use is True else (4, None):
            for first in (0, 1, layers, layers + 1, ABSENT, None) if use is True else (1, None):
                yield dict(use_sliding_window=use, sliding_window=window, max_window_layers=first)
            for kind in kinds:
                yield dict(use_sliding_window=use, sliding_window=window, layer_types=kind)
    yield dict(layer_types=["full_attention"])
    yield dict(use_sliding_window=True, sliding_window=64, max_window_layers=0)
    yield dict(use_sliding_window=True, layer_types=["full_attention"] * layers, max_window_layers=0)


def expert_cases(family):
    if family in ("qwen2_moe", "qwen3_moe"):
        for step in (1, 2, 3, 4):
            for dense in ([], [0], [0, 1, 2], [5], None, ABSENT):
                yield dict(decoder_sparse_step=step, mlp_only_layers=dense)
        yield dict(num_experts=0)
        yield dict(num_experts=ABSENT, num_local_experts=4)
        yield dict(num_experts=4, num_local_experts=6)
    if family.startswith("deepseek"):
        for first in (0, 1, 3, 9):
            yield dict(first_k_dense_replace=first)
        yield dict(n_shared_experts=None, first_k_dense_replace=3)
        yield dict(n_routed_experts=None, first_k_dense_replace=3)
        yield dict(n_group=1, topk_group=1)
        yield dict(n_group=None, topk_group=None)
        yield dict(n_routed_experts=ABSENT, num_experts=8)
        yield dict(n_routed_experts=ABSENT, num_local_experts=8)
        for rope in (dict(mscale=1.0, mscale_all_dim=1.0), dict(mscale=0.7, mscale_all_dim=1.0), dict(mscale_all_dim=1.0), dict(mscale=1.0), {}):
            yield dict(rope_scaling=dict(type="yarn", factor=4.0, original_max_position_embeddings=16, **rope))
    if family == "mixtral":
        yield dict(num_local_experts=ABSENT, num_experts=4)


def declared(family):
    cls = type(transformers.AutoConfig.for_model(family))
    names = [n for n in inspect.signature(cls.__init__).parameters if n not in ("self", "kwargs")]
    return [n for n in names if n not in QUIET and not n.startswith(("_", "summary_", "cls_"))]


def general_cases(family):
    full = FAMILIES[family]
    own = [key for key in dict.fromkeys([*full, *declared(family)]) if key not in QUIET]
    for key in own:
        if key in full:
            yield {key: ABSENT}
        yield {key: None}
        if key in OTHER and OTHER[key] != full.get(key):
            yield {key: OTHER[key]}
    for key in ("head_dim", "layer_types", "use_bidirectional_attention", "hidden_activation", "moe_layer_freq", "scoring_func", "topk_method"):
        if key not in own:
            yield {key: None}
    yield {key: ABSENT for key in full}
    yield {}


def foreign_keys(family):
    return {key: value for key, value in OTHER.items() if key not in FAMILIES[family] and key not in declared(family)}


def layer_kind_cases(family):
    """Windows by the kind of each layer, and rotary parameters of each kind."""
    if family not in ("gemma3_text", "gpt_oss"):
        return
    layers = FAMILIES[family]["num_hidden_layers"]
    sliding, full = "sliding_attention", "full_attention"
    for kinds in ([full] * layers, [sliding] * layers, [full] + [sliding] * (layers - 1), [sliding, sliding, full, sliding][:layers], [full]):
        yield dict(layer_types=kinds)
    if family == "gemma3_text":
        for pattern in (1, 2, 4, 7):
            yield dict(sliding_window_pattern=pattern)
            yield dict(sliding_window_pattern=pattern, layer_types=[full] * layers)
        gone = dict(rope_theta=ABSENT, rope_local_base_freq=ABSENT)
        for of_full in (dict(rope_type="default"), dict(rope_type="linear", factor=8.0), dict(rope_type="linear"), dict(factor=8.0),
                        dict(rope_type="llama3", factor=4.0, low_freq_factor=2.0, high_freq_factor=8.0, original_max_position_embeddings=16),
                        dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=16)):
            yield gone | dict(rope_parameters={full: dict(rope_theta=20000.0) | of_full, sliding: dict(rope_type="default", rope_theta=500.0)})
        yield gone | dict(rope_parameters={full: dict(rope_type="default", rope_theta=20000.0)})
        yield gone | dict(rope_parameters={sliding: dict(rope_type="default", rope_theta=500.0)})
        yield gone | dict(rope_parameters={full: dict(rope_type="default"), sliding: dict(rope_type="linear", factor=2.0)})
        yield dict(rope_parameters={full: dict(rope_type="default"), sliding: dict(rope_type="default")})


def falcon_cases(family):
    """Every combination of the keys that choose the layer."""
    if family != "falcon":
        return
    for newer in (True, False):
        for parallel in (True, False):
            for multi in (True, False):
                for keys in (ABSENT, 1, 2, 4):
                    yield dict(new_decoder_architecture=newer, parallel_attn=parallel, multi_query=multi, num_kv_heads=keys)
            for norms in (ABSENT, None, 1, 2):
                yield dict(new_decoder_architecture=newer, parallel_attn=parallel, num_ln_in_parallel_attn=norms)
    yield dict(alibi=True, parallel_attn=False, multi_query=False, bias=True)


def cases(family):
    for change in all_cases(family):  # of both keys, the family's own rope_scaling would be the older
        alone = family == "gpt_oss" and "rope_parameters" in change and "rope_scaling" not in change
        yield change | dict(rope_scaling=ABSENT) if alone else change


def all_cases(family):
    yield from general_cases(family)
    if family not in NO_ROPE:
        yield from rope_cases(family)
    if family.startswith("qwen"):
        yield from window_cases(FAMILIES[family]["num_hidden_layers"])
    yield from expert_cases(family)
    yield from layer_kind_cases(family)
    yield from falcon_cases(family)
    if family == "gpt2":
        for renamed, own in (("hidden_size", "n_embd"), ("num_hidden_layers", "n_layer"), ("num_attention_heads", "n_head"),
                             ("max_position_embeddings", "n_positions")):
            yield {own: ABSENT, renamed: FAMILIES[family][own]}


def changed(family, change):
    json_ = copy.deepcopy(FAMILIES[family])
    json_["model_type"] = family
    for key, value in change.items():
        json_.pop(key, None)
        if value != ABSENT:
            json_[key] = value
    return json_


def windows_of(model, family):
    """Of each layer: its window, as the model's classes decide it; None: they do not keep it."""
    config = model.config
    if not hasattr(config, "sliding_window") or family in ("gpt2", "gpt_neox", "bloom", "falcon") or (family == "qwen2_moe" and not FIVE):
        return None
    if family == "smollm3" and not config.use_sliding_window:
        return [None] * config.num_hidden_layers
    if family in ("qwen2", "qwen3", "qwen2_moe", "gemma2", "gemma3_text", "gpt_oss", "smollm3"):
        return [config.sliding_window if kind == "sliding_attention" else None for kind in config.layer_types]
    return [config.sliding_window] * config.num_hidden_layers


def read(json_):
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(json_))
        return transformers.AutoConfig.from_pretrained(folder)


def build(config):
    config._attn_implementation = "eager"
    if FIVE:
        config._experts_implementation = "eager"
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():  # so that no weight is 0 or 1
            parameter.add_(torch.randn(parameter.shape) * 0.1)
    return model.eval()


def size(config):
    with torch.device("meta"):
        return sum(p.numel() for p in transformers.AutoModelForCausalLM.from_config(copy.deepcopy(config)).parameters())


def rotary(model):
    if getattr(model.config, "alibi", False):
        return None
    for name, module in model.named_modules():
        if name.endswith("rotary_emb") and hasattr(module, "inv_freq"):
            return [float(f"{x:.7g}") for x in module.inv_freq.tolist()] + [float(f"{module.attention_scaling:.7g}")]
    return None


def result(family, json_):
    config = read(json_)
    said = {k: v for k, v in config.to_dict().items() if k not in ("transformers_version", "_name_or_path")}
    out = dict(config=said, parameters=size(config))
    if out["parameters"] > MOST:
        return out, None
    model = build(config)
    tokens = torch.arange(1, 25)[None] % 96
    with torch.no_grad():
        logits = model(tokens, use_cache=False).logits
    if logits.isnan().any():
        raise FloatingPointError("logits are not numbers")
    return out | dict(frequencies=rotary(model), windows=windows_of(model, family)), logits


def outcome(family, change, base, base_logits):
    try:
        out, logits = result(family, changed(family, change))
    except Exception:  # what it is does not matter: Transformers has no model
        return "error"
    alike = logits is not None and logits.shape == base_logits.shape and bool((logits - base_logits).abs().max() < 1e-6)
    differs = {k: v for k, v in out["config"].items() if base["config"].get(k, ABSENT) != v and change.get(k, ABSENT) != v}
    if alike and not differs and all(out[key] == base[key] for key in ("frequencies", "windows", "parameters")):
        return "same"
    answer = dict(config=differs, parameters=out["parameters"])
    return answer | {key: out[key] for key in ("frequencies", "windows") if logits is not None and out[key] != base[key]}


def record(family):
    base, base_logits = result(family, changed(family, {}))
    recorded, seen = [], []
    for change in cases(family):
        if change not in seen and (FIVE or "rope_parameters" not in change):  # version 4 does not know that key
            seen.append(change)
            recorded.append([change, outcome(family, change, base, base_logits)])
    unused = {}
    for key, value in foreign_keys(family).items():
        one = outcome(family, {key: value}, base, base_logits)
        if one == "same":
            unused[key] = value
        elif [{key: value}, one] not in recorded:
            recorded.append([{key: value}, one])
    print(family, len(recorded), sum(answer == "error" for _, answer in recorded), flush=True)
    return dict(given=changed(family, {}), config=base["config"], parameters=base["parameters"], frequencies=base["frequencies"],
                windows=base["windows"], unused=unused, cases=recorded)


def main():
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    out = Path(sys.argv[1]) / f"transformers_{transformers.__version__.split('.')[0]}.json"
    kept = json.loads(out.read_text())["families"] if len(sys.argv) > 2 else {}
    families = kept | {family: record(family) for family in sys.argv[2:] or FAMILIES}
    lines = []
    for name, family in families.items():
        facts = ",\n    ".join(f'"{key}": {json.dumps(family[key])}' for key in family if key != "cases")
        lines.append(f'  "{name}": {{\n    {facts},\n    "cases": [\n      ' + ",\n      ".join(json.dumps(c) for c in family["cases"]) + "]}")
    out.write_text(f'{{"transformers": "{transformers.__version__}", "families": {{\n' + ",\n".join(lines) + "}}\n")


if __name__ == "__main__":
    main()
