#include "framework/options/environment.h"

#include <cctype>
#include <cstdlib>

#include "framework/base/error.h"

namespace tessera::options {
namespace {

constexpr int deepest_substitution = 100;  // maximum nesting of ${A:-${B:-...}}

std::string expanded(const std::string& words, int depth);

/// Position of the } that closes the ${ at `open`; npos if it is not closed.
std::size_t closing(const std::string& words, std::size_t open) {
  int depth = 0;
  for (std::size_t i = open; i < words.size(); ++i) {
    if (words.compare(i, 2, "${") == 0)
      ++depth;
    else if (words[i] == '}' && --depth == 0)
      return i;
  }
  return std::string::npos;
}

bool is_name(const std::string& name) {
  for (const unsigned char c : name)
    if (!std::isalnum(c) && c != '_') return false;
  return !name.empty() && !std::isdigit(static_cast<unsigned char>(name[0]));
}

/// The replacement of a ${...} with the content `inside`.
std::string meaning(const std::string& inside, int depth) {
  if (depth > deepest_substitution)
    throw ConfigError(text("${NAME:-instead} is nested more than ", deepest_substitution, " deep"));
  const auto dash = inside.find(":-");
  const auto name = inside.substr(0, dash);
  if (!is_name(name)) throw ConfigError(text("'${", inside, "}' is not ${NAME} or ${NAME:-instead}"));
  const char* value = std::getenv(name.c_str());
  if (dash != std::string::npos) return value && *value ? value : expanded(inside.substr(dash + 2), depth);
  if (!value) throw ConfigError(text("the environment has no ", name));
  return value;
}

std::string expanded(const std::string& words, int depth) {
  std::string out;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words.compare(i, 3, "$${") == 0) {
      out += "${";
      i += 2;
    } else if (words.compare(i, 2, "${") == 0) {
      const auto end = closing(words, i);
      if (end == std::string::npos)
        throw ConfigError(text("'", words, "': a ${ is not closed; inside { } or [ ] it needs quotes, \"${NAME}\""));
      out += meaning(words.substr(i + 2, end - i - 2), depth + 1);
      i = end;
    } else {
      out += words[i];
    }
  }
  return out;
}

}  // namespace

std::string expand_environment(const std::string& words) { return expanded(words, 0); }

}  // namespace tessera::options
