#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "framework/checkpoint/layout.h"
#include "framework/recipe/recipe.h"
#include "tests/golden/run_flags.h"

namespace tessera::golden {

/// The ranks of a recorded run, and what of the model each had.
struct RunRanks {
  /// `world` as arguments.json tells it. Throws NotSupported when the flags do not divide it.
  RunRanks(const RunFlags& flags, std::int64_t world);

  /// The rank in the world; Megatron-LM's order.
  std::int64_t rank(std::int64_t tensor, std::int64_t replica, std::int64_t stage) const;
  /// Which of the data parallel ranks it is.
  std::int64_t replica_of(std::int64_t rank) const;

  std::int64_t world, tensor = 1, stages = 1, replicas = 1;
  bool stages_before_replicas = false;  ///< --use-tp-pp-dp-mapping
};

/// "world_size" of arguments.json.
std::int64_t world_of(const std::filesystem::path& folder);

/// Whether linear_fc1 of the recipe's model has the rows of a gate.
bool has_gate(const recipe::Recipe& recipe);

struct RecordedTensor {
  Shape shape;
  std::vector<double> elements;
};
using RecordedTensors = std::map<std::string, RecordedTensor>;  ///< by our names

/// The tensors in <folder>/<kind>.rank<r>.safetensors of all ranks of a run put together: layers have their numbers in
/// the whole model, of data parallel ranks one is taken, parts of tensor-parallel ranks are joined as the models of
/// these ranks divide their weights. A head on another stage than the embedding that it is tied to is a copy and
/// left out. Nothing when a file is missing. `recipe` is that run's.
std::optional<RecordedTensors> whole_tensors(const std::filesystem::path& folder, const std::string& kind,
                                             const RunRanks& ranks, const recipe::Recipe& recipe);

}  // namespace tessera::golden
