#include "framework/cli/checkpoint_list.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "framework/base/files.h"
#include "framework/base/json.h"
#include "framework/base/number_text.h"
#include "framework/checkpoint/find.h"
#include "framework/training/saving/run_checkpoints.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;

/// Size and age of all files.
void measure(ListedCheckpoint& listed) {
  auto newest = fs::file_time_type::min();
  std::error_code gone;  // a run may delete it at the same time
  for (fs::recursive_directory_iterator entry(listed.folder, gone), end; !gone && entry != end; entry.increment(gone)) {
    std::error_code unknown;
    if (!entry->is_regular_file(unknown)) continue;
    if (const auto bytes = entry->file_size(unknown); !unknown) listed.bytes += bytes;
    if (const auto written = entry->last_write_time(unknown); !unknown) newest = std::max(newest, written);
  }
  if (newest != fs::file_time_type::min())
    listed.age = std::max(0.0, std::chrono::duration<double>(fs::file_time_type::clock::now() - newest).count());
}

ListedCheckpoint described(const checkpoint::FoundCheckpoint& found, const options::Mappings& mappings) {
  ListedCheckpoint listed{.folder = found.folder, .iteration = found.iteration};
  listed.format = found.format == nullptr ? checkpoint::native_format : found.format->name();
  listed.run = checkpoint::run_of(found.folder);
  listed.state = found.unfinished.empty() ? "whole" : "unfinished";
  listed.reason = found.unfinished;
  if (listed.state == "whole") try {
      checkpoint::open_checkpoint(found, mappings);
    } catch (const Error& error) {
      listed.state = "damaged";
      listed.reason = error.what();
    }
  measure(listed);
  return listed;
}

/// The first line of why_damaged.txt.
std::string reason_in(const fs::path& folder) {
  const auto file = folder / "why_damaged.txt";
  if (!fs::is_regular_file(file)) return "";
  const auto words = read_file(file);
  return words.substr(0, words.find('\n'));
}

/// Folders that are no checkpoints any more, or not yet: "iter_0000100_damaged", "iter_0000100_tmp".
void add_others(const fs::path& root, std::vector<ListedCheckpoint>& all) {
  const std::vector<std::pair<std::string, std::string>> states = {{"_damaged", "set aside"},
                                                                   {"_of_run_", "of another run"},
                                                                   {"_of_another_program", "of another program"},
                                                                   {"_tmp", "unfinished"}};
  for (const auto& path : list_folder(root))
    for (const auto& [mark, state] : states) {
      const auto name = path.filename().string();
      const auto iteration = checkpoint::iteration_in_name(name.substr(0, name.rfind(mark)));
      if (!iteration || name.rfind(mark) == std::string::npos || !fs::is_directory(path)) continue;
      ListedCheckpoint listed{.folder = path, .iteration = *iteration, .state = state, .reason = reason_in(path)};
      listed.run = checkpoint::run_of(path);
      measure(listed);
      all.push_back(std::move(listed));
    }
}

/// The run of run.json, which a run folder has.
std::string run_of_folder(const fs::path& folder) {
  const auto file = folder / "run.json";
  if (!fs::is_regular_file(file)) return "";
  const auto json = parse_json(read_file(file));
  return json.is_object() ? json.value("run", "") : "";
}

std::string age_text(double seconds) {
  constexpr double day = 24 * 60 * 60;
  return seconds < 2 * day ? duration_text(seconds) : text(static_cast<std::int64_t>(seconds / day), " days");
}

void print_listed(const std::vector<ListedCheckpoint>& all, const std::string& own) {
  std::array<char, 160> line{};
  std::snprintf(line.data(), line.size(), "%9s  %-12s %9s  %-12s %-15s %s\n", "iteration", "format", "size", "age",
                "state", "folder");
  std::cout << line.data();
  for (const auto& one : all) {
    std::snprintf(line.data(), line.size(), "%9lld  %-12s %9s  %-12s %-15s ", static_cast<long long>(one.iteration),
                  one.format.c_str(), size_text(one.bytes).c_str(), age_text(one.age).c_str(), one.state.c_str());
    std::cout << line.data() << one.folder.string();
    if (!one.run.empty() && one.run != own) std::cout << ", of run " << one.run;
    if (!one.reason.empty()) std::cout << ": " << one.reason;
    std::cout << "\n";
  }
}

void print_listed_json(const std::vector<ListedCheckpoint>& all, const std::string& own) {
  std::vector<Json> checkpoints;
  for (const auto& one : all)
    checkpoints.push_back({{"folder", one.folder.string()},
                           {"iteration", one.iteration},
                           {"format", one.format},
                           {"state", one.state},
                           {"reason", one.reason},
                           {"run", one.run},
                           {"bytes", one.bytes},
                           {"age_seconds", one.age}});
  std::cout << Json{{"run", own}, {"checkpoints", checkpoints}}.dump() << "\n";
}

}  // namespace

std::vector<ListedCheckpoint> checkpoints_in(const fs::path& folder, const recipe::Registries& registries) {
  if (!fs::is_directory(folder)) throw ConfigError(text(folder.string(), ": no such folder"));
  std::vector<ListedCheckpoint> all;
  const auto non_persistent = folder / training::non_persistent_name;
  for (const auto& place : {folder, non_persistent})
    if (fs::is_directory(place))
      for (const auto& found : checkpoint::find_any(place, registries.formats))
        all.push_back(described(found, registries.mappings));
  for (const auto& root : {folder, folder / "checkpoints", non_persistent}) add_others(root, all);
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.iteration > b.iteration; });
  return all;
}

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

void add_checkpoint_list_command(Command& group, CommandContext& context) {
  auto* command = group.add_subcommand(
      "list", "List the checkpoints of a folder: iteration, format, size, age, state, and whose run they are of");
  struct Given {
    std::string folder;
    bool json = false;
  };
  const auto given = std::make_shared<Given>();
  command->add_option("FOLDER", given->folder, "A run folder, or another folder of checkpoints")->required();
  command->add_flag("--json", given->json, "Print one JSON object");
  command->callback([given, &context] {
    const auto all = checkpoints_in(given->folder, context.registries);
    if (all.empty()) throw ConfigError(text(given->folder, ": holds no checkpoint; give a run folder"));
    const auto own = run_of_folder(given->folder);
    given->json ? print_listed_json(all, own) : print_listed(all, own);
  });
}

}  // namespace tessera::cli
