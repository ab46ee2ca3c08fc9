#include "framework/cli/run.h"

#include <filesystem>

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
#include "framework/cli/generate.h"
#include "framework/cli/manual.h"
#include "framework/cli/options.h"
#include "framework/cli/state.h"
#include "framework/cli/train.h"
#include "framework/comm/together.h"
#include "framework/interop/flags/spec_rule.h"
#include "framework/interop/formats/formats.h"
#include "framework/log/log.h"
#include "framework/options/report.h"
#include "framework/worker/launch_link.h"

namespace tessera::cli {
namespace {

const log::Logger run_logger("tessera");
constexpr int wrong_input = 2, has_failed = 1;

void add_commands(Command& app, CommandContext& context) {
  add_train_commands(app, context);
  add_check_commands(app, context);
  add_convert_commands(app, context);
  add_options_commands(app, context);
  add_explain_commands(app, context);
  add_diff_commands(app, context);
  add_doctor_commands(app, context);
  add_data_commands(app, context);
  add_checkpoint_commands(app, context);
  add_eval_commands(app, context);
  add_generate_commands(app, context);
  add_state_commands(app, context);
  add_completion_commands(app, context);
  add_manual_commands(app, context);
}

}  // namespace

int run(int argc, char** argv, recipe::Registries registries) {
  try {
    CommandContext context{std::move(registries), 0};
    formats::add_all_formats(context.registries.formats);
    context.registries.rules.push_back(flags::check_spec);
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
        ->type_name("LEVEL");
    app.require_subcommand();
    add_commands(app, context);
    const int code = app.run(argc, argv);
    return code != 0 ? code : context.exit_code;
  } catch (const comm::PeerFailed& failed) {  // that rank has reported the reason
    worker::LaunchLink().failed(failed.what(), true);
    return failed.given_wrong() ? wrong_input : has_failed;
  } catch (const ConfigError& error) {
    run_logger.error(error.what());
    worker::LaunchLink().failed(error.what(), false);
    return wrong_input;
  } catch (const std::filesystem::filesystem_error& error) {
    const auto words = text(error.path1().string(), ": ", error.code().message(),
                            "; give a path that this user may read and write, or change its permissions");
    run_logger.error(words);
    worker::LaunchLink().failed(words, false);
    return wrong_input;
  } catch (const CommError& error) {
    run_logger.error(text("tessera: ", error.what()));
    worker::LaunchLink().failed(error.what(), true);
    return has_failed;
  } catch (const std::exception& error) {
    run_logger.error(text("tessera: ", error.what()));
    worker::LaunchLink().failed(error.what(), false);
    return has_failed;
  }
}

}  // namespace tessera::cli
