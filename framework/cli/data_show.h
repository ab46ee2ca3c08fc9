#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>

#include "framework/recipe/recipe.h"

namespace tessera::cli {

/// Which samples `tessera data show` prints.
struct DataShowRequest {
  std::string split = "train";            ///< train, valid, test, or valid-NAME of one of several validation sets
  std::optional<std::int64_t> from = {};  ///< position in the run of the first sample, from 0
  /// All samples of this step, from 1; of valid and test: of this step of evaluation.
  std::optional<std::int64_t> step = {};
  std::optional<std::int64_t> count = {};  ///< maximum number of samples; none: all samples of the step, or one
  std::optional<std::int64_t> rank = {};   ///< only samples that this rank of the run reads
  std::int64_t ranks = 0;                  ///< ranks of the run; 0: the fewest that the recipe's parallel sizes allow
  std::string pictures = {};               ///< folder for the images of mllm as the model sees them; empty: none
  bool json = false;                       ///< one JSON object per sample, one per line
};

/// Writes the samples to `out`, as a step of a run of this recipe reads them. Throws ConfigError for a step, rank or
/// split that the run does not have; and as opening and reading the data does.
void show_data(const recipe::Recipe& recipe, const DataShowRequest& request, std::ostream& out);

}  // namespace tessera::cli
