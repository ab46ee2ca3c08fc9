// A mixture of experts whose experts and tokens are on several ranks gives what one rank computes: values and
// gradients.
#include <random>

#include "framework/nn/mixture_of_experts.h"
#include "framework/parallel/expert_parallel.h"
#include "tests/parallel/ranks/cut.h"

namespace tessera::parallel {
namespace {

constexpr std::int64_t hidden = 12;

/// Adapters of layers that a seed chooses: of the router, of experts, of a shared one.
class DrawnAdapters final : public nn::AdapterPlan {
 public:
  explicit DrawnAdapters(unsigned seed) : seed_(seed) {}
  std::vector<nn::AdapterForm> adapters_of(const std::string& module, std::int64_t,
                                           std::span<const nn::LinearPart> parts) const override {
    std::mt19937 draw(seed_ + static_cast<unsigned>(name_id(module)));
    std::vector<nn::AdapterForm> all;
    const auto add = [&](const nn::LinearPart& part) {
      if (draw() % 3 > 0)
        all.push_back(
            {.part = part, .rank = 1 + static_cast<std::int64_t>(draw() % 3), .scale = 0.5, .dropout = rate()});
    };
    const bool whole = draw() % 2 == 0;
    if (whole || parts.empty()) add({});
    if (!whole)
      for (const auto& part : parts) add(part);
    return all;
  }

 private:
  double rate() const { return seed_ % 2 == 0 ? 0.25 : 0; }
  unsigned seed_;
};

/// A drawn layer and layout of the eight ranks, the same on all of them.
struct Drawn {
  std::mt19937 draw;
  MeshSizes mesh;
  nn::ExpertSizes sizes;
  std::int64_t samples = 1, length = 8;
  bool contiguous = false, gated = true;
  std::shared_ptr<const nn::AdapterPlan> adapters;

  explicit Drawn(unsigned seed) : draw(seed) {
    const auto one_of = [&](auto... all) {
      const std::array options{static_cast<int>(all)...};
      return options[draw() % options.size()];
    };
    mesh.tensor = one_of(1, 2, 4);
    mesh.context = one_of(1, 2, 8 / mesh.tensor);
    mesh.context = std::min(mesh.context, 8 / mesh.tensor);
    mesh.data = 8 / mesh.tensor / mesh.context;
    mesh.expert_tensor = one_of(1, 1, 2, mesh.tensor);
    mesh.expert = one_of(1, 2, 4, 8);
    while (mesh.expert * mesh.expert_tensor > 8) mesh.expert /= 2;
    contiguous = draw() % 3 == 0;
    gated = draw() % 2 == 0;
    samples = one_of(1, 2);
    length = 16 * one_of(1, 2);
    sizes.hidden = hidden;
    sizes.inner = 8 * one_of(1, 2);
    sizes.rule = {8, one_of(1, 2, 3)};
    sizes.rule.score = draw() % 2 == 0 ? kernels::RouterScore::softmax : kernels::RouterScore::sigmoid;
    sizes.rule.pre_softmax = sizes.rule.topk == 1;
    sizes.balance = std::array{autograd::RouterBalance::none, autograd::RouterBalance::aux_loss,
                               autograd::RouterBalance::seq_aux_loss, autograd::RouterBalance::sinkhorn}[draw() % 4];
    sizes.aux_coefficient = sizes.balance == autograd::RouterBalance::sinkhorn ? 0 : 0.5;
    sizes.z_coefficient = draw() % 2 == 0 ? 0.25 : 0;
    sizes.capacity_factor =
        sizes.balance != autograd::RouterBalance::sinkhorn && draw() % 2 == 0 ? 0.5 * one_of(1, 2) : 0;
    sizes.drop_policy = draw() % 2 == 0 ? kernels::DropPolicy::probs : kernels::DropPolicy::position;
    sizes.weights_on_input = sizes.rule.topk == 1 && draw() % 2 == 0;
    sizes.shared_inner = draw() % 2 == 0 ? 8 : 0;
    if (draw() % 2 == 0) adapters = std::make_shared<const DrawnAdapters>(static_cast<unsigned>(draw()));
    sizes.init = nn::Init::normal(0.8);
    sizes.out_init = nn::Init::normal(0.5);
  }
  nn::FeedForwardKind kind() const { return gated ? nn::FeedForwardKind::swiglu : nn::FeedForwardKind::gelu_tanh; }
  Shape whole() const { return {samples, length, hidden}; }
};

std::ostream& operator<<(std::ostream& out, const Drawn& d) {
  return out << "tensor " << d.mesh.tensor << ", context " << d.mesh.context << (d.contiguous ? " (contiguous)" : "")
             << ", data " << d.mesh.data << ", expert " << d.mesh.expert << ", expert tensor " << d.mesh.expert_tensor
             << ", top " << d.sizes.rule.topk << ", balance " << static_cast<int>(d.sizes.balance) << ", capacity "
             << d.sizes.capacity_factor << ", shared " << d.sizes.shared_inner << (d.adapters ? ", adapters" : "");
}

/// A layer with its weights and gradients.
struct Layer {
  Layer(const Drawn& d, const nn::ExpertRank& rank, const nn::LayerMaker& maker)
      : experts(d.kind(), "mlp", 0, d.sizes, rank, maker), weights(experts) {}
  nn::MixtureOfExperts experts;
  Weights weights;
};

struct Outcome {
  std::vector<float> y, dx;
};

/// Adds the gradients of one micro-batch to those of the layer.
Outcome run(const Layer& layer, const Shape& shape, std::vector<float> x, const std::vector<float>& dy,
            const nn::Pass& pass) {
  Work work;
  const auto input = work.input(x, shape);
  const auto y = layer.experts.forward(input, pass);
  Outcome out{values_of(y), {}};
  out.dx = work.backward(y, dy, input);
  return out;
}

/// The rows of [B, S, width] that a rank has.
std::vector<float> held(const Drawn& d, const nn::HeldTokens& tokens, std::int64_t here, const std::vector<float>& x) {
  std::vector<float> out;
  for (std::int64_t b = 0; b < d.samples; ++b)
    for (std::int64_t t = 0; t < here; ++t) {
      const auto index = b * d.length + tokens.first + t + (t >= tokens.before_gap ? tokens.gap : 0);
      out.insert(out.end(), x.begin() + index * hidden, x.begin() + (index + 1) * hidden);
    }
  return out;
}

TEST(ExpertParallel, GivesOnAnyLayoutWhatOneRankComputes) {
  const auto first = static_cast<unsigned>(std::stoul(
      world().all().broadcast(world().rank() == 0 ? std::to_string(std::random_device()()) : "", 0, "seed")));
  for (unsigned i = 0; i < 40; ++i) {
    const Drawn d(first + i);
    std::ostringstream told;
    told << "seed " << first + i << ": " << d;
    SCOPED_TRACE(told.str());
    const ProcessGroups groups(world(), Mesh(d.mesh), 1);
    const auto tensor = groups.tensor_rank(true);
    const nn::ContextRank context{groups.place.context, d.mesh.context, d.contiguous};
    const TensorParallelLayers maker(tensor, d.adapters);
    Layer whole(d, {}, nn::LayerMaker({}, d.adapters)), part(d, groups.expert_rank(), maker);
    nn::Pass pass;
    pass.B = d.samples;
    pass.T = pass.S = d.length;
    pass.training = true;
    pass.auxiliary_seed = 1;
    std::vector<std::int64_t> samples = {4, 9};
    samples.resize(static_cast<std::size_t>(d.samples));
    pass.sample_ids = samples;
    Outcome expected, got;
    for (int replica = 0; replica < d.mesh.data; ++replica) {
      const auto x = made(d.whole().elements(), 3 * replica + 1), dy = made(d.whole().elements(), 3 * replica + 2);
      auto all = run(whole, d.whole(), x, dy, pass);
      if (replica != groups.place.data) continue;
      const auto here = d.length / groups.micro_batch.size(), begin = tensor.cuts_sequence() ? here * tensor.rank : 0;
      auto own = pass;
      own.T = d.length / d.mesh.context;
      own.groups = &groups;
      own.held = nn::HeldTokens::of(context, begin, begin + here, d.length);
      const ExpertParallel sharing(groups.expert_rank(), context, tensor);
      own.experts = &sharing;
      const auto part_of_batch = [&](const std::vector<float>& values) { return held(d, own.held, here, values); };
      got = run(part, {d.samples, here, hidden}, part_of_batch(x), part_of_batch(dy), own);
      expected = {part_of_batch(all.y), part_of_batch(all.dx)};
    }
    expect_near(got.y, expected.y, "y");
    expect_near(got.dx, expected.dx, "dx");
    // Tokens are divided over tensor, context and data ranks; those of a rank of experts came from all who share them.
    for (const auto& range : part.weights.layout().ranges()) {
      const bool expert = range.parameter->role == ParameterRole::expert;
      (expert ? groups.expert_data : groups.data).all_reduce(part.weights.grad(range), "gradients");
      if (expert && !range.parameter->shared.empty())
        groups.expert_tensor.all_reduce(part.weights.grad(range), "gradients of factors");
      if (!expert && range.parameter->cut.strips.empty() && tensor.cuts_sequence())
        groups.tensor.all_reduce(part.weights.grad(range), "gradients of copies");
    }
    part.weights.expect_part_of(whole.weights);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace tessera::parallel
