#pragma once

#include <string>
#include <utility>

namespace tessera {

/// `value` for people: whole numbers below 1e15 in full, others with 4 significant digits: "320000", "4.8", "0.0003".
std::string short_number(double value);
/// Both numbers as short_number prints them, or with all digits if they differ and short_number would print the same
/// text.
std::pair<std::string, std::string> short_numbers(double one, double other);
/// A fraction as a percentage: 0.123 is "12.3 %".
std::string percent_text(double fraction);
/// Work that takes longer than this, in seconds, is announced, so that users do not take the silence for a hang.
inline constexpr double long_work_seconds = 5;
/// A duration of `seconds`, rounded to seconds (below 1.5 min) or minutes: "8 s", "3 min", "2 h 5 min".
std::string duration_text(double seconds);

}  // namespace tessera
