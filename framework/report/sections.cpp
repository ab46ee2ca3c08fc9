#include "framework/report/sections.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/number_text.h"
#include "framework/report/chart.h"
#include "framework/report/html.h"

namespace tessera::report {
namespace {

constexpr std::size_t listed_events = 400, listed_hosts = 64, listed_ranks = 64, longest_recipe = 200'000;

using Cells = std::vector<std::string>;

/// A member of run.json as text; empty if it is absent or not a text or a number.
std::string record_words(const runs::RunReader& run, std::string_view name) {
  const auto* found = run.record().find(name);
  if (found == nullptr) return "";
  if (found->is_string()) return found->string();
  return found->is_number() ? shown(found->number()) : "";
}

std::string hosts_words(const runs::RunReader& run) {
  const auto* hosts = run.record().find("hosts");
  if (hosts == nullptr || !hosts->is_array()) return "";
  std::string all;
  for (std::size_t i = 0; i < std::min(hosts->size(), listed_hosts); ++i) {
    const auto* name = hosts->at(i).find("name");
    const auto* ranks = hosts->at(i).find("ranks");
    all += all.empty() ? "" : ", ";
    all += name != nullptr && name->is_string() ? name->string() : "unnamed";
    if (ranks != nullptr && ranks->is_number())
      all += text(" (", shown(ranks->number()), ranks->number() == 1 ? " rank)" : " ranks)");
  }
  if (hosts->size() > listed_hosts) all += text(" and ", hosts->size() - listed_hosts, " more");
  return all;
}

std::string layout_words(const runs::RunReader& run) {
  const auto* layout = run.record().find("layout");
  if (layout == nullptr || !layout->is_object()) return "";
  std::string all;
  for (const auto& [name, value] : layout->items())
    if (value.is_number() && value.number() > 1) all += text(all.empty() ? "" : ", ", name, " ", shown(value.number()));
  return all.empty() ? "one rank" : all;
}

std::string last_values(const runs::RunReader& run) {
  std::string all;
  for (const auto* key : {"loss", "validation_loss", "test_loss"})
    if (const auto* curve = run.curve(key); curve != nullptr)
      all += text(all.empty() ? "" : ", ", key, " ", shown(curve->newest()->y), " at ", curve->newest()->x);
  return all;
}

std::string state_words(const runs::RunReader& run, double now) {
  const auto status = run.status(now);
  auto words = std::string(runs::state_name(status.state));
  if (!status.reason.empty()) words += ": " + status.reason;
  if (const auto since = date_text(status.since); !since.empty()) words += "; last written " + since;
  return words;
}

std::string read_words(const runs::RunReader& run) {
  auto words = text(run.rows(), " rows");
  if (run.damaged() > 0) words += text(", ", run.damaged(), " damaged lines of metrics.jsonl left out");
  if (const auto damaged = run.events().damaged(); damaged > 0)
    words += text(", ", damaged, " damaged lines of events.jsonl left out");
  if (run.left_out() > 0) words += text(", ", run.left_out(), " values left out because there are too many keys");
  if (run.metrics_file().unfinished() > 0) words += ", a line that is not finished";
  return words;
}

std::vector<std::pair<const char*, std::string>> facts_of(const PageRun& shown_run, double now) {
  const auto& run = *shown_run.reader;
  auto iterations = text(std::max<std::int64_t>(run.last_iteration(), 0));
  if (run.iterations() > 0) iterations += text(" of ", run.iterations());
  const auto* started = run.record().find("started");
  return {{"run", run.name()},
          {"folder", run.folder().string()},
          {"id", run.record_text("run")},
          {"state", state_words(run, now)},
          {"iterations", iterations},
          {"last values", last_values(run)},
          {"started", started != nullptr && started->is_number() ? date_text(started->number()) : ""},
          {"hosts", hosts_words(run)},
          {"CPU", record_words(run, "cpu")},
          {"instruction set", record_words(run, "instruction_set")},
          {"ranks", record_words(run, "ranks")},
          {"threads of a rank", record_words(run, "threads")},
          {"layout", layout_words(run)},
          {"parameters", record_words(run, "parameters")},
          {"trained parameters", record_words(run, "trained_parameters")},
          {"FLOPs per token", record_words(run, "flops_per_token")},
          {"program", run.record_text("version")},
          {"recipe hash", run.record_text("recipe_hash")},
          {"read", read_words(run)}};
}

/// Purposes of memory: their name, the key in the records of run.json, and that of metrics.jsonl (of rank 0).
constexpr std::array<std::array<const char*, 3>, 6> memory_kinds = {
    {{"weights", "weights", "weight_bytes"},
     {"gradients", "gradients", "gradient_bytes"},
     {"optimizer state", "optimizer", "optimizer_bytes"},
     {"activations", "activations", "activation_bytes"},
     {"workspace", "workspace", "workspace_bytes"},
     {"messages", "messages", "message_bytes"}}};

/// The bytes of a rank in foreseen_memory or measured_memory of run.json; empty if they are not known.
std::string rank_bytes(const Json* list, std::size_t rank, const char* key) {
  if (list == nullptr || !list->is_array() || rank >= list->size()) return "";
  const auto* value = list->at(rank).find(key);
  return value != nullptr && value->is_number() ? shown(value->number()) : "";
}

std::string memory_of_ranks(const std::string& caption, const Json* list) {
  if (list == nullptr || !list->is_array() || list->size() < 2) return "";
  const bool process = !rank_bytes(list, 0, "process_peak").empty();
  Cells head = {"rank"};
  for (const auto& kind : memory_kinds) head.emplace_back(kind[0]);
  if (process) head.emplace_back("peak of the process");
  auto table = "<table><caption>" + escaped(caption) + "</caption><thead>" + table_row(head, "th") + "</thead><tbody>";
  for (std::size_t rank = 0; rank < std::min(list->size(), listed_ranks); ++rank) {
    Cells cells = {text(rank)};
    for (const auto& kind : memory_kinds) cells.push_back(rank_bytes(list, rank, kind[1]));
    if (process) cells.push_back(rank_bytes(list, rank, "process_peak"));
    table += table_row(cells);
  }
  return table + "</tbody></table>";
}

std::string memory_of_rank_0(const runs::RunReader& run, const Json* foreseen, const Json* measured) {
  std::string rows;
  for (const auto& [name, record, key] : memory_kinds) {
    const auto* curve = run.curve(key);
    const auto most =
        curve != nullptr && curve->has_finite() ? shown(curve->greatest()->y) : rank_bytes(measured, 0, record);
    if (!most.empty() || !rank_bytes(foreseen, 0, record).empty())
      rows += table_row(Cells{name, rank_bytes(foreseen, 0, record), most});
  }
  if (rows.empty()) return "";
  return "<table><caption>Rank 0, in bytes</caption><thead>" +
         table_row(Cells{"purpose", "foreseen", "greatest measured"}, "th") + "</thead><tbody>" + rows +
         "</tbody></table>";
}

}  // namespace

std::string date_text(double seconds) {
  if (!(seconds > 0) || seconds > 2.2e11) return "";
  const auto time = static_cast<std::time_t>(seconds);
  std::tm parts{};
  if (gmtime_r(&time, &parts) == nullptr) return "";
  std::array<char, 40> words{};
  std::strftime(words.data(), words.size(), "%Y-%m-%d %H:%M:%S UTC", &parts);
  return words.data();
}

std::string run_letter(std::size_t run) {
  return run < 26 ? std::string(1, static_cast<char>('A' + run)) : std::to_string(run);
}

std::string run_heading(const Page& page, std::size_t run) {
  if (page.runs.size() < 2) return "";
  return "<h3>" + escaped(text(run_letter(run), ": ", page.runs[run].reader->name())) + "</h3>\n";
}

std::string runs_section(const Page& page, std::size_t keys_without_chart) {
  const bool several = page.runs.size() > 1;
  // One table, so that runs are compared line by line.
  std::vector<std::pair<const char*, Cells>> rows;
  for (std::size_t i = 0; i < page.runs.size(); ++i) {
    const auto facts = facts_of(page.runs[i], page.now);
    rows.resize(facts.size(), {"", Cells(page.runs.size())});
    for (std::size_t f = 0; f < facts.size(); ++f) {
      rows[f].first = facts[f].first;
      rows[f].second[i] = (several && f == 0 ? run_letter(i) + ": " : "") + facts[f].second;
    }
  }
  std::string table;
  for (const auto& [name, cells] : rows) {
    if (std::all_of(cells.begin(), cells.end(), [](const auto& cell) { return cell.empty(); })) continue;
    table += "<tr><th scope=\"row\">" + escaped(name) + "</th>";
    for (const auto& cell : cells) table += "<td>" + escaped(cell) + "</td>";
    table += "</tr>\n";
  }
  auto all =
      scrolled(several ? "Facts of the runs" : "Facts of the run", "<table class=\"facts\">" + table + "</table>");
  if (keys_without_chart > 0)
    all += "<p>" +
           escaped(text("Keys of the metrics without a chart, because there are too many: ", keys_without_chart)) +
           ".</p>\n";
  for (std::size_t i = 0; i < page.runs.size(); ++i)
    if (!page.runs[i].command.empty())
      all +=
          "<p>This line repeats " + (several ? "run " + run_letter(i) : "the run") + ":</p>" +
          scrolled("Command of run " + page.runs[i].reader->name(), "<pre>" + escaped(page.runs[i].command) + "</pre>");
  return section("runs", several ? "Runs" : "Run", all);
}

std::string events_section(const Page& page) {
  std::string all;
  for (std::size_t i = 0; i < page.runs.size(); ++i) {
    const auto& events = page.runs[i].reader->events();
    if (events.all().empty()) continue;
    std::string rows;
    const auto skipped = events.all().size() - std::min(events.all().size(), listed_events);
    for (std::size_t e = skipped; e < events.all().size(); ++e) {
      const auto& event = events.all()[e];
      const auto iteration = event.iteration ? text(*event.iteration) : std::string();
      rows += table_row(Cells{iteration, event.kind, told(event), date_text(event.time)});
    }
    const auto left_out = static_cast<std::int64_t>(skipped) + events.left_out();
    all += run_heading(page, i);
    if (left_out > 0) all += "<p>" + escaped(text(left_out, " earlier events are not listed.")) + "</p>";
    all += scrolled("Events of run " + page.runs[i].reader->name(),
                    "<table><thead>" + table_row(Cells{"iteration", "event", "what", "time"}, "th") +
                        "</thead><tbody>" + rows + "</tbody></table>");
  }
  return all.empty() ? "" : section("events", "Events", all);
}

std::string memory_section(const Page& page) {
  std::string all;
  for (std::size_t i = 0; i < page.runs.size(); ++i) {
    const auto& run = *page.runs[i].reader;
    const auto *foreseen = run.record().find("foreseen_memory"), *measured = run.record().find("measured_memory");
    const auto tables = memory_of_rank_0(run, foreseen, measured) +
                        memory_of_ranks("Foreseen of each rank, in bytes", foreseen) +
                        memory_of_ranks("Greatest measured of each rank, in bytes", measured);
    if (!tables.empty()) all += run_heading(page, i) + scrolled("Memory of run " + run.name(), tables);
  }
  return all.empty() ? "" : section("memory", "Memory: foreseen and measured", all);
}

std::string recipe_section(const Page& page) {
  std::string all;
  for (std::size_t i = 0; i < page.runs.size(); ++i) {
    const auto& recipe = page.runs[i].reader->resolved();
    if (recipe.empty()) continue;
    // Options that somebody gave: their lines do not end with the origin "default".
    std::string given;
    constexpr std::string_view by_default = "# default";
    std::size_t at = 0;
    while (at < recipe.size() && given.size() < longest_recipe) {
      const auto end = std::min(recipe.find('\n', at), recipe.size());
      const auto line = std::string_view(recipe).substr(at, end - at);
      if (!line.ends_with(by_default)) given += std::string(line) + "\n";
      at = end + 1;
    }
    auto whole = recipe.substr(0, longest_recipe);
    if (recipe.size() > longest_recipe) whole += "\n... the rest is in resolved.yaml\n";
    all += run_heading(page, i) + "<p>Options that were given, each with its origin:</p>" +
           scrolled("Given options of run " + text(i + 1), "<pre>" + escaped(given) + "</pre>") +
           "<details><summary>All options, with defaults</summary>" +
           scrolled("All options of run " + text(i + 1), "<pre>" + escaped(whole) + "</pre>") + "</details>\n";
  }
  return all.empty() ? "" : section("recipe", "Recipe", all);
}

std::string differences_section(const Page& page) {
  if (page.runs.size() < 2) return "";
  if (!page.no_differences.empty())
    return section("differences", "Differences", "<p>" + escaped(page.no_differences) + "</p>");
  if (page.differences.empty())
    return section("differences", "Differences", "<p>The recipes of the runs have no differences.</p>");
  std::string rows;
  for (const auto& difference : page.differences)
    rows += table_row(Cells{difference.option, difference.one, run_letter(difference.run), difference.other});
  return section(
      "differences", "Differences",
      scrolled("Differences", "<table><thead>" + table_row(Cells{"option", "run A", "other run", "there"}, "th") +
                                  "</thead><tbody>" + rows + "</tbody></table>"));
}

std::string checkpoints_section(const Page& page) {
  std::string all;
  for (std::size_t i = 0; i < page.runs.size(); ++i) {
    if (page.runs[i].checkpoints.empty()) continue;
    std::string rows;
    for (const auto& one : page.runs[i].checkpoints)
      rows += table_row(Cells{text(one.iteration), one.format, shown(static_cast<double>(one.bytes)),
                              one.reason.empty() ? one.state : one.state + ": " + one.reason, one.folder});
    all += run_heading(page, i) +
           scrolled("Checkpoints of run " + page.runs[i].reader->name(),
                    "<table><thead>" + table_row(Cells{"iteration", "format", "bytes", "state", "folder"}, "th") +
                        "</thead><tbody>" + rows + "</tbody></table>");
  }
  return all.empty() ? "" : section("checkpoints", "Checkpoints", all);
}

}  // namespace tessera::report
