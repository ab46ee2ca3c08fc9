#include "framework/autograd/ops/router_noise.h"

namespace tessera::autograd {
namespace {

class JitteredNode final : public Node {
 public:
  JitteredNode(VarId y, VarId x, double eps, const kernels::SampleNoise& noise)
      : y_(y), x_(x), eps_(eps), noise_(noise) {}
  void backward(Tape& tape) override {
    const auto dy = tape.take_grad(y_);
    const auto dx = tape.grad_target(x_);
    if (dy.empty() || dx.tensor.empty()) return;
    kernels::jitter(tape.threads(), noise_, eps_, dy.tensor, dx.tensor, dx.add);
  }

 private:
  VarId y_, x_;
  double eps_;
  kernels::SampleNoise noise_;
};

class RandomLogitsNode final : public Node {
 public:
  RandomLogitsNode(VarId y, VarId logits) : y_(y), logits_(logits) {}
  void backward(Tape& tape) override {
    auto dy = tape.take_grad(y_);
    if (!dy.empty()) tape.give_grad(logits_, std::move(dy));
  }

 private:
  VarId y_, logits_;
};

}  // namespace

Var jittered(const Var& x, double eps, const kernels::SampleNoise& noise) {
  auto& tape = x.tape();
  auto y = tape.make(Shape(x.shape()), x.wants_grad());
  kernels::jitter(tape.threads(), noise, eps, x.value(), y.value(), false);
  if (y.wants_grad()) tape.record<JitteredNode>(y, x, eps, noise);
  return y;
}

Var random_logits(const Var& logits, const kernels::SampleNoise& noise) {
  auto& tape = logits.tape();
  const Shape shape = logits.shape();  // a copy: `make` may move the values of the tape
  auto y = tape.make(logits.value().dtype(), shape, logits.wants_grad());
  {
    const auto out = tape.write(y);
    kernels::draw_normal(tape.threads(), noise, out);
  }
  if (y.wants_grad()) tape.record<RandomLogitsNode>(y, logits);
  return y;
}

}  // namespace tessera::autograd
