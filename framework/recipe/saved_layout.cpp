#include "framework/recipe/saved_layout.h"

#include <algorithm>

#include "framework/nn/weight_parts.h"
#include "framework/recipe/build.h"

namespace tessera::recipe {
namespace {

nn::TensorRank tensor_rank(const checkpoint::CheckpointLayout& layout, std::int64_t rank) {
  return {static_cast<int>(layout.tensor_rank(rank)), static_cast<int>(layout.tensor)};
}
nn::ExpertRank expert_rank(const checkpoint::CheckpointLayout& layout, std::int64_t rank) {
  return {static_cast<int>(layout.expert_rank(rank)), static_cast<int>(layout.expert),
          static_cast<int>(layout.expert_tensor_rank(rank)), static_cast<int>(layout.sharers_of_expert())};
}

/// Whether rank `rank` is the first rank that holds its shard of `parameter`.
bool saves(const checkpoint::CheckpointLayout& layout, std::int64_t rank, const nn::Parameter& parameter) {
  return rank < (is_of_expert(parameter.role) ? layout.sharers_of_expert() * layout.expert : layout.tensor);
}

/// Calls `visit(stage, rank, chunks)` for these ranks of every stage.
template <class Visit>
void for_every_rank(const Recipe& recipe, std::int64_t rows, const Visit& visit) {
  const auto plan = recipe.layer_plan();
  const auto layout = saved_layout(recipe, rows);
  for (std::int64_t stage = 0; stage < plan.stages(); ++stage)
    for (std::int64_t rank = 0; rank < layout.ranks(); ++rank)
      visit(stage, rank,
            build_stage(recipe, rows, plan, stage, tensor_rank(layout, rank), {}, expert_rank(layout, rank)));
}

}  // namespace

checkpoint::CheckpointLayout saved_layout(const Recipe& recipe, std::int64_t rows, std::int64_t data_ranks) {
  checkpoint::CheckpointLayout layout{.tensor = recipe.parallel.tensor_model_parallel_size,
                                      .layers = recipe.layer_plan().layers_by_chunk(),
                                      .distributed_optimizer = recipe.data_parallel.use_distributed_optimizer,
                                      .vocabulary = rows};
  if (recipe.experts() > 0) {
    layout.expert = recipe.parallel.expert_model_parallel_size;
    layout.expert_tensor = recipe.parallel.sharers_of_expert();
  }
  layout.data = std::max(data_ranks, (layout.ranks() + layout.tensor - 1) / layout.tensor);
  return layout;
}

std::vector<checkpoint::RankWeights> rank_weights(const Recipe& recipe, std::int64_t rows) {
  std::vector<checkpoint::RankWeights> all;
  for_every_rank(recipe, rows, [&](std::int64_t stage, std::int64_t rank, const auto& chunks) {
    auto& own = all.emplace_back(checkpoint::RankWeights{.rank = rank, .stage = stage, .chunks = {}});
    for (const auto& chunk : chunks) own.chunks.push_back(nn::held_parts(chunk->parameters()));
  });
  return all;
}

std::vector<std::vector<WeightPart>> saved_parts(const Recipe& recipe, std::int64_t rows) {
  std::vector<std::vector<WeightPart>> all;
  const auto layout = saved_layout(recipe, rows);
  for_every_rank(recipe, rows, [&](std::int64_t, std::int64_t rank, const auto& chunks) {
    auto& own = all.emplace_back();
    for (const auto& chunk : chunks) {
      auto saved = chunk->parameters();
      std::erase_if(saved, [&](const auto* parameter) { return !saves(layout, rank, *parameter); });
      for (auto& part : nn::owned_parts(saved)) own.push_back(std::move(part));
    }
  });
  return all;
}

}  // namespace tessera::recipe
