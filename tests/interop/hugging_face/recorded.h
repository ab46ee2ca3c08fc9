#pragma once

#include <filesystem>
#include <memory>

#include "framework/interop/hugging_face/hugging_face.h"
#include "framework/recipe/registries.h"

namespace tessera {

inline const std::filesystem::path models = TESTS_DATA "/models";
inline const std::filesystem::path families = TESTS_DATA "/families";  ///< made by tests/peers/record_families.py

inline recipe::Registries registries() {
  recipe::Registries all;
  all.formats.add(std::make_shared<hugging_face::HuggingFaceFormat>());
  all.mappings = options::Mappings(MAPPINGS_DIR);
  return all;
}

}  // namespace tessera
