#include "framework/kernels/linear.h"

#include <algorithm>
#include <array>

#include "framework/base/error.h"
#include "framework/kernels/gemm.h"
#include "framework/kernels/gemm_blas.h"
#include "framework/kernels/task_grid.h"
#include "framework/kernels/type_conversion.h"

namespace tessera::kernels {
namespace {

/// Throws ShapeError unless size == rows * width.
void expect_rows(const char* who, const char* what, std::size_t size, std::int64_t rows, std::int64_t width) {
  if (rows >= 0 && width >= 0 && size == static_cast<std::size_t>(rows) * static_cast<std::size_t>(width)) return;
  throw ShapeError(text(who, ": ", what, " has ", size, " values; expected ", rows, " rows of ", width));
}

void expect_bias(const char* who, std::span<const float> bias, std::int64_t out) {
  if (!bias.empty()) expect_rows(who, "bias", bias.size(), 1, out);
}

// Each product of a linear layer as c = a b^T of gemm.h; the strides of Factor say which index is summed over. dw is
// [out, in] = dy^T x: the rows (tokens) are the summed index, and outer in both operands.
MatrixProduct forward(LinearExtents e, const Elements& x, const Weight& w, std::span<const float> bias,
                      const MutableElements& y) {
  MatrixProduct p{.M = e.rows, .N = e.out, .K = e.in, .a = {x, e.in, 1}, .b = {w, e.in, 1}, .c = y};
  if (!bias.empty()) p.bias = bias.data();
  return p;
}

MatrixProduct backward_input(const char* who, LinearExtents e, const Elements& dy, const Weight& w,
                             const MutableElements& dx, bool add) {
  expect_rows(who, "dy", dy.size(), e.rows, e.out);
  expect_rows(who, "w", w.size(), e.out, e.in);
  expect_rows(who, "dx", dx.size(), e.rows, e.in);
  return {e.rows, e.in, e.out, {dy, e.out, 1}, {w, 1, e.in}, dx, add};
}

MatrixProduct backward_weight(const char* who, LinearExtents e, const Elements& dy, const Elements& x,
                              std::span<float> dw, bool add) {
  expect_rows(who, "dy", dy.size(), e.rows, e.out);
  expect_rows(who, "x", x.size(), e.rows, e.in);
  expect_rows(who, "dw", dw.size(), e.out, e.in);
  return {e.out, e.in, e.rows, {dy, 1, e.out}, {x, 1, e.in}, dw, add};
}

}  // namespace

bool multiplies_floats(DType type) { return type != DType::bfloat16 || pair_tiles() == nullptr; }

void linear_forward(Threads& threads, LinearExtents e, const Elements& x, const Weight& w, std::span<const float> bias,
                    const MutableElements& y) {
  constexpr auto me = "linear_forward";
  expect_rows(me, "x", x.size(), e.rows, e.in);
  expect_rows(me, "w", w.size(), e.out, e.in);
  expect_rows(me, "y", y.size(), e.rows, e.out);
  expect_bias(me, bias, e.out);
  multiply(threads, forward(e, x, w, bias, y));
}

void linear_add(Threads& threads, LinearExtents e, const Elements& x, const Elements& w, const MutableElements& y) {
  constexpr auto me = "linear_add";
  expect_rows(me, "x", x.size(), e.rows, e.in);
  expect_rows(me, "w", w.size(), e.out, e.in);
  expect_rows(me, "y", y.size(), e.rows, e.out);
  MatrixProduct p = forward(e, x, w, {}, y);
  p.add = true;
  multiply(threads, p);
}

void linear_activation_forward(Threads& threads, LinearExtents e, Activation act, const Elements& x, const Weight& w,
                               std::span<const float> bias, const MutableElements& before, const MutableElements& y) {
  constexpr auto me = "linear_activation_forward";
  must(act != Activation::none, "linear_activation_forward is called for an activation");
  expect_rows(me, "x", x.size(), e.rows, e.in);
  expect_rows(me, "w", w.size(), e.out, e.in);
  expect_rows(me, "before", before.size(), e.rows, e.out);
  expect_rows(me, "y", y.size(), e.rows, e.out);
  expect_bias(me, bias, e.out);
  MatrixProduct p = forward(e, x, w, bias, before);
  p.act = act;
  p.y = y;
  multiply(threads, p);
}

void linear_forward_in_double(Threads& threads, LinearExtents e, const Elements& x, const Weight& w,
                              const MutableElements& y) {
  constexpr auto me = "linear_forward_in_double";
  expect_rows(me, "x", x.size(), e.rows, e.in);
  expect_rows(me, "w", w.size(), e.out, e.in);
  expect_rows(me, "y", y.size(), e.rows, e.out);
  multiply_in_double(threads, forward(e, x, w, {}, y));
}

void linear_backward_input(Threads& threads, LinearExtents e, const Elements& dy, const Weight& w,
                           const MutableElements& dx, bool add) {
  multiply(threads, backward_input("linear_backward_input", e, dy, w, dx, add));
}

void linear_backward_input_in_double(Threads& threads, LinearExtents e, const Elements& dy, const Weight& w,
                                     const MutableElements& dx, bool add) {
  multiply_in_double(threads, backward_input("linear_backward_input_in_double", e, dy, w, dx, add));
}

void linear_backward_weight(Threads& threads, LinearExtents e, const Elements& dy, const Elements& x,
                            std::span<float> dw, bool add) {
  multiply(threads, backward_weight("linear_backward_weight", e, dy, x, dw, add));
}

void linear_backward_weight_in_double(Threads& threads, LinearExtents e, const Elements& dy, const Elements& x,
                                      std::span<float> dw, bool add) {
  multiply_in_double(threads, backward_weight("linear_backward_weight_in_double", e, dy, x, dw, add));
}

namespace {

MatrixProduct product_of(LinearProduct which, const LinearOperands& layer) {
  constexpr auto me = "linear_group";
  const auto& [e, left, right, result, add] = layer;
  switch (which) {
    case LinearProduct::forward:
      expect_rows(me, "x", left.size(), e.rows, e.in);
      expect_rows(me, "w", right.size(), e.out, e.in);
      expect_rows(me, "y", result.size(), e.rows, e.out);
      must(!add, "the result of a forward pass is not added to");
      return forward(e, left, right, {}, result);
    case LinearProduct::backward_input:
      return backward_input(me, e, left, right, result, add);
    case LinearProduct::backward_weight:
      must(result.type == DType::float32, "gradients of weights are floats");
      return backward_weight(me, e, left, right.elements, {reinterpret_cast<float*>(result.at), result.size()}, add);
  }
  throw BugError("linear_group: no such product");
}

}  // namespace

void linear_group(Threads& threads, LinearProduct which, std::span<const LinearOperands> layers) {
  constexpr std::size_t at_once = 64;
  for (; !layers.empty(); layers = layers.subspan(std::min(at_once, layers.size()))) {
    std::array<MatrixProduct, at_once> products;
    const auto some = layers.first(std::min(at_once, layers.size()));
    std::transform(some.begin(), some.end(), products.begin(),
                   [&](const LinearOperands& layer) { return product_of(which, layer); });
    multiply_group(threads, std::span(products).first(some.size()));
  }
}

void linear_add_bias(Threads& threads, std::int64_t rows, std::int64_t out, std::span<const float> bias,
                     std::span<float> y) {
  constexpr auto me = "linear_add_bias";
  expect_rows(me, "y", y.size(), rows, out);
  expect_bias(me, bias, out);
  const auto n = static_cast<std::size_t>(out);
  threads.parallel_for(static_cast<std::size_t>(rows), 16, [&](std::size_t first, std::size_t last) {
    for (auto r = first; r < last; ++r) {
      float* __restrict row = y.data() + r * n;
      const float* __restrict b = bias.data();
      for (std::size_t i = 0; i < n; ++i) row[i] += b[i];
    }
  });
}

void linear_backward_bias(Threads& threads, std::int64_t rows, std::int64_t out, const Elements& dy,
                          std::span<float> dbias) {
  constexpr auto me = "linear_backward_bias";
  expect_rows(me, "dy", dy.size(), rows, out);
  expect_rows(me, "dbias", dbias.size(), 1, out);
  constexpr std::size_t width = 128;     // columns of a tile
  constexpr std::int64_t together = 64;  // rows summed in float before they join the total
  threads.parallel_for(static_cast<std::size_t>(out), width, [&](std::size_t first, std::size_t last) {
    double total[width] = {};
    float widened[width];
    for (std::int64_t row = 0; row < rows; row += together) {
      float sum[width] = {};
      const std::int64_t end = std::min(row + together, rows);
      for (std::int64_t r = row; r < end; ++r) {
        const auto line = dy.part(static_cast<std::size_t>(r * out) + first, last - first);
        const auto* from = reinterpret_cast<const float*>(line.at);
        if (line.type != DType::float32) {
          widen_range(line, {widened, last - first});
          from = widened;
        }
        for (std::size_t c = 0; c < last - first; ++c) sum[c] += from[c];
      }
      for (std::size_t c = 0; c < last - first; ++c) total[c] += sum[c];
    }
    for (std::size_t c = first; c < last; ++c) dbias[c] += static_cast<float>(total[c - first]);
  });
}

}  // namespace tessera::kernels
