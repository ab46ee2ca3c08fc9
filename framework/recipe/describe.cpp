#include "framework/recipe/describe.h"

#include "framework/recipe/build.h"

namespace tessera::recipe {
namespace {

const std::string m = "model_config.", t = "training_config.", o = "optimizer_config.", p = "parallel_config.",
                  d = "dataset_config.";

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
  s.option(m + "vocab_size")
      .otherwise(
          [](const Recipe& r) {
            const auto tokenizer = r.tokenizer.make();
            return value(vocabulary(r, tokenizer.get()));
          },
          "the tokenizer's vocabulary size, rounded up to a multiple of `make_vocab_size_divisible_by`");
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
}

void describe_experts(RecipeSchema& s) {
  // These differ in their losses; sinkhorn also selects other experts.
  s.option("moe_config.moe_router_load_balancing_type").same_function_with({"aux_loss", "seq_aux_loss", "none"});
}

/// A condition on the whole recipe, which options name (OptionFacts::needs).
struct Condition {
  const char* name;
  bool (*holds)(const Recipe&);
  const char* why_not;
};

const Condition& condition(const std::string& name) {
  static const std::vector<Condition> all = {
      {"experts", [](const Recipe& r) { return r.experts() > 0; }, "the model has no experts"},
      {"visual encoder",
       [](const Recipe& r) { return r.architecture != nullptr && r.architecture->vision() != nullptr; },
       "the model has no vision tower (`use_visual_encoder`)"},
      {"stage dpo", [](const Recipe& r) { return r.pair_stage() == model::PairStage::dpo; }, "`stage` is not dpo"},
      {"stage simpo", [](const Recipe& r) { return r.pair_stage() == model::PairStage::simpo; },
       "`stage` is not simpo"},
      {"stage orpo", [](const Recipe& r) { return r.pair_stage() == model::PairStage::orpo; }, "`stage` is not orpo"},
      {"recompute by the model",
       [](const Recipe& r) { return r.parallel.recompute.empty() && r.parallel.select_recompute.empty(); },
       "`recompute` or `select_recompute` of parallel_config is given"}};
  const auto found = std::find_if(all.begin(), all.end(), [&](const Condition& one) { return one.name == name; });
  must(found != all.end(), "a condition that an option names exists");
  return *found;
}

/// The declaration of an option that this recipe reads; null: there is none.
const options::OptionFacts* facts_in(const Recipe& recipe, const std::string& option) {
  const auto dot = option.find('.');
  const auto group = recipe.facts.find(option.substr(0, dot));
  if (group == recipe.facts.end()) return nullptr;
  for (const auto& schema : group->second) {
    const auto* type = schema.key.empty() ? nullptr : recipe.resolved.at(group->first + "." + schema.key);
    if (type != nullptr && type->scalar != schema.type) continue;
    for (const auto& one : schema.options)
      if (one.name == option.substr(dot + 1)) return &one;
  }
  return nullptr;
}

void describe_training(RecipeSchema& s) {
  for (const auto* name : {"calculate_per_token_loss", "calculate_per_sample_loss"})
    s.option(t + name).matters_when([](const Recipe& r) { return !r.pair_stage(); },
                                    "`stage` averages the losses of pairs");
  for (const auto* name :
       {"loss_scale_value", "min_loss_scale", "loss_scale_window", "loss_scale_factor", "hysteresis"})
    s.option(t + name).matters_when([](const Recipe& r) { return r.half.fp16 && !r.loss_scale.loss_scale; },
                                    "the loss scale is not dynamic: that takes `fp16` without `loss_scale`");
  s.option(t + "save_frozen_parameters")
      .otherwise([](const Recipe& r) { return value(r.saves_frozen()); },
                 "true, but false with `use_lora` and `load_checkpoint`")
      .matters_when([](const Recipe& r) { return r.may_freeze(); }, "no parameter is frozen");
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
  const auto in_group = recipe.idle_in_groups.find(path);
  // An option may be a map itself.
  if (value.kind == options::Value::Kind::group && in_group == recipe.idle_in_groups.end()) {
    for (const auto& [name, field] : value.fields) look(recipe, path.empty() ? name : path + "." + name, field, out);
    return;
  }
  if (value.origin.layer == 0) return;
  if (in_group != recipe.idle_in_groups.end()) {
    out.push_back({path, value.origin, in_group->second});
    return;
  }
  if (const auto* why = why_without_effect(recipe, path)) {
    out.push_back({path, value.origin, why});
    return;
  }
  const auto dot = path.find('.');
  if (is_planned(recipe.facts, path.substr(0, dot), path.substr(dot + 1)))
    out.push_back(
        {path, value.origin, text("accepted for compatibility, as ", value, " does not affect the run"), true});
}

}  // namespace

const char* why_without_effect(const Recipe& recipe, const std::string& option) {
  if (const auto* facts = facts_in(recipe, option); facts && !facts->needs.empty())
    if (const auto& needed = condition(facts->needs); !needed.holds(recipe)) return needed.why_not;
  for (const auto& entry : recipe_schema().entries())
    if (entry.option == option && entry.matters && !entry.matters(recipe)) return entry.why_not;
  return nullptr;
}

bool has_effect(const Recipe& recipe, const std::string& option) {
  return recipe.idle_in_groups.count(option) == 0 && why_without_effect(recipe, option) == nullptr;
}

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
  for (auto& [group, schemas] : facts)
    for (auto& schema : schemas)
      for (auto& option : schema.options)
        if (!option.needs.empty()) option.no_effect_if.emplace_back(condition(option.needs).why_not);
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
  if (const auto found = derived_in_groups.find(option); found != derived_in_groups.end()) {
    auto own = found->second;
    const auto value = own.value.empty() && architecture ? architecture->default_of(option) : std::nullopt;
    if (value) own.value = text(*value);
    return own;
  }
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
