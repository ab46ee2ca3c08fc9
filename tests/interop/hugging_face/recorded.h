#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "framework/interop/hugging_face/hugging_face.h"
#include "framework/recipe/registries.h"

namespace tessera {

inline const std::filesystem::path models = TESTS_DATA "/models";
inline const std::filesystem::path families = TESTS_DATA "/families";  ///< made by tests/peers/record_families.py

/// The model_type of a recorded model: the name of its folder up to what tells it from others, "phi3_longrope".
inline std::string model_type_of(const std::string& folder) { return folder.substr(0, folder.find("_longrope")); }

inline recipe::Registries registries() {
  recipe::Registries all;
  all.formats.add(std::make_shared<hugging_face::HuggingFaceFormat>());
  all.mappings = options::Mappings(MAPPINGS_DIR);
  return all;
}

}  // namespace tessera
