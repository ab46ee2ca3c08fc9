#include "framework/training/step/run_position.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace tessera::training {
namespace {

constexpr char before_frozen = '\0';  // which no JSON contains

}  // namespace

static_assert(std::is_trivially_copyable_v<PositionNumbers> && std::is_trivially_copyable_v<StepIntent>);

std::string write_position(const RunPosition& position) {
  const PositionNumbers numbers = position;
  std::string bytes(reinterpret_cast<const char*>(&numbers), sizeof numbers);
  bytes += checkpoint::write_progress(position.progress);
  must(bytes.size() <= most_position_bytes, "the position of a run is short");
  if (!position.frozen) return bytes;
  const auto frozen = before_frozen + checkpoint::write_base(*position.frozen);
  return bytes.size() + frozen.size() <= most_position_bytes ? bytes + frozen : bytes;
}

RunPosition read_position(const std::string& bytes) {
  PositionNumbers numbers;
  if (bytes.size() < sizeof numbers) throw checkpoint::DamageError("the position of the run in memory is incomplete");
  std::memcpy(&numbers, bytes.data(), sizeof numbers);
  RunPosition position;
  static_cast<PositionNumbers&>(position) = numbers;
  const auto end = std::min(bytes.find(before_frozen, sizeof numbers), bytes.size());
  position.progress = checkpoint::read_progress(bytes.substr(sizeof numbers, end - sizeof numbers),
                                                "the position of the run in memory");
  if (end < bytes.size()) position.frozen = checkpoint::read_base(bytes.substr(end + 1));
  return position;
}

std::size_t record_bytes(nn::AuxiliaryLog& log) {
  return sizeof(StepIntent) + log.values().size_bytes() + log.negative_gaps().size_bytes();
}

void write_record(const StepIntent& intent, nn::AuxiliaryLog& log, std::span<std::byte> record) {
  must(record.size() == record_bytes(log), "a record has room for an intent and a log");
  auto* at = record.data();
  std::memcpy(at, &intent, sizeof intent);
  at += sizeof intent;
  std::memcpy(at, log.values().data(), log.values().size_bytes());
  at += log.values().size_bytes();
  std::memcpy(at, log.negative_gaps().data(), log.negative_gaps().size_bytes());
}

StepIntent read_record(std::span<const std::byte> record, nn::AuxiliaryLog& log) {
  must(record.size() == record_bytes(log), "a record contains an intent and a log");
  StepIntent intent;
  const auto* at = record.data();
  std::memcpy(&intent, at, sizeof intent);
  at += sizeof intent;
  std::memcpy(log.values().data(), at, log.values().size_bytes());
  at += log.values().size_bytes();
  std::memcpy(log.negative_gaps().data(), at, log.negative_gaps().size_bytes());
  return intent;
}

}  // namespace tessera::training
