#pragma once

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "framework/base/files.h"
#include "framework/interop/hugging_face/family.h"
#include "framework/interop/hugging_face/hugging_face_export.h"
#include "framework/recipe/imported_recipe.h"
#include "tests/interop/hugging_face/recorded.h"
#include "tests/own_folder.h"
#include "tests/story.h"

namespace tessera {

using LibraryJson = nlohmann::json;

inline LibraryJson config_of(const std::string& family) {
  return LibraryJson::parse(read_file(families / family / "config.json"));
}

inline std::map<std::string, std::string> options_in(const options::Value& group, const std::string& before = "") {
  std::map<std::string, std::string> all;
  for (const auto& [name, value] : group.fields) {
    if (value.kind == options::Value::Kind::group)
      all.merge(options_in(value, before + name + "."));
    else
      all[before + name] = text(value);
  }
  return all;
}

/// The config.json of recorded families, changed.
class ExpertConfig : public InOwnFolder {
 protected:
  options::Mappings mappings;

  options::Value read(const LibraryJson& json) const {
    return hugging_face::parse_hugging_face_config(json.dump(), "config.json", mappings).model_config;
  }
  std::string changed(const std::string& family, const std::function<void(LibraryJson&)>& change) const {
    auto json = config_of(family);
    change(json);
    return story_of([&] { read(json); });
  }
  static std::string said(const options::Value& config, const std::string& path) {
    const auto* value = config.at(path);
    return value == nullptr ? "nothing" : text(*value);
  }
  /// The config.json of a recorded model, changed, as it is written again.
  LibraryJson goes_out(const std::string& folder, const std::function<void(LibraryJson&)>& change) {
    const auto family = model_type_of(folder);
    auto json = config_of(folder);
    change(json);
    const auto recipe = recipe::imported_recipe(hugging_face::recipe_with(read(json)), {}, {});
    const auto whole = hugging_face::whole_model_config(recipe, 96);
    EXPECT_EQ(hugging_face::family_that_fits(recipe, 96, {family}, {}, mappings), family);
    return LibraryJson::parse(
        hugging_face::write_hugging_face_config(whole, family, DType::float32, json.dump(), mappings));
  }
};

}  // namespace tessera
