#include "framework/training/saving/run_folder.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <functional>

#include "framework/base/json.h"
#include "framework/base/links.h"
#include "framework/base/run_event.h"
#include "framework/checkpoint/checkpoint.h"
#include "framework/comm/together.h"
#include "framework/reporting/progress_file.h"
#include "framework/reporting/run_log.h"
#include "framework/reporting/tensorboard.h"
#include "framework/training/saving/run_checkpoints.h"
#include "framework/training/saving/sample_quarantine.h"
#include "framework/worker/launch_link.h"

namespace tessera::training {
namespace {

namespace fs = std::filesystem;

constexpr const char *record_file = "run.json", *journal_file = "setting_aside.json";
/// Written by every run, whatever its format of checkpoints. log/ is tsrun's.
constexpr std::array<const char*, 11> own_names = {"checkpoints",
                                                   "metrics.jsonl",
                                                   events_file_name,
                                                   "tensorboard",
                                                   reporting::log_file_name,
                                                   reporting::progress_file_name,
                                                   "resolved.yaml",
                                                   record_file,
                                                   before_conversion,
                                                   quarantine_file_name,
                                                   non_persistent_name};

bool is_there(const fs::path& path) {
  std::error_code absent;
  return fs::exists(fs::symlink_status(path, absent));
}

bool ends_with(const std::string& name, std::string_view end) {
  return name.size() >= end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0;
}

/// "iter_" and digits in it, as in the names of checkpoints and of those set aside as damaged.
bool names_checkpoint(const std::string& name) {
  const auto at = name.find("iter_");
  return at != std::string::npos && at + 5 < name.size() &&
         std::isdigit(static_cast<unsigned char>(name[at + 5])) != 0 && !ends_with(name, "_tmp");
}

/// iter_* folders in formats of other programs.
std::vector<fs::path> foreign_iterations(const fs::path& folder, const checkpoint::CheckpointFormats& formats) {
  auto found = list_folder(folder);
  std::erase_if(found, [&](const fs::path& path) {
    const auto name = path.filename().string();
    return name.rfind("iter_", 0) != 0 || !names_checkpoint(name) || formats.of(path) == nullptr;
  });
  return found;
}

/// Whether standard output or error of this process is a file in `logs`: those of tsrun's workers are.
bool takes_output(const fs::path& logs) {
  for (const int stream : {STDOUT_FILENO, STDERR_FILENO}) {
    struct stat own {};
    if (::fstat(stream, &own) != 0) continue;
    for (const auto& path : list_folder(logs)) {
      struct stat facts {};
      if (::stat(path.c_str(), &facts) == 0 && facts.st_dev == own.st_dev && facts.st_ino == own.st_ino) return true;
    }
  }
  return false;
}

bool is_log_folder(const fs::path& logs) {
  if (fs::is_symlink(logs) || !fs::is_directory(logs)) return false;
  const auto files = list_folder(logs);
  return std::any_of(files.begin(), files.end(), [](const fs::path& path) {
    const auto name = path.filename().string();
    return name == "scheduler.log" || (name.rfind("worker_", 0) == 0 && ends_with(name, ".log"));
  });
}

/// What a run wrote: all that is to be moved when it is set aside.
std::vector<fs::path> contents(const fs::path& folder, const checkpoint::CheckpointFormats& formats) {
  auto all = foreign_iterations(folder, formats);
  // The tracker goes first: without the folders nothing would tell that it is one of theirs.
  if (const auto tracker = folder / checkpoint::tracker_name(""); !all.empty() && is_there(tracker))
    all.insert(all.begin(), tracker);
  const auto own = files_of_run(folder);
  all.insert(all.end(), own.begin(), own.end());
  if (const auto logs = folder / "log"; is_log_folder(logs) && !takes_output(logs)) all.push_back(logs);
  return all;
}

/// Never over something that is there.
bool rename_new(const fs::path& from, const fs::path& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return true;
  if (errno != EINVAL && errno != ENOSYS) return false;
  if (!is_there(to)) return ::rename(from.c_str(), to.c_str()) == 0;  // a file system that cannot promise it
  errno = EEXIST;
  return false;
}

void move_into(const fs::path& from, const fs::path& folder) {
  const auto to = folder / from.filename();
  if (!rename_new(from, to))
    throw IoError(text(from.string(), ": cannot be renamed to ", to.string(), ": ", std::strerror(errno)));
}

/// A new folder `<place>.<n>`.
fs::path make_sibling(const fs::path& place) {
  for (int number = 1;; ++number) {
    const fs::path sibling = text(place.string(), ".", number);
    if (::mkdir(sibling.c_str(), 0777) == 0) return sibling;
    if (errno != EEXIST) throw IoError(text(sibling.string(), ": cannot be made: ", std::strerror(errno)));
  }
}

void move_all(const std::vector<fs::path>& paths, const fs::path& aside) {
  std::size_t moved = 0;
  try {
    for (; moved < paths.size(); ++moved) move_into(paths[moved], aside);
  } catch (const IoError&) {
    while (moved > 0) {
      --moved;
      move_into(aside / paths[moved].filename(), paths[moved].parent_path());
    }
    throw;
  }
}

std::string new_run_id() {
  std::array<unsigned char, 8> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    throw Error("the system has no random numbers");
  std::string id;
  for (const auto byte : bytes) id += "0123456789abcdef"[byte >> 4U], id += "0123456789abcdef"[byte & 15U];
  return id;
}

Json json_of(const RunRecord& record) {
  Json json = {{"run", record.run}, {"jobs", record.jobs}};
  if (record.began_after >= 0) json["began_after"] = record.began_after, json["taken"] = record.taken;
  if (record.facts.is_object()) json.update(record.facts);
  if (!record.moved_to.empty()) json["load_checkpoint"] = {{"given", record.load_checkpoint}, {"now", record.moved_to}};
  return json;
}

RunRecord record_of(const std::string& words) {
  try {
    const auto json = read_json(words);
    RunRecord record;
    record.run = json.at("run").string();
    record.jobs = json.at("jobs").get<std::map<std::string, std::int64_t>>();
    record.began_after = json.value("began_after", record.began_after);
    record.taken = json.value("taken", record.taken);
    if (json.contains("load_checkpoint")) {
      record.load_checkpoint = json["load_checkpoint"].at("given").string();
      record.moved_to = json["load_checkpoint"].at("now").string();
    }
    return record;
  } catch (const JsonError&) {
    return {};
  }
}

/// Whether a job that this process is a start of began the run with an earlier start of its own.
bool restarts(const RunRecord& record) {
  const auto now = worker::job_starts();
  return std::any_of(now.begin(), now.end(), [&](const auto& job) {
    const auto before = record.jobs.find(job.first);
    return before != record.jobs.end() && before->second < job.second;
  });
}

/// Whether a run could begin from what is there.
bool holds_loadable(const fs::path& place, const std::string& prefix, const checkpoint::CheckpointFormats& formats) {
  if (fs::exists(place / "manifest.json") || formats.of(place) != nullptr) return true;
  for (const auto& beginning : {prefix, std::string()})
    for (const auto& folder : {place, place / "checkpoints"})
      if (!checkpoint::list_checkpoints(folder, beginning).empty()) return true;
  return false;
}

void check_links(const fs::path& folder) {
  for (const auto* name : own_names) must_stay_within(folder, folder / name);
  for (const char* name : {"in_use", journal_file}) must_stay_within(folder, folder / name);
}

RunRecord read_record(const fs::path& folder) {
  return fs::is_regular_file(folder / record_file) ? record_of(read_file(folder / record_file)) : RunRecord{};
}

void write_record(const fs::path& folder, const RunRecord& record) {
  write_file_atomic(folder / record_file, json_of(record).sorted().dump(1) + "\n");
}

/// RunRecord::taken of a start with these options.
std::string taken_by(const TrainingOptions& o) {
  std::string all;
  const auto add = [&all](const char* option) { all += text(all.empty() ? "" : ", ", option); };
  if (o.no_load_optim) add("no_load_optim");
  if (!o.load_main_params_from_ckpt.value_or(true)) add("load_main_params_from_ckpt false");
  if (o.new_dataset) add("new_dataset");
  return all;
}

/// Whether a run left checkpoints, damaged ones included.
bool holds_checkpoints(const fs::path& folder, const checkpoint::CheckpointFormats& formats) {
  auto found = list_folder(folder / "checkpoints");
  const auto more = list_folder(folder / non_persistent_name);
  found.insert(found.end(), more.begin(), more.end());
  return !foreign_iterations(folder, formats).empty() ||
         std::any_of(found.begin(), found.end(), [](const auto& path) { return names_checkpoint(path.filename()); });
}

/// Whether a run left what another run must not overwrite: checkpoints, logged steps, events.
bool holds_results(const fs::path& folder, const checkpoint::CheckpointFormats& formats) {
  std::error_code absent;
  const auto logged = fs::file_size(folder / "metrics.jsonl", absent);
  return (!absent && logged > 0) || holds_checkpoints(folder, formats) ||
         reporting::holds_points((folder / "tensorboard").string());
}

/// A move of an earlier run to `to`, and the record of the run that takes its place. The journal of it lies in the run
/// folder from before the first rename until run.json is that record, so that a start after a crash completes it.
struct SettingAside {
  fs::path to;
  RunRecord next;
};

void write_journal(const fs::path& place, const SettingAside& move) {
  const Json json = {{"to", move.to.filename().string()}, {"next", json_of(move.next)}};
  write_file_atomic(place / journal_file, json.sorted().dump(1) + "\n");
}

void end_move(const fs::path& place, const SettingAside& move) {
  sync_folder(move.to);
  write_record(place, move.next);
  delete_all(place / journal_file);
  sync_folder(place);
  sync_folder(place.parent_path());
}

/// Move what a run wrote in `folder` into a new folder beside it, by renaming, and return that. `next` makes the new
/// run's record, given that folder and what moves there. Throws ConfigError when it is not possible; then everything
/// is where it was.
fs::path set_run_aside(const fs::path& folder, const checkpoint::CheckpointFormats& formats,
                       const std::function<RunRecord(const fs::path& to, const std::vector<fs::path>& moving)>& next) {
  const auto place = fs::canonical(folder);
  fs::path aside;
  try {
    aside = make_sibling(place);
    const auto moving = contents(place, formats);
    const SettingAside move{aside, next(aside, moving)};
    write_journal(place, move);
    move_all(moving, aside);
    end_move(place, move);
    return aside;
  } catch (const IoError& error) {
    std::error_code ignored;
    if (!aside.empty() && fs::remove(aside, ignored)) fs::remove(place / journal_file, ignored);  // it was empty again
    throw ConfigError(text(folder.string(), ": holds an earlier run, which cannot be set aside: ", error.what(),
                           "; give another training_config.output_dir, or continue the earlier run with "
                           "training_config.resume_training=true"));
  }
}

/// Complete a move that was cut short; returns where to, or nothing when there was none. Throws ConfigError.
std::optional<fs::path> finish_setting_aside(const fs::path& folder, const checkpoint::CheckpointFormats& formats) {
  const auto journal = folder / journal_file;
  if (!fs::is_regular_file(journal)) return std::nullopt;
  const auto place = fs::canonical(folder);
  const auto json = parse_json(read_file(journal));
  const auto to = json.is_object() ? json.value("to", Json()) : Json();
  const auto name = to.is_string() ? to.string() : "";
  const auto aside = place.parent_path() / name;
  if (name.rfind(place.filename().string() + ".", 0) != 0 || name.find('/') != std::string::npos ||
      fs::is_symlink(aside) || !fs::is_directory(aside))
    throw ConfigError(text(journal.string(), ": moving an earlier run to '", name,
                           "' was interrupted, and there is no such folder beside ", place.string(),
                           "; if all files in ", place.string(), " belong to one run, delete ", journal.string()));
  try {
    for (const auto& path : contents(place, formats))
      if (!is_there(aside / path.filename())) move_into(path, aside);  // run.json may be the new one already
    end_move(place, {aside, record_of(json.value("next", Json()).dump())});
  } catch (const IoError& error) {
    throw ConfigError(text(folder.string(), ": an earlier run could be moved to ", aside.string(),
                           " only in part: ", error.what(),
                           "; remove the cause and start again, or give another training_config.output_dir"));
  }
  return aside;
}

}  // namespace

std::vector<fs::path> files_of_run(const fs::path& folder) {
  std::vector<fs::path> all;
  for (const auto* name : own_names)
    for (const auto& path : {folder / name, folder / (std::string(name) + "_tmp")})
      if (is_there(path)) all.push_back(path);
  return all;
}

RunFolder::RunFolder(const comm::Communicator& world, const TrainingOptions& options,
                     const checkpoint::CheckpointFormats& formats)
    : world_(world), options_(options), formats_(formats), folder_(options.output_dir) {
  Json known;
  comm::together(world_, "the run folder", [&] {
    if (world_.rank() > 0) return;
    try {
      make_folder(folder_);
      check_links(folder_);
      lock_.emplace(folder_);
    } catch (const IoError& error) {
      throw ConfigError(
          text(error.what(), "; it is training_config.output_dir, the run folder: choose one that can be written"));
    } catch (const fs::filesystem_error& error) {
      throw ConfigError(text(error.path1().string(), ": ", error.code().message(),
                             "; it is in training_config.output_dir, the run folder: choose one that can be written"));
    }
    if (const auto aside = finish_setting_aside(folder_, formats_))
      notes_.push_back(text("finished setting the earlier run in ", folder_.string(), " aside as ", aside->string(),
                            ", which was cut short"));
    const auto record = read_record(folder_);
    known = {{"record", json_of(record)}, {"restart", restarts(record)}};
  });
  known = read_json(world_.broadcast(known.dump(), 0, "the run folder"));
  found_ = record_of(known["record"].dump());
  is_restart_ = known["restart"].get<bool>();
  if (is_restart_ && found_.taken == taken_by(options_)) began_after_ = found_.began_after;
}

fs::path RunFolder::given_checkpoint() const {
  const fs::path given = *options_.load_checkpoint;
  if (found_.moved_to.empty() || found_.load_checkpoint != given || holds_loadable(given, options_.prefix, formats_))
    return given;
  if (fs::exists(found_.moved_to)) return found_.moved_to;
  throw ConfigError(text("training_config.load_checkpoint: ", given.string(), " was set aside with an earlier run as ",
                         found_.moved_to, ", which no longer exists; give its new path"));
}

/// No checkpoint was saved, so that it starts from its first step: the run that was in the folder all the same?
bool RunFolder::is_same_run(const std::function<bool(const std::string& resolved)>& same_recipe) const {
  if (holds_checkpoints(folder_, formats_)) return false;
  const auto file = folder_ / "resolved.yaml";
  return is_restart_ ||
         (options_.resume_training != Resume::never && fs::is_regular_file(file) && same_recipe(read_file(file)));
}

/// Where `source` lies when `moving` have moved from the run folder to `to`.
fs::path RunFolder::place_after(const fs::path& source, const fs::path& to, const std::vector<fs::path>& moving) const {
  if (source.empty() || !lies_within(folder_, source)) return source;
  const auto below = fs::canonical(source).lexically_relative(fs::canonical(folder_));
  if (below == ".") return to;
  const bool moves = std::any_of(moving.begin(), moving.end(),
                                 [&](const fs::path& path) { return path.filename() == *below.begin(); });
  return moves ? to / below : source;
}

/// Writes into the folder. A restart of the run that is there may go without: a disk that is full costs no step.
void RunFolder::write_unless_restarted(bool same_run, const std::function<void()>& write) {
  try {
    write();
  } catch (const IoError& error) {
    if (!same_run || !is_restart_) throw;
    notes_.push_back(text(error.what(), "; this restart continues without it"));
  }
}

std::string RunFolder::take_over(bool continues, const std::string& checkpoint_run, const std::string& recipe,
                                 const std::function<bool(const std::string& resolved)>& same_recipe,
                                 const Json& facts) {
  const bool same_run = continues || is_same_run(same_recipe);
  RunRecord record;
  record.run = continues && !checkpoint_run.empty() ? checkpoint_run : same_run ? found_.run : "";
  if (record.run.empty()) record.run = new_run_id();
  record.jobs = worker::job_starts();
  record.began_after = began_after_;
  record.taken = taken_by(options_);
  record.facts = facts;
  fs::path given, source;
  if (options_.load_checkpoint) {
    given = source = *options_.load_checkpoint;
    const bool moved = !found_.moved_to.empty() && found_.load_checkpoint == given;
    if (continues && moved) source = found_.moved_to;
    if (!continues) source = given_checkpoint();
  }
  const auto with_source = [&](const fs::path& now) {
    own_ = record;
    if (now != given) own_.load_checkpoint = given.string(), own_.moved_to = fs::absolute(now).string();
    return own_;
  };
  if (!same_run && holds_results(folder_, formats_)) {
    const auto aside = set_run_aside(folder_, formats_, [&](const fs::path& to, const std::vector<fs::path>& moving) {
      return with_source(place_after(source, to, moving));
    });
    notes_.push_back(text("the earlier run in ", folder_.string(), " was set aside as ", aside.string()));
  } else {
    write_unless_restarted(same_run, [&] { write_record(folder_, with_source(source)); });
  }
  write_unless_restarted(same_run, [&] { write_file_atomic(folder_ / "resolved.yaml", recipe); });
  return record.run;
}

std::string RunFolder::begin(bool continues, const checkpoint::Progress& from, const std::string& recipe,
                             const std::function<bool(const std::string& resolved)>& same_recipe, const Json& facts) {
  began_after_ = began_after_ < 0 ? from.iteration : std::min(began_after_, from.iteration);
  std::string run;
  comm::together(world_, "the run folder", [&] {
    if (world_.rank() == 0) run = take_over(continues, from.run, recipe, same_recipe, facts);
  });
  return world_.broadcast(run, 0, "the run's id");
}

void RunFolder::went_back(std::int64_t iteration) {
  if (iteration >= began_after_) return;
  began_after_ = iteration;
  if (world_.rank() > 0) return;
  own_.began_after = iteration;
  try {
    write_record(folder_, own_);
  } catch (const IoError&) {  // a disk that is full: add_fact() and the next start try again
  }
}

void RunFolder::add_fact(const std::string& name, Json fact) {
  own_.facts.put(name, std::move(fact));
  write_record(folder_, own_);
}

}  // namespace tessera::training
