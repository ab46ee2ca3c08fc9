#include "framework/training/saving/run_checkpoints.h"

#include <algorithm>
#include <set>
#include <utility>

#include "framework/base/files.h"
#include "framework/base/links.h"
#include "framework/comm/together.h"
#include "framework/log/log.h"
#include "framework/training/saving/divided_checkpoints.h"
#include "framework/training/setup/given_checkpoint.h"

namespace tessera::training {
namespace {

const log::Logger checkpoint_logger("checkpoint");

using checkpoint::run_of;
using AllFound = std::vector<checkpoint::FoundCheckpoint>;

bool is_non_persistent(const TrainingOptions& o, const checkpoint::FoundCheckpoint& found) {
  return found.format == nullptr && found.folder.parent_path() == non_persistent_folder(o);
}

/// Of `all`, those of the run that run.json names, `recorded`; where it names none, or one without checkpoints here, of
/// the run that saved the newest. A folder elsewhere decides nothing: other runs may have used it.
AllFound own_checkpoints(const TrainingOptions& o, AllFound all, const std::string& recorded,
                         std::vector<std::string>& notes) {
  const auto lies_here = [&](const auto& found) { return is_in_run_folder(o, found.folder); };
  const auto belongs = [&](const auto& found, const std::string& run) {
    return lies_here(found) ? belongs_to(run)(found.folder) : saved_by(run)(found.folder);
  };
  const auto is_recorded = [&](const auto& found) { return belongs(found, recorded); };
  auto run = recorded;
  const auto newest = std::find_if(all.begin(), all.end(), lies_here);
  if (newest != all.end() && (recorded.empty() || std::none_of(all.begin(), all.end(), is_recorded)))
    run = run_of(newest->folder);
  const auto others = std::erase_if(all, [&](const auto& found) { return !belongs(found, run); });
  if (others > 0)
    notes.push_back(text("ignored ", others, others == 1 ? " checkpoint" : " checkpoints", " of another run in ",
                         all.empty() || all.front().format == nullptr ? checkpoint_folder(o).string() : o.output_dir));
  return all;
}

/// Throws if it cannot be continued from. `index`: of our own format, judges the index alone.
void judge(const checkpoint::FoundCheckpoint& found, const TrainingOptions& o, const options::Mappings& mappings,
           bool index) {
  if (index && found.format == nullptr) {
    open_index_of(found, o, mappings);
    return;
  }
  try {
    const auto opened = open_found(found, o, mappings);
    if (o.crc_check) opened->verify();
  } catch (const ConfigError& error) {
    // What a run of ours saved was whole; of our own format this is a newer version.
    if (found.format == nullptr || run_of(found.folder).empty()) throw;
    throw checkpoint::DamageError(error.what());
  }
}

/// Whether other hosts have some of its files. Throws as Checkpoint::open_index.
bool is_divided(const checkpoint::FoundCheckpoint& found) {
  return found.format == nullptr && checkpoint::Checkpoint::open_index(found.folder).is_divided();
}

bool is_surely_divided(const checkpoint::FoundCheckpoint& found) {
  try {
    return is_divided(found);
  } catch (const Error&) {
    return false;
  }
}

bool is_retained(const checkpoint::FoundCheckpoint& found, const TrainingOptions& o) {
  if (o.save_retain_interval && found.iteration % *o.save_retain_interval == 0) return true;
  if (std::filesystem::is_symlink(found.folder)) return true;
  return o.load_checkpoint && std::filesystem::exists(*o.load_checkpoint) &&
         lies_within(found.folder, *o.load_checkpoint);
}

bool can_be_opened(const checkpoint::FoundCheckpoint& found, const TrainingOptions& o,
                   const options::Mappings& mappings) {
  try {
    if (is_divided(found)) return true;
    open_found(found, o, mappings);
    return true;
  } catch (const Error&) {
    return false;
  }
}

std::string told_aside(const std::filesystem::path& folder, const std::string& damage,
                       const std::filesystem::path& aside) {
  return text("checkpoint ", folder.string(), " is damaged: ", damage, "; set aside as ", aside.string());
}

std::string told_unread(const std::filesystem::path& folder, const std::string& why) {
  return text("checkpoint ", folder.string(), " cannot be read: ", why);
}

/// Whether another program saved it: it keeps its name although it is damaged.
bool stays(const checkpoint::FoundCheckpoint& found) { return found.format != nullptr && run_of(found.folder).empty(); }

/// Looks for the newest of `own` that is good.
class Search {
 public:
  Search(const TrainingOptions& o, const options::Mappings& mappings, std::vector<std::string>& notes, bool index)
      : o_(o), mappings_(mappings), notes_(notes), index_(index) {}

  FoundNewest newest_of(const AllFound& own) {
    const auto good = std::find_if(own.begin(), own.end(), [&](const auto& found) { return is_good(found); });
    if (good != own.end()) out_.checkpoint = *good;
    tell_unfinished(own, good == own.end() ? -1 : good->iteration);
    if (!out_.checkpoint && !unread_.empty()) throw ConfigError(unread_);
    return out_;
  }

 private:
  /// Of those after iteration `last`.
  void tell_unfinished(const AllFound& own, std::int64_t last) {
    for (const auto& found : own)
      if (!found.unfinished.empty() && found.iteration > last)
        notes_.push_back(
            text("ignored ", found.folder.string(), ", whose save did not come to its end: ", found.unfinished));
  }
  bool is_good(const checkpoint::FoundCheckpoint& found) {
    if (!found.unfinished.empty()) return false;
    try {
      judge(found, o_, mappings_, index_);
      return true;
    } catch (const checkpoint::DamageError& error) {
      lost(found);
      if (stays(found)) {
        leave(found, error);
      } else {
        notes_.push_back(told_aside(found.folder, error.what(), checkpoint::set_aside(found.folder, error.what())));
      }
    } catch (const ConfigError& error) {
      if (found.format == nullptr) throw;
      lost(found);
      leave(found, error);
    }
    return false;
  }
  void leave(const checkpoint::FoundCheckpoint& found, const Error& error) {
    notes_.push_back(told_unread(found.folder, error.what()));
    if (unread_.empty()) unread_ = error.what();
  }
  void lost(const checkpoint::FoundCheckpoint& found) { out_.lost_at = std::max(out_.lost_at, found.iteration); }

  const TrainingOptions& o_;
  const options::Mappings& mappings_;
  std::vector<std::string>& notes_;
  bool index_;
  FoundNewest out_;
  std::string unread_;  ///< why the newest of another program cannot be read
};

void set_aside_later(const AllFound& own, std::int64_t step, std::vector<std::string>& notes) {
  for (const auto& found : own) {
    if (found.iteration <= step) continue;
    const auto aside = checkpoint::set_aside(found.folder, text("the run went back to iteration ", step));
    notes.push_back(text("set aside ", found.folder.string(), " as ", aside.string()));
  }
}

/// So that a new checkpoint with the same name does not replace it.
void rename_other(const std::filesystem::path& checkpoint, const char* owner, const std::string& ending) {
  const std::filesystem::path kept = checkpoint.string() + ending;
  if (std::filesystem::exists(kept))
    throw IoError(text(checkpoint.string(), ": belongs to ", owner, ", and its new name is taken: ", kept.string()));
  rename_or_exchange(checkpoint, kept);
}

/// What cannot be deleted takes space; the checkpoint that was saved is whole, and training goes on.
void delete_or_tell(const std::function<void()>& deletion) {
  try {
    deletion();
  } catch (const IoError& error) {
    checkpoint_logger.warning(text("an old checkpoint is no longer needed, but stays: ", error.what()));
  }
}

/// Deletes those of `own`, newest first, that are neither among the newest `count`, nor retained, nor needed because no
/// newer one can be opened.
void delete_old_of(const AllFound& own, std::int64_t count, const TrainingOptions& o,
                   const options::Mappings& mappings) {
  bool has_good = false;  // among those that are kept
  for (std::size_t i = 0; i < own.size(); ++i) {
    const auto& found = own[i];
    const bool kept = i < static_cast<std::size_t>(count) || is_retained(found, o);
    if (!kept && has_good) {
      delete_or_tell([&] { checkpoint::delete_checkpoint(found.folder); });
      continue;
    }
    has_good = has_good || can_be_opened(found, o, mappings);
  }
}

/// What the hosts have in folders of their own.
struct FoundOfHosts {
  std::set<std::filesystem::path> roots;  ///< these folders
  FoundNewest newest;                     ///< the newest in them
};

FoundOfHosts newest_of_hosts(const comm::Communicator& world, const TrainingOptions& o, const std::string& recorded,
                             std::vector<std::string>& notes, std::optional<std::int64_t> step) {
  FoundOfHosts out;
  const auto hosts = hosts_of(world);
  for (const auto& root : {checkpoint_folder(o), non_persistent_folder(o)}) {
    const bool lies_here = is_in_run_folder(o, root);
    const auto belongs = [&](const std::string& run) {
      return run == recorded || (lies_here && (run.empty() || recorded.empty()));
    };
    const auto found = newest_divided(world, hosts, {root, o.prefix, belongs}, step, notes);
    if (found.is_divided) out.roots.insert(root);
    out.newest.lost_at = std::max(out.newest.lost_at, found.lost_at);
    if (found.checkpoint && (!out.newest.checkpoint || found.checkpoint->iteration > out.newest.checkpoint->iteration))
      out.newest.checkpoint = {found.checkpoint->folder, found.checkpoint->iteration};
  }
  if (out.newest.checkpoint && out.newest.lost_at <= out.newest.checkpoint->iteration) out.newest.lost_at = -1;
  return out;
}

/// Those after iteration `step` in folders of hosts.
void set_aside_later_of_hosts(const comm::Communicator& world, const TrainingOptions& o, std::int64_t step,
                              const std::set<std::filesystem::path>& roots) {
  const auto hosts = hosts_of(world);
  comm::together(world, "later checkpoints", [&] {
    if (!hosts.is_first(world.rank())) return;
    std::vector<std::string> notes;
    AllFound later;
    for (const auto& root : roots)
      for (const auto& [folder, iteration] : checkpoint::list_checkpoints(root, o.prefix))
        if (is_surely_divided({folder, iteration})) later.push_back({folder, iteration});
    set_aside_later(later, step, notes);
  });
}

/// As text for messages, and back.
std::string written(const FoundNewest& found) {
  if (!found.checkpoint) return "";
  const auto& [folder, iteration, format, unfinished] = *found.checkpoint;
  return text(format == nullptr ? "" : format->name(), "\n", iteration, "\n", folder.string());
}
std::optional<checkpoint::FoundCheckpoint> read_found(const std::string& words,
                                                      const checkpoint::CheckpointFormats& formats) {
  if (words.empty()) return std::nullopt;
  const auto first = words.find('\n'), second = words.find('\n', first + 1);
  const auto format = words.substr(0, first);
  return checkpoint::FoundCheckpoint{.folder = words.substr(second + 1),
                                     .iteration = std::stoll(words.substr(first + 1, second - first - 1)),
                                     .format = format.empty() ? nullptr : &formats.named(format)};
}

}  // namespace

std::filesystem::path checkpoint_folder(const TrainingOptions& options) {
  return std::filesystem::path(options.output_dir) / "checkpoints";
}

std::filesystem::path non_persistent_folder(const TrainingOptions& options) {
  if (options.non_persistent_ckpt_type == NonPersistent::local) return *options.non_persistent_local_ckpt_dir;
  if (options.non_persistent_global_ckpt_dir) return *options.non_persistent_global_ckpt_dir;
  return std::filesystem::path(options.output_dir) / non_persistent_name;
}

bool is_in_run_folder(const TrainingOptions& options, const std::filesystem::path& path) {
  const auto root = std::filesystem::absolute(options.output_dir).lexically_normal() / "";
  const auto inside = std::filesystem::absolute(path).lexically_normal().lexically_relative(root);
  return !inside.empty() && *inside.begin() != "..";
}

bool saves_in_foreign_format(const TrainingOptions& options) {
  return options.ckpt_format && *options.ckpt_format != checkpoint::native_format;
}

std::filesystem::path checkpoint_path(const TrainingOptions& options, std::int64_t iteration) {
  if (saves_in_foreign_format(options))
    return std::filesystem::path(options.output_dir) / checkpoint::checkpoint_name("", iteration);
  return checkpoint_folder(options) / checkpoint::checkpoint_name(options.prefix, iteration);
}

const checkpoint::CheckpointFormat* saving_format(const TrainingOptions& options,
                                                  const checkpoint::CheckpointFormats& formats) {
  return saves_in_foreign_format(options) ? &formats.named(*options.ckpt_format) : nullptr;
}

bool is_of_run_folder(const TrainingOptions& options, const std::filesystem::path& checkpoint) {
  const auto real = std::filesystem::canonical(checkpoint);
  const std::filesystem::path folder = options.output_dir;
  const bool is_iteration = real.filename().string().rfind("iter_", 0) == 0;
  return lies_within(checkpoint_folder(options), real) || lies_within(non_persistent_folder(options), real) ||
         std::filesystem::equivalent(real, folder) ||
         (is_iteration && std::filesystem::equivalent(real.parent_path(), folder));
}

BelongsToRun belongs_to(const std::string& run) {
  return [run](const std::filesystem::path& checkpoint) {
    const auto theirs = run_of(checkpoint);
    return theirs.empty() || theirs == run;
  };
}

BelongsToRun saved_by(const std::string& run) {
  return [run](const std::filesystem::path& checkpoint) { return !run.empty() && run_of(checkpoint) == run; };
}

void keep_other(const std::filesystem::path& checkpoint, const std::string& run) {
  const auto theirs = std::filesystem::exists(checkpoint) ? run_of(checkpoint) : "";
  if (!theirs.empty() && theirs != run) rename_other(checkpoint, "another run", "_of_run_" + theirs);
}

void keep_other_of_format(const TrainingOptions& o, const checkpoint::CheckpointFormats& formats,
                          std::int64_t iteration, const std::string& run) {
  const auto place = checkpoint_path(o, iteration);
  keep_other(place, run);
  for (const auto& found : formats.list(o.output_dir))
    if (found.folder.filename() == place.filename() && found.unfinished.empty() && stays(found))
      rename_other(place, "another program", "_of_another_program");
}

AllFound checkpoints_of_folder(const TrainingOptions& o, const checkpoint::CheckpointFormats& formats) {
  AllFound all;
  for (const auto& [folder, iteration] : checkpoint::list_checkpoints(checkpoint_folder(o), o.prefix))
    all.push_back({folder, iteration});
  for (auto& found : formats.list(o.output_dir))
    if (found.format->saves() && checkpoint::iteration_in_name(found.folder)) all.push_back(std::move(found));
  const auto* own = saving_format(o, formats);
  std::stable_partition(all.begin(), all.end(), [&](const auto& found) { return found.format == own; });
  for (const auto& [folder, iteration] : checkpoint::list_checkpoints(non_persistent_folder(o), o.prefix))
    all.push_back({folder, iteration});
  checkpoint::sort_newest_first(all, {});
  return all;
}

AllFound finished_of(const std::string& run, const TrainingOptions& o, const checkpoint::CheckpointFormats& formats) {
  auto all = checkpoints_of_folder(o, formats);
  const auto belongs = belongs_to(run);
  std::erase_if(all, [&](const auto& found) { return !found.unfinished.empty() || !belongs(found.folder); });
  return all;
}

std::unique_ptr<checkpoint::OpenedCheckpoint> open_found(const checkpoint::FoundCheckpoint& found,
                                                         const TrainingOptions& options,
                                                         const options::Mappings& mappings) {
  if (found.format != nullptr) return found.format->open(found.folder, mappings);
  return std::make_unique<checkpoint::NativeCheckpoint>(checkpoint::Checkpoint::open(found.folder), options.crc_check);
}

std::unique_ptr<checkpoint::OpenedCheckpoint> open_index_of(const checkpoint::FoundCheckpoint& found,
                                                            const TrainingOptions& options,
                                                            const options::Mappings& mappings) {
  if (found.format != nullptr) return open_found(found, options, mappings);
  return std::make_unique<checkpoint::NativeCheckpoint>(checkpoint::Checkpoint::open_index(found.folder),
                                                        options.crc_check);
}

void delete_old(const TrainingOptions& o, const checkpoint::CheckpointFormats& formats,
                const options::Mappings& mappings, const std::string& run) {
  const auto delete_unfinished = [](const std::filesystem::path& root, const std::string& prefix) {
    delete_or_tell([&] { checkpoint::delete_unfinished(root, prefix); });
  };
  delete_unfinished(checkpoint_folder(o), o.prefix);
  if (saves_in_foreign_format(o)) delete_unfinished(o.output_dir, "");
  if (o.saves_non_persistent()) delete_unfinished(non_persistent_folder(o), o.prefix);
  auto own = checkpoints_of_folder(o, formats);
  std::erase_if(own, [&](const auto& found) {
    const auto belongs = found.format == nullptr ? belongs_to(run) : saved_by(run);
    return !found.unfinished.empty() || !belongs(found.folder);
  });
  const auto rest =
      std::stable_partition(own.begin(), own.end(), [&](const auto& found) { return !is_non_persistent(o, found); });
  delete_old_of(AllFound(own.begin(), rest), o.keep_checkpoint_max, o, mappings);
  delete_old_of(AllFound(rest, own.end()), 1, o, mappings);
}

void delete_old_of_host(const TrainingOptions& o, const options::Mappings& mappings, const std::string& run) {
  const auto delete_in = [&](const std::filesystem::path& root, std::int64_t count) {
    AllFound own;
    for (const auto& [folder, iteration] : checkpoint::list_checkpoints(root, o.prefix)) {
      const checkpoint::FoundCheckpoint found{folder, iteration};
      if (saved_by(run)(folder) && can_be_opened(found, o, mappings) && is_divided(found)) own.push_back(found);
    }
    delete_old_of(own, count, o, mappings);
  };
  delete_in(checkpoint_folder(o), o.keep_checkpoint_max);
  if (o.saves_non_persistent()) delete_in(non_persistent_folder(o), 1);
}

FoundNewest find_newest(const comm::Communicator& world, const TrainingOptions& options,
                        const checkpoint::CheckpointFormats& formats, const options::Mappings& mappings,
                        const std::string& recorded, std::vector<std::string>& notes, std::optional<std::int64_t> step,
                        const Unreadable& unreadable) {
  constexpr auto another_step = "; give another iteration, or leave it out to continue from the newest checkpoint";
  const auto of_hosts = newest_of_hosts(world, options, recorded, notes, step);
  FoundNewest out;
  comm::together(world, "the search for checkpoints", [&] {
    if (world.rank() > 0) return;
    auto own = own_checkpoints(options, checkpoints_of_folder(options, formats), recorded, notes);
    std::erase_if(own, [&](const auto& found) {
      return of_hosts.roots.contains(found.folder.parent_path()) || unreadable.contains(found.folder);
    });
    if (of_hosts.newest.checkpoint) {
      const auto least = of_hosts.newest.checkpoint->iteration;
      std::erase_if(own, [&](const auto& found) { return found.iteration < least; });
    }
    if (step && of_hosts.newest.checkpoint) return;
    if (step && own.empty() && !of_hosts.roots.empty())
      throw ConfigError(text("training_config.ckpt_step is ", *step, ", but the hosts do not have all parts of a good ",
                             "checkpoint of that iteration in ", of_hosts.roots.begin()->string(), another_step));
    if (step && !own.empty()) {
      out = Search(options, mappings, notes, false).newest_of(of_step(own, *step, options.output_dir));
      if (!out.checkpoint)  // the search has told why
        throw ConfigError(text("training_config.ckpt_step is ", *step, ", but ", notes.back(), another_step));
      set_aside_later(own, *step, notes);
      return;
    }
    out = Search(options, mappings, notes, true).newest_of(own);
    if (!out.checkpoint || out.checkpoint->format == nullptr) return;
    if (const auto note = checkpoint::about_tracker(options.output_dir, own, *out.checkpoint); !note.empty())
      notes.push_back(note);
  });
  out.checkpoint = read_found(world.broadcast(written(out), 0, "the checkpoint to resume from"), formats);
  if (!out.checkpoint) {
    out.checkpoint = of_hosts.newest.checkpoint;
    if (out.checkpoint && step) set_aside_later_of_hosts(world, options, *step, of_hosts.roots);
    if (!out.checkpoint && !unreadable.empty()) throw ConfigError(unreadable.rbegin()->second);
  }
  out.lost_at = std::max(out.lost_at, of_hosts.newest.lost_at);
  return out;
}

bool set_damaged_aside(const comm::Communicator& world, const checkpoint::FoundCheckpoint& found,
                       const std::string& damage, std::vector<std::string>& notes) {
  const char* work = "a damaged checkpoint";
  std::string left;
  comm::together(world, work, [&] {
    if (world.rank() > 0 || !stays(found)) return;
    left = told_unread(found.folder, damage);
    notes.push_back(left);
  });
  if (!world.broadcast(left, 0, work).empty()) return false;
  // Before the first rank renames it, which all hosts see if they have the folder in common.
  const bool has_own = hosts_of(world).is_first(world.rank()) && world.rank() > 0 && is_surely_divided(found);
  world.barrier(work);
  comm::together(world, work, [&] {
    if (has_own) checkpoint::set_aside(found.folder, damage);
    if (world.rank() > 0) return;
    notes.push_back(told_aside(found.folder, damage, checkpoint::set_aside(found.folder, damage)));
  });
  return true;
}

}  // namespace tessera::training
