#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/data/sampler.h"
#include "framework/data/tell_line.h"
#include "framework/options/registry.h"

namespace tessera::tokenizers {
class Tokenizer;
}

namespace tessera::data {

/// Requests all samples of one epoch of a split, whatever their number.
inline constexpr std::int64_t one_epoch = -1;

/// Number of samples that a run reads from each split; 0: the split is not needed.
struct SamplesAsked {
  std::int64_t train = 0, valid = 0, test = 0;
};

/// The samples that a run of `train_iters` steps of `samples_per_step` samples reads, as Megatron-LM counts them:
/// `eval_iters` steps of evaluation every `eval_interval` steps and once more at the end. No evaluation if either is 0.
/// Throws ConfigError if a number does not fit into 64 bits.
SamplesAsked samples_asked(std::int64_t train_iters, std::int64_t samples_per_step, std::int64_t eval_interval,
                           std::int64_t eval_iters);

/// The properties of the run that a dataset needs.
struct DataParts {
  std::int64_t seq_length = 0;  ///< sequence length, in tokens
  SamplesAsked asked;
  std::int64_t seed = 1234;                          ///< seed of document order and shuffling; in [0, 2^32)
  std::int64_t vocab_size = 0;                       ///< rows of the model's vocabulary: every token id is below it
  std::optional<std::int32_t> eod;                   ///< end-of-document id of the tokenizer; none: no tokenizer
  std::optional<std::int32_t> pad = {};              ///< padding id of the tokenizer; none: it has none
  std::int64_t global_batch_size = 1;                ///< samples of one step on all ranks
  const tokenizers::Tokenizer* tokenizer = nullptr;  ///< must outlive data that is text (type sft); null: none
  bool may_write_caches = true;                      ///< false: no file is written, not even an index cache
  TellLine tell = {};                                ///< receives messages about long waiting and unusable caches
  TellLine warn = {};  ///< receives warnings about what the run will not learn from the data
};

/// A sampler that repeats `order` from its beginning after every `epoch` samples.
std::unique_ptr<Sampler> repeated(std::unique_ptr<Sampler> order, std::int64_t epoch);

/// A sampler that begins `order` when `start` samples are consumed.
std::unique_ptr<Sampler> starting_at(std::unique_ptr<Sampler> order, std::int64_t start);

/// One of several validation sets, which are evaluated separately.
struct ValidationSet {
  std::string name;  ///< unique, not empty: "0", "1", ..., or the user's name for it
  std::unique_ptr<Dataset> data;
};

/// The datasets that a run reads. A split is null if it is not requested, or if its path or weight gives it no data.
struct DataSplits {
  std::unique_ptr<Dataset> train, valid, test;
  std::vector<ValidationSet> valid_sets = {};  ///< only with multiple_validation_sets; then `valid` is null
};

/// Key `dataset_type` of dataset_config. Makers throw ConfigError for files that are missing or damaged.
class DatasetRegistry : public options::Registry<DataSplits, DataParts> {
 public:
  using Registry::Registry;
  /// The fields of samples of the type `type`, known from its options alone: before its files are opened, or on a host
  /// that does not have them. They are Dataset::fields() of what the type makes.
  using FieldsOf = BatchFields (*)(const Choice& choice);
  void declare_fields(const std::string& type, FieldsOf declared) { fields_[type] = declared; }
  /// The fields of the chosen type: token_fields() unless it declares others.
  BatchFields fields(const Choice& choice) const {
    const auto declared = fields_.find(choice.type);
    return declared == fields_.end() ? token_fields() : declared->second(choice);
  }

  /// Dataset::rows_per_sample() of what the type `type` makes, known from its options alone; 1 unless it is declared.
  using RowsOf = std::int64_t (*)(const Choice& choice);
  void declare_rows_per_sample(const std::string& type, RowsOf declared) { rows_[type] = declared; }
  std::int64_t rows_per_sample(const Choice& choice) const {
    const auto declared = rows_.find(choice.type);
    return declared == rows_.end() ? 1 : declared->second(choice);
  }

 private:
  std::map<std::string, RowsOf> rows_;
  std::map<std::string, FieldsOf> fields_;
};

/// A registry without any dataset; the components that have datasets register them. For all of them see
/// recipe::datasets().
DatasetRegistry dataset_registry();

/// The properties of the run that a sampler needs.
struct SamplerParts {
  std::int64_t samples = 0;      ///< number of samples of the dataset
  std::int64_t micro_batch = 1;  ///< samples of one micro-batch on one rank
  std::int64_t ranks = 1;        ///< data-parallel ranks
};

/// Key `dataloader_type` of dataset_config.
using SamplerRegistry = options::Registry<Sampler, SamplerParts>;

/// The registry with every built-in sampler.
SamplerRegistry samplers();

/// All samples of a dataset once, in their order: the type `single`.
std::unique_ptr<Sampler> single_pass(const Dataset& dataset);

}  // namespace tessera::data
