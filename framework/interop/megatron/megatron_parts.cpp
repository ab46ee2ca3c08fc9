#include "framework/interop/megatron/megatron_parts.h"

#include "framework/model/model.h"
#include "framework/nn/weight_parts.h"
#include "framework/options/schema.h"

namespace tessera {

TensorParallelParts tensor_parallel_parts(const Value& recipe, std::int64_t rows, std::int64_t ranks) {
  Report report;
  Group group(recipe, "model_config", report);
  const auto choice = models().read(group);
  const auto size = read_own<ModelSizeOptions>(group);
  report.must_be_good();
  TensorParallelParts all;
  for (int rank = 0; rank < static_cast<int>(ranks); ++rank) {
    const auto model = choice.make({.seq_length = size.seq_length,
                                    .vocabulary = rows > 0 ? rows : size.vocab_size.value_or(0),
                                    .tensor = {rank, static_cast<int>(ranks)}});
    auto& own = all.emplace_back();
    for (auto& part : held_parts(model->parameters())) own.emplace(part.name, part);
  }
  return all;
}

}  // namespace tessera
