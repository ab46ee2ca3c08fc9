// Sections with drawings of their own: experts, timeline, layout.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/json.h"
#include "framework/base/number_text.h"
#include "framework/report/chart.h"
#include "framework/report/html.h"
#include "framework/report/sections.h"

namespace tessera::report {
namespace {

using runs::Curve;

constexpr std::size_t most_cells = 4000, most_steps = 100, most_spans = 3000, most_passes = 2000;
constexpr std::uint64_t largest_trace = std::uint64_t{32} << 20;
constexpr int heat_levels = 8;

std::string svg(double height, const std::string& label, const std::string& content) {
  return text("<svg class=\"drawing\" viewBox=\"0 0 ", drawing_width, " ", coordinate(height),
              "\" role=\"img\" aria-label=\"") +
         escaped(label) + "\">\n" + content + "</svg>\n";
}

std::string rectangle(const std::string& kind, double x, double y, double w, double h, const std::string& title) {
  return "<rect class=\"" + kind + "\" x=\"" + coordinate(x) + "\" y=\"" + coordinate(y) + "\" width=\"" +
         coordinate(w) + "\" height=\"" + coordinate(h) + "\"><title>" + escaped(title) + "</title></rect>";
}

std::string label(double x, double y, const std::string& words, const char* kind = "tick") {
  return "<text class=\"" + std::string(kind) + "\" x=\"" + coordinate(x) + "\" y=\"" + coordinate(y) + "\">" +
         escaped(words) + "</text>";
}

/// Items (`what`: "layer", "rank") from the top, iterations from the left, darker for greater values.
std::string heat_map(const runs::RunSeries& series, const std::string& title, const std::string& what) {
  double low = 0, high = 0;
  std::int64_t end = 1;
  bool any = false;
  for (const auto& item : series.items) {
    if (!item.has_finite()) continue;
    low = any ? std::min(low, item.least()->y) : item.least()->y;
    high = any ? std::max(high, item.greatest()->y) : item.greatest()->y;
    end = std::max(end, item.columns().back().last.x);
    any = true;
  }
  if (!any) return "";
  const auto steps = std::clamp<std::size_t>(most_cells / series.items.size(), 2, most_steps);
  const double row = std::clamp(240.0 / static_cast<double>(series.items.size()), 2.0, 18.0), left = 60;
  const double unit = (drawing_width - left - 4) / static_cast<double>(end + 1);
  std::string cells, rows;
  for (std::size_t number = 0; number < std::min(series.items.size(), most_cells / 2); ++number) {
    const auto& item = series.items[number];
    if (!item.has_finite()) continue;
    const double y = 4 + row * static_cast<double>(number);
    if (row >= 10 || number % 8 == 0) cells += label(4, y + 9, text(what, " ", number));
    const auto thin = item.thinned(steps);
    for (std::size_t c = 0; c < thin.columns().size(); ++c) {
      const auto& column = thin.columns()[c];
      if (!column.has_finite()) continue;
      const auto next = c + 1 < thin.columns().size() ? thin.columns()[c + 1].first.x : column.last.x + 1;
      const auto level =
          high > low ? static_cast<int>((column.greatest.y - low) / (high - low) * (heat_levels - 1)) : 0;
      cells += rectangle(text("heat h", std::clamp(level, 0, heat_levels - 1)),
                         left + unit * static_cast<double>(column.first.x), y,
                         std::max(unit * static_cast<double>(next - column.first.x), .3), row - .5,
                         text(what, " ", number, ", iteration ", column.first.x, ": ", shown(column.greatest.y)));
    }
    rows += table_row(std::vector<std::string>{text(number), shown(item.least()->y), shown(item.greatest()->y),
                                               shown(item.newest()->y)});
  }
  const double height = 8 + row * static_cast<double>(std::min(series.items.size(), most_cells / 2));
  return "<h4>" + escaped(title) + "</h4><p>" +
         escaped(text("Lightest ", shown(low), ", darkest ", shown(high), "; iterations 0 to ", end,
                      " from left to right.")) +
         "</p>" + svg(height, title + text(" over iterations; the table has the extremes of each ", what), cells) +
         "<details><summary>" + escaped(title) + " as a table</summary>" +
         scrolled(title, "<table><thead>" +
                             table_row(std::vector<std::string>{what, "least", "greatest", "last"}, "th") +
                             "</thead><tbody>" + rows + "</tbody></table>") +
         "</details>\n";
}

struct Span {
  double begin, end;  // microseconds
  std::string name, category;
  std::size_t depth = 0;
};

/// The newest trace of the lowest rank in the run folder's profile/.
std::optional<std::filesystem::path> trace_of(const runs::RunReader& run) {
  const auto folder = run.folder() / "profile";
  std::error_code unknown;
  if (!std::filesystem::is_directory(folder, unknown)) return std::nullopt;
  std::optional<std::pair<std::int64_t, std::filesystem::path>> lowest;
  for (const auto& one : list_folder(folder)) {
    const std::string prefix = "rank_", name = one.filename();
    std::int64_t rank = 0;
    const auto file = one / "trace.json";
    if (!name.starts_with(prefix) ||
        std::from_chars(name.data() + prefix.size(), name.data() + name.size(), rank).ec != std::errc() ||
        !std::filesystem::is_regular_file(file, unknown))
      continue;
    if (!lowest || rank < lowest->first) lowest.emplace(rank, file);
  }
  return lowest ? std::optional(lowest->second) : std::nullopt;
}

/// The spans of the first step of a trace and of the main thread, outer ones first.
std::vector<Span> spans_of_step(const Json& trace) {
  std::vector<Span> all;
  const auto* events = trace.find("traceEvents");
  if (events == nullptr || !events->is_array()) return all;
  const auto words = [](const Json& event, const char* name) {
    const auto* found = event.find(name);
    return found != nullptr && found->is_string() ? found->string() : std::string();
  };
  const auto number = [](const Json& event, const char* name) {
    const auto* found = event.find(name);
    return found != nullptr && found->is_number() ? found->number() : NAN;
  };
  for (const auto& event : *events) {
    if (words(event, "ph") != "X" || number(event, "tid") != 0) continue;
    const auto begin = number(event, "ts"), length = number(event, "dur");
    if (std::isfinite(begin) && std::isfinite(length) && length >= 0)
      all.push_back({begin, begin + length, words(event, "name"), words(event, "cat")});
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Span& a, const Span& b) { return a.begin != b.begin ? a.begin < b.begin : a.end > b.end; });
  const auto step = std::find_if(all.begin(), all.end(), [](const Span& span) { return span.name == "step"; });
  if (step == all.end()) return {};
  const auto whole = *step;
  std::erase_if(all, [&](const Span& span) { return span.begin < whole.begin || span.end > whole.end; });
  std::vector<double> open;
  for (auto& span : all) {
    while (!open.empty() && open.back() <= span.begin) open.pop_back();
    span.depth = open.size();
    open.push_back(span.end);
  }
  std::erase_if(all, [](const Span& span) { return span.depth > 7; });
  return all;
}

std::string spans_drawing(std::vector<Span> spans) {
  const auto begin = spans.front().begin, length = std::max(spans.front().end - begin, 1e-3);
  if (spans.size() > most_spans) {  // the longest
    std::stable_sort(spans.begin(), spans.end(),
                     [](const Span& a, const Span& b) { return a.end - a.begin > b.end - b.begin; });
    spans.resize(most_spans);
  }
  std::string content, rows;
  std::size_t deepest = 0;
  for (const auto& span : spans) {
    const double x = (span.begin - begin) / length * drawing_width,
                 w = (span.end - span.begin) / length * drawing_width;
    const double y = 2 + 20 * static_cast<double>(span.depth);
    deepest = std::max(deepest, span.depth);
    const auto milliseconds = shown((span.end - span.begin) / 1000);
    const auto kind = span.category == "communication" || span.category == "data" ? span.category
                      : span.category == "phase"                                  ? "phase"
                                                                                  : "inner";
    content += rectangle("span " + kind, x, y, std::max(w, .3), 18, text(span.name, ": ", milliseconds, " ms"));
    if (w > 7 * static_cast<double>(span.name.size()) + 8 || w > 90)
      content += label(x + 4, y + 13, span.name.substr(0, static_cast<std::size_t>(w / 7)), "span-name");
    if (span.depth <= 1)
      rows += table_row(std::vector<std::string>{span.name, shown((span.begin - begin) / 1000), milliseconds});
  }
  return svg(24 + 20 * static_cast<double>(deepest), "Timeline of one step; its phases are in the table below",
             content) +
         "<details><summary>Phases of the step as a table</summary>" +
         scrolled("Phases of the step",
                  "<table><thead>" + table_row(std::vector<std::string>{"phase", "begin, ms", "length, ms"}, "th") +
                      "</thead><tbody>" + rows + "</tbody></table>") +
         "</details>\n";
}

/// A bar of the mean time of a step, by what is known of it without a trace.
std::string step_summary(const runs::RunReader& run) {
  const auto* steps = run.curve("step_seconds");
  if (steps == nullptr || !steps->has_finite()) return "";
  const auto last = [&run](const char* key) {
    const auto* curve = run.curve(key);
    return curve == nullptr || !std::isfinite(curve->newest()->y) ? 0.0 : curve->newest()->y;
  };
  const double whole = last("step_seconds");
  if (!(whole > 0)) return "";
  double x = 0;
  std::string content, rows;
  const auto add = [&](const char* name, const char* kind, double seconds) {
    if (!(seconds > 0)) return;
    const auto w = std::min(seconds / whole, 1.0) * drawing_width;
    content += rectangle(text("span ", kind), x, 2, w, 24, text(name, ": ", shown(seconds), " s"));
    if (w > 120) content += label(x + 6, 18, name, "span-name");
    x += w;
    rows += table_row(std::vector<std::string>{name, shown(seconds), percent_text(seconds / whole)});
  };
  const auto data = last("data_wait_seconds"), exposed = last("exposed_communication_seconds");
  add("waiting for data", "data", data);
  add("exposed communication", "communication", exposed);
  add("computation", "phase", whole - data - exposed);
  return "<p>The last logged step; a trace of <code>training_config.profile</code> shows its phases.</p>" +
         svg(30, "Parts of a step; the table has their times", content) +
         scrolled("Parts of the step", "<table><thead>" +
                                           table_row(std::vector<std::string>{"part", "seconds", "of the step"}, "th") +
                                           "</thead><tbody>" + rows + "</tbody></table>");
}

std::string timeline_of(const runs::RunReader& run) {
  const auto file = trace_of(run);
  if (!file) return step_summary(run);
  std::error_code unknown;
  if (std::filesystem::file_size(*file, unknown) > largest_trace)
    return "<p>" + escaped(text("The trace ", file->string(), " has more than 32 MiB; open it with a trace viewer.")) +
           "</p>" + step_summary(run);
  const auto spans = spans_of_step(parse_json(read_file(*file)));
  if (spans.empty())
    return "<p>" + escaped(text("The trace ", file->string(), " has no step that can be read.")) + "</p>" +
           step_summary(run);
  return "<p>" + escaped(text("One step, from ", file->string(), ":")) + "</p>" + spans_drawing(spans);
}

std::string schedule_drawing(const parallel::PipelineShape& shape, const std::vector<std::vector<double>>& costs) {
  if (shape.stages * shape.chunks * shape.micro_batches * 2 > static_cast<std::int64_t>(most_passes))
    return "<p>The schedule of a step has too many passes to be drawn.</p>";
  const auto schedule = parallel::PipelineSchedule::training(shape);
  const auto times = parallel::simulate(schedule, costs);
  const double left = 60, row = 26, unit = (drawing_width - left - 4) / std::max(times.end, 1e-12);
  std::string content;
  for (std::int64_t stage = 0; stage < shape.stages; ++stage) {
    const double y = 4 + row * static_cast<double>(stage);
    content += label(4, y + 15, text("stage ", stage));
    const auto& actions = schedule.of_stage(stage);
    for (std::size_t i = 0; i < actions.size(); ++i) {
      const auto& span = times.spans[static_cast<std::size_t>(stage)][i];
      const bool forward = actions[i].kind == parallel::PipelineAction::Kind::forward;
      const double x = left + span.begin * unit, w = (span.end - span.begin) * unit;
      content += rectangle(forward ? "span phase" : "span backward", x, y, std::max(w - .5, .3), row - 4,
                           text(forward ? "forward" : "backward", " pass of micro-batch ", actions[i].micro_batch,
                                shape.chunks > 1 ? text(", chunk ", actions[i].chunk) : ""));
      if (w > 18) content += label(x + 3, y + 15, text(forward ? "f" : "B", actions[i].micro_batch), "span-name");
    }
  }
  return "<p>" +
         escaped(text("One step of the pipeline as simulated: f forward, B backward passes; bubble ",
                      percent_text(times.bubble()), ".")) +
         "</p>" +
         svg(8 + row * static_cast<double>(shape.stages), "Schedule of the pipeline; the text above has its figures",
             content);
}

}  // namespace

std::string experts_section(const Page& page) {
  std::string all;
  for (std::size_t i = 0; i < page.runs.size(); ++i) {
    std::string maps;
    const std::pair<const char*, const char*> keys[] = {{"most_load", "Load of the most loaded expert (1: balanced)"},
                                                        {"least_load", "Load of the least loaded expert"},
                                                        {"dropped_share", "Fraction of dropped choices"}};
    for (const auto& [key, title] : keys)
      if (const auto* series = page.runs[i].reader->find(key); series != nullptr && !series->items.empty())
        maps += heat_map(*series, title, "layer");
    if (!maps.empty()) all += run_heading(page, i) + maps;
  }
  return all.empty() ? "" : section("experts", "Experts", all);
}

std::string timeline_section(const Page& page) {
  std::string all;
  for (std::size_t i = 0; i < page.runs.size(); ++i) {
    auto drawn = timeline_of(*page.runs[i].reader);
    if (const auto* ranks = page.runs[i].reader->find("rank_seconds"); ranks != nullptr && ranks->items.size() > 1)
      drawn += heat_map(*ranks, "Median time of a step on each rank, in seconds, without waiting", "rank");
    if (!drawn.empty()) all += run_heading(page, i) + drawn;
  }
  return all.empty() ? "" : section("timeline", "Time of a step", all);
}

std::string layout_section(const Page& page) {
  std::string all;
  for (std::size_t i = 0; i < page.runs.size(); ++i) {
    const auto& run = page.runs[i];
    if (!run.layout && run.no_layout.empty()) continue;
    all += run_heading(page, i);
    if (!run.no_layout.empty()) all += "<p>" + escaped("The layout is not known: " + run.no_layout) + "</p>";
    if (!run.layout) continue;
    all += scrolled(text("Layout of run ", i + 1), "<pre>" + escaped(run.layout->words) + "</pre>");
    if (run.layout->pipeline) all += schedule_drawing(*run.layout->pipeline, run.layout->costs);
  }
  return all.empty() ? "" : section("layout", "Layout", all);
}

}  // namespace tessera::report
