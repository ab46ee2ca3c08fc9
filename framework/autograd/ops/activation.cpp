#include "framework/autograd/ops/activation.h"

#include "framework/kernels/activation.h"
#include "framework/kernels/softcap.h"
#include "framework/kernels/vector.h"

namespace tessera::autograd {
namespace {

// Every backward function of this folder returns early in two cases: no gradient has arrived, because the value was not
// used for the objective, or no input wants a gradient.
class Gated final : public Node, public Restorable {
 public:
  Gated(VarId y, Var x, kernels::Activation act, const kernels::GateForm& form)
      : y_(y), x_(std::move(x)), act_(act), form_(form) {}
  void restore(Tape& tape) override {
    kernels::gated_forward(tape.threads(), act_, x_.shape().rows(), x_.shape().width() / 2, x_.value(),
                           tape.renewed(y_), form_);
  }
  void backward(Tape& tape) override {
    const auto dy = tape.take_grad(y_);
    const auto dx = tape.grad_target(x_);
    if (dy.empty() || dx.tensor.empty()) return;
    kernels::gated_backward(tape.threads(), act_, x_.shape().rows(), x_.shape().width() / 2, dy.tensor, x_.value(),
                            dx.tensor, dx.add, form_);
  }

 private:
  VarId y_;
  Var x_;
  kernels::Activation act_;
  kernels::GateForm form_;
};

class Activated final : public Node, public Restorable {
 public:
  Activated(VarId y, Var x, kernels::Activation act) : y_(y), x_(std::move(x)), act_(act) {}
  void restore(Tape& tape) override { kernels::activation_forward(tape.threads(), act_, x_.value(), tape.renewed(y_)); }
  void backward(Tape& tape) override {
    const auto dy = tape.take_grad(y_);
    const auto dx = tape.grad_target(x_);
    if (dy.empty() || dx.tensor.empty()) return;
    kernels::activation_backward(tape.threads(), act_, dy.tensor, x_.value(), dx.tensor, dx.add);
  }

 private:
  VarId y_;
  Var x_;
  kernels::Activation act_;
};

/// y = factor x; y may be x.
void scale_into(kernels::Threads& threads, double factor, std::span<const float> x, std::span<float> y) {
  if (x.data() != y.data()) kernels::copy(threads, x, y);
  kernels::scale(threads, static_cast<float>(factor), y);
}

class Scaled final : public Node {
 public:
  Scaled(VarId y, VarId x, double factor) : y_(y), x_(x), factor_(factor) {}
  void backward(Tape& tape) override {
    const auto dy = tape.take_grad(y_);
    const auto dx = tape.grad_target(x_);
    if (dy.empty() || dx.tensor.empty()) return;
    must(!dx.add, "what is scaled has no other use");
    scale_into(tape.threads(), factor_, tape.read(dy.tensor), tape.write(dx));
  }

 private:
  VarId y_, x_;
  double factor_;
};

class Softcapped final : public Node {
 public:
  Softcapped(VarId y, Var kept, VarId x, double cap) : y_(y), kept_(std::move(kept)), x_(x), cap_(cap) {}
  void backward(Tape& tape) override {
    const auto dy = tape.take_grad(y_);
    const auto dx = tape.grad_target(x_);
    if (dy.empty() || dx.tensor.empty()) return;
    must(!dx.add, "what is capped has no other use");
    kernels::softcap_backward(tape.threads(), cap_, tape.read(dy.tensor), tape.read(kept_), tape.write(dx));
  }

 private:
  VarId y_;
  Var kept_;
  VarId x_;
  double cap_;
};

}  // namespace

Var gated(const Var& x, kernels::Activation act, const kernels::GateForm& form) {
  auto& tape = x.tape();
  const auto width = x.shape().width();
  if (width % 2 != 0)
    throw ShapeError(
        text("gated activation: x is ", x.shape(), "; its last extent holds gate and up, so it must be even"));
  auto y = tape.result(x.shape().with_width(width / 2), x.wants_grad());
  kernels::gated_forward(tape.threads(), act, x.shape().rows(), width / 2, x.value(), y.value(), form);
  if (y.wants_grad()) tape.restored_by(y, tape.record<Gated>(y, x, act, form));
  return y;
}

Var activated(const Var& x, kernels::Activation act) {
  auto& tape = x.tape();
  auto y = tape.result(x.shape(), x.wants_grad());
  kernels::activation_forward(tape.threads(), act, x.value(), y.value());
  if (y.wants_grad()) tape.restored_by(y, tape.record<Activated>(y, x, act));
  return y;
}

Var scaled(Var x, double factor) {
  auto& tape = x.tape();
  const VarId from = x;
  const auto in = x.value();
  const bool grad = x.wants_grad();
  auto y = tape.reuse(std::move(x), grad);
  scale_into(tape.threads(), factor, tape.read(in), tape.write(y));
  if (y.wants_grad()) tape.record<Scaled>(y, from, factor);
  return y;
}

Var softcapped(const Var& x, double cap) {
  auto& tape = x.tape();
  auto y = tape.result(x.shape(), x.wants_grad());
  kernels::softcap_forward(tape.threads(), cap, tape.read(x), tape.write(y));
  if (y.wants_grad()) tape.record<Softcapped>(y, y, x, cap);
  return y;
}

}  // namespace tessera::autograd
