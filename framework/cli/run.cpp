#include "framework/cli/run.h"

#include <algorithm>
#include <iostream>

#include "framework/cli/check.h"
#include "framework/cli/checkpoint.h"
#include "framework/cli/command.h"
#include "framework/cli/completion.h"
#include "framework/cli/convert.h"
#include "framework/cli/data.h"
#include "framework/cli/diff.h"
#include "framework/cli/eval.h"
#include "framework/cli/explain.h"
#include "framework/cli/generate.h"
#include "framework/cli/manual.h"
#include "framework/cli/options.h"
#include "framework/cli/train.h"
#include "framework/comm/launch_link.h"
#include "framework/comm/together.h"
#include "framework/options/report.h"

namespace tessera {
namespace {

constexpr int wrong_input = 2, has_failed = 1;

void add_commands(CLI::App& app, CommandContext& context) {
  add_train_commands(app, context);
  add_check_commands(app, context);
  add_convert_commands(app, context);
  add_options_commands(app, context);
  add_explain_commands(app, context);
  add_diff_commands(app, context);
  add_data_commands(app, context);
  add_checkpoint_commands(app, context);
  add_eval_commands(app, context);
  add_generate_commands(app, context);
  add_completion_commands(app, context);
  add_manual_commands(app, context);
}

/// The names of the subcommands of `command`, or of its options.
std::vector<std::string> commands_of(const CLI::App& command) {
  std::vector<std::string> names;
  for (const auto* sub : command.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(sub->get_name());
  return names;
}
std::vector<std::string> options_of(const CLI::App& command) {
  std::vector<std::string> names;
  for (const auto* option : command.get_options())
    for (const auto& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

/// What the command line has wrong, with the nearest name for what is not known.
std::string complaint(const CLI::App& app, const CLI::ParseError& error, const std::vector<std::string>& words) {
  const CLI::App* command = &app;
  for (const auto& word : words) {
    const auto names = commands_of(*command);
    if (std::find(names.begin(), names.end(), word) != names.end()) {
      command = command->get_subcommand(word);
      continue;
    }
    const bool option = word.rfind("--", 0) == 0;
    const auto known = option ? options_of(*command) : names;
    const auto name = word.substr(0, word.find('='));
    if (known.empty() || std::find(known.begin(), known.end(), name) != known.end() || (!option && word[0] == '-'))
      continue;
    const auto hint = did_you_mean(name, known);
    return text("no ", option ? "option" : "command", " '", name, "'", hint.empty() ? "" : "; ", hint);
  }
  return error.what();
}

int parse_and_do(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
    return 0;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // help, version
    std::cerr << "tessera: " << complaint(app, error, {argv + std::min(argc, 1), argv + argc})
              << "\n`tessera --help` lists commands, `tessera COMMAND --help` what one takes.\n";
    return wrong_input;
  }
}

}  // namespace

int run(int argc, char** argv, Shelves shelves) {
  try {
    CommandContext context{std::move(shelves), "", 0};
    CLI::App app("Trains language models from a recipe.", "tessera");
    app.set_version_flag("--version", "tessera " TESSERA_VERSION);
    app.add_option("--mappings", context.mappings_folder, "Folder with tables of names, instead of those compiled in")
        ->type_name("DIR");
    app.require_subcommand(1);
    add_commands(app, context);
    const int code = parse_and_do(app, argc, argv);
    return code != 0 ? code : context.exit_code;
  } catch (const PeerFailed& failed) {  // which has said why
    return failed.given_wrong() ? wrong_input : has_failed;
  } catch (const ConfigError& error) {
    std::cerr << error.what() << "\n";
    return wrong_input;
  } catch (const CommError& error) {
    std::cerr << "tessera: " << error.what() << "\n";
    LaunchLink().failed(error.what(), true);
    return has_failed;
  } catch (const std::exception& error) {
    std::cerr << "tessera: " << error.what() << "\n";
    LaunchLink().failed(error.what(), false);
    return has_failed;
  }
}

}  // namespace tessera
