#include "framework/autograd/ops/residual.h"

namespace tessera::autograd {
namespace {

class DropoutAdd final : public Node {
 public:
  DropoutAdd(VarId y, VarId x, VarId residual, bool has_residual, const kernels::DropoutMask& mask)
      : y_(y), x_(x), residual_(residual), has_residual_(has_residual), mask_(mask) {}
  void backward(Tape& tape) override {
    auto dy = tape.take_grad(y_);
    if (dy.empty()) return;
    // Without dropout the gradient of both summands is dy itself: it is shared, not copied.
    if (mask_.rate > 0) {
      const auto dx = tape.grad_target(x_);
      must(!dx.add, "what is added to a residual has no other use");
      if (!dx.tensor.empty()) kernels::dropout_backward(tape.threads(), mask_, dy.tensor, dx.tensor);
    } else {
      tape.give_grad(x_, dy);
    }
    if (has_residual_) tape.give_grad(residual_, std::move(dy));
  }

 private:
  VarId y_, x_, residual_;
  bool has_residual_;
  kernels::DropoutMask mask_;
};

}  // namespace

Var dropout_add(Var x, const Var& residual, const kernels::DropoutMask& mask) {
  auto& tape = x.tape();
  const VarId from = x;
  const auto in = x.value();
  const bool grad = x.wants_grad() || residual.wants_grad();
  const auto type = residual.empty() ? in.dtype() : residual.value().dtype();
  auto y = type == in.dtype() ? tape.reuse(std::move(x), grad) : tape.make(type, in.shape(), grad);
  kernels::dropout_add_forward(tape.threads(), mask, in,
                               residual.empty() ? kernels::Elements() : kernels::Elements(residual.value()), y.value());
  if (y.wants_grad())
    tape.record<DropoutAdd>(y, from, residual.empty() ? VarId{} : VarId(residual), !residual.empty(), mask);
  return y;
}

}  // namespace tessera::autograd
