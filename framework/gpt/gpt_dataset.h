#pragma once

#include <memory>
#include <string>

#include "framework/data/dataset.h"
#include "framework/gpt/gpt_index.h"
#include "framework/indexed/token_source.h"

namespace tessera::gpt {

/// How samples are cut from documents, and how document boundaries affect them. Options structs contain members of
/// these names; describe_documents() below declares their meaning.
struct DocumentOptions {
  bool reset_position_ids = false;
  bool reset_attention_mask = false;
  bool eod_mask_loss = false;
  bool add_extra_token_to_sequence = true;
  bool drop_last_partial_validation_sequence = true;
  bool create_attention_mask_in_dataloader = true;
  bool dataloader_inter_document_masking = false;
  bool allow_ambiguous_pad_tokens = false;

  /// Copies the members of these names from an options struct.
  template <class Options>
  static DocumentOptions of(const Options& o) {
    return {.reset_position_ids = o.reset_position_ids,
            .reset_attention_mask = o.reset_attention_mask,
            .eod_mask_loss = o.eod_mask_loss,
            .add_extra_token_to_sequence = o.add_extra_token_to_sequence,
            .drop_last_partial_validation_sequence = o.drop_last_partial_validation_sequence,
            .create_attention_mask_in_dataloader = o.create_attention_mask_in_dataloader,
            .dataloader_inter_document_masking = o.dataloader_inter_document_masking,
            .allow_ambiguous_pad_tokens = o.allow_ambiguous_pad_tokens};
  }
};

/// Describe the members of DocumentOptions in the schema of a struct that has them.
template <class Options>
void describe_documents(options::Schema<Options>& s) {
  s.option("reset_position_ids", &Options::reset_position_ids, "Reset position ids after each end-of-document token.");
  s.option("reset_attention_mask", &Options::reset_attention_mask,
           "Reset the attention mask after each end-of-document token: no attention across documents.");
  s.option("eod_mask_loss", &Options::eod_mask_loss,
           "Mask the loss at positions whose input is the end-of-document token.");
  s.option("add_extra_token_to_sequence", &Options::add_extra_token_to_sequence,
           "Read one more token per sample, so that the last position has a label.")
      .no_flag("a field of Megatron-LM's data configuration that no flag sets");
  s.option("drop_last_partial_validation_sequence", &Options::drop_last_partial_validation_sequence,
           "Drop the last validation sample if it is incomplete; false: pad it.")
      .no_flag("a field of Megatron-LM's data configuration that no flag sets");
  s.option(
      "create_attention_mask_in_dataloader", &Options::create_attention_mask_in_dataloader,
      "Create the attention mask in the dataset; false: causal attention, and `reset_attention_mask` has no effect.");
  s.option("dataloader_inter_document_masking", &Options::dataloader_inter_document_masking,
           "Mask attention across documents of a sample and restart position ids in each document; document boundaries "
           "come from the token files, not from end-of-document tokens.");
  s.option("allow_ambiguous_pad_tokens", &Options::allow_ambiguous_pad_tokens,
           "Treat tokens of the text as padding if the tokenizer's pad token is also its end-of-document or "
           "end-of-sequence token; false: such a pad token is not used.");
}

/// Megatron-LM's GPTDataset: sample i is seq_length tokens of the concatenated documents; labels are the following
/// tokens.
///
/// An incomplete sample is padded. Where the label is the pad token, the label becomes -1 and the loss mask 0; where
/// the input is the pad token, the token becomes 0. As in Megatron-LM, this also applies to pad tokens of the text. For
/// an end-of-document token at position p, which itself belongs to its document: with reset_position_ids, positions
/// restart at p + 1; with reset_attention_mask, no token after p attends to p or before; with eod_mask_loss, the loss
/// mask at p is 0.
class GptDataset final : public data::Dataset {
 public:
  struct Request {
    GptIndexRequest index;
    std::int64_t vocab_size = 0;  ///< reading a token id that is not below this throws BadSampleError; 0: not checked
    /// End-of-document id; required by reset_position_ids, reset_attention_mask and eod_mask_loss.
    std::optional<std::int32_t> eod;
    std::int32_t pad = -1;  ///< id that pads samples; -1: not a token of any text
    DocumentOptions options;
    std::string description;  ///< Megatron-LM's unique_description; may be empty
  };
  /// Builds the index in memory. Throws ConfigError if the range has too few tokens (see plan_gpt_index), or if an
  /// option requires `eod` and there is none.
  GptDataset(std::shared_ptr<const indexed::TokenSource> source, const Request& request);
  /// Uses `index`, which was built for this request.
  GptDataset(std::shared_ptr<const indexed::TokenSource> source, Request request, GptIndex index);

  std::int64_t samples() const override { return index_.samples(); }
  std::int64_t seq_length() const override { return request_.index.seq_length; }
  /// Throws as Dataset::read; ConfigError also if the index does not match the tokens: a damaged cache.
  void read(std::int64_t index, const SampleView& out) const override;
  std::vector<data::TokenOrigin> origins(std::int64_t index) const override;
  bool one_document_each() const override {
    const auto& o = request_.options;
    return !o.reset_position_ids && !o.reset_attention_mask && !o.dataloader_inter_document_masking;
  }

  const GptIndex& index() const { return index_; }
  const std::string& description() const { return request_.description; }

 private:
  struct Gathered;
  Gathered gather(const SampleStart& from, const SampleStart& to, const SampleView& out) const;
  void require_index() const;
  void check(std::span<const std::int32_t> tokens, std::int64_t sequence, std::int64_t offset) const;
  void mark_documents(const SampleView& out) const;
  void replace_padding(const SampleView& out) const;

  std::shared_ptr<const indexed::TokenSource> source_;
  Request request_;
  GptIndex index_;
};

}  // namespace tessera::gpt
