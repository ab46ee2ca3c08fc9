// What does a mixture of experts cost beside the dense network of equal active products?
//
//   bench_experts [--threads N] [--seconds S] [--width H]
//
// Forward and backward pass of one layer of SwiGLU experts, alternately with the dense layer whose inner width is that
// of all chosen experts of a token together. "one expert": half of all choices go to the same expert. "routing":
// router, sorting and collecting, as the time of the layer extrapolated to experts of inner width 0. "memory":
// activations kept for the backward pass, over those of the dense layer.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>

#include "benchmarks/report.h"
#include "framework/base/error.h"
#include "framework/nn/bound_parameters.h"
#include "framework/nn/flat_parameters.h"
#include "framework/nn/mixture_of_experts.h"

namespace tessera {
namespace {

struct Case {
  std::int64_t experts, topk, inner, tokens;
};

/// A layer with its weights and gradients, and one pass over random tokens.
class Layer {
 public:
  Layer(std::unique_ptr<nn::FeedForward> layer, std::int64_t hidden, std::int64_t tokens, DType type,
        kernels::Threads& threads)
      : layer_(std::move(layer)), type_(type), tape_(arena_, threads, true) {
    const auto parameters = layer_->parameters();
    for (auto* p : parameters)
      if (p->role != ParameterRole::expert_bias) p->type = type;
    const nn::FlatParameters layout(parameters);
    const auto elements = static_cast<std::size_t>(layout.elements());
    values_.resize(elements);
    gradients_.resize(elements);
    rounded_.resize(2 * elements);
    bind_parameters(layout, values_, gradients_, rounded_);
    initialise_parameters(layout, threads, 1, values_);
    for (auto* p : parameters)
      if (p->role == ParameterRole::expert_bias) bias_ = p->leaf.value.floats();
    shape_ = Shape{1, tokens, hidden};
    x_.resize(static_cast<std::size_t>(tokens * hidden));
    seed_.resize(x_.size());
    std::mt19937 random(7);
    std::normal_distribution<float> draw;
    for (auto& x : x_) x = draw(random);
    for (auto& x : seed_) x = 1e-3F * draw(random);
    pass_.B = 1;
    pass_.T = pass_.S = tokens;
    pass_.training = true;
  }

  void run() {
    tape_.computes_in(type_);
    {
      // The input in the type of the activations, as an earlier layer would have left it.
      const auto in = tape_.result(shape_, true);
      {
        const auto to = tape_.write(in);
        std::copy(x_.begin(), x_.end(), to.span().begin());
      }
      const auto before = arena_.in_use();
      const auto y = layer_->forward(in, pass_);
      kept_ = arena_.in_use() - before;
      const auto seed = tape_.result(shape_, false);
      {
        const auto to = tape_.write(seed);
        std::copy(seed_.begin(), seed_.end(), to.span().begin());
      }
      tape_.seed(y, seed.value());
    }
    tape_.backward();
    tape_.clear();
  }
  /// Half of all choices (K = 2) fall on expert 0.
  void crowd(bool crowded) { bias_[0] = crowded ? 10.0F : 0.0F; }
  std::size_t kept() const { return kept_; }

 private:
  std::unique_ptr<nn::FeedForward> layer_;
  DType type_;
  Arena arena_;
  autograd::Tape tape_;
  std::vector<float> values_, gradients_, x_, seed_;
  std::vector<std::byte> rounded_;
  std::span<float> bias_;
  Shape shape_ = {};
  nn::Pass pass_;
  std::size_t kept_ = 0;
};

Layer experts(const Case& c, std::int64_t hidden, DType type, kernels::Threads& threads) {
  nn::ExpertSizes sizes;
  sizes.hidden = hidden;
  sizes.inner = c.inner;
  sizes.rule = {c.experts, c.topk, kernels::RouterScore::sigmoid};
  sizes.has_bias = true;
  sizes.init = sizes.out_init = nn::Init::normal(0.02);
  return {std::make_unique<nn::MixtureOfExperts>(nn::FeedForwardKind::swiglu, "experts", 0, sizes, nn::ExpertRank{},
                                                 nn::whole_layers()),
          hidden, c.tokens, type, threads};
}

Layer dense(const Case& c, std::int64_t hidden, DType type, kernels::Threads& threads) {
  nn::FeedForwardSizes sizes;
  sizes.hidden = hidden;
  sizes.inner = c.topk * c.inner;
  sizes.init = sizes.out_init = nn::Init::normal(0.02);
  return {nn::make_feed_forward(nn::FeedForwardKind::swiglu, "dense", sizes, nn::whole_layers()), hidden, c.tokens,
          type, threads};
}

void measure(const Case& c, std::int64_t hidden, DType type, kernels::Threads& threads, double seconds) {
  auto network = dense(c, hidden, type, threads), mixture = experts(c, hidden, type, threads);
  constexpr std::int64_t narrow_inner = 32;
  auto narrow = experts({c.experts, c.topk, narrow_inner, c.tokens}, hidden, type, threads);
  auto wider = experts({c.experts, c.topk, 2 * narrow_inner, c.tokens}, hidden, type, threads);
  const auto clock = fair_clock(threads);
  std::vector<double> over_dense, crowded, routing;
  Timing of_dense;
  constexpr int rounds = 7;
  for (int round = 0; round < rounds; ++round) {
    const auto once = [&](Layer& layer) {
      return time([&] { layer.run(); }, clock, seconds / rounds, 3, round == 0 ? 2 : 1);
    };
    of_dense = once(network);
    mixture.crowd(false);
    const auto balanced = once(mixture).median;
    over_dense.push_back(of_dense.median / balanced);
    routing.push_back((2 * once(narrow).median - once(wider).median) / balanced);
    mixture.crowd(true);
    crowded.push_back(balanced / once(mixture).median);
  }
  const auto middle = [](std::vector<double> all) {
    std::sort(all.begin(), all.end());
    return all[all.size() / 2];
  };
  std::printf(
      "%-8s %3ld experts top %ld inner %4ld, %5ld tokens: dense %7.2f ms; dense/experts %.3f (%.2f to %.2f), "
      "balanced/one expert %s, routing %.3f, memory %.2f\n",
      std::string(name_of(type)).c_str(), static_cast<long>(c.experts), static_cast<long>(c.topk),
      static_cast<long>(c.inner), static_cast<long>(c.tokens), 1e3 * of_dense.median, middle(over_dense),
      *std::min_element(over_dense.begin(), over_dense.end()), *std::max_element(over_dense.begin(), over_dense.end()),
      c.topk == 2 ? std::to_string(middle(crowded)).substr(0, 5).c_str() : "-", middle(routing),
      static_cast<double>(mixture.kept()) / static_cast<double>(network.kept()));
  std::fflush(stdout);
}

int run_benchmark(int argc, char** argv) {
  int threads = 2;
  double seconds = 2;
  std::int64_t width = 768;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string word = argv[i];
    if (word == "--threads")
      threads = std::atoi(argv[i + 1]);
    else if (word == "--seconds")
      seconds = std::atof(argv[i + 1]);
    else if (word == "--width")
      width = std::atoll(argv[i + 1]);
    else
      throw ConfigError(text("no option '", word, "'; see the head of benchmarks/experts.cpp"));
  }
  print_head("What does a mixture of experts cost beside a dense network?", threads);
  kernels::Threads pool(threads);
  for (const auto type : {DType::float32, DType::bfloat16})
    for (const auto& c : {Case{8, 2, 1536, 1024}, Case{8, 2, 1536, 4096}, Case{64, 6, 256, 4096}})
      measure(c, width, type, pool, seconds);
  return 0;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  try {
    return tessera::run_benchmark(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
