#include "framework/cli/export.h"

#include <array>
#include <filesystem>
#include <iostream>
#include <sstream>

#include "framework/base/clock.h"
#include "framework/base/crc32c.h"
#include "framework/base/files.h"
#include "framework/base/json.h"
#include "framework/base/system_call.h"
#include "framework/log/log.h"
#include "framework/options/json_schema.h"
#include "framework/options/yaml.h"
#include "framework/reporting/export.h"
#include "framework/reporting/metrics_row.h"
#include "framework/training/saving/run_folder.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;

const log::Logger export_logger("export");

struct ExportArguments {
  std::string run, to, output, project = "tessera", name;
};

struct RunFiles {
  fs::path folder, metrics;
};

RunFiles run_of(const std::string& given) {
  const bool is_file = fs::is_regular_file(given);
  const fs::path metrics = is_file ? fs::path(given) : fs::path(given) / "metrics.jsonl";
  if (!fs::exists(given)) throw ConfigError(text(given, ": does not exist; give a run folder"));
  if (!fs::is_regular_file(metrics))
    throw ConfigError(text(given, ": has no metrics.jsonl; give the run folder (training_config.output_dir) of a run"));
  return {is_file ? fs::absolute(metrics).parent_path() : fs::path(given), metrics};
}

/// The id in run.json; else one that is made from the content, so that a repeated export has the same.
std::string id_of_run(const RunFiles& run) {
  try {
    const auto record = parse_json(read_file(run.folder / "run.json"));
    if (const auto id = record.value("run", ""); !id.empty() && id.find_first_not_of("0123456789abcdef") == id.npos)
      return id;
  } catch (const Error&) {  // of an old run, or damaged: the id is not needed for anything else
  }
  reporting::MetricsReader reader(run.metrics.string());
  reader.next();
  return crc_text(crc32c(reader.line()));
}

/// The groups of resolved.yaml; nothing if there is none that can be read.
std::vector<std::pair<std::string, std::string>> config_of_run(const RunFiles& run) {
  std::vector<std::pair<std::string, std::string>> config;
  const auto path = run.folder / "resolved.yaml";
  if (!fs::exists(path)) return config;
  options::Report report;
  const auto recipe = options::parse_yaml(read_file(path), path.string(), report);
  for (const auto& problem : report.problems()) export_logger.warning("the configuration is left out: " + problem);
  if (!report.problems().empty()) return config;
  for (const auto& [group, value] : recipe.fields) config.emplace_back(group, options::json_text(value));
  return config;
}

void must_be_given(const ExportArguments& arguments, const char* what) {
  if (arguments.output.empty())
    throw ConfigError(text("--to ", arguments.to, " writes ", what, ": give its place with -o"));
}

reporting::Exported export_as(const ExportArguments& a, const RunFiles& run) {
  const auto metrics = run.metrics.string();
  const auto name = a.name.empty() ? name_of_folder(run.folder) : a.name;
  if (!a.output.empty() && (a.to == "csv" || a.to == "prometheus")) {
    auto inputs = training::files_of_run(run.folder);
    inputs.push_back(run.metrics);
    refuse_overwriting(inputs, std::array{fs::path(a.output)});
  }
  if (a.to == "csv") {
    if (a.output.empty()) return reporting::export_csv(metrics, std::cout);
    std::ostringstream table;
    const auto exported = reporting::export_csv(metrics, table);
    write_output(a.output, table.str());
    return exported;
  }
  if (a.to == "prometheus") {
    must_be_given(a, "a file");
    return reporting::export_prometheus(metrics, name, a.output);
  }
  must_be_given(a, "a folder");
  if (a.to == "tensorboard") return reporting::export_tensorboard(metrics, a.output);
  std::string place;
  const auto exported = reporting::export_wandb(
      metrics, {id_of_run(run), a.project, name, host_name(), config_of_run(run)}, a.output, place);
  std::cout << place << "\n";
  return exported;
}

void run_export(const ExportArguments& arguments) {
  const auto run = run_of(arguments.run);
  const auto exported = export_as(arguments, run);
  if (exported.damaged > 0)
    export_logger.warning(text(run.metrics.string(), ": ", exported.damaged,
                               " lines are not whole (being written, or of a machine that crashed) and were left out"));
  if (exported.rows == 0) export_logger.warning(text(run.metrics.string(), ": has no steps yet"));
}

}  // namespace

void add_export_commands(Command& app, CommandContext&) {
  const auto arguments = std::make_shared<ExportArguments>();
  auto* command = app.add_subcommand(
      "export",
      "The metrics of a run, also of an old one, for TensorBoard, Weights & Biases, Prometheus or a spreadsheet");
  command->add_option("RUN", arguments->run, "Run folder, or its metrics.jsonl")->required();
  command->add_option("--to", arguments->to, "Format")
      ->required()
      ->one_of({"tensorboard", "wandb", "prometheus", "csv"});
  command->add_option("-o,--output", arguments->output,
                      "tensorboard: folder for the event file; wandb: folder above wandb/; prometheus: file; csv: file "
                      "(default: standard output)");
  command->add_option("--project", arguments->project, "Project of Weights & Biases")->show_default();
  command->add_option("--name", arguments->name, "Name of the run; default: that of its folder");
  command->callback([arguments] { run_export(*arguments); });
}

}  // namespace tessera::cli
