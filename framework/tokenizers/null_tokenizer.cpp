// Texts that are numbers already, as Megatron-LM's NullTokenizer.

#include <algorithm>
#include <charconv>

#include "framework/options/limits.h"
#include "framework/tokenizers/tokenizer.h"
#include "framework/unicode/utf8.h"

namespace tessera::tokenizers {
namespace {

struct NullOptions {
  std::int64_t vocab_size = 256;
};

void describe(options::Schema<NullOptions>& s) {
  s.when_changed(options::Change::weights);
  s.option("vocab_size", &NullOptions::vocab_size, "Number of token ids; this id itself is the end-of-document token.")
      .above(0)
      .at_most(options::most_tokens_known);
}

class NullEncoder final : public Tokenizer::Encoder {
 public:
  explicit NullEncoder(std::int64_t below) : below_(below) {}

  void encode(std::string_view all, std::vector<std::int32_t>& ids) override {
    for (std::size_t at = 0; at <= all.size() && !all.empty();) {
      const auto end = std::min(all.find(' ', at), all.size());
      const auto word = all.substr(at, end - at);
      std::int32_t id = -1;
      const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), id);
      if (error != std::errc{} || stop != word.data() + word.size() || id < 0 || id > below_)
        throw ConfigError(text("NullTokenizer: '", word, "' is not a number from 0 to ", below_));
      ids.push_back(id);
      at = end + 1;
    }
  }

 private:
  std::int64_t below_;
};

/// Numbers with single spaces between them.
class NullDecoder final : public Tokenizer::Decoder {
 public:
  explicit NullDecoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  std::string push(std::int32_t id) override {
    std::string text = first_ ? "" : " ";
    text += tokenizer_.piece(id);
    first_ = false;
    return text;
  }
  std::string finish() override { return ""; }

 private:
  const Tokenizer& tokenizer_;
  bool first_ = true;
};

class NullTokenizer final : public Tokenizer {
 public:
  explicit NullTokenizer(const NullOptions& options) : below_(options.vocab_size) {}
  std::unique_ptr<Encoder> encoder() const override { return std::make_unique<NullEncoder>(below_); }
  std::int64_t vocab_size() const override { return below_ + 1; }
  std::int32_t eod() const override { return static_cast<std::int32_t>(below_); }
  SpecialIds special_ids() const override {
    SpecialIds ids;
    ids.cls = ids.sep = ids.mask = -1;
    return ids;
  }
  bool may_be_cut_at_lines() const override { return true; }
  Identity identity() const override {
    return {"_NullTokenizer", {std::nullopt}, {{"vocab_size", std::to_string(below_)}}};
  }
  std::string piece(std::int32_t id) const override {
    return id < 0 || id > below_ ? std::string(unicode::replacement_character) : std::to_string(id);
  }
  std::string bytes(std::span<const std::int32_t> ids) const override { return decode(ids); }
  std::unique_ptr<Decoder> decoder() const override { return std::make_unique<NullDecoder>(*this); }

 private:
  std::int64_t below_;
};

std::unique_ptr<Tokenizer> make_null_tokenizer(const NullOptions& options) {
  return std::make_unique<NullTokenizer>(options);
}

}  // namespace

void register_null_tokenizer(TokenizerRegistry& registry) {
  registry.add("NullTokenizer", make_null_tokenizer, "Text is token ids separated by single spaces.", {"null"});
}

}  // namespace tessera::tokenizers
