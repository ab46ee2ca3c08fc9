#include "framework/gpt/npy_header.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <set>

#include "framework/base/error.h"

namespace tessera::gpt {
namespace {

constexpr std::size_t most_header_bytes = std::size_t{64} << 10U;  // an array of integers needs about 100
constexpr std::size_t most_shown = 80, most_dimensions = 64;       // NumPy 2 has at most 64

/// `words` for a message: the begin, with characters that a terminal shows.
std::string shown(std::string_view words) {
  std::string out(words.substr(0, most_shown));
  for (auto& c : out)
    if (c < ' ' || c > '~') c = '?';
  return words.size() > most_shown ? out + "..." : out;
}

/// Reads the dictionary, a literal of Python. Every function removes what it reads.
class Literal {
 public:
  explicit Literal(std::string_view words) : all_(words), rest_(words) {}

  NpyHeader header() {
    NpyHeader out;
    std::set<std::string> keys;
    expect('{');
    while (!take('}')) {
      const auto key = quoted();
      expect(':');
      if (!keys.insert(key).second) refuse();
      read_value(key, out);
      if (take(',')) continue;
      expect('}');
      break;
    }
    skip_blanks();
    if (!rest_.empty() || keys.size() != 3) refuse();
    return out;
  }

 private:
  [[noreturn]] void refuse() const {
    throw ConfigError(text("has the header '", shown(all_),
                           "'; expected a dictionary of descr, fortran_order and shape, as numpy.save writes it"));
  }
  void skip_blanks() { rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t\r\n"), rest_.size())); }
  bool take(char c) {
    skip_blanks();
    if (rest_.empty() || rest_.front() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }
  void expect(char c) {
    if (!take(c)) refuse();
  }
  bool take_word(std::string_view word) {
    skip_blanks();
    if (!rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }

  void read_value(const std::string& key, NpyHeader& out) {
    if (key == "descr")
      out.type = type();
    else if (key == "fortran_order")
      out.fortran_order = truth();
    else if (key == "shape")
      out.shape = shape();
    else
      refuse();
  }
  std::string type() {
    skip_blanks();
    if (rest_.starts_with('[')) throw ConfigError("holds records; expected an array of integers");
    return quoted();
  }
  bool truth() {
    if (take_word("True")) return true;
    if (!take_word("False")) refuse();
    return false;
  }
  std::string quoted() {
    skip_blanks();
    if (rest_.empty() || (rest_.front() != '\'' && rest_.front() != '"')) refuse();
    const auto end = rest_.find(rest_.front(), 1);
    if (end == std::string_view::npos) refuse();
    std::string out(rest_.substr(1, end - 1));
    if (out.find('\\') != std::string::npos) refuse();
    rest_.remove_prefix(end + 1);
    return out;
  }
  std::vector<std::int64_t> shape() {
    std::vector<std::int64_t> out;
    bool comma = true;
    expect('(');
    while (!take(')')) {
      if (!comma || out.size() == most_dimensions) refuse();
      out.push_back(extent());
      comma = take(',');
    }
    if (out.size() == 1 && !comma) refuse();  // Python reads (5) as a number
    return out;
  }
  std::int64_t extent() {
    skip_blanks();
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc() || value < 0) refuse();
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    if (rest_.starts_with('L')) rest_.remove_prefix(1);  // written by Python 2
    return value;
  }

  std::string_view all_, rest_;
};

}  // namespace

NpyHeader parse_npy_header(std::span<const std::byte> file) {
  const auto refuse_cut = [] { throw ConfigError("is no NumPy file, or cut short in its header"); };
  if (file.size() < 8 || std::memcmp(file.data(), npy_magic.data(), npy_magic.size()) != 0) refuse_cut();
  const auto version = static_cast<unsigned>(file[6]), minor = static_cast<unsigned>(file[7]);
  if (version < 1 || version > 3 || minor != 0)
    throw ConfigError(text("is a NumPy file of version ", version, ".", minor, "; expected 1.0, 2.0 or 3.0"));
  const std::size_t length_bytes = version == 1 ? 2 : 4, begin = 8 + length_bytes;
  std::uint32_t length = 0;
  if (file.size() < begin) refuse_cut();
  std::memcpy(&length, file.data() + 8, length_bytes);
  if (length > file.size() - begin) refuse_cut();
  if (length > most_header_bytes)
    throw ConfigError(text("has a header of ", length, " bytes; at most ", most_header_bytes, " are read"));
  auto header = Literal({reinterpret_cast<const char*>(file.data()) + begin, length}).header();
  header.values_at = begin + length;
  return header;
}

}  // namespace tessera::gpt
