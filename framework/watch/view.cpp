#include "framework/watch/view.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/number_text.h"
#include "framework/base/visible_text.h"
#include "framework/unicode/unicode_normal.h"
#include "framework/watch/chart.h"
#include "framework/watch/state_words.h"

namespace tessera::watch {
namespace {

constexpr int least_columns = 40, least_rows = 10, detail_rows = 6, most_listed = 4;
constexpr std::size_t longest_filter = 64;
constexpr std::array<std::string_view, 4> first_charts = {"loss", "grad_norm", "learning_rate", "tokens_per_second"};
constexpr std::array<std::pair<const char*, const char*>, 6> memory_kinds = {{{"weight_bytes", "weights"},
                                                                              {"gradient_bytes", "gradients"},
                                                                              {"optimizer_bytes", "optimizer"},
                                                                              {"activation_bytes", "activations"},
                                                                              {"workspace_bytes", "workspace"},
                                                                              {"message_bytes", "messages"}}};
constexpr std::array<std::pair<const char*, const char*>, 9> help_lines = {
    {{"q, Ctrl-C", "quit"},
     {"?", "show or hide the keys"},
     {"Tab, right, left", "choose the first chart"},
     {"up, down", "choose the run"},
     {"Enter", "one chart or four"},
     {"l", "log scale"},
     {"+, -, 0", "fewer, more, all steps"},
     {"/", "filter curves by name"},
     {"Esc", "show all curves"}}};

Style style_of(std::size_t run) { return {static_cast<std::uint8_t>(std::array<int, 6>{6, 3, 5, 2, 4, 1}[run % 6])}; }

/// A bar of `columns` characters, filled to a fraction of it.
std::string bar(double fraction, int columns) {
  const int full = static_cast<int>(std::lround(std::clamp(fraction, 0.0, 1.0) * columns));
  return std::string(static_cast<std::size_t>(full), '#') + std::string(static_cast<std::size_t>(columns - full), '.');
}

double newest(const runs::RunReader& run, std::string_view key) {
  const auto* curve = run.curve(key);
  const auto point = curve != nullptr ? curve->newest() : std::nullopt;
  return point ? point->y : std::nan("");
}

std::string progress_words(const runs::RunReader& run, double now) {
  const auto last = std::max<std::int64_t>(run.last_iteration(), 0), all = run.iterations();
  auto words = text("iteration ", last);
  if (all > 0) words += text(" of ", all);
  const bool goes_on = run.status(now).state == runs::RunStatus::State::running;
  if (const auto left = seconds_left(run); left && goes_on) words += text(", ", duration_text(*left), " left");
  return words;
}

std::string rank_words(const runs::RunReader& run) {
  std::string words;
  if (const auto* ranks = run.record().find("ranks"); ranks != nullptr && ranks->is_number())
    words = text("ranks ", short_number(ranks->number()));
  if (const auto* layout = run.record().find("layout"); layout != nullptr && layout->is_object())
    for (const auto& [key, label] :
         {std::pair("data_parallel", "dp"), std::pair("tensor_parallel", "tp"), std::pair("context_parallel", "cp"),
          std::pair("pipeline_parallel", "pp"), std::pair("expert_parallel", "ep")})
      if (const auto* size = layout->find(key); size != nullptr && size->is_number() && size->number() > 1)
        words += text(" ", label, short_number(size->number()));
  const double slowest = newest(run, "slowest_rank_seconds"), fastest = newest(run, "fastest_rank_seconds");
  if (std::isfinite(slowest) && std::isfinite(fastest))
    words += text(" step ", short_number(fastest), " to ", short_number(slowest), " s, slowest rank ",
                  short_number(newest(run, "slowest_rank")));
  return words;
}

}  // namespace

View::View(std::vector<const runs::RunReader*> runs) : runs_(std::move(runs)) {}

void View::set_log(std::vector<std::string> lines) {
  log_ = std::move(lines);
  // Rules and empty lines would take the place of others.
  const auto is_rule = [](const std::string& line) { return line.find_first_not_of(" -\r") == std::string::npos; };
  log_.erase(std::remove_if(log_.begin(), log_.end(), is_rule), log_.end());
}

/// The keys that can be drawn: the usual ones, then what the rows of a run have besides; of these, those that pass the
/// filter. Losses of validation are in the chart of the loss, but can be asked for.
std::vector<std::string> View::charts() const {
  std::vector<std::string> all(first_charts.begin(), first_charts.end());
  for (const auto* run : runs_)
    for (const auto& series : run->series())
      if (series.curve.count() > 0 && series.key != "iteration" &&
          (series.key != "validation_loss" || !filter_.empty()) &&
          std::find(all.begin(), all.end(), series.key) == all.end())
        all.push_back(series.key);
  const auto part = unicode::lower_each(filter_);
  all.erase(std::remove_if(
                all.begin(), all.end(),
                [&part](const std::string& key) { return unicode::lower_each(key).find(part) == std::string::npos; }),
            all.end());
  return all;
}

/// While the filter is typed; false: the key has its ordinary effect.
bool View::take_typed(const KeyPress& press) {
  if (!press.text.empty()) {
    if (filter_.size() + press.text.size() <= longest_filter) filter_ += press.text;
  } else if (press.key == Key::erase) {
    while (!filter_.empty() && (static_cast<unsigned char>(filter_.back()) & 0xC0U) == 0x80U) filter_.pop_back();
    if (!filter_.empty()) filter_.pop_back();
  } else if (press.key == Key::one_chart) {
    typing_ = false;
  } else {
    return false;
  }
  chart_ = 0;
  return true;
}

bool View::take(const KeyPress& press) {
  if (typing_ && take_typed(press)) return true;
  const auto count = std::max<std::size_t>(charts().size(), 1);
  const bool was_help = std::exchange(help_, false);
  const auto newest_step = std::max<std::int64_t>(selected().last_iteration(), 1);
  switch (press.key) {
    case Key::quit:
      return false;
    case Key::help:
      help_ = !was_help;
      break;
    case Key::next_chart:
      chart_ = (chart_ + 1) % count;
      break;
    case Key::previous_chart:
      chart_ = (chart_ % count + count - 1) % count;
      break;
    case Key::up:
      run_ = (run_ + runs_.size() - 1) % runs_.size();
      break;
    case Key::down:
      run_ = (run_ + 1) % runs_.size();
      break;
    case Key::logarithmic:
      logarithmic_ = !logarithmic_;
      break;
    case Key::closer:
      last_steps_ = std::max<std::int64_t>((last_steps_ > 0 ? last_steps_ : newest_step) / 2, 1);
      break;
    case Key::wider:
      last_steps_ = last_steps_ > 0 && last_steps_ < newest_step / 2 ? last_steps_ * 2 : 0;
      break;
    case Key::all:
      last_steps_ = 0;
      break;
    case Key::one_chart:
      one_chart_ = !one_chart_;
      break;
    case Key::filter:
      typing_ = true;
      break;
    case Key::escape:
      typing_ = false;
      filter_.clear();
      chart_ = 0;
      break;
    case Key::erase:
    case Key::other:
      break;
  }
  return true;
}

int View::draw_head(Screen& screen, double now) const {
  const auto& run = selected();
  int column = 0;
  if (runs_.size() > 1) column = screen.put(0, 0, text(run_mark(run_), " "), {style_of(run_).color, true});
  column = screen.put(0, column, text(run.name(), "  "), {0, true});
  const auto words = safe_line(state_words(run.status(now), now));
  screen.put(0, column, words, {0, true});
  int row = 1;
  // A root cause is often longer than the rest of the first row.
  if (column + static_cast<int>(words.size()) > screen.columns() && screen.rows() > 14) {
    std::size_t shown = 0;
    for (; row < 4 && shown < words.size(); ++row) {
      const auto part = std::string_view(words).substr(shown, static_cast<std::size_t>(screen.columns()));
      const auto bytes = std::max<std::size_t>(whole_characters(part), 1);
      screen.put(row, 0, part.substr(0, bytes));
      shown += bytes;
    }
  }
  auto progress = progress_words(run, now);
  if (const auto back = went_back_words(run); !back.empty()) progress += text(", ", back);
  if (const auto damaged = run.damaged() + run.events().damaged(); damaged > 0)
    progress += text(", ", damaged, " damaged lines");
  if (run.iterations() > 0) {
    const int width = std::min(30, screen.columns() / 3);
    const double done =
        static_cast<double>(std::max<std::int64_t>(run.last_iteration(), 0)) / static_cast<double>(run.iterations());
    progress = text("[", bar(done, width), "] ", progress);
  }
  screen.put(row, 0, progress);
  return row + 1;
}

int View::draw_runs(Screen& screen, int row, double now) const {
  if (runs_.size() < 2 || screen.rows() < 18) return row;
  const auto listed = std::min<std::size_t>(runs_.size(), most_listed);
  const auto first = std::min(run_, runs_.size() - listed);
  for (auto i = first; i < first + listed; ++i, ++row) {
    const auto& run = *runs_[i];
    int column = screen.put(row, 0, i == run_ ? "> " : "  ");
    column = screen.put(row, column, text(run_mark(i), " "), {style_of(i).color, true});
    column = screen.put(row, column, run.name(), {}, column + screen.columns() / 3);
    screen.put(row, column + 1,
               text(" loss ", short_number(newest(run, "loss")), "  iteration ",
                    std::max<std::int64_t>(run.last_iteration(), 0), "  ", state_words(run.status(now), now)));
  }
  return row;
}

void View::draw_charts(Screen& screen, int row, int end) const {
  const auto all = charts();
  if (all.empty()) {
    screen.put(row, 0, text("no curve has \"", filter_, "\" in its name; Esc shows all"), {0, true});
    return;
  }
  const int rows = end - row;
  const bool grid = !one_chart_ && all.size() > 1 && rows >= 10 && screen.columns() >= 60;
  const int shown = grid ? std::min(static_cast<int>(all.size()), 4) : 1;
  const int height = shown > 2 ? rows / 2 : rows, width = grid ? screen.columns() / 2 : screen.columns();
  for (int i = 0; i < shown; ++i) {
    const auto& key = all[(chart_ + static_cast<std::size_t>(i)) % all.size()];
    Chart chart{key, {}, logarithmic_, last_steps_};
    const auto add = [&chart, this](std::size_t run, std::string_view of, bool points) {
      const auto* curve = runs_[run]->curve(of);
      if (curve != nullptr && curve->count() > 0)
        chart.lines.push_back({curve, points ? "o" : run_mark(run), points, style_of(run)});
    };
    for (std::size_t run = 0; run < runs_.size(); ++run)
      if (run != run_) add(run, key, false);
    add(run_, key, false);  // the last is on top
    if (key == "loss") {
      const auto lines = chart.lines.size();
      for (std::size_t run = 0; run < runs_.size(); ++run) add(run, "validation_loss", true);
      if (chart.lines.size() > lines) chart.title += ", o validation";
    }
    if (const double value = newest(selected(), key); std::isfinite(value)) chart.title += " " + short_number(value);
    draw_chart(screen, {row + i / 2 * height, i % 2 * width, height, width}, chart);
  }
}

void View::draw_memory(Screen& screen, int row, int column) const {
  const double all = newest(selected(), "memory_bytes");
  if (!(all > 0)) return;
  constexpr double mib = 1048576;
  std::vector<std::pair<double, const char*>> parts;
  for (const auto& [key, label] : memory_kinds)
    if (const double bytes = newest(selected(), key); bytes > 0) parts.emplace_back(bytes, label);
  std::stable_sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  screen.put(row, column, text("memory of rank 0: ", short_number(all / mib), " MiB"), {0, true});
  const int width = std::max(4, screen.columns() - column - 22);
  for (int i = 0; i < detail_rows - 1 && i < static_cast<int>(parts.size()); ++i) {
    const auto& part = parts[static_cast<std::size_t>(i)];
    screen.put(row + 1 + i, column, part.second);
    screen.put(row + 1 + i, column + 12, bar(part.first / all, width));
    screen.put(row + 1 + i, column + 13 + width, short_number(part.first / mib));
  }
}

void View::draw_details(Screen& screen, int row) const {
  const int middle = screen.columns() * 3 / 5;
  int at = row;
  if (const auto ranks = rank_words(selected()); !ranks.empty()) screen.put(at++, 0, ranks, {}, middle - 1);
  const auto& events = selected().events().all();
  const int rest = row + detail_rows - at;
  const int shown = std::min(static_cast<int>(events.size()), std::max(1, rest - 2));
  for (int i = shown; i > 0; --i)
    screen.put(at++, 0, event_words(events[events.size() - static_cast<std::size_t>(i)]), {}, middle - 1);
  const int lines = std::min(static_cast<int>(log_.size()), row + detail_rows - at);
  for (int i = lines; i > 0; --i) screen.put(at++, 0, log_[log_.size() - static_cast<std::size_t>(i)], {}, middle - 1);
  draw_memory(screen, row, middle);
}

void View::draw_help(Screen& screen) const {
  screen.put(0, 0, "Keys of tessera watch", {0, true});
  for (int i = 0; i < static_cast<int>(help_lines.size()); ++i) {
    screen.put(i + 1, 1, help_lines[static_cast<std::size_t>(i)].first);
    screen.put(i + 1, 18, help_lines[static_cast<std::size_t>(i)].second);
  }
}

std::string View::hint_words() const {
  if (typing_) return text("curves with: ", filter_, "_   Enter keep   Esc all curves");
  auto words = filter_.empty() ? std::string() : text("curves with: ", filter_, "   Esc all curves   ");
  words += "? keys   q quit   Tab chart   / filter   l log scale   +/- steps";
  if (runs_.size() > 1) words += "   up/down run";
  return words;
}

void View::draw(Screen& screen, double now) const {
  if (screen.columns() < least_columns || screen.rows() < least_rows) {
    screen.put(0, 0, runs::state_name(selected().status(now).state));
    screen.put(1, 0, "too small");
    screen.put(2, 0, "40x10 or");
    screen.put(3, 0, "--plain");
    return;
  }
  if (help_) return draw_help(screen);
  const int row = draw_runs(screen, draw_head(screen, now), now);
  const int hints = screen.rows() - 1;
  const int details = screen.rows() >= 18 ? hints - detail_rows : hints;
  draw_charts(screen, row, details);
  if (details < hints) draw_details(screen, details);
  screen.put(hints, 0, hint_words());
}

}  // namespace tessera::watch
