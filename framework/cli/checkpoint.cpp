#include "framework/cli/checkpoint.h"

#include <array>
#include <cstdio>
#include <iostream>
#include <memory>

#include "framework/base/clock.h"
#include "framework/base/files.h"
#include "framework/checkpoint/checkpoint.h"
#include "framework/cli/convert_checkpoint.h"
#include "framework/cli/reshard.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr int no_usable_checkpoint = 24;

/// Whether the folder's name ends as those of checkpoints do, whatever their prefix.
std::optional<std::int64_t> iteration_of(const fs::path& folder) {
  const auto name = folder.filename().string();
  const auto at = name.rfind("iter_");
  if (at == std::string::npos || !fs::is_directory(folder)) return std::nullopt;
  const auto found = list_checkpoints(folder.parent_path(), name.substr(0, at));
  for (const auto& info : found)
    if (info.folder.filename() == name) return info.iteration;
  return std::nullopt;
}

/// The checkpoint that `folder` means.
fs::path checkpoint_in(const fs::path& folder) {
  if (!fs::is_directory(folder)) throw ConfigError(text(folder.string(), ": no such folder"));
  if (fs::exists(folder / "manifest.json") || iteration_of(fs::absolute(folder))) return folder;
  for (const auto& root : {folder, folder / "checkpoints"}) {
    fs::path newest;
    std::int64_t iteration = -1;
    for (const auto& entry : list_folder(root))
      if (const auto found = iteration_of(entry); found && *found > iteration) newest = entry, iteration = *found;
    if (iteration >= 0) return newest;
  }
  throw ConfigError(
      text(folder.string(), ": holds no checkpoint; give a folder such as output/checkpoints/iter_0000100"));
}

/// "1.43 MB"
std::string size_text(std::uint64_t bytes) {
  constexpr std::array<const char*, 5> units = {"bytes", "kB", "MB", "GB", "TB"};
  if (bytes < 1000) return text(bytes, " bytes");
  auto size = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; size >= 1000 && unit + 1 < units.size(); ++unit) size /= 1000;
  std::array<char, 32> words{};
  std::snprintf(words.data(), words.size(), "%.3g %s", size, units[unit]);
  return words.data();
}

bool is_optimizer_state(const std::string& name) { return name.rfind("optimizer.", 0) == 0; }

struct Sum {
  std::size_t tensors = 0;
  std::int64_t elements = 0;
};

void print_summary(const Checkpoint& checkpoint) {
  Sum weights, state;
  for (const auto& name : checkpoint.names()) {
    auto& sum = is_optimizer_state(name) ? state : weights;
    ++sum.tensors;
    sum.elements += checkpoint.shape(name).elements();
  }
  std::cout << checkpoint.folder().string() << "\n"
            << "  iteration        " << checkpoint.iteration() << "\n"
            << "  weights          " << weights.tensors << " tensors, " << weights.elements << " elements\n"
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

void print_tensors(const Checkpoint& checkpoint) {
  for (const auto& name : checkpoint.names()) {
    std::cout << name << " " << name_of(checkpoint.dtype(name)) << " " << checkpoint.shape(name) << "\n";
    const auto& ranges = checkpoint.ranges(name);
    if (ranges.size() == 1) continue;
    for (const auto& range : ranges)
      std::cout << "  at " << list_text(range.offsets) << " " << range.extents << " in " << range.file << "\n";
  }
}

void inspect(const fs::path& folder, bool tensors) {
  const auto checkpoint = Checkpoint::open(checkpoint_in(folder));
  print_summary(checkpoint);
  if (tensors) print_tensors(checkpoint);
}

void verify(const fs::path& folder) {
  const Stopwatch watch;
  const auto checkpoint = Checkpoint::open(checkpoint_in(folder));
  checkpoint.verify();
  std::cout << checkpoint.folder().string() << ": good, iteration " << checkpoint.iteration() << ", "
            << size_text(checkpoint.bytes()) << " read in " << watch.seconds() << " s\n";
}

/// Damage is told in one line and by the exit code of its own.
void telling_damage(CommandContext& context, const std::function<void()>& work) {
  try {
    work();
  } catch (const DamageError& error) {
    std::cerr << error.what() << "\n";
    context.exit_code = no_usable_checkpoint;
  }
}

}  // namespace

void add_checkpoint_commands(CLI::App& app, CommandContext& context) {
  auto* group = app.add_subcommand("checkpoint", "Look into saved checkpoints, check, convert and reshard them");
  group->require_subcommand(1);
  struct Given {
    std::string folder;
    bool tensors = false;
  };
  const auto given = std::make_shared<Given>();
  const auto add = [&](const char* name, const char* help) {
    auto* command = group->add_subcommand(name, help);
    command->add_option("FOLDER", given->folder, "A checkpoint, or a run folder: its newest checkpoint")->required();
    return command;
  };
  auto* inspecting = add("inspect", "What a checkpoint holds: iteration, sizes, blobs");
  inspecting->add_flag("--tensors", given->tensors, "Every tensor with its type, its shape and its parts");
  inspecting->callback([given, &context] { telling_damage(context, [&] { inspect(given->folder, given->tensors); }); });
  add("verify", "Read everything and compare every checksum; exit code 24 when it is damaged")
      ->callback([given, &context] { telling_damage(context, [&] { verify(given->folder); }); });
  add_convert_checkpoint_command(*group, context);
  add_reshard_command(*group, context);
}

}  // namespace tessera
