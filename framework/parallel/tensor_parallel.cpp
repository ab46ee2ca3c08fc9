#include "framework/parallel/tensor_parallel.h"

#include "framework/autograd/ops/activation.h"
#include "framework/autograd/ops/in_place.h"
#include "framework/kernels/embedding.h"
#include "framework/parallel/tensor_parallel_ops.h"

namespace tessera::parallel {

const comm::Communicator& tensor_group(const nn::Pass& pass, const nn::TensorRank& tensor) {
  must(pass.groups != nullptr, "the pass of a sharded model has the groups of this rank");
  const auto& group = pass.groups->tensor;
  must(group.size() == tensor.ranks && group.rank() == tensor.rank,
       "the rank of a layer is that of the pass in its tensor-parallel group");
  return group;
}

ColumnParallelLinear::ColumnParallelLinear(const std::string& name, const nn::LinearSizes& s, nn::TensorCut rows,
                                           const nn::TensorRank& tensor, bool gather_output)
    : nn::ActivatedLinearLayer(name),
      tensor_(tensor),
      gather_output_(gather_output),
      weight_(declare("weight", s.role, {s.out, s.in}, s.init, rows)) {
  adapters_ = nn::make_adapters(name, s.adapters, weight_, rows, {});
  if (s.has_bias) bias_ = &declare("bias", ParameterRole::bias, {s.out}, nn::Init::zeros(), std::move(rows));
  for (auto* parameter : {&weight_, bias_})
    if (parameter) share_copied_rows(*parameter);
  if (adapters_) contains(*adapters_);
}

ColumnParallelLinear::ColumnParallelLinear(const std::string& name, const nn::LinearSizes& s,
                                           const nn::TensorRank& tensor, bool gather_output)
    : ColumnParallelLinear(name, s, tensor.part(0, s.out, "rows of a weight"), tensor, gather_output) {}

autograd::Var ColumnParallelLinear::entered(const autograd::Var& x, const nn::Pass& pass) const {
  if (tensor_.whole()) return x;
  const auto& group = tensor_group(pass, tensor_);
  return tensor_.sequence_parallel ? gather_from_sequence_region(x, group, name())
                                   : copy_to_tensor_region(x, group, name());
}

autograd::Var ColumnParallelLinear::left(const autograd::Var& y, const nn::Pass& pass) const {
  if (tensor_.whole() || !gather_output_) return y;
  return gather_from_tensor_region(y, tensor_group(pass, tensor_), name());
}

autograd::Var ColumnParallelLinear::forward(const autograd::Var& x, const nn::Pass& pass) const {
  return left(product(entered(x, pass), pass), pass);
}

autograd::Var ColumnParallelLinear::product(const autograd::Var& x, const nn::Pass& pass) const {
  return adapters_ ? adapters_->forward(x, weight_.leaf, bias(), pass) : autograd::linear(x, weight_.leaf, bias());
}

autograd::Var ColumnParallelLinear::forward(const autograd::Var& x, kernels::Activation act,
                                            const nn::Pass& pass) const {
  const auto in = entered(x, pass);
  return left(adapters_ ? autograd::activated(product(in, pass), act)
                        : autograd::linear_activation(in, weight_.leaf, bias(), act),
              pass);
}

nn::SumOverRanks sum_of_ranks(const nn::TensorRank& tensor, const std::string& layer) {
  if (tensor.whole()) return {};
  return [layer](const ProcessGroups* groups, std::span<double> numbers) {
    must(groups != nullptr, "the norms of a sharded layer are computed with the groups of this rank");
    groups->tensor.all_reduce(numbers, "norms of " + layer);
  };
}

RowParallelLinear::RowParallelLinear(const std::string& name, const nn::LinearSizes& s, const nn::TensorRank& tensor,
                                     bool input_is_parallel)
    : nn::LinearLayer(name),
      tensor_(tensor),
      input_is_parallel_(input_is_parallel),
      weight_(declare("weight", s.role, {s.out, s.in}, s.init, tensor.part(1, s.in, "columns of a weight"))) {
  if (s.has_bias) bias_ = &declare("bias", ParameterRole::bias, {s.out}, nn::Init::zeros());
  adapters_ = nn::make_adapters(name, s.adapters, weight_, {}, weight_.cut, sum_of_ranks(tensor, name));
  if (adapters_) contains(*adapters_);
}

autograd::Var RowParallelLinear::product(const autograd::Var& x, autograd::Leaf* bias, const nn::Pass& pass) const {
  return adapters_ ? adapters_->forward(x, weight_.leaf, bias, pass) : autograd::linear(x, weight_.leaf, bias);
}

autograd::Var RowParallelLinear::forward(const autograd::Var& x, const nn::Pass& pass) const {
  if (tensor_.whole()) return product(x, bias_ ? &bias_->leaf : nullptr, pass);
  const auto& group = tensor_group(pass, tensor_);
  // Without the bias, which every rank has whole: it is added once, to the sum. Adapters are part of the summands, so
  // that nothing more is communicated.
  auto part = product(input_is_parallel_ ? x : scatter_to_tensor_region(x, group, name()), nullptr, pass);
  auto y = tensor_.sequence_parallel ? reduce_scatter_to_sequence_region(part, group, name())
                                     : reduce_from_tensor_region(std::move(part), group, name());
  part = {};  // the partial products are not needed any more
  return bias_ ? autograd::add_bias(std::move(y), bias_->leaf) : y;
}

GatheredParallelLinear::GatheredParallelLinear(const std::string& name, const nn::LinearSizes& s,
                                               const nn::TensorRank& tensor)
    : nn::GatheredLinear(name), tensor_(tensor), linear_(name, s, tensor, true) {
  contains(linear_);
}

nn::GatheredLinear::Parts GatheredParallelLinear::forward(const autograd::Var& x, std::int64_t first,
                                                          const nn::Pass& pass) const {
  auto parts = cut(linear_.forward(x, pass), first);
  if (tensor_.whole()) return parts;
  const auto& group = tensor_group(pass, tensor_);
  if (tensor_.sequence_parallel) parts.own = scatter_to_sequence_region(parts.own, group, name());
  // Every rank reads all of it for its own heads, so its gradient is the sum over the ranks.
  if (!parts.all.empty()) parts.all = copy_to_tensor_region(parts.all, group, name());
  return parts;
}

std::unique_ptr<nn::ActivatedLinearLayer> TensorParallelLayers::column_parallel(const std::string& name,
                                                                                const nn::LinearSizes& sizes,
                                                                                nn::TensorCut rows) const {
  if (tensor().whole()) return nn::LayerMaker::column_parallel(name, sizes, std::move(rows));
  return std::make_unique<ColumnParallelLinear>(name, with_adapters(name, sizes), std::move(rows), tensor());
}

std::unique_ptr<nn::LinearLayer> TensorParallelLayers::row_parallel(const std::string& name,
                                                                    const nn::LinearSizes& sizes) const {
  if (tensor().whole()) return nn::LayerMaker::row_parallel(name, sizes);
  return std::make_unique<RowParallelLinear>(name, with_adapters(name, sizes), tensor());
}

std::unique_ptr<nn::GatheredLinear> TensorParallelLayers::gathered(const std::string& name,
                                                                   const nn::LinearSizes& sizes) const {
  if (tensor().whole()) return nn::LayerMaker::gathered(name, sizes);
  return std::make_unique<GatheredParallelLinear>(name, with_adapters(name, sizes), tensor());
}

nn::SumOverRanks TensorParallelLayers::sum_over_ranks(const std::string& name) const {
  return sum_of_ranks(tensor(), name);
}

// The backward pass of the sharded embedding: tokens of other ranks' rows are skipped. The gradient that arrives has
// already passed the reverse mapping, so it is the same on all ranks.
namespace {

class PartEmbedding final : public autograd::Node {
 public:
  PartEmbedding(autograd::VarId y, std::span<const std::int32_t> tokens, autograd::LeafUse words,
                std::int64_t first_row, std::int64_t padding)
      : y_(y), tokens_(tokens), words_(words), first_row_(first_row), padding_(padding) {}
  void backward(autograd::Tape& tape) override {
    const auto dy = tape.take_grad(y_);
    if (!dy.empty() && words_.leaf->trained())
      kernels::embedding_part_backward(tape.threads(), dy.tensor.shape().width(), first_row_, tokens_,
                                       tape.read(dy.tensor), words_.leaf->grad_to_add_to(tape.threads()), padding_);
    tape.done(words_);
  }

 private:
  autograd::VarId y_;
  std::span<const std::int32_t> tokens_;
  autograd::LeafUse words_;
  std::int64_t first_row_, padding_;
};

class PlusPositions final : public autograd::Node {
 public:
  PlusPositions(autograd::VarId y, autograd::VarId x, std::span<const std::int32_t> positions, autograd::LeafUse table)
      : y_(y), x_(x), positions_(positions), table_(table) {}
  void backward(autograd::Tape& tape) override {
    auto dy = tape.take_grad(y_);
    if (!dy.empty() && table_.leaf->trained())
      kernels::embedding_backward(tape.threads(), dy.tensor.shape().width(), positions_, tape.read(dy.tensor),
                                  table_.leaf->grad_to_add_to(tape.threads()));
    tape.done(table_);
    if (!dy.empty()) tape.give_grad(x_, std::move(dy));
  }

 private:
  autograd::VarId y_, x_;
  std::span<const std::int32_t> positions_;
  autograd::LeafUse table_;
};

}  // namespace

autograd::Var vocab_parallel_embedding(autograd::Tape& tape, std::span<const std::int32_t> tokens,
                                       autograd::Leaf& words, std::int64_t vocabulary, const nn::TensorRank& tensor,
                                       const nn::Pass& pass, DType type, std::int64_t padding) {
  const auto first_row = vocabulary / tensor.ranks * tensor.rank;
  const auto width = words.value.shape().width();
  auto part = tape.make(type, {pass.B, pass.T, width}, words.trained());
  kernels::embedding_part_forward(tape.threads(), vocabulary, first_row, tokens, {words.weight(), width},
                                  tape.write(part));
  if (part.wants_grad()) tape.record<PartEmbedding>(part, tokens, tape.use(&words), first_row, padding);
  if (tensor.whole()) return part;
  constexpr auto me = "word embedding";
  const auto& group = tensor_group(pass, tensor);
  if (tensor.sequence_parallel) return reduce_scatter_to_sequence_region(part, group, me);
  return reduce_from_tensor_region(std::move(part), group, me);
}

autograd::Var plus_positions(autograd::Var x, std::span<const std::int32_t> positions, autograd::Leaf& table) {
  auto& tape = x.tape();
  const autograd::VarId from = x;
  const bool grad = x.wants_grad() || table.trained();
  auto y = autograd::to_change(std::move(x), grad);
  kernels::embedding_forward(tape.threads(), positions, {table.weight(), table.value.shape().width()},
                             autograd::Floats(tape, y.value(), autograd::Floats::Use::update), true);
  if (y.wants_grad()) tape.record<PlusPositions>(y, from, positions, tape.use(&table));
  return y;
}

}  // namespace tessera::parallel
