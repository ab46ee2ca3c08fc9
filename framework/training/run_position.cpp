#include "framework/training/run_position.h"

#include <cstring>
#include <type_traits>

namespace tessera::training {
namespace {

/// What precedes the text of progress.json.
struct Head {
  std::int64_t micro_batches, saved_at;
  double product_rate;
  Interval interval;
  bool stepped, evaluated;
};
static_assert(std::is_trivially_copyable_v<Head> && std::is_trivially_copyable_v<StepIntent>);

}  // namespace

std::string write_position(const RunPosition& position) {
  Head head = {};
  head.micro_batches = position.micro_batches;
  head.saved_at = position.saved_at;
  head.product_rate = position.product_rate;
  head.interval = position.interval;
  head.stepped = position.stepped;
  head.evaluated = position.evaluated;
  std::string bytes(reinterpret_cast<const char*>(&head), sizeof head);
  bytes += checkpoint::write_progress(position.progress);
  must(bytes.size() <= most_position_bytes, "the position of a run is short");
  return bytes;
}

RunPosition read_position(const std::string& bytes) {
  Head head;
  if (bytes.size() < sizeof head) throw checkpoint::DamageError("the position of the run in memory is incomplete");
  std::memcpy(&head, bytes.data(), sizeof head);
  RunPosition position;
  position.progress = checkpoint::read_progress(bytes.substr(sizeof head), "the position of the run in memory");
  position.micro_batches = head.micro_batches;
  position.saved_at = head.saved_at;
  position.product_rate = head.product_rate;
  position.interval = head.interval;
  position.stepped = head.stepped;
  position.evaluated = head.evaluated;
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
