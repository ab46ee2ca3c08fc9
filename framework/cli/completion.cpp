#include "framework/cli/completion.h"

#include <algorithm>
#include <iostream>

#include "framework/interop/flags/flag_table.h"
#include "framework/recipe/recipe.h"

namespace tessera::cli {
namespace {

/// A key of a recipe with the words that it accepts; empty if it accepts other values.
struct KeyWords {
  std::string key, doc;
  std::vector<std::string> words;
};

/// All keys, each once, without aliases.
std::vector<KeyWords> key_words(const options::Facts& facts) {
  std::vector<KeyWords> all;
  for (const auto& [group, schemas] : facts)
    for (const auto& schema : schemas)
      for (const auto& option : schema.options) {
        const auto key = group + "." + option.name;
        if (std::any_of(all.begin(), all.end(), [&](const auto& known) { return known.key == key; })) continue;
        auto words = option.planned ? option.neutral : option.choices;
        std::erase_if(words, [](const auto& word) {
          return word.empty() || word.find_first_of(" []{}'\"") != std::string::npos;
        });
        if (option.nullable && !option.planned && !words.empty()) words.push_back("null");
        all.push_back({key, option.doc, std::move(words)});
      }
  return all;
}

/// The data from which the scripts are generated.
struct ShellWords {
  std::vector<CommandNode> commands;
  std::vector<KeyWords> keys;
  std::string programs;  ///< the values of --from
};

/// `words` in single quotes.
std::string quoted(const std::string& words) {
  std::string out = "'";
  for (const auto c : words) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string names_of(const CommandNode& command) {
  std::string all;
  for (const auto& [name, doc] : command.commands) all += name + " ";
  for (const auto& option : command.options)
    if (!option.by_place) all += joined(option.names, " ") + " ";
  return all;
}

/// Functions that bash and zsh share: they list what may follow a command, and the words of a key.
void print_tables(const ShellWords& words) {
  std::cout << "_tessera_words() {\n  case \"$1\" in\n";
  for (const auto& command : words.commands)
    std::cout << "    \"" << command.path << "\") echo \"" << names_of(command) << "\" ;;\n";
  std::cout << "  esac\n}\n_tessera_values() {\n  case \"$1\" in\n";
  for (const auto& key : words.keys)
    if (!key.words.empty()) std::cout << "    " << key.key << ") echo \"" << joined(key.words, " ") << "\" ;;\n";
  std::cout << "  esac\n}\n_tessera_keys=\"";
  for (const auto& key : words.keys) std::cout << key.key << " ";
  std::cout << "\"\n_tessera_programs=\"" << words.programs << "\"\n";
}

// The word that is written may hold "=", at which bash cuts words but for COMP_LINE.
constexpr const char* bash = R"sh(_tessera() {
  local line="${COMP_LINE:0:COMP_POINT}" path=tessera word current previous
  current="${line##*[[:space:]]}"
  local -a before
  read -ra before <<< "${line%"$current"}"
  previous="${before[${#before[@]}-1]}"
  for word in "${before[@]:1}"; do
    [[ $word != -* && " $(_tessera_words "$path") " == *" $word "* ]] && path="$path $word"
  done
  case "$previous" in
    --set|--set-a|--set-b)
      if [[ $current == *=* ]]; then
        COMPREPLY=($(compgen -W "$(_tessera_values "${current%%=*}")" -- "${current#*=}"))
        [[ $COMP_WORDBREAKS == *=* ]] || COMPREPLY=("${COMPREPLY[@]/#/${current%%=*}=}")
      else
        compopt -o nospace 2>/dev/null
        COMPREPLY=($(compgen -S = -W "$_tessera_keys" -- "$current"))
      fi ;;
    --from)
      COMPREPLY=($(compgen -W "$_tessera_programs" -- "$current")) ;;
    explain)
      COMPREPLY=($(compgen -W "$_tessera_keys $(_tessera_words "$path")" -- "$current")) ;;
    *)
      COMPREPLY=($(compgen -W "$(_tessera_words "$path")" -- "$current"))
      [[ $path != tessera ]] && compopt -o default 2>/dev/null ;;
  esac
  return 0
}
complete -F _tessera tessera
)sh";

constexpr const char* zsh = R"sh(_tessera() {
  local path_=tessera word previous=$words[CURRENT-1] current=$words[CURRENT]
  for word in ${words[2,CURRENT-1]}; do
    [[ $word != -* && " $(_tessera_words $path_) " == *" $word "* ]] && path_="$path_ $word"
  done
  case $previous in
    (--set|--set-a|--set-b)
      if [[ $current == *=* ]]; then
        compset -P '*='
        compadd -- ${=$(_tessera_values ${current%%=*})}
      else
        compadd -S = -- ${=_tessera_keys}
      fi ;;
    (--from) compadd -- ${=_tessera_programs} ;;
    (explain) compadd -- ${=_tessera_keys} ${=$(_tessera_words $path_)} ;;
    (*)
      compadd -- ${=$(_tessera_words $path_)}
      [[ $path_ == tessera ]] || _files ;;
  esac
}
(( $+functions[compdef] )) && compdef _tessera tessera
)sh";

constexpr const char* fish = R"sh(function __tessera_path
  set -l path tessera
  for word in (commandline -opc)[2..-1]
    if contains -- "$path $word" $__tessera_paths
      set path "$path $word"
    end
  end
  echo $path
end
function __tessera_at
  test (__tessera_path) = "$argv[1]"
end
function __tessera_setting
  set -l current (commandline -ct)
  set -l key (string split -m 1 = -- $current)[1]
  if string match -q '*=*' -- $current
    for word in (__tessera_values $key)
      echo $key=$word
    end
  else
    printf '%s=\n' $__tessera_keys
  end
end
complete -c tessera -e
complete -c tessera -n '__tessera_at tessera' -f
complete -c tessera -n '__tessera_at "tessera explain"' -a '$__tessera_keys'
)sh";

void print_bash(const ShellWords& words) {
  std::cout << "# Completion of tessera for bash; load it with: source <(tessera completion bash)\n";
  print_tables(words);
  std::cout << bash;
}

void print_zsh(const ShellWords& words) {
  std::cout << "#compdef tessera\n# Completion of tessera for zsh; load it after compinit with: source <(tessera "
               "completion zsh)\n";
  print_tables(words);
  std::cout << zsh;
}

void print_fish_option(const CommandNode& command, const CommandNode::Option& option) {
  std::cout << "complete -c tessera -n " << quoted("__tessera_at \"" + command.path + "\"");
  for (const auto& name : option.names)
    if (!option.by_place) std::cout << (name[1] == '-' ? " -l " + name.substr(2) : " -s " + name.substr(1));
  if (option.sets)
    std::cout << " -x -a '(__tessera_setting)'";
  else if (option.value == "PROGRAM")
    std::cout << " -x -a '$__tessera_programs'";
  else if (!option.value.empty())
    std::cout << " -r";
  std::cout << " -d " << quoted(option.doc) << "\n";
}

void print_fish(const ShellWords& words) {
  std::cout
      << "# Completion of tessera for fish; load it with: tessera completion fish | source\nset -g __tessera_paths";
  for (const auto& command : words.commands) std::cout << " " << quoted(command.path);
  std::cout << "\nset -g __tessera_keys";
  for (const auto& key : words.keys) std::cout << " " << key.key;
  std::cout << "\nset -g __tessera_programs " << words.programs << "\nfunction __tessera_values\n  switch $argv[1]\n";
  for (const auto& key : words.keys)
    if (!key.words.empty())
      std::cout << "    case " << key.key << "\n      printf '%s\\n' " << joined(key.words, " ") << "\n";
  std::cout << "  end\nend\n" << fish;
  for (const auto& command : words.commands) {
    for (const auto& [name, doc] : command.commands)
      std::cout << "complete -c tessera -f -n " << quoted("__tessera_at \"" + command.path + "\"") << " -a " << name
                << " -d " << quoted(doc) << "\n";
    for (const auto& option : command.options)
      if (!option.by_place) print_fish_option(command, option);
  }
}

ShellWords all_words(const Command& app, const CommandContext& context) {
  ShellWords words{app.tree(), key_words(recipe::all_facts(context.registries)), ""};
  const auto mappings = context.mappings();
  for (const auto& file : mappings.names()) {
    if (file.rfind("flags/", 0) != 0) continue;
    const auto table = mappings.table(file);
    if (const auto* name = table.find("name")) words.programs += (words.programs.empty() ? "" : " ") + name->scalar;
  }
  return words;
}

}  // namespace

void add_completion_commands(Command& app, CommandContext& context) {
  auto* command = app.add_subcommand("completion", "Print a script that completes commands in a shell");
  command->require_subcommand();
  const auto shell = [&](const char* name, const char* doc, void (*print)(const ShellWords&)) {
    command->add_subcommand(name, doc)->callback([&app, &context, print] { print(all_words(app, context)); });
  };
  shell("bash", "For bash: source <(tessera completion bash)", print_bash);
  shell("zsh", "For zsh, after compinit: source <(tessera completion zsh)", print_zsh);
  shell("fish", "For fish: tessera completion fish | source", print_fish);
}

}  // namespace tessera::cli
