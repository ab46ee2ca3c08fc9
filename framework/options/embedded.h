#pragma once

#include <span>
#include <string_view>

namespace tessera::options {

/// One file of mappings/ or configs/, with its content at the time when the program was built.
struct EmbeddedFile {
  std::string_view name;  ///< path below mappings/ or configs/: "weights/gpt2.yaml"
  std::string_view text;
};

/// All files of mappings/. Defined in sources that framework/options/embed.cmake writes into the build folder.
std::span<const EmbeddedFile> embedded_mappings();
/// All files of configs/; defined as embedded_mappings() is.
std::span<const EmbeddedFile> embedded_configs();

}  // namespace tessera::options
