#include "framework/base/number_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

namespace tessera {
namespace {

constexpr double most_exact = 1e15;  // whole numbers below this are printed in full

std::string printed(const char* format, double value) {
  char words[64];
  std::snprintf(words, sizeof words, format, value);
  return words;
}

/// The shortest text that reads back to the same number.
std::string full_number(double value) {
  char words[64];
  return {words, std::to_chars(words, words + sizeof words, value).ptr};
}

}  // namespace

std::string short_number(double value) {
  return printed(std::trunc(value) == value && std::abs(value) < most_exact ? "%.0f" : "%.4g", value);
}

std::pair<std::string, std::string> short_numbers(double one, double other) {
  auto texts = std::pair(short_number(one), short_number(other));
  if (texts.first != texts.second || one == other) return texts;
  return {full_number(one), full_number(other)};
}

std::string percent_text(double fraction) { return printed("%.1f %%", 100 * fraction); }

std::string duration_text(double seconds) {
  constexpr double minute = 60, hour = 3600;
  if (seconds < 1.5 * minute) return printed("%.0f s", std::max(seconds, 0.0));
  if (seconds < 1.5 * hour) return printed("%.0f min", seconds / minute);
  const auto minutes = std::llround(seconds / minute);
  const auto hours = std::to_string(minutes / 60) + " h";
  return minutes % 60 == 0 ? hours : hours + " " + std::to_string(minutes % 60) + " min";
}

}  // namespace tessera
