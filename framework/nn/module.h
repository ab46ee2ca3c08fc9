#pragma once

#include <deque>
#include <string>
#include <vector>

#include "framework/nn/parameter.h"

namespace tessera {

/// A part of a model that may have parameters and parts of its own. Making a module declares names and shapes and takes
/// no memory for weights, so a model of any size can be made to be counted.
class Module {
 public:
  explicit Module(std::string name) : name_(std::move(name)) {}
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  const std::string& name() const { return name_; }
  /// All parameters of this module and its parts, in the order of their declaration; owned by the modules.
  std::vector<Parameter*> parameters();

 protected:
  /// Declare a parameter "<module>.<name>". Its address stays.
  /// `cut` says what of its `shape` is here.
  Parameter& declare(const std::string& name, const Shape& shape, Init init, TensorCut cut = {});
  /// Count `part` as a part of this module; it must live as long. Order of calls is order of parameters.
  void contains(Module& part) { order_.push_back({nullptr, &part}); }
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

}  // namespace tessera
