#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <cstdlib>

#include "framework/interop/shell/script_evaluator.h"

// What echo and printf print, escapes, and quoting.

namespace tessera::shell {
namespace {

void add_code(std::string& out, unsigned long code) {
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xC0U | (code >> 6U));
    out += static_cast<char>(0x80U | (code & 0x3FU));
  } else {
    if (code >= 0x10000) out += static_cast<char>(0xF0U | (code >> 18U));
    out += static_cast<char>(code >= 0x10000 ? 0x80U | ((code >> 12U) & 0x3FU) : 0xE0U | (code >> 12U));
    out += static_cast<char>(0x80U | ((code >> 6U) & 0x3FU));
    out += static_cast<char>(0x80U | (code & 0x3FU));
  }
}

/// Up to `most` digits of `base` at words[at], which is moved past them.
std::string digits(std::string_view words, std::size_t& at, std::size_t most, int base) {
  std::string out;
  for (; at < words.size() && out.size() < most; ++at) {
    const auto c = static_cast<unsigned char>(words[at]);
    if (base == 16 ? std::isxdigit(c) == 0 : c < '0' || c > '7') break;
    out += words[at];
  }
  return out;
}

constexpr std::string_view escape_letters = "abeEfnrtv\\'\"?", escape_bytes = "\a\b\033\033\f\n\r\t\v\\'\"?";

}  // namespace

std::string unescaped(std::string_view words, Escapes kind, bool* ends) {
  const bool zero_octal = kind != Escapes::dollar;
  std::string out;
  for (std::size_t i = 0; i < words.size();) {
    if (words[i] != '\\' || i + 1 == words.size()) {
      out += words[i++];
      continue;
    }
    const char letter = words[++i];
    const auto known = escape_letters.find(letter);
    const bool quote = letter == '\'' || letter == '"' || letter == '?';
    if (known != std::string_view::npos && !(quote && zero_octal)) {
      out += escape_bytes[known];
      ++i;
    } else if (letter == 'x' || letter == 'u' || letter == 'U') {
      ++i;
      const auto code = digits(words, i, letter == 'x' ? 2 : letter == 'u' ? 4 : 8, 16);
      if (code.empty())
        out += std::string("\\") + letter;
      else if (letter == 'x')
        out += static_cast<char>(std::strtoul(code.c_str(), nullptr, 16));
      else
        add_code(out, std::strtoul(code.c_str(), nullptr, 16));
    } else if (letter >= '0' && letter <= '7' && !(kind == Escapes::echo && letter != '0')) {
      if (zero_octal && letter == '0') ++i;
      const auto code = digits(words, i, 3, 8);
      out += static_cast<char>(std::strtoul(("0" + code).c_str(), nullptr, 8));
    } else if (letter == 'c' && zero_octal) {
      if (ends) *ends = true;
      return out;
    } else if (letter == 'c' && i + 1 < words.size()) {
      out += static_cast<char>(static_cast<unsigned char>(words[i + 1]) & 0x1FU);
      i += 2;
    } else {
      out += '\\';
    }
  }
  return out;
}

namespace {

bool is_control(char c) { return (static_cast<unsigned char>(c) < 32) || c == 127; }

/// $'...'
std::string dollar_quoted(const std::string& words) {
  std::string out = "$'";
  for (const char c : words) {
    const auto known = escape_bytes.find(c);
    if (c == '\'' || c == '\\') {
      out += std::string("\\") + c;
    } else if (is_control(c) && known != std::string_view::npos) {
      out += std::string("\\") + (c == '\033' ? 'E' : escape_letters[known]);
    } else if (is_control(c)) {
      std::array<char, 8> code{};
      std::snprintf(code.data(), code.size(), "\\%03o", static_cast<unsigned>(static_cast<unsigned char>(c)));
      out += code.data();
    } else {
      out += c;
    }
  }
  return out + "'";
}

}  // namespace

std::string quoted(const std::string& words) {
  if (std::any_of(words.begin(), words.end(), is_control)) return dollar_quoted(words);
  std::string out = "'";
  for (const char c : words) out += c == '\'' ? "'\\''" : std::string(1, c);
  return out + "'";
}

std::string escaped(const std::string& words) {
  if (words.empty()) return "''";
  if (std::any_of(words.begin(), words.end(), is_control)) return dollar_quoted(words);
  std::string out;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const char c = words[i];
    const bool special = std::string_view(" '\"\\|&;()<>!{}*[]?^$`,").find(c) != std::string_view::npos;
    const bool tilde = c == '~' && (i == 0 || words[i - 1] == ':' || words[i - 1] == '=');
    if (special || tilde || (c == '#' && i == 0)) out += '\\';
    out += c;
  }
  return out;
}

std::string echoed(const std::vector<std::string>& words) {
  std::size_t first = 1;
  bool line_end = true, escapes = false;
  for (; first < words.size(); ++first) {
    const auto word = without_places(words[first]);
    if (word.size() < 2 || word[0] != '-' || word.find_first_not_of("neE", 1) != std::string::npos) break;
    line_end = line_end && word.find('n') == std::string::npos;
    for (const char c : word) escapes = c == 'e' ? true : c == 'E' ? false : escapes;
  }
  std::string out;
  for (auto i = first; i < words.size(); ++i) out += (i > first ? " " : "") + words[i];
  if (escapes && out.find('\\') != std::string::npos) {
    bool ends = false;
    out = unescaped(out, Escapes::echo, &ends);
    if (ends) return out;
  }
  return line_end ? out + "\n" : out;
}

namespace {

/// Prints by a format; its arguments are used again and again.
class Printf {
 public:
  explicit Printf(const std::vector<std::string>& words) : words_(words), format_(words.at(1)) {}

  std::optional<std::string> all() {
    do {
      const auto before = next_;
      if (!once()) return known_ ? std::optional<std::string>(out_) : std::nullopt;
      if (next_ == before) break;
    } while (next_ < words_.size());
    return known_ ? std::optional<std::string>(out_) : std::nullopt;
  }

 private:
  /// The format once. False: a %b ended the output.
  bool once() {
    for (std::size_t i = 0; i < format_.size() && known_;) {
      if (format_[i] == '\\' && i + 1 < format_.size()) {
        auto end = i + 2;
        while (end < format_.size() && end < i + 4 && format_[i + 1] >= '0' && format_[i + 1] <= '7' &&
               format_[end] >= '0' && format_[end] <= '7')
          ++end;
        if (format_[i + 1] == 'x' || format_[i + 1] == 'u' || format_[i + 1] == 'U')
          for (const std::size_t most = format_[i + 1] == 'x'   ? 2
                                        : format_[i + 1] == 'u' ? 4
                                                                : 8;
               end < format_.size() && end < i + 2 + most && std::isxdigit(static_cast<unsigned char>(format_[end]));)
            ++end;
        out_ += unescaped(std::string_view(format_).substr(i, end - i), Escapes::dollar);
        i = end;
      } else if (format_[i] == '%' && i + 1 < format_.size() && format_[i + 1] == '%') {
        out_ += '%';
        i += 2;
      } else if (format_[i] == '%') {
        if (!conversion(i)) return false;
      } else {
        out_ += format_[i++];
      }
    }
    return true;
  }

  std::string argument() { return next_ < words_.size() ? words_[next_++] : ""; }

  /// A number as C reads it, 'x is the code of x. An unknown one ends the output.
  std::string number_words() {
    const auto word = without_places(argument());
    if (has_unknown(word)) known_ = false;
    return word;
  }
  long long number() {
    const auto word = number_words();
    if (word.size() > 1 && (word[0] == '\'' || word[0] == '"')) return static_cast<unsigned char>(word[1]);
    char* end = nullptr;
    const auto out = std::strtoll(word.c_str(), &end, 0);
    if (*end != 0) known_ = false;  // Bash prints an error and goes on
    return out;
  }

  /// %-5s, %05.2f, %*d. False: the output ends here.
  bool conversion(std::size_t& i) {
    std::string spec = "%";
    bool precise = false;
    for (++i; i < format_.size() && std::string_view("-+ #0123456789.*'").find(format_[i]) < 17; ++i) {
      precise = precise || format_[i] == '.';
      spec += format_[i] == '*' ? std::to_string(number()) : std::string(1, format_[i]);
    }
    // A width or precision of seven digits is a mistake, and takes that much memory.
    if (i >= format_.size() || spec.size() > 20 || longest_number(spec) > 6) return known_ = false;
    const char kind = format_[i++];
    if (std::string_view("diouxXc").find(kind) < 7 && kind != 'c') return print_number(spec, kind);
    if (std::string_view("eEfFgGaA").find(kind) < 8) return print_real(spec, kind);
    if (std::string_view("sbqc").find(kind) == std::string_view::npos) return known_ = false;
    auto word = argument();
    bool ends = false;
    if (kind == 'b') word = unescaped(word, Escapes::argument, &ends);
    if (kind == 'q') word = escaped(without_places(word));
    if (kind == 'c') word = without_places(word).substr(0, 1);
    if (spec != "%") {
      if (has_unknown(word)) return known_ = false;
      word = printed(spec + "s", without_places(word).c_str());
    }
    out_ += word;
    return !ends;
  }

  static std::size_t longest_number(const std::string& spec) {
    std::size_t longest = 0, now = 0;
    for (const char c : spec) longest = std::max(longest, now = c >= '0' && c <= '9' ? now + 1 : 0);
    return longest;
  }

  bool print_number(const std::string& spec, char kind) {
    const auto value = number();
    if (known_) out_ += printed(spec + "ll" + kind, value);
    return known_;
  }

  bool print_real(const std::string& spec, char kind) {
    const auto word = number_words();
    char* end = nullptr;
    const auto value = std::strtold(word.c_str(), &end);
    if (*end != 0) known_ = false;
    if (known_) out_ += printed(spec + "L" + kind, value);
    return known_;
  }

  template <class Value>
  static std::string printed(const std::string& spec, Value value) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    const auto length = static_cast<std::size_t>(std::max(std::snprintf(nullptr, 0, spec.c_str(), value), 0));
    std::string out(length + 1, '\0');
    std::snprintf(out.data(), out.size(), spec.c_str(), value);
#pragma GCC diagnostic pop
    out.resize(length);
    return out;
  }

  const std::vector<std::string>& words_;
  const std::string format_;
  std::string out_;
  std::size_t next_ = 2;
  bool known_ = true;
};

}  // namespace

std::optional<std::string> formatted(const std::vector<std::string>& words) {
  if (words.size() < 2) return "";
  return Printf(words).all();
}

}  // namespace tessera::shell
