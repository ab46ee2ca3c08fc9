#include "framework/recipe/derived.h"

#include <cmath>
#include <functional>
#include <map>

#include "framework/model/gpt_options.h"
#include "framework/recipe/build.h"

namespace tessera {
namespace {

using How = std::function<Derived(const Recipe&)>;

const GptOptions& gpt(const Recipe& r) {
  const auto* options = r.model.options<GptOptions>();
  if (options == nullptr) throw ConfigError("another architecture");
  return *options;
}

std::string words(double number) { return text(OptionType<double>::write(number)); }
std::string words(bool flag) { return flag ? "true" : "false"; }

Derived as(const Recipe& r, const char* key) {
  const auto* value = r.resolved.at(key);
  if (value == nullptr) return {"", text("as ", key)};
  return {text(*value), text("as ", std::string(key).substr(std::string(key).find('.') + 1))};
}

Derived type_word(DType type, const char* how) {
  return {type == DType::float32 ? "float32" : type == DType::bfloat16 ? "bfloat16" : "float16", how};
}

void add_sizes(std::map<std::string, How>& all) {
  const std::string m = "model_config.";
  all[m + "ffn_hidden_size"] = [](const Recipe& r) {
    const bool gate = is_gated(gpt(r).feed_forward());
    return Derived{text(gpt(r).inner()),
                   gate ? "8/3 x hidden_size down to a multiple of 64, as it is gated" : "4 x hidden_size"};
  };
  all[m + "kv_channels"] = [](const Recipe& r) {
    return Derived{text(gpt(r).channels()), "hidden_size / num_attention_heads"};
  };
  all[m + "max_position_embeddings"] = [](const Recipe& r) { return as(r, "model_config.seq_length"); };
  all[m + "vocab_size"] = [](const Recipe& r) {
    const auto tokenizer = r.tokenizer.make();
    return Derived{text(vocabulary(r, tokenizer.get())),
                   text("the tokenizer's size up to a multiple of ", r.size.make_vocab_size_divisible_by)};
  };
  all[m + "query_pre_attn_scalar"] = [](const Recipe& r) { return Derived{text(gpt(r).channels()), "as kv_channels"}; };
  all[m + "sliding_window"] = [](const Recipe& r) {
    const auto left = gpt(r).window()[0];
    return Derived{left < 0 ? "null" : text(left + 1), "window_size[0] + 1; null: all tokens are seen"};
  };
  all[m + "embedding_init_method_std"] = [](const Recipe& r) { return as(r, "model_config.init_method_std"); };
}

void add_parts(std::map<std::string, How>& all) {
  const std::string m = "model_config.";
  all[m + "rotary_seq_len_interpolation_factor"] = [](const Recipe&) {
    return Derived{"1", "positions are taken as they are"};
  };
  all[m + "rope_scaling_original_max_position_embeddings"] = [](const Recipe& r) {
    const auto positions = gpt(r).max_position_embeddings.value_or(r.size.seq_length);
    const bool yarn = gpt(r).rope_scaling_type == RotaryScaling::Kind::yarn;
    return Derived{text(gpt(r).rotary_scaling(positions).original), yarn ? "as max_position_embeddings" : "Llama 3's"};
  };
  all[m + "rope_scaling_attention_factor"] = [](const Recipe& r) {
    return Derived{words(0.1 * std::log(gpt(r).rope_scaling_factor) + 1), "0.1 ln(rope_scaling_factor) + 1"};
  };
  for (const auto* bias : {"qkv_has_bias", "out_proj_has_bias", "mlp_has_bias"})
    all[m + bias] = [](const Recipe& r) { return as(r, "model_config.add_bias_linear"); };
  all[m + "swiglu"] = [](const Recipe& r) {
    return Derived{words(gpt(r).feed_forward() == FeedForwardKind::swiglu), "as hidden_act says"};
  };
  all[m + "params_dtype"] = [](const Recipe& r) {
    return type_word(precision(r.half, r.precision).params, "by bf16 and fp16 of training_config");
  };
  all[m + "compute_dtype"] = [](const Recipe& r) {
    return type_word(precision(r.half, r.precision).compute, "as params_dtype");
  };
  all[m + "embedding_init_dtype"] = [](const Recipe& r) {
    return type_word(precision(r.half, r.precision).embedding, "as params_dtype");
  };
  all[m + "residual_connection_dtype"] = [](const Recipe& r) {
    return type_word(precision(r.half, r.precision).residual, "as compute_dtype");
  };
}

void add_run(std::map<std::string, How>& all) {
  const std::string t = "training_config.", d = "dataset_config.", o = "optimizer_config.", p = "parallel_config.";
  all[t + "loss_scale_value"] = [](const Recipe&) { return Derived{"4294967296", "2^32"}; };
  all[t + "loss_scale_window"] = [](const Recipe&) { return Derived{"1000", "Megatron-LM's default"}; };
  all[t + "loss_scale_factor"] = [](const Recipe&) { return Derived{"2", "Megatron-LM's default"}; };
  all[t + "hysteresis"] = [](const Recipe&) { return Derived{"2", "Megatron-LM's default"}; };
  all[t + "accumulate_allreduce_grads_in_fp32"] = [](const Recipe&) {
    return Derived{"true", "sums are fp32 where nothing else is said"};
  };
  all[t + "num_threads"] = [](const Recipe&) {
    return Derived{"", "one for each core, which the ranks of a host share"};
  };
  all[t + "bucket_size"] = [](const Recipe&) {
    return Derived{"", "40000000, or 1000000 for each data parallel rank where that is more"};
  };
  all[d + "global_batch_size"] = [](const Recipe& r) {
    return Derived{text(r.batch_sizes(r.parallel.data_parallel_size.value_or(1)).global),
                   r.parallel.data_parallel_size ? "batch_size x micro_batch_num x data_parallel_size"
                                                 : "batch_size x micro_batch_num, of each data parallel rank"};
  };
  all[d + "micro_batch_num"] = [](const Recipe& r) {
    const auto ranks = r.parallel.data_parallel_size.value_or(1);
    return Derived{text(BatchPlan(r.ramp, r.batch_sizes(ranks)).full().micro_batches),
                   r.batch.global_batch_size
                       ? text("global_batch_size / batch_size",
                              ranks > 1 ? " / data_parallel_size" : "; fewer on several data parallel ranks")
                       : "one"};
  };
  all[d + "split"] = [](const Recipe&) { return Derived{"969, 30, 1", "Megatron-LM's default"}; };
  all[o + "lr_decay_iters"] = [](const Recipe& r) {
    return Derived{r.iterations() > 0 ? text(r.iterations()) : "", "the run's last step"};
  };
  all[o + "lr_decay_samples"] = [](const Recipe& r) {
    return Derived{r.length().samples > 0 ? text(r.length().samples) : "", "the run's last sample"};
  };
  all[o + "decoupled_lr"] = [](const Recipe& r) { return as(r, "optimizer_config.learning_rate"); };
  all[o + "decoupled_min_lr"] = [](const Recipe& r) { return as(r, "optimizer_config.min_lr"); };
  all[p + "data_parallel_size"] = [](const Recipe&) {
    return Derived{"", "processes / tensor_model_parallel_size / pipeline_model_parallel_size"};
  };
  all[p + "virtual_pipeline_model_parallel_size"] = [](const Recipe& r) {
    return Derived{text(r.layer_plan().chunks()), "chunks of layers on each stage"};
  };
  all[p + "microbatch_group_size_per_vp_stage"] = [](const Recipe& r) {
    return as(r, "parallel_config.pipeline_model_parallel_size");
  };
  all[p + "num_layer_list"] = [](const Recipe& r) {
    return Derived{text(OptionType<std::vector<std::vector<std::int64_t>>>::write(r.layer_plan().layers_by_chunk())),
                   "layers shared out evenly"};
  };
  all[p + "overlap_grad_reduce"] = [](const Recipe& r) { return as(r, "training_config.overlap_grad_reduce"); };
}

const std::map<std::string, How>& table() {
  static const std::map<std::string, How> all = [] {
    std::map<std::string, How> rules;
    add_sizes(rules);
    add_parts(rules);
    add_run(rules);
    return rules;
  }();
  return all;
}

}  // namespace

std::optional<Derived> derived(const Recipe& recipe, const std::string& key) {
  const auto rule = table().find(key);
  const auto* value = recipe.resolved.at(key);
  if (rule == table().end() || value == nullptr || value->kind != Value::Kind::none) return std::nullopt;
  try {
    return rule->second(recipe);
  } catch (const Error&) {  // of a recipe with mistakes, or one whose files are not here
    return std::nullopt;
  }
}

std::vector<std::string> derived_options() {
  std::vector<std::string> all;
  for (const auto& [key, how] : table()) all.push_back(key);
  return all;
}

}  // namespace tessera
