#include "framework/parallel/vocab_parallel.h"

#include <cmath>

#include "framework/kernels/cross_entropy.h"
#include "framework/kernels/vector.h"

namespace tessera::parallel {
namespace {

constexpr auto loss_name = "vocab_parallel_cross_entropy";

/// Keeps softmax - onehot of each row, which the backward pass scales by the gradient of the loss.
class CrossEntropyNode final : public autograd::Node {
 public:
  CrossEntropyNode(autograd::VarId loss, autograd::VarId logits, Memory slopes, const Shape& shape)
      : loss_(loss), logits_(logits), slopes_(std::move(slopes)), shape_(shape) {}
  void backward(autograd::Tape& tape) override {
    const auto dloss = tape.take_grad(loss_);
    if (dloss.empty()) return;
    const auto factors = tape.read(dloss.tensor);
    const auto width = static_cast<std::size_t>(shape_.width());
    const auto slopes = autograd::Tape::floats(slopes_);
    for (std::size_t r = 0; r < factors.span().size(); ++r)
      kernels::scale(tape.threads(), factors.span()[r], slopes.subspan(r * width, width));
    const Tensor dlogits(slopes_.bytes(), DType::float32, shape_);
    tape.give_grad(logits_, {dlogits, std::move(slopes_)});
  }

 private:
  autograd::VarId loss_, logits_;
  Memory slopes_;
  Shape shape_;
};

/// Label smoothing: the label counts 1 - s, and s / V goes to every column.
class Smoothing {
 public:
  Smoothing(const kernels::CrossEntropyPart& part, double label_smoothing)
      : part_(part),
        share_(label_smoothing * static_cast<double>(part.vocabulary) / static_cast<double>(part.vocabulary - 1)) {
    if (!(label_smoothing >= 0 && label_smoothing < 1))
      throw ConfigError(text(loss_name, ": label_smoothing is ", label_smoothing, "; give 0 or more, and less than 1"));
  }
  bool on() const { return share_ > 0; }

  /// totals[r] = sum of logit - most[r] over this rank's columns.
  void add_up(std::span<const float> logits, std::span<const float> most, std::span<double> totals) const {
    if (!on()) return;
    const auto columns = static_cast<std::size_t>(part_.columns);
    for (std::size_t r = 0; r < totals.size(); ++r) {
      totals[r] = 0;
      for (const auto logit : logits.subspan(r * columns, columns))
        totals[r] += static_cast<double>(logit) - static_cast<double>(most[r]);
    }
  }
  /// Given the sums over all ranks: corrects the losses and, unless `slopes` is empty, softmax - onehot.
  void apply(std::span<const std::int32_t> labels, std::span<const double> sums, std::span<const double> totals,
             std::span<float> loss, std::span<float> slopes) const {
    if (!on()) return;
    const auto columns = static_cast<std::size_t>(part_.columns);
    const double all = static_cast<double>(part_.vocabulary);
    for (std::size_t r = 0; r < labels.size(); ++r) {
      if (labels[r] < 0) continue;
      const double log_sum = std::log(sums[2 * r]), plain = log_sum - sums[2 * r + 1];
      loss[r] = static_cast<float>((1 - share_) * plain + share_ * (log_sum - totals[r] / all));
      if (slopes.empty()) continue;
      const auto row = slopes.subspan(r * columns, columns);
      for (auto& slope : row) slope -= static_cast<float>(share_ / all);
      const auto at = labels[r] - part_.first_column;
      if (at >= 0 && at < part_.columns) row[static_cast<std::size_t>(at)] += static_cast<float>(share_);
    }
  }

 private:
  kernels::CrossEntropyPart part_;
  double share_;
};

}  // namespace

VocabParallelEmbedding::VocabParallelEmbedding(const std::string& name, std::int64_t rows, std::int64_t width,
                                               const nn::Init& init, const nn::TensorRank& tensor)
    : nn::Module(name),
      rows_(rows),
      tensor_(tensor),
      weight_(declare("weight", ParameterRole::word_embedding, {rows, width}, init,
                      tensor.part(0, rows, "rows of an embedding"))) {}

autograd::Var VocabParallelEmbedding::forward(autograd::Tape& tape, std::span<const std::int32_t> tokens,
                                              const nn::Pass& pass) const {
  return vocab_parallel_embedding(tape, tokens, weight_.leaf, rows_, tensor_, pass, tape.type());
}

autograd::Var vocab_parallel_cross_entropy(const autograd::Var& logits, std::span<const std::int32_t> labels,
                                           const comm::Communicator& group, double label_smoothing) {
  auto& tape = logits.tape();
  const auto shape = logits.shape();
  const auto rows = static_cast<std::size_t>(shape.rows());
  const auto columns = shape.width();
  if (labels.size() != rows)
    throw ShapeError(
        text(loss_name, ": logits are ", shape, ", with ", labels.size(), " labels; expected one for each row"));
  const kernels::CrossEntropyPart part{columns, columns * group.rank(), columns * group.size()};
  const Smoothing smoothing(part, label_smoothing);
  auto loss = tape.make(Shape(shape.dims().first(shape.rank() - 1)), logits.wants_grad());

  // The kernels overwrite the logits with softmax - onehot; the input must stay, so they work on a copy.
  auto slopes = tape.scratch(static_cast<std::size_t>(shape.elements()));
  const auto values = autograd::Tape::floats(slopes).first(static_cast<std::size_t>(shape.elements()));
  kernels::copy(tape.threads(), tape.read(logits), values);
  const auto most_memory = tape.scratch(rows), sums_memory = tape.scratch(6 * rows);
  const auto most = autograd::Tape::floats(most_memory).first(rows);
  const std::span<double> all_sums(reinterpret_cast<double*>(sums_memory.bytes().data()), 3 * rows);
  const auto sums = all_sums.first(2 * rows), totals = all_sums.last(rows);
  kernels::cross_entropy_largest(tape.threads(), part, values, most);
  group.all_reduce_max(most, loss_name);
  smoothing.add_up(values, most, totals);
  kernels::cross_entropy_sums(tape.threads(), part, values, labels, most, sums);
  // One all-reduce for both sums of cross_entropy_sums and, with smoothing, the sum of all logits.
  group.all_reduce(smoothing.on() ? all_sums : sums, loss_name);
  kernels::cross_entropy_finish(tape.threads(), part, values, labels, sums, {}, loss.floats(), loss.wants_grad());
  smoothing.apply(labels, sums, totals, loss.floats(), loss.wants_grad() ? values : std::span<float>());
  if (loss.wants_grad()) tape.record<CrossEntropyNode>(loss, logits, std::move(slopes), shape);
  return loss;
}

}  // namespace tessera::parallel
