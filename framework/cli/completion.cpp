#include "framework/cli/completion.h"

#include <algorithm>
#include <iostream>
#include <iterator>

#include "framework/interop/flags/flag_table.h"
#include "framework/recipe/recipe.h"

namespace tessera::cli {
namespace {

/// A key of a recipe with the words that it accepts; empty if it accepts other values.
struct KeyWords {
  std::string key;
  std::vector<std::string> names;  ///< the key and its aliases
  std::vector<std::string> words;
};

/// "p2p / a2a, a list of them, or null" -> p2p, a2a; empty for types without words.
std::vector<std::string> words_of_type(const std::string& type) {
  const std::string between = " / ";
  auto left = type.substr(0, type.find(','));
  if (left.find(between) == std::string::npos || left.rfind("list of", 0) == 0) return {};
  std::vector<std::string> words;
  for (auto at = left.find(between); at != std::string::npos; at = left.find(between)) {
    words.push_back(left.substr(0, at));
    left.erase(0, at + between.size());
  }
  words.push_back(left);
  return words;
}

/// The words that a shell can complete.
std::vector<std::string> shell_words_of(const options::OptionFacts& option) {
  auto words = option.planned ? option.neutral : option.choices.empty() ? words_of_type(option.type) : option.choices;
  std::erase_if(words,
                [](const auto& word) { return word.empty() || word.find_first_of(" []{}'\"") != std::string::npos; });
  if (option.nullable && !option.planned && !words.empty()) words.push_back("null");
  return words;
}

template <class Word>
void add_once(std::vector<Word>& all, const Word& one) {
  if (std::find(all.begin(), all.end(), one) == all.end()) all.push_back(one);
}

/// All keys, each once. Types of one group may have options of the same name: their words are joined.
std::vector<KeyWords> key_words(const options::Facts& facts) {
  std::vector<KeyWords> all;
  for (const auto& [group, schemas] : facts)
    for (const auto& schema : schemas)
      for (const auto& option : schema.options) {
        const auto key = group + "." + option.name;
        auto known = std::find_if(all.begin(), all.end(), [&](const auto& one) { return one.key == key; });
        if (known == all.end()) known = all.insert(all.end(), {key, {key}, {}});
        for (const auto& word : shell_words_of(option)) add_once(known->words, word);
        for (const auto& alias : option.aliases)
          if (alias.item < 0 && alias.words.empty()) add_once(known->names, group + "." + alias.name);
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

/// The words of the arguments that a command takes by their place.
std::string places_of(const CommandNode& command) {
  std::string all;
  for (const auto& option : command.options)
    if (option.by_place) all += joined(option.words, " ");
  return all;
}

/// What the value of `option` may be, in words; "group.key=value" for a setting of a recipe.
std::string values_of(const CommandNode::Option& option, const ShellWords& all) {
  if (option.sets) return option.value;
  auto words = option.words;
  if (option.value == "PROGRAM") words.push_back(all.programs);
  for (const auto& key : all.keys)
    if (key.key == option.key)
      std::copy_if(key.words.begin(), key.words.end(), std::back_inserter(words),
                   [](const auto& word) { return word != "null" && word != "none"; });
  return joined(words, " ");
}

/// Functions that bash and zsh share: they list what may follow a command or an option, and the words of a key.
void print_tables(const ShellWords& words) {
  std::cout << "_tessera_words() {\n  case \"$1\" in\n";
  for (const auto& command : words.commands)
    std::cout << "    \"" << command.path << "\") echo \"" << names_of(command) << "\" ;;\n";
  std::cout << "  esac\n}\n_tessera_place() {\n  case \"$1\" in\n";
  for (const auto& command : words.commands)
    if (const auto places = places_of(command); !places.empty())
      std::cout << "    \"" << command.path << "\") echo \"" << places << "\" ;;\n";
  // Fails for an option without a value.
  std::cout << "  esac\n}\n_tessera_option() {\n  case \"$1:$2\" in\n";
  for (const auto& command : words.commands)
    for (const auto& option : command.options) {
      if (option.by_place || option.value.empty()) continue;
      std::vector<std::string> cases;
      for (const auto& name : option.names) cases.push_back("\"" + command.path + "\":" + name);
      std::cout << "    " << joined(cases, "|") << ") echo \"" << values_of(option, words) << "\" ;;\n";
    }
  std::cout << "    *) return 1 ;;\n  esac\n}\n_tessera_values() {\n  case \"$1\" in\n";
  for (const auto& key : words.keys)
    if (!key.words.empty())
      std::cout << "    " << joined(key.names, "|") << ") echo \"" << joined(key.words, " ") << "\" ;;\n";
  std::cout << "  esac\n}\n_tessera_keys=\"";
  for (const auto& key : words.keys) std::cout << key.key << " ";
  std::cout << "\"\n";
}

// The word before the cursor may contain =, @ and :, at which bash cuts all words but COMP_LINE; it replaces only what
// follows the last of them.
constexpr const char* bash = R"sh(_tessera() {
  local line="${COMP_LINE:0:COMP_POINT}" path=tessera option= places=0 given= head= breaks word words value current
  current="${line##*[[:space:]]}"
  local -a before
  read -ra before <<< "${line%"$current"}"
  for word in "${before[@]:1}"; do
    if [[ -n $option ]]; then
      option=
    elif [[ $word == -* ]]; then
      [[ $word != *=* ]] && _tessera_option "$path" "$word" > /dev/null && option=$word
    elif [[ " $(_tessera_words "$path") " == *" $word "* ]]; then
      path="$path $word"
    else
      places=$((places + 1))
    fi
  done
  value=$current
  if [[ -z $option && $current == --*=* ]]; then
    option="${current%%=*}" value="${current#*=}" given="${current%%=*}="
  fi
  COMPREPLY=()
  if [[ -n $option ]]; then
    words=$(_tessera_option "$path" "$option") || return 0
    if [[ $words == group.key=value && $value == *=* ]]; then
      COMPREPLY=($(compgen -P "$given${value%%=*}=" -W "$(_tessera_values "${value%%=*}")" -- "${value#*=}"))
    elif [[ $words == group.key=value ]]; then
      compopt -o nospace 2>/dev/null
      COMPREPLY=($(compgen -P "$given" -S = -W "$_tessera_keys" -- "$value"))
    elif [[ -n $words ]]; then
      COMPREPLY=($(compgen -P "$given" -W "$words" -- "$value"))
    else
      compopt -o default 2>/dev/null
    fi
  elif [[ $path == "tessera explain" && $places == 0 && $current != -* ]]; then
    COMPREPLY=($(compgen -W "$_tessera_keys" -- "$current"))
  else
    words=$(_tessera_words "$path")
    ((places)) || words+=" $(_tessera_place "$path")"
    COMPREPLY=($(compgen -W "$words" -- "$current"))
    [[ $path != tessera ]] && compopt -o default 2>/dev/null
  fi
  breaks="${COMP_WORDBREAKS//[^=@:]/}"
  [[ -n $breaks && $current == *[$breaks]* ]] && head="${current%"${current##*[$breaks]}"}"
  COMPREPLY=("${COMPREPLY[@]#"$head"}")
  return 0
}
complete -F _tessera tessera
)sh";

// In a folder of fpath the whole script is the body of the function _tessera, which zsh calls to complete.
constexpr const char* zsh = R"sh(_tessera() {
  local path_=tessera option= places=0 given word current=$words[CURRENT]
  for word in ${words[2,CURRENT-1]}; do
    if [[ -n $option ]]; then
      option=
    elif [[ $word == -* ]]; then
      [[ $word != *=* ]] && _tessera_option $path_ $word > /dev/null && option=$word
    elif [[ " $(_tessera_words $path_) " == *" $word "* ]]; then
      path_="$path_ $word"
    else
      places=$((places + 1))
    fi
  done
  if [[ -z $option && $current == --*=* ]]; then
    option=${current%%=*} current=${current#*=}
    compset -P 1 '*='
  fi
  if [[ -n $option ]]; then
    given=$(_tessera_option $path_ $option) || return 1
    if [[ $given == group.key=value && $current == *=* ]]; then
      compset -P 1 '*='
      compadd -- ${=$(_tessera_values ${current%%=*})}
    elif [[ $given == group.key=value ]]; then
      compadd -S = -- ${=_tessera_keys}
    elif [[ -n $given ]]; then
      compadd -- ${=given}
    else
      _files
    fi
  elif [[ $path_ == "tessera explain" && $places == 0 && $current != -* ]]; then
    compadd -- ${=_tessera_keys}
  else
    compadd -- ${=$(_tessera_words $path_)}
    ((places)) || compadd -- ${=$(_tessera_place $path_)}
    [[ $path_ == tessera ]] || _files
  fi
}
if [[ $funcstack[1] == _tessera ]]; then
  _tessera "$@"
elif (( $+functions[compdef] )); then
  compdef _tessera tessera
fi
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

void print_fish_option(const CommandNode& command, const CommandNode::Option& option, const ShellWords& words) {
  std::cout << "complete -c tessera -n " << quoted("__tessera_at \"" + command.path + "\"");
  for (const auto& name : option.names)
    if (!option.by_place) std::cout << (name[1] == '-' ? " -l " + name.substr(2) : " -s " + name.substr(1));
  if (option.sets)
    std::cout << " -x -a '(__tessera_setting)'";
  else if (const auto values = values_of(option, words); !values.empty())
    std::cout << " -x -a " << quoted(values);
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
  std::cout << "\nfunction __tessera_values\n  switch $argv[1]\n";
  for (const auto& key : words.keys)
    if (!key.words.empty())
      std::cout << "    case " << joined(key.names, " ") << "\n      printf '%s\\n' " << joined(key.words, " ") << "\n";
  std::cout << "  end\nend\n" << fish;
  for (const auto& command : words.commands) {
    for (const auto& [name, doc] : command.commands)
      std::cout << "complete -c tessera -f -n " << quoted("__tessera_at \"" + command.path + "\"") << " -a " << name
                << " -d " << quoted(doc) << "\n";
    if (const auto places = places_of(command); !places.empty())
      std::cout << "complete -c tessera -f -n " << quoted("__tessera_at \"" + command.path + "\"") << " -a "
                << quoted(places) << "\n";
    for (const auto& option : command.options)
      if (!option.by_place) print_fish_option(command, option, words);
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
