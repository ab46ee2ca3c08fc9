#pragma once

#include <array>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "framework/data/dataset.h"
#include "framework/gpt/blend.h"
#include "framework/gpt/gpt_dataset.h"
#include "framework/gpt/index_cache.h"
#include "framework/gpt/split.h"
#include "framework/tokenizers/tokenizer.h"

namespace tessera::gpt {

/// Names of the splits, in the order of all arrays of splits.
inline constexpr std::array<const char*, 3> split_names = {"train", "valid", "test"};

/// The requested number of samples of a split.
struct SplitWanted {
  std::optional<std::int64_t> samples;  ///< none: one epoch
};
using SplitsWanted = std::array<std::optional<SplitWanted>, 3>;

/// Builds the datasets that Megatron-LM builds (GPTDataset, MockGPTDataset, BlendedDataset): determines the samples
/// that each part of a blend contributes, the descriptions that name the index cache files, and those files.
class GptSplits {
 public:
  struct Options {
    DocumentOptions documents;
    /// Empty: PREFIX/cache/GPTDataset_indices for each dataset; no cache for blends and mock data.
    std::filesystem::path cache_folder;
    std::int64_t threads = 1;
    bool mmap_bin_files = true;
    bool no_shared_storage = false;
    double surplus = 0.005;
    bool multiple_validation_sets = false;
    std::vector<std::string> validation_set_names;  ///< empty: their indices from 0
    bool may_write_caches = true;
    data::TellLine tell = {};

    std::int64_t seq_length = 0;
    std::uint32_t seed = 1234;
    std::int64_t vocab_size = 0;
    std::optional<std::int32_t> eod;
    std::int32_t pad = -1;
    std::optional<tokenizers::Tokenizer::Identity> tokenizer;
  };
  /// `options` completed by the properties of the run, `parts`.
  static Options with(Options options, const data::DataParts& parts);
  static SplitsWanted wanted(const data::SamplesAsked& asked);

  explicit GptSplits(Options options) : options_(std::move(options)) {}

  using Splits = std::array<std::unique_ptr<data::Dataset>, 3>;
  /// Builds the splits of one blend, divided by `split` ("969, 30, 1"). A split is null if its weight is 0, it is not
  /// requested, or it is the test split and too small to contain a sequence. Throws ConfigError if a file is missing or
  /// damaged, a split has no sample, or one epoch of a blend with weights is requested.
  Splits of_blend(const Blend& blend, const std::string& split, const SplitsWanted& wanted) const;
  /// Builds one split (0 train, 1 valid, 2 test) from a blend of its own.
  std::unique_ptr<data::Dataset> of_split(const Blend& blend, std::size_t split, SplitWanted wanted) const;
  /// Builds splits of mock data, each one third of it.
  Splits of_mock(const std::shared_ptr<const indexed::TokenSource>& source, const SplitsWanted& wanted) const;

  /// Builds all splits of a run, from the blends that its recipe names. With `multiple_validation_sets`, each prefix of
  /// `per_split[1]` is a validation set with the requested number of samples; else there is one set. Throws ConfigError
  /// if the number of names differs from the number of sets, and as of_blend does.
  data::DataSplits of_run(const std::optional<Blend>& blend, const std::string& split,
                          const std::array<std::optional<Blend>, 3>& per_split, const data::SamplesAsked& asked) const;

 private:
  std::vector<data::ValidationSet> named(std::vector<std::unique_ptr<data::Dataset>> sets) const;
  struct Part;
  struct Cut;
  using Parts = std::vector<std::array<std::optional<Part>, 3>>;
  Part part(const std::shared_ptr<const indexed::TokenSource>& source, const Cut& cut, std::size_t split,
            SplitWanted wanted) const;
  std::array<std::optional<Part>, 3> parts_of(const std::string& prefix, const std::string* split,
                                              const SplitsWanted& wanted) const;
  Parts parts_of(const Blend& blend, const std::string* split, const SplitsWanted& wanted) const;
  Splits blended(const Blend& blend, const std::string* split, const SplitsWanted& wanted) const;
  std::unique_ptr<data::Dataset> blended(std::vector<Part> parts, const Blend& blend, std::size_t split,
                                         SplitWanted wanted) const;
  IndexCache cache(std::filesystem::path folder) const;

  Options options_;
};

}  // namespace tessera::gpt
