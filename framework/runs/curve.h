#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace tessera::runs {

/// The values of one key over the iterations of a run, in bounded memory. Points are put into columns of equal width;
/// when there are more than `most_columns`, neighbouring columns are merged and the width doubles. A column keeps its
/// extremes, so no spike is lost, and the number of its values that are not finite, so gaps are known. While a column
/// holds one point, that point is exact.
class Curve {
 public:
  struct Point {
    std::int64_t x = 0;  ///< iteration, not negative
    double y = 0;
  };
  struct Column {
    Point first, last;          ///< by x; y may be NaN or infinite
    Point least, greatest;      ///< of the finite values; meaningless if there is none
    std::uint64_t count = 0;    ///< points in it, at least 1
    std::uint64_t missing = 0;  ///< of these, points whose value is not finite
    bool has_finite() const { return missing < count; }
  };

  explicit Curve(std::size_t most_columns = 2048);

  /// Adds a point. Takes constant time if `x` is not before the last point.
  void add(std::int64_t x, double y);

  /// In the order of x; each covers [n * width(), (n + 1) * width()) for one n.
  const std::vector<Column>& columns() const { return columns_; }
  std::int64_t width() const { return std::int64_t{1} << shift_; }
  std::uint64_t count() const { return count_; }
  std::uint64_t missing() const { return missing_; }  ///< number of values that are not finite
  bool has_finite() const { return missing_ < count_; }
  /// The point that was added last. Nothing if there is none.
  std::optional<Point> newest() const { return count_ > 0 ? std::optional(newest_) : std::nullopt; }
  /// The extremes of all finite values. Nothing if there is none.
  std::optional<Point> least() const, greatest() const;

  /// The same curve in at most `most_columns` columns.
  Curve thinned(std::size_t most_columns) const;
  /// The value at `x`, interpolated between the first and last points of columns; of a cumulative quantity, such as
  /// samples. Outside, the value at the nearest end. Nothing for an empty curve.
  std::optional<double> at(std::int64_t x) const;

 private:
  void merge_neighbours();
  void insert(std::int64_t x, double y);

  std::size_t most_;
  int shift_ = 0;
  std::vector<Column> columns_;
  std::uint64_t count_ = 0, missing_ = 0;
  Point newest_;
};

}  // namespace tessera::runs
