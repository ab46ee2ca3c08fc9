#include "framework/instructions/sft_dataset.h"

#include <algorithm>

#include "framework/base/error.h"
#include "framework/base/json.h"
#include "framework/data/bad_sample.h"
#include "framework/files/input_file.h"
#include "framework/files/input_stream.h"

namespace tessera::instructions {

ConversationFile::ConversationFile(const std::string& name)
    : name_(name), file_(files::map_input(name, "conversations")) {
  all_ = {reinterpret_cast<const char*>(file_.bytes().data()), file_.bytes().size()};
  files::refuse_compressed(name, all_.substr(0, 8));
  std::int64_t number = 0;
  for (std::size_t begin = 0; begin < all_.size();) {
    const auto end = std::min(all_.find('\n', begin), all_.size());
    ++number;
    if (all_.substr(begin, end - begin).find_first_not_of(" \t\r") != std::string_view::npos)
      lines_.push_back({begin, number});
    begin = end + 1;
  }
  file_.require_intact();
  if (lines_.empty()) throw ConfigError(text(name, ": is empty; expected lines such as {\"messages\": [...]}"));
}

std::string ConversationFile::place(std::int64_t line) const {
  return text(name_, ":", lines_[static_cast<std::size_t>(line)].number);
}

std::vector<ConversationFile::Conversation> ConversationFile::conversations(std::int64_t line) const {
  return read_intact(file_, [&] { return parsed(line); });
}

std::vector<ConversationFile::Conversation> ConversationFile::parsed(std::int64_t line) const {
  const auto refuse = [&](const auto&... message) { throw data::BadSampleError(text(place(line), ": ", message...)); };
  const auto begin = lines_[static_cast<std::size_t>(line)].begin;
  const auto words = all_.substr(begin, std::min(all_.find('\n', begin), all_.size()) - begin);
  std::string why;
  const auto object = parse_json(words, &why);
  if (object.is_discarded()) refuse("is not JSON: ", why, "; correct or remove the line");
  if (!object.is_object()) refuse("expected a JSON object such as {\"messages\": [...]} on one line");
  const auto found = object.find("messages");
  if (found == nullptr || !found->is_array())
    refuse("expected a key 'messages' with a list of messages such as {\"role\": \"user\", \"content\": \"...\"}");
  Json tools;
  try {
    tools = tokenizers::SftTokenizer::tools_of(object);
  } catch (const ConfigError& error) {
    refuse(error.what());
  }
  std::vector<Conversation> all;
  for (const auto& message : *found) {
    if (!message.is_object() || !message.contains("role") || !message.at("role").is_string())
      refuse("message ", &message - &(*found)[0] + 1,
             " has no role; expected {\"role\": \"user\", \"content\": \"...\"}");
    if (all.empty() || message.at("role") == "system") all.push_back({Json::array(), tools});
    all.back().messages.push_back(message);
  }
  return all;
}

SftDataset::SftDataset(std::shared_ptr<const ConversationFile> file,
                       std::shared_ptr<const tokenizers::SftTokenizer> tokenizer, const Request& request)
    : file_(std::move(file)), tokenizer_(std::move(tokenizer)), request_(request) {
  if (request_.lines.size() < 1) throw ConfigError("has no line; give more lines or another split");
}

void SftDataset::read(std::int64_t index, const SampleView& out) const {
  must(index >= 0 && index < samples(), "a sample is read by its number");
  const auto length = static_cast<std::size_t>(request_.seq_length);
  std::vector<std::int32_t> tokens, targets, positions, starts;
  std::string place;
  for (std::int64_t k = 0; k < request_.lines_per_sample && tokens.size() <= length; ++k) {
    const auto line = request_.lines.begin + (index * request_.lines_per_sample + k) % request_.lines.size();
    place = file_->place(line);
    for (const auto& conversation : file_->conversations(line)) {
      const auto begin = tokens.size();
      try {
        tokenizer_->encode(conversation.messages, tokens, targets, conversation.tools, length - begin);
      } catch (const ConfigError& error) {
        throw data::BadSampleError(text(place, ": ", error.what()));
      }
      for (std::size_t i = begin; i < tokens.size(); ++i) {
        if (request_.vocab_size > 0 && (tokens[i] < 0 || tokens[i] >= request_.vocab_size))
          throw data::BadSampleError(text(place, ": holds token ", tokens[i], ", but the model's vocabulary has ",
                                          request_.vocab_size, "; use the model's tokenizer, or raise vocab_size"));
        positions.push_back(static_cast<std::int32_t>(i - begin));
        starts.push_back(static_cast<std::int32_t>(begin));
      }
      if (tokens.size() > length) break;  // one more than the sample holds: its label
    }
  }
  if (tokens.empty()) throw data::BadSampleError(text(place, ": has no tokens; give it a message with text"));
  const auto pad = tokenizer_->pad();
  const auto given = std::min(tokens.size(), length);
  if (tokens.size() > length) {
    // What follows the last token of a sample that is cut is padding, not the next token.
    tokens.resize(length);
    targets.resize(length);
  }
  while (tokens.size() <= length) {
    tokens.push_back(pad);
    targets.push_back(pad);
    if (positions.size() < tokens.size()) {
      positions.push_back(positions.back() + 1);
      starts.push_back(starts.back());
    }
  }
  for (std::size_t i = 0; i < length; ++i) {
    out.tokens[i] = tokens[i];
    out.labels[i] = targets[i + 1];
    const auto target = targets[i + 1];
    const bool ignored =
        target == tokenizers::SftTokenizer::ignored || (target == pad && tokenizer_->ignores_pad_in_text());
    out.loss_mask[i] = i + 1 >= given || ignored ? 0.0F : 1.0F;
    out.positions[i] = positions[i];
    out.document_start[i] = starts[i];
  }
}

}  // namespace tessera::instructions
