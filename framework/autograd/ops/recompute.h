#pragma once

#include "framework/autograd/tape.h"

namespace tessera {

/// Computed with f, and once more in the backward pass.
template <class F>
class Recomputed final : public Node {
 public:
  Recomputed(Place y, Var x, F f, DType type) : y_(y), x_(std::move(x)), f_(std::move(f)), type_(type) {}
  void backward(Tape& tape) override {
    auto dy = tape.take_grad(y_);
    if (dy.empty()) return;
    auto& again = tape.inside(true);
    again.computes_in(type_);
    Gradient dx;
    {
      const auto in = again.input(x_.value(), x_.wants_grad());
      again.give_grad(f_(in), std::move(dy));
      if (auto others = tape.take_grad(x_); !others.empty()) again.give_grad(in, std::move(others));  // to add to
      again.computes_in(tape.type());
      again.backward();
      dx = again.take_grad(in);
    }
    again.clear();
    if (!dx.empty()) tape.give_grad(x_, std::move(dx));
  }

 private:
  Place y_;
  Var x_;
  F f_;
  DType type_;
};

/// y = f(x), of which the tape keeps x alone: the backward pass runs f again to have what its operations keep. `f` is
/// small, is copied, gives the same bits each time, keeps no values, and uses leaves that nobody else uses. Source:
/// Chen et al., arXiv:1604.06174.
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

}  // namespace tessera
