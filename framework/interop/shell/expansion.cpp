#include <algorithm>

#include "framework/interop/shell/parser.h"
#include "framework/interop/shell/script_evaluator.h"

// Words of a script become words of a command.

namespace tessera::shell {
namespace {

constexpr std::size_t longest_value = std::size_t{4} << 20;

}  // namespace

std::string with_escapes(const std::string& words, std::string_view special) {
  if (words.find_first_of(special) == std::string::npos) return words;
  std::string out;
  for (const char c : words) {
    if (special.find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

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
  /// A word, and the pattern that it is: what is quoted is escaped.
  struct Made {
    std::string words, pattern;
  };
  std::vector<Made> take() {
    end();
    return std::move(made_);
  }

 private:
  void add(const Part& part) {
    switch (part.kind) {
      case Part::Kind::text:
        now_.pattern += part.words;
        now_.words += part.words;
        begun_ = true;
        return;
      case Part::Kind::quoted:
        return literal(part.words);
      case Part::Kind::group:
        return group(part.inside);
      case Part::Kind::parameter:
        return parameter(part);
      case Part::Kind::command:
        return split(evaluator_.substitution(part));
      case Part::Kind::arithmetic:
        return literal(evaluator_.arithmetic(part));
      case Part::Kind::stream:
        return literal(unknown(part.words));
    }
  }

  void parameter(const Part& part) {
    if (evaluator_.stands_in(part)) return stand_in(part.parameter->first.parts);
    if (leaves_nothing(part)) return;
    if (evaluator_.is_list(part) && !assigns(part)) return list(evaluator_.list_items(part), false);
    split(evaluator_.scalar(part, true));
  }

  /// ${NAME:+words} of a name that is not set.
  static bool leaves_nothing(const Part& part) {
    const auto& parameter = *part.parameter;
    return !parameter.length && !parameter.op.empty() && parameter.op.back() == '+';
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

  /// What is no pattern.
  void literal(const std::string& words) {
    joined(words);
    begun_ = true;
  }

  /// "...": one word, but for lists: "$@", "${A[@]}".
  void group(const std::vector<Part>& inside) {
    const bool has_list = std::any_of(inside.begin(), inside.end(), [this](const Part& part) {
      return part.kind == Part::Kind::parameter && evaluator_.is_list(part) && !joins(part);
    });
    begun_ = begun_ || !has_list;  // "$@" without arguments is no word, nor is "$@$EMPTY"
    for (const auto& part : inside) quoted(part);
  }

  void quoted(const Part& part) {
    if (part.kind == Part::Kind::group) return group(part.inside);
    if (part.kind != Part::Kind::parameter) return joined(evaluator_.concat({part}));
    if (evaluator_.stands_in(part)) return stand_in_quoted(part.parameter->first.parts);
    if (leaves_nothing(part)) return;
    if (!evaluator_.is_list(part) || assigns(part)) return joined(evaluator_.concat({part}));
    if (joins(part)) return literal(evaluator_.joined_items(evaluator_.list_items(part)));
    list(evaluator_.list_items(part), true);
  }

  void stand_in_quoted(const std::vector<Part>& parts) {
    for (const auto& part : parts) quoted(part);
  }

  /// Beside a list in quotes a word that is empty is none.
  void joined(const std::string& words) {
    now_.words += words;
    now_.pattern += with_escapes(words, pattern_characters);
    begun_ = begun_ || !words.empty();
  }

  /// ${A[@]:=words}
  static bool assigns(const Part& part) {
    const auto& op = part.parameter->op;
    return !op.empty() && (op.back() == '=' || op.back() == '?');
  }

  static bool joins(const Part& part) {
    const auto& parameter = *part.parameter;
    if (parameter.prefix) return parameter.op == "*";
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
        now_.pattern += value[i];
        now_.words += value[i++];
        begun_ = true;
      }
    }
  }

  void end() {
    if (begun_) made_.push_back(std::move(now_));
    now_ = {};
    begun_ = false;
  }

  ScriptEvaluator& evaluator_;
  std::vector<Made> made_;
  Made now_;
  std::string separators_ = " \t\n";
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
        step(static_cast<long>(made.words.size() / 1024));
        if (!option("noglob") && is_file_pattern(made.pattern, option("extglob")))
          add_files(out, made.words, made.pattern);
        else
          out.push_back(std::move(made.words));
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
  return concat(word.parts);
}

std::string ScriptEvaluator::pattern(const Word& word) {
  step();
  return without_places(concat(word.parts, pattern_characters));
}

std::string ScriptEvaluator::expression(const Word& word) {
  step();
  return without_places(concat(word.parts, "*?[]\\()|+.{}^$"));
}

std::string ScriptEvaluator::concat(const std::vector<Part>& parts, std::string_view special) {
  std::string out;
  const auto quote = [special](const std::string& words) { return with_escapes(words, special); };
  for (const auto& part : parts) switch (part.kind) {
      case Part::Kind::text:
        out += part.words;
        break;
      case Part::Kind::quoted:
        out += quote(part.words);
        break;
      case Part::Kind::group:
        out += quote(concat(part.inside));
        break;
      case Part::Kind::parameter:
        out += is_list(part) ? list_as_one(part) : scalar(part, true);
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
  const auto expression = without_places(concat(part.inside));
  if (const auto value = arithmetic_value(expression, *this)) return std::to_string(*value);
  std::string out(1, unknown_begin);
  return out + "$((" + arithmetic_words(expression, *this) + "))" + unknown_end;
}

State ScriptEvaluator::copy_of_state() {
  std::size_t bytes = 0;
  for (const auto& [name, variable] : state_.variables)
    for (const auto& [index, item] : variable.items) bytes += 64 + item.size();
  for (const auto& [name, variable] : state_.variables)
    for (const auto& [key, item] : variable.key_items) bytes += 64 + key.size() + item.size();
  step(1 + static_cast<long>(bytes / 1024));
  return state_;
}

std::string ScriptEvaluator::list_as_one(const Part& part) {
  const auto& parameter = *part.parameter;
  if (!parameter.op.empty() && std::string_view("-=+?").find(parameter.op.back()) < 4)
    return standing_in(part, value_to_ask(part));
  const auto items = list_items(part);
  const auto subscript = parameter.subscripted ? parameter.subscript.parts.at(0).words : parameter.name;
  if (subscript == "*") return joined_items(items);
  std::string out;
  for (std::size_t i = 0; i < items.size(); ++i) out += (i > 0 ? " " : "") + items[i];
  return out;
}

std::string ScriptEvaluator::substitution(const Part& part) {
  const Weighing weighing(*this);
  auto out = printed_by(part);
  if (!out) return derived(part.words);
  while (!out->empty() && out->back() == '\n') out->pop_back();
  return *out;
}

std::optional<std::string> ScriptEvaluator::printed_by(const Part& part) {
  const auto before = copy_of_state();
  const auto flow = flow_;
  const auto input = std::move(input_);
  input_.reset();
  Output printed;
  auto* const outer = output_;
  output_ = &printed;
  ++substitutions_;
  if (!option("inherit_errexit")) state_.options.erase("errexit");
  const auto truth = run(part.body);
  --substitutions_;
  output_ = outer;
  input_ = input;
  flow_ = flow;
  state_ = before;
  substituted_ = truth;
  return printed.known ? std::optional<std::string>(printed.words) : std::nullopt;
}

std::optional<std::string> ScriptEvaluator::output_of_stream(const Word& word) {
  if (word.parts.size() != 1 || word.parts[0].kind != Part::Kind::stream || !word.parts[0].body) return std::nullopt;
  const Weighing weighing(*this);
  return printed_by(word.parts[0]);
}

}  // namespace tessera::shell
