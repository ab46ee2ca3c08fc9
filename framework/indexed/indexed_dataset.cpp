#include "framework/indexed/indexed_dataset.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "framework/base/crc32c.h"
#include "framework/base/mapped_access.h"
#include "framework/data/bad_sample.h"
#include "framework/files/input_file.h"
#include "framework/indexed/prefixes.h"

namespace tessera::indexed {
namespace {

constexpr std::string_view magic("MMIDIDX\0\0", 9);
constexpr std::size_t header_size = 34;

template <class Number>
Number load(const std::byte* at) {
  Number value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

template <class Stored>
void widen(const std::byte* from, std::span<std::int32_t> out) {
  static_assert(sizeof(Stored) <= sizeof(std::int32_t));
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<std::int32_t>(load<Stored>(from + i * sizeof(Stored)));
}

/// `open` of one of the two files of a dataset.
template <class Open>
auto open_part(const std::string& prefix, Open open) {
  try {
    return open();
  } catch (ConfigError& error) {
    error.during(text("opening the dataset '", prefix, "'; give the prefix of its two files, without .bin or .idx",
                      what_is_at_prefix(prefix)));
    throw;
  }
}

}  // namespace

std::size_t size_of(TokenType type) {
  switch (type) {
    case TokenType::uint8:
    case TokenType::int8:
      return 1;
    case TokenType::int16:
    case TokenType::uint16:
      return 2;
    case TokenType::int32:
      return 4;
    case TokenType::int64:
      return 8;
  }
  return 0;
}

const char* name_of(TokenType type) {
  switch (type) {
    case TokenType::uint8:
      return "uint8";
    case TokenType::int8:
      return "int8";
    case TokenType::int16:
      return "int16";
    case TokenType::uint16:
      return "uint16";
    case TokenType::int32:
      return "int32";
    case TokenType::int64:
      return "int64";
  }
  return "?";
}

TokenType token_type_for(std::int64_t vocab_size) { return vocab_size < 65500 ? TokenType::uint16 : TokenType::int32; }

std::string token_index_header(TokenType type, std::int64_t sequences, std::int64_t bounds) {
  std::string out(magic);
  const auto put = [&](const auto& number) { out.append(reinterpret_cast<const char*>(&number), sizeof number); };
  put(std::uint64_t{1});
  put(static_cast<std::uint8_t>(type));
  put(static_cast<std::uint64_t>(sequences));
  put(static_cast<std::uint64_t>(bounds));
  return out;
}

IndexedDataset::IndexedDataset(std::string prefix, bool map_data)
    : prefix_(std::move(prefix)),
      index_(open_part(prefix_, [&] { return files::map_input(prefix_ + ".idx", "token file"); })) {
  if (map_data)
    data_.emplace(open_part(prefix_, [&] { return files::map_input(prefix_ + ".bin", "token file"); }));
  else
    plain_data_.emplace(open_part(prefix_, [&] { return files::open_input(prefix_ + ".bin", "token file"); }));
  checksums_ = TokenChecksums::open(prefix_, data_size());
  read_intact(index_, [&] { return check_index(); });
}

/// Returns the number of sequences.
std::int64_t IndexedDataset::check_index() {
  if (checksums_) checksums_->check_index(index_.bytes());
  read_header();
  check_sequences();
  check_documents();
  return sequences_;
}

void IndexedDataset::read_header() {
  const auto bytes = index_.bytes();
  const auto wrong = [&](const auto&... message) { throw ConfigError(text(prefix_, ".idx: ", message...)); };
  if (bytes.size() < header_size || std::memcmp(bytes.data(), magic.data(), magic.size()) != 0)
    wrong(
        "is not an index of tokens: it does not begin with MMIDIDX; was it made by `tessera data preprocess` or "
        "Megatron-LM?");
  const auto version = load<std::uint64_t>(bytes.data() + 9);
  if (version != 1) wrong("has version ", version, "; only version 1 is known");
  const auto code = load<std::uint8_t>(bytes.data() + 17);
  type_ = static_cast<TokenType>(code);
  if (size_of(type_) == 0)
    wrong("holds values of type code ", static_cast<int>(code), ", which are no token ids; expected 1-5 or 8");
  const auto sequences = load<std::uint64_t>(bytes.data() + 18), starts = load<std::uint64_t>(bytes.data() + 26);
  const auto room = (bytes.size() - header_size);
  if (sequences > room / 12 || starts < 1 || starts > (room - 12 * sequences) / 8)
    wrong("is cut off or damaged: ", bytes.size(), " bytes cannot hold ", sequences, " sequences and ", starts,
          " document bounds");
  const auto rest =
      room - 12 * sequences - 8 * starts;  // a byte for each sequence says its mode, in files that have it
  if (rest != 0 && rest != sequences)
    wrong("is damaged: ", rest, " bytes follow the last of ", starts, " document bounds");
  sequences_ = static_cast<std::int64_t>(sequences);
  documents_ = static_cast<std::int64_t>(starts) - 1;
  lengths_ = bytes.data() + header_size;
  pointers_ = lengths_ + 4 * sequences;
  first_sequences_ = pointers_ + 8 * sequences;
  if (rest > 0) modes_ = first_sequences_ + 8 * starts;
}

void IndexedDataset::check_sequences() {
  const auto item = static_cast<std::int64_t>(size_of(type_));
  const auto have = static_cast<std::int64_t>(data_size());
  std::int64_t end = 0;  // of what the index speaks of, in bytes
  for (std::int64_t s = 0; s < sequences_; ++s) {
    const auto at = load<std::int64_t>(pointers_ + 8 * s);
    if (length(s) < 0)
      throw ConfigError(text(prefix_, ".idx: is damaged: sequence ", s, " has the length ", length(s)));
    if (at < 0) throw ConfigError(text(prefix_, ".idx: is damaged: sequence ", s, " begins at byte ", at));
    const auto bytes = length(s) * item;
    end = std::max(end, bytes > have - std::min(at, have) ? std::numeric_limits<std::int64_t>::max() : at + bytes);
    tokens_ += length(s);
  }
  if (end > have)
    throw ConfigError(text(prefix_, ".bin: has ", have, " bytes; its index expects ", tokens_, " tokens of ", item,
                           " bytes, some beyond the end of the file: truncated, or of another dataset. Preprocess the "
                           "data again"));
}

void IndexedDataset::check_documents() const {
  std::int64_t before = 0;
  for (std::int64_t d = 0; d <= documents_; ++d) {
    const auto bound = first_sequence(d);
    if (bound < before || bound > sequences_ || (d == 0 && bound != 0))
      throw ConfigError(text(prefix_, ".idx: is damaged: document bound ", d, " is ", bound, "; expected ",
                             d == 0 ? "0" : text(before, " to ", sequences_)));
    before = bound;
  }
  if (before != sequences_)
    throw ConfigError(
        text(prefix_, ".idx: is damaged: its documents end at sequence ", before, ", but there are ", sequences_));
}

std::int64_t IndexedDataset::length(std::int64_t sequence) const { return load<std::int32_t>(lengths_ + 4 * sequence); }

std::int64_t IndexedDataset::first_sequence(std::int64_t document) const {
  return load<std::int64_t>(first_sequences_ + 8 * document);
}

void IndexedDataset::read(std::int64_t sequence, std::int64_t offset, std::span<std::int32_t> out) const {
  const auto item = static_cast<std::int64_t>(size_of(type_));
  must(sequence >= 0 && sequence < sequences_ && offset >= 0 &&
           static_cast<std::int64_t>(out.size()) <= length(sequence) - offset,
       "tokens that are read lie inside their sequence");
  const auto from = static_cast<std::uint64_t>(first_byte(sequence) + offset * item);
  try {
    index_.require_pages();
    verify_bytes(from, from + out.size() * static_cast<std::uint64_t>(item));
    if (type_ == TokenType::int64) return read_wide(sequence, offset, from, out);
    if (data_) return read_mapped(data_->bytes().data() + from, out);
    // Into the memory of the caller: the bytes are read to its end and widened from its beginning.
    const auto stored = std::as_writable_bytes(out).last(out.size() * static_cast<std::size_t>(item));
    read_bytes(from, stored);
    convert(stored.data(), out);
  } catch (IoError& error) {
    error.during(text("reading ", place(sequence, offset)));
    throw;
  }
}

std::uint64_t IndexedDataset::data_size() const { return data_ ? data_->bytes().size() : plain_data_->size(); }

/// The chunks that have bytes [first, end).
void IndexedDataset::verify(std::uint64_t first, std::uint64_t end) const {
  thread_local std::vector<std::byte> buffer;
  for (auto chunk = first / TokenChecksums::chunk_bytes; chunk * TokenChecksums::chunk_bytes < end; ++chunk) {
    const auto number = static_cast<std::int64_t>(chunk);
    const auto at = checksums_->first_of(number);
    std::uint32_t sum = 0;
    if (data_) {
      const auto bytes = data_->bytes().subspan(at, checksums_->bytes_of(number));
      if (!access_mapped([&] { sum = crc32c(bytes); })) refuse_page();
    } else {
      buffer.resize(checksums_->bytes_of(number));
      plain_data_->read_at(at, buffer);
      sum = crc32c(std::span<const std::byte>(buffer));
    }
    checksums_->check(number, sum);
  }
}

void IndexedDataset::refuse_page() const {
  throw IoError(text(
      prefix_, ".bin: cannot be read (SIGBUS); it was truncated after it was opened, or its disk or memory failed"));
}

void IndexedDataset::read_bytes(std::uint64_t first, std::span<std::byte> into) const {
  if (!data_) return plain_data_->read_at(first, into);
  const auto* from = data_->bytes().data() + first;
  if (!access_mapped([&] { std::memcpy(into.data(), from, into.size()); })) refuse_page();
}

void IndexedDataset::read_mapped(const std::byte* from, std::span<std::int32_t> out) const {
  if (!access_mapped([&] { convert(from, out); })) refuse_page();
}

/// From the stored bytes at `from`, which may be the end of `out`.
void IndexedDataset::convert(const std::byte* from, std::span<std::int32_t> out) const {
  switch (type_) {
    case TokenType::uint8:
      return widen<std::uint8_t>(from, out);
    case TokenType::int8:
      return widen<std::int8_t>(from, out);
    case TokenType::int16:
      return widen<std::int16_t>(from, out);
    case TokenType::uint16:
      return widen<std::uint16_t>(from, out);
    case TokenType::int32:
      return widen<std::int32_t>(from, out);
    case TokenType::int64:
      return;  // read_wide()
  }
}

std::int8_t IndexedDataset::mode(std::int64_t sequence) const {
  return has_modes() ? load<std::int8_t>(modes_ + sequence) : std::int8_t{0};
}

std::int64_t IndexedDataset::first_byte(std::int64_t sequence) const {
  return load<std::int64_t>(pointers_ + 8 * sequence);
}

void IndexedDataset::read_wide(std::int64_t sequence, std::int64_t offset, std::uint64_t from,
                               std::span<std::int32_t> out) const {
  std::array<std::int64_t, 512> wide{};
  for (std::size_t first = 0; first < out.size(); first += wide.size()) {
    const auto values = std::span(wide).first(std::min(wide.size(), out.size() - first));
    read_bytes(from + first * sizeof(std::int64_t), std::as_writable_bytes(values));
    for (std::size_t i = 0; i < values.size(); ++i) {
      out[first + i] = static_cast<std::int32_t>(values[i]);
      if (out[first + i] != values[i])
        throw data::BadSampleError(text(place(sequence, offset + static_cast<std::int64_t>(first + i)),
                                        ": holds token ", values[i],
                                        "; token ids are below 2^31, make the data with the model's tokenizer"));
    }
  }
}

std::int64_t IndexedDataset::document_of(std::int64_t sequence) const {
  std::int64_t low = 0, high = documents_;  // the last document that begins at or before `sequence` and is not empty
  while (high - low > 1) {
    const auto middle = low + (high - low) / 2;
    (first_sequence(middle) <= sequence ? low : high) = middle;
  }
  return low;
}

std::string IndexedDataset::place(std::int64_t sequence, std::int64_t offset) const {
  const auto document = document_of(sequence);
  for (auto s = first_sequence(document); s < sequence; ++s) offset += length(s);
  return text(prefix_, ".bin: document ", document, ", token ", offset, " (both from 0)");
}

}  // namespace tessera::indexed
