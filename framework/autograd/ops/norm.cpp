#include "framework/autograd/ops/norm.h"

#include "framework/kernels/norm.h"

namespace tessera::autograd {
namespace {

std::span<float> grad_of(Tape& tape, const LeafUse& use) {
  return use && use.leaf->trained() ? use.leaf->grad_to_add_to(tape.threads()) : std::span<float>{};
}

/// The gradient of the gain; scratch memory if the gain is frozen, because the kernels always add to dgain.
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

/// The gradient of x; scratch memory if x wants none, because the kernels always write dx.
struct InputGrad {
  InputGrad(Tape& tape, VarId x, std::size_t count) : target(tape.grad_target(x)) {
    if (!target.tensor.empty()) return;
    memory = tape.scratch(count);
    target.tensor = Tensor(memory.bytes(), DType::float32, {static_cast<std::int64_t>(count)});
  }
  Memory memory;
  Tape::Target target;
};

/// Constants in the formula of a norm.
struct Constants {
  double eps;
  float gain_offset;
};

void normalize(Tape& tape, const Var& x, const Leaf& gain, const Leaf* bias, const Constants& of, const Tensor& y,
               const Var& mean, const Var& inv_std) {
  kernels::layernorm_forward(tape.threads(), {.x = x.value(),
                                              .gain = tape.read(gain.value),
                                              .bias = bias ? tape.read(bias->value) : Floats(tape),
                                              .eps = of.eps,
                                              .gain_offset = of.gain_offset,
                                              .y = y,
                                              .mean = mean.floats(),
                                              .inv_std = inv_std.floats()});
}

void normalize(Tape& tape, const Var& x, const Leaf& gain, const Constants& of, const Tensor& y, const Var& inv_rms) {
  kernels::rmsnorm_forward(tape.threads(), {.x = x.value(),
                                            .gain = tape.read(gain.value),
                                            .eps = of.eps,
                                            .gain_offset = of.gain_offset,
                                            .y = y,
                                            .inv_rms = inv_rms.floats()});
}

class LayerNorm final : public Node, public Restorable {
 public:
  LayerNorm(VarId y, Var x, Var mean, Var inv_std, LeafUse gain, LeafUse bias, const Constants& of)
      : y_(y),
        x_(std::move(x)),
        mean_(std::move(mean)),
        inv_std_(std::move(inv_std)),
        gain_(gain),
        bias_(bias),
        of_(of) {}
  void restore(Tape& tape) override {
    normalize(tape, x_, *gain_.leaf, bias_.leaf, of_, tape.renewed(y_), mean_, inv_std_);
  }
  void backward(Tape& tape) override {
    const auto dy = tape.take_grad(y_);
    if (dy.empty()) return;
    const GainGrad dgain(tape, gain_);
    const InputGrad dx(tape, x_, static_cast<std::size_t>(x_.shape().elements()));
    kernels::layernorm_backward(tape.threads(), {.dy = dy.tensor,
                                                 .x = x_.value(),
                                                 .gain = tape.read(gain_.leaf->value),
                                                 .gain_offset = of_.gain_offset,
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
  Constants of_;
};

class RmsNorm final : public Node, public Restorable {
 public:
  RmsNorm(VarId y, Var x, Var inv_rms, LeafUse gain, const Constants& of)
      : y_(y), x_(std::move(x)), inv_rms_(std::move(inv_rms)), gain_(gain), of_(of) {}
  void restore(Tape& tape) override { normalize(tape, x_, *gain_.leaf, of_, tape.renewed(y_), inv_rms_); }
  void backward(Tape& tape) override {
    const auto dy = tape.take_grad(y_);
    if (dy.empty()) return;
    const GainGrad dgain(tape, gain_);
    const InputGrad dx(tape, x_, static_cast<std::size_t>(x_.shape().elements()));
    kernels::rmsnorm_backward(tape.threads(), {.dy = dy.tensor,
                                               .x = x_.value(),
                                               .gain = tape.read(gain_.leaf->value),
                                               .gain_offset = of_.gain_offset,
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
  Constants of_;
};

}  // namespace

Var layernorm(const Var& x, Leaf& gain, Leaf* bias, double eps, float gain_offset) {
  auto& tape = x.tape();
  auto y = tape.result(x.shape(), x.wants_grad() || gain.trained() || (bias && bias->trained()));
  auto mean = tape.make({x.shape().rows()}, false), inv_std = tape.make({x.shape().rows()}, false);
  const Constants of{eps, gain_offset};
  normalize(tape, x, gain, bias, of, y.value(), mean, inv_std);
  if (y.wants_grad())
    tape.restored_by(
        y, tape.record<LayerNorm>(y, x, std::move(mean), std::move(inv_std), tape.use(&gain), tape.use(bias), of));
  return y;
}

Var rmsnorm(const Var& x, Leaf& gain, double eps, float gain_offset) {
  auto& tape = x.tape();
  auto y = tape.result(x.shape(), x.wants_grad() || gain.trained());
  auto inv_rms = tape.make({x.shape().rows()}, false);
  const Constants of{eps, gain_offset};
  normalize(tape, x, gain, of, y.value(), inv_rms);
  if (y.wants_grad()) tape.restored_by(y, tape.record<RmsNorm>(y, x, std::move(inv_rms), tape.use(&gain), of));
  return y;
}

}  // namespace tessera::autograd
