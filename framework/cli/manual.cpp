#include "framework/cli/manual.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <iostream>
#include <memory>
#include <set>
#include <sstream>

#include "framework/base/error.h"
#include "framework/base/escaped_text.h"
#include "framework/base/files.h"
#include "framework/options/report.h"
#include "framework/recipe/recipe.h"

namespace tessera::cli {
namespace {

std::string bold(const std::string& words) { return "\\fB" + in_roff(words) + "\\fR"; }
std::string italic(const std::string& words) { return "\\fI" + in_roff(words) + "\\fR"; }

/// The page of the format of recipes; it is not a command.
constexpr const char* recipe_page = "recipe";

std::string title(const std::string& name, int section, const char* manual) {
  std::string capitals;
  for (const unsigned char c : name) capitals += static_cast<char>(std::toupper(c));
  return text(".\\\" Made by `tessera man` from the declarations in the program.\n.TH ", in_roff(capitals), " ",
              section, " \"\" \"tessera " TESSERA_VERSION "\" \"", manual, "\"\n");
}

void print_option(std::ostream& out, const CommandNode::Option& option) {
  out << ".TP\n";
  for (std::size_t i = 0; i < option.names.size(); ++i)
    out << (i == 0 ? "" : ", ") << (option.by_place ? italic(option.names[i]) : bold(option.names[i]));
  if (!option.value.empty()) out << " " << italic(option.value);
  out << "\n" << (option.doc.empty() ? "\\&" : in_roff(option.doc) + ".") << "\n";
}

/// " [OPTION ...] RECIPE [OTHER]", behind the words of a command
std::string arguments_of(const CommandNode& command) {
  std::string words;
  const auto optional = [](const auto& option) { return !option.by_place; };
  if (std::any_of(command.options.begin(), command.options.end(), optional)) words += " [" + italic("OPTION") + " ...]";
  if (!command.commands.empty()) words += " " + italic("COMMAND");
  for (const auto& option : command.options)
    if (option.by_place)
      words += option.required ? " " + italic(option.names[0]) : " [" + italic(option.names[0]) + "]";
  return words;
}

void print_exit_status(std::ostream& out, const std::string& command) {
  out << ".SH EXIT STATUS\n.TP\n.B 0\nDone" << (command == "diff" ? "; nothing differs" : "")
      << ".\n.TP\n.B 1\nSomething failed" << (command == "diff" ? ", or differs" : "")
      << ".\n.TP\n.B 2\nWrong arguments or recipe; nothing was started.\n";
  if (command == "train")
    out << ".TP\n.B 22\nThe state could not be saved.\n.TP\nother\nAs\n.BR tsrun (1)\nhas them.\n";
  if (command == "convert") out << ".TP\n.B 3\nFlags were refused or are not known.\n";
  if (command == "checkpoint") out << ".TP\n.B 24\nA checkpoint is damaged.\n";
  if (command == "data") out << ".TP\n.BR 130 \", \" 143\n.B preprocess\nwas interrupted by SIGINT or SIGTERM.\n";
}

void print_see_also(std::ostream& out, const std::vector<std::string>& pages) {
  out << ".SH SEE ALSO\n";
  for (std::size_t i = 0; i < pages.size(); ++i) {
    const auto bracket = pages[i].find('(');
    out << ".BR " << in_roff(pages[i].substr(0, bracket)) << " " << pages[i].substr(bracket)
        << (i + 1 < pages.size() ? " ,\n" : "\n");
  }
}

/// The commands behind "tessera": "train", "data", without their subcommands.
std::vector<std::string> names_of_commands(const std::vector<CommandNode>& all) {
  std::vector<std::string> names;
  for (const auto& [name, doc] : all.at(0).commands) names.push_back(name);
  return names;
}

void print_program(std::ostream& out, const std::vector<CommandNode>& all) {
  out << title("tessera", 1, "User Commands")
      << ".SH NAME\ntessera \\- train language models from a recipe\n.SH SYNOPSIS\n.B tessera\n"
      << "[\\fIOPTION\\fR ...] \\fICOMMAND\\fR [\\fIARGUMENT\\fR ...]\n.SH DESCRIPTION\n"
      << in_roff(all[0].doc)
      << "\nA recipe is checked before the run starts: all mistakes are reported with file and line.\n"
         "Each command has a page of its own, as\n.BR tessera\\-train (1);\n.BR tessera\\-recipe (5)\n"
         "describes recipes and lists their options.\n.SH OPTIONS\n";
  for (const auto& option : all[0].options) print_option(out, option);
  out << ".SH COMMANDS\n";
  for (const auto& [name, doc] : all[0].commands)
    out << ".TP\n.BR " << in_roff("tessera-" + name) << " (1)\n" << in_roff(doc) << ".\n";
  print_exit_status(out, "");
  print_see_also(out, {"tsrun(1)", "tessera-recipe(5)"});
}

void print_command(std::ostream& out, const std::vector<CommandNode>& all, const std::string& name) {
  const auto path = "tessera " + name;
  const auto is_below = [&](const auto& node) { return node.path.rfind(path + " ", 0) == 0; };
  const auto command = std::find_if(all.begin(), all.end(), [&](const auto& node) { return node.path == path; });
  out << title("tessera-" + name, 1, "User Commands") << ".SH NAME\n"
      << in_roff("tessera-" + name) << " \\- " << in_roff(command->doc) << "\n.SH SYNOPSIS\n"
      << bold(path) << arguments_of(*command) << "\n.SH DESCRIPTION\n"
      << in_roff(command->doc) << ".\n.SH OPTIONS\n";
  for (const auto& option : command->options) print_option(out, option);
  if (!command->commands.empty()) out << ".SH COMMANDS\n";
  for (const auto& node : all) {
    if (!is_below(node)) continue;
    out << ".SS " << in_roff(node.path) << "\n"
        << bold(node.path) << arguments_of(node) << "\n.PP\n"
        << in_roff(node.doc) << ".\n";
    for (const auto& option : node.options) print_option(out, option);
  }
  print_exit_status(out, name);
  print_see_also(out, {"tessera(1)", "tsrun(1)", "tessera-recipe(5)"});
}

void print_key(std::ostream& out, const options::SchemaFacts& schema, const options::OptionFacts& option) {
  out << ".TP\n" << bold(option.name) << " (" << in_roff(option.type);
  for (const auto& limit : option.limits) out << ", " << in_roff(limit);
  if (!option.unit.empty()) out << ", " << in_roff(option.unit);
  if (!schema.key.empty()) out << "; with " << in_roff(schema.key + " " + schema.type);
  const auto usual = text(option.default_value);
  out << ")\n"
      << in_roff(option.doc)
      << (option.required ? " A recipe must give it."
          : usual.empty() ? ""
                          : " Default: " + in_roff(usual) + ".")
      << "\n";
}

void print_recipe(std::ostream& out, const options::Facts& facts) {
  out << title("tessera-recipe", 5, "File Formats")
      << ".SH NAME\ntessera\\-recipe \\- file that describes a training run of tessera\n.SH DESCRIPTION\n"
         "A recipe is a YAML file of groups of options; only what differs from the defaults has to be given.\n.B "
         "base:\n"
         "names recipes whose values it overrides;\n.RI ${ NAME }\nreads the environment.\n"
         "All options follow; those that are not implemented yet are listed by\n"
         ".BR \"tessera options \\-\\-planned\" .\n.SH OPTIONS\n";
  for (const auto& [group, schemas] : facts) {
    std::set<std::string> said;
    bool any = false;
    for (const auto& schema : schemas)
      for (const auto& option : schema.options) {
        if (option.planned || !said.insert(option.name + schema.type).second) continue;
        if (!any) out << ".SS " << in_roff(group) << "\n";
        any = true;
        print_key(out, schema, option);
      }
  }
  out << ".SH EXAMPLES\n.EX\ntraining_config: {training_iters: 900, output_dir: run}\n"
         "model_config: {num_layers: 4, hidden_size: 192, num_attention_heads: 4, seq_length: 256}\n"
         "optimizer_config: {optimizer_type: adamw, learning_rate: 3e\\-3}\n"
         "dataset_config: {data_path: data/train, batch_size: 16}\n.EE\n";
  print_see_also(out, {"tessera(1)", "tessera-check(1)", "tessera-explain(1)", "tessera-options(1)"});
}

/// Prints the page of `name`: empty for the program, "recipe", or a command. Throws ConfigError for other names.
void print_page(std::ostream& out, const std::vector<CommandNode>& all, const CommandContext& context,
                const std::string& name) {
  if (name.empty()) return print_program(out, all);
  if (name == recipe_page) return print_recipe(out, recipe::all_facts(context.registries));
  auto known = names_of_commands(all);
  if (std::find(known.begin(), known.end(), name) != known.end()) return print_command(out, all, name);
  known.emplace_back(recipe_page);
  const auto hint = options::did_you_mean(name, known);
  throw ConfigError(text("tessera man: there is no page '", name, "'; ",
                         hint.empty() ? "pages are " : hint + "; pages are ", joined(known, ", ")));
}

/// Writes all pages to `folder`: tessera.1, tessera-train.1, ..., tessera-recipe.5.
void write_pages(const std::filesystem::path& folder, const std::vector<CommandNode>& all,
                 const CommandContext& context) {
  make_folder(folder);
  auto names = names_of_commands(all);
  names.insert(names.end(), {"", recipe_page});
  for (const auto& name : names) {
    std::ostringstream page;
    print_page(page, all, context, name);
    write_file_atomic(folder / text("tessera", name.empty() ? "" : "-", name, name == recipe_page ? ".5" : ".1"),
                      page.str());
  }
}

}  // namespace

void add_manual_commands(Command& app, CommandContext& context) {
  struct Words {
    std::string page, folder;
  };
  const auto words = std::make_shared<Words>();
  auto* command = app.add_subcommand("man", "Print a manual page: tessera man train | man -l -");
  auto pages = names_of_commands(app.tree());
  pages.emplace_back(recipe_page);
  const auto* page = command->add_option("PAGE", words->page, "Command, or recipe; none: the program")->suggest(pages);
  command
      ->add_option("--output-dir", words->folder,
                   "Write all pages to this folder instead: tessera.1, tessera-train.1, ...")
      ->type_name("DIR")
      ->excludes(page);
  command->callback([&app, &context, words] {
    if (words->folder.empty())
      print_page(std::cout, app.tree(), context, words->page);
    else
      write_pages(words->folder, app.tree(), context);
  });
}

}  // namespace tessera::cli
