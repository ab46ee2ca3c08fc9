#include <algorithm>
#include <cstdlib>
#include <map>
#include <utility>

#include "framework/interop/shell/script_evaluator.h"

// xargs: starts a program with words of its input.

namespace tessera::shell {
namespace {

using Words = std::vector<std::string>;

struct Xargs {
  Words command;
  std::optional<std::string> replaced;         ///< -I R: what stands for a line of the input in `command`
  std::optional<std::string> file;             ///< -a
  std::optional<char> separator;               ///< -0, -d
  std::size_t most_words = 0, most_lines = 0;  ///< of one start; 0: no limit
  bool starts_empty = true;                    ///< without input too
};

/// Reads the options of xargs; nothing if one of them is not read here.
class XargsOptions {
 public:
  explicit XargsOptions(const Words& words) : words_(words) {}

  std::optional<Xargs> read() {
    for (i_ = 1; i_ < words_.size(); ++i_) {
      const auto word = without_places(words_[i_]);
      if (word == "--") {
        ++i_;
        break;
      }
      if (word.size() < 2 || word[0] != '-') break;
      if (has_unknown(word) || !(word[1] == '-' ? named(word) : letters(word))) return std::nullopt;
    }
    out_.command.assign(words_.begin() + static_cast<std::ptrdiff_t>(std::min(i_, words_.size())), words_.end());
    if (out_.command.empty()) out_.command = {"echo"};
    out_.command[0] = without_places(out_.command[0]);
    return std::move(out_);
  }

 private:
  bool named(const std::string& word) {
    static const std::map<std::string, char> names = {
        {"null", '0'},      {"no-run-if-empty", 'r'}, {"verbose", 't'},   {"exit", 'x'},    {"arg-file", 'a'},
        {"delimiter", 'd'}, {"max-args", 'n'},        {"max-procs", 'P'}, {"replace", 'i'}, {"max-lines", 'l'}};
    const auto equals = std::min(word.find('='), word.size());
    const auto known = names.find(word.substr(2, equals - 2));
    if (known == names.end()) return false;
    if (equals < word.size()) return set(known->second, word.substr(equals + 1));
    return takes_value(known->second) ? next_value(known->second) : set(known->second, "");
  }

  bool letters(const std::string& word) {
    for (std::size_t k = 1; k < word.size(); ++k) {
      const char letter = word[k];
      const auto rest = word.substr(k + 1);
      if (letter == 'i' || letter == 'l') return set(letter, rest);
      if (takes_value(letter)) return rest.empty() ? next_value(letter) : set(letter, rest);
      if (!set(letter, "")) return false;
    }
    return true;
  }

  static bool takes_value(char letter) { return std::string_view("adnPIL").find(letter) != std::string_view::npos; }
  bool next_value(char letter) { return ++i_ < words_.size() && set(letter, without_places(words_[i_])); }

  bool set(char letter, const std::string& value) {
    if (letter == 'n') return number(out_.most_words, value);
    if (letter == 'L' || letter == 'l') return number(out_.most_lines, value.empty() ? "1" : value);
    if (letter == 'I' || letter == 'i') out_.replaced = value.empty() ? "{}" : value;
    if (letter == 'a') out_.file = value;
    if (letter == '0') out_.separator = '\0';
    if (letter == 'd') return separate(unescaped(value, Escapes::dollar));
    if (letter == 'r') out_.starts_empty = false;
    return std::string_view("IiaPtx0r").find(letter) != std::string_view::npos;
  }

  bool separate(const std::string& value) {
    if (value.size() == 1) out_.separator = value[0];
    return value.size() == 1;
  }

  static bool number(std::size_t& to, const std::string& value) {
    if (!is_number(value) || value[0] == '0') return false;
    to = static_cast<std::size_t>(std::atoi(value.c_str()));
    return true;
  }

  const Words& words_;
  std::size_t i_ = 1;
  Xargs out_;
};

/// Cuts the input into items; an item may be quoted. Nothing: a quote is not closed.
class XargsInput {
 public:
  XargsInput(const Xargs& xargs, const std::string& input) : xargs_(xargs), input_(input) {}

  /// The items of each line.
  std::optional<std::vector<Words>> lines() {
    for (i_ = 0; i_ < input_.size();)
      if (!one()) return std::nullopt;
    end_item();
    end_line();
    return std::move(lines_);
  }

 private:
  bool one() {
    const char c = input_[i_];
    if (c == unknown_begin || c == place_begin) {
      add(input_.substr(i_, end_of_mark(input_, i_) - i_));
    } else if (xargs_.separator) {
      if (c != *xargs_.separator) return add(std::string(1, c)), true;
      ++i_;
      begun_ = true;
      end_item();
      end_line();
    } else if (c == '\'' || c == '"') {
      return quoted(c);
    } else if (c == '\\' && i_ + 1 < input_.size()) {
      ++i_;
      add(std::string(1, input_[i_]));
    } else if (c == '\n') {
      end_item();
      const bool goes_on = i_ > 0 && (input_[i_ - 1] == ' ' || input_[i_ - 1] == '\t') && !xargs_.replaced;
      ++i_;
      if (!goes_on) end_line();
    } else if (is_space(c) && !(xargs_.replaced && begun_)) {
      ++i_;
      end_item();
    } else {
      add(std::string(1, c));
    }
    return true;
  }

  bool quoted(char quote) {
    const auto end = input_.find(quote, i_ + 1);
    if (end == std::string::npos) return false;
    const auto words = input_.substr(i_ + 1, end - i_ - 1);
    item_ += words;
    begun_ = true;
    i_ = end + 1;
    return words.find('\n') == std::string::npos;
  }

  void add(const std::string& words) {
    item_ += words;
    i_ += words.size();
    begun_ = true;
  }
  void end_item() {
    if (begun_) line_.push_back(std::move(item_));
    item_.clear();
    begun_ = false;
  }
  void end_line() {
    if (!line_.empty()) lines_.push_back(std::move(line_));
    line_.clear();
  }

  const Xargs& xargs_;
  const std::string& input_;
  std::size_t i_ = 0;
  std::string item_;
  bool begun_ = false;
  Words line_;
  std::vector<Words> lines_;
};

/// `words` with `item` in the place of each `replaced`.
Words with_item(Words words, const std::string& replaced, const std::string& item) {
  for (auto& word : words)
    for (auto at = word.find(replaced); at != std::string::npos; at = word.find(replaced, at + item.size()))
      word.replace(at, replaced.size(), item);
  return words;
}

/// The commands that xargs starts.
std::vector<Words> commands_of(const Xargs& xargs, const std::vector<Words>& lines) {
  std::vector<Words> out;
  std::size_t words = 0, count = 0;
  for (const auto& line : lines) {
    if (xargs.most_lines > 0 && count++ % xargs.most_lines == 0) out.push_back(xargs.command);
    for (const auto& item : line) {
      if (xargs.replaced) {
        out.push_back(with_item(xargs.command, *xargs.replaced, item));
        continue;
      }
      const bool next = xargs.most_words > 0 && words++ % xargs.most_words == 0;
      if (next || out.empty()) out.push_back(xargs.command);
      out.back().push_back(item);
    }
  }
  if (out.empty() && xargs.starts_empty && !xargs.replaced) out.push_back(xargs.command);
  return out;
}

bool may_train(const Words& command) {
  return std::any_of(command.begin(), command.end(), [](const std::string& word) {
    return word.find(".py") != std::string::npos || word.find(".sh") != std::string::npos ||
           without_places(word) == "-m";
  });
}

}  // namespace

std::optional<Truth> ScriptEvaluator::run_xargs(const Words& words) {
  const auto xargs = XargsOptions(words).read();
  if (!xargs) {
    if (may_train(words)) remark("these options of xargs are not read: what it appends is not known");
    return std::nullopt;
  }
  const auto input = xargs->file ? text_of_file(*xargs->file) : input_;
  auto lines = input ? XargsInput(*xargs, *input).lines() : std::nullopt;
  if (!lines) {
    if (xargs->command[0] == "echo") return std::nullopt;
    if (may_train(xargs->command)) remark("what xargs appends to this command is not known");
    lines = {{unknown("$(xargs)")}};
  }
  const auto before = std::exchange(input_, "");
  auto out = Truth::yes;
  for (const auto& command : commands_of(*xargs, *lines)) {
    step();
    const bool prints = command[0] == "echo" || command[0] == "printf";
    out = both(out, prints ? print(command) : run_program(command));
  }
  input_ = before;
  return out;
}

}  // namespace tessera::shell
