// What a rule says has no effect has none: a small model trains to the same numbers whatever the option says.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "framework/base/files.h"
#include "framework/indexed/indexed_dataset.h"
#include "framework/options/yaml.h"
#include "framework/recipe/build.h"
#include "framework/recipe/describe.h"
#include "framework/training/loop/trainer.h"
#include "tests/own_folder.h"
#include "tests/pairs_of_rows.h"
#include "tests/recipe/groups.h"
#include "tests/recipe/small_run.h"
#include "tests/sanitized.h"

namespace tessera::recipe {
namespace {

struct Effect {
  std::string key, value, other;  ///< two values that it may have
  Lines with = {};                ///< what makes it idle, over the usual recipe
};

const Lines constant = {o + "lr_decay_style=constant", o + "learning_rate=1e-3"}, anew = {t + "resume_training=false"},
            rope = {m + "position_embedding_type=rope"}, swiglu = {m + "swiglu=true", m + "ffn_hidden_size=32"},
            biases = {m + "qkv_has_bias=true", m + "out_proj_has_bias=false", m + "mlp_has_bias=true"},
            pairs = {"dataset_config.dataset_type=instruction", "dataset_config.data_path=pairs",
                     "dataset_config.split=\"1,0,0\"", "dataset_config.is_pairwise_dataset=true", t + "stage=orpo"},
            xavier = {m + "init_method=xavier_uniform"}, lists = {p + "recompute=[[1]]"},
            grows = {o + "weight_decay_incr_style=linear", o + "start_weight_decay=0", o + "end_weight_decay=0.1"};

const std::string lora = "lora_config.", pref = "preference_config.";
const Lines orpo = {t + "stage=orpo", d + "dataset_type=pairs_of_rows"};

const std::vector<Effect> cases = {
    {m + "rotary_base", "100", "10"},
    {m + "rotary_percent", "0.5", "1"},
    {m + "rotary_interleaved", "true", "false"},
    {m + "rotary_seq_len_interpolation_factor", "2", "3"},
    {m + "rope_local_base_freq", "100", "10", {m + "sliding_window=3"}},
    {m + "no_rope_freq", "2", "1"},
    {m + "scale_alibi", "true", "false"},
    {m + "round_alibi", "true", "false"},
    {m + "position_embedding_offset", "2", "3", rope},
    {m + "qk_layernorm_all_heads", "true", "false", {m + "normalization=RMSNorm"}},
    {m + "rope_scaling_short_factor", "[1.0, 2.0]", "[2.0, 4.0]", rope},
    {m + "rope_scaling_long_factor", "[1.0, 2.0]", "[2.0, 4.0]", rope},
    {m + "rope_scaling_type", "llama3", "none"},
    {m + "rope_scaling_factor", "4", "2", rope},
    {m + "rope_scaling_original_max_position_embeddings", "4", "20", rope},
    {m + "rope_scaling_low_freq_factor", "2", "1", rope},
    {m + "rope_scaling_high_freq_factor", "3", "8", rope},
    {m + "rope_scaling_beta_fast", "2", "8", rope},
    {m + "rope_scaling_beta_slow", "2", "4", rope},
    {m + "yarn_correction_range_round_to_int", "false", "true", rope},
    {m + "rope_scaling_attention_factor", "2", "4", rope},
    {m + "rope_scaling_mscale", "2", "4", rope},
    {m + "rope_scaling_mscale_all_dim", "2", "4", rope},
    {m + "num_query_groups", "2", "4"},
    {m + "attn_post_norm_scale", "2", "4"},
    {m + "ffn_post_norm_scale", "2", "4"},
    {m + "hidden_act", "silu", "gelu", swiglu},
    {m + "gated_linear_unit", "true", "false", {m + "hidden_act=geglu", m + "ffn_hidden_size=32"}},
    {m + "add_bias_linear", "true", "false", biases},
    {m + "init_method_std", "0.1", "0.2", xavier},
    {m + "make_vocab_size_divisible_by", "100", "7"},
    {m + "recompute_modules", "[mlp]", "[core_attn]"},
    {m + "recompute_granularity", "selective", "none", lists},
    {m + "recompute_method",
     "block",
     "uniform",
     {p + "recompute=[[1]]", m + "recompute_granularity=full", m + "recompute_num_layers=1"}},
    {m + "recompute_num_layers",
     "1",
     "2",
     {p + "recompute=[[1]]", m + "recompute_granularity=full", m + "recompute_method=block"}},
    {m + "recompute_activation_function",
     "true",
     "false",
     {m + "recompute_granularity=selective", m + "recompute_modules=[mlp, moe]"}},
    {m + "enable_recompute_layers_per_pp_rank", "true", "false"},
    {t + "loss_scale_value", "2", "4"},
    {t + "min_loss_scale", "2", "4"},
    {t + "loss_scale_window", "2", "4"},
    {t + "loss_scale_factor", "3", "4"},
    {t + "hysteresis", "2", "4"},
    {t + "accumulate_allreduce_grads_in_fp32", "true", "false"},
    {t + "eval_interval", "1", "2", {t + "eval_iters=0"}},
    {t + "async_save", "true", "false"},
    {"resilience_config.roll_back_after", "3", "4"},
    {t + "error_injection_rate", "3", "4", {t + "rerun_mode=disabled"}},
    {t + "error_injection_type", "persistent_error", "transient_error"},
    {t + "delay_grad_reduce", "true", "false"},
    {t + "no_load_optim", "true", "false", anew},
    {t + "no_load_rng", "true", "false", anew},
    {t + "ckpt_step", "2", "3", anew},
    {t + "dist_ckpt_strictness", "log_all", "raise_all", anew},
    {t + "use_mp_args_from_checkpoint_args", "true", "false"},
    {t + "non_persistent_ckpt_type", "global", "null"},
    {t + "non_persistent_global_ckpt_dir", "one", "two"},
    {t + "non_persistent_local_ckpt_dir", "one", "two"},
    {t + "ckpt_convert_save", "one", "two"},
    {t + "load_main_params_from_ckpt", "false", "null", anew},
    {t + "allow_changes", "[model_config.norm_epsilon]", "[]", anew},
    {t + "ignore_config_keys", "[clever]", "[]"},
    {t + "crc_check", "true", "false", anew},
    {t + "save_frozen_parameters", "true", "false"},
    {t + "freeze_trainable_modules", "[mlp]", "[all]"},
    {t + "freeze_extra_modules", "[wpe]", "[wte]"},
    {t + "freeze_all_layers", "true", "false", {t + "trainable_parameters=['.*bias']"}},
    {t + "calculate_per_token_loss", "true", "false", orpo},
    {t + "calculate_per_sample_loss", "true", "false", orpo},
    {m + "untie_embeddings_and_output_weights", "true", "false", {t + "stage=rm", orpo[1], m + "score_head=true"}},
    {m + "output_layer_has_bias", "true", "false", {t + "stage=rm", orpo[1], m + "score_head=true"}},
    {m + "output_multiplier", "2", "4", {t + "stage=rm", orpo[1], m + "score_head=true"}},
    {lora + "target_cells", "[all]", "[none]"},
    {lora + "target_modules", "[q_proj]", "[k_proj]"},
    {lora + "target_parameters", "[mlp.gate.weight]", "[]"},
    {lora + "exclude_modules", "[q_proj]", "[k_proj]"},
    {lora + "layers_to_transform", "[0]", "[1]"},
    {lora + "lora_rank", "2", "3"},
    {lora + "lora_alpha", "2", "3"},
    {lora + "lora_dropout", "0.2", "0.3"},
    {lora + "rank_pattern", "{q_proj: 2}", "{q_proj: 3}"},
    {lora + "alpha_pattern", "{q_proj: 2}", "{q_proj: 3}"},
    {lora + "use_rslora", "true", "false"},
    {lora + "use_dora", "true", "false"},
    {lora + "bias", "all", "none"},
    {lora + "modules_to_save", "[output_layer]", "[]"},
    {lora + "init_lora_weights", "gaussian", "false"},
    {lora + "loraplus_lr_ratio", "2", "3"},
    {lora + "loraplus_lr_embedding", "2", "3"},
    {lora + "adapter", "here", "there"},
    {lora + "qlora_double_quant", "true", "false"},
    {pref + "dpo_loss_type", "ipo", "hinge"},
    {pref + "dpo_beta", "0.2", "0.3"},
    {pref + "dpo_label_smoothing", "0.2", "0.3"},
    {pref + "pref_ftx", "0.2", "0.3"},
    {pref + "ref_model", "somewhere", "elsewhere", orpo},
    {pref + "refer_model_iter", "2", "3"},
    {pref + "cache_reference", "true", "false"},
    {pref + "simpo_loss_type", "ipo", "hinge", orpo},
    {pref + "simpo_beta", "2", "3"},
    {pref + "gamma_beta_ratio", "2", "3"},
    {pref + "simpo_label_smoothing", "0.2", "0.3"},
    {pref + "orpo_beta", "0.2", "0.3"},
    {o + "min_lr", "1e-4", "1e-5", constant},
    {o + "decoupled_min_lr", "1e-4", "1e-5"},
    {o + "lr_decay_iters", "2", "30", constant},
    {o + "lr_decay_samples",
     "2",
     "30",
     {constant[0], constant[1], t + "training_iters=0", "dataset_config.train_samples=8"}},
    {o + "lr_warmup_init", "1e-4", "1e-5"},
    {o + "weight_decay", "0.3", "0.7", grows},
    {o + "start_weight_decay", "0.01", "0.010", {}},
    {o + "end_weight_decay", "0.01", "0.010", {}},
    {o + "override_opt_param_scheduler", "true", "false", anew},
    {o + "use_checkpoint_opt_param_scheduler", "true", "false", anew},
    {o + "sgd_nesterov", "true", "false", {o + "optimizer_type=sgd", o + "sgd_momentum=0"}},
    {o + "muon_nesterov", "true", "false", {o + "optimizer_type=muon", o + "muon_momentum=0"}},
    {m + "q_lora_rank", "8", "16"},
    {m + "kv_lora_rank", "8", "16"},
    {m + "qk_head_dim", "8", "16"},
    {m + "qk_pos_emb_head_dim", "8", "16"},
    {m + "v_head_dim", "8", "16"},
    {m + "rope_type", "rope", "yarn"},
    {m + "rotary_scaling_factor", "2", "4"},
    {m + "mscale", "2", "4"},
    {m + "mscale_all_dim", "2", "4"},
    {m + "mtp_loss_scaling_factor", "0.2", "0.4"},
    {m + "mrope_section", "[1, 1, 0]", "[0, 1, 1]"},
    {m + "mrope_tables_in_fp32", "true", "false"},
    {v + "num_layers", "1", "2"},
    {v + "hidden_size", "64", "128"},
    {v + "ffn_hidden_size", "8", "16"},
    {v + "num_attention_heads", "2", "4"},
    {v + "in_channels", "1", "3"},
    {v + "patch_size", "2", "4"},
    {v + "temporal_patch_size", "1", "2"},
    {v + "spatial_merge_size", "1", "2"},
    {v + "normalization", "RMSNorm", "LayerNorm"},
    {v + "norm_epsilon", "0.1", "0.2"},
    {v + "hidden_act", "silu", "gelu"},
    {v + "gated_linear_unit", "true", "false"},
    {v + "add_bias_linear", "true", "false"},
    {v + "rotary_base", "10", "100"},
    {v + "window_size", "112", "224"},
    {v + "full_attention_layers", "[0]", "[1]"},
    {v + "tokens_per_second", "2", "4"},
    {v + "init_method_std", "0.1", "0.2"},
    {v + "image_token_id", "1", "2"},
    {v + "video_token_id", "1", "2"},
    {v + "vision_start_token_id", "1", "2"},
    {v + "feature_cache_path", "a", "b"},
    {e + "moe_layer_freq", "1", "2"},
    {e + "moe_ffn_hidden_size", "8", "16"},
    {e + "moe_shared_expert_intermediate_size", "8", "16"},
    {e + "moe_shared_expert_gate", "true", "false"},
    {e + "moe_use_upcycling", "true", "false"},
    {e + "moe_layer_recompute", "true", "false"},
    {e + "moe_input_jitter_eps", "0.1", "0.2"},
    {e + "moe_router_force_load_balancing", "true", "false"},
    {e + "moe_router_topk", "3", "4"},
    {e + "moe_router_dtype", "fp32", "~"},
    {e + "moe_router_score_function", "sigmoid", "softmax"},
    {e + "moe_router_pre_softmax", "true", "false"},
    {e + "moe_router_num_groups", "2", "4"},
    {e + "moe_router_group_topk", "1", "2", {e + "moe_router_num_groups=2"}},
    {e + "moe_router_topk_scaling_factor", "2", "4"},
    {e + "moe_router_enable_expert_bias", "true", "false", {e + "moe_router_score_function=sigmoid"}},
    {e + "moe_router_bias_update_rate", "0.1", "0.2"},
    {e + "moe_router_load_balancing_type", "none", "seq_aux_loss"},
    {e + "moe_aux_loss_coeff", "0.1", "0.2"},
    {e + "moe_z_loss_coeff", "0.1", "0.2"},
    {e + "moe_per_layer_logging", "true", "false"},
    {e + "moe_expert_capacity_factor", "1", "2"},
    {e + "moe_pad_expert_input_to_capacity", "true", "false", {e + "moe_expert_capacity_factor=1"}},
    {e + "moe_token_drop_policy", "position", "probs"},
    {e + "moe_apply_probs_on_input", "true", "false", {e + "moe_router_topk=1"}},
    {t + "profile_save_path", "traces", "others"},
    {t + "profile_step_start", "2", "3"},
    {t + "profile_step_end", "2", "3"},
    {t + "profile_ranks", "[1]", "[0]"},
    {t + "profile_level", "level1", "level0"},
    {t + "profile_memory", "true", "false"},
    {t + "profile_framework", "time", "None", {t + "profile=true"}},
    {t + "profile_op_time", "false", "true"},
    {t + "profile_communication", "true", "false"},
    {t + "profile_parallel_strategy", "true", "false"},
    {t + "profile_data_process", "true", "false"},
    {t + "profile_offline_analyse", "true", "false"},
    {p + "sequence_parallel", "true", "false"},
    {p + "cp_comm_type", "a2a", "p2p"},
    {p + "expert_tensor_parallel_size", "1", "2"},
    {p + "hierarchical_context_parallel_sizes", "[2, 2]", "[4]"},
    {p + "context_parallel_algo", "ulysses_cp_algo", "hybrid_cp_algo"},
    {p + "ulysses_degree_in_cp", "2", "4"},
    {p + "use_tp_pp_dp_mapping", "true", "false"},
    {p + "account_for_embedding_in_pipeline_split", "true", "false"},
    {p + "account_for_loss_in_pipeline_split", "true", "false"},
    {p + "microbatch_group_size_per_vp_stage", "1", "2"},
    {p + "num_layers_per_virtual_pipeline_stage", "1", "2", {p + "num_layer_list=[2]"}},
    {"dataset_config.reset_position_ids", "true", "false", pairs},
    {"dataset_config.reset_attention_mask", "true", "false", pairs},
    {"dataset_config.neat_pack", "true", "false", pairs},
    {"dataset_config.cut_max_seqlen", "true", "false", pairs},
    {"training_config.wandb_exp_name", "one", "other"},
    {"training_config.wandb_save_dir", "one", "other"},
    {"dataset_config.prompt_type", "glm4", "qwen", pairs},
    {"dataset_config.data_cache_path", "one", "other", pairs},
    {"dataset_config.map_keys", R"("{}")", "null", pairs},
    {"dataset_config.enable_thinking", "true", "false", pairs},
    {"dataset_config.max_samples", "1", "2", pairs},
    {"dataset_config.train_on_prompt", "true", "false", pairs},
    {"dataset_config.mask_history", "true", "false", pairs},
};

class Effects : public InOwnFolder {
 protected:
  Effects() : InOwnFolder(folder_in_memory()) {}
  void SetUp() override {
    write_token_file("tokens", 7);
    for (const auto* key : {"chosen_input_ids", "chosen_labels", "rejected_input_ids", "rejected_labels"}) {
      indexed::IndexedDatasetBuilder file(text("pairs_packed_", key, "_document"), indexed::TokenType::int32);
      const auto ignored = [&](std::int32_t id) { return std::string(key).ends_with("labels") ? -100 : id; };
      for (std::int32_t i = 0; i < 4; ++i) {
        const std::int32_t answer = key[0] == 'c' ? 3 : 7;
        file.add_sequence(std::vector<std::int32_t>{ignored(i), ignored(i + 9), answer, answer + i});
        file.end_document();
      }
      file.finish();
    }
    write("run.yaml",
          "training_config: {training_iters: 3, output_dir: run, log_interval: 1, tensorboard: false, eval_iters: 0}\n"
          "model_config: {num_layers: 2, hidden_size: 16, num_attention_heads: 4, seq_length: 8, vocab_size: 64}\n"
          "dataset_config: {data_path: tokens, batch_size: 2}\n");
  }
  static Recipe recipe(const Lines& sets) {
    Registries registries;
    data::register_pairs(registries.datasets);
    return read_recipe("run.yaml", sets, registries);
  }
  static bool idle(const Lines& sets, const std::string& key) {
    for (const auto& one : recipe(sets).without_effect())
      if (one.option == key) return true;
    return false;
  }
  /// The loss and the gradient of every step.
  static std::string outcome(const Lines& sets) {
    std::filesystem::remove_all("run");
    testing::internal::CaptureStdout();
    const training::StopSignal stop;
    training::train(build(recipe(sets)), stop);
    testing::internal::GetCapturedStdout();
    std::string numbers;
    std::istringstream lines(read_file("run/metrics.jsonl"));
    for (std::string line; std::getline(lines, line);)
      for (const auto* name : {"\"loss\":", "\"grad_norm\":"})
        if (const auto at = line.find(name); at != std::string::npos)
          numbers += line.substr(at, line.find_first_of(",}", at) - at) + "\n";
    return numbers;
  }
};

/// Every rule is evaluated for every case. Each training takes most of a second under a sanitizer, so there a few
/// cases, drawn at random, are trained; all are trained without.
TEST_F(Effects, WhatHasNoneChangesNothing) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(text("seed ", seed));
  std::mt19937 random(seed);
  std::vector<std::size_t> order(cases.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::shuffle(order.begin(), order.end(), random);
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (i % part_of_inputs != 0) continue;
    const auto& c = cases[order[i]];
    const auto one = c.with + Lines{c.key + "=" + c.value}, other = c.with + Lines{c.key + "=" + c.other};
    try {
      EXPECT_TRUE(idle(one, c.key)) << c.key;
      const auto numbers = outcome(one);
      EXPECT_GT(numbers.size(), 60U) << c.key;
      EXPECT_EQ(numbers, outcome(other)) << c.key;
    } catch (const ConfigError& error) {
      ADD_FAILURE() << c.key << ": " << error.what();
    }
  }
}

TEST(EffectRules, EachOptionWithAConditionHasACase) {
  std::set<std::string> known, all;
  for (const auto& c : cases) known.insert(c.key);
  for (const auto& [group, schemas] : all_facts({}))
    for (const auto& schema : schemas)
      for (const auto& option : schema.options)
        if (!option.no_effect_if.empty()) all.insert(group + "." + option.name);
  EXPECT_EQ(known, all);
}

TEST_F(Effects, AnOptionThatMattersIsNotListed) {
  EXPECT_FALSE(idle({m + "rotary_base=10"}, m + "num_layers"));
  EXPECT_FALSE(idle(rope + Lines{m + "rotary_base=10"}, m + "rotary_base"));
  EXPECT_FALSE(idle({t + "fp16=true", t + "hysteresis=3"}, t + "hysteresis"));
  EXPECT_TRUE(idle({t + "fp16=true", t + "loss_scale=8", t + "hysteresis=3"}, t + "hysteresis"));
  EXPECT_FALSE(idle({m + "group_query_attention=true", m + "num_query_groups=2"}, m + "num_query_groups"));
  EXPECT_FALSE(idle(constant + Lines{o + "lr_warmup_fraction=0.5", o + "lr_decay_iters=2"}, o + "lr_decay_iters"));
  EXPECT_TRUE(recipe({}).without_effect().empty());
}

TEST_F(Effects, OneIsToldWithItsPlaceAndItsReason) {
  write("idle.yaml", "base: run.yaml\nmodel_config:\n  rotary_base: 10\n  use_flash_attention: true\n");
  const auto all = read_recipe("idle.yaml", {}, {}).without_effect();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(text(all[0].at), "idle.yaml:3");
  EXPECT_EQ(all[0].why, "`position_embedding_type` is neither rope nor mrope");
  EXPECT_EQ(all[1].option, "model_config.use_flash_attention");
}

TEST_F(Effects, WhatStandsInForNullIsDerivedByTheOneWhoReadsIt) {
  const auto plain = recipe({}), gated = recipe({m + "hidden_act=swiglu", m + "hidden_size=96", t + "bf16=true"});
  EXPECT_EQ(plain.derived(m + "ffn_hidden_size")->value, "64");
  EXPECT_EQ(plain.derived(m + "ffn_hidden_size")->how.rfind("4 x `hidden_size`", 0), 0U);
  EXPECT_EQ(gated.derived(m + "ffn_hidden_size")->value, "256");
  EXPECT_EQ(gated.derived(m + "params_dtype")->value, "bfloat16");
  EXPECT_EQ(plain.derived(m + "kv_channels")->value, "4");
  EXPECT_EQ(plain.derived(o + "lr_decay_iters")->value, "3");
  EXPECT_FALSE(recipe({m + "ffn_hidden_size=7"}).derived(m + "ffn_hidden_size"));
  EXPECT_FALSE(plain.derived(t + "save_interval"));
}

/// One of each line, drawn at random.
Lines drawn_recipe(std::mt19937& random) {
  const std::vector<std::vector<Lines>> choices = {
      {{}, rope, rope + Lines{m + "rotary_seq_len_interpolation_factor=2"}},
      {{}, {m + "rope_scaling_type=yarn"}, {m + "rope_scaling_type=llama3"}},
      {{m + "rope_scaling_factor=0.5"}, {m + "rope_scaling_factor=1"}, {m + "rope_scaling_factor=4"}},
      {{m + "hidden_act=gelu"}, {m + "hidden_act=swiglu"}, {m + "hidden_act=relu", m + "gated_linear_unit=true"}},
      {{m + "hidden_size=32"}, {m + "hidden_size=48"}},
      {{m + "num_attention_heads=2"}, {m + "num_attention_heads=4"}},
      {{}, {m + "add_bias_linear=false"}},
      {{}, {m + "window_size=[2, 0]"}},
      {{}, xavier, {m + "init_method_std=0.1"}},
      {{}, {t + "bf16=true"}, {t + "fp16=true"}, {t + "bf16=true", m + "fp32_residual_connection=true"}},
      {{}, {"dataset_config.micro_batch_num=2"}, {"dataset_config.global_batch_size=4"}},
      {{}, {o + "decoupled_lr=2e-3", o + "min_lr=1e-5"}},
      {{}, constant, {o + "lr_decay_style=cosine", o + "lr_warmup_fraction=0.4"}},
  };
  Lines all = {m + "untie_embeddings_and_output_weights=true", o + "learning_rate=1e-3"};
  for (const auto& choice : choices) all = all + choice[random() % choice.size()];
  return all;
}

TEST_F(Effects, ADerivedDefaultIsWhatTheRunUses) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(text("seed ", seed));
  std::mt19937 random(seed);
  std::set<std::string> told;
  for (int round = 0; round < (sanitized ? 2 : 16); ++round) {
    const auto sets = drawn_recipe(random);
    const auto given = recipe(sets);
    Lines written = sets;
    for (const auto& [group, schemas] : given.facts)
      for (const auto& schema : schemas)
        for (const auto& option : schema.options) {
          const auto key = group + "." + option.name;
          const auto instead = given.derived(key);
          // The length of this run is given in steps, so a length in samples is refused.
          if (!instead || instead->value.empty() || key == o + "lr_decay_samples") continue;
          written.push_back(key + "=" + instead->value);
          told.insert(key);
        }
    const auto numbers = outcome(sets);
    EXPECT_GT(numbers.size(), 60U);
    EXPECT_EQ(numbers, outcome(written)) << testing::PrintToString(written);
  }
  EXPECT_GT(told.size(), sanitized ? 0U : 25U) << testing::PrintToString(told);
}

TEST_F(Effects, EveryOptionThatSeveralGroupsSpeakOfExists) {
  const auto facts = all_facts({});
  for (const auto& entry : recipe_schema().entries()) {
    bool known = false;
    for (const auto& schema : facts.at(entry.option.substr(0, entry.option.find('.'))))
      for (const auto& option : schema.options)
        known |= option.name == entry.option.substr(entry.option.find('.') + 1) && (option.nullable || !entry.derive);
    EXPECT_TRUE(known) << entry.option;
  }
}

TEST_F(Effects, EveryOptionWithADerivedDefaultMayBeNull) {
  std::size_t derived = 0;
  for (const auto& [group, schemas] : all_facts({}))
    for (const auto& schema : schemas)
      for (const auto& option : schema.options) {
        if (option.otherwise.empty()) continue;
        ++derived;
        EXPECT_TRUE(option.nullable) << group << "." << option.name;
        EXPECT_TRUE(option.doc.find("; null: " + option.otherwise + ".") != std::string::npos) << option.doc;
      }
  EXPECT_GT(derived, 30U);
}

}  // namespace
}  // namespace tessera::recipe
