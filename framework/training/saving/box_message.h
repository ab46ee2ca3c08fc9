#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "framework/base/random.h"
#include "framework/checkpoint/checkpoint.h"
#include "framework/tensor/box.h"

// Boxes of tensors in messages between ranks: numbers of 64 bits.

namespace tessera::training {

inline void put(std::string& list, std::int64_t number) {
  list.append(reinterpret_cast<const char*>(&number), sizeof number);
}

/// Takes the first number off the list.
inline std::int64_t next_number(std::span<const char>& list) {
  std::int64_t number = 0;
  std::memcpy(&number, list.data(), sizeof number);
  list = list.subspan(sizeof number);
  return number;
}

inline void put(std::string& list, const Box& box) {
  for (const auto begin : box.begin) put(list, begin);
  for (const auto extent : box.extent) put(list, extent);
}

/// Takes a box off the list.
inline Box next_box(std::span<const char>& list, std::size_t dims) {
  Box box{std::vector<std::int64_t>(dims), std::vector<std::int64_t>(dims)};
  for (auto& begin : box.begin) begin = next_number(list);
  for (auto& extent : box.extent) extent = next_number(list);
  return box;
}

inline Box box_of(const checkpoint::TensorRange& range) { return Box::of(range.offsets, range.tensor.shape()); }
inline std::int64_t id_of(const std::string& tensor) { return static_cast<std::int64_t>(name_id(tensor)); }

/// The names and boxes that a rank wants, as a message.
inline std::string list_of_wanted(std::span<const checkpoint::TensorRange> wanted) {
  std::string list;
  for (const auto& range : wanted) {
    const auto box = box_of(range);
    put(list, id_of(range.name));
    put(list, static_cast<std::int64_t>(box.extent.size()));
    put(list, box);
  }
  return list;
}

/// Calls `visit(index, id of the tensor, box)` for everything in a list of list_of_wanted().
template <class Visit>
void for_each_wanted(std::span<const char> list, const Visit& visit) {
  for (std::int64_t index = 0; !list.empty(); ++index) {
    const auto name = next_number(list), dims = next_number(list);
    visit(index, name, next_box(list, static_cast<std::size_t>(dims)));
  }
}

}  // namespace tessera::training
