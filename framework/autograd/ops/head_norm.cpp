#include "framework/autograd/ops/head_norm.h"

#include <algorithm>
#include <array>

#include "framework/autograd/ops/heads_grad.h"
#include "framework/kernels/heads.h"
#include "framework/kernels/norm.h"
#include "framework/kernels/vector.h"

namespace tessera::autograd {
namespace {

/// The query heads or the key heads of a projection: their positions, and the values that their norm keeps.
struct Part {
  std::span<const std::int64_t> offsets;
  LeafUse gain, bias;
  Var mean, inv;
};

kernels::HeadsInRows extents(const Shape& x, const HeadNormKind& kind) { return {x.rows(), x.width(), kind.channels}; }

/// Number of floats in the heads at `offsets` of all rows.
std::size_t floats_of(const kernels::HeadsInRows& e, std::span<const std::int64_t> offsets) {
  return static_cast<std::size_t>(e.rows * e.channels) * offsets.size();
}

std::span<float> head_grad_of(Tape& tape, const LeafUse& use) {
  return use && use.leaf->trained() ? use.leaf->grad_to_add_to(tape.threads()) : std::span<float>{};
}

/// Writes the normalized heads of `part` of x to y. The heads are gathered into a dense array, because the norm kernels
/// take dense rows.
void normalise(Tape& tape, const kernels::HeadsInRows& e, const Part& part, const HeadNorm& norm,
               const HeadNormKind& kind, std::span<const float> x, std::span<float> y) {
  const auto count = floats_of(e, part.offsets);
  const auto memory = tape.scratch(count);
  const auto dense = Tape::floats(memory).first(count);
  kernels::gather_heads(tape.threads(), e, part.offsets, x, dense);
  const auto gain = tape.read(norm.gain->value);
  if (kind.centred)
    kernels::layernorm_forward(tape.threads(), {.x = dense,
                                                .gain = gain,
                                                .bias = norm.bias ? tape.read(norm.bias->value) : Floats(tape),
                                                .eps = kind.eps,
                                                .gain_offset = kind.gain_offset,
                                                .y = dense,
                                                .mean = part.mean.floats(),
                                                .inv_std = part.inv.floats()});
  else
    kernels::rmsnorm_forward(tape.threads(), {.x = dense,
                                              .gain = gain,
                                              .eps = kind.eps,
                                              .gain_offset = kind.gain_offset,
                                              .y = dense,
                                              .inv_rms = part.inv.floats()});
  kernels::scatter_heads(tape.threads(), e, part.offsets, dense, y);
}

/// The gradients of the heads of `part`: writes these heads of dx from those of dy (both whole rows), and adds to the
/// gradients of gain and bias.
void normalise_backward(Tape& tape, const kernels::HeadsInRows& e, const Part& part, const HeadNormKind& kind,
                        std::span<const float> x, std::span<const float> dy, std::span<float> dx) {
  const auto count = floats_of(e, part.offsets), channels = static_cast<std::size_t>(kind.channels);
  const auto memory = tape.scratch(2 * count + channels);
  const auto dense = Tape::floats(memory).first(count), gradient = Tape::floats(memory).subspan(count, count);
  kernels::gather_heads(tape.threads(), e, part.offsets, x, dense);
  kernels::gather_heads(tape.threads(), e, part.offsets, dy, gradient);
  auto dgain = head_grad_of(tape, part.gain);
  if (dgain.empty()) {  // the gain is frozen, but the kernels always add to a dgain
    dgain = Tape::floats(memory).subspan(2 * count, channels);
    std::fill(dgain.begin(), dgain.end(), 0.0F);
  }
  const auto gain = tape.read(part.gain.leaf->value);
  if (kind.centred)
    kernels::layernorm_backward(tape.threads(), {.dy = gradient,
                                                 .x = dense,
                                                 .gain = gain,
                                                 .gain_offset = kind.gain_offset,
                                                 .mean = part.mean.floats(),
                                                 .inv_std = part.inv.floats(),
                                                 .dx = gradient,
                                                 .add = false,
                                                 .dgain = dgain,
                                                 .dbias = head_grad_of(tape, part.bias)});
  else
    kernels::rmsnorm_backward(tape.threads(), {.dy = gradient,
                                               .x = dense,
                                               .gain = gain,
                                               .gain_offset = kind.gain_offset,
                                               .inv_rms = part.inv.floats(),
                                               .dx = gradient,
                                               .add = false,
                                               .dgain = dgain});
  kernels::scatter_heads(tape.threads(), e, part.offsets, gradient, dx);
  tape.done(part.gain);
  tape.done(part.bias);
}

class HeadNormNode final : public Node {
 public:
  HeadNormNode(VarId y, Var x, Part queries, Part keys, const HeadNormKind& kind)
      : y_(y), x_(std::move(x)), parts_{std::move(queries), std::move(keys)}, kind_(kind) {}
  void backward(Tape& tape) override {
    backward_of_heads(tape, y_, x_, [&](std::span<const float> x, std::span<const float> dy, std::span<float> dx) {
      for (const auto& part : parts_) normalise_backward(tape, extents(x_.shape(), kind_), part, kind_, x, dy, dx);
    });
  }

 private:
  VarId y_;
  Var x_;
  std::array<Part, 2> parts_;
  HeadNormKind kind_;
};

}  // namespace

Var head_norm(const Var& x, const HeadNorm& queries, const HeadNorm& keys, const HeadNormKind& kind) {
  auto& tape = x.tape();
  const auto e = extents(x.shape(), kind);
  const bool trained = queries.gain->trained() || keys.gain->trained();
  auto y = tape.result(x.shape(), x.wants_grad() || trained);
  std::array<Part, 2> parts;
  {
    const auto in = tape.read(x), out = tape.write(y);
    kernels::copy(tape.threads(), in, out);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const auto& norm = i == 0 ? queries : keys;
      const auto heads = static_cast<std::int64_t>(norm.offsets.size());
      parts[i] = {.offsets = norm.offsets,
                  .gain = {},
                  .bias = {},
                  .mean = tape.make({e.rows * heads}, false),
                  .inv = tape.make({e.rows * heads}, false)};
      normalise(tape, e, parts[i], norm, kind, in, out);
    }
  }
  if (!y.wants_grad()) return y;
  parts[0].gain = tape.use(queries.gain), parts[0].bias = tape.use(queries.bias);
  parts[1].gain = tape.use(keys.gain), parts[1].bias = tape.use(keys.bias);
  tape.record<HeadNormNode>(y, x, std::move(parts[0]), std::move(parts[1]), kind);
  return y;
}

}  // namespace tessera::autograd
