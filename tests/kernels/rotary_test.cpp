#include "framework/kernels/rotary.h"

#include "framework/base/error.h"
#include "tests/kernels/reference.h"

namespace tessera::kernels {
namespace {

using Rotary = ForEveryIsa;
FOR_EVERY_ISA(Rotary);

/// Rows of two heads with a gap, turned by tables of seven positions.
struct RotaryWork {
  RotaryExtents e;
  std::vector<std::int64_t> heads;
  std::vector<std::int32_t> positions = {6, 0, 3, 3, 5};
  std::vector<float> x, cosine, sine;

  RotaryWork(std::int64_t rotary_dim, RotaryLayout layout)
      : e{5, 2 * rotary_dim + 9, rotary_dim, layout}, heads{1, rotary_dim + 6} {
    x = random_normal(static_cast<std::size_t>(e.rows * e.stride), 1);
    for (std::int64_t p = 0; p < 7; ++p)
      for (std::int64_t i = 0; i < rotary_dim / 2; ++i) {
        const double angle =
            static_cast<double>(p) * std::pow(100.0, -2.0 * static_cast<double>(i) / static_cast<double>(rotary_dim));
        cosine.push_back(static_cast<float>(std::cos(angle)));
        sine.push_back(static_cast<float>(std::sin(angle)));
      }
  }

  std::vector<double> expected(bool backward) const {
    std::vector<double> y(x.begin(), x.end());
    const auto pairs = e.rotary_dim / 2;
    for (std::int64_t r = 0; r < e.rows; ++r)
      for (const auto head : heads)
        for (std::int64_t i = 0; i < pairs; ++i) {
          const bool half = e.layout == RotaryLayout::half;
          const auto a = static_cast<std::size_t>(r * e.stride + head + (half ? i : 2 * i));
          const auto b = static_cast<std::size_t>(r * e.stride + head + (half ? i + pairs : 2 * i + 1));
          const auto at = static_cast<std::size_t>(positions[static_cast<std::size_t>(r)] * pairs + i);
          const double c = cosine[at], s = backward ? -sine[at] : sine[at];
          y[a] = x[a] * c - x[b] * s;
          y[b] = x[b] * c + x[a] * s;
        }
    return y;
  }
};

TEST_P(Rotary, TurnsPairsForthAndBack) {
  for (const auto layout : {RotaryLayout::half, RotaryLayout::interleaved}) {
    for (const std::int64_t dim : {2, 4, 10, 32, 64, 66}) {
      const RotaryWork work(dim, layout);
      for (const bool backward : {false, true}) {
        const auto y = on_any_threads([&](Threads& threads) {
          auto out = work.x;
          rotary(threads, work.e, work.heads, work.positions, work.cosine, work.sine, backward, out);
          return out;
        });
        EXPECT_CLOSE(y, work.expected(backward), 3e-7) << "dim " << dim;
      }
    }
  }
}

TEST_P(Rotary, BackwardUndoesForward) {
  const RotaryWork work(32, RotaryLayout::half);
  auto x = work.x;
  Threads alone(1);
  for (const bool backward : {false, true})
    rotary(alone, work.e, work.heads, work.positions, work.cosine, work.sine, backward, x);
  EXPECT_CLOSE(x, work.x, 3e-7);
}

TEST(RotaryErrors, APositionBeyondTheTablesIsNamed) {
  RotaryWork work(4, RotaryLayout::half);
  work.positions[2] = 7;
  Threads alone(1);
  try {
    rotary(alone, work.e, work.heads, work.positions, work.cosine, work.sine, false, work.x);
    FAIL() << "accepted position 7 of 7";
  } catch (const ShapeError& error) {
    EXPECT_NE(std::string(error.what()).find("row 2 has position 7; the tables have 7"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace tessera::kernels
