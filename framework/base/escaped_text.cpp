#include "framework/base/escaped_text.h"

namespace tessera {

std::string in_shell_quotes(const std::string& words) {
  std::string out = "'";
  for (const auto c : words) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string in_roff(const std::string& words) {
  std::string out;
  for (const auto c : words) {
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else if (c == '\n')
      out += ' ';
    else
      out += c;
  }
  return !out.empty() && (out[0] == '.' || out[0] == '\'') ? "\\&" + out : out;
}

}  // namespace tessera
