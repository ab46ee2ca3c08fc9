#include "framework/interop/flags/python_number.h"

#include <algorithm>

#include "framework/options/option_type.h"

namespace tessera::flags {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Without the blanks that Python strips (ASCII's).
std::string stripped(const std::string& word) {
  const char* const blanks = " \t\n\r\v\f";
  const auto first = word.find_first_not_of(blanks);
  return first == std::string::npos ? "" : word.substr(first, word.find_last_not_of(blanks) - first + 1);
}

bool is_between_digits(const std::string& word, std::size_t at) {
  return at > 0 && at + 1 < word.size() && is_digit(word[at - 1]) && is_digit(word[at + 1]);
}

}  // namespace

std::string python_number(const std::string& word) {
  auto number = stripped(word);
  for (std::size_t at = 0; at < number.size(); ++at)
    if (number[at] == '_' && !is_between_digits(number, at)) return word;
  std::erase(number, '_');
  double value = 0;
  const bool decimal = number.find_first_of("xXoObB") == std::string::npos;  // int() takes no other base
  return decimal && options::OptionType<double>::read(options::Value::of(number, {}), value) ? number : word;
}

}  // namespace tessera::flags
