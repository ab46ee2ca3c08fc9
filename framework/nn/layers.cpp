#include "framework/nn/layers.h"

#include "framework/autograd/ops/activation.h"
#include "framework/autograd/ops/columns.h"
#include "framework/autograd/ops/norm.h"
#include "framework/kernels/vector.h"

namespace tessera::nn {
namespace {

/// The linear layer of one rank.
class WholeLinear final : public ActivatedLinearLayer {
 public:
  WholeLinear(const std::string& name, const LinearSizes& s)
      : ActivatedLinearLayer(name), weight_(declare("weight", s.role, {s.out, s.in}, s.init)) {
    if (s.has_bias) bias_ = &declare("bias", ParameterRole::bias, {s.out}, Init::zeros());
    adapters_ = make_adapters(name, s.adapters, weight_, {}, {});
    if (adapters_) contains(*adapters_);
  }
  autograd::Var forward(const autograd::Var& x, const Pass& pass) const override {
    return adapters_ ? adapters_->forward(x, weight_.leaf, bias(), pass) : autograd::linear(x, weight_.leaf, bias());
  }
  autograd::Var forward(const autograd::Var& x, kernels::Activation act, const Pass& pass) const override {
    return adapters_ ? autograd::activated(forward(x, pass), act)
                     : autograd::linear_activation(x, weight_.leaf, bias(), act);
  }
  autograd::Leaf& weight() const override { return weight_.leaf; }
  const Adapters* adapters() const override { return adapters_.get(); }

 private:
  autograd::Leaf* bias() const { return bias_ ? &bias_->leaf : nullptr; }
  Parameter& weight_;
  Parameter* bias_ = nullptr;
  std::unique_ptr<Adapters> adapters_;
};

class WholeGatheredLinear final : public GatheredLinear {
 public:
  WholeGatheredLinear(const std::string& name, const LinearSizes& s) : GatheredLinear(name), linear_(name, s) {
    contains(linear_);
  }
  Parts forward(const autograd::Var& x, std::int64_t first, const Pass& pass) const override {
    return cut(linear_.forward(x, pass), first);
  }

 private:
  WholeLinear linear_;
};

class LayerNormLayer final : public Norm {
 public:
  LayerNormLayer(const std::string& name, std::int64_t width, const NormKind& kind, double first_gain)
      : Norm(name),
        gain_(declare("weight", ParameterRole::norm_gain, {width}, kind.gain(first_gain))),
        bias_(declare("bias", ParameterRole::bias, {width}, Init::zeros())),
        kind_(kind) {}
  autograd::Var forward(const autograd::Var& x) const override {
    return autograd::layernorm(x, gain_.leaf, &bias_.leaf, kind_.eps, kind_.gain_offset());
  }

 private:
  Parameter &gain_, &bias_;
  NormKind kind_;
};

class RmsNormLayer final : public Norm {
 public:
  RmsNormLayer(const std::string& name, std::int64_t width, const NormKind& kind, double first_gain)
      : Norm(name), gain_(declare("weight", ParameterRole::norm_gain, {width}, kind.gain(first_gain))), kind_(kind) {}
  autograd::Var forward(const autograd::Var& x) const override {
    return autograd::rmsnorm(x, gain_.leaf, kind_.eps, kind_.gain_offset());
  }

 private:
  Parameter& gain_;
  NormKind kind_;
};

}  // namespace

GatheredLinear::Parts GatheredLinear::cut(autograd::Var y, std::int64_t first) {
  const auto rest = y.shape().width() - first;
  if (rest == 0) return {std::move(y), {}};
  Parts parts;
  parts.own = autograd::columns(y, 0, first);
  parts.all = autograd::columns(y, first, rest);
  return parts;
}

autograd::Var LinearLayer::merged_weight(autograd::Tape& tape) const {
  if (!adapters()) return {};
  const auto& w = weight();
  auto merged = tape.make(w.value.shape(), false);
  kernels::copy(tape.threads(), tape.read(w, DType::float32), merged.floats());
  adapters()->merge_into(tape, merged.floats());
  return merged;
}

TensorCut TensorRank::part(std::size_t dim, std::int64_t extent, const char* what) const {
  if (whole()) return {};
  if (extent % ranks != 0)
    throw ShapeError(text("tensor parallel: ", extent, " ", what, " cannot be divided equally over ", ranks,
                          " tensor-parallel ranks; make it a multiple of ", ranks));
  return TensorCut::even(dim, extent, rank, ranks);
}

std::unique_ptr<ActivatedLinearLayer> LayerMaker::column_parallel(const std::string& name, const LinearSizes& sizes,
                                                                  TensorCut rows) const {
  must(tensor_.whole() && rows.strips.empty(),
       "the layers of this maker are whole; sharded ones are made in parallel/");
  return std::make_unique<WholeLinear>(name, with_adapters(name, sizes));
}

std::unique_ptr<LinearLayer> LayerMaker::row_parallel(const std::string& name, const LinearSizes& sizes) const {
  return std::make_unique<WholeLinear>(name, with_adapters(name, sizes));
}

std::unique_ptr<GatheredLinear> LayerMaker::gathered(const std::string& name, const LinearSizes& sizes) const {
  must(tensor_.whole(), "the layers of this maker are whole; sharded ones are made in parallel/");
  return std::make_unique<WholeGatheredLinear>(name, with_adapters(name, sizes));
}

SumOverRanks LayerMaker::sum_over_ranks(const std::string&) const {
  must(tensor_.whole(), "the layers of this maker are whole; sharded ones are made in parallel/");
  return {};
}

LinearSizes LayerMaker::with_adapters(const std::string& name, LinearSizes sizes) const {
  if (adapters_ && (sizes.role == ParameterRole::matrix || sizes.role == ParameterRole::output_layer))
    sizes.adapters = adapters_->adapters_of(name, sizes.in, sizes.parts);
  return sizes;
}

const LayerMaker& whole_layers() {
  static const LayerMaker maker;
  return maker;
}

std::unique_ptr<Norm> make_norm(const NormKind& kind, const std::string& name, std::int64_t width, double first_gain) {
  if (kind.kind == Normalization::rms_norm) return std::make_unique<RmsNormLayer>(name, width, kind, first_gain);
  return std::make_unique<LayerNormLayer>(name, width, kind, first_gain);
}

}  // namespace tessera::nn
