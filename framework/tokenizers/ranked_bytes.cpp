#include "framework/tokenizers/ranked_bytes.h"

#include <algorithm>
#include <functional>
#include <queue>

#include "framework/base/error.h"

namespace tessera::tokenizers {
namespace {

constexpr std::size_t short_word = 100;  // bytes; above, a heap is faster than to look through all parts

}  // namespace

bool RankedBytes::add(const std::string& token) {
  const auto [entry, fresh] = ranks_.emplace(token, static_cast<std::uint32_t>(tokens_.size()));
  if (!fresh) return false;
  tokens_.push_back(&entry->first);
  longest_ = std::max(longest_, token.size());
  return true;
}

std::uint32_t RankedBytes::rank(std::string_view bytes) const {
  if (bytes.size() > longest_) return none;
  const auto found = ranks_.find(bytes);
  return found == ranks_.end() ? none : found->second;
}

// Where each part begins, and the end.
std::vector<std::size_t> RankedBytes::parts_of_short(std::string_view word) const {
  std::vector<std::size_t> begins(word.size() + 1);
  for (std::size_t i = 0; i < begins.size(); ++i) begins[i] = i;
  std::vector<std::uint32_t> ranks(word.size(), none);  // of part i joined with the next one
  const auto joined = [&](std::size_t i) {
    return i + 2 < begins.size() ? rank(word.substr(begins[i], begins[i + 2] - begins[i])) : none;
  };
  for (std::size_t i = 0; i < ranks.size(); ++i) ranks[i] = joined(i);
  while (true) {
    const auto best = static_cast<std::size_t>(std::min_element(ranks.begin(), ranks.end()) - ranks.begin());
    if (best == ranks.size() || ranks[best] == none) return begins;
    begins.erase(begins.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    ranks.erase(ranks.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    ranks[best] = joined(best);
    if (best > 0) ranks[best - 1] = joined(best - 1);
  }
}

std::vector<std::size_t> RankedBytes::parts_of_long(std::string_view word) const {
  const auto size = word.size();
  std::vector<std::size_t> next(size + 1), before(size + 1);  // begins of the neighbouring parts
  for (std::size_t i = 0; i <= size; ++i) {
    next[i] = i + 1;
    before[i] = i == 0 ? size : i - 1;
  }
  std::vector<std::uint32_t> ranks(size, none);  // of the part that begins here joined with the next one
  std::priority_queue<std::pair<std::uint32_t, std::size_t>, std::vector<std::pair<std::uint32_t, std::size_t>>,
                      std::greater<>>
      candidates;
  const auto look = [&](std::size_t begin) {
    const auto middle = next[begin];
    ranks[begin] = middle < size ? rank(word.substr(begin, next[middle] - begin)) : none;
    if (ranks[begin] != none) candidates.emplace(ranks[begin], begin);
  };
  for (std::size_t i = 0; i < size; ++i) look(i);
  while (!candidates.empty()) {
    const auto [best, begin] = candidates.top();
    candidates.pop();
    if (ranks[begin] != best) continue;  // one of the two parts has changed meanwhile
    const auto middle = next[begin];
    ranks[middle] = none;
    next[begin] = next[middle];
    before[next[begin]] = begin;
    look(begin);
    if (begin > 0) look(before[begin]);
  }
  std::vector<std::size_t> begins;
  for (std::size_t i = 0; i < size; i = next[i]) begins.push_back(i);
  begins.push_back(size);
  return begins;
}

void RankedBytes::encode(std::string_view word, std::int32_t shift, const std::string& name,
                         std::vector<std::int32_t>& ids) const {
  if (word.empty()) return;
  if (const auto whole = rank(word); whole != none) {
    ids.push_back(static_cast<std::int32_t>(whole) + shift);
    return;
  }
  const auto begins = word.size() <= short_word ? parts_of_short(word) : parts_of_long(word);
  for (std::size_t i = 0; i + 1 < begins.size(); ++i) {
    const auto found = rank(word.substr(begins[i], begins[i + 1] - begins[i]));
    if (found == none)
      throw ConfigError(text(name, ": has no token for the byte ",
                             static_cast<unsigned>(static_cast<unsigned char>(word[begins[i]])),
                             "; vocab_size must leave room for the first 256 tokens"));
    ids.push_back(static_cast<std::int32_t>(found) + shift);
  }
}

}  // namespace tessera::tokenizers
