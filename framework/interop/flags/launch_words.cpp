#include <algorithm>
#include <cctype>

#include "framework/base/error.h"
#include "framework/interop/flags/launcher_table.h"

// The words of a command become a launch.

namespace tessera::flags {
namespace {

bool ends_with(const std::string& words, const std::string& end) {
  return words.size() >= end.size() && words.compare(words.size() - end.size(), end.size(), end) == 0;
}

bool is_word_of_flag(const std::string& word) {
  return word.size() > 1 && word[0] == '-' &&
         ((word[1] == '-' && word.size() > 2) || std::isalpha(static_cast<unsigned char>(word[1])) != 0);
}

/// A word that is all one unknown list of flags: "$@", ${EXTRA_ARGS}, what xargs appends.
bool is_bundle(const std::string& marked) {
  if (marked.empty() || marked[0] != shell::unknown_begin || shell::end_of_mark(marked, 0) != marked.size())
    return false;
  auto name = shell::plain(marked);
  if (name == "$@" || name == "$*" || name == "$(xargs)") return true;
  if (name.compare(0, 2, "${") != 0 || name.back() != '}') return false;
  name = name.substr(2, name.size() - 3);
  for (auto& c : name) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  for (const char* end : {"ARGS", "ARG", "OPTIONS", "OPTION", "OPTS", "PARAMS", "FLAGS", "ARGUMENTS"})
    if (ends_with(name, end)) return true;
  return false;
}

class LaunchReader {
 public:
  LaunchReader(const shell::StartedProgram& run, const std::vector<std::string>& files, const LauncherTable& table,
               options::Report& report)
      : run_(run), files_(files), table_(table), report_(report) {
    for (const auto& word : run.words) {
      words_.push_back(shell::plain(word));
      marked_.push_back(shell::without_places(word));
    }
  }

  Launch read() {
    launch_.at = origin(run_.at);
    launch_.environment = run_.environment;
    for (auto& [name, value] : launch_.environment) value = shell::plain(value);
    while (launch_.program.empty() && i_ < words_.size() && before_program()) {
    }
    if (launch_.program.empty()) return launch_;
    program_flags();
    say_what_stands_twice();
    return std::move(launch_);
  }

 private:
  options::Origin origin(const shell::ScriptPosition& place) const {
    return {files_.at(static_cast<std::size_t>(place.file)), place.line, "", 0};
  }
  options::Origin origin_of(std::size_t at) const { return origin(shell::place_of(run_.words[at], run_.at)); }

  /// Reads a launcher, or finds the program. False when this is not a launch.
  bool before_program() {
    const auto& word = words_[i_];
    if (const auto equals = word.find('=');
        equals != std::string::npos && equals > 0 && word[0] != '-' && word.find('/') > equals) {
      launch_.environment.emplace_back(word.substr(0, equals), word.substr(equals + 1));
      ++i_;
      return true;
    }
    if (ends_with(word, ".py")) {
      launch_.program = word;
      ++i_;
      return true;
    }
    const auto begin = i_;
    if (const auto* row = table_.find(words_, i_)) {
      launch_.launcher += (launch_.launcher.empty() ? "" : " ") + row->name;
      own_options(*row);
      return true;
    }
    i_ = begin;
    return unknown_launcher();
  }

  /// A word where no row has its name: a launcher that nobody knows, or something before one that is known. Goes to the
  /// training program, or to a launcher before it.
  bool unknown_launcher() {
    auto program = i_;
    while (program < words_.size() && !(ends_with(words_[program], ".py") && table_.trains(words_[program]))) ++program;
    const bool named = shell::has_unknown(marked_[i_]), first = launch_.launcher.empty();
    if (program == words_.size()) {  // torchrun ... ${PROGRAM} --lr 1
      if (first || !named) return false;
      launch_.program = words_[i_++];
      return true;
    }
    auto next = i_ + 1;
    for (auto at = next; next < program && !table_.find(words_, at); at = ++next) {
    }
    if (next == program && first && !named) return false;
    if (first) launch_.launcher = words_[i_];
    for (++i_; i_ < next; ++i_)
      if (is_word_of_flag(words_[i_])) option(i_, ends_of_values(i_ + 1, next));
    return true;
  }

  std::size_t ends_of_values(std::size_t from, std::size_t limit) const {
    while (from < limit && !is_word_of_flag(words_[from])) ++from;
    return from;
  }

  void option(std::size_t at, std::size_t end) {
    GivenFlag flag{words_[at], {}, origin_of(at)};
    if (const auto equals = flag.flag.find('='); equals != std::string::npos) {
      flag.values.push_back(flag.flag.substr(equals + 1));
      flag.flag.resize(equals);
    }
    for (auto i = at + 1; i < end; ++i) flag.values.push_back(words_[i]);
    launch_.options.push_back(std::move(flag));
  }

  static bool in(const std::vector<std::string>& list, const std::string& word) {
    return std::find(list.begin(), list.end(), word) != list.end();
  }

  void own_options(const LauncherTable::Row& row) {
    for (; i_ < words_.size(); ++i_) {
      const auto& word = words_[i_];
      if (is_bundle(marked_[i_]) || is_unknown_option(i_)) continue;
      if (word == "--") continue;
      if (word.size() < 2 || word[0] != '-') break;
      if (row.name == "python" && word == "-m" && i_ + 1 < words_.size()) {
        launch_.program = words_[i_ + 1];
        i_ += 2;
        return;
      }
      if (row.name == "python" && word == "-c") {
        i_ = words_.size();
        return;
      }
      std::size_t takes = in(row.bare, word) || word.find('=') != std::string::npos ? 0 : in(row.two, word) ? 2 : 1;
      takes = std::min(takes, words_.size() - i_ - 1);
      if (takes == 1 && ends_with(words_[i_ + 1], ".py") && table_.trains(words_[i_ + 1])) takes = 0;
      auto end = i_ + 1 + takes;
      // "your master ip" without quotes: words that are no program belong to the value.
      if (takes == 1 && !is_word_of_flag(words_[i_ + 1]) && !row.before)
        for (; end < words_.size() && words_[end][0] != '-' && !ends_with(words_[end], ".py") && leads_on(end);) ++end;
      option(i_, end);
      i_ = end - 1;
    }
    for (int k = 0; k < row.words && i_ < words_.size(); ++k) ++i_;
  }

  /// ${WORKERS} before other options or the program.
  bool is_unknown_option(std::size_t at) const {
    if (at + 1 >= words_.size() || marked_[at][0] != shell::unknown_begin) return false;
    return is_word_of_flag(words_[at + 1]) ? leads_on(at + 1) : ends_with(words_[at + 1], ".py");
  }

  /// Whether an option of the same launcher or the program follows the plain words from `at` on.
  bool leads_on(std::size_t at) const {
    if (shell::has_unknown(marked_[at])) return false;
    while (at < words_.size() && !words_[at].empty() && words_[at][0] != '-' && !ends_with(words_[at], ".py")) ++at;
    for (; at < words_.size(); ++at)
      if (ends_with(words_[at], ".py")) return true;
    return false;
  }

  void program_flags() {
    for (; i_ < words_.size(); ++i_) {
      const auto& word = words_[i_];
      if (is_bundle(marked_[i_])) {
        launch_.stray.push_back(word);
      } else if (is_word_of_flag(word)) {
        GivenFlag flag{word, {}, origin_of(i_)};
        if (const auto equals = word.find('='); equals != std::string::npos && word.compare(0, 2, "--") == 0) {
          flag.flag.resize(equals);
          flag.values.push_back(unquoted(word.substr(equals + 1), flag.at));
        }
        launch_.flags.push_back(std::move(flag));
      } else if (launch_.flags.empty()) {
        launch_.stray.push_back(word);
      } else {
        auto& flag = launch_.flags.back();
        flag.values.push_back(unquoted(whole_quoted(), flag.at));
      }
    }
  }

  /// The word ahead; if it begins a quote that bash left in it, up to the word that ends it.
  std::string whole_quoted() {
    auto word = words_[i_];
    const char quote = word.empty() ? '\0' : word[0];
    if ((quote != '\'' && quote != '"') || (word.size() > 1 && word.back() == quote)) return word;
    for (auto i = i_ + 1; i < words_.size() && !is_word_of_flag(words_[i]); ++i) {
      if (words_[i].empty() || words_[i].back() != quote) continue;
      for (++i_; i_ <= i; ++i_) word += " " + words_[i_];
      --i_;
      return word;
    }
    return word;
  }

  /// Quotes inside of an option string stay in its words: they were meant to be read.
  std::string unquoted(const std::string& word, const options::Origin& at) {
    const bool quoted = word.size() > 1 && (word[0] == '\'' || word[0] == '"') && word.back() == word[0];
    if (!quoted) return word;
    report_.note(at, text("the quotes of ", word, " would reach the program; read without them"));
    return word.substr(1, word.size() - 2);
  }

  void say_what_stands_twice() {
    for (std::size_t i = 0; i < launch_.flags.size(); ++i)
      for (std::size_t k = 0; k < i; ++k)
        if (launch_.flags[k].flag == launch_.flags[i].flag) {
          const auto& first = launch_.flags[k].at;
          report_.note(launch_.flags[i].at,
                       text(launch_.flags[i].flag, " is given again, after line ", first.line, "; the last counts"));
          break;
        }
  }

  const shell::StartedProgram& run_;
  const std::vector<std::string>& files_;
  const LauncherTable& table_;
  options::Report& report_;
  std::vector<std::string> words_, marked_;
  std::size_t i_ = 0;
  Launch launch_;
};

}  // namespace

Launch launch_of(const shell::StartedProgram& run, const std::vector<std::string>& files, const LauncherTable& table,
                 options::Report& report) {
  return LaunchReader(run, files, table, report).read();
}

}  // namespace tessera::flags
