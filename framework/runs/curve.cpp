#include "framework/runs/curve.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

namespace tessera::runs {
namespace {

void put(Curve::Column& column, const Curve::Point& point) {
  if (column.count == 0 || point.x < column.first.x) column.first = point;
  if (column.count == 0 || point.x >= column.last.x) column.last = point;
  if (!std::isfinite(point.y)) {
    ++column.missing;
  } else {
    if (!column.has_finite() || point.y < column.least.y) column.least = point;
    if (!column.has_finite() || point.y > column.greatest.y) column.greatest = point;
  }
  ++column.count;
}

/// `right` is after `left`.
void merge(Curve::Column& left, const Curve::Column& right) {
  left.last = right.last;
  if (right.has_finite()) {
    if (!left.has_finite() || right.least.y < left.least.y) left.least = right.least;
    if (!left.has_finite() || right.greatest.y > left.greatest.y) left.greatest = right.greatest;
  }
  left.count += right.count;
  left.missing += right.missing;
}

}  // namespace

Curve::Curve(std::size_t most_columns) : most_(std::max<std::size_t>(most_columns, 2)) {}

void Curve::add(std::int64_t x, double y) {
  x = std::max<std::int64_t>(x, 0);
  newest_ = {x, y};
  ++count_;
  if (!std::isfinite(y)) ++missing_;
  if (!columns_.empty()) {
    const auto index = x >> shift_, last = columns_.back().first.x >> shift_;
    if (index == last) return put(columns_.back(), newest_);
    if (index < last) return insert(x, y);
  }
  // A vector doubles: for one column more than most_ it would take twice the memory.
  if (columns_.size() == columns_.capacity())
    columns_.reserve(std::min(std::max<std::size_t>(2 * columns_.size(), 16), most_ + 1));
  put(columns_.emplace_back(), newest_);
  while (columns_.size() > most_) merge_neighbours();
}

void Curve::insert(std::int64_t x, double y) {
  const auto at =
      std::lower_bound(columns_.begin(), columns_.end(), x >> shift_,
                       [this](const Column& column, std::int64_t index) { return (column.first.x >> shift_) < index; });
  if ((at->first.x >> shift_) == (x >> shift_)) return put(*at, {x, y});
  put(*columns_.insert(at, Column()), {x, y});
  while (columns_.size() > most_) merge_neighbours();
}

void Curve::merge_neighbours() {
  ++shift_;
  std::size_t used = 0;
  for (std::size_t i = 1; i < columns_.size(); ++i)
    if ((columns_[i].first.x >> shift_) == (columns_[used].first.x >> shift_))
      merge(columns_[used], columns_[i]);
    else
      columns_[++used] = columns_[i];
  columns_.resize(used + 1);
}

std::optional<Curve::Point> Curve::least() const {
  std::optional<Point> found;
  for (const auto& column : columns_)
    if (column.has_finite() && (!found || column.least.y < found->y)) found = column.least;
  return found;
}

std::optional<Curve::Point> Curve::greatest() const {
  std::optional<Point> found;
  for (const auto& column : columns_)
    if (column.has_finite() && (!found || column.greatest.y > found->y)) found = column.greatest;
  return found;
}

Curve Curve::thinned(std::size_t most_columns) const {
  Curve curve = *this;
  curve.most_ = std::max<std::size_t>(most_columns, 2);
  while (curve.columns_.size() > curve.most_) curve.merge_neighbours();
  return curve;
}

std::optional<double> Curve::at(std::int64_t x) const {
  if (columns_.empty()) return std::nullopt;
  const auto after =
      std::find_if(columns_.begin(), columns_.end(), [x](const Column& column) { return column.last.x >= x; });
  if (after == columns_.end()) return columns_.back().last.y;
  const auto [from, to] = after->first.x <= x         ? std::pair(after->first, after->last)
                          : after == columns_.begin() ? std::pair(after->first, after->first)
                                                      : std::pair(std::prev(after)->last, after->first);
  if (to.x == from.x) return to.y;
  const auto part = (static_cast<double>(x) - static_cast<double>(from.x)) /
                    (static_cast<double>(to.x) - static_cast<double>(from.x));
  return from.y + part * (to.y - from.y);
}

}  // namespace tessera::runs
