#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "framework/options/group.h"

namespace tessera {

/// One command, or the program itself, as its users see it.
struct CommandNode {
  struct Option {
    std::vector<std::string> names;  ///< "--set"; of what is given by its place: "RECIPE"
    std::string value;               ///< what it takes, "DIR"; empty: nothing
    std::string doc;
    bool by_place = false;
    bool required = false;
    bool sets = false;  ///< it takes group.key=value
  };
  std::string path;  ///< "tessera data inspect"
  std::string doc;
  std::vector<Option> options;
  std::vector<std::pair<std::string, std::string>> commands;  ///< below it: name and what it does
};

/// The program and all commands below it; each command after the one it belongs to.
std::vector<CommandNode> command_tree(const CLI::App& app);

/// A key of a recipe with the words it can be set to; none where these cannot be counted.
struct KeyWords {
  std::string key, doc;
  std::vector<std::string> words;
};
/// Every key there is, each once, without other spellings.
std::vector<KeyWords> key_words(const Facts& facts);

}  // namespace tessera
