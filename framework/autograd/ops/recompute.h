#pragma once

#include "framework/autograd/tape.h"

namespace tessera::autograd {

/// The operation recorded by recomputed(): runs f again on a nested tape, then its backward pass. The gradient of x
/// that other operations have contributed so far is handed to the nested pass to be added to.
template <class F>
class Recomputed final : public Node {
 public:
  Recomputed(VarId y, Var x, F f, DType type) : y_(y), x_(std::move(x)), f_(std::move(f)), type_(type) {}
  void backward(Tape& tape) override {
    auto dy = tape.take_grad(y_);
    if (dy.empty()) return;
    auto& again = tape.inside(true);
    again.computes_in(type_);
    Gradient dx;
    {
      const auto in = again.input(x_.value(), x_.wants_grad());
      again.give_grad(f_(in), std::move(dy));
      if (auto others = tape.take_grad(x_); !others.empty())
        again.give_grad(in, std::move(others));  // contributions so far
      again.computes_in(tape.type());
      again.backward();
      dx = again.take_grad(in);
    }
    again.clear();
    if (!dx.empty()) tape.give_grad(x_, std::move(dx));
  }

 private:
  VarId y_;
  Var x_;
  F f_;
  DType type_;
};

/// y = f(x) with activation recomputation: the tape keeps only x, and the backward pass runs f again to get what its
/// operations keep.
///
/// `f` is copied into the record, so it must be small (it may hold references that outlive the tape). It must give the
/// same bits each time (dropout does, by its keyed masks), must not hold Vars, and its leaves must be used nowhere
/// else. Source: Chen et al., arXiv:1604.06174.
template <class F>
Var recomputed(const Var& x, const F& f) {
  auto& tape = x.tape();
  if (!tape.records()) return f(x);
  auto& looking = tape.inside(false);
  Var y;
  {
    const auto in = looking.input(x.value(), false);
    y = tape.adopt(f(in), true);
  }
  looking.clear();
  tape.record<Recomputed<F>>(y, x, f, tape.type());
  return y;
}

}  // namespace tessera::autograd
