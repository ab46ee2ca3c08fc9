#include "framework/nn/layers.h"

#include "framework/autograd/ops/norm.h"

namespace tessera {
namespace {

Init unit_gain(bool zero_centred) { return zero_centred ? Init::zeros() : Init::ones(); }

class LayerNormLayer final : public Norm {
 public:
  LayerNormLayer(const std::string& name, std::int64_t width, double eps, bool zero_centred)
      : Norm(name),
        gain_(declare("weight", {width}, unit_gain(zero_centred))),
        bias_(declare("bias", {width}, Init::zeros())),
        eps_(eps),
        offset_(zero_centred ? 1.0F : 0.0F) {}
  Var forward(const Var& x) const override { return layernorm(x, gain_.leaf, &bias_.leaf, eps_, offset_); }

 private:
  Parameter &gain_, &bias_;
  double eps_;
  float offset_;
};

class RmsNormLayer final : public Norm {
 public:
  RmsNormLayer(const std::string& name, std::int64_t width, double eps, bool zero_centred)
      : Norm(name),
        gain_(declare("weight", {width}, unit_gain(zero_centred))),
        eps_(eps),
        offset_(zero_centred ? 1.0F : 0.0F) {}
  Var forward(const Var& x) const override { return rmsnorm(x, gain_.leaf, eps_, offset_); }

 private:
  Parameter& gain_;
  double eps_;
  float offset_;
};

}  // namespace

LinearLayer::LinearLayer(const std::string& name, std::int64_t in, std::int64_t out, bool has_bias, Init init)
    : Module(name), weight_(declare("weight", {out, in}, init)) {
  if (has_bias) bias_ = &declare("bias", {out}, Init::zeros());
}

std::unique_ptr<Norm> make_norm(Normalization kind, const std::string& name, std::int64_t width, double eps,
                                bool zero_centred) {
  if (kind == Normalization::rms_norm) return std::make_unique<RmsNormLayer>(name, width, eps, zero_centred);
  return std::make_unique<LayerNormLayer>(name, width, eps, zero_centred);
}

}  // namespace tessera
