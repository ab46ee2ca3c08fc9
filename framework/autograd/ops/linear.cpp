#include "framework/autograd/ops/linear.h"

#include "framework/autograd/ops/in_place.h"
#include "framework/kernels/activation.h"

namespace tessera::autograd {
namespace {

/// The bias rounded to the compute type, or an empty span.
Floats read_bias(Tape& tape, const Leaf* bias) { return bias ? tape.read(*bias, tape.type()) : Floats(tape); }

kernels::LinearExtents extents(const Var& x, const Leaf& w) {
  const auto& shape = w.value.shape();
  if (shape.rank() != 2 || shape[1] != x.shape().width())
    throw ShapeError(text("linear: x is ", x.shape(), ", the weight ", shape, "; the last extents must be equal"));
  return {x.shape().rows(), shape[1], shape[0]};
}

/// A frozen weight alone does not stop gradients: x may need one.
bool wants_grad(const Var& x, const Leaf& w, const Leaf* bias) {
  return x.wants_grad() || w.trained() || (bias && bias->trained());
}

/// The backward pass that linear and linear_activation share: gradients of w, bias and x from that of x w^T + bias.
struct Products {
  VarId x_place;
  Var x;  ///< empty if w is frozen: only the gradient of w reads it
  kernels::LinearExtents e;
  LeafUse w, bias;
  DType type;  ///< of the results
  bool in_double = false;

  void backward(Tape& tape, const kernels::Elements& dy) const {
    auto& threads = tape.threads();
    const auto backward_weight =
        in_double ? kernels::linear_backward_weight_in_double : kernels::linear_backward_weight;
    const auto backward_input = in_double ? kernels::linear_backward_input_in_double : kernels::linear_backward_input;
    if (w.leaf->trained()) {
      const auto dw = w.leaf->grad_target();
      backward_weight(threads, e, dy, x.value(), dw.floats, dw.add);
    }
    if (bias && bias.leaf->trained())
      kernels::linear_backward_bias(threads, e.rows, e.out, dy, bias.leaf->grad_to_add_to(threads));
    const auto dx = tape.grad_target(x_place);
    if (!dx.tensor.empty()) backward_input(threads, e, dy, RoundedWeight(tape, *w.leaf, type), dx.tensor, dx.add);
    tape.done(w);
    tape.done(bias);
  }
};

class Linear final : public Node {
 public:
  Linear(VarId y, Products products) : y_(y), products_(std::move(products)) {}
  void backward(Tape& tape) override {
    const auto dy = tape.take_grad(y_);
    if (!dy.empty()) products_.backward(tape, dy.tensor);
  }

 private:
  VarId y_;
  Products products_;
};

class LinearActivation final : public Node, public Restorable {
 public:
  LinearActivation(VarId y, Var before, kernels::Activation act, Products products)
      : y_(y), before_(std::move(before)), act_(act), products_(std::move(products)) {}
  void restore(Tape& tape) override {
    kernels::activation_forward(tape.threads(), act_, before_.value(), tape.renewed(y_));
  }
  void backward(Tape& tape) override {
    const auto dy = tape.take_grad(y_);
    if (dy.empty()) return;
    // In place if there is no other reader. The gradient of what is before the activation has the type of dy: it is
    // rounded, as a factor of two products.
    const auto memory =
        dy.memory.shared() ? tape.scratch(dy.tensor.dtype(), static_cast<std::size_t>(dy.tensor.elements())) : Memory();
    const auto dbefore = memory.empty() ? dy.tensor : Tensor(memory.bytes(), dy.tensor.dtype(), dy.tensor.shape());
    kernels::activation_backward(tape.threads(), act_, dy.tensor, before_.value(), dbefore, false);
    products_.backward(tape, dbefore);
  }

 private:
  VarId y_;
  Var before_;
  kernels::Activation act_;
  Products products_;
};

class AddBias final : public Node {
 public:
  AddBias(VarId y, VarId x, LeafUse bias) : y_(y), x_(x), bias_(bias) {}
  void backward(Tape& tape) override {
    auto dy = tape.take_grad(y_);
    if (dy.empty()) return;
    const auto& shape = dy.tensor.shape();
    if (bias_.leaf->trained())
      kernels::linear_backward_bias(tape.threads(), shape.rows(), shape.width(), dy.tensor,
                                    bias_.leaf->grad_to_add_to(tape.threads()));
    tape.done(bias_);
    tape.give_grad(x_, std::move(dy));
  }

 private:
  VarId y_, x_;
  LeafUse bias_;
};

/// Notes the uses of w and bias; called only when the operation is recorded.
Products products(const Var& x, kernels::LinearExtents e, Leaf& w, Leaf* bias) {
  auto& tape = x.tape();
  return {.x_place = x,
          .x = w.trained() ? x : Var(),
          .e = e,
          .w = tape.use(&w),
          .bias = tape.use(bias),
          .type = tape.type()};
}

}  // namespace

Var linear(const Var& x, Leaf& w, Leaf* bias) {
  auto& tape = x.tape();
  const auto e = extents(x, w);
  auto y = tape.result(x.shape().with_width(e.out), wants_grad(x, w, bias));
  kernels::linear_forward(tape.threads(), e, x.value(), RoundedWeight(tape, w, tape.type()), read_bias(tape, bias),
                          y.value());
  if (y.wants_grad()) tape.record<Linear>(y, products(x, e, w, bias));
  return y;
}

Var linear_in_double(const Var& x, Leaf& w) {
  auto& tape = x.tape();
  const auto e = extents(x, w);
  auto y = tape.make(x.shape().with_width(e.out), wants_grad(x, w, nullptr));
  kernels::linear_forward_in_double(tape.threads(), e, x.value(), w.weight(), y.value());
  if (y.wants_grad()) {
    auto both = products(x, e, w, nullptr);
    both.type = DType::float32;
    both.in_double = true;
    tape.record<Linear>(y, std::move(both));
  }
  return y;
}

Var linear_activation(const Var& x, Leaf& w, Leaf* bias, kernels::Activation act) {
  auto& tape = x.tape();
  const auto e = extents(x, w);
  const bool grad = wants_grad(x, w, bias);
  auto before = tape.result(x.shape().with_width(e.out), false);
  auto y = tape.result(x.shape().with_width(e.out), grad);
  kernels::linear_activation_forward(tape.threads(), e, act, x.value(), RoundedWeight(tape, w, tape.type()),
                                     read_bias(tape, bias), before.value(), y.value());
  if (y.wants_grad())
    tape.restored_by(y, tape.record<LinearActivation>(y, std::move(before), act, products(x, e, w, bias)));
  return y;
}

Var add_bias(Var x, Leaf& bias) {
  auto& tape = x.tape();
  const VarId from = x;
  const bool grad = x.wants_grad() || bias.trained();
  auto y = to_change(std::move(x), grad);
  kernels::linear_add_bias(tape.threads(), y.shape().rows(), y.shape().width(), tape.read(bias, tape.type()),
                           Floats(tape, y.value(), Floats::Use::update));
  if (y.wants_grad()) tape.record<AddBias>(y, from, tape.use(&bias));
  return y;
}

}  // namespace tessera::autograd
