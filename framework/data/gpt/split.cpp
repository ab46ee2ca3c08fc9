#include "framework/data/gpt/split.h"

#include <cmath>
#include <cstdlib>
#include <vector>

#include "framework/base/error.h"

namespace tessera::data {
namespace {

std::vector<double> weights_of(const std::string& words) {
  const auto refuse = [&](const char* why) {
    throw ConfigError(text("split '", words, "' ", why, "; expected up to three weights such as \"969, 30, 1\""));
  };
  constexpr const char* digits = ".0123456789";
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
  if (words.find('-') != std::string::npos) refuse("has a negative weight");
  if (weights[0] + weights[1] + weights[2] <= 0) refuse("has no weight above 0");
  if (!std::isfinite(weights[0] + weights[1] + weights[2])) refuse("has a weight that is too large");
  return weights;
}

}  // namespace

std::array<std::optional<SplitBounds>, 3> split_bounds(const std::string& words) {
  const auto weights = weights_of(words);
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

}  // namespace tessera::data
