#include "framework/kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "framework/kernels/extents.h"
#include "framework/kernels/scratch.h"

namespace tessera {
namespace {

/// One query row of one head and what it sees.
struct Row {
  std::int64_t b, g, head, t, first, last;
};

std::int64_t at(const HeadRows& rows, std::int64_t row, std::int64_t group, std::int64_t head = 0) {
  return row * rows.row_stride + rows.offset + group * rows.group_stride + head * rows.head_stride;
}

float keep(const DropoutMask& mask, const AttentionExtents& e, const Row& r, std::int64_t s) {
  if (mask.rate == 0) return 1;
  const auto element = static_cast<std::uint64_t>(mask.first_element + (r.head * e.T + r.t) * e.S + s);
  const auto word =
      mask.key.words(static_cast<std::uint64_t>(mask.sample_ids[static_cast<std::size_t>(r.b)]), element / 4);
  return word[element % 4] < std::ceil(mask.rate * 0x1p32) ? 0.0F : static_cast<float>(1 / (1 - mask.rate));
}

float dot(const float* x, const float* y, std::int64_t n) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * y[i];
  return static_cast<float>(sum);
}

void add_scaled(float a, const float* x, std::int64_t n, float* y) {
  for (std::int64_t i = 0; i < n; ++i) y[i] += a * x[i];
}

void row_forward(const AttentionExtents& e, const Row& r, const DropoutMask& mask, const float* q, const float* k,
                 const float* v, float* p, float* o, float& lse) {
  std::fill_n(o, e.D, 0.0F);
  lse = -std::numeric_limits<float>::infinity();
  if (r.last < r.first) return;
  float most = lse;
  for (auto s = r.first; s <= r.last; ++s) {
    p[s - r.first] = static_cast<float>(e.scale) * dot(q, k + at(e.k, r.b * e.S + s, r.g), e.D);
    most = std::max(most, p[s - r.first]);
  }
  double sum = 0;
  for (auto s = r.first; s <= r.last; ++s) sum += p[s - r.first] = std::exp(p[s - r.first] - most);
  for (auto s = r.first; s <= r.last; ++s) {
    const auto share = static_cast<float>(p[s - r.first] / sum) * keep(mask, e, r, s);
    add_scaled(share, v + at(e.v, r.b * e.S + s, r.g), e.D, o);
  }
  lse = static_cast<float>(most + std::log(sum));
}

void check(const AttentionExtents& e, const VisibleKeys& visible, const DropoutMask& mask, std::size_t lse) {
  must(e.G > 0 && e.H % e.G == 0, "each group has the same number of heads");
  expect_values("attention", "visible.first", visible.first.size(), e.B * e.T);
  expect_values("attention", "visible.last", visible.last.size(), e.B * e.T);
  expect_values("attention", "lse", lse, e.B * e.H * e.T);
  if (mask.rate != 0) expect_values("attention", "mask.sample_ids", mask.sample_ids.size(), e.B);
}

}  // namespace

void attention_forward(Threads& threads, const AttentionExtents& e, const VisibleKeys& visible, const DropoutMask& mask,
                       std::span<const float> q, std::span<const float> k, std::span<const float> v, std::span<float> o,
                       std::span<float> lse) {
  check(e, visible, mask, lse.size());
  const auto heads = e.H / e.G;
  threads.parallel_for(static_cast<std::size_t>(e.B * e.H * e.T), 16, [&](std::size_t first, std::size_t last) {
    struct Scores;
    const auto p = scratch<Scores>(static_cast<std::size_t>(e.S));
    for (auto i = static_cast<std::int64_t>(first); i < static_cast<std::int64_t>(last); ++i) {
      const auto t = i % e.T, head = i / e.T % e.H, b = i / e.T / e.H, g = head / heads;
      const auto query = static_cast<std::size_t>(b * e.T + t);
      const Row r{b, g, head, t, visible.first[query], visible.last[query]};
      row_forward(e, r, mask, q.data() + at(e.q, b * e.T + t, g, head % heads), k.data(), v.data(), p.data(),
                  o.data() + at(e.o, b * e.T + t, g, head % heads), lse[static_cast<std::size_t>(i)]);
    }
  });
}

void attention_backward(Threads& threads, const AttentionExtents& e, const VisibleKeys& visible,
                        const DropoutMask& mask, std::span<const float> q, std::span<const float> k,
                        std::span<const float> v, std::span<const float> o, std::span<const float> lse,
                        std::span<const float> d_o, std::span<float> dq, std::span<float> dk, std::span<float> dv) {
  check(e, visible, mask, lse.size());
  const auto heads = e.H / e.G;
  threads.parallel_for(static_cast<std::size_t>(e.B * e.G), 1, [&](std::size_t tile, std::size_t) {
    const auto b = static_cast<std::int64_t>(tile) / e.G, g = static_cast<std::int64_t>(tile) % e.G;
    for (std::int64_t s = 0; s < e.S; ++s) {
      std::fill_n(dk.data() + at(e.k, b * e.S + s, g), e.D, 0.0F);
      std::fill_n(dv.data() + at(e.v, b * e.S + s, g), e.D, 0.0F);
    }
    for (std::int64_t j = 0; j < heads * e.T; ++j) {
      const auto t = j % e.T, head = g * heads + j / e.T;
      const auto query = static_cast<std::size_t>(b * e.T + t);
      const Row r{b, g, head, t, visible.first[query], visible.last[query]};
      const auto q_at = at(e.q, b * e.T + t, g, j / e.T), o_at = at(e.o, b * e.T + t, g, j / e.T);
      std::fill_n(dq.data() + q_at, e.D, 0.0F);
      const float delta = dot(o.data() + o_at, d_o.data() + o_at, e.D);
      const float log_sum = lse[static_cast<std::size_t>((b * e.H + head) * e.T + t)];
      for (auto s = r.first; s <= r.last; ++s) {
        const auto k_at = at(e.k, b * e.S + s, g), v_at = at(e.v, b * e.S + s, g);
        const float score = static_cast<float>(e.scale) * dot(q.data() + q_at, k.data() + k_at, e.D);
        const float p = std::exp(score - log_sum), kept = keep(mask, e, r, s);
        const float ds =
            static_cast<float>(e.scale) * p * (kept * dot(d_o.data() + o_at, v.data() + v_at, e.D) - delta);
        add_scaled(p * kept, d_o.data() + o_at, e.D, dv.data() + v_at);
        add_scaled(ds, q.data() + q_at, e.D, dk.data() + k_at);
        add_scaled(ds, k.data() + k_at, e.D, dq.data() + q_at);
      }
    }
  });
}

}  // namespace tessera
