#include "framework/report/chart.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <functional>
#include <optional>
#include <set>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/number_text.h"
#include "framework/report/html.h"

namespace tessera::report {
namespace {

using runs::Curve;

// Of the drawing, in units of its view box, which page.js has, too.
constexpr double height = 280, left = 70, right = 26, top = 18, bottom = 30;
constexpr std::size_t drawn_columns = 240, table_rows = 40, most_charts = 60, dashes = 8;
constexpr std::array<std::string_view, 16> markers = {"●", "■", "▲", "◆", "✚", "✖", "▼", "★",
                                                      "○", "□", "△", "◇", "⊕", "⊗", "▽", "☆"};

struct Subject {
  const char *title, *unit;
  std::vector<const char*> keys;  ///< a trailing * takes any rest
};

const std::vector<Subject>& subjects() {
  static const std::vector<Subject> all = {
      {"Loss", "", {"loss", "validation_loss*", "final_validation_loss*", "test_loss*"}},
      {"Auxiliary losses", "", {"load_balancing_loss", "z_loss", "mtp_*"}},
      {"Rewards", "", {"rewards/*", "validation_rewards/*", "final_validation_rewards/*", "test_rewards/*"}},
      {"Gradient norm", "", {"grad_norm"}},
      {"Learning rate", "", {"learning_rate"}},
      {"Weight decay", "", {"weight_decay"}},
      {"Loss scale", "", {"loss_scale"}},
      {"Skipped steps", "1: skipped", {"skipped"}},
      {"Throughput", "tokens/s", {"tokens_per_second"}},
      {"Model FLOP/s utilization", "fraction", {"model_flops_utilization"}},
      {"Time of a step",
       "seconds",
       {"step_seconds", "data_wait_seconds", "fastest_rank_seconds", "slowest_rank_seconds",
        "exposed_communication_seconds"}},
      {"Slowest rank", "", {"slowest_rank"}},
      {"Memory of rank 0",
       "bytes",
       {"memory_bytes", "weight_bytes", "gradient_bytes", "optimizer_bytes", "activation_bytes", "workspace_bytes",
        "message_bytes"}}};
  return all;
}

bool fits(const std::string& key, std::string_view pattern) {
  if (pattern.back() != '*') return key == pattern;
  pattern.remove_suffix(1);
  return key.compare(0, pattern.size(), pattern) == 0;
}

/// Multiples of 1, 2 or 5 times a power of ten between both ends.
std::vector<double> ticks(double low, double high, int about) {
  const double rough = (high - low) / about, power = std::pow(10, std::floor(std::log10(rough)));
  const double step = power * (rough / power <= 1.5 ? 1 : rough / power <= 3.5 ? 2 : rough / power <= 7.5 ? 5 : 10);
  std::vector<double> all;
  for (double at = std::ceil(low / step); at * step <= high && all.size() < 30; ++at) all.push_back(at * step);
  return all;
}

/// The ranges of a chart's axes.
struct Frame {
  double x0 = 0, x1 = 1, y0 = 0, y1 = 1;
  double x(double value) const { return left + (value - x0) / (x1 - x0) * (drawing_width - left - right); }
  double y(double value) const { return height - bottom - (value - y0) / (y1 - y0) * (height - top - bottom); }
};

Frame frame_of(const std::vector<ChartLine>& lines) {
  Frame frame;
  bool first_x = true, first_y = true;
  const auto reach = [](double& low, double& high, bool& first, double value) {
    low = first ? value : std::min(low, value);
    high = first ? value : std::max(high, value);
    first = false;
  };
  for (const auto& line : lines)
    for (const auto& column : line.curve->columns()) {
      reach(frame.x0, frame.x1, first_x, static_cast<double>(column.first.x));
      reach(frame.x0, frame.x1, first_x, static_cast<double>(column.last.x));
      if (!column.has_finite()) continue;
      reach(frame.y0, frame.y1, first_y, column.least.y);
      reach(frame.y0, frame.y1, first_y, column.greatest.y);
    }
  if (!(frame.x1 > frame.x0)) frame.x1 = frame.x0 + 1;
  auto margin = frame.y1 / 20 - frame.y0 / 20;
  if (!(margin > std::abs(frame.y1) * 1e-12)) margin = frame.y1 == 0 ? 1 : std::abs(frame.y1) / 10;
  // Values up to 1e308 are drawn, too.
  frame.y0 = std::max(frame.y0 - margin, -8e307);
  frame.y1 = std::min(frame.y1 + margin, 8e307);
  return frame;
}

std::string line_svg(const ChartLine& line, const Frame& frame) {
  const auto curve = line.curve->thinned(drawn_columns);
  const auto style = line_class(line.look);
  std::string points, gaps, dots;
  bool open = false;
  const auto add = [&](const Curve::Point& point) {
    if (!std::isfinite(point.y)) return;
    points +=
        (open ? "L" : "M") + coordinate(frame.x(static_cast<double>(point.x))) + " " + coordinate(frame.y(point.y));
    open = true;
  };
  const bool few = curve.columns().size() <= 30;
  for (const auto& column : curve.columns()) {
    if (column.missing > 0) {
      const auto x = frame.x(static_cast<double>(column.first.x));
      gaps += "M" + coordinate(x - 3) + " " + coordinate(top - 3) + "l6 6m0 -6l-6 6";
      if (!column.has_finite()) open = false;
    }
    if (!column.has_finite()) continue;
    const bool low_first = column.least.x <= column.greatest.x;
    add(column.first);
    if (column.count > 1) {
      add(low_first ? column.least : column.greatest);
      add(low_first ? column.greatest : column.least);
      add(column.last);
    }
    if (few && std::isfinite(column.last.y))
      dots += "<text class=\"tick middle dots " + style + "\" x=\"" +
              coordinate(frame.x(static_cast<double>(column.last.x))) + "\" y=\"" +
              coordinate(frame.y(column.last.y) + 3.5) + "\">" + std::string(line_marker(line.marker)) + "</text>";
  }
  std::string all = "<path class=\"line " + style + "\" d=\"" + points + "\"/>";
  all += dots;
  if (!gaps.empty()) all += "<path class=\"gap " + style + "\" d=\"" + gaps + "\"/>";
  return all + "\n";
}

/// Of a value beside the y axis: at most eight characters, as curves.js writes it.
std::string tick_text(double value) {
  char digits[40];
  std::snprintf(digits, sizeof digits, std::abs(value) >= 1e6 ? "%.3g" : "%.6g", value);
  std::string words = digits;
  for (const std::string_view useless : {"+", "e0"})
    if (const auto at = words.find(useless); at != std::string::npos && at > 0) words.erase(at + useless.size() - 1, 1);
  return words;
}

std::string axes_svg(const Frame& frame) {
  std::string all;
  for (const double value : ticks(frame.y0, frame.y1, 5)) {
    const auto y = coordinate(frame.y(value));
    all += "<path class=\"grid\" d=\"M" + coordinate(left) + " " + y + "H" + coordinate(drawing_width - right) +
           "\"/><text class=\"tick end\" x=\"" + coordinate(left - 6) + "\" y=\"" + y + "\" dy=\"4\">" +
           escaped(tick_text(value)) + "</text>";
  }
  for (const double value : ticks(frame.x0, frame.x1, 6))
    all += "<text class=\"tick middle\" x=\"" + coordinate(frame.x(value)) + "\" y=\"" + coordinate(height - 10) +
           "\">" + escaped(shown(value)) + "</text>";
  return all + "<path class=\"axis\" d=\"M" + coordinate(left) + " " + coordinate(top) + "V" +
         coordinate(height - bottom) + "H" + coordinate(drawing_width - right) + "\"/>\n";
}

/// A letter or digit stays itself, another byte becomes _ and its two hexadecimal digits: different keys stay
/// different.
std::string chart_id(std::string_view key) {
  std::string id = "chart-";
  for (const char sign : key) {
    const auto byte = static_cast<unsigned char>(sign);
    constexpr std::string_view digits = "0123456789abcdef";
    if (byte < 128 && std::isalnum(byte) != 0)
      id += sign;
    else
      id += {'_', digits[byte >> 4U], digits[byte & 15U]};
  }
  return id;
}

std::string range_text(const Curve::Column& column) {
  return column.first.x == column.last.x ? text(column.first.x) : text(column.first.x, " to ", column.last.x);
}

}  // namespace

std::string line_class(std::size_t look) { return text("s", look % dashes, " t", look / dashes % 2); }

std::string_view line_marker(std::size_t marker) { return markers[marker % markers.size()]; }

std::string shown(double value) {
  if (!std::isfinite(value)) return "not finite";
  char digits[40];
  const auto size = std::abs(value);
  std::snprintf(digits, sizeof digits, size >= 1e6 && size < 1e15 && value == std::floor(value) ? "%.0f" : "%.6g",
                value);
  return digits;
}

ChartList charts_of(const std::vector<const runs::RunReader*>& runs) {
  std::vector<std::string> keys;
  for (const auto* run : runs)
    for (const auto& series : run->series())
      if (series.curve.count() > 0 && std::find(keys.begin(), keys.end(), series.key) == keys.end())
        keys.push_back(series.key);
  std::set<std::string> taken = {"iteration", "consumed_samples", "consumed_tokens", "sample_chain"};
  ChartList list;
  auto& charts = list.charts;
  for (const auto& subject : subjects()) {
    ChartSpec chart{chart_id(subject.keys.front()), subject.title, subject.unit, {}};
    for (const auto* pattern : subject.keys)
      for (const auto& key : keys)
        if (fits(key, pattern) && taken.insert(key).second) chart.keys.push_back(key);
    if (!chart.keys.empty()) charts.push_back(std::move(chart));
  }
  for (const auto& key : keys) {
    if (!taken.insert(key).second) continue;
    if (charts.size() < most_charts)
      charts.push_back({chart_id(key), key, "", {key}});
    else
      ++list.left_out;
  }
  return list;
}

std::string mark_title(const ChartMark& mark) {
  return mark.is_told ? text(mark.kind, " at ", mark.iteration) : mark.kind + " (iteration unknown)";
}

bool is_failure(std::string_view kind) { return kind == "failed" || kind == "save_failed"; }

std::string chart_svg(const ChartSpec& chart, const std::vector<ChartLine>& lines,
                      const std::vector<ChartMark>& marks) {
  const auto frame = frame_of(lines);
  std::string all = text("<svg viewBox=\"0 0 ", drawing_width, " ", height, "\" role=\"img\" aria-label=\"") +
                    escaped(chart.title + " over iterations; the values are in the table below") + "\">\n" +
                    axes_svg(frame);
  for (const auto& mark : marks) {
    const auto at = static_cast<double>(mark.iteration);
    if (at < frame.x0 || at > frame.x1) continue;
    all += "<path class=\"mark " + std::string(is_failure(mark.kind) ? "bad" : "plain") + "\" d=\"M" +
           coordinate(frame.x(at)) + " " + coordinate(top) + "V" + coordinate(height - bottom) + "\"><title>" +
           escaped(mark_title(mark)) + "</title></path>";
  }
  for (const auto& line : lines) all += line_svg(line, frame);
  return all + "</svg>";
}

std::string chart_legend(const std::vector<ChartLine>& lines) {
  std::string all = "<ul class=\"legend\">";
  for (const auto& line : lines)
    all += text("<li><i class=\"shape\" aria-hidden=\"true\">", line_marker(line.marker),
                "</i><svg viewBox=\"0 0 34 10\" aria-hidden=\"true\"><path class=\"line ", line_class(line.look),
                "\" d=\"M1 5H33\"/></svg> ") +
           escaped(line.label) +
           (line.curve->missing() > 0 ? escaped(text(" (", line.curve->missing(), " not finite)")) : "") + "</li>";
  return all + "</ul>\n";
}

std::string chart_table(const ChartSpec& chart, const std::vector<ChartLine>& lines) {
  std::string all;
  for (const auto& line : lines) {
    const auto curve = line.curve->thinned(table_rows);
    const bool exact = curve.width() == 1;
    all +=
        "<table><caption>" + escaped(line.label) + "</caption><thead>" +
        (exact ? table_row(std::vector<std::string>{"iteration", "value"}, "th")
               : table_row(std::vector<std::string>{"iterations", "first", "least", "greatest", "last", "not finite"},
                           "th")) +
        "</thead><tbody>\n";
    for (const auto& column : curve.columns()) {
      const auto finite = [&column](double value) { return column.has_finite() ? shown(value) : "-"; };
      all += exact ? table_row(std::vector<std::string>{range_text(column), shown(column.last.y)})
                   : table_row(std::vector<std::string>{range_text(column), shown(column.first.y),
                                                        finite(column.least.y), finite(column.greatest.y),
                                                        shown(column.last.y), text(column.missing)});
    }
    all += "</tbody></table>\n";
  }
  return "<details><summary>Values of " + escaped(chart.title) + " as a table</summary>" +
         scrolled("Values of " + chart.title, all) + "</details>\n";
}

std::string curve_json(const Curve& curve, std::size_t most_columns) {
  const auto thin = curve.thinned(most_columns);
  std::string all = "[";
  const auto point = [&all](const Curve::Point& one) { all += text(one.x, ",") + json_number(one.y) + ","; };
  for (const auto& column : thin.columns()) {
    all += all.size() > 1 ? ",[" : "[";
    point(column.first);
    if (column.count > 1) {
      const auto nothing = Curve::Point{column.first.x, NAN};
      point(column.has_finite() ? column.least : nothing);
      point(column.has_finite() ? column.greatest : nothing);
      point(column.last);
      all += text(column.count, ",", column.missing, ",");
    }
    all.back() = ']';
  }
  return all + "]";
}

}  // namespace tessera::report
