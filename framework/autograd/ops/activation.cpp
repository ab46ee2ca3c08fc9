#include "framework/autograd/ops/activation.h"

#include "framework/kernels/activation.h"

namespace tessera {
namespace {

class Swiglu final : public Node {
 public:
  Swiglu(Place y, Var x) : y_(y), x_(std::move(x)) {}
  void backward(Tape& tape) override {
    const auto dy = tape.take_grad(y_);
    const auto dx = tape.grad_target(x_);
    if (dy.empty() || dx.tensor.empty()) return;
    swiglu_backward(tape.threads(), x_.shape().rows(), x_.shape().width() / 2, tape.read(dy.tensor), tape.read(x_),
                    tape.write(dx), dx.add);
  }

 private:
  Place y_;
  Var x_;
};

}  // namespace

Var swiglu(const Var& x) {
  auto& tape = x.tape();
  const auto width = x.shape().width();
  if (width % 2 != 0)
    throw ShapeError(text("swiglu: x is ", x.shape(), "; its last extent holds gate and up, so it must be even"));
  auto y = tape.result(x.shape().with_width(width / 2), x.wants_grad());
  swiglu_forward(tape.threads(), x.shape().rows(), width / 2, tape.read(x), tape.write(y));
  if (y.wants_grad()) tape.record<Swiglu>(y, x);
  return y;
}

}  // namespace tessera
