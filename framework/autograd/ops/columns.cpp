#include "framework/autograd/ops/columns.h"

#include <cstring>

#include "framework/kernels/columns.h"

namespace tessera::autograd {
namespace {

void fill_with_zeros(Tape& tape, const Tensor& x) {
  constexpr std::size_t bytes_of_a_tile = 1 << 16;
  tape.threads().parallel_for(x.bytes(), bytes_of_a_tile, [&](std::size_t first, std::size_t last) {
    std::memset(x.raw().data() + first, 0, last - first);
  });
}

/// Adds the blocks of the gradient dy that an operation copied from x to the gradient of x.
void give_columns(Tape& tape, VarId x, const Tensor& dy, kernels::ColumnBlocks blocks) {
  const auto target = tape.grad_target(x);
  if (target.tensor.empty()) return;
  if (!target.add) fill_with_zeros(tape, target.tensor);
  std::swap(blocks.from_first, blocks.to_first);
  std::swap(blocks.from_step, blocks.to_step);
  const auto& shape = target.tensor.shape();
  kernels::add_columns(tape.threads(), shape.rows(), dy, dy.shape().width(), target.tensor, shape.width(), blocks);
}

class ColumnsNode final : public Node {
 public:
  ColumnsNode(VarId y, VarId x, const kernels::ColumnBlocks& blocks) : y_(y), x_(x), blocks_(blocks) {}
  void backward(Tape& tape) override {
    const auto dy = tape.take_grad(y_);
    if (!dy.empty()) give_columns(tape, x_, dy.tensor, blocks_);
  }

 private:
  VarId y_, x_;
  kernels::ColumnBlocks blocks_;
};

class SideBySideNode final : public Node {
 public:
  SideBySideNode(VarId y, VarId a, VarId b, const kernels::ColumnBlocks& left, const kernels::ColumnBlocks& right)
      : y_(y), a_(a), b_(b), left_(left), right_(right) {}
  void backward(Tape& tape) override {
    const auto dy = tape.take_grad(y_);
    if (dy.empty()) return;
    give_columns(tape, a_, dy.tensor, left_);
    give_columns(tape, b_, dy.tensor, right_);
  }

 private:
  VarId y_, a_, b_;
  kernels::ColumnBlocks left_, right_;
};

Var copied(const Var& x, const kernels::ColumnBlocks& blocks) {
  auto& tape = x.tape();
  const Shape shape = x.shape();  // a copy: `make` may move the values of the tape
  const auto width = blocks.blocks * blocks.width;
  auto y = tape.make(x.value().dtype(), shape.with_width(width), x.wants_grad());
  kernels::copy_columns(tape.threads(), shape.rows(), x.value(), shape.width(), y.value(), width, blocks);
  if (y.wants_grad()) tape.record<ColumnsNode>(y, x, blocks);
  return y;
}

/// The column blocks that latent_heads copies from its inputs into the fused projection.
struct LatentCopies {
  kernels::ColumnBlocks query, key, value, rotary;
  explicit LatentCopies(const LatentHeads& h) {
    const auto D = h.width();
    const auto blocks = [&](std::int64_t width, std::int64_t from, std::int64_t from_step, std::int64_t to) {
      kernels::ColumnBlocks b;
      b.blocks = h.heads;
      b.width = width;
      b.from_first = from;
      b.from_step = from_step;
      b.to_first = to;
      b.to_step = 3 * D;
      return b;
    };
    query = blocks(h.plain + h.rotary, 0, h.plain + h.rotary, 0);
    key = blocks(h.plain, 0, h.plain + h.value, D);
    value = blocks(h.value, h.plain, h.plain + h.value, 2 * D);
    rotary = blocks(h.rotary, 0, 0, D + h.plain);
  }
};

class LatentHeadsNode final : public Node {
 public:
  LatentHeadsNode(VarId y, VarId q, VarId kv, VarId k_rotary, const LatentHeads& heads)
      : y_(y), q_(q), kv_(kv), k_rotary_(k_rotary), heads_(heads) {}
  void backward(Tape& tape) override {
    const auto dy = tape.take_grad(y_);
    if (dy.empty()) return;
    const LatentCopies copies(heads_);
    give_columns(tape, q_, dy.tensor, copies.query);
    give_columns(tape, kv_, dy.tensor, copies.key);
    give_columns(tape, kv_, dy.tensor, copies.value);
    give_columns(tape, k_rotary_, dy.tensor, copies.rotary);
  }

 private:
  VarId y_, q_, kv_, k_rotary_;
  LatentHeads heads_;
};

}  // namespace

Var side_by_side(const Var& a, const Var& b) {
  auto& tape = a.tape();
  const auto rows = a.shape().rows(), width = a.shape().width() + b.shape().width();
  if (b.shape().rows() != rows)
    throw ShapeError(
        text("side_by_side: a is ", a.shape(), " and b is ", b.shape(), "; expected the same number of rows"));
  auto y = tape.make(a.value().dtype(), a.shape().with_width(width), a.wants_grad() || b.wants_grad());
  kernels::ColumnBlocks left, right;
  left.width = a.shape().width();
  right.width = b.shape().width();
  right.to_first = left.width;
  kernels::copy_columns(tape.threads(), rows, a.value(), left.width, y.value(), width, left);
  kernels::copy_columns(tape.threads(), rows, b.value(), right.width, y.value(), width, right);
  if (y.wants_grad()) tape.record<SideBySideNode>(y, a, b, left, right);
  return y;
}

Var columns(const Var& x, std::int64_t first, std::int64_t count) {
  kernels::ColumnBlocks blocks;
  blocks.width = count;
  blocks.from_first = first;
  return copied(x, blocks);
}

Var head_columns(const Var& x, std::int64_t heads, std::int64_t count) {
  kernels::ColumnBlocks blocks;
  blocks.blocks = heads;
  blocks.width = count;
  blocks.from_step = x.shape().width() / heads;
  blocks.to_step = count;
  return copied(x, blocks);
}

Var latent_heads(const Var& q, const Var& kv, const Var& k_rotary, const LatentHeads& heads) {
  auto& tape = q.tape();
  const auto rows = q.shape().rows(), width = heads.heads * 3 * heads.width();
  const auto type = q.value().dtype();
  auto y = tape.make(type, q.shape().with_width(width), q.wants_grad() || kv.wants_grad() || k_rotary.wants_grad());
  if (heads.value != heads.plain + heads.rotary) fill_with_zeros(tape, y.value());
  const LatentCopies copies(heads);
  const auto copy = [&](const Var& from, const kernels::ColumnBlocks& blocks) {
    kernels::copy_columns(tape.threads(), rows, from.value(), from.shape().width(), y.value(), width, blocks);
  };
  copy(q, copies.query);
  copy(kv, copies.key);
  copy(kv, copies.value);
  copy(k_rotary, copies.rotary);
  if (y.wants_grad()) tape.record<LatentHeadsNode>(y, q, kv, k_rotary, heads);
  return y;
}

}  // namespace tessera::autograd
