#include "framework/model/feature_cache.h"

#include <cstring>
#include <random>
#include <system_error>
#include <vector>

#include "framework/base/crc32c.h"
#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/kernels/weight.h"

namespace tessera::model {
namespace {

namespace fs = std::filesystem;

constexpr std::array<char, 8> feature_magic = {'T', 'S', 'R', 'F', 'E', 'A', 'T', '1'};

struct FeatureHead {
  std::array<char, 8> magic = feature_magic;
  ContentKey key;
  std::uint64_t bytes = 0;
  std::uint32_t crc = 0, zero = 0;
  std::uint64_t unused = 0;
};
static_assert(sizeof(FeatureHead) == 48);

/// The finalizer of MurmurHash3: each bit of the argument changes half of the result's.
std::uint64_t finished(std::uint64_t x) {
  x = (x ^ (x >> 33U)) * 0xFF51AFD7ED558CCDULL;
  x = (x ^ (x >> 33U)) * 0xC4CEB9FE1A85EC53ULL;
  return x ^ (x >> 33U);
}

/// What is wrong with a file; empty: nothing, and its content is in `content`.
std::string read_checked(const fs::path& path, const ContentKey& key, std::span<std::byte> content) {
  const auto file = File::open(path);
  if (file.size() != sizeof(FeatureHead) + content.size())
    return text("has ", file.size(), " bytes in place of ", sizeof(FeatureHead) + content.size());
  FeatureHead head;
  file.read_at(0, std::as_writable_bytes(std::span(&head, 1)));
  if (head.magic != feature_magic || head.key != key || head.bytes != content.size())
    return "is no file of features with this key";
  file.read_at(sizeof head, content);
  return head.crc == crc32c(content) ? "" : "is damaged: its checksum is wrong";
}

/// Another process may write the same file, so the name before renaming is this one's alone.
void write_renamed(const fs::path& path, const FeatureHead& head, std::span<const std::byte> content) {
  std::random_device random;
  const fs::path beside = text(path.string(), ".", random(), random(), "_tmp");
  try {
    auto file = File::create(beside);
    file.write(std::as_bytes(std::span(&head, 1)));
    file.write(content);
    file.close();
    fs::rename(beside, path);
  } catch (...) {
    std::error_code ignored;
    fs::remove(beside, ignored);
    throw;
  }
}

}  // namespace

std::string ContentKey::name() const {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string name;
  for (const auto word : words)
    for (unsigned shift = 64; shift > 0; shift -= 4) name += digits[word >> (shift - 4) & 15U];
  return name;
}

void ContentHash::mix(std::uint64_t word) {
  lanes_[0] = (lanes_[0] ^ word) * 0x9FB21C651E98DF25ULL;
  lanes_[0] ^= lanes_[0] >> 32U;
  lanes_[1] = (lanes_[1] + word) * 0xC2B2AE3D27D4EB4FULL;
  lanes_[1] ^= lanes_[1] >> 29U;
}

void ContentHash::add(std::span<const std::byte> piece) {
  mix(piece.size());
  std::uint64_t word = 0;
  std::size_t at = 0;
  for (; at + sizeof word <= piece.size(); at += sizeof word) {
    std::memcpy(&word, piece.data() + at, sizeof word);
    mix(word);
  }
  if (at == piece.size()) return;
  word = 0;
  std::memcpy(&word, piece.data() + at, piece.size() - at);
  mix(word);
}

void ContentHash::add(const nn::Parameter& parameter) {
  const auto& leaf = parameter.leaf;
  add(text(parameter.name, " ", name_of(leaf.value.dtype())));
  for (std::size_t i = 0; i < leaf.value.shape().rank(); ++i) mix(static_cast<std::uint64_t>(leaf.value.shape()[i]));
  if (!leaf.stored) return add(std::span<const std::byte>(leaf.value.raw()));
  std::vector<float> row(static_cast<std::size_t>(leaf.stored->width));
  for (std::int64_t i = 0; i < leaf.stored->rows(); ++i) {
    kernels::read_row(leaf.weight(), i, leaf.stored->width, row);
    add(std::as_bytes(std::span(row)));
  }
}

ContentKey ContentHash::key() const { return {{finished(lanes_[0]), finished(lanes_[1])}}; }

fs::path FeatureCache::file_of(const ContentKey& key) const {
  const auto name = key.name();
  return folder_ / name.substr(0, 2) / (name + ".features");
}

bool FeatureCache::read(const ContentKey& key, std::span<std::byte> content) {
  const auto path = file_of(key);
  std::error_code unknown;
  if (!fs::exists(path, unknown)) return false;
  try {
    const auto wrong = read_checked(path, key, content);
    if (wrong.empty()) return true;
    tell(text(path.string(), " ", wrong, "; it is not used, and its features are computed again"));
  } catch (const IoError& error) {
    tell(text("features are computed again: ", error.what()));
  }
  return false;
}

void FeatureCache::write(const ContentKey& key, std::span<const std::byte> content) {
  if (!writes_) return;
  std::string reason;
  try {
    const auto path = file_of(key);
    fs::create_directories(path.parent_path());
    write_renamed(path, {.key = key, .bytes = content.size(), .crc = crc32c(content)}, content);
    return;
  } catch (const IoError& error) {
    reason = error.what();
  } catch (const fs::filesystem_error& error) {
    reason = error.what();
  }
  writes_ = false;
  tell(text("no more features are kept in ", folder_.string(), ", and the run continues without: ", reason));
}

}  // namespace tessera::model
