#include "framework/nn/flat_parameters.h"

#include <algorithm>

#include "framework/base/random.h"

namespace tessera {
namespace {

void fill_normal(Threads& threads, const Parameter& parameter, std::uint64_t seed) {
  const RandomKey key(seed, Purpose::initial_weights);
  const auto id = name_id(parameter.name);
  const auto values = parameter.leaf.value.floats();
  constexpr std::size_t tile = 4096;
  threads.parallel_for(values.size(), tile, [&](std::size_t first, std::size_t last) {
    for (auto i = first; i < last; ++i) values[i] = static_cast<float>(parameter.init.std * key.normal(id, i));
  });
}

}  // namespace

FlatParameters::FlatParameters(std::vector<Parameter*> parameters) {
  int number = 0;
  for (auto* parameter : parameters) {
    const Run run{parameter, elements_, parameter->elements()};
    parameter->leaf.number = number++;
    runs_.push_back(run);
    elements_ += run.padded();
  }
}

void FlatParameters::bind(std::span<float> values, std::span<float> gradients) const {
  const auto all = static_cast<std::size_t>(elements_);
  if (values.size() < all || (!gradients.empty() && gradients.size() < all))
    throw ShapeError(text("parameters: ", values.size(), " values and ", gradients.size(), " gradients came; ", all,
                          " were promised"));
  for (const auto& run : runs_) {
    run.parameter->leaf.value = view(run, values);
    run.parameter->leaf.grad = gradients.empty() ? Tensor{} : view(run, gradients);
  }
}

Tensor FlatParameters::view(const Run& run, std::span<float> flat) {
  return {flat.subspan(static_cast<std::size_t>(run.first), static_cast<std::size_t>(run.count)),
          run.parameter->global_shape};
}

void FlatParameters::initialise(Threads& threads, std::uint64_t seed) const {
  for (const auto& run : runs_) {
    const auto values = run.parameter->leaf.value.floats();
    switch (run.parameter->init.kind) {
      case Init::Kind::zeros:
        std::fill(values.begin(), values.end(), 0.0F);
        break;
      case Init::Kind::ones:
        std::fill(values.begin(), values.end(), 1.0F);
        break;
      case Init::Kind::normal:
        fill_normal(threads, *run.parameter, seed);
        break;
    }
  }
}

}  // namespace tessera
