#include "tests/golden/arguments.h"

#include <map>
#include <set>

#include "framework/base/error.h"

namespace tessera::golden {
namespace {

using Json = nlohmann::json;

/// Said by config.json too, by the tensors, or by the curve's hyper-parameters; or of no influence on numbers in fp32.
const std::set<std::string>& known_elsewhere() {
  static const std::set<std::string> all = {
      "num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads", "kv_channels", "group_query_attention",
      "num_query_groups", "max_position_embeddings", "seq_length", "position_embedding_type", "rotary_base",
      "rotary_percent", "rotary_interleaved", "normalization", "norm_epsilon", "swiglu", "add_bias_linear",
      "add_qkv_bias", "untie_embeddings_and_output_weights", "vocab_size", "padded_vocab_size",
      "make_vocab_size_divisible_by", "init_method_std", "adam_beta1", "adam_beta2", "adam_eps", "lr", "min_lr",
      "lr_decay_style", "lr_decay_iters", "lr_decay_samples", "lr_warmup_iters", "lr_warmup_samples",
      "lr_warmup_fraction", "lr_warmup_init", "weight_decay", "start_weight_decay", "end_weight_decay",
      "weight_decay_incr_style", "clip_grad", "train_iters", "global_batch_size", "micro_batch_size", "seed",
      // the batches say it
      "reset_position_ids", "eod_mask_loss", "reset_attention_mask", "num_experts", "moe_router_topk",
      "moe_ffn_hidden_size",
      // read beside this table
      "hidden_dropout", "attention_dropout", "calculate_per_token_loss",
      // how, not what
      "moe_grouped_gemm", "moe_token_dispatcher_type", "bias_gelu_fusion", "bias_swiglu_fusion", "bias_dropout_fusion",
      "apply_rope_fusion", "masked_softmax_fusion", "attention_softmax_in_fp32", "apply_query_key_layer_scaling",
      "use_flash_attn", "transformer_impl", "recompute_granularity", "recompute_method", "recompute_num_layers",
      "recompute_modules",
      // Megatron-LM reads it nowhere
      "apply_residual_connection_post_layernorm"};
  return all;
}

/// Arguments that become options of model_config, or of moe_config if they begin with moe_, with the value that says
/// nothing.
struct Row {
  std::string option;
  Json usual;
};
const std::map<std::string, Row>& options() {
  static const std::map<std::string, Row> all = {
      {"window_size", {"window_size", nullptr}},
      {"qk_layernorm", {"qk_layernorm", false}},
      {"apply_layernorm_1p", {"apply_layernorm_1p", false}},
      {"squared_relu", {"squared_relu", false}},
      {"use_rope_scaling", {"use_rope_scaling", false}},
      {"rope_scaling_factor", {"rope_scaling_factor", 8.0}},
      {"rotary_seq_len_interpolation_factor", {"rotary_seq_len_interpolation_factor", nullptr}},
      {"moe_router_load_balancing_type", {"moe_router_load_balancing_type", nullptr}},
      {"moe_aux_loss_coeff", {"moe_aux_loss_coeff", 0.0}},
      {"moe_z_loss_coeff", {"moe_z_loss_coeff", nullptr}},
      {"moe_router_pre_softmax", {"moe_router_pre_softmax", false}},
      {"moe_router_dtype", {"moe_router_dtype", nullptr}},
      {"moe_router_score_function", {"moe_router_score_function", "softmax"}},
      {"moe_expert_capacity_factor", {"moe_expert_capacity_factor", nullptr}},
      {"moe_layer_freq", {"moe_layer_freq", 1}}};
  return all;
}

/// What is not built, with the value that leaves it out.
const std::map<std::string, Json>& not_built() {
  static const std::map<std::string, Json> all = {
      {"multi_latent_attention", false}, {"mtp_num_layers", nullptr}, {"mrope_section", nullptr}};
  return all;
}

}  // namespace

void read_arguments(const Json& arguments, const std::function<void(const std::string&, const Json&)>& set) {
  for (const auto& [name, value] : arguments.items()) {
    if (known_elsewhere().count(name)) continue;
    if (const auto row = options().find(name); row != options().end()) {
      if (value != row->second.usual && !value.is_null()) set(row->second.option, value);
      continue;
    }
    if (name == "optimizer") {
      if (value != "adam") throw ConfigError(text("arguments.json: optimizer ", value.dump(), " is not built here"));
      continue;
    }
    const auto absent = not_built().find(name);
    if (absent == not_built().end() || (value != absent->second && !value.is_null()))
      throw ConfigError(text("arguments.json: ", name, " ", value.dump(), " is not built"));
  }
}

}  // namespace tessera::golden
