// Muon: orthogonalized momentum (all singular values near one) for the weight matrices of the layers; AdamW for the
// rest. Sources: Jordan et al., "Muon: an optimizer for hidden layers in neural networks" (2024), with its quintic
// Newton-Schulz iteration; Liu et al., arXiv:2502.16982 ("Moonlight"), for weight decay and the size of an update.

#include <algorithm>
#include <cmath>

#include "framework/kernels/linear.h"
#include "framework/kernels/scratch.h"
#include "framework/optim/adam.h"

namespace tessera::optim {
namespace {

/// The norm of an update, depending on the shape of the matrix.
enum class Length {
  rms,      ///< 0.2 sqrt(max(rows, columns)): about the norm of AdamW's updates, so both can share a learning rate
  spectral  ///< sqrt(max(1, rows / columns)): the spectral norm of the update is bounded
};
options::Words<Length> words(Length) { return {{"rms", Length::rms}, {"spectral", Length::spectral}}; }

struct MuonOptions {
  double muon_momentum = 0.95;
  bool muon_nesterov = true;
  std::int64_t muon_num_ns_steps = 5;
  Length muon_scale = Length::rms;
  std::array<double, 2> betas = {0.9, 0.95};
  double eps = 1e-8;
};

void describe(options::Schema<MuonOptions>& s) {
  using O = MuonOptions;
  s.when_changed(options::Change::told);
  s.option("muon_momentum", &O::muon_momentum, "Momentum coefficient.")
      .at_least(0)
      .below(1)
      .no_flag("Megatron-LM's Muon computes other updates");
  s.option("muon_nesterov", &O::muon_nesterov, "Use Nesterov momentum.")
      .alias("muon_use_nesterov")
      .matters_when([](const O& o) { return o.muon_momentum != 0; }, "`muon_momentum` is 0")
      .no_flag("Megatron-LM's Muon computes other updates");
  s.option("muon_num_ns_steps", &O::muon_num_ns_steps,
           "Number of Newton-Schulz iterations that orthogonalize the update.")
      .above(0)
      .at_most(1000)
      .no_flag("Megatron-LM's Muon computes other updates");
  s.option("muon_scale", &O::muon_scale,
           "Scaling of the update: rms matches the RMS of AdamW updates, so that both can share a learning rate; "
           "spectral is the scaling of the original Muon.")
      .no_flag("Megatron-LM's Muon computes other updates");
  describe_adam(s, "AdamW's decay of running means, for embeddings, output layer, norms and biases.",
                "Epsilon of AdamW, for embeddings, output layer, norms and biases.");
}

constexpr std::size_t tile = 4096;  // elements per task

/// Shape of a matrix.
struct Extents {
  std::int64_t rows, columns;
  std::size_t elements() const { return static_cast<std::size_t>(rows * columns); }
  std::int64_t less() const { return std::min(rows, columns); }
};

/// Newton-Schulz iteration: makes all singular values of x, whose norm must be at most one, approximately one.
///   x <- a x + (b A + c A A) x   with A = x x^T, or from the other side with x^T x if that is smaller.
/// The coefficients of Jordan et al. trade exactness for speed: singular values end near one, not at one.
void orthogonalise(kernels::Threads& threads, Extents e, std::int64_t steps, std::span<float> x) {
  constexpr float a = 3.4445F, b = -4.7750F, c = 2.0315F;
  const auto n = e.less();
  const auto square = static_cast<std::size_t>(n * n);
  const kernels::Scratch square_memory(square), factor_memory(square), next_memory(e.elements());
  const auto A = square_memory.floats(), B = factor_memory.floats(), next = next_memory.floats();
  const bool wide = e.rows <= e.columns;
  for (std::int64_t step = 0; step < steps; ++step) {
    if (wide)
      kernels::linear_forward(threads, {n, e.columns, n}, x, x, {}, A);
    else
      kernels::linear_backward_weight(threads, {e.rows, n, n}, x, x, A, false);
    kernels::linear_forward(threads, {n, n, n}, A, A, {}, B);  // A is symmetric
    threads.parallel_for(square, tile, [&](std::size_t first, std::size_t last) {
      for (auto i = first; i < last; ++i) B[i] = b * A[i] + c * B[i];
    });
    if (wide)
      kernels::linear_backward_input(threads, {n, e.columns, n}, B, x, next, false);
    else
      kernels::linear_forward(threads, {e.rows, n, n}, x, B, {}, next);  // B is symmetric
    threads.parallel_for(x.size(), tile, [&](std::size_t first, std::size_t last) {
      for (auto i = first; i < last; ++i) x[i] = a * x[i] + next[i];
    });
  }
}

class Muon final : public Optimizer {
 public:
  explicit Muon(const MuonOptions& options) : o_(options) {}

  /// A matrix uses only the first; both exist because all parameters have the same number of state tensors.
  std::vector<std::string> slots() const override { return adam_slots(); }

  bool wants_whole(ParameterRole role) const override {
    return role == ParameterRole::matrix || role == ParameterRole::expert;
  }

  StepScalars prepared(StepScalars s) const override { return bias_corrected(o_.betas, s); }

  void update(const StepScalars& s, Block block) const override {
    if (s.skip) return;
    kernels::adamw_update(adamw_factors(o_, s), block.master, block.grad, block.slots[0], block.slots[1]);
  }

  void update_undoable(const StepScalars& s, const Block& block, const kernels::BlockUndo& undo) const override {
    if (s.skip) return;
    kernels::adamw_update(adamw_factors(o_, s), block.master, block.grad, block.slots[0], block.slots[1], undo);
  }

  void update_whole(kernels::Threads& threads, const StepScalars& s, MatrixBlock matrix) const override {
    if (s.skip) return;
    const Extents e{matrix.rows, matrix.columns};
    auto& block = matrix.block;
    const kernels::Scratch memory(e.elements());
    const auto x = memory.floats();
    add_momentum(threads, s, block, x);
    const double norm = std::sqrt(kernels::sum_of_squares(threads, x));
    kernels::scale(threads, static_cast<float>(1 / (norm + 1e-7)), x);
    orthogonalise(threads, e, o_.muon_num_ns_steps, x);
    const auto shrink = static_cast<float>(1 - s.lr * s.weight_decay), stride = static_cast<float>(s.lr * length(e));
    threads.parallel_for(x.size(), tile, [&](std::size_t first, std::size_t last) {
      for (auto i = first; i < last; ++i) block.master[i] = shrink * block.master[i] - stride * x[i];
    });
  }

 private:
  /// Updates the momentum, and writes the direction of the update to `x`.
  void add_momentum(kernels::Threads& threads, const StepScalars& s, Block& block, std::span<float> x) const {
    const auto momentum = static_cast<float>(o_.muon_momentum), clip = static_cast<float>(s.clip);
    const auto mean = block.slots[0];
    threads.parallel_for(x.size(), tile, [&](std::size_t first, std::size_t last) {
      for (auto i = first; i < last; ++i) {
        const float g = clip * block.grad[i];
        mean[i] = momentum * mean[i] + g;
        x[i] = o_.muon_nesterov ? g + momentum * mean[i] : mean[i];
      }
    });
  }

  double length(Extents e) const {
    const auto rows = static_cast<double>(e.rows), columns = static_cast<double>(e.columns);
    return o_.muon_scale == Length::rms ? 0.2 * std::sqrt(std::max(rows, columns))
                                        : std::sqrt(std::max(1.0, rows / columns));
  }

  MuonOptions o_;
};

std::unique_ptr<Optimizer> make_muon(const MuonOptions& o) { return std::make_unique<Muon>(o); }

}  // namespace

void register_muon(OptimizerRegistry& registry) {
  registry.add("muon", make_muon,
               "Muon: orthogonalized momentum for the matrices of the layers, AdamW for all other parameters.",
               {"Muon"});
}

}  // namespace tessera::optim
