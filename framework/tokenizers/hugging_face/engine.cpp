#include "framework/tokenizers/hugging_face/engine.h"

#include <algorithm>
#include <new>

#include "framework/base/error.h"
#include "framework/base/json.h"
#include "framework/tokenizers/hugging_face/growth.h"
#include "framework/tokenizers/word_cache.h"
#include "framework/unicode/utf8.h"
#include "framework/unicode/utf8_fast.h"

namespace tessera::tokenizers::hugging_face {
namespace {

constexpr std::string_view metaspace = "\xE2\x96\x81";
constexpr std::string_view known_processors =
    "BertProcessing, ByteLevel, RobertaProcessing, Sequence, TemplateProcessing";

bool is_ascii(std::string_view words) {
  return std::all_of(words.begin(), words.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

// Names the file in what `action` refuses, and in what it has no memory for, about a text of `bytes` bytes.
template <class Action>
void guarded(const std::string& file, std::size_t bytes, const Action& action) {
  try {
    action();
  } catch (const ConfigError& error) {
    const std::string what = error.what();
    throw ConfigError(what.rfind(file, 0) == 0 ? what : text(file, ": ", what));
  } catch (const std::bad_alloc&) {
    throw ConfigError(text(file, ": there is not enough memory for ", bytes, " bytes of text; a text may become ",
                           most_from(bytes), " bytes long; shorten it, or use a machine with more memory"));
  }
}

std::int32_t read_id(const JsonValue& value) {
  const auto id = value.integer();
  if (id >= Vocabulary::most) value.refuse(text(id, " is not an id; expected less than ", Vocabulary::most));
  return static_cast<std::int32_t>(id);
}

}  // namespace

class EngineEncoder final : public Tokenizer::Encoder {
 public:
  explicit EngineEncoder(const Engine& engine) : engine_(engine), spelt_(engine.pre_tokenizers_.steps.size()) {}

  void encode(std::string_view words, std::vector<std::int32_t>& ids) override {
    check(words);
    guarded(engine_.file_, words.size(), [&] {
      if (engine_.templates_.empty())
        encode_text(words, ids);
      else
        encode_in_templates(words, ids);
    });
  }

  // The template has written what comes before and behind a text.
  void encode_rendered(std::string_view words, std::vector<std::int32_t>& ids) override {
    check(words);
    guarded(engine_.file_, words.size(), [&] { encode_text(words, ids); });
  }

 private:
  void encode_in_templates(std::string_view words, std::vector<std::int32_t>& ids) {
    own_.clear();
    encode_text(words, own_);
    for (const auto& parts : engine_.templates_) {
      made_.clear();
      for (const auto& part : parts) {
        const auto& from = part.is_text ? own_ : part.ids;
        check_growth(made_.size() + from.size(), most_from(words.size()), "the post-processors");
        made_.insert(made_.end(), from.begin(), from.end());
      }
      own_.swap(made_);
    }
    ids.insert(ids.end(), own_.begin(), own_.end());
  }

  static void check(std::string_view words) {
    if (const auto bad = unicode::first_not_utf8(words); bad != std::string_view::npos)
      throw ConfigError(text("a text of ", words.size(), " bytes is not UTF-8 at byte ", bad,
                             "; HuggingFaceTokenizer takes UTF-8 only"));
  }

  // Tokens that are not normalized are found in the text as it is, the others in what is between after normalization.
  void encode_text(std::string_view words, std::vector<std::int32_t>& ids) {
    most_ = most_from(words.size());
    pieces_ = 0;
    engine_.plain_finder_->find(words, [&](AddedTokenFinder::Part part) {
      if (part.id)
        ids.push_back(*part.id);
      else
        encode_between({words.substr(part.begin, part.end - part.begin),
                        part.begin == 0 ? unicode::character_at(words, 0).length : 0},
                       ids);
    });
  }

  void encode_between(Piece piece, std::vector<std::int32_t>& ids) {
    if (!engine_.normalizers_.empty() && !(engine_.keeps_ascii_ && is_ascii(piece.text))) {
      normalized_.text.assign(piece.text);
      normalized_.from_start = piece.from_start;
      normalized_.most = most_;
      for (const auto& step : engine_.normalizers_) step->apply(normalized_);
      piece = {normalized_.text, normalized_.from_start};
    }
    engine_.normalized_finder_->find(piece.text, [&](AddedTokenFinder::Part part) {
      if (part.id)
        ids.push_back(*part.id);
      else
        pre_tokenize(0, piece.part(part.begin, part.end), ids);
    });
  }

  void pre_tokenize(std::size_t step, Piece piece, std::vector<std::int32_t>& ids) {
    if (piece.text.empty()) return;
    const auto& steps = engine_.pre_tokenizers_.steps;
    check_growth(piece.text.size(), most_, "the pre-tokenizers");
    if (step == steps.size()) {
      pieces_ += piece.text.size();
      check_growth(pieces_, most_, "the pre-tokenizers");
      encode_piece(piece.text, ids);
      return;
    }
    steps[step]->split(piece, spelt_[step], [&](Piece part) { pre_tokenize(step + 1, part, ids); });
  }

  void encode_piece(std::string_view piece, std::vector<std::int32_t>& ids) {
    if (!engine_.splits_at_metaspace_) {
      encode_word(piece, ids);
      return;
    }
    std::size_t begin = 0;
    for (auto at = piece.find(metaspace); at != std::string_view::npos; at = piece.find(metaspace, at)) {
      if (at > begin) encode_word(piece.substr(begin, at - begin), ids);
      begin = at;
      while (piece.substr(at, metaspace.size()) == metaspace) at += metaspace.size();
    }
    if (begin < piece.size()) encode_word(piece.substr(begin), ids);
  }

  void encode_word(std::string_view word, std::vector<std::int32_t>& ids) {
    if (!WordCache::takes(word)) {
      engine_.model_->encode(word, ids);
    } else if (!cache_.append(word, ids)) {
      const auto before = ids.size();
      engine_.model_->encode(word, ids);
      cache_.remember(word, std::span(ids).subspan(before));
    }
  }

  const Engine& engine_;
  std::vector<std::string> spelt_;
  std::vector<std::int32_t> own_, made_;
  Normalized normalized_{};
  std::size_t most_ = 0, pieces_ = 0;  // bytes of this text: the limit, and those of pieces until now
  WordCache cache_;
};

class EngineDecoder final : public Tokenizer::Decoder {
 public:
  explicit EngineDecoder(const Engine& engine) : engine_(engine), chain_(engine.decoders_, engine.clean_up_) {}
  std::string push(std::int32_t id) override {
    auto token = engine_.token(id);
    if (!token) return "";  // ids without a token are left out
    guarded(engine_.file_, token->size(), [&] { chain_.token(*std::move(token)); });
    return chain_.take();
  }
  std::string finish() override {
    guarded(engine_.file_, 0, [&] { chain_.finish(); });
    return chain_.take();
  }

 private:
  const Engine& engine_;
  DecodeChain chain_;
};

Engine::Engine(const std::string& file, std::string_view content, std::optional<bool> add_prefix_space) : file_(file) {
  guarded(file, content.size(), [&] {
    std::string why;
    const auto json = parse_json(content, &why);
    if (json.is_discarded()) throw ConfigError(text(file, ": is not JSON: ", why, "; expected a tokenizer.json"));
    read(JsonValue(file, json), add_prefix_space);
  });
}

void Engine::read(const JsonValue& root, std::optional<bool> add_prefix_space) {
  if (const auto version = root.find("version"); version && version->text() != "1.0")
    version->unsupported("version", version->text(), "1.0");
  const auto model = root.at("model");
  if (const auto entry = root.find("normalizer")) normalizers_ = make_normalizers(*entry);
  for (const auto& step : normalizers_) keeps_ascii_ = keeps_ascii_ && step->keeps_ascii();
  if (const auto entry = root.find("pre_tokenizer"))
    pre_tokenizers_ = make_pre_tokenizers(*entry, can_take_bytes(model), add_prefix_space);
  is_bpe_ = model_type(model) == "BPE";
  model_ = read_model(model, pre_tokenizers_.ends_in_bytes);
  splits_at_metaspace_ = model_->may_be_cut_at_metaspace();
  decoders_ = make_decoders(root.find("decoder"));
  if (const auto entry = root.find("post_processor")) read_post_processor(*entry);
  read_added_tokens(root);
  if (const auto padding = root.find("padding")) padding_token_ = padding->text_of("pad_token", "[PAD]");
}

void Engine::read_added_tokens(const JsonValue& root) {
  std::vector<AddedToken> tokens;
  if (const auto list = root.find("added_tokens"))
    for (const auto& one : list->items()) {
      AddedToken token;
      token.content = one.at("content").text();
      token.single_word = one.boolean_of("single_word", false);
      token.lstrip = one.boolean_of("lstrip", false);
      token.rstrip = one.boolean_of("rstrip", false);
      token.special = one.boolean_of("special", false);
      token.normalized = one.boolean_of("normalized", !token.special);
      tokens.push_back(std::move(token));
    }
  add_tokens(tokens);
}

void Engine::add_tokens(const std::vector<AddedToken>& tokens) {
  auto next = static_cast<std::int64_t>(model_->vocabulary().size());
  std::unordered_map<std::int32_t, std::size_t> place;  // in added_, by id
  for (std::size_t i = 0; i < added_.size(); ++i) {
    next = std::max<std::int64_t>(next, added_[i].id + 1);
    place.emplace(added_[i].id, i);
  }
  for (auto token : tokens) {
    if (token.content.empty()) continue;
    if (const auto id = find(token.content)) {
      token.id = *id;
    } else {
      if (next >= Vocabulary::most) throw ConfigError("added_tokens: there are too many tokens");
      token.id = static_cast<std::int32_t>(next++);
    }
    by_content_[token.content] = token.id;  // a later entry with this content has the same id
    const auto [same, fresh] = place.emplace(token.id, added_.size());
    if (fresh)
      added_.push_back(std::move(token));
    else
      added_[same->second] = std::move(token);
  }
  refresh_finders();
}

std::string Engine::normalized(std::string_view content) const {
  Normalized words{std::string(content), 0, most_from(content.size())};
  for (const auto& step : normalizers_) step->apply(words);
  return words.text;
}

void Engine::refresh_finders() {
  std::vector<AddedTokenFinder::Entry> plain, normal;
  by_content_.clear();
  spelt_.clear();
  for (std::size_t i = 0; i < added_.size(); ++i) {
    const auto& token = added_[i];
    by_content_[token.content] = token.id;
    auto spelt = token.normalized ? normalized(token.content) : token.content;
    spelt_[token.id] = spelt;
    (token.normalized ? normal : plain).push_back({std::move(spelt), token});
  }
  plain_finder_ = std::make_unique<AddedTokenFinder>(std::move(plain), splits_special_tokens_);
  normalized_finder_ = std::make_unique<AddedTokenFinder>(std::move(normal), splits_special_tokens_);
}

void Engine::set_split_special_tokens(bool split) {
  splits_special_tokens_ = split;
  refresh_finders();
}

// Templates and other normalizers add to a text, or take from its ends. A token with lstrip takes the line end before
// it.
bool Engine::may_be_cut_at_lines() const {
  const auto spans_lines = [](const AddedToken& token) {
    return token.lstrip || token.content.find('\n') != std::string::npos;
  };
  if (!templates_.empty() || !keeps_ascii_ || std::any_of(added_.begin(), added_.end(), spans_lines)) return false;
  using Step = std::unique_ptr<PreTokenizer>;
  const auto& steps = pre_tokenizers_.steps;
  if (std::any_of(steps.begin(), steps.end(), [](const Step& step) { return step->depends_on_start(); })) return false;
  const auto is_other = [](const Step& step) { return step->at_line_end() != AtLineEnd::kept; };
  const auto decides = std::find_if(steps.begin(), steps.end(), is_other);
  return decides != steps.end() && (*decides)->at_line_end() == AtLineEnd::cut;
}

std::optional<std::int32_t> Engine::find(std::string_view token) const {
  const auto added = by_content_.find(std::string(token));
  if (added != by_content_.end()) return added->second;
  return model_->vocabulary().find(token);
}

std::int64_t Engine::size() const {
  auto count = static_cast<std::int64_t>(model_->vocabulary().size());
  for (const auto& [content, id] : by_content_) count += model_->vocabulary().find(content) ? 0 : 1;
  return count;
}

// An added token that is normalized is decoded in its normalized form.
std::optional<std::string> Engine::token(std::int32_t id) const {
  if (const auto added = spelt_.find(id); added != spelt_.end()) return added->second;
  const auto words = model_->vocabulary().token(id);
  return words ? std::optional<std::string>(*words) : std::nullopt;
}

void Engine::read_post_processor(const JsonValue& entry) {
  const auto type = entry.at("type").text();
  check_steps(entry, templates_.size() + 1);
  const auto pair_id = [&](std::string_view name) {
    const auto pair = entry.at(name).items();
    if (pair.size() != 2) entry.at(name).refuse("expected [\"token\", id]");
    return read_id(pair[1]);
  };
  if (type == "Sequence") {
    for (const auto& one : entry.at("processors").items()) read_post_processor(one);
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    templates_.push_back({{false, {pair_id("cls")}}, {true, {}}, {false, {pair_id("sep")}}});
  } else if (type == "TemplateProcessing") {
    std::vector<TemplatePart> parts;
    for (const auto& one : entry.at("single").items()) {
      if (const auto sequence = one.find("Sequence")) {
        if (const auto id = sequence->at("id"); id.text() != "A") id.unsupported("sequence", id.text(), "A");
        parts.push_back({true, {}});
        continue;
      }
      const auto name = one.at("SpecialToken").at("id").text();
      TemplatePart part{false, {}};
      for (const auto& id : entry.at("special_tokens").at(name).at("ids").items()) part.ids.push_back(read_id(id));
      parts.push_back(std::move(part));
    }
    templates_.push_back(std::move(parts));
  } else if (type != "ByteLevel") {  // ByteLevel changes offsets only
    entry.unsupported("post_processor", type, known_processors);
  }
}

std::unique_ptr<Tokenizer::Encoder> Engine::encoder() const { return std::make_unique<EngineEncoder>(*this); }
std::unique_ptr<Tokenizer::Decoder> Engine::decoder() const { return std::make_unique<EngineDecoder>(*this); }

std::string Engine::piece(std::int32_t id) const {
  auto words = token(id);
  if (!words) return std::string(unicode::replacement_character);
  std::string made;
  guarded(file_, words->size(), [&] { made = DecodeChain(decoders_, false).piece(*std::move(words)); });
  return made;
}

}  // namespace tessera::tokenizers::hugging_face
