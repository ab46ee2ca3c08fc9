#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "framework/autograd/ops/experts.h"
#include "framework/autograd/ops/low_rank.h"
#include "framework/autograd/ops/magnitude.h"
#include "framework/autograd/ops/vocabulary_loss.h"
#include "framework/nn/module.h"
#include "framework/nn/pass.h"
#include "framework/nn/row_norms.h"

namespace tessera::nn {

/// A named part of a fused linear layer of the unsharded model, which other programs have as a layer of its own:
/// queries, keys and values of linear_qkv; gate and up of a gated linear_fc1.
struct LinearPart {
  std::string name;                ///< "q_proj"
  std::vector<ElementRange> rows;  ///< rows of the fused w, in the order of the rows of the part
};

/// An adapter that a layer gets. Source: Hu et al., arXiv:2106.09685.
struct AdapterForm {
  LinearPart part = {};  ///< without a name: the whole layer
  std::int64_t rank = 0;
  double scale = 1;               ///< factor of B A
  double dropout = 0;             ///< dropout rate of the adapter's input, in [0, 1)
  Init a_init = {}, b_init = {};  ///< initial distributions of lora_A and lora_B
  bool magnitudes = false;        ///< DoRA (Liu et al., arXiv:2402.09353): with magnitudes of the outputs
};

/// Decides which linear layers of a model get adapters.
class AdapterPlan {
 public:
  AdapterPlan() = default;
  AdapterPlan(const AdapterPlan&) = delete;
  AdapterPlan& operator=(const AdapterPlan&) = delete;
  virtual ~AdapterPlan() = default;
  /// The adapters of the layer `module`, "decoder.layers.0.self_attention.linear_qkv", with `in` inputs and the parts
  /// `parts`; each for other rows of w, in ascending order of the parts.
  virtual std::vector<AdapterForm> adapters_of(const std::string& module, std::int64_t in,
                                               std::span<const LinearPart> parts) const = 0;
};

/// Whether `parameter` is the name of a weight of an adapter: it ends in lora_A.weight, lora_B.weight or
/// lora_magnitude.weight.
bool is_of_adapter(std::string_view parameter);

/// The adapters of one linear layer, whole or sharded like the layer. Parameters, for each form:
///
///   <layer>[.<part>].lora_A.weight   [rank, in]    sharded like the columns of w
///   <layer>[.<part>].lora_B.weight   [out, rank]   sharded like the rows of w; only those of the part, one after the
///                                                  other
///   <layer>[.<part>].lora_magnitude.weight  [out]  if the form has magnitudes; sharded like the rows of B; initially
///                                                  the norms of the rows of W + scale B A
///
/// Under tensor parallelism each rank computes the gradient of a factor that it has whole from its own part of the
/// other dimension only: these gradients are summed over the tensor-parallel group, or for a layer of an expert over
/// the expert-tensor-parallel group.
class Adapters final : public Module {
 public:
  /// `w` is the layer's weight; `rows` and `columns` are the parts of it on this rank: at most one of them has strips.
  /// `add_up` adds numbers over the ranks that share the columns; null: this rank has all of them. Either all forms of
  /// a layer have magnitudes, or none. The factors have the role of w, but A of an
  /// output layer, which has no rows of the vocabulary, is a matrix.
  Adapters(const std::string& layer, std::vector<AdapterForm> forms, const Parameter& w, const TensorCut& rows,
           const TensorCut& columns, SumOverRanks add_up);

  /// The result of the layer with its adapters, x w^T + scale * dropout(x) A^T B^T + bias; x [.., in] is what the
  /// product with w reads, `bias` may be null. Under tensor parallelism, the result of a row-parallel layer is this
  /// rank's summand. Dropout keeps or drops the same elements of the unsharded x on every layout; each adapter has a
  /// mask of its own.
  ///
  /// With magnitudes m and the norms n of the rows of w + scale * B A, constants in the backward pass:
  /// m / n * (w + scale * B A) dropout(x) + w (x - dropout(x)) + bias, as PEFT has it; the adapters of a layer then
  /// have one mask, that of the first, so that the product with w is computed twice and not once for each adapter.
  autograd::Var forward(const autograd::Var& x, autograd::Leaf& w, autograd::Leaf* bias, const Pass& pass) const;
  /// y + scale * dropout(x) A^T B^T, for a layer without magnitudes whose result y [.., out] is computed elsewhere and
  /// which reads the tokens `tokens` of each sample.
  autograd::Var add_to(autograd::Var y, const autograd::Var& x, const Pass& pass, const HeldTokens& tokens) const;
  /// For the output layer, which has one adapter, and whose product is part of the loss. Valid until the tape is
  /// cleared.
  autograd::LogitAdapter of_logits(const autograd::Var& h, const Pass& pass) const;
  /// For an operation that applies the layer, which has no magnitudes, to rows of single tokens. Valid until the tape
  /// is cleared.
  autograd::ExpertAdapters of_expert(autograd::Tape& tape, const Pass& pass) const;

  /// w += scale * B A, then with magnitudes w *= m / n, for a layer that this rank has whole; w is [out, in].
  void merge_into(autograd::Tape& tape, std::span<float> w) const;

 private:
  void add(const AdapterForm& form, const Parameter& w, const TensorCut& rows, const TensorCut& columns);
  void add_magnitudes(const std::string& name, std::int64_t outputs, const TensorCut& rows, const TensorCut& columns);
  autograd::Var scaled_sum(const autograd::Var& x, autograd::Leaf& w, autograd::Leaf* bias, const Pass& pass) const;
  void scale_rows_of(autograd::Tape& tape, std::span<float> w) const;
  kernels::DropoutMask mask_of(std::size_t adapter, const Pass& pass, const HeldTokens& tokens) const;
  bool drops(const Pass& pass) const;

  std::vector<AdapterForm> forms_;
  std::int64_t in_, in_here_, first_column_;
  std::vector<std::vector<kernels::RowBlock>> rows_;  ///< of each adapter
  std::vector<std::uint64_t> sites_;                  ///< key the dropout
  std::vector<autograd::LowRankFactors> factors_;
  std::vector<autograd::Magnitudes> magnitudes_;  ///< one for each adapter, or none
  RowNorms norms_;
};

/// Adapters of a layer with the weight `w`; null without forms. See Adapters.
std::unique_ptr<Adapters> make_adapters(const std::string& layer, const std::vector<AdapterForm>& forms,
                                        const Parameter& w, const TensorCut& rows, const TensorCut& columns,
                                        SumOverRanks add_up = {});

}  // namespace tessera::nn
