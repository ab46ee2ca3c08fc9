#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "framework/options/mappings.h"
#include "framework/recipe/registries.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace tessera::cli {

/// One option or positional argument of a command. Owned by its Command; every member returns `this`, so that calls
/// can be chained. A value that breaks a limit ends the program with exit code 2 before any callback runs.
class CommandOption {
 public:
  explicit CommandOption(CLI::Option* option) : option_(option) {}

  CommandOption* required();
  /// How help, manual and completion show the value, "DIR"; empty: only the option's own name.
  CommandOption* type_name(const std::string& name);
  /// Show the variable's present value as the default.
  CommandOption* show_default();
  /// Of a list: each use takes one value, so that a positional argument may follow.
  CommandOption* one_value_each();
  /// Of a list: one word holds several values with `sign` between them.
  CommandOption* delimiter(char sign);
  CommandOption* one_of(const std::vector<std::string>& words);
  CommandOption* positive();
  CommandOption* not_negative();
  CommandOption* between(std::int64_t low, std::int64_t high);
  CommandOption* between(int low, int high) { return between(std::int64_t{low}, std::int64_t{high}); }
  CommandOption* between(double low, double high);
  /// The two may not be given together.
  CommandOption* excludes(const CommandOption* other);

 private:
  CLI::Option* option_;
};

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

/// The program or one of its subcommands: declares options and what to run. The referenced variables must live until
/// `run`. This interface keeps CLI11, which takes about 12 s of compilation in each source that includes it, in
/// command.cpp alone.
class Command {
 public:
  /// The program itself.
  Command(const std::string& name, const std::string& doc, const std::string& version);
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;
  ~Command();

  Command* add_subcommand(const std::string& name, const std::string& doc);
  /// Exactly one subcommand has to be given.
  void require_subcommand();

  /// `names`: "-o,--output" for an option, "RECIPE" for a positional argument.
  CommandOption* add_option(const std::string& names, std::string& value, const std::string& doc);
  CommandOption* add_option(const std::string& names, std::vector<std::string>& values, const std::string& doc);
  CommandOption* add_option(const std::string& names, std::vector<std::int32_t>& values, const std::string& doc);
  CommandOption* add_option(const std::string& names, std::int64_t& value, const std::string& doc);
  CommandOption* add_option(const std::string& names, std::uint64_t& value, const std::string& doc);
  CommandOption* add_option(const std::string& names, int& value, const std::string& doc);
  /// Takes finite numbers only.
  CommandOption* add_option(const std::string& names, double& value, const std::string& doc);
  CommandOption* add_option(const std::string& names, std::function<void(const std::string&)> take,
                            const std::string& doc);
  CommandOption* add_flag(const std::string& names, bool& value, const std::string& doc);
  /// What this command does. It throws what it cannot do.
  void callback(std::function<void()> work);

  /// Reads the words and runs the command they name. Returns 0, or 2 after telling on stderr what is wrong with them.
  int run(int argc, char** argv);
  /// The program and all commands below it; each command after the one it belongs to.
  std::vector<CommandNode> tree() const;

 private:
  explicit Command(CLI::App* app);
  CommandOption* keep(CLI::Option* option);

  std::unique_ptr<CLI::App> own_;  ///< of the program itself
  CLI::App* app_;
  std::vector<std::unique_ptr<Command>> commands_;
  std::vector<std::unique_ptr<CommandOption>> options_;
};

/// What every subcommand is given. It lives as long as the program, so callbacks may hold a reference.
///
/// A command is a pair of files, cli/<name>.{h,cpp}, with one function
///
///     void add_<name>_commands(Command& app, CommandContext& context);
///
/// that adds its subcommand to `app` and a callback that does the work. A callback throws what it cannot do:
/// ConfigError ends the program with exit code 2, anything else with 1, each with its message on stderr.
/// Results go to stdout. A callback that ends well but not with 0 sets `exit_code`.
struct CommandContext {
  recipe::Registries registries;
  int exit_code = 0;

  const options::Mappings& mappings() const { return registries.mappings; }
};

}  // namespace tessera::cli
