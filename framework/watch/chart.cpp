#include "framework/watch/chart.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "framework/base/error.h"
#include "framework/base/number_text.h"
#include "framework/watch/braille.h"

namespace tessera::watch {
namespace {

constexpr std::size_t most_marks = 20;
constexpr int label_columns = 9, least_chart_columns = 12, least_chart_rows = 4;

struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  bool empty() const { return !(low <= high); }
  void take(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
};

/// Computes dots of a drawing from iterations and values.
class Axes {
 public:
  Axes(const Chart& chart, const Braille& canvas)
      : logarithmic_(chart.logarithmic), width_(canvas.width()), height_(canvas.height()) {
    for (const auto& line : chart.lines)
      if (const auto newest = line.curve->newest()) x_.take(static_cast<double>(newest->x));
    if (x_.empty()) return;
    if (chart.last_steps > 0)
      x_.low = std::max(0.0, x_.high - static_cast<double>(chart.last_steps));
    else
      for (const auto& line : chart.lines)
        if (!line.curve->columns().empty()) x_.take(static_cast<double>(line.curve->columns().front().first.x));
    for (const auto& line : chart.lines)
      for (const auto& column : line.curve->columns()) {
        if (!column.has_finite() || !shown(column)) continue;
        for (const auto& point : {column.least, column.greatest})
          if (drawable(point.y)) y_.take(scaled(point.y));
      }
  }
  bool empty() const { return x_.empty() || y_.empty(); }
  const Range& x() const { return x_; }
  double low() const { return logarithmic_ ? std::pow(10, y_.low) : y_.low; }
  double high() const { return logarithmic_ ? std::pow(10, y_.high) : y_.high; }

  bool shown(const runs::Curve::Column& column) const { return static_cast<double>(column.last.x) >= x_.low; }
  bool drawable(double value) const { return std::isfinite(value) && (!logarithmic_ || value > 0); }
  int dot_x(std::int64_t x) const {
    const double span = std::max(x_.high - x_.low, 1.0);
    return static_cast<int>(std::clamp((static_cast<double>(x) - x_.low) / span, 0.0, 1.0) * (width_ - 1) + 0.5);
  }
  int dot_y(double value) const {
    // In halves, because the difference of the largest numbers overflows.
    const double span = y_.high / 2 - y_.low / 2;
    const double part = span > 0 ? (scaled(value) / 2 - y_.low / 2) / span : 0.5;
    return static_cast<int>((1 - std::clamp(part, 0.0, 1.0)) * (height_ - 1) + 0.5);
  }

 private:
  double scaled(double value) const { return logarithmic_ ? std::log10(value) : value; }
  bool logarithmic_;
  int width_, height_;
  Range x_, y_;
};

void draw_line(Braille& canvas, const Axes& axes, const runs::Curve& curve) {
  std::optional<runs::Curve::Point> before;
  for (const auto& column : curve.columns()) {
    if (!axes.shown(column)) continue;
    if (column.has_finite() && axes.drawable(column.greatest.y)) {
      const double least = axes.drawable(column.least.y) ? column.least.y : column.greatest.y;
      const int x = axes.dot_x(column.greatest.x);
      canvas.line(x, axes.dot_y(column.greatest.y), x, axes.dot_y(least));
    }
    if (before && axes.drawable(column.first.y))
      canvas.line(axes.dot_x(before->x), axes.dot_y(before->y), axes.dot_x(column.first.x), axes.dot_y(column.first.y));
    before = axes.drawable(column.last.y) ? std::optional(column.last) : std::nullopt;  // a gap
  }
}

void put_mark(Screen& screen, const Area& plot, const Axes& axes, const ChartLine& line, runs::Curve::Point point) {
  if (!axes.drawable(point.y) || static_cast<double>(point.x) < axes.x().low) return;
  screen.put(plot.row + axes.dot_y(point.y) / 4, plot.column + axes.dot_x(point.x) / 2, line.mark, line.style);
}

void draw_one(Screen& screen, const Area& plot, const Axes& axes, const ChartLine& line) {
  if (line.points && line.curve->columns().size() <= most_marks) return;
  Braille canvas(plot.columns, plot.rows);
  draw_line(canvas, axes, *line.curve);
  for (int row = 0; row < plot.rows; ++row)
    for (int column = 0; column < plot.columns; ++column)
      if (const auto dots = canvas.cell(column, row); !dots.empty())
        screen.put(plot.row + row, plot.column + column, dots, line.style);
}

void put_marks(Screen& screen, const Area& plot, const Axes& axes, const ChartLine& line) {
  const auto& columns = line.curve->columns();
  if (columns.empty()) return;
  const auto step = line.points ? (columns.size() + most_marks - 1) / most_marks : (columns.size() + 1) / 2;
  for (auto i = step - 1; i < columns.size(); i += step) put_mark(screen, plot, axes, line, columns[i].last);
  put_mark(screen, plot, axes, line, columns.back().last);
}

}  // namespace

void draw_chart(Screen& screen, const Area& area, const Chart& chart) {
  const int end = area.column + area.columns;
  auto title = chart.title;
  if (chart.logarithmic) title += ", log scale";
  std::uint64_t missing = 0;
  for (const auto& line : chart.lines) missing += line.curve->missing();
  if (missing > 0) title += text(" (", missing, " not finite)");
  screen.put(area.row, area.column, title, {0, true}, end - 1);  // a blank before the next chart
  if (area.columns < least_chart_columns || area.rows < least_chart_rows) return;
  const Area plot{area.row + 1, area.column + label_columns, area.rows - 2, area.columns - label_columns - 1};
  const Axes axes(chart, Braille(plot.columns, plot.rows));
  if (axes.empty()) {
    screen.put(area.row + 1, area.column + 1, "no values yet", {}, end);
    return;
  }
  for (const auto& line : chart.lines) draw_one(screen, plot, axes, line);
  if (chart.lines.size() > 1 || chart.lines.front().points)
    for (const auto& line : chart.lines) put_marks(screen, plot, axes, line);
  screen.put(plot.row, area.column, short_number(axes.high()), {}, plot.column);
  screen.put(plot.row + plot.rows - 1, area.column, short_number(axes.low()), {}, plot.column);
  const auto last = short_number(axes.x().high);
  screen.put(plot.row + plot.rows, plot.column, short_number(axes.x().low), {}, end);
  screen.put(plot.row + plot.rows, std::max(plot.column, end - 1 - static_cast<int>(last.size())), last, {}, end);
}

}  // namespace tessera::watch
