#include "framework/cli/train.h"

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <optional>

#include "framework/base/crc32c.h"
#include "framework/base/files.h"
#include "framework/base/json.h"
#include "framework/base/memory_limit.h"
#include "framework/cli/recipe_arguments.h"
#include "framework/comm/together.h"
#include "framework/log/log.h"
#include "framework/recipe/build.h"
#include "framework/recipe/figures.h"
#include "framework/recipe/memory.h"
#include "framework/recipe/saved_model.h"
#include "framework/reporting/run_notes.h"
#include "framework/training/loop/format_conversion.h"
#include "framework/training/loop/trainer.h"
#include "framework/worker/launch_link.h"
#include "framework/worker/thread_stacks.h"

namespace tessera::cli {
namespace {

struct TrainFlags {
  RecipeArguments arguments;
  bool only_where = false;
};

/// The notes to log: only those that an earlier start of the same run has not logged.
std::vector<std::string> news(const RecipeArguments& arguments, const options::Report& report,
                              const recipe::Recipe& recipe) {
  const auto resolved = std::filesystem::path(recipe.training.output_dir) / checkpoint::recipe_blob;
  std::error_code unreadable;  // the run folder says so
  const bool begins =
      recipe.training.resume_training == training::Resume::never || !std::filesystem::exists(resolved, unreadable);
  return reporting::new_notes(report.notes(), arguments.verbose || begins || !report.good() ? "" : read_file(resolved));
}

/// The foreseen memory of a rank, with the names that metrics.jsonl and run.json have.
Json memory_of(int rank, const recipe::MemoryNeed& need) {
  Json all = {{"rank", rank}};
  for (const auto& part : need.parts) all.put(part.name == "optimizer state" ? "optimizer" : part.name, part.bytes);
  return all;
}

/// Throws ConfigError when the run needs more memory than this process, or all ranks of this host together, may have.
/// Returns the foreseen memory of each rank.
Json check_memory(const std::string& file, const recipe::Recipe& recipe, const parallel::ProcessGroups& processes,
                  const comm::World& world) {
  const auto layout = recipe::layout_figures(recipe, world.size());
  const auto need = recipe::memory_of_stage(recipe, layout, processes.place.pipeline);
  const auto own = process_memory_limit(), host = host_memory_limit();
  double sum = 0;
  const Json told = {{"host", world.host()}, {"bytes", need.bytes()}, {"memory", memory_of(world.rank(), need)}};
  Json foreseen = Json::array();
  for (const auto& words : world.all().all_gather(told.dump(), "memory of the ranks")) {
    const auto other = read_json(words);
    if (other.at("host").string() == world.host()) sum += other.at("bytes").number();
    foreseen.push_back(other.at("memory"));
  }
  const auto advice = "; make the model, batch_size or seq_length smaller, or use more ranks or larger machines";
  if (static_cast<double>(need.bytes()) > static_cast<double>(own.bytes))
    throw ConfigError(text(file, ": rank ", world.rank(), " needs ", recipe::text_of(need), "; it may have ",
                           in_binary_units(static_cast<double>(own.bytes)), " (", own.source, ")", advice));
  if (sum > static_cast<double>(host.bytes))
    throw ConfigError(text(file, ": the ", world.local_size(), " ranks on ", world.host(), " need ",
                           in_binary_units(sum), " together; they may have ",
                           in_binary_units(static_cast<double>(host.bytes)), " (", host.source, "). Rank ",
                           world.rank(), " needs ", recipe::text_of(need), advice));
  return foreseen;
}

/// Adds who gave each option that nobody left at its default: {"training_config.seed": "run.yaml:7"}.
void add_origins(const options::Value& group, const std::string& path, Json& all) {
  for (const auto& [name, value] : group.fields) {
    const auto place = path.empty() ? name : text(path, ".", name);
    if (value.kind == options::Value::Kind::group)
      add_origins(value, place, all);
    else if (value.origin.layer > 0)
      all.put(place, text(value.origin));
  }
}

/// A .bin/.idx pair, with what tells whether its content is the same as in another run.
Json fact_of(const recipe::Recipe& recipe, const recipe::Figures::DataFile& file) {
  const auto identity = recipe::identity_of(recipe, file);
  Json fact = {{"path", std::filesystem::absolute(file.prefix).lexically_normal().string()},
               {"tokens", file.tokens},
               {"documents", file.documents},
               {"bin_bytes", identity.data_bytes}};
  if (identity.index_sum) fact.put("index_crc32c", crc_text(*identity.index_sum));
  return fact;
}

/// What run.json tells of a run before it is built (RunDocuments::facts).
Json facts_of(const recipe::Recipe& recipe, const CommandContext& context, Json foreseen_memory) {
  Json data = Json::array(), origins = Json::object();
  for (const auto& file : recipe::data_files(recipe)) data.push_back(fact_of(recipe, file));
  add_origins(recipe.resolved, "", origins);
  return {{"command", context.words},
          {"version", TESSERA_VERSION},
          {"data", std::move(data)},
          {"origins", std::move(origins)},
          {"flops_per_token", recipe::flops_per_token(recipe)},
          {"foreseen_memory", std::move(foreseen_memory)}};
}

/// A closed pipe (`| head`) or a file at the size limit (ulimit -f) makes a write fail, but does not end the run:
/// output that nobody reads is lost, steps are not. Until the process ends, because its streams are flushed last.
void outlive_failed_writes() {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
}

/// Prints the run's last line. That the reader of a pipe has gone is no failure of the run.
void print_end(const std::string& line) {
  errno = 0;
  if (!(std::cout << line << std::endl) && errno == EPIPE) std::cout.clear();
}

void train_recipe(const RecipeArguments& arguments, CommandContext& context) {
  outlive_failed_writes();
  std::optional<worker::ThreadStacks> stacks;
  if (worker::LaunchLink().present()) stacks.emplace();
  training::StopSignal stop;  // installed before any long work, so that a signal never loses work
  const comm::World world;
  const auto end = train_on(world, arguments, context, stop);
  const bool first = world.rank() == 0;
  if (first) print_end(end.last_line);
  context.exit_code = end.exit_code;
  stop.keep_until_exit(end.exit_code);
  if (end.exit_code == 0)
    worker::LaunchLink().done();
  else
    worker::LaunchLink().failed(end.last_line, !first);  // all ranks end this way; only the first one reports why
}

/// Prints the run's output folder, in which the launcher stores its logs. Starts nothing.
void print_output_dir(const RecipeArguments& arguments, const CommandContext& context) {
  const auto recipe = read_recipe(arguments, context);
  std::cout << std::filesystem::absolute(recipe.training.output_dir).lexically_normal().string() << std::endl;
}

}  // namespace

training::RunEnd train_on(const comm::World& world, const RecipeArguments& arguments, const CommandContext& context,
                          const training::StopSignal& stop) {
  log::set_log_rank(world.rank(), world.size());
  const bool first = world.rank() == 0;
  options::Report report;
  recipe::Recipe recipe;
  parallel::ProcessGroups processes;
  training::TrainingSetup setup;
  comm::together(world.all(), "reading the recipe", [&] {
    flags::Source source;
    recipe = read_recipe(arguments, context, report, source);
    log::set_log_level_from_recipe(recipe.training.log_level);  // set now, because it applies to the notes too
    if (first) log_notes(news(arguments, report, recipe), source.flags, arguments.verbose);
    problems_in_flags(report, source, context).must_be_good();
  });
  comm::together(world.all(), "arranging the processes", [&] {
    const auto full = worker::full_world(world.size());
    recipe::check_ranks(recipe, full);
    if (first) worker::LaunchLink().can_continue_with(recipe::numbers_of_ranks(recipe, full));
    if (full > world.size()) recipe::keep_global_batch(recipe, full);
    processes = recipe::arrange(recipe, world);
  });
  Json foreseen_memory;
  comm::together(world.all(), "memory of the hosts",
                 [&] { foreseen_memory = check_memory(arguments.file, recipe, processes, world); });
  auto data = recipe::open_data(recipe, processes);
  comm::together(world.all(), "building the run", [&] { setup = recipe::build(recipe, processes, std::move(data)); });
  setup.documents.notes = report.notes();
  comm::together(world.all(), "describing the run", [&] {
    if (first) setup.documents.facts = facts_of(recipe, context, std::move(foreseen_memory));
  });
  return recipe.training.ckpt_convert_format ? training::convert_checkpoint(std::move(setup))
                                             : training::train(std::move(setup), stop);
}

void add_train_commands(Command& app, CommandContext& context) {
  auto* command = app.add_subcommand("train", "Train from a recipe, or resume: see training_config.resume_training");
  const auto flags = std::make_shared<TrainFlags>();
  add_recipe_arguments(*command, flags->arguments);
  command->add_flag("--print-output-dir", flags->only_where, "Print the run folder and exit; for launchers");
  command->callback([flags, &context] {
    if (flags->only_where) {
      print_output_dir(flags->arguments, context);
    } else {
      train_recipe(flags->arguments, context);
    }
  });
}

}  // namespace tessera::cli
