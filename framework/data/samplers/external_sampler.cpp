#include "framework/data/samplers/external_sampler.h"

#include <algorithm>

namespace tessera::data {
namespace {

struct Missing {};
void describe(options::Schema<Missing>&) {}

std::unique_ptr<Sampler> refuse(const Missing&, SamplerParts) {
  throw ConfigError(
      text("dataloader_type external: no sampler is registered under this name; ", how_to_register_external));
}

}  // namespace

SamplerRegistry with_external(SamplerRegistry registry) {
  const auto types = registry.types();
  if (std::none_of(types.begin(), types.end(), [](const auto& type) { return type.first == "external"; }))
    registry.add("external", refuse, "The sampler that your own program registers under this name; none is built in.");
  return registry;
}

bool external_is_missing(const SamplerRegistry::Choice& choice) { return choice.options<Missing>() != nullptr; }

}  // namespace tessera::data
