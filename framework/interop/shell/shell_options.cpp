#include <algorithm>
#include <array>
#include <set>

#include "framework/interop/shell/script_evaluator.h"

// set, shopt, shift, getopts and trap.

namespace tessera::shell {
namespace {

struct ShellOption {
  char letter;
  const char* name;
};
/// In the order in which $- lists them.
constexpr std::array<ShellOption, 19> shell_options = {{{'a', "allexport"},
                                                        {'b', "notify"},
                                                        {'e', "errexit"},
                                                        {'f', "noglob"},
                                                        {'h', "hashall"},
                                                        {'k', "keyword"},
                                                        {'m', "monitor"},
                                                        {'n', "noexec"},
                                                        {'p', "privileged"},
                                                        {'t', "onecmd"},
                                                        {'u', "nounset"},
                                                        {'v', "verbose"},
                                                        {'x', "xtrace"},
                                                        {'B', "braceexpand"},
                                                        {'C', "noclobber"},
                                                        {'E', "errtrace"},
                                                        {'H', "histexpand"},
                                                        {'P', "physical"},
                                                        {'T', "functrace"}}};

}  // namespace

std::string ScriptEvaluator::option_letters() const {
  std::string out;
  for (const auto& one : shell_options)
    if (option(one.name) || one.letter == 'h') out += one.letter;
  return out;
}

void ScriptEvaluator::set_option(const std::string& name, bool on) {
  static const std::set<std::string> others = {"pipefail", "history", "ignoreeof", "interactive-comments",
                                               "emacs",    "vi",      "nolog"};
  const bool known =
      std::any_of(shell_options.begin(), shell_options.end(), [&name](const auto& one) { return name == one.name; });
  static const std::set<std::string> unread = {"keyword", "noexec", "onecmd", "posix"};
  if ((on && unread.count(name) != 0) || (!on && name == "braceexpand"))
    stop("what the script does after 'set " + std::string(on ? "-o " : "+o ") + name + "' is not read");
  if (!known && others.count(name) == 0 && name != "posix") stop("Bash knows no option '" + plain(name) + "' of set");
  if (on)
    state_.options.insert(name);
  else
    state_.options.erase(name);
}

void ScriptEvaluator::set_option(char letter, bool on) {
  const auto known = std::find_if(shell_options.begin(), shell_options.end(),
                                  [letter](const auto& one) { return one.letter == letter; });
  if (known == shell_options.end()) stop(std::string("Bash knows no option -") + letter + " of set");
  set_option(known->name, on);
}

Truth ScriptEvaluator::set(const Words& words) {
  std::size_t i = 1;
  bool arguments = false;
  for (; i < words.size() && !arguments; ++i) {
    const auto word = without_places(words[i]);
    if (word == "--" || word == "-") {
      arguments = word == "--" || i + 1 < words.size();
      continue;
    }
    if (word.size() < 2 || (word[0] != '-' && word[0] != '+')) break;
    if (has_unknown(word)) stop("which options 'set' gets here is not known: " + plain(word));
    for (std::size_t k = 1; k < word.size(); ++k) {
      if (word[k] != 'o')
        set_option(word[k], word[0] == '-');
      else if (i + 1 < words.size())
        set_option(without_places(words[++i]), word[0] == '-');
    }
  }
  if (!arguments && i >= words.size()) return Truth::yes;
  state_.arguments.assign(words.begin() + static_cast<std::ptrdiff_t>(std::min(i, words.size())), words.end());
  state_.arguments_known = true;
  state_.shifted = 0;
  return Truth::yes;
}

Truth ScriptEvaluator::shopt(const Words& words) {
  static const std::set<std::string> read = {"nullglob", "nocasematch", "lastpipe", "inherit_errexit"};
  static const std::set<std::string> unread = {
      "expand_aliases", "failglob", "xpg_echo", "localvar_inherit", "patsub_replacement", "extdebug", "localvar_unset",
      "compat31",       "compat32", "compat40", "compat41",         "compat42",           "compat43", "compat44"};
  bool on = false, off = false, of_set = false;
  auto out = Truth::yes;
  for (std::size_t i = 1; i < words.size(); ++i) {
    const auto name = without_places(words[i]);
    if (!name.empty() && name[0] == '-') {
      on = on || name.find('s') != std::string::npos;
      off = off || name.find('u') != std::string::npos;
      of_set = of_set || name.find('o') != std::string::npos;
    } else if (of_set && (on || off)) {
      set_option(name, on);
    } else if (on || off) {
      const bool usual = name == "patsub_replacement" ? off : on;
      if (unread.count(name) != 0 && usual) stop("what 'shopt " + name + "' changes is not read");
      if (on)
        state_.options.insert(name);
      else
        state_.options.erase(name);
    } else if (read.count(name) != 0) {
      out = both(out, option(name) ? Truth::yes : Truth::no);
    } else {
      doubt_outcome("shopt " + name);
      out = Truth::unknown;
    }
  }
  return out;
}

Truth ScriptEvaluator::shift(const Words& words) {
  long long count = 1;
  if (words.size() > 1) {
    const auto given = arithmetic_value(without_places(words[1]), *this);
    if (!given) stop("by how much the arguments are shifted is not known: " + plain(words[1]));
    count = *given;
  }
  auto& arguments = state_.arguments;
  if (count < 0) return Truth::no;
  if (count > static_cast<long long>(arguments.size())) {
    if (state_.arguments_known) return Truth::no;
    arguments.clear();
  } else {
    arguments.erase(arguments.begin(), arguments.begin() + count);
  }
  if (!state_.arguments_known && count < 1000) state_.shifted += static_cast<int>(count);
  return Truth::yes;
}

Truth ScriptEvaluator::getopts(const Words& words) {
  if (words.size() < 3) return Truth::no;
  const auto letters = without_places(words[1]), name = without_places(words[2]);
  const auto arguments = words.size() > 3 ? Words(words.begin() + 3, words.end()) : all_arguments();
  auto at =
      static_cast<std::size_t>(std::max(1LL, arithmetic_value(value_of("OPTIND").value_or("1"), *this).value_or(1)));
  const auto finish = [&](const std::string& option, const std::optional<std::string>& argument, Truth out) {
    assign("OPTIND", std::to_string(at));
    assign(name, option);
    if (argument)
      assign("OPTARG", *argument);
    else
      unset_name("OPTARG");
    return out;
  };
  if (at > arguments.size()) {
    if (words.size() == 3 && !state_.arguments_known) {
      doubt(unknown("$@"));
      assign(name, unknown("$(getopts)"));
      return Truth::unknown;
    }
    return finish("?", std::nullopt, Truth::no);
  }
  const auto word = without_places(arguments[at - 1]);
  if (has_unknown(word)) stop("getopts reads an argument that is not known: " + plain(word));
  const auto letter_at = static_cast<std::size_t>(option_at_);
  if (letter_at == 1 && (word.size() < 2 || word[0] != '-')) return finish("?", std::nullopt, Truth::no);
  if (letter_at == 1 && word == "--") return ++at, finish("?", std::nullopt, Truth::no);
  const char letter = word.at(std::min(letter_at, word.size() - 1));
  const auto known = letter == ':' ? std::string::npos : letters.find(letter, letters[0] == ':' ? 1 : 0);
  const bool quiet = !letters.empty() && letters[0] == ':', last = letter_at + 1 >= word.size();
  const auto go_on = [&] {
    option_at_ = last ? 1 : option_at_ + 1;
    if (last) ++at;
  };
  if (known == std::string::npos) {
    go_on();
    return finish("?", quiet ? std::optional<std::string>(std::string(1, letter)) : std::nullopt, Truth::yes);
  }
  if (known + 1 >= letters.size() || letters[known + 1] != ':') {
    go_on();
    return finish(std::string(1, letter), std::nullopt, Truth::yes);
  }
  option_at_ = 1;
  ++at;
  if (!last) return finish(std::string(1, letter), word.substr(letter_at + 1), Truth::yes);
  if (at <= arguments.size()) {
    const auto& value = arguments[at - 1];
    ++at;
    return finish(std::string(1, letter), value, Truth::yes);
  }
  return finish(quiet ? ":" : "?", quiet ? std::optional<std::string>(std::string(1, letter)) : std::nullopt,
                Truth::yes);
}

Truth ScriptEvaluator::trap(const Words& words) {
  std::size_t first = 1;
  if (words.size() > 1 && without_places(words[1]) == "--") ++first;
  if (words.size() < first + 2) return Truth::yes;
  if (without_places(words[first])[0] == '-' && words[first].size() > 1) return Truth::yes;  // -p, -l
  for (std::size_t i = first + 1; i < words.size(); ++i) {
    const auto signal = without_places(words[i]);
    const bool resets = words[first] == "-" || words[first].empty();
    if (signal == "EXIT" || signal == "0") state_.at_exit = resets ? "" : words[first];
    if (!resets && (signal == "DEBUG" || signal == "RETURN" || (signal == "ERR" && words[first] != ":")))
      remark("commands that a trap runs at " + signal + " are not read");
  }
  return Truth::yes;
}

}  // namespace tessera::shell
