#include "framework/recipe/describe.h"

#include "framework/model/gpt_options.h"
#include "framework/recipe/build.h"

namespace tessera::recipe {
namespace {

const std::string m = "model_config.", t = "training_config.", o = "optimizer_config.", p = "parallel_config.",
                  d = "dataset_config.";

/// The options of model_type gpt. Throws ConfigError for another architecture, whose options are not known here.
const model::GptOptions& gpt(const Recipe& r) {
  const auto* options = r.model.options<model::GptOptions>();
  if (options == nullptr) throw ConfigError(text("model_type ", r.model.type, " has no options of a gpt"));
  return *options;
}

template <class F>
options::Derived value(const F& number) {
  return {text(options::OptionType<F>::write(number)), ""};
}

/// The default is the value of another option.
options::Derived as(const Recipe& r, const std::string& option) {
  const auto* other = r.resolved.at(option);
  return {other ? text(*other) : "", ""};
}

options::Derived type_word(DType type) {
  return {type == DType::float32 ? "float32" : type == DType::bfloat16 ? "bfloat16" : "float16", ""};
}

std::int64_t replicas(const Recipe& r) { return r.parallel.data_parallel_size.value_or(1); }
/// `words`, with the assumed number of data-parallel ranks if the recipe does not give it.
std::string for_one_replica(const Recipe& r, const char* words) {
  return r.parallel.data_parallel_size ? "" : text(words, " (here: of one)");
}

void describe_model(RecipeSchema& s) {
  s.option(m + "max_position_embeddings")
      .otherwise([](const Recipe& r) { return value(r.size.seq_length); }, "`seq_length`");
  s.option(m + "vocab_size")
      .otherwise(
          [](const Recipe& r) {
            const auto tokenizer = r.tokenizer.make();
            return value(vocabulary(r, tokenizer.get()));
          },
          "the tokenizer's vocabulary size, rounded up to a multiple of `make_vocab_size_divisible_by`");
  s.option(m + "rope_scaling_original_max_position_embeddings")
      .otherwise(
          [](const Recipe& r) {
            const auto& model = gpt(r);
            return value(model.rotary_scaling(model.max_position_embeddings.value_or(r.size.seq_length)).original);
          },
          "8192 for llama3, `max_position_embeddings` for yarn");
  s.option(m + "params_dtype")
      .otherwise([](const Recipe& r) { return type_word(model::precision(r.half, r.precision).params); },
                 "set by `bf16` and `fp16` of training_config");
  s.option(m + "compute_dtype")
      .otherwise([](const Recipe& r) { return type_word(model::precision(r.half, r.precision).compute); },
                 "`params_dtype`");
  s.option(m + "embedding_init_dtype")
      .otherwise([](const Recipe& r) { return type_word(model::precision(r.half, r.precision).embedding); },
                 "`params_dtype`");
  s.option(m + "residual_connection_dtype")
      .otherwise([](const Recipe& r) { return type_word(model::precision(r.half, r.precision).residual); },
                 "`compute_dtype`, or float32 with `fp32_residual_connection`");
  const auto whole_model = [](const Recipe& r) {
    return r.parallel.recompute.empty() && r.parallel.select_recompute.empty();
  };
  for (const auto* name : {"recompute_granularity", "recompute_method", "recompute_num_layers"})
    s.option(m + name).matters_when(whole_model, "`recompute` or `select_recompute` of parallel_config is given");
}

void describe_experts(RecipeSchema& s) {
  const std::string e = "moe_config.";
  // These differ in their losses; sinkhorn also selects other experts.
  s.option(e + "moe_router_load_balancing_type").same_function_with({"aux_loss", "seq_aux_loss", "none"});
  for (const auto* name : {"moe_layer_freq",
                           "moe_ffn_hidden_size",
                           "moe_shared_expert_intermediate_size",
                           "moe_shared_expert_gate",
                           "moe_use_upcycling",
                           "moe_layer_recompute",
                           "moe_router_topk",
                           "moe_router_dtype",
                           "moe_router_score_function",
                           "moe_router_pre_softmax",
                           "moe_router_num_groups",
                           "moe_router_group_topk",
                           "moe_router_topk_scaling_factor",
                           "moe_router_enable_expert_bias",
                           "moe_router_bias_update_rate",
                           "moe_input_jitter_eps",
                           "moe_router_force_load_balancing",
                           "moe_router_load_balancing_type",
                           "moe_aux_loss_coeff",
                           "moe_z_loss_coeff",
                           "moe_per_layer_logging",
                           "moe_expert_capacity_factor",
                           "moe_pad_expert_input_to_capacity",
                           "moe_token_drop_policy",
                           "moe_apply_probs_on_input"})
    s.option(e + name).matters_when([](const Recipe& r) { return r.experts() > 0; }, "the model has no experts");
  s.option("parallel_config.expert_tensor_parallel_size")
      .matters_when([](const Recipe& r) { return r.experts() > 0; }, "the model has no experts");
  s.option(e + "moe_ffn_hidden_size")
      .otherwise([](const Recipe& r) { return value(gpt(r).inner()); }, "`ffn_hidden_size`");
}

void describe_training(RecipeSchema& s) {
  for (const auto* name :
       {"loss_scale_value", "min_loss_scale", "loss_scale_window", "loss_scale_factor", "hysteresis"})
    s.option(t + name).matters_when([](const Recipe& r) { return r.half.fp16 && !r.loss_scale.loss_scale; },
                                    "the loss scale is not dynamic: that takes `fp16` without `loss_scale`");
  s.option(t + "accumulate_allreduce_grads_in_fp32")
      .matters_when(
          [](const Recipe& r) {
            const auto types = model::precision(r.half, r.precision);
            return types.params != DType::float32 || types.compute != DType::float32;
          },
          "all computation is in float32");
  s.option(t + "delay_grad_reduce")
      .matters_when(
          [](const Recipe& r) {
            return r.data_parallel.overlap_grad_reduce && r.parallel.pipeline_model_parallel_size > 1;
          },
          "`overlap_grad_reduce` is false, or if `pipeline_model_parallel_size` is 1");
}

void describe_data(RecipeSchema& s) {
  s.option(d + "global_batch_size")
      .otherwise(
          [](const Recipe& r) {
            const char* words = "`batch_size` x `micro_batch_num` x data-parallel ranks";
            return options::Derived{text(r.batch_sizes(replicas(r)).global), for_one_replica(r, words)};
          },
          "`batch_size` x `micro_batch_num` x data-parallel ranks");
  s.option(d + "micro_batch_num")
      .otherwise(
          [](const Recipe& r) {
            const auto number = schedule::BatchPlan(r.ramp, r.batch_sizes(replicas(r))).full().micro_batches;
            const char* words = "`global_batch_size` / `batch_size` / data-parallel ranks";
            return options::Derived{text(number), r.batch.global_batch_size ? for_one_replica(r, words) : "1"};
          },
          "`global_batch_size` / `batch_size` / data-parallel ranks, or 1 without `global_batch_size`");
}

void describe_schedules(RecipeSchema& s) {
  const auto decays = [](const Recipe& r) { return r.decay.type != "constant"; };
  const char* constant = "`lr_decay_style` is constant";
  for (const auto* name : {"min_lr", "decoupled_min_lr"}) s.option(o + name).matters_when(decays, constant);
  for (const auto* name : {"lr_decay_iters", "lr_decay_samples"})
    s.option(o + name).matters_when(
        [](const Recipe& r) { return r.decay.type != "constant" || r.learning_rate.lr_warmup_fraction.has_value(); },
        constant);
  s.option(o + "lr_decay_iters")
      .otherwise([](const Recipe& r) { return r.iterations() > 0 ? value(r.iterations()) : options::Derived{}; },
                 "the last step of the run");
  s.option(o + "lr_decay_samples")
      .otherwise(
          [](const Recipe& r) { return r.length().samples > 0 ? value(r.length().samples) : options::Derived{}; },
          "the last sample of the run");
  s.option(o + "decoupled_lr").otherwise([](const Recipe& r) { return as(r, o + "learning_rate"); }, "`learning_rate`");
  s.option(o + "decoupled_min_lr").otherwise([](const Recipe& r) { return as(r, o + "min_lr"); }, "`min_lr`");
  for (const auto* name : {"override_opt_param_scheduler", "use_checkpoint_opt_param_scheduler"})
    s.option(o + name).matters_when([](const Recipe& r) { return r.training.may_load(); },
                                    "no checkpoint is read: `resume_training` is false and `load_checkpoint` is null");
}

void describe_layout(RecipeSchema& s) {
  s.option(p + "virtual_pipeline_model_parallel_size")
      .otherwise([](const Recipe& r) { return value(r.layer_plan().chunks()); },
                 "derived from the other layout options");
  s.option(p + "num_layer_list")
      .otherwise([](const Recipe& r) { return value(r.layer_plan().layers_by_chunk()); },
                 "layers are distributed evenly");
  s.option(p + "microbatch_group_size_per_vp_stage")
      .matters_when([](const Recipe& r) { return r.layer_plan().chunks() > 1; }, "each stage has one chunk of layers");
  s.option(p + "overlap_grad_reduce")
      .otherwise([](const Recipe& r) { return value(r.data_parallel.overlap_grad_reduce); },
                 "`training_config.overlap_grad_reduce`");
}

options::OptionFacts* facts_of(options::Facts& facts, const std::string& option) {
  const auto group = facts.find(option.substr(0, option.find('.')));
  if (group == facts.end()) return nullptr;
  for (auto& schema : group->second)
    for (auto& one : schema.options)
      if (!one.planned && group->first + "." + one.name == option) return &one;
  return nullptr;
}

/// Whether `option` is a planned option.
bool is_planned(const options::Facts& facts, const std::string& group, const std::string& option) {
  const auto found = facts.find(group);
  if (found == facts.end()) return false;
  for (const auto& schema : found->second)
    for (const auto& one : schema.options)
      if (one.planned && one.name == option) return true;
  return false;
}

/// Every option that a recipe gives; options with their default are not listed.
void look(const Recipe& recipe, const std::string& path, const options::Value& value, std::vector<Idle>& out) {
  if (value.kind == options::Value::Kind::group) {
    for (const auto& [name, field] : value.fields) look(recipe, path.empty() ? name : path + "." + name, field, out);
    return;
  }
  if (value.origin.layer == 0) return;
  const auto in_group = recipe.idle_in_groups.find(path);
  if (in_group != recipe.idle_in_groups.end()) {
    out.push_back({path, value.origin, in_group->second});
    return;
  }
  for (const auto& entry : recipe_schema().entries())
    if (entry.option == path && entry.matters && !entry.matters(recipe)) {
      out.push_back({path, value.origin, entry.why_not});
      return;
    }
  const auto dot = path.find('.');
  if (is_planned(recipe.facts, path.substr(0, dot), path.substr(dot + 1)))
    out.push_back(
        {path, value.origin, text("accepted for compatibility, as ", value, " does not affect the run"), true});
}

}  // namespace

RecipeSchema::Declared& RecipeSchema::Declared::otherwise(options::Derived (*derive)(const Recipe&),
                                                          std::string words) {
  schema_.entries_.push_back({.option = option_, .words = std::move(words), .derive = derive});
  return *this;
}

RecipeSchema::Declared& RecipeSchema::Declared::matters_when(bool (*matters)(const Recipe&), const char* why_not) {
  schema_.entries_.push_back({.option = option_, .matters = matters, .why_not = why_not});
  return *this;
}

RecipeSchema::Declared& RecipeSchema::Declared::same_function_with(std::vector<std::string> values) {
  schema_.entries_.push_back({.option = option_, .same_function = std::move(values)});
  return *this;
}

void RecipeSchema::complete(options::Facts& facts) const {
  for (const auto& entry : entries_) {
    auto* option = facts_of(facts, entry.option);
    if (option == nullptr) continue;  // of a model_type that is not registered here
    if (entry.derive) options::say_default(*option, entry.words);
    if (entry.matters) option->no_effect_if.emplace_back(entry.why_not);
  }
}

void describe(RecipeSchema& s) {
  describe_model(s);
  describe_experts(s);
  describe_training(s);
  describe_data(s);
  describe_schedules(s);
  describe_layout(s);
}

const RecipeSchema& recipe_schema() {
  static const RecipeSchema schema = [] {
    RecipeSchema all;
    describe(all);
    return all;
  }();
  return schema;
}

std::optional<options::Derived> Recipe::derived(const std::string& option) const {
  const auto* given = resolved.at(option);
  if (given == nullptr || given->kind != options::Value::Kind::none) return std::nullopt;
  if (const auto found = derived_in_groups.find(option); found != derived_in_groups.end()) return found->second;
  for (const auto& entry : recipe_schema().entries()) {
    if (entry.option != option || !entry.derive) continue;
    try {
      auto found = entry.derive(*this);
      if (found.how.empty()) found.how = entry.words;
      return found;
    } catch (const Error&) {  // of a recipe with mistakes, or one whose files are not here
      return std::nullopt;
    }
  }
  return std::nullopt;
}

std::vector<Idle> Recipe::without_effect() const {
  std::vector<Idle> all;
  look(*this, "", resolved, all);
  return all;
}

}  // namespace tessera::recipe
