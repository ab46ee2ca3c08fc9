#include "framework/cli/manual.h"

#include <iostream>
#include <set>

#include "framework/base/escaped_text.h"
#include "framework/recipe/recipe.h"

namespace tessera::cli {
namespace {

std::string bold(const std::string& words) { return "\\fB" + in_roff(words) + "\\fR"; }
std::string italic(const std::string& words) { return "\\fI" + in_roff(words) + "\\fR"; }

void print_option(const CommandNode::Option& option) {
  std::cout << ".TP\n";
  for (std::size_t i = 0; i < option.names.size(); ++i)
    std::cout << (i == 0 ? "" : ", ") << (option.by_place ? italic(option.names[i]) : bold(option.names[i]));
  if (!option.value.empty()) std::cout << " " << italic(option.value);
  std::cout << "\n" << (option.doc.empty() ? "\\&" : in_roff(option.doc) + ".") << "\n";
}

void print_command(const CommandNode& command) {
  std::cout << ".SS " << in_roff(command.path);
  for (const auto& option : command.options)
    if (option.by_place) std::cout << " " << (option.required ? option.names[0] : "[" + option.names[0] + "]");
  if (!command.commands.empty()) std::cout << " COMMAND";
  std::cout << "\n" << in_roff(command.doc) << ".\n";
  for (const auto& option : command.options) print_option(option);
}

void print_key(const options::SchemaFacts& schema, const options::OptionFacts& option) {
  std::cout << ".TP\n" << bold(option.name) << " (" << in_roff(option.type);
  for (const auto& limit : option.limits) std::cout << ", " << in_roff(limit);
  if (!option.unit.empty()) std::cout << ", " << in_roff(option.unit);
  if (!schema.key.empty()) std::cout << "; with " << in_roff(schema.key + " " + schema.type);
  const auto usual = text(option.default_value);
  std::cout << ")\n"
            << in_roff(option.doc)
            << (option.required ? " A recipe must give it."
                : usual.empty() ? ""
                                : " Default: " + in_roff(usual) + ".")
            << "\n";
}

void print_keys(const options::Facts& facts) {
  std::cout
      << ".SH RECIPES\nA recipe is a YAML file of groups of options; only what differs from the defaults has to be "
         "given.\n.B base:\nnames recipes whose values it overrides;\n.RI ${ NAME }\nreads the environment.\nAll "
         "options follow; those that are not implemented yet are listed by\n.BR \"tessera options \\-\\-planned\" .\n";
  for (const auto& [group, schemas] : facts) {
    std::set<std::string> said;
    bool any = false;
    for (const auto& schema : schemas)
      for (const auto& option : schema.options) {
        if (option.planned || !said.insert(option.name + schema.type).second) continue;
        if (!any) std::cout << ".SS " << in_roff(group) << "\n";
        any = true;
        print_key(schema, option);
      }
  }
}

void print_manual(const Command& app, const CommandContext& context) {
  const auto commands = app.tree();
  std::cout
      << ".\\\" Made by `tessera man` from the declarations in the program.\n.TH TESSERA 1 \"\" "
         "\"tessera " TESSERA_VERSION
         "\" \"User Commands\"\n.SH NAME\ntessera \\- train language models from a recipe\n.SH SYNOPSIS\n.B "
         "tessera\n.I "
         "COMMAND\n.RI [ ARGUMENT ...]\n.SH DESCRIPTION\n"
      << in_roff(commands[0].doc)
      << "\nA recipe is checked before the run starts: all mistakes are reported with file and line.\n.SH OPTIONS\n";
  for (const auto& option : commands[0].options) print_option(option);
  std::cout << ".SH COMMANDS\n";
  for (std::size_t i = 1; i < commands.size(); ++i) print_command(commands[i]);
  print_keys(recipe::all_facts(context.registries));
  std::cout << ".SH EXIT STATUS\n"
               ".TP\n.B 0\nDone; of\n.BR \"tessera diff\" :\nnothing differs.\n"
               ".TP\n.B 1\nSomething failed; of\n.BR \"tessera diff\" :\nsomething differs.\n"
               ".TP\n.B 2\nWrong arguments or recipe; nothing was started.\n"
               ".TP\n.B 3\nOf\n.BR \"tessera convert\" :\nflags were refused or are not known.\n"
               ".TP\n.B 24\nA checkpoint is damaged.\n"
               ".TP\n.BR 130 \", \" 143\nOf\n.BR \"tessera data preprocess\" :\ninterrupted by SIGINT or SIGTERM.\n"
               ".SH SEE ALSO\n.BR tsrun (1)\n";
}

}  // namespace

void add_manual_commands(Command& app, CommandContext& context) {
  app.add_subcommand("man", "Print the manual page: tessera man | man -l -")->callback([&app, &context] {
    print_manual(app, context);
  });
}

}  // namespace tessera::cli
