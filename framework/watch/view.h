#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "framework/runs/run_reader.h"
#include "framework/watch/screen.h"
#include "framework/watch/terminal.h"

namespace tessera::watch {

/// What `tessera watch` shows of runs, and how keys change it. Independent of a terminal.
class View {
 public:
  /// `runs` must outlive this object; at least one.
  explicit View(std::vector<const runs::RunReader*> runs);
  /// Draws all on a blank screen. Below 40 x 10 cells it says only that the terminal is too small, and the state.
  /// `now`: seconds since 1970.
  void draw(Screen& screen, double now) const;
  /// Takes a key; false if it asks to quit. While the filter is typed, characters belong to it.
  bool take(const KeyPress& press);
  /// Sets the last lines of the selected run's log.
  void set_log(std::vector<std::string> lines);
  const runs::RunReader& selected() const { return *runs_[run_]; }

 private:
  std::vector<std::string> charts() const;
  bool take_typed(const KeyPress& press);
  std::string hint_words() const;
  int draw_head(Screen& screen, double now) const;
  int draw_runs(Screen& screen, int row, double now) const;
  void draw_charts(Screen& screen, int row, int end) const;
  void draw_details(Screen& screen, int row) const;
  void draw_memory(Screen& screen, int row, int column) const;
  void draw_help(Screen& screen) const;

  std::vector<const runs::RunReader*> runs_;
  std::size_t run_ = 0, chart_ = 0;
  bool help_ = false, logarithmic_ = false, one_chart_ = false, typing_ = false;
  std::string filter_;  ///< part of the names of the curves that are shown
  std::int64_t last_steps_ = 0;
  std::vector<std::string> log_;
};

}  // namespace tessera::watch
