#include "framework/base/json.h"

namespace tessera {

bool is_deep_json(std::string_view words) {
  constexpr int deepest = 200;
  int depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const char c = words[i];
    if (c == '"') quoted = !quoted;
    if (c == '\\' && quoted) ++i;
    if (quoted) continue;
    if (c == '[' || c == '{') ++depth;
    if (c == ']' || c == '}') --depth;
    if (depth > deepest) return true;
  }
  return false;
}

}  // namespace tessera
