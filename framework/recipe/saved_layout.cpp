#include "framework/recipe/saved_layout.h"

#include "framework/nn/weight_parts.h"
#include "framework/recipe/build.h"

namespace tessera::recipe {
namespace {

/// The ranks of a stage that together have everything once, in the order of a run's: rank r has part r of the dense layers
/// while there are such, and likewise of the experts.
struct StageRanks {
  int tensor, sharers, expert;  ///< tensor-parallel ranks, expert-tensor-parallel ones, groups of these

  explicit StageRanks(const Recipe& recipe)
      : tensor(static_cast<int>(recipe.parallel.tensor_model_parallel_size)),
        sharers(recipe.experts() > 0 ? static_cast<int>(recipe.parallel.sharers_of_expert()) : tensor),
        expert(recipe.experts() > 0 ? static_cast<int>(recipe.parallel.expert_model_parallel_size) : 1) {}

  int count() const { return std::max(tensor, sharers * expert); }
  nn::TensorRank tensor_rank(int rank) const { return {rank % tensor, tensor}; }
  nn::ExpertRank expert_rank(int rank) const { return {rank / sharers % expert, expert, rank % sharers, sharers}; }
  /// Whether rank `rank` is the first that has this of `parameter`.
  bool saves(int rank, const nn::Parameter& parameter) const {
    return rank < (parameter.role == ParameterRole::expert ? sharers * expert : tensor);
  }
};

/// Calls `visit(stage, rank, chunks)` for these ranks of every stage.
template <class Visit>
void for_every_rank(const Recipe& recipe, std::int64_t rows, const Visit& visit) {
  const auto plan = recipe.layer_plan();
  const StageRanks ranks(recipe);
  for (std::int64_t stage = 0; stage < plan.stages(); ++stage)
    for (int rank = 0; rank < ranks.count(); ++rank)
      visit(stage, rank, build_stage(recipe, rows, plan, stage, ranks.tensor_rank(rank), {}, ranks.expert_rank(rank)));
}

}  // namespace

checkpoint::CheckpointLayout saved_layout(const Recipe& recipe, std::int64_t rows, std::int64_t data_ranks) {
  return {.tensor = recipe.parallel.tensor_model_parallel_size,
          .data = data_ranks,
          .layers = recipe.layer_plan().layers_by_chunk(),
          .distributed_optimizer = recipe.shares_optimizer(),
          .vocabulary = rows};
}

std::vector<checkpoint::RankWeights> rank_weights(const Recipe& recipe, std::int64_t rows) {
  std::vector<checkpoint::RankWeights> all;
  const auto plan = recipe.layer_plan();
  const int ranks = static_cast<int>(recipe.parallel.tensor_model_parallel_size);
  for (std::int64_t stage = 0; stage < plan.stages(); ++stage)
    for (int rank = 0; rank < ranks; ++rank) {
      auto& own = all.emplace_back(checkpoint::RankWeights{.tensor = rank, .stage = stage, .chunks = {}});
      for (const auto& chunk : build_stage(recipe, rows, plan, stage, {rank, ranks}, {}, {0, 1, rank, ranks}))
        own.chunks.push_back(nn::held_parts(chunk->parameters()));
    }
  return all;
}

std::vector<std::vector<WeightPart>> saved_parts(const Recipe& recipe, std::int64_t rows) {
  std::vector<std::vector<WeightPart>> all;
  const StageRanks ranks(recipe);
  for_every_rank(recipe, rows, [&](std::int64_t, int rank, const auto& chunks) {
    auto& own = all.emplace_back();
    for (const auto& chunk : chunks) {
      auto saved = chunk->parameters();
      std::erase_if(saved, [&](const auto* parameter) { return !ranks.saves(rank, *parameter); });
      for (auto& part : nn::owned_parts(saved)) own.push_back(std::move(part));
    }
  });
  return all;
}

}  // namespace tessera::recipe
