#include "framework/autograd/ops/row_gate.h"

#include <cmath>

#include "framework/kernels/expert_rows.h"
#include "framework/kernels/vector.h"

namespace tessera::autograd {
namespace {

/// sigmoid(gate[t]) of each row, in scratch memory of one operation.
class Sigmoids {
 public:
  Sigmoids(Tape& tape, const Var& gate)
      : memory_(tape.scratch(static_cast<std::size_t>(gate.shape().rows()))),
        values_(Tape::floats(memory_).first(static_cast<std::size_t>(gate.shape().rows()))) {
    const auto in = tape.read(gate);
    for (std::size_t i = 0; i < values_.size(); ++i) values_[i] = 1 / (1 + std::exp(-in.span()[i]));
  }
  operator std::span<const float>() const { return values_; }  // NOLINT(google-explicit-constructor)
  float operator[](std::size_t i) const { return values_[i]; }

 private:
  Memory memory_;
  std::span<float> values_;
};

class GatedRowsNode final : public Node {
 public:
  GatedRowsNode(VarId y, Var x, Var gate)
      : y_(y), x_place_(x), gate_place_(gate), x_(std::move(x)), gate_(std::move(gate)) {}
  void backward(Tape& tape) override {
    const auto dy = tape.take_grad(y_);
    if (dy.empty()) return;
    const auto width = x_.shape().width();
    const Sigmoids s(tape, gate_);
    if (const auto dgate = tape.grad_target(gate_place_); !dgate.tensor.empty()) {
      must(!dgate.add, "the gate of rows has no other use");
      const auto out = tape.write(dgate);
      kernels::dot_rows(tape.threads(), width, dy.tensor, x_.value(), out);
      for (std::size_t i = 0; i < out.span().size(); ++i) out.span()[i] *= s[i] * (1 - s[i]);
    }
    if (const auto dx = tape.grad_target(x_place_); !dx.tensor.empty()) {
      must(!dx.add && dx.tensor.dtype() == dy.tensor.dtype(), "what is gated has no other use");
      kernels::copy_bytes(tape.threads(), dy.tensor.raw(), dx.tensor.raw());
      kernels::scale_rows(tape.threads(), width, s, dx.tensor);
    }
  }

 private:
  VarId y_, x_place_, gate_place_;
  Var x_, gate_;
};

}  // namespace

Var gated_rows(const Var& x, const Var& gate) {
  auto& tape = x.tape();
  const Shape shape = x.shape();  // a copy: `make` may move the values of the tape
  if (gate.shape() != shape.with_width(1))
    throw ShapeError(
        text("gated_rows: x is ", shape, " and the gate ", gate.shape(), "; expected one number for each row"));
  auto y = tape.make(x.value().dtype(), shape, x.wants_grad() || gate.wants_grad());
  kernels::copy_bytes(tape.threads(), x.value().raw(), y.value().raw());
  kernels::scale_rows(tape.threads(), shape.width(), Sigmoids(tape, gate), y.value());
  if (y.wants_grad()) tape.record<GatedRowsNode>(y, x, gate);
  return y;
}

}  // namespace tessera::autograd
