#include "framework/recipe/layout_figures.h"

#include <algorithm>
#include <deque>

#include "framework/base/checked.h"
#include "framework/model/gpt_options.h"
#include "framework/recipe/build.h"

namespace tessera {
namespace {

bool ends_with(const std::string& name, const std::string& end) {
  return name.size() >= end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0;
}
bool has(const std::string& name, const std::string& word) { return name.find(word) != std::string::npos; }

/// The layer in "decoder.layers.7.mlp..."; -1: in none.
std::int64_t layer_of(const std::string& name) {
  const std::string start = "decoder.layers.";
  return name.rfind(start, 0) == 0 ? std::stoll(name.substr(start.size())) : -1;
}

bool is_table(const std::string& name) { return ends_with(name, "word_embeddings.weight"); }

/// Counts what each stage of a tensor parallel rank holds.
class Counter {
 public:
  Counter(const Recipe& recipe, std::int64_t world)
      : gpt_(recipe.model.options<GptOptions>()),
        tensor_(recipe.parallel.tensor_model_parallel_size),
        sharers_(recipe.shares_optimizer() ? static_cast<int>(data_parallel_ranks(recipe.parallel, world)) : 1) {}

  void count(Model& model, const Optimizer& optimizer, LayoutFigures& out) {
    const auto& plan = out.plan;
    of_layer_.resize(static_cast<std::size_t>(plan.layers()));
    for (std::int64_t p = 0; p < plan.stages(); ++p)
      for (std::int64_t c = 0; c < plan.chunks(); ++c)
        for (auto layer = plan.at(p, c).first_layer; layer < plan.at(p, c).end_layer(); ++layer)
          of_layer_[static_cast<std::size_t>(layer)] = {p, c};
    std::vector<std::deque<Parameter>> stages(static_cast<std::size_t>(plan.stages()));
    out.costs.assign(stages.size(), std::vector<double>(static_cast<std::size_t>(plan.chunks()), 0));
    for (const auto* parameter : model.parameters())
      for (const auto& place : places(parameter->name, plan)) {
        const auto stage = static_cast<std::size_t>(place.stage);
        stages[stage].push_back(own_part(*parameter));
        if (multiplies(parameter->name, place, plan))
          out.costs[stage][static_cast<std::size_t>(place.chunk)] +=
              static_cast<double>(stages[stage].back().elements());
      }
    std::vector<RankFigures> of_stage;
    for (auto& stage : stages) of_stage.push_back(held(stage, optimizer));
    for (auto& rank : out.ranks) {
      const auto& same = of_stage[static_cast<std::size_t>(rank.place.pipeline)];
      rank.parameters = same.parameters;
      rank.state = same.state;
    }
  }

 private:
  /// The figures of every rank of a stage.
  RankFigures held(std::deque<Parameter>& stage, const Optimizer& optimizer) const {
    RankFigures out;
    std::vector<Parameter*> parameters;
    for (auto& parameter : stage) {
      parameters.push_back(&parameter);
      out.parameters = checked_sum({{"parameters", out.parameters}, {parameter.name.c_str(), parameter.elements()}});
    }
    out.state = bytes_of_state(parameters, optimizer, sharers_);
    return out;
  }

  /// Chunks that hold a parameter: two for a table that the head of another stage reads too.
  std::vector<LayerPlan::Place> places(const std::string& name, const LayerPlan& plan) const {
    const LayerPlan::Place first{0, 0}, last{plan.stages() - 1, plan.chunks() - 1};
    if (const auto layer = layer_of(name); layer >= 0 && layer < plan.layers())
      return {of_layer_[static_cast<std::size_t>(layer)]};
    if (name.rfind("embedding.", 0) != 0) return {last};
    if (is_table(name) && tied() && plan.stages() > 1) return {first, last};
    return {first};
  }

  bool tied() const { return gpt_ && !gpt_->untie_embeddings_and_output_weights; }

  /// Whether tokens of that chunk are multiplied with the parameter.
  bool multiplies(const std::string& name, const LayerPlan::Place& place, const LayerPlan& plan) const {
    if (is_table(name)) return tied() && plan.at(place.stage, place.chunk).loss;
    return has(name, "linear_") ? ends_with(name, ".weight") : name == "output_layer.weight";
  }

  /// What one tensor parallel rank has of a parameter.
  Parameter own_part(const Parameter& parameter) const {
    Parameter own{parameter.name, parameter.global_shape, parameter.init, parameter.type, {}, {}, {}};
    if (tensor_ == 1 || !gpt_) return own;
    const auto& name = parameter.name;
    const auto rows = parameter.global_shape[0];
    const auto ranks = static_cast<int>(tensor_);
    if (has(name, "linear_qkv.")) {  // a group that several ranks share is on each of them
      const auto all = gpt_->num_attention_heads + 2 * gpt_->groups();
      const auto here = gpt_->num_attention_heads / tensor_ + 2 * std::max<std::int64_t>(gpt_->groups() / tensor_, 1);
      own.cut.strips = {{0, rows / all * here, true}};
    } else if (is_table(name) || name.rfind("output_layer.", 0) == 0 || has(name, "linear_fc1.")) {
      own.cut = TensorCut::even(0, rows, 0, ranks);
    } else if (ends_with(name, "linear_proj.weight") || ends_with(name, "linear_fc2.weight")) {
      own.cut = TensorCut::even(1, parameter.global_shape[1], 0, ranks);
    }
    return own;
  }

  const GptOptions* gpt_;
  std::int64_t tensor_;
  int sharers_;
  std::vector<LayerPlan::Place> of_layer_ = {};
};

}  // namespace

double LayoutFigures::bubble() const { return simulate(PipelineSchedule::training(shape), costs).bubble(); }

LayoutFigures layout_figures(const Recipe& recipe, std::int64_t world) {
  const auto mesh = mesh_of(recipe, world);
  LayoutFigures out{mesh, recipe.layer_plan(), {}, recipe.pipeline_shape(mesh.sizes().data), {}};
  for (int rank = 0; rank < world; ++rank) out.ranks.push_back({out.mesh.place_of(rank)});
  const auto tokenizer = recipe.tokenizer.make();
  const auto model = build_model(recipe, tokenizer.get());
  Counter(recipe, world).count(*model, *recipe.optimizer.make(), out);
  return out;
}

std::string layers_told(const LayerPlan& plan, std::int64_t stage) {
  std::string all;
  for (const auto& chunk : plan.stage(stage)) {
    std::string words = chunk.embedding ? "embedding" : "";
    const auto add = [&](const std::string& more) { words += (words.empty() ? "" : ", ") + more; };
    if (chunk.layers == 1) add(text(chunk.first_layer));
    if (chunk.layers > 1) add(text(chunk.first_layer, "-", chunk.end_layer() - 1));
    if (chunk.loss) add("loss");
    all += (all.empty() ? "" : " | ") + (words.empty() ? "none" : words);
  }
  return all;
}

}  // namespace tessera
