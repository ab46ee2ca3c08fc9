// GPT-2's byte-level BPE as Megatron-LM's _GPT2BPETokenizer: special tokens inside a text are ordinary text.

#include <algorithm>
#include <array>

#include "framework/options/limits.h"
#include "framework/tokenizers/bpe.h"
#include "framework/tokenizers/tokenizer.h"
#include "framework/tokenizers/word_cache.h"
#include "framework/unicode/unicode_classes.h"

namespace tessera::tokenizers {
namespace {

struct Gpt2BpeOptions {
  std::string vocab_file, merge_file;
  std::optional<std::int64_t> vocab_size;
};

void describe(options::Schema<Gpt2BpeOptions>& s) {
  s.when_changed(options::Change::file);
  s.option("vocab_file", &Gpt2BpeOptions::vocab_file, "Path of vocab.json: all tokens and their ids.");
  s.option("merge_file", &Gpt2BpeOptions::merge_file, "Path of merges.txt: the byte-pair merges in order.");
  s.option("vocab_size", &Gpt2BpeOptions::vocab_size,
           "Ignored with GPT2BPETokenizer, as in Megatron-LM: `vocab_file` determines the vocabulary size.")
      .when_changed(options::Change::silent)
      .at_least(1)
      .at_most(options::most_tokens_known);
}

constexpr const char* end_of_document = "<|endoftext|>";

class Gpt2Encoder final : public Tokenizer::Encoder {
 public:
  Gpt2Encoder(const BpeModel& model, const unicode::UnicodeClasses& classes, std::int32_t eod)
      : model_(model), classes_(classes), eod_(eod) {}

  void encode_rendered(std::string_view text, std::vector<std::int32_t>& ids) override {
    const std::string_view token = end_of_document;
    for (auto at = text.find(token); at != std::string_view::npos; at = text.find(token)) {
      encode(text.substr(0, at), ids);
      ids.push_back(eod_);
      text.remove_prefix(at + token.size());
    }
    encode(text, ids);
  }

  void encode(std::string_view text, std::vector<std::int32_t>& ids) override {
    auto used = ids.size();  // of ids, which is longer while this loop runs: growing it for each word is slow
    for (std::size_t at = 0; at < text.size();) {
      std::size_t count = 0;
      for (; count < pieces_.size() && at < text.size(); ++count) {
        auto& next = pieces_[count];
        next.text = text.substr(at, unicode::next_piece(classes_, text, at));
        if (WordCache::is_short(next.text.size())) {
          next.key = WordCache::key_of(next.text, text.size() - at);
          next.prepared = cache_.prepare(next.key);
        }
        at += next.text.size();
      }
      if (ids.size() - used < count * WordCache::short_ids) ids.resize(used + used / 2 + ids_ahead);
      for (std::size_t i = 0; i < count; ++i) {
        const auto& piece = pieces_[i];
        std::size_t found = 0;
        if (WordCache::is_short(piece.text.size()))
          found = cache_.find_short(piece.key, piece.prepared, ids.data() + used);
        used = found > 0 ? used + found : encode_rare(piece.text, ids, used, (count - i) * WordCache::short_ids);
      }
    }
    ids.resize(used);
  }

 private:
  static constexpr std::size_t ids_ahead = 1024;
  struct Piece {
    std::string_view text;
    WordCache::Key key;
    std::size_t prepared = 0;
  };

  // A word that is not among the short ones known. The ids follow the first `used` ones of `ids`, with space for `room`
  // more behind them; returns how many there are then.
  std::size_t encode_rare(std::string_view piece, std::vector<std::int32_t>& ids, std::size_t used, std::size_t room) {
    const bool takes = WordCache::takes(piece);
    auto known = takes ? cache_.find(piece) : std::span<const std::int32_t>();
    if (known.empty()) {
      fresh_.clear();
      model_.encode(piece, fresh_, scratch_);
      if (takes) cache_.remember(piece, fresh_);
      known = fresh_;
    }
    if (ids.size() - used < known.size() + room) ids.resize(used + used / 2 + known.size() + room + ids_ahead);
    std::copy(known.begin(), known.end(), ids.begin() + static_cast<std::ptrdiff_t>(used));
    return used + known.size();
  }

  const BpeModel& model_;
  const unicode::UnicodeClasses& classes_;
  std::int32_t eod_;
  BpeModel::Scratch scratch_;
  WordCache cache_;
  std::array<Piece, 32> pieces_;
  std::vector<std::int32_t> fresh_;
};

class Gpt2Bpe final : public Tokenizer {
 public:
  explicit Gpt2Bpe(const Gpt2BpeOptions& options) : options_(options), model_(options.vocab_file, options.merge_file) {
    const auto eod = model_.find(end_of_document);
    if (!eod)
      throw ConfigError(text(options.vocab_file, ": has no token ", end_of_document,
                             ", which ends a document; add it as the last one"));
    eod_ = *eod;
  }

  std::unique_ptr<Encoder> encoder() const override { return std::make_unique<Gpt2Encoder>(model_, classes_, eod_); }
  std::int64_t vocab_size() const override { return model_.vocab_size(); }
  std::int32_t eod() const override { return eod_; }
  std::vector<NamedToken> named_tokens() const override {
    return {{"bos_token", end_of_document, eod_}, {"eos_token", end_of_document, eod_}};
  }
  std::optional<std::int32_t> token_id(std::string_view token) const override {
    return token == end_of_document ? std::optional(eod_) : std::nullopt;
  }
  Identity identity() const override { return {"_GPT2BPETokenizer", {options_.vocab_file, options_.merge_file}, {}}; }
  std::string piece(std::int32_t id) const override { return model_.bytes(id); }
  bool may_be_cut_at_lines() const override { return true; }
  std::vector<SourceFile> files() const override {
    return {{"vocab_file", options_.vocab_file}, {"merge_file", options_.merge_file}};
  }

 private:
  Gpt2BpeOptions options_;
  BpeModel model_;
  unicode::UnicodeClasses classes_;
  std::int32_t eod_ = 0;
};

std::unique_ptr<Tokenizer> make_gpt2_bpe(const Gpt2BpeOptions& options) {
  if (options.vocab_file.empty() || options.merge_file.empty())
    throw ConfigError("tokenizer_type GPT2BPETokenizer needs both vocab_file and merge_file");
  return std::make_unique<Gpt2Bpe>(options);
}

}  // namespace

void register_gpt2_bpe(TokenizerRegistry& registry) {
  registry.add("GPT2BPETokenizer", make_gpt2_bpe, "Byte-level BPE from vocab.json and merges.txt.",
               {"gpt2", "GPT2BPE"});
}

}  // namespace tessera::tokenizers
