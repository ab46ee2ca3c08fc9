#include "framework/autograd/ops/residual.h"

namespace tessera {
namespace {

class DropoutAdd final : public Node {
 public:
  DropoutAdd(Place y, Place x, Place residual, bool has_residual, const DropoutMask& mask)
      : y_(y), x_(x), residual_(residual), has_residual_(has_residual), mask_(mask) {}
  void backward(Tape& tape) override {
    auto dy = tape.take_grad(y_);
    if (dy.empty()) return;
    if (mask_.rate > 0) {
      const auto dx = tape.grad_target(x_);
      must(!dx.add, "what is added to a residual has no other use");
      if (!dx.tensor.empty()) dropout_backward(tape.threads(), mask_, dy.tensor.floats(), dx.tensor.floats());
    } else {
      tape.give_grad(x_, dy);
    }
    if (has_residual_) tape.give_grad(residual_, std::move(dy));
  }

 private:
  Place y_, x_, residual_;
  bool has_residual_;
  DropoutMask mask_;
};

}  // namespace

Var dropout_add(Var x, const Var& residual, const DropoutMask& mask) {
  auto& tape = x.tape();
  const Place from = x;
  const auto in = x.value();
  const bool grad = x.wants_grad() || residual.wants_grad();
  auto y = tape.reuse(std::move(x), grad);
  dropout_add_forward(tape.threads(), mask, in.floats(), residual.empty() ? std::span<float>{} : residual.floats(),
                      y.floats());
  if (y.wants_grad())
    tape.record<DropoutAdd>(y, from, residual.empty() ? Place{} : Place(residual), !residual.empty(), mask);
  return y;
}

}  // namespace tessera
