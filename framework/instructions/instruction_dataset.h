#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/data/sampler.h"
#include "framework/gpt/split.h"
#include "framework/indexed/indexed_dataset.h"

namespace tessera::instructions {

/// The three pairs of files that MindSpeed-LLM's preprocess_data.py writes for instruction data:
/// PREFIX_packed_input_ids_document, PREFIX_packed_attention_mask_document and PREFIX_packed_labels_document (.bin and
/// .idx each). Each sequence is one sample; labels are the ids themselves, -100 for tokens without loss.
struct InstructionFiles {
  indexed::IndexedDataset input_ids, attention_mask, labels;

  /// Opens the files. Throws ConfigError if one of them is missing or damaged, or if they differ in the number or
  /// lengths of their sequences.
  explicit InstructionFiles(const std::string& prefix);
  std::int64_t samples() const { return input_ids.sequences(); }
};

/// The settings of MindSpeed-LLM's flags of the same names.
struct InstructionRules {
  bool reset_attention_mask = false;  ///< a token does not attend to tokens up to the preceding end-of-document token
  bool reset_position_ids = false;  ///< positions restart after end-of-document tokens; only with reset_attention_mask
  /// The attention mask, not end-of-document tokens, separates the rows packed in a sample: their numbers, 0 for
  /// padding.
  bool neat_pack = false;
  bool cut_max_seqlen = false;  ///< cut a long sample at its end, instead of its prompts and answers in proportion
  bool efficient_eos = false;   ///< of the prompt type: a sample longer than seq_length cannot be cut in parts
};

/// The order in which samples of `range` are read: all samples repeatedly until there are `asked`; each pass is
/// shuffled by NumPy's RandomState(seed) unless `shuffle` is false. If `pad_to` is above 0, a pass is padded to a
/// multiple of it with samples 0, 1, ... of the file.
std::vector<std::int64_t> instruction_order(const gpt::SequenceRange& range, std::int64_t asked, std::uint32_t seed,
                                            bool shuffle, std::int64_t pad_to);

/// The ranges of train, valid and test, divided as in Megatron-LM's older get_train_valid_test_split_. Throws
/// ConfigError if `weights` is not a list of weights.
std::array<gpt::SequenceRange, 3> instruction_split(const std::string& weights, std::int64_t samples);

/// MindSpeed-LLM's DecoderPackedMTFDataset and its collator, padded on the right to seq_length. Labels are shifted to
/// the next token, as MindSpeed-LLM's model does.
class InstructionDataset final : public data::Dataset {
 public:
  struct Request {
    std::vector<std::int64_t> order;  ///< for each index, the sample of the files
    std::int64_t seq_length = 0;
    std::int64_t vocab_size = 0;  ///< reading a token id that is not below this throws ConfigError; 0: not checked
    std::int32_t pad = 0;
    std::optional<std::int32_t> eod;
    InstructionRules rules;
  };
  /// Throws ConfigError if the rules require an end-of-document token and there is none, or are mutually exclusive.
  InstructionDataset(std::shared_ptr<const InstructionFiles> files, Request request);

  std::int64_t samples() const override { return static_cast<std::int64_t>(request_.order.size()); }
  std::int64_t seq_length() const override { return request_.seq_length; }
  /// Allocates memory only for a sample that is cut.
  void read(std::int64_t index, const SampleView& out) const override;

 private:
  std::int64_t read_whole(std::int64_t sample, std::int64_t length, const SampleView& out) const;
  std::int64_t read_cut(std::int64_t sample, const SampleView& out) const;
  void number_parts(std::int64_t sample, const SampleView& out) const;
  void mark_documents(std::int64_t count, const SampleView& out) const;
  void check_mask(std::int64_t sample, std::int64_t count, const SampleView& out) const;

  std::shared_ptr<const InstructionFiles> files_;
  Request request_;
};

}  // namespace tessera::instructions
