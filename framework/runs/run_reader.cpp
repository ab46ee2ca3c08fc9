#include "framework/runs/run_reader.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/options/report.h"
#include "framework/options/yaml.h"
#include "framework/runs/row_scanner.h"

namespace tessera::runs {
namespace {

constexpr std::size_t longest_row = std::size_t{1} << 20, most_keys = 512, most_items = 4096, longest_key = 200,
                      item_columns = 256;
constexpr std::uint64_t largest_small_file = std::uint64_t{16} << 20;
constexpr std::size_t no_series = static_cast<std::size_t>(-1);
constexpr double largest_iteration = 9e15;  // doubles below are exact whole numbers

// A run that writes nothing for so long is called silent. Steps are at most this fraction of it.
constexpr double silent_seconds = 300, silent_steps = 20;

bool is_count(double value) { return value >= 0 && value <= largest_iteration && value == std::floor(value); }

/// Length of the run in its resolved recipe; 0: it does not tell.
std::int64_t training_iterations(const std::string& resolved, const std::string& name) {
  try {
    options::Report report;
    const auto recipe = options::parse_yaml(resolved, name, report);
    const auto* value = recipe.at("training_config.training_iters");
    std::int64_t count = 0;
    if (value == nullptr) return 0;
    const auto& words = value->scalar;
    const auto [end, error] = std::from_chars(words.data(), words.data() + words.size(), count);
    return error == std::errc() && end == words.data() + words.size() && count > 0 ? count : 0;
  } catch (const Error&) {  // damaged, or not of this program
    return 0;
  }
}

/// The same in run.json, where it is also known if epochs or samples determine it.
std::int64_t recorded_iterations(const Json& record) {
  const auto* found = record.find("training_iters");
  const bool good = found != nullptr && found->is_number() && is_count(found->number());
  return good ? static_cast<std::int64_t>(found->number()) : 0;
}

}  // namespace

const char* state_name(RunStatus::State state) {
  constexpr std::array<const char*, 7> names = {"not begun", "running", "silent", "finished",
                                                "stopped",   "ended",   "died"};
  return names[static_cast<std::size_t>(state)];
}

RunReader::RunReader(std::filesystem::path folder)
    : folder_(std::move(folder)), metrics_(folder_ / "metrics.jsonl", longest_row), events_(folder_ / "events.jsonl") {
  std::error_code unknown;
  if (!std::filesystem::exists(folder_, unknown))
    throw ConfigError(text(folder_.string(), ": does not exist; give a run folder (training_config.output_dir)"));
  if (!std::filesystem::is_directory(folder_, unknown))
    throw ConfigError(text(folder_.string(), ": is not a folder; give a run folder (training_config.output_dir)"));
}

std::string RunReader::name() const { return name_of_folder(folder_); }

bool RunReader::refresh() {
  bool changed = events_.refresh();  // first: they tell where the rows begin
  changed = metrics_.refresh({[this] { begin_again(); },
                              [this](std::string_view line, std::size_t known) { take_row(line, known); }}) ||
            changed;
  if (std::string words; read_small("run.json", record_seen_, words)) {
    record_ = parse_json(words);
    if (!record_.is_object()) record_ = Json();
    recorded_iterations_ = recorded_iterations(record_);
    changed = true;
  }
  if (read_small("resolved.yaml", resolved_seen_, resolved_)) {
    recipe_iterations_ = training_iterations(resolved_, (folder_ / "resolved.yaml").string());
    changed = true;
  }
  return changed;
}

/// Whether it changed. A file that is too large, or no file, has no content.
bool RunReader::read_small(const char* name, SmallFile& seen, std::string& content) const {
  const auto path = folder_ / name;
  struct ::stat status = {};
  const bool good = ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
                    static_cast<std::uint64_t>(status.st_size) <= largest_small_file;
  const auto changed =
      good ? static_cast<double>(status.st_mtim.tv_sec) + static_cast<double>(status.st_mtim.tv_nsec) * 1e-9 : 0;
  const auto size = good ? static_cast<std::uint64_t>(status.st_size) : 0;
  if (seen.changed == changed && seen.size == size) return false;
  seen = {changed, size};
  try {
    content = good ? read_file(path) : "";
  } catch (const IoError&) {  // it was replaced in this moment, or may not be read
    content.clear();
  }
  return true;
}

/// The iteration at which the run began whose first row is that of `iteration`; the one before if nothing tells it.
std::int64_t RunReader::begun_at(std::int64_t iteration) const {
  for (const auto& event : events_.all())
    if (event.kind == "start" && event.iteration && *event.iteration < iteration) return *event.iteration;
  return iteration - 1;
}

void RunReader::begin_again() {
  series_.clear();
  indices_.clear();
  order_.clear();
  item_curves_ = 0;
  seconds_ = tokens_ = Curve();
  second_sum_ = token_sum_ = 0;
  rows_ = damaged_ = left_out_ = 0;
  last_iteration_ = last_step_ = -1;
}

void RunReader::take_row(std::string_view line, std::size_t known) {
  if (scan(line, known)) {
    const auto at = std::find_if(row_.begin(), row_.end(), [this](const Value& value) {
      return !value.in_list && value.series != no_series && series_[value.series].key == "iteration";
    });
    const bool continued = known > 0 && last_iteration_ >= 0;
    if (at != row_.end() && is_count(at->value)) return commit(static_cast<std::int64_t>(at->value), false);
    if (continued) return commit(last_iteration_, true);
  }
  if (known == 0) ++damaged_;
}

/// Reads the values of a line into row_; false if it is damaged. `known` bytes were read before.
bool RunReader::scan(std::string_view line, std::size_t known) {
  row_.clear();
  RowScanner scanner(line.substr(known));
  std::size_t member = 0, series = no_series;
  while (scanner.next()) {
    if (scanner.member != member) series = index_of(scanner.key, scanner.member);
    member = scanner.member;
    row_.push_back({series, scanner.index, scanner.in_list, scanner.value});
  }
  return !scanner.damaged();
}

/// The series of a key; no_series if there are too many.
std::size_t RunReader::index_of(std::string_view key, std::size_t member) {
  // Rows mostly have the keys of the row before in the same order.
  if (member < order_.size() && order_[member] < series_.size() && series_[order_[member]].key == key)
    return order_[member];
  auto found = indices_.find(key);
  if (found == indices_.end()) {
    if (series_.size() >= most_keys || key.size() > longest_key) return no_series;
    found = indices_.emplace(std::string(key), series_.size()).first;
    series_.push_back({std::string(key), Curve(), {}});
  }
  if (member >= order_.size()) order_.resize(member + 1, 0);
  order_[member] = found->second;
  return found->second;
}

void RunReader::commit(std::int64_t iteration, bool continued) {
  double step_seconds = NAN, tokens_per_second = NAN;
  for (const auto& [index, item, in_list, value] : row_) {
    if (index == no_series) {
      ++left_out_;
      continue;
    }
    auto& series = series_[index];
    if (!in_list) {
      series.curve.add(iteration, value);
      if (series.key == "step_seconds") step_seconds = value;
      if (series.key == "tokens_per_second") tokens_per_second = value;
      continue;
    }
    if (item >= series.items.size()) {
      if (item_curves_ >= most_items) {
        ++left_out_;
        continue;
      }
      ++item_curves_;
      series.items.emplace_back(item_columns);
    }
    if (item < series.items.size()) series.items[item].add(iteration, value);
  }
  if (continued) return;
  ++rows_;
  last_iteration_ = iteration;
  if (!std::isfinite(step_seconds)) return;
  const auto steps = std::max<std::int64_t>(iteration - (last_step_ >= 0 ? last_step_ : begun_at(iteration)), 1);
  last_step_ = iteration;
  second_sum_ += step_seconds * static_cast<double>(steps);
  seconds_.add(iteration, second_sum_);
  if (!std::isfinite(tokens_per_second)) return;
  token_sum_ += tokens_per_second * step_seconds * static_cast<double>(steps);
  tokens_.add(iteration, std::round(token_sum_));
}

const RunSeries* RunReader::find(std::string_view key) const {
  const auto found = indices_.find(key);
  return found == indices_.end() ? nullptr : &series_[found->second];
}

const Curve* RunReader::curve(std::string_view key) const {
  const auto* found = find(key);
  return found == nullptr || found->curve.count() == 0 ? nullptr : &found->curve;
}

const Curve* RunReader::axis(RunAxis axis) const {
  const auto filled = [](const Curve& one) { return one.count() > 0 ? &one : nullptr; };
  switch (axis) {
    case RunAxis::samples:
      return curve("consumed_samples");
    case RunAxis::tokens:
      return curve("consumed_tokens") != nullptr ? curve("consumed_tokens") : filled(tokens_);
    case RunAxis::seconds:
      return filled(seconds_);
  }
  return nullptr;
}

std::string RunReader::record_text(std::string_view name) const {
  const auto* found = record_.find(name);
  return found != nullptr && found->is_string() ? found->string() : "";
}

RunStatus RunReader::status(double now) const {
  const auto use = folder_use(folder_);
  const bool begun = rows_ > 0 || !events_.all().empty();
  RunStatus status = silent_or_running(now, use);
  const RunEvent* last = nullptr;
  for (const auto& event : events_.all())
    for (const auto* kind : {"start", "restart", "failed", "stopped", "finished"})
      if (event.kind == kind) last = &event;
  using State = RunStatus::State;
  if (last != nullptr && (last->kind == "finished" || last->kind == "stopped")) {
    status.state = last->kind == "finished" ? State::finished : State::stopped;
    status.reason = last->words("reason");
  } else if (use.state == FolderUse::State::held) {
    return status;
  } else if (last != nullptr && last->kind == "failed") {
    status.state = State::died;
    status.reason = last->words("message");
  } else if (use.state == FolderUse::State::left) {
    if (last != nullptr && last->kind == "restart" && status.state == State::running) return status;
    status.state = State::died;
    status.reason = text("killed: ", use.owner, " ended without saying why");
  } else if (!begun) {
    status.state = State::not_begun;
  } else if (use.state == FolderUse::State::free && last == nullptr) {
    status.state = iterations() > 0 && last_iteration_ >= iterations() ? State::finished : State::ended;
  }
  return status;
}

RunStatus RunReader::silent_or_running(double now, const FolderUse& use) const {
  RunStatus status{RunStatus::State::running, "", 0};
  status.since = std::max(metrics_.changed(), events_.lines().changed());
  const auto* steps = curve("step_seconds");
  const auto step = steps != nullptr ? steps->newest()->y : 0;
  const bool silent = status.since > 0 && now - status.since > std::max(silent_seconds, silent_steps * step);
  if (silent) status.state = RunStatus::State::silent;
  if (silent && !use.owner.empty()) status.reason = text("in use by ", use.owner);
  return status;
}

}  // namespace tessera::runs
