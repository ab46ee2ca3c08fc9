#include "framework/cli/run.h"

#include <filesystem>
#include <memory>

#include "framework/base/files.h"
#include "framework/base/memory_limit.h"
#include "framework/base/standard_output.h"
#include "framework/cli/check.h"
#include "framework/cli/checkpoint_commands.h"
#include "framework/cli/command.h"
#include "framework/cli/completion.h"
#include "framework/cli/convert.h"
#include "framework/cli/data.h"
#include "framework/cli/diff.h"
#include "framework/cli/doctor.h"
#include "framework/cli/eval.h"
#include "framework/cli/explain.h"
#include "framework/cli/export.h"
#include "framework/cli/generate.h"
#include "framework/cli/manual.h"
#include "framework/cli/merge.h"
#include "framework/cli/options.h"
#include "framework/cli/report.h"
#include "framework/cli/state.h"
#include "framework/cli/train.h"
#include "framework/cli/watch.h"
#include "framework/comm/together.h"
#include "framework/interop/flags/spec_rule.h"
#include "framework/interop/formats/formats.h"
#include "framework/interop/hugging_face/peft_reader.h"
#include "framework/log/log.h"
#include "framework/options/report.h"
#include "framework/worker/launch_link.h"

namespace tessera::cli {
namespace {

const log::Logger program_logger("tessera");
constexpr int wrong_input = 2, has_failed = 1;

std::vector<std::string> level_words() {
  std::vector<std::string> words;
  for (const auto& [word, level] : log::log_levels) words.emplace_back(word);
  return words;
}

void add_commands(Command& app, CommandContext& context) {
  add_train_commands(app, context);
  add_check_commands(app, context);
  add_convert_commands(app, context);
  add_options_commands(app, context);
  add_explain_commands(app, context);
  add_diff_commands(app, context);
  add_export_commands(app, context);
  add_report_commands(app, context);
  add_watch_commands(app, context);
  add_doctor_commands(app, context);
  add_data_commands(app, context);
  add_checkpoint_commands(app, context);
  add_eval_commands(app, context);
  add_generate_commands(app, context);
  add_merge_commands(app, context);
  add_state_commands(app, context);
  add_completion_commands(app, context);
  add_manual_commands(app, context);
}

/// `message` with a cause that it may not know: pages of a file that were lost read as zeros.
std::string with_lost_file(const std::string& message) {
  const auto file = take_unreported_loss().string();
  if (file.empty()) return message;
  return text(message, "\n  after ", file, " was truncated while it was read, or its disk failed");
}

/// "data preprocess"
std::string command_words(int argc, char** argv) {
  std::string words;
  for (int i = 1; i < argc && argv[i][0] != '-' && i < 3; ++i) words += text(i > 1 ? " " : "", argv[i]);
  return words;
}

int report(const std::string& message, int code) {
  program_logger.error(code == has_failed ? text("tessera: ", message) : message);
  worker::LaunchLink().failed(message, false);
  return code;
}

int run_command(int argc, char** argv, recipe::Registries registries, StandardOutput& output) {
  try {
    CommandContext context{std::move(registries), output, {argv, argv + argc}};
    add_interop(context.registries);
    Command app("tessera", "Trains language models from a recipe.", "tessera " TESSERA_VERSION);
    app.add_option(
           "--mappings",
           [&context](const std::string& folder) { context.registries.mappings = options::Mappings(folder); },
           "Folder of mapping tables (mappings/), instead of those compiled in")
        ->type_name("DIR");
    app.add_option(
           "--log-level", [](const std::string& word) { log::set_log_level(log::log_level_of(word)); },
           "Minimum level of messages: debug, info, warning or error; takes precedence over training_config.log_level "
           "[info]")
        ->type_name("LEVEL")
        ->suggest(level_words());
    app.require_subcommand();
    add_commands(app, context);
    const int code = app.run(argc, argv);
    require_no_lost_pages();
    return code != 0 ? code : context.exit_code;
  } catch (const comm::PeerFailed& failed) {  // that rank has reported the reason
    worker::LaunchLink().failed(failed.what(), true);
    return failed.given_wrong() ? wrong_input : has_failed;
  } catch (const ConfigError& error) {
    return report(with_lost_file(error.what()), wrong_input);
  } catch (const std::filesystem::filesystem_error& error) {
    return report(text(error.path1().string(), ": ", error.code().message(),
                       "; give a path that this user may read and write, or change its permissions"),
                  wrong_input);
  } catch (const CommError& error) {
    program_logger.error(text("tessera: ", error.what()));
    worker::LaunchLink().failed(error.what(), true);
    return has_failed;
  } catch (const std::bad_alloc&) {
    const auto file = last_opened_file().string();
    const auto doing = file.empty() ? "" : text(" (the last file that it opened is ", file, ")");
    return report(out_of_memory(command_words(argc, argv) + doing).what(), has_failed);
  } catch (const std::exception& error) {
    return report(with_lost_file(error.what()), has_failed);
  }
}

}  // namespace

void add_interop(recipe::Registries& registries) {
  formats::add_all_formats(registries.formats);
  registries.adapters = std::make_shared<hugging_face::PeftReader>();
  registries.rules.push_back(flags::check_spec);
}

int run(int argc, char** argv, recipe::Registries registries) {
  occupy_standard_descriptors();
  StandardOutput output;
  const int code = run_command(argc, argv, std::move(registries), output);
  const auto lost = output.finish();
  // What a rank of tsrun prints is also in the log files of the run, and it must not be restarted for it.
  if (lost.empty() || worker::LaunchLink().present()) return code;
  program_logger.error(text("standard output: cannot be written: ", lost, "; what this command prints is incomplete"));
  return code != 0 ? code : has_failed;
}

}  // namespace tessera::cli
