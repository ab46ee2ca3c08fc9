#pragma once

#include <array>

#include "framework/autograd/tape.h"

namespace tessera::autograd {

/// The operation recorded by recomputed(): runs f again on a nested tape, then the backward pass of that tape. If other
/// operations have already contributed to the gradient of x, the nested pass adds to their contribution.
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

/// y = f(x) with activation recomputation: the tape keeps only x, and the backward pass runs f again to compute the
/// values that the operations of f need.
///
/// `f` maps a Var to a Var. It is copied into the recorded operation, so it must be small; references in it must
/// outlive the tape. It must give the same bits each time (dropout does, because its masks are keyed), must not hold
/// Vars, and its leaves must not be used by any other operation. Nothing is recorded if neither x nor a parameter of f
/// wants a gradient. Source: Chen et al., arXiv:1604.06174.
template <class F>
Var recomputed(const Var& x, const F& f) {
  auto& tape = x.tape();
  if (!tape.records()) return f(x);
  auto& looking = tape.inside(false);
  Var y;
  {
    const auto in = looking.input(x.value(), x.wants_grad());
    const auto out = f(in);
    y = tape.adopt(out, looking.saw_wanted());
  }
  looking.clear();
  if (y.wants_grad()) tape.record<Recomputed<F>>(y, x, f, tape.type());
  return y;
}

/// The operation recorded by RecomputedValue.
template <std::size_t N, class F>
class RecomputedFromSeveral final : public Node, public Restorable {
 public:
  RecomputedFromSeveral(VarId y, std::array<Var, N> inputs, F f, DType type)
      : y_(y), inputs_(std::move(inputs)), f_(std::move(f)), type_(type) {}
  /// Computes y again on a nested tape, which must be used for nothing else until backward().
  void compute(Tape& tape) {
    auto& again = tape.inside(true);
    again.computes_in(type_);
    for (std::size_t i = 0; i < N; ++i) again_[i] = again.input(inputs_[i].value(), inputs_[i].wants_grad());
    value_ = f_(again_);
  }
  void restore(Tape& tape) override {
    compute(tape);
    tape.restore(y_, value_);
  }
  void backward(Tape& tape) override {
    auto dy = tape.take_grad(y_);
    if (dy.empty() && value_.empty()) return;
    if (value_.empty()) compute(tape);
    auto& again = value_.tape();
    std::array<Gradient, N> dx;
    if (!dy.empty()) {
      again.give_grad(value_, std::move(dy));
      value_ = {};
      again.computes_in(tape.type());
      again.backward();
      for (std::size_t i = 0; i < N; ++i) dx[i] = again.take_grad(again_[i]);
    }
    value_ = {};
    again_ = {};
    again.clear();
    for (std::size_t i = 0; i < N; ++i)
      if (!dx[i].empty()) tape.give_grad(inputs_[i], std::move(dx[i]));
  }

 private:
  VarId y_;
  std::array<Var, N> inputs_, again_;  ///< on the tape, and on the nested one
  Var value_;                          ///< y on the nested tape
  F f_;
  DType type_;
};

/// y = f(inputs) with activation recomputation, for several inputs; see recomputed() for the requirements on `f`, which
/// is called with a std::array<Var, N>. If y itself is large and is kept by the operations that read it, discard()
/// frees its memory after their forward pass, and their backward pass computes it again (Tape::discard). These
/// operations must not use recomputation themselves.
template <std::size_t N, class F>
class RecomputedValue {
 public:
  RecomputedValue(const std::array<Var, N>& inputs, const F& f) : tape_(inputs[0].tape()) {
    if (!tape_.records()) {
      y_ = f(inputs);
      return;
    }
    auto& looking = tape_.inside(false);
    {
      std::array<Var, N> seen;
      for (std::size_t i = 0; i < N; ++i) seen[i] = looking.input(inputs[i].value(), inputs[i].wants_grad());
      const auto out = f(seen);
      y_ = tape_.adopt(out, looking.saw_wanted());
    }
    looking.clear();
    if (!y_.wants_grad()) return;
    tape_.restored_by(y_, tape_.template record<RecomputedFromSeveral<N, F>>(y_, inputs, f, tape_.type()));
  }
  const Var& value() const { return y_; }
  /// Call when all operations that read the value are recorded.
  void discard() { tape_.discard(y_); }

 private:
  Tape& tape_;
  Var y_;
};

}  // namespace tessera::autograd
