#pragma once

#include <cstdint>
#include <vector>

namespace tessera::unicode {

/// A set of code points as sorted, disjoint ranges, both ends included.
class CodeSet {
 public:
  struct Range {
    char32_t first, last;
  };
  static constexpr char32_t last_code = 0x10FFFF;

  CodeSet() = default;
  explicit CodeSet(std::vector<Range> ranges);
  static CodeSet of(char32_t code) { return CodeSet({{code, code}}); }

  const std::vector<Range>& ranges() const { return ranges_; }
  CodeSet operator|(const CodeSet& other) const;
  CodeSet operator&(const CodeSet& other) const;
  CodeSet operator~() const;
  bool has(char32_t code) const;
  bool operator==(const CodeSet& other) const;

 private:
  std::vector<Range> ranges_;
};

/// A set of code points with one bit for each (136 kB), for fast tests.
class CodeBits {
 public:
  explicit CodeBits(const CodeSet& set);
  bool has(char32_t code) const { return ((words_[code >> 6U] >> (code & 63U)) & 1U) != 0; }

 private:
  std::vector<std::uint64_t> words_;
};

}  // namespace tessera::unicode
