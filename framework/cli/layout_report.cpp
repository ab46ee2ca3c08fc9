#include "framework/cli/layout_report.h"

#include <algorithm>
#include <iomanip>
#include <iostream>
#include <iterator>
#include <sstream>

#include "framework/base/number_text.h"

namespace tessera::cli {
namespace {

constexpr std::size_t widest_drawing = 150, most_rows = 1024;
constexpr std::int64_t most_simulated = 200'000;  // passes of a step whose schedule is played through

/// A table whose columns are as wide as their widest cell; the last one stands to the left.
std::string table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths(rows[0].size(), 0);
  for (const auto& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string all;
  for (const auto& row : rows) {
    for (std::size_t i = 0; i + 1 < row.size(); ++i) {
      all.append(widths[i] - row[i].size() + 2, ' ');
      all += row[i];
    }
    all += text("  ", row.back(), "\n");
  }
  return all;
}

std::string ranks_table(const recipe::LayoutFigures& f, std::int64_t ranks_per_host) {
  std::vector<std::vector<std::string>> rows = {
      {"rank", "tensor", "pipeline", "data", "parameters", "state bytes", "layers"}};
  const bool shares = f.mesh.sizes().context > 1;
  if (shares) rows[0].insert(rows[0].begin() + 2, "context");
  if (ranks_per_host > 0) rows[0].insert(rows[0].begin() + 1, "host");
  for (std::size_t rank = 0; rank < std::min(f.ranks.size(), most_rows); ++rank) {
    const auto& r = f.ranks[rank];
    rows.push_back({text(rank), text(r.place.tensor), text(r.place.pipeline), text(r.place.data), grouped(r.parameters),
                    grouped(r.state.all()), recipe::layers_told(f.plan, r.place.pipeline)});
    if (shares) rows.back().insert(rows.back().begin() + 2, text(r.place.context));
    if (ranks_per_host > 0)
      rows.back().insert(rows.back().begin() + 1, text(static_cast<std::int64_t>(rank) / ranks_per_host));
  }
  auto all = table(rows);
  if (f.ranks.size() > most_rows)
    all += text("  and ", grouped(static_cast<std::int64_t>(f.ranks.size() - most_rows)),
                " ranks more, each with the figures of its stage\n");
  return all;
}

std::string pipeline_report(const recipe::LayoutFigures& f) {
  const auto& shape = f.shape;
  std::string all = text("pipeline of ", shape.stages, " stages",
                         shape.chunks > 1 ? text(" x ", shape.chunks, " chunks, interleaved, ") : ", 1F1B, ",
                         shape.micro_batches, " micro-batch", shape.micro_batches == 1 ? "" : "es", "\n");
  const auto ideal = text("  bubble  ", percent_text(parallel::ideal_bubble(shape)), " = ",
                          parallel::ideal_bubble_formula(shape), " of the time for equal chunks");
  if (shape.stages * shape.chunks > most_simulated / shape.micro_batches) return all + ideal + "\n";
  const auto schedule = parallel::PipelineSchedule::training(shape);
  all += text(ideal, "; ", percent_text(f.bubble()), " by the sizes of their weights\n");
  all += "  held    ";
  for (std::int64_t p = 0; p < shape.stages; ++p) all += text(p == 0 ? "" : ", ", schedule.most_in_flight(p));
  all += shape.chunks > 1 ? " micro-batches times chunks at once\n" : " micro-batches at once\n";
  const auto drawn = parallel::drawing(schedule, widest_drawing);
  std::istringstream lines(drawn);
  for (std::string line; std::getline(lines, line);) all += text("  ", line, "\n");
  return all;
}

}  // namespace

std::string grouped(std::int64_t number) {
  auto digits = std::to_string(number);
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<std::size_t>(at), 1, ' ');
  return digits;
}

std::string bytes(std::int64_t count) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double size = static_cast<double>(count);
  std::size_t unit = 0;
  for (; size >= 1024 && unit + 1 < std::size(units); ++unit) size /= 1024;
  std::ostringstream out;
  out << std::fixed << std::setprecision(unit == 0 ? 0 : 2) << size << " " << units[unit];
  if (unit > 0) out << " (" << grouped(count) << " bytes)";
  return out.str();
}

void print_line(const std::string& name, const std::string& value) {
  std::cout << "  " << std::left << std::setw(34) << name << std::right << value << "\n";
}

std::string layout_report(const recipe::LayoutFigures& f, std::int64_t ranks_per_host) {
  const auto& sizes = f.mesh.sizes();
  const auto pipeline = text("pipeline ", sizes.pipeline), data = text("data ", sizes.data);
  std::string all = text("layout of ", sizes.world(), " ranks: tensor ", sizes.tensor, " x ",
                         sizes.context > 1 ? text("context ", sizes.context, " x ") : "",
                         sizes.pipeline_before_data ? pipeline : data, " x ",
                         sizes.pipeline_before_data ? data : pipeline, ", neighbours first\n");
  all += ranks_table(f, ranks_per_host);
  if (sizes.pipeline > 1) all += pipeline_report(f);
  return all;
}

}  // namespace tessera::cli
