#include "framework/checkpoint/blobs.h"

#include <algorithm>
#include <set>

#include "framework/base/crc32c.h"
#include "framework/base/files.h"

namespace tessera::checkpoint {

namespace fs = std::filesystem;

namespace {

bool is_part_of_name(const std::string& part) {
  return !part.empty() && part.front() != '.' && std::all_of(part.begin(), part.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '.' || c == '_' || c == '-';
  });
}

}  // namespace

void write_blobs(const fs::path& folder, const Blobs& blobs, Manifest& manifest) {
  if (blobs.empty()) return;
  make_folder(folder / "blobs");
  std::set<fs::path> folders = {folder / "blobs"};
  for (const auto& [name, content] : blobs) {
    const auto slash = name.find('/');
    if (!is_part_of_name(name.substr(0, slash)) ||
        (slash != std::string::npos && !is_part_of_name(name.substr(slash + 1))))
      throw BugError(text("checkpoint: '", name,
                          "' cannot name a blob: letters, digits, '.', '_' and '-' can, with one '/' for a folder"));
    if (slash != std::string::npos && folders.insert(folder / "blobs" / name.substr(0, slash)).second)
      make_folder(folder / "blobs" / name.substr(0, slash));
    auto file = File::create(folder / "blobs" / name);
    file.write(content);
    file.sync();
    file.close();
    manifest.blobs[name] = {content.size(), crc32c(content)};
  }
  for (const auto& one : folders) sync_folder(one);
}

Blobs read_blobs(const fs::path& folder, const Manifest& manifest) {
  Blobs blobs;
  for (const auto& [name, blob] : manifest.blobs) blobs.emplace(name, read_small_file(folder, "blobs/" + name, blob));
  return blobs;
}

std::string read_small_file(const fs::path& folder, const std::string& name, const Manifest::SmallFile& file) {
  check_size(folder, name, file.bytes);
  auto bytes = read_file(folder / name);
  if (crc32c(bytes) != file.crc)
    throw DamageError(text((folder / name).string(), ": its CRC is not the one it was saved with"));
  return bytes;
}

void check_size(const fs::path& folder, const std::string& name, std::uint64_t bytes) {
  std::error_code error;
  const auto size = fs::file_size(folder / name, error);
  if (error == std::errc::no_such_file_or_directory) throw DamageError(text((folder / name).string(), ": is missing"));
  if (error) throw IoError(text((folder / name).string(), ": cannot be examined: ", error.message()));
  if (size != bytes)
    throw DamageError(text((folder / name).string(), ": has ", size, " bytes; ", bytes, " were saved"));
}

void write_blobs_beside(const fs::path& folder, std::int64_t iteration, const Blobs& blobs) {
  if (blobs.empty()) return;
  Manifest manifest;
  manifest.iteration = iteration;
  make_folder(folder);
  write_blobs(folder, blobs, manifest);
  write_file_atomic(folder / "blobs" / "manifest.json", write_manifest(manifest));
}

Blobs read_blobs_beside(const fs::path& folder) {
  const auto file = folder / "blobs" / "manifest.json";
  if (!fs::exists(file)) return {};
  return read_blobs(folder, read_manifest(read_file(file), file.string()));
}

}  // namespace tessera::checkpoint
