#include "framework/unicode/code_set.h"

#include <algorithm>

namespace tessera::unicode {

CodeSet::CodeSet(std::vector<Range> ranges) {
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.first < b.first; });
  for (const auto& range : ranges) {
    if (!ranges_.empty() && range.first <= ranges_.back().last + 1)
      ranges_.back().last = std::max(ranges_.back().last, range.last);
    else
      ranges_.push_back(range);
  }
}

CodeSet CodeSet::operator|(const CodeSet& other) const {
  auto all = ranges_;
  all.insert(all.end(), other.ranges_.begin(), other.ranges_.end());
  return CodeSet(std::move(all));
}

CodeSet CodeSet::operator~() const {
  CodeSet rest;
  char32_t next = 0;
  for (const auto& range : ranges_) {
    if (range.first > next) rest.ranges_.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= last_code) rest.ranges_.push_back({next, last_code});
  return rest;
}

CodeSet CodeSet::operator&(const CodeSet& other) const { return ~(~*this | ~other); }

bool CodeSet::has(char32_t code) const {
  const auto after = std::upper_bound(ranges_.begin(), ranges_.end(), code,
                                      [](char32_t c, const Range& range) { return c < range.first; });
  return after != ranges_.begin() && code <= std::prev(after)->last;
}

bool CodeSet::operator==(const CodeSet& other) const {
  return std::equal(ranges_.begin(), ranges_.end(), other.ranges_.begin(), other.ranges_.end(),
                    [](const Range& a, const Range& b) { return a.first == b.first && a.last == b.last; });
}

CodeBits::CodeBits(const CodeSet& set) : words_((CodeSet::last_code >> 6U) + 1) {
  constexpr auto all = ~std::uint64_t{0};
  for (const auto& range : set.ranges()) {
    const auto first = range.first >> 6U, last = range.last >> 6U;
    const auto head = all << (range.first & 63U), tail = all >> (63U - (range.last & 63U));
    if (first == last) {
      words_[first] |= head & tail;
      continue;
    }
    words_[first] |= head;
    for (auto word = first + 1; word < last; ++word) words_[word] = all;
    words_[last] |= tail;
  }
}

}  // namespace tessera::unicode
