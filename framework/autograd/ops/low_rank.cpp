#include "framework/autograd/ops/low_rank.h"

#include <algorithm>
#include <array>
#include <functional>

#include "framework/autograd/ops/in_place.h"
#include "framework/kernels/columns.h"
#include "framework/kernels/linear.h"
#include "framework/kernels/vector.h"

namespace tessera::autograd {
namespace {

std::int64_t rank_of(const LowRankFactors& one) { return one.a->value.shape()[0]; }

/// The first `count` floats of `memory`.
std::span<float> first_floats(const Memory& memory, std::int64_t count) {
  return Tape::floats(memory).first(static_cast<std::size_t>(count));
}

/// Adapters that read the same x: all of a layer without dropout, one with it.
struct Together {
  std::span<const LowRankFactors> factors;
  const kernels::DropoutMask* mask;  ///< null: no dropout
  std::int64_t first, columns;       ///< range among the columns of all adapters
};

/// The adapters of a layer, and the products that forward and backward pass share. The columns of all adapters stand
/// side by side, so that each of the large operands x and y is read by one product.
class LowRankSum {
 public:
  explicit LowRankSum(const LowRankLayer& layer)
      : factors_(layer.factors), rows_(layer.extents.rows), in_(layer.extents.in), out_(layer.extents.out) {
    const auto& masks = layer.masks;
    must(factors_.size() <= most_adapters && (masks.empty() || masks.size() == factors_.size()),
         "a layer has at most three adapters");
    std::copy(masks.begin(), masks.end(), masks_.begin());
    drops_ = std::any_of(masks.begin(), masks.end(), [](const auto& mask) { return mask.rate > 0; });
    for (const auto& one : factors_) columns_ += rank_of(one);
    check();
  }

  std::span<const LowRankFactors> factors() const { return factors_; }
  std::int64_t rows() const { return rows_; }
  std::int64_t columns() const { return columns_; }
  bool trains_a() const { return trains(&LowRankFactors::a); }
  bool trains_b() const { return trains(&LowRankFactors::b); }
  kernels::LinearExtents upper() const { return {rows_, columns_, out_}; }

  /// Calls each(Together) for adapters that read the same x.
  template <class Each>
  void for_groups(const Each& each) const {
    if (!drops_) return each(Together{factors_, nullptr, 0, columns_});
    std::int64_t first = 0;
    for (std::size_t i = 0; i < factors_.size(); ++i) {
      const auto rank = rank_of(factors_[i]);
      each(Together{factors_.subspan(i, 1), &masks_[i], first, rank});
      first += rank;
    }
  }

  /// scale * b of all adapters, [out, columns], with zeros for outputs that an adapter does not have.
  Memory wide_b(Tape& tape) const {
    auto memory = tape.scratch(static_cast<std::size_t>(out_ * columns_));
    const auto wide = first_floats(memory, out_ * columns_);
    if (factors_.size() > 1 || covered(factors_[0]) < out_) kernels::fill(tape.threads(), 0, wide);
    for_places([&](const LowRankFactors& one, const kernels::FactorPlace& place) {
      kernels::place_factor(tape.threads(), place, static_cast<float>(one.scale), tape.read(one.b->value), wide);
    });
    return memory;
  }
  /// Adds to the gradient of each trained b its part of the gradient of wide_b.
  void give_b(Tape& tape, std::span<const float> dwide) const {
    for_places([&](const LowRankFactors& one, const kernels::FactorPlace& place) {
      if (one.b->trained())
        kernels::take_factor(tape.threads(), place, static_cast<float>(one.scale), dwide,
                             one.b->grad_to_add_to(tape.threads()));
    });
  }

  kernels::LinearExtents lower(const Together& group) const { return {rows_, in_, group.columns}; }
  bool all_of(const Together& group) const { return group.columns == columns_; }
  /// The columns of a group between an array with its columns only and one with all columns.
  kernels::ColumnBlocks out_of(const Together& group) const { return {1, group.columns, 0, 0, group.first, 0}; }
  kernels::ColumnBlocks into(const Together& group) const { return {1, group.columns, group.first, 0, 0, 0}; }

 private:
  bool trains(Leaf* LowRankFactors::*factor) const {
    return std::any_of(factors_.begin(), factors_.end(), [&](const auto& one) { return (one.*factor)->trained(); });
  }
  template <class Each>
  void for_places(const Each& each) const {
    std::int64_t first = 0;
    for (const auto& one : factors_) {
      each(one, kernels::FactorPlace{one.rows, rank_of(one), first, columns_});
      first += rank_of(one);
    }
  }
  static std::int64_t covered(const LowRankFactors& one) {
    std::int64_t all = 0;
    for (const auto& block : one.rows) all += block.count;
    return all;
  }
  void check() const {
    for (const auto& one : factors_) {
      const auto &a = one.a->value.shape(), &b = one.b->value.shape();
      const bool good =
          a.rank() == 2 && b.rank() == 2 && a[1] == in_ && b[1] == a[0] && covered(one) == b[0] && b[0] <= out_;
      if (!good)
        throw ShapeError(text("adapter: x is ", Shape{rows_, in_}, ", y ", Shape{rows_, out_}, ", lora_A ", a,
                              ", lora_B ", b, "; the extents do not fit together"));
    }
  }

  std::span<const LowRankFactors> factors_;
  std::array<kernels::DropoutMask, most_adapters> masks_ = {};
  bool drops_ = false;
  std::int64_t rows_, in_, out_, columns_ = 0;
};

/// The factors a of a group as one, [columns, in]: a itself, or a copy.
class StackedA {
 public:
  StackedA(Tape& tape, const Together& group, std::int64_t in) : elements_(group.factors[0].a->value) {
    if (group.factors.size() == 1) return;
    memory_ = tape.scratch(static_cast<std::size_t>(group.columns * in));
    auto rest = first_floats(memory_, group.columns * in);
    elements_ = rest;
    for (const auto& one : group.factors) {
      const auto floats = tape.read(one.a->value);
      kernels::copy(tape.threads(), floats, rest.first(floats.span().size()));
      rest = rest.subspan(floats.span().size());
    }
  }
  operator kernels::Elements() const { return elements_; }  // NOLINT(google-explicit-constructor): passed to kernels

 private:
  Memory memory_;
  kernels::Elements elements_;
};

/// dropout(x) of a group, in the type of x.
class Dropped {
 public:
  Dropped(Tape& tape, const Together& group, const Tensor& x) : tensor_(x) {
    if (!group.mask || group.mask->rate == 0) return;
    memory_ = tape.scratch(x.dtype(), static_cast<std::size_t>(x.elements()));
    tensor_ = Tensor(memory_.bytes(), x.dtype(), x.shape());
    kernels::dropout_add_forward(tape.threads(), *group.mask, x, {}, tensor_);
  }
  operator kernels::Elements() const { return tensor_; }  // NOLINT(google-explicit-constructor): passed to kernels

 private:
  Memory memory_;
  Tensor tensor_;
};

/// u = dropout(x) a^T of all adapters, [rows, columns].
Memory inner_products(Tape& tape, const LowRankSum& sum, const Tensor& x) {
  auto memory = tape.scratch(static_cast<std::size_t>(sum.rows() * sum.columns()));
  const auto all = first_floats(memory, sum.rows() * sum.columns());
  sum.for_groups([&](const Together& group) {
    const auto e = sum.lower(group);
    const StackedA a(tape, group, e.in);
    const Dropped dropped(tape, group, x);
    if (sum.all_of(group)) return kernels::linear_forward(tape.threads(), e, dropped, a, {}, all);
    const auto own = tape.scratch(static_cast<std::size_t>(e.rows * e.out));
    const auto floats = first_floats(own, e.rows * e.out);
    kernels::linear_forward(tape.threads(), e, dropped, a, {}, floats);
    kernels::copy_columns(tape.threads(), e.rows, floats, e.out, all, sum.columns(), sum.out_of(group));
  });
  return memory;
}

/// y += u b^T of all adapters.
void add_outer_products(Tape& tape, const LowRankSum& sum, const Memory& u, const Tensor& y) {
  const auto wide = sum.wide_b(tape);
  const auto e = sum.upper();
  kernels::linear_add(tape.threads(), e, first_floats(u, e.rows * e.in), first_floats(wide, e.out * e.in), y);
}

/// Gives the gradients of the factors and of x.
class LowRankGradients {
 public:
  /// `x` is not read if no a is trained. `dx` returns where the gradient of x is written or added; it is called for
  /// each group.
  LowRankGradients(Tape& tape, const LowRankSum& sum, Tensor x, std::function<Tape::Target()> dx)
      : tape_(tape), sum_(sum), x_(std::move(x)), dx_(std::move(dx)) {}

  /// `u`: as in the forward pass, not read if no b is trained.
  void give(const Tensor& dy, const Memory& u) const {
    const auto du = gradient_of_products(dy);
    if (sum_.trains_b()) give_b(dy, u);
    sum_.for_groups([&](const Together& group) { back_to_x(group, du); });
  }

 private:
  Memory gradient_of_products(const Tensor& dy) const {
    auto memory = tape_.scratch(static_cast<std::size_t>(sum_.rows() * sum_.columns()));
    const auto wide = sum_.wide_b(tape_);
    const auto e = sum_.upper();
    kernels::linear_backward_input(tape_.threads(), e, dy, first_floats(wide, e.out * e.in),
                                   first_floats(memory, e.rows * e.in), false);
    return memory;
  }
  void give_b(const Tensor& dy, const Memory& u) const {
    const auto e = sum_.upper();
    const auto memory = tape_.scratch(static_cast<std::size_t>(e.out * e.in));
    const auto dwide = first_floats(memory, e.out * e.in);
    kernels::linear_backward_weight(tape_.threads(), e, dy, first_floats(u, e.rows * e.in), dwide, false);
    sum_.give_b(tape_, dwide);
  }
  /// The gradients of a, then of x, from `all`, those of the products of all adapters.
  void back_to_x(const Together& group, const Memory& all) const {
    const auto e = sum_.lower(group);
    auto du = first_floats(all, e.rows * sum_.columns());
    Memory own;
    if (!sum_.all_of(group)) {
      own = tape_.scratch(static_cast<std::size_t>(e.rows * e.out));
      const auto floats = first_floats(own, e.rows * e.out);
      kernels::copy_columns(tape_.threads(), e.rows, du, sum_.columns(), floats, e.out, sum_.into(group));
      du = floats;
    }
    give_a(group, du);
    give_x(group, du);
  }
  void give_a(const Together& group, std::span<const float> du) const {
    const auto trained = [](const auto& one) { return one.a->trained(); };
    if (std::none_of(group.factors.begin(), group.factors.end(), trained)) return;
    const auto e = sum_.lower(group);
    const Dropped dropped(tape_, group, x_);
    if (group.factors.size() == 1) {
      const auto da = group.factors[0].a->grad_target();
      return kernels::linear_backward_weight(tape_.threads(), e, du, dropped, da.floats, da.add);
    }
    const auto memory = tape_.scratch(static_cast<std::size_t>(e.out * e.in));
    auto rest = first_floats(memory, e.out * e.in);
    kernels::linear_backward_weight(tape_.threads(), e, du, dropped, rest, false);
    for (const auto& one : group.factors) {
      const auto part = rest.first(static_cast<std::size_t>(one.a->value.elements()));
      if (one.a->trained()) kernels::add(tape_.threads(), part, one.a->grad_to_add_to(tape_.threads()));
      rest = rest.subspan(part.size());
    }
  }
  void give_x(const Together& group, std::span<const float> du) const {
    const auto dx = dx_();
    if (dx.tensor.empty()) return;
    const auto e = sum_.lower(group);
    const StackedA a(tape_, group, e.in);
    if (!group.mask || group.mask->rate == 0)
      return kernels::linear_backward_input(tape_.threads(), e, du, a, dx.tensor, dx.add);
    const auto memory = tape_.scratch(static_cast<std::size_t>(e.rows * e.in));
    const auto ddropped = first_floats(memory, e.rows * e.in);
    kernels::linear_backward_input(tape_.threads(), e, du, a, ddropped, false);
    const kernels::Elements so_far = dx.add ? kernels::Elements(dx.tensor) : kernels::Elements();
    kernels::dropout_add_forward(tape_.threads(), *group.mask, ddropped, so_far, dx.tensor);
  }

  Tape& tape_;
  const LowRankSum& sum_;
  Tensor x_;
  std::function<Tape::Target()> dx_;
};

class LowRank final : public Node {
 public:
  LowRank(VarId y, VarId before, VarId x_place, Var x, const LowRankSum& sum, Memory u)
      : y_(y), before_(before), x_place_(x_place), x_(std::move(x)), sum_(sum), u_(std::move(u)) {}
  void note(Tape& tape) {
    for (std::size_t i = 0; i < sum_.factors().size(); ++i) {
      a_[i] = tape.use(sum_.factors()[i].a);
      b_[i] = tape.use(sum_.factors()[i].b);
    }
  }
  void backward(Tape& tape) override {
    auto dy = tape.take_grad(y_);
    if (dy.empty()) return;
    LowRankGradients(tape, sum_, x_.empty() ? Tensor() : x_.value(), [&] {
      return tape.grad_target(x_place_);
    }).give(dy.tensor, u_);
    for (std::size_t i = 0; i < sum_.factors().size(); ++i) tape.done(a_[i]), tape.done(b_[i]);
    tape.give_grad(before_, std::move(dy));
  }

 private:
  VarId y_, before_, x_place_;
  Var x_;  ///< empty if no a is trained
  LowRankSum sum_;
  Memory u_;
  std::array<LeafUse, most_adapters> a_, b_;
};

}  // namespace

Var add_low_rank(Var y, const Var& x, std::span<const LowRankFactors> factors,
                 std::span<const kernels::DropoutMask> masks) {
  auto& tape = y.tape();
  if (y.shape().rows() != x.shape().rows())
    throw ShapeError(text("adapter: x is ", x.shape(), ", y ", y.shape(), "; the extents do not fit together"));
  const LowRankSum sum({{x.shape().rows(), x.shape().width(), y.shape().width()}, factors, masks});
  const bool grad = y.wants_grad() || x.wants_grad() || sum.trains_a() || sum.trains_b();
  const VarId before = y;
  auto sum_here = to_change(std::move(y), grad);
  auto u = inner_products(tape, sum, x.value());
  add_outer_products(tape, sum, u, sum_here.value());
  if (!sum_here.wants_grad()) return sum_here;
  tape.record<LowRank>(sum_here, before, x, sum.trains_a() ? x : Var(), sum, std::move(u)).note(tape);
  return sum_here;
}

void low_rank_forward(Tape& tape, const LowRankLayer& layer, const Tensor& x, const Tensor& y) {
  const LowRankSum sum(layer);
  add_outer_products(tape, sum, inner_products(tape, sum, x), y);
}

void low_rank_backward(Tape& tape, const LowRankLayer& layer, const Tensor& dy, const Tensor& x, const Tensor& dx) {
  const LowRankSum sum(layer);
  const auto u = sum.trains_b() ? inner_products(tape, sum, x) : Memory();
  LowRankGradients(tape, sum, x, [&] { return Tape::Target{dx, true}; }).give(dy, u);
}

}  // namespace tessera::autograd
