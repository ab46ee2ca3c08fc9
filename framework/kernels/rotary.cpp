#include "framework/kernels/rotary.h"

#include "framework/kernels/extents.h"

namespace tessera {
namespace {

struct Pair {
  std::size_t step, other;  // from one pair to the next; from the first of a pair to the second
};

void turn(float* x, std::size_t pairs, Pair at, const float* cosine, const float* sine, float sign) {
  for (std::size_t i = 0; i < pairs; ++i) {
    float& a = x[i * at.step];
    float& b = x[i * at.step + at.other];
    const float c = cosine[i], s = sign * sine[i], was = a;
    a = was * c - b * s;
    b = b * c + was * s;
  }
}

void check(const RotaryExtents& e, std::span<const std::int64_t> head_offsets, std::span<const std::int32_t> positions,
           std::size_t cosine, std::size_t sine, std::size_t x) {
  must(e.rotary_dim > 0 && e.rotary_dim % 2 == 0, "the channels that turn come in pairs");
  expect_values("rotary", "x", x, e.rows * e.stride);
  expect_values("rotary", "positions", positions.size(), e.rows);
  expect_values("rotary", "sine", sine, static_cast<std::int64_t>(cosine));
  for (const auto offset : head_offsets) {
    if (offset < 0 || offset + e.rotary_dim > e.stride) {
      throw ShapeError(
          text("rotary: a head at ", offset, " with ", e.rotary_dim, " channels leaves its row of ", e.stride));
    }
  }
  const auto angles = static_cast<std::int64_t>(cosine) / (e.rotary_dim / 2);
  for (std::size_t r = 0; r < positions.size(); ++r) {
    if (positions[r] < 0 || positions[r] >= angles) {
      throw ShapeError(text("rotary: row ", r, " stands at position ", positions[r], "; the tables have ", angles));
    }
  }
}

}  // namespace

void rotary(Threads& threads, RotaryExtents e, std::span<const std::int64_t> head_offsets,
            std::span<const std::int32_t> positions, std::span<const float> cosine, std::span<const float> sine,
            bool backward, std::span<float> x) {
  check(e, head_offsets, positions, cosine.size(), sine.size(), x.size());
  const auto pairs = static_cast<std::size_t>(e.rotary_dim / 2);
  const auto at = e.layout == RotaryLayout::half ? Pair{1, pairs} : Pair{2, 1};
  threads.parallel_for(static_cast<std::size_t>(e.rows), 16, [&](std::size_t first, std::size_t last) {
    for (auto r = first; r < last; ++r) {
      const auto angle = static_cast<std::size_t>(positions[r]) * pairs;
      for (const auto offset : head_offsets) {
        turn(x.data() + r * static_cast<std::size_t>(e.stride) + offset, pairs, at, cosine.data() + angle,
             sine.data() + angle, backward ? -1.0F : 1.0F);
      }
    }
  });
}

}  // namespace tessera
