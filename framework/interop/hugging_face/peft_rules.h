#pragma once

#include <cstdint>
#include <string>

#include "framework/options/value.h"

namespace tessera::hugging_face {

// How PEFT applies the options of an adapter to the names of modules. `lora_config` is that of read_peft_config.

/// Whether `names`, a list of names or endings after a dot, or one expression for the whole name, names the module.
/// False for null.
bool peft_names_module(const options::Value* names, const std::string& module);
/// Whether `layers`, a number or a list of them, has the number of the layer in the name. True for null.
bool peft_in_layers(const options::Value* layers, const std::string& module);
/// The number of the first pattern that matches the end of the name from a dot, or the whole; `otherwise` without one.
std::int64_t peft_number(const options::Value* patterns, const std::string& module, std::int64_t otherwise);
/// An integer option; `otherwise` if it is not set.
std::int64_t peft_integer(const options::Value& lora_config, const char* option, std::int64_t otherwise);

}  // namespace tessera::hugging_face
