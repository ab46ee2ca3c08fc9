#include "framework/cli/mm_convert.h"

#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/error.h"
#include "framework/cli/recipe_arguments.h"
#include "framework/interop/mindspeed_mm/mm_convert.h"
#include "framework/options/yaml.h"

namespace tessera::cli {
namespace {

constexpr int first_flag_layer = 100;             // above the file of --config
constexpr const char* not_printed = "not given";  // --print_config takes a value or none

struct MmConvertFlags {
  std::string config, release, print = not_printed;
  std::vector<std::pair<std::string, options::Value>> values;  ///< path in the tree, and what the flag gives
  std::vector<std::string> ignored_keys;
};

/// The value of a flag; of an option that is a text, as it stands.
options::Value value_of_flag(const options::OptionFacts& option, const std::string& flag, const std::string& words,
                             int layer) {
  auto value = option.type == "text" ? options::Value::of(words, {}) : options::parse_yaml(words, flag);
  value.origin = {flag, 0, "", layer};
  return value;
}

options::Value tree_of(const MmConvertFlags& flags) {
  options::Value tree;
  tree.kind = options::Value::Kind::group;
  if (!flags.config.empty()) tree = options::read_yaml(flags.config);
  for (const auto& [path, value] : flags.values) tree.set(path, value);
  return tree;
}

void add_option_of(Command& command, const options::OptionFacts& option, const std::shared_ptr<MmConvertFlags>& flags) {
  const auto path = "cfg." + option.name, flag = "--" + path;
  command
      .add_option(
          flag,
          [flags, option, path, flag](const std::string& words) {
            const auto layer = first_flag_layer + static_cast<int>(flags->values.size());
            flags->values.emplace_back(path, value_of_flag(option, flag, words, layer));
          },
          option.doc)
      ->as_written();
}

void add_command_of(Command& converter, mindspeed_mm::MmCommand kind, const char* name, const char* doc,
                    CommandContext& context) {
  auto* command = converter.add_subcommand(name, doc);
  const auto flags = std::make_shared<MmConvertFlags>();
  const auto releases = mindspeed_mm::releases(context.mappings());
  flags->release = releases.front();
  command->add_option("--config", flags->config, "YAML file with the options, in the group cfg")->type_name("FILE");
  command
      ->add_option("--print_config", flags->print,
                   "Print a file for --config with all options and their defaults, and end; as =comments")
      ->suggest({"comments"})
      ->optional_value();
  command->add_option("--mm-version", flags->release, "Release of MindSpeed-MM whose folder is read or written")
      ->show_default()
      ->one_of(releases);
  for (const auto& option : mindspeed_mm::options_of(kind)) add_option_of(*command, option, flags);
  add_ignore_key_argument(*command, flags->ignored_keys);
  command->callback([flags, kind, &context] {
    context.ignore_keys(flags->ignored_keys);
    if (flags->print != not_printed) {
      if (!flags->print.empty() && flags->print != "comments")
        throw ConfigError(text("--print_config is '", flags->print, "', expected comments or no value"));
      std::cout << mindspeed_mm::template_of(kind);
      return;
    }
    for (const auto& line : mindspeed_mm::mm_convert(kind, tree_of(*flags), flags->release, context.mappings()))
      std::cout << line << "\n";
  });
}

}  // namespace

void add_mm_convert_command(Command& group, CommandContext& context) {
  auto* command = group.add_subcommand("mm-convert", "Convert Qwen2-VL weights as MindSpeed-MM's mm-convert does");
  command->require_subcommand();
  auto* converter = command->add_subcommand(mindspeed_mm::converter_name, "The converter of Qwen2-VL");
  converter->require_subcommand();
  using mindspeed_mm::MmCommand;
  add_command_of(*converter, MmCommand::hf_to_mm, "hf_to_mm",
                 "Write a folder of Hugging Face Transformers as a checkpoint of MindSpeed-MM", context);
  add_command_of(*converter, MmCommand::mm_to_hf, "mm_to_hf",
                 "Write a checkpoint of MindSpeed-MM as a folder of Hugging Face Transformers", context);
  add_command_of(*converter, MmCommand::resplit, "resplit",
                 "Write a checkpoint of MindSpeed-MM for another number of ranks", context);
}

}  // namespace tessera::cli
