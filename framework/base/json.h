#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace tessera {

/// Whether brackets of a JSON text, outside of its strings, are open more than 200 deep somewhere: copying or writing
/// such a value would use up the stack.
bool is_deep_json(std::string_view words);

/// A JSON text from a file; discarded (`is_discarded()`, and neither object nor array) when it is no JSON or too deep.
template <class Json = nlohmann::json>
Json parse_json(std::string_view words) {
  return is_deep_json(words) ? Json(Json::value_t::discarded) : Json::parse(words, nullptr, false);
}

}  // namespace tessera
