#include "framework/autograd/ops/norm.h"

#include "framework/kernels/norm.h"

namespace tessera::autograd {
namespace {

std::span<float> grad_of(Tape& tape, const LeafUse& use) {
  return use && use.leaf->trained() ? use.leaf->grad_to_add_to(tape.threads()) : std::span<float>{};
}

/// The gradient of the gain; for a frozen gain scratch memory, because the kernels always add to one.
class GainGrad {
 public:
  GainGrad(Tape& tape, const LeafUse& gain) {
    grad_ = grad_of(tape, gain);
    if (!grad_.empty()) return;
    const auto width = static_cast<std::size_t>(gain.leaf->value.elements());
    memory_ = tape.scratch(width);
    grad_ = Tape::floats(memory_).first(width);
    std::fill(grad_.begin(), grad_.end(), 0.0F);
  }
  std::span<float> floats() const { return grad_; }

 private:
  Memory memory_;
  std::span<float> grad_;
};

/// The gradient of x; scratch memory if x wants none, for the same reason.
struct InputGrad {
  InputGrad(Tape& tape, VarId x, std::size_t count) : target(tape.grad_target(x)) {
    if (!target.tensor.empty()) return;
    memory = tape.scratch(count);
    target.tensor = Tensor(memory.bytes(), DType::float32, {static_cast<std::int64_t>(count)});
  }
  Memory memory;
  Tape::Target target;
};

class LayerNorm final : public Node {
 public:
  LayerNorm(VarId y, Var x, Var mean, Var inv_std, LeafUse gain, LeafUse bias, float gain_offset)
      : y_(y),
        x_(std::move(x)),
        mean_(std::move(mean)),
        inv_std_(std::move(inv_std)),
        gain_(gain),
        bias_(bias),
        offset_(gain_offset) {}
  void backward(Tape& tape) override {
    const auto dy = tape.take_grad(y_);
    if (dy.empty()) return;
    const GainGrad dgain(tape, gain_);
    const InputGrad dx(tape, x_, static_cast<std::size_t>(x_.shape().elements()));
    kernels::layernorm_backward(tape.threads(), {.dy = dy.tensor,
                                                 .x = x_.value(),
                                                 .gain = tape.read(gain_.leaf->value),
                                                 .gain_offset = offset_,
                                                 .mean = mean_.floats(),
                                                 .inv_std = inv_std_.floats(),
                                                 .dx = dx.target.tensor,
                                                 .add = dx.target.add,
                                                 .dgain = dgain.floats(),
                                                 .dbias = grad_of(tape, bias_)});
    tape.done(gain_);
    tape.done(bias_);
  }

 private:
  VarId y_;
  Var x_, mean_, inv_std_;
  LeafUse gain_, bias_;
  float offset_;
};

class RmsNorm final : public Node {
 public:
  RmsNorm(VarId y, Var x, Var inv_rms, LeafUse gain, float gain_offset)
      : y_(y), x_(std::move(x)), inv_rms_(std::move(inv_rms)), gain_(gain), offset_(gain_offset) {}
  void backward(Tape& tape) override {
    const auto dy = tape.take_grad(y_);
    if (dy.empty()) return;
    const GainGrad dgain(tape, gain_);
    const InputGrad dx(tape, x_, static_cast<std::size_t>(x_.shape().elements()));
    kernels::rmsnorm_backward(tape.threads(), {.dy = dy.tensor,
                                               .x = x_.value(),
                                               .gain = tape.read(gain_.leaf->value),
                                               .gain_offset = offset_,
                                               .inv_rms = inv_rms_.floats(),
                                               .dx = dx.target.tensor,
                                               .add = dx.target.add,
                                               .dgain = dgain.floats()});
    tape.done(gain_);
  }

 private:
  VarId y_;
  Var x_, inv_rms_;
  LeafUse gain_;
  float offset_;
};

}  // namespace

Var layernorm(const Var& x, Leaf& gain, Leaf* bias, double eps, float gain_offset) {
  auto& tape = x.tape();
  auto y = tape.result(x.shape(), x.wants_grad() || gain.trained() || (bias && bias->trained()));
  auto mean = tape.make({x.shape().rows()}, false), inv_std = tape.make({x.shape().rows()}, false);
  kernels::layernorm_forward(tape.threads(), {.x = x.value(),
                                              .gain = tape.read(gain.value),
                                              .bias = bias ? tape.read(bias->value) : Floats(tape),
                                              .eps = eps,
                                              .gain_offset = gain_offset,
                                              .y = y.value(),
                                              .mean = mean.floats(),
                                              .inv_std = inv_std.floats()});
  if (y.wants_grad())
    tape.record<LayerNorm>(y, x, std::move(mean), std::move(inv_std), tape.use(&gain), tape.use(bias), gain_offset);
  return y;
}

Var rmsnorm(const Var& x, Leaf& gain, double eps, float gain_offset) {
  auto& tape = x.tape();
  auto y = tape.result(x.shape(), x.wants_grad() || gain.trained());
  auto inv_rms = tape.make({x.shape().rows()}, false);
  kernels::rmsnorm_forward(tape.threads(), {.x = x.value(),
                                            .gain = tape.read(gain.value),
                                            .eps = eps,
                                            .gain_offset = gain_offset,
                                            .y = y.value(),
                                            .inv_rms = inv_rms.floats()});
  if (y.wants_grad()) tape.record<RmsNorm>(y, x, std::move(inv_rms), tape.use(&gain), gain_offset);
  return y;
}

}  // namespace tessera::autograd
