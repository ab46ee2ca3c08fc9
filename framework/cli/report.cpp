#include "framework/cli/report.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string_view>

#include "framework/base/clock.h"
#include "framework/base/escaped_text.h"
#include "framework/base/files.h"
#include "framework/cli/checkpoint_list.h"
#include "framework/cli/diff.h"
#include "framework/cli/layout_report.h"
#include "framework/cli/recipe_arguments.h"
#include "framework/log/log.h"
#include "framework/recipe/layout_figures.h"
#include "framework/training/saving/run_folder.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;

const log::Logger report_logger("report");

constexpr std::size_t most_runs = 26, most_checkpoints = 500;
constexpr std::int64_t most_ranks = 4096;

/// `word` as a shell reads it back; in quotes only where it needs them.
std::string as_word(const std::string& word) {
  const bool plain = !word.empty() && std::all_of(word.begin(), word.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("_-+=.,/:%@").find(c) != std::string_view::npos;
  });
  return plain ? word : in_shell_quotes(word);
}

/// The number of ranks in run.json; 1 if it does not tell.
std::int64_t ranks_of(const runs::RunReader& run) {
  const auto* ranks = run.record().find("ranks");
  if (ranks == nullptr || !ranks->is_number_integer()) return 1;
  const auto number = ranks->number();
  return number >= 1 && number <= static_cast<double>(most_ranks) ? static_cast<std::int64_t>(number) : 1;
}

/// The line that repeats a run: that of run.json, else training with its resolved recipe.
std::string command_of(const runs::RunReader& run) {
  const auto* words = run.record().find("command");
  std::string all;
  if (words != nullptr && words->is_array())
    for (const auto& word : *words)
      if (word.is_string()) all += text(all.empty() ? "" : " ", as_word(word.string()));
  if (!all.empty()) return all;
  if (run.resolved().empty()) return "";
  return text("tessera train ", as_word((run.folder() / "resolved.yaml").string()));
}

/// The recipe of a run; nothing if it has none that can be read, with the reason in `why`.
std::optional<recipe::Recipe> recipe_of(const runs::RunReader& run, const CommandContext& context, std::string& why) {
  if (run.resolved().empty()) {
    why = "the folder has no resolved.yaml";
    return std::nullopt;
  }
  try {
    options::Report report;
    auto recipe = recipe::read_recipe((run.folder() / "resolved.yaml").string(), {}, context.registries, report);
    if (report.good()) return recipe;
    why = text("resolved.yaml cannot be read by this version: ", report.problems().front());
  } catch (const Error& error) {
    why = error.what();
  }
  return std::nullopt;
}

void add_layout(const runs::RunReader& run, const recipe::Recipe& recipe, report::PageRun& shown) {
  try {
    const auto ranks = ranks_of(run);
    recipe::check_ranks(recipe, ranks);
    const auto figures = recipe::layout_figures(recipe, ranks);
    shown.layout = report::PageLayout{layout_report(figures, 0), std::nullopt, {}};
    if (figures.shape.stages > 1) {
      shown.layout->pipeline = figures.shape;
      shown.layout->costs = figures.costs;
    }
  } catch (const Error& error) {
    shown.no_layout = error.what();
  }
}

void add_checkpoints(const runs::RunReader& run, const CommandContext& context, report::PageRun& shown) {
  try {
    for (const auto& one : checkpoints_in(run.folder(), context.registries)) {
      if (shown.checkpoints.size() == most_checkpoints) break;
      shown.checkpoints.push_back({one.iteration, one.folder.string(), one.format, one.state, one.reason, one.bytes});
    }
  } catch (const Error& error) {
    report_logger.warning(text("the checkpoints of ", run.folder().string(), " are left out: ", error.what()));
  }
}

struct ReportArguments {
  std::vector<std::string> runs;
  std::string output = "report.html";
  bool force = false;
};

void make_report(const ReportArguments& arguments, const CommandContext& context) {
  check_number_of_runs(arguments.runs.size());
  const fs::path output = arguments.output;
  if (fs::exists(fs::symlink_status(output)) && !arguments.force)
    throw ConfigError(text(output.string(), ": exists already; give another name with -o, or --force to replace it"));
  for (const auto& folder : arguments.runs) refuse_overwriting(training::files_of_run(folder), std::array{output});
  if (fs::is_directory(output)) throw ConfigError(text(output.string(), ": is a folder; give a file with -o"));
  std::vector<std::unique_ptr<runs::RunReader>> readers;
  std::vector<const runs::RunReader*> all;
  for (const auto& folder : arguments.runs) {
    all.push_back(readers.emplace_back(std::make_unique<runs::RunReader>(folder)).get());
    readers.back()->refresh();
    const auto& run = *readers.back();
    if (run.rows() == 0 && run.events().all().empty() && run.resolved().empty())
      throw ConfigError(
          text(folder,
               ": has no metrics.jsonl, events.jsonl or resolved.yaml that can be read; give the run folder "
               "(training_config.output_dir) of a run"));
    const auto warn = [&folder](std::int64_t lines, const char* file) {
      if (lines > 0)
        report_logger.warning(text(folder, ": ", lines, " lines of ", file, " are damaged and were left out"));
    };
    warn(run.damaged(), "metrics.jsonl");
    warn(run.events().damaged(), "events.jsonl");
  }
  write_output(output, report::page_html(page_of(all, context)));
  if (!is_standard_output(output)) std::cout << output.string() << "\n";
}

}  // namespace

void check_number_of_runs(std::size_t count) {
  if (count > most_runs) throw ConfigError(text(count, " runs were given; give at most ", most_runs));
}

report::Page page_of(const std::vector<const runs::RunReader*>& runs, const CommandContext& context) {
  report::Page page;
  page.now = wall_time();
  page.version = "tessera " TESSERA_VERSION;
  std::optional<recipe::Recipe> first;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    auto& shown = page.runs.emplace_back();
    shown.reader = runs[i];
    shown.command = command_of(*runs[i]);
    add_checkpoints(*runs[i], context, shown);
    std::string why;
    auto recipe = recipe_of(*runs[i], context, why);
    if (recipe)
      add_layout(*runs[i], *recipe, shown);
    else
      shown.no_layout = why;
    if (!recipe || (i > 0 && !first)) {
      if (page.no_differences.empty())
        page.no_differences = text("Not all recipes can be compared; ", runs[i]->folder().string(), ": ", why);
    } else if (i == 0) {
      first = std::move(recipe);
    } else {
      for (const auto& one : option_differences(*first, *recipe))
        page.differences.push_back({one.group + "." + one.name, i, one.one, one.other});
    }
  }
  return page;
}

void add_report_commands(Command& app, CommandContext& context) {
  auto* command = app.add_subcommand("report", "Show runs as one HTML page that needs no other file and no network");
  const auto arguments = std::make_shared<ReportArguments>();
  command->add_option("RUN", arguments->runs, "Run folders (training_config.output_dir)")->required();
  command->add_option("-o,--output", arguments->output, "File to write")->show_default();
  command->add_flag("--force", arguments->force, "Replace the file if it exists");
  command->callback([arguments, &context] { make_report(*arguments, context); });
}

}  // namespace tessera::cli
