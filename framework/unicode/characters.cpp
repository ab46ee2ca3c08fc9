#include "framework/unicode/characters.h"

#include <string>
#include <utility>

#include "framework/unicode/unicode_code_points.h"

namespace tessera::unicode {
namespace {

CodeSet codes_with(unicode::Property which) {
  const auto& set = unicode::property(which);
  std::vector<CodeSet::Range> ranges;
  for (char32_t code = 0; code <= CodeSet::last_code; ++code) {
    if (!set.has(code)) continue;
    if (ranges.empty() || ranges.back().last + 1 != code) ranges.push_back({code, code});
    ranges.back().last = code;
  }
  return CodeSet(std::move(ranges));
}

struct CategoryRange {
  CodeSet::Range range;
  unicode::CategorySet category;
};

// The ranges of equal category: a pattern may name many properties.
const std::vector<CategoryRange>& category_ranges() {
  static const auto all = [] {
    std::vector<CategoryRange> ranges;
    const auto& table = unicode::categories(unicode::Version::v16);
    for (char32_t code = 0; code <= CodeSet::last_code; ++code) {
      const auto category = unicode::bit(table.of(code));
      if (ranges.empty() || ranges.back().category != category) ranges.push_back({{code, code}, category});
      ranges.back().range.last = code;
    }
    return ranges;
  }();
  return all;
}

CodeSet codes_with(unicode::CategorySet wanted) {
  std::vector<CodeSet::Range> ranges;
  for (const auto& one : category_ranges())
    if ((one.category & wanted) != 0) ranges.push_back(one.range);
  return CodeSet(std::move(ranges));
}

const CodeSet& han() {
  static const CodeSet set = codes_with(unicode::Property::han);
  return set;
}

// Unicode's long names (PropertyValueAliases.txt) in lower case, without underscores.
constexpr std::pair<std::string_view, std::string_view> long_names[] = {
    {"letter", "L"},           {"mark", "M"},
    {"number", "N"},           {"punctuation", "P"},
    {"symbol", "S"},           {"separator", "Z"},
    {"uppercaseletter", "Lu"}, {"lowercaseletter", "Ll"},
    {"titlecaseletter", "Lt"}, {"modifierletter", "Lm"},
    {"otherletter", "Lo"},     {"nonspacingmark", "Mn"},
    {"spacingmark", "Mc"},     {"enclosingmark", "Me"},
    {"decimalnumber", "Nd"},   {"letternumber", "Nl"},
    {"othernumber", "No"},
};

}  // namespace

std::optional<CodeSet> named_characters(std::string_view name) {
  std::string plain;
  for (const auto c : name)
    if (c != ' ' && c != '_' && c != '-') plain += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  if (plain == "han") return han();
  for (const auto& [long_name, short_name] : long_names)
    if (plain == long_name) plain = short_name;
  if (plain.empty() || plain.size() > 2) return std::nullopt;
  plain[0] = static_cast<char>(plain[0] >= 'a' && plain[0] <= 'z' ? plain[0] - 32 : plain[0]);
  if (plain[0] == 'C' && plain != "Cc" && plain != "Cf" && plain != "Co") return std::nullopt;
  const auto wanted = unicode::category_set(plain);
  return wanted ? std::optional(codes_with(*wanted)) : std::nullopt;
}

const CodeSet& white_space() {
  static const CodeSet set = codes_with(unicode::Property::white_space);
  return set;
}

const CodeSet& word_characters() {
  static const CodeSet set = codes_with(unicode::Property::oniguruma_word);
  return set;
}

}  // namespace tessera::unicode
