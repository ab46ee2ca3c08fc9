#pragma once

#include <string>

#include "tests/recipe/groups.h"

// What a case of every_option_test.cpp is, and what cases lay over the usual recipe.
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
inline const Lines longrope = {llama3[0],
                               llama3[1],
                               m + "rope_scaling_type=longrope",
                               m + "rope_scaling_original_max_position_embeddings=4",
                               m + "rope_scaling_short_factor=[1.0, 1.5]",
                               m + "rope_scaling_long_factor=[2.0, 5.0]"};
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

/// Conversations as texts.
inline const Lines texts =
    bpe + Lines{d + "dataset_type=instruction", d + "data_path=rows.jsonl", d + "split=\"70,20,10\"",
                d + "handler_name=AlpacaStyleInstructionHandler", d + "prompt_type=empty"};

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

}  // namespace tessera::recipe::every_option
