#include "framework/watch/plain.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include "framework/base/crc32c.h"
#include "framework/base/error.h"
#include "framework/base/number_text.h"
#include "framework/runs/row_scanner.h"
#include "framework/watch/screen.h"
#include "framework/watch/state_words.h"

namespace tessera::watch {
namespace {

constexpr double restart_seconds = 30;  // so long after its end a run may be started anew by tsrun
constexpr std::size_t longest_row = std::size_t{1} << 20;
constexpr std::array<std::pair<std::string_view, const char*>, 5> shown_keys = {
    {{"loss", "loss"},
     {"grad_norm", "gradient norm"},
     {"learning_rate", "learning rate"},
     {"tokens_per_second", "tokens/s"},
     {"validation_loss", "validation loss"}}};

}  // namespace

PlainReport::PlainReport(const std::filesystem::path& folder, std::string label)
    : run_(folder), rows_(folder / "metrics.jsonl", longest_row), label_(std::move(label)) {
  if (!label_.empty()) label_ += "  ";
}

/// Whether a row was told before metrics.jsonl was cut: a resumed run continues after the rows that it keeps.
bool PlainReport::counts_as_kept(std::string_view line, std::size_t known) {
  const auto sum = crc32c(line);
  if (known > 0 && kept_ > 0) {  // the newest row got members
    sums_[kept_ - 1] = sum;
    return false;
  }
  const bool kept = kept_ < sums_.size() && sums_[kept_] == sum;
  if (!kept) {
    sums_.resize(kept_);
    sums_.push_back(sum);
  }
  ++kept_;
  return kept;
}

void PlainReport::take_row(std::string_view line, std::size_t known, std::deque<std::string>& rows) {
  if (counts_as_kept(line, known)) return;
  // Of an object that got members, only these are new, but its iteration is needed.
  runs::RowScanner row(line);
  double iteration = -1;
  std::string words;
  while (row.next()) {
    if (row.in_list) continue;
    if (row.key == "iteration") iteration = row.value;
    if (known > 0 && row.key.data() < line.data() + known) continue;
    for (const auto& entry : shown_keys)
      if (row.key == entry.first)
        words += text("  ", entry.second, " ", std::isfinite(row.value) ? short_number(row.value) : "not finite");
  }
  if (!row.damaged() && iteration >= 0 && !words.empty())
    rows.push_back(text("iteration ", short_number(iteration), words));
}

std::string PlainReport::news(double now, std::size_t most) {
  // The state first: a run that has ended by then writes no more, so the rows that are read below include its last.
  // Read the other way round, rows that come between would never be told, because nobody looks again after the end.
  run_.refresh();
  status_ = run_.status(now);
  std::deque<std::string> lines;
  rows_.refresh({[&] {
                   lines.clear();
                   kept_ = 0;
                 },
                 [&](std::string_view line, std::size_t known) {
                   take_row(line, known, lines);
                   if (lines.size() > most) lines.pop_front();
                 }});
  sums_.resize(kept_);  // a step that is done again is told again
  const auto& events = run_.events();
  const auto count = static_cast<std::int64_t>(events.all().size()) + events.left_out();
  if (count < events_) events_ = 0;
  const auto fresh = std::min<std::int64_t>(count - events_, static_cast<std::int64_t>(events.all().size()));
  const auto last = static_cast<std::size_t>(fresh);
  for (std::size_t i = last - std::min(last, most); i < last; ++i)
    lines.push_back(event_words(events.all()[events.all().size() - last + i]));
  events_ = count;
  if (auto state = state_words(status_, now); state != state_) {
    // How long it is silent changes all the time.
    if (!(state.starts_with("silent") && state_.starts_with("silent"))) lines.push_back("state: " + state);
    state_ = std::move(state);
  }
  std::string all;
  for (const auto& line : lines) all += safe_line(label_ + line) + "\n";
  return all;
}

bool PlainReport::over(double now) const {
  using State = runs::RunStatus::State;
  if (status_.state == State::died) return now - status_.since > restart_seconds;
  return status_.state == State::finished || status_.state == State::stopped || status_.state == State::ended;
}

}  // namespace tessera::watch
