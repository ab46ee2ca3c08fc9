#pragma once

#include <functional>

#include "framework/autograd/ops/low_rank.h"
#include "framework/autograd/ops/router.h"
#include "framework/autograd/tape.h"
#include "framework/kernels/activation.h"
#include "framework/kernels/linear.h"

namespace tessera::autograd {

/// The form of the feed-forward network of an expert, the same for all experts of a layer.
struct ExpertNetwork {
  kernels::Activation act = kernels::Activation::silu;
  bool gated = true;              ///< gated linear unit: fc1 has the rows [gate; up]
  bool weights_on_input = false;  ///< the weight of a choice multiplies the expert's input instead of its activation
  kernels::GateForm form = {};    ///< of a gated linear unit
};

/// The adapters of one layer of an expert.
struct ExpertAdapters {
  std::span<const LowRankFactors> factors;
  /// One for each of them, or none: no dropout. For rows of single tokens; sample_ids and tokens are left empty.
  std::span<const kernels::DropoutMask> masks;
};

/// One of the two linear layers of the experts of this rank.
struct ExpertLayer {
  std::span<Leaf* const> weights;                 ///< of each expert
  std::span<const ExpertAdapters> adapters = {};  ///< of each expert; empty: none has any
  std::span<Leaf* const> biases = {};             ///< of each expert, [out]; empty: none has any
};

/// The layers of the experts of this rank.
struct ExpertLayers {
  ExpertLayer fc1, fc2;
  /// For adapters with dropout, for each token of x: the id of its sample, and its index in the unsharded sample.
  std::span<const std::int64_t> samples = {}, tokens = {};
  /// Whether one of several ranks may train adapters of its experts, so that all take part in the backward pass: equal
  /// on all of them.
  bool adapters_shared = false;
  /// The part of the biases of fc2 that this rank adds: 1 / n if n ranks have parts of each expert, whose results are
  /// added. Each of them computes the whole gradient of these biases.
  double bias_part = 1;
};

/// Observes the output of one expert, [rows of the expert, h] fp32, which includes the weights of the choices. `expert`
/// counts the experts of this rank from 0; `output` is valid during the call only.
using ExpertTap = std::function<void(std::size_t expert, const Tensor& output)>;

/// Exchanges rows between the ranks that share the experts of a layer (all-to-all). A rank has two sets of rows: the
/// rows of its tokens, sorted by expert of the whole layer, and the rows of its experts, sorted by expert of this rank.
/// Lives in memory of the tape. All ranks make the same calls in the same order.
class RowExchange {
 public:
  /// [experts of this rank + 1]: the rows of this rank's expert e are [first_row[e], first_row[e + 1]).
  virtual std::span<const std::int64_t> first_row() const = 0;
  /// Sends `tokens`, the rows of this rank's tokens, to the ranks of their experts, and writes the rows of this rank's
  /// experts to `here`. Both are [.., width] and have the same type.
  virtual void to_experts(Tape& tape, std::int64_t width, const kernels::Elements& tokens,
                          const kernels::MutableElements& here) const = 0;
  /// Inverse of to_experts, in fp32: sends `here`, the results of this rank's experts, to the ranks of the tokens, and
  /// writes the rows of this rank's tokens to `tokens`. If several ranks have parts of an expert, their results are
  /// added in the order of ranks.
  virtual void to_tokens(Tape& tape, std::int64_t width, std::span<const float> here,
                         std::span<float> tokens) const = 0;

 protected:
  ~RowExchange() = default;
};

/// The ranks that share the experts of a layer.
class ExpertRanks {
 public:
  /// Exchanges the number of rows that each rank has for each expert, and returns the exchange for them. The rows of
  /// this rank's tokens for expert e of the layer are [first_row[e], first_row[e + 1]). The result lives in memory of
  /// the tape.
  virtual const RowExchange& exchange(Tape& tape, std::span<const std::int64_t> first_row) const = 0;
  /// Number of experts that this rank has, of the `experts` experts of the layer.
  virtual std::int64_t experts_here(std::int64_t experts) const = 0;

 protected:
  ~ExpertRanks() = default;
};

/// Computes a mixture of experts: y[t] = sum over the choices of token t of fc2_e (w act(fc1_e x[t])), where e is the
/// chosen expert and w the weight of the choice. If all choices of a token were dropped, its y is 0. A bias of fc1 is
/// added to its result; one of fc2 is multiplied by w, unless the weights of choices multiply the experts' input.
///
///   x          [.., h]   kept for the backward pass, if fc1 or an adapter of it is trained or weights_on_input
///   fc1[e]     [F, h], or [2 F, h] for a gated network
///   fc2[e]     [h, F]
///   y          [.., h] in the tape's compute type; with a 16-bit type, the outputs of fc2 and their sum are fp32, and
///              the sum is rounded once
///
/// Adapters add scale * dropout(x) A^T B^T to the result of their layer, for the rows of their expert; x is the input
/// of the layer, which for fc2 includes the weights of the choices.
///
/// Keeps, for each choice, the input of the activation; the activation and the products with A are computed again in
/// the backward pass. What `layers` refers to must stay valid until the backward pass is done. An expert that no token
/// chose adds nothing to the gradients of its weights. `tap`, if given, is called in the forward pass for each expert
/// of this rank that has rows.
///
/// With `ranks`, fc1 and fc2 are the weights of this rank's experts, and F may be this rank's part of the hidden size
/// of an expert (expert tensor parallelism). Where x is kept, so is the input of this rank's experts, which saves the
/// backward pass one exchange. Throws ShapeError if the extents do not match, CommError if an exchange fails.
Var experts(const Var& x, const ExpertChoices& choices, const ExpertLayers& layers, const ExpertNetwork& network,
            const ExpertRanks* ranks = nullptr, const ExpertTap& tap = {});

}  // namespace tessera::autograd
