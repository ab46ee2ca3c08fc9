#include <algorithm>

#include "framework/interop/shell/parser.h"
#include "framework/interop/shell/script_evaluator.h"

// Words of a script become words of a command.

namespace tessera::shell {
namespace {

constexpr std::size_t longest_value = std::size_t{4} << 20;

}  // namespace

bool is_space(char c) { return is_blank(c) || c == '\n'; }

Separator separator_at(const std::string& words, std::size_t at, const std::string& separators) {
  const auto skip_spaces = [&] {
    while (at < words.size() && is_space(words[at]) && separators.find(words[at]) != std::string::npos) ++at;
  };
  skip_spaces();
  const bool other = at < words.size() && !is_space(words[at]) && separators.find(words[at]) != std::string::npos;
  if (other) ++at, skip_spaces();
  return {at, other};
}

/// Collects the words that one word of the script becomes.
class WordMaker {
 public:
  explicit WordMaker(ScriptEvaluator& evaluator) : evaluator_(evaluator) {
    if (const auto ifs = evaluator.value_of("IFS")) separators_ = *ifs;
  }

  void add(const std::vector<Part>& parts) {
    for (const auto& part : parts) add(part);
  }
  std::vector<std::string> take() {
    end();
    return std::move(words_);
  }

 private:
  void add(const Part& part) {
    switch (part.kind) {
      case Part::Kind::text:
      case Part::Kind::quoted:
        return literal(part.words);
      case Part::Kind::group:
        return group(part.inside);
      case Part::Kind::parameter:
        if (evaluator_.is_list(part)) return list(evaluator_.list_items(part), false);
        if (evaluator_.stands_in(part)) return stand_in(part.parameter->first.parts);
        return split(evaluator_.scalar(part, true));
      case Part::Kind::command:
        return split(evaluator_.substitution(part));
      case Part::Kind::arithmetic:
        return literal(evaluator_.arithmetic(part));
      case Part::Kind::stream:
        return literal(unknown(part.words));
    }
  }

  /// The words of ${NAME:-words}: cut like a value, but for what is quoted.
  void stand_in(const std::vector<Part>& parts) {
    for (const auto& part : parts) {
      if (part.kind == Part::Kind::text)
        split(part.words);
      else
        add(part);
    }
  }

  void literal(const std::string& words) {
    now_ += words;
    begun_ = true;
  }

  /// "...": one word, but for lists: "$@", "${A[@]}".
  void group(const std::vector<Part>& inside) {
    if (inside.empty()) begun_ = true;
    for (const auto& part : inside) {
      if (part.kind == Part::Kind::parameter && evaluator_.is_list(part) && !joins(part))
        list(evaluator_.list_items(part), true);
      else
        literal(evaluator_.concat({part}, false));
    }
  }

  static bool joins(const Part& part) {
    const auto& parameter = *part.parameter;
    if (parameter.subscripted) return parameter.subscript.parts.at(0).words == "*";
    return parameter.name == "*";
  }

  void list(const std::vector<std::string>& items, bool quoted) {
    bool first = true;
    for (const auto& item : items) {
      if (!first) end();
      first = false;
      if (quoted)
        literal(item);
      else
        split(item);
    }
  }

  void split(const std::string& value) {
    for (std::size_t i = 0; i < value.size();) {
      if (value[i] == unknown_begin || value[i] == place_begin) {
        const auto next = end_of_mark(value, i);
        literal(value.substr(i, next - i));
        i = next;
      } else if (separators_.find(value[i]) != std::string::npos) {
        const auto separator = separator_at(value, i, separators_);
        if (separator.ends_empty_word) begun_ = true;
        end();
        i = separator.end;
      } else {
        now_ += value[i++];
        begun_ = true;
      }
    }
  }

  void end() {
    if (begun_) words_.push_back(std::move(now_));
    now_.clear();
    begun_ = false;
  }

  ScriptEvaluator& evaluator_;
  std::vector<std::string> words_;
  std::string now_, separators_ = " \t\n";
  bool begun_ = false;
};

void ScriptEvaluator::step(long cost) {
  reading_.steps += cost;
  steps_left_ -= cost;
  if (steps_left_ < 0)
    throw Stop{"the script takes too many steps, so reading it was given up; is this an endless loop?", at_};
}

std::vector<std::string> ScriptEvaluator::fields(const std::vector<Word>& words) {
  std::vector<std::string> out;
  for (const auto& word : words) {
    if (word.assignment) continue;
    for (const auto& one : expand_braces(word)) {
      step();
      WordMaker maker(*this);
      maker.add(one.parts);
      for (auto& made : maker.take()) {
        step(static_cast<long>(made.size() / 1024));
        out.push_back(std::move(made));
      }
    }
  }
  step(static_cast<long>(out.size() / 8));
  return out;
}

std::string ScriptEvaluator::single(const Word& word) {
  step();
  // A list that stands alone gives its first item here, as in Bash: HOST=$HOSTS.
  if (word.parts.size() == 1 && word.parts[0].kind == Part::Kind::parameter && !is_list(word.parts[0]))
    return scalar(word.parts[0], false);
  return concat(word.parts, false);
}

std::string ScriptEvaluator::pattern(const Word& word) {
  step();
  return without_places(concat(word.parts, true));
}

std::string ScriptEvaluator::concat(const std::vector<Part>& parts, bool as_pattern) {
  std::string out;
  const auto quote = [as_pattern](const std::string& words) {
    if (!as_pattern) return words;
    std::string escaped;
    for (const char c : words) {
      if (std::string_view("*?[]\\").find(c) < 5) escaped += '\\';
      escaped += c;
    }
    return escaped;
  };
  for (const auto& part : parts) switch (part.kind) {
      case Part::Kind::text:
        out += part.words;
        break;
      case Part::Kind::quoted:
        out += quote(part.words);
        break;
      case Part::Kind::group:
        out += quote(concat(part.inside, false));
        break;
      case Part::Kind::parameter:
        if (is_list(part)) {
          std::string joined;
          for (const auto& item : list_items(part)) joined += (joined.empty() ? "" : " ") + item;
          out += joined;
        } else {
          out += scalar(part, true);
        }
        break;
      case Part::Kind::command:
        out += substitution(part);
        break;
      case Part::Kind::arithmetic:
        out += arithmetic(part);
        break;
      case Part::Kind::stream:
        out += unknown(part.words);
        break;
    }
  produced_ += static_cast<long>(out.size());
  step(static_cast<long>(out.size() / 1024));
  if (out.size() > longest_value) throw Stop{"a value grows over 4 MiB here; is this an endless loop?", at_};
  return out;
}

std::string ScriptEvaluator::arithmetic(const Part& part) {
  const auto expression = without_places(concat(part.inside, false));
  if (const auto value = arithmetic_value(expression, *this)) return std::to_string(*value);
  std::string out(1, unknown_begin);
  return out + "$((" + arithmetic_words(expression, *this) + "))" + unknown_end;
}

/// What a subshell leaves as it was. A copy costs time.
State ScriptEvaluator::copy_of_state() {
  std::size_t bytes = 0;
  for (const auto& [name, variable] : state_.variables)
    for (const auto& item : variable.items) bytes += 64 + item.size();
  step(1 + static_cast<long>(bytes / 1024));
  return state_;
}

/// $(...): what is printed, if that is known without running anything.
std::string ScriptEvaluator::substitution(const Part& part) {
  const auto before = copy_of_state();
  const auto files = reading_.written;
  const auto flow = flow_;
  const auto input = std::move(input_);
  input_.reset();
  Output printed;
  auto* const outer = output_;
  output_ = &printed;
  const Weighing weighing(*this);
  ++substitutions_;
  run(part.body);
  --substitutions_;
  output_ = outer;
  input_ = input;
  flow_ = flow;
  state_ = before;
  if (!printed.known) return derived(part.words);
  auto& words = printed.words;
  while (!words.empty() && words.back() == '\n') words.pop_back();
  return words;
}

}  // namespace tessera::shell
