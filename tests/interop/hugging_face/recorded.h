#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "framework/base/files.h"
#include "framework/base/json.h"
#include "framework/interop/hugging_face/hugging_face.h"
#include "framework/recipe/registries.h"

namespace tessera {

inline const std::filesystem::path models = TESTS_DATA "/models";
inline const std::filesystem::path families = TESTS_DATA "/families";  ///< made by tests/peers/record_families.py

/// The model_type of a recorded family, of which there may be several cases.
inline std::string model_type_of(const std::string& family) {
  return parse_json(read_file(families / family / "config.json"))["model_type"].get<std::string>();
}

inline recipe::Registries registries() {
  recipe::Registries all;
  all.formats.add(std::make_shared<hugging_face::HuggingFaceFormat>());
  return all;
}

}  // namespace tessera
