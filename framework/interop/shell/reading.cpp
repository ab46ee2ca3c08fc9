#include <algorithm>
#include <optional>
#include <utility>

#include "framework/interop/shell/script_evaluator.h"

// read and mapfile: words and lines of a text that is known.

namespace tessera::shell {
namespace {

/// What `read` is asked for.
struct ReadOptions {
  std::vector<std::string> names;
  std::optional<std::string> list;
  bool raw = false, exact = false;
  char end = '\n';
  std::optional<long> count;
};

ReadOptions read_options(const std::vector<std::string>& words) {
  ReadOptions out;
  for (std::size_t i = 1; i < words.size(); ++i) {
    const auto word = without_places(words[i]);
    if (word.size() < 2 || word[0] != '-') {
      out.names.push_back(word);
      continue;
    }
    for (std::size_t k = 1; k < word.size(); ++k) {
      const char letter = word[k];
      out.raw = out.raw || letter == 'r';
      if (std::string_view("adinNptu").find(letter) == std::string_view::npos) continue;
      const auto value = k + 1 < word.size() ? word.substr(k + 1) : ++i < words.size() ? without_places(words[i]) : "";
      if (letter == 'a') out.list = value;
      if (letter == 'd') out.end = value.empty() ? '\0' : value[0];
      if (letter == 'n' || letter == 'N') out.count = std::atol(value.c_str());
      out.exact = out.exact || letter == 'N';
      break;
    }
  }
  return out;
}

/// A character of the line; one that a backslash quotes separates nothing.
struct Letter {
  char c;
  bool quoted;
};

/// Takes a line from `input`. `ended`: it was the last and its end is missing.
std::vector<Letter> take_line(std::string& input, const ReadOptions& options, bool& ended) {
  std::vector<Letter> out;
  std::size_t i = 0;
  ended = true;
  for (; i < input.size(); ++i) {
    if (options.count && static_cast<long>(out.size()) >= *options.count) {
      ended = false;
      break;
    }
    if (input[i] == options.end && !options.exact) {
      ended = false;
      ++i;
      break;
    }
    if (input[i] == '\\' && !options.raw) {
      if (++i < input.size() && input[i] != '\n') out.push_back({input[i], true});
    } else {
      out.push_back({input[i], false});
    }
  }
  if (options.count && static_cast<long>(out.size()) >= *options.count) ended = false;
  input.erase(0, i);
  return out;
}

/// Cuts a line at IFS.
class LineCutter {
 public:
  LineCutter(std::vector<Letter> line, std::string separators) : line_(std::move(line)), ifs_(std::move(separators)) {
    trim_end();
    skip_spaces();
  }
  bool more() const { return i_ < line_.size(); }

  std::string next() {
    std::string word;
    while (more() && !separates(i_)) word += line_[i_++].c;
    skip_spaces();
    if (more() && separates(i_) && !is_space(line_[i_].c)) {
      ++i_;
      skip_spaces();
    }
    return word;
  }

  /// All that is left, for the last name. A single separator at its end that is no blank is left out.
  std::string rest() {
    const auto begin = i_;
    const auto word = next();
    if (!more()) return word;
    std::string out;
    for (i_ = begin; more(); ++i_) out += line_[i_].c;
    return out;
  }

 private:
  bool separates(std::size_t at) const { return !line_[at].quoted && ifs_.find(line_[at].c) != std::string::npos; }
  void skip_spaces() {
    while (more() && separates(i_) && is_space(line_[i_].c)) ++i_;
  }
  void trim_end() {
    while (!line_.empty() && separates(line_.size() - 1) && is_space(line_.back().c)) line_.pop_back();
  }

  std::vector<Letter> line_;
  const std::string ifs_;
  std::size_t i_ = 0;
};

std::string words_of(const std::vector<Letter>& line) {
  std::string out;
  for (const auto& letter : line) out += letter.c;
  return out;
}

}  // namespace

Truth ScriptEvaluator::read_line(const Words& words) {
  const auto options = read_options(words);
  auto names = options.names;
  if (options.list) names = {*options.list};
  const bool whole = names.empty();  // into REPLY, with its blanks
  if (whole) names = {"REPLY"};
  if (!input_ || has_unknown(*input_)) {
    for (const auto& name : names) assign(name, unknown("$(read " + name + ")"));
    doubt_outcome("read " + names[0]);
    return Truth::unknown;
  }
  auto input = without_places(*input_);
  bool ended = false;
  auto line = take_line(input, options, ended);
  input_ = input;
  const auto separators = value_of("IFS").value_or(" \t\n");
  if (whole || options.exact) {
    assign(names[0], words_of(line));
    return ended ? Truth::no : Truth::yes;
  }
  LineCutter cutter(std::move(line), separators);
  if (options.list) {
    std::vector<std::string> items;
    while (cutter.more()) items.push_back(cutter.next());
    set_list(names[0], items);
  } else {
    for (std::size_t i = 0; i < names.size(); ++i)
      assign(names[i], i + 1 == names.size() ? cutter.rest() : cutter.next());
  }
  return ended ? Truth::no : Truth::yes;
}

Truth ScriptEvaluator::map_lines(const Words& words) {
  std::string name = "MAPFILE";
  char end = '\n';
  bool trims = false;
  long most = 0, skipped = 0, origin = -1;
  for (std::size_t i = 1; i < words.size(); ++i) {
    const auto word = without_places(words[i]);
    if (word.size() < 2 || word[0] != '-') {
      name = word;
      continue;
    }
    trims = trims || word[1] == 't';
    if (word.size() > 2 && word[1] == 't') stop("'" + plain(word) + "' of mapfile is not read: write -t apart");
    if (std::string_view("dnOsuCc").find(word[1]) == std::string_view::npos) continue;
    const auto value = word.size() > 2 ? word.substr(2) : ++i < words.size() ? without_places(words[i]) : "";
    if (word[1] == 'd') end = value.empty() ? '\0' : value[0];
    if (word[1] == 'n') most = std::atol(value.c_str());
    if (word[1] == 's') skipped = std::atol(value.c_str());
    if (word[1] == 'O') origin = std::atol(value.c_str());
  }
  if (!input_ || has_unknown(*input_)) {
    set_list(name, {unknown("$(mapfile " + name + ")")});
    doubt_outcome("mapfile " + name);
    return Truth::unknown;
  }
  const auto input = without_places(*std::exchange(input_, std::string()));
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < input.size();) {
    const auto next = std::min(input.find(end, i), input.size());
    const auto stop_at = trims ? next : std::min(next + 1, input.size());
    if (--skipped < 0 && (most == 0 || static_cast<long>(lines.size()) < most))
      lines.push_back(input.substr(i, stop_at - i));
    i = next + 1;
  }
  if (origin < 0) return set_list(name, lines), Truth::yes;
  auto& variable = made(name);
  variable.list = true;
  for (long at = origin; const auto& line : lines) put(variable, name, std::to_string(at++), line);
  return Truth::yes;
}

}  // namespace tessera::shell
