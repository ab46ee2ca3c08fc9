#include "tests/golden/model_of_case.h"

#include <cmath>

#include "framework/base/files.h"
#include "framework/kernels/vector.h"
#include "framework/recipe/build.h"
#include "framework/training/step.h"
#include "tests/golden/arguments.h"
#include "tests/golden/registries.h"

namespace tessera {

/// The batches of a golden case as a dataset: sample b of step k is number k * batch + b.
struct GoldenBatchesOptions {
  std::string golden_file;
  std::optional<std::int64_t> golden_document_end;
};

void describe(options::Schema<GoldenBatchesOptions>& s) {
  s.option("golden_file", &GoldenBatchesOptions::golden_file, "batch.safetensors of a case.");
  s.option("golden_document_end", &GoldenBatchesOptions::golden_document_end,
           "The token behind which attention begins anew; null: samples are one document each.");
}

namespace {

class GoldenBatches final : public data::Dataset {
 public:
  explicit GoldenBatches(const GoldenBatchesOptions& o) : file_(o.golden_file), document_end_(o.golden_document_end) {
    const auto& file = o.golden_file;
    const auto& shape = file_.shape("tokens");
    if (shape.rank() != 3) throw ConfigError(text(file, ": tokens are ", shape, "; [steps, batch, seq] was expected"));
    samples_ = shape[0] * shape[1];
    length_ = shape[2];
    for (const char* name : {"labels", "loss_mask", "position_ids", "document_ids"})
      if ((name != std::string("document_ids") || file_.has(name)) && file_.shape(name) != shape)
        throw ConfigError(text(file, ": ", name, " are ", file_.shape(name), "; tokens are ", shape));
  }

  std::int64_t samples() const override { return samples_; }
  std::int64_t seq_length() const override { return length_; }
  void read(std::int64_t index, const SampleView& out) const override {
    copy(file_.tensor("tokens").as<std::int64_t>(), index, out.tokens);
    copy(file_.tensor("labels").as<std::int64_t>(), index, out.labels);
    copy(file_.tensor("position_ids").as<std::int64_t>(), index, out.positions);
    copy(file_.tensor("loss_mask").floats(), index, out.loss_mask);
    if (file_.has("document_ids")) return mark_documents(index, out);
    std::int32_t start = 0;
    for (std::size_t i = 0; i < out.tokens.size(); ++i) {
      out.document_start[i] = start;
      if (document_end_ && out.tokens[i] == *document_end_) start = static_cast<std::int32_t>(i + 1);
    }
  }

 private:
  /// From the number of the document of each token.
  void mark_documents(std::int64_t index, const SampleView& out) const {
    copy(file_.tensor("document_ids").as<std::int64_t>(), index, out.document_start);
    std::int32_t start = 0, document = 0;
    for (std::size_t i = 0; i < out.tokens.size(); ++i) {
      const auto own = out.document_start[i];
      if (i == 0 || own != document) start = static_cast<std::int32_t>(i);
      document = own;
      out.document_start[i] = start;
    }
  }
  template <class From, class To>
  static void copy(std::span<From> all, std::int64_t index, std::span<To> out) {
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = static_cast<To>(all[static_cast<std::size_t>(index) * out.size() + i]);
  }
  checkpoint::SafetensorsReader file_;
  std::optional<std::int64_t> document_end_;
  std::int64_t samples_, length_;
};

std::unique_ptr<data::DataSplits> make(const GoldenBatchesOptions& o, data::DataParts) {
  auto splits = std::make_unique<data::DataSplits>();
  splits->train = std::make_unique<GoldenBatches>(o);
  return splits;
}

}  // namespace

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

/// The recipe of a case: its model as config.json says it, its training as the curve says it, and what config.json
/// cannot know of the training (dropout, documents) as arguments.json says it.
options::Value recipe_of(const CaseFiles& files, const options::Value& model_config, const Json& curve,
                         const CaseOptions& more) {
  const auto shape = checkpoint::SafetensorsReader(files.batches).shape("tokens");
  const auto arguments = fs::exists(files.arguments) ? Json::parse(read_file(files.arguments)) : Json::object();
  RecipeTree recipe(files.batches);
  for (const auto& [key, value] : model_config.fields) {
    if (value.kind != options::Value::Kind::group) recipe.set("model_config." + key, value.scalar);
    for (const auto& [inner, option] : value.fields) recipe.set(text(key, ".", inner), option.scalar);
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
  recipe.set("dataset_config.dataset_type", "golden");
  recipe.set("dataset_config.golden_file", files.batches.string());
  if (arguments.value("reset_attention_mask", false))
    recipe.take("dataset_config.golden_document_end", files.facts, "eod_token");
  recipe.set("dataset_config.batch_size", curve.value("micro_batch_size", Json(shape[1])));
  recipe.set("dataset_config.global_batch_size", shape[1]);
  recipe.take("training_config.bf16", curve, "bf16");
  set_training(recipe, curve.at("hyper_parameters"));
  for (const auto& [path, value] : more) recipe.set(path, value);
  return recipe.tree();
}

training::TrainingSetup setup_of(const options::Value& tree) {
  auto registries = all_registries();
  registries.datasets.add("golden", make, "The batches of a golden case.");
  options::Report report;
  const auto recipe = recipe::read_recipe(tree, registries, report);
  report.must_be_good();
  return recipe::build(recipe);
}

TokenBatch first_samples(const training::TrainingSetup& setup, Batch& batch) {
  data::read_batch(*setup.data.splits->train, *setup.data.train_order, 0, 0, 1, batch);
  return batch.view();
}

/// "decoder.layers.2" -> "hidden.layer.2", the `routers`-th "decoder.layers.2.mlp.router" -> "router_logits.<routers>":
/// layers without experts are not counted; empty for a value that cases do not record.
std::string recorded_name(std::string_view ours, std::size_t& routers) {
  const std::string name(ours), layer = "decoder.layers.";
  if (name == "embedding") return "hidden.embedding";
  if (name == "decoder.final_layernorm") return "hidden.final_norm";
  if (name.rfind(layer, 0) != 0) return "";
  const auto end = name.find('.', layer.size());
  if (end != std::string::npos) return name.substr(end) == ".mlp.router" ? text("router_logits.", routers++) : "";
  return "hidden.layer." + name.substr(layer.size());
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

std::vector<double> doubles_of(std::span<const float> floats) { return {floats.begin(), floats.end()}; }

CaseFiles CaseFiles::of_model(const fs::path& folder) {
  return {folder / "hf", folder / "batch.safetensors", folder / "arguments.json",
          Json::parse(read_file(folder / "case.json"))};
}

ModelOfCase::ModelOfCase(const CaseFiles& files, const options::Mappings& mappings, const Json& curve,
                         const CaseOptions& more)
    : theirs_(files.hf, mappings),
      threads_(2),
      setup_(setup_of(recipe_of(files, theirs_.model_config(), curve, more))) {
  state_ = std::make_unique<training::ModelState>(setup_.model.first(), setup_.optimization.optimizer.get());
  load();
}

void ModelOfCase::load() {
  std::size_t known = 0;
  for (const auto& range : state_->weight_ranges()) {
    if (!theirs_.has(range.name)) throw ConfigError(text("the table of weights has nothing for ", range.name));
    if (theirs_.shape(range.name) != range.global_shape)
      throw ConfigError(
          text(range.name, " is ", range.global_shape, " here and ", theirs_.shape(range.name), " there"));
    theirs_.read(range.name, range.tensor.floats());
    ++known;
  }
  state_->weights_changed();
  if (known != theirs_.names().size())
    throw ConfigError(text("the model has ", known, " parameters, the table of weights ", theirs_.names().size()));
}

void ModelOfCase::add_theirs(const std::string& prefix, const std::string& name, std::span<const float> elements,
                             Values& out) const {
  for (const auto& tensor : theirs_.theirs(name, elements)) out[prefix + tensor.name] = doubles_of(tensor.elements);
}

Values ModelOfCase::first_batch() {
  Values out;
  Arena arena;
  autograd::Tape recording(arena, threads_, true), looking(arena, threads_, false);
  Batch batch(setup_.data.batch.batch_size, setup_.data.splits->train->seq_length());
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
  training::TrainingStep step(setup_.model, setup_.optimization, setup_.data, *state_, threads_, 1);
  const auto outcome = step.backward(0);
  out["loss"] = {outcome.loss};
  out["grad_norm"] = {outcome.grad_norm};
  const auto factor = static_cast<float>(outcome.gradient_factor);
  for (auto& gradient : state_->gradients()) gradient *= factor;
  for (const auto& range : state_->layout().parameters().ranges())
    add_theirs("grad.", range.parameter->name, nn::FlatParameters::view(range, state_->gradients()).floats(), out);
  return out;
}

ModelOfCase::Curve ModelOfCase::train() {
  Curve curve;
  training::TrainingStep step(setup_.model, setup_.optimization, setup_.data, *state_, threads_, 1);
  const auto samples = setup_.data.batch.samples_per_step();
  for (std::int64_t k = 0; k < setup_.options.training_iters; ++k) {
    const auto outcome = step.backward(k * samples);
    curve.loss.push_back(outcome.loss);
    curve.grad_norm.push_back(outcome.grad_norm);
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

Values ModelOfCase::trained_weights() const { return values_of(state_->trained_ranges()); }

}  // namespace golden
}  // namespace tessera
