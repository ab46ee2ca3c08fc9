#include "framework/parallel/tensor_parallel.h"

#include <cstring>

#include "framework/autograd/ops/in_place.h"
#include "framework/kernels/embedding.h"
#include "framework/parallel/mappings.h"

namespace tessera {
namespace {

TensorCut even_rows(const LinearSizes& sizes, const TensorParallel& parallel) {
  const auto& group = parallel.group;
  if (sizes.out % group.size() != 0)
    throw ShapeError(
        text("tensor parallel: ", sizes.out, " rows of a weight do not divide by ", group.size(), " processes"));
  return TensorCut::even(0, sizes.out, group.rank(), group.size());
}

TensorCut even_columns(const LinearSizes& sizes, const TensorParallel& parallel) {
  const auto& group = parallel.group;
  if (sizes.in % group.size() != 0)
    throw ShapeError(
        text("tensor parallel: ", sizes.in, " columns of a weight do not divide by ", group.size(), " processes"));
  return TensorCut::even(1, sizes.in, group.rank(), group.size());
}

}  // namespace

ColumnParallelLinear::ColumnParallelLinear(const std::string& name, const LinearSizes& s, TensorCut rows,
                                           const TensorParallel& parallel, bool gather_output)
    : LinearLayer(name),
      parallel_(parallel),
      gather_output_(gather_output),
      weight_(declare("weight", {s.out, s.in}, s.init, rows)) {
  if (s.has_bias) bias_ = &declare("bias", {s.out}, Init::zeros(), std::move(rows));
}

ColumnParallelLinear::ColumnParallelLinear(const std::string& name, const LinearSizes& s,
                                           const TensorParallel& parallel, bool gather_output)
    : ColumnParallelLinear(name, s, even_rows(s, parallel), parallel, gather_output) {}

Var ColumnParallelLinear::entered(const Var& x) const {
  if (parallel_.sequence_parallel) return gather_from_sequence_region(x, parallel_.group, name());
  return copy_to_tensor_region(x, parallel_.group, name());
}

Var ColumnParallelLinear::forward(const Var& x) const {
  const auto y = linear(entered(x), weight_.leaf, bias_ ? &bias_->leaf : nullptr);
  return gather_output_ ? gather_from_tensor_region(y, parallel_.group, name()) : y;
}

Var ColumnParallelLinear::forward(const Var& x, Activation act) const {
  const auto y = linear_activation(entered(x), weight_.leaf, bias_ ? &bias_->leaf : nullptr, act);
  return gather_output_ ? gather_from_tensor_region(y, parallel_.group, name()) : y;
}

RowParallelLinear::RowParallelLinear(const std::string& name, const LinearSizes& s, const TensorParallel& parallel,
                                     bool input_is_parallel)
    : LinearLayer(name),
      parallel_(parallel),
      input_is_parallel_(input_is_parallel),
      weight_(declare("weight", {s.out, s.in}, s.init, even_columns(s, parallel))) {
  if (s.has_bias) bias_ = &declare("bias", {s.out}, Init::zeros());
}

Var RowParallelLinear::forward(const Var& x) const {
  const auto& group = parallel_.group;
  auto part = linear(input_is_parallel_ ? x : scatter_to_tensor_region(x, group, name()), weight_.leaf, nullptr);
  auto y = parallel_.sequence_parallel ? reduce_scatter_to_sequence_region(part, group, name())
                                       : reduce_from_tensor_region(std::move(part), group, name());
  part = {};  // the partial products are not needed any more
  return bias_ ? add_bias(std::move(y), bias_->leaf) : y;
}

Var RowParallelLinear::forward(const Var&, Activation) const {
  throw BugError(text(name(), ": an activation follows the first layer of a pair, not the second"));
}

std::unique_ptr<LinearLayer> TensorParallelLayers::outputs_cut(const std::string& name, const LinearSizes& sizes,
                                                               TensorCut rows) const {
  if (ranks() == 1) return LayerMaker::outputs_cut(name, sizes, std::move(rows));
  return std::make_unique<ColumnParallelLinear>(name, sizes, std::move(rows), parallel_);
}

std::unique_ptr<LinearLayer> TensorParallelLayers::inputs_cut(const std::string& name, const LinearSizes& sizes) const {
  if (ranks() == 1) return LayerMaker::inputs_cut(name, sizes);
  return std::make_unique<RowParallelLinear>(name, sizes, parallel_);
}

// The backward pass of the sharded embedding: tokens of other ranks' rows are skipped. The gradient that arrives has
// already passed the reverse mapping, so it is the same on all ranks.
namespace {

class PartEmbedding final : public Node {
 public:
  PartEmbedding(Place y, std::span<const std::int32_t> tokens, LeafUse words, std::int64_t first_row)
      : y_(y), tokens_(tokens), words_(words), first_row_(first_row) {}
  void backward(Tape& tape) override {
    const auto dy = tape.take_grad(y_);
    if (!dy.empty() && words_.leaf->trained())
      embedding_part_backward(tape.threads(), dy.tensor.shape().width(), first_row_, tokens_, tape.read(dy.tensor),
                              words_.leaf->grad.floats());
    tape.done(words_);
  }

 private:
  Place y_;
  std::span<const std::int32_t> tokens_;
  LeafUse words_;
  std::int64_t first_row_;
};

class PlusPositions final : public Node {
 public:
  PlusPositions(Place y, Place x, std::span<const std::int32_t> positions, LeafUse table)
      : y_(y), x_(x), positions_(positions), table_(table) {}
  void backward(Tape& tape) override {
    auto dy = tape.take_grad(y_);
    if (!dy.empty() && table_.leaf->trained())
      embedding_backward(tape.threads(), dy.tensor.shape().width(), positions_, tape.read(dy.tensor),
                         table_.leaf->grad.floats());
    tape.done(table_);
    if (!dy.empty()) tape.give_grad(x_, std::move(dy));
  }

 private:
  Place y_, x_;
  std::span<const std::int32_t> positions_;
  LeafUse table_;
};

}  // namespace

Var vocab_parallel_embedding(Tape& tape, const Shape& batch, std::span<const std::int32_t> tokens, Leaf& words,
                             std::int64_t first_row, std::int64_t vocabulary, const TensorParallel& parallel,
                             DType type) {
  auto part = tape.make(type, {batch[0], batch[1], words.value.shape().width()}, words.trained());
  embedding_part_forward(tape.threads(), vocabulary, first_row, tokens, words.value, tape.write(part));
  if (part.wants_grad()) tape.record<PartEmbedding>(part, tokens, tape.use(&words), first_row);
  constexpr auto me = "word embedding";
  if (parallel.sequence_parallel) return reduce_scatter_to_sequence_region(part, parallel.group, me);
  return reduce_from_tensor_region(std::move(part), parallel.group, me);
}

Var plus_positions(Var x, std::span<const std::int32_t> positions, Leaf& table) {
  auto& tape = x.tape();
  const Place from = x;
  auto y = to_change(std::move(x), true);
  embedding_forward(tape.threads(), positions, table.value, Floats(tape, y.value(), Floats::Use::update), true);
  if (y.wants_grad()) tape.record<PlusPositions>(y, from, positions, tape.use(&table));
  return y;
}

}  // namespace tessera
