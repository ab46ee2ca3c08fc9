#include "framework/nn/flat_parameters.h"

#include <algorithm>

#include "framework/base/random.h"
#include "framework/kernels/type_conversion.h"

namespace tessera::nn {
namespace {

/// values[i] = std * draw(key, id of the parameter, index of i in the unsharded tensor).
template <class Draw>
void fill_drawn(kernels::Threads& threads, const Parameter& parameter, std::uint64_t seed, std::span<float> values,
                const Draw& draw) {
  const RandomKey key(seed, Purpose::initial_weights);
  const auto id = name_id(parameter.name);
  constexpr std::size_t tile = 4096;
  for (const auto& range : global_ranges_of(parameter)) {
    const auto own = values.first(static_cast<std::size_t>(range.count));
    values = values.subspan(own.size());
    const auto offset = static_cast<std::uint64_t>(range.first);
    threads.parallel_for(own.size(), tile, [&](std::size_t first, std::size_t last) {
      for (auto i = first; i < last; ++i)
        own[i] = static_cast<float>(parameter.init.std * draw(key, id, offset + static_cast<std::uint64_t>(i)));
    });
  }
}

}  // namespace

// Ranges begin at multiples of 64 elements, so that every block of the optimizer belongs to one parameter, and the
// shards of a distributed optimizer can begin and end at blocks.
FlatParameters::FlatParameters(std::vector<Parameter*> parameters) {
  int number = 0;
  for (auto* parameter : parameters) {
    const ParameterRange range{parameter, elements_, parameter->elements()};
    parameter->leaf.number = number++;
    ranges_.push_back(range);
    elements_ += range.padded();
  }
}

bool FlatParameters::has_16_bit() const {
  return std::any_of(ranges_.begin(), ranges_.end(),
                     [](const ParameterRange& range) { return range.parameter->type != DType::float32; });
}

Tensor FlatParameters::view(const ParameterRange& range, std::span<float> flat) {
  return {flat.subspan(static_cast<std::size_t>(range.first), static_cast<std::size_t>(range.count)),
          range.parameter->shape()};
}

void FlatParameters::initialise(kernels::Threads& threads, std::uint64_t seed, const Parameter& parameter,
                                std::span<float> values) {
  switch (parameter.init.kind) {
    case Init::Kind::zeros:
      std::fill(values.begin(), values.end(), 0.0F);
      break;
    case Init::Kind::ones:
      std::fill(values.begin(), values.end(), 1.0F);
      break;
    case Init::Kind::normal:
      fill_drawn(threads, parameter, seed, values,
                 [](const RandomKey& key, std::uint64_t id, std::uint64_t i) { return key.normal(id, i); });
      break;
    case Init::Kind::constant:
      std::fill(values.begin(), values.end(), static_cast<float>(parameter.init.std));
      break;
    case Init::Kind::uniform:
      fill_drawn(threads, parameter, seed, values,
                 [](const RandomKey& key, std::uint64_t id, std::uint64_t i) { return 2 * key.uniform(id, i) - 1; });
      break;
  }
  // fp32 master weights of a 16-bit parameter start with the rounded value, as in Megatron-LM, which initializes the
  // 16-bit model first.
  kernels::round_to(threads, parameter.type, values);
}

}  // namespace tessera::nn
