#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/runs/curve.h"
#include "framework/watch/screen.h"

namespace tessera::watch {

/// A rectangle of a screen, in cells.
struct Area {
  int row = 0, column = 0, rows = 0, columns = 0;
};

/// A curve of a chart.
struct ChartLine {
  const runs::Curve* curve = nullptr;
  std::string mark;     ///< one character, at its newest point and along the curve: tells curves apart without color
  bool points = false;  ///< for evaluations: of few points only their marks, of many a line and marks
  Style style;
};

/// A drawing of curves over iterations.
struct Chart {
  std::string title;
  std::vector<ChartLine> lines;
  bool logarithmic = false;
  std::int64_t last_steps = 0;  ///< draws only so many iterations before the newest; 0: all
};

/// Draws it with its title, the ends of both axes, and the number of values that are not finite. Every spike is drawn.
/// An area of less than 12 columns or 4 rows gets the title alone.
void draw_chart(Screen& screen, const Area& area, const Chart& chart);

}  // namespace tessera::watch
