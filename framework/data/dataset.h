#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/data/gpt/index_cache.h"
#include "framework/data/sampler.h"
#include "framework/options/registry.h"

namespace tessera::data {

class Tokenizer;

/// Asks for all samples of one pass over a split, however many these are.
inline constexpr std::int64_t one_epoch = -1;

/// How many samples a run reads of each split; 0: that split is not needed.
struct SamplesAsked {
  std::int64_t train = 0, valid = 0, test = 0;
};

/// What a run of `train_iters` steps of `samples_per_step` samples reads, as Megatron-LM counts it: `eval_iters` steps
/// of evaluation every `eval_interval` steps and once more at the end. No evaluation when one of the two is 0.
/// Throws ConfigError when a number does not fit into 64 bits.
SamplesAsked samples_asked(std::int64_t train_iters, std::int64_t samples_per_step, std::int64_t eval_interval,
                           std::int64_t eval_iters);

/// What a dataset needs to know of the run.
struct DataParts {
  std::int64_t seq_length = 0;
  SamplesAsked asked;
  std::int64_t seed = 1234;              ///< of document order and shuffling; in [0, 2^32)
  std::int64_t vocab_size = 0;           ///< rows of the model's vocabulary: every token is below it
  std::optional<std::int32_t> eod;       ///< of the tokenizer, if there is one
  std::optional<std::int32_t> pad = {};  ///< of the tokenizer, if it has one
  std::int64_t global_batch_size = 1;    ///< samples of a step
  const Tokenizer* tokenizer = nullptr;  ///< must outlive data that is text (type sft); null: there is none
  bool may_write_caches = true;          ///< false: nothing is written, also no index of samples
  TellLine tell = {};                    ///< of long waiting and of caches that are not usable
};

/// `order` again and again, from its beginning after every `epoch` samples.
std::unique_ptr<Sampler> repeated(std::unique_ptr<Sampler> order, std::int64_t epoch);

/// `order` from its beginning when `start` samples are consumed.
std::unique_ptr<Sampler> starting_at(std::unique_ptr<Sampler> order, std::int64_t start);

/// One of several validation sets, which are evaluated separately.
struct ValidationSet {
  std::string name;  ///< unique, not empty: "0", "1", ... or as the user names it
  std::unique_ptr<Dataset> data;
};

/// What a run reads. A split that is not asked for, or of which there is no data by its path or weight, is null.
struct DataSplits {
  std::unique_ptr<Dataset> train, valid, test;
  std::vector<ValidationSet> valid_sets = {};  ///< with multiple_validation_sets, and then `valid` is null
};

/// Key `dataset_type` of dataset_config. Makers throw ConfigError for files that are missing or damaged.
using DatasetRegistry = options::Registry<DataSplits, DataParts>;

/// The registry with every built-in dataset.
DatasetRegistry datasets();

/// What a sampler needs to know of the run.
struct SamplerParts {
  std::int64_t samples = 0;      ///< of the dataset
  std::int64_t micro_batch = 1;  ///< samples of one micro batch on one rank
  std::int64_t ranks = 1;        ///< data parallel ranks
};

/// Key `dataloader_type` of dataset_config.
using SamplerRegistry = options::Registry<Sampler, SamplerParts>;

/// The registry with every built-in order of feeding.
SamplerRegistry samplers();

/// All samples of a dataset once, in their order: the type `single`.
std::unique_ptr<Sampler> single_pass(const Dataset& dataset);

}  // namespace tessera::data
