#include "framework/gpt/split.h"

#include <cmath>
#include <cstdlib>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/visible_text.h"

namespace tessera::gpt {
namespace {

/// Weights that are none: what split_bounds throws and broken_split returns.
struct BadSplit {
  std::string message;
};
constexpr const char* expected = "expected up to three weights such as \"969, 30, 1\"";

std::vector<double> weights_of(const std::string& words) {
  const auto refuse = [&](const std::string& why) { throw BadSplit{text("split '", shortened(words), "' ", why)}; };
  constexpr const char* digits = ".0123456789";
  if (words.find('-') != std::string::npos) refuse("has a negative weight");
  // Megatron-LM looks for digits only: it reads "nan,1,1" as the weights 1 and 1, and 1e-3 as 1 and 3.
  if (const auto bad = words.find_first_not_of(".0123456789 \t\n\r,;:/|[]()"); bad != std::string::npos)
    refuse(text("has a weight that is not a number, at '", shortened(words.substr(bad)), "'"));
  std::vector<double> weights;
  for (auto at = words.find_first_of(digits); at != std::string::npos; at = words.find_first_of(digits, at)) {
    const auto end = std::min(words.find_first_not_of(digits, at), words.size());
    const auto word = words.substr(at, end - at);
    char* stop = nullptr;
    weights.push_back(std::strtod(word.c_str(), &stop));
    if (*stop != 0 || word == ".") refuse("has a weight that is not a number");
    at = end;
  }
  if (weights.size() > 3) refuse("has more than three weights");
  weights.resize(3);
  if (weights[0] + weights[1] + weights[2] <= 0) refuse("has no weight above 0");
  if (!std::isfinite(weights[0] + weights[1] + weights[2])) refuse("has a weight that is too large");
  return weights;
}

std::vector<double> good_weights(const std::string& words) {
  try {
    return weights_of(words);
  } catch (const BadSplit& bad) {
    throw ConfigError(text(bad.message, "; ", expected));
  }
}

}  // namespace

std::optional<options::Finding> broken_split(const std::optional<std::string>& words) {
  if (!words) return {};
  try {
    (void)weights_of(*words);
    return {};
  } catch (const BadSplit& bad) {
    return options::Finding{.option = "split", .message = bad.message, .advice = expected};
  }
}

std::array<std::optional<SplitBounds>, 3> split_bounds(const std::string& words) {
  const auto weights = good_weights(words);
  const double sum = weights[0] + weights[1] + weights[2];
  std::array<std::optional<SplitBounds>, 3> all;
  double before = 0;
  for (std::size_t k = 0; k < 3; ++k) {
    const double after = before + weights[k] / sum;
    if (after > before) all[k] = SplitBounds{before, after};
    before = after;
  }
  return all;
}

std::array<std::optional<SequenceRange>, 3> cut_split(const std::string& words, std::int64_t sequences) {
  const auto all = split_bounds(words);
  const auto count = static_cast<double>(sequences);
  std::array<std::optional<SequenceRange>, 3> ranges;
  for (std::size_t k = 0; k < 3; ++k)
    if (all[k])  // nearbyint rounds halves to even, as Python's round
      ranges[k] = SequenceRange{static_cast<std::int64_t>(std::nearbyint(all[k]->first * count)),
                                static_cast<std::int64_t>(std::nearbyint(all[k]->last * count))};
  return ranges;
}

}  // namespace tessera::gpt
