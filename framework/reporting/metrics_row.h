#pragma once

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>

namespace tessera::reporting {

/// The members of a line of metrics.jsonl, or of a part of one, in their order. Values are numbers, true, false, null,
/// and lists of these. Does not allocate; views the text.
///
///   MetricsRow row(line);
///   while (row.next()) use(row.key, row.json);
///   if (row.damaged()) ...
class MetricsRow {
 public:
  /// `line`: an object, with or without its braces: "{\"loss\": 1.5}", or ", \"loss\": 1.5}" as an evaluation adds it.
  explicit MetricsRow(std::string_view line);

  /// Goes to the next member. False at the end, and where the text is not one of metrics.jsonl.
  bool next();
  std::string_view key;   ///< of the member; has no quote and no backslash
  std::string_view json;  ///< its value as it stands there: "3.25", "null", "[0.5, null]"
  /// Whether next() ended at a text that is not one of metrics.jsonl.
  bool damaged() const { return damaged_; }

 private:
  bool refuse();
  std::string_view left_;
  bool damaged_ = false;
};

/// The number that a value of metrics.jsonl stands for: null is NaN, true 1, false 0. Nothing for lists.
std::optional<double> number_of(std::string_view json);
/// What the items of the list `key` belong to, and their index counts: "rank" if it begins with "rank_", else "layer".
std::string_view owner_of_items(std::string_view key);
/// Calls visit(index, item) for each item of a list, "[0.5, null]".
template <class Visit>
void each_item(std::string_view list, const Visit& visit) {
  list.remove_prefix(1);
  for (std::size_t index = 0; list.size() > 1; ++index) {
    const auto end = list.find_first_of(",]");
    visit(index, list.substr(0, end));
    const auto next = list.find_first_not_of(' ', end + 1);
    if (list[end] == ']' || next == std::string_view::npos) return;
    list.remove_prefix(next);
  }
}

/// Reads metrics.jsonl line by line, in memory for one line.
class MetricsReader {
 public:
  /// Throws IoError if `path` cannot be read.
  explicit MetricsReader(const std::string& path);

  /// Goes to the next line that is whole and has an iteration; others are counted in damaged(). A last line without a
  /// line break is not whole: it is being written. False at the end. Throws IoError.
  bool next();
  std::string_view line() const { return line_; }
  std::int64_t iteration() const { return iteration_; }
  std::int64_t consumed_samples() const { return consumed_samples_; }
  std::int64_t damaged() const { return damaged_; }

 private:
  bool is_whole();
  std::string path_;
  std::ifstream file_;
  std::string line_;
  std::int64_t iteration_ = 0, consumed_samples_ = 0, damaged_ = 0;
};

}  // namespace tessera::reporting
