#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "framework/data/gpt/index_array.h"
#include "framework/options/report.h"

namespace tessera::data {

/// Prefixes of .bin and .idx files, and how much of each is read.
struct Blend {
  std::vector<std::string> prefixes;
  std::optional<std::vector<double>> weights;  ///< as given, of each prefix; none: by their numbers of samples

  /// One prefix without a weight: no blend is made.
  bool is_plain() const { return prefixes.size() == 1 && !weights; }
};

/// From words by Megatron-LM's rule: an odd number of words, or pairs of which no first word is a number, are prefixes;
/// other pairs are a weight and a prefix. No words: null. Throws ConfigError, beginning with `option`, if only some
/// pairs begin with a number, a weight is not above 0, or there are more than 32766 prefixes.
std::optional<Blend> read_blend(const std::vector<std::string>& words, const std::string& option);
/// What read_blend would throw, as a finding about `option`; none: nothing is wrong.
std::optional<options::Finding> broken_blend(const std::vector<std::string>& words, const std::string& option);

/// Words of a text file, separated by white space: `data_args_path`. Throws ConfigError.
std::vector<std::string> words_of_file(const std::string& file, const std::string& option);
/// Of a JSON object with the keys train, valid and test, each null, a text or a list: `per_split_data_args_path`.
/// Throws ConfigError.
std::vector<std::vector<std::string>> words_of_splits(const std::string& file, const std::string& option);

/// Divided by their sum, with NumPy's rounding (pairwise summation).
std::vector<double> normalized(std::span<const double> weights);

/// Of `samples` those that a part of this normalized weight gives; with a surplus, those that are built for it.
std::int64_t samples_of_part(std::int64_t samples, double weight, double surplus = 0);

/// Megatron-LM's order of a blend: which part each sample comes from, and its number there. Each sample goes to the
/// part that is most behind its weight, to the first of equals.
struct BlendIndex {
  IndexArray part;         ///< [size] int16
  IndexArray part_sample;  ///< [size] int64
};
/// `size` samples of parts with these normalized weights.
BlendIndex build_blend_index(std::span<const double> weights, std::int64_t size);
/// All samples of parts of these lengths: a part drops out when it is used up.
BlendIndex build_exhaustive_blend_index(std::span<const std::int64_t> lengths);

}  // namespace tessera::data
