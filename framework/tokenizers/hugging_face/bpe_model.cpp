// BPE as `tokenizers` has it: again and again the adjacent pair of the lowest rank is merged, the leftmost first; a
// pair that a merge has just made takes part at once.

#include <algorithm>
#include <array>
#include <queue>

#include "framework/base/error.h"
#include "framework/tokenizers/bpe.h"
#include "framework/tokenizers/hugging_face/token_model.h"
#include "framework/unicode/utf8.h"
#include "framework/unicode/utf8_fast.h"

namespace tessera::tokenizers::hugging_face {
namespace {

constexpr std::size_t short_word = 64;  // up to here scanning all pairs beats a heap
constexpr std::uint32_t no_rank = ~std::uint32_t{0};

std::uint64_t key_of(std::int32_t left, std::int32_t right) {
  return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32U) | static_cast<std::uint32_t>(right);
}

std::string byte_token(unsigned char byte) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  return {'<', '0', 'x', digits[byte >> 4U], digits[byte & 15U], '>'};
}

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

struct Merge {
  std::uint32_t rank = no_rank;
  std::int32_t id = 0;
};

// Pair of ids -> merge; open addressing.
class Merges {
 public:
  explicit Merges(std::size_t count) {
    std::size_t slots = 64;
    while (slots < 3 * count) slots *= 2;
    slots_.resize(slots);
  }

  // Of two equal pairs the later counts, as in a map.
  void set(std::int32_t left, std::int32_t right, Merge merge) {
    const auto pair = key_of(left, right);
    slots_[slot_of(pair)] = {pair, merge};
  }
  Merge of(std::int32_t left, std::int32_t right) const { return slots_[slot_of(key_of(left, right))].merge; }

 private:
  struct Slot {
    std::uint64_t pair = ~std::uint64_t{0};
    Merge merge;
  };
  std::size_t slot_of(std::uint64_t pair) const {
    const auto mask = slots_.size() - 1;
    auto at = ((pair * 0x9E3779B97F4A7C15U) >> 32U) & mask;
    while (slots_[at].pair != pair && slots_[at].pair != ~std::uint64_t{0}) at = (at + 1) & mask;
    return at;
  }
  std::vector<Slot> slots_;
};

class Bpe final : public TokenModel {
 public:
  explicit Bpe(BpeParts parts)
      : TokenModel(std::move(parts.vocabulary)), parts_(std::move(parts)), merges_(parts_.merges.size()) {
    if (parts_.unk_token) unk_ = vocabulary().find(*parts_.unk_token);
    read_merges();
    if (parts_.from_bytes) read_bytes();
    if (parts_.byte_fallback) read_byte_tokens();
  }

  void encode(std::string_view piece, std::vector<std::int32_t>& ids) const override {
    if (parts_.ignore_merges) {
      const auto whole = parts_.from_bytes ? plain_.find(piece) : vocabulary().find(piece);
      if (whole) {
        ids.push_back(*whole);
        return;
      }
    }
    const auto begin = ids.size();
    if (parts_.from_bytes)
      add_bytes(piece, ids);
    else
      add_characters(piece, ids);
    if (ids.size() - begin <= short_word)
      merge_short(ids, begin);
    else
      merge_long(ids, begin);
  }

  bool may_be_cut_at_metaspace() const override { return cuttable_; }

 private:
  void read_merges() {
    constexpr std::string_view metaspace = "\xE2\x96\x81";
    cuttable_ = !parts_.from_bytes && !parts_.ignore_merges && parts_.continuing_subword_prefix.empty() &&
                parts_.end_of_word_suffix.empty() && vocabulary().find(metaspace);
    std::uint32_t rank = 0;
    std::string joined;
    const auto find = [&](std::string_view token, std::string_view left, std::string_view right) {
      const auto id = vocabulary().find(token);
      if (!id)
        throw ConfigError(text("model: the merge of '", left, "' and '", right, "' needs the token '", token,
                               "', which is not in the vocabulary"));
      return *id;
    };
    const auto& prefix = parts_.continuing_subword_prefix;
    for (const auto& [left, right] : parts_.merges) {
      const auto left_id = find(left, left, right), right_id = find(right, left, right);
      if (right.size() < prefix.size())
        throw ConfigError(text("model: the merge of '", left, "' and '", right,
                               "': the second token is shorter than continuing_subword_prefix '", prefix, "'"));
      if (right.substr(0, metaspace.size()) == metaspace && !ends_with(left, metaspace)) cuttable_ = false;
      joined.assign(left).append(right.substr(prefix.size()));
      merges_.set(left_id, right_id, {rank++, find(joined, left, right)});
    }
    parts_.merges = {};
  }

  void read_bytes() {
    const ByteSpelling spelling;
    for (std::size_t b = 0; b < 256; ++b)
      byte_ids_[b] = vocabulary().find(unicode::to_utf8(spelling.of(static_cast<unsigned char>(b)))).value_or(-1);
    if (!parts_.ignore_merges) return;
    plain_.reserve(vocabulary().size());
    for (std::int32_t id = 0; id <= vocabulary().largest_id(); ++id)
      if (const auto token = vocabulary().token(id)) {
        // a token with a character outside the spelling never comes from ByteLevel
        const auto bytes = spelling.bytes(*token);
        if (spelling.spell(bytes) == *token) plain_.add(bytes, id);
      }
  }

  void read_byte_tokens() {
    for (std::size_t b = 0; b < 256; ++b)
      fallback_[b] = vocabulary().find(byte_token(static_cast<unsigned char>(b))).value_or(-1);
  }

  // What becomes of characters without a token.
  class Unknown {
   public:
    Unknown(const Bpe& bpe, std::vector<std::int32_t>& ids) : bpe_(bpe), ids_(ids) {}
    void flush() {
      if (held_) ids_.push_back(*bpe_.unk_);
      held_ = false;
    }
    void add() {
      if (!bpe_.parts_.unk_token) return;  // without an unknown token the character is left out
      if (!bpe_.unk_)
        throw ConfigError(text("model: the unk_token '", *bpe_.parts_.unk_token, "' is not in the vocabulary"));
      if (held_ && !bpe_.parts_.fuse_unk) flush();
      held_ = true;
    }

   private:
    const Bpe& bpe_;
    std::vector<std::int32_t>& ids_;
    bool held_ = false;
  };

  void add_bytes(std::string_view piece, std::vector<std::int32_t>& ids) const {
    Unknown unknown(*this, ids);
    for (const auto c : piece) {
      const auto id = byte_ids_[static_cast<unsigned char>(c)];
      if (id >= 0) {
        unknown.flush();
        ids.push_back(id);
      } else {
        unknown.add();
      }
    }
    unknown.flush();
  }

  void add_characters(std::string_view piece, std::vector<std::int32_t>& ids) const {
    Unknown unknown(*this, ids);
    std::string spelt;
    for (std::size_t at = 0; at < piece.size();) {
      const auto length = unicode::character_at(piece, at).length;
      auto token = piece.substr(at, length);
      const bool prefixed = at > 0 && !parts_.continuing_subword_prefix.empty();
      const bool last = at + length == piece.size() && !parts_.end_of_word_suffix.empty();
      if (prefixed || last) {
        spelt = prefixed ? parts_.continuing_subword_prefix : "";
        spelt += token;
        if (last) spelt += parts_.end_of_word_suffix;
        token = spelt;
      }
      at += length;
      if (const auto id = vocabulary().find(token)) {
        unknown.flush();
        ids.push_back(*id);
      } else if (!parts_.byte_fallback || !add_fallback(token, ids)) {
        unknown.add();
      }
    }
    unknown.flush();
  }

  // An unknown token that waits comes behind these bytes: `tokenizers` does not put it out before them.
  bool add_fallback(std::string_view token, std::vector<std::int32_t>& ids) const {
    for (const auto c : token)
      if (fallback_[static_cast<unsigned char>(c)] < 0) return false;
    for (const auto c : token) ids.push_back(fallback_[static_cast<unsigned char>(c)]);
    return true;
  }

  void merge_short(std::vector<std::int32_t>& ids, std::size_t begin) const {
    auto count = ids.size() - begin;
    if (count < 2) return;
    std::array<Merge, short_word> merges;
    auto* const symbols = ids.data() + begin;
    for (std::size_t i = 0; i + 1 < count; ++i) merges[i] = merges_.of(symbols[i], symbols[i + 1]);
    while (count > 1) {
      std::size_t best = 0;
      for (std::size_t i = 1; i + 1 < count; ++i)
        if (merges[i].rank < merges[best].rank) best = i;
      if (merges[best].rank == no_rank) break;
      symbols[best] = merges[best].id;
      std::copy(symbols + best + 2, symbols + count, symbols + best + 1);
      std::copy(merges.begin() + best + 1, merges.begin() + count - 1, merges.begin() + best);
      --count;
      if (best > 0) merges[best - 1] = merges_.of(symbols[best - 1], symbols[best]);
      if (best + 1 < count) merges[best] = merges_.of(symbols[best], symbols[best + 1]);
    }
    ids.resize(begin + count);
  }

  // The same with links and a heap: n log n for a piece of any length.
  void merge_long(std::vector<std::int32_t>& ids, std::size_t begin) const {
    struct Candidate {
      std::uint32_t rank, at;
      std::int32_t id;
    };
    const auto weaker = [](const Candidate& a, const Candidate& b) {
      return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
    };
    const auto count = static_cast<std::uint32_t>(ids.size() - begin);
    auto* const symbols = ids.data() + begin;
    std::vector<std::uint32_t> next(count), previous(count);
    std::vector<Candidate> heap;
    heap.reserve(count);
    const auto offer = [&](std::uint32_t left) {
      const auto merge = merges_.of(symbols[left], symbols[next[left]]);
      if (merge.rank == no_rank) return;
      heap.push_back({merge.rank, left, merge.id});
      std::push_heap(heap.begin(), heap.end(), weaker);
    };
    for (std::uint32_t i = 0; i < count; ++i) {
      next[i] = i + 1;
      previous[i] = i - 1;
    }
    for (std::uint32_t i = 0; i + 1 < count; ++i) offer(i);
    while (!heap.empty()) {
      const auto top = heap.front();
      std::pop_heap(heap.begin(), heap.end(), weaker);
      heap.pop_back();
      const auto right = next[top.at];
      if (symbols[top.at] < 0 || right >= count) continue;  // swallowed by its left neighbour, or nothing follows
      if (const auto now = merges_.of(symbols[top.at], symbols[right]); now.rank == no_rank || now.id != top.id)
        continue;
      symbols[top.at] = top.id;
      symbols[right] = -1;
      next[top.at] = next[right];
      if (next[right] < count) previous[next[right]] = top.at;
      if (top.at > 0) offer(previous[top.at]);
      if (next[top.at] < count) offer(top.at);
    }
    ids.erase(std::remove(ids.begin() + static_cast<std::ptrdiff_t>(begin), ids.end(), -1), ids.end());
  }

  BpeParts parts_;
  Merges merges_;
  std::optional<std::int32_t> unk_;
  bool cuttable_ = false;
  std::array<std::int32_t, 256> byte_ids_{}, fallback_{};
  Vocabulary plain_;  // with from_bytes and ignore_merges: tokens by the bytes they stand for
};

}  // namespace

std::unique_ptr<TokenModel> make_bpe(BpeParts parts) { return std::make_unique<Bpe>(std::move(parts)); }

}  // namespace tessera::tokenizers::hugging_face
