#pragma once

#include <yaml-cpp/yaml.h>

#include <string>
#include <string_view>
#include <utility>

// What is checked of a YAML text before and while it is parsed. Internal to this component.

namespace tessera::options {

// Upper limits on a recipe, far above any real one, so that every accepted text is read quickly.
constexpr std::size_t most_yaml_bytes = std::size_t{16} << 20;
constexpr std::size_t most_yaml_nodes = 200'000;  ///< scalars, lists and maps; each use of an alias counts again

/// Why a text is rejected before parsing, and in which line; an empty message if it is not.
std::pair<std::string, int> refused_size(std::string_view words);

/// The text without byte order mark and carriage returns.
std::string normalised(std::string_view words);

/// The first line, counted from 1, with invalid UTF-8; 0 if there is none.
int line_of_bad_byte(const std::string& words);

/// Thrown if a text has more values than the limit.
struct TooManyNodes {
  YAML::Mark at;
};
/// Thrown if a text has a second document.
struct SecondDocument {
  YAML::Mark at;
};

/// Parses a text of one document. Throws TooManyNodes, SecondDocument, or YAML::Exception.
YAML::Node only_document(const std::string& words);

/// Advice for a YAML syntax error at `mark`, whose cause may be in the line above.
std::string hint_for(const std::string& words, const YAML::Mark& mark);

}  // namespace tessera::options
