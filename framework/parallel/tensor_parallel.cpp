#include "framework/parallel/tensor_parallel.h"

#include "framework/autograd/ops/in_place.h"
#include "framework/kernels/embedding.h"
#include "framework/parallel/tensor_parallel_ops.h"

namespace tessera {

const Communicator& tensor_group(const Pass& pass, const TensorRank& tensor) {
  must(pass.groups != nullptr, "the pass of a sharded model has the groups of this rank");
  const auto& group = pass.groups->tensor;
  must(group.size() == tensor.ranks && group.rank() == tensor.rank,
       "the rank of a layer is that of the pass in its tensor-parallel group");
  return group;
}

ColumnParallelLinear::ColumnParallelLinear(const std::string& name, const LinearSizes& s, TensorCut rows,
                                           const TensorRank& tensor, bool gather_output)
    : ActivatedLinearLayer(name),
      tensor_(tensor),
      gather_output_(gather_output),
      weight_(declare("weight", s.role, {s.out, s.in}, s.init, rows)) {
  if (s.has_bias) bias_ = &declare("bias", ParameterRole::bias, {s.out}, Init::zeros(), std::move(rows));
}

ColumnParallelLinear::ColumnParallelLinear(const std::string& name, const LinearSizes& s, const TensorRank& tensor,
                                           bool gather_output)
    : ColumnParallelLinear(name, s, tensor.part(0, s.out, "rows of a weight"), tensor, gather_output) {}

Var ColumnParallelLinear::entered(const Var& x, const Pass& pass) const {
  if (tensor_.whole()) return x;
  const auto& group = tensor_group(pass, tensor_);
  return tensor_.sequence_parallel ? gather_from_sequence_region(x, group, name())
                                   : copy_to_tensor_region(x, group, name());
}

Var ColumnParallelLinear::left(const Var& y, const Pass& pass) const {
  if (tensor_.whole() || !gather_output_) return y;
  return gather_from_tensor_region(y, tensor_group(pass, tensor_), name());
}

Var ColumnParallelLinear::forward(const Var& x, const Pass& pass) const {
  return left(linear(entered(x, pass), weight_.leaf, bias_ ? &bias_->leaf : nullptr), pass);
}

Var ColumnParallelLinear::forward(const Var& x, Activation act, const Pass& pass) const {
  return left(linear_activation(entered(x, pass), weight_.leaf, bias_ ? &bias_->leaf : nullptr, act), pass);
}

RowParallelLinear::RowParallelLinear(const std::string& name, const LinearSizes& s, const TensorRank& tensor,
                                     bool input_is_parallel)
    : LinearLayer(name),
      tensor_(tensor),
      input_is_parallel_(input_is_parallel),
      weight_(declare("weight", s.role, {s.out, s.in}, s.init, tensor.part(1, s.in, "columns of a weight"))) {
  if (s.has_bias) bias_ = &declare("bias", ParameterRole::bias, {s.out}, Init::zeros());
}

Var RowParallelLinear::forward(const Var& x, const Pass& pass) const {
  if (tensor_.whole()) return linear(x, weight_.leaf, bias_ ? &bias_->leaf : nullptr);
  const auto& group = tensor_group(pass, tensor_);
  auto part = linear(input_is_parallel_ ? x : scatter_to_tensor_region(x, group, name()), weight_.leaf, nullptr);
  auto y = tensor_.sequence_parallel ? reduce_scatter_to_sequence_region(part, group, name())
                                     : reduce_from_tensor_region(std::move(part), group, name());
  part = {};  // the partial products are not needed any more
  return bias_ ? add_bias(std::move(y), bias_->leaf) : y;
}

std::unique_ptr<ActivatedLinearLayer> TensorParallelLayers::column_parallel(const std::string& name,
                                                                            const LinearSizes& sizes,
                                                                            TensorCut rows) const {
  if (tensor().whole()) return LayerMaker::column_parallel(name, sizes, std::move(rows));
  return std::make_unique<ColumnParallelLinear>(name, sizes, std::move(rows), tensor());
}

std::unique_ptr<LinearLayer> TensorParallelLayers::row_parallel(const std::string& name,
                                                                const LinearSizes& sizes) const {
  if (tensor().whole()) return LayerMaker::row_parallel(name, sizes);
  return std::make_unique<RowParallelLinear>(name, sizes, tensor());
}

// The backward pass of the sharded embedding: tokens of other ranks' rows are skipped. The gradient that arrives has
// already passed the reverse mapping, so it is the same on all ranks.
namespace {

class PartEmbedding final : public Node {
 public:
  PartEmbedding(VarId y, std::span<const std::int32_t> tokens, LeafUse words, std::int64_t first_row)
      : y_(y), tokens_(tokens), words_(words), first_row_(first_row) {}
  void backward(Tape& tape) override {
    const auto dy = tape.take_grad(y_);
    if (!dy.empty() && words_.leaf->trained())
      embedding_part_backward(tape.threads(), dy.tensor.shape().width(), first_row_, tokens_, tape.read(dy.tensor),
                              words_.leaf->grad.floats());
    tape.done(words_);
  }

 private:
  VarId y_;
  std::span<const std::int32_t> tokens_;
  LeafUse words_;
  std::int64_t first_row_;
};

class PlusPositions final : public Node {
 public:
  PlusPositions(VarId y, VarId x, std::span<const std::int32_t> positions, LeafUse table)
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
  VarId y_, x_;
  std::span<const std::int32_t> positions_;
  LeafUse table_;
};

}  // namespace

Var vocab_parallel_embedding(Tape& tape, std::span<const std::int32_t> tokens, Leaf& words, std::int64_t vocabulary,
                             const TensorRank& tensor, const Pass& pass, DType type) {
  const auto first_row = vocabulary / tensor.ranks * tensor.rank;
  auto part = tape.make(type, {pass.B, pass.T, words.value.shape().width()}, words.trained());
  embedding_part_forward(tape.threads(), vocabulary, first_row, tokens, words.value, tape.write(part));
  if (part.wants_grad()) tape.record<PartEmbedding>(part, tokens, tape.use(&words), first_row);
  if (tensor.whole()) return part;
  constexpr auto me = "word embedding";
  const auto& group = tensor_group(pass, tensor);
  if (tensor.sequence_parallel) return reduce_scatter_to_sequence_region(part, group, me);
  return reduce_from_tensor_region(std::move(part), group, me);
}

Var plus_positions(Var x, std::span<const std::int32_t> positions, Leaf& table) {
  auto& tape = x.tape();
  const VarId from = x;
  auto y = to_change(std::move(x), true);
  embedding_forward(tape.threads(), positions, table.value, Floats(tape, y.value(), Floats::Use::update), true);
  if (y.wants_grad()) tape.record<PlusPositions>(y, from, positions, tape.use(&table));
  return y;
}

}  // namespace tessera
