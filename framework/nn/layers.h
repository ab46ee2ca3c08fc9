#pragma once

#include <memory>
#include <optional>

#include "framework/autograd/ops/linear.h"
#include "framework/nn/adapter.h"
#include "framework/nn/module.h"
#include "framework/nn/pass.h"

namespace tessera::nn {

/// Configuration of a linear layer of the unsharded model.
struct LinearSizes {
  std::int64_t in = 0, out = 0;
  bool has_bias = false;
  Init init = {};                              ///< initial distribution of w; a bias starts as zeros
  ParameterRole role = ParameterRole::matrix;  ///< role of w
  std::vector<LinearPart> parts = {};          ///< named parts of a fused layer; none: it is not fused
  std::vector<AdapterForm> adapters = {};      ///< set by the LayerMaker
};

/// y = x w^T + bias with w [out, in], on one rank or sharded over tensor-parallel ranks.
class LinearLayer : public Module {
 public:
  using Module::Module;
  /// Maps x [.., in] to [.., out]. A column-parallel layer returns only this rank's part of the outputs, a row-parallel
  /// layer takes only this rank's part of the inputs (see LayerMaker); both communicate in the groups of `pass`.
  virtual autograd::Var forward(const autograd::Var& x, const Pass& pass) const = 0;
  /// This rank's part of w, for operations that need the weight itself.
  virtual autograd::Leaf& weight() const = 0;
  /// Its adapters; null: none.
  virtual const Adapters* adapters() const { return nullptr; }
  /// w with its adapters in fp32, in a whole layer; empty: it has no adapters.
  autograd::Var merged_weight(autograd::Tape& tape) const;
};

/// A linear layer that can apply an activation to its outputs: a whole or a column-parallel layer. A row-parallel layer
/// cannot, because its outputs are complete only after an all-reduce.
class ActivatedLinearLayer : public LinearLayer {
 public:
  using LinearLayer::forward;
  using LinearLayer::LinearLayer;
  /// act(x w^T + bias), as one operation.
  virtual autograd::Var forward(const autograd::Var& x, kernels::Activation act, const Pass& pass) const = 0;
};

/// y = x w^T + bias, where the rows of w are sharded over tensor-parallel ranks and the outputs are gathered, so that
/// every rank has all of them: for a projection that is followed by an operation on whole rows (a norm), not by a
/// row-parallel layer.
class GatheredLinear : public Module {
 public:
  using Module::Module;
  /// The outputs, in two parts: columns [0, first) and columns [first, out).
  struct Parts {
    autograd::Var own;  ///< [B, T, first]; with sequence parallelism, of this rank's tokens only
    autograd::Var all;  ///< [B, T, out - first], always of all tokens; empty if first == out
  };
  /// x is [B, T, in]; with sequence parallelism, this rank's tokens only. `first` is at most `out`.
  virtual Parts forward(const autograd::Var& x, std::int64_t first, const Pass& pass) const = 0;

 protected:
  /// Divides the columns of y [.., out] into [0, first) and [first, out).
  static Parts cut(autograd::Var y, std::int64_t first);
};

/// The position of a rank in its tensor-parallel group, which determines its part of every sharded layer. Plain
/// numbers, so the model of any rank can be constructed in any process, for example to compute the memory of that rank.
/// The communicators come with the pass (Pass::groups).
struct TensorRank {
  int rank = 0, ranks = 1;
  /// Sequence parallelism: outside of the pairs of column-parallel and row-parallel layers, each rank has the tokens
  /// [rank * T / ranks, (rank + 1) * T / ranks) of every sample. No effect on one rank. Source: Korthikanti et al.,
  /// arXiv:2205.05198.
  bool sequence_parallel = false;

  bool whole() const { return ranks == 1; }
  bool cuts_sequence() const { return sequence_parallel && ranks > 1; }
  /// This rank's equal part of dimension `dim`, which has `extent` elements; on one rank, a cut without strips (the
  /// whole tensor). Throws ShapeError if `ranks` does not divide `extent`; `what` names the elements in the message,
  /// for example "rows of an embedding".
  TensorCut part(std::size_t dim, std::int64_t extent, const char* what) const;
};

/// Creates the linear layers of a model, sharded or not. This base class makes whole layers, for one rank; parallel/
/// overrides it for tensor parallelism.
///
/// Layers are created in pairs: a column-parallel one, which divides its outputs, then a row-parallel one, which
/// divides its inputs, so that between them no communication is needed. Source: Shoeybi et al., arXiv:1909.08053.
class LayerMaker {
 public:
  LayerMaker() = default;
  /// `adapters` decides which of the layers get adapters; null: none.
  explicit LayerMaker(const TensorRank& tensor, std::shared_ptr<const AdapterPlan> adapters = {})
      : tensor_(tensor), adapters_(std::move(adapters)) {}
  LayerMaker(const LayerMaker&) = default;
  LayerMaker& operator=(const LayerMaker&) = delete;
  virtual ~LayerMaker() = default;

  const TensorRank& tensor() const { return tensor_; }
  /// Decides which layers get adapters, also of those that others make; null: none.
  const AdapterPlan* adapters() const { return adapters_.get(); }

  /// Creates the first layer of a pair. `rows` are the rows of w and bias on this rank; without strips: all rows.
  virtual std::unique_ptr<ActivatedLinearLayer> column_parallel(const std::string& name, const LinearSizes& sizes,
                                                                TensorCut rows) const;
  /// Creates the second layer of a pair. This rank has its equal part of the inputs (columns of w).
  virtual std::unique_ptr<LinearLayer> row_parallel(const std::string& name, const LinearSizes& sizes) const;
  /// Creates a layer outside of pairs, whose rows are divided equally and whose outputs are gathered.
  virtual std::unique_ptr<GatheredLinear> gathered(const std::string& name, const LinearSizes& sizes) const;
  /// What adds up numbers over the ranks of the layer `name`; empty: one rank has all of it.
  virtual SumOverRanks sum_over_ranks(const std::string& name) const;

 protected:
  /// `sizes` of the layer `name` with its adapters.
  LinearSizes with_adapters(const std::string& name, LinearSizes sizes) const;

 private:
  TensorRank tensor_;
  std::shared_ptr<const AdapterPlan> adapters_;
};
/// The LayerMaker for one rank, which divides nothing.
const LayerMaker& whole_layers();

/// Normalization over the last dimension.
class Norm : public Module {
 public:
  using Module::Module;
  /// x and the result are [.., width].
  virtual autograd::Var forward(const autograd::Var& x) const = 0;
};

/// The types of norms; kernels/norm.h has the formulas.
enum class Normalization { layer_norm, rms_norm };

/// Settings that all norms of a model share.
struct NormKind {
  Normalization kind = Normalization::layer_norm;
  double eps = 1e-5;          ///< added to the variance or mean square
  bool zero_centred = false;  ///< the stored gain is the factor - 1 (apply_layernorm_1p)

  /// The number that is added to the stored gain to get the factor.
  float gain_offset() const { return zero_centred ? 1.0F : 0.0F; }
  /// Initial value of the stored gain for the factor `factor`.
  Init gain(double factor = 1) const { return Init::constant(factor - (zero_centred ? 1 : 0)); }
};

/// Creates a norm over `width` channels whose factor is initially `first_gain`. Layer norm has a bias, RMS norm has
/// none.
std::unique_ptr<Norm> make_norm(const NormKind& kind, const std::string& name, std::int64_t width,
                                double first_gain = 1);

}  // namespace tessera::nn
