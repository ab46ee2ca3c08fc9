#include "framework/checkpoint/host_parts.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "framework/base/files.h"
#include "framework/checkpoint/blobs.h"
#include "framework/checkpoint/manifest.h"

namespace tessera::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr const char* index_name = "manifest.json";

void put(std::string& out, const std::string& words) {
  out += std::to_string(words.size());
  out += '\n';
  out += words;
}

std::string next(std::string_view& words) {
  std::size_t size = 0;
  const auto [end, error] = std::from_chars(words.data(), words.data() + words.size(), size);
  const auto at = static_cast<std::size_t>(end - words.data()) + 1;
  must(error == std::errc{} && at <= words.size() && size <= words.size() - at, "a packed index is as it was packed");
  const std::string out(words.substr(at, size));
  words.remove_prefix(at + size);
  return out;
}

struct Unpacked {
  std::string manifest_words;
  Manifest manifest;
  Blobs blobs;
};

Unpacked unpack(const std::string& packed) {
  std::string_view rest = packed;
  Unpacked out;
  out.manifest_words = next(rest);
  out.manifest = read_manifest(out.manifest_words, index_name);
  while (!rest.empty()) {
    const auto name = next(rest);
    out.blobs[name] = next(rest);
  }
  return out;
}

bool is_here(const fs::path& folder, const std::string& name, const Manifest::SmallFile& part) {
  try {
    const auto manifest = read_part(folder, name, part);
    for (const auto& [file, stored] : manifest.files) check_size(folder, file, stored.bytes);
    return true;
  } catch (const DamageError&) {
    return false;
  }
}

Manifest index_of(const fs::path& folder) {
  const auto path = folder / index_name;
  if (!fs::exists(path)) throw DamageError(text(folder.string(), ": holds no ", index_name));
  auto manifest = read_manifest(read_file(path), path.string());
  if (manifest.index.empty()) throw DamageError(text(path.string(), ": is not of several writers"));
  return manifest;
}

}  // namespace

std::string pack_index(const fs::path& folder) {
  const auto manifest = index_of(folder);
  std::string out;
  put(out, read_file(folder / index_name));
  const auto blobs = read_blobs(folder, manifest);
  for (const auto& [name, words] : blobs) put(out, name), put(out, words);
  return out;
}

std::map<std::string, std::string> hosts_of_parts(const fs::path& folder) { return index_of(folder).hosts; }

std::vector<bool> parts_in(const fs::path& folder, const std::string& packed) {
  const auto index = unpack(packed);
  std::vector<bool> found;
  for (const auto& [name, part] : index.manifest.parts)
    found.push_back(fs::is_directory(folder) && is_here(folder, name, part));
  return found;
}

void adopt_index(const fs::path& folder, const std::string& packed, bool take_unfinished) {
  const auto index = unpack(packed);
  const fs::path unfinished = folder.string() + "_tmp";
  const auto& into = take_unfinished ? unfinished : folder;
  make_folder(into);
  Manifest written;
  write_blobs(into, index.blobs, written);
  write_file_atomic(into / index_name, index.manifest_words);
  if (!take_unfinished) return;
  rename_or_exchange(unfinished, folder);
  delete_all(unfinished);  // what an exchange left under the old name
}

std::string about_missing(const std::string& packed, const std::vector<bool>& found) {
  const auto index = unpack(packed);
  std::set<std::string> hosts;
  std::size_t at = 0, missing = 0;
  for (const auto& [name, part] : index.manifest.parts) {
    if (found[at++]) continue;
    ++missing;
    const auto host = index.manifest.hosts.find(name);
    if (host != index.manifest.hosts.end()) hosts.insert(host->second);
  }
  return text(missing, " of ", found.size(), found.size() == 1 ? " part" : " parts",
              hosts.empty() ? "" : ", which were saved on " + tessera::joined(hosts));
}

}  // namespace tessera::checkpoint
