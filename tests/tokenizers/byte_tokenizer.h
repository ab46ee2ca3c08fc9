#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "framework/tokenizers/tokenizer.h"

namespace tessera::tokenizers {

/// Ids 0 to 255 are bytes; the special tokens follow.
class ByteTokenizer : public Tokenizer {
 public:
  /// `pad`: the special token that is the padding token; empty: there is none.
  ByteTokenizer(std::vector<std::string> special, std::string chat_template, std::string pad = "")
      : special_(std::move(special)), template_(std::move(chat_template)), pad_(std::move(pad)) {}

  class Bytes final : public Encoder {
   public:
    explicit Bytes(const ByteTokenizer& owner) : owner_(owner) {}
    void encode(std::string_view words, std::vector<std::int32_t>& ids) override {
      for (const char c : words) ids.push_back(static_cast<unsigned char>(c));
    }
    void encode_rendered(std::string_view words, std::vector<std::int32_t>& ids) override {
      for (std::size_t at = 0; at < words.size();) {
        std::size_t length = 0;
        for (const auto& token : owner_.special_)
          if (words.substr(at, token.size()) == token) {
            ids.push_back(*owner_.token_id(token));
            length = token.size();
          }
        if (length == 0) encode(words.substr(at, length = 1), ids);
        at += length;
      }
    }

   private:
    const ByteTokenizer& owner_;
  };

  std::unique_ptr<Encoder> encoder() const override { return std::make_unique<Bytes>(*this); }
  std::int64_t vocab_size() const override { return 256 + static_cast<std::int64_t>(special_.size()); }
  std::int32_t eod() const override { return *token_id("</s>"); }
  std::vector<NamedToken> named_tokens() const override {
    std::vector<NamedToken> all = {{"unk_token", "<unk>", *token_id("<unk>")},
                                   {"bos_token", "<s>", *token_id("<s>")},
                                   {"eos_token", "</s>", eod()}};
    if (!pad_.empty()) all.push_back({"pad_token", pad_, *token_id(pad_)});
    return all;
  }
  std::optional<std::int32_t> token_id(std::string_view token) const override {
    for (std::size_t i = 0; i < special_.size(); ++i)
      if (special_[i] == token) return static_cast<std::int32_t>(256 + i);
    return std::nullopt;
  }
  std::optional<std::string> chat_template() const override { return template_; }
  bool may_be_cut_at_lines() const override { return true; }
  Identity identity() const override { return {"ByteTokenizer", {}, {}}; }
  std::string piece(std::int32_t id) const override { return id < 256 ? std::string(1, static_cast<char>(id)) : "?"; }

 private:
  std::vector<std::string> special_;
  std::string template_, pad_;
};

/// Of another vocabulary: the id of a byte is its complement.
class OtherBytes : public ByteTokenizer {
 public:
  OtherBytes() : ByteTokenizer({"<unk>", "<s>", "</s>"}, "") {}
  class Complements final : public Encoder {
   public:
    void encode(std::string_view words, std::vector<std::int32_t>& ids) override {
      for (const char c : words) ids.push_back(255 - static_cast<unsigned char>(c));
    }
  };
  std::unique_ptr<Encoder> encoder() const override { return std::make_unique<Complements>(); }
  std::int64_t vocab_size() const override { return 300; }
};

}  // namespace tessera::tokenizers
