#include "framework/checkpoint/layout.h"

#include <cstdlib>

namespace tessera::checkpoint {
namespace {

const std::string layers_begin = "decoder.layers.", state_begin = "optimizer.";

}  // namespace

std::int64_t layer_of(const std::string& name) {
  return name.rfind(layers_begin, 0) == 0 ? std::strtoll(name.c_str() + layers_begin.size(), nullptr, 10) : -1;
}

bool is_optimizer_state(const std::string& name) { return name.rfind(state_begin, 0) == 0; }

std::string weight_of(const std::string& name) {
  return is_optimizer_state(name) ? name.substr(name.find('.', state_begin.size()) + 1) : name;
}

}  // namespace tessera::checkpoint
