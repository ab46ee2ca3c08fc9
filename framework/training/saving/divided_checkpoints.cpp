#include "framework/training/saving/divided_checkpoints.h"

#include <algorithm>
#include <map>

#include "framework/base/files.h"
#include "framework/checkpoint/find.h"
#include "framework/checkpoint/host_parts.h"
#include "framework/comm/together.h"

namespace tessera::training {
namespace {

namespace fs = std::filesystem;

constexpr const char* searching = "the search for checkpoints of all hosts";

std::string unfinished(const fs::path& folder) { return folder.string() + "_tmp"; }

/// Names of the manifests of writers in a folder.
std::string parts_named_in(const fs::path& folder) {
  std::string names;
  for (const auto& path : list_folder(folder))
    if (path.filename().string().rfind("manifest_", 0) == 0) names += ' ' + path.filename().string();
  return names;
}

bool is_divided(const fs::path& folder) {
  try {
    return !checkpoint::hosts_of_parts(folder).empty();
  } catch (const Error&) {  // of one writer, or damaged
    return false;
  }
}

/// A line for each checkpoint in the folder of this host: its iteration, the run, and the parts that are here.
std::string inventory(const HostFolder& folder) {
  std::string lines;
  if (!fs::is_directory(folder.root)) return lines;
  for (const auto& [path, iteration] : checkpoint::list_checkpoints(folder.root, folder.prefix))
    lines += text(iteration, ' ', checkpoint::run_of(path), '\t', parts_named_in(path), '\n');
  return lines;
}

/// Of all hosts: the iterations of checkpoints that belong to the run, newest first.
std::vector<std::int64_t> iterations_in(const std::vector<std::string>& inventories, const HostFolder& folder,
                                        std::optional<std::int64_t> step) {
  std::set<std::int64_t, std::greater<>> found;
  for (const auto& lines : inventories)
    for (std::size_t at = 0; at < lines.size(); at = lines.find('\n', at) + 1) {
      const auto space = lines.find(' ', at), tab = lines.find('\t', at);
      const auto iteration = std::stoll(lines.substr(at, space - at));
      if ((!step || *step == iteration) && folder.belongs(lines.substr(space + 1, tab - space - 1)))
        found.insert(iteration);
    }
  return {found.begin(), found.end()};
}

/// The search for one checkpoint.
class Candidate {
 public:
  Candidate(const comm::Communicator& world, const RunHosts& hosts, fs::path folder)
      : world_(world), hosts_(hosts), folder_(std::move(folder)) {}

  /// Whether a host has its index.
  bool has_index() {
    std::string own;
    if (hosts_.is_first(world_.rank())) own = packed_here();
    const auto sizes = world_.all_gather(own.empty() ? "" : "1", searching);
    const auto giver = std::find_if(sizes.begin(), sizes.end(), [](const auto& one) { return !one.empty(); });
    if (giver == sizes.end()) return false;
    is_here_ = !own.empty();
    packed_ = world_.broadcast(own, static_cast<int>(giver - sizes.begin()), searching);
    return true;
  }

  /// Whether the hosts together have all parts.
  bool is_whole() {
    comm::together(world_, searching, [&] {
      if (hosts_.is_first(world_.rank())) find_parts();
    });
    std::string bits;
    for (const bool part : here_) bits += part ? '1' : '0';
    for (const auto& other : world_.all_gather(bits, searching)) {
      all_.resize(std::max(all_.size(), other.size()), false);
      for (std::size_t i = 0; i < other.size(); ++i) all_[i] = all_[i] || other[i] == '1';
    }
    return std::find(all_.begin(), all_.end(), false) == all_.end();
  }

  void adopt() {
    comm::together(world_, searching, [&] {
      if (hosts_.is_first(world_.rank()) && (!is_here_ || takes_unfinished_))
        checkpoint::adopt_index(folder_, packed_, takes_unfinished_);
    });
  }

  std::string about_missing() const { return checkpoint::about_missing(packed_, all_); }

 private:
  std::string packed_here() const {
    try {
      return fs::is_directory(folder_) ? checkpoint::pack_index(folder_) : "";
    } catch (const Error&) {  // another host may have it
      return "";
    }
  }

  void find_parts() {
    here_ = checkpoint::parts_in(folder_, packed_);
    const auto left = checkpoint::parts_in(unfinished(folder_), packed_);
    const auto count = [](const auto& found) { return std::count(found.begin(), found.end(), true); };
    takes_unfinished_ = count(left) > count(here_);
    if (takes_unfinished_) here_ = left;
  }

  const comm::Communicator& world_;
  const RunHosts& hosts_;
  fs::path folder_;
  std::string packed_;
  bool is_here_ = false, takes_unfinished_ = false;
  std::vector<bool> here_, all_;  // parts of this host, and of all
};

}  // namespace

FoundDivided newest_divided(const comm::Communicator& world, const RunHosts& hosts, const HostFolder& folder,
                            std::optional<std::int64_t> step, std::vector<std::string>& notes) {
  FoundDivided out;
  std::string own;
  comm::together(world, searching, [&] {
    if (hosts.is_first(world.rank())) own = inventory(folder);
  });
  const auto inventories = world.all_gather(own, searching);
  const auto first_ranks = hosts.first_ranks();
  out.is_divided = std::any_of(first_ranks.begin(), first_ranks.end(), [&](int rank) {
    return inventories[static_cast<std::size_t>(rank)] != inventories.front();
  });
  if (!out.is_divided && !own.empty()) {  // the other hosts may be gone
    const auto newest = checkpoint::list_checkpoints(folder.root, folder.prefix);
    out.is_divided = !newest.empty() && is_divided(newest.front().folder);
  }
  out.is_divided = !world.broadcast(out.is_divided ? "1" : "", 0, searching).empty();
  if (!out.is_divided) return out;
  for (const auto iteration : iterations_in(inventories, folder, step)) {
    const auto path = folder.root / checkpoint::checkpoint_name(folder.prefix, iteration);
    Candidate candidate(world, hosts, path);
    std::string why;
    if (!candidate.has_index())
      why = "no host has its index";
    else if (!candidate.is_whole())
      why = candidate.about_missing() + ", are on no host of this run";
    if (why.empty()) {
      candidate.adopt();
      out.checkpoint = {path, iteration};
      return out;
    }
    out.lost_at = std::max(out.lost_at, iteration);
    if (world.rank() == 0)
      notes.push_back(text("checkpoint ", path.string(), " is not whole: ", why, "; it is ignored"));
  }
  return out;
}

void complete_divided(const comm::Communicator& world, const RunHosts& hosts, const fs::path& root,
                      const std::string& prefix) {
  std::string own;
  comm::together(world, searching, [&] {
    if (!hosts.is_first(world.rank()) || !fs::is_directory(root)) return;
    for (const auto& one : checkpoint::list_unfinished(root, prefix)) own += text(one.iteration, '\n');
  });
  std::set<std::int64_t> iterations;
  for (const auto& lines : world.all_gather(own, searching))
    for (std::size_t at = 0; at < lines.size(); at = lines.find('\n', at) + 1)
      iterations.insert(std::stoll(lines.substr(at)));
  for (const auto iteration : iterations) {
    Candidate candidate(world, hosts, root / checkpoint::checkpoint_name(prefix, iteration));
    if (candidate.has_index() && candidate.is_whole()) candidate.adopt();
  }
}

PartsToRead parts_to_read(const std::vector<std::vector<bool>>& here, std::size_t rank) {
  PartsToRead out;
  const auto& own = here[rank];
  const auto like_own = [&](const auto& other) { return other == own; };
  out.which =
      static_cast<std::size_t>(std::count_if(here.begin(), here.begin() + static_cast<std::ptrdiff_t>(rank), like_own));
  out.of = static_cast<std::size_t>(std::count_if(here.begin(), here.end(), like_own));
  for (std::size_t part = 0; part < own.size(); ++part) {
    const auto first = std::find_if(here.begin(), here.end(), [&](const auto& other) { return other[part]; });
    if (first == here.end() ? like_own(here.front()) : like_own(*first)) out.parts.push_back(part);
  }
  return out;
}

}  // namespace tessera::training
