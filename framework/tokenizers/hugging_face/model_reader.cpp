// The entry `model` of tokenizer.json.

#include "framework/base/error.h"
#include "framework/tokenizers/hugging_face/token_model.h"

namespace tessera::tokenizers::hugging_face {
namespace {

void read_vocabulary(const JsonValue& entry, Vocabulary& vocabulary) {
  simdjson::dom::object object;
  if (entry.element().get(object) != simdjson::SUCCESS) entry.refuse("expected an object like {\"token\": 0, ...}");
  vocabulary.reserve(object.size());
  for (const auto field : object) {
    std::int64_t id = 0;
    if (field.value.get(id) != simdjson::SUCCESS || id < 0 || id >= Vocabulary::most)
      entry.refuse(
          text("the token '", field.key, "' has no id; expected a whole number from 0 to ", Vocabulary::most - 1));
    vocabulary.add(field.key, static_cast<std::int32_t>(id));
  }
}

std::vector<std::pair<std::string_view, std::string_view>> read_merges(const JsonValue& entry) {
  simdjson::dom::array array;
  if (entry.element().get(array) != simdjson::SUCCESS) entry.refuse("expected a list");
  std::vector<std::pair<std::string_view, std::string_view>> merges;
  merges.reserve(array.size());
  std::size_t number = 0;
  const auto refuse = [&] {
    entry.refuse(text("number ", number, " is not a merge; expected \"left right\" or [\"left\", \"right\"]"));
  };
  for (const auto one : array) {
    std::string_view words;
    simdjson::dom::array pair;
    if (one.get(words) == simdjson::SUCCESS) {
      const auto blank = words.find(' ');
      if (words.substr(0, 8) != "#version") {
        if (blank == std::string_view::npos || words.find(' ', blank + 1) != std::string_view::npos) refuse();
        merges.emplace_back(words.substr(0, blank), words.substr(blank + 1));
      }
    } else {
      std::string_view left, right;
      if (one.get(pair) != simdjson::SUCCESS || pair.size() != 2 || pair.at(0).get(left) != simdjson::SUCCESS ||
          pair.at(1).get(right) != simdjson::SUCCESS)
        refuse();
      merges.emplace_back(left, right);
    }
    ++number;
  }
  return merges;
}

std::unique_ptr<TokenModel> read_bpe(const JsonValue& entry, bool from_bytes) {
  BpeParts parts;
  if (const auto dropout = entry.find("dropout")) {
    double share = 1;
    if (dropout->element().get(share) != simdjson::SUCCESS || share != 0)
      dropout->refuse("BPE dropout makes random ids and is not supported; set it to null");
  }
  if (const auto unk = entry.find("unk_token")) parts.unk_token = unk->text();
  parts.continuing_subword_prefix = entry.text_of("continuing_subword_prefix", "");
  parts.end_of_word_suffix = entry.text_of("end_of_word_suffix", "");
  parts.fuse_unk = entry.boolean_of("fuse_unk", false);
  parts.byte_fallback = entry.boolean_of("byte_fallback", false);
  parts.ignore_merges = entry.boolean_of("ignore_merges", false);
  parts.from_bytes = from_bytes;
  read_vocabulary(entry.at("vocab"), parts.vocabulary);
  parts.merges = read_merges(entry.at("merges"));
  return make_bpe(std::move(parts));
}

std::unique_ptr<TokenModel> read_unigram(const JsonValue& entry) {
  UnigramParts parts;
  const auto list = entry.at("vocab");
  simdjson::dom::array array;
  if (list.element().get(array) != simdjson::SUCCESS) list.refuse("expected a list of [\"token\", score]");
  parts.vocabulary.reserve(array.size());
  for (const auto one : array) {
    simdjson::dom::array pair;
    std::string_view token;
    double score = 0;
    if (one.get(pair) != simdjson::SUCCESS || pair.size() != 2 || pair.at(0).get(token) != simdjson::SUCCESS ||
        pair.at(1).get(score) != simdjson::SUCCESS)
      list.refuse(text("number ", parts.scores.size(), " is not a token; expected [\"token\", score]"));
    if (static_cast<std::int64_t>(parts.scores.size()) >= Vocabulary::most) list.refuse("has too many tokens");
    parts.vocabulary.add(token, static_cast<std::int32_t>(parts.scores.size()));
    parts.scores.push_back(score);
  }
  if (const auto unk = entry.find("unk_id")) {
    const auto id = unk->integer();
    if (id >= static_cast<std::int64_t>(parts.scores.size()))
      unk->refuse(text(id, " is not an id; the vocabulary has ", parts.scores.size(), " tokens"));
    parts.unk_id = static_cast<std::int32_t>(id);
  }
  parts.byte_fallback = entry.boolean_of("byte_fallback", false);
  return make_unigram(std::move(parts));
}

}  // namespace

std::string model_type(const JsonValue& entry) {
  std::string type = entry.text_of("type", "");
  if (type.empty()) {
    const bool list = entry.at("vocab").is_array();
    type = entry.find("merges")                     ? "BPE"
           : entry.find("max_input_chars_per_word") ? "WordPiece"
           : list                                   ? "Unigram"
                                                    : "WordLevel";
  }
  for (const auto* known : {"BPE", "WordPiece", "WordLevel", "Unigram"})
    if (type == known) return type;
  entry.unsupported("model", type, "BPE, Unigram, WordLevel, WordPiece");
}

bool can_take_bytes(const JsonValue& entry) {
  return model_type(entry) == "BPE" && entry.text_of("continuing_subword_prefix", "").empty() &&
         entry.text_of("end_of_word_suffix", "").empty() && !entry.boolean_of("byte_fallback", false);
}

std::unique_ptr<TokenModel> read_model(const JsonValue& entry, bool from_bytes) {
  const auto type = model_type(entry);
  if (type == "BPE") return read_bpe(entry, from_bytes);
  if (type == "Unigram") return read_unigram(entry);
  Vocabulary vocabulary;
  read_vocabulary(entry.at("vocab"), vocabulary);
  std::string unk(entry.at("unk_token").text());
  if (type == "WordLevel") return make_word_level(std::move(vocabulary), std::move(unk));
  WordPieceParts parts;
  parts.vocabulary = std::move(vocabulary);
  parts.unk_token = std::move(unk);
  parts.continuing_subword_prefix = entry.at("continuing_subword_prefix").text();
  parts.max_input_chars_per_word = static_cast<std::size_t>(entry.at("max_input_chars_per_word").integer());
  return make_word_piece(std::move(parts));
}

}  // namespace tessera::tokenizers::hugging_face
