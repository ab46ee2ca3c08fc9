#include "framework/parallel/vocab_parallel.h"

#include "framework/kernels/cross_entropy.h"
#include "framework/kernels/vector.h"

namespace tessera {
namespace {

constexpr auto loss_name = "vocab_parallel_cross_entropy";

/// Keeps softmax - onehot of each row.
class CrossEntropyNode final : public Node {
 public:
  CrossEntropyNode(Place loss, Place logits, Memory slopes, const Shape& shape)
      : loss_(loss), logits_(logits), slopes_(std::move(slopes)), shape_(shape) {}
  void backward(Tape& tape) override {
    const auto dloss = tape.take_grad(loss_);
    if (dloss.empty()) return;
    const auto factors = tape.read(dloss.tensor);
    const auto width = static_cast<std::size_t>(shape_.width());
    const auto slopes = Tape::floats(slopes_);
    for (std::size_t r = 0; r < factors.span().size(); ++r)
      scale(tape.threads(), factors.span()[r], slopes.subspan(r * width, width));
    const Tensor dlogits(slopes_.bytes(), DType::float32, shape_);
    tape.give_grad(logits_, {dlogits, std::move(slopes_)});
  }

 private:
  Place loss_, logits_;
  Memory slopes_;
  Shape shape_;
};

TensorCut rows_here(std::int64_t rows, const TensorParallel& parallel) {
  const auto& group = parallel.group;
  if (rows % group.size() != 0)
    throw ShapeError(
        text("tensor parallel: ", rows, " rows of an embedding do not divide by ", group.size(), " processes"));
  return TensorCut::even(0, rows, group.rank(), group.size());
}

}  // namespace

VocabParallelEmbedding::VocabParallelEmbedding(const std::string& name, std::int64_t rows, std::int64_t width,
                                               const Init& init, TensorParallel parallel)
    : Module(name),
      rows_(rows),
      parallel_(std::move(parallel)),
      weight_(declare("weight", {rows, width}, init, rows_here(rows, parallel_))) {}

Var VocabParallelEmbedding::forward(Tape& tape, const Shape& batch, std::span<const std::int32_t> tokens) const {
  const auto first = rows_ / parallel_.group.size() * parallel_.group.rank();
  return vocab_parallel_embedding(tape, batch, tokens, weight_.leaf, first, rows_, parallel_, tape.type());
}

Var vocab_parallel_cross_entropy(const Var& logits, std::span<const std::int32_t> labels, const Communicator& group) {
  auto& tape = logits.tape();
  const auto& shape = logits.shape();
  const auto rows = static_cast<std::size_t>(shape.rows());
  if (labels.size() != rows)
    throw ShapeError(
        text(loss_name, ": logits are ", shape, ", with ", labels.size(), " labels; one a row was promised"));
  const auto columns = shape.width();
  const CrossEntropyPart part{columns, columns * group.rank(), columns * group.size()};
  auto loss = tape.make(Shape(shape.dims().first(shape.rank() - 1)), logits.wants_grad());

  auto slopes = tape.scratch(static_cast<std::size_t>(shape.elements()));
  const auto values = Tape::floats(slopes).first(static_cast<std::size_t>(shape.elements()));
  copy(tape.threads(), tape.read(logits), values);
  const auto most_memory = tape.scratch(rows), sums_memory = tape.scratch(4 * rows);
  const auto most = Tape::floats(most_memory).first(rows);
  const std::span<double> sums(reinterpret_cast<double*>(sums_memory.bytes().data()), 2 * rows);
  cross_entropy_largest(tape.threads(), part, values, most);
  group.all_reduce_max(most, loss_name);
  cross_entropy_sums(tape.threads(), part, values, labels, most, sums);
  group.all_reduce(sums, loss_name);
  cross_entropy_finish(tape.threads(), part, values, labels, sums, {}, loss.floats(), loss.wants_grad());
  if (loss.wants_grad()) tape.record<CrossEntropyNode>(loss, logits, std::move(slopes), shape);
  return loss;
}

}  // namespace tessera
