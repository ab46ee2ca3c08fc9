#pragma once

#include <array>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "framework/data/dataset.h"
#include "framework/data/gpt/blend.h"
#include "framework/data/gpt/gpt_dataset.h"
#include "framework/data/gpt/split.h"
#include "framework/data/tokenizers/tokenizer.h"

namespace tessera::data {

/// Train, valid and test.
inline constexpr std::array<const char*, 3> split_names = {"train", "valid", "test"};

/// How many samples of a split are wanted; none: it is not built.
struct SplitWanted {
  std::optional<std::int64_t> samples;  ///< null: one epoch
};
using SplitsWanted = std::array<std::optional<SplitWanted>, 3>;

/// Builds Megatron-LM's GPTDataset, MockGPTDataset and BlendedDataset: which samples each part of a blend gives, the
/// text that names their index files, and the files.
class GptSplits {
 public:
  struct Options {
    DocumentOptions documents;
    std::filesystem::path cache_folder;  ///< empty: PREFIX/cache/GPTDataset_indices, and none for blends and mock data
    std::int64_t threads = 1;
    bool mmap_bin_files = true;
    bool no_shared_storage = false;
    double surplus = 0.005;
    bool multiple_validation_sets = false;
    std::vector<std::string> validation_set_names;  ///< empty: their numbers from 0
    bool may_write_caches = true;
    TellLine tell = {};

    std::int64_t seq_length = 0;
    std::uint32_t seed = 1234;
    std::int64_t vocab_size = 0;
    std::optional<std::int32_t> eod;
    std::int32_t pad = -1;
    std::optional<Tokenizer::Identity> tokenizer;
  };
  /// Also takes what the run gives: `parts`.
  static Options with(Options options, const DataParts& parts);
  static SplitsWanted wanted(const SamplesAsked& asked);

  explicit GptSplits(Options options) : options_(std::move(options)) {}

  using Splits = std::array<std::unique_ptr<Dataset>, 3>;
  /// One blend that `split` ("969, 30, 1") divides. A split is null if its weight is 0, or it is not wanted, or it is
  /// the test split and so small that it has no sequence. Throws ConfigError for files that are missing or damaged, for
  /// a split without a sample, and for a blend with weights of which one epoch is wanted.
  Splits of_blend(const Blend& blend, const std::string& split, const SplitsWanted& wanted) const;
  /// A blend of its own for one split (0 train, 1 valid, 2 test).
  std::unique_ptr<Dataset> of_split(const Blend& blend, std::size_t split, SplitWanted wanted) const;
  /// Mock data, each split a third.
  Splits of_mock(const std::shared_ptr<const TokenSource>& source, const SplitsWanted& wanted) const;

  /// All that a run wants, from what its recipe names. With `multiple_validation_sets` each prefix of `per_split[1]` is
  /// a validation set with the number of samples that is asked for, else there is one set. Throws ConfigError if the
  /// number of names differs from that of the sets, and as of_blend.
  DataSplits of_run(const std::optional<Blend>& blend, const std::string& split,
                    const std::array<std::optional<Blend>, 3>& per_split, const SamplesAsked& asked) const;

 private:
  std::vector<ValidationSet> named(std::vector<std::unique_ptr<Dataset>> sets) const;
  struct Part;
  struct Cut;
  using Parts = std::vector<std::array<std::optional<Part>, 3>>;
  Part part(const std::shared_ptr<const TokenSource>& source, const Cut& cut, std::size_t split,
            SplitWanted wanted) const;
  std::array<std::optional<Part>, 3> parts_of(const std::string& prefix, const std::string* split,
                                              const SplitsWanted& wanted) const;
  Parts parts_of(const Blend& blend, const std::string* split, const SplitsWanted& wanted) const;
  Splits blended(const Blend& blend, const std::string* split, const SplitsWanted& wanted) const;
  std::unique_ptr<Dataset> blended(std::vector<Part> parts, const Blend& blend, std::size_t split,
                                   SplitWanted wanted) const;
  IndexCache cache(std::filesystem::path folder) const;

  Options options_;
};

}  // namespace tessera::data
