#pragma once

#include <memory>
#include <string>
#include <vector>

#include "framework/data/sampler.h"
#include "framework/indexed/indexed_dataset.h"

namespace tessera::instructions {

/// The four pairs of files that MindSpeed-LLM's preprocess_data.py writes for preference data:
/// PREFIX_packed_{chosen,rejected}_{input_ids,labels}_document (.bin and .idx each). Each sequence is one sample: a
/// prompt, which the chosen and the rejected sequence begin with, and an answer.
struct PairFiles {
  struct Answer {
    indexed::IndexedDataset input_ids, labels;
  };
  Answer chosen, rejected;

  /// Opens the files. Throws ConfigError if one of them is missing or damaged, or if they differ in the number of their
  /// sequences, or labels in their length.
  explicit PairFiles(const std::string& prefix);
  std::int64_t samples() const { return chosen.input_ids.sequences(); }
  /// Tokens of the longer sequence of a pair.
  std::int64_t longest(std::int64_t sample) const;
};

/// Pairs of a chosen and a rejected answer: the first row of a sample is the prompt with the chosen answer, the second
/// the prompt with the rejected one, each padded on the right to seq_length. Only answers have a loss; labels are those
/// of the next token.
///
/// The prompt ends at the first label of the chosen sequence. If a sequence is longer than seq_length, prompt and
/// answers are cut by cut_lengths(), the longer answer deciding for both, as MindSpeed-LLM's dataset does it.
class PairDataset final : public data::Dataset {
 public:
  struct Request {
    std::vector<std::int64_t> order;  ///< for each index, the sample of the files
    std::int64_t seq_length = 0;
    std::int64_t vocab_size = 0;  ///< reading a token id that is not below this throws BadSampleError; 0: not checked
    std::int32_t pad = 0;
  };
  PairDataset(std::shared_ptr<const PairFiles> files, Request request);

  std::int64_t samples() const override { return static_cast<std::int64_t>(request_.order.size()); }
  std::int64_t rows_per_sample() const override { return 2; }
  std::int64_t seq_length() const override { return request_.seq_length; }
  bool one_document_each() const override { return true; }
  /// Allocates memory only for a chosen sequence that is longer than seq_length. Throws BadSampleError for a pair
  /// without a label or with different prompts.
  void read(std::int64_t index, const SampleView& out) const override;

 private:
  std::int64_t prompt_of(std::int64_t sample, std::span<std::int32_t> memory) const;
  void read_row(const PairFiles::Answer& from, std::int64_t sample, std::int64_t prompt, std::int64_t kept_prompt,
                std::int64_t most_answer, const SampleView& out) const;

  std::shared_ptr<const PairFiles> files_;
  Request request_;
};

}  // namespace tessera::instructions
