#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace tessera {

/// Whether brackets and braces of the JSON text `words`, outside of its strings, are nested more than 200 deep: copying
/// or writing such a value would overflow the stack.
bool is_deep_json(std::string_view words);

/// Parses the JSON text `words`, for input from files. Returns a discarded value (`is_discarded()` is true, and it is
/// neither object nor array) if the text is not JSON or is nested too deeply (is_deep_json). Does not throw for such
/// text.
template <class Json = nlohmann::json>
Json parse_json(std::string_view words) {
  return is_deep_json(words) ? Json(Json::value_t::discarded) : Json::parse(words, nullptr, false);
}

}  // namespace tessera
