#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "framework/recipe/recipe.h"

namespace tessera::recipe {

/// Figures that follow from a recipe, computed without a run. All numbers are exact.
struct Figures {
  std::vector<std::pair<std::string, std::int64_t>> parameters_by_part;  ///< embedding, each kind of layer part, head
  std::int64_t parameters = 0;          ///< of the model; router biases, which no optimizer updates, are not counted
  std::int64_t trained_parameters = 0;  ///< of these, those that are not frozen
  /// Parameters that one token passes through: of the experts of a layer, only the number that the router chooses.
  std::int64_t active_parameters = 0;
  std::int64_t vocabulary = 0;     ///< number of rows, padding included
  std::int64_t weight_bytes = 0;   ///< of the weights alone, without alignment padding
  std::int64_t state_bytes = 0;    ///< weights, main gradients and optimizer state, as laid out in memory
  std::int64_t micro_batches = 1;  ///< of one step, per data-parallel rank
  std::int64_t samples_per_step = 1;
  std::int64_t tokens_per_step = 0;
  std::int64_t steps = 0;     ///< of the run; 0: it depends on the data, which was not counted
  std::int64_t samples = 0;   ///< of the whole run
  std::int64_t tokens = 0;    ///< of the whole run
  double flops_per_step = 0;  ///< floating-point operations of one step, each sample with foreseen_image()

  struct DataFile {
    std::string prefix;
    std::int64_t tokens, documents;
  };
  std::vector<DataFile> data;  ///< the .bin/.idx pairs that the recipe names
  /// In the splits; 0: no such split, or not counted.
  std::int64_t train_samples = 0, valid_samples = 0, test_samples = 0;
};

/// Why a run has no data, if no option of dataset_config names any; empty: one does, or the type needs none.
std::string missing_data(const Recipe& recipe);

/// Why a run has no checkpoint to begin with, if an option names a folder without one; empty: it needs none, or there
/// is one, or it continues what it has saved, or a folder cannot be looked into.
std::string missing_checkpoint(const Recipe& recipe);

/// The .bin/.idx pairs that dataset_config names: its options whose names end in data_path. Data that is text has none.
/// Reads the headers of the files.
std::vector<Figures::DataFile> data_files(const Recipe& recipe);

/// What tells whether the content of `file`, one of data_files(), is the same as in another run.
struct DataIdentity {
  std::int64_t data_bytes = 0;  ///< size of its .bin files
  /// CRC-32C of its .idx files, which have the length of every document; absent if they are longer than
  /// longest_summed_index: reading them would hold up the start of the run.
  std::optional<std::uint32_t> index_sum;
};
inline constexpr std::int64_t longest_summed_index = std::int64_t{1} << 30;
DataIdentity identity_of(const Recipe& recipe, const Figures::DataFile& file);

/// Floating-point operations of the model for a token (Model::flops), each sample with foreseen_image(). Makes the
/// model without memory for weights.
double flops_per_token(const Recipe& recipe);

/// Computes the figures. Makes the model without memory for weights; reads tokenizer files and the headers of data
/// files. Samples are counted only if that is quick. A step is that of `ranks` data-parallel ranks together; the memory
/// figures are of one process that holds the whole model. Throws ConfigError if a file is missing or damaged.
Figures figures(const Recipe& recipe, std::int64_t ranks = 1);

}  // namespace tessera::recipe
