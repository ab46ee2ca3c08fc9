#pragma once

#include <cmath>
#include <limits>
#include <ostream>
#include <vector>

#include "framework/kernels/attention.h"
#include "tests/kernels/reference.h"

/// Cases of attention, their inputs and what plain loops in double make of them.
namespace tessera::kernels::attention_cases {

using Doubles = std::vector<double>;

/// A bias by distance, exact or rounded as in Falcon.
enum class Bias { none, exact, rounded };

/// Which keys a query sees.
enum class See { all, causal, suffix, window, documents, ragged, both_ways, scattered };

struct Case {
  std::int64_t B, T, S, H, G, D;
  See see;
  double rate = 0;
  std::int64_t first_element = 0;
  double softcap = 0;
  Bias bias = Bias::none;
  bool sinks = false;
};

inline std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << "B" << c.B << " T" << c.T << " S" << c.S << " H" << c.H << " G" << c.G << " D" << c.D << " see "
             << static_cast<int>(c.see) << " rate " << c.rate << " bias " << static_cast<int>(c.bias) << " sinks "
             << c.sinks;
}

/// Inputs in a fused layout [rows, group: (heads of q), k, v] with gaps, o dense; T and S differ, so q has its own
/// buffer. Gaps are of odd numbers of elements, unless `even`.
struct Work {
  Case c;
  AttentionExtents e;
  std::vector<std::int32_t> first, last;
  std::vector<std::uint8_t> among;
  std::vector<std::int64_t> ids;
  std::vector<float> q, kv, d_o, slopes, sinks;

  explicit Work(const Case& what, bool even = false) : c(what) {
    const auto heads = c.H / c.G;
    const std::int64_t odd = even ? 0 : 1;
    e = {c.B, c.T, c.S, c.H, c.G, c.D, 1 / std::sqrt(static_cast<double>(c.D)), {}, {}, {}, {}, c.softcap};
    e.q = {c.H * c.D + 2 + odd, 2, heads * c.D, c.D};
    e.k = {2 * c.G * c.D + 4 + odd, 2 - odd, 2 * c.D, 0};
    e.v = {2 * c.G * c.D + 4 + odd, 2 - odd + c.D, 2 * c.D, 0};
    e.o = {c.H * c.D, 0, heads * c.D, c.D};
    q = random_normal(static_cast<std::size_t>(c.B * c.T * e.q.row_stride), 1, 0, 1.5F);
    kv = random_normal(static_cast<std::size_t>(c.B * c.S * e.k.row_stride), 2, 0, 1.5F);
    d_o = random_normal(static_cast<std::size_t>(c.B * c.T * c.H * c.D), 3);
    for (std::int64_t b = 0; b < c.B; ++b) ids.push_back(1000 + 7 * b);
    for (std::int64_t i = 0; i < c.B * c.T; ++i) look(i % c.T, i);
    for (std::int64_t h = 0; h < c.H; ++h) {
      if (c.bias != Bias::none) slopes.push_back(0.37F / static_cast<float>(1 + h));
      if (c.sinks) sinks.push_back(1.5F - static_cast<float>(h));
    }
    if (c.bias != Bias::none) e.alibi = {slopes, 700 + c.S - c.T, 700, 0.6, c.bias == Bias::rounded};
  }
  Work(const Work&) = delete;  // e refers to the slopes

  /// What the bias adds to the score of query t and key s.
  double bias(std::int64_t head, std::int64_t t, std::int64_t s) const {
    if (c.bias == Bias::none) return 0;
    const float slope = slopes[static_cast<std::size_t>(head)];
    const auto key = static_cast<double>(700 + s), query = static_cast<double>(700 + c.S - c.T + t);
    if (c.bias == Bias::exact) return 0.6 * slope * (key - query);
    const auto rounded = static_cast<float>(bfloat16(slope)), position = static_cast<float>(bfloat16(700.0F + s));
    return 0.6 * (static_cast<float>(bfloat16(rounded * position)) - rounded * query);
  }

  void look(std::int64_t t, std::int64_t i) {
    std::int64_t a = 0, z = c.S - 1;
    switch (c.see) {
      case See::all:
        break;
      case See::causal:
        z = std::min(t, c.S - 1);
        break;
      case See::suffix:
        z = c.S - c.T + t;
        break;
      case See::window:
        z = std::min(t, c.S - 1), a = std::max<std::int64_t>(0, z - 6);
        break;
      case See::documents:
        z = std::min(t, c.S - 1), a = std::min(z, t / 21 * 21);
        break;
      case See::ragged:
        a = i * 37 % c.S, z = i % 5 == 0 ? a - 1 : std::min(c.S - 1, a + i * 13 % 90);
        break;
      case See::both_ways:
        z = std::min(t + 5, c.S - 1), a = std::max<std::int64_t>(0, t - 9);
        break;
      case See::scattered:  // of each seventh query nothing
        for (std::int64_t s = 0; s < c.S; ++s) among.push_back(i % 7 != 3 && (s * 31 + t * 17) % 5 < 2 ? 1 : 0);
        break;
    }
    first.push_back(static_cast<std::int32_t>(a));
    last.push_back(static_cast<std::int32_t>(z));
  }

  DropoutMask mask() const { return {RandomKey(9, Purpose::attention_dropout, 3), ids, c.rate, c.first_element}; }

  VisibleKeys visible() const { return {first, last, among}; }
  bool sees(std::int64_t row, std::int64_t s) const {
    return first[row] <= s && s <= last[row] && (among.empty() || among[row * c.S + s] != 0);
  }

  double keep(std::int64_t b, std::int64_t head, std::int64_t t, std::int64_t s) const {
    if (c.rate == 0) return 1;
    const auto element = static_cast<std::uint64_t>(c.first_element + (head * c.T + t) * c.S + s);
    const auto word =
        mask().key.words(static_cast<std::uint64_t>(ids[static_cast<std::size_t>(b)]), element / 4)[element % 4];
    return word < c.rate * 0x1p32 ? 0 : 1 / (1 - c.rate);
  }

  std::vector<float> forward(Threads& threads, std::vector<float>& o, std::vector<float>& lse) const {
    o.assign(d_o.size(), 77.0F);
    lse.assign(static_cast<std::size_t>(c.B * c.H * c.T), 77.0F);
    attention_forward(threads, e, visible(), mask(), {.q = q, .k = kv, .v = kv, .o = o, .lse = lse, .sinks = sinks});
    return joined({o, lse});
  }

  /// dq, then dk and dv in the layout of kv, then those of the sinks, added to 0.5; what lies between heads keeps the
  /// value it had.
  std::vector<float> backward(Threads& threads) const {
    std::vector<float> o, lse, dq(q.size(), 55.0F), dkv(kv.size(), 55.0F);
    forward(threads, o, lse);
    attention_backward(threads, e, visible(), mask(),
                       {.q = q, .k = kv, .v = kv, .o = o, .lse = lse, .d_o = d_o, .dq = dq, .dk = dkv, .dv = dkv});
    std::vector<float> dsinks(sinks.size(), 0.5F);
    if (c.sinks) attention_sinks_backward(threads, e, sinks, o, d_o, lse, dsinks);
    return joined({dq, dkv, dsinks});
  }
};

inline std::size_t at(const HeadRows& rows, std::int64_t row, std::int64_t group, std::int64_t head = 0) {
  return static_cast<std::size_t>(row * rows.row_stride + rows.offset + group * rows.group_stride +
                                  head * rows.head_stride);
}

/// The plain loops in double: o and lse, and the gradients of sum(d_o * o) by the chain rule, written out. `sizes_of_*`
/// are the same sums of the absolute values of all terms: an error of every term of relative size u changes a result by
/// u times that.
struct Plain {
  Doubles o, lse, dq, dkv, dsinks, sizes_of_o, sizes_of_dq, sizes_of_dkv;

  explicit Plain(const Work& w)
      : Plain(w, Doubles(w.q.begin(), w.q.end()), Doubles(w.kv.begin(), w.kv.end()),
              Doubles(w.sinks.begin(), w.sinks.end())) {}
  Plain(const Work& w, const Doubles& q, const Doubles& kv, const Doubles& sinks)
      : o(w.d_o.size()),
        lse(static_cast<std::size_t>(w.c.B * w.c.H * w.c.T), -std::numeric_limits<double>::infinity()),
        dq(q.size(), 55.0),
        dkv(kv.size(), 55.0),
        dsinks(sinks.size(), 0.5),
        sizes_of_o(o.size()),
        sizes_of_dq(q.size()),
        sizes_of_dkv(kv.size()) {
    const auto& c = w.c;
    const auto heads = c.H / c.G, size = c.D;
    for (std::int64_t i = 0; i < c.B * c.S * c.G; ++i)
      for (std::int64_t j = 0; j < size; ++j)
        dkv[at(w.e.k, i / c.G, i % c.G) + j] = dkv[at(w.e.v, i / c.G, i % c.G) + j] = 0;
    for (std::int64_t i = 0; i < c.B * c.H * c.T; ++i) {
      const auto b = i / (c.H * c.T), head = i / c.T % c.H, t = i % c.T, g = head / heads, row = b * c.T + t;
      const auto q_at = at(w.e.q, row, g, head % heads), o_at = at(w.e.o, row, g, head % heads);
      for (std::int64_t j = 0; j < size; ++j) dq[q_at + j] = 0;
      std::vector<std::int64_t> keys;
      for (std::int64_t s = 0; s < c.S; ++s)
        if (w.sees(row, s)) keys.push_back(s);
      const auto sink = sinks.empty() ? -HUGE_VAL : sinks[static_cast<std::size_t>(head)];
      lse[i] = sink;
      if (keys.empty()) continue;
      Doubles p, dp, slope;
      double most = sink, sum = 0, delta = 0;
      for (const auto s : keys) {
        double dot = 0, dv_dot = 0;
        for (std::int64_t j = 0; j < size; ++j) {
          dot += q[q_at + j] * kv[at(w.e.k, b * c.S + s, g) + j];
          dv_dot += w.d_o[o_at + j] * kv[at(w.e.v, b * c.S + s, g) + j];
        }
        const double capped = c.softcap == 0 ? 0 : std::tanh(dot * w.e.scale / c.softcap);
        p.push_back((c.softcap == 0 ? dot * w.e.scale : c.softcap * capped) + w.bias(head, t, s));
        slope.push_back(1 - capped * capped);
        dp.push_back(dv_dot * w.keep(b, head, t, s));
        most = std::max(most, p.back());
      }
      for (auto& x : p) sum += x = std::exp(x - most);
      sum += std::exp(sink - most);
      lse[i] = most + std::log(sum);
      for (std::size_t k = 0; k < p.size(); ++k) delta += (p[k] /= sum) * dp[k];
      if (!sinks.empty()) dsinks[static_cast<std::size_t>(head)] -= std::exp(sink - lse[i]) * delta;
      double size_of_delta = 0;
      for (std::size_t k = 0; k < p.size(); ++k)
        for (std::int64_t j = 0; j < size; ++j)
          size_of_delta +=
              p[k] * w.keep(b, head, t, keys[k]) * std::fabs(w.d_o[o_at + j] * kv[at(w.e.v, b * c.S + keys[k], g) + j]);
      for (std::size_t k = 0; k < keys.size(); ++k) {
        const auto s = keys[k];
        const double share = p[k] * w.keep(b, head, t, s), ds = p[k] * (dp[k] - delta) * slope[k] * w.e.scale;
        for (std::int64_t j = 0; j < size; ++j) {
          const auto k_at = at(w.e.k, b * c.S + s, g) + j, v_at = at(w.e.v, b * c.S + s, g) + j;
          o[o_at + j] += share * kv[v_at];
          dkv[v_at] += share * w.d_o[o_at + j];
          dq[q_at + j] += ds * kv[k_at];
          dkv[k_at] += ds * q[q_at + j];
          const double size_of_ds = p[k] * (std::fabs(dp[k]) + size_of_delta) * slope[k] * w.e.scale;
          sizes_of_o[o_at + j] += std::fabs(share * kv[v_at]);
          sizes_of_dkv[v_at] += std::fabs(share * w.d_o[o_at + j]);
          sizes_of_dq[q_at + j] += std::fabs(size_of_ds * kv[k_at]);
          sizes_of_dkv[k_at] += std::fabs(size_of_ds * q[q_at + j]);
        }
      }
    }
  }
};

inline const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {2, 7, 7, 2, 2, 5, See::causal},
      {1, 50, 50, 4, 2, 12, See::causal},
      {2, 100, 100, 2, 1, 64, See::causal},
      {1, 97, 97, 1, 1, 80, See::causal},
      {1, 33, 33, 2, 2, 128, See::causal},
      {1, 49, 130, 4, 2, 16, See::suffix},
      {2, 3, 75, 4, 2, 20, See::suffix},
      {1, 1, 131, 3, 1, 64, See::suffix},
      {1, 150, 150, 2, 2, 33, See::window},
      {1, 131, 131, 2, 1, 24, See::documents},
      {2, 40, 90, 2, 2, 7, See::all},
      {2, 101, 140, 4, 2, 10, See::ragged},
      {2, 2, 30, 2, 1, 70, See::ragged},
      {9, 20, 20, 2, 1, 8, See::causal},
      {2, 70, 70, 2, 1, 12, See::both_ways},
      {2, 61, 75, 4, 2, 9, See::scattered},
      {2, 3, 40, 2, 2, 8, See::scattered},
      {2, 66, 66, 4, 2, 20, See::causal, 0, 0, 0.7},
      {1, 2, 50, 2, 1, 9, See::suffix, 0, 0, 1.5},
      {1, 70, 70, 2, 2, 10, See::scattered, 0, 0, 2},
      {2, 97, 97, 4, 2, 12, See::causal, 0, 0, 0, Bias::exact},
      {1, 90, 90, 3, 3, 8, See::window, 0, 0, 2, Bias::exact},
      {1, 77, 77, 3, 1, 16, See::documents, 0, 0, 0, Bias::rounded},
      {2, 3, 75, 4, 2, 20, See::suffix, 0, 0, 0, Bias::exact},
      {1, 1, 131, 3, 1, 16, See::suffix, 0, 0, 0, Bias::rounded},
      {2, 2, 40, 2, 2, 8, See::scattered, 0, 0, 2, Bias::exact, true},
      {2, 85, 85, 4, 2, 12, See::causal, 0, 0, 0, Bias::none, true},
      {2, 101, 140, 4, 2, 10, See::ragged, 0, 0, 0, Bias::none, true},
      {2, 61, 75, 4, 2, 9, See::scattered, 0, 0, 0, Bias::exact, true},
      {2, 3, 30, 2, 1, 70, See::ragged, 0, 0, 0, Bias::none, true},
  };
  return all;
}

inline const std::vector<Case>& dropped() {
  static const std::vector<Case> all = {
      {2, 64, 64, 2, 2, 16, See::causal, 0.2},
      {2, 53, 71, 4, 2, 9, See::ragged, 0.3},
      {1, 60, 61, 2, 1, 32, See::causal, 0.5, 3},
      {2, 2, 45, 2, 1, 16, See::all, 0.4, 1},
      {1, 50, 60, 2, 2, 16, See::scattered, 0.3, 0, 3},
      {2, 60, 60, 4, 2, 16, See::causal, 0.3, 0, 0, Bias::exact, true},
      {1, 50, 66, 2, 2, 16, See::all, 0.5, 17179869170},  // the first query passes the 2^32nd block
  };
  return all;
}

}  // namespace tessera::kernels::attention_cases
