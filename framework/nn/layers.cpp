#include "framework/nn/layers.h"

#include "framework/autograd/ops/norm.h"

namespace tessera {
namespace {

class LayerNormLayer final : public Norm {
 public:
  LayerNormLayer(const std::string& name, std::int64_t width, const NormKind& kind, double first_gain)
      : Norm(name),
        gain_(declare("weight", {width}, kind.gain(first_gain))),
        bias_(declare("bias", {width}, Init::zeros())),
        kind_(kind) {}
  Var forward(const Var& x) const override {
    return layernorm(x, gain_.leaf, &bias_.leaf, kind_.eps, kind_.gain_offset());
  }

 private:
  Parameter &gain_, &bias_;
  NormKind kind_;
};

class RmsNormLayer final : public Norm {
 public:
  RmsNormLayer(const std::string& name, std::int64_t width, const NormKind& kind, double first_gain)
      : Norm(name), gain_(declare("weight", {width}, kind.gain(first_gain))), kind_(kind) {}
  Var forward(const Var& x) const override { return rmsnorm(x, gain_.leaf, kind_.eps, kind_.gain_offset()); }

 private:
  Parameter& gain_;
  NormKind kind_;
};

}  // namespace

LinearLayer::LinearLayer(const std::string& name, std::int64_t in, std::int64_t out, bool has_bias, Init init)
    : Module(name), weight_(declare("weight", {out, in}, init)) {
  if (has_bias) bias_ = &declare("bias", {out}, Init::zeros());
}

std::unique_ptr<Norm> make_norm(const NormKind& kind, const std::string& name, std::int64_t width, double first_gain) {
  if (kind.kind == Normalization::rms_norm) return std::make_unique<RmsNormLayer>(name, width, kind, first_gain);
  return std::make_unique<LayerNormLayer>(name, width, kind, first_gain);
}

}  // namespace tessera
