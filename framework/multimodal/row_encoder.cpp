#include "framework/multimodal/row_encoder.h"

#include <algorithm>
#include <iterator>

#include "framework/base/error.h"

namespace tessera::multimodal {
namespace {

std::int32_t special_token(const tokenizers::Tokenizer& tokenizer, const std::string& token, const std::string& name) {
  if (const auto id = tokenizer.token_id(token)) {
    if (tokenizer.splits_special_tokens()) return *id;
    std::vector<std::int32_t> ids;
    tokenizer.encoder()->encode_rendered(token, ids);
    if (ids == std::vector<std::int32_t>{*id}) return *id;
  }
  throw ConfigError(text("template ", name, ": the tokenizer has no special token '", token,
                         "', which stands for images; take the tokenizer of a Qwen2-VL model"));
}

}  // namespace

std::int64_t EncodedRow::patches() const {
  std::int64_t sum = 0;
  for (const auto& grid : grids) sum += grid.patches();
  return sum;
}

void EncodedRow::append(EncodedRow&& row) {
  starts.push_back({input_ids.size(), media.size()});
  input_ids.insert(input_ids.end(), row.input_ids.begin(), row.input_ids.end());
  labels.insert(labels.end(), row.labels.begin(), row.labels.end());
  std::move(row.media.begin(), row.media.end(), std::back_inserter(media));
  grids.insert(grids.end(), row.grids.begin(), row.grids.end());
}

data::VisualTokens visual_tokens(const tokenizers::Tokenizer& tokenizer, const std::string& name, std::int64_t merge) {
  const auto words = instructions::multimodal_template(name);
  const auto id = [&](const std::string& token) { return special_token(tokenizer, token, name); };
  id(words.start);
  id(words.end);
  return {id(words.image), id(words.video), merge};
}

RowEncoder::RowEncoder(const tokenizers::Tokenizer& tokenizer, RowOptions options)
    : tokenizer_(tokenizer),
      options_(std::move(options)),
      template_(instructions::multimodal_template(options_.template_name)),
      encoding_{.prompt_template = template_.text,
                .seq_length = options_.seq_length,
                .enable_thinking = {},
                .train_on_prompt = options_.train_on_prompt,
                .mask_history = options_.mask_history},
      tokens_(tokenizer, template_.text),
      media_(options_.media),
      visual_(visual_tokens(tokenizer, options_.template_name, options_.media.processor.merge_size)) {}

std::unique_ptr<instructions::ConversationEncoder> RowEncoder::take() const {
  {
    const std::lock_guard lock(mutex_);
    if (!unused_.empty()) {
      auto encoder = std::move(unused_.back());
      unused_.pop_back();
      return encoder;
    }
  }
  return std::make_unique<instructions::ConversationEncoder>(tokenizer_, encoding_, tokens_);
}

void RowEncoder::give_back(std::unique_ptr<instructions::ConversationEncoder> encoder) const {
  const std::lock_guard lock(mutex_);
  unused_.push_back(std::move(encoder));
}

std::optional<EncodedRow> RowEncoder::operator()(const Json& record, std::string& why) const {
  auto read = read_record(record, options_.names, why);
  if (!read) return std::nullopt;
  EncodedRow row;
  for (const auto& medium : read->media) row.grids.push_back(media_.grid_of(medium));
  row.media = std::move(read->media);
  replace_markers(read->conversation, row.grids, template_, visual_.merge);
  instructions::EncodedConversation encoded;
  auto encoder = take();
  encoder->encode(read->conversation, encoded);
  give_back(std::move(encoder));
  row.input_ids = std::move(encoded.input_ids);
  row.labels = std::move(encoded.labels);
  return row;
}

bool RowEncoder::is_whole(const EncodedRow& row) const {
  std::int64_t expected = 0;
  for (const auto& grid : row.grids) expected += grid.tokens(visual_.merge);
  return expected == std::count_if(row.input_ids.begin(), row.input_ids.end(),
                                   [&](std::int32_t id) { return visual_.stands_for_patches(id); });
}

}  // namespace tessera::multimodal
