#include "framework/autograd/ops/attention.h"

namespace tessera::autograd {
namespace {

/// A rotation is orthogonal, so the gradient is the reverse rotation, done in place in the gradient's own memory.
class Rotary final : public Node {
 public:
  Rotary(VarId y, VarId x, kernels::RotaryExtents e, const RotaryTables& tables,
         std::span<const std::int32_t> positions)
      : y_(y), x_(x), e_(e), tables_(tables), positions_(positions) {}
  void backward(Tape& tape) override {
    auto dy = tape.take_grad(y_);
    if (dy.empty()) return;
    must(!dy.memory.shared(), "the gradient of a rotation belongs to it alone");
    kernels::rotary(tape.threads(), e_, tables_.head_offsets, positions_, tables_.cosine, tables_.sine, true,
                    dy.tensor);
    tape.give_grad(x_, std::move(dy));
  }

 private:
  VarId y_, x_;
  kernels::RotaryExtents e_;
  RotaryTables tables_;
  std::span<const std::int32_t> positions_;
};

/// q, k and v are slices of one buffer, and so are dq, dk and dv: the kernel is given the same span three times.
class Attention final : public Node {
 public:
  Attention(VarId y, Var qkv, Var out, Var lse, const kernels::AttentionExtents& e, const kernels::VisibleKeys& visible,
            const kernels::DropoutMask& mask, const HeadSinks& sinks, LeafUse use)
      : y_(y),
        qkv_(std::move(qkv)),
        out_(std::move(out)),
        lse_(std::move(lse)),
        e_(e),
        visible_(visible),
        mask_(mask),
        sinks_(sinks),
        use_(use) {}
  void backward(Tape& tape) override {
    const auto dy = tape.take_grad(y_);
    const auto target = tape.grad_target(qkv_);
    if (dy.empty()) return;
    if (sinks_.trained()) {
      const auto values = tape.read(sinks_.leaf->value);
      kernels::attention_sinks_backward(tape.threads(), e_, sinks_.part(values.span(), e_.H), out_.value(), dy.tensor,
                                        lse_.floats(), sinks_.part(sinks_.leaf->grad_to_add_to(tape.threads()), e_.H));
    }
    tape.done(use_);
    if (target.tensor.empty()) return;
    must(!target.add, "a fused projection has one attention");
    const Tensor x = qkv_.value(), dx = target.tensor;
    kernels::attention_backward(tape.threads(), e_, visible_, mask_,
                                {.q = x,
                                 .k = x,
                                 .v = x,
                                 .o = out_.value(),
                                 .lse = lse_.floats(),
                                 .d_o = dy.tensor,
                                 .dq = dx,
                                 .dk = dx,
                                 .dv = dx});
  }

 private:
  VarId y_;
  Var qkv_, out_, lse_;
  kernels::AttentionExtents e_;
  kernels::VisibleKeys visible_;
  kernels::DropoutMask mask_;
  HeadSinks sinks_;
  LeafUse use_;
};

}  // namespace

Var rotary(Var x, const RotaryTables& tables, std::span<const std::int32_t> positions) {
  auto& tape = x.tape();
  const VarId from = x;
  const kernels::RotaryExtents e{x.shape().rows(), x.shape().width(), tables.rotary_dim, tables.layout};
  const auto before = x.value();
  const bool grad = x.wants_grad();
  auto y = tape.reuse(std::move(x), grad);
  // Not copied if it is shared: a copy would double the memory of the largest activation of a layer unnoticed.
  must(before.raw().data() == y.value().raw().data(), "only the rotation looks at a projection");
  kernels::rotary(tape.threads(), e, tables.head_offsets, positions, tables.cosine, tables.sine, false, y.value());
  if (grad) tape.record<Rotary>(y, from, e, tables, positions);
  return y;
}

std::span<float> HeadSinks::part(std::span<float> all, std::int64_t heads) const {
  return leaf ? all.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(heads)) : std::span<float>();
}

Var attention(const Var& qkv, const kernels::AttentionExtents& e, const kernels::VisibleKeys& visible,
              const kernels::DropoutMask& mask, const HeadSinks& sinks) {
  auto& tape = qkv.tape();
  auto y = tape.result({e.B, e.T, e.H * e.D}, qkv.wants_grad() || sinks.trained());
  auto lse = tape.make({e.B, e.H, e.T}, false);
  const Tensor x = qkv.value();
  const auto values = sinks.leaf ? tape.read(sinks.leaf->value) : Floats(tape);
  kernels::attention_forward(
      tape.threads(), e, visible, mask,
      {.q = x, .k = x, .v = x, .o = y.value(), .lse = lse.floats(), .sinks = sinks.part(values.span(), e.H)});
  if (y.wants_grad())
    tape.record<Attention>(y, qkv, y, std::move(lse), e, visible, mask, sinks,
                           tape.use(sinks.trained() ? sinks.leaf : nullptr));
  return y;
}

}  // namespace tessera::autograd
