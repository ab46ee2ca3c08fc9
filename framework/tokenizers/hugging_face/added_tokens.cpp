#include "framework/tokenizers/hugging_face/added_tokens.h"

#include <algorithm>

#include "framework/unicode/unicode_code_points.h"
#include "framework/unicode/utf8_fast.h"

namespace tessera::tokenizers::hugging_face {

AddedTokenFinder::AddedTokenFinder(std::vector<Entry> entries, bool passes_special)
    : entries_(std::move(entries)), passes_special_(passes_special) {
  std::erase_if(entries_, [](const Entry& entry) { return entry.spelt.empty(); });
  std::stable_sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) { return a.spelt < b.spelt; });
  for (const auto& entry : entries_) begins_[static_cast<unsigned char>(entry.spelt[0])] = true;
  nodes_.emplace_back();
  bytes_.push_back(0);
  build(0, 0, entries_.size(), 0);
}

// The entries [low, high) have the first `depth` bytes in common. Levels, not recursion: tokens may be long.
void AddedTokenFinder::build(std::uint32_t root, std::size_t low, std::size_t high, std::size_t depth) {
  struct Task {
    std::uint32_t node;
    std::size_t low, high, depth;
  };
  std::vector<Task> tasks{{root, low, high, depth}};
  while (!tasks.empty()) {
    auto task = tasks.back();
    tasks.pop_back();
    while (task.low < task.high && entries_[task.low].spelt.size() == task.depth)
      nodes_[task.node].entry = static_cast<std::int32_t>(task.low++);
    nodes_[task.node].first_child = static_cast<std::uint32_t>(nodes_.size());
    for (auto at = task.low; at < task.high;) {
      const auto byte = entries_[at].spelt[task.depth];
      auto end = at + 1;
      while (end < task.high && entries_[end].spelt[task.depth] == byte) ++end;
      tasks.push_back({static_cast<std::uint32_t>(nodes_.size()), at, end, task.depth + 1});
      nodes_.emplace_back();
      bytes_.push_back(static_cast<unsigned char>(byte));
      ++nodes_[task.node].children;
      at = end;
    }
  }
}

// The entry of the longest token at `at`, and its size.
std::optional<std::size_t> AddedTokenFinder::longest(std::string_view text, std::size_t at, std::size_t& size) const {
  std::optional<std::size_t> found;
  std::uint32_t node = 0;
  for (auto next = at; next < text.size(); ++next) {
    const auto begin = bytes_.begin() + nodes_[node].first_child, end = begin + nodes_[node].children;
    const auto child = std::lower_bound(begin, end, static_cast<unsigned char>(text[next]));
    if (child == end || *child != static_cast<unsigned char>(text[next])) break;
    node = static_cast<std::uint32_t>(child - bytes_.begin());
    if (nodes_[node].entry < 0) continue;
    found = static_cast<std::size_t>(nodes_[node].entry);
    size = next + 1 - at;
  }
  return found;
}

void AddedTokenFinder::find(std::string_view text, const Visit<Part>& sink) const {
  const auto has = [text](unicode::Property which, std::size_t at) {
    return unicode::property(which).has(unicode::character_at(text, at).code);
  };
  const auto is_word = [&](std::size_t at) { return has(unicode::Property::rust_word, at); };
  const auto is_space = [&](std::size_t at) { return has(unicode::Property::white_space, at); };
  std::size_t from = 0, size = 0;
  for (std::size_t at = 0; at < text.size();) {
    const auto found =
        begins_[static_cast<unsigned char>(text[at])] ? longest(text, at, size) : std::optional<std::size_t>();
    if (!found) {
      ++at;
      continue;
    }
    const auto& token = entries_[*found].token;
    auto begin = at, end = at + size;
    at = end;
    if (passes_special_ && token.special) continue;
    if (token.single_word &&
        ((begin > 0 && is_word(unicode::before(text, begin))) || (end < text.size() && is_word(end))))
      continue;
    if (token.lstrip) {
      while (begin > 0 && is_space(unicode::before(text, begin))) begin = unicode::before(text, begin);
      begin = std::max(begin, from);  // a token before may have taken these blanks
    }
    if (token.rstrip)
      while (end < text.size() && is_space(end)) end += unicode::character_at(text, end).length;
    if (from < begin) sink({from, begin, std::nullopt});
    sink({begin, end, token.id});
    from = end;
  }
  if (from < text.size()) sink({from, text.size(), std::nullopt});
}

}  // namespace tessera::tokenizers::hugging_face
