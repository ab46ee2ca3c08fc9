#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "framework/recipe/recipe.h"

namespace tessera::recipe {

/// What follows from a recipe before anything runs. All numbers are exact.
struct Figures {
  std::vector<std::pair<std::string, std::int64_t>> parameters_by_part;  ///< embedding, each kind of layer part, head
  std::int64_t parameters = 0;  ///< the bias of a router, which no optimizer updates, is not counted
  std::int64_t active_parameters =
      0;                           ///< those that one token passes: of the experts of a layer, as many as it chooses
  std::int64_t vocabulary = 0;     ///< rows, padding included
  std::int64_t weight_bytes = 0;   ///< of the weights alone, without padding
  std::int64_t state_bytes = 0;    ///< weights, main gradients and optimizer slots, as they lie in memory
  std::int64_t micro_batches = 1;  ///< of one step
  std::int64_t samples_per_step = 1;
  std::int64_t tokens_per_step = 0;
  std::int64_t steps = 0;    ///< 0: only the data can tell, and they are not counted
  std::int64_t samples = 0;  ///< of the whole run
  std::int64_t tokens = 0;   ///< of the whole run
  double flops_per_step = 0;

  struct DataFile {
    std::string prefix;
    std::int64_t tokens, documents;
  };
  std::vector<DataFile> data;                                           ///< .bin/.idx pairs that the recipe names
  std::int64_t train_samples = 0, valid_samples = 0, test_samples = 0;  ///< there are; 0: no such split, or not counted
};

/// Makes the model without memory for weights; reads tokenizer files and the headers of data. Samples are counted only
/// where that takes no time to speak of. A step is that of `ranks` data parallel ranks together; the rest is of one
/// process that holds the whole model. Throws ConfigError for what is missing or damaged there.
Figures figures(const Recipe& recipe, std::int64_t ranks = 1);

}  // namespace tessera::recipe
