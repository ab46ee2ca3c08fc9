#include "framework/options/yaml_text.h"

#include <yaml-cpp/eventhandler.h>

#include <algorithm>
#include <sstream>

#include "framework/base/error.h"

namespace tessera::options {
namespace {

constexpr std::size_t longest_line = std::size_t{1} << 20;  // the time to read one grows with its square

/// Records the position of a document's first value, and counts its values.
class FirstValue final : public YAML::EventHandler {
 public:
  YAML::Mark at = YAML::Mark::null_mark();

  void OnDocumentStart(const YAML::Mark& /*mark*/) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t /*anchor*/) override { see(mark); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t /*anchor*/) override { see(mark); }
  void OnScalar(const YAML::Mark& mark, const std::string& /*tag*/, YAML::anchor_t /*anchor*/,
                const std::string& /*value*/) override {
    see(mark);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& /*tag*/, YAML::anchor_t /*anchor*/,
                       YAML::EmitterStyle::value /*style*/) override {
    see(mark);
  }
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark& mark, const std::string& /*tag*/, YAML::anchor_t /*anchor*/,
                  YAML::EmitterStyle::value /*style*/) override {
    see(mark);
  }
  void OnMapEnd() override {}

 private:
  void see(const YAML::Mark& mark) {
    if (at.is_null()) at = mark;
    if (++count_ > most_yaml_nodes) throw TooManyNodes{mark};
  }
  std::size_t count_ = 0;
};

/// Where a second document begins; null if there is none. YAML::LoadAll is not used for this: for a text that begins
/// with a comma it finds documents without end.
YAML::Mark second_document(const std::string& words) {
  std::istringstream in(words);
  YAML::Parser parser(in);
  FirstValue first, second;
  if (!parser.HandleNextDocument(first) || !parser.HandleNextDocument(second)) return YAML::Mark::null_mark();
  return second.at;
}

/// Whether a text has no second document if its first one is a block map, which ends only at the end of the text or at
/// a line with a marker; and has no more values than the limit.
bool is_short_without_marker(const std::string& words) {
  if (words.size() > most_yaml_nodes || words.find('\r') != std::string::npos) return false;
  for (std::size_t at = 0; at < words.size();) {
    if (words[at] == '%' || words.compare(at, 3, "---") == 0 || words.compare(at, 3, "...") == 0) return false;
    const auto end = words.find('\n', at);
    at = end == std::string::npos ? words.size() : end + 1;
  }
  return true;
}

}  // namespace

std::pair<std::string, int> refused_size(std::string_view words) {
  if (words.size() > most_yaml_bytes)
    return {text("has ", words.size(), " bytes; at most ", most_yaml_bytes, " are read"), 0};
  int line = 1;
  for (std::size_t at = 0; at < words.size(); ++line) {
    const auto end = std::min(words.find('\n', at), words.size());
    if (end - at > longest_line)
      return {text("this line has ", end - at, " bytes; at most ", longest_line, " are read"), line};
    at = end + 1;
  }
  return {"", 0};
}

std::string normalised(std::string_view words) {
  if (words.substr(0, 3) == "\xef\xbb\xbf") words.remove_prefix(3);
  std::string out;
  for (std::size_t i = 0; i < words.size(); ++i)
    if (words[i] != '\r' || i + 1 == words.size() || words[i + 1] != '\n') out += words[i];
  return out;
}

int line_of_bad_byte(const std::string& words) {
  int line = 1;
  for (std::size_t i = 0; i < words.size();) {
    const auto c = static_cast<unsigned char>(words[i]);
    line += c == '\n';
    const std::size_t more = c < 0x80                ? 0
                             : c >= 0xc2 && c < 0xe0 ? 1
                             : c >= 0xe0 && c < 0xf0 ? 2
                             : c >= 0xf0 && c < 0xf5 ? 3
                                                     : 9;
    if (c == 0 || more == 9 || i + more >= words.size()) return line;
    for (std::size_t k = 1; k <= more; ++k)
      if ((static_cast<unsigned char>(words[i + k]) & 0xc0) != 0x80) return line;
    i += more + 1;
  }
  return 0;
}

YAML::Node only_document(const std::string& words) {
  if (is_short_without_marker(words))  // most texts: they are parsed once, which takes 40 us a line
    if (auto node = YAML::Load(words); node.IsMap() && node.Style() == YAML::EmitterStyle::Block) return node;
  if (const auto second = second_document(words); !second.is_null()) throw SecondDocument{second};
  return YAML::Load(words);
}

std::string hint_for(const std::string& words, const YAML::Mark& mark) {
  const auto here = std::min(static_cast<std::size_t>(std::max(mark.pos, 0)), words.size());
  const auto above = words.rfind('\n', here == 0 ? 0 : here - 1);
  const auto start = above == std::string::npos || above == 0 ? std::string::npos : words.rfind('\n', above - 1);
  const auto from = start == std::string::npos ? 0 : start;
  if (words.substr(from, words.find('\n', here) - from).find("${") != std::string::npos)
    return "inside { } or [ ] a ${NAME} needs quotes: \"${NAME}\"";
  return "look for a wrong indentation, a missing quote or bracket, here or in the line above";
}

}  // namespace tessera::options
