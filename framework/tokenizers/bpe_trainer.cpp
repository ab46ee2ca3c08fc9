#include "framework/tokenizers/bpe_trainer.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <queue>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/tokenizers/bpe.h"

namespace tessera::tokenizers {
namespace {

using Pair = std::pair<std::int32_t, std::int32_t>;

struct PairHash {
  std::size_t operator()(const Pair& pair) const {
    const auto both = (static_cast<std::uint64_t>(static_cast<std::uint32_t>(pair.first)) << 32U) |
                      static_cast<std::uint32_t>(pair.second);
    return (both * 0x9E3779B97F4A7C15U) >> 20U;
  }
};

// How often a pair of neighbours stands in all words, and in which.
struct PairPlace {
  std::int64_t count = 0;
  std::vector<std::uint32_t> words;  // may name a word twice, or one that has lost the pair
};

struct Candidate {
  std::int64_t count;
  Pair pair;
  bool operator<(const Candidate& other) const {
    return count != other.count ? count < other.count : pair > other.pair;
  }
};

class Merging {
 public:
  explicit Merging(const std::unordered_map<std::string, std::int64_t>& counts) {
    const ByteSpelling spelling;
    std::array<std::int32_t, 256> symbols{};
    std::vector<std::pair<char32_t, std::size_t>> bytes;  // in the order of their spelling, as in GPT-2's vocabulary
    for (std::size_t b = 0; b < 256; ++b) bytes.emplace_back(spelling.of(static_cast<unsigned char>(b)), b);
    std::sort(bytes.begin(), bytes.end());
    for (const auto& [spelt, b] : bytes) symbols[b] = token(spelling.spell(std::string(1, static_cast<char>(b))));
    for (const auto& [word, count] : counts) {
      words_.push_back({{}, count});
      for (const auto byte : word) words_.back().symbols.push_back(symbols[static_cast<unsigned char>(byte)]);
    }
    for (std::uint32_t w = 0; w < words_.size(); ++w) count_pairs(w, 1, true);
    for (const auto& [pair, place] : pairs_) queue_.push({place.count, pair});
  }

  std::size_t tokens() const { return result_.vocabulary.size(); }

  // Make the next token; false when no pair is frequent enough.
  bool step(std::int64_t min_frequency) {
    while (!queue_.empty()) {
      const auto best = queue_.top();
      queue_.pop();
      const auto place = pairs_.find(best.pair);
      const auto count = place == pairs_.end() ? 0 : place->second.count;
      if (count == best.count && count >= std::max<std::int64_t>(1, min_frequency)) {
        merge(best.pair);
        return true;
      }
      if (count != best.count && count > 0) queue_.push({count, best.pair});
      if (count == best.count) return false;
    }
    return false;
  }

  TrainedBpe finish() && {
    token("<|endoftext|>");
    return std::move(result_);
  }

 private:
  struct Word {
    std::vector<std::int32_t> symbols;
    std::int64_t count;
  };

  std::int32_t token(const std::string& spelt) {
    const auto [entry, fresh] = ids_.emplace(spelt, static_cast<std::int32_t>(ids_.size()));
    if (fresh) result_.vocabulary.push_back(spelt);
    return entry->second;
  }

  // Add the pairs of a word to the counts, or take them off.
  void count_pairs(std::uint32_t w, std::int64_t sign, bool note) {
    const auto& word = words_[w];
    for (std::size_t i = 0; i + 1 < word.symbols.size(); ++i) {
      auto& place = pairs_[{word.symbols[i], word.symbols[i + 1]}];
      place.count += sign * word.count;
      if (note) place.words.push_back(w);
    }
  }

  void merge(const Pair& pair) {
    const auto left = result_.vocabulary[static_cast<std::size_t>(pair.first)],
               right = result_.vocabulary[static_cast<std::size_t>(pair.second)];
    const auto made = token(left + right);
    result_.merges.emplace_back(left, right);
    auto words = std::move(pairs_[pair].words);
    std::sort(words.begin(), words.end());
    words.erase(std::unique(words.begin(), words.end()), words.end());
    std::unordered_map<Pair, bool, PairHash> fresh;
    for (const auto w : words) {
      count_pairs(w, -1, false);
      join(words_[w].symbols, pair, made);
      count_pairs(w, 1, false);
      note_pairs_with(w, made, fresh);
    }
    pairs_.erase(pair);
    for (const auto& [next, unused] : fresh) queue_.push({pairs_[next].count, next});
  }

  static void join(std::vector<std::int32_t>& symbols, const Pair& pair, std::int32_t made) {
    std::size_t to = 0;
    for (std::size_t from = 0; from < symbols.size(); ++to) {
      const bool here = from + 1 < symbols.size() && symbols[from] == pair.first && symbols[from + 1] == pair.second;
      symbols[to] = here ? made : symbols[from];
      from += here ? 2 : 1;
    }
    symbols.resize(to);
  }

  void note_pairs_with(std::uint32_t w, std::int32_t made, std::unordered_map<Pair, bool, PairHash>& fresh) {
    const auto& symbols = words_[w].symbols;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      if (symbols[i] != made && symbols[i + 1] != made) continue;
      const Pair pair{symbols[i], symbols[i + 1]};
      pairs_[pair].words.push_back(w);
      fresh.emplace(pair, true);
    }
  }

  TrainedBpe result_;
  std::unordered_map<std::string, std::int32_t> ids_;
  std::vector<Word> words_;
  std::unordered_map<Pair, PairPlace, PairHash> pairs_;
  std::priority_queue<Candidate> queue_;
};

}  // namespace

void BpeTrainer::add(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const auto piece = text.substr(at, unicode::next_piece(classes_, text, at));
    ++words_[std::string(piece)];
    at += piece.size();
  }
}

TrainedBpe BpeTrainer::train(std::int64_t vocab_size, std::int64_t min_frequency,
                             const std::function<void(std::int64_t, std::int64_t)>& progress) const {
  if (vocab_size < 257)
    throw ConfigError(text("train-bpe: a vocabulary of ", vocab_size,
                           " has no room for 256 bytes and the end of a document; ask for 257 or more"));
  Merging merging(words_);
  const auto wanted = static_cast<std::size_t>(vocab_size) - 1;
  while (merging.tokens() < wanted && merging.step(min_frequency))
    if (progress) progress(static_cast<std::int64_t>(merging.tokens()), static_cast<std::int64_t>(wanted));
  return std::move(merging).finish();
}

void TrainedBpe::write(const std::string& vocab_file, const std::string& merge_file) const {
  std::string vocab = "{", lines(merges_header);
  for (std::size_t id = 0; id < vocabulary.size(); ++id)
    vocab += text(id == 0 ? "" : ",", nlohmann::json(vocabulary[id]).dump(), ":", id);
  lines += '\n';
  for (const auto& [left, right] : merges) lines += left + ' ' + right + '\n';
  write_file_atomic(vocab_file, vocab + "}");
  write_file_atomic(merge_file, lines);
}

}  // namespace tessera::tokenizers
