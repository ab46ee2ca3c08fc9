// Unigram, WordPiece and WordLevel.

#include <algorithm>
#include <limits>

#include "framework/base/error.h"
#include "framework/tokenizers/hugging_face/token_model.h"
#include "framework/unicode/utf8_fast.h"

namespace tessera::tokenizers::hugging_face {
namespace {

std::int32_t unknown_id(const Vocabulary& vocabulary, const std::string& unk_token) {
  if (const auto id = vocabulary.find(unk_token)) return *id;
  throw ConfigError(
      text("model: a piece of text has no token, and the unk_token '", unk_token, "' is not in the vocabulary"));
}

// The tokens that a text begins with, shortest first: a range of the sorted tokens, narrowed byte by byte.
class Prefixes {
 public:
  explicit Prefixes(const Vocabulary& vocabulary) {
    for (std::int32_t id = 0; id <= vocabulary.largest_id(); ++id)
      if (const auto token = vocabulary.token(id); token && !token->empty()) tokens_.push_back({*token, id});
    std::sort(tokens_.begin(), tokens_.end(), [](const Token& a, const Token& b) { return a.words < b.words; });
    starts_.assign(257, 0);
    for (const auto& token : tokens_) ++starts_[static_cast<unsigned char>(token.words[0]) + 1U];
    for (std::size_t b = 0; b < 256; ++b) starts_[b + 1] += starts_[b];
  }

  template <class Visit>
  void of(std::string_view words, const Visit& visit) const {
    const auto byte = [](char c) { return static_cast<unsigned char>(c); };
    auto low = tokens_.begin() + starts_[byte(words[0])], high = tokens_.begin() + starts_[byte(words[0]) + 1U];
    for (std::size_t depth = 1; low != high; ++depth) {
      if (low->words.size() == depth) {
        visit(depth, low->id);
        if (++low == high) return;
      }
      if (depth >= words.size()) return;
      const auto wanted = byte(words[depth]);
      low = std::lower_bound(low, high, wanted,
                             [&](const Token& t, unsigned char c) { return byte(t.words[depth]) < c; });
      high = std::upper_bound(low, high, wanted,
                              [&](unsigned char c, const Token& t) { return c < byte(t.words[depth]); });
    }
  }

 private:
  struct Token {
    std::string_view words;
    std::int32_t id;
  };
  std::vector<Token> tokens_;
  std::vector<std::ptrdiff_t> starts_;  // by first byte
};

class Unigram final : public TokenModel {
 public:
  explicit Unigram(UnigramParts parts)
      : TokenModel(std::move(parts.vocabulary)), parts_(std::move(parts)), prefixes_(vocabulary()) {
    auto lowest = std::numeric_limits<double>::infinity();
    for (const auto score : parts_.scores) lowest = std::min(lowest, score);
    constexpr double penalty = 10.0;
    unk_score_ = lowest - penalty;
    if (parts_.byte_fallback)
      for (unsigned b = 0; b < 256; ++b) {
        constexpr std::string_view digits = "0123456789ABCDEF";
        const std::string token{'<', '0', 'x', digits[b >> 4U], digits[b & 15U], '>'};
        fallback_[b] = vocabulary().find(token).value_or(-1);
      }
  }

  void encode(std::string_view piece, std::vector<std::int32_t>& ids) const override {
    const auto ends = best_path(piece);
    struct Part {
      std::size_t begin, end;
    };
    std::vector<Part> parts;  // from the end; neighbours that are unknown are one
    bool unknown_before = false;
    for (auto end = piece.size(); end > 0;) {
      const auto& node = ends[end];
      const bool unknown = node.id == parts_.unk_id;
      if (unknown && unknown_before)
        parts.back().begin = node.begin;
      else
        parts.push_back({node.begin, end});
      unknown_before = unknown;
      end = node.begin;
    }
    for (auto part = parts.rbegin(); part != parts.rend(); ++part)
      add(piece.substr(part->begin, part->end - part->begin), ids);
  }

 private:
  struct Node {
    double score = 0;
    std::size_t begin = std::string_view::npos;
    std::int32_t id = 0;
  };

  std::vector<Node> best_path(std::string_view piece) const {
    std::vector<Node> ends(piece.size() + 1);
    for (std::size_t at = 0; at < piece.size();) {
      const auto so_far = ends[at].score;
      const auto length = unicode::character_at(piece, at).length;
      bool single = false;
      const auto offer = [&](std::size_t size, double score, std::int32_t id) {
        auto& node = ends[at + size];
        if (node.begin != std::string_view::npos && !(score + so_far > node.score)) return;
        node = {score + so_far, at, id};
      };
      prefixes_.of(piece.substr(at), [&](std::size_t size, std::int32_t id) {
        offer(size, parts_.scores[static_cast<std::size_t>(id)], id);
        single = single || size == length;
      });
      if (!single) {
        if (!parts_.unk_id)
          throw ConfigError(
              text("model: the vocabulary has no token for '", piece.substr(at, length), "', and unk_id is null"));
        offer(length, unk_score_, *parts_.unk_id);
      }
      at += length;
    }
    return ends;
  }

  void add(std::string_view part, std::vector<std::int32_t>& ids) const {
    if (const auto id = vocabulary().find(part)) {
      ids.push_back(*id);
      return;
    }
    const auto of = [this](char c) { return fallback_[static_cast<unsigned char>(c)]; };
    if (parts_.byte_fallback && std::all_of(part.begin(), part.end(), [&](char c) { return of(c) >= 0; }))
      for (const auto c : part) ids.push_back(of(c));
    else
      ids.push_back(*parts_.unk_id);  // a part without a token is unknown characters
  }

  UnigramParts parts_;
  Prefixes prefixes_;
  double unk_score_ = 0;
  std::int32_t fallback_[256] = {};
};

class WordPieceModel final : public TokenModel {
 public:
  explicit WordPieceModel(WordPieceParts parts) : TokenModel(std::move(parts.vocabulary)), parts_(std::move(parts)) {
    for (std::int32_t id = 0; id <= vocabulary().largest_id(); ++id)
      if (const auto token = vocabulary().token(id)) longest_ = std::max(longest_, token->size());
  }

  void encode(std::string_view piece, std::vector<std::int32_t>& ids) const override {
    const auto before_all = ids.size();
    std::size_t characters = 0;
    for (const auto c : piece) characters += (static_cast<unsigned char>(c) & 0xC0U) != 0x80 ? 1 : 0;
    bool known = characters <= parts_.max_input_chars_per_word;
    std::string spelt;
    for (std::size_t begin = 0; known && begin < piece.size();) {
      // No longer part can be a token; a word may have any length that the file allows.
      auto end = std::min(piece.size(), begin + longest_);
      while (end < piece.size() && (static_cast<unsigned char>(piece[end]) & 0xC0U) == 0x80) ++end;
      std::optional<std::int32_t> id;
      for (; end > begin; end = unicode::before(piece, end)) {
        auto token = piece.substr(begin, end - begin);
        if (begin > 0) token = spelt.assign(parts_.continuing_subword_prefix).append(token);
        if ((id = vocabulary().find(token))) break;
      }
      known = id.has_value();
      if (known) ids.push_back(*id);
      begin = end;
    }
    if (known) return;
    ids.resize(before_all);
    ids.push_back(unknown_id(vocabulary(), parts_.unk_token));
  }

 private:
  WordPieceParts parts_;
  std::size_t longest_ = 0;  // token, in bytes
};

class WordLevel final : public TokenModel {
 public:
  WordLevel(Vocabulary vocabulary, std::string unk_token)
      : TokenModel(std::move(vocabulary)), unk_token_(std::move(unk_token)) {}

  void encode(std::string_view piece, std::vector<std::int32_t>& ids) const override {
    const auto id = vocabulary().find(piece);
    ids.push_back(id ? *id : unknown_id(vocabulary(), unk_token_));
  }

 private:
  std::string unk_token_;
};

}  // namespace

std::unique_ptr<TokenModel> make_unigram(UnigramParts parts) { return std::make_unique<Unigram>(std::move(parts)); }
std::unique_ptr<TokenModel> make_word_piece(WordPieceParts parts) {
  return std::make_unique<WordPieceModel>(std::move(parts));
}
std::unique_ptr<TokenModel> make_word_level(Vocabulary vocabulary, std::string unk_token) {
  return std::make_unique<WordLevel>(std::move(vocabulary), std::move(unk_token));
}

}  // namespace tessera::tokenizers::hugging_face
