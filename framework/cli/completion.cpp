#include "framework/cli/completion.h"

#include <iostream>

namespace tessera {
namespace {

/// One line of the script for `command` and one for each below it: the words that may follow it.
void list(const CLI::App& command, const std::string& path, std::ostream& out) {
  out << "    \"" << path << "\") words=\"";
  for (const auto* sub : command.get_subcommands([](const CLI::App*) { return true; })) out << sub->get_name() << " ";
  for (const auto* option : command.get_options())
    for (const auto& name : option->get_lnames()) out << "--" << name << " ";
  out << "\" ;;\n";
  for (const auto* sub : command.get_subcommands([](const CLI::App*) { return true; }))
    list(*sub, path + " " + sub->get_name(), out);
}

void print_bash(const CLI::App& app) {
  std::cout << "# Completion of tessera for bash; load it with: source <(tessera completion bash)\n"
               "_tessera_words() {\n"
               "  local words=\"\"\n"
               "  case \"$1\" in\n";
  list(app, "tessera", std::cout);
  std::cout << "  esac\n"
               "  echo \"$words\"\n"
               "}\n"
               "_tessera() {\n"
               "  local current=\"${COMP_WORDS[COMP_CWORD]}\" path=tessera word\n"
               "  for word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n"
               "    [[ \" $(_tessera_words \"$path\") \" == *\" $word \"* && $word != -* ]] && path=\"$path $word\"\n"
               "  done\n"
               "  if [[ ${COMP_WORDS[COMP_CWORD-1]} == --set ]]; then\n"
               "    compopt -o nospace\n"
               "    COMPREPLY=($(compgen -S = -W \"$(tessera options --names 2>/dev/null)\" -- \"$current\"))\n"
               "  else\n"
               "    COMPREPLY=($(compgen -W \"$(_tessera_words \"$path\")\" -- \"$current\"))\n"
               "    [[ $path != tessera ]] && compopt -o default\n"
               "  fi\n"
               "}\n"
               "complete -F _tessera tessera\n";
}

}  // namespace

void add_completion_commands(CLI::App& app, CommandContext&) {
  auto* command = app.add_subcommand("completion", "Print a script that completes commands in a shell");
  command->require_subcommand(1);
  command->add_subcommand("bash", "For bash: source <(tessera completion bash)")->callback([&app] { print_bash(app); });
}

}  // namespace tessera
