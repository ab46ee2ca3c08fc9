#pragma once

#include <functional>

#include "framework/autograd/ops/router.h"
#include "framework/autograd/tape.h"
#include "framework/kernels/linear.h"

namespace tessera::autograd {

/// The feed-forward network that every expert of a layer has, each with weights of its own.
struct ExpertNetwork {
  kernels::Activation act = kernels::Activation::silu;
  bool gated = true;              ///< fc1 has the rows [gate; up]
  bool weights_on_input = false;  ///< the weight of a choice multiplies the expert's input, not its activation
};

/// Sees the output of one expert, [rows of it, h] fp32, times the weights of its choices; valid during the call only.
using ExpertTap = std::function<void(std::size_t expert, const Tensor& output)>;

/// Rows on their way between ranks: those of this rank's tokens, sorted by expert of the whole layer, and those of this
/// rank's experts, sorted by expert here. In memory of the tape; all ranks make the same calls in the same order.
class RowExchange {
 public:
  /// [experts of this rank + 1] The rows of expert e here are [first_row[e], first_row[e + 1]).
  virtual std::span<const std::int64_t> first_row() const = 0;
  /// The rows of this rank's tokens go to the experts; `here` gets the rows of this rank's experts. Both are
  /// [.., width] of one type.
  virtual void to_experts(Tape& tape, std::int64_t width, const kernels::Elements& tokens,
                          const kernels::MutableElements& here) const = 0;
  /// The reverse, in fp32: if several ranks have parts of an expert, the sum of their results in the order of ranks.
  virtual void to_tokens(Tape& tape, std::int64_t width, std::span<const float> here,
                         std::span<float> tokens) const = 0;

 protected:
  ~RowExchange() = default;
};

/// The ranks that share the experts of a layer.
class ExpertRanks {
 public:
  /// Tells the others how many rows this rank has for each expert of the layer: those of expert e are
  /// [first_row[e], first_row[e + 1]). The result is in memory of the tape.
  virtual const RowExchange& exchange(Tape& tape, std::span<const std::int64_t> first_row) const = 0;
  /// Experts of the layer that this rank has.
  virtual std::int64_t experts_here(std::int64_t experts) const = 0;

 protected:
  ~ExpertRanks() = default;
};

/// y[t] = sum over the choices k of token t of fc2_e (w act(fc1_e x[t])), with e the chosen expert and w its weight; a
/// token without a choice that was kept gets zeros.
///
///   x          [.., h]   kept for the backward pass
///   fc1[e]     [F, h], or [2 F, h] for a gated network
///   fc2[e]     [h, F]
///   y          [.., h] in the tape's compute type; in 16 bits each choice is computed in fp32 from the activation on,
///              and the sum is rounded once
///
/// Keeps, besides x, what is before the activation for each choice; the activation is computed again in the backward
/// pass. `fc1` and `fc2` must stay valid until the backward pass is done. Experts that no token chose take part with a
/// zero gradient. `tap`, if there is one, is called for each expert here that has rows, in the forward pass.
///
/// With `ranks`, fc1 and fc2 are those of this rank's experts, and F may be a part of their inner width, of which other
/// ranks have the rest; the input of the experts here is kept too, which saves the backward pass an exchange. Throws
/// ShapeError if the extents do not match, CommError as Communicator does.
Var experts(const Var& x, const ExpertChoices& choices, std::span<Leaf* const> fc1, std::span<Leaf* const> fc2,
            const ExpertNetwork& network, const ExpertRanks* ranks = nullptr, const ExpertTap& tap = {});

}  // namespace tessera::autograd
