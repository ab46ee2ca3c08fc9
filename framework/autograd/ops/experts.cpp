#include "framework/autograd/ops/experts.h"

#include <algorithm>
#include <array>
#include <optional>

#include "framework/autograd/ops/experts_rows.h"
#include "framework/kernels/activation.h"
#include "framework/kernels/vector.h"

namespace tessera::autograd {
namespace {

/// Extents of the layers of an expert, the same for all experts.
struct Sizes {
  std::int64_t hidden, inner, wide;  ///< wide: rows of fc1
};

/// The range of rows of one expert in a matrix of all rows.
struct ExpertRange {
  std::int64_t first, count;
  template <class Operand>
  Operand of(const Operand& all, std::int64_t width) const {
    return all.part(static_cast<std::size_t>(first * width), static_cast<std::size_t>(count * width));
  }
  Tensor of(const Tensor& all) const { return all.slice(first, count); }
  std::span<const std::int64_t> of(std::span<const std::int64_t> all) const {
    return all.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
  }
};

/// Calls body(e, range) for every expert with rows.
template <class Body>
void for_experts(const Rows& rows, const Body& body) {
  for (std::size_t e = 0; e + 1 < rows.first_row.size(); ++e) {
    const ExpertRange range{rows.first_row[e], rows.first_row[e + 1] - rows.first_row[e]};
    if (range.count > 0) body(e, range);
  }
}

/// Collects the products of up to 32 experts and computes them together. The limit bounds the memory of weights that
/// are rounded to 16 bits.
class ExpertGroup {
 public:
  ExpertGroup(Tape& tape, kernels::LinearProduct product) : tape_(tape), product_(product) {}
  void add(const kernels::LinearOperands& layer) {
    layers_[size_++] = layer;
    if (size_ == layers_.size()) compute();
  }
  /// Adds a product whose right factor is `weight`, rounded to `type`.
  void add(kernels::LinearOperands layer, const Leaf& weight, DType type) {
    layer.right = weights_[size_].emplace(tape_, weight, type);
    add(layer);
  }
  void compute() {
    kernels::linear_group(tape_.threads(), product_, std::span(layers_).first(size_));
    for (auto& weight : weights_) weight.reset();
    size_ = 0;
  }

 private:
  Tape& tape_;
  kernels::LinearProduct product_;
  std::array<kernels::LinearOperands, 32> layers_;
  std::array<std::optional<RoundedWeight>, 32> weights_;
  std::size_t size_ = 0;
};

/// Multiplies the rows of each expert by its weight: y = x w^T (forward) or dx = dy w (backward_input). weight(e) is
/// the leaf of expert e, of shape [out, in].
template <class Weight>
void times_weights(Tape& tape, const Rows& rows, kernels::LinearProduct product, std::int64_t in, std::int64_t out,
                   const kernels::Elements& left, const Weight& weight, DType type,
                   const kernels::MutableElements& result) {
  const bool forward = product == kernels::LinearProduct::forward;
  ExpertGroup group(tape, product);
  for_experts(rows, [&](std::size_t e, const ExpertRange& range) {
    group.add({{range.count, in, out}, range.of(left, forward ? in : out), {}, range.of(result, forward ? out : in)},
              weight(e), type);
  });
  group.compute();
}

/// Gradients of the weights: added to the gradients of the leaves, or written to them if they are stale.
template <class Weight>
void backward_weight(Tape& tape, const Rows& rows, std::int64_t in, std::int64_t out, const kernels::Elements& dy,
                     const kernels::Elements& x, const Weight& weight) {
  ExpertGroup group(tape, kernels::LinearProduct::backward_weight);
  for_experts(rows, [&](std::size_t e, const ExpertRange& range) {
    if (!weight(e).trained()) return;
    const auto dw = weight(e).grad_target();
    group.add({{range.count, in, out}, range.of(dy, out), range.of(x, in), dw.floats, dw.add});
  });
  group.compute();
}

/// Whether this rank trains some of the weights of a layer.
bool trains_weights(const ExpertLayer& layer) {
  return std::any_of(layer.weights.begin(), layer.weights.end(), [](const Leaf* leaf) { return leaf->trained(); });
}

/// Calls body(factors) for every adapter of a layer.
template <class Body>
void for_factors(const ExpertLayer& layer, const Body& body) {
  for (const auto& expert : layer.adapters)
    for (const auto& factors : expert.factors) body(factors);
}

bool trains_adapters(const ExpertLayer& layer) {
  bool trained = false;
  for_factors(layer, [&](const LowRankFactors& one) { trained = trained || one.a->trained() || one.b->trained(); });
  return trained;
}

/// Whether the backward pass of this rank reads the input of a layer for gradients.
bool trains(const ExpertLayer& layer) { return trains_weights(layer) || trains_adapters(layer); }

/// Whether some of the ranks that share the experts train weights of this kind: equal on all of them.
bool is_trained_somewhere(const ExpertLayer& layer) {
  const auto is = [](const Leaf* leaf) { return leaf->trained() || leaf->trained_elsewhere; };
  return std::any_of(layer.weights.begin(), layer.weights.end(), is) ||
         std::any_of(layer.biases.begin(), layer.biases.end(), is);
}

/// Whether the backward pass reads the input of the experts.
bool keeps_input(const ExpertLayers& layers, const ExpertNetwork& network) {
  return trains(layers.fc1) || network.weights_on_input;
}

/// Calls body(adapters, range) for every expert with rows and adapters: a layer with `in` inputs and `out` outputs.
template <class Body>
void for_adapters(const Rows& rows, const ExpertLayer& layer, std::int64_t in, std::int64_t out, const Body& body) {
  if (layer.adapters.empty()) return;
  for_experts(rows, [&](std::size_t e, const ExpertRange& range) {
    const auto& [factors, masks] = layer.adapters[e];
    if (factors.empty()) return;
    std::array<kernels::DropoutMask, most_adapters> of_rows;
    for (std::size_t i = 0; i < masks.size(); ++i) {
      of_rows[i] = masks[i];
      of_rows[i].sample_ids = range.of(rows.sample_of_row);
      of_rows[i].tokens = range.of(rows.token_of_row);
    }
    body(LowRankLayer{{range.count, in, out}, factors, std::span(of_rows).first(masks.size())}, range);
  });
}

/// y += the results of the adapters of a layer for its input x.
void add_adapters(Tape& tape, const Rows& rows, const ExpertLayer& layer, const Tensor& x, const Tensor& y) {
  for_adapters(rows, layer, x.shape().width(), y.shape().width(),
               [&](const LowRankLayer& adapters, const ExpertRange& range) {
                 low_rank_forward(tape, adapters, range.of(x), range.of(y));
               });
}

/// The gradients of the adapters of a layer, and dx += that of its input x. x may have no rows if no adapter is
/// trained, dx if no gradient is wanted.
void backward_adapters(Tape& tape, const Rows& rows, const ExpertLayer& layer, const Tensor& dy, const Tensor& x,
                       const Tensor& dx) {
  const auto rows_of = [](const Tensor& all, const ExpertRange& range) {
    return all.shape().rows() > 0 ? range.of(all) : Tensor();
  };
  for_adapters(rows, layer, x.shape().width(), dy.shape().width(),
               [&](const LowRankLayer& adapters, const ExpertRange& range) {
                 low_rank_backward(tape, adapters, range.of(dy), rows_of(x, range), rows_of(dx, range));
               });
}

/// y += factor * the biases of a layer, multiplied by the weights of the rows unless `weight` is empty.
void add_biases(Tape& tape, const Rows& rows, const ExpertLayer& layer, double factor, std::span<const float> weight,
                const kernels::MutableElements& y, std::int64_t width) {
  if (layer.biases.empty()) return;
  for_experts(rows, [&](std::size_t e, const ExpertRange& range) {
    const auto own = weight.empty()
                         ? weight
                         : weight.subspan(static_cast<std::size_t>(range.first), static_cast<std::size_t>(range.count));
    kernels::add_bias_rows(tape.threads(), tape.read(layer.biases[e]->value), factor, own, range.of(y, width));
  });
}

/// Adds to the gradients of the biases, and to `dweight`, unless it is empty, those of the weights of the rows.
void backward_biases(Tape& tape, const Rows& rows, const ExpertLayer& layer, double factor,
                     std::span<const float> weight, const kernels::Elements& dy, std::int64_t width,
                     std::span<float> dweight) {
  if (layer.biases.empty()) return;
  for_experts(rows, [&](std::size_t e, const ExpertRange& range) {
    const auto first = static_cast<std::size_t>(range.first), count = static_cast<std::size_t>(range.count);
    auto& leaf = *layer.biases[e];
    kernels::add_bias_rows_backward(tape.threads(), tape.read(leaf.value), factor,
                                    weight.empty() ? weight : weight.subspan(first, count), range.of(dy, width),
                                    leaf.trained() ? leaf.grad_to_add_to(tape.threads()) : std::span<float>(),
                                    dweight.empty() ? dweight : dweight.subspan(first, count));
  });
}

class ExpertsNode final : public Node {
 public:
  /// `x_kept`, `in`: empty where the backward pass does not read them, see keeps_input().
  ExpertsNode(VarId y, const Var& x, Var x_kept, const Var& weights, Var before, Var in, const Rows& rows, Sizes sizes,
              const ExpertNetwork& network, const ExpertLayers& layers, std::span<const LeafUse> uses, DType type)
      : y_(y),
        x_place_(x),
        x_(std::move(x_kept)),
        type_of_x_(x.value().dtype()),
        weights_(weights),
        before_(std::move(before)),
        in_(std::move(in)),
        rows_(rows),
        sizes_(sizes),
        network_(network),
        layers_(layers),
        uses_(uses),
        type_(type) {}

  void backward(Tape& tape) override {
    const auto dy = tape.take_grad(y_);
    if (dy.empty()) return;
    const Matrix dweights(tape, DType::float32, rows_.count(), 1);
    const auto dweight = dweights.floats();
    {
      const Matrix dbefore(tape, type_, rows_.count(), sizes_.wide);
      through_fc2(tape, dy.tensor, dbefore, dweight);
      through_fc1(tape, dbefore, dweight);
    }
    give_weights(tape, dweights);
    for (const auto& use : uses_) tape.done(use);
  }

 private:
  /// Computes the gradients of fc2, of the input of the activation (dbefore), and, unless the weights of choices
  /// multiply the expert's input, of these weights (dweight).
  void through_fc2(Tape& tape, const Tensor& dy, const Matrix& dbefore, std::span<float> dweight) {
    auto& threads = tape.threads();
    const Matrix dout(tape, dy.dtype(), rows_.count(), sizes_.hidden), dvalue(tape, type_, rows_.count(), sizes_.inner);
    rows_.gather(tape, sizes_.hidden, dy, dout);
    std::span<const float> factor = rows_.weight;
    Memory ones;
    if (network_.weights_on_input) {
      ones = tape.scratch(rows_.weight.size());
      kernels::fill(threads, 1, Tape::floats(ones).first(rows_.weight.size()));
      factor = Tape::floats(ones).first(rows_.weight.size());
    }
    {
      const auto weight = [&](std::size_t e) -> Leaf& { return *layers_.fc2.weights[e]; };
      const bool trained = trains(layers_.fc2);
      const Matrix value(tape, type_, trained ? rows_.count() : 0, sizes_.inner);
      if (trained) {
        kernels::weighted_activation_forward(threads, network_.act, network_.gated, sizes_.inner, before_.value(),
                                             factor, value, network_.form);
        backward_weight(tape, rows_, sizes_.inner, sizes_.hidden, dout, value, weight);
      }
      times_weights(tape, rows_, kernels::LinearProduct::backward_input, sizes_.inner, sizes_.hidden, dout, weight,
                    type_, dvalue);
      backward_adapters(tape, rows_, layers_.fc2, dout.tensor(), value.tensor(), dvalue.tensor());
    }
    kernels::weighted_activation_backward(threads, network_.act, network_.gated, sizes_.inner, dvalue, before_.value(),
                                          factor, dbefore, dweight, network_.form);
    const bool weighted = !network_.weights_on_input;
    backward_biases(tape, rows_, layers_.fc2, layers_.bias_part, weighted ? rows_.weight : std::span<const float>(),
                    dout, sizes_.hidden, weighted ? dweight : std::span<float>());
    backward_biases(tape, rows_, layers_.fc1, 1, {}, dbefore, sizes_.wide, {});
  }

  /// Computes the gradients of fc1, of x, and, if the weights of choices multiply the expert's input, of these weights
  /// (dweight).
  void through_fc1(Tape& tape, const Matrix& dbefore, std::span<float> dweight) {
    auto& threads = tape.threads();
    const bool reads_input = keeps_input(layers_, network_);
    const Matrix in(tape, type_of_x_, reads_input ? rows_.count() : 0, sizes_.hidden);
    if (reads_input) input(tape, in);
    const auto dx = tape.grad_target(x_place_);
    const auto weight = [&](std::size_t e) -> Leaf& { return *layers_.fc1.weights[e]; };
    {
      const bool wanted = !dx.tensor.empty() || network_.weights_on_input;
      const Matrix din(tape, DType::float32, wanted ? rows_.count() : 0, sizes_.hidden);
      if (wanted)
        times_weights(tape, rows_, kernels::LinearProduct::backward_input, sizes_.hidden, sizes_.wide, dbefore, weight,
                      type_, din);
      backward_fc1_adapters(tape, dbefore, in, din);
      if (network_.weights_on_input) {
        kernels::dot_rows(threads, sizes_.hidden, din, in, dweight);
        kernels::scale_rows(threads, sizes_.hidden, rows_.weight, din);
      }
      if (!dx.tensor.empty()) rows_.sum(tape, sizes_.hidden, din, dx.tensor, dx.add);
    }
    if (!trains_weights(layers_.fc1)) return;
    if (network_.weights_on_input) kernels::scale_rows(threads, sizes_.hidden, rows_.weight, in);
    backward_weight(tape, rows_, sizes_.hidden, sizes_.wide, dbefore, in, weight);
  }

  void backward_fc1_adapters(Tape& tape, const Matrix& dbefore, const Matrix& in, const Matrix& din) const {
    const bool scales = network_.weights_on_input && trains_adapters(layers_.fc1);
    const Matrix scaled(tape, type_of_x_, scales ? rows_.count() : 0, sizes_.hidden);
    if (scales) {
      kernels::copy_bytes(tape.threads(), in.tensor().raw(), scaled.tensor().raw());
      kernels::scale_rows(tape.threads(), sizes_.hidden, rows_.weight, scaled);
    }
    backward_adapters(tape, rows_, layers_.fc1, dbefore.tensor(), (scales ? scaled : in).tensor(), din.tensor());
  }

  /// The inputs of the experts, before multiplication by the weights of choices.
  void input(Tape& tape, const Matrix& in) const {
    if (rows_.exchange)
      kernels::copy_bytes(tape.threads(), in_.value().raw(), in.tensor().raw());
    else
      rows_.gather(tape, sizes_.hidden, x_.value(), in);
  }

  /// Gives the gradient of the weight of each choice, which is that of its row; 0 for a dropped choice.
  void give_weights(Tape& tape, const Matrix& dweight) const {
    const auto target = tape.grad_target(weights_);
    if (target.tensor.empty()) return;
    must(!target.add, "the weights of choices have one use");
    rows_.sum_choices(tape, dweight, target.tensor.floats());
  }

  VarId y_, x_place_;
  Var x_;
  DType type_of_x_;
  VarId weights_;
  Var before_, in_;  ///< in_: rows received in the exchange; else empty
  Rows rows_;
  Sizes sizes_;
  ExpertNetwork network_;
  ExpertLayers layers_;
  std::span<const LeafUse> uses_;  ///< of all weights and factors
  DType type_;
};

/// Throws ShapeError unless all experts of this rank have layers of the same extents, which fit x.
Sizes sizes_of(const Var& x, const ExpertChoices& choices, const ExpertLayers& layers, bool gated,
               const ExpertRanks* ranks) {
  const auto &fc1 = layers.fc1.weights, &fc2 = layers.fc2.weights;
  const auto experts = static_cast<std::size_t>(ranks ? ranks->experts_here(choices.experts) : choices.experts);
  if (fc1.size() != experts || fc2.size() != experts || experts == 0)
    throw ShapeError(text("experts: ", fc1.size(), " and ", fc2.size(), " weights for ", experts, " experts"));
  const auto hidden = x.shape().width(), inner = fc2[0]->value.shape()[1], wide = gated ? 2 * inner : inner;
  for (std::size_t e = 0; e < experts; ++e)
    if (fc1[e]->value.shape() != Shape{wide, hidden} || fc2[e]->value.shape() != Shape{hidden, inner})
      throw ShapeError(text("experts: the weights of expert ", e, " are ", fc1[e]->value.shape(), " and ",
                            fc2[e]->value.shape(), " for an input of ", hidden, " channels"));
  if (choices.chosen.size() != static_cast<std::size_t>(x.shape().rows() * choices.topk))
    throw ShapeError(text("experts: ", choices.chosen.size(), " choices for ", x.shape().rows(), " tokens"));
  return {hidden, inner, wide};
}

std::span<const LeafUse> uses(Tape& tape, const ExpertLayers& layers) {
  std::size_t factors = 0;
  for (const auto* layer : {&layers.fc1, &layers.fc2}) for_factors(*layer, [&](const auto&) { factors += 2; });
  const auto all = tape.keep_array<LeafUse>(layers.fc1.weights.size() + layers.fc2.weights.size() + factors +
                                            layers.fc1.biases.size() + layers.fc2.biases.size());
  auto next = all.begin();
  for (const auto* layer : {&layers.fc1, &layers.fc2}) {
    for (auto* leaf : layer->weights) *next++ = tape.use(leaf);
    for (auto* leaf : layer->biases) *next++ = tape.use(leaf);
    for_factors(*layer, [&](const LowRankFactors& one) {
      *next++ = tape.use(one.a);
      *next++ = tape.use(one.b);
    });
  }
  return all;
}

}  // namespace

Var experts(const Var& x, const ExpertChoices& choices, const ExpertLayers& layers, const ExpertNetwork& network,
            const ExpertRanks* ranks, const ExpertTap& tap) {
  auto& tape = x.tape();
  auto& threads = tape.threads();
  const auto sizes = sizes_of(x, choices, layers, network.gated, ranks);
  auto rows = with_exchange(tape, rows_of(tape, choices), ranks);
  if (!layers.samples.empty()) {
    rows.sample_of_row = numbers_of_rows(tape, rows, layers.samples);
    rows.token_of_row = numbers_of_rows(tape, rows, layers.tokens);
  }
  const auto type = tape.type(), type_of_x = x.value().dtype();
  auto y = tape.result(x.shape(), x.wants_grad() || choices.weights.wants_grad() || is_trained_somewhere(layers.fc1) ||
                                      is_trained_somewhere(layers.fc2) || layers.adapters_shared ||
                                      trains_adapters(layers.fc1) || trains_adapters(layers.fc2));
  const bool keeps = y.wants_grad() && keeps_input(layers, network);
  auto before = tape.make(type, {rows.count(), sizes.wide}, false);
  Var received;
  {
    const Matrix in(tape, type_of_x, rows.count(), sizes.hidden);
    rows.gather(tape, sizes.hidden, x.value(), in);
    if (rows.exchange && keeps) {
      received = tape.make(type_of_x, {rows.count(), sizes.hidden}, false);
      kernels::copy_bytes(threads, in.tensor().raw(), received.value().raw());
    }
    if (network.weights_on_input) kernels::scale_rows(threads, sizes.hidden, rows.weight, in);
    times_weights(
        tape, rows, kernels::LinearProduct::forward, sizes.hidden, sizes.wide, in,
        [&](std::size_t e) -> Leaf& { return *layers.fc1.weights[e]; }, type, before.value());
    add_adapters(tape, rows, layers.fc1, in.tensor(), before.value());
    add_biases(tape, rows, layers.fc1, 1, {}, before.value(), sizes.wide);
  }
  const Matrix value(tape, type, rows.count(), sizes.inner), out(tape, DType::float32, rows.count(), sizes.hidden);
  if (network.weights_on_input) {
    if (network.gated)
      kernels::gated_forward(threads, network.act, rows.count(), sizes.inner, before.value(), value, network.form);
    else
      kernels::activation_forward(threads, network.act, before.value(), value);
  } else {
    kernels::weighted_activation_forward(threads, network.act, network.gated, sizes.inner, before.value(), rows.weight,
                                         value, network.form);
  }
  times_weights(
      tape, rows, kernels::LinearProduct::forward, sizes.inner, sizes.hidden, value,
      [&](std::size_t e) -> Leaf& { return *layers.fc2.weights[e]; }, type, out);
  add_adapters(tape, rows, layers.fc2, value.tensor(), out.tensor());
  add_biases(tape, rows, layers.fc2, layers.bias_part,
             network.weights_on_input ? std::span<const float>() : rows.weight, out, sizes.hidden);
  if (tap)
    for_experts(rows,
                [&](std::size_t e, const ExpertRange& range) { tap(e, out.tensor().slice(range.first, range.count)); });
  rows.sum(tape, sizes.hidden, out, y.value(), false);
  if (y.wants_grad())
    tape.record<ExpertsNode>(y, x, keeps ? x : Var(), choices.weights, std::move(before), std::move(received), rows,
                             sizes, network, layers, uses(tape, layers), type);
  return y;
}

}  // namespace tessera::autograd
