// Megatron-LM's three tokenizers on a SentencePiece model: SentencePieceTokenizer, GPTSentencePieceTokenizer and
// Llama2Tokenizer, as core_v0.12.1 has them (megatron/training/tokenizer/tokenizer.py).

#include <algorithm>
#include <unordered_map>

#include "framework/options/limits.h"
#include "framework/tokenizers/sentencepiece_model.h"
#include "framework/tokenizers/tokenizer.h"
#include "framework/unicode/utf8.h"

namespace tessera::tokenizers {
namespace {

constexpr const char* about_model = "Path of the SentencePiece model (.model).";

struct SentencePieceOptions {
  std::string tokenizer_model;
  std::int64_t vocab_extra_ids = 0;
};

void describe(options::Schema<SentencePieceOptions>& s) {
  s.when_changed(options::Change::weights);
  s.option("tokenizer_model", &SentencePieceOptions::tokenizer_model, about_model).when_changed(options::Change::file);
  s.option("vocab_extra_ids", &SentencePieceOptions::vocab_extra_ids,
           "Number of special tokens <extra_id_0>, <extra_id_1>, ... that are added to the vocabulary.")
      .at_least(0)
      .at_most(1 << 20);
}

/// Of the types without added tokens.
struct PlainSentencePieceOptions {
  std::string tokenizer_model;
  std::int64_t vocab_extra_ids = 0;
};

void describe(options::Schema<PlainSentencePieceOptions>& s) {
  s.when_changed(options::Change::silent);
  s.option("tokenizer_model", &PlainSentencePieceOptions::tokenizer_model, about_model)
      .when_changed(options::Change::file);
  s.option("vocab_extra_ids", &PlainSentencePieceOptions::vocab_extra_ids,
           "Ignored with GPTSentencePieceTokenizer and Llama2Tokenizer, as in Megatron-LM: the model determines the "
           "vocabulary.")
      .at_least(0)
      .at_most(1 << 20);
}

/// Special tokens: some are pieces of the model, the others have ids behind its last (of SentencePieceTokenizer).
class SpecialTokens {
 public:
  /// Gives `token` the id of its piece, else the next id; returns it.
  std::int32_t add(const std::string& token, const SentencePieceModel& model) {
    if (const auto known = ids_.find(token); known != ids_.end()) return known->second;
    const auto piece = model.find(token);
    const auto id = piece ? *piece : model.pieces() + added_;
    added_ += piece ? 0 : 1;
    ids_.emplace(token, id);
    in_order_.emplace_back(token, id);
    by_id_.emplace(id, token);
    if (first_bytes_.find(token.front()) == std::string::npos) first_bytes_ += token.front();
    return id;
  }

  /// Adds the control pieces of the model and its unknown piece. From now on the longest of several tokens at one
  /// position of a text counts, as in Hugging Face's tokenizers.
  void add_control_pieces(const SentencePieceModel& model) {
    for (std::int32_t id = 0; id < model.pieces(); ++id) {
      if (!model.is_control(id) && id != model.unknown()) continue;
      if (const auto spelling = model.spelling(id); !spelling.empty()) add(spelling, model);
    }
    std::stable_sort(in_order_.begin(), in_order_.end(),
                     [](const auto& a, const auto& b) { return a.first.size() > b.first.size(); });
  }

  /// Number of tokens that are no pieces of the model.
  std::int32_t added() const { return added_; }

  std::optional<std::int32_t> id_of(const std::string& token) const {
    const auto found = ids_.find(token);
    return found == ids_.end() ? std::nullopt : std::optional(found->second);
  }
  const std::string* find(std::int32_t id) const {
    const auto found = by_id_.find(id);
    return found == by_id_.end() ? nullptr : &found->second;
  }

  struct Hit {
    std::size_t at, length;
    std::int32_t id;
  };
  /// The first special token in `text` from `at` on; of several at one position the one added first, or the longest:
  /// see add_control_pieces().
  std::optional<Hit> next(std::string_view text, std::size_t at) const {
    for (at = text.find_first_of(first_bytes_, at); at != std::string_view::npos;
         at = text.find_first_of(first_bytes_, at + 1))
      for (const auto& [token, id] : in_order_)
        if (text.compare(at, token.size(), token) == 0) return Hit{at, token.size(), id};
    return std::nullopt;
  }

 private:
  std::unordered_map<std::string, std::int32_t> ids_;
  std::unordered_map<std::int32_t, std::string> by_id_;
  std::vector<std::pair<std::string, std::int32_t>> in_order_;
  std::string first_bytes_;
  std::int32_t added_ = 0;
};

/// Cuts the special tokens out of `text` and encodes each part between them by itself.
void encode_split(const SentencePieceModel& model, const SpecialTokens& special, std::string_view text,
                  std::vector<std::int32_t>& ids) {
  std::size_t at = 0;
  while (const auto hit = special.next(text, at)) {
    model.encode(text.substr(at, hit->at - at), ids);
    ids.push_back(hit->id);
    at = hit->at + hit->length;
  }
  model.encode(text.substr(at), ids);
}

/// The model of a tokenizer type, with the checks that all types share.
class Base : public Tokenizer {
 public:
  Base(const std::string& type, const std::string& file) : file_(file), model_(file) {
    if (model_.eos() < 0 && type != "SentencePieceTokenizer")
      throw ConfigError(text(file, ": the model has no end-of-sentence piece (eos_id is -1), which ", type,
                             " puts at the end of a document; train it with eos_id, or use SentencePieceTokenizer"));
    find_in_rendered({});
  }

  std::vector<SourceFile> files() const override { return {{"tokenizer_model", file_}}; }
  std::int64_t vocab_size() const override { return model_.pieces(); }
  std::int32_t eod() const override { return model_.eos(); }
  std::string piece(std::int32_t id) const override {
    return id < 0 || id >= model_.pieces() ? std::string(unicode::replacement_character) : model_.bytes(id);
  }
  std::unique_ptr<Decoder> decoder() const override { return model_.decoder(); }
  std::optional<std::int32_t> token_id(std::string_view token) const override {
    return model_.find(std::string(token));
  }
  std::vector<NamedToken> named_tokens() const override {
    return named({{"bos_token", model_.bos()},
                  {"eos_token", model_.eos()},
                  {"unk_token", model_.unknown()},
                  {"pad_token", model_.pad()}});
  }

 protected:
  /// Those of `tokens` that the tokenizer has: not those of id -1.
  std::vector<NamedToken> named(const std::vector<std::pair<const char*, std::int32_t>>& tokens) const {
    std::vector<NamedToken> all;
    for (const auto& [name, id] : tokens)
      if (const auto* words = rendered_.find(id)) all.push_back({name, *words, id});
    return all;
  }
  /// A rendered text has the control pieces of the model as special tokens, and `more`.
  void find_in_rendered(const SpecialTokens& more) {
    rendered_ = more;
    rendered_.add_control_pieces(model_);
  }
  const SpecialTokens& rendered() const { return rendered_; }
  Identity identity_of(const char* class_name, std::int64_t extra_ids) const {
    return {class_name, {file_}, {{"vocab_extra_ids", std::to_string(extra_ids)}}};
  }
  const SentencePieceModel& model() const { return model_; }

 private:
  std::string file_;
  SentencePieceModel model_;
  SpecialTokens rendered_;
};

/// Ids of the whole text, behind `first` unless that is -1. A template writes that token itself, so a rendered text has
/// none in front.
class PlainEncoder final : public Tokenizer::Encoder {
 public:
  PlainEncoder(const SentencePieceModel& model, const SpecialTokens& rendered, std::int32_t first)
      : model_(model), rendered_(rendered), first_(first) {}
  void encode(std::string_view text, std::vector<std::int32_t>& ids) override {
    if (first_ >= 0) ids.push_back(first_);
    model_.encode(text, ids);
  }
  void encode_rendered(std::string_view text, std::vector<std::int32_t>& ids) override {
    encode_split(model_, rendered_, text, ids);
  }

 private:
  const SentencePieceModel& model_;
  const SpecialTokens& rendered_;
  std::int32_t first_;
};

class GptSentencePiece final : public Base {
 public:
  explicit GptSentencePiece(const std::string& file) : Base("GPTSentencePieceTokenizer", file) {}
  std::unique_ptr<Encoder> encoder() const override { return std::make_unique<PlainEncoder>(model(), rendered(), -1); }
  SpecialIds special_ids() const override {
    return {.pad = model().pad(), .bos = model().bos(), .eos = model().eos(), .cls = -1, .sep = -1, .mask = -1};
  }
  Identity identity() const override { return identity_of("_GPTSentencePieceTokenizer", 0); }
};

class Llama2 final : public Base {
 public:
  explicit Llama2(const std::string& file) : Base("Llama2Tokenizer", file) {
    if (model().bos() < 0)
      throw ConfigError(text(file, ": the model has no beginning-of-sentence piece (bos_id is -1), which ",
                             "Llama2Tokenizer puts in front of each text; use GPTSentencePieceTokenizer"));
  }
  std::unique_ptr<Encoder> encoder() const override {
    return std::make_unique<PlainEncoder>(model(), rendered(), model().bos());
  }
  SpecialIds special_ids() const override { return {{}, {}, {}, -1, -1, -1}; }
  Identity identity() const override { return identity_of("_Llama2Tokenizer", 0); }
};

/// Special tokens inside a text are cut out first; each part between them is encoded by itself.
class SplittingEncoder final : public Tokenizer::Encoder {
 public:
  SplittingEncoder(const SentencePieceModel& model, const SpecialTokens& special, const SpecialTokens& rendered)
      : model_(model), special_(special), rendered_(rendered) {}

  void encode(std::string_view text, std::vector<std::int32_t>& ids) override {
    encode_split(model_, special_, text, ids);
  }
  void encode_rendered(std::string_view text, std::vector<std::int32_t>& ids) override {
    encode_split(model_, rendered_, text, ids);
  }

 private:
  const SentencePieceModel& model_;
  const SpecialTokens& special_;
  const SpecialTokens& rendered_;
};

/// A special token is written with a space on both sides; each part between them is decoded by itself.
class JoiningDecoder final : public Tokenizer::Decoder {
 public:
  JoiningDecoder(const SentencePieceModel& model, const SpecialTokens& special)
      : model_(model), special_(special), part_(model.decoder()) {}

  std::string push(std::int32_t id) override {
    const auto* token = special_.find(id);
    if (!token) return part_->push(id);
    auto shown = part_->finish() + " " + *token + " ";
    part_ = model_.decoder();
    return shown;
  }
  std::string finish() override { return part_->finish(); }

 private:
  const SentencePieceModel& model_;
  const SpecialTokens& special_;
  std::unique_ptr<Tokenizer::Decoder> part_;
};

class SentencePiece final : public Base {
 public:
  explicit SentencePiece(const SentencePieceOptions& options)
      : Base("SentencePieceTokenizer", options.tokenizer_model), extra_ids_(options.vocab_extra_ids) {
    const auto add = [&](const std::string& token) { return special_.add(token, model()); };
    const auto add_piece = [&](std::int32_t id, const char* otherwise) {
      return add(id < 0 ? otherwise : model().spelling(id));
    };
    ids_.cls = add("<CLS>");
    ids_.sep = add("<SEP>");
    eod_ = add("<EOD>");
    ids_.mask = add("<MASK>");
    ids_.pad = add_piece(model().pad(), "<PAD>");
    ids_.bos = add_piece(model().bos(), "<BOS>");
    ids_.eos = add_piece(model().eos(), "<EOS>");
    for (std::int64_t i = 0; i < extra_ids_; ++i) add(text("<extra_id_", i, ">"));
    find_in_rendered(special_);
  }

  std::unique_ptr<Encoder> encoder() const override {
    return std::make_unique<SplittingEncoder>(model(), special_, rendered());
  }
  std::int64_t vocab_size() const override { return std::int64_t{model().pieces()} + special_.added(); }
  std::int32_t eod() const override { return eod_; }
  SpecialIds special_ids() const override { return ids_; }
  std::vector<NamedToken> named_tokens() const override {
    return named({{"bos_token", *ids_.bos},
                  {"eos_token", *ids_.eos},
                  {"unk_token", model().unknown()},
                  {"sep_token", *ids_.sep},
                  {"pad_token", *ids_.pad},
                  {"cls_token", *ids_.cls},
                  {"mask_token", *ids_.mask}});
  }
  std::optional<std::int32_t> token_id(std::string_view token) const override {
    const auto special = special_.id_of(std::string(token));
    return special ? special : Base::token_id(token);
  }
  Identity identity() const override { return identity_of("_SentencePieceTokenizer", extra_ids_); }
  std::string piece(std::int32_t id) const override {
    const auto* token = special_.find(id);
    return token ? *token : Base::piece(id);
  }
  std::unique_ptr<Decoder> decoder() const override { return std::make_unique<JoiningDecoder>(model(), special_); }

 private:
  std::int64_t extra_ids_;
  SpecialTokens special_;
  SpecialIds ids_;
  std::int32_t eod_ = 0;
};

void require_model(const std::string& file, const char* type) {
  if (file.empty()) throw ConfigError(text("tokenizer_type ", type, " needs tokenizer_model, a SentencePiece model"));
}

std::unique_ptr<Tokenizer> make_sentencepiece(const SentencePieceOptions& options) {
  require_model(options.tokenizer_model, "SentencePieceTokenizer");
  return std::make_unique<SentencePiece>(options);
}

std::unique_ptr<Tokenizer> make_gpt(const PlainSentencePieceOptions& options) {
  require_model(options.tokenizer_model, "GPTSentencePieceTokenizer");
  return std::make_unique<GptSentencePiece>(options.tokenizer_model);
}

std::unique_ptr<Tokenizer> make_llama2(const PlainSentencePieceOptions& options) {
  require_model(options.tokenizer_model, "Llama2Tokenizer");
  return std::make_unique<Llama2>(options.tokenizer_model);
}

}  // namespace

void register_sentencepiece(TokenizerRegistry& registry) {
  registry.add("SentencePieceTokenizer", make_sentencepiece,
               "SentencePiece model with added tokens <CLS>, <SEP>, <EOD>, ...; special tokens in a text are found.");
  registry.add("GPTSentencePieceTokenizer", make_gpt,
               "SentencePiece model; special tokens in a text are ordinary text.");
  registry.add("Llama2Tokenizer", make_llama2, "The same, with the beginning-of-sentence token in front of each text.");
}

}  // namespace tessera::tokenizers
