#include "framework/kernels/expert_rows.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include "framework/kernels/activation.h"
#include "framework/kernels/extents.h"
#include "framework/kernels/float_window.h"
#include "framework/kernels/scratch.h"
#include "framework/kernels/type_conversion.h"

namespace tessera::kernels {
namespace {

/// Rows of a tile that takes long enough to be worth handing to a thread.
std::size_t rows_of_a_tile(std::int64_t width) {
  return std::max<std::size_t>(1, 8192 / std::max<std::size_t>(static_cast<std::size_t>(width), 1));
}

/// A choice as torch's top-k of one expert's column sees it.
struct Candidate {
  float value;
  std::int32_t token;   ///< s * B + b
  std::int32_t choice;  ///< index in `chosen`; -1: the token did not choose this expert
};

/// Moves the `count` largest candidates to the front. Equal values are ordered as the algorithms of the standard
/// library leave them, because torch calls these algorithms (aten, topk on CPU) and the losses of Megatron-LM's
/// `position` depend on this order.
void largest_first(std::span<Candidate> all, std::size_t count) {
  const auto larger = [](const Candidate& a, const Candidate& b) { return a.value > b.value; };
  const auto middle = all.begin() + static_cast<std::ptrdiff_t>(count);
  if (count == 0 || count >= all.size()) return;
  if (count * 64 <= all.size())
    std::partial_sort(all.begin(), middle, all.end(), larger);
  else
    std::nth_element(all.begin(), middle - 1, all.end(), larger);
}

/// Elements [first, first + count) of `from`, converted to floats in `buffer`.
std::span<float> widened(const Elements& from, std::size_t first, std::size_t count, std::span<float> buffer) {
  widen_range(from.part(first, count), buffer.first(count));
  return buffer.first(count);
}

}  // namespace

void sort_choices(std::int64_t topk, std::span<const std::int32_t> chosen, std::span<std::int64_t> first_row,
                  std::span<std::int32_t> token_of_row, std::span<std::int32_t> row_of_choice) {
  expect_at_least("sort_choices", "token_of_row", token_of_row.size(), static_cast<std::int64_t>(chosen.size()));
  expect_values("sort_choices", "row_of_choice", row_of_choice.size(), static_cast<std::int64_t>(chosen.size()));
  std::fill(first_row.begin(), first_row.end(), 0);
  for (const auto expert : chosen)
    if (expert >= 0) ++first_row[static_cast<std::size_t>(expert) + 1];
  for (std::size_t e = 1; e < first_row.size(); ++e) first_row[e] += first_row[e - 1];
  // In this loop first_row[e] is the next free row of expert e; it is restored afterwards.
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    row_of_choice[i] = -1;
    if (chosen[i] < 0) continue;
    const auto row = first_row[static_cast<std::size_t>(chosen[i])]++;
    row_of_choice[i] = static_cast<std::int32_t>(row);
    token_of_row[static_cast<std::size_t>(row)] = static_cast<std::int32_t>(i / static_cast<std::size_t>(topk));
  }
  for (auto e = first_row.size() - 1; e > 0; --e) first_row[e] = first_row[e - 1];
  first_row[0] = 0;
}

std::int64_t expert_capacity(std::int64_t tokens, std::int64_t topk, std::int64_t experts, double factor) {
  const double rows = std::ceil(static_cast<double>(tokens * topk) / static_cast<double>(experts) * factor);
  return rows >= static_cast<double>(tokens) ? tokens : static_cast<std::int64_t>(rows);
}

void drop_choices(DropPolicy policy, std::int64_t experts, std::int64_t topk, std::int64_t capacity,
                  std::int64_t sequences, std::span<std::int32_t> chosen, std::span<float> weights) {
  expect_values("drop_choices", "weights", weights.size(), static_cast<std::int64_t>(chosen.size()));
  const auto K = static_cast<std::size_t>(topk), T = chosen.size() / K, B = static_cast<std::size_t>(sequences);
  const auto S = B == 0 ? 0 : T / B, keep = static_cast<std::size_t>(capacity);
  static_assert(sizeof(Candidate) == 3 * sizeof(float));
  const Scratch memory(3 * T);
  const std::span<Candidate> column(reinterpret_cast<Candidate*>(memory.data()), T);
  for (std::int64_t expert = 0; expert < experts; ++expert) {
    std::size_t candidates = 0, wanted = 0;
    for (std::size_t t = 0; t < T; ++t) {  // in the order s * B + b
      const auto token = t % B * S + t / B;
      const auto mine = chosen.subspan(token * K, K);
      const auto found = std::find(mine.begin(), mine.end(), static_cast<std::int32_t>(expert));
      const auto choice = token * K + static_cast<std::size_t>(found - mine.begin());
      const bool chose = found != mine.end();
      wanted += chose;
      if (policy == DropPolicy::position)
        column[candidates++] = {chose ? 1.0F : 0.0F, static_cast<std::int32_t>(t),
                                chose ? static_cast<std::int32_t>(choice) : -1};
      else if (chose)
        column[candidates++] = {weights[choice], static_cast<std::int32_t>(t), static_cast<std::int32_t>(choice)};
    }
    if (wanted <= keep) continue;
    const auto all = column.first(candidates);
    if (policy == DropPolicy::position)
      largest_first(all, keep);
    else
      std::sort(all.begin(), all.end(), [](const Candidate& a, const Candidate& b) {
        return a.value > b.value || (a.value == b.value && a.token < b.token);
      });
    for (const auto& dropped : all.subspan(keep))
      if (dropped.choice >= 0) {
        chosen[static_cast<std::size_t>(dropped.choice)] = -1;
        weights[static_cast<std::size_t>(dropped.choice)] = 0;
      }
  }
}

void gather_rows(Threads& threads, std::int64_t width, std::span<const std::int32_t> token_of_row, const Elements& x,
                 const MutableElements& rows) {
  expect_values("gather_rows", "rows", rows.size(), static_cast<std::int64_t>(token_of_row.size()) * width);
  if (x.type != rows.type) throw ShapeError("gather_rows: x and rows have different element types");
  const auto bytes = static_cast<std::size_t>(width) * size_of(x.type);
  threads.parallel_for(token_of_row.size(), rows_of_a_tile(width), [&](std::size_t first, std::size_t last) {
    for (auto r = first; r < last; ++r)
      std::memcpy(rows.at + r * bytes, x.at + static_cast<std::size_t>(token_of_row[r]) * bytes, bytes);
  });
}

void sum_rows(Threads& threads, std::int64_t topk, std::int64_t width, std::span<const std::int32_t> row_of_choice,
              std::span<const float> rows, const MutableElements& y, bool add) {
  const auto K = static_cast<std::size_t>(topk), n = static_cast<std::size_t>(width), T = row_of_choice.size() / K;
  expect_values("sum_rows", "y", y.size(), static_cast<std::int64_t>(T * n));
  threads.parallel_for(T, rows_of_a_tile(width), [&](std::size_t first, std::size_t last) {
    FloatWriter out(y);
    for (auto t = first; t < last; ++t)
      in_windows(0, n, out.in_place(), [&](std::size_t begin, std::size_t count) {
        float* to = out.at(t * n + begin, count, add);
        bool written = add;
        for (std::size_t k = 0; k < K; ++k) {
          const auto row = row_of_choice[t * K + k];
          if (row < 0) continue;
          const float* from = rows.data() + static_cast<std::size_t>(row) * n + begin;
          if (written)
            for (std::size_t i = 0; i < count; ++i) to[i] += from[i];
          else
            std::copy_n(from, count, to);
          written = true;
        }
        if (!written) std::fill_n(to, count, 0.0F);
        out.store();
      });
  });
}

void scale_rows(Threads& threads, std::int64_t width, std::span<const float> weight, const MutableElements& rows) {
  const auto n = static_cast<std::size_t>(width);
  expect_values("scale_rows", "rows", rows.size(), static_cast<std::int64_t>(weight.size() * n));
  threads.parallel_for(weight.size(), rows_of_a_tile(width), [&](std::size_t first, std::size_t last) {
    FloatWriter out(rows);
    for (auto r = first; r < last; ++r)
      in_windows(0, n, out.in_place(), [&](std::size_t begin, std::size_t count) {
        float* to = out.at(r * n + begin, count, true);
        for (std::size_t i = 0; i < count; ++i) to[i] *= weight[r];
        out.store();
      });
  });
}

void dot_rows(Threads& threads, std::int64_t width, const Elements& a, const Elements& b, std::span<float> products) {
  const auto n = static_cast<std::size_t>(width);
  expect_values("dot_rows", "a", a.size(), static_cast<std::int64_t>(products.size() * n));
  expect_values("dot_rows", "b", b.size(), static_cast<std::int64_t>(products.size() * n));
  threads.parallel_for(products.size(), rows_of_a_tile(width), [&](std::size_t first, std::size_t last) {
    FloatReader x(a), y(b);
    for (auto r = first; r < last; ++r) {
      double sum = 0;
      in_windows(0, n, false, [&](std::size_t begin, std::size_t count) {
        const float *p = x.at(r * n + begin, count), *q = y.at(r * n + begin, count);
        float part[8] = {};
        std::size_t i = 0;
        for (; i + 8 <= count; i += 8)
          for (std::size_t lane = 0; lane < 8; ++lane) part[lane] += p[i + lane] * q[i + lane];
        for (; i < count; ++i) part[0] += p[i] * q[i];
        for (const float lane : part) sum += static_cast<double>(lane);
      });
      products[r] = static_cast<float>(sum);
    }
  });
}

namespace {

/// act(x) of rows [first, first + rows) in fp32, in the calling thread: called inside a tile.
void activate(Threads& threads, Activation act, bool gated, std::int64_t rows, std::int64_t width, const Elements& x,
              std::span<float> y, const GateForm& form) {
  if (gated)
    gated_forward(threads, act, rows, width, x, y, form);
  else
    activation_forward(threads, act, x, y);
}

}  // namespace

void weighted_activation_forward(Threads& threads, Activation act, bool gated, std::int64_t width, const Elements& x,
                                 std::span<const float> weight, const MutableElements& y, const GateForm& form) {
  const auto n = static_cast<std::size_t>(width), wide = gated ? 2 * n : n;
  expect_values("weighted activation", "x", x.size(), static_cast<std::int64_t>(weight.size() * wide));
  expect_values("weighted activation", "y", y.size(), static_cast<std::int64_t>(weight.size() * n));
  threads.parallel_for(weight.size(), rows_of_a_tile(width), [&](std::size_t first, std::size_t last) {
    const auto count = last - first;
    const Scratch memory(count * n);
    const auto value = memory.floats();
    activate(threads, act, gated, static_cast<std::int64_t>(count), width, x.part(first * wide, count * wide), value,
             form);
    for (auto r = first; r < last; ++r)
      for (auto& v : value.subspan((r - first) * n, n)) v *= weight[r];
    narrow_range(value, y.part(first * n, count * n));
  });
}

void weighted_activation_backward(Threads& threads, Activation act, bool gated, std::int64_t width, const Elements& dy,
                                  const Elements& x, std::span<const float> weight, const MutableElements& dx,
                                  std::span<float> dweight, const GateForm& form) {
  const auto n = static_cast<std::size_t>(width), wide = gated ? 2 * n : n;
  expect_values("weighted activation", "x", x.size(), static_cast<std::int64_t>(weight.size() * wide));
  expect_values("weighted activation", "dx", dx.size(), static_cast<std::int64_t>(weight.size() * wide));
  expect_values("weighted activation", "dy", dy.size(), static_cast<std::int64_t>(weight.size() * n));
  expect_values("weighted activation", "dweight", dweight.size(), static_cast<std::int64_t>(weight.size()));
  threads.parallel_for(weight.size(), rows_of_a_tile(width), [&](std::size_t first, std::size_t last) {
    const auto count = last - first;
    const Scratch memory(2 * count * n);
    const auto value = memory.floats().first(count * n),
               d = widened(dy, first * n, count * n, memory.floats().subspan(count * n));
    const auto in = x.part(first * wide, count * wide);
    const auto out = dx.part(first * wide, count * wide);
    activate(threads, act, gated, static_cast<std::int64_t>(count), width, in, value, form);
    dot_rows(threads, width, value, d, dweight.subspan(first, count));
    for (auto r = first; r < last; ++r)
      for (auto& v : d.subspan((r - first) * n, n)) v *= weight[r];
    if (gated)
      gated_backward(threads, act, static_cast<std::int64_t>(count), width, d, in, out, false, form);
    else
      activation_backward(threads, act, d, in, out, false);
  });
}

void add_bias_rows(Threads& threads, std::span<const float> bias, double factor, std::span<const float> weight,
                   const MutableElements& rows) {
  const auto n = bias.size(), count = n == 0 ? 0 : rows.size() / n;
  expect_values("biases of experts", "rows", rows.size(), static_cast<std::int64_t>(count * n));
  if (!weight.empty()) expect_values("biases of experts", "weight", weight.size(), static_cast<std::int64_t>(count));
  threads.parallel_for(count, rows_of_a_tile(static_cast<std::int64_t>(n)), [&](std::size_t first, std::size_t last) {
    const Scratch memory(n);
    for (auto r = first; r < last; ++r) {
      const auto by = static_cast<float>(factor * (weight.empty() ? 1.0F : weight[r]));
      const auto row = widened(rows.part(r * n, n), 0, n, memory.floats());
      for (std::size_t i = 0; i < n; ++i) row[i] += by * bias[i];
      narrow_range(row, rows.part(r * n, n));
    }
  });
}

void add_bias_rows_backward(Threads& threads, std::span<const float> bias, double factor, std::span<const float> weight,
                            const Elements& drows, std::span<float> dbias, std::span<float> dweight) {
  const auto n = bias.size(), count = n == 0 ? 0 : drows.size() / n;
  expect_values("biases of experts", "drows", drows.size(), static_cast<std::int64_t>(count * n));
  if (!dbias.empty()) expect_values("biases of experts", "dbias", dbias.size(), static_cast<std::int64_t>(n));
  if (!dweight.empty()) expect_values("biases of experts", "dweight", dweight.size(), static_cast<std::int64_t>(count));
  constexpr std::size_t columns = 256;
  if (!dbias.empty())
    threads.parallel_for((n + columns - 1) / columns, 1, [&](std::size_t first, std::size_t last) {
      const Scratch memory(columns);
      for (auto block = first; block < last; ++block) {
        const auto begin = block * columns, width = std::min(columns, n - begin);
        std::array<double, columns> sum{};
        for (std::size_t r = 0; r < count; ++r) {
          const auto row = widened(drows, r * n + begin, width, memory.floats());
          const double by = weight.empty() ? 1.0 : static_cast<double>(weight[r]);
          for (std::size_t i = 0; i < width; ++i) sum[i] += by * static_cast<double>(row[i]);
        }
        for (std::size_t i = 0; i < width; ++i) dbias[begin + i] += static_cast<float>(sum[i]);
      }
    });
  if (!dweight.empty())
    threads.parallel_for(count, rows_of_a_tile(static_cast<std::int64_t>(n)), [&](std::size_t first, std::size_t last) {
      const Scratch memory(n);
      for (auto r = first; r < last; ++r) {
        const auto row = widened(drows, r * n, n, memory.floats());
        double sum = 0;
        for (std::size_t i = 0; i < n; ++i) sum += static_cast<double>(row[i]) * static_cast<double>(bias[i]);
        dweight[r] += static_cast<float>(factor * sum);
      }
    });
}

}  // namespace tessera::kernels
