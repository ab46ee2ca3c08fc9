#include "framework/cli/convert_adapter.h"

#include <filesystem>
#include <utility>

#include "framework/interop/flags/recipe_writer.h"
#include "framework/interop/hugging_face/peft_reader.h"
#include "framework/log/log.h"

namespace tessera::cli {
namespace {

const log::Logger convert_adapter_logger("convert");

namespace fs = std::filesystem;

void tell_keys(const hugging_face::PeftConfig& config) {
  for (const auto& key : config.keys)
    convert_adapter_logger.info(text("  ", key.key, " ", key.value, ": ",
                                     key.option.empty() ? "ignored: " + key.why : "lora_config." + key.option));
  for (const auto& note : config.notes) convert_adapter_logger.info("note: " + note);
}

}  // namespace

std::string adapter_folder(const std::string& input) {
  const fs::path path = input;
  if (path.filename() == hugging_face::peft_config_file)
    return path.has_parent_path() ? path.parent_path().string() : ".";
  return fs::exists(path / hugging_face::peft_config_file) ? input : "";
}

std::string recipe_of_adapter(const std::string& folder, const options::Facts& facts,
                              const options::Mappings& mappings) {
  const auto config = hugging_face::read_peft_folder(folder, mappings);
  tell_keys(config);
  recipe::AdapterDescription saved;
  saved.lora_config = config.lora_config;
  options::Value tree;
  tree.kind = options::Value::Kind::group;
  if (fs::is_directory(config.base)) tree.set("training_config.load_checkpoint", options::Value::of(config.base, {}));
  tree.set("lora_config", saved.group());
  if (fs::exists(fs::path(folder) / hugging_face::peft_weights_file))
    tree.set("lora_config.adapter", options::Value::of(folder, {}));
  flags::RecipeText around;
  around.head = {text("From ", folder, ", by tessera convert: the adapters alone. Add the model, by"),
                 text("training_config.load_checkpoint, which PEFT calls ",
                      config.base.empty() ? "nothing" : config.base, ", and data.")};
  return flags::write_recipe(tree, facts, around);
}

}  // namespace tessera::cli
