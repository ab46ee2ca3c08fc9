#include "tests/golden/arguments.h"

#include <map>
#include <set>

#include "framework/base/error.h"
#include "framework/interop/flags/flag_table.h"
#include "framework/recipe/recipe.h"

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

/// Arguments without a flag at this tag.
const std::map<std::string, std::string>& without_flag() {
  static const std::map<std::string, std::string> all = {
      {"window_size", "model_config.window_size"},
      {"moe_shared_expert_gate", "moe_config.moe_shared_expert_gate"},
      {"rope_type", "model_config.rope_type"}};
  return all;
}

/// Whether a bare flag makes its argument false: "--no-rope-fusion".
bool denies(const std::string& flag) { return flag.rfind("--no-", 0) == 0 || flag.rfind("--disable-", 0) == 0; }

std::string word_of(const Json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

options::Value value_of(const Json& value) {
  options::Value out = options::Value::of("", {"arguments.json", 0, "", 1});
  if (!value.is_array()) {
    out.scalar = word_of(value);
    return out;
  }
  out.kind = options::Value::Kind::list;
  for (const auto& item : value) out.items.push_back(value_of(item));
  return out;
}

/// The words of a command line that give an argument this value; none if its default does.
std::vector<std::string> words_of(const flags::FlagRow& row, const Json& value) {
  if (value.is_boolean())
    return value.get<bool>() != denies(row.flag) ? std::vector{row.flag} : std::vector<std::string>{};
  std::vector<std::string> words = {row.flag};
  const bool many = row.takes == flags::FlagRow::Takes::many && value.is_array();
  for (const auto& one : many ? value : Json::array({value})) words.push_back(word_of(one));
  return words;
}

/// Of the rows with this argument the one whose flag says the value.
std::vector<std::string> words_of(const flags::FlagTable& table, const std::string& name, const Json& value) {
  bool known = false;
  for (const auto& row : table.rows()) {
    if (row.dest != name) continue;
    known = true;
    if (auto words = words_of(row, value); !words.empty()) return words;
  }
  if (!known) throw ConfigError(text("arguments.json: ", name, " ", value.dump(), " is not built"));
  return {};
}

}  // namespace

void read_arguments(const Json& arguments, const std::function<void(const std::string&, const options::Value&)>& set) {
  static const auto table = flags::FlagTable::from("megatron.yaml", options::Mappings());
  const recipe::Registries registries;
  const auto facts = recipe::all_facts(registries);
  std::vector<std::string> command_line;
  for (const auto& [name, value] : arguments.items()) {
    if (known_elsewhere().count(name) || value.is_null()) continue;
    if (const auto own = without_flag().find(name); own != without_flag().end()) {
      set(own->second, value_of(value));
    } else if (name == "optimizer") {
      if (value != "adam") throw ConfigError(text("arguments.json: optimizer ", value.dump(), " is not built here"));
    } else {
      const auto words = words_of(table, name, value);
      command_line.insert(command_line.end(), words.begin(), words.end());
    }
  }
  options::Report report;
  const auto conversion = table.convert(flags::flags_of(command_line), facts, report);
  if (!report.good()) throw ConfigError(text("arguments.json: ", report.problems().front()));
  for (const auto& flag : conversion.flags)
    for (const auto& path : flag.to)
      if (const auto* value = conversion.recipe.at(path)) set(path, *value);
}

}  // namespace tessera::golden
