#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "framework/runs/run_reader.h"

namespace tessera::report {

/// One chart of the page: some keys of metrics.jsonl over the iterations.
struct ChartSpec {
  std::string id;     ///< "chart-loss": unique in the page, the same for the same subject or key, of our own characters
  std::string title;  ///< "Loss"
  std::string unit;   ///< "tokens/s"; empty: none
  std::vector<std::string> keys;
};

/// The charts of a page.
struct ChartList {
  std::vector<ChartSpec> charts;
  std::size_t left_out = 0;  ///< keys that have no chart because there would be too many
};
/// The charts for the keys that the runs have: known keys by subject, each unknown key in a chart of its own.
ChartList charts_of(const std::vector<const runs::RunReader*>& runs);

/// A curve of a chart.
struct ChartLine {
  std::string label;  ///< the key, after the run's letter if there are several runs
  const runs::Curve* curve;
  std::size_t look = 0;    ///< see line_class
  std::size_t marker = 0;  ///< see line_marker
};

/// Classes of page.css for colour and dash pattern (s0 to s7) and width (t0, t1): of 16 consecutive numbers all differ.
std::string line_class(std::size_t look);
/// The character on the points of a line; of 16 consecutive numbers all differ.
std::string_view line_marker(std::size_t marker);

/// A vertical line of an event.
struct ChartMark {
  std::int64_t iteration;
  std::string kind;        ///< any characters
  std::string words = {};  ///< what else the event says, any characters
  bool is_told = true;     ///< false: the event does not tell its iteration, this one is near it
};
/// "failed at 12", or "failed (iteration unknown)".
std::string mark_title(const ChartMark& mark);
/// Whether the line of this kind of event is solid.
bool is_failure(std::string_view kind);

/// The chart as SVG for readers without the script, which draws it again: each line through the first, least, greatest
/// and last point of columns, with a cross on the upper edge where values are missing.
std::string chart_svg(const ChartSpec& chart, const std::vector<ChartLine>& lines, const std::vector<ChartMark>& marks);
/// The legend, and the values as a table in <details>, in at most 40 rows.
std::string chart_legend(const std::vector<ChartLine>& lines);
std::string chart_table(const ChartSpec& chart, const std::vector<ChartLine>& lines);

/// A curve for the script: [[x, y], ...] for columns of one point; of others [first x, y, least x, y, greatest x, y,
/// last x, y, count, missing]. Values that are not finite are null.
std::string curve_json(const runs::Curve& curve, std::size_t most_columns);

/// "1 234 567" and "3.142e-05": at most 6 significant digits.
std::string shown(double value);

}  // namespace tessera::report
