// The manifest of a checkpoint with its checksum made right: refused as damage or for its version, or its ranges lie in
// its files, and it is written and read again as the same.
#include <cstdlib>

#include "framework/base/crc32c.h"
#include "framework/base/json.h"
#include "framework/checkpoint/format.h"
#include "framework/checkpoint/manifest.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tessera;
  auto json = parse_json({reinterpret_cast<const char*>(data), size});
  if (!json.is_object()) return 0;
  json.erase("manifest_crc32c");
  json["manifest_crc32c"] = crc_text(crc32c(json.sorted().dump()));
  try {
    const auto manifest = checkpoint::read_manifest(json.dump(), "fuzz");
    checkpoint::check_ranges(manifest, "fuzz");
    for (const auto& [name, tensor] : manifest.tensors)
      for (const auto& range : tensor.ranges) {
        const auto file = manifest.files.find(range.file);
        if (file == manifest.files.end() || range.byte_offset > file->second.bytes ||
            range.bytes > file->second.bytes - range.byte_offset)
          std::abort();
      }
    for (const auto& [name, tensor] : manifest.index)
      for (const auto part : tensor.parts)
        if (part >= manifest.parts.size()) std::abort();
    const auto words = checkpoint::write_manifest(manifest);
    if (checkpoint::write_manifest(checkpoint::read_manifest(words, "written")) != words) std::abort();
  } catch (const checkpoint::DamageError&) {
  } catch (const ConfigError&) {
  }
  return 0;
}
