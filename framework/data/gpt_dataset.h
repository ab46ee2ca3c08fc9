#pragma once

#include <memory>
#include <string>

#include "framework/data/dataset.h"
#include "framework/data/gpt_index.h"
#include "framework/data/token_source.h"

namespace tessera {

/// How samples are cut and how the end of a document shows in them. Options structs have these members among theirs.
struct DocumentOptions {
  bool reset_position_ids = false;
  bool reset_attention_mask = false;
  bool eod_mask_loss = false;
  bool add_extra_token_to_sequence = true;
  bool drop_last_partial_validation_sequence = true;

  /// From an options struct with members of these names.
  template <class Options>
  static DocumentOptions of(const Options& o) {
    return {o.reset_position_ids, o.reset_attention_mask, o.eod_mask_loss, o.add_extra_token_to_sequence,
            o.drop_last_partial_validation_sequence};
  }
};

/// Describe the members of DocumentOptions in the schema of a struct that has them.
template <class Options>
void describe_documents(Schema<Options>& s) {
  s.option("reset_position_ids", &Options::reset_position_ids, "Reset position ids after each end-of-document token.");
  s.option("reset_attention_mask", &Options::reset_attention_mask,
           "Reset the attention mask after each end-of-document token: no attention across documents.");
  s.option("eod_mask_loss", &Options::eod_mask_loss,
           "Mask the loss at positions whose input is the end-of-document token.");
  s.option("add_extra_token_to_sequence", &Options::add_extra_token_to_sequence,
           "Read one more token per sample, so that the last position has a label.");
  s.option("drop_last_partial_validation_sequence", &Options::drop_last_partial_validation_sequence,
           "Drop the last validation sample if it is incomplete; false: pad it.");
}

/// Megatron-LM's GPTDataset: sample i is seq_length tokens of the joined documents, labels are the tokens that follow.
///
/// Beyond the last token of a sample that is not full, tokens are 0, labels -1 and the loss mask 0. After an end of
/// document at p (p itself still belongs to its document): with reset_position_ids positions begin again at p + 1; with
/// reset_attention_mask no token after p sees p or what is before; with eod_mask_loss the mask at p is 0.
class GptDataset final : public Dataset {
 public:
  struct Request {
    GptIndexRequest index;
    std::int64_t vocab_size = 0;      ///< reading a token that is not below it is a ConfigError; 0: not checked
    std::optional<std::int32_t> eod;  ///< wanted by the three options
    DocumentOptions options;
  };
  /// Throws ConfigError when the range is too small (see build_gpt_index), or an option needs an eod and there is none.
  GptDataset(std::shared_ptr<const TokenSource> source, const Request& request);

  std::int64_t samples() const override { return static_cast<std::int64_t>(index_.shuffle.size()); }
  std::int64_t seq_length() const override { return request_.index.seq_length; }
  void read(std::int64_t index, const SampleView& out) const override;
  std::vector<TokenOrigin> origins(std::int64_t index) const override;
  bool one_document_each() const override {
    return !request_.options.reset_position_ids && !request_.options.reset_attention_mask;
  }

  const GptIndex& index() const { return index_; }

 private:
  struct Gathered;
  Gathered gather(const SampleStart& from, const SampleStart& to, std::span<std::int32_t> out) const;
  void check(std::span<const std::int32_t> tokens, std::int64_t sequence, std::int64_t offset) const;
  void mark_documents(const SampleView& out, std::int64_t count) const;

  std::shared_ptr<const TokenSource> source_;
  Request request_;
  GptIndex index_;
};

/// The three splits over one source: `weights` cuts it, `parts` says what is wanted. Messages begin with `name`.
DataSplits split_dataset(const std::shared_ptr<const TokenSource>& source, const std::string& name,
                         const std::string& weights, const DocumentOptions& options, const DataParts& parts);

/// One split, 0 train, 1 valid, 2 test, from `range` of a source; null when nothing of it is asked for, and for a test
/// split whose weight is so small that it got no sequence.
std::unique_ptr<Dataset> one_split(const std::shared_ptr<const TokenSource>& source, const std::string& name, int split,
                                   const SequenceRange& range, const DocumentOptions& options, const DataParts& parts);

}  // namespace tessera
