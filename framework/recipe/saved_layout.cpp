#include "framework/recipe/saved_layout.h"

#include "framework/nn/weight_parts.h"
#include "framework/recipe/build.h"

namespace tessera::recipe {
namespace {

/// Calls `visit(stage, rank, chunks)` for every tensor-parallel rank of every stage.
template <class Visit>
void for_every_rank(const Recipe& recipe, std::int64_t rows, const Visit& visit) {
  const auto plan = recipe.layer_plan();
  const int ranks = static_cast<int>(recipe.parallel.tensor_model_parallel_size);
  for (std::int64_t stage = 0; stage < plan.stages(); ++stage)
    for (int rank = 0; rank < ranks; ++rank) visit(stage, rank, build_stage(recipe, rows, plan, stage, {rank, ranks}));
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
  for_every_rank(recipe, rows, [&](std::int64_t stage, int rank, const auto& chunks) {
    auto& own = all.emplace_back(checkpoint::RankWeights{.tensor = rank, .stage = stage, .chunks = {}});
    for (const auto& chunk : chunks) own.chunks.push_back(nn::held_parts(chunk->parameters()));
  });
  return all;
}

std::vector<std::vector<WeightPart>> saved_parts(const Recipe& recipe, std::int64_t rows) {
  std::vector<std::vector<WeightPart>> all;
  for_every_rank(recipe, rows, [&](std::int64_t, int, const auto& chunks) {
    auto& own = all.emplace_back();
    for (const auto& chunk : chunks)
      for (auto& part : nn::owned_parts(chunk->parameters())) own.push_back(std::move(part));
  });
  return all;
}

}  // namespace tessera::recipe
