#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <map>
#include <set>
#include <sstream>

#include "framework/interop/shell/script_evaluator.h"

// What small programs print whose output only depends on their words and their input.

namespace tessera::shell {

std::string tidy_path(const std::string& path) {
  std::vector<std::string> parts;
  std::istringstream in(path);
  const bool absolute = !path.empty() && path[0] == '/';
  for (std::string part; std::getline(in, part, '/');) {
    if (part.empty() || part == ".") continue;
    if (part == ".." && !parts.empty() && parts.back() != ".." && !has_unknown(parts.back()))
      parts.pop_back();
    else if (part != ".." || !absolute || !parts.empty())
      parts.push_back(part);
  }
  std::string out;
  for (const auto& part : parts) out += (out.empty() && !absolute ? "" : "/") + part;
  return out.empty() ? absolute ? "/" : "." : out;
}

namespace {

using Words = std::vector<std::string>;
using Input = std::optional<std::string>;

std::string dirname(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  const auto slash = path.rfind('/');
  if (slash == std::string::npos) return has_unknown(path) ? unknown("$(dirname " + path + ")") : ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string basename(std::string path, const std::string& suffix) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  const auto slash = path.rfind('/');
  if (slash != std::string::npos && path.size() > 1) path.erase(0, slash + 1);
  if (slash == std::string::npos && has_unknown(path)) return unknown("$(basename " + path + ")");
  if (suffix.size() < path.size() && path.compare(path.size() - suffix.size(), suffix.size(), suffix) == 0)
    path.resize(path.size() - suffix.size());
  return path;
}

/// Words that are no options.
Words operands(const Words& words) {
  Words out;
  for (std::size_t i = 1; i < words.size(); ++i)
    if (words[i].empty() || words[i][0] != '-' || words[i].size() == 1) out.push_back(words[i]);
  return out;
}

Input sequence(const Words& words) {
  Words numbers;
  std::string between = "\n";
  for (std::size_t i = 1; i < words.size(); ++i) {
    if (words[i] == "-s" && i + 1 < words.size())
      between = words[++i];
    else if (words[i].compare(0, 2, "-s") == 0)
      between = words[i].substr(2);
    else
      numbers.push_back(words[i]);
  }
  if (numbers.empty() || numbers.size() > 3) return std::nullopt;
  std::vector<long> values;
  for (const auto& number : numbers) {
    char* end = nullptr;
    values.push_back(std::strtol(number.c_str(), &end, 10));
    constexpr long largest = 2'000'000'000;
    if (*end != 0 || number.empty() || values.back() > largest || values.back() < -largest) return std::nullopt;
  }
  const long from = values.size() > 1 ? values[0] : 1, to = values.back(), step = values.size() > 2 ? values[1] : 1;
  constexpr long most = 10000;
  if (step == 0 || std::abs((to - from) / step) > most) return std::nullopt;
  std::string out;
  for (long i = from; step > 0 ? i <= to : i >= to; i += step) out += (out.empty() ? "" : between) + std::to_string(i);
  return out + "\n";
}

/// expr A + B, from left to right as far as this knows it: one operation of two numbers.
Input expr(const Words& words) {
  if (words.size() != 4 || words[2].size() != 1) return std::nullopt;
  char *end = nullptr, *other = nullptr;
  const long long a = std::strtoll(words[1].c_str(), &end, 10), b = std::strtoll(words[3].c_str(), &other, 10);
  constexpr long long largest = 2'000'000'000;
  if (*end != 0 || *other != 0 || a > largest || a < -largest || b > largest || b < -largest) return std::nullopt;
  switch (words[2][0]) {
    case '+':
      return std::to_string(a + b) + "\n";
    case '-':
      return std::to_string(a - b) + "\n";
    case '*':
      return std::to_string(a * b) + "\n";
    case '/':
      return b == 0 || b == -1 ? std::nullopt : Input(std::to_string(a / b) + "\n");
    case '%':
      return b == 0 || b == -1 ? std::nullopt : Input(std::to_string(a % b) + "\n");
    default:
      return std::nullopt;
  }
}

/// "a-z\n" -> all its characters
std::string characters(const std::string& set) {
  if (set == "[:upper:]" || set == "[:lower:]") return characters(set == "[:upper:]" ? "A-Z" : "a-z");
  if (set == "[:space:]") return " \t\n\r";
  std::string out;
  for (std::size_t i = 0; i < set.size(); ++i) {
    if (set[i] == '\\' && i + 1 < set.size()) {
      ++i;
      out += set[i] == 'n' ? '\n' : set[i] == 't' ? '\t' : set[i] == 'r' ? '\r' : set[i];
    } else if (i + 2 < set.size() && set[i + 1] == '-' && set[i] < set[i + 2]) {
      for (int c = set[i]; c <= set[i + 2]; ++c) out += static_cast<char>(c);
      i += 2;
    } else {
      out += set[i];
    }
  }
  return out;
}

Input translated(const Words& words, const std::string& input) {
  const auto sets = operands(words);
  const bool deletes = words.size() > 1 && words[1] == "-d";
  if (words.size() != sets.size() + (deletes ? 2 : 1) || sets.size() != (deletes ? 1U : 2U)) return std::nullopt;
  const auto from = characters(sets[0]), to = deletes ? "" : characters(sets[1]);
  std::string out;
  for (const char c : input) {
    const auto at = from.find(c);
    if (at == std::string::npos)
      out += c;
    else if (!to.empty())
      out += to[std::min(at, to.size() - 1)];
  }
  return out;
}

Words lines_of(const std::string& words) {
  Words out;
  std::istringstream in(words);
  for (std::string line; std::getline(in, line);) out.push_back(line);
  return out;
}

/// cut -dX -fN
Input cut(const Words& words, const std::string& input) {
  std::string options;
  for (std::size_t i = 1; i < words.size(); ++i) options += words[i] + '\n';
  const auto argument = [&options](const std::string& name) {
    auto at = options.find(name);
    if (at == std::string::npos) return std::string();
    at += name.size();
    if (at + 1 < options.size() && options[at] == '\n') ++at;
    return options.substr(at, options.find('\n', at) - at);
  };
  const auto separator = argument("-d"), field = argument("-f");
  if (separator.size() != 1 || field.empty() || field.find_first_not_of("0123456789") != std::string::npos ||
      field.size() > 4)
    return std::nullopt;
  std::string out;
  for (const auto& line : lines_of(input)) {
    std::size_t begin = 0;
    const auto wanted = std::atoi(field.c_str());
    for (int i = 1; i < wanted && begin != std::string::npos; ++i) {
      const auto next = line.find(separator, begin);
      begin = next == std::string::npos ? next : next + 1;
    }
    if (line.find(separator) == std::string::npos) begin = 0;
    if (begin != std::string::npos) out += line.substr(begin, line.find(separator, begin) - begin);
    out += '\n';
  }
  return out;
}

Input counted(const Words& words, const std::string& input) {
  if (words.size() != 2) return std::nullopt;
  std::istringstream in(input);
  long count = 0;
  if (words[1] == "-l") return std::to_string(std::count(input.begin(), input.end(), '\n')) + "\n";
  for (std::string word; in >> word;) ++count;
  return words[1] == "-w" ? Input(std::to_string(count) + "\n") : std::nullopt;
}

/// head -n N, head -N, tail ...
Input ends(const Words& words, const std::string& input) {
  std::string number = words.size() == 3 && words[1] == "-n" ? words[2] : words.size() == 2 ? words[1].substr(1) : "10";
  if (words.size() > 3 || number.empty() || number.size() > 6 ||
      number.find_first_not_of("0123456789") != std::string::npos)
    return std::nullopt;
  const auto lines = lines_of(input);
  const auto count = std::min<std::size_t>(static_cast<std::size_t>(std::atoi(number.c_str())), lines.size());
  std::string out;
  const auto first = words[0] == "head" ? 0 : lines.size() - count;
  for (auto i = first; i < first + count; ++i) out += lines[i] + "\n";
  return out;
}

}  // namespace

bool is_known_program(const std::string& name) {
  static const std::set<std::string> known = {"basename", "cat", "cut",  "dirname", "expr", "head", "readlink",
                                              "realpath", "seq", "tail", "tee",     "tr",   "wc",   "xargs"};
  return known.count(name) != 0;
}

std::optional<std::string> output_of(const std::vector<std::string>& words, const std::optional<std::string>& input) {
  const auto& name = words[0];
  const auto rest = operands(words);
  if (name == "dirname" && rest.size() == 1) return dirname(rest[0]) + "\n";
  if (name == "basename" && !rest.empty() && rest.size() <= 2)
    return basename(rest[0], rest.size() == 2 ? rest[1] : "") + "\n";
  if (name == "seq") return sequence(words);
  if (name == "expr") return expr(words);
  if (!input || std::any_of(words.begin(), words.end(), [](const auto& word) { return has_unknown(word); }))
    return std::nullopt;
  if (name == "cat" && words.size() == 1) return input;
  if (name == "tee") return input;
  if (has_unknown(*input)) return std::nullopt;
  const auto bare = without_places(*input);
  if (name == "tr") return translated(words, bare);
  if (name == "cut") return cut(words, bare);
  if (name == "wc") return counted(words, bare);
  if (name == "head" || name == "tail") return ends(words, bare);
  return std::nullopt;
}

}  // namespace tessera::shell
