#include "framework/training/saving/shared_loading.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <optional>
#include <unordered_set>
#include <vector>

#include "framework/base/files.h"
#include "framework/comm/together.h"
#include "framework/training/saving/box_message.h"
#include "framework/training/saving/divided_checkpoints.h"

namespace tessera::training {
namespace {

using checkpoint::DamageError;
using checkpoint::NamedRange;
using checkpoint::TensorRange;

constexpr const char* loading = "loading";
constexpr int loading_tag = 1 << 22;  // above those of SaveJob

/// Of the memory for messages, the share that may go to one rank, so that a rank that gets something from all others
/// has memory for it.
constexpr std::size_t share_of_rank = 16;
constexpr std::size_t least_piece_bytes = std::size_t{32} << 10;

/// What a rank tells each other rank before a round of messages.
struct Announcement {
  std::uint64_t bytes = 0;  ///< of its message
  std::uint64_t more = 0;   ///< 1: it has not read its share to the end
};

using Want = LoadingPlan::Want;

class SharedLoading {
 public:
  SharedLoading(const comm::Communicator& world, const checkpoint::Checkpoint& from,
                std::span<const TensorRange> wanted, bool check_crc, std::size_t bytes)
      : world_(world),
        from_(from),
        wanted_(wanted),
        check_crc_(check_crc),
        bytes_(bytes),
        filled_(wanted.size()),
        outgoing_(static_cast<std::size_t>(world.size())),
        coming_(outgoing_.size()) {}

  void run() {
    begin();
    for (bool more = true; more;) {
      attempt([&] { fill(); });
      more = exchange();
    }
  }

  /// After run(): throws what this rank failed with.
  void rethrow() const {
    if (failed_) std::rethrow_exception(failed_);
  }
  /// If no rank failed: throws DamageError if some elements were stored nowhere, or twice.
  void must_be_filled() const {
    for (std::size_t i = 0; i < filled_.size(); ++i)
      if (filled_[i] != wanted_[i].tensor.elements())
        throw DamageError(text(from_.folder().string(), ": tensor '", wanted_[i].name, "': its ranges hold ",
                               filled_[i], " of ", wanted_[i].tensor.elements(), " elements that are needed"));
  }

 private:
  /// A rank that fails goes on with the messages, for the others wait for them, but reads nothing more.
  void attempt(const std::function<void()>& work) {
    if (failed_) return;
    try {
      work();
      return;
    } catch (const IoError& error) {
      failed_ = std::make_exception_ptr(DamageError(error.what()));
    } catch (const std::exception&) {
      failed_ = std::current_exception();
    }
    stream_.reset();
    plan_ = {};
    at_ = 0;
  }

  void begin() {
    const auto lists = world_.all_gather(list_of_wanted(wanted_), loading);
    const auto here = parts_of_ranks();
    attempt([&] {
      plan_ = plan_loading(from_, lists, static_cast<std::size_t>(world_.rank()), here);
      if (!check_crc_) return;
      for (const auto& header : plan_.share.headers)
        checkpoint::header_must_match(open(header.file), header.bytes, header.crc);
    });
  }

  /// Of a checkpoint that is divided over hosts, the parts that each rank finds; else empty.
  std::vector<std::vector<bool>> parts_of_ranks() const {
    std::vector<std::vector<bool>> all;
    if (!from_.is_divided()) return all;
    std::string own;
    for (const bool part : from_.parts_here()) own += part ? '1' : '0';
    for (const auto& parts : world_.all_gather(own, loading)) {
      auto& here = all.emplace_back();
      for (const char part : parts) here.push_back(part == '1');
    }
    return all;
  }

  const File& open(const std::string& name) {
    if (!file_ || file_->path().filename() != name) file_ = File::open(from_.folder() / name);
    return *file_;
  }

  /// Reads on until the messages are full.
  void fill() {
    for (; at_ < plan_.share.ranges.size(); ++at_) {
      if (!stream_) begin_range(plan_.share.ranges[at_]);
      while (!stream_->ended()) {
        if (packed_ >= bytes_ || most_ >= std::max(bytes_ / share_of_rank, least_piece_bytes)) return;
        take_piece(plan_.share.ranges[at_]);
      }
      if (check_crc_) stream_->must_match();
      stream_.reset();
    }
  }

  void begin_range(const NamedRange& range) {
    const auto box = range.box();
    here_.clear();
    for (const auto& want : plan_.wants.at(id_of(range.name)))
      if (intersection(box, want.box)) here_.push_back(&want);
    const auto piece = bytes_ / std::max<std::size_t>(share_of_rank, here_.size());
    stream_.emplace(open(range.range.file), range, std::clamp(piece, least_piece_bytes, checkpoint::read_piece_bytes));
    if (!buffer_) buffer_ = std::make_unique_for_overwrite<std::byte[]>(checkpoint::read_piece_bytes);
  }

  const TensorRange& own(const Want& want) const { return wanted_[static_cast<std::size_t>(want.index)]; }

  void take_piece(const NamedRange& range) {
    const auto piece = stream_->box();
    std::span<std::byte> bytes(buffer_.get(), stream_->bytes());
    const Want* placed = nullptr;  // read into its memory
    for (const auto* want : here_) {
      if (want->rank != world_.rank()) continue;
      const auto place = checkpoint::place_in(own(*want), piece, range.type);
      if (place.empty()) continue;
      placed = want;
      bytes = place;
      break;
    }
    stream_->read(bytes, check_crc_);
    for (const auto* want : here_) {
      const auto common = intersection(piece, want->box);
      if (!common) continue;
      if (want->rank == world_.rank()) {
        if (want != placed) checkpoint::copy_common(piece, bytes, range.type, own(*want));
        filled_[static_cast<std::size_t>(want->index)] += common->elements();
      } else {
        pack(*want, *common, piece, bytes, range.type);
      }
    }
  }

  void pack(const Want& want, const Box& box, const Box& piece, std::span<std::byte> bytes, DType type) {
    auto& message = outgoing_[static_cast<std::size_t>(want.rank)];
    const auto before = message.size();
    put(message, want.index);
    put(message, static_cast<std::int64_t>(type));
    put(message, box);
    const auto at = message.size();
    message.resize(at + static_cast<std::size_t>(box.elements()) * size_of(type));
    const Tensor elements(std::as_writable_bytes(std::span(message)).subspan(at), type, Shape(box.extent));
    checkpoint::copy_common(piece, bytes, type, {"", Shape(box.extent), box.begin, elements});
    packed_ += message.size() - before;
    most_ = std::max(most_, message.size());
  }

  /// One round of messages. Returns whether there is another one.
  bool exchange() {
    const std::uint64_t left = at_ < plan_.share.ranges.size() ? 1 : 0;
    std::vector<Announcement> mine, theirs(outgoing_.size());
    for (const auto& message : outgoing_) mine.push_back({message.size(), left});
    const std::vector<std::size_t> sizes(outgoing_.size(), sizeof(Announcement));
    world_.all_to_all(std::as_bytes(std::span(mine)), sizes, std::as_writable_bytes(std::span(theirs)), sizes, loading);
    std::vector<comm::Transfer> transfers;
    for (std::size_t rank = 0; rank < theirs.size(); ++rank) {
      coming_[rank].resize(theirs[rank].bytes);
      const auto peer = static_cast<int>(rank);
      const auto into = std::as_writable_bytes(std::span(coming_[rank]));
      if (!into.empty()) transfers.push_back(world_.receive(into, peer, loading_tag, loading));
      const auto out = std::as_bytes(std::span(outgoing_[rank]));
      if (!out.empty()) transfers.push_back(world_.send(out, peer, loading_tag, loading));
    }
    for (auto& transfer : transfers) transfer.wait();
    for (const auto& message : coming_) attempt([&] { unpack(message); });
    for (auto& message : outgoing_) message.clear();
    packed_ = most_ = 0;
    return left != 0 || std::any_of(theirs.begin(), theirs.end(), [](const auto& one) { return one.more != 0; });
  }

  void unpack(std::span<const char> message) {
    while (!message.empty()) {
      const auto index = static_cast<std::size_t>(next_number(message));
      const auto type = static_cast<DType>(next_number(message));
      const auto box = next_box(message, box_of(wanted_[index]).extent.size());
      const auto bytes = static_cast<std::size_t>(box.elements()) * size_of(type);
      checkpoint::copy_common(box, std::as_bytes(message.first(bytes)), type, wanted_[index]);
      message = message.subspan(bytes);
      filled_[index] += box.elements();
    }
  }

  const comm::Communicator& world_;
  const checkpoint::Checkpoint& from_;
  std::span<const TensorRange> wanted_;
  bool check_crc_;
  std::size_t bytes_;
  std::vector<std::int64_t> filled_;  // of each wanted box, the elements that came
  std::exception_ptr failed_;

  LoadingPlan plan_;
  std::size_t at_ = 0;  // the range that is being read
  std::optional<File> file_;
  std::optional<checkpoint::RangeStream> stream_;
  std::vector<const Want*> here_;  // that have elements in that range
  std::unique_ptr<std::byte[]> buffer_;

  std::vector<std::string> outgoing_, coming_;  // messages, of each rank
  std::size_t packed_ = 0, most_ = 0;           // bytes of all of them, and of the largest
};

}  // namespace

std::uint64_t LoadingPlan::bytes() const {
  std::uint64_t all = 0;
  for (const auto& range : share.ranges) all += range.range.bytes;
  return all;
}

LoadingPlan plan_loading(const checkpoint::Checkpoint& from, const std::vector<std::string>& lists, std::size_t rank,
                         const std::vector<std::vector<bool>>& here) {
  std::unordered_set<std::int64_t> anybody;
  for (const auto& list : lists) for_each_wanted(list, [&](auto, auto tensor, const Box&) { anybody.insert(tensor); });
  LoadingPlan plan;
  const auto is_wanted = [&](const std::string& name) { return anybody.count(id_of(name)) != 0; };
  if (here.empty()) {
    plan.share = from.share(rank, lists.size(), is_wanted);
  } else {
    const auto own = parts_to_read(here, rank);
    plan.share = from.share(own.which, own.of, own.parts, is_wanted);
  }
  for (const auto& range : plan.share.ranges) plan.wants[id_of(range.name)];
  for (std::size_t other = 0; other < lists.size(); ++other)
    for_each_wanted(lists[other], [&](auto index, auto tensor, const Box& box) {
      const auto found = plan.wants.find(tensor);
      if (found != plan.wants.end()) found->second.push_back({static_cast<int>(other), index, box});
    });
  return plan;
}

std::string damage_found(const comm::Communicator& world, const std::function<void()>& work) {
  std::string damage;
  comm::together(world, loading, [&] {
    try {
      work();
    } catch (const DamageError& error) {
      damage = error.what();
    }
  });
  const auto all = world.all_gather(damage, loading);
  const auto first = std::find_if(all.begin(), all.end(), [](const auto& one) { return !one.empty(); });
  return first == all.end() ? "" : *first;
}

std::string load_shared(const comm::Communicator& world, const checkpoint::Checkpoint& from,
                        std::span<const TensorRange> wanted, bool check_crc, std::size_t bytes) {
  SharedLoading one(world, from, wanted, check_crc, bytes);
  one.run();
  const auto damage = damage_found(world, [&] { one.rethrow(); });
  return damage.empty() ? damage_found(world, [&] { one.must_be_filled(); }) : damage;
}

std::string load_together(const comm::Communicator& world, const checkpoint::OpenedCheckpoint& from,
                          std::span<const TensorRange> wanted, bool check_crc) {
  if (const auto* native = dynamic_cast<const checkpoint::NativeCheckpoint*>(&from))
    return load_shared(world, native->checkpoint(), wanted, check_crc);
  return damage_found(world, [&] {
    naming_damage([&] {
      for (const auto& range : wanted) from.read_box(range);
    });
  });
}

void naming_damage(const std::function<void()>& read) {
  try {
    read();
  } catch (const ConfigError& error) {
    throw DamageError(error.what());
  } catch (const IoError& error) {
    throw DamageError(error.what());
  }
}

std::vector<checkpoint::TensorRange> read_other_paddings(const checkpoint::WeightSource& source,
                                                         const std::vector<checkpoint::TensorRange>& ranges,
                                                         std::int64_t tokens, std::vector<std::string>& notes) {
  std::vector<checkpoint::TensorRange> others;
  for (const auto& range : ranges) {
    if (!checkpoint::differs_in_padding(source, range, tokens)) {
      others.push_back(range);
      continue;
    }
    auto note = checkpoint::read_other_padding(source, range);
    if (notes.empty() || notes.back() != note) notes.push_back(std::move(note));  // once for all boxes of a tensor
  }
  return others;
}

}  // namespace tessera::training
