#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "framework/gpt/index_array.h"
#include "framework/options/report.h"

namespace tessera::gpt {

/// A blend of datasets: prefixes of .bin and .idx files, and their weights.
struct Blend {
  std::vector<std::string> prefixes;
  std::optional<std::vector<double>> weights;  ///< one for each prefix, as given; none: weighted by numbers of samples

  /// Whether there is a single prefix without a weight, so that no blending is needed.
  bool is_plain() const { return prefixes.size() == 1 && !weights; }
};

/// Parses words by Megatron-LM's rule: an odd number of words, or pairs of which no first word is a number, are
/// prefixes; otherwise the words are pairs of weight and prefix. No words: null. Throws ConfigError, beginning with
/// `option`, if only some pairs begin with a number, a weight is not above 0, or there are more than 32766 prefixes.
std::optional<Blend> read_blend(const std::vector<std::string>& words, const std::string& option);
/// The error that read_blend would throw, as a finding about `option`; nothing if there is none.
std::optional<options::Finding> broken_blend(const std::vector<std::string>& words, const std::string& option);

/// Reads the words of a text file, separated by white space (`data_args_path`). `option`: for messages. Throws
/// ConfigError if the file cannot be read.
std::vector<std::string> words_of_file(const std::string& file, const std::string& option);
/// Reads the words of each split from a JSON object with the keys train, valid and test, each null, a text or a list
/// (`per_split_data_args_path`). Throws ConfigError.
std::vector<std::vector<std::string>> words_of_splits(const std::string& file, const std::string& option);

/// `weights` divided by their sum, with NumPy's rounding (pairwise summation).
std::vector<double> normalized(std::span<const double> weights);

/// Number of samples that a dataset with this normalized weight contributes to `samples`; with a surplus, the number
/// that is built for it (mid_level_dataset_surplus).
std::int64_t samples_of_part(std::int64_t samples, double weight, double surplus = 0);

/// Megatron-LM's order of a blend: for each sample, the dataset it comes from and its number there. Each sample is
/// taken from the dataset that is furthest behind its weight; from the first of equal ones.
struct BlendIndex {
  IndexArray part;         ///< [size] int16
  IndexArray part_sample;  ///< [size] int64
};
/// Builds the order of `size` samples for datasets with these normalized weights.
BlendIndex build_blend_index(std::span<const double> weights, std::int64_t size);
/// Returns what is wrong with an order that was read from files, for datasets with these numbers of samples: an entry
/// that names a dataset or a sample that is not there; "" if nothing is.
std::string wrong_blend_index(const IndexArray& part, const IndexArray& part_sample,
                              std::span<const std::int64_t> lengths);
/// Builds the order of all samples of datasets with these numbers of samples; an exhausted dataset is not chosen again.
BlendIndex build_exhaustive_blend_index(std::span<const std::int64_t> lengths);

}  // namespace tessera::gpt
