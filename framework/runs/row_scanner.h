#pragma once

#include <cstddef>
#include <string_view>

namespace tessera::runs {

/// A faster MetricsRow (reporting/metrics_row.h) for files of millions of rows: reads each number once, and hands it
/// over with its key. Takes one line of JSON with an object of numbers, true, false, null, and lists of these. Texts,
/// and objects and lists in a value, which a newer version may write, are passed over.
class RowScanner {
 public:
  /// `line`: an object, or the members that were added to one: ", \"validation_loss\": 2.5}".
  explicit RowScanner(std::string_view line);

  /// Goes to the next number: the value of a member, or an item of its list. False at the end.
  bool next();
  std::size_t member = 0;  ///< number of the member in the line, from 1
  std::string_view key;    ///< of the member; has no backslash
  bool in_list = false;    ///< whether the member's value is a list, and `index` counts its items from 0
  std::size_t index = 0;
  double value = 0;  ///< null is NaN, true 1, false 0; beyond the range of doubles: infinite or 0
  /// Whether next() ended at a text that is no such object.
  bool damaged() const { return damaged_; }

 private:
  enum class Read { number, ignored, wrong };
  bool refuse();
  bool next_key();
  Read read_value();
  Read read_text();
  Read read_nested();
  void skip_blanks();
  bool take(char sign);

  const char *at_, *end_;
  bool damaged_ = false, done_ = false, first_ = true;
};

}  // namespace tessera::runs
