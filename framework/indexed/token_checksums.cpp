#include "framework/indexed/token_checksums.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <vector>

#include "framework/base/crc32c.h"
#include "framework/data/bad_sample.h"
#include "framework/files/input_file.h"

namespace tessera::indexed {
namespace {

constexpr std::string_view checksums_magic = "TSRTOKC1";

/// What the file begins with. The checksums of the chunks follow, and at the end that of all before it.
struct Header {
  char magic[8];
  std::uint64_t data_bytes;  // of the .bin file
  std::uint32_t chunk_bytes;
  std::uint32_t index_sum;  // of the .idx file
};
static_assert(sizeof(Header) == 24);

std::uint32_t number_at(std::span<const std::byte> bytes, std::size_t at) {
  std::uint32_t number = 0;
  std::memcpy(&number, bytes.data() + at, sizeof number);
  return number;
}

std::string hex(std::uint32_t sum) {
  char words[9];
  std::snprintf(words, sizeof words, "%08x", sum);
  return words;
}

/// use(chunk, bytes) for each chunk of a .bin file.
template <class Use>
void each_chunk(const File& data, const std::function<void(std::int64_t, std::int64_t)>& progress, const Use& use) {
  const auto size = data.size();
  std::vector<std::byte> buffer(TokenChecksums::chunk_bytes);
  for (std::uint64_t at = 0; at < size; at += TokenChecksums::chunk_bytes) {
    const auto bytes =
        std::span(buffer).first(static_cast<std::size_t>(std::min(TokenChecksums::chunk_bytes, size - at)));
    data.read_at(at, bytes);
    use(static_cast<std::int64_t>(at / TokenChecksums::chunk_bytes), bytes);
    if (progress) progress(static_cast<std::int64_t>(at + bytes.size()), static_cast<std::int64_t>(size));
  }
}

}  // namespace

void TokenChecksums::write(const std::string& prefix,
                           const std::function<void(std::int64_t done, std::int64_t all)>& progress) {
  const auto data = files::open_input(prefix + ".bin", "token file");
  Header header{};
  std::memcpy(header.magic, checksums_magic.data(), checksums_magic.size());
  header.data_bytes = data.size();
  header.chunk_bytes = chunk_bytes;
  const auto index = files::map_input(prefix + ".idx", "token file");
  header.index_sum = read_intact(index, [&] { return crc32c(index.bytes()); });
  std::string content(reinterpret_cast<const char*>(&header), sizeof header);
  const auto append = [&](std::uint32_t sum) { content.append(reinterpret_cast<const char*>(&sum), sizeof sum); };
  each_chunk(data, progress, [&](std::int64_t, std::span<const std::byte> bytes) { append(crc32c(bytes)); });
  append(crc32c(content));
  write_file_atomic(file_of(prefix), content);
}

std::optional<TokenChecksums> TokenChecksums::open(const std::string& prefix, std::uint64_t data_bytes) {
  const auto name = file_of(prefix);
  std::error_code ignored;
  if (!std::filesystem::exists(name, ignored)) return {};
  auto file = files::map_input(name, "file of checksums");
  const auto bytes = file.bytes();
  constexpr auto advice = "; regenerate it with `tessera data checksum`, or delete it";
  Header header{};
  if (bytes.size() >= sizeof header) std::memcpy(&header, bytes.data(), sizeof header);
  if (std::string_view(header.magic, sizeof header.magic) != checksums_magic || header.chunk_bytes != chunk_bytes)
    throw ConfigError(text(name, ": is not a file of checksums of this version", advice));
  TokenChecksums sums(prefix, std::move(file), header.data_bytes);
  const auto expected = sizeof header + 4 * (static_cast<std::size_t>(sums.chunks()) + 1);
  if (bytes.size() != expected || number_at(bytes, expected - 4) != crc32c(bytes.first(expected - 4)))
    throw ConfigError(text(name, ": is damaged: its size or checksum does not match its content", advice));
  if (header.data_bytes != data_bytes)
    throw ConfigError(
        text(prefix, ".bin: has ", data_bytes, " bytes, but ", name, " has checksums of ", header.data_bytes, advice));
  return sums;
}

void TokenChecksums::check_index(std::span<const std::byte> content) const {
  Header header{};
  std::memcpy(&header, file_.bytes().data(), sizeof header);
  if (const auto sum = crc32c(content); sum != header.index_sum)
    throw ConfigError(text(prefix_, ".idx: has the checksum ", hex(sum), ", but ", file_of(prefix_), " says ",
                           hex(header.index_sum),
                           "; it is damaged or was regenerated. Restore it, or regenerate the checksums with `tessera "
                           "data checksum`"));
}

std::size_t TokenChecksums::bytes_of(std::int64_t chunk) const {
  return static_cast<std::size_t>(std::min(chunk_bytes, data_bytes_ - first_of(chunk)));
}

void TokenChecksums::check(std::int64_t chunk, std::uint32_t sum) const {
  const auto expected = number_at(file_.bytes(), sizeof(Header) + 4 * static_cast<std::size_t>(chunk));
  if (sum == expected) return;
  file_.require_intact();
  throw data::BadSampleError(
      text(prefix_, ".bin: bytes ", first_of(chunk), " to ", first_of(chunk) + bytes_of(chunk), " have the checksum ",
           hex(sum), ", but ", file_of(prefix_), " says ", hex(expected),
           "; the file is damaged or was regenerated. Restore it, or regenerate the checksums with "
           "`tessera data checksum`"));
}

void verify_checksums(const std::string& prefix,
                      const std::function<void(std::int64_t done, std::int64_t all)>& progress) {
  const auto data = files::open_input(prefix + ".bin", "token file");
  const auto sums = TokenChecksums::open(prefix, data.size());
  if (!sums)
    throw ConfigError(text(TokenChecksums::file_of(prefix),
                           ": there is no such file; `tessera data checksum` without --verify makes it"));
  const auto index = files::map_input(prefix + ".idx", "token file");
  sums->check_index(index.bytes());
  index.require_intact();
  each_chunk(data, progress,
             [&](std::int64_t chunk, std::span<const std::byte> bytes) { sums->check(chunk, crc32c(bytes)); });
}

}  // namespace tessera::indexed
