// Random models on random layouts: what the ranks hold, and what is reported of it before a run.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <random>

#include "framework/options/yaml.h"
#include "framework/recipe/build.h"
#include "framework/recipe/figures.h"
#include "framework/recipe/layout_figures.h"
#include "framework/recipe/saved_layout.h"
#include "tests/drawn_seed.h"
#include "tests/sanitized.h"

namespace tessera::recipe {
namespace {

unsigned seed() { return drawn_seed(20261122); }

/// Recipes of small models with a layout, one after the other. Some contradict a rule and are refused.
class Recipes {
 public:
  struct Drawn {
    std::string yaml;
    int world = 1;
  };
  Drawn next() {
    const int tensor = one<int>({1, 2, 4, 8}), pipeline = one<int>({1, 2, 3, 4}), data = one<int>({1, 1, 2, 3}),
              context = one<int>({1, 1, 2, 4});
    const int layers = pipeline * 2 + one<int>({0, 1, 2, 3});
    model_ = text("{num_layers: ", layers,
                  ", hidden_size: 16, num_attention_heads: 8, seq_length: 16, vocab_size: ", one<int>({64, 96}),
                  ", ffn_hidden_size: ", one<int>({16, 40}));
    if (random_() % 4 == 0)
      model_ +=
          text(", multi_latent_attention: true, qk_head_dim: 4, qk_pos_emb_head_dim: 2, v_head_dim: 3, kv_lora_rank: ",
               one<int>({6, 14}), one<std::string>({"", ", q_lora_rank: 8"}));
    else
      say("num_query_groups", one<std::string>({"1", "2", "4", "8"}), "group_query_attention: true");
    if (random_() % 4 == 0) say("mtp_num_layers", one<std::string>({"1", "2"}));
    for (const auto* flag : {"untie_embeddings_and_output_weights", "qk_layernorm", "add_bias_linear", "qkv_has_bias",
                             "use_final_norm", "use_sandwich_norm", "use_parallel_residual"})
      say(flag, one<std::string>({"true", "false"}));
    say("normalization", one<std::string>({"LayerNorm", "RMSNorm"}));
    say("hidden_act", one<std::string>({"gelu", "swiglu"}));
    say("position_embedding_type", one<std::string>({"learned_absolute", "rope", "none"}));
    layout_ = text("{tensor_model_parallel_size: ", tensor, ", pipeline_model_parallel_size: ", pipeline);
    const bool experts = random_() % 3 == 0;
    if (experts || random_() % 2) layout_ += ", sequence_parallel: true";
    if (experts) {
      model_ += ", num_experts: 8";
      const auto ranks = tensor * context * data, sharers = one<int>({1, tensor, 2});
      if (random_() % 3 != 0) layout_ += text(", expert_tensor_parallel_size: ", sharers);
      layout_ += text(", expert_model_parallel_size: ", one<int>({1, 2, std::max(1, ranks / sharers)}));
    }
    if (context > 1)
      layout_ += text(", context_parallel_size: ", context,
                      ", cp_comm_type: ", one<std::string>({"p2p", "all_gather", "a2a"}));
    divide(pipeline, layers);
    auto training = one<std::string>({"", ", bf16: true", ", use_distributed_optimizer: true",
                                      ", use_distributed_optimizer: true, bucket_size: 1000",
                                      ", bf16: true, use_distributed_optimizer: true"});
    // Where a pattern matches nothing, the recipe is refused.
    training += one<std::string>({"", "", ", frozen_parameters: ['embedding.*']", ", frozen_parameters: ['.*weight']",
                                  ", trainable_parameters: ['.*[02]\\.(linear_fc[12]\\.)?.*']",
                                  ", trainable_parameters: ['.*layers\\.1\\..*']"});
    return {text("training_config: {training_iters: 1", training, "}\nmodel_config: ", model_, "}\nparallel_config: ",
                 layout_, "}\ndataset_config: {dataset_type: mock, batch_size: 1, micro_batch_num: 12}\n"),
            tensor * context * pipeline * data};
  }

 private:
  template <class T>
  T one(const std::vector<T>& from) {
    return from[random_() % from.size()];
  }
  void say(const std::string& key, const std::string& value, const std::string& more = "") {
    model_ += text(", ", key, ": ", value);
    if (!more.empty()) model_ += ", " + more;
  }
  /// Equal or unequal numbers of layers, one or two chunks for each stage, maybe without layers, layers that do
  /// nothing.
  void divide(int pipeline, int layers) {
    if (random_() % 3 == 0) layout_ += text(", noop_layers: [", random_() % 2, ", ", layers - 1, "]");
    if (pipeline == 1 || random_() % 3 == 0) return;
    const bool interleaved = random_() % 2;
    std::string list;
    int left = layers;
    for (int stage = 0; stage < pipeline; ++stage) {
      const int here = stage + 1 == pipeline ? left : std::min(left, int(random_() % 4));
      left -= here;
      const int second = interleaved ? here / 2 : 0;
      list += text(stage == 0 ? "" : ", ", "[", here - second, interleaved ? text(", ", second) : "", "]");
    }
    layout_ += text(", num_layer_list: '[", list, "]'");
    if (interleaved) layout_ += ", virtual_pipeline_model_parallel_size: 2";
  }

  std::mt19937 random_{seed()};
  std::string model_, layout_;
};

/// The real chunks of one rank, without memory.
struct RankModel {
  std::vector<std::unique_ptr<model::Model>> chunks;
  std::vector<nn::Parameter*> parameters() const {
    std::vector<nn::Parameter*> all;
    for (const auto& chunk : chunks)
      for (auto* parameter : chunk->parameters()) all.push_back(parameter);
    return all;
  }
};

struct DrawnLayout {
  explicit DrawnLayout(const Recipes::Drawn& drawn) : world(drawn.world) {
    recipe = read_recipe(options::parse_yaml(drawn.yaml, "run.yaml"), Registries{}, report);
    if (report.good()) check_ranks(recipe, world, report);
  }
  /// The chunks of rank `rank` of those of a stage, which are in the order of the run.
  RankModel rank(std::int64_t stage, int rank) const {
    return {build_stage(recipe, vocabulary(recipe, nullptr), recipe.layer_plan(), stage,
                        {rank % tensor_ranks(), tensor_ranks(), recipe.parallel.sequence_parallel}, {},
                        {rank / sharers() % expert_ranks(), expert_ranks(), rank % sharers(), sharers()})};
  }
  /// Whether rank `rank` of a stage is the first with its part of a parameter.
  bool is_first(int rank, const nn::Parameter& parameter) const {
    return rank < (parameter.role == ParameterRole::expert ? sharers() * expert_ranks() : tensor_ranks());
  }
  int writers() const { return std::max(tensor_ranks(), sharers() * expert_ranks()); }
  int sharers() const {
    return recipe.experts() > 0 ? static_cast<int>(recipe.parallel.sharers_of_expert()) : tensor_ranks();
  }
  int expert_ranks() const { return static_cast<int>(recipe.parallel.expert_model_parallel_size); }
  int tensor_ranks() const { return static_cast<int>(recipe.parallel.tensor_model_parallel_size); }
  std::int64_t stages() const { return recipe.parallel.pipeline_model_parallel_size; }
  options::Report report;
  Recipe recipe;
  int world;
};

/// `check` of every drawn case that no rule refuses.
void for_every_layout(const std::function<void(const DrawnLayout&)>& check) {
  constexpr int wanted = 60 / part_of_inputs, most_drawn = 600;
  Recipes recipes;
  int good = 0;
  for (int drawn = 0; drawn < most_drawn && good < wanted; ++drawn) {
    const auto next = recipes.next();
    SCOPED_TRACE(text("seed ", seed(), ", ", next.world, " ranks of\n", next.yaml));
    const DrawnLayout one(next);
    if (!one.report.good()) continue;
    ++good;
    check(one);
    if (testing::Test::HasFatalFailure()) return;
  }
  EXPECT_EQ(good, wanted) << "seed " << seed();
}

/// How often each element of one unsharded tensor is owned.
struct Ownership {
  const nn::Parameter* whole = nullptr;
  std::vector<int> owners;

  void add(const nn::Parameter& part) {
    const auto owned = part.owned();
    std::int64_t here = 0;
    for (const auto& run : nn::global_ranges_of(part))
      for (std::int64_t i = 0; i < run.count; ++i, ++here) {
        const bool own = std::any_of(owned.begin(), owned.end(), [&](const nn::ElementRange& range) {
          return here >= range.first && here < range.first + range.count;
        });
        owners[static_cast<std::size_t>(run.first + i)] += own;
      }
  }
};

TEST(LayoutProperties, TheElementsThatRanksOwnAreEveryTensorExactlyOnce) {
  for_every_layout([](const DrawnLayout& one) {
    const auto whole = build_model(one.recipe, nullptr);
    std::map<std::string, Ownership> tensors;
    for (const auto* parameter : whole->parameters())
      tensors[parameter->name] = {parameter, std::vector<int>(static_cast<std::size_t>(parameter->elements()), 0)};
    for (std::int64_t stage = 0; stage < one.stages(); ++stage)
      for (int r = 0; r < one.writers(); ++r) {
        const auto rank = one.rank(stage, r);
        for (const auto* parameter : rank.parameters()) {
          if (!one.is_first(r, *parameter)) continue;
          const auto found = tensors.find(parameter->name);
          ASSERT_NE(found, tensors.end()) << parameter->name;
          EXPECT_EQ(parameter->global_shape, found->second.whole->global_shape) << parameter->name;
          EXPECT_EQ(parameter->role, found->second.whole->role) << parameter->name;
          found->second.add(*parameter);
        }
      }
    for (const auto& [name, tensor] : tensors)
      ASSERT_EQ(tensor.owners, std::vector<int>(tensor.owners.size(), 1)) << name;
  });
}

TEST(LayoutProperties, WhatALayoutSavesIsEveryWeightOnceByTheRanksThatOwnIt) {
  for_every_layout([](const DrawnLayout& one) {
    const auto writers = saved_parts(one.recipe, vocabulary(one.recipe, nullptr));
    ASSERT_EQ(writers.size(), static_cast<std::size_t>(one.stages() * one.writers()));
    std::map<std::string, std::int64_t> saved;
    for (std::size_t w = 0; w < writers.size(); ++w) {
      const auto stage = static_cast<std::int64_t>(w) / one.writers();
      const auto r = static_cast<int>(w) % one.writers();
      const auto rank = one.rank(stage, r);
      std::int64_t owned = 0, elements = 0;
      for (const auto* parameter : rank.parameters())
        if (one.is_first(r, *parameter))
          for (const auto& range : parameter->owned()) owned += range.count;
      for (const auto& part : writers[w])
        for (const auto& box : part.boxes) {
          elements += box.elements();
          saved[part.name] += box.elements();
        }
      EXPECT_EQ(elements, owned) << "writer " << w;
    }
    const auto whole = build_model(one.recipe, nullptr);
    for (const auto* parameter : whole->parameters()) EXPECT_EQ(saved[parameter->name], parameter->elements());
  });
}

TEST(LayoutProperties, FiguresOfEveryRankAreThoseOfItsRealModel) {
  for_every_layout([](const DrawnLayout& one) {
    const auto optimizer = one.recipe.optimizer.make();
    const auto figures = layout_figures(one.recipe, one.world);
    const auto context = figures.mesh.sizes().context;
    ASSERT_EQ(figures.ranks.size(), static_cast<std::size_t>(one.world));
    const auto flops = recipe::figures(one.recipe, figures.mesh.sizes().data).flops_per_step;
    EXPECT_NEAR(std::accumulate(figures.flops.begin(), figures.flops.end(), 0.0), flops, 1e-9 * flops);
    for (const auto& told : figures.ranks) {
      const auto in_stage = told.place.tensor + one.tensor_ranks() * (told.place.context + context * told.place.data);
      const auto rank = one.rank(told.place.pipeline, in_stage);
      const auto parameters = rank.parameters();
      std::int64_t elements = 0, frozen = 0;
      for (const auto* parameter : parameters) {
        elements += parameter->elements();
        const auto bytes = parameter->elements() * static_cast<std::int64_t>(size_of(parameter->type));
        if (!parameter->trained) frozen += (bytes + 63) / 64 * 64;
      }
      EXPECT_EQ(told.parameters, elements);
      const auto bytes = [&](bool experts, int sharer, int sharers) {
        auto own = parameters;
        std::erase_if(own, [](auto* each) { return !each->trained; });
        if (!figures.mesh.sizes().experts_like_dense())
          std::erase_if(own, [&](auto* each) { return (each->role == ParameterRole::expert) != experts; });
        if (own.empty()) return training::StateBytes{};
        return training::StateLayout(own, optimizer.get(),
                                     {.rank = sharer,
                                      .ranks = sharers,
                                      .distributed_optimizer = one.recipe.data_parallel.use_distributed_optimizer,
                                      .bucket_elements = one.recipe.data_parallel.bucket_elements(sharers)})
            .bytes();
      };
      auto state = bytes(false, told.place.context + context * told.place.data, context * figures.mesh.sizes().data);
      if (!figures.mesh.sizes().experts_like_dense())
        state += bytes(true, in_stage / (one.sharers() * one.expert_ranks()), figures.mesh.sizes().expert_data());
      EXPECT_EQ(told.state.weights, state.weights + frozen);
      EXPECT_EQ(told.state.gradients, state.gradients);
      EXPECT_EQ(told.state.optimizer, state.optimizer);
    }
  });
}

}  // namespace
}  // namespace tessera::recipe
