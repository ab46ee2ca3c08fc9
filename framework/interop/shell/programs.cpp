#include <algorithm>
#include <cstdlib>
#include <set>
#include <sstream>

#include "framework/interop/shell/program_options.h"
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

/// One path or more; each gives a line.
Input basenames(const Words& words) {
  const auto options = program_options(words, {"a", "s", {{"multiple", 'a'}, {"suffix", 's'}}});
  if (!options || options->operands.empty()) return std::nullopt;
  const auto& paths = options->operands;
  const bool many = options->has('a') || options->has('s');
  if (!many && paths.size() > 2) return std::nullopt;
  if (!many) return basename(paths[0], paths.size() == 2 ? paths[1] : "") + "\n";
  std::string out;
  for (const auto& path : paths) out += basename(path, options->has('s') ? options->given.at('s') : "") + "\n";
  return out;
}

Input dirnames(const Words& words) {
  const auto options = program_options(words, {});
  if (!options || options->operands.empty()) return std::nullopt;
  std::string out;
  for (const auto& path : options->operands) out += dirname(path) + "\n";
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
  return out.empty() ? "" : out + "\n";
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

}  // namespace

bool is_known_program(const std::string& name) {
  static const std::set<std::string> known = {"basename", "cat", "cut",  "dirname", "expr", "head", "readlink",
                                              "realpath", "seq", "tail", "tee",     "tr",   "wc",   "xargs"};
  return known.count(name) != 0;
}

std::optional<std::string> output_of(const std::vector<std::string>& words, const std::optional<std::string>& input) {
  const auto& name = words[0];
  if (name == "dirname") return dirnames(words);
  if (name == "basename") return basenames(words);
  if (name == "seq") return sequence(words);
  if (name == "expr") return expr(words);
  if (!input || std::any_of(words.begin(), words.end(), [](const auto& word) { return has_unknown(word); }))
    return std::nullopt;
  if (name == "cat" && words.size() == 1) return input;
  if (name == "tee") return input;
  if (has_unknown(*input)) return std::nullopt;
  return filtered(words, without_places(*input));
}

}  // namespace tessera::shell
