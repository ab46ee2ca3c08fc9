#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/recipe/groups.h"

// The cases of every_option_test.cpp: for each option a change that must be seen, or why there is none.
namespace tessera::recipe::every_option {

/// What can be seen of a run.
enum class Seen {
  metrics,
  weights,
  files,
  console,
  outcome,
  trace  ///< which events a profile has, with their arguments, but without times
};

struct Case {
  std::string key, value;
  Seen differs;
  Lines with = {};       ///< laid over the usual recipe with and without the change
  Lines earlier = {};    ///< when given: a run with these goes before both
  bool damaged = false;  ///< its checkpoint is damaged before the next
};

inline const Lines null_tokenizer = {d + "tokenizer_type=NullTokenizer", d + "vocab_size=63"};
inline const Lines rope = {m + "position_embedding_type=rope"};
inline const Lines llama3 = {m + "position_embedding_type=rope", m + "rotary_base=10",
                             m + "rope_scaling_original_max_position_embeddings=12"};
inline const Lines llama3_chosen = {llama3[0], llama3[1], llama3[2], m + "rope_scaling_type=llama3"};
inline const Lines yarn = {llama3[0], llama3[1], m + "kv_channels=16", m + "rope_scaling_type=yarn",
                           m + "rope_scaling_original_max_position_embeddings=100"};
inline const Lines sandwich = {m + "normalization=RMSNorm", m + "use_sandwich_norm=true"};
inline const Lines wsd = {o + "lr_decay_style=WSD", o + "lr_wsd_decay_iters=4"};
inline const Lines first_half = {t + "exit_interval=3"};
inline const Lines in_samples = {t + "training_iters=0", d + "train_samples=12"};
inline const Lines fp16 = {t + "fp16=true"},
                   overflowing = {t + "fp16=true", t + "hysteresis=1", t + "loss_scale_value=1e9"};
inline const Lines other_rate = {t + "exit_interval=3", o + "learning_rate=5e-4"};
inline const Lines decay_grows = {o + "weight_decay_incr_style=linear", o + "start_weight_decay=0",
                                  o + "end_weight_decay=0.5"};
inline const Lines own_splits = {d + "train_data_path=data/a", d + "valid_data_path=data/a",
                                 d + "test_data_path=data/a"};
inline const Lines two_sets = {d + "train_data_path=data/a", d + "valid_data_path=[data/a, data/b]"};
inline const Lines bpe = {d + "tokenizer_type=GPT2BPETokenizer", d + "vocab_file=small.json",
                          d + "merge_file=merges.txt", m + "vocab_size="};
inline const Lines bert = {d + "tokenizer_type=BertWordPieceCase", d + "vocab_file=bert.txt", m + "vocab_size="};
inline const Lines no_pattern = {d + "tokenizer_type=TikTokenizer", d + "tokenizer_model=tik.json",
                                 d + "vocab_size=759", d + "tiktoken_num_special_tokens=3", m + "vocab_size="};
inline const Lines tik = {no_pattern[0], no_pattern[1], no_pattern[2],
                          no_pattern[3], no_pattern[4], d + "tiktoken_pattern=v1"};

inline const Lines sentencepiece = {d + "tokenizer_type=SentencePieceTokenizer", d + "tokenizer_model=small.model",
                                    m + "vocab_size="};

inline const Lines sft = bpe + Lines{d + "dataset_type=sft", d + "data_path=talks.jsonl", d + "split=\"80,10,10\"",
                                     d + "sft_tokenizer_prompt_format=default",
                                     d + "chat_template=\"{% for m in messages %}{{ m.content }}{% endfor %}\""};
inline const Lines instruction =
    null_tokenizer + Lines{d + "dataset_type=instruction", d + "data_path=data/i", d + "split=\"70,20,10\""};
inline const Lines packed = instruction + Lines{d + "data_path=data/p", d + "reset_attention_mask=true"};

inline const std::string pref = "preference_config.";
/// Stages of pairs; the reference model is a run before.
inline const Lines pairs = {d + "dataset_type=pairs_of_rows", m + "hidden_dropout_rate=0"};
inline const Lines base_run = {t + "output_dir=first", t + "seed=5"};
inline const Lines dpo = pairs + Lines{t + "stage=dpo", pref + "ref_model=first/checkpoints"};
inline const Lines simpo = pairs + Lines{t + "stage=simpo"}, orpo = pairs + Lines{t + "stage=orpo"};

inline const std::string lora = "lora_config.";
/// Adapters of the queries and of the first feed-forward layer, whose A and B both begin with random numbers.
inline const Lines adapted = {lora + "use_lora=true", lora + "target_modules=[q_proj, linear_fc1]",
                              lora + "init_lora_weights=false"},
                   two_layers = adapted + Lines{m + "num_layers=2"};

/// Images and videos before a text model with rotary embedding of three axes.
inline const Lines mrope = {m + "position_embedding_type=mrope", m + "mrope_section=[1, 1, 0]"};
inline const Lines images = mrope + Lines{d + "dataset_type=images_of_rows",
                                          m + "use_visual_encoder=true",
                                          m + "hidden_dropout_rate=0",
                                          v + "num_layers=2",
                                          v + "hidden_size=16",
                                          v + "num_attention_heads=2",
                                          v + "in_channels=2",
                                          v + "patch_size=2",
                                          v + "temporal_patch_size=1",
                                          v + "image_token_id=27",
                                          v + "video_token_id=28",
                                          v + "init_method_std=0.3"};
inline const Lines windows = images + Lines{v + "window_size=4"};

inline const Lines experts = {m + "num_experts=4", m + "add_bias_linear=false", m + "ffn_hidden_size=16"};
inline const Lines balanced = experts + Lines{e + "moe_aux_loss_coeff=0.5"};
inline const Lines grouped =
    experts + Lines{m + "num_experts=8", e + "moe_router_num_groups=2", e + "moe_router_group_topk=1"};
inline const Lines dropping = experts + Lines{e + "moe_expert_capacity_factor=0.5"};
inline const Lines one_expert = experts + Lines{e + "moe_router_topk=1", e + "moe_router_pre_softmax=true"};
inline const Lines latent = {m + "multi_latent_attention=true", m + "kv_lora_rank=8", m + "qk_head_dim=4",
                             m + "qk_pos_emb_head_dim=4", m + "v_head_dim=4"};
inline const Lines slowed = latent + Lines{m + "rotary_scaling_factor=4", m + "max_position_embeddings=100"};
inline const Lines latent_yarn = latent + Lines{m + "rope_scaling_type=yarn", m + "max_position_embeddings=100"};
inline const Lines predicting = {m + "mtp_num_layers=1", m + "position_embedding_type=rope"};

inline const Lines profiled = {t + "profile=true", t + "profile_step_start=2", t + "profile_step_end=3"};
inline const Lines detailed = profiled + Lines{t + "profile_level=level1"};
inline const Lines with_memory = detailed + Lines{t + "profile_memory=true"};

inline const std::vector<Case> cases = {
    {t + "profile", "true", Seen::trace, {t + "profile_step_start=2"}},
    {t + "profile_save_path", "elsewhere/traces", Seen::files, profiled},
    {t + "profile_step_start", "3", Seen::trace, profiled},
    {t + "profile_step_end", "2", Seen::trace, profiled},
    {t + "profile_ranks", "[1]", Seen::files, profiled},
    {t + "profile_level", "level1", Seen::trace, profiled},
    {t + "profile_memory", "true", Seen::trace, profiled},
    {t + "profile_framework", "None", Seen::trace, detailed},
    {t + "profile_framework", "time", Seen::trace, with_memory},
    {t + "profile_op_time", "false", Seen::trace, detailed},
    {t + "profile_parallel_strategy", "true", Seen::files, profiled},
    {t + "profile_data_process", "true", Seen::trace,
     profiled + Lines{t + "profile_step_start=1", d + "num_workers=1"}},
    {t + "profile_offline_analyse", "true", Seen::console, profiled},
    {t + "seed", "2", Seen::weights},
    {t + "stage", "orpo", Seen::metrics, simpo},
    {m + "score_head", "true", Seen::outcome, pairs + Lines{t + "stage=rm"}},
    {pref + "dpo_loss_type", "ipo", Seen::metrics, dpo, base_run},
    {pref + "dpo_beta", "0.3", Seen::metrics, dpo, base_run},
    {pref + "dpo_label_smoothing", "0.3", Seen::metrics, dpo, base_run},
    {pref + "pref_ftx", "0.5", Seen::metrics, dpo, base_run},
    {pref + "ref_model", "first/checkpoints", Seen::metrics,
     pairs + Lines{t + "stage=dpo", t + "load_checkpoint=first/checkpoints/network_iter_0000003",
                   t + "resume_training=false"},
     base_run + Lines{t + "save_interval=3"}},
    {pref + "refer_model_iter", "3", Seen::metrics, dpo, base_run + Lines{t + "save_interval=3"}},
    {pref + "cache_reference", "true", Seen::files, dpo, base_run},
    {pref + "simpo_loss_type", "hinge", Seen::metrics, simpo},
    {pref + "simpo_beta", "1", Seen::metrics, simpo},
    {pref + "gamma_beta_ratio", "0.5", Seen::metrics, simpo},
    {pref + "simpo_label_smoothing", "0.3", Seen::metrics, simpo},
    {pref + "orpo_beta", "0.5", Seen::metrics, orpo},
    {m + "use_visual_encoder", "true", Seen::weights},
    {m + "mrope_section", "[0, 1, 1]", Seen::metrics, images},
    {m + "mrope_tables_in_fp32", "true", Seen::metrics, images + Lines{t + "bf16=true"}},
    {v + "num_layers", "1", Seen::weights, images},
    {v + "hidden_size", "24", Seen::weights, images},
    {v + "ffn_hidden_size", "24", Seen::weights, images},
    {v + "num_attention_heads", "4", Seen::metrics, images},
    {v + "in_channels", "3", Seen::outcome, images},
    {v + "patch_size", "4", Seen::outcome, images},
    {v + "temporal_patch_size", "2", Seen::outcome, images},
    {v + "spatial_merge_size", "1", Seen::outcome, images},
    {v + "normalization", "RMSNorm", Seen::weights, images},
    {v + "norm_epsilon", "0.1", Seen::metrics, images},
    {v + "hidden_act", "silu", Seen::metrics, images},
    {v + "gated_linear_unit", "true", Seen::weights, images},
    {v + "add_bias_linear", "false", Seen::weights, images},
    {v + "rotary_base", "10", Seen::metrics, images + Lines{v + "num_attention_heads=1"}},
    {v + "window_size", "4", Seen::metrics, images},
    {v + "full_attention_layers", "[0]", Seen::metrics, windows},
    {v + "init_method_std", "0.1", Seen::weights, images},
    {v + "image_token_id", "29", Seen::outcome, images},
    {v + "video_token_id", "3", Seen::outcome, images},
    {lora + "use_lora", "true", Seen::weights, {lora + "target_modules=all-linear"}},
    {lora + "lora_rank", "4", Seen::weights, adapted},
    {lora + "lora_alpha", "8", Seen::metrics, adapted},
    {lora + "lora_dropout", "0.5", Seen::metrics, adapted},
    {lora + "target_cells", "['.*linear_qkv']", Seen::outcome, {lora + "use_lora=true"}},
    {lora + "target_modules", "[k_proj]", Seen::weights, adapted},
    {lora + "target_parameters", "[o_proj.weight]", Seen::weights, adapted},
    {lora + "exclude_modules", "[\"layers.0.self_attention.linear_qkv.q_proj\"]", Seen::weights, two_layers},
    {lora + "layers_to_transform", "[0]", Seen::weights, two_layers},
    {lora + "rank_pattern", "{q_proj: 2}", Seen::weights, adapted},
    {lora + "alpha_pattern", "{q_proj: 2}", Seen::metrics, adapted},
    {lora + "use_rslora", "true", Seen::metrics, adapted},
    {lora + "use_dora", "true", Seen::weights, adapted},
    {lora + "bias", "all", Seen::weights, adapted},
    {lora + "modules_to_save", "[final_layernorm]", Seen::weights, adapted},
    {lora + "init_lora_weights", "gaussian", Seen::metrics, adapted},
    {lora + "loraplus_lr_ratio", "4", Seen::weights, adapted},
    {lora + "adapter", "first", Seen::outcome, adapted},  // refused: the core reads no adapters of other programs
    {t + "training_iters", "4", Seen::metrics},
    {t + "epochs", "2", Seen::metrics, {t + "training_iters=0", t + "epochs=1", d + "global_batch_size=40"}},
    {t + "calculate_per_token_loss", "true", Seen::metrics,
     null_tokenizer + Lines{d + "eod_mask_loss=true", d + "micro_batch_num=2"}},
    {t + "calculate_per_sample_loss", "true", Seen::metrics, null_tokenizer + Lines{d + "eod_mask_loss=true"}},
    {t + "check_for_nan_in_grad", "false", Seen::outcome, {o + "learning_rate=1e38"}},
    {t + "frozen_parameters", "[\"embedding.*\"]", Seen::weights},
    {t + "trainable_parameters", "[\"embedding.*\"]", Seen::weights},
    {t + "save_frozen_parameters",
     "false",
     Seen::files,
     {t + "frozen_parameters=['embedding.*']", t + "load_checkpoint=first/checkpoints", t + "resume_training=false"},
     {t + "output_dir=first"}},
    {t + "iterations_to_skip", "[2]", Seen::metrics},
    {t + "result_rejected_tracker_filename", "rejected.txt", Seen::files},
    {t + "error_injection_rate", "1", Seen::console},
    {t + "error_injection_type", "persistent_error", Seen::outcome, {t + "error_injection_rate=1"}},
    {t + "rerun_mode", "report_stats", Seen::metrics, {"resilience_config.inject_fault=[0:2:reduce:large]"}},
    {"resilience_config.bad_step", "skip", Seen::outcome, {"resilience_config.inject_fault=[0:2:reduce:nan!]"}},
    {t + "log_num_zeros_in_grad", "true", Seen::metrics},
    {t + "log_params_norm", "true", Seen::metrics},
    {t + "loss_scale", "1024", Seen::metrics},
    {t + "loss_scale_value", "1024", Seen::metrics, fp16},
    {t + "min_loss_scale", "1e8", Seen::metrics, overflowing},
    {t + "loss_scale_window", "2", Seen::metrics, fp16 + Lines{t + "loss_scale_value=1024"}},
    {t + "loss_scale_factor", "16", Seen::metrics, overflowing},
    {t + "hysteresis", "4", Seen::metrics, overflowing},
    {t + "bf16", "true", Seen::metrics},
    {t + "fp16", "true", Seen::metrics},
    {t + "accumulate_allreduce_grads_in_fp32", "false", Seen::metrics, {t + "bf16=true"}},
    {t + "output_dir", "elsewhere", Seen::files},
    {t + "log_interval", "3", Seen::console},
    {t + "log_style", "core_ms", Seen::console},
    {t + "log_level", "warning", Seen::console},
    {t + "tensorboard", "false", Seen::files},
    {t + "eval_interval", "2", Seen::metrics},
    {t + "eval_iters", "2", Seen::metrics},
    {t + "save_interval", "2", Seen::files},
    {t + "exit_interval", "4", Seen::metrics},
    {t + "resume_training", "false", Seen::console, {}, first_half},
    {t + "load_checkpoint", "first/checkpoints", Seen::metrics, {}, {t + "output_dir=first"}},
    {t + "ignore_config_keys", "[clever]", Seen::outcome, {t + "load_checkpoint=first"}, {t + "output_dir=first"}},
    {t + "exit_on_missing_checkpoint", "true", Seen::outcome, {t + "output_dir=run", t + "load_checkpoint=run"}},
    {t + "ckpt_format", "text", Seen::files},
    {t + "prefix", "mine", Seen::files},
    {t + "crc_check", "false", Seen::console, {}, first_half, true},
    {t + "keep_checkpoint_max", "2", Seen::files, {t + "save_interval=1"}},
    {t + "no_load_optim", "true", Seen::weights, {}, first_half},
    {t + "no_load_rng", "true", Seen::metrics, {t + "seed=5"}, first_half},
    {t + "allow_changes", "[model_config.norm_epsilon]", Seen::outcome, {m + "norm_epsilon=1e-3"}, first_half},

    {m + "num_layers", "3", Seen::weights},
    {m + "hidden_size", "32", Seen::weights},
    {m + "num_attention_heads", "2", Seen::metrics},
    {m + "ffn_hidden_size", "16", Seen::weights},
    {m + "kv_channels", "8", Seen::weights},
    {m + "group_query_attention", "true", Seen::weights},
    {m + "num_query_groups", "2", Seen::weights, {m + "group_query_attention=true"}},
    {m + "position_embedding_type", "rope", Seen::weights},
    {m + "max_position_embeddings", "12", Seen::weights},
    {m + "rotary_base", "10", Seen::metrics, rope},
    {m + "rotary_percent", "0.5", Seen::metrics, rope},
    {m + "rotary_interleaved", "true", Seen::metrics, rope},
    {m + "params_dtype", "bfloat16", Seen::metrics},
    {m + "compute_dtype", "bfloat16", Seen::metrics},
    {m + "embedding_init_dtype", "bfloat16", Seen::metrics},
    {m + "residual_connection_dtype", "bfloat16", Seen::metrics},
    {m + "fp32_residual_connection", "true", Seen::metrics, {t + "bf16=true"}},
    {m + "fp16_lm_cross_entropy", "true", Seen::metrics, {t + "bf16=true"}},
    {m + "rotary_seq_len_interpolation_factor", "2", Seen::metrics, rope},
    {m + "rope_scaling_type", "llama3", Seen::metrics, llama3},
    {m + "rope_scaling_factor", "2", Seen::metrics, llama3_chosen},
    {m + "rope_scaling_low_freq_factor", "0.5", Seen::metrics, llama3_chosen},
    {m + "rope_scaling_high_freq_factor", "9", Seen::metrics, llama3_chosen},
    {m + "rope_scaling_original_max_position_embeddings", "4", Seen::metrics, llama3_chosen},
    {m + "rope_scaling_beta_fast", "2", Seen::metrics, yarn},
    {m + "rope_scaling_beta_slow", "0.01", Seen::metrics, yarn},
    {m + "rope_scaling_attention_factor", "2", Seen::metrics, yarn},
    {m + "rope_scaling_mscale", "2", Seen::metrics, yarn},
    {m + "rope_scaling_mscale_all_dim", "2", Seen::metrics, yarn},
    {m + "window_size", "[2, 0]", Seen::metrics},
    {m + "sliding_window", "3", Seen::metrics},
    {m + "layer_types", "[full_attention]", Seen::metrics, {m + "sliding_window=3"}},
    {m + "qk_layernorm", "true", Seen::weights},
    {m + "query_pre_attn_scalar", "9", Seen::metrics},
    {m + "attention_logit_softcap", "0.1", Seen::metrics, {m + "init_method_std=0.5"}},
    {m + "output_logit_softcap", "0.5", Seen::metrics},
    {m + "normalization", "RMSNorm", Seen::weights},
    {m + "norm_epsilon", "0.1", Seen::metrics},
    {m + "apply_layernorm_1p", "true", Seen::weights},
    {m + "use_sandwich_norm", "true", Seen::weights},
    {m + "attn_post_norm_scale", "0.0447", Seen::weights, sandwich},
    {m + "ffn_post_norm_scale", "0.0825", Seen::weights, sandwich},
    {m + "use_final_norm", "false", Seen::weights},
    {m + "apply_residual_connection_post_norm", "true", Seen::metrics},
    {m + "use_parallel_residual", "true", Seen::metrics},
    {m + "shared_parallel_norm", "true", Seen::weights, {m + "use_parallel_residual=true"}},
    {m + "hidden_act", "swiglu", Seen::weights, {m + "ffn_hidden_size=16"}},
    {m + "swiglu", "true", Seen::weights, {m + "ffn_hidden_size=16"}},
    {m + "gated_linear_unit", "true", Seen::weights, {m + "ffn_hidden_size=16"}},
    {m + "add_bias_linear", "false", Seen::weights},
    {m + "qkv_has_bias", "false", Seen::weights},
    {m + "out_proj_has_bias", "false", Seen::weights},
    {m + "mlp_has_bias", "false", Seen::weights},
    {m + "untie_embeddings_and_output_weights", "true", Seen::weights},
    {m + "scale_embeddings", "true", Seen::metrics, rope},
    {m + "embedding_padding_token", "3", Seen::metrics},
    {m + "hidden_dropout_rate", "0.5", Seen::metrics},
    {m + "attention_dropout_rate", "0.5", Seen::metrics},
    {m + "init_method_std", "0.1", Seen::metrics},
    {m + "embedding_init_method_std", "0.1", Seen::metrics},
    {m + "init_method", "xavier_uniform", Seen::weights},
    {m + "num_experts", "4", Seen::weights, {m + "add_bias_linear=false"}},
    {m + "multi_latent_attention", "true", Seen::weights},
    {m + "q_lora_rank", "8", Seen::weights, latent},
    {m + "kv_lora_rank", "4", Seen::weights, latent},
    {m + "qk_head_dim", "8", Seen::weights, latent},
    {m + "qk_pos_emb_head_dim", "8", Seen::weights, latent},
    {m + "v_head_dim", "8", Seen::weights, latent},
    {m + "rope_type", "rope", Seen::metrics, slowed},
    {m + "rope_scaling_mscale", "2", Seen::metrics, latent_yarn},
    {m + "rope_scaling_mscale_all_dim", "2", Seen::metrics, latent_yarn},
    {m + "rotary_scaling_factor", "8", Seen::metrics, slowed},
    {m + "mscale", "2", Seen::metrics, slowed},
    {m + "mscale_all_dim", "2", Seen::metrics, slowed},
    {m + "mtp_num_layers", "1", Seen::weights, rope},
    {m + "mtp_loss_scaling_factor", "1", Seen::metrics, predicting},
    {e + "num_experts", "4", Seen::weights, {m + "add_bias_linear=false"}},
    {e + "moe_layer_freq", "[1, 0]", Seen::weights, experts + Lines{m + "num_layers=2"}},
    {e + "moe_ffn_hidden_size", "8", Seen::weights, experts},
    {e + "moe_shared_expert_intermediate_size", "8", Seen::weights, experts},
    {e + "moe_shared_expert_gate", "true", Seen::weights, experts + Lines{e + "moe_shared_expert_intermediate_size=8"}},
    {e + "moe_input_jitter_eps", "0.5", Seen::metrics, experts},
    {e + "moe_router_force_load_balancing", "true", Seen::metrics, experts},
    {e + "moe_use_upcycling",
     "true",
     Seen::outcome,
     experts + Lines{t + "load_checkpoint=first/checkpoints"},
     {m + "add_bias_linear=false", m + "ffn_hidden_size=16", t + "output_dir=first"}},
    {e + "moe_router_topk", "1", Seen::metrics, experts + Lines{e + "moe_router_pre_softmax=true"}},
    {e + "moe_router_dtype", "fp32", Seen::metrics, experts + Lines{t + "bf16=true"}},
    {e + "moe_router_score_function", "sigmoid", Seen::metrics, experts},
    {e + "moe_router_pre_softmax", "true", Seen::metrics, experts},
    {e + "moe_router_num_groups", "4", Seen::metrics, grouped},
    {e + "moe_router_group_topk", "2", Seen::metrics, grouped},
    {e + "moe_router_topk_scaling_factor", "2", Seen::metrics, experts},
    {e + "moe_router_enable_expert_bias", "true", Seen::weights,
     experts + Lines{e + "moe_router_score_function=sigmoid"}},
    {e + "moe_router_bias_update_rate", "0.1", Seen::weights,
     experts + Lines{e + "moe_router_score_function=sigmoid", e + "moe_router_enable_expert_bias=true"}},
    {e + "moe_router_load_balancing_type", "seq_aux_loss", Seen::metrics, balanced},
    {e + "moe_aux_loss_coeff", "0.1", Seen::metrics, experts},
    {e + "moe_z_loss_coeff", "0.1", Seen::metrics, experts},
    {e + "moe_expert_capacity_factor", "0.5", Seen::metrics, experts},
    {e + "moe_token_drop_policy", "position", Seen::metrics, dropping},
    {e + "moe_apply_probs_on_input", "true", Seen::metrics, one_expert},
    {m + "seq_length", "4", Seen::metrics},
    {m + "vocab_size", "96", Seen::weights},
    {m + "make_vocab_size_divisible_by", "8", Seen::weights, null_tokenizer + Lines{m + "vocab_size="}},

    {o + "optimizer_type", "sgd", Seen::weights},
    {o + "learning_rate", "1e-2", Seen::metrics},
    {o + "min_lr", "5e-4", Seen::metrics},
    {o + "lr_warmup_init", "5e-4", Seen::metrics, {o + "lr_warmup_iters=3"}},
    {o + "lr_warmup_iters", "3", Seen::metrics},
    {o + "lr_warmup_samples", "4", Seen::metrics, in_samples},
    {o + "lr_warmup_fraction", "0.5", Seen::metrics},
    {o + "lr_decay_iters", "4", Seen::metrics},
    {o + "lr_decay_samples", "9", Seen::metrics, in_samples},
    {o + "lr_decay_style", "cosine", Seen::metrics},
    {o + "lr_wsd_decay_style", "linear", Seen::metrics, wsd},
    {o + "lr_wsd_decay_iters", "2", Seen::metrics, wsd},
    {o + "lr_wsd_decay_samples", "9", Seen::metrics, {o + "lr_decay_style=WSD", o + "lr_wsd_decay_samples=6"}},
    {o + "weight_decay", "0.5", Seen::weights},
    {o + "weight_decay_incr_style", "cosine", Seen::metrics, decay_grows},
    {o + "start_weight_decay", "0.3", Seen::metrics, decay_grows},
    {o + "end_weight_decay", "0.9", Seen::metrics, decay_grows},
    {o + "clip_grad", "0.01", Seen::weights},
    {o + "no_weight_decay_params", "[word_embeddings.weight]", Seen::weights},
    {o + "param_rules", "[{params: \"*.mlp.*\", lr_mult: 0.5}]", Seen::weights},
    {o + "decoupled_lr", "5e-3", Seen::weights},
    {o + "decoupled_min_lr", "1e-3", Seen::weights, {o + "decoupled_lr=5e-3"}},
    {o + "override_opt_param_scheduler", "true", Seen::outcome, {}, other_rate},
    {o + "use_checkpoint_opt_param_scheduler", "true", Seen::outcome, {}, other_rate},

    {p + "noop_layers", "[0]", Seen::weights, {m + "num_layers=2"}},

    {d + "batch_size", "4", Seen::metrics},
    {d + "micro_batch_num", "2", Seen::metrics},
    {d + "global_batch_size", "4", Seen::metrics},
    {d + "train_samples", "8", Seen::metrics, in_samples},
    {d + "rampup_batch_size", "[2, 2, 6]", Seen::metrics, in_samples + Lines{d + "global_batch_size=6"}},
    {d + "decrease_batch_size_if_needed", "true", Seen::outcome, {d + "global_batch_size=3"}},
    {d + "dataset_type", "mock", Seen::metrics},
    {d + "data_path", "data/b", Seen::metrics},
    {d + "split", "\"50,25,25\"", Seen::metrics},
    {d + "train_data_path", "data/b", Seen::metrics, own_splits},
    {d + "valid_data_path", "data/b", Seen::metrics, own_splits},
    {d + "test_data_path", "data/b", Seen::console, own_splits},
    {d + "data_args_path", "other.txt", Seen::metrics, {d + "data_path=", d + "data_args_path=blend.txt"}},
    {d + "per_split_data_args_path",
     "other.json",
     Seen::metrics,
     {d + "data_path=", d + "split=", d + "per_split_data_args_path=blend.json"}},
    {d + "data_cache_path", "cache", Seen::files},
    {d + "mid_level_dataset_surplus", "3", Seen::metrics, {d + "data_path=[1, data/a, 1, data/b]"}},
    {d + "create_attention_mask_in_dataloader", "false", Seen::metrics,
     null_tokenizer + Lines{d + "reset_attention_mask=true"}},
    {d + "dataloader_inter_document_masking", "true", Seen::metrics},
    {t + "full_validation", "true", Seen::metrics},
    {d + "multiple_validation_sets", "true", Seen::metrics, two_sets},
    {d + "validation_set_names", "[code, prose]", Seen::metrics,
     two_sets + Lines{d + "multiple_validation_sets=true", t + "full_validation=true"}},
    {t + "new_dataset", "true", Seen::metrics, {}, first_half},
    {d + "dataloader_type", "cyclic", Seen::metrics},
    {d + "reset_position_ids", "true", Seen::metrics, null_tokenizer},
    {d + "reset_attention_mask", "true", Seen::metrics, null_tokenizer},
    {d + "eod_mask_loss", "true", Seen::metrics, null_tokenizer},
    {d + "add_extra_token_to_sequence", "false", Seen::metrics},
    {d + "tokenizer_type", "NullTokenizer", Seen::outcome, {m + "vocab_size="}},
    {d + "vocab_size", "130", Seen::weights, null_tokenizer + Lines{m + "vocab_size="}},
    {d + "vocab_file", "large.json", Seen::weights, bpe},
    {d + "vocab_extra_ids", "100", Seen::weights, bert},
    {d + "tokenizer_model", "absent.json", Seen::outcome, tik},
    {d + "tiktoken_pattern", "v2", Seen::outcome, no_pattern},
    {d + "tiktoken_num_special_tokens", "2", Seen::outcome, tik},
    {d + "tiktoken_special_tokens", "[<unk>, <s>]", Seen::outcome, tik},
    {d + "tokenizer_model", "large.model", Seen::weights, sentencepiece},
    {d + "vocab_extra_ids", "100", Seen::weights, sentencepiece},
    {d + "chat_template", "\"{% for m in messages %}{{ m.content }}aa{% endfor %}\"", Seen::metrics, sft},
    {d + "sft_tokenizer_prompt_format", "identity", Seen::outcome, sft},
    {d + "sft_answers_only", "true", Seen::metrics, sft},
    {d + "sft_lines_per_sample", "2", Seen::metrics, sft},
    {d + "mask_history", "true", Seen::metrics, sft + Lines{d + "sft_answers_only=true"}},
    {d + "neat_pack", "true", Seen::metrics, packed},
    {d + "padded_samples", "true", Seen::metrics, instruction + Lines{d + "no_shuffle=true"}},
    {d + "no_shuffle", "true", Seen::metrics, instruction},
    {d + "cut_max_seqlen", "true", Seen::metrics, instruction},
    {d + "prompt_type", "glm4", Seen::outcome, instruction},
    {d + "is_pairwise_dataset", "true", Seen::outcome, instruction},
};

/// An option of the parallel layout: with it and without it a run of so many ranks is taken, and its ranks hold other
/// parts of the model or have another schedule.
struct LayoutCase {
  std::string key, value;
  std::int64_t ranks;
  Lines with = {};  ///< laid over the usual recipe, with four layers, with and without the change
};

inline const Lines two_stages = {p + "pipeline_model_parallel_size=2"};
inline const Lines three_stages = {p + "pipeline_model_parallel_size=3", m + "num_layers=6"};
inline const Lines two_chunks = {two_stages[0], p + "virtual_pipeline_model_parallel_size=2", d + "micro_batch_num=8"};

inline const std::vector<LayoutCase> layout_cases = {
    {p + "tensor_model_parallel_size", "2", 2},
    {p + "pipeline_model_parallel_size", "2", 2},
    {p + "context_parallel_size", "2", 2},
    {p + "use_tp_pp_dp_mapping", "true", 4, two_stages},
    {p + "virtual_pipeline_model_parallel_size", "2", 2, two_stages + Lines{d + "micro_batch_num=2"}},
    {p + "num_virtual_stages_per_pipeline_rank", "2", 2, two_stages + Lines{d + "micro_batch_num=2"}},
    {p + "num_layers_per_virtual_pipeline_stage", "1", 2, two_stages + Lines{d + "micro_batch_num=2"}},
    {p + "microbatch_group_size_per_vp_stage", "4", 2, two_chunks},
    {p + "num_layer_list", "[3, 1]", 2, two_stages},
    {p + "decoder_first_pipeline_num_layers", "3", 2, two_stages},
    {p + "decoder_last_pipeline_num_layers", "3", 2, two_stages},
    {p + "pipeline_model_parallel_layout", "Ettt|tL", 2, two_stages},
    {p + "standalone_embedding_stage", "true", 3, three_stages},
};

/// Options that only refuse: nothing else is promised of them.
inline const std::map<std::string, std::string> refusing = {
    {p + "data_parallel_size", "it follows from the number of ranks; another number is refused"},
    {p + "select_comm_recompute", "not built; any number of layers is refused"},
    {m + "spec", "a name of layers that other options describe; another one is refused"},
};

inline const std::map<std::string, std::string> exempt = {
    {t + "exit_duration_in_mins", "a minute is the least, too long for a test"},
    {t + "num_threads", "the promise is that nothing changes; tests/end_to_end holds it"},
    {m + "model_type", "there is one type so far"},
    {lora + "qlora", "it needs a model of Transformers; tests/end_to_end/four_bits_test.py has its effect"},
    {lora + "qlora_double_quant", "as qlora"},
    {t + "objective", "there is one type so far"},
    {v + "vision_start_token_id", "folders of Transformers have it; the model reads placeholders alone"},
    {t + "profile_communication", "one rank has no communication; tests/training/profiler_test.cpp holds it"},
    {e + "moe_layer_recompute", "the promise is that no bit changes; tests/model holds it"},
    {e + "moe_per_layer_logging", "curves of TensorBoard; tests/reporting/run_log_test.cpp reads them"},
    {e + "moe_pad_expert_input_to_capacity", "padding changes no number, and none is computed"},
    {m + "recompute_granularity", "the promise is that no bit changes; tests/model holds it"},
    {m + "recompute_method", "as recompute_granularity"},
    {m + "recompute_num_layers", "as recompute_granularity"},
    {m + "recompute_modules", "as recompute_granularity"},
    {m + "recompute_norm", "as recompute_granularity"},
    {m + "recompute_norm_num_layers", "as recompute_granularity"},
    {m + "recompute_activation_function", "as recompute_granularity"},
    {m + "recompute_activation_function_num_layers", "as recompute_granularity"},
    {m + "enable_recompute_layers_per_pp_rank", "as recompute_granularity"},
    {p + "recompute", "as recompute_granularity; tests/end_to_end/parity_test.py holds it over stages"},
    {p + "select_recompute", "as recompute"},
    {"resilience_config.policy",
     "one process without tsrun keeps nothing; tests/end_to_end/faults_test.py has its effect"},
    {"resilience_config.require_host",
     "one process without tsrun is refused; tests/end_to_end/host_loss_test.py has its effect"},
    {"resilience_config.step_time_out", "one process waits for nobody; tests/end_to_end/faults_test.py has its effect"},
    {"resilience_config.roll_back_after", "tests/end_to_end/numbers_test.py has its effect"},
    {"training_config.check_for_spiky_loss",
     "no loss of these runs is a spike; tests/end_to_end/numbers_test.py has its effect"},
    {"training_config.check_for_large_grads",
     "no gradient of these runs is large; tests/end_to_end/numbers_test.py has its effect"},
    {"resilience_config.check_state_interval",
     "sound state stays as it is; tests/end_to_end/flips_test.py has its effect"},
    {"resilience_config.check_updates", "as check_state_interval"},
    {"resilience_config.straggler_ratio",
     "it changes what is logged; tests/training/straggler_watch_test.cpp has its effect"},
    {"resilience_config.inject_fault", "it ends the process; tests/end_to_end/faults_test.py has its effect"},
    {t + "distributed_timeout_minutes", "one process waits for nobody; tests/comm holds time-outs"},
    {t + "bucket_size", "one process sums nothing; tests/parallel reads it"},
    {t + "overlap_grad_reduce", "as bucket_size"},
    {t + "delay_grad_reduce", "as bucket_size"},
    {t + "use_distributed_optimizer", "as bucket_size"},
    {o + "overlap_param_gather",
     "the promise is that no loss changes; tests/end_to_end/parity_test.py compares such runs with one process"},
    {p + "zero_level", "as bucket_size"},
    {p + "overlap_grad_reduce", "as bucket_size"},
    {p + "sequence_parallel", "means nothing on one process"},
    {p + "cp_comm_type",
     "the promise is that results do not change; tests/parallel/ranks/context_attention.cpp holds it"},
    {p + "context_parallel_algo", "as cp_comm_type; tests/parallel/context_options_test.cpp reads it"},
    {p + "hierarchical_context_parallel_sizes", "as context_parallel_algo"},
    {p + "ulysses_degree_in_cp", "as context_parallel_algo"},
    {p + "expert_tensor_parallel_size",
     "on one process every expert is whole; tests/parallel/ranks/experts.cpp divides them"},
    {p + "expert_model_parallel_size", "as expert_tensor_parallel_size"},
    {p + "account_for_embedding_in_pipeline_split", "one stage has all layers; tests/parallel shares them out"},
    {p + "account_for_loss_in_pipeline_split", "as account_for_embedding_in_pipeline_split"},
    {d + "data_sharding", "on one rank both orders are the same; tests/data compares them on several"},
    {d + "drop_last_partial_validation_sequence",
     "a run repeats its data rather than meet its end; tests/data reads a single pass"},
    {d + "num_dataset_builder_threads", "the promise is that no order changes; tests/data holds it"},
    {d + "mmap_bin_files", "the promise is that no token changes; tests/data holds it"},
    {d + "no_shared_storage", "one process waits for nobody; tests/data holds who waits for whom"},
    {d + "allow_ambiguous_pad_tokens", "needs a tokenizer whose pad token ends documents too; tests/data holds it"},
    {d + "num_workers",
     "the promise is that nothing changes; tests/data/batch_loader_test.cpp counts what is read ahead"},
    {d + "bad_sample_limit", "needs a sample that cannot be used; tests/end_to_end/bad_samples_test.py has them"},
    {d + "quarantine_file", "as bad_sample_limit"},
    {d + "merge_file", "only used to turn text into ids; tests/data does"},
};

}  // namespace tessera::recipe::every_option
