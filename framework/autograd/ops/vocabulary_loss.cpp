#include "framework/autograd/ops/vocabulary_loss.h"

#include <algorithm>
#include <optional>

#include "framework/base/range.h"
#include "framework/kernels/cross_entropy.h"
#include "framework/kernels/expert_rows.h"
#include "framework/kernels/linear.h"
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

}  // namespace

std::int64_t logit_rows(std::int64_t tokens, std::int64_t vocabulary) {
  return std::min(tokens, chunk_rows(vocabulary));
}

namespace {

/// A value and its gradient.
struct Sloped {
  VarId value;
  Gradient gradient;  ///< empty: not wanted
  void give(Tape& tape) {
    if (!gradient.empty()) tape.give_grad(value, std::move(gradient));
  }
};

/// The gradients of h and u were computed in the forward pass; backward gives them, and reports those of w, b and the
/// bias as complete. With `losses` they are those for a seed of 1 of each loss, in fp32: backward multiplies each row
/// by the seed of its loss.
class VocabularyLossNode final : public Node {
 public:
  VocabularyLossNode(Sloped h, Sloped u, LeafUse w, LeafUse b, LeafUse bias, std::optional<VarId> losses = {})
      : h_(std::move(h)), u_(std::move(u)), w_(w), b_(b), bias_(bias), losses_(losses) {}
  void backward(Tape& tape) override {
    if (losses_) {
      const auto seeds = tape.take_grad(*losses_);
      for (auto* one : {&h_, &u_}) seed(tape, seeds, one->gradient);
    }
    h_.give(tape);
    u_.give(tape);
    tape.done(w_);
    if (b_) tape.done(b_);
    if (bias_) tape.done(bias_);
  }

 private:
  static void seed(Tape& tape, const Gradient& seeds, Gradient& gradient) {
    if (seeds.empty()) gradient = {};
    if (gradient.empty()) return;
    kernels::scale_rows(tape.threads(), gradient.tensor.shape().width(), seeds.tensor.floats(), gradient.tensor);
  }

  Sloped h_, u_;
  LeafUse w_, b_, bias_;
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
  Tensor u = {};          ///< of the adapter; empty: none
  Leaf* b = nullptr;
  Tensor du = {};  ///< as dh

  std::int64_t rank() const { return b ? b->value.shape()[1] : 0; }
};

/// The adapter's part of the gradients of one chunk of logits.
void give_adapter(Tape& tape, const LossPass& pass, const Rows& at, const kernels::Elements& slopes) {
  const kernels::LinearExtents e{at.size(), pass.rank(), pass.w.value.shape()[0]};
  if (pass.b->trained()) {
    const auto db = pass.b->grad_target();
    kernels::linear_backward_weight(tape.threads(), e, slopes, at_rows(pass.u, at, e.in), db.floats, db.add);
  }
  if (!pass.du.empty())
    kernels::linear_backward_input(tape.threads(), e, slopes, kernels::Elements(pass.b->value),
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
    kernels::linear_forward(threads, e, at_rows(pass.h, at, width), weights, bias, logits);
    if (pass.b)
      kernels::linear_add(threads, {at.size(), pass.rank(), vocabulary}, at_rows(pass.u, at, pass.rank()),
                          pass.b->value, logits);
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
    if (gradient && w.trained()) {
      const auto dw = w.grad_target();
      kernels::linear_backward_weight(threads, e, slopes, at_rows(pass.h, at, width), dw.floats, dw.add);
    }
    if (gradient && terms.bias && terms.bias->trained())
      kernels::linear_backward_bias(threads, e.rows, e.out, slopes, terms.bias->grad_to_add_to(threads));
    if (!pass.dh.empty())
      kernels::linear_backward_input(threads, e, slopes, weights, at_rows(pass.dh, at, width), false);
    if (gradient && pass.b) give_adapter(tape, pass, at, slopes);
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
  if (terms.bias && terms.bias->value.shape() != Shape{w.value.shape()[0]})
    throw ShapeError(text("vocabulary loss: the weight is ", w.value.shape(), ", but the bias ",
                          terms.bias->value.shape(), "; expected one element for each row"));
  if (w.value.shape().width() != h.shape().width() || static_cast<std::int64_t>(terms.labels.size()) != rows ||
      static_cast<std::int64_t>(mask) != rows)
    throw ShapeError(text("vocabulary loss: h is ", h.shape(), ", the weight ", w.value.shape(), ", with ",
                          terms.labels.size(), " labels and ", mask, " mask values; expected one for each row"));
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
  TokenLossesNode(Var h, VarId losses, LeafUse w, const LossTerms& terms, Var u, LeafUse b, LeafUse bias)
      : h_(std::move(h)), u_(std::move(u)), losses_(losses), w_(w), b_(b), bias_(bias), terms_(terms) {}
  void backward(Tape& tape) override {
    const auto seeds = tape.take_grad(losses_);
    if (!seeds.empty()) {
      const auto& h = h_.value();
      const auto u = b_ ? u_.value() : Tensor();
      auto dh = gradient_of(tape, h, h_.wants_grad()), du = gradient_of(tape, u, b_ && u_.wants_grad());
      const auto again = tape.scratch(terms_.labels.size());
      pass_over_logits(tape, {.h = h,
                              .w = *w_.leaf,
                              .terms = terms_,
                              .weights = seeds.tensor.floats(),
                              .gradient = true,
                              .loss = Tape::floats(again).first(terms_.labels.size()),
                              .dh = dh.tensor,
                              .u = u,
                              .b = b_.leaf,
                              .du = du.tensor});
      if (!dh.empty()) tape.give_grad(h_, std::move(dh));
      if (!du.empty()) tape.give_grad(u_, std::move(du));
    }
    tape.done(w_);
    if (b_) tape.done(b_);
    if (bias_) tape.done(bias_);
  }

 private:
  Var h_, u_;
  VarId losses_;
  LeafUse w_, b_, bias_;
  LossTerms terms_;
};

}  // namespace

VocabularyLoss vocabulary_loss(const Var& h, Leaf& w, const LossTerms& terms, const LogitAdapter& adapter) {
  auto& tape = h.tape();
  check(h.value(), w, terms, terms.mask.size(), adapter);
  const bool adapts = adapter.b != nullptr && (adapter.b->trained() || adapter.u.wants_grad());
  const bool gradient = tape.records() && (h.wants_grad() || w.trained() || trains_bias(terms) || adapts);
  const auto u = adapter.b ? adapter.u.value() : Tensor();
  auto token_loss = tape.make({h.shape()[0], h.shape()[1]}, false);
  auto dh = gradient_of(tape, h.value(), gradient && h.wants_grad());
  auto du = gradient_of(tape, u, gradient && adapter.b && adapter.u.wants_grad());
  pass_over_logits(tape, {.h = h.value(),
                          .w = w,
                          .terms = terms,
                          .weights = terms.weights.empty() ? terms.mask : terms.weights,
                          .gradient = gradient,
                          .loss = token_loss.floats(),
                          .dh = dh.tensor,
                          .u = u,
                          .b = adapter.b,
                          .du = du.tensor});
  if (gradient)
    tape.record<VocabularyLossNode>(Sloped{h, std::move(dh)},
                                    Sloped{adapter.b ? VarId(adapter.u) : VarId(), std::move(du)}, tape.use(&w),
                                    tape.use(adapter.b), tape.use(terms.bias));
  return {sum_up(token_loss.floats(), terms), std::move(token_loss)};
}

Var token_losses(const Var& h, Leaf& w, const LossTerms& terms, const LogitAdapter& adapter) {
  auto& tape = h.tape();
  const auto rows = terms.labels.size();
  check(h.value(), w, terms, rows, adapter);
  const bool trains = w.trained() || trains_bias(terms) || (adapter.b && adapter.b->trained());
  const bool reaches_u = adapter.b && adapter.u.wants_grad();
  const bool gradient = tape.records() && (h.wants_grad() || trains || reaches_u);
  // A gradient of a frozen output layer is proportional to the seed of its row. In fp16, gradients for a seed of 1
  // would lack the loss scale.
  const bool at_once = gradient && !trains && h.value().dtype() != DType::float16;
  const auto u = adapter.b ? adapter.u.value() : Tensor();
  auto losses = tape.make({h.shape()[0], h.shape()[1]}, gradient);
  auto own = terms;
  own.seed = 1;
  auto dh = gradient_of(tape, h.value(), DType::float32, at_once && h.wants_grad());
  auto du = gradient_of(tape, u, DType::float32, at_once && reaches_u);
  pass_over_logits(tape, {.h = h.value(),
                          .w = w,
                          .terms = own,
                          .gradient = at_once,
                          .loss = losses.floats(),
                          .dh = dh.tensor,
                          .u = u,
                          .b = adapter.b,
                          .du = du.tensor});
  if (!gradient) return losses;
  const auto use_w = tape.use(&w), use_b = tape.use(adapter.b), use_bias = tape.use(terms.bias);
  if (at_once)
    tape.record<VocabularyLossNode>(Sloped{h, std::move(dh)},
                                    Sloped{adapter.b ? VarId(adapter.u) : VarId(), std::move(du)}, use_w, use_b,
                                    use_bias, losses);
  else
    tape.record<TokenLossesNode>(h, losses, use_w, own, adapter.u, use_b, use_bias);
  return losses;
}

}  // namespace tessera::autograd
