#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "framework/instructions/instruction_encoding.h"
#include "framework/multimodal/media.h"

namespace tessera::multimodal {

/// A record as the model reads it, or several packed ones; not padded.
struct EncodedRow {
  std::vector<std::int32_t> input_ids, labels;  ///< labels are the ids themselves, -100 without loss
  std::vector<Medium> media;                    ///< in reading order
  std::vector<data::PatchGrid> grids;           ///< of each
  /// The first token of each record and the first of its media.
  struct Start {
    std::size_t token = 0, medium = 0;
  };
  std::vector<Start> starts = {{}};

  std::int64_t patches() const;
  /// Adds the record of `row` behind the others.
  void append(EncodedRow&& row);
};

struct RowOptions {
  std::string template_name = "qwen2vl";
  RecordNames names;
  MediaOptions media;
  std::int64_t seq_length = 0;  ///< rows are cut to it
  bool train_on_prompt = false, mask_history = false;
  bool loss_on_padding = false;  ///< padding of a row to its micro-batch's length is predicted too
};

/// The placeholders of the template `name`, as tokens. Throws ConfigError if the template is unknown, or the tokenizer
/// lacks one of its tokens.
data::VisualTokens visual_tokens(const tokenizers::Tokenizer& tokenizer, const std::string& name, std::int64_t merge);

/// Encodes records as get_qwen2vl_dataset of MindSpeed-MM does. Thread-safe.
class RowEncoder {
 public:
  /// `tokenizer` must outlive this. Throws as visual_tokens.
  RowEncoder(const tokenizers::Tokenizer& tokenizer, RowOptions options);

  const data::VisualTokens& visual() const { return visual_; }
  std::int32_t pad() const { return tokens_.pad; }
  /// Whether the placeholders of images are encoded as ordinary text (split_special_tokens), so that no image has any.
  bool splits_placeholders() const { return tokenizer_.splits_special_tokens(); }
  bool loss_on_padding() const { return options_.loss_on_padding; }
  const MediaReader& media() const { return media_; }
  const RecordNames& names() const { return options_.names; }

  /// Nothing, with the reason in `why`, for a record that is dropped. Throws as read_record, and data::BadSampleError
  /// if an image cannot be read.
  std::optional<EncodedRow> operator()(const Json& record, std::string& why) const;
  /// Whether the row has all placeholders of its images and videos: false if it was cut inside or before one, or its
  /// text has a placeholder of its own.
  bool is_whole(const EncodedRow& row) const;

 private:
  std::unique_ptr<instructions::ConversationEncoder> take() const;
  void give_back(std::unique_ptr<instructions::ConversationEncoder> encoder) const;

  const tokenizers::Tokenizer& tokenizer_;
  RowOptions options_;
  instructions::MultimodalTemplate template_;
  instructions::InstructionEncoding encoding_;
  instructions::InstructionTokens tokens_;
  MediaReader media_;
  data::VisualTokens visual_;
  mutable std::mutex mutex_;  // guards the encoders that no thread uses
  mutable std::vector<std::unique_ptr<instructions::ConversationEncoder>> unused_;
};

}  // namespace tessera::multimodal
