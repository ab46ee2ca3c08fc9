#include "framework/autograd/ops/magnitude.h"

#include <algorithm>
#include <array>

#include "framework/kernels/linear.h"
#include "framework/kernels/magnitude.h"
#include "framework/kernels/type_conversion.h"
#include "framework/kernels/vector.h"

namespace tessera::autograd {
namespace {

std::size_t extent(std::int64_t size) { return static_cast<std::size_t>(size); }

/// m / norms for the outputs of adapters, 1 for the others.
Memory factors_of(Tape& tape, std::span<const Magnitudes> magnitudes, std::span<const float> norms) {
  auto memory = tape.scratch(norms.size());
  const auto factors = Tape::floats(memory).first(norms.size());
  kernels::fill(tape.threads(), 1, factors);
  for (const auto& one : magnitudes)
    kernels::magnitude_factors(tape.threads(), one.rows, one.m->value.floats(), norms, factors);
  return memory;
}

class ScaleByMagnitudes final : public Node {
 public:
  ScaleByMagnitudes(VarId y, Var v, std::span<const Magnitudes> magnitudes, Memory norms, LeafUse bias)
      : y_(y), v_place_(v), v_(std::move(v)), magnitudes_(magnitudes), norms_(std::move(norms)), bias_(bias) {}
  void note(Tape& tape) {
    for (std::size_t i = 0; i < magnitudes_.size(); ++i) m_[i] = tape.use(magnitudes_[i].m);
  }
  void backward(Tape& tape) override {
    const auto dy = tape.take_grad(y_);
    if (!dy.empty()) {
      give_bias(tape, dy.tensor);
      give_magnitudes(tape, dy.tensor);
      give_v(tape, dy.tensor);
    }
    for (std::size_t i = 0; i < magnitudes_.size(); ++i) tape.done(m_[i]);
    if (bias_) tape.done(bias_);
  }

 private:
  std::span<const float> norms() const { return Tape::floats(norms_).first(extent(v_.shape().width())); }
  void give_bias(Tape& tape, const Tensor& dy) const {
    if (!bias_ || !bias_.leaf->trained()) return;
    kernels::linear_backward_bias(tape.threads(), dy.shape().rows(), dy.shape().width(), dy,
                                  bias_.leaf->grad_to_add_to(tape.threads()));
  }
  void give_magnitudes(Tape& tape, const Tensor& dy) const {
    if (std::none_of(magnitudes_.begin(), magnitudes_.end(), [](const auto& one) { return one.m->trained(); })) return;
    const auto memory = tape.scratch(norms().size());
    const auto sums = Tape::floats(memory).first(norms().size());
    kernels::dot_columns(tape.threads(), dy, v_.value(), sums);
    for (const auto& one : magnitudes_)
      if (one.m->trained())
        kernels::magnitude_backward(tape.threads(), one.rows, sums, norms(), one.m->grad_to_add_to(tape.threads()));
  }
  void give_v(Tape& tape, const Tensor& dy) const {
    const auto dv = tape.grad_target(v_place_);
    if (dv.tensor.empty()) return;
    must(!dv.add, "what is scaled by magnitudes has no other use");
    const auto factors = factors_of(tape, magnitudes_, norms());
    kernels::scale_columns(tape.threads(), dy, Tape::floats(factors).first(norms().size()), {}, dv.tensor);
  }

  VarId y_, v_place_;
  Var v_;
  std::span<const Magnitudes> magnitudes_;
  Memory norms_;
  LeafUse bias_;
  std::array<LeafUse, most_adapters> m_;
};

class SplitByDropout final : public Node {
 public:
  SplitByDropout(VarId kept, VarId rest, VarId x, const kernels::DropoutMask& mask)
      : kept_(kept), rest_(rest), x_(x), mask_(mask), plain_(mask) {
    plain_.rate = 0;
  }
  /// dx = drest + dropout(dkept - drest).
  void backward(Tape& tape) override {
    const auto dkept = tape.take_grad(kept_), drest = tape.take_grad(rest_);
    if (dkept.empty() && drest.empty()) return;
    must(!dkept.empty(), "the part of an input that dropout keeps is used");
    const auto dx = tape.grad_target(x_);
    if (dx.tensor.empty()) return;
    auto& threads = tape.threads();
    if (drest.empty()) {
      const kernels::Elements so_far = dx.add ? kernels::Elements(dx.tensor) : kernels::Elements();
      return kernels::dropout_add_forward(threads, mask_, dkept.tensor, so_far, dx.tensor);
    }
    const auto& shape = dkept.tensor.shape();
    const auto memory = tape.scratch(dkept.tensor.dtype(), extent(shape.elements()));
    const Tensor difference(memory.bytes(), dkept.tensor.dtype(), shape);
    kernels::subtract(threads, dkept.tensor, drest.tensor, difference);
    kernels::dropout_add_forward(threads, mask_, difference, dx.add ? dx.tensor : drest.tensor, dx.tensor);
    if (dx.add) kernels::dropout_add_forward(threads, plain_, drest.tensor, dx.tensor, dx.tensor);
  }

 private:
  VarId kept_, rest_, x_;
  kernels::DropoutMask mask_, plain_;
};

}  // namespace

void add_low_rank_squares(Tape& tape, const Leaf& w, bool transposed, std::span<const LowRankFactors> factors,
                          std::span<double> squares, bool computes) {
  const auto out = w.value.shape()[transposed ? 1 : 0], in = w.value.shape()[transposed ? 0 : 1];
  for (const auto& one : factors) {
    const auto rank = one.a->value.shape()[0], rows = one.b->value.shape()[0];
    const auto memory = tape.scratch(extent(rank * out + rank * rank + rows * rank));
    if (!computes) continue;
    const auto all = Tape::floats(memory);
    const auto aw = all.first(extent(rank * out)), aa = all.subspan(aw.size(), extent(rank * rank)),
               b = all.subspan(aw.size() + aa.size(), extent(rows * rank));
    if (transposed)
      kernels::linear_backward_input(tape.threads(), {rank, out, in}, one.a->value, w.weight(), aw, false);
    else
      kernels::linear_forward(tape.threads(), {rank, in, out}, one.a->value, w.weight(), {}, aw);
    kernels::linear_forward(tape.threads(), {rank, in, rank}, one.a->value, one.a->value, {}, aa);
    kernels::widen(tape.threads(), one.b->value, b);
    kernels::add_low_rank_squares(tape.threads(), {one.rows, out, rank, one.scale, aw, aa, b}, squares);
  }
}

Var scale_by_magnitudes(Var v, std::span<const Magnitudes> magnitudes, Memory norms, Leaf* bias) {
  auto& tape = v.tape();
  const auto width = v.shape().width();
  must(magnitudes.size() <= most_adapters, "a layer has at most three adapters");
  for (const auto& one : magnitudes)
    for (const auto& block : one.rows)
      if (block.in_layer + block.count > width || block.in_factor + block.count > one.m->value.elements())
        throw ShapeError(
            text("magnitudes: v is ", v.shape(), " and m ", one.m->value.shape(), "; the extents do not fit together"));
  const auto trained = [](const auto& one) { return one.m->trained(); };
  const bool grad =
      v.wants_grad() || (bias && bias->trained()) || std::any_of(magnitudes.begin(), magnitudes.end(), trained);
  const auto in = v.value();
  const auto factors = factors_of(tape, magnitudes, Tape::floats(norms).first(extent(width)));
  const Floats added = bias ? tape.read(bias->value) : Floats(tape);
  auto y = grad ? tape.make(in.dtype(), in.shape(), true) : tape.reuse(std::move(v), false);
  kernels::scale_columns(tape.threads(), in, Tape::floats(factors).first(extent(width)), added, y.value());
  if (y.wants_grad())
    tape.record<ScaleByMagnitudes>(y, std::move(v), magnitudes, std::move(norms), tape.use(bias)).note(tape);
  return y;
}

std::pair<Var, Var> split_by_dropout(const Var& x, const kernels::DropoutMask& mask) {
  auto& tape = x.tape();
  const bool grad = x.wants_grad();
  const Shape shape = x.shape();  // a copy: `make` may move the values of the tape
  const auto type = x.value().dtype();
  auto kept = tape.make(type, shape, grad), rest = tape.make(type, shape, grad);
  kernels::dropout_add_forward(tape.threads(), mask, x.value(), {}, kept.value());
  kernels::subtract(tape.threads(), x.value(), kept.value(), rest.value());
  if (kept.wants_grad()) tape.record<SplitByDropout>(kept, rest, x, mask);
  return {std::move(kept), std::move(rest)};
}

}  // namespace tessera::autograd
