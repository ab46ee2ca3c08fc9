#include "framework/cli/layout_report.h"

#include <algorithm>
#include <functional>
#include <iomanip>
#include <iostream>
#include <iterator>
#include <sstream>

#include "framework/base/memory_limit.h"
#include "framework/base/number_text.h"

namespace tessera::cli {
namespace {

constexpr std::size_t widest_drawing = 150, most_rows = 1024;
// Maximum number of passes in one step for which the schedule is simulated.
constexpr std::int64_t most_simulated = 200'000;

/// A table whose columns are as wide as their widest cell; the last column is left-aligned.
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

/// A column of the table of ranks.
struct Column {
  const char* name;
  std::function<std::string(int rank, const recipe::RankFigures& figures)> told;
};

std::vector<Column> columns(const recipe::LayoutFigures& f, std::int64_t ranks_per_host) {
  const auto& sizes = f.mesh.sizes();
  std::vector<Column> all = {{"rank", [](int rank, const auto&) { return text(rank); }}};
  const auto add = [&](bool there, const Column& column) {
    if (there) all.push_back(column);
  };
  add(ranks_per_host > 0, {"host", [=](int rank, const auto&) { return text(rank / ranks_per_host); }});
  add(true, {"tensor", [](int, const auto& r) { return text(r.place.tensor); }});
  add(sizes.context > 1, {"context", [](int, const auto& r) { return text(r.place.context); }});
  add(true, {"pipeline", [](int, const auto& r) { return text(r.place.pipeline); }});
  add(true, {"data", [](int, const auto& r) { return text(r.place.data); }});
  if (f.experts > 0) {
    add(sizes.sharers_of_expert() > 1,
        {"expert tensor", [&f](int rank, const auto&) { return text(f.mesh.expert_place_of(rank).expert_tensor); }});
    add(true, {"expert", [&f](int rank, const auto&) { return text(f.mesh.expert_place_of(rank).expert); }});
    add(true, {"experts", [&f, held = f.experts / sizes.expert](int rank, const auto&) {
                 const auto first = f.mesh.expert_place_of(rank).expert * held;
                 return held == 1 ? text(first) : text(first, "-", first + held - 1);
               }});
  }
  add(true, {"parameters", [](int, const auto& r) { return grouped(r.parameters); }});
  add(true, {"state bytes", [](int, const auto& r) { return grouped(r.state.all()); }});
  add(true, {"layers", [&f](int, const auto& r) { return recipe::layers_told(f.plan, r.place.pipeline); }});
  return all;
}

std::string ranks_table(const recipe::LayoutFigures& f, std::int64_t ranks_per_host) {
  const auto all_columns = columns(f, ranks_per_host);
  std::vector<std::vector<std::string>> rows(1);
  for (const auto& column : all_columns) rows[0].emplace_back(column.name);
  for (std::size_t rank = 0; rank < std::min(f.ranks.size(), most_rows); ++rank) {
    auto& row = rows.emplace_back();
    for (const auto& column : all_columns) row.push_back(column.told(static_cast<int>(rank), f.ranks[rank]));
  }
  auto all = table(rows);
  if (f.ranks.size() > most_rows)
    all += text("  and ", grouped(static_cast<std::int64_t>(f.ranks.size() - most_rows)),
                " ranks more, each with the figures of its stage\n");
  return all;
}

std::string work_report(const recipe::LayoutFigures& f) {
  std::string all;
  for (const auto flops : f.flops) all += (all.empty() ? "  work    " : ", ") + operations(flops);
  return all + " operations of each stage in a step\n";
}

std::string pipeline_report(const recipe::LayoutFigures& f) {
  const auto& shape = f.shape;
  std::string all =
      text("pipeline of ", shape.stages, " stages",
           shape.chunks > 1 ? text(" x ", shape.chunks, " chunks, interleaved, ") : ", 1F1B, ", shape.micro_batches,
           " micro-batch", shape.micro_batches == 1 ? "" : "es", "\n", work_report(f));
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

std::string operations(double flops) {
  std::ostringstream out;
  out << std::setprecision(3) << flops;
  return out.str();
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
  if (f.experts > 0)
    all += text("experts of a stage: expert tensor ", sizes.sharers_of_expert(), " x expert ", sizes.expert, " x data ",
                sizes.expert_data(), ", neighbours first\n");
  all += ranks_table(f, ranks_per_host);
  if (sizes.pipeline > 1) all += pipeline_report(f);
  return all;
}

std::string memory_report(const std::vector<recipe::MemoryNeed>& needs) {
  const bool several = needs.size() > 1;
  std::string all = text("memory of ", several ? "a rank of each stage" : "a rank", " at its peak, in bytes\n");
  std::vector<std::vector<std::string>> rows(1, {"stage"});
  for (const auto& part : needs.front().parts) rows[0].push_back(part.name);
  rows[0].emplace_back("together");
  for (std::size_t stage = 0; stage < needs.size(); ++stage) {
    auto& row = rows.emplace_back(1, text(stage));
    for (const auto& part : needs[stage].parts) row.push_back(grouped(part.bytes));
    row.push_back(in_binary_units(static_cast<double>(needs[stage].bytes())) +
                  (needs[stage].complete ? "" : " at least"));
  }
  if (!several)
    for (auto& row : rows) row.erase(row.begin());
  all += table(rows);
  for (std::size_t stage = 0; stage < needs.size(); ++stage) {
    const auto& need = needs[stage];
    const auto who = several ? text("  stage ", stage, ": ") : std::string("  ");
    if (need.in_files > 0)
      all += text(who,
                  "weights mapped from files, shared by the ranks of a host, not counted above: ", bytes(need.in_files),
                  "\n");
    if (!need.not_foreseen.empty()) all += text(who, need.not_foreseen, "\n");
    if (const auto& [least, most] = need.activations_by_choices; most > 0)
      all += text(who, "activations ", bytes(least), " if all tokens choose experts of other ranks, ", bytes(most),
                  " if all choose experts of this rank; above, if they are spread evenly\n");
  }
  return all;
}

}  // namespace tessera::cli
