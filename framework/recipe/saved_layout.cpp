#include "framework/recipe/saved_layout.h"

#include "framework/recipe/build.h"

namespace tessera {

CheckpointLayout saved_layout(const Recipe& recipe, std::int64_t data_ranks) {
  CheckpointLayout layout;
  layout.tensor = recipe.parallel.tensor_model_parallel_size;
  layout.data = data_ranks;
  layout.distributed_optimizer = recipe.shares_optimizer();
  layout.layers = recipe.layer_plan().layers_by_chunk();
  return layout;
}

std::vector<std::vector<TensorBox>> saved_boxes(const Recipe& recipe, std::int64_t rows) {
  const auto plan = recipe.layer_plan();
  const int ranks = static_cast<int>(recipe.parallel.tensor_model_parallel_size);
  std::vector<std::vector<TensorBox>> writers;
  for (std::int64_t stage = 0; stage < plan.stages(); ++stage)
    for (int rank = 0; rank < ranks; ++rank) {
      auto& saved = writers.emplace_back();
      for (const auto& chunk : build_stage(recipe, rows, plan, stage, {rank, ranks}))
        for (const auto* parameter : chunk->parameters())
          for (const auto& range : parameter->owned())
            for (const auto& box : boxes_of(*parameter, range))
              saved.push_back(
                  {parameter->name, parameter->role, parameter->global_shape, Box::of(box.offsets, box.shape)});
    }
  return writers;
}

}  // namespace tessera
