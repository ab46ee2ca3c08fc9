#pragma once

#include <deque>
#include <string>
#include <vector>

#include "framework/nn/parameter.h"

namespace tessera::nn {

/// A part of a model, with parameters and submodules (torch.nn.Module). Constructing a module declares names and shapes
/// but allocates no memory for weights, so a model of any size can be constructed to count its parameters.
class Module {
 public:
  /// `name` is the full name in the model, for example "decoder.layers.0.mlp", and the prefix of the names of all
  /// parameters of the module; empty for a whole model.
  explicit Module(std::string name) : name_(std::move(name)) {}
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  const std::string& name() const { return name_; }
  /// All parameters of this module and its submodules, in the order of declaration. Owned by the modules.
  std::vector<Parameter*> parameters();

 protected:
  /// Declares the parameter "<module>.<name>" with the unsharded shape `shape`. `cut` is this rank's part.
  /// `role` decides how the optimizer and other components treat it. The module owns the parameter; the reference stays
  /// valid as long as the module.
  Parameter& declare(const std::string& name, ParameterRole role, const Shape& shape, Init init, TensorCut cut = {});
  /// Registers a submodule, which must live as long as this module. The order of declare() and contains() calls is the
  /// order of parameters().
  void contains(Module& part) { order_.push_back({nullptr, &part}); }
  /// The full name of a submodule or parameter `part`: "<module>.<part>".
  std::string inner(const std::string& part) const { return name_.empty() ? part : name_ + "." + part; }

 private:
  struct Entry {
    Parameter* own;
    Module* part;
  };
  std::string name_;
  std::deque<Parameter> own_;
  std::vector<Entry> order_;
};

}  // namespace tessera::nn
