#include "framework/cli/checkpoint_commands.h"

#include <iostream>
#include <memory>

#include "framework/base/clock.h"
#include "framework/base/number_text.h"
#include "framework/checkpoint/find.h"
#include "framework/cli/checkpoint_list.h"
#include "framework/cli/convert_checkpoint.h"
#include "framework/cli/mm_convert.h"
#include "framework/cli/recipe_arguments.h"
#include "framework/cli/reshard_checkpoint.h"
#include "framework/log/log.h"

namespace tessera::cli {
namespace {

const log::Logger checkpoint_commands_logger("checkpoint");

namespace fs = std::filesystem;

constexpr int no_usable_checkpoint = 24;

struct Sum {
  std::size_t tensors = 0;
  std::int64_t elements = 0;
};

void print_summary(const checkpoint::OpenedCheckpoint& checkpoint) {
  const auto sum_of = [&](const std::vector<std::string>& names) {
    Sum sum;
    for (const auto& name : names) {
      ++sum.tensors;
      sum.elements += checkpoint.shape(name).elements();
    }
    return sum;
  };
  const auto weights = sum_of(checkpoint.names()), state = sum_of(checkpoint.optimizer_names());
  std::cout << checkpoint.folder().string() << "\n"
            << "  iteration        " << checkpoint.iteration() << "\n";
  if (const auto format = checkpoint.description(); !format.empty())
    std::cout << "  format           " << format << "\n";
  std::cout << "  weights          " << weights.tensors << " tensors, " << weights.elements << " elements\n"
            << "  optimizer state  " << state.tensors << " tensors, " << state.elements << " elements\n"
            << "  size             " << size_text(checkpoint.bytes()) << "\n";
  for (const auto& [name, content] : checkpoint.blobs())
    std::cout << "  blob             " << name << ", " << size_text(content.size()) << "\n";
}

std::string list_text(const std::vector<std::int64_t>& numbers) {
  std::string out = "[";
  for (std::size_t i = 0; i < numbers.size(); ++i) out += text(i == 0 ? "" : ", ", numbers[i]);
  return out + "]";
}

void print_tensor(const checkpoint::WeightSource& checkpoint, const std::string& name) {
  std::cout << name << " " << name_of(checkpoint.dtype(name)) << " " << checkpoint.shape(name) << "\n";
}

/// Prints all tensors; for our own format, sorted, with the stored ranges of each.
void print_tensors(const checkpoint::OpenedCheckpoint& checkpoint) {
  const auto* native = dynamic_cast<const checkpoint::NativeCheckpoint*>(&checkpoint);
  if (native == nullptr) {
    for (const auto& name : checkpoint.names()) print_tensor(checkpoint, name);
    for (const auto& name : checkpoint.optimizer_names()) print_tensor(checkpoint, name);
    return;
  }
  for (const auto& name : native->checkpoint().names()) {
    print_tensor(checkpoint, name);
    const auto& ranges = native->checkpoint().ranges(name);
    if (ranges.size() == 1) continue;
    for (const auto& range : ranges)
      std::cout << "  at " << list_text(range.offsets) << " " << range.extents << " in " << range.file << "\n";
  }
}

void inspect(const fs::path& folder, const recipe::Registries& registries, bool tensors) {
  const auto checkpoint = checkpoint::open_checkpoint(checkpoint::find_checkpoints(folder, registries.formats).front(),
                                                      registries.mappings);
  log_notes(checkpoint->notes(), {}, true);
  print_summary(*checkpoint);
  if (tensors) print_tensors(*checkpoint);
}

/// Opens a checkpoint of another program; any error makes it unusable.
std::unique_ptr<checkpoint::OpenedCheckpoint> open_to_verify(const checkpoint::FoundCheckpoint& found,
                                                             const options::Mappings& mappings) {
  try {
    return checkpoint::open_checkpoint(found, mappings);
  } catch (const ConfigError& error) {
    if (found.format == nullptr) throw;
    throw checkpoint::DamageError(error.what());
  }
}

void verify(const fs::path& folder, const recipe::Registries& registries) {
  const Stopwatch watch;
  const auto newest = checkpoint::find_checkpoints(folder, registries.formats).front();
  const auto checkpoint = open_to_verify(newest, registries.mappings);
  checkpoint->verify();
  std::cout << checkpoint->folder().string() << ": good, iteration " << checkpoint->iteration() << ", "
            << size_text(checkpoint->bytes()) << " read in " << short_number(watch.seconds()) << " s\n";
}

/// Damage is reported in one line and with its own exit code.
void telling_damage(CommandContext& context, const std::function<void()>& work) {
  try {
    work();
  } catch (const checkpoint::DamageError& error) {
    checkpoint_commands_logger.error(error.what());
    context.exit_code = no_usable_checkpoint;
  }
}

}  // namespace

void add_checkpoint_commands(Command& app, CommandContext& context) {
  auto* group = app.add_subcommand("checkpoint", "List, inspect, verify, convert and reshard checkpoints");
  group->require_subcommand();
  struct Given {
    std::string folder;
    bool tensors = false;
    std::vector<std::string> ignored_keys;
  };
  const auto given = std::make_shared<Given>();
  const auto add = [&](const char* name, const char* help) {
    auto* command = group->add_subcommand(name, help);
    command->add_option("FOLDER", given->folder, "A checkpoint, or a run folder: its newest checkpoint")->required();
    add_ignore_key_argument(*command, given->ignored_keys);
    return command;
  };
  auto* inspecting = add("inspect", "Print what a checkpoint contains: iteration, sizes, blobs");
  inspecting->add_flag("--tensors", given->tensors, "List every tensor with its type, shape and shards");
  inspecting->callback([given, &context] {
    context.ignore_keys(given->ignored_keys);
    telling_damage(context, [&] { inspect(given->folder, context.registries, given->tensors); });
  });
  add("verify", "Verify all checksums; exit code 24 if the checkpoint is damaged")->callback([given, &context] {
    context.ignore_keys(given->ignored_keys);
    telling_damage(context, [&] { verify(given->folder, context.registries); });
  });
  add_checkpoint_list_command(*group, context);
  add_convert_checkpoint_command(*group, context);
  add_reshard_command(*group, context);
  add_mm_convert_command(*group, context);
}

}  // namespace tessera::cli
