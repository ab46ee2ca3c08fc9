#include "framework/cli/checkpoint.h"

#include <array>
#include <cstdio>
#include <iostream>
#include <memory>

#include "framework/base/clock.h"
#include "framework/base/number_text.h"
#include "framework/checkpoint/checkpoint.h"
#include "framework/cli/convert_checkpoint.h"
#include "framework/cli/reshard.h"
#include "framework/interop/megatron/megatron.h"
#include "framework/interop/megatron/saved_place.h"
#include "framework/log/log.h"

namespace tessera {
namespace {

const Logger logger("checkpoint");

namespace fs = std::filesystem;

constexpr int no_usable_checkpoint = 24;

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

/// What `checkpoint`, of either format, holds; `files`: how it lies on the disk, where there is more than one way.
template <class Source>
void print_summary(const Source& checkpoint, const std::vector<std::string>& names, const std::string& files) {
  Sum weights, state;
  for (const auto& name : names) {
    auto& sum = is_optimizer_state(name) ? state : weights;
    ++sum.tensors;
    sum.elements += checkpoint.shape(name).elements();
  }
  std::cout << checkpoint.folder().string() << "\n"
            << "  iteration        " << checkpoint.iteration() << "\n";
  if (!files.empty()) std::cout << "  format           " << files << "\n";
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

void print_tensors(const Checkpoint& checkpoint) {
  for (const auto& name : checkpoint.names()) {
    std::cout << name << " " << name_of(checkpoint.dtype(name)) << " " << checkpoint.shape(name) << "\n";
    const auto& ranges = checkpoint.ranges(name);
    if (ranges.size() == 1) continue;
    for (const auto& range : ranges)
      std::cout << "  at " << list_text(range.offsets) << " " << range.extents << " in " << range.file << "\n";
  }
}

std::string counted(std::int64_t count, const char* what) { return text(count, " ", what, count == 1 ? "" : "s"); }

void inspect_megatron(const fs::path& folder, const Mappings& mappings, bool tensors) {
  const MegatronCheckpoint checkpoint(folder, mappings);
  auto names = checkpoint.names();
  const auto state = checkpoint.optimizer_names();
  names.insert(names.end(), state.begin(), state.end());
  const auto& layout = checkpoint.layout();
  print_summary(checkpoint, names,
                text("torch (Megatron-LM's), of ", counted(layout.tensor, "tensor parallel rank"), " x ",
                     counted(layout.stages(), "stage")));
  if (!tensors) return;
  for (const auto& name : names)
    std::cout << name << " " << name_of(checkpoint.dtype(name)) << " " << checkpoint.shape(name) << "\n";
}

void inspect(const fs::path& folder, const Mappings& mappings, bool tensors) {
  const auto newest = saved_places(folder).front();
  if (newest.megatron) return inspect_megatron(newest.folder, mappings, tensors);
  const auto checkpoint = Checkpoint::open(newest.folder);
  print_summary(checkpoint, checkpoint.names(), "");
  if (tensors) print_tensors(checkpoint);
}

template <class Source>
void print_verified(const Source& checkpoint, const Stopwatch& watch) {
  checkpoint.verify();
  std::cout << checkpoint.folder().string() << ": good, iteration " << checkpoint.iteration() << ", "
            << size_text(checkpoint.bytes()) << " read in " << short_number(watch.seconds()) << " s\n";
}

/// Whatever keeps it from being opened makes it unusable.
void verify_megatron(const fs::path& folder, const Mappings& mappings) {
  const Stopwatch watch;
  try {
    print_verified(MegatronCheckpoint(folder, mappings), watch);
  } catch (const ConfigError& error) {
    throw DamageError(error.what());
  }
}

void verify(const fs::path& folder, const Mappings& mappings) {
  const auto newest = saved_places(folder).front();
  if (newest.megatron) return verify_megatron(newest.folder, mappings);
  const Stopwatch watch;
  print_verified(Checkpoint::open(newest.folder), watch);
}

/// Damage is told in one line and by the exit code of its own.
void telling_damage(CommandContext& context, const std::function<void()>& work) {
  try {
    work();
  } catch (const DamageError& error) {
    logger.error(error.what());
    context.exit_code = no_usable_checkpoint;
  }
}

}  // namespace

void add_checkpoint_commands(Command& app, CommandContext& context) {
  auto* group = app.add_subcommand("checkpoint", "Look into saved checkpoints, check, convert and reshard them");
  group->require_subcommand();
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
  inspecting->callback([given, &context] {
    telling_damage(context, [&] { inspect(given->folder, context.mappings(), given->tensors); });
  });
  add("verify", "Read everything and compare every checksum; exit code 24 when it is damaged")
      ->callback([given, &context] { telling_damage(context, [&] { verify(given->folder, context.mappings()); }); });
  add_convert_checkpoint_command(*group, context);
  add_reshard_command(*group, context);
}

}  // namespace tessera
