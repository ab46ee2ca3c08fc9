// BertWordPieceLowerCase and BertWordPieceCase: WordPiece as Megatron-LM's _BertWordPieceTokenizer. Special tokens
// inside a text are ordinary text.

#include "framework/base/error.h"
#include "framework/options/limits.h"
#include "framework/tokenizers/bert_words.h"
#include "framework/tokenizers/tokenizer.h"
#include "framework/tokenizers/word_cache.h"
#include "framework/unicode/utf8.h"

namespace tessera::tokenizers {
namespace {

struct BertOptions {
  std::string vocab_file;
  std::int64_t vocab_extra_ids = 0;
};

void describe(options::Schema<BertOptions>& s) {
  s.when_changed(options::Change::weights);
  s.option("vocab_file", &BertOptions::vocab_file,
           "Path of vocab.txt: one token on each line, in the order of the ids.")
      .when_changed(options::Change::file);
  s.option("vocab_extra_ids", &BertOptions::vocab_extra_ids,
           "Number of further tokens <extra_id_0>, <extra_id_1>, ... behind the vocabulary, for span masking.")
      .at_least(0)
      .at_most(std::int64_t{1} << 20);
}

constexpr std::string_view unknown = "[UNK]";

class BertEncoder final : public Tokenizer::Encoder {
 public:
  BertEncoder(const WordPieces& pieces, bool lower_case, const std::string& file)
      : pieces_(pieces), lower_case_(lower_case), file_(file) {}

  void encode(std::string_view text, std::vector<std::int32_t>& ids) override {
    for_each_bert_word(text, lower_case_, [&](std::string_view word) {
      if (!WordCache::takes(word)) {
        encode_word(word, ids);
      } else if (!cache_.append(word, ids)) {
        const auto before = ids.size();
        encode_word(word, ids);
        cache_.remember(word, std::span(ids).subspan(before));
      }
    });
  }

 private:
  void encode_word(std::string_view word, std::vector<std::int32_t>& ids) {
    if (pieces_.encode(word, ids)) return;
    const auto id = pieces_.find(unknown);
    if (id < 0)
      throw ConfigError(tessera::text(file_, ": has no pieces for the word '", word, "' and no token ", unknown,
                                      ", which stands for such words; add that line"));
    ids.push_back(id);
  }

  const WordPieces& pieces_;
  bool lower_case_;
  const std::string& file_;
  WordCache cache_;
};

class BertDecoder final : public Tokenizer::Decoder {
 public:
  explicit BertDecoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  std::string push(std::int32_t id) override { return joiner_.push(tokenizer_.piece(id)); }
  std::string finish() override { return joiner_.finish(); }

 private:
  const Tokenizer& tokenizer_;
  BertTextJoiner joiner_;
};

class BertWordPiece final : public Tokenizer {
 public:
  BertWordPiece(const BertOptions& options, bool lower_case)
      : options_(options), lower_case_(lower_case), pieces_(options.vocab_file) {
    special_.cls = required("[CLS]");
    special_.sep = required("[SEP]");
    special_.pad = required("[PAD]");
    special_.mask = required("[MASK]");
    pieces_.add("[BOS]");
    pieces_.add("[EOS]");
    special_.bos = pieces_.find("[BOS]");
    special_.eos = pieces_.find("[EOS]");
    for (std::int64_t i = 0; i < options.vocab_extra_ids; ++i) pieces_.add(text("<extra_id_", i, ">"));
  }

  std::unique_ptr<Encoder> encoder() const override {
    return std::make_unique<BertEncoder>(pieces_, lower_case_, options_.vocab_file);
  }
  std::int64_t vocab_size() const override { return pieces_.size(); }
  std::int32_t eod() const override { return *special_.eos; }
  SpecialIds special_ids() const override { return special_; }
  bool may_be_cut_at_lines() const override { return true; }
  Identity identity() const override {
    return {"_BertWordPieceTokenizer",
            {options_.vocab_file},
            {{"lower_case", lower_case_ ? "True" : "False"},
             {"vocab_extra_ids", std::to_string(options_.vocab_extra_ids)}}};
  }
  std::string piece(std::int32_t id) const override {
    const auto* token = pieces_.token(id);
    return token == nullptr ? std::string(unicode::replacement_character) : *token;
  }
  std::unique_ptr<Decoder> decoder() const override { return std::make_unique<BertDecoder>(*this); }
  std::vector<SourceFile> files() const override { return {{"vocab_file", options_.vocab_file}}; }

 private:
  std::int32_t required(const std::string& token) const {
    const auto id = pieces_.find(token);
    if (id < 0)
      throw ConfigError(text(options_.vocab_file, ": has no token ", token,
                             "; a vocabulary of BERT has the lines [PAD], [UNK], [CLS], [SEP] and [MASK]"));
    return id;
  }

  BertOptions options_;
  bool lower_case_;
  WordPieces pieces_;
  SpecialIds special_;
};

std::unique_ptr<Tokenizer> make_bert_word_piece(const BertOptions& options, bool lower_case) {
  if (options.vocab_file.empty())
    throw ConfigError(text("tokenizer_type ", lower_case ? "BertWordPieceLowerCase" : "BertWordPieceCase",
                           " needs vocab_file; set it to the path of vocab.txt"));
  return std::make_unique<BertWordPiece>(options, lower_case);
}

std::unique_ptr<Tokenizer> make_lower(const BertOptions& options) { return make_bert_word_piece(options, true); }
std::unique_ptr<Tokenizer> make_cased(const BertOptions& options) { return make_bert_word_piece(options, false); }

}  // namespace

void register_bert_word_piece(TokenizerRegistry& registry) {
  registry.add("BertWordPieceLowerCase", make_lower,
               "WordPiece of BERT from vocab.txt, text in lower case without accents.");
  registry.add("BertWordPieceCase", make_cased, "WordPiece of BERT from vocab.txt, text as it is.");
}

}  // namespace tessera::tokenizers
