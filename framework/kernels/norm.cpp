// Norms in Highway: one source, compiled for every instruction set. A row is read two or three times while it is in the
// L1 cache.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "framework/kernels/norm.cpp"
#include <hwy/foreach_target.h>  // compiles this file once for each target
// must come after foreach_target.h
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>

#include "framework/kernels/extents.h"
#include "framework/kernels/norm.h"
#include "framework/kernels/norm_rows.h"
#include "framework/kernels/range-inl.h"
#include "framework/kernels/scratch.h"
#include "framework/kernels/type_conversion.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using range::D;
using range::Two;
using range::V;

/// Calls f(i, load, store) for each vector of a row, and for the tail.
template <class F>
HWY_INLINE void EachVector(std::size_t size, const F& f) {
  std::size_t i = 0;
  for (; i + range::lanes <= size; i += range::lanes) {
    f(i, range::Whole(), [](V v, float* y) HWY_ATTR { hn::StoreU(v, D(), y); });
  }
  if (i == size) return;
  const auto rest = size - i;
  f(i, range::Tail{rest}, [rest](V v, float* y) HWY_ATTR { range::StoreTail(v, y, rest); });
}

/// Layer norm of one row. The first pass gives a mean rounded to float. The deviations from it then give both the
/// correction of the mean and the variance, without the cancellation of mean(x^2) - mean(x)^2.
NormOfRow LayerNormRow(const NormRow& n) {
  const double count = static_cast<double>(n.width);
  const auto rough =
      static_cast<float>(range::Sum(n.width, [&](std::size_t i, auto load) HWY_ATTR { return load(n.x + i); }) / count);
  const V centre = hn::Set(D(), rough);
  const auto sums = range::SumTwo(n.width, [&](std::size_t i, auto load) HWY_ATTR {
    const V off = hn::Sub(load(n.x + i), centre);
    return Two<V>{off, hn::Mul(off, off)};
  });
  const double correction = sums.a / count, variance = std::max(0.0, sums.b / count - correction * correction);
  const double inv = 1 / std::sqrt(variance + n.eps);
  const V shift = hn::Set(D(), static_cast<float>(correction)), by = hn::Set(D(), static_cast<float>(inv));
  const V offset = hn::Set(D(), n.gain_offset);
  EachVector(n.width, [&](std::size_t i, auto load, auto store) HWY_ATTR {
    const V xhat = hn::Mul(hn::Sub(hn::Sub(load(n.x + i), centre), shift), by);
    const V gain = hn::Add(load(n.gain + i), offset);
    store(n.bias == nullptr ? hn::Mul(xhat, gain) : hn::MulAdd(xhat, gain, load(n.bias + i)), n.y + i);
  });
  return {static_cast<float>(rough + correction), static_cast<float>(inv)};
}

/// RMS norm of one row.
NormOfRow RmsNormRow(const NormRow& n) {
  const double squares = range::Sum(n.width, [&](std::size_t i, auto load) HWY_ATTR {
    const V v = load(n.x + i);
    return hn::Mul(v, v);
  });
  const auto inv = static_cast<float>(1 / std::sqrt(squares / static_cast<double>(n.width) + n.eps));
  const V by = hn::Set(D(), inv), offset = hn::Set(D(), n.gain_offset);
  EachVector(n.width, [&](std::size_t i, auto load, auto store) HWY_ATTR {
    store(hn::Mul(hn::Mul(load(n.x + i), by), hn::Add(load(n.gain + i), offset)), n.y + i);
  });
  return {0, inv};
}

/// Backward pass of one row. With xhat = (x - mean) * inv and g = dy * (gain + offset):
///   dx = inv * (g - mean(g) - xhat * mean(g * xhat))      without mean(g) for rmsnorm
///   dgain += dy * xhat,  dbias += dy
template <bool layernorm, bool biased>
HWY_INLINE void RowBackward(const NormRowBackward& n) {
  const double count = static_cast<double>(n.width);
  const V mean = hn::Set(D(), n.mean), inv = hn::Set(D(), n.inv), offset = hn::Set(D(), n.gain_offset);
  const auto xhat_at = [&](std::size_t i, auto load) HWY_ATTR {
    const V v = load(n.x + i);
    return hn::Mul(layernorm ? hn::Sub(v, mean) : v, inv);
  };
  const auto sums = range::SumTwo(n.width, [&](std::size_t i, auto load) HWY_ATTR {
    const V g = hn::Mul(load(n.dy + i), hn::Add(load(n.gain + i), offset));
    return Two<V>{g, hn::Mul(g, xhat_at(i, load))};
  });
  const V mean_g = hn::Set(D(), static_cast<float>(sums.a / count));
  const V mean_gx = hn::Set(D(), static_cast<float>(sums.b / count));
  EachVector(n.width, [&](std::size_t i, auto load, auto store) HWY_ATTR {
    const V xhat = xhat_at(i, load), dy = load(n.dy + i);
    V g = hn::Mul(dy, hn::Add(load(n.gain + i), offset));
    if (layernorm) g = hn::Sub(g, mean_g);
    store(hn::MulAdd(dy, xhat, load(n.dgain + i)), n.dgain + i);
    if (biased) store(hn::Add(dy, load(n.dbias + i)), n.dbias + i);
    const V dx = hn::Mul(inv, hn::NegMulAdd(xhat, mean_gx, g));
    store(n.add ? hn::Add(load(n.dx + i), dx) : dx, n.dx + i);
  });
}

void LayerNormRowBackward(const NormRowBackward& n) {
  n.dbias == nullptr ? RowBackward<true, false>(n) : RowBackward<true, true>(n);
}
void RmsNormRowBackward(const NormRowBackward& n) { RowBackward<false, false>(n); }

}  // namespace HWY_NAMESPACE
}  // namespace tessera::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {
namespace {

HWY_EXPORT(LayerNormRow);
HWY_EXPORT(RmsNormRow);
HWY_EXPORT(LayerNormRowBackward);
HWY_EXPORT(RmsNormRowBackward);

/// Scratch memory for a row of a 16-bit operand as floats; empty for fp32, which is used in place.
Scratch row_memory(DType type, std::size_t width) { return Scratch(type == DType::float32 ? 0 : width); }

/// A row of an operand as floats: in place, or widened into `memory`.
const float* row_of(const Elements& all, std::size_t row, std::size_t width, const Scratch& memory) {
  const auto part = all.part(row * width, width);
  if (part.type == DType::float32) return reinterpret_cast<const float*>(part.at);
  widen_range(part, memory.floats());
  return memory.data();
}

/// A row of a result as floats: in place, or in `memory` until store() rounds it to the type of the result.
class ResultRow {
 public:
  ResultRow(const MutableElements& all, std::size_t row, std::size_t width, bool update, const Scratch& memory)
      : part_(all.part(row * width, width)) {
    if (part_.type == DType::float32) {
      floats_ = {reinterpret_cast<float*>(part_.at), width};
      return;
    }
    floats_ = memory.floats();
    if (update) widen_range(part_, floats_);
  }
  float* floats() const { return floats_.data(); }
  void store() const {
    if (part_.type != DType::float32) narrow_range(floats_, part_);
  }

 private:
  MutableElements part_;
  std::span<float> floats_;
};

/// Shape of x, derived from the size of x and the size of the gain.
struct Rows {
  std::size_t rows, width;
};

Rows rows_of(const char* who, std::size_t x, std::size_t gain) {
  if (gain == 0 || x % gain != 0) {
    throw ShapeError(text(who, ": x has ", x, " values, no whole number of rows of ", gain));
  }
  return {x / gain, gain};
}

/// Rows that share one partial sum of dgain: at most 64 partial sums, whatever the number of threads.
std::size_t rows_of_a_sum(std::size_t rows) { return std::max<std::size_t>(16, (rows + 63) / 64); }

/// Arguments of a backward pass over all rows.
struct Backward {
  Elements dy, x;
  std::span<const float> gain, mean, inv;  // mean empty: rmsnorm
  float offset;
  MutableElements dx;
  bool add;
};

/// Rows [first, last); dgain and dbias are the partial sums of this range.
void backward_of_rows(const Backward& b, std::size_t first, std::size_t last, float* dgain, float* dbias) {
  const std::size_t n = b.gain.size();
  const Scratch dx_memory = row_memory(b.dx.type, n), dy_memory = row_memory(b.dy.type, n),
                x_memory = row_memory(b.x.type, n);
  for (auto r = first; r < last; ++r) {
    const ResultRow dx(b.dx, r, n, b.add, dx_memory);
    const NormRowBackward row{.width = n,
                              .dy = row_of(b.dy, r, n, dy_memory),
                              .x = row_of(b.x, r, n, x_memory),
                              .gain = b.gain.data(),
                              .gain_offset = b.offset,
                              .mean = b.mean.empty() ? 0.0F : b.mean[r],
                              .inv = b.inv[r],
                              .dx = dx.floats(),
                              .add = b.add,
                              .dgain = dgain,
                              .dbias = dbias};
    b.mean.empty() ? HWY_DYNAMIC_DISPATCH(RmsNormRowBackward)(row) : HWY_DYNAMIC_DISPATCH(LayerNormRowBackward)(row);
    dx.store();
  }
}

/// Two loops: ranges of rows with one partial sum each, then the partial sums added in double by columns, in order.
void norm_backward(Threads& threads, const Backward& b, std::span<float> dgain, std::span<float> dbias) {
  const std::size_t n = b.gain.size(), rows = b.x.size() / n;
  const std::size_t tile = rows_of_a_sum(rows), tiles = (rows + tile - 1) / tile;
  const std::size_t run = dbias.empty() ? n : 2 * n;
  const Scratch memory(tiles * run);
  float* partials = memory.data();
  threads.parallel_for(rows, tile, [&](std::size_t first, std::size_t last) {
    float* mine = partials + first / tile * run;
    std::fill_n(mine, run, 0.0F);
    backward_of_rows(b, first, last, mine, dbias.empty() ? nullptr : mine + n);
  });
  constexpr std::size_t columns = 128;
  threads.parallel_for(run, columns, [&](std::size_t first, std::size_t last) {
    double sums[columns] = {};
    for (std::size_t t = 0; t < tiles; ++t) {
      const float* part = partials + t * run + first;
      for (std::size_t i = 0; i < last - first; ++i) sums[i] += static_cast<double>(part[i]);
    }
    for (auto i = first; i < last; ++i) (i < n ? dgain[i] : dbias[i - n]) += static_cast<float>(sums[i - first]);
  });
}

void check_backward(const char* who, const Backward& b, std::size_t dgain) {
  const auto [rows, width] = rows_of(who, b.x.size(), b.gain.size());
  expect_values(who, "dy", b.dy.size(), static_cast<std::int64_t>(b.x.size()));
  expect_values(who, "dx", b.dx.size(), static_cast<std::int64_t>(b.x.size()));
  expect_values(who, "what the forward pass kept", b.inv.size(), static_cast<std::int64_t>(rows));
  expect_values(who, "dgain", dgain, static_cast<std::int64_t>(width));
}

}  // namespace

void layernorm_forward(Threads& threads, const LayerNormForward& of) {
  const auto rows = rows_of("layernorm", of.x.size(), of.gain.size()).rows, n = of.gain.size();
  expect_values("layernorm", "y", of.y.size(), static_cast<std::int64_t>(of.x.size()));
  expect_values("layernorm", "mean", of.mean.size(), static_cast<std::int64_t>(rows));
  expect_values("layernorm", "inv_std", of.inv_std.size(), static_cast<std::int64_t>(rows));
  if (!of.bias.empty()) expect_values("layernorm", "bias", of.bias.size(), static_cast<std::int64_t>(n));
  threads.parallel_for(rows, 16, [&](std::size_t first, std::size_t last) {
    const Scratch y_memory = row_memory(of.y.type, n), x_memory = row_memory(of.x.type, n);
    for (auto r = first; r < last; ++r) {
      const ResultRow out(of.y, r, n, false, y_memory);
      const NormRow row{.width = n,
                        .x = row_of(of.x, r, n, x_memory),
                        .gain = of.gain.data(),
                        .bias = of.bias.empty() ? nullptr : of.bias.data(),
                        .eps = of.eps,
                        .gain_offset = of.gain_offset,
                        .y = out.floats()};
      const auto kept = HWY_DYNAMIC_DISPATCH(LayerNormRow)(row);
      out.store();
      of.mean[r] = kept.mean;
      of.inv_std[r] = kept.inv;
    }
  });
}

void layernorm_backward(Threads& threads, const LayerNormBackward& of) {
  const Backward b{.dy = of.dy,
                   .x = of.x,
                   .gain = of.gain,
                   .mean = of.mean,
                   .inv = of.inv_std,
                   .offset = of.gain_offset,
                   .dx = of.dx,
                   .add = of.add};
  check_backward("layernorm", b, of.dgain.size());
  expect_values("layernorm", "mean", of.mean.size(), static_cast<std::int64_t>(of.inv_std.size()));
  if (!of.dbias.empty())
    expect_values("layernorm", "dbias", of.dbias.size(), static_cast<std::int64_t>(of.gain.size()));
  norm_backward(threads, b, of.dgain, of.dbias);
}

void rmsnorm_forward(Threads& threads, const RmsNormForward& of) {
  const auto rows = rows_of("rmsnorm", of.x.size(), of.gain.size()).rows, n = of.gain.size();
  expect_values("rmsnorm", "y", of.y.size(), static_cast<std::int64_t>(of.x.size()));
  expect_values("rmsnorm", "inv_rms", of.inv_rms.size(), static_cast<std::int64_t>(rows));
  threads.parallel_for(rows, 16, [&](std::size_t first, std::size_t last) {
    const Scratch y_memory = row_memory(of.y.type, n), x_memory = row_memory(of.x.type, n);
    for (auto r = first; r < last; ++r) {
      const ResultRow out(of.y, r, n, false, y_memory);
      of.inv_rms[r] = HWY_DYNAMIC_DISPATCH(RmsNormRow)({.width = n,
                                                        .x = row_of(of.x, r, n, x_memory),
                                                        .gain = of.gain.data(),
                                                        .bias = nullptr,
                                                        .eps = of.eps,
                                                        .gain_offset = of.gain_offset,
                                                        .y = out.floats()})
                          .inv;
      out.store();
    }
  });
}

void rmsnorm_backward(Threads& threads, const RmsNormBackward& of) {
  const Backward b{.dy = of.dy,
                   .x = of.x,
                   .gain = of.gain,
                   .mean = {},
                   .inv = of.inv_rms,
                   .offset = of.gain_offset,
                   .dx = of.dx,
                   .add = of.add};
  check_backward("rmsnorm", b, of.dgain.size());
  norm_backward(threads, b, of.dgain, {});
}

}  // namespace tessera::kernels
#endif  // HWY_ONCE
