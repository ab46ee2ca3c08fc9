#pragma once

#include <memory>

#include "framework/interop/flags/spec_rule.h"
#include "framework/interop/formats/formats.h"
#include "framework/interop/hugging_face/peft_reader.h"
#include "framework/recipe/registries.h"

namespace tessera::golden {

/// Those that the program tessera reads recipes with.
inline recipe::Registries all_registries() {
  recipe::Registries all;
  formats::add_all_formats(all.formats);
  all.adapters = std::make_shared<hugging_face::PeftReader>();
  all.rules.push_back(flags::check_spec);
  return all;
}

}  // namespace tessera::golden
