#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "framework/checkpoint/checkpoint.h"
#include "framework/model/model.h"
#include "framework/nn/flat_parameters.h"
#include "framework/optim/optimizer.h"
#include "framework/tensor/arena.h"

namespace tessera {

/// All numbers that training changes: weights, main gradients and the optimizer's slots, each one flat fp32 array in
/// the layout of FlatParameters; and for parameters that the model reads in 16 bits, the weights rounded. Owns the
/// memory; the model's parameters look into it.
class ModelState {
 public:
  /// For training with `optimizer`, which must outlive this; nullptr: weights alone, for evaluation and generation.
  ModelState(Model& model, const Optimizer* optimizer);

  const FlatParameters& layout() const { return layout_; }
  std::span<float> weights() const { return block_.master; }
  std::span<float> gradients() const { return gradients_.floats(); }
  void initialise(Threads& threads, std::uint64_t seed) const { layout_.initialise(threads, seed, weights()); }
  /// To be called after weights() were written: 16-bit parameters follow.
  void weights_changed() const { layout_.round_all(weights()); }

  /// Of weights, gradients and slots as they lie in memory.
  std::int64_t bytes() const {
    return static_cast<std::int64_t>(weights_and_slots_.bytes().size() + gradients_.bytes().size() +
                                     rounded_.bytes().size());
  }

  /// One step of the optimizer on every weight.
  void update(Threads& threads, StepScalars scalars) const { update(threads, {&scalars, 1}, {}); }
  /// The same with scalars of their own for groups of parameters, which the optimizer prepares in place: `group_of[i]`
  /// is the group of parameter i in layout().runs(); empty: all are in the first.
  void update(Threads& threads, std::span<StepScalars> groups, std::span<const std::size_t> group_of) const;

  /// The weights under their global names.
  std::vector<TensorRange> weight_ranges() const;
  /// The optimizer's slots as "optimizer.<slot>.<parameter>".
  std::vector<TensorRange> optimizer_ranges() const;

  /// Bytes that training with these slots takes for weights, gradients and slots of `model`: exact, without making
  /// them.
  static std::int64_t bytes_for(Model& model, const Optimizer& optimizer);

 private:
  struct Piece {
    std::size_t first, count, run;
    bool decays;
  };
  void cut_into_pieces();

  const Optimizer* optimizer_;
  FlatParameters layout_;
  Storage weights_and_slots_, gradients_, rounded_;
  Block block_;
  std::vector<std::string> slots_;
  std::vector<Piece> pieces_;  ///< what one thread updates at a time
  std::vector<Piece> wholes_;  ///< matrices that the optimizer wants whole: all threads update one
};

}  // namespace tessera
