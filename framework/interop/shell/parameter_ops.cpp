#include <algorithm>
#include <cctype>
#include <functional>

#include "framework/interop/shell/script_evaluator.h"

// The operators of ${NAME...}.

namespace tessera::shell {
namespace {

/// A unique number for a construct in a line.
int site_of(const Part& part) { return static_cast<int>(std::hash<std::string>{}(part.words) % 1'000'000'000); }

bool is_set(const ParameterExpansion& parameter, const std::optional<std::string>& value) {
  return value && (parameter.op.size() == 1 || !value->empty());
}

}  // namespace

std::string ScriptEvaluator::cut(const ParameterExpansion& parameter, const std::string& value) {
  const auto words = without_places(value);
  const auto size = static_cast<long long>(words.size());
  const auto from = arithmetic_value(without_places(single(parameter.first)), *this);
  std::optional<long long> length = size;
  if (parameter.has_second) length = arithmetic_value(without_places(single(parameter.second)), *this);
  if (!from || !length) return derived("${" + parameter.name + ":...}");
  const auto begin = *from < 0 ? *from + size : *from;
  if (begin < 0 || begin > size) return "";
  const auto end = *length < 0 ? size + *length : begin + std::min(*length, size - begin);
  if (*length < 0 && end < begin) stop("the length in ${" + parameter.name + ":...} is negative; Bash refuses it");
  return end <= begin ? "" : words.substr(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
}

bool ScriptEvaluator::set_for_sure(const Part& part, const std::optional<std::string>& value) {
  const auto& parameter = *part.parameter;
  const auto mark = value ? "" : mark_without_set_u(parameter);
  if (!has_unknown(mark)) return is_set(parameter, value);
  const Weighing weighing(*this);
  const bool argument = is_number(parameter.name) || parameter.name == "@" || parameter.name == "*";
  if (argument)
    doubt(mark);
  else
    assume(parameter.name);
  settle_assumptions(!argument);
  return decide_whether(at_, site_of(part), part.words, false, argument);
}

std::string ScriptEvaluator::mark_without_set_u(const ParameterExpansion& parameter) {
  const bool strict = state_.options.erase("nounset") != 0;
  const auto mark = value_or_mark(parameter.indirect ? parameter.name : meant_name(parameter));
  if (strict) state_.options.insert("nounset");
  return mark;
}

bool ScriptEvaluator::default_stands(const Part& part, const std::optional<std::string>& value) {
  const auto& parameter = *part.parameter;
  const auto mark = value ? "" : mark_without_set_u(parameter);
  if (!has_unknown(mark)) return !is_set(parameter, value);
  const auto same = [&parameter](const Assumed& other) { return other.name == parameter.name; };
  if (std::none_of(reading_.assumed.begin(), reading_.assumed.end(), same))
    reading_.assumed.push_back({parameter.name, plain(concat(parameter.first.parts)), at_});
  return true;
}

std::optional<std::string> ScriptEvaluator::value_to_ask(const Part& part) {
  if (!is_list(part)) return raw_value(*part.parameter, true);
  const auto items = list_items(part);
  if (items.empty()) return std::nullopt;
  const auto& name = part.parameter->name;
  const bool outside =
      name == "@" || name == "*" ? items[0] == unknown("$@") : !part.parameter->indirect && !find(name);
  return outside ? std::nullopt : std::optional<std::string>(joined_items(items));
}

bool ScriptEvaluator::stands_in(const Part& part) {
  const auto& parameter = *part.parameter;
  if (parameter.op.empty() || parameter.length || (parameter.op.back() != '-' && parameter.op.back() != '+'))
    return false;
  const auto value = value_to_ask(part);
  return parameter.op.back() == '+' ? set_for_sure(part, value) : default_stands(part, value);
}

std::string ScriptEvaluator::standing_in(const Part& part, const std::optional<std::string>& value) {
  const auto& parameter = *part.parameter;
  const auto kind = parameter.op.back();
  if (kind == '+') return set_for_sure(part, value) ? concat(parameter.first.parts) : "";
  if (kind == '?') {
    if (is_set(parameter, value)) return *value;
    const auto mark = value ? "" : mark_without_set_u(parameter);
    if (!has_unknown(mark)) stop("'" + parameter.name + "' is not set, and " + part.words + " ends the script");
    return mark;
  }
  if (!default_stands(part, value)) return value ? *value : value_or_mark(parameter.name);
  auto other = concat(parameter.first.parts);
  if (kind == '=') assign(meant_name(parameter), other);
  return other;
}

std::string ScriptEvaluator::with_op(const Part& part, std::optional<std::string> value) {
  const auto& parameter = *part.parameter;
  const auto& op = parameter.op;
  if (std::string_view("-=+?").find(op.back()) < 4) return standing_in(part, value);
  const auto found = value ? *value : value_or_mark(meant_name(parameter));
  if (op == "@a") return attributes_of(parameter.name);
  if (!value && !has_unknown(found)) return "";
  if (has_unknown(found)) return derived(part.words, found);
  if (op == ":") return cut(parameter, found);
  const auto words = without_places(found);
  if (op[0] == '@') return transformed(part, words);
  if (op[0] == '/') return replaced_in(part, words);
  if (op[0] == '^' || op[0] == ',') return in_case(part, words);
  return removed_from(part, words);
}

std::string ScriptEvaluator::replaced_in(const Part& part, const std::string& words) {
  const auto& parameter = *part.parameter;
  const auto wanted = pattern(parameter.first);
  if (has_unknown(wanted)) return derived(part.words, wanted);
  const auto by = replacement(parameter);
  const auto piece = read_pattern(wanted, false);
  const auto spent = spend();
  if (parameter.op == "/#") {
    const auto length = fitting_prefix(words, piece, true, spent);
    return length == std::string::npos ? words : by + words.substr(length);
  }
  if (parameter.op == "/%") {
    const auto length = fitting_suffix(words, piece, true, spent);
    return length == std::string::npos ? words : words.substr(0, words.size() - length) + by;
  }
  if (wanted.empty()) return words;
  std::string out;
  for (std::size_t i = 0; i <= words.size();) {
    const auto rest = words.substr(i);
    const auto length = fitting_prefix(rest, piece, true, spent);
    if (length == std::string::npos || (length == 0 && i < words.size()) || (length == 0 && i > 0)) {
      if (i < words.size()) out += words[i];
      ++i;
      continue;
    }
    out += by;
    i += length;
    if (parameter.op == "/") return out + words.substr(i);
    if (length == 0) break;
  }
  return out;
}

std::string ScriptEvaluator::replacement(const ParameterExpansion& parameter) {
  const auto ambiguous = [](const std::string& words) {
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (words[i] == '\\')
        ++i;
      else if (words[i] == '&')
        return true;
    }
    return false;
  };
  const auto marked = concat(parameter.second.parts, "&\\");
  if (ambiguous(marked)) stop("'&' in a replacement means something else in each version of Bash: write \"&\"");
  return without_places(concat(parameter.second.parts));
}

std::string ScriptEvaluator::removed_from(const Part& part, const std::string& words) {
  const auto& parameter = *part.parameter;
  const auto wanted = pattern(parameter.first);
  if (has_unknown(wanted)) return derived(part.words, wanted);
  const bool front = parameter.op[0] == '#', longest = parameter.op.size() == 2;
  const auto piece = read_pattern(wanted, false);
  const auto length =
      front ? fitting_prefix(words, piece, longest, spend()) : fitting_suffix(words, piece, longest, spend());
  if (length == std::string::npos) return words;
  return front ? words.substr(length) : words.substr(0, words.size() - length);
}

std::string ScriptEvaluator::in_case(const Part& part, std::string words) {
  const auto& parameter = *part.parameter;
  const auto wanted = parameter.first.parts.empty() ? "?" : pattern(parameter.first);
  if (has_unknown(wanted)) return derived(part.words, wanted);
  const auto length = parameter.op.size() == 2 ? words.size() : std::min<std::size_t>(words.size(), 1);
  for (std::size_t i = 0; i < length; ++i) {
    if (!fits(words.substr(i, 1), wanted, false, spend())) continue;
    const auto letter = static_cast<unsigned char>(words[i]);
    words[i] = static_cast<char>(parameter.op[0] == '^' ? std::toupper(letter) : std::tolower(letter));
  }
  return words;
}

std::string ScriptEvaluator::transformed(const Part& part, const std::string& words) {
  auto out = words;
  const auto turn = [](char c, bool up) {
    const auto letter = static_cast<unsigned char>(c);
    return static_cast<char>(up ? std::toupper(letter) : std::tolower(letter));
  };
  switch (part.parameter->op.at(1)) {
    case 'Q':
      return quoted(words);
    case 'E':
      return unescaped(words, Escapes::dollar);
    case 'u':
      if (!out.empty()) out[0] = turn(out[0], true);
      return out;
    case 'U':
    case 'L':
      for (auto& c : out) c = turn(c, part.parameter->op[1] == 'U');
      return out;
    default:
      stop(part.words + " is not read");
  }
}

std::string ScriptEvaluator::attributes_of(const std::string& name) {
  const auto* variable = find(name);
  if (!variable) return "";
  std::string out;
  if (variable->named) out += 'A';
  if (variable->list && !variable->named) out += 'a';
  if (variable->integer) out += 'i';
  if (variable->reference) out += 'n';
  if (variable->readonly) out += 'r';
  if (variable->exported) out += 'x';
  if (variable->lower) out += 'l';
  if (variable->upper) out += 'u';
  return out;
}

}  // namespace tessera::shell
