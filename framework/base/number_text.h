#pragma once

#include <string>
#include <utility>

namespace tessera {

/// A number for people: whole numbers in full, others with 4 significant digits: "320000", "4.8", "0.0003".
std::string short_number(double value);
/// Two numbers that differ, each as short_number has it, or in full where that would make them look the same.
std::pair<std::string, std::string> short_numbers(double one, double other);
/// A fraction as a percentage: 0.123 is "12.3 %".
std::string percent_text(double fraction);
/// Work that takes longer is announced, so that nobody takes silence for a hang.
inline constexpr double long_work_seconds = 5;
/// A duration, rounded as far as it is worth knowing: "8 s", "3 min", "2 h 5 min".
std::string duration_text(double seconds);

}  // namespace tessera
