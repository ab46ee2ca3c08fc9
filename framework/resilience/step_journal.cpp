#include "framework/resilience/step_journal.h"

#include <atomic>
#include <cstring>

#include "framework/base/crc32c.h"

namespace tessera::resilience {
namespace {

constexpr std::size_t line = 64;  // bytes of a cache line
std::size_t whole_lines(std::size_t bytes) { return (bytes + line - 1) / line * line; }

std::uint32_t checksum_of(std::uint64_t sequence, std::int64_t step, std::uint64_t withdrawn,
                          std::span<const std::byte> position) {
  const std::uint64_t numbers[] = {sequence, static_cast<std::uint64_t>(step), withdrawn};
  return crc32c(position, crc32c(std::as_bytes(std::span(numbers))));
}

}  // namespace

struct StepJournal::Header {
  alignas(line) std::atomic<std::int64_t> intended, prepared;
  std::atomic<std::uint64_t> confirmed;  ///< sequence of a slot
  std::uint64_t record_bytes, position_bytes;
};

/// A step that is complete, and the position after it; of the two slots the newer one with a right checksum counts.
struct StepJournal::Slot {
  alignas(line) std::uint64_t sequence;  ///< 0: none
  std::int64_t step;
  std::uint64_t withdrawn;        ///< 1: the state that belongs to it is given up
  std::uint32_t bytes, checksum;  ///< checksum: of sequence, step, withdrawn and the position
};

std::size_t StepJournal::bytes(std::size_t record_bytes, std::size_t position_bytes) {
  return sizeof(Header) + whole_lines(record_bytes) + 2 * (sizeof(Slot) + whole_lines(position_bytes));
}

StepJournal::StepJournal(std::span<std::byte> memory, std::size_t record_bytes, std::size_t position_bytes)
    : memory_(memory), record_bytes_(record_bytes), position_bytes_(position_bytes) {
  must(memory.size() >= bytes(record_bytes, position_bytes), "the section of a journal is as long as it asks for");
}

StepJournal::Slot& StepJournal::slot(std::size_t index) const {
  const auto first = sizeof(Header) + whole_lines(record_bytes_);
  return *reinterpret_cast<Slot*>(memory_.data() + first + index * (sizeof(Slot) + whole_lines(position_bytes_)));
}

std::span<std::byte> StepJournal::text_of(std::size_t index) const {
  return {reinterpret_cast<std::byte*>(&slot(index)) + sizeof(Slot), position_bytes_};
}

bool StepJournal::valid(std::size_t index) const {
  const auto& one = slot(index);
  return one.sequence != 0 && one.bytes <= position_bytes_ &&
         one.checksum == checksum_of(one.sequence, one.step, one.withdrawn, text_of(index).first(one.bytes));
}

std::optional<std::size_t> StepJournal::newest() const {
  std::optional<std::size_t> found;
  for (const std::size_t i : {0U, 1U})
    if (valid(i) && (!found || slot(*found).sequence < slot(i).sequence)) found = i;
  return found;
}

std::optional<std::size_t> StepJournal::told() const {
  const auto last = newest();
  if (!last || header().confirmed.load(std::memory_order_acquire) >= slot(*last).sequence) return last;
  // This process may have died between its commit and an operation in which it would have heard of the others.
  const auto before = 1 - *last;
  if (valid(before) && slot(before).withdrawn != 0) return last;  // all ranks have loaded a checkpoint since
  return valid(before) && slot(before).sequence + 1 == slot(*last).sequence ? std::optional(before) : std::nullopt;
}

JournalState StepJournal::state() const {
  const auto last = newest(), surely = told();
  return {last ? slot(*last).step : 0, header().intended.load(std::memory_order_acquire),
          header().prepared.load(std::memory_order_acquire), surely ? slot(*surely).step : -1,
          last && slot(*last).withdrawn != 0};
}

std::optional<JournalState> StepJournal::read_state(std::span<const std::byte> memory) {
  if (memory.size() < sizeof(Header)) return std::nullopt;
  const auto& header = *reinterpret_cast<const Header*>(memory.data());
  const auto record_bytes = header.record_bytes, position_bytes = header.position_bytes;
  const auto limit = memory.size();
  if (position_bytes == 0 || record_bytes > limit || position_bytes > limit ||
      bytes(record_bytes, position_bytes) > limit)
    return std::nullopt;
  // Nothing below writes.
  const std::span<std::byte> all(const_cast<std::byte*>(memory.data()), memory.size());
  return StepJournal(all, record_bytes, position_bytes).state();
}

std::span<const std::byte> StepJournal::record() const { return memory_.subspan(sizeof(Header), record_bytes_); }

std::string StepJournal::position_in(std::optional<std::size_t> index) const {
  if (!index) return "";
  const auto words = text_of(*index).first(slot(*index).bytes);
  return {reinterpret_cast<const char*>(words.data()), words.size()};
}

std::string StepJournal::position() const { return position_in(newest()); }

std::string StepJournal::told_position() const {
  const auto found = told();
  return position_in(found ? found : newest());
}

void StepJournal::prepare(std::int64_t step) { header().prepared.store(step, std::memory_order_release); }

void StepJournal::intend(std::int64_t step, std::span<const std::byte> record) {
  must(record.size() == record_bytes_, "a record is as long as the journal was told");
  // The record first: who finds the step as intended may rely on its record.
  std::memcpy(memory_.data() + sizeof(Header), record.data(), record.size());
  header().intended.store(step, std::memory_order_release);
}

void StepJournal::confirm() {
  if (const auto last = newest()) header().confirmed.store(slot(*last).sequence, std::memory_order_release);
}

void StepJournal::commit(std::int64_t step, const std::string& position) { store(step, position, false); }

void StepJournal::withdraw(const std::string& position) { store(state().committed, position, true); }

void StepJournal::restart(std::int64_t step, const std::string& position) {
  header().intended.store(0, std::memory_order_release);
  header().prepared.store(0, std::memory_order_release);
  commit(step, position);
}

void StepJournal::store(std::int64_t step, const std::string& position, bool withdrawn) {
  must(position.size() <= position_bytes_, "a position fits the journal");
  header().record_bytes = record_bytes_;
  header().position_bytes = position_bytes_;
  const auto last = newest();
  const std::size_t next = last ? 1 - *last : 0;
  const auto sequence = last ? slot(*last).sequence + 1 : 1;
  // The older slot is replaced. A process that dies in here leaves one whose checksum does not fit, and the newer slot
  // as it was: the step then counts as intended, not as committed.
  auto& to = slot(next);
  const auto words = text_of(next).first(position.size());
  to.checksum = 0;
  std::memcpy(words.data(), position.data(), position.size());
  to.sequence = sequence;
  to.step = step;
  to.withdrawn = withdrawn ? 1 : 0;
  to.bytes = static_cast<std::uint32_t>(position.size());
  to.checksum = checksum_of(sequence, step, to.withdrawn, words);
}

}  // namespace tessera::resilience
