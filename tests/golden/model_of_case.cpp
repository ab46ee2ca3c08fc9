#include "tests/golden/model_of_case.h"

#include <algorithm>
#include <cmath>

#include "framework/base/files.h"
#include "framework/checkpoint/copy_converted.h"
#include "framework/interop/hugging_face/peft_config.h"
#include "framework/interop/hugging_face/peft_reader.h"
#include "framework/interop/hugging_face/peft_tensors.h"
#include "framework/kernels/vector.h"
#include "framework/model/preference_objective.h"
#include "framework/model/reference_scores.h"
#include "framework/recipe/build.h"
#include "framework/training/setup/given_checkpoint.h"
#include "framework/training/step/step.h"
#include "tests/golden/arguments.h"
#include "tests/golden/golden_batches.h"
#include "tests/golden/registries.h"
#include "tests/golden/vision_batches.h"

namespace tessera {

namespace golden {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

/// A recipe in the making, from JSON values.
class RecipeTree {
 public:
  explicit RecipeTree(const fs::path& file) : origin_{file.string(), 0, "", 1} {}
  void set(const std::string& path, const Json& value) {
    if (!value.is_null())
      tree_.set(path, options::Value::of(value.is_string() ? value.get<std::string>() : value.dump(), origin_));
  }
  void set(const std::string& path, const options::Value& value) { tree_.set(path, value); }
  /// The value of `from` under `key`, where it has one.
  void take(const std::string& path, const Json& from, const char* key) { set(path, from.value(key, Json())); }
  const options::Value& tree() const { return tree_; }

 private:
  options::Origin origin_;
  options::Value tree_;
};

void set_training(RecipeTree& recipe, const Json& given) {
  recipe.set("training_config.training_iters", given.at("train_iters"));
  recipe.set("training_config.eval_iters", 0);
  recipe.set("optimizer_config.optimizer_type", "adamw");
  recipe.set("optimizer_config.betas[0]", given.at("adam_beta1"));
  recipe.set("optimizer_config.betas[1]", given.at("adam_beta2"));
  recipe.set("optimizer_config.eps", given.at("adam_eps"));
  recipe.set("optimizer_config.learning_rate", given.at("lr"));
  for (const char* key :
       {"min_lr", "lr_decay_style", "lr_warmup_init", "lr_warmup_iters", "lr_decay_iters", "weight_decay",
        "start_weight_decay", "end_weight_decay", "weight_decay_incr_style", "clip_grad"})
    recipe.take(text("optimizer_config.", key), given, key);
}

/// What arguments.json says of the model, unless config.json has said it in its own words, and of its experts. Layouts
/// change no number: a case is computed by one process.
void set_where_absent(RecipeTree& recipe, const options::Value& model_config, const std::string& path,
                      const options::Value& value) {
  static const std::map<std::string, std::string> in_their_words = {{"window_size", "sliding_window"}};
  const std::string group = "model_config.", layout = "parallel_config.";
  if (path.rfind(layout, 0) == 0) return;
  if (path.rfind(group, 0) == 0) {
    const auto option = path.substr(group.size(), path.find('[') - group.size());
    const auto other = in_their_words.find(option);
    if (model_config.find(option) || (other != in_their_words.end() && model_config.find(other->second))) return;
  }
  recipe.set(path, value);
}

/// Where training starts, and the adapters as their folder describes them.
void set_base(RecipeTree& recipe, const CaseFiles& files) {
  if (!files.pairs.empty() || !files.adapter.empty()) recipe.set("training_config.load_checkpoint", files.hf.string());
  if (files.adapter.empty()) return;
  const auto saved = hugging_face::PeftReader().describe(files.adapter, options::Mappings());
  recipe.set("lora_config", saved.group());
  recipe.set("lora_config.adapter", files.adapter.string());
}

/// The recipe of a case: its model as config.json says it, its training as the curve says it, and what config.json
/// cannot know of the training (dropout, documents) as arguments.json says it.
options::Value recipe_of(const CaseFiles& files, const options::Value& model_config, const Json& curve,
                         const CaseOptions& more) {
  const bool of_pairs = !files.pairs.empty();
  const auto shape = of_pairs ? checkpoint::SafetensorsReader(files.pairs).shape("input_ids")
                              : checkpoint::SafetensorsReader(files.batches).shape("tokens");
  const auto samples = of_pairs ? shape[1] / 2 : shape[1];
  const auto arguments = fs::exists(files.arguments) ? Json::parse(read_file(files.arguments)) : Json::object();
  RecipeTree recipe(files.batches);
  for (const auto& [key, value] : model_config.fields) {
    if (value.kind != options::Value::Kind::group) recipe.set("model_config." + key, value);
    for (const auto& [inner, option] : value.fields) recipe.set(text(key, ".", inner), option);
  }
  recipe.set("model_config.seq_length", shape[2]);
  // Transformers does not move the bias of experts.
  if (const auto* experts = model_config.find("moe_config"); experts && experts->find("moe_router_enable_expert_bias"))
    recipe.set("moe_config.moe_router_bias_update_rate", 0);
  read_arguments(arguments, [&](const std::string& path, const options::Value& value) {
    set_where_absent(recipe, model_config, path, value);
  });
  recipe.take("training_config.calculate_per_token_loss", arguments, "calculate_per_token_loss");
  recipe.take("model_config.hidden_dropout_rate", arguments, "hidden_dropout");
  recipe.take("model_config.attention_dropout_rate", arguments, "attention_dropout");
  const bool has_images = !of_pairs && checkpoint::SafetensorsReader(files.batches).has("pixel_values");
  const std::string type = of_pairs ? "golden_pairs" : has_images ? "golden_images" : "golden";
  recipe.set("dataset_config.dataset_type", type);
  recipe.set(text("dataset_config.", type, "_file"), (of_pairs ? files.pairs : files.batches).string());
  if (arguments.value("reset_attention_mask", false))
    recipe.take("dataset_config.golden_document_end", files.facts, "eod_token");
  recipe.set("dataset_config.batch_size", curve.value("micro_batch_size", Json(samples)));
  recipe.set("dataset_config.global_batch_size", samples);
  recipe.take("training_config.bf16", curve, "bf16");
  set_training(recipe, curve.at("hyper_parameters"));
  set_base(recipe, files);
  for (const auto& [path, value] : more) recipe.set(path, value);
  return recipe.tree();
}

recipe::Recipe read(const options::Value& tree) {
  auto registries = all_registries();
  add_golden_datasets(registries.datasets);
  add_vision_batches(registries.datasets);
  options::Report report;
  auto recipe = recipe::read_recipe(tree, registries, report);
  try {
    report.must_be_good();
  } catch (const ConfigError& error) {
    const auto problems = report.findings();
    const auto of_adapters = [](const auto& problem) { return problem.option.starts_with("lora_config."); };
    if (std::all_of(problems.begin(), problems.end(), of_adapters)) throw RefusedOptions(error.what());
    throw;
  }
  return recipe;
}

TokenBatch first_samples(const training::TrainingSetup& setup, Batch& batch) {
  data::read_batch(*setup.data.splits->train, *setup.data.train_order, 0, 0, 1, batch);
  return batch.view();
}

/// "decoder.layers.2" -> "hidden.layer.2", the `routers`-th "decoder.layers.2.mlp.router" -> "router_logits.<routers>":
/// layers without experts are not counted; empty for a value that cases do not record.
std::string recorded_name(std::string_view ours, std::size_t& routers) {
  const std::string name(ours), layer = "decoder.layers.", block = "vision_model.decoder.layers.";
  if (name == "vision_model.patch_embed") return "vision.patch_embed";
  if (name == "vision_projection") return "vision.merger";
  if (name.starts_with(block))
    return name.find('.', block.size()) == std::string::npos ? "vision.block." + name.substr(block.size()) : "";
  if (name == "embedding") return "hidden.embedding";
  if (name == "decoder.final_layernorm") return "hidden.final_norm";
  if (name.rfind(layer, 0) != 0) return "";
  const auto end = name.find('.', layer.size());
  if (end != std::string::npos) return name.substr(end) == ".mlp.router" ? text("router_logits.", routers++) : "";
  return "hidden.layer." + name.substr(layer.size());
}

/// Sets to 0 what a batch gives at padding: that is not compared.
void clear_padding(const fs::path& batches, std::int64_t tokens, Values& out) {
  const checkpoint::SafetensorsReader file(batches);
  if (!file.has("attention_mask")) return;
  const auto real = file.tensor("attention_mask").as<std::int64_t>().first(static_cast<std::size_t>(tokens));
  for (auto& [name, values] : out) {
    if (name != "logits" && name != "token_loss" && !name.starts_with("hidden.")) continue;
    const auto width = values.size() / real.size();
    for (std::size_t i = 0; i < values.size(); ++i)
      if (real[i / width] == 0) values[i] = 0;
  }
}

/// E / (T^2 k) sum_e (sum_t softmax(logits)[t, e]) count[e], of a router that has no such loss in training.
double balancing_loss(const std::vector<double>& logits, std::span<const double> counts) {
  const auto E = counts.size(), T = logits.size() / E;
  double choices = 0, loss = 0;
  for (const auto count : counts) choices += count;
  for (std::size_t t = 0; t < T; ++t) {
    double sum = 0;
    for (std::size_t e = 0; e < E; ++e) sum += std::exp(logits[t * E + e]);
    for (std::size_t e = 0; e < E; ++e) loss += std::exp(logits[t * E + e]) / sum * counts[e];
  }
  return loss * static_cast<double>(E) / (static_cast<double>(T) * choices);
}

}  // namespace

namespace {

/// Tensors as a source of weights.
class TensorsInMemory final : public checkpoint::WeightSource {
 public:
  explicit TensorsInMemory(const std::map<std::string, Tensor>& tensors) : tensors_(tensors) {}
  const fs::path& folder() const override { return folder_; }
  std::vector<std::string> names() const override {
    std::vector<std::string> all;
    for (const auto& [name, tensor] : tensors_) all.push_back(name);
    return all;
  }
  bool has(const std::string& name) const override { return tensors_.count(name) != 0; }
  Shape shape(const std::string& name) const override { return tensors_.at(name).shape(); }
  DType dtype(const std::string& name) const override { return tensors_.at(name).dtype(); }
  void read(const std::string& name, const Tensor& into) const override {
    checkpoint::copy_converted(tensors_.at(name), into);
  }

 private:
  const std::map<std::string, Tensor>& tensors_;
  fs::path folder_ = "memory";
};

/// Notes the score of each row: its log-probability, or with a score head the reward of its last token.
class RowScores final : public model::Objective {
 public:
  explicit RowScores(bool rewards) : rewards_(rewards) {}
  autograd::LossSum judge(const Losses& losses, std::span<float>, std::span<autograd::LossSum>) const override {
    for (std::int64_t row = 0; row < losses.batch.samples; ++row)
      scores_.push_back(rewards_ ? reward_of(losses, row) : model::completion_score(losses, row).policy);
    return {0, 1};
  }
  bool rewards() const { return rewards_; }
  const std::vector<double>& of_rows() const { return scores_; }

 private:
  static double reward_of(const Losses& losses, std::int64_t row) {
    const auto n = losses.batch.seq_length;
    std::int64_t last = 0;
    for (std::int64_t i = 0; i + 1 < n; ++i)
      if (losses.batch.labels[static_cast<std::size_t>(row * n + i)] >= 0) last = i + 1;
    return static_cast<double>(losses.each[static_cast<std::size_t>(row * n + last)]);
  }
  bool rewards_;
  mutable std::vector<double> scores_;
};

}  // namespace

std::vector<double> doubles_of(std::span<const float> floats) { return {floats.begin(), floats.end()}; }

std::string pattern_of(const std::string& name) {
  std::string pattern;
  for (const char c : name) pattern += (c == '.' ? "\\" : "") + std::string(1, c);
  return pattern;
}

CaseFiles CaseFiles::of_model(const fs::path& folder) {
  return {folder / "hf", folder / "batch.safetensors", folder / "arguments.json",
          Json::parse(read_file(folder / "case.json"))};
}

ModelOfCase::ModelOfCase(const CaseFiles& files, const options::Mappings& mappings, const Json& curve,
                         const CaseOptions& more)
    : batches_(files.batches),
      theirs_(files.hf, mappings),
      threads_(2),
      recipe_(read(recipe_of(files, theirs_.model_config(), curve, more))),
      setup_(recipe::build(recipe_)) {
  if (recipe_.adapters) peft_ = std::make_unique<hugging_face::PeftNames>(hugging_face::names_of_run(recipe_, theirs_));
  state_ = std::make_unique<training::ModelState>(setup_.model.first(), setup_.optimization.optimizer.get());
  load(files.rounds_base);
}

void ModelOfCase::load(bool rounds_base) {
  const auto all = training::without_new_adapters(theirs_, state_->weight_ranges());
  auto wanted = all;
  std::vector<std::string> notes;
  if (!rounds_base) training::map_frozen(theirs_, *state_, wanted, notes);
  training::load_weights(theirs_, wanted, all, false);
  for (const auto& range : wanted)
    for (auto& x : range.tensor.floats()) x = rounds_base ? static_cast<float>(bfloat16(x)) : x;
  if (setup_.model.open_adapter) training::load_adapter(*setup_.model.open_adapter(theirs_), setup_.model, *state_);
  if (setup_.model.reference) setup_.model.reference->load(setup_);
  state_->weights_changed();
}

void ModelOfCase::add_theirs(const std::string& prefix, const std::string& name, std::span<const float> elements,
                             Values& out) const {
  for (const auto& tensor : theirs_.theirs(name, elements)) out[prefix + tensor.name] = doubles_of(tensor.elements);
}

void ModelOfCase::add_trained(const std::string& prefix, const std::map<std::string, Tensor>& ours, Values& out) const {
  if (!peft_) {
    for (const auto& [name, tensor] : ours) add_theirs(prefix, name, tensor.floats(), out);
    return;
  }
  const hugging_face::PeftTensors theirs(*peft_, TensorsInMemory(ours),
                                         recipe_.lora.bias == model::LoraBias::lora_only);
  for (const auto& [name, tensor] : theirs.tensors()) out[prefix + name] = doubles_of(tensor.floats());
}

double ModelOfCase::largest_move(const std::string& theirs) const {
  const auto now = weights().at(theirs);
  double most = 0;
  for (const auto& range : state_->weight_ranges()) {
    std::vector<float> before(static_cast<std::size_t>(range.tensor.elements()));
    theirs_.read(range.name, before);
    for (const auto& tensor : theirs_.theirs(range.name, before))
      for (std::size_t i = 0; tensor.name == theirs && i < now.size(); ++i)
        most = std::max(most, std::abs(now[i] - static_cast<double>(tensor.elements[i])));
  }
  return most;
}

Values ModelOfCase::first_batch() {
  Values out;
  Arena arena;
  autograd::Tape recording(arena, threads_, true), looking(arena, threads_, false);
  const auto& data = *setup_.data.splits->train;
  Batch batch(data.fields(), setup_.data.batch.batch_size, data.seq_length());
  const auto tokens = first_samples(setup_, batch);
  std::size_t routers = 0;
  const nn::Tap tap = [&](std::string_view name, const Tensor& value) {
    if (const auto recorded = recorded_name(name, routers); !recorded.empty())
      out[recorded] = doubles_of(value.floats());
  };
  model::ForwardMode mode;
  mode.tap = &tap;
  mode.objective = &model::mean_cross_entropy();
  nn::AuxiliaryLog log(setup_.model.first().auxiliary());
  mode.training = log.extents().experts > 0;
  mode.auxiliary_seed = 1;
  mode.log = &log;
  kernels::fill(threads_, 0, state_->gradients());
  {
    const auto loss = setup_.model.first().loss(recording, tokens, mode);
    out["loss"] = {loss.total.sum / loss.total.count};
    out["token_loss"] = doubles_of(loss.token_loss.floats());
    recording.backward();
  }
  recording.clear();
  out["logits"] = doubles_of(setup_.model.first().logits(looking, tokens, {}).floats());
  looking.clear();
  clear_padding(batches_, static_cast<std::int64_t>(tokens.tokens.size()), out);
  double squares = 0;
  for (const auto& run : state_->layout().parameters().ranges()) {
    if (run.parameter->role == ParameterRole::expert_bias) continue;
    const auto gradient = nn::FlatParameters::view(run, state_->gradients());
    squares += kernels::sum_of_squares(threads_, gradient.floats());
    add_theirs("grad.", run.parameter->name, gradient.floats(), out);
  }
  out["grad_norm"] = {std::sqrt(squares)};
  for (std::int64_t i = 0; i < log.extents().layers; ++i) {
    const auto layer = log.layer(i);
    if (layer.reports == 0) continue;
    auto& losses = out["aux_loss"];
    losses.push_back(log.extents().balances
                         ? layer.aux_loss
                         : balancing_loss(out.at(text("router_logits.", losses.size())), layer.chosen));
  }
  return out;
}

Values ModelOfCase::first_step() {
  Values out;
  {
    Arena arena;
    autograd::Tape looking(arena, threads_, false);
    Batch batch(setup_.data.batch.samples_per_step(), setup_.data.splits->train->seq_length());
    const auto tokens = first_samples(setup_, batch);
    auto& model = setup_.model.first();
    out["logits"] = doubles_of(model.logits(looking, tokens, {}).floats());
    out["token_loss"] =
        doubles_of(model.loss(looking, tokens, {.objective = &model::mean_cross_entropy()}).token_loss.floats());
  }
  add_step(out);
  return out;
}

void ModelOfCase::add_step(Values& out) {
  training::TrainingStep step(setup_.model, setup_.optimization, setup_.data, *state_, threads_, 1);
  const auto outcome = step.backward(0);
  out["loss"] = {outcome.loss};
  out["grad_norm"] = {outcome.grad_norm};
  const auto factor = static_cast<float>(outcome.gradient_factor);
  for (auto& gradient : state_->gradients()) gradient *= factor;
  std::map<std::string, Tensor> gradients;
  for (const auto& range : state_->layout().parameters().ranges())
    gradients[range.parameter->name] = nn::FlatParameters::view(range, state_->gradients());
  add_trained("grad.", gradients, out);
}

Values ModelOfCase::first_pairs() {
  Values out;
  add_step(out);
  Arena arena;
  autograd::Tape looking(arena, threads_, false);
  Batch batch(2 * setup_.data.batch.samples_per_step(), setup_.data.splits->train->seq_length());
  const auto rows = first_samples(setup_, batch);
  const RowScores scores(recipe_.pair_stage() == model::PairStage::rm);
  setup_.model.first().loss(looking, rows, {.objective = &scores});
  const auto* reference = setup_.optimization.objective->reference();
  for (const std::int64_t which : {0, 1})  // the chosen rows, then the rejected ones
    for (auto row = which; row < batch.samples; row += 2) {
      const std::string name = which == 0 ? "chosen_logps" : "rejected_logps";
      out[scores.rewards() ? "rewards" : name].push_back(scores.of_rows()[static_cast<std::size_t>(row)]);
      if (reference) out["ref_" + name].push_back(reference->of(rows, row));
    }
  return out;
}

ModelOfCase::Curve ModelOfCase::train() {
  Curve curve;
  training::TrainingStep step(setup_.model, setup_.optimization, setup_.data, *state_, threads_, 1);
  const auto samples = setup_.data.batch.samples_per_step();
  const auto metrics = setup_.optimization.objective->metrics();
  for (std::int64_t k = 0; k < setup_.options.training_iters; ++k) {
    const auto outcome = step.backward(k * samples);
    curve.loss.push_back(outcome.loss);
    curve.grad_norm.push_back(outcome.grad_norm);
    for (std::size_t i = 0; i < metrics.size(); ++i)
      curve.metrics[metrics[i]].push_back(step.auxiliary().metric(static_cast<std::int64_t>(i)));
    step.update(step.rates(k + 1), outcome);
    setup_.optimization.schedule->advance(samples);
  }
  curve.loss_of_first_batch_after = step.evaluate(*setup_.data.splits->train, *setup_.data.train_order, 0, 1);
  return curve;
}

std::set<std::string> ModelOfCase::without_gradient() const {
  std::set<std::string> names;
  for (const auto& range : state_->weight_ranges()) {
    if (range.role != ParameterRole::expert_bias) continue;
    for (const auto& tensor : theirs_.theirs(range.name, range.tensor.floats())) names.insert(tensor.name);
  }
  return names;
}

Values ModelOfCase::values_of(const std::vector<checkpoint::TensorRange>& ranges) const {
  Values out;
  for (const auto& range : ranges) add_theirs("", range.name, range.tensor.floats(), out);
  return out;
}

Values ModelOfCase::weights() const { return values_of(state_->weight_ranges()); }

Values ModelOfCase::trained_weights() const {
  std::map<std::string, Tensor> ours;
  for (const auto& range : state_->trained_ranges()) ours[range.name] = range.tensor;
  Values out;
  add_trained("", ours, out);
  return out;
}

}  // namespace golden
}  // namespace tessera
