#include "framework/tokenizers/charsmap.h"

#include "framework/base/error.h"
#include "framework/unicode/grapheme.h"
#include "framework/unicode/unicode_code_points.h"
#include "framework/unicode/utf8.h"

namespace tessera::tokenizers {
namespace {

// One unit of the trie: Darts-clone's layout.
constexpr bool has_leaf(std::uint32_t unit) { return ((unit >> 8U) & 1U) != 0; }
constexpr std::uint32_t value_of(std::uint32_t unit) { return unit & 0x7FFFFFFFU; }
constexpr std::uint32_t label_of(std::uint32_t unit) { return unit & 0x800000FFU; }
constexpr std::uint64_t offset_of(std::uint32_t unit) {
  return std::uint64_t{unit >> 10U} << ((unit & (1U << 9U)) >> 6U);
}

std::uint32_t read_unit(std::string_view bytes, std::size_t at) {
  std::uint32_t unit = 0;
  for (unsigned i = 0; i < 4; ++i) unit |= std::uint32_t{static_cast<unsigned char>(bytes[at + i])} << (8 * i);
  return unit;
}

constexpr std::size_t longest_cluster = 5;  // bytes of a cluster that is looked up as a whole

}  // namespace

CharsMap::CharsMap(std::string_view blob, const std::string& name) : name_(name) {
  const auto size = blob.size() < 4 ? 0 : read_unit(blob, 0) / 4;
  if (size == 0 || blob.size() - 4 < std::size_t{size} * 4)
    throw ConfigError(text(name, ": precompiled_charsmap has ", blob.size(), " bytes, ",
                           size == 0 ? "which is no trie" : "fewer than its trie says",
                           "; expected a SentencePiece text map. The file is damaged: get it again"));
  trie_.reserve(size);
  for (std::size_t i = 0; i < size; ++i) trie_.push_back(read_unit(blob, 4 + 4 * i));
  replacements_ = blob.substr(4 + std::size_t{size} * 4);
  if (const auto at = unicode::first_not_utf8(replacements_); at != std::string::npos)
    throw ConfigError(text(name, ": byte ", at,
                           " of the replacements of precompiled_charsmap is not UTF-8. The file is ",
                           "damaged: get it again"));
  for (std::size_t i = 0; i < ascii_.size(); ++i) {
    const char c = static_cast<char>(i);
    ascii_[i] = find({&c, 1});
  }
}

// Where the replacement of the shortest beginning of `text` that the trie knows begins, or `none`.
std::size_t CharsMap::find(std::string_view text) const {
  std::uint64_t node = offset_of(trie_[0]);
  for (const auto c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte == 0) return none;
    node ^= byte;
    if (node >= trie_.size() || label_of(trie_[node]) != byte) return none;
    const auto unit = trie_[node];
    node ^= offset_of(unit);
    if (!has_leaf(unit)) continue;
    const auto at = node < trie_.size() ? value_of(trie_[node]) : replacements_.size() + 1;
    if (at > replacements_.size())
      throw ConfigError(tessera::text(name_, ": precompiled_charsmap has a replacement at byte ", at, " of ",
                                      replacements_.size(), ". The file is damaged: get it again"));
    return at;
  }
  return none;
}

// Appends what `text` becomes, looked up as a whole or else by character.
void CharsMap::append(std::string_view text, std::string& to) const {
  if (text.size() <= longest_cluster)
    if (const auto at = find(text); at != none) {
      to += replacements_.c_str() + at;
      return;
    }
  for (std::size_t at = 0; at < text.size();) {
    const auto step = unicode::utf8_step(text, at);
    const auto part = text.substr(at, step.valid ? step.length : 1);
    const auto found = find(part);
    if (found != none)
      to += replacements_.c_str() + found;
    else
      to += part;
    at += part.size();
  }
}

void CharsMap::check_growth(const std::string& to, std::size_t most) const {
  if (to.size() > most)
    throw ConfigError(tessera::text(name_, ": precompiled_charsmap makes more than ", most,
                                    " bytes of one text, which is the limit. The file is damaged: get it again"));
}

void CharsMap::append_clusters(std::string_view text, std::string& to, std::size_t most) const {
  const auto codes = unicode::to_code_points(text);
  for (std::size_t at = 0; at < codes.size();) {
    const auto end = unicode::end_of_grapheme(codes, at);
    append(unicode::from_code_points(std::u32string_view(codes).substr(at, end - at)), to);
    check_growth(to, most);
    at = end;
  }
}

std::string CharsMap::normalized(std::string_view text, std::size_t most) const {
  std::string to;
  to.reserve(text.size());
  // No cluster goes over from one ASCII character to another, but for CR LF.
  const auto ascii = [&](std::size_t at) { return at >= text.size() || static_cast<unsigned char>(text[at]) < 0x80; };
  for (std::size_t at = 0; at < text.size();) {
    check_growth(to, most);
    if (ascii(at) && ascii(at + 1) && text[at] != '\r') {
      const auto found = ascii_[static_cast<unsigned char>(text[at])];
      if (found != none)
        to += replacements_.c_str() + found;
      else
        to += text[at];
      ++at;
      continue;
    }
    auto end = at + 1;
    while (end < text.size() && !(ascii(end - 1) && ascii(end) && text[end - 1] != '\r')) ++end;
    append_clusters(text.substr(at, end - at), to, most);
    at = end;
  }
  return to;
}

}  // namespace tessera::tokenizers
