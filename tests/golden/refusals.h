#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>

namespace tessera::golden {

/// Why Megatron-LM stopped at a recorded command line.
struct Refusal {
  std::string words;            ///< its message, or the line that it stopped at
  std::set<std::string> rules;  ///< the names in docs/rules.md that it may be; empty: nobody knows it
};

/// What a recorded row says of a refusal: by the checks of the arguments, by the configuration that is made of them or
/// by the size of the first step. None when it was taken.
std::optional<Refusal> refusal_in(const nlohmann::json& row);

}  // namespace tessera::golden
