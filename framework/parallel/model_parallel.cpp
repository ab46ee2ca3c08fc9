#include "framework/parallel/model_parallel.h"

#include "framework/base/error.h"

namespace tessera::parallel {

ProcessGroups initialize_model_parallel(const comm::World& world, int tensor, int pipeline, std::int64_t query_groups) {
  if (tensor < 1 || pipeline < 1)
    throw ConfigError(text("initialize_model_parallel: tensor ", tensor, " and pipeline ", pipeline,
                           " were asked for; each is 1 at least"));
  const auto model = std::int64_t{tensor} * pipeline;
  if (world.size() % model != 0)
    throw ConfigError(text("initialize_model_parallel: ", world.size(), " processes do not divide by tensor ", tensor,
                           " x pipeline ", pipeline, " = ", model, "; start a multiple of ", model));
  MeshSizes sizes;
  sizes.tensor = tensor;
  sizes.pipeline = pipeline;
  sizes.data = static_cast<int>(world.size() / model);
  return {world, Mesh(sizes), query_groups > 0 ? query_groups : tensor};
}

ModelParallelSeeds model_parallel_seeds(std::uint64_t seed, int tensor_rank) {
  return {seed, seed + 2718 + static_cast<std::uint64_t>(tensor_rank)};
}

}  // namespace tessera::parallel
