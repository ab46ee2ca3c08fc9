#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "framework/nn/adapter.h"

// Internal to this component.

namespace tessera::recipe {

/// Notes which adapters a plan gives the layers of a model that is built with it.
class NotedAdapters final : public nn::AdapterPlan {
 public:
  struct Layer {
    std::vector<nn::AdapterForm> forms;
    std::vector<nn::LinearPart> parts;  ///< all parts of the layer
  };
  explicit NotedAdapters(const nn::AdapterPlan& plan) : plan_(plan) {}
  std::vector<nn::AdapterForm> adapters_of(const std::string& module, std::int64_t in,
                                           std::span<const nn::LinearPart> parts) const override {
    auto forms = plan_.adapters_of(module, in, parts);
    if (!forms.empty()) layers_[module] = {forms, {parts.begin(), parts.end()}};
    return forms;
  }
  /// The layers with adapters, by their full names.
  const std::map<std::string, Layer>& layers() const { return layers_; }

 private:
  const nn::AdapterPlan& plan_;
  mutable std::map<std::string, Layer> layers_;
};

}  // namespace tessera::recipe
