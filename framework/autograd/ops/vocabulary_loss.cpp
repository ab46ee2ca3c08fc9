#include "framework/autograd/ops/vocabulary_loss.h"

#include <algorithm>
#include <array>
#include <optional>

#include "framework/base/range.h"
#include "framework/kernels/cross_entropy.h"
#include "framework/kernels/expert_rows.h"
#include "framework/kernels/linear.h"
#include "framework/kernels/magnitude.h"
#include "framework/kernels/softcap.h"
#include "framework/kernels/type_conversion.h"
#include "framework/kernels/vector.h"

namespace tessera::autograd {
namespace {

/// Number of rows of logits that are stored at a time: about 64 MiB of floats.
std::int64_t chunk_rows(std::int64_t vocabulary) {
  constexpr std::int64_t most_floats = std::int64_t{16} << 20, least = 128, most = 4096;
  return std::clamp(most_floats / vocabulary / least * least, least, most);
}

/// A value and its gradient.
struct Sloped {
  VarId value;
  Gradient gradient;  ///< empty: not wanted
  void give(Tape& tape) {
    if (!gradient.empty()) tape.give_grad(value, std::move(gradient));
  }
};

/// The leaves that a loss reads.
struct LossLeaves {
  LossLeaves(Tape& tape, Leaf& w, Leaf* bias, const LogitAdapter& adapter)
      : w(tape.use(&w)), bias(tape.use(bias)), b(tape.use(adapter.b)), m(tape.use(adapter.m)) {}
  LeafUse w, bias, b, m;
  /// Their gradients are complete.
  void done(Tape& tape) const {
    for (const auto* one : {&w, &b, &m, &bias})
      if (*one) tape.done(*one);
  }
};

/// The gradients of h and of the adapter's values were computed in the forward pass; backward gives them, and reports
/// those of the leaves as complete. With `losses` they are those for a seed of 1 of each loss, in fp32: backward
/// multiplies each row by the seed of its loss.
class VocabularyLossNode final : public Node {
 public:
  VocabularyLossNode(std::array<Sloped, 3> values, LossLeaves leaves, std::optional<VarId> losses = {})
      : values_(std::move(values)), leaves_(leaves), losses_(losses) {}
  void backward(Tape& tape) override {
    if (losses_) {
      const auto seeds = tape.take_grad(*losses_);
      for (auto& one : values_) seed(tape, seeds, one.gradient);
    }
    for (auto& one : values_) one.give(tape);
    leaves_.done(tape);
  }

 private:
  static void seed(Tape& tape, const Gradient& seeds, Gradient& gradient) {
    if (seeds.empty()) gradient = {};
    if (gradient.empty()) return;
    kernels::scale_rows(tape.threads(), gradient.tensor.shape().width(), seeds.tensor.floats(), gradient.tensor);
  }

  std::array<Sloped, 3> values_;  ///< of h, u and rest
  LossLeaves leaves_;
  std::optional<VarId> losses_;
};

/// A range of token rows.
using Rows = Range<std::int64_t>;

template <class T>
std::span<T> at_rows(std::span<T> whole, const Rows& rows) {
  return whole.subspan(static_cast<std::size_t>(rows.begin), static_cast<std::size_t>(rows.size()));
}
/// The rows of a matrix with `width` elements per row.
kernels::MutableElements at_rows(const Tensor& whole, const Rows& rows, std::int64_t width) {
  return kernels::MutableElements(whole).part(static_cast<std::size_t>(rows.begin * width),
                                              static_cast<std::size_t>(rows.size() * width));
}

/// Loss and gradient of one chunk of logits, by one rank or by all ranks that share the vocabulary.
void judge(Tape& tape, std::int64_t columns, const LossTerms& terms, std::span<float> logits,
           std::span<const std::int32_t> labels, std::span<const float> weight, std::span<float> loss, bool gradient) {
  auto& threads = tape.threads();
  if (!terms.sharers) {
    kernels::cross_entropy(threads, columns, logits, labels, weight, loss, gradient);
    return;
  }
  const kernels::CrossEntropyPart part{columns, terms.sharers->first_row(), terms.sharers->vocabulary()};
  const auto most_memory = tape.scratch(labels.size()), sums_memory = tape.scratch(4 * labels.size());
  const auto most = Tape::floats(most_memory).first(labels.size());
  const std::span<double> sums(reinterpret_cast<double*>(sums_memory.bytes().data()), 2 * labels.size());
  kernels::cross_entropy_largest(threads, part, logits, most);
  terms.sharers->take_largest(most);
  kernels::cross_entropy_sums(threads, part, logits, labels, most, sums);
  terms.sharers->add_up(sums);
  kernels::cross_entropy_finish(threads, part, logits, labels, sums, weight, loss, gradient);
}

/// Masked sum of the token losses, in double. A loss with mask 0 is skipped, because it may be NaN (0 * NaN is NaN).
LossSum sum_up(std::span<const float> token_loss, const LossTerms& terms) {
  LossSum total;
  for (std::size_t i = 0; i < token_loss.size(); ++i) {
    if (terms.mask[i] != 0) total.sum += static_cast<double>(token_loss[i]) * terms.mask[i];
    total.count += terms.mask[i];
  }
  return total;
}

/// One pass over the logits: the loss of each token and, if `gradient`, the contributions to dw and dh.
struct LossPass {
  const Tensor& h;
  Leaf& w;
  const LossTerms& terms;
  std::span<const float> weights = {};  ///< of the tokens in the gradient, without the seed; empty: 1 each
  bool gradient = false;
  std::span<float> loss;  ///< written
  Tensor dh = {};         ///< written; empty: not wanted
  const LogitAdapter& adapter;
  Tensor u = {}, rest = {};    ///< of the adapter; empty: none
  Tensor du = {}, drest = {};  ///< as dh

  std::int64_t rank() const { return adapter.b ? adapter.b->value.shape()[1] : 0; }
};

/// The factors of the logits of an adapter with magnitudes, and what its gradients need of one chunk of them.
class Magnified {
 public:
  Magnified(Tape& tape, const LossPass& pass, std::int64_t chunk)
      : tape_(tape), pass_(pass), m_(pass.adapter.m), rows_{{{0, 0, pass.w.value.shape()[0]}}} {
    if (!m_) return;
    const auto vocabulary = pass.w.value.shape()[0];
    factors_ = tape.scratch(extent(vocabulary));
    sums_ = tape.scratch(extent(vocabulary));
    before_ = tape.scratch(extent(chunk * vocabulary));
    if (!pass.rest.empty()) rest_ = tape.scratch(extent(chunk * vocabulary));
    kernels::magnitude_factors(tape.threads(), rows_, m_->value.floats(), pass.adapter.norms, factors());
  }
  explicit operator bool() const { return m_ != nullptr; }

  /// logits [rows, V], which are h w^T + u b^T, become those with magnitudes.
  void apply(const Rows& at, const RoundedWeight& weights, std::span<const float> bias, std::span<float> logits) {
    auto& threads = tape_.threads();
    const auto before = Tape::floats(before_).first(logits.size());
    if (pass_.rest.empty()) {
      kernels::copy(threads, logits, before);
      return kernels::scale_columns(threads, before, factors(), bias, logits);
    }
    const auto width = pass_.h.shape().width();
    const auto rest = Tape::floats(rest_).first(logits.size());
    kernels::linear_forward(threads, {at.size(), width, pass_.w.value.shape()[0]}, at_rows(pass_.rest, at, width),
                            weights, {}, rest);
    kernels::subtract(threads, logits, rest, before);
    kernels::scale_columns(threads, before, factors(), bias, logits);
    kernels::add(threads, rest, logits);
  }
  /// The gradients of m and of `rest w^T` for those of the logits, `slopes`. Returns those of h w^T + u b^T, in memory
  /// that the next chunk overwrites.
  kernels::Elements backward(const Rows& at, const RoundedWeight& weights, const kernels::Elements& slopes) {
    auto& threads = tape_.threads();
    const auto before = Tape::floats(before_).first(slopes.size());
    if (m_->trained()) {
      const auto sums = Tape::floats(sums_).first(factors().size());
      kernels::dot_columns(threads, slopes, before, sums);
      kernels::magnitude_backward(threads, rows_, sums, pass_.adapter.norms, m_->grad_to_add_to(threads));
    }
    const kernels::MutableElements scaled(before_.bytes().data(), slopes.size(), slopes.type);
    kernels::scale_columns(threads, slopes, factors(), {}, scaled);
    if (!pass_.rest.empty()) give_rest(at, weights, slopes, scaled);
    return scaled;
  }

 private:
  static std::size_t extent(std::int64_t size) { return static_cast<std::size_t>(size); }
  void give_rest(const Rows& at, const RoundedWeight& weights, const kernels::Elements& slopes,
                 const kernels::Elements& scaled) {
    const kernels::LinearExtents e{at.size(), pass_.h.shape().width(), pass_.w.value.shape()[0]};
    const kernels::MutableElements others(rest_.bytes().data(), slopes.size(), slopes.type);
    kernels::subtract(tape_.threads(), slopes, scaled, others);
    if (!pass_.drest.empty())
      kernels::linear_backward_input(tape_.threads(), e, others, weights, at_rows(pass_.drest, at, e.in), false);
    if (!pass_.w.trained()) return;
    const auto dw = pass_.w.grad_target();
    kernels::linear_backward_weight(tape_.threads(), e, others, at_rows(pass_.rest, at, e.in), dw.floats, dw.add);
  }
  std::span<float> factors() const { return Tape::floats(factors_).first(extent(pass_.w.value.shape()[0])); }

  Tape& tape_;
  const LossPass& pass_;
  Leaf* m_;
  std::array<kernels::RowBlock, 1> rows_;
  Memory factors_, sums_, before_, rest_;
};

/// The adapter's part of the gradients of one chunk of logits.
void give_adapter(Tape& tape, const LossPass& pass, const Rows& at, const kernels::Elements& slopes) {
  const kernels::LinearExtents e{at.size(), pass.rank(), pass.w.value.shape()[0]};
  if (pass.adapter.b->trained()) {
    const auto db = pass.adapter.b->grad_target();
    kernels::linear_backward_weight(tape.threads(), e, slopes, at_rows(pass.u, at, e.in), db.floats, db.add);
  }
  if (!pass.du.empty())
    kernels::linear_backward_input(tape.threads(), e, slopes, kernels::Elements(pass.adapter.b->value),
                                   at_rows(pass.du, at, e.in), false);
}

// For each chunk of rows: logits, loss and gradient of the logits in place, then its contributions to dw and dh. The
// chunk's logits are then overwritten by the next chunk.
void pass_over_logits(Tape& tape, const LossPass& pass) {
  auto& threads = tape.threads();
  const auto& terms = pass.terms;
  auto& w = pass.w;
  const bool gradient = pass.gradient;
  const auto rows = pass.h.shape().rows(), width = pass.h.shape().width(), vocabulary = w.value.shape()[0];
  const auto type = pass.h.dtype();
  const auto chunk = std::min(rows, chunk_rows(vocabulary));
  const RoundedWeight weights(tape, w, type);
  const auto bias = terms.bias ? tape.read(*terms.bias, type) : Floats(tape);
  const auto logits_memory = tape.scratch(static_cast<std::size_t>(chunk * vocabulary));
  const auto weight_memory = tape.scratch(static_cast<std::size_t>(chunk));
  Magnified magnified(tape, pass, chunk);
  const Floats no_bias(tape);
  const bool capped = terms.softcap != 0;
  const auto capped_memory = capped && gradient ? tape.scratch(static_cast<std::size_t>(chunk * vocabulary)) : Memory();
  // The gradients of the logits are factors of two products, so they are rounded to the type of h, as in PyTorch.
  const bool rounds = gradient && type != DType::float32;
  const auto rounded_memory = rounds ? tape.scratch(type, static_cast<std::size_t>(chunk * vocabulary)) : Memory();
  for (std::int64_t first = 0; first < rows; first += chunk) {
    const Rows at{first, first + std::min(chunk, rows - first)};
    const kernels::LinearExtents e{at.size(), width, vocabulary};
    const auto logits = Tape::floats(logits_memory).first(static_cast<std::size_t>(at.size() * vocabulary));
    const auto weight = Tape::floats(weight_memory).first(gradient ? static_cast<std::size_t>(at.size()) : 0);
    for (std::size_t i = 0; i < weight.size(); ++i)
      weight[i] = static_cast<float>(terms.seed *
                                     (pass.weights.empty() ? 1 : pass.weights[static_cast<std::size_t>(at.begin) + i]));
    kernels::linear_forward(threads, e, at_rows(pass.h, at, width), weights, magnified ? no_bias : bias, logits);
    if (pass.adapter.b)
      kernels::linear_add(threads, {at.size(), pass.rank(), vocabulary}, at_rows(pass.u, at, pass.rank()),
                          pass.adapter.b->value, logits);
    if (magnified) magnified.apply(at, weights, bias, logits);
    if (capped) kernels::softcap_forward(threads, terms.softcap, logits, logits);
    // The derivative of the cap needs the capped logits, and the cross-entropy overwrites them.
    const auto kept = Tape::floats(capped_memory).first(capped && gradient ? logits.size() : 0);
    if (!kept.empty()) kernels::copy(threads, logits, kept);
    // The logits are computed in fp32 and rounded here, as Megatron-LM's fp16_lm_cross_entropy does.
    kernels::round_to(threads, terms.type, logits);
    judge(tape, vocabulary, terms, logits, at_rows(terms.labels, at), weight, at_rows(pass.loss, at), gradient);
    if (!kept.empty()) kernels::softcap_backward(threads, terms.softcap, logits, kept, logits);
    kernels::Elements slopes = logits;
    if (rounds) {
      const kernels::MutableElements rounded(rounded_memory.bytes().data(), logits.size(), type);
      kernels::narrow(threads, logits, rounded);
      slopes = rounded;
    }
    if (gradient && terms.bias && terms.bias->trained())
      kernels::linear_backward_bias(threads, e.rows, e.out, slopes, terms.bias->grad_to_add_to(threads));
    if (gradient && magnified) slopes = magnified.backward(at, weights, slopes);
    if (gradient && w.trained()) {
      const auto dw = w.grad_target();
      kernels::linear_backward_weight(threads, e, slopes, at_rows(pass.h, at, width), dw.floats, dw.add);
    }
    if (!pass.dh.empty())
      kernels::linear_backward_input(threads, e, slopes, weights, at_rows(pass.dh, at, width), false);
    if (gradient && pass.adapter.b) give_adapter(tape, pass, at, slopes);
  }
  kernels::round_to(threads, terms.type, pass.loss);
}

void check(const Tensor& h, const Leaf& w, const LossTerms& terms, std::size_t mask, const LogitAdapter& adapter) {
  const auto rows = h.shape().rows();
  if (adapter.b && (adapter.u.shape().rows() != rows ||
                    adapter.b->value.shape() != Shape{w.value.shape()[0], adapter.u.shape().width()}))
    throw ShapeError(text("vocabulary loss: h is ", h.shape(), " and the weight ", w.value.shape(),
                          ", but the adapter has u ", adapter.u.shape(), " and b ", adapter.b->value.shape(),
                          "; the extents do not fit together"));
  if (adapter.m && (!adapter.b || adapter.m->value.shape() != Shape{w.value.shape()[0]} ||
                    static_cast<std::int64_t>(adapter.norms.size()) != w.value.shape()[0] ||
                    (!adapter.rest.empty() && adapter.rest.shape() != h.shape())))
    throw ShapeError(text("vocabulary loss: h is ", h.shape(), " and the weight ", w.value.shape(),
                          ", but the magnitudes are ", adapter.m->value.shape(), " with ", adapter.norms.size(),
                          " norms; the extents do not fit together"));
  if (terms.bias && terms.bias->value.shape() != Shape{w.value.shape()[0]})
    throw ShapeError(text("vocabulary loss: the weight is ", w.value.shape(), ", but the bias ",
                          terms.bias->value.shape(), "; expected one element for each row"));
  if (w.value.shape().width() != h.shape().width() || static_cast<std::int64_t>(terms.labels.size()) != rows ||
      static_cast<std::int64_t>(mask) != rows)
    throw ShapeError(text("vocabulary loss: h is ", h.shape(), ", the weight ", w.value.shape(), ", with ",
                          terms.labels.size(), " labels and ", mask, " mask values; expected one for each row"));
}

/// Empty if there is none.
Tensor value_of(const Var& of_adapter) { return of_adapter.empty() ? Tensor() : of_adapter.value(); }
bool wants(const Var& of_adapter) { return !of_adapter.empty() && of_adapter.wants_grad(); }
/// Whether a gradient of the adapter is wanted, besides that of its leaves.
bool reaches(const LogitAdapter& adapter) { return wants(adapter.u) || wants(adapter.rest); }
bool trains(const LogitAdapter& adapter) {
  return (adapter.b && adapter.b->trained()) || (adapter.m && adapter.m->trained());
}

bool trains_bias(const LossTerms& terms) { return terms.bias && terms.bias->trained(); }

/// Memory of type `type` for the gradient of `h`; empty if none is wanted.
Gradient gradient_of(Tape& tape, const Tensor& h, DType type, bool wanted) {
  Gradient dh;
  if (!wanted) return dh;
  dh.memory = tape.scratch(type, static_cast<std::size_t>(h.shape().elements()));
  dh.tensor = Tensor(dh.memory.bytes(), type, h.shape());
  return dh;
}
Gradient gradient_of(Tape& tape, const Tensor& h, bool wanted) { return gradient_of(tape, h, h.dtype(), wanted); }

/// Keeps h and u, and computes the logits again when the gradients of the losses are known.
class TokenLossesNode final : public Node {
 public:
  TokenLossesNode(Var h, VarId losses, const LossTerms& terms, LogitAdapter adapter, LossLeaves leaves)
      : h_(std::move(h)), losses_(losses), terms_(terms), adapter_(std::move(adapter)), leaves_(leaves) {}
  void backward(Tape& tape) override {
    const auto seeds = tape.take_grad(losses_);
    if (!seeds.empty()) {
      const auto& h = h_.value();
      const auto u = value_of(adapter_.u), rest = value_of(adapter_.rest);
      auto dh = gradient_of(tape, h, h_.wants_grad()), du = gradient_of(tape, u, wants(adapter_.u)),
           drest = gradient_of(tape, rest, wants(adapter_.rest));
      const auto again = tape.scratch(terms_.labels.size());
      pass_over_logits(tape, {.h = h,
                              .w = *leaves_.w.leaf,
                              .terms = terms_,
                              .weights = seeds.tensor.floats(),
                              .gradient = true,
                              .loss = Tape::floats(again).first(terms_.labels.size()),
                              .dh = dh.tensor,
                              .adapter = adapter_,
                              .u = u,
                              .rest = rest,
                              .du = du.tensor,
                              .drest = drest.tensor});
      if (!dh.empty()) tape.give_grad(h_, std::move(dh));
      if (!du.empty()) tape.give_grad(adapter_.u, std::move(du));
      if (!drest.empty()) tape.give_grad(adapter_.rest, std::move(drest));
    }
    leaves_.done(tape);
  }

 private:
  Var h_;
  VarId losses_;
  LossTerms terms_;
  LogitAdapter adapter_;
  LossLeaves leaves_;
};

std::array<Sloped, 3> sloped(const Var& h, const LogitAdapter& adapter, Gradient dh, Gradient du, Gradient drest) {
  const auto id = [](const Var& value) { return value.empty() ? VarId() : VarId(value); };
  return {Sloped{h, std::move(dh)}, Sloped{id(adapter.u), std::move(du)}, Sloped{id(adapter.rest), std::move(drest)}};
}

}  // namespace

VocabularyLoss vocabulary_loss(const Var& h, Leaf& w, const LossTerms& terms, const LogitAdapter& adapter) {
  auto& tape = h.tape();
  check(h.value(), w, terms, terms.mask.size(), adapter);
  const bool gradient =
      tape.records() && (h.wants_grad() || w.trained() || trains_bias(terms) || trains(adapter) || reaches(adapter));
  const auto u = value_of(adapter.u), rest = value_of(adapter.rest);
  auto token_loss = tape.make({h.shape()[0], h.shape()[1]}, false);
  auto dh = gradient_of(tape, h.value(), gradient && h.wants_grad());
  auto du = gradient_of(tape, u, gradient && wants(adapter.u));
  auto drest = gradient_of(tape, rest, gradient && wants(adapter.rest));
  pass_over_logits(tape, {.h = h.value(),
                          .w = w,
                          .terms = terms,
                          .weights = terms.weights.empty() ? terms.mask : terms.weights,
                          .gradient = gradient,
                          .loss = token_loss.floats(),
                          .dh = dh.tensor,
                          .adapter = adapter,
                          .u = u,
                          .rest = rest,
                          .du = du.tensor,
                          .drest = drest.tensor});
  if (gradient)
    tape.record<VocabularyLossNode>(sloped(h, adapter, std::move(dh), std::move(du), std::move(drest)),
                                    LossLeaves(tape, w, terms.bias, adapter));
  return {sum_up(token_loss.floats(), terms), std::move(token_loss)};
}

Var token_losses(const Var& h, Leaf& w, const LossTerms& terms, const LogitAdapter& adapter) {
  auto& tape = h.tape();
  const auto rows = terms.labels.size();
  check(h.value(), w, terms, rows, adapter);
  const bool learns = w.trained() || trains_bias(terms) || trains(adapter);
  const bool gradient = tape.records() && (h.wants_grad() || learns || reaches(adapter));
  // A gradient of a frozen output layer is proportional to the seed of its row. In fp16, gradients for a seed of 1
  // would lack the loss scale.
  const bool at_once = gradient && !learns && h.value().dtype() != DType::float16;
  const auto u = value_of(adapter.u), rest = value_of(adapter.rest);
  auto losses = tape.make({h.shape()[0], h.shape()[1]}, gradient);
  auto own = terms;
  own.seed = 1;
  auto dh = gradient_of(tape, h.value(), DType::float32, at_once && h.wants_grad());
  auto du = gradient_of(tape, u, DType::float32, at_once && wants(adapter.u));
  auto drest = gradient_of(tape, rest, DType::float32, at_once && wants(adapter.rest));
  pass_over_logits(tape, {.h = h.value(),
                          .w = w,
                          .terms = own,
                          .gradient = at_once,
                          .loss = losses.floats(),
                          .dh = dh.tensor,
                          .adapter = adapter,
                          .u = u,
                          .rest = rest,
                          .du = du.tensor,
                          .drest = drest.tensor});
  if (!gradient) return losses;
  const LossLeaves leaves(tape, w, terms.bias, adapter);
  if (at_once)
    tape.record<VocabularyLossNode>(sloped(h, adapter, std::move(dh), std::move(du), std::move(drest)), leaves, losses);
  else
    tape.record<TokenLossesNode>(h, losses, own, adapter, leaves);
  return losses;
}

}  // namespace tessera::autograd
