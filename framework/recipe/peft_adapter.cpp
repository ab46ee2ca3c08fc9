#include "framework/recipe/peft_adapter.h"

#include <algorithm>

namespace tessera::recipe {

const AdapterReader& peft_reader(const Registries& registries) {
  if (!registries.adapters) throw ConfigError(checkpoint::no_interop);
  return *registries.adapters;
}

options::Value AdapterDescription::group() const {
  auto group = lora_config;
  group.set("use_lora", options::Value::of("true", lora_config.origin));
  return group;
}

OpenedAdapter open_peft_adapter(const Recipe& recipe, const std::filesystem::path& folder,
                                const checkpoint::OpenedCheckpoint& base) {
  return peft_reader(*recipe.registries).open(folder, recipe, base);
}

std::string note_of_other_base(const std::filesystem::path& folder, const std::string& named, const std::string& base) {
  const auto path = std::filesystem::path(named).lexically_normal();
  const auto name = (path.has_filename() ? path : path.parent_path()).filename().string();
  const auto whole = std::filesystem::absolute(base).lexically_normal();
  // The cache of Hugging Face calls the folder of "a/b" models--a--b.
  const auto is_it = [&](const auto& part) { return part == name || part.string().ends_with("--" + name); };
  if (name.empty() || std::any_of(whole.begin(), whole.end(), is_it)) return "";
  return text(folder.string(), ": was trained on ", named, ", and the base here is ", base,
              "; it counts only with the weights that it was trained on");
}

}  // namespace tessera::recipe
