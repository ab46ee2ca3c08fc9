#include "framework/interop/megatron/megatron_parts.h"

#include "framework/model/model.h"
#include "framework/nn/weight_parts.h"
#include "framework/options/schema.h"

namespace tessera::megatron {

TensorParallelParts tensor_parallel_parts(const options::Value& recipe, std::int64_t rows, std::int64_t ranks) {
  options::Report report;
  options::Group group(recipe, "model_config", report);
  const auto choice = model::models().read(group);
  const auto size = options::read_own<model::ModelSizeOptions>(group);
  options::Group experts(recipe, "moe_config", report);
  const auto moe = options::read_own<model::MoeOptions>(experts);
  report.must_be_good();
  TensorParallelParts all;
  for (int rank = 0; rank < static_cast<int>(ranks); ++rank) {
    const auto model = choice.make({.seq_length = size.seq_length,
                                    .vocabulary = rows > 0 ? rows : size.vocab_size.value_or(0),
                                    .moe = moe,
                                    .tensor = {rank, static_cast<int>(ranks)},
                                    .expert = {0, 1, rank, static_cast<int>(ranks)}});
    auto& own = all.emplace_back();
    for (auto& part : nn::held_parts(model->parameters())) own.emplace(part.name, part);
  }
  return all;
}

}  // namespace tessera::megatron
