#pragma once

#include <CLI/CLI.hpp>

#include "framework/options/mappings.h"
#include "framework/recipe/shelves.h"

namespace tessera {

/// What every subcommand is given. It lives as long as the program, so callbacks may hold a reference.
///
/// A command is a pair of files, cli/<name>.{h,cpp}, with one function
///
///     void add_<name>_commands(CLI::App& app, CommandContext& context);
///
/// that adds its subcommand to `app` and a callback that does the work. A callback throws what it cannot do:
/// ConfigError ends the program with exit code 2, anything else with 1, each with its story on stderr.
/// Results go to stdout. A callback that ends well but not with 0 sets `exit_code`.
struct CommandContext {
  Shelves shelves;
  std::string mappings_folder;  ///< --mappings DIR; empty: the tables compiled into the program
  int exit_code = 0;

  Mappings mappings() const { return Mappings(mappings_folder); }
};

}  // namespace tessera
