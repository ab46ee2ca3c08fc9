#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/standard_output.h"
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
  /// Sets the placeholder for the value in help, manual and completion, "DIR"; empty: only the option's name is shown.
  CommandOption* type_name(const std::string& name);
  /// Shows the variable's current value as the default.
  CommandOption* show_default();
  /// The value may be left out; it is then an empty text.
  CommandOption* optional_value();
  /// For a list: each use of the option takes one value, so that a positional argument may follow.
  CommandOption* one_value_each();
  /// For a list: one word holds several values, separated by `sign`.
  CommandOption* delimiter(char sign);
  CommandOption* one_of(const std::vector<std::string>& words);
  /// Completion offers `words`; other values are accepted, too.
  CommandOption* suggest(std::vector<std::string> words);
  /// Completion offers the words of the recipe's option `key`, "dataset_config.tokenizer_type", but null and none,
  /// which mean that a recipe has no such thing.
  CommandOption* suggest_as(std::string key);
  CommandOption* positive();
  CommandOption* not_negative();
  CommandOption* between(std::int64_t low, std::int64_t high);
  CommandOption* between(int low, int high) { return between(std::int64_t{low}, std::int64_t{high}); }
  CommandOption* between(double low, double high);
  /// The value is text, not a path: a leading "~/" is not replaced by the home folder (base/home.h).
  CommandOption* as_written();
  /// Declares this option and `other` mutually exclusive.
  CommandOption* excludes(const CommandOption* other);

 private:
  friend class Command;
  CLI::Option* option_;
  std::vector<std::string> words_;
  std::string key_;
};

/// The description of one command, or of the program itself, for manual and completion.
struct CommandNode {
  struct Option {
    std::vector<std::string> names;  ///< "--set"; of a positional argument "RECIPE"
    std::string value;               ///< placeholder of its value, "DIR"; empty: takes no value
    std::string doc;
    bool by_place = false;  ///< a positional argument
    bool required = false;
    bool sets = false;               ///< its value is group.key=value
    std::vector<std::string> words;  ///< the values that completion offers; empty: it takes other values
    std::string key;                 ///< the recipe's option whose words completion offers, too; empty: none
  };
  std::string path;  ///< "tessera data inspect"
  std::string doc;
  std::vector<Option> options;
  std::vector<std::pair<std::string, std::string>> commands;  ///< subcommands: name and description
};

/// The program or one of its subcommands: declares options and the function to run. The referenced variables must live
/// until `run` returns. This interface confines CLI11, which takes about 12 s of compilation in each source that
/// includes it, to command.cpp.
class Command {
 public:
  /// The program itself.
  Command(const std::string& name, const std::string& doc, const std::string& version);
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;
  ~Command();

  /// Adds a subcommand. Owned by this object.
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
  /// Sets the function that this command runs. It throws if it fails.
  void callback(std::function<void()> work);

  /// Parses the command line and runs the named command. Returns 0, or 2 after printing an error on stderr if the
  /// command line is wrong. Exceptions of the command's function pass through.
  int run(int argc, char** argv);
  /// The program and all its commands, each after its parent.
  std::vector<CommandNode> tree() const;

 private:
  explicit Command(CLI::App* app);
  void add_nodes(const std::string& path, std::vector<CommandNode>& all) const;
  CommandOption* keep(CLI::Option* option);

  std::unique_ptr<CLI::App> own_;  ///< only for the program itself
  CLI::App* app_;
  std::vector<std::unique_ptr<Command>> commands_;
  std::vector<std::unique_ptr<CommandOption>> options_;
};

/// The context that every subcommand receives. It lives as long as the program, so callbacks may hold a reference.
///
/// A command is a pair of files, cli/<name>.{h,cpp}, with one function
///
///     void add_<name>_commands(Command& app, CommandContext& context);
///
/// that adds its subcommand to `app` with a callback that does the work. If a callback throws ConfigError, the program
/// ends with exit code 2; for other exceptions, with 1; in both cases with the message on stderr. Results go to stdout.
/// A callback that returns normally but needs an exit code other than 0 sets `exit_code`.
struct CommandContext {
  recipe::Registries registries;
  StandardOutput& output;               ///< of the program; commands write to std::cout
  std::vector<std::string> words = {};  ///< the command line, from the name of the program on
  int exit_code = 0;

  const options::Mappings& mappings() const { return registries.mappings; }
  /// What --ignore-key gives, for the readers of other programs' settings.
  void ignore_keys(const std::vector<std::string>& keys) { registries.mappings.ignore_keys(keys); }
};

}  // namespace tessera::cli
