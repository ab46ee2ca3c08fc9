#include "framework/cli/check.h"

#include <algorithm>
#include <iomanip>
#include <iostream>
#include <set>
#include <sstream>

#include "framework/base/json.h"
#include "framework/base/memory_limit.h"
#include "framework/cli/coverage_report.h"
#include "framework/cli/layout_report.h"
#include "framework/cli/recipe_arguments.h"
#include "framework/interop/flags/megatron_arguments.h"
#include "framework/interop/flags/megatron_rules.h"
#include "framework/log/log.h"
#include "framework/options/limits.h"
#include "framework/recipe/figures.h"
#include "framework/recipe/rehearsal.h"
#include "framework/training/guards/state_plan.h"

namespace tessera::cli {
namespace {

const log::Logger check_logger("check");

struct CheckArguments {
  RecipeArguments recipe;
  std::int64_t ranks = 0;           ///< 0: not given
  std::int64_t ranks_per_host = 0;  ///< 0: not given
  std::string as;                   ///< the program in whose terms the run is printed; empty: Tessera
  bool json = false;
};

void print_mistakes(const std::vector<options::Finding>& findings) {
  auto all = Json::array();
  for (const auto& f : findings) {
    all.push_back({{"file", f.at.source},
                   {"line", f.at.line},
                   {"key", f.option},
                   {"message", f.message},
                   {"suggestion", f.advice}});
    if (!f.rule.empty()) all.back()["rule"] = f.rule;
  }
  std::cout << all.dump(2) << "\n";
}

void print_model(const recipe::Recipe& recipe, const recipe::Figures& f) {
  std::cout << "model " << recipe.model.type << "\n";
  print_line("vocabulary", grouped(f.vocabulary) + " rows");
  print_line("sequence", grouped(recipe.size.seq_length) + " tokens");
  print_line("parameters", grouped(f.parameters));
  if (f.trained_parameters < f.parameters) print_line("trained", grouped(f.trained_parameters));
  if (recipe.experts() > 0) print_line("active for a token", grouped(f.active_parameters));
  for (const auto& [part, count] : f.parameters_by_part) {
    std::ostringstream line;
    line << std::setw(18) << grouped(count);
    print_line("  " + part, line.str());
  }
  print_line("weights", bytes(f.weight_bytes));
  print_line("weights, gradients, " + recipe.optimizer.type, bytes(f.state_bytes));
}

void print_run(const recipe::Recipe& recipe, const recipe::Figures& f) {
  std::cout << "run\n";
  print_line("folder", recipe.training.output_dir);
  print_line("step", text(grouped(f.samples_per_step), " samples = ", f.micro_batches, " micro-batch",
                          f.micro_batches == 1 ? "" : "es", " of ", recipe.batch.batch_size, ", ",
                          grouped(f.tokens_per_step), " tokens"));
  const bool images = recipe::foreseen_image(recipe).has_value();
  print_line("operations of a step", operations(f.flops_per_step) + (images ? ", if images fill all samples" : ""));
  if (f.steps > 0)
    print_line("length",
               text(grouped(f.steps), " steps, ", grouped(f.samples), " samples, ", grouped(f.tokens), " tokens"));
  else
    print_line("length",
               text(grouped(recipe.training.epochs.value_or(1)), " epochs; their steps follow from the data"));
  std::cout << "data " << recipe.dataset.type << "\n";
  for (const auto& file : f.data)
    print_line(file.prefix, text(grouped(file.tokens), " tokens in ", grouped(file.documents), " documents"));
  const auto split = [](const char* name, std::int64_t samples) {
    if (samples > 0) print_line(name, grouped(samples) + " samples");
  };
  split("training", f.train_samples);
  split("validation", f.valid_samples);
  split("test", f.test_samples);
}

/// The options that the recipe gives without effect.
void print_idle(const recipe::Recipe& recipe, bool verbose) {
  const auto all = recipe.without_effect();
  if (all.empty()) return;
  std::cout << "without effect\n";
  std::size_t compatible = 0;
  for (const auto& idle : all) {
    if (idle.compatible && !verbose)
      ++compatible;
    else
      std::cout << "  " << text(idle.at) << ": " << idle.option << ": " << idle.why << "\n";
  }
  if (compatible > 0) std::cout << "  " << without_effect_summary(compatible, "option") << "\n";
}

/// The given number of ranks, else the fewest that the recipe's parallel sizes allow.
std::int64_t ranks_of(const recipe::Recipe& recipe, const CheckArguments& arguments) {
  return arguments.ranks > 0 ? arguments.ranks : parallel::fewest_ranks(recipe.parallel);
}

/// The run in the terms of the program that --as names: "name value" lines, or one JSON object.
void tell_as(const CheckArguments& arguments, const recipe::Recipe& recipe, std::int64_t ranks,
             const CommandContext& context) {
  const auto mappings = context.mappings();
  const auto table =
      flags::FlagTable::named(arguments.as == "megatron" ? flags::FlagTable::usual : arguments.as, mappings);
  options::Report report;
  const auto all = flags::megatron_arguments(recipe, ranks, table, report);
  report.must_be_good();
  if (arguments.json) {
    std::cout << all.dump(2) << "\n";
    return;
  }
  for (const auto& [name, value] : all.items()) std::cout << name << " " << value.dump() << "\n";
}

/// Reports where the program for which a script was written would itself have stopped with an error. What a rule of
/// recipes says was reported already.
void report_stops(const flags::Source& source, const CommandContext& context, options::Report& report) {
  std::set<std::string> reported;
  for (const auto& finding : report.findings()) reported.insert(finding.rule);
  for (const auto& stop : flags::megatron_stops(source, context.registries))
    if (!reported.count(stop.rule)) report.problem(stop);
}

/// A recipe may be for another machine, so this is no mistake.
void warn_of_memory(const std::vector<recipe::MemoryNeed>& needs, const CheckArguments& arguments) {
  const auto most =
      std::max_element(needs.begin(), needs.end(), [](const auto& a, const auto& b) { return a.bytes() < b.bytes(); });
  const auto limit = host_memory_limit();
  if (static_cast<std::uint64_t>(most->bytes()) <= limit.bytes) return;
  check_logger.info(text("note: ", arguments.recipe.file, ": ", (needs.size() > 1 ? "a rank" : "this run"), " needs ",
                         recipe::text_of(*most), "; this machine has ",
                         in_binary_units(static_cast<double>(limit.bytes)), " (", limit.source,
                         "), where `tessera train` would refuse it"));
}

/// A recipe without data can be checked: often each run names its own; and an earlier run may make the checkpoint.
void warn_of_missing(const recipe::Recipe& recipe, const CheckArguments& arguments) {
  for (const auto& missing : {recipe::missing_data(recipe), recipe::missing_checkpoint(recipe)})
    if (!missing.empty())
      check_logger.info(text("note: ", arguments.recipe.file, ": `tessera train` would refuse it: ", missing));
}

/// Why the run would be refused because its coverage is insufficient, if its hosts are known; empty: it would not.
std::string uncovered(const recipe::Recipe& recipe, const recipe::LayoutFigures& layout, std::int64_t ranks_per_host) {
  if (!recipe.resilience.require_host || ranks_per_host == 0) return "";
  const auto coverage = coverage_of(recipe, layout, ranks_per_host);
  return coverage.host() ? "" : training::refusal_of(coverage);
}

void check(const CheckArguments& arguments, CommandContext& context) {
  options::Report reading;
  flags::Source source;
  const auto recipe = read_recipe(arguments.recipe, context, reading, source);
  auto report = problems_in_flags(reading, source, context);
  if (!arguments.as.empty()) report_stops(source, context, report);
  if (!arguments.json) log_notes(reading.notes(), source.flags, arguments.recipe.verbose);
  if (!arguments.json) report.must_be_good();
  const auto ranks = ranks_of(recipe, arguments);
  if (report.good() && arguments.ranks > 0) recipe::check_ranks(recipe, ranks, report);
  if (!arguments.json) report.must_be_good();
  if (report.good() && !arguments.as.empty()) {
    if (arguments.ranks == 0) recipe::check_ranks(recipe, ranks);
    return tell_as(arguments, recipe, ranks, context);
  }
  if (report.good()) {
    try {
      const auto f = recipe::figures(recipe, parallel::data_parallel_ranks(recipe.parallel, ranks));
      if (!arguments.json) print_model(recipe, f), print_run(recipe, f), print_idle(recipe, arguments.recipe.verbose);
      const auto layout = recipe::layout_figures(recipe, ranks);
      const auto needs = recipe::memory_by_stage(recipe, layout);
      if (!arguments.json && ranks > 1) std::cout << layout_report(layout, arguments.ranks_per_host);
      if (!arguments.json) std::cout << memory_report(needs);
      if (!arguments.json && arguments.ranks > 0)
        std::cout << coverage_report(recipe, layout, arguments.ranks_per_host);
      if (const auto problem = uncovered(recipe, layout, arguments.ranks_per_host); !problem.empty())
        throw ConfigError(problem);
      if (!arguments.json) warn_of_memory(needs, arguments), warn_of_missing(recipe, arguments);
    } catch (const ConfigError& error) {
      if (!arguments.json) throw;
      report.problem({arguments.recipe.file, 0, "", 0}, "", error.what());
    }
  }
  if (arguments.json) print_mistakes(report.findings());
  if (!report.good()) context.exit_code = 2;
}

}  // namespace

void add_check_commands(Command& app, CommandContext& context) {
  auto* command =
      app.add_subcommand("check", "Check a recipe: report all mistakes, or else parameters, memory, tokens and steps");
  const auto arguments = std::make_shared<CheckArguments>();
  add_recipe_arguments(*command, arguments->recipe);
  command->add_option("--ranks", arguments->ranks, "Check the parallel layout for this number of ranks, and show it")
      ->between(std::int64_t{1}, options::most_ranks);
  command
      ->add_option("--ranks-per-host", arguments->ranks_per_host,
                   "Number of ranks on each host; the layout then shows hosts")
      ->positive();
  command
      ->add_option("--as", arguments->as,
                   "Print the arguments of another program instead: megatron prints those of Megatron-LM "
                   "core_v0.12.1 as they are after its validation; with --json as one object")
      ->one_of({"megatron", flags::FlagTable::usual});
  command->add_flag(
      "--json", arguments->json,
      "Print the mistakes as JSON: [{file, line, key, message, suggestion}], with the rule that is violated");
  command->callback([arguments, &context] { check(*arguments, context); });
}

}  // namespace tessera::cli
