#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "framework/autograd/ops/experts.h"
#include "framework/autograd/ops/low_rank.h"
#include "framework/nn/module.h"
#include "framework/nn/pass.h"

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
///
/// Under tensor parallelism each rank computes the gradient of a factor that it has whole from its own part of the
/// other dimension only: these gradients are summed over the tensor-parallel group, or for a layer of an expert over
/// the expert-tensor-parallel group.
class Adapters final : public Module {
 public:
  /// `rows` and `columns` are the parts of w on this rank: at most one of them has strips. `role`: that of w, which the
  /// factors have too.
  Adapters(const std::string& layer, std::vector<AdapterForm> forms, std::int64_t in, std::int64_t out,
           const TensorCut& rows, const TensorCut& columns, ParameterRole role = ParameterRole::matrix);

  /// y + scale * dropout(x) A^T B^T for the layer's result y [.., out] without bias, or with it; x [.., in] is what the
  /// product with w reads. Under tensor parallelism, y of a row-parallel layer is this rank's summand. Dropout keeps or
  /// drops the same elements of the unsharded x on every layout; each adapter has a mask of its own.
  autograd::Var add_to(autograd::Var y, const autograd::Var& x, const Pass& pass) const;
  /// The same for a layer that reads the tokens `tokens` of each sample, without `tokens` those of Pass::gathered.
  autograd::Var add_to(autograd::Var y, const autograd::Var& x, const Pass& pass, const HeldTokens& tokens) const;
  /// For an operation that applies the layer to rows of single tokens. Valid until the tape is cleared.
  autograd::ExpertAdapters of_expert(autograd::Tape& tape, const Pass& pass) const;

  /// w += scale * B A, for a layer that this rank has whole; w is [out, in].
  void merge_into(autograd::Tape& tape, std::span<float> w) const;

 private:
  void add(const AdapterForm& form, const TensorCut& rows, const TensorCut& columns, std::int64_t out,
           ParameterRole role);
  kernels::DropoutMask mask_of(std::size_t adapter, const Pass& pass, const HeldTokens& tokens) const;
  bool drops(const Pass& pass) const;

  std::vector<AdapterForm> forms_;
  std::int64_t in_, in_here_, first_column_;
  std::vector<std::vector<kernels::RowBlock>> rows_;  ///< of each adapter
  std::vector<std::uint64_t> sites_;                  ///< key the dropout
  std::vector<autograd::LowRankFactors> factors_;
};

/// Adapters of a layer of which this rank has the rows `rows` or the columns `columns` of w; null without forms.
std::unique_ptr<Adapters> make_adapters(const std::string& layer, const std::vector<AdapterForm>& forms,
                                        std::int64_t in, std::int64_t out, const TensorCut& rows,
                                        const TensorCut& columns, ParameterRole role = ParameterRole::matrix);

}  // namespace tessera::nn
