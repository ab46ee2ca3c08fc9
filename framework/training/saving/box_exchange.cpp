#include "framework/training/saving/box_exchange.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <numeric>
#include <string>

#include "framework/base/error.h"
#include "framework/checkpoint/copy_converted.h"
#include "framework/tensor/box.h"
#include "framework/training/saving/box_message.h"

namespace tessera::training {
namespace {

constexpr const char* delivering = "boxes of a checkpoint";
constexpr std::size_t least_bytes_of_rank = std::size_t{32} << 10;

/// A box that this rank has and another one wants.
struct Piece {
  std::int64_t want;                     ///< index in the list of the rank that wants it
  const checkpoint::TensorRange* owned;  ///< the elements are among these
  Box box;

  std::size_t bytes() const {
    return (1 + 2 * box.extent.size()) * sizeof(std::int64_t) +
           static_cast<std::size_t>(box.elements()) * sizeof(float);
  }
};

/// The pieces for one rank that are not sent yet. A piece that does not fit a message is divided.
class Outgoing {
 public:
  void add(Piece piece) { pieces_.push_back(std::move(piece)); }
  bool empty() const { return pieces_.empty(); }

  /// Appends as many pieces as fit `room` bytes to `message`, and returns their size.
  std::size_t pack(std::size_t room, std::string& message) {
    std::size_t used = 0;
    while (!pieces_.empty()) {
      while (pieces_.front().bytes() > room && pieces_.front().box.elements() > 1) divide();
      const auto& piece = pieces_.front();
      if (used + piece.bytes() > room && used > 0) break;
      used += piece.bytes();
      put(message, piece.want);
      put(message, piece.box);
      const auto at = message.size();
      message.resize(at + static_cast<std::size_t>(piece.box.elements()) * sizeof(float));
      const auto bytes = std::as_writable_bytes(std::span(message)).subspan(at);
      checkpoint::copy_box(piece.box, piece.owned->tensor, box_of(*piece.owned),
                           Tensor(bytes, DType::float32, Shape(piece.box.extent)), piece.box);
      pieces_.pop_front();
    }
    return used;
  }

 private:
  /// Divides the first piece along its first dimension that has several indices.
  void divide() {
    auto& low = pieces_.front();
    auto high = low;
    const auto dim = static_cast<std::size_t>(
        std::find_if(low.box.extent.begin(), low.box.extent.end(), [](auto e) { return e > 1; }) -
        low.box.extent.begin());
    high.box.extent[dim] /= 2;
    low.box.extent[dim] -= high.box.extent[dim];
    high.box.begin[dim] += low.box.extent[dim];
    pieces_.insert(pieces_.begin() + 1, std::move(high));
  }

  std::deque<Piece> pieces_;
};

/// What this rank owns of the boxes that each rank wants.
std::vector<Outgoing> pieces_for(std::span<const checkpoint::TensorRange> owned,
                                 const std::vector<std::string>& lists) {
  std::multimap<std::int64_t, const checkpoint::TensorRange*> by_name;
  for (const auto& range : owned) by_name.emplace(id_of(range.name), &range);
  std::vector<Outgoing> out(lists.size());
  for (std::size_t rank = 0; rank < lists.size(); ++rank) {
    for_each_wanted(lists[rank], [&](auto want, auto name, const Box& box) {
      for (auto found = by_name.lower_bound(name); found != by_name.end() && found->first == name; ++found)
        if (auto common = intersection(box_of(*found->second), box))
          out[rank].add({want, found->second, std::move(*common)});
    });
  }
  return out;
}

/// Copies the pieces of a message into the boxes that wanted them.
void unpack(std::span<const char> message, std::span<const checkpoint::TensorRange> wanted,
            std::vector<std::int64_t>& filled) {
  while (!message.empty()) {
    const auto want = static_cast<std::size_t>(next_number(message));
    const auto into = box_of(wanted[want]);
    const auto box = next_box(message, into.extent.size());
    std::vector<float> elements(static_cast<std::size_t>(box.elements()));
    std::memcpy(elements.data(), message.data(), elements.size() * sizeof(float));
    message = message.subspan(elements.size() * sizeof(float));
    checkpoint::copy_box(box, Tensor(std::span(elements), Shape(box.extent)), box, wanted[want].tensor, into);
    filled[want] += box.elements();
  }
}

}  // namespace

std::vector<std::int64_t> deliver_boxes(const comm::Communicator& world, std::span<const checkpoint::TensorRange> owned,
                                        std::span<const checkpoint::TensorRange> wanted, std::size_t bytes) {
  const auto ranks = static_cast<std::size_t>(world.size());
  auto outgoing = pieces_for(owned, world.all_gather(list_of_wanted(wanted), delivering));
  const auto room = std::max(least_bytes_of_rank, bytes / ranks);
  std::vector<std::int64_t> filled(wanted.size());
  std::vector<std::size_t> sent(ranks), coming(ranks);
  const std::vector<std::size_t> numbers(ranks, sizeof(std::size_t));
  std::string message, received;
  for (bool again = true; again;) {
    message.clear();
    for (std::size_t rank = 0; rank < ranks; ++rank) sent[rank] = outgoing[rank].pack(room, message);
    world.all_to_all(std::as_bytes(std::span(sent)), numbers, std::as_writable_bytes(std::span(coming)), numbers,
                     delivering);
    received.resize(std::accumulate(coming.begin(), coming.end(), std::size_t{0}));
    world.all_to_all(std::as_bytes(std::span(message)), sent, std::as_writable_bytes(std::span(received)), coming,
                     delivering);
    unpack(received, wanted, filled);
    float left = std::all_of(outgoing.begin(), outgoing.end(), [](const auto& one) { return one.empty(); }) ? 0 : 1;
    world.all_reduce({&left, 1}, delivering);
    again = left > 0;
  }
  return filled;
}

}  // namespace tessera::training
