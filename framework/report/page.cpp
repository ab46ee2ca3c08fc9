#include "framework/report/page.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/json.h"
#include "framework/report/chart.h"
#include "framework/report/event_marks.h"
#include "framework/report/html.h"
#include "framework/report/page_files.h"
#include "framework/report/sections.h"

namespace tessera::report {
namespace {

// So that the data of all curves has about 1.6 MB: a column of several points takes about 110 bytes.
constexpr std::size_t data_bytes = 1'600'000, column_bytes = 110, fewest_columns = 16, most_columns = 1000;
// Marks: of a run in the data of the script, and of all runs in the drawings without script.
constexpr std::size_t drawn_lines = 32, most_marks = 200;

std::string_view page_file(std::string_view name) {
  for (const auto& file : page_files())
    if (file.name == name) return file.text;
  throw BugError(text("the page's file ", name, " is not in the program"));
}

std::vector<const runs::RunReader*> readers(const Page& page) {
  std::vector<const runs::RunReader*> all;
  for (const auto& run : page.runs) all.push_back(run.reader);
  return all;
}

/// A line, and where its curve comes from.
struct KeyedLine {
  ChartLine line;
  std::size_t run;
  std::string key;
};

std::vector<KeyedLine> lines_of(const ChartSpec& chart, const Page& page) {
  const bool several = page.runs.size() > 1;
  std::vector<KeyedLine> lines;
  for (std::size_t i = 0; i < page.runs.size(); ++i)
    for (std::size_t k = 0; k < chart.keys.size(); ++k) {
      const auto& key = chart.keys[k];
      const auto* curve = page.runs[i].reader->curve(key);
      if (curve == nullptr) continue;
      const auto [look, marker] = several ? look_among_runs(i, k) : look_among_keys(k);
      lines.push_back({{several ? text(run_letter(i), " ", key) : key, curve, look, marker}, i, key});
    }
  return lines;
}

std::vector<ChartMark> marks_of(const Page& page) {
  std::vector<ChartMark> marks;
  for (const auto& run : page.runs)
    for (auto& mark : event_marks(*run.reader, std::max<std::size_t>(most_marks / page.runs.size(), 1)))
      marks.push_back(std::move(mark));
  return marks;
}

std::string figures(const Page& page, const std::vector<ChartSpec>& charts) {
  std::string all;
  const auto marks = marks_of(page);
  for (const auto& chart : charts) {
    std::vector<ChartLine> lines;
    for (auto& keyed : lines_of(chart, page)) lines.push_back(std::move(keyed.line));
    const auto title = chart.unit.empty() ? chart.title : text(chart.title, ", ", chart.unit);
    auto legend = chart_legend(lines);
    if (lines.size() > drawn_lines) {
      legend += text("<p>The table, and without script the drawing, has the first ", drawn_lines, " of ", lines.size(),
                     " curves.</p>\n");
      lines.resize(drawn_lines);
    }
    all += "<figure class=\"chart\" id=\"" + chart.id + "\"><figcaption>" + escaped(title) +
           "</figcaption>\n<div class=\"plot\">" + chart_svg(chart, lines, marks) + "</div>\n" + legend +
           chart_table(chart, lines) + "</figure>\n";
  }
  return section("curves", "Curves", all.empty() ? "<p>There are no metrics yet.</p>" : all);
}

std::size_t columns_for(const Page& page) {
  std::size_t curves = 0;
  for (const auto& run : page.runs)
    for (const auto& series : run.reader->series()) curves += series.curve.count() > 0 ? 1 : 0;
  return std::clamp(data_bytes / column_bytes / std::max<std::size_t>(curves + page.runs.size(), 1), fewest_columns,
                    most_columns);
}

std::string events_json(const runs::RunReader& run) {
  std::string all = "[";
  for (const auto& mark : event_marks(run, most_marks))
    all += text(all.size() > 1 ? ",[" : "[", mark.iteration, ",", is_failure(mark.kind) ? "1" : "0", ",",
                json_quoted(mark_title(mark) + (mark.words.empty() ? "" : ": " + mark.words)), "]");
  return all + "]";
}

std::string lines_json(const ChartSpec& chart, const Page& page) {
  std::string all = "[";
  for (const auto& [line, run, key] : lines_of(chart, page))
    all += text(all.size() > 1 ? ",[" : "[", run, ",", json_quoted(key), ",", json_quoted(line.label), ",",
                json_quoted(line_class(line.look)), ",", json_quoted(line_marker(line.marker)), "]");
  return all + "]";
}

/// What page.js draws: see the description there.
std::string data_of(const Page& page, const std::vector<ChartSpec>& charts) {
  const auto columns = columns_for(page);
  std::string all = "{\"runs\":[";
  for (std::size_t i = 0; i < page.runs.size(); ++i) {
    const auto& run = *page.runs[i].reader;
    all += text(i > 0 ? "," : "", "{\"name\":", json_quoted(run.name()), ",\"letter\":", json_quoted(run_letter(i)),
                ",\"curves\":{");
    std::string curves;
    for (const auto& chart : charts)
      for (const auto& key : chart.keys)
        if (const auto* curve = run.curve(key); curve != nullptr)
          curves += text(curves.empty() ? "" : ",", json_quoted(key), ":", curve_json(*curve, columns));
    all += curves + "},\"axes\":{";
    const std::pair<const char*, runs::RunAxis> axes[] = {
        {"samples", runs::RunAxis::samples}, {"tokens", runs::RunAxis::tokens}, {"seconds", runs::RunAxis::seconds}};
    std::string known;
    for (const auto& [name, axis] : axes)
      if (const auto* curve = run.axis(axis); curve != nullptr)
        known +=
            text(known.empty() ? "" : ",", "\"", name, "\":", curve_json(*curve, std::min<std::size_t>(columns, 300)));
    all += known + "},\"events\":" + events_json(run) + "}";
  }
  all += "],\"charts\":[";
  for (std::size_t i = 0; i < charts.size(); ++i) {
    const auto& chart = charts[i];
    all += text(i > 0 ? "," : "", "{\"id\":", json_quoted(chart.id), ",\"title\":", json_quoted(chart.title),
                ",\"unit\":", json_quoted(chart.unit), ",\"lines\":", lines_json(chart, page), "}");
  }
  return all + "]}";
}

std::string head(const Page& page, std::string_view style, std::string_view script) {
  std::string names, again;
  if (page.refresh_seconds > 0)  // for browsers without script; others run live.js
    again = text("<noscript><meta http-equiv=\"refresh\" content=\"", std::ceil(3 * page.refresh_seconds),
                 "\"></noscript>\n");
  for (const auto& run : page.runs) names += text(names.empty() ? "" : ", ", run.reader->name());
  return "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
         "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src " +
         policy_hash(style) + "; script-src " + policy_hash(script) +
         (page.refresh_seconds > 0 ? "; connect-src 'self'" : "") +
         "; base-uri 'none'; form-action 'none'\">\n"
         "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
         "<meta name=\"referrer\" content=\"no-referrer\">\n" +
         again + "<title>" + escaped(names + " - run report") + "</title>\n<style>" + std::string(style) +
         "</style></head>\n";
}

/// Of a served page: where live.js tells when the page was read, and how a browser without script reads it again.
std::string live_words(const Page& page) {
  if (!(page.refresh_seconds > 0)) return "";
  return text("<p id=\"live\" data-seconds=\"", page.refresh_seconds, "\">Read at ", date_text(page.now), ".</p>");
}

}  // namespace

LineLook look_among_runs(std::size_t run, std::size_t key) { return {run, run + key + run / 16 * 8}; }
LineLook look_among_keys(std::size_t key) { return {key, key + key / 16}; }

std::string page_html(const Page& page) {
  const auto style = std::string(page_file("page.css"));
  auto script = std::string(page_file("curves.js"));
  script += page_file("page.js");
  if (page.refresh_seconds > 0) script += page_file("live.js");
  const auto [charts, keys_without_chart] = charts_of(readers(page));
  const auto sections = runs_section(page, keys_without_chart) + figures(page, charts) + events_section(page) +
                        memory_section(page) + experts_section(page) + timeline_section(page) + layout_section(page) +
                        differences_section(page) + checkpoints_section(page) + recipe_section(page);
  std::string links;
  const std::pair<const char*, const char*> all_sections[] = {
      {"runs", "Run"},      {"curves", "Curves"},           {"events", "Events"},
      {"memory", "Memory"}, {"experts", "Experts"},         {"timeline", "Time of a step"},
      {"layout", "Layout"}, {"differences", "Differences"}, {"checkpoints", "Checkpoints"},
      {"recipe", "Recipe"}};
  for (const auto& [id, name] : all_sections)
    if (sections.find(text("<section id=\"", id, "\"")) != std::string::npos)
      links += text("<a href=\"#", id, "\">", name, "</a> ");
  // The large parts are copied once: they are most of what this command needs beside the curves.
  auto html = head(page, style, script) + "<body>\n<header><h1>Run report</h1><nav aria-label=\"Sections\">" + links +
              "</nav>" + live_words(page) +
              "</header>\n<div id=\"controls\" role=\"region\" aria-label=\"Settings of the "
              "charts\"></div>\n<main>\n";
  const auto data = in_script(data_of(page, charts));
  html.reserve(html.size() + sections.size() + data.size() + script.size() + 1000);
  html += sections;
  html += "</main>\n<footer>" + escaped("Made by " + page.version + ".") +
          "</footer>\n<div id=\"said\" class=\"hidden\" aria-live=\"polite\"></div>\n"
          "<script type=\"application/json\" id=\"data\">";
  html += data;
  html += "</script>\n<script>" + script + "</script>\n</body></html>\n";
  return html;
}

}  // namespace tessera::report
