#include "framework/training/saving/save_job.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>
#include <system_error>
#include <utility>

#include "framework/base/background_thread.h"
#include "framework/base/files.h"
#include "framework/checkpoint/coverage_sum.h"
#include "framework/comm/together.h"
#include "framework/log/log.h"
#include "framework/training/saving/run_hosts.h"

namespace tessera::training {
namespace {

constexpr const char* saving = "saving";
const log::Logger saving_logger("checkpoint");

/// Jobs of different iterations have different tags.
int report_tag_of(std::int64_t iteration) { return (1 << 21) + 2 * static_cast<int>(iteration % (1 << 20)); }

/// Number of ranks in the subtree of `rank`, itself included, in a binary tree over `ranks` ranks.
std::size_t ranks_below(std::int64_t rank, int ranks) {
  return rank >= ranks ? 0 : 1 + ranks_below(2 * rank + 1, ranks) + ranks_below(2 * rank + 2, ranks);
}

bool is_done(comm::Transfer& transfer, bool wait) {
  if (wait) transfer.wait();
  return transfer.done();
}

/// A file in a folder, by which ranks find out whether they have the folder in common.
constexpr const char* token_name = "token_of_folder";

bool has_token(const std::filesystem::path& folder, const std::string& words) {
  try {
    const auto file = folder / token_name;
    return std::filesystem::exists(file) && read_file(file) == words;
  } catch (const std::exception&) {
    return false;
  }
}

/// In our own format.
class OurFiles final : public CheckpointFiles {
 public:
  OurFiles(const SaveTarget& target, int writers) : writer_(target.root, target.prefix, target.iteration, writers) {}
  std::filesystem::path folder() const override { return writer_.folder(); }
  void begin() override { writer_.begin(); }
  checkpoint::WrittenPart write(int rank, const checkpoint::StateSnapshot& state) override {
    return writer_.write(rank, state);
  }
  std::string index() const override { return writer_.index(); }
  void add_index(const std::string& index, const checkpoint::WrittenPart& part) override {
    writer_.add_index(index, part);
  }
  void commit(std::span<const checkpoint::WrittenPart> parts, const checkpoint::Blobs& blobs) override {
    writer_.commit(parts, blobs);
  }
  void abandon() noexcept override { writer_.abandon(); }
  std::filesystem::path divisible() const override { return writer_.unfinished(); }
  void divide(std::vector<std::string> hosts, std::vector<std::string> lists) override {
    writer_.divide(std::move(hosts), std::move(lists));
  }

 private:
  checkpoint::CheckpointWriter writer_;
};

}  // namespace

void after_saving(const std::filesystem::path& folder, const std::function<void()>& after) {
  if (!after) return;
  try {
    after();
  } catch (const std::exception& error) {
    saving_logger.warning(text(folder.string(), " is saved, but old checkpoints may remain: ", error.what()));
  }
}

void with_io_errors(const std::function<void()>& work) {
  try {
    work();
  } catch (const std::filesystem::filesystem_error& error) {
    throw IoError(error.what());
  }
}

SaveJob::SaveJob(const comm::Communicator& world, SaveTarget target,
                 std::shared_ptr<const checkpoint::StateSnapshot> snapshot)
    : world_(world),
      snapshot_(std::move(snapshot)),
      target_(std::move(target)),
      report_tag_(report_tag_of(target_.iteration)),
      leads_(world.rank() == 0) {
  if (!target_.files) target_.files = std::make_unique<OurFiles>(target_, world_.size());
  begin();
  listen();
  start([this] { write(); });
}

/// The only collectives of a job.
void SaveJob::begin() {
  if (world_.size() > 1) {  // of one rank, the writer itself compares
    const auto sums = world_.all_gather(checkpoint::coverage_sum(snapshot_->ranges()), saving);
    if (!checkpoint::cover_exactly(sums))
      checkpoint::must_cover(world_.all_gather(checkpoint::list_of_ranges(snapshot_->ranges()), saving));
  }
  try {
    comm::together(world_, saving, [&] {
      if (leads_) begin_in_folder();
    });
    find_folders();
  } catch (const comm::PeerFailed& failed) {
    if (leads_) target_.files->abandon();
    throw IoError(failed.what());
  } catch (const Error&) {
    if (leads_) target_.files->abandon();
    throw;
  }
}

void SaveJob::begin_in_folder() {
  with_io_errors([&] {
    if (target_.before) target_.before();
    target_.files->begin();
  });
}

/// Which hosts have a folder in common; of those that do, the first rank of one leads.
void SaveJob::find_folders() {
  const auto folder = target_.files->divisible();
  if (world_.size() == 1 || folder.empty()) return;
  const auto hosts = hosts_of(world_);
  if (!hosts.several()) return;
  const auto first_ranks = hosts.first_ranks();
  std::vector<bool> known(first_ranks.size(), false);
  for (std::size_t host = 0; host < first_ranks.size(); ++host) {
    if (known[host]) continue;
    const int leader = first_ranks[host];
    std::string words;
    comm::together(world_, saving, [&] {
      if (world_.rank() != leader) return;
      leads_ = true;
      if (leader > 0) begin_in_folder();
      words = text(std::random_device()(), ' ', std::random_device()());
      write_file_atomic(folder / token_name, words);
    });
    words = world_.broadcast(words, leader, saving);
    const auto found = world_.all_gather(has_token(folder, words) ? "1" : "", saving);
    for (std::size_t other = host; other < first_ranks.size(); ++other)
      if (other == host || !found[static_cast<std::size_t>(first_ranks[other])].empty()) known[other] = true;
    divided_ = divided_ || leader > 0;
  }
  comm::together(world_, saving, [&] {
    if (leads_) delete_all(folder / token_name);
  });
  if (divided_)
    target_.files->divide(hosts.names, world_.all_gather(checkpoint::list_of_ranges(snapshot_->ranges()), saving));
}

/// Begins to receive what the neighbours in the tree will send.
void SaveJob::listen() {
  for (const int rank : {2 * world_.rank() + 1, 2 * world_.rank() + 2}) {
    if (rank >= world_.size()) continue;
    const auto bytes = sizeof(ReportHead) + ranks_below(rank, world_.size()) * sizeof(checkpoint::WrittenPart);
    auto& child = children_.emplace_back(Child{rank, Report(bytes), {}, false, {}, {}, {}});
    child.coming = world_.receive(child.report, rank, report_tag_, saving);
  }
}

SaveJob::~SaveJob() {
  if (stage_ == Stage::ended || std::uncaught_exceptions() > 0) return;
  try {
    give_up("the save was given up");
    advance(true);
  } catch (const std::exception&) {  // the other ranks are gone too; the next save deletes the temporary folder
  }
}

std::filesystem::path SaveJob::finish() {
  hurries_ = true;
  const bool works = work_.valid() && work_.wait_for(std::chrono::seconds(0)) == std::future_status::timeout;
  if (works && thread_ != 0) run_in_foreground(thread_);
  advance(true);
  if (failure_.rank < 0) return target_.files->folder();
  if (own_ && failure_.rank == world_.rank()) std::rethrow_exception(own_);
  throw IoError(
      text("rank ", world_.world_ranks()[static_cast<std::size_t>(failure_.rank)], ": ", failure_.message.data()));
}

void SaveJob::give_up(const std::string& why) {
  if (stage_ < Stage::committing && failure_.rank < 0) fail(why);
}

bool SaveJob::advance(bool wait) {
  while (stage_ != Stage::ended)
    if (!step(wait)) return false;
  return true;
}

/// Ends the present stage if that is possible without waiting, or with `wait` in any case.
bool SaveJob::step(bool wait) {
  switch (stage_) {
    case Stage::writing:
      if (!has_worked(wait)) return false;
      stage_ = Stage::gathering;
      return true;
    case Stage::gathering:
      if (!has_gathered(wait)) return false;
      report();
      return true;
    case Stage::approving:
      if (target_.needs_approval && !approved_ && failure_.rank < 0) {
        must(!wait, "a save that needs approval is approved or given up before somebody waits for its end");
        return false;
      }
      stage_ = Stage::committing;
      start([this] { commit(); });
      return true;
    case Stage::committing:
      if (!has_worked(wait)) return false;
      tell();
      return true;
    case Stage::waiting:
      if (!is_done(reported_, wait) || (!sent_index_.empty() && !is_done(index_reported_, wait)) ||
          !is_done(verdict_, wait))
        return false;
      read_verdict();
      tell();
      return true;
    case Stage::telling:
      for (auto& child : children_)
        if (!is_done(child.verdict, wait)) return false;
      stage_ = Stage::ended;
      if (world_.rank() == 0 || !leads_) return true;
      stage_ = Stage::finishing;
      start([this] { commit_on_host(); });
      return true;
    case Stage::finishing:
      if (!wait && work_.wait_for(std::chrono::seconds(0)) == std::future_status::timeout) return false;
      work_.wait();
      stage_ = Stage::ended;
      return true;
    case Stage::ended:
      break;
  }
  return true;
}

void SaveJob::fail(const std::string& message) {
  failure_.rank = world_.rank();
  failure_.message = {};
  message.copy(failure_.message.data(), failure_.message.size() - 1);
}

void SaveJob::start(std::function<void()> work) {
  try {
    work_ = std::async(std::launch::async, [this, work = std::move(work)] {
      if (target_.background && !hurries_.load()) thread_ = run_in_background();
      with_io_errors(work);
    });
  } catch (const std::system_error& error) {  // no thread; the other ranks are told as of any failure
    work_ = std::async(std::launch::deferred,
                       [what = text("cannot start a thread that writes: ", error.what())] { throw IoError(what); });
  }
}

void SaveJob::write() {
  try {
    parts_ = {target_.files->write(world_.rank(), *snapshot_)};
  } catch (...) {
    snapshot_->end_reading();
    throw;
  }
  snapshot_->end_reading();
}

/// Whether the thread has ended; what it threw is a failure of this rank.
bool SaveJob::has_worked(bool wait) {
  if (!wait && work_.wait_for(std::chrono::seconds(0)) == std::future_status::timeout) return false;
  try {
    work_.get();
  } catch (const std::exception& error) {
    fail_here(error);
  }
  if (parts_.empty()) parts_.resize(1);
  return true;
}

/// In an exception handler.
void SaveJob::fail_here(const std::exception& error) {
  own_ = std::current_exception();
  fail(error.what());
}

/// Whether both messages of a child are here.
bool SaveJob::has_come(Child& child, bool wait) {
  if (!is_done(child.coming, wait)) return false;
  if (!child.has_reported) {
    child.has_reported = true;
    ReportHead head;
    std::memcpy(&head, child.report.data(), sizeof head);
    child.index.resize(head.index_bytes);
    if (!child.index.empty())
      child.index_coming =
          world_.receive(std::as_writable_bytes(std::span(child.index)), child.rank, report_tag_, saving);
  }
  return child.index.empty() || is_done(child.index_coming, wait);
}

bool SaveJob::has_gathered(bool wait) {
  for (auto& child : children_)
    if (!has_come(child, wait)) return false;
  for (const auto& child : children_) read(child);
  return true;
}

void SaveJob::read(const Child& child) {
  ReportHead head;
  std::memcpy(&head, child.report.data(), sizeof head);
  const auto& theirs = head.failure;
  if (theirs.rank >= 0 && (failure_.rank < 0 || theirs.rank < failure_.rank)) failure_ = theirs;
  const auto own = parts_.size();
  for (auto at = sizeof head; at < child.report.size(); at += sizeof(checkpoint::WrittenPart))
    std::memcpy(&parts_.emplace_back(), child.report.data() + at, sizeof(checkpoint::WrittenPart));
  if (failure_.rank >= 0 || divided_) return;
  try {
    target_.files->add_index(child.index, parts_[own]);
  } catch (const std::exception& error) {
    fail_here(error);
  }
}

/// All ranks of this subtree have written: on to the parent, or to the commit.
void SaveJob::report() {
  if (world_.rank() == 0) {
    stage_ = Stage::approving;
    return;
  }
  if (failure_.rank < 0 && !divided_) sent_index_ = target_.files->index();
  const ReportHead head{failure_, sent_index_.size()};
  const auto parts = std::as_bytes(std::span(parts_));
  sent_.resize(sizeof head + parts.size());
  std::memcpy(sent_.data(), &head, sizeof head);
  std::memcpy(sent_.data() + sizeof head, parts.data(), parts.size());
  const int parent = (world_.rank() - 1) / 2;
  reported_ = world_.send(sent_, parent, report_tag_, saving);
  if (!sent_index_.empty())
    index_reported_ = world_.send(std::as_bytes(std::span(sent_index_)), parent, report_tag_, saving);
  told_.resize(sizeof failure_ +
               (divided_ ? static_cast<std::size_t>(world_.size()) * sizeof(checkpoint::WrittenPart) : 0));
  verdict_ = world_.receive(told_, parent, report_tag_ + 1, saving);
  stage_ = Stage::waiting;
}

void SaveJob::commit() {
  if (failure_.rank >= 0) return target_.files->abandon();
  try {
    target_.files->commit(parts_, snapshot_->blobs());
  } catch (...) {
    target_.files->abandon();
    throw;
  }
  after_saving(target_.files->folder(), target_.after);
}

/// From the parent: whether the job failed and, if it is divided, the parts of all ranks.
void SaveJob::read_verdict() {
  std::memcpy(&failure_, told_.data(), sizeof failure_);
  if (!divided_) return;
  parts_.resize(static_cast<std::size_t>(world_.size()));
  std::memcpy(parts_.data(), told_.data() + sizeof failure_, parts_.size() * sizeof(checkpoint::WrittenPart));
}

/// Passes the verdict on.
void SaveJob::tell() {
  stage_ = Stage::telling;
  const auto parts = std::as_bytes(std::span(parts_));
  told_.resize(sizeof failure_ + (divided_ ? parts.size() : 0));
  std::memcpy(told_.data(), &failure_, sizeof failure_);
  if (divided_) std::memcpy(told_.data() + sizeof failure_, parts.data(), parts.size());
  for (auto& child : children_) child.verdict = world_.send(told_, child.rank, report_tag_ + 1, saving);
}

/// Rank 0 has committed the checkpoint, or the job has failed. Nobody is told of an error here: the next start of the
/// run does what was left undone.
void SaveJob::commit_on_host() noexcept {
  if (failure_.rank >= 0) {
    target_.files->abandon();
    return;
  }
  try {
    target_.files->commit(parts_, snapshot_->blobs());
  } catch (const std::exception&) {  // the files stay
    return;
  }
  after_saving(target_.files->folder(), target_.after);
}

}  // namespace tessera::training
