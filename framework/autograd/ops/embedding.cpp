#include "framework/autograd/ops/embedding.h"

#include "framework/kernels/embedding.h"

namespace tessera::autograd {
namespace {

using Ids = std::span<const std::int32_t>;

/// Backward is a scatter-add into the tables' gradients; tokens have no gradient.
class Embedding final : public Node {
 public:
  Embedding(VarId y, std::int64_t width, Ids tokens, LeafUse words, Ids positions, LeafUse table, std::int64_t padding)
      : y_(y), width_(width), padding_(padding), tokens_(tokens), positions_(positions), words_(words), table_(table) {}
  void backward(Tape& tape) override {
    const auto dy = tape.take_grad(y_);
    if (dy.empty()) return;
    const auto d = tape.read(dy.tensor);
    add(tape, tokens_, words_, d, padding_);
    if (table_) add(tape, positions_, table_, d, -1);
  }

 private:
  void add(Tape& tape, Ids ids, const LeafUse& use, std::span<const float> dy, std::int64_t padding) const {
    if (use.leaf->trained())
      kernels::embedding_backward(tape.threads(), width_, ids, dy, use.leaf->grad_to_add_to(tape.threads()), padding);
    tape.done(use);
  }
  VarId y_;
  std::int64_t width_, padding_;
  Ids tokens_, positions_;
  LeafUse words_, table_;
};

class EmbeddedColumns final : public Node {
 public:
  EmbeddedColumns(VarId y, Ids tokens, LeafUse table, std::int64_t first, std::int64_t padding)
      : y_(y), tokens_(tokens), table_(table), first_(first), padding_(padding) {}
  void backward(Tape& tape) override {
    const auto dy = tape.take_grad(y_);
    if (!dy.empty())
      kernels::embedding_columns_backward(tape.threads(), first_, tokens_, tape.read(dy.tensor),
                                          table_.leaf->value.shape()[0], table_.leaf->grad_to_add_to(tape.threads()),
                                          padding_);
    tape.done(table_);
  }

 private:
  VarId y_;
  Ids tokens_;
  LeafUse table_;
  std::int64_t first_, padding_;
};

}  // namespace

Var embedded_columns(Tape& tape, const Shape& batch, Ids tokens, Leaf& table, std::int64_t vocabulary,
                     std::int64_t first, std::int64_t padding) {
  auto y = tape.make({batch[0], batch[1], table.value.shape()[0]}, table.trained());
  kernels::embedding_columns_forward(tape.threads(), vocabulary, first, tokens, table.value, y.floats());
  if (y.wants_grad()) tape.record<EmbeddedColumns>(y, tokens, tape.use(&table), first, padding);
  return y;
}

Var embedding(Tape& tape, const Shape& batch, Ids tokens, Leaf& words, Ids positions, Leaf* position_table, DType type,
              std::int64_t padding) {
  const auto width = words.value.shape().width();
  const bool grad = words.trained() || (position_table && position_table->trained());
  auto y = tape.make(type, {batch[0], batch[1], width}, grad);
  {
    const auto sum = tape.write(y);
    kernels::embedding_forward(tape.threads(), tokens, {words.weight(), width}, sum, false);
    if (position_table)
      kernels::embedding_forward(tape.threads(), positions, {position_table->weight(), width}, sum, true);
  }
  if (y.wants_grad())
    tape.record<Embedding>(y, width, tokens, tape.use(&words), positions, tape.use(position_table), padding);
  return y;
}

}  // namespace tessera::autograd
